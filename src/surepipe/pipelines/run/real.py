"""The world of a real process: threads, files, servers, the user's modules."""

from __future__ import annotations

import contextvars
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar, cast

from surepipe.actors.codecs import choose_codec
from surepipe.actors.consuming.coroutines import awaited, patient, within
from surepipe.actors.ends.sender import largest_message
from surepipe.actors.links import MutualTls, SharedKey, TcpRoute
from surepipe.actors.notices import PipeNotice, log_notice
from surepipe.actors.routes import Route
from surepipe.actors.runtime import Runtime
from surepipe.actors.threads import THREADS
from surepipe.actors.tracing import TraceSink
from surepipe.core.store_requests import Level, Store, Transaction
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Cursor, Sink, Source
from surepipe.pipelines.calling import entry_of, failing_only, require_answer, require_source
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart, TcpRoutePart
from surepipe.pipelines.models.sources import (
    AnySource,
    CsvSource,
    HttpSource,
    JsonlSource,
    ParquetSource,
    PythonSource,
    ReadSource,
    RedisStreamSource,
    ServerTls,
    StdinSource,
    StreamSource,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    HttpSink,
    JsonlSink,
    ParquetSink,
    PythonSink,
    RmqSink,
    StagePart,
    StdoutSink,
    StreamSink,
)
from surepipe.pipelines.models.stores import (
    AnyStore,
    MemoryStorePart,
    RedisStorePart,
    SqliteStorePart,
)
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.sinks.files import CsvLines, JsonlLines, LineFile
from surepipe.pipelines.sinks.others import Handed, ParquetFolder, Posted, Printed, Submitting
from surepipe.pipelines.sources.checking import Check, as_it_is, fitting
from surepipe.pipelines.sources.files import CsvFile, JsonlFile, ParquetFile, opened
from surepipe.pipelines.sources.http import Certificate, HttpLimits, Posts
from surepipe.pipelines.sources.live import Called, Lines
from surepipe.pipelines.sources.streams import RedisEntries, StreamRows
from surepipe.pipelines.stages import About, Clock, Context, StageCall, TimeLimit
from surepipe.pipelines.users_code import imported, look_first_in
from surepipe.storage.memory import MemoryStore
from surepipe.storage.redis.link import RedisLimits
from surepipe.storage.redis.store import RedisStore
from surepipe.storage.sqlite.store import SqliteStore

logger = logging.getLogger("surepipe")
T = TypeVar("T")
_LEVELS = {level.name.lower(): level for level in Level}


class RealClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RealEnvironment:
    """What a process gives to an engine. Functions are found beside the plan's file first."""

    def __init__(
        self,
        plan: Plan,
        *,
        trace: TraceSink | None = None,
        notices: Callable[[PipeNotice], object] = log_notice,
        stopped: Callable[[BaseException], object] | None = None,
    ) -> None:
        self._plan = plan
        self._notices = notices
        self._stopped = stopped
        self._routes: dict[str, TcpRoute] = {}
        self._coroutines = THREADS.coroutines()
        self._helpers = _Helpers()
        self.runtime: Runtime = THREADS
        self.clock: Clock = RealClock()
        self.seed: int | None = None
        self.trace = trace
        self.files: list[LineFile] = []
        """The files that sinks write."""

    def on_stop(self, stopped: Callable[[BaseException], object]) -> None:
        """Call this when a source can't go on."""
        self._stopped = stopped

    # Stores and routes.

    def store(self, part: AnyStore) -> Store:
        """Open a store. Raises ConfigurationError, StoreUnavailable."""
        match part:
            case MemoryStorePart():
                return MemoryStore()
            case SqliteStorePart():
                path = Path(part.path.reveal())
                _make_folder(path.parent)
                return SqliteStore(path, level=_LEVELS[part.durability])
            case RedisStorePart():
                return self._redis(part)

    def existing_store(self, part: AnyStore) -> Store:
        """The same for whoever only looks: no file is made for that. ConfigurationError where none is there."""
        if isinstance(part, SqliteStorePart) and not (path := Path(part.path.reveal())).exists():
            raise ConfigurationError(
                f"store {part.name}: {path} can't be read: no such file. Either nothing has gone through this "
                "pipeline yet: run the pipeline first; or it runs in another folder than "
                f"{Path.cwd()}: call this there, as paths of a pipeline are those of the current folder"
            )
        return self.store(part)

    def _redis(self, part: RedisStorePart) -> RedisStore:
        level = None if part.durability is None else _LEVELS[part.durability]
        limits = (
            RedisLimits()
            if part.answer_within_s is None
            else RedisLimits(answer_s=part.answer_within_s)
        )
        return RedisStore.from_url(
            part.url.reveal(),
            pipeline=part.keys or self._plan.name,
            spread=part.spread,
            level=level,
            replicas=part.replicas,
            limits=limits,
        )

    def route(self, pipe: PipePart, sends: bool, receives: bool) -> Route | None:
        """What carries a pipe. Pipes of one address share a link. Raises ConfigurationError."""
        if not isinstance(pipe.route, TcpRoutePart) or (sends and receives):
            return None  # both ends are in this process
        address = pipe.route.address.reveal()
        if address not in self._routes:
            listens = (pipe.route.listens == "receiver") == receives
            opened = TcpRoute.listen if listens else TcpRoute.connect
            self._routes[address] = opened(address, security=_security(pipe.route))
        return self._routes[address]

    # Sources.

    def _largest_from(self, source: str) -> int:
        """Bytes that each pipe which this source feeds takes of one message."""
        fed = (pipe.stack[0] for pipe in self._plan.pipes if source in pipe.from_)
        return min(map(largest_message, fed), default=HttpLimits().message_bytes)

    def source(  # noqa: PLR0911 - one line for each kind
        self, part: AnySource, stores: Mapping[str, Store]
    ) -> Source:
        """Make a source. Raises ConfigurationError."""
        check = self._check(part)
        keeps = isinstance(part, ReadSource) and part.dead_letter is not None
        match part:
            case JsonlSource():
                path = Path(part.path.reveal())
                return JsonlFile(path, follow=part.follow, check=check, keeps=keeps)
            case CsvSource():
                path = Path(part.path.reveal())
                return CsvFile(path, part.delimiter, check, follow=part.follow, keeps=keeps)
            case ParquetSource():
                return ParquetFile(Path(part.path.reveal()), check, keeps=keeps)
            case StdinSource():
                is_json = part.format == "json"
                return Lines(sys.stdin.buffer, is_json=is_json, check=check, keeps=keeps)
            case HttpSource():
                host, port = _address(part.listen.reveal(), f"source {part.name}")
                tls = None if part.tls is None else _certificate(part.tls)
                limits = HttpLimits(message_bytes=self._largest_from(part.name))
                return Posts(host, port, part.path, check=check, certificate=tls, limits=limits)
            case PythonSource():
                function, arguments = self.function(part.call), dict(part.arguments)
                require_source(f"source {part.name}", part.call, function, arguments)
                return Called(
                    part.name,
                    lambda: function(**arguments),
                    repeatable=part.repeatable,
                    check=check,
                    keeps=keeps,
                )
            case StreamSource():
                return StreamRows(
                    stores[part.store],
                    part.stream,
                    choose_codec(part.codec),
                    reader=part.reader or f"{self._plan.name}/{part.name}",
                    start=part.start,
                    check=check,
                    keeps=keeps,
                    compared_by=self.runtime,
                )
            case RedisStreamSource():
                url = self._redis_url(part.store)
                return RedisEntries(url, part.stream, start=part.start, check=check, keeps=keeps)

    def _redis_url(self, name: str) -> str:
        part = self._plan.store(name)
        assert isinstance(part, RedisStorePart), "the plan's structure demands it"
        return part.url.reveal()

    def _check(self, part: AnySource) -> Check:
        if part.model is None:
            return as_it_is
        return fitting(self.function(part.model), part.model)

    # Sinks.

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """Make a sink. Raises ConfigurationError."""
        del stores
        match part:
            case JsonlSink() | CsvSink():
                path = Path(part.path.reveal())
                if isinstance(part, CsvSink):
                    self.files.append(CsvLines(path, cursor, part.columns))
                else:
                    self.files.append(JsonlLines(path, cursor))
                return self.files[-1]
            case ParquetSink():
                return ParquetFolder(Path(part.path.reveal()), part.rows_per_file)
            case StdoutSink():
                return Printed(sys.stdout, is_json=part.format == "json")
            case HttpSink():
                headers = {name: value.reveal() for name, value in part.headers.items()}
                return Posted(part.url.reveal(), headers, answer_s=part.time_limit_s)
            case RmqSink():
                from surepipe.pipelines.clusters import ClusterFile

                return Submitting(
                    ClusterFile.read(part.cluster.reveal()).connect(), self._plan.name, part
                )
            case PythonSink():
                return Handed(self._handing(part))
            case StreamSink():
                raise ConfigurationError(f"sink {part.name}: a stream is opened by the engine")

    def _handing(self, part: PythonSink) -> Callable[[object, About, Transaction | None], object]:
        function = entry_of(f"sink {part.name}", part.call, self.function(part.call))

        def hand(message: object, about: About, transaction: Transaction | None) -> object:
            attempt = about.attempt
            context = (
                Context(about, part.name, attempt, self.clock, transaction)
                if function.asks
                else None
            )
            entry = StageCall(
                function.function, context, part.time_limit_s, about, attempt, function.awaits
            )
            try:
                answer = self.call(part.name, entry, message)
                return require_answer(f"sink {part.name}", part.call, answer)
            finally:
                if context is not None:
                    context.close()

        return hand

    # The user's code.

    def require(self, part: Node) -> None:
        """Import its function, look for its file. Raises ConfigurationError that says what is wrong."""
        if isinstance(part, StagePart):
            if ":" in (path := part.does):
                self.function(path)
        elif isinstance(part, PythonSource | PythonSink):
            self.function(part.call)
        elif isinstance(part, JsonlSource | CsvSource | ParquetSource):
            os.close(opened(Path(part.path.reveal())))

    def function(self, path: str) -> Callable[..., object]:
        """Import what 'module:name' names. Raises ConfigurationError that says what is wrong."""
        return function_at(path, self._plan.folder)

    def telling(self, name: str, path: str) -> Callable[[object], object]:
        del name
        return self.function(path)

    def call(self, name: str, function: StageCall, message: object) -> object:
        """Enter the user's code, within its time limit. Raises what it raises, and TimeLimit."""
        limit_s, wait = function.limit_s, self._coroutines.wait
        with failing_only(name):
            if function.awaits or (limit_s is None and patient() is None):
                result = function(message)
            elif limit_s is None:
                result = self._helpers.within(lambda: function(message))
            else:
                result = self._helpers.within(lambda: function(message), name, limit_s)
            if limit_s is None:
                return awaited(result, wait)
            return awaited(
                result, lambda call: wait(within(call, limit_s, lambda: _late(name, limit_s)))
            )

    def calls_plainly(self) -> bool:
        """On a thread of its own; a task's code must not hold up its loop."""
        return patient() is None

    def blocking(self, work: Callable[[], T]) -> T:
        """Here, or on a helper's thread while the task waits that would hold up its loop."""
        return work() if patient() is None else self._helpers.within(work)

    def close(self) -> None:
        """End the threads that it has for the user's functions."""
        self._coroutines.close()
        self._helpers.close()

    # What is told.

    def notice(self, notice: PipeNotice) -> None:
        self._notices(notice)

    def stopped(self, why: BaseException) -> None:
        if self._stopped is not None:
            self._stopped(why)
        else:
            logger.error("the pipeline stops: %s", why)


