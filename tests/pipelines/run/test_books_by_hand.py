"""What a person sees of a book and does with it: ``surepipe book``, ``dlq``, ``top``, the page and the metrics."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
from rich.console import Console

from surepipe.cli.app import run as command
from surepipe.cli.looking import look, picture
from surepipe.cli.output import Exit
from surepipe.observe.serving import ListenAddress
from surepipe.pipelines import loads
from surepipe.pipelines.assessing import assess
from surepipe.pipelines.diagram import diagram_of
from surepipe.pipelines.live.observing import Looks, Observing
from surepipe.pipelines.run import PlanEngine
from surepipe.queues.book import Rejected
from surepipe.storage import SqliteStore
from tests.kit.book import Gate
from tests.pipelines.run.kit import Bench, finish, until, write_lines
from tests.pipelines.run.test_books import Row, book_of, same, sunk

pytestmark = pytest.mark.usefixtures("folder")
FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources: {lines: {kind: jsonl, path: in.jsonl, key: tenant}}
pipes:
  calls:
    from: lines
    lanes: 2
    route: {kind: book, store: main, budget: {units: 50}, cost: units, max_message_cost: {units: 5}, retries: 1}
stages: {call: {from: calls, call: "shop_calls:call"}}
sinks: {out: {from: call, kind: stream, store: main, stream: out}}
"""


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> str:
    """A file whose functions are importable, and its rows: one is too large, one is refused for good."""
    module = ModuleType("shop_calls")
    module.call = judged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_calls", module)
    Path("shop.yaml").write_text(FILE)
    rows: list[dict[str, object]] = [{"n": n, "tenant": "ab"[n % 2], "units": 1} for n in range(6)]
    rows.append({"n": 6, "tenant": "giant", "units": 20})
    rows.append({"n": 7, "tenant": "bad\x1b[1m", "units": 1})
    write_lines("in.jsonl", rows)
    assert command(["run", "shop.yaml", "--once"]) == Exit.HELD
    return "shop.yaml"


def judged(row: Row) -> object:
    """Refuses what a tenant with a strange name sends."""
    return Rejected("BAD_FORMAT") if row["tenant"].startswith("bad") else row


def broken(row: Row) -> object:
    """Takes nothing."""
    raise ConnectionError(f"{row['tenant']} does not answer")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code of a command, and all that it says."""
    capsys.readouterr()
    code = command(list(words))
    out, error = capsys.readouterr()
    return code, out + error


def listed(capsys: pytest.CaptureFixture[str], file: str) -> list[dict[str, Any]]:
    """What waits for a person."""
    code, text = said(capsys, "book", "list", file, "--json")
    assert code == Exit.HELD
    found: list[dict[str, Any]] = json.loads(text)
    return found


def delivered() -> list[int]:
    """The numbers that came out."""
    with SqliteStore("main.db") as store:
        return sorted(row["n"] for row in sunk(store))


def test_what_waits_is_listed_shown_and_executed_by_hand_once(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """B-40: It goes through stages and sinks, whatever it costs; a second time there is nothing to execute."""
    (one,) = listed(capsys, pipeline)
    assert (one["key"], one["reason"], one["cost"]["units"]) == ("giant", "overweight", 20)
    address = one["address"]
    assert "giant" in said(capsys, "book", "list", pipeline)[1]
    assert '"n": 6' in said(capsys, "book", "show", pipeline, address)[1]
    code, text = said(capsys, "book", "execute", pipeline, address)
    assert (code, text) == (Exit.HELD, "calls: executed (done)\n")
    assert delivered() == list(range(7))
    code, text = said(capsys, "book", "execute", pipeline, address)
    assert code == Exit.UNUSABLE
    assert "no such message any more" in text
    assert said(capsys, "book", "list", pipeline)[1] == "nothing waits for a person in calls\n"


def test_a_message_is_put_in_again_or_given_up_with_a_note(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """B-45: Under a new address; a run parks it again, as it still costs too much; what is given up is a dead
    letter."""
    (one,) = listed(capsys, pipeline)
    assert said(capsys, "book", "requeue", pipeline, one["address"])[0] == Exit.HELD
    assert command(["run", pipeline, "--once"]) == Exit.HELD
    (again,) = listed(capsys, pipeline)
    assert again["address"] != one["address"]
    code, text = said(capsys, "book", "discard", pipeline, again["address"], "--note", "too large")
    assert (code, text) == (Exit.HELD, "calls: given up (done)\n")
    assert "too large" in said(capsys, "dlq", "list", pipeline)[1]
    assert delivered() == list(range(6))


def test_what_fails_by_hand_again_ends_with_another_code(
    pipeline: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-42: the message waits as before; what there is no such message of is a wrong command line (code 2)."""
    (one,) = listed(capsys, pipeline)
    monkeypatch.setattr(sys.modules["shop_calls"], "call", broken)
    code, text = said(capsys, "book", "execute", pipeline, one["address"])
    assert (code, "it failed again" in text) == (Exit.VIOLATED, True)
    assert [each["address"] for each in listed(capsys, pipeline)] == [one["address"]]


