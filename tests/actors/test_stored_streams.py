"""Stream pipes as applications use them: both ends together, each end alone, and what stands in the store
between."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors import Pipe, PipeNotice, StepRuntime, StreamReceiver, StreamSender
from surepipe.actors.codecs import choose_codec
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    ClaimReader,
    CommitPosition,
    DescribeStream,
    Level,
    OpenProducer,
    ReadFrom,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamDropped,
    StreamInfo,
    Unavailable,
    WaitForMore,
)
from surepipe.errors import (
    CompositionError,
    ConfigurationError,
    MisuseError,
    NotConfirmed,
    PipeStopped,
    StoreReset,
    StoreUnavailable,
)
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.boundary import Boundary
from surepipe.storage import MemoryStore, RedisStore, Retention, SqliteStore, change_retention
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.journal import StoreJournal
from surepipe.storage.letters import DeadLetterStream
from surepipe.storage.redis.link import RedisLimits
from surepipe.testing.servers import local_servers
from tests.actors.kit import PATIENCE_S, Noted
from tests.actors.stored_kit import (
    QUICK_STREAM,
    STREAM,
    DiesAfter,
    Until,
    crash_sender,
    sqlite_store,
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each embedded store."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with sqlite_store(tmp_path) as opened:
        yield opened


def test_a_pipe_over_a_stream_delivers_in_order(store: Store) -> None:
    """At the end of the block everything sent was handled, once and in order."""
    got: list[object] = []
    with Pipe("orders", STREAM, store=store) as pipe:
        pipe.receive(got.append)
        pipe.send_many(range(500))
    assert got == list(range(500))


def test_what_nobody_received_stays_in_the_stream_for_the_next_pipe(store: Store) -> None:
    """Without a handler close does not wait: confirmed means stored."""
    with Pipe("orders", STREAM, store=store) as pipe:
        pipe.send_many(range(20))
    got: list[object] = []
    with Pipe("orders", STREAM, store=store) as pipe:
        pipe.finish()
        got += list(pipe)
    assert got == list(range(20))


def test_sender_and_receiver_need_not_be_alive_together(store: Store) -> None:
    """One end after the other over the same store."""
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(100))
        sender.flush(10)
    got = Until(100)
    with StreamReceiver("orders", STREAM, store=store) as receiver:
        receiver.receive(got)
        assert receiver.catch_up(10)
        assert got.messages == list(range(100))


def test_a_receiver_that_was_just_made_learns_first_how_far_it_is() -> None:
    """``catch_up`` without time: an empty stream is caught up with, and one with a message is not."""
    store = MemoryStore()
    for sends in (False, True):
        with StreamSender("orders", STREAM, store=store) as sender:
            if sends:
                sender.send(1)
            sender.flush()
            with StreamReceiver("orders", STREAM, store=store) as receiver:
                assert receiver.catch_up(timeout=0) is not sends


def test_a_reader_that_begins_behind_all_that_is_there_says_why_it_does_not_catch_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once it has come so far, or has a place of its own, nothing is said."""
    store, got = MemoryStore(), list[object]()
    later: LayerText = {"stream": {"start": 4}}
    behind: LayerText = {"stream": {"start": 99}}
    with StreamSender("orders", store=store) as sender:
        sender.send_many([1, 2])
        sender.flush(PATIENCE_S)
        with StreamReceiver("orders", later, store=store) as receiver:
            receiver.receive(got.append)
            assert receiver.catch_up(timeout=0) is False
            assert "begins at entry 4 (start)" in caplog.text
            assert "the next that comes into the stream is entry 3" in caplog.text
            caplog.clear()
            sender.send_many([3, 4])
            sender.flush(PATIENCE_S)
            assert receiver.catch_up(timeout=PATIENCE_S)
        with StreamReceiver("orders", behind, store=store) as receiver:
            receiver.receive(got.append)
            sender.send(5)
            sender.flush(PATIENCE_S)
            assert receiver.catch_up()
    assert got == [4, 5]
    assert "catch_up" not in caplog.text


