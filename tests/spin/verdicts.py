"""What SPIN's verifier says, and where it says something else than the explorer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.spin.questions import Question

_ERRORS = re.compile(r"^State-vector .* errors: (\d+)$", re.MULTILINE)
_STATES = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_BROKEN = re.compile(r"assertion violated (.+) \(at depth")
_UNFINISHED = (
    "max search depth too small",
    "out of memory",
    "Search not completed",
    "hash table full",
)


class NoVerdictError(Exception):
    """The verifier has not said whether the property holds: what it said instead."""


@dataclass(frozen=True)
class Verdict:
    """Whether the property holds, and in how many states that was looked for."""

    holds: bool
    states: int

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'violated'} ({self.states} states)"


def verdict_in(output: str) -> Verdict:
    """What a run of the verifier found.

    Raises NoVerdictError when it did not finish, or failed at something that is not the property: a search that
    was cut short proves nothing, and an assertion about the model itself says that the model is wrong.
    """
    errors, states = _ERRORS.search(output), _STATES.search(output)
    if errors is None or states is None:
        raise NoVerdictError(f"this is no report of a verifier:\n{output}")
    broken = _BROKEN.search(output)
    if broken is not None and broken[1].strip("()") == "kept":
        return Verdict(holds=False, states=int(states[1]))
    if broken is not None or errors[1] != "0":
        raise NoVerdictError(f"the model itself is wrong:\n{output}")
    if any(words in output for words in _UNFINISHED):
        raise NoVerdictError(f"the search was not finished:\n{output}")
    return Verdict(holds=True, states=int(states[1]))


@dataclass(frozen=True)
class Answer:
    """A question, and what SPIN says."""

    question: Question
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the explorer says the same."""
        return self.verdict.holds == self.question.holds

    def __str__(self) -> str:
        explorer = "holds" if self.question.holds else "violated"
        words = "agree" if self.agrees else f"DISAGREE: the explorer says {explorer}"
        return f"{self.question.id:48} SPIN: {self.verdict!s:28} {words}"


def summary(answers: Sequence[Answer]) -> tuple[str, bool]:
    """What is said at the end, and whether all is well: every question was answered alike by both."""
    differing = [answer for answer in answers if not answer.agrees]
    held = sum(answer.verdict.holds for answer in answers)
    states = sum(answer.verdict.states for answer in answers)
    text = (
        f"spin: {len(answers)} questions, {held} hold and {len(answers) - held} are violated, "
        f"{states} states; {len(differing)} disagreements with the explorer"
    )
    lines = [text, *(f"  {answer}" for answer in differing)]
    return "\n".join(lines), bool(answers) and not differing
