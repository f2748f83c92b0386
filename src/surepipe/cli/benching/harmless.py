"""A copy of a plan that touches nothing of its user's: other stores, other addresses, no sources and sinks."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Self

from surepipe.cli.benching.counting import (
    Gauge,
    StoreCount,
    counted_redis,
    counted_sqlite,
    remove_keys,
)
from surepipe.core.store_requests import Store, Transaction
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Cursor, Sink, Source, SourceRow
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart, TcpRoutePart, Tls
from surepipe.pipelines.models.sources import AnySource, PythonSource
from surepipe.pipelines.models.stages import AnySink, PythonSink, StagePart
from surepipe.pipelines.models.stores import AnyStore, RedisStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run import RealEnvironment
from surepipe.pipelines.settings import SecretSetting, Setting
from surepipe.pipelines.sinks.others import AtOnce
from surepipe.pipelines.stages import About
from surepipe.testing.certificates import Authority
from surepipe.testing.servers import free_port

# Where a bench keeps what it writes while it runs; all of it is removed at the end.


PREFIX = ".surepipe-bench-"


class TemporaryPlaces:
    """Temporary places: the same one for the same original. Use it as a context."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._folders: dict[Path, Path] = {}
        self._files: dict[Path, Setting] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._ports: dict[str, int] = {}
        self._tls: Tls | None = None
        self._counts: dict[str, StoreCount] = {}
        self._run = secrets.token_hex(4)
        self._secret = secrets.token_hex(32)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def count_of(self, store: str) -> StoreCount:
        """What a store is asked, by the store's name."""
        return self._counts.setdefault(store, StoreCount())

    def sqlite(self, path: str) -> Setting:
        """A file in a folder beside the original, so on the same disk."""
        original = Path(path).absolute()
        if original not in self._files:
            folder = self._folder_beside(original)
            self._files[original] = _literal(str(folder / f"{len(self._files)}.db"))
        return self._files[original]

    def _folder_beside(self, original: Path) -> Path:
        near = next(folder for folder in original.parents if folder.is_dir())
        if near not in self._folders:
            try:
                made = tempfile.TemporaryDirectory(prefix=PREFIX, dir=near)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise ConfigurationError(
                    f"a bench of {original} needs a folder beside it, and {near} takes none: {reason}"
                ) from None
            self._folders[near] = Path(self._held.enter_context(made))
        return self._folders[near]

    def redis_keys(self, part: RedisStorePart, pipeline: str) -> str:
        """A name that no key on the server has. What is written under it is removed at the end."""
        url, written = part.url.reveal(), part.keys or pipeline
        self._held.callback(remove_keys, url, self.count_of(part.name))
        name = f"surepipe-bench-{self._run}-{len(self._keys)}"
        return self._keys.setdefault((url, written), name)

    def link(self, route: TcpRoutePart) -> TcpRoutePart:
        """The same link on this machine, with a key or certificates made for it."""
        port = self._ports.setdefault(route.address.written, 0) or free_port()
        self._ports[route.address.written] = port
        changed: dict[str, object] = {"address": Setting(f"127.0.0.1:{port}")}
        if route.secret is not None:
            changed["secret"] = SecretSetting(self._secret)
        if route.tls is not None:
            changed["tls"] = self._certificates()
        return route.model_copy(update=changed)

    def _certificates(self) -> Tls:
        if self._tls is None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
            authority = Authority(folder, "bench")
            files = authority.sign("bench-node")
            cert, key, ca = map(_literal, map(str, (files.cert, files.key, authority.ca)))
            self._tls = Tls(cert=cert, key=key, ca=ca)
        return self._tls


def _literal(text: str) -> Setting:
    return Setting(text.replace("$", "$$"))


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


def harmless(plan: Plan, places: TemporaryPlaces, *, with_stages: bool) -> Plan:
    """The copy. Raises ConfigurationError where a variable is not set, or a folder can't be used."""
    return replace(
        plan,
        stores=tuple(_store(part, places, plan.name) for part in plan.stores),
        sources=tuple(_source(part, keeps_key=with_stages) for part in plan.sources),
        pipes=tuple(_pipe(part, places, as_written=with_stages) for part in plan.pipes),
        stages=plan.stages if with_stages else tuple(map(_stage, plan.stages)),
        sinks=tuple(map(_sink, plan.sinks)),
    )


def _store(part: AnyStore, places: TemporaryPlaces, pipeline: str) -> AnyStore:
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


def _pipe(part: PipePart, places: TemporaryPlaces, *, as_written: bool) -> PipePart:
    changed: dict[str, object] = {}
    if isinstance(part.route, TcpRoutePart):
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


# The world of a bench: sources that repeat sample rows, sinks that only count, stores that count too.


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

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next rows; None when they were enough."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self._seconds
        if self._given >= self._count or now >= self._end:
            return None
        first = self._given
        self._given = min(self._count, first + rows_max)
        rows = self._rows
        return [SourceRow(rows[n % len(rows)], str(n + 1)) for n in range(first, self._given)]

    def taken(self, rows: Sequence[SourceRow]) -> None:
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

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next row; none yet while one is under way."""
        del rows_max
        self._looks += 1
        if not self._gauge.wait_until_idle(self._done, LOOK_S) and self._looks < LOOKS_MAX:
            return ()
        self._done, self._looks = self._gauge.done, 0
        return super().read(1)


class CountingSink(AtOnce):
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
        if isinstance(part, SqliteStorePart):
            return counted_sqlite(part, self._counts[part.name])
        if isinstance(part, RedisStorePart):
            return counted_redis(part, self._counts[part.name])
        return super().store(part)

    def source(self, part: AnySource, stores: Mapping[str, Store]) -> Source:
        del stores
        return self._sources(part.name)

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """One that only counts."""
        del part, stores, cursor
        return CountingSink()

    def function(self, path: str) -> Callable[..., object]:
        """One of the bench's own, or one of the file, or its double."""
        own = own_path(path)
        return FUNCTIONS[own] if own else super().function(self._doubles.get(path, path))
