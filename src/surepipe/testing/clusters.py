"""Mistreats a replicated queue, to test functions that it runs and programs that submit to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from threading import Lock
from typing import TypeAlias

from surepipe.actors.clusters import Cluster, Function
from surepipe.actors.clusters.links import Hub
from surepipe.core.effects import Addressed
from surepipe.queues.rmq import QueueSettings

HELD_MAX = 8


class UnfairHub(Hub):
    """Loses, repeats and holds back frames between nodes and clients."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._held: list[tuple[str, Addressed]] = []
        self._lock = Lock()

    def carry(self, sender: str, frame: Addressed) -> None:
        """One of ten is lost, one of ten comes twice, one of ten comes later than those behind it."""
        given = [(sender, frame)]
        with self._lock:
            drawn = self._chance.randrange(10)
            if drawn == 0:
                return
            if drawn == 1 and len(self._held) < HELD_MAX:
                self._held += given
                return
            if drawn == 2:
                given *= 2
            elif drawn == 3 and self._held:
                given.append(self._held.pop(self._chance.randrange(len(self._held))))
        for each in given:
            super().carry(*each)


class UnfairCluster(Cluster):
    """A cluster of nodes in this process, of which ``upset`` ends one and starts the one that was ended before."""

    chance = Random(0)
    _away: str | None = None

    def upset(self) -> str:
        """End a node as it stands, and start the one before. More than one is never away."""
        if self._away is not None:
            self.start(self._away)
        self._away = self.nodes[self.chance.randrange(len(self.nodes))]
        self.kill(self._away)
        return self._away


MakeCluster: TypeAlias = Callable[..., UnfairCluster]


def unfair_cluster(process: Function, nodes: int, seed: int, stack: ExitStack) -> UnfairCluster:
    """Nodes that are ended with ``stack``."""
    chance = Random(seed)
    quick = QueueSettings(slot_timeout_us=300_000)
    made = UnfairCluster.local(
        "test", nodes=nodes, process=process, settings=quick, hub=UnfairHub(chance)
    )
    made.chance = chance
    return stack.enter_context(made)
