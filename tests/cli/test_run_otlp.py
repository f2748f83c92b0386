"""Spans of ``surepipe run --otel`` arrive at a collector over OTLP, and one that is away stops nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from surepipe.cli.output import Exit
from surepipe.testing.servers import free_port
from tests.pipelines.run.kit import write_lines

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
FILE = """\
version: 1
name: shop
sources: {lines: {kind: jsonl, path: rows.jsonl}}
pipes: {intake: {from: lines}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""


class Collector(ThreadingHTTPServer):
    """A server that keeps what is exported to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.paths: set[str] = set()
        self.exports: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        """All that have come."""
        return [
            span
            for export in self.exports
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def services(self) -> set[str]:
        """The names of the services that they are from."""
        return {
            attribute.value.string_value
            for export in self.exports
            for resource in export.resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Take one export."""
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.add(self.path)
        self.server.exports.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    with Collector() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.02,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline with nine rows, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    write_lines("rows.jsonl", range(1, 10))
    return tmp_path


def run(endpoint: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The run, as a program of its own: a process has one provider of traces for all its life."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-m", "surepipe", "run", "shop.yaml", "--otel", "3"],
        env=kept | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} | more,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_spans_arrive_at_the_collector_that_the_variable_names(collector: Collector) -> None:
    """One message in three, both its spans in one trace, with identity and times; none stays behind at the end."""
    done = run(collector.url)
    assert done.returncode == Exit.HELD, done.stderr
    assert collector.paths == {"/v1/traces"}
    assert collector.services == {"surepipe"}
    traces: dict[bytes, set[str]] = {}
    for span in collector.spans:
        traces.setdefault(span.trace_id, set()).add(span.name)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    assert list(traces.values()) == [{"send shop/intake", "handle shop/intake"}] * 3
    facts = [{one.key: one.value for one in span.attributes} for span in collector.spans]
    assert sorted(one["surepipe.seq"].int_value for one in facts) == [3, 3, 6, 6, 9, 9]
    assert {one["messaging.destination.name"].string_value for one in facts} == {"shop/intake"}


def test_the_service_is_called_what_the_usual_variables_say(collector: Collector) -> None:
    """In place of surepipe."""
    assert run(collector.url, OTEL_SERVICE_NAME="shop-eu").returncode == Exit.HELD
    assert collector.services == {"shop-eu"}


def test_a_collector_that_is_away_costs_spans_and_nothing_else() -> None:
    """Every message is through, the code is 0, and what was lost is told on standard error."""
    done = run(f"http://127.0.0.1:{free_port()}", OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert done.returncode == Exit.HELD, done.stderr
    assert Path("out.jsonl").read_text().splitlines() == [str(n) for n in range(1, 10)]
    assert "export" in done.stderr.lower()
