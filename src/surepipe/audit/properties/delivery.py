"""P1, P2 and P17: messages come out unchanged, all of them, and each has one identity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from surepipe.audit.predicates import JudgedProperty as Judged
from surepipe.audit.predicates import PredicateViolation as Found
from surepipe.audit.properties.base import Property, Report, listed, messages, times, were
from surepipe.audit.properties.ledger import (
    DIGITS,
    IS_EARLY,
    IS_SETTLED,
    Look,
    PipeHistories,
    PipeHistory,
    SwiftLook,
)
from surepipe.audit.settings import ORDERS, claimed, facts_of
from surepipe.audit.trace import (
    DETAIL,
    EPOCH,
    INCARNATION,
    LOOKED_AGAIN,
    NODE,
    RUN,
    Cells,
    Kind,
    Row,
)
from surepipe.core.claims import Atom


class Integrity(Property):
    """P1: what comes out was accepted before, is unchanged, and was never rejected.

    A pipe is known by its name in the rows, so what reaches the wrong receiver was never accepted there.
    """

    id: ClassVar[str] = "P1"

    def __init__(self, books: PipeHistories, report: Report) -> None:
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

    def _foreign(self, row: Row, book: PipeHistory, first: int, count: int) -> None:
        for seq in range(first, first + count):
            at = (seq - row.seq) * DIGITS
            digest = row.digests[at : at + DIGITS]
            if digest and digest in book.unknown:
                continue  # the outcome of its submit was unknown: it may have been taken
            is_behind = book.cut_short and seq > book.positions.last(row.epoch)
            if is_behind or (self.books.may_lack_senders and not book.sender):
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
    """The words of P2 about missing messages."""
    return f"{messages(first, last, start=True)} {were(first, last)} accepted and never came out."


class IdentityProperty(Property):
    """P17: an identity is one message for ever, and a new life of a sender begins a higher epoch.

    Rows that a journal gave to a later life are not new: they say ``loaded`` in their detail, and their epoch is
    that of a life before it, also when nothing else tells of it yet: that one may live and go on under its epoch.
    Who hands out a message of a book may tell of it (``found``) before the life that put it there does.
    A process that was replaced while it slept goes on under its own, lower epoch. Where the clock may be set back
    a new life may begin lower too (and is then refused, and numbers again); it never takes an epoch that was used.
    """

    id: ClassVar[str] = "P17"

    def __init__(self, books: PipeHistories, report: Report) -> None:
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
        facts = facts_of(row)
        if facts.get("loaded"):
            if not facts.get("found"):
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


# P3 to P7: what came out, against the order in which it was accepted. The atoms are those of ``predicates``.


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

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self.disorder: dict[str, Disorder] = {}

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Whatever comes out."""
        return {Kind.SETTLED: self._came_out, Kind.DEAD: self._died}

    def _died(self, row: Cells) -> None:
        book = self.books.book
        may_be_known = self.books.settings.real or IS_EARLY in row[DETAIL]
        is_known = may_be_known and all(
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

    def _take(self, row: Cells, book: PipeHistory, first: int, last: int) -> None:
        order = book.order
        before = order.highest
        if book.told_late and book.told_late.covers(first, last):
            if first not in book.settled:
                return
            order.step(first, repeated=True)
        elif first > before:
            if first > before + 1 and book.need_not_precede(before + 1, first - 1):
                before = order.highest = first - 1  # what need not come out leaves no gap
            order.run(first, last)
        else:
            order.step(first, repeated=first in book.settled)
        if order.violations:
            found = {_FOUND[one]: where for one, where in order.violations.items()}
            order.violations.clear()
            self._note(book, found, before)
            self._tell(row, book, found, before)

    def _note(self, book: PipeHistory, found: Mapping[Atom, Found], before: int) -> None:
        seen = self.disorder.setdefault(book.key, Disorder())
        if Atom.NO_DUPLICATE in found:
            seen.repeated += 1
        elif Atom.MONOTONIC in found:
            seen.late += 1
        if Atom.GAP_FREE in found:
            # What need not come out is no part of a gap, also where it stands among what must.
            passed = book.optional.missing(before + 1, found[Atom.GAP_FREE].position - 1)
            width = sum(last - first + 1 for first, last in passed)
            seen.gaps += 1
            seen.passed_over += width
            seen.widest = max(seen.widest, width)

    def _tell(
        self, row: Cells, book: PipeHistory, found: Mapping[Atom, Found], before: int
    ) -> None:
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


# P14: a message whose handler always fails is tried so often, then put aside once, and harms no other.


@dataclass(slots=True)
class _Tries:
    """The attempts at one message of one stage that failed; with the crashes that were before the first, and the
    refusals of stores that were before the last."""

    crashes: int
    refusals: int
    count: int = 0
    taken_back: int = 0
    """How often a store refused something before the next attempt, and may have taken this one back with it."""

    def one_more(self, refusals: int) -> None:
        """It has failed again, after so many refusals of stores."""
        self.count += 1
        self.taken_back += refusals > self.refusals
        self.refusals = refusals


class PoisonIsolation(Property):
    """P14: at most ``retries`` attempts in each life of the receiver, then one dead letter, which names its cause.

    What the others are owed is judged by P2 and by their order. Attempts are counted anew after a crash. One that
    fails behind messages whose effects no store took is not counted: all of them are taken again, and one that was
    given up there begins anew. Nor is one in which a batch failed: its first message is tried alone then, so of
    each this happens once for each before it. Where nothing promises that a message comes once, one that is a dead
    letter may come again; whether there was a reason is judged by P9.
    """

    id: ClassVar[str] = "P14"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._failures: defaultdict[str, dict[tuple[int, str], _Tries]] = defaultdict(dict)
        """By message, and the stage that failed: each counts for itself."""
        self._in_life: defaultdict[tuple[str, int, str, int], int] = defaultdict(int)
        """The same in one incarnation. Two of them may be at it at once."""
        self._doubts: defaultdict[str, int] = defaultdict(int)
        """How often a receiver took again what it had in work when its store was away."""
        self._refusals = 0
        """How often a store did not take a transaction."""

    def looks(self) -> Mapping[str, Look]:
        """Failures, letters, and stores that were away, or refused."""
        return {
            Kind.RAISED: self._raised,
            Kind.DEAD: self._dead,
            Kind.REFUSED: self._refused,
            "answer": self._answered,
        }

    def _refused(self, row: Row) -> None:
        del row
        self._refusals += 1

    def _answered(self, row: Row) -> None:
        if f'"call":"{LOOKED_AGAIN}"' in row.detail:
            self._doubts[self.books.of(row.pipe).key] += 1

    def _raised(self, row: Row) -> None:
        book, stage = self.books.book, str(facts_of(row).get("stage", ""))
        retries = self._allowed(stage)
        for _, position, _ in self.books.parts:
            if not position or self._may_come_again(position):
                continue
            tries = self._failures[book.key].setdefault(
                (position, stage), _Tries(self.books.crashes, self._refusals)
            )
            tries.one_more(self._refusals)
            lives = 1 + self.books.crashes - tries.crashes
            life = (book.key, position, stage, row.incarnation)
            self._in_life[life] += 1
            if retries is None:
                continue
            in_batches = self.books.settings.together.get(stage, 0)
            more = self._doubts[book.key] + in_batches * lives + retries * tries.taken_back
            if self._in_life[life] > retries + more and tries.count > retries * lives + more:
                whose = f" by {stage}" if stage else ""
                self.fail(
                    f"Message #{position} was tried {times(tries.count)}{whose}; "
                    f"{retries} {'attempt is' if retries == 1 else 'attempts are'} allowed.",
                    row,
                    position=position,
                )

    def _may_come_again(self, position: int) -> bool:
        """Whether a message that is a dead letter already may rightly be here once more."""
        book, settings = self.books.book, self.books.settings
        promised = claimed(settings.claim_on(book.pipe), settings.faults)
        return "P3" not in promised and bool(book.dead.within(position, position))

    def _dead(self, row: Row) -> None:
        book = self.books.book
        for _, position, count in self.books.parts:
            is_again = (
                position
                and IS_EARLY not in row.detail
                and book.dead.within(position, position + count - 1)
            )
            if is_again and not self.books.settings.real:
                text = f"Message #{position} became a dead letter again."
                self.fail(text, row, position=position)
        cause = facts_of(row).get("cause", row.detail)
        if not cause:
            text = f"The dead letter of message #{self.books.parts[0][1]} names no cause."
            self.fail(text, row, position=self.books.parts[0][1])

    def end(self) -> None:
        """Whoever failed that often must be a dead letter by now, or have come out."""
        end = self.books.end
        if end is None or not end.quiescent:
            return
        for key, failures in self._failures.items():
            self._look_for_undead(self.books.pipes[key], failures)

    def _allowed(self, stage: str) -> int | None:
        """How often a message may fail there; None for always."""
        settings = self.books.settings
        return settings.allowed.get(stage, settings.retries) or None

    def _look_for_undead(
        self, book: PipeHistory, failures: Mapping[tuple[int, str], _Tries]
    ) -> None:
        for (position, stage), tries in failures.items():
            retries, in_batches = self._allowed(stage), self.books.settings.together.get(stage, 0)
            if retries is None or tries.count < retries + in_batches:
                continue
            if position not in book.settled:
                text = f"Message #{position} failed {times(tries.count)} and became no dead letter."
                self.fail(text, book=book, position=position)
