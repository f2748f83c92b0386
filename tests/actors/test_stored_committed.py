"""Handlers with a transaction: what is stored with what, what is taken back, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors import DeadLetters, Pipe, StepRuntime
from surepipe.core.store_requests import KEEP_ALL, AppendRun, Batch, CommitPosition, Transaction
from surepipe.errors import CompositionError, MisuseError, PipeStopped, StoreUnavailable
from surepipe.storage import MemoryStore, MemoryTransaction, SqliteStore, SqliteTransaction
from surepipe.storage.positions import ReceiverState
from tests.actors.kit import PATIENCE_S, Noted
from tests.actors.stored_kit import (
    QUICK_STREAM,
    STREAM,
    ClosesAt,
    effects_in,
    make_effects,
    put_effect,
    sqlite_store,
)


class Faltering:
    """Puts an effect and then fails, so often for each chosen message."""

    def __init__(self, **failures: int) -> None:
        self.left = {int(name[1:]): count for name, count in failures.items()}
        self.calls: list[object] = []

    def __call__(self, message: object, transaction: Transaction) -> None:
        self.calls.append(message)
        put_effect(message, transaction)
        number = cast("int", message)
        if self.left.get(number, 0):
            self.left[number] -= 1
            raise ValueError(f"not {message} today")


def test_a_batch_is_settled_up_to_the_message_that_fails_and_only_that_is_tried_again(
    tmp_path: Path,
) -> None:
    """dl4 with effects: number 7 of 10 fails once; 1..6 are handled once, and no effect is there twice."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        handle = Faltering(m7=1)
        with Pipe("orders", state=store, boundary="committed", retry_min_s=0.01) as pipe:
            pipe.send_many(range(1, 11))
            pipe.receive(handle)
            pipe.flush(10)
        assert handle.calls == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10]
        assert effects_in(store) == list(range(1, 11))


def test_what_a_poisoned_message_did_is_taken_back_before_its_letter_is_written(
    tmp_path: Path,
) -> None:
    """dl1 with effects: 3 of 5 always fails; three attempts, one letter, none of its effects."""
    letters = DeadLetters()
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        handle = Faltering(m3=99)
        with Pipe(
            "orders",
            state=store,
            boundary="committed",
            retries=3,
            retry_min_s=0.01,
            dead_letter=letters,
        ) as pipe:
            pipe.receive(handle)
            pipe.send_many(range(1, 6))
            pipe.flush(10)
        assert handle.calls.count(3) == 3
        assert [letter.attempts for letter in letters] == [3]
        assert effects_in(store) == [1, 2, 4, 5]


def test_a_batch_handler_is_all_or_nothing(tmp_path: Path) -> None:
    """receive_many: the second call fails after its effects; they are taken back and made again once."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        failed: list[int] = []

        def handle(messages: list[object], transaction: Transaction) -> None:
            for message in messages:
                put_effect(message, transaction)
            if not failed:
                failed.append(1)
                raise ValueError("not yet")

        with Pipe("orders", state=store, boundary="committed", retry_min_s=0.01) as pipe:
            pipe.receive_many(handle)
            pipe.send_many(range(50))
            pipe.flush(10)
        assert effects_in(store) == list(range(50))


AWAY = StoreUnavailable("on purpose")


@pytest.mark.parametrize(
    "error",
    [AWAY, ExceptionGroup("tasks", [AWAY, ExceptionGroup("inner", [AWAY])])],
    ids=["alone", "group"],
)
def test_a_store_that_is_away_inside_the_handler_is_no_failure_of_the_message(
    tmp_path: Path, error: Exception
) -> None:
    """StoreUnavailable is raised once, by itself or out of a TaskGroup: with retries 1 there is no letter, and the
    effect is there once."""
    away = [1]
    letters = DeadLetters()

    def handle(message: object, transaction: Transaction) -> None:
        put_effect(message, transaction)
        if away and message == 2:
            away.pop()
            raise error

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.receive(handle)
            pipe.send_many(range(4))
            pipe.flush(10)
        assert effects_in(store) == [0, 1, 2, 3]
    assert len(letters) == 0


def test_over_a_stream_the_position_is_committed_with_the_effects(tmp_path: Path) -> None:
    """st6 by hand: two pipes one after the other over one file; the second begins where effects end."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        for part in (range(30), range(30, 50)):
            with Pipe("orders", STREAM, store=store, boundary="committed") as pipe:
                pipe.receive(put_effect)
                pipe.send_many(part)
        assert effects_in(store) == list(range(50))


