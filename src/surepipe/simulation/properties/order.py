"""P3 to P7: what came out, against the order in which it was accepted. The atoms are those of ``predicates``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from surepipe.pipes.algebra.guarantees import Atom
from surepipe.pipes.predicates import Property as Judged
from surepipe.pipes.predicates import Violation as Found
from surepipe.simulation.properties.base import Property, Report, listed
from surepipe.simulation.properties.books import IS_SETTLED, Book, Books, SwiftLook
from surepipe.simulation.properties.settings import ORDERS
from surepipe.simulation.trace import DETAIL, NODE, Cells, Kind

_FOUND: Mapping[Judged, Atom] = {
    Judged.NO_DUPLICATE: Atom.NO_DUPLICATE,
    Judged.MONOTONIC: Atom.MONOTONIC,
    Judged.GAP_FREE: Atom.GAP_FREE,
}


@dataclass(slots=True)
class Disorder:
    """What was seen of one pipe, whether or not anybody minds."""

    repeated: int = 0
    late: int = 0
    gaps: int = 0
    passed_over: int = 0
    widest: int = 0


class Order(Property):
    """P3 no duplicates, P4 monotonic, P5 strict, P6g gap-free, P6 continuous, P7 absolute.

    A dead letter counts as coming out, but for one that the sender wrote: there the message was given up, and for
    one of a message that was settled before it was handled: that has come out.
    """

    ids: ClassVar[tuple[str, ...]] = tuple(ORDERS)

    def __init__(self, books: Books, report: Report) -> None:
        super().__init__(books, report)
        self.disorder: dict[str, Disorder] = {}

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Whatever comes out."""
        return {Kind.SETTLED: self._came_out, Kind.DEAD: self._died}

    def _died(self, row: Cells) -> None:
        book = self.books.book
        is_known = self.books.settings.real and all(
            position in book.dead for _, position, _ in self.books.parts
        )
        # In a real run a letter that is put again is the same letter.
        if row[NODE] != book.sender and not is_known and IS_SETTLED not in row[DETAIL]:
            self._came_out(row)

    def _came_out(self, row: Cells) -> None:
        book = self.books.book
        for _, position, count in self.books.parts:
            if position and book.settled.is_new(position):
                self._take(row, book, position, position + count - 1)
            elif position:
                for one in range(position, position + count):
                    self._take(row, book, one, one)

    def _take(self, row: Cells, book: Book, first: int, last: int) -> None:
        order = book.order
        before = order.highest
        if first > before:
            if first > before + 1 and book.optional.covers(before + 1, first - 1):
                before = order.highest = first - 1  # what need not come out leaves no gap
            order.run(first, last)
        else:
            order.step(first, repeated=first in book.settled)
        if order.violations:
            found = {_FOUND[one]: where for one, where in order.violations.items()}
            order.violations.clear()
            self._note(book, found, before)
            self._tell(row, book, found, before)

    def _note(self, book: Book, found: Mapping[Atom, Found], before: int) -> None:
        seen = self.disorder.setdefault(book.key, Disorder())
        if Atom.NO_DUPLICATE in found:
            seen.repeated += 1
        elif Atom.MONOTONIC in found:
            seen.late += 1
        if Atom.GAP_FREE in found:
            width = found[Atom.GAP_FREE].position - before - 1
            seen.gaps += 1
            seen.passed_over += width
            seen.widest = max(seen.widest, width)

    def _tell(self, row: Cells, book: Book, found: Mapping[Atom, Found], before: int) -> None:
        for one, atoms in ORDERS.items():
            broken = next((atom for atom in _SEVEREST if atom in atoms and atom in found), None)
            if broken is not None and one in book.wanted:
                position = found[broken].position
                self.fail(
                    _sentence(broken, position, before),
                    row,
                    book=book,
                    position=position,
                    as_id=one,
                )


_SEVEREST = (Atom.NO_DUPLICATE, Atom.MONOTONIC, Atom.GAP_FREE)


def _sentence(broken: Atom, position: int, before: int) -> str:
    if broken is Atom.NO_DUPLICATE:
        return f"Message #{position} came out again."
    if broken is Atom.MONOTONIC:
        return f"Message #{position} came out after #{before}."
    return f"Message #{position} came out before {listed([(before + 1, position - 1)])}."
