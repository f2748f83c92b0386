"""Marks: how a caller waits for what becomes of particular messages.

A mark travels in the sender's intake among the payloads. The actor that takes it out notes which identity it
stands for, and resolves it when that identity is accepted or confirmed. While nobody waits there is no mark, and
nothing is tracked per message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from surepipe.effects import Accepted, Ranges, Renumbered
from surepipe.errors import NotConfirmed, SurepipeError
from surepipe.pipes.payloads import Payloads, joined, sized

Item = tuple[int, int, int]
"""(epoch, first, last)."""

_ANYTHING = (2**63, 0)
"""Stands behind every identity: a mark there waits for all that is unconfirmed."""


class Until(Enum):
    """What a caller waits for."""

    TAKEN = "taken"
    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"


class Mark:
    """A place among the messages of a sender. Without payloads it stands for all that came before it.

    ``open`` names what was still unconfirmed when the actor last looked; None until it has seen the mark.
    """

    __slots__ = (
        "abandoned",
        "done",
        "error",
        "open",
        "ordinal",
        "payloads",
        "target",
        "units",
        "until",
    )

    def __init__(self, payloads: Sequence[bytes], units: int, until: Until) -> None:
        self.payloads = payloads
        self.units = units
        self.until = until
        self.ordinal = 0
        self.target: tuple[int, int] | None = None
        self.open: tuple[Item, ...] | None = None
        self.done = False
        self.error: SurepipeError | None = None
        self.abandoned = False

    @property
    def resolved(self) -> bool:
        """True when there is nothing to wait for any more."""
        return self.done or self.error is not None

    def look(self, unconfirmed: Iterable[tuple[int, Ranges]]) -> None:
        """Compare with what is unconfirmed now."""
        if self.target is None:
            return
        if self.until is Until.CONFIRMED:
            self.open = tuple(self._concerned(unconfirmed))
        self.done = not self.open

    def _concerned(self, unconfirmed: Iterable[tuple[int, Ranges]]) -> Iterable[Item]:
        assert self.target is not None
        epoch, last = self.target
        first = last - len(self.payloads) + 1 if self.payloads else 0
        for other, ranges in unconfirmed:
            if other > epoch or (other < epoch and self.payloads):
                continue
            for low, high in ranges:
                if other < epoch:
                    yield (other, low, high)
                elif low <= last and high >= first:
                    yield (epoch, max(low, first), min(high, last))


class Ledger:
    """What one life of a sender knows of its marks, by counting what it offers and what is accepted."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.last = _ANYTHING
        self._offered = 0
        self._accepted = 0

    def offering(self, items: Iterable[bytes | Mark]) -> Payloads:
        """The payloads among these items, about to be offered to the machine in this order."""
        runs: list[Payloads] = []
        singles: list[bytes] = []
        ordinal = self._offered
        for item in items:
            if not isinstance(item, Mark):
                singles.append(item)
                continue
            ordinal += len(singles) + len(item.payloads)
            runs += [sized(singles), sized(item.payloads)]
            singles = []
            self._adopt(item, ordinal)
        runs.append(sized(singles))
        return joined([run for run in runs if run])

    def _adopt(self, mark: Mark, ordinal: int) -> None:
        if mark.until is Until.TAKEN:
            mark.done = True
            return
        mark.ordinal = ordinal
        if ordinal <= self._accepted:
            mark.target = self.last
        self.marks.append(mark)

    def offered(self, count: int) -> None:
        """So many messages were offered to the machine."""
        self._offered += count

    def accepted(self, effect: Accepted) -> None:
        """The machine accepted the next messages of those offered."""
        first_ordinal = self._accepted + 1
        self._accepted += effect.count
        self.last = (effect.epoch, effect.first + effect.count - 1)
        for mark in self.marks:
            if mark.target is None and mark.ordinal <= self._accepted:
                mark.target = (effect.epoch, effect.first + mark.ordinal - first_ordinal)

    def rejected(self, count: int, error: SurepipeError) -> None:
        """The machine did not take the last messages offered, and will not."""
        self._offered -= count
        for mark in self.marks:
            if mark.target is None and mark.ordinal > self._offered:
                mark.error = error

    def renumbered(self, effect: Renumbered) -> None:
        """Messages have another identity now."""
        self.last = self._moved(self.last, effect)
        for mark in self.marks:
            if mark.target is not None:
                mark.target = self._moved(mark.target, effect)

    def _moved(self, target: tuple[int, int], effect: Renumbered) -> tuple[int, int]:
        epoch, seq = target
        if epoch == effect.epoch and effect.first <= seq < effect.first + effect.count:
            return (effect.new_epoch, seq - effect.first + effect.new_first)
        return target

    def resolve(self, unconfirmed: Sequence[tuple[int, Ranges]]) -> bool:
        """Compare all marks with what is unconfirmed now; True when one of them is resolved."""
        for mark in self.marks:
            mark.look(unconfirmed)
        left = [mark for mark in self.marks if not (mark.resolved or mark.abandoned)]
        changed = len(left) < len(self.marks)
        self.marks = left
        return changed

    def fail(self, text: str) -> None:
        """The sender has lost what these marks stand for."""
        for mark in self.marks:
            mark.error = NotConfirmed(text, mark.open or ())
        self.marks = []

    def outliving(self) -> list[Mark]:
        """The marks that a journal lets a next life resolve: of what is stored, and those that stand for all that
        is. The others stay here: whether their messages were stored is not known."""
        outliving = [mark for mark in self.marks if mark.target or not mark.payloads]
        self.marks = [mark for mark in self.marks if mark not in outliving]
        for mark in outliving:
            mark.target = mark.target if mark.payloads else _ANYTHING
        return outliving
