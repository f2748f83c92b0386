"""Being told to stop: real processes whose parts fail for ever, get SIGTERM or SIGINT, and end in bounded time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from surepipe.cli.commands.run import Stopping
from surepipe.cli.output import Exit
from surepipe.core.store_requests import StreamDropped, StreamInfo
from surepipe.errors import PipeStopped
from surepipe.pipelines import Plan, loads
from surepipe.pipelines import run as engine
from surepipe.pipelines.run.pipes import handling
from surepipe.storage import SqliteStore
from surepipe.testing.servers import NONE_FOUND, free_port, local_servers
from tests.pipelines.run.kit import Bench, finish, plan_of, read_lines, run, until, write_lines

LAST_S = 60.0
"""After this a process that was to end is killed, and the test fails."""
HEAD = (
    "version: 1\nname: shop\nstores: {main: {kind: sqlite, path: shop.db, durability: process}}\n"
)
SOURCE = "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
INTAKE = "pipes: {intake: {from: lines, OPTIONS}}\n"
STAGE = 'stages: {price: {from: intake, call: "shop_stages:price", retry_max_s: 0.1}}\n'
OUT = "sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}\n"
FAILS = """\
import sys
def price(order):
    sys.stderr.write("tried\\n")
    sys.stderr.flush()
    raise ValueError("no price today")
"""
HANGS = """\
import sys, threading
def price(order, context):
    context.transaction.connection.execute("SELECT 1")
    sys.stderr.write("tried\\n")
    sys.stderr.flush()
    threading.Event().wait()
"""


def _pipeline(folder: Path, options: str, *, head: str = HEAD) -> None:
    text = head + SOURCE + INTAKE.replace("OPTIONS", options) + STAGE + OUT
    (folder / "shop.yaml").write_text(text)


@contextmanager
def _running(*options: str, lines: str = "") -> Generator[subprocess.Popen[str]]:
    """A process that runs the pipeline of this folder, once a message has reached its stage. ``lines``: what it is
    given by its standard input, which stays open."""
    process = subprocess.Popen(
        [sys.executable, "-m", "surepipe", "run", "shop.yaml", "--json", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stdin is not None
        try:
            process.stdin.write(lines)
            process.stdin.flush()
            while (said := process.stderr.readline()) != "tried\n":
                assert said, "it ended before it tried anything"
            yield process
        finally:
            process.kill()


def _ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Its exit code, its document and its complaints."""
    told, complaint = process.communicate(timeout=LAST_S)
    return process.returncode, json.loads(told) if told else {}, complaint


def test_a_stage_that_fails_for_ever_is_left_when_the_drain_is_over(folder: Path) -> None:
    """SIGTERM, --drain: it ends with 130 and says what is unfinished and safe; another run goes on with it."""
    (folder / "shop_stages.py").write_text(FAILS)
    _pipeline(folder, "journal: main, state: main, boundary: committed")
    write_lines("in.jsonl", range(3))
    with _running("--drain", "0.2") as process:
        process.send_signal(signal.SIGTERM)
        code, told, complaint = _ended(process)
    assert code == told["exit"] == Exit.INTERRUPTED
    assert "stopped, and left unfinished:" in complaint
    said = "intake: 3 messages accepted and not confirmed; safe in the journal, store main"
    assert said in complaint
    assert told["unfinished"] == [{"part": "intake", "count": 3, "safe": True, "text": said}]
    (folder / "shop_stages.py").write_text("def price(order): return order\n")
    again = subprocess.run(
        [sys.executable, "-m", "surepipe", "run", "shop.yaml"], check=False, timeout=LAST_S
    )
    assert again.returncode == Exit.HELD
    assert read_lines("out.jsonl") == [0, 1, 2]


TOOK = """\
import sys
def price(order):
    sys.stderr.write("tried\\n")
    sys.stderr.flush()
    return order
"""
ROAD = """\
sources: {lines: {kind: jsonl, path: in.jsonl, follow: true, node: shop}}
pipes:
  intake:
    {from: lines, node: warehouse, journal: near, state: main, boundary: committed,
     route: {kind: tcp, address: "127.0.0.1:PORT", secret: "${ROAD_KEY}"}}
"""


