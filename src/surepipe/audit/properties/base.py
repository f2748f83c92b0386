"""The base of every property: it looks at rows and reports each place where it is false."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.properties.ledger import (
    Look,
    PipeHistories,
    PipeHistory,
    SwiftLook,
    named,
    sort_of,
)
from surepipe.audit.trace import Cells, Row, cells_of
from surepipe.core.effects import Ranges

Report: TypeAlias = Callable[[Violation], None]

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
    "P9": "duplicate budget",
    "P10": "index discipline",
    "P11": "quiescence",
    "P12": "progress",
    "P13": "backpressure",
    "P14": "poison isolation",
    "P15": "honest guarantee",
    "P16": "refinement",
    "P17": "identity",
    "P18": "totality",
    "P19": "bounds",
    "P20": "conservation",
    "P21": "told",
}
"""Every property by its id. Queues add their own."""


class Property:
    """One property (or a family that is found in one look), over the rows of one run.

    ``looks`` names the kinds of rows that matter to it. Who writes a property of his own derives from this,
    gives it an ``id`` and a ``name``, and calls ``fail``.
    """

    id: ClassVar[str] = ""
    name: ClassVar[str] = ""
    ids: ClassVar[tuple[str, ...]] = ()
    """All ids of a family; empty: just ``id``."""

    def __init__(self, books: PipeHistories, report: Report) -> None:
        self.books = books
        self.report = report

    def looks(self) -> Mapping[str, Look]:
        """What to call for each kind of row."""
        return {}

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """The functions to call for rows of kinds that a run has by the thousand."""
        return {}

    def all_looks(self) -> Mapping[str, SwiftLook]:
        return {kind: named(look) for kind, look in self.looks().items()} | dict(self.swift_looks())

    def see(self, row: Row) -> None:
        """Look at a row, after the books have."""
        looks, cells = self.all_looks(), cells_of(row)
        look = looks.get(sort_of(cells)) or looks.get(row.kind)
        if look is not None:
            look(cells)

    def end(self) -> None:
        """The trace is over; ``books.end`` says how the run ended, if it says so."""

    def fail(
        self,
        sentence: str,
        row: Row | Cells | None = None,
        *,
        book: PipeHistory | None = None,
        position: int = 0,
        seq: int = 0,
        as_id: str = "",
    ) -> None:
        """Report that the property is false at this row (at the end: at the row ``end``)."""
        found = as_id or self.id
        if isinstance(row, tuple):
            row = Row(*row)
        step = row.step if row is not None else self.books.end.step if self.books.end else 0
        self.report(
            Violation(
                found,
                self.name or NAMES[found],
                step,
                sentence,
                book.pipe if book is not None else row.pipe if row is not None else "",
                row.epoch if row is not None else 0,
                seq or (row.seq if row is not None else 0),
                position,
            )
        )


def messages(first: int, last: int, *, start: bool = False) -> str:
    """These messages by their positions: ``message #2``, ``messages #2 to #4``."""
    text = f"message #{first}" if first == last else f"messages #{first} to #{last}"
    return text.capitalize() if start else text


def were(first: int, last: int) -> str:
    """The verb that goes with ``messages``."""
    return "was" if first == last else "were"


def listed(ranges: Ranges | Iterable[tuple[int, int]]) -> str:
    """Positions as people write them: ``#2, #4 to #6``."""
    return ", ".join(f"#{a}" if a == b else f"#{a} to #{b}" for a, b in ranges)


def times(count: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def seconds(us: int) -> str:
    """A span of time: ``1.5 s``."""
    whole, rest = divmod(us, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"
