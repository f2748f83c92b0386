"""One TCP connection between two links: greeting, records, heartbeats, and a bounded queue of what is to go out.

Everything here but ``post`` runs on the network thread. A connection that breaks any rule is dropped at once: the
pipes above send again what it had not delivered.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import Protocol, cast

from surepipe.actors.links.greeting import Greeting, Said, Seal, Stranger
from surepipe.actors.links.network import NETWORK
from surepipe.actors.links.security import Wire
from surepipe.errors import ConfigurationError

# Records on a connection: a length of four bytes, then one sealed record, whose first byte says what it is.


LENGTH = 4


class What(IntEnum):
    """The first byte of a record."""

    FRAME = 1
    PING = 2
    PONG = 3
    BYE = 4


class TooLong(Stranger):
    """A record longer than agreed: nobody who speaks this protocol sends one."""


def sealed_record(seal: Seal, what: What, body: bytes = b"") -> bytes:
    """The bytes of one record."""
    record = bytes((what,)) + body
    length = (len(record) + seal.overhead).to_bytes(LENGTH, "big")
    return length + seal.close(length, record)


class Incoming:
    """Cuts what arrives into the messages of a greeting and then into records; holds one of them at the most.

    ``replies`` is what the greeting wants said; whoever sends it empties the list. ``seal`` is there when the
    greeting is over.
    """

    def __init__(self, greeting: Greeting, record_max: int) -> None:
        self._greeting = greeting
        self._record_max = record_max
        self._waiting = bytearray()
        self.seal: Seal | None = None
        self.replies: list[bytes] = []
        self._heed(greeting.begin())

    def _heed(self, said: Said) -> None:
        self.seal = said.seal
        if said.reply:
            self.replies.append(said.reply)

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The records that are whole now. Raises Stranger, after which nothing more must be taken."""
        self._waiting += data
        at = 0
        try:
            while (end := self._end_of_next(at)) is not None:
                piece = bytes(self._waiting[at:end])
                at = end
                if self.seal is None:
                    self._heed(self._greeting.take(piece))
                else:
                    record = self.seal.open(piece[:LENGTH], piece[LENGTH:])
                    if not record:
                        raise Stranger("an empty record")
                    yield record[0], record[1:]
        finally:
            del self._waiting[:at]

    def _end_of_next(self, at: int) -> int | None:
        """Where the message that begins at ``at`` ends; None while it is not whole."""
        size = self._greeting.wants if self.seal is None else self._length(at)
        return at + size if size is not None and len(self._waiting) - at >= size else None

    def _length(self, at: int) -> int | None:
        if len(self._waiting) - at < LENGTH:
            return None
        assert self.seal is not None
        length = int.from_bytes(self._waiting[at : at + LENGTH], "big")
        if not 0 < length <= self._record_max + self.seal.overhead:
            raise TooLong(f"a record of {length} bytes")
        return LENGTH + length


WRITE_MAX = 256 * 1024
"""Bytes that are sealed and handed to the socket in one go."""
FRAME_MOST = (1 << 31) - 1
"""A larger frame has no place in a record."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Bounds and times of a connection. Times are seconds.

    ``queue_max_bytes``: frames that wait for the socket; one that does not fit is lost, as on any route, and
    counted. ``frame_max_bytes``: the largest frame. ``heartbeat_s``: the longest silence that an idle connection
    keeps; after three times that without a sound the other side is taken for dead. ``greeting_s``: who has not
    shown the key by then is dropped. ``strangers_max``: connections that have not shown it yet; one more, and the
    oldest of the address that has most of them is dropped. Raises ConfigurationError for what can't work.
    """

    queue_max_bytes: int = 16 << 20
    frame_max_bytes: int = 4 << 20
    heartbeat_s: float = 5.0
    greeting_s: float = 5.0
    strangers_max: int = 64

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "greeting_s"):
            seconds: float = getattr(self, name)
            if not 0 < seconds < inf:
                raise ConfigurationError(f"{name} is {seconds!r}: it must be above 0, and finite")
        for name in ("queue_max_bytes", "frame_max_bytes", "strangers_max"):
            count: int = getattr(self, name)
            if count < 1:
                raise ConfigurationError(f"{name} is {count!r}: it must be at least 1")
        if self.frame_max_bytes > FRAME_MOST:
            raise ConfigurationError(
                f"frame_max_bytes is {self.frame_max_bytes}: it can be {FRAME_MOST} at the most"
            )
        if self.queue_max_bytes < self.frame_max_bytes:
            raise ConfigurationError(
                f"queue_max_bytes is {self.queue_max_bytes}, below frame_max_bytes={self.frame_max_bytes}: "
                "the largest frame could never be sent"
            )