@contextmanager
def _sending(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> Generator[engine.PlanEngine]:
    """The node that sends, in this process; the file of the pipeline has both."""
    monkeypatch.setenv("ROAD_KEY", "k" * 32)
    (folder / "shop_stages.py").write_text(stage)
    stores = HEAD.replace("}}\n", "}, near: {kind: sqlite, path: near.db, durability: process}}\n")
    text = stores + ROAD.replace("PORT", str(free_port())) + STAGE + OUT
    (folder / "shop.yaml").write_text(text)
    write_lines("in.jsonl", range(3))
    plan = loads(text)
    shop = engine.PlanEngine(plan, "shop", Bench(plan))
    shop.start()
    try:
        yield shop
    finally:
        shop.close(0.1)


def _until_confirmed(shop: engine.PlanEngine, count: int) -> None:
    """Wait until the other node has confirmed so many messages."""
    until(shop, lambda: shop.counters()["intake"]["confirmed"] == count)


def test_a_node_that_only_receives_ends_as_soon_as_it_has_nothing_in_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM: the sender is still there and may send more; nothing waits for the hour of --drain to pass."""
    with _sending(folder, monkeypatch, TOOK) as shop:
        with _running("--node", "warehouse", "--drain", "3600") as process:
            _until_confirmed(shop, 3)
            process.send_signal(signal.SIGTERM)
            code, told, complaint = _ended(process)
        assert shop.unfinished() == ()
    assert code == told["exit"] == Exit.INTERRUPTED
    assert told["unfinished"] == []
    assert "left unfinished" not in complaint
    assert read_lines("out.jsonl") == [0, 1, 2]


def test_a_node_that_only_receives_leaves_what_hangs_to_its_sender(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, --drain: what it has in hand is unconfirmed at the node that sent it, which repeats it."""
    with _sending(folder, monkeypatch, HANGS) as shop:
        with _running("--node", "warehouse", "--drain", "0.2") as process:
            process.send_signal(signal.SIGTERM)
            code, _, complaint = _ended(process)
        assert code == Exit.INTERRUPTED
        assert "stopped, and left unfinished:\n  nothing that this process knows of" in complaint
        (left,) = shop.unfinished()
        assert str(left) == (
            "intake: 3 messages accepted and not confirmed; safe in the journal, store near"
        )
        (folder / "shop_stages.py").write_text(TOOK)
        with _running("--node", "warehouse") as process:
            _until_confirmed(shop, 3)
            process.send_signal(signal.SIGTERM)
            assert _ended(process)[0] == Exit.INTERRUPTED
    assert read_lines("out.jsonl") == [0, 1, 2]


@pytest.mark.usefixtures("folder")
def test_what_no_store_keeps_is_said_to_be_lost_or_read_again() -> None:
    """Without a journal: the next run reads a file again; what a generator gave once is gone."""

    def fails(number: int) -> int:
        raise ValueError(number)

    write_lines("in.jsonl", range(2))
    text = SOURCE + INTAKE.replace("OPTIONS", "state: main") + STAGE + OUT
    plan = plan_of(text.replace("shop_stages", "test"))
    (left,) = _left_by(plan, price=fails)
    assert str(left) == (
        "intake: 2 messages accepted and not confirmed; the next run takes them from lines again"
    )
    assert left.is_safe
    assert run(plan, price=abs)["out"]["taken"] == 2
    once = plan_of(
        text.replace("shop_stages", "test").replace(
            "kind: jsonl, path: in.jsonl", 'kind: python, call: "test:two"'
        )
    )
    (left,) = _left_by(once, price=fails, two=lambda: [1, 2])
    assert str(left) == (
        "intake: 2 messages accepted and not confirmed; lost: the pipe has no journal"
    )


PASSES = """\
import sys
def price(order):
    sys.stderr.write("tried\\n")
    sys.stderr.flush()
    return order
"""


@pytest.mark.parametrize("is_told_to", [True, False], ids=["SIGTERM", "once"])
def test_standard_input_that_stays_open_is_no_hindrance_and_no_end(
    folder: Path, *, is_told_to: bool
) -> None:
    """SIGTERM while nothing comes: the process ends as others do, and not by an abort of the interpreter, whose
    thread holds the lock of the stream. ``--once`` ends when that does: lines can't be read again."""
    (folder / "shop_stages.py").write_text(PASSES)
    _pipeline(folder, "journal: main, state: main")
    text = (folder / "shop.yaml").read_text().replace("kind: jsonl, path: in.jsonl", "kind: stdin")
    (folder / "shop.yaml").write_text(text)
    with _running(*([] if is_told_to else ["--once"]), lines="1\n") as process:
        assert process.stdin is not None
        if is_told_to:
            process.send_signal(signal.SIGTERM)
            assert process.wait(LAST_S) == Exit.INTERRUPTED
        else:
            process.stdin.write("2\n")
        code, _, _ = _ended(process)
    assert code == (Exit.INTERRUPTED if is_told_to else Exit.HELD)
    assert read_lines("out.jsonl") == ([1] if is_told_to else [1, 2])


def _lose(stream: str) -> None:
    """Somebody drops a stream of the pipeline."""
    with SqliteStore("main.db") as other:
        assert isinstance(other.drop_stream(stream, 1 << 62), StreamDropped)


@pytest.mark.usefixtures("folder")
def test_what_lay_in_a_stream_that_is_gone_is_not_said_to_be_safe() -> None:
    """Somebody drops the stream while a stage is at its first message: the store has nothing any more."""

    def fails(number: int) -> int:
        if not dropped.is_set():
            _lose("shop/intake")
            dropped.set()
        raise ValueError(number)

    dropped = threading.Event()
    write_lines("in.jsonl", range(2))
    text = SOURCE + INTAKE.replace("OPTIONS", "route: {kind: sqlite, store: main}") + STAGE + OUT
    left = _left_by(plan_of(text.replace("shop_stages", "test")), price=fails)
    fate = "lost: store main has no such stream any more"
    assert [str(one) for one in left] == [
        f"intake: an unknown number of messages not settled; {fate}"
    ]
    assert not left[0].is_safe


@pytest.mark.usefixtures("folder")
def test_a_pipe_whose_way_on_is_gone_stops_and_blames_no_message() -> None:
    """The stream of the next pipe, which transactions of this one write to, is dropped: no attempt can help, so
    the run ends and names it. The message in hand is tried once, and is neither poison nor a dead letter."""

    tried: list[int] = []
    text = (
        "sources: {lines: {kind: jsonl, path: in.jsonl, follow: true}}\n"
        "pipes:\n"
        "  intake: {from: lines, route: {kind: sqlite, store: main}, state: main, boundary: committed}\n"
        "  onward: {from: price, route: {kind: sqlite, store: main}, state: main, boundary: committed}\n"
        "stages:\n"
        '  price: {from: intake, call: "test:price", retries: 1, dead_letter: main/bad}\n'
        "sinks:\n"
        "  out: {from: onward, kind: jsonl, path: out.jsonl}\n"
    )

    def price(number: int) -> int:
        tried.append(number)
        return number

    write_lines("in.jsonl", [0])
    plan = plan_of(text)
    bench = Bench(plan, price=price)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    try:
        until(one, lambda: one.counters().get("out", {}).get("taken") == 1)
        _lose("shop/onward")
        with Path("in.jsonl").open("a", encoding="utf-8") as lines:
            lines.write("1\n")
        with pytest.raises(PipeStopped, match="'shop/onward'"):
            finish(one, bench)
        until(one, lambda: any("'shop/onward'" in str(notice) for notice in bench.notices))
    finally:
        one.close(5.0)
    assert {str(notice.kind) for notice in bench.notices} <= {"Stalled"}
    assert tried in ([0, 1], [0])
    with SqliteStore("main.db") as store:
        letters = store.info("bad")
        assert not isinstance(letters, StreamInfo) or letters.next == 1


def _left_by(plan: Plan, **functions: Callable[..., object]) -> tuple[engine.Unfinished, ...]:
    """What a run leaves that is ended when its stage has failed."""
    bench = Bench(plan, **functions)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    until(one, lambda: "failed" in one.counters().get("price", {}))
    left = one.unfinished()
    one.close(0.5)
    return left


def test_a_second_signal_ends_also_what_never_returns(folder: Path) -> None:
    """A stage that holds the store's transaction and waits for ever: SIGINT twice, and the process is gone."""
    (folder / "shop_stages.py").write_text(HANGS)
    _pipeline(folder, "journal: main, state: main, boundary: committed")
    write_lines("in.jsonl", [1])
    with _running() as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert "once more to stop now" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        code, _, complaint = _ended(process)
    assert code == Exit.INTERRUPTED
    assert "intake: 1 message accepted and not confirmed; safe in the journal" in complaint


def test_a_run_whose_store_is_gone_ends_when_it_is_told_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Redis is killed while messages wait in its stream; the drain can't come to its end."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    (folder / "shop_stages.py").write_text(FAILS)
    store = '{kind: redis, url: "${SHOP_REDIS}", durability: process, answer_within_s: 0.5}'
    head = f"version: 1\nname: shop\nstores: {{main: {store}}}\n"
    _pipeline(folder, "route: {kind: redis, store: main}, state: main", head=head)
    write_lines("in.jsonl", range(3))
    with found[0].server() as server:
        monkeypatch.setenv("SHOP_REDIS", server.url)
        with _running("--drain", "0.2") as process:
            server.kill()
            process.send_signal(signal.SIGTERM)
            code, _, complaint = _ended(process)
    assert code == Exit.INTERRUPTED
    assert "stopped" in complaint


def test_signals_set_the_time_by_which_a_run_is_over() -> None:
    """The first one the end of the drain, the second one now; the clock is that of the test."""
    now = [100.0]
    stopping = Stopping(5.0, clock=lambda: now[0])

    def state() -> tuple[bool, bool]:
        return stopping.is_asked, stopping.is_over

    with stopping.heard(lambda: None):
        assert state() == (False, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert state() == (True, False)
        now[0] = 105.0
        assert state() == (True, True)
        now[0] = 104.0
        assert state() == (True, False)
        os.kill(os.getpid(), signal.SIGINT)
        assert state() == (True, True)


@pytest.mark.usefixtures("folder")
def test_a_sink_that_cannot_be_reached_does_not_hold_up_the_end_of_run_in_python(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``stop_when`` and ``drain_s``: what is left is logged, and where it is kept."""
    tried = threading.Event()

    def book(number: int) -> None:
        tried.set()
        raise ConnectionRefusedError(number)

    write_lines("in.jsonl", range(4))
    text = INTAKE.replace("OPTIONS", "journal: main") + (
        'sinks: {out: {from: intake, kind: python, call: "test:book"}}\n'
    )
    plan = plan_of(SOURCE + text)
    counted = engine.run(
        plan, environment=Bench(plan, book=book), stop_when=tried.is_set, drain_s=0.2
    )
    assert "taken" not in counted["out"]
    assert "left unfinished: intake: 4 messages accepted and not confirmed; safe" in caplog.text


@pytest.mark.usefixtures("folder")
def test_a_generator_that_is_at_work_at_the_end_is_closed_when_it_comes_back() -> None:
    """Only the thread in it can close it: whoever ends the run raises nothing, and does not wait for ever."""
    waits, go, is_closed = threading.Event(), threading.Event(), threading.Event()

    def ticks() -> Generator[int]:
        try:
            yield 1
            waits.set()
            go.wait()
            yield 2
        finally:
            is_closed.set()

    plan = plan_of(
        "sources: {tick: {kind: python, call: 'test:ticks'}}\npipes: {intake: {from: tick}}\n"
        "sinks: {out: {kind: jsonl, path: out.jsonl, from: intake}}\n"
    )
    one = engine.PlanEngine(plan, "main", Bench(plan, ticks=ticks))
    one.start()
    try:
        assert waits.wait(LAST_S)
    finally:
        one.close(0.0)
    assert not is_closed.is_set()
    go.set()
    assert is_closed.wait(LAST_S)


@pytest.mark.parametrize("boundary", ["processed", "committed"])
@pytest.mark.parametrize("is_journal", [False, True])
@pytest.mark.usefixtures("folder")
def test_a_run_whose_messages_are_stored_ends_after_the_message_that_it_is_at(
    boundary: str, is_journal: bool
) -> None:
    """The rest is in the stream, or the journal, already: nobody waits until it is handled, it is named, and
    another run has it, each message once."""
    go, tried = threading.Event(), threading.Event()

    def price(number: int) -> int:
        if not all(feed.ended for feed in one.feeds.values()):
            raise ValueError(
                "the source stores its place first: a transaction here would hold that up"
            )
        tried.set()
        go.wait()
        return number

    write_lines("in.jsonl", range(3))
    route = "layers: {stream: {start: earliest}}, route: {kind: sqlite, store: main}"
    if is_journal:
        route = "journal: main, state: main"
    options = f"{route}, boundary: {boundary}"
    text = (SOURCE + INTAKE.replace("OPTIONS", options) + STAGE + OUT).replace(
        "shop_stages", "test"
    )
    plan = plan_of(text)
    bench = Bench(plan, price=price)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    try:
        stored = "accepted" if is_journal else "confirmed"
        until(one, lambda: tried.is_set() and one.counters()["intake"].get(stored) == 3)
        one.stop_sources()
        works = handling(one.faces["intake"]).receiver.works
        until(one, lambda: not one.look() and works.ended)
        go.set()
        finish(one, bench)
        until(one, lambda: one.counters()["intake"].get("settled") == 1)
        until(one, lambda: not is_journal or one.counters()["intake"].get("confirmed") == 1)
        (left,) = one.unfinished()
        fate = "not settled; safe in the stream"
        if is_journal:
            fate = "accepted and not confirmed; safe in the journal"
        assert str(left) == f"intake: 2 messages {fate}, store main"
    finally:
        go.set()
        one.close(5.0)
    assert read_lines("out.jsonl") == [0]
    run(plan, price=abs)
    assert read_lines("out.jsonl") == [0, 1, 2]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("is_journal", [False, True])
def test_a_run_with_lanes_that_is_stopped_repeats_nothing(*, is_journal: bool) -> None:
    """0 and 11 are at their lanes, and 1 to 9 (odd) are written, when it is told to stop: 2 to 10 follow, and
    nothing above. Another run has the rest, each message once."""
    go, reached = threading.Event(), set[int]()

    def price(order: dict[str, int]) -> int:
        if order["n"] in (0, 11):
            reached.add(order["n"])
            go.wait()
        return order["n"]

    write_lines("in.jsonl", [{"key": n % 2, "n": n} for n in range(40)])
    route = "layers: {stream: {start: earliest}}, route: {kind: sqlite, store: main}"
    if is_journal:
        route = "journal: main, state: main"
    options = f"{route}, key: key, lanes: 2"
    text = SOURCE + INTAKE.replace("OPTIONS", options) + STAGE + OUT
    plan = plan_of(text.replace("shop_stages", "test"))
    bench = Bench(plan, price=price)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    try:
        stored = "accepted" if is_journal else "confirmed"
        until(one, lambda: one.counters()["intake"].get(stored) == 40)
        until(one, lambda: reached == {0, 11} and one.counters()["intake"].get("settled") == 5)
        one.stop_sources()
        works = handling(one.faces["intake"]).receiver.works
        until(one, lambda: not one.look() and all(work.is_cut for work in works.running()))
        go.set()
        finish(one, bench)
    finally:
        go.set()
        one.close(5.0)
    assert sorted(read_lines("out.jsonl")) == list(range(12))
    run(plan, price=itemgetter("n"))
    assert sorted(read_lines("out.jsonl")) == list(range(40))


@pytest.mark.usefixtures("folder")
def test_a_run_with_lanes_that_is_stopped_waits_for_no_message_that_keeps_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 fails for ever, and what was handled behind it comes again: the run ends after a while."""
    monkeypatch.setattr("surepipe.pipelines.run.ways.GAPS_US", 50_000)

    def price(order: dict[str, int]) -> int:
        if order["n"] == 0:
            raise ValueError("no price today")
        return order["n"]

    write_lines("in.jsonl", [{"key": n % 2, "n": n} for n in range(10)])
    options = "layers: {stream: {start: earliest}}, route: {kind: sqlite, store: main}, key: key, lanes: 2"
    text = SOURCE + INTAKE.replace("OPTIONS", options) + STAGE + OUT
    plan = plan_of(text.replace("shop_stages", "test"))
    bench = Bench(plan, price=price)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    try:
        until(one, lambda: one.counters()["intake"].get("settled") == 5)
        one.stop_sources()
        finish(one, bench)
    finally:
        one.close(5.0)
    assert sorted(read_lines("out.jsonl")) == [1, 3, 5, 7, 9]
    run(plan, price=itemgetter("n"))
    assert sorted(read_lines("out.jsonl")) == sorted([*range(10), 1, 3, 5, 7, 9])


@pytest.mark.usefixtures("folder")
def test_what_a_transaction_has_passed_on_and_no_pipe_has_yet_is_named() -> None:
    """The feed between two pipes is told to stop; what is committed for it after that is safe beside the state."""
    begun, go = threading.Event(), threading.Event()

    def price(number: int) -> int:
        begun.set()
        go.wait()
        return number

    write_lines("in.jsonl", range(3))
    text = (
        SOURCE
        + "pipes:\n  intake: {from: lines, journal: main, state: main, boundary: committed}\n"
        + "  onward: {from: price, journal: main, state: main}\n"
        + STAGE
        + "sinks: {out: {from: onward, kind: jsonl, path: out.jsonl}}\n"
    ).replace("shop_stages", "test")
    plan = plan_of(text)
    bench = Bench(plan, price=price)
    one = engine.PlanEngine(plan, "main", bench)
    one.start()
    try:
        until(one, lambda: one.counters()["intake"].get("accepted") == 3)
        until(one, begun.is_set)  # later it would not begin with any
        one.stop_sources()
        until(one, lambda: all(feed.ended for feed in one.feeds.values()))
        go.set()
        finish(one, bench)
        until(one, lambda: one.counters()["intake"].get("confirmed") == 1)
        assert [str(left) for left in one.unfinished()] == [
            "onward: 1 message passed on by intake and not accepted; safe in the store of the state of intake",
            "intake: 2 messages accepted and not confirmed; safe in the journal, store main",
        ]
    finally:
        go.set()
        one.close(5.0)
    assert run(plan, price=abs)["out"]["taken"] == 3
