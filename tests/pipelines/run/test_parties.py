"""Pipes between parties, on real stores: each message once and in order, over restarts of each process."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from surepipe.actors.codecs import choose_codec
from surepipe.actors.parties import ServedParty, StoreEnd
from surepipe.audit.trace_file import TraceRecorder
from surepipe.cli.app import run as command
from surepipe.cli.relaying import trust_of
from surepipe.core.store_requests import Batch
from surepipe.errors import ConfigurationError
from surepipe.guarantees import hops
from surepipe.observe.status import said_of_path
from surepipe.pipelines import PipelineErrors, Plan
from surepipe.pipelines.assessing import assess
from surepipe.pipelines.run import PlanEngine
from surepipe.queues.ibc import Relay, RelayOptions, load_trust
from surepipe.storage import SqliteStore
from surepipe.storage.letters import DeadLetterStream
from surepipe.testing.servers import RedisServer
from tests.pipelines.run.kit import Bench, plan_of, read_lines, until, write_lines

pytestmark = pytest.mark.usefixtures("folder")
STORES = """\
stores:
  ours: {kind: sqlite, path: east.db, durability: process}
  theirs: {kind: sqlite, path: west.db, durability: process}
"""
TEXT = """\
sources: {lines: {kind: jsonl, path: in.jsonl}}
pipes:
  orders:
    from: lines
    node: west
    route:
      kind: ibc
      sends: {party: east, store: ours, keys: east.keys, trust: west.trust}
      receives: {party: west, store: theirs, keys: west.keys, trust: east.trust}
sinks: {out: {from: orders, kind: jsonl, path: out.jsonl}}
"""


class TracedBench(Bench):
    """One that writes a trace, to the end of the one before."""

    def __init__(self, plan: Plan, node: str) -> None:
        super().__init__(plan)
        self._recorder = self.trace = TraceRecorder(f"{node}.trace")

    def close(self) -> None:
        super().close()
        self._recorder.close()


def engine_of(node: str, text: str = TEXT) -> PlanEngine:
    """The process of one party."""
    plan = plan_of(text, stores=STORES)
    return PlanEngine(plan, node, TracedBench(plan, node), once=node == "main")


def judged() -> int:
    """What the audit of both traces says by its exit code."""
    return command(["audit", "main.trace", "west.trace"])


def accounted(text: str) -> list[int]:
    """What it says with the plan, by each judge: it counts from the source to the sink."""
    Path("plan.yaml").write_text(f"version: 1\nname: shop\n{STORES}{text}")
    given = ["--plan", "plan.yaml", "main.trace", "west.trace"]
    return [command(["audit", "--engine", judge, *given]) for judge in ("trace", "local")]


def introduce(text: str = TEXT) -> None:
    """What the operators do: start both once, write what each is trusted with, and compare."""
    for node in ("main", "west"):
        with pytest.raises(ConfigurationError, match="isn't there"):
            engine_of(node, text).start()
    for name in ("east", "west"):
        Path(f"{name}.trust").write_text(trust_of(f"sqlite:///{name}.db", 14.0))


COMMITTED = TEXT.replace(
    "node: west\n", "node: west\n    journal: ours\n    boundary: committed\n"
).replace("kind: jsonl, path: out.jsonl", "kind: stream, store: theirs, stream: out")


def sunk() -> list[object]:
    """What the stream sink of the west has."""
    with SqliteStore("west.db") as store:
        found = store.read("out", 1, 10_000, 1 << 24)
        decode = choose_codec("auto").decode
        runs = found.entries if isinstance(found, Batch) else ()
        return [decode(payload) for run in runs for payload in run.payloads]


def run_until(stops_at: int) -> None:
    """Both processes, from what their files say to so many messages at the sink."""
    west, east = engine_of("west", COMMITTED), engine_of("main", COMMITTED)
    west.start()
    east.start()
    try:
        until(east, lambda: east.look() or len(sunk()) >= stops_at)
        until(west, lambda: west.look() or len(sunk()) >= stops_at)
    finally:
        west.close(0.0)
        east.close(0.0)


def test_processes_that_end_anywhere_lose_and_repeat_nothing() -> None:
    """IB-127, IB-130: with a journal and boundary committed, each is at the sink once and in order. Both processes
    end after so many messages, without a word to anybody, and are started again over their files."""
    wanted = [{"n": number} for number in range(60)]
    write_lines("in.jsonl", wanted)
    introduce(COMMITTED)
    for stops_at in (10, 25, 40, 60):
        run_until(stops_at)
    assert sunk() == wanted
    assert judged() == 0
    assert accounted(COMMITTED) == [0, 0]


def test_two_parties_have_a_redis_each(
    durable_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IB-129: of one server they have a database each."""
    stores = """\
stores:
  ours: {kind: redis, url: "${OURS}", durability: process}
  theirs: {kind: redis, url: "${THEIRS}", durability: process}
"""
    for number, name in enumerate(("OURS", "THEIRS"), 1):
        monkeypatch.setenv(name, f"{durable_redis.url.rstrip('/')}/{number}")
    write_lines("in.jsonl", [{"n": number} for number in range(10)])

    def engine(node: str) -> PlanEngine:
        plan = plan_of(TEXT, stores=stores)
        return PlanEngine(plan, node, Bench(plan), once=node == "main")

    for node in ("main", "west"):
        with pytest.raises(ConfigurationError, match="isn't there"):
            engine(node).start()
    for name, variable in (("east", "OURS"), ("west", "THEIRS")):
        Path(f"{name}.trust").write_text(trust_of(f"{os.environ[variable]}?pipeline=shop", 14.0))
    west, east = engine("west"), engine("main")
    west.start()
    east.start()
    try:
        until(east, east.look)
        until(west, lambda: west.look() or len(read_lines("out.jsonl")) == 10)
    finally:
        east.close(5.0)
        west.close(5.0)
    assert read_lines("out.jsonl") == [{"n": number} for number in range(10)]


