"""What runs are compared with is itself held against the plan's functions, called without an engine."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.run import flow
from surepipe.pipelines.simulate.campaign import CannotSimulate, run_one
from surepipe.pipelines.simulate.ends import RunOutcome, times_of
from surepipe.pipelines.simulate.memory import in_transaction
from surepipe.pipelines.simulate.reference import played
from surepipe.pipelines.simulate.simulating import (
    NotExercised,
    Simulation,
    SimulationFailed,
    handler_subject,
    simulation_of,
)
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside
from surepipe.simulation.options import Options
from tests.pipelines.simulate.kit import HEAD, orders

SAMPLE = (
    "simulate: {messages: 6, sample: {lines: [{n: 1}, {n: 2}, {n: 3}, {n: 4}, {n: 5}, {n: 6}]}}\n"
)
Order = Mapping[str, int]


def keep(order: Order) -> Order:
    """Nothing is done."""
    return order


def odd(order: Order) -> bool:
    """Every second one."""
    return order["n"] % 2 == 1


def above_ten(order: Order) -> bool:
    """None of the sample."""
    return order["n"] > 10


def refuse(order: Order) -> Order:
    """A field that no message has."""
    return {"n": order["price"]}


def simulation(
    parts: str, *, faults: str = "none", head: str = HEAD, sample: str = SAMPLE
) -> Simulation:
    """The plan of a head and these parts. Functions are those of this module."""
    text = f"{head}{parts}{sample}".replace("CALL ", f"{__name__}:")
    return simulation_of(loads(text), faults=faults)


ONE_STAGE = """\
stages: {work: {from: intake, call: "CALL keep"}}
sinks: {out: {from: work, kind: jsonl, path: out.jsonl}}
"""


def _stage(kind: str, name: str, more: str = "") -> str:
    return ONE_STAGE.replace('call: "CALL keep"', f'{kind}: "CALL {name}"{more}')


Made = Callable[[object, object, object], None]


def drops(call: Made, following: Made, left_out: object, *, all_: bool) -> Made:
    """An engine that calls stages and forgets what they give."""
    del following, left_out, all_
    return call


def repeats(call: Callable[..., object], following: Made, left_out: object, *, all_: bool) -> Made:
    """An engine that hands over twice."""
    del left_out, all_

    def run(message: object, about: object, turn: object) -> None:
        result = call(message, about, turn)
        following(result, about, turn)
        following(result, about, turn)

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (drops, r"P2 no loss[\s\S]*1 message never came out: \{\"n\":1\}"),
        (repeats, r"P3 no duplicate[\s\S]*came out once too often"),
    ],
    ids=["drops", "repeats"],
)
def test_an_engine_that_does_the_same_wrong_in_every_run_is_found(
    monkeypatch: pytest.MonkeyPatch, engine: object, said: str
) -> None:
    """X-1, X-4, XT-15: planted where the engine hands on what a stage gave; no fault is needed."""
    assert simulation(ONE_STAGE).run(range(2)).runs == 2
    monkeypatch.setattr(flow, "_single", engine)
    with pytest.raises(SimulationFailed, match=said):
        simulation(ONE_STAGE).run(range(2))


def forgets(call: Made, following: Made, left_out: object, *, all_: bool) -> Made:
    """An engine that calls nothing."""
    del call, following, left_out, all_

    def run(message: object, about: object, turn: object) -> None:
        del message, about, turn

    return run


EFFECT = 'stages: {work: {from: intake, call: "CALL keep"}}\n'


def test_an_engine_that_never_calls_the_last_stage_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """X-28: its messages are settled all the same; of a file, and of a handler alone."""
    assert simulation(EFFECT).run(range(2)).calls == {"work": 12}
    monkeypatch.setattr(flow, "_single", forgets)
    with pytest.raises(SimulationFailed, match=r"P2 no loss[\s\S]*work: 1 message never came out"):
        simulation(EFFECT).run(range(2))
    alone = simulation_of(lambda: keep, messages=[{"n": 1}, {"n": 2}], faults="none")
    with pytest.raises(SimulationFailed, match=r"P2 no loss[\s\S]*handler: 2 messages never came"):
        alone.run(range(2))


def forgets_to_return(order: Order) -> None:
    """What it makes of its message is for nobody."""
    keep({**order, "seen": True})


def test_a_stage_that_gives_nothing_at_all_is_asked_for_its_return() -> None:
    """X-29: it may be meant, and mostly is not."""
    forgets = EFFECT.replace("CALL keep", "CALL forgets_to_return") + (
        "sinks: {out: {from: work, kind: jsonl, path: out.jsonl}}\n"
    )
    said = r"forgets_to_return\) gives nothing for 6 of 6 messages \(is its return forgotten\?\)"
    with pytest.raises(NotExercised, match=said):
        simulation(forgets).run(range(2))


FILTERED = """\
stages:
  some: {from: intake, filter: "CALL odd"}
  large: {from: some, filter: "CALL above_ten"}
