"""Plans whose pipes are explored, faults included."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.loading import load
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate.subject import explore_plan_hops

FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [strict-monotonic]}
  log: {from: intake, route: {kind: sqlite, store: main}}
sinks: {out: {from: log, kind: jsonl, path: out.jsonl}}
"""


def test_each_pipe_of_a_plan_is_explored_under_the_faults_that_it_promises_to_survive(
    tmp_path: Path,
) -> None:
    """One pipe of machines alone, whose scopes name faults; one over a store, of which nothing is said (X-53)."""
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    intake, log = explore_plan_hops(load(file), messages=2, states_max=4_000)
    assert intake.verdict == "holds"
    assert {"F1", "F3", "F5"} <= {fault for scope, _ in intake.tried for fault in scope.faults}
    assert "F1:1" in str(intake)
    assert (log.verdict, log.tried) == ("not explored", ())


def test_a_plan_without_pipes_is_refused() -> None:
    """There is nothing to explore."""
    with pytest.raises(ConfigurationError, match="no pipe"):
        explore_plan_hops(Plan("empty", sources=(), pipes=()))
