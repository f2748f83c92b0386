"""Serves a few pages, for looking at: nothing can be changed through it.

It answers GET and HEAD only, and, where it listens on this machine only, no request that calls it by another
machine's name: a web site that points its own name here learns nothing. Connections, and so threads, are bounded.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import NamedTuple, Self, cast

from surepipe.actors.links.security import address_of
from surepipe.errors import ConfigurationError

logger = logging.getLogger("surepipe")
DEFAULT_PORT = 8470
LOCAL = "127.0.0.1"
CONNECTIONS_MAX = 32
"""Open connections, each with its thread. Beyond it the oldest goes: who looks needs some milliseconds."""
IDLE_S = 10.0
_ROOM_S = 1.0


class ListenAddress(NamedTuple):
    """Where to listen."""

    address: str
    port: int

    @classmethod
    def read(cls, text: str) -> ListenAddress:
        """Of a port, which is one of this machine only, or of ``host:port``. Raises ConfigurationError."""
        try:
            return cls(*address_of(text if ":" in text else f"{LOCAL}:{text}"))
        except ConfigurationError:
            raise ConfigurationError(
                f"nobody can listen at {text!r}: write a port, or host:port, such as 0.0.0.0:{DEFAULT_PORT}"
            ) from None

    @property
    def url(self) -> str:
        """As the beginning of addresses of pages, without a slash."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page is: its type, its text, and the sources of content that a browser may use for it."""

    content_type: str
    text: str
    policy: str = "default-src 'none'"


class PageServer:
    """Serves pages while it is open, each made when it is asked for. ``pages``: by path, as in ``/status.json``.
    ``what`` they are, for errors.

    Port 0 takes any that is free. Raises ConfigurationError when the port can't be had.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Answer]],
        *,
        port: int = DEFAULT_PORT,
        address: str = LOCAL,
        what: str = "the page",
    ) -> None:
        try:
            kind = _Server6 if ":" in address else _Server
            self._server = kind((address, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigurationError(
                f"{what} can't be served at {address}:{port}: {why.lower()}; give another place"
            ) from None
        self._server.pages = dict(pages)
        self._server.only_local = _is_local(address)
        self.port: int = self._server.server_port
        self.url = f"{ListenAddress(address, self.port).url}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="surepipe-page", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving. A repeat does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.end_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the 5 of the standard library a burst waits for seconds
    pages: Mapping[str, Callable[[], Answer]]
    only_local = True

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]
    ) -> None:
        self._open: dict[socket.socket, None] = {}
        self._room = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        """Serve a connection on a thread of its own; the oldest makes room for it."""
        connection = cast("socket.socket", request)
        with self._room:
            if len(self._open) >= CONNECTIONS_MAX:
                _end(next(iter(self._open)))
            if not self._room.wait_for(lambda: len(self._open) < CONNECTIONS_MAX, _ROOM_S):
                connection.close()  # all of them are at work
                return
            self._open[connection] = None
        super().process_request(connection, client_address)

    def shutdown_request(self, request: object) -> None:
        connection = cast("socket.socket", request)
        super().shutdown_request(connection)
        with self._room:
            self._open.pop(connection, None)
            self._room.notify()

    def end_all(self) -> None:
        """Close open connections, so that no thread waits for a silent client."""
        with self._room:
            for connection in self._open:
                _end(connection)
            self._room.wait_for(lambda: not self._open, _ROOM_S)

    def server_bind(self) -> None:
        """Without the lookup of this machine's name, which may take seconds and is of no use here."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is no news."""
        del request, client_address
        if not isinstance(sys.exception(), OSError):
            logger.exception("a request for a page was not answered")


def _end(connection: socket.socket) -> None:
    """Wake whoever waits for this connection."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = IDLE_S
    server_version = "surepipe"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_text=True)

    def do_HEAD(self) -> None:
        self._answer(with_text=False)

    def _answer(self, *, with_text: bool) -> None:
        server = cast("_Server", self.server)
        page = server.pages.get(self.path.partition("?")[0])
        if server.only_local and not _is_local(_host(self.headers.get("Host", ""))):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Asked by another machine's name")
        elif page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._give(page, with_text=with_text)

    def _give(self, page: Callable[[], Answer], *, with_text: bool) -> None:
        try:
            answer = page()
        except Exception:
            logger.exception("the page %s could not be made", self.path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        body = answer.text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", f"{answer.content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{answer.policy}; frame-ancestors 'none'")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if with_text:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Who looks is not logged."""
        del format, args


def _host(header: str) -> str:
    """The host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_local(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