sinks:
  out: {from: some, kind: jsonl, path: out.jsonl}
  alarms: {from: large, kind: jsonl, path: alarms.jsonl}
"""


def test_a_sink_that_gets_nothing_is_not_exercised_and_the_filters_are_named() -> None:
    """X-4, X-29: unless the file says that this is meant; what is left out on purpose is counted."""
    said = (
        rf"alarms gets no message, even without faults: filter some \({__name__}:odd\) gives nothing for 3 of 6 "
        rf"messages; filter large \({__name__}:above_ten\) gives nothing for 3 of 3 messages"
    )
    with pytest.raises(NotExercised, match=said):
        simulation(FILTERED).run(range(2))
    meant = SAMPLE.replace("{messages", "{may_be_empty: [alarms], messages")
    found = simulation(FILTERED, sample=meant).run(range(2))
    assert found.left_out == {"some": 3, "large": 3}


def put_what_no_store_takes(order: Order, context: Context) -> Order:
    """A value that is no table of values: only the store sees that, when the stage is through."""
    assert context.transaction is not None
    context.transaction.put("x", cast("Mapping[bytes, bytes]", b"1"))
    return order


REFUSED = (
    rf"pipe {{}} fails for 6 of 6 messages after stage work "
    rf"\(test_reference\.py:{put_what_no_store_takes.__code__.co_firstlineno}\) "
    r"\(ConfigurationError: the transaction was refused, and nothing of it was done: a key is 49: "
    r"give 1 to 1024 bytes\)\. Mend that"
)


def test_a_sink_that_gets_nothing_as_the_store_refuses_each_transaction_is_not_exercised() -> None:
    """X-4: the functions alone would have filled it; what the store said of it is told."""
    parts = _stage("call", "put_what_no_store_takes", ", retries: 2, dead_letter: main/dead")
    said = "out gets no message, even without faults: " + REFUSED.format("intake")
    with pytest.raises(NotExercised, match=said):
        simulation(parts).run(range(2))


def test_a_source_all_of_whose_messages_are_refused_is_not_exercised() -> None:
    """X-4: the sink has what the other source gives."""
    head = HEAD.replace("sources: {", "sources: {other: {kind: stdin}, ")
    head += "  second: {from: other, journal: main, state: main, boundary: committed}\n"
    parts = (
        'stages: {work: {from: second, call: "CALL put_what_no_store_takes", '
        "retries: 2, dead_letter: main/dead}}\n"
        "sinks: {out: {from: [intake, work], kind: jsonl, path: out.jsonl}}\n"
    )
    sample = SAMPLE.replace("lines: [", "other: [{n: 1}], lines: [")
    said = "nothing of other comes out, even without faults: " + REFUSED.format("second")
    with pytest.raises(NotExercised, match=said):
        simulation(parts, head=head, sample=sample).run(range(2))


def test_a_stage_that_fails_for_every_message_is_named_with_its_error() -> None:
    """X-4: all messages become dead letters, and the sink gets none."""
    parts = ONE_STAGE.replace('"CALL keep"', '"CALL refuse", retries: 2, dead_letter: main/dead')
    with pytest.raises(
        NotExercised, match=r"work .* fails for 6 of 6 messages \(KeyError: 'price'\)"
    ):
        simulation(parts).run(range(2))


TWO_SOURCES = """\
version: 1
name: shop
sources: {lines: {kind: stdin}, other: {kind: stdin}}
pipes: {intake: {from: lines}, second: {from: other}}
"""
TWO_WAYS = """\
stages:
  work: {from: intake, call: "CALL keep"}
  large: {from: second, filter: "CALL above_ten"}
