"""What others have and this node has not: the memory of sessions before, and that sessions are over."""

from __future__ import annotations

from hashlib import sha256

from surepipe.core.timing import below
from surepipe.queues.rmq.encoding import (
    Value,
    signed_bytes,
)
from surepipe.queues.rmq.epochs import (
    SealProof,
    sealed_digest,
)
from surepipe.queues.rmq.node.changing import ChangingNode
from surepipe.queues.rmq.node.state import ASK_US


class AskingNode(ChangingNode):
    """Asks other nodes for what is missing here, and helps those who are behind."""

    def _ask_others(self) -> None:
        """Ask for records while no session is open, and for what parents remember."""
        if self._epochs_at is not None and self._epochs_at <= self._now:
            self._epochs_at = self._now + 2 * ASK_US
            peers = [each.name for each in self.record.nodes if each.name != self.name]
            if peers and not self.is_speaking:
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

    def _show_way(self, route: str, session: bytes) -> None:
        """Somebody speaks of a session that isn't here: one of both is behind."""
        if session in self._closed:
            signature = self._keys.sign(_gone_signed(session, self.name))
            self._send(route, "gone", session, self.name, signature)
        elif self.record.number == 1 and route in self.record.keys:
            self._send(route, "foundation", self.queue, self.foundation.facts)
        self._ask_epochs(route)


def _gone_signed(session: bytes, member: str) -> bytes:
    """What a member signs when it tells that it has forgotten a session."""
    return signed_bytes("gone", (session, member))
