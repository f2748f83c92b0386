from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest

from surepipe import (
    DeadLetters,
    FaultyRoute,
    LocalRoute,
    NotConfirmed,
    Pipe,
    PipeClosed,
    PipeReceiver,
    PipeSender,
)
from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.runtime import Runtime
from surepipe.pipes.catalogue import LayerText
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.kit import PATIENCE_S, Gate, await_that
from tests.actors.stored_kit import sqlite_store


def test_the_end_of_a_block_waits_for_everything_sent(runtime: Runtime) -> None:
    """No flush by hand (pipes P-15)."""
    seen: list[object] = []
    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive(seen.append)
        pipe.send_many(list(range(1000)))
    assert seen == list(range(1000))
    assert pipe.counters()["confirmed"] == 1000, "counters outlive the pipe"


def test_no_thread_and_no_actor_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """With every part in use: dead letters, delays, a handler. Looked at the moment close returns."""
    before = set(threading.enumerate())
    route = FaultyRoute(LocalRoute(), delay=0.001)
    letters: list[object] = []
    pipe = Pipe("p", route=route, retries=1, dead_letter=letters.append, runtime=ThreadRuntime())

    def handler(message: object) -> None:
        raise ValueError(message)

    pipe.receive(handler)
    pipe.send("a")
    pipe.flush(PATIENCE_S)
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert names == {
        *("p/sender", "p/receiver", "p/handler"),
        *("p/sender-clerk", "p/receiver-clerk", "surepipe-timer"),
    }
    pipe.close()
    assert set(threading.enumerate()) == before
    assert len(letters) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    place = f"test_pipe_closing.py:{handler.__code__.co_firstlineno + 1}"
    assert (
        f"1 attempt, which raised ValueError: a ({place}). It is in the dead letters" in caplog.text
    )


def test_what_a_closing_pipe_gives_up_is_said_with_the_likely_cause(steps: StepRuntime) -> None:
    """pipes P-15: nobody takes the message, and there is no journal to keep it."""
    pipe = Pipe("p", runtime=steps)
    pipe.send(1)
    with pytest.raises(NotConfirmed, match="gives them up: nobody takes its messages"):
        pipe.close(timeout=0.2)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("given", [list, iter])
def test_who_waits_for_the_confirm_of_what_a_sender_gives_up_is_told_so(
    given: Callable[[list[int]], Iterable[int]], count: int, runtime: Runtime
) -> None:
    """pipes T-10, P-15: it is in the sender's dead letters, and no receiver has settled it. The pipe goes on, and
    its block ends without a word: everything is where it was to go."""
    letters = DeadLetters()
    giving: LayerText = {"multi-unconfirmed": {"give_up_after_s": 0.05, "rto_initial_s": 0.01}}
    route = LocalRoute()
    with PipeSender("p", giving, route=route, dead_letter=letters, runtime=runtime) as sender:
        for first in (1, 1 + count):
            sent = list(range(first, first + count))
            with pytest.raises(NotConfirmed, match="given up, as nobody confirmed it") as told:
                sender.send_many(given(sent), until="confirmed", timeout=PATIENCE_S)
            assert [seq for _, seq, _ in told.value.ranges] == sent
        sender.flush(PATIENCE_S)
        await_that(runtime, lambda: len(letters) == 2 * count, "a letter for each")
        assert [letter.seq for letter in letters] == list(range(1, 1 + 2 * count))
        with PipeReceiver(
            "p", giving, route=route, dead_letter=letters, runtime=runtime
        ) as receiver:
            receiver.receive(print)
            sender.send(0, until="confirmed", timeout=PATIENCE_S)


@pytest.mark.parametrize("receives", [False, True])
def test_the_end_of_a_pipe_that_nobody_used_waits_for_its_late_journal(
    receives: bool, tmp_path: Path
) -> None:
    """pipes P-15: its file is locked by somebody else, say. What it holds is not known before it answers, with a
    handler and without; one that never answers takes all the time."""
    with sqlite_store(tmp_path) as inside:
        for calls, is_in_time in ((20, True), (1_000_000, False)):
            store, steps = FaultyStore(inside), StepRuntime()
            store.script(Misfortune.OUTAGE, calls=calls)
            pipe = Pipe("p", journal=store, runtime=steps)
            if receives:
                pipe.receive(lambda _: None)
            begun = steps.now()
            with nullcontext() if is_in_time else pytest.raises(NotConfirmed, match="not known"):
                pipe.close(timeout=10)
            assert (1 < (steps.now() - begun) / 1_000_000 < 9) == is_in_time


