"""A running pipeline as one HTML page: made anew for each request, complete without script, asking nobody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from surepipe.observe.numbers import compact, milliseconds, seconds
from surepipe.observe.status import Flow, Part, Status
from surepipe.observe.watch import HISTORY_MAX, SAMPLE_S
from surepipe.pipelines.drawing.diagram import Diagram
from surepipe.pipelines.drawing.layout import lay_out
from surepipe.pipelines.drawing.svg import svg_of
from surepipe.pipelines.live.picture import is_worrying, live_diagram
from surepipe.pipes.algebra.guarantees import Fault, faults_text

REFRESH_S = 2
SHRUNK_MAX = 1_600
_SILENT = "No answer: the pipeline has ended, or is out of reach. Below is what was seen last."
_FOOT = (
    'The same as JSON: <a href="/status.json">status.json</a>. Rates are those of the last seconds, times '
    "those of the last minute; counts begin with this process. A dash stands for what is not known."
)
_NIL = (compact(0), compact(None), seconds(0))
SPARK_WIDTH, SPARK_HEIGHT = 300, 28


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
        *_letters(status),
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
    tone = "silentstore" if status.silent else status.state
    yield (
        f'<header><h1>{escape(status.name)}</h1><span class="state {tone}">{status.state}</span>'
        f"{_stores(status)}<span>{node}up {seconds(status.uptime_s)} · {clock} UTC</span></header>"
    )


def _stores(status: Status) -> str:
    said = [
        f'<span class="store silentstore">store {escape(store.name)} has not answered for '
        f"{seconds(store.silent_s)}</span>"
        if store.silent_s is not None
        else f'<span class="store">store {escape(store.name)} answers</span>'
        for store in status.stores
    ]
    return "".join(said)


def _tiles(status: Status) -> Iterator[str]:
    """What comes in and goes out of the pipeline as a whole, and what it holds; each with its last minutes."""
    waiting, dead = status.waiting, status.total("dead_letters")
    ins = [moment.in_per_s for moment in status.history]
    outs = [moment.out_per_s for moment in status.history]
    waits = [moment.waiting for moment in status.history]
    yield '<dl class="tiles">'
    yield _tile("in, per second", compact(status.in_per_s), ins)
    yield _tile("out, per second", compact(status.out_per_s), outs)
    yield _tile("waiting", compact(waiting), waits)
    yield _tile("sent again", compact(status.total("retransmitted")))
    yield _tile("dead letters", compact(dead), tone="warn" if dead else "")
    yield "</dl>"


def _tile(words: str, shown: str, past: Sequence[float | None] = (), tone: str = "") -> str:
    kind = f' class="{tone}"' if tone else ""
    return f"<div{kind}><dt>{words}</dt><dd>{shown}</dd>{_past(words, past)}</div>"


def _past(words: str, past: Sequence[float | None]) -> str:
    """The last minutes as a line, the newest at the right; where nothing was known it is broken."""
    known = [number for number in past if number is not None]
    if len(known) < 2:
        return ""
    top = max(*known, 1)
    step = SPARK_WIDTH / (HISTORY_MAX - 1)
    left = SPARK_WIDTH - step * (len(past) - 1)
    runs: list[list[str]] = [[]]
    for at, number in enumerate(past):
        if number is None:
            runs.append([])
        else:
            height = SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 2) * number / top
            runs[-1].append(f"{left + at * step:.1f},{height:.1f}")
    lines = "".join(f'<polyline points="{" ".join(run)}"/>' for run in runs if run)
    told = f"{words}, last {seconds(len(past) * SAMPLE_S)}: at most {compact(top)}"
    return (
        f'<svg class="past" viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{told}"><title>{told}</title>{lines}</svg>'
    )


def _letters(status: Status) -> Iterator[str]:
    if not status.letters:
        return
    yield "<h2>Last dead letters</h2><ol>"
    for letter in status.letters:
        yield (
            f"<li><b>{escape(letter.error)}</b>: {escape(letter.text)} <small>pipe {escape(letter.pipe)}, message "
            f"{letter.seq}, in {escape(letter.stream)}; all of them: surepipe dlq list</small></li>"
        )
    yield "</ol>"


def _figure(diagram: Diagram) -> str:
    """A picture that is a little too wide is made smaller; one that would be too small then is scrolled."""
    scrolls = " class='scrolls'" if lay_out(diagram).width > SHRUNK_MAX else ""
    return f"<figure{scrolls} tabindex='0' aria-label='The pipeline'>{svg_of(diagram, headed=False)}</figure>"


# Tables. On a narrow window each row stands as a card, and each cell says what it is.


def _pipes(status: Status) -> Iterator[str]:
    if not status.pipes:
        return
    yield "<h2>Pipes</h2>"
    lanes = max((part.flow.lanes or 0 for part in status.pipes if part.flow), default=0)
    heads = [name for name, _ in _cells(Flow(lanes=lanes or None))]
    yield "<table class='cards'><thead><tr><th>pipe</th>"
    yield "".join(f"<th>{name}</th>" for name in heads) + "</tr></thead><tbody>"
    for part in status.pipes:
        yield f'<tr class="{_tone(part)}"><th scope="row">{escape(part.name)}{_promise(part)}</th>'
        cells = dict(_cells(part.flow or Flow()))
        for name in heads:
            value = cells.get(name, compact(None))
            nil = ' class="nil"' if value in _NIL else ""
            yield f'<td data-is="{name}"{nil}>{value}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def _cells(flow: Flow) -> Iterator[tuple[str, str]]:
    yield "accepted", compact(flow.accepted)
    yield "settled", compact(flow.settled)
    yield "waiting", compact(flow.waiting)
    yield "unconfirmed", compact(flow.unconfirmed)
    yield "oldest", seconds(flow.oldest_unconfirmed_s)
    yield "in work", compact(flow.in_work)
    yield "sent again", compact(flow.retransmitted)
    yield "duplicates dropped", compact(flow.duplicates)
    yield "dead letters", compact(flow.dead_letters)
    yield "restarts", compact(flow.restarts)
    if flow.lanes is not None:
        yield "lanes busy", f"{compact(flow.lanes_busy)} of {compact(flow.lanes)}"
    for words, took in (("settled", flow.settling), ("confirmed", flow.confirming)):
        yield f"{words} in, p50", _ms(took.p50_ms if took else None)
        yield f"{words} in, p99", _ms(took.p99_ms if took else None)


def _ms(number: float | None) -> str:
    return compact(None) if number is None else milliseconds(number)


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
    return ", ".join([*found, *_progress(part)]) or compact(None)


def _progress(part: Part) -> Iterator[str]:
    """How far a source that has an end is."""
    if part.progress is not None and part.progress.of:
        yield f"{100 * part.progress.done / part.progress.of:.0f} % read"
        if part.progress.left_s is not None:
            yield f"{seconds(part.progress.left_s)} left"


def _notices(status: Status) -> Iterator[str]:
    if not status.notices:
        return
    yield "<h2>Notices</h2><ol reversed>"
    for told in reversed(status.notices):
        yield f"<li><time>{told.time[11:19]}</time> {escape(told.text)}</li>"
    yield "</ol>"
