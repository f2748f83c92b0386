"""Several takers of one trace."""

from __future__ import annotations

from surepipe.actors.tracing import Columns, TraceSink


class Tee:
    """Passes each row to all of these, in order: ``Pipe(..., trace=Tee(recorder, latencies))``."""

    def __init__(self, *sinks: TraceSink) -> None:
        self._sinks = sinks

    @property
    def with_digests(self) -> bool:
        """True when one of them wants digests."""
        return any(sink.with_digests for sink in self._sinks)

    def write(self, columns: Columns) -> None:
        """Pass a row on. What one of them raises keeps it from those behind it, and is the pipe's to log."""
        for sink in self._sinks:
            sink.write(columns)
