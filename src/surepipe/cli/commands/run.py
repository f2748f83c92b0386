"""``surepipe run``: run a pipeline, or what of it belongs to one node, until its sources end."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.engines import AnyEngine, Chosen, chosen_engine, refuse_for_spark, told_of_query
from surepipe.cli.output import Exit, Line, complain, complain_about_file, line, show, show_json
from surepipe.errors import ConfigurationError, Fenced, PipeStopped

if TYPE_CHECKING:
    from surepipe.actors.notices import PipeNotice
    from surepipe.audit.trace_file import TraceRecorder
    from surepipe.pipelines import Assessment, Document
    from surepipe.pipelines.live import Looks, Observing
    from surepipe.pipelines.run import Unfinished


# How a run is told to stop, and that it then ends in bounded time, whatever its parts do.
#
# The first signal asks for a drain: what was taken is finished, for so many seconds at the most. The second one
# stops at once. A handler of signals may come between any two steps of the main thread, so it takes no lock: it
# counts, and writes a byte into a pipe. A thread that reads the pipe ends the process when the main thread does
# not get that done: a stage that never returns may hold what an orderly end needs. That is no worse than a
# kill, which a run survives.


DRAIN_S = 30.0
CLOSE_S = 2.0
"""What an orderly end may take after a drain that was cut off, and after a second signal."""
GRACE_S = 4.0
"""After which more time, counted from the end of the drain, the process ends in any case."""


class Stopping:
    """Counts signals, and knows by when the run is to be over."""

    def __init__(
        self, drain_s: float = DRAIN_S, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.signals = 0
        self.drain_s = drain_s
        self._clock = clock
        self._asked_at: float | None = None
        self._hurried_at: float | None = None
        self._wake = -1

    @property
    def is_asked(self) -> bool:
        """True once somebody wants the run to stop."""
        return self.signals > 0

    @property
    def is_over(self) -> bool:
        """True when what is not through by now is to be left."""
        end = self._end()
        return end is not None and self._clock() >= end

    def _end(self) -> float | None:
        """When the drain is over; None while nobody wants an end."""
        if self._asked_at is None:
            return None
        end = self._asked_at + self.drain_s
        return end if self._hurried_at is None else min(end, self._hurried_at)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.signals += 1
        if self.signals == 1:
            self._asked_at = self._clock()
        elif self._hurried_at is None:
            self._hurried_at = self._clock()
        os.write(self._wake, b"!")

    @contextmanager
    def heard(self, last_words: Callable[[], None]) -> Generator[None]:
        """While this is open SIGINT and SIGTERM are heard here, and not one of them is in vain.

        ``last_words`` is called, from another thread, just before the process is ended for not ending by itself.
        """
        reading, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        thread = threading.Thread(
            target=self._watch, args=(reading, last_words), name="surepipe-stop", daemon=True
        )
        thread.start()
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, self._interrupted) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)
            os.close(self._wake)  # the thread reads the end of the pipe, and ends
            thread.join()
            os.close(reading)

    def _watch(self, reading: int, last_words: Callable[[], None]) -> None:
        while True:
            end = self._end()
            left = None if end is None else max(0.0, end + GRACE_S - self._clock())
            ready, _, _ = select.select([reading], [], [], left)
            if not ready:
                _said(last_words)
                os._exit(Exit.INTERRUPTED)
            if not os.read(reading, 64):
                return


def _said(last_words: Callable[[], None]) -> None:
    """Nobody may be reading what is written there: that must not hold up the end."""
    speaker = threading.Thread(target=last_words, daemon=True)
    speaker.start()
    speaker.join(0.5)


YOUNG = 10_000
"""So many new objects before the first of them are looked at for circles: many more than messages under way have.
By Python's own number each message in flight is looked at again and again, and all modules with it."""


