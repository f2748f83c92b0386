"""Where spans go: to what the process has set up, or else where the usual variables (``OTEL_...``) say."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import ProxyTracerProvider, Tracer

from surepipe.errors import ConfigurationError

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
        otlp: Any = importlib.import_module(_EXPORTER)
    except ImportError:
        raise ConfigurationError(
            "there is nowhere to send spans to: pip install opentelemetry-sdk "
            "opentelemetry-exporter-otlp-proto-http (it sends where OTEL_EXPORTER_OTLP_ENDPOINT says), "
            "or run under opentelemetry-instrument"
        ) from None
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return provider.get_tracer(_NAME), provider.shutdown
