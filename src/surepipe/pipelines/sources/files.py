"""Files as sources. A place says which byte, or row, comes next, and in which file.

A file is known again by its first line, by the line that was read last, and by its inode. So one that was cut,
moved away or replaced is told from one that has only grown: what is left of it is looked for beside it, and what
can't be found is an error, never passed over.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

from pydantic_core import from_json

from surepipe.actors.codecs import read_json
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import NOTHING, RowRun, SourceRow
from surepipe.pipelines.sources.checking import Check, Readable, Unfit, as_it_is, refused

logger = logging.getLogger("surepipe")
LINE_MAX = 16 << 20
KEPT_MAX = 64 << 10
"""Bytes of a line beyond that bound that a letter has."""
_PIECE = 256 << 10
_SEEN_MAX = 256
_TOO_LONG = f"a line of more than {LINE_MAX} bytes"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")


@dataclass(frozen=True, slots=True)
class KnownBytes:
    """Bytes of a file that are known again: how many, and their checksum."""

    length: int = 0
    check: int = 0

    @classmethod
    def of(cls, data: bytes) -> KnownBytes:
        return cls(len(data), crc32(data))

    def is_at(self, file: int, end: int) -> bool:
        """True when they stand in the file in front of this byte."""
        start = end - self.length
        return start >= 0 and KnownBytes.of(os.pread(file, self.length, start)) == self


@dataclass(frozen=True, slots=True)
class FileId:
    """Which file: its device and inode, and the beginning of its first line."""

    device: int = 0
    inode: int = 0
    head: KnownBytes = KnownBytes()

    @property
    def inode_of(self) -> tuple[int, int]:
        """What a rename leaves as it is."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file: the byte, the line in front of it, and the file."""

    at: int = 0
    last: KnownBytes = KnownBytes()
    file: FileId = FileId()

    @property
    def text(self) -> str:
        file, last = self.file, self.last
        return (
            f"{self.at} {last.length}:{last.check:x} {file.device:x}:{file.inode:x} "
            f"{file.head.length}:{file.head.check:x}"
        )

    @classmethod
    def read(cls, text: str) -> Where:
        """From what was stored; a number alone is a byte of an earlier version."""
        at, *rest = text.split()
        if not rest:
            return cls(int(at))
        last, inode, head = (one.split(":") for one in rest)
        file = FileId(
            int(inode[0], 16), int(inode[1], 16), KnownBytes(int(head[0]), int(head[1], 16))
        )
        return cls(int(at), KnownBytes(int(last[0]), int(last[1], 16)), file)

    def fits(self, file: int) -> bool:
        """True when this open file has what was read up to here."""
        head = self.file.head
        return (
            os.fstat(file).st_size >= self.at
            and self.last.is_at(file, self.at)
            and head.is_at(file, head.length)
        )