class _TellsNoEnd(MemoryStore):
    """Answers the first question where a stream ends in a way of its own: with nothing before ``go``, or at once
    that it is away."""

    def __init__(self, *, hangs: bool, times: int) -> None:
        super().__init__()
        self.go = threading.Event()
        self._hangs, self._left = hangs, 0
        self._times = times

    def fall_silent(self) -> None:
        self._left = self._times

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, DescribeStream) and self._left:
            self._left -= 1
            if self._hangs:
                self.go.wait(PATIENCE_S)
            return Unavailable("on purpose")
        return super().ask(request)


@pytest.mark.parametrize("hangs", [True, False])
def test_catching_up_ends_in_time_where_the_store_does_not_say_how_far_that_is(hangs: bool) -> None:
    """It hangs, or refuses: False for a caller with a time limit, and the error for one without. It took as long
    as the store did, and raised."""
    store = _TellsNoEnd(hangs=hangs, times=1_000)
    with (
        StreamSender("orders", store=store),
        StreamReceiver("orders", STREAM, store=store) as receiver,
    ):
        receiver.receive(str)
        store.fall_silent()
        assert receiver.catch_up(timeout=0) is False
        store.go.set()
        with pytest.raises(StoreUnavailable, match="on purpose"):
            receiver.catch_up()


def test_catching_up_asks_a_store_again_as_long_as_there_is_time() -> None:
    """The first question is refused, and the next one answered."""
    store = _TellsNoEnd(hangs=False, times=1)
    with (
        StreamSender("orders", store=store) as sender,
        StreamReceiver("orders", STREAM, store=store) as receiver,
    ):
        receiver.receive(str)
        sender.send(1, until="confirmed")
        store.fall_silent()
        assert receiver.catch_up(timeout=PATIENCE_S)


def test_a_loop_over_a_finished_receiver_ends_where_the_stream_ended(store: Store) -> None:
    """finish marks the end as it is now; what comes later is for the next one."""
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(10), until="confirmed")
        with StreamReceiver("orders", STREAM, store=store) as receiver:
            receiver.finish()
            assert list(receiver) == list(range(10))
        sender.send_many(range(10, 13), until="confirmed")
        with StreamReceiver("orders", STREAM, store=store) as receiver:
            receiver.finish()
            assert list(receiver) == [10, 11, 12]


def test_readers_of_different_names_each_get_everything(store: Store) -> None:
    """Two readers, one stream."""
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(10))
    for name in ("billing", "shipping"):
        layer = {"stream": {"start": "earliest", "reader": name}}
        with StreamReceiver("orders", layer, store=store) as receiver:
            receiver.finish()
            assert list(receiver) == list(range(10))


def test_an_order_pipe_may_stand_over_a_stream(store: Store) -> None:
    """continuous-index > stream: a stack over the store, with its cursors in the reader's position."""
    got: list[object] = []
    for part in (range(30), range(30, 60)):
        with Pipe("orders", ["continuous-index", STREAM], store=store) as pipe:
            pipe.receive(got.append)
            pipe.send_many(part)
    assert got == list(range(60))


def test_a_crash_of_either_end_loses_nothing(tmp_path: Path) -> None:
    """Journal and stream in one file; both actors are killed: every message is handled, repeats at most near
    the kill."""
    got: list[object] = []
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", QUICK_STREAM, store=store, journal=store) as pipe,
    ):
        pipe.receive(DiesAfter(10, pipe.receiver.crash, got.append))
        pipe.send_many(range(30))
        crash_sender(pipe)
        pipe.send_many(range(30, 60))
    assert list(dict.fromkeys(got)) == list(range(60))


def test_an_outage_of_the_store_delays_and_nothing_else() -> None:
    """st1: lost answers and outages of appends, reads and commits."""
    store = FaultyStore(MemoryStore())
    for _ in range(3):
        store.script(Misfortune.UNKNOWN, on=AppendRun)
        store.script(Misfortune.OUTAGE, on=ReadFrom)
        store.script(Misfortune.UNKNOWN, on=CommitPosition)
    got: list[object] = []
    with Pipe("orders", QUICK_STREAM, store=store) as pipe:
        pipe.receive(got.append)
        pipe.send_many(range(100))
    assert got == list(range(100))


