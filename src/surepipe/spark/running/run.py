"""A pipeline on Spark, with the face of a ``PlanEngine`` of actors: start, look, wait, stop, counters, close.

The driver reads those sources that are no streams, with the feeds of actors, into the streams of their pipes; all
else is the query's.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from surepipe.core.store_requests import Created, Exists, Mismatch, StreamInfo, partition_of
from surepipe.errors import ConfigurationError, StoreUnavailable, SurepipeError
from surepipe.pipelines.engine_limits import spark_refusals
from surepipe.pipelines.models.stages import PythonSink, StagePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.running import PlanEngine
from surepipe.pipelines.run.tallies import Tallies
from surepipe.pipelines.run.unfinished import Unfinished
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.structure import MAIN_NODE
from surepipe.pipelines.users_code import functions_in
from surepipe.spark.running.layout import SparkLayout, StreamInStore, lay_out
from surepipe.spark.running.query import counted_of, lags_of
from surepipe.spark.running.rows import LETTERS
from surepipe.spark.session import SparkOptions, check_start, open_session, prepare_session
from surepipe.spark.stores import StorePlace, asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from surepipe.spark.running.query import Query


# The folder of a query's checkpoint, looked at before Spark opens it: one clear error, and nothing changed.
#
# Beside Spark's own files lies a note of ours: which pipeline the checkpoint belongs to, and which streams it
# has offsets of. Spark itself takes any folder and goes on from whatever it finds there.


NOTE = "surepipe.json"
VERSION = 1
_NO_JSON = ("v1", "-")
"""Lines of Spark's logs: the version, and a source of which nothing was read."""


def digest_of(layout: SparkLayout) -> str:
    """Identifies the meaning of a checkpoint's offsets: the streams that are read, and their stores."""
    inputs = sorted((one.part, one.stream.store, one.stream.name) for one in layout.inputs)
    said = json.dumps([layout.plan.name, inputs])
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def prepare(folder: Path, layout: SparkLayout) -> None:
    """Make the folder, or see that it is this pipeline's. Raises ConfigurationError that says what it is else."""
    note = folder / NOTE
    if _is_new(folder):
        _write(note, layout)
        return
    if not note.exists():
        raise ConfigurationError(
            f"{folder} is no checkpoint of surepipe, and not empty: name another folder for this pipeline"
        )
    known = _read(note)
    name, digest = layout.plan.name, digest_of(layout)
    if known.get("pipeline") != name:
        raise ConfigurationError(
            f"{folder} is the checkpoint of pipeline {known.get('pipeline')}, and this one is {name}: take another"
        )
    if known.get("digest") != digest:
        raise ConfigurationError(
            f"{folder} is the checkpoint of {name} when it read other streams: name another folder; the new query "
            "begins where the stores say that this pipeline was"
        )
    _check_logs(folder)


def _is_new(folder: Path) -> bool:
    try:
        return not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"the checkpoint folder {folder} can't be read: {error}") from None


def _read(note: Path) -> dict[str, object]:
    try:
        known: object = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(note, error) from None
    if not isinstance(known, dict):
        raise _unreadable(note, "no mapping")
    return cast("dict[str, object]", known)


def _check_logs(folder: Path) -> None:
    """Spark's own files, as far as a damaged one would end the query in the middle of a page of Java."""
    for log in ("metadata", "offsets", "commits"):
        for file in _files(folder / log):
            try:
                lines = file.read_text("utf-8").splitlines()
                if log != "metadata" and lines[:1] != ["v1"]:
                    raise ValueError("it does not begin with a version")
                for line in lines:
                    if line not in _NO_JSON:
                        json.loads(line)
            except (OSError, ValueError) as error:
                raise _unreadable(file, error) from None


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.glob("*") if one.name.isdecimal()) if path.is_dir() else []


def _unreadable(file: Path, why: object) -> ConfigurationError:
    return ConfigurationError(
        f"the checkpoint can't be read: {file}: {why}; move the folder away: the query then begins where the "
        "stores say that this pipeline was, and nothing is written twice"
    )


def _write(note: Path, layout: SparkLayout) -> None:
    hidden = note.with_name(f".{NOTE}")
    told = {
        "version": VERSION,
        "pipeline": layout.plan.name,
        "digest": digest_of(layout),
        "streams": sorted(f"{one.stream.store}/{one.stream.name}" for one in layout.inputs),
    }
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        with hidden.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(note)
    except OSError as error:
        raise ConfigurationError(
            f"the checkpoint folder {note.parent} can't be written: {error}"
        ) from None


# The user's code that executors need: the modules of a plan's functions, found by themselves.
#
# What is installed beside this interpreter's own packages is left out: executors have it installed, as they
# have Arrow, or it has parts that a zip can't carry.


_INSTALLED = ("site-packages", "dist-packages")


def code_of(plan: Plan) -> tuple[str, ...]:
    """Top-level modules and packages to ship: those of the plan's functions, and what the plan's engine names.

    To be asked when the functions were imported once, so that their folder is on the path.
    """
    return own_code((path for _, _, path in functions_in(plan.parts)), plan.engine.ship)


def own_code(functions: Iterable[str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """Those of functions that are written 'module:name', and these."""
    found = [top for path in functions if _is_own(top := _top(path))]
    return tuple(dict.fromkeys([*found, *more]))


def _top(path: str) -> str:
    module, is_function, _ = path.partition(":")
    return module.partition(".")[0] if is_function else ""


def _is_own(top: str) -> bool:
    spec = find_spec(top) if top else None
    if spec is None or top == "surepipe":
        return False
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    return any(_is_own_place(Path(place)) for place in places[:1])


def _is_own_place(place: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib"))
    is_installed = any(part in _INSTALLED for part in place.parts)
    return place.exists() and not is_installed and not place.is_relative_to(standard)


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
        self.layout: SparkLayout = lay_out(replace(plan, folder=None))
        """For tasks, which find what is shipped, wherever the plan's file was."""
        self._given = spark
        self._environment = environment or RealEnvironment(plan)
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
        self.gave_up = False
        self._tallies = Tallies()
        self._feeds: PlanEngine | None = None
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
            self._feeds = PlanEngine(
                self.layout.plan, MAIN_NODE, self._environment, once=self._once
            )
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
        """Counters of each part, by its name. They only rise, except when a batch is done again."""
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


def _make(stream: StreamInStore, place: StorePlace) -> None:
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
    from surepipe.spark.shipping import failure_of  # noqa: PLC0415

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

    As ``surepipe.pipelines.run.run``: after a crash, another run goes on where this one was. Raises
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
