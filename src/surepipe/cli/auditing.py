"""``surepipe audit`` in bulk: two logs of any size, in process or on Spark."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.cli.commands.audit import accounted, code_of, ends, ends_document
from surepipe.cli.exits import Exit
from surepipe.cli.output import Line, line, show, show_json, write_file
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.audit.bulk import AuditEngine, BulkAudit, ChannelFigures
    from surepipe.audit.trace_audit import Judged
    from surepipe.guarantees.claims import Atom


PLACES_MAX = 2


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    places: Sequence[str]
    engine: str
    master: str
    expect: str
    match: str
    at_rest: bool
    page: Path | None
    as_json: bool
    plan: Path | None = None


def is_bulk(places: Sequence[str]) -> bool:
    """True for what only an audit in bulk can read: streams, and folders of traces."""
    return any(("#" in text and not Path(text).exists()) or Path(text).is_dir() for text in places)


def audit_in_bulk(wish: Wish) -> Exit:
    """Judge, show, and say how it went. Raises SurepipeError for what can't be read."""
    from surepipe.audit.bulk import Question, judge, place_of
    from surepipe.audit.bulk.page import page

    if len(wish.places) > PLACES_MAX:
        raise ConfigurationError(
            f"{len(wish.places)} places are given: name two, SENT and DELIVERED, and put more traces into a folder"
        )
    places = [place_of(text) for text in wish.places]
    question = Question(
        sent=places[0],
        delivered=places[-1],
        at_rest=True if wish.at_rest else None,
        expect=_expected(wish.expect),
        match="identity" if wish.match == "identity" else "payload",
        timeline=wish.page is not None,
    )
    with _engine(wish) as engine:
        found = judge(engine, question)
    judged, notes = list(found.judged()), list[str]()
    if wish.plan is not None:
        counted = [
            (one.channel, one.sent, one.settled, one.dead, not one.is_unreadable)
            for one in found.channels
        ]
        notes = accounted(wish.plan, counted, found.facts, judged, _expected(wish.expect))
    code = code_of(judged)
    if wish.as_json:
        show_json(_document(found, code) | ends_document(judged, notes))
    else:
        show(_lines(found, judged, notes))
    if wish.page is not None:
        title = " → ".join(dict.fromkeys((Path(found.sent).name, Path(found.delivered).name)))
        wish.page.parent.mkdir(parents=True, exist_ok=True)
        if wish.as_json:
            wish.page.write_text(page(found, f"Audit: {title}", judged, notes), encoding="utf-8")
        else:
            write_file(wish.page, page(found, f"Audit: {title}", judged, notes))
    return code


@contextmanager
def _engine(wish: Wish) -> Generator[AuditEngine]:
    if wish.engine == "local":
        from surepipe.audit.bulk import DuckEngine

        local = DuckEngine()
        try:
            yield local
        finally:
            local.close()
        return
    from surepipe.spark.session import SparkOptions, open_session

    session = open_session(SparkOptions(master=wish.master, app_name="surepipe audit"))
    try:
        from surepipe.spark.audit import SparkEngine

        yield SparkEngine(session)
    finally:
        session.stop()


def _expected(text: str) -> frozenset[Atom] | None:
    from surepipe.guarantees.claims import Atom

    if not text:
        return None
    names = {str(atom): atom for atom in Atom}
    words = [word.strip() for word in text.split(",")]
    unknown = [word for word in words if word not in names]
    if unknown:
        raise ConfigurationError(
            f"--expect does not know {', '.join(unknown)}: write some of {', '.join(names)}, with commas"
        )
    return frozenset(names[word] for word in words)


def _lines(found: BulkAudit, judged: Sequence[Judged], notes: Sequence[str]) -> Iterator[Line]:
    for text in found.lines():
        is_broken = ": broken" in text or text.startswith("broken trace")
        style = "bad" if is_broken else "head" if not text.startswith(" ") else ""
        indent = len(text) - len(text.lstrip())
        yield line((text.strip(), style) if style else text.strip(), indent=indent)
    yield from ends(judged, notes)


_NUMBERS = (
    *("sent", "settled", "dead", "waiting", "lost", "unknown", "repeated", "out_of_order"),
    *("gaps", "passed_over", "widest", "foreign", "untold"),
)


def _document(found: BulkAudit, code: Exit) -> dict[str, object]:
    return {
        "exit": int(code),
        "engine": found.engine,
        "sent": found.sent,
        "delivered": found.delivered,
        "at_rest": found.at_rest,
        "torn": found.torn,
        "broken": list(found.broken),
        "channels": [_channel(one) for one in found.channels],
    }


def _channel(one: ChannelFigures) -> dict[str, object]:
    return {
        "channel": one.channel,
        **{name: getattr(one, name) for name in _NUMBERS},
        "atoms": {
            str(atom): {"outcome": str(known), "promised": atom in one.promised}
            for atom, known in one.outcomes.items()
        },
        "why": one.why,
        "examples": [
            {
                "what": case.what,
                "first": case.low,
                "last": case.high,
                "epoch": case.epoch,
                "seq": case.seq,
            }
            for case in one.examples
        ],
    }
