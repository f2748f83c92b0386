"""One Spark per test process: starting the JVM takes seconds, so all tests of a process share a session.

Every test of this folder belongs to one group of xdist, so that one worker runs them all (``--dist loadgroup``).
Tests that need a Spark of their own run it in another process (``processes``, and the stages of ``tests.real``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.stores import StorePlace
from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers
from tests.spark.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
SMALL_JOBS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Tests are over before the JVM's optimising compiler has earned what it costs."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put every test of this folder into the group "spark"."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of this process: two threads, its log and its files in a folder of the run."""
    folder = tmp_path_factory.mktemp("spark")
    options = SparkOptions(master="local[2]", memory="1g", state_dir=folder, settings=SMALL_JOBS)
    session = open_session(options)
    yield session
    session.stop()
    gc.collect()  # what py4j's finalisers close must not be reported against a later test


@pytest.fixture(scope="session")
def spark_redis() -> Iterator[RedisServer]:
    """A Redis server for the tests of this folder; each takes a pipeline name of its own."""
    sources = local_servers()
    if not sources:
        pytest.fail(NONE_FOUND)
    with sources[0].server() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """A store of each kind that executors can reach, empty."""
    if request.param == "sqlite":
        return StorePlace(str(tmp_path / "store.db"), level="process")
    server: RedisServer = request.getfixturevalue("spark_redis")
    return StorePlace(server.url, pipeline=tmp_path.name)


@pytest.fixture
def sqlite_place(tmp_path: Path) -> StorePlace:
    """A SQLite store, empty."""
    return StorePlace(str(tmp_path / "store.db"), level="process")


@pytest.fixture
def streams(sqlite_place: StorePlace) -> Streams:
    """Streams in a SQLite store, with verbs."""
    return Streams(sqlite_place)


@pytest.fixture
def any_streams(place: StorePlace) -> Streams:
    """Streams in a store of each kind, with verbs."""
    return Streams(place)