sinks: {out: {from: [work, large], kind: jsonl, path: out.jsonl}}
"""


def test_a_source_of_which_nothing_comes_out_is_told() -> None:
    """X-4: the sink gets what the other source has."""
    sample = SAMPLE.replace("lines: [", "other: [{n: 1}], lines: [")
    with pytest.raises(
        NotExercised, match="nothing of other comes out, even without faults: filter"
    ):
        simulation(TWO_WAYS, head=TWO_SOURCES, sample=sample).run(range(2))


BANK = Outside("bank")


def charge(order: Order) -> Order:
    """Without a key."""
    BANK.do("charge", order["n"])
    return order


def charge_by_key(order: Order, context: Context) -> Order:
    """As it should be."""
    BANK.do("charge", order["n"], key=context.id)
    return order


def all_charged_once(run: object) -> bool:
    """It knows how many messages there are."""
    del run
    return BANK.count("charge") == dict.fromkeys(range(1, 7), 1)


@pytest.mark.long
def test_a_check_that_knows_all_messages_is_not_asked_about_fewer() -> None:
    """X-26, X-54: what is made shorter keeps them; the double of a module begins each run anew."""
    checked = SAMPLE.replace("{messages", '{check: "CALL all_charged_once", messages')
    found = simulation(_stage("call", "charge_by_key"), faults="claim", sample=checked)
    assert found.run(range(6)).memory == ()
    with pytest.raises(SimulationFailed, match=r"charge \d happened twice[\s\S]*all_charged_once"):
        simulation(_stage("call", "charge"), faults="claim", sample=checked).run(range(40))


def fetch() -> object:
    """From a server."""
    return socket.socket()


def five() -> int:
    """In its place."""
    return 5


class Priced:
    """Asks a function, and a method, which ask a server."""

    def ask(self) -> object:
        """From a server."""
        return fetch()

    def __call__(self, order: Order) -> Mapping[str, object]:
        """With its prices."""
        return {"n": order["n"], "prices": [fetch(), self.ask()]}


def six(self: object) -> int:
    """In place of a method."""
    del self
    return 6


@pytest.mark.parametrize(
    ("doubles", "prices"),
    [({"fetch": "five"}, [5, 5]), ({"fetch": "five", "Priced.ask": "six"}, [5, 6])],
)
def test_a_double_may_stand_in_for_what_a_stage_calls(
    doubles: dict[str, str], prices: list[int]
) -> None:
    """X-26: the lines that the command prints name the function that was at work, whoever called it."""
    with pytest.raises(CannotSimulate, match="opens a socket"):
        simulation(_stage("map", "Priced")).run(range(1))
    named = ", ".join(f'"CALL {real}": "CALL {double}"' for real, double in doubles.items())
    sample = SAMPLE.replace("{messages", f"{{replace: {{{named}}}, messages")
    found = simulation(_stage("map", "Priced"), sample=sample)
    _, outcome = run_one(found.subject, Options(messages=1))
    assert outcome.delivered["out"] == [{"n": 1, "prices": prices}]
    assert (fetch.__name__, Priced.ask.__name__) == ("fetch", "ask")


def add(order: dict[str, int]) -> dict[str, int]:
    """To the message itself."""
    order["n"] += 1
    return order


def test_a_stage_before_the_pipe_may_change_its_message() -> None:
    """X-24: the next run, and the next life, find the row as it was."""
    head = HEAD.replace("from: lines", "from: work")
    parts = ONE_STAGE.replace("from: intake", "from: lines").replace("from: work", "from: intake")
    found = simulation(parts.replace("keep", "add"), head=head, faults="claim")
    assert found.run(range(6)).runs == 6


def test_what_no_engine_can_be_made_of_can_not_be_simulated() -> None:
    """X-22: it is refused for what it is, and is no finding."""
    parts = """\
  second: {from: lines, journal: main}
