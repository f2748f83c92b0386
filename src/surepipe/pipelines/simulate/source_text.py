"""What the text of a user's functions tells, where no run shows it, or shows it without saying why.

Where any error ends without a word, chance that a simulation can't replace, and in which line something is changed
that is kept between calls.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AsyncContextDecorator,
    AsyncExitStack,
    ContextDecorator,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from random import Random, SystemRandom
from textwrap import dedent
from types import ModuleType
from typing import Any, TypeAlias, TypeGuard, cast

from surepipe.queues.book import Done

Function: TypeAlias = Callable[..., object]

_LEVELS = 4
"""So many functions deep it is read what a function of the plan calls."""


class _Use(Enum):
    """What becomes of the answer of a function."""

    GIVEN = "given on as it is"
    LOOKED_AT = "looked at, or a part of another one"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Project:
    """What of the user's code is read for a stage: functions of these modules, but for those that have doubles."""

    modules: Collection[str] = ()
    replaced: Collection[str] = ()

    def has(self, function: object) -> bool:
        """It is a function of the project that runs as it is written."""
        home = getattr(function, "__module__", "")
        return inspect.isfunction(function) and home in self.modules and not self.replaces(function)

    def replaces(self, function: object) -> bool:
        """It has a double."""
        home, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        return f"{home}:{name}" in self.replaced


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the names in a function stand for: in its module, around it, and in its own object or class."""

    known: Mapping[str, object]
    owner: object

    def value_of(self, node: ast.AST) -> object:
        """Without running anything; None for what only a run tells."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, vars(builtins).get(node.id))
        if not isinstance(node, ast.Attribute):
            return None
        held, name = node.value, node.attr
        found: Any
        if isinstance(held, ast.Call) and _called(held) == "super":
            above: tuple[type, ...] = getattr(self.owner, "__mro__", ())[1:]
            found = next((vars(one)[name] for one in above if name in vars(one)), None)
        else:
            is_own = isinstance(held, ast.Name) and held.id in ("self", "cls")
            found = _attribute_of(self.owner if is_own else self.value_of(held), name)
        return cast("object", getattr(found, "__func__", found))


_Source: TypeAlias = tuple[ast.Module, str, int]


@dataclass(frozen=True, slots=True)
class _Read:
    """A function that is read: its tree, its file, how many lines stand before it, and what is known of it."""

    function: Function
    tree: ast.Module
    file: str
    before: int
    scope: _Scope
    use: _Use
    called: str = ""
    """Its name, where it is one that the stage calls."""


def unjudged_by(
    name: str, function: Function, project: Project | None = None, *, is_filter: bool = False
) -> Iterator[str]:
    """A sentence for each place where the function of this part does what no run can be held against.

    A stage that catches everything and then gives nothing says that its message goes no further; it says so in the
    run without faults, too. So it is where a function of the project that it calls does that. Chance that a
    simulation can't replace goes one way in every run of one process.
    """
    project = _with_home_of(function, project or Project())
    read = list(_read_with(function, project))
    seen: set[tuple[str, int]] = set()  # what stands in a function may be reached by itself, too
    for one in read:
        where = f", in {one.called}," if one.called else ""
        for swallows in _Swallowing(one, project, is_filter and not one.called).all():
            place = one.file, one.before + swallows.line
            if place not in seen:
                seen.add(place)
                yield (
                    f"{name} {swallows.does} at {one.file}:{place[1]}{where} {swallows.then}: catch only what "
                    "you expect, and let the rest be raised. Then the message is tried again, and becomes a dead "
                    "letter in the end"
                )
    chances = dict(chance for one in read for chance in _private_chance(one))
    for what, where in chances.items():
        yield (
            f"{name} draws from {what} at {where}, which is chance of its own: a simulation can't replace it, and "
            "a message that is tried again gets another answer. Draw from context.random, which gives a message "
            "the same numbers at each attempt, or make the answer from the message alone"
        )


def _with_home_of(function: Function, project: Project) -> Project:
    owner = function if inspect.isclass(function) else type(function)
    home = str(getattr(function, "__module__", None) or owner.__module__)
    return replace(project, modules={home, *project.modules})


def _read_with(function: Function, project: Project) -> Iterator[_Read]:
    """The function as written, with what stands around it, and what of the project it calls, by name."""
    seen: set[object] = set()
    pending = [(function, 0, _Use.GIVEN)]
    while pending:
        one, level, use = pending.pop(0)
        key = getattr(_body_of(one), "__code__", one), use
        found = None if key in seen else _source_of(one)
        seen.add(key)
        if found is None:  # it has no source, or is a piece of a line
            continue
        scope = _scope_of(one)
        called = str(getattr(one, "__qualname__", "")) if level else ""
        yield _Read(one, *found, scope, use, called)
        if hasattr(one, "__wrapped__"):  # what a decorator is around is read as the stage itself
            pending.append((getattr(one, "__wrapped__"), level, use))  # noqa: B009
        if level < _LEVELS:
            named = _named_in(found[0], scope)
            pending += [
                (cast("Function", it), level + 1, how if use is _Use.GIVEN else use)
                for it, how in named
                if project.has(it)
            ]


