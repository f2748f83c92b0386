"""Scopes of the stacks that ship. The large ones take minutes; they run with

python -m tests.simulation.explore.scopes
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surepipe.pipes.options import LayerText
from surepipe.simulation.explore import explore
from surepipe.simulation.explore_scope import LinkOrder, Scope
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

    @property
    def id(self) -> str:
        """Its name in test ids."""
        faults = "-".join(f"{fault}x{times}" for fault, times in self.faults.items())
        return f"{self.stack.name}-{self.messages}-{self.order}-{self.batch}-{faults}"

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
        )


def each_run() -> Iterator[Tried]:
    """What every run of the tests explores to its end."""
    for stack in STACKS:
        yield Tried(stack, {"F1": 1, "F2": 1}, messages=2)
        yield Tried(stack, {"F1": 1, "F3": 1}, messages=2)
        yield Tried(stack, {"F1": 1, "F3": 1}, messages=4, batch=2)
        yield Tried(stack, {"F4": 1, "F1": 1}, messages=2, order="any")
        if stack is not STRICT:
            yield Tried(stack, {"F11": 1}, messages=2, crashes=True)
            yield Tried(stack, {"F10": 1}, messages=2, crashes=True)
    for stack in (RESEND, SEQUENTIAL, STRICT):
        yield Tried(stack, {"F1": 1, "F2": 1, "F3": 1, "F5": 1}, messages=2)
        yield Tried(stack, {"F4": 1, "F1": 1, "F3": 1}, messages=2, order="any")


def large() -> Iterator[Tried]:
    """One of each tolerated fault together, 3 messages in order and 2 out of order."""
    for stack in STACKS:
        yield Tried(stack, {"F1": 1, "F2": 1, "F3": 1, "F5": 1}, messages=3)
        yield Tried(stack, {"F1": 1, "F3": 1, "F4": 1, "F5": 1}, messages=2, order="any")
        if stack is not STRICT:
            yield Tried(stack, {"F1": 1, "F10": 1, "F11": 1}, messages=3, crashes=True)


def main() -> int:
    """Explore the large scopes; 1 when one of them doesn't hold or is too large to be finished."""
    failed = 0
    for tried in large():
        explored = explore(tried.stack.subject(), tried.scope)
        sys.stdout.write(f"{tried.id}: {explored.verdict}, {explored.states} states\n")
        if explored.counterexample is not None:
            sys.stdout.write(f"{explored.counterexample}\n")
        failed |= not explored.holds
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
