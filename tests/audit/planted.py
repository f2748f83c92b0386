"""Random traces with planted faults: many channels in one real trace, and what each must be judged to be."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from surepipe.audit.trace import Kind, Row
from surepipe.core.claims import Atom

CLAIM = json.dumps({"claim": {atom: [] for atom in Atom}})
AT_REST = json.dumps({"quiescent": True})
LOADED = json.dumps({"loaded": True}, separators=(",", ":"))
Run = tuple[int, int, int]
"""Epoch, first seq, last seq."""


@dataclass
class Planted:
    """One channel: what was accepted and what came out, by identity, in order."""

    channel: str
    accepted: list[Run] = field(default_factory=list[Run])
    came_out: list[Run] = field(default_factory=list[Run])
    dead: list[Run] = field(default_factory=list[Run])
    at_rest: bool = True
    holes: bool = False
    """The accepted ones are those that a journal still held: there may be holes between them."""

    def positions(self) -> dict[tuple[int, int], int]:
        """The position of each message."""
        known: dict[tuple[int, int], int] = {}
        for one in each(self.accepted):
            known.setdefault(one, len(known) + 1)
        return known

    def trace(self) -> list[int]:
        """The positions that came out, in order."""
        known, letters = self.positions(), list(self.dead)
        runs: list[Run] = []
        for run in self.came_out:
            if run not in self.dead or run in letters:
                runs.append(run)
            if run in letters:
                letters.remove(run)  # put again it is the same letter
        return [known[one] for one in each(runs) if one in known]


def each(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Message by message."""
    for epoch, low, high in runs:
        for seq in range(low, high + 1):
            yield epoch, seq


def plant(channel: str, rng: random.Random, *, holes: bool = False) -> Planted:
    """A channel with one to three lives of its sender and up to four faults; ``holes``: in the sent log."""
    found = Planted(channel, at_rest=rng.random() < 0.8, holes=holes)
    for epoch in range(1, rng.randint(1, 3) + 1):
        seq = 1
        for _ in range(rng.randint(1, 5)):
            seq += rng.randint(1, 3) if holes and rng.random() < 0.6 else 0
            high = seq + rng.randint(0, 9)
            found.accepted.append((epoch, seq, high))
            seq = high + 1
    runs = _cut(found.accepted, rng)
    if rng.random() < 0.2:
        found.accepted.append(rng.choice(found.accepted))  # loaded of a journal by a later life
    faults = rng.choice((0, 1, 2, 4))
    for _ in range(faults):
        rng.choice((_lose, _repeat, _move, _repeat_widely))(runs, rng)
    if rng.random() < 0.2:
        runs.insert(rng.randint(0, len(runs)), (9, 1, rng.randint(1, 3)))  # never accepted
    found.came_out = runs
    single = [run for run in runs if run[1] == run[2]]
    if single and rng.random() < 0.4:
        found.dead.append(rng.choice(single))
    return found


def _cut(accepted: Sequence[Run], rng: random.Random) -> list[Run]:
    """The same messages in other runs."""
    runs: list[Run] = []
    for epoch, low, high in accepted:
        at = low
        while at <= high:
            end = min(high, at + rng.randint(0, 5))
            runs.append((epoch, at, end))
            at = end + 1
    return runs


def _lose(runs: list[Run], rng: random.Random) -> None:
    if runs:
        del runs[rng.randrange(len(runs))]


def _repeat(runs: list[Run], rng: random.Random) -> None:
    if runs:
        epoch, low, high = rng.choice(runs)
        runs.insert(rng.randint(0, len(runs)), (epoch, rng.randint(low, high), high))


def _repeat_widely(runs: list[Run], rng: random.Random) -> None:
    """From somewhere on, all of it again, in runs that were cut differently."""
    if runs:
        epoch, low, _ = rng.choice(runs)
        last = max(high for one, _, high in runs if one == epoch)
        runs.append((epoch, low, last))


