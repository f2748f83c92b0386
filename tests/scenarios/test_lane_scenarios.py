"""What once went wrong with lanes, reduced to what matters."""

from __future__ import annotations

from surepipe.core.effects import NoticeKind
from tests.kit.wire import SECOND
from tests.pipes.lanes_kit import LaneWire


def test_lanes_of_two_lives_that_are_both_stalled_are_told_of_once_each() -> None:
    """lanes: notices: two epochs each have a message that keeps failing at their head, and the window is full.

    1. a:1 fails for good; its sender starts anew, and the new life's first message b:1 fails for good too;
    2. what comes behind fills the window: one notice for each of the two, and none at each attempt (pipes O-3).
    """
    wire = LaneWire({"multi-unconfirmed": {"receive_window": 8, "run_max": 1}})
    wire.poison = {b"a:1": -1, b"b:1": -1}
    wire.say("a:1")
    wire.crash_sender()
    wire.exchange()
    wire.say(*(f"b:{number}" for number in range(1, 10)))
    for _ in range(12):
        wire.work_all()
        wire.advance(1 * SECOND)
        wire.exchange()
    stalled = [notice for _, notice in wire.notices if notice.kind is NoticeKind.STALLED]
    assert [notice.ranges for notice in stalled] == [((1, 1),)] * 2
    assert len({notice.epoch for notice in stalled}) == 2


def test_how_often_a_message_failed_that_holds_up_the_rest_is_told_in_words() -> None:
    """Once where the window fills behind its first attempt; later the number is there (pipes O-3)."""
    for attempts, told in ((1, "it failed once, and"), (3, "it failed 3 times, and")):
        wire = LaneWire({"multi-unconfirmed": {"receive_window": 8, "run_max": 1}})
        wire.poison = {b"a:1": -1}
        wire.say("a:1")
        for number in range(attempts):
            wire.exchange()
            wire.work_all()
            if number + 1 < attempts:
                wire.advance(1 * SECOND)
        wire.say(*(f"b:{number}" for number in range(9)))
        wire.exchange()
        wire.work_all()
        (stalled,) = [notice for _, notice in wire.notices if notice.kind is NoticeKind.STALLED]
        assert stalled.detail.startswith(told), stalled.detail
