"""A session is opened: its log is read, and its machine goes on from there."""

from __future__ import annotations

from dataclasses import replace

from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import (
    FencedOut,
)
from surepipe.queues.rmq.catchain import (
    LogMachine,
    LogOptions,
)
from surepipe.queues.rmq.encoding import (
    MessageHeader,
)
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Partition,
)
from surepipe.queues.rmq.node.state import ASK_US, MS, OpenSession, QueueNodeState
from surepipe.queues.rmq.session import SessionMachine
from surepipe.queues.rmq.stored_log import (
    OpenedLog,
    OpenLog,
    StoredLog,
)


class OpeningNode(QueueNodeState):
    """How a node begins with a session."""

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