def _body_of(function: Any) -> object:
    """What a call of it runs: a method of its class, where it is a class or an instance of one."""
    if inspect.isroutine(function) or not callable(function):
        return function
    owner: type = function if inspect.isclass(function) else type(function)
    return getattr(owner, "__call__", function)  # noqa: B004 - what a call of its instance runs


def _scope_of(function: object) -> _Scope:
    body = inspect.unwrap(cast("Function", _body_of(function)), stop=_is_written)
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
    return _Scope(known, _class_around(function, body))


def _is_written(function: object) -> bool:
    """It has a text of its own, as a decorator's function has, and `functools.cache` has not."""
    return hasattr(function, "__code__")


def _named_in(tree: ast.Module, scope: _Scope) -> Iterator[tuple[object, _Use]]:
    """What is named in a function, and what it does with the answers of that."""
    around = {inner: node for node in ast.walk(tree) for inner in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            yield scope.value_of(node), _use_of(node, around)


_GIVING = (
    *(ast.Return, ast.Lambda, ast.Yield, ast.YieldFrom),
    *(ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp),
)


def _use_of(node: ast.AST, around: Mapping[ast.AST, ast.AST]) -> _Use:
    """Of a function that is called here; one that is handed on may be used in any way."""
    call = around[node]
    if not isinstance(call, ast.Call) or call.func is not node:
        return _Use.GIVEN
    outer = around[call]
    outer = around[outer] if isinstance(outer, ast.Await) else outer
    if isinstance(outer, ast.Expr):
        return _Use.IGNORED
    if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
        name = outer.targets[0].id
        named = [one for one in around if isinstance(one, ast.Name) and one.id == name]
        is_replaced = sum(isinstance(one.ctx, ast.Store) for one in named) > 1  # by a default
        is_given = any(isinstance(around[one], ast.Return) for one in named)
        return _Use.GIVEN if is_given and not is_replaced else _Use.LOOKED_AT
    return _Use.GIVEN if isinstance(outer, _GIVING) else _Use.LOOKED_AT


def _attribute_of(held: object, name: str) -> object:
    """What a module, a class or an object has by this name, without running anything of it."""
    if held is None:
        return None
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


def _private_chance(read: _Read) -> Iterator[tuple[str, str]]:
    """Generators of random numbers that stand beside the function, and where it names each of them first."""
    for node in ast.walk(read.tree):
        value = read.scope.value_of(node)
        if isinstance(value, Random) and not isinstance(value, SystemRandom):
            yield ast.unparse(node), f"{read.file}:{read.before + getattr(node, 'lineno', 0)}"


_YES_OR_NO = frozenset(("all", "any", "bool", "isinstance"))


def said_to_nobody(function: Function) -> str:
    """The file and line of a condition in a check that neither ``return`` nor ``assert`` stands before, so that it
    always says yes; empty where there is none. What is printed beside something that may say no is no mistake."""
    source = _source_of(function)
    if source is None:
        return ""
    tree, file, before = source
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and _is_condition(node.value)
    ]
    if not any(map(_may_say_no, ast.walk(tree))):
        prints = (node for node in ast.walk(tree) if _is_print(node))
        lines += [cast("ast.Call", node).lineno for node in prints if _has_condition(node)]
    return f"{os.path.basename(file)}:{before + min(lines)}" if lines else ""