def test_closing_does_not_sit_out_a_wait_of_the_store(store: Store) -> None:
    """An idle receiver waits in its store for up to 5 s; stop_waiting ends that, and the thread with it."""
    waiting = threading.Event()

    class Watched(FaultyStore):
        def ask(self, request: StoreRequest) -> StoreOutcome:
            if not isinstance(request, WaitForMore):
                return super().ask(request)
            waiting.set()
            outcome = self.inside.ask(request)
            waiting.clear()
            return outcome

    with Pipe("orders", STREAM, store=Watched(store)):
        assert waiting.wait(PATIENCE_S)
    assert not waiting.is_set()


def test_of_two_receivers_with_one_name_the_older_stops(store: Store) -> None:
    """st8: fenced at its next commit; a loop over it ends with PipeStopped. Both that and a notice say why."""
    noted = Noted()
    older = StreamReceiver("orders", QUICK_STREAM, store=store, notices=noted)
    with StreamSender("orders", store=store) as sender:
        sender.send(1, until="confirmed")
        first = iter(older)
        assert next(first) == 1
        with StreamReceiver("orders", QUICK_STREAM, store=store) as newer:
            got = Until(1)
            newer.receive(got)
            got.wait()
            with pytest.raises(PipeStopped, match="reads as 'orders' now"):
                list(first)
    older.close()
    assert "Fenced" in noted.kinds()


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_what_is_stored_after_a_block_was_entered_is_seen_wherever_a_reader_starts(
    start: str,
) -> None:
    """The store has the reader's place when the block is entered. Nothing has run before: time is virtual."""
    store, got = MemoryStore(), list[object]()
    layer = {"stream": {"start": start}}
    with StreamSender("orders", store=store) as sender:
        sender.send("before", until="confirmed")
        with StreamReceiver("orders", layer, store=store, runtime=StepRuntime()) as receiver:
            info = store.info("orders")
            assert isinstance(info, StreamInfo)
            assert [one.reader for one in info.readers] == ["orders"]
            sender.send("after", until="confirmed")
            receiver.receive(got.append)
            receiver.catch_up()
    assert got == (["after"] if start == "latest" else ["before", "after"])


def test_a_pipe_that_starts_at_the_latest_takes_what_it_sends_itself() -> None:
    """Both ends in one block: the sender begins no earlier than the reader has its place."""
    got: list[object] = []
    layer = {"stream": {"start": "latest"}}
    with Pipe("orders", layer, store=MemoryStore(), runtime=StepRuntime()) as pipe:
        pipe.receive(got.append)
        pipe.send("first")
    assert got == ["first"]


