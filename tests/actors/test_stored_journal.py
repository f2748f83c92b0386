"""A sender's journal and a receiver's state, as Pipe has them: what outlives the actors, and the pipe itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from surepipe.actors import Pipe, StepRuntime, StreamSender
from surepipe.actors.ends.face import UntilText
from surepipe.actors.ends.receiver_host import ReceiverHost
from surepipe.actors.store_calls import Stores
from surepipe.core.effects import AppendRows, JournalContents, NoticeKind, OpenLife, Persist
from surepipe.core.store_requests import (
    AppendRun,
    Batch,
    CommitOutcome,
    CommitPosition,
    Level,
    StoreOutcome,
    StoreRequest,
    Transaction,
    Unavailable,
)
from surepipe.errors import CompositionError, NotConfirmed, PipeFull, PipeStopped
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage import MemoryStore, SqliteStore, SqliteTransaction
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune
from surepipe.storage.journal import StoreJournal
from tests.actors.kit import PATIENCE_S, Noted
from tests.actors.stored_kit import (
    ClosesAt,
    DiesAfter,
    Until,
    crash_sender,
    effects_in,
    make_effects,
    put_effect,
    send_slowly,
    sqlite_store,
)

T = TypeVar("T")


def test_what_was_accepted_survives_a_killed_sender(tmp_path: Path) -> None:
    """A journal in SQLite; the sender's actor dies half way: flush succeeds, nothing is lost, nothing out of
    order."""
    got = Until(60)
    with sqlite_store(tmp_path) as store, Pipe("orders", journal=store) as pipe:
        send_slowly(pipe, range(30))
        crash_sender(pipe)
        pipe.receive(got)
        send_slowly(pipe, range(30, 60))
        pipe.flush(10)
        assert got.wait() == list(range(60))
        assert pipe.sender.counters()["restarts"] == 1


def _fill(pipe: Pipe | StreamSender, numbers: range = range(100)) -> int:
    """Send without waiting until there is no room, or all are sent; gives how many were accepted."""
    for count, number in enumerate(numbers):
        try:
            pipe.send_nowait(number)
        except PipeFull:
            return count
    return len(numbers)


def test_send_nowait_waits_for_the_journal_and_for_nothing_else(tmp_path: Path) -> None:
    """Right after the pipe was made, and until its bound: what was accepted is in the file when it returns."""
    layers = {"reliable": {"backlog": 3, "window": 2, "run_max": 2}}
    with sqlite_store(tmp_path) as store, Pipe("orders", layers, journal=store) as pipe:
        accepted = _fill(pipe)
        assert 3 <= accepted < 100
        got = Until(accepted)
        pipe.receive(got)
        assert got.wait() == list(range(accepted))


def test_what_a_closed_pipe_had_not_delivered_is_delivered_by_the_next_of_its_name(
    tmp_path: Path,
) -> None:
    """pipes L-3: nobody receives, close says what is open, and a pipe opened over the same file delivers it."""
    with sqlite_store(tmp_path) as store:
        pipe = Pipe("orders", journal=store)
        send_slowly(pipe, range(5))
        with pytest.raises(NotConfirmed):
            pipe.close(0.05)
    got = Until(8)
    with sqlite_store(tmp_path) as store, Pipe("orders", journal=store) as pipe:
        pipe.receive(got)
        send_slowly(pipe, range(5, 8))
        assert got.wait() == list(range(8))


def test_with_journal_state_and_committed_effects_nothing_is_lost_or_repeated_by_crashes(
    tmp_path: Path,
) -> None:
    """Sender, receiver and handler are killed in turn while messages flow, then the pipe is opened anew."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        pipe = Pipe("orders", journal=store, state=store, boundary="committed")
        second = DiesAfter(40, pipe.receiver.crash_consumer, put_effect)
        pipe.receive(DiesAfter(20, pipe.receiver.crash, second))
        send_slowly(pipe, range(60))
        crash_sender(pipe)
        send_slowly(pipe, range(60, 80))
        crash_sender(pipe)
        pipe.close(10)
        with Pipe("orders", journal=store, state=store, boundary="committed") as again:
            again.receive(put_effect)
            send_slowly(again, range(80, 100))
            again.flush(10)
        assert effects_in(store) == list(range(100))


