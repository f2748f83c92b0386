"""All mutants, and those that wait for machines which don't exist yet."""

from __future__ import annotations

from tests.mutants.hosting import HOSTING
from tests.mutants.mutant import Mutant
from tests.mutants.ordering import ORDERING
from tests.mutants.parties import PARTIES
from tests.mutants.retrying import RETRYING
from tests.mutants.streaming import STREAMING
from tests.mutants.unseen import UNSEEN

MUTANTS: tuple[Mutant, ...] = (*RETRYING, *ORDERING, *STREAMING, *HOSTING, *UNSEEN)

NOT_YET: tuple[str, ...] = tuple(f"PL-{number}" for number in range(34, 40))
"""Not in these tables: PL-34 (a destination that isn't checked, which two banks with one connection can't show: a
row of ``test_mutants`` does), and errors of weighted queues and of replicated ones."""

__all__ = ["MUTANTS", "NOT_YET", "PARTIES"]
