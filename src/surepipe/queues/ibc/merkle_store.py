"""The Merkle store: a party's spaces, in versions, on any store that has streams and tables.

Each space is an IAVL tree, and a simple tree over their roots gives the one root of a height. A block is one
request to the store: the append of its record to the log decides, and the nodes, the rows outside the trees and
the streams of queues are written with it or not at all (storage S-16). So a crash leaves the version before or the
one after, and there is nothing in between to repair. The index of the record is the height.

One process commits: whoever opens the store last fences the one before. Any number of others may read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

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
    Kept,
    NoneDone,
    NoPosition,
    NoStream,
    Owner,
    Position,
    ProducerOpened,
    PutValues,
    ReadKeys,
    Store,
    Stored,
    StreamInfo,
    Together,
    Trimmed,
    Unavailable,
    Untouched,
    called,
)
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.ibc.headers import Client, client_changes, stored_client
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
PRUNED_BY_A_BLOCK = 200
"""Nodes that a block may always drop; a large one drops up to twice as many as it makes."""
LOOK_AHEAD = 64
"""Heights of which it is read at once what goes with them, and after which the log is trimmed."""
PRODUCER = "party"
"""Who writes into a party's own streams."""
KEEP_BYTES = 1 << 30
"""Of all nodes that versions need beside the latest."""
RECORD_LIMITS = ProofLimits(bytes_max=64 << 20, fields_max=1 << 20)
LEADS = (8, 16, 0)
"""What stands before a value in an item: a height, a height and an index, or nothing."""
SHORTENED_FROM = 16
"""Bytes; of shorter values a number would not be shorter."""
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
    """Items that a queue's stream gets, and the position of the first; positions count from 0. In a stream into
    which others write, too, a producer of its own tells them apart."""

    queue: str
    first: int
    items: tuple[bytes, ...]
    producer: str = PRODUCER


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
                "appends": self._shortened(),
                "root": self.root,
            },
        )

    def _shortened(self) -> Iterator[dict[str, object]]:
        """The appends. An item that ends with what an operation wrote has the number of that (from 1) for it."""
        places = {
            each.value: number
            for number, each in enumerate(self.operations, 1)
            if each.value is not None and len(each.value) >= SHORTENED_FROM
        }
        for append in self.appends:
            items, numbers = list[bytes](), list[int]()
            for item in append.items:
                lead = next((n for n in LEADS if item[n:] in places), len(item))
                items.append(item[:lead])
                numbers.append(places.get(item[lead:], 0))
            shown = {"queue": append.queue, "first": append.first, "items": items}
            if append.producer != PRODUCER:
                shown["producer"] = append.producer
            yield {**shown, "operations": numbers if any(numbers) else ()}

    @staticmethod
    def decode(data: bytes) -> BlockRecord:
        """Raises ProofError."""
        values = decode("BlockRecord", data, RECORD_LIMITS)
        operations = tuple(
            Operation(o["space"], o["key"], None if o["delete"] else o["value"])
            for o in values["operations"]
        )
        written = (b"", *(each.value or b"" for each in operations))
        appends: list[QueueAppend] = []
        for each in values["appends"]:
            items: list[bytes] = each["items"]
            numbers: list[int] = each["operations"] or [0] * len(items)
            if len(numbers) != len(items) or any(number >= len(written) for number in numbers):
                raise ProofError("a block tells of an item by an operation that it hasn't")
            whole = [item + written[number] for item, number in zip(items, numbers, strict=True)]
            producer = each["producer"] or PRODUCER
            appends.append(QueueAppend(each["queue"], each["first"], tuple(whole), producer))
        return BlockRecord(
            values["height"], values["time_ms"], operations, tuple(appends), values["root"]
        )


