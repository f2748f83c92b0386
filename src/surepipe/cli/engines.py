"""The engine that a run is on: actors of this process, or Spark, which is loaded only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from surepipe.cli.output import Exit, complain
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.core.store_requests import Level
    from surepipe.pipelines import Document
    from surepipe.pipelines.plan import Plan
    from surepipe.pipelines.run import RealEnvironment, Unfinished


class AnyEngine(Protocol):
    """What a run needs of an engine."""

    gave_up: bool
    """Whether it has ended because another party answers nothing."""

    def start(self) -> None:
        """Open everything, and go on where the last run was."""
        ...

    def look(self) -> bool:
        """True when all is through. Raises what went wrong."""
        ...

    def wait(self, timeout: float) -> None: ...

    def stop_sources(self) -> None: ...

    def unfinished(self) -> Sequence[Unfinished]:
        """What was taken and is not through."""
        ...

    def counters(self) -> Mapping[str, Mapping[str, int]]: ...

    @property
    def buried(self) -> Mapping[str, int]:
        """Dead letters of this run, by stream."""
        ...

    def close(self, timeout: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine that the command names, else the one of the file."""

    kind: str
    master: str | None = None
    checkpoint: Path | None = None

    def make(
        self,
        plan: Plan,
        node: str,
        environment: RealEnvironment,
        *,
        once: bool,
        answers_s: float | None = None,
    ) -> AnyEngine:
        """The engine, not started yet. Raises ConfigurationError."""
        if self.kind == "spark":
            from surepipe.spark.session import require_extra

            require_extra()
            from surepipe.spark.running import SparkRun

            return SparkRun(
                plan,
                environment=environment,
                master=self.master,
                checkpoint=self.checkpoint,
                once=once,
            )
        from surepipe.pipelines.run import PlanEngine

        return PlanEngine(plan, node, environment, once=once, answers_s=answers_s)


def chosen_engine(
    document: Document, engine: str | None, master: str | None, checkpoint: Path | None
) -> Chosen:
    """What is asked for. Raises typer.Exit for an engine that there is not, and for options of the other one."""
    known_engine(engine)
    kind = engine or document.plan.engine.kind
    if kind != "spark" and (master is not None or checkpoint is not None):
        complain("--master and --checkpoint are for the engine spark: write --engine spark too")
        raise typer.Exit(Exit.UNUSABLE)
    return Chosen(kind, master, checkpoint)


def refuse_for_spark(*, node: str | None, trace: Path | None, otel: int | None) -> None:
    """What a run on Spark does not have. Raises typer.Exit."""
    what = {
        "--node": node is not None
        and "Spark's driver runs all nodes of a pipeline: leave --node out",
        "--trace": trace is not None
        and "a run on Spark records no trace: judge its streams with surepipe audit SENT DELIVERED",
        "--otel": otel is not None and "a run on Spark sends no spans: leave --otel out",
    }
    for text in filter(None, what.values()):
        complain(str(text))
        raise typer.Exit(Exit.UNUSABLE)


def known_engine(engine: str | None) -> None:
    """Raises typer.Exit for an engine that there is not."""
    if engine not in (None, "actors", "spark"):
        complain(f"engine is {engine!r}: write actors or spark")
        raise typer.Exit(Exit.UNUSABLE)


def told_of_query(counters: Mapping[str, Mapping[str, int]]) -> str:
    """Spark's account of its query, for people: batches, the last one's rate, what waits, its state."""
    told = counters["spark"]
    lags = [counts["lag"] for counts in counters.values() if "lag" in counts]
    batches = told.get("batches", 0)
    pieces = [f"{batches} {'batch' if batches == 1 else 'batches'}"]
    if "rows_per_s" in told:
        pieces.append(f"{told['rows_per_s']} rows/s in the last")
    if lags:
        pieces.append(f"lag {sum(lags)}")
    if told.get("state_rows"):
        pieces.append(f"{told['state_rows']} rows of state in {told['state_bytes']} bytes")
    return ", ".join(pieces)


# Asking the Redis servers of a plan what they keep.


def probed_levels(plan: Plan, *, doubting: bool = False) -> dict[str, Level]:
    """The level of each Redis store whose durability is not declared, as its server's settings give it.

    ``doubting``: of a declared one too, where its server tells; the weaker of both counts. Raises StoreUnavailable
    when one does not answer, ConfigurationError when its address can't be used or it would throw messages away.
    """
    from surepipe.pipelines.assessing import declared_level
    from surepipe.pipelines.models.stores import RedisStorePart
    from surepipe.storage.redis.store import RedisStore

    levels: dict[str, Level] = {}
    for part in plan.stores:
        if isinstance(part, RedisStorePart) and (doubting or part.durability is None):
            store = RedisStore.from_url(part.url.reveal(), pipeline=part.keys or plan.name)
            try:
                found = store.durability
                if refusal := store.refusal:
                    raise ConfigurationError(f"store {part.name}: {refusal}")
            finally:
                store.close()
            if part.durability is None:
                levels[part.name] = found.level
            elif found.told:
                levels[part.name] = min(found.level, declared_level(part))
    return levels
