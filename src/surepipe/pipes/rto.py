"""How long a sender waits for a confirm: measured round trips, smoothed, in whole microseconds.

A confirm names the one transmission that it answers, so a frame that was sent again measures as well as one
that was sent once. The estimate is the usual one (RFC 6298), plus the time a receiver may sit on a confirm.

On a steady route the variation goes to nothing, and then the jitter of a deadline alone would put it below the
round trip: everything would be sent twice. So the margin is never less than a part of the round trip itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.pipes.snapshot import stateful

STEADY_PART = 4
"""The margin is at least a quarter of a round trip: enough for a jitter of up to a fifth."""


@stateful
@dataclass(slots=True)
class RoundTrips:
    """The estimate of one route. Before the first sample the wait is ``initial``, unclamped."""

    initial: int
    least: int
    most: int
    confirm_delay: int
    smoothed: int | None = None
    variation: int = 0

    def sample(self, taken: int) -> None:
        """One round trip took so long."""
        if self.smoothed is None:
            self.smoothed = taken
            self.variation = taken // 2
        else:
            self.variation += (abs(taken - self.smoothed) - self.variation) // 4
            self.smoothed += (taken - self.smoothed) // 8

    @property
    def rto(self) -> int:
        """How long to wait for the answer to a first transmission."""
        if self.smoothed is None:
            return self.initial
        margin = max(4 * self.variation, self.smoothed // STEADY_PART)
        wait = self.smoothed + margin + self.confirm_delay
        return min(max(wait, self.least), self.most)

    @property
    def usual(self) -> int:
        """One round trip as far as is known; the shortest wait when nothing is."""
        return self.least if self.smoothed is None else self.smoothed
