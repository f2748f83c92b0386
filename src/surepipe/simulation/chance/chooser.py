"""Who answers when a run could go differently: chance, by a seed, or a script.

The world asks about frames, events and store calls, each under its name. ``seeded.SeededChooser`` draws from the
generator of the authority concerned and writes down each answer that is not the plain one.
``scripted.ScriptChooser`` finds the answer in a script, and the plain answer where the script is silent. So the
decisions of a seeded run are a script that repeats it; with fewer of them it is a run with fewer faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surepipe.simulation.chance.randomness import Draws
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.events import Event, FrameFlight
from surepipe.simulation.options import Options


@dataclass(slots=True)
class Fate:
    """What befalls a frame; as built: nothing."""

    is_lost: bool = False
    extra_us: int = 0
    overtaken_us: int = 0
    corrupt_bit: int = -1
    copies_us: Sequence[int] = ()
    copied_as: str = "F3"
    """which fault of the catalogue the copies are"""


PLAIN_FATE = Fate()


@dataclass(frozen=True, slots=True)
class StoreFate:
    """What befalls a store call: ``verb`` is empty, ``slow``, ``lost``, ``unknown``, ``refuse``, or LATE_ANSWER:
    done at once and answered after ``delay_us``."""

    verb: str = ""
    delay_us: int = 0
    reason: str = ""


PLAIN_STORE_FATE = StoreFate()
LATE_ANSWER = "late-answer"


@dataclass(frozen=True, slots=True)
class LinkCut:
    """A partition: the links by name, when, and for how long (0: for good)."""

    name: str
    mode: str
    links: tuple[str, ...]
    at_us: int
    for_us: int

    @property
    def fault(self) -> str:
        """Which fault of the catalogue it is."""
        return "F6" if self.for_us else "F7"


REMOVALS = 16
"""In how many ways entries are removed: from one of four places, and how many."""


@dataclass(frozen=True, slots=True)
class Mishap:
    """What befalls a store between two calls: ``crash``, ``rollback``, ``empty``, ``trim``, ``remove``, ``down``.

    ``amount`` is how many of its last writes it may lose, or which entries are removed; ``for_us`` how long it is
    away.
    """

    name: str
    store: str
    verb: str
    at_us: int
    amount: int = 0
    for_us: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What befalls a process at one event.

    ``verb`` is ``crash``, ``power``, ``pause``, ``zombie`` or ``mailbox``. ``point`` is how much of the event was
    done: messages that crossed the boundary and then effects, -1 for nothing at all. ``for_us`` is how long the
    node is away.
    """

    verb: str
    point: int = -1
    for_us: int = 0

    @property
    def is_end(self) -> bool:
        """The process is over; else it only sleeps."""
        return self.verb in ("crash", "power", "mailbox")

    def done(self, count: int) -> int:
        """How many of the first ``count`` points were done."""
        return max(0, min(count, self.point)) if self.is_end else count

    def beyond(self, count: int) -> Trouble:
        """The same, counted from that point on."""
        return Trouble(self.verb, max(-1, self.point - count), self.for_us)


class Roles(Protocol):
    """A node, as far as chance is concerned: which ends of pipes it has.

    One that ``relays`` sends only what it was given, and is given again what it forgets.
    """

    @property
    def name(self) -> str: ...

    @property
    def sends(self) -> bool: ...

    @property
    def receives(self) -> bool: ...

    @property
    def relays(self) -> bool: ...


def fault_of(verb: str, *, is_sender: bool) -> str:
    """The fault of the catalogue that a trouble of an end is."""
    if verb == "crash":
        return "F8" if is_sender else "F10"
    return {"power": "F31", "mailbox": "F26"}.get(verb, "F28")


class Chooser(Protocol):
    """Everything that may be asked. The plain answer is the cheapest one to give."""

    def given(self) -> Sequence[Decision]:
        """What is known beforehand: the decisions of a script."""
        ...

    def begin(self, options: Options) -> None:
        """A run starts under these options."""
        ...

    def plan(self, nodes: Sequence[Roles], beside: Sequence[Roles] = ()) -> None:
        """These are the nodes of the run. What befalls those ``beside`` moves nothing that befalls the others."""
        ...

    def end_chaos(self) -> None:
        """From now on nothing goes wrong, but for what is frozen on."""
        ...

    @property
    def has_ties(self) -> bool:
        """False when ``tie`` is always 0."""
        ...

    def tie(self, target: str, event: Event) -> int:
        """The smaller goes first among what is due at the same time."""
        ...

    def fate(self, flight: FrameFlight) -> Fate:
        """Decide the fate of a frame that was just transmitted."""
        ...

    def may_ever_trouble(self, node: str) -> bool:
        """False when nothing will befall the node in this run: then nobody asks."""
        ...

    def may_trouble(self, node: str) -> bool:
        """Cheap: False when nothing will befall the node at its next event."""
        ...

    def trouble(self, node: str, event: Event, points: int) -> Trouble | None:
        """Decide a fault of the process at this event, which has so many points beyond -1."""
        ...

    def poisoned(self, payloads: Sequence[bytes]) -> frozenset[bytes]:
        """Those for which the handler always raises."""
        ...

    def submit(self, offer: str, left: int) -> tuple[int, int]:
        """How long after the one before the application makes this offer, and of how many messages.

        ``offer``: a name that no other offer of the run has, whichever source makes it.
        """
        ...

    def cuts(self, links: Sequence[str], chaos_us: int) -> Sequence[LinkCut]:
        """The partitions of the run."""
        ...

    def mishaps(self, stores: Sequence[str], chaos_us: int) -> Sequence[Mishap]:
        """What befalls the stores of the run."""
        ...

    def handling(self, call: Event, epoch: int, first: int, count: int) -> tuple[int, int]:
        """How long the handler takes for this call of it, and the seq at which it raises (0: none)."""
        ...

    def part(self, event: Event, count: int) -> int:
        """How many of the messages the handler settles at first."""
        ...

    def store(self, store: str, call: str, *, is_write: bool) -> StoreFate:
        """What befalls a store call."""
        ...

    def wall_step(self, node: str, life: int) -> int:
        """How far the wall clock jumps before this life starts."""
        ...

    def perturb(self, name: str, where: str) -> bool:
        """Whether a perturbation fires here."""
        ...

    def source(self, label: str) -> Draws:
        """The generator that a machine is given."""
        ...

    def decisions(self) -> tuple[Decision, ...]:
        """The answers that were not plain and took effect, in the order in which they were asked for."""
        ...

    @property
    def stale(self) -> str | None:
        """The first decision that found nothing to act on."""
        ...
