"""The gate of determinism, with fewer seeds than at night, and what it says when two processes part."""

from __future__ import annotations

from surepipe.audit.trace import Kind, Row
from tests.simulation import gate

SEEDS = range(4)
PIPELINE_SEEDS = range(2)
QUEUE_SEEDS = range(8)
PIPELINES = [f"example {name}" for name in gate.PIPELINES]


def test_pipes_and_queues_run_alike_under_two_hash_seeds() -> None:
    """simulation X-12, X-45: all subjects but pipelines, and a canary that must differ (X-63)."""
    names = [name for name in gate.GATED if name not in PIPELINES]
    assert gate.differences(names, SEEDS) == []


def test_pipelines_among_the_examples_run_alike_under_two_hash_seeds() -> None:
    """simulation X-12: with their actors, stages and stores."""
    assert gate.differences(PIPELINES, PIPELINE_SEEDS) == []


def test_the_first_row_that_differs_is_told() -> None:
    """simulation X-12: the canary's only row has the hash of a text."""
    (found,) = gate.located({gate.CANARY: 3})
    assert (found.name, found.seed, found.step) == (gate.CANARY, 3, 0)
    assert found.rows[0] != found.rows[1]
    assert "canary: seed 3 differs at step 0" in str(found)


def test_a_queue_is_called_in_all_ways() -> None:
    """simulation X-45: each verb, refusals and broken duties, within few seeds."""
    rows: list[Row] = []
    for name, play in gate.GATED.items():
        if name.startswith("message queue"):
            rows += [row for seed in QUEUE_SEEDS for row in play(seed)[1]]
    said = "\n".join(row.detail for row in rows)
    assert {row.kind for row in rows} == {Kind.CALLED}
    for word in ("pick_runs", "delete_all", "FULL", "STALE", "GAP", "ContractViolation"):
        assert word in said
