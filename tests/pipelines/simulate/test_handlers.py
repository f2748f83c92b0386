"""A handler behind a stream pipe, on the production actors, in a world of faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines import loads
from surepipe.pipelines.simulate.campaign import draw_for, repeat, run_one, run_seeds, shrunk
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.simulate.simulating import (
    NotExercised,
    Simulated,
    SimulationFailed,
    handler_subject,
    simulation_of,
)
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.options import Options
from tests.pipelines.simulate.kit import MESSAGES, Order, bank, same

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


def _both(handler: Callable[..., object], check: Callable[[RunOutcome], object]) -> object:
    """What a builder gives."""
    return handler, check


def _alone(handler: Callable[[Order], object]) -> object:
    return handler


def _of_four(builder: Callable[[], object]) -> PlanSubject:
    return handler_subject(builder, [{"n": n} for n in range(4)])


def test_what_a_handler_gives_to_be_awaited_is_awaited_as_in_a_run() -> None:
    """A plain function around a coroutine; the check is a coroutine, too, and its answer counts."""
    counts: list[int] = []

    def build() -> object:
        seen: list[object] = []

        async def later(message: object) -> None:
            await asyncio.sleep(0.01)
            seen.append(message)

        async def check(run: object) -> bool:
            del run
            counts.append(len(seen))
            return len(seen) < 4

        def handle(message: object) -> object:
            return later(message)

        return handle, check

    result, outcome = run_one(_of_four(build), Options(messages=4))
    assert (counts[-1], outcome.calls) == (4, {"handler": 4})
    assert [one.property for one in result.violations] == ["user"]
    assert "it gave False" in result.violations[0].sentence


def test_a_check_that_nobody_has_run_does_not_hold() -> None:
    """A generator is true, whatever its body would say."""

    def check(run: object) -> Generator[object]:
        yield run

    result, _ = run_one(_of_four(lambda: (same, check)), Options(messages=4))
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
        run_one(_of_four(lambda: (handle, bool)), Options(messages=4))
    assert len(handled) % 4 == 0  # no run was left in its middle
    assert signal.getsignal(signal.SIGINT) is before


# A handler alone is judged as the stage of a file is.

ROWS = [{"id": number} for number in range(6)]


def _of(builder: Callable[[], object], faults: str = "none") -> Simulated:
    return simulation_of(builder, messages=ROWS, faults=faults).run(range(4))


def _raises() -> object:
    def handle(order: object) -> None:
        raise TypeError(f"a typo of mine: {order}")

    return handle


def _swallows() -> object:
    bank = Outside()

    def handle(order: Order, context: Context) -> None:
        with contextlib.suppress(Exception):
            bank.do("charge", order["idd"], key=context.id)

    return handle


def _gives_no_key() -> object:
    bank = Outside("bank")
    return _alone(lambda order: bank.do("charge", order["id"]))


def _shares_its_key() -> object:
    bank = Outside("bank")
    return _alone(lambda order: bank.do("charge", order["id"] % 2, key=order["id"] % 2))


def _numbers_effects() -> object:
    seen: list[int] = []
    shop = Outside("shop")

    def number(order: Order, context: Context) -> None:
        seen.append(order["id"])
        shop.do("number", (order["id"], len(seen)), key=context.id)

    return number


def _numbers_answers() -> object:
    count = 0

    def number(order: Order) -> object:
        nonlocal count
        count += 1
        return {**order, "number": count}

    return number


def _answers_by_attempt() -> object:
    def handle(order: Order, context: Context) -> object:
        return {**order, "again": context.attempt > 1}

    return handle


def _keeps_for_later() -> object:
    shop = Outside("shop")
    waiting: list[int] = []

    def handle(order: Order) -> None:
        waiting.append(order["id"])
        while len(waiting) > 2:
            shop.do("send", waiting[0], key=waiting.pop(0))

    return handle


UNJUDGED: Mapping[str, tuple[Callable[[], object], str]] = {
    "raises": (_raises, r"not exercised: nothing of messages comes out.*fails for 6 of 6 messages \(TypeError: a"),
    "swallows": (_swallows, r"not judged: stage handler suppresses every exception at .*test_handlers\.py:\d+"),
    "no key": (_gives_no_key, r"not judged: stage handler does bank charge 0 without a key"),
    "shared key": (_shares_its_key, r"not judged: stage handler.* with the key '?0'? for 3 messages that differ"),
    "numbered effects": (
        _numbers_effects,
        r"what handler does outside differs with the order.*stage handler keeps seen \(test_handlers\.py:\d+\)",
    ),
    "numbered answers": (
        _numbers_answers,
        r"what handler answers differs with the order.*stage handler keeps count \(test_handlers\.py:\d+\)",
    ),
    "by attempt": (_answers_by_attempt, r"not judged: stage handler .*answers .*when that is tried again"),
    "later": (_keeps_for_later, r"not judged: stage handler.* does shop send 2 while it handles"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("what", UNJUDGED)
def test_a_handler_without_a_check_is_not_held_where_a_file_would_not_be(what: str) -> None:
    """What no run shows of it was green under pytest, and "not judged" (3) as a stage of a file (X-70)."""
    builder, said = UNJUDGED[what]
    with pytest.raises(NotExercised, match=said) as raised:
        _of(builder)
    assert "simulate:" not in str(raised.value)  # nobody has a file there


def _asked(outsides: Iterable[Outside]) -> Iterator[Outside]:
    return (one for one in outsides if one.count("charge"))


CHECKED: Mapping[str, Callable[[Outside, RunOutcome], object]] = {
    "counts": lambda bank, _: bank.count("charge") != {},
    "looks through all": lambda bank, _: (len(ROWS) - 1) in [value for _, value in bank.done()],
    "asks what was repeated": lambda bank, _: not bank.repeated(),
    "one by one": lambda _, run: (
        len(run.outsides) == len({id(one) for one in _asked(run.outsides)})
    ),
    "by the run": lambda _, run: run.outsides[0].count("charge") != {},
}


@pytest.mark.parametrize("how", CHECKED)
def test_an_effect_without_a_key_is_judged_by_a_check_that_looks_at_it(how: str) -> None:
    """It says what has to hold outside."""

    def build() -> object:
        bank = Outside("bank")

        def charge(order: Order) -> None:
            bank.do("charge", order["id"])

        return _both(charge, lambda run: CHECKED[how](bank, run))

    assert _of(build).runs == 4


def _compares_for_nobody(bank: Outside) -> object:
    return bank.count("charge") == {one["id"]: 1 for one in ROWS}


def _calls_a_helper(bank: Outside) -> None:
    _compares_for_nobody(bank)


def _only_tells(bank: Outside) -> None:
    logging.getLogger(__name__).debug("charged: %s", bank.count("charge"))


TOOTHLESS: Mapping[str, Callable[[Outside], object]] = {
    "a helper compares, and nobody looks at what it says": _calls_a_helper,
    "tells": _only_tells,
    "minds no number": lambda bank: 99 not in [value for _, value in bank.done()],
    "gives what is true of any": lambda bank: len(bank.count("charge")) >= 0,
}


@pytest.mark.parametrize("what", TOOTHLESS)
def test_a_check_that_says_yes_to_nothing_and_to_too_much_has_judged_nothing(what: str) -> None:
    """It looks at the effect without a key, and never says no for the sake of that; so the test was green."""

    def build() -> object:
        bank = Outside("bank")

        def charge(order: Order) -> None:
            bank.do("charge", order["id"])

        return _both(charge, lambda _: TOOTHLESS[what](bank))

    said = r"charge 0 without a key.*accepts a run in which nothing of it happened"
    with pytest.raises(NotExercised, match=said):
        _of(build)


def test_an_effect_without_a_key_is_not_judged_by_a_check_of_something_else() -> None:
    """The check asks for the dead letters and for another effect; a stage that asks is no check."""

    def build() -> object:
        bank, mail = Outside("bank"), Outside("mail")

        def handle(order: Order, context: Context) -> None:
            if order["id"] not in bank.count("refund"):
                bank.do("charge", order["id"])
            mail.do("send", order["id"], key=context.id)

        return _both(handle, lambda run: run.dead == 0 and len(mail.count("send")) == len(ROWS))

    with pytest.raises(
        NotExercised, match="not judged: stage handler does bank charge 0 without a key"
    ):
        _of(build)


def test_the_order_that_effects_depend_on_is_for_a_check_that_looks_at_them() -> None:
    """One that looks elsewhere says nothing of them."""

    def looking(is_looking: bool) -> Callable[[], object]:
        def build() -> object:
            seen: list[int] = []
            shop = Outside("shop")

            def number(order: Order, context: Context) -> None:
                seen.append(order["id"])
                shop.do("number", (order["id"], len(seen)), key=context.id)

            return _both(
                number, lambda run: run.dead == 0 and (not is_looking or shop.count("number"))
            )

        return build

    assert _of(looking(is_looking=True)).runs == 4
    with pytest.raises(NotExercised, match="what handler does outside differs with the order"):
        _of(looking(is_looking=False))


def test_a_handler_that_is_to_refuse_all_messages_says_so_in_its_check() -> None:
    """Who looks at the dead letters knows of them; a check of something else does not."""

    def refuse(order: Order) -> None:
        raise TypeError(f"a typo of mine: {order}")

    assert _of(lambda: _both(refuse, lambda run: run.dead == len(ROWS))).dead == 4 * len(ROWS)
    with pytest.raises(NotExercised, match="nothing of messages comes out, even without faults"):
        _of(lambda: _both(refuse, lambda run: run.calls["handler"] > 0))
    with pytest.raises(NotExercised, match="nothing of messages comes out, even without faults"):
        _of(lambda: _both(refuse, lambda run: run.dead >= 0))


def _refuses(run: RunOutcome) -> bool:
    return run.dead == 99


def test_a_check_that_is_handed_to_simulate_judges_a_handler_too() -> None:
    """It was left aside without a word; and one that says nothing is refused, whoever gives it."""
    with pytest.raises(SimulationFailed, match="your check fails without any fault"):
        simulation_of(lambda: len, messages=["a"], check=_refuses).run(range(2))

    def says_nothing(run: RunOutcome) -> None:
        all([run.dead == 99])

    with pytest.raises(ConfigurationError, match="the check says nothing with what stands at"):
        simulation_of(lambda: (len, says_nothing), messages=["a"])


@pytest.mark.long
def test_a_coroutine_is_a_handler_as_any_other() -> None:
    """It is awaited, and its process may end while it waits."""

    def build(key: bool) -> Callable[[], object]:
        def made() -> object:
            bank = Outside("bank")

            async def charge(order: Order, context: Context) -> None:
                await asyncio.sleep(0.01)
                bank.do("charge", order["id"], key=context.id if key else None)

            return _both(charge, lambda _: bank.count("charge") == {one["id"]: 1 for one in ROWS})

        return made

    assert simulation_of(build(True), messages=ROWS).run(range(20)).runs == 20
    with pytest.raises(SimulationFailed, match="happened twice"):
        simulation_of(build(False), messages=ROWS).run(range(40))


class Numbers:
    """A handler that counts in itself."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, order: object) -> object:
        self.count += 1
        return order


