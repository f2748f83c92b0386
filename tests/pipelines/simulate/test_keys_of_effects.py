"""Keys by which stages do something outside: each names one effect of one message, at every attempt."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import cast

import pytest

from surepipe.pipelines import loads
from surepipe.pipelines.simulate.memory import in_transaction
from surepipe.pipelines.simulate.simulating import (
    NotExercised,
    Simulation,
    SimulationFailed,
    simulation_of,
)
from surepipe.pipelines.stages import Context
from surepipe.queues.book import Later
from surepipe.simulation import Outside
from tests.pipelines.simulate.kit import HEAD

Row = Mapping[str, int]
Stage = Callable[[Row, Context], object]

SAMPLE = "simulate: {messages: 4, sample: {lines: [{n: 1}, {n: 2}, {n: 3}, {n: 4}]}}\n"
ONE = 'stages: {work: {from: intake, KIND: "CALL WORK"}}\nsinks: {out: {from: work, kind: jsonl, path: o.jsonl}}\n'
TWO = """\
stages:
  first: {from: intake, call: "CALL tell_ada"}
  work: {from: first, call: "CALL WORK"}
sinks: {out: {from: work, kind: jsonl, path: o.jsonl}}
"""
BRANCHES = TWO.replace("from: first", "from: intake").replace("from: work", "from: [first, work]")
AT_A_SINK = 'sinks: {out: {from: intake, kind: python, call: "CALL WORK", idempotent: true}}\n'
BEHIND_A_BATCH = """\
stages:
  some: {from: intake, batch: {max: 3}}
  work: {from: some, call: "CALL WORK"}
