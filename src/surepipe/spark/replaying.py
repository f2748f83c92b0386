"""Backfill: a range of a stream once more through a changed stage, into another stream.

    replay(spark, place, "orders", "orders.repriced", "shop.orders:price", name="reprice-2")

The identity of an output is the index that it was made of, and the store keeps how far the replay called ``name``
is. So it may be killed and started again: what is there is passed over, and the outputs are effectively once, by
index. The stage sees each message alone, as ``map`` in a pipeline does; None gives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from surepipe.actors.codecs import AutoCodec
from surepipe.actors.consuming.coroutines import HandlerKind, kind_of
from surepipe.core.store_requests import KEEP_ALL, StreamInfo
from surepipe.errors import ConfigurationError, StoreReset
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.real import RealEnvironment, function_at
from surepipe.pipelines.stages import StageCall
from surepipe.spark.columns import (
    BINARY,
    INT64,
    Batches,
    RecordBatch,
    array,
    batch_of,
    collected,
    mapped,
    schema_of,
)
from surepipe.spark.sink import Origin, Outputs, append_by_identity, position_of
from surepipe.spark.stores import StorePlace, asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ENTRIES_EACH = 200_000
"""Entries in one job of Spark: their outputs pass through the driver, which writes them in order."""
_RESULT = "index long, payload binary"


@dataclass(frozen=True, slots=True)
class ReplayedStream:
    """A replay that is through: ``entries`` were read in this call, ``written`` outputs are new."""

    first: int
    last: int
    entries: int
    written: int


def replay(
    spark: SparkSession,
    place: StorePlace,
    stream: str,
    into: str,
    call: str,
    *,
    name: str = "replay",
    first: int | None = None,
    last: int | None = None,
    into_place: StorePlace | None = None,
    plan: Plan | None = None,
    each: int = ENTRIES_EACH,
) -> ReplayedStream:
    """Send entries ``first`` to ``last`` of ``stream`` through the function ``call`` into the stream ``into``.

    ``call`` is 'module:name'. Without bounds: everything that is there now. A repeat under the same ``name`` goes
    on behind what is written; when all is, it writes nothing. Raises ConfigurationError for a function or a range
    that is not there, StoreReset when entries are trimmed, StoreUnavailable, and as Spark has it what the function
    raises, which ends the replay where it is.
    """
    target = into_place or place
    check(ReplayWanted(place, stream, target, into, call, first, last), plan)
    info = _info(place, stream)
    begin, end = _range(stream, info, first, last)
    asked(lambda: target.store().create(into, 1, KEEP_ALL), f"making stream {into}", target)
    origin, written, read = Origin(stream, 0, info.incarnation), 0, 0
    following = position_of(target, into, origin, sink=name) or begin
    while following <= end:
        stop = min(following + each, end + 1)
        outputs = _outputs(spark, (place, stream, following, stop), call)
        found = append_by_identity(target, into, origin, outputs, sink=name)
        read, written, following = read + stop - following, written + found.new, stop
    return ReplayedStream(begin, end, read, written)


_NO_PLAN = cast("Plan", None)
"""Functions are found without one."""


@dataclass(frozen=True, slots=True)
class ReplayWanted:
    """What a replay is asked for."""

    place: StorePlace
    stream: str
    target: StorePlace
    into: str
    call: str
    first: int | None = None
    last: int | None = None


def check(wanted: ReplayWanted, plan: Plan | None = None) -> None:
    """All that is refused before anything starts. Raises ConfigurationError, StoreUnavailable."""
    function_at(wanted.call, None if plan is None else plan.folder)
    if (wanted.target, wanted.into) == (wanted.place, wanted.stream):
        raise ConfigurationError(
            f"{wanted.stream} can't be replayed into itself: name another stream"
        )
    info = _info(wanted.place, wanted.stream)
    _range(wanted.stream, info, wanted.first, wanted.last)


def _range(stream: str, info: StreamInfo, first: int | None, last: int | None) -> tuple[int, int]:
    begin, end = first or info.earliest, last or info.next - 1
    if not info.earliest <= begin <= end < info.next:
        there = f"entries {info.earliest} to {info.next - 1}"
        raise ConfigurationError(
            f"stream {stream} has {there if info.next > info.earliest else 'no entries'}, and {begin} to {end} "
            "are wanted"
        )
    return begin, end


def _info(place: StorePlace, stream: str) -> StreamInfo:
    found = asked(lambda: place.store().info(stream), f"looking at {stream}", place)
    assert isinstance(found, StreamInfo)
    return found


def _outputs(spark: SparkSession, entries: tuple[StorePlace, str, int, int], call: str) -> Outputs:
    """What the function makes of a range of a stream: computed by many tasks, sorted, and complete."""
    place, stream, start, stop = entries
    rows = (
        spark.read.format("surepipe")
        .options(**place.options())
        .option("stream", stream)
        .option("start", str(start))
        .load()
        .where(f"index >= {start} AND index < {stop}")
        .select("index", "payload")
    )
    batches = collected(mapped(rows, _through(call), _RESULT))
    found = [row for batch in batches for row in _pairs(batch)]
    found.sort(key=lambda pair: pair[0])
    seen = sum(payload is None for _, payload in found)
    if seen != stop - start:
        raise StoreReset(
            f"stream {stream}: {seen} of the {stop - start} entries from {start} on were read"
        )
    made = [(index, payload) for index, payload in found if payload is not None]
    return Outputs(start, stop, [index for index, _ in made], [payload for _, payload in made])


def _pairs(batch: RecordBatch) -> Iterator[tuple[int, bytes | None]]:
    indexes = cast("list[int]", batch.column(0).to_pylist())
    payloads = cast("list[bytes | None]", batch.column(1).to_pylist())
    return zip(indexes, payloads, strict=True)


def _through(call: str) -> Callable[[Batches], Batches]:
    """The function of a task. A row without payload says of each entry that it was seen."""

    def work(batches: Batches) -> Batches:
        environment, codec = RealEnvironment(_NO_PLAN), AutoCodec()
        found = function_at(call, None)
        function = StageCall(found, None, awaits=kind_of(found) is HandlerKind.COROUTINE)
        for batch in batches:
            indexes: list[int] = []
            payloads: list[bytes | None] = []
            for index, payload in _pairs(batch):
                made = environment.call(call, function, codec.decode(cast("bytes", payload)))
                indexes.append(index)
                payloads.append(None)
                if made is not None:
                    indexes.append(index)
                    payloads.append(codec.encode(made))
            arrays = [array(indexes, type=INT64), array(payloads, type=BINARY)]
            yield batch_of(arrays, schema_of((("index", INT64), ("payload", BINARY))))

    return work
