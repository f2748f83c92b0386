"""The user's own code: its functions by their paths, and where in it something went wrong."""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast

from surepipe.errors import ConfigurationError, words_of
from surepipe.pipelines.problems import nearest

_LIBRARIES = tuple(
    path for name in ("stdlib", "platstdlib", "purelib") if (path := sysconfig.get_path(name))
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def imported(path: str) -> Callable[..., object]:
    """Import what 'module:name' names. Raises ConfigurationError that says what is wrong, and where."""
    module_name, _, name = path.partition(":")
    found: object = _module(path, module_name)
    for step in name.split("."):
        if not hasattr(found, step):
            raise ConfigurationError(
                f"{path}: {module_name} has no {name!r}: {nearest(step, _functions(found))}"
            )
        found = getattr(found, step)
    if not callable(found):
        raise ConfigurationError(f"{path} is not a function")
    return found


def _module(path: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises: a slip of syntax, an exit
        raise ConfigurationError(
            f"{path}: {name} can't be imported from {Path.cwd()}: {_why(error, name)}"
        ) from error


def _why(error: BaseException, module: str) -> str:
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"{error}: is its folder the one that this runs in?"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    file, line = _last_place(error)
    return f"{file}:{line}: {told}" if (told := _told(error)) and file else told


def _told(error: BaseException) -> str:
    words = words_of(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _functions(where: object) -> list[str]:
    """What the user wrote there, without what is imported into it."""
    home = getattr(where, "__name__", "")
    found = {name: one for name, one in vars(where).items() if not name.startswith("_")}
    return [
        name
        for name, one in found.items()
        if callable(one) and getattr(one, "__module__", "") == home
    ]


def place_of(error: BaseException) -> str:
    """File and line of the user's code that an exception went through last; empty when there is none. Of the file
    the name alone: a trace is the same wherever its project lies."""
    file, line = _last_place(error)
    return f"{os.path.basename(file)}:{line}" if file else ""


def _last_place(error: BaseException) -> tuple[str, int]:
    found = ("", 0)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_users(frame.f_code.co_filename):
            found = frame.f_code.co_filename, line
    return found


def place_of_function(function: Callable[..., object]) -> str:
    """The file and line at which it is written; empty for what has no code of its own."""
    body: object = inspect.unwrap(function)
    if not inspect.isroutine(body):
        owner: type = body if inspect.isclass(body) else type(body)
        body = vars(owner).get("__call__", body)  # what a call of its instance runs
    code = getattr(inspect.unwrap(cast("Callable[..., object]", body)), "__code__", None)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""


def is_users(file: str) -> bool:
    """Whether a file of code is neither Python's, nor installed, nor surepipe's."""
    return not file.startswith(("<", *_LIBRARIES)) and not file.startswith(_PACKAGE + os.sep)
