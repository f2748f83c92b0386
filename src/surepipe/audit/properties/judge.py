"""The judge: all properties over the rows of one run, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.properties.base import NAMES, Property, Report
from surepipe.audit.properties.delivery import (
    IdentityProperty,
    Integrity,
    NoLoss,
    Order,
    PoisonIsolation,
)
from surepipe.audit.properties.ledger import (
    ONLY_FOUND,
    SORTS,
    TOLD,
    PipeHistories,
    PipeHistory,
    SwiftLook,
    SwiftLooks,
    named,
    sort_of,
)
from surepipe.audit.properties.progress import (
    Alarms,
    Backpressure,
    HonestConfirm,
    ProgressProperty,
    Quiescence,
)
from surepipe.audit.properties.refinement import Refinement
from surepipe.audit.properties.repeats import DuplicateBudget, Patience
from surepipe.audit.properties.streams import IndexDiscipline, LossTold
from surepipe.audit.properties.totality import Bounds, Conservation, Totality
from surepipe.audit.settings import ATOMS, NEEDS_NO_LOSS, Settings, facts_of
from surepipe.audit.trace import COUNT, DETAIL, KIND, Cells, Kind, Row, all_cells, cells_of
from surepipe.core.claims import Atom, Fault, Guarantee
from surepipe.errors import MisuseError

PropertyType: TypeAlias = Callable[[PipeHistories, Report], Property]

PROPERTIES: tuple[type[Property], ...] = (
    *(
        Integrity,
        NoLoss,
        Order,
        HonestConfirm,
        DuplicateBudget,
        IndexDiscipline,
        LossTold,
        Quiescence,
    ),
    *(
        ProgressProperty,
        Backpressure,
        PoisonIsolation,
        Refinement,
        IdentityProperty,
        Totality,
        Bounds,
        Conservation,
        Patience,
        Alarms,
    ),
)
"""Every property that is judged over one run; P15 is judged over a campaign (``honest``)."""

AT_REST: frozenset[str] = NEEDS_NO_LOSS | {"P14", "P21"}
"""Properties that are told only when a run has come to rest."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """A named question to each campaign: these properties, in runs whose drain was like this (None: any)."""

    id: str
    name: str
    properties: tuple[str, ...]
    network: str | None = None
    load: bool | None = None


ORACLES: tuple[Oracle, ...] = (
    Oracle("O1", "slow drain", ("P2", "P11", "P12"), network="slow"),
    Oracle("O2", "progress under load", ("P12",), load=True),
    Oracle("O3", "quiescence", ("P11",)),
    Oracle("O4", "duplicate budget", ("P9",)),
)
"""What no campaign may switch off."""


class Judge:
    """Judges the rows of one run as they come.

    ``properties`` names what is judged (None: what the row ``run`` claims under the faults that it names, and
    what must hold always). ``more`` adds properties of one's own. ``stop_at_first``: after the first violation
    nothing more is looked at, and ``stopped`` is true. Otherwise all are recorded, at most ``cases_max`` of each
    property of each pipe; ``counts`` has their real number.
    """

    def __init__(
        self,
        properties: Iterable[str] | None,
        run_row: Row,
        *,
        stop_at_first: bool = False,
        cases_max: int = 10,
        more: Iterable[PropertyType] = (),
    ) -> None:
        chosen = None if properties is None else frozenset(properties)
        if chosen is not None and (unknown := chosen - NAMES.keys()):
            raise MisuseError(f"there is no property {', '.join(sorted(unknown))}; see NAMES")
        self.settings = Settings.read(run_row)
        self.violations: list[Violation] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often (property, pipe) was violated."""
        self.stopped = False
        self.drains: list[tuple[str, bool]] = []
        """Network and load of each drain that the trace tells of."""
        self.books = PipeHistories(self.settings, chosen)
        self._stop_at_first = stop_at_first
        self._cases_max = cases_max
        self._finished = False
        self.parts: list[Property] = [
            make(self.books, self._report) for make in PROPERTIES if _is_chosen(make, chosen)
        ]
        self.parts += [make(self.books, self._report) for make in more]
        self._looks = self._arranged()

    def _arranged(self) -> Mapping[str, tuple[SwiftLook, ...]]:
        """For each kind of row: the books, then the properties, then the books again."""
        arranged: dict[str, list[SwiftLook]] = {}
        parts = [_by_sort(part.all_looks()) for part in self.parts]
        asked = {kind for looks in parts for kind in looks} | self.books.after().keys()
        before = {
            kind: look
            for kind, look in self.books.before().items()
            if kind in asked or kind not in ONLY_FOUND
        }
        phases: SwiftLooks = {Kind.PHASE: named(self._drain)}
        every: list[SwiftLooks] = [before, *parts, self.books.after(), phases]
        for looks in every:
            for kind, look in looks.items():
                arranged.setdefault(str(kind), []).append(look)
        return {kind: tuple(looks) for kind, looks in arranged.items()}

    def see(self, row: Row) -> None:
        self.see_cells((cells_of(row),))

    def see_cells(self, rows: Iterable[Cells]) -> None:
        """The next rows, one after the other, without the names of their columns."""
        find = self._looks.get
        told = self._looks[TOLD] if self.settings.may_tell else ()
        for row in rows:
            if self.stopped:
                return
            kind = row[KIND]
            if kind == "transmit" or not row[COUNT]:
                kind = sort_of(row)
            for look in find(kind, ()):
                look(row)
            if told and '"gauges"' in row[DETAIL]:
                for look in told:
                    look(row)

    def finish(self) -> tuple[Violation, ...]:
        """The trace is over: judge what must hold at its end; gives all violations. Later calls repeat that."""
        if not (self._finished or self.stopped):
            for part in self.parts:
                part.end()
        self._finished = True
        return tuple(self.violations)

    def outcome(self, property_id: str, pipe: str) -> PropertyOutcome:
        """What is known of a property of a pipe. Without a quiescent end, what shows only there is undecided."""
        if self.counts[property_id, pipe]:
            return PropertyOutcome.VIOLATED
        end = self.books.end
        is_told = end is not None and end.quiescent
        return (
            PropertyOutcome.HELD
            if is_told or property_id not in AT_REST
            else PropertyOutcome.UNDECIDED
        )

    def oracles(self) -> dict[str, str]:
        """For each oracle: ``held``, ``violated``, or ``not exercised`` in this run."""
        violated = {violation.property for violation in self.violations}
        answers: dict[str, str] = {}
        for oracle in ORACLES:
            is_exercised = any(_fits(oracle, *drain) for drain in self.drains)
            if oracle.network is None and oracle.load is None:
                is_exercised = self.books.end is not None
            broken = any(one in violated for one in oracle.properties)
            told = "violated" if broken else "held"
            answers[oracle.id] = told if is_exercised else "not exercised"
        return answers

    def _drain(self, row: Row) -> None:
        facts = facts_of(row)
        if facts.get("phase") == "drain":
            self.drains.append((str(facts.get("network", "fast")), facts.get("load") is True))

    def _report(self, violation: Violation) -> None:
        if self.stopped or not self._is_wanted(violation):
            return
        key = (violation.property, violation.pipe)
        self.counts[key] += 1
        if self.counts[key] <= self._cases_max:
            self.violations.append(violation)
        self.stopped = self._stop_at_first

    def _is_wanted(self, violation: Violation) -> bool:
        book: PipeHistory | None = self.books.pipes.get(violation.pipe)
        return book is None or violation.property not in NAMES or violation.property in book.wanted