sinks: {out: {from: work, kind: jsonl, path: o.jsonl}}
"""

mail = Outside("mail")
post_office = Outside("post office")
ledger = Outside("ledger")
STEPS = 3
held: list[int] = []


def simulation(
    work: Callable[..., object], parts: str = ONE, *, kind: str = "call", head: str = HEAD
) -> Simulation:
    """A plan of these parts, with this function of this module at WORK."""
    placed = parts.replace("WORK", work.__name__).replace("KIND", kind)
    text = f"{head}{placed}{SAMPLE}".replace("CALL ", f"{__name__}:")
    return simulation_of(loads(text), faults="none")


def told_of(work: Callable[..., object], parts: str = ONE, *, kind: str = "call") -> str:
    """What the first failure of such a plan says, on one line."""
    with pytest.raises(SimulationFailed) as failed:
        simulation(work, parts, kind=kind).run(range(2))
    return " ".join(str(failed.value).split())


# A key that tells of the attempt, of something that is told with its key.


def by_chance(row: Row) -> Row:
    """As a double of a client gets it: the key stands in the headers."""
    key = str(uuid.uuid4())
    mail.do("post", ["https://mail.example", row["n"], {"Idempotency-Key": key}], key=key)
    return row


def by_attempt(row: Row, context: Context) -> Row:
    """The same of the context."""
    key = f"{context.id.key}-{context.attempt}"
    mail.do("post", [row["n"], key], key=key)
    return row


async def by_chance_later(row: Row) -> Row:
    """The same of a coroutine."""
    return by_chance(row)


def by_chance_among_others(row: Row) -> Row:
    """One of two."""
    mail.do("post", row["n"], key=row["n"])
    return by_chance(row)


def by_chance_twice(row: Row) -> Iterator[Row]:
    """While a flat-map gives its rows."""
    yield by_chance(row)
    yield by_chance(row)


class by_life:  # noqa: N801 - a stage
    """What each process draws anew."""

    def __init__(self) -> None:
        self.name = uuid.uuid4()

    def __call__(self, row: Row) -> Row:
        """One effect."""
        key = f"{self.name}/{row['n']}"
        mail.do("post", [row["n"], key], key=key)
        return row


CHANGING = [
    (by_chance, ONE, "call"),
    (by_attempt, ONE, "call"),
    (by_chance_later, ONE, "call"),
    (by_chance_among_others, ONE, "call"),
    (by_chance_twice, ONE, "flat-map"),
    (by_chance, AT_A_SINK, ""),
    (by_attempt, AT_A_SINK, ""),
]


@pytest.mark.long
@pytest.mark.parametrize(("work", "parts", "kind"), CHANGING)
def test_a_key_that_its_effect_tells_is_found_to_change(
    work: Callable[..., object], parts: str, kind: str
) -> None:
    """X-26: the effect is another one with each key, so what is compared is which keys a call gives."""
    told = told_of(work, parts, kind=kind)
    assert "another key when its message is tried again (" in told
    assert "so it is repeated (test_keys_of_effects.py:" in told
    assert "gives this effect its key for #1" in told


def test_a_key_that_each_process_draws_anew_is_found_by_a_crash() -> None:
    """X-26: only a second attempt in another process gives another one."""
    made = simulation(by_life)
    crashing = simulation_of(made.subject.plan, faults="process-crash")
    with pytest.raises(SimulationFailed, match="another key"):
        crashing.run(range(60))


def by_the_day(row: Row) -> Row:
    """No run lasts so long."""
    key = f"{row['n']}/{datetime.now():%Y-%m-%d}"  # noqa: DTZ005 - as users write it
    mail.do("post", [row["n"], key], key=key)
    return row


def test_a_key_of_the_day_that_its_effect_tells_is_not_said_to_hold() -> None:
    """X-26: a message that is tried again after midnight has another one."""
    key = r"gives mail post \(1, '1/\S+'\) the key 1/\S+, and on another day 1/\S+, so it is done once more"
    with pytest.raises(NotExercised, match=key):
        simulation(by_the_day).run(range(2))


def one_behind(row: Row) -> Row:
    """Each message does what the one before it has left."""
    held.append(row["n"])
    if len(held) > 1:
        before = held.pop(0)
        mail.do("post", before, key=before)
    return row


def test_a_key_of_another_message_is_not_taken_for_one_that_changes() -> None:
    """X-26: what is put off is done with its own key, by whichever call."""
    with pytest.raises(NotExercised, match=r"does mail post \d while it handles") as found:
        simulation(one_behind).run(range(2))
    assert "another key" not in str(found.value)
    held.clear()


class opens_anew:  # noqa: N801 - a stage
    """What is done while a stage is made is done in no call."""

    def __init__(self) -> None:
        mail.do("open", str(uuid.uuid4()), key="the shop")

    def __call__(self, row: Row) -> Row:
        """Nothing more."""
        return row


def test_a_key_for_all_processes_is_not_accused() -> None:
    """X-26: the first of them does it."""
    made = simulation_of(simulation(opens_anew).subject.plan, faults="process-crash")
    assert not made.campaign(range(12)).violated


# One key for several effects.


def to_all(row: Row, context: Context) -> Row:
    """Only the first is told."""
    for person in ("ada", "bo"):
        mail.do("send", [person, row["n"]], key=context.id.key)
    return row


async def to_all_later(row: Row, context: Context) -> Row:
    """The same of a coroutine."""
    return to_all(row, context)


def to_all_by_number(row: Row) -> Row:
    """Keys are compared as texts."""
    mail.do("send", ["ada", row["n"]], key=row["n"])
    mail.do("send", ["bo", row["n"]], key=str(row["n"]))
    return row


def to_all_twice(row: Row, context: Context) -> Iterator[Row]:
    """While a flat-map gives its rows."""
    yield row
    yield to_all(row, context)


def to_each_of(rows: list[Row], context: Context) -> list[Row]:
    """Behind a batch."""
    for row in rows:
        mail.do("send", row["n"], key=context.id.key)
    return rows


SHARED = [
    (to_all, ONE, "call"),
    (to_all_later, ONE, "call"),
    (to_all_by_number, ONE, "call"),
    (to_all_twice, ONE, "flat-map"),
    (to_all, AT_A_SINK, ""),
    (to_each_of, BEHIND_A_BATCH, ""),
]


@pytest.mark.long
@pytest.mark.parametrize(("work", "parts", "kind"), SHARED)
def test_one_key_for_several_effects_of_one_call_is_found(
    work: Callable[..., object], parts: str, kind: str
) -> None:
    """X-26: whoever honours keys does only the first of them, in each run alike."""
    told = told_of(work, parts, kind=kind)
    assert "that the same call asks for (" in told
    assert "only the first of both is done (test_keys_of_effects.py:" in told
    if parts == BEHIND_A_BATCH:
        assert "make the key of each message alone (context.id tells of its batch)" in told
    else:
        assert "('bo', 1) the key of send ('ada', 1) that" in told
        assert 'add what tells them apart to the key, such as f"{context.id.key}/{address}"' in told


def tell_ada(row: Row, context: Context) -> Row:
    """With the key of the message alone."""
    mail.do("send", ["ada", row["n"]], key=context.id.key)
    return row


def tell_bo(row: Row, context: Context) -> Row:
    """The same; both stages handle one message."""
    mail.do("send", ["bo", row["n"]], key=context.id.key)
    return row


@pytest.mark.parametrize("parts", [TWO, BRANCHES], ids=["in a row", "side by side"])
def test_a_key_that_two_stages_share_is_found(parts: str) -> None:
    """X-26: of one message they get one context.id.key."""
    told = told_of(tell_bo, parts)
    assert "('bo', 1) the key of send ('ada', 1) that first asks for (test_keys" in told
    assert "only the first of both is done" in told


@pytest.mark.parametrize(
    ("work", "said"), [(by_attempt, "another key when"), (to_all, "that the same call asks for")]
)
def test_a_handler_alone_is_told_the_same(work: Stage, said: str) -> None:
    """X-26: as the fixture judges it."""
    rows = [{"n": 1}, {"n": 2}]
    with pytest.raises(SimulationFailed) as failed:
        simulation_of(lambda: work, messages=rows, faults="none").run(range(2))
    assert said in " ".join(str(failed.value).split())


# What is right.


def both_again(row: Row, context: Context) -> Row:
    """The same twice."""
    tell_ada(row, context)
    return tell_ada(row, context)


def to_each(row: Row, context: Context) -> Row:
    """A key for each."""
    for person in ("ada", "bo"):
        mail.do("send", [person, row["n"]], key=f"{context.id.key}/{person}")
    return row


def of_all_kinds(row: Row, context: Context) -> Row:
    """Another action, and something else outside, have keys of their own."""
    mail.do("send", ["ada", row["n"]], key=context.id.key)
    mail.do("note", ["bo", row["n"]], key=context.id.key)
    post_office.do("send", ["cleo", row["n"]], key=context.id.key)
    return row


def with_the_time(row: Row, context: Context) -> Row:
    """Its key stays."""
    mail.do("send", [row["n"], context.now(), str(uuid.uuid4())], key=context.id.key)
    return row


def to_those_left(row: Row, context: Context) -> Row:
    """What is done already is not done again; of that ops are told."""
    done = mail.count("send")
    people = [person for person in ("ada", "bo") if (person, row["n"]) not in done]
    for person in people:
        mail.do("send", [person, row["n"]], key=f"{context.id.key}/{person}")
    if not people:
        mail.do("send", ["ops", row["n"]], key=f"{context.id.key}/ops")
    return row


def until_it_is_new(row: Row, context: Context) -> Row:
    """The rest only where the first was not done."""
    if mail.do("send", ["ada", row["n"]], key=f"{context.id.key}/ada"):
        mail.do("send", ["bo", row["n"]], key=f"{context.id.key}/bo")
    return row


def to_ops_as_well(row: Row, context: Context) -> Row:
    """More at a second attempt."""
    tell_ada(row, context)
    if context.attempt > 1:
        mail.do("send", ["ops", row["n"]], key=f"{context.id.key}/ops")
    return row


def by_turns(row: Row, context: Context) -> object:
    """One step for each call, until all are done."""
    done = ledger.count("step")
    step = next(step for step in range(1, STEPS + 2) if (row["n"], step) not in done)
    if step <= STEPS:
        mail.do("send", [row["n"], step], key=f"{context.id.key}/{step}")
        ledger.do("step", [row["n"], step], key=f"{context.id.key}/{step}")
    return Later(0.01) if step < STEPS else row


@pytest.mark.long
@pytest.mark.parametrize(
    "work",
    [
        both_again,
        to_each,
        of_all_kinds,
        with_the_time,
        to_those_left,
        until_it_is_new,
        to_ops_as_well,
    ],
)
@pytest.mark.parametrize("faults", ["none", "claim"])
def test_a_right_key_is_not_accused(work: Stage, faults: str) -> None:
    """X-26: whichever attempt came how far."""
    made = simulation_of(simulation(work).subject.plan, faults=faults)
    campaign = made.campaign(range(12))
    assert not campaign.violated
    assert not campaign.retold


def test_what_is_done_step_by_step_behind_a_book_is_not_accused() -> None:
    """X-26: a call that says Later is not through with its message; the next one does the next thing for it."""
    book = HEAD.replace(
        "{from: lines, journal: main, state: main, boundary: committed}",
        "{from: lines, key: n, route: {kind: book, store: main, budget: {units: 6}, period_s: 0.1}}",
    )
    campaign = simulation(by_turns, head=book).campaign(range(4))
    assert not campaign.violated
    assert not campaign.retold


def test_the_same_of_two_stages_is_not_accused() -> None:
    """X-26: it is asked for twice, and done once."""
    campaign = simulation(tell_ada, TWO).campaign(range(4))
    assert not campaign.violated
    assert not campaign.retold


# What is lost is noticed also where nothing of it is the same in two runs.


def notes_it_first(row: Row, context: Context) -> Row:
    """A process that ends before the letter is posted leaves a note that says it was."""
    if row["n"] not in ledger.count("begin"):
        ledger.do("begin", row["n"], key=row["n"])
        time.sleep(1)
        key = context.id.key
        mail.do("post", [row["n"], {"Idempotency-Key": key}], key=key)
    return row


def notes_it_last(row: Row, context: Context) -> Row:
    """The other way round."""
    if row["n"] not in ledger.count("begin"):
        key = context.id.key
        mail.do("post", [row["n"], {"Idempotency-Key": key}], key=key)
        time.sleep(1)
        ledger.do("begin", row["n"], key=row["n"])
    return row


def crashing(work: Callable[..., object]) -> Simulation:
    """With crashes of the process, one of which comes while a stage waits."""
    placed = ONE.replace("WORK", work.__name__).replace("KIND", "call")
    text = f"{HEAD}{placed}{SAMPLE}".replace("CALL ", f"{__name__}:")
    return simulation_of(loads(text), faults="process-crash")


@pytest.mark.long
def test_what_is_never_done_is_noticed_though_it_tells_its_key() -> None:
    """A key of the identity is another one in each run, so only how much is done is the same."""
    said = r"mail post for the (first|second|third|4th) time was never done: without faults work\s"
    with pytest.raises(SimulationFailed, match=said):
        crashing(notes_it_first).run(range(80, 120))
    assert crashing(notes_it_last).run(range(80, 120)).runs == 40


class Teller:
    """Has what is outside for itself: each life of its process makes it anew."""

    def __init__(self) -> None:
        self._post = Outside("post of its own")

    def __call__(self, row: Row, context: Context) -> Row:
        key = context.id.key
        self._post.do("tell", [row["n"], key], key=key)
        return row


@pytest.mark.long
def test_what_several_lives_have_done_is_counted_together() -> None:
    """Each by an object of its own."""
    assert crashing(Teller).run(range(20)).runs == 20


def says_that_one_came(rows: Sequence[Row], context: Context) -> Sequence[Row]:
    """Of each batch the same."""
    mail.do("tell", "a batch", key=context.id.key)
    return rows


@pytest.mark.long
def test_what_is_done_once_for_each_batch_is_not_counted_upon() -> None:
    """Under faults more messages fall into one."""
    seven = SAMPLE.replace("messages: 4", "messages: 7").replace(
        "{n: 4}]", "{n: 4}, {n: 5}, {n: 6}, {n: 7}]"
    )
    placed = BEHIND_A_BATCH.replace("WORK", says_that_one_came.__name__)
    text = f"{HEAD}{placed}{seven}".replace("CALL ", f"{__name__}:")
    found = simulation_of(loads(text), faults="claim").campaign(range(60))
    assert found.failures == {}


# No key, and something else that keeps a second attempt from doing it once more.


def pays_and_notes(row: Row) -> Row:
    """A process that ends between the two pays once more."""
    if row["n"] not in ledger.count("paid"):
        mail.do("pay", row["n"])
        ledger.do("paid", row["n"], key=row["n"])
    return row


async def pays_and_notes_later(row: Row) -> Row:
    """The same of a coroutine."""
    return pays_and_notes(row)


def pays_in_a_filter(row: Row) -> bool:
    """All get through."""
    return bool(pays_and_notes(row))


def pays_for_parts(row: Row) -> Iterator[Row]:
    """While a flat-map gives its rows."""
    yield pays_and_notes(row)


def pays_for_all(rows: Sequence[Row]) -> Sequence[Row]:
    """Behind a batch."""
    return [pays_and_notes(row) for row in rows]


class pays_for_who_is_new:  # noqa: N801 - a stage
    """Each process has a memory of its own."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, row: Row) -> Row:
        """Once, as long as it lives."""
        if row["n"] not in self.seen:
            self.seen.add(row["n"])
            mail.do("pay", row["n"])
        return row


