from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

import pytest

from surepipe import Pipe
from surepipe.actors.codecs import AutoCodec
from surepipe.audit.trace_file import TraceRecorder
from surepipe.cli.app import run as command
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Created,
    Owner,
    Retention,
    Store,
)
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipelines.run import PlanEngine
from surepipe.pipelines.run.feeding import FeedPlace, FeedTarget
from surepipe.pipelines.run.running import letters_in
from surepipe.pipelines.run.writers import StoreCursor
from surepipe.pipelines.stages import Context
from surepipe.storage import (
    MemoryStore,
    SqliteStore,
    SqliteTransaction,
    forget_reader,
    readers_of,
)
from tests.pipelines.run.kit import (
    DONE_S,
    STORE,
    Bench,
    finish,
    plan_of,
    read_lines,
    run,
    until,
    write_lines,
)

pytestmark = pytest.mark.usefixtures("folder")
LINES = "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
INTAKE = "  intake: {from: lines, journal: main, state: main, boundary: committed}\n"
OUT = "sinks: {out: {from: last, kind: jsonl, path: out.jsonl}}\n"


def staged(stages: str, *, pipes: str = INTAKE, sinks: str = OUT) -> str:
    """A pipeline from lines through the pipe intake."""
    return f"{LINES}pipes:\n{pipes}stages:\n{stages}{sinks}"


def ten(number: int) -> int:
    """Ten of it."""
    return number * 10


def twice(number: int) -> list[int]:
    """It and the next."""
    return [number, number + 1]


def some(number: int) -> bool:
    """All but one."""
    return number != 31


def odd(number: int) -> int | None:
    """Nothing for even ones."""
    return number if number % 2 else None


def minus(number: int) -> int:
    """A negative one, for 0 too."""
    return -number - 1


def test_stages_map_filter_split_and_gather() -> None:
    """map, flat-map, filter, key-by and batch behind one pipe, in order."""
    write_lines("in.jsonl", range(1, 6))
    text = staged(
        '  ten: {from: intake, map: "test:ten"}\n'
        '  twice: {from: ten, flat-map: "test:twice"}\n'
        '  some: {from: twice, filter: "test:some"}\n'
        '  keyed: {from: some, key-by: "test:ten"}\n'
        "  last: {from: keyed, batch: {max: 3}}\n"
    )
    run(
        plan_of(text),
        ten=ten,
        twice=twice,
        some=some,
    )
    batches = read_lines("out.jsonl")
    assert [n for batch in batches for n in batch] == [10, 11, 20, 21, 30, 40, 41, 50, 51]
    assert all(1 <= len(batch) <= 3 for batch in batches)


@pytest.mark.parametrize("boundary", ["committed", "processed"])
def test_what_a_stage_sets_in_a_context_variable_is_for_its_own_message(boundary: str) -> None:
    """The stage behind it sees it, the next message does not."""
    who: ContextVar[int] = ContextVar("who", default=0)
    write_lines("in.jsonl", range(1, 5))
    text = staged(
        '  first: {from: intake, map: "test:mark"}\n  last: {from: first, map: "test:marked"}\n',
        pipes=f"  intake: {{from: lines, journal: main, state: main, boundary: {boundary}}}\n",
    )

    def mark(number: int) -> list[int]:
        before = who.get()
        who.set(number)
        return [number, before]

    def marked(message: list[int]) -> list[int]:
        return [*message, who.get()]

    run(plan_of(text), mark=mark, marked=marked)
    assert read_lines("out.jsonl") == [[number, 0, number] for number in range(1, 5)]


@pytest.mark.parametrize("boundary", ["committed", "processed"])
def test_a_batch_of_what_came_of_a_batch_loses_nothing(boundary: str) -> None:
    """pipes D-2: what is collected first is given first; the other way round nobody gave the second batch, and its
    messages were settled and gone."""
    write_lines("in.jsonl", range(1, 9))
    text = staged(
        "  few: {from: intake, batch: {max: 3}}\n"
        '  each: {from: few, flat-map: "test:each"}\n'
        "  more: {from: each, batch: {max: 2}}\n"
        '  last: {from: more, flat-map: "test:each"}\n',
        pipes=f"  intake: {{from: lines, journal: main, state: main, boundary: {boundary}}}\n",
    )

    def each(numbers: list[int]) -> list[int]:
        return numbers

    run(plan_of(text), each=each)
    assert read_lines("out.jsonl") == [*range(1, 9)]


@pytest.mark.parametrize("boundary", ["committed", "processed"])
def test_a_message_that_spoils_its_batch_is_found_and_buried_alone(boundary: str) -> None:
    """With one attempt only: a batch that fails is tried again message by message, and nobody else is blamed."""

    def fussy(numbers: list[int]) -> list[int]:
        if 7 in numbers:
            raise ValueError("seven")
        return numbers

    write_lines("in.jsonl", range(40))
    pipe = f"  intake: {{from: lines, journal: main, state: main, boundary: {boundary}}}\n"
    text = staged(
        "  few: {from: intake, batch: {max: 4}}\n"
        '  last: {from: few, call: "test:fussy", retries: 1, retry_min_s: 0.001, dead_letter: main/dead}\n',
        pipes=pipe,
    )
    run(plan_of(text), fussy=fussy)
    found = [n for batch in read_lines("out.jsonl") for n in batch]
    assert found == [n for n in range(40) if n != 7]
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
    assert letter.letter.payload.endswith(b"7")


