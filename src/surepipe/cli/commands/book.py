"""``surepipe book``: the queues of a book, what waits for a person in it, and what a person does about that."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import Exit, complain, epilog, line, show, show_json, write_bytes

if TYPE_CHECKING:
    from surepipe.pipelines import Plan
    from surepipe.pipelines.models.pipes import PipePart
    from surepipe.queues.book import BookQueue, Manual, Parked


_USES = epilog(Exit.HELD, Exit.UNUSABLE)
book = typer.Typer(
    help="Pipes through a book: their queues, and the messages that wait for a person. List them, look at one, "
    "run it by hand, put it in again, give it up; pause a queue, or give it a larger share.",
    no_args_is_help=True,
)
LISTED = 100
File = Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)]
Address = Annotated[str, typer.Argument(help="The message, as list names it.", show_default=False)]
Key = Annotated[str, typer.Argument(help="The key of the queue.", show_default=False)]
OfPipe = Annotated[
    str | None,
    typer.Option("--pipe", help="The pipe, where several go through a book.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for machines.")]
OnlyKey = Annotated[
    str | None, typer.Option("--key", help="Only those of this key.", show_default=False)
]


@book.command(epilog=_USES)
def queues(file: File, pipe: OfPipe = None, as_json: AsJson = False) -> None:
    """Show the queues that have messages: those to be served first, the head of the ring at the top, then those
    where everything is parked."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        ring, totals = opened.ring(), opened.totals()
        parked = [origin for origin in opened.origins() if origin not in set(ring)]
        facts = [_queue_facts(opened, origin) for origin in (*ring, *parked)]
    facts = [one for one in facts if one["messages"]]
    if as_json:
        show_json({"pipe": part.name, "totals": dict(totals), "queues": facts})
        return
    told = ", ".join(f"{count} {name.replace('_', '-')}" for name, count in totals.items() if count)
    show([line((part.name, "head"), f"  {told or 'nothing was ever put in'}")])
    width = max((len(_shown(str(one["key"]))) for one in facts), default=0)
    for one in facts:
        said = [f"{one['waiting']} waiting", f"{one['parked']} parked"]
        said += [word for word in ("paused", "blocked") if one[word]]
        said += [f"weight {one['weight']}"] if one["weight"] != 1 else []
        show([line(_shown(str(one["key"])).ljust(width), f"  {', '.join(said)}", indent=2)])


def _queue_facts(opened: BookQueue, origin: str) -> dict[str, object]:
    of, foot = opened.ledger.books[origin], opened.footprint(origin)
    return {
        "key": origin,
        "messages": foot.messages,
        "waiting": foot.messages - foot.parked,
        "parked": foot.parked,
        "bytes": foot.bytes,
        "paused": of.paused,
        "blocked": of.blocked is not None,
        "weight": of.weight,
    }


@book.command("list", epilog=_USES)
def list_parked(
    file: File,
    pipe: OfPipe = None,
    key: OnlyKey = None,
    limit: Annotated[int, typer.Option(help="Show at most so many messages.", min=1)] = LISTED,
    as_json: AsJson = False,
) -> None:
    """List the messages that wait for a person, one on each line: its address, key, why, and what it costs."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        found = opened.parked(key, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        show_json([_facts(one) for one in found])
        return
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.since / 1_000_000))
        since = f", since {when} UTC" if one.since else ""
        tries = f" after {one.attempts} attempts" if one.attempts else ""
        error = f": {_shown(one.error)}" if one.error else ""
        said = f"  {_shown(one.origin)}  {one.reason}{tries}, {_cost(one)}{since}{error}"
        show([line((one.address, "head"), said)])
    if not found:
        show([line(f"nothing waits for a person in {part.name}")])
    if more:
        show([line((f"there are more: --limit shows more than {limit}", "dim"))])


@book.command("show", epilog=_USES)
def show_message(
    file: File,
    address: Address,
    pipe: OfPipe = None,
    as_json: AsJson = False,
    raw: Annotated[bool, typer.Option("--raw", help="Only the payload, byte for byte.")] = False,
) -> None:
    """Show the payload of a message that waits for a person."""
    from surepipe.cli.letters import payload_facts, payload_lines

    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        payload = opened.payload(address)
    if payload is None:
        complain(f"nothing waits in {part.name} under {address}: see surepipe book list")
        raise typer.Exit(Exit.UNUSABLE)
    if raw:
        write_bytes(payload)
    elif as_json:
        show_json({"address": address} | payload_facts(payload))
    else:
        show(line(text) for text in payload_lines(payload))


@book.command(epilog=epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE))
def execute(file: File, address: Address, pipe: OfPipe = None, as_json: AsJson = False) -> None:
    """Run a message that waits for a person through what follows the book, however much it costs.

    What follows is run here, and all pipes of that node are opened: stop the node first.
    """
    from surepipe.pipelines.run import PlanEngine, RealEnvironment

    plan, part = _of(file, pipe)
    _require_lasting(plan, part)
    failures: list[BaseException] = []
    environment = RealEnvironment(plan, stopped=failures.append)
    node = plan.places[part.name].node
    engine = PlanEngine(
        plan, node, environment, once=True, until_idle=True, with_sources=False, by_hand=True
    )
    engine.start()
    try:
        done = engine.execute(part.name, address)
        while not engine.look():
            if failures:
                raise failures[0]
            engine.wait(0.05)
    finally:
        engine.close()
    _tell(part, "executed", done, as_json=as_json)


@book.command(epilog=_USES)
def requeue(
    file: File,
    address: Address,
    pipe: OfPipe = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="To the queue of this key, not its own.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a message that waits for a person at the end of its queue again. What costs too much is parked again,
    unless the file allows it by now."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        done = opened.requeue(address, key)
    _tell(part, "put in again", done, as_json=as_json)


@book.command(epilog=_USES)
def discard(
    file: File,
    address: Address,
    note: Annotated[str, typer.Option(help="Why; it stands in the dead letter.")],
    pipe: OfPipe = None,
    as_json: AsJson = False,
) -> None:
    """Give a message up that waits for a person: it goes to the dead letters, with the note."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        done = opened.discard(address, note)
    _tell(part, "given up", done, as_json=as_json)


