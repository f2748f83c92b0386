"""What stages stand on: a place where effects are, read by the controller, and what the machine must have."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

from surepipe.storage import SqliteStore
from surepipe.storage.redis.keys import Keys
from surepipe.testing.servers import NONE_FOUND, Binary, local_servers
from tests.kit.redis_bench import Redis
from tests.real.history import Message, message_of
from tests.real.parts import EFFECTS, PIPELINE


def no_redis() -> str:
    """Why no Redis server can be started; empty when one can."""
    return "" if local_servers() else NONE_FOUND


def a_server(number: int = 0) -> Binary:
    """One of the servers of this machine; different numbers give different versions where there are several."""
    found = local_servers()
    return found[number % len(found)]


def nothing() -> str:
    """A stage that needs nothing."""
    return ""


def redis_effects(url: str) -> list[Message]:
    """The effects on a server, in the order in which they were made."""
    client = Redis(url)
    key = Keys(PIPELINE, "pipeline").own(EFFECTS)
    found = cast("Sequence[bytes]", client("LRANGE", key, 0, -1))
    client.close()
    return [message_of(text.decode()) for text in found]


def make_sqlite(path: Path) -> None:
    """A file with a table for the effects."""
    with SqliteStore(path) as store, store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE effects (message TEXT)")


def sqlite_effects(path: Path) -> list[Message]:
    """The effects in a file, in the order in which they were made."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT message FROM effects ORDER BY rowid").fetchall()
    return [message_of(row[0]) for row in rows]


def file_effects(path: Path) -> list[Message]:
    """The effects in a text file, one to a line; the last line may be torn by a crash."""
    whole = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [message_of(line) for line in whole if line.endswith("\n")]
