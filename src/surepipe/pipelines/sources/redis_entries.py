"""A Redis stream that others write. A place is the id of the last entry that was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from redis import Redis
from redis.exceptions import RedisError

from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipelines.assembly import Row
from surepipe.pipelines.sources.checking import Check, Unfit, as_it_is, refused

_Entry = tuple[bytes, Mapping[bytes, bytes] | None]


class _Client(Protocol):
    """What is used of a client, narrowed."""

    def xrange(self, name: str, min: str, max: str, count: int) -> list[_Entry]: ...

    def xrevrange(self, name: str, max: str, min: str, count: int) -> list[_Entry]: ...

    def close(self) -> None: ...


class RedisEntries:
    """The entries of a stream, each a mapping of its fields. Nothing is written there: no group, no answer."""

    def __init__(
        self,
        url: str,
        stream: str,
        *,
        start: str = "earliest",
        check: Check = as_it_is,
        keeps: bool = False,
    ) -> None:
        self._keeps = keeps
        self._url = url
        self._stream = stream
        self._start = start
        self._check = check
        self._client: _Client | None = None
        self._last = ""

    def begin(self, after: str) -> None:
        """Go on behind an entry. Raises StoreUnavailable, ConfigurationError for a URL that is none."""
        if self._client is None:
            try:
                redis = cast("Any", Redis)  # its types know nothing of its arguments
                client: _Client = redis.from_url(
                    self._url, socket_timeout=5, socket_connect_timeout=5
                )
            except ValueError as error:
                raise ConfigurationError(
                    f"the address of the Redis can't be used: {error}"
                ) from None
            self._client = client
        self._last = after or (self._newest() if self._start == "latest" else "")

    def _newest(self) -> str:
        assert self._client is not None
        try:
            found = self._client.xrevrange(self._stream, "+", "-", 1)
        except RedisError as error:
            raise StoreUnavailable(f"redis stream {self._stream!r}: {error}") from error
        return found[0][0].decode() if found else "0-0"

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """The next entries. Raises StoreUnavailable."""
        assert self._client is not None
        least = f"({self._last}" if self._last else "-"
        try:
            found = self._client.xrange(self._stream, least, "+", rows_max)
        except RedisError as error:
            raise StoreUnavailable(f"redis stream {self._stream!r}: {error}") from error
        rows = [self._row(id.decode(), fields or {}) for id, fields in found]
        if rows:
            self._last = rows[-1].after
        return rows

    def _row(self, id: str, fields: Mapping[bytes, bytes]) -> Row:
        message = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in fields.items()
        }
        try:
            return Row(self._check(message), id)
        except Unfit as error:
            wrong = f"entry {id} of redis stream {self._stream!r}: {error}"
            return refused(message, id, wrong, self._keeps)

    def taken(self, rows: Sequence[Row]) -> None:
        """Others decide how long entries stay."""

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
