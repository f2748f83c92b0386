"""The Redis store: the contract, its keys and pages, its scripts and what it costs."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import resources

import pytest
from redis.crc import key_slot

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Failed,
    FencedOut,
    Gap,
    Held,
    Hint,
    Kept,
    Level,
    NoPosition,
    Position,
    Retention,
    Stored,
    Trimmed,
    Unavailable,
    partition_of,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.storage.redis.keys import LAYOUT_VERSION, Keys, type_of
from surepipe.storage.redis.link import RedisLimits
from surepipe.storage.redis.pages import PAGE_MAX_BYTES
from surepipe.storage.redis.scripts import NAMES, script
from surepipe.storage.redis.store import RedisStore
from surepipe.storage.redis.transaction import BYTES_MAX, PARTS_MAX, RedisTransaction
from surepipe.testing.servers import Binary, RedisServer
from tests.contracts.keyed_contract import KeyedContract
from tests.contracts.store_contract import (
    Bench,
    StoreContract,
    StrangerContract,
    commit,
    make,
    owner_of,
    put,
    put_each,
    read_all,
    read_payloads,
    texts,
)
from tests.kit.redis_bench import RedisBench

FAILS_LOUDLY_AFTER_S = 60


class TestContract(StoreContract, KeyedContract, StrangerContract):
    """The suite that every store passes, on each server."""

    @pytest.fixture
    def bench(self, redis_bench: RedisBench) -> RedisBench:
        return redis_bench


class TestSpreadContract(StoreContract):
    """The suite once more, with a tag for each stream; its transactions over two streams are refused there."""

    @pytest.fixture
    def bench(self, redis_bench: RedisBench) -> Bench:
        redis_bench.store = redis_bench.another(spread="stream")
        return redis_bench

    def test_a_transaction_does_all_of_its_writes(self, bench: Bench) -> None:
        """R-2: two streams are in two slots, and no script reaches both."""
        make(bench)
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            transaction.commit(CommitPosition("in", "r", 1, 7, 4))
        assert not transaction.done
        for outcome in transaction.outcomes:
            assert isinstance(outcome, Failed)
            assert "spread" in outcome.reason
        assert read_payloads(bench) == []

    @pytest.mark.parametrize("refused", ["fenced", "gap"])
    def test_a_transaction_with_a_refused_write_does_nothing(
        self, bench: Bench, refused: str
    ) -> None:
        """S-11: within one stream it works as ever."""
        make(bench)
        old, new = owner_of(bench, 1), owner_of(bench, 2)
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "q", 1, 1, texts("before")))
            transaction.commit(CommitPosition("s", "r", old if refused == "fenced" else new, 7, 4))
            transaction.append(AppendRun("s", "p", 1, 2 if refused == "gap" else 1, texts("x")))
        assert not transaction.done
        assert (FencedOut(new) if refused == "fenced" else Gap(1)) in transaction.outcomes
        assert read_payloads(bench) == []

    def test_a_transaction_that_comes_late_does_nothing(self, bench: Bench) -> None:
        """S-9: within one stream."""
        make(bench)
        owner = owner_of(bench, 1)
        commit(bench, 4, owner=owner, revision=2)
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            transaction.commit(CommitPosition("s", "r", owner, 7, 4, None, b"older", None, 1))
        assert not transaction.done
        assert read_payloads(bench) == []

    def test_a_transaction_may_be_repeated(self, bench: Bench) -> None:
        """S-2: within one stream."""
        make(bench)
        owner = owner_of(bench, 1)
        for _ in range(2):
            with self.begin(bench).transaction() as transaction:
                transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
                transaction.commit(CommitPosition("s", "r", owner, 7, 2))
            assert transaction.done
        assert read_payloads(bench) == texts("a")


# Keys and pages.


def use_everything(bench: RedisBench) -> None:
    """One of each write."""
    bench.store.create("s", 2, KEEP_ALL)
    stream = partition_of("s", 1)
    put(bench, 1, "a", "b", stream=stream)
    commit(bench, 2, owner=owner_of(bench, 1, stream=stream), stream=stream)
    bench.store.trim(stream, 1)


def test_every_key_has_the_tag_and_the_type_of_the_table(redis_bench: RedisBench) -> None:
    """R-2, R-8: one slot for all keys of a pipeline, and no consumer groups."""
    use_everything(redis_bench)
    names = [name.decode() for name in redis_bench.redis("KEYS", f"*{redis_bench.pipeline}*")]
    assert len(names) == 1 + 1 + 3 + 1  # layout, positions, what is used of the partitions
    assert {key_slot(name.encode()) for name in names} == {key_slot(redis_bench.pipeline.encode())}
    for name in names:
        assert redis_bench.redis("TYPE", name).decode() == type_of(name)
    assert (
        redis_bench.redis("GET", f"sp:{{{redis_bench.pipeline}}}:layout") == LAYOUT_VERSION.encode()
    )
    assert redis_bench.redis("XINFO", "GROUPS", redis_bench.keys.pages("s#1")) == []


def test_spreading_gives_each_stream_a_slot_and_its_partitions_the_same(
    redis_bench: RedisBench,
) -> None:
    """R-2: the tag is made of the stream's name without the partition."""
    keys = Keys(redis_bench.pipeline, "stream")
    assert keys.tag("s#0") == keys.tag("s#1") == keys.tag("s") != keys.tag("t")
    assert keys.tag("a#b") != keys.tag("a#c"), "not a partition's number"


