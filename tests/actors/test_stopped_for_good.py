"""Pipes that stop for good: whoever uses one hears why, however he uses it, whether he came before or after."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest

from surepipe import (
    AsyncSender,
    Channel,
    ChannelFace,
    Listener,
    LocalRoute,
    Pipe,
    PipeClosed,
    PipeReceiver,
    PipeSender,
    PipeStopped,
    StacksDiffer,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors.ends.face import SendingFace
from surepipe.actors.runtime import Runtime
from surepipe.actors.steps import StepRuntime
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import ThreadRuntime
from surepipe.core.store_requests import DescribeStream, StoreOutcome, StoreRequest
from surepipe.storage import MemoryStore, SqliteStore
from tests.actors.kit import PATIENCE_S, Noted, await_that
from tests.actors.stored_kit import sqlite_store

FROM_START = {"stream": {"start": "earliest"}}
ONCE = RestartPolicy(restarts_max=0)
END_S = 60.0
"""Of virtual time: a wait that goes on for so long has heard nothing."""

Used = Pipe | ChannelFace | StreamReceiver
Way: TypeAlias = "Callable[[Scene], tuple[Used, Callable[[], object]]]"
"""Makes what is used, and tells how it is stopped for good."""
T = TypeVar("T", bound=Used | StreamSender)


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a pipe is used and stopped: whatever is made there is over at the end of the test."""

    runtime: Runtime
    store: SqliteStore
    stack: ExitStack
    noted: Noted = field(default_factory=Noted)

    def make(self, face: Callable[..., T], *given: object, **options: object) -> T:
        """A pipe, or an end of one."""
        made = face("a", *given, runtime=self.runtime, notices=self.noted, **options)
        self.stack.callback(made.abort)
        return made

    def await_later_number(self) -> None:
        """Who begins in a later millisecond is the newer one."""
        begun_ms = self.runtime.wall_ms()
        await_that(self.runtime, lambda: self.runtime.wall_ms() > begun_ms, "a later number")

    def begin_newer(self, make: Callable[[], Pipe]) -> None:
        """A newer one takes the place of a pipe."""
        self.await_later_number()
        newer = make()
        newer.receive(_nothing)
        newer.send("of the newer", until="confirmed", timeout=PATIENCE_S)

    def replace(self, older: Pipe, make: Callable[[], Pipe]) -> None:
        """The same, and the older one hears of it, as it has something to do there."""
        self.begin_newer(make)
        with pytest.raises(PipeStopped):
            older.send("of the older", until="confirmed", timeout=PATIENCE_S)


def _nothing(message: object) -> None:
    """A handler that has had its message."""


def _replaced(*layers: object, **stores: object) -> Way:
    """``True`` stands for the store."""

    def way(scene: Scene) -> tuple[Used, Callable[[], object]]:
        options = {name: scene.store if given is True else given for name, given in stores.items()}

        def make() -> Pipe:
            return scene.make(Pipe, *layers, **options)

        older = make()
        return older, lambda: scene.replace(older, make)

    return way


def _replaced_reader(scene: Scene) -> tuple[Used, Callable[[], object]]:
    older = scene.make(StreamReceiver, FROM_START, store=scene.store)

    def stop() -> None:
        newer = scene.make(StreamReceiver, FROM_START, store=scene.store)
        newer.receive(_nothing)
        sender = scene.make(StreamSender, store=scene.store)
        sender.send("read", until="confirmed", timeout=PATIENCE_S)
        assert newer.catch_up(PATIENCE_S)
        older.receiver.crash()  # nobody takes what it has read, so it has nothing to commit

    return older, stop


def _replaced_in_a_crash(scene: Scene) -> tuple[Used, Callable[[], object]]:
    def make() -> Pipe:
        return scene.make(Pipe, journal=scene.store)

    older = make()

    def stop() -> None:
        scene.begin_newer(make)
        older.sender.crash()  # its next life finds the journal taken

    return older, stop


def _dying(end: str) -> Way:
    def way(scene: Scene) -> tuple[Used, Callable[[], object]]:
        pipe = scene.make(Pipe, restarts=ONCE)
        return pipe, (pipe.sender if end == "sender" else pipe.receiver).crash

    return way


