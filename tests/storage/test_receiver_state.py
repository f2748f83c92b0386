"""A receiver's durable state over real stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.core.effects import (
    OpenLife,
    SaveState,
    WriteFailed,
    WriteFenced,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    STATE_MAX_BYTES,
    ClaimReader,
    CommitPosition,
    GetPosition,
    Level,
)
from surepipe.core.store_requests import FencedOut as StoreFenced
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreUnavailable
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.positions import ReceiverState
from surepipe.storage.sqlite.store import SqliteStore
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.storage.sqlite_bench import SqliteBench


@pytest.fixture(name="store")
def make_store(any_bench: MemoryBench | SqliteBench | RedisBench) -> FaultyStore:
    """Each store, with misfortunes on demand."""
    return FaultyStore(any_bench.store)


def loaded(store: FaultyStore) -> tuple[ReceiverState, bytes | None]:
    """A new incarnation and what it finds."""
    state = ReceiverState(store, "pipe")
    return state, state.load()


def test_the_last_saved_state_is_found(store: FaultyStore) -> None:
    """K-5: a new receiver has none; after that the last one, as often as it is asked for."""
    state, found = loaded(store)
    assert found is None
    for saved in (b"one", b"", b"three"):
        assert state.write(SaveState(saved)) == WriteStored()
        assert loaded(store)[1] == saved
        state = loaded(store)[0]


def test_an_empty_state_is_not_none(store: FaultyStore) -> None:
    """S-9: saved and empty differs from never saved."""
    loaded(store)[0].write(SaveState(b""))
    assert loaded(store)[1] == b""


def test_an_older_incarnation_saves_nothing(store: FaultyStore) -> None:
    """S-9: the zombie is told who has taken over, and the state stays."""
    older, _ = loaded(store)
    older.write(SaveState(b"old"))
    newer, found = loaded(store)
    assert found == b"old"
    assert newer.write(SaveState(b"new")) == WriteStored()
    assert older.write(SaveState(b"zombie")) == WriteFenced(2)
    assert loaded(store)[1] == b"new"


def test_a_load_whose_answer_was_lost_is_the_same_incarnation(store: FaultyStore) -> None:
    """S-2: the claim is repeated with the same claimant, so it fences nobody, least of all itself."""
    state = ReceiverState(store, "pipe")
    for on in (ClaimReader, GetPosition):
        store.script(Misfortune.UNKNOWN, on=on)
        with pytest.raises(StoreUnavailable):
            state.load()
    assert state.load() is None
    assert state.write(SaveState(b"x")) == WriteStored()
    other, _ = loaded(store)
    assert other.write(SaveState(b"y")) == WriteStored()
    assert state.write(SaveState(b"z")) == WriteFenced(2)


def test_a_renewal_goes_on_and_fences_what_it_renews(store: FaultyStore) -> None:
    """S-9: the same life loads again: it keeps the receiver, and a commit that it made before comes too late."""
    state, _ = loaded(store)
    before = state.request(b"late")
    assert state.load() is None
    assert state.write(SaveState(b"x")) == WriteStored()
    assert store.commit(before) == StoreFenced(2)
    assert state.load() == b"x"


def test_a_life_that_was_replaced_never_loads_again(store: FaultyStore) -> None:
    """S-9: a later life has the receiver, whether or not it was seen at work; it goes on."""
    older, _ = loaded(store)
    newer, _ = loaded(store)
    for _ in range(2):
        with pytest.raises(Fenced, match="began later"):
            older.load()
    assert newer.write(SaveState(b"x")) == WriteStored()
    assert newer.load() == b"x"


def test_a_save_without_an_answer_is_asked_again(store: FaultyStore) -> None:
    """S-2: done or not done, the second time it is done."""
    state, _ = loaded(store)
    for misfortune in (Misfortune.OUTAGE, Misfortune.UNKNOWN):
        store.script(misfortune, on=CommitPosition)
        assert state.write(SaveState(b"x")) == WriteUnknown()
        assert state.write(SaveState(b"x")) == WriteStored()
    assert loaded(store)[1] == b"x"


def test_a_state_above_its_bound_fails_and_the_former_stays(store: FaultyStore) -> None:
    """S-10: 64 KiB."""
    state, _ = loaded(store)
    state.write(SaveState(b"former"))
    outcome = state.write(SaveState(b"x" * (STATE_MAX_BYTES + 1)))
    assert isinstance(outcome, WriteFailed)
    assert loaded(store)[1] == b"former"


def test_a_refusal_is_told_with_its_reason(store: FaultyStore) -> None:
    """S-1: at the load and at a save."""
    store.script(Misfortune.REFUSED)
    with pytest.raises(ConfigurationError, match="on purpose"):
        loaded(store)
    state, _ = loaded(store)
    store.script(Misfortune.REFUSED)
    assert state.write(SaveState(b"x")) == WriteFailed("refused, on purpose")
    with pytest.raises(MisuseError):
        state.write(OpenLife(1))


def test_a_store_that_went_back_takes_the_next_state(store: FaultyStore) -> None:
    """F17: an older state comes back, the running receiver saves on top of it."""
    state, _ = loaded(store)
    state.write(SaveState(b"one"))
    store.mark()
    state.write(SaveState(b"two"))
    store.script(Misfortune.ROLL_BACK)
    assert loaded(store)[1] == b"one"


def test_effects_and_state_in_one_transaction_are_both_there_or_neither(tmp_path: Path) -> None:
    """K-3 committed, K-6: the row and the state; a zombie's row is undone with its state."""
    with SqliteStore(tmp_path / "store.db", level=Level.PROCESS) as store:
        with store.transaction() as transaction:
            transaction.connection.execute("CREATE TABLE effects (text)")
        older = ReceiverState(store, "pipe")
        older.load()
        with store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES ('first')")
            transaction.commit(older.request(b"one"))
        assert transaction.done
        newer = ReceiverState(store, "pipe")
        assert newer.load() == b"one"
        with store.transaction() as transaction:
            transaction.connection.execute("INSERT INTO effects VALUES ('zombie')")
            transaction.commit(older.request(b"two"))
        assert not transaction.done
        with store.transaction() as transaction:
            rows = transaction.connection.execute("SELECT text FROM effects").fetchall()
        assert rows == [("first",)]
        assert newer.load() == b"one"


