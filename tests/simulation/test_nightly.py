"""The nightly counts, with few of everything: each stage says what it did, and what it finds fails it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Explored
from tests.real.run import FAILED, PASSED, run_stage
from tests.real.stage import Tally
from tests.simulation import nightly, nightly_scopes
from tests.simulation.nightly_scopes import Night as NightScope

NIGHT = nightly.Night(seed=5, minutes=0, jobs=1)


def test_alarms_end_with_one_line_that_says_what_was_not_exercised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation X-73, X-4: one seed of one pipe can't have met all faults."""
    monkeypatch.setattr(nightly, "ALARM_SEEDS", 1)
    monkeypatch.setattr(nightly, "SUBJECTS", {"dedupe": nightly.SUBJECTS["dedupe"]})
    result = run_stage(NIGHT.stages()[1], NIGHT.seed)
    assert result.status == PASSED, result.text
    for part in ("alarms: 1 subjects, ", " runs, ", "not exercised by dedupe: ", "slowest: dedupe"):
        assert part in result.text
    assert "\n" not in result.text


def test_a_subject_that_was_mended_is_asked_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """simulation X-73: the counts that a stage must reach follow the subjects; the gate and the alarms alike."""
    monkeypatch.setattr(nightly, "ALARM_SEEDS", 1)
    monkeypatch.setattr(nightly, "GATE_SEEDS", 4)
    night = replace(NIGHT, subjects=["stream, journal"])
    gate, alarms = (run_stage(stage, night.seed) for stage in night.stages()[:2])
    assert (gate.status, alarms.status) == (PASSED, PASSED), gate.text + alarms.text
    assert gate.text.startswith("gate: 8 runs; slowest: stream, journal ")
    assert alarms.text.startswith("alarms: 1 subjects, ")


def test_scopes_are_not_begun_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """simulation X-51, X-67: told by name, and a night without any of them fails."""
    few = dict(list(nightly_scopes.BY_ID.items())[:2])
    monkeypatch.setattr(nightly_scopes, "BY_ID", few)
    result = run_stage(NIGHT.stages()[4], NIGHT.seed)
    assert result.status == FAILED
    assert "below the minimum: scopes: 0 of 1" in result.text
    assert f"not exercised: {', '.join(few)}" in result.text


def test_whatever_a_stage_finds_fails_it() -> None:
    """simulation X-73: the text has all that was found."""

    def finds(tally: Tally) -> Iterator[str]:
        tally.add("runs")
        yield from ("one thing", "another")

    result = run_stage(NIGHT.stage("planted", finds, {}), NIGHT.seed)
    assert result.status == FAILED
    assert "one thing\nanother" in result.text


SCOPES = list(nightly_scopes.nightly())


@pytest.mark.parametrize("night", SCOPES, ids=lambda night: night.id)
def test_every_scope_of_the_night_can_be_explored(night: NightScope) -> None:
    """simulation X-51: no fault that can strike nobody, one or two of each kind; here only its first states."""
    explored = explore(night.subject, replace(night.scope, states_max=20))
    assert explored.verdict is Explored.BOUNDED
    assert set(night.scope.faults.values()) in ({1}, {nightly_scopes.TIMES})
    assert nightly_scopes.BY_ID[night.id].scope == night.scope


def test_a_queue_that_breaks_its_word_is_told_with_its_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """rmq RT-50: as many seeds as it was asked for, and each that fails."""

    def run_queue(seed: int, twins: int) -> None:
        assert seed != 7 + twins, "collated twice"

    monkeypatch.setattr(nightly, "QUEUES", {"log": run_queue})
    (found,) = nightly.queues_of("log, 1 liars", ("log", 1, range(5, 10)))
    assert found.startswith("log, 1 liars, seed 8: ")
    assert "collated twice" in found