class ConnectionOwner(Protocol):
    """The link that a connection belongs to."""

    def met(self, connection: Connection) -> bool:
        """Somebody is there; False when this side is closing."""
        ...

    def trusted(self, connection: Connection) -> None:
        """The other side has shown that it knows the key."""
        ...

    def arrived(self, connection: Connection, frame: bytes) -> None: ...

    def ended(self, connection: Connection) -> None: ...

    def count(self, name: str, by: int = 1) -> None:
        """Something happened that people may want to know."""
        ...

    def broke_rules(self, connection: Connection, why: str, detail: str = "") -> None:
        """The connection is dropped: whoever is there does not know the key, or does what nobody may."""
        ...


class Connection(asyncio.Protocol):
    """Carries frames while it lives."""

    def __init__(
        self, owner: ConnectionOwner, wire: Wire, greeting: Greeting, limits: LinkLimits
    ) -> None:
        self.is_trusted = False
        self.peer = ""
        self.host = ""
        self._owner = owner
        self._wire = wire
        self._limits = limits
        self._incoming = Incoming(greeting, limits.frame_max_bytes + 1)
        self._lock = threading.Lock()
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_pumping = False
        self._may_write = True
        self._is_over = False
        self._is_dropped = False
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._spoke = 0.0
        self._descriptor = -1

    @property
    def is_stranger(self) -> bool:
        """Whether it stands there and has not shown the key. One that was dropped ends a turn later."""
        return not self.is_trusted and not self._is_dropped

    # From any thread.

    def post(self, frame: bytes) -> bool:
        """Queue a frame; False when it does not fit or the connection is over."""
        with self._lock:
            if self._is_over or self._queued_bytes + len(frame) > self._limits.queue_max_bytes:
                return False
            self._queue.append(frame)
            self._queued_bytes += len(frame)
            if self._is_pumping:
                return True
            self._is_pumping = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._pump)
            except RuntimeError:  # the network has ended: so has this connection
                return False
        return True

    def _next_queued(self) -> bytes | None:
        with self._lock:
            if not self._queue:
                self._is_pumping = False  # whoever queues from now on asks for another turn
                return None
            frame = self._queue.popleft()
            self._queued_bytes -= len(frame)
            return frame

    # From asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or begin at once where there is no greeting."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_MAX)
        where = cast("tuple[object, ...] | None", transport.get_extra_info("peername"))
        self.peer, self.host = str(where), str(where[0]) if where else ""
        self._descriptor = cast("socket.socket", transport.get_extra_info("socket")).fileno()
        NETWORK.descriptors.add(self._descriptor)
        if not self._owner.met(self):
            self.give_way()
            return
        self._heard = self._spoke = self._loop.time()
        self._timer = self._loop.call_later(self._limits.greeting_s, self._too_slow)
        self._wire.begin()
        self._say_replies()
        self._greet_if_ready()

    def data_received(self, data: bytes) -> None:
        """Take what arrived, as far as it is whole."""
        assert self._loop is not None
        self._heard = self._loop.time()
        try:
            for what, body in self._incoming.take(self._wire.take(data)):
                self._greet_if_ready()
                self._take(what, body)
            self._say_replies()
            self._greet_if_ready()
        except TooLong:
            self._drop("oversized")
        except Stranger as stranger:
            self._drop("forged" if self.is_trusted else "strangers", str(stranger))

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whatever was queued is lost; the pipes know what to do."""
        del exc
        NETWORK.descriptors.discard(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._is_over = True
            lost = len(self._queue)
            self._queue.clear()
        if lost:
            self._owner.count("frames_lost", lost)
        if self.is_stranger:
            self._owner.broke_rules(
                self, "strangers"
            )  # gone without a word, or with the wrong ones
        self._owner.ended(self)

    # On the network thread.

    def say_bye(self) -> None:
        """Send what is queued, say that this is the end, and close."""
        if self._transport is not None and self.is_trusted:
            self._pump(everything=True)
            self._write(What.BYE)
            self._transport.write(self._wire.end())
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def give_way(self) -> None:
        """End for want of room, or because this side is closing."""
        self._drop("strangers_refused")

    def _say_replies(self) -> None:
        assert self._transport is not None
        if self._wire.is_ready and self._incoming.replies:
            self._transport.write(self._wire.give(b"".join(self._incoming.replies)))
            self._incoming.replies.clear()
        if owed := self._wire.owed():
            self._transport.write(owed)

    def _greet_if_ready(self) -> None:
        if self.is_trusted or self._incoming.seal is None or not self._wire.is_ready:
            return
        self._say_replies()
        self.is_trusted = True
        self._owner.trusted(self)
        self._pump()
        self._beat()

    def _too_slow(self) -> None:
        if not self.is_trusted:
            self._drop("strangers")

    def _drop(self, why: str, detail: str = "") -> None:
        self._is_dropped = True
        self._owner.broke_rules(self, why, detail)
        if self._transport is not None and (reason := self._wire.owed()):
            self._transport.write(reason)
        self.abort()

    def _take(self, what: int, body: bytes) -> None:
        match what:
            case What.FRAME:
                self._owner.arrived(self, body)
            case What.PING if self._may_write:
                self._write(
                    What.PONG
                )  # whoever takes nothing gets no answers either: they would gather here
            case What.BYE:
                self.abort()
            case _:  # a pong needs no answer, and what a later version says is not for this one
                return

    def _pump(self, *, everything: bool = False) -> None:
        """Seal and write what is queued, as long as the socket takes it: a batch in each turn, so that somebody
        who queues without end does not keep the others from theirs."""
        if not self.is_trusted or self._is_over or self._transport is None:
            return
        is_more = self._may_write or everything
        while is_more:
            batch = self._sealed_batch()
            if not batch:
                return
            self._spoken()
            self._transport.write(self._wire.give(batch))
            is_more = len(batch) >= WRITE_MAX
            if is_more and not everything:
                assert self._loop is not None
                self._loop.call_soon(self._pump)
                return

    def _sealed_batch(self) -> bytes:
        """Shorter than ``WRITE_MAX`` when the queue is empty by now."""
        seal = self._incoming.seal
        assert seal is not None
        pieces: list[bytes] = []
        size = 0
        while size < WRITE_MAX and (frame := self._next_queued()) is not None:
            pieces.append(sealed_record(seal, What.FRAME, frame))
            size += len(pieces[-1])
        return b"".join(pieces)

    def _write(self, what: What) -> None:
        assert self._transport is not None
        assert self._incoming.seal is not None
        self._spoken()
        self._transport.write(self._wire.give(sealed_record(self._incoming.seal, what)))

    def _spoken(self) -> None:
        assert self._loop is not None
        self._spoke = self._loop.time()

    def _beat(self) -> None:
        """Break an idle silence, and notice the other side's."""
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        now, every = self._loop.time(), self._limits.heartbeat_s
        if now - self._heard > 3 * every:
            self._drop("silences")
            return
        if now - self._spoke >= every and self._may_write:
            self._write(What.PING)
        self._timer = self._loop.call_later(every / 2, self._beat)
