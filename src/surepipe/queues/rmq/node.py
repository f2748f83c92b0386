"""A node of a replicated queue through all epochs: its sessions, and what passes from one to the next.

A session begins when it is known how its parents ended: its nodes come from the record that the lead's seal names,
and what it remembers from the seals of the sessions whose keys it takes over. A message that a seal left undecided
is said again in the session that owns its key now. A session is forgotten, on disk as well, once those behind it
have ended; so a node holds two epochs, however long it runs.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from surepipe.core.effects import Addressed, Call, Effect, Notice, NoticeKind, Transmit, WakeAt
from surepipe.core.machine import Randomness
from surepipe.core.store_requests import (
    Absent,
    AppendRun,
    FencedOut,
    Gap,
    Stored,
    StreamDropped,
    TrimBefore,
)
from surepipe.core.timing import below, earlier
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.catchain import (
    FRAME_BYTES_MAX,
    LogMachine,
    LogOptions,
    Voice,
)
from surepipe.queues.rmq.chain import Block
from surepipe.queues.rmq.encoding import (
    Malformed,
    MemberKeys,
    MessageHeader,
    Value,
    decode,
    encode,
    signed_bytes,
)
from surepipe.queues.rmq.epochs import (
    EpochChain,
    EpochRecord,
    Foundation,
    Memory,
    Partition,
    ProvenRecord,
    Remembered,
    SealProof,
    sealed_digest,
)
from surepipe.queues.rmq.feed import DecidedFeed
from surepipe.queues.rmq.receipts import ReceiptBook
from surepipe.queues.rmq.session import Beginning, SessionMachine
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenedLog,
    OpenLog,
    StoredLog,
)

MS = 1_000
ASK_US = 500_000
"""How often others are asked for what is missing here, and when a request that failed is made again."""
HELD_BACK_MAX = 256
"""Frames of a session that is being opened; further ones are lost, and come again."""
CLOSED_KEPT = 64
FEED_EPOCHS = 12
"""For so many epochs a session is kept whose stream can't be written."""


@dataclass(slots=True)
class _Open:
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
class _Asked:
    """What a parent handed on, of which this node has no log: it is asked of others."""

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


