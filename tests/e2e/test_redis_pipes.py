"""Whole pipes over a real Redis: streams, journals, states, effects and letters."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import cast

import pytest

from surepipe import CompositionError, Pipe, StreamReceiver, StreamSender
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Batch, Transaction
from surepipe.storage import DeadLetterStream, Level, RedisStore, RedisTransaction
from surepipe.testing.servers import RedisServer
from tests.actors.stored_kit import STREAM, DiesAfter, Until, crash_sender
from tests.kit.redis_bench import Redis


class Bench:
    """A store with keys of its own, and a list of effects among them."""

    def __init__(self, url: str) -> None:
        self.store = RedisStore.from_url(
            url, pipeline=f"e2e-{secrets.token_hex(6)}", level=Level.POWER
        )
        self.key = self.store.keys.own("effects")
        self._client = Redis(url)

    def put(self, message: object, transaction: Transaction) -> None:
        """A handler with one effect."""
        self.put_many([message], transaction)

    def put_many(self, messages: list[object], transaction: Transaction) -> None:
        """A handler with the effects of many messages in one command."""
        assert isinstance(transaction, RedisTransaction)
        values = [str(message) for message in messages]
        transaction.also("RPUSH", self.key, *values, keys=[self.key])

    def effects(self) -> list[int]:
        """All effects, in order."""
        return [
            int(value) for value in cast("list[bytes]", self._client("LRANGE", self.key, 0, -1))
        ]

    def close(self) -> None:
        """Remove the keys and close everything."""
        for key in cast("list[bytes]", self._client("KEYS", f"sp:{{{self.store.keys.pipeline}}}*")):
            self._client("DEL", key)
        self._client.close()
        self.store.close()


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """Opened on the shared server."""
    opened = Bench(redis_url)
    yield opened
    opened.close()


def test_a_stream_pipe_delivers_everything_in_order(bench: Bench) -> None:
    """Both ends in this process, 5000 messages."""
    got: list[object] = []
    with Pipe("orders", STREAM, store=bench.store) as pipe:
        pipe.receive(got.append)
        pipe.send_many(range(5000))
    assert got == list(range(5000))


def test_the_ends_need_not_be_alive_together(bench: Bench) -> None:
    """First the sender, then the receiver, which waits in Redis when it has read all."""
    with StreamSender("orders", store=bench.store) as sender:
        sender.send_many(range(100))
    got = Until(101)
    with StreamReceiver("orders", STREAM, store=bench.store) as receiver:
        receiver.receive(got)
        assert receiver.catch_up(10)
        with StreamSender("orders", store=bench.store) as sender:
            sender.send(100)
        assert got.wait() == list(range(101))


def test_effects_are_made_once_for_each_message_when_the_receiver_dies(bench: Bench) -> None:
    """One message, one script: effect and position. The actor is killed twice on the way."""
    with Pipe("orders", STREAM, store=bench.store, boundary="committed") as pipe:
        inner = DiesAfter(30, pipe.receiver.crash_consumer, bench.put)
        pipe.receive(DiesAfter(10, pipe.receiver.crash, inner))
        pipe.send_many(range(60))
    assert bench.effects() == list(range(60))


def test_a_batch_of_effects_is_one_command(bench: Bench) -> None:
    """receive_many: 2000 messages in few transactions, each once."""
    with Pipe("orders", STREAM, store=bench.store, boundary="committed") as pipe:
        pipe.receive_many(bench.put_many)
        pipe.send_many(range(2000))
    assert bench.effects() == list(range(2000))


def test_journal_and_state_of_a_pipe_that_never_sees_a_stream(bench: Bench) -> None:
    """reliable with its journal and its state in Redis, killed at both ends: nothing lost, nothing repeated."""
    store = bench.store
    with Pipe("orders", journal=store, state=store, boundary="committed") as pipe:
        pipe.receive(DiesAfter(20, pipe.receiver.crash, bench.put))
        pipe.send_many(range(40))
        crash_sender(pipe)
        pipe.send_many(range(40, 80))
    assert bench.effects() == list(range(80))


def test_an_effect_that_redis_refuses_is_the_handlers_failure(bench: Bench) -> None:
    """RPUSH on a string: tried again, then a letter in Redis, and the next message goes on."""

    def handle(message: object, transaction: Transaction) -> None:
        assert isinstance(transaction, RedisTransaction)
        wrong = bench.store.keys.own("text")
        if message == 1:
            transaction.also("INCRBY", wrong, "no number", keys=[wrong])
        else:
            bench.put(message, transaction)

    with Pipe(
        "orders",
        STREAM,
        store=bench.store,
        boundary="committed",
        retries=2,
        retry_min_s=0.01,
        dead_letter=bench.store,
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many([0, 1, 2])
    (stored,) = DeadLetterStream(bench.store, "orders/dead").all()
    assert stored.letter.attempts == 2
    assert bench.effects() == [0, 2]


class Forwards:
    """Appends each message to another stream, in the transaction that settles it."""

    def __init__(self, bench: Bench) -> None:
        self.transactions: dict[int, Transaction] = {}
        self.calls: list[int] = []
        bench.store.create("out", 1, KEEP_ALL)
        bench.store.open_producer("out", "relay", 1, 1)

    def __call__(self, message: object, transaction: Transaction) -> None:
        assert isinstance(message, int)
        self.calls.append(message)
        self.transactions[id(transaction)] = transaction
        transaction.append(AppendRun("out", "relay", 1, message + 1, [str(message).encode()]))


def forwarded(bench: Bench) -> list[int]:
    """What is in that stream."""
    batch = bench.store.read("out", 1, 1_000, 1 << 20)
    assert isinstance(batch, Batch)
    return [int(payload) for entry in batch.entries for payload in entry.payloads]


def test_messages_of_one_delivery_share_a_script_and_one_that_fails_leaves_nothing_in_it(
    bench: Bench,
) -> None:
    """K-3: number 70 of 200 fails once; what stands before it is committed, and no message is handled twice."""
    forwards, failing = Forwards(bench), [70]

    def handle(message: object, transaction: Transaction) -> None:
        forwards(message, transaction)
        if message in failing:
            failing.clear()
            raise ValueError("not yet")

    with Pipe("orders", STREAM, store=bench.store, boundary="committed", retry_min_s=0.01) as pipe:
        pipe.send_many(range(200))
        pipe.flush(10)
        pipe.receive(handle)
    assert forwarded(bench) == list(range(200))
    assert forwards.calls == [*range(71), *range(70, 200)]
    assert len(forwards.transactions) < 50


def test_a_refused_script_is_the_failure_of_the_one_message_that_it_was_refused_for(
    bench: Bench,
) -> None:
    """The last of 6 adds a command that Redis refuses: the others are forwarded, and it alone is a letter."""
    forwards = Forwards(bench)
    wrong = bench.store.keys.own("text")

    def handle(message: object, transaction: Transaction) -> None:
        if message != 5:
            forwards(message, transaction)
        else:
            assert isinstance(transaction, RedisTransaction)
            transaction.also("INCRBY", wrong, "no number", keys=[wrong])

    with Pipe(
        "orders",
        STREAM,
        store=bench.store,
        boundary="committed",
        retries=1,
        dead_letter=bench.store,
    ) as pipe:
        pipe.send_many([0, 1, 2, 3, 4, 5])
        pipe.flush(10)
        pipe.receive(handle)
    (stored,) = DeadLetterStream(bench.store, "orders/dead").all()
    assert stored.letter.seq == 6
    assert forwarded(bench) == [0, 1, 2, 3, 4]


def test_a_store_that_spreads_its_streams_refuses_committed(redis_url: str) -> None:
    """Effects of the caller and the position may be in different slots then: split-store."""
    store = RedisStore.from_url(
        redis_url, pipeline=f"e2e-{secrets.token_hex(6)}", spread="stream", level=Level.POWER
    )
    with pytest.raises(CompositionError, match="split-store"):
        Pipe("orders", STREAM, store=store, boundary="committed")
    store.close()


def test_the_level_is_that_of_the_servers_settings(own_redis: RedisServer) -> None:
    """appendfsync always is power; after CONFIG SET everysec a new pipe claims less."""
    store = RedisStore.from_url(own_redis.url, pipeline="levels")
    with Pipe("orders", STREAM, store=store, boundary="committed") as pipe:
        assert "store-crash" in str(pipe.guarantee.headline)
    store.close()
    client = Redis(own_redis.url)
    client("CONFIG", "SET", "appendfsync", "everysec")
    client.close()
    store = RedisStore.from_url(own_redis.url, pipeline="levels")
    with Pipe("orders", STREAM, store=store, boundary="committed") as pipe:
        assert "store-crash" not in str(pipe.guarantee.headline)
    store.close()


def test_a_restart_of_the_server_in_between_is_survived(own_redis: RedisServer) -> None:
    """SIGKILL and start again with its append-only file, while messages flow: each effect once."""
    bench = Bench(own_redis.url)
    with Pipe("orders", STREAM, store=bench.store, boundary="committed") as pipe:
        pipe.receive(bench.put)
        pipe.send_many(range(200))
        own_redis.restart()
        pipe.send_many(range(200, 400))
    again = Bench(own_redis.url)
    again.key = bench.key
    assert again.effects() == list(range(400))
    again.close()
    bench.store.close()
