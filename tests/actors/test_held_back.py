"""What a sender has taken and its machine has no room for yet: whoever waits, waits for that, too."""

from __future__ import annotations

import pytest

from surepipe.actors import Pipe, StepRuntime
from surepipe.pipes.catalogue import LayerText

COUNT = 60
NARROW: dict[str, list[LayerText]] = {
    "continuous-index": ["continuous-index", {"multi-unconfirmed": {"window": 4, "backlog": 4}}],
    "strict-monotonic": ["strict-monotonic", {"resend": {"window": 1, "backlog": 8}}],
    "dedupe": ["dedupe", {"multi-unconfirmed": {"window": 4, "backlog": 4}}],
}
"""An index layer takes runs in full frames. One message at a time fills the carrier with less than that."""


@pytest.mark.parametrize("kind", NARROW)
def test_who_waits_for_all_waits_for_what_the_machine_has_no_room_for(kind: str) -> None:
    """1. Messages are taken by credit that counts full frames. 2. The machine turns the last of them away, and the
    sender holds them. 3. ``flush`` stood for what was accepted before, and was content."""
    steps, got = StepRuntime(), list[object]()
    with Pipe("orders", NARROW[kind], runtime=steps) as pipe:
        for number in range(COUNT):
            pipe.send(number)
            steps.advance(0.000_5)
        mark = pipe.sender.intake.mark()
        steps.advance(0.01)
        messages = iter(pipe)
        while len(got) < COUNT:
            assert not mark.done, f"{len(got)} of {COUNT} were handled"
            got.append(next(messages))
            steps.advance(0.01)
        pipe.finish()
        assert list(messages) == []
        steps.advance(0.01)
        assert mark.done
    assert got == list(range(COUNT))


def test_what_is_held_is_not_offered_until_there_is_room() -> None:
    """It was offered and turned away with every step, which the counter of rejections told."""
    steps = StepRuntime()
    with Pipe("orders", NARROW["continuous-index"], runtime=steps) as pipe:
        for number in range(COUNT):
            pipe.send(number)
            steps.advance(0.000_5)
        steps.advance(60)
        pipe.receive(lambda _: None)
        pipe.flush(timeout=60)
        assert pipe.sender.counters().get("rejected", 0) < COUNT
