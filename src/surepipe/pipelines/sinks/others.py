"""Sinks that are no lines of a file: standard output, functions, HTTP servers, folders of Parquet files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from surepipe.core.store_requests import Transaction
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipelines.calling import Unwritable
from surepipe.pipelines.problems import mask
from surepipe.pipelines.sinks.files import as_json
from surepipe.pipelines.stages import About

if TYPE_CHECKING:
    from urllib3 import PoolManager
    from urllib3.response import BaseHTTPResponse

    from surepipe.actors.clusters import Cluster
    from surepipe.pipelines.models.stages import RmqSink


ANSWER_S = 30.0
SUBMITTED_S = 10.0
CONNECT_S = 10.0
CONNECTIONS_KEPT = 64
ANSWER_PIECE = 64 << 10
ANSWER_MAX = 16 << 20
PATIENCE_MAX_S = 3600.0


class AtOnce:
    """What sinks have that give each message away at once."""

    def begin(self, transaction: Transaction | None) -> None:
        """Nothing waits."""

    def mark(self) -> int:
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
        del about, transaction
        is_text = isinstance(message, str) and not self._is_json
        text = str(message) if is_text else as_json(message).decode()
        self._stream.write(text + "\n")

    def seal(self, transaction: Transaction | None) -> None:
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
    """A POST for each message, with its identity as Idempotency-Key, over connections that are kept.

    A message counts as taken when the server has answered 2xx and the answer has come to its end. Nothing is
    followed and nothing is tried again here: what fails goes back to the pipe, which tries again by the sink's
    rules.
    """

    takes_many_at_once = True

    def __init__(
        self, url: str, headers: Mapping[str, str], *, answer_s: float | None = None
    ) -> None:
        """Raises ConfigurationError without urllib3, and for an address or header that can't be sent."""
        _require_sendable(url, headers)
        self._url = url
        self._headers = {"Content-Type": "application/json", **headers}
        self._answer_s = answer_s or ANSWER_S
        self._pool = _connections(url, self._answer_s)
        self._again_at = 0.0

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Post it. Raises OSError for every answer but a whole 2xx, and StoreUnavailable, which blames no message,
        while a server that answered 429 or 503 with Retry-After wants to be left alone."""
        del transaction
        if time.monotonic() < self._again_at:
            raise StoreUnavailable("the server asked to be left alone for a while (Retry-After)")
        body, headers = as_json(message), {**self._headers, "Idempotency-Key": about.key}
        end = time.monotonic() + self._answer_s
        with self._told():
            answer = self._pool.request(
                "POST", self._url, body=body, headers=headers, preload_content=False
            )
            try:
                self._judge(answer)
                _read_to_its_end(answer, end)
                answer.release_conn()
            finally:
                answer.close()  # does nothing to a connection that was given back

    @contextmanager
    def _told(self) -> Generator[None]:
        """What the client raises, as OSError without an address: that may hold a secret."""
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        try:
            yield
        except ReadTimeoutError:
            raise OSError(f"the server gave no whole answer in {self._answer_s:g} s") from None
        except HTTPError as error:
            raise OSError(f"the server could not be asked: {error}") from None

    def _judge(self, answer: BaseHTTPResponse) -> None:
        """Raises what an answer means, but for 2xx."""
        status = answer.status
        length = answer.headers.get("Content-Length")
        if length is not None and not re.fullmatch("[0-9]+", length):
            raise OSError(f"the server answered {status} with {length[:40]!r} as its length")
        if 200 <= status < 300:
            _require_an_end(answer)
            return
        later = answer.headers.get("Retry-After", "") if status in (429, 503) else ""
        if patience_s := _seconds(later):
            self._again_at = time.monotonic() + patience_s
            raise StoreUnavailable(f"the server answered {status}: again in {patience_s:g} s")
        if 300 <= status < 400:
            where = mask(answer.headers.get("Location", ""))[:200]
            named = f" and named {where!r}" if where else ""
            raise OSError(
                f"the server answered {status}{named}: a message is not sent elsewhere; write the address that "
                "takes it as url"
            )
        raise OSError(f"the server answered {status}")

    def close(self) -> None:
        self._pool.clear()


class Submitting(AtOnce):
    """A replicated queue: each message is submitted with its identity, so that a repeat is the same work."""

    takes_many_at_once = True

    def __init__(self, cluster: Cluster, plan: str, part: RmqSink) -> None:
        self._cluster, self._plan, self._part = cluster, plan, part
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{plan[:40]}-{part.name[:10]}")
        self._client = cluster.client(f"{name}-{os.urandom(4).hex()}")

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Submit it, and wait until it is decided, or placed. Raises OSError for one that the queue refuses, and
        StoreUnavailable, which blames no message, while the queue says nothing of it."""
        del transaction
        ttl_s, most = self._part.ttl_s, self._client.foundation.settings.message_bytes_max
        body = as_json(message)
        if len(body) > most:
            raise OSError(f"a message of {len(body)} bytes: the queue takes {most}")
        identity = sha256(f"{self._plan}/{self._part.name}/{about.key}".encode()).digest()
        ticket = self._client.submit(body, key=identity, dedupe=identity, ttl_s=ttl_s)
        end = time.monotonic() + ttl_s + SUBMITTED_S
        while ticket.outcome is None and not (ticket.is_placed and self._part.until == "placed"):
            told, left = len(ticket.history()), end - time.monotonic()
            if not ticket.wait(max(0.0, left), more_than=told):
                raise StoreUnavailable(f"the queue says nothing of a message: {ticket.unknown()}")
        outcome = ticket.outcome
        if outcome is not None and outcome.kind == "refused":
            raise OSError(f"the queue refused it: {outcome.reason}")
        if outcome is not None and outcome.kind == "expired":
            raise StoreUnavailable(f"the queue decided nothing in {ttl_s:g} s")

    def close(self) -> None:
        self._cluster.close()


