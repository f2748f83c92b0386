"""The changes of a book, as they stand in its log, and their bytes.

A book is what its log says: one entry for each change, in one order for all processes. Nothing in an entry
depends on who reads it, so everybody who has read as far holds the same book.

An entry is a line of JSON and the packed messages that belong to it, one behind the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, fields, replace
from enum import StrEnum
from typing import TypeAlias, cast

from surepipe.core.records import record
from surepipe.queues.book.config import NOTHING, Vector
from surepipe.queues.book.events import BookEvent, Reason


@record
class Items:
    """Packed messages for one origin."""

    origin: str
    count: int
    chunk: bytes


@record
class Facts:
    """Details of a message that is parked or blocked. ``check`` is the CRC of its payload, ``error`` what the last
    attempt said (empty: nothing)."""

    reason: Reason
    cost: Vector
    attempts: int
    bytes: int
    since: int
    check: int
    error: str = ""

    @property
    def row(self) -> list[object]:
        """As it stands in an entry and in a checkpoint."""
        known: list[object] = [self.reason.value, self.cost, self.attempts, self.bytes]
        known += [self.since, self.check]
        return [*known, self.error] if self.error else known

    @classmethod
    def of(cls, row: list[object]) -> Facts:
        """Those of a row; of what is no such row ``decode`` says so."""
        reason, cost, *rest = row
        vector = cast("Vector", tuple(cast("list[int]", cost)) or NOTHING)
        attempts, size, since, check, *error = cast("list[int]", rest)
        said = cast("list[str]", error)
        return cls(Reason(cast("str", reason)), vector, attempts, size, since, check, *said)


@record
class Enqueue:
    """Add messages. ``producer`` and the three after it: append by identity (empty: without).

    ``is_sure``: it is not refused for lack of room, as the place of what gave the messages has moved with it.
    """

    at: int
    items: tuple[Items, ...]
    producer: str = ""
    epoch: int = 0
    first: int = 0
    base: int = 1
    is_sure: bool = False


class End(StrEnum):
    """How a visit ended."""

    EMPTY = "empty"
    DEFICIT = "deficit"
    BUDGET = "budget"
    LATER = "later"
    BLOCKED = "blocked"
    CUT = "cut"
    """It goes on after the commit."""


@record
class VisitDone:
    """The result of a visit: the cursor moves to (``begin``, ``slot``, ``offset``).

    ``parks`` are (page, slot, facts) of what it passed and did not process. ``wake`` is where a wait begins and
    how long it is. ``rejected`` of the processed messages ended by a rule, ``dead`` of them as dead letters.
    """

    origin: str
    token: int
    begin: int
    slot: int
    offset: int
    end: End
    parks: tuple[tuple[int, int, Facts], ...] = ()
    rejected: int = 0
    dead: int = 0
    deficit: int = 0
    turn_open: bool = False
    attempts: int = 0
    wake: tuple[int, int] | None = None
    blocked: Facts | None = None
    staged: tuple[Items, ...] = ()
    events: Sequence[BookEvent] = field(default=(), compare=False)
    """For subscribers of the process that writes this; no part of the entry."""


@record
class Commit:
    """Visits that are over, and queues that the writer wants to visit next.

    ``bump``: the head moves on by one, before the visits. ``head``: the head is this queue, after them.
    ``released``: claimed queues that the writer gives back unvisited. ``credits``: deficit that queues get for
    rounds in which nothing could have run.
    """

    at: int
    visits: tuple[VisitDone, ...] = ()
    claims: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    bump: bool = False
    head: str = ""
    credits: tuple[tuple[str, int], ...] = ()


@record
class Change:
    """What an operator does to a queue: pause, unpause, weight, force, sweep or reap."""

    at: int
    verb: str
    origin: str
    number: int = 0
    dead: bool = False


@record
class Take:
    """Reserve one passed message, or (slot -1) a page of them, for whoever writes this."""

    at: int
    generation: int
    page: int
    slot: int


@record
class Settle:
    """What came of a reserved message: done, rejected, discarded, requeued, tried (an attempt, with what it said)
    or released."""

    at: int
    generation: int
    page: int
    slot: int
    how: str
    length: int = 0
    dead: bool = False
    attempts: int = 0
    staged: tuple[Items, ...] = ()
    error: str = ""


@record
class Gone:
    """A process is dead: its claims end. ``epoch`` is the life that is over, and those before it. ``through``: the
    last entry that can be of that life, so that no claim of a later one ends (0: all of its claims do)."""

    at: int
    worker: str
    epoch: int
    through: int = 0


@record
class Beat:
    """The writer is alive, and its claims hold."""

    at: int


@record
class Spend:
    """Take so much of a period's budget, ``most`` of all processes together; or give back what was not needed."""

    at: int
    period: int
    amount: Vector
    most: tuple[int | None, ...]
    is_return: bool = False


@record
class Founded:
    """The first entry of a book: the settings that all its processes must share."""

    at: int
    settings: tuple[tuple[str, int | None], ...]


@record
class Checkpoint:
    """What the entries up to ``through`` came to is stored elsewhere, with these pieces (generation, page, from
    byte, to byte) of pages."""

    at: int
    through: int
    pieces: tuple[tuple[int, int, int, int], ...] = ()


