"""What a campaign must have seen: faults that mattered, all drains, and what each fault has to lead to."""

from __future__ import annotations

from surepipe.audit.trace import Row
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.campaign import WantedFaults, campaign
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.exercised import MATTERED, ROLLED_BACK, STRUCK, exercised, mattered
from surepipe.simulation.faults import draw_options, kind_of
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import DRAINS, Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import (
    BACK,
    FORWARD,
    RELIABLE,
    RESEND,
    crash,
    decide,
    lose,
    told,
)

ONE = Options(messages=1)
STRICT = HopSubject("strict-monotonic", name="strict")


def faults_that_mattered(result: RunResult) -> frozenset[str]:
    """Of a finished run."""
    return mattered(result.rows, result.script.decisions)


def test_a_lost_frame_matters_when_another_one_did_its_work() -> None:
    """simulation X-29: re-send sends again, so the message comes out because of the second frame."""
    lost = lose("pipe/0 data e1 1+1 a1")
    assert faults_that_mattered(told(lost, subject=RESEND, options=ONE)) == {"F1"}


def test_a_lost_frame_matters_when_newer_messages_came_out_without_it() -> None:
    """simulation X-29: a pipe that never sends twice shows the hole; with nothing behind it there is none."""
    lost = lose("pipe/0 data e1 1+1 a1")
    assert faults_that_mattered(told(lost, subject=STRICT, options=ONE)) == frozenset()
    two = Options(messages=2)
    assert faults_that_mattered(told(lost, subject=STRICT, options=two)) == {"F1"}


def test_a_lost_confirm_matters_when_another_confirm_reached_the_sender() -> None:
    """simulation X-29."""
    result = told(lose("pipe/0 confirm e1 1+1 - - a1", BACK), subject=RESEND, options=ONE)
    assert faults_that_mattered(result) == {"F2"}


def test_a_copy_matters_when_somebody_acted_upon_it() -> None:
    """simulation X-29: the receiver answers the copy, though the message came out once."""
    copied = decide(FORWARD, "pipe/0 data e1 1+1 a1", "copy", 50_000, fault="F3")
    assert faults_that_mattered(told(copied, subject=RESEND, options=ONE)) == {"F3"}


def test_a_late_frame_matters_when_its_arrival_led_to_something() -> None:
    """simulation X-29: it was late, and its message was settled because of it."""
    late = decide(FORWARD, "pipe/0 data e1 1+1 a1", "delay", 300_000, fault="F5")
    assert faults_that_mattered(told(late, subject=RESEND, options=ONE)) == {"F5"}


def test_a_crash_matters_when_a_later_process_had_an_output() -> None:
    """simulation X-29: the first incarnation was told nothing; the second one delivers."""
    ended = crash("receiver", "arrive pipe/0 data e1 1+1 a1")
    assert "F10" in faults_that_mattered(told(ended, subject=RESEND, options=ONE))


def test_few_seeds_leave_marks_that_a_campaign_names() -> None:
    """simulation X-4, XT-10: three seeds have not seen everything, and that is no pass."""
    found = campaign(RELIABLE, range(1, 4), messages=8, causal=False)
    assert found.verdict == "not exercised"
    assert any(name.startswith(("fault-", "mattered-")) for name in found.missing)


def test_a_fault_that_is_switched_on_must_strike_and_matter() -> None:
    """simulation X-29: both marks, and what it leads to where the pipe can come to that."""
    wanted = WantedFaults(promise_of(RELIABLE))
    wanted.see(Options(messages=8, loss_ppm=10, confirm_loss_ppm=10, poison=0))
    assert {STRUCK["F1"], MATTERED["F1"], "held-three", "confirm-lost"} <= wanted.marks()
    assert MATTERED["F3"] not in wanted.marks()


def test_a_position_that_goes_back_under_a_lagging_reader_is_a_mark() -> None:
    """simulation X-29: three entries, one committed, and the store of positions loses that."""
    rows = [
        Row("r", "store", 1, 0, "", 0, "appended", "pipe", 1, 1, 3),
        Row("r", "store", 1, 1, "", 1, "committed", "pipe", detail='{"next":2}'),
        Row("r", "index", 1, 2, "", 2, "fault", detail='{"fault":"F14","verb":"rollback"}'),
    ]
    assert ROLLED_BACK in exercised(rows, (), "").marks
    assert ROLLED_BACK not in exercised(rows[:1] + rows[2:], (), "").marks


def test_the_four_drains_of_a_seed_are_one_run_up_to_the_end_of_chaos() -> None:
    """simulation X-38: another drain of a seed is a copy of its world, drained another way."""
    subject = HopSubject(
        "reliable", name="c", journaled=True, durable=True, boundary=Boundary.COMMITTED
    )
    options = draw_options(3, promise_of(subject), messages=12)
    starts = {
        _before_drain(run_hop(subject, _drained(options, drain), judge=None)) for drain in DRAINS
    }
    assert len(starts) == 1


def test_one_seed_in_eight_is_drained_all_four_ways() -> None:
    """simulation X-38: nine seeds, of which two are drained all ways, seven by lot."""
    found = campaign(RESEND, range(9), messages=4, causal=False, required=())
    assert found.runs == 9 + 2 * 3
    assert {f"drain-{drain.value}" for drain in DRAINS} <= found.marks.keys()


def _drained(options: Options, drain: str) -> Options:
    return Options.of({**options.plain(), "drain": drain, "seed": options.seed})


def _before_drain(result: RunResult) -> tuple[str, ...]:
    rows = list(result.rows[1:])
    end = next(at for at, row in enumerate(rows) if '"drain"' in row.detail)
    return tuple(repr(row) for row in rows[:end])


def test_a_decision_names_its_kind() -> None:
    """simulation X-35: a zombie of each end, and an index that is rolled back, are kinds of their own."""
    assert kind_of(Decision("faults/receiver", "x", "zombie", (), "F28")) == "F28r"
    assert kind_of(Decision("disk/index", "x", "rollback", (), "F14")) == "F17"
    assert kind_of(Decision("disk/stream", "x", "rollback", (), "F14")) == "F14"