sinks: {out: {from: [intake, second], kind: jsonl, path: out.jsonl}}
"""
    with pytest.raises(CannotSimulate, match="pipes that commit to different stores"):
        simulation(parts).run(range(1))


# What is right is not blamed.


class Totals:
    """Memory of its own: what it gives depends on the order."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, order: Order) -> Order:
        """The sum so far."""
        self.total += order["n"]
        return {**order, "total": self.total}


def split(order: Order) -> Iterator[Order]:
    """Two of one."""
    yield {**order, "half": 1}
    yield {**order, "half": 2}


def ends_of(orders: list[Order]) -> list[Order]:
    """Of a batch."""
    return orders


def chosen(order: Order) -> Order | None:
    """By chance."""
    return order if random.random() < 0.5 else None


def drawn(order: Order, context: Context) -> Order:
    """By chance that follows from the identity."""
    return {**order, "bit": context.random.getrandbits(1)}


def named(order: Order, context: Context) -> Mapping[str, object]:
    """By the identity, the clock and chance."""
    return {**order, "id": str(context.id), "at": time.time(), "name": str(uuid4())}


def dated(order: Order) -> Mapping[str, object]:
    """By the day."""
    return {**order, "day": time.strftime("%Y-%m-%d")}


def not_three(order: Order) -> Order:
    """One message fails for ever."""
    if order["n"] == 3:
        raise ValueError("three")
    return order


def at_second_try(order: Order, context: Context) -> Order:
    """Each message fails once."""
    if context.attempt == 1:
        raise ValueError("not yet")
    return order


def as_pair(order: Order) -> tuple[int, object]:
    """JSON has no tuples."""
    return order["n"], {1: None}


BRANCHES = """\
stages:
  work: {from: intake, call: "CALL not_three", retries: 2, dead_letter: main/dead}
  both: {from: intake, call: "CALL keep"}
sinks:
  out: {from: work, kind: jsonl, path: out.jsonl}
  all: {from: both, kind: csv, path: all.csv}
"""
TRIED_APART = """\
stages:
  first: {from: intake, call: "CALL at_second_try", retries: 2, dead_letter: main/dead}
  work: {from: first, call: "CALL not_three", retries: 5, dead_letter: main/dead}
sinks: {out: {from: work, kind: jsonl, path: out.jsonl}}
"""
BATCHES = """\
stages:
  some: {from: intake, batch: {max: 4}}
  work: {from: some, flat-map: "CALL ends_of"}
sinks: {out: {from: work, kind: jsonl, path: out.jsonl}}
"""
SECOND_HOP = """\
  further: {from: work, journal: main, key: n, lanes: 3}
stages:
  work: {from: intake, flat-map: "CALL split"}
  total: {from: further, call: "CALL Totals"}
sinks:
  halves: {from: work, kind: stream, store: main, stream: halves}
  out: {from: total, kind: stdout}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "parts",
    [
        *(_stage("call", name) for name in ("Totals", "drawn", "named", "dated", "as_pair")),
        _stage("call", "at_second_try", ", retries: 3, dead_letter: main/dead"),
        _stage("flat-map", "split"),
        BRANCHES,
        TRIED_APART,
        BATCHES,
        SECOND_HOP.replace("Totals", "drawn"),
        "sinks: {out: {from: intake, kind: csv, path: out.csv}}\n",
    ],
)
@pytest.mark.parametrize("faults", ["none", "clock-step,poison"])
def test_what_the_engine_does_with_right_functions_is_right(parts: str, faults: str) -> None:
    """X-21, X-24: memory, chance, clocks, batches, dead letters, several pipes: none is taken for a loss."""
    asked = (
        faults if "stages:" in parts else faults.removesuffix(",poison")
    )  # else nothing may fail
    assert simulation(parts, faults=asked).run(range(2)).runs == 2


def test_a_total_in_the_object_of_a_stage_is_not_judged_where_order_is_not_promised() -> None:
    """V-1: behind lanes each run has another one, so whether a crash lost half of it can't be told."""
    said = r"stage total keeps \S+\.Totals\.total \(test_reference\.py:\d+\) between calls"
    with pytest.raises(NotExercised, match=said):
        simulation(SECOND_HOP, faults="none").run(range(2))


