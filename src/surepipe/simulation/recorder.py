"""Takes the rows of real pipes: into a file that outlives its process, or into a list.

with TraceRecorder("orders.jsonl") as trace, Pipe("orders", trace=trace) as pipe:
    ...

audit(TraceFile("orders.jsonl"))
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from surepipe.actors.tracing import Columns
from surepipe.simulation.trace import Row
from surepipe.simulation.trace_file import row_of


class TraceRecorder:
    """Appends rows to a file, as JSON Lines, each with one call to the system.

    So a killed process leaves every row that it wrote, and several pipes, threads and processes may write into one
    file. Nothing is forced onto the disk: a power cut may take the end of it, which an audit takes for a kill.

    Without digests the cost is that of a row for each batch. ``with_digests``: payloads are told by digests, so an
    audit notices changed ones, at a few microseconds for each message. Raises OSError when the file can't be
    opened, and when a row can't be written; a pipe logs that and goes on.
    """

    def __init__(self, path: str | Path, *, with_digests: bool = False) -> None:
        self.path = Path(path)
        self.with_digests = with_digests
        self._file = self.path.open("ab", buffering=0)
        if _ends_torn(self.path):
            self._file.write(b"\n")

    def write(self, columns: Columns) -> None:
        """Append one row."""
        told = {name: value for name, value in columns.items() if value not in ("", 0)}
        line = json.dumps(told, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        written = self._file.write(line)
        if written != len(line):
            raise OSError(
                f"only {written} of {len(line)} bytes went into {self.path}: is the disk full?"
            )

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class RecordedRows:
    """Keeps rows in a list, for tests."""

    with_digests = True

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, columns: Columns) -> None:
        """Append one row."""
        self.rows.append(row_of(dict(columns)))


def _ends_torn(path: Path) -> bool:
    """True when the last line was cut off by the end of an earlier process."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
