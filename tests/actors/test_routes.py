from __future__ import annotations

from collections.abc import Container

import pytest

from surepipe.actors import FaultyRoute, LocalRoute, StepRuntime
from surepipe.core.claims import NO_FAULTS, Fault
from surepipe.errors import ConfigurationError
from surepipe.guarantees import hops


class Inbox:
    """Where frames land, with room for ten."""

    def __init__(self, frames: list[object]) -> None:
        self.frames = frames
        self.woken = 0

    def put(self, frame: object) -> None:
        self.frames.append(frame)

    @property
    def room(self) -> int:
        return 10 - len(self.frames)

    def wake(self) -> None:
        self.woken += 1

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """These routes never break."""


def _carry(runtime: StepRuntime, route: FaultyRoute | LocalRoute, count: int) -> list[object]:
    """Send frames 0 .. count - 1 forward, let everything arrive, and give what came."""
    came: list[object] = []
    route.sender.open(Inbox([]), runtime)
    route.receiver.open(Inbox(came), runtime)
    for frame in range(count):
        route.sender.send(frame)
    runtime.run_until_idle()
    route.sender.close()
    route.receiver.close()
    return came


def test_a_local_route_hands_frames_over_as_they_are(steps: StepRuntime) -> None:
    """Both ways, the same objects."""
    route = LocalRoute()
    there: list[object] = []
    back: list[object] = []
    route.sender.open(Inbox(back), steps)
    route.receiver.open(Inbox(there), steps)
    frame, answer = object(), object()
    route.sender.send(frame)
    route.receiver.send(answer)
    assert there == [frame]
    assert back == [answer]
    assert route.declared is hops.LOCAL


def test_frames_to_an_end_that_is_not_open_are_lost_and_counted(steps: StepRuntime) -> None:
    """Before it opens and after it has closed."""
    route = LocalRoute()
    route.sender.send(1)
    route.receiver.open(Inbox([]), steps)
    route.sender.send(2)
    route.receiver.close()
    route.sender.send(3)
    assert route.sender.lost == 2


def test_nothing_comes_back_over_a_one_way_route(steps: StepRuntime) -> None:
    """It says so, and declares it."""
    route = LocalRoute(one_way=True)
    back: list[object] = []
    route.sender.open(Inbox(back), steps)
    route.receiver.send(1)
    assert back == []
    assert not route.sender.has_reverse
    assert route.declared.one_way


def test_a_faulty_route_without_faults_changes_nothing(steps: StepRuntime) -> None:
    """Everything at once, in order, and nothing declared that the inner route doesn't do."""
    route = FaultyRoute(LocalRoute())
    assert _carry(steps, route, 100) == list(range(100))
    assert steps.now() == 0
    assert route.declared.forward == NO_FAULTS


def test_delay_keeps_the_order(steps: StepRuntime) -> None:
    """Drawn delays between 1 and 100 ms."""
    route = FaultyRoute(LocalRoute(), delay=(0.001, 0.1))
    assert _carry(steps, route, 200) == list(range(200))
    assert 0 < steps.now() <= 100_000
    assert route.declared.forward == {Fault.ROUTE_DELAY}


def test_loss_duplication_and_reordering_do_what_they_say(steps: StepRuntime) -> None:
    """Alone, each at a rate of a half, counted."""
    lossy = FaultyRoute(LocalRoute(), loss=0.5)
    came = _carry(steps, lossy, 1000)
    assert len(came) + lossy.sender.lost == 1000
    assert 400 < len(came) < 600
    copying = FaultyRoute(LocalRoute(), duplicate=0.5)
    came = _carry(steps, copying, 1000)
    assert set(came) == set(range(1000))
    assert len(came) == 1000 + copying.sender.copied
    mixing = FaultyRoute(LocalRoute(), reorder=0.5)
    came = _carry(steps, mixing, 1000)
    assert set(came) == set(range(1000))
    assert len(came) == 1000
    assert came != list(range(1000))


def test_a_faulty_route_declares_what_it_does() -> None:
    """In both directions; a route without a way back gets none."""
    route = FaultyRoute(LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.1)
    faults = frozenset(
        {
            Fault.ROUTE_LOSS,
            Fault.ROUTE_DUPLICATION,
            Fault.ROUTE_REORDERING,
            Fault.ROUTE_DELAY,
        }
    )
    assert route.declared.forward == faults
    assert route.declared.back == faults
    assert FaultyRoute(LocalRoute(one_way=True), loss=0.1).declared.back is None


def test_the_same_seed_gives_the_same_faults() -> None:
    """Three routes, two of one seed."""

    def came(seed: int) -> list[object]:
        route = FaultyRoute(
            LocalRoute(), loss=0.2, duplicate=0.2, reorder=0.2, delay=(0.0, 0.01), seed=seed
        )
        return _carry(StepRuntime(1), route, 300)

    assert came(1) == came(1)
    assert came(1) != came(2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"loss": 1.5}, "loss is 1.5"),
        ({"duplicate": -0.1}, "duplicate is -0.1"),
        ({"delay": (0.2, 0.1)}, "delay is"),
        ({"delay": -1.0}, "delay is -1.0"),
    ],
)
def test_a_fault_that_can_not_be_is_refused(wrong: dict[str, float], told: str) -> None:
    """Rates outside 0 .. 1, times in the wrong order."""
    with pytest.raises(ConfigurationError, match=told):
        FaultyRoute(LocalRoute(), **wrong)  # type: ignore[arg-type]


def test_a_sender_sees_the_room_at_the_other_end_and_is_woken_when_there_is_more(
    steps: StepRuntime,
) -> None:
    """Through a faulty route too, which counts what is on its way (pipes P-9)."""
    route = FaultyRoute(LocalRoute(), delay=1.0)
    here, there = Inbox([]), Inbox([])
    assert route.sender.room == 0, "nobody is there"
    route.sender.open(here, steps)
    route.receiver.open(there, steps)
    route.sender.send(1)
    assert route.sender.room == 9
    steps.run_until_idle()
    assert there.frames == [1]
    assert route.sender.room == 9
    route.receiver.taken()
    assert here.woken == 1
    route.sender.close()
    route.receiver.close()
