"""Reads what a node of a replicated queue has stored, without the code that wrote it: signed entries, and the
messages, blocks and votes in them.

Nothing here believes a node: what isn't signed by who is said to have said it counts for nothing and is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TypeAlias

from surepipe.core.records import record
from surepipe.core.store_requests import Batch, Empty, Store, Trimmed, Unavailable
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.queues.rmq.chain import APPROVE, FINALISE, SKIP, Block, vote_signed
from surepipe.queues.rmq.encoding import Malformed, MemberKeys, MessageHeader, Value, decode, taken
from surepipe.queues.rmq.entries import ForkProof, LogEntry
from surepipe.queues.rmq.epochs import (
    EpochChain,
    EpochRecord,
    Foundation,
    Partition,
    Remembered,
    remembered,
)
from surepipe.queues.rmq.receipts import Receipt, receipt_of_row

# Reading stores.


@record
class NodeRows:
    """What one node has stored: its newest row about epochs, and the rows of each log by epoch and first point."""

    name: str
    epochs: bytes
    logs: Mapping[tuple[int, bytes], Sequence[bytes]]


def read_node(store: Store, queue: str, name: str) -> NodeRows:
    """Read it from a store, which is only read. Raises StoreUnavailable, and ConfigurationError when this node has
    nothing there."""
    place = f"rmq/{queue}/{name}"
    rows = _rows_of(store, f"{place}/epochs")
    if not rows:
        raise ConfigurationError(f"there is nothing of the node {name} of {queue} in this store")
    logs: dict[tuple[int, bytes], Sequence[bytes]] = {}
    for number, lo in opened(rows[-1]):
        logs[number, lo] = _rows_of(store, f"{place}/{number}-{lo.hex()}")
    return NodeRows(name, rows[-1], logs)


def opened(epochs: bytes) -> list[tuple[int, bytes]]:
    """The sessions that a row about epochs names: epoch and first point."""
    match decode(epochs):
        case (tuple(), tuple() as named, tuple(), tuple()):
            return [taken(each, int, bytes) for each in named]
        case _:
            raise Malformed("no row about epochs")


def _rows_of(store: Store, stream: str) -> list[bytes]:
    rows: list[bytes] = []
    index = 1
    while isinstance(found := store.read(stream, index, 1000, 4 << 20), Batch | Trimmed):
        if isinstance(found, Batch):
            rows += [payload for run in found.entries for payload in run.payloads]
        elif found.earliest <= index:
            break
        index = found.next if isinstance(found, Batch) else found.earliest
    if isinstance(found, Unavailable):
        raise StoreUnavailable(f"{stream}: {found.detail or 'no answer'}")
    return rows if isinstance(found, Empty) else []


# What all nodes have stored is read once.


@record
class Vote:
    """A vote that its voter has signed."""

    name: str
    kind: str
    slot: int
    block: bytes
    height: int = 0
    """Of the voter's entry that has it; 0 for one that a certificate has."""


@record
class RefusedMessage:
    """A voter refuses a message."""

    name: str
    message: bytes


Statement: TypeAlias = MessageHeader | RefusedMessage | Block | Vote


class SharedReading:
    """Reads each entry once, and looks at each signature once, however many nodes have stored them."""

    def __init__(self, keys: MemberKeys) -> None:
        self.keys = keys
        self._signed: dict[tuple[bytes, bytes, bytes], bool] = {}
        self._entries: dict[bytes, LogEntry] = {}
        self._said: dict[bytes, tuple[Statement, ...]] = {}

    def holds(self, key: bytes, signature: bytes, signed: bytes) -> bool:
        asked = key, signature, sha256(signed).digest()
        if asked not in self._signed:
            self._signed[asked] = self.keys.verify(key, signature, signed)
        return self._signed[asked]

    def entry(self, data: bytes) -> LogEntry:
        """Raises Malformed."""
        if data not in self._entries:
            self._entries[data] = LogEntry.decode(data)
        return self._entries[data]

    def said(self, place: SessionPlace, entry: LogEntry) -> tuple[Statement, ...]:
        """The statements of an entry that count."""
        if entry.digest not in self._said:
            found: list[Statement] = []
            for item in entry.items:
                try:
                    found += self._read(place, entry, item)
                except Malformed:
                    continue  # says nothing to anybody
            self._said[entry.digest] = tuple(found)
        return self._said[entry.digest]

    def _read(
        self, place: SessionPlace, entry: LogEntry, item: tuple[Value, ...]
    ) -> Iterator[Statement]:
        is_voter = entry.author in place.voters
        match item:
            case ("external", fields) if is_voter:
                yield from place.taking(MessageHeader.of(fields), place.epoch, place.epoch - 1)
            case ("handed_over", fields, bytes()):
                yield from place.taking(MessageHeader.of(fields), place.epoch - 1)
            case ("refusal", bytes() as message, int(), str()) if is_voter:
                yield RefusedMessage(entry.author, message)
            case ("candidate", fields) if is_voter:
                block = Block.of(fields)
                if block.session == place.id:
                    yield block
            case ("vote", str() as kind, int() as slot, bytes() as block, bytes() as signature):
                if is_voter:
                    vote = Vote(entry.author, kind, slot, block, entry.height)
                    yield from self._vote(place, vote, signature)
            case ("certificate", str() as kind, int() as slot, bytes() as block, tuple() as votes):
                for each in votes:
                    name, signature = taken(each, str, bytes)
                    yield from self._vote(place, Vote(name, kind, slot, block), signature)
            case _:
                pass

    def _vote(self, place: SessionPlace, vote: Vote, signature: bytes) -> Iterator[Vote]:
        if vote.kind in (APPROVE, SKIP, FINALISE) and vote.name in place.voters:
            signed = vote_signed(place.id, vote.kind, vote.slot, vote.block)
            if self.holds(place.keys[vote.name], signature, signed):
                yield vote


