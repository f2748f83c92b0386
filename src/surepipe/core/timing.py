"""Deadlines: doubling waits with jitter, in whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.core.machine import Randomness

_PARTS = 1 << 20


def below(rng: Randomness, bound: int) -> int:
    """A uniform draw from 0 .. bound - 1, by rejection, so that it is the same on every Python."""
    bits = (bound - 1).bit_length()
    while (drawn := rng.getrandbits(bits) if bits else 0) >= bound:
        pass
    return drawn


def earlier(one: int | None, other: int | None) -> int | None:
    """The earlier of two deadlines; None is one that never comes."""
    if one is None or (other is not None and other < one):
        return other
    return one


def doubled(wait: int, limit: int, attempts: int) -> int:
    """``wait`` doubled for each attempt after the first, at most ``limit``."""
    return min(limit, wait << min(attempts - 1, 40))


def backoff(wait: int, limit: int, attempts: int, jitter: float, rng: Randomness) -> int:
    """How long to wait after this many attempts: doubled, and that times 1 + uniform(-jitter, +jitter).

    At least a microsecond, so that time goes on between two. Without jitter nothing is drawn.
    """
    wait = min(limit, wait << min(attempts - 1, 40))
    spread = wait * round(jitter * _PARTS) // _PARTS
    if not spread:
        return max(wait, 1)
    bits = (2 * spread).bit_length()  # what ``below`` does, here because each transmission draws
    while (drawn := rng.getrandbits(bits)) > 2 * spread:
        pass
    return max(wait - spread + drawn, 1)


@dataclass(frozen=True, slots=True)
class BackOff:
    """Waits that double from ``first`` to ``most``, in microseconds, with a random part.

    The random part keeps many who failed together from trying again together.
    """

    first: int
    most: int
    jitter: float = 0.0

    @classmethod
    def of_seconds(cls, first_s: float, most_s: float, jitter: float = 0.0) -> BackOff:
        """The same, given in seconds."""
        return cls(round(first_s * 1_000_000), round(most_s * 1_000_000), jitter)

    def calm(self, attempts: int) -> int:
        """The wait after so many attempts, without the random part."""
        return doubled(self.first, self.most, attempts)

    def wait(self, attempts: int, rng: Randomness) -> int:
        """The wait after so many attempts."""
        return backoff(self.first, self.most, attempts, self.jitter, rng)
