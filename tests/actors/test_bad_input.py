"""What can't be meant is refused when a pipe is made: one error that names the value and the fix, no thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from surepipe import ConfigurationError, FaultyRoute, LocalRoute, Pipe

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "a pipe needs a name, its ends and its traces are found by it; '' is none"),
    ({"name": 5}, "a pipe needs a name, its ends and its traces are found by it; 5 is none"),
    (
        {"name": "a\nb"},
        "a pipe needs a name, its ends and its traces are found by it; 'a\\nb' is none",
    ),
    (
        {"route": "lossy"},
        "pipe p: route is 'lossy': give a route, such as LocalRoute() or FaultyRoute(...)",
    ),
    (
        {"journal": "shop.db"},
        "pipe p: journal is 'shop.db': give an open store, such as SqliteStore('shop.db')",
    ),
    (
        {"state": 5},
        "pipe p: state is 5: give an open store, such as SqliteStore('shop.db')",
    ),
    (
        {"dead_letter": 7},
        "pipe p: dead_letter is 7: give DeadLetters(), a store, or a function that takes a letter",
    ),
    ({"retries": "5", "dead_letter": print}, "retries is '5': it must be a whole number from 1"),
    ({"retries": 0, "dead_letter": print}, "retries is 0: it must be a whole number from 1"),
    ({"retries": True, "dead_letter": print}, "retries is True: it must be a whole number from 1"),
    ({"retry_min_s": -1.0}, "retry_min_s is -1.0: it must be a number of seconds above 0"),
    ({"retry_min_s": 60.0}, "retry_min_s (60.0) is above retry_max_s (30.0); raise retry_max_s"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_a_pipe_that_can_not_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    """The message is pinned; nothing was started."""
    arguments: dict[str, Any] = {"name": "p"} | wrong
    before = threading.enumerate()
    with pytest.raises(ConfigurationError) as refusal:
        Pipe(**arguments)
    assert str(refusal.value) == message
    assert threading.enumerate() == before


def test_a_guarantee_prints_as_what_it_promises() -> None:
    """One line; ``explain`` gives the reasons."""
    route = FaultyRoute(LocalRoute(), loss=0.1)
    with Pipe("orders", route=route) as pipe:
        assert str(pipe.guarantee).startswith("orders: exactly-once, absolute; tolerates network, ")