# What differs from run to run is judged as far as it goes, and nothing else is said to hold.


def named_at_first(order: Order, context: Context) -> Mapping[str, object] | None:
    """A name of chance for each; a second attempt gives nothing."""
    return {**order, "name": str(uuid4())} if context.attempt == 1 else None


def name_alone(order: Order, context: Context) -> str | None:
    """The same, without anything of the message."""
    del order
    return str(uuid4()) if context.attempt == 1 else None


def named_at_each(order: Order, context: Context) -> list[Mapping[str, object]]:
    """As many as there were attempts."""
    return [{**order, "name": str(uuid4())}] * context.attempt


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("call", "named_at_first", r'P2 no loss[\s\S]*never came out: \{"n":\d,"name":"\*"\}'),
        ("call", "name_alone", r'P2 no loss[\s\S]*never came out: "\*"'),
        (
            "flat-map",
            "named_at_each",
            r'P3 no duplicate[\s\S]*\{"n":\d,"name":"\*"\} came out once too',
        ),
    ],
)
def test_what_is_lost_or_repeated_is_found_though_each_run_names_it_otherwise(
    kind: str, name: str, said: str
) -> None:
    """P2, P3, X-4: what all runs without faults agree about is compared: the rest of the message, or at least how
    many there are."""
    with pytest.raises(SimulationFailed, match=said):
        simulation(
            _stage(kind, name, ", retries: 3, dead_letter: main/dead"), faults="bad-stage"
        ).run(range(20))


@pytest.mark.long
def test_the_call_that_gives_nothing_decides_and_none_that_gives_another_name() -> None:
    """X-56: answers that differ in each run anyway tell nothing of whose fault it is."""
    parts = _stage("call", "named_at_first", ", retries: 3, dead_letter: main/dead")
    with pytest.raises(SimulationFailed) as found:
        simulation(parts, faults="bad-stage").run(range(20))
    told = " ".join(str(found.value).split())
    assert re.search(r"decides: work \([^)]*\) gives None for (#\d)[;,] .*\1 never came out", told)
    assert re.search(r"A stage's defect: work \S+ answered None for #", told)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("map", "chosen", "so only its number was compared"),
        ("call", "chosen", "nobody knows whether something was lost"),
    ],
)
def test_what_can_not_be_compared_is_not_said_to_hold(kind: str, name: str, why: str) -> None:
    """X-4: a message that chance leaves out can't be told from a lost one. A check is the user's own word."""
    with pytest.raises(
        NotExercised, match=f"(?s)nothing broke in 2 runs.*\nnot judged: out, because .*{why}"
    ):
        simulation(_stage(kind, name)).run(range(2))
    checked = SAMPLE.replace("{messages", '{check: "CALL some", messages')
    found = simulation(_stage(kind, name), sample=checked).run(range(2))
    assert any("of what out gets, " in note for note in found.notes)


def anything(run: object) -> bool:
    """Nobody minds."""
    return run is not None


def some(run: RunOutcome) -> None:
    """How many is left to chance."""
    assert run.delivered["out"]


@pytest.mark.parametrize("check", ["any_run", "any_number", "another_sink"])
def test_what_can_not_be_compared_is_not_judged_by_a_check_that_does_not_mind_it(
    check: str,
) -> None:
    """X-4: it looks elsewhere, or says yes to whatever comes there. With any check at all it was said to hold."""
    parts = _stage("call", "chosen").replace(
        "sinks: {", "sinks: {all: {from: intake, kind: jsonl, path: all.jsonl}, "
    )
    checked = SAMPLE.replace("{messages", f'{{check: "CALL {check}", messages')
    with pytest.raises(NotExercised, match=r"not judged: out, because .*accepts a run in which n"):
        simulation(parts, sample=checked).run(range(2))


def any_run(run: RunOutcome) -> None:
    """It looks at calls alone."""
    assert run.calls["work"] == 6


def any_number(run: RunOutcome) -> bool:
    """Nobody minds."""
    return len(run.delivered["out"]) >= 0


def another_sink(run: RunOutcome) -> bool:
    """It minds what comes there."""
    return len(run.delivered["all"]) == 6


