"""Hypothesis strategies for users: what they give, and that they find what campaigns find."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, find, given, settings
from hypothesis import strategies as st

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.guarantees import derive
from surepipe.guarantees.hops import Hop
from surepipe.simulation import HopSubject, Options, promise_of, run_hop
from surepipe.simulation.promises import hop_of
from surepipe.simulation.strategies import messages, schedules, stacks
from tests.mutants.catalogue import MUTANTS

SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    verbosity=Verbosity.quiet,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""No chance, and nothing kept between sessions."""
FEW = settings(SAME, max_examples=15)


@FEW
@given(stacks(depth_max=2), st.data())
def test_a_drawn_stack_holds_under_what_it_promises(
    layers: tuple[str, ...], data: st.DataObject
) -> None:
    """Stacks that the checker accepts, under schedules of their own claims (simulation X-44, X-71)."""
    subject = HopSubject(layers)
    assert isinstance(hop_of(subject), Hop)
    derive(hop_of(subject))
    options = data.draw(schedules(promise_of(subject), most=4))
    assert run_hop(subject, options).violations == ()


@pytest.mark.parametrize("depth", [0, 5])
def test_a_depth_that_no_stack_has_is_refused(depth: int) -> None:
    """Stacks are one to four layers deep."""
    with pytest.raises(ValueError, match="depth_max"):
        stacks(depth_max=depth)


def test_schedules_of_a_named_fault_have_only_that_fault_and_shrink_to_none() -> None:
    """The least schedule is a calm one with one message; one that loses neither copies nor crashes."""
    least = find(schedules(faults="F1"), lambda _: True, settings=SAME)
    assert least == Options(messages=1, chaos_us=4_000_000)
    first = settings(SAME, phases=[Phase.generate])
    found = find(schedules(faults="F1"), lambda options: options.loss_ppm > 0, settings=first)
    assert (found.copy_ppm, found.sender_crashes) == (0, 0)
    with pytest.raises(ConfigurationError, match="is no fault"):
        find(schedules(faults="rain"), lambda _: True, settings=SAME)


def test_messages_are_all_different() -> None:
    """By default objects that count; of a strategy for one message otherwise."""
    assert find(messages(least=3), lambda _: True, settings=SAME) == [{"id": n} for n in range(3)]
    given_ = find(messages(st.booleans(), least=2), lambda _: True, settings=SAME)
    assert given_ == [False, True]


def test_hypothesis_finds_the_commit_before_the_processing_too() -> None:
    """PL-20 in a few schedules of its claim; the campaign finds it in ``tests.mutants`` (simulation X-71)."""
    mutant = next(one for one in MUTANTS if one.id == "PL-20")
    promise = promise_of(mutant.subject)

    def is_broken(options: Options) -> bool:
        found = {violation.property for violation in run_hop(mutant.subject, options).violations}
        return not found.isdisjoint(mutant.killed_by)

    quick = settings(SAME, max_examples=300, phases=[Phase.generate])
    least = find(schedules(promise, most=6), is_broken, settings=quick)
    assert is_broken(least)
    assert not run_hop(mutant.sound, least).violations


def _loses(options: Options) -> bool:
    return options.loss_ppm > 0


def _copies(options: Options) -> bool:
    return options.copy_ppm > 0


def test_words_of_faults_are_given_to_schedules_as_to_simulate() -> None:
    """After commas, or as a list, a tuple or a set: each of them can be drawn."""
    for words in ("F1,F3", ["F1", "F3"], ("F1", "F3"), {"F3", "F1"}):
        assert find(schedules(faults=words), _loses, settings=SAME).loss_ppm > 0
        assert find(schedules(faults=words), _copies, settings=SAME).copy_ppm > 0
    with pytest.raises(MisuseError, match="faults are words"):
        find(schedules(faults=7), lambda _: True, settings=SAME)  # type: ignore[arg-type]