def test_what_a_late_journal_holds_is_not_waited_for_where_nobody_takes_it(tmp_path: Path) -> None:
    """From when it is known, the end is as short as where the journal answers at once (pipes P-15)."""
    with sqlite_store(tmp_path) as inside:
        pipe = Pipe("p", journal=inside, runtime=StepRuntime())
        pipe.send(1)
        with pytest.raises(NotConfirmed):
            pipe.close()
        store, steps = FaultyStore(inside), StepRuntime()
        store.script(Misfortune.OUTAGE, calls=20)
        pipe = Pipe("p", journal=store, runtime=steps)
        begun = steps.now()
        with pytest.raises(NotConfirmed, match="nobody takes its messages"):
            pipe.close()
        assert 2 < (steps.now() - begun) / 1_000_000 < 10


def test_no_time_is_enough_where_there_is_nothing_to_wait_for(runtime: Runtime) -> None:
    """flush and close of a pipe that was just made, and of one whose messages are confirmed; with a handler and
    without (pipes P-14, P-15)."""
    for receives in (False, True):
        for sends in (False, True):
            pipe = Pipe("p", runtime=runtime)
            if receives:
                pipe.receive(lambda _: None)
            if receives and sends:
                pipe.send(1, until="confirmed")
            pipe.flush(timeout=0)
            pipe.close(timeout=0)


def test_a_closing_pipe_without_time_names_what_it_gives_up(runtime: Runtime) -> None:
    """As one that has some (pipes P-15)."""
    pipe = Pipe("p", runtime=runtime)
    pipe.send_many([1, 2])
    with pytest.raises(NotConfirmed, match=r"epoch \d+: 1 to 2\. The pipe ends") as raised:
        pipe.close(timeout=0)
    assert [(first, last) for _, first, last in raised.value.ranges] == [(1, 2)]


def test_a_second_close_does_nothing_and_a_closed_pipe_takes_nothing(runtime: Runtime) -> None:
    """Every way of sending is told so, and a loop that is begun then."""
    pipe = Pipe("p", runtime=runtime)
    pipe.close()
    pipe.close()
    for attempt in (
        lambda: pipe.send(1),
        lambda: pipe.send(1, timeout=1),
        lambda: pipe.send_nowait(1),
        lambda: pipe.send_many([1]),
        lambda: pipe.flush(1),
        lambda: list(pipe),
    ):
        with pytest.raises(PipeClosed, match="pipe p is closed"):
            attempt()


