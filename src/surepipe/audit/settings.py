"""What a trace says about itself, in its row ``run`` and in its row ``end``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from surepipe.audit.trace import Row
from surepipe.core.claims import Atom, Fault

ALWAYS: tuple[str, ...] = (
    *("P1", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P16", "P17", "P18", "P19", "P20"),
    "P21",
)
"""What must hold in each run, whatever the pipe promises and whatever goes wrong."""

ORDERS: Mapping[str, frozenset[Atom]] = {
    "P3": frozenset({Atom.NO_DUPLICATE}),
    "P4": frozenset({Atom.MONOTONIC}),
    "P5": frozenset({Atom.MONOTONIC, Atom.NO_DUPLICATE}),
    "P6g": frozenset({Atom.GAP_FREE}),
    "P6": frozenset({Atom.GAP_FREE, Atom.MONOTONIC}),
    "P7": frozenset({Atom.GAP_FREE, Atom.NO_DUPLICATE}),
}
"""The atoms that each property about order consists of."""

ATOMS: Mapping[Atom, str] = {
    Atom.NO_LOSS: "P2",
    Atom.NO_DUPLICATE: "P3",
    Atom.MONOTONIC: "P4",
    Atom.GAP_FREE: "P6g",
}
"""The property that an atom is judged by."""

NEEDS_NO_LOSS = frozenset({"P2", "P8", "P11", "P12", "P13"})
"""Properties that hold everything accepted to come out: judged where no-loss is claimed."""


def facts_of(row: Row) -> Mapping[str, object]:
    """The JSON of a row's detail; empty when it is something else."""
    if not row.detail.startswith("{"):
        return {}
    try:
        found: object = json.loads(row.detail)
    except ValueError:
        return {}
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else {}


def mapping(value: object) -> Mapping[str, object]:
    """A JSON object, empty when it is something else."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def integers(value: object) -> dict[str, int]:
    """The whole numbers of a JSON object."""
    return {name: one for name, one in mapping(value).items() if isinstance(one, int)}


def words(value: object) -> tuple[str, ...]:
    """The texts of a JSON array."""
    if not isinstance(value, list):
        return ()
    return tuple(one for one in cast("list[object]", value) if isinstance(one, str))


def number(value: object) -> int | None:
    """A whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def pair(value: object) -> tuple[int, int]:
    """Two whole numbers, (0, 0) when it is something else."""
    found = cast("list[object]", value) if isinstance(value, list) else []
    one, other = (number(each) or 0 for each in found) if len(found) == 2 else (0, 0)
    return one, other


def pairs(value: object) -> tuple[tuple[int, int], ...]:
    """Those of a JSON array."""
    return tuple(map(pair, cast("list[object]", value))) if isinstance(value, list) else ()


Claim = Mapping[str, tuple[str, ...]]
"""The faults that each atom tolerates, by the atom's name."""


def claim_of(value: object) -> Claim:
    """A claim as it is written in a row."""
    return {atom: words(faults) for atom, faults in mapping(value).items()}


def claimed(claim: Claim, faults: Iterable[str]) -> frozenset[str]:
    """The properties that a claim holds a run with these faults to."""
    occurring = frozenset(faults)
    return frozenset(
        ATOMS[atom] for atom in Atom if atom in claim and occurring <= frozenset(claim[atom])
    )


@dataclass
class EndClaims:
    """What the ends of each pipe promise, as the rows ``start`` of their nodes tell it.

    An end knows its own side, and takes the other for what it may be. So an atom is promised where both ends do
    promise it, and each has the last word on what becomes of it when it fails itself. Of several lives, and of
    several senders, the one that promises least counts.
    """

    _sides: dict[str, dict[str, Claim]] = field(default_factory=dict[str, dict[str, Claim]])

    def see(self, row: Row) -> None:
        """A row ``start``."""
        facts = facts_of(row)
        if not row.pipe or "claim" not in facts:
            return
        sides = self._sides.setdefault(row.pipe.partition("@")[0], {})
        side, claim = row.node.rpartition("/")[2], claim_of(facts["claim"])
        known = sides.get(side, claim)
        sides[side] = {
            atom: tuple(fault for fault in known[atom] if fault in claim[atom])
            for atom in known
            if atom in claim
        }

    def on(self, pipe: str) -> Claim | None:
        """What is promised of a pipe; None where no end tells it."""
        sides = self._sides.get(pipe.partition("@")[0])
        if not sides:
            return None
        first, *others = sides.values()
        atoms = [atom for atom in first if all(atom in claim for claim in others)]
        return {atom: tuple(sorted(_tolerated(atom, sides))) for atom in atoms}


def _tolerated(atom: str, sides: Mapping[str, Claim]) -> set[str]:
    """The faults that an atom survives: each side speaks of its own, and all of those that are nobody's."""
    found = {fault for claim in sides.values() for fault in claim[atom]}
    return {
        fault
        for fault in found
        if all(
            fault in claim[atom]
            for side, claim in sides.items()
            if (owner := _OWNERS.get(fault, side)) == side or owner not in sides
        )
    }


