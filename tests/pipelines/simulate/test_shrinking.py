"""A failure of a pipeline is made short with less patience, and shown as it is (simulation X-23)."""

from __future__ import annotations

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate import campaign
from surepipe.pipelines.simulate.campaign import PlanFailure, PlanResult, run_seeds, shrunk
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
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
stages: {once: {from: intake, call: "tests.pipelines.simulate.test_shrinking:once"}}
sinks: {out: {from: once, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
HOUR_US = Options().time_max_us


def once(message: object, context: Context) -> object:
    """A stage that no second attempt helps."""
    if context.attempt > 1:
        raise ValueError("only the first attempt")
    return message


def found_by(kind: str) -> tuple[PlanSubject, PlanResult]:
    """What 60 schedules of the pipeline with faults of a kind come to."""
    subject = simulation_of(loads(PLAN), messages=4).subject
    kinds = chosen([kind])
    return subject, run_seeds(subject, range(60), kinds=kinds, messages=4, stop_at_first=True)


def stuck() -> tuple[PlanSubject, PlanFailure]:
    """A message whose stage failed once is never through."""
    subject, found = found_by("handler-failure")
    return subject, found.failures["P12"]


def test_a_pipeline_whose_store_was_emptied_comes_to_rest() -> None:
    """What a file's lines wait in is gone with the rest: the pipe does not try for ever to write there. It ends,
    and is made anew by whoever starts it again."""
    _, found = found_by("store-rollback")
    assert found.failures == {}
    assert (found.runs, found.faults["F14"]) == (60, 60)


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
