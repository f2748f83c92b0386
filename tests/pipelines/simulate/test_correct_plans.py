"""Correct pipelines are never called broken: those that once were, and plans drawn from seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.audit.settings import facts_of
from surepipe.cli.app import run
from surepipe.cli.output import Exit
from surepipe.core.claims import Atom
from surepipe.pipelines import loads
from surepipe.pipelines.assessing import assess
from surepipe.pipelines.simulate.campaign import PlanResult, repeat, run_one, run_seeds
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.options import SECOND, Options
from surepipe.simulation.results import RunResult
from tests.pipelines.simulate.generated import ERRORS, alarms, case_of, planted, seen

HEAD = "version: 1\nname: shop\nstores: {main: {kind: sqlite, path: shop.db, durability: power}}\n"
STREAMED = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
JOINED = """\
sources: {left: {kind: jsonl, path: left.jsonl}, right: {kind: jsonl, path: right.jsonl}}
pipes: {intake: {from: [left, right], journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""


def all_twelve(run: RunOutcome) -> bool:
    """A check that speaks of all messages."""
    return len(run.delivered["out"]) == 12


def subject_of(parts: str, **rows: int) -> PlanSubject:
    """A plan whose sources have so many rows each."""
    samples = {name: [{"n": f"{name} {n}"} for n in range(many)] for name, many in rows.items()}
    return simulation_of(loads(HEAD + parts), messages=samples).subject


def found_in(subject: PlanSubject, seeds: range, mode: str = "claim") -> dict[str, str]:
    """The first failure of each property."""
    result: PlanResult = run_seeds(subject, seeds, mode=mode, messages=subject.most)
    return {name: str(one.violation) for name, one in result.failures.items()}


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_what_a_transaction_settles_is_settled_before_its_position_is_told(store: str) -> None:
    """P10: rows and position are one step of a committed stream; told the other way round it looked too early."""
    parts = STREAMED.replace("kind: sqlite, store", f"kind: {store}, store")
    head = HEAD.replace("kind: sqlite, path: shop.db", "kind: redis, url: 'redis://localhost'")
    text = (head if store == "redis" else HEAD) + parts
    subject = simulation_of(loads(text), messages={"lines": [{"n": n} for n in range(6)]}).subject
    assert found_in(subject, range(3), "none") == {}


def test_rows_that_a_crash_lets_a_source_give_again_are_no_defect_without_a_journal() -> None:
    """P3, F8: how far a source was read is stored after its rows were taken, so nobody promises that there are no
    repeats; a journal does both in one step."""
    subject = subject_of(STREAMED, lines=4)
    (way,) = subject.ways.values()
    assert "sender-crash" not in way[Atom.NO_DUPLICATE]
    assert "route-loss" in way[Atom.NO_DUPLICATE]
    (said,) = assess(subject.plan).ways
    assert said.explanation is not None
    assert "the source gives rows again" in str(said.explanation)
    assert found_in(subject, range(56, 57)) == {}
    assert found_in(subject, range(69, 70)) == {}
    journaled = subject_of(STREAMED.replace("state: main", "state: main, journal: main"), lines=4)
    assert all("sender-crash" in way[Atom.NO_DUPLICATE] for way in journaled.ways.values())


def test_a_script_with_two_sources_can_be_repeated() -> None:
    """X-19: offers are named by their source, else the script of one is taken for that of the other."""
    subject = subject_of(JOINED, left=9, right=9)
    for seed in range(4):
        options = Options(seed=seed, messages=9, shape="bursts", gap_us=5_000)
        drawn, _ = run_one(subject, options)
        again = repeat(subject, drawn.script)
        assert (again.stale, again.digest) == (None, drawn.digest)


def test_a_check_that_speaks_of_all_messages_gets_all_of_them() -> None:
    """X-26: the number of messages is raised before chance is asked for anything."""
    rows = [{"n": n} for n in range(12)]
    simulation = simulation_of(
        loads(HEAD + STREAMED),
        messages={"lines": rows},
        check=all_twelve,
    )
    found = run_seeds(simulation.subject, range(2), mode="none", messages=5, has_check=True)
    assert (found.violated, found.delivered) == ({}, 24)


def test_a_source_file_that_is_not_there_is_told_and_nothing_is_said_to_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X-21, X-22: rows that were made up would show nothing of the stages; the exit code is that of a file that
    can't be used. An empty file is as good as none."""
    file = tmp_path / "shop.yaml"
    file.write_text(HEAD + STREAMED)
    for said in ("lines.jsonl is not there", "lines.jsonl has no rows"):
        assert run(["simulate", str(file), "--seeds", "2", "--jobs", "1"]) == Exit.UNUSABLE
        told = capsys.readouterr()
        assert said in told.err
        assert "sample: {lines: [...]}" in told.err
        assert "nothing broke" not in told.out
        (tmp_path / "lines.jsonl").write_text("")


SPLIT = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, journal: main}}
stages:
  BRANCH