def test_what_a_handler_keeps_and_no_simulated_crash_takes_is_noted() -> None:
    """Its check may look there, so it stays; in variables around it, and in an object. Nothing else is noted."""

    def beside() -> object:
        seen: list[object] = []

        def note(order: object) -> None:
            seen.append(order)

        def handle(order: object) -> None:
            note(order)

        return _both(handle, lambda _: len(seen) >= len(ROWS))

    (around,) = _of(beside).notes
    assert re.match(
        r"the handler keeps seen \(test_handlers\.py:\d+\) between calls, which", around
    )
    (inside,) = _of(lambda: _both(Numbers(), lambda _: True)).notes
    assert re.match(rf"the handler keeps {__name__}\.Numbers\.count \(test_handlers", inside)
    assert _of(lambda: _both(len, lambda _: True)).notes == ()


@pytest.mark.long
def test_a_failure_of_a_handler_names_no_file_that_nobody_has() -> None:
    """What is said of a stage's defect speaks of the check beside the handler."""

    def build() -> object:
        bank = Outside("bank")
        once = {order["id"]: 1 for order in ROWS}

        def charge(order: Order) -> None:
            bank.do("charge", order["id"])

        return _both(charge, lambda _: bank.count("charge") == once)

    with pytest.raises(SimulationFailed) as failed:
        simulation_of(build, messages=ROWS).run(range(40))
    assert "say what has to hold outside (a check beside the handler)" in str(failed.value)


