"""What a journal writes down, and what it remembers of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from surepipe.effects import JournalRows, Renumbered


def head_of(replaces: Sequence[int], moved: Sequence[Renumbered] = ()) -> bytes:
    """Row 1 of an epoch."""
    facts: dict[str, object] = {"replaces": list(replaces)}
    if moved:
        facts["moved"] = [
            (one.epoch, one.first, one.count, one.new_epoch, one.new_first) for one in moved
        ]
    return json.dumps(facts, separators=(",", ":")).encode()


def read_head(head: bytes) -> tuple[list[int], list[Renumbered]]:
    """The epochs that a head replaces, and what became of their messages."""
    facts = json.loads(head)
    return facts["replaces"], [Renumbered(*numbers) for numbers in facts.get("moved", ())]


@dataclass(slots=True)
class Confirmed:
    """What the state of the position holds."""

    transmitted: int = 0
    epoch: int = 0
    through: int = 0

    def encode(self) -> bytes:
        """As the state of a position."""
        return json.dumps([self.transmitted, self.epoch, self.through]).encode()

    @classmethod
    def decode(cls, state: bytes) -> Confirmed:
        """From the state of a position."""
        return cls(*json.loads(state)) if state else cls()


@dataclass(slots=True)
class OwnRows:
    """The rows of this life that are not confirmed: to store them again if the store loses them."""

    epoch: int = 0
    head: bytes = b""
    first: int = 1
    payloads: list[bytes] = field(default_factory=list[bytes])

    def begin(self, epoch: int, head: bytes) -> None:
        """A new epoch, without rows yet."""
        self.epoch, self.head, self.first = epoch, head, 1
        self.payloads = []

    def add(self, first: int, payloads: Sequence[bytes]) -> None:
        """Rows were stored; some of them may be known already."""
        known = self.first + len(self.payloads) - first
        if known < 0:  # what is between was stored by somebody else, in a transaction
            self.first, self.payloads, known = first, [], 0
        self.payloads.extend(payloads[known:])

    def forget(self, through: int) -> tuple[int, int]:
        """Rows were confirmed; returns how many, and their bytes."""
        count = max(0, through + 1 - self.first)
        size = sum(map(len, self.payloads[:count]))
        del self.payloads[:count]
        self.first += count
        return count, size

    def from_row(self, row: int) -> tuple[int, list[bytes]]:
        """The rows from ``row`` on, or from the first that is still known."""
        if row <= 1 and self.first == 1:
            return 1, [self.head, *self.payloads]
        start = max(0, row - 1 - self.first)
        return self.first + 1 + start, self.payloads[start:]


def extend(parts: list[JournalRows], rows: JournalRows) -> None:
    """Add rows to those before them, when they follow at once."""
    if parts and parts[-1].first + len(parts[-1].payloads) == rows.first:
        assert isinstance(parts[-1].payloads, list)
        parts[-1].payloads.extend(rows.payloads)
    else:
        parts.append(JournalRows(rows.epoch, rows.first, list(rows.payloads)))
