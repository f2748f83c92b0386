"""The journal over real stores side by side with that of the test kit, and under a pipe that crashes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from surepipe.core.effects import (
    AppendRows,
    ForgetRows,
    JournalContents,
    NoteTransmitted,
    OpenLife,
    Renumber,
    Write,
    WriteOutcome,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    AppendRun,
    ClaimReader,
    CommitPosition,
    Level,
    OpenProducer,
    Store,
)
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.journal import StoreJournal
from surepipe.storage.memory import MemoryStore
from surepipe.storage.sqlite.store import SqliteStore
from tests.contracts.store_contract import texts
from tests.kit.journal import MemoryJournal
from tests.kit.wire import Wire


def contents_of(store: Store) -> JournalContents:
    """What the next life would find."""
    return StoreJournal(store, store, "pipe").load()


CALLS = st.sampled_from([OpenProducer, AppendRun, ClaimReader, CommitPosition, object])
TROUBLE = st.lists(
    st.tuples(st.sampled_from([Misfortune.UNKNOWN, Misfortune.OUTAGE]), CALLS), max_size=2
)


class AgainstTheReference(RuleBasedStateMachine):
    """Whatever a sender may write, in any order, with lost calls and answers and crashes."""

    def new_store(self) -> Store:
        """The store under the journal."""
        return MemoryStore()

    def restart_store(self, store: Store) -> Store:
        """The process ends and starts again."""
        return store

    @initialize()
    def begin(self) -> None:
        """A first life."""
        self.inside = self.new_store()
        self.reference = MemoryJournal()
        self.life = 0
        self.next = 1
        self.payloads = 0
        self.crash(1, [])

    @rule(above=st.integers(1, 3), trouble=TROUBLE)
    def crash(self, above: int, trouble: list[tuple[Misfortune, type[object]]]) -> None:
        """A new life, which finds what the reference has."""
        self.inside = self.restart_store(self.inside)
        self.store = FaultyStore(self.inside)
        self.journal = StoreJournal(self.store, self.store, "pipe")
        assert self.journal.load() == self.reference.contents()
        self.life = self.reference.life + above
        self.next = 1
        self.write(OpenLife(self.life), trouble)

    def write(self, write: Write, trouble: list[tuple[Misfortune, type[object]]]) -> None:
        """The write, as a machine does it: again until the outcome is known."""
        for misfortune, on in trouble:
            self.store.script(misfortune, on=on)
        outcome: WriteOutcome = WriteUnknown()
        for _ in range(6):
            outcome = self.journal.write(write)
            if outcome != WriteUnknown():
                break
        self.store.calm()
        assert outcome == self.reference.write(write)

    @rule(count=st.integers(1, 5), trouble=TROUBLE)
    def append(self, count: int, trouble: list[tuple[Misfortune, type[object]]]) -> None:
        """New rows."""
        payloads = texts(*(f"m{self.payloads + n}" for n in range(count)))
        self.write(AppendRows(self.life, self.next, payloads), trouble)
        self.payloads += count
        self.next += count

    @rule(trouble=TROUBLE)
    def note(self, trouble: list[tuple[Misfortune, type[object]]]) -> None:
        """The own epoch goes on the wire."""
        self.write(NoteTransmitted(self.life), trouble)

    @rule(part=st.floats(0, 1), trouble=TROUBLE)
    def forget(self, part: float, trouble: list[tuple[Misfortune, type[object]]]) -> None:
        """Some rows of the oldest epoch are confirmed."""
        rows = self.reference.contents().rows
        if rows:
            count = round(part * len(rows[0].payloads))
            self.write(ForgetRows(rows[0].epoch, rows[0].first - 1 + count), trouble)

    @rule(back=st.integers(0, 3), above=st.integers(1, 3), trouble=TROUBLE)
    def renumber(
        self, back: int, above: int, trouble: list[tuple[Misfortune, type[object]]]
    ) -> None:
        """The rows of some epochs get new numbers."""
        kept = self.reference.contents().rows
        rows = kept[max(0, len(kept) - back) :]
        payloads = [payload for part in rows for payload in part.payloads]
        epochs = tuple(part.epoch for part in rows)
        self.life += above
        self.write(Renumber(self.life, payloads, epochs), trouble)
        self.next = len(payloads) + 1

    @invariant()
    def the_next_life_would_find_the_same(self) -> None:
        """After each step."""
        assert contents_of(self.inside) == self.reference.contents()


class AgainstTheReferenceOnSqlite(AgainstTheReference):
    """The same on a file that is closed and opened at each crash."""

    def new_store(self) -> Store:
        self.folder = TemporaryDirectory()
        return self.open()

    def open(self) -> SqliteStore:
        """The file."""
        return SqliteStore(Path(self.folder.name, "store.db"), level=Level.PROCESS)

    def restart_store(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        store.close()
        return self.open()

    def teardown(self) -> None:
        assert isinstance(self.inside, SqliteStore)
        self.inside.close()
        self.folder.cleanup()


TestAgainstTheReference = AgainstTheReference.TestCase
TestAgainstTheReferenceOnSqlite = AgainstTheReferenceOnSqlite.TestCase
TestAgainstTheReference.settings = settings(max_examples=60, stateful_step_count=30)
TestAgainstTheReferenceOnSqlite.settings = settings(max_examples=15)


# Under a pipe.


@dataclass
class JournalOnAStore(MemoryJournal):
    """The kit's journal and a real one side by side; the machine gets what the real one says."""

    bench: StoreMaker = field(default_factory=lambda: StoreMaker(None))

    def __post_init__(self) -> None:
        self.real = StoreJournal(self.bench.store, self.bench.store, "pipe")

    def contents(self) -> JournalContents:
        """A new life: the store's process was restarted with the sender's."""
        self.bench.restart()
        self.real = StoreJournal(self.bench.store, self.bench.store, "pipe")
        found = self.real.load()
        assert replace(found, renumbered=()) == super().contents()
        return found

    def write(self, write: Write) -> WriteOutcome:
        """Both."""
        outcome = self.real.write(write)
        assert outcome == super().write(write)
        return outcome


class StoreMaker:
    """A store in memory, or in a file that is opened anew at each restart."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.store: MemoryStore | SqliteStore = MemoryStore() if path is None else self.open()

    def open(self) -> SqliteStore:
        """The file."""
        assert self.path
        return SqliteStore(self.path, level=Level.PROCESS)

    def restart(self) -> None:
        """The process ends and starts again. A store in memory stands for one that lives elsewhere."""
        if isinstance(self.store, SqliteStore):
            self.store.close()
            self.store = self.open()

    def close(self) -> None:
        """The end."""
        if isinstance(self.store, SqliteStore):
            self.store.close()


MESSAGES = 12
COMMITTED = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_sender_that_crashes_anywhere_loses_and_repeats_nothing(
    tmp_path: Path, kind: str
) -> None:
    """rl2, S-13: the sender dies after every third effect and again seven effects later; the journal is real."""
    for step in range(1, 50, 3):
        maker = StoreMaker(tmp_path / f"{step}.db" if kind == "sqlite" else None)
        wire = Wire(
            "reliable",
            boundary=COMMITTED,
            journal=JournalOnAStore(bench=maker),
            crashes=frozenset({("sender", step), ("sender", step + 7)}),
        )
        for number in range(MESSAGES):
            wire.send(number)
        wire.run()
        maker.close()
        expected = [*range(1, len(wire.accepted) + 1)]
        assert wire.settled == expected, f"crash after effect {step}"
        assert wire.confirmed == {*expected}