class _SaysLater(FaultyStore):
    """Does not say how a stream stands before it may."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked, self.may_say = threading.Event(), threading.Event()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, DescribeStream):
            self.asked.set()
            assert self.may_say.wait(PATIENCE_S)
        return super().ask(request)


def test_an_async_block_is_entered_when_the_reader_has_its_place() -> None:
    """It waits without blocking the loop; what is confirmed from then on is seen by a loop that begins later."""

    async def body() -> list[object]:
        store = _SaysLater()
        store.create("orders", 1, KEEP_ALL)
        receiver = StreamReceiver("orders", {"stream": {"start": "latest"}}, store=store)
        entering = asyncio.create_task(receiver.__aenter__())
        await asyncio.to_thread(store.asked.wait, PATIENCE_S)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not entering.done()
        store.inside.ask(AppendRun("orders", "p", 1, 1, [choose_codec("auto").encode("before")]))
        store.may_say.set()
        face = await entering
        store.append("orders", "p", 1, 2, [choose_codec("auto").encode("after")])
        face.finish()
        got = [message async for message in face]
        await face.close()
        return got

    assert asyncio.run(body()) == ["after"]


def test_a_reader_that_finds_no_latest_is_not_entered_and_says_so() -> None:
    """The store answers nothing that a reader asks: to go on would pass over what is stored meanwhile. One that
    starts elsewhere misses nothing, and is entered."""
    store = FaultyStore(MemoryStore())
    store.create("orders", 1, KEEP_ALL)
    store.script(Misfortune.OUTAGE, on=ClaimReader, calls=1_000_000)
    with (
        pytest.raises(StoreUnavailable, match=r"no place in 10 s.*store FaultyStore has not"),
        StreamReceiver(
            "orders", {"stream": {"start": "latest"}}, store=store, runtime=StepRuntime()
        ),
    ):
        pass
    with StreamReceiver("orders", STREAM, store=store, runtime=StepRuntime()) as receiver:
        assert receiver.counters()


def _produces(name: str, store: Store, notices: Noted) -> StreamSender:
    """A sender with a name of its own, whose journal is in the store of the stream."""
    layer = {"stream": {"producer": name}}
    return StreamSender("orders", layer, store=store, journal=store, notices=notices)


def test_what_a_producer_has_still_to_send_is_not_sent_by_another_one(tmp_path: Path) -> None:
    """L-7: the one dies with messages in its journal, and another one begins; each has a journal of its own."""
    told = Noted()
    with sqlite_store(tmp_path) as shared:
        away = FaultyStore(shared)
        layer = {"stream": {"producer": "gateway"}}
        gateway = StreamSender("orders", layer, store=away, journal=shared)
        gateway.send_many([1, 2], until="confirmed")
        for _ in range(1000):
            away.script(Misfortune.OUTAGE, on=AppendRun)
        gateway.send_many([3, 4], until="accepted")
        gateway.abort()
        with _produces("ops", shared, told) as ops:
            ops.send("ops", until="confirmed")
        with _produces("gateway", shared, told) as gateway:
            gateway.send(5, until="confirmed")
        with StreamReceiver("orders", STREAM, store=shared) as receiver:
            receiver.finish()
            assert list(receiver) == [1, 2, "ops", 3, 4, 5]
    assert told.notices == []


def test_producers_with_journals_in_one_store_do_not_replace_each_other(tmp_path: Path) -> None:
    """L-7: both are alive, and only one of the same name would replace another."""
    told = Noted()
    with sqlite_store(tmp_path) as shared:
        with _produces("gateway", shared, told) as gateway:
            gateway.send(1, until="confirmed")
            with _produces("ops", shared, told) as ops:
                ops.send(2, until="confirmed")
                gateway.send(3, until="confirmed")
                with _produces("gateway", shared, told) as newer:
                    newer.send(4, until="confirmed")
                    with pytest.raises(PipeStopped, match="taken over"):
                        gateway.send(5)
                    gateway.abort()
                ops.send(6, until="confirmed")
        with StreamReceiver("orders", STREAM, store=shared) as receiver:
            receiver.finish()
            assert list(receiver) == [1, 2, 3, 4, 6]


def _fail_at(bad: set[object], why: str, message: object) -> None:
    if message in bad:
        raise ValueError(why)


def test_readers_of_different_names_have_dead_letters_of_their_own(store: Store) -> None:
    """What failed at one reader did not fail at another, and each failure has its letter."""
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(4))
    fails: dict[str, set[object]] = {"billing": {1, 2}, "shipping": {2, 3}}
    for name, bad in fails.items():
        layer = {"stream": {"start": "earliest", "reader": name}}

        with StreamReceiver("orders", layer, store=store, dead_letter=store, retries=1) as receiver:
            receiver.receive(partial(_fail_at, bad, name))
            assert receiver.catch_up(PATIENCE_S)
            letters = receiver.dead_letters
            assert isinstance(letters, DeadLetterStream)
            found = [one.letter for one in letters.all()]
        assert [(one.seq - 1, one.error_text) for one in found] == [(one, name) for one in bad]


def test_a_sender_that_is_replaced_stops(store: Store) -> None:
    """L-7: of two producers with one name the older is told, and what it sends is refused."""
    older = StreamSender("orders", store=store, notices=Noted())
    older.send(1, until="confirmed")
    with StreamSender("orders", store=store) as newer:
        newer.send(2, until="confirmed")
        with pytest.raises(PipeStopped):
            older.send(3, until="confirmed")
    with pytest.raises(PipeStopped):
        older.close()


def test_what_the_store_did_not_get_is_named_by_close() -> None:
    """The store is away for good: close raises NotConfirmed with the ranges."""
    store = FaultyStore(MemoryStore())
    sender = StreamSender("orders", QUICK_STREAM, store=store)
    sender.send(1, until="confirmed")
    for _ in range(1000):
        store.script(Misfortune.OUTAGE, on=AppendRun)
    sender.send(2)
    with pytest.raises(NotConfirmed):
        sender.close(0.05)


def test_a_bounded_stream_spares_what_its_reader_has_not_read(tmp_path: Path) -> None:
    """Retention with a bound: old entries go once they are read, so the stream never fills up."""
    got: list[object] = []
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", QUICK_STREAM, store=store, retention=Retention(max_bytes=20_000)) as pipe,
    ):
        pipe.receive(got.append)
        for number in range(100):
            pipe.send(b"%03d" % number * 300, until="confirmed", timeout=10)
    assert len(got) == 100


@pytest.mark.parametrize("unread", [(4,), (5, 6), (4, 5, 6)], ids=["front", "end", "all"])
def test_what_somebody_else_removed_unread_is_named_by_both_ends(
    tmp_path: Path, unread: tuple[int, ...]
) -> None:
    """S-4: three of six are read; rows go by plain SQL. The receiver stops and names the gap by index, before it
    hands over anything behind it; the sender's next append names the range."""
    sending, receiving = Noted(), Noted()
    with sqlite_store(tmp_path) as store:
        sender = StreamSender("orders", QUICK_STREAM, store=store, notices=sending)
        for number in range(1, 4):
            sender.send(number, until="confirmed")
        with StreamReceiver("orders", QUICK_STREAM, store=store) as receiver:
            receiver.finish()
            assert list(receiver) == [1, 2, 3]
        for number in range(4, 7):
            sender.send(number, until="confirmed")
        with sqlite3.connect(store.path) as connection:
            for index in unread:
                connection.execute("DELETE FROM surepipe_pages WHERE first_index = ?", (index,))
        connection.close()
        sender.send(7, until="confirmed")
        got: list[object] = []
        with (
            StreamReceiver("orders", QUICK_STREAM, store=store, notices=receiving) as receiver,
            pytest.raises(PipeStopped, match="that reader 'orders' has not read"),
        ):
            got += receiver
        sender.close()
    (gap,) = [notice.ranges for notice in receiving.notices if notice.kind == "Trimmed"]
    assert gap == ((unread[0], unread[-1]),)
    removed = [notice.ranges for notice in sending.notices if notice.kind == "StoreRollback"]
    assert removed == ([((unread[0], unread[-1]),)] if unread[-1] == 6 else [])


