"""State of machines as plain values: numbers, text, bytes, and lists of them.

A class whose instances are part of a machine's state is registered with ``@stateful``; everything it holds is
exported except the attributes named in its ``TRANSIENT`` (its port, its options, the random generator). The
value can be stored, sent to another process, compared and digested.

A registered class whose attributes are no plain values has ``to_state`` (a method that gives one) and
``from_state`` (a class method that builds an instance from it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

from surepipe.core.payloads import Payloads, sized

C = TypeVar("C", bound=type)

_REGISTRY: dict[str, type] = {}


@runtime_checkable
class Describing(Protocol):
    """A class that says itself what value stands for it."""

    def to_state(self) -> object:
        """A plain value, or one that holds registered objects."""
        ...

    @classmethod
    def from_state(cls, state: object) -> Self:
        """An instance from what ``to_state`` gave."""
        ...


def stateful(cls: C) -> C:
    """Class decorator: instances may be part of an exported state."""
    _REGISTRY[cls.__name__] = cls
    return cls


def export(value: object) -> object:
    """The value of a state, made of None, bool, int, str, bytes and lists."""
    if value is None or (
        isinstance(value, bool | int | str | bytes) and not isinstance(value, Enum)
    ):
        return value
    if isinstance(value, Enum):
        return ["enum", type(value).__name__, value.value]
    if isinstance(value, list | tuple | deque):
        items = cast("list[object]", value)
        return [_SEQUENCES[type(items)], *[export(item) for item in items]]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return ["dict", *[[export(key), export(item)] for key, item in pairs]]
    if _REGISTRY.get(type(value).__name__) is not type(value):
        raise TypeError(f"{type(value).__name__} is not registered as part of a machine's state")
    if isinstance(value, Describing):
        return ["made", type(value).__name__, export(value.to_state())]
    return ["object", type(value).__name__, export_attributes(value)]


def export_attributes(owner: object) -> object:
    """The attributes of one object, without its transient ones."""
    return [[name, export(getattr(owner, name))] for name in _attributes(owner)]


def restore(value: object) -> object:
    """Build again what ``export`` made a value of."""
    if not isinstance(value, list):
        return value
    tag, *rest = _items(cast("object", value))
    if tag == "dict":
        return {restore(key): restore(item) for key, item in rest}
    if tag == "enum":
        return _REGISTRY[rest[0]](rest[1])
    if tag == "object":
        known: type[object] = _REGISTRY[rest[0]]
        made = object.__new__(known)
        restore_attributes(made, rest[1])
        return made
    if tag == "made":
        return cast("type[Describing]", _REGISTRY[rest[0]]).from_state(restore(rest[1]))
    return _BUILDERS[tag]([restore(item) for item in rest])


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value)


def restore_attributes(owner: object, value: object) -> None:
    """Set the attributes of an object to an exported state; transient ones stay as they are."""
    for name, item in cast("list[tuple[str, object]]", value):
        object.__setattr__(owner, name, restore(item))


def _attributes(owner: object) -> Iterator[str]:
    transient: tuple[str, ...] = getattr(owner, "TRANSIENT", ())
    names: list[str] = []
    for cls in reversed(type(owner).__mro__):
        slots: str | tuple[str, ...] = cls.__dict__.get("__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    names.extend(getattr(owner, "__dict__", {}))
    for name in names:
        if name not in transient and not name.startswith("__"):
            yield name


def _payloads(items: list[object]) -> Payloads:
    return sized(cast("list[bytes]", items))


_SEQUENCES: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    deque: "deque",
    Payloads: "payloads",
}
_BUILDERS: dict[str, Callable[[list[object]], object]] = {
    "list": list,
    "payloads": _payloads,
    "tuple": tuple,
    "deque": deque,
}
