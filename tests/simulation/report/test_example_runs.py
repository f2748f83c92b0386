"""The examples of the docs that are runs: each still breaks what it broke, and reads well."""

from __future__ import annotations

import pytest

from surepipe.simulation.chance.script import load
from surepipe.simulation.report import text_report
from surepipe.simulation.report.text import STEPS_MAX, WIDTH
from tools.counterexample_runs import REAL, RUNS, SCRIPTS


@pytest.mark.parametrize("name", RUNS)
def test_a_kept_script_breaks_its_property_by_its_one_fault(name: str) -> None:
    """Repeated, and repeated without the fault, which holds (simulation X-34, X-54, X-59)."""
    case, found = REAL[name], RUNS[name]()
    script = load(SCRIPTS / f"{name}.json")
    assert found.violation.property == case.property
    assert [decision.fault for decision in script.decisions if decision.fault] == [
        decision.fault for decision in found.result.script.decisions if decision.fault
    ]
    assert found.result.script.decisions == script.decisions
    assert found.nearest is not None
    assert found.nearest.violates(case.property) is None


@pytest.mark.parametrize("name", RUNS)
def test_its_report_is_as_narrow_and_short_as_every_report(name: str) -> None:
    """80 columns, at most 15 steps, one fault marked, one step broken (simulation X-56)."""
    text = text_report(RUNS[name]())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert sum(line[:3].strip().isdigit() for line in text.splitlines()) <= STEPS_MAX
    assert text.count("!!") == 1
    assert "***" in text
    assert "Holds without step" in text
