"""Finds the memory that a stage keeps in globals of its module: a real crash loses it, a simulated one does not.

A stage with memory is a class, one instance for each process. What is kept beside that survives a simulated crash
and would not survive a real one, so it makes runs look better than they are.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
import sysconfig
from abc import ABC
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.util import resolve_name
from inspect import isroutine
from itertools import count, islice
from logging import Logger
from pathlib import Path
from re import Pattern
from threading import Lock, RLock
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GeneratorType,
    GenericAlias,
    MethodType,
    MethodWrapperType,
    ModuleType,
    UnionType,
)
from typing import Any, TypeAlias, cast
from warnings import catch_warnings, simplefilter
from weakref import WeakKeyDictionary

from surepipe.pipelines.plan import Plan
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.outside import Outside

Memory: TypeAlias = Mapping[str, str]
"""The content of each global that can be compared, by its name."""

_DEPTH = 6
LARGE = 10_000
"""So many parts make a value large."""
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None), count)
_SIMPLE = frozenset({bool, int, float, complex, str, bytes, type(None)})
_BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)
"""What is called on an object: it keeps that as a global of its own would."""
_ROUTINES = (FunctionType, *_BOUND)
_OWNERS = (type, FunctionType)
"""What has attributes of its own beside the module that it stands in."""
_NOTHING_WITHIN = _SIMPLE | {type, ModuleType}
_NO_DATA = (
    type,
    GenericAlias,
    UnionType,
    ModuleType,
    Outside,
    Logger,
    AbstractEventLoop,
    *_ROUTINES,
)
_LETS_WAIT = (asyncio.Lock, asyncio.Semaphore, asyncio.Condition, asyncio.Barrier)
"""What calls wait for each other by: it holds no data, and is as it was when all have returned."""
SYNCHRONIZING = (*_LETS_WAIT, asyncio.Event, asyncio.Queue)
"""What asyncio has for calls that wait for each other."""
_OF_WAITING = frozenset({"_loop", "_waiters", "_getters", "_putters", "_finished"})
"""What else of asyncio has beside its data: who waits for it, and in which loop."""
_KEPT_INSIDE = frozenset({"_io", "array", "random", "_random"})
"""Of objects from here only what they are copied by tells what they hold: a buffer, a generator of chance."""


class _Form(Enum):
    """How a value is read."""

    PLAIN = "plain"
    NO_DATA = "no data"
    BOUND = "bound"
    MAP = "map"
    SET = "set"
    LIST = "list"
    OBJECT = "object"


@lru_cache(maxsize=4096)
def _form_of(kind: Any) -> _Form:
    """How values of a type are read. Thousands of values are looked at before and after each run, of few types."""
    if issubclass(kind, _PLAIN):
        return _Form.PLAIN
    if issubclass(kind, (partial, *_BOUND)):
        return _Form.BOUND
    if issubclass(kind, _NO_DATA) or _is_method_descriptor(kind):
        return _Form.NO_DATA
    if issubclass(kind, Mapping):
        return _Form.MAP
    if issubclass(kind, Set):
        return _Form.SET
    return _Form.LIST if issubclass(kind, list | tuple | deque) else _Form.OBJECT


def _bound_in(value: Any) -> tuple[object, ...]:
    """What a method was taken from, or a partial was given: nothing for what belongs to a module or a class."""
    if isinstance(value, partial):
        told = cast("partial[object]", value)
        return (*_bound_in(told.func), *told.args, *told.keywords.values())
    owner = getattr(value, "__self__", None) if isinstance(value, _BOUND) else None
    return () if owner is None or isinstance(owner, type | ModuleType) else (owner,)


def _is_method_descriptor(kind: Any) -> bool:
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__")


def is_large(value: object) -> bool:
    """A table, say: too much to be copied for each process, or to be read after each run."""
    count = 0
    for _, inner in _all_in(value):
        count += len(inner)
        if count > LARGE:
            return True
    return False


def _all_in(
    value: object, inside: Callable[[object], Collection[object]] | None = None
) -> Iterator[tuple[object, Collection[object]]]:
    """A value and all that is in it, each once, with what is right inside of it. What that is may be said by
    ``inside``. Numbers and texts, of which most data are made, have nothing inside, and are passed over."""
    seen: dict[int, object] = {}
    pending = deque([value])
    while pending:
        one = pending.popleft()
        if id(one) not in seen:
            seen[id(one)] = one
            inner = (inside or _inner)(one)
            yield one, inner
            pending += [part for part in _parts_of(inner) if type(part) not in _SIMPLE]


def _parts_of(inner: Collection[object]) -> Collection[object]:
    if _form_of(type(inner)) is _Form.MAP:
        return cast("Mapping[object, object]", inner).values()
    return inner


def _inner(value: object) -> Collection[object]:
    kind: Any = type(value)
    match _form_of(kind):
        case _Form.PLAIN | _Form.NO_DATA:
            return ()
        case _Form.BOUND:
            return _bound_in(value)
        case _Form.OBJECT:
            return _fields_of(value)
        case _:
            return cast("Collection[object]", value)


def _fields_of(value: object) -> Mapping[str, object]:
    """Of a generator, which can't be copied, the variables that tell how far it has come."""
    if isinstance(value, GeneratorType):
        return value.gi_frame.f_locals if value.gi_frame else {}
    kind: Any = type(value)
    if kind.__module__ in _KEPT_INSIDE:
        return {"state": value.__reduce_ex__(4)[1:]}
    fields = cast("Mapping[str, object]", getattr(value, "__dict__", {}))
    if isinstance(value, SYNCHRONIZING):
        return {name: one for name, one in fields.items() if name not in _OF_WAITING}
    slots = {name: getattr(value, name) for name in _slots_of(kind) if hasattr(value, name)}
    return {**fields, **slots} if slots else fields


