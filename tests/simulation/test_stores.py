"""The simulated store: the contract, what befalls it between calls, and what befalls a call."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from surepipe import Pipe
from surepipe.actors.steps import StepRuntime
from surepipe.core.effects import AppendRows, Letter, OpenLife, SaveState, WriteStored, WriteUnknown
from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Empty,
    Failed,
    Full,
    Gap,
    Hint,
    Identity,
    Level,
    NoPosition,
    Position,
    ReadFrom,
    Retention,
    Stored,
    Together,
    Trimmed,
    Unavailable,
    WaitForMore,
)
from surepipe.errors import MisuseError, StoreUnavailable
from surepipe.simulation.stores.calls import PLAIN, REFUSALS, CallFate, PlainFate, name_of
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage.journal import StoreJournal
from surepipe.storage.letters import DeadLetterStream
from surepipe.storage.memory import MemoryState
from surepipe.storage.positions import ReceiverState
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

LETTER = Letter("orders", 0, 7, 3, b"payload", 4, 1_000_000, 2_500_000, "ValueError", "no")


class Fates:
    """Decides by script: the next calls get these fates, in order. Notes what was asked."""

    def __init__(self) -> None:
        self.coming: list[CallFate] = []
        self.asked: list[str] = []

    def store(self, store: str, call: str, *, is_write: bool) -> CallFate:
        """The next fate."""
        self.asked.append(f"{store} {'writes' if is_write else 'looks'}: {call}")
        return self.coming.pop(0) if self.coming else PLAIN

    def say(self, verb: str, delay_us: int = 0, reason: str = "") -> None:
        """One more call has a fate."""
        self.coming.append(PlainFate(verb, delay_us, reason))


@dataclass
class SimulatedBench:
    """A simulated store on a clock that stands until it is told to go on."""

    declared: Level = Level.POWER
    actual: Level | None = None
    now: int = 1_000_000
    fates: Fates = field(default_factory=Fates)
    slept: list[int] = field(default_factory=list[int])
    store: SimulatedStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = SimulatedStore(
            "disk",
            declared=self.declared,
            actual=self.actual,
            clock=lambda: self.now,
            fates=self.fates,
            pause=lambda over, us: None if over() else self.slept.append(us),
        )

    @property
    def streams(self) -> SimulatedStore:
        return self.store

    @property
    def positions(self) -> SimulatedStore:
        return self.store

    def advance(self, micros: int) -> None:
        self.now += micros

    def delete(self, stream: str) -> None:
        self.store.delete(stream)


@pytest.fixture(name="bench")
def open_bench() -> SimulatedBench:
    """At level power, and honest."""
    return SimulatedBench()


class TestContract(StoreContract, KeyedContract):
    """X-16: the suite that every store passes."""

    @pytest.fixture
    def bench(self, bench: SimulatedBench) -> Bench:
        return bench


# Crashes and power cuts: by the actual level.


def filled(declared: Level, actual: Level | None = None) -> SimulatedBench:
    """Three entries synced, three more after that."""
    bench = SimulatedBench(declared, actual)
    make(bench)
    put_each(bench, 1, 2, 3)
    bench.store.flush()
    put_each(bench, 4, 5, 6)
    return bench


@pytest.mark.parametrize(
    ("level", "after_crash", "after_power_cut"),
    [
        (Level.NONE, None, None),
        (Level.INTERVAL, 4, 4),
        (Level.PROCESS, 6, 4),
        (Level.POWER, 6, 6),
    ],
)
def test_what_a_crash_leaves_is_what_the_level_keeps(
    level: Level, after_crash: int | None, after_power_cut: int | None
) -> None:
    """X-17, F13, S-3: the world wants two writes gone; the level says whether they go, or everything."""
    for power, left in ((False, after_crash), (True, after_power_cut)):
        bench = filled(level)
        if power:
            bench.store.power_cut(2)
        else:
            bench.store.crash(2)
        found = bench.store.info("s")
        if left is None:
            assert isinstance(found, Failed)
        else:
            assert read_payloads(bench) == texts(*(f"m{n}" for n in range(1, left + 1)))


def test_no_more_is_lost_than_was_not_synced() -> None:
    """F15: whatever number is drawn; and the interval syncs by itself when its time has come."""
    bench = filled(Level.INTERVAL)
    assert bench.store.at_risk() == 3
    assert bench.store.crash(50) == 3
    assert read_payloads(bench) == texts("m1", "m2", "m3")
    put_each(bench, 4)
    bench.advance(2_000_000)
    put_each(bench, 5)
    assert bench.store.at_risk() == 1


def test_a_store_that_lies_loses_what_it_said_it_kept() -> None:
    """X-17 lying: it declares power and keeps at interval."""
    bench = filled(Level.POWER, Level.INTERVAL)
    assert bench.store.level is Level.POWER
    assert bench.store.crash(2) == 2
    assert bench.store.read("s", 6, 9, 99) == Ahead(5)


def test_a_torn_record_is_gone_whole() -> None:
    """F31, S-4: at least the record that was being written; an append of three is there wholly or not at all."""
    bench = SimulatedBench(Level.PROCESS)
    make(bench)
    put(bench, 1, "a")
    put(bench, 2, "b", "c", "d")
    assert bench.store.power_cut(0, torn=True) == 1
    assert read_payloads(bench) == texts("a")
    assert put(bench, 2, "b", "c", "d") == Stored(4, 3, 2)
    honest = filled(Level.POWER)
    assert honest.store.power_cut(5, torn=True) == 0


def test_the_last_writes_may_be_lost_at_any_level(bench: SimulatedBench) -> None:
    """F14: entries, positions and what is remembered of producers go back together."""
    make(bench)
    put_each(bench, 1, 2)
    owner = owner_of(bench, 1)
    commit(bench, 2, owner=owner)
    put_each(bench, 3)
    assert bench.store.lose_last(2) == 2
    assert bench.store.get("s", "r") == NoPosition()
    assert put(bench, 4, "m4") == Gap(3)
    assert read_payloads(bench) == texts("m1", "m2")
    assert bench.store.lose_last(99) == 4


def test_what_changed_nothing_is_no_write_that_could_be_lost(bench: SimulatedBench) -> None:
    """F14: a repeat, a gap, a refusal by the contract: the last write is the one before them."""
    make(bench)
    put_each(bench, 1)
    writes = bench.store.writes
    put(bench, 1, "m1")
    put(bench, 9, "m9")
    with bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 7, texts("x")))
    bench.store.create("s", 1, KEEP_ALL)
    assert bench.store.writes == writes
    bench.store.lose_last(1)
    assert read_payloads(bench) == []


def test_a_store_goes_back_to_a_snapshot_or_to_nothing(bench: SimulatedBench) -> None:
    """F16, F17: and an index store on its own, while the stream stays."""
    positions = SimulatedStore("index")
    make(bench)
    put_each(bench, 1, 2)
    before = bench.store.snapshot()
    put_each(bench, 3)
    assert positions.claim("s", "r", 5) is not None
    positions.commit(CommitPosition("s", "r", 1, 7, 3))
    bench.store.roll_back(before)
    assert read_payloads(bench) == texts("m1", "m2")
    positions.roll_back(MemoryState())
    assert positions.get("s", "r") == NoPosition()
    assert read_payloads(bench) == texts("m1", "m2")


def test_a_stream_made_again_after_a_loss_is_another_one(bench: SimulatedBench) -> None:
    """S-7: incarnations follow from the seed, and none comes twice."""
    first = make(bench)
    bench.store.roll_back(MemoryState())
    assert make(bench) != first
    other = SimulatedStore(seed=2)
    assert other.create("s", 1, KEEP_ALL) != SimulatedStore(seed=3).create("s", 1, KEEP_ALL)


def test_a_damaged_entry_is_told_and_never_given(bench: SimulatedBench) -> None:
    """F25 at rest: reads end before it, reads at it fail, and so does asking who wrote it."""
    make(bench)
    put(bench, 1, "a", "b", "c", "d")
    bench.store.corrupt("s", 3)
    found = bench.store.read("s", 1, 99, 999)
    assert isinstance(found, Batch)
    assert found.next == 3
    for outcome in (bench.store.read("s", 3, 99, 999), bench.store.identify("s", 3)):
        assert isinstance(outcome, Failed)
        assert "entry 3 of 's' is damaged" in outcome.reason
    assert bench.store.identify("s", 4) == Identity("p", 1, 4)
    assert bench.store.read("s", 5, 9, 99) == Empty(5)
    bench.store.lose_last(1)
    put(bench, 1, "a", "b", "c")
    assert bench.store.identify("s", 3) == Identity("p", 1, 3)


def test_a_restored_entry_is_read_and_every_place_can_be_asked_for_again(
    bench: SimulatedBench,
) -> None:
    """F25 at rest: it says how often the entry was refused; a reader that begins asks for entry 0."""
    make(bench)
    put(bench, 1, "a", "b")
    before = bench.store.identify("s", 0)
    bench.store.corrupt("s", 1)
    assert isinstance(bench.store.read("s", 1, 9, 99), Failed)
    assert bench.store.restore("s", 1) == 1
    assert read_payloads(bench) == texts("a", "b")
    assert bench.store.identify("s", 0) == before


def test_what_is_unread_goes_only_where_the_retention_forces_it(bench: SimulatedBench) -> None:
    """F29: the range is told with the readers that were passed."""
    for name, retention in (("forced", Retention(force=True)), ("kept", KEEP_ALL)):
        make(bench, name, retention)
        put(bench, 1, "a", "b", stream=name)
        commit(bench, 1, owner=owner_of(bench, 1, stream=name), stream=name)
        bench.store.trim_unread(name)
    assert bench.store.read("forced", 1, 9, 99) == Trimmed(3)
    assert isinstance(bench.store.read("kept", 1, 9, 99), Batch)


# What befalls a call: a world that keeps the time.


def test_a_world_learns_what_will_be_answered_and_brings_it_itself(bench: SimulatedBench) -> None:
    """X-17: no answer is None; what is lost is not done, what is unknown is."""
    make(bench)
    run = AppendRun("s", "p", 1, 1, texts("a"))
    assert bench.store.call(run, PlainFate("lost")) is None
    assert bench.store.call(ReadFrom("s", 1, 9, 99)) == Empty(1)
    assert bench.store.call(run, PlainFate("unknown")) is None
    assert bench.store.call(run) == Stored(1, 0, None)
    assert bench.store.call(run, PlainFate("slow", 5_000)) == Stored(1, 0, None)
    assert bench.slept == [], "the delay is the world's business"


def test_a_late_call_is_done_before_the_next(bench: SimulatedBench) -> None:
    """S-9: the commit that was given up arrives when a newer one is stored; a crash forgets it."""
    old = CommitPosition("s", "r", 1, 7, 5, None, b"old", None, 1)
    new = CommitPosition("s", "r", 1, 7, 5, None, b"new", None, 2)
    make(bench)
    owner_of(bench, 1)
    assert bench.store.call(old, PlainFate("late")) is None
    assert bench.store.call(new, PlainFate("late")) is None
    assert bench.store.get("s", "r") == Position(7, 5, None, b"new", 1, 2)
    assert bench.store.call(AppendRun("s", "p", 1, 1, texts("a")), PlainFate("late")) is None
    bench.store.crash()
    assert read_payloads(bench) == []


def test_a_store_that_is_down_does_and_says_nothing(bench: SimulatedBench) -> None:
    """F18: for the world silence, for an actor Unavailable; afterwards all is there."""
    make(bench)
    bench.store.is_down = True
    assert bench.store.call(AppendRun("s", "p", 1, 1, texts("a"))) is None
    assert isinstance(put(bench, 1, "a"), Unavailable)
    bench.store.is_down = False
    assert read_payloads(bench) == []


@pytest.mark.parametrize("reason", REFUSALS)
def test_each_refusal_of_the_contract_can_be_had(bench: SimulatedBench, reason: str) -> None:
    """F30: nothing is done, and the answer is what the real stores make of it; only appends meet a bound."""
    make(bench)
    refuse = PlainFate("refuse", reason=reason)
    found = bench.store.call(AppendRun("s", "p", 1, 1, texts("a")), refuse)
    assert found == REFUSALS[reason]
    found = bench.store.call(ReadFrom("s", 1, 9, 99), refuse)
    assert isinstance(found, Failed | Unavailable)
    assert read_payloads(bench) == []


def test_a_refusal_that_no_store_has_is_a_mistake(bench: SimulatedBench) -> None:
    """X-17: the error lists those that there are."""
    with pytest.raises(MisuseError, match="read-only"):
        bench.store.call(ReadFrom("s", 1, 9, 99), PlainFate("refuse", reason="mood"))


def test_a_transaction_has_one_fate(bench: SimulatedBench) -> None:
    """S-11: all of it or nothing, whether the world calls or a host has the block."""
    make(bench)
    owner = owner_of(bench, 1, stream="in")
    run = AppendRun("s", "p", 1, 1, texts("a"))
    position = CommitPosition("in", "r", owner, 7, 2)
    both = Together([run, position])
    assert bench.store.call(both, PlainFate("lost")) is None
    assert bench.store.call(both, PlainFate("refuse", reason="busy")) == REFUSALS["busy"]
    done: list[str] = []
    for verb, outcomes in (
        ("lost", (Unavailable("no answer, on purpose"),) * 2),
        ("unknown", (Unavailable("no answer, on purpose"),) * 2),
        ("", (Stored(1, 0, None), Committed())),
    ):
        bench.fates.say(verb)
        with bench.store.transaction() as transaction:
            transaction.append(run)
            transaction.commit(position)
            transaction.also(lambda verb=verb: done.append(verb))  # type: ignore[misc]
        assert transaction.outcomes == outcomes
        assert transaction.done is (verb == "")
    assert done == ["unknown", ""]
    assert bench.store.lose_last(2) == 2, "the commit was stored twice, the same each time"
    assert bench.store.get("in", "r") == NoPosition(), "taken back as one"
    assert read_payloads(bench) == []


def test_a_wait_is_over_when_the_entry_is_there(bench: SimulatedBench) -> None:
    """S-7: the world asks whether it would be; each write may end one."""
    written: list[int] = []
    bench.store.on_write = lambda: written.append(bench.store.writes)
    make(bench)
    wait = WaitForMore("s", 1, 5_000)
    assert not bench.store.has_more(wait)
    put_each(bench, 1)
    assert bench.store.has_more(wait)
    assert bench.store.has_more(WaitForMore("gone", 1, 5_000)), "it will never come: look"
    assert written == [1, 2]


# What befalls a call: actors that have it as their store.


def test_calls_are_named_by_what_they_say_and_repeats_are_counted(bench: SimulatedBench) -> None:
    """X-15: what decisions and scripts refer to."""
    make(bench)
    put(bench, 1, "a", "b")
    put(bench, 1, "a", "b")
    commit(bench, 3, owner=1)
    bench.store.read("s", 1, 9, 99)
    assert bench.fates.asked == [
        "disk writes: create s 1",
        "disk writes: append s p e1 1+2",
        "disk writes: append s p e1 1+2 #2",
        "disk writes: commit s r o1 3",
        "disk looks: read s 1",
    ]
    run = AppendRun("s", "p", 1, 1, texts("a"))
    assert name_of(Together([run, run])) == "all of (append s p e1 1+1; append s p e1 1+1)"


def test_a_slow_call_lets_time_pass_and_so_does_a_wait(bench: SimulatedBench) -> None:
    """X-17 slow: through the pause that was given; a wait pauses while there is nothing."""
    make(bench)
    bench.fates.say("slow", 4_000)
    put(bench, 1, "a")
    assert bench.store.wait("s", 1, 9_000) == Hint()
    assert bench.store.wait("s", 2, 9_000) == Hint()
    assert bench.slept == [4_000, 9_000]


VERBS = ("slow", "lost", "unknown", "refuse", "late")


class RandomFates:
    """Each fourth call or so has a fate, by seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self.strike = False
        """Opening and closing a pipe ask once, and say so when there is no answer."""

    def store(self, store: str, call: str, *, is_write: bool) -> CallFate:
        """Any of them; what is refused comes later."""
        del store, call, is_write
        strikes = self.strike and self._rng.random() < 0.25
        verb = self._rng.choice(VERBS) if strikes else ""
        self.happened[verb] += 1
        return PlainFate(verb, 30_000 if verb == "slow" else 0, "busy" if verb == "refuse" else "")


