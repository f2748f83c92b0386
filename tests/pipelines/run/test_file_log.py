"""Files of lines whose store decides what is in them: crashes between any two steps, two processes on a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from surepipe.core.store_requests import Level, StreamInfo, Transaction
from surepipe.errors import StoreUnavailable
from surepipe.pipelines.assembly import FilePlace
from surepipe.pipelines.run.file_log import PIECE, TRIM_EVERY, FileLog
from surepipe.pipelines.sinks.files import CsvLines, JsonlLines
from surepipe.pipelines.stages import About
from surepipe.storage.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Generator[SqliteStore]:
    """The store of a receiver's state."""
    with SqliteStore(tmp_path / "main.db", level=Level.PROCESS) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file."""
    return tmp_path / "a.jsonl"


LIVES = count(1)


def now() -> int:
    """The number of a life that begins now."""
    return next(LIVES) << 20


def log_of(store: SqliteStore) -> FileLog:
    """The log of a process that begins now."""
    return FileLog(store, "shop/out/place", now)


def opened(path: Path, store: SqliteStore) -> JsonlLines:
    """The file as a new process opens it."""
    return JsonlLines(path, log_of(store))


def given(sink: JsonlLines, transaction: Transaction, *messages: object) -> None:
    """A group, into this transaction."""
    sink.begin(transaction)
    for seq, message in enumerate(messages, 1):
        sink.put(message, About("shop/intake", 1, seq), transaction)
    sink.seal(transaction)


def committed(store: SqliteStore, sink: JsonlLines, *messages: object) -> None:
    """A group whose transaction is done; it is not in the file yet."""
    with store.transaction() as transaction:
        given(sink, transaction, *messages)
    assert transaction.done


def undone(store: SqliteStore, sink: JsonlLines, message: object) -> None:
    """A group whose transaction did nothing."""
    with suppress(ZeroDivisionError), store.transaction() as transaction:
        given(sink, transaction, message)
        raise ZeroDivisionError


def test_lines_are_in_the_file_once_their_transaction_is_done(
    path: Path, store: SqliteStore
) -> None:
    """Not before; and what a transaction that did nothing had is nowhere."""
    sink = opened(path, store)
    committed(store, sink, "one")
    assert path.read_text() == ""
    sink.land()
    assert path.read_text() == '"one"\n'
    undone(store, sink, "lost")
    with pytest.raises(StoreUnavailable, match="not known yet what became of the last lines"):
        committed(store, sink, "too early")
    sink.land()
    committed(store, sink, "two")
    committed(store, sink, "three")
    sink.land()
    assert path.read_text() == '"one"\n"two"\n"three"\n'


@pytest.mark.parametrize("lands", [False, True])
def test_after_a_crash_the_next_process_writes_what_is_missing(
    path: Path, store: SqliteStore, lands: bool
) -> None:
    """Between the transaction and the write, behind it, and in the middle: half of the group is there."""
    sink = opened(path, store)
    committed(store, sink, "one")
    sink.land()
    committed(store, sink, "two", "three")
    if lands:
        sink.land()
    else:
        with path.open("ab") as file:
            file.write(b'"tw')
    again = opened(path, store)
    assert path.read_text() == '"one"\n"two"\n"three"\n'
    committed(store, again, "four")
    again.close()
    assert path.read_text() == '"one"\n"two"\n"three"\n"four"\n'


def test_a_process_that_was_paused_and_replaced_cannot_harm_what_its_successor_wrote(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It stops between its transaction and its write, wakes up later, writes, and tries another group."""
    paused = opened(path, store)
    committed(store, paused, "one")
    successor = opened(path, store)
    committed(store, successor, "two")
    successor.land()
    committed(store, successor, "three")
    paused.land()
    successor.land()
    with store.transaction() as transaction:
        given(paused, transaction, "late")
    assert not transaction.done
    paused.land()
    assert "was taken over by a process that began later" in caplog.text
    paused.close()
    committed(store, successor, "four")
    successor.close()
    assert path.read_text() == '"one"\n"two"\n"three"\n"four"\n'


