"""A run repeats: from its seed, from its script, in another process."""

from __future__ import annotations

import pytest

from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.chance.script import Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options, Tie
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import HopSubject, Subject
from tests.simulation.kit import COUNTING, lose, told
from tests.simulation.pinned import PINNED

STREAM = {"stream": {"start": "earliest"}}
SUBJECTS: tuple[Subject, ...] = (
    COUNTING,
    HopSubject("reliable", name="reliable"),
    HopSubject(["continuous-index", "multi-unconfirmed"], name="stack"),
    HopSubject("resend", name="resend, journaled", journaled=True),
    HopSubject(
        "reliable",
        name="reliable, committed",
        journaled=True,
        durable=True,
        boundary=Boundary.COMMITTED,
    ),
    HopSubject(STREAM, name="stream"),
    HopSubject(
        STREAM, name="stream, committed", journaled=True, durable=True, boundary=Boundary.COMMITTED
    ),
)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_decisions_of_a_seed_repeat_its_run(subject: Subject) -> None:
    """simulation X-34: equal digests, no decision unused, over all modes and both wild and plain ties."""
    promise = promise_of(subject)
    for seed in range(12):
        options = draw_options(seed, promise, mode=Mode.BREAK if seed % 2 else Mode.CLAIM)
        drawn = run_hop(subject, options, judge=None)
        again = replay(subject, drawn.script, judge=None)
        assert again.digest == drawn.digest, f"seed {seed}"
        assert again.script.decisions == drawn.script.decisions
        assert run_hop(subject, options, judge=None).digest == drawn.digest


def test_a_decision_that_finds_nothing_makes_the_run_stale() -> None:
    """simulation X-34: named, and never taken for a pass."""
    missing = lose("pipe/0 data e1 9+1 a1")
    script = Script(COUNTING.name, Options(messages=2).plain(), (missing,))
    result = replay(COUNTING, script)
    assert result.stale == str(missing)
    assert result.script.decisions == ()


def test_a_script_survives_a_change_of_its_other_decisions() -> None:
    """simulation X-15: frames are named by content, so taking out one loss leaves the other in place."""
    one, other = lose("pipe/0 data e1 1+1 a1"), lose("pipe/0 data e1 3+1 a1")
    assert told(one, other).script.decisions == (one, other)
    assert told(other).script.decisions == (other,)


def test_ties_that_were_drawn_are_decisions_too() -> None:
    """simulation X-7: under random ties and under priorities."""
    for tie in (Tie.RANDOM, Tie.PRIORITY):
        drawn = run_hop(COUNTING, Options(seed=3, tie=tie, changes=2), judge=None)
        ties = [one for one in drawn.script.decisions if one.verb == "tie"]
        assert ties
        assert replay(COUNTING, drawn.script, judge=None).digest == drawn.digest


def test_the_workload_of_a_seed_is_the_same_under_other_faults() -> None:
    """simulation X-9: offers, their times and sizes, while everything else goes wrong differently."""
    calm = Options(seed=5, shape="batches", gap_us=1000, batch_max=8, chaos_us=10_000_000)
    wild = Options(
        **{**calm.plain(), "loss_ppm": 300_000, "copy_ppm": 200_000, "sender_crashes": 2}  # type: ignore[arg-type]
    )
    offers = [
        [
            one
            for one in run_hop(COUNTING, options, judge=None).script.decisions
            if one.authority == "workload"
        ]
        for options in (calm, wild)
    ]
    assert offers[0] == offers[1] != []


def digests(subject: Subject, seeds: int) -> list[str]:
    """The digests of so many drawn runs."""
    promise = promise_of(subject)
    return [
        run_hop(subject, draw_options(seed, promise, mode=Mode.BREAK), judge=None).digest
        for seed in range(seeds)
    ]


def test_twenty_digests_are_pinned() -> None:
    """simulation X-12: equal on every Python; a change of the simulator that changes them is told as such."""
    assert digests(COUNTING, len(PINNED)) == list(PINNED)


def test_a_run_by_script_knows_the_events_at_which_a_crash_could_be_decided() -> None:
    """For shrinking: each once, in the order in which they happened."""
    asked = told().asked
    assert asked[:3] == ("receiver: start 1", "sender: start 1", "sender: submit 1")
    assert len(asked) == len(set(asked))
    chooser = ScriptChooser((), seed=1)
    assert run_hop(COUNTING, Options(messages=3), chooser).asked == asked
