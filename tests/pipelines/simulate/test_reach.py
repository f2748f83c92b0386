"""Only what can strike a plan is drawn for it, so that a missing mark means something (simulation X-29)."""

from __future__ import annotations

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate.campaign import within_reach
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.simulation.options import Options

PLAN = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: stdin}}
pipes: {intake: {from: lines, journal: main, state: main PLACE}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
APART = ', node: far, route: {kind: tcp, address: "127.0.0.1:7400", secret: "${KEY}"}'


@pytest.mark.parametrize(("place", "is_one_process"), [("", True), (APART, False)])
def test_one_process_does_not_end_as_a_receiver_alone(place: str, is_one_process: bool) -> None:
    """F10, F28r: with both ends in one process the end of either is the end of both."""
    subject = simulation_of(loads(PLAN.replace("PLACE", place)), messages=1).subject
    of_receiver = within_reach(subject, Options(receiver_crashes=2, receiver_zombies=1))
    of_both = within_reach(subject, Options(receiver_crashes=2, sender_crashes=1))
    gone = (0, 0) if is_one_process else (2, 1)
    assert (of_receiver.receiver_crashes, of_receiver.receiver_zombies) == gone
    assert (of_both.receiver_crashes, of_both.sender_crashes) == (2, 1)
