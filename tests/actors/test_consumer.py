from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.codecs import AutoCodec, JsonCodec, Undecodable
from surepipe.actors.consuming.consumer import (
    ConsumerActor,
    GiveUp,
    Work,
    WorkQueue,
    each,
    error_text,
    pull,
    together,
)
from surepipe.actors.consuming.lanes import LaneQueue
from surepipe.actors.inbox import RING, Bell
from surepipe.core.effects import Deliver
from surepipe.errors import PipeStopped
from tests.actors.kit import Gate


class Owner:
    """An incarnation that only remembers what consumers tell it."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[tuple[int, int]] = []

    def taken(self, work: Work) -> None:
        self.begun.append(work.ticket)

    def finished(self, work: Work) -> None:
        self.ended.append((work.ticket, work.done))

    def passed_over(self, work: Work, first: int, last: int, failure: BaseException) -> None:
        raise AssertionError(f"{first} to {last} of {work.ticket} are tried again") from failure


def _work(owner: Owner, ticket: int, first: int, *messages: object) -> Work:
    payloads = [AutoCodec().encode(message) for message in messages]
    return Work(Deliver(ticket, 7, first, payloads, 1), owner)


def _actor(queue: WorkQueue, loop: Callable[[Work], None]) -> ConsumerActor:
    def no_death(error: BaseException) -> None:
        raise AssertionError from error

    return ConsumerActor(queue, loop, Bell(lambda _: None), no_death)


def test_a_handler_gets_every_message_of_every_work_in_order(steps: StepRuntime) -> None:
    """Two works, one ring."""
    queue, owner, seen = WorkQueue(steps), Owner(), list[object]()
    queue.put(_work(owner, 1, 1, "a", "b"))
    queue.put(_work(owner, 2, 3, "c"))
    _actor(queue, each(seen.append, AutoCodec())).receive(RING)
    assert seen == ["a", "b", "c"]
    assert owner.begun == [1, 2]
    assert owner.ended == [(1, 2), (2, 3)]


@pytest.mark.parametrize("settled_first", [False, True])
def test_what_arrives_when_the_end_has_come_goes_to_no_handler(
    steps: StepRuntime, settled_first: bool
) -> None:
    """A block is left by an error while a delivery is on its way. With boundary before, it is lost, and told."""
    for queue in (WorkQueue(steps), LaneQueue(steps, 2)):
        queue.cancel()
        work = _work(Owner(), 1, 1, "a", "b")
        work.settled_first = settled_first
        queue.put(work)
        assert not len(queue)
        assert work.cancelled
        assert queue.lost == (2 if settled_first else 0)


@pytest.mark.parametrize("error", [ValueError("no b"), SystemExit(3), KeyboardInterrupt()])
def test_a_handler_that_raises_anything_ends_its_work_and_nothing_else(
    steps: StepRuntime, error: BaseException
) -> None:
    """What stood before is done, the rest of the work is left to the machine (pipes D-1, H-2)."""
    queue, owner = WorkQueue(steps), Owner()
    work = _work(owner, 1, 5, "a", "b", "c")

    def handler(message: object) -> None:
        if message == "b":
            raise error

    queue.put(work)
    _actor(queue, each(handler, AutoCodec())).receive(RING)
    assert work.done == 5
    assert work.failure == (6, error)
    assert owner.ended == [(1, 5)]


def test_an_undecodable_payload_fails_where_it_stands(steps: StepRuntime) -> None:
    """The handler doesn't see it; those before it are done (pipes D-3)."""
    queue, owner, seen = WorkQueue(steps), Owner(), list[object]()
    work = Work(Deliver(1, 7, 1, [b"1", b"{", b"3"], 1), owner)
    queue.put(work)
    _actor(queue, each(seen.append, JsonCodec())).receive(RING)
    assert seen == [1]
    assert work.failure is not None
    assert work.failure[0] == 2
    assert isinstance(work.failure[1], Undecodable)


def test_a_batch_is_settled_as_one_and_one_by_one_where_it_fails(steps: StepRuntime) -> None:
    """The first call succeeds, the second raises, and so does that with the first message of the two alone."""
    queue, owner, batches = WorkQueue(steps), Owner(), list[list[object]]()

    def handler(messages: list[object]) -> None:
        batches.append(messages)
        if "c" in messages:
            raise ValueError("no c")

    works = [_work(owner, 1, 1, "a", "b"), _work(owner, 2, 3, "c", "d")]
    for work in works:
        queue.put(work)
    _actor(queue, together(handler, AutoCodec())).receive(RING)
    assert batches == [["a", "b"], ["c", "d"], ["c"]]
    assert [work.done for work in works] == [2, 2]
    assert works[1].failure is not None
    assert works[1].failure[0] == 3


def test_a_batch_handler_gets_what_stands_before_an_undecodable_payload(
    steps: StepRuntime,
) -> None:
    """Two, then the broken one."""
    queue, owner, batches = WorkQueue(steps), Owner(), list[list[object]]()
    work = Work(Deliver(1, 7, 1, [b"1", b"2", b"{", b"4"], 1), owner)
    queue.put(work)
    _actor(queue, together(batches.append, JsonCodec())).receive(RING)
    assert batches == [[1, 2]]
    assert work.failure is not None
    assert work.failure[0] == 3


