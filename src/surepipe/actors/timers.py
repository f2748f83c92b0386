"""Deadlines: a heap of alarms, and the one thread that rings those of a whole process.

An alarm is usually moved a little later, again and again, and rarely rings. So moving it later leaves its entry
in the heap alone: the entry is pushed on when its time comes. Only moving an alarm earlier adds an entry.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable

_SLACK = 64
logger = logging.getLogger("surepipe")


class HeapAlarm:
    """An alarm as the heap knows it. ``queued`` is the time of its one valid entry."""

    __slots__ = ("deadline", "queued", "ring")

    def __init__(self, ring: Callable[[], None]) -> None:
        self.ring = ring
        self.deadline: int | None = None
        self.queued: int | None = None


class AlarmHeap:
    """Which alarm rings next. Not safe for threads."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, HeapAlarm]] = []
        self._pushed = 0
        self._armed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, alarm: HeapAlarm, deadline: int | None) -> bool:
        """Arm or disarm; True when the next ring may be earlier than before."""
        self._armed += (deadline is not None) - (alarm.deadline is not None)
        alarm.deadline = deadline
        if deadline is None or (alarm.queued is not None and alarm.queued <= deadline):
            return False
        self._push(alarm, deadline)
        self._compact()
        return self._entries[0][2] is alarm

    def next(self) -> int | None:
        """The time of the next ring, exactly; None when no alarm is armed."""
        entries = self._entries
        while entries:
            queued, _, alarm = entries[0]
            if alarm.queued == queued and alarm.deadline == queued:
                return queued
            heapq.heappop(entries)
            if alarm.queued == queued:
                alarm.queued = None
                if alarm.deadline is not None:
                    self._push(alarm, alarm.deadline)
        return None

    def pop_due(self, now: int) -> list[HeapAlarm]:
        """Disarm and give every alarm whose time has come, earliest first."""
        due: list[HeapAlarm] = []
        while (at := self.next()) is not None and at <= now:
            alarm = heapq.heappop(self._entries)[2]
            alarm.queued = alarm.deadline = None
            self._armed -= 1
            due.append(alarm)
        return due

    def _push(self, alarm: HeapAlarm, at: int) -> None:
        self._pushed += 1
        alarm.queued = at
        heapq.heappush(self._entries, (at, self._pushed, alarm))

    def _compact(self) -> None:
        """Drop the entries that mean nothing any more, once they outnumber the others."""
        if len(self._entries) > 2 * self._armed + _SLACK:
            self._entries = [entry for entry in self._entries if entry[2].queued == entry[0]]
            heapq.heapify(self._entries)


class TimerThread:
    """Rings the alarms of a process. It runs while somebody holds an alarm, and ends with the last one."""

    def __init__(self) -> None:
        self._heap = AlarmHeap()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._held = 0
        self._thread: threading.Thread | None = None

    def alarm(self, ring: Callable[[], None]) -> ThreadAlarm:
        """A new alarm, disarmed; ``ring`` is called on the timer's thread."""
        with self._lock:
            self._held += 1
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="surepipe-timer", daemon=True
                )
                self._thread.start()
        return ThreadAlarm(self, ring)

    def set(self, alarm: HeapAlarm, deadline: int | None) -> None:
        """Arm or disarm an alarm."""
        with self._lock:
            if self._heap.set(alarm, deadline):
                self._changed.notify()

    def release(self, alarm: HeapAlarm) -> None:
        """An alarm is given back; the thread ends with the last one."""
        with self._lock:
            self._heap.set(alarm, None)
            self._held -= 1
            if self._held:
                return
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (due := self._wait()) is not None:
            for alarm in due:
                try:
                    alarm.ring()
                except Exception:
                    logger.exception("an alarm raised; the others are not its business")

    def _wait(self) -> list[HeapAlarm] | None:
        """The alarms that are due, once there are any; None when this thread is not wanted any more."""
        with self._lock:
            while self._thread is threading.current_thread():
                now = time.monotonic_ns() // 1000
                due = self._heap.pop_due(now)
                if due:
                    return due
                at = self._heap.next()
                self._changed.wait(None if at is None else (at - now) / 1_000_000)
            return None


class ThreadAlarm(HeapAlarm):
    """An alarm on the timer thread."""

    __slots__ = ("_open", "_timer")

    def __init__(self, timer: TimerThread, ring: Callable[[], None]) -> None:
        super().__init__(ring)
        self._timer = timer
        self._open = True

    def set(self, deadline: int | None) -> None:
        """Ring at this time; None disarms."""
        self._timer.set(self, deadline if self._open else None)

    def close(self) -> None:
        """Give the alarm back; a second call does nothing."""
        if self._open:
            self._open = False
            self._timer.release(self)