def _other_layers(scene: Scene) -> tuple[Used, Callable[[], object]]:
    route, ends = LocalRoute(), list[ChannelFace]()
    channel = scene.make(Channel, "reliable", route=route)

    def stop() -> None:
        listener = Listener(
            route,
            names="a",
            accept=ends.append,
            layers="resend",
            runtime=scene.runtime,
            notices=scene.noted,
        )
        scene.stack.callback(listener.close)
        with pytest.raises(StacksDiffer):
            channel.send("to nobody", until="confirmed", timeout=PATIENCE_S)
        with pytest.raises(StacksDiffer):
            ends[0].wait(PATIENCE_S)

    return channel, stop


def _dying_channel(scene: Scene) -> tuple[Used, Callable[[], object]]:
    channel = scene.make(Channel, "reliable", route=LocalRoute(), restarts=ONCE)
    return channel, channel.end.crash


WAYS: dict[str, Way] = {
    "both are replaced": _replaced(journal=True, state=True),
    "the sender is replaced": _replaced(journal=True),
    "the sender is replaced between two lives": _replaced_in_a_crash,
    "the receiver is replaced": _replaced(state=True, boundary="before"),
    "both are replaced, over a stream": _replaced(FROM_START, store=True, journal=True),
    "the reader is replaced": _replaced_reader,
    "the sender dies too often": _dying("sender"),
    "the receiver dies too often": _dying("receiver"),
    "a channel's other end has other layers": _other_layers,
    "a channel dies too often": _dying_channel,
}


OVER_A_STREAM = ("both are replaced, over a stream", "the reader is replaced")


def _wait(used: Used) -> object:
    return used.wait(END_S)


def _loop(used: Used) -> object:
    return list(used)


def _flush(used: Used) -> object:
    return None if isinstance(used, StreamReceiver) else used.flush(END_S)


def _send(used: Used) -> object:
    return None if isinstance(used, StreamReceiver) else used.send("late", timeout=END_S)


def _catch_up(used: Used) -> object:
    return used.catch_up(END_S) if isinstance(used, StreamReceiver) else None


USES = {"wait": _wait, "loop": _loop, "flush": _flush, "send": _send, "catch_up": _catch_up}


def _has(used: Used, use: str) -> bool:
    if use == "catch_up":
        return isinstance(used, StreamReceiver)
    return use in ("wait", "loop") or isinstance(used, SendingFace)


def _has_stopped(used: Used) -> bool:
    return used.receiver.works.failure is not None


@pytest.mark.parametrize("way", WAYS)
def test_whoever_comes_later_hears_of_it_however_he_uses_it(
    steps: StepRuntime, tmp_path: Path, way: str
) -> None:
    """Each use after each way to stop for good, and once more after the others; in virtual time, unless a file is
    waited for."""
    runtime = ThreadRuntime() if way in OVER_A_STREAM else steps
    with sqlite_store(tmp_path) as store, ExitStack() as stack:
        used, stop = WAYS[way](Scene(runtime, store, stack))
        stop()
        await_that(runtime, lambda: _has_stopped(used), "whoever receives hears of it")
        for use in [*USES, *USES]:
            if _has(used, use):
                with pytest.raises(PipeStopped, match="a stopped"):
                    USES[use](used)


@pytest.mark.parametrize("use", ["wait", "loop"])
@pytest.mark.parametrize("way", WAYS)
def test_whoever_waits_already_hears_of_it(tmp_path: Path, way: str, use: str) -> None:
    """A thread that was there before: its wait ends with the reason."""
    heard: list[object] = []
    with sqlite_store(tmp_path) as store, ExitStack() as stack:
        used, stop = WAYS[way](Scene(ThreadRuntime(), store, stack))
        is_there = threading.Event()

        def wait() -> None:
            is_there.set()
            try:
                heard.append(USES[use](used))
            except PipeStopped as error:
                heard.append("stopped" if "a stopped" in str(error) else error)

        thread = threading.Thread(target=wait)
        stack.callback(thread.join, PATIENCE_S)
        thread.start()
        assert is_there.wait(PATIENCE_S)
        stop()
        thread.join(PATIENCE_S)
    assert heard == ["stopped"]


class _Standing(MemoryStore):
    """Does not say where a stream ends, from when it is told to stand still until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.is_asked = threading.Event(), threading.Event()
        self.goes_on.set()

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As any store, then."""
        if isinstance(request, DescribeStream) and not self.goes_on.is_set():
            self.is_asked.set()
            self.goes_on.wait(PATIENCE_S)
        return super().ask(request)