KEPT_BY_A_SINK = """\
stages: {work: {from: intake, call: "CALL chosen"}}
sinks: {out: {from: work, kind: python, call: "CALL keep_for_check"}}
"""
kept: list[object] = []


def keep_for_check(order: Order) -> None:
    """A sink that keeps what it gets where no run looks."""
    kept.append(order)


def kept_some(run: object) -> bool:
    """How many is left to chance."""
    del run
    return bool(kept)


def kept_no_two(run: object) -> bool:
    """An upper bound."""
    del run
    return len(kept) == len({one["n"] for one in cast("list[Order]", kept)})


def test_what_a_sink_keeps_by_itself_is_judged_by_a_check_that_minds_what_it_does() -> None:
    """X-4: no run knows of it, so nobody can show the check something else; but the sink may do nothing, or all
    of it twice."""
    for check, is_judged in (("kept_some", True), ("kept_no_two", True), ("any_run", False)):
        checked = SAMPLE.replace("{messages", f'{{check: "CALL {check}", messages')
        simulated = simulation(KEPT_BY_A_SINK, sample=checked)
        simulated.campaign(range(1))
        assert ("out" in simulated.judged) == is_judged


def of_seven(run: RunOutcome) -> bool:
    """There are six."""
    if len(run.delivered["out"]) != 7:
        raise AssertionError("seven")
    return True


def of_cents(run: RunOutcome) -> bool:
    """No message has any."""
    return all(message["cents"] for message in cast("list[dict[str, int]]", run.delivered["out"]))


@pytest.mark.parametrize(
    ("check", "why"), [("of_seven", "seven"), ("of_cents", "it raised KeyError: 'cents'")]
)
def test_a_check_that_fails_without_any_fault_is_told_with_what_it_was_given_and_no_schedule(
    check: str, why: str, tmp_path: Path
) -> None:
    """X-56: no delivery decides it, so there is no story of deliveries, and no page of one."""
    checked = SAMPLE.replace("{messages", f'{{check: "CALL {check}", messages')
    simulated = simulation(ONE_STAGE, faults="claim", sample=checked)
    simulated.reports = tmp_path
    with pytest.raises(SimulationFailed) as found:
        simulated.run(range(3))
    told, place = str(found.value), f"at {Path(__file__).name}:"
    assert f"your check fails without any fault: check {check} does not hold ({why} {place}" in told
    assert 'run.delivered["out"]: 6 messages: {"n":1}, {"n":2}, {"n":3}, ...' in told
    assert "decides" not in told
    assert "work raised" not in told
    assert (found.value.page, list(tmp_path.iterdir())) == (None, [])


def test_dead_letters_that_come_without_any_fault_are_noted_where_no_check_minds_them() -> None:
    """Few of them got no note: a third of the rows were told as held."""
    parts = _stage("call", "not_three", LETTERS)
    (note,) = simulation(parts).run(range(2)).notes
    told = f"even without faults there are dead letters (1): call work ({__name__}:not_three) fails for "
    assert note.startswith(f"{told}1 of 6 messages (ValueError: ")
    checked = SAMPLE.replace("{messages", '{check: "CALL one_dead", messages')
    assert simulation(parts, sample=checked).run(range(2)).notes == ()
    assert simulation(ONE_STAGE).run(range(2)).notes == ()


def one_dead(run: RunOutcome) -> bool:
    """It knows of that."""
    return run.dead == 1


def test_a_check_that_fails_without_any_fault_is_told_why_messages_were_set_aside() -> None:
    """X-56: a number of dead letters alone says nothing of what the check misses."""
    checked = SAMPLE.replace("{messages", '{check: "CALL of_seven", messages')
    simulated = simulation(_stage("call", "not_three", LETTERS), faults="claim", sample=checked)
    with pytest.raises(SimulationFailed) as found:
        simulated.run(range(3))
    told = str(found.value)
    assert "  run.dead: 1\n" in told
    assert re.search(
        r"^  work raised ValueError: .* at test_reference.py:\d+, 2 times$", told, re.M
    )


LETTERS = ", retries: 2, dead_letter: main/dead"


