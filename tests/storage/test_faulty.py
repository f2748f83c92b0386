"""The faulty store: nothing happens untold, what happens is what was said, and the rules hold all the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Failed,
    Gap,
    Owner,
    Position,
    Retention,
    Stored,
    StoreOutcome,
    Transaction,
    Trimmed,
    Unavailable,
)
from surepipe.errors import MisuseError
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune, Rates
from surepipe.storage.memory import MemoryStore, MemoryTransaction
from surepipe.storage.redis.transaction import RedisTransaction
from surepipe.storage.sqlite.store import SqliteStore
from surepipe.storage.sqlite.transaction import SqliteTransaction
from tests.contracts.keyed_contract import KeyedContract
from tests.contracts.store_contract import (
    Bench,
    StoreContract,
    commit,
    make,
    owner_of,
    put,
    put_each,
    read_payloads,
    texts,
)
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench


@dataclass
class FaultyBench:
    """A faulty store around the store of another bench."""

    inner: MemoryBench | SqliteBench | RedisBench
    store: FaultyStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = FaultyStore(self.inner.store, remember=5)

    @property
    def streams(self) -> FaultyStore:
        return self.store

    @property
    def positions(self) -> FaultyStore:
        return self.store

    def advance(self, micros: int) -> None:
        self.inner.advance(micros)

    def delete(self, stream: str) -> None:
        self.inner.delete(stream)


@pytest.fixture(name="bench")
def open_bench(any_bench: MemoryBench | SqliteBench | RedisBench) -> FaultyBench:
    """Around each store."""
    return FaultyBench(any_bench)


class TestContractWithAllFaultsOff(StoreContract, KeyedContract):
    """S-2: the suite that every store passes."""

    @pytest.fixture
    def bench(self, bench: FaultyBench) -> Bench:
        return bench


# By script.


def test_an_outage_does_nothing(bench: FaultyBench) -> None:
    """X-17 down: for as many calls as were said, then all is well."""
    make(bench)
    bench.store.script(Misfortune.OUTAGE, calls=2)
    for _ in range(2):
        assert isinstance(put(bench, 1, "a"), Unavailable)
    assert read_payloads(bench) == []
    assert put(bench, 1, "a") == Stored(1, 1, 1)
    assert bench.store.happened == {Misfortune.OUTAGE: 2}


def test_an_unknown_outcome_is_done(bench: FaultyBench) -> None:
    """X-17 reply lost after the effect: the repeat finds it stored."""
    make(bench)
    bench.store.script(Misfortune.UNKNOWN)
    assert isinstance(put(bench, 1, "a"), Unavailable)
    assert read_payloads(bench) == texts("a")
    assert put(bench, 1, "a") == Stored(1, 0, None)


def test_a_refusal_does_nothing(bench: FaultyBench) -> None:
    """X-17 refuse: a permanent failure."""
    make(bench)
    bench.store.script(Misfortune.REFUSED)
    assert isinstance(put(bench, 1, "a"), Failed)
    assert read_payloads(bench) == []


def test_a_slow_call_is_done_after_its_time() -> None:
    """X-17 slow: through the sleeper that was given."""
    slept: list[int] = []
    store = FaultyStore(MemoryStore(), sleep=slept.append)
    store.script(Misfortune.SLOW, amount=5_000)
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    assert slept == [5_000]


def test_a_late_call_is_done_before_a_later_one(bench: FaultyBench) -> None:
    """X-17, S-5: nobody hears of the append; two calls later it is there, and a repeat finds it stored."""
    make(bench)
    bench.store.script(Misfortune.LATE, on=AppendRun, amount=2)
    assert isinstance(put(bench, 1, "a"), Unavailable)
    assert bench.store.read("s", 1, 1, 1) == Empty(1)
    assert put(bench, 1, "a") == Stored(1, 0, None)


def test_a_late_commit_undoes_no_newer_one(bench: FaultyBench) -> None:
    """S-9: revision 1 was given up, 2 is stored at the same index, then 1 is done: the newer state stays."""
    owner = owner_of(bench, 1)
    bench.store.script(Misfortune.LATE, on=CommitPosition, amount=2)
    assert isinstance(commit(bench, 5, owner=owner, revision=1, state=b"old"), Unavailable)
    assert commit(bench, 5, owner=owner, revision=2, state=b"new") == Committed()
    assert bench.store.get("s", "r") == Position(7, 5, None, b"new", owner, 2)
    assert bench.store.get("s", "r") == Position(7, 5, None, b"new", owner, 2)


def test_a_late_transaction_is_done_before_a_later_call_and_a_repeat_finds_it_done(
    bench: FaultyBench,
) -> None:
    """S-2, S-11: nobody hears of it; when it was done at last, asking again stores nothing twice."""
    make(bench)
    owner = owner_of(bench, 1)
    bench.store.script(Misfortune.LATE, on=FaultyTransaction, amount=2)
    assert not move(bench, owner, 1)
    assert bench.store.read("s", 1, 1, 1) == Empty(1)
    assert bench.store.get("s", "r") == Position(7, 2, None, b"", owner, 1)
    assert move(bench, owner, 1)
    assert payloads_in(bench) == texts(1)


def test_a_late_transaction_that_comes_after_newer_ones_changes_nothing(bench: FaultyBench) -> None:
    """S-5, S-9, S-11: it was given up and repeated, and others followed, before it is done."""
    make(bench)
    owner = owner_of(bench, 1)
    bench.store.script(Misfortune.LATE, on=FaultyTransaction, amount=3)
    assert not move(bench, owner, 1)
    assert move(bench, owner, 1)
    assert move(bench, owner, 2)
    assert bench.store.get("s", "r") == Position(7, 3, None, b"", owner, 2)
    assert payloads_in(bench) == texts(1, 2)


def test_a_late_transaction_whose_block_wrote_by_itself_is_never_done(bench: FaultyBench) -> None:
    """Nobody knows what it wrote, so it can't be done again."""
    make(bench)
    bench.store.script(Misfortune.LATE, on=FaultyTransaction)
    with bench.store.transaction() as transaction:
        assert transaction.inside is not None
        transaction.append(AppendRun("s", "p", 1, 1, texts(1)))
    assert not transaction.done
    assert [bench.store.read("s", 1, 1, 1) for _ in range(3)] == [Empty(1)] * 3


