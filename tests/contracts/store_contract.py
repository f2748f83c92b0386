"""What every store must do: one suite for all, run by a subclass that gives ``bench``.

A bench is one store as the suite needs it: its two interfaces, a way to let the wall clock of its retention go
on, and a way to delete a stream so that it can be made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Protocol

import pytest

from surepipe.actors.consuming.committed import Parted
from surepipe.core.store_requests import (
    FORGOTTEN,
    KEEP_ALL,
    STATE_MAX_BYTES,
    Absent,
    Ahead,
    AppendRun,
    Batch,
    Changed,
    ChangeRetention,
    ClaimReader,
    CommitPosition,
    Committed,
    Created,
    CreateStream,
    DescribeStream,
    Diverged,
    Empty,
    Exists,
    Failed,
    FencedOut,
    Full,
    Gap,
    GetPosition,
    Held,
    Hint,
    IdentifyEntry,
    Identity,
    Kept,
    Mismatch,
    NoPosition,
    NoStream,
    OpenProducer,
    Owner,
    Position,
    ProducerInfo,
    ProducerOpened,
    ReaderInfo,
    ReadFrom,
    Reset,
    Retention,
    Store,
    Stored,
    StoreRequest,
    StreamDropped,
    StreamInfo,
    TransactionalStore,
    TrimBefore,
    Trimmed,
    WaitForMore,
    partition_of,
)
from surepipe.errors import MisuseError, TransactionEnded
from surepipe.storage.positions import note_read

MANY = 1_000
PLENTY = 1 << 20


class Bench(Protocol):
    """One store under test."""

    @property
    def streams(self) -> Store: ...

    @property
    def positions(self) -> Store: ...

    def advance(self, micros: int) -> None:
        """Let the store's wall clock go on."""
        ...

    def delete(self, stream: str) -> None:
        """Remove a stream with everything that it remembers."""
        ...


def texts(*names: object) -> list[bytes]:
    """Payloads that read as their names."""
    return [str(name).encode() for name in names]


def make(bench: Bench, stream: str = "s", retention: Retention = KEEP_ALL) -> int:
    """A new stream of one partition; returns its incarnation."""
    created = bench.streams.create(stream, 1, retention)
    assert isinstance(created, Created)
    return created.incarnation


def put(
    bench: Bench, first: int, *names: object, epoch: int = 1, producer: str = "p", stream: str = "s"
) -> object:
    """Append a run; returns the outcome."""
    return bench.streams.append(stream, producer, epoch, first, texts(*names))


def put_each(bench: Bench, *seqs: int) -> None:
    """Append messages one by one, each a page of its own where a store has pages."""
    for seq in seqs:
        assert put(bench, seq, f"m{seq}") == Stored(seq, 1, seq)


def read_all(bench: Bench, stream: str = "s") -> list[tuple[int, str, int, int, bytes]]:
    """All entries from the earliest on, as (index, producer, epoch, seq, payload)."""
    info = bench.streams.info(stream)
    assert isinstance(info, StreamInfo)
    found: list[tuple[int, str, int, int, bytes]] = []
    index = info.earliest
    while isinstance(batch := bench.streams.read(stream, index, MANY, PLENTY), Batch):
        for run in batch.entries:
            found += [
                (run.index + n, run.producer, run.epoch, run.first + n, payload)
                for n, payload in enumerate(run.payloads)
            ]
        index = batch.next
    return found


def read_payloads(bench: Bench, stream: str = "s") -> list[bytes]:
    """The payloads of all entries in index order, after a look at the indexes."""
    entries = read_all(bench, stream)
    assert [entry[0] for entry in entries] == list(
        range(entries[0][0], entries[0][0] + len(entries)) if entries else []
    ), "S-4: no holes"
    return [entry[4] for entry in entries]


def owner_of(bench: Bench, claimant: int, reader: str = "r", stream: str = "s") -> int:
    """Claim a reader; returns the owner's number."""
    owner = bench.positions.claim(stream, reader, claimant)
    assert isinstance(owner, Owner)
    return owner.number


def commit(
    bench: Bench,
    next_index: int,
    *,
    owner: int,
    tag: int = 7,
    previous_tag: int | None = None,
    revision: int = 0,
    state: bytes = b"",
    anchor: Identity | None = None,
    reader: str = "r",
    stream: str = "s",
) -> object:
    """Commit a position; returns the outcome."""
    return bench.positions.commit(
        CommitPosition(
            stream, reader, owner, tag, next_index, anchor, state, previous_tag, revision
        )
    )


