"""Lanes in virtual time with everything at once: slow and failing handlers, actors that die, faults of routes and
stores, by seed. What a run of the receiver handles of a key is in order; over its deaths nothing is left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from surepipe.actors import FaultyRoute, LocalRoute, Pipe, PipeNotice, StepRuntime
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage.faulty import FaultyStore, Rates
from surepipe.storage.letters import DeadLetterStream

KEYS = "aaabbcde"
COUNT = 80
ROUGH = Rates(outage=0.03, unknown=0.08, late=0.04, outage_calls_max=4)
QUICK = {"run_max": 4, "window": 32, "rto_initial_s": 0.2, "rto_max_s": 1.0}
STREAM = {"start": "earliest", "rto_initial_s": 0.2, "rto_max_s": 1.0, "read_max": 24}

STACKS: dict[str, object] = {
    "reliable": {"reliable": QUICK},
    "continuous-index": [{"continuous-index": {"run_max": 4}}, {"multi-unconfirmed": QUICK}],
    "stream": {"stream": STREAM},
}


class Ordeal:
    """One run of a pipe with lanes. ``handled`` are the numbers of each key that a handler came through with, in
    that order; those in ``final`` always fail. ``deaths_left``: how often an actor may still die."""

    def __init__(self, stack: str, seed: int, *, deaths: int) -> None:
        self.stack = stack
        self.deaths_left = deaths
        self.rng = Random(seed)
        self.runtime = StepRuntime(seed)
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.busy: set[str] = set()
        self.notices: list[PipeNotice] = []
        self.keys = [self.rng.choice(KEYS) for _ in range(COUNT)]
        self.failures = {n: self.rng.choice([1, 2]) for n in self.rng.sample(range(COUNT), 10)}
        self.final = set(self.rng.sample(range(COUNT), 3))
        self.stores = [FaultyStore(SimulatedStore(), seed=seed * 10 + at) for at in range(4)]
        self.letters = DeadLetterStream(self.stores[0], "orders/dead")
        self.ways_to_die: list[Callable[[], None]] = []

    def run(self) -> None:
        """Send everything, wait until all of it is handled and confirmed, and let the stores calm down."""
        with self._pipe() as pipe:
            for store in self.stores:
                store.rates = ROUGH
            self.ways_to_die = [
                pipe.receiver.crash,
                lambda: pipe.receiver.crash_consumer(self.rng.randrange(3)),
            ]
            pipe.receive(self._handle)
            for number, key in enumerate(self.keys):
                pipe.send({"key": key, "number": number}, timeout=600)
            self.ways_to_die.append(pipe.sender.crash)  # a send that meets it can't know its fate
            pipe.flush(6_000)
            assert self.runtime.run_until(self._is_complete, 6_000), self._missing()
        for store in self.stores:
            store.calm()

    def _pipe(self) -> Pipe:
        stream = self.stores[1] if self.stack == "stream" else None
        seed = self.rng.getrandbits(20)
        route = FaultyRoute(LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.2, seed=seed)
        return Pipe(
            "orders",
            STACKS[self.stack],  # type: ignore[arg-type]  # whatever a file may say
            route=None if stream else route,
            store=stream,
            journal=self.stores[2],
            state=self.stores[3],
            dead_letter=self.letters,
            retries=4,
            retry_min_s=0.05,
            retry_max_s=0.4,
            key="key",
            lanes=3,
            runtime=self.runtime,
            seed=seed,
            notices=self.notices.append,
        )

    def _handle(self, received: object) -> None:
        assert isinstance(received, dict)
        message = cast("dict[str, object]", received)
        key, number = str(message["key"]), cast("int", message["number"])
        assert key not in self.busy, f"{key} is in two lanes"
        self.busy.add(key)
        try:
            self._be_slow_or_kill()
            if number in self.final or self.failures.get(number, 0):
                self.failures[number] = self.failures.get(number, 0) - 1
                raise ValueError(number)
        finally:
            self.busy.discard(key)
        self.handled[key].append(number)

    def _be_slow_or_kill(self) -> None:
        if self.rng.random() < 0.3:
            self.runtime.run_until(lambda: False, self.rng.random() * 2)
        if self.deaths_left and self.rng.random() < 0.06:
            self.deaths_left -= 1
            self.rng.choice(self.ways_to_die)()

    def _missing(self) -> set[int]:
        done = {number for numbers in self.handled.values() for number in numbers}
        return set(range(COUNT)) - self.final - done

    def _is_complete(self) -> bool:
        return not self._missing()

    def letter_numbers(self) -> list[int]:
        """The messages that became letters."""
        return [int(stored.letter.error_text) for stored in self.letters.all()]

    def own(self, key: str) -> list[int]:
        """What was sent of a key and is not to fail for good."""
        return [n for n, of in enumerate(self.keys) if of == key and n not in self.final]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stack", STACKS)
def test_each_key_is_handled_once_and_in_order_whatever_stores_and_handlers_do(
    stack: str, seed: int
) -> None:
    """pipes D-2, S-2, G-3: nobody dies. What always fails is one letter each, and stands aside."""
    ordeal = Ordeal(stack, seed, deaths=0)
    ordeal.run()
    assert {key: ordeal.own(key) for key in ordeal.handled} == ordeal.handled
    assert sorted(ordeal.letter_numbers()) == sorted(ordeal.final)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stack", STACKS)
def test_no_key_leaves_anything_out_though_senders_receivers_and_lanes_die(
    stack: str, seed: int
) -> None:
    """pipes G-3, G-5, L-5: five deaths, from inside of handlers. A key steps back, and goes on without a hole."""
    ordeal = Ordeal(stack, seed, deaths=5)
    ordeal.run()
    for key, numbers in ordeal.handled.items():
        own, highest = ordeal.own(key), -1
        for place in map(own.index, numbers):
            assert place <= highest + 1, f"{key} skipped to {own[place]}"
            highest = max(highest, place)
    assert set(ordeal.letter_numbers()) == ordeal.final
    assert len(ordeal.letter_numbers()) == len(ordeal.final)
