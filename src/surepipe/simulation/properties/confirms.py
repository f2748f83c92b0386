"""P8: a confirm is said only of what is settled (or, over a stream, stored)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from surepipe.simulation.properties.base import Property, messages, were
from surepipe.simulation.properties.books import CONFIRM_SENT, Book, SwiftLook
from surepipe.simulation.properties.places import Part
from surepipe.simulation.trace import EPOCH, Cells, Kind


class HonestConfirm(Property):
    """P8, where the receiver says it (a frame ``confirm``) and where the sender believes it (``confirmed``).

    What is held or in work is not settled. That it stays settled is told by P2.
    """

    id: ClassVar[str] = "P8"

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Both ends of a confirm."""
        return {Kind.CONFIRMED: self._confirmed, CONFIRM_SENT: self._declared}

    def _confirmed(self, row: Cells) -> None:
        book = self.books.book
        if self.books.is_confirmed_by_store(book.pipe):
            return
        for part in self.books.parts:
            if not part[1]:
                self.fail(
                    f"Message {part[0]} of epoch {row[EPOCH]} was confirmed and never accepted.",
                    row,
                    seq=part[0],
                )
            elif not book.settled.covers(part[1], part[1] + part[2] - 1):
                self._tell(row, book, part, "confirmed before", "settled")

    def _declared(self, row: Cells) -> None:
        book = self.books.book
        for part in self.books.parts:
            if part[1] and not book.settled.covers(part[1], part[1] + part[2] - 1):
                self._tell(row, book, part, "declared settled before", "so")

    def _tell(self, row: Cells, book: Book, part: Part, what: str, state: str) -> None:
        seq, position, count = part
        last = position + count - 1
        missing = [
            hole
            for first, end in book.settled.missing(position, last)
            for hole in book.appended.missing(first, end)
        ]
        if missing:
            first, end = missing[0]
            it = "it was" if first == end else "they were"
            self.fail(
                f"{messages(first, end, start=True)} {were(first, end)} {what} {it} {state}.",
                row,
                book=book,
                position=first,
                seq=seq + first - position,
            )
