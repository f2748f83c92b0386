from __future__ import annotations

import threading

import pytest

from surepipe import MisuseError, NotConfirmed, Pipe, PipeClosed
from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.runtime import Runtime
from tests.actors.kit import PATIENCE_S


def test_a_loop_ends_when_the_pipe_is_finished_and_everything_was_settled(
    runtime: Runtime,
) -> None:
    """Sent before and while looping; all of it is confirmed afterwards."""
    with Pipe("p", runtime=runtime) as pipe:
        pipe.send_many(list(range(2000)))
        seen: list[object] = []
        for message in pipe:
            seen.append(message)
            if message == 10:
                pipe.send("last")
                pipe.finish()
        assert seen == [*range(2000), "last"]
        pipe.flush(PATIENCE_S)
        assert pipe.counters()["confirmed"] == 2001


@pytest.mark.parametrize("kind", ["multi-unconfirmed", "strict-monotonic", "dedupe"])
def test_a_loop_ends_on_stacks_of_other_kinds_too(runtime: Runtime, kind: str) -> None:
    """Without an order, and without confirms."""
    with Pipe("p", kind, runtime=runtime) as pipe:
        pipe.send_many(list(range(50)))
        pipe.finish()
        assert list(pipe) == list(range(50))


def test_a_message_is_settled_when_the_next_one_is_asked_for(steps: StepRuntime) -> None:
    """Looked at between the messages."""
    confirmed: list[int] = []
    with Pipe("p", runtime=steps) as pipe:
        pipe.send_many(["a", "b", "c"])
        pipe.finish()
        for _ in pipe:
            steps.advance(1)
            confirmed.append(pipe.counters()["confirmed"])
    assert confirmed == [0, 1, 2]


def test_a_loop_that_is_left_leaves_its_last_message_for_the_next(runtime: Runtime) -> None:
    """By break, and by an exception."""

    def fail_at_first(pipe: Pipe) -> None:
        for message in pipe:
            raise LookupError(message)

    with Pipe("p", runtime=runtime) as pipe:
        pipe.send_many(["a", "b", "c", "d"])
        for message in pipe:
            if message == "b":
                break
        with pytest.raises(LookupError):
            fail_at_first(pipe)
        pipe.finish()
        assert list(pipe) == ["b", "c", "d"]


def test_a_second_loop_and_a_handler_beside_a_loop_are_refused(steps: StepRuntime) -> None:
    """One consumer at a time; after the loop is over a handler is fine."""
    with Pipe("p", runtime=steps) as pipe:
        pipe.send_many(["a", "b"])
        loop = iter(pipe)
        assert next(loop) == "a"
        with pytest.raises(MisuseError, match="has a loop"):
            iter(pipe)
        with pytest.raises(MisuseError, match="has a loop"):
            pipe.receive(print)
        loop.close()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        seen: list[object] = []
        pipe.receive(seen.append)
        pipe.flush(1)
        assert seen == ["a", "b"]


def test_closing_ends_a_loop_in_another_thread() -> None:
    """It waits for messages; the pipe is closed under it."""
    pipe = Pipe("p", runtime=ThreadRuntime())
    seen: list[object] = []
    first = threading.Event()

    def loop() -> None:
        for message in pipe:
            seen.append(message)
            first.set()

    thread = threading.Thread(target=loop)
    thread.start()
    pipe.send("a")
    assert first.wait(PATIENCE_S)
    pipe.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert seen == ["a"]


def test_a_loop_over_a_pipe_that_is_closed_is_refused_as_a_send_is(runtime: Runtime) -> None:
    """One that is begun then; a pipe that is finished, and one that was begun before, just end."""
    with Pipe("p", runtime=runtime) as pipe:
        pipe.send("a")
        begun = iter(pipe)
        assert next(begun) == "a"
        pipe.finish()
        assert not list(begun)
        assert not list(pipe)
    assert not list(begun)
    with pytest.raises(PipeClosed, match="no message will come to a handler or loop"):
        iter(pipe)


class Heard(Pipe):
    """A pipe that says that it is being closed."""

    def __init__(self) -> None:
        self.is_closing = threading.Event()
        super().__init__("p", runtime=ThreadRuntime())

    def _closed(self) -> None:
        super()._closed()
        self.is_closing.set()


def test_a_loop_may_begin_while_close_waits_for_what_it_takes() -> None:
    """A second one, which goes on where the first was left."""
    pipe = Heard()
    pipe.send_many(["a", "b", "c"])
    closing = threading.Thread(target=pipe.close)
    closing.start()
    assert pipe.is_closing.wait(PATIENCE_S)
    for message in pipe:
        if message == "b":
            break
    assert list(pipe) == ["b", "c"]
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_what_a_left_loop_did_not_settle_is_named_when_the_pipe_is_closed(
    runtime: Runtime,
) -> None:
    """Nobody will take it, so closing does not wait long."""
    pipe = Pipe("p", runtime=runtime)
    pipe.send_many(["a", "b", "c"])
    for message in pipe:
        if message == "b":
            break
    with pytest.raises(NotConfirmed) as caught:
        pipe.close(PATIENCE_S)
    assert [(first, last) for _, first, last in caught.value.ranges] == [(2, 3)]
    with pytest.raises(PipeClosed):
        pipe.send("d")
    with pytest.raises(PipeClosed):
        list(pipe)
