"""Records: what machines and hosts, and the two ends of a pipe, say to each other."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import pytest

from surepipe.core.effects import Deliver, Transmit
from surepipe.core.records import record
from surepipe.pipes.wire.frames import Confirm


@record
class Place:
    """A record of a test's own."""

    name: str
    number: int = 1


def test_records_are_equal_and_hashed_by_their_values() -> None:
    """As keys of a dictionary, and beside a record of another type with the same values (V-2)."""
    assert Place("a") == Place("a", 1) != Place("a", 2)
    assert {Place("a"): "found"}[Place("a", 1)] == "found"
    assert Transmit(b"x") == Transmit(b"x")
    assert hash(Deliver(1, 2, 3, (b"x",), 1)) == hash(Deliver(1, 2, 3, (b"x",), 1))


def test_records_hold_their_fields_and_nothing_else() -> None:
    """An attribute that a record does not have can't be given to it; a changed copy is another record."""
    place = Place("a")
    with pytest.raises(AttributeError):
        place.colour = "red"  # type: ignore[attr-defined]
    assert replace(place, number=7) == Place("a", 7) != place
    assert [field.name for field in fields(Transmit)] == ["frame"]


def test_records_survive_a_way_through_bytes() -> None:
    """What a pool of processes does with them."""
    for one in (Place("a", 2), Deliver(1, 2, 3, (b"x",), 1), Transmit(Place("b"))):
        assert pickle.loads(pickle.dumps(one)) == one
    assert Confirm.__match_args__[:2] == ("pipe", "layer")
