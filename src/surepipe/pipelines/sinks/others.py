"""Sinks that are no lines of a file: standard output, functions, HTTP servers, folders of Parquet files."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import About
from surepipe.pipelines.calling import Unwritable
from surepipe.pipelines.sinks.files import as_json
from surepipe.store_api import Transaction

ANSWER_S = 30.0


class AtOnce:
    """What sinks have that give each message away at once."""

    def begin(self, transaction: Transaction | None) -> None:
        """Nothing waits."""

    def mark(self) -> int:
        """Nothing waits."""
        return 0

    def back_to(self, mark: int) -> None:
        """What is given away can't be taken back."""

    def seal(self, transaction: Transaction | None) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


class Printed(AtOnce):
    """Standard output, a line for each message."""

    def __init__(self, stream: IO[str], *, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Write a line."""
        del about, transaction
        is_text = isinstance(message, str) and not self._is_json
        text = str(message) if is_text else as_json(message).decode()
        self._stream.write(text + "\n")

    def seal(self, transaction: Transaction | None) -> None:
        """Let it out."""
        del transaction
        self._stream.flush()


class Handed(AtOnce):
    """A function of the user's."""

    takes_many_at_once = True

    def __init__(self, call: Callable[[object, About, Transaction | None], object]) -> None:
        self._call = call

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Call the function. Raises what it raises."""
        self._call(message, about, transaction)


class Posted(AtOnce):
    """A POST for each message, with its identity as Idempotency-Key."""

    takes_many_at_once = True

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError("the address of an http sink begins with http:// or https://")
        odd = [name for name, value in headers.items() if not value.isprintable()]
        if odd or " " in url or not url.isprintable():  # the client's error would show a secret
            raise ConfigurationError(
                f"{odd[0] if odd else 'the address'} of an http sink has a blank, an end of line or another sign "
                "that it can't have"
            )
        self._url = url
        self._headers = dict(headers)

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Post it. Raises OSError for every answer but 2xx."""
        del transaction
        request = urllib.request.Request(
            self._url,
            as_json(message),
            {
                "Content-Type": "application/json",
                "Idempotency-Key": about.key,
                **self._headers,
            },
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"the server answered {error.code}") from None


class ParquetFolder(AtOnce):
    """A folder of Parquet files, each written as a whole under its name: that of its first message."""

    def __init__(self, folder: Path, rows_per_file: int) -> None:
        """Raises ConfigurationError without pyarrow, or for a folder that can't be made."""
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError:
            raise ConfigurationError(
                f"{folder}: Parquet needs pyarrow: pip install 'surepipe[parquet]'"
            ) from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{folder} can't be made: {error}") from None
        self._folder = folder
        self._rows_max = rows_per_file
        self._table: Callable[[list[object]], object] = arrow.Table.from_pylist
        self._write: Callable[[object, Path], object] = parquet.write_table
        self._rows: list[tuple[object, About]] = []

    def begin(self, transaction: Transaction | None) -> None:
        """Forget what was not sealed."""
        del transaction
        self._rows.clear()

    def mark(self) -> int:
        """How many rows wait."""
        return len(self._rows)

    def back_to(self, mark: int) -> None:
        """Forget those behind."""
        del self._rows[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Take a row, which must be a mapping."""
        del transaction
        if not isinstance(message, Mapping):
            raise Unwritable(f"a row of Parquet is a mapping, not {type(message).__name__}")
        self._rows.append((cast("object", message), about))

    def seal(self, transaction: Transaction | None) -> None:
        """Write what waits into one or more files."""
        del transaction
        for start in range(0, len(self._rows), self._rows_max):
            piece = self._rows[start : start + self._rows_max]
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", piece[0][1].key)
            hidden = self._folder / f".{name}.parquet"
            self._write(self._table([message for message, _ in piece]), hidden)
            hidden.rename(self._folder / f"{name}.parquet")
        self._rows.clear()
