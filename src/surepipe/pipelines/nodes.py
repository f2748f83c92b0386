"""What a YAML text says, with the place of every word: scalars, rows and mappings.

Nothing is built from tags and nothing is shared between two places, so whatever somebody writes, reading it
costs no more than its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from surepipe.pipelines.problems import Place

ScalarValue: TypeAlias = str | int | float | bool | None
Step: TypeAlias = str | int


@dataclass(slots=True)
class Scalar:
    """One value. ``written`` is its text in the file; ``plain``: without quotes."""

    place: Place
    value: ScalarValue
    written: str
    plain: bool = True

    def data(self) -> object:
        """The value."""
        return self.value


@dataclass(slots=True)
class Row:
    """A list."""

    place: Place
    items: list[Node] = field(default_factory=list["Node"])

    def data(self) -> object:
        """The list as plain values."""
        return [item.data() for item in self.items]


@dataclass(slots=True)
class Mapping:
    """Keys and values. ``keys`` has the place of each key."""

    place: Place
    values: dict[str, Node] = field(default_factory=dict[str, "Node"])
    keys: dict[str, Place] = field(default_factory=dict[str, Place])

    def data(self) -> object:
        """The mapping as plain values."""
        return {key: value.data() for key, value in self.values.items()}


Node: TypeAlias = Scalar | Row | Mapping


def step_into(node: Node, step: Step) -> Node | None:
    """The value under a key or at a number, or None where there is none."""
    if isinstance(node, Mapping) and isinstance(step, str):
        return node.values.get(step)
    if isinstance(node, Row) and isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step]
    return None


def find(node: Node, path: tuple[Step, ...]) -> Node:
    """The node at a path, as far as the path goes."""
    for step in path:
        node = step_into(node, step) or node
    return node


def key_place(node: Node, path: tuple[Step, ...]) -> Place:
    """Where the last key of the path stands; for the number of a row, where that value stands."""
    holder = find(node, path[:-1])
    last = path[-1] if path else ""
    if isinstance(holder, Mapping) and isinstance(last, str) and last in holder.keys:
        return holder.keys[last]
    return find(node, path).place


def scalars(node: Node, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Scalar]]:
    """Every scalar of a tree with its path."""
    match node:
        case Scalar():
            yield path, node
        case Row(items=items):
            for number, item in enumerate(items):
                yield from scalars(item, (*path, number))
        case Mapping(values=values):
            for key, value in values.items():
                yield from scalars(value, (*path, key))
