"""The second opinion bites: a verdict that differs is told, and what is no verdict is never taken for one.

The run itself is ``make spin``: it needs SPIN and a C compiler, which the tests here do without.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.plain_table import TABLE
from tests.spin.questions import MESSAGES, MODELS, PROPERTIES, ROWS, Question, questions
from tests.spin.run import CANNOT_RUN, FOLDER, NO_COLUMN, PASSED, chosen, main
from tests.spin.verdicts import Answer, NoVerdictError, Verdict, summary, verdict_in

ASKED = questions()

HELD = """
(Spin Version 6.5.2 -- 6 December 2019)

State-vector 76 byte, depth reached 107, errors: 0
       80 states, stored
       29 states, matched
"""
BROKEN = """pan:1: assertion violated kept (at depth 91)
pan: wrote resend.pml.trail

(Spin Version 6.5.2 -- 6 December 2019)
Warning: Search not completed

State-vector 76 byte, depth reached 101, errors: 1
       31 states, stored
"""


def alike() -> list[Answer]:
    """Answers as if SPIN said what the explorer says."""
    return [Answer(question, Verdict(question.holds, 10)) for question in ASKED]


def test_a_single_flipped_verdict_is_told_and_fails_the_run() -> None:
    """simulation X-52: every question in turn; the summary names the question and both verdicts."""
    for place, answer in enumerate(alike()):
        flipped = replace(answer, verdict=Verdict(not answer.verdict.holds, 10))
        text, is_well = summary([*alike()[:place], flipped, *alike()[place + 1 :]])
        assert not is_well
        assert "1 disagreements" in text
        assert flipped.question.id in text
        assert "DISAGREE" in text


def test_equal_verdicts_pass_and_no_verdicts_do_not() -> None:
    """simulation X-52: a run that asked nothing has shown nothing."""
    assert summary(alike())[1]
    assert not summary([])[1]


def test_a_broken_property_is_told_from_one_that_holds() -> None:
    """As SPIN 6.5.2 prints them; a search that stops at a violation says that it isn't complete."""
    assert verdict_in(HELD) == Verdict(holds=True, states=80)
    assert verdict_in(BROKEN) == Verdict(holds=False, states=31)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "pan: out of memory",
        HELD.replace("(Spin", "error: max search depth too small\n(Spin"),
        HELD.replace("(Spin", "Warning: Search not completed\n(Spin"),
        HELD.replace("errors: 0", "errors: 1"),
        BROKEN.replace("kept", "(there.size<16)"),
    ],
)
def test_what_is_no_verdict_is_never_taken_for_one(output: str) -> None:
    """simulation X-4: cut short, not finished, failed for an unknown reason, or at a bound of the model itself."""
    with pytest.raises(NoVerdictError):
        verdict_in(output)


def test_every_cell_of_the_table_that_the_models_cover_is_asked() -> None:
    """simulation X-52: F1-F5, F8, F10, F11 on all six patterns, each claim, and the stack with 3 messages."""
    asked = {question.id for question in ASKED}
    claims = [
        (row, column, claim.property)
        for row in ROWS
        for column, listed in TABLE[row].items()
        for claim in listed
    ]
    for row, column, name in claims:
        assert any(
            one.split("-")[0].split("+")[0] == row and f"-{column}-{name}" in one for one in asked
        ), (row, column, name)
    assert {question.column for question in ASKED} == set(MODELS)
    assert len(asked) == len(ASKED)
    assert {one.messages for one in ASKED if "," not in one.id} == {MESSAGES}


def test_each_model_is_a_file_and_knows_the_names_of_what_it_is_told() -> None:
    """A number that a model doesn't ask for would change nothing, in silence."""
    told = {name for question in ASKED for name in question.settings}
    world = (FOLDER / "world.pml").read_text(encoding="utf-8")
    assert all(f'parameter("{name}")' in world for name in told)
    for name in PROPERTIES:
        assert f"property == {PROPERTIES[name]} ->" in world
    assert all((FOLDER / f"{model}.pml").is_file() for model in MODELS.values())


def test_without_spin_it_is_said_aloud_and_fails_in_continuous_integration_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """simulation X-67: nothing of what is needed is found."""
    for ci, status in (("true", CANNOT_RUN), ("", PASSED)):
        monkeypatch.setenv("CI", ci)
        assert main(["RS"], find=lambda _: None) == status
        assert "CANNOT RUN spin: spin, gcc not found" in capsys.readouterr().out


def test_a_column_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer lists those that there are."""
    assert main(["XX"]) == NO_COLUMN
    assert "CI over RM" in capsys.readouterr().out
    assert {question.column for question in chosen(["SM"])} == {"SM"}


def question_of(identity: str) -> Question:
    """A question by its id."""
    (found,) = [question for question in ASKED if question.id == identity]
    return found


def test_a_question_says_to_its_model_what_the_cell_says() -> None:
    """One that breaks only out of order, and the same in order, which holds."""
    asked, in_order = question_of("F3-RS-P4-any"), question_of("F3-RS-P4-any, in order")
    expected = {"MESSAGES": "3", "PROPERTY": "4", "F3": "1", "F4": "1"}
    assert asked.settings == expected
    assert not asked.holds
    assert in_order.settings == {**expected, "MESSAGES": "2", "F4": "0"}
    assert in_order.holds