def _lose(store: Store) -> None:
    """Somebody drops the stream: what FLUSHALL does to it."""
    assert isinstance(store.drop_stream("orders", 1 << 62), StreamDropped)


LOST_1_TO_3 = r"1\.\.3 had been confirmed: were they read\?"


@pytest.mark.parametrize("verb", ["flush", "close", "aflush"])
def test_an_idle_sender_whose_stream_is_gone_says_so_to_whoever_relies_on_it(
    store: Store, verb: str
) -> None:
    """S-4: all is confirmed, nothing is under way, and the store loses it. Nothing will be appended that would
    show it, so ``flush`` and ``close`` ask."""
    told = Noted()
    sender = StreamSender("orders", QUICK_STREAM, store=store, notices=told)
    sender.send_many([1, 2, 3], until="confirmed")
    sender.flush()
    assert told.notices == []
    _lose(store)

    async def flush() -> None:
        async with sender as face:
            await face.flush()

    ways = {"flush": sender.flush, "close": sender.close, "aflush": lambda: asyncio.run(flush())}
    with pytest.raises(PipeStopped, match=LOST_1_TO_3):
        ways[verb]()
    assert told.kinds() == ["Stalled"]
    if verb == "flush":
        with pytest.raises(PipeStopped, match=LOST_1_TO_3):
            sender.close()


