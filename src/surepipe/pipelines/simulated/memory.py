"""What a stage keeps in the globals of its module: memory that a crash would lose, and that no run starts without.

A stage with memory is a class, one instance for each process. What is kept beside that survives a simulated crash
and would not survive a real one, so it makes runs look better than they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set
from inspect import isroutine
from itertools import count
from types import ModuleType
from typing import Any, TypeAlias, cast

from surepipe.simulation.outside import Outside

Memory: TypeAlias = Mapping[str, str]
"""The content of each global that can be compared, by its name."""

_DEPTH = 6
LARGE = 10_000
"""So many parts make a value large."""
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None), count)


def is_large(value: object) -> bool:
    """A table, say: too much to be copied for each process, or to be read after each run."""
    seen: dict[int, None] = {}
    pending = [value]
    count = 0
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = None
        inner = _inner(one)
        count += len(inner)
        if count > LARGE:
            return True
        pending += inner.values() if isinstance(inner, Mapping) else inner
    return False


def _inner(value: object) -> Collection[object]:
    if isinstance(value, _PLAIN) or _is_no_data(value):
        return ()
    if isinstance(value, Mapping | Set | list | tuple | deque):
        return cast("Collection[object]", value)
    return cast("Mapping[str, object]", getattr(value, "__dict__", {}))


def memory_of(modules: Iterable[ModuleType]) -> Memory:
    """What these modules keep now. Functions and imported things are no memory."""
    found: dict[str, str] = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            if isinstance(value, type) and value.__module__ == module.__name__:
                found |= _of_class(f"{module.__name__}.{name}", value)
            elif (text := _content(value)) is not None:
                found[f"{module.__name__}.{name}"] = text
    return found


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


def _of_class(name: str, owner: type) -> Memory:
    """A list in a class is as global as one beside it."""
    fields = {key: value for key, value in vars(owner).items() if not key.startswith("__")}
    texts = {key: _content(value) for key, value in fields.items()}
    return {f"{name}.{key}": text for key, text in texts.items() if text is not None}


def _is_no_data(value: object) -> bool:
    return isinstance(value, type | ModuleType | Outside) or isroutine(value)


def _content(value: Any) -> str | None:
    if not is_large(value):
        return _text(value, _DEPTH)
    return f"{type(value).__name__} of {len(_inner(value))}"


def _text(value: Any, depth: int) -> str | None:
    """The content of a value, the same for equal ones; None for what is not data."""
    if isinstance(value, _PLAIN):
        return repr(cast("object", value))
    if depth == 0 or _is_no_data(value):
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return _joined("map", [f"{_part(k, depth)}={_part(v, depth)}" for k, v in items])
    if isinstance(value, Set):
        return _joined("set", sorted(_part(one, depth) for one in cast("Set[object]", value)))
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return _joined("list", [_part(one, depth) for one in cast("Iterable[object]", value)])
    fields = cast("dict[str, object]", getattr(value, "__dict__", {}))
    return _joined(type(value).__name__, [f"{k}={_part(v, depth)}" for k, v in fields.items()])


def _part(value: object, depth: int) -> str:
    return _text(value, depth - 1) or type(value).__name__


def _joined(name: str, parts: Iterable[str]) -> str:
    return f"{name}({', '.join(parts)})"