Entry: TypeAlias = (
    Enqueue | Commit | Change | Take | Settle | Gone | Beat | Spend | Founded | Checkpoint
)
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (Change, Take, Gone, Beat, Spend)}


class EntryCorrupt(ValueError):
    """These bytes are no entry of a book's log."""


def encode(entry: Entry) -> bytes:
    """The bytes of an entry."""
    chunks: list[bytes] = []

    def listed(items: tuple[Items, ...]) -> list[object]:
        chunks.extend(item.chunk for item in items)
        return [[item.origin, item.count, len(item.chunk)] for item in items]

    row: list[object]
    if isinstance(entry, Enqueue):
        row = ["E", entry.at, listed(entry.items)]
        if entry.producer or entry.is_sure:
            row += [entry.producer, entry.epoch, entry.first, entry.base]
            row += [True] if entry.is_sure else []
    elif isinstance(entry, Commit):
        visits = [_visit_row(visit, listed(visit.staged)) for visit in entry.visits]
        row = ["C", entry.at, visits, entry.claims, entry.released, entry.bump, entry.head]
        row += [entry.credits] if entry.credits else []
    elif isinstance(entry, Settle):
        row = [
            *("S", entry.at, entry.generation, entry.page, entry.slot, entry.how, entry.length),
            *(entry.dead, entry.attempts, listed(entry.staged)),
        ]
        row += [entry.error] if entry.error else []
    else:
        row = [type(entry).__name__, *(getattr(entry, one.name) for one in fields(entry))]
    return b"\n".join([json.dumps(row, separators=(",", ":")).encode(), b"".join(chunks)])


def _visit_row(visit: VisitDone, staged: list[object]) -> list[object]:
    row: list[object] = [
        *(visit.origin, visit.token, visit.begin, visit.slot, visit.offset, visit.end.value),
        *(visit.deficit, visit.turn_open),
    ]
    parks = [[page, slot, facts.row] for page, slot, facts in visit.parks]
    rest: list[object] = [
        *(parks, visit.rejected, visit.dead, visit.attempts, visit.wake),
        *(visit.blocked.row if visit.blocked else None, staged),
    ]
    return row + rest if any(rest) else row


def decode(data: bytes) -> Entry:
    """The entry that these bytes are; raises ``EntryCorrupt`` when they are none."""
    line, _, blob = data.partition(b"\n")
    try:
        row = json.loads(line)
        return _decoded(row[0], row[1:], blob)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise EntryCorrupt(f"no entry of a book: {line[:80]!r}") from error


def _decoded(kind: str, row: list[object], blob: bytes) -> Entry:
    start = 0

    def items(listed: object) -> tuple[Items, ...]:
        nonlocal start
        found: list[Items] = []
        for origin, count, size in cast("list[tuple[str, int, int]]", listed):
            found.append(Items(origin, count, blob[start : start + size]))
            start += size
        return tuple(found)

    def facts(listed: object) -> Facts:
        return Facts.of(cast("list[object]", listed))

    def visit(listed: object) -> VisitDone:
        row = cast("list[object]", listed)
        origin, token, begin, slot, offset, end, deficit, turn_open = row[:8]
        done = VisitDone(
            cast("str", origin),
            *cast("tuple[int, int, int, int]", (token, begin, slot, offset)),
            End(cast("str", end)),
            deficit=cast("int", deficit),
            turn_open=bool(turn_open),
        )
        if not row[8:]:
            return done
        parks, rejected, dead, attempts, wake, blocked, staged = row[8:]
        known = cast("list[tuple[int, int, object]]", parks)
        return replace(
            done,
            parks=tuple((page, slot, facts(of_it)) for page, slot, of_it in known),
            rejected=cast("int", rejected),
            dead=cast("int", dead),
            attempts=cast("int", attempts),
            wake=cast("tuple[int, int] | None", wake and tuple(cast("list[int]", wake))),
            blocked=facts(blocked) if blocked else None,
            staged=items(staged),
        )

    if kind == "E":
        at, listed, *producer = row
        known = cast("tuple[str, int, int, int, bool]", tuple(producer))
        return Enqueue(cast("int", at), items(listed), *known)
    if kind == "C":
        at, visits, claims, released, bump, head, *credits = row
        given = cast("list[tuple[str, int]]", credits[0] if credits else [])
        return Commit(
            cast("int", at),
            tuple(map(visit, cast("list[object]", visits))),
            tuple(cast("list[str]", claims)),
            tuple(cast("list[str]", released)),
            bool(bump),
            cast("str", head),
            tuple((origin, amount) for origin, amount in given),
        )
    if kind == "S":
        plain = cast("tuple[int, int, int, int, str, int, bool, int]", tuple(row[:8]))
        listed, *error = row[8:]
        return Settle(*plain, items(listed), *cast("list[str]", error))
    if kind == "Founded":
        at, settings = row
        pairs = cast("list[tuple[str, int | None]]", settings)
        return Founded(cast("int", at), tuple((name, value) for name, value in pairs))
    if kind == "Checkpoint":
        at, through, pieces = row
        found = [tuple(piece) for piece in cast("list[list[int]]", pieces)]
        return Checkpoint(
            *cast("tuple[int, int]", (at, through)),
            cast("tuple[tuple[int, int, int, int], ...]", tuple(found)),
        )
    return cast("Entry", _KINDS[kind](*row))
