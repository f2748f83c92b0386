"""Scripts that grow: each decision against something that was seen to happen in the run before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surepipe.audit.properties import judge
from surepipe.audit.settings import facts_of
from surepipe.simulation.causal import Growth, Seen, calm_worlds, grown_runs
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.hop import replay
from surepipe.simulation.processes import OFFER_TO_ZOMBIE
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import RELIABLE, RESEND, decide, of_kind

DEDUPE = HopSubject({"dedupe": {"run_max": 1}}, name="dedupe")
STREAM = HopSubject(
    {"stream": {"start": "earliest", "run_max": 2}}, name="stream", journaled=True, durable=True
)
OF_FRAMES = ("F1", "F2", "F3", "F4", "F5", "F25", "F27")
OF_NODES = ("F8", "F10", "F28", "F28r", "F28s", "F31", "F6")
OF_STORES = ("F13", "F14", "F16", "F18", "F20", "F21")


def calm_run(subject: HopSubject, world: int = 0) -> RunResult:
    """The run of a calm world."""
    options = list(calm_worlds(subject))[world]
    return replay(subject, Script(subject.name, options.plain()), judge=None)


def struck(subject: HopSubject, result: RunResult, *decisions: Decision) -> RunResult:
    """The same run with these decisions."""
    return replay(subject, Script(subject.name, result.script.options, decisions), judge=None)


@pytest.mark.parametrize(
    ("subject", "ids"), [(RESEND, OF_FRAMES), (RELIABLE, OF_NODES), (STREAM, OF_STORES)]
)
def test_whatever_is_named_takes_effect(subject: HopSubject, ids: tuple[str, ...]) -> None:
    """simulation X-37: each kind finds something, and one strike of each kind finds its event."""
    result = calm_run(subject)
    strikes = Seen.of(result).strikes(ids)
    assert {name.partition(" ")[0] for name in strikes} == set(ids)
    for made in strikes.values():
        strike = made[len(made) // 2]
        assert struck(subject, result, *strike).stale is None, strike


def test_what_is_decided_already_is_not_offered_again() -> None:
    """simulation X-37: one decision per event and verb, as a script has."""
    result = calm_run(RESEND)
    seen = Seen.of(result)
    first = seen.strikes(["F3"])["F3"][0]
    left = [one.at for (one,) in seen.strikes(["F3"], first)["F3"]]
    assert first[0].at not in left


def test_a_strike_sees_what_came_of_the_one_before() -> None:
    """simulation X-37: only where the data was lost is it sent again, and the second copy can be struck."""
    result = calm_run(RESEND)
    lost = struck(RESEND, result, *Seen.of(result).strikes(["F1"])["F1"][0])
    again = [one.at for (one,) in Seen.of(lost).strikes(["F3"])["F3"] if " data " in one.at]
    assert any(name.endswith("a2") for name in again)
    assert not any(name.endswith("a2") for _, name in _arrivals(result))


def _arrivals(result: RunResult) -> Iterator[tuple[str, str]]:
    for name in result.asked:
        node, _, event = name.partition(": ")
        if event.startswith("arrive "):
            yield node, event


def test_a_sender_whose_confirms_are_all_lost_is_one_strike() -> None:
    """simulation X-37: every confirm of a life, so that the life was never answered."""
    result = calm_run(RESEND)
    (strike,) = Seen.of(result).strikes(["F2"])["F2 of a life"]
    sender = [name for name in struck(RESEND, result, *strike).asked if "sender: arrive" in name]
    assert not any(one.at in name for one in strike for name in sender)


def searched(growth: Growth) -> Iterator[RunResult]:
    """Runs of dedupe in which something was repeated, whatever is promised."""
    yield from grown_runs(
        DEDUPE,
        lambda script: replay(DEDUPE, script, judge=lambda rows: judge(rows, ["P3"])),
        growth,
    )


def test_a_search_finds_what_takes_two_strikes() -> None:
    """simulation X-37: a copy is dropped, a crash alone repeats nothing; a copy after the crash comes out."""
    found = next(searched(Growth(must=("F10",), may=("F3",), runs=200, seed=1)))
    assert {one.fault for one in found.script.decisions} == {"F10", "F3"}
    assert found.stale is None


def tried(growth: Growth) -> list[Script]:
    """The scripts of a search in which nothing is looked for."""
    scripts: list[Script] = []

    def noted(script: Script) -> RunResult:
        scripts.append(script)
        return replay(DEDUPE, script, judge=None)

    assert not list(grown_runs(DEDUPE, noted, growth))
    return scripts


def test_a_search_is_the_same_under_the_same_seed() -> None:
    """simulation X-3: which run grows, and by what, is drawn from the seed alone."""
    growth = Growth(must=("F10",), may=("F3",), runs=60, seed=4)
    assert tried(growth) == tried(growth)
    assert tried(growth) != tried(Growth(must=("F10",), may=("F3",), runs=60, seed=5))


def test_a_search_ends_when_its_runs_are_used_up() -> None:
    """simulation X-37: never more runs than it was given, also where nothing grows."""
    assert len(tried(Growth(must=("F2",), runs=20))) <= 20
    assert len(tried(Growth(must=("F10",), runs=40))) == 40


def test_a_replaced_sender_that_is_asked_again_takes_what_its_application_offers() -> None:
    """simulation X-19: the application does not know either that somebody else has its place."""
    asleep = decide("faults/sender", "sender: submit 1", "zombie", 0, 100_000, fault="F28")
    offered = decide(f"perturb/{OFFER_TO_ZOMBIE}", "submit 3", "fire", 1)
    result = struck(RESEND, calm_run(RESEND, world=2), asleep, offered)
    lives = {row.incarnation for row in of_kind(result.rows, "accepted", "sender")}
    (third,) = [row for row in of_kind(result.rows, "submit") if '"submit 3"' in row.detail]
    assert third.incarnation == 1
    assert lives == {1, 2}


def test_a_zombie_of_a_script_is_told_as_that_and_not_as_a_pause() -> None:
    """simulation X-34: every claim covers a pause, so a run with a zombie would be held to what it does not."""
    zombie = decide("faults/receiver", "receiver: start 1", "zombie", 0, 100_000, fault="F28")
    pause = decide("faults/receiver", "receiver: start 1", "pause", 0, 100_000, fault="F28")
    told = [
        facts_of(struck(RELIABLE, calm_run(RELIABLE), one).rows[0])["faults"]
        for one in (zombie, pause)
    ]
    assert told == [["receiver-zombie"], []]
