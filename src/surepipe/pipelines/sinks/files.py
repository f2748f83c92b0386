"""Files as sinks: lines are added, and each of them stands there whole. See ``keeping`` for what crashes leave."""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from surepipe.actors.codecs import json_writer
from surepipe.core.store_requests import Transaction
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable, SurepipeError
from surepipe.pipelines.assembly import Cursor, FilePlace, LineLog
from surepipe.pipelines.calling import Unwritable
from surepipe.pipelines.stages import About

# How groups of lines get into a file, so that a crash leaves none twice or by half.
#
# ``Decided``: with boundary ``committed`` the lines are stored in the transaction that stores how far the
# receiver is, and written to the file when that is done, at the place that was stored with them. A crash in
# between leaves a file that is too short; the next process writes what is missing. Nothing is ever taken back,
# and two processes that write the same place write the same bytes: one that was paused and replaced can't harm
# what its successor has written.
#
# ``Cut``: where only a length can be stored, lines are on the disk before the transaction is done; so after a
# crash the file may be longer by lines that will come again, and these are cut off. That takes one writer at a
# time.
#
# ``Added``: without either, lines are added at the end, wherever that is. They may be there twice after a
# crash.


logger = logging.getLogger("surepipe")
TAIL = 1 << 16


class Keeping(Protocol):
    """One file, opened for one process."""

    length: int
    """How long the file is, by what counts."""

    @property
    def is_behind(self) -> bool:
        """The file lacks lines that count; a later process writes them."""
        ...

    def begin(self, transaction: Transaction | None) -> None:
        """A new group. Raises StoreUnavailable while it is not known, or not done, what the last one needs."""
        ...

    def take(self, data: bytes, transaction: Transaction | None) -> None:
        """The lines of the group. Raises StoreUnavailable (disk full)."""
        ...

    def land(self) -> Fenced | None:
        """The transaction has ended, one way or the other. Raises nothing; see ``Landing``."""
        ...

    def close(self) -> None:
        """The process ends in good order. Raises nothing."""
        ...


class Disk(Protocol):
    """The bytes of one open file: those of the system, or those of a simulated world."""

    def size(self) -> int: ...

    def read(self, count: int, at: int) -> bytes:
        """Those at a place; fewer at the end."""
        ...

    def write(self, data: memoryview, at: int) -> int:
        """Write some of it at a place, and tell how much. Raises OSError."""
        ...

    def cut(self, length: int) -> None: ...

    def sync(self) -> None:
        """What is written survives a power cut from now on. Raises OSError."""
        ...

    def close(self) -> None: ...


class SystemDisk:
    """A file of the system, by its descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, count: int, at: int) -> bytes:
        return os.pread(self._fd, count, at)

    def write(self, data: memoryview, at: int) -> int:
        """Write some of it at a place. Raises OSError."""
        return os.pwrite(self._fd, data, at)

    def cut(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def sync(self) -> None:
        """Wait for the disk. Raises OSError."""
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def keeping(path: Path, disk: Disk, cursor: Cursor | None, *, syncs: bool) -> Keeping:
    """What fits the cursor. Raises StoreUnavailable, ``errors.Fenced``, ConfigurationError."""
    file = OpenFile(path, disk, syncs)
    if cursor is None:
        return Added(file)
    return Decided(file, cursor) if isinstance(cursor, LineLog) else LengthCut(file, cursor)


class OpenFile:
    """A file that is written at places. ``syncs``: on the disk before it counts."""

    def __init__(self, path: Path, disk: Disk, syncs: bool) -> None:
        self.path = path
        self._disk = disk
        self._syncs = syncs

    @property
    def size(self) -> int:
        return self._disk.size()

    def cut(self, length: int) -> None:
        """Make it this long, if it is longer."""
        if length < self.size:
            self._disk.cut(length)

    def write(self, data: bytes, at: int) -> None:
        """Write all of it at a place. Raises StoreUnavailable; a part may be there then."""
        try:
            view = memoryview(data)
            while view:
                written = self._disk.write(view, at)
                view, at = view[written:], at + written
            if self._syncs:
                self._disk.sync()
        except OSError as error:
            raise StoreUnavailable(f"{self.path} can't be written: {error}") from error

    def whole_lines(self) -> int:
        """The length without a last line that is not whole: only a crash leaves one."""
        end = self.size
        while end:
            start = max(0, end - TAIL)
            found = self._disk.read(end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def ended(self) -> int:
        """The length; a last line of somebody else's that has no end gets one, and nothing is cut off."""
        size = self.size
        if size and self._disk.read(1, size - 1) != b"\n":
            self.write(b"\n", size)
        return self.size

    def gone(self, length: int) -> None:
        """Say that somebody cut the file, or moved it away."""
        logger.warning(
            "%s has %d bytes, and %d were committed: lines that were in it are gone; it goes on as it is",
            self.path, self.size, length,
        )  # fmt: skip