@book.command(epilog=_USES)
def pause(file: File, key: Key, pipe: OfPipe = None) -> None:
    """Serve the queue of a key no more, until resume. It takes messages all the same."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        opened.pause(key)
    show([line(f"{part.name}: {_shown(key)} is paused")])


@book.command(epilog=_USES)
def resume(file: File, key: Key, pipe: OfPipe = None) -> None:
    """Serve the queue of a key again."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        opened.unpause(key)
    show([line(f"{part.name}: {_shown(key)} is served")])


@book.command(epilog=_USES)
def weight(
    file: File,
    key: Key,
    share: Annotated[int, typer.Argument(help="From 1 to 1000.", min=1, max=1_000)],
    pipe: OfPipe = None,
) -> None:
    """Give the queue of a key so many times the share of others."""
    plan, part = _of(file, pipe)
    with _opened(plan, part) as opened:
        opened.set_weight(key, share)
    show([line(f"{part.name}: {_shown(key)} has weight {share}")])


def _of(file: Path, name: str | None) -> tuple[Plan, PipePart]:
    """The plan, and its pipe through a book that is meant."""
    from surepipe.pipelines import load

    plan = load(file)
    found = [pipe for pipe in plan.pipes if pipe.book is not None and name in (None, pipe.name)]
    if len(found) == 1:
        return plan, found[0]
    known = ", ".join(pipe.name for pipe in plan.pipes if pipe.book is not None)
    if not known:
        complain(
            f"{plan.name} has no pipe through a book: write route: {{kind: book, store: NAME}}"
        )
    elif name is None:
        complain(f"{plan.name} has several pipes through books: name one with --pipe: {known}")
    else:
        complain(f"pipe {name!r} of {plan.name} goes through no book; those that do: {known}")
    raise typer.Exit(Exit.UNUSABLE)


def _require_lasting(plan: Plan, part: PipePart) -> None:
    if plan.store(part.stream_store or "").kind == "memory":
        complain(
            f"the book of {part.name} is in memory, and ended with the run: a store of kind sqlite or redis "
            "keeps it"
        )
        raise typer.Exit(Exit.UNUSABLE)


@contextmanager
def _opened(plan: Plan, part: PipePart) -> Generator[BookQueue]:
    """The book, for a look and for what needs no handler, also while a run has it open."""
    from surepipe.core.store_requests import StreamInfo
    from surepipe.pipelines.run import RealEnvironment
    from surepipe.pipelines.run.books import HAND, book_by_hand
    from surepipe.pipelines.run.running import close_store

    _require_lasting(plan, part)
    store = RealEnvironment(plan).existing_store(plan.store(part.stream_store or ""))
    try:
        if not isinstance(store.info(f"{plan.name}/{part.name}/log"), StreamInfo):
            complain(f"pipe {part.name} has no book in its store yet: run the pipeline first")
            raise typer.Exit(Exit.UNUSABLE)
        yield book_by_hand(plan, part, store, HAND)
    finally:
        close_store(store)


def _tell(part: PipePart, what: str, done: Manual, *, as_json: bool) -> None:
    """What came of it. Ends with an exit code where nothing was done."""
    if as_json:
        facts = {"ok": done.ok, "why": str(done.why), "address": done.address, "error": done.error}
        show_json(facts | {"pipe": part.name})
    elif done.ok:
        moved = f", as {done.address}" if what == "put in again" else ""
        show([line(f"{part.name}: {what} ({done.why}){moved}")])
    else:
        error = f" ({_shown(done.error)})" if done.error else ""
        complain(f"{part.name}: not {what}: {_WHY.get(str(done.why), str(done.why))}{error}")
    if not done.ok:
        raise typer.Exit(Exit.VIOLATED if str(done.why) == "not-now" else Exit.UNUSABLE)


_WHY = {
    "paused": "its queue is paused",
    "not-found": "there is no such message any more",
    "still-queued": "it waits to be served, and needs nobody",
    "already-processed": "it is dealt with already",
    "busy": "somebody deals with it at this moment",
    "not-now": "it failed again, or was put off; it waits as before",
    "full": "the queue is full",
}


def _facts(one: Parked) -> dict[str, object]:
    names = ("messages", "bytes", "units", "microseconds")
    return {
        "address": one.address,
        "key": one.origin,
        "reason": str(one.reason),
        "cost": dict(zip(names, one.cost, strict=True)),
        "attempts": one.attempts,
        "bytes": one.bytes,
        "since_us": one.since,
        "error": one.error,
    }


def _cost(one: Parked) -> str:
    return f"{one.cost[2]} units, {one.bytes} bytes"


def _shown(text: str) -> str:
    """A key, or what an error says, without what a terminal obeys."""
    return text if text.isprintable() else repr(text)[1:-1]
