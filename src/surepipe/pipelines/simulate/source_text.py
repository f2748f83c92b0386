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
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from random import Random, SystemRandom
from textwrap import dedent
from types import ModuleType
from typing import Any, TypeAlias, TypeGuard, cast

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
    return _Scope(known, _class_around(function, body))


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
                for node in (one for one in inside if one not in tidying):
                    if isinstance(node, _TRIES):
                        yield from self._by_handlers(function, node)
                    elif isinstance(node, ast.With | ast.AsyncWith):
                        yield from self._by_suppress(function, node)
                yield from _by_leaving_finally(inside)
                yield from _by_gather(inside)

    def _by_handlers(
        self, function: _FunctionTree, node: ast.Try | ast.TryStar
    ) -> Iterator[_Swallows]:
        for handler in filter(self._is_broad, node.handlers):
            inside = list(_within(handler.body))
            if any(isinstance(one, ast.Raise) for one in inside):
                continue
            returns = [one.value for one in inside if isinstance(one, ast.Return)]
            drops = any(_is_nothing(one) or (self.is_filter and _is_false(one)) for one in returns)
            is_end = node is function.body[-1] and not returns and not self.read.called
            if self.read.use is _Use.GIVEN and (drops or (is_end and self._does(function, node))):
                yield _Swallows("catches every exception", handler.lineno, _GIVES_NOTHING)
                continue
            is_over = drops or (not returns and _does_nothing(handler))
            is_missed = is_over and self._is_missed(function, node)
            if is_missed or self._skips(function, node, handler):
                yield _Swallows("catches every exception", handler.lineno, _GOES_ON)

    def _skips(
        self, function: _FunctionTree, node: ast.Try | ast.TryStar, handler: ast.ExceptHandler
    ) -> bool:
        """What is to be done outside, in it or behind it, is left out when this fails, and what comes out doesn't
        say so."""
        if not _does_nothing(handler):
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

    def _by_suppress(
        self, function: _FunctionTree, node: ast.With | ast.AsyncWith
    ) -> Iterator[_Swallows]:
        for item in node.items:
            call = item.context_expr
            if (
                not isinstance(call, ast.Call)
                or self.read.scope.value_of(call.func) is not suppress
            ):
                continue
            if any(map(self._catches_everything, call.args)) and self._is_missed(function, node):
                yield _Swallows("suppresses every exception", node.lineno, _GOES_ON)

    def _is_broad(self, handler: ast.ExceptHandler) -> bool:
        return handler.type is None or self._catches_everything(handler.type)

    def _catches_everything(self, caught: ast.expr) -> bool:
        named = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        return any(self.read.scope.value_of(one) in _EVERYTHING for one in named)

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


def _arguments(function: _FunctionTree) -> Iterator[ast.arg]:
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


def _does_nothing(handler: ast.ExceptHandler) -> bool:
    """It tells of the error at most: it puts nothing in place of what failed, and calls nobody who may."""
    for one in _within(handler.body):
        if isinstance(one, ast.Raise | ast.Assign | ast.AugAssign | ast.AnnAssign):
            return False
        if isinstance(one, ast.Delete | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            return False
        if isinstance(one, ast.Call) and _called(one) not in _TELLING:
            return False
    return True


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