@pytest.mark.parametrize("name", ["", "a}b", "{a"])
def test_a_pipeline_name_that_would_break_the_hash_tag_is_refused(name: str) -> None:
    """R-2: the tag ends at the first closing brace."""
    with pytest.raises(ConfigurationError, match="brace"):
        Keys(name)


def test_another_layout_is_refused_and_names_the_way_out(redis_bench: RedisBench) -> None:
    """R-2: by reads and writes; nothing changes."""
    make(redis_bench)
    redis_bench.redis("SET", redis_bench.keys.layout(redis_bench.pipeline), "999")
    for outcome in (
        put(redis_bench, 1, "a"),
        redis_bench.store.read("s", 1, 9, 9),
        redis_bench.store.create("t", 1, KEEP_ALL),
    ):
        assert isinstance(outcome, Failed)
        assert "999" in outcome.reason
        assert "the version that wrote it" in outcome.reason
    redis_bench.redis("SET", redis_bench.keys.layout(redis_bench.pipeline), LAYOUT_VERSION)
    assert read_payloads(redis_bench) == []


def test_a_run_is_one_entry_whose_id_is_its_first_index(redis_bench: RedisBench) -> None:
    """R-3: pages of up to 64 KiB; only a longer run makes more than one, all in one append."""
    make(redis_bench)
    put(redis_bench, 1, *range(500))
    put(redis_bench, 501, "x" * 40_000, "y" * 20_000, "z" * 10_000, "l" * (PAGE_MAX_BYTES + 1), "")
    pages = [entry_id for entry_id, _ in redis_bench.redis.entries(redis_bench.keys.pages("s"))]
    assert pages == [b"1-0", b"501-0", b"503-0", b"504-0", b"505-0"]
    assert len(read_payloads(redis_bench)) == 505
    outcome = redis_bench.store.read("s", 504, 9, 9)
    assert isinstance(outcome, Batch)
    assert outcome.next == 505


def test_a_trim_removes_whole_pages_only(redis_bench: RedisBench) -> None:
    """R-3: the page that holds the index stays, and Trimmed says so."""
    make(redis_bench)
    put(redis_bench, 1, "a", "b")
    put(redis_bench, 3, "c", "d", "e")
    assert redis_bench.store.trim("s", 4) == Trimmed(3)
    assert read_payloads(redis_bench) == texts("c", "d", "e")
    info = redis_bench.store.info("s")
    assert not isinstance(info, Failed | Unavailable)
    assert (info.earliest, info.next, info.bytes) == (3, 6, 3)


