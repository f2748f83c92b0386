"""A server that takes messages by POST. Needs the extra ``surepipe[http]``.

uvicorn speaks HTTP and TLS; one path needs no framework above it. Everything that a client can make it hold is
bounded: connections, heads and bodies in time and size, messages that wait, and bytes of all of them together. A
client that stalls costs a connection, and no thread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from surepipe.actors.codecs import JsonCodec, read_json
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.sources.checking import Check, Unfit, as_it_is

if TYPE_CHECKING:
    import uvicorn


WAIT_S = 0.05
_JSON = JsonCodec()
_Event: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Event]]
_Send: TypeAlias = Callable[[_Event], Awaitable[None]]
_Client: TypeAlias = tuple[str, int]
_quiet = logging.getLogger("surepipe.http")
"""Of uvicorn: strangers who send nonsense would fill the log."""
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What clients can make the server hold, and for how long."""

    body_bytes: int = 16 << 20
    message_bytes: int = 16 << 20
    """Of a message as pipes carry it: one that a pipe refuses would end the run."""
    held_bytes: int = 64 << 20
    """Of all messages that came and are not answered."""
    waiting: int = 1024
    connections: int = 512
    head_s: float = 10.0
    """For a request line and headers, and between two requests."""
    body_s: float = 30.0
    answer_s: float = 30.0
    stop_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of PEM files. ``ca``: who signs certificates of clients, which are then demanded."""

    cert: str
    key: str
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    text: str
    closes: bool = False
    later: bool = False


_ACCEPTED = _Answer(200, "accepted")
_BUSY = _Answer(503, "busy; nothing was accepted: send it again", later=True)
_STOPPING = _Answer(503, "stopping; nothing was accepted: send it again", closes=True, later=True)
_UNSURE = _Answer(503, "not accepted in time; it may come twice: send it again", later=True)


class _NoMessage(Exception):
    """What came is answered with this, and goes no further."""

    def __init__(self, answer: _Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer


@dataclass(eq=False, slots=True)
class _Request:
    """A message, and the client that waits."""

    message: object
    loop: asyncio.AbstractEventLoop
    answered: asyncio.Future[_Answer] = field(init=False)

    def __post_init__(self) -> None:
        self.answered = self.loop.create_future()

    def answer(self, answer: _Answer) -> None:
        """On the loop's thread. A second answer says nothing."""
        if not self.answered.done():
            self.answered.set_result(answer)


