from __future__ import annotations

import io
import json
import threading
from collections.abc import Generator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from surepipe.actors.codecs import choose_codec
from surepipe.actors.threads import ThreadRuntime, ThreadSignal
from surepipe.core.store_requests import (
    Batch,
    CommitPosition,
    Committed,
    Level,
    Owner,
    StreamInfo,
    Transaction,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipelines import loads
from surepipe.pipelines.assembly import Sink
from surepipe.pipelines.calling import Unwritable
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.writers import Given, IntoStream, SharedSink, StoreCursor, passed_in
from surepipe.pipelines.sinks.files import CsvLines, JsonlLines
from surepipe.pipelines.sinks.others import ParquetFolder, Posted, Printed
from surepipe.pipelines.stages import About
from surepipe.storage.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    """The store of a receiver's state."""
    with SqliteStore(tmp_path / "main.db", level=Level.PROCESS) as opened:
        yield opened


def about(seq: int) -> About:
    """A message of the pipe intake."""
    return About("shop/intake", 1, seq)


def put_all(sink: Sink, first: int, *messages: object) -> None:
    """A group without a transaction."""
    sink.begin(None)
    for seq, message in enumerate(messages, first):
        sink.put(message, about(seq), None)
    sink.seal(None)


def committed(store: SqliteStore, sink: Sink, first: int, *messages: object) -> None:
    """A group in a transaction that is done."""
    with store.transaction() as transaction:
        sink.begin(transaction)
        for seq, message in enumerate(messages, first):
            sink.put(message, about(seq), transaction)
        sink.seal(transaction)
    assert transaction.done


def undone(store: SqliteStore, sink: Sink, seq: int, message: object) -> None:
    """A group that was sealed, and whose transaction was not done."""
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        sink.begin(transaction)
        sink.put(message, about(seq), transaction)
        sink.seal(transaction)
        raise ZeroDivisionError


def test_lines_whose_transaction_was_not_done_are_cut_off(
    tmp_path: Path, store: SqliteStore
) -> None:
    """In the same process by the next group, and after a crash when the file is opened again."""
    path, lost = tmp_path / "out" / "a.jsonl", "lost " * 20
    sink = JsonlLines(path, StoreCursor(store, "shop/out/place"))
    committed(store, sink, 1, "one")
    undone(store, sink, 2, lost)
    undone(store, sink, 2, lost)
    assert lost in path.read_text()
    committed(store, sink, 2, "two")
    assert path.read_text() == '"one"\n"two"\n'
    undone(store, sink, 3, lost)
    sink.close()
    again = JsonlLines(path, StoreCursor(store, "shop/out/place"))
    assert path.read_text() == '"one"\n"two"\n'
    committed(store, again, 3, "three")
    again.close()
    assert path.read_text() == '"one"\n"two"\n"three"\n'


def test_a_message_that_is_taken_back_leaves_nothing(tmp_path: Path, store: SqliteStore) -> None:
    """mark and back_to, in a transaction that goes on."""
    path = tmp_path / "a.jsonl"
    sink = JsonlLines(path, StoreCursor(store, "place"))
    with store.transaction() as transaction:
        sink.begin(transaction)
        sink.put(1, about(1), transaction)
        mark = sink.mark()
        sink.put(2, about(2), transaction)
        sink.back_to(mark)
        sink.put(3, about(3), transaction)
        sink.seal(transaction)
    sink.close()
    assert path.read_text() == "1\n3\n"


def test_half_a_line_of_a_crash_is_cut_off(tmp_path: Path) -> None:
    """Without a cursor: whole lines stay, whoever wrote them."""
    path = tmp_path / "a.jsonl"
    path.write_text('"mine"\n"hal')
    sink = JsonlLines(path, None)
    put_all(sink, 1, "next")
    sink.close()
    assert path.read_text() == '"mine"\n"next"\n'


def test_somebody_elses_last_line_without_an_end_stays(
    tmp_path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """With a cursor no half line of ours can be there before the first one: it is ended, not cut off."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"mine": 1}')
    sink = JsonlLines(path, StoreCursor(store, "place"))
    committed(store, sink, 1, "one")
    sink.close()
    assert path.read_text() == '{"mine": 1}\n"one"\n'
    assert not caplog.records


def test_a_file_that_lost_lines_is_told_of_and_goes_on(
    tmp_path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody moved it away: the new one begins empty."""
    path = tmp_path / "a.jsonl"
    sink = JsonlLines(path, StoreCursor(store, "place"))
    committed(store, sink, 1, "one")
    sink.close()
    path.rename(tmp_path / "old.jsonl")
    again = JsonlLines(path, StoreCursor(store, "place"))
    assert "has 0 bytes, and 6 were committed" in caplog.text
    committed(store, again, 2, "two")
    again.close()
    assert path.read_text() == '"two"\n'


def test_a_csv_file_has_one_header_and_refuses_other_fields(tmp_path: Path) -> None:
    """Over two lives; columns that are not those of the file are an error before anything is written."""
    path = tmp_path / "a.csv"
    sink = CsvLines(path, None)
    put_all(sink, 1, {"a": 1, "b": 'x"y'}, {"b": 2, "a": 3})
    sink.close()
    again = CsvLines(path, None, ("a", "b"))
    put_all(again, 3, {"a": 4, "b": 5})
    with pytest.raises(ValueError, match="fields b are missing"):
        again.put({"a": 1}, about(4), None)
    with pytest.raises(ValueError, match="fields c have no column"):
        again.put({"a": 1, "b": 2, "c": 3}, about(4), None)
    with pytest.raises(Unwritable, match="not of int"):
        again.put(5, about(4), None)
    again.close()
    assert path.read_text() == 'a,b\n1,"x""y"\n3,2\n4,5\n'
    with pytest.raises(ConfigurationError, match="has the columns a, b"):
        CsvLines(path, None, ("b", "a"))


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    """Its folder is a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="can't be written"):
        JsonlLines(tmp_path / "file" / "a.jsonl", None)


def test_a_repeat_adds_nothing_to_a_stream(store: SqliteStore) -> None:
    """Outside of transactions each message is appended by its identity, in whatever order."""
    codec = choose_codec("auto")
    writer = IntoStream(store, "booked", "shop/out", codec)
    for seq in (2, 1, 2, 3, 1):
        put_all(writer, seq, seq)
    batch = store.read("booked", 1, 10, 1 << 20)
    assert isinstance(batch, Batch)
    assert [codec.decode(p) for run in batch.entries for p in run.payloads] == [2, 1, 3]


def test_a_stream_in_transactions_has_what_was_done_only(store: SqliteStore) -> None:
    """After one that was not done the writer begins a new life and goes on; so does another process."""
    codec = choose_codec("auto")
    writer = IntoStream(store, "booked", "shop/out", codec)
    committed(store, writer, 1, 1, 2)
    undone(store, writer, 3, "lost")
    committed(store, writer, 3, 3)
    committed(store, IntoStream(store, "booked", "shop/out", codec), 4, 4)
    batch = store.read("booked", 1, 10, 1 << 20)
    assert isinstance(batch, Batch)
    assert [codec.decode(p) for run in batch.entries for p in run.payloads] == [1, 2, 3, 4]


def test_a_reader_that_stands_between_two_lives_of_a_writer_has_passed_the_first(
    store: SqliteStore,
) -> None:
    """A life that was killed told nothing of what it had in work; its successor does (spark SP-18)."""
    codec = choose_codec("auto")
    committed(store, IntoStream(store, "booked", "shop/out", codec), 1, 1, 2)
    committed(store, IntoStream(store, "booked", "shop/out", codec), 3, 3)
    owner = store.claim("booked", "r", 1)
    assert isinstance(owner, Owner)
    for following, told in ((2, [("shop/out", 1, 1)]), (3, [("shop/out", 2, 0)])):
        place = CommitPosition("booked", "r", owner.number, 1, following, revision=following)
        assert isinstance(store.commit(place), Committed)
        info = store.info("booked")
        assert isinstance(info, StreamInfo)
        assert list(passed_in(store, info, "booked")) == told


def test_rows_of_parquet_are_whole_files_and_a_repeat_is_the_same_file(tmp_path: Path) -> None:
    """Named by the first message; rows_per_file at the most."""
    sink = ParquetFolder(tmp_path / "rows", 2)
    for _ in range(2):
        put_all(sink, 1, {"n": 1}, {"n": 2}, {"n": 3})
    parquet: Any = import_module("pyarrow.parquet")
    files = sorted((tmp_path / "rows").iterdir())
    assert [path.name for path in files] == ["shop-intake-1-1.parquet", "shop-intake-1-3.parquet"]
    assert [row["n"] for path in files for row in parquet.read_table(path).to_pylist()] == [1, 2, 3]


def test_a_post_carries_the_identity_and_anything_but_success_fails() -> None:
    """Idempotency-Key is the same on a repeat."""
    seen: list[tuple[str | None, str | None, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.headers["Idempotency-Key"], self.headers["X-Key"], json.loads(body)))
            self.send_response(200 if len(seen) > 1 else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        sink = Posted(f"http://127.0.0.1:{server.server_port}/", {"X-Key": "k"})
        with pytest.raises(OSError, match="the server answered 503"):
            sink.put({"n": 1}, about(7), None)
        sink.put({"n": 1}, about(7), None)
        server.shutdown()
        thread.join()
    assert seen == [("shop/intake/1/7", "k", {"n": 1})] * 2
    with pytest.raises(ConfigurationError, match="begins with http"):
        Posted("file:///etc/passwd", {})


def test_standard_output_has_json_or_text() -> None:
    """A text is quoted as JSON only."""
    for is_json, shown in ((True, '"a"\n{"n": 1}\n'), (False, 'a\n{"n": 1}\n')):
        stream = io.StringIO()
        put_all(Printed(stream, is_json=is_json), 1, "a", {"n": 1})
        assert stream.getvalue() == shown


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://localhost/hunter 2", "k"), ("http://localhost/", "hunter2\n")],
    ids=["a blank in the address", "an end of line in a header"],
)
def test_a_secret_that_cannot_be_sent_is_not_shown(url: str, key: str) -> None:
    """The client's own error would quote it, in dead letters too."""
    with pytest.raises(ConfigurationError, match="of an http sink has a blank") as caught:
        Posted(url, {"Authorization": key})
    assert "hunter" not in str(caught.value)


class Slow:
    """A sink whose first seal waits until it is let go."""

    def __init__(self) -> None:
        self.pending: list[object] = []
        self.groups: list[list[object]] = []
        self.seals, self.let_go = threading.Event(), threading.Event()
        self.refuses = False

    def begin(self, transaction: Transaction | None) -> None:
        del transaction
        self.pending.clear()

    def mark(self) -> int:
        return len(self.pending)

    def back_to(self, mark: int) -> None:
        del self.pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        del about, transaction
        self.pending.append(message)
        if message == "wrong":
            raise Unwritable("it is wrong")

    def seal(self, transaction: Transaction | None) -> None:
        del transaction
        self.seals.set()
        assert self.let_go.wait(30)
        if self.refuses:
            raise StoreUnavailable("the disk is full")
        self.groups.append([*self.pending])

    def close(self) -> None:
        """Nothing is open."""


PLAN = """\
version: 1
name: p
sources: {s: {kind: jsonl, path: a}}
pipes: {p: {from: s}}
sinks: {o: {from: p, kind: jsonl, path: b}}
"""


class Counting(RealEnvironment):
    """Counts those that ask for something to wait with."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, notices=print)
        self.asked = threading.Semaphore(0)
        self.runtime = CountingRuntime(self.asked)


class CountingRuntime(ThreadRuntime):
    """The runtime of threads, whose waiters are counted."""

    def __init__(self, asked: threading.Semaphore) -> None:
        super().__init__()
        self._asked = asked

    def signal(self) -> ThreadSignal:
        """One of those that wait; they stand in the sink's row when the lock is free again."""
        self._asked.release()
        return super().signal()


def given_while_it_seals(sink: Slow, later: list[str]) -> dict[str, BaseException | None]:
    """One message is sealed while these others are given, all by lanes of their own: what became of each."""
    sink.seals.clear()
    sink.let_go.clear()
    environment = Counting(loads(PLAN))
    shared = SharedSink("out", sink, environment)
    found: dict[str, BaseException | None] = {}

    def give(seq: int, message: str) -> None:
        try:
            shared.at_once(message, about(seq))
            found[message] = None
        except (Unwritable, StoreUnavailable) as error:
            found[message] = error

    threads = [threading.Thread(target=give, args=one) for one in enumerate(["first", *later], 1)]
    threads[0].start()
    assert sink.seals.wait(30)
    for thread in threads[1:]:
        thread.start()
    for _ in later:
        assert environment.asked.acquire(timeout=30)
    sink.let_go.set()
    for thread in threads:
        thread.join(30)
    return found


def test_messages_of_lanes_that_wait_for_a_sink_are_sealed_as_one_group() -> None:
    """One seal for all that wait; what can't be put fails alone."""
    sink = Slow()
    found = given_while_it_seals(sink, ["a", "wrong", "b", "c"])
    assert sink.groups[0] == ["first"]
    assert [sorted(map(str, group)) for group in sink.groups[1:]] == [["a", "b", "c"]]
    failed = {name: type(error) for name, error in found.items() if error is not None}
    assert failed == {"wrong": Unwritable}
    assert len(found) == 5


def test_a_seal_that_is_refused_fails_all_that_are_in_it_and_none_behind() -> None:
    """Nobody counts as written; the sink serves the next ones."""
    sink = Slow()
    sink.refuses = True
    found = given_while_it_seals(sink, ["a", "b"])
    assert {type(error) for error in found.values()} == {StoreUnavailable}
    sink.refuses = False
    assert given_while_it_seals(sink, ["d"]) == {"first": None, "d": None}
    assert sink.groups == [["first"], ["d"]]


def test_what_was_given_is_sealed_before_the_next_loop_has_the_sink_alone() -> None:
    """Two loops want it in turns; between them a message that nobody waits for is sealed, and says so."""
    sink, order = Slow(), list[str]()
    sink.let_go.set()
    environment = Counting(loads(PLAN))
    shared = SharedSink("out", sink, environment)

    def second() -> None:
        with shared.alone():
            order.append("second")

    waiting = threading.Thread(target=second)
    with shared.alone():
        waiting.start()
        assert environment.asked.acquire(timeout=30)
        shared.give([Given("given", about(1), lambda: order.append("given"))])
        assert order == []
    waiting.join(30)
    assert order == ["given", "second"]
    assert sink.groups == [["given"]]