class NodeMachine:
    """All sessions of one node. ``place`` names its streams; ``life`` is the number of this life."""

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
        self._keys, self._rng, self._life, self._place = keys, rng, life, place
        self._options = options
        self.epochs = EpochChain(foundation.record, keys)
        self.receipts = ReceiptBook(self.queue, name, keys)
        self._is_followed = False
        self._touched: dict[bytes, _Open] = {}
        """Sessions that have had frames in this step, and have to be woken at its end."""
        self._open: dict[bytes, _Open] = {}
        self._closed: deque[bytes] = deque(maxlen=CLOSED_KEPT)
        self._asked: dict[bytes, _Asked] = {}
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
        self._seq, self._index = 1, 1
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
        return sorted({name for each in self.sessions() for name in each.log.blamed})

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
        found: dict[str, int] = {"epoch": self.record.number, "sessions": len(self._open)}
        for each in self.sessions():
            for name, value in each.gauges().items():
                found[name] = found.get(name, 0) + value
        return found

    def export(self) -> object:
        """What it holds, as a plain value."""
        sessions = tuple(each.log.export() for each in self.sessions())
        return self.record.number, tuple(sorted(self._open)), sessions

    # Inputs.

    def wake(self, now: int, wall_ms: int) -> list[Effect]:
        """The deadline has passed, or the machine was just built."""
        self._now, self._wall_ms = now, wall_ms
        is_due = self._again_at is not None and self._again_at <= now
        if not self._is_begun or (is_due and not self._is_read):
            self._is_begun, self._again_at = True, None
            self._ask_epochs_stream()
        for each in list(self._open.values()):
            if each.due is not None and each.due <= now and each.machine is not None:
                self._perform(each, each.machine.wake(now, wall_ms))
            if each.ask_again is not None and each.ask_again <= now:
                each.ask_again = None
                self._read_log(each)
        return self._finish()

    def connected(self, peer: str, now: int, wall_ms: int) -> list[Effect]:
        """A member can be reached again."""
        self._now, self._wall_ms = now, wall_ms
        for each in list(self._open.values()):
            if each.machine is not None:
                self._perform(each, each.machine.connected(peer, now, wall_ms))
        return self._finish()

    def frame(self, frame: object, now: int, wall_ms: int) -> list[Effect]:
        """A frame of a member or of a client has come; any bytes may."""
        return self.frames((frame,), now, wall_ms)

    def frames(self, frames: Sequence[object], now: int, wall_ms: int) -> list[Effect]:
        """Several have come: what follows from them is done once, behind the last."""
        self._now, self._wall_ms = now, wall_ms
        self._is_followed = len(frames) > 1
        for frame in frames:
            if (
                isinstance(frame, Addressed)
                and isinstance(frame.frame, bytes)
                and len(frame.frame) <= 2 * FRAME_BYTES_MAX
            ):
                try:
                    self._take_frame(frame.route, decode(frame.frame))
                except (Malformed, ConfigurationError):
                    self._count("malformed")
            else:
                self._count("malformed")
        self._is_followed = False
        touched, self._touched = self._touched, {}
        for each in touched.values():
            if each.machine is not None:
                self._perform(each, each.machine.wake(now, wall_ms))
        return self._finish()

    def _give(self, here: _Open, machine: SessionMachine, route: str, value: Value) -> None:
        if self._is_followed:
            self._touched[here.id] = here
        self._perform(
            here,
            machine.decoded(route, value, self._now, self._wall_ms, is_followed=self._is_followed),
        )

    def answer(self, ticket: int, outcome: object, now: int, wall_ms: int) -> list[Effect]:
        """The store, the guard or the user's function has answered."""
        self._now, self._wall_ms = now, wall_ms
        kind, session, local = self._calls.pop(ticket, ("", b"", 0))
        here = self._open.get(session)
        match kind:
            case "session" if here is not None and here.machine is not None:
                self._perform(here, here.machine.answer(local, outcome, now, wall_ms))
            case "open" if here is not None and here.machine is None:
                self._opened(here, outcome)
            case "close" if not isinstance(outcome, StreamDropped | Absent | FencedOut):
                self._again_at = now + ASK_US
            case "close":
                self._closing.pop(session, None)
            case "epochs":
                self._epochs_opened(outcome)
            case "write":
                self._epochs_written(outcome)
            case "feed" if self._feed is not None:
                self._feed.answered(outcome, now)
            case _:
                pass
        return self._finish()

    def close(self, now: int) -> list[Effect]:
        """Take nothing new."""
        self._now = now
        for each in self._open.values():
            if each.machine is not None:
                self._perform(each, each.machine.log.close(now))
        self.has_ended = True
        return self._finish()

    def _finish(self) -> list[Effect]:
        if self._is_read and not self.has_ended:
            self._refresh()
            self._hand_over()
            self._ask_others()
            self._write_epochs()
            self._feed_stream()
        self.has_ended = self.has_ended or any(
            each.log.voice is Voice.ENDED for each in self.sessions()
        )
        due = None if self.has_ended else earlier(self._again_at, self._epochs_at)
        for each in self._open.values():
            due = earlier(due, earlier(each.due, each.ask_again))
        for asked in self._asked.values():
            due = earlier(due, asked.due)
        if self._handing:
            due = earlier(due, self._handing[0][0])
        if self._feed is not None:
            due = earlier(due, self._feed.due)
        if due != self._armed:
            self._armed = due
            self._out.append(WakeAt(due))
        out, self._out = self._out, []
        return out

    def _perform(self, session: _Open, effects: Iterable[Effect]) -> None:
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

    # Frames.

    def _take_frame(self, route: str, value: Value) -> None:
        match value:
            case ("submit", str() as queue, tuple() as fields, bytes() as body):
                self._submit(route, queue, fields, body)
            case ("read", str() as queue, str() as submitter, int() as after, *more):
                if queue == self.queue:
                    is_detailed = more[1:2] != [0]
                    self.receipts.read(submitter, route, after, self._now, is_detailed=is_detailed)
                    self._out += self.receipts.tell(self._now)
                    known = more[0] if more and isinstance(more[0], int) else 0
                    self._tell_epochs(route, known)
                    number = self.record.number
                    self._send(route, "now", queue, self.name, number, self._wall_ms)
            case ("pull-epochs", str() as queue, int() as known) if queue == self.queue:
                self._tell_epochs(route, known)
                if known > self.record.number:
                    self._ask_epochs(route)
            case ("epochs", str() as queue, tuple() as items) if queue == self.queue:
                if self.epochs.learn(items):
                    self._is_dirty = True
            case ("pull-memory", bytes() as session, int() as at):
                self._tell_memory(route, session, at)
            case (
                "memory",
                bytes() as session,
                tuple() as hashes,
                int() as at,
                bytes() as chunk,
                proof,
            ):
                self._take_memory(session, hashes, at, chunk, SealProof.of(proof))
            case ("gone", bytes() as session, str() as member, bytes() as signature):
                self._take_gone(session, member, signature)
            case (str() as kind, bytes() as session, *_):
                self._take_for_session(route, kind, session, value)
            case _:
                raise Malformed("no frame of a node")

    def _take_for_session(self, route: str, kind: str, session: bytes, value: Value) -> None:
        here = self._open.get(session)
        if here is None:
            self._count("foreign")
            if kind == "heads" and self._is_read:
                self._show_way(route, session)
        elif here.machine is None:
            here.held_back.append((route, value))
        else:
            self._give(here, here.machine, route, value)

    def _show_way(self, route: str, session: bytes) -> None:
        """Somebody speaks of a session that isn't here: one of both is behind."""
        if session in self._closed:
            signature = self._keys.sign(_gone_signed(session, self.name))
            self._send(route, "gone", session, self.name, signature)
        self._ask_epochs(route)

    def _ask_epochs(self, peer: str) -> None:
        if self._told_at.get(peer, -ASK_US) + ASK_US <= self._now:
            self._told_at[peer] = self._now
            self._send(peer, "pull-epochs", self.queue, self.record.number)

    def _tell_epochs(self, route: str, known: int) -> None:
        if known < self.record.number:
            items = self.epochs.after(known)
            if items:
                self._send(route, "epochs", self.queue, items)

    def _submit(self, route: str, queue: str, fields: tuple[Value, ...], body: bytes) -> None:
        header = MessageHeader.of(fields)
        if queue != self.queue:
            raise Malformed("of another queue")
        for each in self.sessions():
            if each.seal is not None and header.id in each.messages:
                known = self.receipts.repeat(header.id, header.submitter, route)
                if known:
                    self.receipts.meet(header.submitter, route, self._now)
                    self._out += known
                    return
        session = self.session_for(header.point)
        if session is None:
            why = "moved" if self._is_read and self._open else "unavailable"
            self._count(f"refused_{why}")
            self._send(route, "answer", self.queue, self.name, header.id, why)
            return
        here = self._open[session.log.session]
        value: Value = ("submit", queue, fields, body)
        self._give(here, session, route, value)

    # The stream of what is decided.

    def _feed_stream(self) -> None:
        """Append what is decided, session by session: those before another one come first."""
        if self._feed is None:
            return
        for here in self._open.values():
            machine = here.machine
            if machine is not None and machine.is_active and self.name in here.partition.members:
                behind = self._parents(here.record, here.partition)
                before = (
                    [] if behind is None else [behind[0].session(each.lo) for each in behind[1]]
                )
                self._feed.begin(machine, [each for each in before if each in self._open])
        request = self._feed.next_request(
            self.sessions(), self._now, ending=frozenset(self._held_for_feed)
        )
        if request is not None:
            self._call("feed", b"", 0, request)

    def _is_held_for_feed(self, here: _Open) -> bool:
        """Whether a session that nobody needs any more isn't in the stream yet."""
        is_held = (
            self._feed is not None
            and here.is_sealed
            and self._feed.is_behind(here.id)
            and self.record.number - here.epoch < FEED_EPOCHS
        )
        if is_held:
            self._held_for_feed.add(here.id)
        return is_held

    # The stream of records.

    @property
    def _stream(self) -> str:
        return f"{self._place}/epochs"

    def _ask_epochs_stream(self) -> None:
        self._call("epochs", b"", 0, OpenLog(self._stream, self.name, self._life, b"", 0))

    def _epochs_opened(self, outcome: object) -> None:
        match outcome:
            case OpenedLog(stored, _):
                self._index = stored.end
                if stored.rows:
                    self._restore(decode(stored.rows[-1]))
                self._is_read = True
                self._epochs_at = self._now
            case FencedOut():
                self.has_ended = True
                self._out.append(Notice(NoticeKind.FENCED, 0, (), "a later process has this node"))
            case _:
                self._again_at = self._now + ASK_US

    def _restore(self, row: Value) -> None:
        """Begin with what the last life knew: the records, and which sessions were open."""
        match row:
            case (tuple() as records, tuple() as opened, tuple() as closed):
                for each in records:
                    self.epochs.add(ProvenRecord.of(each))
                self._closed.extend(each for each in closed if isinstance(each, bytes))
                for each in opened:
                    match each:
                        case (int() as number, bytes() as lo) if number in self.epochs.known:
                            found = self.epochs.known[number]
                            self._begin(found, found.partition(lo), is_of_last_life=True)
                        case _:
                            pass
            case _:
                raise Malformed("a row that no life of this node has written")

    def _write_epochs(self) -> None:
        """Store what is known, in one row; those before it are forgotten."""
        if self._again_at is not None and self._again_at <= self._now:
            self._again_at = None
        if self._again_at is not None or any(
            kind == "write" for kind, _, _ in self._calls.values()
        ):
            return
        for session, request in self._closing.items():
            if not any(call[:2] == ("close", session) for call in self._calls.values()):
                self._call("close", session, 0, request)
        if self._written is None:
            if not self._is_dirty:
                return
            self._is_dirty = False
            proven = tuple(self.epochs.proven[each].fields for each in sorted(self.epochs.proven))
            opened = tuple((each.epoch, each.partition.lo) for each in self._open.values())
            row = encode((proven, opened, tuple(self._closed)))
            self._written = AppendRun(self._stream, self.name, self._life, self._seq, (row,))
        self._call("write", b"", 0, self._written)

    def _epochs_written(self, outcome: object) -> None:
        match outcome:
            case Stored():
                self._written = None
                self._seq += 1
                self._call("trim", b"", 0, TrimBefore(self._stream, self._index))
                self._index += 1
            case FencedOut() | Gap():
                self.has_ended = True
                self._out.append(Notice(NoticeKind.FENCED, 0, (), "a later process has this node"))
            case _:
                self._again_at = self._now + ASK_US

    # Sessions come and go.

    def _refresh(self) -> None:
        """Open, begin and close sessions, as far as it is known what is behind which."""
        for each in list(self._open.values()):
            self._look_at_seal(each)
        for found in sorted(self.epochs.known.values(), key=lambda each: each.number):
            for partition in found.partitions:
                if self._is_to_open(found, partition):
                    self._begin(found, partition)
        for each in list(self._open.values()):
            if each.machine is not None and not each.machine.is_active:
                self._try_to_activate(each, each.machine)
        for each in list(self._open.values()):
            why = self._why_close(each)
            if why is not None and not self._is_held_for_feed(each):
                self._end(each, why)

    def _look_at_seal(self, here: _Open) -> None:
        machine = here.machine
        if machine is None:
            return
        if not machine.is_lead:
            if machine.next_record is None and here.epoch + 1 in self.epochs.known:
                machine.next_record = self.epochs.known[here.epoch + 1]
                self._perform(here, machine.wake(self._now, self._wall_ms))
            return
        if machine.seal is None or here.epoch + 1 in self.epochs.known:
            return
        proof, found = machine.seal_proof(), machine.record_behind()
        if proof is None or found is None or self.record.number > here.epoch:
            return
        self.epochs.add(ProvenRecord(found, here.record.digest, machine.memory().hashes, proof))
        self._is_dirty = True
        for node in dict.fromkeys(each.name for each in (*here.record.nodes, *found.nodes)):
            if node not in here.partition.members:
                self._tell_epochs(node, here.epoch)

    def _parents(
        self, found: EpochRecord, partition: Partition
    ) -> tuple[EpochRecord, Sequence[Partition]] | None:
        before = self.epochs.known.get(found.number - 1)
        return None if before is None else (before, before.meeting(partition))

    def _is_to_open(self, found: EpochRecord, partition: Partition) -> bool:
        session = found.session(partition.lo)
        if session in self._open or session in self._closed:
            return False
        is_current = self.name in partition.members
        if found.number == 1:
            return is_current and self.record.number <= 2
        behind = self._parents(found, partition)
        if behind is None:
            return False
        before, parents = behind
        mine = [each for each in parents if self.name in each.members]
        here = [self._open.get(before.session(each.lo)) for each in mine]
        opened = [each for each in here if each is not None]
        if opened:
            return all(each.is_sealed for each in opened)
        return is_current and found.number == self.record.number

    def _begin(
        self, found: EpochRecord, partition: Partition, *, is_of_last_life: bool = False
    ) -> None:
        session = found.session(partition.lo)
        here = _Open(found, partition, session, is_of_last_life=is_of_last_life)
        if here.id in self._open:
            return
        self._open[here.id] = here
        self._is_dirty = True
        self._read_log(here)

    def _stream_of(self, here: _Open) -> str:
        return f"{self._place}/{here.epoch}-{here.partition.lo.hex()}"

    def _read_log(self, here: _Open) -> None:
        stream = self._stream_of(here)
        self._call("open", here.id, 0, OpenLog(stream, self.name, self._life, here.id, here.epoch))

    def _opened(self, here: _Open, outcome: object) -> None:
        match outcome:
            case OpenedLog():
                here.found = outcome
                self._build_found()
            case FencedOut():
                self.has_ended = True
                self._out.append(Notice(NoticeKind.FENCED, 0, (), "a later process has this node"))
            case _:
                here.ask_again = self._now + ASK_US

    def _build_found(self) -> None:
        """Go on with the logs that are read, once those of the last life all are.

        1. A receipt is in the log of one epoch, and its node begins again. 2. The log of another is read first,
        and a message there gets a receipt. 3. Without the first log its number is one that was given before.
        """
        found = [each for each in self._open.values() if each.machine is None]
        if any(each.is_of_last_life and each.found is None for each in found):
            return
        opened = [(each, each.found) for each in found if each.found is not None]
        built = [(each, self._built(each, log.stored, log.guarded)) for each, log in opened]
        for here, machine in built:
            here.found, here.machine = None, machine
        for here, machine in built:
            self._perform(here, machine.wake(self._now, self._wall_ms))
            while here.held_back:
                route, value = here.held_back.popleft()
                self._perform(here, machine.decoded(route, value, self._now, self._wall_ms))

    def _built(
        self, here: _Open, stored: StoredLog, guarded: tuple[int, bytes] | None
    ) -> SessionMachine:
        """Its machine, which has read what the log held."""
        found, partition = here.record, here.partition
        settings, decides = found.settings, found.quorum(partition.lo)
        options = self._options or LogOptions()
        heights = options.height_max - options.height_reserve
        log = LogMachine(
            here.id,
            self.name,
            found.log_members(partition.lo, self.epochs.known.get(here.epoch - 1)),
            quorum=decides.size,
            keys=self._keys,
            rng=self._rng,
            stored=stored,
            guarded=guarded,
            options=replace(options, pace_us=2 * settings.epoch_length_ms * MS // heights),
            witnesses=partition.members,
        )
        machine = SessionMachine(
            log,
            queue=self.queue,
            epoch=here.epoch,
            voters={name: found.keys[name] for name in partition.members},
            quorum=decides.size,
            keys=self._keys,
            settings=settings,
            record=found,
            lo=partition.lo,
            receipts=self.receipts,
        )
        machine.find_body = lambda header: self._body_before(here, header)
        return machine

    def _body_before(self, here: _Open, header: MessageHeader) -> bytes | None:
        for each in self._open.values():
            if each.epoch == here.epoch - 1 and each.machine is not None:
                body = each.machine.body(header.id)
                if body is not None:
                    return body
        return None

    def _try_to_activate(self, here: _Open, machine: SessionMachine) -> None:
        """Begin with what the parents remember, if it is here; ask others for the rest."""
        behind = self._parents(here.record, here.partition)
        if behind is None:
            return
        before, parents = behind
        rows: list[list[Remembered]] = []
        missed: list[int] = []
        begins_ms = here.record.start_ms
        for parent in parents:
            session = before.session(parent.lo)
            known = self._open.get(session)
            if known is not None and known.machine is not None and known.machine.seal is not None:
                memory: Memory | None = known.machine.memory()
                begins_ms = max(begins_ms, known.machine.seal.time_ms)
            elif known is not None:
                return
            else:
                asked = self._asked.setdefault(session, _Asked(here.record.digest))
                memory = asked.memory
                begins_ms = max(begins_ms, asked.sealed_ms)
                missed.append(before.number)
            if memory is None:
                continue
            rows.append(memory.rows())
        if len(rows) < len(parents):
            return
        holds = here.partition.holds
        kept = tuple(row for each in rows for row in each if holds(row.point))
        machine.activate(Beginning(kept, begins_ms, tuple(dict.fromkeys(missed))), self._now)
        for parent in parents:
            self._asked.pop(before.session(parent.lo), None)
        self._perform(here, machine.wake(self._now, self._wall_ms))

    def _why_close(self, here: _Open) -> str | None:
        """Why a session isn't needed any more: empty when it has ended well; None while it is needed."""
        newest = self.record.number
        if here.is_sealed:
            found = self.epochs.known.get(here.epoch + 1)
            if found is None:
                return "" if newest > here.epoch else None
            heirs = [
                each
                for each in found.meeting(here.partition)
                if self.name in (*each.members, *here.partition.members)
            ]
            for each in heirs:
                session = found.session(each.lo)
                heir = self._open.get(session)
                if session not in self._closed and (heir is None or not heir.is_sealed):
                    return None if newest < here.epoch + 2 or heir is not None else ""
            return ""
        is_lead = here.partition == here.record.lead
        lies = here.record.quorum(here.partition.lo).may_lie
        if (is_lead and newest >= here.epoch + 2) or len(here.gone) > lies:
            return (
                f"epoch {here.epoch} ended while this node was away; it goes on in epoch {newest}"
            )
        return None

    def _end(self, here: _Open, why: str) -> None:
        """Forget a session, here and in the store."""
        del self._open[here.id]
        self._closed.append(here.id)
        self._held_for_feed.discard(here.id)
        if self._feed is not None:
            self._feed.forget(here.id)
        self.receipts.drop(here.id)
        self._is_dirty = True
        if why:
            self._out.append(Notice(NoticeKind.MISSED, here.epoch, (), why))
        # A part of the keys may be an epoch behind: what is still to be signed there isn't forgotten.
        self._signed.append((here.epoch, here.id))
        floor = min([here.epoch, *(each.epoch - 1 for each in self._open.values())])
        over = tuple(session for epoch, session in self._signed if epoch <= floor)
        self._signed = [each for each in self._signed if each[0] > floor]
        self._closing[here.id] = CloseLog(self._stream_of(here), self._life, over, floor)
        self._build_found()

    # What others have.

    def _ask_others(self) -> None:
        """Ask for records while no session is open, and for what parents remember."""
        if self._epochs_at is not None and self._epochs_at <= self._now:
            self._epochs_at = self._now + 2 * ASK_US
            peers = [each.name for each in self.record.nodes if each.name != self.name]
            if peers and not any(each.log.voice is Voice.SPEAKING for each in self.sessions()):
                self._ask_epochs(peers[below(self._rng, len(peers))])
        for session, asked in self._asked.items():
            if asked.due > self._now or asked.memory is not None:
                continue
            asked.due = self._now + ASK_US
            peers = sorted({each.name for each in self.record.nodes} - {self.name})
            if not peers:
                continue
            asked.turn += 1
            missing = [at for at in range(len(asked.hashes or ())) if at not in asked.chunks]
            peer = peers[(asked.turn + below(self._rng, len(peers))) % len(peers)]
            self._send(peer, "pull-memory", session, missing[0] if missing else 0)

    def _tell_memory(self, route: str, session: bytes, at: int) -> None:
        here = self._open.get(session)
        proof = here.machine.seal_proof() if here is not None and here.machine is not None else None
        if here is None or here.machine is None or proof is None:
            return
        memory = here.machine.memory()
        chunk = memory.chunks[at] if 0 <= at < len(memory.chunks) else b""
        self._send(route, "memory", session, memory.hashes, at, chunk, proof.fields)

    def _take_memory(
        self, session: bytes, hashes: tuple[Value, ...], at: int, chunk: bytes, proof: SealProof
    ) -> None:
        """Believe what a seal proves that a quorum has made final."""
        asked = self._asked.get(session)
        places = [
            (each, partition.lo)
            for each in self.epochs.known.values()
            for partition in each.partitions
            if each.session(partition.lo) == session
        ]
        found = tuple(each for each in hashes if isinstance(each, bytes))
        if asked is None or not places or len(found) < len(hashes):
            return
        if asked.hashes is None:
            (before, lo) = places[0]
            if proof.seal.record != sealed_digest(asked.record_digest, found):
                self._count("bad_memory")
                return
            if not proof.holds(session, before, lo, self._keys):
                self._count("bad_memory")
                return
            asked.hashes, asked.sealed_ms = found, proof.seal.time_ms
        if 0 <= at < len(asked.hashes) and sha256(chunk).digest() == asked.hashes[at]:
            asked.chunks[at] = chunk
            asked.due = self._now
        elif asked.hashes:
            self._count("bad_memory")

    def _take_gone(self, session: bytes, member: str, signature: bytes) -> None:
        """A member has forgotten a session, as those behind it have ended."""
        here = self._open.get(session)
        if here is None or here.is_sealed or member not in here.partition.members:
            return
        key = here.record.keys[member]
        if self._keys.verify(key, signature, _gone_signed(session, member)):
            here.gone.add(member)

    # Handing over.

    def _hand_over(self) -> None:
        """Say in the next session what a seal left undecided: one member after the other, until it is said."""
        for here in self._open.values():
            machine = here.machine
            if machine is None or not machine.left or not self._has_heirs(here):
                continue
            left, machine.left = machine.left, []
            for message_id in left:
                rank = _rank(self.name, here.partition.members, message_id)
                due_at = self._now + rank * here.record.settings.stagger_us
                heapq.heappush(self._handing, (due_at, here.id, message_id))
        due: list[tuple[bytes, bytes]] = []
        while self._handing and self._handing[0][0] <= self._now:
            due.append(heapq.heappop(self._handing)[1:])
        touched: dict[bytes, _Open] = {}
        for session, message_id in due:
            again_us = self._hand_one(session, message_id, touched)
            if again_us:
                heapq.heappush(self._handing, (self._now + again_us, session, message_id))
        for heir in touched.values():
            assert heir.machine is not None
            self._perform(heir, heir.machine.wake(self._now, self._wall_ms))

    def _has_heirs(self, here: _Open) -> bool:
        """Whether this node writes into all logs behind a session. The turns of its members count from then."""
        found = self.epochs.known.get(here.epoch + 1)
        if found is None or self.name not in here.partition.members:
            return False
        sessions = [found.session(each.lo) for each in found.meeting(here.partition)]
        # One that isn't open yet waits for the seals of its other parents.
        heirs = [self._open.get(each) for each in sessions if each not in self._closed]
        machines = [None if each is None else each.machine for each in heirs]
        return all(each is not None and each.log.voice is not Voice.ASKING for each in machines)

    def _hand_one(self, session: bytes, message_id: bytes, touched: dict[bytes, _Open]) -> int:
        """Say a message in the session that owns its key now, unless somebody has. Give after how long this is to
        be tried again; 0 when it is settled."""
        parent = self._open.get(session)
        if parent is None or parent.machine is None:
            return 0
        header = parent.machine.header(message_id)
        heir = self._heir(parent, header)
        if heir is None or heir.is_sealed or header.epoch != parent.epoch:
            return 0  # one that expired meanwhile is said, too: the next session tells that it did
        machine = heir.machine
        if machine is None or message_id in machine.messages:
            return 0
        if machine.log.append(("handed_over", header.fields, session), self._now):
            touched[heir.id] = heir
            self._count("handed_over")
            return 0
        return ASK_US if machine.log.voice is Voice.SPEAKING else 0

    def _heir(self, parent: _Open, header: MessageHeader) -> _Open | None:
        found = self.epochs.known.get(parent.epoch + 1)
        if found is None:
            return None
        owner = found.owner(header.point)
        return self._open.get(found.session(owner.lo))


def _rank(name: str, members: Sequence[str], message_id: bytes) -> int:
    """Whose turn it is to hand a message over: drawn by its id, so the work is shared."""
    turns = sorted(members, key=lambda each: sha256(message_id + each.encode()).digest())
    return turns.index(name)


def _gone_signed(session: bytes, member: str) -> bytes:
    """What a member signs when it tells that it has forgotten a session."""
    return signed_bytes("gone", (session, member))
