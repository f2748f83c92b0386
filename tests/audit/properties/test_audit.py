"""An audit tells what a trace proves, and says so where it proves nothing (X-33, XT-13, spark SP-18)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import AUDITED, Audit, audit
from surepipe.audit.trace_file import TraceFile, write_trace
from surepipe.errors import ConfigurationError
from tests.audit.properties.kit import PIPE, history

HELD, VIOLATED, UNDECIDED = (
    PropertyOutcome.HELD,
    PropertyOutcome.VIOLATED,
    PropertyOutcome.UNDECIDED,
)


def outcomes(found: Audit, pipe: str = PIPE) -> dict[str, PropertyOutcome]:
    """What is known of each property."""
    return {one.id: one.outcome for one in found.pipe(pipe).findings}


def real(
    text: str, *, run: str = "r", ended: tuple[str, ...] = ("sender", "receiver")
) -> list[Row]:
    """A history as the processes of a real run tell it: steps by node, an end for each that lived to tell."""
    rows = history(text, clock="wall")
    rows[1:1] = [
        replace(rows[0], node=n, kind=Kind.START, detail="", pipe=PIPE)
        for n in ("sender", "receiver")
    ]
    detail = json.dumps({"quiescent": True})
    rows += [replace(rows[0], node=n, kind=Kind.END, detail=detail, pipe=PIPE) for n in ended]
    steps: dict[str, int] = {}
    for at, row in enumerate(rows):
        row.run, row.time_us = run, at
        row.step = steps.get(row.node, 0)
        steps[row.node] = row.step + 1
    return rows


def test_a_run_that_kept_everything_is_held_and_its_sum_adds_up() -> None:
    """Sent = settled + dead letters + in flight (SP-18)."""
    found = audit(history("accept 1-5; settle 1-3; dead 4; settle 5; confirm 1-5; end"))
    pipe = found.pipe(PIPE)
    assert found.held
    assert found.ended
    assert set(outcomes(found).values()) == {HELD}
    assert pipe.conserved
    assert pipe.sum == "5 sent = 4 settled + 1 dead letters + 0 in flight"


def test_lost_repeated_out_of_order_and_gaps_are_counted_with_their_width() -> None:
    """1 2 5 5 4 9 of 10: one repeat, one late, two gaps of 2 and 3, four lost (SP-18)."""
    trace = "; ".join(f"settle {one}" for one in (1, 2, 5, 5, 4, 9))
    found = audit(history(f"accept 1-10; {trace}; end"))
    pipe = found.pipe(PIPE)
    assert (pipe.repeated, pipe.out_of_order) == (1, 1)
    assert (pipe.gaps, pipe.widest, pipe.passed_over) == (2, 3, 5)
    assert (pipe.settled, pipe.lost, pipe.waiting) == (5, 5, 0)
    assert not pipe.conserved
    assert "\n".join(found.lines()).splitlines()[:4] == [
        "orders: 10 sent = 5 settled + 0 dead letters + 0 in flight + 5 lost",
        "  1 repeated, 1 out of order, 2 gaps (widest 3)",
        "  P1 integrity: held",
        "  P2 no loss: broken 5 times",
    ]


def test_the_first_ten_cases_stand_for_all() -> None:
    """Thirty messages come out twice (X-33)."""
    found = audit(history("accept 1-30; settle 1-30; settle 1-30; end"))
    finding = found.pipe(PIPE).finding("P3")
    assert (finding.outcome, finding.count, len(finding.cases)) == (VIOLATED, 30, 10)
    assert finding.cases[0].sentence == "Message #1 came out again."
    assert found.violated(promised=True)


def test_before_the_end_a_missing_message_is_not_yet_delivered() -> None:
    """The tail of a trace that was cut shows no loss (X-33, XT-13)."""
    for text in ("accept 1-5; settle 1-3", "accept 1-5; settle 1-3; end early"):
        found = audit(history(text))
        pipe = found.pipe(PIPE)
        assert not found.ended
        assert pipe.finding("P2").outcome is UNDECIDED
        assert str(pipe.finding("P2")) == (
            "P2 no loss: not judged, because 2 not yet delivered when the trace ends"
        )
        assert (pipe.lost, pipe.waiting) == (0, 2)
        assert pipe.conserved
        assert not found.held
        assert not found.violated()


def test_cut_anywhere_a_good_trace_is_never_called_bad() -> None:
    """Every prefix of a run without faults, simulated and real: nothing violated, nothing lost (XT-13)."""
    text = "accept 1-3; deliver 1; settle 1; confirm 1; accept 4; deliver 2-4; settle 2-3; settle 4; confirm 2-4"
    for rows in (history(f"{text}; end"), real(text)):
        for end in range(1, len(rows)):
            found = audit(rows[:end])
            assert not found.violated()
            assert all(pipe.lost == 0 and pipe.conserved for pipe in found.pipes)


def test_a_submit_with_an_unknown_outcome_is_neither_loss_nor_surplus() -> None:
    """It came out or it did not; both are right (X-33)."""
    for text, accepted, unknown in (("settle 1; settle 3", 2, 1), ("settle 1-3", 3, 0)):
        found = audit(history(f"accept 1; unknown 2; accept 3; {text}; end"))
        pipe = found.pipe(PIPE)
        assert found.held
        assert (pipe.sent, pipe.unknown) == (accepted, unknown)
        assert pipe.conserved


def test_a_trace_with_missing_steps_is_broken_and_tells_nothing_of_messages() -> None:
    """A row in the middle is gone: said first, and every verdict is open (X-33)."""
    rows = history("accept 1-2; settle 1; settle 2; end")
    found = audit([*rows[:2], *rows[3:]])
    assert found.broken == ("goes from step 1 to 3",)
    assert set(outcomes(found).values()) == {UNDECIDED}
    assert not found.held
    assert next(found.lines()) == "broken trace: goes from step 1 to 3"


def test_in_a_real_trace_each_life_of_a_node_counts_its_own_steps() -> None:
    """A step that is missing in one of them is found (X-30)."""
    rows = real("accept 1-2; settle 1; confirm 1; settle 2; confirm 2")
    assert audit(rows).held
    missing = next(at for at, row in enumerate(rows) if row.kind == Kind.CONFIRMED)
    assert audit(rows[:missing] + rows[missing + 1 :]).broken == (
        "sender (life 1) goes from step 1 to 3",
    )


def test_rows_of_two_processes_need_not_come_in_the_order_of_cause_and_effect() -> None:
    """Two files, and the receiver's clock is ahead: settled seems to come first (X-30)."""
    rows = real("accept 1-2; settle 1-2; confirm 1-2")
    sender = [row for row in rows if row.node in ("sender", "world")]
    receiver = [replace(row, time_us=row.time_us - 100) for row in rows if row.node == "receiver"]
    assert audit(sender, receiver).held


