"""What the source claims and disclaims for its six patterns, fault by fault, as data.

Each cell of the table (simulation X-41) is a few claims. ``holds`` says that a property survives the fault,
``breaks`` that it must be *shown* to break, with the length of the shortest schedule where one is known from
elsewhere. The patterns are the plain ones, to the letter. Rows and cells that exploration of plain machines can't
show (journals, clocks, handlers, sizes, queues that are full) are not here: the tests of the product and of the
simulator hold them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from surepipe.simulation.explore.parts import Arrangement
from surepipe.simulation.explore.scope import LinkOrder, Scope
from surepipe.simulation.subjects import Subject
from tests.plain.continuous import CONTINUOUS
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED, MULTI_UNCONFIRMED_RESTARTED_NUMBERS
from tests.plain.resend import RESEND, RESEND_RESTARTED_NUMBERS
from tests.plain.sequential import SEQUENTIAL, SEQUENTIAL_RESTARTED_NUMBERS
from tests.plain.stream import STREAM, STREAM_RESTARTED_NUMBERS
from tests.plain.strict import STRICT

Explored: TypeAlias = Subject | Arrangement

PATTERNS: Mapping[str, Explored] = {
    "RS": RESEND,
    "RM": MULTI_UNCONFIRMED,
    "ST": STREAM,
    "SQ": SEQUENTIAL,
    "SM": STRICT,
    "CI": CONTINUOUS,
}
RESTARTED_NUMBERS: Mapping[str, Explored] = {
    "RS": RESEND_RESTARTED_NUMBERS,
    "RM": MULTI_UNCONFIRMED_RESTARTED_NUMBERS,
    "ST": STREAM_RESTARTED_NUMBERS,
    "SQ": SEQUENTIAL_RESTARTED_NUMBERS,
    "SM": STRICT,
    "CI": CONTINUOUS,
}
"""The same where ids begin again in each life of the sender; the index pipes do so anyway."""


@dataclass(frozen=True)
class Claim:
    """One property in one cell.

    ``reference`` is a length from models that others wrote (None: none is known). ``needs_all``: with one message
    fewer the property holds. ``alone``: only without any other fault. ``faults`` differ from those of the row
    where they are given. ``after_crash``: of the messages that are accepted after the last crash.
    """

    property: str
    is_kept: bool
    reference: int | None = None
    messages: int = 2
    order: LinkOrder = "fifo"
    needs_all: bool = False
    alone: bool = False
    restarted: bool = False
    after_crash: bool = False
    wakes: int | None = None
    faults: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Cell:
    """Where a claim stands: the row is a fault, the column a pattern."""

    row: str
    column: str
    claim: Claim

    @property
    def id(self) -> str:
        """The name of the cell in test ids and in the golden file."""
        claim = self.claim
        extra = "".join(f"+{fault}" for fault in claim.faults if fault != self.row)
        order = "-any" if claim.order == "any" and not claim.is_kept else ""
        later = "-later" if claim.after_crash else ""
        return f"{self.row}{extra}-{self.column}-{claim.property}{order}{later}"

    @property
    def subject(self) -> Explored:
        """The pattern."""
        return (RESTARTED_NUMBERS if self.claim.restarted else PATTERNS)[self.column]

    @property
    def reference(self) -> int | None:
        """The length that is known from elsewhere."""
        return self.claim.reference

    @property
    def faults(self) -> Mapping[str, int]:
        """What strikes, and how often."""
        return self.claim.faults or ROW_FAULTS.get(self.row, {self.row: 1})

    @property
    def order(self) -> LinkOrder:
        """The order of the links."""
        return "any" if "F4" in self.faults else self.claim.order

    def scope(self, *, messages: int = 0, order: LinkOrder | None = None) -> Scope:
        """The scope in which the claim is tried."""
        return Scope(
            messages=messages or self.claim.messages,
            order=order or self.order,
            faults=self.faults,
            properties=("P1", self.claim.property),
            after_crash=self.claim.after_crash,
            wakes=self.claim.wakes,
        )


def holds(
    *properties: str,
    order: LinkOrder = "any",
    alone: bool = False,
    faults: Mapping[str, int] | None = None,
    messages: int = 3,
    restarted: bool = False,
    wakes: int | None = None,
) -> tuple[Claim, ...]:
    """These properties survive the fault."""
    return tuple(
        Claim(
            name,
            is_kept=True,
            messages=messages,
            order=order,
            alone=alone,
            restarted=restarted,
            wakes=wakes,
            faults=faults or {},
        )
        for name in properties
    )


def breaks(
    name: str,
    reference: int | None = None,
    *,
    messages: int = 2,
    order: LinkOrder = "fifo",
    needs_all: bool = False,
    restarted: bool = False,
    after_crash: bool = False,
    faults: Mapping[str, int] | None = None,
) -> tuple[Claim, ...]:
    """This property must be shown to break."""
    return (
        Claim(
            name,
            is_kept=False,
            reference=reference,
            messages=messages,
            order=order,
            needs_all=needs_all,
            restarted=restarted,
            after_crash=after_crash,
            faults=faults or {},
        ),
    )


ROW_FAULTS: Mapping[str, Mapping[str, int]] = {
    "F16": {"F16": 1},
    "F17": {"F17": 1},
    "F27": {"F3": 2},
}
"""Rows whose fault is called otherwise in a scope. Stale replies are copies that come late."""

_LATE_REPEAT = breaks("P4", 7, order="any", needs_all=True)

_COLLIDES = breaks("P2", 4, messages=3, restarted=True, after_crash=True, faults={"F8": 1, "F1": 1})

TABLE: Mapping[str, Mapping[str, tuple[Claim, ...]]] = {
    "F1": {
        "RS": holds("P2", "P3", "P12"),
        "RM": (
            *holds("P2", "P12"),
            *breaks("P4", 7, needs_all=True),
            *breaks("P6g", 4, needs_all=True),
        ),
        "ST": holds("P2", messages=2, order="fifo"),
        "SQ": breaks("P2", 2),
        "SM": (*holds("P5"), *breaks("P2", 2)),
        "CI": (*holds("P7"), *breaks("P2", 2)),
    },
    "F2": {
        "RS": (*holds("P2", "P12"), *breaks("P3", 5)),
        "RM": (*holds("P2", "P12"), *breaks("P3", 5)),
        "ST": (*holds("P2", messages=2, order="fifo"), *breaks("P3", 13)),
        "SQ": breaks("P2", 3, needs_all=True),
    },
    "F3": {
        "RS": (*holds("P2", "P12"), *breaks("P3", 4), *_LATE_REPEAT),
        "RM": (*holds("P2", "P12"), *breaks("P3", 4), *breaks("P4", 6, needs_all=True)),
        "ST": (*holds("P2", messages=2, order="fifo"), *breaks("P3", 8)),
        "SQ": (*holds("P2", "P6g"), *breaks("P3", 4), *_LATE_REPEAT),
        "SM": holds("P5"),
        "CI": holds("P7"),
    },
    "F4": {
        "RS": holds("P2", "P7", alone=True),
        "RM": (*holds("P2", alone=True), *breaks("P4", 4), *breaks("P6g", 3)),
        "ST": holds("P2", alone=True, messages=2),
        "SQ": holds("P2", "P7", alone=True),
        "SM": (*holds("P5", alone=True), *breaks("P2", 3)),
        "CI": holds("P7", "P2", alone=True),
    },
    "F5": {
        "RS": (*holds("P2", "P12"), *breaks("P3", 4), *_LATE_REPEAT),
        "RM": (*holds("P2", "P12"), *breaks("P3", 4), *breaks("P4", 6, needs_all=True)),
        "ST": (*holds("P2", "P12", messages=2, order="fifo"), *breaks("P3", 8)),
        "SQ": holds("P7"),
        "SM": holds("P5"),
        "CI": holds("P7"),
    },
    "F6": {
        "RS": holds("P2", "P12"),
        "RM": holds("P2", "P12"),
        "ST": holds("P2", messages=2, order="fifo"),
        "SQ": breaks("P2"),
        "SM": holds("P5"),
        "CI": breaks("P2"),
    },
    "F7a": {
        "RS": breaks("P2"),
        "RM": breaks("P2"),
        "ST": breaks("P2"),
        "SQ": breaks("P2"),
        "SM": (*holds("P5"), *breaks("P2")),
        "CI": breaks("P2"),
    },
    "F7b": {
        "RS": holds("P2", messages=1),
        "RM": holds("P2"),
        "ST": holds("P2", messages=2, order="fifo", wakes=3),
        "SQ": breaks("P2", needs_all=True),
        "SM": holds("P5"),
        "CI": holds("P7"),
    },
    "F8": {
        "RS": (
            *breaks("P2", 3, needs_all=True),
            *breaks("P6g", 4, order="any"),
            *breaks("P4", 5, order="any"),
        ),
        "RM": (*holds("P2", alone=True), *breaks("P2", 3, faults={"F8": 1, "F1": 1})),
        "ST": (
            *holds("P2", alone=True, messages=2, order="fifo"),
            *breaks("P2", 3, faults={"F8": 1, "F1": 1}),
        ),
        "SQ": breaks("P2", 3, needs_all=True),
        "SM": (
            *breaks("P2", 2, needs_all=True),
            *breaks("P5", 6, messages=3, order="any", needs_all=True),
        ),
        "CI": (*breaks("P2", 2, needs_all=True), *breaks("P7", 4, order="any")),
    },
    "F10": {
        "RS": holds("P2", "P12"),
        "RM": holds("P2", "P12"),
        "ST": (*holds("P2", messages=2, order="fifo"), *breaks("P3", 12, order="any")),
        "SQ": breaks("P2", 2),
        "SM": (
            *breaks("P2", 2),
            *breaks("P5", 6, messages=3, order="any", needs_all=True),
        ),
        "CI": breaks("P2", 2),
    },
    "F11": {
        "RS": (*holds("P2", "P12"), *breaks("P3", 4)),
        "RM": (*holds("P2", "P12"), *breaks("P3", 4)),
        "ST": (*holds("P2", messages=2, order="fifo"), *breaks("P3", 10)),
        "SQ": breaks("P2", 2, needs_all=True),
        "SM": breaks("P5", 4, order="any", needs_all=True),
        "CI": breaks("P2", 2, needs_all=True),
    },
    "F13": {"ST": holds("P2", messages=2, order="fifo")},
    "F14": {"ST": (*breaks("P2", 3), *breaks("P2", 6, after_crash=True))},
    "F15": {"ST": breaks("P2", 2)},
    "F16": {
        "ST": (
            *holds("P2", messages=2, order="fifo"),
            *breaks("P3", 15, faults={"F16": 1, "F10": 1}),
        )
    },
    "F17": {
        "ST": (
            *holds("P2", messages=2, order="fifo"),
            *breaks("P3", 15, faults={"F17": 1, "F10": 1}),
        )
    },
    "F18": {"ST": holds("P2", "P12", messages=2, order="fifo")},
    "F23": {
        "RS": _COLLIDES,
        "RM": _COLLIDES,
        "ST": _COLLIDES,
        "SQ": _COLLIDES,
        "SM": breaks("P2", restarted=True, faults={"F8": 1}),
        "CI": breaks("P7", restarted=True, order="any", faults={"F8": 1}),
    },
    "F26": {
        "RS": holds("P2", "P12"),
        "RM": holds("P2", "P12"),
        "ST": holds("P2", messages=2, order="fifo"),
        "SQ": breaks("P2"),
        "SM": holds("P5"),
        "CI": breaks("P2"),
    },
    "F27": {
        "RS": holds("P2"),
        "RM": holds("P2"),
        "ST": holds("P2", messages=1, order="fifo"),
        "SQ": holds("P2", "P6g"),
    },
    "F28": {
        "RS": (*holds("P2", messages=1), *breaks("P3")),
        "RM": (*holds("P2"), *breaks("P3")),
        "ST": (*holds("P2", messages=1, order="fifo", wakes=2), *breaks("P3")),
        "SQ": breaks("P4", messages=3),
        "SM": breaks("P5", messages=3, order="any"),
        "CI": breaks("P7", messages=3),
    },
    "F29": {"ST": breaks("P2")},
}


def cells(*, kept: bool) -> Iterator[Cell]:
    """All cells that hold, or all that must be shown to break."""
    for row, columns in TABLE.items():
        for column, claims in columns.items():
            for claim in claims:
                if claim.is_kept == kept:
                    yield Cell(row, column, claim)
