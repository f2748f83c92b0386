"""What a session holds at one node, by subject, and what it says when it is looked at."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from surepipe.core.effects import Addressed, Effect, Transmit
from surepipe.core.records import record
from surepipe.queues.rmq.catchain import LogMachine
from surepipe.queues.rmq.chain import (
    DONE,
    Block,
    JobVerdict,
    VoteChain,
)
from surepipe.queues.rmq.encoding import (
    FIRST_POINT,
    LAST_POINT,
    MemberKeys,
    MessageHeader,
    Value,
    encode,
)
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Memory,
    Partition,
    QueueSettings,
    Remembered,
)
from surepipe.queues.rmq.receipts import ReceiptBook
from surepipe.queues.rmq.session.jobs import (
    Job,
)

MS = 1_000
DIFFERS = "result differs"
"""How the reason of a refusal begins whose message had another result here."""


@dataclass(slots=True)
class SessionMessage:
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
class FunctionCall:
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
    ends: tuple[tuple[bytes, bytes, int], ...] = ()
    """Of each parent the first and last point of its keys, and the time of its seal."""


class SessionState:
    """The state of a session. What changes it lies in the layers above, one subject each."""

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
        self._ends: tuple[tuple[bytes, bytes, int], ...] = ()
        self.seal: Block | None = None
        self._sealed_at = 0
        self._handed: Memory | None = None
        self.left: list[bytes] = []
        """Messages that the final seal left undecided, and that nobody has taken from here."""
        self.find_body: Callable[[MessageHeader], bytes | None] = lambda _: None
        """Looks in the sessions before this one."""
        self.is_caught: Callable[[str], bool] = lambda _: False
        """Whether a member was caught lying in any epoch: nobody waits for his turns."""
        self.messages: dict[bytes, SessionMessage] = {}
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
        self._calls: dict[int, FunctionCall] = {}
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

    def _replay(self) -> None:
        """Begin where former lives had ended. The machine does it, as this is the last step of building it."""
        raise NotImplementedError

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

    def _standing(self, message: SessionMessage, live: Mapping[bytes, str]) -> str:
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
        header, epoch = message.header, self.epoch
        row = self._remembered_uids.get(message.uid)
        if row is not None and (row.decided < header.epoch or row.before_ms <= header.expires_ms):
            detail = encode((row.id, row.detail))
            return Ending("duplicate", row.position, detail, row.decided)
        if header.epoch < epoch and header.expires_ms < self._ended_before_ms(header.point):
            return Ending(
                "expired", 0, b"", header.epoch
            )  # where it belonged; who was there told it
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
        late = bisect_right(self._times, header.expires_ms)
        if late < len(self._times):
            found.append((late + 1, 2, Ending("expired", late + 1, b"", epoch)))
        if self.seal is not None and header.epoch < epoch:
            found.append((self._sealed_at, 2, Ending("expired", self._sealed_at, b"", epoch)))
        return min(found, key=lambda each: each[:2])[2] if found else None

    def _ended_before_ms(self, at: bytes) -> int:
        """When the session before this one ended that had this point of the keys."""
        return next((end for lo, hi, end in self._ends if lo <= at <= hi), 0)

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

    # Effects.

    def _send(self, route: str, *fields: Value) -> None:
        self._out.append(Transmit(Addressed(route, encode(fields))))

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1
