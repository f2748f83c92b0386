"""Processor time of a program and of all that it started, told apart by what it is: JVM, Python, Redis.

On a machine that others use, too, it says more than the time on the clock. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("JVM", "Python", "Redis")
_NAMES = {"java": "JVM", "redis-server": "Redis"}


def used() -> dict[str, float]:
    """Seconds that each kind of process has used so far; those of ended children count for their parents."""
    seconds: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    children = _children()
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        found = _stat(pid)
        if found is None:
            continue
        name, fields = found
        own, of_ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        kind = _NAMES.get(name, "Python")
        started = "Python" if kind == "JVM" else kind
        seconds[kind] += own / _TICKS
        seconds[started] += of_ended / _TICKS
    return seconds


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and (stat := _stat(int(each.name))):
            found.setdefault(int(stat[1][1]), []).append(int(each.name))
    return found


def _stat(pid: int) -> tuple[str, list[str]] | None:
    """The name of a process and the fields behind it (state first); None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()