def test_a_block_left_by_an_exception_is_closed_at_once_and_says_what_that_loses(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own exception comes out, and the count of messages given up is logged."""
    pipe = Pipe("p", runtime=runtime)

    def fail_inside() -> None:
        with pipe:
            pipe.send_many(["a", "b", "secret"])
            raise LookupError

    with pytest.raises(LookupError):
        fail_inside()
    assert "ends with 3 messages that are not confirmed" in caplog.text
    assert "secret" not in caplog.text
    with pytest.raises(PipeClosed):
        pipe.send("d")


def test_closing_in_vain_names_what_is_not_confirmed_and_leaves_no_thread(
    runtime: Runtime,
) -> None:
    """The handler always raises."""
    tried: list[object] = []

    def handler(message: object) -> None:
        tried.append(message)
        raise ValueError(message)

    pipe = Pipe("p", runtime=runtime)
    pipe.receive(handler)
    pipe.send_many(["a", "b"])
    await_that(runtime, lambda: bool(tried), "a first attempt: the messages have their numbers")
    with pytest.raises(NotConfirmed, match="1 to 2") as caught:
        pipe.close(0.2)
    assert [(first, last) for _, first, last in caught.value.ranges] == [(1, 2)]


def test_a_handler_that_is_still_busy_is_left_alone_and_its_message_not_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """close gives up on it; the thread ends when the handler does."""
    gate = Gate("b")
    pipe = Pipe("p", runtime=ThreadRuntime())
    pipe.receive(gate)
    pipe.send_many(["a", "b", "c"])
    gate.await_reached()
    with pytest.raises(NotConfirmed) as caught:
        pipe.close(0.1)
    assert [(first, last) for _, first, last in caught.value.ranges][-1][1] == 3
    assert "its handler is still busy" in caplog.text
    busy = [thread for thread in threading.enumerate() if thread.name == "p/handler"]
    gate.opened.set()
    for thread in busy:
        thread.join(PATIENCE_S)
    assert gate.seen == ["a", "b"], "c is not begun any more"


def test_who_waits_for_room_is_told_when_the_pipe_is_closed() -> None:
    """A thread blocked in send."""
    pipe = Pipe("p", {"reliable": {"window": 1, "backlog": 1}}, runtime=ThreadRuntime())
    errors: list[Exception] = []

    def send_for_ever() -> None:
        try:
            while True:
                pipe.send("x")
        except PipeClosed as error:
            errors.append(error)

    thread = threading.Thread(target=send_for_ever)
    thread.start()
    await_that(ThreadRuntime(), lambda: pipe.counters()["accepted"] == 2, "a full pipe")
    with pytest.raises(NotConfirmed):
        pipe.close(0.1)
    thread.join(PATIENCE_S)
    assert len(errors) == 1


def test_messages_sent_while_the_pipe_is_being_closed_are_delivered_or_refused() -> None:
    """Four threads send until they are told that the pipe is closed; none of what was accepted is lost (P-15)."""
    seen: list[object] = []
    pipe = Pipe("p", runtime=ThreadRuntime())
    pipe.receive(seen.append)
    accepted: list[list[object]] = [[] for _ in range(4)]
    busy = threading.Barrier(5)

    def send_until_closed(name: int) -> None:
        number = 0
        while True:
            try:
                pipe.send([name, number])
            except PipeClosed:
                return
            accepted[name].append([name, number])
            number += 1
            if number == 200:
                busy.wait(PATIENCE_S)

    threads = [threading.Thread(target=send_until_closed, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    busy.wait(PATIENCE_S)
    pipe.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(seen, key=str) == sorted((m for sent in accepted for m in sent), key=str)


UNCLOSED = """
import logging
from surepipe import Pipe
from surepipe.actors import StepRuntime
logging.basicConfig(format="%(message)s")
pipe = Pipe("forgotten")
pipe.send_many(["a", "b", "secret"])
simulated = Pipe("simulated", runtime=StepRuntime())
simulated.send("a")
"""


def test_a_process_ends_with_a_pipe_that_nobody_closed_and_says_what_that_loses() -> None:
    """No thread keeps it alive; the count is logged, no payload is. One in virtual time is not ours."""
    run = subprocess.run(
        [sys.executable, "-c", UNCLOSED],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "pipe forgotten ends with 3 messages that are not confirmed" in run.stderr
    assert "secret" not in run.stderr
    assert "simulated" not in run.stderr


def test_a_closed_pipe_takes_no_handler(steps: StepRuntime) -> None:
    """It would be a thread that nobody ends."""
    pipe = Pipe("p", runtime=steps)
    pipe.close()
    with pytest.raises(PipeClosed, match="no message will come"):
        pipe.receive(print)
    with pytest.raises(PipeClosed, match="no message will come"):
        pipe.receive_many(print)


def test_a_pipe_can_be_made_anew_under_the_same_name(steps: StepRuntime) -> None:
    """Nothing of the first one is in the way."""
    for number in range(3):
        seen: list[object] = []
        with Pipe("p", runtime=steps) as pipe:
            pipe.receive(seen.append)
            pipe.send(number)
        assert seen == [number]


def test_a_handler_that_does_not_end_gets_the_time_of_close_once() -> None:
    """Nothing is confirmed within it, and then a second is left for the handler, not as long again."""
    gate = threading.Event()
    left: list[float] = []
    threads: list[threading.Thread] = []

    class Watched(Pipe):
        def _end(self, timeout: float) -> None:
            left.append(timeout)
            super()._end(timeout)

    def wait_for_long(_: object) -> None:
        threads.append(threading.current_thread())
        gate.wait()

    pipe = Watched("p")
    pipe.receive(wait_for_long)
    pipe.send(1)
    try:
        with pytest.raises(NotConfirmed):
            pipe.close(timeout=1.5)
    finally:
        gate.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert left == [1.0]


def test_what_is_closed_is_not_entered() -> None:
    """A block over it would look as if it had worked, until the first message."""
    pipe = Pipe("orders")
    pipe.close()
    with pytest.raises(PipeClosed, match="make another one"), pipe:
        raise AssertionError("it was entered")

    async def enter() -> None:
        async with pipe:
            raise AssertionError("it was entered")

    with pytest.raises(PipeClosed, match="make another one"):
        asyncio.run(enter())
