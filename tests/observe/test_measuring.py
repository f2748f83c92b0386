"""What is measured of messages is right where ends are apart, identities change, and takers of a trace fail."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from surepipe import Pipe
from surepipe.actors.steps import StepRuntime
from surepipe.actors.tracing import Columns
from surepipe.errors import ConfigurationError
from surepipe.observe import Latencies, LoggedRows, Tee, log_as_json
from surepipe.observe.metrics import MetricsServer, PipeCollector
from surepipe.observe.spans import Spans, tracing
from surepipe.observe.status import GAUGES
from surepipe.pipes.catalogue import KINDS, LayerText
from surepipe.storage.memory import MemoryStore


def row(kind: str, time_us: int, seq: int = 1, count: int = 10, **more: str | int) -> Columns:
    """A row of a trace of the pipe orders."""
    where: dict[str, str | int] = {"pipe": "orders", "epoch": 1, "seq": seq, "count": count}
    return {**where, "node": "orders/sender", "kind": kind, "time_us": time_us, **more}


def after(*rows: Columns) -> Latencies:
    """What is measured of these rows."""
    latencies = Latencies()
    for one in rows:
        latencies.write(one)
    return latencies


def test_a_sender_alone_measures_confirms_and_keeps_nothing_of_what_is_settled_elsewhere() -> None:
    """No settled row comes; a late one of what was confirmed counts no more."""
    found = after(row("accepted", 0), row("confirmed", 5_000), row("settled", 9_000))
    assert found.confirmed["orders"].sum_us == 50_000
    assert found.settled == {}


def test_where_a_store_confirms_messages_settle_later_and_all_producers_count_as_one() -> None:
    """Rows of two producers of a stream, whose start rows say that confirms mean stored."""
    stored = json.dumps({"confirms": "stored"})
    rows = [
        step
        for producer in ("orders@a", "orders@b")
        for step in (
            row("start", 0, pipe=producer, detail=stored),
            row("accepted", 0, pipe=producer),
            row("confirmed", 1_000, pipe=producer),
            row("settled", 7_000, pipe=producer),
        )
    ]
    found = after(*rows)
    assert found.confirmed["orders"].sum_us == 20_000
    assert found.settled["orders"].sum_us == 140_000


def test_a_stream_pipe_tells_how_long_its_messages_wait_in_the_store() -> None:
    """A real one: both histograms have every message, under the pipe's own name."""
    latencies = Latencies()
    with Pipe(
        "orders",
        [{"stream": {"start": "earliest"}}],
        store=MemoryStore(),
        runtime=StepRuntime(),
        trace=latencies,
    ) as pipe:
        pipe.receive(str)
        pipe.send_many([b"x"] * 20)
        pipe.flush(10)
    assert (latencies.settled["orders"].count, latencies.confirmed["orders"].count) == (20, 20)


def test_messages_with_a_new_identity_go_on_waiting() -> None:
    """Accepted at 0 as 1 to 10 of epoch 1, then 4 to 10 become 1 to 7 of epoch 2."""
    new = json.dumps({"epoch": 2, "seq": 1})
    found = after(
        row("accepted", 0),
        row("renumbered", 3_000, seq=4, count=7, detail=new),
        row("confirmed", 5_000, epoch=2, count=7),
    )
    assert found.confirmed["orders"].sum_us == 35_000


def test_a_dead_letter_waits_for_nothing_any_more_and_is_no_measure_of_settling() -> None:
    """Its time is that of the attempts."""
    found = after(row("accepted", 0), row("dead", 9, seq=4, count=1), row("settled", 1_000))
    assert found.settled["orders"].count == 9


class Broken:
    """A taker that fails."""

    with_digests = True

    def write(self, columns: Columns) -> None:
        """Raise."""
        raise OSError(columns["kind"])


def test_a_taker_of_a_trace_that_fails_keeps_no_row_from_the_others() -> None:
    """The failure is told afterwards."""
    latencies = Latencies()
    tee = Tee(Broken(), latencies)
    with pytest.raises(OSError, match="accepted"):
        tee.write(row("accepted", 0))
    with pytest.raises(OSError, match="confirmed"):
        tee.write(row("confirmed", 1_000))
    assert latencies.confirmed["orders"].count == 10
    assert tee.with_digests


@pytest.mark.parametrize("kind", KINDS)
def test_every_gauge_of_every_kind_of_pipe_is_known_to_be_one(kind: str) -> None:
    """Pipes O-1: Prometheus must not take for a counter what may fall."""
    carried = {"sequential-confirm", "strict-monotonic", "continuous-index", "dedupe"}
    layers: list[LayerText] = [kind, *(["multi-unconfirmed"] if kind in carried else [])]
    store = MemoryStore() if kind == "stream" else None
    if kind == "stream":
        layers = [{"stream": {"start": "earliest"}}]
    with Pipe("orders", layers, store=store, runtime=StepRuntime()) as pipe:
        gauges = {**pipe.sender.gauges(), **pipe.receiver.gauges()}
        pipe.receive(str)
    assert gauges
    assert gauges.keys() <= GAUGES


class Counting:
    """An end that counts what it is told to."""

    def __init__(self, name: str, **counts: int) -> None:
        self.name = name
        self._counts = counts

    def counters(self) -> dict[str, int]:
        """These."""
        return self._counts


def samples(collector: PipeCollector) -> dict[str, float]:
    """What a collector gives, by name and owner."""
    return {
        f"{sample.name} {' '.join(sample.labels.values())}": sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_ends_of_one_name_are_counted_together_times_are_seconds_and_parts_stand_apart() -> None:
    """A scrape with one series twice would be refused as a whole."""
    ends = [Counting("orders", accepted=3, rto_us=1_500_000), Counting("orders", accepted=4)]
    found = samples(PipeCollector(lambda: ends, parts=lambda: [Counting("lines", taken=7)]))
    assert found == {
        "surepipe_accepted_total orders": 7,
        "surepipe_rto_seconds orders": 1.5,
        "surepipe_part_taken_total lines": 7,
    }


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    """And no thread stays behind."""
    before = threading.active_count()
    with (
        MetricsServer([], port=0) as server,
        pytest.raises(ConfigurationError, match=f"127.0.0.1:{server.port}: address already in use"),
    ):
        MetricsServer([], port=server.port)
    assert threading.active_count() == before


def test_spans_of_what_is_never_confirmed_or_gets_a_new_identity_end_too() -> None:
    """With an event that says why."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider.get_tracer("test"), every=5)
    spans.write(row("accepted", 0))
    spans.write(row("renumbered", 1_000, seq=10, count=1, detail="{}"))
    spans.close()
    spans.close()
    ended = {
        span.attributes["surepipe.seq"]: [event.name for event in span.events]
        for span in exporter.get_finished_spans()
        if span.attributes
    }
    assert ended == {5: ["left"], 10: ["renumbered"]}


def test_without_a_place_for_spans_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the exporter is not installed."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match="pip install opentelemetry-sdk"):
        tracing()


def test_dead_letters_are_logged_with_the_identity_of_their_message() -> None:
    """As JSON; rows of ordinary messages are not logged."""
    stream = io.StringIO()
    handler = log_as_json(stream)
    try:
        LoggedRows().write(row("accepted", 0))
        LoggedRows().write(row("dead", 0, seq=4, count=1, detail='{"cause":"NoPrice"}'))
    finally:
        logging.getLogger("surepipe").removeHandler(handler)
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["pipe"], line["epoch"], line["ranges"]) == ("orders", 1, [[4, 4]])
    assert line["text"] == 'pipe orders: dead, epoch 1, message 4 {"cause":"NoPrice"}'
