"""Races of the actor runtime: a hundred pipes' ends, started, killed, asked, filled and stopped at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from surepipe import Pipe
from surepipe.actors.supervision import RestartPolicy
from surepipe.errors import NotConfirmed, PipeFull, PipeStopped
from surepipe.storage import Level, MemoryStore
from tests.real.ground import nothing
from tests.real.stage import Stage, Tally

SECONDS = 8.0
_PIPES_AT_ONCE = 34
"""Each has three actors and its clerks: more than a hundred at any moment."""
_HAMMERS = 8
_PATIENT = RestartPolicy(restarts_max=1_000_000, wait_min_s=0.001, wait_max_s=0.01)
_ENDS_WITHIN_S = 30.0


class Outliving(MemoryStore):
    """Memory that outlives the actors, which is all that dies here."""

    @property
    def level(self) -> Level:
        return Level.PROCESS


class Bench:
    """One pipe under stress, and what it did."""

    def __init__(self, number: int, rng: Random, *, journaled: bool) -> None:
        self.rng = rng
        self.store = Outliving() if journaled else None
        self.got: list[int] = []
        self.accepted: set[int] = set()
        self.unsure: set[int] = set()
        self.next = 0
        self.pipe = Pipe(
            f"stress-{number}",
            {"reliable": {"window": 64, "backlog": 64, "rto_min_s": 0.01, "rto_initial_s": 0.05}},
            journal=self.store,
            state=self.store,
            restarts=_PATIENT,
            notices=lambda _: None,
            frames_max=16,
        )
        self.pipe.receive(self._take)

    def _take(self, message: object) -> None:
        assert isinstance(message, int)
        self.got.append(message)

    def send(self) -> None:
        """A message that fits soon, or not: the backlog is small. With a journal its fate may stay unknown."""
        number = self.next
        self.next += 1
        self.unsure.add(number)
        with suppress(PipeFull, NotConfirmed):
            self.pipe.send(number, timeout=self.rng.choice([0.0, 0.002, 0.05]))
            self.accepted.add(number)

    def kill_sender(self) -> None:
        """As a defect would."""
        self.pipe.sender.crash()

    def kill_receiver(self) -> None:
        """As a defect would."""
        self.pipe.receiver.crash()

    def kill_handler(self) -> None:
        """As a defect would."""
        self.pipe.receiver.crash_consumer()

    def ask(self) -> None:
        """Questions from outside, while the actor may die under them."""
        counted = self.pipe.counters()
        assert all(count >= 0 for count in counted.values()), counted

    def close(self) -> None:
        """Everything through, or said so. The threads are gone."""
        with suppress(NotConfirmed, PipeStopped):
            self.pipe.close(_ENDS_WITHIN_S)

    def judge(self) -> None:
        """With a journal nothing is lost; nothing is made up, ever."""
        assert set(self.got) <= self.unsure, "a message that nobody sent"
        if self.store is not None:
            lost = self.accepted - set(self.got)
            assert not lost, f"{self.pipe.name} lost {sorted(lost)[:5]} of {len(self.accepted)}"


class Hammer(threading.Thread):
    """Does drawn things to the pipes that are its own, so that each of them has one caller."""

    def __init__(self, number: int, seed: int, until: float, tally: Tally) -> None:
        super().__init__(name=f"hammer-{number}", daemon=True)
        self.number = number
        self.rng = Random(seed)
        self.until = until
        self.tally = tally
        self.failure: BaseException | None = None
        self.made = 0

    def run(self) -> None:
        try:
            while time.monotonic() < self.until:
                self._round()
        except BaseException as error:  # noqa: BLE001 - the stage raises it
            self.failure = error

    def _round(self) -> None:
        """Start some pipes, beat them, stop them."""
        benches = [self._bench() for _ in range(_PIPES_AT_ONCE // _HAMMERS + 1)]
        for _ in range(400):
            bench = self.rng.choice(benches)
            self._deed(bench)()
        for bench in benches:
            bench.close()
            bench.judge()
            self.tally.add("pipes")
            self.tally.add("messages", len(bench.accepted))

    def _bench(self) -> Bench:
        self.made += 1
        number = self.number * 1_000_000 + self.made
        return Bench(number, self.rng, journaled=self.rng.random() < 0.5)

    def _deed(self, bench: Bench) -> Callable[[], None]:
        deeds = [bench.send] * 30 + [
            bench.kill_sender,
            bench.kill_receiver,
            bench.kill_handler,
            bench.ask,
        ]
        deed = self.rng.choice(deeds)
        self.tally.add(deed.__name__.replace("_", " "))
        return deed


def run(rng: Random, tally: Tally) -> None:
    """For some seconds; afterwards no thread of ours is left."""
    before = threading.active_count()
    until = time.monotonic() + SECONDS
    hammers = [Hammer(n, rng.getrandbits(64), until, tally) for n in range(_HAMMERS)]
    for hammer in hammers:
        hammer.start()
    for hammer in hammers:
        hammer.join(SECONDS + 4 * _ENDS_WITHIN_S)
        assert not hammer.is_alive(), f"{hammer.name} stands: a call does not return"
        if hammer.failure is not None:
            raise hammer.failure
    left = [thread.name for thread in threading.enumerate() if "stress-" in thread.name]
    assert not left, f"threads that outlive their pipes: {left}"
    tally.add("threads left", threading.active_count() - before)


STAGE = Stage(
    "threads",
    "threads",
    run,
    {"pipes": 40, "messages": 500, "kill sender": 50, "kill receiver": 50, "kill handler": 50},
    nothing,
    omits="races that these thread switches did not draw",
)
