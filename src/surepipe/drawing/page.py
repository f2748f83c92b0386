"""An HTML page: the skeleton, the look, and the parts that several pages have.

What is given as ``html`` is written as it is; every other text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from surepipe.drawing.style import FONT, MONO, variables
from surepipe.drawing.svg import Rectangle, rectangle

STYLE = (
    variables()
    + f"""
*{{box-sizing:border-box}} body{{margin:0 auto;max-width:1400px;padding:12px 16px 40px;background:var(--page);
color:var(--ink);font:15px/1.45 {FONT};font-variant-numeric:tabular-nums}}
h1{{font-size:22px;line-height:1.2;margin:0;overflow-wrap:anywhere}} h2{{font-size:16px;margin:26px 0 8px}}
h3{{font-size:15px;margin:0}} p{{margin:4px 0}} a{{color:inherit}} .what{{color:var(--soft);font-size:13px;
overflow-wrap:anywhere}} .good{{color:var(--good)}} .warn{{color:var(--warn)}} .bad{{color:var(--bad)}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:8px;margin:14px 0}}
.tiles div{{border:1px solid var(--line);border-radius:8px;background:var(--pane);padding:8px 12px}}
.tiles dt{{color:var(--soft);font-size:12px}} .tiles dd{{margin:0;font-size:22px;font-weight:bold;
line-height:1.25}}
.tiles .warn{{border-color:var(--warn);background:var(--warnpane)}}
.tiles .bad{{border-color:var(--bad);background:var(--badpane)}}
figure{{margin:0;overflow-x:auto;max-width:100%}} figure svg{{display:block}}
.framed{{border:1px solid var(--line);border-radius:8px}}
table{{border-collapse:collapse;font-size:13px}} th,td{{text-align:left;vertical-align:top;padding:6px 12px 6px 0;
border-bottom:1px solid var(--line);font-weight:normal}} thead th{{color:var(--soft);font-size:12px;
vertical-align:bottom}} tbody th{{font-weight:bold;overflow-wrap:anywhere}} td.nil{{color:var(--soft)}}
.cards{{width:100%}} .cards :is(th,td){{text-align:right;padding:6px 0 6px 12px}} .cards td{{white-space:nowrap}}
.cards tr>:first-child{{text-align:left;padding-left:0}}
pre{{background:var(--pane);border:1px solid var(--line);border-radius:6px;padding:10px 12px;overflow-x:auto;
font:13px/1.4 {MONO}}} code{{font:13px {MONO}}} ul{{margin:6px 0 0;padding-left:20px;font-size:13px}}
li{{overflow-wrap:anywhere}} footer{{margin-top:24px;font-size:12px;color:var(--soft)}}
@media (max-width:760px){{
.cards thead{{position:absolute;left:-9999px}} .cards,.cards tbody{{display:block}}
.cards tr{{display:grid;grid-template-columns:repeat(2,1fr);column-gap:16px;border:1px solid var(--line);
border-radius:8px;padding:6px 12px;margin-bottom:8px}}
.cards tbody :is(th,td){{display:flex;justify-content:space-between;gap:8px;padding:3px 0;border:0}}
.cards tbody th{{grid-column:1/-1;display:block;border-bottom:1px solid var(--line);margin-bottom:4px}}
.cards td::before{{content:attr(data-is);color:var(--soft)}}}}
@media (max-width:360px){{.cards tr{{grid-template-columns:minmax(0,1fr)}}}}
"""
)
"""The look of all pages; each adds the few rules that are its own."""


def alone(rules: str) -> Sequence[str]:
    """The head of a page that asks for nothing and runs no script, and whose policy forbids it to."""
    return (
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<style>{STYLE}{rules}</style>",
    )


def document(title: str, head: Iterable[str], html: Iterable[str]) -> str:
    """The whole page."""
    lines = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        *head,
        "</head>\n<body>",
        *html,
        "</body>\n</html>",
    ]
    return "\n".join(lines) + "\n"


def tile(name: str, shown: str, tone: str = "", *, exact: str = "", html: str = "") -> str:
    """A number with its name above it, for a list of class ``tiles``; ``exact``: the number, unabbreviated."""
    kind = f' class="{tone}"' if tone else ""
    full = f' title="{escape(exact)}"' if exact else ""
    return f"<div{kind}><dt>{escape(name)}</dt><dd{full}>{escape(shown)}</dd>{html}</div>"


@dataclass(frozen=True, slots=True)
class CardRow:
    """A row of a table of numbers. ``html`` is its head; ``nil`` are the values that say nothing."""

    html: str
    cells: Sequence[tuple[str, str]]
    tone: str = ""
    nil: Sequence[str] = ()


def cards(first: str, rows: Sequence[CardRow]) -> Iterator[str]:
    """A table of numbers. On a narrow window each row stands as a card, and each cell says what it is."""
    yield f"<table class='cards'><thead><tr><th>{first}</th>"
    yield "".join(f"<th>{name}</th>" for name, _ in rows[0].cells) + "</tr></thead><tbody>"
    for row in rows:
        yield f'<tr class="{row.tone}"><th scope="row">{row.html}</th>'
        for name, value in row.cells:
            nil = ' class="nil"' if value in row.nil else ""
            yield f'<td data-is="{name}"{nil}>{escape(value)}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def plot(width: int, height: int, says: str, svg: Sequence[str]) -> str:
    """A figure of bars and words within a page; ``says`` is for those who can't see it."""
    return (
        f'<figure class="framed"><svg class="plot" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(says)}"><title>{escape(says)}</title>{"".join(svg)}</svg></figure>'
    )


def bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    """A bar of a plot, and the sample beside its name."""
    return rectangle(Rectangle(x, y, x + width, y + height), kind)