def looks_and_pays_later(row: Row, context: Context) -> Row:
    """What it has seen may be past when it pays."""
    is_paid = row["n"] in mail.count("pay")
    context.sleep(0.5)
    if not is_paid:
        mail.do("pay", row["n"])
    return row


def pays_once(row: Row) -> Row:
    """As a double does of a table whose rows are unique."""
    if row["n"] not in mail.count("pay"):
        mail.do("pay", row["n"])
    return row


def pays_at_the_first_attempt(row: Row, context: Context) -> Row:
    """What the context says is no note of what was done."""
    if context.attempt == 1:
        mail.do("pay", row["n"])
    return row


def pays_now(row: Row) -> Row:
    """Another effect at each attempt."""
    mail.do("pay", [row["n"], time.time()])
    return row


SECOND_PIPE = """\
  second: {from: intake, journal: main, state: main, boundary: committed}
stages: {work: {from: second, KIND: "CALL WORK"}}
sinks: {out: {from: work, kind: jsonl, path: o.jsonl}}
"""
BEHIND_LANES = """\
  second: {from: intake, lanes: 2, key: n, journal: main, state: main}
stages: {work: {from: second, KIND: "CALL WORK"}}
sinks: {out: {from: work, kind: jsonl, path: o.jsonl}}
"""
GUARDED = [
    (pays_and_notes, ONE, "call"),
    (pays_and_notes_later, ONE, "call"),
    (pays_in_a_filter, ONE, "filter"),
    (pays_for_parts, ONE, "flat-map"),
    (pays_for_all, BEHIND_A_BATCH, ""),
    (pays_and_notes, AT_A_SINK, ""),
    (pays_and_notes, SECOND_PIPE, "call"),
    (pays_and_notes, BEHIND_LANES, "call"),
    (pays_for_who_is_new, ONE, "call"),
    (looks_and_pays_later, ONE, "call"),
    (pays_once, ONE, "call"),
    (pays_at_the_first_attempt, ONE, "call"),
    (pays_now, ONE, "call"),
]


