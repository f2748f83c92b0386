"""Streams with a bound that have no room: for what a handler appends, and for a reader that never comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from surepipe.actors import DeadLetters, Pipe, PipeNotice, StreamReceiver, StreamSender
from surepipe.actors.consuming import committed
from surepipe.core.effects import NoticeKind
from surepipe.core.store_requests import (
    AppendRun,
    Batch,
    CommitPosition,
    Created,
    Level,
    Owner,
    Store,
    Transaction,
)
from surepipe.errors import NotConfirmed, PipeStopped
from surepipe.storage import MemoryStore, RedisStore, Retention, forget_reader, readers_of
from surepipe.testing.servers import local_servers
from tests.actors.kit import PATIENCE_S, Noted
from tests.actors.stored_kit import sqlite_store

BOUND = Retention(max_bytes=20)
"""Two entries of the handlers here."""
READS = (
    "stream 'audit' is full (max_bytes=20): reader 'slow' has still to read 2 entries, from 1 on"
)


class KeptMemory(MemoryStore):
    """A memory that claims to outlive its process, as a state must."""

    @property
    def level(self) -> Level:
        return Level.PROCESS


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each store."""
    if request.param == "memory":
        yield KeptMemory()
    elif request.param == "sqlite":
        with sqlite_store(tmp_path) as kept:
            yield kept
    else:
        (source, *_) = local_servers()
        with (
            closing(source.server().start()) as server,
            RedisStore.from_url(server.url, pipeline="p", level=Level.PROCESS) as redis,
        ):
            yield redis


class SlowReader:
    """A registered reader of the stream, which goes on when it is told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        created = store.create("audit", 1, BOUND)
        assert isinstance(created, Created)
        owner = store.claim("audit", "slow", 1)
        assert isinstance(owner, Owner)
        self._owner, self._tag = owner.number, created.incarnation
        self.go_on_at(1)

    def go_on_at(self, index: int) -> None:
        self._store.commit(
            CommitPosition("audit", "slow", self._owner, self._tag, index, None, b"")
        )


def ten_bytes(message: object) -> bytes:
    """The number in so many."""
    return str(message).rjust(10).encode()


def append(message: object, transaction: Transaction) -> None:
    """The handler: one entry for each message, by a producer of its own."""
    transaction.append(AppendRun("audit", f"m{message}", 1, 1, [ten_bytes(message)]))


def entries_in(store: Store, first: int) -> list[bytes]:
    """All entries of the stream from an index on."""
    found = store.read("audit", first, 100, 10_000)
    assert isinstance(found, Batch)
    return [payload for entries in found.entries for payload in entries.payloads]


class Told(Noted):
    """Notices, and who waits for one of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.came = {kind: threading.Event() for kind in NoticeKind}

    def __call__(self, notice: PipeNotice) -> None:
        super().__call__(notice)
        self.came[notice.kind].set()


def append_all(messages: list[object], transaction: Transaction) -> None:
    """The same of a batch."""
    for message in messages:
        append(message, transaction)


@pytest.mark.parametrize("together", [False, True])
def test_a_message_whose_append_finds_no_room_waits_and_uses_up_no_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """With one attempt, a full stream makes no letter. It is told once, with who is behind, and once when there is
    room; the order is kept. Of a batch what fits is stored message by message."""
    monkeypatch.setattr(
        committed, "SILENT_US", 1
    )  # told at the second attempt, not after two seconds
    reader, notices, letters = SlowReader(store), Told(), DeadLetters()
    with Pipe(
        *("orders",),
        state=store,
        boundary="committed",
        retries=1,
        dead_letter=letters,
        notices=notices,
    ) as pipe:
        if together:
            pipe.receive_many(append_all)
        else:
            pipe.receive(append)
        pipe.send_many(range(4))
        assert notices.came[NoticeKind.UNANSWERED].wait(PATIENCE_S)
        with pytest.raises(NotConfirmed) as told:
            pipe.flush(0)
        assert f"and that for room. {READS}" in str(told.value)
        reader.go_on_at(3)
        pipe.flush(PATIENCE_S)
        assert notices.came[NoticeKind.RECOVERED].wait(PATIENCE_S)
        assert notices.kinds() == ["Unanswered", "Recovered"]
        assert READS in notices.notices[0].detail
        assert "stream 'audit' has room again, after" in notices.notices[1].detail
    assert list(letters) == []
    assert entries_in(store, 3) == [ten_bytes(2), ten_bytes(3)]


