"""The two ends of a pipe in different processes, over a route that joins them.

    with PipeSender("orders", route=TcpRoute.connect("orders.internal:7400", security=key)) as sender:
        sender.send({"order": 1})

    with PipeReceiver("orders", route=TcpRoute.listen("0.0.0.0:7400", security=key)) as receiver:
        receiver.receive(handle)
        ...

Both name the same pipe and the same layers. One route may carry any number of pipes. Each process has the stores
of its own end: the sender the journal, the receiver its state.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Unpack

from surepipe.actors.async_face import AsyncHandling, AsyncReplaying, entered
from surepipe.actors.channels.switch import SharedSide
from surepipe.actors.consuming.coroutines import in_task, in_thread, in_turn
from surepipe.actors.consuming.handling import HandlingFace
from surepipe.actors.ends.assembly import (
    Assembly,
    PipeOptions,
    PipeReceiverKeywords,
    PipeSenderKeywords,
    StreamReceiverKeywords,
    StreamSenderKeywords,
    require_route,
)
from surepipe.actors.ends.face import EXIT_S
from surepipe.actors.replaying import ReplayingFace
from surepipe.actors.routes import Route, link_counters
from surepipe.core.store_requests import Store
from surepipe.errors import ConfigurationError, MisuseError, words_of
from surepipe.pipes.catalogue import Layers
from surepipe.pipes.wire.frames import tag_of

logger = logging.getLogger("surepipe")


class SharedRoute:
    """One pipe's share of a route that may carry others too."""

    def __init__(self, route: Route, name: str) -> None:
        require_route(f"pipe {name}", route)
        self.declared = route.declared
        self.sender = SharedSide(route.sender, (tag_of(name),), f"pipe {name}")
        self.receiver = SharedSide(route.receiver, (tag_of(name),), f"pipe {name}")


class LoneSender(ReplayingFace):
    """The sending end of a pipe whose receiving end is not here."""

    def _take(self, parts: Assembly, route: Route | None = None, *, start: bool) -> None:
        self._route = route
        self.guarantee = parts.guarantee
        self._composition = parts.composition
        self._journal = parts.journal
        self.sender = parts.sender()
        self._put = self.sender.entry(self._codec)
        self._begin(self.sender, start=start)

    async def __aenter__(self) -> AsyncSender:
        """The async face, for the loop that runs here."""
        self._require_open()
        return await entered(self, self._await_begin, lambda: AsyncSender(self))

    def __str__(self) -> str:
        return f"{self.name}: {self._composition}"

    @property
    def observed_as(self) -> str:
        return self.sender.observed_as

    def close(self, timeout: float = EXIT_S) -> None:
        """Take no more messages, wait until all are confirmed, by the other process or by the store, then end.

        Raises NotConfirmed for what is not confirmed within ``timeout`` seconds; a journal keeps that for the next
        sender of this name. A second call does nothing.
        """
        self._require_seconds(timeout, or_none=False)
        if not self._is_closed:
            self._closed()
            self.sender.close(timeout, interrupted=self._warn_of_unconfirmed)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is closed; False when that takes longer than ``timeout`` seconds.

        Raises PipeStopped when it stopped for good by itself, because another process took its place, say. It
        finds that out when it next has something to do there: one that sends nothing may never hear of it.
        """
        self._require_seconds(timeout)
        return self.sender.intake.await_over(timeout)

    def _end(self, timeout: float) -> None:
        self.sender.stop(timeout)

    def counters(self) -> dict[str, int]:
        """Everything counted since the sender was made, gauges of what stands now, ``link_...`` of a link."""
        return self.sender.counters() | self.sender.gauges() | link_counters(self._route)


class LoneReceiver(HandlingFace):
    """The receiving end of a pipe whose sending end is not here."""

    def _take(self, parts: Assembly, route: Route | None = None, *, start: bool) -> None:
        self._route = route
        self.guarantee = parts.guarantee
        self.dead_letters = parts.letters
        self._composition = parts.composition
        self.receiver = parts.receiver(self._codec)
        self._commits = parts.commits(self.receiver)
        self._begin(self.receiver, start=start)

    def __str__(self) -> str:
        return f"{self.name}: {self._composition}"

    @property
    def observed_as(self) -> str:
        return self.receiver.observed_as

    def close(self, timeout: float = EXIT_S) -> None:
        """Finish the message that is being handled, confirm or commit what is settled, and end.

        With lanes messages that are older than one which is handled or being handled are handled, too: otherwise
        that one would come again. What was not settled stays with the sender, or in the stream. A handler that is
        still busy after ``timeout`` seconds is left alone. A second call does nothing. Raises MisuseError inside
        the handler.
        """
        self._require_seconds(timeout, or_none=False)
        self.check_outside("close", loops=False)
        if self._is_closed:
            return
        self._closed()
        runtime = self.receiver.runtime
        end = runtime.now() + round(timeout * 1_000_000)
        try:
            self.receiver.fill_gaps(timeout)
        except KeyboardInterrupt:
            end = 0
            raise
        finally:
            self._end(max(0, end - runtime.now()) / 1_000_000)

    def _end(self, timeout: float) -> None:
        if not self.receiver.stop(timeout):
            self._warn_of_busy()
        self._warn_of_repeats()

    def counters(self) -> dict[str, int]:
        """Everything counted since the receiver was made, gauges of what stands now, ``link_...`` of a link."""
        return self.receiver.counters() | self.receiver.gauges() | link_counters(self._route)


class PipeSender(LoneSender):
    """The sending end of a pipe whose receiving end is in another process.

    With a ``journal`` what is accepted outlives this process. ``guarantee`` is that of the whole pipe, and
    assumes a receiver with boundary ``processed`` that keeps no state. Other parameters and errors as for
    ``Pipe``.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = "reliable",
        *,
        route: Route,
        **options: Unpack[PipeSenderKeywords],
    ) -> None:
        given = PipeOptions.given("PipeSender", PipeSenderKeywords, options)
        super().__init__(name, given.codec)
        parts = Assembly(
            *(name, layers, given), route=SharedRoute(route, name), apart_with=self._codec
        )
        self._take(parts, route, start=given.start)


