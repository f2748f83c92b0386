"""Files as sinks: lines are added, and each of them stands there whole. See ``keeping`` for what crashes leave."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from surepipe.errors import ConfigurationError, Fenced
from surepipe.pipelines.assembly import About, Cursor
from surepipe.pipelines.calling import Unwritable
from surepipe.pipelines.sinks.keeping import TAIL, Disk, SystemDisk, keeping
from surepipe.store_api import Transaction


def open_file(path: Path) -> Disk:
    """Open a file of the system, and make it with its folder. Raises ConfigurationError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SystemDisk(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = f"{path.parent} is not a folder"
        raise ConfigurationError(f"{path} can't be written: {reason}") from None


class LineFile:
    """A file of lines. ``line`` makes them. ``syncs``: on the disk before they count."""

    def __init__(
        self,
        path: Path,
        cursor: Cursor | None,
        *,
        syncs: bool = True,
        opened: Callable[[Path], Disk] = open_file,
    ) -> None:
        """Opens the file, and makes it with its folder. Raises ConfigurationError, StoreUnavailable, Fenced."""
        self.path = path
        self._pending: list[bytes] = []
        self._disk: Disk | None = opened(path)
        try:
            self._kept = keeping(path, self._disk, cursor, syncs=syncs)
        except BaseException:
            self._disk.close()
            raise

    @property
    def is_behind(self) -> bool:
        """The file lacks lines that are stored, as a full disk leaves it; the next process writes them."""
        return self._kept.is_behind

    def line(self, message: object) -> bytes:
        """A message as a line. Raises what makes it fail."""
        raise NotImplementedError

    def begin(self, transaction: Transaction | None) -> None:
        """A new group. Raises StoreUnavailable while the last one can't be written."""
        self._pending.clear()
        self._kept.begin(transaction)

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
        """Keep what waits. Raises StoreUnavailable (disk full)."""
        if self._pending:
            self._kept.take(b"".join(self._pending), transaction)
            self._pending.clear()

    def land(self) -> Fenced | None:
        """The transaction has ended: what it decided is written."""
        return self._kept.land()

    def close(self) -> None:
        """Close the file. What counts and is not in it is written by the next process."""
        if self._disk is not None:
            self._kept.close()
            self._disk.close()
            self._disk = None


def as_json(message: object) -> bytes:
    """Compact JSON. Raises Unwritable for what is none."""
    try:
        return json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Unwritable(f"a {type(message).__name__} that is no JSON: {error}") from error


class JsonlLines(LineFile):
    """One JSON value on each line."""

    def line(self, message: object) -> bytes:
        """Compact JSON. Raises Unwritable for what is none."""
        return as_json(message) + b"\n"


class CsvLines(LineFile):
    """A CSV file: a header line when it is empty, then a row for each message, which must be a mapping."""

    def __init__(
        self,
        path: Path,
        cursor: Cursor | None,
        columns: Sequence[str] = (),
        *,
        syncs: bool = True,
        opened: Callable[[Path], Disk] = open_file,
    ) -> None:
        self._columns = tuple(columns)
        super().__init__(path, cursor, syncs=syncs, opened=opened)
        if self._kept.length:
            self._columns = self._header()

    def _header(self) -> tuple[str, ...]:
        """The columns as the file has them. Raises ConfigurationError when these are others than wanted."""
        assert self._disk is not None
        lines = _lines_of(self._disk)
        header = tuple(next(csv.reader(lines), ()))
        if self._columns and header != self._columns:
            raise ConfigurationError(
                f"{self.path} has the columns {', '.join(header)}, and {', '.join(self._columns)} are wanted: "
                "name another file"
            )
        return header

    def line(self, message: object) -> bytes:
        """A row, with the header before it where there is none yet. Raises Unwritable."""
        if not isinstance(message, Mapping):
            raise Unwritable(f"a row of CSV is made of a mapping, not of {type(message).__name__}")
        row = cast("Mapping[str, object]", message)
        is_first = not self._kept.length and not self._pending
        columns = self._columns or tuple(map(str, row))
        missing = [name for name in columns if name not in row]
        more = [name for name in row if name not in columns]
        if missing or more:
            raise Unwritable(
                f"fields {', '.join(missing or more)} {'are missing' if missing else 'have no column'}"
            )
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if is_first:
            writer.writerow(columns)
        writer.writerow([row[name] for name in columns])
        self._columns = columns
        return text.getvalue().encode()


def _lines_of(disk: Disk) -> Iterator[str]:
    """The text of a file, by its lines with their ends: a quoted field may go over several."""
    at, rest = 0, b""
    while found := disk.read(TAIL, at):
        at += len(found)
        *whole, rest = (rest + found).split(b"\n")
        yield from (f"{line.decode()}\n" for line in whole)
    if rest:
        yield rest.decode()