class Working:
    """A block that is open: reads see its own writes. A savepoint costs nothing; going back leaves no trace."""

    def __init__(self, base: Version, store: MerkleStore) -> None:
        self.base = base
        self.trees: dict[str, IavlTree] = {}
        self.operations: list[Operation] = []
        self.appends: list[QueueAppend] = []
        self.clients: dict[str, Client] = {}
        self.at_end: dict[tuple[str, bytes], bytes] = {}
        """Values that are written when the block is closed."""
        self.is_open = True
        self._rows: dict[bytes, bytes | None] = {}
        self._store = store

    def tree(self, space: str) -> IavlTree:
        """The open tree of a space, which is there with its first key."""
        if not self.is_open:
            raise MisuseError("this block was committed already; begin another one")
        if space not in self.trees:
            if not SPACE.fullmatch(space):
                raise MisuseError(
                    f"{space!r} is no name of a space: give up to 32 of a-z 0-9 _, a letter first"
                )
            self.trees[space] = self._store.tree(space, self.base)
        return self.trees[space]

    def get(self, space: str, key: bytes) -> bytes | None:
        """The value, or None."""
        waiting = self.at_end.get((space, key)) if self.at_end else None
        return self.tree(space).get(key) if waiting is None else waiting

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys of a range with their values, in order."""
        self._write_waiting(space, start, stop)
        return self.tree(space).scan(start, stop)

    def set(self, space: str, key: bytes, value: bytes) -> None:
        """Let the key have this value. Neither may be empty."""
        self.tree(space).set(key, value)
        self.operations.append(Operation(space, key, value))
        self.at_end.pop((space, key), None)

    def set_at_end(self, space: str, key: bytes, value: bytes) -> None:
        """The same for a key that changes often, such as a counter: it is written once, when the block is closed.
        Whoever reads it sees it before."""
        self.tree(space)
        self.at_end[space, key] = value

    def _write_waiting(self, space: str, start: bytes = b"", stop: bytes | None = None) -> None:
        """In the order of keys, as the order is part of the root."""
        waiting = sorted(
            key
            for of, key in self.at_end
            if of == space and start <= key and (stop is None or key < stop)
        )
        for key in waiting:
            self.set(space, key, self.at_end[space, key])

    def finish(self) -> None:
        """Write what waits for the end."""
        for space in sorted({space for space, _ in self.at_end}):
            self._write_waiting(space)

    def delete(self, space: str, key: bytes) -> None:
        """Remove the key; one that isn't there leaves no trace."""
        self.at_end.pop((space, key), None)
        if self.tree(space).delete(key):
            self.operations.append(Operation(space, key, None))

    def row(self, key: bytes) -> bytes | None:
        """A row outside the trees, or None."""
        return self._rows[key] if key in self._rows else self._store.row(key)

    def put_row(self, key: bytes, value: bytes | None) -> None:
        """Write a row outside the trees, with the block; None drops it."""
        self.operations.append(Operation("", key, value))
        self._rows[key] = value

    def client(self, party: str) -> Client | None:
        """What is believed of a party, to look at or to change; ``put_client`` keeps a change."""
        found = self.clients.get(party) or self._store.client(party)
        return found and found.copy()

    def put_client(self, client: Client) -> None:
        """Believe this of its party from now on: rows outside the trees, which are written with the block."""
        before = self.clients.get(client.party) or self._store.client(client.party)
        for key, value in client_changes(before, client):
            self.put_row(key, value)
        self.clients[client.party] = client.copy()

    def append(
        self, queue: str, first: int, items: Sequence[bytes], producer: str = PRODUCER
    ) -> None:
        """Add items to a queue's stream, with the block. ``first`` is the position of the first, from 0."""
        self.appends.append(QueueAppend(queue, first, tuple(items), producer))

    def savepoint(self) -> Savepoint:
        """Where to go back to."""
        roots = {space: tree.root for space, tree in self.trees.items()}
        numbers = len(self.operations), len(self.appends)
        return Savepoint(roots, *numbers, dict(self.clients), dict(self.at_end))

    def undo_to(self, savepoint: Savepoint) -> None:
        """Take back everything since then."""
        for space in [space for space in self.trees if space not in savepoint.roots]:
            del self.trees[space]
        for space, root in savepoint.roots.items():
            self.trees[space].root = root
        undone = self.operations[savepoint.operations :]
        del self.operations[savepoint.operations :], self.appends[savepoint.appends :]
        self.clients, self.at_end = dict(savepoint.clients), dict(savepoint.at_end)
        if not all(each.space for each in undone):
            self._rows = {each.key: each.value for each in self.operations if not each.space}


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What ``Working.undo_to`` goes back to."""

    roots: Mapping[str, Child | None]
    operations: int
    appends: int
    clients: Mapping[str, Client]
    at_end: Mapping[tuple[str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class _Window:
    """What is kept: heights from ``lowest`` on. Of the nodes that only lower ones have, those of heights below
    ``dropped`` are gone, and the first ``offset`` of the next."""

    lowest: int = 1
    dropped: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A block whose fate is unknown, or not asked for yet."""

    version: Version
    request: Together
    made: tuple[tuple[str, Node], ...] = field(repr=False)
    clients: Mapping[str, Client | None]
    """As they are with this block."""
    window: _Window | None
    """What is kept after it; None: as it was."""


