"""What traces say of themselves: who ran, what was promised, how it ended, and where rows are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.auditing.engine import Cell, integers
from surepipe.errors import ConfigurationError
from surepipe.pipes.algebra.guarantees import Atom
from surepipe.simulation.audit import Rest
from surepipe.simulation.properties.settings import (
    ATOMS,
    Claim,
    Settings,
    claim_of,
    claimed,
    facts_of,
)
from surepipe.simulation.trace import FORMAT, Kind, Row

BROKEN_MAX = 10


@dataclass
class Facts:
    """The rows that speak of runs and nodes, in order of time. Streams have none."""

    rows: list[Row] = field(default_factory=list[Row])
    broken: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    rest: Rest = field(default_factory=Rest)
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    has_letters: bool = False
    stored: set[str] = field(default_factory=set[str])
    """Pipes whose confirms tell that a store has a message, not that it came out."""

    @property
    def is_real(self) -> bool:
        """True for traces of real runs."""
        return self.settings.real

    def promised(self, channel: str, sender: str, *, has_dead: bool) -> frozenset[Atom]:
        """The atoms that the channel's own claim holds it to, under the faults that the traces tell of."""
        claim = self.claims.get(channel.partition("@")[0]) or self.settings.claim_on(channel)
        faults = (*self.settings.faults, *self.rest.faults(channel, sender, has_dead=has_dead))
        held = claimed(claim, faults)
        return frozenset(atom for atom in Atom if ATOMS[atom] in held)


def facts_from(rows: Sequence[Row], lives: Sequence[Sequence[Cell]], where: str) -> Facts:
    """Read them. Raises ConfigurationError where this is no trace of surepipe, or one of a newer format."""
    runs = [row for row in rows if row.kind == Kind.RUN]
    if not runs:
        raise ConfigurationError(f"there is no row 'run' in {where}: this is no trace of surepipe")
    for row in runs:
        told = facts_of(row).get("format", FORMAT)
        if not isinstance(told, int) or told > FORMAT:
            raise ConfigurationError(
                f"{where} has trace format {told} and this version of surepipe reads {FORMAT}: update surepipe"
            )
    settings = Settings.read(runs[0])
    if len(runs) > 1 and not all(Settings.read(row).real for row in runs):
        raise ConfigurationError(
            f"these are {len(runs)} runs, and simulated ones are traces of their own: audit one at a time"
        )
    found = Facts(list(rows), settings=settings, has_letters=any(life[-1] for life in lives))
    found.broken = _broken(lives if settings.real else _as_one(lives))
    for row in rows:
        found.rest.see(row)
        if row.kind == Kind.START and row.pipe and "claim" in facts_of(row):
            found.claims[row.pipe.partition("@")[0]] = claim_of(facts_of(row)["claim"])
            if facts_of(row).get("confirms") == "stored":
                found.stored.add(row.pipe.partition("@")[0])
    return found


def _broken(lives: Iterable[Sequence[Cell]]) -> tuple[str, ...]:
    found: list[str] = []
    for _, node, *numbers in lives:
        life, count, lowest, highest, total, _ = integers(numbers)
        if (lowest, count, total) != (0, highest + 1, highest * (highest + 1) // 2):
            found.append(
                f"{node} (life {life}) tells {count} of its steps 0 to {highest}: rows are missing"
            )
    return tuple(found[:BROKEN_MAX])


def _as_one(lives: Iterable[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """In a simulation all nodes share one count of steps."""
    numbers = [integers(life[3:]) for life in lives]
    columns = list(zip(*numbers, strict=True))
    summed = (sum(columns[0]), min(columns[1]), max(columns[2]), sum(columns[3]), 0)
    return [("", "the run", 1, *summed)]


def row_from(cells: Sequence[Cell], names: Sequence[str]) -> Row:
    """A row of the columns that a statement gave."""
    told: Mapping[str, Cell] = dict(zip(names, cells, strict=True))
    return Row(
        run=str(told["run"]),
        node=str(told["node"]),
        incarnation=int(told["incarnation"] or 0),
        step=int(told["step"] or 0),
        cause="",
        time_us=int(told["time_us"] or 0),
        kind=str(told["kind"]),
        pipe=str(told["pipe"]),
        epoch=int(told["epoch"] or 0),
        seq=int(told["seq"] or 0),
        count=int(told["count"] or 0),
        detail=str(told.get("detail") or ""),
    )
