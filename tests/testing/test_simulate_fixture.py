"""The plugin's fixtures in a session of their own, as a user's project has them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = """
from surepipe.simulation import Outside

def test_no_customer_is_charged_twice(simulate):
    def build():
        bank = Outside()                                     # survives our crashes, as a bank does
        def charge(order, context):
            bank.do("charge", order["id"], key=context.id)   # without key= this test fails
        return charge, lambda run: bank.count("charge") == {n: 1 for n in range(20)}
    simulate(build, messages=[{"id": n} for n in range(20)], seeds=300)
"""


def _pytest(folder: Path, *options: str, **given: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, **given}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def test_a_handler_that_gives_a_key_passes(tmp_path: Path) -> None:
    """The documented example with fewer seeds, and what the session says (simulation X-69, X-70)."""
    (tmp_path / "test_bank.py").write_text(EXAMPLE)
    done = _pytest(tmp_path, "--surepipe-seeds", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 schedules tried" in done.stdout
    assert not (tmp_path / ".surepipe").exists()


COMMITTING = """
def test_it(simulate):
    async def reserve(order, transaction):
        transaction.connection.execute("INSERT INTO reserved VALUES (?)", (order,))
    simulate(lambda: reserve, messages=[1], seeds=2)
"""


def test_a_handler_that_commits_is_told_that_it_needs_a_plan(tmp_path: Path) -> None:
    """It gets the context of a stage for its transaction; an attribute of a private class was missing there."""
    (tmp_path / "test_shop.py").write_text(COMMITTING)
    said = " ".join(_pytest(tmp_path).stdout.split())
    assert "the second argument of handler is its context, which has no 'connection'" in said
    assert "write a plan with such a pipe, and simulate that" in said


def test_without_its_key_it_fails_with_a_report_a_page_and_a_script_that_replays(
    tmp_path: Path,
) -> None:
    """The report names the second charge, the page shows it (simulation X-56, X-70, XT-14)."""
    (tmp_path / "test_bank.py").write_text(EXAMPLE.replace(", key=context.id", ""))
    done = _pytest(tmp_path, "--surepipe-report", "pages")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SimulationFailed: user your check VIOLATED" in done.stdout
    assert "happened twice" in done.stdout
    (page,) = (tmp_path / "pages").glob("*.html")
    assert str(page.relative_to(tmp_path)) in done.stdout
    assert "for the second time" in page.read_text()
    assert "surepipe/pipelines/simulate/simulating.py" not in done.stdout
    assert "pytest_plugin.py" not in done.stdout
    (script,) = (tmp_path / "pages").glob("*.json")
    again = _pytest(tmp_path, "--surepipe-replay", str(script))
    assert again.returncode == 1
    assert "your check VIOLATED" in again.stdout


def test_a_file_alone_is_a_test_of_its_pipeline(tmp_path: Path) -> None:
    """Written by ``surepipe init``, whose own test is the second one here (simulation X-71)."""
    made = subprocess.run(
        [sys.executable, "-m", "surepipe", "init", str(tmp_path / "shop")],
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0
    (tmp_path / "shop" / "test_more.py").write_text(
        "def test_it(simulate):\n    assert simulate('pipeline.yaml').runs == 5\n"
    )
    done = _pytest(tmp_path / "shop", "--surepipe-seeds", "5")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_surepipe_is_imported_until_a_fixture_is_used(tmp_path: Path) -> None:
    """The plugin is loaded in every session, so it costs nothing (simulation X-69)."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'surepipe.pipelines' not in sys.modules\n"
    )
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "surepipe" not in done.stdout


BOOKS = """
from surepipe.simulation import Outside

BOOK = []

def test_one(simulate):
    simulate(lambda: (len, lambda run: True), messages=["a", "b"], seeds=5)

def test_another(simulate):
    simulate(lambda: (lambda message: BOOK.append(message), lambda run: True), messages=["a"], seeds=5)

def test_a_third(simulate):
    def build():
        bank = Outside()
        return lambda order: bank.do("charge", order), lambda run: bank.count("charge") == {"a": 1}
    simulate(build, messages=["a"], seeds=300)
"""


@pytest.mark.long
def test_workers_of_xdist_add_up_to_one_summary(tmp_path: Path) -> None:
    """Three tests in two workers: runs, pages and what stages kept are told together (simulation X-69)."""
    (tmp_path / "test_books.py").write_text(BOOKS)
    done = _pytest(tmp_path, "-n", "2", "-p", "xdist", "--surepipe-report", "pages")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("schedules tried") == 1
    (tried,) = re.findall(r"(\d+) schedules tried", done.stdout)
    assert int(tried) >= 10  # of the third, those before the one that fails
    assert "keep test_books.BOOK (test_books.py:" in done.stdout
    (page,) = (tmp_path / "pages").glob("*.html")
    assert f"page: {page.relative_to(tmp_path)}" in done.stdout


