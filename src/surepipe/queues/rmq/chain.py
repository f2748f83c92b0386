"""How blocks become final: one proposal and two votes for each slot, after the Simplex protocol (Chan, Pass 2023).

A slot has one collator, whose block a quorum approves, or which a quorum skips. A block is final when a quorum
finalises it or a block behind it. A node that has skipped a slot never finalises it, and the other way round; so
what is final is in the past of every block that is approved later.

Everything here is computed from statements that stand by themselves: blocks by their hash, votes by their
signature. The set of them only grows, so two nodes that have the same ones agree, in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from surepipe.core.records import record
from surepipe.queues.rmq.encoding import Malformed, MemberKeys, Value, digest, signed_bytes, taken

APPROVE, SKIP, FINALISE = "approve", "skip", "finalise"
DONE, REFUSED = "done", "refused"


@record
class JobVerdict:
    """What a block says of one message: ``done`` with a result, or ``refused`` with a reason."""

    id: bytes
    kind: str
    result: bytes
    reason: str


@dataclass(frozen=True)
class Block:
    """A batch of verdicts, behind its parent. The first block's parent is the session, at slot 0."""

    session: bytes
    slot: int
    parent_slot: int
    parent: bytes
    collator: str
    time_ms: int
    verdicts: tuple[JobVerdict, ...]
    record: bytes = b""
    """Of a seal, the digest of what the next session is made of; empty otherwise."""

    @property
    def fields(self) -> tuple[Value, ...]:
        verdicts = tuple((each.id, each.kind, each.result, each.reason) for each in self.verdicts)
        place = (self.session, self.slot, self.parent_slot, self.parent, self.collator)
        return (*place, self.time_ms, verdicts, self.record)

    @cached_property
    def digest(self) -> bytes:
        return digest("block", self.fields)

    @staticmethod
    def of(value: Value) -> Block:
        """Raises Malformed."""
        session, slot, parent_slot, parent, collator, time_ms, verdicts, sealed = taken(
            value, bytes, int, int, bytes, str, int, tuple, bytes
        )
        found = tuple(JobVerdict(*taken(each, bytes, str, bytes, str)) for each in verdicts)
        if not 0 <= parent_slot < slot or any(each.kind not in (DONE, REFUSED) for each in found):
            raise Malformed(
                "a block is behind its parent, and its verdicts are 'done' or 'refused'"
            )
        return Block(session, slot, parent_slot, parent, collator, time_ms, found, sealed)


def vote_signed(session: bytes, kind: str, slot: int, block: bytes) -> bytes:
    """What a vote signs; ``block`` is empty for a skip."""
    return signed_bytes("vote", (session, kind, slot, block))


