"""One session of a replicated queue at one node: its messages, its turns, and the receipts that it gives.

A message is a header, which travels in the log, and a body, which travels beside it. The collator of a slot runs
the user's function on waiting messages and proposes a block of verdicts; the others check it and vote
(``chain.py``). What a message has come to is derived from the chain alone, so all nodes tell the same of it.

Whatever a life had known is in the log: a restart delivers its entries again, and knows its votes from its own.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias

from surepipe.core.effects import Addressed, Call, Effect, Notice, NoticeKind, Transmit, WakeAt
from surepipe.core.records import record
from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain import LogMachine, Voice
from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    FINALISE,
    REFUSED,
    SKIP,
    Block,
    JobVerdict,
    VoteChain,
    ordered,
    vote_signed,
)
from surepipe.queues.rmq.encoding import (
    FIRST_POINT,
    LAST_POINT,
    Malformed,
    MemberKeys,
    MessageHeader,
    Value,
    decode,
    encode,
)
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Memory,
    Operation,
    Partition,
    PlanRefused,
    QueueSettings,
    Remembered,
    SealProof,
    next_record,
    plan_operations,
    remembered,
    sealed_digest,
)
from surepipe.queues.rmq.receipts import TERMINAL, Receipt, ReceiptBook, receipt_of_row

MS = 1_000
EARLY_BODIES_MAX, EARLY_BYTES_MAX = 4096, 16 << 20
BODIES_BYTES = 256 << 10
DIFFERS = "result differs"
SUSPECT_EVERY = 32
"""In each so many-th of his turns a suspect gets the full time, so that he can show that he is there."""


# What is asked of the user's function.


@record
class Job:
    """A message that is to be processed, as the user's function gets it."""

    id: bytes
    uid: bytes
    key: bytes
    body: bytes
    submitter: str
    epoch: int
    expires_ms: int


@record
class ProcessJobs:
    """A request: run the user's function on these, with the time of their block. Answered ``Processed``."""

    jobs: tuple[Job, ...]
    time_ms: int


@record
class Done:
    """The message is processed, with this result."""

    result: bytes = b""


@record
class Refuse:
    """Not by this node, for this reason."""

    reason: str


@record
class Later:
    """Not now."""

    after_us: int = 1_000_000


Outcome: TypeAlias = Done | Refuse | Later


@record
class JobOutcomes:
    """An outcome for each job, in their order; what the function raises is ``Later``, and at last ``Refuse``."""

    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class _Message:
    """A message as this node knows it."""

    header: MessageHeader
    id: bytes
    uid: bytes
    body: bytes | None = None
    author: str = ""
    """Who brought its header into the log first."""
    refusals: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])
    """By member: the reason, and the entry that says so."""
    not_before: int = 0
    tries: int = 0
    told: str = ""
    """The kind of the last receipt that depends on the chain."""
    is_terminal: bool = False
    body_due: int = 0
    body_asked: int = 0

    @property
    def job(self) -> Job:
        head = self.header
        assert self.body is not None
        return Job(
            self.id, self.uid, head.key, self.body, head.submitter, head.epoch, head.expires_ms
        )


@dataclass(slots=True)
class _Call:
    """A run of the user's function that is under way."""

    slot: int
    ids: tuple[bytes, ...]
    parent_slot: int
    parent: bytes
    time_ms: int
    block: Block | None = None
    """The block that it is to confirm; None for an own one."""


@record
class Ending:
    """What a message has come to, by the final chain."""

    kind: str
    position: int
    detail: bytes
    epoch: int


@record
class Beginning:
    """What a session begins with: how messages ended before, and when the last of its parents had ended."""

    rows: tuple[Remembered, ...]
    begins_ms: int
    missed: tuple[int, ...] = ()
    """The epochs of parents that this node has no log of."""


