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
        """Pass a row to each. What one raises keeps it from no other; then the first of it is raised."""
        errors: list[Exception] = []
        for sink in self._sinks:
            try:
                sink.write(columns)
            except Exception as error:  # noqa: BLE001 - raised below, when the others have the row
                errors.append(error)
        if errors:
            raise errors[0]
