"""Shows running pipes to the usual tools: Prometheus, OpenTelemetry, JSON logs.

Nothing here is imported by a pipe: it reads counters, or is given to a pipe as its ``trace``.
"""

from __future__ import annotations

from surepipe.observe.latency import Histogram, Latencies
from surepipe.observe.logs import JsonFormatter, LoggedRows, log_as_json
from surepipe.observe.status_server import StatusServer
from surepipe.observe.watch import Tee

__all__ = [
    "Histogram",
    "JsonFormatter",
    "Latencies",
    "LoggedRows",
    "StatusServer",
    "Tee",
    "log_as_json",
]
