"""The monitor of the message queue's contract in every buffer of the window pipes, while tests run.

    CHECKED_BUFFERS=1 python -m pytest tests/simulation -n 0
    CHECKED_BUFFERS=1 python -m tests.simulation.gate 40

``tests`` turns it on when it is imported, so processes that run code of the tests have it too. Each of them says
at its end how many buffers there were, and how many calls changed one.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from surepipe.core import snapshot
from surepipe.pipes.message_queue import Checked, Message
from surepipe.pipes.retry import flights, window

SWITCH = "CHECKED_BUFFERS"
PLACES: Sequence[Any] = (flights, window)
"""The modules that know the buffer by name."""

BARE = flights.Transmitted


class Transmitted(Checked[Message]):
    """A buffer with its monitor: up to 256 members are compared at each call, more are sampled."""

    __slots__ = ()

    bare: type[BARE] = BARE
    buffers = 0
    changes = 0

    def __init__(self, window: int) -> None:
        super().__init__(self.bare(window))
        Transmitted.buffers += 1

    def to_state(self) -> object:
        """What the buffer says of itself: a state is the same with the monitor and without."""
        self.snapshot()
        assert isinstance(self.queue, BARE)
        return self.queue.to_state()

    @classmethod
    def from_state(cls, state: object) -> Transmitted:
        """A buffer in that state, and a monitor that knows what it holds."""
        bare = cls.bare.from_state(state)
        assert bare.capacity is not None
        made, adopted = cls(bare.capacity), cls.adopt(bare)
        made._queue, made._watch = adopted._queue, adopted._watch
        return made

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        Transmitted.changes += 1
        return super().enqueue_run(first, payloads)

    def delete_all(self, number: int) -> int:
        Transmitted.changes += 1
        return super().delete_all(number)


@contextmanager
def checked_buffers() -> Generator[type[Transmitted]]:
    """Senders that are made from now on have the monitor."""
    _take_place(Transmitted)
    try:
        yield Transmitted
    finally:
        _take_place(BARE)


def install() -> None:
    """The same to the end of the process."""
    _take_place(Transmitted)
    atexit.register(_say)


def _take_place(buffer: Any) -> None:
    for place in PLACES:
        place.Transmitted = buffer
    snapshot.stateful(buffer)


def _say() -> None:
    if Transmitted.buffers:
        counted = f"{Transmitted.buffers:,} of them, {Transmitted.changes:,} changes"
        sys.stderr.write(f"\nchecked buffers: {counted}\n")
