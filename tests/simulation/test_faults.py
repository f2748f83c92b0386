"""The catalogue of faults, and what a seed draws from it."""

from __future__ import annotations

import pytest

from surepipe.core.claims import WORDS, Fault
from surepipe.errors import ConfigurationError
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.faults import (
    ALWAYS,
    BY_ID,
    BY_KIND,
    CATALOGUE,
    NEVER,
    FaultKind,
    Mode,
    chosen,
    draw_options,
    names_of,
)
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import COUNTING, RELIABLE

NAMES = {fault.value for fault in Fault}
COMMITTED = HopSubject(
    "reliable", name="c", journaled=True, durable=True, boundary=Boundary.COMMITTED
)


def test_every_fault_that_a_claim_may_name_can_be_injected() -> None:
    """simulation X-35: each name of pipes V-7 has a kind."""
    assert {name for kind in CATALOGUE for name in kind.names} == NAMES | {ALWAYS, NEVER}


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: f"{kind.id} {kind.kind}")
def test_a_kind_of_fault_has_a_name_and_options_that_exist(kind: FaultKind) -> None:
    """simulation X-35: a name of a claim, or always, or never; a switch; ranges the right way round."""
    assert kind.names
    assert set(kind.names) <= NAMES | {ALWAYS, NEVER}
    assert not kind.switch or hasattr(Options(), kind.switch)
    for each in kind.ranges:
        assert hasattr(Options(), each.option)
        assert each.low <= each.high


def test_all_kinds_of_the_table_are_there() -> None:
    """simulation X-35: F1 to F31, each id and each word once."""
    numbers = {int("".join(filter(str.isdigit, kind.id))) for kind in CATALOGUE}
    assert numbers == set(range(1, 32))
    assert len(BY_ID) == len(BY_KIND) == len(CATALOGUE)


def test_without_faults_no_name_occurs() -> None:
    """What the row ``run`` lists is what the options let happen."""
    assert names_of(Options()) == ()
    assert names_of(Options(loss_ppm=1, sender_crashes=1)) == ("route-loss", "sender-crash")
    assert names_of(Options(order="any", jitter_us=5)) == ("route-reordering",)
    assert names_of(Options(), ["F3", "F10"]) == (
        "route-duplication",
        "receiver-crash",
        "relay-crash",
    )


@pytest.mark.parametrize("subject", [RELIABLE, COMMITTED], ids=lambda subject: subject.name)
def test_claim_mode_stays_within_what_some_atom_tolerates(subject: HopSubject) -> None:
    """simulation X-35: over 200 seeds."""
    promise = promise_of(subject)
    for seed in range(200):
        drawn = set(names_of(draw_options(seed, promise, mode=Mode.CLAIM)))
        assert any(drawn <= set(tolerated) for tolerated in promise.claim.values()), seed


def test_break_mode_goes_beyond_every_claim_in_most_seeds() -> None:
    """simulation X-35: at least one fault that the atom of the seed does not tolerate."""
    promise = promise_of(RELIABLE)
    beyond = 0
    for seed in range(200):
        drawn = set(names_of(draw_options(seed, promise, mode=Mode.BREAK)))
        beyond += any(not drawn <= set(names) for names in promise.claim.values())
    assert beyond > 100


def test_swarms_differ_and_one_in_ten_is_free_of_faults() -> None:
    """simulation X-36: over 200 seeds, the number of kinds that are on."""
    promise = promise_of(COMMITTED)
    drawn = [draw_options(seed, promise) for seed in range(200)]
    counts = [sum(kind.is_on(options) for kind in CATALOGUE) for options in drawn]
    assert 10 <= counts.count(0) <= 30
    assert len(set(counts)) > 8


def test_a_subject_without_stores_meets_no_store_faults() -> None:
    """Nothing that could go wrong is switched on where it isn't."""
    drawn = [draw_options(seed, promise_of(RELIABLE), mode=Mode.BREAK) for seed in range(100)]
    on = {kind.kind for options in drawn for kind in CATALOGUE if kind.is_on(options)}
    assert not on & {"store-crash", "store-outage", "store-refuses", "trim"}


def test_faults_are_chosen_by_the_words_of_expect_by_kind_and_by_id() -> None:
    """simulation X-22: and a word that is none of these is refused with what is known."""
    crashes = {kind.id for kind in chosen(["sender-crash", "receiver-crash", "relay-crash"])}
    assert {kind.id for kind in chosen(["process-crash"])} == crashes
    assert {kind.id for word in WORDS for kind in chosen([word])} == {
        kind.id for kind in CATALOGUE if set(kind.names) - {ALWAYS, NEVER}
    }
    assert [kind.id for kind in chosen(["route-loss", "copy"])] == ["F1", "F2", "F3"]
    assert [kind.id for kind in chosen(["F8"])] == ["F8"]
    with pytest.raises(
        ConfigurationError, match="'gravity' is no fault: known are network, process-crash"
    ) as refused:
        chosen(["gravity"])
    known = str(refused.value).partition("known are ")[2].split(", ")
    named = {kind.id for kind in chosen(known)}
    assert named >= {kind.id for kind in CATALOGUE if kind.ranges}
    assert "corruption-at-rest" in known
    with pytest.raises(
        ConfigurationError, match=r"'rest' is no fault: did you mean 'corruption-at-rest'\? Known"
    ):
        chosen(["rest"])
    with pytest.raises(ConfigurationError, match="did you mean 'process-crash'"):
        chosen(["proces-crash"])
    both = (
        r"'crash' is no fault: did you mean 'process-crash' or 'store-crash'\? Known are network, "
    )
    with pytest.raises(ConfigurationError, match=both):
        chosen(["crash"])


def test_options_of_a_seed_do_not_depend_on_others() -> None:
    """simulation X-9: the same seed, the same record; a subject that promises nothing has one too."""
    assert draw_options(3, promise_of(COUNTING)) == draw_options(3, promise_of(COUNTING))
    assert draw_options(3, promise_of(COUNTING)) != draw_options(4, promise_of(COUNTING))
