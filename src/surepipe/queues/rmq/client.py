"""Submits messages to a replicated queue, and believes what enough of its nodes say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from surepipe.core.effects import Addressed, Call, Effect, Transmit, WakeAt
from surepipe.core.machine import Randomness
from surepipe.core.records import record
from surepipe.core.store_requests import (
    AppendRun,
    FencedOut,
    Gap,
    Stored,
    TrimBefore,
    Unavailable,
)
from surepipe.core.timing import BackOff, below, earlier
from surepipe.errors import ConfigurationError, Fenced
from surepipe.queues.rmq.encoding import (
    DIGEST_BYTES,
    Malformed,
    MemberKeys,
    MessageHeader,
    Value,
    decode,
    encode,
)
from surepipe.queues.rmq.epochs import EpochChain, Foundation
from surepipe.queues.rmq.receipts import TERMINAL, Receipt, pack_signed
from surepipe.queues.rmq.stored_log import StoredLog


@record
class SignedReceipt:
    """A receipt, and the node that signed it."""

    node: str
    receipt: Receipt


@record
class Outcome:
    """How a message ended, as enough nodes say. ``value`` is the result of a finalized one, or of the one that it
    is a duplicate of; ``reason`` says why it was refused."""

    kind: str
    epoch: int
    position: int
    value: bytes
    reason: str


@dataclass(slots=True)
class Submitted:
    """A submitted message, and what came back."""

    header: MessageHeader
    id: bytes
    body: bytes
    next_at: int
    history: list[SignedReceipt] = field(default_factory=list[SignedReceipt])
    refusals: dict[str, str] = field(default_factory=dict[str, str])
    """By node: why it didn't take the message in."""
    asked: dict[str, int] = field(default_factory=dict[str, int])
    """By node: how often it was sent there. Who has not answered yet is asked again after all others."""
    outcome: Outcome | None = None
    known: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    """By node: the numbers of its receipts that are here."""

    @property
    def heard(self) -> set[str]:
        """The nodes that have answered with a receipt."""
        return {each.node for each in self.history}


NEWS_MAX = 10_000
FORGOTTEN_AFTER = 3
"""So many epochs behind its own, nobody knows of a message."""
TRIM_EVERY = 1_000
_AGAIN = BackOff.of_seconds(0.1, 2.0)
SETTLED_KEPT = 1_000
"""So many messages whose end is known are remembered; receipts of earlier ones are not looked at."""


