"""Which stage is named for what broke: the one that went by more than its message, and none that was given it."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import ClassVar, cast

import pytest

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind
from surepipe.pipelines import loads
from surepipe.pipelines.simulate.blame import pointed
from surepipe.pipelines.simulate.campaign import draw_for, run_one
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.simulate.simulating import (
    NotExercised,
    Simulation,
    SimulationFailed,
    simulation_of,
)
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside
from surepipe.simulation.faults import chosen
from surepipe.simulation.options import Options
from surepipe.simulation.results import Counterexample
from tests.pipelines.simulate.kit import HEAD

Order = Mapping[str, object]
NUMBERS = Random(3)
mail = Outside("mail")
outside = Outside("bank")
SAMPLE = """\
sinks: {out: {from: last, kind: jsonl, path: out.jsonl}}
simulate: {messages: 4, sample: {lines: [{n: 1}, {n: 2}, {n: 3}, {n: 4}]}}
"""


def number(order: Order) -> Order:
    """Another one for each call."""
    return {**order, "number": NUMBERS.random()}


def again(order: Order) -> Order:
    """The same, of a generator of its own."""
    return {**order, "again": NUMBERS.random()}


def same(order: Order) -> Order:
    """From the message alone."""
    return {**order, "same": str(order)}


def parts(order: Order) -> list[Order]:
    """Two, from the message alone."""
    return [{**order, "part": 1}, {**order, "part": 2}]


def any_order(order: Order) -> bool:
    """All are wanted."""
    return bool(order)


LETTERS = "retries: 5, dead_letter: main/dead"


def simulation(
    stages: str, *, pipes: str = "", more: str = "", faults: str = "bad-stage", head: str = HEAD
) -> Simulation:
    """Lines of ``name giver kind function``, of functions here; the end is behind the stage ``last``."""
    told = [line.split() for line in stages.strip().splitlines()]
    made = [
        f"  {name}: {{from: {giver}, key-by: {function}}}\n"
        if kind == "key_by"
        else f'  {name}: {{from: {giver}, {kind}: "{__name__}:{function}", {LETTERS}}}\n'
        for name, giver, kind, function in told
    ]
    text = "".join(
        [head, pipes, "stages:\n", *made, SAMPLE.replace("{messages", f"{{{more}messages")]
    )
    return simulation_of(loads(text), faults=faults)


def defects(simulated: Simulation) -> tuple[list[str], str]:
    """Who is named for what breaks, and all that is told."""
    with pytest.raises(SimulationFailed) as found:
        simulated.run(range(60))
    told = str(found.value)
    return re.findall(r"A stage's defect: (\w+) ", told), told


AMONG_OTHERS = {
    "first": ("first", "first intake call number\nnext first call same\nlast next call same"),
    "in the middle": (
        "next",
        "first intake call same\nnext first call number\nlast next call same",
    ),
    "last": ("last", "first intake call same\nnext first call same\nlast next call number"),
    "before several": (
        "first",
        "first intake call number\nnext first flat_map parts\nlast next call same",
    ),
    "behind several": (
        "next",
        "first intake flat_map parts\nnext first call number\nlast next call same",
    ),
    "behind a filter": (
        "next",
        "first intake filter any_order\nnext first call number\nlast next call same",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("where", AMONG_OTHERS)
def test_a_stage_that_was_given_something_else_is_not_accused(where: str) -> None:
    """X-56: it answers otherwise as its message is another one; who made that one is named alone."""
    guilty, stages = AMONG_OTHERS[where]
    named, told = defects(simulation(stages))
    assert {*named} == {guilty}, told
    advised = re.findall(r"(\w+) (?:goes by more than|keeps)", told.partition("Note: ")[0])
    assert {*advised} == {guilty}, told


def not_one(order: Order) -> Order:
    """The first is set aside, with or without faults."""
    if order["n"] == 1:
        raise ValueError("one")
    return order


SEED_OF_A_ROLLBACK = 6
"""In it the stream between the two pipes goes back behind its reader."""


class Held(PlanSubject):
    """The same plan, held to its claims whatever strikes."""

    def facts(self) -> Mapping[str, object]:
        """No fault excuses anything."""
        return {**super().facts(), "faults": []}


def through_a_stream_that_goes_back() -> Simulation:
    """What its reader remembers is not there any more, so it waits for people, each time that it is started."""
    stream = "route: {kind: sqlite, store: main}, journal: main"
    head = HEAD.replace("journal: main, state: main, boundary: committed", stream)
    stages = "first intake call not_one\nlast onward call same"
    onward = f"  onward: {{from: first, {stream}}}\n"
    return simulation(stages, pipes=onward, faults="store-rollback", head=head)


@pytest.mark.long
def test_a_pipe_that_waits_for_people_as_nothing_promises_otherwise_is_no_finding() -> None:
    """P12: "nothing promises to survive store-rollback", so what follows from that is none either; and where it
    is held to it even so, no message is to blame that was set aside as ever."""
    simulated = through_a_stream_that_goes_back()
    subject = simulated.subject
    kinds = chosen(["store-rollback"])
    schedule = draw_for(subject, SEED_OF_A_ROLLBACK, mode="claim", kinds=kinds, messages=4)
    assert simulated.once(schedule).runs == 1
    held = Held(**{name: getattr(subject, name) for name in subject.__dataclass_fields__})
    with pytest.raises(SimulationFailed, match="P12 progress VIOLATED") as found:
        Simulation(held, 4, "store-rollback").once(schedule)
    told = str(found.value)
    assert "stops: " in told
    assert "Nothing gets past this" not in told
    assert " decides: " not in told


def pays(order: Order) -> Order:
    """It notes that it has before it does: what ends between both pays nothing. Its mails look alike."""
    if order["n"] not in outside.count("paid"):
        mail.do("mail", "paid", key=order["n"])
        outside.do("paid", order["n"], key=order["n"])
        outside.do("pay", order["n"], key=order["n"])
    return order


def pays_twice(order: Order) -> Order:
    """What names it is no key."""
    mail.do("mail", "paid", key=order["n"])
    outside.do("pay", order["n"])
    return order


def all_paid_once(run: RunOutcome) -> bool:
    """That, and no word of mails."""
    return bool(run.dead) or outside.count("pay") == dict.fromkeys(range(1, 5), 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "faults", "seeds", "why", "decides"),
    [
        (
            "pays",
            "receiver-crash",
            range(60),
            r"bank pay (\d) was never done, as it is by last \(\S+\) without faults: check",
            r"last \(\S+\) is through with",
        ),
        (
            "pays_twice",
            "process-crash",
            range(60),
            r"VIOLATED .*? pay (\d) happened twice: check",
            r"does it again for",
        ),
    ],
)
def test_what_explains_a_check_that_fails_is_otherwise_than_without_faults(
    work: str, faults: str, seeds: range, why: str, decides: str
) -> None:
    """X-56: four mails that look alike are in each run, and explain nothing."""
    checked = f'check: "{__name__}:all_paid_once", '
    stages = f"last intake call {work}"
    with pytest.raises(SimulationFailed) as found:
        simulation(stages, more=checked, faults=faults).run(seeds)
    told = " ".join(str(found.value).split())
    first = re.search(why, told)
    assert first, told
    assert "mail 'paid' happened" not in told
    assert re.search(rf'decides: .*{decides} (#\d).*?\. \1 is {{"n":{first[1]}}}\.', told), told


class Before:
    """It keeps what the last message was, in a variable of the class that each method names."""

    last: ClassVar[dict[str, object]] = {}

    def __call__(self, order: Order) -> Order:
        """With the one before it."""
        before = self.last.get("n")
        self.last["n"] = order["n"]
        return {**order, "before": before}


def test_what_a_stage_keeps_is_named_once_and_its_message_as_everywhere() -> None:
    """X-56: by the number that the deciding step has, and not by that of its epoch."""
    _, told = defects(simulation("last intake call Before", faults="claim"))
    kept = re.search(r"last keeps (\S+ \(\S+\)) between calls", told)
    assert kept, told
    text = " ".join(told.split())
    number = re.search(r"decides: .*? for (#\d)", text)
    assert number, told
    assert re.search(rf"A stage's defect: last \(\S+\) answered .*? for {number[1]},", text), told


class Hands:
    """An object that keeps its message while it waits: with lanes that is of another one when it goes on."""

    def __init__(self) -> None:
        self.order: Order = {}

    async def __call__(self, order: Order) -> Order:
        """What it finds there."""
        self.order = order
        await asyncio.sleep(0.2)
        return {"n": self.order["n"]}


hands = Hands()


def test_a_stage_whose_messages_meet_in_its_object_is_named_with_the_lanes() -> None:
    """X-56: without any fault; its answers in the run of the engine were taken for what it answers, and surepipe
    was accused."""
    lanes = "lines: {kind: jsonl, path: none.jsonl, key: n}"
    head = HEAD.replace("lines: {kind: jsonl, path: none.jsonl}", lanes)
    head = head.replace("journal: main, state: main, boundary: committed", "lanes: 4")
    names, told = defects(simulation("last intake call hands", faults="none", head=head))
    assert (set(names), "a defect of surepipe" in told) == ({"last"}, False), told
    text = " ".join(told.split())
    assert re.search(r"last \(\S+\) answered \{'n': 2\} for #1, and \{'n': 1\} without", text), told
    assert (
        "what its first attempt left, and so do other messages meanwhile, by the lanes of intake"
        in text
    )


seen: set[str] = set()


def seen_before(order: Order) -> Order:
    """The same for each part of a message."""
    known = str(order) in seen
    seen.add(str(order))
    return {"n": order["n"], "known": known}


def test_what_a_stage_answered_for_several_parts_is_told_once() -> None:
    """X-56: the same sentence again says nothing."""
    stages = "first intake flat_map parts\nlast first call seen_before"
    _, told = defects(simulation(stages, faults="store-crash"))
    said = [line for line in told.splitlines() if line.startswith("A stage's defect: last ")]
    assert said, told
    assert len(said) == len({*said}), told


def by_attempt(order: Order, context: Context) -> Order:
    """Another one when it is tried again."""
    return {**order, "attempt": context.attempt}


def told_attempts(order: Order, context: Context) -> Order:
    """It asks which attempt it is for nothing that goes on."""
    return {**number(order), "has_begun": context.attempt > 0}


def all_so_far(order: Order) -> Order:
    """What has been sent when it asks, by later messages, too."""
    mail.do("send", order["n"], key=order["n"])
    return {**order, "all": len(mail.count("send"))}


ASKING = {
    "by_attempt": "by context.attempt, for which it asks, and which is another one when its message",
    "told_attempts": "context.attempt, what earlier calls have left (in an object of a library, in a double,",
    "all_so_far": "by what the Outside mail has when it asks there, and later messages add to that.",
}


@pytest.mark.long
@pytest.mark.parametrize("name", ASKING)
def test_what_a_stage_asks_for_beside_its_message_is_told_as_what_it_goes_by(name: str) -> None:
    """X-56: it was what earlier calls have left, chance or the time, and advice that the stage follows."""
    simulated = simulation(f"last intake call {name}", faults="bad-stage,process-replaced")
    named, told = defects(simulated)
    assert {*named} == {"last"}
    assert f"last goes by more than its message: {ASKING[name]}" in told


SPOOL = "  spool: {from: first, journal: main, state: main, boundary: committed}\n"


def by_the_second(order: Order) -> Order:
    """What a call gives that comes later, as that of a message that is tried again, is another one."""
    return {**order, "price": 1 if time.time() % 1 < 0.25 else 2}


GIVEN: list[object] = []


def beside_earlier(order: Order) -> Order:
    """With what it gave so far, also for messages that are tried again."""
    GIVEN.append(order["n"])
    return {**order, "beside": len(GIVEN)}


GOING_BY_MORE = {
    "by_attempt": r"last goes by more than its message: by context\.attempt, for which it asks",
    "by_the_second": r"last goes by more than its message: .* or the time\.",
    "beside_earlier": r"last keeps \S+GIVEN \(",
}
BEHIND = {
    "one message": "first intake call same\nlast first call BY",
    "several of one": "first intake flat_map parts\nlast first call BY",
    "a filter of several": "first intake flat_map parts\nnext first filter any_order\nlast next call BY",
    "several of several": "first intake flat_map parts\nnext first flat_map parts\nlast next call BY",
    "a key of several": "first intake flat_map parts\nnext first key_by n\nlast next call BY",
    "another pipe": "first intake flat_map parts\nlast spool call BY",
    "two ways that meet": "first intake flat_map parts\nnext first call same\nlast [first,next] call BY",
}


PAIRS = [(name, place) for name in GOING_BY_MORE for place in BEHIND]
PAIRS.remove(("beside_earlier", "two ways that meet"))  # each run without faults has other ones


@pytest.mark.long
@pytest.mark.parametrize(("name", "place"), PAIRS)
def test_what_goes_by_more_than_its_message_is_named_wherever_it_stands(
    name: str, place: str
) -> None:
    """Of one of several messages that were made of one it was said that surepipe is to blame, or nothing."""
    pipes = SPOOL if place == "another pipe" else ""
    named, told = defects(simulation(BEHIND[place].replace("BY", name), pipes=pipes))
    assert {*named} == {"last"}, told
    assert re.search(GOING_BY_MORE[name], told), told
    assert "a defect of surepipe" not in told
    (decides,) = re.findall(r"Step \d+ decides: (\w+)", " ".join(told.split()))
    assert decides == "last", told


def in_its_second(order: Order) -> Order:
    """Cheaper in every other one."""
    if order["n"] == 2:
        raise ValueError("never")
    return {**order, "price": int(time.time()) % 2 + 1}


def test_a_stage_that_goes_by_the_clock_is_named_though_a_message_that_never_gets_through_takes_time() -> (
    None
):
    """Without faults messages come later behind that than functions alone would have it."""
    simulated = simulation("first intake flat_map parts\nlast first call in_its_second")
    named, told = defects(simulated)
    assert {*named} == {"last"}, told
    assert "last goes by more than its message" in told
    assert "as without faults: its message is set aside" not in told
    assert re.search(r"decides: last \(test_blame\.py:\d+\) gives", " ".join(told.split())), told


def test_the_stage_before_another_pipe_is_named_for_what_it_gave_to_that() -> None:
    """Behind that it is another message, of which nothing is known without faults."""
    stages = "first intake call by_attempt\nnext spool flat_map parts\nlast next call same"
    named, told = defects(simulation(stages, pipes=SPOOL))
    assert {*named} == {"first"}, told


def test_of_two_sources_the_message_is_known_that_comes_of_one() -> None:
    """Both have the same messages, which only their numbers tell apart."""
    two = HEAD.replace("sources: {", "sources: {more: {kind: jsonl, path: none.jsonl}, ").replace(
        "from: lines", "from: [lines, more]"
    )
    rows = "[{n: 1}, {n: 2}]"
    call = f'"{__name__}:'
    text = (
        f'{two}stages:\n  first: {{from: intake, flat-map: {call}parts"}}\n'
        f'  last: {{from: first, call: {call}by_attempt", {LETTERS}}}\n'
        "sinks: {out: {from: last, kind: jsonl, path: out.jsonl}}\n"
        f"simulate: {{messages: 4, sample: {{lines: {rows}, more: {rows}}}}}\n"
    )
    named, told = defects(simulation_of(loads(text), faults="bad-stage"))
    assert {*named} == {"last"}, told
    assert "a defect of surepipe" not in told


def twice_over(orders: list[Order]) -> Order:
    """From what a batch holds alone."""
    return {"n": [order["n"] for order in orders], "same": str(orders)}


BATCHED = """\
  first: {from: intake, call: "CALL number", LETTERS}
  few: {from: first, batch: {max: 3}}
  last: {from: few, call: "CALL twice_over", LETTERS}
