"""Epochs: who is in a queue and what was agreed upon, for a period; and how the next period follows from this one.

The first record is the foundation, equal in every node's file. Each further one is decided by the queue itself:
the last block of an epoch, its seal, names the record of the next one. Who trusts a record, and sees a quorum of
its members sign the end of a later epoch, trusts what they signed; so nobody has to see all records between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

from surepipe.core.records import record
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.chain import FINALISE, Block, vote_signed
from surepipe.queues.rmq.encoding import (
    FIRST_POINT,
    LAST_POINT,
    NAME,
    Malformed,
    MemberKeys,
    MessageHeader,
    Quorum,
    Value,
    decode,
    digest,
    encode,
    quorum,
    signed_bytes,
    taken,
)
from surepipe.queues.rmq.entries import Member

NODES_MAX = 16
RECORDS_KEPT = 3
MEMORY_CHUNK = 256 << 10


@record
class QueueSettings:
    """What all nodes of a queue agree upon."""

    batch_max: int = 128
    clock_skew_ms: int = 2_000
    slot_timeout_us: int = 1_000_000
    slot_timeout_max_us: int = 30_000_000
    message_bytes_max: int = 65_536
    result_bytes_max: int = 256
    ttl_max_ms: int = 300_000
    is_trusting: bool = False
    """Whether results of a collator are taken as they are; otherwise each node computes them again."""
    pending_max: int = 10_000
    linger_us: int = 20_000
    suspect_timeout_us: int = 20_000
    """In place of ``slot_timeout_us`` for a node that said nothing in its last turn."""
    body_timeout_us: int = 1_000_000
    retries: int = 5
    epoch_length_ms: int = 300_000
    """A period lasts so long or longer. What it decided is forgotten two periods later."""
    dedupe_epochs: int = 2
    """In how many epochs, the first one counted, work that is done is not done again."""
    stagger_us: int = 250_000
    """How long a member waits for the one before it to hand a message over."""

    def __post_init__(self) -> None:
        if self.batch_max * (self.result_bytes_max + 80) > 60_000:
            raise ConfigurationError(
                f"batch_max {self.batch_max} with result_bytes_max {self.result_bytes_max}: "
                "a full batch doesn't fit into an entry"
            )
        if self.ttl_max_ms > self.epoch_length_ms:
            raise ConfigurationError(
                f"ttl_max_ms {self.ttl_max_ms} is above epoch_length_ms {self.epoch_length_ms}: "
                "a message would be forgotten before it expires"
            )
        if self.clock_skew_ms * 10 > self.epoch_length_ms:
            raise ConfigurationError(
                f"clock_skew_ms {self.clock_skew_ms} is above a tenth of epoch_length_ms {self.epoch_length_ms}"
            )
        if self.dedupe_epochs < 2:
            raise ConfigurationError(
                f"dedupe_epochs {self.dedupe_epochs} is below 2: work of one epoch would be done again in the next"
            )

    @property
    def config(self) -> tuple[Value, ...]:
        return tuple((each.name, int(getattr(self, each.name))) for each in fields(self))

    @staticmethod
    def of(value: Value) -> QueueSettings:
        """Raises Malformed and ConfigurationError."""
        known = {each.name: each for each in fields(QueueSettings)}
        found: dict[str, int] = {}
        for each in value if isinstance(value, tuple) else ():
            name, number = taken(each, str, int)
            if name not in known:
                raise Malformed(f"a setting {name!r} that is not known here")
            found[name] = number
        trusting = bool(found.pop("is_trusting", 0))
        return replace(QueueSettings(is_trusting=trusting, **found))


# Records.


@record
class Partition:
    """A range of key points, both ends included, and the nodes that serve it."""

    lo: bytes
    hi: bytes
    members: tuple[str, ...]

    def holds(self, point: bytes) -> bool:
        return self.lo <= point <= self.hi

    def meets(self, other: Partition) -> bool:
        return self.lo <= other.hi and other.lo <= self.hi


@dataclass(frozen=True)
class EpochRecord:
    """What holds in one epoch. Nodes with another record have other sessions, and hear nobody."""

    queue: str
    number: int
    start_ms: int
    partitions: tuple[Partition, ...]
    nodes: tuple[Member, ...]
    settings: QueueSettings
    faults: str = "byzantine"
    admins: tuple[bytes, ...] = ()
    """Public keys of those whose plans are followed."""

    @property
    def fields(self) -> tuple[Value, ...]:
        ranges = tuple((each.lo, each.hi, tuple(each.members)) for each in self.partitions)
        nodes = tuple((each.name, each.key, each.address) for each in self.nodes)
        config = (*self.settings.config, ("faults", self.faults))
        return (self.queue, self.number, self.start_ms, ranges, nodes, self.admins, config)

    @staticmethod
    def of(value: Value) -> EpochRecord:
        """Raises Malformed and ConfigurationError."""
        queue, number, start_ms, ranges, nodes, admins, config = taken(
            value, str, int, int, tuple, tuple, tuple, tuple
        )
        if not config:
            raise Malformed("a record without parameters")
        _, faults = taken(config[-1], str, str)
        return EpochRecord(
            queue,
            number,
            start_ms,
            tuple(Partition(*taken(each, bytes, bytes, tuple)) for each in ranges),
            tuple(Member(*taken(each, str, bytes, str)) for each in nodes),
            QueueSettings.of(config[:-1]),
            faults,
            admins,
        )

    @property
    def digest(self) -> bytes:
        known = self.__dict__.get("_digest")
        if known is None:
            known = self.__dict__["_digest"] = digest("epoch", self.fields)
        return bytes(known)

    def session(self, lo: bytes = FIRST_POINT) -> bytes:
        """The id of the session of the partition that begins at this point."""
        return session_id(self.queue, self.number, self.digest, lo)

    def partition(self, lo: bytes) -> Partition:
        return next(each for each in self.partitions if each.lo == lo)

    def owner(self, point: bytes) -> Partition:
        """Of a key, by its point."""
        return next(each for each in self.partitions if each.holds(point))

    @property
    def lead(self) -> Partition:
        """Whose seal decides the next epoch for all."""
        return self.partitions[0]

    @property
    def keys(self) -> Mapping[str, bytes]:
        return {each.name: each.key for each in self.nodes}

    def quorum(self, lo: bytes = FIRST_POINT) -> Quorum:
        return quorum(len(self.partition(lo).members), self.faults)

    def log_members(self, lo: bytes, before: EpochRecord | None) -> tuple[Member, ...]:
        """Who writes into the log of a session: its members, then those of its parents, who hand over."""
        here = self.partition(lo)
        parents = before.meeting(here) if before is not None else ()
        others = {name for each in parents for name in each.members} - set(here.members)
        keys = {**(before.keys if before is not None else {}), **self.keys}
        return tuple(Member(name, keys[name]) for name in (*here.members, *sorted(others)))

    def meeting(self, partition: Partition) -> tuple[Partition, ...]:
        """The partitions here that share points with one of the epoch before or after."""
        return tuple(each for each in self.partitions if each.meets(partition))

    def check(self) -> None:
        """Raises ConfigurationError."""
        names = [each.name for each in self.nodes]
        bad = [each for each in (self.queue, *names) if not NAME.fullmatch(each)]
        sizes = [len(each.members) for each in self.partitions]
        for each in self.partitions:
            _ = quorum(len(each.members), self.faults)
        if bad or len(set(names)) < len(names) or not sizes or max(sizes) > NODES_MAX:
            raise ConfigurationError(
                f"nodes {names} of queue {self.queue!r}: give 1 to {NODES_MAX} different names, "
                "of 1 to 64 letters, digits, dots, dashes and underscores"
            )
        for each in self.partitions:
            unknown = sorted(set(each.members) - set(names))
            if unknown or len(set(each.members)) < len(each.members):
                raise ConfigurationError(
                    f"members {each.members}: {unknown} are no nodes, or one is named twice"
                )


def session_id(queue: str, number: int, record_digest: bytes, lo: bytes) -> bytes:
    """Of the partition of this epoch that begins at ``lo``."""
    return digest("session", (queue, number, record_digest, lo))


@record
class Foundation:
    """What all nodes of a queue begin with. Nodes with another one have other sessions, and hear nobody."""

    queue: str
    nodes: tuple[Member, ...]
    settings: QueueSettings
    faults: str = "byzantine"
    admins: tuple[bytes, ...] = ()
    """Public keys of those who may change nodes, partitions and settings."""
    partitions: tuple[tuple[str, ...], ...] = ()
    """The members of each part of the keys, in equal parts; empty: one part, served by all nodes."""

    @property
    def record(self) -> EpochRecord:
        """The first one."""
        groups = self.partitions or (tuple(each.name for each in self.nodes),)
        step = (1 << 64) // len(groups)
        cuts = [(step * at).to_bytes(8, "big") for at in range(len(groups))]
        ends = [_below(each) for each in cuts[1:]] + [LAST_POINT]
        ranges = tuple(map(Partition, cuts, ends, groups))
        return EpochRecord(
            self.queue, 1, 0, ranges, self.nodes, self.settings, self.faults, self.admins
        )

    @property
    def digest(self) -> bytes:
        """Of all of it."""
        return self.record.digest

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """All of it in words, so that two nodes can tell where theirs differ."""
        settings = tuple(
            (each.name, str(getattr(self.settings, each.name))) for each in fields(self.settings)
        )
        keys = tuple((f"key of {each.name}", each.key.hex()[:16]) for each in self.nodes)
        names = ", ".join(each.name for each in self.nodes)
        parts = "; ".join(", ".join(each) for each in self.partitions)
        admins = ", ".join(each.hex()[:16] for each in self.admins)
        named = (
            ("faults", self.faults),
            ("nodes", names),
            ("partitions", parts),
            ("admins", admins),
        )
        return (*settings, *named, *keys)

    def differences(self, facts: Sequence[Value]) -> str:
        """How another node's ``facts`` differ; empty where they don't. Raises Malformed."""
        theirs = dict(taken(each, str, str) for each in facts)
        told = [
            f"{name} is {theirs[name]} there and {mine} here"
            for name, mine in self.facts
            if theirs.get(name, mine) != mine
        ]
        return "; ".join(told)

    @property
    def session(self) -> bytes:
        """The id of its first session."""
        return self.record.session()

    @property
    def quorum(self) -> Quorum:
        return self.record.quorum()

    def check(self) -> None:
        """Raises ConfigurationError."""
        self.record.check()


def _below(point: bytes) -> bytes:
    return (int.from_bytes(point, "big") - 1).to_bytes(8, "big")


# Plans: what the next record has that this one has not.


class PlanRefused(Exception):
    """This plan doesn't fit, and why."""