@lru_cache(maxsize=4096)
def _slots_of(kind: type) -> tuple[str, ...]:
    named = (vars(one).get("__slots__", ()) for one in kind.__mro__)
    slots = [name for one in named for name in ((one,) if isinstance(one, str) else one)]
    return tuple(name for name in slots if not name.startswith("__"))


def memory_of(modules: Iterable[ModuleType]) -> Memory:
    """What these modules keep now. Functions and imported things are no memory."""
    found: dict[str, str] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if not _is_ones_own(name):
                continue
            if isinstance(value, _OWNERS) and value.__module__ == module.__name__:
                found |= _of_class(f"{module.__name__}.{name}", value)
            elif (text := _content(value)) is not None:
                found[f"{module.__name__}.{name}"] = text
        for hidden in _hidden_in(module):
            for value in _held_by(hidden).values():
                if (text := _content(value)) is not None:
                    found[hidden.name] = text
    return found


def _is_ones_own(name: str) -> bool:
    """What Python, or pytest, keeps of a module, a class or a function is nobody's memory."""
    return not name.startswith("__") and name != "pytestmark"


def changed(before: Memory, after: Memory) -> tuple[str, ...]:
    """The names of what is not as it was, in order."""
    names = dict.fromkeys((*before, *after))
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))


def told(names: Iterable[str]) -> str:
    """A sentence about such memory, empty when there is none."""
    listed = ", ".join(names)
    return (
        f"stages keep {listed} between calls: memory that a crash would lose, and that a message meets which is "
        "tried again. That is fine for a cache, and for nothing that an answer depends on"
        if listed
        else ""
    )


def in_transaction(plan: Plan, stage: str = "") -> str:
    """Where a stage (this one, or any) may keep what outlives its process: half a sentence of advice."""
    behind = [
        pipe for pipe in plan.pipes if any(one.name == stage for one in plan.reach(pipe.name))
    ]
    pipes = behind or plan.pipes
    if any(pipe.workers for pipe in pipes):  # settled in any order: none of them may be committed
        of_batch = "made of each message alone (context.id tells of its batch)"
        of_its = "of its message such as context.id.key"
        return _UNDER_A_KEY.format(key=of_batch if stage in plan.behind_batches() else of_its)
    is_there = any(pipe.settled is Boundary.COMMITTED for pipe in pipes)
    has = "" if is_there else ", which a pipe with boundary: committed has"
    return (
        f"keep it in a store by context.transaction{has} (simulated stores have no SQL, so what uses that needs a "
        'double: simulate: replace:, see "A stage that uses a database" in docs/simulation.md)'
    )


_UNDER_A_KEY = (
    "keep it outside, in a service or a table of its own, under a key {key} (what "
    "uses that needs a double: simulate: replace:); a transaction of the stage's own (context.transaction) has "
    "only a pipe with boundary: committed, without lanes and without a book"
)


