"""Spark's context takes Ctrl-C for itself: whoever heard it before goes on to hear it (spark SP-2)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from surepipe.spark.session import own_interrupt


def ours(number: int, frame: FrameType | None) -> None:
    """The handler of a run."""


def of_spark(number: int, frame: FrameType | None) -> None:
    """What a context installs."""


def of_an_ended_context(number: int, frame: FrameType | None) -> None:
    """What a context has left."""


of_an_ended_context.__module__ = "pyspark.core.context"


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """The handler of the test run, put back."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_handler_that_was_there_is_there_again() -> None:
    """A run that drains on Ctrl-C is not broken off."""
    signal.signal(signal.SIGINT, ours)
    with own_interrupt():
        signal.signal(signal.SIGINT, of_spark)
    assert signal.getsignal(signal.SIGINT) is ours


def test_without_a_handler_of_somebody_spark_keeps_its_own() -> None:
    """Python's own handler, and that of a context that has ended, are nobody's wish."""
    for nobody in (signal.default_int_handler, of_an_ended_context):
        signal.signal(signal.SIGINT, nobody)
        with own_interrupt():
            signal.signal(signal.SIGINT, of_spark)
        assert signal.getsignal(signal.SIGINT) is of_spark
