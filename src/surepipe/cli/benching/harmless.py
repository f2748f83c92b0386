"""A copy of a plan that touches nothing of its user's: other stores, other addresses, no sources and sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from surepipe.cli.benching.places import Places
from surepipe.pipelines.links import AnyStore
from surepipe.pipelines.models.pipes import PipePart, TcpRoute
from surepipe.pipelines.models.sources import AnySource, PythonSource
from surepipe.pipelines.models.stages import AnySink, PythonSink, StagePart
from surepipe.pipelines.models.stores import RedisStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan

KEYS = 64
_OWN = "surepipe.bench:"
_turns = count()


def _passed(message: object) -> object:
    return message


def _always(message: object) -> bool:
    del message
    return True


def _one(message: object) -> list[object]:
    return [message]


def _next_key(message: object) -> int:
    del message
    return next(_turns) % KEYS


FUNCTIONS: dict[str, Callable[..., object]] = {
    "passed": _passed,
    "always": _always,
    "one": _one,
    "key": _next_key,
}
"""What stands in for functions of the file, and for its sources and sinks."""
_KEY = f"{_OWN}key"
_PASSED = f"{_OWN}passed"


def own_path(path: str) -> str | None:
    """The name of one of the functions above; None for a function of the file."""
    return path.removeprefix(_OWN) if path.startswith(_OWN) else None


def harmless(plan: Plan, places: Places, *, with_stages: bool) -> Plan:
    """The copy. Raises ConfigurationError where a variable is not set, or a folder can't be used."""
    return replace(
        plan,
        stores=tuple(_store(part, places, plan.name) for part in plan.stores),
        sources=tuple(_source(part, keeps_key=with_stages) for part in plan.sources),
        pipes=tuple(_pipe(part, places, as_written=with_stages) for part in plan.pipes),
        stages=plan.stages if with_stages else tuple(map(_stage, plan.stages)),
        sinks=tuple(map(_sink, plan.sinks)),
    )


def _store(part: AnyStore, places: Places, pipeline: str) -> AnyStore:
    if isinstance(part, SqliteStorePart):
        return part.model_copy(update={"path": places.sqlite(part.path.reveal())})
    if isinstance(part, RedisStorePart):
        return part.model_copy(update={"keys": places.redis_keys(part, pipeline)})
    return part


def _source(part: AnySource, *, keeps_key: bool) -> PythonSource:
    key = part.key if keeps_key else None
    return PythonSource(name=part.name, node=part.node, key=key, call=_PASSED, repeatable=True)


def _sink(part: AnySink) -> PythonSink:
    return PythonSink.model_validate(
        {"name": part.name, "from": part.from_, "call": _PASSED, **_trying(part)}
    )


def _trying(part: AnySink) -> dict[str, object]:
    """What decides whether a sink has a transaction's place for dead letters."""
    return {"retries": part.retries, "dead_letter": part.dead_letter}


def _pipe(part: PipePart, places: Places, *, as_written: bool) -> PipePart:
    changed: dict[str, object] = {}
    if isinstance(part.route, TcpRoute):
        changed["route"] = places.link(part.route)
    if not as_written:
        changed["key"] = _KEY if part.lanes is not None else None
        changed["payload"] = "json" if ":" in part.payload else part.payload
    return part.model_copy(update=changed)


def _stage(part: StagePart) -> StagePart:
    """A stage of the same kind that changes nothing."""
    for kind, function in (
        ("call", "passed"),
        ("map", "passed"),
        ("filter", "always"),
        ("flat_map", "one"),
        ("key_by", "key"),
    ):
        if getattr(part, kind) is not None:
            return part.model_copy(update={kind: _OWN + function})
    return part
