"""What every store must do with tables, marks, dropped streams, and several requests together.

A part of the suite in ``store_contract``, run by the same subclasses.
"""

from __future__ import annotations

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    KEY_MAX_BYTES,
    KEYS_MAX,
    VALUE_MAX_BYTES,
    Absent,
    AllDone,
    AppendRun,
    Changed,
    CommitPosition,
    Committed,
    Created,
    DropStream,
    DropValues,
    Failed,
    FencedOut,
    FoundValues,
    Gap,
    JoinedRequest,
    Kept,
    LoadTable,
    Marked,
    NoneDone,
    NoPosition,
    PutValues,
    RaiseMark,
    ReadKeys,
    Store,
    Stored,
    StoreRequest,
    StreamDropped,
    StreamInfo,
    TableRows,
    Together,
    TogetherOutcome,
    TransactionalStore,
    Untouched,
    WaitForMark,
    partition_of,
)
from surepipe.errors import MisuseError
from tests.contracts.store_contract import Bench, make, owner_of, put, read_payloads, texts

AN_HOUR_US = 3_600_000_000


def keyed(bench: Bench) -> Store:
    """The store as one that has tables."""
    assert isinstance(bench.streams, Store)
    return bench.streams


def run_of(first: int, *names: object, epoch: int = 1, stream: str = "s") -> AppendRun:
    """An append of the party that decides."""
    return AppendRun(stream, "party", epoch, first, texts(*names))


def decided(bench: Bench, first: int, *parts: JoinedRequest, epoch: int = 1) -> TogetherOutcome:
    """Block ``first`` of a log, and what goes with it."""
    return keyed(bench).together(
        run_of(first, f"block {first}", epoch=epoch), *parts, is_decided=True
    )


def values(bench: Bench, *keys: bytes, table: str = "t") -> list[bytes | None]:
    """What the keys have."""
    found = keyed(bench).read_keys(table, keys)
    assert isinstance(found, FoundValues)
    return list(found.values)


def loaded(bench: Bench, table: str = "t", limit: int = 1000) -> dict[bytes, bytes]:
    """The whole table, piece by piece."""
    found: dict[bytes, bytes] = {}
    after: bytes | None = b""
    while after is not None:
        rows = keyed(bench).load_table(table, after, limit)
        assert isinstance(rows, TableRows)
        found.update(rows.pairs)
        after = rows.after
    return found


def mark(bench: Bench, name: str = "m") -> int:
    """Where a mark stands."""
    found = keyed(bench).wait_for_mark(name, 0, 0)
    assert isinstance(found, Marked)
    return found.number


