"""A party's ledger as anybody may read it: headers, connections, queues and proofs, from the store alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surepipe.core.store_requests import Batch, Store, StreamInfo, Trimmed, Unavailable, called
from surepipe.errors import StoreReset, StoreUnavailable
from surepipe.queues.ibc.headers import Client, SignedHeader
from surepipe.queues.ibc.keys import GENESIS_KEY, Part, QueueKey, QueueKind
from surepipe.queues.ibc.merkle_store import IbcRefused, MerkleStore
from surepipe.queues.ibc.proof import MerkleProof
from surepipe.queues.ibc.queue import SPACE
from surepipe.queues.ibc.transitions import CONNECTIONS_ROW, Connection, connections_of

HEADERS = "ibc/headers"
PAGE = 256
"""So many entries are read at once."""
KNOWN_MAX = 4_096
"""So many headers are kept in memory."""


def inbox_of(relayer: str) -> str:
    """The stream that a relay writes into, and the name of the store beside a party's that has it."""
    return f"ibc/inbox/{relayer}"


RELAYERS_ROW = b"relayers"
"""The row that says which relays have had an inbox, so that an audit finds all of them."""


def relayers_of(row: bytes | None) -> tuple[str, ...]:
    """The relays that a row names; the default one, where a party was never served with a word of it."""
    return tuple((row or b"relay").decode().split("\n"))


@dataclass(frozen=True, slots=True)
class Counters:
    """Of a queue at a height."""

    head: int
    tail: int


class Ledger:
    """One party as its store shows it. ``refresh`` looks for newer blocks. All methods raise StoreUnavailable,
    StoreReset, and IbcRefused ``pruned-height`` for a height that is gone."""

    def __init__(self, store: Store, *, cache_nodes: int = 200_000) -> None:
        self.store = store
        self.merkle = MerkleStore(store, cache_nodes=cache_nodes)
        self.height = 0
        """The newest that is signed."""
        self.missing = ""
        """Why there is no party, as the store said."""
        self.connections: dict[str, Connection] = {}
        self._headers: dict[int, SignedHeader] = {}
        self._seen = 0

    def refresh(self) -> bool:
        """Look for newer blocks; whether there are any. With nothing new it costs one request."""
        info = self.store.info(HEADERS)
        if isinstance(info, Unavailable):
            raise self._error("read the headers", info)
        if not isinstance(info, StreamInfo):
            if self.height:
                raise StoreReset(f"{called(self.store)} lost all of {self.party}: {info}")
            self.missing = str(info)  # mostly that nobody has made the party yet
            return False
        if info.next - 1 == self.height:
            return False
        self.merkle.open_to_read()
        self.height = info.next - 1
        self.connections = connections_of(self.merkle.row(CONNECTIONS_ROW))
        return True

    def _error(self, what: str, outcome: object) -> Exception:
        return StoreUnavailable(f"{called(self.store)}: could not {what}: {outcome}")

    @property
    def party(self) -> str:
        """Whose ledger it is; empty while it has no block."""
        return self.header(self.height).header.party if self.height else ""

    @property
    def relayers(self) -> tuple[str, ...]:
        """The relays that have an inbox here, or had one."""
        return relayers_of(self.merkle.row(RELAYERS_ROW))

    def header(self, height: int) -> SignedHeader:
        """The signed header of a height."""
        if height not in self._headers:
            found = self.store.read(HEADERS, height, 1, 1 << 20)
            if isinstance(found, Trimmed):
                raise IbcRefused("pruned-height", f"header {height} isn't kept any more")
            if not isinstance(found, Batch) or not found.entries:
                raise self._error(f"read header {height}", found)
            if len(self._headers) >= KNOWN_MAX:
                del self._headers[min(self._headers)]
            self._headers[height] = SignedHeader.decode(found.entries[0].payloads[0])
        return self._headers[height]

    def time_ms(self, height: int) -> int:
        """Of a block."""
        return self.header(height).header.time_ms

    def get(self, key: QueueKey, height: int) -> bytes | None:
        """What the queues' space has under a key at a height."""
        return self.merkle.get(SPACE, key.encode(), height)

    def counters(self, connection: str, queue: QueueKind, height: int) -> Counters:
        """Head and tail of a queue at a height."""
        found = [self.get(QueueKey(connection, queue, part), height) for part in ("head", "tail")]
        if None in found:
            return Counters(0, 0)
        head, tail = (int.from_bytes(each or b"", "big") for each in found)
        return Counters(head, tail)

    def entries(
        self,
        connection: str,
        queue: QueueKind,
        first: int,
        end: int,
        height: int,
        *,
        part: Part = "entry",
        limit: int = PAGE,
    ) -> dict[int, bytes]:
        """The first entries from an index on, by index, at a height."""
        if first >= end:
            return {}
        start, stop = (QueueKey(connection, queue, part, each).encode() for each in (first, end))
        rows = self.merkle.scan(SPACE, start, stop, height, limit)
        return {int.from_bytes(key[-8:], "big"): value for key, value in rows}

    def pages(
        self, connection: str, queue: QueueKind, first: int, end: int, height: int
    ) -> Iterator[dict[int, bytes]]:
        """All entries of a span, some hundreds at a time; no page is empty."""
        while page := self.entries(connection, queue, first, end, height):
            yield page
            first = max(page) + 1

    def beside(
        self,
        connection: str,
        queue: QueueKind,
        page: Mapping[int, bytes],
        height: int,
        part: Part = "entry",
    ) -> dict[int, bytes]:
        """All entries of another queue from the first index of a page to its last."""
        first, end = min(page), max(page) + 1
        return self.entries(connection, queue, first, end, height, part=part, limit=end - first)

    def items(
        self, stream: str, first: int, count: int, store: Store | None = None
    ) -> Iterator[bytes]:
        """Items of a queue's stream from a position (from 0) on; of another store's where one is given."""
        store = store or self.store
        index, end = first + 1, first + 1 + count
        while index < end:
            found = store.read(stream, index, end - index, 4 << 20)
            if isinstance(found, Unavailable):
                raise StoreUnavailable(
                    f"{called(store)}: could not read item {index} of {stream!r}: {found}"
                )
            if not isinstance(found, Batch):
                raise StoreReset(f"{called(store)}: item {index} of {stream!r} is gone: {found}")
            for run in found.entries:
                yield from run.payloads
            index = found.next

    def body(self, connection: str, index: int) -> bytes:
        """The bytes of a message, from its stream."""
        return self.item_body(f"ibc/{connection}/send", index)

    def item_body(self, stream: str, index: int) -> bytes:
        """The bytes of an item, without the height that it was stored at."""
        return next(self.items(stream, index, 1))[8:]

    def pushed_at_ms(self, connection: str, index: int) -> int:
        """When a message was sent, by the time of its block."""
        item = next(self.items(f"ibc/{connection}/send", index, 1))
        height = min(int.from_bytes(item[:8], "big"), self.height)
        info = self.store.info(HEADERS)
        first = info.earliest if isinstance(info, StreamInfo) else 1
        return self.time_ms(max(height, first))  # trimmed: as old as the oldest header at the least

    def prove(self, keys: list[QueueKey], height: int) -> MerkleProof:
        """The proof of all these keys at a height."""
        return self.merkle.prove(SPACE, [key.encode() for key in keys], height)

    def client(self, party: str) -> Client | None:
        """What it believes of another party."""
        return self.merkle.client(party)

    def is_of(self, party: str) -> bool:
        """Whether the store is this party's."""
        return self.merkle.get(SPACE, GENESIS_KEY, self.height) == b"\1" + party.encode()