@pytest.mark.parametrize("boundary", ["committed", "processed"])
def test_a_stage_that_changes_its_message_changes_it_for_nobody_beside_it(boundary: str) -> None:
    """Several takers each get every message. One doubles the amount in place, another collects, a third reads, a
    sink writes the message as it came."""
    write_lines("in.jsonl", [{"amount": n} for n in (1, 2)])
    pipe = f"  intake: {{from: lines, journal: main, state: main, boundary: {boundary}}}\n"
    text = staged(
        '  doubled: {from: intake, call: "test:double"}\n'
        "  few: {from: intake, batch: {max: 2}}\n"
        '  read: {from: intake, call: "test:read"}\n'
        '  last: {from: [doubled, few, read], call: "test:read"}\n',
        pipes=pipe,
        sinks="sinks:\n"
        "  raw: {from: intake, kind: jsonl, path: raw.jsonl}\n"
        "  out: {from: last, kind: jsonl, path: out.jsonl}\n",
    )

    def double(order: dict[str, int]) -> dict[str, int]:
        order["amount"] *= 2
        return order

    def unchanged(message: object) -> object:
        return message

    run(plan_of(text), double=double, read=unchanged)
    found = read_lines("out.jsonl")
    assert [one for one in found if isinstance(one, list)] in (
        [[{"amount": 1}, {"amount": 2}]],
        [[{"amount": 1}], [{"amount": 2}]],
    )
    alone = [str(one) for one in found if not isinstance(one, list)]
    assert sorted(alone) == [str({"amount": amount}) for amount in (1, 2, 2, 4)]
    assert read_lines("raw.jsonl") == [{"amount": 1}, {"amount": 2}]


def test_a_call_that_gives_none_passes_nothing_on() -> None:
    """And the message is settled."""
    write_lines("in.jsonl", [1, 2, 3])
    counted = run(
        plan_of(staged('  last: {from: intake, call: "test:odd"}\n')),
        odd=odd,
    )
    assert read_lines("out.jsonl") == [1, 3]
    assert counted["intake"]["settled"] == 3


def test_a_stage_may_be_an_async_function_or_a_class_with_memory() -> None:
    """The class is made once for the run."""

    class Sum:
        def __init__(self) -> None:
            self.sum = 0

        def __call__(self, number: int) -> int:
            self.sum += number
            return self.sum

    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return -number

    write_lines("in.jsonl", [1, 2, 3])
    run(
        plan_of(
            staged(
                '  sum: {from: intake, call: "test:Sum"}\n  last: {from: sum, call: "test:later"}\n'
            )
        ),
        Sum=Sum,
        later=later,
    )
    assert read_lines("out.jsonl") == [-1, -3, -6]


def test_the_context_tells_identity_and_attempt_and_draws_the_same_again() -> None:
    """simulation X-24: the id stays on a repeat, the attempt counts, random follows from the id."""
    seen: list[tuple[str, int, float]] = []

    def fragile(number: int, context: Context) -> int:
        seen.append((context.id.key, context.attempt, context.random.random()))
        if context.attempt < 3:
            raise ValueError(number)
        return number

    write_lines("in.jsonl", [7])
    run(
        plan_of(staged('  last: {from: intake, call: "test:fragile", retry_min_s: 0.001}\n')),
        fragile=fragile,
    )
    keys, attempts, draws = zip(*seen, strict=True)
    assert attempts == (1, 2, 3)
    assert len(set(keys)) == len(set(draws)) == 1
    assert keys[0].startswith("shop/intake/")


def test_an_attempt_that_takes_too_long_is_repeated() -> None:
    """An async one is cancelled; one that sleeps for ever in a thread would be left alone."""

    async def slow(number: int, context: Context) -> int:
        if context.attempt == 1:
            await asyncio.Event().wait()
        return number

    write_lines("in.jsonl", [1, 2])
    counted = run(
        plan_of(
            staged(
                '  last: {from: intake, call: "test:slow", time_limit_s: 0.02, retry_min_s: 0.001}\n'
            )
        ),
        slow=slow,
    )
    assert read_lines("out.jsonl") == [1, 2]
    assert counted["last"] == {"failed": 2, "passed": 2}


def test_what_a_flat_map_yields_is_within_its_time_limit() -> None:
    """Its body is not run by the call itself, but by whoever takes what it gives."""
    released = threading.Event()

    def slow(number: int, context: Context) -> Iterator[int]:
        if context.attempt == 1:
            released.wait(20)
        released.set()
        yield number

    write_lines("in.jsonl", [1])
    more = "time_limit_s: 0.05, retry_min_s: 0.001"
    counted = run(
        plan_of(staged(f'  last: {{from: intake, flat-map: "test:slow", {more}}}\n')), slow=slow
    )
    assert read_lines("out.jsonl") == [1]
    assert counted["last"] == {"failed": 1, "passed": 1}


def test_a_coroutine_that_clings_to_its_life_does_not_hold_up_its_stage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is cancelled at the limit, and left alone after as long again."""

    async def clings(number: int, context: Context) -> int:
        while context.attempt == 1:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            if is_over.is_set():
                break
        return number

    is_over = threading.Event()
    write_lines("in.jsonl", [1])
    run(
        plan_of(
            staged(
                '  last: {from: intake, call: "test:clings", time_limit_s: 0.02, retry_min_s: 0.001}\n'
            )
        ),
        clings=clings,
    )
    is_over.set()
    assert read_lines("out.jsonl") == [1]
    assert "it is left alone" in caplog.text


def test_calls_with_a_time_limit_share_a_thread() -> None:
    """A hundred calls, one helper; what is to be awaited of a plain function's answer has the limit, too."""
    helpers: set[int] = set()

    def plain(number: int) -> int:
        helpers.add(threading.get_ident())
        return number

    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return -number

    def wrapped(number: int) -> object:
        return later(number)

    write_lines("in.jsonl", range(100))
    run(
        plan_of(
            staged(
                '  first: {from: intake, call: "test:plain", time_limit_s: 60}\n'
                '  last: {from: first, call: "test:wrapped", time_limit_s: 60}\n'
            )
        ),
        plain=plain,
        wrapped=wrapped,
    )
    assert read_lines("out.jsonl") == [-n for n in range(100)]
    assert len(helpers) == 1


