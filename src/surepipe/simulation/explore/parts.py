"""The parts of an exploration: machines, what each keeps through a crash, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast, runtime_checkable

from surepipe.core.effects import JournalContents, SaveState, Write, WriteStored
from surepipe.core.machine import Machine, Randomness
from surepipe.errors import ConfigurationError
from surepipe.pipes.stack.assembled import ReceiverStack, Stack
from surepipe.pipes.wire.frames import Confirm, Data
from surepipe.simulation.explore.numbers import PLAIN
from surepipe.simulation.subjects import Subject

Kept = object
"""What a part keeps through a crash: a plain value that nobody changes."""


@runtime_checkable
class Restorable(Protocol):
    """A machine that can go on from a state it has exported."""

    def export(self) -> object:
        """The whole state as a plain value."""
        ...

    def restore(self, state: object) -> None:
        """Go on from an exported state."""
        ...


@dataclass(frozen=True, slots=True)
class Crashes:
    """Which faults end a part: between two events, before what arrives is processed, or within an event.

    ``outage`` is the fault that cuts it off for a while, ``zombie`` the one after which the old incarnation goes
    on beside the new one.
    """

    between: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    outage: str = ""
    zombie: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        others = tuple(name for name in (self.outage, self.zombie) if name)
        return (*self.between, *self.before, *self.inside, *others)


class ExploredPart(Protocol):
    """One end, or one store: builds its machine anew for each incarnation."""

    @property
    def name(self) -> str:
        """How steps and rows call it."""
        ...

    @property
    def crashes(self) -> Crashes:
        """The faults that end it."""
        ...

    @property
    def first_kept(self) -> Kept:
        """What its store holds before anything happened."""
        ...

    def build(self, life: int, rng: Randomness, kept: Kept) -> Machine:
        """The machine of a new incarnation."""
        ...

    def export(self, machine: Machine) -> object:
        """The state, without what can't matter to what comes (counters, spent tickets)."""
        ...

    def restore(self, machine: Machine, state: object) -> None:
        """Set a machine to an exported state."""
        ...

    def write(self, kept: Kept, write: Write) -> tuple[Kept, object]:
        """Do a write: what is kept from now on, and the outcome."""
        ...

    def survivors(self, fault: str, machine: Machine, kept: Kept) -> Sequence[Kept]:
        """What this fault may leave: one value for each way it may go."""
        ...


@runtime_checkable
class Arrangement(Protocol):
    """The parts of an exploration and the ways between them. Parts are known by their place, the sender is 0."""

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    @property
    def parts(self) -> Sequence[ExploredPart]:
        """Everyone who takes part, the sender first."""
        ...

    def goes_to(self, place: int, frame: object) -> int:
        """The place of the part that gets a frame of this one."""
        ...


FIXED: Mapping[str, object] = {"stamp": 0, "stamps": None, "echo": 0}
"""Names of single transmissions, and what stands in their place: they only measure round trips."""

BALANCED = ("accepted", "confirmed", "given_up")
"""Counters that a sender's own assertions look at; the rest of its state says how large they are."""

_EMPTY: Mapping[str, object] = {"dict": ["dict"], "list": ["list"]}


def export_machine(machine: Machine) -> object:
    """The state of a machine, without what can't matter to what it will do.

    Of a stack these are counters, tickets that nobody will answer any more, and the names of transmissions. The
    few counters that a sender asserts stay: they say nothing that the rest does not.
    """
    state, known = machine.export(), cast("object", machine)
    if not isinstance(known, Stack):
        return state
    own, *layers = cast("list[list[list[object]]]", state)
    spent = isinstance(known, ReceiverStack) and known.idle
    kept = [
        [name, 0 if spent and name == "_last_ticket" else value]
        for name, value in own
        if name != "_counts"
    ]
    if not isinstance(known, ReceiverStack):
        kept += [[name, _counts_kept(value)] for name, value in own if name == "_counts"]
    return [kept, *(_without_stamps(layer) for layer in layers)]