def _require_sendable(url: str, headers: Mapping[str, str]) -> None:
    """Raises ConfigurationError, in words that show no value: it may be a secret."""
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError("the address of an http sink begins with http:// or https://")
    odd = [name for name, value in headers.items() if not _is_sendable(value)]
    if odd or " " in url or not url.isprintable():  # the client's error would show a secret
        raise ConfigurationError(
            f"{odd[0] if odd else 'the address'} of an http sink has a blank, an end of line or another sign "
            "that it can't have"
        )
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigurationError(
            "the address of an http sink has a name and a password: write them as headers: {Authorization: ...}"
        )
    for name in headers:
        if name.lower() in ("idempotency-key", "content-length", "transfer-encoding"):
            raise ConfigurationError(
                f"{name} of an http sink is set for each message: leave it out"
            )


def _is_sendable(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return value.isprintable()


def _connections(url: str, answer_s: float) -> PoolManager:
    """Kept connections, through the proxy that the environment names for this address, if it does."""
    try:
        from urllib3 import PoolManager, ProxyManager, Timeout, make_headers
    except ImportError:
        raise ConfigurationError(
            "an http sink needs urllib3: pip install 'surepipe[http]'"
        ) from None
    to = urlsplit(url)
    options: dict[str, Any] = {
        "num_pools": 1,
        "maxsize": CONNECTIONS_KEPT,
        "retries": False,  # nor are redirects followed
        "timeout": Timeout(connect=min(CONNECT_S, answer_s), read=answer_s),
    }
    proxy = getproxies().get(to.scheme)
    if not proxy or proxy_bypass(to.netloc):
        return PoolManager(**options)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    login, _, address = via.netloc.rpartition("@")
    proxy_headers = make_headers(proxy_basic_auth=unquote(login)) if login else None
    return ProxyManager(f"{via.scheme}://{address}", proxy_headers=proxy_headers, **options)


def _require_an_end(answer: BaseHTTPResponse) -> None:
    """Raises OSError for an answer that may have been cut without a trace.

    1. A server, or what stands before it, dies within the head: "200 OK", and nothing more.
    2. To http.client the end of the connection is the end of the head, and of a body without a length.
    3. So a message that nobody has would count as taken.
    """
    headers = answer.headers
    ends_by_closing = answer.version < 11 or "close" in headers.get("Connection", "").lower()
    is_told = "Content-Length" in headers or "Transfer-Encoding" in headers
    if not (is_told or ends_by_closing or answer.status in (204, 205)):
        raise OSError(
            f"the server answered {answer.status} without a length, and did not say that it closes: the answer "
            "may not be whole"
        )


def _read_to_its_end(answer: BaseHTTPResponse, end: float) -> None:
    """The answer says whether a message was taken, and counts only when it is whole: what stands between may have
    begun it too early. Raises OSError for one that does not end."""
    size = 0
    while piece := answer.read1(ANSWER_PIECE):
        size += len(piece)
        if size > ANSWER_MAX or time.monotonic() > end:
            raise OSError(f"the server answered {answer.status}, and its answer does not end")


def _seconds(retry_after: str) -> float:
    """What Retry-After asks for, an hour at the most; 0 when it says nothing that can be understood."""
    if retry_after.strip().isdecimal():
        return min(float(retry_after), PATIENCE_MAX_S)
    try:
        until = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return min(max(0.0, (until - datetime.now(UTC)).total_seconds()), PATIENCE_MAX_S)


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
        return len(self._rows)

    def back_to(self, mark: int) -> None:
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