def test_half_a_stream_is_not_built_upon(redis_bench: RedisBench) -> None:
    """Somebody deleted the head by hand: created anew, its indexes would be given out twice."""
    make(redis_bench)
    put(redis_bench, 1, "a")
    redis_bench.redis("DEL", redis_bench.keys.head("s"))
    outcome = redis_bench.store.create("s", 1, KEEP_ALL)
    assert isinstance(outcome, Failed)
    assert redis_bench.keys.pages("s") in outcome.reason
    redis_bench.delete("s")
    make(redis_bench)
    put(redis_bench, 1, "a")
    redis_bench.redis("DEL", redis_bench.keys.pages("s"))
    assert redis_bench.store.read("s", 1, 9, 9) == Trimmed(2), "pages removed by hand"


def test_a_position_older_than_its_stream_is_registered_with_it(redis_bench: RedisBench) -> None:
    """S-8: commits work on streams that do not exist yet; once they do, trimming minds the reader."""
    commit(redis_bench, 2, owner=owner_of(redis_bench, 1))
    owner_of(redis_bench, 1, "claimed-only")
    make(redis_bench)
    put_each(redis_bench, 1, 2, 3)
    assert redis_bench.store.trim("s", 3) == Held("r", 2)


def test_the_servers_clock_ages_entries_when_no_other_is_given(redis_bench: RedisBench) -> None:
    """S-8: one clock for all clients of a stream."""
    store = redis_bench.another(clock=None)
    store.create("aged", 1, Retention(max_age_us=3_600_000_000))
    for seq in (1, 2):
        assert store.append("aged", "p", 1, seq, texts(seq)) == Stored(seq, 1, seq)
    ((_, fields),) = redis_bench.redis.entries(redis_bench.keys.pages("aged"))[-1:]
    assert int(fields[b"t"]) > 10**15


# Scripts.


def test_every_script_lists_its_keys_and_is_packaged() -> None:
    """R-4: name, type, meaning and owner stand in the header of each file."""
    folder = resources.files("surepipe.storage.redis").joinpath("lua")
    files = {entry.name for entry in folder.iterdir()}
    assert {f"{name}.lua" for name in NAMES} <= files
    for name in sorted(files):
        header = folder.joinpath(name).read_text().split("\nlocal ")[0]
        assert "owner:" in header or "ARGV[1]" in header, name
        assert "sp:{tag}:" in header, name
    for name in NAMES:
        assert script(name).source.count(b"local function other_layout") == 1


def test_a_flushed_script_is_loaded_again(redis_bench: RedisBench) -> None:
    """R-4: NOSCRIPT is answered by loading and repeating, ten times for each kind of call."""
    make(redis_bench)
    for seq in range(1, 11):
        redis_bench.redis("SCRIPT", "FLUSH")
        assert put(redis_bench, seq, seq) == Stored(seq, 1, seq)
        redis_bench.redis("SCRIPT", "FLUSH")
        assert isinstance(redis_bench.store.read("s", seq, 9, 9), Batch)
        redis_bench.redis("SCRIPT", "FLUSH")
        owner = owner_of(redis_bench, 1)
        redis_bench.redis("SCRIPT", "FLUSH")
        assert commit(redis_bench, seq, owner=owner) == Committed()


def test_part_of_a_run_may_be_stored_in_a_transaction_too(redis_bench: RedisBench) -> None:
    """S-5, S-11: 1..4 are there; 3..6 stores two, and the position moves with them."""
    make(redis_bench)
    put(redis_bench, 1, 1, 2, 3, 4)
    owner = owner_of(redis_bench, 1, stream="in")
    with redis_bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 3, texts(3, 4, 5, 6)))
        transaction.append(AppendRun("s", "p", 1, 7, texts(7)))
        transaction.commit(CommitPosition("in", "r", owner, 7, 2))
    assert transaction.outcomes == (Stored(6, 2, 5), Stored(7, 1, 7), Committed())
    assert read_payloads(redis_bench) == texts(1, 2, 3, 4, 5, 6, 7)


def test_one_command_of_the_callers_own_takes_part(redis_bench: RedisBench) -> None:
    """S-11: done with the rest, not done when a write is refused."""
    make(redis_bench)
    key = redis_bench.keys.own("seen")
    for first, seen in ((5, None), (1, b"yes")):
        with redis_bench.store.transaction() as transaction:
            transaction.also("SET", key, "yes", keys=[key])
            transaction.append(AppendRun("s", "p", 1, first, texts("x")))
        assert transaction.done == bool(seen)
        assert redis_bench.redis("GET", key) == seen