SHOP = """\
version: 1
name: shop
sources: {lines: {kind: stdin}}
pipes: {intake: {from: lines}}
stages: {price: {from: intake, map: "shop:price"}, large: {from: price, filter: "shop:is_large"}}
sinks: {out: {from: price, kind: stdout}, alarms: {from: large, kind: stdout}}
simulate: {messages: 4}
"""
PRICE = """\
import time
def price(order):
    return [order, time.time()]
def is_large(order):
    return False
"""


@pytest.mark.long
def test_a_sink_that_gets_nothing_fails_and_notes_are_told_though_all_holds(tmp_path: Path) -> None:
    """Until the file says that this is meant; the summary names what was not compared (simulation X-69, X-71)."""
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "shop.py").write_text(PRICE)
    (tmp_path / "test_shop.py").write_text("def test_it(simulate):\n    simulate('shop.yaml')\n")
    done = _pytest(tmp_path, "--surepipe-seeds", "3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "alarms gets no message, even without faults: filter large (shop:is_large)" in done.stdout
    )
    (tmp_path / "shop.yaml").write_text(
        SHOP.replace("messages", "may_be_empty: [alarms], messages")
    )
    done = _pytest(tmp_path, "--surepipe-seeds", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nnote: shop: of what out gets, [1] was not compared" in done.stdout


REAL = """
import json, socket, subprocess, sys
from surepipe.storage import MemoryStore

def test_it(faults):
    given = faults({given})
    echo = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(given.route(echo.getsockname()[:2]).address):
        echo.accept()[0].close()
    given.wrap(MemoryStore())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    given.pause(child)
    given.crash(child)
    assert child.wait() == -9
    assert {fine}
"""


def test_faults_for_real_things_are_ended_with_the_test(tmp_path: Path) -> None:
    """A route, a store, a process that is paused and killed (simulation X-69); fair weather tells nothing."""
    (tmp_path / "test_real.py").write_text(REAL.format(given="7, 'delay'", fine=True))
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed" not in done.stdout


def test_a_failure_under_real_faults_tells_the_seed_that_repeats_the_schedule(
    tmp_path: Path,
) -> None:
    """Without a seed it follows from the test's name, and an option says another (simulation X-69)."""
    (tmp_path / "test_real.py").write_text(REAL.format(given="kinds=['delay']", fine=False))
    done = _pytest(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    told = re.search(r"faults of seed (\d+): --surepipe-seed (\d+)", done.stdout)
    assert told is not None
    assert told[1] == told[2]
    assert "faults of seed 12:" in _pytest(tmp_path, "--surepipe-seed", "12").stdout


def test_a_server_that_can_not_be_started_is_told_and_fails_in_ci(tmp_path: Path) -> None:
    """The search finds nothing: skipped on a laptop, red in CI, a line at the end of both (simulation X-67)."""
    (tmp_path / "conftest.py").write_text(
        "import surepipe.testing.servers as servers\nservers.redis_servers = list\n"
    )
    (tmp_path / "test_redis.py").write_text("def test_it(redis_server):\n    pass\n")
    for ci, code in (("false", 0), ("true", 1)):
        done = _pytest(tmp_path, CI=ci)
        assert done.returncode == code, done.stdout + done.stderr
        assert "\nCANNOT RUN redis" in done.stdout


COUNTED = """
from surepipe.simulation import Outside

ORDERS = [{"id": n} for n in range(3)]

def test_one_that_fails_in_the_first_schedule(simulate):
    simulate(lambda: (len, lambda run: False), messages=ORDERS, seeds=7)

def test_one_of_which_not_all_is_known_to_hold(simulate):
    def build():
        bank = Outside("bank")
        return lambda order: bank.do("charge", order["id"])
    simulate(build, messages=ORDERS, seeds=11)

def test_one_that_passes(simulate):
    simulate(lambda: (len, lambda run: True), messages=ORDERS, seeds=5)
"""


def test_the_summary_counts_the_schedules_of_tests_that_fail(tmp_path: Path) -> None:
    """One up to the violation, eleven of a verdict that is open, and five of one that passes."""
    (tmp_path / "test_counted.py").write_text(COUNTED)
    assert "\n17 schedules tried" in _pytest(tmp_path).stdout
    assert "\n1 schedule tried" in _pytest(tmp_path, "-k", "fails").stdout
