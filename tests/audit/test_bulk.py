"""An audit in bulk says what the audit row by row says, of logs of any size (pipes V-1; spark SP-18)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from surepipe.audit.bulk import BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.bulk import statements as numbering_module
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.settings import ATOMS
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import BY_CONFIRM, Standing, audit
from surepipe.audit.trace_file import line_of, write_trace
from surepipe.core.claims import Atom, Fault
from surepipe.simulation import HopSubject, promise_of, run_hop
from surepipe.simulation.faults import Mode, draw_options
from tests.audit.judges import assert_as_predicates, assert_as_row_by_row
from tests.audit.planted import AT_REST, Planted, Run, Told, planted_traces
from tests.faults.quarry import QUARRY

CRASH = Fault.RECEIVER_CRASH.value


def judged(
    rows: Sequence[Row], folder: Path, name: str = "trace.jsonl", **more: object
) -> BulkAudit:
    """The verdict on these rows, through a file."""
    path = folder / name
    write_trace(rows, path)
    place = place_of(str(path))
    question = replace(Question(place, place), **more)  # type: ignore[arg-type]
    return judge(DuckEngine(), question)


def one_channel(planted: Planted) -> list[Row]:
    """The trace of one channel."""
    told = Told()
    told.channel(planted)
    return told.rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("holes", [False, True])
def test_planted_faults_are_found_as_by_the_other_two_judges(
    seed: int, holes: bool, tmp_path: Path
) -> None:
    """Fifty random channels: every number and outcome, with and without holes in the sent log (sp9);
    where there are examples, what is broken has one."""
    channels, rows = planted_traces(50, seed, holes=holes)
    found = judged(rows, tmp_path)
    told = [one for channel in found.channels if channel.examples for one in channel.judged()]
    assert not [str(one) for one in told if one.standing is Standing.BROKEN and not one.why]
    assert_as_row_by_row(found, rows)
    assert_as_predicates(found, channels)


@pytest.mark.parametrize("subject", QUARRY[::9], ids=lambda subject: subject.name)
def test_runs_of_the_simulator_are_judged_as_row_by_row(
    subject: HopSubject, tmp_path: Path
) -> None:
    """simulation X-1: drawn faults beyond the claim, with lives, unknown submits, rollbacks and letters.

    Two lives of a sender that write at the same time are left out, and a clock that is set back: in bulk a life
    comes after those of lower numbers, row by row a message after those that were accepted before.
    """
    for seed in range(3):
        drawn = draw_options(seed, promise_of(subject), mode=Mode.BREAK, messages=10)
        rows = run_hop(subject, replace(drawn, sender_zombies=0, wall_steps=0), judge=None).rows
        assert_as_row_by_row(judged(rows, tmp_path, f"{seed}.jsonl"), rows)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_the_plan_of_sets_says_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the sent log had too many pieces for a join of ranges: message by message."""
    channels, rows = planted_traces(40, seed=77, holes=True)
    by_ranges = judged(rows, tmp_path, name)
    monkeypatch.setattr("surepipe.audit.bulk.judging.SPANS_MAX", 0)
    one_by_one = judged(rows, tmp_path, name)
    assert one_by_one == by_ranges
    assert_as_predicates(one_by_one, channels)
    assert numbering_module.SPANS_MAX > 0


def test_numbers_sum_and_examples_of_a_channel(tmp_path: Path) -> None:
    """1 2 5 5 4 9 of 10: the case of the audit row by row, with the width of gaps and identities (SP-18)."""
    came = [(1, n, n) for n in (1, 2, 5, 5, 4, 9)]
    found = judged(one_channel(Planted("orders", [(1, 1, 10)], came)), tmp_path)
    assert "\n".join(found.lines()).splitlines() == [
        "orders: 10 sent = 5 settled + 0 dead letters + 0 in flight + 5 lost",
        "  1 repeated, 1 out of order, 2 gaps (widest 3)",
        "  no-loss: broken",
        "    #6 to #8 (3) never came out; from epoch 1, seq 6",
        "    #3 never came out; from epoch 1, seq 3",
        "    #10 never came out; from epoch 1, seq 10",
        "  no-duplicate: broken",
        "    #5 came out again; from epoch 1, seq 5",
        "  monotonic: broken",
        "    #4 came out after a later message; from epoch 1, seq 4",
        "  gap-free: broken",
        "    #6 to #8 (3) passed over; from epoch 1, seq 6",
        "    #3 to #4 (2) passed over; from epoch 1, seq 3",
    ]
    assert found.is_broken
    assert not found.channel("orders").conserved


