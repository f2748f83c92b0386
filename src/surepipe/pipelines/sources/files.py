"""Files as sources. A place is the number of the byte, or of the row, that comes next.

A file is read as it is: who changes what was read already changes what a restart goes on behind.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Row
from surepipe.pipelines.sources.checking import Check, Readable, Unfit, as_it_is

LINE_MAX = 16 << 20


class JsonlFile:
    """One JSON value on each line; empty lines are passed over. ``follow``: lines may be added."""

    def __init__(self, path: Path, *, follow: bool = False, check: Check = as_it_is) -> None:
        self._path = path
        self._follow = follow
        self._check = check
        self._file: BufferedReader | None = None
        self._at = 0

    def begin(self, after: str) -> None:
        """Open the file at a byte. Raises ConfigurationError when it is not there, or shorter."""
        self.close()
        self._at = int(after or 0)
        self._file = opened(self._path)
        size = self._file.seek(0, 2)
        if size < self._at:
            raise ConfigurationError(
                f"{self._path} has {size} bytes, and {self._at} were read before: it is another file, or was "
                "cut. Put it back; or, to read it as a new one, give the source another name"
            )
        self._file.seek(self._at)

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """The next lines. Raises ConfigurationError for one that is no JSON, after those before it were taken."""
        assert self._file is not None
        rows: list[Row] = []
        while len(rows) < rows_max:
            self._file.seek(self._at)  # what raised, or was not whole, is read again
            line = self._file.readline(LINE_MAX)
            is_whole = line.endswith(b"\n") or (bool(line) and not self._follow)
            if not is_whole:
                break
            try:
                message = self._message(line)
            except ValueError as error:
                if rows:  # first what is good
                    break
                raise ConfigurationError(f"{self._path}, byte {self._at}: {error}") from None
            self._at += len(line)
            if message is not None:
                rows.append(Row(message[0], str(self._at)))
        return rows if rows or self._follow else None

    def _message(self, line: bytes) -> tuple[object] | None:
        if not line.strip():
            return None
        if len(line) >= LINE_MAX and not line.endswith(b"\n"):
            raise ValueError(f"a line of more than {LINE_MAX} bytes")
        try:
            value: object = json.loads(line)
            return (self._check(value),)
        except Unfit as error:
            raise ValueError(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"no JSON: {error}") from None

    def taken(self, rows: Sequence[Row]) -> None:
        """A file does not care."""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class RowFile:
    """Rows that can only be counted: a place is how many were read."""

    def __init__(self, path: Path, check: Check = as_it_is) -> None:
        self.path = path
        self._check = check
        self._rows = Readable()

    def begin(self, after: str) -> None:
        """Open the file and pass over so many rows."""
        self.close()
        start = int(after or 0)
        rows = self.rows()
        passed = sum(1 for _ in islice(rows, start))
        if passed < start:
            raise ConfigurationError(
                f"{self.path} has {passed} rows, and {start} were read before: it is another file, or was cut"
            )
        self._rows = Readable(self._checked(rows, start))

    def rows(self) -> Iterator[object]:
        """All rows, from the first."""
        raise NotImplementedError

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """The next rows. Raises ConfigurationError for one that does not fit."""
        return self._rows.take(rows_max)

    def _checked(self, messages: Iterator[object], start: int) -> Iterator[Row]:
        for number, message in enumerate(messages, start + 1):
            try:
                yield Row(self._check(message), str(number))
            except Unfit as error:
                raise ConfigurationError(f"{self.path}, row {number}: {error}") from None

    def taken(self, rows: Sequence[Row]) -> None:
        """A file does not care."""

    def close(self) -> None:
        """Let the file go."""
        self._rows = Readable()


class CsvFile(RowFile):
    """A CSV file with a header line; each row is a mapping of texts."""

    def __init__(self, path: Path, delimiter: str = ",", check: Check = as_it_is) -> None:
        super().__init__(path, check)
        self._delimiter = delimiter

    def rows(self) -> Iterator[object]:
        """All rows. Raises ConfigurationError for one with more or fewer fields than the header."""
        opened(self.path).close()
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=self._delimiter, strict=True)
            try:
                self._require_names(reader.fieldnames or ())
                for row in reader:
                    if None in row or None in row.values():
                        raise ConfigurationError(
                            f"{self.path}, line {reader.line_num}: not as many fields as the header has"
                        )
                    yield dict(row)
            except (
                UnicodeDecodeError
            ) as error:  # of a piece that was read ahead: its line is not known
                raise ConfigurationError(
                    f"{self.path} is no UTF-8 text behind line {reader.line_num}: {error.reason}, "
                    f"0x{error.object[error.start]:02x}"
                ) from None
            except csv.Error as error:
                raise ConfigurationError(f"{self.path}, line {reader.line_num}: {error}") from None

    def _require_names(self, header: Sequence[str]) -> None:
        """Raises ConfigurationError where one field would take the place of another."""
        if twice := [name for at, name in enumerate(header) if name in header[:at]]:
            raise ConfigurationError(
                f"{self.path}: the header has {twice[0]!r} twice: give each column a name of its own"
            )


class ParquetFile(RowFile):
    """A Parquet file; each row is a mapping."""

    def rows(self) -> Iterator[object]:
        """All rows, a batch in memory at a time. Raises ConfigurationError without pyarrow."""
        opened(self.path).close()
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigurationError(
                f"{self.path}: Parquet needs pyarrow: pip install 'surepipe[parquet]'"
            ) from None
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=1024):
                    rows: list[object] = batch.to_pylist()
                    yield from rows
        except arrow.ArrowException as error:
            raise ConfigurationError(f"{self.path} is no Parquet file: {error}") from None


def opened(path: Path) -> BufferedReader:
    """Open a file to read it. Raises ConfigurationError when that can't be done."""
    try:
        return path.open("rb")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{path} can't be read: {reason}") from None
