"""States of machines become plain values and come back equal (pipes P-11)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

import pytest

from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import export, export_attributes, restore, restore_attributes, stateful


@stateful
class Colour(IntEnum):
    """Something to tell apart from a number."""

    RED = 1


@stateful
@dataclass(slots=True)
class Leaf:
    """A record inside a state."""

    first: int
    payloads: list[bytes]


class Machine:
    """Something with a state and a collaborator."""

    TRANSIENT = ("port",)

    def __init__(self, port: object) -> None:
        self.port = port
        self.items: dict[tuple[int, int], deque[Leaf]] = {}
        self.colour = Colour.RED
        self.ranges = RangeSet()


def plain(value: object) -> bool:
    """Only what any serialiser can carry."""
    if isinstance(value, list):
        return all(plain(item) for item in cast("list[object]", value))
    return value is None or type(value) in (bool, int, str, bytes)


def test_a_state_is_exported_as_plain_values_and_restored_equal() -> None:
    """All kinds of containers, records and enums, without the transient attributes."""
    machine = Machine(port=object())
    machine.items[3, 4] = deque([Leaf(1, [b"a", b"b"])])
    machine.ranges.add(5, 9)
    value = export_attributes(machine)
    assert plain(value)
    twin = Machine(port="kept")
    restore_attributes(twin, value)
    assert twin.items == machine.items
    assert twin.ranges == machine.ranges
    assert twin.colour is Colour.RED
    assert twin.port == "kept"


def test_a_restored_state_shares_nothing_with_the_original() -> None:
    """Changing one leaves the other as it was."""
    leaf = Leaf(1, [b"a"])
    twin = restore(export(leaf))
    leaf.payloads.append(b"b")
    assert twin == Leaf(1, [b"a"])


def test_what_is_not_registered_is_refused_by_name() -> None:
    """A state that could not be restored is not exported in the first place."""
    with pytest.raises(TypeError, match="object is not registered"):
        export([object()])