def run_pipe(seed: int, *roles: str) -> tuple[list[object], list[str], Counter[str]]:
    """Forty messages through a pipe whose stores have fates, on one thread in virtual time."""
    runtime, fates, got = StepRuntime(seed), RandomFates(seed), list[object]()
    store = SimulatedStore(
        fates=fates,
        clock=runtime.now,
        pause=lambda over, us: runtime.run_until(over, us / 1_000_000),
    )
    layers = {"stream": {"start": "earliest"}} if "store" in roles else "reliable"
    with Pipe(
        "orders",
        layers,
        store=store if "store" in roles else None,
        journal=store if "journal" in roles else None,
        state=store if "state" in roles else None,
        runtime=runtime,
        seed=seed,
        notices=lambda _: None,
    ) as pipe:
        fates.strike = True
        pipe.receive(got.append)
        for first in range(0, 40, 5):
            pipe.send_many(range(first, first + 5))
            pipe.flush(1_000)
        fates.strike = False
    return got, runtime.trace, fates.happened


@pytest.mark.parametrize("roles", [("store",), ("journal", "state"), ("store", "journal")], ids=str)
def test_pipes_of_the_runtime_deliver_everything_over_stores_with_fates(
    roles: tuple[str, ...],
) -> None:
    """X-17, S-2: production actors on steps; no crash, so each message comes once and in order. Ten seeds."""
    happened: Counter[str] = Counter()
    for seed in range(10):
        got, _, fates = run_pipe(seed, *roles)
        assert got == list(range(40)), f"seed {seed}"
        happened += fates
    assert all(happened[verb] for verb in VERBS)


