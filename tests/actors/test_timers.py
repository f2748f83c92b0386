from __future__ import annotations

import threading

import pytest

from surepipe.actors.threads import AlarmHeap, HeapAlarm, TimerThread
from tests.actors.kit import PATIENCE_S


def _alarm(rung: list[str], name: str) -> HeapAlarm:
    return HeapAlarm(lambda: rung.append(name))


def _ring(heap: AlarmHeap, now: int) -> None:
    for alarm in heap.pop_due(now):
        alarm.ring()


def test_alarms_ring_in_the_order_of_their_deadlines() -> None:
    """Three alarms set out of order, all due at once."""
    heap, rung = AlarmHeap(), list[str]()
    for name, at in (("b", 20), ("c", 30), ("a", 10)):
        heap.set(_alarm(rung, name), at)
    assert heap.next() == 10
    _ring(heap, 25)
    assert rung == ["a", "b"]
    assert heap.next() == 30


def test_an_alarm_moved_later_rings_only_then() -> None:
    """Its old entry stays in the heap and means nothing (pipes P-4: deadlines are exact)."""
    heap, rung = AlarmHeap(), list[str]()
    alarm = _alarm(rung, "a")
    heap.set(alarm, 10)
    heap.set(alarm, 50)
    _ring(heap, 49)
    assert rung == []
    assert heap.next() == 50
    _ring(heap, 50)
    assert rung == ["a"]


def test_an_alarm_moved_earlier_rings_once() -> None:
    """The later entry is stale when its time comes."""
    heap, rung = AlarmHeap(), list[str]()
    alarm = _alarm(rung, "a")
    heap.set(alarm, 50)
    assert heap.set(alarm, 10), "the next ring is earlier now"
    _ring(heap, 10)
    _ring(heap, 100)
    assert rung == ["a"]


def test_a_disarmed_alarm_never_rings_and_leaves_nothing_to_wait_for() -> None:
    """Disarm by None; the heap has no next time."""
    heap, rung = AlarmHeap(), list[str]()
    alarm = _alarm(rung, "a")
    heap.set(alarm, 10)
    heap.set(alarm, None)
    assert heap.next() is None
    _ring(heap, 100)
    assert rung == []


def test_an_alarm_armed_again_after_a_far_deadline_was_withdrawn_rings_at_the_new_one() -> None:
    """Far, off, near, ring, far again: one entry for each is enough."""
    heap, rung = AlarmHeap(), list[str]()
    alarm = _alarm(rung, "a")
    heap.set(alarm, 1000)
    heap.set(alarm, None)
    heap.set(alarm, 10)
    _ring(heap, 10)
    heap.set(alarm, 1000)
    _ring(heap, 999)
    assert rung == ["a"]
    _ring(heap, 1000)
    assert rung == ["a", "a"]


def test_the_heap_stays_small_however_often_an_alarm_is_moved() -> None:
    """A far and a near deadline in turn, 10,000 times: stale entries are dropped."""
    heap, rung = AlarmHeap(), list[str]()
    alarm = _alarm(rung, "a")
    for now in range(0, 20_000, 2):
        heap.set(alarm, now + 1_000_000)
        heap.set(alarm, now + 1)
        _ring(heap, now + 1)
    assert len(rung) == 10_000
    assert len(heap) < 200


def test_one_thread_rings_the_alarms_of_everybody_and_ends_with_the_last_of_them() -> None:
    """Two holders, one thread; it is joined when the second gives its alarm back."""
    timer = TimerThread()
    rung = threading.Event()
    first, second = timer.alarm(rung.set), timer.alarm(lambda: None)
    assert [t.name for t in threading.enumerate()].count("surepipe-timer") == 1
    first.set(0)
    assert rung.wait(PATIENCE_S)
    first.close()
    assert "surepipe-timer" in [t.name for t in threading.enumerate()]
    second.close()
    second.close()
    assert "surepipe-timer" not in [t.name for t in threading.enumerate()]


def test_the_timer_thread_starts_anew_when_an_alarm_is_wanted_again() -> None:
    """Close the last alarm, make another, ring it."""
    timer = TimerThread()
    timer.alarm(lambda: None).close()
    rung = threading.Event()
    alarm = timer.alarm(rung.set)
    alarm.set(0)
    assert rung.wait(PATIENCE_S)
    alarm.close()


def test_an_alarm_that_raises_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and the next one rings."""

    def broken() -> None:
        raise RuntimeError("broken")

    timer = TimerThread()
    rung = threading.Event()
    first, second = timer.alarm(broken), timer.alarm(rung.set)
    first.set(0)
    second.set(1)
    assert rung.wait(PATIENCE_S)
    first.close()
    second.close()
    assert "an alarm raised" in caplog.text


def test_a_closed_alarm_can_not_be_armed_again() -> None:
    """Setting it does nothing: its owner is gone."""
    timer = TimerThread()
    other = timer.alarm(lambda: None)
    alarm = timer.alarm(lambda: None)
    alarm.close()
    alarm.set(0)
    assert alarm.deadline is None
    other.close()