# Sessions.


@dataclass(frozen=True)
class SessionPlace:
    """A session: an epoch of a part of the keys."""

    record: EpochRecord
    partition: Partition
    before: EpochRecord | None

    @cached_property
    def id(self) -> bytes:
        return self.record.session(self.partition.lo)

    @property
    def epoch(self) -> int:
        return self.record.number

    @property
    def voters(self) -> tuple[str, ...]:
        return self.partition.members

    @property
    def quorum(self) -> int:
        return self.record.quorum(self.partition.lo).size

    @property
    def may_lie(self) -> int:
        return self.record.quorum(self.partition.lo).may_lie

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """Of all who write into its log."""
        members = self.record.log_members(self.partition.lo, self.before)
        return {each.name: each.key for each in members}

    def taking(self, header: MessageHeader, *epochs: int) -> Iterator[MessageHeader]:
        """The header, if it belongs here."""
        if (
            header.queue == self.record.queue
            and self.partition.holds(header.point)
            and header.epoch in epochs
        ):
            yield header

    def __str__(self) -> str:
        many = len(self.record.partitions) > 1
        return f"epoch {self.epoch}{f' from {self.partition.lo.hex()[:4]}' if many else ''}"


def records_of(foundation: Foundation, rows: NodeRows, keys: MemberKeys) -> EpochChain:
    """The records that a node has stored, as far as each is proven by one before it."""
    chain = EpochChain(foundation.record, keys)
    match decode(rows.epochs):
        case (tuple() as proven, tuple(), tuple(), tuple()):
            chain.learn(proven)
        case _:
            raise Malformed("no row about epochs")
    return chain


@dataclass
class StoredSession:
    """The log of one session, as one node has stored it."""

    node: str
    entries: dict[bytes, LogEntry] = field(default_factory=dict[bytes, LogEntry])
    proofs: dict[str, ForkProof] = field(default_factory=dict[str, ForkProof])
    taken: dict[bytes, MessageHeader] = field(default_factory=dict[bytes, MessageHeader])
    bodies: set[bytes] = field(default_factory=set[bytes])
    """Their hashes."""
    memory: list[Remembered] = field(default_factory=list[Remembered])
    has_begun: bool = False
    ends: list[tuple[bytes, bytes, int]] = field(default_factory=list[tuple[bytes, bytes, int]])
    """Of each session before it, its keys and when it was sealed."""
    receipts: list[tuple[str, Receipt]] = field(default_factory=list[tuple[str, Receipt]])
    faults: list[str] = field(default_factory=list[str])
    """What no correct node stores."""


def read_session(
    node: str, rows: Sequence[bytes], place: SessionPlace, reading: SharedReading
) -> StoredSession:
    """Read the rows, and look whether each entry is signed and stands behind all that it cites."""
    found = StoredSession(node)
    for at, row in enumerate(rows, 1):
        try:
            _take_row(found, decode(row), reading)
        except (Malformed, KeyError) as error:
            found.faults.append(f"row {at} of {node} can't be read: {error}")
    keys = place.keys
    before: set[bytes] = set()
    for digest, entry in found.entries.items():
        which = f"{node} has stored entry {entry.height} of {entry.author}, which"
        is_unsaid = entry.author == node and not entry.signature  # stored, and not signed yet
        if entry.session != place.id or entry.author not in keys:
            found.faults.append(f"{which} is of another session, or of nobody who writes here")
        elif not is_unsaid and not reading.holds(keys[entry.author], entry.signature, entry.signed):
            found.faults.append(f"{which} {entry.author} has not signed")
        if any(each not in before for each in entry.references):
            found.faults.append(f"{which} stands before what it cites")
        before.add(digest)
    for author, proof in found.proofs.items():
        key = keys.get(author)
        if key is None or not proof.holds(place.id, key, reading.keys):
            found.faults.append(f"{node} blames {author}, and its proof proves nothing")
    return found


