"""The journal over real stores: lives, refusals, space, and stores that go back."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from surepipe import errors
from surepipe.core.effects import (
    AppendRows,
    ForgetRows,
    JournalContents,
    JournalRows,
    NoteTransmitted,
    OpenLife,
    Renumber,
    SaveState,
    Write,
    WriteFailed,
    WriteFenced,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    ClaimReader,
    CommitPosition,
    Created,
    CreateStream,
    FencedOut,
    GetPosition,
    Level,
    OpenProducer,
    Owner,
    ReadFrom,
    Retention,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.journal import TRIM_AFTER_MESSAGES, Beside, StoreJournal
from surepipe.storage.memory import MemoryStore
from surepipe.storage.sqlite.store import SqliteStore
from tests.contracts.store_contract import texts
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench

STREAM = "pipe/journal"


@pytest.fixture(name="store")
def make_store(any_bench: MemoryBench | SqliteBench | RedisBench) -> FaultyStore:
    """Each store, with misfortunes on demand."""
    return FaultyStore(any_bench.store)


def open_journal(store: Store, life: int) -> StoreJournal:
    """The journal as a new life has it."""
    journal = StoreJournal(store, store, "pipe")
    journal.load()
    assert journal.write(OpenLife(life)) == WriteStored()
    return journal


def contents_of(store: Store) -> JournalContents:
    """What the next life would find."""
    return StoreJournal(store, store, "pipe").load()


def rows_of(store: Store) -> list[tuple[int, int, list[bytes]]]:
    """The rows as (epoch, first, payloads)."""
    return [(rows.epoch, rows.first, [*rows.payloads]) for rows in contents_of(store).rows]


def info_of(store: Store) -> StreamInfo:
    """The stream of the journal."""
    info = store.info(STREAM)
    assert isinstance(info, StreamInfo)
    return info


# Lives.


def test_an_older_life_is_fenced_from_rows_and_from_the_position(store: FaultyStore) -> None:
    """L-2, S-5, S-9: after OpenLife of a newer one, everything that the older one writes is refused."""
    older = open_journal(store, 5)
    assert older.write(AppendRows(5, 1, texts("a", "b"))) == WriteStored()
    open_journal(store, 9)
    before = contents_of(store)
    for write in (
        OpenLife(5),
        AppendRows(5, 3, texts("c")),
        NoteTransmitted(5),
        ForgetRows(5, 2),
        Renumber(6, texts("a"), (5,)),
        Renumber(10, texts("a"), (5,), by=5),
    ):
        assert older.write(write) == WriteFenced(9)
    assert contents_of(store) == before


def test_a_life_that_claims_late_does_not_stop_a_newer_one(store: FaultyStore) -> None:
    """L-2, S-9: the older one had opened before the newer one and claims after it: too late."""
    newer = open_journal(store, 9)
    assert newer.write(AppendRows(9, 1, texts("a", "b"))) == WriteStored()
    assert store.claim(STREAM, "confirmed", 5) == FencedOut(9)
    assert newer.write(ForgetRows(9, 1)) == WriteStored()
    assert rows_of(store) == [(9, 2, texts("b"))]


class Overtaken(MemoryStore):
    """A store on which something happens right before the next claim, or another request."""

    happens: Callable[[], object] | None = None
    before: type[object] = ClaimReader

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """First the other thing, then the request."""
        if self.happens and isinstance(request, self.before):
            happens, self.happens = self.happens, None
            happens()
        return super().ask(request)


def test_a_life_that_is_overtaken_while_it_opens_writes_nothing() -> None:
    """L-2: between its opening and its claim a newer life opens and notes a transmission; the note stays."""
    store = Overtaken()
    older = StoreJournal(store, store, "pipe")
    older.load()
    newer: list[StoreJournal] = []

    def overtake() -> None:
        newer.append(open_journal(store, 9))
        assert newer[0].write(AppendRows(9, 1, texts("a"))) == WriteStored()
        assert newer[0].write(NoteTransmitted(9)) == WriteStored()

    store.happens = overtake
    assert older.write(OpenLife(5)) == WriteFenced(9)
    assert older.write(ForgetRows(5, 0)) == WriteFenced(9)
    assert newer[0].write(ForgetRows(9, 0)) == WriteStored()
    assert contents_of(store) == JournalContents(9, [JournalRows(9, 1, texts("a"))], 9, (9, 0))


def test_numbering_again_may_be_repeated_when_its_answer_was_lost(store: FaultyStore) -> None:
    """L-5, S-5: it is done once, and the new life that it began does not fence its own repeat."""
    journal = open_journal(store, 5)
    assert journal.write(AppendRows(5, 1, texts("a", "b"))) == WriteStored()
    again = Renumber(6, texts("a", "b"), (5,), by=5)
    store.script(Misfortune.UNKNOWN, on=AppendRun)
    assert journal.write(again) == WriteUnknown()
    assert journal.write(again) == WriteStored()
    assert rows_of(store) == [(6, 1, texts("a", "b"))]


def test_numbering_again_under_the_number_of_a_newer_life_is_no_repeat(store: FaultyStore) -> None:
    """L-2, L-7, S-5: both went one above life 6. The older one is refused: it had not done this before."""
    older = open_journal(store, 5)
    open_journal(store, 6)
    newer = open_journal(store, 7)
    assert newer.write(AppendRows(7, 1, texts("a"))) == WriteStored()
    again = Renumber(7, (), (5,), by=5)
    store.script(Misfortune.UNKNOWN, on=OpenProducer)
    assert older.write(again) == WriteUnknown()
    for _ in range(2):
        assert older.write(again) == WriteFenced(7)
    with pytest.raises(errors.Fenced, match="life 7"):
        older.load()
    assert newer.write(AppendRows(7, 2, texts("b"))) == WriteStored()
    assert rows_of(store) == [(7, 1, texts("a", "b"))]


def test_a_journal_that_was_taken_over_is_not_loaded_again(store: FaultyStore) -> None:
    """L-2: by another object, that is, from elsewhere. Its own lives, also by renumbering, are no reason."""
    older = open_journal(store, 5)
    assert older.write(Renumber(6, (), (5,))) == WriteStored()
    assert older.load().last_life == 6
    assert older.write(OpenLife(7)) == WriteStored()
    newer = StoreJournal(store, store, "pipe")
    assert newer.load().last_life == 7
    assert newer.write(OpenLife(9)) == WriteStored()
    for _ in range(2):
        with pytest.raises(errors.Fenced, match="life 9"):
            older.load()
    assert newer.write(AppendRows(9, 1, texts("a"))) == WriteStored()
    assert newer.load().last_life == 9


def test_what_an_older_life_wrote_after_the_load_comes_with_the_opening(store: FaultyStore) -> None:
    """L-2, L-3: loaded, then the older life stores two more rows, then opened: nothing is overlooked, however
    often it is asked because the answer was lost. Told "stored" alone it would go on without them, and they were
    lost.
    """
    older = open_journal(store, 5)
    older.write(AppendRows(5, 1, texts("a")))
    newer = StoreJournal(store, store, "pipe")
    assert len(newer.load().rows) == 1
    older.write(AppendRows(5, 2, texts("b")))
    older.write(NoteTransmitted(5))
    found = JournalContents(9, [JournalRows(5, 1, texts("a", "b"))], 5, (0, 0))
    assert [newer.write(OpenLife(9)) for _ in range(3)] == [found] * 3
    assert newer.write(NoteTransmitted(9)) == WriteStored()


def test_a_state_is_no_business_of_a_journal(store: FaultyStore) -> None:
    """S-13: the receiver's state has a place of its own."""
    with pytest.raises(MisuseError):
        open_journal(store, 1).write(SaveState(b"x"))


