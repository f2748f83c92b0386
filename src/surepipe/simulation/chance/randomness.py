"""All chance of a simulated run: one generator for each authority, and every draw through ``getrandbits``.

A seed and a label give a generator. What one authority draws moves no other one, so the workload of a seed stays
the same when its faults change. Only ``getrandbits`` is used, because its outputs are the same in every version of
Python; nothing here returns a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")

MILLION = 1_000_000


class Draws(Random):
    """The draws of one authority; also the ``Randomness`` that a machine is given.

    What ``random.Random`` can do beyond ``getrandbits`` differs between versions and is not used.
    """

    def below(self, bound: int) -> int:
        """A whole number from 0 to ``bound - 1``, each equally likely."""
        if bound <= 1:
            return 0
        width = (bound - 1).bit_length()
        drawn = self.getrandbits(width)
        while drawn >= bound:
            drawn = self.getrandbits(width)
        return drawn

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def happens(self, ppm: int) -> bool:
        """True so many times in a million; never and always draw nothing."""
        if ppm <= 0:
            return False
        return ppm >= MILLION or self.below(MILLION) < ppm

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], ppm: int) -> list[T]:
        """Each of the items with this probability, in their order."""
        return [item for item in items if self.happens(ppm)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def spread(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, small numbers as likely as large ones: the number of bits is drawn first."""
        bits = self.between(max(low, 1).bit_length(), max(high, 1).bit_length())
        return max(low, min(high, (1 << bits >> 1) + self.below(max(1, 1 << bits >> 1))))


def draws(seed: int, label: str) -> Draws:
    """The generator of one authority under a seed of 64 bits."""
    key = (seed % (1 << 64)).to_bytes(8, "big")
    return Draws(int.from_bytes(blake2b(label.encode(), key=key, digest_size=16).digest(), "big"))
