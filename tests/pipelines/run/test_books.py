"""Pipes through a book, on real stores: each message once at a stream sink, in the order of its key."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from surepipe.actors.codecs import choose_codec
from surepipe.actors.threads import THREADS
from surepipe.audit.trace_file import TraceRecorder
from surepipe.cli.app import run as command
from surepipe.cli.output import Exit
from surepipe.core.claims import Guarantee
from surepipe.core.store_requests import (
    Batch,
    CommitPosition,
    Store,
    StoreOutcome,
    StoreRequest,
    Together,
    Unavailable,
)
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.stores import AnyStore
from surepipe.pipelines.run import PlanEngine
from surepipe.pipelines.run.books import BookPipe, BookTrace
from surepipe.queues.book import Later, Rejected, TooHeavy, check_invariants
from surepipe.queues.book.answers import Done
from surepipe.queues.book.config import Cost
from surepipe.queues.book.ledger import Placed
from surepipe.queues.book.service import Passed
from surepipe.storage import MemoryStore, SqliteStore
from surepipe.testing.servers import RedisServer
from tests.kit.book import Gate
from tests.pipelines.run.kit import STORE, Bench, finish, plan_of, run, until, write_lines

pytestmark = pytest.mark.usefixtures("folder")
TEXT = """\
sources: {lines: {kind: jsonl, path: in.jsonl, key: tenant}}
pipes: {calls: {from: lines, lanes: 3, route: {kind: book, store: main ROUTE}}}
stages: {call: {from: calls, call: "test:call"}}
sinks: {out: {from: call, kind: stream, store: main, stream: out}}
"""
MEMORY = "stores: {main: {kind: memory}}\n"
Row = Mapping[str, Any]


def text(**settings: object) -> str:
    """The pipeline, with these settings of its book."""
    return TEXT.replace(" ROUTE", "".join(f", {name}: {value}" for name, value in settings.items()))


def rows(count: int, tenants: str = "abc", start: int = 1) -> list[dict[str, object]]:
    """So many requests, of one tenant after the other."""
    return [{"n": n, "tenant": tenants[n % len(tenants)]} for n in range(start, start + count)]


def same(row: Row) -> Row:
    """What comes goes on."""
    return row


def sunk(store: Store, stream: str = "out") -> list[Row]:
    """What the stream sink has."""
    codec, found, index = choose_codec("auto"), list[object](), 1
    while isinstance(batch := store.read(stream, index, 10_000, 1 << 24), Batch):
        found += [codec.decode(data) for one in batch.entries for data in one.payloads]
        index = batch.next
    return cast("list[Row]", found)


def each_once_in_the_order_of_its_key(found: Iterable[Row], given: Iterable[Row]) -> None:
    """As many as there were, and each key's as they came."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for row in found:
        by_key[row["tenant"]].append(row["n"])
    for row in given:
        wanted[row["tenant"]].append(row["n"])
    assert by_key == wanted


