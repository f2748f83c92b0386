"""Watches a live hop: each message that was sent must come out within a stated time, or there is an alarm.

A machine like any other: what happened goes in with ``now``, alarms come out, and its state is a value. Messages
are told by tokens (digests of their payloads), so it does not matter which of the two sides is heard of first.
``open_max`` bounds what it remembers; beyond that the oldest is given up with an alarm of its own, never in
silence.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, cast


class LossTrouble(StrEnum):
    """What an alarm is about."""

    LOST = "lost"
    """Was sent and did not come out in time."""
    UNEXPECTED = "unexpected"
    """Came out, again or from nowhere, and nothing was sent that it could be."""
    OVERFLOW = "overflow"
    """Too much is open to watch: this one is watched no longer."""


@dataclass(frozen=True, slots=True)
class LossAlarm:
    """One message, by the index under which the side that knows it has it."""

    trouble: LossTrouble
    stream: str
    index: int
    waited_us: int

    def __str__(self) -> str:
        return (
            f"{self.trouble}: {self.stream} index {self.index}, after {self.waited_us / 1e6:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message on one side."""

    token: str
    stream: str
    index: int


_Open = tuple[str, str, int, int, bool]
"""Token, stream, index, since when, and whether it was sent (else it came out)."""


class LossWatch:
    """Remembers what one side has and the other not; forgets both when they meet."""

    def __init__(self, within_us: int, open_max: int = 100_000) -> None:
        self.within_us = within_us
        self.open_max = open_max
        self._open: dict[int, _Open] = {}
        """By number, in the order in which they were seen, which is that of their deadlines."""
        self._numbers: dict[tuple[str, bool], deque[int]] = {}
        self._next = 0

    @property
    def deadline_us(self) -> int | None:
        """When the next alarm is due."""
        first = next(iter(self._open.values()), None)
        return None if first is None else first[3] + self.within_us

    def see(
        self, sent: Iterable[SeenMessage], came: Iterable[SeenMessage], now_us: int
    ) -> list[LossAlarm]:
        """What was read of both sides; gives the alarms for what is too much to remember."""
        for seen, is_sent in (*((one, True) for one in sent), *((one, False) for one in came)):
            waiting = self._numbers.get((seen.token, not is_sent))
            if waiting:
                self._forget(waiting[0])
            else:
                self._remember((seen.token, seen.stream, seen.index, now_us, is_sent))
        alarms: list[LossAlarm] = []
        while len(self._open) > self.open_max:
            alarms.append(self._give_up(LossTrouble.OVERFLOW, now_us))
        return alarms

    def due(self, now_us: int) -> list[LossAlarm]:
        """Alarms for what has been open for too long; each is given once."""
        alarms: list[LossAlarm] = []
        while (deadline := self.deadline_us) is not None and deadline <= now_us:
            is_sent = next(iter(self._open.values()))[4]
            alarms.append(
                self._give_up(LossTrouble.LOST if is_sent else LossTrouble.UNEXPECTED, now_us)
            )
        return alarms

    def state(self) -> str:
        """Everything that it remembers, as text."""
        return json.dumps(list(self._open.values()), separators=(",", ":"))

    @classmethod
    def of_state(cls, state: str, within_us: int, open_max: int = 100_000) -> Self:
        watch = cls(within_us, open_max)
        for token, stream, index, since, is_sent in cast("list[list[object]]", json.loads(state)):
            watch._remember(
                (str(token), str(stream), cast("int", index), cast("int", since), bool(is_sent))
            )
        return watch

    def _remember(self, one: _Open) -> None:
        self._open[self._next] = one
        self._numbers.setdefault((one[0], one[4]), deque()).append(self._next)
        self._next += 1

    def _forget(self, number: int) -> _Open:
        """The first of its token, always: they are answered and given up in the order in which they came."""
        one = self._open.pop(number)
        numbers = self._numbers[one[0], one[4]]
        numbers.popleft()
        if not numbers:
            del self._numbers[one[0], one[4]]
        return one

    def _give_up(self, trouble: LossTrouble, now_us: int) -> LossAlarm:
        _, stream, index, since, _ = self._forget(next(iter(self._open)))
        return LossAlarm(trouble, stream, index, now_us - since)