class StreamContract:
    """The Store part."""

    @pytest.fixture
    def bench(self) -> Bench:
        raise NotImplementedError("a subclass gives the store")

    def test_a_repeated_append_is_stored_once(self, bench: Bench) -> None:
        """so1, S-5: the outcome of the first append is unknown, so it is asked again."""
        make(bench)
        assert put(bench, 1, "a", "b") == Stored(2, 2, 1)
        assert put(bench, 1, "a", "b") == Stored(2, 0, None)
        assert read_payloads(bench) == texts("a", "b")

    def test_the_new_part_of_an_overlapping_run_is_appended(self, bench: Bench) -> None:
        """so2, S-4, S-5: 3..6 after 1..4 stores two, and the index stays dense."""
        make(bench)
        assert put(bench, 1, 1, 2, 3, 4) == Stored(4, 4, 1)
        assert put(bench, 3, 3, 4, 5, 6) == Stored(6, 2, 5)
        assert read_payloads(bench) == texts(1, 2, 3, 4, 5, 6)
        assert [entry[3] for entry in read_all(bench)] == [1, 2, 3, 4, 5, 6]

    def test_a_run_that_leaves_a_gap_is_not_stored(self, bench: Bench) -> None:
        """so3, S-5: 1 then 3 is a Gap(2); 2 then 3 are fine."""
        make(bench)
        put(bench, 1, 1)
        assert put(bench, 3, 3) == Gap(2)
        assert read_payloads(bench) == texts(1)
        assert put(bench, 2, 2) == Stored(2, 1, 2)
        assert put(bench, 3, 3) == Stored(3, 1, 3)

    def test_a_lower_epoch_is_fenced(self, bench: Bench) -> None:
        """so4, S-5: after epoch 2 neither an append nor an opening of epoch 1 changes anything."""
        make(bench)
        assert put(bench, 1, "new", epoch=2) == Stored(1, 1, 1)
        assert put(bench, 1, "old", epoch=1) == FencedOut(2)
        assert bench.streams.open_producer("s", "p", 1, 1) == FencedOut(2)
        assert read_payloads(bench) == texts("new")

    def test_a_higher_epoch_starts_at_1(self, bench: Bench) -> None:
        """S-5: its first run must be seq 1."""
        make(bench)
        put(bench, 1, "a", "b")
        assert put(bench, 3, "c", epoch=5) == Gap(1)
        assert put(bench, 3, "c", epoch=1) == Stored(3, 1, 3), "the gap did not raise the epoch"
        assert put(bench, 1, "c", epoch=5) == Stored(1, 1, 4)

    def test_epochs_keep_all_their_digits(self, bench: Bench) -> None:
        """R-4, F-1: numbers next to each other just below 2^63 are told apart."""
        make(bench)
        high = 2**63 - 1
        assert put(bench, 1, "a", epoch=high - 1) == Stored(1, 1, 1)
        assert put(bench, 1, "b", epoch=high) == Stored(1, 1, 2)
        assert put(bench, 1, "a", epoch=high - 1) == FencedOut(high)
        assert [entry[2] for entry in read_all(bench)] == [high - 1, high]

    def test_identities_survive_trimming(self, bench: Bench) -> None:
        """so5, S-5: everything is trimmed by force; the repeated append still finds nothing new."""
        make(bench, retention=Retention(force=True))
        put(bench, 1, "a", "b")
        assert bench.streams.trim("s", 3) == Trimmed(3)
        assert put(bench, 1, "a", "b") == Stored(2, 0, None)
        assert put(bench, 3, "c") == Stored(3, 1, 3)
        assert read_payloads(bench) == texts("c")

    def test_producers_of_one_stream_share_its_indexes(self, bench: Bench) -> None:
        """so6, S-4: two producers take turns, the order within each is kept."""
        make(bench)
        for seq in range(1, 6):
            assert put(bench, seq, f"a{seq}", producer="a") == Stored(seq, 1, 2 * seq - 1)
            assert put(bench, seq, f"b{seq}", producer="b") == Stored(seq, 1, 2 * seq)
        entries = read_all(bench)
        assert [entry[0] for entry in entries] == list(range(1, 11))
        for name in ("a", "b"):
            assert [e[3] for e in entries if e[1] == name] == [1, 2, 3, 4, 5]

    def test_read_tells_the_five_answers_apart(self, bench: Bench) -> None:
        """so7, S-7: Batch apart: Empty, Trimmed, Ahead and Reset, each forced."""
        first = make(bench, retention=Retention(force=True))
        assert bench.streams.read("s", 1, MANY, PLENTY, first) == Empty(1)
        put_each(bench, 1, 2, 3)
        assert bench.streams.read("s", 4, MANY, PLENTY, first) == Empty(4)
        assert bench.streams.read("s", 5, MANY, PLENTY, first) == Ahead(4)
        assert bench.streams.trim("s", 3) == Trimmed(3)
        assert bench.streams.read("s", 2, MANY, PLENTY, first) == Trimmed(3)
        assert isinstance(bench.streams.read("s", 3, MANY, PLENTY, first), Batch)
        bench.delete("s")
        second = make(bench)
        assert second != first
        assert bench.streams.read("s", 1, MANY, PLENTY, first) == Reset(second)
        assert bench.streams.read("s", 1, MANY, PLENTY) == Empty(1)

    def test_a_reader_that_names_the_entry_before_is_told_of_another_history(
        self, bench: Bench
    ) -> None:
        """S-7, S-12: two pages of two; each place, the end too, with who wrote there and with others."""
        life = make(bench)
        put(bench, 1, "a", "b")
        put(bench, 1, "c", "d", producer="q", epoch=1 << 62)
        there = [Identity("p", 1, 1), Identity("p", 1, 2)]
        there += [Identity("q", 1 << 62, 1), Identity("q", 1 << 62, 2)]
        for index, anchor in enumerate(there, 2):
            plain = bench.streams.read("s", index, MANY, PLENTY, life)
            assert isinstance(plain, Empty if index == 5 else Batch)
            assert bench.streams.read("s", index, MANY, PLENTY, life, anchor=anchor) == plain
            others = (replace(anchor, producer="x"), replace(anchor, epoch=anchor.epoch - 1))
            for other in (*others, replace(anchor, seq=anchor.seq + 1)):
                told = bench.streams.read("s", index, MANY, PLENTY, life, anchor=other)
                assert told == Diverged(anchor)
        assert bench.streams.read(
            "s", 1, MANY, PLENTY, life, anchor=there[0]
        ) == bench.streams.read("s", 1, MANY, PLENTY, life), "there is none before the first"
        assert bench.streams.read("s", 6, MANY, PLENTY, life, anchor=there[0]) == Ahead(5)
        assert bench.streams.read("s", 2, MANY, PLENTY, life + 1, anchor=there[3]) == Reset(life)

    def test_an_entry_before_that_was_trimmed_is_not_compared(self, bench: Bench) -> None:
        """S-8, S-12: by force nothing is kept for a reader, and it reads on."""
        life = make(bench, retention=Retention(force=True))
        put_each(bench, 1, 2, 3)
        bench.streams.trim("s", 3)
        gone = Identity("another", 1, 1)
        found = bench.streams.read("s", 3, MANY, PLENTY, life, anchor=gone)
        assert self.payloads_of(found) == texts("m3")
        bench.streams.trim("s", 4)
        assert bench.streams.read("s", 4, MANY, PLENTY, life, anchor=gone) == Empty(4)

    def test_a_read_keeps_within_both_bounds(self, bench: Bench) -> None:
        """S-7: so many messages and so many bytes at the most, without a hole, inside pages and across."""
        make(bench)
        put(bench, 1, "aa", "bb", "cc")
        put(bench, 4, "dd", "ee")
        assert self.payloads_of(bench.streams.read("s", 1, 4, PLENTY)) == texts(
            "aa", "bb", "cc", "dd"
        )
        assert self.payloads_of(bench.streams.read("s", 2, MANY, 5)) == texts("bb", "cc")
        assert self.payloads_of(bench.streams.read("s", 3, 2, PLENTY)) == texts("cc", "dd")
        batch = bench.streams.read("s", 2, 3, PLENTY)
        assert isinstance(batch, Batch)
        assert (batch.entries[0].index, batch.entries[0].first) == (2, 2)
        assert (batch.next, batch.end) == (5, 6)

    def test_a_message_above_the_byte_bound_is_still_read(self, bench: Bench) -> None:
        """S-7: one entry at least, or a reader would never get past it."""
        make(bench)
        put(bench, 1, "x" * 100, "y")
        assert self.payloads_of(bench.streams.read("s", 1, MANY, 10)) == texts("x" * 100)

    @staticmethod
    def payloads_of(outcome: object) -> list[bytes]:
        """All payloads of a Batch."""
        assert isinstance(outcome, Batch)
        return [payload for run in outcome.entries for payload in run.payloads]

    def test_empty_payloads_are_entries_too(self, bench: Bench) -> None:
        """S-4: nothing in the payload decides whether there is an entry."""
        make(bench)
        assert put(bench, 1, "", "", "") == Stored(3, 3, 1)
        assert read_payloads(bench) == [b"", b"", b""]

    def test_identify_names_the_writer_of_an_entry(self, bench: Bench) -> None:
        """S-12: the identity of each entry, Trimmed below the earliest, Absent beyond the end."""
        make(bench, retention=Retention(force=True))
        put_each(bench, 1, 2)
        put(bench, 1, "x", "y", producer="q", epoch=9)
        assert bench.streams.identify("s", 2) == Identity("p", 1, 2)
        assert bench.streams.identify("s", 4) == Identity("q", 9, 2)
        assert bench.streams.identify("s", 5) == Absent()
        assert bench.streams.identify("s", 0) == Absent()
        bench.streams.trim("s", 2)
        assert bench.streams.identify("s", 1) == Trimmed(2)

    def test_opening_tells_what_is_stored(self, bench: Bench) -> None:
        """S-6: unknown: base - 1 is believed; known: the last seq; repeated: the same."""
        incarnation = make(bench)
        assert bench.streams.open_producer("s", "p", 4, 11) == ProducerOpened(incarnation, 10, None)
        assert put(bench, 10, "j", "k", epoch=4) == Stored(11, 1, 1)
        assert bench.streams.open_producer("s", "p", 4, 11) == ProducerOpened(incarnation, 11, None)
        assert bench.streams.open_producer("s", "p", 4, 12) == ProducerOpened(incarnation, 11, None)
        assert bench.streams.open_producer("s", "p", 5, 1) == ProducerOpened(incarnation, 0, None)

    def test_opening_tells_what_is_lost(self, bench: Bench) -> None:
        """S-6: a record below base - 1 means that confirmed messages are gone; they are named once."""
        incarnation = make(bench)
        put(bench, 1, 1, 2, 3)
        assert bench.streams.open_producer("s", "p", 1, 7) == ProducerOpened(incarnation, 6, (4, 6))
        assert bench.streams.open_producer("s", "p", 1, 7) == ProducerOpened(incarnation, 6, None)
        assert put(bench, 7, 7) == Stored(7, 1, 4)
        assert bench.streams.open_producer("s", "p", 1, 9) == ProducerOpened(incarnation, 8, (8, 8))

    def test_opening_an_epoch_that_the_stream_never_saw_tells_its_confirmed_messages_lost(
        self, bench: Bench
    ) -> None:
        """S-6: the producer is known by a lower epoch, so base - 1 confirmed messages are missing here."""
        incarnation = make(bench)
        put(bench, 1, 1, 2, 3)
        assert bench.streams.open_producer("s", "p", 2, 3) == ProducerOpened(incarnation, 2, (1, 2))

    def test_create_repeated_gives_the_same_incarnation(self, bench: Bench) -> None:
        """so12, S-2: and another partition count or retention is a Mismatch that changes nothing."""
        created = bench.streams.create("s", 2, KEEP_ALL)
        assert isinstance(created, Created)
        assert bench.streams.create("s", 2, KEEP_ALL) == Exists(created.incarnation)
        assert isinstance(bench.streams.create("s", 3, KEEP_ALL), Mismatch)
        assert isinstance(bench.streams.create("s", 2, Retention(max_bytes=9)), Mismatch)
        assert bench.streams.create("s", 2, KEEP_ALL) == Exists(created.incarnation)

    def test_partitions_are_streams_of_their_own(self, bench: Bench) -> None:
        """S-4: each has its own indexes and its own memory of producers."""
        bench.streams.create("s", 2, KEEP_ALL)
        zero, one = partition_of("s", 0), partition_of("s", 1)
        assert put(bench, 1, "a", stream=zero) == Stored(1, 1, 1)
        assert put(bench, 1, "b", stream=one) == Stored(1, 1, 1)
        assert put(bench, 2, "c", stream=one) == Stored(2, 1, 2)
        assert read_payloads(bench, zero) == texts("a")
        assert read_payloads(bench, one) == texts("b", "c")
        assert isinstance(bench.streams.read(partition_of("s", 2), 1, 1, 1), Failed)

    def test_a_stream_that_does_not_exist_is_a_failure_with_a_reason(self, bench: Bench) -> None:
        """S-1: an outcome, not an exception, from each call."""
        outcomes = [
            bench.streams.open_producer("no", "p", 1, 1),
            put(bench, 1, "a", stream="no"),
            bench.streams.read("no", 1, 1, 1),
            bench.streams.identify("no", 1),
            bench.streams.trim("no", 1),
            bench.streams.wait("no", 1, 0),
            bench.streams.info("no"),
        ]
        for outcome in outcomes:
            assert isinstance(outcome, Failed)
            assert "'no'" in outcome.reason

    def test_trimming_never_passes_a_registered_reader(self, bench: Bench) -> None:
        """S-8: Held names the reader; up to its position all but the anchor may go."""
        tag = make(bench)
        put_each(bench, 1, 2, 3, 4, 5)
        commit(bench, 4, owner=owner_of(bench, 1), tag=tag)
        assert bench.streams.trim("s", 5) == Held("r", 4)
        assert read_payloads(bench) == texts("m1", "m2", "m3", "m4", "m5"), "nothing was trimmed"
        assert bench.streams.trim("s", 4) == Trimmed(3)
        assert bench.streams.trim("s", 4) == Trimmed(3), "a repeat"
        assert read_payloads(bench) == texts("m3", "m4", "m5")

    def test_a_forced_trim_names_the_readers_that_it_passes(self, bench: Bench) -> None:
        """S-8: with retention.force."""
        tag = make(bench, retention=Retention(force=True))
        put_each(bench, 1, 2, 3, 4, 5)
        commit(bench, 4, owner=owner_of(bench, 1), tag=tag)
        commit(bench, 2, owner=owner_of(bench, 1, "slow"), tag=tag, reader="slow")
        assert bench.streams.trim("s", 4) == Trimmed(4, ("slow",))
        assert read_payloads(bench) == texts("m4", "m5")

    def test_a_trim_beyond_the_end_leaves_an_empty_stream(self, bench: Bench) -> None:
        """S-7: the next index stays, so nothing is Ahead and nothing gets an index twice."""
        make(bench)
        put_each(bench, 1, 2)
        assert bench.streams.trim("s", 99) == Trimmed(3)
        assert bench.streams.read("s", 3, MANY, PLENTY) == Empty(3)
        assert put(bench, 3, "c") == Stored(3, 1, 3)

    @pytest.mark.parametrize("bound", [Retention(max_bytes=10), Retention(max_age_us=1_000)])
    def test_nothing_goes_before_the_first_reader_ever_has_come(
        self, bench: Bench, bound: Retention
    ) -> None:
        """S-8: Full says that nobody has read it. A claim alone is no place. From the first commit on it is as
        with any reader."""
        tag = make(bench, retention=bound)
        put_each(bench, 1, 2, 3, 4, 5)
        bench.advance(2_000)
        owner = owner_of(bench, 1)
        outcome = put(bench, 6, "m6")
        assert isinstance(outcome, Full)
        assert (outcome.reader, outcome.next, outcome.lag, outcome.is_unread) == ("", 1, 5, True)
        assert put(bench, 5, "m5") == Stored(5, 0, None), "a repeat needs no room"
        assert read_payloads(bench) == texts("m1", "m2", "m3", "m4", "m5")
        commit(bench, 1, owner=owner, tag=tag)
        outcome = put(bench, 6, "m6")
        assert isinstance(outcome, Full)
        assert (outcome.reader, outcome.is_unread) == ("r", False)
        commit(bench, 6, owner=owner, tag=tag)
        assert put(bench, 6, "m6") == Stored(6, 1, 6)

    def test_a_caller_may_trim_what_nobody_has_read(self, bench: Bench) -> None:
        """S-8: whoever asks for it means it, and there is room again. Nothing goes by itself."""
        make(bench, retention=Retention(max_bytes=10))
        put_each(bench, 1, 2, 3, 4, 5)
        assert bench.streams.trim("s", 4) == Trimmed(4)
        put_each(bench, 6, 7, 8)
        assert isinstance(put(bench, 9, "m9"), Full)
        assert read_payloads(bench) == texts("m4", "m5", "m6", "m7", "m8")

    @pytest.mark.parametrize("forget_first", [False, True])
    def test_a_stream_whose_readers_are_forgotten_makes_room_at_its_bound(
        self, bench: Bench, *, forget_first: bool
    ) -> None:
        """S-8: the oldest entries go, the newest stay; whether the reader had a place before, or only word is left
        that somebody reads whose place is elsewhere."""
        tag = make(bench, retention=Retention(max_bytes=10))
        if forget_first:
            note_read(bench.streams, "s")
            note_read(bench.streams, "s")
        else:
            owner = owner_of(bench, 1)
            commit(bench, 1, owner=owner, tag=tag)
            commit(bench, FORGOTTEN + 1, owner=owner, tag=tag)
        put_each(bench, *range(1, 10))
        kept = read_payloads(bench)
        assert sum(map(len, kept)) <= 10
        assert kept == texts(*(f"m{seq}" for seq in range(10 - len(kept), 10)))
        info = bench.streams.info("s")
        assert isinstance(info, StreamInfo)
        assert info.readers == ()

    def test_by_force_entries_go_before_anybody_has_come(self, bench: Bench) -> None:
        """S-8: it was allowed explicitly."""
        make(bench, retention=Retention(max_bytes=10, force=True))
        put_each(bench, *range(1, 10))
        assert read_payloads(bench) == texts("m5", "m6", "m7", "m8", "m9")

    def test_a_full_stream_refuses_until_its_reader_goes_on(self, bench: Bench) -> None:
        """S-8: Full names the bound and who is behind, and stores nothing; after a commit there is room again."""
        tag = make(bench, retention=Retention(max_bytes=10))
        owner = owner_of(bench, 1)
        commit(bench, 1, owner=owner, tag=tag)
        put_each(bench, 1, 2, 3, 4, 5)
        outcome = put(bench, 6, "m6")
        assert isinstance(outcome, Full)
        assert "10" in outcome.bound
        assert (outcome.reader, outcome.next, outcome.lag) == ("r", 1, 5)
        assert put(bench, 5, "m5") == Stored(5, 0, None), "a repeat needs no room"
        commit(bench, 5, owner=owner, tag=tag)
        assert put(bench, 6, "m6") == Stored(6, 1, 6)
        assert read_payloads(bench)[-2:] == texts("m5", "m6")

    def test_a_reader_that_is_forgotten_holds_back_nothing_until_it_is_registered_again(
        self, bench: Bench
    ) -> None:
        """S-8: its place is kept beyond all indexes, and is taken back under another tag."""
        tag = make(bench, retention=Retention(max_bytes=10))
        owner = owner_of(bench, 1)
        commit(bench, 1, owner=owner, tag=tag)
        put_each(bench, 1, 2, 3, 4, 5)
        assert commit(bench, FORGOTTEN + 1, owner=owner, tag=tag) == Committed()
        info = bench.streams.info("s")
        assert isinstance(info, StreamInfo)
        assert info.readers == ()
        put_each(bench, 6, 7)
        found = bench.positions.get("s", "r")
        assert isinstance(found, Position)
        assert (found.is_forgotten, found.place) == (True, 1)
        back = commit(bench, 6, owner=owner, tag=tag + 1, previous_tag=tag)
        assert back == Committed()
        info = bench.streams.info("s")
        assert isinstance(info, StreamInfo)
        assert info.readers == (ReaderInfo("r", 6, 2),)

    def test_age_bounds_a_stream_too(self, bench: Bench) -> None:
        """S-8: entries older than the bound go; while a reader still needs them, appends are Full."""
        tag = make(bench, retention=Retention(max_age_us=1_000))
        note_read(bench.streams, "s")
        put_each(bench, 1, 2)
        bench.advance(2_000)
        assert put(bench, 3, "m3") == Stored(3, 1, 3)
        assert read_payloads(bench) == texts("m3")
        owner = owner_of(bench, 1)
        commit(bench, 3, owner=owner, tag=tag)
        bench.advance(2_000)
        assert isinstance(put(bench, 4, "m4"), Full)
        commit(bench, 4, owner=owner, tag=tag)
        assert put(bench, 4, "m4") == Stored(4, 1, 4)

    def test_another_retention_holds_from_the_next_append_on(self, bench: Bench) -> None:
        """S-8: a bound comes, and by itself takes nothing away; another one comes, and goes. A repeat says the
        same, and who makes the stream must name the last one."""
        tag, bound = make(bench), Retention(max_bytes=10)
        put_each(bench, *range(1, 10))
        commit(bench, 9, owner=owner_of(bench, 1), tag=tag)
        assert bench.streams.change_retention("s", bound) == Changed()
        assert bench.streams.change_retention("s", bound) == Changed()
        assert len(read_payloads(bench)) == 9
        different = bench.streams.create("s", 1, KEEP_ALL)
        assert isinstance(different, Mismatch)
        assert "change_retention" in different.what
        assert bench.streams.create("s", 1, bound) == Exists(tag)
        put_each(bench, 10)
        assert read_payloads(bench) == texts("m7", "m8", "m9", "m10")
        put_each(bench, 11)
        assert isinstance(put(bench, 12, "m12"), Full)
        assert bench.streams.change_retention("s", Retention(max_age_us=1_000)) == Changed()
        bench.advance(2_000)
        assert isinstance(put(bench, 12, "m12"), Full), (
            "what is unread stays, whatever bound there is"
        )
        assert bench.streams.change_retention("s", Retention(force=True, max_age_us=1_000)) == (
            Changed()
        )
        put_each(bench, 12)
        assert read_payloads(bench) == texts("m12")
        assert bench.streams.change_retention("s", KEEP_ALL) == Changed()
        bench.advance(2_000)
        put_each(bench, *range(13, 23))
        assert len(read_payloads(bench)) == 11

    def test_all_partitions_get_another_retention_together(self, bench: Bench) -> None:
        """S-8: one of them can't have its own, and what is not there gets none."""
        bound = Retention(max_bytes=4, force=True)
        assert isinstance(bench.streams.create("s", 3, KEEP_ALL), Created)
        refused = bench.streams.change_retention(partition_of("s", 1), bound)
        assert isinstance(refused, Failed)
        assert "the name that they were created under" in refused.reason
        assert bench.streams.change_retention("s", bound) == Changed()
        for name in (partition_of("s", number) for number in range(3)):
            for seq in (1, 2, 3):
                assert put(bench, seq, "abc", stream=name) == Stored(seq, 1, seq)
            info = bench.streams.info(name)
            assert isinstance(info, StreamInfo)
            assert (info.earliest, info.next) == (3, 4)
        assert isinstance(bench.streams.create("s", 3, bound), Exists)
        assert isinstance(bench.streams.change_retention("t", bound), NoStream)
        assert isinstance(bench.streams.create("t", 1, KEEP_ALL), Created)

    def test_waiting_returns_when_there_is_more(self, bench: Bench) -> None:
        """S-7: at once when the entry is there, and after the timeout otherwise: a hint either way."""
        make(bench)
        assert bench.streams.wait("s", 1, 1) == Hint()
        put(bench, 1, "a")
        assert bench.streams.wait("s", 1, 3_600_000_000) == Hint()
        assert bench.streams.wait("s", 9, 3_600_000_000) == Hint(), "the stream went back"

    def test_info_describes_the_stream(self, bench: Bench) -> None:
        """The whole record: indexes, bytes, producers, readers with their lag."""
        tag = make(bench)
        put_each(bench, 1, 2, 3)
        put(bench, 1, "xyz", producer="q", epoch=8)
        commit(bench, 2, owner=owner_of(bench, 1), tag=tag)
        owner_of(bench, 1, "unregistered")
        assert bench.streams.info("s") == StreamInfo(
            incarnation=tag,
            earliest=1,
            next=5,
            bytes=9,
            producers=(ProducerInfo("p", 1, 3), ProducerInfo("q", 8, 1)),
            readers=(ReaderInfo("r", 2, 3),),
        )

    def test_each_letter_may_have_a_producer_of_its_own(self, bench: Bench) -> None:
        """D-2: a letter stored twice is one letter, in whatever order letters come."""
        make(bench)
        for letter in ("pipe/1/7", "pipe/1/3", "pipe/1/7", "pipe/1/3"):
            put(bench, 1, letter, producer=letter)
        assert read_payloads(bench) == texts("pipe/1/7", "pipe/1/3")