def test_an_idle_sender_whose_stream_was_made_anew_names_what_had_been_confirmed(
    store: Store,
) -> None:
    """Somebody made it again meanwhile, as a receiver that is started does. It goes on with the new one."""
    told = Noted()
    with StreamSender("orders", QUICK_STREAM, store=store, notices=told) as sender:
        sender.send_many([1, 2, 3], until="confirmed")
        _lose(store)
        store.create("orders", 1, KEEP_ALL)
        sender.flush()
        assert [(str(one.kind), one.ranges) for one in told.notices] == [
            ("StoreRollback", ((1, 3),))
        ]
        sender.send(4, until="confirmed")
        with StreamReceiver("orders", QUICK_STREAM, store=store) as receiver:
            receiver.finish()
            assert list(receiver) == [4]
    assert len(told.notices) == 1


@pytest.mark.parametrize("misfortune", [Misfortune.OUTAGE, Misfortune.UNKNOWN])
def test_a_store_that_is_away_keeps_nobody_whose_messages_are_confirmed(
    misfortune: Misfortune,
) -> None:
    """What was confirmed is in the store. Whether it still is can't be asked, and nobody waits until it can."""
    store = FaultyStore(MemoryStore())
    told = Noted()
    with StreamSender("orders", QUICK_STREAM, store=store, notices=told) as sender:
        sender.send(1, until="confirmed")
        for _ in range(3):
            store.script(misfortune, on=OpenProducer)
        sender.flush()
        sender.send(2, until="confirmed")
        sender.flush()
    assert told.notices == []


def test_an_idle_sender_that_was_replaced_is_not_told_so_by_a_flush(store: Store) -> None:
    """All that it sent is confirmed: to be replaced has cost nothing."""
    told = Noted()
    older = StreamSender("orders", QUICK_STREAM, store=store, notices=told)
    older.send(1, until="confirmed")
    with StreamSender("orders", QUICK_STREAM, store=store) as newer:
        newer.send(2, until="confirmed")
        older.flush()
    older.close()
    assert told.notices == []


@pytest.mark.parametrize("is_new", [False, True], ids=["gone", "anew"])
def test_a_sender_that_begins_anew_knows_by_its_journal_what_the_stream_has_lost(
    store: Store, tmp_path: Path, *, is_new: bool
) -> None:
    """All was confirmed, so the journal holds no message; but it knows how far that went. It does not matter who
    makes the stream again, and what the stream still has is nobody's loss."""
    told = Noted()

    def sender() -> StreamSender:
        return StreamSender("orders", QUICK_STREAM, store=store, journal=near, notices=told)

    with sqlite_store(tmp_path, "near.db") as near:
        for _ in range(2):
            with sender() as one:
                one.send_many([1, 2, 3], until="confirmed")
        assert told.notices == []
        _lose(store)
        if is_new:
            store.create("orders", 1, KEEP_ALL)
        with sender() as one:
            one.send(4, until="confirmed")
        assert [(str(one.kind), one.ranges) for one in told.notices] == [
            ("StoreRollback", ((1, 3),))
        ]
        with sender() as one:
            one.send(5, until="confirmed")
        assert len(told.notices) == 1


def test_a_receiver_whose_stream_is_gone_names_what_it_had_not_settled(store: Store) -> None:
    """S-4: by index, as far as it had seen the stream. Nobody is told to ask again."""
    told = Noted()
    at_two, go, is_told = threading.Event(), threading.Event(), threading.Event()

    def note(notice: PipeNotice) -> None:
        told(notice)
        is_told.set()

    def handle(message: object) -> None:
        if message == 2:
            at_two.set()
            assert go.wait(PATIENCE_S)

    with StreamSender("orders", QUICK_STREAM, store=store) as sender:
        sender.send_many([1, 2, 3, 4, 5], until="confirmed")
    layers: LayerText = {"stream": {**QUICK_STREAM["stream"], "read_max": 3, "commit": "message"}}
    receiver = StreamReceiver("orders", layers, store=store, notices=note)
    receiver.receive(handle)
    assert at_two.wait(PATIENCE_S)
    _lose(store)
    go.set()
    assert is_told.wait(PATIENCE_S)
    with pytest.raises((PipeStopped, StoreReset), match="does not exist"):
        receiver.catch_up(PATIENCE_S)
    receiver.close()
    assert [(str(one.kind), one.ranges) for one in told.notices] == [("Stalled", ((4, 5),))]


