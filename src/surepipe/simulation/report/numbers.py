"""Calls messages by their place among all accepted ones of their pipe: ``#2``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from surepipe.simulation.properties.places import Positions
from surepipe.simulation.properties.settings import facts_of, integers
from surepipe.simulation.trace import Kind, Row


class Numbers:
    """The place of each message, in the order of the rows that accept them, as the judge counts."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._pipes: dict[str, Positions] = {}
        for row in rows:
            if row.kind == Kind.ACCEPTED and not row.layer:
                self._pipe(row.pipe).add(row.epoch, row.seq, row.count)
            elif row.kind == Kind.RENUMBERED:
                now = integers(facts_of(row))
                self._pipe(row.pipe).move(row.epoch, row.seq, row.count, now["epoch"], now["seq"])

    def _pipe(self, pipe: str) -> Positions:
        return self._pipes.setdefault(pipe, Positions())

    def places(self, row: Row) -> tuple[int, ...]:
        """The places of the messages that a row speaks of; those that were never accepted are left out."""
        if row.pipe not in self._pipes or not row.count:
            return ()
        parts = self._pipes[row.pipe].find(row.epoch, row.seq, row.count)
        return tuple(p for _, first, count in parts if first for p in range(first, first + count))

    def label(self, row: Row) -> str:
        """``#2``, ``#1-#3`` or ``#1 #4``; a message without a place by its number in the pipe."""
        places = self.places(row)
        if places:
            return spoken(places)
        return f"message {row.epoch}:{row.seq}" if row.count else ""


def spoken(places: Iterable[int]) -> str:
    """Places as people write them, in order, runs of three and more with a dash."""
    return " ".join(
        f"#{first}" if first == last else f"#{first}{'-' if last - first > 1 else ' '}#{last}"
        for first, last in _runs(places)
    )


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = 0
    for place in places:
        if place == last + 1 and first:
            last = place
            continue
        if first:
            yield first, last
        first = last = place
    if first:
        yield first, last
