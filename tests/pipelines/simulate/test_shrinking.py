"""A failure of a pipeline is made short with less patience, and shown as it is (simulation X-23)."""

from __future__ import annotations

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate import campaign
from surepipe.pipelines.simulate.campaign import PlanFailure, run_seeds, shrunk
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.faults import chosen
from surepipe.simulation.options import Options
from tests.pipelines.simulate.kit import SAMPLE

PLAN = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db, durability: power}}
sources: {lines: {kind: jsonl, path: none.jsonl}}
pipes: {intake: {from: lines, journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
HOUR_US = Options().time_max_us


def stuck() -> tuple[PlanSubject, PlanFailure]:
    """A pipeline whose store was emptied: what the sender is told to be missing, it has not any more."""
    subject = simulation_of(loads(PLAN), messages=4).subject
    kinds = chosen(["store-rollback"])
    found = run_seeds(subject, range(60), kinds=kinds, messages=4, stop_at_first=True)
    return subject, found.failures["P12"]


@pytest.mark.parametrize("patience_us", [campaign.PATIENCE_US, 1], ids=["less", "next to none"])
def test_what_never_comes_to_rest_is_shown_at_the_full_limit(
    monkeypatch: pytest.MonkeyPatch, patience_us: int
) -> None:
    """P12: the shortest script ran for the whole hour; with next to no patience any script seems to be one."""
    subject, failure = stuck()
    monkeypatch.setattr(campaign, "PATIENCE_US", patience_us)
    least = shrunk(subject, failure, replays_max=6)
    assert least.violation.property == "P12"
    assert least.result.limit == "time"
    assert least.result.rows[-1].time_us > HOUR_US
    assert "time_max_us" not in least.script.options
    assert 1 <= len(least.script.decisions) <= len(failure.script.decisions)
    assert campaign.repeat(subject, least.script).digest == least.result.digest
