"""What happened in a run, as rows with the same flat columns: the one thing that every judge and picture reads.

Explored, simulated and real runs, and ``surepipe audit``, all speak in these rows. The first row of a trace
has kind ``run`` and the settings as JSON in ``detail``; the last has kind ``end``. A row of kind *accepted*,
*delivered*, *settled* and the like may cover a run of ``count`` consecutive messages, so a billion messages
are millions of rows. Readers ignore kinds and columns that they don't know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import starmap
from operator import attrgetter
from typing import Final, TypeAlias, cast, overload

FORMAT = 1
"""The major version of the format; a reader that meets a newer one refuses."""


LOOKED_AGAIN = "look again"


class Kind(StrEnum):
    """What a row tells. The first group is enough for an audit; the second is for people and for the judge.

    Where ``detail`` is JSON its keys are sorted. What judges read of it, kind by kind:

    * ``run``: format, clock (virtual or wall), claim {atom: faults} or claims {pipe: claim}, faults (those that
      may occur), bounds {gauge: most}, bound_us, retries, allowed {stage: retries}, together {stage: messages},
      patterns {pipe: kind}, journaled, confirms, fault_free, gauges (whether each step tells them).
    * ``accepted``: once for each message, a repeat changes nothing; loaded, when a later life had it of a journal;
      found, when who hands it out tells of it, perhaps before who put it in (a book).
    * ``unknown``: with epoch and seq if the message has a number, else with its digest.
    * ``delivered``: with lanes, key: a digest of the key that all these messages have.
    * ``dead``: only when the letter is stored as a new one; cause. One that a sender writes was given up. early:
      it is told before that, and a later life may tell it again; kept: it waits for a person, in a book.
    * ``start``: pipe and claim, in real runs, and of an end at a stream: reader, start (earliest, latest or an
      index), stream (if it has another name than the pipe); the first wake of its machine. A start of a node
      without a crash before is a takeover. ``crash``: exception, if a machine raised it.
    * ``transmit``, ``copied``, ``arrived``, ``lost``: frame, its kind. Of a confirm seq and count are a run that
      it declares settled.
    * ``appended``: stream, index of the first. ``committed``: stream, reader, next.
    * ``renumbered``: the old identity in the columns, the new epoch and seq in ``detail``.
    * ``failed``: a receiver hears that an attempt came to nothing; ``raised`` is what a handler or stage did.
    * ``answer``: call. LOOKED_AGAIN: its store was away, and a receiver that commits takes again what it had.
    * ``refused``: a store did not take a transaction, or was not heard; its messages are taken again.
    * ``made``: of messages of a pipe, or of rows of a source (epoch 0): made {part: runs}, where part is a sink or
      the next pipe, and a run [first, last, times]: of each of these so many messages came there; -1: unknown. Of
      one that no row speaks of one came to each part. The last row about a message counts.
    * ``opened``: sink, bytes: how long the file of a sink was when its process opened it; source, row: the row
      of a source behind which its process goes on.
    * ``passed``: messages that the stored position of the readers is behind, told by a life as it begins. Without
      a count, of a producer of a stream: this message, and all before it. began: they were there before the
      reader.
    * ``fault``: fault, its id. ``phase``: phase, and of a drain network (fast or slow) and load.
    * ``end``: quiescent, limit, nodes {name: deadline, idle, gauges, waiting, next}; in real runs there is one for
      each node, with quiescent.
    * any: gauges and counters of the node, on the last row of one of its steps.
    """

    RUN = "run"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    DELIVERED = "delivered"
    SETTLED = "settled"
    CONFIRMED = "confirmed"
    DEAD = "dead"
    TRIMMED = "trimmed"
    CRASH = "crash"
    START = "start"
    END = "end"

    SUBMIT = "submit"
    TRANSMIT = "transmit"
    LOST = "lost"
    COPIED = "copied"
    ARRIVED = "arrived"
    APPENDED = "appended"
    FETCHED = "fetched"
    COMMITTED = "committed"
    PERSISTED = "persisted"
    WAKE = "wake"
    CALLED = "called"
    RETURNED = "returned"
    RAISED = "raised"
    FAILED = "failed"
    REFUSED = "refused"
    FAULT = "fault"
    PHASE = "phase"
    MARK = "mark"
    PAUSE = "pause"
    RESUME = "resume"
    RENUMBERED = "renumbered"
    MADE = "made"
    OPENED = "opened"
    PASSED = "passed"

    __repr__ = str.__repr__
    """As the plain text: digests are made of it."""


_ALL = tuple(Kind)
BOUNDARY: frozenset[Kind] = frozenset((*_ALL[: _ALL.index(Kind.SUBMIT)], Kind.RENUMBERED))
"""The kinds that an audit needs."""


# Not frozen: that would triple the cost of making one, and a run makes one for each event.
@dataclass(slots=True)
class Row:
    """One thing that happened. Nobody changes a row.

    ``step`` is dense from 0: over the whole run in a simulation, per (run, node, incarnation) in a real run.
    ``cause`` names the causal parent as ``node/incarnation/step``. ``time_us`` is virtual or wall-clock
    microseconds; the row ``run`` says which. ``pipe``, ``epoch``, ``seq`` and ``count`` speak of consecutive
    messages; the messages of a stream with several producers have ``pipe`` as ``name@producer``. ``digests``
    holds 16 hexadecimal digits for each message, in order, without separators. ``state`` is a digest of the
    machine's state after the step.
    """

    run: str
    node: str
    incarnation: int
    step: int
    cause: str
    time_us: int
    kind: str
    pipe: str = ""
    epoch: int = 0
    seq: int = 0
    count: int = 0
    layer: str = ""
    link: str = ""
    attempt: int = 0
    copy: int = 0
    digests: str = ""
    detail: str = ""
    state: str = ""

    @property
    def last(self) -> int:
        """The last seq of the messages it speaks of."""
        return self.seq + self.count - 1


COLUMNS: tuple[str, ...] = tuple(Row.__dataclass_fields__)

Cells: TypeAlias = tuple[
    str, str, int, int, str, int, str, str, int, int, int, str, str, int, int, str, str, str
]
"""A row without the names of its columns: a run makes one for each row, at a seventh of the cost of a Row."""

# Where columns stand in the cells.
RUN: Final = 0
NODE: Final = 1
INCARNATION: Final = 2
STEP: Final = 3
CAUSE: Final = 4
TIME: Final = 5
KIND: Final = 6
PIPE: Final = 7
EPOCH: Final = 8
SEQ: Final = 9
COUNT: Final = 10
LAYER: Final = 11
DIGESTS: Final = 15
DETAIL: Final = 16

cells_of = cast("Callable[[Row], Cells]", attrgetter(*COLUMNS))
"""The cells of a row; ``Row(*cells)`` is the way back."""


class Rows(Sequence[Row]):
    """The rows of one run, kept as cells and given names when somebody reads them."""

    __slots__ = ("_named", "cells")

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.cells: list[Cells] = list(map(cells_of, rows))
        self._named: list[Row] = []

    def append(self, row: Row) -> None:
        self.cells.append(cells_of(row))

    def amend(self, at: int, detail: str, state: str) -> None:
        self.cells[at] = (*self.cells[at][:-2], detail, state)
        self._named.clear()

    def named(self) -> list[Row]:
        if len(self._named) != len(self.cells):
            self._named += starmap(Row, self.cells[len(self._named) :])
        return self._named

    @overload
    def __getitem__(self, at: int) -> Row: ...

    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...

    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        return self.named()[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.named())

    def __len__(self) -> int:
        return len(self.cells)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.cells == other.cells

    __hash__ = None  # type: ignore[assignment]  # it grows


def all_cells(rows: Iterable[Row]) -> Iterable[Cells]:
    """The cells of rows, without making the rows where cells are at hand."""
    return rows.cells if isinstance(rows, Rows) else map(cells_of, rows)


class RollingDigest:
    """The digest of a run: BLAKE2b-128 over its rows, without the column ``run``."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, row: Row) -> None:
        self.add_all((row,))

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take many rows, as if one after the other."""
        # No column holds the two separators: details are JSON, which escapes them.
        lines = [
            f"{b}\x1f{c}\x1f{d}\x1f{e}\x1f{f}\x1f{g}\x1f{h}\x1f{i}\x1f{j}\x1f"
            f"{k}\x1f{m}\x1f{n}\x1f{o}\x1f{p}\x1f{q}\x1f{r}\x1f{s}\x1e"
            for _, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s in all_cells(rows)
        ]
        self._hash.update("".join(lines).encode())

    def hex(self) -> str:
        """32 hexadecimal digits over all rows so far."""
        return self._hash.copy().hexdigest()
