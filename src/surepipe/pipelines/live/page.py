"""A running pipeline as one HTML page: made anew for each request, complete without script, asking nobody else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

from surepipe.core.claims import Fault, faults_text
from surepipe.drawing.flow import Diagram, FlowArrow, PartBox, lay_out, svg_of
from surepipe.drawing.page import STYLE, CardRow, cards, document, tile
from surepipe.observe.status import (
    Part,
    PipeFlow,
    Status,
    compact,
    is_worrying,
    milliseconds,
    progress_of,
    said_of_book,
    said_of_path,
    said_of_queue,
    seconds,
)
from surepipe.observe.watch import HISTORY_MAX, SAMPLE_S

# The flow of a plan, as ``surepipe graph`` draws it, with what happens in it just now.
#
# Stores, and the layers of the pipes, are left out: they do not change. Boxes and arrows stay where they are
# from one picture to the next, since numbers are never wider than the other words of a box.


def live_diagram(diagram: Diagram, status: Status) -> Diagram:
    """The diagram with numbers in the pipes, and rates on the arrows."""
    parts = {part.name: part for part in status.parts}
    return replace(
        diagram,
        boxes=tuple(_box(box, parts[box.name]) for box in diagram.boxes if box.role != "store"),
        arrows=tuple(_arrow(arrow, parts) for arrow in diagram.flow),
    )


def _box(box: PartBox, part: Part) -> PartBox:
    tone = "away" if not part.here else "warn" if is_worrying(part) else ""
    if part.flow is None:
        where = () if part.here else (f"on node {part.node}",)
        return replace(box, live=where, tone=tone)
    return replace(box, lines=box.lines[-1:], live=tuple(_lines(part.flow)), tone=tone)


def _lines(flow: PipeFlow) -> Iterator[str]:
    yield f"waiting {compact(flow.waiting)}"
    yield f"unconfirmed {compact(flow.unconfirmed)}"
    yield f"sent again {compact(flow.retransmitted)}"
    yield f"dead letters {compact(flow.dead_letters)}"


def _arrow(arrow: FlowArrow, parts: dict[str, Part]) -> FlowArrow:
    rate = _rate(parts[arrow.start], parts[arrow.end])
    return arrow if rate is None else replace(arrow, label=f"{compact(rate)}/s")


def _rate(start: Part, end: Part) -> float | None:
    """What goes from one to the other a second: what the other takes, if it is fed by this one alone."""
    if len(end.feeders) > 1:
        return start.flow.settled_per_s if start.flow is not None else _own(start)
    return end.flow.accepted_per_s if end.flow is not None else _own(end)


def _own(part: Part) -> float | None:
    """A part that is no pipe counts what it took, or, a stage, what passed through it."""
    return part.per_s.get("taken", part.per_s.get("passed"))


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
    head = (
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">',
        f'<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>',
        '<script src="/page.js" defer></script>',
    )
    parts = (
        f'<p id="silent" role="alert" hidden>{_SILENT}</p>',
        '<main id="live">',
        *_head(status),
        *_tiles(status),
        _figure(live_diagram(diagram, status)),
        *_letters(status),
        *_pipes(status),
        *_books(status),
        *_paths(status),
        *_others(status),
        *_notices(status),
        "</main>",
        f"<footer>{_FOOT}</footer>",
    )
    return document(f"{status.name}: {status.state}", head, parts)


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
    for words, shown, past in (
        ("in, per second", status.in_per_s, ins),
        ("out, per second", status.out_per_s, outs),
        ("waiting", waiting, waits),
        ("sent again", status.total("retransmitted"), ()),
    ):
        yield tile(words, compact(shown), html=_past(words, past))
    yield tile("dead letters", compact(dead), "warn" if dead else "")
    yield "</dl>"


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
            f"{escape(letter.message)}, in {escape(letter.stream)}; all of them: surepipe dlq list</small></li>"
        )
    yield "</ol>"


def _figure(diagram: Diagram) -> str:
    """A picture that is a little too wide is made smaller; one that would be too small then is scrolled."""
    scrolls = " scrolls" if lay_out(diagram).width > SHRUNK_MAX else ""
    svg = svg_of(diagram, headed=False)
    return f"<figure class='framed{scrolls}' tabindex='0' aria-label='The pipeline'>{svg}</figure>"


# Tables.


def _pipes(status: Status) -> Iterator[str]:
    if not status.pipes:
        return
    yield "<h2>Pipes</h2>"
    lanes = max((part.flow.lanes or 0 for part in status.pipes if part.flow), default=0)
    names = [name for name, _ in _cells(PipeFlow(lanes=lanes or None))]
    yield from cards("pipe", [_row(part, names) for part in status.pipes])


def _paths(status: Status) -> Iterator[str]:
    for part in status.parts:
        if part.between is not None:
            yield f"<h2>Between parties: {escape(part.name)}</h2><p>{escape(said_of_path(part.between))}</p>"


def _books(status: Status) -> Iterator[str]:
    for part in status.parts:
        if part.book is None:
            continue
        yield f"<h2>Book {escape(part.name)}</h2><p>{escape(said_of_book(part.book))}</p>"
        if part.book.queues:
            yield "<table class='few'><thead><tr><th>key</th><th>its queue</th></tr></thead><tbody>"
            for one in part.book.queues:
                tone = "warn" if one.blocked or one.parked else ""
                yield (
                    f'<tr class="{tone}"><th scope="row">{escape(one.key)}</th>'
                    f'<td data-is="its queue">{escape(said_of_queue(one))}</td></tr>'
                )
            yield "</tbody></table>"


def _row(part: Part, names: Sequence[str]) -> CardRow:
    known = dict(_cells(part.flow or PipeFlow()))
    cells = [(name, known.get(name, compact(None))) for name in names]
    return CardRow(f"{escape(part.name)}{_promise(part)}", cells, _tone(part), _NIL)


def _cells(flow: PipeFlow) -> Iterator[tuple[str, str]]:
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
    return ", ".join([*found, *progress_of(part)]) or compact(None)


def _notices(status: Status) -> Iterator[str]:
    if not status.notices:
        return
    yield "<h2>Notices</h2><ol reversed>"
    for told in reversed(status.notices):
        yield f"<li><time>{told.time[11:19]}</time> {escape(told.text)}</li>"
    yield "</ol>"


# How the page looks, and the few lines of script that renew it.


PAGE_STYLE = (
    STYLE
    + """
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;color:var(--soft);font-size:13px}
h1{color:var(--ink)} .state{border:1px solid currentColor;border-radius:10px;padding:0 10px;font-weight:bold}
.running{color:var(--good)} .starting,.stopping,.silentstore{color:var(--warn)}
.store.silentstore{font-weight:bold}
svg.past{display:block;width:100%;height:28px;margin-top:4px} .tiles .warn dd{color:var(--warn)}
.past polyline{fill:none;stroke:var(--soft);stroke-width:1.5;vector-effect:non-scaling-stroke}
figure svg{margin:0 auto} figure:not(.scrolls) svg{max-width:max(100%,1200px);height:auto}
figure svg .page{fill:none;stroke:none} svg .under{fill:var(--page)}
svg text.live,svg text.flow{fill:var(--ink);font-variant-numeric:tabular-nums;white-space:pre}
svg text.flow{font-weight:bold} svg .pipe.warn .box{stroke:var(--warn);stroke-width:3} svg .away{opacity:.55}
th small{display:block;font-weight:normal;font-size:12px;color:var(--soft);max-width:44em}
th small b{color:var(--good)} .few{width:100%} tr.warn{color:inherit} tr.warn th{color:var(--warn)}
tr.away{color:var(--soft)} ol{padding:0;margin:0;list-style:none;font-size:13px}
li{padding:4px 0;border-bottom:1px solid var(--line)} time{color:var(--soft)}
#silent{border:2px solid var(--bad);border-radius:8px;color:var(--bad);padding:6px 12px;margin:0 0 12px}
.silent main{opacity:.6}
@media (max-width:760px){figure{max-height:75vh;overflow:auto} .tiles div:first-child{grid-column:1/-1}}
"""
)

PAGE_SCRIPT = """'use strict';
const every = 1000;
function put(fresh) {
  const old = document.getElementById('live'), next = fresh.getElementById('live');
  const {scrollLeft, scrollTop} = old.querySelector('figure');
  old.replaceWith(document.importNode(next, true));
  document.querySelector('figure').scrollTo(scrollLeft, scrollTop);
  document.title = fresh.title;
}
function silent(is) {
  document.getElementById('silent').hidden = !is;
  document.body.classList.toggle('silent', is);
}
async function renew() {
  const busy = document.hidden || getSelection().type === 'Range';
  if (!busy) {
    try {
      const answer = await fetch('/', {cache: 'no-store', signal: AbortSignal.timeout(5000)});
      if (!answer.ok) throw new Error(answer.statusText);
      put(new DOMParser().parseFromString(await answer.text(), 'text/html'));
      silent(false);
    } catch {
      silent(true);
    }
  }
  setTimeout(renew, every);
}
setTimeout(renew, every);
"""