def test_a_cancelled_work_ends_after_the_message_that_is_being_handled() -> None:
    """Cancelled by another thread while the handler stands at the second of four (pipes P-15)."""
    queue, owner, gate = WorkQueue(ThreadRuntime()), Owner(), Gate("b")
    queue.put(_work(owner, 1, 1, "a", "b", "c", "d"))
    queue.put(_work(owner, 2, 5, "e"))
    actor = _actor(queue, each(gate, AutoCodec()))
    thread = threading.Thread(target=actor.receive, args=(RING,))
    thread.start()
    gate.await_reached()
    queue.cancel()
    gate.opened.set()
    thread.join()
    assert gate.seen == ["a", "b"]
    assert owner.ended == [(1, 2)]


@pytest.mark.parametrize(
    ("held", "batches"), [(3, [["a", "b", "c"]]), (1, [["a", "b", "c"], ["a"], ["b"]])]
)
def test_a_batch_that_fails_while_its_work_is_cancelled_goes_no_further(
    held: int, batches: list[list[str]]
) -> None:
    """Cancelled by another thread while the handler has all of it, or the second message alone."""
    queue, owner, gate = WorkQueue(ThreadRuntime()), Owner(), Gate("b")
    calls: list[list[object]] = []

    def handler(messages: list[object]) -> None:
        calls.append(messages)
        if len(messages) == held:
            for message in messages:
                gate(message)
        if len(messages) > 1:
            raise ValueError("one by one, please")

    queue.put(_work(owner, 1, 1, "a", "b", "c"))
    actor = _actor(queue, together(handler, AutoCodec()))
    thread = threading.Thread(target=actor.receive, args=(RING,))
    thread.start()
    gate.await_reached()
    queue.cancel()
    gate.opened.set()
    thread.join()
    assert calls == batches
    assert owner.ended == [(1, len(batches) - 1)]


def test_works_of_a_former_incarnation_are_not_begun(steps: StepRuntime) -> None:
    """Its tickets mean nothing to the new one."""
    queue, former, new, seen = WorkQueue(steps), Owner(), Owner(), list[object]()
    queue.put(_work(former, 1, 1, "a"))
    queue.begin()
    queue.put(_work(new, 1, 1, "a"))
    _actor(queue, each(seen.append, AutoCodec())).receive(RING)
    assert seen == ["a"]
    assert former.ended == []
    assert new.ended == [(1, 1)]


def test_a_pulled_message_is_done_when_the_next_is_asked_for(steps: StepRuntime) -> None:
    """And the last one when the loop ends by itself."""
    queue, owner = WorkQueue(steps), Owner()
    work = _work(owner, 1, 1, "a", "b")
    queue.put(work)
    queue.end()
    done = [(message, work.done) for message in pull(queue, AutoCodec())]
    assert done == [("a", 0), ("b", 1)]
    assert owner.ended == [(1, 2)]


def test_a_loop_that_is_left_gives_its_last_message_to_the_next_one(steps: StepRuntime) -> None:
    """Left twice, inside a work and at the beginning of one; nothing is skipped or done twice."""
    queue, owner, seen = WorkQueue(steps), Owner(), list[object]()
    queue.put(_work(owner, 1, 1, "a", "b", "c"))
    queue.put(_work(owner, 2, 4, "d", "e"))
    queue.end()
    for stop in ("b", "d", None):
        loop = pull(queue, AutoCodec())
        for message in loop:
            seen.append(message)
            if message == stop:
                break
        loop.close()  # type: ignore[attr-defined]  # a generator
    assert seen == ["a", "b", "b", "c", "d", "d", "e"]
    assert owner.ended == [(1, 1), (1, 3), (2, 3), (2, 5)]


def test_a_loop_over_a_pipe_that_stopped_raises_why(steps: StepRuntime) -> None:
    """After what is there was consumed."""
    queue, owner, seen = WorkQueue(steps), Owner(), list[object]()
    queue.put(_work(owner, 1, 1, "a"))
    queue.end(PipeStopped("gave up"))

    def consume() -> None:
        seen.extend(pull(queue, AutoCodec()))

    with pytest.raises(PipeStopped, match="gave up"):
        consume()
    assert owner.ended == [(1, 1)]


def test_the_text_of_a_group_names_what_is_in_it() -> None:
    """What a TaskGroup raises says by itself only how many there were; of many the first few are named."""
    group = ExceptionGroup("tasks", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
    assert error_text(group) == (
        "ExceptionGroup",
        "tasks (2 sub-exceptions): ValueError: a; ExceptionGroup: inner (1 sub-exception): KeyError: 'b'",
    )
    many = ExceptionGroup("tasks", [ValueError(number) for number in range(100)])
    assert error_text(many)[1].endswith("ValueError: 7; ...")


def test_a_long_error_text_is_cut() -> None:
    """A letter holds type and text, not a novel."""
    kind, text = error_text(ValueError("x" * 1000))
    assert kind == "ValueError"
    assert len(text) == 500
    assert error_text(KeyError("k")) == ("KeyError", "'k'")


class Speechless(Exception):
    """Can't be shown."""

    def __str__(self) -> str:
        raise KeyError("text")


def test_an_error_that_fails_at_saying_what_it_is_has_a_text_too() -> None:
    """Also as the cause that a loop gives a message up for."""
    told = ("Speechless", "(its text can't be told: that raises KeyError)")
    assert error_text(Speechless()) == told
    assert error_text(GiveUp(Speechless())) == told
