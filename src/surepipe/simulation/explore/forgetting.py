"""States with the same future, made one: what a machine still knows and will never look at again.

Timers don't adapt in an exploration, nothing is given up, and what people are told is not judged. So how often
something was tried makes no difference but for the first time, and how long ago it was none but within one round
trip. Two states that differ in nothing else do the same for ever, step by step; one of them is enough.

That is so for the layers that send again and for those that confirm, with timers that don't grow (the longest wait
is the first one). A layer whose waits grow, or that gives up, keeps all that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from surepipe.pipes.retry.flights import NEVER
from surepipe.simulation.explore.numbers import BASE, PLAIN

MESSAGES_MAX = 100
"""More than any exploration brings to its end, repeats included."""

Attributes: TypeAlias = dict[str, object]
"""Of one object of an exported state, by name."""


def forgotten(state: object) -> object:
    """An exported stack without what makes no difference to what comes; any other state as it is."""
    if not _is_attributes(state) and isinstance(state, list):
        return [_layer(part) for part in cast("list[object]", state)]
    return state


def _layer(part: object) -> object:
    if not _is_attributes(part):
        return part
    known = _attributes(part)
    if "now" in known:
        known["now"] = BASE
    usual = _round_trip(known)
    if usual:
        _forget_attempts(known, usual)
    return [[name, _inner(value, usual)] for name, value in known.items()]


def _round_trip(layer: Attributes) -> int:
    """How long a round trip takes for a layer that sends again and never waits longer; 0 for all other layers."""
    trips = layer.get("round_trips")
    if trips is None or layer.get("give_up_after") != NEVER:
        return 0
    known = _attributes(cast("list[object]", trips)[2])
    is_fixed = known["initial"] == known["least"] == known["most"] and known["smoothed"] is None
    return cast("int", known["least"]) if is_fixed else 0


def _forget_attempts(layer: Attributes, usual: int) -> None:
    for name in ("probes", "opens", "credit_waits"):
        if name in layer:
            layer[name] = min(cast("int", layer[name]), 1)
    layer["probed_at"] = max(cast("int", layer["probed_at"]), BASE - usual)
    if cast("int", layer["paced_until"]) <= BASE:
        layer["paced_until"] = 0
    if "opening_since" in layer:
        layer["opening_since"] = BASE


def _inner(value: object, usual: int) -> object:
    """The same for the objects within."""
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    if len(items) == 3 and items[0] == "object":
        known = _attributes(items[2])
        forget = FORGET.get(cast("str", items[1]))
        if forget is not None:
            forget(known, usual)
        return [*items[:2], [[name, _inner(item, usual)] for name, item in known.items()]]
    return [item if type(item) in PLAIN else _inner(item, usual) for item in items]


def _flight(known: Attributes, usual: int) -> None:
    if usual:
        known["attempts"] = 1
        known["since"] = BASE
        known["sent"] = max(cast("int", known["sent"]), BASE - usual)


def _report_clock(known: Attributes, _usual: int) -> None:
    """Half a window is reported at once; where that is more messages than there are, their number is of no use."""
    if cast("int", known["half"]) > MESSAGES_MAX:
        known["settled"] = 0


def _holes(known: Attributes, _usual: int) -> None:
    """Only how many frames came behind a hole matters, up to those that are enough to name it."""
    holes = [_attributes(cast("list[object]", hole)[2]) for hole in _members(known["holes"])]
    behind = [cast("int", known["arrivals"]) - cast("int", hole["arrivals"]) for hole in holes]
    counted = [min(count, cast("int", known["enough"])) for count in behind]
    known["arrivals"] = most = max(counted, default=0)
    for hole, count in zip(holes, counted, strict=True):
        hole["arrivals"] = most - count
    known["holes"] = ["list", *(["object", "Hole", _pairs(hole)] for hole in holes)]


FORGET: Mapping[str, Callable[[Attributes, int], None]] = {
    "Flight": _flight,
    "ReportClock": _report_clock,
    "Holes": _holes,
}


def _is_attributes(value: object) -> bool:
    """Whether this is a list of names with their values."""
    return isinstance(value, list) and all(map(_is_pair, cast("list[object]", value)))


def _is_pair(item: object) -> bool:
    if not isinstance(item, list):
        return False
    pair = cast("list[object]", item)
    return len(pair) == 2 and isinstance(pair[0], str)


def _attributes(value: object) -> Attributes:
    return dict(cast("list[tuple[str, object]]", value))


def _pairs(known: Attributes) -> list[object]:
    return [[name, item] for name, item in known.items()]


def _members(collection: object) -> list[object]:
    return cast("list[object]", collection)[1:]
