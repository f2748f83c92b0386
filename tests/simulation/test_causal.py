"""Schedules against exactly what one delivery depends on."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.simulation.campaign import campaign
from surepipe.simulation.causal import (
    causal_decisions,
    causal_scripts,
    path_to,
    plain_run,
    steps_towards,
)
from surepipe.simulation.faults import Mode, chosen
from surepipe.simulation.hop import replay
from surepipe.simulation.promises import Promise
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import RELIABLE, RESEND, of_kind

STREAM = HopSubject({"stream": {"start": "earliest"}}, name="stream", journaled=True)


def test_the_path_of_a_message_leads_back_to_its_offer() -> None:
    """simulation X-37: settled, delivered, arrived, transmitted, and what let it be transmitted."""
    rows = plain_run(RESEND, messages=1).rows
    (settled,) = of_kind(rows, "settled")
    assert [row.kind for row in path_to(rows, settled.step)][:4] == [
        "settled",
        "delivered",
        "arrived",
        "transmit",
    ]
    towards = steps_towards(rows)
    assert towards[settled.step] == 1
    assert towards[rows[-1].step] == 0


def test_the_decisions_name_each_frame_and_each_step_on_the_path_and_nothing_else() -> None:
    """simulation X-37: of three messages the second: its own data and confirm, those of nobody else."""
    decisions = causal_decisions(plain_run(RESEND))
    lost = [one.at for one in decisions if one.verb == "lose"]
    assert "pipe/0 data e1 2+1 a1" in lost
    assert not any("data e1 3+1" in name for name in lost)
    assert {one.authority for one in decisions if one.verb == "crash"} == {
        "faults/sender",
        "faults/receiver",
    }


def test_writes_that_the_delivery_waits_for_are_struck_too() -> None:
    """simulation X-37: the row of the journal, the entry of the stream, the commit of the reader."""
    struck = {one.authority for one in causal_decisions(plain_run(STREAM)) if one.fault == "F18"}
    assert struck == {"disk/journal", "disk/stream", "disk/index"}


def test_every_single_script_takes_effect() -> None:
    """simulation X-37: a schedule that finds nothing to strike would test nothing."""
    result = plain_run(RELIABLE)
    for script in causal_scripts(result, pairs_max=0):
        assert replay(RELIABLE, script, judge=None).stale is None, script.decisions


def test_pairs_are_as_many_as_allowed_and_of_two_different_places() -> None:
    """simulation X-37: spread over all pairs; two crashes at one event can't both happen."""
    result = plain_run(RELIABLE)
    pairs = [
        one.decisions for one in causal_scripts(result, pairs_max=20) if len(one.decisions) == 2
    ]
    assert 10 <= len(pairs) <= 20
    assert all(one.at != other.at for one, other in pairs)


def test_a_campaign_finds_a_wrong_promise_by_them_before_any_seed() -> None:
    """simulation X-37: re-send repeats after a lost confirm; who says it never does is refuted at once."""
    found = campaign(_Boasting({"resend": {"run_max": 1}}, name="boasting"), (), mode=Mode.CLAIM)
    assert found.runs == 0
    assert found.first is not None
    assert found.first.violation.property == "P3"
    assert "causal script" in str(found)


def test_a_campaign_of_chosen_kinds_strikes_with_these_only() -> None:
    """simulation X-22: without a kind that fits there is no causal script."""
    assert campaign(RESEND, (), kinds=chosen(["F2"]), required=()).causal_runs > 0
    assert campaign(RESEND, (), kinds=chosen(["F24"]), required=()).causal_runs == 0
    assert campaign(RESEND, (), mode=Mode.NONE, required=()).causal_runs == 0


@dataclass(frozen=True)
class _Boasting(HopSubject):
    """Claims that nothing is ever repeated."""

    def promise(self) -> Promise:
        """What it can't keep."""
        faults = ("route-loss", "sender-crash", "receiver-crash")
        return Promise(claim={"no-duplicate": faults})