@pytest.mark.parametrize("limit", ["", ", time_limit_s: 60"])
def test_a_stage_may_be_any_call_that_gives_what_is_to_be_awaited(limit: str) -> None:
    """An object, a partial, a future: awaited before the message goes on, with a time limit and without."""

    class Later:
        async def __call__(self, number: int) -> int:
            await asyncio.sleep(0)
            return number + 1

    async def add(more: int, number: int) -> int:
        return number + more

    def flat(number: int) -> object:
        return Later()(number)

    async def each(number: int) -> list[int]:
        return [number, number]

    write_lines("in.jsonl", [1, 2])
    run(
        plan_of(
            staged(
                f'  one: {{from: intake, call: "test:Later"{limit}}}\n'
                f'  two: {{from: one, call: "test:add"{limit}}}\n'
                f'  three: {{from: two, map: "test:flat"{limit}}}\n'
                f'  last: {{from: three, flat-map: "test:each"{limit}}}\n'
            )
        ),
        Later=Later,
        add=functools.partial(add, 10),
        flat=flat,
        each=each,
    )
    assert read_lines("out.jsonl") == [13, 13, 14, 14]


def fan_out(boundary: str) -> str:
    """Two consumers of one pipe, each with its own patience and letters."""
    pipe = f"  intake: {{from: lines, journal: main, state: main, boundary: {boundary}}}\n"
    return staged(
        '  good: {from: intake, call: "test:good"}\n'
        '  bad: {from: intake, call: "test:bad", retries: 3, retry_min_s: 0.001, dead_letter: main/bad}\n'
        '  worse: {from: intake, call: "test:worse", retries: 2, retry_min_s: 0.001, dead_letter: main/worse}\n',
        pipes=pipe,
        sinks="",
    )


def test_of_several_consumers_only_the_one_that_fails_is_tried_again() -> None:
    """Boundary processed: the others pass over what they have; each part counts its own attempts."""
    calls: list[tuple[str, int]] = []

    def good(number: int) -> None:
        calls.append(("good", number))

    def bad(number: int) -> None:
        calls.append(("bad", number))
        if number == 2:
            raise ValueError("no")

    def worse(number: int) -> None:
        calls.append(("worse", number))
        if number == 3:
            raise KeyError("never")

    write_lines("in.jsonl", [1, 2, 3, 4])
    run(plan_of(fan_out("processed")), good=good, bad=bad, worse=worse)
    assert [n for name, n in calls if name == "good"] == [1, 2, 3, 4]
    assert [n for name, n in calls if name == "bad"] == [1, 2, 2, 2, 3, 4]
    assert [n for name, n in calls if name == "worse"] == [1, 3, 3, 4]
    with SqliteStore("main.db") as store:
        letters = {
            name: [one.letter for one in letters_in({"main": store}, f"main/{name}").all()]
            for name in ("bad", "worse")
        }
    assert [(one.error_type, one.attempts) for one in letters["bad"]] == [("ValueError", 3)]
    assert [(one.error_type, one.error_text) for one in letters["worse"]] == [
        ("KeyError", "'never'")
    ]


def test_in_a_transaction_what_fails_takes_everything_back() -> None:
    """Boundary committed: a file and a table behind one pipe have each message once, though one fails at first."""
    failed: set[int] = set()

    def book(order: int, context: Context) -> None:
        connection = cast("SqliteTransaction", context.transaction).connection
        connection.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
        connection.execute("INSERT INTO booked VALUES (?)", (order,))
        if order % 5 == 0 and order not in failed:
            failed.add(order)
            raise ConnectionError("once")

    write_lines("in.jsonl", range(20))
    text = (
        f"{LINES}pipes:\n{INTAKE}"
        "sinks:\n  out: {from: intake, kind: jsonl, path: out.jsonl}\n"
        '  table: {from: intake, kind: python, call: "test:book", retry_min_s: 0.001}\n'
    )
    run(plan_of(text), book=book)
    assert read_lines("out.jsonl") == list(range(20))
    with SqliteStore("main.db") as store, store.transaction() as transaction:
        rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert [row[0] for row in rows] == list(range(20))


@pytest.mark.parametrize("how", ["function", "expression", "coroutine"])
def test_a_flat_map_that_yields_has_its_transaction_while_it_runs(how: str) -> None:
    """Boundary committed: its body runs when somebody takes what it gives, which is within the attempt. Number 3
    fails in the middle, once: it is tried again, and is in the table and the file once."""
    failed: set[int] = set()

    def book(order: int, context: Context) -> int:
        connection = cast("SqliteTransaction", context.transaction).connection
        connection.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
        connection.execute("INSERT INTO booked VALUES (?)", (order,))
        if order == 3 and order not in failed:
            failed.add(order)
            raise ConnectionError("once")
        return order

    def function(order: int, context: Context) -> Iterator[int]:
        yield book(order, context)
        yield order

    def expression(order: int, context: Context) -> Iterator[int]:
        return ((number and book(order, context)) or order for number in (1, 0))

    async def coroutine(order: int, context: Context) -> Iterator[int]:
        await asyncio.sleep(0)
        return function(order, context)

    stage = {"function": function, "expression": expression, "coroutine": coroutine}[how]
    write_lines("in.jsonl", range(1, 7))
    more = "retry_min_s: 0.001, retries: 3, dead_letter: main/dead"
    run(plan_of(staged(f'  last: {{from: intake, flat-map: "test:stage", {more}}}\n')), stage=stage)
    assert read_lines("out.jsonl") == [order for order in range(1, 7) for _ in range(2)]
    with SqliteStore("main.db") as store, store.transaction() as transaction:
        rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert [row[0] for row in rows] == list(range(1, 7))