def _counts_kept(counts: object) -> object:
    kind, *pairs = cast("list[list[object]]", counts)
    return [kind, *([name, value if name in BALANCED else 0] for name, value in pairs)]


def _without_stamps(value: object) -> object:
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    if len(items) == 2 and isinstance(items[0], str) and items[0] in FIXED:
        fixed = FIXED[items[0]]
        return [items[0], _emptied(items[1]) if fixed is None else fixed]
    return [item if type(item) in PLAIN else _without_stamps(item) for item in items]


def _emptied(collection: object) -> object:
    return _EMPTY[str(cast("list[object]", collection)[0])]


def without_stamp(frame: object) -> object:
    """A frame without the name of its transmission, so that round trips are never measured."""
    if isinstance(frame, Data) and frame.stamp:
        return replace(frame, stamp=0)
    if isinstance(frame, Confirm) and frame.echo:
        return replace(frame, echo=0)
    return frame


class EndPart:
    """What the two ends of a subject have in common."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def export(self, machine: Machine) -> object:
        """The state that matters."""
        return export_machine(machine)

    def restore(self, machine: Machine, state: object) -> None:
        """Set a machine to an exported state. Raises ConfigurationError for one that can't be."""
        if not isinstance(machine, Restorable):
            raise ConfigurationError(
                f"{type(machine).__name__} has no restore(state): exploration needs to set a machine back"
            )
        machine.restore(state)

    def survivors(self, fault: str, machine: Machine, kept: Kept) -> Sequence[Kept]:  # noqa: ARG002
        """A crash of an end leaves what was stored."""
        return (kept,)


class SenderPart(EndPart):
    """The sending end of a subject."""

    name: str = "sender"
    first_kept: Kept = None

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        if subject.journaled:
            raise ConfigurationError(
                f"{subject.name}: exploration has no journal; the simulator tries journals"
            )
        self.crashes = Crashes(between=("F8",), inside=("F8",), zombie="F28")

    def build(self, life: int, rng: Randomness, kept: Kept) -> Machine:  # noqa: ARG002
        """A new life of the sender."""
        contents: JournalContents | None = None
        return self.subject.sender(life_hint=life, rng=rng, journal=contents)

    def write(self, kept: Kept, write: Write) -> tuple[Kept, object]:
        """A sender without a journal writes nothing."""
        raise ConfigurationError(f"a sender without a journal asked for {write!r} over {kept!r}")


class ReceiverPart(EndPart):
    """The receiving end of a subject; keeps the state that it stored last, where that is durable."""

    name: str = "receiver"
    first_kept: Kept = None
    crashes: Crashes = Crashes(before=("F10",), inside=("F11",), zombie="F28")

    def build(self, life: int, rng: Randomness, kept: Kept) -> Machine:
        """A new incarnation of the receiver."""
        state = cast("bytes | None", kept) if self.subject.durable else None
        return self.subject.receiver(life=life, rng=rng, state=state)

    def write(self, kept: Kept, write: Write) -> tuple[Kept, object]:
        """Keep a state."""
        if not isinstance(write, SaveState):
            raise ConfigurationError(f"a receiver asked for {write!r} over {kept!r}")
        return write.state, WriteStored()


class HopArrangement:
    """Both ends of a subject, and a link each way."""

    def __init__(self, subject: Subject) -> None:
        self.name = subject.name
        self.parts: Sequence[ExploredPart] = (SenderPart(subject), ReceiverPart(subject))

    def goes_to(self, place: int, frame: object) -> int:  # noqa: ARG002
        """The other end."""
        return 1 - place


def arrangement_of(subject: Subject | Arrangement) -> Arrangement:
    """The machines and links to explore, made from any description of them."""
    return subject if isinstance(subject, Arrangement) else HopArrangement(subject)


def carries_messages(frame: object) -> bool:
    """Whether a frame carries messages; all others are control frames."""
    return hasattr(frame, "payloads")
