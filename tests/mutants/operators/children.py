"""Forked children that try something, in bounded time and memory, and tell what came of it."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from warnings import catch_warnings, simplefilter

MEMORY_MAX = 3 << 30
GRACE_S = 10
STANDSTILL_S = 120
"""A test that waits for so long, whatever it has to do, does not come back."""
_PR_SET_CHILD_SUBREAPER = 36


class OutOfTime(KeyboardInterrupt):
    """A test took too long. An interrupt, so that pytest doesn't take it for a result."""


def adopt_orphans() -> None:
    """What children leave running becomes ours, so that it can be ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tell(task: Callable[[], object], within_s: float) -> object:
    """What ``task`` returned, done in a child; None when the child died or did not end in time."""
    sys.stdout.flush()
    others = _children()
    reading, writing = os.pipe()
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # of threads, which the child goes on without
        child = os.fork()
    if child == 0:
        os.close(reading)
        _work(task, writing)
    os.close(writing)
    told = _read(reading, within_s + GRACE_S)
    _end(child)
    _end_orphans(others)
    return json.loads(told) if told else None


def limit(seconds: float) -> None:
    """From now on so many seconds of work until ``OutOfTime``; 0 for no limit.

    Work, and not time: how busy the machine is must not decide who is killed.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, STANDSTILL_S if seconds else 0)


def _work(task: Callable[[], object], writing: int) -> None:
    """In the child: never returns."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
        signal.signal(signal.SIGALRM, _out_of_time)
        signal.signal(signal.SIGPROF, _out_of_time)
        told = json.dumps(task()).encode()
        limit(0)
        with os.fdopen(writing, "wb") as out:
            out.write(told)
    finally:
        os._exit(0)


def _out_of_time(signum: int, frame: object) -> None:
    del signum, frame
    raise OutOfTime


def _read(reading: int, within_s: float) -> bytes:
    """All that the child says until it closes the pipe or time is up."""
    told, end = b"", monotonic() + within_s
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while (left := end - monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
            part = pipe.read(1 << 20)
            if not part:
                return told
            told += part
    return b""


def _end(child: int) -> None:
    """Let it put its things away, but not for ever."""
    exit_of_child = os.pidfd_open(child)
    if not select.select([exit_of_child], [], [], GRACE_S)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(exit_of_child)
    os.waitpid(child, 0)


def _children() -> set[int]:
    """The processes that this thread's process has begun or adopted."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def _end_orphans(others: set[int]) -> None:
    """End what the last child left running, which is ours now; the ``others`` were there before it."""
    while orphans := _children() - others:
        for orphan in orphans:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
