"""An audit as one HTML page for whoever has to decide: the verdict, the sum, when it happened, the worst channels.

The file asks for nothing, runs no script, and suits light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from surepipe.audit.bulk.verdict import BREAKS, AuditMoment, BulkAudit, ChannelFigures
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace_audit import STANDINGS, Judged, Standing
from surepipe.core.claims import Atom
from surepipe.drawing.page import CardRow, alone, bar, cards, document, plot, tile
from surepipe.drawing.svg import path, text

_RULES = """
body{max-width:1200px;padding:16px 20px 40px} .what b{font-weight:normal;color:var(--ink)}
.verdict{font-size:18px;font-weight:bold} .tiles .bad dd{color:var(--bad)} .framed{padding:8px}
.plot{width:100%;min-width:660px;height:auto} .plot text{fill:var(--ink);font-size:13px}
.plot .soft{fill:var(--soft)} .plot .flow{fill:var(--bar)} .plot .lost{fill:var(--bad)}
.plot .dead{fill:var(--warn)} .plot .wait{fill:var(--soft)} .plot .again{fill:var(--violet)}
.plot .late{fill:var(--orange)} .plot .axis{stroke:var(--line)}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:8px}
section{border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.atoms{display:flex;flex-wrap:wrap;gap:4px 8px;font-size:13px}
.atoms span{border:1px solid currentColor;border-radius:10px;padding:0 10px}
tr.bad{color:inherit} tr.bad th{color:var(--bad)}
@media (max-width:760px){body{padding:12px} .tiles{grid-template-columns:repeat(2,1fr)}}
"""


# The plots of an audit, as SVG within the page.


WIDTH = 1120
_NAME_WIDTH = 250
_ROW = 26
_NAME_MAX = 30
_LEAST = 3
"""A bar that stands for anything at all is so wide."""


def balance(found: BulkAudit) -> str:
    """One bar: what was sent, by what became of it."""
    parts = [
        (words, kind, found.total(name))
        for words, kind, name in (
            *(("settled", "flow", "settled"), ("dead letters", "dead", "dead")),
            ("parked", "again", "parked"),
            *(("in flight", "wait", "waiting"), ("lost", "lost", "lost")),
        )
        if found.total(name)
    ]
    sent = found.total("sent")
    body = list(_pieces([(kind, number) for _, kind, number in parts], WIDTH, y=6, height=30))
    left = 0
    for words, kind, number in parts:
        share = 100 * number / sent if sent else 0
        told = f"{words} {number:,} ({_percent(share)})"
        body += _sample(kind, told, left, 61)
        left += 40 + 8 * len(told)
    says = f"Of {sent:,} sent: " + ", ".join(f"{number:,} {words}" for words, _, number in parts)
    return plot(WIDTH, 72, says, body)


def _sample(kind: str, words: str, x: int, foot: int) -> Iterator[str]:
    yield bar(kind, x, foot - 11, 12, 12)
    yield text((x + 18, foot), words)


def _percent(share: float) -> str:
    return (
        f"{share:.0f} %"
        if share in (0, 100)
        else "< 0.1 %"
        if share < 0.1
        else f"{min(share, 99.9):.1f} %"
    )


def _pieces(
    parts: Sequence[tuple[str, int]], width: int, *, y: int, height: int, x: int = 0
) -> Iterator[str]:
    whole = sum(number for _, number in parts)
    shown = [(kind, max(_LEAST, round(width * number / whole))) for kind, number in parts if number]
    over = sum(size for _, size in shown) - width
    if shown and over > 0:
        at = max(range(len(shown)), key=lambda place: shown[place][1])
        shown[at] = (shown[at][0], shown[at][1] - over)
    for kind, size in shown:
        yield bar(kind, x, y, size, height)
        x += size


def over_time(moments: Sequence[AuditMoment]) -> str:
    """Bars over time: messages that came out above the line; those passed over, late or repeated below it."""
    since, until = moments[0].since_us, moments[-1].until_us
    high, low = 110, 50
    most = max(moment.came for moment in moments)
    worst = max(max(m.passed_over, m.again) for m in moments)
    body: list[str] = []
    for moment in moments:
        x = 2 + round((WIDTH - 4) * (moment.since_us - since) / (until - since))
        width = max(
            2, round((WIDTH - 4) * (moment.until_us - moment.since_us) / (until - since)) - 2
        )
        size = round(high * moment.came / most)
        body.append(bar("flow", x, 24 + high - size, width, size))
        half = max(1, width // 2)
        for kind, number, at in (
            ("lost", moment.passed_over, x),
            ("again", moment.again, x + half),
        ):
            if number:
                size = max(_LEAST, round(low * number / worst))
                body.append(bar(kind, at, 26 + high, half, size))
    line = 25 + high
    body.append(path(((0, line), (WIDTH, line)), "axis"))
    most_told = f"at most {most:,} came out in {_duration(moments[0])}"
    foot, whole = line + low + 22, _seconds(until - since)
    body += (text((0, 14), most_told, "soft"), text((0, foot), "0 s", "soft"))
    body.append(text((WIDTH - 4, foot), whole, "soft", "end"))
    if worst:
        body += _sample("lost", "passed over", 330, foot)
        body += _sample("again", f"late or again, at most {worst:,}", 480, foot)
    else:
        body.append(text((330, foot), "nothing passed over, late or again"))
    says = "What came out over time, and below the line what went wrong"
    return plot(WIDTH, foot + 8, says, body)


def _duration(moment: AuditMoment) -> str:
    return _seconds(moment.until_us - moment.since_us)


def _seconds(time_us: int) -> str:
    for size, unit in (
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ):
        if time_us >= size:
            return f"{time_us / size:.1f} {unit}"
    return f"{time_us} us"


def channels_by_trouble(channels: Sequence[ChannelFigures]) -> str:
    """A bar for each channel: what is missing, came again, came late, or was never accepted."""
    most = max(1, *(sum(number for _, _, number in _troubles(one)) for one in channels))
    room = WIDTH - _NAME_WIDTH - 400
    body: list[str] = []
    for at, one in enumerate(channels):
        y = 4 + at * _ROW
        told = _troubles(one)
        size = max(_LEAST * len(told), round(room * sum(number for _, _, number in told) / most))
        words = ", ".join(f"{number:,} {what}" for _, what, number in told)
        body.append(text((_NAME_WIDTH - 10, y + 16), _name(one), anchor="end"))
        parts = [(kind, number) for kind, _, number in told]
        body += _pieces(parts, size, y=y + 3, height=_ROW - 8, x=_NAME_WIDTH)
        body.append(text((_NAME_WIDTH + size + 10, y + 16), words, "soft"))
    return plot(WIDTH, 8 + len(channels) * _ROW, "The channels in which most went wrong", body)


def _troubles(one: ChannelFigures) -> list[tuple[str, str, int]]:
    """Colour, words and number of each kind of trouble that there is."""
    told = (
        ("lost", "lost", one.lost),
        ("wait", "in flight", one.waiting),
        ("again", "again", one.repeated),
        ("late", "out of order", one.out_of_order),
        ("dead", "never accepted", one.foreign),
    )
    return [part for part in told if part[-1]]


def _name(one: ChannelFigures) -> str:
    name = one.channel
    return name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…"


WORST_MAX = 8
ROWS_MAX = 200
PROMISES_MAX = 12
"""Of many channels that are broken alike the table tells; what they look like is seen below."""
_TILES = (
    ("sent", "sent"),
    ("settled", "settled"),
    ("dead letters", "dead"),
    ("parked", "parked"),
    ("in flight", "waiting"),
    ("lost", "lost"),
    ("repeated", "repeated"),
    ("out of order", "out_of_order"),
    ("widest gap", "widest"),
)
_BAD = {
    "lost": Atom.NO_LOSS,
    "repeated": Atom.NO_DUPLICATE,
    "out_of_order": Atom.MONOTONIC,
    "widest": Atom.GAP_FREE,
}
"""The promise that a number speaks against."""
SAID_MAX = 3
_COLUMNS = (
    *(("sent", "sent"), ("settled", "settled"), ("dead letters", "dead"), ("parked", "parked")),
    ("in flight", "waiting"),
    *(
        ("lost", "lost"),
        ("repeated", "repeated"),
        ("out of order", "out_of_order"),
        ("gaps", "gaps"),
    ),
    *(("widest gap", "widest"), ("never accepted", "foreign")),
)


def page(
    found: BulkAudit,
    title: str = "Audit",
    judged: Sequence[Judged] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The whole page. ``judged``: every promise; those of the channels when None."""
    promises = list(found.judged()) if judged is None else judged
    parts = (
        *_head(found, title, promises),
        *_tiles(found),
        *_promises(promises, notes),
        *_figures(found),
        *_worst(found),
        *_all(found),
        *_foot(found),
    )
    return document(f"{title}: {_verdict(found, promises)[1]}", alone(_RULES), parts)


def _verdict(found: BulkAudit, judged: Sequence[Judged]) -> tuple[str, str]:
    if found.broken:
        return "warn", "rows of the trace are missing, so nothing can be told"
    for tone, standing, words in (
        ("bad", Standing.BROKEN, "broken"),
        ("warn", Standing.UNJUDGED, "not judged"),
    ):
        parts: dict[str, list[str]] = {}
        for one in judged:
            if one.standing is standing:
                parts.setdefault(one.part, []).append(one.promise)
        if parts:
            told = [f"{part}: {', '.join(names)}" for part, names in parts.items()]
            more = f", and {len(told) - SAID_MAX} more" if len(told) > SAID_MAX else ""
            return tone, f"{words}: {'; '.join(told[:SAID_MAX])}{more}"
    if judged:
        return "good", "everything that was promised holds"
    return "warn", "not judged: there is no message in what was read"


def _head(found: BulkAudit, title: str, judged: Sequence[Judged]) -> Iterator[str]:
    tone, sentence = _verdict(found, judged)
    yield f'<header><h1>{escape(title)}</h1><p class="verdict {tone}">{escape(sentence)}</p>'
    channels = f"{len(found.channels):,} channel{'s' if len(found.channels) != 1 else ''}"
    yield (
        f'<p class="what">sent: <b>{escape(found.sent)}</b> · delivered: <b>{escape(found.delivered)}</b> · '
        f"{channels}</p></header>"
    )
    for reason in found.broken:
        yield f'<p class="warn">{escape(reason)}</p>'
    if not found.at_rest:
        yield '<p class="what">More may come: what is missing counts as in flight, not as lost.</p>'


def _promises(judged: Sequence[Judged], notes: Sequence[str]) -> Iterator[str]:
    open_ones = [one for one in judged if one.standing is not Standing.HELD]
    if not open_ones and not notes:
        return
    yield '<h2>What does not hold, or is not known to</h2><ul class="promises">'
    for one in open_ones[:PROMISES_MAX]:
        tone = "bad" if one.standing is Standing.BROKEN else "warn"
        yield f'<li class="{tone}">{escape(str(one))}</li>'
    if len(open_ones) > PROMISES_MAX:
        broken = sum(one.standing is Standing.BROKEN for one in open_ones[PROMISES_MAX:])
        unjudged = len(open_ones) - PROMISES_MAX - broken
        yield f"<li>and {broken:,} more that are broken, {unjudged:,} that are not judged</li>"
    yield from (f"<li>{escape(note)}</li>" for note in notes)
    yield "</ul>"


def _tiles(found: BulkAudit) -> Iterator[str]:
    """The numbers of a channel. Those of several mean nothing together."""
    if len(found.channels) != 1:
        return
    (one,) = found.channels
    yield '<dl class="tiles">'
    for words, name in _TILES:
        number = found.total(name)
        tone = "bad" if _BAD.get(name) in one.broken_promises and number else ""
        yield tile(words, _short(number), tone, exact=str(number))
    yield "</dl>"


def _short(number: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def _figures(found: BulkAudit) -> Iterator[str]:
    if len(found.channels) == 1:
        yield "<h2>Where everything went</h2>"
        yield balance(found)
    if found.moments:
        yield "<h2>When it happened</h2>"
        yield over_time(found.moments)
    if len(found.channels) > 1 and found.worst(1):
        yield "<h2>Which channels</h2>"
        yield channels_by_trouble(found.worst(WORST_MAX))


def _worst(found: BulkAudit) -> Iterator[str]:
    worst = found.worst(WORST_MAX)
    if not worst:
        return
    yield '<h2>Worst first</h2><div class="beside">'
    for one in worst:
        yield f'<section><h3>{escape(one.channel)}</h3><p class="what">{escape(one.sum)}</p>'
        yield f'<p class="atoms">{" ".join(_atoms(one))}</p>'
        yield from _examples(one)
        if one.why:
            yield f'<p class="what">{escape(one.why)}</p>'
        yield "</section>"
    yield "</div>"


def _atoms(one: ChannelFigures) -> Iterator[str]:
    for atom in Atom:
        if atom in one.promised:
            known = one.outcomes[atom]
            tone = {PropertyOutcome.HELD: "good", PropertyOutcome.VIOLATED: "bad"}.get(
                known, "warn"
            )
            yield f'<span class="{tone}">{escape(str(atom))}: {STANDINGS[known]}</span>'
        else:
            yield f"<span>{escape(str(atom))}: not promised</span>"
    if one.foreign:
        yield f'<span class="bad">{one.foreign:,} were never accepted</span>'


def _examples(one: ChannelFigures) -> Iterator[str]:
    lost = {(case.low, case.high) for case in one.examples if case.what == "lost"}
    shown = [
        case
        for atom, what in BREAKS.items()
        if atom in one.promised
        for case in one.examples
        if case.what == what and not (what == "gap" and (case.low, case.high) in lost)
    ]
    if shown:
        yield f"<ul>{''.join(f'<li>{escape(str(case))}</li>' for case in shown)}</ul>"


def _all(found: BulkAudit) -> Iterator[str]:
    bad = found.worst(ROWS_MAX)
    shown = [*bad, *(one for one in found.channels if one not in bad)][:ROWS_MAX]
    if not shown:
        yield "<p>There is no channel in what was read.</p>"
        return
    yield (
        "<h2>All channels</h2>"
        if len(shown) == len(found.channels)
        else (f"<h2>{len(shown)} of {len(found.channels):,} channels, worst first</h2>")
    )
    yield from cards("channel", [_row(one) for one in shown])


def _row(one: ChannelFigures) -> CardRow:
    cells = [(words, f"{int(getattr(one, name)):,}") for words, name in _COLUMNS]
    return CardRow(escape(one.channel), cells, "bad" if one.is_broken else "", ("0",))


def _foot(found: BulkAudit) -> Iterator[str]:
    torn = f" {found.torn} torn lines were left out." if found.torn else ""
    where = "Spark" if found.engine == "spark" else "one process"
    yield (
        "<footer>Positions count from 1 in the order in which messages were accepted. A gap is what a message "
        "passed over when it came out; what came later to fill it is out of order."
        f"{torn} Judged by surepipe in {where}.</footer>"
    )