def test_a_seed_repeats_a_run_of_actors_over_a_simulated_store() -> None:
    """X-9, H-3: the same steps in the same order."""
    assert run_pipe(5, "store") == run_pipe(5, "store")
    assert run_pipe(5, "store")[1] != run_pipe(6, "store")[1]


def test_journal_state_and_letters_live_in_it_like_in_any_store(bench: SimulatedBench) -> None:
    """X-17, S-13: over a write that is unknown, a lost last write, and a crash."""
    journal = StoreJournal(bench.store, bench.store, "pipe")
    journal.load()
    assert journal.write(OpenLife(5)) == WriteStored()
    bench.fates.say("unknown")
    assert journal.write(AppendRows(5, 1, texts("a", "b"))) == WriteUnknown()
    assert journal.write(AppendRows(5, 1, texts("a", "b"))) == WriteStored()
    bench.store.lose_last(1)
    assert journal.write(AppendRows(5, 3, texts("c"))) == WriteStored(((1, 2),))
    bench.store.crash()
    (rows,) = StoreJournal(bench.store, bench.store, "pipe").load().rows
    assert rows.payloads == texts("a", "b", "c")
    state = ReceiverState(bench.store, "pipe", number_of_life=lambda: 9)
    assert state.load() is None
    assert state.write(SaveState(b"x")) == WriteStored()
    letters = DeadLetterStream(bench.store, "pipe/dead")
    bench.fates.say("refuse", reason="busy")
    with pytest.raises(StoreUnavailable):
        letters(LETTER)
    letters(LETTER)
    assert [stored.letter for stored in letters.all()] == [LETTER]


def test_a_bound_is_met_by_appends_alone(bench: SimulatedBench) -> None:
    """F30 full: the append is told so, as if the retention's bound was reached."""
    make(bench)
    bench.fates.say("refuse", reason="bound")
    assert isinstance(put(bench, 1, "a"), Full)


def test_two_stores_made_alike_answer_alike() -> None:
    """X-9: nothing in it is drawn: the same calls, the same fates, the same answers."""

    def run() -> list[object]:
        bench = SimulatedBench()
        bench.fates.say("")
        bench.fates.say("unknown")
        found: list[object] = [make(bench), put(bench, 1, "a"), put(bench, 1, "a")]
        return [*found, bench.store.info("s"), bench.fates.asked]

    assert run() == run()
