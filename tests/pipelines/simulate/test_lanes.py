"""Lanes: the order that is promised among messages of one key is judged where a plan's messages come out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.run.pipes import PipeMaker
from surepipe.pipelines.simulate.campaign import PlanResult
from surepipe.pipelines.simulate.simulating import Simulation, simulation_of_plan

ONE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: stdin, key: customer}}
pipes: {intake: {from: lines, journal: main, state: main, lanes: 3}}
stages: {work: {from: intake, call: "tests.pipelines.simulate.kit:same", retries: 5, dead_letter: main/dead}}
sinks: {out: {from: work, kind: jsonl, path: out.jsonl}}
"""
TWO = ONE.replace(
    "lanes: 3}}", "lanes: 3}, further: {from: work, journal: main, state: main, lanes: 2}}"
).replace("out: {from: work", "out: {from: further")
ROWS = [{"customer": "abac"[n % 4], "n": n} for n in range(12)]


def lanes(text: str) -> Simulation:
    """A message that fails is tried again, and holds up its key alone."""
    return simulation_of_plan(loads(text), messages={"lines": ROWS}, faults="bad-stage")


def found_by_a_wrong_key(text: str, patch: pytest.MonkeyPatch) -> PlanResult:
    """The engine tells messages apart by another key than the plan says."""

    def other(self: PipeMaker, pipe: PipePart) -> str:
        del self, pipe
        return "n"

    patch.setattr(PipeMaker, "_key", other)
    return lanes(text).campaign(range(20))


@pytest.mark.parametrize("text", [ONE, TWO])
def test_messages_of_one_key_that_overtake_each_other_are_seen_at_the_end(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4 end to end: each pipe keeps the order of what it takes for keys, and the sink shows that they are not."""
    assert lanes(text).campaign(range(20)).failures == {}
    found = found_by_a_wrong_key(text, monkeypatch)
    assert "messages of key a came out in another order" in found.failures["P4"].violation.sentence
    assert found.failures["P4"].violation.end == "out"


def test_keys_that_differ_from_pipe_to_pipe_promise_no_order_at_the_end_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What belongs to one customer goes through lanes of another key then."""
    other = TWO.replace("further: {from: work,", "further: {from: work, key: n,")
    assert "P4" not in found_by_a_wrong_key(other, monkeypatch).failures
    told = "the order of each key at out is judged pipe by pipe alone, as its pipes tell different keys"
    assert f"{told} (customer, n)" in [*lanes(other).notes()]
    assert not [note for note in lanes(TWO).notes() if "pipe by pipe" in note]


def test_a_key_that_no_message_has_is_told_as_the_dead_letters_say_it() -> None:
    """X-24: a typo there, say. The stage behind it was never called, and other messages would not help."""
    unreached = lanes(ONE.replace("customer", "costumer")).campaign(range(1)).unreached
    (told,) = unreached
    said = (
        "out gets no message, even without faults: pipe intake fails for 12 of 12 messages (NoKey: "
    )
    assert told.startswith(f"{said}a dict has no 'costumer'). Mend that; if it is right to fail,")
    assert "stage" not in told


def test_a_key_that_a_function_can_not_tell_is_told_as_that() -> None:
    """X-24: what it raises."""
    by_function = ONE.replace("key: customer", f'key: "{__name__}:key_of"')
    (told,) = lanes(by_function).campaign(range(1)).unreached
    assert "pipe intake fails for 12 of 12 messages (KeyError: 'costumer')" in told


def key_of(row: Mapping[str, str]) -> str:
    """Written as no row has it."""
    return row["costumer"]
