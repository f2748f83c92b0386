"""Space-time diagrams as SVG: time runs down, each place has a line, frames are arrows between the lines.

A scene is a list of marks at whole-numbered times; ``draw`` turns it into text, the same for the same scene. The
picture carries its own background, so it reads the same on a light and on a dark page, and its title and
description for those who hear it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias
from xml.sax.saxutils import escape

WIDTH = 760
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


STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de; }
  text { font: 14px "DejaVu Sans", Verdana, "Segoe UI", sans-serif; fill: #1f2328; }
  .title { font-size: 17px; font-weight: bold; }
  .lane { font-weight: bold; }
  .outcome { font-size: 15px; }
  line, path { fill: none; stroke: #1f2328; stroke-width: 2; }
  line.life { stroke: #8c959f; }
  line.absent { stroke-dasharray: 2 6; }
  line.wait { stroke: #9a6700; stroke-width: 4; }
  line.sent { stroke: #0969da; }
  line.back { stroke: #59636e; stroke-dasharray: 6 4; }
  line.again { stroke: #0969da; stroke-width: 4; }
  line.delivered { stroke: #1a7f37; }
  line.lost { stroke: #cf222e; }
  line.lost.dashed { stroke-dasharray: 6 4; }
  line.cross { stroke: #cf222e; stroke-width: 4; }
  polygon { stroke: none; }
  polygon.sent, polygon.again { fill: #0969da; }
  polygon.back { fill: #59636e; }
  polygon.delivered { fill: #1a7f37; }
  .under { fill: #ffffff; stroke: none; }
  text.sent, text.again { fill: #0550ae; font-weight: bold; }
  text.back { fill: #59636e; }
  text.lost { fill: #cf222e; font-weight: bold; }
  text.wait { fill: #7d4e00; }
  text.delivered { fill: #116329; }
  text.held { fill: #7d4e00; }
  text.dropped { fill: #59636e; }
  rect.box { stroke-width: 1.5; stroke: #59636e; fill: #f6f8fa; }
  rect.box.delivered { stroke: #1a7f37; fill: #dafbe1; }
  rect.box.held { stroke: #9a6700; fill: #fff8c5; }
  rect.box.dropped { stroke: #8c959f; fill: #f6f8fa; stroke-dasharray: 3 2; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; }
    text { fill: #e6edf3; }
    line, path { stroke: #e6edf3; }
    line.life { stroke: #6e7681; }
    line.wait { stroke: #d29922; }
    line.sent, line.again { stroke: #4493f8; }
    line.back { stroke: #9198a1; }
    line.lost, line.cross { stroke: #ff7b72; }
    polygon.sent, polygon.again { fill: #4493f8; }
    polygon.back { fill: #9198a1; }
    polygon.delivered { fill: #3fb950; }
    line.delivered { stroke: #3fb950; }
    .under { fill: #0d1117; }
    text.sent, text.again { fill: #79b8ff; }
    text.back, text.dropped { fill: #9198a1; }
    text.lost { fill: #ff7b72; }
    text.wait, text.held { fill: #e3b341; }
    text.delivered { fill: #56d364; }
    rect.box { stroke: #9198a1; fill: #161b22; }
    rect.box.delivered { stroke: #3fb950; fill: #12261e; }
    rect.box.held { stroke: #d29922; fill: #272115; }
    rect.box.dropped { stroke: #6e7681; fill: #161b22; }
  }
"""


def draw(scene: Scene) -> str:
    """The picture as an SVG document."""
    height = round(_y(scene.end) + 78)
    body = [
        *_lanes(scene, _y(scene.end) + 14),
        *(line for mark in scene.marks if isinstance(mark, Span) for line in _span(scene, mark)),
        *(line for mark in scene.marks if isinstance(mark, Frame) for line in _frame(scene, mark)),
        *(line for mark in scene.marks if isinstance(mark, Note) for line in _note(scene, mark)),
        _text(24, height - 24, scene.outcome, "outcome"),
    ]
    return document(scene.name, scene.title, scene.description, height, body)