def _may_say_no(node: ast.AST) -> bool:
    """Functions of the user's own may assert, and so may one that is called for nobody's answer."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        return not (hasattr(builtins, name) or name[:1].isupper())
    if isinstance(node, ast.Return):
        return node.value is not None and not _is_print(node.value)
    is_called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    is_bare = is_called and not _is_print(cast("ast.Expr", node).value)
    return is_bare or isinstance(node, ast.Assert | ast.Raise)


def _has_condition(node: ast.AST) -> bool:
    return any(isinstance(one, ast.expr) and _is_condition(one) for one in ast.walk(node))


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "print"


def _is_condition(value: ast.expr) -> bool:
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.Not)
    is_asked = isinstance(value, ast.Call) and ast.unparse(value.func) in _YES_OR_NO
    return is_asked or isinstance(value, ast.Compare)


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


def kept_around(function: Function) -> Iterator[str]:
    """The variables around a function, and around those that stand in them, which its text changes, with the place
    of the first change: what one call leaves there the next one meets."""
    pending, seen, found = [function], list[object](), dict[str, None]()
    while pending:
        one = pending.pop()
        seen.append(one)
        body = inspect.unwrap(cast("Function", _body_of(one)))
        names = getattr(getattr(body, "__code__", None), "co_freevars", ())
        source, scope = _source_of(body), _scope_of(body)
        if source is None:
            continue
        for name in names:
            value = scope.known.get(name)
            if inspect.isfunction(value) and value not in seen:
                pending.append(value)
            found |= dict.fromkeys(_change_of(name, source))
    yield from found


def _change_of(name: str, source: _Source) -> Iterator[str]:
    tree, file, before = source
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    lines = [node.lineno for node in statements if _changes(node, name)]
    if lines:
        yield f"{name} ({os.path.basename(file)}:{before + min(lines)})"


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
_Trying: TypeAlias = ast.Try | ast.TryStar | ast.With | ast.AsyncWith
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_TRIES = (ast.Try, ast.TryStar)
_EVERYTHING: tuple[object, ...] = (Exception, BaseException)
_TELLING = frozenset(
    (
        *("critical", "debug", "error", "exception", "info", "log", "print", "print_exc", "sleep"),
        *("rollback", "warn", "warning"),
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


@dataclass(frozen=True, slots=True)
class _Swallowing:
    """Finds where any error ends in a function, and something that goes out is lost by it."""

    read: _Read
    project: Project
    is_filter: bool

    def all(self) -> Iterator[_Swallows]:
        for function in ast.walk(self.read.tree):
            if isinstance(function, _FunctionTree):
                tidying = set(_tidying(function.body))
                inside = list(_within(function.body))
                yield from self._by_decorators(function)
                for node in (one for one in inside if one not in tidying):
                    if isinstance(node, _TRIES):
                        if not self._is_manager(function, node):
                            yield from self._by_handlers(function, node)
                    elif isinstance(node, ast.With | ast.AsyncWith):
                        yield from self._by_managers(function, node)
                yield from _by_leaving_finally(inside)
                yield from _by_gather(inside)

    def _is_manager(self, function: _FunctionTree, node: ast.Try | ast.TryStar) -> bool:
        """What is caught here is raised where the manager is used, and told there."""
        kinds = map(self.read.scope.value_of, function.decorator_list)
        return _yields(node.body) and any(kind in _MAKING_MANAGERS for kind in kinds)

    def _by_handlers(
        self, function: _FunctionTree, node: ast.Try | ast.TryStar
    ) -> Iterator[_Swallows]:
        for handler in node.handlers:
            if not _is_broad(handler, self.read.scope):
                continue
            inside = list(_within(handler.body))
            if _raises(handler.body, self.read.scope, self.project):
                continue
            returns = [one.value for one in inside if isinstance(one, ast.Return)]
            drops = any(map(self._drops, returns))
            is_end = node is function.body[-1] and not returns and not self.read.called
            if self.read.use is _Use.GIVEN and (drops or (is_end and self._does(function, node))):
                yield _Swallows("catches every exception", handler.lineno, _GIVES_NOTHING)
                continue
            is_over = drops or (not returns and _does_nothing(handler.body, function))
            is_missed = is_over and self._is_missed(function, node)
            if is_missed or self._skips(function, node, handler):
                yield _Swallows("catches every exception", handler.lineno, _GOES_ON)

    def _skips(
        self, function: _FunctionTree, node: ast.Try | ast.TryStar, handler: ast.ExceptHandler
    ) -> bool:
        """What is to be done outside, in it or behind it, is left out when this fails, and what comes out doesn't
        say so."""
        if not _does_nothing(handler.body, function):
            return False
        if self._sends(node.orelse, self.read.scope):
            return True
        acts = [one for one in _within(node.body) if isinstance(one, ast.Expr)]
        loop = _loop_around(function, node)
        for leaving in _leaving(handler.body):
            if isinstance(leaving, ast.Return):
                is_as_ever = self.read.use is _Use.IGNORED or _is_as_ever(leaving.value, function)
                skipped = [*acts, *_behind(function.body, node)] if is_as_ever else []
            elif loop is None or _raises_behind(function, loop):  # tried again, and told at last
                continue
            else:
                skipped = _behind(loop.body, node)
                skipped += loop.body if isinstance(leaving, ast.Break) else []
            if not isinstance(leaving, ast.Return) and self._gathers(skipped):
                return True
            if self._sends(skipped, self.read.scope):
                return True
        return False

    def _gathers(self, body: Sequence[ast.AST]) -> bool:
        """It puts one more into something that is no global."""
        calls = (one for one in _within(body) if isinstance(one, ast.Call))
        return any(
            _called(one) in _CHANGING and self.read.scope.value_of(one.func) is None
            for one in calls
        )

    def _sends(self, body: Sequence[ast.AST], scope: _Scope, level: int = 0) -> bool:
        """It acts outside, or gives one of many; but for a function that is asked for its answer, and that only a
        run knows: `order.get` is no act. What is made of the message alone is another message in its place."""
        tidying = set(_tidying(body))
        inside = [one for one in _within(body) if one not in tidying]
        acts = {_call_of(one.value) for one in inside if isinstance(one, ast.Expr)}
        return any(
            (isinstance(one, ast.Yield | ast.YieldFrom) and not level)
            or (isinstance(one, ast.Call) and self._acts(one, scope, level, is_act=one in acts))
            for one in inside
        )

    def _acts(self, call: ast.Call, scope: _Scope, level: int, *, is_act: bool) -> bool:
        found = scope.value_of(call.func)
        if found is None:  # of an object that only a run knows
            return is_act and _called(call) not in {*_TELLING, *_CHANGING, "sort", "reverse"}
        if self.project.replaces(found):
            return True
        if not self.project.has(found) or level >= _LEVELS:
            return str(getattr(found, "__module__", "")).startswith("surepipe.")
        source = _source_of(cast("Function", found))
        inner = source[0].body[0] if source else None
        if not isinstance(inner, _FunctionTree):
            return False
        return self._sends(inner.body, _scope_of(found), level + 1)

    def _by_managers(
        self, function: _FunctionTree, node: ast.With | ast.AsyncWith
    ) -> Iterator[_Swallows]:
        for made, body, is_async in self._managers_in(function, node):
            ending = self._ending(made, is_async=is_async)
            # An error in the manager's own call isn't caught by it.
            part = ast.copy_location(ast.With(node.items, body), node)
            if ending and self._is_lost(function, part, ending, is_end=node is function.body[-1]):
                yield _Swallows("suppresses every exception", node.lineno, ending.then)

    def _by_decorators(self, function: _FunctionTree) -> Iterator[_Swallows]:
        """A context manager that is a decorator is around all that the function does."""
        is_async = isinstance(function, ast.AsyncFunctionDef)
        if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in _within(function.body)):
            return  # its body runs when the manager is through
        for made in function.decorator_list:
            ending = self._ending(made, is_async=is_async, is_decorator=True)
            whole = ast.copy_location(ast.With([], function.body), function)
            around = copy(function)
            around.body = [whole]
            if ending and self._is_lost(around, whole, ending, is_end=True):
                yield _Swallows("suppresses every exception", made.lineno, ending.then)

    def _managers_in(
        self, function: _FunctionTree, node: ast.With | ast.AsyncWith
    ) -> Iterator[tuple[ast.expr, list[ast.stmt], bool]]:
        """What is around these statements, or around some of them: what is put on an ExitStack there counts from
        there on."""
        for item in node.items:
            made = _made_in(function, item.context_expr)
            yield made, node.body, isinstance(node, ast.AsyncWith)
            is_stack = isinstance(made, ast.Call) and self.read.scope.value_of(made.func) in _STACKS
            held = item.optional_vars or item.context_expr
            if is_stack and isinstance(held, ast.Name):
                for put, way in _put_on(held.id, function):
                    behind = _behind(node.body, put) if put in _within(node.body) else node.body
                    yield _made_in(function, way.args[0]), behind, "async" in _called(way)

    def _ending(
        self, made: ast.expr, *, is_async: bool, is_decorator: bool = False
    ) -> _Ending | None:
        managers = _Managers(self.project, is_async=is_async, is_decorator=is_decorator)
        return managers.ending(made, self.read.scope)

    def _is_lost(
        self, function: _FunctionTree, node: ast.With, ending: _Ending, *, is_end: bool
    ) -> bool:
        """As it is of a handler of the function's own. What a manager keeps of an error is looked at behind it;
        what it sends elsewhere is no loss."""
        if not _does_nothing(ending.body):
            is_last = is_end and not self.read.called
            if not is_last or self._sends(ending.body, ending.scope):
                return False
        return self._is_missed(function, node)

    def _drops(self, value: ast.expr | None) -> bool:
        """Whether nothing goes on where this is given: of a message from a book, where it says no more than so."""
        if isinstance(value, ast.Call) and not (value.args or value.keywords):
            return self.read.scope.value_of(value.func) is Done
        return _is_nothing(value) or (self.is_filter and _is_false(value))

    def _is_missed(self, function: _FunctionTree, node: _Trying) -> bool:
        """What goes out is another one when this fails, nothing is raised after it, and there is no default."""
        done, inside = list(_within(node.body)), list(_within(function.body))
        used = {one.id for one in {*inside} - {*done} if _is_name(one, ast.Load)}
        given = used.intersection(_names_given(done))
        if not (given or self._does(function, node)):
            return False
        if any(isinstance(one, ast.Raise) and one.lineno > _end_of(node) for one in inside):
            return False
        end = function.body[-1]
        value = end.value if isinstance(end, ast.Return) else None
        if self._answers(node):
            return self.read.use is _Use.GIVEN and (value is None or _is_nothing(value))
        before = (one for one in inside if isinstance(one, ast.Assign) and one.lineno < node.lineno)
        defaults = [one for one in before if given.intersection(_names_given(ast.walk(one)))]
        is_given = isinstance(value, ast.Name) and value.id in given
        is_seen = is_given and self.read.use is _Use.GIVEN
        return all(is_seen and _is_nothing(one.value) for one in defaults)

    def _does(self, function: _FunctionTree, node: _Trying) -> bool:
        """It gives an answer that somebody takes, or reaches out of the function."""
        return self._answers(node) or self._reaches_out(node.body, function, self.read.scope)

    def _answers(self, node: _Trying) -> bool:
        kinds = (ast.Return, ast.Yield, ast.YieldFrom)
        is_taken = self.read.use is not _Use.IGNORED
        return is_taken and any(isinstance(one, kinds) for one in _within(node.body))

    def _reaches_out(
        self, body: Sequence[ast.AST], function: _FunctionTree, scope: _Scope, level: int = 0
    ) -> bool:
        """It changes what it was given, or calls who may do something outside: a simulation refuses that of all
        who have no double. ``level``: so many calls lead here from the function that is read."""
        own = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        private = set(_names_given(_within(function.body))) - own if level else set[str]()
        own |= set[str]() if level else set(_names_given(_within(function.body)))
        for one in _within(body):
            if isinstance(one, ast.Attribute | ast.Subscript) and isinstance(
                one.ctx, ast.Store | ast.Del
            ):
                if _root(one) in own:
                    return True
            elif isinstance(one, ast.Call) and self._may_do_something(one, scope, level, private):
                return True
        return False

    def _may_do_something(
        self, call: ast.Call, scope: _Scope, level: int, private: Collection[str]
    ) -> bool:
        found = scope.value_of(call.func)
        if _called(call) in _TELLING or _root(call.func) in private:
            return False
        if found is None or self.project.replaces(found) or level >= _LEVELS:
            return True
        source = _source_of(cast("Function", found)) if self.project.has(found) else None
        if source is None:
            return str(getattr(found, "__module__", "")).startswith("surepipe.")
        inner = source[0].body[0]
        if not isinstance(inner, _FunctionTree):  # a lambda, in a line of something else
            return True
        return self._reaches_out(inner.body, inner, _scope_of(found), level + 1)


def _raises(body: Sequence[ast.AST], scope: _Scope, project: Project) -> bool:
    """It raises, or has a function of the project do so."""
    for one in _within(body):
        called = scope.value_of(one.func) if isinstance(one, ast.Call) else None
        source = _source_of(cast("Function", called)) if project.has(called) else None
        written = source[0].body[0] if source else one
        last = written.body[-1] if isinstance(written, _FunctionTree) and source else one
        if isinstance(last, ast.Raise):
            return True
    return False


def _is_broad(handler: ast.ExceptHandler, scope: _Scope) -> bool:
    return handler.type is None or _has_everything([handler.type], scope)


def _has_everything(caught: Sequence[ast.expr], scope: _Scope) -> bool:
    return any(one in _EVERYTHING for each in caught for one in _flat(_value_of(each, scope)))


def _value_of(node: ast.expr, scope: _Scope) -> object:
    """As a scope knows it, and what is put together of that: a tuple of classes."""
    if isinstance(node, ast.Starred):
        return _value_of(node.value, scope)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_value_of(one, scope) for one in node.elts)
    return node.value if isinstance(node, ast.Constant) else scope.value_of(node)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for one in cast("tuple[object, ...]", value):
            yield from _flat(one)
    else:
        yield value


_MAKING_MANAGERS: tuple[object, ...] = (contextmanager, asynccontextmanager)
_STACKS: tuple[object, ...] = (ExitStack, AsyncExitStack)
_PUTTING = frozenset(
    ("enter_async_context", "enter_context", "push", "push_async_exit"),
)


def _put_on(stack: str, function: _FunctionTree) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """Where the function puts something on this ExitStack that may end an error: a callback may not."""
    for statement in _within(function.body):
        if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.Return):
            for one in ast.walk(statement):
                is_put = isinstance(one, ast.Call) and _called(one) in _PUTTING and one.args
                if is_put and _root(cast("ast.Call", one).func) == stack:
                    yield statement, cast("ast.Call", one)


def _made_in(function: _FunctionTree, used: ast.expr) -> ast.expr:
    """What a variable of the function stands for, where it has one value."""
    if not isinstance(used, ast.Name):
        return used
    values = [
        one.value
        for one in _within(function.body)
        if isinstance(one, ast.Assign) and used.id in _names_given(one.targets)
    ]
    return values[0] if len(values) == 1 else used


@dataclass(frozen=True, slots=True)
class _Ending:
    """A context manager in which any error ends: its name, its place, and what it does where one comes."""

    name: str
    place: str
    body: Sequence[ast.stmt]
    scope: _Scope

    @property
    def then(self) -> str:
        return f"by {self.name} ({self.place}) {_GOES_ON}" if self.place else _GOES_ON


@dataclass(frozen=True, slots=True)
class _Managers:
    """Finds whether a context manager ends an error that nobody thought of, as far as its text tells: one of the
    project, however it is written, and `suppress`. One that only a run knows may be right."""

    project: Project
    is_async: bool
    is_decorator: bool = False

    def ending(self, made: ast.expr, scope: _Scope, level: int = 0) -> _Ending | None:
        if level > _LEVELS:
            return None
        if isinstance(made, ast.Lambda):
            return self._by_answer(made, scope)
        found = scope.value_of(made.func if isinstance(made, ast.Call) else made)
        if not isinstance(made, ast.Call):
            is_function = inspect.isfunction(
                found
            )  # pushed on a stack, it is called as `__exit__` is
            return self._by_exit(found) if is_function else self._by_class(type(found))
        if found is suppress:
            is_all = _has_everything(made.args, scope)
            return _Ending("suppress", "", [], scope) if is_all else None
        if inspect.isclass(found):
            return self._by_class(found)
        return self._by_function(found, made, scope, level) if self.project.has(found) else None

    def _by_class(self, owner: type) -> _Ending | None:
        kinds = (ContextDecorator, AsyncContextDecorator)
        if self.is_decorator and not issubclass(owner, kinds):
            return None
        name = "__aexit__" if self.is_async else "__exit__"
        return self._by_exit(inspect.getattr_static(owner, name, None), owner)

    def _by_exit(self, function: object, owner: type | None = None) -> _Ending | None:
        if not self.project.has(function):
            return None
        source, scope = _source_of(cast("Function", function)), _scope_of(function)
        written = source[0].body[0] if source else None
        if source is None or not isinstance(written, _FunctionTree):
            return None
        exit_ = _Exit(self.project, scope)
        if not exit_.is_all_ended(written):
            return None
        name = (owner or cast("Function", function)).__qualname__
        return _Ending(name, _place_of(source, written.lineno), exit_.done, scope)

    def _by_answer(self, written: ast.Lambda, scope: _Scope) -> _Ending | None:
        exit_ = _Exit(self.project, scope)
        return _Ending("a lambda", "", [], scope) if exit_.is_all_ended(written) else None

    def _by_function(
        self, found: object, made: ast.Call, scope: _Scope, level: int
    ) -> _Ending | None:
        """Of one that yields once, or that makes another context manager."""
        inner = inspect.unwrap(cast("Function", found))
        source = _source_of(inner)
        written = source[0].body[0] if source else None
        if source is None or not isinstance(written, _FunctionTree):
            return None
        own = _with_arguments(inner, made, scope)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            is_fitting = self.is_async == inspect.isasyncgenfunction(inner)
            return self._by_yield(inner, written, source, own, level) if is_fitting else None
        returns = [one.value for one in _within(written.body) if isinstance(one, ast.Return)]
        made_there = [_made_in(written, one) for one in returns if one]
        ways = [self.ending(one, own, level + 1) for one in made_there]
        return ways[0] if ways and all(ways) else None

    def _by_yield(
        self, inner: Function, written: _FunctionTree, source: _Source, scope: _Scope, level: int
    ) -> _Ending | None:
        """It catches what its `yield` raises. A `finally` that is left is told by itself."""
        inside = list(_within(written.body))
        for node in inside:
            if not isinstance(node, _Trying) or not _yields(node.body):
                continue
            if isinstance(node, ast.With | ast.AsyncWith):
                there = replace(self, is_async=isinstance(node, ast.AsyncWith), is_decorator=False)
                ways = (
                    there.ending(_made_in(written, one.context_expr), scope, level + 1)
                    for one in node.items
                )
                if ending := next(filter(None, ways), None):
                    return ending
                continue
            handler = next((one for one in node.handlers if _is_broad(one, scope)), None)
            behind = _behind(written.body, node)
            after = [*(handler.body if handler else []), *behind, *node.finalbody]
            if handler and not _raises(after, scope, self.project):
                place = _place_of(source, handler.lineno)
                return _Ending(inner.__qualname__, place, handler.body, scope)
        return None


def _yields(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in _within(body))


def _place_of(source: _Source, line: int) -> str:
    return f"{source[1]}:{source[2] + line}"


def _with_arguments(function: Function, call: ast.Call, around: _Scope) -> _Scope:
    """What is known in a function that is called so."""
    scope = _scope_of(function)
    given = [_value_of(one, around) for one in call.args]
    named = {one.arg: _value_of(one.value, around) for one in call.keywords if one.arg}
    try:
        bound = inspect.signature(function).bind_partial(*given, **named)
    except (TypeError, ValueError):  # that call will raise, or one argument stands for several
        return scope
    bound.apply_defaults()
    return replace(scope, known={**scope.known, **bound.arguments})


class _UnexpectedError(Exception):
    """An error that nobody thought of."""


_UNKNOWN = object()
"""What only a run tells."""


class _Exit:
    """What an `__exit__` answers where an error comes that nobody thought of, as far as its text tells.

    True ends the error, and all else lets it go on. So one counts as ending it that surely answers so; what only a
    run tells is not held against it.
    """

    def __init__(self, project: Project, scope: _Scope, level: int = 0) -> None:
        self.done: list[ast.stmt] = []
        """What it does on that way, but for its answer."""
        self._project, self._scope, self._level = project, scope, level
        self._local: dict[str, object] = {}

    def is_all_ended(self, written: _FunctionTree | ast.Lambda) -> bool:
        error = _UnexpectedError()
        given = [_UnexpectedError, error, object()]
        return self.answer(written, given) is True

    def answer(self, written: _FunctionTree | ast.Lambda, given: Sequence[object]) -> object:
        """Whether it is true or false, or that it is not known."""
        names = [one.arg for one in (*written.args.posonlyargs, *written.args.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        self._local = dict.fromkeys((one.arg for one in _arguments(written)), _UNKNOWN)
        self._local |= dict(zip(names, given, strict=False))
        if written.args.vararg:
            self._local[written.args.vararg.arg] = tuple(given[len(names) :])
        if isinstance(written, ast.Lambda):
            return self._truth(written.body)
        ways = {False if one is None else one for one in self._ways_of(written.body)}
        return ways.pop() if len(ways) == 1 else _UNKNOWN

    def _ways_of(self, body: Sequence[ast.stmt]) -> set[object]:
        """How these statements may end: with an answer, or (None) by going on."""
        found = set[object]()
        for one in body:
            ways = self._ways(one)
            found |= ways - {None}
            if None not in ways:
                return found
        return {*found, None}

    def _ways(self, one: ast.stmt) -> set[object]:
        if isinstance(one, ast.Return):
            return {self._truth(one.value) if one.value else False}
        is_raise = isinstance(one, ast.Raise | ast.Expr) and _raises(
            [one], self._scope, self._project
        )
        return {False} if is_raise else self._ways_within(one)

    def _ways_within(self, one: ast.stmt) -> set[object]:
        if isinstance(one, ast.If):
            return self._ways_of_if(one)
        if isinstance(one, _TRIES):
            ways, last = self._ways_of([*one.body, *one.orelse]), self._ways_of(one.finalbody)
            return ways | (last - {None}) if None in last else last
        if isinstance(one, ast.With | ast.AsyncWith):
            return self._ways_of(one.body)
        blocks = [it.body for it in one.cases] if isinstance(one, ast.Match) else []
        blocks += [one.body] if isinstance(one, _Loop) else []
        if blocks:
            self._forget(one)
            return {None}.union(*map(self._ways_of, blocks))
        self._follow(one)
        return {None}

    def _follow(self, one: ast.stmt) -> None:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            self._local[one.targets[0].id] = self._value(one.value)
        else:
            self._forget(one)
            self.done.append(one)

    def _ways_of_if(self, one: ast.If) -> set[object]:
        asked = self._truth(one.test)
        if asked is not _UNKNOWN:
            return self._ways_of(one.body if asked else one.orelse)
        before = dict(self._local)
        ways = self._ways_of(one.body)
        self._local = before
        ways |= self._ways_of(one.orelse)
        self._forget(one)
        return ways

    def _forget(self, statement: ast.stmt) -> None:
        """What gets another value somewhere in it."""
        self._local |= dict.fromkeys(_names_given(ast.walk(statement)), _UNKNOWN)

    def _truth(self, node: ast.expr) -> object:
        value = self._value(node)
        if isinstance(value, type | Exception | tuple):
            return value != ()
        return bool(value) if value is None or isinstance(value, int | str) else _UNKNOWN

    def _value(self, node: ast.expr) -> object:
        node = _call_of(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(map(self._value, node.elts))
        if isinstance(node, ast.Name) and node.id in self._local:
            return self._local[node.id]
        if isinstance(node, ast.Name | ast.Attribute):
            found = self._scope.value_of(node)
            return _UNKNOWN if found is None else found
        return self._made(node)

    def _made(self, node: ast.expr) -> object:
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BoolOp):
            return self._of_several(node)
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            asked = self._truth(node.operand)
            return asked if asked is _UNKNOWN else not asked
        asked = self._truth(node.test) if isinstance(node, ast.IfExp) else _UNKNOWN
        if asked is _UNKNOWN:
            return _UNKNOWN
        chosen = cast("ast.IfExp", node)
        return self._value(chosen.body if asked else chosen.orelse)

    def _of_several(self, node: ast.BoolOp) -> object:
        """The first that decides it; what is not known may decide it otherwise."""
        decides = isinstance(node.op, ast.Or)
        asked = [self._truth(one) for one in node.values]
        if decides in asked:
            return decides
        return _UNKNOWN if _UNKNOWN in asked else not decides

    def _compared(self, node: ast.Compare) -> object:
        left, right = self._value(node.left), self._value(node.comparators[0])
        if len(node.ops) > 1 or _has_unknown((*_flat(left), *_flat(right))):
            return _UNKNOWN
        is_same = any(left is one for one in _flat(right))
        if isinstance(node.ops[0], ast.Is | ast.Eq | ast.In):
            return is_same
        return (
            not is_same if isinstance(node.ops[0], ast.IsNot | ast.NotEq | ast.NotIn) else _UNKNOWN
        )

    def _called(self, call: ast.Call) -> object:
        found = self._scope.value_of(call.func)
        given = [one for each in call.args for one in self._given(each)]
        if found is bool and given:
            return self._truth(call.args[0])
        if found is type and given:
            return _UNKNOWN if given[0] is _UNKNOWN else type(given[0])
        if (found is isinstance or found is issubclass) and len(given) == 2:
            return _is_one_of(*given)
        source = _source_of(cast("Function", found)) if self._project.has(found) else None
        written = source[0].body[0] if source else None
        if self._level >= _LEVELS or not isinstance(written, _FunctionTree):
            return _UNKNOWN
        inner = _Exit(self._project, _scope_of(found), self._level + 1)
        return inner.answer(written, given)

    def _given(self, argument: ast.expr) -> Sequence[object]:
        if not isinstance(argument, ast.Starred):
            return [self._value(argument)]
        values = self._value(argument.value)
        return cast("tuple[object, ...]", values) if isinstance(values, tuple) else [_UNKNOWN]


def _is_one_of(value: object, kinds: object) -> object:
    """It is of one of these classes, or it is a class below one of them, or that is not known."""
    if value is _UNKNOWN:
        return _UNKNOWN
    above = (value if isinstance(value, type) else type(value)).__mro__
    each = list(_flat(kinds))
    if any(kind is one for kind in each for one in above):
        return True
    return _UNKNOWN if _has_unknown(each) else False


def _has_unknown(values: Iterable[object]) -> bool:
    """By identity: values of a user's own compare as they like."""
    return any(one is _UNKNOWN for one in values)


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