class IndexContract:
    """The Store part."""

    def test_an_unknown_reader_has_no_position(self, bench: Bench) -> None:
        """S-9: not position 0 and not position 1, also after a claim."""
        assert bench.positions.get("s", "r") == NoPosition()
        owner_of(bench, 1)
        assert bench.positions.get("s", "r") == NoPosition()

    def test_a_position_never_moves_back(self, bench: Bench) -> None:
        """so8, S-9: commit 10, then 5: Kept(10). An equal one is Committed, with its state."""
        owner = owner_of(bench, 1)
        anchor = Identity("p", 1, 9)
        assert commit(bench, 10, owner=owner, anchor=anchor, state=b"x") == Committed()
        stored = Position(7, 10, anchor, b"x", owner)
        assert bench.positions.get("s", "r") == stored
        assert commit(bench, 5, owner=owner) == Kept(stored)
        assert bench.positions.get("s", "r") == stored
        assert commit(bench, 10, owner=owner, anchor=anchor, state=b"y") == Committed()
        assert bench.positions.get("s", "r") == Position(7, 10, anchor, b"y", owner)

    def test_positions_of_partitions_readers_and_streams_are_separate(self, bench: Bench) -> None:
        """so9, S-9: partition 5 committed, partition 4 still has none."""
        four, five = partition_of("s", 4), partition_of("s", 5)
        assert commit(bench, 3, owner=owner_of(bench, 1, stream=five), stream=five) == Committed()
        assert bench.positions.get(four, "r") == NoPosition()
        assert bench.positions.get(five, "other") == NoPosition()
        assert isinstance(bench.positions.get(five, "r"), Position)

    def test_an_old_owner_moves_nothing(self, bench: Bench) -> None:
        """so10, S-9: two claim; the older is Fenced and the position stays."""
        old = owner_of(bench, 1)
        commit(bench, 3, owner=old)
        new = owner_of(bench, 2)
        assert new > old
        before = bench.positions.get("s", "r")
        assert commit(bench, 9, owner=old) == FencedOut(new)
        assert bench.positions.get("s", "r") == before
        assert commit(bench, 4, owner=new) == Committed()

    def test_a_claim_repeated_by_its_claimant_gives_the_same_number(self, bench: Bench) -> None:
        """S-2: after a lost answer, also when it has committed since; a later claimant gets a higher one."""
        first = owner_of(bench, 1)
        assert owner_of(bench, 1) == first
        assert commit(bench, 3, owner=first) == Committed()
        assert owner_of(bench, 1) == first
        second = owner_of(bench, 2)
        assert second > first
        assert owner_of(bench, 2) == second

    @pytest.mark.parametrize(
        ("earlier", "later"), [(1, 2), (9, 10), (2**53, 2**53 + 1), (2**62, 2**63 - 1)]
    )
    def test_a_claim_of_somebody_who_was_replaced_changes_nothing(
        self, bench: Bench, earlier: int, later: int
    ) -> None:
        """S-9: a repeat, or a first claim that comes late: Fenced by the later one, for good, and that
        one goes on."""
        old = owner_of(bench, earlier)
        new = owner_of(bench, later)
        for late in (earlier, earlier, 1):
            assert bench.positions.claim("s", "r", late) == FencedOut(later)
        assert commit(bench, 3, owner=new) == Committed()
        assert commit(bench, 4, owner=old) == FencedOut(new)
        assert bench.positions.claim("s", "r", earlier) == FencedOut(later)
        assert owner_of(bench, later) == new
        assert owner_of(bench, 1, reader="another") == 1, "readers know nothing of each other"

    def test_another_tag_needs_the_stored_one(self, bench: Bench) -> None:
        """S-9: taken only when previous_tag names the stored tag; then a lower next is fine."""
        owner = owner_of(bench, 1)
        commit(bench, 10, owner=owner, tag=1)
        stored = bench.positions.get("s", "r")
        assert isinstance(stored, Position)
        assert commit(bench, 11, owner=owner, tag=2) == Kept(stored)
        assert commit(bench, 1, owner=owner, tag=2, previous_tag=3) == Kept(stored)
        assert commit(bench, 1, owner=owner, tag=2, previous_tag=1) == Committed()
        assert commit(bench, 1, owner=owner, tag=2, previous_tag=1) == Committed(), "a repeat"
        assert bench.positions.get("s", "r") == Position(2, 1, None, b"", owner)

    def test_a_commit_that_comes_late_takes_no_newer_state_back(self, bench: Bench) -> None:
        """S-2, S-9: number 2 was given up, 3 is stored, then 2 is executed after all: Kept. A repeat is fine."""
        owner = owner_of(bench, 1)
        assert commit(bench, 10, owner=owner, revision=1, state=b"a") == Committed()
        assert commit(bench, 10, owner=owner, revision=3, state=b"c") == Committed()
        stored = Position(7, 10, None, b"c", owner, 3)
        assert bench.positions.get("s", "r") == stored
        assert commit(bench, 10, owner=owner, revision=2, state=b"b") == Kept(stored)
        assert bench.positions.get("s", "r") == stored
        assert commit(bench, 10, owner=owner, revision=3, state=b"c") == Committed()
        assert commit(bench, 11, owner=owner, revision=4, state=b"d") == Committed()

    def test_each_owner_counts_its_revisions_anew(self, bench: Bench) -> None:
        """S-9: a new owner begins at 1, whatever its predecessor came to; another tag does not care."""
        old = owner_of(bench, 1)
        commit(bench, 10, owner=old, revision=900, state=b"old")
        new = owner_of(bench, 2)
        assert commit(bench, 10, owner=new, revision=1, state=b"new") == Committed()
        assert bench.positions.get("s", "r") == Position(7, 10, None, b"new", new, 1)
        assert commit(bench, 1, owner=new, tag=8, previous_tag=7) == Committed()
        assert bench.positions.get("s", "r") == Position(8, 1, None, b"", new, 0)

    def test_a_state_above_its_bound_fails(self, bench: Bench) -> None:
        """S-10: exactly the bound is stored, one byte more is refused and changes nothing."""
        owner = owner_of(bench, 1)
        assert commit(bench, 1, owner=owner, state=b"x" * STATE_MAX_BYTES) == Committed()
        stored = bench.positions.get("s", "r")
        too_long = commit(bench, 2, owner=owner, state=b"x" * (STATE_MAX_BYTES + 1))
        assert isinstance(too_long, Failed)
        assert bench.positions.get("s", "r") == stored

    def test_tags_keep_all_their_digits(self, bench: Bench) -> None:
        """R-4: incarnations are 63-bit numbers."""
        owner = owner_of(bench, 1)
        commit(bench, 5, owner=owner, tag=2**63 - 1)
        assert isinstance(commit(bench, 6, owner=owner, tag=2**63 - 2), Kept)
        position = bench.positions.get("s", "r")
        assert isinstance(position, Position)
        assert position.tag == 2**63 - 1


