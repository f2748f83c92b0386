"""What asyncio has for calls that wait for each other, in simulated stages: as in a process of production."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from surepipe.pipelines.simulate.campaign import CannotSimulate, draw_for, run_one
from surepipe.pipelines.simulate.simulating import handler_subject, simulation_of
from tests.pipelines.simulate.kit import simulated

Builder = Callable[[], object]
_AT_TOP = asyncio.Lock()
_USED = asyncio.Lock()
_SEEN: ContextVar[int] = ContextVar("_SEEN", default=0)


async def _within(gate: asyncio.Lock | asyncio.Semaphore | asyncio.Condition) -> None:
    async with gate:
        await asyncio.sleep(0.01)


async def _thrice(gate: asyncio.Lock | asyncio.Semaphore | asyncio.Condition) -> None:
    await asyncio.gather(_within(gate), _within(gate), _within(gate))


def _at_top() -> object:
    async def handle(_: object) -> None:
        await _thrice(_AT_TOP)

    return handle, bool


class _OfClass:
    gate = asyncio.Semaphore(1)

    async def __call__(self, _: object) -> None:
        await _thrice(self.gate)


@dataclass
class _InField:
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, _: object) -> None:
        await _thrice(self.gate)


class _AtFirstUse:
    gate: asyncio.Semaphore | None = None

    async def __call__(self, _: object) -> None:
        if self.gate is None:
            self.gate = asyncio.BoundedSemaphore(2)
        await _thrice(self.gate)


def _in_build() -> object:
    gate = asyncio.Condition()

    async def handle(_: object) -> None:
        await _thrice(gate)

    return handle, bool


def _pool() -> object:
    """What build has put into a queue is there in each process, whatever one had taken that has ended."""
    pool: asyncio.Queue[int] = asyncio.Queue()
    for number in range(2):
        pool.put_nowait(number)

    async def ask() -> None:
        one = await pool.get()
        await asyncio.sleep(0.01)
        pool.put_nowait(one)

    async def handle(_: object) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())

    return handle, bool


def _in_order() -> object:
    async def put(queue: asyncio.PriorityQueue[int]) -> None:
        for number in (3, 1, 2):
            await queue.put(number)

    async def handle(_: object) -> None:
        queue: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
        async with asyncio.TaskGroup() as group:
            group.create_task(put(queue))
        assert [await queue.get() for _ in range(3)] == [1, 2, 3]

    return handle, bool


def _signalled() -> object:
    async def handle(_: object) -> None:
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        began, future = loop.time(), loop.create_future()
        loop.call_later(0.25, event.set)
        async with asyncio.timeout(1):
            await event.wait()
        assert round(loop.time() - began, 3) == 0.25
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(future), 0.5)
        assert asyncio.current_task() is not None

    return handle, bool


def _with_context() -> object:
    async def handle(_: object) -> None:
        assert _SEEN.get() == 0
        _SEEN.set(1)
        await asyncio.sleep(0.01)
        assert _SEEN.get() == 1

    return handle, bool


def _spinning() -> object:
    async def handle(_: object) -> None:
        slow = asyncio.create_task(asyncio.sleep(0.05))
        while not slow.done():
            await asyncio.sleep(0)

    return handle, bool


WORKING: tuple[Builder, ...] = (
    *(_at_top, lambda: (_OfClass(), bool), lambda: (_InField(), bool), _in_build, _pool),
    *(lambda: (_AtFirstUse(), bool), _in_order, _signalled, _with_context, _spinning),
)


@pytest.mark.parametrize("build", WORKING)
def test_it_works_wherever_it_was_made(build: Builder) -> None:
    """With processes that end, and are replaced, with somebody inside: nothing becomes a dead letter."""
    done = simulation_of(build, messages=4).run(range(24))
    assert (done.runs, done.dead) == (24, 0)


STAGES = """\
import asyncio
{top}
class Ask:
    def __init__(self):
        self.gate = asyncio.Semaphore(2)
    async def __call__(self, row):
        async with {gate}:
            await asyncio.sleep(0.01)
        return row
