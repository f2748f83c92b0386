"""What chance does to the frames of one link, as numbers that are worked out once."""

from __future__ import annotations

from surepipe.simulation.options import Options
from surepipe.simulation.randomness import Draws


class LinkChance:
    """What chance does to the frames of one link. One draw decides which fault befalls a frame, if any."""

    def __init__(self, options: Options, source: Draws, *, calm: bool = False) -> None:
        self.source = source
        self.getrandbits = source.getrandbits
        """for the draw of each frame, which is ``below(1_000_000)`` of the source"""
        self.jitter_us = options.jitter_us
        self.is_any = options.order == "any"
        lost, copied = options.loss_ppm, options.copy_ppm
        overtaken, spiked, corrupt = options.overtake_ppm, options.spike_ppm, options.corrupt_ppm
        stale = options.stale_ppm
        lost_back = options.confirm_loss_ppm
        if calm:
            frozen, rate = options.frozen, options.frozen_ppm
            lost = rate if frozen == "F1" else 0
            lost_back = rate if frozen == "F2" else 0
            copied = rate if frozen == "F3" else 0
            overtaken = rate if frozen == "F4" else 0
            spiked = rate if frozen == "F5" else 0
            corrupt = stale = 0
            self.is_any = self.is_any and frozen == "F4"
            self.jitter_us = self.jitter_us if self.is_any else 0
        self.options = options
        self.bounds = (copied, overtaken, spiked, corrupt, stale)
        self.lost, self.lost_back = lost, lost_back
        self.total = sum(self.bounds)
        self.burst_max = 1 if calm else options.loss_burst
        """What stays on after the faults keeps losing at its rate, so that a bound on the time can be told."""
        self.burst_left = 0
        self.is_calm = not (lost or lost_back or self.total or self.jitter_us)
