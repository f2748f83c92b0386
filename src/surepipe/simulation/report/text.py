"""A counterexample as text: 80 columns, no colour, at most 15 steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from surepipe.simulation.report.story import Step, Story
from surepipe.simulation.report.told import Told, headline, numbered, verdict
from surepipe.simulation.report.told import told as read
from surepipe.simulation.report.words import node_words
from surepipe.simulation.results import Counterexample

WIDTH = 80
STEPS_MAX = 15
_DOES = 39


def text_report(found: Counterexample) -> str:
    """The whole report, ending with a line break."""
    return write_text(read(found))


def write_text(whole: Told) -> str:
    """The same, of stories that were read before."""
    told = whole.numbered().folded(STEPS_MAX)
    sentence = told.found.violation.sentence
    lines = [
        *_joined(headline(told.found)),
        *_wrapped(told.lead),
        *_wrapped(told.decides),
        *(_wrapped(sentence) if sentence != told.lead else ()),
        *_steps(told.story),
        *_closing(told),
    ]
    return "\n".join(lines) + "\n"


def _joined(parts: Sequence[str]) -> Iterator[str]:
    """Beside each other, three spaces apart, as far as they fit."""
    line = ""
    for part in parts:
        if line and len(line) + 3 + len(part) > WIDTH:
            yield line
            line = part
        else:
            line = f"{line}   {part}" if line else part
    yield line


@dataclass(frozen=True, slots=True)
class _Columns:
    number: int
    node: int
    does: int
    effect: int


def _steps(story: Story) -> Iterator[str]:
    node = max((len(node_words(step.node)) for step in story.steps), default=6)
    node = min(max(node, 7), 16)
    does = min(_DOES, max((len(_does(step)) for step in story.steps), default=10))
    columns = _Columns(3, node, does, WIDTH - 3 - 2 - node - 2 - does - 2)
    for number, step in numbered(story.steps):
        yield from _step(number, step, columns)


def _does(step: Step) -> str:
    return f"*** {step.does}" if step.fault else step.does


def _step(number: str, step: Step, columns: _Columns) -> Iterator[str]:
    mark = "!!" if step.violates else ""
    effect = f"{step.effect} {mark}".strip()
    cells = (
        [number],
        wrap(node_words(step.node), columns.node),
        wrap(_does(step), columns.does),
        wrap(effect, columns.effect),
    )
    widths = (-columns.number, columns.node, columns.does, 0)
    for line in range(max(len(cell) for cell in cells)):
        row = (_fit(cell, line, width) for cell, width in zip(cells, widths, strict=True))
        yield "  ".join(row).rstrip()


def _fit(cell: Sequence[str], line: int, width: int) -> str:
    text = cell[line] if line < len(cell) else ""
    return text.rjust(-width) if width < 0 else text.ljust(width)


def _closing(told: Told) -> list[str]:
    """The guarantee, whether it covers the faults, what to add, what it holds without, how to repeat it."""
    found = told.found
    lines = [line for text in verdict(found) for line in _wrapped(text)]
    if told.beside:
        number, words = told.without()
        lines += _wrapped(f"Holds without {number or f'this: {words}'}.")
    return [*lines, f"Replay: {found.replay}"] if found.replay else lines


def _wrapped(text: str) -> list[str]:
    return wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