def test_what_a_route_between_parties_rests_on_is_said() -> None:
    """IB-128: and each fault that is tolerated by the setting, and what can't be written."""
    report = assess(plan_of(COMMITTED, stores=STORES))
    note, *keeping = (each for each in report.notes if "rests on" in each)
    assert "shorter than 4.67 days" in note
    assert [each.partition("rests on: ")[2] for each in keeping] == [
        "nobody but east writes what is in store ours",
        "nobody but west writes what is in store theirs",
    ]


def test_of_redis_it_is_said_what_a_relay_needs_of_a_party() -> None:
    """IB-120: to read its keys, and to write an inbox beside them; with an older server that can't be had."""
    stores = """\
stores:
  ours: {kind: redis, url: "redis://h1/0", durability: power}
  theirs: {kind: redis, url: "redis://h2/0", durability: power, keys: bakery}
"""
    notes = assess(plan_of(COMMITTED, stores=stores)).notes
    (note,) = (each for each in notes if "nobody but west" in each)
    assert "keys sp:{bakery}:*" in note
    assert "writes sp:{bakery/ibc/inbox/RELAY}:*, which `surepipe relay acl` prints" in note
    assert "From Redis 7 on" in note


MORE = "      receives:"
"""Where a key of the route may be added."""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("store: theirs, keys", "store: ours, keys", "give one side another store"),
        ("keys: west.keys", "keys: east.keys", "give one side another file of keys"),
        ("party: west", "party: east", "give one side another name"),
        ("trust: west.trust", "trust: east.keys", "which is a file of private keys"),
        ("store: theirs", "store: their", "did you mean 'theirs'"),
        (", keys: east.keys", "", "needs 'keys'"),
        (
            "party: west",
            "party: we/st",
            "party is 'we/st': the name of a party has 2 to 64 letters",
        ),
        ("party: west", "party: w", "party is 'w': the name of a party has 2 to 64 letters"),
        ("node: west\n", "node: west\n    layers: stream\n", "leave layers out"),
        (
            "node: west\n",
            "node: west\n    journal: theirs\n",
            "no store of the other side: write ours",
        ),
        (
            "node: west\n",
            "node: west\n    state: ours\n",
            "no store of the other side: write theirs",
        ),
        (MORE, f"      timeout_s: 5\n{MORE}", "say where they go, dead_letter: ours/returned"),
        (MORE, f"      dead_letter: theirs/back\n{MORE}", "write dead_letter: ours/back"),
        (MORE, f"      order: sorted\n{MORE}", "order is 'sorted'"),
        (MORE, f"      relay: both\n{MORE}", "known are sender, receiver, none"),
        (MORE, f"      relayers: []\n{MORE}", "relayers"),
        ("sends:", "send:", "did you mean 'sends'"),
    ],
)
def test_what_can_not_be_between_parties_is_told_with_what_to_write(
    before: str, after: str, said: str
) -> None:
    """IB-129: two that share something, what a pipe between parties doesn't have, and words that are none."""
    assert before in TEXT
    with pytest.raises(PipelineErrors, match=re.escape(said)):
        plan_of(TEXT.replace(before, after), stores=STORES)


