"""What a sink has, compared by content with what it should have (P4 end to end)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate.ends import Ends, Offspring, judge_ends, out_of_order
from surepipe.pipelines.simulate.reference import played, reference_of
from surepipe.pipelines.simulate.simulating import Simulation, SimulationFailed, simulation_of
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside
from surepipe.simulation.options import Options
from tests.pipelines.simulate.kit import HEAD, bank

Row = Mapping[str, int]
ledger = Outside("ledger")


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        ("", "abc"),
        ("abc", "abc"),
        ("ac", "abc"),  # one became a dead letter
        ("abab", "ab"),  # all of it again
        ("aba", "ab"),
        ("bcabc", "abcabc"),  # the first of two that look the same became a dead letter
        ("axb", "ab"),  # something unknown is not judged here
    ],
)
def test_what_may_have_come_in_order_is_left_alone(got: str, wanted: str) -> None:
    """P4: missing ones, repeats, and messages that look the same."""
    assert not out_of_order(got, wanted)


@pytest.mark.parametrize(("got", "wanted"), [("ba", "ab"), ("acb", "abc"), ("cabab", "ababc")])
def test_what_came_late_out_of_order(got: str, wanted: str) -> None:
    """P4: a message came for the first time after a later one."""
    assert out_of_order(got, wanted)


def broken(got: Sequence[str], aside: str, *, leaning: Mapping[str, bool]) -> list[str]:
    """What a run without faults breaks, which is to have three totals, as "one" of its source is a dead letter
    and "bad" always is."""
    world = played(bank(with_key=True), Options(messages=1))
    most = {("lines", "out"): 1}
    offspring = Offspring(
        failed=frozenset({("lines", "bad")}), partly={"out": 0}, most=most, leaning=leaning
    )
    letters = Counter({("lines", aside): 1})
    ends = Ends({"out": got}, {"out": ["1", "3", "6"]}, letters, offspring)
    return [one.property for one in judge_ends(world, ends, {}, {})]


@pytest.mark.parametrize("leaning", [{}, {"out": True}, {"out": False}])
@pytest.mark.parametrize(
    ("got", "aside", "found"),
    [
        (["2", "5"], "one", {"": ["P2", "P3"], "counted": [], "not": []}),
        (["5"], "one", {"": ["P2", "P3"], "counted": ["P2"], "not": []}),
        (["2", "2", "5", "5"], "one", {"": ["P2", "P3"], "counted": ["P3"], "not": []}),
        (["2", "5"], "bad", {"": ["P2", "P3"], "counted": ["P2"], "not": []}),
    ],
)
def test_totals_without_a_dead_letter_are_other_totals(
    got: Sequence[str], aside: str, found: Mapping[str, list[str]], leaning: Mapping[str, bool]
) -> None:
    """P2, P3: their number is compared where one comes of each message; all of it where only that is set aside
    which is so without faults."""
    kind = "" if not leaning or aside == "bad" else "counted" if leaning["out"] else "not"
    assert broken(got, aside, leaning=leaning) == found[kind]


def same(row: Row) -> Row:
    """It may fail by a fault alone."""
    return row


def total(row: Row) -> Row:
    """The documented total: up to its own message, whatever came later."""
    ledger.do("add", row["n"], key=row["n"])
    return {
        **row,
        "total": sum(n for n in cast("Mapping[int, int]", ledger.count("add")) if n <= row["n"]),
    }


def total_but_three(row: Row) -> Row:
    """One of them is always set aside."""
    assert row["n"] != 3
    return total(row)


def difference(row: Row) -> int:
    """Of the one before it, whatever came later: 1 without dead letters, but for one."""
    ledger.do("add", row["n"], key=row["n"])
    known = cast("Mapping[int, int]", ledger.count("add"))
    return DIFFERENCES[row["n"]] - max((DIFFERENCES[n] for n in known if n < row["n"]), default=0)


DIFFERENCES = [0, 1, 3, 4, 8, 10, 16]


def first_of_three(row: Row) -> Mapping[str, int] | None:
    """Two come out of six, whichever is the first of them."""
    kind, key = row["n"] % 2, f"{row['n'] % 2}"
    ledger.do("see", (kind, row["n"]), key=key)
    return {"kind": kind} if (kind, row["n"]) in ledger.count("see") else None


def until_six(row: Row) -> str | None:
    """Something comes out when all have come, whatever their order."""
    ledger.do("add", row["n"], key=row["n"])
    return "all" if len(ledger.count("add")) == 6 else None


def named(row: Row, context: Context) -> Mapping[str, object]:
    """It depends on its own message alone, when it came, and who it is."""
    return {**row, "id": context.id.key, "at": datetime.now(UTC).isoformat()}


def is_large(row: Row) -> bool:
    """How many are depends on those before."""
    return row["total"] > 6


def running_total(row: Row) -> Row:
    """What a crash, or another attempt, makes another total."""
    kept.append(row["n"])
    return {**row, "total": sum(kept)}


kept: list[int] = []
LARGE = '  large: {from: total, filter: "CALL is_large"}\n'


def totals(
    work: str, *, more: str = "", end: str = "total", faults: str = "bad-stage", lanes: int = 0
) -> Simulation:
    """Behind a stage that sets aside. All messages have one key."""
    lines = ", ".join(f"{{n: {n}, of: 1}}" for n in range(1, 7))
    keyed = f"key: of, lanes: {lanes}, boundary: processed"
    head = HEAD.replace("boundary: committed", keyed) if lanes else HEAD
    text = (
        f"{head}stages:\n"
        '  first: {from: intake, call: "CALL same", retries: 2, dead_letter: main/dead}\n'
        f'  total: {{from: first, call: "CALL {work}", retries: 5, dead_letter: main/dead}}\n{more}'
        f"sinks: {{out: {{from: {end}, kind: jsonl, path: out.jsonl}}}}\n"
        f"simulate: {{messages: 6, sample: {{lines: [{lines}]}}}}\n"
    )
    return simulation_of(loads(text.replace("CALL ", f"{__name__}:")), faults=faults)


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "end", "what"), [("", "total", "only the number"), (LARGE, "large", "nothing")]
)
@pytest.mark.parametrize("lanes", [0, 1, 3])
def test_a_total_behind_a_stage_that_sets_aside_is_no_loss(
    lanes: int, more: str, end: str, what: str
) -> None:
    """P2: the total without a dead letter is the right one, and a note tells what was compared. Behind lanes it
    is the same in each order that there may be, and another one even so without one of its key."""
    simulated = totals("total", more=more, end=end, lanes=lanes)
    found = simulated.campaign(range(60))
    assert found.dead
    assert not found.violated
    told = f"of what out gets, {what} was compared in runs in which faults made dead letters"
    assert any(told in note for note in simulated.notes(found))


def test_nothing_is_said_of_dead_letters_of_faults_where_there_are_none() -> None:
    """Some there are without any fault."""
    simulated = totals("total_but_three", faults="none")
    found = simulated.campaign(range(2))
    assert found.dead
    assert not [note for note in simulated.notes(found) if "faults made" in note]


@pytest.mark.parametrize("work", ["same", "first_of_three"])
@pytest.mark.parametrize("lanes", [0, 3])
def test_what_needs_no_other_message_is_compared_in_all_runs(work: str, lanes: int) -> None:
    """P2: not even where others are left out for it, if each of them would come out just so in its place."""
    known = reference_of(totals(work, lanes=lanes).subject, 6)
    assert not known.offspring.leaning
    assert len(known.expected["out"]) == (6 if work == "same" else 2)


@pytest.mark.parametrize(("work", "is_counted"), [("total", True), ("until_six", False)])
def test_an_end_that_needs_other_messages_is_known(work: str, *, is_counted: bool) -> None:
    """P2: also where the order of them does not matter to it at all, and they must but come."""
    known = reference_of(totals(work, lanes=3).subject, 6)
    assert known.offspring.leaning == {"out": is_counted}


@pytest.mark.long
def test_the_order_of_a_key_is_told_by_what_comes_of_it_without_dead_letters() -> None:
    """P4: a text that is another message's without one that is set aside says nothing of the order."""
    simulated = totals("difference", lanes=3)
    found = simulated.campaign(range(60))
    assert found.dead
    assert not found.violated


