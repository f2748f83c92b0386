"""Somebody else removes what Redis holds for a pipe: whatever is lost by that, an end of the pipe names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from surepipe.actors import PipeNotice, StreamReceiver, StreamSender
from surepipe.core.store_requests import KEEP_ALL, Created, Exists, Unavailable
from surepipe.errors import PipeStopped
from surepipe.storage import RedisStore, SqliteStore
from surepipe.testing.servers import RedisServer, local_servers
from tests.kit.redis_bench import Redis

LAYER = {"stream": {"start": "earliest"}}
STREAM = "orders"
LOST = ("Trimmed", "StoreRollback", "Reset")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of the test's own."""
    with local_servers()[0].server() as running:
        yield running


def pages(store: RedisStore) -> str:
    """The key of the stream."""
    return store.keys.pages(STREAM)


def harm(store: RedisStore, command: str) -> tuple[object, ...]:
    """What a stranger types, and takes messages 4 to 6 with it, or more."""
    return {
        "DEL": ("DEL", pages(store)),
        "XTRIM": ("XTRIM", pages(store), "MAXLEN", 0),
        "XDEL": ("XDEL", pages(store), "4-0", "5-0", "6-0"),
    }[command]


def told(notices: list[PipeNotice]) -> list[tuple[str, object]]:
    """What an end told of messages that are gone."""
    return [(str(one.kind), one.ranges) for one in notices if one.kind in LOST]


def send(sender: StreamSender, *numbers: int) -> None:
    """Each a page of its own, and confirmed."""
    for number in numbers:
        sender.send(number, until="confirmed")


def read_three(store: RedisStore, state: SqliteStore | None = None) -> None:
    """A life of the receiver that takes what is there, which is three messages."""
    with StreamReceiver(STREAM, LAYER, store=store, state=state) as receiver:
        receiver.finish()
        assert list(receiver) == [1, 2, 3]


@pytest.mark.parametrize(("command", "first"), [("DEL", 1), ("XTRIM", 1), ("XDEL", 4)])
def test_confirmed_messages_that_a_stranger_removed_are_named_by_both_ends(
    server: RedisServer, command: str, first: int
) -> None:
    """S-4, over a real server: three of six are read. The sender tells the indexes that are gone (which of them
    were read it does not know), the receiver those that it had not read, and it hands over none behind them."""
    sending, receiving = list[PipeNotice](), list[PipeNotice]()
    with (
        closing(Redis(server.url)) as redis,
        RedisStore.from_url(server.url, pipeline="shop") as store,
    ):
        with StreamSender(STREAM, LAYER, store=store, notices=sending.append) as sender:
            send(sender, 1, 2, 3)
            read_three(store)
            send(sender, 4, 5, 6)
            redis(*harm(store, command))
            send(sender, 7)
        got: list[object] = []
        with StreamReceiver(STREAM, LAYER, store=store, notices=receiving.append) as receiver:
            receiver.finish()
            with pytest.raises(PipeStopped):
                got.extend(receiver)
    assert got == []
    assert told(sending) == [("StoreRollback", ((first, 6),))]
    assert told(receiving) == [("Trimmed", ((4, 6),))]


def test_a_sender_whose_redis_was_emptied_stops_and_names_what_had_been_confirmed(
    server: RedisServer,
) -> None:
    """FLUSHALL: nothing can be stored under the old numbers any more. What the next ``send`` waits for says so."""
    with (
        closing(Redis(server.url)) as redis,
        RedisStore.from_url(server.url, pipeline="shop") as store,
    ):
        sender = StreamSender(STREAM, LAYER, store=store)
        send(sender, 1, 2, 3)
        redis("FLUSHALL")
        with pytest.raises(
            PipeStopped, match=r"1\.\.3 had been confirmed: were they read\?"
        ) as stopped:
            send(sender, 4)
        assert "not confirmed" in str(stopped.value)
        with pytest.raises(PipeStopped):
            sender.close()


@pytest.mark.parametrize("verb", ["flush", "close"])
def test_an_idle_sender_whose_redis_was_emptied_says_so_when_somebody_relies_on_it(
    server: RedisServer, verb: str
) -> None:
    """FLUSHALL when all is confirmed and nothing more is sent: ``flush`` and ``close`` ask the store."""
    with (
        closing(Redis(server.url)) as redis,
        RedisStore.from_url(server.url, pipeline="shop") as store,
    ):
        sender = StreamSender(STREAM, LAYER, store=store)
        send(sender, 1, 2, 3)
        sender.flush()
        redis("FLUSHALL")
        with pytest.raises(PipeStopped, match=r"1\.\.3 had been confirmed: were they read\?"):
            sender.flush() if verb == "flush" else sender.close()
        if verb == "flush":
            with pytest.raises(PipeStopped):
                sender.close()


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "next-life"])
def test_new_lives_after_a_flush_know_by_what_they_keep_elsewhere_that_the_stream_is_another(
    server: RedisServer, tmp_path: Path, *, is_open: bool
) -> None:
    """FLUSHALL, and the stream is made anew. Journal and position are in files. The sender names what had been
    confirmed, also one that begins only then: its journal knows how far that went. The receiver, which has settled
    more messages than the new stream has, does not take that for its end: it stops, and names what it passed."""
    sending, receiving = list[PipeNotice](), list[PipeNotice]()
    with (
        closing(Redis(server.url)) as redis,
        RedisStore.from_url(server.url, pipeline="shop") as store,
        SqliteStore(tmp_path / "near.db") as near,
    ):

        def sender() -> StreamSender:
            return StreamSender(STREAM, LAYER, store=store, journal=near, notices=sending.append)

        first = sender()
        send(first, 1, 2, 3)
        read_three(store, near)
        send(first, 4, 5)
        if not is_open:
            first.close()
        redis("FLUSHALL")
        store.create(STREAM, 1, KEEP_ALL)
        with first if is_open else sender() as second:
            send(second, 6)
        got: list[object] = []
        with StreamReceiver(
            STREAM, LAYER, store=store, state=near, notices=receiving.append
        ) as receiver:
            receiver.finish()
            with pytest.raises(PipeStopped):
                got.extend(receiver)
    assert got == []
    assert told(sending) == [("StoreRollback", ((1, 5),))]
    assert told(receiving) == [("Reset", ((1, 3),))]


def test_a_server_that_is_set_to_evict_while_it_runs_is_named_and_its_store_waits(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """R-1: found at the next connection (here after a restart): nothing is stored, nothing is lost, the log says
    which setting it is, and all goes on once it is put right."""
    with RedisStore.from_url(server.url, pipeline="shop") as store:
        store.create(STREAM, 1, KEEP_ALL)
        server.kill()
        server.settings["maxmemory_policy"] = "allkeys-lru"
        server.start()
        # The first finds the connection gone, and the second, on a new one, that this is another server.
        _, _, *outcomes = [store.create(STREAM, 1, KEEP_ALL) for _ in range(5)]
        assert [each for each in outcomes if not isinstance(each, Unavailable)] == []
        assert "allkeys-lru" in str(outcomes[-1])
        assert len([one for one in caplog.messages if "allkeys-lru" in one]) == 1
        with closing(Redis(server.url)) as redis:
            redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert isinstance(store.create(STREAM, 1, KEEP_ALL), Created | Exists)
