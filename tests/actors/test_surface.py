"""What an application sees of pipes: the names that it may use, and the options that each end knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import surepipe
from surepipe.actors.steps import StepRuntime

FOR_ALL = {
    "close",
    "abort",
    "start",
    "is_started",
    "name",
    "observed_as",
    "guarantee",
    "counters",
    "check_outside",
    "closing",
}
SENDS = {"send", "send_nowait", "send_many", "flush", "finish", "replay", "sender"}
RECEIVES = {
    "receive",
    "receive_by",
    "receive_many",
    "leases",
    "message_of",
    "dead_letters",
    "receiver",
    "route",
    "wait",
}


def test_a_pipe_shows_what_an_application_may_use_and_nothing_else() -> None:
    """A method of the runtime that slips into this set is seen here."""
    with surepipe.Pipe("orders", runtime=StepRuntime()) as pipe:
        shown = {name for name in dir(pipe) if not name.startswith("_")}
    assert shown == FOR_ALL | SENDS | RECEIVES


def test_everything_that_the_package_names_is_there() -> None:
    """Each export, also those that are imported when they are asked for."""
    for name in surepipe.__all__:
        assert getattr(surepipe, name) is not None, name


FRAMED: dict[str, Any] = {"route": surepipe.LocalRoute()}
STORED: dict[str, Any] = {"store": surepipe.MemoryStore()}


@pytest.mark.parametrize(
    ("face", "needed", "unknown"),
    [
        (surepipe.Pipe, {}, "window"),
        (surepipe.PipeSender, FRAMED, "lanes"),
        (surepipe.PipeReceiver, FRAMED, "journal"),
        (surepipe.StreamSender, STORED, "state"),
        (surepipe.StreamReceiver, {**STORED, "layers": surepipe.Stream(start=1)}, "journal"),
        (surepipe.Channel, FRAMED, "state"),
    ],
)
def test_an_option_that_an_end_does_not_know_is_refused(
    face: Callable[..., Any], needed: dict[str, Any], unknown: str
) -> None:
    """Each with one that another end has: left out in silence it would be a promise that nobody keeps."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
        face("orders", **needed, **{unknown: None})
