"""Spans of messages for OpenTelemetry, joined across processes. Needs the extra ``surepipe[metrics]``.

    with PipeSender("orders", route=..., trace=Spans(tracer)) as sender: ...          # one process
    with PipeReceiver("orders", route=..., trace=Spans(tracer)) as receiver: ...      # the other

Nothing travels with the messages: both processes derive the same trace from the identity of a message (pipe,
epoch, seq). One message in ``every`` is shown, the same ones at both ends: its span ``send`` lasts from accepted
to confirmed, and ``handle`` from delivered to settled.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from surepipe.actors.tracing import Columns
from surepipe.errors import ConfigurationError

_BEGINS = {"accepted": "send", "delivered": "handle"}
_ENDS = {"confirmed": "send", "settled": "handle", "renumbered": "send"}
Key = tuple[str, str, int, int]


class Spans:
    """Makes spans out of the rows of a trace. At ``open_max`` open spans the oldest is ended as it is.

    One message in ``every`` is looked at, which bounds what it costs. Call ``close`` after the pipes, so that
    spans of what was never confirmed are shown too.
    """

    with_digests = False

    def __init__(self, tracer: Tracer, *, every: int = 100, open_max: int = 10_000) -> None:
        self._tracer = tracer
        self._every = every
        self._open_max = open_max
        self._open: OrderedDict[Key, Span] = OrderedDict()
        self._lock = threading.Lock()

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        kind = str(columns["kind"])
        name = _BEGINS.get(kind) or _ENDS.get(kind)
        if name is None:
            return
        pipe, epoch = str(columns["pipe"]), int(columns.get("epoch", 0))
        first, count = int(columns["seq"]), int(columns["count"])
        at_ns = int(columns["time_us"]) * 1000
        every = self._every
        with self._lock:
            for seq in range(-(-first // every) * every, first + count, every):
                if kind in _BEGINS:
                    self._begin((name, pipe, epoch, seq), at_ns)
                elif kind == "renumbered":
                    self._end((name, pipe, epoch, seq), at_ns, kind)
                else:
                    self._end((name, pipe, epoch, seq), at_ns)

    def _begin(self, key: Key, at_ns: int) -> None:
        if key in self._open:
            self._open[key].add_event("again", timestamp=at_ns)
            return
        name, pipe, epoch, seq = key
        attributes: dict[str, str | int] = {
            "messaging.system": "surepipe",
            "messaging.destination.name": pipe,
            "surepipe.epoch": epoch,
            "surepipe.seq": seq,
        }
        self._open[key] = self._tracer.start_span(
            f"{name} {pipe}",
            trace_of(pipe, epoch, seq),
            kind=SpanKind.PRODUCER if name == "send" else SpanKind.CONSUMER,
            attributes=attributes,
            start_time=at_ns,
        )
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].end(at_ns)

    def _end(self, key: Key, at_ns: int, event: str = "") -> None:
        span = self._open.pop(key, None)
        if span is None:
            return
        if event:
            span.add_event(event, timestamp=at_ns)
        span.end(at_ns)

    def close(self) -> None:
        """End what is open, with the event ``left``. A repeat does nothing."""
        now = time.time_ns()
        with self._lock:
            for key in list(self._open):
                self._end(key, now, "left")


def trace_of(pipe: str, epoch: int, seq: int) -> Context:
    """The trace of a message: the same in each process that knows its identity."""
    digest = blake2b(f"{pipe}\0{epoch}\0{seq}".encode(), digest_size=24).digest()
    context = SpanContext(
        trace_id=int.from_bytes(digest[:16], "big"),
        span_id=int.from_bytes(digest[16:], "big"),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(context))


# Where spans go: to what the process has set up, or else where the usual variables (``OTEL_...``) say.


_EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_NAME = "surepipe"


def tracing() -> tuple[Tracer, Callable[[], object]]:
    """A tracer, and what is to be called at the end so that nothing stays behind.

    A provider that the process has set up (``opentelemetry-instrument`` does) is used, and left alone at the end.
    Raises ConfigurationError where there is none and OpenTelemetry's SDK or its OTLP exporter is not installed.
    """
    if not isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        return trace.get_tracer(_NAME), lambda: None
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        otlp: Any = importlib.import_module(_EXPORTER)
    except ImportError:
        raise ConfigurationError(
            "there is nowhere to send spans to: pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp-proto-http (it sends where OTEL_EXPORTER_OTLP_ENDPOINT says), "
            "or run under opentelemetry-instrument"
        ) from None
    provider = sdk.TracerProvider(resource=resources.Resource.create(_service()))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return provider.get_tracer(_NAME), provider.shutdown


def _service() -> dict[str, str]:
    """The name under which spans are shown, unless the usual variables give another (they would be overruled)."""
    said = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in said
    return {} if is_named else {"service.name": _NAME}
