"""P15: what was derived for a pipe is what its runs show, in both directions.

Judged over a campaign, as one run can show neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from surepipe.pipes.algebra.guarantees import Atom, Fault, Guarantee
from surepipe.simulation.findings import Violation
from surepipe.simulation.properties.base import NAMES
from surepipe.simulation.properties.settings import ATOMS


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
        """Faults that an atom is said not to tolerate, that were tried, and that never broke it."""
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
