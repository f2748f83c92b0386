"""An audit as one HTML page for whoever has to decide: the verdict, the sum, when it happened, the worst channels.

The file asks for nothing, runs no script, and suits light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from surepipe.audit.bulk.verdict import BREAKS, AuditMoment, BulkAudit, ChannelFigures
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace_audit import STANDINGS, Judged, Standing
from surepipe.guarantees.claims import Atom

# How the page of an audit looks, in light and dark: the colours of the other pages.


STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#57606a;--page:#fff;--line:#d0d7de;--pane:#f6f8fa;
--good:#116329;--warn:#9a6700;--bad:#a40e26;--badpane:#ffebe9;--flow:#54aeff}
@media (prefers-color-scheme:dark){:root{--ink:#f0f6fc;--soft:#9198a1;--page:#0d1117;--line:#3d444d;
--pane:#161b22;--good:#56d364;--warn:#e3b341;--bad:#ff7b72;--badpane:#2d1214;--flow:#1f6feb}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:16px 20px 40px;background:var(--page);color:var(--ink);
font:15px/1.45 "DejaVu Sans",Verdana,"Segoe UI",sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:22px;line-height:1.2;margin:0} h2{font-size:16px;margin:28px 0 8px} h3{font-size:15px;margin:0}
p{margin:4px 0} .what{color:var(--soft);font-size:13px;overflow-wrap:anywhere}
.what b{font-weight:normal;color:var(--ink)}
.verdict{font-size:18px;font-weight:bold} .good{color:var(--good)} .warn{color:var(--warn)} .bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:8px;margin:14px 0}
.tiles div{border:1px solid var(--line);border-radius:8px;background:var(--pane);padding:8px 12px}
.tiles dt{color:var(--soft);font-size:12px} .tiles dd{margin:0;font-size:22px;font-weight:bold;line-height:1.25;
color:var(--ink)} .tiles .bad{border-color:var(--bad);background:var(--badpane)} .tiles .bad dd{color:var(--bad)}
figure{margin:0;overflow-x:auto;border:1px solid var(--line);border-radius:8px;padding:8px}
figure svg{display:block;width:100%;min-width:660px;height:auto}
svg text{fill:var(--ink);font-size:13px} svg .soft{fill:var(--soft)}
svg .flow{fill:var(--flow)} svg .lost{fill:var(--bad)} svg .dead{fill:var(--warn)} svg .wait{fill:var(--soft)}
svg .again{fill:#bf5af2} svg .late{fill:#d4922a} svg .axis{stroke:var(--line)}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:8px}
section{border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.atoms{display:flex;flex-wrap:wrap;gap:4px 8px;font-size:13px}
.atoms span{border:1px solid currentColor;border-radius:10px;padding:0 10px}
ul{margin:6px 0 0;padding-left:20px;font-size:13px} li{overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:right;vertical-align:top;padding:6px 0 6px 12px;border-bottom:1px solid var(--line);
font-weight:normal} td{white-space:nowrap} thead th{color:var(--soft);font-size:12px;vertical-align:bottom}
tr>:first-child{text-align:left;padding-left:0} tbody th{font-weight:bold;overflow-wrap:anywhere}
td{color:var(--ink)} td.nil{color:var(--soft)} footer{margin-top:24px;font-size:12px;color:var(--soft)}
@media (max-width:760px){body{padding:12px}
.tiles{grid-template-columns:repeat(2,1fr)}
.cards thead{position:absolute;left:-9999px} .cards,.cards tbody{display:block}
.cards tr{display:grid;grid-template-columns:repeat(2,1fr);column-gap:16px;border:1px solid var(--line);
border-radius:8px;padding:6px 12px;margin-bottom:8px}
.cards tbody :is(th,td){display:flex;justify-content:space-between;gap:8px;padding:3px 0;border:0}
.cards tbody th{grid-column:1/-1;display:block;border-bottom:1px solid var(--line);margin-bottom:4px}
.cards td::before{content:attr(data-is);color:var(--soft)}}
"""


# The plots of an audit, as SVG within the page: whole numbers of units, no library, no script.


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
        body.append(f'<rect class="{kind}" x="{left}" y="50" width="12" height="12"/>')
        body.append(f'<text x="{left + 18}" y="61">{told}</text>')
        left += 40 + 8 * len(told)
    text = f"Of {sent:,} sent: " + ", ".join(f"{number:,} {words}" for words, _, number in parts)
    return _svg(WIDTH, 72, text, body)


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
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{size}" height="{height}"/>'
        x += size


