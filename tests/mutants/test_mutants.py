"""Each mutant dies in the ordinary campaign, by a property that its row names, and its shrunk script replays."""

from __future__ import annotations

from statistics import median

import pytest

from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.queues.ibc import Connection, Item, QueueKey, parse_key
from surepipe.queues.ibc.keys import QueueKind
from surepipe.queues.ibc.transitions import OpenBlock
from surepipe.simulation.promises import hop_of
from tests.mutants.catalogue import MUTANTS, NOT_YET, PARTIES
from tests.mutants.hosting import INSIDE_OUT
from tests.mutants.mutant import Mutant
from tests.mutants.parties import PartyMutant, hunt_party
from tests.mutants.runner import campaign_of, hunt
from tests.queues.ibc import test_party as rows

SOUND = {mutant.sound.name: mutant for mutant in MUTANTS}
SEEDS_OF_THE_SOUND = 6


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_killed_by_a_property_that_its_row_names(mutant: Mutant) -> None:
    """simulation X-60: seeds 0, 1, 2 ...; ``hunt`` replays the shrunk script and compares digests."""
    kill = hunt(mutant, mutant.within)
    assert kill is not None, f"{mutant.id} survived {mutant.within} seeds: {mutant.change}"
    assert kill.property in mutant.killed_by


@pytest.mark.parametrize("mutant", SOUND.values(), ids=SOUND)
def test_without_its_error_the_same_subject_holds(mutant: Mutant) -> None:
    """simulation X-60: what kills a mutant is its error, and not the campaign."""
    found = campaign_of(mutant, mutant.sound, range(SEEDS_OF_THE_SOUND))
    assert not found.violated, str(found)
    assert not found.limits, str(found)


def test_all_planned_mutants_of_pipes_are_there_and_few_seeds_suffice() -> None:
    """simulation X-60: PL-1 to PL-33, half of them within 50 seeds, all within 1,000."""
    planned = [mutant.id.split("-") for mutant in MUTANTS if mutant.id.startswith("PL-")]
    numbers = {int(number) for _, number, *_ in planned}
    numbers |= {int(mutant.id.split("-")[1]) for mutant in PARTIES if mutant.id.startswith("PL-")}
    assert numbers == set(range(1, 34))
    assert tuple(f"PL-{number}" for number in range(34, 40)) == NOT_YET
    assert median(mutant.within for mutant in MUTANTS) <= 50
    assert max(mutant.within for mutant in MUTANTS) <= 1_000


def test_what_is_numbered_inside_of_what_sends_again_is_refused() -> None:
    """simulation PL-30, X-44: the loader says no before any run could show why."""
    with pytest.raises(CompositionError):
        derive(hop_of(INSIDE_OUT))


@pytest.mark.parametrize("mutant", PARTIES, ids=str)
def test_a_mutant_of_a_party_is_found_in_the_world_of_two_banks(mutant: PartyMutant) -> None:
    """IT-50, simulation PL-31 to PL-33: by a property that its row names, and its seed says it again."""
    kill = hunt_party(mutant)
    assert kill is not None, f"{mutant.id} survived {mutant.within} seeds: {mutant.change}"
    assert set(kill.names) & set(mutant.killed_by)
    assert mutant.played(kill.seeds - 1).digest == kill.digest


def test_a_destination_that_is_not_checked_is_found_by_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """simulation PL-34: two banks have one connection, so no run of theirs could show it."""

    def any_destination(
        block: OpenBlock, to: Connection, item: Item, kind: QueueKind, code: str
    ) -> QueueKey:
        del block, to, kind, code
        key = parse_key(item.key)
        assert key is not None
        return key

    rows.test_the_first_check_that_fails_decides()
    monkeypatch.setattr(OpenBlock, "_key_of", any_destination)
    with pytest.raises(AssertionError):
        rows.test_the_first_check_that_fails_decides()
