"""What the text of a user's functions tells, where no run shows it, or shows it without saying why.

Where any error ends without a word, chance that a simulation can't replace, and in which line something is changed
that is kept between calls.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random, SystemRandom
from textwrap import dedent
from types import ModuleType
from typing import Any, TypeAlias, cast

Function: TypeAlias = Callable[..., object]

_EVERYTHING = frozenset({"Exception", "BaseException"})
_LEVELS = 4
"""So many functions deep it is read what a function of the plan calls."""


@dataclass(frozen=True, slots=True)
class Project:
    """What of the user's code is read for a stage: functions of these modules, but for those that have doubles."""

    modules: Collection[str] = ()
    replaced: Collection[str] = ()

    def has(self, function: object) -> bool:
        """It is a function of the project that runs as it is written."""
        home = str(getattr(function, "__module__", ""))
        path = f"{home}:{getattr(function, '__qualname__', '')}"
        return inspect.isfunction(function) and home in self.modules and path not in self.replaced


def unjudged_by(
    name: str, function: Function, project: Project | None = None, *, is_filter: bool = False
) -> Iterator[str]:
    """A sentence for each place where the function of this part does what no run can be held against.

    A stage that catches everything and then gives nothing says that its message goes no further; it says so in the
    run without faults, too. So it is where a function of the project that it calls does that. Chance that a
    simulation can't replace goes one way in every run of one process.
    """
    read = list(_read_with(function, project or Project()))
    seen: set[tuple[str, int]] = set()  # what stands in a function may be reached by itself, too
    for (tree, file, first), called in read:
        where = f", in {called}," if called else ""
        for swallows in _swallowing(tree, is_called=bool(called), is_filter=is_filter):
            place = file, first + swallows.line
            if place not in seen:
                seen.add(place)
                yield (
                    f"{name} {swallows.does} at {file}:{place[1]}{where} {swallows.then}: catch only what you "
                    "expect, and let the rest be raised. Then the message is tried again, and becomes a dead "
                    "letter in the end"
                )
    for (tree, file, first), called in read:
        for one, line in _private_chance(function, tree) if not called else ():
            yield (
                f"{name} draws from {one} at {file}:{first + line}, which is chance of its own: a simulation "
                "can't replace it, and a message that is tried again gets another answer. Draw from "
                "context.random, which gives a message the same numbers at each attempt, or make the answer "
                "from the message alone"
            )


_Source: TypeAlias = tuple[ast.Module, str, int]


def _read_with(function: Function, project: Project) -> Iterator[tuple[_Source, str]]:
    """The function as written, with what stands around it, and what of the project it calls, by name."""
    owner = function if inspect.isclass(function) else type(function)
    home = str(getattr(function, "__module__", None) or owner.__module__)
    project = replace(project, modules={home, *project.modules})
    seen: set[object] = set()
    pending: list[tuple[object, int]] = [(function, 0)]
    while pending:
        one, level = pending.pop(0)
        key = getattr(_body_of(one), "__code__", one)
        found = None if key in seen else _source_of(cast("Function", one))
        seen.add(key)
        if found is None:  # it has no source, or is a piece of a line
            continue
        yield found, str(getattr(one, "__qualname__", "")) if level else ""
        if hasattr(one, "__wrapped__"):  # what a decorator is around is read as the stage itself
            pending.append((getattr(one, "__wrapped__"), level))  # noqa: B009
        if level < _LEVELS:
            pending += [(it, level + 1) for it in _named_in(one, found[0]) if project.has(it)]


def _body_of(function: Any) -> object:
    """What a call of it runs: a method of its class, where it is a class or an instance of one."""
    if inspect.isroutine(function) or not callable(function):
        return function
    owner: type = function if inspect.isclass(function) else type(function)
    return getattr(owner, "__call__", function)  # noqa: B004 - what a call of its instance runs