class Growing:
    """The lines of a file, one behind the other, through what happens to it while it is followed.

    Nothing that was read is given before the file was seen to be the same behind the reading as in front of it.
    """

    def __init__(self, path: Path, *, follow: bool) -> None:
        self.path = path
        self.where = Where()
        self.line: int = 1
        """The number of the next line; 0 when reading began in the middle."""
        self._follow = follow
        self._file = -1
        self._left = -1
        """A file that was moved away and read to its end, as long as nothing else was."""
        self._left_at = 0
        self._is_old = False
        """The file is what was moved away, or copied; ``path`` comes behind it."""
        self._ahead: bytes = b""
        """What was read behind the file's last look, of which the first ``_used`` bytes are taken."""
        self._used = 0
        self._is_torn = False
        self._seen_size = 0
        self._is_missing = False

    def open(self, where: Where | None) -> None:
        """Open at a place. Raises ConfigurationError when what was read can't be found."""
        self.close()
        self._file = opened(self.path)
        stat = os.fstat(self._file)
        if where is None:
            self.where = Where(file=FileId(stat.st_dev, stat.st_ino))
            return
        self.line = 0 if where.at else 1
        is_same = where.file.inode_of in ((0, 0), (stat.st_dev, stat.st_ino))
        if not (is_same and where.fits(self._file)):
            old = self._beside(where) if self._follow else None
            if old is not None and (not where.fits(self._file) or old[1]):
                os.close(self._file)
                self._file, self._is_old = old[0], True
            elif old is not None:
                os.close(old[0])
            if not where.fits(self._file):
                raise ConfigurationError(self._lost(where, stat.st_size))
        stat = os.fstat(self._file)
        self.where = Where(where.at, where.last, FileId(stat.st_dev, stat.st_ino, where.file.head))

    def _lost(self, where: Where, size: int) -> str:
        return (
            f"{self.path} has {size} bytes, and {where.at} were read before: it is another file, or was cut. Put "
            "it back; or, to read it as a new one, give the source another name"
        )

    def _beside(self, where: Where) -> tuple[int, bool] | None:
        """What was read before under another name, open, and whether it is the very same file.

        Raises ConfigurationError when more files were moved away since: which of them to read nobody can tell.
        """
        found: tuple[Path, int, bool] | None = None
        for one in files_beside(self.path):
            file = opened(one)
            stat = os.fstat(file)
            is_very_same = where.file.inode_of == (stat.st_dev, stat.st_ino)
            is_better = found is None or (is_very_same and not found[2])
            if is_better and (is_very_same or where.at > 0) and where.fits(file):
                if found is not None:
                    os.close(found[1])
                found = (one, file, is_very_same)
            else:
                os.close(file)
        if found is None:
            return None
        path, file, is_very_same = found
        try:
            self._require_none_between(file, f"of what is {path} now")
        except ConfigurationError:
            os.close(file)
            raise
        logger.info("%s goes on at byte %d of %s", self.path, where.at, path)
        return file, is_very_same

    def _require_none_between(self, old: int, what: str) -> None:
        """Raises ConfigurationError when another file had the name after this one, and has it no more.

        1. A file is copied and cut, and what is left of it is read from the copy.
        2. Meanwhile the file fills, and is copied and cut again.
        3. What has the name now is not what comes next: that is in the second copy.
        """
        if newer := _between(self.path, old):
            raise ConfigurationError(
                f"{self.path} was read up to byte {self.where.at} {what}, and {', '.join(newer)} came since: read "
                "what is in them by a source of its own, and move them to another folder"
            )

    def behind(self, skip: int) -> bytes | None:
        """The line so many bytes behind the place; None when there is no whole one now, b"" at the end."""
        first = start = self._used + skip
        while True:
            end = self._ahead.find(b"\n", start) + 1
            if end:
                return self._ahead[first:end]
            if len(self._ahead) - first >= LINE_MAX:
                return self._ahead[first : first + LINE_MAX]
            start = len(self._ahead) - self._used
            piece = self._piece()  # which lets go of what is taken
            first = skip
            if not piece:
                break
            self._ahead += piece
        if self._follow and not self._is_old:
            return None
        return self._ahead[first:]

    def _piece(self) -> bytes:
        """The next bytes, of the file that those before them are of; none when it is another one by now.

        1. A look has read up to the end of the file, and given rows of it.
        2. The file is cut, and grows beyond that place.
        3. What stands there now belongs to other rows; without the bytes in front of it nobody would see that.
        """
        self._ahead, self._used = self._ahead[self._used :], 0
        known = self._ahead[-_SEEN_MAX:]
        seen = KnownBytes.of(known) if known else self.where.last
        at = self.where.at + len(self._ahead) - seen.length
        found = os.pread(self._file, seen.length + _PIECE, at)
        if KnownBytes.of(found[: seen.length]) == seen:
            return found[seen.length :]
        if not self._follow or self._is_old:
            raise ConfigurationError(self._lost(self.where, os.fstat(self._file).st_size))
        self._is_torn = True
        return b""

    def rest_of_line(self, start: int) -> int | None:
        """How many bytes a line has whose first ``start`` are known; None when its end is not there yet."""
        at = self.where.at + start
        while piece := os.pread(self._file, _PIECE, at):
            end = piece.find(b"\n") + 1
            if end:
                return at + end - self.where.at
            at += len(piece)
        return None if self._follow and not self._is_old else at - self.where.at

    def take(self, count: int) -> str:
        """These bytes of ``behind`` are read: gives the place behind them."""
        where, data = self.where, self._ahead[self._used : self._used + count]
        file = where.file
        if not file.head.length:
            head = KnownBytes.of(os.pread(self._file, min(_SEEN_MAX, where.at + count), 0))
            file = FileId(file.device, file.inode, head)
        if count > len(data):  # of a line that is longer than is kept
            data = os.pread(self._file, _SEEN_MAX, max(0, where.at + count - _SEEN_MAX))
        self.where = Where(where.at + count, KnownBytes.of(data[-_SEEN_MAX:]), file)
        self._used += count
        if self.line:
            self.line += data.count(b"\n")
        return self.where.text

    def whole_lines(self, lines_max: int) -> list[bytes]:
        """The next whole lines without their ends, as far as ``behind`` has read ahead."""
        end = self._ahead.rfind(b"\n", self._used)
        found = self._ahead[self._used : end + 1].split(b"\n", lines_max) if end >= 0 else [b""]
        return found[:-1]

    def take_lines(self, lines: Sequence[bytes]) -> Callable[[int], str]:
        """These of ``whole_lines`` are read: gives the places behind so many of them."""
        start = self.where
        self.take(len(lines[0]) + 1)
        file = self.where.file

        def behind(count: int) -> Where:
            at = start.at + sum(map(len, lines[:count])) + count
            return Where(at, KnownBytes.of((lines[count - 1] + b"\n")[-_SEEN_MAX:]), file)

        self.where = behind(len(lines))
        self._used += self.where.at - start.at - len(lines[0]) - 1
        if self.line:
            self.line += len(lines) - 1
        return lambda count: behind(count).text

    def is_same(self) -> bool:
        """True as long as what was read stands where it stood. Not asked of what nobody follows."""
        if not self._follow or self._is_old:
            return True
        return not self._is_torn and self.where.fits(self._file)

    def look(self) -> None:
        """Forget what was read ahead, and see how far the file goes."""
        self._ahead, self._used = b"", 0
        self._seen_size = os.fstat(self._file).st_size

    def recover(self) -> SourceRow:
        """The file was cut: go on in its copy, or at its beginning. Gives the place there.

        Raises ConfigurationError where bytes are known to be lost.
        """
        where = self.where
        size = os.fstat(self._file).st_size
        known = self._seen_size
        old = self._beside(where)
        self._ahead, self._used, self._seen_size = b"", 0, 0
        if old is not None:
            os.close(self._file)
            self._file, self._is_old = old[0], True
            stat = os.fstat(self._file)
            copy = FileId(stat.st_dev, stat.st_ino, where.file.head)
            self.where = Where(where.at, where.last, copy)
            logger.warning(
                "%s was cut, and %d bytes had been read: the rest is read from its copy",
                self.path,
                where.at,
            )
            return SourceRow(NOTHING, self.where.text)
        if known > where.at:
            raise ConfigurationError(
                f"{self.path} was cut to {size} bytes when {where.at} of at least {known} had been read, and no "
                "copy of it is beside it: what stood behind is lost to this source. Put the copy beside it; or, "
                "to go on with what is there now, give the source another name"
            )
        logger.warning(
            "%s was cut to %d bytes; all %d that were seen had been read. What was added behind them in the "
            "moment before is not known; reading goes on at its beginning",
            self.path,
            size,
            where.at,
        )
        return self._anew(opened(self.path))

    def successor(self) -> SourceRow | None:
        """The file has nothing more: another one that has taken its name comes next. Gives the place there."""
        try:
            stat = self.path.stat()
        except OSError:
            if not self._is_missing:
                logger.warning(
                    "%s was moved away at byte %d: waiting for another", self.path, self.where.at
                )
            self._is_missing = True
            return None
        self._is_missing = False
        self._watch_left()
        is_other = (stat.st_dev, stat.st_ino) != self.where.file.inode_of
        if not (is_other and (stat.st_size or self._is_old)):
            return None  # while the new one is empty, somebody may still write into the old one
        self._require_none_between(self._file, "of the one before")
        return self._anew(opened(self.path))

    def _watch_left(self) -> None:
        if self._left >= 0 and (size := os.fstat(self._left).st_size) > self._left_at:
            logger.error(
                "a file that was %s has grown from %d to %d bytes after another one had taken its name: what was "
                "added to it is not read",
                self.path,
                self._left_at,
                size,
            )
            self._left_at = size

    def _anew(self, file: int) -> SourceRow:
        if self._left >= 0:
            os.close(self._left)
            self._left = -1
        stat = os.fstat(file)
        if os.path.samestat(stat, os.fstat(self._file)):
            os.close(self._file)  # it was cut: that it grows is nothing to be told
        else:
            self._left, self._left_at = self._file, os.fstat(self._file).st_size
        self._file, self._is_old = file, False
        self._ahead, self._used, self._seen_size = b"", 0, 0
        self.where, self.line = Where(file=FileId(stat.st_dev, stat.st_ino)), 1
        return SourceRow(NOTHING, self.where.text)

    def mark(self) -> tuple[Where, int]:
        """Where it is, to go back to when nothing of what follows was given away."""
        return self.where, self.line

    def back_to(self, mark: tuple[Where, int]) -> None:
        self.where, self.line = mark
        self._ahead, self._used, self._is_torn = b"", 0, False

    def ahead(self, count: int) -> bytes:
        """The next bytes, as far as they were read."""
        return self._ahead[self._used : self._used + count]

    def head(self, size: int) -> bytes:
        """The first bytes of the file."""
        return os.pread(self._file, size, 0)

    def close(self) -> None:
        for file in (self._file, self._left):
            if file >= 0:
                os.close(file)
        self._file = self._left = -1
        self._is_old, self._seen_size, self.line = False, 0, 1
        self._ahead, self._used = b"", 0