class Meeting(FileLog):
    """A log at which another process does something just before, and just after, it is claimed."""

    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    def claim(self) -> FilePlace | None:
        """Claim, with the other process around it."""
        self.before()
        place = super().claim()
        self.after()
        return place


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_another_process_is_just_writing_has_not_lost_lines(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    """The older process commits and writes between two looks of the newer one; whatever is seen, nobody is told
    that lines are gone, nothing is cut off, and nothing is there twice."""
    older = opened(path, store)
    committed(store, older, "one")
    older.land()

    def goes_on() -> None:
        for text in ("two", "three") if when == "before" else ("late",):
            with store.transaction() as transaction:
                given(older, transaction, text)
            older.land()

    log = Meeting(store, "shop/out/place", now)
    setattr(log, when, goes_on)
    with caplog.at_level(logging.WARNING):
        newer = JsonlLines(path, log)
    assert "are gone" not in caplog.text
    committed(store, newer, "last")
    newer.close()
    more = '"two"\n"three"\n' if when == "before" else ""
    assert path.read_text() == f'"one"\n{more}"last"\n'


def test_a_transaction_whose_answer_was_lost_is_looked_up(path: Path, store: SqliteStore) -> None:
    """It was done; the group is written all the same, and the next one stands behind it."""
    sink = opened(path, store)
    with store.transaction() as transaction:
        given(sink, transaction, "one")
    transaction.done = False  # as where the answer did not come
    sink.land()
    committed(store, sink, "two")
    sink.land()
    assert path.read_text() == '"one"\n"two"\n'


def test_a_file_that_was_moved_away_begins_anew_and_is_told_of(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    """What was decided and not written comes first; stale groups of the old file are not taken for new ones."""
    sink = opened(path, store)
    committed(store, sink, "one, which is long")
    sink.land()
    committed(store, sink, "two")
    path.rename(path.with_suffix(".old"))
    again = opened(path, store)
    assert "lines that were in it are gone" in caplog.text
    committed(store, again, "three")
    third = opened(path, store)
    third.close()
    assert path.read_text() == '"two"\n"three"\n'
    assert opened(path, store).line(1) == b"1\n"


def test_lines_that_somebody_else_added_are_cut_off_when_the_file_is_opened(
    path: Path, store: SqliteStore
) -> None:
    """The file is the store's; what was there before the first run stays, and its last line gets an end."""
    path.write_text('"mine"\n"too"')
    sink = opened(path, store)
    committed(store, sink, "one")
    sink.close()
    with path.open("a") as file:
        file.write("scribble\n")
    opened(path, store).close()
    assert path.read_text() == '"mine"\n"too"\n"one"\n'


def test_a_large_group_is_stored_in_pieces_and_what_is_written_is_forgotten(
    path: Path, store: SqliteStore
) -> None:
    """From time to time, and when the file is opened."""
    sink = opened(path, store)
    large = "x" * (3 * PIECE)
    committed(store, sink, large, "end")
    again = opened(path, store)
    assert path.read_text() == f'"{large}"\n"end"\n'
    for number in range(2 * TRIM_EVERY):
        committed(store, again, number)
        again.land()
    info = store.info("shop/out/place/lines")
    assert isinstance(info, StreamInfo)
    assert info.next - info.earliest <= TRIM_EVERY
    assert opened(path, store).line(1) == b"1\n"
    assert path.read_text().endswith(f"{2 * TRIM_EVERY - 1}\n")


def test_a_disk_that_is_full_is_waited_for(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided is written once there is room; until then nothing more is taken."""
    sink = opened(path, store)
    committed(store, sink, "one")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("surepipe.pipelines.sinks.files.os.pwrite", full)
        sink.land()
        with pytest.raises(StoreUnavailable, match="No space left"):
            committed(store, sink, "two")
    committed(store, sink, "two")
    sink.close()
    assert path.read_text() == '"one"\n"two"\n'


def test_a_csv_file_has_its_header_once_over_crashes(tmp_path: Path, store: SqliteStore) -> None:
    """Also where the header was decided and not written."""
    path = tmp_path / "a.csv"
    for number in range(3):
        sink = CsvLines(path, log_of(store))
        with store.transaction() as transaction:
            sink.begin(transaction)
            sink.put({"n": number}, About("shop/intake", 1, number), transaction)
            sink.seal(transaction)
    CsvLines(path, log_of(store)).close()
    assert path.read_text() == "n\n0\n1\n2\n"


def test_two_processes_that_add_lines_without_a_log_lose_none(path: Path) -> None:
    """Boundary processed: each adds at the end, wherever the other has brought that."""
    one, other = JsonlLines(path, None), JsonlLines(path, None)
    for number, sink in enumerate((one, other, other, one)):
        sink.begin(None)
        sink.put(number, About("shop/intake", 1, number), None)
        sink.seal(None)
    one.close()
    other.close()
    assert path.read_text() == "0\n1\n2\n3\n"
