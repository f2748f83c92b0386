"""What a campaign must have exercised, by what the options of its seeds switched on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations

from surepipe.simulation.faults import BY_ID, CATALOGUE
from surepipe.simulation.marks import (
    CONFIRM_LOST,
    CRASH_AFTER,
    CRASH_SETTLED,
    CROSSED,
    DEAD_LETTER,
    DRAINED,
    HELD,
    LATE_COPY,
    MATTERED,
    REJECTED_FULL,
    ROLLED_BACK,
    STRUCK,
    ZOMBIE,
)
from surepipe.simulation.options import Options
from surepipe.simulation.promises import Promise

PAIRS_WANTED_PERCENT = 95
"""Of all pairs of faults that were switched on together, so many must have struck in one run."""

LEADS_TO: Mapping[str, tuple[str, ...]] = {
    "F1": (HELD,),
    "F2": (CONFIRM_LOST, CROSSED),
    "F3": (LATE_COPY,),
    "F8": CRASH_AFTER,
    "F10": (CRASH_SETTLED,),
    "F17": (ROLLED_BACK,),
    "F20": (DEAD_LETTER,),
    "F22": (REJECTED_FULL,),
    "F28s": (ZOMBIE,),
    "F28r": (ZOMBIE,),
}
"""What must have come of a kind of fault that was switched on, beyond that something depended on it."""

_OF_FRAMES = frozenset({"F1", "F2", "F3", "F4", "F5", "F6", "F25", "F27"})
_OF_CONTROL = frozenset({"F2", "F27"})
_UNNOTICED = frozenset({"F3"})
"""What a receiver that answers nothing drops without a word."""


class Wanted:
    """Collects what the options of a campaign's seeds make possible."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.switched: set[str] = set()
        self.together: set[tuple[str, str]] = set()
        self.offered = 0

    def see(self, options: Options) -> None:
        """The options of one more seed."""
        on = sorted(
            kind.id for kind in CATALOGUE if kind.is_on(options) and self._can_strike(kind.id)
        )
        self.switched.update(on)
        self.together.update(combinations(on, 2))
        self.offered = max(self.offered, options.messages + options.flood)

    def _can_strike(self, id_: str) -> bool:
        """Frames are there only without a stream, and control frames where a sender is answered."""
        kind, has_stream = BY_ID[id_], "stream" in self.promise.stores
        if not kind.ranges or id_ == "F17":
            return bool(kind.ranges) and has_stream
        if id_ in _OF_CONTROL and not self.promise.confirms:
            return False
        return not (has_stream and id_ in _OF_FRAMES)

    def marks(self) -> frozenset[str]:
        """All that must have been seen."""
        named = {STRUCK[id_] for id_ in self.switched}
        named |= {MATTERED[id_] for id_ in self.switched if self._can_matter(id_)}
        named |= {
            mark
            for id_ in self.switched
            for mark in LEADS_TO.get(id_, ())
            if self._can_matter(id_) and self._fits(mark)
        }
        return frozenset(named | set(DRAINED.values()))

    def _can_matter(self, id_: str) -> bool:
        if id_ in _UNNOTICED and not self.promise.confirms:
            return False
        return id_ != "F22" or self.promise.bounds.get("backlog", 1 << 30) < self.offered

    def _fits(self, mark: str) -> bool:
        """Whether this pipe can come into the situation at all."""
        if mark in (CONFIRM_LOST, CROSSED, CRASH_SETTLED):
            return self.promise.confirms and "stream" not in self.promise.stores
        if mark == HELD and self.promise.window < 3:
            return False
        if mark == DEAD_LETTER:
            return self.promise.retries is not None
        return mark not in (LATE_COPY, HELD) or self.promise.confirms

    def missing(self, seen: Collection[str], pairs: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """The marks that never fired, and, where too few pairs of faults have met, those that did not."""
        unseen = sorted(self.together - set(pairs))
        if len(unseen) * 100 <= len(self.together) * (100 - PAIRS_WANTED_PERCENT):
            unseen = []
        unmet = tuple(f"{first} with {second}" for first, second in unseen)
        return (*sorted(self.marks() - set(seen)), *unmet)
