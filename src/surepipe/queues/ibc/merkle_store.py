"""The Merkle store: a party's spaces, in versions, on any store that has streams and tables.

Each space is an IAVL tree, and a simple tree over their roots gives the one root of a height. A block is one
request to the store: the append of its record to the log decides, and the nodes, the rows outside the trees and
the streams of queues are written with it or not at all (storage S-16). So a crash leaves the version before or the
one after, and there is nothing in between to repair. The index of the record is the height.

One process commits: whoever opens the store last fences the one before. Any number of others may read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.core.store_requests import (
    KEEP_ALL,
    AllDone,
    AppendRun,
    Batch,
    Changed,
    CommitPosition,
    Committed,
    Created,
    DropValues,
    Exists,
    Failed,
    FencedOut,
    FoundValues,
    JoinedRequest,
    NoneDone,
    NoPosition,
    Owner,
    Position,
    ProducerOpened,
    PutValues,
    ReadKeys,
    Store,
    Stored,
    StreamInfo,
    Together,
    Unavailable,
    Untouched,
    called,
)
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.ibc.iavl import (
    EMPTY_ROOT,
    Child,
    IavlTree,
    Inner,
    Node,
    Ref,
    decode_node,
    decode_ref,
    encode_node,
    encode_ref,
    ref_to,
    thin,
    unused_since,
)
from surepipe.queues.ibc.ics23 import compress
from surepipe.queues.ibc.proof import (
    BatchProof,
    ExistenceProof,
    MerkleProof,
    NonExistenceProof,
    ProofError,
    ProofLimits,
    read_uvarint,
    uvarint,
)
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import decode, encode
from surepipe.storage.positions import Claims, number_now

TRIES = 3
"""How often a request without an answer is repeated before the caller is told."""
PRUNED_AT_ONCE = 20_000
"""Nodes that one request drops."""
RECORD_LIMITS = ProofLimits(bytes_max=64 << 20, fields_max=1 << 20)
SPACE = re.compile("[a-z][a-z0-9_]{0,31}")
_FORMAT = b"\1"
_FINE = (Stored, Changed, Committed, Untouched)


class IbcRefused(MisuseError):
    """Refused under a code, which is stable; the text is not. Nothing was changed."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(f"{code}: {text}")


@dataclass(frozen=True, slots=True)
class Version:
    """What the store came to with a block. Header ``height`` of the party commits to ``root``."""

    height: int
    time_ms: int
    root: bytes
    trees: Mapping[str, Ref | None]
    """The root node of each space; None for one that is empty."""

    @property
    def roots(self) -> dict[str, bytes]:
        """The root of each space."""
        return {space: ref.hash if ref else EMPTY_ROOT for space, ref in self.trees.items()}


_NOTHING = Version(0, 0, simple_map_root({}), {})


@dataclass(frozen=True, slots=True)
class Operation:
    """One change: of a key of a space, or (the space is empty) of a row outside the trees. None deletes."""

    space: str
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class QueueAppend:
    """Items that a queue's stream gets, and the position of the first; positions count from 0."""

    queue: str
    first: int
    items: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """An entry of the log: all that a block did, in order, and the root that it came to."""

    height: int
    time_ms: int
    operations: tuple[Operation, ...]
    appends: tuple[QueueAppend, ...]
    root: bytes

    def encode(self) -> bytes:
        return encode(
            "BlockRecord",
            {
                "height": self.height,
                "time_ms": self.time_ms,
                "operations": [
                    {"space": o.space, "key": o.key, "value": o.value, "delete": o.value is None}
                    for o in self.operations
                ],
                "appends": [
                    {"queue": a.queue, "first": a.first, "items": a.items} for a in self.appends
                ],
                "root": self.root,
            },
        )

    @staticmethod
    def decode(data: bytes) -> BlockRecord:
        """Raises ProofError."""
        values = decode("BlockRecord", data, RECORD_LIMITS)
        return BlockRecord(
            values["height"],
            values["time_ms"],
            tuple(
                Operation(o["space"], o["key"], None if o["delete"] else o["value"])
                for o in values["operations"]
            ),
            tuple(
                QueueAppend(a["queue"], a["first"], tuple(a["items"])) for a in values["appends"]
            ),
            values["root"],
        )


