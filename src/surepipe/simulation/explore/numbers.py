"""Numbers in place of chance, of values and of time: what makes equal states of an exploration equal.

States hold times relative to a fixed ``BASE``, which is always now: the only numbers of that size in a state are
times.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import cast

BASE = 10**15
PLAIN = frozenset({int, str, bytes, bool, type(None)})
"""Of these types are the leaves of a state, which are most of it."""
_SINCE, _UNTIL = BASE // 2, BASE * 2


class Names:
    """Stands in for chance: names are given out in order, so equal histories give equal names."""

    def __init__(self, place: int) -> None:
        self._place = place + 1
        self.life = 0
        self.drawn = 0

    def getrandbits(self, k: int, /) -> int:
        """The next name."""
        self.drawn += 1
        return ((self._place * 16 + self.life) * 64 + self.drawn) & ((1 << k) - 1)


class ValueNumbers:
    """Values by number. Equal are those whose key, or the 128-bit digest of it, is equal."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._numbers: dict[object, int] = {}
        self._values: list[object] = []

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, number: int) -> object:
        return self._values[number]

    def of(self, value: object) -> int:
        """The number of this value."""
        text = repr(value)
        key: object = text if self._exact else blake2b(text.encode(), digest_size=16).digest()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._values)
            self._values.append(value)
        return number


def moved(value: object, by: int) -> object:
    """A state with all its times moved."""
    if type(value) is int:
        return value + by if _SINCE <= value < _UNTIL else value
    if isinstance(value, list):
        return [
            moved(item, by) if type(item) is not str else item
            for item in cast("list[object]", value)
        ]
    if isinstance(value, tuple):
        return tuple(moved(item, by) for item in cast("tuple[object, ...]", value))
    return value


def payload_of(number: int) -> bytes:
    """The payload of the message with this number."""
    return str(number).encode()


def number_in(payload: bytes) -> int:
    """The number of the message with this payload, 0 for none."""
    return int(payload) if payload.isdigit() else 0