def _move(runs: list[Run], rng: random.Random) -> None:
    if runs:
        run = runs.pop(rng.randrange(len(runs)))
        runs.insert(rng.randint(0, len(runs)), run)


class Told:
    """Rows of real nodes: steps by node, one microsecond for each row."""

    def __init__(self, run: str = "r") -> None:
        self.rows: list[Row] = []
        self._run = run
        self._steps: dict[tuple[str, int], int] = {}
        self.tell("run", Kind.RUN, detail=json.dumps({"clock": "wall", "format": 1}), life=0)

    def tell(
        self,
        node: str,
        kind: str,
        pipe: str = "",
        run: Run = (0, 0, -1),
        *,
        detail: str = "",
        life: int = 1,
    ) -> None:
        """The next row."""
        epoch, low, high = run
        step = self._steps.get((node, life), 0)
        self._steps[node, life] = step + 1
        self.rows.append(
            Row(
                self._run,
                node,
                life,
                step,
                "",
                len(self.rows),
                kind,
                pipe,
                epoch,
                low,
                high - low + 1,
                detail=detail,
            )
        )

    def channel(self, planted: Planted) -> None:
        """A channel from its first row to its last."""
        name = planted.channel
        sender, receiver = f"{name}/sender", f"{name}/receiver"
        for node in (sender, receiver):
            self.tell(node, Kind.START, name, detail=CLAIM)
        for run in planted.accepted:
            self.tell(sender, Kind.ACCEPTED, name, run, detail=LOADED if planted.holes else "")
        for run in planted.came_out:
            kind = Kind.DEAD if run in planted.dead else Kind.SETTLED
            self.tell(receiver, kind, name, run)
        if planted.at_rest:
            for node in (sender, receiver):
                self.tell(node, Kind.END, name, detail=AT_REST)


def planted_traces(
    count: int, seed: int, *, holes: bool = False
) -> tuple[list[Planted], list[Row]]:
    """So many channels, and the one trace that tells of all of them."""
    rng = random.Random(seed)
    channels = [plant(f"t{at:03}", rng, holes=holes) for at in range(count)]
    told = Told()
    for one in channels:
        told.channel(one)
    return channels, told.rows


def told_late(position: tuple[int, int, int] | None, story: str) -> list[Row]:
    """A process stands still behind its commit of the third of six messages, and tells of it when its successor
    has settled the others. ``position``: what that one says at its start that the stored position is behind:
    epoch, and first and last, or last and 0."""
    told = Told()
    for node in ("p/sender", "p/receiver"):
        told.tell(node, Kind.START, "p", detail=CLAIM)
    told.tell("p/sender", Kind.ACCEPTED, "p", (1, 1, 6))
    told.tell("p/receiver", Kind.DELIVERED, "p", (1, 1, 6))
    told.tell("p/receiver", Kind.SETTLED, "p", (1, 1, 2 if "in time" not in story else 3))
    told.tell("p/receiver", Kind.START, "p", detail=CLAIM, life=2)
    if position is not None:
        epoch, first, last = position
        run = (epoch, first, last if last else first - 1)
        told.tell("p/receiver", Kind.PASSED, "p", run, life=2)
    told.tell("p/receiver", Kind.DELIVERED, "p", (1, 4, 6), life=2)
    for seq in [4, 6, 5] if "out of order" in story else [4, 5, 6]:
        told.tell("p/receiver", Kind.SETTLED, "p", (1, seq, seq), life=2)
    for _ in range(2 if "twice" in story else 1):
        first = 1 if "all again" in story else 3
        told.tell("p/receiver", Kind.SETTLED, "p", (1, first, 3))
    for node, life in (("p/sender", 1), ("p/receiver", 2)):
        told.tell(node, Kind.END, "p", detail=AT_REST, life=life)
    return told.rows


def write_narrow(path: Path) -> None:
    """A Parquet file that lacks most columns of a trace."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    parquet.write_table(arrow.table({"run": ["r"], "node": ["n"]}), path)