@pytest.mark.long
def test_an_effect_may_have_a_list_or_a_dict_as_its_value() -> None:
    """X-25: it is compared as it was then, with a key and without, in the check too."""

    def builder(*, with_key: bool) -> Callable[[], object]:
        def build() -> object:
            bank = Outside("bank")

            def charge(order: Order, context: Context) -> None:
                key, value = (
                    context.id.key if with_key else None,
                    [order["id"], {"of": {*"badcfe"}}],
                )
                bank.do("charge", value, key=key)
                bank.do("note", {"id": order["id"], "for": value}, key=key)
                value.clear()

            def check(_: object) -> bool:
                notes = {note["id"] for note in bank.count("note")}  # type: ignore[index]
                return notes == {one[0] for one in bank.count("charge")} and not bank.repeated()  # type: ignore[index]

            return charge, check

        return build

    assert _of(builder(with_key=True)).runs
    said = r"charge \(\d, \{'of': \{'a', 'b', 'c', 'd', 'e', 'f'\}\}\) happened twice"
    with pytest.raises(SimulationFailed, match=said):
        simulation_of(builder(with_key=False), messages=ROWS).run(range(40))


def test_an_effect_that_cannot_be_counted_is_told_with_its_line_and_what_to_give() -> None:
    """simulation X-25, in a run and in a plain test of the function."""
    bank = Outside("bank")

    def charge(order: Order) -> None:
        bank.do("charge", [bytearray(), order["id"]])

    line = charge.__code__.co_firstlineno + 1
    said = rf"bank\.do\('charge', \[bytearray\(b''\), 1\]\) \(test_handlers\.py:{line}\): "
    with pytest.raises(
        TypeError, match=said + ".*bytearray has no hash: give what names the effect"
    ):
        charge({"id": 1})
    with pytest.raises((SimulationFailed, NotExercised), match=r"bytearray\s+has\s+no\s+hash"):
        simulation_of(lambda: charge, messages=ROWS).run(range(2))


def test_what_is_told_of_a_handler_alone_speaks_of_no_file() -> None:
    """X-70: it has no store, no sample and no line for a check."""

    def counting() -> object:
        bank, seen = Outside("bank"), list[object]()

        def charge(order: Mapping[str, object]) -> None:
            seen.append(order)
            bank.do("charge", len(seen), key=order["id"])

        return charge

    def drawing() -> object:
        bank = Outside("bank")

        def charge(order: Mapping[str, object]) -> None:
            bank.do("charge", random.randint(0, 1_000_000), key=order["id"])

        return charge

    rows = [{"id": number} for number in range(4)]
    with pytest.raises(SimulationFailed, match="was never done") as found:
        simulation_of(counting, messages=rows, faults="bad-stage").run(range(20))
    told = " ".join(str(found.value).split())
    assert "here that is an Outside, with a key" in told
    assert "context.transaction" not in told, told
    (note,) = simulation_of(drawing, messages=rows, faults="none").run(range(2)).notes
    assert "draws numbers" in note
    assert note.endswith("(a check beside the handler)"), note