def _of_class(name: str, owner: type | FunctionType) -> Memory:
    """A list in a class, or in an attribute of a function, is as global as one beside it."""
    fields = {key: value for key, value in vars(owner).items() if _is_ones_own(key)}
    texts = {key: _content(value) for key, value in fields.items()}
    return {f"{name}.{key}": text for key, text in texts.items() if text is not None}


@dataclass(eq=False)
class _Variable:
    """A variable around functions, which share it."""

    home: str
    """the module of the functions"""
    name: str
    cell: CellType

    @property
    def value(self) -> Any:
        """Raises ValueError while it has none."""
        return self.cell.cell_contents

    @value.setter
    def value(self, value: Any) -> None:
        self.cell.cell_contents = value

    @value.deleter
    def value(self) -> None:
        del self.cell.cell_contents


@dataclass(eq=False)
class _Default:
    """What a function takes where it is given nothing: made once, so a list there is kept between calls."""

    name: str
    function: Any  # type checkers take a function in a field for a method
    place: int | str
    """That of a positional one, or the name of another one."""

    @property
    def value(self) -> Any:
        return self._all()[self.place]

    @value.setter
    def value(self, value: Any) -> None:
        if isinstance(self.place, str):
            self._all()[self.place] = value
        else:
            given = self.function.__defaults__ or ()
            self.function.__defaults__ = (*given[: self.place], value, *given[self.place + 1 :])

    @property
    def home(self) -> str:
        return str(self.function.__module__)

    def _all(self) -> Any:
        is_named = isinstance(self.place, str)
        return self.function.__kwdefaults__ if is_named else self.function.__defaults__


_Hidden: TypeAlias = _Variable | _Default


def _hidden_in(module: ModuleType) -> Iterator[_Hidden]:
    """What functions of a module keep beside their attributes, those of its classes too, and those that these are
    made around (a decorated one, say). Each once, by the first name that leads to it."""
    seen: dict[int, None] = {}
    pending = deque(_functions_in(module))
    while pending:
        name, function = pending.popleft()
        if id(function) in seen or function.__module__ != module.__name__:
            continue
        seen[id(function)] = None
        yield from _defaults_of(name, function)
        for called, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            variable = _Variable(module.__name__, f"{name}.{called}", cell)
            if id(cell) not in seen:
                seen[id(cell)] = None
                yield variable
            for value in _held_by(variable).values():
                pending += _functions_within(variable.name, value, module)