@contextmanager
def few_collections() -> Generator[None]:
    """While a process does nothing but run: what is there at its beginning stays, so garbage collection leaves it
    alone, and new objects for longer. Whoever turned it off, or asks for less, finds it so."""
    young, *older = gc.get_threshold()
    gc.collect()
    gc.freeze()
    if young:
        gc.set_threshold(max(young, YOUNG), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()


LOOK_S = 0.05
END_S = 10.0


class LogKind(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


def run(
    file: Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)],
    *,
    node: Annotated[
        str | None,
        typer.Option(help="The node to run. Needed where the pipeline has several."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Run on actors or on spark, in place of the file's engine.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master, such as local[4] or spark://host:7077."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Spark's folder of checkpoints.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a trace to this file, for surepipe audit.", show_default=False),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Take what sources have now, and end where they would wait. Functions and standard input "
            "are read to their end.",
        ),
    ] = False,
    drain: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long a run that is told to stop finishes what it took, and one with --once "
            "waits for the next answer of another party.",
        ),
    ] = DRAIN_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document at the end, for machines.")
    ] = False,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Serve a page that shows what happens, at 127.0.0.1:8470, for this machine only.",
        ),
    ] = False,
    web_port: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the page there. Everybody who reaches HOST can read it; without HOST only this machine.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus; HOST as above."),
    ] = None,
    otel: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Send spans of one message in N to OpenTelemetry."),
    ] = None,
    log: Annotated[
        LogKind, typer.Option(help="How notices and warnings are written to standard error.")
    ] = LogKind.TEXT,
) -> None:
    """Run a pipeline until its sources end. After a crash, run it again: it goes on where it was.

    It is checked first, and what can't keep what it expects is not started. Ctrl-C once: take nothing more, finish
    and commit what was taken, for --drain seconds at the most; then what is left unfinished is named. Twice: stop
    now; what is not finished is in the stores, for the next run.
    """
    from surepipe.observe.serving import DEFAULT_PORT, ListenAddress
    from surepipe.pipelines import read
    from surepipe.pipelines.live import Looks

    asked = web_port if web_port is not None else str(DEFAULT_PORT) if web else None
    page, scraped = (None if one is None else ListenAddress.read(one) for one in (asked, metrics))
    document = read(file)
    on = chosen_engine(document, engine, master, checkpoint)
    if on.kind == "spark":
        refuse_for_spark(node=node, trace=trace, otel=otel)
    assessment = _checked(document, on.kind)
    chosen = "spark" if on.kind == "spark" else _chosen_node(document, node)
    looks = Looks(page, scraped, otel, log_rows=log is LogKind.JSON)
    runner = Runner(
        assessment, chosen, looks, on, once=once, quiet=as_json, stopping=Stopping(drain)
    )
    if not as_json:
        show(promises(assessment, on.kind))
    with _logging(log):
        try:
            code = runner.run(trace)
        except (PipeStopped, Fenced) as error:
            if not (runner.was_replaced or isinstance(error, Fenced)):
                raise
            complain(
                f"{error}\nanother process of this node has taken over: this one ends, and stays ended"
            )
            raise typer.Exit(Exit.REPLACED) from None
    if as_json:
        show_json(runner.document(code))
    else:
        show(runner.lines())
    if code is not Exit.HELD:
        raise typer.Exit(code)