def test_what_a_killed_sender_did_not_live_to_tell_is_no_surplus() -> None:
    """Messages 3 and 4 came out and their acceptance was never written (XT-13)."""
    found = audit(real("accept 1-2; settle 1-4; confirm 1-2", ended=("receiver",)))
    pipe = found.pipe(PIPE)
    assert pipe.untold == 2
    assert str(pipe.finding("P1")) == (
        "P1 integrity: not judged, because 2 came out whose sender was killed before its trace told of them"
    )
    assert pipe.finding("P2").outcome is UNDECIDED
    told = audit(real("accept 1-2; settle 1-4; confirm 1-2"))
    assert outcomes(told)["P1"] is VIOLATED


def test_a_sender_that_was_killed_and_began_anew_has_not_told_everything_either() -> None:
    """Its second life ended well; what the first one took and did not live to tell is no surplus."""
    found = audit(real("accept 1; settle 1-2; start sender"))
    assert found.pipe(PIPE).untold == 1
    assert outcomes(found)["P1"] is UNDECIDED


def test_a_sender_that_died_by_an_error_and_came_back_has_told_everything() -> None:
    """The crash is a row of the trace: what is missing from it was never accepted."""
    rows = real("accept 1; crash sender; settle 1-2")
    assert outcomes(audit(rows))["P1"] is VIOLATED


