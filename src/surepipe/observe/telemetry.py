"""Where spans go: to what the process has set up, or else where the usual variables (``OTEL_...``) say."""

from __future__ import annotations

import importlib
import os
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
