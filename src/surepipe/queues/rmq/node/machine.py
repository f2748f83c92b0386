"""A node of a replicated queue through all epochs: its sessions, and what passes from one to the next.

A session begins when it is known how its parents ended: its nodes come from the record that the lead's seal names,
and what it remembers from the seals of the sessions whose keys it takes over. A message that a seal left undecided
is said again in the session that owns its key now. A session is forgotten, on disk as well, once those behind it
have ended; so a node holds two epochs, however long it runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import sha256

from surepipe.core.effects import (
    Addressed,
    Effect,
    WakeAt,
)
from surepipe.core.store_requests import (
    Absent,
    FencedOut,
    StreamDropped,
)
from surepipe.core.timing import earlier
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.catchain import (
    FRAME_BYTES_MAX,
    Voice,
)
from surepipe.queues.rmq.encoding import (
    Malformed,
    MessageHeader,
    Value,
    decode,
)
from surepipe.queues.rmq.epochs import SealProof
from surepipe.queues.rmq.node.asking import AskingNode
from surepipe.queues.rmq.node.state import (
    ASK_US,
    OpenSession,
)
from surepipe.queues.rmq.session import SessionMachine


class NodeMachine(AskingNode):
    """All sessions of one node. ``place`` names its streams; ``life`` is the number of this life."""

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

    def _give(self, here: OpenSession, machine: SessionMachine, route: str, value: Value) -> None:
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
            if asked.due > self._now:  # else it is here, or there is nobody to ask
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

    # Frames.

    def _take_frame(self, route: str, value: Value) -> None:  # noqa: PLR0912 - one case a frame
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
                    if self.is_speaking:  # else it may be epochs behind
                        number = self.record.number
                        self._send(route, "now", queue, self.name, number, self._wall_ms)
            case ("foundation", str() as queue, tuple() as facts) if queue == self.queue:
                if route in self.record.keys and (why := self.foundation.differences(facts)):
                    self.strangers[route] = why
            case ("pull-epochs", str() as queue, int() as known) if queue == self.queue:
                self._tell_epochs(route, known)
                if known > self.record.number:
                    self._ask_epochs(route)
            case ("epochs", str() as queue, tuple() as items) if queue == self.queue:
                if self.epochs.learn(items):
                    self._is_dirty = True
            case ("caught", str() as queue, tuple() as items) if queue == self.queue:
                self._is_dirty |= self.caught.learn(items, self.record.keys)
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
            why = "moved" if self.has_recalled and self._open else "unavailable"
            self._count(f"refused_{why}")
            self._send(route, "answer", self.queue, self.name, header.id, why)
            return
        here = self._open[session.log.session]
        value: Value = ("submit", queue, fields, body)
        self._give(here, session, route, value)

    # What a seal left undecided is said again in the session that owns its key now.

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
        touched: dict[bytes, OpenSession] = {}
        for session, message_id in due:
            again_us = self._hand_one(session, message_id, touched)
            if again_us:
                heapq.heappush(self._handing, (self._now + again_us, session, message_id))
        for heir in touched.values():
            assert heir.machine is not None
            self._perform(heir, heir.machine.wake(self._now, self._wall_ms))

    def _has_heirs(self, here: OpenSession) -> bool:
        """Whether this node writes into all logs behind a session. The turns of its members count from then."""
        found = self.epochs.known.get(here.epoch + 1)
        if found is None or self.name not in here.partition.members:
            return False
        sessions = [found.session(each.lo) for each in found.meeting(here.partition)]
        # One that isn't open yet waits for the seals of its other parents.
        heirs = [self._open.get(each) for each in sessions if each not in self._closed]
        machines = [None if each is None else each.machine for each in heirs]
        return all(each is not None and each.log.voice is not Voice.ASKING for each in machines)

    def _hand_one(
        self, session: bytes, message_id: bytes, touched: dict[bytes, OpenSession]
    ) -> int:
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

    def _heir(self, parent: OpenSession, header: MessageHeader) -> OpenSession | None:
        found = self.epochs.known.get(parent.epoch + 1)
        if found is None:
            return None
        owner = found.owner(header.point)
        return self._open.get(found.session(owner.lo))


def _rank(name: str, members: Sequence[str], message_id: bytes) -> int:
    """Whose turn it is to hand a message over: drawn by its id, so the work is shared."""
    turns = sorted(members, key=lambda each: sha256(message_id + each.encode()).digest())
    return turns.index(name)