sinks:
  out: {from: both, kind: python, call: "CALL ignored"}
  all: {from: intake, kind: python, call: "CALL ignored", idempotent: true}
"""


def ignored(message: object) -> None:
    """Nothing is done with it."""
    del message


def taken(message: object) -> bool:
    """It goes on."""
    return message is not None


def both_halves(message: object) -> list[object]:
    """Two messages of each."""
    return [["left", message], ["right", message]]


def opened(batch: list[object]) -> list[object]:
    """A batch as the messages that it was made of."""
    return batch


@pytest.mark.parametrize(
    ("branch", "failing"),
    [
        ('both: {from: intake, flat-map: "CALL both_halves"}', ["out 1 of shop/intake #2"]),
        (
            'some: {from: intake, batch: {max: 3}}\n  both: {from: some, flat-map: "CALL opened"}',
            ["out 1 of shop/intake", "out 1 of shop/intake #2"],
        ),
    ],
    ids=["the second part fails", "the batch fails, then its first message"],
)
def test_what_came_of_a_message_that_fails_is_neither_lost_nor_repeated(
    branch: str, failing: list[str]
) -> None:
    """P2, P3, F20: parts that are done are passed over at the next attempt. One that was only collected for a
    batch is not done: passed over, it would be in no batch at all, and nobody would notice that it is lost."""
    text = SPLIT.replace("BRANCH", branch).replace("CALL ", f"{__name__}:")
    subject = subject_of(text, lines=2)
    raises = tuple(
        Decision("stage/handler", f"call of {one}", "raise", (1,), "F20") for one in failing
    )
    found = repeat(subject, Script(subject.name, {"messages": 2}, raises, 1))
    assert (found.stale, [str(one) for one in found.violations]) == (None, [])


def none_of_the_first(message: dict[str, str]) -> list[object]:
    """One message of each but the first."""
    return [] if message["n"] == "lines 0" else [message]


def refusing_the_first(message: dict[str, str]) -> object:
    """It fails for the first."""
    if message["n"] == "lines 0":
        raise ValueError("no")
    return message


def nothing_at_the_next_attempt(message: object, context: Context) -> object:
    """A planted error."""
    return message if context.attempt == 1 else None


def run_of(parts: str, *calls: str, how: tuple[str, int, str] = ("raise", 1, "F20")) -> RunResult:
    """One run of a plan of three messages whose stages fail at these calls, and nothing else does."""
    subject = subject_of(parts.replace("CALL ", f"{__name__}:"), lines=3)
    verb, value, fault = how
    struck = tuple(
        Decision("stage/handler", f"call of {one}", verb, (value,), fault) for one in calls
    )
    found = repeat(subject, Script(subject.name, {"messages": 3}, struck, 1))
    assert found.stale is None
    return found


ASIDE = "retries: 1, dead_letter: main/bad"
BOTH = f'flat-map: "CALL both_halves", {ASIDE}'
INTAKE = "intake: {from: lines, journal: main}"
SETTING_ASIDE = {
    "two rows": (INTAKE, f"both: {{from: intake, {BOTH}}}", "both 1 of shop/intake"),
    "of each two again": (
        INTAKE,
        f"half: {{from: intake, {BOTH}}}, both: {{from: half, {BOTH}}}",
        "both 1 of shop/intake",
    ),
    "two sinks": (
        INTAKE,
        f"both: {{from: intake, {BOTH}}}",
        "both 1 of shop/intake",
        "other: {from: both, kind: jsonl, path: other.jsonl}",
    ),
    "lanes": (
        "intake: {from: lines, journal: main, key: n, lanes: 2}",
        f"both: {{from: intake, {BOTH}}}",
        "both 1 of shop/intake",
    ),
    "in the second pipe": (
        f"{INTAKE}, next: {{from: intake, journal: main}}",
        f"both: {{from: next, {BOTH}}}",
        "both 1 of shop/next",
    ),
    "before the second pipe": (
        f"{INTAKE}, next: {{from: half, journal: main}}",
        f'half: {{from: intake, {BOTH}}}, both: {{from: next, map: "CALL both_halves"}}',
        "half 1 of shop/intake",
    ),
    "before the first pipe": (
        "intake: {from: half, journal: main}",
        f'half: {{from: lines, {BOTH}}}, both: {{from: intake, map: "CALL both_halves"}}',
        "half 1 of shop/lines",
    ),
    "a batch, and then its first message": (
        INTAKE,
        (
            "some: {from: intake, batch: {max: 3}}, "
            f'open: {{from: some, flat-map: "CALL opened"}}, both: {{from: open, {BOTH}}}'
        ),
        "both 1 of shop/intake",
        "",
        "both 1 of shop/intake #2",
    ),
    "one row": (
        INTAKE,
        (
            f'some: {{from: intake, filter: "CALL taken", {ASIDE}}}, '
            'both: {from: some, map: "CALL both_halves"}'
        ),
        "some 1 of shop/intake",
    ),
}


def line_of(pipes: str, stages: str, last: str = "both", sinks: str = "") -> str:
    """A plan with these parts, its source in front and a file behind the last of them."""
    return (
        "sources: {lines: {kind: jsonl, path: lines.jsonl}}\n"
        f"pipes: {{{pipes}}}\nstages: {{{stages}}}\n"
        f"sinks: {{out: {{from: {last}, kind: jsonl, path: out.jsonl}}, {sinks}}}\n"
    )


@pytest.mark.parametrize("case", SETTING_ASIDE)
def test_a_message_that_is_set_aside_takes_all_with_it_that_would_have_come_of_it(
    case: str,
) -> None:
    """P2, F20: with one letter two rows are missing, or more. Letters were counted against rows."""
    pipes, stages, first, *rest = SETTING_ASIDE[case]
    found = run_of(line_of(pipes, stages, sinks="".join(rest[:1])), first, *rest[1:])
    assert [str(one) for one in found.violations] == []


def test_a_letter_explains_no_loss_of_another_message() -> None:
    """P2: of the first message nothing would have come, so what is missing is another one's."""
    stages = (
        f'some: {{from: intake, flat-map: "CALL none_of_the_first", {ASIDE}}}, '
        'lossy: {from: some, call: "CALL nothing_at_the_next_attempt"}'
    )
    calls = ("some 1 of shop/intake", "lossy 2 of shop/intake")
    found = run_of(line_of(INTAKE, stages, "lossy"), *calls)
    lost = found.violates("P2")
    assert lost is not None
    assert "1 message never came out" in lost.sentence
    assert "lines 1" in lost.sentence


