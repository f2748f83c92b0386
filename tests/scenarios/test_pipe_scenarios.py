"""What once went wrong between the ends of a pipe and the application, reduced to what matters."""

from __future__ import annotations

from surepipe import Pipe
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
