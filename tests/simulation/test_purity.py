"""Nothing in machines and in the simulator depends on clocks, chance, addresses or the order of sets."""

from __future__ import annotations

from pathlib import Path

import pytest

import surepipe
from tests.simulation.purity import slips, slips_in

SOURCE = Path(surepipe.__file__).parent
FILES = sorted(
    path for folder in ("pipes", "queues", "simulation") for path in (SOURCE / folder).rglob("*.py")
)
EXEMPT = {
    "simulation/actors/loops.py": ["imports asyncio", "imports threading"],
    "simulation/chance/randomness.py": ["imports random"],
    "queues/book/queue.py": [
        "imports asyncio",
        "imports random",
        "imports secrets",
        "imports threading",
        "imports time",
        "calls id()",
    ],
    "queues/ibc/party.py": ["imports threading", "imports time"],
    "queues/ibc/relay.py": ["imports time"],
}
"""The module that makes chance, that of loops in virtual time, and the faces that users hold, each with what it
alone may do.

A face reads the clock and has a lock; what it gives to the part behind it are values."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_run_can_depend_on_its_inputs_only(path: Path) -> None:
    """simulation X-11: by the syntax of each module of pipes, queues and simulation."""
    allowed = EXEMPT.get(str(path.relative_to(SOURCE)), [])
    assert [slip for slip in slips_in(path) if slip.what not in allowed] == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import time", "imports time"),
        ("from random import Random", "imports random"),
        ("import os\nos.urandom(4)", "calls os.urandom()"),
        ("x = hash('a')", "calls hash()"),
        ("x = id(object())", "calls id()"),
        ("for x in {1, 2}: print(x)", "iterates over the set {1, 2}"),
        ("seen = set()\nfor x in seen: print(x)", "iterates over the set seen"),
        ("def f(these: frozenset[str]): return list(these)", "iterates over the set these"),
        ("def f(a: set[str]): return ','.join(x for x in a)", "iterates over the set a"),
        ("a: set[int] = set()\nb = [*a]", "iterates over the set a"),
        (
            "class A:\n def f(self):\n  self.a: set[int] = set()\n  return [x for x in self.a]",
            "iterates over the set self.a",
        ),
    ],
)
def test_the_lint_sees_each_kind_of_slip(source: str, what: str) -> None:
    """simulation X-11: planted, one at a time."""
    assert [slip.what for slip in slips(source)] == [what]


def test_the_lint_leaves_questions_that_have_no_order_alone() -> None:
    """simulation X-11: membership, size, sorting, and sets made of sets."""
    source = "a: set[int] = set()\nb = sorted(a), len(a), 1 in a, max(a), {x + 1 for x in a}"
    assert slips(source) == []