@pytest.mark.parametrize("together", [False, True])
def test_while_one_message_waits_for_room_no_other_is_handled_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """Room for two of eight, which are handled together: what was taken back is handled once more, one by one, and
    from then on only the one without room, however long it waits."""
    monkeypatch.setattr(committed, "ROOM_AGAIN_US", 1)
    SlowReader(store)
    calls, has_waited = Counter[object](), threading.Event()

    def handle(message: object, transaction: Transaction) -> None:
        calls[message] += 1
        if calls[2] == 8:
            has_waited.set()
        append(message, transaction)

    def handle_all(messages: list[object], transaction: Transaction) -> None:
        for message in messages:
            handle(message, transaction)

    with Pipe("orders", state=store, boundary="committed") as pipe:
        pipe.send_many(range(8))
        if together:
            pipe.receive_many(handle_all)
        else:
            pipe.receive(handle)
        assert has_waited.wait(PATIENCE_S)
        assert max(calls[one] for one in (0, 1)) <= 2
        assert max(calls[one] for one in (3, 4, 5, 6, 7)) <= 1
        forget_reader(store, "audit", "slow")
        pipe.flush(PATIENCE_S)
    assert max(calls[one] for one in (3, 4, 5, 6, 7)) <= 2
    assert entries_in(store, 7) == [ten_bytes(6), ten_bytes(7)]


def test_what_would_not_fit_into_an_empty_stream_is_the_failure_of_its_message(
    store: Store,
) -> None:
    """Three runs of ten bytes in one transaction, where twenty are kept: a letter says so, and nothing waits."""
    SlowReader(store)
    letters = DeadLetters()

    def handle(message: object, transaction: Transaction) -> None:
        for seq in (1, 2, 3) if message == 0 else (1,):
            transaction.append(AppendRun("audit", f"m{message}", 1, seq, [ten_bytes(message)]))

    with Pipe(
        *("orders",),
        state=store,
        boundary="committed",
        retries=1,
        dead_letter=letters,
    ) as pipe:
        pipe.receive(handle)
        pipe.send_many(range(2))
        pipe.flush(PATIENCE_S)
    (letter,) = letters
    assert letter.error_type == "PayloadTooLarge"
    assert "appends 30 bytes to stream 'audit', which keeps 20 at most" in letter.error_text
    assert entries_in(store, 1) == [ten_bytes(1)]


def test_a_reader_that_appends_to_the_stream_it_reads_does_not_wait_for_itself(
    store: Store,
) -> None:
    """Only the end of this very message would make room."""
    letters, encoded = DeadLetters(), b'"a long one"'
    options = {"stream": {"start": "earliest", "stream": "audit", "reader": "slow"}}
    reader = SlowReader(store)
    del reader
    store.append("audit", "p", 1, 1, [encoded])

    def handle(_: object, transaction: Transaction) -> None:
        transaction.append(AppendRun("audit", "p", 1, 2, [encoded]))

    with StreamReceiver(
        *("loop", options),
        store=store,
        codec="json",
        retention=BOUND,
        boundary="committed",
        retries=1,
        dead_letter=letters,
    ) as receiver:
        receiver.receive(handle)
        receiver.catch_up(PATIENCE_S)
    (letter,) = letters
    assert letter.error_type == "WaitsForItself"
    assert "That reader is this pipe's own" in letter.error_text


def test_a_pipe_that_waits_for_room_can_be_closed_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """On threads, with a coroutine handler: the wait ends at once, and nothing is lost or done twice."""
    with sqlite_store(tmp_path) as store:
        reader = SlowReader(store)

        async def handle(message: object, transaction: Transaction) -> None:
            append(message, transaction)

        pipe = Pipe("orders", journal=store, state=store, boundary="committed")
        pipe.receive(handle)
        pipe.send_many(range(4))
        works = pipe.receiver.works
        assert works.signal.wait(lambda: bool(works.waits_for), PATIENCE_S)
        pipe.abort()
        reader.go_on_at(3)
        with Pipe("orders", journal=store, state=store, boundary="committed") as pipe:
            pipe.receive(handle)
            pipe.flush(PATIENCE_S)
        assert entries_in(store, 3) == [ten_bytes(2), ten_bytes(3)]


