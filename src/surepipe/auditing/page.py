"""An audit as one HTML page for whoever has to decide: the verdict, the sum, when it happened, the worst channels.

The file asks for nothing, runs no script, and suits light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from surepipe.auditing.page_style import STYLE
from surepipe.auditing.plots import balance, channels_by_trouble, over_time
from surepipe.auditing.verdict import BREAKS, BulkAudit, Channel
from surepipe.pipes.algebra.guarantees import Atom
from surepipe.pipes.predicates import Outcome
from surepipe.simulation.audit import STANDINGS, Judged, Standing

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


def _atoms(one: Channel) -> Iterator[str]:
    for atom in Atom:
        if atom in one.promised:
            known = one.outcomes[atom]
            tone = {Outcome.HELD: "good", Outcome.VIOLATED: "bad"}.get(known, "warn")
            yield f'<span class="{tone}">{escape(str(atom))}: {STANDINGS[known]}</span>'
        else:
            yield f"<span>{escape(str(atom))}: not promised</span>"
    if one.foreign:
        yield f'<span class="bad">{one.foreign:,} were never accepted</span>'


def _examples(one: Channel) -> Iterator[str]:
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
