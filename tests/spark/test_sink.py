from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.store_requests import (
    CommitPosition,
    Entries,
    Identity,
    Owner,
    Position,
    Retention,
)
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.spark import sink
from surepipe.spark.columns import BufferPayloads
from surepipe.spark.sink import (
    Origin,
    Outputs,
    SinkRow,
    Written,
    append_by_identity,
    position_of,
    write_rows,
)
from surepipe.spark.stores import StorePlace
from tests.spark.streams import Streams

ORIGIN = Origin("orders", 0, 77)


def rows(first: int, stop: int) -> list[SinkRow]:
    """Entry n gives n modulo 3 outputs."""
    return [
        SinkRow(n, [f"out-{n}.{part}".encode() for part in range(n % 3)])
        for n in range(first, stop)
    ]


def expected(first: int, stop: int) -> list[bytes]:
    """What the rows hold."""
    return [payload for row in rows(first, stop) for payload in row.payloads]


def write(streams: Streams, first: int, stop: int, *, may_begin: bool = True) -> Written:
    """Write what was made of a range."""
    made = rows(first, stop)
    return write_rows(streams.place, "out", ORIGIN, made, first, stop, may_begin=may_begin)


def test_outputs_are_appended_once_however_often_they_come(any_streams: Streams) -> None:
    """The same range three times; then nothing of the stream has changed; spark SP-9."""
    any_streams.create("out")
    assert write(any_streams, 1, 10) == Written(9, 0, 10)
    assert [write(any_streams, 1, 10) for _ in range(2)] == [Written(0, 9, 10)] * 2
    assert any_streams.read("out") == expected(1, 10)


@given(cuts=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 25)), min_size=1, max_size=8))
def test_no_way_of_cutting_batches_repeats_or_loses_an_output(cuts: list[tuple[int, int]]) -> None:
    """Ranges that begin at or before the position, of any length, as after lost checkpoints; spark SP-9."""
    place, reached = PLACES.new(), 1
    streams = Streams(place).create("out")
    for back, length in cuts:
        first = max(1, reached - back)
        stop = first + length
        written = write(streams, first, stop)
        reached = max(reached, stop)
        assert written.next == reached
        assert written.new + written.skipped == len(expected(first, stop))
    assert streams.read("out") == expected(1, reached)
    streams.store.close()


class _Places:
    """Stores in a folder of the run, one for each example."""

    def __init__(self) -> None:
        self.folder = ""
        self.count = 0

    def new(self) -> StorePlace:
        """A place that was never used."""
        self.count += 1
        return StorePlace(f"{self.folder}/{self.count}.db", level="process")


PLACES = _Places()


