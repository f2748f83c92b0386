"""Tables, marks and several requests together when things go wrong: late answers, processes that are killed or
replaced, stores that went back, were emptied or written to by strangers."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    AllDone,
    AppendRun,
    Changed,
    Created,
    DropStream,
    Failed,
    FoundValues,
    Gap,
    Level,
    Marked,
    NoneDone,
    Owner,
    ProducerOpened,
    PutValues,
    RaiseMark,
    Store,
    Stored,
    StreamDropped,
    StreamInfo,
    TableRows,
    Together,
    TogetherOutcome,
    Unavailable,
    Untouched,
)
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.memory import MemoryState, MemoryStore
from surepipe.storage.sqlite.store import SqliteStore
from surepipe.testing.servers import RedisServer
from tests.contracts.keyed_contract import loaded, mark, values
from tests.contracts.store_contract import make, read_payloads, texts
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import FAILS_LOUDLY_AFTER_S, SqliteBench
from tests.storage.test_redis import wait_until_blocked

AnyBench = MemoryBench | SqliteBench | RedisBench


def block(store: Store, number: int, value: bytes, *, epoch: int = 1) -> TogetherOutcome:
    """Block ``number`` of a log: it sets key ``a``."""
    run = AppendRun("s", "party", epoch, number, texts(f"block {number}"))
    return store.together(run, PutValues("t", {b"a": value}), RaiseMark("m"), is_decided=True)


# Answers that come late, or never.


def test_a_decision_whose_answer_is_lost_is_repeated_until_it_is_known(any_bench: AnyBench) -> None:
    """S-16: done or not, the repeat of the same block ends in the same state."""
    make(any_bench)
    store = FaultyStore(any_bench.store)
    for number, misfortune in enumerate((Misfortune.UNKNOWN, Misfortune.OUTAGE), 1):
        store.script(misfortune, on=Together)
        assert isinstance(block(store, number, b"%d" % number), Unavailable)
        assert isinstance(block(store, number, b"%d" % number), AllDone)
        assert (values(any_bench, b"a"), mark(any_bench)) == ([b"%d" % number], number)


def test_a_decision_that_is_done_late_writes_nothing_over_a_newer_one(any_bench: AnyBench) -> None:
    """S-16: block 1 is given up, repeated, and done once more behind block 2."""
    make(any_bench)
    store = FaultyStore(any_bench.store)
    store.script(Misfortune.LATE, on=Together, amount=3)
    assert isinstance(block(store, 1, b"1"), Unavailable)
    assert isinstance(block(store, 1, b"1"), AllDone)
    assert isinstance(block(store, 2, b"2"), AllDone)
    assert isinstance(store.read_keys("t", [b"a"]), FoundValues)
    assert (values(any_bench, b"a"), mark(any_bench)) == ([b"2"], 2)
    assert read_payloads(any_bench) == texts("block 1", "block 2")


def test_a_drop_that_is_done_late_is_absent_for_its_repeat(any_bench: AnyBench) -> None:
    """S-18: nobody hears of it, a later append has Failed, and the repeat finds nothing."""
    make(any_bench)
    store = FaultyStore(any_bench.store)
    store.script(Misfortune.UNKNOWN, on=DropStream)
    assert isinstance(store.drop_stream("s", 1), Unavailable)
    assert isinstance(block(store, 1, b"1"), NoneDone)
    assert type(store.drop_stream("s", 1)).__name__ == "Absent"


# Stores that went back.


def test_a_table_goes_back_with_the_log_that_decides_about_it(any_bench: AnyBench) -> None:
    """S-16: blocks 2 and 3 are gone with their values; block 4 meets the gap, and 2 can come again."""
    make(any_bench)
    store = any_bench.store
    block(store, 1, b"1")
    older = store.snapshot()
    for number in (2, 3):
        block(store, number, b"%d" % number)
    store.roll_back(older)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - its own snapshot
    assert block(store, 4, b"4") == NoneDone((Gap(2), Untouched(), Untouched()))
    assert (values(any_bench, b"a"), loaded(any_bench), mark(any_bench)) == (
        [b"1"],
        {b"a": b"1"},
        1,
    )
    assert isinstance(block(store, 2, b"new"), AllDone)
    assert values(any_bench, b"a") == [b"new"]


def test_an_emptied_store_has_no_stream_to_decide_in() -> None:
    """S-16: nothing is written where the log is gone; a mark that stands lower than seen ends the wait."""
    store = MemoryStore()
    store.create("s", 1, KEEP_ALL)
    block(store, 1, b"1")
    store.roll_back(MemoryState())
    refused = block(store, 2, b"2")
    assert isinstance(refused, NoneDone)
    assert isinstance(refused.outcomes[0], Failed)
    assert store.read_keys("t", [b"a"]) == FoundValues([None])
    assert store.wait_for_mark("m", 1, 3_600_000_000) == Marked(0)


@pytest.mark.parametrize(("lost", "last"), [(1, 2), (2, 1), (3, 0)])
def test_a_simulated_store_loses_values_and_marks_with_the_appends_beside_them(
    lost: int, last: int
) -> None:
    """simulation X-16, X-17: the last writes go, each whole: first the drop of a stream, then the two blocks."""
    store = SimulatedStore(declared=Level.INTERVAL)
    store.create("s", 1, KEEP_ALL)
    store.create("gone", 1, KEEP_ALL)
    store.claim("gone", "r", 1)
    block(store, 1, b"1")
    block(store, 2, b"2")
    assert store.drop_stream("gone", 1) == StreamDropped()
    assert store.lose_last(lost) == lost
    assert isinstance(store.info("gone"), StreamInfo)
    assert store.claim("gone", "r", 1) == Owner(1)
    assert isinstance(found := store.open_producer("s", "party", 1, 1), ProducerOpened)
    assert (found.last, store.wait_for_mark("m", 9, 0)) == (last, Marked(last))
    assert store.read_keys("t", [b"a"]) == FoundValues([b"%d" % last if last else None])


# Two processes.

WRITER = """
import sys
from surepipe.core.store_requests import AppendRun, Level, PutValues, RaiseMark
from surepipe.storage import SqliteStore