@pytest.mark.parametrize("content", ["", "hello", "deadbeef", "\xff", None])
def test_a_file_of_trust_that_says_nothing_is_told(content: str | None) -> None:
    """IB-14: empty, no hexadecimal, no root of trust, no text, or a folder; each by words, and no traceback."""
    write_lines("in.jsonl", [])
    introduce()
    path = Path("west.trust")
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content.encode("latin-1"))
    engine = engine_of("main")
    with pytest.raises(
        ConfigurationError, match=r"west.trust doesn't say what .*surepipe relay trust"
    ):
        engine.start()
    engine.close(0.0)


def test_two_relays_carry_side_by_side_under_names_of_their_own() -> None:
    """IB-31, IB-120: one of the sender's process and one beside it, which both parties know by ``relayers``."""
    text = TEXT.replace(MORE, f"      relayers: [relay, second]\n{MORE}")
    write_lines("in.jsonl", [{"n": number} for number in range(30)])
    introduce(text)
    west, east = engine_of("west", text), engine_of("main", text)
    west.start()
    east.start()
    ends = [StoreEnd(SqliteStore(f"{name}.db"), "second") for name in ("east", "west")]
    second = Relay([(ends[0], ends[1])], options=RelayOptions(relayer=b"second"))
    brought = False
    try:

        def both() -> bool:
            nonlocal brought
            with suppress(ConfigurationError):  # until both parties have their connection
                brought |= second.run_once()
            return east.look() and brought

        until(east, both)
        until(west, lambda: west.look() or len(read_lines("out.jsonl")) == 30)
    finally:
        east.close(5.0)
        west.close(5.0)
        for end in ends:
            end.close()
    assert read_lines("out.jsonl") == [{"n": number} for number in range(30)]


def test_two_sides_that_disagree_in_order_are_told_and_nothing_is_carried() -> None:
    """IB-35: each runs a file of its own after all; the side that carries ends and says what to do."""
    unordered = TEXT.replace(MORE, f"      order: unordered\n{MORE}")
    write_lines("in.jsonl", [{"n": 1}])
    introduce()
    west, east = engine_of("west", unordered), engine_of("main")
    west.start()
    east.start()
    try:
        with pytest.raises(ConfigurationError, match="register both alike"):
            until(east, east.look)
    finally:
        east.close(0.0)
        west.close(0.0)
    assert read_lines("out.jsonl") == []


def test_a_run_shows_what_its_relay_carries() -> None:
    """IB-132: what waits for the other side, for how long, and how much trust is left; for the page, ``top`` and
    metrics."""
    write_lines("in.jsonl", [{"n": number} for number in range(5)])
    introduce()
    east = engine_of("main")
    west = engine_of("west")
    west.start()  # makes its connection, and goes
    west.close(0.0)
    assert east.paths() == {}
    east.start()
    try:

        def waits() -> bool:
            east.look()
            seen = east.paths().get("orders")
            return seen is not None and seen.pending.get("deliver") == 5

        until(east, waits)
        seen, figures = east.paths()["orders"], east.relay_figures()
    finally:
        east.close(0.0)
    assert seen.oldest_s is not None
    told = said_of_path(seen)
    assert "east/orders-west/orders is live, 5 to deliver, the oldest for " in told
    assert "trust for 33" in told
    assert figures["surepipe_ibc_pending", "east/orders-west/orders", "deliver"] == 5
    assert ("surepipe_ibc_pending_age_seconds", "east/orders-west/orders", "deliver") in figures
    stalled = seen.model_copy(update={"state": "stalled", "why": "sqlite west.db has no party yet"})
    assert said_of_path(stalled).endswith("is stalled, sqlite west.db has no party yet")


