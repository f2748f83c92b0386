"""P9: a message is delivered again, or transmitted again, only when something has happened that calls for it."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import ClassVar, cast

from surepipe.audit.properties.base import Property, Report, seconds, times
from surepipe.audit.properties.coverage import Notes, Parts, Reached, Tally
from surepipe.audit.properties.ledger import (
    CONTROL,
    DATA_SENT,
    PipeHistories,
    PipeHistory,
    SwiftLook,
    frame_kind_in,
)
from surepipe.audit.settings import facts_of
from surepipe.audit.trace import (
    DETAIL,
    INCARNATION,
    LAYER,
    LOOKED_AGAIN,
    NODE,
    PIPE,
    SEQ,
    TIME,
    Cells,
    Kind,
    Row,
)

HANDED_MAX = 64


class _Counts:
    """What P9 knows of one pipe. Pairs are (wakes and Nacks, crashes) so far."""

    __slots__ = (
        *("accepted", "appended", "calls", "confirmed", "copies", "delivered", "failed", "raised"),
        *("confirmer", "doubts", "first_doubt"),
        *("first_delivery", "handed", "pair", "reader", "redelivered", "resent", "sent", "stirred"),
    )

    def __init__(self) -> None:
        self.accepted: Notes[tuple[int, int]] = Notes()
        self.confirmed: Notes[tuple[int, int]] = Notes()
        self.confirmer: Notes[int] = Notes()
        """Which life of the sender heard of the confirm; another one may not hear of it."""
        self.first_delivery: Notes[int] = Notes()
        self.delivered, self.sent = Reached(), Reached()
        self.redelivered, self.resent = Tally(), Tally()
        self.copies, self.raised, self.failed = Tally(), Tally(), Tally()
        self.calls: Counter[tuple[str, int]] = Counter()
        """Of each stage (as its rows name it), for each position."""
        self.handed: deque[tuple[int, int]] = deque(maxlen=HANDED_MAX)
        """The latest deliveries: what stands behind a message that fails is handed over again with it."""
        self.doubts = 0
        """How often the receiver took again what it had in work when its store was away."""
        self.first_doubt: Notes[int] = Notes()
        """Of these, how many before the first delivery."""
        self.reader = ""
        self.pair: tuple[int, int] = (0, 0)
        self.stirred = -1
        """When the pair was counted."""

    def failures(self, position: int) -> int:
        """Count failed attempts, whether the side that raised, the side that heard of it, or both have told."""
        return max(self.raised.of(position), self.failed.of(position))


class DuplicateBudget(Property):
    """P9: deliveries and transmissions of a message are at most one, and one for each excuse.

    An excuse is a wake of the sender (the start of a life is one; over a stream the reader's wakes count too) or a
    Nack (or a link made anew) while the message was unconfirmed, a copy that the network made (of a frame of an
    inner layer, too: it ``carries`` messages of the pipe), a failed attempt (of one before it in the same
    delivery, too), a store that was away when its receiver had the message in work, and a crash between its
    delivery and the processing of its confirm; for a transmission, a crash while it was unconfirmed. A takeover,
    and a store that went back, are crashes. A message that is first told of by the life that found it in its
    journal was accepted before that life began, perhaps by one that goes on with it; and what a replaced life
    accepts may be found by one that began before, but reads the journal later. A journal may note a confirm
    later than its sender knows it, so there a crash after the confirm counts too, and what wakes the next life; a
    replaced sender need not hear what its successor is told, nor that one what it is told. An
    inner layer has confirms of its own: it may send again what carries a message that the outer one knows to be
    settled, so in a stack its wakes count then, too, and each for all that earlier ones had sent. Without any
    faults and with answers faster than the timer there is one excuse: a stage that fails by itself.

    A stage is called once for each delivery, on each way that leads to it, and again for each transaction that a
    store did not take.
    """

    id: ClassVar[str] = "P9"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._counts: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._carried: set[str] = set()
        self._refusals = 0

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Deliveries, transmissions, and what excuses them."""
        return {
            Kind.ACCEPTED: self._accepted,
            Kind.CONFIRMED: self._confirmed,
            Kind.DELIVERED: self._delivered,
            DATA_SENT: self._transmitted,
            Kind.COPIED: self._copied,
            Kind.CALLED: self._called,
            Kind.RAISED: self._raised,
            Kind.FAILED: self._failed,
            Kind.REFUSED: self._refused,
            "answer": self._answered,
        }

    def _pair(self, book: PipeHistory, counts: _Counts) -> tuple[int, int]:
        books = self.books
        if counts.stirred != books.stirred:
            counts.stirred = books.stirred
            woken = books.wakes.get(book.sender, 0)
            if counts.reader and book.appended.top:
                woken += books.wakes.get(counts.reader, 0)
            counts.pair = (woken + book.nacks, books.crashes)
        return counts.pair

    def _accepted(self, row: Cells) -> None:
        book = self.books.book
        counts = self._counts[book.key]
        if not book.accepted_now:
            return
        pair = self._pair(book, counts)
        began: tuple[int, int] | None = None
        if row[DETAIL] and facts_of(Row(*row)).get("loaded"):
            began = self.books.before_start.get(row[NODE], (0, 0))
        elif self.books.settings.has_journal(book.pipe):
            began = self.books.before_next.get((row[NODE], row[INCARNATION]))
        if began is not None:
            pair = (pair[0] - (self.books.wakes.get(row[NODE], 0) - began[0]), began[1])
        for _, position, count in book.accepted_now:
            counts.accepted.note(position, position + count - 1, pair)

    def _confirmed(self, row: Cells) -> None:
        book = self.books.book
        counts = self._counts[book.key]
        for _, position, count in self.books.parts:
            if position:
                last = position + count - 1
                counts.confirmed.note(position, last, self._pair(book, counts))
                counts.confirmer.note(position, last, row[INCARNATION])

    def _copied(self, row: Cells) -> None:
        if frame_kind_in(row[DETAIL]) != "data":
            return  # it speaks of messages, and brings none
        self._note_copies(self.books.book, self.books.parts)
        if row[LAYER] not in ("", "0"):
            outermost = self.books.of(row[PIPE])
            for epoch, first, count in _runs(facts_of(Row(*row)).get("carries")):
                self._note_copies(outermost, outermost.positions.find(epoch, first, count))

    def _note_copies(self, book: PipeHistory, parts: Parts) -> None:
        for _, position, count in parts:
            if position:
                self._counts[book.key].copies.add(position, position + count - 1)

    def _called(self, row: Cells) -> None:
        counts = self._counts[self.books.book.key]
        for _, position, _ in self.books.parts:
            if not position:
                continue
            counts.calls[row[DETAIL], position] += 1
            calls = counts.calls[row[DETAIL], position]
            deliveries = counts.redelivered.of(position) + (position in counts.delivered)
            stage = str(facts_of(Row(*row)).get("stage", ""))
            entered = self.books.settings.entered.get(stage, 1)
            if calls > deliveries * entered + self._refusals:
                self.fail(
                    f"Stage {stage} was called {times(calls)} for message #{position}, "
                    f"which was delivered {times(deliveries)}.",
                    row,
                    position=position,
                    seq=row[SEQ],
                )

    def _refused(self, row: Cells) -> None:
        del row
        self._refusals += 1

    def _answered(self, row: Cells) -> None:
        if f'"call":"{LOOKED_AGAIN}"' in row[DETAIL]:
            self._counts[self.books.of(row[PIPE]).key].doubts += 1

    def _raised(self, row: Cells) -> None:
        del row
        counts = self._counts[self.books.book.key]
        self._note_failure(self.books.book, counts, counts.raised)

    def _failed(self, row: Cells) -> None:
        del row
        counts = self._counts[self.books.book.key]
        self._note_failure(self.books.book, counts, counts.failed)

    def _note_failure(self, book: PipeHistory, counts: _Counts, failures: Tally) -> None:
        """What waits behind a message that fails is handed over again with it: the rest of its delivery, or of its
        lane, which may be any that was handed over later and is not settled."""
        for _, position, count in self.books.parts:
            if position and self.books.settings.has_lanes(book.pipe):
                for first, last in book.settled.missing(position, book.positions.count):
                    for number in range(first, last + 1):
                        if number in counts.delivered:
                            failures.add(number, number)
            elif position:
                handed = (
                    last for first, last in reversed(counts.handed) if first <= position <= last
                )
                failures.add(position, next(handed, position + count - 1))

    def _delivered(self, row: Cells) -> None:
        counts = self._counts[self.books.book.key]
        if counts.reader != row[NODE]:
            counts.reader = row[NODE]
            counts.stirred = -1
        for _, position, count in self.books.parts:
            last = position + count - 1
            if not position:
                continue
            if not counts.delivered.is_new(position):
                for first, end in counts.delivered.within(position, last):
                    counts.redelivered.add(first, end)
                    self._judge(row, counts, first, end, delivered=True)
            counts.first_delivery.note(position, last, self.books.crashes)
            counts.first_doubt.note(position, last, counts.doubts)
            counts.delivered.add(position, last)
            counts.handed.append((position, last))

    def _transmitted(self, row: Cells) -> None:
        if row[LAYER] not in ("", "0"):
            self._carried.add(row[PIPE])
        counts = self._counts[self.books.book.key]
        for _, position, count in self.books.parts:
            last = position + count - 1
            if not position:
                continue
            if counts.sent.grow(position, last):
                continue
            if not counts.sent.is_new(position):
                for first, end in counts.sent.within(position, last):
                    counts.resent.add(first, end)
                    self._judge(row, counts, first, end, delivered=False)
            counts.sent.add(position, last)

    def _judge(
        self, row: Cells, counts: _Counts, first: int, last: int, *, delivered: bool
    ) -> None:
        book = self.books.book
        tally = counts.redelivered if delivered else counts.resent
        for position in range(first, last + 1):
            if self.books.settings.fault_free:  # stages may fail by themselves
                excuses = counts.failures(position) if delivered else 0
            else:
                excuses = self._excuses(row, book, counts, position, delivered=delivered)
            again = tally.of(position)
            if again > excuses:
                verb = "delivered" if delivered else "transmitted"
                self.fail(
                    f"Message #{position} was {verb} {times(again + 1)}{_though(excuses)}",
                    row,
                    position=position,
                    seq=row[SEQ],
                )

    def _excuses(
        self, row: Cells, book: PipeHistory, counts: _Counts, position: int, *, delivered: bool
    ) -> int:
        is_settled_later = self.books.is_confirmed_by_store(book.key)
        is_late = self.books.settings.has_journal(book.pipe) or is_settled_later
        now, known = self._pair(book, counts), counts.confirmed.of(position)
        is_forgotten = known is not None and is_late and self.books.crashes > known[1]
        if (
            not delivered and known is not None
        ):  # of two lives that go on, each is answered over its own link
            is_forgotten |= row[INCARNATION] != counts.confirmer.of(position)
        if known is not None and not is_forgotten and book.pipe not in self._carried:
            now = known
        since = counts.accepted.of(position) or (0, 0)
        until = self.books.crashes if is_late else now[1]
        crashes = since[1]
        if delivered:
            at_delivery = counts.first_delivery.of(position)
            crashes = at_delivery if at_delivery is not None else until
            crashes -= self.books.takeovers  # both hear it, whichever is first
        elsewhere = counts.copies.of(position) + counts.failures(position)
        if delivered:
            elsewhere += counts.doubts - (counts.first_doubt.of(position) or 0)
        wakes = max(0, now[0] - since[0])  # another end may have told of it since, which has fewer
        if book.pipe in self._carried:
            wakes = wakes * (wakes + 1) // 2  # each may send again all that earlier ones made
        return wakes + max(0, until - crashes) + elsewhere


class Patience(Property):
    """P9, too: while a sender hears nothing it waits twice as long before each attempt, up to the longest pause.

    Judged where one layer alone says how long it waits. What was heard, whatever it was, may have been an answer,
    so waiting begins anew.
    """

    id: ClassVar[str] = "P9"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._heard: dict[tuple[str, int], int] = {}
        """When each life heard a frame for the last time."""
        self._sent: dict[tuple[str, int, int], tuple[int, int]] = {}
        """For each life and position: when it was transmitted, and how many times in vain."""

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Looks at transmissions and arrivals; at nothing where no waits are declared."""
        if not self.books.settings.patience[0]:
            return {}
        return {DATA_SENT: self._transmitted, CONTROL: self._arrived, Kind.ARRIVED: self._arrived}

    def _arrived(self, row: Cells) -> None:
        self._heard[row[NODE], row[INCARNATION]] = row[TIME]

    def _transmitted(self, row: Cells) -> None:
        node, incarnation, now = row[NODE], row[INCARNATION], row[TIME]
        heard = self._heard.get((node, incarnation), -1)
        for _, start, count in self.books.parts:
            for position in range(start, start + count) if start else ():
                sent, vain = self._sent.get((node, incarnation, position), (-1, 0))
                is_silent = sent >= 0 and heard < sent
                vain = vain + 1 if is_silent else 0
                self._sent[node, incarnation, position] = now, vain
                if is_silent and now - sent < self._least(vain):
                    self.fail(
                        f"Message #{position} was transmitted again after {seconds(now - sent)}, when nothing "
                        f"was heard for the {vain}. time; {seconds(self._least(vain))} are due.",
                        row,
                        position=position,
                    )

    def _least(self, vain: int) -> int:
        """The pause that is due at least; clocks may run a little apart."""
        shortest, longest = self.books.settings.patience
        return min(longest, shortest << min(vain - 1, 40)) * 999 // 1000


def _runs(told: object) -> list[tuple[int, int, int]]:
    """The runs of messages that a row says a frame carries."""
    runs = cast("list[list[int]]", told) if isinstance(told, list) else []
    return [(epoch, first, count) for epoch, first, count in runs]


def _though(excuses: int) -> str:
    if not excuses:
        return ", and nothing had happened that calls for it."
    return f", and there was reason for {times(excuses + 1)} only."