@pytest.mark.long
@pytest.mark.parametrize(("work", "parts", "kind"), GUARDED)
def test_what_keeps_a_second_attempt_from_an_effect_is_no_key(
    work: Callable[..., object], parts: str, kind: str
) -> None:
    """X-26: what a stage looks at first may not be there when its process ends right behind the effect."""
    with pytest.raises(NotExercised) as found:
        simulation(work, parts, kind=kind).run(range(2))
    said = r"stage work does mail pay \S.* without a key \(test_keys_of_effects.py:\d+\): a second attempt"
    where = r"stage out" if parts == AT_A_SINK else "stage work"
    assert re.search(said.replace("stage work", where), str(found.value)), str(found.value)


@pytest.mark.long
@pytest.mark.parametrize("work", [pays_and_notes, pays_and_notes_later, pays_for_who_is_new])
def test_an_effect_that_a_crash_repeats_in_spite_of_a_guard_is_found(
    work: Callable[..., object],
) -> None:
    """X-26: 1. The stage finds no note, and pays. 2. The process ends. 3. The next one finds none either."""
    with pytest.raises(SimulationFailed) as failed:
        crashing(work).run(range(60))
    told = " ".join(str(failed.value).split())
    repeated = re.search(r"work \(test_keys_of_effects.py:\d+\) did mail pay (\d) once more", told)
    assert "stage effect repeated VIOLATED" in told
    assert repeated, told
    assert re.search(rf'does it again for (#\d)\. \1 is {{"n":{repeated[1]}}}\.', told), told