def test_dead_letters_and_the_sum_of_a_good_channel(tmp_path: Path) -> None:
    """Sent = settled + dead letters + in flight (SP-18); a letter put again is the same letter."""
    came = [(1, 1, 3), (1, 4, 4), (1, 4, 4), (1, 5, 6)]
    rows = one_channel(Planted("orders", [(1, 1, 6)], came, dead=[(1, 4, 4)]))
    found = judged(rows, tmp_path)
    assert found.channel("orders").sum == "6 sent = 5 settled + 1 dead letters + 0 in flight"
    assert found.channel("orders").conserved
    assert found.is_held


def test_a_message_that_its_sender_gave_up_is_a_dead_letter_and_did_not_come_out(
    tmp_path: Path,
) -> None:
    """The sender writes the letter: a gap for the order, no loss, as row by row."""
    told = Told()
    told.channel(Planted("orders", [(1, 1, 5)], [(1, 1, 2), (1, 4, 5)]))
    told.rows.insert(-3, replace(told.rows[3], kind=Kind.DEAD, seq=3, count=1))
    steps: dict[str, int] = {}
    for row in told.rows:
        row.step = steps.get(row.node, 0)
        steps[row.node] = row.step + 1
    found = judged(told.rows, tmp_path)
    assert_as_row_by_row(found, told.rows)
    assert (found.channel("orders").dead, found.channel("orders").lost) == (1, 0)


def settled_as_sent(told: Told, folder: Path) -> BulkAudit:
    """The verdict when 1 to 3 of epoch 1 and 1 to 6 of epoch 2 have come out: these nine were sent."""
    for run in ((1, 1, 3), (2, 1, 6)):
        told.tell("r", Kind.SETTLED, "orders", run)
    for node in ("s", "r"):
        told.tell(node, Kind.END, "orders", detail=AT_REST)
    found = judged(told.rows, folder)
    assert_as_row_by_row(found, told.rows)
    assert (found.channel("orders").sent, found.channel("orders").settled) == (9, 9)
    return found


def test_renumbered_messages_keep_their_positions(tmp_path: Path) -> None:
    """4 and 5 of epoch 1 come out as 1 and 2 of epoch 2: in order, nothing lost, nothing foreign."""
    told = Told()
    told.tell("s", Kind.START, "orders")
    told.tell("r", Kind.START, "orders")
    told.tell("s", Kind.ACCEPTED, "orders", (1, 1, 5))
    told.tell("s", Kind.RENUMBERED, "orders", (1, 4, 5), detail=json.dumps({"epoch": 2, "seq": 1}))
    told.tell("s", Kind.ACCEPTED, "orders", (2, 3, 6))
    settled_as_sent(told, tmp_path)


def test_a_life_that_tells_again_where_its_messages_come_from_adds_none(tmp_path: Path) -> None:
    """A journal tells each life what was numbered again: of 4 and 5 the trace knows it, of 6 and 7, which epoch 1
    had before the trace began, it does not; all four came out under numbers that were accepted, too."""
    told = Told()
    told.tell("s", Kind.START, "orders")
    told.tell("r", Kind.START, "orders")
    told.tell("s", Kind.ACCEPTED, "orders", (1, 1, 5))
    for _ in range(2):
        detail = json.dumps({"epoch": 2, "seq": 1})
        told.tell("s", Kind.RENUMBERED, "orders", (1, 4, 7), detail=detail)
        told.tell("s", Kind.ACCEPTED, "orders", (2, 1, 6))
    assert settled_as_sent(told, tmp_path).is_held


@pytest.mark.parametrize(("came", "unknown"), [([1, 3], 1), ([1, 2, 3], 0)])
def test_a_submit_with_an_unknown_outcome_is_neither_loss_nor_surplus(
    came: list[int], unknown: int, tmp_path: Path
) -> None:
    """It came out or it did not (simulation X-33)."""
    told = Told()
    for node in ("s", "r"):
        told.tell(node, Kind.START, "orders")
    for kind, seq in ((Kind.ACCEPTED, 1), (Kind.UNKNOWN, 2), (Kind.ACCEPTED, 3)):
        told.tell("s", kind, "orders", (1, seq, seq))
    for seq in came:
        told.tell("r", Kind.SETTLED, "orders", (1, seq, seq))
    for node in ("s", "r"):
        told.tell(node, Kind.END, "orders", detail=AT_REST)
    found = judged(told.rows, tmp_path)
    assert_as_row_by_row(found, told.rows)
    assert found.channel("orders").unknown == unknown


