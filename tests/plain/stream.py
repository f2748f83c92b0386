"""Stream: messages go into a store and are read from there; another store keeps the index of the reader.

Four parts: the sender appends and sends again what the stream has not confirmed; the stream gives each entry the
next index; the receiver asks for its index, then fetches from there, and commits the index after what it has
forwarded; the index store keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from surepipe.core.effects import (
    AppendRows,
    Deliver,
    Effect,
    Persist,
    SaveState,
    Transmit,
    WakeAt,
    Write,
    WriteStored,
)
from surepipe.core.machine import Machine, Randomness
from surepipe.simulation.explore.parts import Crashes, ExploredPart
from tests.plain.base import TIMEOUT_US, Confirm, Data, Plain, PlainReceiver, PlainSender
from tests.plain.multi_unconfirmed import RestartedNumbersSender, Sender

Log: TypeAlias = tuple[Data | None, ...]
"""Entries by index from 1; None where one was trimmed."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Everything from this index on, please."""

    index: int


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries by their indexes."""

    entries: tuple[tuple[int, Data], ...]

    @property
    def payloads(self) -> Sequence[bytes]:
        """The messages in them."""
        return [data.payloads[0] for _, data in self.entries]


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """Where was I?"""


@dataclass(frozen=True, slots=True)
class Commit:
    """The next index to read."""

    index: int


@dataclass(frozen=True, slots=True)
class IndexIs:
    """The index that was committed last, 1 for none."""

    index: int


class Stream(Plain):
    """Appends what comes, confirms it, and answers fetches as soon as there is something."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.fetched = 0
        """The index of a fetch that waits, 0 for none."""

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Store a message, or look for what is fetched."""
        match frame:
            case Data(epoch, number, payloads):
                self.log = (*self.log, frame)
                return [Persist(1, AppendRows(epoch, number, payloads))]
            case Fetch(index):
                self.fetched = index
                return self.found()
            case _:
                return []

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Stored: confirm it; somebody may be waiting for it."""
        last = cast("Data", self.log[-1])
        return [Transmit(Confirm(last.epoch, last.number)), *self.found()]

    def found(self) -> list[Effect]:
        """The entries that are waited for."""
        numbered = enumerate(self.log[self.fetched - 1 :], self.fetched) if self.fetched else ()
        entries = tuple((index, data) for index, data in numbered if data is not None)
        if not entries:
            return []
        self.fetched = 0
        return [Transmit(Entries(entries))]


class Index(Plain):
    """Keeps the highest index that was committed."""

    def __init__(self, value: int) -> None:
        self.value = value

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Answer, or store."""
        if isinstance(frame, ReadIndex):
            return [Transmit(IndexIs(self.value))]
        if isinstance(frame, Commit) and frame.index > self.value:
            self.value = frame.index
            return [Persist(1, SaveState(str(frame.index).encode()))]
        return []


class Receiver(PlainReceiver):
    """Knows no index until it is told; then fetches, forwards, commits, and fetches what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.index = 0
        self.due: int | None = None

    def wake(self, now: int) -> list[Effect]:
        """At the start, and when there was no answer: ask."""
        if self.due is not None and now < self.due:
            return []
        return self.ask(now)

    def ask(self, now: int) -> list[Effect]:
        """For the index, or for entries."""
        self.due = now + TIMEOUT_US
        question = Fetch(self.index) if self.index else ReadIndex()
        return [Transmit(question), WakeAt(self.due)]

    def frame(self, frame: object, now: int) -> list[Effect]:
        """The index, or entries: what is new in them goes on, in order."""
        if isinstance(frame, IndexIs) and not self.index:
            self.index = frame.index
            return self.ask(now)
        if not isinstance(frame, Entries) or not self.index:
            return []
        effects: list[Effect] = []
        for index, data in frame.entries:
            if index >= self.index:
                self.index = index + 1
                effects += self.hand_over(data)
        return effects

    def settled(self, ticket: int, ranges: object, now: int) -> list[Effect]:  # noqa: ARG002
        """A message has come out; after the last one, commit and go on."""
        self.handed = self.handed[1:]
        if self.handed:
            return []
        return [Transmit(Commit(self.index)), *self.ask(now)]

    def hand_over(self, data: Data) -> list[Effect]:
        """Deliver a message; the source counts what came out, not what was handed over."""
        self.handed = (*self.handed, data)
        return [Deliver(len(self.handed), data.epoch, data.number, data.payloads, 1)]


