"""What can happen in a world, and how each happening is called: by its cause, never by its place in a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast


class Event(Protocol):
    """Something that will happen to a target."""

    @property
    def what(self) -> str:
        """How it is called, without the name of the target."""
        ...


class Target(Protocol):
    """Who takes events."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    def take(self, event: Event) -> None:
        """It happens now."""
        ...


@dataclass(slots=True, eq=False)
class Flight:
    """One transmission of a frame over a link; ``copy`` is above 0 for copies that the network made.

    ``kind`` says what it is: ``data`` where it carries messages, else the kind of control frame. ``about`` is the
    content of a control frame, ``attempt`` the how-many-th transmission of the same content on this link.
    """

    link: str
    frame: object
    kind: str
    layer: int
    epoch: int
    first: int
    count: int
    about: tuple[object, ...]
    attempt: int
    pipe: str
    cause: str
    copy: int = 0

    @property
    def name(self) -> str:
        """The frame, by pipe, layer, kind and content."""
        place = f"{self.pipe}/{self.layer} {self.kind} e{self.epoch}"
        run = f" {self.first}+{self.count}" if self.count else ""
        about = "".join(f" {_text(item)}" for item in self.about)
        copy = f" c{self.copy}" if self.copy else ""
        return f"{place}{run}{about} a{self.attempt}{copy}"

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
    """A call of the handler; ``number`` tells those apart that are for the same messages at the same attempt."""

    epoch: int
    first: int
    count: int
    attempt: int
    number: int

    @property
    def what(self) -> str:
        """Which messages, at which attempt, and for the how-many-th time."""
        call = f"handle e{self.epoch} {self.first}+{self.count} a{self.attempt}"
        return call if self.number == 1 else f"{call} #{self.number}"


@dataclass(slots=True, eq=False)
class Handled:
    """The handler returns for the messages of a delivery, or a part of them."""

    ticket: int
    epoch: int
    first: int
    last: int
    attempt: int
    call: HandlerCall
    cause: str

    @property
    def what(self) -> str:
        """Which messages of which call it was working on."""
        return f"settled {self.first}..{self.last} of {self.call.what}"


@dataclass(slots=True, eq=False)
class Answer:
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