def document(name: str, title: str, description: str, height: int, body: Sequence[str]) -> str:
    """An SVG with a background, a visible title, and words for those who can't see it."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(24, 34, title, "title"),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def panel(x: float, y: float, width: float, height: float, title: str, duty: str) -> list[str]:
    """A box with a name and, below it, what it does here."""
    middle = x + width / 2
    box = (
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>'
    )
    if not duty:
        return [box, _text(middle, y + height / 2 + 5, title, "lane", "middle")]
    return [
        box,
        _text(middle, y + 19, title, "lane", "middle"),
        _text(middle, y + 38, duty, "back", "middle"),
    ]


def vertical_arrow(x: float, y1: float, y2: float, text: str, tone: Tone) -> list[str]:
    """An arrow up or down, with what travels along it."""
    direction = 1 if y2 > y1 else -1
    back = y2 - 12 * direction
    return [
        _line(x, y1, x, y2 - 8 * direction, tone),
        f'<polygon class="{tone}" points="{x:.1f},{y2:.1f} {x - 6:.1f},{back:.1f} {x + 6:.1f},{back:.1f}"/>',
        _text(x + 14, (y1 + y2) / 2 + 5, text, tone),
    ]


def route(
    x1: float, x2: float, top: float, bottom: float, into: str, words: str, out: str
) -> list[str]:
    """The way from the foot of one tower to that of the other, with a loss on it."""
    middle = (x1 + x2) / 2
    return [
        _line(x1, top, x1, bottom, "sent"),
        _line(x1, bottom, x2, bottom, "sent"),
        _line(x2, bottom, x2, top + 8, "sent"),
        f'<polygon class="sent" points="{x2:.1f},{top:.1f} {x2 - 6:.1f},{top + 12:.1f} '
        f'{x2 + 6:.1f},{top + 12:.1f}"/>',
        _text(x1 + 14, bottom - 10, into, "sent"),
        *_cross(middle, bottom),
        _text(middle, bottom + 28, words, "lost", "middle"),
        _text(x2 - 14, bottom - 10, out, "sent", "end"),
    ]


def _y(time: float) -> float:
    return LANES_TOP + time * STEP


def _lanes(scene: Scene, bottom: float) -> list[str]:
    lines: list[str] = []
    for name, x in zip(scene.lanes, scene.xs, strict=True):
        lines.append(_text(x, LANES_TOP - 24, name, "lane", "middle"))
    for number, x in enumerate(scene.xs):
        away = [m for m in scene.marks if isinstance(m, Span) and m.absent and m.lane == number]
        top = LANES_TOP - 14.0
        for span in away:
            lines.append(_line(x, top, x, _y(span.start), "life"))
            lines.append(_line(x, _y(span.start), x, _y(span.end), "life absent"))
            top = _y(span.end)
        lines.append(_line(x, top, x, bottom, "life"))
    return lines


def _span(scene: Scene, span: Span) -> list[str]:
    x, top, bottom = scene.xs[span.lane], _y(span.start), _y(span.end)
    lines = [] if span.absent else [_line(x, top, x, bottom, "wait")]
    outward, anchor = _outward(scene, span.lane)
    words = span.text.split("\n")
    first = (top + bottom) / 2 + 5 - (len(words) - 1) * 9
    for number, word in enumerate(words):
        lines.append(_text(x + 14 * outward, first + 18 * number, word, "wait", anchor))
    return lines


def _outward(scene: Scene, lane: int) -> tuple[int, str]:
    """Beside which side of a line words stand: outside of the outer ones, right of the others."""
    return (-1, "end") if lane == 0 else (1, "start")


def _frame(scene: Scene, frame: Frame) -> list[str]:
    x1, x2 = scene.xs[frame.source], scene.xs[frame.target]
    y1, y2 = _y(frame.at), _y(frame.at + frame.takes)
    direction = 1 if x2 > x1 else -1
    x1 = round(x1 + (x2 - x1) * frame.begins)
    if frame.lost:
        way = 0.6
        x2, y2 = round(x1 + (x2 - x1) * way), y1 + (y2 - y1) * way
        dashed = " dashed" if frame.tone is Tone.BACK else ""
        lines = [_line(x1, y1, x2, y2, f"lost{dashed}"), *_cross(x2, y2)]
        lines.append(_text(x2 + 16 * direction, y2 + 14, "lost", "lost", _towards(direction)))
        return [*lines, *_label(frame, x1, y1, x2, y2, 0.5, "lost")]
    tip = x2 - 4 * direction
    lines = [_line(x1, y1, tip - 6 * direction, y2 - 0.5, frame.tone)]
    lines.append(_arrow_head(tip, y2, direction, frame.tone))
    return [*lines, *_label(frame, x1, y1, x2, y2, 0.3, frame.tone)]


def _towards(direction: int) -> str:
    return "start" if direction > 0 else "end"


def _label(
    frame: Frame, x1: float, y1: float, x2: float, y2: float, way: float, style: str
) -> list[str]:
    """The words on an arrow, on a patch of background so that lines don't cross them."""
    x, y = x1 + (x2 - x1) * way, y1 + (y2 - y1) * way
    width = 8.6 * len(frame.text) + 10
    patch = (
        f'<rect class="under" x="{x - width / 2:.1f}" y="{y - 10:.1f}" '
        f'width="{width:.1f}" height="20"/>'
    )
    return [patch, _text(x, y + 5, frame.text, style, "middle")]


def _arrow_head(x: float, y: float, direction: int, style: str) -> str:
    back = x - 12 * direction
    return f'<polygon class="{style}" points="{x:.1f},{y:.1f} {back:.1f},{y - 7:.1f} {back:.1f},{y + 5:.1f}"/>'


def _cross(x: float, y: float) -> list[str]:
    return [
        _line(x - 8, y - 8, x + 8, y + 8, "cross"),
        _line(x - 8, y + 8, x + 8, y - 8, "cross"),
    ]


def _note(scene: Scene, note: Note) -> list[str]:
    outward, anchor = _outward(scene, note.lane)
    x, y = scene.xs[note.lane] + 14.0 * outward, _y(note.at)
    lines: list[str] = []
    boxes = note.boxes if outward > 0 else tuple(reversed(note.boxes))
    for text in boxes:
        width = 12.0 + 9 * len(text)
        left = x if outward > 0 else x - width
        lines.append(
            f'<rect class="box {note.tone}" x="{left:.1f}" y="{y - 11:.1f}" '
            f'width="{width:.1f}" height="22" rx="4"/>'
        )
        lines.append(_text(left + width / 2, y + 5, text, note.tone, "middle"))
        x += (width + 5) * outward
    if boxes:
        x += 4 * outward
    return [*lines, _text(x, y + 5, note.text, note.tone, anchor)]


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
