"""What pipes write down of themselves is audited like any other trace (X-30, XT-13)."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from surepipe import DeadLetters, FaultyRoute, LocalRoute, Pipe, StreamReceiver, StreamSender
from surepipe.actors import StepRuntime
from surepipe.actors.tracing import Columns
from surepipe.audit.bulk import DuckEngine, Question, judge, place_of
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace import Row
from surepipe.audit.trace_audit import audit
from surepipe.audit.trace_file import RecordedRows, TraceFile, TraceRecorder
from surepipe.errors import NotConfirmed
from surepipe.storage import Level, MemoryStore, SqliteStore
from surepipe.testing.crash_points import STATUS
from tests.audit.properties import children

PATIENCE_S = 20.0
_PROCESSES = multiprocessing.get_context("forkserver")


def kinds(rows: list[Row]) -> Mapping[str, int]:
    """How many messages there are of each kind, or rows, of what speaks of none."""
    counts = Counter[str]()
    for row in rows:
        counts[row.kind] += row.count or 1
    return counts


def test_the_trace_of_a_pipe_on_threads_is_judged_as_held(tmp_path: Path) -> None:
    """A thousand messages: everything that the pipe claims, and the sum, from its file (X-30)."""
    path, got = tmp_path / "orders.jsonl", list[object]()
    with TraceRecorder(path, with_digests=True) as trace, Pipe("orders", trace=trace) as pipe:
        pipe.receive(got.append)
        pipe.send_many([{"order": number} for number in range(1000)])
    found = audit(TraceFile(path))
    assert found.held
    assert found.pipe("orders").sum == "1000 sent = 1000 settled + 0 dead letters + 0 in flight"
    assert {one.outcome for one in found.pipe("orders").findings} == {PropertyOutcome.HELD}
    assert "P2" in found.pipe("orders").promised
    assert len(path.read_text().splitlines()) < 200


def test_without_digests_an_audit_says_that_it_has_not_seen_the_payloads(tmp_path: Path) -> None:
    """Held as far as identities go (X-33)."""
    path = tmp_path / "orders.jsonl"
    with TraceRecorder(path) as trace, Pipe("orders", trace=trace) as pipe:
        pipe.receive(str)
        pipe.send("a")
    finding = audit(TraceFile(path)).pipe("orders").finding("P1")
    assert str(finding) == (
        "P1 integrity: held: as far as identities tell; the trace has no digests of payloads"
    )


@pytest.mark.parametrize("boundary", ["handed", "processed"])
@pytest.mark.parametrize("seed", range(6))
def test_rows_of_a_pipe_over_a_bad_route_tell_what_its_handler_saw(
    seed: int, boundary: str
) -> None:
    """Loss, copies and reordering in virtual time: settled rows are the messages handled, in their order."""
    route = FaultyRoute(LocalRoute(), loss=0.2, duplicate=0.2, reorder=0.2, seed=seed)
    trace, got = RecordedRows(), list[object]()
    with Pipe(
        "orders",
        "multi-unconfirmed",
        route=route,
        boundary="handed" if boundary == "handed" else "processed",
        runtime=StepRuntime(seed),
        seed=seed,
        trace=trace,
    ) as pipe:
        pipe.receive(got.append)
        for number in range(1, 61):
            pipe.send(number)
    settled = [seq for r in trace.rows if r.kind == "settled" for seq in range(r.seq, r.last + 1)]
    assert settled == got
    found = audit(trace.rows)
    assert found.held
    assert found.pipe("orders").repeated == len(got) - 60


def test_crashes_of_both_ends_stand_in_the_trace_and_nothing_is_accused_wrongly(
    tmp_path: Path,
) -> None:
    """With a journal and a durable state nothing is lost; what crashes repeat is repeated in the trace too."""
    steps, trace, got = StepRuntime(3), RecordedRows(), list[object]()
    with (
        closing(SqliteStore(tmp_path / "orders.db", level=Level.PROCESS)) as store,
        Pipe("orders", journal=store, state=store, runtime=steps, seed=3, trace=trace) as pipe,
    ):
        pipe.receive(got.append)
        for number in range(40):
            pipe.send(number)
            if number in (10, 25):
                pipe.sender.crash()
                steps.advance(1)
            if number in (15, 30):
                pipe.receiver.crash()
                steps.advance(1)
    found = audit(trace.rows)
    assert found.held
    assert "P3" not in found.pipe("orders").promised
    told = kinds(trace.rows)
    assert (told["crash"], told["start"], told["end"]) == (4, 6, 2)
    assert found.pipe("orders").settled == 40
    assert found.pipe("orders").repeated == len(got) - 40


def test_what_is_handled_when_its_receiver_dies_is_settled_in_the_trace() -> None:
    """The boundary is crossed although the machine never hears of it; the repeat is told as one (X-18)."""
    steps, trace = StepRuntime(1), RecordedRows()
    calls: list[object] = []

    def handle(message: object) -> None:
        calls.append(message)
        if calls == ["a"]:
            pipe.receiver.crash()
            steps.advance(5)

    with Pipe("orders", runtime=steps, seed=1, trace=trace) as pipe:
        pipe.receive(handle)
        pipe.send("a")
    assert calls == ["a", "a"]
    found = audit(trace.rows).pipe("orders")
    assert (found.settled, found.repeated) == (1, 1)
    assert [one.id for one in audit(trace.rows).violated()] == ["P3"]
    assert "P3" not in found.promised


def test_a_sender_that_crashes_without_a_journal_is_shown_to_have_lost_messages() -> None:
    """Three were accepted and went with it: the audit of the finished trace finds them (pipes L-3)."""
    steps, trace = StepRuntime(1), RecordedRows()
    pipe = Pipe("orders", runtime=steps, seed=1, trace=trace)
    pipe.send_many(["a", "b", "c"])
    steps.advance(0.01)
    pipe.sender.crash()
    steps.advance(1)
    pipe.receive(str)
    pipe.send("d")
    with pytest.raises(NotConfirmed, match="the sender crashed"):
        pipe.close()
    rows = trace.rows
    assert kinds(rows)["accepted"] == 4
    assert kinds(rows)["settled"] + audit(rows).pipe("orders").lost == 4


def test_a_dead_letter_is_settled_and_named_in_the_trace() -> None:
    """One of five is poison: 4 settled and 1 dead letter, all promises kept (pipes D-2)."""
    trace = RecordedRows()

    def handle(message: object) -> None:
        if message == 3:
            raise ValueError("no threes")

    with Pipe(
        "orders", retries=2, dead_letter=DeadLetters(), runtime=StepRuntime(1), trace=trace
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many(list(range(1, 6)))
    found = audit(trace.rows)
    assert found.pipe("orders").sum == "5 sent = 4 settled + 1 dead letters + 0 in flight"
    assert found.held


def test_what_was_settled_before_it_was_handled_is_settled_once_though_it_is_tried_again(
    tmp_path: Path,
) -> None:
    """Boundary before, and the third of five fails once: it and what stands behind it are handed over twice."""
    steps, trace = StepRuntime(1), RecordedRows()
    store = SqliteStore(tmp_path / "orders.db", level=Level.PROCESS)
    calls: list[object] = []

    def handle(message: object) -> None:
        calls.append(message)
        if calls.count(3) == 1 and message == 3:
            raise ValueError("not now")

    with Pipe(
        "orders", journal=store, state=store, boundary="before", runtime=steps, trace=trace
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many(list(range(1, 6)))
        pipe.flush(60)
        steps.advance(60)
    store.close()
    assert calls == [1, 2, 3, 3, 4, 5]
    found = audit(trace.rows)
    assert (found.pipe("orders").settled, found.pipe("orders").repeated) == (5, 0)
    assert found.held


def test_two_writers_of_a_stream_and_its_reader_make_one_trace() -> None:
    """Each writer's messages are judged by themselves; a confirm there says that the store has it."""
    trace, store, got = RecordedRows(), MemoryStore(), list[object]()
    reader = {"stream": {"start": "earliest"}}
    with (
        StreamSender("orders", {"stream": {"producer": "a"}}, store=store, trace=trace) as one,
        StreamSender("orders", {"stream": {"producer": "b"}}, store=store, trace=trace) as other,
        StreamReceiver("orders", reader, store=store, trace=trace) as receiver,
    ):
        receiver.receive(got.append)
        one.send_many(list(range(30)))
        other.send_many(list(range(20)))
        one.flush(PATIENCE_S)
        other.flush(PATIENCE_S)
        assert receiver.catch_up(PATIENCE_S)
    found = audit(trace.rows)
    assert [(one.pipe, one.settled) for one in found.pipes] == [("orders@a", 30), ("orders@b", 20)]
    assert found.ended
    assert {one.outcome for one in found.pipe("orders@a").findings if one.id != "P8"} == {
        PropertyOutcome.HELD
    }
    assert found.pipe("orders@b").finding("P8").outcome is PropertyOutcome.UNDECIDED


