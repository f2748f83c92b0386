"""A proxy between a client and a server that loses what it is told to lose."""

from __future__ import annotations

import socket
import threading

_ENDS_WITHIN_S = 30.0


class LossyProxy:
    """Forwards bytes both ways.

    ``lose_reply_to(word)`` lets the next command that holds the word through, waits for the server's answer, and
    then cuts the connection instead of handing the answer on: the effect is there, the reply is lost.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.lost = 0
        self._word: bytes | None = None
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}"

    def lose_reply_to(self, word: bytes) -> None:
        """Once, for the next command that holds this word."""
        with self._lock:
            self._word = word

    def __enter__(self) -> LossyProxy:
        return self

    def __exit__(self, *error: object) -> None:
        self._cut(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(_ENDS_WITHIN_S)

    def _spawn(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets |= {client, server}
            losing = threading.Event()
            self._spawn(self._forward, client, server, losing)
            self._spawn(self._back, client, server, losing)

    def _forward(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        while data := _receive(client):
            with self._lock:
                if self._word is not None and self._word in data:
                    self._word = None
                    losing.set()
            _send(server, data)
        self._cut(client, server)

    def _back(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        while data := _receive(server):
            if losing.is_set():
                self.lost += 1
                break
            _send(client, data)
        self._cut(client, server)

    @staticmethod
    def _cut(*sockets: socket.socket) -> None:
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the other side was faster
            finally:
                one.close()


def _receive(source: socket.socket) -> bytes:
    """What comes next; empty when the connection is over."""
    try:
        return source.recv(1 << 16)
    except OSError:
        return b""


def _send(target: socket.socket, data: bytes) -> None:
    try:
        target.sendall(data)
    except OSError:
        return  # the reader of this direction sees the end
