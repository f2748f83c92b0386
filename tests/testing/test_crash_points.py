"""Named points at which a process ends itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surepipe import Pipe, StreamReceiver, StreamSender
from surepipe.errors import ConfigurationError
from surepipe.storage import Level, SqliteStore
from surepipe.testing.crash_points import STATUS, VARIABLE, CrashingRuntime, CrashPoints

PROGRAM = """
from surepipe import Pipe
from surepipe.testing.crash_points import CrashingRuntime, CrashPoints

points = CrashPoints.from_environment()
with Pipe("orders", runtime=CrashingRuntime(points)) as pipe:
    pipe.receive(points.handler(lambda message: print(message, flush=True)))
    for number in range(20):
        pipe.send(number, until="confirmed")
"""


class Left(Exception):
    """In place of the end of the process."""


def leave(status: int) -> None:
    """What is done in place of ending the process."""
    raise Left(status)


def test_the_process_ends_at_the_nth_time_that_it_gets_there() -> None:
    """X-65: SUREPIPE_CRASH_AT=after-handler:3 in a program of its own; three messages were handled."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={VARIABLE: "after-handler:3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (STATUS, ["0", "1", "2"]), done.stderr


def test_only_the_nth_time_counts() -> None:
    """Twice nothing, then the end; other names are no matter."""
    points = CrashPoints("after-commit:3", leave=leave)
    for name in ("after-commit", "before-commit", "after-commit"):
        points.reach(name)
    with pytest.raises(Left, match=str(STATUS)):
        points.reach("after-commit")


def test_without_orders_nothing_ends() -> None:
    """What a program does that always has the points in it."""
    points = CrashPoints("", leave=leave)
    assert points.handler(abs)(-7) == 7
    assert points.reached == {"before-handler": 1, "after-handler": 1}


@pytest.mark.parametrize("text", ["deliver", "after-deliver:0", "after-deliver:x", "during-commit"])
def test_what_is_no_point_is_refused(text: str) -> None:
    """Names begin with before or after, and counts with 1."""
    with pytest.raises(ConfigurationError, match="no crash point"):
        CrashPoints(text)


def test_a_pipe_passes_the_points_of_its_two_ends() -> None:
    """F8 to F12: the names that a schedule may use for a pipe that keeps nothing."""
    points = CrashPoints()
    with Pipe("orders", runtime=CrashingRuntime(points)) as pipe:
        pipe.receive(points.handler(lambda _: None))
        pipe.send_many(range(10))
    assert {
        *("before-event", "after-event", "before-transmit", "after-transmit", "after-accepted"),
        *("before-deliver", "after-deliver", "before-handler", "after-handler", "after-confirmed"),
    } <= points.reached.keys()


def test_a_stream_passes_those_of_its_stores_too(tmp_path: Path) -> None:
    """F8 to F12: journal, stream and position, each before and after the store has it."""
    points = CrashPoints()
    runtime = CrashingRuntime(points)
    layers = {"stream": {"start": "earliest"}}
    with (
        SqliteStore(tmp_path / "s.db", level=Level.PROCESS) as store,
        StreamSender("o", layers, store=store, journal=store, runtime=runtime) as sender,
        StreamReceiver("o", layers, store=store, runtime=runtime) as receiver,
    ):
        receiver.receive(lambda _: None)
        sender.send_many(range(10))
        sender.flush(20)
        assert receiver.catch_up(20)
    verbs = ("open-life", "append-rows", "append-run", "read-from", "commit-position")
    assert {f"{when}-{verb}" for when in ("before", "after") for verb in verbs} <= (
        points.reached.keys()
    )


def test_a_transaction_has_a_point_on_each_side_of_its_end(tmp_path: Path) -> None:
    """F11 and F12: before, nothing is stored; after, all is."""
    points = CrashPoints("before-commit", leave=leave)
    with SqliteStore(tmp_path / "s.db", level=Level.PROCESS) as store:
        with store.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE t (x)")
        with pytest.raises(Left), points.committing(store.transaction()) as transaction:
            transaction.connection.execute("INSERT INTO t VALUES (1)")
        with points.committing(store.transaction()) as transaction:
            assert transaction.connection.execute("SELECT x FROM t").fetchall() == []
    assert points.reached == {"before-commit": 2, "after-commit": 1}