class Runner:
    """One run of a node: its start, its progress, and the end."""

    def __init__(
        self,
        assessment: Assessment,
        node: str,
        looks: Looks,
        on: Chosen,
        *,
        once: bool,
        quiet: bool,
        stopping: Stopping,
    ) -> None:
        self._plan = assessment.plan
        self._node = node
        self._assessment = assessment
        self._looks = looks
        self._on = on
        self._engine: AnyEngine | None = None
        self._once = once
        self._quiet = quiet
        self._stopping = stopping
        self._unfinished: Sequence[Unfinished] = ()
        self._failure: BaseException | None = None
        self._counters: Mapping[str, Mapping[str, int]] = {}
        self._buried: Mapping[str, int] = {}
        self._seconds = 0.0
        self.was_replaced = False
        """True once a part has told that a later process has its place."""

    def run(self, trace: Path | None) -> Exit:
        """Run to the end. Raises what the engine raises, after everything is ended."""
        from surepipe.pipelines.live import Observing
        from surepipe.pipelines.run import RealEnvironment

        with ExitStack() as held:
            sink = held.enter_context(_recorder(trace)) if trace is not None else None
            observing = held.enter_context(
                Observing(self._assessment, self._node, self._counted, self._looks, sink)
            )

            def noticed(notice: PipeNotice) -> None:
                self.was_replaced |= notice.kind == "Fenced"
                observing.notice(notice)

            environment = RealEnvironment(
                self._plan, trace=observing.trace, notices=noticed, stopped=self._stopped
            )
            engine = self._on.make(
                self._plan,
                self._node,
                environment,
                once=self._once,
                answers_s=self._stopping.drain_s if self._once else None,
            )
            self._engine = engine
            show(
                (line((what, "dim"), f"  {url}") for what, url in observing.urls.items()),
                sys.stderr,
            )
            held.enter_context(self._stopping.heard(self._last_words))
            held.enter_context(few_collections())
            began = environment.clock.monotonic()
            try:
                engine.start()
                observing.attach(engine)
                observing.become("running")
                self._until_done(engine, observing)
            except BaseException as error:
                self._stopped(error)
                raise
            finally:
                observing.become("stopping")
                engine.close(self._end_s)
                self._counters, self._buried = engine.counters(), engine.buried
                self._seconds = environment.clock.monotonic() - began
        if behind := [str(file.path) for file in environment.files if file.is_behind]:
            complain(
                f"{', '.join(behind)}: the last lines could not be written. They are stored: run it again when "
                "there is room, and it writes them"
            )
        if self._stopping.is_asked:
            return Exit.INTERRUPTED
        return Exit.VIOLATED if behind or engine.gave_up else Exit.HELD

    @property
    def _end_s(self) -> float:
        """How long the end may take: after a failure it waits for nobody."""
        if self._failure is not None:
            return 0.5
        return CLOSE_S if self._stopping.is_asked else END_S

    def _until_done(self, engine: AnyEngine, observing: Observing) -> None:
        is_draining = False
        with self._progress(engine) as tell:
            while not engine.look():
                if self._failure is not None:
                    raise self._failure
                if self._stopping.is_asked and not is_draining:
                    is_draining = True
                    engine.stop_sources()
                    observing.become("stopping")
                    complain("finishing what was taken; once more to stop now")
                if self._stopping.is_over:
                    self._leave(engine)
                    break
                tell()
                engine.wait(LOOK_S)
            else:
                if is_draining or engine.gave_up:
                    self._leave(engine, is_orderly=not engine.gave_up)
            tell()

    def _leave(self, engine: AnyEngine, *, is_orderly: bool = False) -> None:
        """Say what is not through, and whether it comes again. After an orderly end streams may have some."""
        self._unfinished = engine.unfinished()
        lines = [f"  {one}" for one in self._unfinished] or ["  nothing that this process knows of"]
        if self._unfinished or not is_orderly:
            complain("\n".join(["stopped, and left unfinished:", *lines]))

    def _last_words(self) -> None:
        complain(
            "stopped without an orderly end: something does not return. The stores have what they had"
        )

    def _counted(self) -> Mapping[str, Mapping[str, int]]:
        return self._engine.counters() if self._engine is not None else {}

    def _stopped(self, why: BaseException) -> None:
        self._failure = self._failure or why

    # What is shown.

    @contextmanager
    def _progress(self, engine: AnyEngine) -> Generator[Callable[[], None]]:
        """On a terminal a line that moves; in a log nothing until the end."""
        if self._quiet or not sys.stderr.isatty():
            yield lambda: None
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), refresh_per_second=8, transient=True) as live:
            yield lambda: live.update(Text(_moving(engine.counters(), self._on.kind)))

    def document(self, code: Exit) -> dict[str, object]:
        return {
            "exit": int(code),
            "pipeline": self._plan.name,
            "node": self._node,
            "seconds": round(self._seconds, 3),
            "counters": {part: dict(counts) for part, counts in self._counters.items()},
            "dead_letters": dict(self._buried),
            "unfinished": [
                {"part": one.part, "count": one.count, "safe": one.is_safe, "text": str(one)}
                for one in self._unfinished
            ],
        }

    def lines(self) -> Iterator[Line]:
        """The run for people: a line for each part."""
        width = max(map(len, self._counters), default=0)
        for part in self._plan.order:
            if part.name in self._counters:
                told = _told(self._counters[part.name])
                yield line((part.name.ljust(width), "head"), f"  {told}")
        if self._on.kind == "spark" and "spark" in self._counters:
            yield line(("spark".ljust(width), "head"), f"  {told_of_query(self._counters)}")
        for stream, count in self._buried.items():
            letters = "letter" if count == 1 else "letters"
            yield line((f"{count} dead {letters} in {stream}", "warn"), ": see surepipe dlq list")
        yield line(f"ended after {self._seconds:.1f} s")