class MerkleStore:
    """Versions of spaces, with proofs. ``open`` takes the store over; ``open_to_read`` takes nothing.

    The latest ``keep_heights`` versions are kept (None: all, until ``prune``), and those of the last ``keep_ms``
    before the latest, as far as the nodes that were made for them take about ``keep_bytes``. Each block drops some
    of what is older, in the same write, and the log is trimmed after it.

    All methods raise StoreUnavailable when the store doesn't answer, StoreReset when it lost what it had
    acknowledged, and ``commit`` Fenced when another process has opened it since.
    """

    def __init__(
        self,
        store: Store,
        name: str = "ibc",
        *,
        keep_heights: int | None = 256,
        keep_ms: int = 600_000,
        keep_bytes: int = KEEP_BYTES,
        cache_nodes: int = 200_000,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        if keep_heights is not None and keep_heights < 2:
            raise MisuseError(
                f"keep_heights is {keep_heights}: give 2 or more, or None to keep all"
            )
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
        self._keep_heights, self._keep_ms, self._keep_bytes = keep_heights, keep_ms, keep_bytes
        self._sizes: deque[tuple[int, int]] = deque()
        """Heights that this process made, with the bytes of their nodes, and what these are together."""
        self._size = 0
        self.is_cut = False
        """Whether heights were let go because of what they took."""
        self._window = _Window()
        self._is_window_known = True
        self._going: dict[int, tuple[int, list[bytes]]] = {}
        """Of heights that may go next: the time, and the nodes that no higher one has."""
        self._trimmed = 1
        self._revision = 0
        self._pending: _Pending | None = None
        self._queues: set[str] = set()
        self._cache_nodes = cache_nodes
        self._cache: dict[tuple[str, int, int], Node] = {}
        self._known: dict[int, Version] = {}
        self._clients: dict[str, Client | None] = {}

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
        self._read_window()
        self._latest = self._read_version(info.next - 1) if info.next > 1 else _NOTHING
        self._clients = {}
        self._trimmed = info.earliest
        return self._latest

    def _read_window(self) -> None:
        position = self.store.get(self.log, "party")
        if isinstance(position, Position):
            dropped, at = read_uvarint(position.state, 0)
            offset, _ = read_uvarint(position.state, at) if at < len(position.state) else (0, at)
            self._window = _Window(position.next, dropped, offset)
            self._revision = position.revision
        elif not isinstance(position, NoPosition):
            raise self._error("read which versions are kept", position)
        self._going, self._is_window_known = {}, True

    # Reading.

    @property
    def latest(self) -> Version:
        """The version that the last commit or opening came to."""
        return self._latest

    @property
    def lowest(self) -> int:
        """The lowest height that is kept."""
        return self._window.lowest

    def version(self, height: int) -> Version:
        """Raises IbcRefused: ``pruned-height`` below what is kept, ``future-height`` above the latest."""
        if height == self._latest.height:
            return self._latest
        if height > self._latest.height:
            raise IbcRefused(
                "future-height", f"height {height}: the latest is {self._latest.height}"
            )
        if height < self.lowest:
            raise self._pruned(height)
        if height not in self._known:
            self._known[height] = self._read_version(height)
        return self._known[height]

    def get(self, space: str, key: bytes, height: int | None = None) -> bytes | None:
        """The value at a height, or None."""
        return self.tree(space, self._at(height)).get(key)

    def get_many(
        self, space: str, keys: Sequence[bytes], height: int | None = None
    ) -> list[bytes | None]:
        """The same of several keys, with one request for a level of the tree."""
        version = self._at(height)
        self._warm(space, version, keys)
        tree = self.tree(space, version)
        return [tree.get(key) for key in keys]

    def scan(
        self,
        space: str,
        start: bytes,
        stop: bytes | None,
        height: int | None = None,
        limit: int = 1000,
    ) -> list[tuple[bytes, bytes]]:
        """The first keys of a range with their values, in order, at a height."""
        version = self._at(height)
        self._warm_range(space, version, start, stop, limit)
        rows = self.tree(space, version).scan(start, stop)
        return [row for row, _ in zip(rows, range(limit), strict=False)]

    def row(self, key: bytes) -> bytes | None:
        """A row outside the trees, or None."""
        return self._read(self._rows, [key])[0]

    def client(self, party: str) -> Client | None:
        """What is believed of a party as of the latest version, or None; a change is kept by a block only."""
        if party not in self._clients:
            try:
                found = stored_client(party, lambda keys: self._read(self._rows, keys))
            except (ProofError, MisuseError) as error:
                raise StoreReset(f"{called(self.store)}: {error}") from error
            self._clients[party] = found
        return self._clients[party]

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
        tree = self.tree(space, version)
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
        """The records of the log from a height on. Raises IbcRefused ``pruned-height`` where it was trimmed."""
        index = first
        while index <= self._latest.height:
            found = self.store.read(self.log, index, 1000, 8 << 20)
            if isinstance(found, Trimmed):
                raise self._pruned(index)
            if not isinstance(found, Batch):
                raise self._error(f"read block {index}", found)
            for run in found.entries:
                yield from (BlockRecord.decode(payload) for payload in run.payloads)
            index = found.next

    def replayed(self) -> Iterator[tuple[BlockRecord, bytes]]:
        """The kept blocks, each with the root that it comes to when it is done again. They are done from nothing
        while the log is whole, else on the lowest version that is kept, whose nodes have its root."""
        info = self.store.info(self.log)
        if not isinstance(info, StreamInfo):
            raise self._error("read the log", info)
        version = _NOTHING if info.earliest == 1 else self.version(self.lowest)
        trees, roots = dict[str, IavlTree](), version.roots
        for record in self.blocks(version.height + 1):
            for each in record.operations:
                if not each.space:
                    continue
                tree = trees.setdefault(each.space, self.tree(each.space, version))
                tree.version = record.height - 1
                if each.value is None:
                    tree.delete(each.key)
                else:
                    tree.set(each.key, each.value)
            for space, tree in trees.items():
                if tree.root is not tree.committed:
                    tree.commit()
                    roots[space] = tree.root_hash
            yield record, simple_map_root(_by_bytes(roots))

    # Writing.

    def begin(self) -> Working:
        """Open a block on the latest version."""
        self.settle()
        return Working(self._latest, self)

    def commit(self, working: Working, time_ms: int) -> Version:
        """Close the block. When this raises StoreUnavailable it is stored or not, and ``settle`` says so later."""
        self.settle()
        if not working.is_open or working.base.height != self._latest.height:
            raise MisuseError("this block was begun on another version; begin it anew")
        for append in working.appends:
            self._make_queue(append.queue)
        working.finish()
        working.is_open = (
            False  # also when it can't be stored now: its trees are closed and would change no more
        )
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
        pending = replace(self._prepare(working, record.time_ms), clients={})
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
            if isinstance(outcome, NoneDone) and any(isinstance(e, Kept) for e in outcome.outcomes):
                # A call of prune whose answer was lost has moved the window further: the block goes by itself.
                self._is_window_known = False
                self._pending = _without_pruning(self._pending)
                continue
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
        self._latest, self._clients = pending.version, dict(pending.clients)
        for space, node in pending.made:
            self._keep(space, thin(node))
        if pending.window is not None:
            self._move_to(pending.window)
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
        nodes = {_node_key(space, node): encode_node(node) for space, node in made}
        writes = self._writes(version, nodes, unused, working)
        self._sizes.append((height, sum(map(len, nodes.values()))))
        self._size += self._sizes[-1][1]
        window, pruned = self._prune_beside(version, len(made))
        request = Together((run, *writes, *pruned), is_decided=True)
        clients = {**self._clients, **working.clients}
        return _Pending(version, request, tuple(made), clients, window)

    def _writes(
        self,
        version: Version,
        nodes: Mapping[bytes, bytes],
        unused: Sequence[bytes],
        working: Working,
    ) -> Iterator[JoinedRequest]:
        at = _at_height(version.height)
        if nodes:
            yield PutValues(self._nodes, nodes)
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
            yield AppendRun(append.queue, append.producer, 1, append.first + 1, append.items)

    def _make_queue(self, queue: str) -> None:
        if queue not in self._queues:
            made = self.store.create(queue, 1, KEEP_ALL)
            if not isinstance(made, Created | Exists):
                raise self._error(f"make the stream {queue!r}", made)
            self._queues.add(queue)

    # Pruning.

    def prune(self, below_height: int) -> int:
        """Let heights below this one go; how many nodes were dropped.

        Each step stores the height below which nothing may be read, and drops nodes that only lower heights have.
        A crash in between leaves nodes that nobody needs; the next call, or the next blocks, go on there.
        """
        self.settle()
        if self._owner is None:
            raise MisuseError("this store was opened to read; open() it to prune")
        if not self._is_window_known:
            self._read_window()
        lowest = min(max(below_height, self.lowest), self._latest.height)
        dropped = 0
        while self._window.dropped < lowest:
            window, keys = self._step(lowest, PRUNED_AT_ONCE)
            self.requests += 1
            outcome = self.store.ask(Together(tuple(self._pruning(window, keys))))
            if not (isinstance(outcome, AllDone) and isinstance(outcome.outcomes[0], Committed)):
                self._is_window_known = False
                raise self._error(f"prune below height {lowest}", outcome)
            self._move_to(window)
            dropped += len(keys)
        return dropped

    def _prune_beside(self, version: Version, made: int) -> tuple[_Window, Sequence[JoinedRequest]]:
        """What goes with a block that makes so many nodes; nothing when the store doesn't say what may go."""
        try:
            if self._keep_heights is None or self._keep_heights > version.height:
                return self._window, ()
            if not self._is_window_known:
                self._read_window()
            lowest = self.lowest
            last = min(version.height - self._keep_heights, self._window.dropped + LOOK_AHEAD)
            while lowest <= last and version.time_ms - self._goes_with(lowest)[0] >= self._keep_ms:
                lowest += 1
            lowest = max(lowest, min(self._lowest_by_size(), last + 1))
            if self._window.dropped == lowest:
                return self._window, ()
            window, keys = self._step(lowest, min(max(PRUNED_BY_A_BLOCK, 2 * made), PRUNED_AT_ONCE))
        except StoreUnavailable:
            return self._window, ()
        return window, tuple(self._pruning(window, keys))

    def _lowest_by_size(self) -> int:
        """From which height on nodes take no more than they may, as far as this process made them."""
        while self._sizes and self._sizes[0][0] < self._window.lowest:
            self._size -= self._sizes.popleft()[1]
        lowest, size = self._window.lowest, self._size
        for height, each in self._sizes:
            if size <= self._keep_bytes:
                break
            lowest, size = height + 1, size - each
        self.is_cut |= lowest > self._window.lowest
        return lowest

    def _step(self, lowest: int, nodes_max: int) -> tuple[_Window, list[bytes]]:
        """Where the window stands after so many nodes were dropped, or fewer, and the keys of these."""
        dropped, offset, keys = self._window.dropped, self._window.offset, list[bytes]()
        last = min(lowest, dropped + LOOK_AHEAD)
        while dropped < last and len(keys) < nodes_max:
            _, going = self._goes_with(dropped)
            part = going[offset : offset + nodes_max - len(keys)]
            keys += part
            offset += len(part)
            if offset == len(going):
                dropped, offset = dropped + 1, 0
        return _Window(lowest, dropped, offset), keys

    def _pruning(self, window: _Window, keys: Sequence[bytes]) -> Iterator[JoinedRequest]:
        assert self._owner is not None
        self._revision += 1
        state = uvarint(window.dropped) + uvarint(window.offset)
        yield CommitPosition(
            self.log, "party", self._owner, 1, window.lowest, None, state, revision=self._revision
        )
        heights = range(self._window.dropped, window.dropped)
        if heights:
            yield DropValues(self._versions, [_at_height(h) for h in heights])
            yield DropValues(self._orphans, [_at_height(h + 1) for h in heights])
        if keys:
            yield DropValues(self._nodes, keys)

    def _goes_with(self, height: int) -> tuple[int, list[bytes]]:
        """The time of a height, and the keys of the nodes that no higher one has."""
        if height not in self._going:
            heights = range(height, min(height + LOOK_AHEAD, self._latest.height))
            times = self._read(self._versions, [_at_height(h) for h in heights])
            rows = self._read(self._orphans, [_at_height(h + 1) for h in heights])
            for each, version, row in zip(heights, times, rows, strict=True):
                if version is None:
                    raise self._lost_version(each)
                time_ms, _ = read_uvarint(version, 1)
                self._going[each] = time_ms, _decode_keys(row) if row else []
        return self._going[height]

    def _move_to(self, window: _Window) -> None:
        for height in range(self._window.lowest, window.lowest):
            self._known.pop(height, None)
        for height in range(self._window.dropped, window.dropped):
            self._going.pop(height, None)
        self._window = window
        if window.lowest >= self._trimmed + LOOK_AHEAD:
            self.store.trim(
                self.log, window.lowest
            )  # what can't go now goes the next time: nobody reads it
            self._trimmed = window.lowest

    # Nodes and versions.

    def _at(self, height: int | None) -> Version:
        return self._latest if height is None else self.version(height)

    def tree(self, space: str, version: Version) -> IavlTree:
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
        lowest = self.lowest
        self._read_window()
        if self.lowest > lowest:
            raise self._pruned(self.lowest - 1)

    def _keep(self, space: str, node: Node) -> Node:
        if len(self._cache) >= self._cache_nodes:
            for key in list(self._cache)[: self._cache_nodes // 2 + 1]:
                del self._cache[key]  # the half that came first
        self._cache[space, node.version, node.number] = node
        return node

    def _loaded(self, space: str, refs: Sequence[Ref]) -> list[Node]:
        """These nodes; those that aren't in memory by one request."""
        missing = [ref for ref in refs if (space, ref.version, ref.number) not in self._cache]
        fetched = self._fetch(space, missing) if missing else []
        fresh = {(node.version, node.number): node for node in fetched}
        return [fresh.get((ref.version, ref.number)) or self.load(space, ref) for ref in refs]

    def _warm(self, space: str, version: Version, keys: Sequence[bytes]) -> None:
        """Load the paths to all keys, one level of the tree with one request."""
        root = version.trees.get(space)
        level: list[tuple[Ref, Sequence[bytes]]] = [] if root is None else [(root, keys)]
        while level:
            nodes = self._loaded(space, [ref for ref, _ in level])
            below: list[tuple[Ref, Sequence[bytes]]] = []
            for node, (_, wanted) in zip(nodes, level, strict=True):
                if isinstance(node, Inner):
                    left = [key for key in wanted if key < node.key]
                    right = [key for key in wanted if key >= node.key]
                    below += [(ref_to(node.left), left)] if left else []
                    below += [(ref_to(node.right), right)] if right else []
            level = below

    def _warm_range(
        self, space: str, version: Version, start: bytes, stop: bytes | None, limit: int
    ) -> None:
        """Load what the first keys of a range need, in the same way."""
        root = version.trees.get(space)
        level = [] if root is None else [root]
        while level:
            below: list[Ref] = []
            for node in self._loaded(space, level):
                if isinstance(node, Inner):
                    below += [ref_to(node.left)] if start < node.key else []
                    below += [ref_to(node.right)] if stop is None or node.key < stop else []
            level, count = below[:1], 0  # of the first one all may lie before the range
            for ref in below[1:]:
                if count >= limit:
                    break
                level.append(ref)
                count += ref.size

    def _read_version(self, height: int) -> Version:
        (row,) = self._read(self._versions, [_at_height(height)])
        if row is None:
            self._look_for_pruning()
            raise self._lost_version(height)
        return _decode_version(row, height)

    def _lost_version(self, height: int) -> StoreReset:
        return StoreReset(
            f"{called(self.store)}: {self.log!r} has block {height}, and no version was stored with it: they "
            "were written as one, so the store lost a part"
        )

    def _read(self, table: str, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        self.requests += 1
        found = self.store.ask(ReadKeys(table, keys))
        if not isinstance(found, FoundValues):
            raise self._error(f"read {table!r}", found)
        return found.values

    def _pruned(self, height: int) -> IbcRefused:
        return IbcRefused(
            "pruned-height", f"height {height}: the lowest that is kept is {self.lowest}"
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
            case NoStream(reason):
                return StoreReset(f"{text}: {reason}")
            case Failed(reason) if "stored already" in reason:
                return StoreReset(f"{text}: {reason}")
            case Failed(reason):
                return ConfigurationError(f"{text}: {reason}")
            case Unavailable():
                return StoreUnavailable(
                    f"{text}: no answer ({outcome}); it is done or not, ask again"
                )
            case _:
                return StoreReset(f"{text}: the store lost what it had acknowledged ({outcome})")


def _without_pruning(pending: _Pending) -> _Pending:
    """The block alone. What prunes begins with the only commit of a position."""
    parts = pending.request.requests
    alone = tuple(takewhile(lambda part: not isinstance(part, CommitPosition), parts))
    return replace(pending, request=Together(alone, is_decided=True), window=None)


def _at_height(height: int) -> bytes:
    return height.to_bytes(8, "big")


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