def test_a_part_that_raises_is_forgotten_and_the_rest_is_done(redis_bench: RedisBench) -> None:
    """S-11: its writes and its own command; another one may take the place of that."""
    make(redis_bench)
    key = redis_bench.keys.own("seen")
    with redis_bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
        for value, fault in (("no", ValueError), ("yes", None)):
            with suppress(ValueError), transaction.part():
                transaction.append(AppendRun("s", "p", 1, 2, texts(value)))
                transaction.also("SET", key, value, keys=[key])
                if fault:
                    raise fault
        transaction.append(AppendRun("s", "p", 1, 3, texts("b")))
    assert transaction.done
    assert read_payloads(redis_bench) == texts("a", "yes", "b")
    assert redis_bench.redis("GET", key) == b"yes"


@pytest.mark.parametrize(
    ("parts", "size", "is_full"),
    [
        (PARTS_MAX - 1, 0, False),
        (PARTS_MAX, 0, True),
        (1, BYTES_MAX - 1, False),
        (1, BYTES_MAX, True),
    ],
)
def test_a_transaction_is_full_when_its_script_has_enough_to_do(
    parts: int, size: int, is_full: bool
) -> None:
    """R-5: so many parts or so many bytes; what was taken back counts as a part and not as bytes."""
    transaction = RedisTransaction()
    for at in range(parts):
        with suppress(ValueError), transaction.part():
            transaction.append(AppendRun("s", "p", 1, at + 1, [bytes(BYTES_MAX)]))
            raise ValueError
    transaction.append(AppendRun("s", "p", 1, parts + 1, [bytes(size)]))
    assert transaction.is_full is is_full


def test_a_failing_command_of_the_callers_own_undoes_everything(redis_bench: RedisBench) -> None:
    """S-11: it goes first, so nothing is written when it fails; a second one is refused at once."""
    make(redis_bench)
    key = redis_bench.keys.own("text")
    redis_bench.redis("SET", key, "text")
    with redis_bench.store.transaction() as transaction:
        transaction.also("HSET", key, "field", "1", keys=[key])
        transaction.append(AppendRun("s", "p", 1, 1, texts("x")))
        with pytest.raises(MisuseError, match="one command"):
            transaction.also("DEL", key, keys=[key])
    assert not transaction.done
    (outcome,) = transaction.outcomes
    assert isinstance(outcome, Failed)
    assert "WRONGTYPE" in outcome.reason
    assert read_payloads(redis_bench) == []


def test_a_hop_forwards_a_batch_once(redis_bench: RedisBench) -> None:
    """R-5: outputs and position move together; a repeat changes nothing; a stale reader is refused."""
    make(redis_bench, "in")
    make(redis_bench, "out")
    put(redis_bench, 1, "a", "b", stream="in")
    old = owner_of(redis_bench, 1, stream="in")
    outputs = AppendRun("out", "r", 1, 1, texts("A", "B"))
    move = CommitPosition("in", "r", old, 7, 3)
    assert redis_bench.store.hop(move, 0, outputs) == (Stored(2, 2, 1), Committed())
    assert redis_bench.store.hop(move, 0, outputs) == (Stored(2, 0, None), Committed()), "a repeat"
    later = AppendRun("out", "r", 1, 3, texts("C"))
    stale = redis_bench.store.hop(CommitPosition("in", "r", old, 7, 4), 2, later)
    assert isinstance(stale[1], Kept)
    new = owner_of(redis_bench, 2, stream="in")
    fenced = redis_bench.store.hop(CommitPosition("in", "r", old, 7, 4), 3, later)
    assert fenced[1] == FencedOut(new)
    assert read_payloads(redis_bench, "out") == texts("A", "B")
    position = redis_bench.store.get("in", "r")
    assert isinstance(position, Position)
    assert position.next == 3


# Cost.


