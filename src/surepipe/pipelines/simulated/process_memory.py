"""The globals of the stages' modules, as each simulated process has them for itself.

Simulated processes share one interpreter, and so they would share what a stage keeps beside its messages: it
would outlive every crash, and even the run. Here each life begins with what the modules had after they were
imported, and has its own from there on. Whenever the user's code of another life is entered, the values are
exchanged.

Containers and objects of the modules' own classes are copied. Other objects (a client, a model), and large tables,
stay the same for all; ``functools.cache`` is emptied, as it keeps nothing for anybody else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import deepcopy
from enum import Enum
from functools import cache
from inspect import isdatadescriptor, isroutine
from types import ModuleType
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

from surepipe.pipelines.simulated.memory import changed, is_large, memory_of

Owner: TypeAlias = ModuleType | type
Values: TypeAlias = Mapping[tuple[Owner, str], Any]

_CACHE = type(cache(lambda: None))
_COPIED_FROM = ("builtins", "collections", "itertools", "random")


class ProcessMemory:
    """Exchanges the globals of modules. What they hold when this is made is what every life begins with."""

    def __init__(self, modules: Iterable[ModuleType] = ()) -> None:
        self._modules = tuple(dict.fromkeys(modules))
        self._own = frozenset(module.__name__ for module in self._modules)
        self._imported = self._present()
        self._first = self._copied(self._imported)
        self._memory = memory_of(self._modules)
        self._kept: dict[Hashable, Values] = {}
        self._current: Hashable | None = None
        self._changed: dict[str, None] = {}

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of what lives have changed so far, in order."""
        return tuple(sorted(self._changed))

    def enter(self, life: Hashable) -> None:
        """From here on this life's code runs."""
        if not self._modules or life is self._current:
            return
        self._put_away()
        self._current = life
        known = self._kept.get(life)
        self._install(self._copied(self._first) if known is None else known)

    def reset(self) -> None:
        """No life is left: everything is again as it was after the import."""
        if self._current is None:
            return
        self._put_away()
        for values in self._kept.values():
            self._install(values)
            self._changed |= dict.fromkeys(changed(self._memory, memory_of(self._modules)))
        self._install(self._imported)
        self._kept.clear()
        self._current = None

    def _put_away(self) -> None:
        if self._current is not None:
            self._kept[self._current] = self._present()
        self._empty_caches()

    def _install(self, values: Values) -> None:
        for (owner, name), value in self._present().items():
            if (owner, name) not in values:
                delattr(owner, name)
            elif values[owner, name] is not value:
                setattr(owner, name, values[owner, name])
        for (owner, name), value in values.items():
            if name not in vars(owner):
                setattr(owner, name, value)

    def _present(self) -> Values:
        """What the modules and their classes hold now."""
        return {
            (owner, name): value
            for owner in self._owners()
            for name, value in list(vars(owner).items())
            if not name.startswith("__") and _is_data(value)
        }

    def _owners(self) -> Iterator[Owner]:
        for module in self._modules:
            yield module
            for value in list(vars(module).values()):
                is_own = isinstance(value, type) and value.__module__ == module.__name__
                if is_own and not issubclass(value, Enum):
                    yield value

    def _empty_caches(self) -> None:
        for owner in self._owners():
            for name, value in vars(owner).items():
                if isinstance(value, _CACHE) and value.cache_info().currsize:
                    self._changed[f"{_name_of(owner)}.{name}"] = None
                    value.cache_clear()

    def _copied(self, values: Values) -> Values:
        """One copy of all together: what two names share, they share in the copy too."""
        memo = {id(value): value for value in values.values() if not self._is_copied(value)}
        return {place: _copy_of(value, memo) for place, value in values.items()}

    def _is_copied(self, value: object) -> bool:
        kind = type(value)
        is_ours = kind is not object and kind.__module__ in (*_COPIED_FROM, *self._own)
        return is_ours and not is_large(value)


def _name_of(owner: Owner) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{owner.__name__}"


def _is_data(value: object) -> bool:
    return not (isinstance(value, type | ModuleType) or isroutine(value) or isdatadescriptor(value))


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    try:
        with (
            catch_warnings()
        ):  # Python 3.12 and 3.13 warn of copies of iterators of itertools, and make them
            simplefilter("ignore", DeprecationWarning)
            return deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - a lock in it, say: it stays one for all, and a change of it is told
        return value
