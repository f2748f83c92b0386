"""Everything that looks at one run of a node: page, metrics, spans. What is not asked for is not there."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from surepipe.actors.notices import PipeNotice, log_notice
from surepipe.actors.tracing import TraceSink
from surepipe.core.effects import Letter
from surepipe.core.store_requests import Store
from surepipe.drawing.flow import STYLE
from surepipe.errors import ConfigurationError
from surepipe.observe.latency import Latencies
from surepipe.observe.logs import LoggedRows
from surepipe.observe.serving import DEFAULT_PORT, LOCAL, Answer, ListenAddress, PageServer
from surepipe.observe.status import (
    BookSeen,
    Counts,
    LetterSeen,
    Part,
    PathSeen,
    PipeFlow,
    State,
    StoreSeen,
)
from surepipe.observe.status_server import status_pages
from surepipe.observe.watch import RunFacts, StoreWatch, Tee, Watch
from surepipe.pipelines.assessing import Assessment, Verdict
from surepipe.pipelines.diagram import diagram_of
from surepipe.pipelines.links import link
from surepipe.pipelines.live.page import PAGE_SCRIPT, PAGE_STYLE, live_page
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.structure import MAIN_NODE
from surepipe.storage.letters import whose

if TYPE_CHECKING:
    from surepipe.actors.parties import Figures

# Serves a running pipeline on this machine: the page, and the status as JSON.


_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    f"form-action 'none'; style-src 'self' 'sha256-{_STYLE_HASH}'"
)
"""Nothing but what this server gives; the one style inside the page is that of the picture."""


def serve(
    assessment: Assessment, watch: Watch, *, port: int = DEFAULT_PORT, address: str = LOCAL
) -> PageServer:
    """Serve the page at ``/``, the status at ``/status.json``, and one word of it at ``/health``.

    Raises ConfigurationError for a port in use.
    """
    diagram = diagram_of(assessment.plan, assessment)

    def page() -> Answer:
        return Answer("text/html", live_page(diagram, watch.status()), POLICY)

    return PageServer(
        {
            **status_pages(watch),
            "/": page,
            "/page.css": lambda: Answer("text/css", PAGE_STYLE),
            "/page.js": lambda: Answer("text/javascript", PAGE_SCRIPT),
        },
        port=port,
        address=address,
    )


# What a plan says about its parts, for a status: names, what feeds what, where it runs, what it guarantees.


SPARK = "spark"
"""The engine, its node, and the part that the numbers of its query belong to."""


def watch(
    assessment: Assessment,
    counters: Callable[[], Counts],
    latencies: Latencies | None = None,
    *,
    node: str = MAIN_NODE,
    clock: Callable[[], float] = time.monotonic,
) -> Watch:
    """Watch a plan that runs; ``counters`` gives what was counted, by name of the part."""
    plan = assessment.plan
    return Watch(
        plan.name,
        parts_of(assessment),
        counters,
        latencies,
        node=node,
        traced_as=lambda name: full_name(plan, name),
        clock=clock,
    )


def full_name(plan: Plan, name: str) -> str:
    """What a part is called among those of other pipelines: in traces and metrics."""
    return f"{plan.name}/{name}"


def parts_of(assessment: Assessment) -> tuple[Part, ...]:
    """The parts, each after what feeds it. On Spark all are at its driver, and the query counts beside them."""
    on_spark = assessment.engine == SPARK
    parts = tuple(_parts(assessment))
    if not on_spark:
        return parts
    here = tuple(part.model_copy(update={"node": SPARK}) for part in parts)
    return (*here, Part(name=SPARK, role="engine", node=SPARK))


def _parts(assessment: Assessment) -> Iterator[Part]:
    plan = assessment.plan
    verdicts = {verdict.name: verdict for verdict in assessment.pipes}
    places = plan.places
    return (
        Part(
            name=part.name,
            role=link(part).role,
            feeders=plan.feeders(part.name),
            node=places[part.name].node,
            flow=PipeFlow() if part.name in verdicts else None,
            guarantee=_guarantee(verdicts.get(part.name)),
            tolerates=_tolerates(verdicts.get(part.name)),
            stores=tuple(sorted({use.store for use in link(part).stores})),
            to_party=isinstance(part, PipePart) and part.ibc is not None,
        )
        for part in plan.order
    )


def _guarantee(verdict: Verdict | None) -> str:
    if verdict is None or verdict.explanation is None:
        return ""
    claim = verdict.per_key or verdict.explanation.headline
    return f"{claim.delivery}, {claim.order}{' per key' if verdict.per_key else ''}"


def _tolerates(verdict: Verdict | None) -> tuple[str, ...]:
    if verdict is None or verdict.explanation is None:
        return ()
    return tuple(sorted(str(fault) for fault in verdict.explanation.headline.tolerates))


logger = logging.getLogger("surepipe")


@dataclass(frozen=True, slots=True)
class Looks:
    """The wanted views of a run, and their addresses. Port 0 takes any that is free.

    ``spans_every``: one message in so many has spans. ``log_rows``: dead letters, rejections and crashes are
    logged with the identities of their messages.
    """

    page: ListenAddress | None = None
    metrics: ListenAddress | None = None
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
        self._run: _WithMore | None = None
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
        place: ListenAddress,
        open_until_now: ExitStack,
    ) -> None:
        try:
            from surepipe.observe.metrics import MetricsServer, RelayCollector
        except ImportError as error:
            raise _missing("metrics need", error) from None
        stores = {
            pipe.name: frozenset(use.store for use in link(pipe).stores) for pipe in plan.pipes
        }
        has_parties = any(pipe.ibc is not None for pipe in plan.pipes)

        def counted(*, pipes: bool) -> Iterable[_Counted]:
            return [
                _Counted(full_name(plan, name), counts, stores.get(name, frozenset()))
                for name, counts in counters().items()
                if (name in stores) is pipes
            ]

        server = MetricsServer(
            lambda: counted(pipes=True),
            latencies,
            port=place.port,
            address=place.address,
            parts=lambda: counted(pipes=False),
            silent_s=lambda: {store.name: store.silent_s or 0.0 for store in self._stores()},
            more=[RelayCollector(self._relayed)] if has_parties else (),
        )
        self.urls["metrics"] = open_until_now.enter_context(server).url

    def _relayed(self) -> Figures:
        return {} if self._run is None else self._run.relay_figures()

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
        if isinstance(run, _WithMore):
            self._run = run
        if self._watch is None:
            return
        self._watch.beside = RunFacts(
            stores=self._stores,
            letters=lambda: tuple(_letter(*each) for each in run.last_letters()),
            progress=run.progress,
            books=run.books if isinstance(run, _WithMore) else dict,
            paths=run.paths if isinstance(run, _WithMore) else dict,
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

    def __exit__(self, *error: object) -> None:
        self.close()


@runtime_checkable
class _Telling(Protocol):
    """A run that can tell more than counters."""

    @property
    def stores(self) -> Mapping[str, Store]: ...

    def last_letters(self) -> Sequence[tuple[str, Letter]]: ...

    def progress(self) -> Mapping[str, tuple[int, int, int]]: ...

    def silent_s(self) -> Mapping[str, float]: ...


@runtime_checkable
class _WithMore(Protocol):
    """A run that may have books open, and relays between parties."""

    def books(self) -> Mapping[str, BookSeen]: ...

    def paths(self) -> Mapping[str, PathSeen]: ...

    def relay_figures(self) -> Figures: ...


def _letter(stream: str, letter: Letter) -> LetterSeen:
    return LetterSeen(
        stream=stream,
        pipe=letter.pipe,
        epoch=letter.epoch,
        seq=letter.seq,
        error=letter.error_type,
        text=letter.error_text,
        producer=whose(letter),
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    name: str
    counts: Mapping[str, int]
    store_names: frozenset[str] = frozenset()

    def counters(self) -> Mapping[str, int]:
        return self.counts


def _spans(every: int, open_until_now: ExitStack) -> TraceSink:
    try:
        from surepipe.observe.spans import Spans, tracing
    except ImportError as error:
        raise _missing("spans need", error) from None
    tracer, shut_down = tracing()
    open_until_now.callback(shut_down)
    spans = Spans(tracer, every=every)
    open_until_now.callback(spans.close)
    return spans


def _missing(what: str, error: ImportError) -> ConfigurationError:
    return ConfigurationError(f"{what} {error.name}: pip install surepipe[metrics]")
