"""Stores that are away while a receiver commits: every stack keeps what it promises through store-outage."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from surepipe.actors import Pipe, StepRuntime
from surepipe.core.claims import Atom, Fault
from surepipe.core.store_requests import Transaction
from surepipe.errors import CompositionError
from surepipe.storage import SqliteTransaction
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune
from tests.actors.stored_kit import effects_in, make_effects, put_effect, sqlite_store

pytestmark = pytest.mark.long

KINDS = (
    *("resend", "multi-unconfirmed", "sequential-confirm", "reliable"),
    *("strict-monotonic", "continuous-index", "dedupe"),
)
PAIRS = [stack for depth in (1, 2) for stack in product(KINDS, repeat=depth)]
TRIPLES = list(product(KINDS, repeat=3))
STRIDE = 16
COUNT = 16
AT = 6
OUTAGES = {
    "one transaction is not done": (Misfortune.OUTAGE, FaultyTransaction, 1),
    "one is done and its answer lost": (Misfortune.UNKNOWN, FaultyTransaction, 1),
    "three answers in a row are lost": (Misfortune.UNKNOWN, FaultyTransaction, 3),
    "the store is away for nine calls": (Misfortune.OUTAGE, object, 9),
}


@dataclass
class Bench:
    """A pipe whose effects are committed in SQLite, and a number of calls of the store that fail."""

    stack: tuple[str, ...]
    folder: Path
    handled: list[object] = field(default_factory=list[object])

    def run(self, outage: str) -> tuple[dict[Atom, bool], list[int]]:
        """What is promised through an outage, and the effects. Messages go on coming meanwhile."""
        steps = StepRuntime()
        with sqlite_store(self.folder) as inside:
            make_effects(inside)
            store = FaultyStore(inside)
            with Pipe(
                "orders", list(self.stack), state=store, boundary="committed", runtime=steps
            ) as pipe:
                guarantee = pipe.guarantee.guarantee
                promised = {
                    atom: Fault.STORE_OUTAGE in (guarantee.tolerated(atom) or ()) for atom in Atom
                }
                pipe.receive(self._handle)
                for number in range(COUNT):
                    if number == AT:
                        misfortune, kind, calls = OUTAGES[outage]
                        store.script(misfortune, on=kind, calls=calls)
                    pipe.send(number)
                    steps.advance(0.02)
                steps.advance(60)
            return promised, cast("list[int]", effects_in(inside))

    def _handle(self, message: object, transaction: Transaction) -> None:
        assert isinstance(transaction, FaultyTransaction)
        self.handled.append(message)
        put_effect(message, cast("SqliteTransaction", cast("Any", transaction).inside))


def broken(promised: dict[Atom, bool], effects: list[int]) -> list[Atom]:
    """What the effects show to be untrue."""
    found = {
        Atom.NO_LOSS: set(effects) == set(range(COUNT)),
        Atom.NO_DUPLICATE: len(set(effects)) == len(effects),
        Atom.MONOTONIC: all(one <= other for one, other in pairwise(effects)),
    }
    return [atom for atom, is_true in found.items() if promised[atom] and not is_true]


@pytest.mark.parametrize("number", range(len(OUTAGES)))
def test_what_survives_an_outage_is_true_of_every_stack_that_commits(number: int) -> None:
    """pipes G-5, store-outage: number 6 of 16 meets it. Stacks of one and two layers meet each kind of outage,
    some of three layers one kind each: they lose, repeat and reorder nothing that the algebra says they don't."""
    outage = list(OUTAGES)[number]
    lies: list[str] = []
    tried = 0
    for stack in [*PAIRS, *TRIPLES[number::STRIDE]]:
        with TemporaryDirectory() as folder:
            try:
                promised, effects = Bench(stack, Path(folder)).run(outage)
            except CompositionError:
                continue
        tried += 1
        if lied := broken(promised, effects):
            lies.append(f"{' over '.join(stack)}: {lied}, {effects}")
    assert not lies
    assert tried > 30
