"""What a queue has decided, as a stream that others read: each message once, in the order of the blocks.

A message is the n-th that its session decided, which all nodes know alike; under that number it is appended. So a
repeat after a crash changes nothing, though the stream is in another store than the log, and nothing has to be
remembered of how far it has come. A session isn't forgotten before all of it is in the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surepipe.core.records import record
from surepipe.core.store_requests import FencedOut, ProducerOpened, Stored
from surepipe.queues.rmq.chain import DONE
from surepipe.queues.rmq.session import SessionMachine

ROWS_MAX, ROWS_BYTES = 256, 1 << 20
AGAIN_US = 500_000


@record
class DecidedMessage:
    """A message that is done or refused."""

    id: bytes
    key: bytes
    submitter: str
    body: bytes | None
    """None for one that nobody had any more."""
    is_done: bool
    result: bytes
    """Of one that is done."""
    reason: str
    """Of one that is refused."""
    epoch: int
    position: int
    """Of its block in the session."""
    time_ms: int


@record
class MissedEpoch:
    """A session of which this node has no log: what it decided is not in the stream."""

    epoch: int


@record
class OpenFeed:
    """A request: how many messages of this session are in the stream? Answered ``ProducerOpened``, or
    ``FencedOut`` when those of a later one are."""

    part: bytes
    epoch: int


@record
class AppendDecided:
    """A request: append these, numbered from ``first``. Answered as ``Store.append`` is."""

    part: bytes
    epoch: int
    first: int
    rows: tuple[DecidedMessage | MissedEpoch, ...]


@dataclass(slots=True)
class _Fed:
    """How far a session is in the stream."""

    part: bytes
    epoch: int
    behind: frozenset[bytes] = frozenset()
    """Sessions that come first."""
    stored: int | None = None
    """Rows that are in the stream; None before that was asked."""
    position: int = 0
    """Blocks up to the one before this are whole in the stream; in place of a block 0 stands what was missed."""
    before: int = 0
    """Rows of those blocks."""
    is_over: bool = False


class DecidedFeed:
    """The feed of one node: one request at a time."""

    def __init__(self) -> None:
        self._fed: dict[bytes, _Fed] = {}
        self._asked: tuple[bytes, OpenFeed | AppendDecided] | None = None
        self._again_at: int | None = None

    @property
    def due(self) -> int | None:
        """When a request that failed is made again."""
        return self._again_at

    def begin(self, machine: SessionMachine, behind: Sequence[bytes]) -> None:
        """A session has turns from here on. ``behind``: sessions before it that are here."""
        session = machine.log.session
        if session not in self._fed:
            self._fed[session] = _Fed(machine.partition.lo, machine.epoch, frozenset(behind))
            machine.keeps_bodies = True

    def is_behind(self, session: bytes) -> bool:
        """Whether something of it is still to be appended."""
        fed = self._fed.get(session)
        return fed is not None and not fed.is_over

    def forget(self, session: bytes) -> None:
        """It is over, or can't be held any longer."""
        self._fed.pop(session, None)

    def next_request(
        self, machines: Sequence[SessionMachine], now: int, *, ending: frozenset[bytes]
    ) -> OpenFeed | AppendDecided | None:
        """What is to be asked now. Of sessions in ``ending`` nobody else has anything any more: what is missing
        there won't come."""
        if self._asked is not None or (self._again_at is not None and now < self._again_at):
            return None
        self._again_at = None
        for machine in machines:
            session = machine.log.session
            fed = self._fed.get(session)
            if fed is None or fed.is_over or any(self.is_behind(each) for each in fed.behind):
                continue
            request = self._request(machine, fed, is_ending=session in ending)
            if request is not None:
                self._asked = session, request
                return request
        return None

    def answered(self, outcome: object, now: int) -> None:
        """The stream's store has answered."""
        if self._asked is None:
            return
        (session, request), self._asked = self._asked, None
        fed = self._fed.get(session)
        match outcome:
            case _ if fed is None:
                pass
            case ProducerOpened(last=last):
                fed.stored = last
            case Stored() if isinstance(request, AppendDecided):
                fed.stored = request.first + len(request.rows) - 1
            case FencedOut():
                fed.is_over = True
            case _:
                fed.stored = None  # ask how far it is, and go on there
                self._again_at = now + AGAIN_US

    def _request(
        self, machine: SessionMachine, fed: _Fed, *, is_ending: bool
    ) -> OpenFeed | AppendDecided | None:
        if fed.stored is None:
            return OpenFeed(fed.part, fed.epoch)
        rows: list[DecidedMessage | MissedEpoch] = []
        size, number = 0, fed.before
        for position in range(fed.position, machine.applied + 1):
            found = _rows_at(machine, position, is_ending=is_ending)
            if found is None:
                break  # a body is on its way
            for row in found:
                number += 1
                if number > fed.stored and size < ROWS_BYTES and len(rows) < ROWS_MAX:
                    rows.append(row)
                    size += 256 if isinstance(row, MissedEpoch) else 256 + len(row.body or b"")
            if rows:
                break  # a block at a time: the next one when this is stored
            fed.position, fed.before = position + 1, number
        if rows:
            return AppendDecided(fed.part, fed.epoch, fed.stored + 1, tuple(rows))
        fed.is_over = fed.position > machine.applied and machine.seal is not None
        return None


def _rows_at(
    machine: SessionMachine, position: int, *, is_ending: bool
) -> list[DecidedMessage | MissedEpoch] | None:
    """The rows of a block; None while a body isn't here."""
    if position == 0:
        return [MissedEpoch(each) for each in machine.missed]
    block = machine.final_block(position)
    rows: list[DecidedMessage | MissedEpoch] = []
    for verdict in block.verdicts:
        header, body = machine.header(verdict.id), machine.body(verdict.id)
        if body is None and header.kind == "work" and not is_ending:
            return None
        if header.kind == "work":
            rows.append(
                DecidedMessage(
                    verdict.id,
                    header.key,
                    header.submitter,
                    body,
                    verdict.kind == DONE,
                    verdict.result,
                    verdict.reason,
                    machine.epoch,
                    position,
                    block.time_ms,
                )
            )
    return rows
