"""kill -9 of a sender, a receiver and a Redis server at seeded moments: nothing lost, no effect repeated.

The kills come after a drawn number of accepted messages, and then a drawn moment later. ``SUREPIPE_KILL_CYCLES``
says how many there are for each store, ``SUREPIPE_KILL_SEED`` which.
"""

from __future__ import annotations

import ast
import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import cast

import pytest

from surepipe import Pipe, StreamReceiver, StreamSender
from surepipe.storage import SqliteStore
from surepipe.testing.servers import RedisServer
from tests.e2e import children
from tests.kit.redis_bench import Redis

CYCLES = int(os.environ.get("SUREPIPE_KILL_CYCLES", "50"))
PIPE_CYCLES = max(2, CYCLES * 4 // 5)
SEED = int(os.environ.get("SUREPIPE_KILL_SEED", "20250101"))
PATIENCE_S = 30.0
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.e2e.children"])
Message = tuple[int, int]


class Child:
    """A process of ours, and what it reports."""

    def __init__(self, run: Callable[..., None], *arguments: object) -> None:
        self._reports, theirs = _PROCESSES.Pipe(duplex=False)
        self.process: BaseProcess = _PROCESSES.Process(target=run, args=(*arguments, theirs))
        self.process.start()
        theirs.close()

    def next_report(self) -> object:
        """The next thing it says; fails when it says nothing for too long, or has ended."""
        assert self._reports.poll(PATIENCE_S), "the process says nothing"
        report: object = self._reports.recv()
        return report

    def kill(self) -> list[object]:
        """SIGKILL; returns what it had still reported."""
        self.process.kill()
        self.process.join(PATIENCE_S)
        last: list[object] = list(_rest(self._reports))
        self._reports.close()
        return last


def _rest(reports: Connection) -> Iterator[object]:
    while True:
        try:
            yield reports.recv()
        except (EOFError, OSError):  # a report that was cut off is none
            return


class Victims:
    """A sender and a receiver that are killed and started again, and what was accepted from the senders."""

    def __init__(self, where: str, rng: Random) -> None:
        self.accepted: list[Message] = []
        self.kills = {"sender": 0, "receiver": 0}
        self._where = where
        self._rng = rng
        self._lives = 0
        self._sender = self._new_sender()
        self._receiver = self._new_receiver()

    def _new_sender(self) -> Child:
        self._lives += 1
        return Child(children.send, self._where, self._lives)

    def _new_receiver(self) -> Child:
        return Child(children.receive_committed, self._where)

    def accept_some(self) -> None:
        """Wait for a drawn number of accepted messages, and a drawn moment more."""
        for _ in range(self._rng.randrange(1, 60)):
            self._note(self._sender.next_report())
        self._sender.process.join(self._rng.uniform(0.0, 0.03))

    def _note(self, report: object) -> None:
        life, number = cast("list[int]", report)
        self.accepted.append((life, number))

    def kill(self, who: str) -> None:
        """Kill one of them and start its successor."""
        self.kills[who] += 1
        if who == "sender":
            for report in self._sender.kill():
                self._note(report)
            self._sender = self._new_sender()
        else:
            self._receiver.kill()
            self._receiver = self._new_receiver()

    def end(self) -> None:
        """Kill both."""
        for report in self._sender.kill():
            self._note(report)
        self._receiver.kill()


@contextmanager
def victims(where: str, rng: Random) -> Generator[Victims]:
    """Both running; none is left behind."""
    running = Victims(where, rng)
    try:
        yield running
    finally:
        running.end()


def finish(where: str) -> None:
    """What the journal still holds goes into the stream, and everything in the stream is handled."""
    with closing(children.open_store(where)) as store:
        with StreamSender(children.NAME, children.LAYERS, store=store, journal=store) as sender:
            sender.flush(PATIENCE_S)
        with StreamReceiver(
            children.NAME, children.LAYERS, store=store, boundary="committed"
        ) as receiver:
            children.take_effects(receiver, store)
            assert receiver.catch_up(PATIENCE_S)


def judge(effects: list[Message], accepted: list[Message]) -> None:
    """0 lost, 0 repeated, in order. What was accepted and not reported before the kill may be there too."""
    assert len(effects) == len(set(effects)), "an effect was repeated"
    assert set(accepted) <= set(effects), "an accepted message was lost"
    for life, messages in groupby(effects, key=lambda message: message[0]):
        numbers = [number for _, number in messages]
        assert numbers == list(range(len(numbers))), f"the messages of life {life} are not in order"
    lives = [life for life, _ in groupby(effects, key=lambda message: message[0])]
    assert lives == sorted(set(lives)), "a later sender overtook an earlier one"
    unreported = set(effects) - set(accepted)
    assert len(unreported) <= 2 * len(set(lives)), "effects that nobody had sent"


def rows_of(path: Path) -> list[str]:
    """The effects in a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT message FROM effects ORDER BY rowid")]


def messages_of(texts: list[str]) -> list[Message]:
    """Effects as messages."""
    return [cast("Message", tuple(ast.literal_eval(text))) for text in texts]


def test_sqlite_loses_and_repeats_nothing_when_its_processes_are_killed(tmp_path: Path) -> None:
    """so11, st6 with real processes: two processes, one file, a kill -9 of either at each cycle."""
    rng, path = Random(SEED), tmp_path / "kills.db"
    with SqliteStore(path) as store, store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE effects (message TEXT)")
    with victims(str(path), rng) as running:
        for _ in range(CYCLES):
            running.accept_some()
            running.kill(rng.choice(["sender", "receiver"]))
    finish(str(path))
    judge(messages_of(rows_of(path)), running.accepted)
    assert min(running.kills.values()) > 0


def test_redis_loses_and_repeats_nothing_when_processes_and_server_are_killed(
    own_redis: RedisServer,
) -> None:
    """The same over Redis with its log synced at every write; the server is killed at every tenth cycle too."""
    rng = Random(SEED)
    with victims(own_redis.url, rng) as running:
        for cycle in range(CYCLES):
            running.accept_some()
            if cycle % 10 == 9:
                own_redis.restart()
            else:
                running.kill(rng.choice(["sender", "receiver"]))
    finish(own_redis.url)
    judge(messages_in(own_redis), running.accepted)
    assert min(running.kills.values()) > 0


def kill_whole_pipes(where: str, rng: Random, cycles: int) -> list[Message]:
    """A process with both ends, killed again and again; then one more that ends in good order."""
    accepted: list[Message] = []
    for life in range(1, cycles + 1):
        child = Child(children.send_and_receive, where, life)
        reports = [child.next_report() for _ in range(rng.randrange(1, 60))]
        child.process.join(rng.uniform(0.0, 0.03))
        accepted += [cast("Message", tuple(cast("list[int]", r))) for r in reports + child.kill()]
    with (
        closing(children.open_store(where)) as store,
        Pipe(
            children.NAME, children.QUICK, journal=store, state=store, boundary="committed"
        ) as pipe,
    ):
        children.take_effects(pipe, store)
        pipe.flush(PATIENCE_S)
    return accepted


def test_a_pipe_with_journal_and_state_in_sqlite_survives_the_kills_of_its_process(
    tmp_path: Path,
) -> None:
    """L-1 to L-6, K-6: both ends die at once, and what was accepted has its effect once."""
    path = tmp_path / "kills.db"
    with SqliteStore(path) as store, store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE effects (message TEXT)")
    accepted = kill_whole_pipes(str(path), Random(SEED), PIPE_CYCLES)
    judge(messages_of(rows_of(path)), accepted)


def test_a_pipe_with_journal_and_state_in_redis_survives_the_kills_of_its_process(
    own_redis: RedisServer,
) -> None:
    """The same, effects in the script that moves the state."""
    accepted = kill_whole_pipes(own_redis.url, Random(SEED), PIPE_CYCLES // 2)
    judge(messages_in(own_redis), accepted)


def test_what_a_sender_without_a_journal_had_accepted_goes_with_its_process(tmp_path: Path) -> None:
    """What a journal buys: 50 accepted messages, a kill, and the next pipe has none; the guarantee does not claim
    otherwise."""
    path = str(tmp_path / "kills.db")
    child = Child(children.send_without_journal, path)
    headline = str(child.next_report())
    child.kill()
    got: list[object] = []
    with (
        closing(children.open_store(path)) as store,
        Pipe(children.NAME, children.QUICK, state=store) as pipe,
    ):
        pipe.receive(got.append)
        pipe.send("after", until="confirmed", timeout=PATIENCE_S)
    assert got == ["after"]
    assert "sender-crash" not in headline


def messages_in(server: RedisServer) -> list[Message]:
    """The effects on a Redis server."""
    client = Redis(server.url)
    found = cast("list[bytes]", client("LRANGE", "sp:{kills}:u:effects", 0, -1))
    client.close()
    return messages_of([text.decode() for text in found])


def test_processed_repeats_what_was_not_committed_and_does_not_claim_otherwise(
    tmp_path: Path,
) -> None:
    """What committed buys: at boundary processed each kill in the middle of a batch repeats messages, loses
    none."""
    path, file = tmp_path / "kills.db", tmp_path / "handled.txt"
    with (
        SqliteStore(path) as store,
        StreamSender(children.NAME, children.LAYERS, store=store) as sender,
    ):
        sender.send_many(range(500))
        sender.flush(PATIENCE_S)
        lacks = "receiver-crash" not in str(sender.guarantee.headline)
    for _ in range(3):
        child = Child(children.receive_processed, str(path), str(file), 100)
        assert child.next_report() == "standing"
        child.kill()
    handled = [int(line) for line in file.read_text().splitlines()]
    assert lacks
    assert sorted(set(handled)) == list(range(max(handled) + 1))
    assert len(handled) - len(set(handled)) >= 100


def test_the_judge_sees_a_loss_a_repeat_and_a_swap() -> None:
    """A planted fault of each kind turns the verdict red."""
    accepted = [(1, 0), (1, 1), (2, 0)]
    judge(accepted, accepted)
    for planted, says in (
        ([(1, 0), (2, 0)], "lost"),
        ([(1, 0), (1, 1), (1, 1), (2, 0)], "repeated"),
        ([(1, 1), (1, 0), (2, 0)], "order"),
        ([(2, 0), (1, 0), (1, 1)], "overtook"),
    ):
        with pytest.raises(AssertionError, match=says):
            judge(planted, accepted)
