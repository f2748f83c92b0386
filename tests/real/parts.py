"""The parts that workers play: programs as a user would write them, over a store that may be killed.

A message is ``[life, number]``: no two are alike, and the judge knows them by that. The sender says before each
batch what it offers and after it that it was accepted, so a kill in between leaves messages of unknown fate,
and only those.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TypeVar, cast

from surepipe import PipeReceiver, PipeSender, StreamReceiver, StreamSender, TcpRoute
from surepipe.actors.notices import PipeNotice
from surepipe.core.effects import NoticeKind
from surepipe.core.store_requests import Stored, Transaction
from surepipe.errors import PipeStopped, StoreUnavailable
from surepipe.storage import Level, RedisStore, RedisTransaction, SqliteStore, SqliteTransaction
from surepipe.storage.redis.link import RedisLimits
from surepipe.testing.crash_points import CrashingRuntime, CrashPoints

Order = dict[str, object]
Say = Callable[..., None]
Part = Callable[[Order, Say, threading.Event], None]

NAME = "real"
PIPELINE = "real"
EFFECTS = "effects"
LAYERS = {
    "stream": {"start": "earliest", "rto_min_s": 0.01, "rto_initial_s": 0.1, "rto_max_s": 0.3}
}
TCP_LAYERS = {"reliable": {"rto_min_s": 0.02, "rto_initial_s": 0.1, "rto_max_s": 0.3}}
FLUSH_S = 60.0
STARTS_WITHIN_S = 30.0
IDLE_S = 300.0
ALARMS = {
    NoticeKind.STORE_ROLLBACK,
    NoticeKind.JOURNAL_ROLLBACK,
    NoticeKind.STATE_ROLLBACK,
    NoticeKind.RESET,
    NoticeKind.DIVERGED,
}
"""A store has less than it had acknowledged."""


class PointedSqlite(SqliteStore):
    """A SQLite store with crash points around the end of its transactions."""

    points = CrashPoints()

    @contextmanager
    def transaction(self) -> Generator[SqliteTransaction]:
        with self.points.committing(super().transaction()) as transaction:
            yield transaction


class PointedRedis(RedisStore):
    """A Redis store with crash points around the end of its transactions."""

    points = CrashPoints()

    @contextmanager
    def transaction(self) -> Generator[RedisTransaction]:
        with self.points.committing(super().transaction()) as transaction:
            yield transaction


T = TypeVar("T")
AnyStore = PointedSqlite | PointedRedis


def open_store(where: str, points: CrashPoints, answer_s: float = 5.0) -> AnyStore:
    """The store that all workers share: a server by its URL, or a file."""
    if where.startswith("redis://"):
        limits = RedisLimits(
            connect_s=answer_s, answer_s=answer_s, block_s=2.0, pause_min_s=0.005, pause_max_s=0.05
        )
        server = PointedRedis.from_url(where, pipeline=PIPELINE, limits=limits)
        assert isinstance(server, PointedRedis)
        server.points = points
        return server
    file = PointedSqlite(where, level=Level.PROCESS)
    file.points = points
    return file


def _told(order: Order) -> tuple[CrashPoints, AnyStore]:
    points = CrashPoints(str(order.get("crash_at", "")))
    return points, open_store(
        str(order["where"]), points, float(cast("float", order.get("answer_s", 5.0)))
    )


def _alarms(say: Say) -> Callable[[PipeNotice], None]:
    """Tells of notices that a store went back."""

    def tell(notice: PipeNotice) -> None:
        if notice.kind in ALARMS:
            say(say="alarm", kind=str(notice.kind))

    return tell


def persistently(make: Callable[[], T]) -> T:
    """As a program that its supervisor starts again while the store does not answer."""
    end = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            return make()
        except StoreUnavailable:
            if time.monotonic() > end:
                raise


def send(order: Order, say: Say, stop: threading.Event) -> None:
    """Send batches into the stream until told to stop; then everything is confirmed.

    ``life`` and ``batch`` come with the order, and ``most``: after so many messages it only waits.
    """
    points, store = _told(order)
    with (
        closing(store),
        persistently(
            lambda: StreamSender(
                NAME,
                LAYERS,
                store=store,
                journal=store,
                notices=_alarms(say),
                runtime=CrashingRuntime(points),
            )
        ) as sender,
    ):
        _send_batches(sender, order, say, stop)


def send_tcp(order: Order, say: Say, stop: threading.Event) -> None:
    """The same over TCP: to ``address``, with the journal in the store."""
    points, store = _told(order)
    with (
        closing(store),
        PipeSender(
            NAME,
            TCP_LAYERS,
            route=TcpRoute.connect(str(order["address"])),
            journal=store,
            runtime=CrashingRuntime(points),
        ) as sender,
    ):
        _send_batches(sender, order, say, stop)


def _send_batches(
    sender: StreamSender | PipeSender, order: Order, say: Say, stop: threading.Event
) -> None:
    life, batch, most = (cast("int", order[key]) for key in ("life", "batch", "most"))
    first = 1
    try:
        while not stop.is_set() and first <= most:
            say(say="offering", life=life, first=first, count=batch)
            sender.send_many([[life, n] for n in range(first, first + batch)])
            say(say="accepted", life=life, first=first, count=batch)
            first += batch
    except PipeStopped as error:
        say(say="replaced", why=str(error)[:500])
        stop.wait(IDLE_S)
        return
    if first > most:
        sender.flush(FLUSH_S)
        say(say="confirmed", life=life, count=first - 1)
        stop.wait(IDLE_S)


def receive(order: Order, say: Say, stop: threading.Event) -> None:
    """Make one effect of each message, until told to stop.

    It says ``ready`` when the first batch was handled: only then is it sure that this process owns the reader; and
    ``handled`` whenever there was more since.
    """
    points, store = _told(order)
    with closing(store), _receiver(order, store, points, say) as receiver:
        before = 0
        while not stop.wait(0.02):  # an order may come, or the receiver be replaced
            handled = receiver.receiver.counters().get("settled", 0)
            if handled > before:
                say(say="handled" if before else "ready")
                before = handled
            if receiver.receiver.works.ended:
                say(say="replaced")
                stop.wait(IDLE_S)


def receive_tcp(order: Order, say: Say, stop: threading.Event) -> None:
    """The same over TCP: at ``address``, with state and effects in the store."""
    points, store = _told(order)
    route = TcpRoute.listen(str(order["address"]))
    with (
        closing(store),
        PipeReceiver(
            NAME,
            TCP_LAYERS,
            route=route,
            state=store,
            boundary="committed",
            runtime=CrashingRuntime(points),
        ) as receiver,
    ):
        receiver.receive(points.handler(_put_row))
        say(say="ready")
        stop.wait(IDLE_S)


def catch_up(order: Order, say: Say, stop: threading.Event) -> None:
    """What the journal holds goes into the stream, and everything in the stream is handled."""
    del stop
    _, store = _told(order)
    with closing(store):
        with StreamSender(NAME, LAYERS, store=store, journal=store) as sender:
            sender.flush(FLUSH_S)
        with _receiver(order, store, CrashPoints(), say) as receiver:
            assert receiver.catch_up(FLUSH_S), "the receiver does not come to the end"
    say(say="done")


@contextmanager
def _receiver(
    order: Order, store: AnyStore, points: CrashPoints, say: Say
) -> Generator[StreamReceiver]:
    """At boundary ``committed``; at ``processed`` when the order names a file for the effects."""
    file = order.get("file")
    with persistently(
        lambda: StreamReceiver(
            NAME,
            LAYERS,
            store=store,
            boundary="processed" if file else "committed",
            notices=_alarms(say),
            runtime=CrashingRuntime(points),
        )
    ) as receiver:
        if file:
            receiver.receive(points.handler(_writer(Path(str(file)))))
        else:
            take_effects(receiver, store, points)
        yield receiver


def _writer(file: Path) -> Callable[[object], None]:
    def handle(message: object) -> None:
        with file.open("a") as effects:
            effects.write(f"{message}\n")

    return handle


def take_effects(receiver: StreamReceiver, store: AnyStore, points: CrashPoints) -> None:
    """Let the receiver put what arrives among the effects of the store."""
    if isinstance(store, PointedSqlite):
        receiver.receive(points.handler(_put_row))
    else:
        receiver.receive_many(points.handler(_pusher(store.keys.own(EFFECTS))))


def _put_row(message: object, transaction: Transaction) -> None:
    assert isinstance(transaction, SqliteTransaction)
    transaction.connection.execute("INSERT INTO effects VALUES (?)", (str(message),))


def _pusher(key: str) -> Callable[[list[object], Transaction], None]:
    def push(messages: list[object], transaction: Transaction) -> None:
        assert isinstance(transaction, RedisTransaction)
        transaction.also("RPUSH", key, *map(str, messages), keys=[key])

    return push


def append(order: Order, say: Say, stop: threading.Event) -> None:
    """Append runs of drawn lengths to a stream in a file, and tell of each that was stored."""
    rng = Random(str(order["seed"]))
    with SqliteStore(str(order["where"]), level=Level[str(order["level"])]) as store:
        first = 1
        while not stop.is_set():
            count = rng.randint(1, 20)
            payloads = [f"m{first + n}".encode() for n in range(count)]
            outcome = store.append("s", "p", 1, first, payloads)
            assert isinstance(outcome, Stored), outcome
            say(say="stored", last=outcome.last)
            first += count


PARTS: dict[str, Part] = {
    "send": send,
    "send_tcp": send_tcp,
    "receive": receive,
    "receive_tcp": receive_tcp,
    "catch_up": catch_up,
    "append": append,
}
