"""Space-time diagrams as SVG: time runs down, each place has a line, frames are arrows between the lines.

A scene is a list of marks at times; ``draw`` turns it into text, the same for the same scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tools.svg import Point, box, cross, document, line, patch, triangle, words

LANES_TOP = 92
STEP = 26
"""Pixels of one unit of time."""


class Tone(StrEnum):
    """What happened to a message, which decides its colour."""

    SENT = "sent"
    BACK = "back"
    AGAIN = "again"
    LOST = "lost"
    DELIVERED = "delivered"
    HELD = "held"
    DROPPED = "dropped"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Frame:
    """Something travels from one line to another: it leaves ``at`` and takes ``takes``, or is lost on the way."""

    at: float
    text: str
    source: int = 0
    target: int = 1
    tone: Tone = Tone.SENT
    lost: bool = False
    takes: float = 1.6
    begins: float = 0.0
    """How far along the way it comes into being: the route may make a copy."""


@dataclass(frozen=True, slots=True)
class Note:
    """A few words beside a line, with the messages they are about in small boxes."""

    at: float
    lane: int
    text: str
    tone: Tone = Tone.PLAIN
    boxes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time on a line: somebody waits, or isn't there."""

    start: float
    end: float
    lane: int
    text: str
    absent: bool = False


Mark: TypeAlias = Frame | Note | Span


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture. ``outcome`` is the line at the foot: what the application has got in the end."""

    name: str
    title: str
    description: str
    outcome: str
    marks: Sequence[Mark]
    lanes: tuple[str, ...] = ("sender", "receiver")
    xs: tuple[int, ...] = field(default=(220, 520))

    @property
    def end(self) -> float:
        """When the last mark is over."""
        return max(_end_of(mark) for mark in self.marks)


def _end_of(mark: Mark) -> float:
    if isinstance(mark, Frame):
        return mark.at + mark.takes
    return mark.end if isinstance(mark, Span) else mark.at


def draw(scene: Scene) -> str:
    """The picture as an SVG document."""
    height = round(_y(scene.end) + 78)
    body = [
        *_lanes(scene, _y(scene.end) + 14),
        *(part for mark in scene.marks if isinstance(mark, Span) for part in _span(scene, mark)),
        *(part for mark in scene.marks if isinstance(mark, Frame) for part in _frame(scene, mark)),
        *(part for mark in scene.marks if isinstance(mark, Note) for part in _note(scene, mark)),
        words((24, height - 24), scene.outcome, "outcome"),
    ]
    return document(scene.name, scene.title, scene.description, height=height, body=body)


def _y(time: float) -> float:
    return LANES_TOP + time * STEP


def _lanes(scene: Scene, bottom: float) -> list[str]:
    parts: list[str] = []
    for number, (name, x) in enumerate(zip(scene.lanes, scene.xs, strict=True)):
        parts.append(words((x, LANES_TOP - 24), name, "lane", "middle"))
        top = LANES_TOP - 14.0
        for span in scene.marks:
            if isinstance(span, Span) and span.absent and span.lane == number:
                parts.append(line((x, top), (x, _y(span.start)), "life"))
                parts.append(line((x, _y(span.start)), (x, _y(span.end)), "life absent"))
                top = _y(span.end)
        parts.append(line((x, top), (x, bottom), "life"))
    return parts


def _span(scene: Scene, span: Span) -> list[str]:
    x, top, bottom = scene.xs[span.lane], _y(span.start), _y(span.end)
    parts = [] if span.absent else [line((x, top), (x, bottom), "wait")]
    outward, anchor = _outward(span.lane)
    lines = span.text.split("\n")
    first = (top + bottom) / 2 + 5 - (len(lines) - 1) * 9
    for number, text in enumerate(lines):
        parts.append(words((x + 14 * outward, first + 18 * number), text, "wait", anchor))
    return parts


def _outward(lane: int) -> tuple[int, str]:
    """On which side of a line its words stand: left of the first, right of the others."""
    return (-1, "end") if lane == 0 else (1, "start")


def _frame(scene: Scene, frame: Frame) -> list[str]:
    from_x, to_x = scene.xs[frame.source], scene.xs[frame.target]
    start: Point = (round(from_x + (to_x - from_x) * frame.begins), _y(frame.at))
    end: Point = (to_x, _y(frame.at + frame.takes))
    direction = 1 if to_x > from_x else -1
    if frame.lost:
        end = _between(start, end, 0.6)
        dashed = " dashed" if frame.tone is Tone.BACK else ""
        anchor = "start" if direction > 0 else "end"
        beside = (end[0] + 16 * direction, end[1] + 14)
        return [
            line(start, end, f"lost{dashed}"),
            *cross(end),
            words(beside, "lost", "lost", anchor),
            *_label(_between(start, end, 0.5), frame.text, "lost"),
        ]
    tip, y = end[0] - 4 * direction, end[1]
    back = tip - 12 * direction
    return [
        line(start, (tip - 6 * direction, y - 0.5), frame.tone),
        triangle([(tip, y), (back, y - 7), (back, y + 5)], frame.tone),
        *_label(_between(start, end, 0.3), frame.text, frame.tone),
    ]


def _between(start: Point, end: Point, way: float) -> Point:
    return (start[0] + (end[0] - start[0]) * way, start[1] + (end[1] - start[1]) * way)


def _label(middle: Point, text: str, style: str) -> list[str]:
    """The words on an arrow, on a patch of background so that the line doesn't cross them."""
    x, y = middle
    return [patch(middle, 8.6 * len(text) + 10), words((x, y + 5), text, style, "middle")]


def _note(scene: Scene, note: Note) -> list[str]:
    outward, anchor = _outward(note.lane)
    x, y = scene.xs[note.lane] + 14.0 * outward, _y(note.at)
    parts: list[str] = []
    for text in note.boxes if outward > 0 else reversed(note.boxes):
        width = 12.0 + 9 * len(text)
        left = x if outward > 0 else x - width
        parts.append(box((left, y - 11), width, 22, note.tone))
        parts.append(words((left + width / 2, y + 5), text, note.tone, "middle"))
        x += (width + 5) * outward
    if note.text:
        x += 4 * outward if note.boxes else 0
        parts.append(words((x, y + 5), note.text, note.tone, anchor))
    return parts
