"""The connection of a store as a call of a handler has it, for as long as the call lasts.

What a handler has begun, and does not await, may go on when its message is done. With a connection that it kept, a
task or a thread would write into the transaction of another message, or into none:

1. A handler fetches the connection, and gathers a check and a write. 2. The check raises: the message has failed,
and comes again. 3. The write, which asyncio leaves running, is committed with the next attempt, beside its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, Self, cast

from surepipe.core.store_requests import OVER, Loan
from surepipe.errors import TransactionEnded
from surepipe.storage.sqlite.file import is_in_transaction


class LentConnection(sqlite3.Connection):
    """Has whatever the connection inside has, until the loan is over.

    Nothing is done behind the end of the transaction either: each statement there would be a transaction of its
    own, which nobody takes back.

    1. A statement of the borrower's has SQLite roll back. 2. The borrower swallows the error and goes on writing.
    3. Its message has failed, and comes again, but what it wrote in 2 would stay.
    """

    loan: Loan

    def __init__(self, inside: sqlite3.Connection, loan: Loan) -> None:
        # C code that goes past the methods here, such as sqlite3.Cursor(lent), finds a closed connection; in one
        # that was never opened it crashes.
        super().__init__(":memory:", check_same_thread=False)
        super().close()
        object.__setattr__(self, "_inside", inside)
        object.__setattr__(self, "loan", loan)

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(inside_of(self), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(inside_of(self), name, value)

    def __enter__(self) -> Self:
        inside_of(self).__enter__()
        return self

    def __exit__(self, *about: Any) -> Any:
        return inside_of(self).__exit__(*about)

    def __call__(self, sql: str) -> Any:
        return inside_of(self)(sql)

    def cursor(self, factory: Callable[..., Any] | None = None) -> Any:
        """One that looks at the loan, too; of a class of the borrower's only that it is made in time."""
        if factory is not None:
            return inside_of(self).cursor(factory)
        return inside_of(self).cursor(lambda inside: _LentCursor(inside, self))

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """The same as on a cursor."""
        return cast("sqlite3.Cursor", self.cursor().execute(sql, parameters))

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        """The same as on a cursor."""
        return cast("sqlite3.Cursor", self.cursor().executemany(sql, parameters))

    def executescript(self, script: str, /) -> sqlite3.Cursor:
        """The same as on a cursor."""
        return cast("sqlite3.Cursor", self.cursor().executescript(script))


_OWN = {"loan", "_inside", "cursor", "execute", "executemany", "executescript"}


def inside_of(lent: LentConnection) -> sqlite3.Connection:
    """The store's own. Raises TransactionEnded when the loan is over."""
    lent.loan.require()
    return cast("sqlite3.Connection", object.__getattribute__(lent, "_inside"))


def _require_open(lent: LentConnection) -> None:
    if not is_in_transaction(inside_of(lent)):
        raise TransactionEnded(OVER)


class _LentCursor(sqlite3.Cursor):
    def __init__(self, inside: sqlite3.Connection, lent: LentConnection) -> None:
        super().__init__(inside)
        self._lent = lent

    @property
    def connection(self) -> sqlite3.Connection:
        return self._lent

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        with self._lent.loan.lock:
            _require_open(self._lent)
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Self:
        _require_open(self._lent)
        with closing(_each_in_time(parameters, self._lent)) as rows:
            return super().executemany(sql, rows)

    def executescript(self, script: str, /) -> Self:
        with self._lent.loan.lock:
            inside_of(self._lent)
            super().executescript(script)
        return self


def _each_in_time(parameters: Iterable[Any], lent: LentConnection) -> Generator[Any]:
    """Each is fetched without the lock, as who gives it may wait for others, and done with it."""
    for one in parameters:
        with lent.loan.lock:
            _require_open(lent)
            yield one
