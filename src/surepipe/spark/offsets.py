"""How far a query has read each stream: what Spark keeps in its checkpoint, as JSON.

    {"clicks/0": {"next": 501, "incarnation": 77, "life": 77, "producer": "web", "epoch": 1, "seq": 500}}

A key is the stream and the partition (0 for a stream of one). Spark compares offsets as texts, so keys and fields
have one order. The last three fields are the anchor, the identity of the entry before ``next``; they are not there
when nobody knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from surepipe.errors import ConfigurationError
from surepipe.store_api import Identity

Json: TypeAlias = dict[str, dict[str, int | str]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading a stream goes on: at index ``next`` of this incarnation."""

    next: int
    incarnation: int
    life: int
    """Counts indexes' lives: the incarnation, raised by one each time that the store went back under the query."""
    anchor: Identity | None = None

    def at(self, following: int, anchor: Identity | None) -> Place:
        """The same life of the stream, further on."""
        return replace(self, next=following, anchor=anchor)


Offsets: TypeAlias = dict[str, Place]


def key_of(stream: str, partition: int) -> str:
    """The key of a partition of a stream."""
    return f"{stream}/{partition}"


def stream_of(key: str) -> tuple[str, int]:
    """The stream and the partition of a key."""
    stream, _, partition = key.rpartition("/")
    return stream, int(partition)


def to_json(offsets: Mapping[str, Place]) -> Json:
    """What Spark writes into its checkpoint."""
    return {key: _place_to_json(offsets[key]) for key in sorted(offsets)}


def _place_to_json(place: Place) -> dict[str, int | str]:
    found: dict[str, int | str] = {
        "next": place.next,
        "incarnation": place.incarnation,
        "life": place.life,
    }
    if place.anchor:
        found |= {
            "producer": place.anchor.producer,
            "epoch": place.anchor.epoch,
            "seq": place.anchor.seq,
        }
    return found


def from_json(offsets: Mapping[str, object]) -> Offsets:
    """What Spark gives back. Raises ConfigurationError for what ``to_json`` did not make."""
    try:
        return {
            key: _place_from_json(cast("Mapping[str, int | str]", offsets[key])) for key in offsets
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the checkpoint holds no offsets of the surepipe source ({offsets!r}, {error!r}): it belongs to "
            "another query; name another folder"
        ) from None


def _place_from_json(fields: Mapping[str, int | str]) -> Place:
    anchor = None
    if "producer" in fields:
        anchor = Identity(str(fields["producer"]), int(fields["epoch"]), int(fields["seq"]))
    return Place(int(fields["next"]), int(fields["incarnation"]), int(fields["life"]), anchor)
