"""What a journaled intake keeps: stored messages that wait for their turn, and the write under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from surepipe.effects import (
    AppendRows,
    ForgetRows,
    NoteTransmitted,
    OpenLife,
    Renumber,
    Renumbered,
    Write,
)
from surepipe.pipes.layers import SenderLayer
from surepipe.pipes.snapshot import stateful

for _write in (OpenLife, AppendRows, NoteTransmitted, ForgetRows, Renumber, Renumbered):
    stateful(_write)


@stateful
@dataclass(slots=True)
class Rows:
    """Stored messages of one epoch that the outermost layer has not taken yet."""

    epoch: int
    first: int
    """Number of the first message that was not taken."""
    payloads: list[bytes] = field(default_factory=list[bytes])
    taken: int = 0
    """How many of ``payloads`` were taken; they are cut off now and then, so that it costs little."""

    def __len__(self) -> int:
        return len(self.payloads) - self.taken

    @property
    def last(self) -> int:
        """Number of the last stored message."""
        return self.first + len(self) - 1

    def waiting(self) -> list[bytes]:
        """All that was not taken."""
        return self.payloads[self.taken :]

    def give(self, layer: SenderLayer) -> Sequence[bytes]:
        """Let the layer take what it has room for; return what it took."""
        offered = self.payloads[self.taken : self.taken + layer.room]
        return self.skip(layer.send(offered) if offered else 0)

    def skip(self, count: int) -> Sequence[bytes]:
        """The first ``count`` messages wait no more; return them."""
        skipped = self.payloads[self.taken : self.taken + max(count, 0)]
        self.first += len(skipped)
        self.taken += len(skipped)
        if self.taken * 2 >= len(self.payloads):
            del self.payloads[: self.taken]
            self.taken = 0
        return skipped


@stateful
@dataclass(slots=True)
class Writing:
    """The write under way."""

    ticket: int
    write: Write
    attempts: int = 1
    repeat_at: int | None = None