def save(store: FaultyStore, state: ReceiverState, saved: bytes) -> CommitPosition:
    """A commit as a transaction of a host makes it."""
    request = state.request(saved)
    store.commit(request)
    return request


def test_a_transaction_that_nobody_heard_of_is_looked_up(store: FaultyStore) -> None:
    """S-9: done, not done, and never made; each time the state belongs to a later incarnation."""
    state, _ = loaded(store)
    state.done(save(store, state, b"one"))
    store.script(Misfortune.OUTAGE, on=CommitPosition)
    assert state.look_again(save(store, state, b"two")) is False
    store.script(Misfortune.UNKNOWN, on=CommitPosition)
    assert state.look_again(save(store, state, b"two")) is True
    assert state.look_again(None) is False
    assert loaded(store)[1] == b"two"


def test_a_transaction_that_comes_late_is_refused_once_it_was_looked_up(store: FaultyStore) -> None:
    """S-9: the answer stays true."""
    state, _ = loaded(store)
    late = state.request(b"late")
    assert state.look_again(late) is False
    assert isinstance(store.commit(late), StoreFenced)


def test_a_store_that_holds_neither_is_no_answer(store: FaultyStore) -> None:
    """store-rollback: more is stored than this receiver knows of, and not the commit that it asks for."""
    state, _ = loaded(store)
    save(store, state, b"one")
    save(store, state, b"two")
    assert state.look_again(None) is None


def test_a_store_that_went_back_under_a_receiver_is_told_once(store: FaultyStore) -> None:
    """F14: of three saves two are gone when the next incarnation begins. Another life knows nothing of them."""
    state, _ = loaded(store)
    state.write(SaveState(b"one"))
    store.mark()
    state.write(SaveState(b"two"))
    state.write(SaveState(b"three"))
    assert (state.load(), state.rollback()) == (b"three", "")
    store.script(Misfortune.ROLL_BACK)
    state.load()
    assert "went back to save 1 of 3" in state.rollback()
    assert state.rollback() == ""
    assert (state.load(), state.rollback()) == (b"one", "")
    assert ReceiverState(store, "pipe").rollback() == ""
