"""P11, P12 and P13: the run comes to rest in time, with nothing left behind, and whoever submits is answered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import ClassVar

from surepipe.audit.properties.base import Property, Report, listed, messages, seconds, were
from surepipe.audit.properties.coverage import Notes, Part
from surepipe.audit.properties.ledger import (
    CONFIRM_SENT,
    DATA_SENT,
    TOLD,
    Look,
    PipeHistories,
    PipeHistory,
    SwiftLook,
)
from surepipe.audit.settings import NodeEnding, RunEnd, facts_of, pairs
from surepipe.audit.trace import (
    CAUSE,
    COUNT,
    EPOCH,
    INCARNATION,
    LAYER,
    NODE,
    PIPE,
    STEP,
    TIME,
    Cells,
    Kind,
    Row,
)
from surepipe.core.claims import Atom

_NO_BUFFERS = frozenset({"loaded"})


def standing(node: NodeEnding) -> list[str]:
    """The buffers of a node that are not empty. Times, and what was loaded once, are no buffers."""
    return [
        name
        for name, value in sorted(node.gauges.items())
        if value and not name.endswith("_us") and name not in _NO_BUFFERS
    ]


def owing(books: PipeHistories, property_id: str) -> Iterator[PipeHistory]:
    """The pipes whose sender must hear of everything."""
    if books.settings.confirms:
        yield from (one for one in books.pipes.values() if property_id in one.wanted)


class Quiescence(Property):
    """P11: after the drain no deadline is armed but idle ones, buffers are empty, everything is confirmed, and
    both ends name the same next number.

    What a crashed sender without a journal had sent is nobody's to confirm.
    """

    id: ClassVar[str] = "P11"

    def end(self) -> None:
        """Look at what each node was left with."""
        end = self.books.end
        if end is None or not end.quiescent:
            return
        pipes = self.books.pipes.values()
        if not pipes or any("P11" in book.wanted for book in pipes):
            for name, node in end.nodes.items():
                self._look_at(name, node)
            self._compare(end)
        for book in owing(self.books, "P11"):
            for first, last in self.books.unconfirmed(book):
                text = f"{messages(first, last, start=True)} {were(first, last)} never confirmed."
                self.fail(text, book=book, position=first)

    def _look_at(self, name: str, node: NodeEnding) -> None:
        if node.deadline is not None and not node.idle:
            self.fail(f"A deadline of {name} is still armed.")
        for gauge in standing(node):
            self.fail(f"At rest {name} still has {gauge} {node.gauges[gauge]}.")

    def _compare(self, end: RunEnd) -> None:
        said: dict[str, tuple[str, object]] = {}
        for name, node in end.nodes.items():
            for pipe, place in node.next.items():
                other, known = said.setdefault(pipe, (name, place))
                if known != place:
                    self.fail(
                        f"At rest {other} and {name} disagree on the next number of {pipe}: "
                        f"{known} and {place}."
                    )


class ProgressProperty(Property):
    """P12: once the faults are over each message is confirmed within the bound that the pipe states, counted from
    then or from its acceptance; after that no deadline sends a message again; and the run ends. Of several pipes
    none needs to, where one does not promise to lose nothing through what may happen.
    """

    id: ClassVar[str] = "P12"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._since: defaultdict[str, Notes[int]] = defaultdict(Notes)
        self._waking = ""
        self._stops: Counter[str] = Counter()
        self._why_stopped = ""
        self._notice = ""

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """Who waits since when, and for how long."""
        looks: dict[str, SwiftLook] = {Kind.WAKE: self._wake, DATA_SENT: self._transmitted}
        if self.books.settings.bound_us is not None:
            looks |= {Kind.ACCEPTED: self._accepted, Kind.CONFIRMED: self._confirmed}
        return looks

    def looks(self) -> Mapping[str, Look]:
        """Notes processes that can't go on by themselves, and notices to people: either may keep a run from
        coming to rest."""
        return {Kind.CRASH: self._stopped, "notice": self._noticed}

    def _noticed(self, row: Row) -> None:
        self._notice = str(facts_of(row).get("text", ""))

    def _stopped(self, row: Row) -> None:
        facts = facts_of(row)
        if facts.get("fault") == "stop":
            self._stops[row.node] += 1
            self._why_stopped = str(facts.get("text", ""))

    def _accepted(self, row: Cells) -> None:
        if self.books.healed_at is None:
            return
        book = self.books.book
        for _, position, count in book.accepted_now:
            self._since[book.key].note(position, position + count - 1, row[TIME])

    def _confirmed(self, row: Cells) -> None:
        if self.books.healed_at is not None:
            for _, position, count in self.books.parts:
                if position and "P12" in self.books.book.wanted:
                    self._judge(row, self.books.book, position, count, row[TIME])

    def _judge(
        self, row: Cells | None, book: PipeHistory, first: int, count: int, now: int
    ) -> None:
        assert self.books.healed_at is not None
        bound = self.books.settings.bound_us
        assert bound is not None
        if now - self.books.healed_at <= bound:
            return
        for position in range(first, first + count):
            since = max(self.books.healed_at, self._since[book.key].of(position) or 0)
            if now - since > bound:
                what = "was confirmed" if row is not None else "was not confirmed even"
                self.fail(
                    f"Message #{position} {what} {seconds(now - since)} after the faults and its "
                    f"acceptance; {seconds(bound)} are allowed.",
                    row,
                    book=book,
                    position=position,
                )
                return

    def _wake(self, row: Cells) -> None:
        if self.books.phase == "quiescent":
            self._waking = f"{row[NODE]}/{row[INCARNATION]}/{row[STEP]}"

    def _transmitted(self, row: Cells) -> None:
        if self._waking and row[CAUSE] == self._waking:
            book = self.books.book
            if "P12" in book.wanted and not self.books.unconfirmed(book):
                self.fail(
                    f"A deadline of {row[NODE]} sent {listed(_known(self.books))} again when all was "
                    "confirmed.",
                    row,
                    position=self.books.parts[0][1],
                )

    def end(self) -> None:
        """A limit is no end; what is unconfirmed by now is late, or will be."""
        end = self.books.end
        if end is None:
            return
        if end.limit and not self._may_stand_still():
            self.fail(
                f"The run reached its limit {end.limit} and never came to rest.{self._reason()}"
            )
        if self.books.healed_at is None or self.books.settings.bound_us is None:
            return
        for book in owing(self.books, "P12"):
            for first, last in self.books.unconfirmed(book):
                self._judge(None, book, first, last - first + 1, end.time_us)

    def _may_stand_still(self) -> bool:
        """Whether a pipe of several, or what it stands beside, may wait for people: it promises to lose nothing,
        and yet not through what may happen here."""
        claims = self.books.settings.claims
        promising = (
            book for book in self.books.pipes.values() if book.pipe.partition("@")[0] in claims
        )
        return any(
            Atom.NO_LOSS in self.books.settings.claim_on(book.pipe) and "P12" not in book.wanted
            for book in promising
        )

    def _reason(self) -> str:
        """Which end stopped most often though it was started again each time, or the last that was told."""
        node, count = max(sorted(self._stops.items()), key=lambda one: one[1], default=("", 0))
        if count > 1:
            return f" {node} {self._why_stopped.rstrip('.')} ({count} times)."
        return f" Told last: {self._notice.rstrip('.')}." if self._notice else ""


class Alarms(Property):
    """P12, too: people are told when a hole keeps messages from coming out for longer than its pipe allows.

    Judged in runs that tell gauges, for each life of the receiver. What holds the machine up for a while (a pause)
    is none of its faults, and what comes when it goes on may leave a smaller hole, which is timed anew: from when
    it could have told at first it has the time of one more alarm.
    """

    id: ClassVar[str] = "P12"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._held: dict[tuple[str, int], int] = {}
        """For each life: since when it holds what may not come out yet, with nothing in work."""
        self._said: dict[tuple[str, int], tuple[int, int]] = {}
        """For each life: the epoch and the last number of the hole that it has told of."""
        self._late: dict[tuple[str, int], int] = {}
        """When it could have told, and had not."""

    def looks(self) -> Mapping[str, Look]:
        """Gauges, and what people were told; nothing where there is no alarm."""
        if not (self.books.settings.alarm_us and self.books.settings.gauges):
            return {}
        return {
            TOLD: self._look,
            "notice": self._told,
            Kind.PAUSE: self._held_up,
            Kind.DELIVERED: self._moved,
        }

    def _held_up(self, row: Row) -> None:
        """In the very moment in which it could have told."""
        self._late.pop((row.node, row.incarnation), None)

    def _moved(self, row: Row) -> None:
        life = (row.node, row.incarnation)
        self._forget(life)
        if (row.epoch, row.seq + row.count) > self._said.get(life, NOWHERE):
            self._said.pop(life, None)

    def _forget(self, life: tuple[str, int]) -> None:
        self._held.pop(life, None)
        self._late.pop(life, None)

    def _told(self, row: Row) -> None:
        """A hole is told of once: perhaps while messages before it are in work still, and over no link twice."""
        life = (row.node, row.incarnation)
        holes = pairs(facts_of(row).get("ranges"))
        if holes:
            self._said[life] = (row.epoch, holes[0][1])
        elif life in self._held:
            self._said[life] = NOWHERE

    def _look(self, row: Row) -> None:
        life, gauges = (row.node, row.incarnation), self.books.gauges
        if not gauges.get("held") or gauges.get("in_work"):
            self._forget(life)
            return
        since = self._held.setdefault(life, row.time_us)
        alarm = self.books.settings.alarm_us * 1001 // 1000
        if life in self._said or row.time_us <= since + alarm:
            return
        if self._late.setdefault(life, row.time_us) + alarm < row.time_us:
            self.fail(
                f"{row.node} holds messages for {seconds(row.time_us - since)}, and told nobody; "
                f"{seconds(self.books.settings.alarm_us)} are allowed.",
                row,
            )
            self._said[life] = NOWHERE


NOWHERE = (0, 0)
"""Before every message: what was told is over with the next one that comes out."""


def _known(books: PipeHistories) -> list[tuple[int, int]]:
    return [(position, position + count - 1) for _, position, count in books.parts if position]


class Backpressure(Property):
    """P13: every submit is accepted, rejected, unknown, or still waits and its sender says so; and nothing that
    was accepted is dropped while its sender lives."""

    id: ClassVar[str] = "P13"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._open: dict[str, int] = {}

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        return {
            Kind.SUBMIT: self._submitted,
            Kind.ACCEPTED: self._accepted,
            Kind.REJECTED: self._answered,
            Kind.UNKNOWN: self._answered,
        }

    def _submitted(self, row: Cells) -> None:
        key = self.books.of(row[PIPE], row[LAYER]).key
        self._open[key] = self._open.get(key, 0) + row[COUNT]

    def _accepted(self, row: Cells) -> None:
        del row
        book = self.books.book
        if book.key in self._open:
            for _, _, count in book.accepted_now:
                self._open[book.key] -= count

    def _answered(self, row: Cells) -> None:
        key = self.books.book.key
        if key in self._open:
            self._open[key] -= row[COUNT]

    def end(self) -> None:
        """Count, and look whether senders still hold what they took."""
        end = self.books.end
        if end is None:
            return
        for key, left in self._open.items():
            book = self.books.pipes[key]
            node = end.nodes.get(book.sender)
            waiting = node.waiting if node is not None else 0
            if left > waiting and end.quiescent:
                self.fail(f"{left - waiting} messages were submitted and got no answer.", book=book)
        for book in owing(self.books, "P13"):
            self._look_for_dropped(end, book)

    def _look_for_dropped(self, end: RunEnd, book: PipeHistory) -> None:
        node = end.nodes.get(book.sender)
        if node is None or any(node.gauges.get(name) for name in ("in_flight", "backlog")):
            return
        if "in_flight" not in node.gauges or not (end.quiescent or node.idle):
            return
        owed = self.books.owed(book)
        for first, last in self.books.unconfirmed(book):
            for low, high in owed.within(first, last):
                text = (
                    f"{messages(low, high, start=True)} {were(low, high)} accepted, and {book.sender} "
                    "holds nothing any more."
                )
                self.fail(text, book=book, position=low)


# P8: a confirm is said only of what is settled (or, over a stream, stored).


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

    def _tell(self, row: Cells, book: PipeHistory, part: Part, what: str, state: str) -> None:
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
