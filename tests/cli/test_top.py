"""``surepipe top`` shows what a running pipeline says of itself, and says clearly when nobody answers."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from surepipe import Pipe
from surepipe.cli.looking import picture
from surepipe.cli.output import Exit
from surepipe.observe.serving import Answer, PageServer
from surepipe.observe.status import Status
from surepipe.observe.status_server import StatusServer
from surepipe.observe.watch import Watch, counts_of, pipes_of
from surepipe.pipelines.live import serve
from tests.cli.kit import Command
from tests.pipelines.live.plans import Shop

DEADLINE_S = 60.0


@pytest.fixture
def shop() -> Shop:
    """Busy."""
    shop = Shop()
    shop.run(12_345, dead_lettered=3)
    return shop


@pytest.fixture
def server(shop: Shop) -> Iterator[PageServer]:
    """Serves the shop."""
    with serve(shop.assessment, shop.watch, port=0) as found:
        yield found


def test_the_status_is_one_json_value(surepipe: Command, server: PageServer, shop: Shop) -> None:
    """By port, by host and port, and by the address of the page."""
    for where in (server.port, f"localhost:{server.port}", server.url):
        answer = surepipe("top", where, "--once", "--json")
        assert answer.code == Exit.HELD
        found = Status.model_validate(answer.json)
        assert found.pipes == shop.watch.status().pipes


def test_away_from_a_terminal_there_is_one_plain_table(
    surepipe: Command, server: PageServer
) -> None:
    """A line for each pipe that is not broken, and one for what else counts."""
    answer = surepipe("top", server.port)
    lines = answer.out.splitlines()
    assert " ".join(lines[0].split()) == "shop running up 1.0 s node main in 12.3k/s out 24.7k/s"
    (intake,) = [line for line in lines if line.startswith("intake")]
    assert "exactly-once, absolute" in intake
    assert "12.3k" in intake
    assert "source web: taken 12.3k" in lines
    assert "\x1b" not in answer.out


def test_where_nobody_answers_it_is_said_what_to_start(surepipe: Command) -> None:
    """One line, and the code for what can't be used."""
    with PageServer({}, port=0) as gone:
        port = gone.port
    answer = surepipe("top", port)
    assert (answer.code, answer.out) == (Exit.UNUSABLE, "")
    assert answer.err == (
        f"surepipe: no pipeline answers at http://127.0.0.1:{port}/status.json: connection refused; "
        "start one with surepipe run FILE --web\n"
    )


@pytest.mark.parametrize("text", ["{}", "no json"])
def test_another_server_is_no_pipeline(surepipe: Command, text: str) -> None:
    """It answers, but with something else."""
    with PageServer({"/status.json": lambda: Answer("application/json", text)}, port=0) as other:
        answer = surepipe("top", other.port)
    assert answer.code == Exit.UNUSABLE
    assert "is no pipeline" in answer.err


@pytest.mark.parametrize("where", ["ftp://x", "http://", "http://[x", "here:99999", "x" * 300])
def test_a_place_that_can_not_be_is_refused(surepipe: Command, where: str) -> None:
    """Before anybody is asked."""
    answer = surepipe("top", where)
    assert answer.code == Exit.UNUSABLE
    assert "give a port, host:port, or a URL" in answer.err


@pytest.mark.parametrize(("width", "last"), [(160, "p99"), (110, "p99"), (80, "p99")])
def test_a_narrow_terminal_gets_the_columns_that_matter_most(
    shop: Shop, width: int, last: str
) -> None:
    """Whole ones; those that are left out are in the page and the JSON."""
    written = StringIO()
    Console(file=written, width=width).print(picture(shop.watch.status(), width))
    head, row = written.getvalue().splitlines()[1:3]
    assert head.rstrip().endswith(last)
    assert "settled/s" in head
    assert "unconfirmed" in head
    assert "…" not in head + row
    assert max(len(head), len(row)) <= width


class Terminal:
    """The command on a terminal of its own, and all that it wrote there."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "surepipe", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
        )
        os.close(theirs)
        self.written = ""

    def read_until(self, text: str) -> None:
        """Read on until this was written."""
        self.written = ""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.written:
            ready, _, _ = select.select([self._ours], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.written!r}"
            self.written += os.read(self._ours, 65_536).decode()

    def end(self) -> int:
        """How the process ended."""
        code = self.process.wait(DEADLINE_S)
        os.close(self._ours)
        return code


def test_on_a_terminal_the_table_is_renewed_until_the_pipeline_ends(
    server: PageServer, shop: Shop
) -> None:
    """A real terminal; another number appears, and then the server is gone."""
    terminal = Terminal("top", str(server.port), "--every", "0.1")
    terminal.read_until("12.3k")
    shop.run(54_321)
    terminal.read_until("54.3k")
    server.close()
    terminal.read_until("shop does not answer any more")
    assert terminal.end() == Exit.HELD


def test_a_program_serves_the_status_of_its_pipes(surepipe: Command) -> None:
    """By the address that it prints, too. Nothing answers behind the end of the block."""
    with Pipe("orders") as pipe:
        pipe.receive(str)
        pipe.send_many(range(20))
        pipe.flush()
        with StatusServer(Watch("shop", pipes_of([pipe]), counts_of([pipe])), port=0) as server:
            table = surepipe("top", server.port, "--once")
            status = surepipe("top", server.url, "--json")
        gone = surepipe("top", server.port, "--once")
    assert (table.code, status.code) == (Exit.HELD, Exit.HELD)
    assert "orders" in table.out
    (orders,) = Status.model_validate(status.json).pipes
    assert orders.flow is not None
    assert orders.flow.settled == 20
    assert gone.code == Exit.UNUSABLE