@pytest.mark.long
def test_a_guard_that_is_one_with_its_effect_is_not_called_broken() -> None:
    """X-26: no run does it twice; that it has no key is told all the same."""
    plan = crashing(pays_once).subject.plan
    for faults in ("process-crash", "process-replaced", "claim"):
        found = simulation_of(plan, faults=faults).campaign(range(30))
        assert not found.violated
        assert any("without a key" in text for text in found.retold)


def is_paid_at_least_once(run: object) -> bool:
    """It knows that a crash repeats it."""
    del run
    return set(mail.count("pay")) == {1, 2, 3, 4}


@pytest.mark.long
def test_a_check_says_what_has_to_hold_of_an_effect_without_a_key() -> None:
    """X-26: who writes one may want just that."""
    plan = crashing(pays_and_notes).subject.plan
    found = simulation_of(plan, faults="process-crash", check=is_paid_at_least_once)
    campaign = found.campaign(range(60))
    assert not campaign.violated
    assert not campaign.retold


# Effects that depend on the order of messages.


def known_rows() -> list[int]:
    """All so far."""
    return [cast("int", n) for n in ledger.count("row")]


def rises(row: Row) -> bool:
    """Whether an earlier row is known: so it depends on which of them came before."""
    ledger.do("row", row["n"], key=row["n"])
    return min(known_rows()) < row["n"]


BEHIND_A_FILTER = """\
stages:
  rising: {from: intake, filter: "CALL rises"}
  work: {from: rising, call: "CALL WORK"}
sinks: {out: {from: work, kind: jsonl, path: o.jsonl}}
"""


def marks_and_posts(row: Row) -> Row:
    """A process that ends between the two never posts it."""
    if row["n"] not in ledger.count("posted"):
        ledger.do("posted", row["n"], key=row["n"])
        time.sleep(1)
        mail.do("post", row["n"], key=row["n"])
    return row


def posts_by_key(row: Row) -> Row:
    """As it should be."""
    mail.do("post", row["n"], key=row["n"])
    return row


def behind_a_filter(work: Callable[..., object], *, faults: str, head: str = HEAD) -> Simulation:
    """Behind a filter that goes by what came before."""
    return simulation_of(simulation(work, BEHIND_A_FILTER, head=head).subject.plan, faults=faults)


@pytest.mark.long
def test_a_lost_effect_is_noticed_behind_a_filter_that_goes_by_earlier_messages() -> None:
    """X-26: the plan promises the order, so what gets through is the same in each run."""
    with pytest.raises(SimulationFailed, match=r"mail post \d was never done"):
        behind_a_filter(marks_and_posts, faults="process-crash").run(range(80, 100))
    for faults in ("process-crash", "claim"):
        found = behind_a_filter(posts_by_key, faults=faults).campaign(range(40))
        assert not found.violated
        assert not found.retold


def is_any_posted(run: object) -> bool:
    """It asks for the effect, and would mind if there was none."""
    del run
    return len(mail.count("post")) > 0


def test_effects_whose_number_follows_from_an_order_that_nobody_promises_are_not_judged() -> None:
    """X-26: nobody knows how many there are to be, so a loss is not seen."""
    head = HEAD.replace("boundary: committed", "layers: [resend]")
    said = r"how often stage work \(test_keys_of_effects.py:\d+\) does mail post is not the same in all runs"
    with pytest.raises(NotExercised, match=said):
        behind_a_filter(posts_by_key, faults="none", head=head).run(range(2))
    plan = simulation(posts_by_key, BEHIND_A_FILTER, head=head).subject.plan
    checked = simulation_of(plan, faults="none", check=is_any_posted)
    assert not any("how often" in text for text in checked.campaign(range(1)).retold)


