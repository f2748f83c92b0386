"""``surepipe audit``: what the trace of a run proves about its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.cluster_audit import audit_cluster, is_cluster_file
from surepipe.cli.output import Exit, Line, line, show, show_json, write_file
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.audit.bulk import AuditEngine, BulkAudit, ChannelFigures, Place, StoredStream
    from surepipe.audit.trace import Row
    from surepipe.audit.trace_audit import Audit, Judged
    from surepipe.core.claims import Atom


class EngineName(StrEnum):
    """What judges."""

    AUTO = "auto"
    TRACE = "trace"
    LOCAL = "local"
    SPARK = "spark"


class MatchName(StrEnum):
    """How two streams are compared."""

    PAYLOAD = "payload"
    IDENTITY = "identity"


def audit(  # noqa: PLR0917 - the options of a command
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="SENT... [DELIVERED]",
            help="Traces (JSON Lines or Parquet; one file, one from each process, or a folder), or streams: "
            "STORE.db#STREAM, redis://HOST:PORT/DB?pipeline=NAME#STREAM; several streams before the traces of "
            "their readers. Or the file of a replicated queue: its nodes' stores beside it, and further ones as "
            "NAME=STORE.",
            show_default=False,
        ),
    ],
    engine: Annotated[
        EngineName,
        typer.Option(
            help="trace: row by row, payloads and confirms too. local: in bulk, in this process. spark: in bulk, "
            "on --master. auto: trace for files; local for folders, streams and --page."
        ),
    ] = EngineName.AUTO,
    master: Annotated[
        str, typer.Option(help="Where Spark runs, with --engine spark.")
    ] = "local[*]",
    expect: Annotated[
        str,
        typer.Option(
            help="Hold every channel to these: no-loss, no-duplicate, monotonic, gap-free, with commas. Else to "
            "what the traces claim; for streams, to all four.",
            show_default=False,
        ),
    ] = "",
    plan: Annotated[
        Path | None,
        typer.Option(
            help="The pipeline of these traces, a YAML file: also account for the ways between its "
            "pipes, from its sources to the files of its sinks.",
            show_default=False,
        ),
    ] = None,
    match: Annotated[
        MatchName,
        typer.Option(help="Compare two streams by payload, or by producer, epoch and seq."),
    ] = MatchName.PAYLOAD,
    at_rest: Annotated[
        bool,
        typer.Option("--at-rest", help="Nothing more will come: what is missing is lost."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the verdict as a page, one HTML file.", show_default=False),
    ] = None,
    proofs: Annotated[
        bool,
        typer.Option(
            "--proofs",
            help="The places are files of stored proofs (Parquet), or stores of parties (sqlite:///..., "
            "redis://...?pipeline=NAME): verify them all again.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Say what was lost, repeated or out of order: from traces that surepipe run --trace wrote, or from streams.

    A promise that the trace can't show to have held does not count as held: a trace that a kill has cut short
    shows no loss, only messages that had not come yet. Run the pipeline to its end with the same --trace, and
    audit again.
    """

    if proofs:
        _leave(_verify(places, engine, master, as_json=as_json))
        return
    if is_cluster_file(places[0]):
        _leave(_audit_nodes(places, at_rest=at_rest, as_json=as_json))
        return
    named = {"--page": page is not None, "--at-rest": at_rest, "--expect": bool(expect)}
    for_bulk = [*_only_in_bulk(places), *(name for name, is_given in named.items() if is_given)]
    if engine is EngineName.TRACE and for_bulk:
        raise ConfigurationError(
            f"--engine trace reads files of traces row by row; for {' and '.join(for_bulk)} use --engine local"
        )
    if engine in (EngineName.LOCAL, EngineName.SPARK) or for_bulk:
        chosen = "spark" if engine is EngineName.SPARK else "local"
        wish = _Wish(places, chosen, master, expect, str(match), at_rest, page, as_json, plan)
        _leave(_audit_in_bulk(wish))
        return
    _audit_rows(places, plan, as_json=as_json)


def _leave(code: Exit) -> None:
    if code is not Exit.HELD:
        raise typer.Exit(code)


