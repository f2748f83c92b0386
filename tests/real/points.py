"""Workers end at named points and by SIGKILL: before and after each thing that a crash could tear apart."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

from surepipe.testing.crash_points import STATUS
from tests.real.ground import (
    a_server,
    file_effects,
    make_sqlite,
    no_redis,
    redis_effects,
    sqlite_effects,
)
from tests.real.history import AT_LEAST_ONCE, CLAIMED, History, Message
from tests.real.kills import ENDLESS
from tests.real.stage import Stage, Tally
from tests.real.workers import Worker, WorkerFailed

SIGKILL = "SIGKILL"
SENDER_POINTS = (
    "before-open-life",
    "before-append-rows",
    "after-append-rows",
    "after-accepted",
    "before-append-run",
    "after-append-run",
    "after-confirmed",
    "after-event",
    SIGKILL,
    SIGKILL,
)
"""F8, F9: before the journal has it, when it has it and nobody knows, when the stream has it and nobody knows."""
COMMITTED_POINTS = (
    "before-deliver",
    "after-deliver",
    "before-handler",
    "after-handler",
    "before-commit",
    "after-commit",
    SIGKILL,
    SIGKILL,
)
"""F10 up to before-handler, F11 between handler and commit, F12 from after-commit on."""
PROCESSED_POINTS = ("after-deliver", "before-handler", "after-handler", "before-commit-position",
    "after-commit-position", SIGKILL)  # fmt: skip
_ROUNDS = 5
_BATCH = 20


def run(rng: Random, tally: Tally) -> None:
    """Redis and SQLite at boundary committed, SQLite at boundary processed: each in turn."""
    with tempfile.TemporaryDirectory(prefix="surepipe-points-") as folder:
        with a_server().server(appendonly="yes", appendfsync="always") as server:
            history = _run_on(server.url, COMMITTED_POINTS, rng, tally)
            _judge(history, redis_effects(server.url), CLAIMED, tally)
        path = Path(folder) / "committed.db"
        make_sqlite(path)
        history = _run_on(str(path), COMMITTED_POINTS, rng, tally)
        _judge(history, sqlite_effects(path), CLAIMED, tally)
        path, effects = Path(folder) / "processed.db", Path(folder) / "effects.txt"
        history = _run_on(str(path), PROCESSED_POINTS, rng, tally, file=str(effects))
        _judge(history, file_effects(effects), AT_LEAST_ONCE, tally)


def _judge(
    history: History, effects: Sequence[Message], promised: Collection[str], tally: Tally
) -> None:
    history.settled(effects)
    history.check(promised)
    tally.add("messages", history.accepted)


def _run_on(
    where: str, points: Sequence[str], rng: Random, tally: Tally, **order: object
) -> History:
    """A sender that dies again and again, and a receiver that does, independently of each other."""
    history = History(f"points {where}", "real")
    with ExitStack() as stack:
        sender = Victim(
            "send", stack.enter_context(Worker("sender", history.hear)), rng.getrandbits(64), tally
        )
        receiver = Victim(
            "receive", stack.enter_context(Worker("receiver")), rng.getrandbits(64), tally
        )
        receiver_is_through = threading.Event()
        with ThreadPoolExecutor(2) as pool:
            sending = pool.submit(_send_and_die, sender, where, history, receiver_is_through)
            try:
                for point in receiver.drawn(points):
                    receiver.live_and_die(point, where=where, **order)
                    history.crashed("receiver", receiver.worker.incarnation, point)
            finally:
                receiver_is_through.set()
            sending.result()
        receiver.worker.play("catch_up", where=where, **order)
        receiver.worker.wait_for("done")
    return history


def _send_and_die(
    sender: Victim, where: str, history: History, receiver_is_through: threading.Event
) -> None:
    """One life after the other; then on, so that the receiver has something to die of."""
    order: dict[str, object] = {"where": where, "batch": _BATCH, "most": ENDLESS}
    for point in sender.drawn(SENDER_POINTS):
        sender.live_and_die(point, life=sender.worker.incarnation + 1, **order)
        history.crashed("sender", sender.worker.incarnation, point)
    sender.worker.play("send", life=sender.worker.incarnation + 1, **order)
    receiver_is_through.wait()
    sender.worker.stop()


class Victim:
    """A worker that plays one part, each time up to a point."""

    def __init__(self, part: str, worker: Worker, seed: int, tally: Tally) -> None:
        self.part = part
        self.worker = worker
        self._rng = Random(seed)
        self._tally = tally

    def drawn(self, points: Sequence[str]) -> list[str]:
        """Each point so many times, in a drawn order."""
        drawn = list(points) * _ROUNDS
        self._rng.shuffle(drawn)
        return drawn

    def live_and_die(self, point: str, **order: object) -> None:
        """One child, from its start to its end at the point."""
        with self._tally.timed(f"{self.part} {point}"):
            if point == SIGKILL:
                self.worker.play(self.part, **order)
                time.sleep(self._rng.uniform(0.02, 0.1))  # the drawn moment
                self.worker.kill()
            else:
                self._end_itself(point, order)
        self._tally.add(point if self.part == "send" else f"{point} of receivers")
        self._tally.add("worker deaths")

    def _end_itself(self, point: str, order: dict[str, object]) -> None:
        times = 1 if point == "before-open-life" else self._rng.randint(1, 5)
        self.worker.play(self.part, crash_at=f"{point}:{times}", **order)
        status = self.worker.end()
        if status != STATUS:
            raise WorkerFailed(f"{self.part} was to end at {point} and ended with {status}")


_MINIMA = {
    **dict.fromkeys(SENDER_POINTS, 5),
    **{f"{point} of receivers": 5 for point in (*COMMITTED_POINTS, *PROCESSED_POINTS)},
}
STAGE = Stage(
    "points",
    "redis",
    run,
    {"worker deaths": 200, **_MINIMA},
    no_redis,
    omits="points inside a store's own code",
)
