"""Streams in stores as logs: by payload, by identity, and beside the trace of who reads them (spark SP-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from surepipe import LocalRoute, Pipe, PipeReceiver, PipeSender, StreamReceiver, StreamSender
from surepipe.audit.bulk import BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.bulk.judging import Match
from surepipe.audit.bulk.logs import Traces
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.trace_audit import UNTAKEN, audit
from surepipe.audit.trace_file import TraceFile, TraceRecorder, line_of
from surepipe.cli.output import Exit
from surepipe.core.claims import Atom
from surepipe.core.store_requests import KEEP_ALL, Created, Stored, Trimmed
from surepipe.errors import ConfigurationError
from surepipe.storage import Level, SqliteStore
from tests.cli.kit import Command


def words(*numbers: int) -> list[bytes]:
    """Payloads."""
    return [b"message %d" % number for number in numbers]


class Hop:
    """A store with the streams ``sent`` and ``done``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path, level=Level.PROCESS)
        self._next: dict[str, int] = {}

    def put(self, stream: str, payloads: Sequence[bytes], partitions: int = 1) -> None:
        """Append; the stream is made when it is not there."""
        name = stream.partition("#")[0]
        if name not in self._next:
            assert isinstance(self.store.create(name, partitions, KEEP_ALL), Created)
            self._next[name] = 0
        first = self._next.setdefault(stream, 0) + 1
        assert isinstance(self.store.append(stream, "maker", 1, first, payloads), Stored)
        self._next[stream] = first + len(payloads) - 1

    def judge(self, *, match: Match = "payload", at_rest: bool | None = True) -> BulkAudit:
        """The verdict on what is in both now."""
        sent, done = place_of(f"{self.path}#sent"), place_of(f"{self.path}#done")
        return judge(DuckEngine(), Question(sent, done, at_rest=at_rest, match=match))


@pytest.fixture
def hop(tmp_path: Path) -> Hop:
    """Two streams in a SQLite store."""
    return Hop(tmp_path / "hop.db")


def test_two_streams_are_compared_by_payload(hop: Hop) -> None:
    """2 is lost, 4 comes late, 5 twice, and 99 from nowhere; indexes of the stream are the seqs."""
    hop.put("sent", words(1, 2, 3, 4, 5, 6))
    hop.put("done", words(1, 3, 5, 4, 5, 6, 99))
    one = hop.judge().channel("sent")
    assert (one.sent, one.lost, one.repeated, one.out_of_order, one.gaps) == (6, 1, 1, 1, 2)
    lost = [case for case in one.examples if case.what == "lost"]
    assert [(case.low, case.seq) for case in lost] == [(2, 2)]
    assert hop.judge().total("foreign") == 1
    assert hop.judge().is_broken


def test_messages_with_equal_payloads_are_counted(hop: Hop) -> None:
    """Three of a kind in, three out: held. Four out: one is a repeat."""
    hop.put("sent", [b"tick"] * 3)
    hop.put("done", [b"tick"] * 3)
    assert hop.judge().is_held
    hop.put("done", [b"tick"])
    assert hop.judge().channel("sent").repeated == 1


def test_what_did_not_come_yet_is_in_flight_unless_nothing_more_will_come(hop: Hop) -> None:
    """Streams don't tell whether their writers have ended (simulation X-33)."""
    hop.put("sent", words(1, 2, 3))
    hop.put("done", words(1))
    one = hop.judge(at_rest=None).channel("sent")
    assert (one.waiting, one.lost, one.outcomes[Atom.NO_LOSS]) == (2, 0, PropertyOutcome.UNDECIDED)
    assert hop.judge().channel("sent").lost == 2


def test_partitions_are_channels_of_their_own(hop: Hop) -> None:
    """Two partitions into one stream: order is judged within each."""
    hop.put("sent#0", words(1, 2), partitions=2)
    hop.put("sent#1", words(3, 4), partitions=2)
    hop.put("done", words(3, 1, 4, 2))
    found = hop.judge()
    assert [one.channel for one in found.channels] == ["sent#0", "sent#1"]
    assert found.is_held


def test_where_identities_are_kept_they_are_compared(hop: Hop) -> None:
    """The same producer, epoch and seq: payloads may have changed on the way."""
    hop.put("sent", words(1, 2, 3))
    hop.put("done", words(10, 20))
    found = hop.judge(match="identity")
    assert [(one.channel, one.sent, one.settled, one.lost) for one in found.channels] == [
        ("sent@maker", 3, 2, 1)
    ]


def test_a_trimmed_beginning_is_no_loss_and_nothing_foreign(hop: Hop) -> None:
    """Sent: what came out of the trimmed part is untold. Delivered: loss can't be told."""
    for stream in ("sent", "done"):
        for at in range(0, 30, 10):
            hop.put(stream, words(*range(at, at + 10)))
    assert hop.store.trim("sent", 11) == Trimmed(11)
    found = hop.judge()
    assert (found.channel("sent").sent, found.total("lost")) == (20, 0)
    assert (found.total("foreign"), found.total("untold")) == (0, 10)
    assert hop.store.trim("sent", 21) == Trimmed(21)
    assert hop.store.trim("done", 30) == Trimmed(21)
    hop.put("sent", words(77))
    one = hop.judge().channel("sent")
    assert one.outcomes[Atom.NO_LOSS] is PropertyOutcome.UNDECIDED
    assert "trimmed" in one.why