""".replace("CALL ", f"{__name__}:").replace("LETTERS", LETTERS)


@pytest.mark.long
def test_a_stage_behind_another_pipe_or_a_batch_is_not_accused_of_what_it_was_given() -> None:
    """X-56: who messages are there depends on what came before, and so does what a batch holds."""
    spooled = simulation("first intake call number\nlast spool call same", pipes=SPOOL)
    batched = loads(HEAD + "stages:\n" + BATCHED + SAMPLE)
    for simulated in (spooled, simulation_of(batched)):
        named, told = defects(simulated)
        assert {*named} <= {"first"}, told
        assert not re.search("last (goes by more than|keeps)", told), told


def opened(orders: list[Order], context: Context) -> list[Order]:
    """What a batch holds, and what it is not to go by."""
    return [{**order, "attempt": context.attempt} for order in orders]


def test_a_stage_behind_a_batch_that_goes_by_the_attempt_is_named() -> None:
    """What it answers can't be held against runs without faults, and it was said that surepipe is to blame."""
    opening = BATCHED.replace(":number", ":same").replace(
        f'call: "{__name__}:twice_over"', f'flat-map: "{__name__}:opened"'
    )
    text = HEAD + "stages:\n" + opening + SAMPLE
    named, told = defects(simulation_of(loads(text), faults="bad-stage"))
    assert named == ["stage"], told
    assert "A stage's defect: stage last (test_blame.py:" in told
    assert "a defect of surepipe" not in told


