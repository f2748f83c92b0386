"""Each cell of the table of faults, tried on the plain patterns by exploration."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.explore.scope import Scope
from tests.faults.plain_golden import DIFFERENCES, figures, golden, measured_table
from tests.faults.plain_table import PATTERNS, RESTARTED_NUMBERS, Cell, cells

BROKEN = list(cells(kept=False))
KEPT = list(cells(kept=True))


def ids(listed: list[Cell]) -> list[str]:
    """The names of cells."""
    return [cell.id for cell in listed]


@pytest.mark.parametrize("cell", BROKEN, ids=ids(BROKEN))
def test_what_is_disclaimed_is_shown_to_break_in_as_few_steps_as_ever(cell: Cell) -> None:
    """simulation X-41, X-48: the fault breaks that very property; length, words and states are golden."""
    explored = explore(cell.subject, cell.scope())
    found = explored.counterexample
    assert explored.verdict is Explored.VIOLATED
    assert found is not None
    assert found.property == cell.claim.property
    assert figures(cell, explored) == golden()[cell.id]
    assert cell.claim.reference in (None, found.length) or DIFFERENCES[cell.id]


NEEDING_ALL = [cell for cell in BROKEN if cell.claim.needs_all]


@pytest.mark.parametrize("cell", NEEDING_ALL, ids=ids(NEEDING_ALL))
def test_with_one_message_fewer_the_same_property_holds(cell: Cell) -> None:
    """simulation X-41, cells marked (2+), (3+): the scope below is explored to its end."""
    assert explore(cell.subject, cell.scope(messages=cell.claim.messages - 1)).holds


NEEDING_ANY = [cell for cell in BROKEN if cell.claim.order == "any"]


@pytest.mark.parametrize("cell", NEEDING_ANY, ids=ids(NEEDING_ANY))
def test_what_needs_overtaking_to_break_holds_on_links_that_keep_the_order(cell: Cell) -> None:
    """simulation X-41, cells marked (any): the same scope on fifo links."""
    assert explore(cell.subject, cell.scope(order="fifo")).holds


@pytest.mark.parametrize("cell", KEPT, ids=ids(KEPT))
def test_what_is_claimed_holds_in_every_schedule(cell: Cell) -> None:
    """simulation X-41, X-42: up to 3 messages, explored to the end, with a golden number of states."""
    explored = explore(cell.subject, cell.scope())
    assert explored.verdict is Explored.HOLDS, explored.counterexample
    assert figures(cell, explored) == golden()[cell.id]


def pairs() -> list[tuple[Cell, Cell]]:
    """Two faults that a pattern tolerates for the same property, both not only alone."""
    together = [cell for cell in KEPT if not cell.claim.alone and cell.column != "ST"]
    return [
        (one, other)
        for one, other in combinations(together, 2)
        if one.column == other.column
        and one.claim.property == other.claim.property
        and one.row != other.row
        and not {one.row, other.row} & {"F7a", "F7b", "F27", "F28"}
    ]


PAIRS = pairs()


@pytest.mark.parametrize(
    ("one", "other"), PAIRS, ids=[f"{one.id}-{other.row}" for one, other in PAIRS]
)
def test_what_is_claimed_holds_under_each_pair_of_tolerated_faults(one: Cell, other: Cell) -> None:
    """simulation X-42: one of each kind together, 3 messages, on links that keep the order."""
    scope = replace(one.scope(messages=3, order="fifo"), faults={**one.faults, **other.faults})
    explored = explore(one.subject, scope)
    assert explored.verdict is Explored.HOLDS, explored.counterexample


STREAM_PAIRS = list(combinations(("F1", "F2", "F3", "F5", "F6", "F10", "F11", "F13", "F18"), 2))


@pytest.mark.parametrize("faults", STREAM_PAIRS, ids=["-".join(pair) for pair in STREAM_PAIRS])
def test_a_plain_stream_loses_nothing_under_pairs_of_faults(faults: tuple[str, str]) -> None:
    """simulation X-42: the stream has more parts than the others, so one message has to do; F3 x F5 with wakes."""
    scope = Scope(messages=1, faults=dict.fromkeys(faults, 1), properties=("P1", "P2"), wakes=2)
    assert explore(PATTERNS["ST"], scope).holds


WEAK = [
    ("RS", "P2", {"F8": 1}, 3),
    ("SQ", "P2", {"F2": 1}, 3),
]


@pytest.mark.parametrize(("column", "name", "faults", "length"), WEAK)
def test_one_message_is_too_weak_a_test(
    column: str, name: str, faults: dict[str, int], length: int
) -> None:
    """simulation X-42: the property holds with one message and breaks with three."""
    scope = Scope(messages=3, faults=faults, properties=(name,))
    assert explore(PATTERNS[column], replace(scope, messages=1)).holds
    found = explore(PATTERNS[column], scope).counterexample
    assert found is not None
    assert found.length == length


TOGETHER = [
    # column, property, faults that are harmless alone, length of what breaks it together
    ("RS", "P2", ("F8", "F1"), 1, 3),
    ("RM", "P2", ("F8", "F1"), 1, 3),
    ("ST", "P2", ("F8", "F1"), 1, 3),
    ("RS", "P4", ("F3", "F5"), 3, 9),
    ("SM", "P3", ("F3", "F11"), 3, 4),
    ("CI", "P3", ("F3", "F11"), 3, 4),
    ("SM", "P4", ("F3", "F11"), 3, 6),
    ("CI", "P4", ("F1", "F8"), 3, 7),
]


@pytest.mark.parametrize(("column", "name", "faults", "messages", "length"), TOGETHER)
def test_two_faults_break_what_neither_breaks_alone(
    column: str, name: str, faults: tuple[str, str], messages: int, length: int
) -> None:
    """simulation X-42: each alone holds with this many messages on fifo links; both together have a shortest."""
    subject = PATTERNS[column]
    for fault in faults:
        alone = Scope(messages=messages, faults={fault: 1}, properties=(name,))
        assert explore(subject, alone).holds
    both = Scope(messages=messages, faults=dict.fromkeys(faults, 1), properties=(name,))
    found = explore(subject, both).counterexample
    assert found is not None
    assert found.length == length


@pytest.mark.parametrize("column", ["RS", "RM", "ST"])
def test_numbers_that_restart_survive_a_crash_of_the_sender_but_not_with_a_loss(
    column: str,
) -> None:
    """simulation X-42, F23: what is accepted after the restart is safe alone; with one loss, 4 steps lose it."""
    subject = RESTARTED_NUMBERS[column]
    scope = Scope(messages=3, faults={"F8": 1}, properties=("P2",), after_crash=True, wakes=4)
    if column != "ST":
        assert explore(subject, scope).holds
    assert explore(subject, replace(scope, messages=1)).holds
    found = explore(subject, replace(scope, faults={"F8": 1, "F1": 1})).counterexample
    assert found is not None
    assert found.length == 4


def test_the_table_as_people_read_it_has_a_length_for_each_disclaimed_property() -> None:
    """simulation X-41: what is made from the golden file covers all cells."""
    shown = list(measured_table())
    assert len(shown) == len(BROKEN) + len(KEPT)
    assert all(bool(item.length) != item.is_kept for item in shown)
    assert all(len(item.schedule) == item.length for item in shown)


def test_every_difference_that_is_explained_is_one() -> None:
    """simulation X-48: no reason stays behind when a length changes."""
    different = {
        cell.id
        for cell in BROKEN
        if cell.claim.reference not in (None, golden()[cell.id]["length"])
    }
    assert different == set(DIFFERENCES)