def files_beside(path: Path) -> list[Path]:
    """Files whose names say that they may be what this one was, before it was moved away or copied and cut."""
    found = path.parent.glob(f"{_escaped(path.name)}[.~_-]*")
    return [one for one in sorted(found) if one.is_file()]


def _between(path: Path, old: int) -> list[str]:
    """Files beside a path that were written after an open one, and whose lines are neither there nor at the path.

    So a backup of either, or a copy that is only being made, is none of them.
    """
    while True:
        try:
            return [str(one) for one in _newer_beside(path, old) if not _is_in(one, path, old)]
        except FileNotFoundError:  # files are being moved just now
            continue


def _newer_beside(path: Path, old: int) -> Iterator[Path]:
    beside, stat = files_beside(path), os.fstat(old)
    names = {one.name for one in beside}
    for one in beside:
        other = one.stat()
        is_other = other.st_size and (other.st_dev, other.st_ino) != (stat.st_dev, stat.st_ino)
        if is_other and other.st_mtime_ns > stat.st_mtime_ns and not _is_made_of(one.name, names):
            yield one


def _is_in(one: Path, path: Path, old: int) -> bool:
    """True when the lines of a file stand in an open one, or at a path."""
    with one.open("rb") as file, path.open("rb") as now:
        end = _end_of(file.fileno())
        return end.fits(old) or end.fits(now.fileno())


