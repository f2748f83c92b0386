"""``Listener``: the side of a route where channels come in; it makes their ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Container, Iterable
from contextvars import copy_context
from types import TracebackType
from typing import Self, TypeAlias, Unpack, cast

from surepipe.actors.channels.channel import ChannelFace, ChannelPlan, ChannelSettings
from surepipe.actors.channels.end import ChannelEnd
from surepipe.actors.channels.switch import StrangersSide
from surepipe.actors.consuming.coroutines import (
    Coroutines,
    HandlerKind,
    finish,
    in_thread,
    kind_of,
    require_handler,
)
from surepipe.actors.ends.face import EXIT_S
from surepipe.actors.inbox import Bell, BellRing, Box
from surepipe.actors.routes import Route
from surepipe.actors.supervision import KILL, ActorKeeper, Kill, Killed, Start
from surepipe.core.callables import require_call, require_seconds
from surepipe.errors import ConfigurationError, MisuseError, NotConfirmed, PipeStopped
from surepipe.pipes import channel as machines
from surepipe.pipes.catalogue import Layers
from surepipe.pipes.channel import Role

logger = logging.getLogger("surepipe")
Accept: TypeAlias = Callable[[ChannelFace], object]
LAST_CHANCE_S = 0.1
"""What closing gives each channel at least, however long others took."""


class ListenerActor:
    """Looks at what arrives for nobody."""

    def __init__(
        self,
        bell: Bell,
        frames: Box[object],
        look_at: Callable[[object], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._bell = bell
        self._frames = frames
        self._look_at = look_at
        self._died = died

    def receive(self, message: object) -> None:
        """Look at everything that has arrived."""
        match message:
            case BellRing() | Start():
                self._bell.rung = False
                for frame in self._frames.take():
                    self._look_at(frame)
            case Kill():
                raise Killed("the listener was told to die")
            case _:
                raise TypeError(f"a listener takes no {type(message).__name__}")

    def died(self, error: BaseException) -> None:
        self._died(error)


class Listener:
    """Makes the listening end of a channel when the first valid Open of its name arrives.

    ``names``: the channels that may come in, one name or several, taken as they are: ``"rpc-*"`` is a channel
    called that, and no pattern. ``accept(channel)`` gets each new end, once, on the listener's
    thread: it says what happens with messages (``channel.receive(...)``), may send and keep the end, and must not
    wait for long. It may be a coroutine function, which runs on the loop that runs where the listener is made, or
    on one that the process owns; there ``AsyncChannel(channel)`` is the async face of the end. When it raises, the
    end is closed at once and the next Open of that name brings another.
    ``layers`` and ``back`` are those of the calling end, written the same way round: ``layers`` carry what the
    caller sends.

    An end stays until it is closed, here or with the listener, or stops for good (``PipeStopped``); after that the
    next Open, or message, of a caller brings a new one. A caller that starts anew finds the end that is there.

    Raises ConfigurationError and CompositionError as ``Channel``, and MisuseError when somebody listens on this
    side of the route already. None of them leaves a thread behind.
    """

    def __init__(
        self,
        route: Route,
        *,
        names: Iterable[str],
        accept: Accept,
        layers: Layers = "reliable",
        back: Layers | None = None,
        **settings: Unpack[ChannelSettings],
    ) -> None:
        several = isinstance(cast("object", names), Iterable) and not isinstance(names, str)
        known: list[object] = list(names) if several else [names]
        if not known or not all(isinstance(name, str) and name for name in known):
            raise ConfigurationError(
                "a listener needs names: those of the channels that may come in"
            )
        self.names = frozenset(cast("list[str]", known))
        require_handler(accept)
        require_call("accept", accept, "channel")
        self._accept = accept
        self._context = copy_context()
        self._plan = ChannelPlan(min(self.names), layers, back, route, settings, face="Listener")
        self._machine = machines.ListenerMachine(sorted(self.names))
        self._runtime = self._plan.options.runtime
        self._lock = threading.Lock()
        self._channels: dict[str, ChannelFace] = {}
        self._is_closed = False
        self._accepting: int | None = None
        self._coroutines = self._coroutines_of(accept)
        self._bell = Bell(self._tell)
        self._frames: Box[object] = Box(self._bell, self._plan.options.frames_max)
        self._side = StrangersSide(route.receiver)
        self._keeper = ActorKeeper(
            self._runtime, "listener", self._new_life, self._gave_up, self._plan.options.restarts
        )
        try:
            self._side.open(self, self._runtime)
            self._keeper.start()
        except BaseException:
            self._stop(1.0)
            raise

    def _coroutines_of(self, accept: Accept) -> Coroutines:
        around = asyncio._get_running_loop()
        if kind_of(accept) is HandlerKind.COROUTINE and around is not None:
            return self._runtime.coroutines(around, threading.get_ident())
        return self._runtime.coroutines()

    def _tell(self, message: object) -> None:
        self._keeper.tell(message)

    # Where the route puts what is for no end.

    def put(self, frame: object) -> None:
        """From the route: a frame for no end that is here."""
        self._frames.put(frame)

    @property
    def room(self) -> int:
        """For the route: how many more frames fit."""
        return self._frames.room

    def wake(self) -> None:
        """From the route: nothing waits here for room."""

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """From the route: nothing waits here to be sent."""

    # In the actor.

    def _new_life(self) -> ListenerActor:
        return ListenerActor(self._bell, self._frames, self._look_at, self._died)

    def _died(self, error: BaseException) -> None:
        self._frames.clear()
        self._keeper.died(error)

    def _gave_up(self, why: str) -> None:
        logger.error("no more channels come in: %s", why)

    def crash(self) -> None:
        """Let the actor die as a defect would, for fault injection; the ends that are there don't notice."""
        self._keeper.tell(KILL)

    def _look_at(self, frame: object) -> None:
        landing = self._side.landing_of(frame)
        if landing is not None:  # its end came into being while the frame waited here
            landing.put(frame)
        elif self._is_closed:
            return
        elif (name := self._machine.admits(frame)) is not None:
            self._make(name, frame)
        elif (answer := self._machine.answer(frame)) is not None:
            self._side.send(answer)

    def _make(self, name: str, opening: object) -> None:
        try:
            channel = ChannelFace(name, Role.LISTENER, self._plan, self._forget)
        except BaseException:
            self._machine.forget(name)
            raise
        with self._lock:
            former, self._channels[name] = self._channels.get(name), channel
            is_late = self._is_closed
        if former is not None:
            former.abort()
        if is_late:  # ``close`` has not seen it
            channel.abort()
            return
        if (introduction := self._machine.introduction(name)) is not None:
            channel.end.around.put(introduction)
        channel.end.around.put(opening)
        self._introduce(channel)

    def _introduce(self, channel: ChannelFace) -> None:
        self._accepting = threading.get_ident()
        try:
            context = self._context.copy()
            context.run(finish, context.run(self._accept, channel), self._coroutines.wait)
        except BaseException:  # SystemExit too: it would end the actor, and nobody's process
            logger.exception("accept raised for channel %s, which is closed again", channel.name)
            channel.abort()
        finally:
            self._accepting = None

    def _forget(self, end: ChannelEnd) -> None:
        """An end is closed, or has stopped for good: another may come. One that has stopped stays until then, for
        whoever closes it."""
        with self._lock:
            here = self._channels.get(end.name)
            if here is not None and here.end is not end:
                return
            if here is not None and end.is_closed:
                del self._channels[end.name]
        self._machine.forget(end.name)

    # For callers.

    def channels(self) -> dict[str, ChannelFace]:
        """The ends that are here now, by name."""
        with self._lock:
            return dict(self._channels)

    def at(self, address: str) -> ChannelFace:
        """The end here from which messages go to this address (``channel.address`` of a calling end).

        Raises MisuseError when there is none.
        """
        for channel in self.channels().values():
            if channel.peer_address == address:
                return channel
        raise MisuseError(
            f"no channel here leads to {address!r}: its caller has not opened it, or it is closed"
        )

    def close(self, timeout: float = EXIT_S) -> None:
        """Let no more channels in, and close all that are here, as ``ChannelFace.close`` does.

        Raises NotConfirmed, after everything is ended, for what was not confirmed on any of them within
        ``timeout`` seconds, or PipeStopped when one of them stopped for good meanwhile. A second call does
        nothing. Raises MisuseError inside ``accept``.
        """
        require_seconds("listener", timeout, or_none=False)
        here = threading.get_ident()
        if self._accepting is not None and here in (self._accepting, self._coroutines.thread):
            raise MisuseError("close inside accept would wait for accept: call it outside")
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if is_closed:
            return
        end = self._runtime.now() + round(timeout * 1_000_000)
        try:
            self._close_all(timeout, end)
        finally:
            self._stop(max((end - self._runtime.now()) / 1_000_000, 1.0))

    def _close_all(self, timeout: float, end: int) -> None:
        problems: list[NotConfirmed] = []
        stops: list[PipeStopped] = []
        for channel in self.channels().values():
            left = max(0, end - self._runtime.now()) / 1_000_000
            try:
                channel.close(max(left, min(timeout, LAST_CHANCE_S)))
            except NotConfirmed as problem:
                problems.append(problem)
            except PipeStopped as stop:
                stops.append(stop)
        if problems:
            ranges = [item for problem in problems for item in problem.ranges]
            raise NotConfirmed("\n".join(map(str, problems)), ranges)
        if stops:
            raise stops[0]

    def _stop(self, timeout: float) -> None:
        self._side.close()
        self._keeper.stop()
        if not self._keeper.join(timeout):
            logger.warning("the listener is closed while accept is still busy")
        self._coroutines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As ``__exit__``, without blocking the loop."""
        await in_thread(self.close if kind is None else self._abort)

    def _abort(self) -> None:
        with self._lock:
            self._is_closed = True
        for channel in self.channels().values():
            channel.abort()
        self._stop(1.0)
