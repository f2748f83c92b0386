"""Watches a running pipeline: what to ask for its counters, and what it is, become a ``Status`` on demand."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from surepipe.actors.notices import PipeNotice
from surepipe.observe.gauges import GAUGES
from surepipe.observe.latency import Histogram, Latencies
from surepipe.observe.rates import Counts, Rates
from surepipe.observe.status import Flow, Part, State, Status, Told, Took
from surepipe.pipes.algebra.derivation import Derived

NOTICES_MAX = 20


class Guaranteed(Protocol):
    """A pipe, or an end of one."""

    name: str

    @property
    def guarantee(self) -> Derived:
        """What it promises."""
        ...


def pipes_of(pipes: Iterable[Guaranteed]) -> tuple[Part, ...]:
    """The parts of a program that has pipes and no plan."""
    return tuple(
        Part(
            name=pipe.name,
            role="pipe",
            guarantee=f"{pipe.guarantee.headline.delivery}, {pipe.guarantee.headline.order}",
            tolerates=tuple(sorted(pipe.guarantee.headline.tolerates)),
            flow=Flow(),
        )
        for pipe in pipes
    )


class Watch:
    """Nothing happens between two calls of ``status``; one call asks each pipe once.

    ``parts``: what the pipeline consists of, pipes with an empty ``Flow``. ``counters`` gives what was counted, by
    name of the part; a pipe that it leaves out is not of this process. ``traced_as``: what a part is called in
    traces. Set ``state`` as the run goes on.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        counters: Callable[[], Counts],
        latencies: Latencies | None = None,
        *,
        node: str = "",
        traced_as: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.parts = tuple(parts)
        self.state: State = "running"
        self._node = node
        self._traced_as = traced_as
        self._counters = counters
        self._latencies = latencies
        self._clock, self._wall = clock, wall
        self._begun = clock()
        self._rates = Rates(clock, counters())
        self._told: deque[Told] = deque(maxlen=NOTICES_MAX)
        self._lock = threading.Lock()

    def notice(self, notice: PipeNotice) -> None:
        """Keep a notice for those who look; the last ones stay. From any thread."""
        self._told.append(
            Told(
                time=self._time(),
                pipe=notice.pipe,
                end=notice.end,
                kind=str(notice.kind),
                text=str(notice),
            )
        )

    def status(self) -> Status:
        """What is true now. From any thread."""
        with self._lock:
            counts = self._counters()
            over_s, per_s = self._rates.look(counts)
            settled = self._latencies.settled if self._latencies else {}
            confirmed = self._latencies.confirmed if self._latencies else {}
            return Status(
                name=self.name,
                node=self._node,
                state=self.state,
                time=self._time(),
                uptime_s=round(self._clock() - self._begun, 1),
                rates_over_s=round(over_s, 1),
                parts=tuple(
                    self._filled(part, counts, per_s.get(part.name, {}), settled, confirmed)
                    for part in self.parts
                ),
                notices=tuple(self._told.copy()),
            )

    def _filled(
        self,
        part: Part,
        counts: Counts,
        per_s: Mapping[str, float],
        settled: Mapping[str, Histogram],
        confirmed: Mapping[str, Histogram],
    ) -> Part:
        found = counts.get(part.name)
        if found is None:
            is_here = part.flow is None and part.node == self._node
            return part.model_copy(update={"here": is_here})
        rising = {name: rate for name, rate in per_s.items() if name not in GAUGES}
        changes: dict[str, object] = {"counts": dict(found), "per_s": rising}
        if part.flow is not None:
            name = self._traced_as(part.name)
            took = (_took(settled.get(name)), _took(confirmed.get(name)))
            changes["flow"] = _flow(found, rising, *took)
        return part.model_copy(update=changes)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")


def _flow(
    found: Mapping[str, int],
    per_s: Mapping[str, float],
    settling: Took | None,
    confirming: Took | None,
) -> Flow:
    """``accepted`` is counted where the sender is, ``settled`` where the receiver is."""
    sends, receives = "in_flight" in found, "in_work" in found and "held" in found
    oldest_us = found.get("oldest_unconfirmed_us")
    of_sender = {name: found.get(name) for name in ("accepted", "confirmed", "backlog", "given_up")}
    of_receiver = {name: found.get(name) for name in ("settled", "lag", "in_work", "held")}
    return Flow.model_validate(
        {
            "restarts": found.get("restarts"),
            "settling": settling,
            "confirming": confirming,
            **(of_sender if sends else {}),
            **(of_receiver if receives else {}),
            "accepted_per_s": per_s.get("accepted") if sends else None,
            "settled_per_s": per_s.get("settled") if receives else None,
            "unconfirmed": found["in_flight"] + found.get("backlog", 0) if sends else None,
            "oldest_unconfirmed_s": None if oldest_us is None else oldest_us / 1_000_000,
            "retransmitted": found.get("retransmitted") if sends else None,
            "duplicates": found.get("duplicate") if receives else None,
            "dead_letters": found.get("dead_lettered") if receives else None,
        }
    )


def _took(histogram: Histogram | None) -> Took | None:
    if histogram is None:
        return None
    p50, p99 = histogram.quantile_us(0.5), histogram.quantile_us(0.99)
    return Took(count=histogram.count, p50_ms=p50 / 1000, p99_ms=p99 / 1000)
