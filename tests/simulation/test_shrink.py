"""Shrinking, over small systems whose shortest failing scripts are known, and over real runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.trace import Kind, Row
from surepipe.errors import MisuseError
from surepipe.simulation.chance.script import Decision, Plain, Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.results import RunResult
from surepipe.simulation.shrink import shrink
from surepipe.simulation.subjects import HopSubject

Rule = Callable[[Script], Iterable[str]]


def decision(name: str, *value: Plain, fault: str = "F1", authority: str = "network") -> Decision:
    """One that is known by its cause."""
    return Decision(authority, name, "lose", value, fault)


def script(*decisions: Decision, options: Mapping[str, Plain] | None = None) -> Script:
    """A script of these decisions."""
    return Script("toy", options or {"messages": 1}, decisions)


def names(of: Script) -> list[str]:
    """The causes that a script names."""
    return [item.at for item in of.decisions]


class Toy:
    """A system that is a rule: which properties a script breaks. ``takes`` says what has an effect."""

    def __init__(
        self,
        rule: Rule,
        takes: Callable[[Sequence[Decision]], Sequence[Decision]] = tuple,
        asked: Sequence[str] = (),
    ) -> None:
        self.rule, self.takes, self.asked = rule, takes, tuple(asked)
        self.calls: list[Script] = []

    def __call__(self, given: Script) -> RunResult:
        self.calls.append(given)
        effective = replace(given, decisions=tuple(self.takes(given.decisions)))
        rows = [Row("toy", "world", 1, 0, "", 0, Kind.END, detail=repr(effective))]
        unused = [item for item in given.decisions if item not in effective.decisions]
        return RunResult(
            script=effective,
            rows=rows,
            violations=tuple(Violation(p, "broken", 0, "It broke.") for p in self.rule(effective)),
            digest=repr(effective),
            events=1,
            stale=str(unused[0]) if unused else None,
            asked=self.asked,
        )


def needs(*wanted: str, breaks: str = "P2") -> Rule:
    """Broken while all of these are there."""
    return lambda given: [breaks] if set(wanted) <= set(names(given)) else []


class LookedUp(tuple[str, ...]):
    """What was asked; it counts how often one of its places was looked for."""

    times = 0

    def index(self, *wanted: Any) -> int:
        """The place, counted."""
        self.times += 1
        return super().index(*wanted)


def test_without_a_replay_left_no_second_candidate_is_made() -> None:
    """X-54: a run that never comes to rest has thousands of decisions, and millions of candidates."""
    asked = LookedUp(f"node: {n}" for n in range(80))
    toy = Toy(needs(*asked))
    toy.asked = asked
    shrunk = shrink(script(*map(decision, asked)), toy, "P2", replays_max=3)
    assert (shrunk.replays, shrunk.minimal) == (3, False)
    assert asked.times <= 2, "for the one that was made"


@settings(max_examples=40)
@given(st.sets(st.integers(0, 39), min_size=1, max_size=5), st.integers(0, 3))
def test_what_is_left_is_exactly_what_the_violation_needs(wanted: set[int], kinds: int) -> None:
    """X-54: any few of forty decisions are needed together, of one to four kinds of faults."""
    whole = script(*(decision(f"d{n}", fault=f"F{n % (kinds + 1)}") for n in range(40)))
    shrunk = shrink(whole, Toy(needs(*(f"d{n}" for n in wanted))), "P2")
    assert names(shrunk.script) == [f"d{n}" for n in sorted(wanted)]
    assert shrunk.minimal


@given(st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_decision_of_the_result_can_go(ways: list[set[int]]) -> None:
    """X-54: several ways to break the same; whichever is found, each of its decisions is needed."""
    toy = Toy(
        lambda g: ["P2"] if any({f"d{n}" for n in way} <= set(names(g)) for way in ways) else []
    )
    shrunk = shrink(script(*(decision(f"d{n}") for n in range(10))), toy, "P2")
    left = shrunk.script.decisions
    assert toy(shrunk.script).violates("P2")
    for place in range(len(left)):
        fewer = replace(shrunk.script, decisions=left[:place] + left[place + 1 :])
        assert toy(fewer).violates("P2") is None


def test_two_decisions_that_undo_each_other_go_together() -> None:
    """X-54, pairs: the run breaks while a cut and its heal are both there or both not."""

    def rule(given: Script) -> list[str]:
        has = names(given)
        return ["P2"] if "crash" in has and ("cut" in has) == ("heal" in has) else []

    whole = script(decision("cut", fault="F6"), decision("crash", fault="F8"), decision("heal"))
    assert names(shrink(whole, Toy(rule), "P2").script) == ["crash"]


def test_another_property_is_no_success() -> None:
    """X-54: without b the run breaks P3 instead; b stays."""

    def rule(given: Script) -> list[str]:
        if "a" not in names(given):
            return []
        return ["P2"] if "b" in names(given) else ["P3"]

    whole = script(decision("a"), decision("b"), decision("c"))
    assert names(shrink(whole, Toy(rule), "P2").script) == ["a", "b"]


def test_decisions_that_find_nothing_to_act_on_leave_with_the_one_that_they_depended_on() -> None:
    """A candidate may be stale: what took effect in it is what is kept, and repeats the run."""

    def takes(given: Sequence[Decision]) -> list[Decision]:
        has_root = any(item.at == "root" for item in given)
        return [item for item in given if has_root or not item.at.startswith("leaf")]

    whole = script(decision("root"), *(decision(f"leaf{n}") for n in range(6)), decision("x"))
    toy = Toy(needs("x"), takes)
    shrunk = shrink(whole, toy, "P2")
    assert names(shrunk.script) == ["x"]
    assert shrunk.result.stale is None
    assert toy(shrunk.script).digest == shrunk.result.digest


def test_messages_options_and_numbers_become_as_plain_as_they_can() -> None:
    """X-54: needs 3 messages, a delay of at least 7, and any but the fastest drain."""

    def rule(given: Script) -> list[str]:
        delays = [item.value[0] for item in given.decisions if item.at == "slow"]
        enough = any(isinstance(delay, int) and delay >= 7 for delay in delays)
        drains = given.options.get("drain", "fast-quiet") != "fast-quiet"
        return ["P12"] if enough and drains and int(given.options["messages"]) >= 3 else []

    options: dict[str, Plain] = {
        "messages": 40,
        "tie": "random",
        "order": "any",
        "drain": "slow-load",
    }
    whole = script(decision("slow", 900, fault="F5"), decision("x"), options=options)
    shrunk = shrink(whole, Toy(rule), "P12").script
    assert shrunk.options == {"messages": 3, "drain": "fast-load"}
    assert [(item.at, item.value) for item in shrunk.decisions] == [("slow", (7,))]


def test_a_crash_moves_to_the_earliest_event_of_its_node_that_still_fails() -> None:
    """X-54: the second event of the sender is early enough; events of the receiver are none of its."""
    events = ["sender: submit 1", "receiver: arrive 1", "sender: submit 2", "sender: wake 1"]
    late = replace(decision(events[-1], fault="F8"), verb="crash")
    toy = Toy(lambda g: ["P2"] if names(g) and names(g)[0] in events[2:] else [], asked=events)
    assert names(shrink(script(late), toy, "P2").script) == ["sender: submit 2"]


def test_a_fault_moves_to_the_first_frame_of_its_sort() -> None:
    """A loss of the ninth frame fails as well at the second; the frame of another sort is left alone."""
    frames = [f"pipe/0 data e1 {n}+1 a1" for n in range(1, 10)]
    asked = [f"receiver: arrive {name}" for name in ["pipe/0 confirm e1 1+1 a1", *frames]]
    toy = Toy(lambda g: ["P2"] if names(g) and names(g)[0] in frames[1:] else [], asked=asked)
    assert names(shrink(script(decision(frames[-1])), toy, "P2").script) == [frames[1]]


@pytest.mark.parametrize("limit", [3, 10, 25])
def test_the_replays_are_bounded_and_the_result_says_when_they_ran_out(limit: int) -> None:
    """Thirty decisions, all needed but one: the end comes first, and what there is still fails."""
    wanted = [f"d{n}" for n in range(30) if n != 17]
    toy = Toy(needs(*wanted))
    shrunk = shrink(script(*(decision(f"d{n}") for n in range(30))), toy, "P2", replays_max=limit)
    assert len(toy.calls) == shrunk.replays <= limit
    assert not shrunk.minimal
    assert shrunk.result.violates("P2")


def test_no_script_is_run_twice_when_it_was_refused() -> None:
    """All twelve are needed: each candidate costs one run, however often the passes come round."""
    toy = Toy(needs(*(f"d{n}" for n in range(12))))
    shrink(script(*(decision(f"d{n}") for n in range(12))), toy, "P2")
    tried = [tuple(names(given)) for given in toy.calls[: -12 or None]]
    assert len(tried) == len(set(tried))


def test_the_nearest_run_that_holds_parts_last_and_breaks_nothing() -> None:
    """Without a the run breaks another property, without b nothing: b is what made the difference."""

    def rule(given: Script) -> list[str]:
        has = set(names(given))
        return ["P2"] if has == {"a", "b"} else ["P3"] if has == {"b"} else []

    shrunk = shrink(script(decision("a"), decision("b")), Toy(rule), "P2")
    assert shrunk.nearest is not None
    assert shrunk.nearest.violations == ()
    assert shrunk.without is not None
    assert shrunk.without.at == "b"


def test_a_run_that_fails_without_any_decision_has_nothing_to_compare_with() -> None:
    """A plain defect: nothing is left, and no run has one decision fewer."""
    shrunk = shrink(script(decision("a")), Toy(lambda _: ["P2"]), "P2")
    assert (shrunk.script.decisions, shrunk.nearest, shrunk.without) == ((), None, None)
    assert shrunk.minimal


def test_a_script_that_does_not_fail_is_refused() -> None:
    """Nothing is shrunk into something else: the caller is told."""
    with pytest.raises(MisuseError, match="does not violate P2"):
        shrink(script(decision("a")), Toy(lambda _: ["P3"]), "P2")


REAL: dict[str, tuple[HopSubject, dict[str, Plain], int]] = {
    "P4": (
        HopSubject("multi-unconfirmed"),
        {"order": "any", "jitter_us": 5_000, "loss_ppm": 50_000, "messages": 8},
        1,
    ),
    "P2": (
        HopSubject("multi-unconfirmed"),
        {"sender_crashes": 2, "loss_ppm": 200_000, "crash_within": 10, "messages": 8},
        2,
    ),
}
"""What is broken by which pipe under which options, and how many decisions are needed for it."""


@pytest.mark.parametrize("property_id", REAL)
def test_a_random_run_of_a_shipped_pipe_shrinks_to_what_breaks_it(property_id: str) -> None:
    """X-55: the first seed that fails; its script repeats it, and the shrunk one is as short as known."""
    subject, options, length = REAL[property_id]

    def verdict(rows: Sequence[Row]) -> Sequence[Violation]:
        return judge(rows, (property_id,))

    def replay(given: Script) -> RunResult:
        return run_hop(subject, Options.of(given.options), ScriptChooser(given), judge=verdict)

    runs = (run_hop(subject, Options.of({**options, "seed": n}), judge=verdict) for n in range(50))
    found = next(run for run in runs if run.violations)
    assert replay(found.script).digest == found.digest
    shrunk = shrink(found.script, replay, property_id)
    assert len(shrunk.script.decisions) == length
    assert shrunk.minimal
    assert replay(shrunk.script).digest == shrunk.result.digest
    assert shrunk.nearest is not None
    assert shrunk.nearest.violates(property_id) is None