Operation: TypeAlias = tuple[Value, ...]


def plan_signed(header: MessageHeader, operations: Sequence[Operation]) -> bytes:
    """What an admin signs: these operations in this very message, so nobody can send them again in another."""
    place = (header.queue, header.submitter, header.nonce, header.epoch, header.expires_ms)
    return signed_bytes("plan", (*place, tuple(operations)))


def plan_body(header: MessageHeader, operations: Sequence[Operation], admin: MemberKeys) -> bytes:
    """The body of a plan that this admin signs."""
    return encode((tuple(operations), admin.public, admin.sign(plan_signed(header, operations))))


def plan_operations(
    header: MessageHeader, body: bytes, admins: Sequence[bytes], keys: MemberKeys
) -> tuple[Operation, ...]:
    """What a plan asks for. Raises PlanRefused when no admin has signed it."""
    try:
        value = decode(body)
    except Malformed:
        value = ()
    match value:
        case (tuple() as asked, bytes() as key, bytes() as signature):
            operations = tuple(each for each in asked if isinstance(each, tuple))
            text = plan_signed(header, operations)
            if (
                len(operations) == len(asked)
                and key in admins
                and keys.verify(key, signature, text)
            ):
                return operations
            raise PlanRefused("not signed by an admin of this queue")
        case _:
            raise PlanRefused("no plan")


