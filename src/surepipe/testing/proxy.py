"""A proxy that stands between a client and a server and does to their bytes what networks do.

    with FaultProxy(server.url, seed=7) as proxy:
        store = RedisStore.from_url(proxy.url, pipeline="orders")
        ...
        proxy.weather(to_client=Weather(delay_s=0.01, jitter_s=0.05, slice_max=3))
        proxy.lose_reply(to=b"EVALSHA")      # executed by the server, and nobody hears of it

It runs on a thread of its own, so it serves tests with and without asyncio. The seed decides what is drawn here
(jitter, lengths of slices); when things happen is up to the processes on both sides.

Connect first, then cut: a fault that meets a handshake tests nothing. Therefore a lost reply can be that to a
certain command, and a cut counts bytes from the moment it is asked for.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from surepipe.errors import ConfigurationError

# Cuts the bytes of a connection into what a proxy treats as one message.
#
# ``RespValues`` knows Redis's protocol and gives whole commands and replies; ``Chunks`` knows none, and takes
# what comes in one read as a message.


class Splitter(Protocol):
    """Takes bytes as they come, one instance for each connection and direction."""

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete."""
        ...


class Chunks:
    """Every read is a message."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data]


class RespValues:
    """Whole values of the protocol of Redis, versions 2 and 3; the rest is held until it is complete."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The values that these bytes complete. Raises ValueError for what is no such protocol."""
        self._held += data
        values: list[bytes] = []
        start = 0
        while (end := _end_of_value(self._held, start)) is not None:
            values.append(bytes(self._held[start:end]))
            start = end
        del self._held[:start]
        return values


def is_error(reply: bytes) -> bool:
    """Whether a reply says that the command failed."""
    return reply[:1] in (b"-", b"!")


_SIZED = b"$!="
_HOLDING = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2}


def _end_of_value(held: bytearray, start: int) -> int | None:
    """Where the value at ``start`` ends; None while it is not complete."""
    line = held.find(b"\r\n", start)
    if line < 0:
        return None
    kind, end = held[start], line + 2
    if kind in _SIZED:
        size = int(held[start + 1 : line])
        end += size + 2 if size >= 0 else 0
        return end if end <= len(held) else None
    for _ in range(int(held[start + 1 : line]) * _HOLDING[kind] if kind in _HOLDING else 0):
        inner = _end_of_value(held, end)
        if inner is None:
            return None
        end = inner
    return end


_READ = 1 << 16
_WITHIN_S = 30.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
HOST = "127.0.0.1"


class Toward(StrEnum):
    """A direction."""

    SERVER = "server"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to the bytes of one direction. Each message waits for the one before it.

    ``delay_s`` and a drawn part of ``jitter_s``: every message comes so much later. ``bytes_per_s``: not faster
    than that. ``slice_max``: in pieces of a drawn length up to this. ``black_hole``: nothing comes through, and
    nobody is told.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: int | None = None
    slice_max: int | None = None
    black_hole: bool = False

    def __post_init__(self) -> None:
        bounds = (self.bytes_per_s, self.slice_max)
        if self.delay_s < 0 or self.jitter_s < 0 or any(b is not None and b < 1 for b in bounds):
            raise ConfigurationError(f"{self}: times are not negative, bytes are at least 1")


CLEAR = Weather()


@dataclass(slots=True)
class ProxyCounts:
    """What a proxy did so far.

    ``lost_executed`` are those lost replies that told of no error: the server had done what it was asked.
    """

    connections: int = 0
    refused: int = 0
    resets: int = 0
    cuts: int = 0
    lost_replies: int = 0
    lost_executed: int = 0
    answered: int = 0
    swallowed_bytes: int = 0
    carried_bytes: int = 0


@dataclass(slots=True)
class _Asked:
    """A command on its way: the answer that we give in place of the server, if we do."""

    command: bytes
    answer: bytes | None


@dataclass(slots=True, eq=False)
class _Line:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    asked: deque[_Asked] = field(default_factory=deque[_Asked])
    pumps: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def toward(self, toward: Toward) -> asyncio.StreamWriter:
        return self.client if toward is Toward.CLIENT else self.server

    @property
    def is_over(self) -> bool:
        return self.client.is_closing() or self.server.is_closing()

    def close(self, *, reset: bool = False) -> None:
        for pump in self.pumps:
            pump.cancel()  # it may be waiting for something that takes long
        for writer in (self.client, self.server):
            if writer.is_closing():
                continue
            if reset:
                peer: socket.socket = writer.get_extra_info("socket")
                with suppress(OSError):  # it is closed already: nothing is left to reset
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
            else:
                writer.close()


