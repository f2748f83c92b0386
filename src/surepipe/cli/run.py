"""``surepipe run``: run a pipeline, or what of it belongs to one node, until its sources end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.exits import Exit
from surepipe.cli.output import Line, complain, complain_about_file, line, show, show_json
from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.pipelines import Assessment, Document
    from surepipe.pipelines.engine import Engine
    from surepipe.pipelines.live import Looks, Observing
    from surepipe.simulation.recorder import TraceRecorder

LOOK_S = 0.05
CLOSE_S = 10.0


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
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a trace to this file, for surepipe audit.", show_default=False),
    ] = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Take what sources have now, and end where they would wait."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document at the end, for machines.")
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Serve a page on this machine that shows what happens.")
    ] = False,
    web_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve it on this port in place of 8470.")
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="Serve metrics for Prometheus on this port of the machine."
        ),
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
    and commit what was taken. Twice: stop now; what is not finished is in the stores, for the next run.
    """
    from surepipe.observe.serving import DEFAULT_PORT
    from surepipe.pipelines import read
    from surepipe.pipelines.live import Looks

    document = read(file)
    assessment = _checked(document)
    chosen = _chosen_node(document, node)
    page_port = DEFAULT_PORT if web and web_port is None else web_port
    looks = Looks(page_port, metrics, otel, log_rows=log is LogKind.JSON)
    runner = Runner(assessment, chosen, looks, once=once, quiet=as_json)
    if not as_json:
        show(_promises(assessment))
    with _logging(log):
        code = runner.run(trace)
    if as_json:
        show_json(runner.document(code))
    else:
        show(runner.lines())
    if code is not Exit.HELD:
        raise typer.Exit(code)


class Runner:
    """One run of a node: signals, progress, and the end."""

    def __init__(
        self, assessment: Assessment, node: str, looks: Looks, *, once: bool, quiet: bool
    ) -> None:
        self._plan = assessment.plan
        self._node = node
        self._assessment = assessment
        self._looks = looks
        self._engine: Engine | None = None
        self._once = once
        self._quiet = quiet
        self._interrupts = 0
        self._failure: BaseException | None = None
        self._counters: Mapping[str, Mapping[str, int]] = {}
        self._buried: Mapping[str, int] = {}
        self._seconds = 0.0

    def run(self, trace: Path | None) -> Exit:
        """Run to the end. Raises what the engine raises, after everything is ended."""
        from surepipe.pipelines.engine import Engine, RealEnvironment
        from surepipe.pipelines.live import Observing

        with ExitStack() as held:
            sink = held.enter_context(_recorder(trace)) if trace is not None else None
            observing = held.enter_context(
                Observing(self._assessment, self._node, self._counted, self._looks, sink)
            )
            environment = RealEnvironment(
                self._plan, trace=observing.trace, notices=observing.notice, stopped=self._stopped
            )
            engine = self._engine = Engine(self._plan, self._node, environment, once=self._once)
            show(
                (line((what, "dim"), f"  {url}") for what, url in observing.urls.items()),
                sys.stderr,
            )
            held.enter_context(self._signals(engine, observing))
            began = environment.clock.monotonic()
            try:
                engine.start()
                self._until_done(engine)
            finally:
                observing.become("stopping")
                engine.close(0.5 if self._interrupts > 1 or self._failure else CLOSE_S)
                self._counters, self._buried = engine.counters(), engine.buried
                self._seconds = environment.clock.monotonic() - began
        return Exit.INTERRUPTED if self._interrupts else Exit.HELD

    def _until_done(self, engine: Engine) -> None:
        with self._progress(engine) as tell:
            while not engine.look() and self._interrupts < 2:
                if self._failure is not None:
                    raise self._failure
                tell()
                engine.wait(LOOK_S)
            tell()

    def _counted(self) -> Mapping[str, Mapping[str, int]]:
        return self._engine.counters() if self._engine is not None else {}

    def _stopped(self, why: BaseException) -> None:
        self._failure = self._failure or why

    @contextmanager
    def _signals(self, engine: Engine, observing: Observing) -> Generator[None]:
        """The first signal ends the sources, the second one everything."""

        def interrupted(number: int, frame: FrameType | None) -> None:
            del number, frame
            self._interrupts += 1
            if self._interrupts == 1:
                engine.stop_sources()
                observing.become("stopping")
                complain("finishing what was taken; once more to stop now")

        kinds = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(kind, interrupted) for kind in kinds]
        try:
            yield
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)

    # What is shown.

    @contextmanager
    def _progress(self, engine: Engine) -> Generator[Callable[[], None]]:
        """On a terminal a line that moves; in a log nothing until the end."""
        if self._quiet or not sys.stderr.isatty():
            yield lambda: None
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), refresh_per_second=8, transient=True) as live:
            yield lambda: live.update(Text(_moving(engine.counters())))

    def document(self, code: Exit) -> dict[str, object]:
        """The run for machines."""
        return {
            "exit": int(code),
            "pipeline": self._plan.name,
            "node": self._node,
            "seconds": round(self._seconds, 3),
            "counters": {part: dict(counts) for part, counts in self._counters.items()},
            "dead_letters": dict(self._buried),
        }

    def lines(self) -> Iterator[Line]:
        """The run for people: a line for each part."""
        width = max(map(len, self._counters), default=0)
        for part in self._plan.order:
            if part.name in self._counters:
                told = _told(self._counters[part.name])
                yield line((part.name.ljust(width), "head"), f"  {told}")
        for stream, count in self._buried.items():
            letters = "letter" if count == 1 else "letters"
            yield line((f"{count} dead {letters} in {stream}", "warn"), ": see surepipe dlq list")
        yield line(f"ended after {self._seconds:.1f} s")


_TOLD = (
    "taken",
    "passed",
    "accepted",
    "settled",
    "confirmed",
    "failed",
    "dead_lettered",
    "retransmitted",
)


def _told(counts: Mapping[str, int]) -> str:
    """Those that say something, in the order of a message's way."""
    return (
        ", ".join(f"{counts[name]} {name.replace('_', '-')}" for name in _TOLD if counts.get(name))
        or "nothing to do"
    )


def _moving(counters: Mapping[str, Mapping[str, int]]) -> str:
    return "   ".join(f"{part}: {_told(counts)}" for part, counts in counters.items())


# Before it runs.


def _recorder(trace: Path) -> TraceRecorder:
    from surepipe.simulation.recorder import TraceRecorder

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


def _checked(document: Document) -> Assessment:
    """Raises typer.Exit when the pipeline can't be what it says; the servers are asked what they keep."""
    from surepipe.cli.probing import probed_levels
    from surepipe.cli.verdicts import as_problems
    from surepipe.pipelines import assess

    assessment = assess(document.plan, levels=probed_levels(document.plan))
    for problem in as_problems(assessment, document):
        complain_about_file(problem)
    if not assessment.usable:
        raise typer.Exit(Exit.UNUSABLE)
    if not assessment.held:
        complain("nothing was started: the pipeline can't keep what it expects")
        raise typer.Exit(Exit.VIOLATED)
    if document.plan.engine.kind == "spark":
        complain("this pipeline is for Spark (engine: spark), and run runs actors")
        raise typer.Exit(Exit.UNUSABLE)
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


def _promises(assessment: Assessment) -> Iterator[Line]:
    """What holds from end to end, as ``check`` derives it."""
    for verdict in assessment.ways:
        if verdict.explanation is not None:
            headline = verdict.explanation.headline
            yield line((verdict.name, "head"), f"  {headline.delivery}, {headline.order} order")
