"""Claims of one life: who may take a reader, when a process that was replaced comes back.

A life begins when somebody starts a program, and takes over from whoever was there. Within it an incarnation may
have to begin anew (its actor died, or a store did not answer): that is a renewal, which claims again, and must not
take anything back from a life that began later. So claims are numbered: a life by the wall clock, its renewals by
counting on. The store knows the highest claimant that it ever had, and refuses lower ones for good.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from surepipe.store_api import ClaimOutcome, Fenced, IndexStore, Owner

CHANCE_BITS = 20
"""Below the milliseconds. It tells two lives of one millisecond apart, and leaves room for a million renewals."""
_CHANCE = (1 << CHANCE_BITS) - 1
_STEP = 1 << 14
"""How far above another life one goes that must not be below it: its renewals fit in between."""


def numbered(wall_ms: int, chance: int) -> int:
    """The number of a life that begins at this time."""
    return (wall_ms << CHANCE_BITS) + (chance & _CHANCE)


def number_now() -> int:
    """The number of a life that begins now."""
    return numbered(time.time_ns() // 1_000_000, secrets.randbits(CHANCE_BITS))


def began_later(other: int, own: int, now: int) -> bool:
    """Whether the other life began after our own one; all three are numbers of lives.

    One of the same millisecond is taken for earlier. So is one from the future: a clock is wrong, and whoever was
    started must not be refused for that.
    """
    return own >> CHANCE_BITS < other >> CHANCE_BITS < now >> CHANCE_BITS


class Claims:
    """The claims of one life on one reader."""

    def __init__(
        self, positions: IndexStore, number_of_life: Callable[[], int] = number_now
    ) -> None:
        """The life begins now. ``number_of_life``: of one that begins when it is called, by the clock."""
        self._positions = positions
        self._number_of_life = number_of_life
        self._life = number_of_life()
        self._is_taken = False
        """True once this life was told that it owns the reader."""

    def claim(self, stream: str, reader: str, renewal: int) -> ClaimOutcome:
        """Claim as the how-many-th incarnation of this life; the number counts up from 1.

        The first time takes the reader from whoever has it. Fenced from then on when a life that began later has
        taken it. A repeat of the same renewal: the same owner.
        """
        claimed = self._claim(stream, reader, renewal)
        if isinstance(claimed, Fenced) and self._is_earlier(claimed.by):
            self._life = claimed.by + _STEP + self._life % _STEP
            claimed = self._claim(stream, reader, renewal)
        return claimed

    def _claim(self, stream: str, reader: str, renewal: int) -> ClaimOutcome:
        claimed = self._positions.claim(stream, reader, self._life + renewal)
        self._is_taken = self._is_taken or isinstance(claimed, Owner)
        return claimed

    def _is_earlier(self, claimant: int) -> bool:
        """True for one whose life is earlier than this one, although its number is higher."""
        is_new = not self._is_taken
        return is_new and not began_later(claimant, self._life, self._number_of_life())
