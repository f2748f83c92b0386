"""Records that nobody changes: what machines and hosts, and the two ends of a pipe, say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """A slotted dataclass that is equal and hashed by its values, and that type checkers hold to be frozen.

    Python itself does not: making a frozen one of eight fields takes four times as long, and every step of a
    machine makes some.
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)