class PipeReceiver(LoneReceiver):
    """The receiving end of a pipe whose sending end is in another process.

    ``state`` keeps its position, so a restart repeats and skips no more messages than ``guarantee`` says.
    ``guarantee`` assumes a sender without a journal. Other parameters and errors as for ``Pipe``.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = "reliable",
        *,
        route: Route,
        **options: Unpack[PipeReceiverKeywords],
    ) -> None:
        given = PipeOptions.given("PipeReceiver", PipeReceiverKeywords, options)
        super().__init__(name, given.codec)
        parts = Assembly(
            *(name, layers, given), route=SharedRoute(route, name), apart_with=self._codec
        )
        self._take(parts, route, start=given.start)

    async def __aenter__(self) -> AsyncReceiver:
        """The async face, for the loop that runs here."""
        self._require_open()
        return AsyncReceiver(self)

    def finish(self) -> None:
        """A ``for`` loop over this end stops when everything is settled that has arrived by now.

        What arrives later is not taken, and stays with a sender whose stack confirms: for the next receiver. May
        be called anywhere, in the loop too. A second call does nothing.
        """
        self.receiver.take_no_more()


# The two ends of a stream pipe in different processes, which need not run at the same time.
#
# with StreamSender("orders", store=store) as sender: # one program sender.send({"order": 1})
#
# with StreamReceiver("orders", {"stream": {"start": "earliest"}}, store=store) as receiver: # another one
# receiver.receive(handle) ...
#
# Both name the same pipe, the same layers, and a store that both reach: one SQLite file, or one Redis.


class StreamSender(LoneSender):
    """The sending end of a stream pipe.

    A message is confirmed when the store has it. With a ``journal`` (which may be another store) what is accepted
    outlives this process even when the stream's store can't be reached. Several senders may write into one
    stream: give each its own ``producer`` in the layer's options, and its journal is its own, too; of two with one
    name the older is fenced.
    ``guarantee`` is that of the whole pipe, and assumes a receiver with boundary ``processed``. Parameters and
    errors as for ``Pipe``.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = "stream",
        *,
        store: Store,
        **options: Unpack[StreamSenderKeywords],
    ) -> None:
        given = PipeOptions.given("StreamSender", StreamSenderKeywords, options)
        super().__init__(name, given.codec)
        given = replace(given, store=store)
        parts = Assembly(name, layers, given, start="earliest", apart_with=self._codec)
        self._take(parts, start=given.start)