def _functions_in(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, value in list(vars(module).items()):
        called = f"{module.__name__}.{name}"
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from _functions_of_class(called, value)
        elif _is_ones_own(name):
            yield from _functions_within(called, value, module)


def _functions_within(
    called: str, value: object, module: ModuleType
) -> Iterator[tuple[str, FunctionType]]:
    """The value as a function, or those that it holds: a table of handlers, an object of a class of the module."""
    if type(value) in _NOTHING_WITHIN:  # most of what a module has
        return
    if isinstance(value, FunctionType):
        yield called, value
        return
    inside = partial(_standing_in, of=module.__name__)
    for one, _ in islice(_all_in(value, inside), LARGE):
        yield from ((called, function) for function in _functions_of(one))
        kind: type = type(one)
        if (
            kind.__module__ == module.__name__
        ):  # it may stand in a function, where nobody else finds it
            yield from _functions_of_class(called, kind)


def _standing_in(one: object, of: str) -> Collection[object]:
    """What stands in it, if it is a container of Python's, or an object of a class of this module."""
    kind: Any = type(one)
    if kind.__module__ in (*_COPIED_FROM, of):
        with suppress(Exception):  # the code of a user's own container may raise anything
            return list(_parts_of(_inner(one)))
    return ()


def _functions_of_class(called: str, owner: type) -> Iterator[tuple[str, FunctionType]]:
    for key, one in list(vars(owner).items()):
        yield from ((f"{called}.{key}", function) for function in _functions_of(one))


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The value, or what is called by it: a method, or a function with a cache before it."""
    while not isinstance(value, FunctionType) and (
        isroutine(value) or isinstance(value, property | partial)
    ):
        held = cast("object", value)
        inner = (getattr(held, name, None) for name in ("__func__", "__wrapped__", "fget", "func"))
        value = next((one for one in inner if one is not None), None)
    if isinstance(value, FunctionType):
        yield value


def _defaults_of(name: str, function: FunctionType) -> Iterator[_Default]:
    given, code = function.__defaults__ or (), function.__code__
    called = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    for place, key in enumerate(called):
        yield _Default(f"{name}.{key}", function, place)
    yield from (_Default(f"{name}.{key}", function, key) for key in function.__kwdefaults__ or {})


def _held_by(owner: Owner) -> Mapping[str, Any]:
    if not isinstance(owner, _Hidden):
        return vars(owner)
    try:
        return {"value": owner.value}
    except ValueError:  # a variable that has none yet
        return {}


def _content(value: Any) -> str | None:
    """None also for an object that does not let itself be read: its own code may raise anything."""
    kind: Any = type(cast("object", value))
    if kind in _SIMPLE:
        return repr(value)
    if _form_of(kind) is _Form.NO_DATA:  # most of what a module has
        return None
    with suppress(Exception):
        if not is_large(value):
            return _text(value, _DEPTH)
        return f"{type(value).__name__} of {len(_inner(value))}"
    return None


def _text(value: object, depth: int) -> str | None:
    """The content of a value, the same for equal ones; None for what is not data."""
    kind: Any = type(value)
    form = _form_of(kind)
    if form is _Form.PLAIN or isinstance(value, _LETS_WAIT):
        return repr(value if form is _Form.PLAIN else None)  # made at first use, it is no change
    bound = _bound_in(value)
    if depth == 0 or form is _Form.NO_DATA or (form is _Form.BOUND and not bound):
        return None
    data = cast("Any", value)
    if form is _Form.MAP:
        return _joined("map", [f"{_part(k, depth)}={_part(v, depth)}" for k, v in data.items()])
    if form is _Form.SET:
        return _joined("set", sorted([_part(one, depth) for one in data]))
    if form in (_Form.LIST, _Form.BOUND):
        return _joined("list", [_part(one, depth) for one in bound or data])
    fields = _fields_of(value).items()
    return _joined(kind.__name__, [f"{name}={_part(one, depth)}" for name, one in fields])


def _part(value: object, depth: int) -> str:
    return _text(value, depth - 1) or type(value).__name__


def _joined(name: str, parts: Iterable[str]) -> str:
    return f"{name}({', '.join(parts)})"


# The globals of the stages' modules, as each simulated process has them for itself.
#
# Simulated processes share one interpreter, and so they would share what a stage keeps beside its messages: it
# would outlive every crash, and even the run. Here each life begins with what the modules had after they were
# imported, and has its own from there on. Whenever the user's code of another life is entered, the values are
# exchanged.
#
# Containers and objects of the modules' own classes are copied, and what methods and partials are bound to. Other
# objects (a client, a model), and large tables, stay the same for all, and so do generators; ``functools.cache``
# is emptied, as it keeps nothing for anybody else.


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ABSTRACT = type(cast("object", vars(ABC)["_abc_impl"]))
"""What Python itself keeps of each abstract class, and so of each model."""
_UNCHANGING: frozenset[Any] = frozenset(
    {Pattern, object, range, slice, date, datetime, timedelta, timezone, _ABSTRACT}
)
"""Of libraries, and yet no memory."""

Owner: TypeAlias = ModuleType | type | FunctionType | _Hidden
Values: TypeAlias = Mapping[tuple[Owner, str], Any]

_CACHE = type(cache(lambda: None))
_COPIED_FROM = (
    *("_io", "array", "asyncio.locks", "asyncio.queues", "builtins", "collections", "decimal"),
    *("fractions", "functools", "io", "itertools", "queue", "random", "types"),
)
_LOCKS = {type(Lock()): Lock, type(RLock()): RLock}


State: TypeAlias = dict[str, object]
"""The fields of an object."""


class SharedLocks:
    """What calls wait for each other by, where all lives have the same objects (those around a handler alone are
    made once for each run): each life has a state of its own of them, as each process has a lock of its own."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[object, State | None] = WeakKeyDictionary()
        """As they were made by some life, or, of others, before the first one began."""
        self._kept: dict[Hashable, dict[object, State]] = {}

    def note(self, one: object, *, is_of_life: bool) -> None:
        """It was just made. What is done with it before the first life begins, each life begins with."""
        self._made[one] = _state_of(one) if is_of_life else None

    def enter(self, before: Hashable | None, life: Hashable) -> None:
        """From here on this life's code runs. ``before``: whose did until now."""
        known = list(self._made.items())
        for one, made in known:
            if before is None and made is None:
                self._made[one] = _state_of(one)
        if before is not None:
            self._kept[before] = {one: dict(vars(one)) for one, _ in known}
        found = self._kept.get(life, {})
        for one, _ in known:
            vars(one).update(found.get(one) or _copied_state(self._made[one] or {}))

    def reset(self) -> None:
        """No life is left."""
        self._kept.clear()
        for one, made in list(self._made.items()):
            vars(one).update(_copied_state(made or {}))


def _state_of(one: object) -> State:
    return {"_loop": None} | _copied_state(vars(one))


def _copied_state(state: State) -> State:
    """What it holds is not copied: a lock in a condition has a state of its own."""
    return {
        name: copy(cast("object", value)) if isinstance(value, list | deque | set) else value
        for name, value in state.items()
    }


SHARED_LOCKS = SharedLocks()


def synchronizing_in(modules: Iterable[ModuleType]) -> Iterator[object]:
    """What modules hold of it, in objects of their own classes too."""
    for module in modules:

        def inside(one: object, name: str = module.__name__) -> Collection[object]:
            if isinstance(one, type) and one.__module__ == name:
                return list(vars(one).values())
            return _standing_in(one, name)

        found = islice(_all_in(list(vars(module).values()), inside), LARGE)
        yield from (one for one, _ in found if isinstance(one, SYNCHRONIZING))


class ProcessMemory:
    """Exchanges the globals of modules. What they hold when this is made is what every life begins with."""

    def __init__(
        self,
        modules: Iterable[ModuleType] = (),
        replaced: Iterable[str] = (),
        beside: Iterable[ModuleType] = (),
    ) -> None:
        """``replaced``: the paths of functions and classes for which doubles stand there during runs. What these
        have is out of sight then, which is no change of it. ``beside``: modules that all lives share, but for what
        calls wait for each other by."""
        for one in synchronizing_in(beside):
            SHARED_LOCKS.note(one, is_of_life=False)
        self._replaced = tuple(f"{path.replace(':', '.')}." for path in replaced)
        self._modules = tuple(dict.fromkeys(modules))
        self._own = frozenset(module.__name__ for module in self._modules)
        self._hidden = tuple(one for module in self._modules for one in _hidden_in(module))
        self._shared: dict[int, None] = {}
        """Of values that are one for all lives, as they can't be copied."""
        self._imported = self._present()
        self._first = self._copied(self._imported)
        self._memory = memory_of(self._modules)
        self._kept: dict[Hashable, Values] = {}
        self._current: Hashable | None = None
        self._changed: dict[str, None] = {}
        self._environment = dict(os.environ)
        """The variables of the process that each life begins with."""
        self._environments: dict[Hashable, dict[str, str]] = {}

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of what lives have changed so far, in order."""
        return tuple(sorted(self._changed))

    def not_set_back(self) -> Iterator[str]:
        """Names what the modules hold that may change and is one for all lives, with its place and what it is."""
        for (owner, name), value in self._imported.items():
            place = _place_of(owner, name) if id(value) in self._shared else ""
            if place:  # what has none was imported
                yield f"{_name_of(owner, name)} ({place}) is {_kind_of(value)}"

    def not_set_back_of(self, names: Collection[str]) -> Iterator[str]:
        """The same of those that have these names, with that of their module."""
        return (what for what in self.not_set_back() if what.partition(" ")[0] in names)

    def enter(self, life: Hashable) -> None:
        """From here on this life's code runs."""
        if life is self._current:
            return
        SHARED_LOCKS.enter(self._current, life)
        self._put_away()
        self._current = life
        known = self._kept.get(life)
        self._install(self._copied(self._first) if known is None else known)
        _set_environment(self._environments.get(life, self._environment))

    def reset(self) -> None:
        """No life is left: everything is again as it was after the import."""
        if self._current is None:
            return
        self._put_away()
        for values in self._kept.values():
            self._install(values)
            names = changed(self._memory, memory_of(self._modules))
            self._changed |= {one: None for one in names if not one.startswith(self._replaced)}
        self._install(self._imported)
        _set_environment(self._environment)
        self._kept.clear()
        self._environments.clear()
        self._current = None
        SHARED_LOCKS.reset()

    def _put_away(self) -> None:
        if self._current is not None:
            self._kept[self._current] = self._present()
            now = dict(os.environ)
            if now != self._environment:
                self._environments[self._current] = now
                names = {name for name, _ in now.items() ^ self._environment.items()}
                self._changed |= {f"os.environ[{name!r}]": None for name in names}
            else:
                self._environments.pop(self._current, None)
        self._empty_caches()

    def _install(self, values: Values) -> None:
        for (owner, name), value in self._present().items():
            if (owner, name) not in values:
                with suppress(Exception):  # a class whose attributes can't be deleted, or set
                    delattr(owner, name)
            elif values[owner, name] is not value:
                self._set(owner, name, values[owner, name])
        for (owner, name), value in values.items():
            if name not in _held_by(owner):
                self._set(owner, name, value)

    def _set(self, owner: Owner, name: str, value: Any) -> None:
        try:
            setattr(owner, name, value)
        except Exception:  # noqa: BLE001 - a class that refuses it keeps one value for all
            self._shared[id(self._imported.get((owner, name)))] = None

    def _present(self) -> Values:
        """What the modules and their classes hold now."""
        return {
            (owner, name): value
            for owner in self._owners()
            for name, value in list(_held_by(owner).items())
            if _is_ones_own(name) and _is_data(value)
        }

    def _owners(self) -> Iterator[Owner]:
        for module in self._modules:
            yield module
            for value in list(vars(module).values()):
                if not isinstance(value, _OWNERS):
                    continue
                is_enum = isinstance(value, type) and issubclass(value, Enum)
                if value.__module__ == module.__name__ and not is_enum:
                    yield value
        yield from self._hidden

    def _empty_caches(self) -> None:
        for owner in self._owners():
            for name, value in _held_by(owner).items():
                if isinstance(value, _CACHE) and value.cache_info().currsize:
                    self._changed[_name_of(owner, name)] = None
                    value.cache_clear()

    def _copied(self, values: Values) -> Values:
        """One copy of all together: what two names share, they share in the copy too."""
        memo = {id(value): value for value in values.values() if not self._is_copied(value)}
        found: dict[tuple[Owner, str], Any] = {}
        with catch_warnings():
            # Python 3.12 and 3.13 warn of copies of iterators of itertools, and make them.
            simplefilter("ignore", DeprecationWarning)
            for place, value in values.items():
                try:
                    found[place] = _copy_of(value, memo)
                except _NotCopied:  # a lock in it, say: one for all, and a change of it is told
                    found[place] = value
                    self._shared[id(value)] = None
        return found

    def _is_copied(self, value: object) -> bool:
        kind: Any = type(value)
        form = _form_of(kind)
        if form in (_Form.PLAIN, _Form.NO_DATA):
            return form is _Form.PLAIN
        if form is _Form.BOUND:
            return all(self._is_copied(one) for one in _bound_in(value))
        is_ours = kind is not object and kind.__module__ in (*_COPIED_FROM, *self._own)
        is_copied = is_ours and not _is_large_or_unreadable(value)
        if not is_copied and kind not in _UNCHANGING:
            self._shared[id(value)] = None
        return is_copied


def _set_environment(variables: Mapping[str, str]) -> None:
    if (now := dict(os.environ)) != variables:  # which stages seldom touch
        for name in now.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)