class _PlainPart:
    """What all four parts have in common."""

    def export(self, machine: Machine) -> object:
        """All attributes."""
        return machine.export()

    def restore(self, machine: Machine, state: object) -> None:
        """Set all attributes."""
        cast("Plain", machine).restore(state)

    def write(self, kept: object, write: Write) -> tuple[object, object]:
        """An end writes nothing."""
        raise AssertionError(f"{write!r} over {kept!r}")

    def survivors(self, fault: str, machine: Machine, kept: object) -> Sequence[object]:  # noqa: ARG002
        """An end keeps nothing."""
        return (kept,)


class SenderPart(_PlainPart):
    """The sender."""

    name: str = "sender"
    first_kept: object = None
    crashes: Crashes = Crashes(between=("F8",), inside=("F8",), zombie="F28")

    def __init__(self, make: type[PlainSender]) -> None:
        self.make = make

    def build(self, life: int, rng: Randomness, kept: object) -> Machine:  # noqa: ARG002
        """A new life."""
        return self.make(life)


class ReceiverPart(_PlainPart):
    """The receiver."""

    name: str = "receiver"
    first_kept: object = None
    crashes: Crashes = Crashes(before=("F10",), inside=("F11",), zombie="F28")

    def build(self, life: int, rng: Randomness, kept: object) -> Machine:  # noqa: ARG002
        """A new incarnation."""
        return Receiver()


class StreamPart(_PlainPart):
    """The stream store: keeps its log, or part of it."""

    name: str = "stream"
    first_kept: object = ()
    crashes: Crashes = Crashes(between=("F13", "F14", "F29"), inside=("F13", "F15"))

    def build(self, life: int, rng: Randomness, kept: object) -> Machine:  # noqa: ARG002
        """The store, with what it kept."""
        return Stream(cast("Log", kept))

    def write(self, kept: object, write: Write) -> tuple[object, object]:
        """An entry more."""
        assert isinstance(write, AppendRows)
        data = Data(write.epoch, write.first, cast("tuple[bytes]", write.payloads))
        return (*cast("Log", kept), data), WriteStored()

    def survivors(self, fault: str, machine: Machine, kept: object) -> Sequence[object]:
        """Everything; all but the last; what was there before it confirmed; all but the oldest."""
        log = cast("Log", kept)
        if fault == "F14":
            return (log[:-1],) if log else ()
        if fault == "F15":
            before = cast("Stream", machine).log
            return (before,) if before != log else ()
        if fault == "F29":
            held = [place for place, data in enumerate(log) if data is not None][:1]
            return [(*log[:place], None, *log[place + 1 :]) for place in held]
        return (log,)


class IndexPart(_PlainPart):
    """The index store: keeps its value, or an older one."""

    name: str = "index"
    first_kept: object = 1
    crashes: Crashes = Crashes(between=("F16", "F17"), outage="F18")

    def build(self, life: int, rng: Randomness, kept: object) -> Machine:  # noqa: ARG002
        """The store, with what it kept."""
        return Index(cast("int", kept))

    def write(self, kept: object, write: Write) -> tuple[object, object]:  # noqa: ARG002
        """Another value."""
        assert isinstance(write, SaveState)
        return int(write.state), WriteStored()

    def survivors(self, fault: str, machine: Machine, kept: object) -> Sequence[object]:  # noqa: ARG002
        """Nothing, or any value that was there before."""
        value = cast("int", kept)
        if value == 1:
            return ()
        return (1,) if fault == "F16" else tuple(range(1, value))


_GOES_TO: dict[type, int] = {
    Confirm: 0,
    Data: 1,
    Fetch: 1,
    Entries: 2,
    IndexIs: 2,
    ReadIndex: 3,
    Commit: 3,
}


@dataclass(frozen=True)
class StreamArrangement:
    """The plain stream pipe."""

    name: str
    make_sender: type[PlainSender]

    @property
    def parts(self) -> Sequence[ExploredPart]:
        """The sender first, then the way of a message."""
        return (SenderPart(self.make_sender), StreamPart(), ReceiverPart(), IndexPart())

    def goes_to(self, place: int, frame: object) -> int:  # noqa: ARG002
        """Each kind of frame has one addressee."""
        return _GOES_TO[type(frame)]


STREAM = StreamArrangement("plain stream", Sender)
STREAM_RESTARTED_NUMBERS = StreamArrangement(
    "plain stream, numbers that restart", RestartedNumbersSender
)