def _end_of(file: int) -> Where:
    size = os.fstat(file).st_size
    seen = min(size, _SEEN_MAX)
    head, last = os.pread(file, seen, 0), os.pread(file, seen, size - seen)
    return Where(size, KnownBytes.of(last), FileId(head=KnownBytes.of(head)))


def _is_made_of(name: str, names: Container[str]) -> bool:
    """True while another one is being compressed into it."""
    return name.rpartition(".")[0] in names


def _escaped(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


class TextFile:
    """A file of lines that may be followed. What a record is, its kinds say."""

    def __init__(
        self, path: Path, *, follow: bool = False, check: Check = as_it_is, keeps: bool = False
    ) -> None:
        """``keeps``: rows that can't be read are given as such, and not raised."""
        self._path = path
        self._follow = follow
        self._check = check
        self._keeps = keeps
        self._lines = Growing(path, follow=follow)

    def begin(self, after: str) -> None:
        """Open the file at a place. Raises ConfigurationError when it is not there, or is another one."""
        self._lines.open(Where.read(after) if after else None)

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next rows. Raises ConfigurationError for one that can't be read, when those before it were given."""
        lines = self._lines
        if not lines.is_same():
            return [self._elsewhere(lines.recover())]
        lines.look()
        before = lines.mark()
        rows, wrong = self._rows(rows_max)
        if (
            not lines.is_same()
        ):  # cut meanwhile: what was read may be of the old lines and the new ones
            lines.back_to(before)
            return [self._elsewhere(lines.recover())]
        if wrong and not rows:
            raise ConfigurationError(wrong)
        if rows:
            return rows
        following = lines.successor() if self._follow else None
        if following is not None:
            return [self._elsewhere(following)]
        return [] if self._follow else None

    def rows(self) -> Iterator[object]:
        """All that is there, from the beginning. Raises ConfigurationError."""
        self.begin("")
        try:
            while rows := self.read(1024):
                yield from (row.message for row in rows if row.message is not NOTHING)
        finally:
            self.close()

    def _elsewhere(self, row: SourceRow) -> SourceRow:
        """Reading goes on in another file, or at its beginning."""
        return row

    def _rows(self, rows_max: int) -> tuple[list[SourceRow], str]:
        """The next rows, and what is wrong with the one behind them."""
        raise NotImplementedError

    def _row(self, message: object, count: int, wrong: str) -> SourceRow | None:
        """The row that these bytes are; None for one that can't be read and must not be passed."""
        lines = self._lines
        if not wrong:
            return SourceRow(message, lines.take(count))
        if not self._keeps:
            return None
        return SourceRow(
            lines.ahead(min(count, KEPT_MAX if count > LINE_MAX else count)),
            lines.take(count),
            wrong,
        )

    def progress(self) -> tuple[int, int] | None:
        """Bytes that are read, and all; None for a file that may grow, or is gone. From any thread."""
        if self._follow:
            return None
        try:
            return self._lines.where.at, self._path.stat().st_size
        except OSError:
            return None

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """A file does not care."""

    def close(self) -> None:
        self._lines.close()


class JsonlFile(TextFile):
    """One JSON value on each line; empty lines are passed over. ``follow``: lines may be added."""

    def _rows(self, rows_max: int) -> tuple[list[SourceRow], str]:
        lines, rows = self._lines, list[SourceRow]()
        while len(rows) < rows_max and (line := lines.behind(0)):
            count: int | None = len(line)
            if is_long := len(line) >= LINE_MAX and not line.endswith(b"\n"):
                count = lines.rest_of_line(len(line))
            if count is None:
                break
            if not line.strip() and not is_long:
                lines.take(count)
                continue
            message, wrong = (None, _TOO_LONG) if is_long else self._message(line)
            number = f"line {lines.line}, " if lines.line else ""
            said = wrong and f"{self._path}, {number}byte {lines.where.at}: {wrong}"
            row = self._row(message, count, said)
            if row is None:
                return rows, said
            rows.append(row)
        return rows, ""

    def read_run(self, rows_max: int) -> RowRun | None:
        """Whole lines of plain JSON, up to the first that is something else."""
        lines = self._lines
        if not lines.is_same():
            return None
        lines.look()
        before = lines.mark()
        if not lines.behind(0):
            return None
        check = None if self._check is as_it_is else self._check
        texts, messages = lines.whole_lines(rows_max), list[object]()
        try:
            for text in texts:
                message: object = from_json(text, allow_inf_nan=False)
                messages.append(message if check is None else check(message))
        except (ValueError, Unfit):
            del texts[len(messages) :]
        if not texts:
            return None
        places = lines.take_lines(texts)
        if not lines.is_same():  # what was read may be of the old lines and the new ones
            lines.back_to(before)
            return None
        return RowRun(messages, places, texts if check is None else None)

    def _message(self, line: bytes) -> tuple[object, str]:
        """What a line is, or why it is nothing."""
        try:
            return self._check(read_json(line)), ""
        except Unfit as error:
            return None, str(error)
        except (ValueError, RecursionError) as error:
            return None, f"no JSON: {error}"


class _NotWhole(Exception):
    """The end of a row is not there yet."""


class CsvFile(TextFile):
    """A CSV file with a header line; each row is a mapping of texts. ``follow``: rows may be added."""

    def __init__(
        self,
        path: Path,
        delimiter: str = ",",
        check: Check = as_it_is,
        *,
        follow: bool = False,
        keeps: bool = False,
    ) -> None:
        super().__init__(path, follow=follow, check=check, keeps=keeps)
        self._delimiter = delimiter
        self._names: Sequence[str] = ()

    def begin(self, after: str) -> None:
        """Open the file at a place. Raises ConfigurationError when it is not there, or is another one."""
        self._names = ()
        if not after.isdecimal():
            super().begin(after)
            if self._lines.where.at:
                self._names = self._header_of(self._lines.head(LINE_MAX))
            return
        super().begin("")  # an earlier version counted rows
        rows, wrong = self._rows(int(after))
        if len(rows) < int(after):
            raise ConfigurationError(
                wrong
                or f"{self._path} has {len(rows)} rows, and {after} were read before: it is another file, "
                "or was cut"
            )

    def _elsewhere(self, row: SourceRow) -> SourceRow:
        self._names = ()
        if self._lines.where.at:
            self._names = self._header_of(self._lines.head(LINE_MAX))
        return row

    def _header_of(self, data: bytes) -> Sequence[str]:
        text = data.decode("utf-8-sig", "replace")
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter), ())

    def _rows(self, rows_max: int) -> tuple[list[SourceRow], str]:
        lines, rows = self._lines, list[SourceRow]()
        while len(rows) < rows_max:
            try:
                fields, count, wrong = self._record()
            except _NotWhole:
                break
            if not count:
                break
            place = f"line {lines.line}" if lines.line else f"byte {lines.where.at}"
            said = wrong and f"{self._path}, {place}: {wrong}"
            if not self._names:
                if said or not fields:
                    return rows, said or f"{self._path}: the first line is empty: write a header"
                self._require_names(fields)
                self._names = fields
                lines.take(count)
                continue
            if not fields and not wrong:
                lines.take(count)
                continue
            message, unfit = (None, wrong) if wrong else self._message(fields)
            said = unfit and f"{self._path}, {place}: {unfit}"
            row = self._row(message, count, said)
            if row is None:
                return rows, said
            rows.append(row)
        return rows, ""

    def _message(self, fields: Sequence[str]) -> tuple[object, str]:
        if len(fields) != len(self._names):
            return None, "not as many fields as the header has"
        try:
            return self._check(dict(zip(self._names, fields, strict=True))), ""
        except Unfit as error:
            return None, str(error)

    def _record(self) -> tuple[list[str], int, str]:
        """The fields of the next row, how many bytes it has, and what is wrong with it. Raises _NotWhole.

        Of a quote that is never closed only the first line is taken for wrong: the rows behind it may be good.
        """
        used = [0]
        try:
            fields = next(
                csv.reader(self._texts(used), delimiter=self._delimiter, strict=True), list[str]()
            )
        except UnicodeDecodeError as error:
            wrong = f"no UTF-8 text: {error.reason}, 0x{error.object[error.start]:02x}"
        except (csv.Error, OverflowError) as error:
            wrong = str(error)
        else:
            return fields, used[0], ""
        first = self._lines.behind(0) or b""
        count: int | None = len(first)
        if len(first) >= LINE_MAX and not first.endswith(b"\n"):
            count = self._lines.rest_of_line(len(first))
        if count is None:
            raise _NotWhole
        return [], count, wrong

    def _texts(self, used: list[int]) -> Iterator[str]:
        """Lines from the place on, also where a file ends them with CR alone."""
        while True:
            line = self._lines.behind(used[0])
            if line is None:
                raise _NotWhole
            if not line:
                return
            if used[0] + len(line) >= LINE_MAX:
                raise OverflowError(_TOO_LONG)
            found = _LINE.match(line)
            assert found is not None, "it matches nothing, too"
            is_first = self._lines.where.at == used[0] == 0
            used[0] += len(found[0])
            yield found[0].decode("utf-8-sig" if is_first else "utf-8")

    def _require_names(self, header: Sequence[str]) -> None:
        """Raises ConfigurationError where one field would take the place of another."""
        if twice := [name for at, name in enumerate(header) if name in header[:at]]:
            raise ConfigurationError(
                f"{self._path}: the header has {twice[0]!r} twice: give each column a name of its own"
            )


class ParquetFile:
    """A Parquet file; each row is a mapping. Rows can only be counted: a place is how many were read."""

    def __init__(self, path: Path, check: Check = as_it_is, *, keeps: bool = False) -> None:
        self.path = path
        self._check = check
        self._keeps = keeps
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

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next rows. Raises ConfigurationError for one that does not fit."""
        return self._rows.take(rows_max)

    def _checked(self, messages: Iterator[object], start: int) -> Iterator[SourceRow]:
        for number, message in enumerate(messages, start + 1):
            try:
                yield SourceRow(self._check(message), str(number))
            except Unfit as error:
                yield refused(
                    message, str(number), f"{self.path}, row {number}: {error}", self._keeps
                )

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """A file does not care."""

    def close(self) -> None:
        self._rows = Readable()

    def rows(self) -> Iterator[object]:
        """All rows, a batch in memory at a time. Raises ConfigurationError without pyarrow."""
        os.close(opened(self.path))
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


def opened(path: Path) -> int:
    """Open a file to read it: its descriptor. Raises ConfigurationError when that can't be done."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{path} can't be read: {reason}") from None
