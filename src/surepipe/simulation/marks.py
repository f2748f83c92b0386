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
from surepipe.simulation.mattering import mattered
from surepipe.simulation.options import DRAINS
from surepipe.simulation.script import Decision
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
ROLLED_BACK = register("rolled-back-lagging", "the position of a lagging reader was rolled back")
DRAINED: Mapping[str, str] = {
    drain.value: register(f"drain-{drain.value}", f"a run was drained {drain.value}")
    for drain in DRAINS
}
MATTERED: Mapping[str, str] = {
    kind.id: register(f"mattered-{kind.id}", f"something that came out depended on {kind.kind}")
    for kind in BY_ID.values()
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


def exercised(
    rows: Sequence[Row], faults: Iterable[str], drain: str, decisions: Sequence[Decision] = ()
) -> Exercised:
    """Read the marks off a run; ``faults`` are those that its decisions brought."""
    reader = _Reader()
    for row in rows:
        reader.see(row)
    struck = frozenset(faults) & STRUCK.keys()
    found = reader.found | {STRUCK[fault] for fault in struck}
    if struck:
        found |= {MATTERED[fault] for fault in mattered(rows, decisions) & struck}
    if drain in DRAINED:
        found.add(DRAINED[drain])
    return Exercised(frozenset(found), struck)


_PASSIVE = frozenset((Kind.PAUSE, Kind.RESUME, Kind.CRASH, Kind.LOST))
"""Rows of a process that did nothing itself."""


class _Reader:
    """One pass over the rows of a run."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._settled: set[tuple[int, int]] = set()
        self._highest = 0
        self._arrived: dict[tuple[int, int], int] = {}
        self._waiting: set[tuple[int, int]] = set()
        self._current: dict[str, int] = {}
        self._is_unsaid = False
        self._appended = self._committed = 0
        self._looks: dict[str, Callable[[Row], None]] = {
            Kind.SETTLED: self._at_settled,
            Kind.LOST: self._at_lost,
            Kind.ARRIVED: self._at_arrived,
            Kind.DEAD: self._at_dead,
            Kind.REJECTED: self._at_rejected,
            Kind.CRASH: self._at_crash,
            Kind.START: self._at_start,
            Kind.TRANSMIT: self._at_transmit,
            Kind.APPENDED: self._at_appended,
            Kind.COMMITTED: self._at_committed,
            Kind.FAULT: self._at_fault,
        }

    def see(self, row: Row) -> None:
        if row.incarnation < self._current.get(row.node, 0) and row.kind not in _PASSIVE:
            self.found.add(ZOMBIE)
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
        self._is_unsaid = True

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

    def _at_dead(self, row: Row) -> None:
        del row
        self.found.add(DEAD_LETTER)

    def _at_rejected(self, row: Row) -> None:
        if '"full"' in row.detail:
            self.found.add(REJECTED_FULL)

    def _at_crash(self, row: Row) -> None:
        if self._is_unsaid and row.node == "receiver":
            self.found.add(CRASH_SETTLED)
        after = _facts(row).get("after")
        if isinstance(after, int) and 0 <= after < len(CRASH_AFTER):
            self.found.add(CRASH_AFTER[after])

    def _at_start(self, row: Row) -> None:
        self._current[row.node] = row.incarnation

    def _at_transmit(self, row: Row) -> None:
        if row.attempt > 1 and _frame(row) == "data" and (row.epoch, row.last) in self._settled:
            self.found.add(CROSSED)
        self._is_unsaid = self._is_unsaid and _frame(row) == "data"

    def _at_appended(self, row: Row) -> None:
        self._appended += row.count

    def _at_committed(self, row: Row) -> None:
        self._committed = int(str(_facts(row).get("next", 1))) - 1

    def _at_fault(self, row: Row) -> None:
        is_back = (row.node == "index" and '"F14"' in row.detail) or '"F16"' in row.detail
        if is_back and 0 < self._committed < self._appended:
            self.found.add(ROLLED_BACK)


def _frame(row: Row) -> str:
    """The kind of a frame, without reading JSON for each of them."""
    start = row.detail.find('"frame":"')
    if start < 0:
        return ""
    start += len('"frame":"')
    return row.detail[start : row.detail.index('"', start)]


def _facts(row: Row) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(row.detail)) if row.detail else {}
