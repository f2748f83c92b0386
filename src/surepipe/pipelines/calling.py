"""The user's functions, looked at before anything runs: what would fail at each message is refused at the start.

What can't be told from a function's signature shows in its first answer, which is then named as what is wrong.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from surepipe.actors.consuming.coroutines import HandlerKind, kind_of, must_end, unrun_in
from surepipe.core.callables import refusal_of
from surepipe.errors import ConfigurationError, MisuseError, a_or_an, described, words_of
from surepipe.pipelines.stages import made, wants_context
from surepipe.pipelines.users_code import place_of


class WrongAnswer(TypeError):
    """A stage gave what no message can be: a slip in its function, which every message will meet."""


class Unwritable(ValueError):
    """What a stage gave is nothing that the sink behind it can write: the stage's failure, not the sink's."""


class LeftEarly(RuntimeError):
    """A stage wanted to end more than its message: it called ``sys.exit``, or raised the like."""


@dataclass(frozen=True, slots=True)
class failing_only:  # noqa: N801 - read as a function
    """What a user's function raises fails its message, even if it is made to end a process or a thread.

    Raises LeftEarly for that, and where an async function was cancelled: unless the lane is told to end that waits
    for it, which no message is to blame for.
    """

    name: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, Exception):
            return
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if is_cancelled and must_end():
            return
        text = words_of(error)
        said = f": {text}" if text else ""
        # One that was cancelled may have returned all the same.
        did = "was cancelled" if is_cancelled else f"raised {type(error).__name__}"
        raise LeftEarly(f"{self.name} {did}{said}") from error


def told_of(error: Exception) -> str:
    """What a user's function raised, in one line."""
    return words_of(error) if isinstance(error, LeftEarly) else described(error)


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that can be called with each message. ``asks``: with its context too. ``awaits``: a coroutine."""

    function: Callable[..., object]
    asks: bool
    awaits: bool


def entry_of(
    what: str,
    path: str,
    found: Callable[..., object],
    *,
    may_yield: bool = False,
    takes_batches: bool = False,
) -> Entry:
    """A function, or an instance of a class, as the entry of a stage or sink.

    ``may_yield``: it may be a generator. Raises ConfigurationError for one that can't be called with a message
    (and its context), and MisuseError for a class whose instances can't be called.
    """
    function = _instance(what, path, found)
    asks = wants_context(function)
    _require_call(what, path, function, 2 if asks else 1)
    kind = kind_of(function)
    if kind is HandlerKind.ASYNC_GENERATOR:
        raise ConfigurationError(
            f"{what}: {path} is an async generator: return a list, or one message"
        )
    if kind is HandlerKind.GENERATOR and not may_yield:
        raise ConfigurationError(
            f"{what}: {path} is a generator, which gives many messages: write it as flat-map, or return one"
        )
    if takes_batches and (said := _takes_no_list(function)):
        raise ConfigurationError(
            f"{what}: {path} is given batches, which are lists, and takes {said}: take a list, or put it "
            "before the batch"
        )
    return Entry(function, asks, kind is HandlerKind.COROUTINE)


def require_key(what: str, path: str, function: Callable[..., object]) -> None:
    """Raises ConfigurationError for a function that can't tell a key of a message."""
    _require_plain(what, path, function)
    if kind_of(function).is_generator:
        raise ConfigurationError(
            f"{what}: {path} is a generator, and a key is one value: return it"
        )
    if why := refusal_of(function, "message"):
        raise ConfigurationError(
            f"{what}: {path} can't be called with a message ({why}): write def {_name(function)}(message)"
        )


def require_source(
    what: str, path: str, function: Callable[..., object], arguments: Mapping[str, object]
) -> None:
    """Raises ConfigurationError for a function that can't be called with these arguments, or is async."""
    _require_plain(what, path, function)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        given = f"the arguments {', '.join(arguments)}" if arguments else "no arguments"
        raise ConfigurationError(f"{what}: {path} can't be called with {given}: {error}") from None
    except ValueError:  # a builtin that does not tell
        return


def require_answer(what: str, path: str, answer: object) -> object:
    """Check the result of a stage, after anything in it that had to be awaited. Raises WrongAnswer for what
    nobody has run."""
    if not (kind := unrun_in(answer)):
        return answer
    hint = "write it as flat-map, or return a list" if "generator" in kind else "nobody runs that"
    if kind in ("coroutine", "Task", "Future"):
        hint = (
            "nobody waits for that: write async def, and await them there, in an asyncio.TaskGroup"
        )
    raise WrongAnswer(f"{what}: {path} gave {a_or_an(kind)}: {hint}")


def _instance(what: str, path: str, found: Callable[..., object]) -> Callable[..., object]:
    if inspect.isclass(found):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise ConfigurationError(
                f"{what}: the class {path} can't be made without arguments: {error}"
            ) from None
        except ValueError:  # a builtin that does not tell
            pass
    try:
        with failing_only("it"):
            return made(found)
    except MisuseError:
        raise
    except Exception as error:
        place = place_of(error)
        where = f" at {place}" if place else ""
        raise ConfigurationError(
            f"{what}: the class {path} can't be made: {told_of(error)}{where}"
        ) from error


def _require_call(what: str, path: str, function: Callable[..., object], count: int) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that does not tell
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        name = _name(function)
        raise ConfigurationError(
            f"{what}: {path}({', '.join(signature.parameters)}) can't be called with a message ({error}): write "
            f"def {name}(message), or def {name}(message, context)"
        ) from None


def _require_plain(what: str, path: str, function: Callable[..., object]) -> None:
    if kind_of(function).is_async:
        raise ConfigurationError(f"{what}: {path} is async, and a plain function is needed here")


def _body(function: Callable[..., object]) -> Callable[..., object]:
    """What a call of it runs: of an instance its ``__call__``."""
    if inspect.isroutine(function):
        return function
    return cast("Callable[..., object]", getattr(function, "__call__"))  # noqa: B004, B009 - the bound method


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "__call__")


def _takes_no_list(function: Callable[..., object]) -> str:
    """The type of the message that a function says it takes, if a list is none; '' when it may take one."""
    try:
        hints = get_type_hints(_body(function))
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError, NameError, AttributeError):  # hints that can't be resolved
        return ""
    hint: Any = hints.get(first, Any)
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if any(_may_be_list(kind) for kind in kinds):
        return ""
    return getattr(hint, "__name__", str(hint))


def _may_be_list(kind: Any) -> bool:
    plain: object = get_origin(kind) or kind
    if plain is Any or not inspect.isclass(plain) or getattr(plain, "_is_protocol", False):
        return True  # Any, a variable, a literal: nobody knows
    return issubclass(list, plain)