_OWNERS: Mapping[str, str] = {
    Fault.SENDER_CRASH.value: "sender",
    Fault.SENDER_ZOMBIE.value: "sender",
    Fault.RECEIVER_CRASH.value: "receiver",
    Fault.RECEIVER_ZOMBIE.value: "receiver",
    Fault.HANDLER_FAILURE.value: "receiver",
}


@dataclass(frozen=True)
class Settings:
    """The settings in the row ``run``. Each default judges less."""

    claim: Claim = field(default_factory=dict[str, tuple[str, ...]])
    claims: Mapping[str, Claim] = field(default_factory=dict[str, Claim])
    faults: tuple[str, ...] = ()
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    bound_us: int | None = None
    patience: tuple[int, int] = (0, 0)
    """The shortest and the longest pause between two attempts while nothing is heard."""
    alarm_us: int = 0
    """How old a hole may get before people are told of it; 0: nobody is."""
    retries: int | None = None
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])
    """The same of single stages, each of which counts for itself; 0: as often as it likes."""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])
    journaled: bool = False
    journals: tuple[str, ...] = ()
    """The pipes whose senders have a journal, where not all of them do."""
    lanes: tuple[str, ...] = ()
    """The pipes that hand their messages over in lanes."""
    commits_first: bool = False
    """A position is stored before its messages come out: with a crash in between they never do."""
    before: tuple[str, ...] = ()
    """The streams of which that is so, where it is not so of all."""
    confirms: bool = True
    fault_free: bool = False
    gauges: bool = False
    real: bool = False
    entered: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often a stage is called for one delivery, where that is more than once: several ways lead to it."""
    together: Mapping[str, int] = field(default_factory=dict[str, int])
    """With how many messages at once a stage may fail, so that nobody knows which is to blame: where it or another
    one before the next pipe makes batches."""
    may_tell: bool = True
    """Whether rows may carry gauges. A run whose options say that they don't is not searched for them."""

    @classmethod
    def read(cls, row: Row) -> Settings:
        """From a row of kind ``run``."""
        facts = facts_of(row)
        patterns = mapping(facts.get("patterns")).items()
        told = bool(facts.get("gauges") or mapping(facts.get("options")).get("gauges"))
        return cls(
            claim=claim_of(facts.get("claim")),
            claims={pipe: claim_of(one) for pipe, one in mapping(facts.get("claims")).items()},
            faults=words(facts.get("faults")),
            bounds=integers(facts.get("bounds")),
            bound_us=number(facts.get("bound_us")),
            patience=pair(facts.get("patience")),
            alarm_us=number(facts.get("alarm_us")) or 0,
            retries=number(facts.get("retries")),
            allowed=integers(facts.get("allowed")),
            patterns={pipe: kind for pipe, kind in patterns if isinstance(kind, str)},
            journaled=facts.get("journaled") is True,
            journals=words(facts.get("journals")),
            lanes=words(facts.get("lanes")),
            commits_first=facts.get("boundary") == "before",
            before=words(facts.get("before")),
            confirms=facts.get("confirms") is not False,
            fault_free=facts.get("fault_free") is True,
            gauges=told,
            real=facts.get("clock") == "wall",
            entered=integers(facts.get("entered")),
            together=integers(facts.get("together")),
            may_tell=told or "options" not in facts,
        )

    def has_journal(self, pipe: str) -> bool:
        """Whether what the sender of a pipe accepted outlives it."""
        return self.journaled or pipe.partition("@")[0] in self.journals

    def has_lanes(self, pipe: str) -> bool:
        """Whether a message of this pipe waits only for those of its lane."""
        return pipe.partition("@")[0] in self.lanes

    def claim_on(self, pipe: str) -> Claim:
        """What is claimed of one pipe."""
        return self.claims.get(pipe, self.claims.get(pipe.partition("@")[0], self.claim))

    def wanted(self, pipe: str) -> frozenset[str]:
        """The properties that this pipe is to be held to, when nobody chose any."""
        found = claimed(self.claim_on(pipe), self.faults)
        without = frozenset[str]() if "P2" in found else NEEDS_NO_LOSS
        return found | frozenset(ALWAYS) - without


@dataclass(frozen=True)
class NodeEnding:
    """How one node stood at the end of a run."""

    deadline: int | None
    idle: bool
    gauges: Mapping[str, int]
    waiting: int = 0
    next: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    step: int
    time_us: int
    quiescent: bool
    limit: str
    nodes: Mapping[str, NodeEnding]

    @classmethod
    def read(cls, row: Row) -> RunEnd:
        """From a row of kind ``end``."""
        facts = facts_of(row)
        nodes = mapping(facts.get("nodes")).items()
        limit = facts.get("limit")
        return cls(
            row.step,
            row.time_us,
            facts.get("quiescent") is True,
            limit if isinstance(limit, str) else "",
            {name: _node_end(mapping(node)) for name, node in nodes},
        )


def _node_end(facts: Mapping[str, object]) -> NodeEnding:
    return NodeEnding(
        number(facts.get("deadline")),
        facts.get("idle") is True,
        integers(facts.get("gauges")),
        number(facts.get("waiting")) or 0,
        mapping(facts.get("next")),
    )
