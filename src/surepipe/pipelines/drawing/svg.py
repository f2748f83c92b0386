"""A layout as SVG: one file without a request, for light and dark pages, with words for those who can't see it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from surepipe.pipelines.drawing.diagram import Diagram, FlowArrow, PartBox
from surepipe.pipelines.drawing.layout import (
    LINE,
    MARGIN,
    NAME_LINE,
    PAD,
    TITLE,
    ArrowPath,
    Placed,
    lay_out,
    shorten,
)

STYLE = """
  .page { fill: #ffffff; }
  text { font: 12px "DejaVu Sans", Verdana, "Segoe UI", sans-serif; fill: #424a53; }
  .title { font-size: 18px; font-weight: bold; fill: #1f2328; }
  .name { font-size: 14px; font-weight: bold; fill: #1f2328; }
  .promise { fill: #116329; font-weight: bold; font-size: 11.5px; }
  .refused .promise { fill: #a40e26; }
  .role { font-size: 12px; fill: #6e7781; }
  .box { stroke-width: 1.5; stroke: #59636e; fill: #f6f8fa; }
  .pipe .box { stroke: #0969da; fill: #ddf4ff; }
  .refused .box { stroke: #cf222e; stroke-width: 2.5; fill: #ffebe9; }
  .stage .box { stroke: #8250df; fill: #fbefff; }
  .store .box { stroke: #9a6700; fill: #fff8c5; }
  .lid { fill: none; stroke: #9a6700; stroke-width: 1.5; }
  path.flow { fill: none; stroke: #1f2328; stroke-width: 1.8; }
  path.uses { fill: none; stroke: #9a6700; stroke-width: 1.3; stroke-dasharray: 3 4; }
  path.dead { fill: none; stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 8 4; }
  .head { fill: #1f2328; }
  .head.dead { fill: #cf222e; }
  .under { fill: #ffffff; }
  text.uses { fill: #7d4e00; }
  text.dead { fill: #a40e26; }
  @media (prefers-color-scheme: dark) {
    .page, .under { fill: #0d1117; }
    text { fill: #b1bac4; }
    .title, .name { fill: #f0f6fc; }
    .promise { fill: #56d364; }
    .refused .promise { fill: #ff7b72; }
    .role { fill: #9198a1; }
    .box { stroke: #9198a1; fill: #161b22; }
    .pipe .box { stroke: #4493f8; fill: #0c2d6b55; }
    .refused .box { stroke: #ff7b72; fill: #49020255; }
    .stage .box { stroke: #ab7df8; fill: #271052; }
    .store .box { stroke: #d29922; fill: #272115; }
    .lid { stroke: #d29922; }
    path.flow { stroke: #e6edf3; }
    .head { fill: #e6edf3; }
    path.uses { stroke: #d29922; }
    path.dead { stroke: #ff7b72; }
    .head.dead { fill: #ff7b72; }
    text.uses { fill: #e3b341; }
    text.dead { fill: #ff7b72; }
  }
"""


def svg_of(diagram: Diagram, *, headed: bool = True) -> str:
    """The picture. The same diagram gives the same text. ``headed``: with its title above it."""
    layout = lay_out(diagram)
    top = 0 if headed else round(TITLE)
    width, height = round(layout.width), round(layout.height) - top
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title desc">'
    )
    lines = [
        opening,
        f'<title id="title">{escape(f"Pipeline {diagram.title}")}</title>',
        f'<desc id="desc">{escape(diagram.description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height + top}" rx="8"/>',
    ]
    if headed:
        title = escape(diagram.title)
        lines.append(f'<text class="title" x="{MARGIN:g}" y="{MARGIN + 16:g}">{title}</text>')
    for path in layout.paths:
        lines += _flow(path) if path.kind == "flow" else _use(path)
    for path in layout.paths:
        lines += _label(path, layout.paths)
    for placed in layout.boxes:
        lines += _box(placed)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _flow(path: ArrowPath) -> list[str]:
    """A curve that leaves and enters level, and a head at its end."""
    (x, y), *_ = path.points
    steps = [f"M{x:.1f} {y:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(path.points):
        if abs(y1 - y2) < 1:
            steps.append(f"L{x2:.1f} {y2:.1f}")
        else:
            half = (x1 + x2) / 2
            steps.append(f"C{half:.1f} {y1:.1f} {half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
    x, y = path.points[-1]
    return [
        f'<path class="flow" d="{" ".join(steps)}"/>',
        f'<path class="head" d="M{x:.1f} {y:.1f} l-10 -5 v10 z"/>',
    ]


def _use(path: ArrowPath) -> list[str]:
    """A curve that leaves and enters upright."""
    (x, y), *_ = path.points
    steps = [f"M{x:.1f} {y:.1f}"]
    for (x1, y1), (x2, y2) in pairwise(path.points):
        half = (y1 + y2) / 2
        steps.append(f"C{x1:.1f} {half:.1f} {x2:.1f} {half:.1f} {x2:.1f} {y2:.1f}")
    x, y = path.points[-1]
    lines = [f'<path class="{path.kind}" d="{" ".join(steps)}"/>']
    if path.kind == "dead":
        lines.append(f'<path class="head dead" d="M{x:.1f} {y:.1f} l-5 -9 h10 z"/>')
    return lines


def _label(path: ArrowPath, paths: Sequence[ArrowPath]) -> list[str]:
    """The words of a line, on a piece of background: where it has come below all boxes, or beside a flow."""
    if not path.label:
        return []
    x, y = path.points[-2] if path.kind != "flow" else _beside(path, paths)
    width = len(path.label) * 7.4 + 6
    return [
        f'<rect class="under" x="{x - width / 2:.1f}" y="{y - 4:.1f}" width="{width:.1f}" height="17"/>',
        f'<text class="{path.kind}" x="{x:.1f}" y="{y + 9:.1f}" text-anchor="middle">{escape(path.label)}</text>',
    ]


def _beside(path: ArrowPath, paths: Sequence[ArrowPath]) -> tuple[float, float]:
    """Beside the level end of a flow, away from where it comes from; its beginning, if others end there."""
    (x1, y1), (x2, y2) = path.points[-2:]
    shares_end = sum(other.points[-1] == (x2, y2) for other in paths) > 1
    is_rising = y2 < y1 + 1
    if shares_end:
        (x1, y1), (x2, y2) = path.points[:2] if len(path.points) == 2 else path.points[1:3]
        return (x1 + x2) / 2, y1 + (6 if y2 < y1 - 1 else -16)
    return (x1 + x2) / 2 - 4, y2 + (-16 if is_rising else 6)


def _box(placed: Placed) -> list[str]:
    box, x, y = placed.box, placed.x, placed.y
    role = " ".join(filter(None, (box.role, "refused" * box.refused, box.tone)))
    radius = {"source": 22, "sink": 22, "pipe": 4}.get(box.role, 8)
    name = shorten(box.name.removeprefix("store:"))
    frame = (
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{placed.width:.1f}" '
        f'height="{placed.height:.1f}" rx="{radius}"/>'
    )
    lines = [f'<g class="{role}">{frame}']
    if box.role == "store":
        lines.append(f'<path class="lid" d="M{x:.1f} {y + 6:.1f} h{placed.width:.1f}"/>')
    baseline = y + PAD + 12
    middle = x + placed.width / 2
    lines.append(
        f'<text class="name" x="{middle:.1f}" y="{baseline:.1f}" text-anchor="middle">{escape(name)}</text>'
    )
    for number, text in enumerate((*box.lines, *box.live)):
        is_promise = box.role == "pipe" and number == len(box.lines) - 1
        is_live = number >= len(box.lines)
        style = ' class="promise"' if is_promise else ' class="live"' if is_live else ""
        at = baseline + NAME_LINE + number * LINE - 2
        lines.append(
            f'<text{style} x="{middle:.1f}" y="{at:.1f}" text-anchor="middle">{escape(shorten(text))}</text>'
        )
    return [*lines, "</g>"]


# A diagram as text for other tools: DOT for Graphviz, Mermaid for pages that draw it.


_DOT_SHAPES = {
    "source": "oval",
    "pipe": "box",
    "stage": "component",
    "sink": "oval",
    "store": "cylinder",
}
_MERMAID = {
    "source": ("([", "])"),
    "pipe": ("[", "]"),
    "stage": ("[[", "]]"),
    "sink": ("([", "])"),
    "store": ("[(", ")]"),
}
_DOT_LINES = {"flow": "", "uses": "style=dotted, arrowhead=none", "dead": "style=dashed, color=red"}


def dot_of(diagram: Diagram) -> str:
    """Graphviz."""
    lines = [f"digraph {_quoted(diagram.title)} {{", "  rankdir=LR;"]
    lines += [
        f"  {_quoted(box.name)} [shape={_DOT_SHAPES[box.role]}, label={_dot_label(box)}];"
        for box in diagram.boxes
    ]
    lines += [
        f"  {_quoted(arrow.start)} -> {_quoted(arrow.end)}{_dot_line(arrow)};"
        for arrow in diagram.arrows
    ]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_of(diagram: Diagram) -> str:
    """Mermaid. Parts are numbered, since its names may not have every sign."""
    numbers = {box.name: f"p{number}" for number, box in enumerate(diagram.boxes)}
    lines = ["flowchart LR"]
    for box in diagram.boxes:
        opening, closing = _MERMAID[box.role]
        lines.append(f'  {numbers[box.name]}{opening}"{_mermaid_label(box)}"{closing}')
    lines += [
        f"  {numbers[arrow.start]} {_mermaid_line(arrow)} {numbers[arrow.end]}"
        for arrow in diagram.arrows
    ]
    return "\n".join(lines) + "\n"


def _words(box: PartBox) -> tuple[str, ...]:
    return (box.name.removeprefix("store:"), *box.lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_label(box: PartBox) -> str:
    return _quoted("\n".join(_words(box))).replace("\n", "\\n")


def _dot_line(arrow: FlowArrow) -> str:
    label = f"label={_quoted(arrow.label)}" if arrow.label else ""
    said = ", ".join(word for word in (_DOT_LINES[arrow.kind], label) if word)
    return f" [{said}]" if said else ""


def _mermaid_label(box: PartBox) -> str:
    words = (
        word.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        for word in _words(box)
    )
    return "<br>".join(words)


def _mermaid_line(arrow: FlowArrow) -> str:
    label = f"|{arrow.label}|" if arrow.label else ""
    return {"flow": "-->", "uses": "-.-", "dead": "-.->"}[arrow.kind] + label
