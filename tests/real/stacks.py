"""Whole stacks under everything at once: a sender and a receiver over Redis, over a SQLite file, and over TCP."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

from surepipe.testing.faults import GustKind, draw_gusts
from surepipe.testing.proxy import FaultProxy
from surepipe.testing.servers import free_port
from tests.real.ground import a_server, make_sqlite, no_redis, redis_effects, sqlite_effects
from tests.real.history import History, Message
from tests.real.kills import ENDLESS
from tests.real.stage import Stage, Tally
from tests.real.workers import Worker

SECONDS = 8.0
_BATCH = 20
_ANSWER_S = 0.5
_WEATHER = tuple(kind for kind in GustKind if kind is not GustKind.CALM)
Deed = Callable[[], object]


class Stack:
    """A sender and a receiver, what may be done to them, and where the effects are."""

    def __init__(self, name: str, rng: Random, tally: Tally, stack: ExitStack) -> None:
        self.name = name
        self.rng = rng
        self.tally = tally
        self.history = History(name, "real")
        self.sender = stack.enter_context(Worker(f"{name} sender", self.history.hear))
        self.receiver = stack.enter_context(Worker(f"{name} receiver"))
        self.proxies: list[FaultProxy] = []
        self.parts: tuple[str, str] = ("send", "receive")
        self.send_order: dict[str, object] = {}
        self.receive_order: dict[str, object] = {}
        self.deeds: list[Deed] = [
            self.kill_sender,
            self.kill_receiver,
            self.pause_sender,
            self.pause_receiver,
        ]

    def start_sender(self) -> None:
        """Another life."""
        self.sender.play(
            self.parts[0],
            **self.send_order,
            life=self.sender.incarnation + 1,
            batch=_BATCH,
            most=ENDLESS,
        )

    def start_receiver(self) -> None:
        """Another incarnation."""
        self.receiver.play(self.parts[1], **self.receive_order)

    def kill_sender(self) -> None:
        """SIGKILL, and another life."""
        self.sender.kill()
        self.history.crashed("sender", self.sender.incarnation)
        self.start_sender()

    def kill_receiver(self) -> None:
        """SIGKILL, and another incarnation."""
        self.receiver.kill()
        self.history.crashed("receiver", self.receiver.incarnation)
        self.start_receiver()

    def pause_sender(self) -> None:
        """It stands still for a while."""
        self._pause(self.sender)

    def pause_receiver(self) -> None:
        """It stands still for a while."""
        self._pause(self.receiver)

    def _pause(self, worker: Worker) -> None:
        worker.pause()
        self.wait(0.3)
        worker.resume()

    def blow(self) -> None:
        """A gust at one of the proxies, then fair weather."""
        proxy = self.rng.choice(self.proxies)
        (gust,) = draw_gusts(self.rng.getrandbits(32), 1, _WEATHER)
        gust.blow(proxy)
        self.wait(0.2)
        proxy.clear()

    def wait(self, most_s: float) -> None:
        """A drawn while."""
        time.sleep(self.rng.uniform(0.0, most_s))

    def suffer(self) -> None:
        """One deed after the other, and progress after each."""
        self.start_receiver()
        self.start_sender()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            deed = self.rng.choice(self.deeds)
            name = getattr(deed, "__name__", "deed").replace("_", " ")
            with self.tally.timed(f"{self.name} {name}"):
                deed()
                self.sender.wait_for_new("accepted", self.rng.randint(1, 3))
            self.tally.add(name)
        self.sender.stop()

    def judge(self, effects: Sequence[Message]) -> None:
        """Nothing lost, nothing repeated, in order."""
        self.history.settled(effects)
        self.history.check()
        self.tally.add(f"messages over {self.name}", self.history.accepted)


def run(rng: Random, tally: Tally) -> None:
    """All three at once: most of the time somebody waits."""
    kinds = (_over_redis, _over_sqlite, _over_tcp)
    seeds = [rng.getrandbits(64) for _ in kinds]
    with ThreadPoolExecutor(len(kinds)) as pool:
        running = [
            pool.submit(kind, Random(seed), tally) for kind, seed in zip(kinds, seeds, strict=True)
        ]
        for one in running:
            one.result()


def _over_redis(rng: Random, tally: Tally) -> None:
    """The stream, its journal and the effects on one server; a proxy before each worker."""
    with ExitStack() as stack:
        server = stack.enter_context(a_server().server(appendonly="yes", appendfsync="always"))
        made = Stack("Redis", rng, tally, stack)
        made.proxies = [
            stack.enter_context(FaultProxy(server.url, seed=rng.getrandbits(32))) for _ in range(2)
        ]
        ahead, behind = made.proxies
        made.send_order |= {"where": ahead.url, "answer_s": _ANSWER_S}
        made.receive_order |= {"where": behind.url, "answer_s": _ANSWER_S}

        def kill_server() -> None:
            server.kill()
            made.wait(0.05)
            server.start()

        made.deeds += [made.blow, made.blow, kill_server]
        made.suffer()
        made.receiver.kill()
        made.receiver.play("catch_up", where=server.url)
        made.receiver.wait_for("done")
        made.judge(redis_effects(server.url))


def _over_sqlite(rng: Random, tally: Tally) -> None:
    """Everything in one file."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="surepipe-stacks-"))
        made = Stack("SQLite", rng, tally, stack)
        path = Path(folder) / "all.db"
        make_sqlite(path)
        made.send_order["where"] = made.receive_order["where"] = str(path)
        made.suffer()
        made.receiver.kill()
        made.receiver.play("catch_up", where=str(path))
        made.receiver.wait_for("done")
        made.judge(sqlite_effects(path))


def _over_tcp(rng: Random, tally: Tally) -> None:
    """A file at each end, and a proxy on the way."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surepipe-stacks-")))
        made = Stack("TCP", rng, tally, stack)
        make_sqlite(folder / "receiver.db")
        port = free_port()
        proxy = stack.enter_context(FaultProxy(("127.0.0.1", port), seed=rng.getrandbits(32)))
        made.proxies = [proxy]
        made.parts = ("send_tcp", "receive_tcp")
        made.send_order = {
            "where": str(folder / "sender.db"),
            "address": f"127.0.0.1:{proxy.port}",
        }
        made.receive_order = {
            "where": str(folder / "receiver.db"),
            "address": f"127.0.0.1:{port}",
        }
        made.deeds += [made.blow, made.blow]
        made.suffer()
        made.receiver.kill()
        made.judge(sqlite_effects(folder / "receiver.db"))


STAGE = Stage(
    "stacks",
    "redis",
    run,
    {
        "messages over Redis": 200,
        "messages over SQLite": 200,
        "messages over TCP": 200,
        "kill sender": 5,
        "kill receiver": 5,
        "blow": 5,
        "kill server": 2,
    },
    no_redis,
    omits="TLS, Sentinel, Cluster (tests/storage/test_redis_reach.py)",
)
