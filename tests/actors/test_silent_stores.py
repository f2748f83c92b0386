"""Stores that give no answer for a while: whoever waits for one says so once, and once when that is over."""

from __future__ import annotations

import pytest

from surepipe.actors import PipeNotice, StepRuntime, StreamSender
from surepipe.actors.store_calls import Silences
from surepipe.core.effects import NoticeKind
from surepipe.errors import PipeFull
from surepipe.storage import MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune

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