def _name_of(owner: Owner, name: str) -> str:
    if isinstance(owner, _Hidden):
        return owner.name
    if isinstance(owner, ModuleType):
        return f"{owner.__name__}.{name}"
    return f"{owner.__module__}.{owner.__name__}.{name}"


def _is_data(value: object) -> bool:
    kind: Any = type(value)
    return _may_be_data(kind) or bool(_bound_in(value))


@lru_cache(maxsize=4096)
def _may_be_data(kind: Any) -> bool:
    """Said of a type: ``inspect`` tells routines and descriptors by it, too, and is asked for each name each time
    that another life is entered."""
    is_descriptor = any(hasattr(kind, name) for name in ("__get__", "__set__", "__delete__"))
    return not (is_descriptor or issubclass(kind, (type, ModuleType, *_ROUTINES)))


class _NotCopied(Exception):
    """A value that can't be copied, or does not want to be."""


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    if type(value) in _SIMPLE:
        return value
    if id(value) in memo:  # of a library, or large: it stays one for all, and nobody looks into it
        return memo[id(value)]
    try:
        memo |= _locks_in(value)
        return _copy_of_bound(value, memo) if _bound_in(value) else deepcopy(value, memo)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever __deepcopy__ of a user's class raises
        raise _NotCopied from error