class Working:
    """A block that is open: reads see its own writes. A savepoint costs nothing; going back leaves no trace."""

    def __init__(self, base: Version, tree_of: Callable[[str, Version], IavlTree]) -> None:
        self.base = base
        self.trees: dict[str, IavlTree] = {}
        self.operations: list[Operation] = []
        self.appends: list[QueueAppend] = []
        self.is_open = True
        self._tree_of = tree_of

    def tree(self, space: str) -> IavlTree:
        """The open tree of a space, which is there with its first key."""
        if not self.is_open:
            raise MisuseError("this block was committed already; begin another one")
        if space not in self.trees:
            if not SPACE.fullmatch(space):
                raise MisuseError(
                    f"{space!r} is no name of a space: give up to 32 of a-z 0-9 _, a letter first"
                )
            self.trees[space] = self._tree_of(space, self.base)
        return self.trees[space]

    def get(self, space: str, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.tree(space).get(key)

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys of a range with their values, in order."""
        return self.tree(space).scan(start, stop)

    def set(self, space: str, key: bytes, value: bytes) -> None:
        """Let the key have this value. Neither may be empty."""
        self.tree(space).set(key, value)
        self.operations.append(Operation(space, key, value))

    def delete(self, space: str, key: bytes) -> None:
        """Remove the key; one that isn't there leaves no trace."""
        if self.tree(space).delete(key):
            self.operations.append(Operation(space, key, None))

    def put_row(self, key: bytes, value: bytes | None) -> None:
        """Write a row outside the trees, with the block; None drops it."""
        self.operations.append(Operation("", key, value))

    def append(self, queue: str, first: int, items: Sequence[bytes]) -> None:
        """Add items to a queue's stream, with the block. ``first`` is the position of the first, from 0."""
        self.appends.append(QueueAppend(queue, first, tuple(items)))

    def savepoint(self) -> Savepoint:
        """Where to go back to."""
        roots = {space: tree.root for space, tree in self.trees.items()}
        return Savepoint(roots, len(self.operations), len(self.appends))

    def undo_to(self, savepoint: Savepoint) -> None:
        """Take back everything since then."""
        for space in [space for space in self.trees if space not in savepoint.roots]:
            del self.trees[space]
        for space, root in savepoint.roots.items():
            self.trees[space].root = root
        del self.operations[savepoint.operations :], self.appends[savepoint.appends :]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What ``Working.undo_to`` goes back to."""

    roots: Mapping[str, Child | None]
    operations: int
    appends: int


@dataclass(frozen=True, slots=True)
class _Pending:
    """A block whose fate is unknown, or not asked for yet."""

    version: Version
    request: Together
    made: tuple[tuple[str, Node], ...] = field(repr=False)


class MerkleStore:
    """Versions of spaces, with proofs. ``open`` takes the store over; ``open_to_read`` takes nothing.

    All methods raise StoreUnavailable when the store doesn't answer, StoreReset when it lost what it had
    acknowledged, and ``commit`` Fenced when another process has opened it since.
    """

    def __init__(
        self,
        store: Store,
        name: str = "ibc",
        *,
        cache_nodes: int = 200_000,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        self.store = store
        self.name = name
        self.log = f"{name}/log"
        self.requests = 0
        self._nodes, self._orphans = f"{name}/nodes", f"{name}/orphans"
        self._versions, self._rows = f"{name}/versions", f"{name}/private"
        self._claims = Claims(store, number_of_life)
        self._owner: int | None = None
        self._seq = 0
        self._latest = _NOTHING
        self._lowest = 1
        self._dropped = 1
        """What was unused below this height is dropped."""
        self._revision = 0
        self._pending: _Pending | None = None
        self._queues: set[str] = set()
        self._cache_nodes = cache_nodes
        self._cache: dict[tuple[str, int, int], Node] = {}
        self._known: dict[int, Version] = {}

    # Opening.

    def open(self) -> Version:
        """Take the store over from whoever had it, and read its latest version; of a new store height 0."""
        made = self.store.create(self.log, 1, KEEP_ALL)
        if not isinstance(made, Created | Exists):
            raise self._error("make the log", made)
        claimed = self._claims.claim(self.log, "party", 1)
        if not isinstance(claimed, Owner):
            raise self._error("take the log over", claimed)
        opened = self.store.open_producer(self.log, "party", claimed.number, 1)
        if not isinstance(opened, ProducerOpened):
            raise self._error("open the log", opened)
        self._owner, self._seq = claimed.number, opened.last
        return self.open_to_read()

    def open_to_read(self) -> Version:
        """Read which version is the latest and which is the lowest that is kept. To be called again to see newer
        ones."""
        info = self.store.info(self.log)
        if not isinstance(info, StreamInfo):
            raise self._error("read the log", info)
        position = self.store.get(self.log, "party")
        if isinstance(position, Position):
            self._lowest = position.next
            self._dropped, _ = read_uvarint(position.state, 0)
            self._revision = position.revision
        elif not isinstance(position, NoPosition):
            raise self._error("read which versions are kept", position)
        self._latest = self._read_version(info.next - 1) if info.next > 1 else _NOTHING
        return self._latest

    # Reading.

    @property
    def latest(self) -> Version:
        """The version that the last commit or opening came to."""
        return self._latest

    @property
    def lowest(self) -> int:
        """The lowest height that is kept."""
        return self._lowest

    def version(self, height: int) -> Version:
        """Raises IbcRefused: ``pruned-height`` below what is kept, ``future-height`` above the latest."""
        if height == self._latest.height:
            return self._latest
        if height > self._latest.height:
            raise IbcRefused(
                "future-height", f"height {height}: the latest is {self._latest.height}"
            )
        if height < self._lowest:
            raise self._pruned(height)
        if height not in self._known:
            self._known[height] = self._read_version(height)
        return self._known[height]

    def get(self, space: str, key: bytes, height: int | None = None) -> bytes | None:
        """The value at a height, or None."""
        version = self._at(height)
        self._warm(space, version, [key])
        return self._tree(space, version).get(key)

    def scan(
        self,
        space: str,
        start: bytes,
        stop: bytes | None,
        height: int | None = None,
        limit: int = 1000,
    ) -> list[tuple[bytes, bytes]]:
        """The first keys of a range with their values, in order, at a height."""
        rows = self._tree(space, self._at(height)).scan(start, stop)
        return [row for row, _ in zip(rows, range(limit), strict=False)]

    def row(self, key: bytes) -> bytes | None:
        """A row outside the trees, or None."""
        return self._read(self._rows, [key])[0]

    def prove(self, space: str, keys: Sequence[bytes], height: int | None = None) -> MerkleProof:
        """For each key the proof that it is there, or that it isn't, in one chain up to the root of the height: a
        plain proof of one key, a compressed batch of several. Raises IbcRefused ``empty-tree`` where absence can't
        be shown because nothing is there."""
        version = self._at(height)
        if not keys or space not in version.trees:
            raise IbcRefused(
                "empty-tree", f"space {space!r} has nothing to prove at height {version.height}"
            )
        self._warm(space, version, keys)
        tree = self._tree(space, version)
        entries = [self._prove(tree, space, key) for key in keys]
        inner = entries[0] if len(entries) == 1 else compress(BatchProof(tuple(entries)))
        return inner, prove_in_map(_by_bytes(version.roots), space.encode())

    @staticmethod
    def _prove(tree: IavlTree, space: str, key: bytes) -> ExistenceProof | NonExistenceProof:
        found = tree.prove(key) or tree.prove_absence(key)
        if found is None:
            raise IbcRefused(
                "empty-tree", f"space {space!r} is empty, so no neighbours show what isn't there"
            )
        return found

    def blocks(self, first: int = 1) -> Iterator[BlockRecord]:
        """The records of the log from a height on."""
        index = first
        while index <= self._latest.height:
            found = self.store.read(self.log, index, 1000, 8 << 20)
            if not isinstance(found, Batch):
                raise self._error(f"read block {index}", found)
            for run in found.entries:
                yield from (BlockRecord.decode(payload) for payload in run.payloads)
            index = found.next

    # Writing.

    def begin(self) -> Working:
        """Open a block on the latest version."""
        self.settle()
        return Working(self._latest, self._tree)

    def commit(self, working: Working, time_ms: int) -> Version:
        """Close the block. When this raises StoreUnavailable it is stored or not, and ``settle`` says so later."""
        self.settle()
        if not working.is_open or working.base.height != self._latest.height:
            raise MisuseError("this block was begun on another version; begin it anew")
        for append in working.appends:
            self._make_queue(append.queue)
        working.is_open = False
        self._pending = self._prepare(working, time_ms)
        return self.settle()

    def replay(self, record: BlockRecord) -> Version:
        """Do what a block of another store did. Raises IbcRefused ``replay-mismatch`` when another root would come
        of it; nothing is stored then."""
        working = self.begin()
        for operation in record.operations:
            if not operation.space:
                working.put_row(operation.key, operation.value)
            elif operation.value is None:
                working.delete(operation.space, operation.key)
            else:
                working.set(operation.space, operation.key, operation.value)
        working.appends += record.appends
        for append in record.appends:
            self._make_queue(append.queue)
        pending = self._prepare(working, record.time_ms)
        if (pending.version.height, pending.version.root) != (record.height, record.root):
            raise IbcRefused(
                "replay-mismatch",
                f"block {record.height} came to {record.root.hex()}, and now block {pending.version.height} to "
                f"{pending.version.root.hex()}",
            )
        self._pending = pending
        return self.settle()

    def settle(self) -> Version:
        """Repeat the commit whose answer was lost, if there is one. The latest version, that one included."""
        if self._pending is None:
            return self._latest
        outcome: object = None
        for _ in range(TRIES):
            self.requests += 1
            outcome = self.store.ask(self._pending.request)
            if isinstance(outcome, AllDone):
                return self._done(self._pending, outcome.outcomes[0])
            if isinstance(outcome, NoneDone | Failed):
                self._pending = None
                break
        raise self._error("commit a block", outcome)

    def _done(self, pending: _Pending, stored: object) -> Version:
        assert isinstance(stored, Stored)
        height = pending.version.height
        if stored.first_index not in (None, height):
            raise StoreReset(
                f"{called(self.store)}: block {height} became entry {stored.first_index} of {self.log!r}: the "
                "log lost or gained entries"
            )
        self._pending = None
        self._seq = stored.last
        self._latest = pending.version
        for space, node in pending.made:
            self._keep(space, thin(node))
        return self._latest

    def _prepare(self, working: Working, time_ms: int) -> _Pending:
        if self._owner is None:
            raise MisuseError("this store was opened to read; open() it to commit")
        height, trees = self._latest.height + 1, dict(self._latest.trees)
        made: list[tuple[str, Node]] = []
        unused: list[bytes] = []
        for space, tree in working.trees.items():
            old = tree.committed
            if tree.root is old:
                continue
            new = tree.commit()
            trees[space] = None if tree.root is None else ref_to(tree.root)
            made += [(space, node) for node in new]
            gone = unused_since(old, tree.root, new, lambda ref, s=space: self.load(s, ref))  # type: ignore[misc]
            unused += [_node_key(space, ref) for ref in gone]
        version = Version(height, time_ms, _root_over(trees), trees)
        record = BlockRecord(
            height, time_ms, tuple(working.operations), tuple(working.appends), version.root
        )
        run = AppendRun(self.log, "party", self._owner, self._seq + 1, (record.encode(),))
        request = Together((run, *self._writes(version, made, unused, working)), is_decided=True)
        return _Pending(version, request, tuple(made))

    def _writes(
        self,
        version: Version,
        made: Sequence[tuple[str, Node]],
        unused: Sequence[bytes],
        working: Working,
    ) -> Iterator[JoinedRequest]:
        at = version.height.to_bytes(8, "big")
        if made:
            yield PutValues(
                self._nodes, {_node_key(space, node): encode_node(node) for space, node in made}
            )
        if unused:
            yield PutValues(self._orphans, {at: _encode_keys(unused)})
        yield PutValues(self._versions, {at: _encode_version(version)})
        rows = {o.key: o.value for o in working.operations if not o.space}
        put = {key: value for key, value in rows.items() if value is not None}
        gone = [key for key, value in rows.items() if value is None]
        if put:
            yield PutValues(self._rows, put)
        if gone:
            yield DropValues(self._rows, gone)
        for append in working.appends:
            yield AppendRun(append.queue, "party", 1, append.first + 1, append.items)

    def _make_queue(self, queue: str) -> None:
        if queue not in self._queues:
            made = self.store.create(queue, 1, KEEP_ALL)
            if not isinstance(made, Created | Exists):
                raise self._error(f"make the stream {queue!r}", made)
            self._queues.add(queue)

    # Pruning.

    def prune(self, below_height: int) -> int:
        """Let heights below this one go; how many nodes were dropped.

        1. The height below which nothing may be read is stored. 2. Nodes go that only lower heights have. A crash
        in between leaves nodes that nobody needs, and the next call drops them.
        """
        self.settle()
        if self._owner is None:
            raise MisuseError("this store was opened to read; open() it to prune")
        lowest = min(max(below_height, self._lowest), self._latest.height)
        dropped = 0
        if lowest > self._lowest:
            self._move_window(lowest, self._dropped, ())
        self._known = {h: v for h, v in self._known.items() if h >= lowest}
        while self._dropped < lowest:
            heights = range(self._dropped, min(lowest, self._dropped + 256))
            rows = self._read(self._orphans, [(h + 1).to_bytes(8, "big") for h in heights])
            through, keys = self._dropped, list[bytes]()
            for row in rows:
                found = _decode_keys(row) if row else []
                if keys and len(keys) + len(found) > PRUNED_AT_ONCE:
                    break
                keys += found
                through += 1
            done = [h.to_bytes(8, "big") for h in range(self._dropped, through)]
            writes: list[JoinedRequest] = [
                DropValues(self._versions, done),
                DropValues(
                    self._orphans,
                    [(h + 1).to_bytes(8, "big") for h in range(self._dropped, through)],
                ),
            ]
            writes += [
                DropValues(self._nodes, keys[at : at + 50_000])
                for at in range(0, len(keys), 50_000)
            ]
            self._move_window(lowest, through, writes)
            dropped += len(keys)
        return dropped

    def _move_window(self, lowest: int, dropped: int, writes: Iterable[JoinedRequest]) -> None:
        assert self._owner is not None
        self._revision += 1
        commit = CommitPosition(
            self.log,
            "party",
            self._owner,
            1,
            lowest,
            None,
            uvarint(dropped),
            revision=self._revision,
        )
        self.requests += 1
        outcome = self.store.ask(Together((commit, *writes)))
        if not (isinstance(outcome, AllDone) and isinstance(outcome.outcomes[0], Committed)):
            raise self._error(f"prune below height {lowest}", outcome)
        self._lowest, self._dropped = lowest, dropped

    # Nodes and versions.

    def _at(self, height: int | None) -> Version:
        return self._latest if height is None else self.version(height)

    def _tree(self, space: str, version: Version) -> IavlTree:
        """A tree to work on, or to read."""
        root = version.trees.get(space)
        return IavlTree(root, version.height, lambda ref: self.load(space, ref))

    def load(self, space: str, ref: Ref) -> Node:
        """A node of a space; its children are references."""
        found = self._cache.get((space, ref.version, ref.number))
        if found is None:
            (found,) = self._fetch(space, [ref])
        return found

    def _fetch(self, space: str, refs: Sequence[Ref]) -> list[Node]:
        rows = self._read(self._nodes, [_node_key(space, ref) for ref in refs])
        return [self._decoded(space, ref, row) for ref, row in zip(refs, rows, strict=True)]

    def _decoded(self, space: str, ref: Ref, row: bytes | None) -> Node:
        if row is None:
            self._look_for_pruning()
            raise StoreReset(
                f"{called(self.store)}: node {ref.number} of version {ref.version} of space {space!r} is gone "
                "without being pruned: the store lost what it had acknowledged"
            )
        try:
            return self._keep(space, decode_node(row, ref))
        except ProofError as error:
            raise StoreReset(f"{called(self.store)}: space {space!r}: {error}") from error

    def _look_for_pruning(self) -> None:
        """Raises IbcRefused when the owner has pruned meanwhile, so that something is missing rightly."""
        position = self.store.get(self.log, "party")
        if isinstance(position, Position) and position.next > self._lowest:
            self._lowest = position.next
            raise self._pruned(self._lowest - 1)

    def _keep(self, space: str, node: Node) -> Node:
        if len(self._cache) >= self._cache_nodes:
            for key in list(self._cache)[: self._cache_nodes // 2 + 1]:
                del self._cache[key]  # the half that came first
        self._cache[space, node.version, node.number] = node
        return node

    def _warm(self, space: str, version: Version, keys: Sequence[bytes]) -> None:
        """Load the paths to all keys, one level of the tree with one request."""
        root = version.trees.get(space)
        level: list[tuple[Ref, Sequence[bytes]]] = [] if root is None else [(root, keys)]
        while level:
            missing = [
                ref for ref, _ in level if (space, ref.version, ref.number) not in self._cache
            ]
            fetched = self._fetch(space, missing) if missing else []
            fresh = {(node.version, node.number): node for node in fetched}
            below: list[tuple[Ref, Sequence[bytes]]] = []
            for ref, wanted in level:
                node = fresh.get((ref.version, ref.number)) or self.load(space, ref)
                if isinstance(node, Inner):
                    left = [key for key in wanted if key < node.key]
                    right = [key for key in wanted if key >= node.key]
                    below += [(ref_to(node.left), left)] if left else []
                    below += [(ref_to(node.right), right)] if right else []
            level = below

    def _read_version(self, height: int) -> Version:
        (row,) = self._read(self._versions, [height.to_bytes(8, "big")])
        if row is None:
            self._look_for_pruning()
            raise StoreReset(
                f"{called(self.store)}: {self.log!r} has block {height}, and no version was stored with it: they "
                "were written as one, so the store lost a part"
            )
        return _decode_version(row, height)

    def _read(self, table: str, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        self.requests += 1
        found = self.store.ask(ReadKeys(table, keys))
        if not isinstance(found, FoundValues):
            raise self._error(f"read {table!r}", found)
        return found.values

    def _pruned(self, height: int) -> IbcRefused:
        return IbcRefused(
            "pruned-height", f"height {height}: the lowest that is kept is {self._lowest}"
        )

    def _error(self, what: str, outcome: object) -> Exception:
        text = f"{called(self.store)}: could not {what} of {self.name!r}"
        if isinstance(outcome, NoneDone):
            outcome = next(
                (each for each in outcome.outcomes if not isinstance(each, _FINE)), outcome
            )
        match outcome:
            case FencedOut(by):
                return Fenced(
                    f"{text}: another process has opened it since ({by}); it goes on there"
                )
            case Failed(reason) if "stored already" in reason or "does not exist" in reason:
                return StoreReset(f"{text}: {reason}")
            case Failed(reason):
                return ConfigurationError(f"{text}: {reason}")
            case Unavailable():
                return StoreUnavailable(
                    f"{text}: no answer ({outcome}); it is done or not, ask again"
                )
            case _:
                return StoreReset(f"{text}: the store lost what it had acknowledged ({outcome})")


def _by_bytes(roots: Mapping[str, bytes]) -> dict[bytes, bytes]:
    return {space.encode(): root for space, root in roots.items()}


def _root_over(trees: Mapping[str, Ref | None]) -> bytes:
    return simple_map_root(
        {s.encode(): ref.hash if ref else EMPTY_ROOT for s, ref in trees.items()}
    )


def _node_key(space: str, ref: Child) -> bytes:
    return space.encode() + b"\0" + ref.version.to_bytes(8, "big") + ref.number.to_bytes(4, "big")


def _encode_keys(keys: Sequence[bytes]) -> bytes:
    return b"".join([uvarint(len(key)) + key for key in keys])


def _decode_keys(data: bytes) -> list[bytes]:
    keys, at = list[bytes](), 0
    while at < len(data):
        length, at = read_uvarint(data, at)
        keys.append(data[at : at + length])
        at += length
    return keys


def _encode_version(version: Version) -> bytes:
    parts = [_FORMAT, uvarint(version.time_ms), uvarint(len(version.trees))]
    for space, ref in sorted(version.trees.items()):
        parts += [uvarint(len(space)), space.encode(), b"\1" + encode_ref(ref) if ref else b"\0"]
    return b"".join(parts)


def _decode_version(data: bytes, height: int) -> Version:
    if data[:1] != _FORMAT:
        raise StoreReset(f"version {height} is of a format that this release can't read")
    time_ms, at = read_uvarint(data, 1)
    count, at = read_uvarint(data, at)
    trees: dict[str, Ref | None] = {}
    for _ in range(count):
        length, at = read_uvarint(data, at)
        space, at = data[at : at + length].decode(), at + length
        has_root, at = data[at], at + 1
        trees[space], at = decode_ref(data, at) if has_root else (None, at)
    return Version(height, time_ms, _root_over(trees), trees)
