"""The world of a bench: sources that repeat sample rows, sinks that only count, stores that count too."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from surepipe.cli.benching.counting import StoreCount, counted_redis, counted_sqlite
from surepipe.cli.benching.gauge import Gauge
from surepipe.cli.benching.harmless import FUNCTIONS, own_path
from surepipe.pipelines.assembly import About, Cursor, Row, Sink, Source
from surepipe.pipelines.engine import RealEnvironment
from surepipe.pipelines.links import AnyStore, Node
from surepipe.pipelines.models.sources import AnySource
from surepipe.pipelines.models.stages import AnySink, StagePart
from surepipe.pipelines.models.stores import RedisStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.sinks.others import AtOnce
from surepipe.store_api import Store, Transaction

LOOK_S = 0.05
LOOKS_MAX = 5


class SampleRows:
    """Sample rows, over and over: so many, or for so long after the first."""

    def __init__(self, rows: Sequence[object], count: int, seconds: float) -> None:
        self._rows = rows
        self._count = count
        self._seconds = seconds
        self._given = 0
        self._end: float | None = None

    def begin(self, after: str) -> None:
        """From the first row: stores are new."""
        del after
        self._given = 0

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """The next rows; None when they were enough."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self._seconds
        if self._given >= self._count or now >= self._end:
            return None
        first = self._given
        self._given = min(self._count, first + rows_max)
        rows = self._rows
        return [Row(rows[n % len(rows)], str(n + 1)) for n in range(first, self._given)]

    def taken(self, rows: Sequence[Row]) -> None:
        """Nothing hears of it."""

    def close(self) -> None:
        """Nothing is held."""


class OneByOne(SampleRows):
    """The same, each row when the one before is through, or for a while nothing was heard of it (a filter)."""

    def __init__(self, rows: Sequence[object], count: int, seconds: float, gauge: Gauge) -> None:
        super().__init__(rows, count, seconds)
        self._gauge = gauge
        self._done = -1
        self._looks = 0

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """The next row; none yet while one is under way."""
        del rows_max
        self._looks += 1
        if not self._gauge.wait_until_idle(self._done, LOOK_S) and self._looks < LOOKS_MAX:
            return ()
        self._done, self._looks = self._gauge.done, 0
        return super().read(1)


class Counted(AtOnce):
    """A sink that lets everything go."""

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Let go of it: the trace has counted it."""


class BenchWorld(RealEnvironment):
    """What the engine of one node gets. ``doubles``: functions of the file that others stand for."""

    def __init__(
        self,
        plan: Plan,
        *,
        gauge: Gauge,
        counts: Mapping[str, StoreCount],
        sources: Callable[[str], Source],
        doubles: Mapping[str, str],
        stopped: Callable[[BaseException], object],
    ) -> None:
        super().__init__(plan, trace=gauge, stopped=stopped)
        self._counts = counts
        self._sources = sources
        self._doubles = doubles

    def require(self, part: Node) -> None:
        """Sources and sinks are the bench's own."""
        if isinstance(part, StagePart):
            super().require(part)

    def store(self, part: AnyStore) -> Store:
        """One that counts."""
        if isinstance(part, SqliteStorePart):
            return counted_sqlite(part, self._counts[part.name])
        if isinstance(part, RedisStorePart):
            return counted_redis(part, self._counts[part.name])
        return super().store(part)

    def source(self, part: AnySource, stores: Mapping[str, Store]) -> Source:
        """Sample rows."""
        del stores
        return self._sources(part.name)

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """One that only counts."""
        del part, stores, cursor
        return Counted()

    def function(self, path: str) -> Callable[..., object]:
        """One of the bench's own, or one of the file, or its double."""
        own = own_path(path)
        return FUNCTIONS[own] if own else super().function(self._doubles.get(path, path))
