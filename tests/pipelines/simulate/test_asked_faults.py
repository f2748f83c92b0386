"""Faults that are asked for by name: they strike, or it is said that they did not, and why."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.core.claims import FAULTS_OF, NO_FAULTS, Atom, Claim, parse_faults
from surepipe.errors import MisuseError
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.simulate.campaign import PlanResult, judged_through
from surepipe.pipelines.simulate.simulating import NotExercised, simulation_of, simulation_of_plan
from surepipe.simulation.faults import CATALOGUE, chosen
from tests.pipelines.simulate.kit import SHOP, command, shop, simulated

pytestmark = pytest.mark.long
WORDS = tuple(dict.fromkeys([*FAULTS_OF, *(kind.kind for kind in CATALOGUE)]))
PLAIN = "def price(order):\n    return {**order, 'cents': 5}\n"

LOCAL = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: stdin}}
pipes: {intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}}
stages: {keep: {from: intake, filter: "tests.pipelines.simulate.kit:same"}}
sinks: {out: {from: keep, kind: jsonl, path: out.jsonl}}
"""
THROUGH_SQLITE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: stdin, node: web}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}, journal: main, boundary: committed, node: shop}}
stages: {keep: {from: intake, filter: "tests.pipelines.simulate.kit:same"}}
sinks: {out: {from: keep, kind: jsonl, path: out.jsonl}}
"""
THROUGH_REDIS = THROUGH_SQLITE.replace(
    "sqlite, path: shop.db", "redis, url: 'redis://localhost'"
).replace("{kind: sqlite, store", "{kind: redis, store")
OVER_TCP = """\
version: 1
name: shop
stores: {a: {kind: sqlite, path: a.db}, b: {kind: sqlite, path: b.db}}
sources: {lines: {kind: stdin, node: web}}
pipes:
  intake:
    from: lines
    layers: [reliable]
    route: {kind: tcp, address: "127.0.0.1:9999", listens: receiver}
    journal: a
    state: b
    boundary: committed
    node: shop
stages: {keep: {from: intake, filter: "tests.pipelines.simulate.kit:same"}}
sinks: {out: {from: keep, kind: jsonl, path: out.jsonl}}
"""
RESENT = """\
version: 1
name: shop
sources: {lines: {kind: stdin}}
pipes: {intake: {from: lines, layers: [resend]}}
stages: {keep: {from: intake, filter: "tests.pipelines.simulate.kit:same"}}
sinks: {out: {from: keep, kind: jsonl, path: out.jsonl}}
"""
WITHOUT_STAGES = "".join(
    line.replace("from: keep", "from: intake")
    for line in LOCAL.splitlines(keepends=True)
    if not line.startswith("stages:")
)
PLANS = {
    "without stages": WITHOUT_STAGES,
    "local": LOCAL,
    "through sqlite": THROUGH_SQLITE,
    "through redis": THROUGH_REDIS,
    "over tcp": OVER_TCP,
    "resent": RESENT,
}
MOST, FEW = 60, 4


def first_that_struck(plan: Plan, word: str, seeds: Sequence[int]) -> int | None:
    """The first of these seeds in which something of this word struck."""
    simulation = simulation_of_plan(plan, messages=8, faults=word)
    ids = {kind.id for kind in chosen([word])}
    return next((seed for seed in seeds if ids & simulation.campaign([seed]).faults.keys()), None)


@pytest.mark.long
@pytest.mark.parametrize("which", PLANS)
def test_each_fault_that_is_asked_for_strikes_or_has_a_reason_not_to(which: str) -> None:
    """Every word, coarse and fine, on every kind of route: what is said to be beyond the plan never strikes, and
    what is not does so soon (X-4)."""
    plan = loads(PLANS[which])
    for word in WORDS:
        told = " ".join(simulation_of_plan(plan, faults=word).unexercised())
        if "none of these schedules had it" in told:
            assert first_that_struck(plan, word, range(MOST)) is not None, (word, told)
        else:
            assert told.startswith(f"{word}, which was asked for, as "), (word, told)
            assert first_that_struck(plan, word, range(FEW)) is None, (word, told)


def test_a_fault_that_can_not_strike_is_never_said_to_have_been_survived(tmp_path: Path) -> None:
    """Not exercised (3), with the reason; a fault beside it that struck is told as before."""
    done = simulated(tmp_path, PLAIN, "--faults", "corruption-at-rest")
    assert done.returncode == Exit.NOT_EXERCISED
    assert "held" not in done.stdout
    reason = "corruption-at-rest, which was asked for, as no pipe goes through a stream of a store"
    assert f"not exercised: {reason}\n" in done.stdout
    beside = command(
        tmp_path / "shop.yaml", "--seeds", "20", "--faults", "receiver-crash,process-crash,trim"
    )
    assert beside.returncode == Exit.NOT_EXERCISED
    assert "held in 20 schedules but for what was not exercised, see below" in beside.stdout


def test_a_fault_that_nothing_promises_to_survive_is_told_as_that(tmp_path: Path) -> None:
    """It struck, and it is said what that means for the verdict."""
    done = simulated(tmp_path, PLAIN, "--seeds", "20", "--faults", "store-rollback")
    assert done.returncode == Exit.HELD, done.stdout + done.stderr
    assert "best-effort, no order; under store-rollback\n" in done.stdout
    assert "exactly-once" not in done.stdout
    assert "note: nothing promises to survive store-rollback, so what it explains" in done.stdout


def test_what_held_is_what_is_promised_through_the_faults_that_were_asked_for(
    tmp_path: Path,
) -> None:
    """With boundary processed a crash repeats messages, and that is no finding: exactly-once is said only of
    the runs that could have none."""
    repeating = SHOP.replace("boundary: committed", "boundary: processed")
    options = ("--seeds", "40", "--faults")
    crashes = simulated(tmp_path, PLAIN, *options, "process-crash", pipeline=repeating)
    weaker = "at-least-once, gap-free order; through"
    assert crashes.returncode == Exit.HELD, crashes.stdout + crashes.stderr
    assert f"held in 40 schedules  intake: {weaker} process-crash\n" in crashes.stdout
    assert f"held in 40 schedules  lines to out: {weaker} process-crash\n" in crashes.stdout
    assert "exactly-once" not in crashes.stdout
    both = command(tmp_path / "shop.yaml", *options, "process-crash,bad-stage").stdout
    assert f"intake: {weaker} process-crash, bad-stage\n" in both
    assert "intake: exactly-once, absolute order; through bad-stage\n" in both


def test_what_is_expected_to_survive_more_is_told_beside_what_is_promised(tmp_path: Path) -> None:
    """At-least-once through a crash was tried, and not said to have held; what no run had is not tried."""
    expect = "expect: {delivery: at-least-once, order: gap-free, tolerates: [process-crash, store-trim]}\n"
    repeating = SHOP.replace("boundary: committed", "boundary: processed") + expect
    done = simulated(tmp_path, PLAIN, "--seeds", "40", "--faults", "claim", pipeline=repeating)
    assert done.returncode == Exit.HELD, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if "lines to out: " in line]
    exactly, weaker = (line.partition("lines to out: ")[2] for line in told)
    assert exactly.startswith("exactly-once, absolute order; through network")
    assert weaker.startswith("at-least-once, gap-free order; through network")
    assert ("process-crash" in exactly, "process-crash" in weaker) == (False, True)
    assert "not tried: store-trim, as no pipe goes through a stream of a store" in done.stdout


FORGETFUL = """\
from surepipe.simulation import Outside

