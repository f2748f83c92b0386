"""Sources that live: standard input, a function of the user's."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import IO, cast

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.calling import failing_only, told_of
from surepipe.pipelines.sources.checking import Check, Readable, Unfit, as_it_is, refused

_END = object()
WAIT_S = 0.05
LINES_MAX = 4096
"""Lines that are read ahead."""


class Called:
    """What a function gives, one after the other. ``repeatable``: the same each time it is called."""

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
        self._messages: Iterator[object] = iter(())
        self._rows = Readable()

    def begin(self, after: str) -> None:
        """Call the function, and pass over what was accepted if it gives the same each time."""
        with self._blamed():
            given = self._call()
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f"source {self._name}: the function gave {type(given).__name__}, which is no row of messages"
            )
        self._messages = iter(cast("Iterable[object]", given))
        start = int(after or 0) if self._repeatable else 0
        with self._blamed():
            for _ in islice(self._messages, start):
                continue
        self._rows = Readable(self._checked(start))

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next messages; what the function raises ends the run, when those before it were given."""
        return self._rows.take(min(rows_max, 64))

    def _checked(self, start: int) -> Iterator[SourceRow]:
        for number in count(start + 1):
            with self._blamed():
                message = next(self._messages, _END)
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
        close = getattr(self._messages, "close", None)
        if callable(close):
            close()


class Lines:
    """Lines of a stream that can't be read again, such as standard input."""

    def __init__(
        self, stream: IO[bytes], *, is_json: bool, check: Check = as_it_is, keeps: bool = False
    ) -> None:
        self._stream = stream
        self._keeps = keeps
        self._is_json = is_json
        self._check = check
        self._lines: queue.Queue[bytes | None] = queue.Queue(LINES_MAX)
        self._thread: threading.Thread | None = None
        self._number = 0
        self._is_over = False
        self._wrong: ConfigurationError | None = None

    def begin(self, after: str) -> None:
        """Begin to read; what an earlier process read is gone."""
        del after
        self._thread = threading.Thread(target=self._read_all, name="stdin", daemon=True)
        self._thread.start()

    def _read_all(self) -> None:
        for line in self._stream:
            self._lines.put(line)
        self._lines.put(None)

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next lines. Raises ConfigurationError for one that is no JSON, when those before it were given."""
        if self._wrong is not None:
            raise self._wrong
        rows: list[SourceRow] = []
        while len(rows) < rows_max and not self._is_over:
            try:
                line = self._lines.get(timeout=0 if rows else WAIT_S)
            except queue.Empty:
                break
            if line is None:
                self._is_over = True
            else:
                self._number += 1
                if line.strip() and not self._add(line, rows):
                    break
        return None if self._is_over and not rows else rows

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
