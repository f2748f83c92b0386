from __future__ import annotations

import asyncio
import threading

import pykka
import pytest

from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.consuming.coroutines import in_task
from surepipe.actors.runtime import Runtime
from surepipe.errors import MisuseError
from tests.actors.kit import PATIENCE_S


class Echo:
    """Answers what it is told; dies when told ``die`` or ``exit``."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.death: BaseException | None = None

    def receive(self, message: object) -> object:
        self.told.append(message)
        if message == "die":
            raise ValueError("told to")
        if message == "exit":
            raise SystemExit(3)
        return message

    def died(self, error: BaseException) -> None:
        self.death = error


def test_an_actor_answers_in_the_order_it_is_told(runtime: Runtime) -> None:
    """Tells and an ask through one inbox."""
    echo = Echo()
    running = runtime.start(echo, "echo")
    assert running.tell(1)
    assert running.tell(2)
    assert running.ask(3, PATIENCE_S) == 3
    assert echo.told == [1, 2, 3]
    running.stop()
    assert running.join(PATIENCE_S)


def test_an_actor_stands_in_the_registry_of_pykka_while_it_lives(runtime: Runtime) -> None:
    """Registered at the start, gone at the end."""
    running = runtime.start(Echo(), "echo")
    assert len(pykka.ActorRegistry.get_all()) == 1
    running.stop()
    running.join(PATIENCE_S)
    assert pykka.ActorRegistry.get_all() == []


def test_an_exception_ends_an_actor_and_tells_it_so(runtime: Runtime) -> None:
    """What waits in its inbox is lost with it; later tells say that nobody is there."""
    echo = Echo()
    running = runtime.start(echo, "echo")
    running.tell("die")
    assert running.join(PATIENCE_S)
    assert isinstance(echo.death, ValueError)
    assert not running.tell("anybody?")
    with pytest.raises(pykka.ActorDeadError):
        running.ask("anybody?", PATIENCE_S)


def test_an_exit_inside_an_actor_ends_that_actor_only() -> None:
    """pykka would stop every actor of the process for a SystemExit (pipes H-2)."""
    runtime = ThreadRuntime()
    echo, bystander = Echo(), Echo()
    running, other = runtime.start(echo, "echo"), runtime.start(bystander, "bystander")
    running.tell("exit")
    assert running.join(PATIENCE_S)
    assert echo.death is not None
    assert other.ask("still there?", PATIENCE_S) == "still there?"
    other.stop()
    other.join(PATIENCE_S)


def test_an_ask_gets_the_exception_that_its_answer_raised(runtime: Runtime) -> None:
    """The caller is told and the actor lives on, as pykka has it."""
    echo = Echo()
    running = runtime.start(echo, "echo")
    with pytest.raises(ValueError, match="told to"):
        running.ask("die", PATIENCE_S)
    assert running.ask(1, PATIENCE_S) == 1
    running.stop()
    running.join(PATIENCE_S)


def test_an_actor_that_joins_itself_does_not_wait_for_ever() -> None:
    """A handler that closes its own pipe comes here."""
    runtime = ThreadRuntime()
    joined = threading.Event()

    class Joiner(Echo):
        def receive(self, message: object) -> object:
            assert running.join(PATIENCE_S)
            joined.set()
            return message

    running = runtime.start(Joiner(), "joiner")
    running.tell("join")
    assert joined.wait(PATIENCE_S)
    running.stop()
    assert running.join(PATIENCE_S)


def test_a_change_wakes_the_tasks_that_have_waited_for_it_and_no_others() -> None:
    """A thousand that wait for their own messages must not all be run for each of them."""
    signal, are_done, woken = ThreadRuntime().signal(), [False] * 50, list[int]()

    async def wait_for(number: int) -> None:
        await in_task(lambda: signal.wait(lambda: are_done[number], PATIENCE_S))
        woken.append(number)

    def change(number: int) -> None:
        are_done[number] = True
        signal.notify()

    async def body() -> None:
        tasks = [asyncio.create_task(wait_for(number)) for number in range(50)]
        await asyncio.sleep(0)
        for number in (7, 3, 49):
            await asyncio.to_thread(change, number)
            await asyncio.wait_for(tasks[number], PATIENCE_S)
        assert woken == [7, 3, 49]
        for number in range(50):
            await asyncio.to_thread(change, number)
        await asyncio.gather(*tasks)

    asyncio.run(body())
    assert sorted(woken) == list(range(50))


def test_what_a_task_waits_for_may_raise_and_the_others_wait_on() -> None:
    """It raises in the task that waits, not where somebody notifies."""
    signal, is_broken, is_done = ThreadRuntime().signal(), threading.Event(), threading.Event()

    def broken() -> bool:
        if is_broken.is_set():
            raise ZeroDivisionError
        return False

    async def body() -> None:
        first = asyncio.create_task(in_task(lambda: signal.wait(broken, PATIENCE_S)))
        second = asyncio.create_task(in_task(lambda: signal.wait(is_done.is_set, PATIENCE_S)))
        await asyncio.sleep(0)
        is_broken.set()
        await asyncio.to_thread(signal.notify)
        with pytest.raises(ZeroDivisionError):
            await first
        is_done.set()
        await asyncio.to_thread(signal.notify)
        assert await second

    asyncio.run(body())


def test_time_stands_still_while_anybody_has_something_to_do(steps: StepRuntime) -> None:
    """Then it jumps exactly to the next alarm."""
    rung: list[int] = []
    alarm = steps.alarm(lambda: rung.append(steps.now()))
    alarm.set(5_000)
    running = steps.start(Echo(), "echo")
    running.tell(1)
    assert steps.step()
    assert steps.now() == 0
    steps.run_until_idle()
    assert rung == [5_000]
    running.stop()
    running.join(1)


def test_waiting_for_what_can_not_happen_is_an_error_and_not_a_hang(steps: StepRuntime) -> None:
    """No inbox holds anything, no alarm is armed, no time limit."""
    with pytest.raises(MisuseError, match="for ever"):
        steps.run_until(lambda: False)


def test_a_wait_with_a_limit_takes_exactly_that_much_virtual_time(steps: StepRuntime) -> None:
    """Alarms inside the limit ring, later ones don't."""
    rung: list[str] = []
    near, far = steps.alarm(lambda: rung.append("near")), steps.alarm(lambda: rung.append("far"))
    near.set(1_000_000)
    far.set(3_000_000)
    assert not steps.signal().wait(lambda: False, 2.0)
    assert rung == ["near"]
    assert steps.now() == 2_000_000


