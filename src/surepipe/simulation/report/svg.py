"""Writes a laid out picture as SVG: one document that needs nothing else, for light and dark pages.

The message concerned has one strong colour, everything else is grey. What a colour says is said by a shape too:
the message's lines are thicker and its words bold, what is lost ends in a cross, a crash is a jagged line, and the
step that breaks the rule is boxed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

# How wide text is, at the most: the widest common sans-serif fonts decide, so that nothing overlaps in any.


_SHARES = {
    **dict.fromkeys("ijlI|.,:;' ", 0.6),
    **dict.fromkeys('frt()[]{}/\\-"*!`', 0.78),
    **dict.fromkeys("mwMW@—→", 1.6),
    **dict.fromkeys("#=<>+&~^", 1.32),
    "%": 1.8,
}
"""How wide a letter is beside an ordinary one, in the wider of DejaVu Sans and Verdana."""
_CAPITAL, _FOREIGN = 1.25, 1.7
_PLAIN, _BOLD = 0.64, 0.72
"""How wide an ordinary letter is beside the size of the font."""


def width_of(text: str, size: int, *, bold: bool = False) -> float:
    """An upper bound in pixels."""
    return sum(_share(letter, bold=bold) for letter in text) * size


def _share(letter: str, *, bold: bool) -> float:
    ordinary = _BOLD if bold else _PLAIN
    if letter in _SHARES:
        return ordinary * _SHARES[letter]
    if not letter.isascii():
        return ordinary * _FOREIGN
    return ordinary * (_CAPITAL if letter.isupper() else 1.0)


def wrapped(text: str, pixels: float, size: int, *, bold: bool = False) -> list[str]:
    """Lines that are no wider; a single word that is, is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if width_of(longer, size, bold=bold) <= pixels:
            line = longer
            continue
        if line:
            lines.append(line)
        line = _cut(word, pixels, size, bold=bold)
    return [*lines, line] if line else lines


def _cut(word: str, pixels: float, size: int, *, bold: bool) -> str:
    if width_of(word, size, bold=bold) <= pixels:
        return word
    kept = word
    while kept and width_of(f"{kept}…", size, bold=bold) > pixels:
        kept = kept[:-1]
    return f"{kept}…"


# The parts of a picture: lines, areas and words, each with the name of its style.


Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle with its sides along the axes."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Rectangle) -> bool:
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
    def box(self) -> Rectangle:
        """What it covers at the most."""
        wide = width_of(self.text, self.size, bold=self.style in BOLD)
        x, y = self.at
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[self.anchor]
        return Rectangle(left, y - self.size * ASCENT, left + wide, y + self.size * DESCENT)


