"""What led to what in a run: every row names the row that caused it, and so every output has a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from surepipe.simulation.trace import Kind, Row

OUTPUTS: frozenset[str] = frozenset((Kind.DELIVERED, Kind.SETTLED, Kind.CONFIRMED, Kind.DEAD))
"""What a pipe is there for: messages come out, and their sender hears of it."""


def cause_of(row: Row) -> int:
    """The step of the row that caused this one; -1 for one that nothing in the run has caused."""
    return int(row.cause.rpartition("/")[2]) if row.cause else -1


def path_to(rows: Sequence[Row], step: int) -> Iterator[Row]:
    """A row, what caused it, what caused that, and so on."""
    while step >= 0:
        yield rows[step]
        step = cause_of(rows[step])


def steps_towards(rows: Sequence[Row], kinds: Iterable[str] = OUTPUTS) -> bytearray:
    """For each step 1 when it is on the path of an output, else 0."""
    wanted = frozenset(kinds)
    towards = bytearray(len(rows))
    for row in rows:
        step = row.step
        if row.kind in wanted:
            while step >= 0 and not towards[step]:
                towards[step] = 1
                step = cause_of(rows[step])
    return towards