class Posts:
    """A source: it answers 200 when a message is accepted, from when on it is not lost.

    400 and 422: no JSON, or not what the model takes. 503: not accepted; send it again.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        *,
        check: Check = as_it_is,
        certificate: Certificate | None = None,
        limits: HttpLimits | None = None,
    ) -> None:
        """Raises ConfigurationError without uvicorn."""
        try:
            import uvicorn
        except ImportError:
            raise ConfigurationError(
                "an http source needs uvicorn: pip install 'surepipe[http]'"
            ) from None
        self._uvicorn = uvicorn
        self._address = (host, port)
        self._path = path
        self._check = check
        self._certificate = certificate
        self._limits = limits or HttpLimits()
        self._lock = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._unanswered: dict[str, _Request] = {}
        self._number = 0
        self._is_stopping = False
        self._listener: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: ThreadPoolExecutor | None = None
        # On the loop's thread only.
        self._open: dict[_Client, asyncio.Transport] = {}
        self._idle: dict[_Client, asyncio.TimerHandle] = {}
        """Connections without a request, the one that has been so for longest first."""
        self._bodies: set[asyncio.Timeout] = set()
        self._held = 0

    @property
    def port(self) -> int:
        """The port that it listens on, once it has begun."""
        assert self._listener is not None
        port: int = self._listener.getsockname()[1]
        return port

    # As a source.

    def begin(self, after: str) -> None:
        """Listen. Raises ConfigurationError when the address, or the certificate, can't be used."""
        del after
        if self._server is not None:
            return
        config = self._config()
        host, port = self._address
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=512)
        except (OSError, OverflowError) as error:
            raise ConfigurationError(f"can't listen on {host}:{port}: {error}") from None
        self._server = self._uvicorn.Server(config)
        self._worker = ThreadPoolExecutor(1, "posts-check")
        self._thread = threading.Thread(target=self._serve, name="posts", daemon=True)
        self._thread.start()

    def _config(self) -> uvicorn.Config:
        tls = self._certificate
        config = self._uvicorn.Config(
            self._respond,
            http=self._connection_class(),
            ws="none",
            loop="asyncio",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=round(self._limits.head_s),
            timeout_graceful_shutdown=round(self._limits.stop_s),
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=tls.ca if tls else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.ca else ssl.CERT_NONE,
        )
        try:
            config.load()
        except OSError as error:
            raise ConfigurationError(
                f"the certificate of an http source can't be used: {error}"
            ) from None
        return config

    def _connection_class(self) -> type[asyncio.Protocol]:
        """A connection of uvicorn that is counted, and that has a limit of time where uvicorn has none: for a head
        that does not come."""
        from uvicorn.protocols.http.h11_impl import H11Protocol

        posts = self

        class CountedConnection(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.logger = _quiet
                if self.client is not None:
                    posts._opened(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                if self.client is not None:
                    posts._closed(self.client)

        return CountedConnection

    def _serve(self) -> None:
        assert self._server is not None
        assert self._listener is not None
        self._server.run(sockets=[self._listener])

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        rows: list[SourceRow] = []
        with self._lock:
            self._lock.wait_for(lambda: bool(self._waiting), WAIT_S)
            while self._waiting and len(rows) < rows_max:
                request = self._waiting.popleft()
                self._number += 1
                self._unanswered[str(self._number)] = request
                rows.append(SourceRow(request.message, str(self._number)))
        return rows

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """Answer those who sent them."""
        self._answer([self._unanswered.pop(row.after) for row in rows], _ACCEPTED)

    def _answer(self, requests: Sequence[_Request], answer: _Answer) -> None:
        def say() -> None:
            for request in requests:
                request.answer(answer)

        if requests:
            requests[0].loop.call_soon_threadsafe(say)

    def refuse(self) -> None:
        """Take nothing more: who sends now, or waits and was not read, is to send it again. From any thread."""
        with self._lock:
            self._is_stopping = True
            waiting = list(self._waiting)
            self._waiting.clear()
        self._answer(waiting, _STOPPING)
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._hurry)

    def _hurry(self) -> None:
        """Wait for no client any more."""
        for transport in [self._open[client] for client in self._idle if client in self._open]:
            transport.abort()
        for body in self._bodies:
            body.reschedule(0.0)

    def close(self) -> None:
        """Answer who waits, and listen no more. A repeat does nothing."""
        server, thread = self._server, self._thread
        if server is None or thread is None:
            return
        self.refuse()
        self._answer(list(self._unanswered.values()), _UNSURE)
        self._unanswered.clear()
        server.should_exit = True
        thread.join(self._limits.stop_s + 5)
        if self._worker is not None:
            self._worker.shutdown(wait=False, cancel_futures=True)
        if self._listener is not None:
            self._listener.close()
        self._server = self._thread = self._listener = None

    # Connections, on the loop's thread.

    def _opened(self, client: _Client, transport: asyncio.Transport) -> None:
        self._loop = asyncio.get_running_loop()
        if len(self._open) >= self._limits.connections:
            oldest = next(iter(self._idle), None)
            if oldest is None:  # all of them are at work
                transport.abort()
                return
            self._open[oldest].abort()
            self._closed(oldest)
        self._open[client] = transport
        self._rest(client)

    def _closed(self, client: _Client) -> None:
        self._open.pop(client, None)
        self._work(client)

    def _rest(self, client: _Client) -> None:
        """No request is under way; another has to come soon."""
        transport = self._open.get(client)
        if transport is not None and not transport.is_closing():
            late = asyncio.get_running_loop().call_later(self._limits.head_s, transport.abort)
            self._idle[client] = late

    def _work(self, client: _Client) -> None:
        timer = self._idle.pop(client, None)
        if timer is not None:
            timer.cancel()

    # Requests, on the loop's thread.

    async def _respond(self, scope: _Event, receive: _Receive, send: _Send) -> None:
        client: _Client = scope["client"]
        self._work(client)
        size = [0]
        try:
            answer = await self._outcome(scope, receive, size)
        except _NoMessage as found:
            answer = found.answer
        finally:
            self._held -= size[0]
        if answer is not None:
            await _say(send, answer)
        self._rest(client)

    async def _outcome(self, scope: _Event, receive: _Receive, size: list[int]) -> _Answer | None:
        """What a request gets; None when nobody waits for it any more."""
        self._require_post(scope)
        body = await self._body(receive, size)
        if body is None:
            return None
        loop = asyncio.get_running_loop()
        assert self._worker is not None
        # Not here: a model is the user's code, and sixteen megabytes of JSON take a while.
        message = await loop.run_in_executor(self._worker, self._message, body)
        request = _Request(message, loop)
        with self._lock:
            if self._is_stopping:
                return _STOPPING
            if len(self._waiting) >= self._limits.waiting:
                return _BUSY
            self._waiting.append(request)
            self._lock.notify()
        try:
            return await asyncio.wait_for(request.answered, self._limits.answer_s)
        except TimeoutError:
            return self._withdrawn(request)

    def _withdrawn(self, request: _Request) -> _Answer:
        with self._lock:
            if request in self._waiting:
                self._waiting.remove(request)
                return _BUSY
        return _UNSURE

    def _require_post(self, scope: _Event) -> None:
        if self._is_stopping:
            raise _NoMessage(_STOPPING)
        if scope["path"] != self._path:
            raise _NoMessage(_Answer(404, f"POST to {self._path}", closes=True))
        if scope["method"] != "POST":
            raise _NoMessage(_Answer(405, f"POST to {self._path}", closes=True))
        headers = dict(scope["headers"])
        length = headers.get(b"content-length")
        if length is None:
            return
        if b"transfer-encoding" in headers:
            # A proxy in front may have read the other one: what it took for one message could be two.
            why = "a body has a Content-Length or comes in chunks, not both"
            raise _NoMessage(_Answer(400, why, closes=True))
        if int(length) > self._limits.body_bytes:  # h11 has read it
            raise self._too_long()

    def _too_long(self) -> _NoMessage:
        most = self._limits.body_bytes
        return _NoMessage(_Answer(413, f"a message has {most} bytes at the most", closes=True))

    async def _body(self, receive: _Receive, size: list[int]) -> bytes | None:
        """The whole body, in one piece or in chunks; None when the client went away."""
        pieces: list[bytes] = []
        is_whole = False
        try:
            async with asyncio.timeout(self._limits.body_s) as limit:
                self._bodies.add(limit)
                try:
                    while not is_whole:
                        event = await receive()
                        if event["type"] != "http.request":
                            return None
                        pieces.append(event.get("body", b""))
                        self._hold(len(pieces[-1]), size)
                        is_whole = not event.get("more_body", False)
                finally:
                    self._bodies.discard(limit)
        except TimeoutError:
            late = _Answer(408, "the body did not come in time; nothing was accepted", closes=True)
            raise _NoMessage(_STOPPING if self._is_stopping else late) from None
        return b"".join(pieces)

    def _hold(self, count: int, size: list[int]) -> None:
        size[0] += count
        self._held += count
        if size[0] > self._limits.body_bytes:
            raise self._too_long()
        if self._held > self._limits.held_bytes:
            raise _NoMessage(_Answer(503, _BUSY.text, closes=True, later=True))

    def _message(self, body: bytes) -> object:
        """On the worker's thread. Raises _NoMessage."""
        try:
            value = read_json(body, constants=False)
            text = _JSON.encode(value)  # 1e999, or half a surrogate pair, would end the run
        except (ValueError, RecursionError, MisuseError):
            raise _NoMessage(_Answer(400, "no JSON")) from None
        most = self._limits.message_bytes
        if len(text) >= most:  # a byte more says that it is JSON
            raise _NoMessage(_Answer(413, f"a message has fewer than {most} bytes"))
        try:
            return self._check(value)
        except Unfit as error:
            raise _NoMessage(_Answer(422, str(error))) from None


async def _say(send: _Send, answer: _Answer) -> None:
    body = f"{answer.text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    if answer.status == 405:
        headers.append((b"allow", b"POST"))
    if answer.later:
        headers.append((b"retry-after", b"1"))
    if answer.closes:  # else what is left of a body would be read, whatever its length
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