class VoteChain:
    """Blocks and votes of one session as one node knows them, and what follows from them."""

    def __init__(
        self, session: bytes, voters: Mapping[str, bytes], quorum: int, keys: MemberKeys
    ) -> None:
        """``voters``: names and public keys of the current members, in their order."""
        self.session, self.quorum = session, quorum
        self.voters = tuple(voters)
        self._keys_of, self._keys = voters, keys
        self.blocks: dict[bytes, Block] = {}
        self.votes: dict[tuple[str, int, bytes], dict[str, bytes]] = {}
        self.certified: dict[int, bytes] = {}
        """The approved block of each slot that has one."""
        self.skipped: set[int] = set()
        self._finalised: dict[int, bytes] = {}
        self.final: list[bytes] = []
        """Digests of the final chain; the position of the first is 1."""
        self.positions: dict[bytes, int] = {}
        self._slots: dict[int, list[bytes]] = {}
        """The blocks of each slot behind the final chain."""
        self.decided: list[tuple[str, int, bytes]] = []
        """What votes have decided since this list was taken."""
        self.version = 0
        """Goes up with each block and each decision."""
        self.is_broken = False
        """Two final blocks are beside each other: more members lied than a quorum bears."""
        self.slot = 1
        """The slot of this node: behind the highest that was decided."""

    # Statements.

    def collator(self, slot: int) -> str:
        return self.voters[slot % len(self.voters)]

    def add_block(self, block: Block) -> bool:
        """True for one that is new."""
        key = block.digest
        if block.session != self.session or key in self.blocks:
            return False
        self.blocks[key] = block
        self.version += 1
        self._slots.setdefault(block.slot, []).append(key)
        self._extend_final()
        return True

    def add_vote(self, kind: str, slot: int, block: bytes, name: str, signature: bytes) -> bool:
        """Count a vote once for its member; false for one that counts for nothing."""
        if kind not in (APPROVE, SKIP, FINALISE) or slot < 1 or (kind == SKIP) != (block == b""):
            return False
        given = self.votes.get((kind, slot, block), {})
        if name in given:
            return True
        key = self._keys_of.get(name)
        text = vote_signed(self.session, kind, slot, block)
        if key is None or not self._keys.verify(key, signature, text):
            return False
        given[name] = signature
        self.votes[kind, slot, block] = given
        if len(given) == self.quorum:
            self._decide(kind, slot, block)
        return True

    def certificate(self, kind: str, slot: int, block: bytes) -> tuple[tuple[str, bytes], ...]:
        """A quorum of votes, which convinces anybody; empty where there is none."""
        given = sorted(self.votes.get((kind, slot, block), {}).items())
        return tuple(given[: self.quorum]) if len(given) >= self.quorum else ()

    def _decide(self, kind: str, slot: int, block: bytes) -> None:
        self.version += 1
        self.decided.append((kind, slot, block))
        if kind == FINALISE:
            self._finalised[slot] = block
            self._extend_final()
            return
        if kind == SKIP:
            self.skipped.add(slot)
        else:
            self.certified.setdefault(slot, block)
        self.slot = max(self.slot, slot + 1)

    # What follows.

    def path(self, block: bytes) -> list[bytes] | None:
        """A block and those before it that are not final, the first one first; None while one of them isn't here,
        or when it is by-passed by the final chain."""
        found: list[bytes] = []
        end = self.final[-1] if self.final else self.session
        while block != end:
            known = self.blocks.get(block)
            if known is None or block in self.positions:
                return None
            found.append(block)
            block = known.parent
        return found[::-1]

    def tip(self) -> Block | None:
        """The last final block."""
        return self.blocks[self.final[-1]] if self.final else None

    def parent(self) -> tuple[int, bytes] | None:
        """The highest approved block behind which all slots are skipped, which the next one is built on."""
        slot = self.slot - 1
        while slot > 0 and slot not in self.certified:
            if slot not in self.skipped:
                return None
            slot -= 1
        return (slot, self.certified[slot]) if slot else (0, self.session)

    def is_founded(self, block: Block) -> bool:
        """Whether its parent is approved, its branch is here, and the slots between are skipped."""
        parent = self.certified.get(block.parent_slot) if block.parent_slot else self.session
        between = range(block.parent_slot + 1, block.slot)
        return (
            parent == block.parent
            and all(slot in self.skipped for slot in between)
            and self.path(block.parent) is not None
        )

    def live(self) -> Iterator[tuple[bytes, Block]]:
        """Blocks that are not final and may become so."""
        tip = self.tip()
        least = tip.slot if tip is not None else 0
        for key in [key for slot, keys in self._slots.items() if slot > least for key in keys]:
            if self.path(key) is not None:
                yield key, self.blocks[key]

    def _extend_final(self) -> None:
        """Take in what has become final: the branch of the highest finalised block that is known whole."""
        tip = self.tip()
        for slot in sorted(self._finalised, reverse=True):
            if tip is not None and slot <= tip.slot:
                break
            path = self.path(self._finalised[slot])
            if path is not None:
                for each in path:
                    self.final.append(each)
                    self.positions[each] = len(self.final)
                break
        tip = self.tip()
        if tip is not None:
            beside = {
                d for s, d in self._finalised.items() if s <= tip.slot
            } - self.positions.keys()
            self.is_broken = self.is_broken or bool(beside)
            self._finalised = {s: d for s, d in self._finalised.items() if s > tip.slot}
            self._slots = {s: keys for s, keys in self._slots.items() if s > tip.slot}


def ordered(parent: bytes, ids: Iterable[bytes]) -> list[bytes]:
    """The order of messages in a block, which neither senders nor its collator choose."""
    return sorted(ids, key=lambda each: sha256(parent + each).digest())