def view(store: Store, notices: Noted, **options: object) -> StreamReceiver:
    """A reader of the stream by the name of tab."""
    layer = {"stream": {"start": "earliest", "reader": "tab", "commit": "message", **options}}
    return StreamReceiver(
        "audit", layer, store=store, retention=BOUND, codec="json", notices=notices
    )


def send(store: Store, *numbers: int) -> None:
    """As a sender does, which waits for room."""
    with StreamSender("audit", store=store, retention=BOUND, codec="json") as sender:
        for number in numbers:
            sender.send(number, until="confirmed", timeout=PATIENCE_S)


def test_who_waits_for_a_full_stream_is_told_of_the_reader_that_left(store: Store) -> None:
    """A view that was closed for ever holds entries back: the sender's error names it, and so does the list of
    readers. Forgotten, it holds back nothing, and what was sent is stored."""
    with view(store, Noted()):
        pass
    notices = Told()
    with StreamSender(
        *("audit", {"stream": {"rto_min_s": 0.001}}),
        store=store,
        retention=BOUND,
        codec="json",
        notices=notices,
    ) as sender:
        sender.send("ten bytes", until="confirmed")
        sender.send("ten bytes")
        assert notices.came[NoticeKind.UNANSWERED].wait(PATIENCE_S)
        why = "stream 'audit' is full (max_bytes=20): reader 'tab' has still to read 1 entry, from 1 on"
        assert why in notices.notices[0].detail
        with pytest.raises(NotConfirmed) as told:
            sender.flush(0)
        assert f"what was sent waits for room. {why}" in str(told.value)
        (left,) = readers_of(store, "audit")
        assert (left.next, left.lag) == (1, 1)
        assert forget_reader(store, "audit", left.reader) == left
        assert readers_of(store, "audit") == ()
        sender.flush(PATIENCE_S)


def test_a_reader_that_was_forgotten_goes_on_at_its_place_where_all_is_there(store: Store) -> None:
    """It does not begin anew by its start, and is a registered reader again."""
    notices = Noted()
    with view(store, notices) as tab:
        send(store, 1, 2)
        assert next(iter(tab)) == 1
        messages = iter(tab)
        assert (next(messages), next(messages)) == (1, 2)
    (left,) = readers_of(store, "audit")
    assert left.next == 2
    forget_reader(store, "audit", left.reader)
    with view(store, notices) as tab:
        assert readers_of(store, "audit") == (left,)
        tab.finish()
        assert list(tab) == [2]
    assert notices.notices == []


@pytest.mark.parametrize("on_trimmed", ["stop", "skip"])
def test_a_reader_that_was_forgotten_is_told_what_it_has_missed(
    store: Store, on_trimmed: str
) -> None:
    """Entries went while nothing was kept for it: by its ``on_trimmed`` it stops, and stays forgotten, or goes on
    behind them."""
    with view(store, Noted()):
        pass
    forget_reader(store, "audit", readers_of(store, "audit")[0].reader)
    send(store, *range(100, 120))
    notices = Noted()
    with view(store, notices, on_trimmed=on_trimmed) as tab:
        if on_trimmed == "stop":
            with pytest.raises(PipeStopped, match="are gone that reader 'tab' has not read"):
                tab.wait(PATIENCE_S)
            assert readers_of(store, "audit") == ()
        else:
            tab.finish()
            assert list(tab)[-1] == 119
    assert notices.kinds()[0] == "Trimmed"
    assert notices.notices[0].ranges[0][0] == 1


def test_a_reader_that_is_forgotten_while_it_is_at_work_stops_and_says_so(store: Store) -> None:
    """Its next commit is refused, and nothing that it does is stored from then on."""
    notices = Noted()
    with view(store, notices) as tab:
        forget_reader(store, "audit", "tab")
        got = iter(tab)
        send(store, 1, 2)
        with pytest.raises(PipeStopped, match="the reader was forgotten"):
            list(got)
    assert notices.kinds() == ["Fenced"]
    assert readers_of(store, "audit") == ()


def test_only_a_reader_that_there_is_can_be_forgotten(store: Store) -> None:
    """The error names those that there are; a repeat is one of a reader that is none any more."""
    with pytest.raises(LookupError, match="'audit' does not exist"):
        readers_of(store, "audit")
    SlowReader(store)
    with pytest.raises(LookupError, match="has no reader 'fast'; it has 'slow'"):
        forget_reader(store, "audit", "fast")
    forget_reader(store, "audit", "slow")
    with pytest.raises(LookupError, match="has no reader 'slow'; it has none"):
        forget_reader(store, "audit", "slow")