def test_messages_of_a_transaction_that_was_refused_come_again_as_who_they_are() -> None:
    """Boundary committed: number 3 of 6 appends to a stream that is not there; no other message fails."""
    seen: list[tuple[int, int]] = []

    def forward(order: int, context: Context) -> int:
        seen.append((context.id.seq, order))
        if order == 3 and seen.count((3, 3)) <= 2:  # together with others, and then alone
            assert context.transaction is not None
            context.transaction.append(AppendRun("nowhere", "relay", 1, 1, [b"3"]))
        return order

    write_lines("in.jsonl", range(1, 7))
    run(plan_of(staged('  last: {from: intake, call: "test:forward"}\n')), forward=forward)
    assert all(seq == order for seq, order in seen)
    assert read_lines("out.jsonl") == [1, 2, 3, 4, 5, 6]
    assert seen.count((3, 3)) == 3


def test_a_stage_whose_writes_are_refused_has_failed_and_its_message_ends_in_the_dead_letters() -> (
    None
):
    """pipes D-2: number 3 of 6 always appends to a stream that is not there: three attempts, and the others pass;
    a stage that uses the transaction before it is not to blame."""
    attempts: list[int] = []

    def forward(order: int, context: Context) -> int:
        if order == 3:
            attempts.append(context.attempt)
            context.transaction.append(AppendRun("nowhere", "relay", 1, 1, [b"3"]))
        return order

    def book(order: int, context: Context) -> int:
        connection = cast("SqliteTransaction", context.transaction).connection
        connection.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER)")
        connection.execute("INSERT INTO booked VALUES (?)", (order,))
        return order

    write_lines("in.jsonl", range(1, 7))
    more = "retries: 3, retry_min_s: 0.001, dead_letter: main/dead"
    text = staged(
        '  first: {from: intake, call: "test:book", retries: 1, dead_letter: main/never}\n'
        f'  last: {{from: first, call: "test:forward", {more}}}\n'
    )
    run(plan_of(text), forward=forward, book=book)
    assert read_lines("out.jsonl") == [1, 2, 4, 5, 6]
    assert max(attempts) == 3
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
        with store.transaction() as transaction:
            rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert (letter.letter.seq, letter.letter.error_type) == (3, "ConfigurationError")
    assert [row[0] for row in rows] == [1, 2, 4, 5, 6]


def test_what_a_stage_leaves_running_is_not_committed_with_the_next_attempt() -> None:
    """A gather of which one raises: the other writes while the stage is called again, through what it has kept."""
    calls: list[int] = []
    told: list[BaseException] = []
    is_next, is_over = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        raise ConnectionError("once")

    async def write_late(connection: sqlite3.Connection, context: Context) -> None:
        await asyncio.wait_for(is_next.wait(), DONE_S)
        uses: list[Callable[[], object]] = [
            lambda: connection.execute("INSERT INTO booked VALUES (99)"),
            lambda: context.transaction,
        ]
        for use in uses:
            try:
                use()
            except MisuseError as error:
                told.append(error)
        is_over.set()

    async def book(order: int, context: Context) -> int:
        calls.append(order)
        connection = cast("SqliteTransaction", context.transaction).connection
        if len(calls) == 1:
            await asyncio.gather(fail(), write_late(connection, context))
        is_next.set()
        await asyncio.wait_for(is_over.wait(), DONE_S)
        connection.execute("INSERT INTO booked VALUES (?)", (order,))
        return order

    with SqliteStore("main.db") as store, store.transaction() as transaction:
        transaction.connection.execute("CREATE TABLE booked (number INTEGER)")
    write_lines("in.jsonl", [7])
    run(
        plan_of(staged('  last: {from: intake, call: "test:book", retry_min_s: 0.001}\n')),
        book=book,
    )
    with SqliteStore("main.db") as store, store.transaction() as transaction:
        rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert rows == [(7,)]
    assert calls == [7, 7]
    assert ["TaskGroup" in str(one) for one in told] == [True, True]


@pytest.mark.parametrize("kind", ["stage", "sink"])
def test_a_part_that_ends_the_transaction_has_failed_and_its_message_ends_in_the_dead_letters(
    kind: str,
) -> None:
    """Number 3 of 6 has SQLite roll back, and swallows the error: it has a letter, and the others pass once."""

    def book(order: int, context: Context) -> int:
        connection = cast("SqliteTransaction", context.transaction).connection
        connection.execute("CREATE TABLE IF NOT EXISTS booked (number INTEGER UNIQUE)")
        connection.execute("INSERT INTO booked VALUES (?)", (order,))
        if order == 3:
            with contextlib.suppress(sqlite3.IntegrityError):
                connection.execute("INSERT OR ROLLBACK INTO booked VALUES (3)")
        return order

    write_lines("in.jsonl", range(1, 7))
    more = "retries: 2, retry_min_s: 0.001, dead_letter: main/dead"
    stage = staged(f'  last: {{from: intake, call: "test:book", {more}}}\n')
    sink = (
        f"{LINES}pipes:\n{INTAKE}"
        f'sinks:\n  table: {{from: intake, kind: python, call: "test:book", {more}}}\n'
    )
    run(plan_of(stage if kind == "stage" else sink), book=book)
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
        with store.transaction() as transaction:
            rows = transaction.connection.execute("SELECT number FROM booked").fetchall()
    assert [row[0] for row in rows] == [1, 2, 4, 5, 6]
    assert (letter.letter.seq, letter.letter.attempts) == (3, 2)
    assert "a statement ended the transaction" in letter.letter.error_text
    if kind == "stage":
        assert read_lines("out.jsonl") == [1, 2, 4, 5, 6]


CHAIN = """\
pipes:
  first: {from: lines, journal: main, state: main, boundary: BOUNDARY}
  second: {from: double, journal: main, state: main, boundary: committed}
  third: {from: double, route: {kind: sqlite, store: main}, state: main, boundary: committed}
stages:
  double: {from: first, flat-map: "test:double"}
sinks:
  second_out: {from: second, kind: jsonl, path: second.jsonl}
  third_out: {from: third, kind: csv, path: third.csv}
"""


