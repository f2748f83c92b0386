"""The way of one message, held short: what is called for it, and how deep."""

from __future__ import annotations

from benchmarks.path import one_message

CALLS_MAX = 300
DEPTH_MAX = 9


def test_one_confirmed_message_takes_few_calls_and_no_deep_stack() -> None:
    """Counted in virtual time: ``send``, the handler and ``flush``; threads add a frame (benchmarks/path.py)."""
    figures = one_message().figures
    assert 100 < figures["calls"] <= CALLS_MAX, figures
    assert figures["depth"] <= DEPTH_MAX, figures


def test_the_same_message_takes_the_same_calls() -> None:
    """In virtual time nothing is left to chance, so a change of the figures is a change of the code."""
    assert one_message().calls == one_message().calls
