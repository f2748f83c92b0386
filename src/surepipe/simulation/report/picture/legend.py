"""What the signs of a picture mean; only those that occur in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from surepipe.simulation.report.picture.frames import cross
from surepipe.simulation.report.picture.lifelines import CUT, cut_links, zigzag
from surepipe.simulation.report.picture.measure import width_of
from surepipe.simulation.report.picture.shapes import (
    SIZES,
    Area,
    Box,
    Dot,
    Path,
    Point,
    Shape,
    Words,
)
from surepipe.simulation.report.story import Fate, Story
from surepipe.simulation.trace import Kind

SIGN = 34
ROW = 22


@dataclass(frozen=True, slots=True)
class _Entry:
    sign: str
    text: str


def legend(story: Story, width: float, top: float) -> tuple[list[Shape], list[Words], float]:
    """Signs, words, and where they end."""
    shapes: list[Shape] = []
    words: list[Words] = []
    x, y = 14.0, top
    for entry in _entries(story):
        wide = SIGN + 8 + width_of(entry.text, SIZES["small"]) + 18
        if x > 14 and x + wide > width - 14:
            x, y = 14.0, y + ROW
        shapes += _sign(entry.sign, (x, y))
        words.append(Words((x + SIGN + 8, y + 4), entry.text, "small"))
        x += wide
    return shapes, words, y + 18


def _entries(story: Story) -> Iterator[_Entry]:
    arrows = story.arrows
    rows = [row for step in story.steps for row in (step.rows or step.hidden)]
    kinds = {row.kind for row in rows}
    occurs = (
        ("focus", f"message {story.focus}", any(arrow.is_focus for arrow in arrows)),
        ("holds", f"has {story.focus}", bool(story.held)),
        ("frame", "another frame", any(not arrow.is_focus for arrow in arrows)),
        ("control", "confirm or question", any(arrow.is_control for arrow in arrows)),
        ("cross", "lost", any(arrow.fate is Fate.LOST for arrow in arrows)),
        ("fork", "copied", any(arrow.fork >= 0 for arrow in arrows)),
        ("flying", "still on its way", any(arrow.fate is Fate.FLYING for arrow in arrows)),
        ("crash", "crash", Kind.CRASH in kinds),
        (
            "start",
            "starts anew",
            any(row.kind == Kind.START and row.incarnation > 1 for row in rows),
        ),
        ("hatch", "stands still", Kind.PAUSE in kinds),
        ("band", "cut", any(cut_links(row, CUT) for row in rows)),
        ("fold", "steps left out", any(step.folded for step in story.steps)),
        ("boxed", "breaks the rule", any(step.violates for step in story.steps)),
    )
    yield from (_Entry(sign, text) for sign, text, does in occurs if does)


def _sign(sign: str, at: Point) -> list[Shape]:
    x, y = at
    span = ((x, y), (x + SIGN, y))
    if sign in _LINES:
        style, head = _LINES[sign]
        return [Path(span, style, head=head)]
    if sign == "cross":
        return cross((x + SIGN / 2, y))
    if sign == "fork":
        branch = ((x + 8, y), (x + SIGN, y + 7))
        return [
            Path(span, "frame", head=True),
            Path(branch, "frame", head=True),
            Dot((x + 8, y), "frame"),
        ]
    if sign == "crash":
        return [Path(zigzag(x + SIGN / 2, y), "crash")]
    if sign == "start":
        return [Dot((x + SIGN / 2, y), "start")]
    return [Area(Box(x, y - 8, x + SIGN, y + 8), f"{sign} sample")]


_LINES = {
    "focus": ("frame focus", True),
    "frame": ("frame", True),
    "control": ("frame control", True),
    "flying": ("frame flying", False),
    "fold": ("fold", False),
    "holds": ("holds", False),
}
