"""A running pipeline as one HTML page: made anew for each request, complete without script, asking nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from surepipe.observe.numbers import compact, milliseconds, seconds
from surepipe.observe.status import Flow, Part, Status, Took
from surepipe.pipelines.drawing.diagram import Diagram
from surepipe.pipelines.drawing.layout import lay_out
from surepipe.pipelines.drawing.svg import svg_of
from surepipe.pipelines.live.picture import is_worrying, live_diagram
from surepipe.pipes.algebra.guarantees import Fault, faults_text

REFRESH_S = 2
SHRUNK_MAX = 1_600
_SILENT = "No answer: the pipeline has ended, or is out of reach. Below is what was seen last."
_FOOT = (
    'The same as JSON: <a href="/status.json">status.json</a>. Rates are averages over the last seconds; '
    "counts begin with this process."
)
_NIL = (compact(0), compact(None), seconds(0))
_TILES = (
    ("settled per second", "settled_per_s"),
    ("settled", "settled"),
    ("unconfirmed", "unconfirmed"),
    ("sent again", "retransmitted"),
    ("dead letters", "dead_letters"),
)


def live_page(diagram: Diagram, status: Status) -> str:
    """The whole page."""
    lines = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(status.name)}: {status.state}</title>",
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">',
        f'<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>',
        '<script src="/page.js" defer></script>\n</head>\n<body>',
        f'<p id="silent" role="alert" hidden>{_SILENT}</p>',
        '<main id="live">',
        *_head(status),
        *_tiles(status),
        _figure(live_diagram(diagram, status)),
        *_pipes(status),
        *_others(status),
        *_notices(status),
        "</main>",
        f"<footer>{_FOOT}</footer>\n</body>\n</html>",
    ]
    return "\n".join(lines) + "\n"


def _head(status: Status) -> Iterator[str]:
    node = f"node {escape(status.node)} · " if status.node else ""
    clock = status.time[11:19]
    yield (
        f'<header><h1>{escape(status.name)}</h1><span class="state {status.state}">{status.state}</span>'
        f"<span>{node}up {seconds(status.uptime_s)} · {clock} UTC</span></header>"
    )


def _tiles(status: Status) -> Iterator[str]:
    yield '<dl class="tiles">'
    for words, name in _TILES:
        number = status.total(name)
        tone = ' class="warn"' if name == "dead_letters" and number else ""
        yield f"<div{tone}><dt>{words}</dt><dd>{compact(number)}</dd></div>"
    yield "</dl>"


def _figure(diagram: Diagram) -> str:
    """A picture that is a little too wide is made smaller; one that would be too small then is scrolled."""
    scrolls = " class='scrolls'" if lay_out(diagram).width > SHRUNK_MAX else ""
    return f"<figure{scrolls} tabindex='0' aria-label='The pipeline'>{svg_of(diagram, headed=False)}</figure>"


# Tables. On a narrow window each row stands as a card, and each cell says what it is.


def _pipes(status: Status) -> Iterator[str]:
    if not status.pipes:
        return
    yield "<h2>Pipes</h2>"
    heads = [name for name, _ in _cells(Flow())]
    yield "<table class='cards'><thead><tr><th>pipe</th>"
    yield "".join(f"<th>{name}</th>" for name in heads) + "</tr></thead><tbody>"
    for part in status.pipes:
        yield f'<tr class="{_tone(part)}"><th scope="row">{escape(part.name)}{_promise(part)}</th>'
        for name, value in _cells(part.flow or Flow()):
            nil = ' class="nil"' if value in _NIL else ""
            yield f'<td data-is="{name}"{nil}>{value}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def _cells(flow: Flow) -> Iterator[tuple[str, str]]:
    yield "accepted", compact(flow.accepted)
    yield "settled", compact(flow.settled)
    yield "backlog", compact(flow.backlog)
    yield "unconfirmed", compact(flow.unconfirmed)
    yield "oldest", seconds(flow.oldest_unconfirmed_s)
    yield "in work", compact(flow.in_work)
    yield "sent again", compact(flow.retransmitted)
    yield "duplicates dropped", compact(flow.duplicates)
    yield "dead letters", compact(flow.dead_letters)
    yield "restarts", compact(flow.restarts)
    yield "settled in, half / 99 %", _took(flow.settling)
    yield "confirmed in, half / 99 %", _took(flow.confirming)


def _took(took: Took | None) -> str:
    if took is None:
        return compact(None)
    return f"{milliseconds(took.p50_ms)} / {milliseconds(took.p99_ms)}"


def _promise(part: Part) -> str:
    if not part.guarantee:
        return ""
    through = faults_text(frozenset(Fault(word) for word in part.tolerates)) or "no fault"
    return f"<small><b>{escape(part.guarantee)}</b> through {escape(through)}</small>"


def _tone(part: Part) -> str:
    return "away" if not part.here else "warn" if is_worrying(part) else ""


def _others(status: Status) -> Iterator[str]:
    others = [part for part in status.parts if part.flow is None]
    if not others:
        return
    yield "<h2>Sources, stages and sinks</h2>"
    yield "<table class='few'><thead><tr><th>part</th><th>role</th><th>counted</th></tr></thead><tbody>"
    for part in others:
        yield (
            f'<tr class="{_tone(part)}"><th scope="row">{escape(part.name)}</th>'
            f'<td data-is="role">{part.role}</td><td data-is="counted">{_counted(part)}</td></tr>'
        )
    yield "</tbody></table>"


def _counted(part: Part) -> str:
    if not part.here:
        return f"on node {escape(part.node)}"
    found = [f"{escape(name)} {compact(count)}" for name, count in part.counts.items()]
    return ", ".join(found) or compact(None)


def _notices(status: Status) -> Iterator[str]:
    if not status.notices:
        return
    yield "<h2>Notices</h2><ol reversed>"
    for told in reversed(status.notices):
        yield f"<li><time>{told.time[11:19]}</time> {escape(told.text)}</li>"
    yield "</ol>"
