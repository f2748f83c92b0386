"""The memory store: the contract, threads that wait, and misfortunes on demand."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AppendRun,
    Batch,
    Created,
    FencedOut,
    Gap,
    Hint,
    Level,
    NoPosition,
    Retention,
    Stored,
    Trimmed,
)
from surepipe.storage.memory import MemoryStore
from tests.contracts.keyed_contract import KeyedContract
from tests.contracts.store_contract import (
    StoreContract,
    StrangerBench,
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
from tests.kit.memory_bench import MemoryBench

FAILS_LOUDLY_AFTER_S = 30


class TestContract(StoreContract, KeyedContract, StrangerContract):
    """The suite that every store passes."""

    @pytest.fixture
    def bench(self) -> StrangerBench:
        return MemoryBench()


def test_nothing_survives_a_crash() -> None:
    """S-3, R-10: level none."""
    bench = MemoryBench()
    make(bench)
    put(bench, 1, "a")
    commit(bench, 2, owner=owner_of(bench, 1))
    bench.store.crash()
    assert bench.store.level == Level.NONE
    assert bench.store.get("s", "r") == NoPosition()
    assert isinstance(bench.store.create("s", 1, KEEP_ALL), Created)
    assert read_payloads(bench) == []


def test_a_store_that_went_back_is_ahead_of_its_readers() -> None:
    """S-7, R-10: it comes back with an older state, and what came after can be written again."""
    bench = MemoryBench()
    make(bench)
    put_each(bench, 1, 2)
    older = bench.store.snapshot()
    put_each(bench, 3, 4)
    bench.store.roll_back(older)
    assert bench.store.read("s", 5, 9, 9) == Ahead(3)
    put_each(bench, 3)
    bench.store.roll_back(older)
    assert read_payloads(bench) == texts("m1", "m2")


def test_an_owner_from_before_the_store_went_back_still_counts() -> None:
    """S-9: the latest owner is not fenced by a store that forgot its claim."""
    bench = MemoryBench()
    owner_of(bench, 1)
    older = bench.store.snapshot()
    newest = owner_of(bench, 2)
    bench.store.roll_back(older)
    commit(bench, 3, owner=newest)
    assert commit(bench, 4, owner=newest - 1) == FencedOut(newest)


def test_an_append_wakes_the_thread_that_waits() -> None:
    """S-7: with a timeout of an hour, the wait returns when the entry is there."""
    waiting = threading.Event()

    def announce_and_wait(condition: threading.Condition, timeout_us: int) -> None:
        waiting.set()
        condition.wait(timeout_us / 1_000_000)

    store = MemoryStore(pause=announce_and_wait)
    store.create("s", 1, KEEP_ALL)
    hints: list[object] = []
    thread = threading.Thread(target=lambda: hints.append(store.wait("s", 1, 3_600_000_000)))
    thread.start()
    assert waiting.wait(FAILS_LOUDLY_AFTER_S)
    store.append("s", "p", 1, 1, texts("a"))
    thread.join(FAILS_LOUDLY_AFTER_S)
    assert hints == [Hint()]


def test_threads_may_append_at_once() -> None:
    """S-4: eight producers on eight threads; indexes stay dense and each producer's order is kept."""
    bench = MemoryBench()
    make(bench)
    start = threading.Barrier(8)

    def work(name: str) -> None:
        start.wait(FAILS_LOUDLY_AFTER_S)
        for seq in range(1, 101):
            put(bench, seq, f"{name}{seq}", producer=name)

    threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAILS_LOUDLY_AFTER_S)
    entries = read_all(bench)
    assert [entry[0] for entry in entries] == list(range(1, 801))
    for n in range(8):
        assert [entry[3] for entry in entries if entry[1] == f"p{n}"] == list(range(1, 101))


def test_the_callers_own_writes_happen_with_the_transaction_or_not_at_all() -> None:
    """S-11: ``also`` runs only when every write is done."""
    bench = MemoryBench()
    make(bench)
    done: list[str] = []
    for first, note in ((1, partial(done.append, "fine")), (5, partial(done.append, "gap"))):
        with bench.store.transaction() as transaction:
            transaction.also(note)
            transaction.append(_run(first))
    assert done == ["fine"]


def _run(first: int) -> AppendRun:
    return AppendRun("s", "p", 1, first, texts("x"))


PRODUCERS = st.sampled_from(["a", "b"])


class AgainstAModel(RuleBasedStateMachine):
    """Appends, trims and crashes of the client, against a list and two numbers per producer."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = MemoryBench()
        make(self.bench, retention=Retention(force=True))
        self.entries: list[tuple[str, int, int]] = []
        self.earliest = 1
        self.known: dict[str, tuple[int, int]] = {}

    @rule(producer=PRODUCERS, back=st.integers(-2, 3), count=st.integers(1, 5), up=st.booleans())
    def append(self, producer: str, back: int, count: int, up: bool) -> None:
        """A run that starts ``back`` messages before the expected one (or after it, a gap)."""
        epoch, last = self.known.get(producer, (1, 0))
        if up:
            epoch, last = epoch + 1, 0
        first = max(1, last + 1 - back)
        names = [f"{producer}{epoch}.{seq}" for seq in range(first, first + count)]
        outcome = put(self.bench, first, *names, epoch=epoch, producer=producer)
        if first > last + 1:
            assert outcome == Gap(last + 1)
            return
        new = max(0, first + count - 1 - last)
        index = len(self.entries) + 1 if new else None
        assert outcome == Stored(last + new, new, index)
        self.entries += [(producer, epoch, seq) for seq in range(last + 1, last + new + 1)]
        if new:
            self.known[producer] = (epoch, last + new)

    @precondition(lambda self: any(epoch > 1 for epoch, _ in self.known.values()))
    @rule()
    def append_in_an_old_epoch(self) -> None:
        """Fenced, for every producer that has moved on."""
        for producer, (epoch, _) in self.known.items():
            if epoch > 1:
                assert put(self.bench, 1, "old", epoch=epoch - 1, producer=producer) == FencedOut(
                    epoch
                )

    @rule(before=st.integers(1, 30))
    def trim(self, before: int) -> None:
        """By force, to anywhere."""
        self.earliest = max(self.earliest, min(before, len(self.entries) + 1))
        assert self.bench.store.trim("s", before) == Trimmed(self.earliest)

    @rule(index=st.integers(1, 30), messages=st.integers(1, 9), size=st.integers(1, 40))
    def read(self, index: int, messages: int, size: int) -> None:
        """A piece, within its bounds."""
        outcome = self.bench.store.read("s", index, messages, size)
        if self.earliest <= index <= len(self.entries):
            assert isinstance(outcome, Batch)
            payloads = [payload for run in outcome.entries for payload in run.payloads]
            assert 1 <= len(payloads) <= messages
            assert len(payloads) == 1 or sum(map(len, payloads)) <= size
            assert outcome.next == index + len(payloads)
        else:
            assert not isinstance(outcome, Batch)

    @invariant()
    def everything_kept_is_read_as_it_was_written(self) -> None:
        """The whole stream equals the model."""
        entries = read_all(self.bench)
        assert [entry[0] for entry in entries] == list(range(self.earliest, len(self.entries) + 1))
        assert [entry[1:4] for entry in entries] == self.entries[self.earliest - 1 :]
        for _, producer, epoch, seq, payload in entries:
            assert payload == f"{producer}{epoch}.{seq}".encode()


TestAgainstAModel = AgainstAModel.TestCase