# Stores that refuse or do not answer.


@pytest.mark.parametrize("on", [CreateStream, GetPosition])
def test_a_load_without_an_answer_says_so(store: FaultyStore, on: type[object]) -> None:
    """S-1: StoreUnavailable, and the next try is fine; a refusal is a ConfigurationError."""
    journal = StoreJournal(store, store, "pipe")
    store.script(Misfortune.OUTAGE, on=on)
    with pytest.raises(StoreUnavailable):
        journal.load()
    store.script(Misfortune.REFUSED, on=on)
    with pytest.raises(ConfigurationError):
        journal.load()
    assert journal.load() == JournalContents(rows=[])


@pytest.mark.parametrize(
    ("on", "write"),
    [
        (AppendRun, AppendRows(1, 1, texts("a"))),
        (AppendRun, Renumber(2, texts("a"), (1,))),
        (CommitPosition, NoteTransmitted(1)),
        (CommitPosition, ForgetRows(1, 0)),
        (OpenProducer, OpenLife(1)),
        (ClaimReader, OpenLife(1)),
    ],
)
def test_each_write_passes_on_what_the_store_says(
    store: FaultyStore, on: type[object], write: Write
) -> None:
    """S-1: no answer is unknown, a refusal is a failure with its reason; then it is done."""
    journal = open_journal(store, 1)
    store.script(Misfortune.OUTAGE, on=on)
    assert journal.write(write) == WriteUnknown()
    store.script(Misfortune.REFUSED, on=on)
    assert journal.write(write) == WriteFailed("refused, on purpose")
    assert journal.write(write) == WriteStored()


