"""Keeps account of each pipe as rows come: the position of every message, and its state.

The books are kept once for all properties. Before the properties look at a row the books say where its messages
stand (``book`` and ``parts``); after that they note what the row has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from surepipe.audit.predicates import OrderJudge
from surepipe.audit.properties.coverage import Parts, Positions, Reached
from surepipe.audit.settings import Claim, EndClaims, RunEnd, Settings, facts_of, integers, number
from surepipe.audit.trace import (
    COUNT,
    DETAIL,
    DIGESTS,
    EPOCH,
    KIND,
    LAYER,
    NODE,
    PIPE,
    SEQ,
    Cells,
    Kind,
    Row,
)
from surepipe.core.ranges import RangeSet

Look: TypeAlias = Callable[[Row], None]
Looks: TypeAlias = Mapping[str, Look]
SwiftLook: TypeAlias = Callable[[Cells], None]
SwiftLooks: TypeAlias = Mapping[str, SwiftLook]
"""Looks at kinds of which a run has thousands: they do without the names of the columns."""
IS_SETTLED, IS_KEPT = '"settled":true', '"kept":true'
"""In a row ``dead``: the message was settled before it was handled, and a row of its own tells that."""
IS_EARLY = '"early":true'
"""In a row ``dead``: it is told before it is stored, so a later life may tell it again."""
DIGITS = 16
"""Hexadecimal digits of one payload in ``digests``."""
_BLANK = b" " * DIGITS
STREAM_FAULTS = ("F13", "F14", "F15")
INDEX_FAULTS = ("F16", "F17")
"""Faults after which a stream, or the position of a reader, may be an older one."""
TOLD = "(gauges)"
"""In place of a kind: rows of any kind that carry gauges and counters of their node."""
_GOING_BACK = (*STREAM_FAULTS, *INDEX_FAULTS)


class PipeHistory:
    """One pipe (or one layer of it): its messages by their positions."""

    __slots__ = (
        *("accepted_now", "appended", "confirmed", "dead", "digests", "excused", "key", "layer"),
        *(
            "nacks",
            "optional",
            "order",
            "parked",
            "pipe",
            "positions",
            "rejected",
            "sender",
            "settled",
        ),
        *("cut_short", "told_late", "unknown", "untold", "wanted"),
    )

    def __init__(self, key: str, pipe: str, layer: str, wanted: frozenset[str]) -> None:
        self.key = key
        self.pipe = pipe
        self.layer = layer
        self.wanted = wanted
        self.positions = Positions()
        self.order = OrderJudge()
        self.digests = bytearray()
        self.settled = Reached()
        self.dead = Reached()
        self.parked = Reached()
        """Of the dead ones: those that wait for a person, in a book."""
        self.confirmed = Reached()
        self.appended = Reached()
        self.optional = RangeSet()
        """Positions of submits whose outcome was unknown: they may come out and need not."""
        self.told_late = RangeSet()
        """Positions of what was accepted before others and is told of behind them: its life ended before it could
        tell, and who takes it from the store does. Where it stands in the order is not known by its position."""
        self.accepted_now: Parts = []
        """The messages that the latest row of kind ``accepted`` has numbered."""
        self.rejected: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        """Digests of submits that were rejected, and of those without a number whose outcome is unknown."""
        self.sender = ""
        self.cut_short = False
        """The trace of a sender ends in the middle of its life: more may have been accepted than it tells."""
        self.untold = 0
        """Messages that came out and may have been accepted behind that end."""
        self.nacks = 0
        self.excused = 0
        """No confirm is owed for positions up to here: the sender that would get it has crashed."""

    def note_digests(self, parts: Parts, digests: str, first: int) -> None:
        """Remember the payloads of messages that were just numbered, in order of their positions."""
        known = self.digests
        for seq, _, count in parts:
            start = (seq - first) * DIGITS
            piece = digests[start : start + count * DIGITS].encode()
            known += piece if len(piece) == count * DIGITS else _BLANK * count

    def note_late(self, parts: Parts, latest: int) -> None:
        """Of these, those with numbers below ``latest`` are told of behind it."""
        for seq, position, count in parts:
            self.told_late.add(position, position + min(count, latest - seq) - 1)

    def need_not_precede(self, first: int, last: int) -> bool:
        """Whether nothing from first to last has to come out before what is behind it."""
        owed = self.optional.missing(first, last)
        return all(self.told_late.covers(*part) for part in owed)

    def is_odd(self, parts: Parts, digests: str, first: int) -> bool:
        """Whether one of these messages was never accepted, or has another payload than then."""
        for part in parts:
            if not part[1]:
                return True
            at = (part[1] - 1) * DIGITS
            if (part[0] != first or not self.digests.startswith(digests.encode(), at)) and (
                digests and self.changed(part, digests, first)
            ):
                return True
        return False

    def changed(self, part: tuple[int, int, int], digests: str, first: int) -> int:
        """The position of the first of these messages whose payload is not the accepted one; 0 for none."""
        seq, position, count = part
        at, length = (position - 1) * DIGITS, count * DIGITS
        if seq != first or len(digests) != length:
            start = (seq - first) * DIGITS
            digests = digests[start : start + length]
        told = digests.encode()
        if len(told) < length or self.digests.startswith(told, at):
            return 0
        for offset in range(0, length, DIGITS):
            ours = bytes(self.digests[at + offset : at + offset + DIGITS])
            if ours not in (_BLANK, told[offset : offset + DIGITS]):
                return position + offset // DIGITS
        return 0


def named(look: Look) -> SwiftLook:
    """A look that reads columns by their names."""
    return lambda cells: look(Row(*cells))


DATA_SENT, CONFIRM_SENT = "(data sent)", "(confirm sent)"
"""In place of a kind: a frame is transmitted that carries messages, or that declares some settled."""
_FRAMES = (DATA_SENT, CONFIRM_SENT, Kind.TRANSMIT, Kind.COPIED, Kind.ARRIVED)
_SPOKEN_OF = (Kind.CONFIRMED, Kind.CALLED, Kind.RAISED, Kind.FAILED)
_TOLD_WITH_DIGESTS = (Kind.DELIVERED, Kind.SETTLED, Kind.DEAD, Kind.APPENDED)
ONLY_FOUND: frozenset[str] = frozenset((*_FRAMES, *_SPOKEN_OF, *_TOLD_WITH_DIGESTS))
"""Of these rows the books only find the messages; where nobody asks, they need not."""


class PipeHistories:
    """The books of all pipes of one trace."""

    def __init__(self, settings: Settings, chosen: frozenset[str] | None = None) -> None:
        self.settings = settings
        self.pipes: dict[str, PipeHistory] = {}
        self.book: PipeHistory = PipeHistory("", "", "", frozenset())
        self.parts: Parts = []
        """What the row at hand speaks of."""
        self.is_odd = False
        """Some of these were never accepted, or have another payload than then."""
        self.stirred = 0
        """How often something has happened that may excuse a repetition."""
        self.wakes: dict[str, int] = {}
        """How often the machines of each node were woken."""
        self.crashes = 0
        """Crashes of anything, takeovers, and stores that went back."""
        self.takeovers = 0
        """Processes that were replaced while they lived: each may still act on whatever it hears."""
        self.before_start: dict[str, tuple[int, int]] = {}
        """(wakes, crashes) when the latest life of each node began, without what this start adds to them."""
        self.before_next: dict[tuple[str, int], tuple[int, int]] = {}
        """The same when a life of a node was replaced that goes on."""
        self.gauges: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        """What the row at hand tells of its node."""
        self.may_lack_senders = False
        """Other processes may have been traced elsewhere, or not at all; a simulation tells of everybody."""
        self.healed_at: int | None = None
        self.phase = ""
        self.end: RunEnd | None = None
        self._chosen = chosen
        self._ends = EndClaims()
        self._claims: dict[str, Settings] = {}
        self._stored: set[str] = set()
        self._running: dict[str, int] = {}

    def before(self) -> SwiftLooks:
        """What is noted before the properties look at a row."""
        looks: dict[str, SwiftLook] = dict.fromkeys(_FRAMES, self._find_frame)
        looks |= dict.fromkeys(_SPOKEN_OF, self._find)
        looks |= dict.fromkeys(_TOLD_WITH_DIGESTS, self._find_and_compare)
        looks |= {Kind.ACCEPTED: self._accepted, Kind.WAKE: self._wake}
        rare: Looks = {
            CONTROL: self._control,
            Kind.UNKNOWN: self._unknown,
            Kind.REJECTED: self._rejected,
            Kind.RENUMBERED: self._renumbered,
            Kind.START: self._start,
            Kind.CRASH: self._crash,
            Kind.FAULT: self._fault,
            Kind.PHASE: self._phase,
            Kind.END: self._end,
            TOLD: self._told,
        }
        return looks | {kind: named(look) for kind, look in rare.items()}

    def after(self) -> SwiftLooks:
        """What is noted after they have looked."""
        return {
            Kind.SETTLED: self._settled,
            Kind.DEAD: self._dead,
            Kind.CONFIRMED: self._confirmed,
            Kind.APPENDED: self._appended,
        }

    def of(self, pipe: str, layer: str = "") -> PipeHistory:
        """The book of a pipe, a new one for a pipe not heard of."""
        key = f"{pipe}#{layer}" if layer else pipe
        book = self.pipes.get(key)
        if book is None:
            book = self.pipes[key] = PipeHistory(key, pipe, layer, self._wanted(pipe))
        return book

    def _wanted(self, pipe: str) -> frozenset[str]:
        if self._chosen is not None:
            return self._chosen
        return self._claims.get(pipe.partition("@")[0], self.settings).wanted(pipe)

    # Where the messages of a row stand.

    def _find(self, row: Cells) -> None:
        book = self.pipes.get(row[PIPE]) if not row[LAYER] else None
        if book is None:
            book = self.of(row[PIPE], row[LAYER])
        self.book = book
        self.parts = book.positions.find(row[EPOCH], row[SEQ], row[COUNT])

    def _find_and_compare(self, row: Cells) -> None:
        self._find(row)
        self.is_odd = self.book.is_odd(self.parts, row[DIGESTS], row[SEQ])

    def _find_frame(self, row: Cells) -> None:
        layer = row[LAYER]
        book = self.pipes.get(row[PIPE]) if not layer or layer == "0" else None
        if book is None:
            book = self.of(row[PIPE], "" if layer == "0" else layer)
        self.book = book
        self.parts = book.positions.find(row[EPOCH], row[SEQ], row[COUNT])

    def _control(self, row: Row) -> None:
        """A frame without messages has arrived."""
        if frame_kind(row) in _ASKING_AGAIN:
            self.of(row.pipe, "" if row.layer == "0" else row.layer).nacks += 1
            self.stirred += 1

    # What a sender says.

    def _accepted(self, row: Cells) -> None:
        book = self.pipes.get(row[PIPE]) if not row[LAYER] else None
        if book is None:
            book = self.of(row[PIPE], row[LAYER])
        self.book = book
        if book.sender != row[NODE]:
            book.sender = row[NODE]
            self.stirred += 1
        epoch, first, count = row[EPOCH], row[SEQ], row[COUNT]
        latest = book.positions.last(epoch)
        fresh = book.positions.add(epoch, first, count)
        if fresh and fresh[0][0] < latest and facts_of(Row(*row)).get("loaded"):
            book.note_late(fresh, latest)
        book.accepted_now = fresh
        book.note_digests(fresh, row[DIGESTS], first)
        if len(fresh) == 1 and fresh[0][2] == count:
            self.parts = fresh
            return
        self.parts = book.positions.find(epoch, first, count)
        for _, position, count in self.parts:
            book.optional.discard(position, position + count - 1)

    def _unknown(self, row: Row) -> None:
        book = self.book = self.of(row.pipe, row.layer)
        if row.epoch == 0:
            book.unknown.update(_each(row.digests))
            return
        fresh = book.positions.add(row.epoch, row.seq, row.count)
        book.note_digests(fresh, row.digests, row.seq)
        for _, position, count in fresh:
            book.optional.add(position, position + count - 1)

    def _rejected(self, row: Row) -> None:
        self.book = self.of(row.pipe, row.layer)
        self.book.rejected.update(_each(row.digests))

    def _renumbered(self, row: Row) -> None:
        self.book = self.of(row.pipe, row.layer)
        facts = facts_of(row)
        epoch, seq = number(facts.get("epoch")), number(facts.get("seq"))
        if epoch is not None and seq is not None:
            self.book.positions.move(row.epoch, row.seq, row.count, epoch, seq)

    # What happens to nodes.

    def _wake(self, row: Cells) -> None:
        self._woken(row[NODE])

    def _woken(self, node: str) -> None:
        self.wakes[node] = self.wakes.get(node, 0) + 1
        self.stirred += 1

    def _start(self, row: Row) -> None:
        """A start is the first wake of a machine; a second start of a node without a crash is a takeover."""
        self.before_start[row.node] = (self.wakes.get(row.node, 0), self.crashes)
        former = self._running.get(row.node, row.incarnation)
        if former != row.incarnation:
            self.before_next[row.node, former] = self.before_start[row.node]
            self.crashes += 1
            self.takeovers += 1
        self._woken(row.node)
        self._running[row.node] = row.incarnation
        if not row.detail:
            return
        facts = facts_of(row)
        self._ends.see(row)
        if (claim := self._ends.on(row.pipe)) is not None:
            self._claims[row.pipe.partition("@")[0]] = Settings(claim=claim)
        if facts.get("confirms") == "stored":
            self._stored.add(row.pipe.partition("@")[0])

    def _crash(self, row: Row) -> None:
        self.crashes += 1
        self.stirred += 1
        self._running.pop(row.node, None)
        for book in self.pipes.values():
            if book.sender == row.node and not self.settings.has_journal(book.pipe):
                book.excused = book.positions.count

    def _fault(self, row: Row) -> None:
        if any(fault in row.detail for fault in _GOING_BACK):
            self.crashes += 1
            self.stirred += 1

    def _phase(self, row: Row) -> None:
        facts = facts_of(row)
        self.phase = str(facts.get("phase", ""))
        if self.phase == "heal":
            self.healed_at = row.time_us

    def _told(self, row: Row) -> None:
        facts = facts_of(row)
        self.gauges = integers(facts.get("gauges"))
        self.counters = integers(facts.get("counters"))

    def _end(self, row: Row) -> None:
        self.end = RunEnd.read(row)

    # What has become of messages.

    def _settled(self, row: Cells) -> None:
        del row
        settled = self.book.settled
        for _, position, count in self.parts:
            if position:
                settled.add(position, position + count - 1)

    def _dead(self, row: Cells) -> None:
        if IS_SETTLED not in row[DETAIL]:
            self._settled(row)
        for _, position, count in self.parts:
            if position:
                self.book.dead.add(position, position + count - 1)
                if IS_KEPT in row[DETAIL]:
                    self.book.parked.add(position, position + count - 1)

    def _confirmed(self, row: Cells) -> None:
        del row
        confirmed = self.book.confirmed
        for _, position, count in self.parts:
            if position:
                confirmed.add(position, position + count - 1)

    def _appended(self, row: Cells) -> None:
        del row
        self.stirred += 1
        for _, position, count in self.parts:
            if position:
                self.book.appended.add(position, position + count - 1)

    # Questions.

    def claim_on(self, pipe: str) -> Claim:
        """What is claimed of a pipe, by the row ``run`` or by the start of its nodes."""
        return self._claims.get(pipe.partition("@")[0], self.settings).claim_on(pipe)

    def is_confirmed_by_store(self, pipe: str) -> bool:
        """Whether a confirm only means that a store has the message, not that it came out."""
        return pipe.partition("@")[0] in self._stored

    def owed(self, book: PipeHistory) -> RangeSet:
        """Positions that were accepted and did not come out."""
        owed = RangeSet(book.settled.missing(1, book.positions.count))
        for first, last in book.optional:
            owed.discard(first, last)
        return owed

    def unconfirmed(self, book: PipeHistory) -> RangeSet:
        """Positions whose sender still owes a confirm."""
        owed = RangeSet(book.confirmed.missing(book.excused + 1, book.positions.count))
        for first, last in book.optional:
            owed.discard(first, last)
        return owed


CONTROL = "(control)"
"""In place of a kind: a frame without messages has arrived. What else befalls such a frame concerns nobody."""
_WITHOUT_MESSAGES: Mapping[str, str] = {"copied": "", "lost": "", "arrived": CONTROL}
_SENT: Mapping[str, str] = {"data": DATA_SENT, "confirm": CONFIRM_SENT}
SORTS: Mapping[str, Sequence[str]] = {"transmit": (DATA_SENT, CONFIRM_SENT, "transmit")}
"""Kinds that are looked at by what they speak of."""


def sort_of(row: Cells) -> str:
    """The kind of a row; of one about a frame, what kind of frame it is, and empty where that concerns nobody."""
    kind = row[KIND]
    if kind != "transmit":
        return kind if row[COUNT] else _WITHOUT_MESSAGES.get(kind, kind)
    return _SENT.get(frame_kind_in(row[DETAIL]), kind) if row[COUNT] else ""


_DATA = frozenset(("", "data", '{"frame":"data"}'))
_KIND = '"frame":'
_ASKING_AGAIN = frozenset(("nack", "opened", "refused"))
"""Frames upon which a sender transmits again; the latter two are a Nack of all that is in flight."""


def frame_kind(row: Row) -> str:
    """The kind of frame that a row speaks of: ``detail`` names it, alone or as ``frame`` within JSON."""
    return frame_kind_in(row.detail)


@lru_cache(maxsize=4096)
def frame_kind_in(detail: str) -> str:
    """The same, of a detail."""
    if detail in _DATA:
        return "data"
    at = detail.find(_KIND)
    if at < 0:
        return detail if detail[0] != "{" else "data"
    start = detail.find('"', at + len(_KIND)) + 1
    return detail[start : detail.find('"', start)]


def _each(digests: str) -> list[str]:
    return [digests[at : at + DIGITS] for at in range(0, len(digests), DIGITS)]
