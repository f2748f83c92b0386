"""The text report: short, narrow, and complete."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.simulation.report import text_report
from surepipe.simulation.report.text import STEPS_MAX, WIDTH
from surepipe.simulation.report.words import brief, brief_apart
from tests.simulation.report.test_story import about, long_run
from tools.counterexample_cases import CASES, lost_backlog

BACKLOG = """\
P2 no loss VIOLATED   orders / intake   seed 4711
shrunk from 214 to 1 decision
Message #2 was accepted and never came out.
  1  sender   accepts #1, transmits it
  2  sender   accepts #2, keeps it                    #2 exists only in this
                                                      memory
  3  sender   *** crash, memory lost                  #2 is gone
  .  drain    healed; 2 frames, 1 delivered, 1 start
  4  end      the run ends                            #2 is missing !!
Guarantee of this pipe: at-least-once, tolerates route loss and receiver crash.
It does not cover what happened here: sender crash, memory lost. `surepipe
check` suggests: journal: main
Holds without step 3.
Replay: surepipe simulate orders.yaml --replay 4711-P2.json
"""


def test_the_report_of_a_lost_backlog_reads_like_this() -> None:
    """X-56, word for word."""
    assert text_report(lost_backlog()) == BACKLOG


@pytest.mark.parametrize("name", CASES)
def test_every_report_is_narrow_short_and_says_what_matters(name: str) -> None:
    """X-56: 80 columns, at most 15 steps, property, message, faults, coverage, advice, replay."""
    found = CASES[name]()
    text = text_report(found)
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(line[:3].strip().rstrip(".").isdigit() for line in lines) <= STEPS_MAX
    assert lines[0].startswith(f"{found.violation.property} {found.violation.name} VIOLATED")
    assert found.violation.sentence in " ".join(lines)
    assert text.count("!!") == 1
    assert text.count("***") == 1
    assert "Holds without step" in text
    assert lines[-1] == f"Replay: {found.replay}"


def test_a_covered_fault_is_said_not_to_be_allowed() -> None:
    """The same run, under a guarantee that covers the crash."""
    text = " ".join(text_report(replace(lost_backlog(), covered=True)).split())
    assert "It covers what happened here (sender crash, memory lost): this must not happen." in text


def test_a_run_without_faults_and_neighbours_says_so() -> None:
    """No decision at all: no fault was needed, nothing to compare with, nothing to add."""
    found = lost_backlog()
    bare = replace(found.result, script=replace(found.result.script, decisions=()))
    text = text_report(replace(found, result=bare, nearest=None, without="", advice="", replay=""))
    assert "No fault was needed: this must not happen." in text
    assert "Holds without" not in text
    assert "suggests" not in text


def test_a_long_run_keeps_to_fifteen_steps() -> None:
    """Three hundred messages, one lost: the others are counted."""
    result = long_run(300)
    broken = replace(about(150), step=result.rows[-1].step)
    text = text_report(replace(lost_backlog(), result=result, violation=broken, nearest=None))
    lines = text.splitlines()
    assert len(lines) <= STEPS_MAX + 12
    assert "#150 is lost on the way" in text
    assert max(map(len, lines)) <= WIDTH


def test_two_long_answers_are_cut_where_they_differ() -> None:
    """simulation X-34: what is equal in both says nothing; short ones and early differences stay as they are."""
    same = "{'id': 6, 'customer': 'c1', 'quantity': 3, 'price': 60, 'note': 'by the door', 'sum': "
    now, then = brief_apart(f"{same}15}}", f"{same}18}}")
    assert (now, then) == ("... the door', 'sum': 15}", "... the door', 'sum': 18}")
    assert brief_apart("{'sum': 15}", "None") == ("{'sum': 15}", "None")
    late = "{'order': 2, 'customer': 'bo', 'invoice': "
    assert brief_apart(f"{late}1}}", f"{late}2}}") == (f"{late}1}}", f"{late}2}}")
    assert brief_apart(f"1{same}", f"2{same}") == (brief(f"1{same}"), brief(f"2{same}"))
