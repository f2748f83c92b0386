"""SIGSTOP and SIGCONT: a sender or receiver that was replaced while it stood still, and a server that does."""

from __future__ import annotations

import time
from contextlib import ExitStack
from random import Random

from surepipe.testing.servers import RedisServer
from tests.real.ground import a_server, no_redis, redis_effects
from tests.real.history import History
from tests.real.kills import ENDLESS
from tests.real.stage import Stage, Tally
from tests.real.workers import Worker, WorkerFailed

EACH = 20
_BATCH = 20
_ANSWER_S = 0.3


class _Cast:
    """The workers of this stage: two of each kind, so that one can replace the other."""

    def __init__(self, server: RedisServer, history: History, stack: ExitStack) -> None:
        self.server = server
        self.lives = 0
        self.senders = [stack.enter_context(Worker("sender", history.hear)) for _ in range(2)]
        self.receivers = [stack.enter_context(Worker("receiver")) for _ in range(2)]
        self.start_sender()
        self.start_receiver()

    def start_sender(self) -> Worker:
        """The idle one begins, and is the first from now on."""
        self.lives += 1
        self.senders.reverse()
        sender = self.senders[0]
        sender.play(
            "send",
            where=self.server.url,
            life=self.lives,
            batch=_BATCH,
            most=ENDLESS,
            answer_s=_ANSWER_S,
        )
        return sender

    def start_receiver(self) -> Worker:
        """As the sender."""
        self.receivers.reverse()
        receiver = self.receivers[0]
        receiver.play("receive", where=self.server.url, answer_s=_ANSWER_S)
        receiver.wait_for("ready")
        return receiver


def run(rng: Random, tally: Tally) -> None:
    """Each kind in turn, on one server, under load."""
    history = History("zombies", "real")
    with ExitStack() as stack:
        server = stack.enter_context(a_server().server(appendonly="yes", appendfsync="always"))
        tally.note(server.binary.name)
        players = _Cast(server, history, stack)
        for number in range(EACH):
            with tally.timed(f"sender {number}"):
                _sender_is_replaced(players, rng, history)
            tally.add("senders paused and replaced")
            with tally.timed(f"receiver {number}"):
                _receiver_is_replaced(players, rng, tally)
            tally.add("receivers paused and replaced")
            with tally.timed(f"server {number}"):
                _server_stands_still(players, rng)
            tally.add("servers paused")
        players.senders[0].stop()
        players.receivers[0].kill()
        players.receivers[0].play("catch_up", where=server.url)
        players.receivers[0].wait_for("done")
        history.settled(redis_effects(server.url))
    history.check()
    tally.add("messages", history.accepted)


def _sender_is_replaced(players: _Cast, rng: Random, history: History) -> None:
    """The old one wakes up, is told that it was replaced, and nothing that it does then is seen."""
    old = players.senders[0]
    old.wait_for_new("accepted", rng.randint(1, 3))
    old.pause()
    players.start_sender().wait_for("accepted", rng.randint(1, 2))
    old.resume()
    old.wait_for("replaced")
    history.crashed("sender", players.lives - 1, "replaced")
    old.kill()


def _receiver_is_replaced(players: _Cast, rng: Random, tally: Tally) -> None:
    """The old one wakes up and is told, also when an answer was due while it stood still; the new one goes on."""
    old = players.receivers[0]
    players.senders[0].wait_for_new("accepted", rng.randint(1, 3))
    old.pause()
    new = players.start_receiver()
    players.senders[0].wait_for_new("accepted", 2)
    if rng.random() < 0.5:
        time.sleep(1.5 * _ANSWER_S)  # the old one takes an answer that it waited for to be missing
        tally.add("paused for longer than an answer takes")
    old.resume()
    old.wait_for("replaced")
    new.wait_for_new("handled", 2)
    if "replaced" in new.last:
        raise WorkerFailed(f"{new.name} was deposed by the one that it had replaced")
    old.kill()


def _server_stands_still(players: _Cast, rng: Random) -> None:
    """Shorter and longer than its clients wait for an answer."""
    players.senders[0].wait_for_new("accepted", rng.randint(1, 3))
    players.server.pause()
    time.sleep(rng.uniform(0.05, 1.5 * _ANSWER_S))  # the drawn pause
    players.server.resume()
    players.senders[0].wait_for_new("accepted", 2)


STAGE = Stage(
    "zombies",
    "redis",
    run,
    {
        "senders paused and replaced": EACH,
        "receivers paused and replaced": EACH,
        "servers paused": EACH,
    },
    no_redis,
)
