"""Choosers of worlds whose nodes are processes with any names and any ends of pipes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from surepipe.simulation.chance.chooser import LinkCut
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import Options


class Roles(Protocol):
    """A node, as far as chance is concerned."""

    name: str
    sends: bool
    receives: bool


class NodeSeeds(SeededChooser):
    """By chance. A process that has both ends of a pipe crashes only where the crash of either may be drawn."""

    def plan_for(self, nodes: Iterable[Roles]) -> None:
        """Draw what will befall each node."""
        options, source = self.options, self.source("faults")
        plans = {node.name: _planned(options, node) for node in nodes}
        shared = ["power"] * options.power_cuts + ["pause"] * options.pauses
        for trouble in [*shared, *["mailbox"] * options.mailbox_losses]:
            plans[source.pick(list(plans))].append(trouble)
        self._to_come.clear()
        self._countdown.clear()
        for node, plan in plans.items():
            self._to_come[node] = source.shuffled(plan)
            self._count_down(node, source)

    def cuts(self, links: Sequence[str], chaos_us: int) -> Sequence[LinkCut]:
        """None where there is nothing to cut."""
        return super().cuts(links, chaos_us) if links else ()

    def _plan_troubles(self) -> None:
        """Later, when the nodes are known."""


def _planned(options: Options, node: Roles) -> list[str]:
    crashes = _both(options.sender_crashes, options.receiver_crashes, node)
    zombies = _both(options.sender_zombies, options.receiver_zombies, node)
    return ["crash"] * crashes + ["zombie"] * zombies


def _both(of_sender: int, of_receiver: int, node: Roles) -> int:
    if node.sends and node.receives:
        return max(of_sender, of_receiver) if of_sender and of_receiver else 0
    return of_sender if node.sends else of_receiver


class NodeScript(ScriptChooser):
    """As a script says."""