class Added:
    """Lines at the end of the file. Nobody is waited for, and nothing of others is touched."""

    is_behind = False

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self.length = file.whole_lines()
        if self.length < file.size:
            logger.warning(
                "%s ends with half a line, as a crash leaves it: its %d bytes are cut off",
                file.path, file.size - self.length,
            )  # fmt: skip
        file.cut(self.length)

    def begin(self, transaction: Transaction | None) -> None:
        """Nothing is open."""

    def take(self, data: bytes, transaction: Transaction | None) -> None:
        del transaction
        start = self._file.size
        try:
            self._file.write(data, start)
        except StoreUnavailable:
            self._file.cut(start)
            raise
        self.length = start + len(data)

    def land(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing waits."""


class LengthCut:
    """The length that counts is in a store; what is behind it is cut off."""

    is_behind = False

    def __init__(self, file: OpenFile, cursor: Cursor) -> None:
        self._file = file
        self._cursor = cursor
        self._last: Transaction | None = None
        self.length = self._start()
        self._written = self.length

    def _start(self) -> int:
        known = self._cursor.load()
        length = self._file.ended() if known is None else int(known)
        size = self._file.size  # after the cursor: another process may just be adding lines
        if length > size:
            self._file.gone(length)
            length = size
        self._file.cut(length)
        if known != str(length):
            self._cursor.save(str(length))
        return length

    def begin(self, transaction: Transaction | None) -> None:
        """Count what the last group wrote, unless its transaction did nothing: then that is cut off."""
        if self._written != self.length and (self._last is None or self._last.done):
            self.length = self._written
        elif self._written != self.length:
            self._file.cut(self.length)
            self._written = self.length
        self._last = transaction

    def take(self, data: bytes, transaction: Transaction | None) -> None:
        """Write them; with a transaction, the length goes into it."""
        try:
            self._file.write(data, self.length)
        except StoreUnavailable:
            self._file.cut(self.length)
            raise
        self._written = self.length + len(data)
        if transaction is not None:
            transaction.commit(self._cursor.request(str(self._written)))

    def land(self) -> None:
        """What was written is cut off, or counts, when the next group begins."""

    def close(self) -> None:
        """What was not committed is cut off by the next process."""


class Decided:
    """The store decides what is in the file, and then it is written."""

    def __init__(self, file: OpenFile, log: LineLog) -> None:
        self._file = file
        self._log = log
        self._sealed: tuple[Transaction, bytes] | None = None
        """The group that was put into a transaction, until it is known what became of it."""
        self._unwritten = b""
        """What is decided and not in the file."""
        self.length = self._start()

    @property
    def is_behind(self) -> bool:
        """The file lacks lines that are decided, or may be."""
        return bool(self._unwritten) or self._sealed is not None

    def _start(self) -> int:
        """Take the file over, and write what is decided and missing."""
        before = self._file.size
        place = self._log.claim()
        if place is None:
            return self._adopted()
        group = self._log.group(place)
        start = place.end - len(group)
        # Only now: before it was claimed another process may have been writing what it had decided.
        if self._file.size < start:
            self._file.gone(place.end)
            start = before = self._file.whole_lines()
            self._file.cut(start)
        end = start + len(group)
        self._file.write(group, start)
        if before > end:  # lines of somebody who does not keep to the log
            self._file.cut(end)
        if place != FilePlace(end, end):
            self._log.save(FilePlace(end, end).text)
        self._log.trim()
        return end

    def _adopted(self) -> int:
        """The first of all processes takes what is in the file for its beginning."""
        length = self._file.ended()
        self._log.save(FilePlace(length, length).text)
        return length

    def begin(self, transaction: Transaction | None) -> None:
        """Write the last group, if it is decided. Raises StoreUnavailable: nobody knows, or the disk is full."""
        if self._sealed is not None and not self._sealed[0].done:
            raise StoreUnavailable(
                f"{self._file.path}: it is not known yet what became of the last lines"
            )
        self._settle()
        if transaction is not None:
            self._log.begin(transaction)

    def _settle(self) -> None:
        if self._sealed is not None:
            self._count(self._sealed[1])
        if self._unwritten:
            self._file.write(self._unwritten, self.length - len(self._unwritten))
            self._unwritten = b""

    def _count(self, decided: bytes) -> None:
        self._unwritten, self._sealed = decided, None
        self.length += len(decided)

    def _find_out(self, data: bytes) -> None:
        """Find out whether a transaction was done, after an error or a lost answer. Claimed anew, so that it
        can't come late; no transaction is open here, in which a store would take no claim."""
        place = self._log.claim()
        is_done = place is not None and place.end == self.length + len(data)
        self._count(data if is_done else b"")

    def take(self, data: bytes, transaction: Transaction | None) -> None:
        assert transaction is not None, "boundary committed has one"
        place = FilePlace(self.length + len(data), self.length)
        self._log.add(data, place, transaction)
        self._sealed = transaction, data

    def land(self) -> Fenced | None:
        """Write the group, if it is decided; what can't be done now is done at the next one."""
        try:
            if self._sealed is not None and not self._sealed[0].done:
                self._find_out(self._sealed[1])
            self._settle()
        except SurepipeError as error:
            logger.warning("%s: %s", self._file.path, error)
            return error if isinstance(error, Fenced) else None
        else:
            self._log.landed()
        return None

    def close(self) -> None:
        """What is decided is in the file, or is written by the next process."""
        self.land()
        if self._sealed is None and not self._unwritten:
            try:
                self._log.save(FilePlace(self.length, self.length).text)
            except (
                SurepipeError
            ) as error:  # the store is gone, or another process has the file: it looks for itself
                logger.debug("%s", error)


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
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
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


_write_json = json_writer(", ", ": ")


def as_json(message: object) -> bytes:
    """Compact JSON. Raises Unwritable for what is none."""
    try:
        return _write_json(message).encode()
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
