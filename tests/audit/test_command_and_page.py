"""``surepipe audit`` in bulk: codes, text, JSON, and the page in a browser (spark SP-18, simulation X-22)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from surepipe import Pipe, StreamReceiver
from surepipe.audit.bulk import BulkAudit
from surepipe.audit.bulk.page import page
from surepipe.audit.trace_audit import UNSENT
from surepipe.audit.trace_file import TraceRecorder, write_trace
from surepipe.cli.output import Exit
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Stored
from surepipe.storage import SqliteStore, SqliteTransaction
from tests.audit.planted import Planted, Told
from tests.cli.kit import Command
from tests.kit.browser import OUTSIDE, OVERLAPS, SMALL, chromium

EARLIEST = {"stream": {"start": "earliest"}}
NOBODY = UNSENT.format(1)
BAD = Planted(
    "orders <b>", [(1, 1, 1000)], [(1, 1, 400), (1, 451, 700), (1, 420, 430), (1, 650, 1000)]
)
GOOD = Planted("payments", [(1, 1, 90)], [(1, 1, 90)])
OPEN = Planted("stock", [(1, 1, 90)], [(1, 1, 50)], at_rest=False)


@pytest.fixture
def surepipe(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, in this process."""
    return Command(capsys)


def traced(path: Path, *channels: Planted) -> Path:
    """A trace of these channels."""
    told = Told()
    for one in channels:
        told.channel(one)
    write_trace(told.rows, path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of this file."""
    with chromium() as found:
        yield found


@pytest.mark.parametrize(
    "options",
    ["--engine trace", "--engine local --at-rest", "--expect no-loss,no-duplicate --at-rest"],
)
def test_what_nobody_told_to_have_sent_is_not_judged(
    surepipe: Command, tmp_path: Path, options: str
) -> None:
    """Messages that a handler's transaction forwards, each of a producer of its own: there is no row of their
    acceptance, so one that never came out is not missed. What is the same of all of them is told once."""
    path, got = tmp_path / "trace.jsonl", list[object]()

    def forward(message: object, transaction: SqliteTransaction) -> None:
        transaction.append(AppendRun("out", f"out/{message}", 1, 1, [b"7"]))

    with (
        SqliteStore(tmp_path / "store.db") as store,
        TraceRecorder(path) as trace,
        StreamReceiver("out", EARLIEST, store=store, codec="json", trace=trace) as out,
    ):
        out.receive(got.append)
        with Pipe("in", journal=store, state=store, boundary="committed", trace=trace) as pipe:
            pipe.receive(forward)
            pipe.send_many(range(50))
        out.catch_up()
    assert got == [7] * 50
    told = surepipe("audit", path, *options.split())
    assert told.code == Exit.NOT_EXERCISED
    open_ones = [line for line in told.out.splitlines() if line.startswith("not judged: ")]
    (line,) = open_ones
    assert line.startswith("not judged: out@out/0 and 49 channels more of out: integrity, no-loss")
    assert line.endswith(f", because {NOBODY}")
    assert "name the stream first (STORE.db#STREAM; several, one behind the other)" in line
    assert "held: in: " in told.out
    assert "held: out" not in told.out
    sums = [
        line for line in told.out.splitlines() if line.startswith("out@") and " sent = " in line
    ]
    assert [line.partition(":")[0] for line in sums] == [
        "out@out/0 and 49 channels more of out, each"
    ]


def test_streams_of_one_program_are_judged_together(surepipe: Command, tmp_path: Path) -> None:
    """A transaction that puts something into two streams: each is named, and their readers' traces behind them."""
    db, path = tmp_path / "store.db", tmp_path / "trace.jsonl"

    def forward(message: object, transaction: SqliteTransaction) -> None:
        for stream in ("out", "copies"):
            transaction.append(AppendRun(stream, f"{stream}/{message}", 1, 1, [b"7"]))

    with (
        SqliteStore(db) as store,
        TraceRecorder(path) as trace,
        StreamReceiver("out", EARLIEST, store=store, codec="json", trace=trace) as out,
        StreamReceiver("copies", EARLIEST, store=store, codec="json", trace=trace) as copies,
    ):
        out.receive(str)
        copies.receive(str)
        with Pipe("in", journal=store, state=store, boundary="committed", trace=trace) as pipe:
            pipe.receive(forward)
            pipe.send_many(range(9))
        assert out.catch_up(20)
        assert copies.catch_up(20)
    both = [f"{db}#out", f"{db}#copies"]
    assert surepipe("audit", *both, path).code == Exit.HELD
    for one in both:
        assert surepipe("audit", one, path).code == Exit.NOT_EXERCISED
    for places in ([*both, both[0]], [path, *both], [both[0], *both, path]):
        assert surepipe("audit", *places).code == Exit.UNUSABLE
    with SqliteStore(db) as store:
        assert isinstance(store.append("copies", "copies/unread", 1, 1, [b"7"]), Stored)
    told = surepipe("audit", *both, path, "--at-rest", "--expect", "no-loss")
    assert told.code == Exit.VIOLATED
    assert "broken: copies@copies/unread: no-loss" in told.out


def test_the_code_says_whether_it_held(surepipe: Command, tmp_path: Path) -> None:
    """0 held, 1 violated, 2 unusable, 3 can't tell: the table of all commands."""
    good = surepipe("audit", traced(tmp_path / "good.parquet", GOOD), "--engine", "local")
    assert good.code == Exit.HELD
    assert good.out.endswith(
        "\nheld: payments: integrity, no-loss, no-duplicate, monotonic, gap-free\n"
    )
    bad = surepipe("audit", traced(tmp_path / "bad.parquet", GOOD, BAD), "--engine", "local")
    assert bad.code == Exit.VIOLATED
    told = bad.out.splitlines()
    assert (
        "broken: orders <b>: no-loss: #431 to #450 (20) never came out; from epoch 1, seq 431"
        in told
    )
    assert told[-1] == "held: payments: integrity, no-loss, no-duplicate, monotonic, gap-free"
    early = surepipe("audit", traced(tmp_path / "open.parquet", OPEN), "--engine", "local")
    assert early.code == Exit.NOT_EXERCISED
    why = "more may come: 40 did not come out yet"
    assert f"\nnot judged: stock: no-loss, because {why}\n" in early.out
    none = surepipe("audit", "none.parquet", "--engine", "local")
    assert none.code == Exit.UNUSABLE
    assert none.err == "surepipe: none.parquet can't be read: no such file or folder\n"


def test_expectations_and_rest_can_be_stated(surepipe: Command, tmp_path: Path) -> None:
    """--expect narrows or widens what counts; --at-rest turns waiting into loss."""
    bad = traced(tmp_path / "bad.parquet", BAD)
    narrow = traced(tmp_path / "late.parquet", Planted("a", [(1, 1, 9)], [(1, 5, 9), (1, 1, 4)]))
    assert surepipe("audit", narrow, "--expect", "no-loss,no-duplicate").code == Exit.HELD
    assert surepipe("audit", narrow, "--expect", "monotonic").code == Exit.VIOLATED
    early = traced(tmp_path / "open.parquet", OPEN)
    assert surepipe("audit", early, "--at-rest", "--expect", "no-loss").code == Exit.VIOLATED
    repeats = surepipe("audit", early, "--expect", "no-duplicate")  # what is to come may come twice
    assert repeats.code == Exit.NOT_EXERCISED
    assert "more may come" in repeats.out
    refused = surepipe("audit", bad, "--expect", "no-loss,speed")
    assert refused.code == Exit.UNUSABLE
    assert "--expect does not know speed: write some of no-loss, " in refused.err
    assert surepipe("audit", bad, "--engine", "trace", "--at-rest").code == Exit.UNUSABLE
    (tmp_path / "traces").mkdir()
    for more in ((), ("--expect", "no-loss")):
        said = surepipe("audit", tmp_path / "traces", "--engine", "trace", *more)
        named = " and ".join((f"the folder {tmp_path / 'traces'}", *more[:1]))
        assert said.code == Exit.UNUSABLE
        assert f"for {named} use --engine local" in " ".join(said.err.split())
    assert surepipe("audit", bad, bad, bad, "--engine", "local").code == Exit.UNUSABLE


def test_json_has_totals_channels_and_examples(surepipe: Command, tmp_path: Path) -> None:
    """The same numbers for machines; the page is written besides, and one document is all of the output."""
    path = traced(tmp_path / "bad.jsonl", BAD, GOOD)
    html = tmp_path / "out" / "page.html"
    told = surepipe("audit", path, "--json", "--page", html).json
    assert told["exit"] == Exit.VIOLATED
    assert [one["lost"] for one in told["channels"]] == [39, 0]
    assert "totals" not in told  # what two pipes lost is no figure
    orders = told["channels"][0]
    assert orders["atoms"]["no-loss"] == {"outcome": "violated", "promised": True}
    assert orders["examples"][0] == {
        "what": "gap",
        "first": 401,
        "last": 450,
        "epoch": 1,
        "seq": 401,
    }
    assert "39 lost" in html.read_text()


def test_streams_are_audited_without_being_asked_for_an_engine(
    surepipe: Command, tmp_path: Path
) -> None:
    """STORE.db#STREAM twice: in bulk, in this process."""
    path = tmp_path / "orders.db"
    with SqliteStore(path) as store:
        for name in ("sent", "done"):
            store.create(name, 1, KEEP_ALL)
            store.append(name, "p", 1, 1, [b"a", b"b"])
    answer = surepipe("audit", f"{path}#sent", f"{path}#done", "--at-rest")
    assert (answer.code, answer.out.splitlines()[0]) == (
        Exit.HELD,
        "sent: 2 sent = 2 settled + 0 dead letters + 0 in flight",
    )


@pytest.mark.parametrize("width", [1200, 390])
def test_the_page_is_drawn_without_overlaps_at_desk_and_phone_width(
    browser: Browser, surepipe: Command, tmp_path: Path, width: int
) -> None:
    """No text over another, outside its picture or too small; no sideways scrolling; names are not markup."""
    html = tmp_path / "page.html"
    surepipe("audit", traced(tmp_path / "t.jsonl", BAD, GOOD, OPEN), "--page", html)
    view = browser.new_page(viewport={"width": width, "height": 900})
    view.goto(html.as_uri())
    for question in (OVERLAPS, OUTSIDE, SMALL):
        assert view.evaluate(question) == []
    assert view.evaluate("document.documentElement.scrollWidth") == width
    assert view.locator("h3").first.text_content() == "orders <b>"
    assert "broken: orders <b>: no-loss, no-duplicate, monotonic, gap-free" in (
        view.locator(".verdict").text_content() or ""
    )
    assert view.evaluate("document.querySelectorAll('script, link, img').length") == 0
    view.close()


def test_a_page_of_nothing_and_of_a_broken_trace_says_so() -> None:
    """No channel, and rows missing: can't tell, never good."""
    nothing = page(BulkAudit((), "local", "a", "b"))
    assert "There is no channel" in nothing
    assert "everything that was promised holds" not in nothing
    broken = page(BulkAudit((), "local", "a", "b", broken=("s (life 1) tells 3 of its steps",)))
    assert "rows of the trace are missing" in broken
