"""A process that writes to a SQLite store and ends by kill -9 somewhere inside, again and again.

It reads one request (a line of JSON) at a time from stdin, forks, and lets the child do it. The child says each
acknowledged write on stdout; when it has ended, the parent says ``end`` with the signal that ended it, or 0.
Forking is much cheaper than starting Python a hundred times.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    CommitPosition,
    Level,
    Owner,
    ProducerOpened,
    Stored,
)
from surepipe.errors import MisuseError
from surepipe.storage.sqlite.file import connect
from surepipe.storage.sqlite.store import SqliteStore

RUN = 7


@dataclass(frozen=True)
class Work:
    """What a child does, and where it dies.

    ``work``: append, transaction, greed or misuse. ``unit``: never, statement (before the n-th), instruction
    (before the n-th of SQLite's virtual machine) or moment (after n microseconds, also inside a system call).
    """

    path: str
    level: str
    work: str
    runs: int
    unit: str = "never"
    at: int = 0
    producer: str = "p"
    scale: int = 1


def payload_of(seq: int, scale: int) -> bytes:
    """What message ``seq`` holds; with a scale of 10 000 a run takes several pages."""
    return f"{seq}:".encode() + b"x" * (seq % RUN * scale)


class Bomb:
    """Ends the process at the n-th tick."""

    def __init__(self, at: int) -> None:
        self.left = at

    def tick(self) -> int:
        """One step nearer."""
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0


class Mined(sqlite3.Connection):
    """A connection that ticks before each statement."""

    bomb: Bomb | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Tick, then execute."""
        if self.bomb:
            self.bomb.tick()
        return super().execute(sql, parameters)

    def commit(self) -> None:
        """Tick, commit, tick."""
        if self.bomb:
            self.bomb.tick()
        super().commit()
        if self.bomb:
            self.bomb.tick()


def connector(work: Work, bomb: Bomb) -> Callable[[str, float], sqlite3.Connection]:
    """How the store of this child connects."""

    def connect_mined(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path,
            timeout=busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
            factory=Mined,
        )
        connection.bomb = bomb
        return connection

    def connect_watched(path: str, busy_timeout_s: float) -> sqlite3.Connection:
        connection = connect(path, busy_timeout_s)
        connection.set_progress_handler(bomb.tick, 1)
        return connection

    return {"statement": connect_mined, "instruction": connect_watched}.get(work.unit, connect)


def write_all(work: Work) -> None:
    """Runs of seven messages, from where the stream stands."""
    bomb = Bomb(work.at)
    with SqliteStore(
        work.path, level=Level[work.level.upper()], connect=connector(work, bomb)
    ) as store:
        store.create("out", 1, KEEP_ALL)
        while not isinstance(owner := store.claim("in", "r", time.time_ns()), Owner):
            continue  # another process was quicker with a later time
        if work.unit == "moment":  # SIGALRM, not caught, ends the process as kill -9 does
            signal.setitimer(signal.ITIMER_REAL, work.at / 1_000_000)
        opened = store.open_producer("out", work.producer, 1, 1)
        assert isinstance(opened, ProducerOpened)
        for first in range(opened.last + 1, opened.last + 1 + RUN * work.runs, RUN):
            run = AppendRun(
                "out",
                work.producer,
                1,
                first,
                [payload_of(seq, work.scale) for seq in range(first, first + RUN)],
            )
            write = in_transaction if work.work == "transaction" else plainly
            write(store, run, owner.number)
            say(f"ack {run.last}")


def plainly(store: SqliteStore, run: AppendRun, owner: int) -> None:
    """One append."""
    del owner
    outcome = store.append(run.stream, run.producer, run.epoch, run.first, run.payloads)
    assert isinstance(outcome, Stored), outcome


def in_transaction(store: SqliteStore, run: AppendRun, owner: int) -> None:
    """An append, a position, and rows of our own."""
    with store.transaction() as transaction:
        transaction.connection.executemany(
            "INSERT INTO effects VALUES (?)", [(seq,) for seq in range(run.first, run.last + 1)]
        )
        transaction.append(run)
        transaction.commit(CommitPosition("in", "r", owner, 1, run.last + 1))
    assert transaction.done, transaction.outcomes


def say(text: str) -> None:
    """One line, at once and whole."""
    os.write(1, f"{text}\n".encode())


def greed(work: Work) -> None:
    """Transaction after transaction without a pause, as a committing receiver with a backlog has them, until the
    file ``<path>.enough`` is there. Each lasts until somebody waits for its end, or 5 s."""
    enough = f"{work.path}.enough"
    with SqliteStore(work.path, level=Level[work.level.upper()]) as store:
        for n in itertools.count(1):
            with store.transaction() as transaction:
                transaction.connection.execute("INSERT INTO effects VALUES (?)", (n,))
                if n == 1:
                    say("begun")
                until = time.monotonic() + 5
                while not (transaction.is_full or os.path.exists(enough)):
                    if time.monotonic() > until:
                        break
            assert transaction.done
            if os.path.exists(enough):
                return


def misuse(work: Work) -> None:
    """A file that was open before a fork is refused after it, until it was closed before the next one."""
    with SqliteStore(work.path) as store:
        child = os.fork()
        if not child:
            for touch in (
                lambda: store.info("out"),
                lambda: store.transaction().__enter__(),
                lambda: SqliteStore(work.path),
            ):
                try:
                    touch()
                except MisuseError as error:
                    say(str(error))
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
    child = os.fork()
    if not child:
        with SqliteStore(work.path) as store:
            say(str(store.info("out")))
        os._exit(0)
    os.waitpid(child, 0)


def child_for(work: Work) -> int:
    """Fork; returns how the child ended."""
    child = os.fork()
    if not child:
        try:
            {"misuse": misuse, "greed": greed}.get(work.work, write_all)(work)
        except BaseException as error:  # noqa: BLE001 - the parent process of all shows it
            say(f"error {type(error).__name__}: {error}")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    """One child after the other until stdin ends."""
    for line in sys.stdin:
        say(f"end {child_for(Work(**json.loads(line)))}")


if __name__ == "__main__":
    main()
