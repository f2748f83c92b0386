"""Stages that catch whatever goes wrong and then give nothing: their message is dropped without a word.

No schedule shows that: a stage that gives nothing says that its message goes no further, and so it is in the run
without faults too. So the functions are read instead.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import TypeAlias, cast

Function: TypeAlias = Callable[..., object]

_EVERYTHING = frozenset({"Exception", "BaseException"})


def swallowed_by(name: str, function: Function) -> Iterator[str]:
    """A sentence for each place where the function of this part catches everything and gives nothing."""
    body: object = inspect.unwrap(function)
    if not inspect.isroutine(body):
        owner: type = body if inspect.isclass(body) else type(body)
        body = getattr(owner, "__call__")  # noqa: B004, B009 - what a call of its instance runs
    try:
        lines, first = inspect.getsourcelines(cast("Function", body))
        file = inspect.getsourcefile(cast("Function", body))
        tree = ast.parse(dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # it has no source, or a piece of a line
        return
    for handler in dict.fromkeys(_swallowing(tree)):
        yield (
            f"{name} catches every exception at {file}:{first + handler.lineno - 1} and then gives nothing, "
            "so a message for which anything fails is dropped without a word: catch only what you expect, and let "
            "the rest be raised. Then the message is tried again, and becomes a dead letter in the end"
        )


def _swallowing(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in ast.walk(node):
                if isinstance(one, ast.Try):
                    is_last = one is node.body[-1]
                    yield from (
                        handler
                        for handler in one.handlers
                        if _catches_everything(handler) and _gives_nothing(handler, is_last=is_last)
                    )


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(one, ast.Name) and one.id in _EVERYTHING for one in named)


def _gives_nothing(handler: ast.ExceptHandler, *, is_last: bool) -> bool:
    """It returns nothing, or goes on to the end of the function; and nowhere in it anything is raised."""
    inside = list(ast.walk(handler))
    if any(isinstance(one, ast.Raise) for one in inside):
        return False
    returns = [one for one in inside if isinstance(one, ast.Return)]
    return any(_is_nothing(one.value) for one in returns) or (is_last and not returns)


def _is_nothing(value: ast.expr | None) -> bool:
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