def double(order: dict[str, int]) -> Iterator[dict[str, int]]:
    """Each order, and its opposite."""
    yield order
    yield {"n": -order["n"]}


@pytest.mark.parametrize("boundary", ["committed", "processed"])
def test_pipes_hand_over_to_pipes(boundary: str) -> None:
    """In a transaction through a stream beside the state; else when the next pipe has stored it."""
    write_lines("in.jsonl", [{"n": n} for n in range(1, 41)])
    plan = plan_of(LINES + CHAIN.replace("BOUNDARY", boundary))
    run(plan, double=double)
    run(plan, double=double)
    expected = [sign * n for n in range(1, 41) for sign in (1, -1)]
    assert [order["n"] for order in read_lines("second.jsonl")] == expected
    assert Path("third.csv").read_text().split() == ["n", *map(str, expected)]


@pytest.mark.parametrize(
    ("kept", "more"), [("", ""), ("", ", lanes: 2, key: n"), (", journal: main", "")]
)
def test_what_the_next_pipe_does_not_store_is_settled_when_it_is_confirmed(
    kept: str, more: str
) -> None:
    """Boundary processed. The second pipe's stage hangs: without a journal there, a kill now would take what it
    has with it, so the first must still have that in its own (pipes G-7). With one, all is settled at once."""
    write_lines("in.jsonl", [{"n": n} for n in range(5)])
    text = (
        f"{LINES}pipes:\n  first: {{from: lines, journal: main, state: main, boundary: processed{more}}}\n"
        f"  second: {{from: first, boundary: processed{kept}}}\n"
        f'stages: {{last: {{from: second, map: "test:wait"}}}}\n{OUT}'
    )
    plan, hanging, goes_on = plan_of(text), threading.Event(), threading.Event()

    def wait(order: dict[str, int]) -> dict[str, int]:
        hanging.set()
        assert goes_on.wait(DONE_S)
        return order

    bench = Bench(plan, wait=wait)
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    try:
        assert hanging.wait(DONE_S)
        if kept:
            until(engine, lambda: engine.counters()["first"]["settled"] == 5)
        else:
            engine.wait(0.05)
            assert engine.counters()["first"].get("settled", 0) == 0
        goes_on.set()
        finish(engine, bench)
    finally:
        goes_on.set()
        engine.close(5.0)
    assert engine.counters()["first"]["settled"] == 5
    assert sorted(order["n"] for order in read_lines("out.jsonl")) == list(range(5))


def test_two_pipes_may_feed_one_file_and_each_keeps_its_order() -> None:
    """Also where one of them waits for the other (boundary processed, a pipe behind a pipe)."""
    write_lines("in.jsonl", range(400))
    text = (
        f"{LINES}pipes:\n"
        "  one: {from: lines, layers: [{reliable: {backlog: 4, window: 2, run_max: 2}}]}\n"
        "  two: {from: one, layers: [{reliable: {backlog: 4, window: 2, run_max: 2}}]}\n"
        'stages:\n  minus: {from: two, map: "test:minus"}\n'
        "sinks:\n  out: {from: [one, minus], kind: jsonl, path: out.jsonl}\n"
    )
    run(plan_of(text, stores=""), minus=minus)
    found = read_lines("out.jsonl")
    assert [n for n in found if n >= 0] == list(range(400))
    assert [n for n in found if n < 0] == [-n - 1 for n in range(400)]


def test_lanes_handle_keys_side_by_side_and_each_in_order() -> None:
    """Two keys meet in the handler, which one lane alone could not do."""

    async def meet(order: dict[str, Any]) -> dict[str, Any]:
        if order["n"] < 2:
            arrived.add(order["key"])
            while len(arrived) < 2:
                await asyncio.sleep(0)
        return order

    arrived: set[str] = set()
    write_lines("in.jsonl", [{"key": "ab"[n % 2], "n": n} for n in range(40)])
    pipe = "  intake: {from: lines, key: key, lanes: 2, journal: main, state: main}\n"
    run(plan_of(staged('  last: {from: intake, call: "test:meet"}\n', pipes=pipe)), meet=meet)
    found = read_lines("out.jsonl")
    for key in "ab":
        assert [one["n"] for one in found if one["key"] == key] == list(
            range("ab".index(key), 40, 2)
        )


def test_stages_before_the_first_pipe_bury_what_never_passes() -> None:
    """A row whose stage fails too often becomes a letter of the source, and the others go on in order. Of rows
    that are read as one run only the one that fails comes to the stage again."""
    write_lines("in.jsonl", range(6))
    calls: list[int] = []

    def picky(number: int) -> int:
        calls.append(number)
        if number == 3:
            raise ValueError("three")
        return number

    text = (
        f"{LINES}stages:\n"
        '  picky: {from: lines, map: "test:picky", retries: 2, retry_min_s: 0.001, dead_letter: main/dead}\n'
        "pipes:\n  last: {from: picky, journal: main, state: main, boundary: committed}\n" + OUT
    )
    run(plan_of(text), picky=picky)
    assert read_lines("out.jsonl") == [0, 1, 2, 4, 5]
    assert calls == [0, 1, 2, 3, 3, 4, 5]
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
    assert (letter.letter.pipe, letter.letter.seq) == ("shop/lines", 4)


def test_another_run_goes_on_behind_the_last_part_of_a_row() -> None:
    """A row becomes none, one or two messages before its pipe: the places of a run tell which row and part the
    next run goes on behind, whatever came of the last ones."""
    calls: list[int] = []

    def parts(number: int) -> list[int]:
        calls.append(number)
        return [number] * (number % 3)

    plan = plan_of(
        f'{LINES}stages: {{parts: {{from: lines, flat-map: "test:parts"}}}}\n'
        "pipes: {last: {from: parts, journal: main, state: main, boundary: committed}}\n" + OUT
    )
    write_lines("in.jsonl", range(6))
    run(plan, parts=parts)
    assert read_lines("out.jsonl") == [1, 2, 2, 4, 5, 5]
    write_lines("in.jsonl", range(8))
    run(plan, parts=parts)
    assert read_lines("out.jsonl") == [1, 2, 2, 4, 5, 5, 7]
    assert calls == list(range(8))


