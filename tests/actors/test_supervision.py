from __future__ import annotations

import logging

import pytest

from surepipe.actors import Pipe, RestartPolicy, StepRuntime, ThreadRuntime
from surepipe.actors.inbox import RING, Bell, Box
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import KILL, START, ActorKeeper, Kill, Killed
from tests.actors.kit import PATIENCE_S, await_that


class Life:
    """One life of a kept actor."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.told: list[object] = []

    def receive(self, message: object) -> object:
        if isinstance(message, Kill):
            raise Killed
        self.told.append(message)
        return len(self.home.lives)

    def died(self, error: BaseException) -> None:
        self.home.deaths.append(self.home.now())
        self.home.keeper.died(error)


class RaisingLife(Life):
    """One that raises what it is told, where that is an exception."""

    def receive(self, message: object) -> object:
        if isinstance(message, BaseException):
            raise message
        return super().receive(message)


class Home:
    """A keeper and everything that happened there."""

    def __init__(
        self, runtime: Runtime, policy: RestartPolicy, kind: type[Life] | None = None
    ) -> None:
        self.lives: list[Life] = []
        self._kind = kind or Life
        self.deaths: list[int] = []
        self.gone: list[str] = []
        self.now = runtime.now
        self.keeper = ActorKeeper(runtime, "kept", self._make, self.gone.append, policy)
        self.keeper.start()

    def _make(self) -> Life:
        self.lives.append(self._kind(self))
        return self.lives[-1]


def test_an_actor_that_died_gets_another_life_at_the_same_address(steps: StepRuntime) -> None:
    """Told through the keeper before and after (pipes P-16, H-2)."""
    home = Home(steps, RestartPolicy(wait_min_s=0.5))
    home.keeper.tell("first")
    home.keeper.tell(KILL)
    home.keeper.tell("lost with the inbox")
    steps.run_until_idle()
    assert home.keeper.tell("second")
    steps.run_until_idle()
    assert [life.told for life in home.lives] == [[START, "first"], [START, "second"]]
    assert steps.now() == 500_000
    assert home.keeper.restarts == 1
    home.keeper.stop()
    assert home.keeper.join(1)


def test_nobody_is_at_home_between_two_lives(steps: StepRuntime) -> None:
    """A tell says so, an ask raises."""
    home = Home(steps, RestartPolicy(wait_min_s=0.5))
    home.keeper.tell(KILL)
    steps.run_until(lambda: bool(home.deaths))
    assert not home.keeper.tell("anybody?")
    with pytest.raises(LookupError, match="between two lives"):
        home.keeper.ask("anybody?", 1)
    home.keeper.stop()
    assert home.keeper.join(1)
    steps.run_until_idle()
    assert len(home.lives) == 1, "stopped while waiting: no further life"


def test_waits_double_and_too_many_deaths_end_it(steps: StepRuntime) -> None:
    """Killed at once in every life: waits of 1, 2 and 4 s, then it is given up, once."""
    home = Home(steps, RestartPolicy(restarts_max=3, within_s=60, wait_min_s=1, wait_max_s=4))
    for _ in range(4):
        home.keeper.tell(KILL)
        steps.run_until_idle()
    assert home.deaths == [0, 1_000_000, 3_000_000, 7_000_000]
    assert home.gone == ["kept died 4 times within 60 s, the last time of Killed"]
    assert not home.keeper.tell("anybody?")
    home.keeper.stop()
    assert home.keeper.join(1)


def test_an_error_that_says_nothing_is_told_by_its_name_alone(
    steps: StepRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """As a cancelled task says nothing; where it says something, its notes are told too."""
    caplog.set_level(logging.INFO)
    noted = ValueError("no stock")
    noted.add_note("in row 3")
    home = Home(steps, RestartPolicy(restarts_max=9), RaisingLife)
    for error in (TimeoutError(), noted):
        home.keeper.tell(error)
        steps.run_until_idle()
    assert [one.getMessage() for one in caplog.records if one.name == "surepipe"] == [
        "kept died of TimeoutError, death 1",
        "kept died of ValueError: no stock. in row 3, death 2",
    ]
    home.keeper.stop()
    once = Home(steps, RestartPolicy(restarts_max=0), RaisingLife)
    once.keeper.tell(KeyError())
    steps.run_until_idle()
    assert once.gone == ["kept died once within 60 s, the last time of KeyError"]
    once.keeper.stop()


def test_deaths_long_ago_are_forgotten(steps: StepRuntime) -> None:
    """One death each minute with room for one: it goes on, always after the shortest wait."""
    home = Home(steps, RestartPolicy(restarts_max=1, within_s=30, wait_min_s=1))
    for _ in range(5):
        home.keeper.tell(KILL)
        steps.advance(60)
    assert len(home.lives) == 6
    assert home.gone == []
    home.keeper.stop()
    assert home.keeper.join(1)


def test_a_restart_works_on_threads_too() -> None:
    """The same with real threads and a wait of a millisecond."""
    runtime = ThreadRuntime()
    home = Home(runtime, RestartPolicy(wait_min_s=0.001))
    home.keeper.tell(KILL)
    await_that(runtime, lambda: len(home.lives) == 2, "a second life")
    home.keeper.stop()
    assert home.keeper.join(PATIENCE_S)


def test_a_bell_tells_once_until_the_actor_looks() -> None:
    """A burst of any size is one message."""
    told: list[object] = []
    bell = Bell(told.append)
    for _ in range(100):
        bell.ring()
    assert told == [RING]
    bell.rung = False
    bell.ring()
    assert told == [RING, RING]


def test_a_full_box_drops_what_comes_and_counts_it() -> None:
    """Frames beyond the bound are route loss, never silent (pipes P-9)."""
    box = Box[int](Bell(lambda _: None), bound=3)
    for item in range(5):
        box.put(item)
    assert box.take() == [0, 1, 2]
    assert box.dropped == 2
    box.put(5)
    assert box.take() == [5]


def test_an_actor_that_is_told_to_die_is_no_news(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Both ends and the handler of a pipe; nothing is logged, and what is sent arrives (pipes H-2)."""
    caplog.set_level(logging.INFO)
    seen: list[object] = []
    with Pipe("orders", runtime=runtime) as pipe:
        pipe.receive(seen.append)
        pipe.send(1, until="confirmed", timeout=PATIENCE_S)
        pipe.sender.crash()
        pipe.receiver.crash()
        pipe.receiver.crash_consumer()
        await_that(runtime, lambda: pipe.counters()["restarts"] >= 2, "both ends live again")
        pipe.send(2, until="confirmed", timeout=PATIENCE_S)
    assert set(seen) == {1, 2}
    assert caplog.text == ""


def test_a_defect_of_an_actor_is_logged_with_its_traceback(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """By pykka where it was raised, and by its keeper, which gives it another life."""
    caplog.set_level(logging.INFO)

    class Defect(Life):
        def receive(self, message: object) -> object:
            if message == "break":
                raise ZeroDivisionError("a defect")
            return super().receive(message)

    home = Home(runtime, RestartPolicy(wait_min_s=0.01), Defect)
    home.keeper.tell("break")
    await_that(runtime, lambda: len(home.lives) == 2, "another life")
    home.keeper.stop()
    assert home.keeper.join(PATIENCE_S)
    told = [(one.name, one.levelname, one.exc_info is not None) for one in caplog.records]
    assert told == [("pykka", "ERROR", True), ("surepipe", "WARNING", True)]
    assert caplog.text.count("ZeroDivisionError: a defect") >= 2
    assert 'raise ZeroDivisionError("a defect")' in caplog.text
