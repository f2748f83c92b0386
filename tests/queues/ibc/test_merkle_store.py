"""The Merkle store on every kind of store: versions, proofs, pruning, crashes, two processes, and replay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import TypeAlias, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.core.store_requests import (
    FoundValues,
    LoadTable,
    ReadKeys,
    Store,
    TableRows,
    Together,
)
from surepipe.errors import Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.ibc.headers import Client, ClientStatus, TrustRoot, client_changes, update_to
from surepipe.queues.ibc.iavl import Inner, ref_to
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_chained, verify_items
from surepipe.queues.ibc.merkle_store import (
    BlockRecord,
    IbcRefused,
    MerkleStore,
    Operation,
    QueueAppend,
    Version,
    Working,
)
from surepipe.queues.ibc.proof import ProofError
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.queues.ibc.wire import encode
from surepipe.storage.memory import MemoryStore
from tests.kit.book import Death
from tests.kit.headers import Chain
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.queues.book.test_book_crashes import Troubled
from tests.queues.ibc.test_headers import PERIOD
from tests.storage.sqlite_bench import SqliteBench

Bench: TypeAlias = MemoryBench | SqliteBench | RedisBench
Content: TypeAlias = dict[tuple[str, bytes], bytes]
LIVES = itertools.count(1)
EAST = Chain()
STORY = 6


def opened(
    store: Store,
    *,
    cache_nodes: int = 200_000,
    keep_heights: int | None = 256,
    keep_ms: int = 0,
    keep_bytes: int = 1 << 30,
) -> MerkleStore:
    """A process opens it; each begins later than those before."""
    merkle = MerkleStore(
        store,
        keep_heights=keep_heights,
        keep_ms=keep_ms,
        keep_bytes=keep_bytes,
        cache_nodes=cache_nodes,
        number_of_life=lambda: next(LIVES) << 20,
    )
    merkle.open()
    return merkle


def written(merkle: MerkleStore, *changes: str, time_ms: int = 1) -> Version:
    """A block with changes such as ``bank/a=1`` and ``-bank/a``."""
    working = merkle.begin()
    for change in changes:
        space, _, rest = change.removeprefix("-").partition("/")
        key, _, value = rest.partition("=")
        if change.startswith("-"):
            working.delete(space, key.encode())
        else:
            working.set(space, key.encode(), value.encode())
    return merkle.commit(working, time_ms)


def table(store: Store, name: str) -> dict[bytes, bytes]:
    """All rows of a table."""
    rows, after = dict[bytes, bytes](), cast("bytes | None", b"")
    while after is not None:
        found = store.ask(LoadTable(name, after, 1000))
        assert isinstance(found, TableRows)
        rows.update(found.pairs)
        after = found.after
    return rows


class Altered:
    """A store in which one table says something else."""

    def __init__(self, store: Store, altered: str, rows: Mapping[bytes, bytes | None]) -> None:
        self._store, self._altered, self._rows = store, altered, rows

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def ask(self, request: object) -> object:
        """Answer reads of the table by its other rows."""
        if isinstance(request, ReadKeys) and request.table == self._altered:
            return FoundValues([self._rows.get(key) for key in request.keys])
        return self._store.ask(request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def proves(
    merkle: MerkleStore, version: Version, space: str, key: bytes, value: bytes | None
) -> bool:
    """Whether the proof that it makes at a height shows this."""
    proof = merkle.prove(space, [key], version.height)
    return verify_chained(STORE_SPECS, version.root, proof, (space.encode(), key), value)


def test_versions_stay_as_they_were(any_bench: Bench) -> None:
    """I-11, IT-3: each height has its content, and proves it, also after another process opened the store."""
    merkle = opened(any_bench.store)
    first = written(merkle, "bank/a=1", "bank/b=2", "ibc/x=9")
    second = written(merkle, "bank/a=3", "-bank/b", time_ms=2)
    for store in (merkle, opened(any_bench.store)):
        assert store.latest == second
        assert [store.version(h).root for h in (1, 2)] == [first.root, second.root]
        assert store.get("bank", b"a", 1) == b"1"
        assert store.get("bank", b"a") == b"3"
        assert store.scan("bank", b"", None, 1) == [(b"a", b"1"), (b"b", b"2")]
        assert store.scan("bank", b"", None) == [(b"a", b"3")]
        assert proves(store, first, "bank", b"b", b"2")
        assert proves(store, second, "bank", b"b", None)
        assert not proves(store, second, "bank", b"b", b"2")
    assert second.roots["ibc"] == first.roots["ibc"]
    assert (second.height, second.time_ms) == (2, 2)


def test_many_keys_are_proven_in_one_batch(any_bench: Bench) -> None:
    """IB-105, IB-124: from nodes that are not in memory, with at most one request for a level of the tree."""
    merkle = opened(any_bench.store)
    working = merkle.begin()
    for number in range(500):
        working.set("ibc", b"%04d" % number, b"value")
    version = merkle.commit(working, 1)
    cold = opened(any_bench.store)
    keys = [b"%04d" % number for number in range(100, 200)]
    before = cold.requests
    proof = cold.prove("ibc", keys)
    height = version.trees["ibc"].height if version.trees["ibc"] else 0
    assert cold.requests - before <= height + 1
    for start, stop, limit, count in ((b"0250", b"0300", 1000, 50), (b"0301", None, 64, 64)):
        other = opened(any_bench.store)
        before = other.requests
        assert len(other.scan("ibc", start, stop, limit=limit)) == count
        assert other.requests - before <= height + 1
    items: list[tuple[bytes, bytes | None]] = [(key, b"value") for key in keys]
    assert all(verify_items(STORE_SPECS, version.root, proof, (b"ibc",), items))
    mixed = cold.prove("ibc", [b"0100", b"nothing"])
    assert verify_items(
        STORE_SPECS, version.root, mixed, (b"ibc",), [(b"nothing", None), (b"0100", b"value")]
    ) == [True, True]


def test_a_height_that_is_not_there_has_a_code(any_bench: Bench) -> None:
    """IB-7, IT-35: pruned below, future above, and nothing to show where nothing is."""
    merkle = opened(any_bench.store)
    for number in range(5):
        written(merkle, f"bank/a={number + 1}")
    merkle.prune(3)
    for height, code in ((2, "pruned-height"), (6, "future-height")):
        with pytest.raises(IbcRefused, match=code) as refused:
            merkle.prove("bank", [b"a"], height)
        assert refused.value.code == code
    with pytest.raises(IbcRefused, match="empty-tree"):
        merkle.prove("other", [b"a"])
    written(merkle, "-bank/a")
    with pytest.raises(IbcRefused, match="empty-tree"):
        merkle.prove("bank", [b"a"])


def test_pruning_keeps_what_is_kept_and_leaves_nothing_else(any_bench: Bench) -> None:
    """IT-35: every kept height has its content, and the table has the nodes of kept heights only."""
    merkle, random = opened(any_bench.store), Random(3)
    contents: list[Content] = [{}]
    for _ in range(14):
        contents.append(random_block(merkle, random, contents[-1]))
    assert merkle.prune(9) > 0
    assert merkle.prune(9) == 0
    fresh = opened(any_bench.store)
    assert fresh.lowest == 9
    for height in range(9, 15):
        assert content_of(fresh, height) == contents[height]
    reachable = {key for height in range(9, 15) for key in nodes_of(fresh, height)}
    assert set(table(any_bench.store, "ibc/nodes")) == reachable
    assert len(table(any_bench.store, "ibc/versions")) == 6
    assert {int.from_bytes(key, "big") for key in table(any_bench.store, "ibc/orphans")} <= set(
        range(10, 15)
    )


def check_nothing_is_left(merkle: MerkleStore) -> None:
    """The tables have the nodes and versions of kept heights, and nothing else."""
    kept = range(merkle.lowest, merkle.latest.height + 1)
    reachable = {key for height in kept for key in nodes_of(merkle, height)}
    assert set(table(merkle.store, "ibc/nodes")) == reachable
    heights = [int.from_bytes(key, "big") for key in table(merkle.store, "ibc/versions")]
    assert sorted(heights) == list(kept)


def test_blocks_prune_by_themselves(any_bench: Bench) -> None:
    """IB-109: the latest three heights are kept as they were, over restarts, with nothing beside them in the
    store, and the log goes with them."""
    merkle, random = opened(any_bench.store, keep_heights=3), Random(5)
    contents: list[Content] = [{}]
    for number in range(80):
        contents.append(random_block(merkle, random, contents[-1]))
        latest = merkle.latest.height
        assert merkle.lowest == max(1, latest - 2)
        if number % 9 == 0:
            check_nothing_is_left(merkle)
            assert all(content_of(merkle, h) == contents[h] for h in range(merkle.lowest, latest))
            merkle = opened(any_bench.store, keep_heights=3)
    with pytest.raises(IbcRefused, match="pruned-height"):
        list(merkle.blocks())
    assert [each.height for each in merkle.blocks(merkle.lowest)] == [78, 79, 80]


@pytest.mark.parametrize("keep", [None, 5])
def test_kept_blocks_come_to_their_roots_again(any_bench: Bench, keep: int | None) -> None:
    """I-12, IT-65: from nothing, or on the lowest version that is kept; what was altered comes to another root."""
    merkle, random, content = opened(any_bench.store, keep_heights=keep), Random(8), Content()
    for _ in range(80):
        content = random_block(merkle, random, content)
    reader = MerkleStore(any_bench.store)
    reader.open_to_read()
    found = list(reader.replayed())
    assert len(found) == (80 if keep is None else 4)
    assert all(record.root == root for record, root in found)
    assert found[-1][1] == merkle.latest.root
    altered = BlockRecord.decode(found[-1][0].encode())
    altered = replace(altered, operations=(*altered.operations, Operation("bank", b"x", b"y")))

    class OtherLog(MerkleStore):
        """Its last block has one operation more."""

        def blocks(self, first: int = 1) -> Iterator[BlockRecord]:
            for record in super().blocks(first):
                yield altered if record.height == altered.height else record

    other = OtherLog(any_bench.store)
    other.open_to_read()
    agrees = [record.root == root for record, root in other.replayed()]
    assert agrees == [*[True] * (len(found) - 1), False]


def test_younger_heights_than_the_age_are_kept() -> None:
    """IB-109: whichever keeps more, their number or their age in the time of blocks."""
    merkle = opened(MemoryStore(), keep_heights=3, keep_ms=100)
    for number in range(1, 30):
        written(merkle, f"bank/a={number}", time_ms=10 * number)
        assert merkle.lowest == max(1, number - 9)
    written(merkle, "bank/a=x", time_ms=10_000)
    assert merkle.lowest == 28
    with pytest.raises(MisuseError, match="2 or more"):
        MerkleStore(MemoryStore(), keep_heights=1)


def test_no_more_bytes_are_kept_than_may_be_whatever_their_age() -> None:
    """IB-109: values of a thousand bytes each, and room for ten; the latest heights are kept in any case."""
    merkle = opened(MemoryStore(), keep_heights=3, keep_ms=1_000_000, keep_bytes=10_000)
    for number in range(1, 40):
        written(merkle, f"bank/a={number % 10}" + "x" * 1_000, time_ms=number)
        assert number - merkle.lowest <= 10
    assert (merkle.lowest, merkle.is_cut) == (31, True)
    tight = opened(MemoryStore(), keep_heights=3, keep_ms=1_000_000, keep_bytes=1)
    for number in range(1, 20):
        written(tight, f"bank/a={number % 10}", time_ms=number)
    assert tight.lowest == 17


def test_what_a_large_block_leaves_goes_in_small_steps(any_bench: Bench) -> None:
    """IB-109: no block drops more than the bound, or twice what it makes, and in the end nothing is left. With no
    bound nothing goes but by hand."""
    merkle = opened(any_bench.store, keep_heights=2)
    working = merkle.begin()
    for number in range(700):
        working.set("bank", b"%03d" % number, b"v")
    merkle.commit(working, 1)
    working = merkle.begin()
    for number in range(1, 700):
        working.delete("bank", b"%03d" % number)
    merkle.commit(working, 2)
    rows, steps = len(table(any_bench.store, "ibc/nodes")), 0
    while rows > 3:
        assert steps < 20
        written(merkle, f"bank/000={steps}", time_ms=3)
        left = len(table(any_bench.store, "ibc/nodes"))
        assert rows - left < 200
        rows, steps = left, steps + 1
        if steps == 3:
            merkle = opened(any_bench.store, keep_heights=2)
    assert steps > 1399 // 200
    check_nothing_is_left(merkle)
    kept = opened(any_bench.store, keep_heights=None)
    lowest = kept.lowest
    for number in range(5):
        written(kept, f"bank/000={number}")
    assert kept.lowest == lowest
    kept.prune(kept.latest.height)
    check_nothing_is_left(kept)


def test_a_store_does_not_grow_by_messages_that_were_settled() -> None:
    """IT-25: a thousand go through a queue, and after the first fifty no table has grown."""
    memory = MemoryStore()
    merkle, sizes = opened(memory, keep_heights=4), list[int]()
    for number in range(1, 101):
        working = merkle.begin()
        queue = ProvableQueue(working, "west", "send")
        if not queue.exists:
            queue.init()
        for _ in range(10):
            queue.push(b"message")
        while queue.tail - queue.head > 10:
            queue.pop()
        merkle.commit(working, number)
        names = ("nodes", "orphans", "versions", "private")
        sizes.append(sum(len(table(memory, f"ibc/{name}")) for name in names))
    assert max(sizes[50:]) <= max(sizes[20:50]) + 3
    check_nothing_is_left(merkle)


def test_a_call_of_prune_that_was_not_answered_does_not_stop_blocks() -> None:
    """IB-109: its window is further than the one that is known, so the block goes without pruning; the next goes
    on from what the store has."""
    memory = MemoryStore()
    silent = Troubled(memory, 10**9, done=True, times=1, death=False)
    merkle = opened(cast("Store", silent), keep_heights=4)
    for number in range(6):
        written(merkle, f"bank/a={number}")
    silent._at = silent.writes + 1  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StoreUnavailable):
        merkle.prune(6)
    merkle._is_window_known = True  # it is done after it was read again  # pyright: ignore[reportPrivateUsage]
    assert written(merkle, "bank/a=6").height == 7
    assert written(merkle, "bank/a=7").height == 8
    assert merkle.lowest == 6
    check_nothing_is_left(merkle)


def random_block(merkle: MerkleStore, random: Random, before: Content) -> Content:
    """A block of random changes; what must be in the store afterwards."""
    working, content = merkle.begin(), dict(before)
    for _ in range(random.randint(1, 12)):
        space, key = random.choice(("bank", "ibc")), b"%d" % random.randrange(30)
        if random.random() < 0.3:
            working.delete(space, key)
            content.pop((space, key), None)
        else:
            content[space, key] = random.randbytes(3)
            working.set(space, key, content[space, key])
        if random.random() < 0.1:
            kept = working.savepoint()
            working.set("undone", b"k", b"v")
            working.delete("ibc", b"1")
            working.undo_to(kept)
    merkle.commit(working, merkle.latest.time_ms + 1)
    return content


def content_of(merkle: MerkleStore, height: int) -> Content:
    """Everything at a height."""
    version = merkle.version(height)
    return {
        (space, key): value
        for space in version.trees
        for key, value in merkle.scan(space, b"", None, height, limit=10_000)
    }


def nodes_of(merkle: MerkleStore, height: int) -> Iterator[bytes]:
    """The keys of the nodes that a height is made of."""
    for space, root in merkle.version(height).trees.items():
        waiting = [root] if root else []
        while waiting:
            ref = waiting.pop()
            yield (
                space.encode()
                + b"\0"
                + ref.version.to_bytes(8, "big")
                + ref.number.to_bytes(4, "big")
            )
            node = merkle.load(space, ref)
            if isinstance(node, Inner):
                waiting += [ref_to(node.left), ref_to(node.right)]


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_it_holds_what_a_dict_holds(seed: int) -> None:
    """I-11, I-12, IT-34: with a cache of few nodes; every version; replayed into another store the log gives the
    same roots."""
    random, memory = Random(seed), MemoryStore()
    merkle = opened(memory, cache_nodes=8)
    contents: list[Content] = [{}]
    for _ in range(8):
        contents.append(random_block(merkle, random, contents[-1]))
        if random.random() < 0.2:
            merkle = opened(memory, cache_nodes=8)
    for height in range(1, 9):
        assert content_of(merkle, height) == contents[height]
        version = merkle.version(height)
        for space in version.trees:
            key = b"%d" % random.randrange(30)
            if version.trees[space] is not None:
                assert proves(merkle, version, space, key, contents[height].get((space, key)))
    copy = opened(MemoryStore())
    for record in merkle.blocks():
        copy.replay(record)
    assert [copy.version(h).root for h in range(1, 9)] == [
        merkle.version(h).root for h in range(1, 9)
    ]


def test_a_log_replays_into_every_kind_of_store(any_bench: Bench) -> None:
    """IB-7, I-12: rows and streams included; one that would come to another root is refused and stores nothing."""
    source = opened(any_bench.store)
    working = source.begin()
    working.set("bank", b"a", b"1")
    working.put_row(b"client", b"east")
    working.append("ibc/west/send", 0, [b"m0", b"m1"])
    source.commit(working, 7)
    written(source, "bank/b=2", "-bank/a", time_ms=9)
    target = MemoryStore()
    copy = opened(target)
    records = list(source.blocks())
    with pytest.raises(IbcRefused, match="replay-mismatch"):
        copy.replay(records[1])
    assert copy.latest.height == 0
    for record in records:
        copy.replay(record)
    assert copy.latest.root == source.latest.root
    assert copy.row(b"client") == b"east"
    assert list(copy.blocks()) == records
    for store in (target, any_bench.store):
        assert [entry for run in read(store, "ibc/west/send") for entry in run] == [b"m0", b"m1"]


def read(store: Store, stream: str) -> list[list[bytes]]:
    """All runs of a stream."""
    found = store.read(stream, 1, 1000, 1 << 20)
    return [list(run.payloads) for run in getattr(found, "entries", ())]


# Clients.


def check_clients(merkle: MerkleStore, expected: Client) -> None:
    """What another process reads is what was believed, and no row is left of what was dropped."""
    reader = MerkleStore(merkle.store)
    reader.open_to_read()
    assert reader.client(expected.party) == expected
    rows = table(merkle.store, "ibc/private")
    assert rows == dict(client_changes(None, expected))


def test_what_is_believed_of_a_party_is_there_after_every_block(any_bench: Bench) -> None:
    """IB-17, IB-8: over updates, bisection, what is dropped, freezing, recovery and closing; what a block took
    back leaves no trace."""
    random, chain, now = Random(7), Chain(size=5, step=200), 100_000
    merkle = opened(any_bench.store)
    client = Client(TrustRoot(chain.at(1), PERIOD, Fraction(1, 3)))
    for number in range(20):
        working = merkle.begin()
        working.put_client(client)
        kept = working.savepoint()
        undone = working.client("east")
        assert undone == client
        assert undone is not None
        highest = client.newest.header.height
        undone.update(chain.at(highest + 1), now)
        working.put_client(undone)
        working.undo_to(kept)
        assert working.client("east") == client
        match number % 10:
            case 7:
                twin = chain.at(highest, root=bytes(32))
                assert client.update(twin, now).kind == "frozen"
            case 8:
                client.recover(TrustRoot(chain.at(highest + 9), PERIOD, Fraction(1, 3)))
            case 9:
                now = client.newest.header.time_ms + PERIOD - 1
                assert client.update(chain.at(highest + 900), now).kind != "frozen"
                update_to(client, highest + 900, chain.at, now)
            case _:
                assert update_to(client, highest + random.randint(1, 4), chain.at, now)[0].is_valid
        working.put_client(client)
        merkle.commit(working, merkle.latest.time_ms + 1)
        check_clients(merkle, client)
    working = merkle.begin()
    client.is_closed = True
    working.put_client(client)
    merkle.commit(working, merkle.latest.time_ms + 1)
    check_clients(merkle, client)
    copy = opened(MemoryStore())
    for record in merkle.blocks():
        copy.replay(record)
    assert copy.client("east") == client
    assert copy.client("west") is None


def test_a_frozen_client_keeps_evidence_that_others_believe(any_bench: Bench) -> None:
    """IB-19: after another process opened the store it holds two signed headers, and a client that saw neither
    freezes by them."""
    merkle = opened(any_bench.store)
    working = merkle.begin()
    for height in (1, 2):
        believe(working, height)
    client = working.client("east")
    assert client is not None
    assert client.update(EAST.at(2, root=bytes(32)), 0).kind == "frozen"
    working.put_client(client)
    merkle.commit(working, 1)
    reopened = opened(any_bench.store).client("east")
    assert reopened is not None
    assert reopened.status(0) is ClientStatus.FROZEN
    evidence = reopened.misbehaviour
    assert evidence is not None
    other = Client(TrustRoot(EAST.at(1), PERIOD))
    assert other.submit_evidence(evidence.first, evidence.second, 0).kind == "frozen"


@pytest.mark.parametrize("harm", ["drop", "swap", "shorten"])
def test_rows_that_do_not_fit_together_are_not_believed(harm: str) -> None:
    """IB-12: one that is gone, one that stands for another, one that is cut: each row in turn."""
    memory = MemoryStore()
    merkle = opened(memory)
    working = merkle.begin()
    chain = Chain(step=1)
    client = Client(TrustRoot(chain.at(1), PERIOD))
    for height in (2, 3):
        client.update(chain.at(height), 0)
    client.update(chain.at(3, root=bytes(32)), 0)
    working.put_client(client)
    merkle.commit(working, 1)
    rows = table(memory, "ibc/private")
    assert len(rows) == 3 + 3 + 4  # the rest, headers, sets
    for key in rows.keys() - {b"client/east//"}:
        alike = [each for each in rows if each.rsplit(b"/", 1)[0] == key.rsplit(b"/", 1)[0]]
        other = {
            "drop": None,
            "swap": rows[max(set(alike) - {key}, default=b"client/east//")],
            "shorten": rows[key][:-1],
        }
        harmed = Altered(memory, "ibc/private", {**rows, key: other[harm]})
        with pytest.raises(StoreReset):
            opened(cast("Store", harmed)).client("east")
    assert opened(memory).client("east") == client


def record_of(values: Sequence[bytes], items: Sequence[bytes]) -> BlockRecord:
    """A block that writes these values, and appends these items to a stream."""
    operations = [Operation("ibc", b"%d" % n, value) for n, value in enumerate(values)]
    appends = QueueAppend("ibc/west/send", 7, tuple(items)), QueueAppend("ibc/east/send", 0, (b"",))
    return BlockRecord(3, 5, (*operations, Operation("ibc", b"gone", None)), appends, bytes(32))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.integers(0, 2**32))
def test_a_block_has_what_a_queue_got_once(values: list[bytes], seed: int) -> None:
    """IB-106: items that repeat what was written, with a height or more before it or nothing, and others, are read
    as they were; a message takes its bytes once."""
    random = Random(seed)
    items = [random.randbytes(random.choice((0, 8, 16, 3))) + value for value in values]
    record = record_of(values, [*items, b"another", random.randbytes(30)])
    assert BlockRecord.decode(record.encode()) == record
    long = [random.randbytes(200) for _ in range(20)]
    told = record_of(long, [bytes(8) + value for value in long])
    assert BlockRecord.decode(told.encode()) == told
    assert len(told.encode()) < 20 * (200 + 40)


@pytest.mark.parametrize("numbers", [[3], [1, 1], [9, 0]])
def test_a_block_that_tells_of_operations_that_it_has_not_is_malformed(numbers: list[int]) -> None:
    """IB-106: a number beyond them, or more numbers than items; nothing is made up."""
    operation = {"space": "ibc", "key": b"k", "value": b"v"}
    append = {"queue": "q", "first": 0, "items": [b"i"], "operations": numbers}
    data = encode("BlockRecord", {"height": 1, "operations": [operation], "appends": [append]})
    with pytest.raises(ProofError, match="that it hasn't"):
        BlockRecord.decode(data)


# Crashes.


def believe(working: Working, height: int) -> None:
    """Let the block believe a header of this height, the first by decision."""
    client, signed = working.client("east"), EAST.at(height)
    if client is None:
        client = Client(TrustRoot(signed, PERIOD))
    else:
        assert client.update(signed, 100_000).kind == "trusted"
    working.put_client(client)


def a_story(merkle: MerkleStore, done: list[int]) -> None:
    """Blocks that each write a tree, a row and a stream; ``done`` has the heights that were confirmed."""
    while merkle.latest.height < STORY:
        height = merkle.latest.height + 1
        working = merkle.begin()
        working.set("ibc", b"tail", b"%d" % height)
        working.set("ibc", b"entry %d" % height, b"message %d" % height)
        working.put_row(b"height", b"%d" % height)
        working.append("ibc/west/send", height - 1, [b"message %d" % height])
        believe(working, height)
        done.append(merkle.commit(working, height).height)
        if height == 4:
            merkle.prune(3)


def check_consistent(store: Store, confirmed: list[int]) -> None:
    """I-10, I-12: the tree, the row and the stream are of one height, which no confirmed one exceeds."""
    merkle = MerkleStore(store)
    height = merkle.open_to_read().height
    assert height >= max(confirmed, default=0)
    if height == 0:
        return
    assert merkle.get("ibc", b"tail") == b"%d" % height
    assert merkle.row(b"height") == b"%d" % height
    client = merkle.client("east")
    assert client is not None
    assert client.newest.header.height == height
    messages = [entry for run in read(store, "ibc/west/send") for entry in run]
    assert messages == [b"message %d" % (n + 1) for n in range(height)]
    for number, message in enumerate(messages):
        assert proves(merkle, merkle.latest, "ibc", b"entry %d" % (number + 1), message)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_process_that_dies_at_any_write_leaves_one_consistent_height(
    make_bench: Callable[[], Bench], done: bool
) -> None:
    """IT-36, I-10: at each write in turn, before it and right after it; the next process finishes the story."""
    for at in range(1, 100):
        bench, confirmed = make_bench(), list[int]()
        troubled = Troubled(bench.store, at, done=done, times=1, death=True)
        try:
            a_story(opened(cast("Store", troubled), keep_heights=3), confirmed)
        except Death:
            check_consistent(bench.store, confirmed)
            merkle = opened(bench.store, keep_heights=3)
            a_story(merkle, confirmed)
            check_nothing_is_left(merkle)
            check_consistent(bench.store, [STORY])
            continue
        assert at > 6
        return
    raise AssertionError("the story doesn't end")


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
def test_a_store_that_is_silent_at_any_write_does_nothing_twice(
    make_bench: Callable[[], Bench], done: bool, times: int
) -> None:
    """IB-101: an unknown outcome is repeated under its identity until it is known, and the block is there once."""
    for at in range(1, 100):
        bench, confirmed = make_bench(), list[int]()
        troubled = Troubled(bench.store, at, done=done, times=times, death=False)
        for _ in range(10):
            try:
                merkle = opened(cast("Store", troubled), keep_heights=3)
            except StoreUnavailable:
                continue
            break
        else:
            raise AssertionError("it never opens")
        for _ in range(10):
            try:
                merkle.settle()
                a_story(merkle, confirmed)
            except StoreUnavailable:
                check_consistent(bench.store, confirmed)
                continue
            break
        check_consistent(bench.store, [STORY])
        assert merkle.lowest >= STORY - 4
        if troubled.writes < at:
            return
    raise AssertionError("the story doesn't end")


class Recorded:
    """A store that remembers what was asked to be written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[Together] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def ask(self, request: object) -> object:
        if isinstance(request, Together):
            self.writes.append(request)
        return self._store.ask(request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_copy_of_a_commit_that_comes_late_changes_nothing(any_bench: Bench) -> None:
    """IT-60, IB-101: every write of a story, with pruning, arrives once more after the others, and after another
    process has opened the store."""
    recorded, done = Recorded(any_bench.store), list[int]()
    merkle = opened(cast("Store", recorded), keep_heights=2)
    a_story(merkle, done)
    merkle.prune(STORY)
    names = ("nodes", "orphans", "versions", "private")

    def everything() -> object:
        tables = [table(any_bench.store, f"ibc/{name}") for name in names]
        return tables, read(any_bench.store, "ibc/west/send"), any_bench.store.info("ibc/log")

    for _ in range(2):
        before = everything()
        for write in recorded.writes:
            any_bench.store.ask(write)
        assert everything() == before
        check_consistent(any_bench.store, [STORY])
        opened(any_bench.store)
    assert len(recorded.writes) > STORY


@pytest.fixture(params=["memory", "sqlite"])
def make_bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Bench]]:
    """Makes stores, each empty."""
    made: list[SqliteBench] = []

    def make() -> Bench:
        if request.param == "memory":
            return MemoryBench()
        made.append(SqliteBench(tmp_path_factory.mktemp("merkle") / "store.db"))
        return made[-1]

    yield make
    for bench in made:
        bench.store.close()


