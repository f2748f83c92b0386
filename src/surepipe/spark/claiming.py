"""Taking over a position by intent: each attempt at a task, and each query, is a life of its own."""

from __future__ import annotations

from functools import partial

from surepipe.errors import Fenced
from surepipe.spark.places import StorePlace, asked
from surepipe.storage.claims import Claims
from surepipe.store_api import Owner, Position

BEGINNINGS = 5
"""How often a life is begun anew when another one began in the same millisecond."""


def claimed(place: StorePlace, stream: str, reader: str, what: str) -> int:
    """The owner's number under which the caller may commit from now on, until somebody else claims.

    Raises Fenced when others do so again and again at this very moment, StoreUnavailable and ConfigurationError as
    ``asked``.
    """
    for _ in range(BEGINNINGS):
        claims = Claims(place.store())
        outcome = asked(partial(claims.claim, stream, reader, 1), what, place)
        if isinstance(outcome, Owner):
            return outcome.number
    raise Fenced(f"{what} in {place}: others claim it at this moment; this one stops")


def stored_position(place: StorePlace, stream: str, reader: str, what: str) -> Position | None:
    """Where a reader stands; None when it never committed. Raises as ``asked``."""
    store = place.store()
    outcome = asked(partial(store.get, stream, reader), what, place)
    return outcome if isinstance(outcome, Position) else None
