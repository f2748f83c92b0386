"""Which arrivals overtake: where links don't keep the order, a state doesn't say what was sent first."""

from __future__ import annotations

from collections import Counter

from surepipe.simulation.explore_transitions import Links, Step


class Queues:
    """What is on the way on each link, the oldest first, along one schedule."""

    def __init__(self, links: Links) -> None:
        self._queues = [list(frames) for frames in links]

    def overtakes(self, step: Step) -> bool:
        """Whether a frame arrives in this step before another one that was sent earlier on its link."""
        if step.event is None or step.event[0] != "arrive":
            return False
        return self._queues[step.link][0] != step.frame

    def follow(self, links: Links) -> None:
        """A step was taken, and this is on the way now."""
        for queue, frames in zip(self._queues, links, strict=True):
            now, before = Counter(frames), Counter(queue)
            for frame in (before - now).elements():
                queue.remove(frame)
            queue.extend((now - before).elements())