class ClientMachine:
    """A submitter: a machine with a route to each node, under the node's name. It follows the epochs."""

    def __init__(
        self,
        name: str,
        foundation: Foundation,
        *,
        keys: MemberKeys,
        rng: Randomness,
        resend_us: int = 2_000_000,
        is_watching: bool = False,
        is_detailed: bool = True,
        journal: StoredLog | None = None,
    ) -> None:
        """``is_detailed``: it is told each step, and not only where a message was placed and how it ended.
        ``is_watching``: it hears what nodes tell of messages of this name, whoever submits them; without a name,
        what they tell of any from now on. ``journal``: a message is stored there before it is sent, so that a
        later life goes on with those whose end isn't known."""
        self.name, self.queue = name, foundation.queue
        self.epochs = EpochChain(foundation.record, keys)
        self._keys, self._rng = keys, rng
        self._resend_us = resend_us
        self.tickets: dict[bytes, Submitted] = {}
        self._open: dict[bytes, Submitted] = {}
        self._settled: deque[bytes] = deque()
        self._read_upto: dict[str, int] = {}
        """By node the number up to which its receipts are here, without a hole."""
        self._told: dict[str, tuple[int, int, int]] = {}
        """By node the epoch that it is in, its clock, and when it said so."""
        self._is_watching = is_watching
        self.news: deque[SignedReceipt] = deque(maxlen=NEWS_MAX)
        """What one who watches was told, until somebody takes it."""
        self._read_at: int | None = 0
        self._last_read = -resend_us
        self.is_detailed = is_watching or is_detailed
        self._send_at: int | None = None
        """No ticket is due before."""
        self._armed: int | None = None
        self._counters: dict[str, int] = {}
        self._journal = _Journal(journal) if journal is not None else None
        for header, body in self._journal.replayed() if self._journal is not None else ():
            self._begin(Submitted(header, header.id, body, 0), 0)
            self._send_at = 0

    def is_oriented(self, now: int) -> bool:
        """Whether so many nodes have told their epoch not long ago that one of them doesn't lie, and it is known
        here."""
        newest = self.epochs.newest
        since = now - newest.settings.epoch_length_ms * 500
        told = [
            each
            for each, (number, _, at) in [*self._told.items()]
            if number <= newest.number and at >= since
        ]
        return len(set(told) & set(newest.lead.members)) > newest.quorum().may_lie

    def _nodes(self) -> dict[str, bytes]:
        """All nodes that may tell something, with their keys."""
        numbers = sorted(self.epochs.known)[-2:]
        return {name: key for each in numbers for name, key in self.epochs.known[each].keys.items()}

    def _wall_ms(self, now: int, own_ms: int) -> int:
        """By the median clock of the nodes; the own one only while too few have told theirs."""
        told = sorted(wall_ms + (now - at) // 1000 for _, wall_ms, at in [*self._told.values()])
        return told[len(told) // 2] if self.is_oriented(now) else own_ms

    def counters(self) -> Mapping[str, int]:
        return self._counters

    def gauges(self) -> Mapping[str, int]:
        return {"open": len(self._open)}

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """Of the journal's store."""
        if self._journal is not None and self._journal.answer(ticket, outcome, now):
            self._send_at = now
        return self.wake(now)

    def close(self, now: int) -> list[Effect]:
        """What was placed goes on without it."""
        self._open.clear()
        self._is_watching, self._read_at = False, None
        return self.wake(now)

    def export(self) -> object:
        """What it waits for, as a plain value."""
        return tuple(sorted(self._open))

    def submit(
        self, body: bytes, *, key: bytes, dedupe: bytes = b"", ttl_ms: int, now: int, wall_ms: int
    ) -> tuple[Submitted, list[Effect]]:
        """Submit a message; it is sent until more than a third of the nodes have told that they keep it."""
        ticket = self.ticket(body, key=key, dedupe=dedupe, ttl_ms=ttl_ms, now=now, wall_ms=wall_ms)
        return ticket, self.enter(ticket, now)

    def ticket(
        self, body: bytes, *, key: bytes, dedupe: bytes, ttl_ms: int, now: int, wall_ms: int
    ) -> Submitted:
        """A message that may be entered. Changes nothing, so any thread may ask for one."""
        header = self._header("work", key, dedupe, self._wall_ms(now, wall_ms) + ttl_ms)
        header = _with_body(header, body)
        return Submitted(header, header.id, body, now)

    def plan_ticket(
        self, body_of: Callable[[MessageHeader], bytes], *, ttl_ms: int, now: int, wall_ms: int
    ) -> Submitted:
        """A plan that may be entered: ``body_of`` signs it for the header that it gets (``epochs.plan_body``).
        Changes nothing."""
        header = self._header("plan", b"", b"", self._wall_ms(now, wall_ms) + ttl_ms)
        body = body_of(header)
        header = _with_body(header, body)
        return Submitted(header, header.id, body, now)

    def submit_plan(
        self, body_of: Callable[[MessageHeader], bytes], *, ttl_ms: int, now: int, wall_ms: int
    ) -> tuple[Submitted, list[Effect]]:
        """Submit such a plan."""
        ticket = self.plan_ticket(body_of, ttl_ms=ttl_ms, now=now, wall_ms=wall_ms)
        return ticket, self.enter(ticket, now)

    def _header(self, kind: str, key: bytes, dedupe: bytes, expires_ms: int) -> MessageHeader:
        nonce = self._rng.getrandbits(128).to_bytes(16, "big")
        place = (self.queue, kind, self.name, nonce, self.epochs.newest.number)
        return MessageHeader(*place, expires_ms, key, dedupe, bytes(DIGEST_BYTES), 0)

    def submit_again(
        self, header: MessageHeader, body: bytes, now: int
    ) -> tuple[Submitted, list[Effect]]:
        """Submit the same message as before, perhaps in another life: it is known by its header."""
        ticket = self.tickets.get(header.id)
        if ticket is None:
            ticket = Submitted(header, header.id, body, now)
            return ticket, self.enter(ticket, now)
        return ticket, self.wake(now)

    def enter(self, ticket: Submitted, now: int) -> list[Effect]:
        """Submit a message that is new."""
        self._begin(ticket, now)
        if self._journal is not None:
            self._journal.submitted(ticket.header, ticket.body)
            return self.wake(now)
        return [*self._sent_again(ticket, now), *self.wake(now)]

    def _begin(self, ticket: Submitted, now: int) -> None:
        self.tickets[ticket.id] = self._open[ticket.id] = ticket
        self._read_at = earlier(self._read_at, max(now, self._last_read + self._resend_us))

    def wake(self, now: int) -> list[Effect]:
        """Send what is due."""
        out: list[Effect] = []
        if self._read_at is not None and self._read_at <= now:
            is_waiting = self._open or self._is_watching or not self.is_oriented(now)
            rests_us = self.epochs.newest.settings.epoch_length_ms * 250
            self._read_at = now + (self._resend_us if is_waiting else rests_us)
            self._last_read = now
            out += [self._read(node) for node in self._nodes()]
        if self._send_at is not None and self._send_at <= now:
            self._send_at = None
            for ticket in self._open.values():
                if self._journal is not None and not self._journal.has(ticket.id):
                    continue  # it is sent when it is stored
                if ticket.next_at <= now:
                    out += self._sent_again(ticket, now)
                self._send_at = earlier(self._send_at, ticket.next_at)
        due = earlier(self._read_at, self._send_at if self._open else None)
        if self._journal is not None:
            out += self._journal.ask(now)
            due = earlier(due, self._journal.again_at)
        if due != self._armed:
            self._armed = due
            out.append(WakeAt(due))
        return out

    def _sent_again(self, ticket: Submitted, now: int) -> list[Effect]:
        """A message on its way to a node that hasn't answered, unless enough of them have."""
        ticket.next_at = now + self._resend_us
        self._send_at = earlier(self._send_at, ticket.next_at)
        owner = self.epochs.newest.owner(ticket.header.point)
        heard = ticket.heard & set(owner.members)
        if 3 * len(heard) > len(owner.members):
            return []
        asked = [each for each in owner.members if each not in heard]
        least = min(ticket.asked.get(each, 0) for each in asked)
        asked = [each for each in asked if ticket.asked.get(each, 0) == least]
        node = asked[below(self._rng, len(asked))]
        ticket.asked[node] = least + 1
        fields = ("submit", self.queue, ticket.header.fields, ticket.body)
        return [Transmit(Addressed(node, encode(fields)))]

    def _read(self, node: str) -> Effect:
        fields = (
            "read",
            self.queue,
            self.name,
            self._read_upto.get(node, 0),
            self.epochs.newest.number,
            int(self.is_detailed),
        )
        return Transmit(Addressed(node, encode(fields)))

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame of a node has come; any bytes may."""
        try:
            if not isinstance(frame, Addressed) or not isinstance(frame.frame, bytes):
                raise Malformed("no frame of a node")
            self._take(decode(frame.frame), now)
        except (Malformed, ConfigurationError):
            self._count("malformed")
        return self.wake(now)

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _take(self, value: Value, now: int) -> None:
        match value:
            case ("answer", str() as queue, str() as node, bytes() as message_id, str() as why):
                ticket = self._open.get(message_id)
                if ticket is not None and queue == self.queue and node in self._nodes():
                    ticket.refusals[node] = why
                    ticket.next_at = min(ticket.next_at, now + self._resend_us // 8)
                    self._send_at = earlier(self._send_at, ticket.next_at)
            case ("epochs", str() as queue, tuple() as items) if queue == self.queue:
                if self.epochs.learn(items):
                    self._give_up()
                    self._read_at = earlier(self._read_at, now)
            case ("now", str() as queue, str() as node, int() as number, int() as wall_ms):
                if queue == self.queue and node in self._nodes():
                    self._told[node] = number, wall_ms, now
            case (
                "receipts",
                str() as queue,
                str() as submitter,
                str() as node,
                tuple() as rows,
                bytes() as signature,
                int() as after,
            ):
                receipts = [Receipt.of(each) for each in rows]
                text = pack_signed(queue, submitter, node, receipts) if receipts else b""
                key = self._nodes().get(node)
                is_heard = submitter == self.name or (self._is_watching and not self.name)
                is_ours = queue == self.queue and is_heard and key is not None
                if not is_ours or not self._keys.verify(key or b"", signature, text):
                    self._count("bad_pack")
                    return
                if self.name:
                    self._note(node, receipts, after, now)
                else:
                    self.news.extend(SignedReceipt(node, each) for each in receipts)
            case _:
                raise Malformed("no frame of a node")

    def _note(self, node: str, receipts: list[Receipt], after: int, now: int) -> None:
        """Take receipts of a node in, each once; what is missing before them is read again soon. ``after``: there
        is nothing between this number and theirs."""
        upto = self._read_upto.get(node, 0)
        if 0 <= after <= upto:
            self._read_upto[node] = max(upto, receipts[-1].number)
            if self._is_watching:
                new = [each for each in receipts if each.number > upto]
                self.news.extend(SignedReceipt(node, each) for each in new)
        elif after > upto:  # what is missing may be on its way
            self._read_at = earlier(self._read_at, now + self._resend_us // 8)
        for receipt in receipts:
            ticket = self.tickets.get(receipt.id)
            if ticket is not None and (node, receipt.number) not in ticket.known:
                ticket.known.add((node, receipt.number))
                ticket.history.append(SignedReceipt(node, receipt))
                self._settle(ticket)

    def _settle(self, ticket: Submitted) -> None:
        """Believe an ending when so many nodes tell the same that one of them doesn't lie."""
        said: dict[tuple[str, int, bytes], set[str]] = {}
        for each in ticket.history:
            receipt = each.receipt
            if receipt.kind in TERMINAL and ticket.outcome is None:
                nodes = said.setdefault((receipt.kind, receipt.epoch, receipt.detail), set())
                nodes.add(each.node)
                if self._is_believed(ticket.header, nodes):
                    ticket.outcome = _outcome(receipt)
                    self._close_ticket(ticket)
        while len(self._settled) > SETTLED_KEPT:
            self.tickets.pop(self._settled.popleft(), None)

    def _close_ticket(self, ticket: Submitted) -> None:
        self._open.pop(ticket.id, None)
        self._settled.append(ticket.id)
        if self._journal is not None:
            self._journal.settled(ticket.id)

    def _give_up(self) -> None:
        """Ask no more for what nodes have forgotten: nothing will be told of it, and it won't be processed."""
        for ticket in list(self._open.values()):
            if ticket.header.epoch + FORGOTTEN_AFTER <= self.epochs.newest.number:
                self._close_ticket(ticket)

    def _is_believed(self, header: MessageHeader, nodes: set[str]) -> bool:
        """Whether more members of a group that serves this key say so than may lie in it."""
        for each in self.epochs.known.values():
            owner = each.owner(header.point)
            if len(nodes & set(owner.members)) > each.quorum(owner.lo).may_lie:
                return True
        return False


class _Journal:
    """What a client stores: messages as they are submitted, and which of them have ended."""

    def __init__(self, stored: StoredLog) -> None:
        self._stored = stored
        self._open: dict[bytes, int] = {}
        """By id: the index of its row."""
        self._kept: list[bytes] = []
        """Rows that are to be stored."""
        self._write: AppendRun | None = None
        self._seq, self._next = 1, stored.end
        self._ticket = 0
        self._asked: int | None = None
        self._trimmed = 0
        self._tries = 0
        self.again_at: int | None = None

    def replayed(self) -> list[tuple[MessageHeader, bytes]]:
        """What former lives had submitted and not seen the end of."""
        found: dict[bytes, tuple[MessageHeader, bytes]] = {}
        begin = self._stored.end - len(self._stored.rows)
        for index, row in enumerate(self._stored.rows, begin):
            match decode(row):
                case ("submitted", tuple() as fields, bytes() as body):
                    header = MessageHeader.of(fields)
                    found[header.id] = header, body
                    self._open[header.id] = index
                case ("settled", bytes() as message_id):
                    found.pop(message_id, None)
                    self._open.pop(message_id, None)
                case _:
                    raise Malformed("a row that no life of this client has written")
        return list(found.values())

    def has(self, message_id: bytes) -> bool:
        """Whether its row is stored."""
        return self._open.get(message_id, self._next) < self._next

    def submitted(self, header: MessageHeader, body: bytes) -> None:
        self._open[header.id] = self._next + self._under_way + len(self._kept)
        self._kept.append(encode(("submitted", header.fields, body)))

    def settled(self, message_id: bytes) -> None:
        if self._open.pop(message_id, None) is not None:
            self._kept.append(encode(("settled", message_id)))

    @property
    def _under_way(self) -> int:
        return len(self._write.payloads) if self._write is not None else 0

    def ask(self, now: int) -> list[Effect]:
        """The next request, unless one is open."""
        if self._asked is not None or (self.again_at is not None and self.again_at > now):
            return []
        self.again_at = None
        log, first = self._stored, min(self._open.values(), default=self._next)
        request: object = self._write
        if request is None and self._kept:
            payloads = tuple(self._kept)
            self._kept = []
            request = self._write = AppendRun(
                log.stream, log.producer, log.epoch, self._seq, payloads
            )
        if request is None and first >= self._trimmed + TRIM_EVERY:
            self._trimmed = first
            request = TrimBefore(log.stream, first)
        if request is None:
            return []
        self._ticket += 1
        self._asked = self._ticket
        return [Call(self._ticket, request)]

    def answer(self, ticket: int, outcome: object, now: int) -> bool:
        """Whether rows were stored."""
        if ticket != self._asked:
            return False
        self._asked = None
        match outcome:
            case Stored() if self._write is not None:
                self._seq += len(self._write.payloads)
                self._next += len(self._write.payloads)
                self._write, self._tries = None, 0
                return True
            case FencedOut() | Gap():
                raise Fenced("the journal of this client was taken over by one that began later")
            case Unavailable():
                self._tries += 1
                self.again_at = now + _AGAIN.calm(self._tries)
            case _:
                pass
        return False


def _with_body(header: MessageHeader, body: bytes) -> MessageHeader:
    return replace(header, body_hash=sha256(body).digest(), size=len(body))


def _outcome(receipt: Receipt) -> Outcome:
    position, detail = 0, b""
    match decode(receipt.detail):
        case (int() as position, bytes() as detail):
            pass
        case _:
            raise Malformed("what an ending tells is its position and its detail")
    value, reason = b"", ""
    if receipt.kind == "finalized":
        value = detail
    elif receipt.kind == "refused":
        reason = detail.decode(errors="replace")
    elif receipt.kind == "duplicate":
        match decode(detail):
            case (bytes(), bytes() as value):
                pass
            case _:
                raise Malformed("a duplicate tells of which message, and its result")
    return Outcome(receipt.kind, receipt.epoch, position, value, reason)