def test_a_stream_that_was_made_differently_is_refused(tmp_path: Path) -> None:
    """The retention of an existing stream is not changed in silence."""
    with sqlite_store(tmp_path) as store:
        with Pipe("orders", STREAM, store=store):
            pass
        with pytest.raises(ConfigurationError, match="retention"):
            Pipe("orders", STREAM, store=store, retention=Retention(max_bytes=1))


def test_a_stream_gets_another_retention_when_it_is_asked_for(tmp_path: Path) -> None:
    """By the function that the refusal names. Ends at work go on; a new one names the new retention."""
    bound = Retention(max_bytes=2_000)
    with sqlite_store(tmp_path) as store:
        with pytest.raises(LookupError, match="'orders' does not exist"):
            change_retention(store, "orders", bound)
        with (
            StreamReceiver("orders", STREAM, store=store) as receiver,
            StreamSender("orders", store=store) as sender,
        ):
            receiver.receive(list[object]().append)
            with pytest.raises(ConfigurationError, match=r"keep all, not max_bytes=2000; .*change"):
                StreamSender("orders", store=store, retention=bound)
            change_retention(store, "orders", bound)
            for number in range(30):
                sender.send(b"%03d" % number * 100, until="confirmed", timeout=PATIENCE_S)
                assert receiver.catch_up(PATIENCE_S)
        found = store.info("orders")
        assert isinstance(found, StreamInfo)
        assert found.bytes <= 2_000
        with pytest.raises(ConfigurationError, match="max_bytes=2000, not keep all"):
            StreamSender("orders", store=store)
        with StreamSender("orders", store=store, retention=bound):
            pass


def test_a_bounded_stream_with_its_position_elsewhere_does_not_claim_what_trimming_breaks(
    tmp_path: Path,
) -> None:
    """The stream's store doesn't know the reader, so store-trim leaves the guarantee."""
    bounded = Retention(max_bytes=10_000)
    with sqlite_store(tmp_path, "a.db") as a, sqlite_store(tmp_path, "b.db") as b:
        with Pipe("one", STREAM, store=a, retention=bounded) as pipe:
            assert "store-trim" in str(pipe.guarantee.headline)
        with Pipe("two", STREAM, store=a, state=b, retention=bounded) as pipe:
            assert "store-trim" not in str(pipe.guarantee.headline)


def test_what_does_not_fit_together_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Each refusal names what to write instead."""
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match="say which store keeps it"):
        Pipe("orders", STREAM)
    with pytest.raises(ConfigurationError, match="stream layer"):
        Pipe("orders", store=store)
    with pytest.raises(CompositionError, match="Set start to earliest"):
        Pipe("orders", "stream", store=store)
    with pytest.raises(CompositionError, match="way back"):
        Pipe("orders", ["reliable", STREAM], store=store)
    with pytest.raises(ConfigurationError, match="boundary is 'soon'"):
        Pipe("orders", STREAM, store=store, boundary=cast("Boundary", "soon"))
    with SqliteStore(tmp_path / "a.db") as held, pytest.raises(CompositionError, match="sink"):
        Pipe("orders", STREAM, store=held, state=_NoTransactions(), boundary="committed")


class _NoTransactions(MemoryStore):
    """A store that can't do two things in one step, and is no part of this process."""

    kind = "redis"
    one_slot = False


def test_waiting_for_oneself_is_misuse(store: Store) -> None:
    """catch_up inside the loop of the receiver would wait for the message that is being handled."""
    with StreamSender("orders", store=store) as sender:
        sender.send(1)
    with StreamReceiver("orders", STREAM, store=store) as receiver:
        for _ in receiver:
            with pytest.raises(MisuseError):
                receiver.catch_up(1)
            break