class TransactionContract:
    """For stores that have transactions."""

    def begin(self, bench: Bench) -> TransactionalStore:
        """The store as one that has transactions."""
        assert isinstance(bench.streams, TransactionalStore)
        return bench.streams

    def test_a_transaction_does_all_of_its_writes(self, bench: Bench) -> None:
        """S-11: an append to one stream and the position on another."""
        make(bench)
        owner = owner_of(bench, 1, stream="in")
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a", "b")))
            transaction.commit(CommitPosition("in", "r", owner, 7, 4))
            assert read_payloads(bench) == [], "nothing before the end"
        assert transaction.done
        assert transaction.outcomes == (Stored(2, 2, 1), Committed())
        assert read_payloads(bench) == texts("a", "b")
        assert isinstance(bench.positions.get("in", "r"), Position)

    @pytest.mark.parametrize("refused", ["fenced", "gap"])
    def test_a_transaction_with_a_refused_write_does_nothing(
        self, bench: Bench, refused: str
    ) -> None:
        """S-11: a fenced commit undoes the append before it, a gap undoes the commit before it."""
        make(bench)
        old = owner_of(bench, 1, stream="in")
        new = owner_of(bench, 2, stream="in")
        owner, first = (old, 1) if refused == "fenced" else (new, 2)
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "q", 1, 1, texts("before")))
            transaction.commit(CommitPosition("in", "r", owner, 7, 4))
            transaction.append(AppendRun("s", "p", 1, first, texts("x")))
        assert not transaction.done
        refusal: object = FencedOut(new) if refused == "fenced" else Gap(1)
        assert refusal in transaction.outcomes
        assert read_payloads(bench) == []
        assert bench.positions.get("in", "r") == NoPosition()
        assert put(bench, 1, "x", producer="q") == Stored(1, 1, 1)

    def test_a_transaction_that_comes_late_does_nothing(self, bench: Bench) -> None:
        """S-9, S-11: its position is older than what is stored, so its append is not done either."""
        make(bench)
        owner = owner_of(bench, 1, stream="in")
        commit(bench, 4, owner=owner, revision=2, state=b"newer", stream="in")
        with self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            transaction.commit(CommitPosition("in", "r", owner, 7, 4, None, b"older", None, 1))
        assert not transaction.done
        assert Kept(Position(7, 4, None, b"newer", owner, 2)) in transaction.outcomes
        assert read_payloads(bench) == []

    def test_an_exception_in_the_block_does_nothing(self, bench: Bench) -> None:
        """S-11: and goes on to the caller."""
        make(bench)
        store = self.begin(bench)

        def fail_after_an_append() -> None:
            with store.transaction() as transaction:
                transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_after_an_append()
        assert read_payloads(bench) == []

    def test_a_transaction_may_be_repeated(self, bench: Bench) -> None:
        """S-2: after an unknown outcome; it is done once."""
        make(bench)
        owner = owner_of(bench, 1, stream="in")
        for _ in range(2):
            with self.begin(bench).transaction() as transaction:
                transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
                transaction.commit(CommitPosition("in", "r", owner, 7, 2))
            assert transaction.done
        assert read_payloads(bench) == texts("a")

    @pytest.mark.parametrize("fails", [False, True], ids=["done", "undone"])
    def test_a_transaction_that_has_ended_takes_nothing(self, bench: Bench, *, fails: bool) -> None:
        """Whoever has kept it is told; nothing is dropped without a word."""
        make(bench)
        with suppress(ZeroDivisionError), self.begin(bench).transaction() as transaction:
            transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
            if fails:
                raise ZeroDivisionError
        adds: list[Callable[[], None]] = [
            lambda: transaction.append(AppendRun("s", "p", 1, 2, texts("late"))),
            lambda: transaction.commit(CommitPosition("in", "r", 1, 7, 4)),
            lambda: transaction.decided_by(AppendRun("s", "q", 1, 1, texts("late"))),
            lambda: transaction.put("t", {b"k": b"v"}),
            lambda: transaction.drop("t", [b"k"]),
            lambda: transaction.raise_mark("m"),
        ]
        for late in adds:
            with pytest.raises(MisuseError):
                late()
        assert read_payloads(bench) == ([] if fails else texts("a"))

    def test_a_part_that_has_ended_takes_nothing_from_what_was_begun_in_it(
        self, bench: Bench
    ) -> None:
        """Another message has the transaction then: what goes on behind the end of its own is told so."""
        make(bench)
        with self.begin(bench).transaction() as transaction:
            if not isinstance(transaction, Parted):
                return  # one that takes nothing back is for one message
            with transaction.part():
                transaction.append(AppendRun("s", "p", 1, 1, texts("a")))
                begun_there = copy_context()
            with transaction.part():
                late = AppendRun("s", "p", 1, 2, texts("late"))
                with pytest.raises(TransactionEnded, match="TaskGroup"):
                    begun_there.run(transaction.append, late)
                transaction.append(AppendRun("s", "p", 1, 2, texts("b")))
            transaction.append(AppendRun("s", "p", 1, 3, texts("c")))
        assert read_payloads(bench) == texts("a", "b", "c")


