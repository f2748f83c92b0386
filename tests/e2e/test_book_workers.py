"""Real processes that serve one book: one is killed in the middle of a handler, and the other goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import pytest

from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Context
from surepipe.storage import MemoryStore, open_store
from surepipe.testing.servers import NONE_FOUND, redis_servers
from tests.queues.book.test_book_processes import appended

CHILD = """
import sys, threading
from surepipe.actors.books import ServedBook
from surepipe.queues.book import BookConfig

address, name, stops_at = sys.argv[1:]

def handle(message, context):
    context.append("out", message.payload)
    # In one write: two workers' words must not come between each other's.
    print(f"took {message.payload.decode()}\\n", end="", flush=True)
    if message.payload.decode() == stops_at:
        threading.Event().wait()

config = BookConfig(lease_s=0.5, period_s=0.1, commit_messages=3)
with ServedBook("b", store=address, processor=handle, config=config, worker=name, workers=2) as book:
    print("serves", flush=True)
    sys.stdin.read()
"""
CONFIG = BookConfig(lease_s=0.5, period_s=0.1, commit_messages=3)


@pytest.fixture(params=["sqlite", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A file, or a server of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/b.db"
        return
    sources = redis_servers()
    if not sources:
        pytest.fail(NONE_FOUND)
    server = sources[0].server()
    try:
        yield server.start().url
    finally:
        server.close()


def child(address: str, name: str, stops_at: str = "") -> subprocess.Popen[str]:
    """A process that serves the book until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, address, name, stops_at],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def nothing(message: BookMessage, context: Context) -> None:
    """It only enqueues."""


def lines_until(output: IO[str] | None, wanted: str) -> list[str]:
    """What a process says, up to this line."""
    found: list[str] = []
    for line in cast("IO[str]", output):
        found.append(line.strip())
        if found[-1] == wanted:
            return found
    raise AssertionError(f"it ended before it said {wanted!r}: {found}")


@pytest.mark.parametrize("killed", ["w1", "w2"])
def test_one_of_two_workers_is_killed(address: str, killed: str) -> None:
    """BQ-36, BQ-64: nothing is lost, every staged effect is there once and in the order of its queue, and no more
    calls are repeated than a commit may hold, and those that ran."""
    opened = open_store(address, "b")
    book = BookQueue.inline("b", store=opened, processor=nothing, config=CONFIG, worker="feeder")
    queues = "ABCDE"
    for queue in queues:
        book.enqueue_many(queue, [f"{queue}{number}".encode() for number in range(20)])
    with child(address, killed, stops_at="C4") as doomed:
        said = lines_until(doomed.stdout, "took C4")
        doomed.kill()
        said += [line.strip() for line in cast("IO[str]", doomed.stdout)]
    other = child(address, "other")
    while book.totals()["done"] < 20 * len(queues):
        opened.wait("b/log", book.ledger.index + 1, 1_000_000)
    output, _ = other.communicate()
    assert other.returncode == 0
    took = [
        line.removeprefix("took ")
        for line in (*said, *output.splitlines())
        if line.startswith("took")
    ]
    out = [payload.decode() for payload in appended(opened, "out")]
    assert sorted(out) == sorted(f"{queue}{number}" for queue in queues for number in range(20))
    for queue in queues:
        assert [each for each in out if each[0] == queue] == [f"{queue}{n}" for n in range(20)]
    workers = 2
    assert len(took) - len(out) <= workers * (CONFIG.commit_messages + 1)
    assert book.parked() == []
    if not isinstance(opened, MemoryStore):
        opened.close()