def test_the_stream_may_be_in_another_store_than_position_and_effects(tmp_path: Path) -> None:
    """Stream in memory, position and effects in SQLite: exactly once even when the receiver dies."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        streams = MemoryStore()
        with Pipe("orders", QUICK_STREAM, store=streams, state=store, boundary="committed") as pipe:
            pipe.receive(put_effect)
            pipe.send_many(range(20), until="confirmed")
            pipe.receiver.crash()
            pipe.send_many(range(20, 40))
        assert effects_in(store) == list(range(40))


def test_a_later_owner_stops_the_receiver_and_nothing_more_is_settled(tmp_path: Path) -> None:
    """The transaction is answered Fenced: notice, PipeStopped for who sends, and no effect of the fenced one."""
    noted = Noted()
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        pipe = Pipe("orders", state=store, boundary="committed", notices=noted)
        pipe.receive(put_effect)
        pipe.send(1, until="confirmed")
        ReceiverState(store, "orders").load()
        pipe.send(2)
        with pytest.raises(Exception, match="owner 2 receives in its place"):
            pipe.flush(10)
        with pytest.raises(Exception, match="owner 2 receives in its place"):
            pipe.close()
        assert effects_in(store) == [1]
    assert noted.kinds() == ["Fenced"]


def test_a_handler_may_forward_in_the_same_transaction(tmp_path: Path) -> None:
    """S-11: an append to another stream of the file is stored with the receiver's state."""
    with sqlite_store(tmp_path) as store:
        store.create("out", 1, KEEP_ALL)
        store.open_producer("out", "relay", 1, 1)

        def forward(messages: list[object], transaction: Transaction) -> None:
            payloads = [cast("bytes", message) for message in messages]
            first = int(payloads[0]) + 1
            transaction.append(AppendRun("out", "relay", 1, first, payloads))

        with Pipe("orders", state=store, boundary="committed") as pipe:
            pipe.receive_many(forward)
            pipe.send_many([b"%d" % number for number in range(10)])
            pipe.flush(10)
        found = store.read("out", 1, 100, 1 << 20)
        assert isinstance(found, Batch)
        assert [p for run in found.entries for p in run.payloads] == [
            b"%d" % number for number in range(10)
        ]


def test_an_append_that_is_refused_is_the_handlers_failure(tmp_path: Path) -> None:
    """A gap in what the handler appends: nothing is stored, and the message goes to the letters."""
    letters = DeadLetters()
    with sqlite_store(tmp_path) as store:
        store.create("out", 1, KEEP_ALL)
        store.open_producer("out", "relay", 1, 1)

        def forward(message: object, transaction: Transaction) -> None:
            transaction.append(AppendRun("out", "relay", 1, 5, [cast("bytes", message)]))

        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.receive(forward)
            pipe.send(b"one")
            pipe.flush(10)
    assert [letter.error_type for letter in letters] == ["ConfigurationError"]


def test_of_several_messages_the_one_fails_whose_append_is_refused(tmp_path: Path) -> None:
    """Number 3 of 5 leaves a gap in what it appends: the others are there once, and it alone is a letter."""
    letters = DeadLetters()
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        store.create("out", 1, KEEP_ALL)
        store.open_producer("out", "relay", 1, 1)

        def forward(message: object, transaction: Transaction) -> None:
            put_effect(message, transaction)
            if message == 3:
                transaction.append(AppendRun("out", "relay", 1, 5, [b"gap"]))

        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.send_many(range(1, 6))
            pipe.receive(forward)
            pipe.flush(10)
        assert effects_in(store) == [1, 2, 4, 5]
    assert [letter.seq for letter in letters] == [3]


