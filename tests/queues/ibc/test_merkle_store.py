"""The Merkle store on every kind of store: versions, proofs, pruning, crashes, two processes, and replay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.core.store_requests import FoundValues, LoadTable, ReadKeys, Store, TableRows
from surepipe.errors import Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.ibc.iavl import Inner, ref_to
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_chained, verify_items
from surepipe.queues.ibc.merkle_store import IbcRefused, MerkleStore, Version
from surepipe.storage.memory import MemoryStore
from tests.kit.book import Death
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.queues.book.test_book_crashes import Troubled
from tests.storage.sqlite_bench import SqliteBench

Bench: TypeAlias = MemoryBench | SqliteBench | RedisBench
Content: TypeAlias = dict[tuple[str, bytes], bytes]
LIVES = itertools.count(1)


def opened(store: Store, *, cache_nodes: int = 200_000) -> MerkleStore:
    """A process opens it; each begins later than those before."""
    merkle = MerkleStore(store, cache_nodes=cache_nodes, number_of_life=lambda: next(LIVES) << 20)
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


# Crashes.


def a_story(merkle: MerkleStore, done: list[int]) -> None:
    """Blocks that each write a tree, a row and a stream; ``done`` has the heights that were confirmed."""
    while merkle.latest.height < 4:
        height = merkle.latest.height + 1
        working = merkle.begin()
        working.set("ibc", b"tail", b"%d" % height)
        working.set("ibc", b"entry %d" % height, b"message %d" % height)
        working.put_row(b"height", b"%d" % height)
        working.append("ibc/west/send", height - 1, [b"message %d" % height])
        done.append(merkle.commit(working, height).height)
        if height == 3:
            merkle.prune(2)


def check_consistent(store: Store, confirmed: list[int]) -> None:
    """I-10, I-12: the tree, the row and the stream are of one height, which no confirmed one exceeds."""
    merkle = MerkleStore(store)
    height = merkle.open_to_read().height
    assert height >= max(confirmed, default=0)
    if height == 0:
        return
    assert merkle.get("ibc", b"tail") == b"%d" % height
    assert merkle.row(b"height") == b"%d" % height
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
            a_story(opened(cast("Store", troubled)), confirmed)
        except Death:
            check_consistent(bench.store, confirmed)
            a_story(opened(bench.store), confirmed)
            check_consistent(bench.store, [4])
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
                merkle = opened(cast("Store", troubled))
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
        check_consistent(bench.store, [4])
        if troubled.writes < at:
            return
    raise AssertionError("the story doesn't end")


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

    class Altered:
        """A store whose nodes say something else."""

        def __getattr__(self, name: str) -> object:
            return getattr(memory, name)

        def ask(self, request: object) -> object:
            found = memory.ask(request)  # type: ignore[arg-type]
            if isinstance(request, ReadKeys) and request.table == "ibc/nodes":
                assert isinstance(found, FoundValues)
                return FoundValues([value and value[:-1] + b"!" for value in found.values])
            return found

    with pytest.raises(StoreReset, match="not what was stored"):
        opened(cast("Store", Altered())).get("bank", b"a")