class StoreContract(StreamContract, IndexContract, TransactionContract):
    """Everything, and what hosts do: execute requests."""

    def test_each_kind_of_request_may_be_asked_by_itself(self, bench: Bench) -> None:
        """Every request gives what its verb gives; the host needs no other door."""
        created = bench.streams.create("s", 1, KEEP_ALL)
        assert isinstance(created, Created)
        incarnation = created.incarnation
        requests: Sequence[tuple[StoreRequest, object]] = [
            (CreateStream("s", 1, KEEP_ALL), Exists(incarnation)),
            (OpenProducer("s", "p", 1, 1), ProducerOpened(incarnation, 0, None)),
            (AppendRun("s", "p", 1, 1, texts("a")), Stored(1, 1, 1)),
            (ReadFrom("s", 2, 9, 9, incarnation), Empty(2)),
            (ReadFrom("s", 2, 9, 9, None, Identity("q", 1, 1)), Diverged(Identity("p", 1, 1))),
            (IdentifyEntry("s", 1), Identity("p", 1, 1)),
            (WaitForMore("s", 1, 9), Hint()),
            (ClaimReader("s", "r", 5), Owner(1)),
            (CommitPosition("s", "r", 1, incarnation, 1), Committed()),
            (GetPosition("s", "r"), Position(incarnation, 1, None, b"", 1)),
            (TrimBefore("s", 2), Held("r", 1)),
            (ChangeRetention("s", KEEP_ALL), Changed()),
        ]
        for request, expected in requests:
            assert bench.streams.ask(request) == expected
        info = bench.streams.ask(DescribeStream("s"))
        assert info == bench.streams.info("s")


