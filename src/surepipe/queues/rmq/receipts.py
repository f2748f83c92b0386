"""What one node tells those who submit: signed receipts, numbered for each submitter, of all of its sessions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.core.effects import Addressed, Effect, Transmit
from surepipe.core.records import record
from surepipe.queues.rmq.encoding import (
    Encoded,
    Malformed,
    MemberKeys,
    Value,
    encode,
    signed_bytes,
    taken,
)

TERMINAL = ("finalized", "refused", "duplicate", "expired")
READER_US = 30_000_000
"""A client that asks for nothing for so long is told nothing."""
PACK_MAX = 64


@record
class Receipt:
    """What one node tells of one message. Numbers grow for each submitter."""

    number: int
    id: bytes
    kind: str
    epoch: int
    slot: int
    block: bytes
    detail: bytes
    time_ms: int

    @property
    def fields(self) -> tuple[Value, ...]:
        place = (self.number, self.id, self.kind, self.epoch, self.slot, self.block)
        return (*place, self.detail, self.time_ms)

    @staticmethod
    def of(value: Value) -> Receipt:
        """Raises Malformed."""
        return Receipt(*taken(value, int, bytes, str, int, int, bytes, bytes, int))


def pack_signed(queue: str, submitter: str, node: str, receipts: Sequence[Receipt]) -> bytes:
    """What the signature of a pack of receipts signs."""
    return _signed_rows(queue, submitter, node, receipts, _rows(receipts))


def _rows(receipts: Sequence[Receipt]) -> Encoded:
    return Encoded(encode(tuple(each.fields for each in receipts)))


def _signed_rows(
    queue: str, submitter: str, node: str, receipts: Sequence[Receipt], rows: Encoded
) -> bytes:
    return signed_bytes("receipts", (queue, submitter, node, receipts[0].number, rows))


@dataclass(slots=True)
class _Told:
    """All for one submitter."""

    receipts: list[tuple[bytes, Receipt]] = field(default_factory=list[tuple[bytes, Receipt]])
    """In the order of their numbers, each with the session whose stream holds it."""
    unstored: set[int] = field(default_factory=set[int])

    @property
    def newest(self) -> int:
        return self.receipts[-1][1].number if self.receipts else 0


class ReceiptBook:
    """The receipts of a node. What isn't stored yet is not shown, so no number is given twice."""

    def __init__(
        self, queue: str, node: str, keys: MemberKeys, *, receipts_max: int = 10_000
    ) -> None:
        """``receipts_max``: for each submitter; beyond it those go that newer ones of their message follow."""
        self.queue, self.node = queue, node
        self._keys, self._max = keys, receipts_max
        self.added = 0
        """How many were taken in."""
        self._told: dict[str, _Told] = {}
        self._ended: dict[bytes, bytes] = {}
        """Messages whose end was told, and the session that told it."""
        self._readers: dict[tuple[str, str], int] = {}
        """By submitter (none: all) and the route to who reads: until when he is taken to be there."""
        self._sent: dict[tuple[str, str], int] = {}
        self._detailed: dict[str, int] = {}
        """By submitter: until when somebody wants to know each step."""
        self._fresh: list[tuple[str, Receipt]] = []
        """What was stored since somebody who reads all was told."""

    def by_submitter(self) -> Mapping[str, Sequence[Receipt]]:
        return {name: [each for _, each in told.receipts] for name, told in self._told.items()}

    def next_number(self, submitter: str, wall_ms: int) -> int:
        """Above all before. The first one is taken from the clock, so it isn't one that was given before a store
        was lost."""
        told = self._told.get(submitter)
        return told.newest + 1 if told is not None and told.receipts else max(wall_ms << 20, 1)

    def add(self, session: bytes, submitter: str, receipt: Receipt, *, is_stored: bool) -> None:
        self.added += 1
        told = self._told.setdefault(submitter, _Told())
        is_late = receipt.number < told.newest
        told.receipts.append((session, receipt))
        if receipt.kind in TERMINAL:
            self._ended.setdefault(receipt.id, session)
        if is_late:  # of several streams, as they are read again
            told.receipts.sort(key=lambda each: each[1].number)
        if not is_stored:
            told.unstored.add(receipt.number)
        if len(told.receipts) > 2 * self._max:
            self._shorten(told)

    def _shorten(self, told: _Told) -> None:
        latest = {receipt.id: receipt.number for _, receipt in told.receipts}
        is_last = [
            receipt.number == latest[receipt.id] or receipt.number in told.unstored
            for _, receipt in told.receipts
        ]
        kept = [each for each, stays in zip(told.receipts, is_last, strict=True) if stays]
        told.receipts = kept[-self._max :]

    def has_told_end(self, message_id: bytes) -> bool:
        """Whether this node has told how it ended, in whichever session."""
        return message_id in self._ended

    def stored(self, submitter: str, number: int) -> None:
        told = self._told.get(submitter)
        if told is None:
            return
        told.unstored.discard(number)
        if any(not name for name, _ in self._readers):
            at = bisect_right(told.receipts, number, key=lambda each: each[1].number) - 1
            self._fresh.append((submitter, told.receipts[at][1]))

    def drop(self, session: bytes) -> None:
        """Forget what the stream of a session held."""
        self._ended = {key: of for key, of in self._ended.items() if of != session}
        for name, told in list(self._told.items()):
            told.receipts = [each for each in told.receipts if each[0] != session]
            if not told.receipts:
                del self._told[name]

    def _newest(self, submitter: str) -> int:
        told = self._told.get(submitter)
        return told.newest if told is not None else 0

    def has_readers_of_steps(self, submitter: str, now: int) -> bool:
        """Whether anybody wants to know what a message goes through before its end: else nobody is told."""
        return any(self._detailed.get(each, -1) >= now for each in (submitter, ""))

    def read(
        self, submitter: str, route: str, after: int, now: int, *, is_detailed: bool = True
    ) -> None:
        """Somebody is there, who has what this submitter was told up to a number; without a name he reads what all
        are told from now on."""
        if is_detailed:
            self._detailed[submitter] = now + READER_US
        newest = self._newest(submitter)
        self._readers[submitter, route] = now + READER_US
        self._sent[submitter, route] = min(after, newest) if newest else after

    def meet(self, submitter: str, route: str, now: int) -> None:
        """A submitter is there, who gets what is new."""
        self._sent.setdefault((submitter, route), self._newest(submitter))
        self._readers[submitter, route] = now + READER_US

    def repeat(self, message_id: bytes, submitter: str, route: str) -> list[Effect]:
        """Once more what was told of a message."""
        told = self._told.get(submitter)
        known = [
            each
            for _, each in (told.receipts if told else ())
            if told and each.id == message_id and each.number not in told.unstored
        ]
        return [self._pack(route, submitter, known[-PACK_MAX:], -1)] if known else []

    def tell(self, now: int) -> list[Effect]:
        """Tell readers what is stored and new."""
        out: list[Effect] = []
        for (submitter, route), until in list(self._readers.items()):
            if until < now:
                del self._readers[submitter, route], self._sent[submitter, route]
            elif submitter:
                out += self._tell_one(submitter, route)
            else:
                out += [self._pack(route, name, [receipt], -1) for name, receipt in self._fresh]
        self._fresh.clear()
        return out

    def _tell_one(self, submitter: str, route: str) -> list[Effect]:
        told, sent = self._told.get(submitter), self._sent[submitter, route]
        if told is None or told.newest <= sent:
            return []
        upto = min(told.unstored, default=told.newest + 1)
        first = bisect_right(told.receipts, sent, key=lambda each: each[1].number)
        fresh = [each for _, each in told.receipts[first:] if each.number < upto]
        out: list[Effect] = []
        for at in range(0, len(fresh), PACK_MAX):
            pack = fresh[at : at + PACK_MAX]
            out.append(self._pack(route, submitter, pack, sent))
            sent = pack[-1].number
        self._sent[submitter, route] = sent
        return out

    def _pack(self, route: str, submitter: str, receipts: Sequence[Receipt], after: int) -> Effect:
        """``after``: there is nothing between this number and the first one; -1 where that isn't said."""
        rows = _rows(receipts)
        signature = self._keys.sign(_signed_rows(self.queue, submitter, self.node, receipts, rows))
        fields = ("receipts", self.queue, submitter, self.node, rows, signature, after)
        return Transmit(Addressed(route, encode(fields)))


def receipt_of_row(row: tuple[Value, ...]) -> tuple[str, Receipt]:
    """Submitter and receipt of a stored row. Raises Malformed."""
    match row:
        case ("receipt", str() as submitter, fields):
            return submitter, Receipt.of(fields)
        case _:
            raise Malformed("no row of a receipt")
