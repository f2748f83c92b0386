"""Each pipeline among the examples keeps its claims under simulation (simulation X-21, X-72)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surepipe.audit.trace import Kind
from surepipe.pipelines.simulate.campaign import repeat
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.simulation.chance.script import Script

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("clicks.yaml", "deploy/pipeline.yaml", "orders.yaml")
BROKEN = ("invoices/pipeline.yaml",)
"""Shows on the first screen what a simulation finds; its page there is held by a test of its own."""
SEEDS = 15


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a file asks for, and the import path as it was."""
    monkeypatch.setenv("CLICKS", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_all_files_are_known() -> None:
    """A new example comes into this list."""
    files = {path for path in EXAMPLES.rglob("*.yaml") if "\nsources:" in path.read_text()}
    assert {path.relative_to(EXAMPLES).as_posix() for path in files} == {*FILES, *BROKEN}


@pytest.mark.parametrize("name", FILES)
def test_an_example_holds_what_it_claims(name: str) -> None:
    """Schedules of faults that it promises to survive; its messages get through the stages, to the sinks."""
    simulation = simulation_of(EXAMPLES / name)
    plain = repeat(simulation.subject, Script(simulation.subject.name, {"messages": 8}, (), 0))
    counts = [sum(r.count for r in plain.rows if r.kind == k) for k in (Kind.SETTLED, Kind.DEAD)]
    assert counts[0] > 2 * counts[1], "most messages of the example are of no use to its stages"
    assert simulation.run(range(SEEDS)).runs == SEEDS
