"""Coroutines and tasks that a stage begins and nobody waits for: each is told with stage and line."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.pipelines.simulate.simulating import NotExercised, simulation_of
from tests.pipelines.simulate.kit import simulated


async def _look(message: object) -> object:
    await asyncio.sleep(0.1)
    return message


async def _fail(message: object) -> object:
    raise ValueError(message)


def _makes_a_coroutine(message: object) -> None:
    _look(message)  # type: ignore[unused-coroutine]


async def _awaits_one_of_two(message: object) -> None:
    _look(message)  # type: ignore[unused-coroutine]
    await _look(message)


async def _leaves_a_task(message: object) -> None:
    asyncio.create_task(_look(message))  # noqa: RUF006 - that is what is looked for


async def _leaves_a_task_that_fails(message: object) -> None:
    asyncio.create_task(_fail(message))  # noqa: RUF006 - that is what is looked for
    await asyncio.sleep(0.2)


async def _awaits_all(message: object) -> None:
    await asyncio.gather(_look(message), _look(message))
    task = asyncio.create_task(_fail(message))
    with pytest.raises(ValueError, match="m"):
        await task


Handler = Callable[[object], object]


def _line(function: Callable[..., object]) -> str:
    """The first line in it."""
    return f"{Path(__file__).name}:{inspect.getsourcelines(function)[1] + 1}"


def _note(message: object) -> None:
    del message


async def _puts_it_off(message: object) -> None:
    asyncio.get_running_loop().call_later(0.01, _note, message)


async def _puts_a_method_off(message: object) -> None:
    asyncio.get_running_loop().call_later(0.01, partial(Noting().note, message))


class Noting:
    """What a user has."""

    def note(self, message: object) -> None:
        """Nothing."""
        del message


LEFT: dict[Handler, str] = {
    _puts_it_off: f"stage handler has _note at {Path(__file__).name}:{_note.__code__.co_firstlineno} called later",
    _puts_a_method_off: f"stage handler has note at {Path(__file__).name}:{Noting.note.__code__.co_firstlineno}",
    _makes_a_coroutine: f"stage handler makes the coroutine _look at {_line(_makes_a_coroutine)}",
    _awaits_one_of_two: f"stage handler makes the coroutine _look at {_line(_awaits_one_of_two)}",
    _leaves_a_task: f"stage handler begins the task _look at {_line(_leaves_a_task)} and returns",
    _leaves_a_task_that_fails: f"a task of stage handler raised ValueError at {_line(_fail)}",
}


async def _leaves_the_slower_one(message: object) -> object:
    both = {asyncio.create_task(_look(message)), asyncio.create_task(asyncio.sleep(9))}
    done, others = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    return done.pop().result()


LEAVES_A_TASK = """\
import asyncio
async def post(order):
    await asyncio.sleep(1)
async def price(order):
    asyncio.create_task(post(order))
    return order
"""


def _simulated(handler: Handler) -> object:
    return simulation_of(lambda: (handler, bool), messages=4).run(range(12))


@pytest.mark.parametrize("handler", LEFT)
@pytest.mark.filterwarnings("error")
def test_what_nobody_waits_for_is_told_with_its_place(handler: Handler) -> None:
    """Once, however many schedules there are (simulation X-24)."""
    with pytest.raises(NotExercised) as told:
        _simulated(handler)
    (line,) = (line for line in str(told.value).splitlines() if line.startswith("not judged: "))
    assert line.startswith(f"not judged: {LEFT[handler]}")


def test_what_a_crash_has_left_behind_is_nobodys_fault() -> None:
    """Processes end between a coroutine and its await (simulation X-27)."""
    assert _simulated(_awaits_all)


async def _has_a_library_wait(message: object) -> object:
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.call_later(9, event.set)
    loop.call_later(9, _note, message).cancel()
    async with asyncio.timeout(1):
        return message


def test_what_is_called_off_or_is_no_code_of_the_user_is_not_named() -> None:
    """A time limit that was not needed, say (simulation X-24)."""
    assert _simulated(_has_a_library_wait)


def test_a_task_that_was_cancelled_is_not_waited_for() -> None:
    """The first answer of two is enough (simulation X-24)."""
    assert _simulated(_leaves_the_slower_one)


def test_a_way_past_what_is_left_running_is_not_judged(tmp_path: Path) -> None:
    """By the command, whichever worker has met it (simulation X-24)."""
    done = simulated(tmp_path, LEAVES_A_TASK)
    assert done.returncode == Exit.NOT_EXERCISED
    told = (
        "not judged: stage price begins the task post at shop_stages.py:5 and returns before that"
    )
    assert told in done.stdout
    assert "asyncio.TaskGroup" in done.stdout
    assert re.search(r"^not judged in 4 schedules, see below  lines to out", done.stdout, re.M)