@dataclass(frozen=True, slots=True)
class PathShape:
    """A line through points; ``head`` puts an arrow's head at its end."""

    points: tuple[Point, ...]
    style: str
    head: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """A filled or framed rectangle."""

    box: Rectangle
    style: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A small circle."""

    at: Point
    style: str


Shape: TypeAlias = PathShape | Area | Dot

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
    rows: tuple[Rectangle, ...]


_LIGHT = """
 .page{fill:#fff;stroke:#d0d7de} .patch,.hollow{fill:#fff}
 text{fill:#57606a} .title,.lane,.number{fill:#1f2328} .sentence,.effect,.label.focus{fill:#b3005e}
 .fault,.verdict,.note,.differs{fill:#1f2328} .life{stroke:#8c959f} .frame{stroke:#8c959f}
 .fill{fill:#8c959f} .fill.focus{fill:#b3005e} path.focus,.holds{stroke:#b3005e} .cross,.crash{stroke:#1f2328}
 .crosspath.focus,.holds{stroke:#b3005e} .start{stroke:#1f2328} .boxed{stroke:#b3005e}
 .differing{stroke:#57606a} .band{fill:#8c959f33;stroke:#57606a} .hatch{stroke:#57606a} .stripe{stroke:#57606a}
 .fold{stroke:#afb8c1}"""
_DARK = """
 .page{fill:#0d1117;stroke:#3d444d} .patch,.hollow{fill:#0d1117}
 text{fill:#9198a1} .title,.lane,.number{fill:#f0f6fc} .sentence,.effect,.label.focus{fill:#ff8ac4}
 .fault,.verdict,.note,.differs{fill:#f0f6fc} .life{stroke:#656c76} .frame{stroke:#767e88}
 .fill{fill:#767e88} .fill.focus{fill:#ff8ac4} path.focus,.holds{stroke:#ff8ac4} .cross,.crash{stroke:#f0f6fc}
 .crosspath.focus,.holds{stroke:#ff8ac4} .start{stroke:#f0f6fc} .boxed{stroke:#ff8ac4}
 .differing{stroke:#9198a1} .band{fill:#9198a133;stroke:#9198a1} .hatch{stroke:#9198a1} .stripe{stroke:#9198a1}
 .fold{stroke:#3d444d}"""
_SHAPES = """
 text{font:13px "DejaVu Sans",Verdana,"Segoe UI",sans-serif;stroke:none} .title{font-size:17px;font-weight:bold}
 .sentence{font-size:15px;font-weight:bold} .lane{font-size:14px;font-weight:bold} .small{font-size:12px}
 .effect,.fault,.verdict,.differs,.label.focus{font-weight:bold} .patch,.fill{stroke:none}
 path{fill:none;stroke-width:1.5} .life{stroke-width:2} .life.gone{stroke-dasharray:2 5}
 .frame.control{stroke-dasharray:6 4} .frame.flying{stroke-dasharray:1 4} path.focus{stroke-width:3}
 .holds{stroke-width:7;stroke-opacity:.45} .cross,.crash{stroke-width:3} .fold{stroke-dasharray:2 3}
 .boxed{fill:none;stroke-width:3} .differing{fill:none;stroke-width:1.5;stroke-dasharray:7 4}
 .stripe{stroke-width:1.5} .hollow{stroke-width:2} .band{stroke-dasharray:2 3} .hatch{stroke-width:1}
 a{text-decoration:underline} g:target>.spot{fill:#f5c84240} .spot{fill:none;stroke:none}"""


def style_of(scope: str) -> str:
    """The style sheet, for the SVG of this id alone: a page may hold several."""
    light, dark, shapes = (_scoped(text, scope) for text in (_LIGHT, _DARK, _SHAPES))
    return f"{light}\n{shapes}\n@media (prefers-color-scheme:dark){{\n{dark}\n}}"


def _scoped(rules: str, scope: str) -> str:
    parts = (rule.strip() for rule in rules.replace("\n", " ").split("}") if rule.strip())
    return "\n".join(
        f"{','.join(f'#{scope} {part.strip()}' for part in rule.partition('{')[0].split(','))}"
        f"{{{rule.partition('{')[2]}}}"
        for rule in parts
    )


def write_svg(picture: Picture, name: str, *, table: str = "") -> str:
    """The picture as text; ``name`` is its id and begins all ids in it.

    With ``table``, the number of each step is a link to the row of that table: ``#table-3``.
    """
    width, height = round(picture.width), round(picture.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" viewBox="0 0 {width} {height}"',
        f'width="{width}" height="{height}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(picture.title)}</title>',
        f'<desc id="{name}-desc">{escape(picture.description)}</desc>',
        f"<style>{style_of(name)}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *(part for shape in picture.shapes for part in _shape(shape)),
        *(_text(words) for words in picture.words if words.row < 0),
        *(part for place in range(len(picture.rows)) for part in _row(picture, place, name, table)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(picture: Picture, place: int, name: str, table: str) -> Iterator[str]:
    """The words of a step in a group that links can point to."""
    row = picture.rows[place]
    yield f'<g id="{name}-step-{place + 1}">'
    full = Rectangle(4, row.top, picture.width - 4, row.bottom)
    yield _rectangle(full, "spot")
    for words in picture.words:
        if words.row == place:
            if words.patch:
                yield _rectangle(_close(words), "patch")
            linked = table and words.style == "number" and words.text != "."
            text = _text(words)
            yield f'<a href="#{table}-{place + 1}">{text}</a>' if linked else text
    yield "</g>"


def _close(words: Words) -> Rectangle:
    """The patch below words. They are rarely as wide as they might be, so it is a little narrower."""
    box = words.box
    spare = (box.right - box.left) * 0.06
    left = {"start": 0.0, "middle": spare / 2, "end": spare}[words.anchor]
    return Rectangle(box.left + left, box.top, box.right - spare + left, box.bottom)


def _text(words: Words) -> str:
    x, y = words.at
    anchor = "" if words.anchor == "start" else f' text-anchor="{words.anchor}"'
    return (
        f'<text class={quoteattr(words.style)} x="{x:.1f}" y="{y:.1f}"{anchor}>'
        f"{escape(words.text)}</text>"
    )


def _shape(shape: Shape) -> Iterator[str]:
    if isinstance(shape, Area):
        yield from _area(shape)
    elif isinstance(shape, Dot):
        yield from _dot(shape)
    else:
        yield from _path(shape)


def _path(path: PathShape) -> Iterator[str]:
    points = list(path.points)
    if path.head:
        tip, back = points[-1], _before(points[-2], points[-1], 9)
        points[-1] = back
        yield f'<polygon class="fill{_focus(path.style)}" points="{_corners(points[-2], tip)}"/>'
    drawn = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    yield f'<path class="{path.style}" d="M{drawn}"/>'


def _focus(style: str) -> str:
    return " focus" if "focus" in style.split() else ""


def _before(start: Point, end: Point, distance: float) -> Point:
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    share = min(distance / length, 1.0)
    return (end[0] - (end[0] - start[0]) * share, end[1] - (end[1] - start[1]) * share)


def _corners(start: Point, tip: Point) -> str:
    """An arrow's head that ends at ``tip``."""
    back = _before(start, tip, 12)
    across = ((tip[1] - back[1]) * 0.42, (back[0] - tip[0]) * 0.42)
    corners = (
        tip,
        (back[0] + across[0], back[1] + across[1]),
        (back[0] - across[0], back[1] - across[1]),
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _area(area: Area) -> Iterator[str]:
    yield _rectangle(area.box, area.style)
    if area.style.startswith("hatch"):
        box = area.box
        top = box.top
        while top < box.bottom:
            low = min(top + 8, box.bottom)
            yield f'<path class="stripe" d="M{box.left:.1f} {low:.1f} L{box.right:.1f} {top:.1f}"/>'
            top += 6


def _rectangle(box: Rectangle, style: str) -> str:
    round_corners = ' rx="6"' if style.split(maxsplit=1)[0] in ("boxed", "differing") else ""
    fill = ' fill="none"' if style.startswith("hatch") else ""
    return (
        f'<rect class="{style}" x="{box.left:.1f}" y="{box.top:.1f}" '
        f'width="{box.right - box.left:.1f}" height="{box.bottom - box.top:.1f}"{round_corners}{fill}/>'
    )


def _dot(dot: Dot) -> Iterator[str]:
    x, y = dot.at
    if dot.style == "start":
        yield f'<circle class="start hollow" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
    else:
        yield f'<circle class="fill{_focus(dot.style)}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