def test_messages_go_from_party_to_party_once_and_in_order() -> None:
    """IB-129: and the sender's process ends when all of them are answered."""
    write_lines("in.jsonl", [{"n": number} for number in range(30)])
    introduce()
    west, east = engine_of("west"), engine_of("main")
    west.start()
    east.start()
    try:
        until(east, east.look)
        until(west, lambda: west.look() or len(read_lines("out.jsonl")) == 30)
    finally:
        east.close(5.0)
        west.close(5.0)
    assert read_lines("out.jsonl") == [{"n": number} for number in range(30)]


def test_a_run_says_what_the_other_side_has_not_answered_and_another_run_goes_on() -> None:
    """IB-129: with ``--once`` it ends although the other party isn't there; what it sent is safe."""
    write_lines("in.jsonl", [{"n": number} for number in range(5)])
    introduce()
    plan = plan_of(TEXT, stores=STORES)
    alone = PlanEngine(plan, "main", Bench(plan), once=True, answers_s=0.5)
    alone.start()
    until(alone, alone.look)
    (left,) = alone.unfinished()
    alone.close(5.0)
    assert alone.gave_up
    assert (left.part, left.is_safe) == ("orders", True)
    assert str(left).endswith("not answered by west; safe with east, store ours")
    west, east = engine_of("west"), engine_of("main")
    west.start()
    east.start()
    try:
        until(east, east.look)
        assert not east.gave_up
        assert east.unfinished() == ()
        until(west, lambda: west.look() or len(read_lines("out.jsonl")) == 5)
    finally:
        east.close(5.0)
        west.close(5.0)
    assert read_lines("out.jsonl") == [{"n": number} for number in range(5)]


LIMITED = TEXT.replace(
    "kind: ibc\n", "kind: ibc\n      timeout_s: 0.1\n      dead_letter: ours/returned\n"
)


def run_once(text: str, letters: int | None = None) -> PlanEngine:
    """The process of the east to its end, beside one of the west; with so many letters sent again."""
    west, east = engine_of("west", text), engine_of("main", text)
    west.start()
    east.start()
    try:
        if letters is not None:
            with SqliteStore("east.db") as store:
                east.replay("orders", DeadLetterStream(store, "returned"), letters)
        until(east, east.look)
        until(west, lambda: west.look() or len(read_lines("out.jsonl")) == (letters or 0))
    finally:
        east.close(5.0)
        west.close(5.0)
    return east


def test_what_the_other_side_was_too_slow_for_comes_back_and_is_sent_again() -> None:
    """IB-129: the west is not there in time; each message is a letter, and none arrives."""
    write_lines("in.jsonl", [{"n": number} for number in range(3)])
    introduce(LIMITED)
    plan = plan_of(LIMITED, stores=STORES)
    bench = TracedBench(plan, "main")
    alone = PlanEngine(plan, "main", bench, once=True, answers_s=0.3)
    alone.start()
    until(alone, alone.look)
    alone.close(5.0)
    run_once(LIMITED)
    assert read_lines("out.jsonl") == []
    with SqliteStore("east.db") as store:
        letters = [each.letter for each in DeadLetterStream(store, "returned").all()]
    assert [(each.error_type, each.pipe, each.seq) for each in letters] == [
        ("ibc-1", "shop/orders", seq) for seq in (1, 2, 3)
    ]
    run_once(LIMITED.replace("timeout_s: 0.1", "timeout_s: 3600"), letters=3)
    assert read_lines("out.jsonl") == [{"n": number} for number in range(3)]
    assert judged() == 0
    assert 1 not in accounted(LIMITED)
    with pytest.raises(ConfigurationError, match="give the pipe another name"):
        engine_of("main").start()