# Streams that nobody has ever read.


UNREAD = "stream 'audit' is full (max_bytes=20): nobody has read it yet, and until then nothing may go. Let its"


def test_what_was_sent_before_the_first_reader_began_is_not_lost(store: Store) -> None:
    """The sender fills the stream, and is told that nobody reads. The reader that comes gets all of it, and hears
    of nothing that is gone."""
    notices, told, got = Told(), Noted(), list[object]()
    with StreamSender(
        *("audit", {"stream": {"rto_min_s": 0.001}}),
        store=store,
        retention=BOUND,
        codec="json",
        notices=notices,
    ) as sender:
        for number in range(100, 106):
            sender.send(number, until="confirmed", timeout=PATIENCE_S)
        for number in range(106, 150):
            sender.send(number)
        assert notices.came[NoticeKind.UNANSWERED].wait(PATIENCE_S)
        assert UNREAD in notices.notices[0].detail
        with pytest.raises(NotConfirmed, match="nobody has read it yet"):
            sender.flush(0)
        assert readers_of(store, "audit") == ()
        with view(store, told) as tab:
            tab.receive(got.append)
            sender.flush(PATIENCE_S)
            assert tab.catch_up(PATIENCE_S)
    assert got == list(range(100, 150))
    assert told.notices == []


def test_a_handler_that_appends_waits_for_the_first_reader_of_all(store: Store) -> None:
    """As for one that is behind: nothing is appended that would push out what nobody has read."""
    store.create("audit", 1, BOUND)
    notices, got = Told(), list[object]()
    with Pipe("orders", state=store, boundary="committed", notices=notices) as pipe:
        pipe.receive(append)
        pipe.send_many(range(8))
        assert notices.came[NoticeKind.UNANSWERED].wait(PATIENCE_S)
        assert UNREAD in notices.notices[0].detail
        assert entries_in(store, 1) == [ten_bytes(0), ten_bytes(1)]
        with view(store, Noted()) as tab:
            tab.receive(got.append)
            pipe.flush(PATIENCE_S)
            assert tab.catch_up(PATIENCE_S)
    assert got == list(range(8))


def test_a_stream_that_is_read_from_elsewhere_does_not_wait_for_another_reader(
    tmp_path: Path,
) -> None:
    """The reader's place is in another store. It leaves word when it reads, and no reader is listed."""
    got = list[object]()
    with (
        sqlite_store(tmp_path, "stream.db") as store,
        sqlite_store(tmp_path, "places.db") as places,
        StreamSender("audit", store=store, retention=BOUND, codec="json") as sender,
    ):
        sender.send(100, until="confirmed", timeout=PATIENCE_S)
        layer = {"stream": {"start": "earliest"}}
        with StreamReceiver(
            "audit", layer, store=store, state=places, retention=BOUND, codec="json"
        ) as reader:
            reader.receive(got.append)
            for number in range(101, 120):
                sender.send(number, until="confirmed", timeout=PATIENCE_S)
                assert reader.catch_up(PATIENCE_S)
        assert readers_of(store, "audit") == ()
    assert got == list(range(100, 120))


def test_a_reader_that_begins_behind_what_is_gone_is_told_once(store: Store) -> None:
    """By force entries go before anybody came. It reads what is there, and at its next start nothing is told."""
    forced = Retention(max_bytes=20, force=True)
    layer = {"stream": {"start": "earliest"}}
    with StreamSender("audit", store=store, retention=forced, codec="bytes") as sender:
        for number in range(5):
            sender.send(ten_bytes(number), until="confirmed", timeout=PATIENCE_S)
    notices, got = Noted(), list[object]()
    for _ in range(2):
        with StreamReceiver(
            *("audit", layer), store=store, retention=forced, codec="bytes", notices=notices
        ) as reader:
            reader.receive(got.append)
            assert reader.catch_up(PATIENCE_S)
    assert got == [ten_bytes(3), ten_bytes(4)]
    assert [(str(one.kind), one.ranges) for one in notices.notices] == [("Trimmed", ((1, 3),))]
    assert "begins at entry 4" in notices.notices[0].detail