def test_a_run_that_is_cut_off_goes_on_where_it_was(folder: Path) -> None:
    """Ten engines over one store, each given up after some messages: the file has each line once, in order."""
    write_lines("in.jsonl", range(3_000))
    plan = plan_of(
        f"{LINES}pipes:\n{INTAKE}sinks: {{out: {{from: intake, kind: jsonl, path: out.jsonl}}}}\n"
    )
    for life in range(1, 11):
        bench = Bench(plan)
        engine = PlanEngine(plan, "main", bench, once=True)
        engine.start()
        try:
            while not engine.look() and engine.counters()["intake"]["settled"] < 40 * life:
                engine.wait(0.001)
        finally:
            engine.close(0.01)
    bench = Bench(plan)
    last = PlanEngine(plan, "main", bench, once=True)
    last.start()
    try:
        finish(last, bench)
    finally:
        last.close()
    assert read_lines(str(folder / "out.jsonl")) == list(range(3_000))


@pytest.mark.parametrize("more", ["boundary: committed", "lanes: 2, key: n"])
def test_a_sink_in_python_is_told_which_attempt_it_is(more: str) -> None:
    """simulation X-24: in a transaction, and with lanes; the identity stays the same."""
    seen: list[tuple[str, int]] = []

    def book(message: object, context: Context) -> None:
        seen.append((context.id.key, context.attempt))
        if context.attempt < 3:
            raise ValueError(message)

    write_lines("in.jsonl", [{"n": 1}])
    text = (
        f"{LINES}pipes: {{intake: {{from: lines, journal: main, state: main, {more}}}}}\n"
        'sinks: {out: {from: intake, kind: python, call: "test:book", retry_min_s: 0.001}}\n'
    )
    run(plan_of(text), book=book)
    assert [attempt for _, attempt in seen] == [1, 2, 3]
    assert len({key for key, _ in seen}) == 1


def test_a_row_that_no_pipe_can_carry_is_named_and_those_before_it_go_through() -> None:
    """NaN is read as JSON here and there, and written nowhere."""
    Path("in.jsonl").write_text("1\nNaN\n3\n")
    plan = plan_of(
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {intake: {from: lines, journal: main}}\n"
        "sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}\n"
    )
    with pytest.raises(
        ConfigurationError, match="source lines, message 2: a message of type float"
    ):
        run(plan)
    write_lines("in.jsonl", [1, 222, 3])
    run(plan)
    assert read_lines("out.jsonl") == [1, 222, 3]


def test_of_a_batch_whose_writes_are_refused_only_the_message_to_blame_ends_in_the_dead_letters() -> (
    None
):
    """pipes D-2: a batch with number 3 appends to a stream that is not there: its messages come one by one."""

    def forward(orders: list[int], context: Context) -> list[int]:
        if 3 in orders:
            context.transaction.append(AppendRun("nowhere", "relay", 1, 1, [b"3"]))
        return orders

    write_lines("in.jsonl", range(1, 7))
    text = staged(
        "  few: {from: intake, batch: {max: 3}}\n"
        '  last: {from: few, flat-map: "test:forward", retries: 2, retry_min_s: 0.001, dead_letter: main/dead}\n'
    )
    run(plan_of(text), forward=forward)
    assert read_lines("out.jsonl") == [1, 2, 4, 5, 6]
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
    assert letter.letter.seq == 3


def in_stream(name: str) -> list[int]:
    """The numbers in a stream of the store."""
    with SqliteStore("main.db") as store:
        found = store.read(name, 1, 1000, 100_000)
    assert isinstance(found, Batch)
    payloads = [payload for one in found.entries for payload in one.payloads]
    return sorted(cast("int", AutoCodec().decode(payload)) for payload in payloads)


def test_two_ways_that_meet_again_give_one_message_two_identities() -> None:
    """A sink that knows repeats has what came on both ways; a stage behind has two keys."""
    keys: list[str] = []

    def met(number: int, context: Context) -> int:
        keys.append(context.id.key)
        return number

    write_lines("in.jsonl", [1, 2, 3])
    intake = INTAKE.replace("state: main, boundary: committed", "boundary: processed")
    text = staged(
        '  left: {from: intake, map: "test:ten"}\n'
        '  right: {from: intake, map: "test:minus"}\n'
        '  met: {from: [left, right], call: "test:met"}\n',
        pipes=intake,
        sinks="sinks:\n  all: {from: [left, right], kind: stream, store: main, stream: all}\n"
        "  after: {from: met, kind: stream, store: main, stream: after}\n",
    )
    run(plan_of(text), ten=ten, minus=minus, met=met)
    assert in_stream("all") == in_stream("after") == [-4, -3, -2, 10, 20, 30]
    assert len(set(keys)) == 6


def test_of_two_ways_that_meet_again_each_is_passed_over_by_itself() -> None:
    """The first way is done when the second fails. What a flat-map behind both gives is told apart by its way,
    else the next attempt would take that of the second way for done."""
    failed: list[int] = []

    def once(number: int) -> list[int]:
        if number < 0 and not failed:
            failed.append(number)
            raise ValueError("not yet")
        return [number, number * 2]

    write_lines("in.jsonl", [1, 2, 3])
    intake = INTAKE.replace("state: main, boundary: committed", "boundary: processed")
    text = staged(
        '  left: {from: intake, map: "test:ten"}\n'
        '  right: {from: intake, map: "test:minus"}\n'
        '  last: {from: [left, right], flat-map: "test:once", retries: 3, retry_min_s: 0.001}\n',
        pipes=intake,
        sinks="sinks: {out: {from: last, kind: stream, store: main, stream: out}}\n",
    )
    run(plan_of(text), ten=ten, minus=minus, once=once)
    assert in_stream("out") == sorted(n for m in (10, 20, 30, -2, -3, -4) for n in (m, 2 * m))


