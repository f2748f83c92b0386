"""Files as sinks: lines are added, and what a crash left half done is cut off when the file is opened again.

With a cursor (boundary ``committed``) the length of the file is stored in the transaction that stores how far the
receiver is. Lines are on the disk before that; so after a crash the file is either as long as the stored length,
or longer by lines that will come again, and these are cut off. Without one lines may be there twice after a crash,
and never by half.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipelines.assembly import About, Cursor
from surepipe.store_api import Transaction

logger = logging.getLogger("surepipe")
TAIL = 1 << 16


class LineFile:
    """A file of lines. ``line`` makes them. ``syncs``: on the disk before they count."""

    def __init__(self, path: Path, cursor: Cursor | None, *, syncs: bool = True) -> None:
        """Opens the file, and makes it with its folder. Raises ConfigurationError, StoreUnavailable."""
        self.path = path
        self._cursor = cursor
        self._syncs = syncs
        self._pending: list[bytes] = []
        self._last: Transaction | None = None
        self._fd = _opened(path)
        try:
            self._length = self._start()
            self._written = self._length
        except BaseException:
            self.close()
            raise

    def _start(self) -> int:
        """The length that counts; what is behind it is cut off."""
        known = self._cursor.load() if self._cursor else None
        size = os.fstat(self._fd).st_size  # after it: another process may just be adding lines
        length = self._whole_lines(size) if known is None else int(known)
        if length > size:
            logger.warning(
                "%s has %d bytes, and %d were committed: lines that were in it are gone; it goes on as it is",
                self.path, size, length,
            )  # fmt: skip
            length = size
        if length < size:
            os.ftruncate(self._fd, length)
        if self._cursor is not None and known != str(length):
            self._cursor.save(str(length))
        return length

    def _whole_lines(self, size: int) -> int:
        """The length without a last line that is not whole: only a crash leaves one."""
        end = size
        while end:
            start = max(0, end - TAIL)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def line(self, message: object) -> bytes:
        """A message as a line. Raises what makes it fail."""
        raise NotImplementedError

    def begin(self, transaction: Transaction | None) -> None:
        """Count what the last group wrote, unless its transaction did nothing: then that is cut off."""
        if self._written != self._length and (self._last is None or self._last.done):
            self._length = self._written
        elif self._written != self._length:
            os.ftruncate(self._fd, self._length)
            self._written = self._length
        self._last = transaction
        self._pending.clear()

    def mark(self) -> int:
        """How many lines wait for the seal."""
        return len(self._pending)

    def back_to(self, mark: int) -> None:
        """Forget those behind."""
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Take a message."""
        del about, transaction
        self._pending.append(self.line(message))

    def seal(self, transaction: Transaction | None) -> None:
        """Write what waits; with a transaction, the length goes into it. Raises StoreUnavailable (disk full)."""
        if not self._pending:
            return
        data = b"".join(self._pending)
        try:
            _write(self._fd, data, self._length)
            self._written = self._length + len(data)
            if self._syncs:
                os.fsync(self._fd)
        except OSError as error:
            self._take_back()
            raise StoreUnavailable(f"{self.path} can't be written: {error}") from error
        self._pending.clear()
        if transaction is not None and self._cursor is not None:
            transaction.commit(self._cursor.request(str(self._written)))

    def _take_back(self) -> None:
        os.ftruncate(self._fd, self._length)
        self._written = self._length

    def close(self) -> None:
        """Close the file. What was written and not committed is cut off by the next one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class JsonlLines(LineFile):
    """One JSON value on each line."""

    def line(self, message: object) -> bytes:
        """Compact JSON. Raises TypeError, ValueError for what is none."""
        return json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class CsvLines(LineFile):
    """A CSV file: a header line when it is empty, then a row for each message, which must be a mapping."""

    def __init__(
        self, path: Path, cursor: Cursor | None, columns: Sequence[str] = (), *, syncs: bool = True
    ) -> None:
        self._columns = tuple(columns)
        super().__init__(path, cursor, syncs=syncs)
        if self._length:
            self._columns = self._header()

    def _header(self) -> tuple[str, ...]:
        """The columns as the file has them. Raises ConfigurationError when these are others than wanted."""
        with self.path.open(encoding="utf-8", newline="") as file:
            header = tuple(next(csv.reader(file), ()))
        if self._columns and header != self._columns:
            raise ConfigurationError(
                f"{self.path} has the columns {', '.join(header)}, and {', '.join(self._columns)} are wanted: "
                "name another file"
            )
        return header

    def line(self, message: object) -> bytes:
        """A row, with the header before it where there is none yet. Raises TypeError, ValueError."""
        if not isinstance(message, Mapping):
            raise TypeError(f"a row of CSV is made of a mapping, not of {type(message).__name__}")
        row = cast("Mapping[str, object]", message)
        is_first = not self._length and not self._pending
        columns = self._columns or tuple(map(str, row))
        missing = [name for name in columns if name not in row]
        more = [name for name in row if name not in columns]
        if missing or more:
            raise ValueError(
                f"fields {', '.join(missing or more)} {'are missing' if missing else 'have no column'}"
            )
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if is_first:
            writer.writerow(columns)
        writer.writerow([row[name] for name in columns])
        self._columns = columns
        return text.getvalue().encode()


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = f"{path.parent} is not a folder"
        raise ConfigurationError(f"{path} can't be written: {reason}") from None


def _write(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
