"""A handler behind a stream pipe, on the production actors, in a world of faults."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Generator, Mapping

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate.campaign import draw_for, repeat, run_one, run_seeds, shrunk
from surepipe.pipelines.simulate.simulating import handler_subject, simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.options import Options
from tests.pipelines.simulate.kit import MESSAGES, bank

CALL = "receiver: handler 3 of bank/pipe"


def test_without_faults_each_message_is_handled_once() -> None:
    """The calls are counted (simulation X-28, XT-15)."""
    result, outcome = run_one(bank(with_key=True), Options(messages=MESSAGES))
    assert (result.limit, result.violations) == ("", ())
    assert outcome.calls == {"handler": MESSAGES}
    assert outcome.outsides[0].repeated() == []


def test_a_run_is_repeated_by_its_seed_and_by_its_script() -> None:
    """Twelve seeds, each three times: the rows are equal (simulation X-1, X-34)."""
    subject = bank(with_key=True)
    for seed in range(12):
        options = draw_for(subject, seed, mode="claim", messages=MESSAGES)
        first, _ = run_one(subject, options)
        assert run_one(subject, options)[0].digest == first.digest
        again = repeat(subject, first.script)
        assert (again.stale, again.digest) == (None, first.digest)


def test_with_a_key_the_customer_is_charged_once_whatever_is_promised_to_be_survived() -> None:
    """Forty seeds of all faults of the claim (simulation X-26, X-70)."""
    found = run_seeds(bank(with_key=True), range(40), messages=MESSAGES, has_check=True)
    assert dict(found.violated) == {}
    assert found.missing == ()


def test_without_a_key_the_campaign_finds_the_second_charge_and_makes_it_short() -> None:
    """The effect stands before the commit, so one crash in between repeats it (simulation X-26, XT-14)."""
    subject = bank(with_key=False)
    found = run_seeds(subject, range(40), messages=MESSAGES, has_check=True, stop_at_first=True)
    assert found.first is not None
    assert found.first.violation.property == "user"
    least = shrunk(subject, found.first)
    assert len(least.script.decisions) <= 6
    assert "happened" in least.violation.sentence
    assert repeat(subject, least.script).digest == least.result.digest


def _crashed(at: str, point: int) -> tuple[int, int]:
    """How often the third message was handled and charged when its process ends there."""
    crash = Decision("faults/receiver", at, "crash", (point, 1000), "F10")
    subject = bank(with_key=False)
    script = Script("bank", Options(messages=MESSAGES).plain(), (crash,))
    result = repeat(subject, script)
    assert result.stale is None
    calls = sum(row.kind == "called" and row.seq == 3 for row in result.rows)
    charges = sum(row.kind == "effect" and "charge 2" in row.detail for row in result.rows)
    return calls, charges


def test_a_process_may_end_before_a_call_within_it_and_after_it() -> None:
    """One script for each position around the call of the third message (simulation X-18, X-27)."""
    assert _crashed(CALL, -1) == (1, 1)
    assert _crashed("receiver: bank charge 2", -1) == (2, 1)
    assert _crashed("receiver: bank charge 2", 0) == (2, 2)
    assert _crashed(CALL, 0) == (2, 2)


def test_a_decision_that_finds_nothing_makes_a_replay_stale() -> None:
    """A message that does not exist (simulation X-34, XT-8)."""
    crash = Decision("faults/receiver", "receiver: handler 99 of bank/pipe", "crash", (0, 0), "F10")
    script = Script("bank", Options(messages=MESSAGES).plain(), (crash,))
    assert repeat(bank(with_key=True), script).stale is not None


def _around(handler: Callable[[object], object], check: Callable[[object], object]) -> PlanSubject:
    return handler_subject(lambda: (handler, check), [{"n": n} for n in range(4)])


def test_what_a_handler_gives_to_be_awaited_is_awaited_as_in_a_run() -> None:
    """A plain function around a coroutine; the check is a coroutine, too, and its answer counts."""
    seen: list[object] = []

    async def later(message: object) -> None:
        await asyncio.sleep(0.01)
        seen.append(message)

    async def check(run: object) -> bool:
        del run
        return len(seen) < 4

    def handle(message: object) -> object:
        return later(message)

    result, outcome = run_one(_around(handle, check), Options(messages=4))
    assert (len(seen), outcome.calls) == (4, {"handler": 4})
    assert [one.property for one in result.violations] == ["user"]
    assert "it gave False" in result.violations[0].sentence


def test_a_check_that_nobody_has_run_does_not_hold() -> None:
    """A generator is true, whatever its body would say."""

    def check(run: object) -> Generator[object]:
        yield run

    result, _ = run_one(_around(lambda message: message, check), Options(messages=4))
    assert "whose body nobody would run" in result.violations[0].sentence


BEFORE = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: shop.db, durability: process}}}}
sources: {{lines: {{kind: jsonl, path: none.jsonl}}}}
pipes: {{intake: {{from: lines, journal: main, state: main, boundary: before}}}}
stages: {{last: {{from: intake, map: "{__name__}:fussy", retries: 1, dead_letter: main/dead}}}}
sinks: {{out: {{from: last, kind: jsonl, path: out.jsonl}}}}
"""


def fussy(message: Mapping[str, int]) -> Mapping[str, int]:
    """Refuses one."""
    if message["n"] == 2:
        raise ValueError("not this one")
    return message


def test_a_letter_at_boundary_before_is_no_repeat_of_its_message() -> None:
    """It was settled before it was handled (simulation X-21)."""
    rows = [{"n": number} for number in range(4)]
    subject = simulation_of(loads(BEFORE), messages={"lines": rows}).subject
    result, _ = run_one(subject, Options(messages=len(rows)))
    assert sum(row.kind == "dead" for row in result.rows) == 1
    assert result.violations == ()


def test_an_interrupt_is_raised_when_the_run_in_hand_is_over() -> None:
    """Ctrl-C in the middle of a stage that catches everything: the campaign ends, and not that message."""
    handled: list[object] = []

    def handle(message: object) -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT) if not handled else None
        handled.append(message)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_one(_around(handle, bool), Options(messages=4))
    assert len(handled) == 4
    assert signal.getsignal(signal.SIGINT) is before
