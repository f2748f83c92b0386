"""What once went wrong between the ends of a pipe and the application, reduced to what matters."""

from __future__ import annotations

import threading
import time

from surepipe import FaultyRoute, LocalRoute, Pipe
from surepipe.actors import StepRuntime


def test_pipe_closes_while_handed_messages_wait_for_the_handler() -> None:
    """pipe: close: with boundary ``handed`` all is confirmed before the handler had its turn.

    1. the frame of all messages arrives and they lie in the handler's inbox: settled, confirmed;
    2. the pipe is closed in an orderly way: nothing is in work any more as far as the machine knows;
    3. what lay in the inbox must still be handled, and was dropped there.
    """
    for seed in range(12):
        got: list[object] = []
        with Pipe("orders", boundary="handed", runtime=StepRuntime(seed), seed=seed) as pipe:
            pipe.receive(got.append)
            pipe.send_many(list(range(20)))
        assert got == list(range(20)), seed


def test_pipe_counts_repeats_of_what_is_in_work_apart_from_what_is_in_work() -> None:
    """pipe: counters: one name for a counter and a gauge, which were added up.

    1. the route repeats the frame: the message arrives while the handler has it, counted as ``in_work``;
    2. one message is in work: the gauge of the same name;
    3. both ends of the pipe together said two, as if another message were in work.
    """
    route = FaultyRoute(LocalRoute(), duplicate=1.0)
    done = threading.Event()
    with Pipe("orders", "multi-unconfirmed", route=route) as pipe:
        pipe.receive(lambda _: done.wait(60))
        pipe.send(b"x")
        deadline = time.monotonic() + 60
        while not pipe.receiver.counters()["in_work"]:
            assert time.monotonic() < deadline, "the repeat never arrived"
        together = pipe.counters()["in_work"]
        done.set()
    assert together == 1
