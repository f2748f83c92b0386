"""What machines assert about themselves: in simulations always, elsewhere by choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from surepipe.core.effects import JournalContents
from surepipe.core.machine import Randomness
from surepipe.core.ranges import RangeSet
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.retry.window import WindowSender
from surepipe.pipes.stack.assembled import (
    SenderStack,
    assert_balance,
    assert_deadline,
    assert_layers,
)
from surepipe.pipes.stack.reorder import ReorderBuffer
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.subjects import HopSubject


def sender(*, asserts: bool) -> SenderStack:
    """A sender with five messages on the way."""
    stack = SenderStack("pipe", parse_layers("reliable"), rng=Random(1), life_hint=1)
    stack.asserts = asserts
    stack.wake(0)
    stack.send([b"a", b"b", b"c", b"d", b"e"], 10)
    return stack


def window_of(stack: SenderStack) -> WindowSender:
    """Its one layer."""
    layer = stack.layers[0]
    assert isinstance(layer, WindowSender)
    return layer


def _base_beyond_next(layer: WindowSender) -> None:
    layer.base = layer.next + 1


def _more_than_the_window(layer: WindowSender) -> None:
    layer.next = layer.base + layer.span + 1


def _base_is_done(layer: WindowSender) -> None:
    layer.done.add(layer.base, layer.base)


def _done_was_never_sent(layer: WindowSender) -> None:
    layer.done.add(layer.next + 3, layer.next + 4)


def _forgotten_on_the_way(layer: WindowSender) -> None:
    layer.next = layer.base + 2
    layer.flights.runs.clear()


@pytest.mark.parametrize(
    ("breaking", "told"),
    [
        (_base_beyond_next, "is above next"),
        (_more_than_the_window, "more than the window"),
        (_base_is_done, "is done, so the window should begin above it"),
        (_done_was_never_sent, "was sent"),
        (_forgotten_on_the_way, "nothing would send them again"),
    ],
)
def test_a_window_that_does_not_add_up_is_noticed(
    breaking: Callable[[WindowSender], None], told: str
) -> None:
    """simulation X-40: each number of a window is set wrong once."""
    layer = window_of(sender(asserts=False))
    assert_layers([layer])
    breaking(layer)
    with pytest.raises(AssertionError, match=told):
        assert_layers([layer])


def test_a_buffer_that_does_not_add_up_is_noticed() -> None:
    """simulation X-40: what waits for itself, and a settled prefix behind what is settled."""
    buffer = ReorderBuffer(4, 1000, 1)
    layer = _Holding(buffer)
    assert_layers([layer])
    buffer.settled = 1
    with pytest.raises(AssertionError, match="-1 messages are in work"):
        assert_layers([layer])
    buffer.settled = 0
    buffer.held.add(1, 1)
    with pytest.raises(AssertionError, match="the one to hand up next"):
        assert_layers([layer])
    buffer.held = RangeSet([(2, 2)])
    buffer.settled_above.add(1, 1)
    buffer.expected = 3
    with pytest.raises(AssertionError, match="should reach beyond it"):
        assert_layers([layer])
    buffer.held = RangeSet([(5, 9)])
    with pytest.raises(AssertionError, match="more than held_max 4"):
        assert_layers([layer])


def test_a_lost_message_and_a_second_deadline_are_noticed() -> None:
    """simulation X-40, pipes P-4: the balance of a sender, and one deadline to a machine."""
    counters = {"accepted": 5, "confirmed": 2, "given_up": 1}
    assert_balance(counters, loaded=1, waiting=3)
    with pytest.raises(AssertionError, match="6 messages were taken, but 2 wait and 3"):
        assert_balance(counters, loaded=1, waiting=2)
    assert_deadline(1)
    with pytest.raises(AssertionError, match="set 2 deadlines"):
        assert_deadline(2)


def test_a_machine_asserts_only_when_it_was_told_to() -> None:
    """simulation X-40: in production by option; the same defect passes in silence without it."""
    for asserts in (False, True):
        stack = sender(asserts=asserts)
        window_of(stack).done.add(1, 1)
        if asserts:
            with pytest.raises(AssertionError):
                stack.wake(20)
        else:
            stack.wake(20)


def test_in_a_simulation_a_broken_invariant_is_a_finding() -> None:
    """simulation X-40, P18: the machine raises, and the run says which invariant it was."""
    result = run_hop(_Forgetting("reliable", name="forgetting"), Options(messages=4))
    assert result.limit == "raised"
    found = result.violates("P18")
    assert found is not None
    assert "AssertionError" in found.sentence


@dataclass
class _Holding:
    buffer: ReorderBuffer


@dataclass(frozen=True)
class _Forgetting(HopSubject):
    """A sender that counts a message that nobody gave it."""

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderStack:
        """With the defect planted."""
        stack = super().sender(life_hint=life_hint, rng=rng, journal=journal)
        stack.count("accepted")
        return stack
