"""Rows of a log on their way into its store, and own entries on their way past the guard."""

from __future__ import annotations

from surepipe.core.effects import Call
from surepipe.core.store_requests import (
    AppendRun,
)
from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain.options import Voice
from surepipe.queues.rmq.catchain.state import LogState
from surepipe.queues.rmq.encoding import (
    Value,
    encode,
)
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.stored_log import Release


class StoringLog(LogState):
    """One request to store or guard is open at a time."""

    def keep(self, row: tuple[Value, ...], now: int) -> int:
        """Store a row of the layer above with the next append. ``is_kept`` reaches the number given when it is."""
        self._keep(encode(row), now)
        return self.kept

    def _keep(self, row: bytes, now: int) -> None:
        self._rows.append(row)
        self.kept += 1
        self._rows_due = now

    def _keep_signature(self, entry: LogEntry, now: int) -> None:
        self._rows.append(encode(("signature", entry.digest, entry.signature)))
        self.kept += 1
        self._rows_due = earlier(self._rows_due, now + self.options.ack_delay_us)

    def _store(self, now: int) -> None:
        """Ask the store or the guard for what is next; one request is open at a time."""
        if self._asked is not None or (self._again_at is not None and now < self._again_at):
            return
        self._again_at = None
        if self._release is not None:
            self._ask(self._release)
            return
        if self._write is None:
            if self._rows_due is None or self._rows_due > now:
                return
            log = self._stored
            self._write = AppendRun(
                log.stream, log.producer, log.epoch, self._next_seq, tuple(self._rows)
            )
            self._rows, self._rows_due = [], None
            self._has_own_row = self._own is not None
        self._ask(self._write)

    def _ask(self, request: object) -> None:
        self._ticket += 1
        self._asked = self._ticket
        self._out.append(Call(self._ticket, request))

    def _written(self) -> None:
        """All rows of the append are stored, the own entry with them: now it may be signed."""
        assert self._write is not None
        self._next_seq += len(self._write.payloads)
        self.is_kept += len(self._write.payloads)
        self._write = None
        if self._has_own_row and self._own is not None and self.voice is not Voice.SILENT:
            own = self._own
            self._release = Release(self.session, own.height, own.digest, own.signed)