price = Ask
"""
_ROWS = [f"{{k: k{number % 3}, n: {number}}}" for number in range(12)]
LANES = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: shop.db}}}}
sources: {{lines: {{kind: jsonl, path: lines.jsonl, key: k}}}}
pipes:
  intake: {{from: lines, journal: main, state: main, lanes: 3}}
stages: {{price: {{from: intake, call: "shop_stages:price", retries: 3, dead_letter: main/bad}}}}
sinks: {{out: {{from: price, kind: jsonl, path: out.jsonl}}}}
simulate: {{sample: {{lines: [{", ".join(_ROWS)}]}}}}
"""
SEEDS = ("--seeds", "16")
GATES = {
    "made in the class": ("", "self.gate"),
    "made in the module": ("gate = asyncio.Lock()", "gate"),
    "made at first use": (
        "gate = None\ndef lazily():\n    global gate\n    gate = gate or asyncio.Lock()\n    return gate",
        "lazily()",
    ),
}


@pytest.mark.parametrize("made", GATES)
def test_calls_of_several_lanes_wait_for_each_other(made: str, tmp_path: Path) -> None:
    """Under two hash seeds the same, and a lock is no memory that a crash would lose."""
    top, gate = GATES[made]
    done = simulated(tmp_path, STAGES.format(top=top, gate=gate), *SEEDS, pipeline=LANES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dead letters" not in done.stdout
    assert "stages keep" not in done.stdout


def _leaking() -> object:
    gate = asyncio.Lock()

    async def handle(_: object) -> None:
        await gate.acquire()

    return handle, bool


def test_a_call_that_waits_for_ever_is_told_with_its_line() -> None:
    """The second message waits for what the first one has never given back."""
    with pytest.raises(
        CannotSimulate, match=r"^test_asyncio.py:\d+: stage handler waits there for"
    ):
        simulation_of(_leaking, messages=4).run(range(4))


def _used_before() -> object:
    async def handle(_: object) -> None:
        await _thrice(_USED)

    return handle, bool


def test_what_another_loop_has_used_is_told_as_that() -> None:
    """With the line, and without the place in memory, which is another one in each process."""
    asyncio.run(_thrice(_USED))
    with pytest.raises(CannotSimulate, match="of another event loop") as told:
        simulation_of(_used_before, messages=4).run(range(4))
    assert re.search(r"test_asyncio.py:\d+: a stage waits by", str(told.value))
    assert " at 0x" not in str(told.value)


def _raising() -> object:
    kept: list[object] = []

    def handle(message: dict[str, int]) -> None:
        kept.append(object())
        if message["n"] == 1:
            raise ValueError(f"no {kept[-1]!r}")

    return handle, bool


def test_a_place_in_memory_in_a_text_is_no_other_run() -> None:
    """Each run has the objects elsewhere."""
    subject = handler_subject(_raising, [{"n": number} for number in range(4)])
    options = draw_for(subject, 0, mode="claim", messages=4)
    kept = [run_one(subject, options) for _ in range(3)]
    assert len({result.digest for result, _ in kept}) == 1


LATE = """\
import asyncio
gate = asyncio.Semaphore(2)
async def price(row):
    async with gate:
        await asyncio.sleep(9 if row["n"] == 4 else 0.1)
    return row
def check(run):
    late = [one for one in run.letters if b'"n":4' not in one.payload.replace(b" ", b"")]
    assert not late, late
    assert run.dead, "nothing was late"
    assert len(run.delivered["out"]) >= 11
"""


def test_a_call_that_is_late_is_cancelled_and_gives_back_what_it_has(tmp_path: Path) -> None:
    """The place of one that sleeps on is free after its time limit: only its own message is a dead letter."""
    plan = LANES.replace("retries: 3", "time_limit_s: 1, retries: 3")
    plan = plan.replace("simulate: {", 'simulate: {check: "shop_stages:check", ')
    done = simulated(tmp_path, LATE, *SEEDS, pipeline=plan)
    assert done.returncode == 0, done.stdout + done.stderr