@pytest.fixture(scope="module", autouse=True)
def folder_of_places(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where the examples of hypothesis keep their stores."""
    PLACES.folder = str(tmp_path_factory.mktemp("sink"))


def test_a_range_behind_the_position_is_refused_and_nothing_moves(any_streams: Streams) -> None:
    """Entries 10 and 11 are missing; spark SP-9."""
    any_streams.create("out")
    write(any_streams, 1, 10)
    with pytest.raises(StoreReset, match=r"begins at entry 12, and entries up to 9 was written"):
        write(any_streams, 12, 15)
    assert position_of(any_streams.place, "out", ORIGIN) == 10
    assert any_streams.read("out") == expected(1, 10)


def test_a_sink_that_never_wrote_believes_its_first_range_only_when_it_may(
    any_streams: Streams,
) -> None:
    """A later batch says that it is not the first: then a store without a position has lost it."""
    any_streams.create("out")
    with pytest.raises(StoreReset, match="nothing of it was written"):
        write(any_streams, 500, 510, may_begin=False)
    assert write(any_streams, 500, 510).next == 510
    assert any_streams.read("out") == expected(500, 510)


def test_entries_without_outputs_move_the_position_too(any_streams: Streams) -> None:
    """A filter removes everything of a range."""
    any_streams.create("out")
    assert write_rows(any_streams.place, "out", ORIGIN, [], 1, 100) == Written(0, 0, 100)
    assert position_of(any_streams.place, "out", ORIGIN) == 100
    assert any_streams.read("out") == []


def test_origins_lives_and_sinks_have_positions_of_their_own(any_streams: Streams) -> None:
    """The same indexes of another partition, another life and another sink are other outputs."""
    any_streams.create("out")
    outputs = Outputs(1, 3, [1, 2], [b"a", b"b"])
    for origin in (ORIGIN, Origin("orders", 1, 77), Origin("orders", 0, 78)):
        for name in ("spark", "other"):
            written = append_by_identity(any_streams.place, "out", origin, outputs, sink=name)
            assert written == Written(2, 0, 3)
    assert any_streams.read("out") == [b"a", b"b"] * 6


def test_outputs_carry_the_identity_of_their_sink_in_dense_seqs(any_streams: Streams) -> None:
    """Two writes: the seqs go on; spark SP-9."""
    any_streams.create("out")
    write(any_streams, 1, 6)
    write(any_streams, 6, 9)
    identities = [any_streams.store.identify("out", n) for n in range(1, 9)]
    assert identities == [Identity("spark/orders/0@77", 1, n) for n in range(1, 9)]


def test_a_large_range_goes_in_chunks_that_never_part_the_outputs_of_an_entry(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks of 4 messages; each position on the way has all outputs below it, and none above."""
    monkeypatch.setattr(sink, "CHUNK_MESSAGES", 4)
    streams.create("out")
    assert write(streams, 1, 50).new == len(expected(1, 50))
    batch = streams.store.read("out", 1, 1000, 1 << 20)
    entries: Sequence[Entries] = getattr(batch, "entries", ())
    pages = [list(each.payloads) for each in entries]
    assert len(pages) > 10
    for page, following in pairwise(pages):
        assert page[-1].partition(b".")[0] != following[0].partition(b".")[0]
    assert streams.read("out") == expected(1, 50)


def test_an_entry_with_more_outputs_than_a_chunk_stays_whole(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One entry gives ten outputs, and a chunk takes four messages, or five bytes."""
    monkeypatch.setattr(sink, "CHUNK_MESSAGES", 4)
    monkeypatch.setattr(sink, "CHUNK_BYTES", 5)
    streams.create("out")
    large = [SinkRow(1, [b"a"]), SinkRow(2, [b"%d" % n for n in range(10)]), SinkRow(3, [b"z"])]
    assert write_rows(streams.place, "out", ORIGIN, large, 1, 4) == Written(12, 0, 4)
    batch = streams.store.read("out", 1, 1000, 1 << 20)
    entries: Sequence[Entries] = getattr(batch, "entries", ())
    assert [len(each.payloads) for each in entries] == [1, 10, 1]


class _Late(BufferPayloads):
    """Payloads that let another attempt go first, when this one takes them: it has looked already then."""

    def __init__(self, payloads: list[bytes], other: Callable[[], object]) -> None:
        packed = BufferPayloads.of(payloads)
        super().__init__(packed.begins, packed.body)
        self._other = other

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> BufferPayloads: ...
    def __getitem__(self, at: int | slice) -> bytes | BufferPayloads:
        self._other()
        return super().__getitem__(at)


def overtaken_by(other: Callable[[], object]) -> Outputs:
    """Two outputs of an attempt that another one overtakes."""
    return Outputs(1, 3, [1, 2], _Late([b"a", b"b"], other))


def test_an_attempt_that_was_overtaken_by_a_finished_one_is_done_too(any_streams: Streams) -> None:
    """A second attempt claims and writes everything after the first one has looked; spark SP-9."""
    any_streams.create("out")
    outputs = Outputs(1, 3, [1, 2], [b"a", b"b"])

    late = overtaken_by(lambda: append_by_identity(any_streams.place, "out", ORIGIN, outputs))
    written = append_by_identity(any_streams.place, "out", ORIGIN, late)
    assert (written.new, written.next) == (0, 3)
    assert any_streams.read("out") == [b"a", b"b"]


def test_an_attempt_that_was_overtaken_by_one_at_work_stops_and_does_no_harm(
    any_streams: Streams,
) -> None:
    """The other attempt has claimed and written half; spark SP-9."""
    any_streams.create("out")
    half = Outputs(1, 2, [1], [b"a"])

    late = overtaken_by(lambda: append_by_identity(any_streams.place, "out", ORIGIN, half))
    with pytest.raises(Fenced, match="stands at entry 2 of 2"):
        append_by_identity(any_streams.place, "out", ORIGIN, late)
    assert any_streams.read("out") == [b"a"]


def test_attempts_that_race_write_every_output_once(any_streams: Streams) -> None:
    """Six threads write the same ranges, and write a range again when they are fenced, as Spark does; SP-9."""
    any_streams.create("out")

    def attempt() -> None:
        for first in range(1, 100, 7):
            while True:
                try:
                    write(any_streams, first, first + 7)
                    break
                except Fenced:
                    continue

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any_streams.read("out") == expected(1, 106)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (Outputs(1, 9, [2, 1], [b"", b""]), "not in the order"),
        (Outputs(1, 9, [1], []), "1 indexes for 0 outputs"),
        (Outputs(2, 9, [1], [b""]), "outside of the range"),
        (Outputs(1, 9, [9], [b""]), "outside of the range"),
    ],
)
def test_outputs_that_do_not_fit_their_range_are_refused(
    streams: Streams, outputs: Outputs, message: str
) -> None:
    """Out of order (as a shuffle leaves them), too few, below and above; nothing is claimed; spark SP-10."""
    streams.create("out")
    with pytest.raises(MisuseError, match=message):
        append_by_identity(streams.place, "out", ORIGIN, outputs)
    assert position_of(streams.place, "out", ORIGIN) is None


def test_a_stream_that_is_not_there_or_full_is_an_error_that_says_so(any_streams: Streams) -> None:
    """No stream, then one that takes 10 bytes of what nobody has read."""
    with pytest.raises(ConfigurationError, match="'out' does not exist; create it first"):
        write(any_streams, 1, 3)
    any_streams.create("out", retention=Retention(max_bytes=10))
    life = any_streams.info("out").incarnation
    owner = any_streams.store.claim("out", "slow", 1)
    assert isinstance(owner, Owner)
    any_streams.store.commit(CommitPosition("out", "slow", owner.number, life, 1))
    write(any_streams, 1, 2)
    with pytest.raises(StoreUnavailable, match=r"the stream is full \(max_bytes=10\)"):
        write(any_streams, 2, 50)


def test_one_slot_is_demanded_where_two_streams_have_slots_of_their_own() -> None:
    """Outputs and position are one transaction; spread=stream has none over two tags."""
    place = StorePlace("redis://localhost:1/0", pipeline="p", spread="stream")
    with pytest.raises(ConfigurationError, match="use spread='pipeline'"):
        append_by_identity(place, "out", ORIGIN, Outputs(1, 2, [1], [b""]))


def test_the_sinks_position_holds_up_no_trimming_of_a_real_stream(any_streams: Streams) -> None:
    """Origin and output stream lie in the same store; neither has a registered reader after a write."""
    any_streams.create("out", "orders")
    any_streams.fill("orders", 5)
    write(any_streams, 1, 6)
    assert any_streams.info("out").readers == any_streams.info("orders").readers == ()
    outcome = any_streams.store.get("out<-orders/0", "spark@77")
    assert isinstance(outcome, Position)
