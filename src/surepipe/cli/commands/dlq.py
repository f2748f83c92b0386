"""``surepipe dlq``: messages that failed too often, listed, shown, sent again, and deleted."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from surepipe.cli.output import Exit, complain, epilog, line, show, show_json, write_bytes

if TYPE_CHECKING:
    from surepipe.audit.bulk import StoredStream
    from surepipe.pipelines import Plan
    from surepipe.storage.letters import DeadLetterStream, Fates, StoredLetter


_USES = epilog(Exit.HELD, Exit.UNUSABLE)
dlq = typer.Typer(
    help="Dead letters: messages that failed too often, with why. List them, look at one, send again, delete.",
    no_args_is_help=True,
)

Where: TypeAlias = "Plan | StoredStream"
"""A plan, which names its dead letters, or a stream of them by its store."""
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE|STORE#STREAM",
        help="The pipeline, a YAML file. Or dead letters by their store, also of a Python program: "
        "STORE.db#STREAM, redis://HOST:PORT/DB?pipeline=NAME#STREAM.",
        show_default=False,
    ),
]
Stream = Annotated[
    str | None,
    typer.Argument(
        metavar="[STORE/STREAM]",
        help="The dead letters, as dead_letter names them; all of the file when not given.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for machines.")]


Chosen = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[STORE/STREAM] [N]...",
        help="The dead letters, needed where the file names several; and the numbers that list shows.",
        show_default=False,
    ),
]


@dlq.command("list", epilog=_USES)
def list_letters(
    file: File,
    stream: Stream = None,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Show those too that were deleted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, one on each line: what failed, how often, how, and whether it was sent again since."""
    where = _where(file)
    found: dict[str, list[tuple[StoredLetter, Fates]]] = {}
    hidden: dict[str, int] = {}
    for name in _streams(where, stream):
        with _opened(where, name) as letters:
            fates = letters.fates()
            stored = [(one, fates) for one in letters.all()]
        found[name] = [
            (one, fates) for one, fates in stored if deleted or one.index not in fates.deleted
        ]
        hidden[name] = len(stored) - len(found[name])
    if as_json:
        show_json(
            {name: [_facts(one, fates) for one, fates in listed] for name, listed in found.items()}
        )
        return
    for name, listed in found.items():
        more = f", {hidden[name]} deleted (--deleted shows them)" if hidden[name] else ""
        show([line((name, "head"), f"  {_count(len(listed))}{more}")])
        for one, fates in listed:
            again = "  sent again" if fates.is_sent(one.index) else ""
            gone = "  deleted" if one.index in fates.deleted else ""
            show([line(one.line(), (again + gone, "dim"), indent=2)])


@dlq.command("show", epilog=_USES)
def show_letter(
    file: File,
    chosen: Chosen = None,
    as_json: AsJson = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Only the payload, byte for byte: for a file or another program."
        ),
    ] = False,
) -> None:
    """Show one dead letter, when it was sent again, and its payload: JSON as JSON, text as text, other bytes in
    hexadecimal.

    surepipe dlq show pipeline.yaml 3

    surepipe dlq show shop.db#orders/dead 3
    """
    if raw and as_json:
        complain("--raw and --json say two things: give one of them")
        raise typer.Exit(Exit.UNUSABLE)
    from surepipe.cli.letters import payload_facts, payload_lines

    where = _where(file)
    names, numbers = _chosen(where, chosen)
    if len(numbers) != 1:
        complain("show has one letter: give its number, as surepipe dlq list shows it")
        raise typer.Exit(Exit.UNUSABLE)
    (index,), name = numbers, _only(names)
    with _opened(where, name) as letters:
        found, fates = letters.show(index), letters.fates()
    if found is None:
        complain(f"{name} has no letter {index}: see surepipe dlq list")
        raise typer.Exit(Exit.UNUSABLE)
    if raw:
        write_bytes(found.letter.payload)
    elif as_json:
        facts = _facts(found, fates) | {"traceback": found.letter.traceback}
        show_json(facts | payload_facts(found.letter.payload))
    else:
        head, *rest = map(str.strip, found.about().splitlines())
        rest += fates.said(index)
        # An error may quote its message: what a terminal would obey is shown as Python writes it.
        raised = found.letter.traceback.splitlines()
        rest += [text if text.isprintable() else repr(text)[1:-1] for text in raised]
        show([line(head), *(line(text, indent=2) for text in rest)])
        show(line(text, indent=2) for text in payload_lines(found.letter.payload))