class _Helpers:
    """Threads for calls with a time limit, and for what would block a loop: as many as are busy at once. One whose
    call is late is left alone, since Python can't end it; the others are used again."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[_Job | None]] = deque()

    def within(self, call: Callable[[], T], name: str = "", limit_s: float | None = None) -> T:
        """What the call gives; a thread waits for it, or a task. Raises what it raises, and TimeLimit."""
        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = SimpleQueue[_Job | None]()
            threading.Thread(
                target=_help, args=(jobs,), name="surepipe-stages", daemon=True
            ).start()
        job = _Job(call)
        jobs.put(job)
        is_done = False
        try:
            is_done = job.signal.wait(lambda: job.is_done, limit_s)
        finally:  # a task may be told to end here
            if is_done:
                self._idle.append(jobs)
            else:
                jobs.put(None)
        if not is_done:
            assert limit_s is not None
            raise _late(name, limit_s)
        if job.failure is not None:
            raise job.failure
        return cast("T", job.result)

    def close(self) -> None:
        """End those that have nothing to do."""
        while self._idle:
            self._idle.popleft().put(None)


class _Job:
    def __init__(self, call: Callable[[], object]) -> None:
        # What is begun in a transaction belongs to it on the helper's thread, too.
        context = contextvars.copy_context()
        self._call: Callable[[], object] = lambda: context.run(call)
        self.is_done = False
        self.signal = THREADS.signal()
        self.result: object = None
        self.failure: BaseException | None = None

    def do(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self.failure = error
        self.is_done = True
        self.signal.notify()


def _help(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # a message must not live until the next one comes


def function_at(path: str, folder: Path | None) -> Callable[..., object]:
    """Import what 'module:name' names in a file of this folder. Raises ConfigurationError that says why not."""
    look_first_in(folder)
    return imported(path, folder)


def _late(name: str, limit_s: float) -> TimeLimit:
    return TimeLimit(f"{name} took longer than {limit_s} s; it may have had its effect")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder} can't be made: {error}") from None


def _address(text: str, what: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigurationError(f"{what}: {text!r} is no address: write host:port")
    return host.strip("[]"), int(port)


def _certificate(part: ServerTls) -> Certificate:
    ca = None if part.ca is None else part.ca.reveal()
    return Certificate(part.cert.reveal(), part.key.reveal(), ca)


def _security(part: TcpRoutePart) -> SharedKey | MutualTls | None:
    if part.secret is not None:
        return SharedKey(part.secret.reveal())
    if part.tls is not None:
        tls = part.tls
        return MutualTls(tls.cert.reveal(), tls.key.reveal(), tls.ca.reveal(), tls.name)
    return None
