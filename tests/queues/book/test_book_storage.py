"""What a book asks of its store, and what it leaves there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from surepipe.core.store_requests import Batch
from surepipe.errors import Fenced
from surepipe.pipes import message_queue
from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Context
from surepipe.queues.book.changes import Commit, decode
from surepipe.storage import SqliteStore
from tests.kit.book import BookUnderTest
from tests.kit.redis_bench import RewindableRedis
from tests.queues.book.conftest import Make
from tests.queues.book.test_book_processes import appended

ROOMY = BookConfig(checkpoint_bytes=1 << 30)


def nothing(_message: BookMessage, _context: Context) -> None:
    """A handler without work."""


def commits(book: BookUnderTest) -> list[Commit]:
    """All commits in the log of the book."""
    log = book.store.read("b/log", 1, 10_000, 1 << 24)
    assert isinstance(log, Batch)
    entries = [decode(payload) for run in log.entries for payload in run.payloads]
    return [entry for entry in entries if isinstance(entry, Commit)]


def test_what_a_handler_stages_goes_with_its_commit_in_one_request(make: Make) -> None:
    """B-80: values, streams, other queues and the cursor; and what a former life stages is nowhere."""
    book = make(ROOMY)

    def stage(message: BookMessage, context: Context) -> None:
        context.put("key", message.payload)
        context.append("out", message.payload)
        context.enqueue("B", b"of " + message.payload)

    book.acts |= {b"first": stage, b"a": stage}
    book.put(A="first")
    book.svc()  # the stream is there from now on
    book.put(A="a")
    requests, known = book.book.store_requests, len(commits(book))
    book.svc()
    new = commits(book)[known:]
    assert book.book.store_requests - requests == 1 + len(new), (
        "one look at the log, and the commits"
    )
    assert [visit.staged[0].origin for one in new for visit in one.visits if visit.staged] == ["B"]

    def stage_too_late(message: BookMessage, context: Context) -> None:
        stage(message, context)
        make(ROOMY)

    book.acts[b"z"] = stage_too_late
    book.put(A="z")
    with pytest.raises(Fenced):
        book.svc()
    after = make(ROOMY)
    assert after.book.value("key") == b"a"
    assert appended(after.store, "out") == [b"first", b"a"]
    assert after.book.footprint("B").bytes == len(b"of a")


def test_a_commit_covers_a_bounded_number_of_messages(make: Make) -> None:
    """B-81: fifty messages of one queue and fifty of as many others, ten to a commit."""
    book = make(ROOMY, commit_messages=10, listen=False)
    book.book.enqueue_many("A", [b"x"] * 50)
    book.book.enqueue_batch([(f"o{number}", b"x") for number in range(50)])
    assert book.book.service().ran == 100
    at, moved = 0, 0
    for commit in commits(book):
        slots = len([visit for visit in commit.visits if visit.origin != "A"])
        for visit in commit.visits:
            if visit.origin == "A":
                slots, at, moved = slots + visit.slot - at, visit.slot, moved + visit.slot - at
        assert slots <= 10
    assert moved == 50


@pytest.mark.parametrize("every", [1 << 10, 1 << 30], ids=["with-checkpoints", "as-a-log"])
def test_redis_has_no_key_for_a_message_or_a_queue(make: Make, every: int) -> None:
    """B-61: no more keys with three hundred messages in thirty queues as with one; other stores have none."""
    book = make(ROOMY, checkpoint_bytes=every, listen=False)
    store = book.store

    def keys() -> int:
        return len(store.snapshot()) if isinstance(store, RewindableRedis) else 0

    for _ in range(2):
        book.book.enqueue("A", b"x" * 2_000)
    one = keys()
    book.book.enqueue_batch([(f"o{number % 30}", b"x") for number in range(300)])
    assert keys() <= one
    assert book.book.service().ran == 302
    assert keys() <= one


@pytest.mark.parametrize("held", [0, 300], ids=["empty-page", "full-page"])
def test_a_message_writes_no_more_into_a_full_page_than_into_an_empty_one(
    tmp_path: Path, held: int
) -> None:
    """B-62: 200 bytes add at most 16 KiB and themselves to the write-ahead log of SQLite."""
    with SqliteStore(tmp_path / "b.db") as store:
        book = BookQueue.inline("b", store=store, processor=nothing, config=ROOMY)
        if held:
            book.enqueue_many("A", [b"x" * 200] * held)
        log = tmp_path / "b.db-wal"
        for _ in range(10):
            before = log.stat().st_size
            book.enqueue("A", b"x" * 200)
            assert log.stat().st_size - before <= (16 << 10) + 205
        book.close()


def test_a_context_offers_what_every_store_can_do() -> None:
    """B-100: no statements of SQL (decision 0058)."""
    offered = {name for name in vars(Context) if not name.startswith("_")}
    assert offered == {"append", "close", "enqueue", "get", "is_unused", "put"}


def test_the_queues_of_pipes_need_no_other_part_of_the_house() -> None:
    """message-queue Q-26: the interface, its check and the queues in memory, but for errors and lengths."""
    folder = Path(message_queue.__file__).parent
    needed: set[str] = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                needed.add(node.module)
            elif isinstance(node, ast.Import):
                needed.update(alias.name for alias in node.names)
    outside = {name for name in needed if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = {name for name in outside if "message_queue" not in name}
    assert ours == {"surepipe.core.payloads", "surepipe.errors"}