bank = Outside("bank")
paid = set()


def price(order):
    if order["id"] not in paid:
        bank.do("pay", order["id"])
        paid.add(order["id"])
    return order


def once(run):
    assert not bank.repeated()
    assert len(bank.count("pay")) == 12
"""
ONWARD = """\
version: 1
name: shop
expect: {delivery: at-least-once, order: gap-free, tolerates: [process-crash]}
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: none.jsonl}}
pipes:
  intake: {from: lines, journal: main, state: main, boundary: committed}
  onward: {from: intake, route: {kind: sqlite, store: main}}
stages: {price: {from: onward, call: "shop_stages:price"}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
simulate: {messages: 12, sample: {lines: [{id: 1}, {id: 2}, {id: 3}, {id: 4}, {id: 5}, {id: 6},
  {id: 7}, {id: 8}, {id: 9}, {id: 10}, {id: 11}, {id: 12}]}CHECK}
"""


def test_a_fault_that_is_expected_to_be_tolerated_is_tried_whatever_a_single_pipe_survives(
    tmp_path: Path,
) -> None:
    """The second pipe loses what it holds in a crash, and the first one has it: the whole way loses nothing, so a
    stage that pays twice then is found without asking for that fault."""
    checked = ONWARD.replace("CHECK", ", check: 'shop_stages:once'")
    done = simulated(tmp_path, FORGETFUL, "--faults", "claim", "--seeds", "60", pipeline=checked)
    assert done.returncode == Exit.VIOLATED, done.stdout + done.stderr
    assert "for the second time" in done.stdout


@pytest.mark.long
def test_what_is_expected_to_be_tolerated_and_never_struck_is_not_exercised(tmp_path: Path) -> None:
    """With the number of seeds that may have it; and under pytest only where the seeds are many."""
    plain = ONWARD.replace("CHECK", "")
    file = shop(tmp_path, PLAIN, plain)
    done = command(file, "--seeds", "1", "--faults", "claim")
    told = (
        "process-crash, which is expected to be tolerated, as none of these schedules had it; try"
    )
    assert f"not exercised: {told} more of them (--seeds 100)\n" in done.stdout
    assert done.returncode == Exit.NOT_EXERCISED
    many = command(file, "--seeds", "60", "--faults", "claim").stdout
    assert "which is expected" not in many
    assert "lines to out: at-least-once, gap-free order; through" in many
    assert not re.search("not tried: .*crash.* none of these", many), many


def test_what_one_pipe_survives_by_itself_is_not_tried_against_a_check_of_all_and_that_is_said(
    tmp_path: Path,
) -> None:
    """More seeds would not have it: what the check then says would be no finding."""
    keyed = FORGETFUL.replace('"pay", order["id"])', '"pay", order["id"], key=order["id"])')
    checked = ONWARD.replace("CHECK", ", check: 'shop_stages:once'")
    few = ("--seeds", "10", "--faults", "claim")
    done = simulated(tmp_path, keyed, *few, pipeline=checked).stdout
    told = "not tried: host-power-loss, as a check speaks of the whole plan, and not all of it"
    assert f"{told} survives that: --faults tries it\n" in done, done


def test_a_fault_that_struck_only_beside_others_is_not_said_to_be_survived_alone() -> None:
    """In a run that may have a crash nobody judges what no crash survives."""
    everything = Claim(frozenset(Atom), parse_faults(["network"]))
    result = PlanResult("shop", "claim")
    both = parse_faults(["network", "process-crash"])
    result.under.add((both, both))
    assert judged_through(everything, [result]) == NO_FAULTS
    result.under.add((everything.tolerates, parse_faults(["route-loss"])))
    assert judged_through(everything, [result]) == parse_faults(["route-loss"])


def test_a_few_runs_under_pytest_may_do_without_what_comes_by_chance() -> None:
    """One seed is run again with ``--surepipe-seed``, and need not have all that was asked for; but some of it."""
    plan = loads(LOCAL)
    one = first_that_struck(plan, "store-crash", range(MOST))
    assert one is not None
    assert simulation_of(plan, messages=8, faults="store-crash").run([one]).runs == 1
    crashes = simulation_of(plan, messages=8, faults="store-crash,poison").campaign([one]).faults
    assert simulation_of(plan, messages=8, faults="store-crash,poison").run([one]).faults == crashes
    calm = next(seed for seed in range(MOST) if first_that_struck(plan, "poison", [seed]) is None)
    with pytest.raises(
        NotExercised, match="poison, which was asked for, as none of these schedules"
    ):
        simulation_of(plan, messages=8, faults="poison").run([calm])


def test_what_never_happened_says_how_to_see_it(tmp_path: Path) -> None:
    """In words, with a number of seeds."""
    done = simulated(tmp_path, PLAIN, "--seeds", "1", "--faults", "none")
    told = [line for line in done.stdout.splitlines() if line.startswith("not exercised: ")]
    assert told
    assert all(
        line.endswith("none of these schedules had it; try more of them (--seeds 100)")
        for line in told
    )


def test_the_same_is_said_under_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the command are in the text of the failure."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_stages", raising=False)  # of another test's folder
    file = shop(
        tmp_path,
        "def price(order):\n    try:\n        return order\n    except Exception:\n        return None\n",
    )
    said = command(file, "--faults", "trim").stdout
    with pytest.raises(NotExercised) as failed:
        simulation_of(Path(os.fspath(file)), faults="trim").run(range(100))
    lines = [
        line
        for line in said.splitlines()
        if line.startswith(("not exercised: ", "not judged: ", "note: "))
    ]
    assert len(lines) == 2, said
    for line in lines:
        assert line in str(failed.value).splitlines()


@pytest.mark.long
@pytest.mark.parametrize("which", PLANS)
def test_each_fault_that_may_be_drawn_strikes_within_the_usual_number_of_seeds(which: str) -> None:
    """However few the messages: no plan ends as not exercised with the options that nobody has changed (X-4)."""
    simulation = simulation_of_plan(loads(PLANS[which]), messages=3)
    found = simulation.campaign(range(100))
    assert [*simulation.unexercised(found)] == []


GIVEN: tuple[object, ...] = (
    "process-crash, store-outage",
    ["process-crash", "store-outage"],
    ("process-crash", " store-outage "),
    {"store-outage", "process-crash"},
)


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: type(given).__name__)
def test_words_are_given_after_commas_or_as_a_list_a_tuple_or_a_set(given: object) -> None:
    """Of a file and of a handler: the same faults are asked for, in the same order where there is one."""
    for what in (loads(LOCAL), lambda: len):
        asked = simulation_of(what, messages=1, faults=given).asked  # type: ignore[arg-type]
        assert sorted(asked) == ["process-crash", "store-outage"]
    assert simulation_of(loads(LOCAL), messages=1, faults=["none"]).run(range(1)).faults == {}


@pytest.mark.parametrize(
    "given", [7, None, [], "", " , ", {"network": 1}, [1], b"network", ["a,b"]]
)
def test_what_is_no_words_is_refused_as_that(given: object) -> None:
    """Before anything runs, with what may be given."""
    with pytest.raises(MisuseError, match=r"faults are words with commas between them, or a list"):
        simulation_of(loads(LOCAL), messages=1, faults=given)  # type: ignore[arg-type]
