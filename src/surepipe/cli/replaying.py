"""Replaying the dead letters of a pipeline: its pipes run for that, without its sources."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import complain
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run import Engine, RealEnvironment
from surepipe.pipelines.run.pipes import pipe_name
from surepipe.pipelines.run.running import letters_in
from surepipe.storage.letters import Fates, StoredLetter

LOOK_S = 0.05


def replayed(plan: Plan, name: str, limit: int | None, node: str | None, index: int | None) -> str:
    """Replay all that waits, or one letter, wait until all is through, and say how it went."""
    failures: list[BaseException] = []
    engine = Engine(
        plan,
        node or plan.nodes[0],
        RealEnvironment(plan, stopped=failures.append),
        once=True,
        until_idle=True,
        with_sources=False,
    )
    engine.start()
    try:
        letters = letters_in(engine.stores, name)
        fates = letters.fates()
        if index is not None:
            refuse_unsendable(name, fates, index, letters.show(index) is not None)
        waiting = [
            stored
            for stored in letters.all()
            if not fates.is_sent(stored.index) and stored.index not in fates.deleted
        ]
        chosen = [stored for stored in waiting if index in (None, stored.index)]
        if not chosen:
            return f"no letter in {name} is waiting"
        pipe = _pipe_of(plan, engine, name, chosen)
        result = engine.replay(pipe, letters, limit, index)
        while not engine.look():
            if failures:
                raise failures[0]
            engine.wait(LOOK_S)
    finally:
        engine.close()
    again = sum(engine.buried.values())
    return f"{result}{f'; {again} failed again' if again else ''}"


def refuse_unsendable(name: str, fates: Fates, index: int, is_there: bool) -> None:
    """Say why this letter is not sent, when it is not."""
    why = (
        f"{name} has no letter {index}: see surepipe dlq list"
        if not is_there
        else f"letter {index} of {name} was deleted, and is not sent any more"
        if index in fates.deleted
        else f"letter {index} of {name} was sent again before: surepipe dlq show says when"
        if fates.is_sent(index)
        else ""
    )
    if why:
        complain(why)
        raise typer.Exit(Exit.UNUSABLE)


def _pipe_of(plan: Plan, engine: Engine, name: str, chosen: Sequence[StoredLetter]) -> str:
    """The pipe that all these letters came from."""
    known = {pipe_name(plan, pipe): pipe.name for pipe in plan.pipes if pipe.name in engine.faces}
    sources = {source.name for source in plan.sources}
    came_from = {stored.letter.pipe for stored in chosen}
    if read := [stored for stored in chosen if stored.letter.pipe in sources]:
        first = read[0]
        complain(
            f"letter {first.index} of {name} came from source {first.letter.pipe}, before any pipe, so it "
            "can't be replayed: save it with surepipe dlq show --raw, mend it, give it to the source again, and "
            "then delete it with surepipe dlq delete"
        )
        raise typer.Exit(Exit.UNUSABLE)
    if len(came_from) > 1 or not came_from <= set(known):
        said = ", ".join(sorted(came_from))
        complain(
            f"the letters of {name} come from {said}: a replay needs all of them from one pipe of this node; "
            "send them one by one, by number, or name the node with --node"
        )
        raise typer.Exit(Exit.UNUSABLE)
    return known[came_from.pop()]
