"""What is told about running pipes is what they did."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from dataclasses import dataclass
from urllib.request import urlopen

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from surepipe import FaultyRoute, LocalRoute, Pipe, StreamSender
from surepipe.actors.notices import PipeNotice
from surepipe.actors.steps import StepRuntime
from surepipe.core.effects import NoticeKind
from surepipe.observe import Latencies, Tee, log_as_json
from surepipe.observe.latency import Histogram, Spells
from surepipe.observe.metrics import MetricsServer
from surepipe.observe.spans import Spans
from surepipe.observe.watch import Watch, counts_of, pipes_of
from surepipe.storage import MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(1, 8)), max_size=40))
def test_runs_that_wait_are_as_many_messages_as_one_by_one(
    moves: list[tuple[bool, int, int]],
) -> None:
    """Against a dictionary of single messages; a run that touches one that waits begins nothing."""
    spells, model = Spells(), dict[int, int]()
    for now, (is_begin, first, count) in enumerate(moves):
        numbers = range(first, first + count)
        if is_begin:
            spells.begin(("p", 1), first, count, now)
            if not any(n in model for n in numbers):
                model |= dict.fromkeys(numbers, now)
        else:
            ended = sorted(
                since for many, since in spells.end(("p", 1), first, count) for _ in range(many)
            )
            assert ended == sorted(model.pop(n) for n in numbers if n in model)
    left = sum(many for many, _ in spells.end(("p", 1), 1, 100))
    assert left == len(model)
    assert spells.waiting == 0


def test_runs_beyond_the_bound_are_forgotten_oldest_first() -> None:
    """Two fit."""
    spells = Spells(runs_max=2)
    for seq in (1, 3, 5):
        spells.begin(("p", 1), seq, 1, seq)
    assert spells.forgotten == 1
    assert list(spells.end(("p", 1), 1, 10)) == [(1, 3), (1, 5)]


def test_quantiles_are_bounds_that_so_many_messages_stay_under() -> None:
    """90 quick ones and 10 slow ones."""
    histogram = Histogram()
    assert histogram.quantile_us(0.5) == 0
    histogram.add(90, 90)
    histogram.add(4_000, 10)
    assert histogram.quantile_us(0.5) == 100
    assert histogram.quantile_us(0.99) == 5_000
    assert histogram.sum_us == 90 * 90 + 4_000 * 10


def test_latencies_tell_the_time_from_accepted_to_settled_and_confirmed() -> None:
    """In virtual time: the route takes 3 ms each way, so a message settles after 3 ms and is confirmed after 6."""
    latencies, runtime = Latencies(), StepRuntime()
    route = FaultyRoute(LocalRoute(), delay=0.003)
    with Pipe("orders", "resend", route=route, runtime=runtime, trace=latencies) as pipe:
        pipe.receive(str)
        pipe.send(b"x")
        pipe.flush(10)
    assert latencies.settled["orders"].count == latencies.confirmed["orders"].count == 1
    assert latencies.settled["orders"].quantile_us(1) == 5_000
    assert 6_000 <= latencies.confirmed["orders"].sum_us <= 20_000


def test_prometheus_is_told_what_the_pipe_counts() -> None:
    """Scraped over HTTP, as Prometheus does."""
    latencies = Latencies()
    with Pipe("orders", trace=latencies) as pipe:
        pipe.receive(str)
        pipe.send_many(range(300))
        pipe.flush(10)
        with MetricsServer([pipe], latencies, port=0) as server, urlopen(server.url) as answer:
            text = answer.read().decode()
    assert 'surepipe_settled_total{pipe="orders"} 300.0' in text
    assert 'surepipe_settled_seconds_count{pipe="orders"} 300.0' in text
    assert "# TYPE surepipe_held gauge" in text
    assert "# TYPE surepipe_retransmitted_total counter" in text


def test_prometheus_is_told_for_how_long_a_store_has_been_silent() -> None:
    """Each store has a line, so that an alarm finds it before it falls silent."""
    with (
        MetricsServer([], port=0, silent_s=lambda: {"main": 7.5, "local": 0.0}) as server,
        urlopen(server.url) as answer,
    ):
        text = answer.read().decode()
    assert 'surepipe_store_silent_seconds{store="main"} 7.5' in text
    assert 'surepipe_store_silent_seconds{store="local"} 0.0' in text


def scraped(server: MetricsServer) -> list[str]:
    """What Prometheus would get."""
    with urlopen(server.url) as answer:
        lines: list[str] = answer.read().decode().splitlines()
    return lines


def test_prometheus_is_told_by_the_pipes_of_a_program_which_store_is_silent() -> None:
    """As the live page: each store has a line while it answers, too."""
    steps, store = StepRuntime(), FaultyStore(MemoryStore())
    with (
        StreamSender("ship", store=store, runtime=steps) as sender,
        MetricsServer([sender], port=0) as server,
    ):

        def silent_s() -> float:
            (found,) = (line for line in scraped(server) if "silent_seconds{" in line)
            assert 'store="FaultyStore"' in found
            return float(found.split()[1])

        sender.send(1)
        steps.advance(5)
        assert silent_s() == 0
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        sender.send(2)
        steps.advance(10)
        assert silent_s() > 2
        store.calm()
        sender.flush()
        assert silent_s() == 0


@dataclass(frozen=True)
class Reader:
    """The end of a stream, as a pipeline tells of it."""

    name: str
    store_names: frozenset[str]

    def counters(self) -> dict[str, int]:
        return {"lag": 7, "settled": 5}


def test_what_a_silent_store_would_have_to_tell_is_left_out_of_metrics() -> None:
    """The lag is that of the last answer. What the process itself has counted is told, and all of other stores."""
    readers = [Reader("ship", frozenset({"main"})), Reader("bill", frozenset({"other"}))]
    silent_s = {"main": 0.0, "other": 0.0}
    with MetricsServer(readers, port=0, silent_s=lambda: silent_s) as server:
        assert 'surepipe_lag{pipe="ship"} 7.0' in scraped(server)
        silent_s["main"] = 22.0
        told = scraped(server)
    assert not [line for line in told if line.startswith('surepipe_lag{pipe="ship"}')]
    assert {'surepipe_settled_total{pipe="ship"} 5.0', 'surepipe_lag{pipe="bill"} 7.0'} <= {*told}


def test_an_asyncio_program_gives_the_faces_that_it_has() -> None:
    """Of them the counters are asked that their pipes have, in metrics and on the page."""

    async def body() -> tuple[list[str], int | None]:
        async with Pipe("orders") as pipe:
            pipe.receive(str)
            await pipe.send_many(range(7))
            await pipe.flush()
            with MetricsServer([pipe], port=0) as server:
                lines = await asyncio.to_thread(scraped, server)
            (part,) = Watch("shop", pipes_of([pipe]), counts_of([pipe])).status().pipes
            assert part.flow is not None
            return lines, part.flow.settled

    lines, settled = asyncio.run(body())
    assert 'surepipe_settled_total{pipe="orders"} 7.0' in lines
    assert settled == 7


def test_a_metrics_server_that_is_closed_leaves_no_thread() -> None:
    """And the port is free."""
    before = threading.active_count()
    with MetricsServer([], port=0) as server:
        port = server.port
    assert threading.active_count() == before
    with MetricsServer([], port=port):
        pass


def test_spans_of_both_ends_belong_to_one_trace_without_anything_in_the_messages() -> None:
    """Two takers, as in two processes; every tenth message, the same ones at both ends."""
    exporters = [InMemorySpanExporter(), InMemorySpanExporter()]
    spans: list[Spans] = []
    for exporter in exporters:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        spans.append(Spans(provider.get_tracer("test"), every=10))
    with Pipe("orders", runtime=StepRuntime(), trace=Tee(*spans)) as pipe:
        pipe.receive(str)
        pipe.send_many([b"x"] * 35)
        pipe.flush(10)
    first, second = (
        {(s.name, s.attributes["surepipe.seq"]): s for s in e.get_finished_spans() if s.attributes}
        for e in exporters
    )
    wanted = {(name, seq) for name in ("send orders", "handle orders") for seq in (10, 20, 30)}
    assert set(first) == set(second) == wanted
    for seq in (10, 20, 30):
        sent, handled = first["send orders", seq], second["handle orders", seq]
        assert sent.context is not None
        assert handled.context is not None
        assert sent.context.trace_id == handled.context.trace_id
        assert sent.start_time is not None
        assert sent.end_time is not None
        assert sent.start_time <= sent.end_time


def test_log_lines_are_json_and_notices_name_their_messages() -> None:
    """One object a line."""
    stream = io.StringIO()
    handler = log_as_json(stream)
    logger = logging.getLogger("surepipe")
    try:
        notice = PipeNotice("orders", "sender", NoticeKind.UNANSWERED, 7, ((3, 5),), "5 attempts")
        logger.warning("%s", notice)
        logger.info("plain %d", 1)
    finally:
        logger.removeHandler(handler)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["pipe"] == "orders"
    assert first["kind"] == "Unanswered"
    assert first["ranges"] == [[3, 5]]
    assert first["level"] == "warning"
    assert first["detail"] == "5 attempts"
    assert second["text"] == "plain 1"


def test_a_notice_names_the_producer_where_its_stream_has_another_name() -> None:
    """In words only there; as a field of the line always."""
    stream = io.StringIO()
    handler = log_as_json(stream)
    logger = logging.getLogger("surepipe")
    told = ("out", "receiver", NoticeKind.POISON, 1, ((1, 1),), "5 attempts", "")
    try:
        for producer in ("out/7", "out", ""):
            logger.warning("%s", PipeNotice(*told, producer))
    finally:
        logger.removeHandler(handler)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    plain = "pipe out (receiver): Poison, epoch 1, message 1: 5 attempts"
    assert [line["text"] for line in lines] == [
        plain.replace("epoch", "producer 'out/7', epoch"),
        plain,
        plain,
    ]
    assert [line["producer"] for line in lines] == ["out/7", "out", ""]