def test_a_letter_that_each_run_has_explains_no_loss() -> None:
    """P2: the first message is set aside without faults, too, and the second one is lost."""
    stages = (
        f'some: {{from: intake, call: "CALL refusing_the_first", {ASIDE}}}, '
        'lossy: {from: some, call: "CALL nothing_at_the_next_attempt"}'
    )
    found = run_of(line_of(INTAKE, stages, "lossy"), "lossy 2 of shop/intake")
    lost = found.violates("P2")
    assert lost is not None
    assert "1 message never came out" in lost.sentence


@pytest.mark.parametrize(("verb", "fault"), [("raise", "F20"), ("slow", "F21")])
def test_each_stage_counts_its_own_attempts(verb: str, fault: str) -> None:
    """P14: first fails, then second, then first again. Neither was tried more often than it may be."""
    part = 'filter: "CALL taken", retries: 2, dead_letter: main/bad, time_limit_s: 1'
    stages = f"first: {{from: intake, {part}}}, second: {{from: first, {part}}}"
    calls = ("first 1 of shop/intake", "second 1 of shop/intake", "first 1 of shop/intake #3")
    value = 1 if verb == "raise" else 2 * SECOND
    found = run_of(line_of(INTAKE, stages, "second"), *calls, how=(verb, value, fault))
    assert [str(one) for one in found.violations] == []
    raised = [facts_of(row) for row in found.rows if row.kind == "raised"]
    assert [one["stage"] for one in raised] == ["first", "second", "first"]
    assert {one["fault"] for one in raised} == {fault}


