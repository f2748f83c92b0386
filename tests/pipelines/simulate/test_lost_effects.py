"""What is told of something outside that was never done: for which message, how much, and what became of it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate.ends import Nth, RunOutcome, so_many
from surepipe.pipelines.simulate.simulating import SimulationFailed, simulation_of
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside
from tests.pipelines.simulate.kit import HEAD

Order = Mapping[str, int]
ROWS = ", ".join(f"{{n: {number}}}" for number in range(1, 7))
bank = Outside("bank")
ledger = Outside("ledger")
waiting: list[int] = []
balance: list[int] = []


def told_of(function: str, check: str = "") -> str:
    """What is said of a plan with this stage, in one line."""
    with_check = f', check: "{__name__}:{check}"' if check else ""
    plan = loads(
        f"{HEAD}"
        f'stages: {{pay: {{from: intake, call: "{__name__}:{function}", retries: 5, dead_letter: main/dead}}}}\n'
        "sinks: {out: {from: pay, kind: jsonl, path: out.jsonl}}\n"
        f"simulate: {{messages: 6, sample: {{lines: [{ROWS}]}}{with_check}}}\n"
    )
    with pytest.raises(SimulationFailed) as found:
        simulation_of(plan).run(range(60))
    return " ".join(str(found.value).split())


def noted_first(order: Order) -> Order:
    """A second attempt finds the note."""
    if order["n"] not in ledger.count("note"):
        ledger.do("note", order["n"], key=order["n"])
        bank.do("pay", order["n"], key=order["n"])
    return order


def noted_first_at_a_time(order: Order) -> Order:
    """What is done is another thing in each run, so that only how often tells that one is missing."""
    if order["n"] not in ledger.count("note"):
        ledger.do("note", order["n"], key=order["n"])
        bank.do("pay", time.time(), key=order["n"])
    return order


@pytest.mark.long
@pytest.mark.parametrize("function", ["noted_first", "noted_first_at_a_time"])
def test_what_was_noted_and_then_not_done_is_told_of_its_own_message(function: str) -> None:
    """X-24, X-25, X-36: the process ends between the note and what it is of; nothing was put off."""
    told = told_of(function)
    decides = re.search(
        r"decides: the process ends while pay \(\S+\) handles #(\d), between ledger note (\d) and that, which pay "
        r"leaves out when #\1 is tried again\. #\1 is \{\"n\":\2\}",
        told,
    )
    assert decides, told
    assert "put off" not in told
    what = decides[2] if function == "noted_first" else r"for the \S+ time"
    assert re.search(f"bank pay {what} was never done: without", told), told


def in_threes(order: Order) -> Order:
    """What waits for the others is lost with the process."""
    waiting.append(order["n"])
    if len(waiting) == 3:
        bank.do("pay", str(waiting), key=str(waiting))
        waiting.clear()
    return order


@pytest.mark.long
def test_what_was_put_off_is_told_of_a_message_that_waited_for_others() -> None:
    """X-24, X-25, X-36: those before were done with."""
    told = told_of("in_threes")
    assert re.search(r"and what pay \(\S+\) has put off is gone, of #\d too\.", told), told


def running_total(order: Order) -> Order:
    """Each attempt adds to it once more."""
    balance.append(order["n"])
    bank.do("tell", sum(balance), key=order["n"])
    return order


@pytest.mark.long
def test_what_is_done_instead_is_told_where_each_message_does_it_by_itself() -> None:
    """X-24, X-25, X-36: a total that a crash or a second attempt has made another one was not put off."""
    told = told_of("running_total")
    assert re.search(r"decides: pay \(\S+\) does bank tell \d+ for #\d instead\.", told), told
    assert "put off" not in told


def at_the_first_attempt(order: Order, context: Context) -> Order:
    """That may fail before."""
    if context.attempt == 1:
        bank.do("pay", order["n"], key=order["n"])
    return order


def each_is_paid(run: RunOutcome) -> bool:
    """A check that looks."""
    del run
    return len(bank.count("pay")) == 6


@pytest.mark.long
@pytest.mark.parametrize("check", ["", "each_is_paid"])
def test_what_only_a_first_attempt_does_is_told_to_follow_from_the_attempt(check: str) -> None:
    """X-24, X-25: nothing was kept for later or noted, and the stage that does it is the one that decides."""
    told = told_of("at_the_first_attempt", check)
    assert "pay asks for context.attempt, and does it at the first attempt alone" in told
    assert re.search(r"decides: pay \(\S+\) is through with #\d and has not done that\.", told), (
        told
    )
    assert "keeps for later" not in told


def counted_tries(order: Order, context: Context) -> Order:
    """It asks which attempt this is, for another reason."""
    return noted_first(order) if context.attempt else order


def test_a_stage_that_asks_for_the_attempt_for_another_reason_is_not_said_to_go_by_that() -> None:
    """X-24: it would do the same if the first attempt that it sees were a second one."""
    told = told_of("counted_tries")
    assert "between ledger note" in told
    assert "context.attempt" not in told


def test_so_many_of_an_action_are_no_others_than_those_that_are_named() -> None:
    """X-24: where two are missing, both are told by what they are of and by how many there are."""
    named = ("bank", "pay", 3), ("bank", "pay", 4)
    numbers = ("bank", "pay", Nth(5)), ("bank", "pay", Nth(6))
    assert so_many([*named, *numbers]) == so_many(numbers) == so_many([named[0], *numbers]) == 2
    assert so_many([*named, ("mail", "send", Nth(1))]) == 3