def test_a_receiver_that_is_closed_commits_what_it_has_settled(store: Store) -> None:
    """The next receiver begins behind it: nothing is handled twice after an orderly close."""
    with StreamSender("orders", store=store) as sender:
        sender.send_many(range(10))
    got: list[object] = []
    for _ in range(3):
        with StreamReceiver("orders", STREAM, store=store) as receiver:
            receiver.receive(got.append)
            receiver.catch_up(10)
    assert got == list(range(10))


def test_before_over_a_stream_never_repeats(tmp_path: Path) -> None:
    """The position is stored first: after a kill in the handler nothing comes twice, and the pipe goes on."""
    got: list[int] = []

    def collect(message: object) -> None:
        got.append(cast("int", message))

    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", QUICK_STREAM, store=store, boundary="before") as pipe,
    ):
        pipe.receive(DiesAfter(5, pipe.receiver.crash, collect))
        for number in range(20):
            pipe.send(number, until="confirmed")
    assert got == sorted(set(got))
    assert got[-1] == 19


EARLIEST: LayerText = {"stream": {"start": "earliest"}}


def test_a_sender_with_a_journal_begins_while_its_redis_is_down(tmp_path: Path) -> None:
    """A real server that is killed: the sender is made, accepts all, and the server gets it once it is there; the
    level must be stated, for nobody can be asked for it, and without a journal elsewhere it is refused."""
    (source, *_) = local_servers()
    with (
        closing(source.server().start()) as server,
        SqliteStore(tmp_path / "journal.db") as journal,
    ):
        server.kill()
        soon = RedisLimits(connect_s=0.2, answer_s=0.2)
        with (
            RedisStore.from_url(server.url, pipeline="p", limits=soon) as asked,
            pytest.raises(StoreUnavailable, match="begins without it when the level is stated"),
        ):
            StreamSender("orders", store=asked, journal=journal)
        redis = RedisStore.from_url(server.url, pipeline="p", level=Level.PROCESS, limits=soon)
        with redis:
            with pytest.raises(StoreUnavailable):
                StreamSender("orders", store=redis)
            with pytest.raises(StoreUnavailable):
                StreamReceiver("orders", EARLIEST, store=redis)
            with StreamSender("orders", store=redis, journal=journal) as sender:
                for n in range(100):
                    sender.send(n)
                assert _kept_in(journal) == 100
                server.start()
                sender.flush(PATIENCE_S)
                with StreamReceiver("orders", EARLIEST, store=redis) as receiver:
                    assert list(islice(receiver, 100)) == list(range(100))


@pytest.mark.parametrize("held", [False, True])
def test_what_another_stack_wrote_is_found_once_the_store_is_there(
    tmp_path: Path, held: bool
) -> None:
    """The store is away when a sender of another stack begins: it accepts, and stops when it sees what is there;
    what it accepted stays in the journal."""
    store = FaultyStore(MemoryStore())
    journal = sqlite_store(tmp_path)
    with StreamSender("orders", "stream", store=store, journal=journal) as first:
        first.send(1)
        first.flush(PATIENCE_S)
    if not held:
        with StreamReceiver("orders", EARLIEST, store=store) as receiver:
            read = threading.Event()
            receiver.receive(lambda _: read.set())
            assert read.wait(PATIENCE_S)
    store.script(Misfortune.OUTAGE, calls=1_000_000)
    other = StreamSender("orders", ["dedupe", "stream"], store=store, journal=journal)
    other.send(2)
    store.calm()
    if held:
        with pytest.raises(PipeStopped, match="Let the readers read all of that first"):
            other.flush(PATIENCE_S)
        with pytest.raises((NotConfirmed, PipeStopped)):
            other.close(0)
        assert _kept_in(journal) == 1
    else:
        other.flush(PATIENCE_S)
        other.close()
    journal.close()


def _kept_in(journal: Store) -> int:
    """How many messages the journal of the pipe has."""
    rows = StoreJournal(journal, journal, "orders").load().rows
    return sum(len(row.payloads) for row in rows)
