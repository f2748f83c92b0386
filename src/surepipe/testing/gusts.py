"""What a proxy is told to do, one thing after the other, drawn from a seed: the storms of fault tests.

    for gust in draw_gusts(seed=7, count=5):
        gust.blow(proxy)
        ...                      # some work
    proxy.clear()

Like every schedule against real processes it repeats what is done, not what comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from surepipe.testing.proxy import CLEAR, FaultProxy, Toward, Weather


class GustKind(StrEnum):
    """What a gust does."""

    DELAY = "delay"
    SLOW = "slow"
    SLICES = "slices"
    BLACK_HOLE = "black-hole"
    RESET = "reset"
    CUT = "cut"
    LOST_REPLY = "lost-reply"
    REFUSED = "refused"
    CALM = "calm"


STORMY: tuple[GustKind, ...] = tuple(kind for kind in GustKind if kind is not GustKind.CALM)


@dataclass(frozen=True, slots=True)
class Gust:
    """One thing to do to a proxy. ``amount`` is in the unit of its kind: milliseconds, bytes, or replies."""

    kind: GustKind
    toward: Toward
    amount: int

    def __str__(self) -> str:
        return f"{self.kind} toward {self.toward} by {self.amount}"

    def blow(self, proxy: FaultProxy, *, command: bytes = b"") -> None:
        """Do it. ``command``: which commands' replies may be lost."""
        match self.kind:
            case GustKind.RESET:
                proxy.reset()
            case GustKind.CUT:
                proxy.cut_after(self.amount, self.toward)
            case GustKind.LOST_REPLY:
                proxy.lose_reply(to=command, after=self.amount % 4)
            case GustKind.REFUSED:
                proxy.refuse()
                proxy.reset()
            case GustKind.CALM:
                proxy.clear()
            case _:
                self._change(proxy)

    def _change(self, proxy: FaultProxy) -> None:
        weather = self._weather()
        if self.toward is Toward.SERVER:
            proxy.weather(to_server=weather, to_client=CLEAR)
        else:
            proxy.weather(to_server=CLEAR, to_client=weather)

    def _weather(self) -> Weather:
        match self.kind:
            case GustKind.DELAY:
                return Weather(delay_s=self.amount / 20_000, jitter_s=self.amount / 10_000)
            case GustKind.SLOW:
                return Weather(bytes_per_s=20_000 + 1_000 * self.amount)
            case GustKind.SLICES:
                return Weather(slice_max=1 + self.amount)
            case _:
                return Weather(black_hole=True)


def draw_gusts(seed: int, count: int, kinds: Sequence[GustKind] = STORMY) -> list[Gust]:
    """So many gusts: the same for the same seed."""
    rng = Random(seed)
    return [
        Gust(rng.choice(kinds), rng.choice(list(Toward)), rng.randint(0, 200)) for _ in range(count)
    ]
