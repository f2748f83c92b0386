"""The part of the past that the properties still need, and what each fact adds to it or breaks.

Order is judged by the one implementation that everything is judged by (``pipes.predicates``); what is kept here is
only what it needs to go on: the positions that are settled, and the highest of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from surepipe.audit.predicates import JudgedProperty, OrderJudge
from surepipe.simulation.explore.nodes import Out
from surepipe.simulation.explore.numbers import ValueNumbers

Broken: TypeAlias = tuple[str, int]
"""A property by id, and the position of the message concerned (0: it has none)."""

ORDER: Mapping[str, tuple[JudgedProperty, ...]] = {
    "P3": (JudgedProperty.NO_DUPLICATE,),
    "P4": (JudgedProperty.MONOTONIC,),
    "P5": (JudgedProperty.MONOTONIC, JudgedProperty.NO_DUPLICATE),
    "P6g": (JudgedProperty.GAP_FREE,),
    "P6": (JudgedProperty.GAP_FREE, JudgedProperty.MONOTONIC),
    "P7": (JudgedProperty.GAP_FREE, JudgedProperty.NO_DUPLICATE),
}
AT_END = ("P2", "P11", "P12")
NAMES: Mapping[str, str] = {
    "P1": "integrity",
    "P2": "no loss",
    "P3": "no duplicates",
    "P4": "monotonic",
    "P5": "strict",
    "P6g": "gap-free",
    "P6": "continuous",
    "P7": "absolute",
    "P8": "honest confirm",
    "P11": "quiescence",
    "P12": "progress",
}
JUDGED = tuple(NAMES)
_NEVER = 2**31
_NEEDS_HIGHEST = frozenset({"P4", "P5", "P6g", "P6", "P7"})
_NEEDS_SETTLED = frozenset({"P2", "P3", "P5", "P7", "P8", "P11", "P12"})
_NEEDS_CONFIRMED = frozenset({"P11", "P12"})


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """One accepted message: what the application calls it, and its identity."""

    number: int
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class History:
    """Accepted messages by position; which positions are settled and confirmed, as bits; the highest settled.

    ``since`` is how many were accepted before the last crash, where that is asked for (many: there was none).
    """

    accepted: tuple[AcceptedMessage, ...] = ()
    settled: int = 0
    confirmed: int = 0
    highest: int = 0
    since: int = 0

    def position(self, epoch: int, seq: int) -> int:
        """The position of a message by its identity, 0 when it was not accepted."""
        for position, message in enumerate(self.accepted, 1):
            if message.epoch == epoch and message.seq == seq:
                return position
        return 0

    def missing_from(self, since: int) -> int:
        """The first position behind ``since`` that is accepted and not settled, 0 for none."""
        return self._first_without(self.settled, since)

    @property
    def unconfirmed(self) -> int:
        """The first position that is accepted and not confirmed, 0 for none."""
        return self._first_without(self.confirmed, 0)

    def _first_without(self, bits: int, since: int) -> int:
        places = range(since + 1, len(self.accepted) + 1)
        return next((position for position in places if not bits >> position & 1), 0)


class Histories:
    """Histories by number; what a sequence of facts makes of each is worked out once."""

    def __init__(self, properties: tuple[str, ...], *, after_crash: bool) -> None:
        self._after_crash = after_crash
        wanted = frozenset(properties)
        self._wanted = properties
        self._keeps_highest = bool(wanted & _NEEDS_HIGHEST)
        self._keeps_settled = bool(wanted & _NEEDS_SETTLED)
        self._keeps_confirmed = bool(wanted & _NEEDS_CONFIRMED)
        self._numbers = ValueNumbers(exact=True)
        self._steps: dict[tuple[int, tuple[Out, ...]], tuple[int, tuple[Broken, ...]]] = {}
        self.first = self._numbers.of(History(since=_NEVER if after_crash else 0))

    def __getitem__(self, number: int) -> History:
        return cast("History", self._numbers[number])

    def after(self, number: int, facts: tuple[Out, ...]) -> tuple[int, tuple[Broken, ...]]:
        """The history after these facts, and the wanted properties that they break."""
        known = self._steps.get((number, facts))
        if known is None:
            history, broken = self[number], list[Broken]()
            for fact in facts:
                history = self._step(history, fact, broken)
            known = self._numbers.of(self._reduced(history)), tuple(broken)
            self._steps[number, facts] = known
        return known

    def _reduced(self, history: History) -> History:
        return replace(
            history,
            settled=history.settled if self._keeps_settled else 0,
            confirmed=history.confirmed if self._keeps_confirmed else 0,
            highest=history.highest if self._keeps_highest else 0,
        )

    def _step(self, history: History, fact: Out, broken: list[Broken]) -> History:
        match fact:
            case ("accepted", int(epoch), int(seq), int(number)):
                return replace(
                    history, accepted=(*history.accepted, AcceptedMessage(number, epoch, seq))
                )
            case ("settled" | "dead", int(epoch), int(seq), int(number)):
                return self._settled(history, history.position(epoch, seq), number, broken)
            case ("confirmed", int(epoch), int(seq)):
                return self._confirmed(history, history.position(epoch, seq), broken)
            case ("renumbered", int(epoch), int(seq), int(new_epoch), int(new_seq)):
                return _renumbered(history, history.position(epoch, seq), new_epoch, new_seq)
            case ("crash", str()) if self._after_crash:
                return replace(history, since=len(history.accepted))
            case _:
                return history

    def _settled(
        self, history: History, position: int, number: int, broken: list[Broken]
    ) -> History:
        if not position or history.accepted[position - 1].number != number:
            self._break("P1", position, broken)
            return history
        judge = OrderJudge()
        judge.highest = history.highest
        judge.step(position, repeated=bool(history.settled >> position & 1))
        for wanted, parts in ORDER.items():
            if any(part in judge.violations for part in parts):
                self._break(wanted, position, broken)
        return replace(history, settled=history.settled | 1 << position, highest=judge.highest)

    def _confirmed(self, history: History, position: int, broken: list[Broken]) -> History:
        if not history.settled >> position & 1:
            self._break("P8", position, broken)
        return replace(history, confirmed=history.confirmed | 1 << position)

    def _break(self, wanted: str, position: int, broken: list[Broken]) -> None:
        if wanted in self._wanted:
            broken.append((wanted, position))


def _renumbered(history: History, position: int, epoch: int, seq: int) -> History:
    if not position:
        return history
    moved = replace(history.accepted[position - 1], epoch=epoch, seq=seq)
    accepted = (*history.accepted[: position - 1], moved, *history.accepted[position:])
    return replace(history, accepted=accepted)
