"""What a function takes, as far as it tells: whoever is given one looks before the first message does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

from surepipe.errors import MisuseError, SurepipeError


def refusal_of(function: object, arguments: str) -> str:
    """Why a call with these, such as ``message, context``, would raise; '' for one that takes them, and for a
    builtin that does not tell."""
    try:
        signature = inspect.signature(cast("Callable[..., object]", function))
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*arguments.split(", "))
    except TypeError as error:
        return str(error)
    return ""


def require_call(
    what: str, function: object, arguments: str, error: type[SurepipeError] = MisuseError
) -> None:
    """Raises ``error`` for what is no function of these arguments, and would fail at every message."""
    if not callable(function):
        raise error(f"{what} is {function!r}; give a function that is called with ({arguments})")
    if why := refusal_of(function, arguments):
        name = getattr(function, "__name__", type(function).__name__)
        raise error(f"{what} is called with ({arguments}), and {name} does not take that: {why}")