def test_a_letter_that_is_parked_when_it_is_replayed_has_failed_again(
    pipeline: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-84: its one attempt raises, so it waits for a person in place of becoming a letter."""
    monkeypatch.setattr(sys.modules["shop_calls"], "call", broken)
    code, text = said(capsys, "dlq", "replay", pipeline)
    assert (code, text) == (Exit.VIOLATED, "1 letter replayed, exactly once; 1 failed again\n")
    assert [each["reason"] for each in listed(capsys, pipeline)] == ["overweight", "poison"]


def test_dead_letters_of_a_book_are_listed_and_replayed_into_their_queue_once(
    pipeline: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-84: what fails again is said, and is a new letter; with the function mended that comes out; a further
    replay finds nothing."""
    assert "BAD_FORMAT" in said(capsys, "dlq", "list", pipeline)[1].upper().replace("-", "_")
    code, text = said(capsys, "dlq", "replay", pipeline)
    assert (code, text) == (Exit.VIOLATED, "1 letter replayed, exactly once; 1 failed again\n")
    monkeypatch.setattr(sys.modules["shop_calls"], "call", same)
    code, text = said(capsys, "dlq", "replay", pipeline)
    assert code == Exit.HELD, text
    assert "1 letter replayed, exactly once" in text
    assert delivered() == [*range(6), 7]
    assert "no letter" in said(capsys, "dlq", "replay", pipeline)[1]


def test_queues_are_paused_resumed_and_weighed(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """While nothing runs as well; a paused queue keeps what it takes."""
    assert said(capsys, "book", "pause", pipeline, "a")[0] == Exit.HELD
    assert said(capsys, "book", "weight", pipeline, "b", "3")[0] == Exit.HELD
    with Path("in.jsonl").open("a") as lines:
        lines.writelines(
            json.dumps({"n": n, "tenant": "ab"[n % 2], "units": 1}) + "\n" for n in (8, 9)
        )
    assert command(["run", pipeline, "--once"]) == Exit.HELD
    assert delivered() == [*range(6), 9]
    code, text = said(capsys, "book", "queues", pipeline)
    assert code == Exit.HELD
    assert re.search(r"a +1 waiting, 0 parked, paused", text)
    assert said(capsys, "book", "resume", pipeline, "a")[0] == Exit.HELD
    assert command(["run", pipeline, "--once"]) == Exit.HELD
    assert delivered() == [*range(6), 8, 9]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["list", "--pipe", "cals"],
            "pipe 'cals' of shop goes through no book; those that do: calls",
        ),
        (["show", "AAAA"], "AAAA"),
        (["execute", "AAAA"], "AAAA"),
    ],
)
def test_what_is_no_book_and_no_address_is_refused(
    pipeline: str, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and the word that was wrong."""
    code, found = said(capsys, "book", words[0], pipeline, *words[1:])
    assert code == Exit.UNUSABLE
    assert text in found


def test_a_book_that_is_not_there_yet_is_not_made_by_a_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The store has no log of it after that."""
    Path("shop.yaml").write_text(FILE)
    code, text = said(capsys, "book", "list", "shop.yaml")
    assert code == Exit.UNUSABLE
    assert "run the pipeline first" in text


def test_top_page_and_metrics_show_the_ring_the_budget_and_what_is_parked() -> None:
    """B-69, B-110: While handlers wait: the head first, what is spent, who is parked; and labels for
    Prometheus."""
    began, go_on = threading.Event(), Gate()

    def slow(row: Row) -> Row:
        began.set()
        go_on.wait()
        return row

    plan = loads(FILE)
    write_lines(
        "in.jsonl",
        [
            {"n": n, "tenant": t, "units": u}
            for n, (t, u) in enumerate([("giant", 20), *[("ada", 1)] * 3])
        ],
    )
    bench = Bench(plan, call=slow)
    engine = PlanEngine(plan, "main", bench)
    assessment = assess(plan)
    anywhere = ListenAddress("127.0.0.1", 0)
    with Observing(
        assessment, "main", engine.counters, Looks(page=anywhere, metrics=anywhere)
    ) as seen:
        engine.start()
        seen.attach(engine)
        try:
            until(engine, lambda: began.is_set() and book_of(engine).counters()["parked"] == 1)
            status = look(f"{seen.urls['page']}status.json")
            part = next(part for part in status.parts if part.name == "calls")
            assert part.book is not None
            assert [one.key for one in part.book.queues] == ["ada", "giant"]
            assert part.book.budget == {"units": 50.0}
            assert part.book.parked == 1
            assert part.flow is not None
            assert part.flow.lanes_busy == 1
            assert part.flow.waiting == 3
            shown = str(_text_of(picture(status, 200)))
            assert "calls: 1 ready queue, ada is next, " in shown
            assert "1 parked: see surepipe book list" in shown
            with urlopen(seen.urls["page"]) as page:
                assert "<h2>Book calls</h2>" in page.read().decode()
            with urlopen(seen.urls["metrics"]) as metrics:
                lines = metrics.read().decode().splitlines()
            assert 'surepipe_parked{pipe="shop/calls"} 1.0' in lines
            assert 'surepipe_queues{pipe="shop/calls"} 1.0' in lines
        finally:
            go_on.set()
            engine.stop_sources()
            finish(engine, bench)
            engine.close()


def _text_of(shown: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text()


def test_a_picture_of_a_plan_shows_the_book() -> None:
    """Its budget, how that is shared, and what parks."""
    box = next(one for one in diagram_of(loads(FILE)).boxes if one.name == "calls")
    assert "units=50 in 1 s, drr" in box.lines
    assert "over book, lanes: 2" in box.lines