# Effects that a drawn number decides: two runs may do the same by chance.


def sampled(row: Row) -> bool:
    """Most rows, another choice in each run."""
    del row
    return random.random() < 0.9


def sampled_by_context(row: Row, context: Context) -> bool:
    """The same, by the identity of the row."""
    del row
    return context.random.random() < 0.9


def takes_its_time(row: Row) -> bool:
    """As it should be: what is drawn decides how long it waits, and no more."""
    del row
    time.sleep(random.random() / 10)
    return True


def behind_chance(filtering: Callable[..., object], work: Callable[..., object]) -> Simulation:
    """Behind a filter that draws numbers."""
    parts = BEHIND_A_FILTER.replace("CALL rises", f"CALL {filtering.__name__}")
    return simulation_of(simulation(work, parts).subject.plan, faults="claim")


@pytest.mark.long
@pytest.mark.parametrize("filtering", [sampled, sampled_by_context])
def test_what_is_done_behind_a_filter_that_goes_by_chance_is_not_judged(
    filtering: Callable[..., object],
) -> None:
    """X-26: what it left out is no lost effect, and no lost message; who draws is told, with the line."""
    found = behind_chance(filtering, posts_by_key).campaign(range(30))
    assert not found.violated
    (told,) = (text for text in found.retold if "how often stage work" in text)
    assert "does mail post goes by chance" in told
    assert re.search(rf"as rising \(test_keys_of_effects.py:{_line_of(filtering)}\) draws", told)


def _line_of(function: Callable[..., object]) -> int:
    return function.__code__.co_firstlineno


@pytest.mark.long
def test_chance_that_decides_nothing_of_an_effect_leaves_it_compared() -> None:
    """X-26: a lost one is found, and a right one is held."""
    found = behind_chance(takes_its_time, posts_by_key).campaign(range(20))
    assert not found.violated
    assert not found.retold
    with pytest.raises(SimulationFailed, match=r"mail post \d was never done"):
        behind_chance(takes_its_time, marks_and_posts).run(range(40))


# What is drawn at each attempt anew, and goes outside and on as well.


def draws_and_pays(row: Row) -> object:
    """What is done has the first number, and what comes out that of the last attempt."""
    number = random.randint(0, 1_000_000)
    mail.do("pay", (row["n"], number), key=row["n"])
    return {**row, "number": number}


def names_and_pays(row: Row) -> object:
    """The same of a name."""
    name = str(uuid.uuid4())
    mail.do("pay", [row["n"], {"ref": name}], key=row["n"])
    return {**row, "ref": name}


def draws(row: Row) -> object:
    """For those behind it."""
    return {**row, "number": random.randint(0, 1_000_000)}


def pays_its_number(row: Row) -> object:
    """One that was drawn before."""
    mail.do("pay", (row["n"], row["number"]), key=row["n"])
    return row


def draws_from_its_context(row: Row, context: Context) -> object:
    """As it should be: the same at each attempt."""
    number = context.random.randint(0, 1_000_000)
    mail.do("pay", (row["n"], number), key=row["n"])
    return {**row, "number": number}


def draws_for_each_alone(row: Row) -> object:
    """Nothing that is done comes out: a name of the call, and one of the message."""
    mail.do("pay", (row["n"], str(uuid.uuid4())), key=row["n"])
    return {**row, "ref": str(uuid.uuid4())}


def draws_one_of_few(row: Row) -> object:
    """What is done is the same for all, and some rows have that number by chance."""
    mail.do("pay", (f"row {row['n']}", 1), key=row["n"])
    return {**row, "number": random.randint(0, 2)}


def shows_the_time(row: Row) -> object:
    """What is told twice is the time, which a note is enough for."""
    at = time.time()
    mail.do("pay", (row["n"], at, str(uuid.uuid4())), key=row["n"])
    return {**row, "at": at}


TWO_STAGES = ONE.replace(
    "stages: {", 'stages: {drawing: {from: intake, call: "CALL draws"}, '
).replace("work: {from: intake", "work: {from: drawing")
TWO_PIPES = f"  more: {{from: drawing, journal: main, state: main, boundary: committed}}\n{TWO_STAGES}".replace(
    "work: {from: drawing", "work: {from: more"
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "parts", "drawing"),
    [
        (draws_and_pays, ONE, draws_and_pays),
        (names_and_pays, ONE, names_and_pays),
        (pays_its_number, TWO_STAGES, draws),
    ],
)
def test_what_is_drawn_at_each_attempt_and_is_done_and_told_is_not_judged(
    work: Callable[..., object], parts: str, drawing: Callable[..., object]
) -> None:
    """X-24: with its key it is done once, with a number that the message does not have any more."""
    with pytest.raises(NotExercised, match="another number at each attempt") as found:
        simulation(work, parts).run(range(2))
    told = " ".join(str(found.value).split())
    line = rf"\(test_keys_of_effects.py:{_line_of(drawing)}\) draws, another number at each attempt"
    assert re.search(line, told), told
    assert "Draw from context.random" in told
    plan = simulation(work, parts).subject.plan
    checked = simulation_of(plan, faults="none", check=is_all_paid).campaign(range(1))
    assert not checked.retold