def test_a_message_costs_far_less_than_a_twentieth_of_a_command(own_bench: RedisBench) -> None:
    """In runs of 500, with everything that the scripts do counted: append, read, commit."""
    make(own_bench)
    owner = owner_of(own_bench, 1)
    put(own_bench, 1, "warm")
    own_bench.store.read("s", 1, 9, 9)
    commit(own_bench, 1, owner=owner)
    payloads = [b"x" * 100] * 500
    before = int(own_bench.redis.info("stats")["total_commands_processed"])
    for first in range(2, 5_002, 500):
        own_bench.store.append("s", "p", 1, first, payloads)
        own_bench.store.read("s", first, 500, 1 << 20)
        commit(own_bench, first + 500, owner=owner)
    after = int(own_bench.redis.info("stats")["total_commands_processed"])
    assert (after - before) / 5_000 <= 0.05


def test_an_idle_reader_asks_less_than_once_a_second(own_bench: RedisBench) -> None:
    """R-6: the commands of one round of waiting and reading, over the time that a round blocks."""
    make(own_bench)
    store = own_bench.another(limits=RedisLimits(block_s=0.001))
    assert store.read("s", 1, 9, 9) == Empty(1)
    store.wait("s", 1, 1_000)
    own_bench.redis("CONFIG", "RESETSTAT")
    for _ in range(10):
        assert store.wait("s", 1, 3_600_000_000) == Hint()
        assert store.read("s", 1, 9, 9) == Empty(1)
    calls = own_bench.redis.calls()
    of_clients = sum(calls.get(name, 0) for name in ("hget", "xread", "evalsha"))
    assert of_clients <= 30
    assert of_clients / 10 / RedisLimits().block_s <= 1


# Waiting and threads.


def test_an_append_wakes_the_reader_that_waits(redis_bench: RedisBench) -> None:
    """S-7: the reader blocks in the server until another client appends."""
    make(redis_bench)
    reader = redis_bench.another()
    hints: list[object] = []
    thread = threading.Thread(target=lambda: hints.append(reader.wait("s", 1, 3_600_000_000)))
    thread.start()
    wait_until_blocked(redis_bench)
    put(redis_bench, 1, "a")
    thread.join(FAILS_LOUDLY_AFTER_S)
    assert hints == [Hint()]


def wait_until_blocked(bench: RedisBench) -> None:
    """Ask the server until one of its clients blocks."""
    for _ in range(100_000):
        if int(bench.redis.info("clients")["blocked_clients"]):
            return
    pytest.fail("nobody blocks")


def test_closing_ends_a_wait(redis_bench: RedisBench) -> None:
    """The reader that blocks gets Unavailable, later calls Failed."""
    make(redis_bench)
    reader = redis_bench.another()
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(reader.wait("s", 1, 3_600_000_000)))
    thread.start()
    wait_until_blocked(redis_bench)
    reader.close()
    thread.join(FAILS_LOUDLY_AFTER_S)
    assert isinstance(outcomes[0], Unavailable)
    assert reader.read("s", 1, 9, 9) == Failed("the store is closed")


def test_threads_may_append_at_once_and_leave_no_connection_behind(own_bench: RedisBench) -> None:
    """S-4: eight producers on eight threads; at most as many connections, and none after close."""
    make(own_bench)
    store = own_bench.another()
    start = threading.Barrier(8)

    def work(name: str) -> None:
        start.wait(FAILS_LOUDLY_AFTER_S)
        for seq in range(1, 51):
            store.append("s", name, 1, seq, texts(f"{name}{seq}"))

    before = own_bench.redis.clients()
    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAILS_LOUDLY_AFTER_S)
    entries = read_all(own_bench)
    assert [entry[0] for entry in entries] == list(range(1, 401))
    for n in range(8):
        assert [entry[3] for entry in entries if entry[1] == f"p{n}"] == list(range(1, 51))
    assert own_bench.redis.clients() <= before + 8
    store.close()
    assert clients_at_last(own_bench, before) == before


def clients_at_last(bench: RedisBench, wanted: int) -> int:
    """The server notices a closed socket in its next round: ask until it has."""
    for _ in range(10_000):
        if bench.redis.clients() == wanted:
            break
    return bench.redis.clients()