class StrangerBench(Bench, Protocol):
    """A store that others can reach, beside surepipe."""

    def remove(self, stream: str, *indexes: int) -> None:
        """Take out the pages that begin at these indexes, as a stranger does: with what the server, or the file,
        has for that."""
        ...


class StrangerContract:
    """For stores whose entries can be removed by somebody else: nothing of that goes unnoticed."""

    @pytest.mark.parametrize(
        ("gone", "left", "holes"),
        [
            ((1, 2), ["m3", "m4", "m5"], [(1, 3)]),
            ((3,), ["m1", "m2", "m4", "m5"], [(3, 4)]),
            ((4, 5), ["m1", "m2", "m3"], [(4, 6)]),
            ((1, 2, 3, 4, 5), [], [(1, 6)]),
        ],
        ids=["front", "middle", "end", "all"],
    )
    def test_a_reader_is_told_exactly_what_somebody_else_removed(
        self,
        bench: StrangerBench,
        gone: tuple[int, ...],
        left: list[str],
        holes: list[tuple[int, int]],
    ) -> None:
        """S-4, S-7: reading from 1 on gives what is left, and for each hole Trimmed with where it ends; so does
        the identity of an entry in it."""
        make(bench)
        put_each(bench, 1, 2, 3, 4, 5)
        bench.remove("s", *gone)
        found: list[bytes] = []
        passed: list[tuple[int, int]] = []
        index = 1
        while not isinstance(outcome := bench.streams.read("s", index, MANY, PLENTY), Empty):
            if isinstance(outcome, Trimmed):
                passed.append((index, outcome.earliest))
                index = outcome.earliest
            else:
                assert isinstance(outcome, Batch)
                found += [payload for run in outcome.entries for payload in run.payloads]
                index = outcome.next
        assert (found, passed) == (texts(*left), holes)
        assert isinstance(bench.streams.identify("s", gone[0]), Trimmed)

    @pytest.mark.parametrize(
        ("gone", "told"),
        [((1, 2), (1, 2)), ((4, 5), (4, 5)), ((1, 2, 3, 4, 5), (1, 5))],
        ids=["front", "end", "all"],
    )
    def test_whoever_writes_next_is_told_once_what_somebody_else_removed(
        self, bench: StrangerBench, gone: tuple[int, ...], told: tuple[int, int]
    ) -> None:
        """S-4: the append is stored under the next index and names the range; the one after it does not."""
        make(bench)
        put_each(bench, 1, 2, 3, 4, 5)
        bench.remove("s", *gone)
        assert put(bench, 6, "m6") == Stored(6, 1, 6, told)
        assert put(bench, 7, "m7") == Stored(7, 1, 7)
        assert bench.streams.identify("s", 6) == Identity("p", 1, 6)

    def test_a_writer_whose_answer_was_lost_is_told_again_what_somebody_else_removed(
        self, bench: StrangerBench
    ) -> None:
        """S-4, S-5: the repeat of the run that was told names the range again, and so does an opening in its
        epoch.

        Told once, the range was told to nobody when that one answer was lost. Nobody else hears of it: neither who
        writes what follows, nor another producer, nor a later epoch.
        """
        make(bench)
        put_each(bench, 1, 2, 3, 4, 5)
        bench.remove("s", 1, 2)
        assert put(bench, 6, "m6", "m7") == Stored(7, 2, 6, (1, 2))
        assert put(bench, 8, "m8") == Stored(8, 1, 8)
        for _ in range(2):
            assert put(bench, 6, "m6", "m7") == Stored(8, 0, None, (1, 2))
            assert put(bench, 8, "m8") == Stored(8, 0, None)
            opened = bench.streams.open_producer("s", "p", 1, 1)
            assert isinstance(opened, ProducerOpened)
            assert (opened.last, opened.removed) == (8, (1, 2))
        for producer, epoch in (("q", 1), ("p", 2)):
            opened = bench.streams.open_producer("s", producer, epoch, 1)
            assert isinstance(opened, ProducerOpened)
            assert (opened.last, opened.removed) == (0, None)

    def test_what_was_told_is_forgotten_with_its_stream(self, bench: StrangerBench) -> None:
        """S-13: of a stream that was dropped and made again nothing was ever removed."""
        make(bench)
        put_each(bench, 1, 2, 3)
        bench.remove("s", 1)
        assert put(bench, 4, "m4") == Stored(4, 1, 4, (1, 1))
        assert bench.streams.drop_stream("s", 1) == StreamDropped()
        make(bench)
        put_each(bench, 1, 2, 3, 4)
        assert put(bench, 4, "m4") == Stored(4, 0, None)
        opened = bench.streams.open_producer("s", "p", 1, 1)
        assert isinstance(opened, ProducerOpened)
        assert opened.removed is None

    def test_what_a_store_trims_itself_was_not_removed_by_somebody_else(
        self, bench: StrangerBench
    ) -> None:
        """S-8: by force, up to the end, and by reaching the bound."""
        make(bench, retention=Retention(max_bytes=4, force=True))
        put_each(bench, 1, 2, 3)
        assert bench.streams.trim("s", 3) == Trimmed(3)
        put_each(bench, 4, 5)
        bench.streams.trim("s", 6)
        put_each(bench, 6)