# Two processes, and stores that lost something.


def test_whoever_opens_last_commits(any_bench: Bench) -> None:
    """IB-102, IT-61: the older process is fenced at its next block, and nothing of that is stored."""
    older = opened(any_bench.store)
    written(older, "bank/a=1")
    newer = opened(any_bench.store)
    with pytest.raises(Fenced, match="another process has opened it"):
        written(older, "bank/a=2")
    version = written(newer, "bank/a=3")
    assert (version.height, newer.get("bank", b"a")) == (2, b"3")


def test_a_reader_takes_nothing_and_sees_what_is_committed(any_bench: Bench) -> None:
    """IB-102: and may neither commit nor prune; a height that is pruned under it has its code."""
    owner = opened(any_bench.store)
    version = written(owner, "bank/a=1", "bank/b=2")
    reader = MerkleStore(any_bench.store)
    assert reader.open_to_read() == version
    written(owner, "bank/a=2")
    assert reader.open_to_read() == owner.latest
    assert reader.get("bank", b"b") == b"2"
    for refused in (lambda: written(reader, "bank/a=3"), lambda: reader.prune(2)):
        with pytest.raises(MisuseError, match="opened to read"):
            refused()
    late = MerkleStore(any_bench.store)
    late.open_to_read()
    owner.prune(2)
    with pytest.raises(IbcRefused, match="pruned-height"):
        late.get("bank", b"a", 1)
    written(owner, "bank/a=3")