class StreamReceiver(LoneReceiver):
    """The receiving end of a stream pipe: one reader, whose place is a position in the store.

    The layer's options must say where a reader without a position starts: ``{"stream": {"start": "earliest"}}``.
    Readers of different names each get every message: give each its own ``reader``, and its dead letters are
    its own, too. Of two with one name the older is fenced. ``state`` keeps the position in another store than
    the stream: with boundary ``"committed"``, in the store that has the effects. ``guarantee`` is that of the
    whole pipe, and assumes a sender without a journal. Parameters and errors as for ``Pipe``.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = (),
        *,
        store: Store,
        **options: Unpack[StreamReceiverKeywords],
    ) -> None:
        if not layers:
            raise ConfigurationError(
                f"pipe {name}: a StreamReceiver needs layers, which say where it starts: write "
                'StreamReceiver(name, {"stream": {"start": "earliest"}}, store=store)'
            )
        given = PipeOptions.given("StreamReceiver", StreamReceiverKeywords, options)
        super().__init__(name, given.codec)
        given = replace(given, store=store)
        parts = Assembly(name, layers, given, apart_with=self._codec)
        self._take(parts, start=given.start)

    async def __aenter__(self) -> AsyncStreamReceiver:
        """The async face, for the loop that runs here."""
        self._require_open()
        return await entered(self, self._await_begin, lambda: AsyncStreamReceiver(self))

    def catch_up(self, timeout: float | None = None) -> bool:
        """Wait until everything is settled that is in the stream now; False, and no error as ``flush`` raises,
        when that takes longer than ``timeout`` seconds.

        False also when the store does not say in that time (a second at least) where the stream ends now; without
        a timeout StoreUnavailable is raised then. Raises PipeStopped when the receiver stopped for good,
        StoreReset when the store has no such stream any more, and MisuseError inside the handler or loop.
        """
        self._require_seconds(timeout)
        self.check_outside("catch_up")
        return self.receiver.catch_up(timeout)

    def finish(self) -> None:
        """A ``for`` loop over this end stops when everything is settled that is in the stream now.

        Where the store does not say how far that is, the log says so, and it is asked again until it does: then
        what is in the stream by that time is settled first.
        """
        self.receiver.read_all()


class AsyncSender(AsyncReplaying[LoneSender]):
    """The sending end of a pipe, or of a stream."""

    _of = (PipeSender, StreamSender)

    async def wait(self, timeout: float | None = None) -> bool:
        """As the synchronous ``wait``: until it is closed. Raises PipeStopped when it stopped by itself."""
        return await in_turn(lambda: self.sync.wait(timeout))


class AsyncReceiver(AsyncHandling[PipeReceiver]):
    """The receiving end of a pipe."""

    _of = (PipeReceiver,)

    def finish(self) -> None:
        """An ``async for`` over this end stops when everything is settled that has arrived by now; what arrives
        later is not taken."""
        self.sync.finish()


class AsyncStreamReceiver(AsyncHandling[StreamReceiver]):
    """The receiving end of a stream."""

    _of = (StreamReceiver,)
    _finishing: asyncio.Future[None] | None = None

    async def catch_up(self, timeout: float | None = None) -> bool:
        """Wait until everything is settled that is in the stream now; False, and no error as ``flush`` raises,
        when that takes longer than ``timeout`` seconds, or the store is silent for so long. Without a timeout that
        raises StoreUnavailable."""
        await in_task(lambda: self.sync.check_outside("catch_up"))
        return await in_thread(lambda: self.sync.catch_up(timeout))

    def finish(self) -> asyncio.Future[None]:
        """An ``async for`` over this end stops when everything is settled that is in the stream now.

        It takes effect whether or not it is awaited, and where the store does not say how far that is, as soon as
        it does, see the synchronous ``finish``. Raises MisuseError where no loop runs.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise MisuseError(
                f"finish of the async face of {self.name} asks the store on a loop, and none runs here: call "
                ".sync.finish()"
            ) from None
        finishing = in_thread(self.sync.finish)
        self._finishing = asyncio.ensure_future(finishing)  # kept here: a loop keeps no task alive
        self._finishing.add_done_callback(self._tell_of_finish)
        return self._finishing

    def _tell_of_finish(self, finishing: asyncio.Future[None]) -> None:
        """Perhaps nobody awaits it."""
        if not finishing.cancelled() and (error := finishing.exception()) is not None:
            logger.warning("pipe %s: finish had no effect: %s", self.name, words_of(error))