class SessionMachine:
    """The queue of one session at one node, around its log."""

    def __init__(  # noqa: PLR0915 - what a session holds, by subject
        self,
        log: LogMachine,
        *,
        queue: str,
        epoch: int,
        voters: Mapping[str, bytes],
        quorum: int,
        keys: MemberKeys,
        settings: QueueSettings | None = None,
        record: EpochRecord | None = None,
        lo: bytes = FIRST_POINT,
        receipts: ReceiptBook | None = None,
    ) -> None:
        """``voters``: names and keys of the current members, in the order in which they take turns. ``record``: of
        the epoch, with the point at which the session's part of the keys begins; a session without one never ends.
        """
        self.log, self.queue, self.epoch, self.name = log, queue, epoch, log.name
        self.settings = settings or QueueSettings()
        self.chain = VoteChain(log.session, voters, quorum, keys)
        self._keys, self._voters = keys, tuple(voters)
        # Where it stands among sessions.
        self.record = record
        whole = Partition(FIRST_POINT, LAST_POINT, self._voters)
        self.partition = record.partition(lo) if record is not None else whole
        self.is_lead = record is not None and lo == FIRST_POINT
        self.next_record: EpochRecord | None = None
        """What is known to come behind this epoch. The lead's session finds it itself."""
        self.is_active = record is None or record.number == 1
        """Whether it is known how its parents ended: before that nobody votes."""
        self.begins_ms = 0
        self.missed: tuple[int, ...] = ()
        """The epochs before this one that this node knows the end of, and not what was decided in them."""
        self.keeps_bodies = False
        """Whether bodies are wanted of messages, too, that others have decided."""
        self._remembered: dict[bytes, Remembered] = {}
        self._remembered_uids: dict[bytes, Remembered] = {}
        self.seal: Block | None = None
        self._sealed_at = 0
        self._handed: Memory | None = None
        self.left: list[bytes] = []
        """Messages that the final seal left undecided, and that nobody has taken from here."""
        self.find_body: Callable[[MessageHeader], bytes | None] = lambda _: None
        """Looks in the sessions before this one."""
        self.messages: dict[bytes, _Message] = {}
        self._by_uid: dict[bytes, set[bytes]] = {}
        self._undecided: dict[bytes, None] = {}
        """In the order of arrival."""
        self._expiring: list[tuple[int, bytes]] = []
        self._bodiless: dict[bytes, dict[bytes, None]] = {}
        """By hash of the body: messages that lack it."""
        self._fresh_bodies: list[bytes] = []
        """Of messages that were taken in here, for the others."""
        self._early_bodies: dict[bytes, bytes] = {}
        """Bodies that came before their headers; the oldest go."""
        self._early_bytes = 0
        self._unsaid: dict[bytes, MessageHeader] = {}
        """Messages that were taken in here, and that the log doesn't have yet."""
        self._placed: set[bytes] = set()
        self._told_before: dict[bytes, str] = {}
        """The last receipt of each message that a former life told of, until its header is read."""
        # What the final chain says.
        self._applied = 0
        self._times: list[int] = []
        self._verdicts: dict[bytes, tuple[int, JobVerdict]] = {}
        self._done: dict[bytes, tuple[int, JobVerdict]] = {}
        """By uid: where it was done first."""
        # Turns.
        self._voted: set[tuple[str, int]] = set()
        self._proposals: dict[int, tuple[bytes, bytes]] = {}
        """Of each slot the first block of its collator, and the entry that holds it."""
        self._declined: dict[int, str] = {}
        self._confirmed: set[bytes] = set()
        """Blocks whose results were computed here, too."""
        self._certificates: set[tuple[str, int, bytes]] = set()
        self._seen: int = 0
        """The highest slot in which a proposal or vote was seen."""
        self._slot_since: tuple[int, int] = (0, 0)
        self._judged_below = 1
        self._suspects: dict[str, int] = {}
        """Who said nothing in his last turn, and in which slot that was."""
        self._silent: list[int] = []
        """The slots behind the last final block in which nobody spoke."""
        self._linger_until: int | None = None
        self._tip_seen: tuple[int, int] = (0, 0)
        self._followed = -1
        self._not_yet: dict[bytes, int] = {}
        """Blocks that the user's function could not judge, and until when it isn't asked again."""
        self._calls: dict[int, _Call] = {}
        self._call_ticket = 0
        # Receipts.
        self.receipts = receipts or ReceiptBook(queue, self.name, keys)
        self._unstored: deque[tuple[int, str, int]] = deque()
        """Receipts that are shown as soon as this row is stored."""
        self._armed: int | None = None
        self._log_due: int | None = None
        self._due: int | None = None
        self._out: list[Effect] = []
        self._counters: dict[str, int] = {}
        self._wall_ms = 0
        self._has_said_again = False
        self._replay()

    # Looking.

    def status(self, message_id: bytes) -> str:
        """What a message has come to: unknown, new, queued, collated, accepted, or how it ended."""
        message = self.messages.get(message_id)
        if message is None:
            return "unknown"
        ending = self.ending(message_id)
        if ending is not None:
            return ending.kind
        return self._standing(message, self._live_ids())

    def _standing(self, message: _Message, live: Mapping[bytes, str]) -> str:
        if message.id in live:
            return live[message.id]
        return "queued" if message.body is not None else "new"

    def _live_ids(self) -> dict[bytes, str]:
        """Messages that a live block says are done, and whether one of them is approved."""
        found: dict[bytes, str] = {}
        for key, block in self.chain.live():
            is_certified = self.chain.certified.get(block.slot) == key
            for verdict in block.verdicts:
                if verdict.kind == DONE and (is_certified or verdict.id not in found):
                    found[verdict.id] = "accepted" if is_certified else "collated"
        return found

    def ending(self, message_id: bytes) -> Ending | None:
        """How a message ended, by the first final block that says so; None while it is undecided."""
        message = self.messages[message_id]
        row = self._remembered.get(message_id)
        if row is not None:
            return Ending(row.kind, row.position, row.detail, row.decided)
        row = self._remembered_uids.get(message.uid)
        if row is not None:
            detail = encode((row.id, row.detail))
            return Ending("duplicate", row.position, detail, row.decided)
        epoch = self.epoch
        found: list[tuple[int, int, Ending]] = []
        if message_id in self._verdicts:
            position, verdict = self._verdicts[message_id]
            if verdict.kind == DONE:
                found.append((position, 0, Ending("finalized", position, verdict.result, epoch)))
            else:
                reason = verdict.reason.encode()
                found.append((position, 0, Ending("refused", position, reason, epoch)))
        if message.uid in self._done:
            position, verdict = self._done[message.uid]
            if verdict.id != message_id:
                detail = encode((verdict.id, verdict.result))
                found.append((position, 1, Ending("duplicate", position, detail, epoch)))
        late = bisect_right(self._times, message.header.expires_ms)
        if late < len(self._times):
            found.append((late + 1, 2, Ending("expired", late + 1, b"", epoch)))
        if self.seal is not None and message.header.epoch < epoch:
            found.append((self._sealed_at, 2, Ending("expired", self._sealed_at, b"", epoch)))
        return min(found, key=lambda each: each[:2])[2] if found else None

    def counters(self) -> Mapping[str, int]:
        return {**self.log.counters(), **self._counters}

    def gauges(self) -> Mapping[str, int]:
        tip = self.chain.tip()
        return {
            **self.log.gauges(),
            "undecided": len(self._undecided),
            "slot": self.chain.slot,
            "behind_slot": self.chain.slot - (tip.slot if tip else 0),
            "position": len(self.chain.final),
        }

    # Inputs.

    def wake(self, now: int, wall_ms: int) -> list[Effect]:
        """The deadline has passed, or the machine was just built."""
        self._wall_ms = wall_ms
        self._take(self.log.wake(now))
        return self._finish(now)

    def answer(self, ticket: int, outcome: object, now: int, wall_ms: int) -> list[Effect]:
        """The store, the guard or the user's function has answered."""
        self._wall_ms = wall_ms
        if ticket >= 0:
            self._take(self.log.answer(ticket, outcome, now))
        else:
            call = self._calls.pop(ticket, None)
            if call is not None and isinstance(outcome, JobOutcomes):
                self._processed(call, outcome.outcomes, now)
        return self._finish(now)

    def connected(self, peer: str, now: int, wall_ms: int) -> list[Effect]:
        """A member can be reached again."""
        self._wall_ms = wall_ms
        self._take(self.log.connected(peer, now))
        return self._finish(now)

    def frame(self, frame: object, now: int, wall_ms: int) -> list[Effect]:
        """A frame of a member or of a client has come; any bytes may."""
        self._wall_ms = wall_ms
        if not isinstance(frame, Addressed) or not isinstance(frame.frame, bytes):
            self._count("malformed")
            return self._finish(now)
        try:
            return self.decoded(frame.route, decode(frame.frame), now, wall_ms)
        except Malformed:
            self._count("malformed")
        return self._finish(now)

    def decoded(
        self, route: str, value: Value, now: int, wall_ms: int, *, is_followed: bool = False
    ) -> list[Effect]:
        """A frame that was read already. ``is_followed``: others have come, and then it is woken."""
        self._wall_ms = wall_ms
        try:
            if not self._take_frame(route, value, now):
                self._take(self.log.decoded(route, value, now))
        except Malformed:
            self._count("malformed")
        return [] if is_followed else self._finish(now)

    def _take_frame(self, route: str, value: Value, now: int) -> bool:
        """False for a frame of the log."""
        match value:
            case ("submit", str() as queue, tuple() as fields, bytes() as body):
                self._submit(route, queue, fields, body, now)
            case ("read", str() as queue, str() as submitter, int() as after, *_):
                if queue == self.queue:
                    self.receipts.read(submitter, route, after, now)
                    self._send(route, "now", queue, self.name, self.epoch, self._wall_ms)
            case ("bodies", bytes() as session, tuple() as bodies) if session == self.log.session:
                for each in bodies:
                    if isinstance(each, bytes):
                        self._take_body(each, now)
            case ("pull-bodies", bytes() as session, tuple() as ids) if session == self.log.session:
                wanted = [self.messages.get(each) for each in ids[:16] if isinstance(each, bytes)]
                for each in wanted:
                    if each is not None and each.body is not None:
                        self._send(route, "bodies", session, (each.body,))
            case _:
                return False
        return True

    def _send(self, route: str, *fields: Value) -> None:
        self._out.append(Transmit(Addressed(route, encode(fields))))

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _take(self, effects: Sequence[Effect]) -> None:
        """Effects of the log go on as they are, but for its deadline, which is one of two."""
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._log_due = effect.deadline
            else:
                self._out.append(effect)

    def _finish(self, now: int) -> list[Effect]:
        for entry in self.log.take_delivered():
            self._read(entry, now)
        self._due = None
        if self.is_active:
            self._apply(now)
        if self.log.voice is Voice.SPEAKING and not self.chain.is_broken:
            if not self._has_said_again:
                self._say_again(now)
            if self.is_active and self.name in self._voters:
                self._act(now)
        self._send_bodies()
        self._ask_for_bodies(now)
        self._tell(now)
        self._take(self.log.wake(now))  # what was said above may be made an entry now
        for entry in self.log.take_delivered():
            self._read(entry, now)
        due = earlier(self._log_due, self._due)
        if due != self._armed:
            self._armed = due
            self._out.append(WakeAt(due))
        out, self._out = self._out, []
        return out

    def _replay(self) -> None:
        """What former lives had kept: bodies and receipts; and the entries of the log, votes among them."""
        rows: list[Remembered] = []
        for row in self.log.upper_rows:
            match row:
                case ("taken", fields, bytes() as body):
                    header = MessageHeader.of(fields)
                    self._unsaid[header.id] = header
                    self._early_bodies[header.body_hash] = body
                case ("body", bytes() as body):
                    self._early_bodies[sha256(body).digest()] = body
                case ("remembered", bytes() as chunk):
                    rows += remembered(chunk)
                case ("begins", int() as begins_ms, tuple() as missed):
                    epochs = tuple(each for each in missed if isinstance(each, int))
                    self._begin(Beginning(tuple(rows), begins_ms, epochs))
                case ("receipt", *_):
                    submitter, receipt = receipt_of_row(row)
                    self.receipts.add(self.log.session, submitter, receipt, is_stored=True)
                    if receipt.kind == "placed":
                        self._placed.add(receipt.id)
                    elif receipt.kind != "refusal":
                        self._told_before[receipt.id] = receipt.kind
                case _:
                    raise Malformed("a row that no life of this queue has kept")
        self.log.upper_rows.clear()
        for header in self._unsaid.values():
            self._add_header(header, self.name, 0)
        for entry in self.log.take_delivered():
            self._read(entry, 0)
        self._early_bodies.clear()
        self._early_bytes = 0

    def _say_again(self, now: int) -> None:
        """Put into the log what a former life took in, and had no time to say."""
        for header in self._unsaid.values():
            self.log.append(("external", header.fields), now)
        self._has_said_again = True

    # Reading the log.

    def _read(self, entry: LogEntry, now: int) -> None:
        """Take the statements of a delivered entry into what is known."""
        is_voter = entry.author in self._voters
        for item in entry.items:
            try:
                may_say = is_voter or item[0] in ("handed_over", "certificate", "fork")
                if not may_say or not self._read_item(entry, item, now):
                    self._count("unknown_record")
            except Malformed:
                self._count("malformed_record")

    def _read_item(self, entry: LogEntry, item: tuple[Value, ...], now: int) -> bool:  # noqa: PLR0912 - one case a kind
        match item:
            case ("external", fields):
                header = MessageHeader.of(fields)
                self._unsaid.pop(header.id, None)
                self._add_header(header, entry.author, now)
            case ("handed_over", fields, bytes()):
                header = MessageHeader.of(fields)
                if header.epoch == self.epoch - 1:
                    self._add_header(header, entry.author, now)
            case ("refusal", bytes() as message_id, int(), str() as reason):
                message = self.messages.get(message_id)
                if message is not None and message.refusals.get(entry.author, ("", b""))[1] == b"":
                    message.refusals[entry.author] = reason, entry.digest
            case ("candidate", fields):
                self._add_candidate(Block.of(fields), entry)
            case ("vote", str() as kind, int() as slot, bytes() as block, bytes() as signature):
                if self.chain.add_vote(kind, slot, block, entry.author, signature):
                    self._seen = max(self._seen, slot)
                    if entry.author == self.name:
                        self._voted.add((kind, slot))
                else:
                    self._count("bad_vote")
            case ("certificate", str() as kind, int() as slot, bytes() as block, tuple() as votes):
                for vote in votes:
                    match vote:
                        case (str() as name, bytes() as signature):
                            self.chain.add_vote(kind, slot, block, name, signature)
                        case _:
                            raise Malformed("a certificate is names and signatures")
                if self.chain.certificate(kind, slot, block):
                    self._certificates.add((kind, slot, block))
            case ("fork", *_):
                pass
            case _:
                return False
        return True

    def _add_candidate(self, block: Block, entry: LogEntry) -> None:
        self.chain.add_block(block)
        if block.collator == entry.author == self.chain.collator(block.slot):
            self._proposals.setdefault(block.slot, (block.digest, entry.digest))
            self._seen = max(self._seen, block.slot)

    def _add_header(self, header: MessageHeader, author: str, now: int) -> None:
        if header.queue != self.queue or header.epoch not in (self.epoch, self.epoch - 1):
            self._count("foreign_header")
            return
        if not self.partition.holds(header.point):
            self._count("foreign_header")
            return
        if header.id in self.messages:
            return
        message = _Message(header, header.id, header.uid, author=author)
        message.told = self._told_before.pop(header.id, "")
        message.body_due = now
        self.messages[message.id] = message
        self._by_uid.setdefault(message.uid, set()).add(message.id)
        self._undecided[message.id] = None
        heapq.heappush(self._expiring, (header.expires_ms, message.id))
        self._bodiless.setdefault(header.body_hash, {})[message.id] = None
        body = self._early_bodies.get(header.body_hash) or self.find_body(header)
        if body is not None:
            self._take_body(body, now)
        if self.is_active:
            self._settle(message, now)
        if self.seal is not None and not message.is_terminal:
            self.left.append(message.id)

    # Bodies.

    def _take_body(self, body: bytes, now: int, *, is_kept: bool = False) -> None:
        """Take a body in that a header here speaks of; hold one whose header is on its way, for a while."""
        body_hash = sha256(body).digest()
        wanting = [
            self.messages[each]
            for each in self._bodiless.pop(body_hash, ())
            if self.messages[each].header.size == len(body)
        ]
        for message in wanting:
            message.body = body
        if wanting:
            self._early_bytes -= len(self._early_bodies.pop(body_hash, b""))
            if not is_kept and self._wall_ms:  # not in a replay
                self.log.keep(("body", body), now)
        elif len(body) <= self.settings.message_bytes_max:
            early = self._early_bodies
            self._early_bytes += 0 if body_hash in early else len(body)
            early[body_hash] = body
            while len(early) > EARLY_BODIES_MAX or self._early_bytes > EARLY_BYTES_MAX:
                self._early_bytes -= len(early.pop(next(iter(early))))

    def _send_bodies(self) -> None:
        """Give the others what was taken in here in this step."""
        fresh, self._fresh_bodies = self._fresh_bodies, []
        while fresh:
            size = many = 0
            while many < len(fresh) and (not many or size + len(fresh[many]) <= BODIES_BYTES):
                size += len(fresh[many])
                many += 1
            for peer in self._voters:
                if peer != self.name:
                    self._send(peer, "bodies", self.log.session, tuple(fresh[:many]))
            del fresh[:many]

    def _ask_for_bodies(self, now: int) -> None:
        """Ask for bodies of messages that wait: first who brought the header, then the others in turn."""
        asked: dict[str, list[bytes]] = {}
        for message_id in [each for ids in self._bodiless.values() for each in ids]:
            message = self.messages[message_id]
            is_wanted = message.header.kind == "plan" or (
                self.keeps_bodies and message_id in self._verdicts
            )
            if message.is_terminal and not is_wanted:
                continue
            if message.body_due <= now:
                peers = [message.author, *(each for each in self._voters if each != message.author)]
                peers = [each for each in peers if each != self.name]
                if not peers:
                    continue
                if message.body_asked:  # the first time its body may be on its way
                    peer = peers[(message.body_asked - 1) % len(peers)]
                    asked.setdefault(peer, []).append(message_id)
                message.body_asked += 1
                first = message.body_asked == 1
                message.body_due = now + (50 * MS if first else self.settings.body_timeout_us)
            self._due = earlier(self._due, message.body_due)
        for peer, ids in asked.items():
            for at in range(0, len(ids), 16):
                self._send(peer, "pull-bodies", self.log.session, tuple(ids[at : at + 16]))

    # Submitting.

    def _submit(
        self, route: str, queue: str, head: tuple[Value, ...], body: bytes, now: int
    ) -> None:
        """Take a message in, and answer when it is stored; or refuse it, which leaves no trace."""
        header = MessageHeader.of(head)
        message_id, submitter = header.id, header.submitter
        why = self._why_not(header, queue, body)
        self.receipts.meet(submitter, route, now)
        if not why and message_id in self._placed:
            self._out += self.receipts.repeat(message_id, submitter, route)
            return
        if not why and message_id not in self.messages:
            if self.log.append(("external", header.fields), now):
                self._add_header(header, self.name, now)
            else:
                why = "overloaded"
        if why:
            self._count(f"refused_{why}")
            self._send(route, "answer", self.queue, self.name, message_id, why)
            return
        row = self.log.keep(("taken", header.fields, body), now)
        self._take_body(body, now, is_kept=True)
        self._fresh_bodies.append(body)
        self._placed.add(message_id)
        self._issue(self.messages[message_id], "placed", b"", now, row=row)

    def _why_not(self, header: MessageHeader, queue: str, body: bytes) -> str:
        settings = self.settings
        if len(body) != header.size or sha256(body).digest() != header.body_hash:
            return "malformed"
        is_here = self.partition.holds(header.point)
        if queue != self.queue or header.queue != queue or self.name not in self._voters:
            return "moved"
        if self.seal is not None or not is_here:
            return "moved"
        if self.log.voice is not Voice.SPEAKING:
            return "unavailable"
        if header.id in self.messages:
            return ""
        checks = (
            ("ahead", header.epoch > self.epoch),
            ("too-old", header.epoch < self.epoch - 1 or header.expires_ms < self._wall_ms),
            (
                "ttl",
                header.expires_ms - self._wall_ms > settings.ttl_max_ms + settings.clock_skew_ms,
            ),
            ("too-large", len(body) > settings.message_bytes_max),
            ("overloaded", len(self._undecided) >= settings.pending_max),
        )
        return next((reason for reason, fails in checks if fails), "")

    # Receipts.

    def _issue(
        self, message: _Message, kind: str, detail: bytes, now: int, *, row: int = 0
    ) -> None:
        """Give a receipt. It is stored before it is shown, so its number is never given again."""
        if self.name not in self._voters:
            return
        submitter = message.header.submitter
        number = self.receipts.next_number(submitter, self._wall_ms)
        block, slot, epoch = b"", 0, self.epoch
        if kind in TERMINAL:
            ending = self.ending(message.id)
            assert ending is not None
            epoch = ending.epoch
            if epoch == self.epoch:
                block = self.chain.final[ending.position - 1]
                slot = self.chain.blocks[block].slot
        receipt = Receipt(number, message.id, kind, epoch, slot, block, detail, self._wall_ms)
        self.receipts.add(self.log.session, submitter, receipt, is_stored=False)
        kept = self.log.keep(("receipt", submitter, receipt.fields), now)
        self._unstored.append((max(row, kept), submitter, number))

    def _tell(self, now: int) -> None:
        """Send receipts that are stored to those who read."""
        while self._unstored and self._unstored[0][0] <= self.log.is_kept:
            _, submitter, number = self._unstored.popleft()
            self.receipts.stored(submitter, number)
        self._out += self.receipts.tell(now)

    # What the chain says.

    def _apply(self, now: int) -> None:
        """Take in blocks that have become final, and tell what they mean for messages."""
        chain = self.chain
        while self._applied < len(chain.final):
            block = chain.blocks[chain.final[self._applied]]
            if any(each.id not in self.messages for each in block.verdicts):
                break  # a header that its collator had: the log brings it
            self._applied += 1
            self._times.append(block.time_ms)
            touched: set[bytes] = set()
            for verdict in block.verdicts:
                self._verdicts.setdefault(verdict.id, (self._applied, verdict))
                uid = self.messages[verdict.id].uid
                touched.add(verdict.id)
                if verdict.kind == DONE:
                    self._done.setdefault(uid, (self._applied, verdict))
                    touched |= self._by_uid[uid]
            while self._expiring and self._expiring[0][0] < block.time_ms:
                touched.add(heapq.heappop(self._expiring)[1])
            if block.record and self.seal is None:
                self.seal, self._sealed_at = block, self._applied
                old = [
                    each
                    for each in self._undecided
                    if self.messages[each].header.epoch < self.epoch
                ]
                touched.update(old)
            for message_id in sorted(touched):
                self._settle(self.messages[message_id], now)
            if block is self.seal:
                self.left += self._undecided
                self._out.append(
                    Notice(
                        NoticeKind.SEALED,
                        self.epoch,
                        (),
                        f"position {self._applied}, {len(self._undecided)} messages go on",
                    )
                )
        self._follow_live(now)

    def _settle(self, message: _Message, now: int) -> None:
        """Tell how a message ended, once it has."""
        if message.is_terminal:
            return
        ending = self.ending(message.id)
        if ending is None:
            return
        message.is_terminal = True
        self._undecided.pop(message.id, None)
        if message.told != ending.kind:
            message.told = ending.kind
            self._issue(message, ending.kind, encode((ending.position, ending.detail)), now)

    def _follow_live(self, now: int) -> None:
        """Tell what undecided messages have come to, up or down."""
        if self._followed == self.chain.version:
            return
        self._followed = self.chain.version
        live = self._live_ids()
        for message_id in [*live, *(each for each in self._undecided if self.messages[each].told)]:
            message = self.messages.get(message_id)
            if message is None or message.is_terminal or message_id not in self._undecided:
                continue
            standing = live.get(message_id, "")
            before = message.told if message.told in ("collated", "accepted") else ""
            if standing == before:
                continue
            message.told = standing
            if not self.receipts.has_readers_of_steps(message.header.submitter, now):
                continue
            if standing == "accepted" or (standing == "collated" and not before):
                self._issue(message, standing, b"", now)
            elif not standing:
                self._issue(message, "returned", b"", now)

    # Turns.

    def _act(self, now: int) -> None:
        """Vote and propose, as far as this slot allows it."""
        chain = self.chain
        self._spread_certificates(now)
        for slot in range(self._finalised_below, chain.slot):
            if slot in chain.certified:
                self._vote(FINALISE, slot, chain.certified[slot], now)
        if self.seal is not None:
            return
        slot = chain.slot
        self._look_who_is_silent(slot)
        if self._slot_since[0] != slot:
            self._slot_since = (slot, now) if self._has_cause(now) else (0, 0)
        if self._slot_since[0] == 0 and not self._has_cause(now):
            return
        if self._slot_since[0] != slot:
            self._slot_since = (slot, now)
        if chain.collator(slot) == self.name:
            self._propose(slot, now)
        if slot in self._proposals:
            self._judge(slot, now)
        timer = self._slot_since[1] + self._timeout(slot)
        if now >= timer or (SKIP, slot) in self._voted or self._is_hopeless(slot):
            self._vote(SKIP, slot, b"", now)
        else:
            self._due = earlier(self._due, timer)

    @property
    def _finalised_below(self) -> int:
        tip = self.chain.tip()
        return tip.slot + 1 if tip is not None else 1

    def _look_who_is_silent(self, slot: int) -> None:
        """Suspect whose turn passed without a word of his: the next ones aren't waited for as long."""
        for past in range(self._judged_below, slot):
            collator = self.chain.collator(past)
            has_spoken = past in self._proposals or past in self.chain.certified
            has_skipped = collator in self.chain.votes.get((SKIP, past, b""), {})
            self._suspects.pop(collator, None)
            if not has_spoken and not has_skipped and collator != self.name:
                self._suspects[collator] = past
                self._silent.append(past)
        self._judged_below = max(self._judged_below, slot)
        while len(self._suspects) > len(self._voters) - self.chain.quorum:
            del self._suspects[min(self._suspects, key=lambda name: self._suspects[name])]

    def _timeout(self, slot: int) -> int:
        turn = slot // len(self._voters)
        if self.chain.collator(slot) in self._suspects and turn % SUSPECT_EVERY:
            return min(self.settings.suspect_timeout_us, self.settings.slot_timeout_us)
        self._silent = [each for each in self._silent if each >= self._finalised_below]
        doublings = max(0, len(self._silent) - 1)
        return min(
            self.settings.slot_timeout_us << min(doublings, 20), self.settings.slot_timeout_max_us
        )

    def _is_hopeless(self, slot: int) -> bool:
        collator = self.chain.collator(slot)
        has_skipped = collator in self.chain.votes.get((SKIP, slot, b""), {})
        return has_skipped or collator in self.log.blamed or slot in self._declined

    def _has_cause(self, now: int) -> bool:  # noqa: PLR0911 - one return a cause
        """Whether there is anything to do in this slot."""
        if self._is_unfinished(now) or self._seen >= self.chain.slot:
            return True
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        if self._has_seal(path or ()):
            return False
        if path is not None and self._is_unopened(path):
            return True
        if self.record is not None:
            due = self._seal_due(path or ())
            if due is not None and due <= self._wall_ms:
                return True
            if due is not None:
                self._due = earlier(self._due, now + (due - self._wall_ms) * MS)
        on_branch = self._on_branch()
        for message_id in self._undecided:
            message = self.messages[message_id]
            if message_id in on_branch:
                continue
            if message.header.expires_ms < self._wall_ms or self._all_refuse(message):
                return True
            if message.body is not None and not self._is_put_off(message, now):
                return True
            if message.not_before > now:
                self._due = earlier(self._due, message.not_before)
            wait_ms = message.header.expires_ms - self._wall_ms + 1
            self._due = earlier(self._due, now + wait_ms * MS)
        return False

    def _on_branch(self) -> set[bytes]:
        """Messages with a verdict on the branch that the next block is built on."""
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        return self._decided_on(path or ())[0]

    def _is_unfinished(self, now: int) -> bool:
        """Whether an approved block waits for its end for so long that another one should be put behind it."""
        highest = max(self.chain.certified, default=0)
        if highest < self._finalised_below:
            return False
        if self._tip_seen[0] != highest:
            self._tip_seen = (highest, now)
        due = self._tip_seen[1] + self.settings.slot_timeout_us
        if now < due:
            self._due = earlier(self._due, due)
        return now >= due

    def _all_refuse(self, message: _Message) -> bool:
        return all(each in message.refusals for each in self._voters)

    def _is_put_off(self, message: _Message, now: int) -> bool:
        return self.name in message.refusals or message.not_before > now

    def _vote(self, kind: str, slot: int, block: bytes, now: int, *relies_on: bytes) -> None:
        """Vote, unless this was done, or what excludes it. Votes are in the log, so no life takes one back."""
        excluded = {APPROVE: (SKIP,), SKIP: (FINALISE,), FINALISE: (SKIP,)}[kind]
        if (kind, slot) in self._voted or any((each, slot) in self._voted for each in excluded):
            return
        signature = self._keys.sign(vote_signed(self.log.session, kind, slot, block))
        item = ("vote", kind, slot, block, signature)
        if self.log.append(item, now, is_urgent=True, relies_on=relies_on):
            self._voted.add((kind, slot))

    def _spread_certificates(self, now: int) -> None:
        """Say what convinced this node, unless somebody has: a liar may have given his vote to this one only."""
        below = self._finalised_below - 1
        news, self.chain.decided = self.chain.decided, []
        for key in news:
            kind, slot, block = key
            if key in self._certificates or slot < below:
                continue
            votes = self.chain.certificate(kind, slot, block)
            if self.log.append(
                ("certificate", kind, slot, block, votes), now, is_urgent=kind != FINALISE
            ):
                self._certificates.add(key)
            else:
                self.chain.decided.append(key)

    # Proposing.

    def _propose(self, slot: int, now: int) -> None:
        if (
            slot in self._proposals
            or (SKIP, slot) in self._voted
            or ("propose", slot) in self._voted
            or any(call.block is None and call.slot == slot for call in self._calls.values())
        ):
            return
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        if parent is None or path is None:
            return
        parent_slot, parent_digest = parent
        time_ms = max(self._time_of(parent_slot, parent_digest), self._wall_ms)
        is_ending = self._has_seal(path)
        due = None if is_ending else self._seal_due(path)
        if due is not None and due <= time_ms:
            call = _Call(slot, (), parent_slot, parent_digest, time_ms)
            sealed = self._sealed_by(path, time_ms)
            if sealed is not None:
                self._put_forward(call, [], now, sealed=sealed)
            return
        picked = [] if is_ending else self._pick(path, time_ms, now)
        if picked and len(picked) < self.settings.batch_max:
            if self._linger_until is None:
                self._linger_until = now + self.settings.linger_us
            if now < self._linger_until:
                self._due = earlier(self._due, self._linger_until)
                return
        self._linger_until = None
        call = _Call(slot, tuple(each.id for each in picked), parent_slot, parent_digest, time_ms)
        if picked and picked[0].header.kind == "plan":
            self._processed(call, [self._plan_outcome(picked[0], path)], now)
        elif picked:
            self._call(call, picked)
        elif self._has_empty(path, is_ending, now):
            self._put_forward(call, [], now)
        else:
            self._vote(SKIP, slot, b"", now)

    def _has_empty(self, path: Sequence[bytes], is_ending: bool, now: int) -> bool:
        """Whether a block without results moves something."""
        if is_ending:
            return self._is_unfinished(now)
        return self._is_unopened(path) or bool(self._refusable(path)) or self._wants_empty(now)

    def _is_unopened(self, path: Sequence[bytes]) -> bool:
        """Whether the lead's epoch waits for its first block. The foundation's waits for a message."""
        has_begun = bool(path or self.chain.final)
        return self.is_lead and self.epoch > 1 and not has_begun

    def _call(self, call: _Call, messages: Sequence[_Message]) -> None:
        self._call_ticket -= 1
        self._calls[self._call_ticket] = call
        jobs = tuple(each.job for each in messages)
        self._out.append(Call(self._call_ticket, ProcessJobs(jobs, call.time_ms)))

    def _decided_on(self, path: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Ids that have a verdict on a branch behind the final chain, and uids that are done there."""
        decided: set[bytes] = set()
        uids: set[bytes] = set()
        for key in path:
            for verdict in self.chain.blocks[key].verdicts:
                decided.add(verdict.id)
                message = self.messages.get(verdict.id)
                if verdict.kind == DONE and message is not None:
                    uids.add(message.uid)
        return decided, uids

    def _pick(self, path: Sequence[bytes], time_ms: int, now: int) -> list[_Message]:
        """The oldest messages that a block of this time behind this branch may say are done."""
        ids, uids = self._decided_on(path)
        picked: list[_Message] = []
        for message_id in self._undecided:
            message = self.messages[message_id]
            self._give_up_on_irreproducible(message, now)
            if (
                message.body is None
                or message.header.expires_ms < time_ms
                or message_id in ids
                or message.uid in uids
                or self._is_put_off(message, now)
                or message_id != self._smallest(message.uid)
            ):
                continue
            if message.header.kind == "plan":  # alone in its block
                return picked or [message]
            picked.append(message)
            if len(picked) == self.settings.batch_max:
                break
        return picked

    def _give_up_on_irreproducible(self, message: _Message, now: int) -> None:
        """Refuse, too, what so many have found another result for that not all of them lie: it is decided then."""
        if message.refusals and self.name not in message.refusals:
            differing = [each for each, _ in message.refusals.values() if each.startswith(DIFFERS)]
            if len(differing) > len(self._voters) - self.chain.quorum:
                self._refuse(message, self.chain.slot, f"{DIFFERS} at {len(differing)} nodes", now)

    def _smallest(self, uid: bytes) -> bytes:
        """Of messages that are the same work the one that is processed: the smallest id that is undecided."""
        return min(
            each
            for each in self._by_uid[uid]
            if each in self._undecided and not self._all_refuse(self.messages[each])
        )

    def _refusable(self, path: Sequence[bytes]) -> list[_Message]:
        ids, _ = self._decided_on(path)
        return [
            self.messages[each]
            for each in self._undecided
            if each not in ids and self._all_refuse(self.messages[each])
        ]

    def _wants_empty(self, now: int) -> bool:
        """Whether a block without verdicts moves something: it expires messages, or finishes its parent."""
        on_branch = self._on_branch()
        return self._is_unfinished(now) or any(
            self.messages[each].header.expires_ms < self._wall_ms
            for each in self._undecided
            if each not in on_branch
        )

    def _processed(self, call: _Call, outcomes: Sequence[Outcome], now: int) -> None:
        """The user's function has said what becomes of messages."""
        if call.block is not None:
            self._compared(call, call.block, outcomes, now)
            return
        verdicts: list[JobVerdict] = []
        for message_id, outcome in zip(call.ids, outcomes, strict=True):
            message = self.messages[message_id]
            match outcome:
                case Done(result) if len(result) <= self.settings.result_bytes_max:
                    verdicts.append(JobVerdict(message_id, DONE, result, ""))
                case Done():
                    self._refuse(message, call.slot, "its result is too large", now)
                case Refuse(reason):
                    self._refuse(message, call.slot, reason, now)
                case Later(after_us):
                    message.not_before = now + max(after_us, MS)
        if call.slot != self.chain.slot or (SKIP, call.slot) in self._voted:
            self._count("late_outcome")
            return
        path = self.chain.path(call.parent)
        is_ending = path is not None and self._has_seal(path)
        if path is not None and (
            (verdicts and not is_ending) or self._has_empty(path, is_ending, now)
        ):
            self._put_forward(call, verdicts, now)
        else:
            self._vote(SKIP, call.slot, b"", now)

    def _refuse(self, message: _Message, slot: int, reason: str, now: int) -> None:
        if self.name in message.refusals:
            return
        reason = reason[: self.settings.result_bytes_max // 4]
        if self.log.append(("refusal", message.id, slot, reason), now):
            message.refusals[self.name] = reason, b""
            self._issue(message, "refusal", reason.encode(), now)

    def _put_forward(
        self, call: _Call, verdicts: Sequence[JobVerdict], now: int, *, sealed: bytes = b""
    ) -> None:
        """Propose a block, and approve it."""
        path = self.chain.path(call.parent) or ()
        relies_on: list[bytes] = []
        listed = {each.id: each for each in verdicts}
        for message in () if sealed or self._has_seal(path) else self._refusable(path):
            entries = [message.refusals[each][1] for each in self._voters]
            if b"" in entries or len(listed) >= self.settings.batch_max:
                continue  # the own refusal is not in the log yet
            reasons = "; ".join(f"{name}: {message.refusals[name][0]}" for name in self._voters)
            listed[message.id] = JobVerdict(message.id, REFUSED, b"", reasons)
            relies_on += entries
        in_order = tuple(listed[each] for each in ordered(call.parent, listed))
        block = Block(
            self.log.session,
            call.slot,
            call.parent_slot,
            call.parent,
            self.name,
            call.time_ms,
            in_order,
            sealed,
        )
        item = ("candidate", block.fields)
        if self.log.append(item, now, is_urgent=True, relies_on=relies_on):
            self._voted.add(("propose", call.slot))
            self._confirmed.add(block.digest)
            self._vote(APPROVE, call.slot, block.digest, now)

    # Judging what others propose.

    def _judge(self, slot: int, now: int) -> None:
        """Approve the first proposal of the slot's collator, if it passes; skip when it can't."""
        key, entry_digest = self._proposals[slot]
        if (APPROVE, slot) in self._voted or (SKIP, slot) in self._voted:
            return
        block = self.chain.blocks[key]
        why = self._why_declined(block, entry_digest)
        if why is None:
            return  # something is missing: the timer decides
        if why:
            self._declined[slot] = why
            self._count(f"declined_{why}")
            self._out.append(
                Notice(
                    NoticeKind.DECLINED,
                    self.epoch,
                    (),
                    f"block of {block.collator} in slot {slot}: {why}",
                )
            )
            return
        results = [each for each in block.verdicts if each.kind == DONE]
        plans = [each for each in results if self.messages[each.id].header.kind == "plan"]
        if plans and key not in self._confirmed:
            path = self.chain.path(block.parent)
            assert path is not None  # it was looked at above
            self._compared(
                _Call(slot, (plans[0].id,), block.parent_slot, block.parent, block.time_ms, block),
                block,
                [self._plan_outcome(self.messages[plans[0].id], path)],
                now,
            )
            if slot in self._declined:
                return
        if results and not self.settings.is_trusting and key not in self._confirmed:
            again_at = self._not_yet.get(key, now)
            if again_at > now:
                self._due = earlier(self._due, again_at)
            elif not any(call.block == block for call in self._calls.values()):
                ids = tuple(each.id for each in results)
                call = _Call(slot, ids, block.parent_slot, block.parent, block.time_ms, block)
                self._call(call, [self.messages[each] for each in ids])
            return
        self._vote(APPROVE, slot, key, now, entry_digest)

    def _compared(self, call: _Call, block: Block, outcomes: Sequence[Outcome], now: int) -> None:
        results = {each.id: each.result for each in block.verdicts}
        for message_id, outcome in zip(call.ids, outcomes, strict=True):
            if isinstance(outcome, Later):  # it may know later: no vote so far
                self._not_yet[block.digest] = now + max(outcome.after_us, MS)
                return
            if outcome != Done(results[message_id]):
                here = outcome.reason if isinstance(outcome, Refuse) else outcome.result.hex()[:16]
                there = results[message_id].hex()[:16]
                reason = (
                    here
                    if isinstance(outcome, Refuse)
                    else f"{DIFFERS}: {here} here, {there} there"
                )
                self._refuse(self.messages[message_id], block.slot, reason, now)
                self._declined.setdefault(block.slot, "invalid-result")
                self._count("declined_invalid-result")
        if block.slot not in self._declined:
            self._confirmed.add(block.digest)

    def _why_declined(self, block: Block, entry_digest: bytes) -> str | None:  # noqa: PLR0911, PLR0912 - checks in order
        """The first check that a proposal fails; None while something is missing, empty when it passes."""
        settings = self.settings
        if block.collator in self.log.blamed:
            return "not-collator"
        if not self.chain.is_founded(block):
            return None
        before = self._time_of(block.parent_slot, block.parent)
        if not before <= block.time_ms <= max(before, self._wall_ms + settings.clock_skew_ms):
            return "time"
        ids = [each.id for each in block.verdicts]
        if len(ids) > settings.batch_max or ids != ordered(block.parent, set(ids)):
            return "shape"
        messages = [self.messages.get(each) for each in ids]
        path = self.chain.path(block.parent)
        if path is None or None in messages or self._applied < len(self.chain.final):
            return None
        if block.record or self._has_seal(path):
            return self._why_no_seal(block, path)
        decided, done = self._decided_on(path)
        kinds = [self.messages[each.id].header.kind for each in block.verdicts if each.kind == DONE]
        if "plan" in kinds and len(kinds) > 1:
            return "shape"
        uids: set[bytes] = set()
        for verdict in block.verdicts:
            message = self.messages[verdict.id]
            if message.is_terminal or verdict.id in decided:
                return "replay"
            if verdict.kind == REFUSED:
                if not self._is_refused_before(message, entry_digest):
                    return "refusals"
                continue
            if message.uid in done or message.uid in uids or message.uid in self._done:
                return "replay"
            uids.add(message.uid)
            if message.header.expires_ms < block.time_ms:
                return "expired"
            if len(verdict.result) > settings.result_bytes_max:
                return "shape"
            if message.body is None:
                return None
        return ""

    def _is_refused_before(self, message: _Message, entry_digest: bytes) -> bool:
        """Whether every member had refused it, to the knowledge of the entry that says so."""
        if not self._all_refuse(message):
            return False
        entries = [message.refusals[each][1] for each in self._voters]
        return all(each and self.log.causality.is_past(each, entry_digest) for each in entries)

    # The end of a session, and what is before its beginning.

    def activate(self, beginning: Beginning, now: int) -> None:
        """It is known how all sessions before this one ended: from here on it has turns."""
        for chunk in Memory.written(beginning.rows).chunks:
            self.log.keep(("remembered", chunk), now)
        self.log.keep(("begins", beginning.begins_ms, beginning.missed), now)
        self._begin(beginning)
        for message in list(self.messages.values()):
            self._settle(message, now)

    def _begin(self, beginning: Beginning) -> None:
        self.is_active, self.begins_ms = True, beginning.begins_ms
        self.missed = beginning.missed
        for row in beginning.rows:
            self._remembered[row.id] = row
            if row.kind == "finalized" and row.decided > self.epoch - self.settings.dedupe_epochs:
                self._remembered_uids[row.uid] = row

    def _time_of(self, slot: int, block: bytes) -> int:
        """Of a parent; in the first slot the end of the sessions before."""
        return self.chain.blocks[block].time_ms if slot else self.begins_ms

    def _branch(self, path: Sequence[bytes]) -> list[Block]:
        """The final chain and what is behind it."""
        return [self.chain.blocks[each] for each in (*self.chain.final, *path)]

    def _has_seal(self, path: Sequence[bytes]) -> bool:
        return self.seal is not None or any(self.chain.blocks[each].record for each in path)

    def _seal_due(self, path: Sequence[bytes]) -> int | None:
        """The block time from which on a seal may be put behind this branch; None while that can't be said."""
        record = self.record
        if record is None:
            return None
        if not self.is_lead:
            return self.begins_ms if self.next_record is not None else None
        # It lasts from its first block on. 1. A seal is proposed, and becomes final only after an outage as long
        # as an epoch. 2. Counted from the seal's time the next epoch is over before it begins. 3. What is handed
        # over to it finds it sealed, and is lost.
        first = self.chain.final[0] if self.chain.final else path[0] if path else None
        if first is None:
            return None
        return self.chain.blocks[first].time_ms + self.settings.epoch_length_ms

    def _plans_on(self, path: Sequence[bytes]) -> list[Sequence[Operation]] | None:
        """What the plans ask for that are done on a branch, in their order; None while one isn't here."""
        found: list[Sequence[Operation]] = []
        assert self.record is not None
        for block in self._branch(path):
            for verdict in block.verdicts:
                message = self.messages.get(verdict.id)
                if message is None or (message.header.kind == "plan" and message.body is None):
                    return None
                if verdict.kind == DONE and message.header.kind == "plan":
                    body, admins = message.body or b"", self.record.admins
                    found.append(plan_operations(message.header, body, admins, self._keys))
        return found

    def _plan_outcome(self, message: _Message, path: Sequence[bytes]) -> Outcome:
        """A plan is done when it can be followed after those before it on the branch."""
        if self.record is None or message.body is None:
            return Refuse("plans are followed where there are epochs")
        before = self._plans_on(path)
        if before is None:
            return Later()
        try:
            asked = plan_operations(message.header, message.body, self.record.admins, self._keys)
            next_record(self.record, [*before, asked], self.record.start_ms)
        except PlanRefused as error:
            return Refuse(str(error))
        return Done()

    def _memory_behind(self, path: Sequence[bytes]) -> list[Remembered]:
        """What the sessions behind this one have to remember, if it ended after this branch."""
        least = self.epoch + 2 - self.settings.dedupe_epochs
        rows = [
            row
            for row in self._remembered.values()
            if row.kind == "finalized" and row.decided >= least
        ]
        for position, block in enumerate(self._branch(path), 1):
            for verdict in block.verdicts:
                header, is_done = self.messages[verdict.id].header, verdict.kind == DONE
                if is_done or header.epoch == self.epoch:
                    kind = "finalized" if is_done else "refused"
                    detail = verdict.result if is_done else verdict.reason.encode()
                    uid = self.messages[verdict.id].uid
                    place = (header.point, verdict.id, uid, header.epoch, self.epoch, position)
                    rows.append(Remembered(*place, kind, detail))
        return rows

    def _sealed_by(self, path: Sequence[bytes], time_ms: int) -> bytes | None:
        """What a seal of this time behind this branch says; None while that isn't known here."""
        found = self.next_record
        if self.is_lead:
            assert self.record is not None
            plans = self._plans_on(path)
            if plans is None:
                return None
            found = next_record(self.record, plans, time_ms)
        if found is None or self._applied < len(self.chain.final):
            return None
        if any(v.id not in self.messages for b in self._branch(path) for v in b.verdicts):
            return None
        return sealed_digest(found.digest, Memory.written(self._memory_behind(path)).hashes)

    def _why_no_seal(self, block: Block, path: Sequence[bytes]) -> str | None:
        """As ``_why_declined``, of a seal and of what stands behind one: empty blocks, until it is final."""
        if block.verdicts or (block.record and self._has_seal(path)):
            return "seal"
        if not block.record:
            return ""
        due = self._seal_due(path)
        if due is None and self.record is not None and not self.is_lead:
            return None  # the record behind this one is on its way
        if due is None or block.time_ms < due:
            return "seal"
        expected = self._sealed_by(path, block.time_ms)
        if expected is None:
            return None
        return "" if expected == block.record else "seal"

    # Of a session that is sealed.

    def memory(self) -> Memory:
        """What it hands on."""
        if self._handed is None:
            self._handed = Memory.written(self._memory_behind(()))
        return self._handed

    def record_behind(self) -> EpochRecord | None:
        """The record that its seal names."""
        if self.seal is None or self.record is None:
            return None
        if not self.is_lead:
            return self.next_record
        plans = self._plans_on(())
        return None if plans is None else next_record(self.record, plans, self.seal.time_ms)

    def seal_proof(self) -> SealProof | None:
        """What convinces others that it is sealed."""
        if self.seal is None:
            return None
        blocks: list[Block] = []
        for key in self.chain.final[self._sealed_at - 1 :]:
            block = self.chain.blocks[key]
            blocks.append(block)
            votes = self.chain.certificate(FINALISE, block.slot, key)
            if votes:
                return SealProof(tuple(blocks), votes)
        return None

    @property
    def applied(self) -> int:
        """How many final blocks are here with all of their headers."""
        return self._applied

    def final_block(self, position: int) -> Block:
        """The block at a position, from 1."""
        return self.chain.blocks[self.chain.final[position - 1]]

    def header(self, message_id: bytes) -> MessageHeader:
        return self.messages[message_id].header

    def body(self, message_id: bytes) -> bytes | None:
        """Of a message, if it is here."""
        message = self.messages.get(message_id)
        return message.body if message is not None else None

    def is_open(self, message_id: bytes) -> bool:
        """Whether it is here and undecided."""
        return message_id in self._undecided
