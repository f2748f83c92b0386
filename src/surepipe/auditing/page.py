"""An audit as one HTML page for whoever has to decide: the verdict, the sum, when it happened, the worst channels.

The file asks for nothing, runs no script, and suits light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from surepipe.auditing.page_style import STYLE
from surepipe.auditing.plots import balance, channels_by_trouble, over_time
from surepipe.auditing.verdict import BREAKS, BulkAudit, Channel
from surepipe.pipes.algebra.guarantees import Atom
from surepipe.pipes.predicates import Outcome

WORST_MAX = 8
ROWS_MAX = 200
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
_BAD = frozenset(("lost", "repeated", "out_of_order", "widest"))
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
_SIGNS = {Outcome.HELD: "holds", Outcome.VIOLATED: "broken", Outcome.UNDECIDED: "can't tell"}


def page(found: BulkAudit, title: str = "Audit") -> str:
    """The whole page."""
    lines = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}: {_verdict(found)[1]}</title>",
        f"<style>{STYLE}</style>\n</head>\n<body>",
        *_head(found, title),
        *_tiles(found),
        *_figures(found),
        *_worst(found),
        *_all(found),
        *_foot(found),
        "</body>\n</html>",
    ]
    return "\n".join(lines) + "\n"


def _verdict(found: BulkAudit) -> tuple[str, str]:
    """Its tone, and the sentence."""
    if found.broken:
        return "warn", "rows of the trace are missing, so nothing can be told"
    if found.is_broken:
        wrong = [
            f"{found.total(name):,} {words}"
            for words, name in (
                *(("lost", "lost"), ("repeated", "repeated"), ("out of order", "out_of_order")),
                ("never accepted", "foreign"),
            )
            if found.total(name)
        ] or [f"{found.total('passed_over'):,} passed over"]
        return "bad", f"not as promised: {', '.join(wrong)}"
    if found.is_held:
        return "good", "everything that was promised holds"
    return "warn", "nothing wrong was seen, but not all can be told yet"


def _head(found: BulkAudit, title: str) -> Iterator[str]:
    tone, sentence = _verdict(found)
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


def _tiles(found: BulkAudit) -> Iterator[str]:
    yield '<dl class="tiles">'
    for words, name in _TILES:
        number = found.total(name)
        tone = ' class="bad"' if name in _BAD and number else ""
        yield f'<div{tone}><dt>{words}</dt><dd title="{number}">{_short(number)}</dd></div>'
    yield "</dl>"


def _short(number: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,}"


def _figures(found: BulkAudit) -> Iterator[str]:
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
        known = one.outcomes[atom]
        tone = {Outcome.HELD: "good", Outcome.VIOLATED: "bad"}.get(known, "warn")
        note = "" if atom in one.promised else " (not promised)"
        yield f'<span class="{tone}">{escape(str(atom))}: {_SIGNS[known]}{note}</span>'
    if one.foreign:
        yield f'<span class="bad">{one.foreign:,} were never accepted</span>'


def _examples(one: Channel) -> Iterator[str]:
    lost = {(case.low, case.high) for case in one.examples if case.what == "lost"}
    shown = [
        case
        for what in BREAKS.values()
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
