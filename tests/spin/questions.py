"""What SPIN is asked: each cell of the tables that its models cover, with the explorer's answer beside it.

All is asked with 3 messages, though the explorer shows some violations with 2. Where the tables say that a
property breaks only on links that don't keep the order, or only with so many messages, that it holds without is
asked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.faults.plain_golden import golden
from tests.faults.plain_table import Cell, cells
from tests.faults.stack_table import BROKEN, KEPT, StackCell

ROWS = ("F1", "F2", "F3", "F4", "F5", "F8", "F10", "F11")
MESSAGES = 3

MODELS: Mapping[str, str] = {
    "RS": "resend",
    "RM": "multi_unconfirmed",
    "ST": "stream",
    "SQ": "sequential",
    "SM": "strict",
    "CI": "continuous",
    "CI over RM": "continuous_over_multi_unconfirmed",
}
"""By column of the tables: the model, a file beside this one."""

PROPERTIES: Mapping[str, int] = {
    **{f"P{number}": number for number in (2, 3, 4, 5, 6, 7, 12)},
    "P6g": 60,
}
"""By id: the number under which the models know a property."""


@dataclass(frozen=True)
class Question:
    """Does the property ``judged`` survive these faults? ``holds`` is what the explorer says."""

    id: str
    column: str
    judged: str
    faults: Mapping[str, int]
    is_any: bool
    holds: bool
    messages: int = MESSAGES

    @property
    def model(self) -> str:
        """The name of the model."""
        return MODELS[self.column]

    @property
    def settings(self) -> Mapping[str, str]:
        """How the built model is told all this: through its environment."""
        faults = {**self.faults, "F4": int(self.is_any)}
        numbers = {"MESSAGES": self.messages, "PROPERTY": PROPERTIES[self.judged], **faults}
        return {name: str(number) for name, number in numbers.items()}


def questions() -> Sequence[Question]:
    """All of them, pattern by pattern."""
    asked = [*_of_patterns(), *_of_stacks()]
    return sorted(asked, key=lambda question: list(MODELS).index(question.column))


def _of_patterns() -> Iterator[Question]:
    for kept in (False, True):
        for cell in cells(kept=kept):
            if cell.row in ROWS:
                yield from _of_cell(cell)


def _of_cell(cell: Cell) -> Iterator[Question]:
    claim = cell.claim
    asked = Question(
        cell.id, cell.column, claim.property, cell.faults, cell.order == "any", _holds(cell.id)
    )
    yield asked
    if claim.needs_all:
        fewer = claim.messages - 1
        plural = "message" if fewer == 1 else "messages"
        yield replace(asked, id=f"{cell.id}, {fewer} {plural}", holds=True, messages=fewer)
    if claim.order == "any" and not claim.is_kept:
        fifo = replace(asked, id=f"{cell.id}, in order", holds=True, is_any=False)
        yield replace(fifo, messages=claim.messages)


def _of_stacks() -> Iterator[Question]:
    for cell in (*BROKEN, *KEPT):
        if cell.column in MODELS:
            yield from _of_stack(cell)


def _of_stack(cell: StackCell) -> Iterator[Question]:
    for name in cell.properties:
        asked = f"{cell.id} ({name})" if len(cell.properties) > 1 else cell.id
        is_any = cell.order == "any"
        yield Question(asked, cell.column, name, cell.faults, is_any, _holds(cell.id))


def _holds(cell: str) -> bool:
    """The explorer's answer, as the golden file keeps it: what is violated has a length there."""
    return "length" not in golden()[cell]
