"""A journal in memory that outlives the sender, and that can be set back to an older state."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from surepipe.core.effects import (
    AppendRows,
    ForgetRows,
    JournalContents,
    JournalRows,
    NoteTransmitted,
    OpenLife,
    Renumber,
    SaveState,
    Write,
    WriteFenced,
    WriteOutcome,
    WriteStored,
)


@dataclass
class MemoryJournal:
    """What the writes of ``surepipe.core.effects`` mean, done one at a time and at once."""

    life: int = 0
    rows: dict[int, list[tuple[int, bytes]]] = field(
        default_factory=dict[int, list[tuple[int, bytes]]]
    )
    transmitted: int = 0
    confirmed: tuple[int, int] = (0, 0)

    def write(self, write: Write) -> WriteOutcome:
        """Do one write; safe to repeat."""
        match write:
            case OpenLife(life):
                if life < self.life:
                    return WriteFenced(self.life)
                self.life = life
            case AppendRows(epoch, first, payloads):
                if epoch < self.life:
                    return WriteFenced(self.life)
                self._append(epoch, first, list(payloads))
            case NoteTransmitted(epoch):
                if epoch < self.life:
                    return WriteFenced(self.life)
                self.transmitted = max(self.transmitted, epoch)
            case ForgetRows(epoch, through):
                self._forget(epoch, through)
            case Renumber(epoch, payloads, replaces, by, _):
                if epoch < self.life or (by and by < self.life != epoch):
                    return WriteFenced(self.life)
                self.life = epoch
                for replaced in replaces:
                    self.rows.pop(replaced, None)
                self.rows[epoch] = list(enumerate(payloads, 1))
            case SaveState():
                raise AssertionError("a receiver's state is no business of a journal")
        return WriteStored()

    def _append(self, epoch: int, first: int, payloads: list[bytes]) -> None:
        rows = self.rows.setdefault(epoch, [])
        expected = rows[-1][0] + 1 if rows else max(first, 1)
        assert first <= expected, f"journal append leaves a gap: {first} after {expected - 1}"
        rows.extend(list(enumerate(payloads, first))[expected - first :])

    def _forget(self, epoch: int, through: int) -> None:
        self.confirmed = max(self.confirmed, (epoch, through))
        kept = {
            e: [row for row in rows if e > epoch or (e == epoch and row[0] > through)]
            for e, rows in self.rows.items()
        }
        self.rows = {e: rows for e, rows in kept.items() if rows}

    def contents(self) -> JournalContents:
        """What a new life of the sender finds."""
        rows = [
            JournalRows(epoch, rows[0][0], [payload for _, payload in rows])
            for epoch, rows in sorted(self.rows.items())
            if rows
        ]
        return JournalContents(self.life, rows, self.transmitted, self.confirmed)

    def copy(self) -> MemoryJournal:
        """A snapshot, to go back to."""
        return copy.deepcopy(self)