def test_what_a_killed_receiver_had_stored_is_settled_by_its_confirm(tmp_path: Path) -> None:
    """Handed over, confirmed to the sender, and no row tells that it was settled: no loss, and said."""
    told = Told()
    for node in ("s", "r"):
        told.tell(node, Kind.START, "orders")
    told.tell("s", Kind.ACCEPTED, "orders", (1, 1, 9))
    told.tell("r", Kind.DELIVERED, "orders", (1, 1, 6))
    told.tell("r", Kind.SETTLED, "orders", (1, 1, 4))
    told.tell("s", Kind.CONFIRMED, "orders", (1, 1, 6))
    told.tell("r", Kind.START, "orders", life=2)
    told.tell("r", Kind.DELIVERED, "orders", (1, 7, 9), life=2)
    told.tell("r", Kind.SETTLED, "orders", (1, 7, 9), life=2)
    told.tell("s", Kind.END, "orders", detail=AT_REST)
    told.tell("r", Kind.END, "orders", detail=AT_REST, life=2)
    found = judged(told.rows, tmp_path)
    assert_as_row_by_row(found, told.rows)
    assert found.channel("orders").lost == 0
    assert found.channel("orders").why == BY_CONFIRM.format(2)


def test_attempts_behind_a_settlement_are_no_repeats_where_their_receiver_is_killed(
    tmp_path: Path,
) -> None:
    """Boundary ``before``: a message is settled, and then tried as often as it takes. A kill in the midst of that
    loses it; its confirm, which was there before, says nothing of a second time."""
    told = Told()
    for node in ("s", "r"):
        told.tell(node, Kind.START, "orders")
    told.tell("s", Kind.ACCEPTED, "orders", (1, 1, 9))
    told.tell("r", Kind.DELIVERED, "orders", (1, 1, 6))
    told.tell("r", Kind.SETTLED, "orders", (1, 1, 6))
    told.tell("s", Kind.CONFIRMED, "orders", (1, 1, 6))
    told.tell("r", Kind.DELIVERED, "orders", (1, 3, 6))
    told.tell("r", Kind.START, "orders", life=2)
    told.tell("r", Kind.DELIVERED, "orders", (1, 7, 9), life=2)
    told.tell("r", Kind.SETTLED, "orders", (1, 7, 9), life=2)
    told.tell("s", Kind.END, "orders", detail=AT_REST)
    told.tell("r", Kind.END, "orders", detail=AT_REST, life=2)
    found = judged(told.rows, tmp_path)
    assert_as_row_by_row(found, told.rows)
    assert not found.channel("orders").violated


def two_lives(settled: str, *, quiescent: bool, again: Run, tolerates: list[str]) -> list[Row]:
    """A life of a receiver that was handed 1 to 6, settled these and ended in order; the next one, which gets
    ``again``."""
    told, promised = Told(), [atom for atom in Atom if atom is not Atom.GAP_FREE]
    claim = json.dumps({"claim": dict.fromkeys(promised, tolerates)})
    for node in ("p/sender", "p/receiver"):
        told.tell(node, Kind.START, "p", detail=claim)
    told.tell("p/sender", Kind.ACCEPTED, "p", (1, 1, 6))
    told.tell("p/receiver", Kind.DELIVERED, "p", (1, 1, 6))
    for seq in map(int, settled):
        told.tell("p/receiver", Kind.SETTLED, "p", (1, seq, seq))
    told.tell("p/receiver", Kind.END, "p", detail=json.dumps({"quiescent": quiescent}))
    told.tell("p/receiver", Kind.START, "p", detail=claim, life=2)
    told.tell("p/receiver", Kind.DELIVERED, "p", again, life=2)
    told.tell("p/receiver", Kind.SETTLED, "p", again, life=2)
    for node, life in (("p/sender", 1), ("p/receiver", 2)):
        told.tell(node, Kind.END, "p", detail=AT_REST, life=life)
    return told.rows