def test_a_stream_made_for_something_else_is_no_journal(store: FaultyStore) -> None:
    """S-2: another retention is a mismatch, told with its name."""
    store.create(STREAM, 1, Retention(max_bytes=5))
    with pytest.raises(ConfigurationError, match="retention"):
        contents_of(store)


# Space.


def test_confirmed_rows_leave_the_stream(store: FaultyStore) -> None:
    """S-8: now and then while the life goes on, and all of them when the next one begins."""
    journal = open_journal(store, 1)
    seq = 1
    for _ in range(3 * TRIM_AFTER_MESSAGES // 1_000):
        journal.write(AppendRows(1, seq, [b"x" * 10] * 1_000))
        seq += 1_000
        journal.write(ForgetRows(1, seq - 1))
    info = info_of(store)
    assert info.next - info.earliest <= TRIM_AFTER_MESSAGES + 2_000
    open_journal(store, 2)
    info = info_of(store)
    assert info.next - info.earliest <= 1_001, "the anchor, with the page that it is in"
    assert rows_of(store) == []


def test_a_load_beside_an_earlier_life_that_is_still_confirming_is_to_be_asked_again() -> None:
    """What that life forgets meanwhile is nothing that is missing: the load begins anew. How far it has come is
    known without a load."""
    store = Overtaken()
    older = open_journal(store, 1)
    count = TRIM_AFTER_MESSAGES + 1
    assert older.write(AppendRows(1, 1, [b"x"] * count)) == WriteStored()
    store.before, store.happens = ReadFrom, lambda: older.write(ForgetRows(1, count - 1))
    with pytest.raises(StoreUnavailable, match="an earlier life is still confirming"):
        contents_of(store)
    assert contents_of(store).confirmed == (1, count - 1)
    assert StoreJournal(store, store, "pipe").confirmed() == (1, count - 1)
    assert StoreJournal(store, store, "other").confirmed() == (0, 0)


def test_big_confirmed_rows_leave_the_stream_sooner(store: FaultyStore) -> None:
    """S-8: five megabytes in five rows."""
    journal = open_journal(store, 1)
    for seq in range(1, 7):
        journal.write(AppendRows(1, seq, [bytes(1 << 20)]))
        journal.write(ForgetRows(1, seq))
    assert info_of(store).bytes <= 3 << 20


def test_rows_of_an_older_epoch_leave_when_they_are_confirmed(store: FaultyStore) -> None:
    """L-4: what stands behind the barrier is not trimmed with them."""
    older = open_journal(store, 1)
    older.write(AppendRows(1, 1, texts("a")))
    older.write(AppendRows(1, 2, texts("b")))
    newer = open_journal(store, 2)
    newer.write(AppendRows(2, 1, texts("c")))
    newer.write(ForgetRows(1, 2))
    assert rows_of(store) == [(2, 1, texts("c"))]
    assert info_of(store).earliest == 3, "row b is the anchor"


# Stores that go back.


def test_rows_that_the_store_lost_are_stored_again(store: FaultyStore) -> None:
    """F14: the store forgets the last rows of a running life; the next write brings them back, and says so."""
    journal = open_journal(store, 3)
    journal.write(AppendRows(3, 1, texts("a", "b")))
    store.mark()
    journal.write(AppendRows(3, 3, texts("c")))
    journal.write(AppendRows(3, 4, texts("d")))
    store.script(Misfortune.ROLL_BACK)
    assert journal.write(AppendRows(3, 5, texts("e"))) == WriteStored(((3, 4),))
    assert rows_of(store) == [(3, 1, texts("a", "b", "c", "d", "e"))]
    journal.write(ForgetRows(3, 4))
    assert rows_of(store) == [(3, 5, texts("e"))]


def test_confirmed_rows_that_the_store_lost_are_not_missed(store: FaultyStore) -> None:
    """F14: what it forgot is confirmed up to 3; from 4 on the rows are stored again, under their numbers."""
    journal = open_journal(store, 3)
    store.mark()
    journal.write(AppendRows(3, 1, texts("a", "b", "c", "d")))
    journal.write(ForgetRows(3, 3))
    store.script(Misfortune.ROLL_BACK)
    assert journal.write(AppendRows(3, 5, texts("e"))) == WriteStored(((4, 4),))
    assert rows_of(store) == [(3, 4, texts("d", "e"))]
    journal.write(ForgetRows(3, 4))
    assert rows_of(store) == [(3, 5, texts("e"))]


def test_a_store_that_comes_back_empty_gets_the_rows_again(store: FaultyStore) -> None:
    """F17: the stream is made anew, with another incarnation; the position follows it."""
    store.mark()
    journal = open_journal(store, 3)
    journal.write(AppendRows(3, 1, texts("a", "b")))
    journal.write(NoteTransmitted(3))
    store.script(Misfortune.ROLL_BACK)
    assert journal.write(AppendRows(3, 3, texts("c"))) == WriteStored(((1, 2),))
    assert rows_of(store) == [(3, 1, texts("a", "b", "c"))]
    assert journal.write(ForgetRows(3, 1)) == WriteStored()
    assert contents_of(store) == JournalContents(3, [JournalRows(3, 2, texts("b", "c"))], 3, (3, 1))


def test_a_position_that_went_back_is_stored_again(store: FaultyStore) -> None:
    """F17: at most confirmed rows are sent twice (L-6: the position may lag), none is forgotten."""
    journal = open_journal(store, 3)
    journal.write(AppendRows(3, 1, texts("a", "b", "c")))
    store.mark()
    journal.write(ForgetRows(3, 2))
    store.script(Misfortune.ROLL_BACK)
    assert journal.write(NoteTransmitted(3)) == WriteStored()
    assert rows_of(store) == [(3, 3, texts("c"))]


def test_confirming_rows_that_the_store_lost_removes_no_others(store: FaultyStore) -> None:
    """F14, S-8: own rows now stand where rows of the older epoch stood; those are confirmed and trimmed."""
    older = open_journal(store, 1)
    store.mark()
    older.write(AppendRows(1, 1, texts("a", "b", "c")))
    newer = open_journal(store, 2)
    newer.write(AppendRows(2, 1, texts("d")))
    store.script(Misfortune.ROLL_BACK)
    newer.write(AppendRows(2, 2, texts("e")))
    newer.write(AppendRows(2, 3, texts("f")))
    assert newer.write(ForgetRows(1, 3)) == WriteStored()
    assert rows_of(store) == [(2, 1, texts("d", "e", "f"))]


def test_rows_numbered_again_after_a_loss_are_not_taken_for_those_before(
    store: FaultyStore,
) -> None:
    """F14, L-5: the store forgets the older epoch; new rows take its indexes, then it is confirmed."""
    store.create(STREAM, 1, KEEP_ALL)
    store.mark()
    older = open_journal(store, 1)
    for seq in (1, 2, 3):
        older.write(AppendRows(1, seq, texts(f"old{seq}")))
    newer = open_journal(store, 2)
    store.script(Misfortune.ROLL_BACK)
    assert newer.write(Renumber(3, texts("a"), (2,))) == WriteStored()
    for seq in (2, 3, 4, 5, 6):
        newer.write(AppendRows(3, seq, texts(f"new{seq}")))
    assert newer.write(ForgetRows(1, 3)) == WriteStored()
    assert rows_of(store) == [(3, 1, texts("a", "new2", "new3", "new4", "new5", "new6"))]


@pytest.mark.parametrize("seed", range(20))
def test_no_unconfirmed_row_is_lost_by_a_store_that_loses_its_last_writes(seed: int) -> None:
    """F14, by seed: up to five writes lost at a time; after the next stored row all unconfirmed rows are there."""
    store = FaultyStore(MemoryStore(), seed=seed, remember=5)
    rng = random.Random(seed)
    journal = open_journal(store, 1)
    accepted: list[bytes] = []
    confirmed = 0
    for _ in range(60):
        if rng.random() < 0.3:
            store.script(Misfortune.LOSE_LAST, on=AppendRun, amount=rng.randint(1, 5))
        new = texts(*(len(accepted) + n for n in range(rng.randint(1, 4))))
        assert isinstance(journal.write(AppendRows(1, len(accepted) + 1, new)), WriteStored)
        accepted += new
        found = {
            first + n: payload
            for _, first, payloads in rows_of(store.inside)
            for n, payload in enumerate(payloads)
        }
        for seq in range(confirmed + 1, len(accepted) + 1):
            assert found[seq] == accepted[seq - 1]
        if rng.random() < 0.5:
            confirmed = rng.randint(confirmed, len(accepted))
            assert journal.write(ForgetRows(1, confirmed)) == WriteStored()


def test_the_level_is_the_lower_of_both_stores(tmp_path: Path) -> None:
    """S-3: rows on disk and positions in memory is no durable journal."""
    with SqliteStore(tmp_path / "store.db") as sqlite:
        assert StoreJournal(sqlite, sqlite, "pipe").level is Level.POWER
        assert StoreJournal(sqlite, MemoryStore(), "pipe").level is Level.NONE


def in_one_transaction(
    store: SqliteStore, journal: StoreJournal, write: AppendRows, also: Sequence[CommitPosition]
) -> bool:
    """A row and positions together."""
    with store.transaction() as transaction:
        transaction.append(journal.run_of(write))
        for request in also:
            transaction.commit(request)
    return transaction.done


def test_rows_may_be_stored_in_a_transaction_with_other_writes(tmp_path: Path) -> None:
    """S-11, G-7: a relay's rows and its position; then the journal goes on by itself."""
    with SqliteStore(tmp_path / "store.db") as store:
        store.create("in", 1, KEEP_ALL)
        journal = open_journal(store, 1)
        position = CommitPosition("in", "r", 1, 1, 2)
        assert in_one_transaction(store, journal, AppendRows(1, 1, texts("a")), [position])
        assert in_one_transaction(store, journal, AppendRows(1, 2, texts("b")), [])
        assert journal.write(AppendRows(1, 3, texts("c"))) == WriteStored()
        assert journal.write(ForgetRows(1, 2)) == WriteStored()
        assert rows_of(store) == [(1, 3, texts("c"))]


def _as_it_is(position: CommitPosition, _: int) -> CommitPosition:
    return position


@pytest.mark.parametrize("older_first", [True, False])
def test_what_a_replaced_owner_sends_is_refused_with_all_of_its_write(
    store: FaultyStore, older_first: bool
) -> None:
    """Two owners of one reader send the same in one write: it was stored twice where the newer one came last."""
    journal = open_journal(store, 1)
    made = store.create("letters", 1, KEEP_ALL)
    assert isinstance(made, Created)
    older, newer = 1, 2
    positions = {
        owner: CommitPosition("letters", "replay", owner, made.incarnation, 1, None, b"")
        for owner in (older, newer)
    }
    for owner in (older, newer):
        assert store.claim("letters", "replay", owner) == Owner(owner)
    payloads = {number: Beside(b"letter") for number in sorted(positions, reverse=not older_first)}
    for number, payload in payloads.items():
        journal.commit_beside([payload], "letters/replay", partial(_as_it_is, positions[number]))
    refused = journal.write(AppendRows(1, 1, list(payloads.values())))
    assert isinstance(refused, WriteFailed)
    assert "taken over" in refused.reason
    assert journal.taken_over == {"letters/replay": newer}
    assert isinstance(journal.write(AppendRows(1, 1, [payloads[older]])), WriteFailed)
    assert journal.write(AppendRows(1, 1, [payloads[newer]])) == WriteStored()
    assert payloads[newer].number == (1, 1)
