"""What is no store, no path, no retention, or a store that is closed: one clear error, before anything starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from surepipe import CompositionError, ConfigurationError, Pipe, StreamReceiver, StreamSender
from surepipe.storage import (
    DeadLetterStream,
    Level,
    MemoryStore,
    RedisStore,
    Retention,
    SqliteStore,
    Store,
    change_retention,
)
from surepipe.storage.faulty import FaultyStore
from tests.actors.stored_kit import STREAM
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench

FIVE = cast("Store", 5)
"""What a careless caller may give."""


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SqliteStore(cast("str", 5)), "path of its file, such as SqliteStore('orders.db')"),
        (lambda: SqliteStore("x.db", level=cast("Level", 3)), "Level.PROCESS, Level.POWER"),
        (lambda: RedisStore(cast("object", 5)), "RedisStore.from_url('redis://"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda: RedisStore.from_url(cast("str", 5), pipeline="p"), "write it as text"),
        (lambda: RedisStore.from_url("redis://h", pipeline=cast("str", 5)), "name of a pipeline"),
        (lambda: Retention(max_bytes=cast("int", "5")), "max_bytes of a retention is '5'"),
        (lambda: Retention(max_age_us=0), "max_age_us of a retention is 0"),
        (
            lambda: change_retention(MemoryStore(), "orders", cast("Retention", 5)),
            "'orders': retention is 5: give Retention",
        ),
        (lambda: DeadLetterStream(FIVE, "dead"), "dead letters: the store is 5"),
        (lambda: DeadLetterStream(MemoryStore(), cast("str", 5)), "name of the stream is 5"),
        (
            lambda: DeadLetterStream(MemoryStore(), "dead", retention=cast("Retention", 5)),
            "retention is 5",
        ),
        (lambda: Pipe("p", journal=FIVE), "journal is 5: give an open store"),
        (lambda: Pipe("p", state=FIVE), "state is 5: give an open store"),
        (lambda: Pipe("p", dead_letter=FIVE), "dead_letter is 5"),
        (lambda: StreamSender("p", store=FIVE), "store is 5: give an open store"),
        (
            lambda: StreamReceiver(
                "p", STREAM, store=MemoryStore(), retention=cast("Retention", 5)
            ),
            "retention is 5: give Retention",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_write(
    make: Callable[[], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-1's rule for constructors: ConfigurationError, and no thread is left."""
    monkeypatch.chdir(tmp_path)
    before = threading.active_count()
    with pytest.raises(ConfigurationError) as error:
        make()
    assert says in str(error.value)
    assert not isinstance(error.value, CompositionError)
    assert threading.active_count() == before


def closed_sqlite(folder: Path) -> SqliteStore:
    """A store that somebody closed too early."""
    store = SqliteStore(folder / "closed.db", level=Level.PROCESS)
    store.close()
    assert store.closed
    return store


@pytest.mark.parametrize("role", ["store", "journal", "state", "dead_letter"])
def test_a_closed_store_is_noticed_when_the_pipe_is_made(tmp_path: Path, role: str) -> None:
    """S-1: in each role, by name, before any actor runs; also through a faulty store and as letters."""
    closed = closed_sqlite(tmp_path)
    before = threading.active_count()
    stores: list[object] = [closed, FaultyStore(closed)]
    if role == "dead_letter":
        stores.append(DeadLetterStream(closed, "dead"))
    for store in stores:
        arguments = {role: store}
        layers = STREAM if role == "store" else "reliable"
        with pytest.raises(ConfigurationError, match=rf"{role} is .*which is closed: open it"):
            Pipe("orders", layers, **arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert threading.active_count() == before


def test_a_closed_redis_store_is_noticed_too(redis_bench: RedisBench) -> None:
    """S-1: without a word to the server."""
    store = redis_bench.another()
    assert not store.closed
    store.close()
    with pytest.raises(ConfigurationError, match=r"journal is RewindableRedis .*which is closed"):
        Pipe("orders", journal=store)


def test_a_store_is_closed_at_the_end_of_its_block(
    any_bench: MemoryBench | SqliteBench | RedisBench,
) -> None:
    """What is raised in the block comes out of it. (A store in memory has nothing to close.)"""
    with any_bench.store as store:
        assert store is any_bench.store
        assert not getattr(store, "closed", False)
    assert getattr(store, "closed", True)
    error = KeyError("mine")
    assert not store.__exit__(KeyError, error, None)
