"""The speed table: messages a second from the first send to the last one handled, and commands per message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import cast

from benchmarks.peers.catalogue import YARDSTICK, System
from benchmarks.peers.processes import RunFailed, bench
from benchmarks.peers.producing import SECONDS

# Warming up, the series that find the count, and the measured one: far more than they take.
LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class Speed:
    """The median of some rounds, with the slowest and the fastest; ``ratio`` is that to the yardstick."""

    system: str
    rate: float
    slowest: float
    fastest: float
    messages: int
    commands_per_message: float
    ratio: float


def one_round(system: System, url: str, seconds: float) -> dict[str, float]:
    """Start a worker and a producer, and take down what the producer found."""
    with bench(system, url, "speed") as place:
        place.worker()
        producer = place.producer(**{SECONDS: str(seconds)})
        said, _ = producer.communicate(timeout=LONGEST_S)
        if producer.returncode:
            raise RunFailed(f"{system.name}:\n{place.log()}")
        return cast("dict[str, float]", json.loads(said.splitlines()[-1]))


def measure(systems: Sequence[System], url: str, seconds: float, rounds: int) -> list[Speed]:
    """The systems take turns, so that a slow moment of the machine hits all of them."""
    found: dict[str, list[dict[str, float]]] = {system.name: [] for system in systems}
    for number in range(1, rounds + 1):
        for system in systems:
            result = one_round(system, url, seconds)
            found[system.name].append(result)
            print(
                f"  round {number}: {system.name:18} {result['rate']:11,.0f} messages/s", flush=True
            )
    rates = {name: median(one["rate"] for one in results) for name, results in found.items()}
    base = rates.get(YARDSTICK, float("nan"))
    return [_summary(name, results, rates[name], base) for name, results in found.items()]


def _summary(name: str, results: list[dict[str, float]], rate: float, base: float) -> Speed:
    every = [one["rate"] for one in results]
    return Speed(
        system=name,
        rate=rate,
        slowest=min(every),
        fastest=max(every),
        messages=round(median(one["messages"] for one in results)),
        commands_per_message=median(one["commands_per_message"] for one in results),
        ratio=rate / base,
    )