def book_of(engine: PlanEngine, pipe: str = "calls") -> BookPipe:
    """The pipe through a book of an engine that runs."""
    found = engine.faces[pipe]
    assert isinstance(found, BookPipe)
    return found


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_a_pipeline_through_a_book_hands_each_message_over_in_the_order_of_its_key(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-70, B-72, B-104: To its end, on each kind of store; the book is empty then, and whole."""
    written = {"memory": "{kind: memory}", "sqlite": "{kind: sqlite, path: main.db}"}
    if kind == "redis":
        server = cast("RedisServer", request.getfixturevalue("durable_redis"))
        monkeypatch.setenv("SHOP_REDIS", server.url)
        written["redis"] = '{kind: redis, url: "${SHOP_REDIS}"}'
    plan = plan_of(text(), stores=f"stores: {{main: {written[kind]}}}\n")
    given = rows(60)
    write_lines("in.jsonl", given)
    bench = Bench(plan, call=same)
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    each_once_in_the_order_of_its_key(sunk(engine.stores["main"]), given)
    book = book_of(engine).book
    assert book.totals()["done"] == 60
    check_invariants(book.ledger)
    assert engine.counters()["calls"]["settled"] == 60
    engine.close()


def test_a_restart_goes_on_behind_the_last_row_that_the_book_has_taken() -> None:
    """More rows are there at the second run: none of the first comes again."""
    plan = plan_of(text())
    write_lines("in.jsonl", rows(50))
    run(plan, call=same)
    write_lines("in.jsonl", rows(80))
    assert run(plan, call=same)["lines"]["taken"] == 30
    with SqliteStore("main.db") as store:
        each_once_in_the_order_of_its_key(sunk(store), rows(80))


def test_one_process_fills_a_book_and_another_serves_it() -> None:
    """Two nodes over one file, each with an engine of its own; the one that fills has nothing to wait for."""
    plan = plan_of(text().replace("lanes: 3", "lanes: 3, node: worker"))
    write_lines("in.jsonl", rows(100))
    filled = run(plan, "main", call=same)
    assert filled["calls"]["accepted"] == 100
    served = run(plan, "worker", call=same)
    assert served["call"]["passed"] == 100
    with SqliteStore("main.db") as store:
        each_once_in_the_order_of_its_key(sunk(store), rows(100))


def test_what_stages_say_of_their_messages_is_heard_by_the_book() -> None:
    """Done, Later, Rejected and TooHeavy are outcomes and no messages; what raises is tried again, then parked."""
    said: dict[int, int] = defaultdict(int)

    def call(row: Row) -> object:
        n = int(row["n"])
        said[n] += 1
        match row["what"]:
            case "done":
                return Done()
            case "later":
                return Later(0.01) if said[n] == 1 else row
            case "rejected":
                return Rejected("BAD_FORMAT")
            case "heavy":
                return TooHeavy(Cost(units=1_000))
            case "raise":
                raise ValueError("not this one")
            case _:
                return row

    words = ("done", "later", "rejected", "heavy", "raise", "plain")
    write_lines("in.jsonl", [{"n": n, "tenant": w, "what": w} for n, w in enumerate(words)])
    plan = plan_of(
        text(retries=3, retry_min_s=0.001, retry_max_s=0.002, max_message_cost="{units: 5}")
    )
    bench = Bench(plan, call=call)
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    assert sorted(row["what"] for row in sunk(engine.stores["main"])) == ["later", "plain"]
    book = book_of(engine).book
    assert {(one.origin, str(one.reason)) for one in book.parked()} == {
        ("heavy", "overweight"),
        ("raise", "poison"),
    }
    assert said[1] == 2
    assert said[4] == 3
    assert engine.counters()["calls"]["dead_lettered"] == 1
    assert engine.counters()["call"]["failed"] == 3
    engine.close()


def test_a_stop_leaves_in_the_book_what_was_not_served() -> None:
    """The handler that is at work ends, the others' messages stay, and the next run serves them."""
    began, go_on = threading.Event(), Gate()

    def slow(row: Row) -> Row:
        began.set()
        go_on.wait()
        return row

    plan = plan_of(text())
    write_lines("in.jsonl", rows(40))
    bench = Bench(plan, call=slow)
    engine = PlanEngine(plan, "main", bench)
    engine.start()
    with go_on:
        until(engine, lambda: began.is_set() and engine.counters()["calls"]["accepted"] == 40)
        engine.stop_sources()
        assert not engine.look()
    until(engine, engine.look)
    left = engine.counters()["calls"]["lag"]
    assert left > 0
    assert [one.is_safe for one in engine.unfinished()] == [True]
    engine.close()
    run(plan, call=same)
    with SqliteStore("main.db") as store:
        each_once_in_the_order_of_its_key(sunk(store), rows(40))


class Deaf(MemoryStore):
    """A store that does what a source has given, and answers only the fifth time."""

    writes = 0

    def ask(self, request: StoreRequest) -> StoreOutcome:
        outcome = super().ask(request)
        if isinstance(request, Together) and any(
            isinstance(one, CommitPosition) for one in request.requests
        ):
            self.writes += 1
            if self.writes % 5:
                return Unavailable("the answer was lost")
        return outcome


def test_rows_whose_answers_were_lost_are_there_once() -> None:
    """1. A write is done, and its answer lost, four times in a row. 2. Handed over again, the rows were twice."""
    plan = plan_of(text(), stores=MEMORY)

    class Here(Bench):
        def store(self, part: AnyStore) -> Store:
            del part
            return Deaf()

    bench = Here(plan, call=same)
    given = rows(600)
    write_lines("in.jsonl", given)
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    each_once_in_the_order_of_its_key(sunk(engine.stores["main"]), given)
    engine.close()


def test_a_full_queue_holds_up_what_feeds_it_and_loses_nothing() -> None:
    """B-51, B-105: One page of a few messages may wait for a key: the feed waits until some are served."""
    plan = plan_of(text(page_bytes=64, refuse_pages=1))
    given = rows(60, "ab")
    write_lines("in.jsonl", given)
    run(plan, call=same)
    with SqliteStore("main.db") as store:
        each_once_in_the_order_of_its_key(sunk(store), given)


@pytest.mark.parametrize("key", [None, 1.5, "", "x" * 257, ["a"]])
def test_a_row_without_a_key_that_names_a_queue_ends_the_run_and_is_named(key: object) -> None:
    """B-105: Nothing of it is taken, so that a mended file goes on there."""
    plan = plan_of(text())
    write_lines("in.jsonl", [*rows(3), {"n": 4, "tenant": key}])
    with pytest.raises(ConfigurationError, match=r"source lines, message 4: "):
        run(plan, call=same)


def test_a_whole_number_names_a_queue_as_well() -> None:
    """As its digits."""
    plan = plan_of(text())
    write_lines("in.jsonl", [{"n": 1, "tenant": 17}])
    bench = Bench(plan, call=same)
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    assert book_of(engine).book.origins() == ["17"]
    engine.close()


def test_a_sink_whose_store_does_not_answer_costs_no_attempt() -> None:
    """The queue waits, however often: with one attempt a failure would park the message."""
    plan = plan_of(
        text(retries=1, retry_max_s=0.1).replace("stream, store: main", "stream, store: other"),
        stores="stores: {main: {kind: memory}, other: {kind: memory}}\n",
    )

    class Away(MemoryStore):
        silent = 4

        def ask(self, request: StoreRequest) -> StoreOutcome:
            if self.silent and type(request).__name__ == "AppendRun":
                self.silent -= 1
                return Unavailable("away")
            return super().ask(request)

    class Here(Bench):
        def store(self, part: AnyStore) -> Store:
            return Away() if part.name == "other" else MemoryStore()

    bench = Here(plan, call=same)
    write_lines("in.jsonl", rows(5))
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    each_once_in_the_order_of_its_key(sunk(engine.stores["other"]), rows(5))
    assert not book_of(engine).book.parked()
    engine.close()


def in_units(row: Row) -> Cost:
    """What a request says that it costs."""
    return Cost(units=row["units"])


def test_a_cost_may_be_a_field_or_a_function_and_what_is_above_the_cut_off_is_parked() -> None:
    """B-20: A field that holds units; and a function that gives a Cost."""
    for cost in ("units", "test:cost"):
        plan = plan_of(text(cost=f'"{cost}"', max_message_cost="{units: 5}"), stores=MEMORY)
        write_lines("in.jsonl", [{"n": n, "tenant": "a", "units": n} for n in range(1, 9)])
        bench = Bench(plan, call=same, cost=in_units)
        engine = PlanEngine(plan, "main", bench, once=True)
        engine.start()
        finish(engine, bench)
        assert [row["n"] for row in sunk(engine.stores["main"])] == [1, 2, 3, 4, 5]
        assert engine.counters()["calls"]["parked"] == 3
        engine.close()


WHOLE = text(
    on_overweight="dead_letter", on_poison="dead_letter", max_message_cost="{units: 5}", cost="n"
)


def traced(path: Path, whole: str = WHOLE) -> list[dict[str, Any]]:
    """The rows of a run of seven messages of two tenants, of which two cost too much."""
    plan = plan_of(whole)
    Path("shop.yaml").write_text(f"version: 1\nname: shop\n{STORE}{whole}")
    write_lines("in.jsonl", rows(7, "ab"))
    bench = Bench(plan, call=same)
    recorder = TraceRecorder(path)
    bench.trace = recorder
    engine = PlanEngine(plan, "main", bench, once=True)
    engine.start()
    finish(engine, bench)
    engine.close()
    recorder.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def audited(
    found: Iterable[Mapping[str, Any]], capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """What the command says of these rows."""
    Path("changed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    code = command(["audit", "changed.jsonl", "--plan", "shop.yaml", *words])
    return code, capsys.readouterr().out


def test_an_audit_accounts_for_each_key_from_the_source_to_the_sink(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """B-108: sent = settled + dead letters of each; and a row that is dropped, doubled or swapped is found."""
    whole = traced(Path("t.jsonl"))
    code, said = audited(whole, capsys)
    assert code == Exit.HELD, said
    assert "shop/calls@a: 3 sent = 2 settled + 1 dead letters" in said
    assert "held: into calls" in said
    assert "held: into out" in said
    steps = [
        n for n, row in enumerate(whole) if row["kind"] == "settled" and row["pipe"].endswith("@b")
    ]
    lost = [row if n != steps[0] else {**row, "kind": "mark"} for n, row in enumerate(whole)]
    assert audited(lost, capsys)[0] == Exit.VIOLATED
    again = [
        {**row, "seq": whole[steps[0]]["seq"]} if n == steps[1] else row
        for n, row in enumerate(whole)
    ]
    assert audited(again, capsys)[0] == Exit.VIOLATED
    one, other = (whole[n]["seq"] for n in steps[:2])
    swapped = {steps[0]: other, steps[1]: one}
    late = [{**row, "seq": swapped[n]} if n in swapped else row for n, row in enumerate(whole)]
    assert audited(late, capsys)[0] == Exit.VIOLATED


@pytest.mark.parametrize("engine", ["trace", "local"])
def test_an_audit_tells_what_is_parked_from_dead_letters(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    """B-108: it waits for a person, so it is no dead letter, and the sum of its queue adds up with it; row by row
    and in bulk."""
    parks = WHOLE.replace("on_overweight: dead_letter", "on_overweight: park")
    assert parks != WHOLE
    _, said = audited(traced(Path("t.jsonl"), parks), capsys, "--engine", engine, "--json")
    found = json.loads(said)
    ways = {
        one.get("pipe") or one.get("channel"): one
        for one in found["pipes" if "pipes" in found else "channels"]
    }
    for tenant, (sent, settled) in {"a": (3, 2), "b": (4, 3)}.items():
        one = ways[f"shop/calls@{tenant}"]
        accepted = one.get("accepted", one.get("sent"))
        assert (accepted, one["settled"], one["dead"], one["parked"]) == (sent, settled, 0, 1)


class Interrupted(BookTrace):
    """A trace that lets another thread have its turn before its first row of an acceptance."""

    meanwhile: Callable[[], object] | None = None

    def _row(self, kind: str, origin: str, epoch: int, seq: int, **more: str | int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            self.other = threading.Thread(target=meanwhile)
            self.other.start()
            self.other.join(0.05)
        super()._row(kind, origin, epoch, seq, **more)


def test_messages_are_told_in_the_order_of_their_queue() -> None:
    """B-107, B-82: 1. A worker has a message before who put it in has told of it, and is about to. 2. The other
    one tells of those behind it. 3. An audit takes messages for accepted in the order in which that is told."""
    recorder = TraceRecorder("t.jsonl")
    trace = Interrupted(recorder, THREADS, "main", "calls", Guarantee())
    placed = Placed(3, None, None, 0, suspended=False, numbers=(("a", 1, 1, 3),))
    trace.meanwhile = lambda: trace.admitted(placed, [("a", b"")] * 3)
    trace.passed(Passed("a", 1, 1, "Overweight", kept=False))
    trace.other.join()
    recorder.close()
    found = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    told = [(row["seq"], row["count"]) for row in found if row["kind"] == "accepted"]
    assert told == [(1, 1), (2, 2)]
