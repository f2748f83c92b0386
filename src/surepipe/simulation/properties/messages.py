"""P1, P2 and P17: messages come out unchanged, all of them, and each has one identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from surepipe.simulation.properties.base import Property, Report, messages, were
from surepipe.simulation.properties.books import DIGITS, Book, Books, SwiftLook
from surepipe.simulation.properties.settings import facts_of
from surepipe.simulation.trace import EPOCH, INCARNATION, RUN, Cells, Kind, Row


class Integrity(Property):
    """P1: what comes out was accepted before, is unchanged, and was never rejected.

    A pipe is known by its name in the rows, so what reaches the wrong receiver was never accepted there.
    """

    id: ClassVar[str] = "P1"

    def __init__(self, books: Books, report: Report) -> None:
        super().__init__(books, report)
        self._told: set[tuple[str, int, int]] = set()

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Whatever is handed out."""
        return dict.fromkeys((Kind.DELIVERED, Kind.SETTLED, Kind.DEAD), self._look)

    def _look(self, cells: Cells) -> None:
        if self.books.is_odd:
            self._look_closely(Row(*cells))

    def _look_closely(self, row: Row) -> None:
        book = self.books.book
        for part in self.books.parts:
            if not part[1]:
                self._foreign(row, book, part[0], part[2])
            elif row.digests:
                position = book.changed(part, row.digests, row.seq)
                if position:
                    self._once(
                        f"Message #{position} came out with another payload.",
                        row,
                        part[0] + position - part[1],
                        position,
                    )

    def _foreign(self, row: Row, book: Book, first: int, count: int) -> None:
        for seq in range(first, first + count):
            at = (seq - row.seq) * DIGITS
            digest = row.digests[at : at + DIGITS]
            if digest and digest in book.unknown:
                continue  # the outcome of its submit was unknown: it may have been taken
            if book.cut_short and seq > book.positions.last(row.epoch):
                book.untold += row.kind != Kind.DELIVERED
                continue
            if digest and digest in book.rejected:
                text = f"Message {seq} of epoch {row.epoch} came out although it was rejected."
            else:
                text = f"Message {seq} of epoch {row.epoch} came out and was never accepted."
            self._once(text, row, seq)

    def _once(self, sentence: str, row: Row, seq: int, position: int = 0) -> None:
        identity = (row.pipe, row.epoch, seq)
        if identity not in self._told:
            self._told.add(identity)
            self.fail(sentence, row, position=position, seq=seq)


class NoLoss(Property):
    """P2: once nothing moves any more, everything accepted has come out or is a dead letter."""

    id: ClassVar[str] = "P2"

    def end(self) -> None:
        """Look for what is missing, if the run came to rest."""
        end = self.books.end
        if end is None or not end.quiescent:
            return
        for book in self.books.pipes.values():
            if "P2" not in book.wanted:
                continue
            for first, last in self.books.owed(book):
                self.fail(never_came_out(first, last), book=book, position=first)


def never_came_out(first: int, last: int) -> str:
    """What P2 says of messages that are missing."""
    return f"{messages(first, last, start=True)} {were(first, last)} accepted and never came out."


class Identity(Property):
    """P17: an identity is one message for ever, and a new life of a sender begins a higher epoch.

    Rows that a journal gave to a later life are not new: they say ``loaded`` in their detail, and their epoch is
    that of a life before it, also when nothing else tells of it yet: that one may live and go on under its epoch.
    A process that was replaced while it slept goes on under its own, lower epoch. Where the clock may be set back
    a new life may begin lower too (and is then refused, and numbers again); it never takes an epoch that was used.
    """

    id: ClassVar[str] = "P17"

    def __init__(self, books: Books, report: Report) -> None:
        super().__init__(books, report)
        self._lives: dict[str, dict[int, tuple[int, str]]] = {}
        self._loaded: dict[tuple[str, int], tuple[int, str]] = {}
        """Which life was the first to find an epoch in its journal."""
        self._known: tuple[str, int, str, int] | None = None
        """Whose messages were accepted last, when all was right with them."""

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Where a message gets its number, and where it is seen with it."""
        return {
            Kind.ACCEPTED: self._accepted,
            Kind.APPENDED: self._seen,
            Kind.DELIVERED: self._seen,
        }

    def _accepted(self, cells: Cells) -> None:
        books, book = self.books, self.books.book
        who = (book.key, cells[INCARNATION], cells[RUN], cells[EPOCH])
        if who != self._known or books.parts is not book.accepted_now:
            self._known = who if self._is_right(Row(*cells)) else None

    def _is_right(self, row: Row) -> bool:
        """Whether a sender may have given these numbers."""
        book = self.books.book
        if (
            self.books.parts is not book.accepted_now
        ):  # else all of it is new, and its payloads are as they are
            self._compare(row)
        if not book.accepted_now:
            return False
        this = (row.incarnation, row.run)
        if facts_of(row).get("loaded"):
            self._loaded.setdefault((book.key, row.epoch), this)
            return False
        lives = self._lives.setdefault(book.key, {})
        owner = lives.setdefault(row.epoch, this)
        finder = self._loaded.get((book.key, row.epoch))
        is_found = finder is not None and finder[1] == row.run and finder[0] <= row.incarnation
        is_used = (
            owner != this
            or is_found
            or (
                len(lives) > 1
                and "clock-step" not in self.books.settings.faults
                and any(
                    epoch > row.epoch and (life[1] != row.run or life[0] < row.incarnation)
                    for epoch, life in lives.items()
                )
            )
        )
        if is_used:
            position = book.accepted_now[0][1]
            self.fail(
                f"Message #{position} got a number of epoch {row.epoch}, which an earlier life of the "
                "sender had used.",
                row,
                position=position,
            )
        lives[row.epoch] = this
        return not is_used

    def _seen(self, cells: Cells) -> None:
        if self.books.is_odd:
            self._compare(Row(*cells))

    def _compare(self, row: Row) -> None:
        if not row.digests:
            return
        book = self.books.book
        for part in self.books.parts:
            position = book.changed(part, row.digests, row.seq) if part[1] else 0
            if position:
                seq = part[0] + position - part[1]
                self.fail(
                    f"Message {seq} of epoch {row.epoch} was two messages: it had another payload before.",
                    row,
                    position=position,
                    seq=seq,
                )
