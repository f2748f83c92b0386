"""The functions of a plan under simulation: those of the file, or their doubles."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import CodeType, ModuleType
from typing import TypeAlias, cast

from surepipe.errors import ConfigurationError

Function: TypeAlias = Callable[..., object]


class Functions:
    """Finds functions by their paths. ``given`` goes before everything else."""

    def __init__(
        self, replaced: Mapping[str, str] | None = None, given: Mapping[str, object] | None = None
    ) -> None:
        self._replaced = replaced or {}
        self._given = given or {}
        self.check: Callable[[object], object] | None = None

    def find(self, path: str) -> Function:
        """The function, class or double. Raises ConfigurationError that says what is wrong."""
        path = self._replaced.get(path, path)
        found = self._given.get(path)
        return cast("Function", found) if found is not None else imported(path)


def imported(path: str) -> Function:
    """What 'module:name' names. Raises ConfigurationError."""
    module_name, _, name = path.partition(":")
    try:
        found: object = import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(
            f"{path}: there is no module {module_name} ({error}): is its folder the one that this runs in?"
        ) from error
    for step in name.split("."):
        found = getattr(found, step, None)
    if not callable(found):
        raise ConfigurationError(f"{path}: {module_name} has no function {name}")
    return found


def keeper_of(path: str) -> tuple[ModuleType | type, str]:
    """Where what 'module:name' names is kept (a module, a class), and under which name.

    Raises ConfigurationError, also for what a class has from another one.
    """
    imported(path)
    module, _, name = path.partition(":")
    *classes, last = name.split(".")
    keeper: ModuleType | type = import_module(module)
    for step in classes:
        keeper = getattr(keeper, step)
    if last not in vars(keeper):
        raise ConfigurationError(f"simulate: replace: {path} is written elsewhere: name that place")
    return keeper, last


def module_of(function: object) -> ModuleType | None:
    """Where a function was written."""
    return sys.modules.get(getattr(function, "__module__", "") or "")


def place_of_function(function: Function) -> str:
    """The file and line at which it is written; empty for what has no code of its own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""


def globals_in(function: Function) -> Iterator[str]:
    """The globals that the code of a function names, with its module, whether or not they are data."""
    body: object = inspect.unwrap(function)
    codes = [getattr(body, "__code__", None)]
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            yield from (f"{getattr(body, '__module__', '')}.{name}" for name in code.co_names)
            codes += code.co_consts