class KeyedContract:
    """Tables, marks, several requests together, and streams that go."""

    # Tables.

    def test_values_are_put_read_replaced_and_dropped(self, bench: Bench) -> None:
        """S-14: any bytes, under any bytes; a key that isn't there is None, wherever it is asked for."""
        make(bench)
        odd, long = b"\x00\xff{}\n", bytes(range(256)) * 4
        decided(bench, 1, PutValues("t", {odd: b"", long: b"\x00", b"a": b"1"}))
        assert values(bench, b"a", b"none", long, odd, b"a") == [b"1", None, b"\x00", b"", b"1"]
        decided(bench, 2, PutValues("t", {b"a": b"2"}), DropValues("t", [odd, b"none"]))
        assert values(bench, b"a", odd, long) == [b"2", None, b"\x00"]
        assert values(bench) == []

    def test_tables_know_nothing_of_each_other(self, bench: Bench) -> None:
        """S-14: one that was never written to is empty, and looking makes none."""
        make(bench)
        decided(bench, 1, PutValues("t", {b"a": b"1"}), PutValues("u", {b"a": b"2"}))
        assert (values(bench, b"a"), values(bench, b"a", table="u")) == ([b"1"], [b"2"])
        decided(bench, 2, DropValues("u", [b"a"]))
        assert (loaded(bench), loaded(bench, "u"), loaded(bench, "never")) == ({b"a": b"1"}, {}, {})

    @pytest.mark.parametrize("limit", [1, 7, 1000, 5000])
    def test_a_table_is_loaded_whole_in_pieces(self, bench: Bench, limit: int) -> None:
        """S-14: 1,500 rows, however many are asked for at once; then again without half of them."""
        make(bench)
        rows = {f"key {number}".encode(): str(number).encode() * 20 for number in range(1500)}
        decided(bench, 1, PutValues("t", rows))
        assert loaded(bench, limit=limit) == rows
        gone = list(rows)[::2]
        decided(bench, 2, DropValues("t", gone))
        assert loaded(bench, limit=limit) == {k: v for k, v in rows.items() if k not in set(gone)}

    def test_what_stays_comes_although_others_are_written_meanwhile(self, bench: Bench) -> None:
        """S-14: between two pieces rows come and go; those that were there all the time come."""
        make(bench)
        stay = {b"stay %d" % number: b"x" * 100 for number in range(300)}
        decided(bench, 1, PutValues("t", stay))
        found: dict[bytes, bytes] = {}
        after: bytes | None = b""
        block = 2
        while after is not None:
            rows = keyed(bench).load_table("t", after, 25)
            assert isinstance(rows, TableRows)
            found.update(rows.pairs)
            after = rows.after
            pairs = {b"come %d" % number: b"" for number in range(block * 100, block * 100 + 100)}
            decided(bench, block, PutValues("t", pairs), DropValues("t", list(pairs)[:50]))
            block += 1
        assert stay.items() <= found.items()

    def test_sizes_have_limits_and_at_them_all_is_well(self, bench: Bench) -> None:
        """S-14: the longest key and value, the most keys; one more of each has Failed and changes nothing."""
        make(bench)
        key, value = b"k" * KEY_MAX_BYTES, b"v" * VALUE_MAX_BYTES
        assert isinstance(decided(bench, 1, PutValues("t", {key: value})), AllDone)
        assert values(bench, key) == [value]
        many = {b"%d" % number: b"" for number in range(KEYS_MAX)}
        assert isinstance(decided(bench, 2, PutValues("many", many)), AllDone)
        assert values(bench, *many, table="many") == [b""] * KEYS_MAX
        assert isinstance(decided(bench, 3, DropValues("many", list(many)[1:])), AllDone)
        assert loaded(bench, "many") == {b"0": b""}
        too_much: list[JoinedRequest] = [
            PutValues("t", {key + b"k": b""}),
            PutValues("t", {b"": b""}),
            PutValues("t", {b"a": value + b"v"}),
            PutValues("t", {"text": b""}),  # type: ignore[dict-item] # pyright: ignore[reportArgumentType] - as somebody may call it
            PutValues("t", {b"a": 5}),  # type: ignore[dict-item] # pyright: ignore[reportArgumentType] - as above
            PutValues("t", {**many, b"one more": b""}),
            DropValues("t", [b""]),
        ]
        for part in too_much:
            assert isinstance(decided(bench, 4, PutValues("t", {b"b": b""}), part), Failed)
        assert isinstance(keyed(bench).read_keys("t", [key + b"k"]), Failed)
        assert isinstance(keyed(bench).read_keys("t", [b"x"] * (KEYS_MAX + 1)), Failed)
        assert isinstance(keyed(bench).load_table("t", b"", 0), Failed)
        assert values(bench, b"a", b"b") == [None, None]
        assert len(read_payloads(bench)) == 3

    # Several requests together.

    def test_the_append_decides(self, bench: Bench) -> None:
        """S-16: new: everything is done, and the index of the row is told."""
        make(bench)
        owner = owner_of(bench, 1, stream="in")
        parts = (
            PutValues("t", {b"a": b"1"}),
            AppendRun("q", "party", 1, 1, texts("sent")),
            CommitPosition("in", "r", owner, 7, 2),
            RaiseMark("m"),
        )
        make(bench, "q")
        done = decided(bench, 1, *parts)
        assert done == AllDone(
            (Stored(1, 1, 1), Changed(), Stored(1, 1, 1), Committed(), Changed())
        )
        assert (values(bench, b"a"), mark(bench)) == ([b"1"], 1)
        assert read_payloads(bench, "q") == texts("sent")

    def test_a_repeat_touches_nothing_and_is_done(self, bench: Bench) -> None:
        """S-16: the answer was lost, and meanwhile block 2 has written the same key: the repeat of block 1 leaves
        that alone."""
        make(bench)
        first = PutValues("t", {b"a": b"1"}), RaiseMark("m")
        decided(bench, 1, *first)
        decided(bench, 2, PutValues("t", {b"a": b"2"}))
        repeated = decided(bench, 1, *first)
        assert repeated == AllDone((Stored(2, 0, None), Untouched(), Untouched()))
        assert (values(bench, b"a"), mark(bench)) == ([b"2"], 1)

    def test_a_refused_decision_does_nothing(self, bench: Bench) -> None:
        """S-16: a gap, and a former owner: whatever goes with it isn't looked at."""
        make(bench)
        parts = PutValues("t", {b"a": b"1"}), AppendRun("none", "p", 1, 1, texts("x"))
        untouched = (Untouched(), Untouched())
        assert decided(bench, 2, *parts) == NoneDone((Gap(1), *untouched))
        decided(bench, 1, epoch=5)
        assert decided(bench, 1, *parts, epoch=4) == NoneDone((FencedOut(5), *untouched))
        assert values(bench, b"a") == [None]

    def test_one_refusal_undoes_the_decision_too(self, bench: Bench) -> None:
        """S-16: a commit by a former owner, a stream that isn't there: nothing is done, and it can come again."""
        make(bench)
        old = owner_of(bench, 1, stream="in")
        new = owner_of(bench, 2, stream="in")
        value, raised = PutValues("t", {b"a": b"1"}), RaiseMark("m")
        fenced = decided(bench, 1, value, raised, CommitPosition("in", "r", old, 7, 2))
        assert isinstance(fenced, NoneDone)
        assert fenced.outcomes[3] == FencedOut(new)
        missing = decided(bench, 1, value, raised, AppendRun("none", "p", 1, 1, texts("x")))
        assert isinstance(missing, NoneDone)
        assert isinstance(missing.outcomes[3], Failed)
        assert (values(bench, b"a"), mark(bench), read_payloads(bench)) == ([None], 0, [])
        assert isinstance(decided(bench, 1, value, raised), AllDone)
        assert (values(bench, b"a"), mark(bench)) == ([b"1"], 1)

    @pytest.mark.parametrize("stored", [1, 2])
    def test_a_run_beside_a_new_decision_is_new_as_a_whole(self, bench: Bench, stored: int) -> None:
        """S-16: another process wrote under the identity of the run, one message or both: nothing is done."""
        make(bench)
        make(bench, "q")
        for number in range(1, stored + 1):
            put(bench, number, f"other {number}", producer="party", stream="q")
        run = AppendRun("q", "party", 1, 1, texts("own 1", "own 2"))
        outcome = decided(bench, 1, PutValues("t", {b"a": b"1"}), run)
        assert isinstance(outcome, NoneDone)
        assert isinstance(failed := outcome.outcomes[2], Failed)
        assert "'q'" in failed.reason
        assert (values(bench, b"a"), read_payloads(bench)) == ([None], [])
        assert len(read_payloads(bench, "q")) == stored

    def test_a_decision_that_is_stored_in_part_was_another_ones(self, bench: Bench) -> None:
        """S-16: message 1 was decided alone; a run of 1 and 2 can't say what went with it."""
        make(bench)
        decided(bench, 1)
        both = keyed(bench).together(
            run_of(1, "block 1", "block 2"), PutValues("t", {b"a": b"1"}), is_decided=True
        )
        assert isinstance(both, NoneDone)
        assert isinstance(both.outcomes[0], Failed)
        assert both.outcomes[1] == Untouched()
        assert (values(bench, b"a"), read_payloads(bench)) == ([None], texts("block 1"))

    def test_a_commit_guards_values_as_well(self, bench: Bench) -> None:
        """S-15: with a position of its owner; a late one is Kept, and so its values aren't written."""
        make(bench)
        owner = owner_of(bench, 1, stream="in")
        older, newer = (
            (
                PutValues("t", {b"a": b"%d" % revision}),
                RaiseMark("m"),
                CommitPosition("in", "r", owner, 7, 1, revision=revision),
            )
            for revision in (1, 2)
        )
        assert isinstance(keyed(bench).together(*newer), AllDone)
        late = keyed(bench).together(*older)
        assert isinstance(late, NoneDone)
        assert late.outcomes[:2] == (Changed(), Changed())
        assert isinstance(late.outcomes[2], Kept)
        assert (values(bench, b"a"), mark(bench)) == ([b"2"], 1)
        assert isinstance(keyed(bench).together(*newer), AllDone), "its own repeat"

    def test_values_and_marks_alone_are_refused(self, bench: Bench) -> None:
        """S-15: nothing would tell a late repeat from a newer write, also not beside an append that doesn't
        decide."""
        make(bench)
        append = AppendRun("s", "p", 1, 1, texts("x"))
        for part in (PutValues("t", {b"a": b""}), DropValues("t", [b"a"]), RaiseMark("m")):
            assert isinstance(keyed(bench).together(part), Failed)
            assert isinstance(keyed(bench).together(append, part), Failed)
            assert isinstance(keyed(bench).together(part, append, is_decided=True), Failed)
        empty = AppendRun("s", "p", 1, 1, ())
        assert isinstance(keyed(bench).together(empty, is_decided=True), Failed)
        assert isinstance(keyed(bench).together(is_decided=True), Failed)
        assert (read_payloads(bench), mark(bench), loaded(bench)) == ([], 0, {})

    def test_without_a_decision_runs_go_on_where_they_are(self, bench: Bench) -> None:
        """S-11, S-5: what is stored of a run is skipped, as in a transaction."""
        make(bench)
        put(bench, 1, "a")
        both = keyed(bench).together(AppendRun("s", "p", 1, 1, texts("a", "b")))
        assert both == AllDone((Stored(2, 1, 2),))
        assert keyed(bench).together() == AllDone(())

    def test_later_requests_see_what_earlier_ones_did(self, bench: Bench) -> None:
        """S-15: in their order: a key that is put, dropped and put again; a run behind a run."""
        make(bench)
        outcome = decided(
            bench,
            1,
            PutValues("t", {b"a": b"1", b"b": b"1"}),
            DropValues("t", [b"a", b"b"]),
            PutValues("t", {b"a": b"2"}),
            run_of(2, "block 2"),
            RaiseMark("m"),
            RaiseMark("m"),
        )
        assert isinstance(outcome, AllDone)
        assert (values(bench, b"a", b"b"), mark(bench)) == ([b"2", None], 2)
        assert read_payloads(bench) == texts("block 1", "block 2")

    def test_epochs_decide_by_all_their_digits(self, bench: Bench) -> None:
        """S-16, R-4: numbers of lives beyond 2^53."""
        make(bench)
        high = 2**63 - 1
        decided(bench, 1, epoch=high)
        assert decided(bench, 1, epoch=high - 1) == NoneDone((FencedOut(high),))

    def test_a_transaction_decides_too(self, bench: Bench) -> None:
        """S-16: with ``decided_by`` first; the block of a repeat is done, and writes nothing."""
        make(bench)
        store = bench.streams
        assert isinstance(store, TransactionalStore)
        for value, expected in ((b"1", Changed()), (b"2", Untouched())):
            with store.transaction() as transaction:
                transaction.decided_by(run_of(1, "block"))
                transaction.put("t", {b"a": value})
                transaction.drop("t", [b"b"])
                transaction.raise_mark("m")
            assert transaction.done
            assert transaction.outcomes[1:] == (expected,) * 3
        assert (values(bench, b"a"), mark(bench)) == ([b"1"], 1)
        with store.transaction() as transaction:
            transaction.append(run_of(2, "block"))
            with pytest.raises(MisuseError, match="first"):
                transaction.decided_by(run_of(3, "block"))
        with store.transaction() as transaction:
            transaction.put("t", {b"a": b"alone"})
        assert not transaction.done
        assert values(bench, b"a") == [b"1"]

    # Marks.

    def test_a_mark_stands_at_0_and_goes_up(self, bench: Bench) -> None:
        """S-17: each by itself; a wait for another number returns at once."""
        make(bench)
        assert keyed(bench).wait_for_mark("m", 5, AN_HOUR_US) == Marked(0)
        for block in (1, 2, 3):
            decided(bench, block, RaiseMark("m"))
        assert keyed(bench).wait_for_mark("m", 2, AN_HOUR_US) == Marked(3)
        assert keyed(bench).wait_for_mark("m", 3, 0) == Marked(3)
        assert keyed(bench).wait_for_mark("other", 0, 0) == Marked(0)

    def test_a_mark_that_stands_is_told_after_the_timeout(self, bench: Bench) -> None:
        """S-17: not raised at all, and raised before."""
        make(bench)
        assert keyed(bench).wait_for_mark("m", 0, 2_000) == Marked(0)
        decided(bench, 1, RaiseMark("m"))
        assert keyed(bench).wait_for_mark("m", 1, 2_000) == Marked(1)

    # Streams that go.

    def test_a_dropped_stream_is_gone_with_its_readers(self, bench: Bench) -> None:
        """S-18: entries, producers, positions; what is late for it makes nothing anew, a repeat says Absent."""
        first = make(bench)
        put(bench, 1, "a", epoch=3)
        owner = owner_of(bench, 5)
        bench.positions.commit(CommitPosition("s", "r", owner, first, 1))
        make(bench, "ss")
        owner_of(bench, 5, stream="ss")
        assert keyed(bench).drop_stream("s", 3) == StreamDropped()
        assert isinstance(put(bench, 2, "b", epoch=3), Failed)
        assert isinstance(bench.streams.open_producer("s", "p", 3, 1), Failed)
        assert isinstance(decided(bench, 1), Failed | NoneDone)
        assert isinstance(bench.streams.info("s"), Failed)
        assert bench.positions.get("s", "r") == NoPosition()
        assert keyed(bench).drop_stream("s", 3) == Absent()
        assert keyed(bench).drop_stream("never", 1) == Absent()
        assert isinstance(bench.streams.info("ss"), StreamInfo), "another one stays"
        again = bench.streams.create("s", 1, KEEP_ALL)
        assert isinstance(again, Created)
        assert again.incarnation != first
        assert read_payloads(bench) == []
        assert put(bench, 1, "a") == Stored(1, 1, 1)

    def test_a_former_life_drops_nothing(self, bench: Bench) -> None:
        """S-18: below the epoch of any producer it is Fenced, by the highest."""
        make(bench)
        put(bench, 1, "a", epoch=3)
        put(bench, 1, "b", epoch=2**63 - 1, producer="q")
        assert keyed(bench).drop_stream("s", 2**63 - 2) == FencedOut(2**63 - 1)
        assert read_payloads(bench) == texts("a", "b")

    def test_a_stream_is_dropped_with_all_its_partitions(self, bench: Bench) -> None:
        """S-18: three of them; one with a higher epoch keeps all."""
        assert isinstance(bench.streams.create("s", 3, KEEP_ALL), Created)
        names = [partition_of("s", number) for number in range(3)]
        for epoch, name in enumerate(names, 1):
            put(bench, 1, name, epoch=epoch, stream=name)
        assert keyed(bench).drop_stream("s", 2) == FencedOut(3)
        assert [read_payloads(bench, name) for name in names] == [texts(name) for name in names]
        assert keyed(bench).drop_stream("s", 3) == StreamDropped()
        assert all(isinstance(bench.streams.info(name), Failed) for name in names)
        assert isinstance(bench.streams.create("s", 2, KEEP_ALL), Created)

    def test_streams_that_come_and_go_leave_nothing(self, bench: Bench) -> None:
        """S-18: a hundred, with a reader each; the last one alone is still there."""
        for number in range(100):
            name = f"epoch {number}"
            make(bench, name)
            owner = owner_of(bench, 1, stream=name)
            bench.positions.commit(CommitPosition(name, "r", owner, 7, 1))
            put(bench, 1, "x", stream=name)
            if number:
                assert keyed(bench).drop_stream(f"epoch {number - 1}", 1) == StreamDropped()
        assert bench.positions.get("epoch 98", "r") == NoPosition()
        assert read_payloads(bench, "epoch 99") == texts("x")

    def test_each_keyed_request_may_be_asked_by_itself(self, bench: Bench) -> None:
        """Every request gives what its verb gives; the host needs no other door."""
        make(bench)
        block = Together((run_of(1, "x"), PutValues("t", {b"a": b"1"}), RaiseMark("m")), True)
        answers: list[tuple[StoreRequest, object]] = [
            (block, AllDone((Stored(1, 1, 1), Changed(), Changed()))),
            (ReadKeys("t", [b"a", b"b"]), FoundValues([b"1", None])),
            (LoadTable("t", b"", 10), TableRows([(b"a", b"1")], None)),
            (WaitForMark("m", 0, 9), Marked(1)),
            (DropStream("s", 1), StreamDropped()),
        ]
        for request, expected in answers:
            assert bench.streams.ask(request) == expected
