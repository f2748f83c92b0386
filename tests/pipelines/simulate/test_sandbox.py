"""What stages may use under simulation: virtual clocks and chance; and what is refused."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import signal
import socket
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from surepipe.pipelines.simulate.campaign import CannotSimulate, run_one
from surepipe.pipelines.simulate.simulating import NotDeterministic, handler_subject, simulation_of
from surepipe.pipelines.stages import Context
from surepipe.simulation.actors.stores import transaction_of
from surepipe.simulation.options import Options

Handler = Callable[..., object]
SYSTEM = random.SystemRandom()


def _seen(use: Callable[[], object]) -> list[object]:
    """What a handler sees of this in one run of three messages."""
    seen: list[object] = []

    def handle(message: object) -> None:
        del message
        seen.append(use())

    def build() -> Handler:
        seen.clear()  # of the runs that it is compared with
        return handle

    run_one(handler_subject(build, [1, 2, 3]), Options(messages=3))
    return seen


@pytest.mark.parametrize(
    "use",
    [
        lambda: time.time_ns() + 0,
        lambda: monotonic() + 0,
        lambda: datetime.now(UTC).isoformat(),
        lambda: random.random() + 0,
        lambda: random.paretovariate(2) + 0,
        lambda: SYSTEM.random() + 0,
        lambda: random.Random().random() + 0,
        lambda: str(uuid.uuid4()),
    ],
)
def test_clocks_and_chance_are_virtual(use: Callable[[], object]) -> None:
    """Two runs see the same, also by a name that was imported from its module (simulation X-25, XT-2)."""
    assert _seen(use) == _seen(use)
    assert len(_seen(use)) == 3


def test_every_way_to_ask_for_the_date_gives_the_virtual_one() -> None:
    """Runs begin in November 2023 (simulation X-25, XT-2)."""
    asked: list[Callable[[], object]] = [
        lambda: time.strftime("%Y"),
        lambda: time.asctime()[-4:],
        lambda: time.ctime()[-4:],
        lambda: date.today().year,  # noqa: DTZ011
        lambda: time.gmtime(time.clock_gettime(time.CLOCK_REALTIME)).tm_year,
    ]
    assert [str(_seen(one)[0]) for one in asked] == ["2023"] * len(asked)


def test_a_stage_that_wants_to_end_the_process_fails_its_message() -> None:
    """As it does in a real run (simulation X-3): it becomes a dead letter, and the others go through."""

    def leaves(message: int) -> None:
        if message == 2:
            sys.exit(1)

    _, outcome = run_one(handler_subject(lambda: leaves, [1, 2, 3]), Options(messages=3))
    assert (outcome.dead, outcome.calls["handler"]) == (1, 7)


def test_outside_of_stages_the_clock_is_the_real_one() -> None:
    """After a run everything is as it was."""
    before = time.time, random.random, uuid.uuid4, time.sleep
    _seen(time.time)
    assert (time.time, random.random, uuid.uuid4, time.sleep) == before


def test_sleeping_costs_virtual_time_only() -> None:
    """A minute by ``time.sleep``, by the context and by asyncio (simulation X-24)."""

    async def handle(message: object, context: Context) -> None:
        del message
        begun = monotonic()
        time.sleep(20)
        context.sleep(20)
        await asyncio.sleep(20)
        assert monotonic() - begun >= 60

    result, outcome = run_one(handler_subject(lambda: handle, [1]), Options(messages=1))
    assert outcome.dead == 0
    assert result.violations == ()


def _writes(folder: Path) -> Handler:
    def write(message: object) -> object:
        return (folder / "out.txt").write_text(str(message))

    return write


def _exits(message: object) -> object:
    del message
    os._exit(3)


def _aborts(message: object) -> object:
    del message
    os.abort()


def _sends_a_signal(message: object) -> object:
    os.kill(os.getpid(), signal.SIGTERM)
    return message


def _sends_all_a_signal(message: object) -> object:
    os.killpg(os.getpgid(0), signal.SIGTERM)
    return message


def _raises_a_signal(message: object) -> object:
    signal.raise_signal(signal.SIGTERM)
    return message


def _sends_its_thread_a_signal(message: object) -> object:
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    return message


def _sets_an_alarm(message: object) -> object:
    signal.alarm(1)
    return message


def _forks_a_terminal(message: object) -> object:
    return message, os.forkpty()


def _opens_a_socket(message: object) -> object:
    del message
    return socket.socket()


_here, _there = socket.socketpair()
atexit.register(_here.close)
atexit.register(_there.close)


def _sends_by_a_socket_that_was_opened_before(message: object) -> object:
    _here.sendall(b"1")
    return message


def _asks_for_an_address(message: object) -> object:
    return message, socket.getaddrinfo("localhost", 80)


def _opens_a_database(message: object) -> object:
    return message, sqlite3.connect("shop.db")


def _asks_somebody(message: object) -> object:
    return message, input()


def _asks_a_database_in_memory() -> object:
    with closing(sqlite3.connect(":memory:")) as connection:
        return connection.execute("select 1").fetchone()


async def _later(message: object) -> object:
    await asyncio.sleep(1)
    return message


def _runs_a_loop(message: object) -> object:
    return asyncio.run(_later(message), debug=False)


def _makes_a_loop(message: object) -> object:
    return message, asyncio.new_event_loop()


def _has_a_runner(message: object) -> object:
    with asyncio.Runner() as runner:
        return runner.run(_later(message))


_runner = asyncio.Runner()  # which has no loop yet
_loop = asyncio.new_event_loop()
atexit.register(_loop.close)


def _has_a_runner_that_was_made_before(message: object) -> object:
    return _runner.run(_later(message))


def _uses_a_loop_that_was_made_before(message: object) -> object:
    return _loop.run_until_complete(_later(message))


def _starts_a_thread(message: object) -> object:
    thread = threading.Thread(target=print)
    thread.start()
    return message


async def _starts_a_thread_in_a_task(message: object) -> object:
    return await asyncio.create_task(asyncio.to_thread(print, message))


async def _starts_a_thread_among_others(message: object) -> object:
    await asyncio.gather(asyncio.to_thread(print), asyncio.sleep(1))
    return message


def _uses_sql(message: object) -> object:
    transaction: Any = transaction_of("sqlite", [])
    return message, transaction.connection.execute("SELECT 1")


def _asks_for_rows(message: object) -> object:
    transaction: Any = transaction_of("sqlite", [])
    transaction.connection.row_factory = sqlite3.Row
    return message


def _opens_a_block_of_sql(message: object) -> object:
    transaction: Any = transaction_of("sqlite", [])
    with transaction.connection:
        return message


def _wrong(run: object) -> bool:
    del run
    return False


def _fine(run: object) -> bool:
    del run
    return True


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (_opens_a_socket, "opens a socket"),
        (_sends_by_a_socket_that_was_opened_before, "sends something by a socket"),
        (_asks_for_an_address, "asks for an address"),
        (_opens_a_database, r"opens the database shop\.db"),
        (_asks_somebody, "reads from the terminal"),
        (_starts_a_thread, "starts a thread"),
        (_starts_a_thread_in_a_task, "starts a thread"),
        (_starts_a_thread_among_others, "starts a thread"),
        (_runs_a_loop, "runs an event loop of its own, instead of being an async def"),
        (_makes_a_loop, "runs an event loop of its own"),
        (_has_a_runner, "runs an event loop of its own"),
        (_has_a_runner_that_was_made_before, "runs an event loop of its own"),
        (_uses_a_loop_that_was_made_before, "runs an event loop of its own"),
        (_exits, "ends its process"),
        (_aborts, "ends its process"),
        (_sends_a_signal, "sends a signal"),
        (_sends_all_a_signal, "sends a signal"),
        (_raises_a_signal, "sends a signal"),
        (_sends_its_thread_a_signal, "sends a signal"),
        (_sets_an_alarm, "sends a signal"),
        (_forks_a_terminal, "starts a process"),
        (_uses_sql, "uses SQL on its transaction's connection"),
        (_asks_for_rows, "uses SQL on its transaction's connection"),
        (_opens_a_block_of_sql, "uses SQL on its transaction's connection"),
    ],
)
def test_what_can_not_be_simulated_is_refused_with_its_place(use: Handler, said: str) -> None:
    """File and line of the stage are in the text (simulation X-25, XT-4)."""
    with pytest.raises(CannotSimulate, match=said) as refused:
        run_one(handler_subject(lambda: use, [1]), Options(messages=1))
    assert f"{Path(__file__).name}:" in str(refused.value)


def test_writing_to_a_file_is_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(CannotSimulate, match=r"out\.txt"):
        run_one(handler_subject(lambda: _writes(tmp_path), [1]), Options(messages=1))
    assert list(tmp_path.iterdir()) == []


def test_a_database_in_memory_is_nobody_elses() -> None:
    """So it is let through (simulation X-25)."""
    assert _seen(_asks_a_database_in_memory) == [(1,)] * 3


def test_what_can_not_be_repeated_is_not_taken_for_a_finding() -> None:
    """The check says no, but the same seed goes another way when it is run again (simulation X-22, X-25)."""
    own = random.Random(7)

    def handle(message: object) -> object:
        del message
        return own.random()

    with pytest.raises(NotDeterministic, match="went two ways"):
        simulation_of(lambda: (handle, _wrong), messages=[1, 2]).run(range(2))


def test_a_private_source_of_chance_shows_when_a_seed_is_run_twice() -> None:
    """The stage draws from a generator that nobody can replace (simulation X-25, XT-3)."""
    own = random.Random(7)

    def handle(message: object) -> object:
        del message
        return own.random()

    with pytest.raises(NotDeterministic, match="went two ways"):
        simulation_of(lambda: (handle, _fine), messages=[1, 2]).run(range(2))