async def too_slow(order: Order) -> Order:
    """Longer than it may."""
    await asyncio.sleep(30)
    return order


async def forgetful(order: Order) -> Order:
    """Nobody waits for what it begins."""
    task = asyncio.create_task(too_slow(order))
    return {**order, "is_done": task.done()}


def with_one_key(order: Order) -> Order:
    """Who pays first pays for all."""
    bank.do("pay", order["n"], key="one")
    return order


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "with_one_key",
            r"^A stage's defect: work gives pay 2 the key of pay 1, of another message",
        ),
        ("too_slow", r"^  dead letters: TimeLimit: work took longer than 10\.0 s, 6 times$"),
        ("not_three", r"^  dead letters: ValueError: three, once$"),
        ("forgetful", r"^Note: stage work begins the task too_slow at test_reference\.py:\d+ and"),
    ],
)
def test_a_check_that_fails_without_any_fault_is_told_what_else_is_wrong(
    function: str, said: str
) -> None:
    """X-56: a stage that runs out of time raises nothing, and one that leaves a task behind looks as if all was
    well: either may be what the check misses."""
    checked = SAMPLE.replace("{messages", '{check: "CALL of_seven", messages')
    parts = _stage("call", function, f"{LETTERS}, time_limit_s: 10")
    with pytest.raises(SimulationFailed) as found:
        simulation(parts, faults="claim", sample=checked).run(range(3))
    told = str(found.value)
    assert "your check fails without any fault" in told
    assert re.search(said, told, re.M), told


def called_seldom(run: RunOutcome) -> bool:
    """As often as without faults, the attempts at the third message included."""
    return run.calls["work"] <= 7


def not_again(order: Order, context: Context) -> Order:
    """Refuses what is tried again."""
    if context.attempt > 1:
        raise ValueError("again")
    return order


def all_at_first(run: RunOutcome) -> bool:
    """No dead letter."""
    return run.dead == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("stage", "more", "check", "advice"),
    [
        ("not_again", LETTERS, "all_at_first", "Mend work: after 2 retries its message is set"),
        ("not_three", "", "anything", "Mend work, or give it `retries` and a `dead_letter`"),
    ],
)
def test_nothing_is_advised_that_the_stage_has(
    stage: str, more: str, check: str, advice: str
) -> None:
    """X-56: what can't be taken is set aside already."""
    checked = SAMPLE.replace("{messages", f'{{check: "CALL {check}", messages')
    with pytest.raises(SimulationFailed) as found:
        simulation(_stage("call", stage, more), faults="bad-stage", sample=checked).run(range(20))
    assert f"\n{advice}" in str(found.value)


bank = Outside("bank")


def billed(order: Order, context: Context) -> Mapping[str, object]:
    """Each attempt is a charge. One order is refused on purpose, and each bill is named after its message."""
    if order["n"] == 3:
        raise ValueError("not this one")
    bank.do("charge", order["n"])
    return {**order, "bill": f"bill of {context.id.key}"}


def charged_once(run: RunOutcome) -> bool:
    """Not more often than any order, however often it is tried."""
    return set(bank.count("charge").values()) == {1} and run.dead > 0


@pytest.mark.long
def test_what_a_check_complains_of_is_told_of_its_message_and_not_of_others() -> None:
    """X-56: a letter that the pipeline asks for, and what follows from the id of a message, which is another one
    in each run, are nobody's defect."""
    checked = SAMPLE.replace("{messages", '{check: "CALL charged_once", messages')
    parts = _stage("call", "billed", LETTERS)
    with pytest.raises(SimulationFailed, match="VIOLATED") as found:
        simulation(parts, faults="claim", sample=checked).run(range(20))
    told = " ".join(str(found.value).split())
    repeated = re.search(r"charge (\d) happened twice", told)
    assert repeated
    assert re.search(rf'does it again for (#\d)\. \1 is {{"n":{repeated[1]}}}\.', told)
    for wrong in ("answered", "without faults work gives", "work raised", "Mend work", "must not"):
        assert wrong not in told, told
    assert "A stage's defect, as far as the check speaks of it: stage work does bank charge" in told


