"""Replaying the dead letters of a pipeline: its pipes run for that, without its sources."""

from __future__ import annotations

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import complain
from surepipe.pipelines.engine import Engine, RealEnvironment
from surepipe.pipelines.engine.pipes import pipe_name
from surepipe.pipelines.engine.running import letters_in
from surepipe.pipelines.plan import Plan

LOOK_S = 0.05


def replayed(plan: Plan, name: str, limit: int | None, node: str | None) -> str:
    """Replay, wait until all is through, and say how it went."""
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
        pipe = _pipe_of(plan, engine, name)
        if pipe is None:
            return f"no letter in {name}"
        result = engine.replay(pipe, letters_in(engine.stores, name), limit)
        while not engine.look():
            if failures:
                raise failures[0]
            engine.wait(LOOK_S)
    finally:
        engine.close()
    again = sum(engine.buried.values())
    return f"{result}{f'; {again} failed again' if again else ''}"


def _pipe_of(plan: Plan, engine: Engine, name: str) -> str | None:
    """The pipe that all letters came from; None without letters."""
    came_from = {stored.letter.pipe for stored in letters_in(engine.stores, name).all()}
    if not came_from:
        return None
    known = {pipe_name(plan, pipe): pipe.name for pipe in plan.pipes if pipe.name in engine.faces}
    if len(came_from) > 1 or not came_from <= set(known):
        said = ", ".join(sorted(came_from))
        complain(
            f"the letters of {name} come from {said}: a replay needs all of them from one pipe of this node"
        )
        raise typer.Exit(Exit.UNUSABLE)
    return known[came_from.pop()]