# The server's own settings.


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"appendonly": "no"}, Level.NONE),
        ({"appendonly": "yes", "appendfsync": "everysec"}, Level.INTERVAL),
        ({"appendonly": "yes", "appendfsync": "no"}, Level.INTERVAL),
        ({"appendonly": "yes", "appendfsync": "always"}, Level.POWER),
        (
            {
                "appendonly": "yes",
                "appendfsync": "always",
                "no_appendfsync_on_rewrite": "yes",
            },
            Level.INTERVAL,
        ),
    ],
)
def test_the_level_is_what_the_server_is_set_to(
    local_source: Binary, settings: dict[str, str], level: Level
) -> None:
    """R-7: probed; a declaration takes its place and is visible as such."""
    with local_source.server(**settings) as server:
        bench = RedisBench(server.url)
        assert bench.store.level == level
        assert not bench.store.durability.declared
        declared = bench.another(level=Level.POWER)
        assert declared.level == Level.POWER
        assert "declared" in str(declared.durability)
        assert declared.durability.probed == level
        bench.close()


def test_a_declaration_above_the_servers_settings_is_warned_of(
    local_source: Binary, caplog: pytest.LogCaptureFixture
) -> None:
    """R-7: once, with the settings that contradict it."""
    with local_source.server(appendonly="no") as server:
        bench = RedisBench(server.url, level=Level.POWER)
        make(bench)
        make(bench, "t")
        warnings = [record for record in caplog.records if "declared" in record.getMessage()]
        assert len(warnings) == 1
        assert "appendonly no" in warnings[0].getMessage()
        bench.close()


def test_the_level_of_a_server_that_was_never_reached_is_unknown(own_redis: RedisServer) -> None:
    """S-3: no guess."""
    bench = RedisBench(own_redis.url)
    own_redis.kill()
    with pytest.raises(StoreUnavailable):
        _ = bench.store.level
    own_redis.start()
    bench.close()


def test_a_server_that_evicts_is_refused_until_it_does_not(own_bench: RedisBench) -> None:
    """R-1: each call says what to set; once it is set, calls work."""
    own_bench.redis("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    for _ in range(10):
        outcome = own_bench.store.create("s", 1, KEEP_ALL)
        assert isinstance(outcome, Failed)
        assert "allkeys-lru" in outcome.reason
        assert "noeviction" in outcome.reason
    own_bench.redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert isinstance(own_bench.store.create("s", 1, KEEP_ALL), Created)


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """The error says which ones are."""
    with pytest.raises(ConfigurationError, match="redis://"):
        RedisStore.from_url(url, pipeline="p")


def test_an_unknown_reader_of_a_fresh_server_has_no_position(redis_bench: RedisBench) -> None:
    """S-9: with nothing stored at all."""
    assert redis_bench.store.get("s", "r") == NoPosition()


def test_a_transaction_is_full_when_its_payloads_have_the_greatest_size_together() -> None:
    """A byte less leaves room for another part."""
    transaction = RedisTransaction()
    transaction.append(AppendRun("s", "p", 1, 1, [b"x" * (BYTES_MAX - 1)]))
    assert not transaction.is_full
    transaction.append(AppendRun("s", "p", 1, 2, [b"", b"x"]))
    assert transaction.is_full


def test_a_transaction_is_full_after_its_greatest_number_of_parts() -> None:
    """One part less leaves room for another."""
    transaction = RedisTransaction()
    for _ in range(PARTS_MAX - 1):
        with transaction.part():
            pass
    assert not transaction.is_full
    with transaction.part():
        pass
    assert transaction.is_full


def test_what_is_added_in_a_part_that_fails_is_taken_back() -> None:
    """Its bytes, and the place of the one command of the caller's own."""
    transaction = RedisTransaction()

    def fail() -> None:
        with transaction.part():
            transaction.append(AppendRun("s", "p", 1, 1, [b"x" * BYTES_MAX]))
            transaction.also("SET", "k", "v", keys=["k"])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not transaction.is_full