_TOLD = (
    "taken",
    "passed",
    "left_out",
    "accepted",
    "settled",
    "confirmed",
    "failed",
    "dead_lettered",
    "parked",
    "retransmitted",
)


def _told(counts: Mapping[str, int]) -> str:
    """Those that say something, in the order of a message's way."""
    return (
        ", ".join(f"{counts[name]} {name.replace('_', '-')}" for name in _TOLD if counts.get(name))
        or "nothing to do"
    )


def _moving(counters: Mapping[str, Mapping[str, int]], engine: str) -> str:
    told = {part: _told(counts) for part, counts in counters.items()}
    if engine == "spark" and "spark" in counters:
        told["spark"] = told_of_query(counters)
    return "   ".join(f"{part}: {text}" for part, text in told.items())


# Before it runs.


def _recorder(trace: Path) -> TraceRecorder:
    from surepipe.audit.trace_file import TraceRecorder

    try:
        return TraceRecorder(trace)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"the trace {trace} can't be written: {reason}") from error


@contextmanager
def _logging(kind: LogKind) -> Generator[None]:
    """With JSON: each record one object on one line, as long as this is open."""
    if kind is LogKind.TEXT:
        yield
        return
    import logging

    from surepipe.observe.logs import log_as_json

    handler = log_as_json()
    try:
        yield
    finally:
        logging.getLogger("surepipe").removeHandler(handler)


def _checked(document: Document, engine: str) -> Assessment:
    """Raises typer.Exit when the pipeline can't be what it says; the servers are asked what they keep."""
    from surepipe.cli.engines import probed_levels
    from surepipe.cli.verdicts import as_problems
    from surepipe.pipelines import assess

    assessment = assess(document.plan, levels=probed_levels(document.plan), engine=engine)
    for problem in as_problems(assessment, document):
        complain_about_file(problem)
    if not assessment.usable:
        raise typer.Exit(Exit.UNUSABLE)
    if not assessment.held:
        complain("nothing was started: the pipeline can't keep what it expects")
        raise typer.Exit(Exit.VIOLATED)
    return assessment


def _chosen_node(document: Document, node: str | None) -> str:
    nodes = document.plan.nodes
    if node is None and len(nodes) == 1:
        return nodes[0]
    if node is None or node not in nodes:
        said = "several nodes" if node is None else f"no node {node!r}"
        complain(f"{document.plan.name} has {said}: write --node with one of {', '.join(nodes)}")
        raise typer.Exit(Exit.UNUSABLE)
    return node


def promises(assessment: Assessment, engine: str) -> Iterator[Line]:
    """The guarantees from end to end, as ``check`` derives them, and the everyday faults that break them."""
    from surepipe.core.claims import EVERYDAY, WORDS

    for verdict in assessment.ways:
        if verdict.explanation is not None:
            short = [word for word in EVERYDAY if not WORDS[word] <= verdict.tolerates]
            yield line(
                (verdict.name, "head"),
                f"  {verdict.delivers(engine)}",
                (f"; not through {', '.join(short)}: see surepipe check" if short else "", "warn"),
            )
