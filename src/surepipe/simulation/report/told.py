"""A counterexample with the stories of its two runs, which text, page and picture share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from surepipe.audit.trace import Kind
from surepipe.simulation.report.story import NETWORK, Step, Story, first_difference, fold
from surepipe.simulation.report.telling import is_staged, tell
from surepipe.simulation.report.whereabouts import Usual
from surepipe.simulation.report.words import brief, fault_in, fault_words, listing
from surepipe.simulation.results import Counterexample

ROWS_MAX = 40
STAGED_ROWS_MAX = 14
"""Of pipelines with stages: their steps say more, and the one that decides is to be on the first screen."""


@dataclass(frozen=True, slots=True)
class Told:
    """``story`` is the failing run, ``beside`` the nearest one that holds, about the same message."""

    found: Counterexample
    story: Story
    beside: Story | None

    def folded(self, rows_max: int) -> Told:
        """With at most so many steps in each story."""
        beside = fold(self.beside, rows_max) if self.beside else None
        return Told(self.found, fold(self.story, rows_max), beside)

    def numbered(self) -> Told:
        """As on the page, and the steps keep their numbers of there when more are left out."""
        most = STAGED_ROWS_MAX if is_staged(self.found.result.rows) else ROWS_MAX
        told = self.folded(most)
        beside = _with_numbers(told.beside) if told.beside else None
        return Told(self.found, _with_numbers(told.story), beside)

    @property
    def lead(self) -> str:
        """The first words of a page: the finding, or, where a run never came to rest, what nothing gets past."""
        violation = self.found.violation
        why = next((step.verdict for step in self.story.steps if step.verdict), "")
        is_stuck = violation.property == "P12" and bool(why)
        return f"Nothing gets past this: {why}" if is_stuck else violation.sentence

    @property
    def decides(self) -> str:
        """The step that decided a finding at the end, and why; empty where a step breaks the rule itself."""
        return next(
            (
                f"Step {number} decides: {step.verdict}{self._content()}"
                for number, step in numbered(self.story.steps)
                if step.verdict
            ),
            "",
        )

    def _content(self) -> str:
        said = self.found.message
        return f" {self.story.focus} is {brief(said)}." if said and self.story.focus else ""

    @property
    def parts_at(self) -> int:
        """The index of the first step that the two do not share, -1 with nothing beside."""
        return first_difference(self.story, self.beside) if self.beside else -1

    @property
    def differs_at(self) -> int:
        """The same, and where that step is among those left out, the next fault, which is what made it differ."""
        at, steps = self.parts_at, self.story.steps
        if not 0 <= at < len(steps) or not steps[at].folded:
            return at
        return next((place for place in range(at, len(steps)) if steps[place].fault), at)

    def without(self) -> tuple[str, str]:
        """What the nearest schedule that holds lacks: a step by its number, and in words; or the decision."""
        steps = list(numbered(self.story.steps))
        fault = fault_in(self.found.without)
        here = [(n, step) for n, step in steps[self.differs_at :][:1] if step.fault]
        lacking = here or [(n, step) for n, step in steps if fault and step.fault == fault]
        if len(lacking) == 1:
            number, step = lacking[0]
            return f"step {number}", f"{_who(step)}{step.does}"
        return "", self.found.without or "one decision of the script"


def _with_numbers(story: Story) -> Story:
    steps = (
        step if step.folded else replace(step, number=int(number))
        for number, step in numbered(story.steps)
    )
    return replace(story, steps=tuple(steps))


def _who(step: Step) -> str:
    if step.node != NETWORK:
        return f"{step.node} "
    return "" if step.kind == Kind.FAULT else "the network "


def told(found: Counterexample) -> Told:
    """Read both runs."""
    about = found.violation
    usual = found.usual.get((about.pipe, about.epoch, about.seq), {})
    known = (found.places, Usual(usual, found.varying))
    beside = tell(found.nearest, None, about, *known) if found.nearest else None
    return Told(found, tell(found.result, about, None, *known), beside)


def numbered(steps: Sequence[Step]) -> Iterator[tuple[str, Step]]:
    """The steps with their numbers; what is folded has none, and is a dot."""
    number = 0
    for step in steps:
        number = step.number or number + (0 if step.folded else 1)
        yield (".", step) if step.folded else (str(number), step)


def headline(found: Counterexample) -> list[str]:
    """Property, where, seed, and how much shrinking took away."""
    violation, script = found.violation, found.result.script
    count = len(script.decisions)
    parts = [
        f"{violation.property} {violation.name} VIOLATED",
        found.title,
        f"seed {script.seed}",
        f"shrunk from {found.decisions_before} to {count} decision{'' if count == 1 else 's'}",
    ]
    return [part for part in parts if part]


def faults_used(found: Counterexample) -> list[str]:
    """The faults of the script in words, in the order of its decisions."""
    faults = dict.fromkeys(item.fault for item in found.result.script.decisions)
    return [fault_words(fault) for fault in faults if fault]


def verdict(found: Counterexample) -> list[str]:
    """The guarantee; then whether it covers the faults that were used, and what to add."""
    guarantee = f"Guarantee of this pipe: {found.guarantee.rstrip('.')}." if found.guarantee else ""
    advice = f"`surepipe check` suggests: {found.advice}" if found.advice else ""
    return (
        [guarantee, f"{coverage(found)} {advice}".strip()]
        if guarantee
        else [coverage(found), advice]
    )


def coverage(found: Counterexample) -> str:
    """Whether the guarantee speaks of these faults."""
    used = faults_used(found)
    if not used:
        return "No fault was needed: this must not happen."
    if found.covered and found.violation.property == "user":  # which it does not speak of
        return f"It covers what happened here ({listing(used)})."
    if found.covered:
        return f"It covers what happened here ({listing(used)}): this must not happen."
    return f"It does not cover what happened here: {listing(used)}."