def move(bench: FaultyBench, owner: int, number: int) -> bool:
    """Store message ``number`` and that it was read, in one step; says whether that was done."""
    with bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, number, texts(number)))
        request = CommitPosition("s", "r", owner, 7, number + 1, None, b"", revision=number)
        transaction.commit(request)
    return transaction.done


def payloads_in(bench: FaultyBench) -> list[bytes]:
    """Everything in the stream."""
    batch = bench.store.read("s", 1, 100, 10_000)
    assert isinstance(batch, Batch)
    return [payload for run in batch.entries for payload in run.payloads]


def test_a_script_may_wait_for_a_kind_of_call(bench: FaultyBench) -> None:
    """The misfortune is for the next append, whatever is called before it."""
    make(bench)
    bench.store.script(Misfortune.OUTAGE, on=AppendRun)
    assert bench.store.read("s", 1, 1, 1) == Empty(1)
    assert isinstance(put(bench, 1, "a"), Unavailable)
    assert put(bench, 1, "a") == Stored(1, 1, 1)


def test_going_back_returns_to_the_mark(bench: FaultyBench) -> None:
    """X-17 roll back: what came after it is gone, and can come again."""
    make(bench)
    put_each(bench, 1, 2)
    bench.store.mark()
    put_each(bench, 3, 4)
    commit(bench, 5, owner=owner_of(bench, 1))
    bench.store.script(Misfortune.ROLL_BACK)
    assert bench.store.read("s", 5, 1, 1) == Ahead(3)
    assert not isinstance(bench.store.get("s", "r"), Position)
    put_each(bench, 3)
    assert read_payloads(bench) == texts("m1", "m2", "m3")


def test_the_last_writes_may_be_lost(bench: FaultyBench) -> None:
    """X-17 lose last n: the two last appends; reads in between do not count."""
    make(bench)
    put_each(bench, 1, 2, 3, 4)
    assert len(read_payloads(bench)) == 4
    bench.store.script(Misfortune.LOSE_LAST, amount=2)
    assert bench.store.read("s", 4, 1, 1) == Ahead(3)
    assert read_payloads(bench) == texts("m1", "m2")
    put_each(bench, 3)


