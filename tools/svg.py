"""Lines, arrows and words of an SVG picture, in one style that suits a light and a dark page.

The picture carries its own background, and its title and description for those who can't see it. The same
input gives the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from xml.sax.saxutils import escape

WIDTH = 760
Point: TypeAlias = tuple[float, float]

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


def document(name: str, title: str, description: str, *, height: int, body: Sequence[str]) -> str:
    """An SVG with a background, a visible title, and words for those who can't see it."""
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="{name}-title {name}-desc">'
    )
    lines = [
        opening,
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
        words((24, 34), title, "title"),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def line(start: Point, end: Point, style: str) -> str:
    """A straight line."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def words(at: Point, text: str, style: str, anchor: str = "start") -> str:
    """A line of text whose foot stands at this point."""
    return (
        f'<text class="{style}" x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def box(at: Point, width: float, height: float, style: str = "") -> str:
    """A rectangle with round corners; ``at`` is its upper left one."""
    return (
        f'<rect class="{f"box {style}".strip()}" x="{at[0]:.1f}" y="{at[1]:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    )


def patch(middle: Point, width: float) -> str:
    """A piece of background, for words that stand on a line."""
    x, y = middle
    return (
        f'<rect class="under" x="{x - width / 2:.1f}" y="{y - 10:.1f}" '
        f'width="{width:.1f}" height="20"/>'
    )


def triangle(points: Sequence[Point], style: str) -> str:
    """The head of an arrow."""
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon class="{style}" points="{corners}"/>'


def cross(at: Point) -> list[str]:
    """Here something is lost."""
    x, y = at
    return [
        line((x - 8, y - 8), (x + 8, y + 8), "cross"),
        line((x - 8, y + 8), (x + 8, y - 8), "cross"),
    ]
