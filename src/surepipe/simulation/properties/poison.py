"""P14: a message whose handler always fails is tried so often, then put aside once, and harms no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar

from surepipe.simulation.properties.base import Property, Report, times
from surepipe.simulation.properties.books import Book, Books, Look
from surepipe.simulation.properties.settings import facts_of
from surepipe.simulation.trace import LOOKED_AGAIN, Kind, Row


class PoisonIsolation(Property):
    """P14: at most ``retries`` attempts in each life of the receiver, then one dead letter, which names its cause.

    What the others are owed is judged by P2 and by their order. Attempts are counted anew after a crash. One that
    fails behind messages whose effects no store took is not counted: all of them are taken again.
    """

    id: ClassVar[str] = "P14"

    def __init__(self, books: Books, report: Report) -> None:
        super().__init__(books, report)
        self._failures: defaultdict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._in_life: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        """Of a message: how often it failed in one incarnation. Two of them may be at it at once."""
        self._doubts: defaultdict[str, int] = defaultdict(int)
        """How often a receiver took again what it had in work when its store was away."""

    def looks(self) -> Mapping[str, Look]:
        """Failures, letters, and stores that were away."""
        return {Kind.RAISED: self._raised, Kind.DEAD: self._dead, "answer": self._answered}

    def _answered(self, row: Row) -> None:
        if f'"call":"{LOOKED_AGAIN}"' in row.detail:
            self._doubts[self.books.of(row.pipe).key] += 1

    def _raised(self, row: Row) -> None:
        retries = self.books.settings.retries
        book = self.books.book
        for _, position, _ in self.books.parts:
            if not position:
                continue
            known, since = self._failures[book.key].get(position, (0, self.books.crashes))
            self._failures[book.key][position] = (known + 1, since)
            lives = 1 + self.books.crashes - since
            life = (book.key, position, row.incarnation)
            self._in_life[life] += 1
            if retries is None:
                continue
            counted, doubts = self._in_life[life], self._doubts[book.key]
            if counted > retries + doubts and known + 1 > retries * lives + doubts:
                self.fail(
                    f"Message #{position} was tried {times(known + 1)}; {retries} attempts are allowed.",
                    row,
                    position=position,
                )

    def _dead(self, row: Row) -> None:
        book = self.books.book
        for _, position, count in self.books.parts:
            is_again = position and book.dead.within(position, position + count - 1)
            if is_again and not self.books.settings.real:
                text = f"Message #{position} became a dead letter again."
                self.fail(text, row, position=position)
        cause = facts_of(row).get("cause", row.detail)
        if not cause:
            text = f"The dead letter of message #{self.books.parts[0][1]} names no cause."
            self.fail(text, row, position=self.books.parts[0][1])

    def end(self) -> None:
        """Whoever failed that often must be a dead letter by now, or have come out."""
        end, retries = self.books.end, self.books.settings.retries
        if end is None or not end.quiescent or retries is None:
            return
        for key, failures in self._failures.items():
            self._look_for_undead(self.books.pipes[key], failures, retries)

    def _look_for_undead(
        self, book: Book, failures: Mapping[int, tuple[int, int]], retries: int
    ) -> None:
        for position, (count, _) in failures.items():
            if count >= retries and position not in book.settled:
                text = f"Message #{position} failed {times(count)} and became no dead letter."
                self.fail(text, book=book, position=position)
