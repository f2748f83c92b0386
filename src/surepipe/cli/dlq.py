"""``surepipe dlq``: messages that failed too often, listed, shown, and sent again."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.exits import Exit, epilog
from surepipe.cli.output import complain, line, show, show_json, write_bytes

if TYPE_CHECKING:
    from surepipe.pipelines import Plan
    from surepipe.storage.dead_letters import DeadLetterStream, StoredLetter

_USES = epilog(Exit.HELD, Exit.UNUSABLE)
dlq = typer.Typer(
    help="Dead letters: messages that failed too often, with why. List them, look at one, send them again.",
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)]
Stream = Annotated[
    str | None,
    typer.Argument(
        metavar="[STORE/STREAM]",
        help="The dead letters, as dead_letter names them; all of the file when not given.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for machines.")]


@dlq.command("list", epilog=_USES)
def list_letters(file: File, stream: Stream = None, as_json: AsJson = False) -> None:
    """List dead letters, one on each line: what failed, how often, how, and whether it was sent again since."""
    plan = _plan(file)
    found: dict[str, list[StoredLetter]] = {}
    sent: dict[str, int] = {}
    for name in _streams(plan, stream):
        with _opened(plan, name) as letters:
            found[name] = list(letters.all())
            sent[name] = letters.sent_again_before(letters.store)
    if as_json:
        show_json(
            {
                name: [_facts(one) | {"sent_again": one.index < sent[name]} for one in listed]
                for name, listed in found.items()
            }
        )
        return
    for name, listed in found.items():
        count = {0: "no letter", 1: "1 letter"}.get(len(listed), f"{len(listed)} letters")
        show([line((name, "head"), f"  {count}")])
        for one in listed:
            again = "  sent again" if one.index < sent[name] else ""
            show([line(one.line(), (again, "dim"), indent=2)])


@dlq.command("show", epilog=_USES)
def show_letter(
    file: File,
    stream: Annotated[str, typer.Argument(metavar="STORE/STREAM", help="The dead letters.")],
    index: Annotated[int, typer.Argument(help="The number that list shows.", min=1)],
    as_json: AsJson = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Only the payload, byte for byte: for a file or another program."
        ),
    ] = False,
) -> None:
    """Show one dead letter with its payload: JSON as JSON, text as text, other bytes in hexadecimal."""
    if raw and as_json:
        complain("--raw and --json say two things: give one of them")
        raise typer.Exit(Exit.UNUSABLE)
    from surepipe.cli.payloads import payload_facts, payload_lines

    plan = _plan(file)
    (name,) = _streams(plan, stream)
    with _opened(plan, name) as letters:
        found = letters.show(index)
    if found is None:
        complain(f"{name} has no letter {index}: see surepipe dlq list")
        raise typer.Exit(Exit.UNUSABLE)
    if raw:
        write_bytes(found.letter.payload)
    elif as_json:
        show_json(_facts(found) | payload_facts(found.letter.payload))
    else:
        head, *rest = map(str.strip, found.about().splitlines())
        show([line(head), *(line(text, indent=2) for text in rest)])
        show(line(text, indent=2) for text in payload_lines(found.letter.payload))


@dlq.command(epilog=_USES)
def replay(
    file: File,
    stream: Annotated[str, typer.Argument(metavar="STORE/STREAM", help="The dead letters.")],
    limit: Annotated[
        int | None, typer.Option(help="At the most so many.", min=1, show_default=False)
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="The node to run. Needed where the pipeline has several.")
    ] = None,
) -> None:
    """Send dead letters again, oldest first, each as a new message into the pipe that it came from.

    It goes through the whole pipeline behind that pipe; no source is read meanwhile. Letters stay in the list, and
    those that were replayed are not sent again: what fails again is a new letter. Stop surepipe run first.
    """
    from surepipe.cli.replaying import replayed

    plan = _plan(file)
    (name,) = _streams(plan, stream)
    show([line(replayed(plan, name, limit, node))])


def _plan(file: Path) -> Plan:
    from surepipe.pipelines import load

    return load(file)


def _streams(plan: Plan, chosen: str | None) -> list[str]:
    """The dead letters of the file, or those that were asked for."""
    parts = (*plan.sources, *plan.stages, *plan.sinks)
    named: list[str] = [one for part in parts if (one := getattr(part, "dead_letter", None))]
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
def _opened(plan: Plan, name: str) -> Generator[DeadLetterStream]:
    """The letters in their store, which is opened for that."""
    from surepipe.pipelines.engine import RealEnvironment
    from surepipe.pipelines.engine.running import close_store
    from surepipe.storage.dead_letters import DeadLetterStream

    store_name, _, stream = name.partition("/")
    store = RealEnvironment(plan).store(plan.store(store_name))
    try:
        yield DeadLetterStream(store, stream)
    finally:
        close_store(store)


def _facts(stored: StoredLetter) -> dict[str, object]:
    letter = stored.letter
    return {
        "index": stored.index,
        "pipe": letter.pipe,
        "epoch": letter.epoch,
        "seq": letter.seq,
        "attempts": letter.attempts,
        "error": letter.error_type,
        "text": letter.error_text,
        "first_failure_us": letter.first_failure_us,
        "last_failure_us": letter.last_failure_us,
        "replays": letter.replays,
        "bytes": len(letter.payload),
    }