def is_all_paid(run: object) -> bool:
    """It asks for the effect, whatever its number is."""
    del run
    return len(mail.count("pay")) == len(ROWS)


ROWS = range(4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "parts"),
    [
        (draws_from_its_context, ONE),
        (draws_for_each_alone, ONE),
        (draws_one_of_few, ONE),
        (shows_the_time, ONE),
        (pays_its_number, TWO_PIPES),
    ],
)
def test_what_is_drawn_and_is_not_told_as_done_is_held(
    work: Callable[..., object], parts: str
) -> None:
    """X-24: nothing that comes out tells of another effect than that which is done."""
    found = simulation(work, parts).campaign(range(2))
    assert not found.violated
    assert not found.retold


def test_a_stage_that_draws_anew_is_noted_with_its_line() -> None:
    """X-24: also where nothing is done with that, and what comes out is left aside with it."""
    line = rf"stage drawing \(test_keys_of_effects.py:{_line_of(draws)}\) draws is another number at each"
    parts = TWO_STAGES.replace('"CALL WORK"', f'"{__name__}:posts_by_key"')
    (told,) = simulation(posts_by_key, parts).campaign(range(2)).counted
    assert re.search(line, told), told


def pays_one_of_few(row: Row) -> Row:
    """Two rows may have the same by chance: it is done for each, with one value or another."""
    mail.do("pay", random.randint(0, 3), key=row["n"])
    return row


def test_effects_that_have_one_value_by_chance_are_counted() -> None:
    """X-26: their number is the same in each run, and who draws is noted with its line."""
    found = simulation(pays_one_of_few).campaign(range(2))
    assert not found.retold
    (told,) = found.counted
    assert re.search(
        rf"work \(test_keys_of_effects.py:{_line_of(pays_one_of_few)}\) draws numbers", told
    ), told


# What a double answers goes by what was done, and later messages add to that.


def counts_all(row: Row) -> Mapping[str, int]:
    """A message that is tried again is told of those that came after it."""
    ledger.do("row", row["n"], key=row["n"])
    return {**row, "count": len(ledger.count("row"))}


def counts_up_to_its_own(row: Row) -> Mapping[str, int]:
    """As it should be."""
    ledger.do("row", row["n"], key=row["n"])
    return {**row, "count": [*ledger.count("row")].index(row["n"])}


async def counts_all_later(row: Row) -> Mapping[str, int]:
    """The first of a coroutine."""
    return counts_all(row)


def counts_all_parts(row: Row) -> Iterator[Mapping[str, int]]:
    """The first of a flat-map."""
    yield counts_all(row)


def is_the_last(row: Row) -> bool:
    """The first of a filter: all but what came before others."""
    ledger.do("row", row["n"], key=row["n"])
    return max(known_rows()) == row["n"]


COUNTING = [
    (counts_all, ONE, "call"),
    (counts_all_later, ONE, "call"),
    (counts_all_parts, ONE, "flat-map"),
    (is_the_last, ONE, "filter"),
    (counts_all, SECOND_PIPE, "call"),
    (counts_all, BEHIND_LANES, "call"),
]


@pytest.mark.parametrize(("work", "parts", "kind"), COUNTING)
def test_a_stage_that_meets_what_later_messages_have_done_is_told_of_it(
    work: Callable[..., object], parts: str, kind: str
) -> None:
    """X-24: a crash may bring a message again behind others, though few runs have enough of them to show it."""
    with pytest.raises(NotExercised, match=r"and .* when that is tried again after other") as found:
        simulation(work, parts, kind=kind).run(range(2))
    assert re.search(r"not judged: stage work \(\S+:\d+\) answers", str(found.value))


def test_a_stage_that_counts_up_to_its_own_message_is_held() -> None:
    """X-24: it answers the same whatever came after it."""
    assert simulation(counts_up_to_its_own).run(range(2)).runs == 2


def test_what_a_handler_answers_is_left_to_its_check() -> None:
    """X-70: it goes nowhere, so what later messages make of it is no matter."""
    rows = [{"n": n} for n in range(4)]

    def build() -> object:
        bank = Outside("bank")

        def charge(row: Row) -> int:
            bank.do("charge", row["n"], key=row["n"])
            return len(bank.count("charge"))

        def check(run: object) -> bool:
            del run
            return set(bank.count("charge").values()) == {1}

        return charge, check

    assert simulation_of(build, messages=rows, faults="none").run(range(2)).runs == 2