def _tidying(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """What runs where the work is over, or has failed already: nothing of a message is lost by it."""
    for node in _within(body):
        if isinstance(node, _TRIES):
            yield from _within(node.finalbody)
            for handler in node.handlers:
                yield from _within(handler.body)


_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While


def _behind(body: Sequence[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
    """What comes after one of these statements, or of those in them; in a loop also the next rounds."""
    for place, one in enumerate(body):
        after = list(body[place + 1 :])
        if one is node:
            return after
        if node in _within([one]):
            parts: tuple[ast.AST, ...] = (one, *getattr(one, "cases", ()))
            blocks = [getattr(part, name, []) for part in parts for name in ("body", "orelse")]
            block = next((it for it in blocks if node in _within(it)), list[ast.stmt]())
            is_first = block is getattr(one, "body", None)
            rounds = block if isinstance(one, _Loop) and is_first else []
            others = getattr(one, "orelse", []) if is_first and not isinstance(one, ast.If) else []
            return [*_behind(block, node), *rounds, *others, *after]
    return []


def _loop_around(function: _FunctionTree, node: ast.stmt) -> _Loop | None:
    """The innermost one, which `continue` and `break` are about."""
    around = [
        one
        for one in _within(function.body)
        if isinstance(one, _Loop) and node in _within(one.body)
    ]
    return max(around, key=lambda one: one.lineno, default=None)


def _raises_behind(function: _FunctionTree, loop: _Loop) -> bool:
    inside = _within(function.body)
    return any(isinstance(one, ast.Raise) and one.lineno > _end_of(loop) for one in inside)


def _is_as_ever(value: ast.expr | None, function: _FunctionTree) -> bool:
    """It gives what the function was given, or gives where nothing fails: no word of what did."""
    if isinstance(value, ast.Name) and value.id in {one.arg for one in _arguments(function)}:
        return True
    failed = set(_tidying(function.body))
    usual = [
        one.value
        for one in _within(function.body)
        if isinstance(one, ast.Return) and one not in failed
    ]
    if not isinstance(function.body[-1], ast.Return):
        usual.append(None)
    return _text_of(value) in {_text_of(one) for one in usual}


def _arguments(function: _FunctionTree | ast.Lambda) -> Iterator[ast.arg]:
    return (one for one in ast.walk(function.args) if isinstance(one, ast.arg))


def _text_of(value: ast.expr | None) -> str:
    return "None" if value is None else ast.unparse(value)


def _call_of(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Await) else value


def _called(call: ast.Call) -> str:
    """The name of what is called, without what it belongs to."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _root(node: ast.AST) -> str:
    """``order`` of ``order``, ``order["n"]`` and ``order.lines.append``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _does_nothing(body: Sequence[ast.stmt], around: _FunctionTree | None = None) -> bool:
    """It tells of the error at most: it puts nothing in place of what failed, and calls nobody who may. A variable
    that the function never looks at holds nothing."""
    looked_at = set(_looked_at(around)) if around else set[str]()
    words = {
        inner
        for one in _within(body)
        if isinstance(one, ast.Call) and _called(one) in _TELLING
        for inner in ast.walk(one)
    }
    for one in _within(body):
        if around and isinstance(one, ast.Assign) and _is_kept_in_vain(one, looked_at):
            continue
        if isinstance(one, ast.Raise | ast.Assign | ast.AugAssign | ast.AnnAssign):
            return False
        if isinstance(one, ast.Delete | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        if isinstance(one, ast.Call) and one not in words:
            return False
    return True


def _looked_at(function: _FunctionTree) -> Iterator[str]:
    """The variables whose value is asked for in it, or may be elsewhere."""
    for one in ast.walk(function):
        if isinstance(one, ast.Nonlocal | ast.Global):
            yield from one.names
        elif _is_name(one, ast.Load):
            yield one.id


def _is_kept_in_vain(one: ast.Assign, looked_at: Collection[str]) -> bool:
    is_error = isinstance(one.value, ast.Name)  # nothing that does something to come by
    return is_error and all(
        _is_name(it, ast.Store) and it.id not in looked_at for it in one.targets
    )


def _names_given(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables that these statements give a value."""
    for node in nodes:
        if _is_name(node, ast.Store):
            yield node.id


def _is_name(node: ast.AST, how: type[ast.expr_context]) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, how)


def _end_of(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _is_false(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _is_nothing(value: ast.expr | None) -> bool:
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