def _audit_rows(traces: Sequence[str], plan: Path | None, *, as_json: bool) -> None:
    from surepipe.audit.trace_audit import audit as judge
    from surepipe.audit.trace_file import TraceFile

    try:
        files = [TraceFile(path) for path in traces]
        result = judge(*files)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{error.filename} can't be read: {reason}") from error
    judged, notes = list(result.judged()), list[str]()
    if plan is not None:
        counted = [
            (one.pipe, one.sent, one.settled, one.dead + one.parked, one.is_whole)
            for one in result.pipes
        ]
        rows = sorted((row for file in files for row in file if row.kind in FACTS), key=_time_of)
        notes = _accounted(plan, counted, rows, judged, is_torn=bool(result.broken))
    code = _code_of(judged)
    if as_json:
        show_json(_document(result, code) | _ends_document(judged, notes))
    else:
        show(_lines(result.lines(), judged, notes))
    _leave(code)


def _time_of(row: Row) -> int:
    return row.time_us


def _accounted(
    file: Path,
    counted: Sequence[tuple[str, int, int, int, bool]],
    rows: Sequence[Row],
    judged: list[Judged],
    expect: frozenset[Atom] | None = None,
    *,
    is_torn: bool,
) -> list[str]:
    """Add what is to be said of the ways between the pipes of a plan; what could not be counted. ``counted``: the
    accepted and settled messages of each channel, those that are dead or parked, and whether none of its rows is
    missing."""
    from surepipe.pipelines import read
    from surepipe.pipelines.accounting import ChannelNumbers, account

    numbers = [ChannelNumbers(*one) for one in counted]
    found = account(read(file).plan, numbers, rows, expect, is_torn=is_torn)
    judged += found.judged
    return found.notes


def _code_of(judged: Sequence[Judged]) -> Exit:
    """Broken before not judged, and held only where there was something to hold."""
    standings = {str(one.standing) for one in judged}
    if "broken" in standings:
        return Exit.VIOLATED
    return Exit.HELD if standings == {"held"} else Exit.NOT_EXERCISED


FACTS = frozenset(("run", "start", "crash", "end", "made", "opened"))
"""The kinds of rows that an account of a plan needs."""
STYLES = {"held": "good", "broken": "bad", "not judged": "warn"}


def _ends(judged: Sequence[Judged], notes: Sequence[str] = ()) -> Iterator[Line]:
    """The last lines: what could not be counted, each promise that is not known to hold, and those that are."""
    yield line("")
    yield from (line(("note: ", "dim"), note) for note in notes)
    open_ones = [one for one in judged if str(one.standing) != "held"]
    for one in _in_one_line(_folded(open_ones)):
        because = ", because " if str(one.standing) == "not judged" else ": "
        why = f"{because}{one.why}" if one.why else ""
        yield line(
            (f"{one.standing}: ", STYLES[str(one.standing)]), f"{one.part}: {one.promise}{why}"
        )
    if not judged:
        yield line(("not judged: ", "warn"), "there is no message in what was read")
    parts: dict[str, list[str]] = {}
    for one in _folded([one for one in judged if str(one.standing) == "held"]):
        parts.setdefault(one.part, []).append(one.promise)
    for part, promises in parts.items():
        yield line(("held: ", "" if open_ones else "good"), f"{part}: {', '.join(promises)}")


def _folded(judged: Sequence[Judged]) -> Iterator[Judged]:
    """The same, but where many channels of one pipe are alike (messages that transactions put into a stream, each
    of a producer of its own), the first stands for all."""

    from surepipe.audit.trace_audit import CHANNELS_MAX

    def alike(one: Judged) -> Judged:
        return replace(one, part=one.part.partition("@")[0])

    counts = Counter(map(alike, judged))
    told: set[Judged] = set()
    for one in judged:
        kind, count = alike(one), counts[alike(one)]
        if count <= CHANNELS_MAX:
            yield one
        elif kind not in told:
            told.add(kind)
            yield replace(one, part=f"{one.part} and {count - 1} channels more of {kind.part}")


def _in_one_line(judged: Iterable[Judged]) -> Iterator[Judged]:
    """The same, but promises of a part that are not judged for one reason are told together."""
    lines: dict[tuple[str, str, str], Judged] = {}
    for one in judged:
        is_open = str(one.standing) == "not judged"
        kind = (one.part, "" if is_open else one.promise, one.why)
        known = lines.get(kind)
        promise = f"{known.promise}, {one.promise}" if known else one.promise
        lines[kind] = replace(one, promise=promise)
    yield from lines.values()


def _lines(texts: Iterable[str], judged: Sequence[Judged], notes: Sequence[str]) -> Iterator[Line]:
    for text in texts:
        is_broken = ": broken" in text or text.startswith("broken trace")
        style = "bad" if is_broken else "head" if not text.startswith(" ") else ""
        indent = len(text) - len(text.lstrip())
        yield line((text.strip(), style) if style else text.strip(), indent=indent)
    yield from _ends(judged, notes)


