"""Channels as an application sees them: two ends that send to each other, and a listener that makes ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast

from surepipe.actors.async_face import AsyncReceiving, AsyncSending, entered
from surepipe.actors.channels.end import ChannelEnd, ChannelTerms
from surepipe.actors.codecs import CodecChoice, choose_codec, wire_form
from surepipe.actors.consuming.consumer import (
    BatchHandler,
    Handler,
    each,
    each_in_task,
    together,
    together_in_task,
)
from surepipe.actors.consuming.coroutines import SETTLED, in_turn, require_handler
from surepipe.actors.consuming.handling import CoroutineBatchHandler, CoroutineHandler
from surepipe.actors.ends.assembly import PipeOptions, boundary_of, require_route
from surepipe.actors.ends.face import EXIT_S, Face
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.notices import NoticeCallback
from surepipe.actors.routes import Route, link_counters
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import RestartPolicy
from surepipe.core.callables import refusal_of, require_call
from surepipe.core.store_requests import Level
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.guarantees import derive
from surepipe.guarantees.derivation import Derived
from surepipe.guarantees.hops import DeclaredStore, Hop
from surepipe.pipes.catalogue import Layers, parse_layers
from surepipe.pipes.channel import ChannelOptions, Role
from surepipe.pipes.stack.assembled import composition
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions

_LETTERS = DeclaredStore("dead letters", Level.NONE, kind="memory")


class ChannelSettings(TypedDict, total=False):
    """What an end may be given beside its name, layers and route.

    As for ``Pipe``: ``codec``, ``boundary``, ``retries``, ``retry_min_s``, ``retry_max_s``, ``dead_letter``,
    ``notices`` (also Up and Down), ``restarts``, ``frames_max``, ``seed``, ``runtime``. They concern what this end
    receives. ``opening``: how the channel opens and when it forgets.
    """

    codec: CodecChoice
    boundary: Boundary | Literal["processed", "handed"]
    retries: int | None
    retry_min_s: float
    retry_max_s: float
    dead_letter: DeadLetterPlace | None
    notices: NoticeCallback
    restarts: RestartPolicy
    frames_max: int
    seed: int | None
    runtime: Runtime
    opening: ChannelOptions


class _Sent:
    """There is nothing to wait for any more.

    1. A coroutine writes ``await reply(answer)``. 2. The answer goes out, and None can't be awaited. 3. So the
    handler has failed, and each attempt sends the answer once more.
    """

    def __await__(self) -> Iterator[None]:
        return iter(())


_SENT = _Sent()
SETTLED.add(_Sent)  # a handler may give it, as it gave None


class Reply:
    """Sends through the channel that a message came through: the second argument of a handler that wants one."""

    def __init__(self, send: Callable[[object, float | None], None], address: str) -> None:
        self._send = send
        self.address = address
        """The end that the answer goes to."""

    def __call__(self, message: object, *, timeout: float | None = None) -> None:
        """Send an answer; raises what ``ChannelFace.send`` raises.

        It is a message of its own: when the handler raises afterwards, the answer is on its way all the same, and
        the next attempt sends another. In a coroutine write ``await reply.send(answer)``, which can wait for room;
        where there is room ``await reply(answer)`` does the same.
        """
        self._send(message, timeout)
        return cast("None", _SENT)

    async def send(self, message: object, *, timeout: float | None = None) -> None:
        """The same for a handler that is a coroutine: it waits for room without blocking its loop."""
        await in_turn(lambda: self._send(message, timeout))


AnsweringHandler: TypeAlias = Callable[[object, Reply], object]


class ChannelPlan:
    """Check the settings of a channel, and compute its guarantees, before anything is started."""

    def __init__(
        self,
        name: str,
        layers: Layers,
        back: Layers | None,
        route: Route,
        settings: ChannelSettings,
        *,
        face: str = "Channel",
    ) -> None:
        forward = parse_layers(layers)
        named: dict[str, Any] = {**settings}
        opening: ChannelOptions = named.pop("opening", ChannelOptions())
        given = PipeOptions.given(face, ChannelSettings, named)
        _require_sound(face, name, route, opening, settings.get("dead_letter"))
        self.route = route
        self.codec: CodecChoice = given.codec
        self.terms = ChannelTerms(
            forward,
            forward if back is None else parse_layers(back),
            BoundaryOptions(
                boundary=boundary_of(given.boundary),
                retries=given.retries,
                retry_min_s=given.retry_min_s,
                retry_max_s=given.retry_max_s,
                dead_letters=given.dead_letter is not None,
            ),
            opening,
            settings.get("dead_letter"),
            wire_form(choose_codec(self.codec)),
        )
        self.options = given.of_end()
        if route.declared.one_way:
            raise ConfigurationError(
                f"channel {name}: route {route.declared.name} has no way back, and a channel sends in "
                "both directions; use a two-way route, or a Pipe"
            )
        self._name = name
        self.forward = derive(self._hop(name, Role.CALLER))
        self.back = derive(self._hop(f"{name}/back", Role.LISTENER))

    def _hop(self, name: str, sends: Role) -> Hop:
        """One direction; the other one is its way back."""
        layers, others = self.terms.seen_from(sends)
        declared = self.route.declared
        return Hop(
            name,
            layers,
            route=declared if sends is Role.CALLER else declared.reversed(),
            boundary=self.terms.boundary.boundary,
            retries=self.terms.boundary.retries,
            dead_letters=None if self.terms.dead_letter is None else _LETTERS,
            channel_back=others,
        )

    def guarantees(self, role: Role) -> tuple[Derived, Derived]:
        """Of what an end sends, and of what it receives."""
        return (self.forward, self.back) if role is Role.CALLER else (self.back, self.forward)


class ChannelFace(Face):
    """One end of a channel. What it sends arrives at the other end, and the other way round.

    ``guarantee`` is what is promised for what this end sends, ``guarantee_back`` for what it receives; both take
    it that the two ends have the same settings. ``address`` names this end, ``peer_address`` the other one.

    What is sent before the channel is up waits and goes out then, in order. When one end crashes or its process
    starts anew, the other links to it again; nothing is lost by that but what the guarantee says.

    A handler that answers waits for room like any sender. Where both ends' handlers send for each message that
    they get, both may wait for each other: give such answers a ``timeout``.
    """

    _noun = "channel"

    def __init__(
        self, name: str, role: Role, plan: ChannelPlan, gone: Callable[[ChannelEnd], None]
    ) -> None:
        super().__init__(name, plan.codec)
        self.role = role
        self.guarantee, self.guarantee_back = plan.guarantees(role)
        self._route = plan.route
        side = plan.route.sender if role is Role.CALLER else plan.route.receiver
        self.end = ChannelEnd(name, role, side, plan.terms, plan.options, gone=gone)
        self.sender = self.receiver = self.end
        self._ends = (self.end,)
        self._put = self.end.intake.entry(self._codec)
        sends, receives = plan.terms.seen_from(role)
        self._composition = (
            f"{composition(sends)} there, {composition(receives)} back / {plan.route.declared.name}"
        )
        self._needs_handler_to_confirm = any(layer.waits_for_carried_confirms for layer in sends)
        try:
            self.end.start()
        except BaseException:
            self._end(1.0)
            raise
        self._opened()

    async def __aenter__(self) -> AsyncChannel:
        self._require_open()
        return await entered(self, self._await_begin, lambda: AsyncChannel(self))

    def __str__(self) -> str:
        return f"{self.name} ({self.role}): {self._composition}"

    @property
    def address(self) -> str:
        """The name of this end: where an answer to what it sends goes."""
        return self.end.address

    @property
    def peer_address(self) -> str:
        """The name of the other end: where what is sent here goes."""
        peer = Role.LISTENER if self.role is Role.CALLER else Role.CALLER
        return f"{self.name}/{peer}"

    @property
    def is_up(self) -> bool:
        """True while both directions are open, as far as this end knows: it stays so when the other end is killed,
        until that one comes again or has been silent for ``idle_forget_s``. Whether somebody is there now, only an
        answer tells: ``send(..., until="confirmed", timeout=...)``."""
        return self.end.is_up

    def wait_up(self, timeout: float | None = None) -> bool:
        """Wait until both directions are open; False, and no error, when they are not within ``timeout`` seconds.

        Nothing needs this before sending. Raises PipeStopped (the other end has other layers, or serves a newer
        life of this one) and PipeClosed.
        """
        self._require_seconds(timeout)
        return self.end.wait_up(timeout)

    # Receiving.

    def receive(self, handler: Handler | AnsweringHandler) -> None:
        """Let ``handler(message)``, or ``handler(message, reply)``, take every message on a thread of its own.

        ``reply(answer)`` sends through this channel, in a coroutine ``await reply.send(answer)``; see ``Reply``. A
        coroutine function is awaited as by ``Pipe.receive``. A message is settled when the handler
        returns; when it raises, the message is tried again with growing waits. Raises PipeClosed, and MisuseError
        when there is a handler or a ``for`` loop already, or when this one takes neither of the two.
        """
        self._check_open()
        self._check_unused()
        require_handler(handler)
        taking = self._taking(handler)
        if not self._in_tasks(
            handler, lambda: each_in_task(cast("CoroutineHandler", taking), self._codec)
        ):
            self.end.consume(each(taking, self._codec, self.end.coroutines.wait))

    def _taking(self, handler: Handler | AnsweringHandler) -> Handler:
        """The handler as one that takes the message alone."""
        if not refusal_of(handler, "message"):
            return cast("Handler", handler)
        if why := refusal_of(handler, "message, reply"):
            raise MisuseError(
                f"channel {self.name}: the handler can't be called ({why}); "
                "write handler(message) or handler(message, reply)"
            )
        answering = cast("AnsweringHandler", handler)
        reply = Reply(
            lambda message, timeout: self.send(message, timeout=timeout), self.peer_address
        )
        return lambda message: answering(message, reply)

    def receive_many(self, handler: BatchHandler) -> None:
        """Let ``handler(messages)`` take messages in batches, each settled as one. Those of a batch that fails
        come once more, one by one, as by ``Pipe.receive_many``. Raises as ``receive``."""
        self._check_open()
        self._check_unused()
        require_handler(handler)
        require_call(f"channel {self.name}: the handler", handler, "messages")
        if not self._in_tasks(
            handler, lambda: together_in_task(cast("CoroutineBatchHandler", handler), self._codec)
        ):
            self.end.consume(together(handler, self._codec, self.end.coroutines.wait))

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        """Here a handler may wait for what it sends, unless the confirm would queue up behind its message."""
        if what == "close" or self._needs_handler_to_confirm:
            super().check_outside(what, loops=loops)

    # The end.

    def finish(self) -> None:
        """A ``for`` loop over this end stops when everything is settled that has arrived by now.

        What arrives later is not taken, and stays with the other end where its stack confirms. This end may go on
        sending; only where confirms travel as messages of the other direction (``sequential-confirm`` with
        ``retry: carrier``) none comes any more, so flush before. A second call does nothing.
        """
        self.end.take_no_more()

    def close(self, timeout: float = EXIT_S) -> None:
        """Wait until all that was sent is confirmed, let the handler finish its message, end all threads.

        Raises NotConfirmed for what was not confirmed within ``timeout`` seconds, after everything is ended. What
        the other end sends from then on is not confirmed to it. A second call does nothing. Raises MisuseError
        inside the channel's own handler, where nothing is changed.
        """
        self._require_seconds(timeout, or_none=False)
        self.check_outside("close", loops=False)
        if self._is_closed:
            return
        self._closed()
        try:
            self.end.close(timeout, interrupted=self._warn_of_unconfirmed)
        finally:
            self._end(1.0)

    def _end(self, timeout: float) -> None:
        if not self.end.stop(timeout):
            self._warn_of_busy()

    # Questions.

    def counters(self) -> dict[str, int]:
        """Everything counted at this end, by name, since it was made; gauges of what stands now too.

        ``link_...`` is what the link counts that its route runs on.
        """
        return self.end.counters() | self.end.gauges() | link_counters(self._route)


class Channel(ChannelFace):
    """The calling end of a channel: it opens the channel to a ``Listener`` on the other side of the route.

    ``layers`` carry what this end sends, ``back`` what it receives (None: the same); outermost first, as for
    ``Pipe``. The listening end is given the same. Channels of different names may share a route.

    Raises ConfigurationError for a layer, an option or a route that is wrong, CompositionError for a direction
    that can't keep its promise over the route and the other direction, and MisuseError when the name is in use on
    this side of the route. None of them leaves a thread behind.

    Use it in a ``with`` block: at its end everything sent is waited for (at most 30 s), then the end is closed.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = "reliable",
        *,
        route: Route,
        back: Layers | None = None,
        **settings: Unpack[ChannelSettings],
    ) -> None:
        plan = ChannelPlan(name, layers, back, route, settings)
        super().__init__(name, Role.CALLER, plan, _nobody_cares)


