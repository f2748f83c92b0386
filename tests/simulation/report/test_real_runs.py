"""Reports of runs that nobody wrote by hand: simulated with many faults at once, and explored."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.scope import Scope
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.report import page, text_report
from surepipe.simulation.report.page import caption
from surepipe.simulation.report.picture import lay_out
from surepipe.simulation.report.text import STEPS_MAX, WIDTH
from surepipe.simulation.report.told import ROWS_MAX, told
from surepipe.simulation.results import Counterexample, RunResult
from surepipe.simulation.subjects import HopSubject

FAULTS = Options(
    messages=8,
    loss_ppm=100_000,
    confirm_loss_ppm=50_000,
    copy_ppm=50_000,
    overtake_ppm=50_000,
    overtake_us=3_000,
    cuts=2,
    cut_us=2_000_000,
    chaos_us=3_000_000,
    gap_us=100_000,
    sender_crashes=1,
    receiver_crashes=1,
    receiver_zombies=1,
    pauses=1,
    pause_us=1_000_000,
    restart_us=100_000,
    fail_ppm=50_000,
    store_unknown_ppm=20_000,
    store_rollbacks=1,
    store_rollback_writes=3,
).plain()
SUBJECTS = {
    "resend": HopSubject("resend"),
    "reliable": HopSubject("reliable", journaled=True, durable=True),
    "stream": HopSubject({"stream": {"start": "earliest"}}),
}


def found_in(run: RunResult, violation: Violation) -> Counterexample:
    """A finding with all its words."""
    return Counterexample("any", violation, run, 99, "none", False, "nothing", "again", run)


def middle_message(run: RunResult) -> Violation:
    """A finding about some message that was accepted, at the end of the run."""
    accepted = [row for row in run.rows if row.kind == Kind.ACCEPTED]
    row = accepted[len(accepted) // 2]
    place = 1 + sum(before.count for before in accepted[: len(accepted) // 2])
    sentence = f"Something befell message #{place}."
    return Violation(
        "P2", "no loss", run.rows[-1].step, sentence, row.pipe, row.epoch, row.seq, place
    )


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("seed", range(3))
def test_any_simulated_run_can_be_told_and_drawn(name: str, seed: int) -> None:
    """Losses, copies, cuts, crashes, zombies, stores that fail: the report keeps to its bounds."""
    run = run_hop(SUBJECTS[name], Options.of({**FAULTS, "seed": seed}))
    found = found_in(run, middle_message(run))
    lines = text_report(found).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(bool(re.match(r" {0,2}\d+  ", line)) for line in lines) <= STEPS_MAX
    laid = lay_out(told(found).folded(ROWS_MAX).story, caption(found))
    assert not any(a.box.meets(b.box) for a, b in combinations(laid.words, 2))
    assert len(page(found).encode()) < 300_000


def test_an_explored_run_reads_like_a_simulated_one() -> None:
    """X-1: rows of the explorer name no times and no deliveries, and give the same steps."""
    scope = Scope(messages=2, faults={"F8": 1}, properties=("P2",))
    shortest = explore(HopSubject("resend"), scope).counterexample
    assert shortest is not None
    steps = told(found_in(shortest.run, shortest.violation)).folded(STEPS_MAX).story.steps
    assert [(step.node, step.does, step.effect) for step in steps[:3]] == [
        ("sender", "accepts #1, transmits it", ""),
        ("sender", "accepts #2, keeps it", "#2 exists only in this memory"),
        ("sender", "crash, memory lost", "#2 is gone"),
    ]


def test_an_explored_run_out_of_order_says_after_which_message() -> None:
    """X-56: a settled row stands for the delivery."""
    scope = Scope(messages=2, faults={"F4": 1}, order="any", properties=("P4",))
    shortest = explore(HopSubject("multi-unconfirmed"), scope).counterexample
    assert shortest is not None
    text = text_report(found_in(shortest.run, shortest.violation))
    assert "#1 comes out after #2 !!" in text
