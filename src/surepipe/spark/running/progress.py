"""What Spark tells of a query after each batch, as the numbers that parts of a pipeline count.

The part ``spark`` gets what is of the whole query: rows per second, how long a batch took, the size of its state.
Each input gets its ``lag``: what is in its stream behind the last batch that is through, as it was known then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from surepipe.spark.running.layout import Input

Told: TypeAlias = Mapping[str, object]
SourceKey: TypeAlias = tuple[str, str]
"""The store, and where reading begins: the query has one source of Spark for each."""
US_PER_MS = 1000


def source_key(input_: Input) -> SourceKey:
    """Which of the query's sources an input is in."""
    return input_.stream.store, input_.start


def sources_of(inputs: Iterable[Input]) -> list[SourceKey]:
    """All sources, in the order in which the query has them."""
    return sorted({source_key(one) for one in inputs})


def counted_of(told: Told, entries: int) -> dict[str, int]:
    """The numbers of the part ``spark``; none before the first batch. ``entries`` were in the last one: rows that
    Spark counts are pages."""
    if not told:
        return {}
    states = cast("Sequence[Told]", told.get("stateOperators") or ())
    took_ms, has_rows = _number(told, "batchDuration"), _number(told, "numInputRows") > 0
    return {
        "rows_per_s": round(entries / took_ms * 1000) if took_ms and has_rows else 0,
        "batch_us": round(took_ms) * US_PER_MS,
        "state_rows": round(sum(_number(one, "numRowsTotal") for one in states)),
        "state_bytes": round(sum(_number(one, "memoryUsedBytes") for one in states)),
    }


def lags_of(told: Told, inputs: Sequence[Input]) -> dict[str, int]:
    """How many entries of each input wait, by its part's name; those of which Spark says nothing are left out."""
    sources = cast("Sequence[Told]", told.get("sources") or ())
    keys = sources_of(inputs)
    if len(sources) != len(keys):
        return {}
    found: dict[str, int] = {}
    for key, source in zip(keys, sources, strict=True):
        done, there = _nexts(source.get("endOffset")), _nexts(source.get("latestOffset"))
        for one in inputs:
            if source_key(one) == key:
                lag = _lag(one.stream.name, done, there)
                found |= {} if lag is None else {one.part: lag}
    return found


def _lag(stream: str, done: Mapping[str, int], there: Mapping[str, int]) -> int | None:
    keys = [key for key in there if key.rpartition("/")[0] == stream]
    return sum(max(0, there[key] - done.get(key, 1)) for key in keys) if keys else None


def _nexts(offset: object) -> dict[str, int]:
    """Next indexes by stream and partition. Spark gives an offset as a value or as text of JSON."""
    found: object = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(found, dict):
        return {}
    places = cast("Mapping[str, Mapping[str, int]]", found)
    return {key: int(place["next"]) for key, place in places.items()}


def _number(told: Told, name: str) -> float:
    """A number that is not there, or none (Spark says NaN for nothing over no time), is 0."""
    value = told.get(name)
    is_number = isinstance(value, int | float) and value == value  # noqa: PLR0124 - not NaN
    return max(0.0, float(cast("float", value))) if is_number and value != float("inf") else 0.0
