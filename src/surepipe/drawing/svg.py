"""SVG: how wide words are, shapes, and a document that needs nothing else and suits light and dark.

What a colour says is said by a shape or a weight too. The same picture gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from surepipe.drawing.style import FONT, resolved

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
    """A word that is too long without what is before its last signs: those of ``(stages.py:12)`` say most."""
    if width_of(word, size, bold=bold) <= pixels:
        return word
    kept = word
    while kept and width_of(f"…{kept}", size, bold=bold) > pixels:
        kept = kept[1:]
    return f"…{kept}"


# The parts of a picture: lines, areas and words, each with the name of its style.


Point: TypeAlias = tuple[float, float]
TEXT = 13
SIZES = {"title": 17, "sentence": 15, "outcome": 15, "lane": 14, "name": 14, "small": 12}
"""The sizes of words in pixels, by style; all others have the size TEXT."""
BOLD = frozenset(
    {
        "title",
        "sentence",
        "lane",
        "name",
        "effect",
        "label focus",
        "fault",
        "verdict",
        "differs",
        "promise",
    }
    | {"sent", "again", "lost"}
)
"""The styles of words that are bold."""
LINE = 16
"""From one line of text to the next."""
ASCENT, DESCENT = 0.95, 0.26


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
    """A filled, framed or hatched rectangle."""

    box: Rectangle
    style: str
    round: int = 0
    hatched: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A small circle."""

    at: Point
    style: str
    radius: int = 4


Shape: TypeAlias = PathShape | Area | Dot


def cross(at: Point, style: str = "cross", reach: int = 7) -> list[Shape]:
    """Here something is lost."""
    x, y = at
    return [
        PathShape(((x - reach, y - reach), (x + reach, y + reach)), style),
        PathShape(((x - reach, y + reach), (x + reach, y - reach)), style),
    ]


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished layout. ``rows`` are the boxes of the steps, in order; shapes are drawn before words."""

    width: float
    height: float
    title: str
    description: str
    shapes: tuple[Shape, ...]
    words: tuple[Words, ...]
    rows: tuple[Rectangle, ...] = ()


# The text of a picture.


BASE = f"""
 .page{{fill:var(--page);stroke:var(--line)}} .under{{fill:var(--page);stroke:none}}
 text{{font:{TEXT}px {FONT};fill:var(--soft);stroke:none}} .sentence,.outcome{{font-size:15px;fill:var(--ink)}}
 .title{{font-size:17px;fill:var(--ink)}}
 .lane,.name{{font-size:14px;fill:var(--ink)}} .small{{font-size:12px}}
 {",".join(sorted(f"text.{style.replace(' ', '.')}" for style in BOLD))}{{font-weight:bold}}
 path{{fill:none;stroke-width:1.5}} .life{{stroke:var(--grey);stroke-width:2}} .life.gone{{stroke-dasharray:2 5}}
 .cross{{stroke-width:3}} .head{{stroke:none}}