def _by_sort(looks: SwiftLooks) -> SwiftLooks:
    """A look at all rows of a kind is one at each sort of them."""
    return {sort: look for kind, look in looks.items() for sort in SORTS.get(kind, (kind,))}


def _is_chosen(kind: type[Property], chosen: frozenset[str] | None) -> bool:
    return chosen is None or not chosen.isdisjoint(kind.ids or (kind.id,))


def _fits(oracle: Oracle, network: str, load: bool) -> bool:
    return oracle.network in (None, network) and oracle.load in (None, load)


def judge(
    rows: Iterable[Row], properties: Iterable[str] | None = None, *, cases_max: int = 10
) -> tuple[Violation, ...]:
    """The violations of a whole trace. Raises MisuseError when it does not begin with the row ``run``."""
    rest = iter(all_cells(rows))
    first = next(rest, None)
    if first is None:
        return ()
    if first[KIND] != Kind.RUN:
        raise MisuseError(f"a trace begins with a row 'run', and this one with {first[KIND]!r}")
    found = Judge(properties, Row(*first), cases_max=cases_max)
    found.see_cells((first,))
    found.see_cells(rest)
    return found.finish()


# P15: what was derived for a pipe is what its runs show, in both directions.
#
# Judged over a campaign, as one run can show neither.


@dataclass
class HonestGuarantee:
    """Collects what runs of one pipe under known faults have shown of its atoms.

    An atom that is broken under faults which it was said to tolerate is a lie. One that was never broken under a
    fault which it was said not to tolerate is a caution; who ``ran`` nothing with that fault can't say so.
    """

    guarantee: Guarantee
    pipe: str = ""
    broken: dict[tuple[Atom, frozenset[Fault]], Violation] = field(
        default_factory=dict[tuple[Atom, frozenset[Fault]], Violation]
    )
    tried: set[frozenset[Fault]] = field(default_factory=set[frozenset[Fault]])

    def ran(self, faults: Iterable[Fault], violations: Iterable[Violation]) -> None:
        """A run in which exactly these faults occurred, and what was violated in it."""
        occurred = frozenset(faults)
        self.tried.add(occurred)
        for violation in violations:
            for atom, property_id in ATOMS.items():
                if violation.property == property_id:
                    self.broken.setdefault((atom, occurred), violation)

    def lies(self) -> tuple[Violation, ...]:
        """Where an atom was broken although all faults that occurred are said to be tolerated."""
        return tuple(
            Violation(
                "P15",
                NAMES["P15"],
                found.step,
                f"{atom} is said to survive {_named(occurred)}, and did not: {found.sentence}",
                self.pipe,
                found.epoch,
                found.seq,
                found.position,
            )
            for (atom, occurred), found in self.broken.items()
            if (said := self.guarantee.tolerated(atom)) is not None and occurred <= said
        )

    def cautious(self) -> Mapping[Atom, tuple[Fault, ...]]:
        """Faults that an atom is declared not to tolerate, but that never broke it when they were tried."""
        found: dict[Atom, tuple[Fault, ...]] = {}
        for atom in Atom:
            said = self.guarantee.tolerated(atom) or frozenset[Fault]()
            unbroken = [
                fault
                for fault in Fault
                if fault not in said
                and any(fault in occurred for occurred in self.tried)
                and not any(one is atom and fault in occurred for one, occurred in self.broken)
            ]
            if unbroken:
                found[atom] = tuple(unbroken)
        return found


def _named(faults: frozenset[Fault]) -> str:
    return ", ".join(fault for fault in Fault if fault in faults) or "a run without faults"
