"""Plans through a book under simulation: correct ones are never called broken, planted errors are seen.

``python -m tests.pipelines.simulate.test_books FIRST LAST SEEDS`` runs as many drawn plans as wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.run.books import BookIntake, BookPipe
from surepipe.pipelines.simulate.campaign import PlanResult, run_seeds
from surepipe.pipelines.simulate.simulating import SimulationFailed, simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.pytest_plugin import Simulate
from surepipe.queues.book import BookMessage, Later, Rejected
from surepipe.queues.book.answers import DONE
from surepipe.simulation import Outside

Row = Mapping[str, Any]
HERE = "tests.pipelines.simulate.test_books"
HEAD = "version: 1\nname: shop\nstores: {main: {kind: STORE}}\n"
STORES = (
    "sqlite, path: shop.db",
    "sqlite, path: shop.db",
    "redis, url: 'redis://localhost', durability: power",
)
PLANS = range(6)
SEEDS = range(3)


def same(row: Row) -> Row:
    """What comes goes on."""
    return row


def judged(row: Row) -> object:
    """Each seventh is refused for good."""
    return Rejected("UNSUPPORTED") if row["n"] % 7 == 0 else row


class Patient:
    """Each third message is for later, the first time that this process meets it."""

    def __init__(self) -> None:
        self._met = set[int]()

    def __call__(self, row: Row) -> object:
        if row["n"] % 3 or row["n"] in self._met:
            return row
        self._met.add(row["n"])
        return Later(0.02)


def odd(row: Row) -> bool:
    """Every other one."""
    return bool(row["n"] % 2)


def twofold(row: Row) -> Sequence[Row]:
    """Two of each."""
    return [{**row, "part": part} for part in (1, 2)]


def cost(row: Row) -> int:
    """What it says."""
    return cast("int", row["units"])


def drawn(seed: int) -> str:
    """A correct plan with a book: its store, settings, stages and what is before and behind it."""
    draw = Random(f"book {seed}")
    route = ["kind: book", "store: main", f"quantum: {draw.choice((1, 3, 100))}"]
    if draw.random() < 0.6:
        route += [
            f"budget: {{units: {draw.choice((6, 20))}}}",
            f"period_s: {draw.choice((0.1, 0.5))}",
        ]
        route += [f'cost: "{draw.choice((f"{HERE}:cost", "units"))}"']
        route += [f"max_message_cost: {{units: {draw.choice((3, 5))}}}"]
    route += [f"policy: {draw.choice(('drr', 'rotate'))}", f"retries: {draw.choice((1, 3, 5))}"]
    route += [f"on_overweight: {draw.choice(('park', 'block', 'dead_letter'))}"]
    route += [f"on_poison: {draw.choice(('park', 'block', 'dead_letter'))}"]
    stands = any(setting.endswith("block") for setting in route)
    few = (
        48 if stands else draw.choice((2, 48))
    )  # a key that stands still, and is full, holds up all
    route += [f"page_bytes: {draw.choice((128, 65536))}", f"refuse_pages: {few}"]
    route += [f"commit_messages: {draw.choice((1, 3, 100))}", "lease_s: 2", "retry_max_s: 0.5"]
    lanes = f"lanes: {draw.choice((2, 4))}, " if draw.random() < 0.7 else ""
    node = "node: away, " if draw.random() < 0.4 else ""
    stage = draw.choice(
        (
            f"call: {{from: calls, call: '{HERE}:same'}}",
            f"call: {{from: calls, call: '{HERE}:judged'}}",
            f"call: {{from: calls, call: '{HERE}:Patient'}}",
            f"call: {{from: calls, filter: '{HERE}:odd'}}",
            f"call: {{from: calls, flat-map: '{HERE}:twofold'}}",
        )
    )
    before, source = "", "lines"
    if draw.random() < 0.3:
        before, source = "  intake: {from: lines, journal: main}\n", "intake"
    behind, end = "", "call"
    if draw.random() < 0.4:
        settled = draw.choice(("", ", boundary: committed, state: main"))
        behind = f"  after: {{from: call, route: {{kind: KIND, store: main}}{settled}}}\n"
        end = "after"
    sink = draw.choice(
        (
            "{from: END, kind: stream, store: main, stream: out}",
            "{from: END, kind: jsonl, path: out.jsonl}",
        )
    )
    store = draw.choice(STORES)
    text = (
        HEAD.replace("STORE", store)
        + "sources: {lines: {kind: jsonl, path: in.jsonl, key: tenant}}\n"
        + f"pipes:\n{before}  calls: {{from: {source}, {lanes}{node}route: {{{', '.join(route)}}}}}\n{behind}"
        + f"stages: {{{stage}}}\nsinks: {{out: {sink.replace('END', end)}}}\n"
    )
    return text.replace("KIND", store.partition(",")[0])


def subject_of(text: str, count: int = 12) -> PlanSubject:
    """The plan, with rows of four tenants that cost from one to six units."""
    rows = [{"n": n, "tenant": "abca"[n % 4], "units": 1 + n % 6} for n in range(1, count + 1)]
    return simulation_of(loads(text), messages={"lines": rows}).subject


def found_in(text: str, seeds: range, mode: str = "claim") -> dict[str, str]:
    """The first failure of each property."""
    result: PlanResult = run_seeds(subject_of(text), seeds, mode=mode, messages=12)
    return {name: f"seed {one.seed}: {one.violation}" for name, one in result.failures.items()}


@pytest.mark.long
@pytest.mark.parametrize("seed", PLANS)
def test_a_correct_plan_through_a_book_is_never_called_broken(seed: int) -> None:
    """BQ-72, B-109: drawn plans, with the faults that they promise to survive."""
    assert found_in(drawn(seed), SEEDS) == {}, drawn(seed)


@pytest.mark.parametrize(
    ("plan", "mode", "seed"),
    [
        (5, "claim", 113),
        (5, "claim", 144),
        (5, "store-outage", 26),
        (4, "claim", 66),
        (3, "claim", 54),
        (11, "claim", 39),
    ],
)
def test_what_ends_of_a_book_tell_of_it_is_understood(plan: int, mode: str, seed: int) -> None:
    """Who hands out a message may tell of it before who put it there, which may have crashed before it could:
    neither is another order, nor a number that was given twice. And what a worker had in work when its store was
    away it may handle again."""
    rows = [{"n": n, "tenant": "abca"[n % 4], "units": 1 + n % 6} for n in range(1, 13)]
    simulation = simulation_of(loads(drawn(plan)), messages={"lines": rows}, faults=mode)
    assert simulation.campaign([seed]).failures == {}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["process-crash", "store-outage"])
def test_what_a_correct_plan_promises_through_a_crash_holds(fault: str) -> None:
    """BQ-72: nothing is lost where nothing parks, whatever a crash repeats; 4 has a stage that says Later, and
    what comes out of 5 depends on which message its key is blocked at, which its order says."""
    rows = [{"n": n, "tenant": "abca"[n % 4], "units": 1 + n % 6} for n in range(1, 13)]
    for seed in (0, 4, 5):
        simulation = simulation_of(loads(drawn(seed)), messages={"lines": rows}, faults=fault)
        done = simulation.campaign(SEEDS)
        assert (done.failures, bool(done.faults)) == ({}, True), drawn(seed)
        assert done.not_compared == {}


PLAIN = HEAD.replace("STORE", STORES[0]) + (
    "sources: {lines: {kind: jsonl, path: in.jsonl, key: tenant}}\n"
    "pipes: {calls: {from: lines, lanes: 2, route: {kind: book, store: main, on_overweight: dead_letter, "
    f"on_poison: dead_letter, max_message_cost: {{units: 5}}, cost: '{HERE}:cost'}}}}}}\n"
    f"stages: {{call: {{from: calls, call: '{HERE}:same'}}}}\n"
    "sinks: {out: {from: call, kind: stream, store: main, stream: out}}\n"
)
Planted = Callable[[pytest.MonkeyPatch], None]


def forgets(patch: pytest.MonkeyPatch) -> None:
    """The third message of each queue is said to be done, and nobody has handled it."""
    handled = BookPipe._handled  # pyright: ignore[reportPrivateUsage]

    def skip(self: BookPipe, message: BookMessage) -> object:
        return DONE if message.number == 3 else handled(self, message)

    patch.setattr(BookPipe, "_handled", skip)


def swaps(patch: pytest.MonkeyPatch) -> None:
    """What is put in with one write is put in backwards."""
    admit = BookIntake._admit  # pyright: ignore[reportPrivateUsage]

    def backwards(self: BookIntake, messages: Sequence[tuple[str, bytes]], position: Any) -> None:
        admit(self, messages[::-1], position)

    patch.setattr(BookIntake, "_admit", backwards)


def pays_for_all(patch: pytest.MonkeyPatch) -> None:
    """The cut-off is forgotten, so what should be a dead letter is handled."""

    def fits(cost: object, cut_off: object) -> bool:
        del cost, cut_off
        return False

    patch.setattr("surepipe.queues.book.service._is_over", fits)


def does_it_twice(patch: pytest.MonkeyPatch) -> None:
    """Each message is handled once more, as if it were another one."""
    handled = BookPipe._handled  # pyright: ignore[reportPrivateUsage]

    def twice(self: BookPipe, message: BookMessage) -> object:
        handled(self, message)
        message.number += 1_000
        try:
            return handled(self, message)
        finally:
            message.number -= 1_000

    patch.setattr(BookPipe, "_handled", twice)


@pytest.mark.parametrize("plant", [forgets, swaps, pays_for_all, does_it_twice])
def test_a_planted_error_is_seen(plant: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """BQ-72: without any fault, or with those that are promised."""
    assert found_in(PLAIN, range(1), "none") == {}
    plant(monkeypatch)
    found = found_in(PLAIN, range(2), "none") or found_in(PLAIN, range(4))
    assert found, plant.__doc__


api = Outside("api")


def calls(row: Row) -> Row:
    """An effect outside, without a key by which a repeat could be told."""
    api.do("call", row["n"])
    return row


def calls_with_key(row: Row, context: Context) -> Row:
    """The same with one: the message stays the same when it comes again."""
    api.do("call", row["n"], key=context.id)
    return row


@pytest.mark.long
def test_the_fixture_breaks_a_pipeline_with_a_book(simulate: Simulate) -> None:
    """A process is killed between a call and the commit of the book: without a key it is made twice."""
    rows = [{"n": n, "tenant": "ab"[n % 2], "units": 1} for n in range(8)]

    def once(run: object) -> bool:
        del run
        return all(times == 1 for times in api.count("call").values())

    kept = loads(PLAIN.replace(f"{HERE}:same", f"{HERE}:calls_with_key"))
    simulate(kept, messages={"lines": rows}, seeds=100, faults="process-crash", check=once)
    broken = loads(PLAIN.replace(f"{HERE}:same", f"{HERE}:calls"))
    with pytest.raises(SimulationFailed, match=r"call \d happened twice"):
        simulate(broken, messages={"lines": rows}, seeds=100, faults="process-crash", check=once)


def main() -> None:
    """Tell of each drawn plan that is called broken."""
    first, last, seeds = map(int, sys.argv[1:4])
    for seed in range(first, last):
        found = found_in(drawn(seed), range(seeds))
        sys.stdout.write(f"{seed} {found or 'held'}\n{drawn(seed) if found else ''}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