def test_whoever_waits_for_the_end_of_a_stream_to_be_told_hears_of_it() -> None:
    """Not that it has not caught up in time."""
    heard: list[object] = []
    store = _Standing()
    with StreamReceiver("a", FROM_START, store=store, restarts=ONCE) as reader:

        def catch_up() -> None:
            try:
                heard.append(reader.catch_up(PATIENCE_S))
            except PipeStopped as error:
                heard.append("stopped" if "a stopped" in str(error) else error)

        store.goes_on.clear()
        thread = threading.Thread(target=catch_up)
        thread.start()
        assert store.is_asked.wait(PATIENCE_S)
        reader.receiver.crash()
        thread.join(PATIENCE_S)
        store.goes_on.set()
    assert heard == ["stopped"]


@pytest.mark.parametrize("is_awaited", [False, True], ids=["sync", "async"])
def test_a_program_that_only_looks_after_a_sender_hears_that_another_took_its_place(
    tmp_path: Path, *, is_awaited: bool
) -> None:
    """``wait`` of a stream's sender, of either face: not while it goes on; whoever comes before or after hears."""

    async def look_after(older: StreamSender, stop: Callable[[], None]) -> None:
        face = AsyncSender(older)

        def wait(timeout: float) -> Awaitable[bool]:
            return face.wait(timeout) if is_awaited else asyncio.to_thread(older.wait, timeout)

        assert not await wait(0)
        waiting = asyncio.ensure_future(wait(PATIENCE_S))
        await asyncio.to_thread(stop)
        for heard in (waiting, wait(0)):
            with pytest.raises(PipeStopped, match="a stopped"):
                await heard

    with sqlite_store(tmp_path) as store, ExitStack() as stack:
        scene = Scene(ThreadRuntime(), store, stack)
        older = scene.make(StreamSender, store=store)
        older.send("of the older", until="confirmed", timeout=PATIENCE_S)

        def stop() -> None:
            scene.await_later_number()
            newer = scene.make(StreamSender, store=store)
            newer.send("of the newer", until="confirmed", timeout=PATIENCE_S)
            with pytest.raises(PipeStopped):
                older.send("late", until="confirmed", timeout=PATIENCE_S)

        asyncio.run(look_after(older, stop))


def test_who_waits_for_the_end_of_a_sender_has_it_when_that_is_closed(steps: StepRuntime) -> None:
    """Not while what was sent has nobody who takes it, and not when it was only confirmed."""
    route = LocalRoute()
    with PipeSender("a", route=route, runtime=steps) as sender:
        assert not sender.wait(END_S)
        sender.send("taken")
        with PipeReceiver("a", route=route, runtime=steps) as receiver:
            receiver.receive(_nothing)
            sender.flush(END_S)
            assert not sender.wait(0)
            sender.close()
    assert sender.wait(0)


def test_what_its_owner_has_closed_has_ended_in_order(steps: StepRuntime, tmp_path: Path) -> None:
    """Closed first, and replaced afterwards: wait says that no more comes, and a loop ends."""
    with sqlite_store(tmp_path) as store, ExitStack() as stack:
        scene = Scene(steps, store, stack)
        pipe = scene.make(Pipe, journal=store, state=store)
        pipe.close()
        steps.advance(1)
        newer = scene.make(Pipe, journal=store, state=store)
        newer.receive(_nothing)
        newer.send("of the newer", until="confirmed", timeout=PATIENCE_S)
        assert pipe.wait(END_S)
        with pytest.raises(PipeClosed):
            list(pipe)
        newer.close()


def test_a_listener_closes_all_its_channels_though_one_stops_meanwhile(steps: StepRuntime) -> None:
    """The first stops for good while what it sent is waited for: that is told once the second is closed, too."""
    route, ends = LocalRoute(), list[ChannelFace]()
    with (
        Listener(
            route, names=["a", "b"], accept=ends.append, runtime=steps, restarts=ONCE
        ) as listener,
        ExitStack() as stack,
    ):
        callers = [Channel(name, route=route, runtime=steps) for name in ("a", "b")]
        for caller in callers:
            stack.callback(caller.abort)
            assert caller.wait_up(PATIENCE_S)
        ends[0].send("nobody takes it")
        stopped = PipeStopped("channel a stopped: it is served elsewhere")
        alarm = steps.alarm(lambda: ends[0].end.stop_for_good(stopped))
        alarm.set(steps.now() + 1_000_000)
        with pytest.raises(PipeStopped, match="served elsewhere"):
            listener.close()
        alarm.close()
        assert listener.channels() == {}
        with pytest.raises(PipeClosed):
            ends[1].send("late")