@pytest.mark.long
def test_a_letter_that_the_pipeline_asks_for_is_told_as_that() -> None:
    """X-56: the check is about just the message that the stage refuses, whatever happens."""
    checked = SAMPLE.replace("{messages", '{check: "CALL called_seldom", messages')
    parts = _stage("call", "not_three", LETTERS)
    with pytest.raises(SimulationFailed) as found:
        simulation(parts, faults="process-crash", sample=checked).run(range(20))
    told = str(found.value)
    assert "Mend" not in told
    assert "A stage's defect" not in told


@pytest.mark.parametrize(("boundary", "is_said"), [("committed", False), ("processed", True)])
def test_a_transaction_is_advised_as_this_plan_can_have_it(boundary: str, *, is_said: bool) -> None:
    """X-56: a pipe that has it is not told to, and that simulated stores have no SQL is said with it."""
    plan = loads(HEAD.replace("committed", boundary) + ONE_STAGE.replace("CALL ", f"{__name__}:"))
    assert ("which a pipe with boundary: committed has" in in_transaction(plan)) is is_said
    assert "have no SQL, so what uses that needs a double" in in_transaction(plan)


@pytest.mark.parametrize(
    "pipe",
    [
        "journal: main, state: main, boundary: processed, key: n, lanes: 4",
        "key: n, route: {kind: book, store: main}",
    ],
)
def test_no_transaction_is_advised_where_no_pipe_can_have_one(pipe: str) -> None:
    """X-56: ``check`` refuses lanes, and a book, with boundary committed. Another pipe of the plan changes nothing
    for the stage behind these, nor these for a stage that is not behind them."""
    text = HEAD.replace("journal: main, state: main, boundary: committed", pipe)
    text = text.replace(
        "pipes:\n",
        "pipes:\n  other: {from: lines, journal: main, state: main, boundary: committed}\n",
    )
    plan = loads(
        f'{text}stages:\n  work: {{from: intake, call: "{__name__}:late"}}\n'
        f'  more: {{from: other, call: "{__name__}:late"}}\n'
        "sinks:\n  out: {from: work, kind: stdout}\n  rest: {from: more, kind: stdout}\n"
    )
    told = in_transaction(plan, "work")
    assert told.startswith("keep it outside, in a service or a table of its own, under a key")
    assert "boundary: committed, without lanes and without a book" in told
    assert "keep it in a store by context.transaction (" in in_transaction(plan, "more")


def late(order: Order, context: Context) -> Mapping[str, object]:
    """What differs at a second attempt stands behind much that does not."""
    return {"text": "long " * 40, "n": order["n"], "end": f"attempt {context.attempt}"}


def test_two_answers_that_differ_late_are_shown_where_they_differ() -> None:
    """X-56: in the sentence about what was lost, in the step that decides, and in whose fault it is."""
    with pytest.raises(SimulationFailed) as found:
        simulation(
            _stage("call", "late", ", retries: 3, dead_letter: main/dead"), faults="bad-stage"
        ).run(range(20))
    told = " ".join(str(found.value).split())
    assert re.search(r"never came out[^;]*attempt 1", told) or re.search(
        r"attempt 1\S*; \.\.\.", told
    )
    assert re.search(
        r"decides: .* gives \.\.\..*attempt 2.* without faults \.\.\..*attempt 1", told
    )
    assert re.search(r"A stage's defect: .*attempt 2.*attempt 1.* without faults", told)


shared_ledger = Outside("ledger")


def test_a_world_keeps_what_was_done_in_it_when_others_have_been_played() -> None:
    """X-26: an object that modules share is at the beginning of each run as if nothing had been done to it."""

    def build() -> object:
        def note(order: Mapping[str, int]) -> None:
            shared_ledger.do("note", order["id"], key=order["id"])

        return note

    subject = handler_subject(build, orders(), "ledger")
    first, second = (played(subject, Options(messages=messages)) for messages in (3, 5))
    once = {("ledger", "note", n): 1 for n in range(5)}
    assert times_of(first.outsides).items() >= dict([*once.items()][:3]).items()
    assert ("ledger", "note", 4) not in times_of(first.outsides)
    assert times_of(second.outsides).items() >= once.items()
