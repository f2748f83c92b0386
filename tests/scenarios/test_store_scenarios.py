"""Stores that do things late, and what it would have cost."""

from __future__ import annotations

from surepipe.core.effects import (
    AppendRows,
    ForgetRows,
    NoteTransmitted,
    OpenLife,
    SaveState,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import CommitPosition
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.journal import StoreJournal
from surepipe.storage.memory import MemoryStore
from surepipe.storage.positions import ReceiverState
from tests.contracts.store_contract import texts


def test_journal_late_commit_takes_back_that_an_epoch_was_on_the_wire() -> None:
    """journal: late commit: an older state of the same index arrives after the note of the transmission.

    L-5, S-9: without a revision the next life would renumber rows that the receiver may have, and repeat them.
    """
    store = FaultyStore(MemoryStore())
    journal = StoreJournal(store, store, "pipe")
    journal.load()
    assert journal.write(OpenLife(3)) == WriteStored()
    assert journal.write(AppendRows(3, 1, texts("a", "b"))) == WriteStored()
    store.script(Misfortune.LATE, on=CommitPosition, amount=2)
    assert journal.write(ForgetRows(3, 0)) == WriteUnknown()
    assert journal.write(NoteTransmitted(3)) == WriteStored()
    assert StoreJournal(store, store, "pipe").load().transmitted == 3


def test_receiver_state_late_save_brings_an_older_state_back() -> None:
    """receiver state: late save: given up, saved anew with more in it, then done after all.

    K-5, S-9: the older state would make the receiver take settled messages once more.
    """
    store = FaultyStore(MemoryStore())
    state = ReceiverState(store, "pipe")
    assert state.load() is None
    store.script(Misfortune.LATE, on=CommitPosition, amount=2)
    assert state.write(SaveState(b"through 5")) == WriteUnknown()
    assert state.write(SaveState(b"through 9")) == WriteStored()
    assert ReceiverState(store, "pipe").load() == b"through 9"


def test_stream_append_that_comes_late_is_stored_once() -> None:
    """stream: late append: given up, asked again and stored, then done after all (S-5)."""
    store = FaultyStore(MemoryStore())
    journal = StoreJournal(store, store, "pipe")
    journal.load()
    journal.write(OpenLife(3))
    store.script(Misfortune.LATE, amount=1)
    assert journal.write(AppendRows(3, 1, texts("a"))) == WriteUnknown()
    assert journal.write(AppendRows(3, 1, texts("a"))) == WriteStored()
    assert journal.write(AppendRows(3, 2, texts("b"))) == WriteStored()
    (rows,) = StoreJournal(store, store, "pipe").load().rows
    assert rows.payloads == texts("a", "b")
