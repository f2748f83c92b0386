"""Everything that looks at one run of a node: page, metrics, spans. What is not asked for is not there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from surepipe.actors.notices import PipeNotice, log_notice
from surepipe.actors.tracing import TraceSink
from surepipe.effects import Letter
from surepipe.errors import ConfigurationError
from surepipe.observe.health import StoreWatch
from surepipe.observe.latency import Latencies
from surepipe.observe.logs import LoggedRows
from surepipe.observe.rates import Counts
from surepipe.observe.serving import Place
from surepipe.observe.status import LetterSeen, State, StoreSeen
from surepipe.observe.tee import Tee
from surepipe.observe.watch import Beside, Watch
from surepipe.pipelines.assessing import Assessment
from surepipe.pipelines.links import link
from surepipe.pipelines.live.parts import full_name, watch
from surepipe.pipelines.live.serving import serve
from surepipe.pipelines.plan import Plan
from surepipe.store_api import Store

logger = logging.getLogger("surepipe")


@dataclass(frozen=True, slots=True)
class Looks:
    """What is asked for, and where. Port 0 takes any that is free.

    ``spans_every``: one message in so many has spans. ``log_rows``: dead letters, rejections and crashes are
    logged with the identities of their messages.
    """

    page: Place | None = None
    metrics: Place | None = None
    spans_every: int | None = None
    log_rows: bool = False


class Observing:
    """Looks at a run while it is open.

    Give ``trace`` and ``notice`` to what runs, and say what becomes of it: it is starting at first. Raises
    ConfigurationError when a port can't be had, or a library is missing.
    """

    def __init__(
        self,
        assessment: Assessment,
        node: str,
        counters: Callable[[], Counts],
        looks: Looks,
        recorder: TraceSink | None = None,
    ) -> None:
        self.urls: dict[str, str] = {}
        self._watch: Watch | None = None
        self._stores: Callable[[], tuple[StoreSeen, ...]] = tuple
        self._stores_of_pipes = {
            use.store for pipe in assessment.plan.pipes for use in link(pipe).stores
        }
        with ExitStack() as open_until_now:
            measured = looks.page is not None or looks.metrics is not None
            latencies = Latencies() if measured else None
            sinks: list[TraceSink] = [sink for sink in (recorder, latencies) if sink is not None]
            if looks.log_rows:
                sinks.append(LoggedRows())
            if looks.spans_every is not None:
                sinks.append(_spans(looks.spans_every, open_until_now))
            if looks.page is not None:
                self._watch = watch(assessment, counters, latencies, node=node)
                self._watch.state = "starting"
                open_until_now.callback(self._watch.keep_looking())
                where, port = looks.page
                page = serve(assessment, self._watch, port=port, address=where)
                self.urls["page"] = open_until_now.enter_context(page).url
            if looks.metrics is not None:
                self._serve_metrics(
                    assessment.plan, counters, latencies, looks.metrics, open_until_now
                )
            self.trace: TraceSink | None = (
                sinks[0] if len(sinks) == 1 else Tee(*sinks) if sinks else None
            )
            self._open = open_until_now.pop_all()

    def _serve_metrics(
        self,
        plan: Plan,
        counters: Callable[[], Counts],
        latencies: Latencies | None,
        place: Place,
        open_until_now: ExitStack,
    ) -> None:
        try:
            from surepipe.observe.metrics import MetricsServer
        except ImportError as error:
            raise _missing("metrics need", error) from None
        names = {pipe.name for pipe in plan.pipes}

        def counted(*, pipes: bool) -> Iterable[_Counted]:
            return [
                _Counted(full_name(plan, name), counts)
                for name, counts in counters().items()
                if (name in names) is pipes
            ]

        server = MetricsServer(
            lambda: counted(pipes=True),
            latencies,
            port=place.port,
            address=place.address,
            parts=lambda: counted(pipes=False),
            silent_s=lambda: {store.name: store.silent_s or 0.0 for store in self._stores()},
        )
        self.urls["metrics"] = open_until_now.enter_context(server).url

    def notice(self, notice: PipeNotice) -> None:
        """Log a notice, and keep it for the page."""
        log_notice(notice)
        if self._watch is not None:
            self._watch.notice(notice)

    def attach(self, run: object) -> None:
        """Ask this run too, once it has started: its stores, how far its sources are, its last dead letters."""
        if not self.urls or not isinstance(run, _Telling):
            return
        asking = StoreWatch(run.stores, self._store_said, run.silent_s)
        self._stores = self._open.enter_context(asking).seen
        if self._watch is None:
            return
        self._watch.beside = Beside(
            stores=self._stores,
            letters=lambda: tuple(_letter(*each) for each in run.last_letters()),
            progress=run.progress,
        )

    def _store_said(self, store: str, text: str) -> None:
        if store in self._stores_of_pipes:
            return  # they tell it themselves, with what waits for it
        logger.warning("store %s %s", store, text)
        if self._watch is not None:
            self._watch.tell(f"store {store}", text)

    def become(self, state: State) -> None:
        """The run has come so far."""
        if self._watch is not None:
            self._watch.state = state

    def close(self) -> None:
        """Stop looking. A repeat does nothing."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@runtime_checkable
class _Telling(Protocol):
    """A run that can tell more than counters."""

    @property
    def stores(self) -> Mapping[str, Store]: ...

    def last_letters(self) -> Sequence[tuple[str, Letter]]: ...

    def progress(self) -> Mapping[str, tuple[int, int, int]]: ...

    def silent_s(self) -> Mapping[str, float]: ...


def _letter(stream: str, letter: Letter) -> LetterSeen:
    return LetterSeen(
        stream=stream,
        pipe=letter.pipe,
        epoch=letter.epoch,
        seq=letter.seq,
        error=letter.error_type,
        text=letter.error_text,
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    name: str
    counts: Mapping[str, int]

    def counters(self) -> Mapping[str, int]:
        return self.counts


def _spans(every: int, open_until_now: ExitStack) -> TraceSink:
    try:
        from surepipe.observe.spans import Spans
        from surepipe.observe.telemetry import tracing
    except ImportError as error:
        raise _missing("spans need", error) from None
    tracer, shut_down = tracing()
    open_until_now.callback(shut_down)
    spans = Spans(tracer, every=every)
    open_until_now.callback(spans.close)
    return spans


def _missing(what: str, error: ImportError) -> ConfigurationError:
    return ConfigurationError(f"{what} {error.name}: pip install surepipe[metrics]")