@pytest.mark.long
def test_what_tells_the_identity_of_its_message_alone_is_compared_in_all_runs() -> None:
    """P2: that is the same whatever was set aside."""
    simulated = totals("named")
    found = simulated.campaign(range(60))
    assert found.dead
    assert not found.violated
    assert not [note for note in simulated.notes(found) if "dead letters" in note]


@pytest.mark.long
def test_a_total_that_is_kept_in_memory_is_found_there_too() -> None:
    """P2: by the runs that set nothing aside."""
    with pytest.raises(SimulationFailed, match="A stage's defect: total "):
        totals("running_total", faults="claim").run(range(60))
    kept.clear()


# What is done outside, where some messages are dead letters.


def but_three(row: Row) -> Row:
    """Not the third."""
    if row["n"] == 3:
        raise ValueError("three is no row")
    return row


def pay(row: Row) -> Row:
    """By a key of its message."""
    ledger.do("pay", row["n"], key=row["n"])
    return row


def pay_at_first(row: Row, context: Context) -> Row:
    """Not where an attempt came to nothing before."""
    return pay(row) if context.attempt == 1 else row


def pay_so_far(row: Row) -> Row:
    """With those before it."""
    known = cast("Mapping[tuple[int, int], int]", ledger.count("so far"))
    before = [n for n, _ in known if n < row["n"]]
    ledger.do("so far", [row["n"], row["n"] + sum(before)], key=row["n"])
    return row