def test_trimming_goes_as_far_as_it_may(bench: FaultyBench) -> None:
    """X-17, F29: by force past a reader; without force only what it has read."""
    make(bench, "forced", Retention(force=True))
    make(bench, "kept")
    for stream in ("forced", "kept"):
        put(bench, 1, "a", stream=stream)
        commit(bench, 1, owner=owner_of(bench, 1, stream=stream), stream=stream)
    bench.store.script(Misfortune.TRIM)
    assert bench.store.read("forced", 1, 1, 1) == Trimmed(2)
    assert isinstance(bench.store.read("kept", 1, 1, 1), Batch)


def test_what_somebody_else_removes_is_met_by_who_reads_and_told_to_who_writes_next() -> None:
    """S-4: the last two of three, read or not; whoever writes next gets the next index."""
    bench = FaultyBench(MemoryBench())
    make(bench)
    put(bench, 1, "a", "b", "c")
    bench.store.script(Misfortune.REMOVE, amount=2)
    assert isinstance(batch := bench.store.read("s", 1, 9, 99), Batch)
    assert batch.next == 2
    assert bench.store.read("s", 2, 9, 99) == Trimmed(4)
    assert put(bench, 4, "d") == Stored(4, 1, 4, (2, 3))


def test_a_transaction_in_an_outage_does_nothing(bench: FaultyBench) -> None:
    """S-11: neither the requests nor what the caller did inside."""
    make(bench)
    done: list[str] = []
    for misfortune, kind in ((Misfortune.OUTAGE, Unavailable), (Misfortune.REFUSED, Failed)):
        bench.store.script(misfortune, on=FaultyTransaction)
        with bench.store.transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            write_own(transaction, done)
        assert not transaction.done
        assert [type(outcome) for outcome in transaction.outcomes] == [kind]
    assert read_payloads(bench) == []
    assert own_writes(bench, done) == 0


def test_a_transaction_with_an_unknown_outcome_is_done(bench: FaultyBench) -> None:
    """S-11, S-2: the caller repeats it, and it is done once."""
    make(bench)
    owner = owner_of(bench, 1, stream="in")
    bench.store.script(Misfortune.UNKNOWN, on=FaultyTransaction)
    outcomes: tuple[object, ...] = ()
    for is_known in (False, True):
        with bench.store.transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            transaction.commit(CommitPosition("in", "r", owner, 1, 2))
        assert transaction.done is is_known
        outcomes = transaction.outcomes
    assert outcomes == (Stored(1, 0, None), Committed())
    assert read_payloads(bench) == texts("a")


OWN_KEY = "sp:{faulty}:u:own"


def write_own(transaction: FaultyTransaction[Transaction], done: list[str]) -> None:
    """A write of the caller's own, in whatever way the store inside offers."""
    match transaction.inside:
        case MemoryTransaction() as inside:
            inside.also(lambda: done.append("own"))
        case SqliteTransaction() as inside:
            inside.connection.execute("CREATE TABLE own (n)")
        case RedisTransaction() as inside:
            inside.also("SET", OWN_KEY, "own", keys=[OWN_KEY])
        case other:
            raise AssertionError(f"no way to write in {other}")


def own_writes(bench: FaultyBench, done: list[str]) -> int:
    """How many of them there are."""
    if isinstance(bench.inner, MemoryBench):
        return len(done)
    if isinstance(bench.inner, RedisBench):
        return int(bench.inner.redis("EXISTS", OWN_KEY))
    with bench.inner.store.transaction() as transaction:
        query = "SELECT count(*) FROM sqlite_master WHERE name = 'own'"
        (count,) = transaction.connection.execute(query).fetchone()
    return int(count)


def test_what_a_store_can_not_do_is_told() -> None:
    """Going back needs a mark, a memory of writes, and a store that can."""
    store = FaultyStore(MemoryStore())
    store.script(Misfortune.ROLL_BACK)
    with pytest.raises(MisuseError, match="mark"):
        store.create("s", 1, KEEP_ALL)
    store.script(Misfortune.LOSE_LAST)
    with pytest.raises(MisuseError, match="remember"):
        store.create("s", 1, KEEP_ALL)
    with pytest.raises(MisuseError, match="can't go back"):
        FaultyStore(FaultyStore(MemoryStore())).mark()


def test_calm_ends_everything() -> None:
    """Scripts, rates and the outage that is going on."""
    store = FaultyStore(MemoryStore(), rates=Rates(outage=1.0))
    assert isinstance(store.create("s", 1, KEEP_ALL), Unavailable)
    store.script(Misfortune.REFUSED)
    store.calm()
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)


# By seed.