def _document(result: Audit, code: Exit) -> dict[str, object]:
    return {
        "exit": int(code),
        "ended": result.ended,
        "torn": result.torn,
        "broken": list(result.broken),
        "pipes": [
            {
                "pipe": pipe.pipe,
                "accepted": pipe.sent,
                "settled": pipe.settled,
                "dead": pipe.dead,
                "parked": pipe.parked,
                "waiting": pipe.waiting,
                "lost": pipe.lost,
                "repeated": pipe.repeated,
                "out_of_order": pipe.out_of_order,
                "properties": [
                    {
                        "id": one.id,
                        "name": one.name,
                        "outcome": str(one.outcome),
                        "promised": one.id in pipe.promised,
                        "count": one.count,
                        "why": one.why,
                    }
                    for one in pipe.findings
                ],
            }
            for pipe in result.pipes
        ],
    }


def _ends_document(judged: Sequence[Judged], notes: Sequence[str]) -> dict[str, object]:
    """Every promise, and what could not be counted, for machines."""
    told = [
        {"part": one.part, "promise": one.promise, "standing": str(one.standing), "why": one.why}
        for one in judged
    ]
    return {"judged": told, "notes": list(notes)}


# In bulk: two logs of any size, in this process or on Spark.


@dataclass(frozen=True, slots=True)
class _Wish:
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


def _only_in_bulk(places: Sequence[str]) -> Iterator[str]:
    """What only an audit in bulk can read, in words: streams, and folders of traces."""
    for text in places:
        if Path(text).is_dir():
            yield f"the folder {text}"
        elif "#" in text and not Path(text).exists():
            yield f"the stream {text}"


def _further(places: Sequence[Place]) -> tuple[StoredStream, ...]:
    """The streams that are named between the first place and the last."""
    from surepipe.audit.bulk import StoredStream, Traces

    more = [one for one in places[1:-1] if isinstance(one, StoredStream)]
    is_beside = isinstance(places[0], StoredStream) and isinstance(places[-1], Traces)
    if len(places) > 2 and not (is_beside and len(more) == len(places) - 2):
        raise ConfigurationError(
            f"{len(places)} places are given: name SENT and DELIVERED, or several streams and behind them the "
            "traces of who reads them; put more traces into a folder"
        )
    names = [str(one.stream) for one in (places[0], *more) if isinstance(one, StoredStream)]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            f"streams of one name are given ({', '.join(names)}), which traces don't tell apart: audit one at "
            "a time"
        )
    return tuple(more)


def _audit_in_bulk(wish: _Wish) -> Exit:
    """Judge, show, and say how it went. Raises SurepipeError for what can't be read."""
    from surepipe.audit.bulk import Question, judge, place_of
    from surepipe.audit.bulk.page import page

    places = [place_of(text) for text in wish.places]
    more = _further(places)
    question = Question(
        sent=places[0],
        delivered=places[-1],
        at_rest=True if wish.at_rest else None,
        expect=_expected(wish.expect),
        match="identity" if wish.match == "identity" else "payload",
        timeline=wish.page is not None,
        more=more,
    )
    with _engine(wish) as engine:
        found = judge(engine, question)
    judged, notes = list(found.judged()), list[str]()
    if wish.plan is not None:
        counted = [
            (one.channel, one.sent, one.settled, one.dead + one.parked, not one.is_unreadable)
            for one in found.channels
        ]
        expected = _expected(wish.expect)
        notes = _accounted(
            wish.plan, counted, found.facts, judged, expected, is_torn=bool(found.broken)
        )
    code = _code_of(judged)
    if wish.as_json:
        show_json(_document_in_bulk(found, code) | _ends_document(judged, notes))
    else:
        show(_lines(found.lines(), judged, notes))
    if wish.page is not None:
        title = " → ".join(dict.fromkeys((Path(found.sent).name, Path(found.delivered).name)))
        wish.page.parent.mkdir(parents=True, exist_ok=True)
        if wish.as_json:
            wish.page.write_text(page(found, f"Audit: {title}", judged, notes), encoding="utf-8")
        else:
            write_file(wish.page, page(found, f"Audit: {title}", judged, notes))
    return code


@contextmanager
def _engine(wish: _Wish) -> Generator[AuditEngine]:
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