@dlq.command(epilog=epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE))
def replay(
    file: File,
    chosen: Chosen = None,
    limit: Annotated[
        int | None, typer.Option(help="Replay at most so many letters.", min=1, show_default=False)
    ] = None,
) -> None:
    """Send dead letters again, oldest first, each as a new message into the pipe that it came from: all that wait,
    or one, by its number.

    It goes through the whole pipeline behind that pipe; no source is read meanwhile. Letters stay in the list, and
    those that were replayed are not sent again: what fails again is a new letter, and the exit code is 1. Stop the
    node that fills the pipe first; other nodes must run, as ever.

    surepipe dlq replay pipeline.yaml      all that were not sent again yet

    surepipe dlq replay pipeline.yaml 3    letter 3 alone
    """
    from surepipe.audit.bulk import StoredStream
    from surepipe.cli.letters import replayed

    where = _where(file)
    if isinstance(where, StoredStream):
        complain(_NO_PIPE.format(where, where.stream))
        raise typer.Exit(Exit.UNUSABLE)
    names, numbers = _chosen(where, chosen)
    if len(numbers) > 1 or (numbers and limit is not None):
        complain("replay sends all that wait (--limit: so many of them), or one by its number")
        raise typer.Exit(Exit.UNUSABLE)
    name = _only(names)
    with _opened(where, name) as letters:
        said, again = replayed(where, name, letters, limit, numbers[0] if numbers else None)
    show([line(said)])
    if again:
        raise typer.Exit(Exit.VIOLATED)