def next_record(
    before: EpochRecord, plans: Iterable[Sequence[Operation]], start_ms: int
) -> EpochRecord:
    """The record behind this one, with these plans applied in their order. Raises PlanRefused."""
    draft = _Draft(before)
    for plan in plans:
        for operation in plan:
            draft.apply(operation)
    return draft.record(start_ms)


@dataclass
class _Draft:
    """A record that is being made."""

    before: EpochRecord
    ranges: list[Partition] = field(default_factory=list[Partition])
    touched: set[bytes] = field(default_factory=set[bytes])
    """Points at which this epoch's split or merge was."""
    nodes: list[Member] = field(default_factory=list[Member])
    settings: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.ranges, self.nodes = list(self.before.partitions), list(self.before.nodes)

    def apply(self, operation: Operation) -> None:
        match operation:
            case ("split", bytes() as lo):
                self._split(lo, b"")
            case ("split", bytes() as lo, bytes() as at):
                self._split(lo, at)
            case ("merge", bytes() as lo):
                self._merge(lo)
            case ("members", bytes() as lo, tuple() as names):
                self._members(lo, tuple(each for each in names if isinstance(each, str)))
            case ("add_node", str() as name, bytes() as key, str() as address):
                if any(each.name == name for each in self.nodes) or not NAME.fullmatch(name):
                    raise PlanRefused(f"{name!r} is a node already, or no name")
                if len(key) != 32:
                    raise PlanRefused(f"the key of {name} has {len(key)} bytes in place of 32")
                self.nodes.append(Member(name, key, address))
            case ("remove_node", str() as name):
                serves = [each for each in self.ranges if name in each.members]
                if serves or all(each.name != name for each in self.nodes):
                    raise PlanRefused(
                        f"{name!r} is no node, or still a member: name other members first"
                    )
                self.nodes = [each for each in self.nodes if each.name != name]
            case ("config", str() as name, int() as value):
                if name not in {each.name for each in fields(QueueSettings)}:
                    raise PlanRefused(f"there is no setting {name!r}")
                self.settings[name] = value
            case _:
                raise PlanRefused("an operation that is not known")

    def _at(self, lo: bytes) -> int:
        for place, each in enumerate(self.ranges):
            if each.lo == lo:
                if lo in self.touched:
                    raise PlanRefused(f"the partition at {lo.hex()} is split or merged already")
                return place
        raise PlanRefused(f"no partition begins at {lo.hex()}")

    def _split(self, lo: bytes, at: bytes) -> None:
        place = self._at(lo)
        parent = self.ranges[place]
        ends = int.from_bytes(parent.lo, "big"), int.from_bytes(parent.hi, "big")
        at = at or ((sum(ends) + 1) // 2).to_bytes(8, "big")
        if len(at) != 8 or not parent.lo < at <= parent.hi:
            raise PlanRefused(f"{at.hex()} doesn't lie within the partition at {lo.hex()}")
        halves = [
            Partition(parent.lo, _below(at), parent.members),
            Partition(at, parent.hi, parent.members),
        ]
        self.ranges[place : place + 1] = halves
        self.touched |= {parent.lo, at}

    def _merge(self, lo: bytes) -> None:
        place = self._at(lo)
        if place + 1 == len(self.ranges):
            raise PlanRefused(f"nothing lies to the right of the partition at {lo.hex()}")
        left, right = self.ranges[place], self.ranges[self._at(self.ranges[place + 1].lo)]
        members = (*left.members, *(each for each in right.members if each not in left.members))
        if len(members) > NODES_MAX:
            raise PlanRefused(f"{len(members)} members are above {NODES_MAX}")
        self.ranges[place : place + 2] = [Partition(left.lo, right.hi, members)]
        self.touched.add(left.lo)

    def _members(self, lo: bytes, names: tuple[str, ...]) -> None:
        unknown = sorted(set(names) - {each.name for each in self.nodes})
        places = [place for place, each in enumerate(self.ranges) if each.lo == lo]
        if not places or unknown or len(set(names)) < len(names):
            raise PlanRefused(f"no partition begins at {lo.hex()}, or {unknown} are no nodes")
        if not 1 <= len(names) <= NODES_MAX:
            raise PlanRefused(f"{len(names)} members: give 1 to {NODES_MAX}")
        self.ranges[places[0]] = replace(self.ranges[places[0]], members=names)

    def record(self, start_ms: int) -> EpochRecord:
        before = self.before
        config = {
            each.name: int(getattr(before.settings, each.name)) for each in fields(QueueSettings)
        }
        try:
            settings = QueueSettings.of(tuple({**config, **self.settings}.items()))
        except (ConfigurationError, Malformed) as error:
            raise PlanRefused(str(error)) from None
        return replace(
            before,
            number=before.number + 1,
            start_ms=start_ms,
            partitions=tuple(self.ranges),
            nodes=tuple(self.nodes),
            settings=settings,
        )


# What is remembered of what was decided.


@record
class Remembered:
    """How a message ended in a session before: so it isn't decided again, nor is other work like it."""

    point: bytes
    id: bytes
    uid: bytes
    epoch: int
    """Of its header."""
    decided: int
    """The epoch that decided it."""
    position: int
    before_ms: int
    """The time of the block before that position: what had expired by then is no duplicate of this."""
    kind: str
    detail: bytes

    @property
    def fields(self) -> tuple[Value, ...]:
        place = (self.point, self.id, self.uid, self.epoch, self.decided, self.position)
        return (*place, self.before_ms, self.kind, self.detail)

    @staticmethod
    def of(value: Value) -> Remembered:
        """Raises Malformed."""
        return Remembered(*taken(value, bytes, bytes, bytes, int, int, int, int, str, bytes))


@record
class Memory:
    """The memory that a session hands on, in chunks with a hash each."""

    chunks: tuple[bytes, ...]

    @staticmethod
    def written(rows: Iterable[Remembered]) -> Memory:
        chunks: list[bytes] = []
        held: list[Value] = []
        size = 0
        for each in sorted(rows, key=lambda row: (row.point, row.id)):
            held.append(each.fields)
            size += 160 + len(each.detail)
            if size >= MEMORY_CHUNK:
                chunks.append(encode(tuple(held)))
                held, size = [], 0
        if held:
            chunks.append(encode(tuple(held)))
        return Memory(tuple(chunks))

    @property
    def hashes(self) -> tuple[bytes, ...]:
        return tuple(sha256(each).digest() for each in self.chunks)

    def rows(self) -> list[Remembered]:
        return [row for chunk in self.chunks for row in remembered(chunk)]


def remembered(chunk: bytes) -> list[Remembered]:
    """The rows of a chunk. Raises Malformed."""
    found = decode(chunk)
    if not isinstance(found, tuple):
        raise Malformed("a chunk of memory is rows")
    return [Remembered.of(each) for each in found]


def sealed_digest(record_digest: bytes, memory_hashes: Sequence[bytes]) -> bytes:
    """The digest in a seal: of the next epoch's record and of the memory."""
    return digest("seal", (record_digest, tuple(memory_hashes)))


# Proofs.


@record
class SealProof:
    """The final seal of a session: it, the empty blocks behind it, and votes that finalise the last of them."""

    blocks: tuple[Block, ...]
    votes: tuple[tuple[str, bytes], ...]

    @property
    def seal(self) -> Block:
        return self.blocks[0]

    @property
    def fields(self) -> tuple[Value, ...]:
        return (tuple(each.fields for each in self.blocks), self.votes)

    @staticmethod
    def of(value: Value) -> SealProof:
        """Raises Malformed."""
        blocks, votes = taken(value, tuple, tuple)
        if not blocks or len(blocks) > 64:
            raise Malformed("a proof is of one block or more")
        found = tuple(Block.of(each) for each in blocks)
        return SealProof(found, tuple(taken(each, str, bytes) for each in votes))

    def holds(self, session: bytes, trusted: EpochRecord, lo: bytes, keys: MemberKeys) -> bool:
        """Whether it convinces who trusts these members of the partition at ``lo``."""
        before = None
        for block in self.blocks:
            if block.session != session or (before is not None and block.parent != before.digest):
                return False
            before = block
        assert before is not None
        known = {name: trusted.keys[name] for name in trusted.partition(lo).members}
        text = vote_signed(session, FINALISE, before.slot, before.digest)
        signed = {
            name
            for name, signature in self.votes
            if name in known and keys.verify(known[name], signature, text)
        }
        return bool(self.seal.record) and len(signed) >= trusted.quorum(lo).size


@record
class ProvenRecord:
    """A record behind the first one, and what proves it."""

    record: EpochRecord
    before: bytes
    """The digest of the record before it."""
    memory: tuple[bytes, ...]
    """Hashes of what the lead's session handed on."""
    proof: SealProof

    @property
    def fields(self) -> tuple[Value, ...]:
        return (self.record.fields, self.before, self.memory, self.proof.fields)

    @staticmethod
    def of(value: Value) -> ProvenRecord:
        """Raises Malformed and ConfigurationError."""
        fields_of, before, memory, proof = taken(value, tuple, bytes, tuple, tuple)
        return ProvenRecord(EpochRecord.of(fields_of), before, memory, SealProof.of(proof))

    def holds(self, trusted: EpochRecord, keys: MemberKeys) -> bool:
        """Whether it convinces who trusts an earlier record: its lead's members have signed the seal before it."""
        found = self.record
        if found.queue != trusted.queue or found.number <= trusted.number:
            return False
        session = session_id(found.queue, found.number - 1, self.before, FIRST_POINT)
        is_sealed = self.proof.seal.record == sealed_digest(found.digest, self.memory)
        is_next = found.number > trusted.number + 1 or self.before == trusted.digest
        return is_sealed and is_next and self.proof.holds(session, trusted, FIRST_POINT, keys)


class EpochChain:
    """The records that a node or a client knows, each proven by one before it."""

    def __init__(self, foundation: EpochRecord, keys: MemberKeys) -> None:
        self._keys = keys
        self.known: dict[int, EpochRecord] = {foundation.number: foundation}
        self.proven: dict[int, ProvenRecord] = {}
        self.is_broken = False
        """Two records of one number are proven: more members lied than a quorum bears."""

    @property
    def newest(self) -> EpochRecord:
        return self.known[max(self.known)]

    def learn(self, items: Iterable[Value]) -> bool:
        """Take in records that others have sent, the earliest first; true when there is a newer one."""
        before = self.newest.number
        for item in items:
            found = ProvenRecord.of(item)
            number = found.record.number
            if number in self.known:
                same = self.known[number].digest == found.record.digest
                earlier = [each for each in self.known if each < number]
                if not same and earlier and found.holds(self.known[max(earlier)], self._keys):
                    self.is_broken = True
                continue
            if number > self.newest.number and found.holds(self.newest, self._keys):
                self.add(found)
            elif (after := self.proven.get(number + 1)) and after.before == found.record.digest:
                self.known[number], self.proven[number] = found.record, found
        return self.newest.number > before

    def add(self, found: ProvenRecord) -> None:
        """What this node has seen decided itself, or has checked."""
        self.known[found.record.number] = found.record
        self.proven[found.record.number] = found
        self._forget()

    def after(self, number: int) -> tuple[Value, ...]:
        """The proofs for somebody who knows the records up to this number, the earliest first."""
        newest = self.newest.number
        turns = self._turns()
        first = [n for n in sorted(self.proven) if n > number and (n in turns or n == newest)]
        # The one before the newest is known by its hash, so it comes behind it.
        behind = [n for n in (newest - 1,) if n > number and n in self.proven and n not in turns]
        return tuple(self.proven[each].fields for each in (*first, *behind))

    def _turns(self) -> set[int]:
        """Records whose lead has other members or keys than the one before: the way leads over them."""
        numbers = sorted(self.known)
        pairs = pairwise(numbers)
        return {n for m, n in pairs if _lead_keys(self.known[m]) != _lead_keys(self.known[n])}

    def _forget(self) -> None:
        kept = {1, *self._turns()}
        for each in [n for n in self.known if n <= self.newest.number - RECORDS_KEPT]:
            if each not in kept:
                del self.known[each]
                self.proven.pop(each, None)


def _lead_keys(found: EpochRecord) -> dict[str, bytes]:
    return {name: found.keys[name] for name in found.lead.members}
