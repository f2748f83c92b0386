"""What goes between the nodes of a replicated queue in one step travels together."""

from __future__ import annotations

from surepipe.actors.clusters.links import GATHERED_BYTES_MAX, gathered
from surepipe.core.effects import Addressed, Effect, Transmit, WakeAt


def test_frames_of_a_step_go_as_runs_in_their_order() -> None:
    """rmq RQ-48: other effects keep their places, and a run has a bound unless it is one frame."""
    large = bytes(GATHERED_BYTES_MAX)
    effects: list[Effect] = [
        Transmit(Addressed("n2", b"1")),
        WakeAt(5),
        Transmit(Addressed("n3", b"2")),
        Transmit(Addressed("n2", b"3")),
        Transmit(Addressed("n2", large)),
        Transmit(Addressed("n2", b"4")),
    ]
    assert gathered(effects) == [
        Transmit(Addressed("n2", [b"1", b"3"])),
        WakeAt(5),
        Transmit(Addressed("n3", [b"2"])),
        Transmit(Addressed("n2", [large])),
        Transmit(Addressed("n2", [b"4"])),
    ]
