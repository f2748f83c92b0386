"""Stages that hang, and stages that remember: both are told of."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from surepipe.pipelines.simulate import sandbox as watch
from surepipe.pipelines.simulate.campaign import CannotSimulate, run_one
from surepipe.pipelines.simulate.memory import changed, memory_of
from surepipe.pipelines.simulate.simulating import NotDeterministic, handler_subject, simulation_of
from surepipe.simulation.options import Options

KEPT: list[object] = []
"""What a stage of these tests keeps where it must not."""


LOCK = threading.Lock()
"""What a stage holds where it must not."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A call hangs after a moment here; nothing is kept from test to test."""
    monkeypatch.setattr(watch, "HANGS_AFTER_S", 0.05)
    yield
    KEPT.clear()


def _loops(message: object) -> None:
    while message:
        pass


def _loops_and_catches(message: object) -> None:
    for _ in range(2):
        with suppress(BaseException):  # the worst that a stage can do
            _loops(message)


def _waits_for_itself(message: object) -> object:
    lock = threading.Lock()
    with lock, lock:
        return message


async def _holds_a_lock_over_an_await(message: object) -> object:
    async def held() -> None:
        with LOCK:
            await asyncio.sleep(0.01)

    await asyncio.gather(held(), held())
    return message


def _passes_on(message: object) -> object:
    return message


def _keeps(message: object) -> None:
    KEPT.append(message)


@pytest.mark.parametrize("handler", [_loops, _loops_and_catches])
def test_a_stage_that_does_not_come_back_is_ended_and_told_with_its_place(handler: object) -> None:
    """It loops for ever, and once more when it is interrupted (simulation X-25)."""
    with pytest.raises(CannotSimulate, match="has not come back from a call") as refused:
        run_one(handler_subject(lambda: handler, [1]), Options(messages=1))
    assert f"{Path(__file__).name}:" in str(refused.value)
    assert refused.value.refusals[0].function.endswith(":_loops")


@pytest.mark.parametrize(
    ("handler", "advice"),
    [
        (_waits_for_itself, "a lock that it holds itself"),
        (_holds_a_lock_over_an_await, "asyncio.Lock"),
    ],
)
def test_a_stage_that_waits_for_a_lock_for_ever_is_ended_too(handler: object, advice: str) -> None:
    """What waits inside of the interpreter takes no step of its own (simulation X-25)."""
    with pytest.raises(CannotSimulate, match="has not come back from a call") as refused:
        run_one(handler_subject(lambda: handler, [1]), Options(messages=1))
    (refusal,) = refused.value.refusals
    assert advice in refusal.advice


def test_after_a_stage_that_hung_the_next_run_is_as_ever() -> None:
    """Nothing is raised any more, and nobody watches (simulation X-25)."""
    with pytest.raises(CannotSimulate):
        run_one(handler_subject(lambda: _loops, [1]), Options(messages=1))
    result, outcome = run_one(handler_subject(lambda: _passes_on, [1]), Options(messages=1))
    assert (result.violations, outcome.dead) == ((), 0)


_TRACED_AFTERWARDS = """
import sys
from surepipe.pipelines.simulate.sandbox import watched

class Hung(BaseException): ...

def called(): ...

with watched(lambda: None, str, Hung):
    pass
try:
    with watched(lambda: 1, str, Hung, limit_s=0.05):
        while True:
            pass
except Hung:
    sys.settrace(lambda frame, event, detail: None)
    called()
"""


def test_a_tracer_works_after_calls_were_watched() -> None:
    """On Python 3.11 an interruption that was taken back would keep a debugger at its first call for ever."""
    subprocess.run([sys.executable, "-c", _TRACED_AFTERWARDS], check=True, timeout=60)


def _fine(run: object) -> bool:
    return run is not None


def test_what_a_stage_keeps_in_its_module_is_reported() -> None:
    """It counts its messages in a global list (simulation X-25)."""
    found = simulation_of(lambda: (_keeps, _fine), messages=[1, 2]).run(range(2))
    assert found.memory == (f"{__name__}.KEPT",)


def test_a_stage_that_goes_by_what_it_kept_is_named_when_a_seed_goes_two_ways() -> None:
    """The report of the difference names the global (simulation X-25)."""

    def handle(message: object) -> int:
        KEPT.append(message)
        return len(KEPT)

    with pytest.raises(NotDeterministic, match=r"went two ways.*KEPT.*a crash would lose"):
        simulation_of(lambda: (handle, _fine), messages=[1, 2]).run(range(2))


def test_a_stage_without_memory_leaves_nothing_to_report() -> None:
    """Its module has constants, functions and classes, and they stay as they are."""
    assert simulation_of(lambda: (_passes_on, _fine), messages=[1]).run(range(1)).memory == ()
    assert changed(memory_of([sys.modules[__name__]]), memory_of([sys.modules[__name__]])) == ()


@pytest.mark.parametrize(
    "change",
    ["kept['a'].append(1)", "Stage.seen.add(1)", "stage.count = 1", "number += 1", "late = {}"],
)
def test_every_kind_of_global_content_is_compared(change: str) -> None:
    """Nested lists, fields of classes and of objects, numbers, names that are new."""
    module = ModuleType("stages")
    exec(
        "class Stage:\n    seen = set()\nkept, stage, number = {'a': []}, Stage(), 0", vars(module)
    )
    before = memory_of([module])
    exec(change, vars(module))
    assert len(changed(before, memory_of([module]))) == 1
