"""Counters, gauges and latencies of pipes for Prometheus. Needs the extra ``surepipe[metrics]``.

    latencies = Latencies()
    with Pipe("orders", trace=latencies) as pipe:
        with MetricsServer([pipe], latencies, port=9400):
            ...

Names: ``surepipe_<counter>_total{pipe="..."}``, ``surepipe_<gauge>{pipe="..."}`` (times in seconds),
``surepipe_settled_seconds``, ``surepipe_confirmed_seconds`` (histograms, from accepted),
``surepipe_store_silent_seconds{store="..."}`` (0 while it answers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from surepipe.observe.latency import BOUNDS_US, Histogram, Latencies
from surepipe.observe.serving import Answer, PageServer
from surepipe.observe.status import GAUGES, Faced, observed_as, sync_of
from surepipe.observe.watch import silent_s, stores_of

if TYPE_CHECKING:
    from surepipe.actors.clusters import Cluster
    from surepipe.actors.parties import Figures

_US = "_us"
OF_STREAMS = frozenset({"lag"})
"""What was read of a stream: the last of it is no word about now while its store does not answer."""


class Counted(Protocol):
    """A pipe, or an end of one."""

    @property
    def name(self) -> str: ...

    def counters(self) -> Mapping[str, int]:
        """Its counters, and its current gauges."""
        ...


class PipeCollector(Collector):
    """Asks the pipes whenever Prometheus asks; between two scrapes it costs nothing.

    Ends of one name, such as the two of a pipe, are counted together; a reader or producer of a stream with a name
    of its own is one by itself, ``posts/mail``. ``parts``: what else a pipeline has; their
    metrics begin with ``surepipe_part_`` and have the label ``part``. ``silent_s``: for how long each store has
    not answered, beside what the pipes know of that. While one is silent, what only that knows is left out.
    """

    def __init__(
        self,
        pipes: Callable[[], Iterable[Counted]],
        latencies: Latencies | None = None,
        parts: Callable[[], Iterable[Counted]] = tuple,
        silent_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._silent_s = silent_s
        self._pipes = pipes
        self._latencies = latencies
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        pipes = tuple(self._pipes())
        waited_s = {**silent_s(pipes), **self._silent_s()}
        silent = frozenset(store for store, seconds in waited_s.items() if seconds)
        yield from _families(pipes, "pipe", "", silent)
        yield from _families(self._parts(), "part", "part_", silent)
        if waited_s:
            family = GaugeMetricFamily(
                "surepipe_store_silent_seconds", "time without an answer", labels=["store"]
            )
            for store, seconds in waited_s.items():
                family.add_metric([store], seconds)
            yield family
        if self._latencies is not None:
            yield _histograms(
                "surepipe_settled_seconds", "accepted to settled", self._latencies.settled
            )
            yield _histograms(
                "surepipe_confirmed_seconds", "accepted to confirmed", self._latencies.confirmed
            )


class RelayCollector(Collector):
    """What waits on the paths of a relay between parties, and what came of its submissions, by path."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        for name, text, label in _RELAY_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["path", *([label] if label else [])])
            for (found, path, which), value in figures.items():
                if found == name:
                    family.add_metric([path, *([which] if label else [])], value)
            yield family
        submitted = CounterMetricFamily(
            "surepipe_ibc_submitted",
            "items by kind and outcome",
            labels=["path", "kind", "outcome"],
        )
        headers = CounterMetricFamily("surepipe_ibc_headers", "headers submitted", labels=["path"])
        for (found, path, which), value in figures.items():
            if found == submitted.name:
                submitted.add_metric([path, *which.split("/")], value)
            elif found == headers.name:
                headers.add_metric([path], value)
        yield submitted
        yield headers


class ClusterCollector(Collector):
    """How the nodes of a replicated queue stand that run here, and what they counted, by node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[Metric]:
        kinds = (
            (GaugeMetricFamily, self._cluster.gauges()),
            (CounterMetricFamily, self._cluster.counters()),
        )
        for family, nodes in kinds:
            names = sorted({name for found in nodes.values() for name in found})
            for name in names:
                words = name.replace("_", " ").replace("-", " ")
                known = f"surepipe_rmq_{name.replace('-', '_')}"
                one = family(known, f"{words}, of a node", labels=["node"])
                for node, found in nodes.items():
                    if name in found:
                        one.add_metric([node], found[name])
                yield one


_RELAY_GAUGES = (
    ("surepipe_ibc_pending", "messages that wait", "stage"),
    ("surepipe_ibc_oldest_pending_index", "index of the oldest that waits", "stage"),
    ("surepipe_ibc_pending_age_seconds", "for how long the oldest waits", "stage"),
    ("surepipe_ibc_parked", "messages put aside until the next clearing", ""),
    ("surepipe_ibc_trust_remaining_seconds", "until a party isn't believed any more", ""),
    ("surepipe_ibc_live", "1 while the path is carried", "state"),
)


def _families(
    all_counted: Iterable[Counted], label: str, prefix: str, silent: Set[str]
) -> Iterator[Metric]:
    totals: dict[str, dict[str, int]] = {}
    for counted in all_counted:
        unknown = frozenset[str]() if silent.isdisjoint(stores_of(counted)) else OF_STREAMS
        for name, value in counted.counters().items():
            if name in unknown:
                continue
            total = totals.setdefault(name, {})
            owner = observed_as(counted)
            total[owner] = total.get(owner, 0) + value
    for name, total in totals.items():
        yield _family(name, total, label, prefix)


def _family(
    name: str, total: Mapping[str, int], label: str, prefix: str
) -> CounterMetricFamily | GaugeMetricFamily:
    kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
    is_time = name.endswith(_US)
    full = f"{name.removesuffix(_US)}_seconds" if is_time else name
    family = kind(f"surepipe_{prefix}{full}", full.replace("_", " "), labels=[label])
    for owner, value in total.items():
        family.add_metric([owner], value / 1_000_000 if is_time else value)
    return family


def _histograms(name: str, text: str, found: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=["pipe"])
    for pipe, histogram in found.items():
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip(BOUNDS_US, histogram.counts, strict=False):
            total += count
            buckets.append((str(bound / 1_000_000), total))
        buckets.append(("+Inf", histogram.count))
        family.add_metric([pipe], buckets, sum_value=histogram.sum_us / 1_000_000)
    return family


class MetricsServer:
    """Serves the metrics of these pipes at ``http://address:port/metrics`` while it is open.

    Port 0 takes any that is free. ``pipes`` may be a function, where pipes come and go. Raises
    ConfigurationError when the port can't be had.
    """

    def __init__(
        self,
        pipes: Sequence[Counted | Faced[Counted]]
        | Callable[[], Iterable[Counted | Faced[Counted]]],
        latencies: Latencies | None = None,
        *,
        port: int = 9400,
        address: str = "127.0.0.1",
        parts: Callable[[], Iterable[Counted]] = tuple,
        silent_s: Callable[[], Mapping[str, float]] = dict,
        more: Sequence[Collector] = (),
    ) -> None:
        registry = CollectorRegistry()
        given = pipes if callable(pipes) else lambda: pipes

        def asked() -> Iterable[Counted]:
            return map(sync_of, given())

        for collector in (PipeCollector(asked, latencies, parts, silent_s), *more):
            registry.register(collector)

        def page() -> Answer:
            return Answer("text/plain; version=0.0.4", generate_latest(registry).decode())

        self._server = PageServer({"/metrics": page}, port=port, address=address, what="metrics")
        self.port: int = self._server.port
        self.url = f"{self._server.url}metrics"

    def close(self) -> None:
        """Stop serving. A repeat does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