def _copy_of_bound(value: Any, memo: dict[int, Any]) -> Any:
    """``deepcopy`` takes a method of a builtin type, such as ``[].append``, for a function."""
    if isinstance(value, partial):
        told: Any = cast("object", value)
        func = _copy_of_bound(told.func, memo) if _bound_in(told.func) else told.func
        return type(told)(func, *deepcopy(told.args, memo), **deepcopy(told.keywords, memo))
    if isinstance(value, MethodType):
        return deepcopy(value, memo)
    return getattr(deepcopy(value.__self__, memo), value.__name__)


def _is_large_or_unreadable(value: object) -> bool:
    try:
        return is_large(value)
    except Exception:  # noqa: BLE001 - the code of a user's own container may raise anything
        return True


def _kind_of(value: object) -> str:
    """In words: a generator, an object of csv.reader."""
    kind = type(value)
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        return "a generator"
    if bound := _bound_in(value):
        return f"bound to {_kind_of(bound[0])}"
    if kind in (list, dict, set, tuple, deque):
        return f"a {kind.__name__} with something that can't be copied"
    return f"an object of {kind.__module__.lstrip('_')}.{kind.__name__}"


def _place_of(owner: Owner, name: str) -> str:
    """The line that gives a name of a module its value first; of what a class or function has, that of it."""
    module = owner if isinstance(owner, ModuleType) else sys.modules.get(_home_of(owner))
    with suppress(Exception):
        assert module is not None
        wanted = (
            name
            if owner is module
            else _name_of(owner, name).split(".")[module.__name__.count(".") + 1]
        )
        line = _lines_of(inspect.getsource(module))[wanted]
        return f"{Path(cast('str', module.__file__)).name}:{line}"
    return ""


