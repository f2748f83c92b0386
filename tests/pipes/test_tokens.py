"""Carrier messages are answered when the whole of what they brought is settled (pipes K-2)."""

from __future__ import annotations

from surepipe.core.ranges import RangeSet
from surepipe.pipes.stack.layers import Token
from surepipe.pipes.stack.tokens import WaitingTokens


def token(seq: int) -> Token:
    """A message of a carrier's epoch 1."""
    return 1, seq, ""


def test_a_token_waits_for_the_end_of_its_run() -> None:
    """Runs 1-3 and 4-6: at 3 only the first is answered, at 6 the other."""
    waiting = WaitingTokens()
    waiting.add(4, 6, token(11))
    waiting.add(1, 3, token(10))
    assert waiting.pop_through(2) == []
    assert waiting.pop_through(3) == [token(10)]
    assert waiting.pop_through(6) == [token(11)]
    assert len(waiting) == 0


def test_all_copies_of_a_run_are_answered_with_it() -> None:
    """Two carrier messages brought the same messages, a third overlaps them."""
    waiting = WaitingTokens()
    for seq, run in enumerate([(1, 3), (1, 3), (2, 4)]):
        waiting.add(*run, token(seq))
    assert waiting.pop_settled(RangeSet([(1, 3)])) == [token(0), token(1)]
    assert waiting.pop_settled(RangeSet([(1, 4)])) == [token(2)]


def test_a_refusal_reaches_every_token_that_waits_for_any_of_it() -> None:
    """Refusing 3 answers those that brought 3, and no other."""
    waiting = WaitingTokens()
    for seq, run in enumerate([(1, 2), (2, 4), (3, 3), (5, 6)]):
        waiting.add(*run, token(seq))
    assert sorted(waiting.pop_overlapping(3, 3)) == [token(1), token(2)]
    assert sorted(waiting.pop_all()) == [token(0), token(3)]


def test_frames_from_the_raw_route_have_no_token() -> None:
    """None is accepted and never comes back."""
    waiting = WaitingTokens()
    waiting.add(1, 2, None)
    assert waiting.pop_all() == []