@dlq.command(epilog=_USES)
def delete(
    file: File,
    chosen: Chosen = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that are there now, sent again or not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters: list hides them, and no replay sends them. There is no way back.

    The store keeps their bytes until its stream is trimmed, and show still has them. A letter that a replay is
    sending at this moment goes through all the same.

    surepipe dlq delete pipeline.yaml 3 4

    surepipe dlq delete pipeline.yaml --all
    """
    where = _where(file)
    names, numbers = _chosen(where, chosen)
    if everything == bool(numbers):
        complain("delete needs the numbers that surepipe dlq list shows, or --all, and not both")
        raise typer.Exit(Exit.UNUSABLE)
    name = _only(names)
    with _opened(where, name) as letters:
        if everything:
            numbers = [one.index for one in letters.all()]
        elif absent := [index for index in numbers if letters.show(index) is None]:
            said = ", ".join(map(str, absent))
            complain(f"{name} has no letter {said}, so nothing was deleted: see surepipe dlq list")
            raise typer.Exit(Exit.UNUSABLE)
        gone = [index for index in dict.fromkeys(numbers) if letters.delete(index)]
    before = len(set(numbers)) - len(gone)
    if as_json:
        show_json({"stream": name, "deleted": gone, "deleted_before": before})
        return
    again = f" ({before} before)" if before else ""
    kept = "; the store keeps the bytes until its stream is trimmed" if gone else ""
    show([line(f"{_count(len(gone))} of {name} deleted{again}{kept}")])


def _count(number: int) -> str:
    return {0: "no letter", 1: "1 letter"}.get(number, f"{number} letters")


_NO_PIPE = (
    "a replay sends letters into a pipe, and {} names none: replay them in the program that has it, with "
    'pipe.replay(DeadLetterStream(store, "{}")) (docs/storage.md, "Dead letters"), or name its pipeline, a YAML '
    "file"
)


def _chosen(where: Where, words: list[str] | None) -> tuple[list[str], list[int]]:
    """The streams and the numbers that were asked for: one stream before them, or none."""
    given = list(words or ())
    stream = given.pop(0) if given and not given[0].isdecimal() else None
    if wrong := [word for word in given if not word.isdecimal() or int(word) < 1]:
        complain(f"{wrong[0]!r} is no number of a letter: they count from 1, see surepipe dlq list")
        raise typer.Exit(Exit.UNUSABLE)
    return _streams(where, stream), [int(word) for word in given]


def _only(names: list[str]) -> str:
    """The one stream that is meant."""
    if len(names) == 1:
        return names[0]
    complain(f"there are dead letters in {', '.join(names)}: say which, before the number")
    raise typer.Exit(Exit.UNUSABLE)


def _where(text: str) -> Where:
    from surepipe.audit.bulk import StoredStream, place_of
    from surepipe.pipelines import load

    if "://" not in text and ("#" not in text or Path(text).exists()):
        return load(Path(text))
    place = place_of(text)
    assert isinstance(place, StoredStream), "a name with # that is no file"
    return place


def _streams(where: Where, chosen: str | None) -> list[str]:
    """The dead letters that are named, or those of the file that were asked for."""
    from surepipe.audit.bulk import StoredStream

    if not isinstance(where, StoredStream):
        return _streams_of(where, chosen)
    if chosen is not None:
        complain(f"{where} names a stream already: leave {chosen} out")
        raise typer.Exit(Exit.UNUSABLE)
    return [str(where)]


def _streams_of(plan: Plan, chosen: str | None) -> list[str]:
    parts = (*plan.sources, *plan.stages, *plan.sinks)
    named: list[str] = [one for part in parts if (one := getattr(part, "dead_letter", None))]
    named += [
        f"{book.store}/{plan.name}/{pipe.name}/dead" for pipe in plan.pipes if (book := pipe.book)
    ]
    named += [
        between.dead_letter
        for pipe in plan.pipes
        if (between := pipe.ibc) is not None and between.dead_letter is not None
    ]
    known = list(dict.fromkeys(named))
    if chosen is None and known:
        return known
    if chosen in known:
        return [chosen]
    said = f"has no dead letters {chosen!r}: it names {', '.join(known)}"
    complain(
        f"{plan.name} {said if known else 'names no dead letters: write dead_letter on a source, stage or sink'}"
    )
    raise typer.Exit(Exit.UNUSABLE)


@contextmanager
def _opened(where: Where, name: str) -> Generator[DeadLetterStream]:
    """The letters in their store, which is opened for that."""
    from surepipe.audit.bulk import StoredStream

    opened = _in_store(where) if isinstance(where, StoredStream) else _in_plan(where, name)
    with opened as letters:
        yield letters


@contextmanager
def _in_store(place: StoredStream) -> Generator[DeadLetterStream]:
    from surepipe.audit.bulk.logs import opened
    from surepipe.storage.letters import DeadLetterStream

    with closing(opened(place)) as store:
        try:
            letters = DeadLetterStream.found(store, place.stream)
        except LookupError as error:
            complain(f"{place}: {error.args[0]}")
            raise typer.Exit(Exit.UNUSABLE) from error
        yield letters


@contextmanager
def _in_plan(plan: Plan, name: str) -> Generator[DeadLetterStream]:
    from surepipe.pipelines.run import RealEnvironment
    from surepipe.pipelines.run.running import close_store
    from surepipe.storage.letters import DeadLetterStream

    store_name, _, stream = name.partition("/")
    if plan.store(store_name).kind == "memory":
        complain(
            f"{name} is in memory, and ended with the run: a store of kind sqlite or redis keeps dead letters"
        )
        raise typer.Exit(Exit.UNUSABLE)
    store = RealEnvironment(plan).existing_store(plan.store(store_name))
    try:
        yield DeadLetterStream(store, stream)
    finally:
        close_store(store)


def _facts(stored: StoredLetter, fates: Fates) -> dict[str, object]:
    letter = stored.letter
    return {
        "index": stored.index,
        "pipe": letter.pipe,
        "producer": letter.producer,
        "epoch": letter.epoch,
        "seq": letter.seq,
        "attempts": letter.attempts,
        "error": letter.error_type,
        "text": letter.error_text,
        "first_failure_us": letter.first_failure_us,
        "last_failure_us": letter.last_failure_us,
        "replays": letter.replays,
        "bytes": len(letter.payload),
        "sent_again": fates.is_sent(stored.index),
        "sent_as": fates.sent.get(stored.index),
        "deleted": stored.index in fates.deleted,
        "deleted_us": fates.deleted.get(stored.index, {}).get("at_us"),
    }
