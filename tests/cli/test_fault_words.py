"""What the command tells people of faults is in words: ids are for scripts and machines."""

from __future__ import annotations

import re

from surepipe.audit.findings import Violation
from surepipe.cli.simulating import Findings
from surepipe.pipelines.simulate.breaking import Broken
from surepipe.simulation.exercised import STRUCK
from surepipe.simulation.faults import BY_ID
from surepipe.simulation.report.words import FAULTS, in_words

ID = re.compile(r"\bF\d+[a-z]?\b")


def test_findings_name_no_fault_by_its_id() -> None:
    """Every fault as one that was not exercised, and as the decision that breaks a plan."""
    marks = tuple(sorted(STRUCK.values()))
    lines = tuple(f"main: main get journal: zombie 0 12 ({id_})" for id_ in BY_ID)
    violation = Violation("P3", "no duplicates", 0, "it came out again")
    found = Findings(missing=marks, broken=[Broken("process-replaced", violation, lines)])
    text = "\n".join(str(one) for one in found.as_lines())
    assert not ID.findall(text)
    assert FAULTS["F28"] in text
    assert found.as_document()["missing"] == list(marks)


def test_every_fault_has_words() -> None:
    """And words without an id stay as they are."""
    assert [id_ for id_ in BY_ID if in_words(f"fault-{id_}") == id_] == []
    assert in_words("dead-letters, F-5, 0xF1F2") == "dead-letters, F-5, 0xF1F2"
