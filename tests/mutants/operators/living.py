"""Puts other code into functions that are already loaded, wherever they were imported to."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

Place = tuple[str, int, int]


class Living:
    """The loaded functions of some files."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._functions: dict[str, list[FunctionType]] = {path: [] for path in paths}
        gc.unfreeze()  # what was put aside when all was loaded is no object to it otherwise
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                self._functions.get(thing.__code__.co_filename, []).append(thing)

    def is_current(self, path: str, code: CodeType) -> bool:
        """True when what is loaded is what the file says."""
        return not self.differing(path, code)

    def differing(self, path: str, code: CodeType) -> list[tuple[FunctionType, CodeType]]:
        """The loaded functions for which this code of the file has another body, and that body."""
        bodies = dict(_functions_in(code))
        return [
            (function, bodies[place])
            for function in self._functions[path]
            if (place := _place(function.__code__)) in bodies and bodies[place] != function.__code__
        ]

    def put(self, path: str, code: CodeType) -> list[FunctionType]:
        """Give the functions the bodies that they have in this code; those that changed."""
        changed = self.differing(path, code)
        for function, body in changed:
            function.__code__ = body
        return [function for function, _ in changed]


def _functions_in(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield _place(constant), constant
            yield from _functions_in(constant)


def _place(code: CodeType) -> Place:
    """Name and line; and the first column, for two lambdas on one line."""
    column = next((one[2] for one in code.co_positions() if one[2]), 0)
    return code.co_qualname, code.co_firstlineno, column if code.co_name == "<lambda>" else 0
