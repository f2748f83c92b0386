"""The harness is tested too: an error in it must turn one of its own tests red."""

from __future__ import annotations

import pytest

from tests.mutants.harness import HARNESS, HarnessMutant


@pytest.mark.parametrize("mutant", HARNESS, ids=str)
def test_an_error_of_the_harness_is_noticed_by_a_test_of_the_harness(mutant: HarnessMutant) -> None:
    """The test holds, fails with the error in place, and holds again without it (simulation X-61)."""
    mutant.test()
    with mutant.around(), pytest.raises(AssertionError):
        mutant.test()
    mutant.test()


def test_all_errors_that_were_asked_for_are_there() -> None:
    """Eight of them (simulation X-61)."""
    assert len({mutant.name for mutant in HARNESS}) == 8
