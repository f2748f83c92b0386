"""Space-time diagrams as SVG: time runs down, each place has a line, frames are arrows between the lines.

A scene is a list of marks at times; ``draw`` turns it into text, the same for the same scene.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from surepipe.drawing.svg import (
    TEXT,
    Area,
    PathShape,
    Picture,
    Point,
    Rectangle,
    Shape,
    Words,
    cross,
    width_of,
    write_svg,
)

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


RULES = """
 text{fill:var(--ink)} path.wait{stroke:var(--warn);stroke-width:4}
 path.sent{stroke:var(--blue);stroke-width:2} path.again{stroke:var(--blue);stroke-width:4}
 path.back{stroke:var(--soft);stroke-width:2;stroke-dasharray:6 4}
 path.delivered{stroke:var(--good);stroke-width:2} path.lost{stroke:var(--bad);stroke-width:2}
 path.dashed{stroke-dasharray:6 4} path.cross{stroke:var(--bad);stroke-width:4}
 .head.sent,.head.again,text.sent,text.again{fill:var(--blue)} .head.back,text.back,text.dropped{fill:var(--soft)}
 .head.delivered,text.delivered{fill:var(--good)} text.lost{fill:var(--bad)} text.wait,text.held{fill:var(--warn)}
 .box{fill:var(--pane);stroke:var(--soft);stroke-width:1.5}
 .box.delivered{stroke:var(--good);fill:var(--goodpane)} .box.held{stroke:var(--warn);fill:var(--warnpane)}
 .box.dropped{stroke-dasharray:3 2}
"""
"""Blue travels, green arrives, red is lost, amber waits."""
WIDTH = 760


def scene_picture(
    name: str, title: str, description: str, height: int, marks: Sequence[Shape | Words]
) -> str:
    """The marks below a title, as an SVG document."""
    return write_svg(
        Picture(
            WIDTH,
            height,
            title,
            description,
            shapes=tuple(mark for mark in marks if not isinstance(mark, Words)),
            words=(
                Words((24, 34), title, "title"),
                *(mark for mark in marks if isinstance(mark, Words)),
            ),
        ),
        name,
        RULES,
    )


def draw(scene: Scene) -> str:
    """The picture as an SVG document."""
    height = round(_y(scene.end) + 78)
    marks = [
        *_lanes(scene, _y(scene.end) + 14),
        *(part for mark in scene.marks if isinstance(mark, Span) for part in _span(scene, mark)),
        *(part for mark in scene.marks if isinstance(mark, Frame) for part in _frame(scene, mark)),
        *(part for mark in scene.marks if isinstance(mark, Note) for part in _note(scene, mark)),
        Words((24, height - 24), scene.outcome, "outcome"),
    ]
    return scene_picture(scene.name, scene.title, scene.description, height, marks)


def _y(time: float) -> float:
    return LANES_TOP + time * STEP


def _lanes(scene: Scene, bottom: float) -> Iterator[Shape | Words]:
    for number, (name, x) in enumerate(zip(scene.lanes, scene.xs, strict=True)):
        yield Words((x, LANES_TOP - 24), name, "lane", "middle")
        top = LANES_TOP - 14.0
        for span in scene.marks:
            if isinstance(span, Span) and span.absent and span.lane == number:
                yield PathShape(((x, top), (x, _y(span.start))), "life")
                yield PathShape(((x, _y(span.start)), (x, _y(span.end))), "life gone")
                top = _y(span.end)
        yield PathShape(((x, top), (x, bottom)), "life")


def _span(scene: Scene, span: Span) -> Iterator[Shape | Words]:
    x, top, bottom = scene.xs[span.lane], _y(span.start), _y(span.end)
    if not span.absent:
        yield PathShape(((x, top), (x, bottom)), "wait")
    outward, anchor = _outward(span.lane)
    lines = span.text.split("\n")
    first = (top + bottom) / 2 + 5 - (len(lines) - 1) * 9
    for number, text in enumerate(lines):
        yield Words((x + 14 * outward, first + 18 * number), text, "wait", anchor)


def _outward(lane: int) -> tuple[int, str]:
    """On which side of a line its words stand: left of the first, right of the others."""
    return (-1, "end") if lane == 0 else (1, "start")


def _frame(scene: Scene, frame: Frame) -> Iterator[Shape | Words]:
    from_x, to_x = scene.xs[frame.source], scene.xs[frame.target]
    start: Point = (round(from_x + (to_x - from_x) * frame.begins), _y(frame.at))
    end: Point = (to_x, _y(frame.at + frame.takes))
    direction = 1 if to_x > from_x else -1
    if frame.lost:
        end = _between(start, end, 0.6)
        anchor = "start" if direction > 0 else "end"
        yield PathShape((start, end), "lost dashed" if frame.tone is Tone.BACK else "lost")
        yield from cross(end, reach=8)
        yield Words((end[0] + 16 * direction, end[1] + 14), "lost", "lost", anchor)
        yield _label(_between(start, end, 0.5), frame.text, "lost")
        return
    tip = (end[0] - 4 * direction, end[1])
    yield PathShape((start, tip), frame.tone, head=True)
    yield _label(_between(start, end, 0.3), frame.text, frame.tone)


def _between(start: Point, end: Point, way: float) -> Point:
    return (start[0] + (end[0] - start[0]) * way, start[1] + (end[1] - start[1]) * way)


def _label(middle: Point, text: str, style: str) -> Words:
    """The words on an arrow, on a patch of background so that the line doesn't cross them."""
    return Words((middle[0], middle[1] + 5), text, style, "middle", patch=True)


def _note(scene: Scene, note: Note) -> Iterator[Shape | Words]:
    outward, anchor = _outward(note.lane)
    x, y = scene.xs[note.lane] + 14.0 * outward, _y(note.at)
    for text in note.boxes if outward > 0 else reversed(note.boxes):
        width = 12.0 + width_of(text, TEXT)
        left = x if outward > 0 else x - width
        yield Area(Rectangle(left, y - 11, left + width, y + 11), f"box {note.tone}", 5)
        yield Words((left + width / 2, y + 5), text, note.tone, "middle")
        x += (width + 5) * outward
    if note.text:
        x += 4 * outward if note.boxes else 0
        yield Words((x, y + 5), note.text, note.tone, anchor)