def _home_of(owner: Owner) -> str:
    return owner.home if isinstance(owner, _Hidden) else owner.__module__


def dates_read_by(module: ModuleType) -> Iterator[str]:
    """The places outside of functions at which a module asks ``datetime`` or ``date`` for the time that it is."""
    return (place for place, _, is_called in _dates_of(module) if is_called)


def clocks_taken_by(module: ModuleType) -> Iterator[str]:
    """Where a module takes ``datetime.now`` and the like, to be called later (``default_factory=datetime.now``):
    it is the real one for good, as that is the only one while modules are imported."""
    for place, clock, is_called in _dates_of(module):
        if not is_called:
            yield (
                f"{place} takes {clock} of the real clock while its module is imported, which is asked for the "
                f"time later: look it up when it is called (lambda: {clock}())"
            )


def _dates_of(module: ModuleType) -> Iterator[tuple[str, str, bool]]:
    with suppress(OSError, TypeError, SyntaxError):
        for line, clock, is_called in _dates_in(inspect.getsource(module)):
            yield f"{Path(module.__file__ or '').name}:{line}", clock, is_called


@lru_cache(maxsize=256)
def _dates_in(text: str) -> tuple[tuple[int, str, bool], ...]:
    """Where a text names what tells the date, outside of functions; as what; and whether it is called there."""
    found: list[tuple[int, str, bool]] = []
    called: set[ast.AST] = set()
    pending: list[ast.AST] = [*ast.parse(text).body]
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.Call):
            called.add(node.func)
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner in ("datetime", "date") and node.attr in ("now", "utcnow", "today"):
                found.append((node.lineno, ast.unparse(node), node in called))
        pending += (
            _done_at_once(node) if isinstance(node, _FUNCTIONS) else ast.iter_child_nodes(node)
        )
    return tuple(found)


def _done_at_once(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
) -> Iterator[ast.AST]:
    """What of a function is read when it is made: its defaults and decorators."""
    yield from (*function.args.defaults, *filter(None, function.args.kw_defaults))
    yield from [] if isinstance(function, ast.Lambda) else function.decorator_list