def test_processed_repeats_after_a_crash_and_the_guarantee_says_so(tmp_path: Path) -> None:
    """The same crash at boundary processed: the handler sees messages again, none is missing, U lacks the
    fault."""
    got: list[object] = []
    with sqlite_store(tmp_path) as store, Pipe("orders", journal=store) as pipe:
        pipe.receive(DiesAfter(5, pipe.receiver.crash, got.append))
        pipe.send_many(range(10))
        pipe.flush(10)
        assert "receiver-crash" not in str(pipe.guarantee.headline)
    assert set(got) == set(range(10))
    assert len(got) > 10


def test_before_never_repeats(tmp_path: Path) -> None:
    """Boundary before: the state is stored first, so a killed receiver loses what it had, and repeats nothing."""
    got: list[object] = []
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", journal=store, state=store, boundary="before") as pipe,
    ):
        pipe.receive(DiesAfter(5, pipe.receiver.crash, got.append))
        send_slowly(pipe, range(20))
        pipe.flush(10)
        assert len(got) == len(set(got))
        assert got == sorted(got, key=lambda message: int(str(message)))


def test_a_second_pipe_of_the_name_fences_the_first(tmp_path: Path) -> None:
    """pipes L-2, L-7: the older sender can't write to the journal any more; what it then sends is refused."""
    noted = Noted()
    with sqlite_store(tmp_path) as store:
        older = Pipe("orders", journal=store, notices=noted)
        older.send(1)
        with Pipe("orders", journal=store) as newer:
            got = Until(2)
            newer.receive(got)
            newer.send(2)
            with pytest.raises(PipeStopped):
                older.send(3)
            assert got.wait() == [1, 2]
        with pytest.raises(PipeStopped):
            older.close(1.0)
    assert "Fenced" in noted.kinds()


def test_rows_that_a_zombie_wrote_between_load_and_fence_reach_the_new_life(tmp_path: Path) -> None:
    """The clerk answers OpenLife with the contents as they are under the new life, as the journal gives them."""
    with sqlite_store(tmp_path) as store:
        older, newer = (StoreJournal(store, store, "orders") for _ in range(2))
        older.load()
        older.write(OpenLife(1))
        newer.load()
        older.write(AppendRows(1, 1, [b"late"]))
        answer = Stores(write=newer.write).perform(Persist(7, OpenLife(2)))
        assert isinstance(answer, JournalContents)
        assert [list(rows.payloads) for rows in answer.rows] == [[b"late"]]


def test_a_journal_that_answers_late_or_not_costs_nothing(tmp_path: Path) -> None:
    """pipes P-6: outages and lost answers of every write: each message is accepted once and delivered once."""
    got = Until(40)
    with sqlite_store(tmp_path) as inside:
        store = FaultyStore(inside)
        with Pipe("orders", journal=store) as pipe:
            pipe.receive(got)
            for number in range(40):
                if number % 5 == 0:
                    store.script(Misfortune.UNKNOWN, on=AppendRun)
                if number % 7 == 0:
                    store.script(Misfortune.OUTAGE, on=CommitPosition)
                pipe.send(number)
            pipe.flush(30)
            assert got.wait() == list(range(40))


def test_a_journal_that_went_back_under_its_sender_is_told_with_what_it_got_again() -> None:
    """F14, L-6: of three accepted messages the store forgets two; the fourth brings them back, and a notice names
    them. All four come out."""
    store, noted = SimulatedStore(), Noted()
    with Pipe("orders", journal=store, notices=noted, runtime=StepRuntime()) as pipe:
        pipe.send(0)
        older = store.snapshot()
        pipe.send_many([1, 2])
        store.roll_back(older)
        pipe.send(3)
        (told,) = [one for one in noted.notices if one.kind is NoticeKind.JOURNAL_ROLLBACK]
        assert (told.end, told.ranges) == ("sender", ((2, 3),))
        got = Until(4)
        pipe.receive(got)
        pipe.flush(30)
        assert got.wait() == [0, 1, 2, 3]


def test_a_state_that_went_back_between_two_incarnations_of_a_receiver_is_told() -> None:
    """F14: the receiver is begun anew after its store lost the last states. What it had settled comes again."""
    store, noted = SimulatedStore(), Noted()
    with Pipe("orders", state=store, notices=noted, runtime=StepRuntime()) as pipe:
        pipe.receive(lambda _: None)
        older = store.snapshot()
        for number in range(3):
            pipe.send(number, until="confirmed")
        store.roll_back(older)
        pipe.receiver.crash()
        pipe.send(3, until="confirmed")
    told = [one for one in noted.notices if one.kind is NoticeKind.STATE_ROLLBACK]
    assert [one.end for one in told if "went back to save" in one.detail] == ["receiver"]