def test_a_stream_beside_the_trace_of_its_reader(tmp_path: Path) -> None:
    """What a store holds against what a receiver settled: each told by its own side (SP-18)."""
    path, trace = tmp_path / "orders.db", tmp_path / "taken.jsonl"
    with SqliteStore(path, level=Level.PROCESS) as store:
        with StreamSender("orders", store=store) as sender:
            sender.send_many([{"order": number} for number in range(100)])
            sender.flush(20)
        with (
            TraceRecorder(trace) as recorder,
            StreamReceiver(
                "orders", {"stream": {"start": "earliest"}}, store=store, trace=recorder
            ) as receiver,
        ):
            receiver.receive(str)
            assert receiver.catch_up(20)
    found = judge(DuckEngine(), Question(place_of(f"{path}#orders"), place_of(str(trace))))
    assert [one.sum for one in found.channels] == [
        "100 sent = 100 settled + 0 dead letters + 0 in flight"
    ]
    assert found.is_held


def _without(trace: Path, kind: str, pipe: str) -> None:
    """Take the first row of this kind out of a trace, as if it had never been: its node's steps close up."""
    rows = list(TraceFile(trace))
    gone = next(row for row in rows if (row.kind, row.pipe) == (kind, pipe))
    kept = [
        replace(row, step=row.step - 1)
        if (row.run, row.node, row.step > gone.step) == (gone.run, gone.node, True)
        else row
        for row in rows
        if row is not gone
    ]
    trace.write_text("".join(f"{line_of(row)}\n" for row in kept))


@pytest.mark.parametrize(
    ("missing", "standings"),
    [("", {"held"}), ("settled", {"broken", "held"}), ("accepted", {"not judged"})],
)
def test_the_pipes_of_a_trace_beside_a_stream_are_judged_by_the_trace(
    missing: str, standings: set[str], tmp_path: Path
) -> None:
    """One program with a pipe and a reader: the stream says what was sent into itself, and nothing of the pipe."""
    path, trace = tmp_path / "house.db", tmp_path / "house.jsonl"
    with SqliteStore(path, level=Level.PROCESS) as store, TraceRecorder(trace) as recorder:
        with Pipe("bids", trace=recorder) as pipe:
            pipe.receive(str)
            pipe.send_many(range(5))
            pipe.flush(20)
        layer = {"stream": {"start": "earliest"}}
        with (
            StreamSender("notices", store=store, trace=recorder) as sender,
            StreamReceiver("notices", layer, store=store, trace=recorder) as receiver,
        ):
            receiver.receive(str)
            sender.send_many(range(7))
            sender.flush(20)
            assert receiver.catch_up(20)
    if missing:
        _without(trace, missing, "bids")
    found = judge(DuckEngine(), Question(place_of(f"{path}#notices"), place_of(str(trace))))
    assert {str(one.standing) for one in found.channel("notices@notices").judged()} == {"held"}
    assert {str(one.standing) for one in found.channel("bids").judged()} == standings
    assert found.channel("notices@notices").sent == 7


@pytest.mark.parametrize("options", ["", "--at-rest", "--expect no-loss --at-rest"])
def test_a_stream_alone_tells_nothing_of_delivery(
    hop: Hop, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    """Nobody has read it: what is in it is no message that came out."""
    hop.put("sent", words(1, 2, 3))
    told = Command(capsys)("audit", f"{hop.path}#sent", *options.split())
    assert told.code == Exit.NOT_EXERCISED
    assert "sent: 3 sent = 0 settled + 0 dead letters + 3 in flight" in told.out
    promises = "no-loss" if "--expect" in options else "no-loss, no-duplicate, monotonic, gap-free"
    assert told.out.count("not judged: ") == 1
    assert (
        f"not judged: sent: integrity, {promises}, because there is only this stream"
        in " ".join(told.out.split())
    )
    assert "held" not in told.out


def test_a_stream_that_is_not_there_is_refused(hop: Hop) -> None:
    """By name."""
    hop.put("sent", words(1))
    with pytest.raises(ConfigurationError, match=r"hop.db#done can't be read: there is no such"):
        hop.judge()


@pytest.mark.parametrize("is_stream", [False, True], ids=["pipe", "stream"])
def test_of_a_senders_trace_alone_nothing_is_said_to_hold(
    tmp_path: Path, *, is_stream: bool
) -> None:
    """spark SP-18: each process writes its own trace. What came out, once or twice or never, another one tells."""
    store = SqliteStore(tmp_path / "shop.db")
    files = (tmp_path / "sent.jsonl", tmp_path / "taken.jsonl")
    sending, taking = (TraceRecorder(file) for file in files)
    seen: list[object] = []
    layers = {"stream": {"start": "earliest"}}
    with store, sending, taking:
        if is_stream:
            with StreamSender("orders", layers, store=store, trace=sending) as sender:
                sender.send_many(range(5))
            with StreamReceiver("orders", layers, store=store, trace=taking) as reader:
                reader.receive(seen.append)
                assert reader.catch_up(timeout=60)
        else:
            route = LocalRoute()
            with (
                PipeReceiver("orders", route=route, trace=taking) as receiver,
                PipeSender("orders", route=route, trace=sending) as sender,
            ):
                receiver.receive(seen.append)
                sender.send_many(range(5))
                sender.flush(timeout=60)
    assert seen == [*range(5)]
    alone, both = (audit(*map(TraceFile, some)) for some in (files[:1], files))
    [orders] = alone.pipes
    assert {(one.outcome, one.why) for one in orders.findings} == {
        (PropertyOutcome.UNDECIDED, UNTAKEN)
    }
    assert both.held
    for given, is_known in ((files[:1], False), (files, True)):
        told = judge(DuckEngine(), Question(Traces(given), Traces(given)))
        assert told.is_held is is_known, str(told)