@pytest.mark.parametrize("is_overlap", [False, True])
def test_a_row_that_is_written_late_stands_where_its_time_says(
    is_overlap: bool, tmp_path: Path
) -> None:
    """A process that waits for a locked store writes its end behind the beginning of its successor, or before it:
    both judges go by the times. Two lives at once are no orderly end, through which nothing is promised."""
    rows = two_lives("123456", quiescent=True, again=(1, 3, 6), tolerates=[])
    at = next(i for i, row in enumerate(rows) if row.kind == Kind.END)
    assert rows[at + 1].kind == Kind.START
    if is_overlap:
        rows[at].time_us, rows[at + 1].time_us = rows[at + 1].time_us, rows[at].time_us
    expected = set[str]() if is_overlap else {"P3", "P4"}
    for _ in range(2):
        assert_as_row_by_row(judged(rows, tmp_path), rows)
        assert {one.id for one in audit(rows).violated(promised=True)} == expected
        rows[at], rows[at + 1] = rows[at + 1], rows[at]


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (two_lives("12456", quiescent=False, again=(1, 3, 6), tolerates=[]), set[str]()),
        (two_lives("12456", quiescent=False, again=(1, 3, 6), tolerates=[CRASH]), {"P3", "P4"}),
        (two_lives("123456", quiescent=False, again=(1, 3, 6), tolerates=[]), {"P3", "P4"}),
        (two_lives("123", quiescent=False, again=(1, 3, 6), tolerates=[]), {"P3"}),
        (two_lives("12456", quiescent=True, again=(1, 3, 6), tolerates=[]), {"P3", "P4"}),
        (two_lives("1245", quiescent=False, again=(1, 4, 6), tolerates=[]), {"P2"}),
    ],
    ids=[
        "left one",
        "a crash repeats nothing either",
        "left none",
        "nothing behind it",
        "said so",
        "and one is lost",
    ],
)
def test_an_orderly_end_that_leaves_something_unsettled_repeats_as_a_crash_does(
    rows: list[Row], broken: set[str], tmp_path: Path
) -> None:
    """What is behind it comes again, and that it doesn't is promised only where a crash is survived, too. A life
    that settled all that it had, or nothing behind what it left, excuses nothing, and none excuses a loss."""
    found = judged(rows, tmp_path)
    assert_as_row_by_row(found, rows)
    assert {one.id for one in audit(rows).violated(promised=True)} == broken
    assert {ATOMS[atom] for atom in found.channel("p").broken_promises} == broken


def test_before_rest_a_missing_message_is_in_flight_unless_nothing_more_will_come(
    tmp_path: Path,
) -> None:
    """No end in the trace: can't tell; --at-rest: lost (simulation X-33)."""
    rows = one_channel(Planted("orders", [(1, 1, 9)], [(1, 1, 5)], at_rest=False))
    found = judged(rows, tmp_path)
    one = found.channel("orders")
    assert (one.waiting, one.lost, one.outcomes[Atom.NO_LOSS]) == (4, 0, PropertyOutcome.UNDECIDED)
    assert not found.is_broken
    assert not found.is_held
    over = judged(rows, tmp_path, at_rest=True, expect=frozenset(Atom))
    assert (over.channel("orders").lost, over.is_broken) == (4, True)


def test_a_trace_with_missing_rows_is_broken_and_tells_nothing(tmp_path: Path) -> None:
    """A row in the middle is gone (simulation X-33)."""
    rows = one_channel(Planted("orders", [(1, 1, 3), (1, 4, 9)], [(1, 1, 9)]))
    del rows[3]
    found = judged(rows, tmp_path)
    assert found.broken == ("orders/sender (life 1) tells 3 of its steps 0 to 3: rows are missing",)
    assert set(found.channel("orders").outcomes.values()) == {PropertyOutcome.UNDECIDED}
    assert not found.is_broken
    assert not found.is_held
    assert audit(rows).broken


def test_torn_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    """The last write of a killed process."""
    rows = one_channel(Planted("orders", [(1, 1, 3)], [(1, 1, 3)]))
    path = tmp_path / "torn.jsonl"
    path.write_text("".join(f"{line_of(row)}\n" for row in rows) + '{"kind":"settl')
    place = place_of(str(path))
    found = judge(DuckEngine(), Question(place, place))
    assert (found.torn, found.is_held) == (1, True)


def test_sender_and_receiver_may_tell_of_themselves_in_files_and_folders(tmp_path: Path) -> None:
    """One Parquet, one JSON Lines, and both in a folder: one verdict."""
    rows = one_channel(Planted("orders", [(1, 1, 9)], [(1, 1, 4), (1, 6, 9)]))
    sent, delivered = tmp_path / "a-sent.parquet", tmp_path / "b-delivered.jsonl"
    write_trace([row for row in rows if "receiver" not in row.node], sent)
    write_trace([rows[0], *(row for row in rows if "receiver" in row.node)], delivered)
    apart = judge(DuckEngine(), Question(place_of(str(sent)), place_of(str(delivered))))
    folder = place_of(str(tmp_path))
    together = judge(DuckEngine(), Question(folder, folder))
    assert apart.channels == together.channels
    assert apart.channel("orders").lost == 1