def test_memory_commits_with_changes_of_the_callers_own() -> None:
    """The stream, its position and a Python list change in one step; a failing message leaves nothing."""
    done: list[object] = []
    failing = [3]

    def handle(message: object, transaction: Transaction) -> None:
        assert isinstance(transaction, MemoryTransaction)
        transaction.also(lambda: done.append(message))
        if message in failing:
            failing.clear()
            raise ValueError("not yet")

    with Pipe(
        "orders", STREAM, store=MemoryStore(), boundary="committed", retry_min_s=0.01
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many(range(6))
    assert done == list(range(6))


def test_the_step_runtime_runs_transactions_too(tmp_path: Path, steps: StepRuntime) -> None:
    """The same classes in virtual time."""
    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe("orders", state=store, boundary="committed", runtime=steps) as pipe:
            pipe.receive(put_effect)
            pipe.send_many(range(10))
            pipe.flush(10)
        assert effects_in(store) == list(range(10))


def test_committed_asks_for_a_handler_with_a_transaction(tmp_path: Path) -> None:
    """A handler with one parameter, and a loop, are refused at once; a transaction without committed likewise."""
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", state=store, boundary="committed") as pipe,
    ):
        with pytest.raises(MisuseError, match=r"handle\(message, transaction\)"):
            pipe.receive(lambda _: None)
        with pytest.raises(MisuseError, match="transaction"):
            iter(pipe)
        pipe.receive(put_effect)
    with Pipe("other") as plain, pytest.raises(MisuseError, match=r"handle\(message\)"):
        plain.receive(put_effect)


def test_committed_without_a_store_is_refused() -> None:
    """The algebra's finding says what to name."""
    with pytest.raises(CompositionError, match="Name one store for the receiver state"):
        Pipe("orders", boundary="committed")


def test_committed_needs_an_outermost_cursor(tmp_path: Path) -> None:
    """K-6."""
    with (
        sqlite_store(tmp_path) as store,
        pytest.raises(CompositionError, match="Put an index pipe"),
    ):
        Pipe("orders", "multi-unconfirmed", state=store, boundary="committed")


def test_a_handler_can_not_end_the_transaction_it_is_in(tmp_path: Path) -> None:
    """commit() inside the handler fails as an error of the handler; nothing was stored by it."""
    letters = DeadLetters()

    def handle(message: object, transaction: Transaction) -> None:
        put_effect(message, transaction)
        assert isinstance(transaction, SqliteTransaction)
        transaction.connection.execute("COMMIT")

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with Pipe(
            "orders", state=store, boundary="committed", retries=1, dead_letter=letters
        ) as pipe:
            pipe.receive(handle)
            pipe.send(1)
            pipe.flush(10)
        assert effects_in(store) == []
    assert [letter.error_type for letter in letters] == [sqlite3.DatabaseError.__name__]
    assert "The pipe ends the transaction" in next(iter(letters)).error_text


def roll_back(transaction: SqliteTransaction) -> None:
    """The table lets no number in twice; SQLite ends the transaction in answer."""
    transaction.connection.execute("INSERT OR ROLLBACK INTO once VALUES (1)")


def roll_back_quietly(transaction: SqliteTransaction) -> None:
    """The same, and nobody is told."""
    with suppress(sqlite3.IntegrityError):
        roll_back(transaction)


def roll_back_and_begin_anew(transaction: SqliteTransaction) -> None:
    """A savepoint outside of a transaction begins one, which is not the one that was lent."""
    roll_back_quietly(transaction)
    transaction.connection.execute("SAVEPOINT own")


def raise_in_a_trigger(transaction: SqliteTransaction) -> None:
    """RAISE(ROLLBACK)."""
    transaction.connection.execute("INSERT INTO guarded VALUES (1)")


def close_it(transaction: SqliteTransaction) -> None:
    """What the pipe lent is not the handler's to close."""
    transaction.connection.close()