def test_a_commit_whose_answer_is_lost_neither_loses_nor_repeats_the_effect(tmp_path: Path) -> None:
    """The transaction is done and nobody hears of it, or not done: the next incarnation looks at what is
    stored."""
    with sqlite_store(tmp_path) as inside:
        make_effects(inside)
        store = FaultyStore(inside)

        def handle(message: object, transaction: Transaction) -> None:
            assert isinstance(transaction, FaultyTransaction)
            inside: object = transaction.inside  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            assert isinstance(inside, SqliteTransaction)
            put_effect(message, inside)

        with Pipe("orders", state=store, boundary="committed") as pipe:
            pipe.receive(handle)
            for number in range(12):
                if number % 4 == 1:
                    store.script(Misfortune.UNKNOWN, on=FaultyTransaction)
                if number % 4 == 3:
                    store.script(Misfortune.OUTAGE, on=FaultyTransaction)
                pipe.send(number)
                pipe.flush(30)
        assert effects_in(inside) == list(range(12))


@pytest.mark.parametrize("until", ["accepted", "confirmed"])
def test_many_that_a_crash_took_before_they_were_stored_are_not_said_to_be_accepted(
    tmp_path: Path, steps: StepRuntime, until: UntilText
) -> None:
    """The journal's store is away, and the sender dies meanwhile; the next life has never heard of them."""
    seen: list[object] = []
    with sqlite_store(tmp_path) as inside:
        store = FaultyStore(inside)
        with Pipe("orders", journal=store, runtime=steps, notices=Noted()) as pipe:
            pipe.receive(seen.append)
            pipe.send_many(["a", "b"])
            alarm = steps.alarm(pipe.sender.crash)
            alarm.set(steps.now() + 1_000)
            store.script(Misfortune.OUTAGE, calls=2)
            with pytest.raises(NotConfirmed, match="crashed before this was confirmed"):
                pipe.send_many(["c", "d"], until=until)
            pipe.flush(PATIENCE_S)
            alarm.close()
    assert seen == ["a", "b"]


def test_a_journal_needs_a_store_that_outlives_the_process() -> None:
    """G-6: a journal in memory is refused with the algebra's finding."""
    with pytest.raises(CompositionError, match="volatile-store"):
        Pipe("orders", journal=MemoryStore())


def test_the_real_level_of_the_store_enters_the_guarantee(tmp_path: Path) -> None:
    """synchronous NORMAL does not tolerate power-loss, FULL does."""

    def headline(level: Level) -> str:
        with (
            SqliteStore(tmp_path / f"{level}.db", level=level) as store,
            Pipe("orders", journal=store, state=store, boundary="committed") as pipe,
        ):
            return str(pipe.guarantee.headline)

    assert "power-loss" not in headline(Level.PROCESS)
    assert "power-loss" in headline(Level.POWER)


def test_what_is_sent_into_a_pipe_whose_journal_is_closed_is_refused_whenever_that_was(
    tmp_path: Path, steps: StepRuntime
) -> None:
    """Closed before it has noted what is confirmed: that note would be tried for ever, and whoever sends without
    a time would wait as long. All that was accepted is confirmed, so the pipe can be closed."""
    store = ClosesAt(tmp_path / "pipes.db", CommitPosition, 3)
    pipe = Pipe("orders", journal=store, runtime=steps, seed=1)
    pipe.receive(lambda _: None)
    pipe.send("a", until="confirmed")
    steps.advance(60)
    assert store.closed
    for _ in range(2):
        with pytest.raises(PipeStopped, match=r"did not accept .*pipes\.db is closed"):
            pipe.send("b", timeout=3600)
    pipe.flush(3600)
    pipe.close()


def test_what_a_closed_journal_has_and_nobody_may_send_ends_the_pipe_with_a_word(
    tmp_path: Path, steps: StepRuntime
) -> None:
    """Closed between a message and the note that it is sent: flush raises at once, and another pipe finds it."""
    store = ClosesAt(tmp_path / "pipes.db", CommitPosition, 2)
    pipe = Pipe("orders", journal=store, runtime=steps, seed=1, notices=Noted())
    pipe.receive(lambda _: None)
    pipe.send("a")
    with pytest.raises(
        PipeStopped, match=r"stopped: the journal refused .*is closed.*epoch \d+: 1"
    ):
        pipe.flush(3600)
    assert steps.now() < 60_000_000
    pipe.abort()
    got: list[object] = []
    with sqlite_store(tmp_path) as again, Pipe("orders", journal=again, runtime=steps) as pipe:
        pipe.receive(got.append)
        pipe.flush()
    assert got == ["a"]