LANES = "  intake: {{from: lines, key: n, lanes: {}, journal: main, state: main}}\n"


@pytest.mark.parametrize("stage", ["", ", time_limit_s: 60"])
def test_lanes_of_an_async_stage_wait_together_without_a_thread_each(stage: str) -> None:
    """Every lane has a message in its stage at once, on one loop; 5 lanes or 50 need the same threads."""
    assert _threads_beside(5, stage) == _threads_beside(50, stage)


def _threads_beside(lanes: int, stage: str) -> list[str]:
    """The threads of the process while every lane has a message in its stage."""
    inside: list[int] = []
    beside: list[str] = []
    loops: set[object] = set()
    full = asyncio.Event()

    async def meet(order: dict[str, int]) -> dict[str, int]:
        inside.append(order["n"])
        if len(inside) == lanes:
            beside.extend(sorted(one.name for one in threading.enumerate()))
            full.set()
        await full.wait()
        loops.add(asyncio.get_running_loop())
        return order

    write_lines("in.jsonl", [{"n": n} for n in range(lanes)])
    for name in ("out.jsonl", "main.db"):
        Path(name).unlink(missing_ok=True)
    text = staged(
        f'  last: {{from: intake, call: "test:meet"{stage}}}\n', pipes=LANES.format(lanes)
    )
    run(plan_of(text), meet=meet)
    assert sorted(one["n"] for one in read_lines("out.jsonl")) == list(range(lanes))
    assert len(loops) == 1
    return beside


def test_what_blocks_beside_an_async_stage_holds_up_its_own_lane_only() -> None:
    """A plain stage, a plain sink and a generator wait for messages that come later, by the async stage."""

    async def later(order: dict[str, int]) -> dict[str, int]:
        await asyncio.sleep(0)
        return order

    def blocks(order: dict[str, int]) -> dict[str, int]:
        if order["n"] == 0:
            assert passed["plain"].wait(30)
        return order

    def yields(order: dict[str, int]) -> Iterator[dict[str, int]]:
        if order["n"] == 1:
            assert passed["generator"].wait(30)
        yield order

    def taken(order: dict[str, int]) -> None:
        if order["n"] == 2:
            assert passed["sink"].wait(30)
        got.append(order["n"])
        if order["n"] > 2:
            for one in list(passed.values())[: len(got)]:
                one.set()

    passed = {name: threading.Event() for name in ("plain", "generator", "sink")}
    got: list[int] = []
    write_lines("in.jsonl", [{"n": n} for n in range(6)])
    text = staged(
        '  first: {from: intake, call: "test:later"}\n  second: {from: first, call: "test:blocks"}\n'
        '  last: {from: second, flat-map: "test:yields"}\n',
        pipes=LANES.format(4),
        sinks='sinks: {out: {from: last, kind: python, call: "test:taken"}}\n',
    )
    run(plan_of(text), later=later, blocks=blocks, yields=yields, taken=taken)
    assert sorted(got) == list(range(6))


def test_a_stage_that_is_ended_with_its_run_has_not_failed() -> None:
    """Its coroutine is cancelled in the middle: no failure, no letter; the next run has it."""

    async def stuck(order: dict[str, int]) -> dict[str, int]:
        if is_stuck:
            begun.set()
            await asyncio.Event().wait()
        return order

    is_stuck, begun = True, threading.Event()
    write_lines("in.jsonl", [{"n": 1}])
    text = staged(
        '  last: {from: intake, call: "test:stuck", retries: 1, dead_letter: main/dead}\n',
        pipes=LANES.format(2),
    )
    plan = plan_of(text)
    engine = PlanEngine(plan, "main", Bench(plan, stuck=stuck), once=True)
    engine.start()
    assert begun.wait(30)
    engine.close(0.1)
    is_stuck = False
    run(plan, stuck=stuck)
    assert read_lines("out.jsonl") == [{"n": 1}]
    with SqliteStore("main.db") as store:
        assert not list(letters_in({"main": store}, "main/dead").all())
    assert "failed" not in engine.counters().get("last", {})


def test_a_stage_that_cancels_itself_fails_its_message_and_ends_no_lane() -> None:
    """As a coroutine that is cancelled by its own code: a failure, tried again."""

    async def cancels(order: dict[str, int], context: Context) -> dict[str, int]:
        if context.attempt == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return order

    write_lines("in.jsonl", [{"n": n} for n in range(8)])
    text = staged(
        '  last: {from: intake, call: "test:cancels", retry_min_s: 0.001}\n', pipes=LANES.format(3)
    )
    counted = run(plan_of(text), cancels=cancels)
    assert sorted(one["n"] for one in read_lines("out.jsonl")) == list(range(8))
    assert counted["last"] == {"failed": 8, "passed": 8}


