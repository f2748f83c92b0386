"""A pipeline on Spark, with the face that an ``Engine`` of actors has: start, look, wait, stop, counters, close.

The driver reads those sources that are no streams, with the feeds of actors, into the streams of their pipes; all
else is the query's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.errors import ConfigurationError, StoreUnavailable, SurepipeError
from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.running import Engine
from surepipe.pipelines.engine.tallies import Tallies
from surepipe.pipelines.engine.unfinished import Unfinished
from surepipe.pipelines.models.stages import PythonSink, StagePart
from surepipe.pipelines.on_spark import spark_refusals
from surepipe.pipelines.placing import MAIN_NODE
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.settings import Setting
from surepipe.spark.places import StorePlace, asked
from surepipe.spark.running.checkpoint import prepare
from surepipe.spark.running.code import code_of
from surepipe.spark.running.layout import Layout, Stream, lay_out
from surepipe.spark.running.progress import counted_of, lags_of
from surepipe.spark.running.rows import LETTERS
from surepipe.spark.session import SparkOptions, check_start, open_session, prepare_session
from surepipe.store_api import Created, Exists, Mismatch, StreamInfo, partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from surepipe.spark.running.query import Query

LOOK_S = 0.05
STOP_S = 10.0
HOME = Path(".surepipe/spark")


class SparkRun:
    """One run of a plan on Spark, on a session that is given, or on one of its own.

    ``once``: end where sources would wait for more. ``checkpoint``: the folder of Spark's notes about this
    pipeline. It may be lost: a run without it begins where the stores say that the pipeline was, and what is
    written already is skipped.
    """

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession | None = None,
        *,
        environment: RealEnvironment | None = None,
        master: str | None = None,
        checkpoint: str | Path | None = None,
        once: bool = False,
        memory: str | None = None,
    ) -> None:
        """Raises ConfigurationError for a plan that Spark can't run. Nothing is opened yet."""
        refused = list(spark_refusals(plan))
        if refused:
            raise ConfigurationError("\n".join(f"engine spark: {text}" for text in refused))
        self.plan = plan
        self.layout: Layout = lay_out(plan)
        self._given = spark
        self._environment = environment or RealEnvironment(self.layout.plan)
        own = plan.engine.checkpoint
        self._checkpoint = str(
            checkpoint or (own.reveal() if own is not None else HOME / plan.name / "checkpoint")
        )
        self._options = SparkOptions(
            master=master or _said(plan.engine.master) or "local[*]",
            app_name=plan.name,
            state_dir=HOME / plan.name,
            memory=memory or _said(plan.engine.memory),
            python=_said(plan.engine.python) or sys.executable,
        )
        self._once = once
        self._tallies = Tallies()
        self._feeds: Engine | None = None
        self._query: Query | None = None
        self._drainer: threading.Thread | None = None
        self._is_drained = False
        self._is_stopping = False
        self._failure: Exception | None = None
        self._open = ExitStack()

    # Opening.

    def start(self) -> None:
        """Open everything and go on where the stores and the checkpoint say.

        Raises ConfigurationError, StoreUnavailable; nothing is left running then, and nothing was written.
        """
        try:
            self._start()
        except BaseException:
            self.close(0.0)
            raise

    def _start(self) -> None:
        from surepipe.spark.running.query import Query  # noqa: PLC0415 - needs the extra

        self._check_functions()
        if self._given is None:
            check_start(self._options)
        self._prepare_checkpoint()
        spark = self._session()
        self._make_streams()
        if self.layout.has_feeds:
            self._feeds = Engine(self.layout.plan, MAIN_NODE, self._environment, once=self._once)
            self._feeds.start()
        self._query = Query(spark, self.layout, self._tallies)
        self._open.callback(self._query.close)
        self._query.start(self._checkpoint, self.plan.engine.trigger_s)

    def _prepare_checkpoint(self) -> None:
        """Folders on this machine are looked at; Spark itself looks at others."""
        if "://" not in self._checkpoint:
            folder = Path(self._checkpoint.removeprefix("file:")).absolute()
            prepare(folder, self.layout)
            self._checkpoint = str(folder)

    def _check_functions(self) -> None:
        """What tasks will import is imported here once: what is wrong is said before anything starts."""
        for part in (*self.plan.stages, *self.plan.sinks):
            path = _function_of(part)
            if path is None:
                continue
            found = self._environment.function(path)
            if isinstance(found, type):
                raise ConfigurationError(
                    f"{part.name}: {path} is a class, whose memory is that of one process, and Spark's tasks are "
                    "in many: write a function, or run this pipeline on actors"
                )

    def _session(self) -> SparkSession:
        ship = code_of(self.plan)
        if self._given is not None:
            prepare_session(self._given, ship)
            return self._given
        spark = open_session(replace(self._options, ship=ship))
        self._open.callback(spark.stop)
        return spark

    def _make_streams(self) -> None:
        for stream in self.layout.streams:
            _make(stream, self.layout.places[stream.store])

    # Running.

    def look(self) -> bool:
        """True when all has come to its end. Raises what ended the query, as the error that it was."""
        self._raise_failure()
        feeds_ended = self._feeds is None or self._feeds.look()
        if self._is_stopping and feeds_ended:
            return self._query is None or not self._query.is_at_work
        if feeds_ended and self._ends and self._drainer is None:
            self._drainer = threading.Thread(target=self._drain, name="surepipe-drain", daemon=True)
            self._drainer.start()
        return self._is_drained

    @property
    def _ends(self) -> bool:
        """True when what is there now is all: no stream may bring more."""
        is_read_by_spark = any(
            one.part in {source.name for source in self.plan.sources} for one in self.layout.inputs
        )
        return self._once or not is_read_by_spark

    def _drain(self) -> None:
        assert self._query is not None
        try:
            self._is_drained = self._query.drain(lambda: self._is_stopping)
        except Exception as error:  # noqa: BLE001 - it is raised where somebody looks
            self._failure = error

    def _raise_failure(self) -> None:
        failure = self._failure or (self._query.failure if self._query is not None else None)
        if failure is not None and not self._is_stopping:
            raise told(failure)

    def wait(self, timeout: float) -> None:
        """Wait a moment: until everything is through, or ``timeout`` seconds."""
        if self._drainer is not None:
            self._drainer.join(timeout)
        else:
            self._environment.clock.sleep(timeout)

    def stop_sources(self) -> None:
        """Take nothing more; the batch that is under way is finished."""
        self._is_stopping = True
        if self._query is not None:
            self._query.begin_no_more()
        if self._feeds is not None:
            self._feeds.stop_sources()

    def unfinished(self) -> Sequence[Unfinished]:
        """What the driver's feeds have in hand; what the query is at is in the streams, and comes again."""
        return () if self._feeds is None else self._feeds.unfinished()

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """What each part counts, by its name: numbers that only rise, but for a batch that is done again."""
        counted: dict[str, dict[str, int]] = {}
        fed: Mapping[str, Mapping[str, int]] = {}
        if self._feeds is not None:
            fed = self._feeds.counters()
        for found in (fed, self._tallies.all()):
            for part, counts in found.items():
                if part.startswith(LETTERS):
                    continue
                total = counted.setdefault(part, {})
                for what, count in counts.items():
                    total[what] = total.get(what, 0) + count
        if self._query is not None:
            self._add_progress(counted, self._query)
        return counted

    def _add_progress(self, counted: dict[str, dict[str, int]], query: Query) -> None:
        """What Spark told last. A pipe is received here, and what is not through is still in its stream."""
        told_last = query.progress()
        counted["spark"] = {"batches": query.batches, **counted_of(told_last, query.entries)}
        pipes = {pipe.name for pipe in self.plan.pipes}
        for part, lag in lags_of(told_last, self.layout.inputs).items():
            known = counted.get(part, {})
            sent = {"in_flight": 0} if "accepted" in known else {}
            received = {"settled": 0, "in_work": 0, "held": 0} if part in pipes else {}
            counted[part] = {**sent, **received, **known, "lag": lag}

    @property
    def buried(self) -> Mapping[str, int]:
        """Dead letters of this run, by the stream that has them: what the driver's feeds and the tasks counted."""
        found = dict(self._feeds.buried) if self._feeds is not None else {}
        for part, counts in self._tallies.all().items():
            if part.startswith(LETTERS):
                stream = part.removeprefix(LETTERS)
                found[stream] = found.get(stream, 0) + counts["stored"]
        return found

    def progress(self) -> Mapping[str, object]:
        """What Spark said last about the query: duration, offsets. The rows that it counts are pages."""
        return {} if self._query is None else self._query.progress()

    # Ending.

    def close(self, timeout: float = STOP_S) -> None:
        """End all of it. What is not through stays in the stores, for the next run. A second call does nothing."""
        self._is_stopping = True
        if self._query is not None:
            self._open.callback(self._query.stop, timeout)
        if self._feeds is not None:
            self._open.callback(self._feeds.close, timeout)
        self._open.close()


