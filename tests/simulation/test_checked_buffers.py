"""The contract of the message queue holds in the buffers of the pipes. CHECKED_BUFFERS=1 asks all tests that."""

from __future__ import annotations

import pytest

from surepipe.core import snapshot
from surepipe.pipes.retry import flights
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import run_hop
from surepipe.simulation.promises import promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import Subject
from tests.faults.quarry import QUARRY
from tests.kit.checked_buffers import BARE, Transmitted, checked_buffers
from tests.simulation.kit import RELIABLE, of_kind, told

SEEDS = range(2)


class Forgetful(BARE):
    """Planted: what a confirm covers stays."""

    __slots__ = ()

    def delete_all(self, number: int) -> int:
        return super().delete_all(max(number - 1, 0))


def played(subject: Subject, seed: int) -> RunResult:
    """Any faults, crashes of the sender among them."""
    return run_hop(subject, draw_options(seed, promise_of(subject), mode=Mode.BREAK), judge=None)


def test_pipes_under_faults_keep_the_contract_of_their_buffer_and_run_as_without_a_monitor() -> (
    None
):
    """message-queue Q-17, QI-1 to QI-5: every pipe and stack that hunts are after; digests are the same."""
    bare = [played(subject, seed).digest for subject in QUARRY for seed in SEEDS]
    with checked_buffers() as monitor:
        before = monitor.changes
        checked = [played(subject, seed).digest for subject in QUARRY for seed in SEEDS]
        assert monitor.changes - before > len(checked)
    assert checked == bare


def test_a_buffer_that_keeps_what_was_confirmed_is_found_at_the_first_confirm() -> None:
    """message-queue Q-17: the clause, the verb and the argument; the run ends with its rows (simulation X-45)."""
    with checked_buffers() as monitor, pytest.MonkeyPatch.context() as planted:
        planted.setattr(monitor, "bare", Forgetful)
        result = told(subject=RELIABLE)
    (crash,) = of_kind(result.rows, "crash")
    for part in ("ContractBroken: delete_all says how many it removed", "after delete_all(3) of"):
        assert part in crash.detail
    assert result.limit == "raised"
    assert result.violations


def test_a_state_with_a_monitor_is_a_state_without() -> None:
    """pipes P-11: one comes out of the other, and the monitor knows the contents."""
    queue = BARE(8)
    queue.enqueue_run(11, [b"a", b"b"])
    queue.delete_all(11)
    exported = snapshot.export(queue)
    with checked_buffers():
        again = snapshot.restore(exported)
        assert isinstance(again, Transmitted)
        assert (list(again.contents), again.high) == ([12], 12)
        assert snapshot.export(again) == exported
    assert flights.Transmitted is BARE