@pytest.mark.parametrize("limit", ["", ", time_limit_s: 60"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stage_that_writes_to_the_file_of_its_transaction_by_itself_is_told_so_at_once(
    limit: str, is_async: bool
) -> None:
    """It opens the plan's file as a store of its own, which could only wait for the transaction that it is in."""

    def own(number: int) -> int:
        with SqliteStore("main.db", busy_timeout_s=1e6) as store:
            store.create("own", 1, KEEP_ALL)
        return number

    async def own_later(number: int) -> int:
        return own(number)

    write_lines("in.jsonl", [1])
    text = staged(
        f'  last: {{from: intake, call: "test:own", retries: 1, dead_letter: main/dead{limit}}}\n'
    )
    run(plan_of(text), own=own_later if is_async else own)
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
    assert "Write through the transaction" in letter.letter.error_text


def test_a_place_is_stored_of_what_is_confirmed_while_more_is_on_its_way() -> None:
    """Several runs of rows may be under way into a pipe that keeps no journal: what is not confirmed is not
    passed, so a run after a crash gives it again."""
    saved: list[str] = []

    class Told(StoreCursor):
        def save(self, text: str) -> None:
            saved.append(text)
            super().save(text)

    def place(row: int) -> FeedPlace:
        return FeedPlace(row, 1, 1, str(row - 1), str(row))

    go = threading.Event()
    with Pipe("p", ["reliable"]) as pipe:
        pipe.receive(lambda _: go.wait())
        target = FeedTarget(pipe, Told(MemoryStore(), "place"), beside=False)
        target.load()
        try:
            for row in (1, 2, 3):
                target.accept([row], {1: place(row)}.__getitem__, open_max=3)
            assert target.place == place(3)
            assert saved == []
        finally:
            go.set()
        target.accept([4], lambda _: place(4))
    assert saved[-1] == place(4).text


def test_a_plan_that_starts_at_the_latest_has_its_place_before_anything_is_fed() -> None:
    """When the start has returned, the store has the reader, and every row that this run feeds is seen."""
    write_lines("in.jsonl", range(1, 6))
    layers = "[{stream: {start: latest}}]"
    text = (
        f"{LINES}pipes: {{intake: {{from: lines, layers: {layers}, "
        "route: {kind: sqlite, store: main}}}\n"
        "sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}\n"
    )
    bench = Bench(plan := plan_of(text))
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    try:
        (reader,) = readers_of(engine.stores["main"], f"{plan.name}/intake")
        assert reader.next >= 1
        finish(engine, bench)
    finally:
        engine.close(5.0)
    assert read_lines("out.jsonl") == [1, 2, 3, 4, 5]


def stands_at_the_beginning(store: Store, stream: str, reader: str, first: object) -> None:
    """A reader of a stream that has a message in it, and doesn't read it."""
    made = store.create(stream, 1, Retention(max_bytes=24))
    owner = store.claim(stream, reader, 1)
    assert isinstance(made, Created)
    assert isinstance(owner, Owner)
    store.commit(CommitPosition(stream, reader, owner.number, made.incarnation, 1))
    store.append(stream, "before", 1, 1, [AutoCodec().encode(first)])


@pytest.mark.parametrize("batch", ["", ", batch: {max: 4}"])
def test_a_pipe_that_flows_into_a_full_stream_waits_and_its_stage_has_not_failed(
    batch: str,
) -> None:
    """One attempt, and a stream whose other reader stands still until the pipe waits: no letter, and in order."""
    write_lines("in.jsonl", range(1, 31))
    gather = f"  group: {{from: ten{batch}}}\n" if batch else ""
    text = (
        f"{LINES}pipes:\n{INTAKE}"
        f"  next: {{from: {'group' if batch else 'ten'}, state: main, boundary: committed,\n"
        "    route: {kind: sqlite, store: main, retention: {max_bytes: 24}}}\n"
        'stages:\n  ten: {from: intake, call: "test:ten", retries: 1, dead_letter: main/dead}\n'
        f"{gather}sinks: {{out: {{from: next, kind: jsonl, path: out.jsonl}}}}\n"
    )
    bench = Bench(plan := plan_of(text), ten=ten)
    engine = PlanEngine(plan, "main", bench, once=True)
    with SqliteStore("main.db") as other:
        stands_at_the_beginning(other, f"{plan.name}/next", "slow", [0] if batch else 0)
        engine.start()
        try:
            works = cast("Pipe", engine.faces["intake"]).receiver.works
            until(engine, lambda: bool(works.waits_for))
            assert "has still to read" in works.waits_for  # both readers of it stand there
            forget_reader(other, f"{plan.name}/next", "slow")
            finish(engine, bench)
            assert list(letters_in(engine.stores, "main/dead").all()) == []
        finally:
            engine.close(5.0)
    rows = read_lines("out.jsonl")
    flat = [number for row in rows for number in (row if batch else [row])]
    assert flat == [number * 10 for number in range(31)]


def test_a_transaction_puts_messages_where_a_pipe_reads_whose_layer_names_its_stream() -> None:
    """The stage's pipe commits what it gives to the next pipe, and that reads the stream that its layers name. It
    went into one by the name of the pipe, which nobody reads. The trace tells both ends under one name."""
    write_lines("in.jsonl", range(4))
    route = "route: {kind: sqlite, store: main}"
    named = "layers: [{stream: {stream: %s, start: earliest}}]"
    text = (
        f"{LINES}pipes:\n"
        f"  intake: {{from: lines, {route}, boundary: committed, {named % 'one'}}}\n"
        f"  next: {{from: work, {route}, {named % 'two'}}}\n"
        'stages: {work: {from: intake, call: "test:ten"}}\n'
        "sinks: {out: {from: next, kind: jsonl, path: out.jsonl}}\n"
    )
    plan = plan_of(text)
    for trace in ("first.jsonl", "second.jsonl"):
        bench = Bench(plan, ten=ten)
        with contextlib.closing(TraceRecorder(trace)) as recorder:
            bench.trace = recorder
            engine = PlanEngine(plan, "main", bench, once=True)
            engine.start()
            try:
                finish(engine, bench)
            finally:
                engine.close(5.0)
    assert read_lines("out.jsonl") == [0, 10, 20, 30]
    for trace in ("first.jsonl", "second.jsonl"):
        channels = {row["pipe"] for row in read_lines(trace) if "@" in row.get("pipe", "")}
        assert {channel.partition("@")[0] for channel in channels} == {"shop/intake", "shop/next"}
    Path("plan.yaml").write_text(f"version: 1\nname: shop\n{STORE}{text}")
    assert command(["audit", "--plan", "plan.yaml", "first.jsonl", "second.jsonl"]) == 0
