"""Covers what no two runs have in common, so that the rest of an end's messages can be compared.

A stage may write the time into its message, or a name of chance. Such a message is lost or repeated like any
other: it is the same message, but for the places that differ between runs without faults.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias, cast

Place: TypeAlias = tuple[str, ...]
"""The names on the way to a value; an item of a list is named by its index."""

COVERED = "*"
NAMELESS = ("true", "false", "null", "{}", "[]")
"""Values that tell nothing apart."""
WHOLE: Place = ()
MORE_MAX = 2
"""So many places that are the same in all runs may be covered as well."""


@dataclass(frozen=True, slots=True)
class Veil:
    """What is covered in each message of an end."""

    places: frozenset[Place]

    @property
    def is_whole(self) -> bool:
        """Nothing is left but that there is a message."""
        return WHOLE in self.places

    def over(self, text: str) -> str:
        """A canonical message without what is covered."""
        return json.dumps(self._covered(_value(text), WHOLE), sort_keys=True, separators=(",", ":"))

    def differ(self, one: Sequence[str], other: Sequence[str]) -> bool:
        """Whether they have other messages even so, in any order."""
        return Counter(map(self.over, one)) != Counter(map(self.over, other))

    def _covered(self, value: object, place: Place) -> object:
        if place in self.places:
            return COVERED
        inner = [(name, self._covered(one, (*place, name))) for name, one in _inside(value)]
        if isinstance(value, list):
            return [one for _, one in inner]
        return dict(inner) if isinstance(value, dict) else value

    def __str__(self) -> str:
        return ", ".join(sorted(map(".".join, self.places)))


ANY = Veil(frozenset({WHOLE}))
"""Leaves the number of messages."""


def veil_over(runs: Sequence[Sequence[str]]) -> Veil | None:
    """What has to be covered for all runs to have the same messages, in any order; None where nothing helps,
    because there are not as many in each.

    Each place is looked at by itself first. Values that are the same in all runs may stand beside others in each,
    as numbers do that messages get as they come: then one or two places more are covered, where only these help,
    and else all of the message.
    """
    there = [_at_places(run) for run in runs]
    everywhere = set(there[0]).intersection(*there)
    differs = {place for one in there for place in one if place not in everywhere}
    covered = {place[:-1] for place in differs}
    covered |= {
        place for place in everywhere if any(one[place] != there[0][place] for one in there)
    }
    is_empty = all(any(place[: len(one)] == one for one in covered) for place in everywhere)
    if is_empty:
        return ANY if _makes_alike(ANY, runs) else None
    if _makes_alike(veil := Veil(frozenset(covered)), runs):
        return veil
    if not _makes_alike(ANY, runs):
        return None
    left = sorted(p for p in everywhere if all(p[: len(one)] != one for one in covered))
    return _with_more(covered, left, runs) or ANY


def _makes_alike(veil: Veil, runs: Sequence[Sequence[str]]) -> bool:
    first, *others = (Counter(map(veil.over, run)) for run in runs)
    return all(one == first for one in others)


def _with_more(
    covered: Collection[Place], left: Sequence[Place], runs: Sequence[Sequence[str]]
) -> Veil | None:
    """The one veil that covers as few places more as help; None where there are several, as nobody knows then
    what is the message's own. What each message has for itself, an id, say, is rather that than what several
    share."""
    for count in range(1, min(MORE_MAX, len(left) - 1) + 1):
        veils = (Veil(frozenset({*covered, *more})) for more in combinations(left, count))
        helping = [veil for veil in veils if _makes_alike(veil, runs)]
        if len(helping) > 1:
            helping = [veil for veil in helping if not _covers_an_id(veil, runs[0])]
        if helping:
            return helping[0] if len(helping) == 1 else None
    return None


def _covers_an_id(veil: Veil, run: Sequence[str]) -> bool:
    values = _at_places(run)
    return any(len(values.get(place, ())) == len(run) for place in veil.places)


def _at_places(run: Sequence[str]) -> Mapping[Place, Counter[str]]:
    found: dict[Place, Counter[str]] = {}
    for text in run:
        for place, value in _leaves(_value(text), WHOLE):
            found.setdefault(place, Counter())[value] += 1
    return found


def values_in(text: str) -> frozenset[str]:
    """The texts and numbers of a canonical message, wherever they stand in it."""
    found = (value for _, value in _leaves(_value(text), WHOLE))
    return frozenset(value for value in found if value not in NAMELESS)


def _leaves(value: object, place: Place) -> Iterator[tuple[Place, str]]:
    inner = list(_inside(value))
    if not inner:
        yield place, json.dumps(value)
    for name, one in inner:
        yield from _leaves(one, (*place, name))


def _inside(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        yield from ((f"[{n}]", one) for n, one in enumerate(cast("list[object]", value)))
    elif isinstance(value, dict):
        yield from cast("dict[str, object]", value).items()


def _value(text: str) -> object:
    """What a canonical text stands for: a text of its own, where it is no JSON."""
    try:
        return cast("object", json.loads(text))
    except ValueError:
        return text