def test_flush_waits_for_what_an_earlier_life_had_accepted(tmp_path: Path) -> None:
    """Called before the new life has opened its journal: it returns when the old rows are in the stream."""
    with sqlite_store(tmp_path) as store:
        journal = StoreJournal(store, store, "orders")
        journal.load()
        journal.write(OpenLife(1))
        journal.write(AppendRows(1, 1, [b"one", b"two"]))
        with StreamSender("orders", store=store, journal=store) as sender:
            sender.flush(10)
            found = store.read("orders", 1, 10, 1000)
        assert isinstance(found, Batch)
        assert [p for run in found.entries for p in run.payloads] == [b"one", b"two"]


@dataclass
class Handles:
    """Runs of one pipe, one after the other, over a store that fails so many calls in a row."""

    folder: Path
    positions: bool
    got: list[object] = field(default_factory=list[object])

    def send_one_each(self, before: int, calls: int) -> None:
        """The store fails behind so many of its writes, wherever in the three runs that is."""
        with sqlite_store(self.folder) as inside:
            store = FaultyStore(inside)
            store.script(Misfortune.SLOW, on=CommitPosition, calls=before)
            store.script(Misfortune.OUTAGE, on=CommitPosition, calls=calls)
            for number in range(3):
                state = store if self.positions else None
                with Pipe("orders", journal=store, state=state, runtime=StepRuntime()) as pipe:
                    pipe.receive(self.got.append)
                    pipe.send(number)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("calls", [1, 4])
def test_what_is_handled_at_the_end_of_a_pipe_is_not_handled_by_the_next(
    calls: int, positions: bool, tmp_path: Path
) -> None:
    """pipes P-15: its store is locked by somebody else for a moment, whenever that is: at the end, too."""
    for before in range(12):
        handles = Handles(tmp_path / str(before), positions)
        handles.folder.mkdir()
        handles.send_one_each(before, calls)
        assert handles.got == [0, 1, 2], f"behind {before}"


def test_a_pipe_whose_journal_can_not_note_the_end_says_that_messages_come_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store stays away for the whole time of close, and for no longer than that."""
    handles = Handles(tmp_path, positions=False)
    handles.send_one_each(2, 8)
    assert handles.got == [0, 0, 1, 2]
    assert "could not be told of the last of it" in caplog.text


class Lethal(SqliteStore):
    """Lets somebody die at its first commit behind a message, which it does not do, and when it has stored a
    renumbering."""

    kills: Callable[[], object] | None = None
    strikes = 0
    has_rows = False

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Strike in place of a commit, and when a renumbering is stored, before anybody hears of it."""
        if isinstance(request, CommitPosition) and self.has_rows and self.strikes == 0:
            return self._strike(Unavailable())
        self.has_rows |= isinstance(request, AppendRun)
        outcome = super().ask(request)
        if self.strikes == 1 and isinstance(request, AppendRun) and request.first == 1:
            return self._strike(outcome) if b"moved" in request.payloads[0] else outcome
        return outcome

    def _strike(self, outcome: T) -> T:
        assert self.kills is not None
        self.strikes += 1
        self.kills()
        return outcome


def test_a_life_that_ends_before_it_tells_of_new_numbers_makes_no_message_seem_confirmed(
    tmp_path: Path,
) -> None:
    """P8, pipes L-5: the message waits in the journal under a number that its sender's caller never heard of;
    nobody receives, so who waits for the confirm waits in vain, and it comes with the receiver."""
    steps, got = StepRuntime(1), list[object]()
    with (
        closing(Lethal(tmp_path / "orders.db", level=Level.PROCESS)) as store,
        Pipe("orders", journal=store, runtime=steps, seed=1) as pipe,
    ):
        store.kills = pipe.sender.crash
        with pytest.raises(NotConfirmed):
            pipe.send("a", until="confirmed", timeout=30)
        assert store.strikes == 2
        pipe.receive(got.append)
        pipe.flush(30)
        assert got == ["a"]


