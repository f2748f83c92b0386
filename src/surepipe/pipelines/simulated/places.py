"""Sources and sinks under simulation: rows that are known beforehand, and records of what came out.

Both belong to the world and outlive processes, as files and servers do. What a process holds is a view of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from surepipe.pipelines.assembly import About, Row
from surepipe.pipelines.models.sources import AnySource, HttpSource, replays
from surepipe.pipelines.models.stages import AnySink, HttpSink, PythonSink
from surepipe.pipes.algebra.guarantees import Atom
from surepipe.simulation.lives import Life
from surepipe.storage.memory import MemoryTransaction
from surepipe.store_api import Transaction


@dataclass(slots=True)
class SeededRows:
    """A source: its messages, how long after the one before each comes, how far it was read, and how far a process
    said that it has them."""

    part: AnySource
    messages: Sequence[object]
    due_us: Sequence[int]
    read: int = 0
    taken: int = 0
    doubt: Atom | None = None
    """What nobody promises of this run: a process ended after it had read what can't be read again."""

    def begin(self, after: str) -> int:
        """Where a new process begins: at its place, or where the world is."""
        if replays(self.part):
            return int(after or 0)
        is_posted = isinstance(self.part, HttpSource)
        if self.read > self.taken:
            self.doubt = Atom.NO_DUPLICATE if is_posted else Atom.NO_LOSS
        return self.taken if is_posted else self.read


class RowsInLife:
    """A source in one process."""

    def __init__(self, rows: SeededRows, life: Life) -> None:
        self._rows = rows
        self._life = life
        self._at = 0

    def begin(self, after: str) -> None:
        """From this place, or, where it can't be read again, from where the world is."""
        self._life.check()
        self._at = self._rows.begin(after)

    def read(self, rows_max: int) -> Sequence[Row] | None:
        """What is due by now; it waits for the next one."""
        life, rows = self._life, self._rows
        life.check()
        if self._at >= len(rows.messages):
            return None
        life.sleep(rows.due_us[self._at] - life.world.now)
        now = life.world.now
        end = self._at
        while end < len(rows.messages) and end - self._at < rows_max and rows.due_us[end] <= now:
            end += 1
        found = [
            Row(deepcopy(rows.messages[number]), str(number + 1)) for number in range(self._at, end)
        ]
        self._at = end
        rows.read = max(rows.read, end)
        return found

    def taken(self, rows: Sequence[Row]) -> None:
        """A client that posts is answered now."""
        self._life.check()
        if rows:
            self._rows.taken = max(self._rows.taken, int(rows[-1].after))

    def close(self) -> None:
        """Nothing is held open."""


# Sinks.


@dataclass(slots=True)
class Record:
    """What a sink got."""

    part: AnySink
    entries: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])
    keys: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def messages(self) -> list[object]:
        """In the order in which they came."""
        return [message for _, message in self.entries]

    @property
    def is_idempotent(self) -> bool:
        """True when a message that comes again has no second effect."""
        return isinstance(self.part, HttpSink | PythonSink) and self.part.idempotent


class RecorderInLife:
    """A sink in one process: as idempotent, and as much a part of transactions, as its kind is."""

    def __init__(
        self,
        record: Record,
        life: Life,
        call: Callable[[object, About, Transaction | None], object] | None = None,
    ) -> None:
        """``call``: what the sink does with a message, where that is a function of the user's."""
        self._record = record
        self._life = life
        self._call = call
        self._pending: list[tuple[str, object]] = []

    def begin(self, transaction: Transaction | None) -> None:
        """A new group."""
        del transaction
        self._life.check()
        self._pending = []

    def mark(self) -> int:
        """Where the group is now."""
        return len(self._pending)

    def back_to(self, mark: int) -> None:
        """Forget what was put since."""
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Take one message."""
        self._life.check()
        entry = (about.key, deepcopy(message))  # what is done to the message later is not in it
        if self._call is not None:
            self._call(message, about, transaction)
        if not self._waits(transaction):
            self._write([entry])
        else:
            self._pending.append(entry)

    def _waits(self, transaction: Transaction | None) -> bool:
        """Files are written a group at a time; a request or a call can't be held back, but by a transaction."""
        part = self._record.part
        return not isinstance(part, HttpSink | PythonSink) or self._is_in(transaction)

    def _is_in(self, transaction: Transaction | None) -> bool:
        return transaction is not None and self._record.part.commits

    def seal(self, transaction: Transaction | None) -> None:
        """Make the group last: what a function did with a transaction happens when that is done."""
        pending, self._pending = self._pending, []
        if pending and self._is_in(transaction):
            assert isinstance(transaction, MemoryTransaction), "simulated stores have no others"
            transaction.also(lambda: self._written(pending))
        elif pending:
            self._write(pending)

    def _write(self, entries: list[tuple[str, object]]) -> None:
        name = self._record.part.name
        first = entries[0][0].rpartition("/")[2]
        self._life.at(f"{name} writes {first}+{len(entries)}", lambda: self._written(entries))

    def _written(self, entries: list[tuple[str, object]]) -> None:
        record = self._record
        for key, message in entries:
            if record.is_idempotent and key in record.keys:
                continue
            record.keys[key] = None
            record.entries.append((key, message))
        again = ", again" if _has_repeats(record, entries) else ""
        self._life.world.effect(record.part.name, f"writes {len(entries)}{again}")

    def close(self) -> None:
        """Nothing is held open."""


def _has_repeats(record: Record, entries: list[tuple[str, object]]) -> bool:
    known = [key for key, _ in record.entries]
    return any(known.count(key) > 1 for key, _ in entries)
