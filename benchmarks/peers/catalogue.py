"""The systems of the tables: how the worker of each is started, and how it is set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_HERE = "benchmarks.peers"
YARDSTICK = "hand-written loop"


@dataclass(frozen=True, slots=True)
class System:
    """One row.

    ``module`` has ``producer()``; ``worker`` gives the command, of the environment's ``bin``, for the server at a
    URL. ``settles_s`` is how long it must have been quiet until nothing more is to be expected after a kill:
    several times the time after which it takes a worker for dead.
    """

    name: str
    package: str
    module: str
    worker: Callable[[str], list[str]]
    acknowledges: str
    notices_after: str
    settles_s: float
    environment: tuple[tuple[str, str], ...] = ()


def _python(module: str) -> Callable[[str], list[str]]:
    return lambda _: ["python", "-m", module]


def _peer(name: str) -> str:
    return f"{_HERE}.systems.with_{name}"


def _celery(_: str) -> list[str]:
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    return ["celery", "-A", _peer("celery"), "worker", "--pool", "solo", "-c", "1", *quiet]


def _dramatiq(threads: int) -> Callable[[str], list[str]]:
    alone = ["dramatiq", "--processes", "1", "--threads", str(threads)]
    return lambda _: [*alone, _peer("dramatiq")]


def _rq(url: str) -> list[str]:
    quiet = ["--logging_level", "ERROR", "--maintenance-interval", "5"]
    return ["rq", "worker", "--url", url, "-w", "rq.SimpleWorker", *quiet, "peers"]


def _taskiq(at_once: int) -> Callable[[str], list[str]]:
    one = ["--workers", "1", "--max-async-tasks", str(at_once)]
    acknowledge = ["--ack-type", "when_executed", "--no-parse", "--log-level", "ERROR"]
    return lambda _: ["taskiq", "worker", f"{_peer('taskiq')}:broker", *one, *acknowledge]


def _faststream(_: str) -> list[str]:
    return ["faststream", "run", f"{_peer('faststream')}:app", "--log-level", "error"]


def _huey(_: str) -> list[str]:
    return ["huey_consumer", f"{_peer('huey')}.huey", "-w", "1", "-k", "thread", "-n", "-q"]


def _dramatiq_with(name: str, threads: int) -> System:
    ahead = (("dramatiq_queue_prefetch", "100"),)
    command = _dramatiq(threads)
    return System(name, "dramatiq", _peer("dramatiq"), command, "after each", "5 s", 20, ahead)


def _taskiq_with(name: str, at_once: int) -> System:
    command = _taskiq(at_once)
    return System(name, "taskiq", _peer("taskiq"), command, "after each", "5 s", 20)


SYSTEMS = (
    System(
        YARDSTICK,
        "redis",
        f"{_HERE}.hand_written",
        _python(f"{_HERE}.hand_written"),
        "after a batch of 500",
        "at once (same consumer name)",
        3,
    ),
    System(
        "surepipe stream pipe",
        "surepipe",
        f"{_HERE}.surepipe_pipe",
        _python(f"{_HERE}.surepipe_pipe"),
        "after a batch of 500",
        "at once (position)",
        3,
    ),
    System(
        "surepipe store",
        "surepipe",
        f"{_HERE}.surepipe_stream",
        _python(f"{_HERE}.surepipe_stream"),
        "after a batch of 500",
        "at once (position)",
        3,
    ),
    System("celery", "celery", _peer("celery"), _celery, "after each", "5 s", 20),
    _dramatiq_with("dramatiq", 1),
    _dramatiq_with("dramatiq, 8 threads", 8),
    System("rq", "rq", _peer("rq"), _rq, "after each", "61 s", 75),
    _taskiq_with("taskiq", 1),
    _taskiq_with("taskiq, 100 tasks", 100),
    System(
        "faststream",
        "faststream",
        _peer("faststream"),
        _faststream,
        "after a batch of 500",
        "5 s",
        20,
    ),
    System("huey", "huey", _peer("huey"), _huey, "before each (has no other)", "never", 5),
)