def over_time(moments: Sequence[AuditMoment]) -> str:
    """Bars of what came out above the line; what was passed over, and what came late or again, below it."""
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
        body.append(
            f'<rect class="flow" x="{x}" y="{24 + high - size}" width="{width}" height="{size}"/>'
        )
        half = max(1, width // 2)
        for kind, number, at in (
            ("lost", moment.passed_over, x),
            ("again", moment.again, x + half),
        ):
            if number:
                size = max(_LEAST, round(low * number / worst))
                body.append(
                    f'<rect class="{kind}" x="{at}" y="{26 + high}" width="{half}" height="{size}"/>'
                )
    line = 25 + high
    body.append(f'<line class="axis" x1="0" x2="{WIDTH}" y1="{line}" y2="{line}"/>')
    body.append(
        f'<text class="soft" x="0" y="14">at most {most:,} came out in {_duration(moments[0])}</text>'
    )
    foot = line + low + 22
    body.append(f'<text class="soft" x="0" y="{foot}">0 s</text>')
    whole = _seconds(until - since)
    body.append(f'<text class="soft" x="{WIDTH - 4}" y="{foot}" text-anchor="end">{whole}</text>')
    if worst:
        body.append(f'<rect class="lost" x="330" y="{foot - 11}" width="12" height="12"/>')
        body.append(f'<text x="348" y="{foot}">passed over</text>')
        body.append(f'<rect class="again" x="480" y="{foot - 11}" width="12" height="12"/>')
        body.append(f'<text x="498" y="{foot}">late or again, at most {worst:,}</text>')
    else:
        body.append(f'<text x="330" y="{foot}">nothing passed over, late or again</text>')
    return _svg(
        WIDTH, foot + 8, "What came out over time, and below the line what went wrong", body
    )


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
        body.append(
            f'<text x="{_NAME_WIDTH - 10}" y="{y + 16}" text-anchor="end">{_name(one)}</text>'
        )
        parts = [(kind, number) for kind, _, number in told]
        body += _pieces(parts, size, y=y + 3, height=_ROW - 8, x=_NAME_WIDTH)
        body.append(f'<text class="soft" x="{_NAME_WIDTH + size + 10}" y="{y + 16}">{words}</text>')
    return _svg(WIDTH, 8 + len(channels) * _ROW, "The channels in which most went wrong", body)


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
    return escape(name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…")


def _svg(width: int, height: int, says: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(says)}">'
        f"<title>{escape(says)}</title>{''.join(body)}</svg>"
    )


WORST_MAX = 8
ROWS_MAX = 200
PROMISES_MAX = 12
"""Of many channels that are broken alike the table tells; what they look like is seen below."""
_TILES = (
    ("sent", "sent"),
    ("settled", "settled"),
    ("dead letters", "dead"),
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
    *(("sent", "sent"), ("settled", "settled"), ("dead letters", "dead"), ("in flight", "waiting")),
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
    lines = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}: {escape(_verdict(found, promises)[1])}</title>",
        f"<style>{STYLE}</style>\n</head>\n<body>",
        *_head(found, title, promises),
        *_tiles(found),
        *_promises(promises, notes),
        *_figures(found),
        *_worst(found),
        *_all(found),
        *_foot(found),
        "</body>\n</html>",
    ]
    return "\n".join(lines) + "\n"


def _verdict(found: BulkAudit, judged: Sequence[Judged]) -> tuple[str, str]:
    """Its tone, and the sentence."""
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
    for text in found.broken:
        yield f'<p class="warn">{escape(text)}</p>'
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
        tone = ' class="bad"' if _BAD.get(name) in one.broken_promises and number else ""
        yield f'<div{tone}><dt>{words}</dt><dd title="{number}">{_short(number)}</dd></div>'
    yield "</dl>"


def _short(number: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def _figures(found: BulkAudit) -> Iterator[str]:
    if len(found.channels) == 1:
        yield "<h2>Where everything went</h2>"
        yield f"<figure>{balance(found)}</figure>"
    if found.moments:
        yield "<h2>When it happened</h2>"
        yield f"<figure>{over_time(found.moments)}</figure>"
    if len(found.channels) > 1 and found.worst(1):
        yield "<h2>Which channels</h2>"
        yield f"<figure>{channels_by_trouble(found.worst(WORST_MAX))}</figure>"


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


# The table. On a narrow window each row stands as a card, and each cell says what it is.


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
    yield "<table class='cards'><thead><tr><th>channel</th>"
    yield "".join(f"<th>{name}</th>" for name, _ in _COLUMNS) + "</tr></thead><tbody>"
    for one in shown:
        yield f'<tr class="{"bad" if one.is_broken else ""}"><th scope="row">{escape(one.channel)}</th>'
        for words, name in _COLUMNS:
            number = int(getattr(one, name))
            nil = ' class="nil"' if not number else ""
            yield f'<td data-is="{words}"{nil}>{number:,}</td>'
        yield "</tr>"
    yield "</tbody></table>"


def _foot(found: BulkAudit) -> Iterator[str]:
    torn = f" {found.torn} torn lines were left out." if found.torn else ""
    where = "Spark" if found.engine == "spark" else "one process"
    yield (
        "<footer>Positions count from 1 in the order in which messages were accepted. A gap is what a message "
        "passed over when it came out; what came later to fill it is out of order."
        f"{torn} Judged by surepipe in {where}.</footer>"
    )
