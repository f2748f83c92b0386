"""Sources that live: standard input, a function of the user's."""

from __future__ import annotations

import io
import json
import logging
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import IO, Generic, TypeVar, cast

from surepipe.errors import ConfigurationError, words_of
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.calling import failing_only, told_of
from surepipe.pipelines.sources.checking import Check, Unfit, as_it_is, refused

logger = logging.getLogger("surepipe")
_END = object()
WAIT_S = 0.05
LINES_MAX = 4096
"""Lines that are read ahead."""
MESSAGES_MAX = 64
"""Messages of a function that are read ahead."""
CLOSE_S = 1.0
"""A function that stands still is waited for so long, so that its ``finally`` runs; then it is left there."""
T = TypeVar("T")


class _End:
    """Nothing comes behind it. ``wrong``: what was raised in its place."""

    def __init__(self, wrong: BaseException | None) -> None:
        self.wrong = wrong


class Ahead(Generic[T]):
    """Draws items in a thread of its own: who waits for the next one does not keep those that came before."""

    def __init__(self, name: str, items: Generator[T], most: int) -> None:
        self._name = name
        self._items = items
        self._drawn: queue.Queue[T | _End] = queue.Queue(most)
        self._end: _End | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._draw, name=name, daemon=True)
        self._thread.start()

    def _draw(self) -> None:
        wrong: BaseException | None = None
        try:
            for item in self._items:
                self._drawn.put(item)
                if self._is_stopped:
                    break
            self._items.close()
        except BaseException as error:  # noqa: BLE001 - raised where the items are taken
            wrong = error
        if not self._is_stopped:
            self._drawn.put(_End(wrong))
        elif wrong is not None:
            logger.warning("%s: its end failed: %s", self._name, words_of(wrong))

    def take(self, most: int, wait_s: float | None = WAIT_S) -> list[T] | None:
        """What has come, after a short wait for the first; None when no more will. Raises what ended it, when
        those before that were taken."""
        taken: list[T] = []
        while len(taken) < most and self._end is None:
            try:
                item = self._drawn.get(timeout=0 if taken else wait_s)
            except queue.Empty:
                return taken
            if isinstance(item, _End):
                self._end = item
            else:
                taken.append(item)
        if taken or self._end is None:
            return taken
        if self._end.wrong is not None:
            raise self._end.wrong
        return None

    def stop(self, wait_s: float = 0.0) -> None:
        """Draw no more; what was drawn is dropped."""
        self._is_stopped = True
        while not self._drawn.empty():
            self._drawn.get_nowait()
        if self._thread is not threading.current_thread():
            self._thread.join(wait_s)


class Called:
    """What a function gives, one after the other. ``repeatable``: the same each time it is called."""

    ends_by_itself = True

    def __init__(
        self,
        name: str,
        call: Callable[[], object],
        *,
        repeatable: bool,
        check: Check = as_it_is,
        keeps: bool = False,
    ) -> None:
        self._name = name
        self._keeps = keeps
        self._call = call
        self._repeatable = repeatable
        self._check = check
        self._ahead: Ahead[SourceRow | None] | None = None

    def begin(self, after: str) -> None:
        """Call the function, and pass over what was accepted if it gives the same each time."""
        self.close()
        start = int(after or 0) if self._repeatable else 0
        self._ahead = Ahead(f"source {self._name}", self._rows(start), MESSAGES_MAX)
        self._ahead.take(1, None)  # that it has begun, or why not

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next messages; what the function raises ends the run, when those before it were given."""
        if self._ahead is None:
            return None
        return cast("Sequence[SourceRow] | None", self._ahead.take(rows_max))

    def _rows(self, start: int) -> Generator[SourceRow | None]:
        with self._blamed():
            given = self._call()
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f"source {self._name}: the function gave {type(given).__name__}, which is no row of messages"
            )
        messages = iter(cast("Iterable[object]", given))
        try:
            with self._blamed():
                for _ in islice(messages, start):
                    continue
            yield None
            yield from self._checked(messages, start)
        finally:
            close = getattr(messages, "close", None)
            if callable(close):
                close()

    def _checked(self, messages: Iterator[object], start: int) -> Iterator[SourceRow]:
        for number in count(start + 1):
            with self._blamed():
                message = next(messages, _END)
            if message is _END:
                return
            try:
                yield SourceRow(self._check(message), str(number))
            except Unfit as error:
                wrong = f"source {self._name}, message {number}: {error}"
                yield refused(message, str(number), wrong, self._keeps)

    @contextmanager
    def _blamed(self) -> Generator[None]:
        """Raises ConfigurationError for whatever the user's function raises: a store that it can't reach, too."""
        try:
            with failing_only("it"):
                yield
        except Exception as error:
            raise ConfigurationError(
                f"source {self._name}: its function failed: {told_of(error)}"
            ) from error

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Let a generator run its ``finally``."""
        if self._ahead is not None:
            self._ahead.stop(CLOSE_S)
            self._ahead = None


class Lines:
    """Lines of a stream that can't be read again, such as standard input."""

    ends_by_itself = True

    def __init__(
        self, stream: IO[bytes], *, is_json: bool, check: Check = as_it_is, keeps: bool = False
    ) -> None:
        self._stream = stream
        self._keeps = keeps
        self._is_json = is_json
        self._check = check
        self._number = 0
        self._ahead: Ahead[bytes] | None = None
        self._wrong: ConfigurationError | None = None

    def begin(self, after: str) -> None:
        """Begin to read; what an earlier process read is gone."""
        del after
        if self._ahead is None:
            self._ahead = Ahead("standard input", _lines_of(self._stream), LINES_MAX)

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next lines. Raises ConfigurationError for one that is no JSON, when those before it were given."""
        if self._wrong is not None:
            raise self._wrong
        assert self._ahead is not None, "it is begun before it is read"
        rows: list[SourceRow] = []
        while not rows:
            lines = self._ahead.take(rows_max)
            if not lines:
                return None if lines is None else ()
            for line in lines:  # empty ones are passed over
                self._number += 1
                if line.strip() and not self._add(line, rows):
                    break
        return rows

    def _add(self, line: bytes, rows: list[SourceRow]) -> bool:
        """False for a line that is wrong, where others wait before it."""
        try:
            rows.append(self._row(line))
        except ConfigurationError as error:
            if not rows:
                raise
            self._wrong = error
            return False
        return True

    def _row(self, line: bytes) -> SourceRow:
        text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
        try:
            value: object = json.loads(text) if self._is_json else text
            return SourceRow(self._check(value), str(self._number))
        except (ValueError, RecursionError, Unfit) as error:
            wrong = f"standard input, line {self._number}: {error}"
            return refused(line, str(self._number), wrong, self._keeps)

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """The thread ends with the stream, or the process."""


def _lines_of(stream: IO[bytes]) -> Generator[bytes]:
    """Its lines. A thread that waits inside a buffered stream makes the interpreter abort at its end, for which it
    needs that stream's lock; so what has a file is read from that."""
    try:
        raw = io.FileIO(stream.fileno(), closefd=False)
    except (OSError, ValueError):  # no file: it never waits
        yield from stream
        return
    begun: list[bytes] = []
    while piece := raw.read(1 << 16):
        first, *lines = piece.split(b"\n")
        begun.append(first)
        if lines:
            yield b"".join(begun)
            begun = [lines.pop()]
            yield from lines
    if last := b"".join(begun):
        yield last