def _take_row(found: StoredSession, row: Value, reading: SharedReading) -> None:
    match row:
        case ("entry", bytes() as data):
            entry = reading.entry(data)
            found.entries.setdefault(entry.digest, entry)
        case ("signature", bytes() as digest, bytes() as signature):
            found.entries[digest] = found.entries[digest].with_signature(signature)
        case ("proof", tuple() as fields):
            proof = ForkProof.of(fields)
            found.proofs[proof.author] = proof
        case ("taken", fields, bytes() as body):
            header = MessageHeader.of(fields)
            found.taken[header.id] = header
            found.bodies.add(sha256(body).digest())
        case ("body", bytes() as body):
            found.bodies.add(sha256(body).digest())
        case ("remembered", bytes() as chunk):
            found.memory += remembered(chunk)
        case ("begins", int(), tuple(), tuple() as ends):
            found.has_begun = True
            found.ends = [taken(each, bytes, bytes, int) for each in ends]
        case ("receipt", *_):
            assert isinstance(row, tuple)
            found.receipts.append(receipt_of_row(row))
        case _:
            raise Malformed("a row of a kind that isn't known")


# What entries say.


class LogEvidence:
    """What entries say: messages, blocks, votes and refusals; and what is final by it."""

    def __init__(
        self, place: SessionPlace, entries: Iterable[LogEntry], reading: SharedReading
    ) -> None:
        self.place = place
        self.headers: dict[bytes, MessageHeader] = {}
        self.blocks: dict[bytes, Block] = {}
        self.votes: dict[tuple[str, int, bytes], set[str]] = {}
        self.refusals: dict[bytes, set[str]] = {}
        self._own_votes: dict[str, list[Vote]] = {}
        """By voter, as his own entries have them."""
        self._entries: dict[bytes, tuple[LogEntry, tuple[Statement, ...]]] = {}
        self._proposed_in: dict[bytes, bytes] = {}
        """By block: the entry that proposes it."""
        for entry in entries:
            if entry.signature:  # one that isn't signed yet was said to nobody
                said = reading.said(place, entry)
                self._entries[entry.digest] = entry, said
                for each in said:
                    self._take(entry, each)
        self.final = self._final()

    def _take(self, entry: LogEntry, said: Statement) -> None:
        match said:
            case MessageHeader():
                self.headers.setdefault(said.id, said)
            case RefusedMessage(name, message):
                self.refusals.setdefault(message, set()).add(name)
            case Block():
                self.blocks[said.digest] = said
                self._proposed_in.setdefault(said.digest, entry.digest)
            case Vote(name, kind, slot, block, height):
                self.votes.setdefault((kind, slot, block), set()).add(name)
                if height:
                    self._own_votes.setdefault(name, []).append(said)

    def has_quorum(self, kind: str, slot: int, block: bytes = b"") -> bool:
        return len(self.votes.get((kind, slot, block), ())) >= self.place.quorum

    def finalised(self) -> list[tuple[int, bytes]]:
        """The blocks that a quorum has finalised, each with its slot, the highest first."""
        found = [
            (slot, block)
            for kind, slot, block in self.votes
            if kind == FINALISE and self.has_quorum(kind, slot, block)
        ]
        return sorted(found, reverse=True)

    def _final(self) -> list[Block]:
        """The branch of the highest finalised block that is known whole."""
        for _, digest in self.finalised():
            branch = self.branch(digest)
            if branch is not None:
                return branch
        return []

    def branch(self, digest: bytes) -> list[Block] | None:
        """A block and all before it, the first one first; None while one isn't here."""
        found: list[Block] = []
        while digest != self.place.id:
            block = self.blocks.get(digest)
            if block is None or (found and block.slot >= found[-1].slot):
                return None
            found.append(block)
            digest = block.parent
        return found[::-1]

    def known_to(self, block: bytes) -> set[bytes]:
        """The messages in the causal past of a proposal: whoever approved it knew them all."""
        to_see = [self._proposed_in[block]] if block in self._proposed_in else []
        seen: set[bytes] = set()
        found: set[bytes] = set()
        while to_see:
            digest = to_see.pop()
            if digest in seen or digest not in self._entries:
                continue
            seen.add(digest)
            entry, said = self._entries[digest]
            to_see += entry.references
            found |= {each.id for each in said if isinstance(each, MessageHeader)}
        return found

    def double_voters(self) -> dict[str, str]:
        """Members who cast two votes of which one excludes the other, with the slot."""
        found: dict[str, str] = {}
        by_slot: dict[tuple[str, int], dict[str, set[bytes]]] = {}
        for (kind, slot, block), names in self.votes.items():
            for name in names:
                by_slot.setdefault((name, slot), {}).setdefault(kind, set()).add(block)
        for (name, slot), kinds in sorted(by_slot.items()):
            if any(len(blocks) > 1 for blocks in kinds.values()):
                found.setdefault(name, f"voted for two blocks in slot {slot}")
            if SKIP in kinds and FINALISE in kinds:
                found.setdefault(name, f"skipped slot {slot} and finalised it")
        for name, votes in self._own_votes.items():
            skipped = {vote.slot: vote.height for vote in votes if vote.kind == SKIP}
            for vote in votes:
                if vote.kind == APPROVE and vote.height > skipped.get(vote.slot, vote.height):
                    found.setdefault(name, f"approved in slot {vote.slot}, which it had skipped")
        return found