def _make(stream: Stream, place: StorePlace) -> None:
    """Make a stream, or see that the one that is there will do. Raises ConfigurationError, StoreUnavailable."""
    store = place.store()
    create = partial(store.create, stream.name, 1, stream.retention)
    made: object = asked(create, f"making stream {stream.name}", place)
    if isinstance(made, Created | Exists):
        return
    assert isinstance(made, Mismatch)
    if not isinstance(store.info(stream.name), StreamInfo):
        raise ConfigurationError(
            f"stream {stream.name} in {place}: {made.what}; name each of its partitions by itself, such as "
            f"{partition_of(stream.name, 0)}"
        )
    if stream.retention.max_bytes is not None:
        raise ConfigurationError(f"stream {stream.name} in {place}: {made.what}")


def _said(setting: Setting | None) -> str | None:
    return None if setting is None else setting.reveal()


def _function_of(part: object) -> str | None:
    """The user's function in a part."""
    if isinstance(part, PythonSink):
        return part.call
    if isinstance(part, StagePart) and part.kind not in ("key-by", "batch"):
        return part.does
    return None


def told(error: Exception) -> Exception:
    """The error that an exception of Spark's stands for: ours where it tells of one, else one in a few words."""
    from surepipe.spark.failures import failure_of  # noqa: PLC0415

    if isinstance(error, SurepipeError):
        return error
    found = failure_of(error)
    if found is not None:
        return found
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return StoreUnavailable(f"the query ended: {lines[0] if lines else type(error).__name__}")


def run(
    plan: Plan,
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    checkpoint: str | Path | None = None,
    once: bool = False,
    stop_when: Callable[[], bool] = lambda: False,
) -> Mapping[str, Mapping[str, int]]:
    """Run a plan on Spark until its sources end, and give what each part counted.

    As ``surepipe.pipelines.engine.run``: after a crash, another run goes on where this one was. Raises
    ConfigurationError for what Spark can't do, StoreUnavailable, and what a source can't read.
    """
    found = SparkRun(plan, spark, master=master, checkpoint=checkpoint, once=once)
    found.start()
    try:
        while not found.look():
            if stop_when():
                found.stop_sources()
            found.wait(LOOK_S)
    except BaseException:
        found.close(1.0)
        raise
    found.close()
    return found.counters()