def test_what_a_route_with_limits_or_without_order_does_not_promise() -> None:
    """IB-127, IT-77: a slow peer alone loses a message to its rollback, and an unordered one keeps no order."""
    for text, expected, why in (
        (LIMITED, "delivery: exactly-once", "comes back and is a dead letter"),
        (LIMITED, "order: absolute", "comes back and is a dead letter"),
        (
            TEXT.replace("kind: ibc", "kind: ibc\n      order: unordered"),
            "order: monotonic",
            "any order",
        ),
    ):
        expects = text.replace("    route:", f"    expect: {{{expected}}}\n    route:")
        report = assess(plan_of(expects, stores=STORES))
        assert not report.held
        assert why in str(report.pipes)
    limited = LIMITED.replace("    route:", "    expect: {delivery: at-most-once}\n    route:")
    assert assess(plan_of(limited, stores=STORES)).held
    for wrong, says in (
        ("timeout_s: 0.1\n      dead_letter: ours/returned", "dead_letter: ours/returned"),
        ("dead_letter: ours/returned", "write dead_letter: ours/returned"),
    ):
        text = LIMITED.replace(
            wrong, wrong.replace("ours/", "theirs/") if "timeout" not in wrong else "timeout_s: 1"
        )
        with pytest.raises(PipelineErrors, match=says):
            plan_of(text, stores=STORES)


def test_no_loss_that_is_claimed_with_limits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """IT-81: a mistake that is planted in what ``check`` derives; the row before this one would fail."""
    expects = LIMITED.replace("    route:", "    expect: {delivery: exactly-once}\n    route:")
    assert not assess(plan_of(expects, stores=STORES)).held
    honest = hops.Hop

    def lenient(*given: Any, **more: Any) -> hops.Hop:
        return honest(*given, **{**more, "limited": False})

    monkeypatch.setattr(hops, "Hop", lenient)
    assert assess(plan_of(expects, stores=STORES)).held


def test_a_store_below_the_level_of_a_process_tolerates_no_crash_of_it() -> None:
    """IB-21: its guard would stop the party, so ``check`` claims nothing there; with ``power`` it does."""
    report = {}
    for level in ("none", "process", "power"):
        stores = STORES
        for path in ("east.db", "west.db"):
            given = f"kind: redis, url: 'redis://{path}', durability: {level}"
            stores = stores.replace(f"kind: sqlite, path: {path}, durability: process", given)
        (pipe,) = assess(plan_of(COMMITTED, stores=stores)).pipes
        assert pipe.explanation is not None
        report[level] = {str(fault) for fault in pipe.explanation.headline.tolerates}
    assert "store-crash" not in report["none"]
    assert "store-crash" in report["process"]
    assert "power-loss" not in report["process"]
    assert "power-loss" in report["power"]


def test_a_message_that_is_refused_is_never_forgotten() -> None:
    """IB-129: the other side runs no pipeline. The run ends and says what to write; then it is a letter."""
    write_lines("in.jsonl", [{"n": 1}])
    introduce()
    with (
        SqliteStore("west.db") as store,
        ServedParty("west", store=store, keys="west.keys") as west,
    ):
        west.register("orders", load_trust("east.trust"), known_as="orders", timeout="never")
        west.serve()
        east = engine_of("main")
        east.start()
        with pytest.raises(ConfigurationError, match="write dead_letter: ours/returned"):
            until(east, east.look)
        assert [each.count for each in east.unfinished()] == [1]
        east.close(5.0)
        named = TEXT.replace("kind: ibc\n", "kind: ibc\n      dead_letter: ours/returned\n")
        east = engine_of("main", named)
        east.start()
        until(east, east.look)
        east.close(5.0)
    with SqliteStore("east.db") as store:
        (letter,) = DeadLetterStream(store, "returned").all()
    assert letter.letter.error_text == "west: it handles no messages of pipelines"
