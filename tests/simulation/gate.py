"""The gate of determinism: drawn runs of every subject, in two processes with different hash seeds.

    python -m tests.simulation.gate [SEEDS [WORD ...]]

Subjects are the counting machines, each pipe and stack that hunts are after, the message queues, and the pipelines
among the examples with their actors and stages; words choose those whose names hold them all. Says for each that
the digests agree, or which seed and which row of which node are the first that differ (exit 4). A subject that
looks at the hash of a text is among those of each comparison: who does not see it differ has compared nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from surepipe.audit.trace import Kind, Row
from surepipe.errors import ContractViolation
from surepipe.pipelines.simulate.campaign import draw_for, run_one
from surepipe.pipelines.simulate.simulating import Simulation, simulation_of
from surepipe.pipes.message_queue import BoundedQueue, Checked, Message, OrderedQueue
from surepipe.simulation.chance.randomness import Draws, draws
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import run_hop
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import Subject
from surepipe.simulation.world import digest_of_rows
from tests.faults.quarry import QUARRY
from tests.simulation.kit import COUNTING

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PIPELINES = ("clicks.yaml", "deploy/pipeline.yaml", "orders.yaml")
SEEDS = 500
CALLS = 60
"""of a message queue, in one run"""
NOT_DETERMINISTIC = 4
HASH_SEEDS = "12"

Queue: TypeAlias = Checked[Message]
Played: TypeAlias = tuple[str, Sequence[Row]]
"""The digest of a run, and its rows."""
Play: TypeAlias = Callable[[int], Played]
"""One run of a seed."""


# What runs.


def hop(subject: Subject, seed: int) -> Played:
    """A pipe, under any faults."""
    options = draw_options(seed, promise_of(subject), mode=Mode.BREAK)
    result = run_hop(subject, options, judge=None)
    return result.digest, result.rows


@cache
def simulation(name: str) -> Simulation:
    """An example, read once in each process."""
    os.environ.setdefault("CLICKS", "clicks")  # asked for by a file; nothing is opened there
    return simulation_of(EXAMPLES / name)


def pipeline(name: str, seed: int) -> Played:
    """An example with its actors and stages, under any faults."""
    found = simulation(name)
    options = draw_for(found.subject, seed, mode=Mode.BREAK, messages=found.messages)
    result, _ = run_one(found.subject, options)
    return result.digest, result.rows


def queue(make: Callable[[], Queue], seed: int) -> Played:
    """Calls of a message queue, and what it answers: every invariant is compared at each of them."""
    chance, called = draws(seed, "calls"), make()
    rows = [
        Row("calls", "queue", 1, step, "", step, Kind.CALLED, detail=_call(called, chance))
        for step in range(CALLS)
    ]
    return digest_of_rows(rows), rows


def _call(called: Queue, chance: Draws) -> str:
    near = max(0, called.high + chance.between(-2, 3))
    payload = b"." * chance.below(7)
    verbs: Sequence[tuple[str, Callable[[], object]]] = (
        ("enqueue", lambda: called.enqueue(Message(near, payload))),
        ("enqueue_run", lambda: called.enqueue_run(near, [payload, b"", payload])),
        ("pick_one", called.pick_one),
        ("pick_runs", lambda: called.pick_runs(4, -1)),
        ("delete_all", lambda: called.delete_all(max(0, near - 4))),
    )
    verb, call = chance.pick(verbs)
    try:
        answer = repr(call())
    except ContractViolation as error:
        answer = type(error).__name__
    return f"{verb} {near}: {answer}; holds {list(called.snapshot())}"


def canary(seed: int) -> Played:
    """What must never agree."""
    rows = [Row("canary", "canary", 1, 0, "", 0, Kind.CALLED, detail=str(hash(f"seed {seed}")))]
    return digest_of_rows(rows), rows


CANARY = "canary"
QUEUES: Mapping[str, Callable[[], Queue]] = {
    "ordered": lambda: Checked(OrderedQueue[Message](), invariants="each"),
    "bounded": lambda: Checked(BoundedQueue[Message](6, 30), invariants="each"),
    "dense": lambda: Checked(BoundedQueue[Message](6, 30, dense=True), invariants="each"),
    "increasing": lambda: Checked(BoundedQueue[Message](6, 30, increasing=True), invariants="each"),
}
HOPS: Sequence[Subject] = (COUNTING, *QUARRY)
GATED: Mapping[str, Play] = {
    **{subject.name: partial(hop, subject) for subject in HOPS},
    **{f"message queue, {name}": partial(queue, make) for name, make in QUEUES.items()},
    **{f"example {name}": partial(pipeline, name) for name in PIPELINES},
}
"""Every subject by its name."""


# The comparison.


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two processes part."""

    name: str
    seed: int
    step: int
    rows: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.name}: seed {self.seed} differs at step {self.step}:\n  " + "\n  ".join(
            self.rows
        )


def differences(names: Sequence[str], seeds: Sequence[int]) -> list[Difference]:
    """The first difference of each of these subjects between two processes, each of which runs all seeds."""
    every = [CANARY, *names]
    one, other = (told(hash_seed, "digests", every, seeds) for hash_seed in HASH_SEEDS)
    runs = [(name, seed) for name in every for seed in seeds]
    parted = dict[str, int]()
    for (name, seed), digest, again in zip(runs, one, other, strict=True):
        if digest != again:
            parted.setdefault(name, seed)
    assert parted.pop(CANARY, None) is not None, "the canary was not caught: nothing was compared"
    return located(parted)


def located(parted: Mapping[str, int]) -> list[Difference]:
    """The first row that differs, for each subject at a seed."""
    return [_located(name, seed) for name, seed in parted.items()]


def _located(name: str, seed: int) -> Difference:
    one, other = (told(hash_seed, "rows", [name], [seed]) for hash_seed in HASH_SEEDS)
    shorter = min(len(one), len(other))
    step = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    both = ([*one, "the run is over"][step], [*other, "the run is over"][step])
    return Difference(name, seed, step, both)


def told(hash_seed: str, verb: str, names: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """What this module says in a process of its own."""
    command = [sys.executable, "-m", "tests.simulation.gate", verb, f"{seeds[0]}:{seeds[-1] + 1}"]
    found = subprocess.run(
        [*command, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()


def say(verb: str, names: Sequence[str], seeds: range) -> None:
    """What is compared: the digests of these runs, or the rows of one."""
    for name in names:
        for seed in seeds:
            digest, rows = (canary if name == CANARY else GATED[name])(seed)
            lines = [digest] if verb == "digests" else [repr(row) for row in rows]
            sys.stdout.write("".join(f"{line}\n" for line in lines))


def main(arguments: Sequence[str]) -> int:
    """Compare all subjects; or, asked by itself, say what is to be compared."""
    if arguments and arguments[0] in ("digests", "rows"):
        verb, seeds, *names = arguments
        first, _, end = seeds.partition(":")
        say(verb, names, range(int(first), int(end)))
        return 0
    count = int(arguments[0]) if arguments else SEEDS
    agreed = True
    for name in GATED:
        if all(word in name for word in arguments[1:]):
            found = differences([name], range(count))
            agreed = agreed and not found
            sys.stdout.write(f"{found[0] if found else f'{name}: {count} seeds agree'}\n")
            sys.stdout.flush()
    return 0 if agreed else NOT_DETERMINISTIC


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
