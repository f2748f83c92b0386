"""Which rows are one step, and which faults the rows tell of without naming them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from surepipe.simulation.report.frames import frame_word
from surepipe.simulation.report.words import fact, fault_of
from surepipe.simulation.script import Decision
from surepipe.simulation.trace import Kind, Row

ON_LINKS: frozenset[str] = frozenset({Kind.LOST, Kind.COPIED})
LATE: Mapping[str, str] = {"F4": "is overtaken", "F5": "is late"}
"""Faults of a frame that have no row of their own."""

_OPENS: frozenset[str] = frozenset(
    {
        *(Kind.SUBMIT, Kind.ARRIVED, Kind.WAKE, Kind.CRASH, Kind.START, Kind.PAUSE, Kind.RESUME),
        *(Kind.LOST, Kind.COPIED, Kind.FAULT, Kind.PHASE, Kind.RUN, Kind.END, Kind.TRIMMED),
        *("answer", "call"),
    }
)
"""Rows that tell of an event; what follows on the same node at the same time belongs to it."""
_ALONE = frozenset({*ON_LINKS, Kind.PHASE, Kind.RUN, Kind.END})


def groups_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows, those of one step together. Where the clock counts steps, each row has a time of its own."""
    ticks = bool(rows) and fact(rows[0], "clock") == "steps"
    groups: list[list[Row]] = []
    for row in rows:
        if groups and _belongs(row, groups[-1]) and (ticks or row.time_us == groups[-1][0].time_us):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _belongs(row: Row, group: Sequence[Row]) -> bool:
    first, last = group[0], group[-1]
    if row.kind in _OPENS or first.kind in _ALONE:
        return False
    if (row.node, row.incarnation) != (first.node, first.incarnation):
        return False
    # Without a row `submit`, each acceptance is an event; what it caused comes after it.
    return not (row.kind == first.kind == Kind.ACCEPTED and last.kind == Kind.TRANSMIT)


class Troubles:
    """The fault of a row: where it names only the node or the frame, the decisions of the script tell."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self._left = [(item.at, item.fault) for item in decisions if item.fault]

    def fault(self, row: Row) -> str:
        """The fault that a row tells of; each decision is told of once."""
        told = fault_of(row)
        if told:
            return told
        if row.kind in (Kind.CRASH, Kind.PAUSE):
            return self._take(lambda at, _: at.partition(":")[0] == row.node)
        if row.kind == Kind.TRANSMIT:
            return self._take(lambda at, fault: fault in LATE and _is_name(at, row))
        if row.kind == Kind.FAULT:
            words = fact(row, "text").split()
            return self._take(lambda at, _: at in words)
        return ""

    def _take(self, fits: Callable[[str, str], bool]) -> str:
        for place, (at, fault) in enumerate(self._left):
            if fits(at, fault):
                del self._left[place]
                return fault
        return ""


def _is_name(at: str, row: Row) -> bool:
    """Whether a decision is about the frame that this row transmits."""
    start = f"{row.pipe}/{row.layer or '0'} {frame_word(row)} e{row.epoch} {row.seq}+{row.count} "
    return at.startswith(start) and at.endswith(f"a{row.attempt}")
