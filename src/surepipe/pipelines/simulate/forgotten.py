"""Coroutines and tasks that a stage begins and nobody waits for.

Python only warns of them, so a run looks as if all was well. What they were to do is not done, or is done at some
time after the message was settled, and lost when the process ends.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any, TypeAlias, cast

from surepipe.core.callables import is_users
from surepipe.pipelines.users_code import place_of, place_of_code
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.loops import ProcessLoop

Sentences: TypeAlias = dict[tuple[str, str], None]
"""Each with its stage."""
_HOOK = "_warn_unawaited_coroutine"
"""What Python calls of ``warnings`` for a coroutine that was never awaited."""


@dataclass
class _State:
    told: Sentences = field(default_factory=dict[tuple[str, str], None])


_now = _State()


@contextmanager
def noted(told: Sentences, speaking: Callable[[], Life | None]) -> Generator[None]:
    """While this lasts, a sentence about each of them is put into ``told``."""
    before, _now.told = _now.told, told
    depth = sys.get_coroutine_origin_tracking_depth()
    real = vars(warnings).get(_HOOK)

    def unawaited(coroutine: Any) -> None:
        _unawaited(coroutine, speaking())

    sys.set_coroutine_origin_tracking_depth(max(1, depth))
    setattr(warnings, _HOOK, unawaited)
    try:
        yield
    finally:
        setattr(warnings, _HOOK, real)
        sys.set_coroutine_origin_tracking_depth(depth)
        _now.told = before


def _unawaited(coroutine: Any, life: Life | None) -> None:
    """A crash leaves coroutines behind that the stage would have awaited, so it says nothing after a fault."""
    place = _origin(coroutine)
    if life is not None and life.is_alive and place and not life.world.faults:
        stage = life.world.speaking
        _tell(
            stage,
            f"stage {stage} makes the coroutine {coroutine.__qualname__} at {place}, and nobody awaits it, so "
            "nothing of it is run: await it",
        )


def _tell(stage: str, sentence: str) -> None:
    _now.told[sentence, stage] = None


def _origin(coroutine: Any) -> str:
    """The file and line of the user's code that made it; empty where somebody else did."""
    origin = getattr(coroutine, "cr_origin", None) or [("", 0, "")]
    file, line, _ = origin[0]
    return f"{os.path.basename(file)}:{line}" if file and is_users(file) else ""


async def and_what_it_leaves(call: Awaitable[object], stage: str) -> object:
    """What a call of a stage gives; its tasks that still run then, or that fail unseen, are noted, and what it has
    called later. One that was cancelled has nothing more to do, and one that a library keeps is its own affair."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    loop.set_exception_handler(
        lambda _, told: _failed(
            loop.stage_of(told.get("task") or told.get("future")) or stage, told
        )
    )
    result = await call
    for task in loop.begun_by_this_call():
        coroutine: Any = task.get_coro()
        place = _origin(coroutine)
        if place and not task.cancelling():
            _tell(
                stage,
                f"stage {stage} begins the task {coroutine.__qualname__} at {place} and returns before that is "
                "over: nobody sees it fail, and it is lost when the process ends, with the message settled: await "
                "it, or begin it in an asyncio.TaskGroup",
            )
    for function in loop.put_off_by_this_call():
        if code := _users_code_of(function):
            _tell(
                stage,
                f"stage {stage} has {code.co_name} at {place_of_code(code)} called later by the loop, and returns "
                "before that: it is lost when the process ends, with the message settled: do it before the stage "
                "returns",
            )
    return result


def _users_code_of(function: Any) -> CodeType | None:
    """That of a function or method of the user's; None for what a library has called later."""
    while isinstance(function, partial):
        function = cast("Any", function.func)
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code if isinstance(code, CodeType) and is_users(code.co_filename) else None


def _failed(stage: str, told: dict[str, Any]) -> None:
    """Called by the loop for what nobody else has heard of."""
    error = told.get("exception")
    if isinstance(error, Exception):
        place = place_of(error)
        where = f" at {place}" if place else ""
        _tell(
            stage,
            f"a task of stage {stage} raised {type(error).__name__}{where}, and nobody awaits it, so its message "
            "counts as handled: await it, or begin it in an asyncio.TaskGroup",
        )