def test_of_stages_that_leak_only_the_first_is_named() -> None:
    """X-56: what is behind it answers otherwise in the same run as well, as it is given something else."""
    simulated = simulation("first intake call leaking\nnext first call same\nlast next call same")
    with pytest.raises(NotExercised) as found:
        simulated.run(range(4))
    assert re.findall(r"stage (\w+) \S+ answers", str(found.value)) == ["first"]


LEAKED = iter(range(1, 1_000_000))


def counted() -> Iterator[int]:
    """A generator can't be set back."""
    yield from LEAKED


COUNTED = counted()


def leaking(order: Order) -> Order:
    """Another one in each run."""
    return {**order, "number": next(COUNTED)}


def stamped(order: Order) -> Order:
    """The time is another one in each run."""
    return {**order, "at": time.time()}


def mailed(order: Order, context: Context) -> Order:
    """While its message is handled."""
    mail.do("send", order["n"], key=context.id.key)
    return order


KEPT: list[tuple[Order, str]] = []


def mailed_late(order: Order, context: Context) -> Order:
    """With the next message."""
    for kept, key in KEPT:
        mail.do("send", kept["n"], key=key)
    KEPT[:] = [(order, context.id.key)]
    return order


@pytest.mark.parametrize(("function", "is_late"), [("mailed", False), ("mailed_late", True)])
def test_only_an_effect_that_is_put_off_is_told_as_that_behind_a_stage_that_looks_at_the_clock(
    function: str, *, is_late: bool
) -> None:
    """X-56: a message that holds the time is the same message at any time."""
    simulated = simulation(f"first intake call stamped\nlast first call {function}", faults="none")
    told = simulated.campaign(range(2)).retold
    assert any("what it keeps for later is lost" in text for text in told) is is_late, told


