"""kill -9 of a sender and a receiver that speak over TCP, at seeded moments: nothing lost, no effect repeated."""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

from surepipe import Channel, PipeReceiver, PipeSender, TcpRoute
from surepipe.storage import SqliteStore
from tests.e2e import tcp_children
from tests.e2e.test_process_kills import (
    PATIENCE_S,
    SEED,
    Child,
    Message,
    Victims,
    judge,
    messages_of,
    rows_of,
)

HANDSHAKES = 3
CYCLES = int(os.environ.get("SUREPIPE_TCP_KILL_CYCLES", "30"))


class TcpVictims(Victims):
    """Each process has a store of its own, and the port is the same in all their lives."""

    def __init__(self, folder: Path, rng: Random) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port: int = free.getsockname()[1]
        self.journal, self.effects = str(folder / "journal.db"), folder / "effects.db"
        super().__init__(str(folder), rng)

    def _new_sender(self) -> Child:
        self._lives += 1
        return Child(tcp_children.send, self.port, self.journal, self._lives)

    def _new_receiver(self) -> Child:
        return Child(tcp_children.receive, self.port, str(self.effects))


def test_tcp_pipes_lose_and_repeat_nothing_when_their_processes_are_killed(tmp_path: Path) -> None:
    """Journal at the sender, effects and state in one transaction at the receiver, a kill of either each cycle."""
    rng = Random(SEED)
    running = TcpVictims(tmp_path, rng)
    try:
        for _ in range(CYCLES):
            running.accept_some()
            running.kill(rng.choice(["sender", "receiver"]))
    finally:
        running.end()
    _finish(running)
    judge(_effects(running.effects), running.accepted)
    assert min(running.kills.values()) > 0


def test_a_channel_whose_listener_is_killed_in_its_first_handshake_is_up_with_the_next_listener() -> (
    None
):
    """Each listener is killed as soon as the channel comes in there, with a message on its way; the one after the
    last of them gets what no other has confirmed."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    route = TcpRoute.connect(f"127.0.0.1:{port}", security=tcp_children.KEY)
    with Channel("orders", tcp_children.LAYERS, route=route) as channel:
        for number in range(HANDSHAKES):
            listening = Child(tcp_children.listen, port)
            channel.send(number)
            assert listening.next_report() == "coming in"
            listening.kill()
        listening = Child(tcp_children.listen, port)
        try:
            channel.send("hello")
            assert listening.next_report() == "coming in"
            while listening.next_report() != "hello":
                pass  # those before it that no listener has confirmed
            channel.flush(PATIENCE_S)
        finally:
            listening.kill()


def _finish(running: TcpVictims) -> None:
    """What the journal still holds is sent and handled."""
    listening = TcpRoute.listen("127.0.0.1:0", security=tcp_children.KEY)
    with (
        closing(SqliteStore(running.effects)) as effects,
        closing(SqliteStore(running.journal)) as journal,
        PipeReceiver(
            "orders", tcp_children.LAYERS, route=listening, state=effects, boundary="committed"
        ) as receiver,
    ):
        receiver.receive(tcp_children.put_row)
        route = TcpRoute.connect(f"127.0.0.1:{listening.port}", security=tcp_children.KEY)
        with PipeSender("orders", tcp_children.LAYERS, route=route, journal=journal) as sender:
            sender.flush(PATIENCE_S)


def _effects(path: Path) -> list[Message]:
    try:
        return messages_of(rows_of(path))
    except sqlite3.OperationalError:  # no receiver lived long enough to make the table
        return []
