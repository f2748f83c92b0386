"""Stores that give no answer for a while: whoever waits for one says so once, and once when that is over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from surepipe.actors import Pipe, PipeNotice, StepRuntime, StreamSender
from surepipe.actors.ends.sender import PARTING_S
from surepipe.actors.store_calls import Silences
from surepipe.actors.threads import RunningThread
from surepipe.core.effects import NoticeKind
from surepipe.core.store_requests import AppendRun, StoreOutcome, StoreRequest
from surepipe.errors import NotConfirmed, PipeFull
from surepipe.storage import Level, MemoryStore, SqliteStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.kit import PATIENCE_S
from tests.actors.stored_kit import sqlite_store

SPOKEN = (NoticeKind.SILENT, NoticeKind.RECOVERED)


def test_a_store_that_is_away_for_ten_seconds_is_told_once_and_once_when_it_answers() -> None:
    """Every call fails for ten seconds: the end says which store and what waits, whoever finds no room is told
    the same, and afterwards it says for how long."""
    steps, notices = StepRuntime(), list[PipeNotice]()
    store = FaultyStore(MemoryStore())
    layer = {"stream": {"start": "earliest", "backlog": 2}}
    with StreamSender(
        "orders", layer, store=store, runtime=steps, notices=notices.append
    ) as sender:
        sender.send(1)
        sender.flush()
        steps.advance(5)
        assert [one for one in notices if one.kind in SPOKEN] == []
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        sender.send(2)
        sender.send(3)
        steps.advance(10)
        (silent,) = [one for one in notices if one.kind in SPOKEN]
        assert silent.kind is NoticeKind.SILENT
        assert silent.detail.startswith("store FaultyStore has not answered for ")
        assert silent.detail.endswith("messages wait to be stored")
        with pytest.raises(PipeFull, match="store FaultyStore has not answered for 1"):
            sender.send(4, timeout=0.1)
        store.calm()
        sender.flush()
    _, recovered = [one for one in notices if one.kind in SPOKEN]
    assert recovered.kind is NoticeKind.RECOVERED
    assert recovered.detail.startswith("store FaultyStore answers again, after 1")


def test_a_call_that_hangs_is_silence_and_one_that_may_wait_is_not_before_its_time() -> None:
    """An append that does not return is told after two seconds; a wait for more only after its own five."""
    now = 0
    silences = Silences(lambda: now)
    silences.began("main", "waiter", "reading waits", 5_000_000)
    now = 3_000_000
    assert silences.news() == []
    silences.began("main", "clerk", "messages wait to be stored")
    now = 5_500_000
    (silent,) = silences.news()
    assert silent.kind is NoticeKind.SILENT
    assert silences.news() == []
    silences.ended("main", "clerk", answered=True)
    (recovered,) = silences.news()
    assert (recovered.kind, recovered.detail) == (
        NoticeKind.RECOVERED,
        "store main answers again, after 2.5 s",
    )


def test_what_asks_nobody_is_no_answer() -> None:
    """A transaction begins, and no store is asked for that: what failed before it has still no answer."""
    now = 0
    silences = Silences(lambda: now)
    silences.began("main", "consumer", "effects wait")
    silences.ended("main", "consumer", answered=False)
    now = 3_000_000
    assert [one.kind for one in silences.news()] == [NoticeKind.SILENT]
    for asker in ("consumer", "load"):
        with silences.asking("main", asker, "it begins") as asked:
            asked.is_answered = None
    assert silences.news() == []
    with silences.asking("main", "consumer", "effects wait"):
        pass
    assert [one.kind for one in silences.news()] == [NoticeKind.RECOVERED]
    with silences.asking("main", "load", "it begins") as asked:
        asked.is_answered = None
    now = 9_000_000
    assert silences.news() == []


def test_a_receiver_that_commits_tells_a_silence_once_however_often_it_tries(
    tmp_path: Path,
) -> None:
    """Each attempt opens a transaction, for which no store is asked, and ends it, which finds none."""
    steps, notices, got = StepRuntime(), list[PipeNotice](), list[object]()
    inside = sqlite_store(tmp_path)
    store = FaultyStore(inside)
    with (
        inside,
        Pipe(
            "orders",
            "reliable",
            state=store,
            boundary="committed",
            runtime=steps,
            notices=notices.append,
        ) as pipe,
    ):
        pipe.receive(lambda message, _: got.append(message))
        pipe.send(1)
        steps.advance(5)
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        pipe.send(2)
        steps.advance(20)
        assert [one.kind for one in notices if one.kind in SPOKEN] == [NoticeKind.SILENT]
        store.calm()
        steps.advance(20)
    assert [one.kind for one in notices if one.kind in SPOKEN] == list(SPOKEN)
    assert got[-1] == 2


class Standing(SqliteStore):
    """Gives no answer to an append, from when it is told so until it is let through."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, level=Level.PROCESS)
        self.opened = threading.Event()
        self.opened.set()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As any store, once it may."""
        if isinstance(request, AppendRun):
            assert self.opened.wait(PATIENCE_S), "nobody opened"
        return super().ask(request)


@pytest.mark.parametrize("is_journal", [False, True])
def test_the_time_of_a_close_that_is_up_is_not_taken_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_journal: bool
) -> None:
    """The stream's store stands still, with a journal elsewhere that goes on or without one: who waited in vain
    for a confirmation has a moment left for the ends of all threads."""
    times, join = list[float](), RunningThread.join

    def noted(running: RunningThread, timeout: float) -> bool:
        times.append(timeout)
        return join(running, timeout)

    monkeypatch.setattr(RunningThread, "join", noted)
    store = Standing(tmp_path / "stream.db")
    with store, sqlite_store(tmp_path) as journal:
        sender = StreamSender("orders", store=store, journal=journal if is_journal else None)
        try:
            sender.send(1)
            sender.flush(PATIENCE_S)
            store.opened.clear()
            sender.send(2, timeout=PATIENCE_S)
            times.clear()
            with pytest.raises(NotConfirmed):
                sender.close(timeout=0.6)
        finally:
            store.opened.set()
    assert times
    assert max(times) <= PARTING_S