@lru_cache(maxsize=256)
def _lines_of(text: str) -> Mapping[str, int]:
    """Where a text gives each of its names a value, outside of functions."""
    found: dict[str, int] = {}
    for node in ast.parse(text).body:
        for inner in [node] if isinstance(node, _DEFINITIONS) else ast.walk(node):
            name = (
                inner.id if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) else ""
            )
            name = inner.name if isinstance(inner, _DEFINITIONS) else name
            if name:
                found.setdefault(name, getattr(inner, "lineno", 0))
    return found


def _locks_in(value: object) -> dict[int, Any]:
    """New locks for those that a value holds, which ``deepcopy`` can't make, and their methods for those that it
    keeps by themselves, as a condition does."""
    found: dict[int, Any] = {}
    for one, _ in _all_in(value):
        lock: Any = getattr(one, "__self__", None) if isinstance(one, BuiltinFunctionType) else one
        kind: Any = cast("object", type(lock))
        if make := _LOCKS.get(kind):
            new = found.setdefault(id(lock), make())
            found[id(one)] = new if one is lock else getattr(new, cast("Any", one).__name__)
    return found


# The modules of a user's project that stages are made of: their own, and those of it that these import.


_LIBRARIES = tuple(
    Path(path).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
_SUREPIPE = Path(__file__).resolve().parents[2]
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def project_modules(
    modules: Iterable[ModuleType], folder: Path | None = None, without: Iterable[ModuleType] = ()
) -> tuple[ModuleType, ...]:
    """These, and whatever they import, directly or not, of the same project: from this folder, or from beside one
    of them (of a package: from anywhere in it). What is installed is no part of a project.

    Those in ``without`` are left out, with what nobody else imports.
    """
    found = dict.fromkeys(one for one in modules if one.__name__ not in sys.stdlib_module_names)
    roots = [folder.resolve()] if folder is not None else []
    roots += [root for module in found for root in _root_of(module)]
    barred = {module.__name__ for module in without}
    pending = list(found)
    while pending:
        for name in _imported_by(pending.pop(), roots):
            module = sys.modules.get(name)
            if module is None or module in found or name in barred:
                continue
            if _is_of_project(module, roots):
                found[module] = None
                pending.append(module)
    return tuple(found)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _root_of(module: ModuleType) -> Iterator[Path]:
    """Its folder; of a package the outermost one."""
    file = _file_of(module)
    if file is not None and not _is_installed(file):
        depth = module.__name__.count(".") - (file.name != "__init__.py")
        yield file.parents[max(0, depth)]


def _is_installed(file: Path) -> bool:
    if not _INSTALLED.isdisjoint(file.parts):
        return True
    return any(file.is_relative_to(place) for place in (*_LIBRARIES, _SUREPIPE))


def _is_of_project(module: ModuleType, roots: Sequence[Path]) -> bool:
    file = _file_of(module)
    if file is None or _is_installed(file):
        return False
    return any(file.is_relative_to(root) for root in roots)


def _imported_by(module: ModuleType, roots: Sequence[Path]) -> Iterator[str]:
    """The names of modules that its text imports; what else it imports by name is not among the modules loaded.

    What only a function imports is loaded now: else the first process to call it would load it for all.
    """
    try:
        text = inspect.getsource(module)
        first, within = _imports_in(text, module.__name__, hasattr(module, "__path__"))
    except (OSError, TypeError, SyntaxError):  # it has no source
        return
    yield from first
    for name in within:
        if name not in sys.modules and _may_be_in(name, roots):
            with suppress(Exception):  # the function will say what is wrong with it
                import_module(name)
            yield name


@lru_cache(maxsize=1024)
def _imports_in(
    text: str, module: str, is_package: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All names that a text imports, and those that its functions import.

    A test that is called many times asks for the same texts each time, and to parse them took as long as its runs.
    """
    package = module if is_package else module.rpartition(".")[0]
    nodes = list(ast.walk(ast.parse(text)))
    functions = (one for one in nodes if isinstance(one, ast.FunctionDef))
    within = (inner for one in functions for inner in ast.walk(one))
    return tuple(_names(package, nodes)), tuple(_names(package, within))


def _names(package: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the outermost package
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from _with_parents(base)
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A module is loaded after the packages around it."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _may_be_in(name: str, roots: Sequence[Path]) -> bool:
    path = Path(*name.split("."))
    places = [place for root in roots for place in (root / path, root.parent / path)]
    return any(place.with_suffix(".py").is_file() or place.is_dir() for place in places)
