"""Two banks in a world (``tests.simulation.banks``): what is never found.

Planted mistakes that are: ``tests/mutants/parties.py``.
"""

from __future__ import annotations

import gc
import weakref

import pytest

from surepipe.simulation.actors.tasks import Tasks
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.world import play
from tests.simulation.banks import CALM, TROUBLED, BankSubject, run


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_nothing_is_found_where_nothing_goes_wrong(order: str) -> None:
    """IT-17: and the world comes to its end, a forger notwithstanding."""
    assert run(0, CALM, order).found == []


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("seed", range(6))
def test_processes_end_between_any_two_writes(seed: int, order: str) -> None:
    """IT-14, IT-47, IT-49, IB-132, I-3 to I-6, I-8, I-12, I-13, I-17: parties, two relays and a forger."""
    assert run(seed, TROUBLED, order).found == []


def test_a_party_that_signs_two_histories_is_frozen_and_money_stays_where_it_is() -> None:
    """IB-35, I-14, I-17: validators of the west lie to the east; a relay brings the other history."""
    for seed in range(3):
        assert run(seed, TROUBLED, "ordered", equivocates=True).found == []


def test_a_header_whose_answer_was_lost_is_stored_by_the_next_call_whatever_that_does() -> None:
    """IB-3: also by a redundant one; relays brought the same again and again, and no block was made that signs."""
    assert run(2084, TROUBLED, "ordered").found == []


def test_a_seed_is_one_run() -> None:
    """The same rows each time."""
    assert run(5, TROUBLED).digest == run(5, TROUBLED).digest


def test_nothing_is_left_of_a_world_that_is_over() -> None:
    """simulation X-2: tasks of its processes rest for ever, and what their stacks name is never collected."""
    others = _tasks()
    world = play(BankSubject("ordered"), CALM, SeededChooser(CALM))
    seen = weakref.ref(world)
    del world
    gc.collect()
    assert seen() is None
    assert not [each for each in _tasks() if not any(each is other for other in others)]


def _tasks() -> list[Tasks]:
    """Those of worlds that other tests of this process keep are among them."""
    return [each for each in gc.get_objects() if isinstance(each, Tasks)]
