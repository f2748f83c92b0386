"""The state of a node through all epochs: its sessions, and requests under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.core.effects import Addressed, Call, Effect, Transmit, WakeAt
from surepipe.core.machine import Randomness
from surepipe.core.store_requests import (
    AppendRun,
)
from surepipe.queues.rmq.catchain import (
    LogOptions,
    Voice,
)
from surepipe.queues.rmq.caught import CaughtNodes
from surepipe.queues.rmq.chain import Block
from surepipe.queues.rmq.encoding import (
    MemberKeys,
    Value,
    encode,
)
from surepipe.queues.rmq.epochs import (
    EpochChain,
    EpochRecord,
    Foundation,
    Memory,
    Partition,
)
from surepipe.queues.rmq.feed import DecidedFeed
from surepipe.queues.rmq.receipts import ReceiptBook
from surepipe.queues.rmq.session import SessionMachine
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenedLog,
)

MS = 1_000
ASK_US = 500_000
"""How often others are asked for what is missing here, and when a request that failed is made again."""
HELD_BACK_MAX = 256
"""Frames of a session that is being opened; further ones are lost, and come again."""
CLOSED_KEPT = 64


@dataclass(slots=True)
class OpenSession:
    """A session that this node has a log of."""

    record: EpochRecord
    partition: Partition
    id: bytes
    machine: SessionMachine | None = None
    """None while its log is being read."""
    is_of_last_life: bool = False
    found: OpenedLog | None = None
    """What its log held, until those of the last life are all read."""
    due: int | None = None
    ask_again: int | None = None
    held_back: deque[tuple[str, Value]] = field(default_factory=lambda: deque(maxlen=HELD_BACK_MAX))
    gone: set[str] = field(default_factory=set[str])
    """Members who have forgotten it."""

    @property
    def epoch(self) -> int:
        return self.record.number

    @property
    def is_sealed(self) -> bool:
        return self.machine is not None and self.machine.seal is not None


@dataclass(slots=True)
class AskedMemory:
    """The memory of a parent session whose log is not here, asked of others."""

    record_digest: bytes
    hashes: tuple[bytes, ...] | None = None
    sealed_ms: int = 0
    chunks: dict[int, bytes] = field(default_factory=dict[int, bytes])
    due: int = 0
    turn: int = 0

    @property
    def memory(self) -> Memory | None:
        if self.hashes is None or len(self.chunks) < len(self.hashes):
            return None
        return Memory(tuple(self.chunks[at] for at in range(len(self.hashes))))


class QueueNodeState:
    """The state of a node. What changes it lies in the layers above, one subject each."""

    def __init__(
        self,
        foundation: Foundation,
        name: str,
        *,
        keys: MemberKeys,
        rng: Randomness,
        life: int,
        place: str,
        options: LogOptions | None = None,
        has_feed: bool = False,
    ) -> None:
        """``has_feed``: what is decided goes into a stream (``feed.py``)."""
        self._feed = DecidedFeed() if has_feed else None
        self.name, self.queue = name, foundation.queue
        self.foundation = foundation
        self.strangers: dict[str, str] = {}
        """Nodes that began with another foundation, and where it differs: they have other sessions."""
        self._keys, self._rng, self._life, self._place = keys, rng, life, place
        self._options = options
        self.epochs = EpochChain(foundation.record, keys)
        self.receipts = ReceiptBook(self.queue, name, keys)
        self.caught = CaughtNodes(keys)
        self._is_followed = False
        self._touched: dict[bytes, OpenSession] = {}
        """Sessions that have had frames in this step, and have to be woken at its end."""
        self._open: dict[bytes, OpenSession] = {}
        self._closed: deque[bytes] = deque(maxlen=CLOSED_KEPT)
        self._asked: dict[bytes, AskedMemory] = {}
        """By parent session."""
        self._handing: list[tuple[int, bytes, bytes]] = []
        """When a message of a sealed session is to be said in the next one, unless it was."""
        # Requests under way.
        self._ticket = 0
        self._calls: dict[int, tuple[str, bytes, int]] = {}
        # The stream of records.
        self._closing: dict[bytes, CloseLog] = {}
        self._held_for_feed: set[bytes] = set()
        """Sessions that are kept for the stream alone."""
        self._signed: list[tuple[int, bytes]] = []
        """Sessions that are over, and that the guard has not forgotten."""
        self._is_read = False
        self._is_dirty = False
        self._written: AppendRun | None = None
        self._seq: int = 1
        self._index: int = 1
        self._again_at: int | None = None
        self._epochs_at: int | None = None
        self._told_at: dict[str, int] = {}
        self._armed: int | None = None
        self._out: list[Effect] = []
        self._counters: dict[str, int] = {}
        self._now = self._wall_ms = 0
        self._is_begun = self.has_ended = False

    # Looking.

    @property
    def record(self) -> EpochRecord:
        """Of the newest epoch that is known here."""
        return self.epochs.newest

    @property
    def has_recalled(self) -> bool:
        """Whether it has read what its last life left; until then it knows of no block and no message."""
        are_read = all(
            each.machine is not None or not each.is_of_last_life for each in self._open.values()
        )
        return self._is_read and are_read

    @property
    def is_speaking(self) -> bool:
        """Whether it takes part in a session: others have told it what it had said, and so which epoch it is."""
        return any(each.log.voice is Voice.SPEAKING for each in self.sessions())

    @property
    def voice(self) -> Voice:
        """Whether it writes, in the newest session that is open here."""
        if self.has_ended:
            return Voice.ENDED
        sessions = self.sessions()
        return sessions[-1].log.voice if sessions else Voice.ASKING

    def sessions(self) -> Sequence[SessionMachine]:
        """Those that are open, the earliest first."""
        found = [each for each in self._open.values() if each.machine is not None]
        found.sort(key=lambda each: (each.epoch, each.partition.lo))
        return [each.machine for each in found if each.machine is not None]

    def session_for(self, point: bytes) -> SessionMachine | None:
        """The newest session here that takes messages of this key in."""
        for each in reversed(self.sessions()):
            if (
                each.partition.holds(point)
                and each.seal is None
                and self.name in each.partition.members
            ):
                return each
        return None

    def status(self, message_id: bytes) -> str:
        """What a message has come to, as far as it isn't forgotten."""
        told = [each.status(message_id) for each in reversed(self.sessions())]
        return next((each for each in told if each != "unknown"), "unknown")

    def blocks(self) -> Sequence[Block]:
        """The final blocks of the sessions that are open, in their order."""
        return [each.chain.blocks[key] for each in self.sessions() for key in each.chain.final]

    def blamed(self) -> Sequence[str]:
        """Members that were proven to sign two things and still have that key."""
        now = {name for each in self.sessions() for name in each.log.blamed}
        return sorted(now | set(self.caught.epochs(self.record.keys)))

    def heights(self) -> Mapping[str, int]:
        """How many entries of each node are here."""
        found: dict[str, int] = {}
        for each in self.sessions():
            for name, height in each.log.causality.heights().items():
                found[name] = found.get(name, 0) + height
        return found

    def counters(self) -> Mapping[str, int]:
        found = dict(self._counters)
        for each in self.sessions():
            for name, count in each.counters().items():
                found[name] = found.get(name, 0) + count
        return found

    def gauges(self) -> Mapping[str, int]:
        if not self.has_recalled:
            return {}
        found: dict[str, int] = {"epoch": self.record.number, "sessions": len(self._open)}
        for each in self.sessions():
            for name, value in each.gauges().items():
                found[name] = found.get(name, 0) + value
        found["blamed"] = len(self.blamed())
        return found

    def export(self) -> object:
        """What it holds, as a plain value."""
        sessions = tuple(each.log.export() for each in self.sessions())
        return self.record.number, tuple(sorted(self._open)), sessions

    def _parents(
        self, found: EpochRecord, partition: Partition
    ) -> tuple[EpochRecord, Sequence[Partition]] | None:
        before = self.epochs.known.get(found.number - 1)
        return None if before is None else (before, before.meeting(partition))

    def _stream_of(self, here: OpenSession) -> str:
        return f"{self._place}/{here.epoch}-{here.partition.lo.hex()}"

    # Effects.

    def _perform(self, session: OpenSession, effects: Iterable[Effect]) -> None:
        """Effects of a session go on, under tickets of the node; of deadlines the node keeps the first."""
        for effect in effects:
            match effect:
                case WakeAt(deadline):
                    session.due = deadline
                case Call(ticket, request):
                    self._call("session", session.id, ticket, request)
                case _:
                    self._out.append(effect)

    def _call(self, kind: str, session: bytes, local: int, request: object) -> None:
        self._ticket += 1
        self._calls[self._ticket] = kind, session, local
        self._out.append(Call(self._ticket, request))

    def _send(self, route: str, *fields: Value) -> None:
        if route != self.name:
            self._out.append(Transmit(Addressed(route, encode(fields))))

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1