def test_a_journal_takes_messages_at_its_own_speed_while_the_store_behind_it_hangs(
    tmp_path: Path,
) -> None:
    """The stream's store does not return from an append: as many messages are accepted as the outbox has room for,
    then it pushes back, and when the store goes on all are confirmed, in order."""
    layer = {"stream": {"start": "earliest", "backlog": 100}}
    hanging = threading.Event()
    goes_on = threading.Event()

    class Hanging(FaultyStore):
        def ask(self, request: StoreRequest) -> StoreOutcome:
            if not isinstance(request, AppendRun):
                return super().ask(request)
            hanging.set()
            assert goes_on.wait(PATIENCE_S)
            return self.inside.ask(request)

    behind = MemoryStore()
    with sqlite_store(tmp_path) as journal:
        sender = StreamSender("orders", layer, store=Hanging(behind), journal=journal)
        try:
            sender.send(0, timeout=PATIENCE_S)
            assert hanging.wait(PATIENCE_S)
            for number in range(1, 100):
                sender.send(number, timeout=PATIENCE_S)
            accepted = 100 + _fill(sender, range(100, 1000))
            assert accepted < 1000, "it pushes back"
            assert sender.counters()["confirmed"] == 0, "nothing of it came through"
        finally:
            goes_on.set()
        sender.flush(PATIENCE_S)
        sender.close()
    batch = behind.read("orders", 1, 1000, 1 << 20)
    assert isinstance(batch, Batch)
    assert batch.next == accepted + 1


def test_a_time_for_room_is_none_for_the_journal(tmp_path: Path) -> None:
    """There is room, and to store the message takes what it takes, up to a second: it was NotConfirmed, "may be
    accepted yet", of a pipe in good health. A journal that does not answer is told then."""
    steps = StepRuntime()
    with sqlite_store(tmp_path) as inside:
        store = FaultyStore(inside)
        with Pipe("orders", journal=store, runtime=steps) as pipe:
            got = list[object]()
            pipe.receive(got.append)
            for number in range(3):
                pipe.send(number, timeout=0)
            assert pipe.send_many([3, 4], timeout=-1) == 2
            store.script(Misfortune.OUTAGE, calls=1_000_000)
            begun = steps.now()
            with pytest.raises(NotConfirmed, match="may be accepted yet"):
                pipe.send(5, timeout=0)
            assert 1_000_000 <= steps.now() - begun < 1_100_000
            store.calm()
            pipe.flush(10)
    assert got == [*range(6)]


class SlowState(FaultyStore):
    """The write behind the first message waits until its receiver closes, and as long again as an end that does
    not wait for it takes to be over."""

    def __init__(self, inside: SqliteStore) -> None:
        super().__init__(inside)
        self.waits, self.closes, self.is_over = (threading.Event() for _ in range(3))

    def commit(self, request: CommitPosition) -> CommitOutcome:
        if not self.waits.is_set():
            self.waits.set()
            assert self.closes.wait(PATIENCE_S)
            self.is_over.wait(0.2)
        return super().commit(request)


def test_what_a_handler_has_done_is_not_done_again_after_an_orderly_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The state behind message 0 is being stored. 2. The handler returns from message 1. 3. The pipe ends, and
    then 1 is answered: nobody stored what stood behind message 1, and the next life handled it again."""
    handling, ending = threading.Event(), threading.Event()
    handled = list[object]()

    def handle(message: object) -> None:
        if message == 1:
            assert store.waits.wait(PATIENCE_S)
            handling.set()
            assert ending.wait(PATIENCE_S)
        handled.append(message)

    with sqlite_store(tmp_path) as journal, sqlite_store(tmp_path, "state.db") as inside:
        store = SlowState(inside)
        pipe = Pipe("orders", journal=journal, state=store)
        pipe.receive(handle)
        pipe.send_many(range(4))
        assert handling.wait(PATIENCE_S)
        for owner, name, event in (
            (pipe.receiver.works, "cancel", ending),
            (ReceiverHost, "close", store.closes),
            (pipe.receiver.node, "leave", store.is_over),
        ):
            monkeypatch.setattr(owner, name, _then(getattr(owner, name), event))
        pipe.abort()
        assert handled == [0, 1]
        with Pipe("orders", journal=journal, state=store) as later:
            later.receive(handled.append)
    assert handled == [0, 1, 2, 3]


def _then(function: Callable[..., object], event: threading.Event) -> Callable[..., object]:
    def and_tell(*args: object) -> object:
        try:
            return function(*args)
        finally:
            event.set()

    return and_tell
