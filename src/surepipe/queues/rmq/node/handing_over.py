"""What a seal left undecided is said again in the session that owns its key now."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import sha256

from surepipe.queues.rmq.catchain import (
    Voice,
)
from surepipe.queues.rmq.encoding import (
    MessageHeader,
)
from surepipe.queues.rmq.node.asking import AskingNode
from surepipe.queues.rmq.node.state import ASK_US, OpenSession


class HandingNode(AskingNode):
    """One member after the other says it, until it is said."""

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