path, epoch = sys.argv[1], int(sys.argv[2])
with SqliteStore(path, level=Level.PROCESS) as store:
    known = store.open_producer("s", "party", epoch, 1)
    number = 0
    while True:
        number += 1
        pairs = {b"last": b"%d" % number, b"key %d" % (number % 7): b"%d" % number}
        run = AppendRun("s", "party", epoch, number, [b"%d" % number])
        done = store.together(run, PutValues("t", pairs), RaiseMark("m"), is_decided=True)
        print(type(done).__name__, flush=True)
        if type(done).__name__ != "AllDone":
            break
"""


def begin_writer(path: Path, epoch: int) -> subprocess.Popen[str]:
    """A process that writes one block after the other until it is killed or fenced."""
    command = [sys.executable, "-c", WRITER, str(path), str(epoch)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_the_log_and_its_table_at_one_block(tmp_path: Path) -> None:
    """S-16, R-9: killed while it writes; the last value is that of the last block, and the repeat of that block by
    the next process touches nothing."""
    path = tmp_path / "store.db"
    bench = SqliteBench(path)
    make(bench)
    with begin_writer(path, 1) as writer:
        assert writer.stdout
        for _ in range(30):
            assert writer.stdout.readline() == "AllDone\n"
        writer.kill()
    last = len(read_payloads(bench))
    assert last >= 30
    assert values(bench, b"last", b"key %d" % (last % 7)) == [b"%d" % last] * 2
    assert mark(bench) == last
    run = AppendRun("s", "party", 1, last, texts(last))
    repeated = bench.store.together(run, PutValues("t", {b"last": b"x"}), is_decided=True)
    assert repeated == AllDone((Stored(last, 0, None), Untouched()))
    bench.store.close()


def test_a_replaced_process_writes_no_value_any_more(tmp_path: Path) -> None:
    """S-16, S-5, R-9: both run; from the moment when the second takes its epoch the first is refused whole."""
    path = tmp_path / "store.db"
    bench = SqliteBench(path)
    make(bench)
    with begin_writer(path, 1) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "AllDone\n"
        assert isinstance(bench.store.open_producer("s", "party", 2, 1), ProducerOpened)
        before = len(read_payloads(bench)), values(bench, b"last")
        assert writer.stdout.read().split()[-1] == "NoneDone"
        assert writer.wait(FAILS_LOUDLY_AFTER_S) == 0
    assert (len(read_payloads(bench)), values(bench, b"last")) == before
    assert isinstance(block(bench.store, 1, b"mine", epoch=2), AllDone)
    bench.store.close()


def test_a_mark_that_another_process_raises_ends_the_wait(tmp_path: Path) -> None:
    """S-17: on one file, with an hour as the longest time."""
    path = tmp_path / "store.db"
    with SqliteStore(path, level=Level.PROCESS) as store:
        store.create("s", 1, KEEP_ALL)
        with begin_writer(path, 1) as writer:
            found = store.wait_for_mark("m", 0, 3_600_000_000)
            writer.kill()
    assert isinstance(found, Marked)
    assert found.number > 0


# SQLite.


def test_a_file_from_before_there_were_tables_gets_them(tmp_path: Path) -> None:
    """S-14, R-2's rule for SQLite: the layout stays, what is there stays, and an open reader sees the new."""
    bench = SqliteBench(tmp_path / "store.db")
    make(bench)
    bench.store.close()
    with closing(sqlite3.connect(bench.path)) as connection:
        for table in ("keys", "marks", "removals"):
            connection.execute(f"DROP TABLE surepipe_{table}")
        connection.commit()
    bench.open()
    assert (values(bench, b"a"), mark(bench)) == ([None], 0)
    assert isinstance(block(bench.store, 1, b"1"), AllDone)
    assert values(bench, b"a") == [b"1"]
    bench.store.close()


