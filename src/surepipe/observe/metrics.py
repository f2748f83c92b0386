"""Counters, gauges and latencies of pipes for Prometheus. Needs the extra ``surepipe[metrics]``.

    latencies = Latencies()
    with Pipe("orders", trace=latencies) as pipe:
        with MetricsServer([pipe], latencies, port=9400):
            ...

Names: ``surepipe_<counter>_total{pipe="..."}``, ``surepipe_<gauge>{pipe="..."}``,
``surepipe_settled_seconds``, ``surepipe_confirmed_seconds`` (histograms, from accepted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from surepipe.observe.latency import BOUNDS_US, Histogram, Latencies

GAUGES = frozenset(
    {
        *("backlog", "backlog_bytes", "held", "held_bytes", "in_flight", "in_flight_bytes"),
        *("in_work", "in_work_bytes", "lag", "loaded", "unconfirmed"),
    }
)
"""What may fall as well as rise; everything else that a pipe counts only rises."""


class Counted(Protocol):
    """A pipe, or an end of one."""

    name: str

    def counters(self) -> Mapping[str, int]:
        """What it has counted, and what stands now."""
        ...


class PipeCollector(Collector):
    """Asks the pipes whenever Prometheus asks; between two scrapes it costs nothing."""

    def __init__(
        self, pipes: Callable[[], Iterable[Counted]], latencies: Latencies | None = None
    ) -> None:
        self._pipes = pipes
        self._latencies = latencies

    def collect(self) -> Iterator[Metric]:
        """All metrics of all pipes."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for pipe in self._pipes():
            for name, value in pipe.counters().items():
                family = families.get(name) or families.setdefault(name, _family(name))
                family.add_metric([pipe.name], value)
        yield from families.values()
        if self._latencies is not None:
            yield _histograms(
                "surepipe_settled_seconds", "accepted to settled", self._latencies.settled
            )
            yield _histograms(
                "surepipe_confirmed_seconds", "accepted to confirmed", self._latencies.confirmed
            )


def _family(name: str) -> CounterMetricFamily | GaugeMetricFamily:
    text = name.replace("_", " ")
    kind = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
    return kind(f"surepipe_{name}", text, labels=["pipe"])


def _histograms(name: str, text: str, found: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=["pipe"])
    for pipe, histogram in list(found.items()):
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

    Port 0 takes any that is free. ``pipes`` may be a function, where pipes come and go.
    """

    def __init__(
        self,
        pipes: Sequence[Counted] | Callable[[], Iterable[Counted]],
        latencies: Latencies | None = None,
        *,
        port: int = 9400,
        address: str = "127.0.0.1",
    ) -> None:
        registry = CollectorRegistry()
        registry.register(PipeCollector(pipes if callable(pipes) else lambda: pipes, latencies))
        self._server, self._thread = start_http_server(port, address, registry)
        self.port: int = self._server.server_port
        self.url = f"http://{address}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