def _named_in(function: object, tree: ast.Module) -> Iterator[object]:
    """What the names in a function stand for: in its module, around it, and in its own object or class."""
    body = inspect.unwrap(cast("Function", _body_of(function)))
    known = dict(getattr(body, "__globals__", {}))
    body = getattr(body, "__func__", body)
    cells = zip(
        getattr(getattr(body, "__code__", None), "co_freevars", ()),
        getattr(body, "__closure__", None) or (),
        strict=False,
    )
    for name, cell in cells:
        with suppress(ValueError):  # a variable that has no value yet
            known[name] = cell.cell_contents
    owner = _class_around(function, body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in known:
            yield known[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            held = owner if node.value.id in ("self", "cls") else known.get(node.value.id)
            found = _attribute_of(held, node.attr)
            yield getattr(found, "__func__", found)


def _attribute_of(held: object, name: str) -> object:
    """What a module, a class or an object has by this name, without running anything of it."""
    is_owner = isinstance(held, type | ModuleType)
    return inspect.getattr_static(held if is_owner else type(held), name, None)


def _class_around(function: Any, body: object) -> object:
    """The class of the object that a function belongs to, by its name where nothing else tells it."""
    if not inspect.isroutine(function):
        it = cast("object", function)
        return it if inspect.isclass(it) else type(it)
    if inspect.ismethod(function):
        held: object = function.__self__
        return held if inspect.isclass(held) else type(held)
    owner: object = sys.modules.get(getattr(body, "__module__", "") or "")
    for step in str(getattr(body, "__qualname__", "")).split(".")[:-1]:
        owner = getattr(owner, step, None)
    return owner


def _source_of(function: Function) -> _Source | None:
    """What is called, as written: its tree, its file, and how many lines stand before it."""
    body = _body_of(function)
    try:
        code = getattr(body, "__code__", body)  # of what is wrapped around another one, its own
        lines, first = inspect.getsourcelines(cast("Function", code))
        file = inspect.getsourcefile(cast("Function", code)) or ""
        return ast.parse(dedent("".join(lines))), file, first - 1
    except (OSError, TypeError, SyntaxError):
        return None


def _private_chance(function: Function, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Generators of random numbers that stand beside the function, and where it first names each of them."""
    body = inspect.unwrap(function)
    known = getattr(body, "__globals__", None) or vars(sys.modules.get(type(body).__module__, ast))
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            value = known.get(node.id)
            if isinstance(value, Random) and not isinstance(value, SystemRandom):
                yield node.id, node.lineno


_CHANGING = frozenset(
    (
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
        *("popleft", "put", "put_nowait", "remove", "setdefault", "update"),
    )
)


def changed_at(name: str) -> str:
    """The file and line of the first statement, in any function of its module, that changes a global; empty where
    none is found. ``name`` is that of its module, and its own (with that of its class)."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:end]))
        if module is None:
            continue
        try:
            tree = ast.parse(inspect.getsource(module))
        except (OSError, TypeError, SyntaxError):
            return ""
        functions = [
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        inside = (node for one in functions for node in ast.walk(one))
        lines = [
            node.lineno
            for node in inside
            if isinstance(node, ast.stmt) and _changes(node, parts[-1])
        ]
        return f"{os.path.basename(module.__file__ or '')}:{min(lines)}" if lines else ""
    return ""


def kept_in(function: Function) -> Iterator[str]:
    """What an instance keeps in itself from call to call, with the place of its first change: of a class, or of an
    instance, what another method than its ``__init__`` changes."""
    if inspect.isroutine(function):
        return
    owner: type = function if inspect.isclass(function) else type(function)
    try:
        lines, first = inspect.getsourcelines(owner)
        file = os.path.basename(inspect.getsourcefile(owner) or "")
        tree = ast.parse(dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    found: dict[str, int] = {}
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__":
            for node in ast.walk(method):
                if (name := _changed_of_self(node)) and isinstance(node, ast.expr):
                    found[name] = min(found.get(name, node.lineno), node.lineno)
    for name, line in found.items():
        yield f"{owner.__module__}.{owner.__qualname__}.{name} ({file}:{first - 1 + line})"


def _changed_of_self(node: ast.AST) -> str:
    """``total`` of ``self.total = 1``, ``self.total[key] += 1`` and ``self.total.append(1)``; else empty."""
    target: object = node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        target = node.func.value if node.func.attr in _CHANGING else node
    is_stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    if target is node and not is_stored:
        return ""
    while isinstance(target, ast.Subscript | ast.Attribute):
        if isinstance(target.value, ast.Name) and target.value.id == "self":
            return target.attr if isinstance(target, ast.Attribute) else ""
        target = target.value
    return ""


def _changes(statement: ast.stmt, name: str) -> bool:
    """It gives the name, or a part of it, another value, or calls what changes it."""
    if isinstance(statement, ast.Assign | ast.Delete):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        targets = [statement.target]
    else:
        targets = []
    nested = (ast.stmt, ast.ExceptHandler)
    calls = [
        node.func.value
        for child in ast.iter_child_nodes(statement)
        if not isinstance(child, nested)
        for node in ast.walk(child)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CHANGING
    ]
    return any(_is_in(target, name) for target in (*targets, *calls))


def _is_in(target: ast.expr, name: str) -> bool:
    """The name itself, or something in it: ``TOTAL``, ``TOTALS[key]``, ``self.total``."""
    while isinstance(target, ast.Subscript | ast.Attribute):
        if isinstance(target, ast.Attribute) and target.attr == name:
            return True
        target = target.value
    return isinstance(target, ast.Name) and target.id == name


# Where errors end. A default that is given instead is the user's word for what comes out, and is held.


_FunctionTree: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_TRIES = (ast.Try, ast.TryStar)
_TELLING = frozenset(
    (
        *("critical", "debug", "error", "exception", "info", "log", "print", "print_exc", "sleep"),
        *("warn", "warning"),
    )
)
"""Calls that do nothing for a message that failed."""
_GIVES_NOTHING = (
    "and then gives nothing, so a message for which anything fails is dropped without a word"
)
_GOES_ON = (
    "and goes on as if nothing had failed, so what failed for a message is lost without a word"
)


@dataclass(frozen=True, slots=True)
class _Swallows:
    """A place where any error ends: what it does, in which line, and what follows."""

    does: str
    line: int
    then: str


def _swallowing(tree: ast.Module, *, is_called: bool, is_filter: bool) -> Iterator[_Swallows]:
    for function in ast.walk(tree):
        if isinstance(function, _FunctionTree):
            tidying = set(_tidying(function))
            inside = list(_within(function.body))
            for node in (one for one in inside if one not in tidying):
                if isinstance(node, _TRIES):
                    yield from _by_handlers(
                        function, node, is_called=is_called, is_filter=is_filter
                    )
                elif isinstance(node, ast.With | ast.AsyncWith):
                    yield from _by_suppress(function, node)
            yield from _by_leaving_finally(inside)
            yield from _by_gather(inside)


def _by_handlers(
    function: _FunctionTree, node: ast.Try | ast.TryStar, *, is_called: bool, is_filter: bool
) -> Iterator[_Swallows]:
    # what a function that is called gives at its end is mostly not looked at
    is_last = node is function.body[-1] and not is_called
    for handler in node.handlers:
        if not _catches_everything(handler.type):
            continue
        if _gives_nothing(handler, is_last=is_last, is_filter=is_filter and not is_called):
            yield _Swallows("catches every exception", handler.lineno, _GIVES_NOTHING)
        elif _does_nothing(handler) and not _is_made_good(function, node, node.body):
            yield _Swallows("catches every exception", handler.lineno, _GOES_ON)


def _by_suppress(function: _FunctionTree, node: ast.With | ast.AsyncWith) -> Iterator[_Swallows]:
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and _called(call) == "suppress":
            is_broad = any(map(_catches_everything, call.args))
            if is_broad and not _is_made_good(function, node, node.body):
                yield _Swallows("suppresses every exception", node.lineno, _GOES_ON)


def _by_leaving_finally(inside: Sequence[ast.AST]) -> Iterator[_Swallows]:
    for node in inside:
        if isinstance(node, _TRIES):
            for one in _leaving(node.finalbody):
                how = type(one).__name__.lower()
                then = f"by `{how}`, which drops whatever was raised"
                yield _Swallows("leaves `finally`", one.lineno, then)


def _leaving(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What leaves these statements, and so takes the place of an error: but for the end of a loop in them."""
    looping = {
        inner
        for one in _within(body)
        if isinstance(one, ast.For | ast.AsyncFor | ast.While)
        for inner in _within(one.body)
        if isinstance(inner, ast.Break | ast.Continue)
    }
    for one in _within(body):
        if isinstance(one, ast.Return | ast.Break | ast.Continue) and one not in looping:
            yield one


def _by_gather(inside: Sequence[ast.AST]) -> Iterator[_Swallows]:
    """``gather(..., return_exceptions=True)``, where nobody looks at what it gave."""
    used = {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    for node in inside:
        if isinstance(node, ast.Assign):
            named = [one for one in node.targets if isinstance(one, ast.Name)]
            is_used = len(named) < len(node.targets) or any(one.id in used for one in named)
        else:
            is_used = not isinstance(node, ast.Expr)
        value = node.value if isinstance(node, ast.Assign | ast.Expr) and not is_used else None
        call = value.value if isinstance(value, ast.Await) else value
        if isinstance(call, ast.Call) and _called(call) == "gather" and _returns_exceptions(call):
            does = "gathers with return_exceptions=True"
            yield _Swallows(does, call.lineno, "and doesn't look at what came, so errors are lost")


def _returns_exceptions(call: ast.Call) -> bool:
    return any(
        one.arg == "return_exceptions"
        and isinstance(one.value, ast.Constant)
        and one.value.value is True
        for one in call.keywords
    )


def _within(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of these statements, but for what is in functions that are only made there."""
    pending = list(body)
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, _SCOPES):
            pending += ast.iter_child_nodes(node)


def _tidying(function: _FunctionTree) -> Iterator[ast.AST]:
    """What runs where the work is over, or has failed already: nothing of a message is lost by it."""
    for node in _within(function.body):
        if isinstance(node, _TRIES):
            yield from _within(node.finalbody)
            for handler in node.handlers:
                yield from _within(handler.body)


def _called(call: ast.Call) -> str:
    """The name of what is called, without what it belongs to."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _catches_everything(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    named = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    names = (
        one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in named
    )
    return any(name in _EVERYTHING for name in names)


def _gives_nothing(handler: ast.ExceptHandler, *, is_last: bool, is_filter: bool) -> bool:
    """It returns nothing, or goes on to the end of the function; and nowhere in it anything is raised."""
    inside = list(_within(handler.body))
    if any(isinstance(one, ast.Raise) for one in inside):
        return False
    returns = [one.value for one in inside if isinstance(one, ast.Return)]
    drops = any(_is_nothing(one) or (is_filter and _is_false(one)) for one in returns)
    return drops or (is_last and not returns)


def _does_nothing(handler: ast.ExceptHandler) -> bool:
    """It tells of the error at most: it gives nothing in place of what failed, and calls nobody who may."""
    for one in _within(handler.body):
        if isinstance(one, ast.Raise | ast.Return | ast.Assign | ast.AugAssign | ast.AnnAssign):
            return False
        if isinstance(one, ast.Delete | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        if isinstance(one, ast.Call) and _called(one) not in _TELLING:
            return False
    return True


def _is_made_good(function: _FunctionTree, node: ast.stmt, body: Sequence[ast.stmt]) -> bool:
    """After it something is raised, as after the last of several attempts; or there is a default for what it did
    not come to: one that its variable had before, or that is returned in the end."""
    last = max(
        getattr(one, "end_lineno", 0) or 0 for one in ast.walk(node) if isinstance(one, ast.stmt)
    )
    inside = list(_within(function.body))
    if any(isinstance(one, ast.Raise) and one.lineno > last for one in inside):
        return True
    end = function.body[-1]
    value = end.value if isinstance(end, ast.Return) else None
    if value is not None and any(isinstance(one, ast.Return) for one in _within(body)):
        return not _is_nothing(value)
    given = set(_names_given(_within(body)))
    for one in inside:
        if (
            isinstance(one, ast.Assign)
            and one.lineno < node.lineno
            and given & set(_names_given([one]))
        ):
            is_given_back = isinstance(value, ast.Name) and value.id in given
            if not (_is_nothing(one.value) and is_given_back):
                return True
    return False


def _names_given(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables that these statements give a value."""
    for node in nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            yield from (
                one.id
                for one in ast.walk(target)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            )


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _is_nothing(value: ast.expr | None) -> bool:
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