totals = Outside("totals")


def totalled(order: Order) -> Order:
    """A running total, as a database gives it."""
    number = cast("int", order["n"])
    totals.do("add", number, key=number)
    rows = cast("list[int]", list(totals.count("add")))
    return {**order, "total": sum(rows[: rows.index(number) + 1])}


def mails_half(order: Order, context: Context) -> Order:
    """Two totals may give one text."""
    mail.do("send", cast("int", order["total"]) // 2, key=context.id.key)
    return order


def mails_once(order: Order) -> Order:
    """When the total passes a limit."""
    total, number = cast("int", order["total"]), cast("int", order["n"])
    if total - number < LIMIT <= total:
        mail.do("send", "above the limit", key="above the limit")
    return order


LIMIT = 4


@pytest.mark.parametrize("function", ["mails_half", "mails_once"])
def test_what_a_message_does_by_a_running_total_is_not_put_off(function: str) -> None:
    """X-56: in another order another message has the total that passes a limit, and does what belongs to that."""
    simulated = simulation(f"first intake call totalled\nlast first call {function}", faults="none")
    assert not simulated.campaign(range(2)).retold


def draws_a_bonus(order: Order) -> Order:
    """Another one at each attempt."""
    return {**order, "bonus": random.randint(0, 1_000_000)}


def pays_what_there_is(order: Order) -> Order:
    """With a key, so once: the first one."""
    outside.do("pay", (order["n"], order["bonus"]), key=order["n"])
    return order


def what_is_paid_comes_out(run: RunOutcome) -> bool:
    """What was drawn, too."""
    paid = outside.count("pay")
    return paid == {
        (row["n"], row["bonus"]): 1 for row in cast("list[Order]", run.delivered["out"])
    }


@pytest.mark.long
def test_a_stage_that_draws_anew_at_each_attempt_is_named_where_a_check_minds() -> None:
    """The one that draws, not those behind it, and what to draw from."""
    checked = f'check: "{__name__}:what_is_paid_comes_out", '
    stages = (
        "first intake call same\nbonus first call draws_a_bonus\nlast bonus call pays_what_there_is"
    )
    with pytest.raises(SimulationFailed) as found:
        simulation(stages, more=checked, faults="process-crash").run(range(60))
    told = str(found.value)
    assert re.search(r"decides: bonus \(test_blame.py:\d+\) gives", told), told
    assert re.search(
        r"bonus \(test_blame.py:\d+\) answered .* which was tried again\. What it draws", told
    ), told
    assert "context.random" in told
    assert "last (test_blame" not in told.partition("Guarantee")[2]
    assert "first (test_blame" not in told.partition("Guarantee")[2]


paid_before = set[object]()


def pays_what_it_has_not_seen(order: Order) -> Order:
    """A note of its own, which a crash takes with it."""
    if order["n"] not in paid_before:
        paid_before.add(order["n"])
        outside.do("pay", order["n"])
    return order


@pytest.mark.long
def test_what_is_done_twice_as_a_note_was_lost_is_advised_to_have_a_key() -> None:
    """A second attempt in the same process leaves it out, so only the run shows that it has none."""
    checked = f'check: "{__name__}:all_paid_once", '
    with pytest.raises(SimulationFailed) as found:
        simulation(
            "last intake call pays_what_it_has_not_seen", more=checked, faults="process-crash"
        ).run(range(60))
    advice = r"bank pay \d is done once more, as it has no key: give it one, such as context.id.key"
    assert re.search(advice, " ".join(str(found.value).split())), str(found.value)


def odd_ones(order: Order) -> Order:
    """Not the third."""
    if order["n"] == 3:
        raise ValueError("a row that is no order")
    return order


def test_a_stage_that_raises_for_a_message_as_without_faults_is_not_to_be_mended() -> None:
    """P14: its message is tried too often, by whoever counts the attempts."""
    simulated = simulation("last intake call odd_ones", faults="none")
    result, _ = run_one(simulated.subject, Options(messages=4))
    raised = [row for row in result.rows if row.kind == Kind.RAISED]
    last = raised[-1]
    tried = Violation(
        "P14",
        "poison isolation",
        last.step,
        "Message #3 was tried twice.",
        last.pipe,
        last.epoch,
        last.seq,
        position=3,
    )
    example = Counterexample("shop", tried, result, 0, "nothing", False, "", "")
    assert raised
    assert pointed(simulated.subject, example).raised_anyway == {row.step for row in raised}