# Whoever advises the identity of a message asks first whether the stage has it.


def pays_in_one(rows: Sequence[Row]) -> Sequence[Row]:
    """Two batches may have one key."""
    mail.do("pay", sum(row["n"] for row in rows), key=rows[0]["n"] % 2)
    return rows


def pays_in_one_without(rows: Sequence[Row]) -> Sequence[Row]:
    """By no key."""
    mail.do("pay", sum(row["n"] for row in rows))
    return rows


def pays_each_kind_once(rows: Sequence[Row]) -> Sequence[Row]:
    """Several messages have one effect, and one key."""
    for row in rows:
        mail.do("pay", row["n"] % 2, key=row["n"] % 2)
    return rows


def pays_in_one_by_the_day(rows: Sequence[Row]) -> Sequence[Row]:
    """Another key on another day."""
    key = f"{rows[0]['n']}/{datetime.now():%Y-%m-%d}"  # noqa: DTZ005 - as users write it
    mail.do("pay", [rows[0]["n"], key], key=key)
    return rows


@pytest.mark.parametrize(
    "work",
    [pays_in_one, pays_in_one_without, pays_for_all, pays_in_one_by_the_day, pays_each_kind_once],
)
def test_behind_a_batch_no_key_of_it_is_advised(work: Callable[..., object]) -> None:
    """X-26: context.id is that of its first message; whoever took it was sent away once more."""
    simulated = simulation(work, BEHIND_A_BATCH)
    found = simulated.campaign(range(2))
    told = [str(one.violation) for one in found.failures.values()] + [*found.retold]
    assert told
    assert any("(context.id tells of its batch)" in text for text in told), told
    assert not any("such as context.id.key" in text for text in told), told


def test_where_what_a_stage_keeps_behind_a_batch_and_lanes_is_to_go() -> None:
    """X-26: that is told for a stage, and by its messages."""
    lanes = HEAD.replace("boundary: committed", "key: n, lanes: 2, boundary: processed")
    for parts, is_of_batch in ((BEHIND_A_BATCH, True), (ONE, False)):
        plan = simulation(pays_for_all, parts, head=lanes).subject.plan
        told = in_transaction(plan, "work")
        assert ("(context.id tells of its batch)" in told) is is_of_batch
        assert ("such as context.id.key" in told) is not is_of_batch


# Amounts that another order of the messages makes others.


def pays_the_sum(row: Row) -> Row:
    """For the last message; the others are counted."""
    if row["n"] < 4:
        ledger.do("hours", [row["n"], row["of"]], key=row["n"])
    else:
        known = cast("Mapping[tuple[int, int], int]", ledger.count("hours"))
        mail.do("pay", sum(n for n, of in known if of == row["of"]), key=row["n"])
    return row


def sum_is_looked_at(run: object) -> bool:
    """Whether one of the right amount is paid."""
    del run
    return mail.count("pay") == {6: 1}


@pytest.mark.parametrize(
    ("key", "check", "is_told"),
    [("n", "", True), ("of", "", False), ("n", "sum_is_looked_at", False)],
)
def test_an_amount_that_follows_from_which_message_is_first_is_not_judged(
    key: str, check: str, *, is_told: bool
) -> None:
    """X-26: 1. Lanes of another key than that of the sum. 2. The message that asks for it overtakes others."""
    lanes = HEAD.replace("boundary: committed", f"key: {key}, lanes: 2, boundary: processed")
    rows = SAMPLE.replace("}]", ", of: 7}]").replace("},", ", of: 7},")
    checked = rows.replace("{messages", f'{{check: "CALL {check}", messages') if check else rows
    placed = ONE.replace("WORK", pays_the_sum.__name__).replace("KIND", "call")
    text = f"{lanes}{placed}{checked}".replace("CALL ", f"{__name__}:")
    found = simulation_of(loads(text), faults="none").campaign(range(1))
    told = [
        text for text in found.retold if "(mail pay) is another thing when messages come" in text
    ]
    assert bool(told) is is_told, found.retold
    assert not [text for text in found.retold if "(ledger hours)" in text]


def tells_its_key(row: Row, context: Context) -> Row:
    """A double that records the headers of a request."""
    mail.do("send", [row["n"], context.id.key], key=context.id.key)
    return row


@pytest.mark.parametrize(("work", "is_told"), [(tells_its_key, True), (posts_by_key, False)])
def test_that_only_the_number_of_effects_is_compared_is_told(
    work: Callable[..., object], *, is_told: bool
) -> None:
    """X-26: what tells the identity of its message is another thing in each run."""
    simulated = simulation(work)
    notes = [*simulated.notes(simulated.campaign(range(1)))]
    told = r"of what stage work \(test_keys_of_effects.py:\d+\) does outside \(mail \w+\), not all was compared"
    assert any(re.search(told, note) for note in notes) is is_told, notes
