"""What happened in a stage, as rows of a trace, and the verdict of the judge that all runs share."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from surepipe.audit.predicates import payload_digest
from surepipe.audit.properties import judge
from surepipe.audit.trace import Kind, Row
from tests.real.workers import Said

Message = tuple[int, int]
"""(life, number)."""
ON_INTERVAL = ("P1", "P3", "P4", "P17")
"""What a store that a crash may set back leaves of it: no repeat, no swap, nothing made up."""
CLAIMED = ("P1", "P2", "P3", "P4", "P6g", "P17")
"""Integrity, no loss, no duplicates, monotonic, gap-free, identity."""
AT_LEAST_ONCE = ("P1", "P2", "P17")
_OF_SENDERS = (Kind.ACCEPTED, Kind.UNKNOWN)
_RUN_MAX = 500


class Anomaly(AssertionError):
    """The judge found a broken promise; the text has everything that is needed to look into it."""


class History:
    """Collects rows from several processes; ``step`` is dense for each of them and incarnation."""

    def __init__(self, run: str, pipe: str) -> None:
        self.run = run
        self.rows: list[Row] = []
        self._pipe = pipe
        self._lock = threading.Lock()
        self._steps: dict[tuple[str, int], int] = {}
        self._offered: dict[int, tuple[int, int]] = {}
        self.add("controller", 0, Kind.RUN, detail=json.dumps({"clock": "wall", "format": 1}))

    def add(
        self,
        node: str,
        incarnation: int,
        kind: Kind,
        messages: Sequence[Message] = (),
        detail: str = "",
    ) -> None:
        """One row, over messages of one life with consecutive numbers."""
        life, first = messages[0] if messages else (0, 0)
        digests = "".join(map(digest_of, messages))
        with self._lock:
            step = self._steps.get((node, incarnation), 0)
            self._steps[node, incarnation] = step + 1
            row = Row(self.run, node, incarnation, step, "", time.time_ns() // 1000, kind)
            row.pipe, row.detail, row.digests = self._pipe if messages else "", detail, digests
            row.epoch, row.seq, row.count = life, first, len(messages)
            self.rows.append(row)

    def hear(self, said: Said) -> None:
        """From a sender."""
        if said["say"] == "offering":
            self._offered[cast("int", said["life"])] = _range_of(said)
        elif said["say"] == "accepted":
            life = cast("int", said["life"])
            first, count = _range_of(said)
            self._offered.pop(life, None)
            self.add("sender", life, Kind.ACCEPTED, _messages(life, first, count))

    def crashed(self, node: str, incarnation: int, detail: str = "") -> None:
        """A process is gone, or a server: what a sender was offering then is of unknown fate."""
        if node == "sender" and incarnation in self._offered:
            first, count = self._offered.pop(incarnation)
            self.add(node, incarnation, Kind.UNKNOWN, _messages(incarnation, first, count))
        self.add(node, incarnation, Kind.CRASH, detail=detail)

    @property
    def accepted(self) -> int:
        """How many messages were accepted."""
        return sum(row.count for row in self.rows if row.kind == Kind.ACCEPTED)

    def settled(self, effects: Iterable[Message]) -> None:
        """At the end: the effects in the order in which they were made."""
        for messages in _runs(effects):
            self.add("receiver", 0, Kind.DELIVERED, messages)
            self.add("receiver", 0, Kind.SETTLED, messages)
        self.add("controller", 0, Kind.END, detail=json.dumps({"limit": "", "quiescent": True}))

    def lost(self) -> int:
        """How many accepted messages had no effect."""
        effects = sum(row.count for row in self.rows if row.kind == Kind.SETTLED)
        told = [row for row in self.trace() if row.kind == Kind.ACCEPTED]
        return max(0, sum(row.count for row in told) - effects)

    def trace(self) -> list[Row]:
        """The rows in the order in which a judge can read them.

        What a sender said while it was replaced may have been heard late: its lives follow each other. Of what
        was offered in the moment of a crash, that which had an effect has a number; the rest never got one.
        """
        told = [row for row in self.rows if row.kind in _OF_SENDERS]
        others = [row for row in self.rows if row.kind not in _OF_SENDERS]
        reached: dict[int, int] = {}
        for row in others:
            if row.kind == Kind.SETTLED:
                reached[row.epoch] = max(reached.get(row.epoch, 0), row.last)
        told.sort(key=lambda row: (row.epoch, row.seq))
        numbered = [part for row in told for part in _parts(row, reached.get(row.epoch, 0))]
        return [others[0], *numbered, *others[1:]]

    def check(self, promised: Collection[str] = CLAIMED) -> None:
        """Raises Anomaly for a promise that was broken."""
        violations = judge(self.trace(), promised)
        if violations:
            broken = "\n  ".join(map(str, violations))
            raise Anomaly(f"{self.run}:\n  {broken}\n{self._last_rows()}")

    def _last_rows(self) -> str:
        told = [row for row in self.rows if row.kind in (Kind.CRASH, Kind.UNKNOWN)]
        return "\n".join(
            f"  {row.node}/{row.incarnation} {row.kind} {row.detail} {row.seq}+{row.count}"
            for row in told[-20:]
        )


def _runs(effects: Iterable[Message]) -> Iterator[list[Message]]:
    """Effects of one life with consecutive numbers, not too many at once."""
    run: list[Message] = []
    for life, number in effects:
        if run and ((life, number - 1) != run[-1] or len(run) == _RUN_MAX):
            yield run
            run = []
        run.append((life, number))
    if run:
        yield run


def _parts(row: Row, reached: int) -> list[Row]:
    """A row of unknown fate in two: up to what came out it was accepted, the rest nobody ever numbered."""
    if row.kind != Kind.UNKNOWN:
        return [row]
    count = min(row.count, max(0, reached - row.seq + 1))
    numbered = replace(row, kind=Kind.ACCEPTED, count=count, digests=row.digests[: 16 * count])
    nameless = replace(
        row, epoch=0, seq=0, count=row.count - count, digests=row.digests[16 * count :]
    )
    return [part for part in (numbered, nameless) if part.count]


def _range_of(said: Said) -> tuple[int, int]:
    return cast("int", said["first"]), cast("int", said["count"])


def _messages(life: int, first: int, count: int) -> list[Message]:
    return [(life, number) for number in range(first, first + count)]


def digest_of(message: Message) -> str:
    """What stands for a message in a row."""
    return payload_digest(json.dumps(list(message)).encode())


def message_of(text: str) -> Message:
    """An effect as it was written down, a pair; not by the parser of Python, which 3.11 may not use in threads."""
    life, number = map(int, text.strip().strip("()[]").split(","))
    return life, number