@dataclass(slots=True)
class _Loss:
    """The reply to be lost: that to the command that holds ``word``, after ``after`` others like it."""

    word: bytes
    after: int


class FaultProxy:
    """Carries connections to a server and lets them suffer. Use it in a ``with`` block, or call ``start``.

    ``address`` is ``(host, port)``, or a URL such as ``redis://127.0.0.1:6379/0``; ``url`` is then the same with
    the proxy's address. For a Redis URL messages are whole commands and replies, otherwise what one read gives.
    """

    def __init__(self, address: str | tuple[str, int], *, seed: int = 0) -> None:
        self._url = address if isinstance(address, str) else ""
        self._target = _target_of(address)
        self._is_redis = self._url.startswith("redis:")
        self._rng = Random(seed)
        self._weather = dict.fromkeys(Toward, CLEAR)
        self._cut_after: dict[Toward, int | None] = dict.fromkeys(Toward)
        self._losses: list[_Loss] = []
        self._answers: list[bytes] = []
        self._is_refusing = False
        self._lock = threading.Lock()
        self._lines: set[_Line] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self.counts = ProxyCounts()
        self.port = 0

    # The address.

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def url(self) -> str:
        """The URL that was given, with our address in it. Raises ConfigurationError when none was given."""
        if not self._url:
            raise ConfigurationError("the proxy was given an address, not a URL: use `address`")
        parts = urlsplit(self._url)
        who, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{who}{at}{HOST}:{self.port}"))

    # The faults.

    def weather(
        self, *, to_server: Weather | None = None, to_client: Weather | None = None
    ) -> None:
        """From now on; a direction that is not named keeps what it has."""
        if to_server is not None:
            self._weather[Toward.SERVER] = to_server
        if to_client is not None:
            self._weather[Toward.CLIENT] = to_client

    def clear(self) -> None:
        """No faults from now on: none drawn, none armed, connections welcome."""
        self.weather(to_server=CLEAR, to_client=CLEAR)
        with self._lock:
            self._cut_after = dict.fromkeys(Toward)
            self._losses.clear()
            self._answers.clear()
        self._is_refusing = False

    def cut_after(self, count: int, toward: Toward) -> None:
        """Carry so many more bytes in this direction, then reset the connection in the middle of a message."""
        with self._lock:
            self._cut_after[toward] = count

    def lose_reply(self, *, to: bytes = b"", after: int = 0) -> None:
        """Lose the reply to a command that holds ``to``, passing over the first ``after`` of them.

        The command reaches the server, its reply is awaited, and then the connection is reset in its place.
        """
        with self._lock:
            self._losses.append(_Loss(to, after))

    def answer(self, reply: bytes, *, times: int = 1) -> None:
        """The next commands don't reach the server; each gets this reply.

        Raises ConfigurationError when the proxy was not given the URL of a Redis server.
        """
        if not self._is_redis:
            raise ConfigurationError("only for Redis is it known where a command ends; give a URL")
        with self._lock:
            self._answers += [reply.rstrip(b"\r\n") + b"\r\n"] * times

    def refuse(self, *, on: bool = True) -> None:
        """Reset new connections at once; those that stand are not concerned."""
        self._is_refusing = on

    def reset(self) -> None:
        """Reset every connection now; returns when that is done."""
        self._run(self._reset_all())

    # Its life.

    def start(self) -> FaultProxy:
        """Listen on a free port of 127.0.0.1. A second call does nothing."""
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name=f"proxy to {self._target}", daemon=True
            )
            self._thread.start()
            self._run(self._listen())
        return self

    def close(self) -> None:
        """End every connection and stop listening. A second call does nothing."""
        if self._thread is None or self._loop is None:
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WITHIN_S)
        self._loop.close()
        self._thread = self._loop = None

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        if self._loop is None:
            work.close()
            raise ConfigurationError("the proxy is not started")
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WITHIN_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._reset_all()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _reset_all(self) -> None:
        for line in list(self._lines):
            self._reset(line)

    def _reset(self, line: _Line) -> None:
        if line in self._lines:
            self._lines.discard(line)
            self.counts.resets += 1
            line.close(reset=True)

    # One connection.

    async def _serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        if self._is_refusing:
            self.counts.refused += 1
            client.transport.abort()
            return
        try:
            back, server = await asyncio.open_connection(*self._target)
        except OSError:
            client.transport.abort()
            return
        line = _Line(client, server)
        self._lines.add(line)
        self.counts.connections += 1
        line.pumps = [
            asyncio.create_task(self._pump(line, reader, Toward.SERVER)),
            asyncio.create_task(self._pump(line, back, Toward.CLIENT)),
        ]
        await asyncio.wait(line.pumps, return_when=asyncio.FIRST_COMPLETED)
        self._lines.discard(line)
        line.close()
        await asyncio.gather(*line.pumps, return_exceptions=True)

    async def _pump(self, line: _Line, source: asyncio.StreamReader, toward: Toward) -> None:
        splitter: Splitter = RespValues() if self._is_redis else Chunks()
        take = self._command if toward is Toward.SERVER else self._reply
        with suppress(OSError):  # one of the two has gone: so does the line
            while data := await source.read(_READ):
                for message in splitter.feed(data):
                    await take(line, message)

    async def _command(self, line: _Line, command: bytes) -> None:
        with self._lock:
            answer = self._answers.pop(0) if self._answers else None
        line.asked.append(_Asked(command, answer))
        if answer is None:
            await self._carry(line, Toward.SERVER, command)
        else:
            self.counts.answered += 1
            await self._give_answers(line)

    async def _reply(self, line: _Line, reply: bytes) -> None:
        asked = line.asked.popleft() if line.asked else _Asked(b"", None)
        if self._is_lost(asked.command):
            self.counts.lost_replies += 1
            self.counts.lost_executed += not is_error(reply)
            self._reset(line)
            return
        await self._carry(line, Toward.CLIENT, reply)
        await self._give_answers(line)

    async def _give_answers(self, line: _Line) -> None:
        """Our own answers go out when it is their turn among the server's."""
        while line.asked and (answer := line.asked[0].answer) is not None:
            line.asked.popleft()
            await self._carry(line, Toward.CLIENT, answer)

    def _is_lost(self, command: bytes) -> bool:
        with self._lock:
            loss = next((loss for loss in self._losses if loss.word in command), None)
            if loss is None:
                return False
            if loss.after:
                loss.after -= 1
                return False
            self._losses.remove(loss)
            return True

    async def _carry(self, line: _Line, toward: Toward, data: bytes) -> None:
        weather = self._weather[toward]
        if weather.black_hole:
            self.counts.swallowed_bytes += len(data)
            return
        if weather.delay_s or weather.jitter_s:
            await asyncio.sleep(weather.delay_s + weather.jitter_s * self._rng.random())
        writer = line.toward(toward)
        for piece in self._slices(data, weather.slice_max):
            allowed = self._allowed(len(piece), toward)
            if line.is_over:
                return
            writer.write(piece[:allowed])
            self.counts.carried_bytes += allowed
            await writer.drain()
            if allowed < len(piece):
                self.counts.cuts += 1
                self._reset(line)
                return
            if weather.bytes_per_s:
                await asyncio.sleep(len(piece) / weather.bytes_per_s)

    def _slices(self, data: bytes, longest: int | None) -> Iterator[bytes]:
        start = 0
        while start < len(data):
            size = self._rng.randint(1, longest) if longest else len(data)
            yield data[start : start + size]
            start += size

    def _allowed(self, count: int, toward: Toward) -> int:
        """How many of so many bytes may still go before the cut."""
        with self._lock:
            left = self._cut_after[toward]
            if left is None or count < left:
                self._cut_after[toward] = None if left is None else left - count
                return count
            self._cut_after[toward] = None
            return min(left, count - 1)


def _target_of(address: str | tuple[str, int]) -> tuple[str, int]:
    if isinstance(address, tuple):
        return address
    parts = urlsplit(address)
    if not parts.hostname or not parts.port:
        raise ConfigurationError(f"{address!r} names no host and port that a proxy could lead to")
    return parts.hostname, parts.port
