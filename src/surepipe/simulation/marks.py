"""Marks: what a campaign must have exercised before it may say *held*. They are read off the rows of each run.

A fault that struck is not enough: it must have mattered, which is that what it struck was sent again, delivered
again, or restarted before a message came out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import cast

from surepipe.errors import MisuseError
from surepipe.simulation.faults import BY_ID
from surepipe.simulation.options import DRAINS
from surepipe.simulation.trace import Kind, Row

_REGISTRY: dict[str, str] = {}


def register(name: str, meaning: str) -> str:
    """Make a mark known. Raises MisuseError for a name that means something else already."""
    if _REGISTRY.get(name, meaning) != meaning:
        raise MisuseError(f"mark {name!r} is registered already: {_REGISTRY[name]}")
    _REGISTRY[name] = meaning
    return name


def registered() -> Mapping[str, str]:
    """All marks, with what each means."""
    return dict(_REGISTRY)


CONFIRM_LOST = register("confirm-lost", "a confirm was lost after its message was settled")
CROSSED = register("crossed", "a message was sent again while its confirm was on the way")
HELD = register("held-three", "three messages behind a hole had arrived before it was filled")
LATE_COPY = register("late-copy", "a copy arrived after something newer was settled")
DEAD_LETTER = register("dead-letter", "a message became a dead letter")
REJECTED_FULL = register("rejected-full", "a sender was full")
ZOMBIE = register("zombie-acted", "a process that had been replaced did something")
CRASH_AFTER = tuple(
    register(f"crash-after-{k}", f"a process ended after effect {k} of an event") for k in range(3)
)
CRASH_SETTLED = register("crash-settled", "a receiver ended between settling and confirming")
DRAINED: Mapping[str, str] = {
    drain.value: register(f"drain-{drain.value}", f"a run was drained {drain.value}")
    for drain in DRAINS
}
STRUCK: Mapping[str, str] = {
    kind.id: register(f"fault-{kind.id}", f"{kind.kind} struck") for kind in BY_ID.values()
}


@dataclass(frozen=True, slots=True)
class Exercised:
    """What one run exercised: its marks, and the faults that struck."""

    marks: frozenset[str]
    faults: frozenset[str]

    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of faults that struck together."""
        return frozenset(combinations(sorted(self.faults), 2))


def exercised(rows: Sequence[Row], faults: Iterable[str], drain: str) -> Exercised:
    """Read the marks off a run; ``faults`` are those that its decisions brought."""
    reader = _Reader()
    for row in rows:
        reader.see(row)
    struck = frozenset(faults) & STRUCK.keys()
    found = reader.found | {STRUCK[fault] for fault in struck}
    if drain in DRAINED:
        found.add(DRAINED[drain])
    return Exercised(frozenset(found), struck)


class _Reader:
    """One pass over the rows of a run."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._settled: set[tuple[int, int]] = set()
        self._highest = 0
        self._arrived: dict[tuple[int, int], int] = {}
        self._waiting: set[tuple[int, int]] = set()
        self._current: dict[str, int] = {}
        self._last_settled = -1
        self._looks: dict[str, Callable[[Row], None]] = {
            Kind.SETTLED: self._at_settled,
            Kind.LOST: self._at_lost,
            Kind.ARRIVED: self._at_arrived,
            Kind.DEAD: self._at_dead,
            Kind.REJECTED: self._at_rejected,
            Kind.CRASH: self._at_crash,
            Kind.START: self._at_start,
            Kind.TRANSMIT: self._at_transmit,
        }

    def see(self, row: Row) -> None:
        look = self._looks.get(row.kind)
        if look is not None:
            look(row)

    def _at_settled(self, row: Row) -> None:
        if len(self._waiting) >= 3:
            self.found.add(HELD)
        for seq in range(row.seq, row.last + 1):
            self._settled.add((row.epoch, seq))
            self._waiting.discard((row.epoch, seq))
        self._highest = max(self._highest, row.last)
        self._last_settled = row.step

    def _at_lost(self, row: Row) -> None:
        if _frame(row) == "confirm" and (row.epoch, row.last) in self._settled:
            self.found.add(CONFIRM_LOST)

    def _at_arrived(self, row: Row) -> None:
        if _frame(row) != "data":
            return
        identity = (row.epoch, row.seq)
        is_repeat = identity in self._arrived
        if is_repeat and row.last < self._highest:
            self.found.add(LATE_COPY)
        self._arrived[identity] = row.step
        if identity not in self._settled:
            self._waiting.update((row.epoch, seq) for seq in range(row.seq, row.last + 1))
        self._at_act(row)

    def _at_dead(self, row: Row) -> None:
        del row
        self.found.add(DEAD_LETTER)

    def _at_rejected(self, row: Row) -> None:
        if '"full"' in row.detail:
            self.found.add(REJECTED_FULL)

    def _at_crash(self, row: Row) -> None:
        if self._last_settled == row.step - 1 and row.node == "receiver":
            self.found.add(CRASH_SETTLED)
        after = _facts(row).get("after")
        if isinstance(after, int) and 0 <= after < len(CRASH_AFTER):
            self.found.add(CRASH_AFTER[after])

    def _at_start(self, row: Row) -> None:
        self._current[row.node] = row.incarnation

    def _at_transmit(self, row: Row) -> None:
        if row.attempt > 1 and _frame(row) == "data" and (row.epoch, row.last) in self._settled:
            self.found.add(CROSSED)
        self._at_act(row)

    def _at_act(self, row: Row) -> None:
        if row.incarnation < self._current.get(row.node, 0):
            self.found.add(ZOMBIE)


def _frame(row: Row) -> str:
    """The kind of a frame, without reading JSON for each of them."""
    start = row.detail.find('"frame":"')
    if start < 0:
        return ""
    start += len('"frame":"')
    return row.detail[start : row.detail.index('"', start)]


def _facts(row: Row) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(row.detail)) if row.detail else {}
