"""Epochs change at a node: their records are stored, and sessions are opened, begun and closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from surepipe.core.effects import (
    Notice,
    NoticeKind,
)
from surepipe.core.store_requests import (
    AppendRun,
    FencedOut,
    Gap,
    Stored,
    TrimBefore,
)
from surepipe.queues.rmq.catchain import (
    LogMachine,
    LogOptions,
)
from surepipe.queues.rmq.encoding import (
    Malformed,
    MessageHeader,
    Value,
    decode,
    encode,
)
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Memory,
    Partition,
    ProvenRecord,
    Remembered,
)
from surepipe.queues.rmq.node.state import (
    ASK_US,
    MS,
    AskedMemory,
    OpenSession,
    QueueNodeState,
)
from surepipe.queues.rmq.session import (
    Beginning,
    SessionMachine,
)
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenedLog,
    OpenLog,
    StoredLog,
)

FEED_EPOCHS = 12
"""For so many epochs a session is kept whose stream can't be written."""


class ChangingNode(QueueNodeState):
    """Which sessions a node has, and what it keeps of epochs through all of its lives."""

    # A session is opened: its log is read, and its machine goes on from there.

    def _begin(
        self, found: EpochRecord, partition: Partition, *, is_of_last_life: bool = False
    ) -> None:
        session = found.session(partition.lo)
        here = OpenSession(found, partition, session, is_of_last_life=is_of_last_life)
        if here.id in self._open:
            return
        self._open[here.id] = here
        self._is_dirty = True
        self._read_log(here)

    def _read_log(self, here: OpenSession) -> None:
        stream = self._stream_of(here)
        self._call("open", here.id, 0, OpenLog(stream, self.name, self._life, here.id, here.epoch))

    def _opened(self, here: OpenSession, outcome: object) -> None:
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
        self, here: OpenSession, stored: StoredLog, guarded: tuple[int, bytes] | None
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
        machine.is_caught = lambda member: self.caught.holds(found.keys.get(member))
        return machine

    def _body_before(self, here: OpenSession, header: MessageHeader) -> bytes | None:
        for each in self._open.values():
            if each.epoch == here.epoch - 1 and each.machine is not None:
                body = each.machine.body(header.id)
                if body is not None:
                    return body
        return None

    # Records of epochs: told to others and asked of them.

    def _ask_epochs(self, peer: str) -> None:
        if self._told_at.get(peer, -ASK_US) + ASK_US <= self._now:
            self._told_at[peer] = self._now
            self._send(peer, "pull-epochs", self.queue, self.record.number)

    def _tell_epochs(self, route: str, known: int) -> None:
        if known < self.record.number:
            items = self.epochs.after(known)
            if items:
                self._send(route, "epochs", self.queue, items)
            if self.caught.fields and route in self.record.keys:
                self._send(route, "caught", self.queue, self.caught.fields)

    # Records of epochs: stored in a stream of their own.

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
            case (tuple() as records, tuple() as opened, tuple() as closed, tuple() as caught):
                self.caught.restore(caught)
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
            row = encode((proven, opened, tuple(self._closed), self.caught.fields))
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

    def _is_held_for_feed(self, here: OpenSession) -> bool:
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

    # Sessions.

    def _refresh(self) -> None:
        """Open, begin and close sessions, as far as it is known what is behind which."""
        for each in list(self._open.values()):
            self._look_at_seal(each)
            self._keep_proofs(each)
        for found in sorted(self.epochs.known.values(), key=lambda each: each.number):
            for partition in found.partitions:
                if self._is_to_open(found, partition):
                    self._begin(found, partition)
        for each in list(self._open.values()):
            if each.machine is not None and not each.machine.is_active:
                self._try_to_activate(each, each.machine)
        if self.caught.fields and self.caught.forget_others(self._keys_in_use()):
            self._is_dirty = True
        for each in list(self._open.values()):
            why = self._why_close(each)
            if why is not None and not self._is_held_for_feed(each):
                self._end(each, why)

    def _keys_in_use(self) -> Mapping[str, bytes]:
        found = dict(self.record.keys)
        for each in self._open.values():
            found |= each.record.keys
        return found

    def _keep_proofs(self, here: OpenSession) -> None:
        """Remember beyond its session who was caught in it."""
        if here.machine is not None:
            for name, proof in here.machine.log.blamed.items():
                key = here.record.keys.get(name)
                if key is not None and self.caught.add(key, here.epoch, here.id, proof):
                    self._is_dirty = True

    def _look_at_seal(self, here: OpenSession) -> None:
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

    def _try_to_activate(self, here: OpenSession, machine: SessionMachine) -> None:
        """Begin with what the parents remember, if it is here; ask others for the rest."""
        behind = self._parents(here.record, here.partition)
        if behind is None:
            return
        before, parents = behind
        rows: list[list[Remembered]] = []
        missed: list[int] = []
        ends: list[tuple[bytes, bytes, int]] = []
        begins_ms = here.record.start_ms
        for parent in parents:
            session = before.session(parent.lo)
            known = self._open.get(session)
            if known is not None and known.machine is not None and known.machine.seal is not None:
                memory: Memory | None = known.machine.memory()
                sealed_ms = known.machine.seal.time_ms
            elif known is not None:
                return
            else:
                asked = self._asked.setdefault(session, AskedMemory(here.record.digest))
                memory = asked.memory
                sealed_ms = asked.sealed_ms
                missed.append(before.number)
            begins_ms = max(begins_ms, sealed_ms)
            if memory is None:
                continue
            ends.append((parent.lo, parent.hi, sealed_ms))
            rows.append(memory.rows())
        if len(rows) < len(parents):
            return
        holds = here.partition.holds
        kept = tuple(row for each in rows for row in each if holds(row.point))
        epochs = tuple(dict.fromkeys(missed))
        machine.activate(Beginning(kept, begins_ms, epochs, tuple(ends)), self._now)
        for parent in parents:
            self._asked.pop(before.session(parent.lo), None)
        self._perform(here, machine.wake(self._now, self._wall_ms))

    def _why_close(self, here: OpenSession) -> str | None:
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

    def _end(self, here: OpenSession, why: str) -> None:
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