def test_sql_of_the_callers_own_goes_with_a_decision_and_not_with_its_repeat(
    tmp_path: Path,
) -> None:
    """S-16, S-11: the row is inserted once, though the block comes twice; and the tables are not the caller's."""
    bench = SqliteBench(tmp_path / "store.db")
    make(bench)
    with bench.store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE own (n)")
    for _ in range(2):
        with bench.store.transaction() as transaction:
            transaction.decided_by(AppendRun("s", "party", 1, 1, texts("block")))
            transaction.connection.execute("INSERT INTO own VALUES (1)")
        assert transaction.done
    with bench.store.transaction() as transaction:
        assert transaction.connection.execute("SELECT count(*) FROM own").fetchone() == (1,)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            transaction.connection.execute("DELETE FROM surepipe_keys")
    bench.store.close()


def test_long_rows_are_loaded_a_few_at_a_time(tmp_path: Path) -> None:
    """S-14: a piece ends behind the row that makes it a megabyte."""
    bench = SqliteBench(tmp_path / "store.db")
    make(bench)
    rows = {b"%d" % number: bytes(300_000) for number in range(10)}
    run = AppendRun("s", "party", 1, 1, texts("block"))
    bench.store.together(run, PutValues("t", rows), is_decided=True)
    piece = bench.store.load_table("t", limit=1000)
    assert isinstance(piece, TableRows)
    assert len(piece.pairs) == 4
    assert loaded(bench) == rows
    bench.store.close()


# Memory.


def test_the_callers_own_change_is_made_once_though_its_decision_comes_twice() -> None:
    """S-16, S-11: ``also`` of the block that finds everything done is not called."""
    bench = MemoryBench()
    make(bench)
    done: list[str] = []
    for name in ("first", "repeat"):
        with bench.store.transaction() as transaction:
            transaction.decided_by(AppendRun("s", "party", 1, 1, texts("block")))
            transaction.also(lambda name=name: done.append(name))  # type: ignore[misc]
        assert transaction.done
    assert done == ["first"]


# Redis.


@pytest.mark.parametrize("kind", ["k", "m"])
def test_a_key_that_something_else_wrote_is_named_and_nothing_is_written(
    redis_bench: RedisBench, kind: str
) -> None:
    """S-11, WRONGTYPE: a table that is a list, a mark that is a set: looked at before the first write."""
    make(redis_bench)
    key = redis_bench.keys.table("t") if kind == "k" else redis_bench.keys.mark("m")
    redis_bench.redis("RPUSH", key, "not ours")
    outcome = block(redis_bench.store, 1, b"1")
    assert isinstance(outcome, Failed)
    assert key in outcome.reason
    assert read_payloads(redis_bench) == []


