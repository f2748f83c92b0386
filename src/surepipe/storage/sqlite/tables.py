"""Tables of keyed values and marks, as SQL on one connection. The caller has begun a transaction and ends it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from surepipe.core.store_requests import FoundValues, TableRows

LOAD_MAX_BYTES = 1 << 20
"""What is loaded at once ends behind the row that reaches this."""


def read(connection: sqlite3.Connection, table: str, keys: Sequence[bytes]) -> FoundValues:
    """The values of the keys."""
    query = "SELECT value FROM surepipe_keys WHERE name = ? AND key = ?"
    rows = (connection.execute(query, (table, key)).fetchone() for key in keys)
    return FoundValues([None if row is None else bytes(row[0]) for row in rows])


def load(connection: sqlite3.Connection, table: str, after: bytes, limit: int) -> TableRows:
    """So many rows behind a key, fewer where they are long."""
    rows = connection.execute(
        "SELECT key, value FROM surepipe_keys WHERE name = ? AND key > ? ORDER BY key LIMIT ?",
        (table, after, limit + 1),
    )
    pairs: list[tuple[bytes, bytes]] = []
    size = 0
    for key, value in rows:
        if len(pairs) == limit or size >= LOAD_MAX_BYTES:
            return TableRows(pairs, pairs[-1][0])
        pairs.append((key, value))
        size += len(value)
    return TableRows(pairs, None)


def put(connection: sqlite3.Connection, table: str, pairs: Mapping[bytes, bytes]) -> None:
    """Let the keys have the values."""
    connection.executemany(
        "INSERT INTO surepipe_keys VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET value = excluded.value",
        [(table, key, value) for key, value in pairs.items()],
    )


def drop(connection: sqlite3.Connection, table: str, keys: Sequence[bytes]) -> None:
    """Let the keys be gone."""
    connection.executemany(
        "DELETE FROM surepipe_keys WHERE name = ? AND key = ?", [(table, key) for key in keys]
    )


def raise_mark(connection: sqlite3.Connection, mark: str) -> None:
    """One up."""
    connection.execute(
        "INSERT INTO surepipe_marks VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1",
        (mark,),
    )


def mark_of(connection: sqlite3.Connection, mark: str) -> int:
    """Where a mark stands."""
    query = "SELECT number FROM surepipe_marks WHERE name = ?"
    row = connection.execute(query, (mark,)).fetchone()
    return 0 if row is None else int(row[0])