"""
"""What all pictures share; each kind adds its own."""


def document(
    body: Sequence[str],
    *,
    title: str,
    description: str,
    size: tuple[float, float],
    style: str,
    name: str = "",
    top: int = 0,
) -> str:
    """An SVG with a background, and words for those who can't see it.

    ``name`` is its id and begins all ids in it; ``top`` is how much of its head is cut off.
    """
    width, height = round(size[0]), round(size[1])
    said = f"{name}-" if name else ""
    own = f' id="{name}"' if name else ""
    frame = Rectangle(0.5, 0.5, width - 0.5, height - 0.5)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg"{own} viewBox="0 {top} {width} {height - top}"',
        f'width="{width}" height="{height - top}" role="img" aria-labelledby="{said}title {said}desc">',
        f'<title id="{said}title">{escape(title)}</title>',
        f'<desc id="{said}desc">{escape(description)}</desc>',
        f"<style>{style}</style>",
        rectangle(frame, "page", 8),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def write_svg(picture: Picture, name: str, rules: str, *, table: str = "") -> str:
    """The picture as text; ``name`` is its id, ``rules`` are those of its kind.

    With ``table``, the number of each step is a link to the row of that table: ``#table-3``.
    """
    body = [
        *(part for shape in picture.shapes for part in _shape(shape)),
        *(part for words in picture.words if words.row < 0 for part in _words(words)),
        *(part for place in range(len(picture.rows)) for part in _row(picture, place, name, table)),
    ]
    return document(
        body,
        title=picture.title,
        description=picture.description,
        size=(picture.width, picture.height),
        style=resolved(BASE + rules, name),
        name=name,
    )


def _row(picture: Picture, place: int, name: str, table: str) -> Iterator[str]:
    """The words of a step in a group that links can point to."""
    row = picture.rows[place]
    yield f'<g id="{name}-step-{place + 1}">'
    yield rectangle(Rectangle(4, row.top, picture.width - 4, row.bottom), "spot")
    for words in picture.words:
        if words.row == place:
            linked = table and words.style == "number" and words.text != "."
            told = "".join(_words(words))
            yield f'<a href="#{table}-{place + 1}">{told}</a>' if linked else told
    yield "</g>"


def _words(words: Words) -> Iterator[str]:
    if words.patch:
        yield rectangle(_close(words), "under")
    yield text(words.at, words.text, words.style, words.anchor)


def _close(words: Words) -> Rectangle:
    """The patch below words. They are rarely as wide as they might be, so it is a little narrower."""
    box = words.box
    spare = (box.right - box.left) * 0.06
    left = {"start": 0.0, "middle": spare / 2, "end": spare}[words.anchor]
    return Rectangle(box.left + left - 2, box.top, box.right - spare + left + 2, box.bottom)


def _shape(shape: Shape) -> Iterator[str]:
    if isinstance(shape, Area):
        yield rectangle(shape.box, shape.style, shape.round)
        yield from _stripes(shape.box) if shape.hatched else ()
    elif isinstance(shape, Dot):
        x, y = shape.at
        yield f'<circle class="{shape.style}" cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius}"/>'
    elif shape.head:
        *before, tip = shape.points
        yield arrow_head(before[-1], tip, shape.style)
        yield path((*before, _back(before[-1], tip, 9)), shape.style)
    else:
        yield path(shape.points, shape.style)


def _stripes(box: Rectangle) -> Iterator[str]:
    top = box.top
    while top < box.bottom:
        low = min(top + 8, box.bottom)
        yield path(((box.left, low), (box.right, top)), "stripe")
        top += 6


def text(at: Point, words: str, style: str = "", anchor: str = "start") -> str:
    """A line of text whose foot stands at this point."""
    kind = f" class={quoteattr(style)}" if style else ""
    ends = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{kind} x="{at[0]:.1f}" y="{at[1]:.1f}"{ends}>{escape(words)}</text>'


def rectangle(box: Rectangle, style: str, radius: int = 0) -> str:
    """A rectangle, with round corners if it has a radius."""
    corners = f' rx="{radius}"' if radius else ""
    return (
        f'<rect class="{style}" x="{box.left:.1f}" y="{box.top:.1f}" '
        f'width="{box.right - box.left:.1f}" height="{box.bottom - box.top:.1f}"{corners}/>'
    )


def path(points: Sequence[Point], style: str) -> str:
    """Straight lines from point to point."""
    drawn = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{style}" d="M{drawn}"/>'


def arrow_head(start: Point, tip: Point, style: str) -> str:
    """The head of an arrow that comes from ``start``."""
    back = _back(start, tip, 12)
    across = ((tip[1] - back[1]) * 0.42, (back[0] - tip[0]) * 0.42)
    corners = (
        tip,
        (back[0] + across[0], back[1] + across[1]),
        (back[0] - across[0], back[1] - across[1]),
    )
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon class="head {style}" points="{drawn}"/>'


def _back(start: Point, end: Point, distance: float) -> Point:
    """The point that lies so far before the end."""
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    share = min(distance / length, 1.0)
    return (end[0] - (end[0] - start[0]) * share, end[1] - (end[1] - start[1]) * share)
