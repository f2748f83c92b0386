"""How things get to an actor without a message each: a bell, and boxes that it empties when the bell rings.

Whoever has something for an actor puts it into a box and rings. Ringing tells the actor only when it has not
been told since it last looked, so a burst of any size costs one message. No lock is needed: the actor takes the
bell down *before* it empties the boxes, so what is put after that rings again, and what was put before is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BellRing:
    """The message of a bell."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "BellRing()"


RING = BellRing()


def _nobody(message: object) -> None:
    """There is no actor yet. Its first message will be that it begins, and then it looks."""


class Bell:
    """Tells an actor, once until it looks, that its boxes hold something.

    The actor sets ``rung`` to False before it looks. ``tell`` is set by whoever keeps the actor.
    """

    __slots__ = ("rung", "tell")

    def __init__(self, tell: Callable[[object], object] = _nobody) -> None:
        self.tell = tell
        self.rung = False

    def ring(self) -> None:
        """Tell the actor, if it isn't told already."""
        if not self.rung:
            self.rung = True
            self.tell(RING)


class WatchfulBell(Bell):
    """For an actor that may end without a word, as a task does with its loop: who rings in vain looks after it."""

    __slots__ = ("_look_after",)

    def __init__(self, look_after: Callable[[], object]) -> None:
        super().__init__()
        self._look_after = look_after

    def ring(self) -> None:
        """Tell the actor, or see whether it still is there."""
        if self.rung:
            self._look_after()
        super().ring()


class Box(Generic[T]):
    """A bounded box: what doesn't fit is dropped and counted. For frames, where that is route loss."""

    __slots__ = ("_bell", "_bound", "dropped", "items")

    def __init__(self, bell: Bell, bound: int) -> None:
        self._bell = bell
        self._bound = bound
        self.items: list[T] = []
        self.dropped = 0

    def put(self, item: T) -> None:
        """Add an item for the actor, or drop it when the box is full."""
        if len(self.items) >= self._bound:
            self.dropped += 1
            return
        self.items.append(item)
        bell = self._bell
        if not bell.rung:
            bell.rung = True
            bell.tell(RING)

    def take(self) -> list[T]:
        """Everything in the box, oldest first."""
        # One slice and one deletion, each atomic: what others append in between stays for the next time.
        taken = self.items[:]
        del self.items[: len(taken)]
        return taken

    def take_one(self) -> T | None:
        """The oldest item, if there is one."""
        return self.items.pop(0) if self.items else None

    @property
    def room(self) -> int:
        """How many more items fit."""
        return max(0, self._bound - len(self.items))

    def __len__(self) -> int:
        return len(self.items)

    def clear(self) -> None:
        """Lose what is in the box, with the actor that it was for."""
        self.items.clear()
