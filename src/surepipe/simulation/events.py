"""What can happen in a world, and how each happening is called: by its cause, never by its place in a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from surepipe.core.effects import Deliver


class Event(Protocol):
    """Something that will happen to a target."""

    @property
    def what(self) -> str:
        """How it is called, without the name of the target."""
        ...


class EventTarget(Protocol):
    """Who takes events."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    def take(self, event: Event) -> None:
        """It happens now."""
        ...


@dataclass(slots=True, eq=False)
class Touch:
    """A process touches what is outside of it."""

    what: str
    is_within_call: bool = False
    """while user's code runs: it acts outside, say"""


FrameCells: TypeAlias = tuple[str, int, int, int, str, str, int, int, str, str, str]
"""The cells of a row from ``pipe`` on, where it speaks of a frame."""


@dataclass(slots=True, eq=False)
class FrameFlight:
    """One transmission of a frame over a link.

    ``kind`` says what it is: ``data`` where it carries messages, else the kind of control frame. ``about`` is the
    content of a control frame. ``told`` is what all rows about it say: pipe, epoch, first, count, layer, link, the
    how-many-th transmission of the same content on this link, and the number of a copy that the network made.
    """

    link: str
    frame: object
    kind: str
    about: tuple[object, ...]
    cause: str
    told: FrameCells

    @property
    def copy(self) -> int:
        """Above 0 for a copy that the network made."""
        return self.told[7]

    @property
    def name(self) -> str:
        """The frame, by pipe, layer, kind and content."""
        pipe, epoch, first, count, layer, _, attempt, copied, *_ = self.told
        place = f"{pipe}/{layer} {self.kind} e{epoch}"
        run = f" {first}+{count}" if count else ""
        about = "".join(f" {_text(item)}" for item in self.about)
        copy = f" c{copied}" if copied else ""
        return f"{place}{run}{about} a{attempt}{copy}"

    @property
    def what(self) -> str:
        """The event of its arrival."""
        return f"arrive {self.name}"


def _text(item: object) -> str:
    """Ranges as ``1..3,7..7``; everything else as it prints."""
    if not isinstance(item, tuple):
        return str(item)
    pairs = cast("tuple[object, ...]", item)
    if all(
        isinstance(pair, tuple) and len(cast("tuple[object, ...]", pair)) == 2 for pair in pairs
    ):
        ranges = cast("tuple[tuple[object, object], ...]", pairs)
        return ",".join(f"{first}..{last}" for first, last in ranges) or "-"
    return ",".join(map(str, pairs)) or "-"


@dataclass(slots=True, eq=False)
class Wake:
    """The deadline of a process may have passed, at ``due``."""

    number: int
    due: int

    @property
    def what(self) -> str:
        """The how-many-th wake of the node."""
        return f"wake {self.number}"


@dataclass(slots=True, eq=False)
class Submit:
    """The application offers messages."""

    number: int
    payloads: Sequence[bytes]
    tries: int = 0

    @property
    def what(self) -> str:
        """The how-many-th offer."""
        return f"submit {self.number}"


@dataclass(slots=True, eq=False)
class HandlerCall:
    """A call of the handler for a delivery.

    ``number`` tells those apart that are for the same messages at the same attempt, ``cause`` names the row of the
    delivery, and the handler raises for the message ``raising`` (0: for none).
    """

    delivery: Deliver
    number: int
    cause: str
    raising: int = 0
    sent_on: int = 0
    """Where the handler sends messages on: up to which seq they are in the next pipe."""

    @property
    def what(self) -> str:
        """Which messages, at which attempt, and for the how-many-th time."""
        delivery = self.delivery
        run = f"{delivery.first}+{len(delivery.payloads)}"
        call = f"handle e{delivery.epoch} {run} a{delivery.attempt}"
        return call if self.number == 1 else f"{call} #{self.number}"


@dataclass(slots=True, eq=False)
class Handled:
    """The handler returns for the messages of a delivery, or a part of them."""

    call: HandlerCall
    first: int
    last: int

    @property
    def what(self) -> str:
        """Which messages of which call it was working on."""
        return f"settled {self.first}..{self.last} of {self.call.what}"


@dataclass(slots=True, eq=False)
class OfEnd:
    """An event of one of several ends of a node, by a name that no other end has."""

    end: str
    event: Event

    @property
    def what(self) -> str:
        """The end, and what happens to it."""
        return f"{self.end} {self.event.what}"


@dataclass(slots=True, eq=False)
class StoreAnswer:
    """A store answers a ticket."""

    ticket: int
    outcome: object
    call: str

    @property
    def what(self) -> str:
        """The call that it answers."""
        return f"answer {self.call}"


@dataclass(slots=True, eq=False)
class Happening:
    """Anything that the world itself does: a phase, a partition, the return of a node."""

    what: str
    act: Callable[[], None]
