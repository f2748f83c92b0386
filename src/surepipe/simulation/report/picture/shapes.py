"""The parts of a picture: lines, areas and words, each with the name of its style."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from surepipe.simulation.report.picture.measure import width_of

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with its sides along the axes."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@dataclass(frozen=True, slots=True)
class Words:
    """One line of text; ``at`` is the foot of its start, middle or end. ``row`` is the step it belongs to."""

    at: Point
    text: str
    style: str = "note"
    anchor: str = "start"
    row: int = -1
    patch: bool = False
    """whether it stands on a piece of background, as lines may run below it"""

    @property
    def size(self) -> int:
        """Of the font, in pixels."""
        return SIZES.get(self.style, TEXT)

    @property
    def box(self) -> Box:
        """What it covers at the most."""
        wide = width_of(self.text, self.size, bold=self.style in BOLD)
        x, y = self.at
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[self.anchor]
        return Box(left, y - self.size * ASCENT, left + wide, y + self.size * DESCENT)


@dataclass(frozen=True, slots=True)
class Path:
    """A line through points; ``head`` puts an arrow's head at its end."""

    points: tuple[Point, ...]
    style: str
    head: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """A filled or framed rectangle."""

    box: Box
    style: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A small circle."""

    at: Point
    style: str


Shape: TypeAlias = Path | Area | Dot

TEXT = 13
SIZES = {"title": 17, "sentence": 15, "lane": 14, "small": 12}
BOLD = frozenset({"title", "sentence", "lane", "effect", "label focus", "fault", "verdict"})
LINE = 16
"""From one line of text to the next."""
ASCENT = 0.95
DESCENT = 0.26


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished layout. ``rows`` are the boxes of the steps, in order; shapes are drawn before words."""

    width: float
    height: float
    title: str
    description: str
    shapes: tuple[Shape, ...]
    words: tuple[Words, ...]
    rows: tuple[Box, ...]