def _verify(places: Sequence[str], engine: EngineName, master: str, *, as_json: bool) -> Exit:
    """Verify stored proofs, on all cores here or on Spark; or all that the stores of parties have."""
    if any("://" in place for place in places):
        return _audit_parties(places, as_json=as_json)
    from surepipe.audit.proofs import verify_files

    files = [Path(place) for place in places]
    if engine is EngineName.TRACE:
        raise ConfigurationError("--proofs are no traces: use --engine local or spark")
    if engine is EngineName.SPARK:
        from surepipe.spark.proofs import verify_on_spark
        from surepipe.spark.session import SparkOptions, open_session

        session = open_session(SparkOptions(master=master, app_name="surepipe audit --proofs"))
        try:
            found = verify_on_spark(session, files)
        finally:
            session.stop()
    else:
        found = verify_files(files)
    judged = found.shown + found.not_shown
    code = Exit.VIOLATED if found.not_shown else Exit.HELD if judged else Exit.NOT_EXERCISED
    if as_json:
        examples = [
            {"root": root.hex(), "space": space.hex(), "key": key.hex()}
            for root, space, key in found.examples
        ]
        numbers = {"rows": found.rows, "shown": found.shown, "not_shown": found.not_shown}
        show_json({"exit": int(code), **numbers, "examples": examples})
    else:
        show(
            line((text.strip(), "bad") if text.startswith("broken") else text)
            for text in found.lines()
        )
    return code


def _audit_nodes(places: Sequence[str], *, at_rest: bool, as_json: bool) -> Exit:
    """What the nodes of a replicated queue have stored, judged together."""
    found = audit_cluster(places, at_rest=at_rest)
    code = _code_of(found.judged)
    if as_json:
        show_json({"exit": int(code)} | _ends_document(found.judged, found.notes))
    else:
        show(_ends(found.judged, found.notes))
    return code


def _audit_parties(places: Sequence[str], *, as_json: bool) -> Exit:
    """Each ledger by itself, the connections between those that are given, and the proofs that they keep."""
    from surepipe.cli.relaying import ledger_at
    from surepipe.queues.ibc.auditing import (
        first_kept,
        judge_believed,
        judge_connection,
        judge_ledger,
        judge_submissions,
    )

    with ExitStack() as stack:
        ledgers = [ledger_at(place, stack) for place in places]
        found = [f"{ledger.party}: {text}" for ledger in ledgers for text in judge_ledger(ledger)]
        told: list[str] = []
        by_party = {ledger.party: ledger for ledger in ledgers}
        for ledger in ledgers:
            first, last = first_kept(ledger), ledger.merkle.latest.height
            was = "replayed" if first == 1 else f"those before {first} are trimmed, and not known"
            told.append(f"{ledger.party}: {last} blocks, {was}")
            for each in ledger.connections.values():
                kept = judge_submissions(ledger, each.name)
                told.append(
                    f"{ledger.party}: of proofs by {each.name}, {kept.valid} are valid, {kept.invalid} were "
                    f"refused rightly, {kept.unknown} can't be judged any more"
                )
                told += [
                    f"{ledger.party}: message {index} of {each.name} was executed, and what is left in inboxes of "
                    "relays doesn't show it: what was trimmed must have"
                    for index in kept.unproven
                ]
                other = by_party.get(each.party)
                if other is None:
                    told.append(f"{ledger.party}: the ledger of {each.party} is not at hand")
                elif ledger.party < each.party and each.known_as in other.connections:
                    found += judge_connection(ledger, other, (each.name, each.known_as))
        for ledger in ledgers:
            for party in dict.fromkeys(each.party for each in ledger.connections.values()):
                if party in by_party:
                    found += judge_believed(ledger, by_party[party])
    code = Exit.VIOLATED if found else Exit.HELD
    if as_json:
        show_json({"exit": int(code), "broken": found, "told": told})
    else:
        show(line(("broken", "bad"), f": {text}") for text in found)
        show(line(text) for text in told)
    return code


def _expected(text: str) -> frozenset[Atom] | None:
    from surepipe.core.claims import Atom

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


_NUMBERS = (
    *(
        "sent",
        "settled",
        "dead",
        "parked",
        "waiting",
        "lost",
        "unknown",
        "repeated",
        "out_of_order",
    ),
    *("gaps", "passed_over", "widest", "foreign", "untold"),
)


def _document_in_bulk(found: BulkAudit, code: Exit) -> dict[str, object]:
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