def _require_sound(
    face: str, name: object, route: object, opening: object, dead_letter: object
) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(
            f"{face}: a channel needs a name, by which its two ends find each other; {name!r} is none"
        )
    require_route(f"channel {name}", route)
    if not isinstance(opening, ChannelOptions):
        raise ConfigurationError(f"channel {name}: opening is {opening!r}; give ChannelOptions()")
    if dead_letter is not None:
        require_call(f"channel {name}: dead_letter", dead_letter, "letter", ConfigurationError)


def _nobody_cares(end: ChannelEnd) -> None:
    """A calling end is in nobody's list."""


class AsyncChannel(AsyncSending[ChannelFace], AsyncReceiving[ChannelFace]):
    """One end of a channel. Where a ``Listener`` makes the end, ``accept`` may be a coroutine function that makes
    this of it: ``AsyncChannel(channel)``."""

    _of = (ChannelFace,)
    _write = (
        "the function that makes it is a coroutine function, such as async def accept(channel), which a Listener "
        "takes, too"
    )

    def _instead_of_block(self) -> str:
        return (
            f"call what it has ({self.name} stays open behind accept, and its Listener closes it); a block that "
            "ends a channel of your own is async with Channel(...) as face, without AsyncChannel"
        )

    def receive(self, handler: Handler | AnsweringHandler) -> None:
        """Let ``handler(message)``, or ``handler(message, reply)``, take every message; a coroutine answers by
        ``await reply.send(answer)``. Otherwise as for a pipe."""
        self._on_this_loop()
        self.sync.receive(handler)

    def receive_many(self, handler: BatchHandler) -> None:
        """Let ``handler(messages)`` take messages in batches. See ``receive``."""
        self._on_this_loop()
        self.sync.receive_many(handler)

    def finish(self) -> None:
        """An ``async for`` over this end stops when everything is settled that has arrived by now; what arrives
        later is not taken, and this end may go on sending."""
        self.sync.finish()

    @property
    def is_up(self) -> bool:
        """True while both directions are open, as far as this end knows."""
        return self.sync.is_up

    async def wait_up(self, timeout: float | None = None) -> bool:
        """Wait until both directions are open; False, and no error, when they are not within ``timeout``."""
        return await in_turn(lambda: self.sync.wait_up(timeout))