def test_a_letter_that_is_put_again_after_a_crash_is_the_same_letter() -> None:
    """In a real trace nobody knows that the store had it (pipes D-2)."""
    found = audit(real("accept 1-2; dead 1; crash receiver; dead 1; settle 2; confirm 1-2"))
    assert outcomes(found)["P3"] is HELD
    assert found.pipe(PIPE).dead == 1


def test_what_the_start_of_a_pipe_claims_is_what_it_is_held_to() -> None:
    """A monotonic pipe that loses has kept its promise; the numbers are told all the same."""
    rows = real("accept 1-3; settle 1; settle 3")
    rows[1].detail = json.dumps({"claim": {"monotonic": [], "no-duplicate": []}})
    found = audit(rows)
    pipe = found.pipe(PIPE)
    assert pipe.promised == {"P1", "P3", "P4", "P17"}
    assert found.held
    assert pipe.lost == 1
    assert [one.id for one in found.violated()] == ["P2", "P6g"]
    assert not found.violated(promised=True)


def test_several_simulated_runs_are_not_one_trace() -> None:
    """Their messages have nothing to do with each other; a file without a run is no trace."""
    rows = history("accept 1; settle 1; end")
    with pytest.raises(ConfigurationError, match="these are 2 runs"):
        audit(rows, rows)
    with pytest.raises(ConfigurationError, match="no row 'run'"):
        audit(rows[1:])


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_a_file_is_audited_as_its_rows(tmp_path: Path, name: str) -> None:
    """The same verdict, from either format."""
    rows = history("accept 1-9; settle 2-9; settle 1; settle 4; confirm 1-9; end")
    write_trace(rows, tmp_path / name)
    found = audit(TraceFile(tmp_path / name))
    assert found == audit(rows)
    assert [one.id for one in found.pipe(PIPE).findings] == list(AUDITED)


def killed_as_it_stored(confirmed: str) -> list[Row]:
    """The receiver is killed behind the commit of 3 and before its row; its successor goes on with 4."""
    rows = real(
        f"accept 1-5; deliver 1-3; settle 1-2; deliver 4-5; settle 4-5; confirm {confirmed}; end"
    )
    at = next(i for i, row in enumerate(rows) if row.kind == Kind.DELIVERED and row.seq == 4)
    begins = next(row for row in rows if row.kind == Kind.START and row.node == "receiver")
    life, time_us = begins.incarnation + 1, rows[at].time_us
    rows.insert(at, replace(begins, incarnation=life, step=0, time_us=time_us))
    for step, row in enumerate(row for row in rows[at:] if row.node == "receiver"):
        row.incarnation, row.step = life, step
    return rows


def test_what_a_killed_receiver_had_stored_is_no_loss_where_the_sender_was_told_so() -> None:
    """A kill between the commit and its row: the confirm stands for the row, and the audit says so."""
    pipe = audit(killed_as_it_stored("1-5")).pipe(PIPE)
    assert pipe.finding("P2").outcome is HELD
    assert str(pipe.finding("P2")).startswith("P2 no loss: held: 1 by their confirm")
    assert {pipe.finding(one).outcome for one in ("P3", "P6g", "P8")} == {HELD}
    assert pipe.sum == "5 sent = 5 settled + 0 dead letters + 0 in flight"


def test_what_a_killed_receiver_had_in_work_is_lost_where_nobody_confirmed_it() -> None:
    """The same without the confirm of 3."""
    pipe = audit(killed_as_it_stored("1-2; confirm 4-5")).pipe(PIPE)
    assert pipe.finding("P2").outcome is VIOLATED
    assert pipe.lost == 1


def test_what_nobody_knows_of_breaks_neither_loss_nor_gaps() -> None:
    """Over a store a confirm tells nothing of 3. The receiver that was killed may have stored it."""
    rows = killed_as_it_stored("1-2; confirm 4-5")
    for row in rows:
        if row.kind == Kind.START:
            row.detail = json.dumps({"confirms": "stored"})
    pipe = audit(rows).pipe(PIPE)
    assert {pipe.finding(one).outcome for one in ("P2", "P6g")} == {UNDECIDED}
    assert "nobody knows whether it had stored them" in pipe.finding("P6g").why
