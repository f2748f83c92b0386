"""Coroutines and tasks that a stage begins and nobody waits for: each is told with stage and line."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from surepipe.pipelines.simulate.simulating import simulation_of


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


LEFT: dict[Handler, str] = {
    _makes_a_coroutine: f"stage handler makes the coroutine _look at {_line(_makes_a_coroutine)}",
    _awaits_one_of_two: f"stage handler makes the coroutine _look at {_line(_awaits_one_of_two)}",
    _leaves_a_task: f"stage handler begins the task _look at {_line(_leaves_a_task)} and returns",
    _leaves_a_task_that_fails: f"a task of stage handler raised ValueError at {_line(_fail)}",
}


def _notes(handler: Handler) -> tuple[str, ...]:
    return simulation_of(lambda: (handler, bool), messages=4).run(range(12)).notes


@pytest.mark.parametrize("handler", LEFT)
@pytest.mark.filterwarnings("error")
def test_what_nobody_waits_for_is_told_with_its_place(handler: Handler) -> None:
    """Once, however many schedules there are (simulation X-24)."""
    (note,) = _notes(handler)
    assert note.startswith(LEFT[handler])


def test_what_a_crash_has_left_behind_is_nobodys_fault() -> None:
    """Processes end between a coroutine and its await (simulation X-27)."""
    assert _notes(_awaits_all) == ()
