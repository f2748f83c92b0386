"""What callers give: a function that can't take what it will be given, a name that there is not, one message for
many. Each is refused at once, with what to give instead. And where a function of theirs has raised."""

from __future__ import annotations

import difflib
import inspect
import os
import sysconfig
import traceback
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import cast

from surepipe.errors import ConfigurationError, MisuseError, SurepipeError

SECONDS_MAX = 1_000_000_000
"""Above this, thirty years, clocks overflow."""
_LIBRARIES = tuple(
    path for name in ("stdlib", "platstdlib", "purelib") if (path := sysconfig.get_path(name))
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


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


def require(
    is_right: bool,
    argument: str,
    value: object,
    wanted: str,
    *,
    error: type[SurepipeError] = MisuseError,
) -> None:
    """Raises ``error``, which names the argument, what was given and what to give, unless that is right."""
    if not is_right:
        raise error(f"{argument} is {value!r}; give {wanted}")


def require_seconds(
    whose: str, value: object, name: str = "timeout", *, or_none: bool = True
) -> None:
    """Raises MisuseError for what is no time to wait. A string or NaN would fail in the middle, or never end.

    Where None waits for ever, a negative one is what is left of a deadline that has passed, and waits for nothing.
    Where it doesn't, as at an end that gives up what is left, somebody may mean just that by -1: it is refused.
    """
    is_right = value is None and or_none
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_right = (or_none or value >= 0) and value <= SECONDS_MAX
    most = f"{SECONDS_MAX:,}"
    wanted = f"up to {most}, or None to wait for ever" if or_none else f"from 0 to {most}"
    wanted = f"a number of seconds {wanted}"
    require(is_right, f"{whose}: {name}", value, wanted)


def require_name(name: object) -> None:
    """Raises ConfigurationError for what no pipe can be called."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ConfigurationError(
            f"a pipe needs a name, its ends and its traces are found by it; {name!r} is none"
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggest the name that was probably meant, or list all."""
    close = difflib.get_close_matches(word, known := sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else "known are " + ", ".join(known)


def refuse_unknown(
    face: str,
    given: Iterable[str],
    known: Iterable[str],
    elsewhere: Callable[[str], str] = lambda _: "",
) -> None:
    """Raises TypeError, as Python does, for a keyword that there is not. ``elsewhere`` tells where there is one of
    this name, or gives ''."""
    names = set(known)
    for word in sorted(set(given) - names):
        hint = elsewhere(word) or nearest(word, names)
        raise TypeError(f"{face} got an unexpected keyword argument {word!r}: {hint}")


def require_several(what: str, messages: object, of_one: str) -> None:
    """Raises MisuseError for what is one message, or no messages that a plain loop gives."""
    name = type(messages).__name__
    if isinstance(messages, str | bytes | bytearray | memoryview | Mapping):
        raise MisuseError(f"{what} got one {name}: use {of_one} for it, or put it in a list")
    if isinstance(messages, AsyncIterable):
        raise MisuseError(
            f"{what} got {name}, which only async for goes through: write async for message in it, with "
            f"{of_one} for each"
        )
    if not isinstance(messages, Iterable):
        raise MisuseError(f"{what} got {name}: give a list of messages, or another iterable")


def is_users(file: str) -> bool:
    """Whether a file of code is neither Python's, nor installed, nor surepipe's."""
    return not file.startswith(("<", *_LIBRARIES)) and not file.startswith(_PACKAGE + os.sep)


def traceback_of(error: BaseException) -> str:
    """Where an error was raised, from the user's code on, and what led to it, as Python writes it. How that code
    came to be called says nothing of the error; one that never was in it is shown whole."""
    whole = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        if (one := waiting.pop()) is not None:
            frames = enumerate(one.stack)
            del one.stack[: next((n for n, frame in frames if is_users(frame.filename)), 0)]
            waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(whole.format()).rstrip("\n")