ROUGH = Rates(outage=0.05, unknown=0.15, slow=0.1, late=0.1, outage_calls_max=5)


def again(call: Callable[[], StoreOutcome]) -> StoreOutcome:
    """What every client does: ask until there is an answer."""
    for _ in range(1_000):
        outcome = call()
        if not isinstance(outcome, Unavailable):
            return outcome
    raise AssertionError("a thousand calls without an answer")


def forward(store: FaultyStore, messages: int) -> list[str]:
    """Produce, read and forward by transactions; returns a trace of everything answered."""
    trace: list[str] = []

    def ask(call: Callable[[], StoreOutcome]) -> StoreOutcome:
        outcome = again(call)
        trace.append(repr(outcome))
        return outcome

    for stream in ("in", "out"):
        ask(partial(store.create, stream, 1, KEEP_ALL))
    for seq in range(1, messages + 1):
        ask(partial(store.append, "in", "p", 1, seq, texts(seq)))
    owner = ask(partial(store.claim, "in", "r", 99))
    assert isinstance(owner, Owner)
    index = 1
    while index <= messages:
        batch = ask(partial(store.read, "in", index, 3, 1_000))
        assert isinstance(batch, Batch)
        payloads = [payload for run in batch.entries for payload in run.payloads]
        run = AppendRun("out", "r", 1, index, payloads)
        done = False
        while not done:
            with store.transaction() as transaction:
                transaction.append(run)
                transaction.commit(CommitPosition("in", "r", owner.number, 1, batch.next))
            done = transaction.done
            trace.append(repr(transaction.outcomes))
        index = batch.next
    return trace


@pytest.mark.parametrize("seed", range(30))
def test_a_client_that_asks_again_gets_everything_once_and_in_order(seed: int) -> None:
    """S-2, S-5, S-11: thirty seeds of outages, lost answers, slow calls and late ones."""
    store = FaultyStore(
        MemoryStore(new_incarnation=lambda: 5), rates=ROUGH, seed=seed, sleep=lambda _micros: None
    )
    forward(store, 30)
    assert store.happened[Misfortune.UNKNOWN]
    store.calm()
    batch = store.read("out", 1, 100, 1_000)
    assert isinstance(batch, Batch)
    assert [payload for run in batch.entries for payload in run.payloads] == texts(*range(1, 31))


def test_a_seed_gives_the_same_run_again() -> None:
    """P-7's rule for stores: misfortunes depend on the seed and the calls alone."""

    def run(seed: int) -> list[str]:
        inside = MemoryStore(new_incarnation=lambda: 5)
        return forward(FaultyStore(inside, rates=ROUGH, seed=seed), 20)

    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.parametrize("seed", range(20))
def test_a_store_that_loses_writes_never_gives_a_hole_or_another_message(seed: int) -> None:
    """S-4, S-7: after each loss the reader sees a prefix of what was written, or is told Ahead."""
    store = FaultyStore(
        MemoryStore(), rates=Rates(lose_last=0.1, unknown=0.1), seed=seed, remember=5
    )
    rng = random.Random(seed)
    again(lambda: store.create("s", 1, KEEP_ALL))
    last = 0
    for _ in range(100):
        outcome = again(partial(store.append, "s", "p", 1, last + 1, texts(last + 1)))
        match outcome:
            case Stored(stored):
                last = stored
            case Gap(expected):
                last = expected - 1
            case _:  # the stream itself was lost
                again(lambda: store.create("s", 1, KEEP_ALL))
                last = 0
        index = rng.randint(1, last + 2)
        found = again(partial(store.read, "s", index, 5, 1_000))
        if isinstance(found, Batch):
            payloads = [payload for run in found.entries for payload in run.payloads]
            assert payloads == texts(*range(index, found.next))
        else:
            assert isinstance(found, Empty | Ahead | Failed)
    assert store.happened[Misfortune.LOSE_LAST]


def test_a_read_draws_from_the_same_seed(tmp_path: Path) -> None:
    """X-17 read error: reads fail too, on SQLite as in memory."""
    with SqliteStore(tmp_path / "store.db") as inside:
        store = FaultyStore(inside, rates=Rates(outage=0.5, outage_calls_max=1), seed=3)
        again(lambda: store.create("s", 1, KEEP_ALL))
        outcomes = {type(store.read("s", 1, 1, 1)) for _ in range(50)}
    assert outcomes == {Unavailable, Empty}
