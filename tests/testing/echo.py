"""A server that is small enough to see through: it answers every command of Redis's protocol with its number."""

from __future__ import annotations

import socket
import threading

from surepipe.testing.proxy import RespValues

PATIENCE_S = 20.0


class CountingServer:
    """Answers ``:1``, ``:2`` ... on each connection, and ``-ERR no`` to what holds ``BAD``; keeps what it got."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.commands: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """As of a Redis server."""
        return f"redis://user:pass@127.0.0.1:{self.port}/3"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        values, count = RespValues(), 0
        with client:
            try:
                while data := client.recv(1 << 16):
                    for command in values.feed(data):
                        count += 1
                        self.commands.append(command)
                        client.sendall(b"-ERR no\r\n" if b"BAD" in command else b":%d\r\n" % count)
            except OSError:
                return

    def __enter__(self) -> CountingServer:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Client:
    """A connection that says what came of it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE_S)

    def send(self, *words: str) -> None:
        """One command for each word."""
        self._socket.sendall(b"".join(command(word) for word in words))

    def read(self, count: int) -> bytes:
        """So many bytes, or fewer when the connection ends; ``RESET`` behind them when it was reset."""
        read = b""
        try:
            while len(read) < count and (data := self._socket.recv(count - len(read))):
                read += data
        except ConnectionResetError:
            return read + b"RESET"
        return read

    def ask(self, word: str) -> bytes:
        """Send and read one line."""
        self.send(word)
        line = b""
        while not line.endswith((b"\n", b"RESET")) and (byte := self.read(1)):
            line += byte
        return line

    def close(self) -> None:
        """End the connection."""
        self._socket.close()


def command(word: str) -> bytes:
    """A command of one word."""
    return b"*1\r\n$%d\r\n%s\r\n" % (len(word), word.encode())