def paying(
    first: str, then: str, *, retries: int = 2, faults: str = "bad-stage", last: bool = False
) -> Simulation:
    """Two stages in a row; with ``last`` the other one sets messages aside, too."""
    letters = ", retries: 3, dead_letter: main/dead" if last else ""
    lines = ", ".join(f"{{n: {n}}}" for n in range(1, 7))
    text = (
        f"{HEAD}stages:\n"
        f'  first: {{from: intake, call: "CALL {first}", retries: {retries}, dead_letter: main/dead}}\n'
        f'  then: {{from: first, call: "CALL {then}"{letters}}}\n'
        "sinks: {out: {from: then, kind: jsonl, path: out.jsonl}}\n"
        f"simulate: {{messages: 6, sample: {{lines: [{lines}]}}}}\n"
    )
    return simulation_of(loads(text.replace("CALL ", f"{__name__}:")), faults=faults)


@pytest.mark.long
@pytest.mark.parametrize("first", ["same", "but_three"])
def test_an_effect_that_is_lost_is_found_though_another_message_is_a_dead_letter(
    first: str,
) -> None:
    """P2: what becomes one in every run explains nothing that is done for others."""
    with pytest.raises(SimulationFailed, match=r"ledger pay \d was never done"):
        paying(first, "pay_at_first", retries=8).run(range(40))


@pytest.mark.long
@pytest.mark.parametrize("retries", [1, 2, 5])
@pytest.mark.parametrize(("first", "then"), [("but_three", "pay"), ("pay", "but_three")])
def test_a_dead_letter_excuses_what_is_done_for_its_message(
    first: str, then: str, retries: int
) -> None:
    """P2: before or behind the stage that can't take it."""
    found = paying(first, then, retries=retries, last=True).campaign(range(40))
    assert found.dead
    assert not found.violated


@pytest.mark.parametrize("is_before", [True, False])
def test_what_is_done_for_messages_that_are_dead_letters_in_each_run_is_told(
    *, is_before: bool
) -> None:
    """P2: nobody knows whether it has to be."""
    simulated = paying(*(("pay", "but_three") if is_before else ("but_three", "pay")), last=True)
    told = simulated.campaign(range(1)).set_aside
    assert ("What is done outside for these messages is not compared" in told) is is_before


@pytest.mark.long
@pytest.mark.parametrize(("first", "faults"), [("same", "bad-stage"), ("but_three", "none")])
def test_what_is_done_with_other_messages_needs_all_of_them(first: str, faults: str) -> None:
    """P2: a sum is another one without a message that is set aside, and a note tells that it was not compared."""
    simulated = paying(first, "pay_so_far", faults=faults)
    found = simulated.campaign(range(60))
    assert found.dead
    assert not found.violated
    told = [note for note in simulated.notes(found) if "faults made dead letters" in note]
    assert bool(told) is (faults == "bad-stage")
    assert all(
        "of what then does outside (ledger so far), only the number" in note for note in told
    )
