"""Each pipeline among the examples keeps its claims under simulation (simulation X-21, X-72)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surepipe.audit.trace import Kind
from surepipe.errors import ConfigurationError
from surepipe.pipelines.simulate.campaign import repeat
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.simulation.chance.script import Script

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = (
    "clicks.yaml",
    "decided.yaml",
    "deploy/pipeline.yaml",
    "orders.yaml",
    "replicated.yaml",
    "tenants.yaml",
)
BROKEN = ("invoices/pipeline.yaml",)
"""Shows on the first screen what a simulation finds; its page there is held by a test of its own."""
BETWEEN_PARTIES = ("parties.yaml",)
"""Has keys and files of two organisations, which a simulation has not."""
SEEDS = 15


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a file asks for, and the import path as it was."""
    for name in ("CLICKS", "CALLS", "SHOP_REDIS", "BAKERY_REDIS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_all_files_are_known() -> None:
    """A new example comes into this list."""
    files = {path for path in EXAMPLES.rglob("*.yaml") if "\nsources:" in path.read_text()}
    assert {path.relative_to(EXAMPLES).as_posix() for path in files} == {
        *FILES,
        *BROKEN,
        *BETWEEN_PARTIES,
    }


@pytest.mark.parametrize("name", BETWEEN_PARTIES)
def test_what_goes_between_parties_is_refused_with_what_to_do(name: str) -> None:
    """It says which pipe, and what can be simulated."""
    with pytest.raises(ConfigurationError, match="simulate what is before it and what is behind"):
        simulation_of(EXAMPLES / name)


@pytest.mark.parametrize("name", FILES)
def test_an_example_holds_what_it_claims(name: str) -> None:
    """Schedules of faults that it promises to survive; its messages get through the stages, to the sinks."""
    simulation = simulation_of(EXAMPLES / name)
    plain = repeat(simulation.subject, Script(simulation.subject.name, {"messages": 8}, (), 0))
    counts = [sum(r.count for r in plain.rows if r.kind == k) for k in (Kind.SETTLED, Kind.DEAD)]
    assert counts[0] > 2 * counts[1], "most messages of the example are of no use to its stages"
    assert simulation.run(range(SEEDS)).runs == SEEDS