def test_positions_that_are_stored_first_are_told_of_each_stream() -> None:
    """P10: with boundary before a position is stored before its messages come out; nothing else is promised."""
    parts = STREAMED.replace("boundary: committed", "boundary: before")
    assert found_in(subject_of(parts, lines=6), range(3), "none") == {}


def test_a_reader_that_has_caught_up_is_not_over_while_its_handler_is_busy() -> None:
    """P2: with boundary handed the position is at the end long before the handler; a slow one lost what waited."""
    parts = STREAMED.replace("boundary: committed", "boundary: handed, node: away").replace(
        "kind: jsonl, path: out.jsonl", f'kind: python, call: "{__name__}:ignored"'
    )
    subject = subject_of(parts, lines=6)
    result, _ = run_one(subject, Options(messages=6, handler_us=SECOND))
    assert [str(one) for one in result.violations] == []


def test_an_outage_loses_what_was_settled_before_a_store_had_what_comes_of_it() -> None:
    """F18, P2: with boundary handed nobody brings such a message again, so check promises nothing of it."""
    parts = JOINED.replace("state: main, boundary: committed", "boundary: handed").replace(
        "kind: jsonl, path: out.jsonl", "kind: stream, store: main, stream: out"
    )
    assert all(
        "store-outage" not in way[Atom.NO_LOSS]
        for way in subject_of(parts, left=1, right=1).ways.values()
    )


def test_an_expectation_that_does_not_hold_fails_the_command_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P15: what is expected is not what the runs are held to, so no run can show that it is missed."""
    expect = "boundary: handed, expect: {delivery: at-least-once, tolerates: receiver-crash}"
    (tmp_path / "shop.yaml").write_text(HEAD + STREAMED.replace("boundary: committed", expect))
    (tmp_path / "lines.jsonl").write_text("1\n2\n")
    assert run(["simulate", str(tmp_path / "shop.yaml"), "--seeds", "2"]) == Exit.VIOLATED
    assert "P15 expectation violated: intake" in capsys.readouterr().out


def test_two_ways_into_a_sink_that_knows_repeats_lose_nothing() -> None:
    """P2: both halves of a message come to it, under identities of their own."""
    parts = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines}}
stages:
  left: {from: intake, key-by: n}
  right: {from: intake, filter: "CALL taken"}
sinks: {out: {from: [left, right], kind: python, call: "CALL ignored", idempotent: true}}
"""
    subject = subject_of(parts.replace("CALL ", f"{__name__}:"), lines=3)
    assert found_in(subject, range(2), "none") == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 30, 40, 81, 108])
def test_a_generated_plan_is_not_called_broken(seed: int) -> None:
    """V-1, X-71: sources, routes, boundaries, lanes, stages and sinks as the seed has them. Once it was said of 30
    (two ways into one sink), 40 (a batch that failed), 81 (a frame for a process that had not begun was lost) and
    108 (an outage of a sink's store)."""
    assert list(alarms(case_of(seed), range(3))) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("plan", "seed"),
    [(21, 0), (35, 3), (101, 1), (119, 7), (121, 6), (173, 6), (208, 0), (230, 0), (327, 1)],
)
def test_a_generated_plan_is_not_called_broken_any_more(plan: int, seed: int) -> None:
    """V-1, X-71: by the seed that said so. 21: boundary handed, and a batch with a message that fails; 35: resend
    sent again what lanes had settled; 101: a pause in a look;
    119, 173: what waits in the lane of a message that fails; 121: a start that failed when messages had been
    taken; 208: a batch behind a batch; 230: the stream of the next pipe, written in a transaction;
    327: what a link held came in any order."""
    assert list(alarms(case_of(plan), range(seed, seed + 1))) == []