def test_loading_begins_anew_on_another_server(own_redis: RedisServer) -> None:
    """S-14, R-6: half of the table is loaded when the server starts again: it hashes otherwise, so its cursors
    mean something else. The store says so once, and no row is missing in the end."""
    bench = RedisBench(own_redis.url)
    make(bench)
    rows = {b"key %d" % number: b"x" * 100 for number in range(2000)}
    run = AppendRun("s", "party", 1, 1, texts("block"))
    assert isinstance(bench.store.together(run, PutValues("t", rows), is_decided=True), AllDone)
    found: dict[bytes, bytes] = {}
    piece = bench.store.load_table("t", limit=500)
    assert isinstance(piece, TableRows)
    assert piece.after is not None
    found.update(piece.pairs)
    own_redis.restart()
    after: bytes | None = piece.after
    unavailable = 0
    while after is not None:
        piece = bench.store.load_table("t", after, 500)
        if isinstance(piece, Unavailable):
            unavailable += 1
            continue
        assert isinstance(piece, TableRows)
        found.update(piece.pairs)
        after = piece.after
    assert unavailable >= 1
    assert found == rows
    bench.close()


def test_a_mark_of_redis_wakes_at_once_and_costs_little_while_it_stands(
    own_bench: RedisBench,
) -> None:
    """S-17: the wait blocks in the server; another store's raise ends it; three commands in all."""
    make(own_bench)
    other = own_bench.another()
    block(other, 1, b"1")
    own_bench.redis("CONFIG", "RESETSTAT")
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(own_bench.store.wait_for_mark("m", 1, 9_000_000))
    )
    thread.start()
    wait_until_blocked(own_bench)
    block(other, 2, b"2")
    thread.join(FAILS_LOUDLY_AFTER_S)
    assert found == [Marked(2)]
    assert own_bench.redis.calls()["xread"] == 1


def test_with_a_tag_for_each_stream_a_table_goes_with_the_stream_of_its_name(
    redis_bench: RedisBench,
) -> None:
    """R-2: another table is in another slot, and the text says so."""
    store = redis_bench.another(spread="stream")
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    apart = block(store, 1, b"1")
    assert isinstance(apart, Failed)
    assert "spread" in apart.reason
    run = AppendRun("s", "party", 1, 1, texts("block"))
    beside = store.together(run, PutValues("s", {b"a": b"1"}), RaiseMark("s"), is_decided=True)
    assert beside == AllDone((Stored(1, 1, 1), Changed(), Changed()))
    assert store.read_keys("s", [b"a"]) == FoundValues([b"1"])
    assert store.drop_stream("s", 1) == StreamDropped()


def test_looking_makes_no_key(redis_bench: RedisBench) -> None:
    """S-14, R-2: nor does a transaction that drops from a table that isn't there leave one."""
    make(redis_bench)
    before = redis_bench.redis("KEYS", f"sp:{{{redis_bench.pipeline}}}:*")
    store = redis_bench.store
    store.read_keys("t", [b"a"])
    store.load_table("t")
    store.wait_for_mark("m", 0, 1_000)
    store.drop_stream("never", 1)
    assert redis_bench.redis("KEYS", f"sp:{{{redis_bench.pipeline}}}:*") == before


def test_a_server_that_was_replaced_is_told_before_its_values_are(own_redis: RedisServer) -> None:
    """R-6: each reader of a table is told once to look again."""
    bench = RedisBench(own_redis.url)
    make(bench)
    block(bench.store, 1, b"1")
    assert bench.store.read_keys("t", [b"a"]) == FoundValues([b"1"])
    own_redis.restart()
    answers = [bench.store.read_keys("t", [b"a"]) for _ in range(4)]
    assert isinstance(answers[0], Unavailable)
    assert answers[-1] == FoundValues([b"1"])
    bench.close()
