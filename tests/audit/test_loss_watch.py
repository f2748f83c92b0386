"""A watch over a live hop: alarms in time, once, whichever side is heard of first (spark SP-19)."""

from __future__ import annotations

import random

from surepipe.audit.bulk.loss_watch import LossAlarm, LossTrouble, LossWatch, SeenMessage

WITHIN_US = 1_000


def sent(*tokens: str) -> list[SeenMessage]:
    """Messages of the one side; the index is that of the letter."""
    return [SeenMessage(token, "orders", ord(token) - 96) for token in tokens]


def came(*tokens: str) -> list[SeenMessage]:
    """The same on the other side."""
    return [SeenMessage(token, "done", ord(token) - 96) for token in tokens]


def test_an_alarm_is_due_exactly_when_the_time_is_over_and_given_once() -> None:
    """b does not come: nothing a microsecond before, one alarm then, none afterwards."""
    watch = LossWatch(WITHIN_US)
    watch.see(sent("a", "b"), [], 10)
    watch.see([], came("a"), 500)
    assert watch.deadline_us == 1_010
    assert watch.due(1_009) == []
    assert watch.due(1_010) == [LossAlarm(LossTrouble.LOST, "orders", 2, 1_000)]
    assert watch.due(9_999) == []
    assert watch.deadline_us is None


def test_what_comes_out_before_its_sending_is_heard_of_is_no_fault() -> None:
    """Two streams are read at their own pace."""
    watch = LossWatch(WITHIN_US)
    watch.see([], came("a"), 0)
    watch.see(sent("a"), [], 999)
    assert watch.due(10_000) == []


def test_what_comes_out_twice_or_from_nowhere_is_told() -> None:
    """One of the two, when its time is over."""
    watch = LossWatch(WITHIN_US)
    watch.see(sent("a"), came("a", "a"), 0)
    assert watch.due(1_000) == [LossAlarm(LossTrouble.UNEXPECTED, "done", 1, 1_000)]


def test_equal_messages_meet_one_by_one() -> None:
    """Two sent, one came: the second is lost."""
    watch = LossWatch(WITHIN_US)
    watch.see(
        [SeenMessage("a", "orders", 1), SeenMessage("a", "orders", 2)],
        [SeenMessage("a", "done", 1)],
        0,
    )
    assert [alarm.index for alarm in watch.due(1_000)] == [2]


def test_beyond_its_bound_the_oldest_is_given_up_aloud() -> None:
    """Never in silence."""
    watch = LossWatch(WITHIN_US, open_max=2)
    alarms = watch.see(sent("a", "b", "c"), [], 7)
    assert alarms == [LossAlarm(LossTrouble.OVERFLOW, "orders", 1, 0)]
    assert [alarm.index for alarm in watch.due(5_000)] == [2, 3]


def test_its_state_is_a_value_and_a_restart_at_any_moment_changes_nothing() -> None:
    """Random histories, and a twin that is rebuilt of its state after each step: equal alarms."""
    for seed in range(200):
        rng = random.Random(seed)
        one, other = LossWatch(WITHIN_US, 5), LossWatch(WITHIN_US, 5)
        now = 0
        for _ in range(30):
            now += rng.randrange(400)
            given = sent(*rng.choices("abcdef", k=rng.randrange(3)))
            taken = came(*rng.choices("abcdef", k=rng.randrange(3)))
            assert one.see(given, taken, now) == other.see(given, taken, now)
            assert one.due(now) == other.due(now)
            other = LossWatch.of_state(other.state(), WITHIN_US, 5)
            assert one.state() == other.state()
