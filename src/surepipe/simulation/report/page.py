"""A counterexample as a page: one HTML file that asks for nothing, runs no script, and suits light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape

from surepipe.drawing.page import alone, document
from surepipe.simulation.report.picture import Caption, written
from surepipe.simulation.report.story import Step, Story
from surepipe.simulation.report.text import write_text
from surepipe.simulation.report.told import Told, faults_used, headline, numbered, told, verdict
from surepipe.simulation.report.words import listing, node_words
from surepipe.simulation.results import Counterexample

_RULES = """
body{max-width:1600px;padding:10px 12px} h1{font-size:21px;line-height:1.25;margin:4px 0;color:var(--strong)}
p{max-width:75em} .beside{display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start;margin-top:8px}
table{font-size:14px} td{padding:4px 12px 4px 0} thead th{font-size:14px}
td.effect{color:var(--strong);font-weight:bold} tr.breaks{outline:2px solid var(--strong)}
tr.fault td:nth-child(3){font-weight:bold} tr:target{background:var(--marked)} tr.fold{color:var(--soft)}
"""


BYTES_MAX = 300_000


def page(found: Counterexample) -> str:
    """The whole page, at most 300 KB: of longer scripts, the end is left out, and that is said."""
    whole = told(found)
    folded = whole.numbered()
    parts = [
        *_head(folded),
        '<div class="beside">',
        *_figures(folded),
        "</div>",
        f"<h2>Is this promised?</h2>\n<p>{escape(' '.join(verdict(found)))}</p>",
        *_table(folded.story),
        "<h2>In words</h2>",
        f"<pre>{escape(write_text(whole))}</pre>",
        *_plain("Options", _options(found)),
        *_plain("Script", _decisions(found)),
    ]
    violation = found.violation
    return document(f"{violation.property}: {folded.lead}", alone(_RULES), parts)


def picture(found: Counterexample, name: str) -> str:
    """The space-time diagram alone, as an SVG document."""
    return written(told(found).numbered().story, caption(found), name)


def caption(found: Counterexample, *, brief: bool = False) -> Caption:
    """The rule, the message and what befell it, and the faults; ``brief`` where the page says the rest."""
    violation = found.violation
    rule = f"{violation.property} {violation.name}"
    faults = faults_used(found)
    return Caption(
        title=f"{rule}: VIOLATED" if brief else f"{rule}: VIOLATED ({found.title})",
        sentence="" if brief else violation.sentence,
        remark=f"Fault: {listing(faults)}." if faults else "No fault was needed.",
        verdict=f"{rule} is broken here: {violation.sentence}",
    )


def _head(told: Told) -> Iterator[str]:
    lead, sentence = told.lead, told.found.violation.sentence
    yield f"<h1>{escape(lead)}</h1>"
    yield f'<p class="what">{escape(" · ".join(headline(told.found)))}</p>'
    decides = told.decides if lead == sentence else f"{told.decides} {sentence}".strip()
    if decides:
        yield f'<p class="decides">{escape(decides)}</p>'


def _figures(told: Told) -> Iterator[str]:
    main = caption(told.found, brief=True)
    if told.beside is None:
        yield _figure(written(told.story, main, "broken", table="step"))
        return
    place = told.parts_at
    main = replace(main, differs=told.differs_at, difference="First difference.")
    yield _figure(written(told.story, main, "broken", table="step"))
    holds = Caption(
        title="The nearest schedule that holds",
        sentence="",
        remark=f"Without: {told.without()[1]}.",
        differs=min(place, len(told.beside.steps) - 1),
        difference="Here the two part.",
    )
    yield _figure(written(told.beside, holds, "holds"))


def _figure(svg: str) -> str:
    return f"<figure>{svg}</figure>"


def _table(story: Story) -> Iterator[str]:
    yield "<h2>Step by step</h2>\n<table><thead>"
    effect = f"what that did to {escape(story.focus)}" if story.focus else ""
    yield f"<tr><th></th><th>node</th><th>what happened</th><th>{effect}</th></tr></thead>"
    for place, (number, step) in enumerate(numbered(story.steps), start=1):
        link = f'<a href="#broken-step-{place}">{number}</a>' if not step.folded else number
        node = escape(node_words(step.node))
        yield (
            f'<tr id="step-{place}" class="{_classes(step)}"><td>{link}</td><td>{node}</td>'
            f'<td>{escape(step.does)}</td><td class="effect">{escape(step.effect)}</td></tr>'
        )
    yield "</table>"


def _classes(step: Step) -> str:
    names = {"breaks": step.violates, "fault": step.fault, "fold": step.folded}
    return " ".join(name for name, holds in names.items() if holds)


@dataclass(frozen=True, slots=True)
class _Listing:
    lines: list[str]
    none: str


def _options(found: Counterexample) -> _Listing:
    script = found.result.script
    lines = [f"{name}: {value}" for name, value in sorted(script.options.items())]
    return _Listing([f"subject: {script.subject}", f"seed: {script.seed}", *lines], "")


def _decisions(found: Counterexample) -> _Listing:
    return _Listing([str(d) for d in found.result.script.decisions], "no decision: all plain")


_LISTED_BYTES = 60_000


def _plain(title: str, listed: _Listing) -> Iterator[str]:
    lines: list[str] = []
    left = _LISTED_BYTES
    for line in listed.lines:
        left -= len(escape(line).encode()) + 1
        if left < 0:
            lines.append(f"... and {len(listed.lines) - len(lines)} more")
            break
        lines.append(line)
    yield f"<h2>{title}</h2>"
    yield f"<pre>{escape(chr(10).join(lines) or listed.none)}</pre>"