def test_a_reader_that_stops_early_leaves_messages_not_yet_delivered() -> None:
    """The sender's end is at rest, the reader's is not: nothing is lost (X-33)."""
    trace, store = RecordedRows(), MemoryStore()
    with StreamSender("orders", store=store, trace=trace) as sender:
        sender.send_many(list(range(5)))
    with StreamReceiver(
        "orders", {"stream": {"start": "earliest"}}, store=store, trace=trace
    ) as receiver:
        assert next(iter(receiver)) == 0
    pipe = audit(trace.rows).pipe("orders@orders")
    assert (pipe.lost, pipe.waiting) == (0, 5)
    assert pipe.finding("P2").outcome is PropertyOutcome.UNDECIDED


class Deaf:
    """A sink that takes a few rows and then raises."""

    with_digests = False

    def __init__(self, room: int) -> None:
        self.kept = RecordedRows()
        self.room = room

    def write(self, columns: Columns) -> None:
        """Take a row, while there is room."""
        if len(self.kept.rows) == self.room:
            self.room = 0
            raise OSError("no space left")
        self.kept.write(columns)


def test_a_trace_that_can_not_be_written_harms_no_pipe_and_is_called_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One row is missing in the middle: logged once, the pipe goes on, the audit says so (X-33)."""
    trace, got = Deaf(room=6), list[object]()
    with (
        caplog.at_level(logging.ERROR, "surepipe"),
        Pipe("orders", runtime=StepRuntime(1), trace=trace) as pipe,
    ):
        pipe.receive(got.append)
        for number in range(9):
            pipe.send(number)
    assert got == list(range(9))
    assert len([record for record in caplog.records if "trace" in record.message]) == 1
    found = audit(trace.kept.rows)
    assert len(found.broken) == 1
    assert not found.held


def killed_at(point: str, count: int, store: str, trace: str, *, receives: bool) -> None:
    """A process with a pipe, which ends itself at this point."""
    process = _PROCESSES.Process(
        target=children.die_at, args=(point, count, store, trace), kwargs={"receives": receives}
    )
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == STATUS


BEFORE_ITS_ROW = (
    *("after-append-rows", "after-note-transmitted", "after-save-state", "after-dead-letter"),
    *("before-confirmed", "after-forget-rows"),
)
"""Something is done, and the row that tells of it is not written, or will not be by this process."""


@pytest.mark.parametrize("point", BEFORE_ITS_ROW)
def test_what_a_process_did_and_did_not_live_to_write_down_is_neither_lost_nor_too_much(
    point: str, tmp_path: Path
) -> None:
    """Killed at each such point, and run again to the end: the sum is right, all promises held (X-30, XT-13)."""
    store_path, path = tmp_path / "orders.db", tmp_path / "trace.jsonl"
    killed_at(point, 10, str(store_path), str(path), receives=True)
    with children.orders_kept(str(store_path), str(path)) as pipe:
        pipe.receive(children.no_threes)
        pipe.send(10)
    found = audit(TraceFile(path))
    assert found.held
    assert found.pipe("orders").sum == "11 sent = 10 settled + 1 dead letters + 0 in flight"


RENUMBERED_AND_GONE = "after-renumber"
"""The journal has the new numbers, and nobody was told."""


@pytest.mark.parametrize("lives", [1, 2])
def test_messages_that_a_killed_life_has_numbered_again_are_the_same_messages(
    lives: int, tmp_path: Path
) -> None:
    """Killed between the write and its row, once or twice in a row: the next life knows them by their new numbers
    alone, and no audit takes them for more messages (X-30, XT-13)."""
    store_path, path, got = tmp_path / "orders.db", tmp_path / "trace.jsonl", list[object]()
    for point, count in [("before-note-transmitted", 20)] + lives * [(RENUMBERED_AND_GONE, 0)]:
        killed_at(point, count, str(store_path), str(path), receives=False)
    with (
        closing(SqliteStore(store_path)) as store,
        TraceRecorder(path) as trace,
        Pipe("orders", journal=store, state=store, trace=trace) as pipe,
    ):
        pipe.receive(got.append)
        pipe.send(20)
    place = place_of(str(path))
    for found in (
        audit(TraceFile(path)).pipe("orders"),
        judge(DuckEngine(), Question(place, place)).channel("orders"),
    ):
        assert found.sum == f"{len(got)} sent = {len(got)} settled + 0 dead letters + 0 in flight"
    assert audit(TraceFile(path)).held
    assert got == [*range(len(got) - 1), 20]


def started(
    run: Callable[..., None], *arguments: object
) -> tuple[Callable[[], None], Callable[[], object]]:
    """A process of its own: how to kill it, and how to get its next report."""
    reports, theirs = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=run, args=(*arguments, theirs))
    process.start()
    theirs.close()

    def kill() -> None:
        process.kill()
        process.join(PATIENCE_S)
        assert process.exitcode is not None

    def report() -> object:
        assert reports.poll(PATIENCE_S), "the process says nothing"
        found: object = reports.recv()
        return found

    return kill, report


def test_the_trace_of_a_killed_process_ends_in_messages_not_yet_delivered(tmp_path: Path) -> None:
    """SIGKILL while the handler stands at its 21st message of 60: no false loss (XT-13)."""
    path = tmp_path / "orders.jsonl"
    kill, report = started(children.handle_some, str(path), 20)
    assert report() == "standing"
    kill()
    found = audit(TraceFile(path))
    pipe = found.pipe("orders")
    assert not found.ended
    assert not found.violated()
    assert pipe.lost == 0
    assert pipe.conserved
    assert pipe.finding("P2").outcome is PropertyOutcome.UNDECIDED
    assert 0 < pipe.waiting <= 60
    assert pipe.settled <= 20


def test_a_killed_sender_and_the_reader_that_came_after_it_are_audited_together(
    tmp_path: Path,
) -> None:
    """SIGKILL of a sender amid its sends, then a reader in this process, two files: what the sender reported is
    there, and nothing is called lost, repeated or foreign (XT-13)."""
    store_path, sent = str(tmp_path / "orders.db"), tmp_path / "sent.jsonl"
    kill, report = started(children.send_into_stream, store_path, str(sent))
    for expected in range(40):
        assert report() == expected
    kill()
    got, taken = list[object](), tmp_path / "taken.jsonl"
    with (
        closing(SqliteStore(store_path)) as store,
        TraceRecorder(taken) as trace,
        StreamReceiver(
            "orders", {"stream": {"start": "earliest"}}, store=store, trace=trace
        ) as reader,
    ):
        reader.receive(got.append)
        assert reader.catch_up(PATIENCE_S)
    found = audit(TraceFile(sent), TraceFile(taken))
    pipe = found.pipe("orders@orders")
    assert not found.violated()
    assert pipe.settled + pipe.untold == len(got)
    assert pipe.sent >= 40
    assert pipe.lost == 0
    assert (pipe.repeated, pipe.out_of_order, pipe.gaps) == (0, 0, 0)


def test_a_recorder_goes_on_behind_a_line_that_a_kill_has_torn(tmp_path: Path) -> None:
    """The next process begins a line of its own; only the torn one is lost."""
    path = tmp_path / "orders.jsonl"
    path.write_text('{"clock":"wa')
    with TraceRecorder(path) as trace, Pipe("orders", trace=trace) as pipe:
        pipe.receive(str)
        pipe.send("a")
    found = audit(TraceFile(path))
    assert found.torn == 1
    assert found.held
