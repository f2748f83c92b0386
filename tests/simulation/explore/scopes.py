"""Scopes of the stacks that ship: what each run of the tests explores to its end, and what is left for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surepipe.pipes.catalogue import LayerText
from surepipe.simulation.explore.scope import LinkOrder, Scope
from surepipe.simulation.subjects import HopSubject

TIMERS: Mapping[str, object] = {"rto_initial_s": 1, "rto_min_s": 1, "rto_max_s": 1, "jitter": 0}
"""Timers that don't adapt, so that a state says all about what comes (simulation X-46)."""

ENDING = ("P1", "P2", "P8", "P11", "P12")


@dataclass(frozen=True)
class Stack:
    """A stack that ships, and the order it keeps through faults of the route and crashes of the receiver."""

    name: str
    layers: Sequence[LayerText]
    order: tuple[str, ...] = ()
    after_crash: tuple[str, ...] = ()
    properties: tuple[str, ...] = ENDING

    def subject(self) -> HopSubject:
        """To be explored."""
        return HopSubject(self.layers, name=self.name)


RESEND = Stack("resend", [{"resend": {**TIMERS, "run_max": 1}}], ("P6g",), ("P6g",))
MULTI = Stack("multi-unconfirmed", [{"multi-unconfirmed": TIMERS}])
SEQUENTIAL = Stack("sequential-confirm", [{"sequential-confirm": TIMERS}], ("P7",), ("P6g",))
RELIABLE = Stack("reliable", [{"reliable": TIMERS}], ("P7",), ("P6g",))
CONTINUOUS = Stack(
    "continuous-index over multi-unconfirmed",
    ["continuous-index", {"multi-unconfirmed": TIMERS}],
    ("P7",),
)
DEDUPE = Stack("dedupe over multi-unconfirmed", ["dedupe", {"multi-unconfirmed": TIMERS}], ("P3",))
STRICT = Stack("strict-monotonic", ["strict-monotonic"], ("P5",), properties=("P1",))
STACKS = (RESEND, MULTI, SEQUENTIAL, RELIABLE, CONTINUOUS, DEDUPE, STRICT)


@dataclass(frozen=True)
class Tried:
    """A stack in a scope."""

    stack: Stack
    faults: Mapping[str, int]
    messages: int = 2
    order: LinkOrder = "fifo"
    batch: int = 1
    crashes: bool = False
    reduced: bool = False

    @property
    def id(self) -> str:
        """Its name in test ids."""
        faults = "-".join(f"{fault}x{times}" for fault, times in self.faults.items())
        reduced = "-reduced" if self.reduced else ""
        return f"{self.stack.name}-{self.messages}-{self.order}-{self.batch}-{faults}{reduced}"

    @property
    def scope(self) -> Scope:
        """The scope."""
        kept = self.stack.after_crash if self.crashes else self.stack.order
        return Scope(
            messages=self.messages,
            order=self.order,
            faults=self.faults,
            batch=self.batch,
            properties=(*self.stack.properties, *kept),
            reduced=self.reduced,
        )


ONE_OF_EACH: Mapping[str, int] = {"F1": 1, "F2": 1, "F3": 1, "F5": 1}
OVERTAKEN: Mapping[str, int] = {"F1": 1, "F3": 1, "F4": 1, "F5": 1}
CRASHED: Mapping[str, int] = {"F1": 1, "F10": 1, "F11": 1}

WIDE = (MULTI, CONTINUOUS, DEDUPE)
"""Stacks with several frames on the way and an answer to each: too many schedules for every run of the tests."""


def small(stack: Stack) -> Iterator[Tried]:
    """Two kinds of faults, without reduction."""
    yield Tried(stack, {"F1": 1, "F2": 1}, messages=2)
    yield Tried(stack, {"F1": 1, "F3": 1}, messages=2)


def two_frames(stack: Stack) -> Iterator[Tried]:
    """One of each tolerated fault together in runs of 2, and what else takes seconds with two frames."""
    yield Tried(stack, ONE_OF_EACH, messages=4, batch=2, reduced=True)
    if stack in WIDE:
        yield Tried(stack, {"F1": 1, "F3": 1, "F4": 1}, messages=2, order="any", reduced=True)
    if stack is not STRICT:
        yield Tried(stack, CRASHED, messages=2, crashes=True, reduced=True)


def three_frames(stack: Stack) -> Iterator[Tried]:
    """One of each together: 3 messages in order, and 2 where they overtake."""
    yield Tried(stack, ONE_OF_EACH, messages=3, reduced=True)
    yield Tried(stack, OVERTAKEN, messages=2, order="any", reduced=True)


def each_run() -> Iterator[Tried]:
    """What every run of the tests explores to its end."""
    for stack in STACKS:
        yield from two_frames(stack)
        yield from small(stack) if stack in WIDE else three_frames(stack)


def left_for_the_night() -> Iterator[Tried]:
    """What takes longer: up to half a minute of one core each, where it was measured."""
    for stack in STACKS:
        if stack in WIDE:
            yield from three_frames(stack)
        if stack is not STRICT:
            yield Tried(stack, CRASHED, messages=3, crashes=True, reduced=True)
