"""What is not confirmed in time, or finds no room, is told with the cause that is known and what to do then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from surepipe import (
    Channel,
    Listener,
    LocalRoute,
    NotConfirmed,
    Pipe,
    PipeFull,
    PipeReceiver,
    PipeSender,
    PipeStopped,
    StreamSender,
)
from surepipe.actors import StepRuntime
from surepipe.actors.ends.assembly import PipeKeywords
from surepipe.core.store_requests import Store
from surepipe.errors import SurepipeError
from surepipe.pipes.catalogue import LayerText
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.storage import MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.stored_kit import sqlite_store

NARROW = [{"reliable": {"backlog": 2, "window": 2, "run_max": 1}}]
NEVER = "nothing has ever come back from the other end. See whether that runs"
LATELY = r"waits for the other end, which last answered \d\.\d s ago. Look at what the handler does there"
LONG_AGO = r"waits for the other end, which last answered \d\d\.\d s ago. See whether it still runs"
NOBODY = r"nobody takes its messages. Give it a handler by receive\(...\), or loop over it"
HANDLER = "what was sent waits for the handler, or the loop. Look at what that does"
FAILS = r"what was sent waits for the handler, which raised ValueError: 1 \d\.\d s ago"
KEYLESS = (
    r"the key of a message can't be told \(NoKey: a dict has no 'customer'\), "
    "and there is no place for dead letters, so it is not tried again. Mend what tells the key"
)
SILENT = r"store FaultyStore has not answered for \d\d?\.\d s, and what was sent waits for it"


def told(sender: Pipe | PipeSender | StreamSender | Channel, *, closes: bool = True) -> list[str]:
    """What the errors of each way to wait say behind their own words."""
    found: list[str] = []

    def fill() -> None:
        while True:
            sender.send("more", timeout=0.1)

    calls: list[tuple[Callable[[], object], type[SurepipeError], str]] = [
        (lambda: sender.flush(0.1), NotConfirmed, "They stay with the pipe: "),
        (fill, PipeFull, "has no room: "),
        (lambda: sender.close(0.1), NotConfirmed, "The pipe ends and gives them up: "),
    ]
    for call, kind, words in calls if closes else calls[:2]:
        with pytest.raises(kind) as raised:
            call()
        assert words in str(raised.value)
        found.append(str(raised.value).split(words)[1])
    return found


def all_match(texts: list[str], cause: str) -> None:
    """Each tells this cause."""
    for text in texts:
        with pytest.raises(SurepipeError, match=cause):
            raise SurepipeError(text)


def test_nobody_is_at_the_other_end(steps: StepRuntime) -> None:
    """Nothing ever came back: there is no handler to look at."""
    sender = PipeSender("p", NARROW, route=LocalRoute(), runtime=steps)
    sender.send(1)
    steps.advance(60)
    all_match(told(sender), NEVER)


def test_nobody_has_opened_the_channel(steps: StepRuntime) -> None:
    """The same at the calling end of a channel."""
    channel = Channel("c", NARROW, route=LocalRoute(), runtime=steps)
    channel.send(1)
    all_match(told(channel), NEVER)


def test_the_other_end_answers_and_handles_nothing(steps: StepRuntime) -> None:
    """It has no handler, or one that stands; later it is gone."""
    route = LocalRoute()
    sender = PipeSender("p", NARROW, route=route, runtime=steps)
    with PipeReceiver("p", NARROW, route=route, runtime=steps):
        sender.send(1)
        steps.advance(1)
        all_match(told(sender, closes=False), LATELY)
    steps.advance(60)
    all_match(told(sender), LONG_AGO)


def test_the_other_end_of_a_channel_answers(steps: StepRuntime) -> None:
    """An end that was accepted, and has no handler: its caller hears that accept may be to blame."""
    route = LocalRoute()
    with Listener(
        route, names="c", accept=lambda _: None, layers=NARROW, runtime=steps
    ) as listener:
        channel = Channel("c", NARROW, route=route, runtime=steps)
        channel.send(1)
        steps.advance(1)
        all_match(
            told(channel),
            f"{LATELY}; if it was never called, the log there tells whether accept raised",
        )
        listener.at(channel.address).abort()


def test_a_pipe_knows_whether_anybody_takes_its_messages(steps: StepRuntime) -> None:
    """Both of its ends are here; in the body of a loop, which is at its first message, somebody does."""
    pipe = Pipe("p", NARROW, runtime=steps)
    pipe.send(1)
    all_match(told(pipe, closes=False), NOBODY)
    for _ in pipe:
        with pytest.raises(PipeFull, match=HANDLER):
            pipe.send(4, timeout=0.1)
        break
    all_match(told(pipe), NOBODY)


def test_a_pipe_knows_what_its_handler_raises(steps: StepRuntime) -> None:
    """Nobody needs to wait for the notice of the fifth attempt."""

    def fail(message: object) -> None:
        raise ValueError(message)

    pipe = Pipe("p", NARROW, runtime=steps)
    pipe.receive(fail)
    pipe.send(1)
    all_match(told(pipe), FAILS)


def test_a_pipe_knows_that_the_key_of_a_message_can_not_be_told(steps: StepRuntime) -> None:
    """The handler was never called, so there is nothing to look at in it."""
    pipe = Pipe("p", NARROW, key="customer", lanes=2, runtime=steps, notices=lambda _: None)
    pipe.receive(print)
    pipe.send({"client": 1})
    all_match(told(pipe), KEYLESS)


def test_a_pipe_that_was_not_started_says_so(steps: StepRuntime) -> None:
    """Nothing is sent before start."""
    with Pipe("p", NARROW, runtime=steps, start=False) as pipe:
        with pytest.raises(PipeFull, match=r"has no room: the pipe is not started. Call start\(\)"):
            pipe.send(1, timeout=0.1)
        pipe.start()


def test_the_store_of_a_journal_was_closed_before_its_pipe(
    steps: StepRuntime, tmp_path: Path
) -> None:
    """A message is refused with what the store said."""
    store = sqlite_store(tmp_path)
    pipe = Pipe("p", NARROW, journal=store, runtime=steps)
    pipe.receive(print)
    pipe.send(1)
    pipe.flush()
    steps.advance(1)  # what is confirmed has left the journal
    store.close()
    with pytest.raises(
        PipeStopped,
        match=r"did not accept the message \(journal: the store on .*pipes.db is closed\)",
    ):
        pipe.send(2, timeout=5)
    pipe.abort()


def test_the_store_of_a_stream_is_away(steps: StepRuntime) -> None:
    """At first it may only be slow; after two seconds it is silent."""
    store = FaultyStore(MemoryStore())
    layer = [{"stream": {"start": "earliest", "backlog": 2}}]
    sender = StreamSender("p", layer, store=store, runtime=steps)
    sender.send(1, until="confirmed")
    store.script(Misfortune.OUTAGE, calls=1_000_000)
    sender.send(2)
    with pytest.raises(NotConfirmed, match="what was sent waits for store FaultyStore"):
        sender.flush(0.1)
    steps.advance(10)
    all_match(told(sender), SILENT)


@pytest.mark.parametrize("role", ["journal", "state"])
def test_a_store_of_either_end_is_away(role: str, steps: StepRuntime, tmp_path: Path) -> None:
    """That of the receiver, too: its handler has done all. Of a journal it is not known what it has stored."""
    with sqlite_store(tmp_path) as inner:
        store = FaultyStore(inner)
        journal, state = (store, None) if role == "journal" else (None, store)
        with Pipe("p", NARROW, runtime=steps, journal=journal, state=state) as pipe:
            pipe.receive(lambda _: None)
            pipe.send(1, until="confirmed")
            store.script(Misfortune.OUTAGE, calls=1_000_000)
            if role == "state":
                pipe.send(2)
            steps.advance(10)
            with pytest.raises(NotConfirmed, match=SILENT):
                pipe.send(3, until="confirmed", timeout=5)
            if role == "journal":
                with pytest.raises(
                    NotConfirmed, match=r"stored the message \(store FaultyStore has not"
                ):
                    pipe.send(4, timeout=5)
            store.calm()
            pipe.flush()


RELIABLE: LayerText = {"reliable": {"window": 4, "backlog": 4, "run_max": 1}}
RETRIES: LayerText = {"multi-unconfirmed": {"window": 4, "backlog": 4, "run_max": 1}}


def _accepted(layers: list[LayerText], journal: Store | None) -> tuple[int, str]:
    """How many messages a pipe takes whose handler never ends, and what it advises then."""
    options: PipeKeywords = {"runtime": StepRuntime(1)}
    if journal is not None:
        options["journal"] = journal
    pipe = Pipe("p", layers, **options)
    count = 0
    try:
        while count < 1_000:
            pipe.send(count, timeout=1)
            count += 1
    except PipeFull as full:
        return count, str(full).partition("Try again then, or raise ")[2]
    finally:
        pipe.abort()
    return count, ""


def test_the_options_that_are_named_give_more_room() -> None:
    """Of the layer that sends again, of the layer for order above it, and with a journal."""
    order: LayerText = {"continuous-index": {"receive_window": 4}}
    wider: LayerText = {"continuous-index": {"receive_window": 40}}
    longer: LayerText = {"multi-unconfirmed": {"window": 4, "backlog": 40, "run_max": 1}}
    assert _accepted([RELIABLE], None) == (8, "backlog")
    assert _accepted([order, RETRIES], None) == (4, "receive_window of continuous-index")
    assert _accepted([order, longer], None) == (4, "receive_window of continuous-index")
    assert _accepted([wider, RETRIES], None) == (40, "receive_window of continuous-index")
    kept, longer_kept = SimulatedStore(), SimulatedStore()
    assert _accepted([order, RETRIES], kept) == (8, "backlog of multi-unconfirmed")
    assert _accepted([order, longer], longer_kept) == (44, "backlog of multi-unconfirmed")