def test_a_block_belongs_to_the_version_it_was_begun_on() -> None:
    """IB-5: one that was committed, or was overtaken by another, is refused and changes nothing."""
    merkle = opened(MemoryStore())
    first, second = merkle.begin(), merkle.begin()
    first.set("bank", b"a", b"1")
    second.set("bank", b"a", b"2")
    merkle.commit(first, 1)
    for block in (first, second):
        with pytest.raises(MisuseError, match="another version"):
            merkle.commit(block, 2)
    with pytest.raises(MisuseError, match="committed already"):
        first.set("bank", b"a", b"3")
    assert (merkle.latest.height, merkle.get("bank", b"a")) == (1, b"1")


def test_reading_a_space_does_not_make_it() -> None:
    """IB-7: a root doesn't depend on who looked."""
    merkle = opened(MemoryStore())
    root = written(merkle, "bank/a=1").root
    working = merkle.begin()
    assert working.get("other", b"x") is None
    assert list(working.scan("bank")) == [(b"a", b"1")]
    working.delete("third", b"x")
    assert merkle.commit(working, 2).root == root
    working = merkle.begin()
    with pytest.raises(MisuseError, match="no name of a space"):
        working.set("Bank", b"a", b"1")


def test_what_waits_for_the_end_is_read_at_once_and_written_once() -> None:
    """IB-7: in the order of keys, however often and in which order it was set; a scan of its range, a write of the
    key itself and a deletion come before, and what was undone never comes."""
    merkle = opened(MemoryStore())
    working = merkle.begin()
    for number in range(3):
        working.set_at_end("ibc", b"tail", b"%d" % number)
        working.set_at_end("ibc", b"head", b"%d" % number)
        assert working.get("ibc", b"tail") == b"%d" % number
    working.set_at_end("bank", b"total", b"9")
    kept = working.savepoint()
    working.set_at_end("ibc", b"tail", b"undone")
    working.set_at_end("ibc", b"other", b"undone")
    assert list(working.scan("ibc", b"o", b"p")) == [(b"other", b"undone")]
    working.undo_to(kept)
    assert working.get("ibc", b"other") is None
    working.set_at_end("ibc", b"gone", b"1")
    working.delete("ibc", b"gone")
    working.set_at_end("ibc", b"now", b"1")
    working.set("ibc", b"now", b"2")
    merkle.commit(working, 1)
    (record,) = merkle.blocks()
    assert [(each.space, each.key, each.value) for each in record.operations] == [
        ("ibc", b"now", b"2"),
        ("bank", b"total", b"9"),
        ("ibc", b"head", b"2"),
        ("ibc", b"tail", b"2"),
    ]
    copy = opened(MemoryStore())
    assert copy.replay(record).root == merkle.latest.root


def test_a_store_that_lost_a_part_is_told(any_bench: Bench) -> None:
    """IB-12: a stream that has other entries beside a new block, and a node that isn't what its parent says."""
    merkle = opened(any_bench.store)
    working = merkle.begin()
    working.append("ibc/west/send", 0, [b"m0"])
    working.set("bank", b"a", b"1")
    merkle.commit(working, 1)
    working = merkle.begin()
    working.append("ibc/west/send", 0, [b"other"])
    with pytest.raises(StoreReset, match="stored already"):
        merkle.commit(working, 2)
    assert opened(any_bench.store).latest.height == 1


def test_a_node_that_was_altered_is_told() -> None:
    """IB-12: bytes with another hash than their parent says are never used."""
    memory = MemoryStore()
    merkle = opened(memory)
    written(merkle, "bank/a=1", "bank/b=2")

    rows = {key: value[:-1] + b"!" for key, value in table(memory, "ibc/nodes").items()}
    with pytest.raises(StoreReset, match="not what was stored"):
        opened(cast("Store", Altered(memory, "ibc/nodes", rows))).get("bank", b"a")