@pytest.mark.parametrize("how", ["plain", "coroutine", "batch"])
@pytest.mark.parametrize(
    "end", [roll_back, roll_back_quietly, roll_back_and_begin_anew, raise_in_a_trigger, close_it]
)
def test_whoever_ends_the_transaction_has_failed_and_no_other_message_of_the_delivery(
    tmp_path: Path, how: str, end: Callable[[SqliteTransaction], None]
) -> None:
    """Number 2 of 0..4 does so at each of its two attempts: it alone has a letter, which says why, and all others
    have their effect once."""
    letters, calls = DeadLetters(), list[object]()

    def handle(message: object, transaction: Transaction) -> None:
        assert isinstance(transaction, SqliteTransaction)
        calls.append(message)
        put_effect(message, transaction)
        if message == 2:
            end(transaction)

    async def handle_in_task(message: object, transaction: Transaction) -> None:
        handle(message, transaction)

    def handle_many(messages: list[object], transaction: Transaction) -> None:
        for message in messages:
            handle(message, transaction)

    with sqlite_store(tmp_path) as store:
        make_effects(store)
        with store.transaction() as transaction:
            for sql in (
                "CREATE TABLE once (n UNIQUE)",
                "INSERT INTO once VALUES (1)",
                "CREATE TABLE guarded (n)",
                "CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
            ):
                transaction.connection.execute(sql)
        with Pipe(
            "orders",
            state=store,
            boundary="committed",
            retries=2,
            retry_min_s=0.001,
            dead_letter=letters,
        ) as pipe:
            pipe.send_many(range(5))
            if how == "batch":
                pipe.receive_many(handle_many)
            else:
                pipe.receive(handle_in_task if how == "coroutine" else handle)
            pipe.flush(PATIENCE_S)
        assert effects_in(store) == [0, 1, 3, 4]
    assert calls.count(2) == 3  # once beside others, and two attempts
    assert [(letter.seq, letter.attempts) for letter in letters] == [(3, 2)]
    assert "a statement ended the transaction" in next(iter(letters)).error_text


def test_a_receiver_whose_state_is_closed_under_it_ends_the_pipe_with_a_word(
    tmp_path: Path, steps: StepRuntime
) -> None:
    """No later state can be stored: flush raises at once, and waits for nothing."""
    store = ClosesAt(tmp_path / "pipes.db", CommitPosition)
    pipe = Pipe("orders", state=store, runtime=steps, seed=1, notices=Noted())
    pipe.receive(lambda _: None)
    pipe.send("a")
    with pytest.raises(PipeStopped, match=r"stopped: its state can't be stored .*is closed"):
        pipe.flush(3600)
    assert steps.now() < 60_000_000
    pipe.abort()


@pytest.mark.parametrize("uses", [True, False])
def test_a_store_that_is_closed_under_a_transaction_is_no_failure_of_the_message(
    tmp_path: Path, steps: StepRuntime, *, uses: bool
) -> None:
    """Whether or not its handler asks for the connection: no attempt is used up, and the pipe ends."""
    letters = DeadLetters()
    store = sqlite_store(tmp_path)
    make_effects(store)
    pipe = Pipe(
        "orders",
        state=store,
        boundary="committed",
        retries=1,
        dead_letter=letters,
        runtime=steps,
    )
    pipe.receive(put_effect if uses else lambda _message, _transaction: None)
    pipe.send("a", until="confirmed", timeout=60)
    store.close()
    pipe.send("b")
    with pytest.raises(PipeStopped, match=r"pipes\.db is closed"):
        pipe.flush(3600)
    assert steps.now() < 60_000_000
    pipe.abort()
    assert not list(letters)
    assert effects_in(store) == ["a"] * uses


def test_a_notice_of_a_failure_tells_where_it_was_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """File and line of the handler, in one line of the log; an exception without a text is its type."""

    def handle(_message: object, _transaction: Transaction) -> None:
        raise KeyboardInterrupt

    with sqlite_store(tmp_path) as store:
        pipe = Pipe("p", state=store, boundary="committed", retries=1, dead_letter=DeadLetters())
        with pipe:
            pipe.receive(handle)
            pipe.send(1, until="confirmed", timeout=PATIENCE_S)
    line = handle.__code__.co_firstlineno + 1
    where = f"raised KeyboardInterrupt (test_stored_committed.py:{line}). It is in the dead letters"
    assert f"message 1: 1 attempt, which {where}" in caplog.text


def test_two_stores_on_one_file_are_one_store(tmp_path: Path) -> None:
    """The algebra knows a SQLite store by its file."""
    with sqlite_store(tmp_path) as one, SqliteStore(one.path) as other:
        assert one.name == other.name
