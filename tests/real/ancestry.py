"""Which process started which, as the system tells."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Family(NamedTuple):
    """Where a process belongs."""

    parent: int
    session: int


def families() -> dict[int, Family]:
    """Of all processes that run now."""
    found: dict[int, Family] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            told = status.read_text().rpartition(")")[2].split()
            found[int(status.parent.name)] = Family(int(told[1]), int(told[3]))
    return found


def ancestor(process: int, among: list[int]) -> int | None:
    """The one among these that started a process, or started what started it; None when there is none."""
    known = families()
    while process in known and process not in among:
        process = known[process].parent
    return process if process in among else None