def _order_of_steps(seed: int) -> list[str]:
    runtime = StepRuntime(seed)
    started = [runtime.start(Echo(), name) for name in "abcd"]
    for running in started:
        for message in range(5):
            running.tell(message)
    runtime.run_until_idle()
    trace = list(runtime.trace)
    for running in started:
        running.stop()
        running.join(1)
    return trace


def test_the_same_seed_gives_the_same_order_of_steps_and_another_seed_another() -> None:
    """Four actors with five messages each (pipes P-12)."""
    assert _order_of_steps(1) == _order_of_steps(1)
    assert _order_of_steps(1) != _order_of_steps(2)


def test_an_actor_that_waits_inside_its_step_lets_the_others_run_and_is_not_entered_again(
    steps: StepRuntime,
) -> None:
    """It asks another actor in the middle of a message."""

    class Asker(Echo):
        depth = 0

        def receive(self, message: object) -> object:
            self.depth += 1
            assert self.depth == 1, "entered twice"
            answer = other.ask(message, 1)
            self.depth -= 1
            return answer

    other = steps.start(Echo(), "other")
    asker = steps.start(Asker(), "asker")
    asker.tell("first")
    assert asker.ask("second", 1) == "second"
    for running in (asker, other):
        running.stop()
        running.join(1)


def test_a_future_of_the_step_runtime_gives_up_after_virtual_time(steps: StepRuntime) -> None:
    """An actor that never gets its turn: it asks itself."""

    class Selfish(Echo):
        def receive(self, message: object) -> object:
            if message == "ask":
                with pytest.raises(pykka.Timeout):
                    running.ask("again", 0.5)
            return message

    running = steps.start(Selfish(), "selfish")
    assert running.ask("ask", 10) == "ask"
    assert steps.now() == 500_000
    running.stop()
    running.join(1)
