"""What a sink has, compared by content with what it should have (P4 end to end)."""

from __future__ import annotations

import pytest

from surepipe.pipelines.simulate.ends import out_of_order


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        ("", "abc"),
        ("abc", "abc"),
        ("ac", "abc"),  # one became a dead letter
        ("abab", "ab"),  # all of it again
        ("aba", "ab"),
        ("bcabc", "abcabc"),  # the first of two that look the same became a dead letter
        ("axb", "ab"),  # something unknown is not judged here
    ],
)
def test_what_may_have_come_in_order_is_left_alone(got: str, wanted: str) -> None:
    """P4: missing ones, repeats, and messages that look the same."""
    assert not out_of_order(got, wanted)


@pytest.mark.parametrize(("got", "wanted"), [("ba", "ab"), ("acb", "abc"), ("cabab", "ababc")])
def test_what_came_late_out_of_order(got: str, wanted: str) -> None:
    """P4: a message came for the first time after a later one."""
    assert out_of_order(got, wanted)