@pytest.mark.long
@pytest.mark.parametrize("plan", [2003, 2011, 2023, 2037, 2051, 2116])
def test_a_generated_plan_that_gives_messages_up_soon_is_not_called_broken(plan: int) -> None:
    """V-1, P2, P14, F20: each of these was. 2003, 2011, 2037: with one letter several rows were missing, also
    of several stages; 2023, 2051, 2116: failures of several stages were taken for those of one."""
    assert list(alarms(case_of(plan), range(3))) == []


@pytest.mark.long
@pytest.mark.parametrize(("plan", "seed"), [(4009, 11), (4059, 0), (4094, 10)])
def test_a_stage_that_can_never_take_some_message_is_not_called_broken(
    plan: int, seed: int
) -> None:
    """V-1, P14: a store took back an attempt, with the messages before it; 4009: that a stage raises by itself is
    a fault through which no order was promised."""
    assert list(alarms(case_of(plan), range(seed, seed + 1))) == []


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS)
def test_a_planted_error_is_seen(error: str) -> None:
    """V-1: of each kind the first pipeline; stages that are correct, and a route, are drawn around it."""
    assert seen(planted(error, 0), range(40))


def test_an_outage_of_the_store_of_a_sink_changes_the_order_where_later_messages_go_on() -> None:
    """F18, P4: the message whose row it did not take has failed, and comes later."""
    parts = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, layers: [LAYERS], journal: main, state: main, boundary: processed}}
sinks: {out: {from: intake, kind: stream, store: main, stream: out}}
"""
    for layers, keeps in (("dedupe, multi-unconfirmed", False), ("reliable", True)):
        (way,) = subject_of(parts.replace("LAYERS", layers), lines=2).ways.values()
        assert ("store-outage" in way.get(Atom.GAP_FREE, ())) is keeps
        assert "store-outage" in way[Atom.NO_LOSS]


def test_a_store_that_crashes_takes_what_its_outage_takes() -> None:
    """F13, F18: until it has started again it does not answer, and it may stand on another host than its users."""
    parts = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, layers: [LAYERS], journal: main, state: main, boundary: processed}}
sinks: {out: {from: intake, kind: stream, store: main, stream: out}}
"""
    for layers in ("dedupe, multi-unconfirmed", "reliable", "multi-unconfirmed"):
        (way,) = subject_of(parts.replace("LAYERS", layers), lines=2).ways.values()
        for faults in way.values():
            assert not {"store-crash", "power-loss"} & {*faults} or "store-outage" in faults


def test_a_batch_that_fails_is_tried_in_parts_with_all_that_it_had_done() -> None:
    """F20, P3: the first message alone comes to the sink once more, unless a transaction took the batch back."""
    parts = """\
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, journal: main, state: main, boundary: BOUNDARY}}
stages: {some: {from: intake, batch: {max: 3}}}
sinks: {out: {from: some, kind: jsonl, path: out.jsonl}}
"""
    for boundary, keeps in (("processed", False), ("committed", True)):
        (way,) = subject_of(parts.replace("BOUNDARY", boundary), lines=2).ways.values()
        assert ("handler-failure" in way[Atom.NO_DUPLICATE]) is keeps


@pytest.mark.parametrize(("plan", "seed"), [(317, 0), (319, 0), (1010, 7)])
def test_rows_that_cannot_be_read_are_letters_and_no_defect(plan: int, seed: int) -> None:
    """V-1, P2, P3, F20: of two sources into one stream of letters (317, 319), and where two processes read what
    can't be read again (1010). Both were called broken once, or ended the tool."""
    assert list(alarms(case_of(plan), range(seed, seed + 1))) == []
