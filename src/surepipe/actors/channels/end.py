"""One end of a channel over its share of a route's side: a sending and a receiving end with one actor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from surepipe.actors.channels.switch import ChannelSurroundings, SharedSide
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.receiver_host import ReceiverHost
from surepipe.actors.ends.sender import SenderEnd, SenderHost
from surepipe.actors.host import EndOptions, Host, NodeEnd
from surepipe.actors.inbox import Box
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.routes import RouteSide
from surepipe.actors.store_calls import Stores
from surepipe.actors.tracing import after
from surepipe.core.effects import DeadLetter, Effect, Notice, Ranges
from surepipe.errors import NotConfirmed, PipeClosed, PipeStopped
from surepipe.pipes.channel import ChannelMachine, ChannelOptions, Role, direction_names
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import tag_of


class _Direction:
    """One direction of a channel machine, as the life of a sender or of a receiver sees it."""

    def __init__(self, channel: ChannelMachine) -> None:
        self.channel = channel
        self.wake = channel.wake
        self.frame = channel.frame
        self.answer = channel.answer
        self.counters = channel.counters
        self.gauges = channel.gauges
        self.export = channel.export


class Outgoing(_Direction):
    """The direction in which an end sends."""

    def __init__(self, channel: ChannelMachine) -> None:
        super().__init__(channel)
        self.confirms = channel.sender.confirms
        self.send = channel.send
        self.unconfirmed = channel.unconfirmed
        self.route_is_back = channel.route_is_back
        self.close = channel.finish
        self.verify = channel.sender.verify
        self.verifying = False  # no store keeps what a channel has confirmed

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        return self.channel.room

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        return self.channel.room_bytes

    @property
    def stopped(self) -> str:
        """Why this end sends no more; empty while it does."""
        return self.channel.stopped

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed, or was sent where nothing confirms."""
        return self.channel.sender.idle and not self.channel.held

    @property
    def is_stored(self) -> bool:
        """True when a journal knows what is confirmed."""
        return self.channel.sender.is_stored


class IncomingDirection(_Direction):
    """The direction in which an end receives."""

    def __init__(self, channel: ChannelMachine) -> None:
        super().__init__(channel)
        self.boundary = channel.receiver.boundary
        self.confirms = channel.receiver.confirms
        self.settled = channel.settled
        self.failed = channel.failed
        self.refused = channel.refused
        self.state_after = channel.state_after
        self.take_no_more = channel.take_no_more
        self.close = channel.close

    @property
    def has_room(self) -> bool:
        """False while what is in work leaves no room for a whole run more."""
        return self.channel.receiver.has_room

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return self.channel.receiver.idle

    @property
    def is_stored(self) -> bool:
        """True when what is settled is stored."""
        return self.channel.receiver.is_stored

    @property
    def differs(self) -> str:
        """How the other end is configured differently."""
        return self.channel.differs

    def settled_each(self, answers: Sequence[tuple[int, Ranges]], now: int) -> list[Effect]:
        """These messages of these tickets have crossed the boundary."""
        return [
            effect for ticket, ranges in answers for effect in self.settled(ticket, ranges, now)
        ]


# One life of an end: that of a sender and that of a receiver, around one machine.


class ChannelHost(Host[ChannelMachine]):
    """One life of one end. ``looked`` is called after each step.

    The two actors inside are never started: they share the machine, the bell and the alarm of this one, which
    gives them their turn.
    """

    def __init__(
        self,
        around: ChannelSurroundings,
        build: Callable[[], ChannelMachine],
        parts: Callable[[ChannelHost], tuple[SenderHost, ReceiverHost]],
        looked: Callable[[], None],
    ) -> None:
        super().__init__(around)
        self._build = build
        self._looked = looked
        self.has_boxes = True
        self.is_quiet = True
        """For other threads: nothing that arrived was in work at the end of the last step."""
        self.sending, self.receiving = parts(self)
        posting = after(self.sending.ledger.gave_up, self._post)
        own = {**self.perform_by_type, DeadLetter: posting}
        by_type = {**self.sending.perform_by_type, **self.receiving.perform_by_type, **own}
        for part in (self, self.sending, self.receiving):
            part.perform_by_type = by_type

    def build(self) -> bool:
        """Build the machine; works of a former life are void."""
        self.machine = self._build()
        self.is_built = True
        return self.sending.build() and self.receiving.build()

    def take_frames(self) -> None:
        """Every frame that has arrived is an event; those that may wait come last."""
        self.is_quiet = False  # before the box is emptied: who sees an empty box sees this too
        super().take_frames()
        if self.receiving.around is not self.around:
            self.receiving.take_frames()

    def look_further(self) -> None:
        """First what is to be sent: so an answer leaves before the confirm of what it answers."""
        self.sending.moves += 1  # effects of frames and answers were performed here
        self.sending.look_further()
        self.receiving.look_further()
        self.is_quiet = self.machine.receiver.idle
        self._looked()

    def notice(self, effect: Notice) -> None:
        """Tell the people who run the channel."""
        super().notice(effect)
        self.sending.mismatch = self.mismatch

    def close(self) -> None:
        """Deliver nothing more; what is being handled is still reported and confirmed."""
        if self.is_built and not self.receiving.closing:
            self.receiving.closing = True
            self.look()
            self.perform(self.machine.close(self.now()))


@dataclass(frozen=True, slots=True)
class ChannelTerms:
    """What both ends of a channel must agree on (the layers), and how each of them treats what it receives."""

    forward: tuple[LayerOptions, ...]
    back: tuple[LayerOptions, ...]
    boundary: BoundaryOptions = field(default_factory=BoundaryOptions)
    channel: ChannelOptions = field(default_factory=ChannelOptions)
    dead_letter: DeadLetterPlace | None = None
    payloads: str = ""
    """How messages are written, see ``wire_form``."""

    def seen_from(self, role: Role) -> tuple[tuple[LayerOptions, ...], tuple[LayerOptions, ...]]:
        """The route to send through and the one to receive through, from this end."""
        return (self.forward, self.back) if role is Role.CALLER else (self.back, self.forward)


class ChannelEnd(SenderEnd, ReceiverEnd):
    """A sending and a receiving end in one: ``intake`` is where messages go in, ``works`` where they come out.

    When its actor dies, both machines get another life at the same address, and the other end links to it again:
    what was not confirmed is lost and said so. Raises ConfigurationError before anything is started.
    """

    _noun = "channel"

    def __init__(
        self,
        name: str,
        role: Role,
        side: RouteSide,
        terms: ChannelTerms,
        options: EndOptions,
        *,
        gone: Callable[[ChannelEnd], None],
    ) -> None:
        self.side_name = str(role)
        self.role = role
        self._gone = gone
        if role is Role.CALLER:
            self._look_there += (
                "; if it was never called, the log there tells whether accept raised"
            )
        self.terms = terms
        sends, self._receives = terms.seen_from(role)
        names = direction_names(name)
        shared = SharedSide(side, map(tag_of, names), f"channel {name}")
        NodeEnd.__init__(self, name, shared, options, Stores(letter=terms.dead_letter))
        self._layers = sends
        self._journal = None
        self._boundary, self._state, self._stream = terms.boundary, None, None
        machine = self._new_channel()  # built once for its errors, which are the caller's
        self.confirms = machine.sender.confirms
        self._surround(None if machine.receiver.confirms else options.frames_max)
        self.status = self.runtime.signal()
        self._host: ChannelHost | None = None
        self._begin_sending(names[role is Role.LISTENER])
        self._begin_receiving()

    def _surround(self, waiting_max: int | None) -> None:
        """A stack that never sends again must not lose what finds no room now: that waits in a box."""
        around = self.around
        self.around = self._inside = ChannelSurroundings(
            runtime=around.runtime,
            bell=around.bell,
            frames=around.frames,
            transmit=around.transmit,
            notices=around.notices,
            clerk=around.clerk,
            silences=around.silences,
            waiting=None if waiting_max is None else Box(around.bell, waiting_max),
        )

    def _new_channel(self) -> ChannelMachine:
        return ChannelMachine(
            self.name,
            self.role,
            self._layers,
            self._receives,
            rng=Random(self.rng.getrandbits(64)),
            life_hint=self._next_life(),
            boundary=self.terms.boundary,
            options=self.terms.channel,
            payloads=self.terms.payloads,
        )

    # Lives.

    def new_life(self) -> ChannelHost:
        """From the node: the host of a life that is about to begin."""
        self._host = ChannelHost(self._inside, self._new_channel, self._parts, self.status.notify)
        self._actor = self._host.receiving
        return self._host

    def _parts(self, whole: ChannelHost) -> tuple[SenderHost, ReceiverHost]:
        waiting = self._inside.waiting
        around = self.around if waiting is None else replace(self._inside, frames=waiting)
        sending = SenderHost(
            self.around,
            self.intake,
            lambda: Outgoing(whole.machine),
            stopped=self._stop_for_good,
            drained=self._drained,
            route_room=lambda: self._side.room - (whole.machine.held if whole.is_built else 0),
        )
        incoming = ReceiverHost(
            around,
            self.works,
            self._progress,
            lambda: IncomingDirection(whole.machine),
            self._side.taken,
        )
        incoming.ending = incoming.finishing = self._is_finishing
        return sending, incoming

    @property
    def _handler_address(self) -> str:
        return f"{self.address}-handler"  # both ends may be in one process

    def _sender_of(self, host: Host[Any]) -> SenderHost:
        assert isinstance(host, ChannelHost)
        return host.sending

    def _receiver_of(self, host: Host[Any]) -> ReceiverHost:
        assert isinstance(host, ChannelHost)
        return host.receiving

    def _close_machine(self, host: Host[Any]) -> None:
        assert isinstance(host, ChannelHost)
        host.close()

    def died(self, host: Host[Any], error: BaseException) -> None:
        """From the node: its actor has died."""
        if self._inside.waiting is not None:
            self._inside.waiting.clear()
        try:
            super().died(host, error)
        finally:
            self.status.notify()

    def leave_behind(self, error: PipeStopped) -> None:
        self.status = self.runtime.signal()
        super().leave_behind(error)

    def stop_for_good(self, error: PipeStopped) -> None:
        """Whoever uses it hears this. A listening end makes room for another: it would keep its caller linked, and
        take nothing from it."""
        super().stop_for_good(error)
        if self.role is Role.LISTENER:
            self._side.close()
            self._gone(self)

    def raise_from_now_on(self, error: PipeStopped) -> None:
        """Whoever sends, takes messages or waits gets this error."""
        SenderEnd.raise_from_now_on(self, error)
        ReceiverEnd.raise_from_now_on(self, error)
        self.status.notify()

    # For callers.

    @property
    def is_closed(self) -> bool:
        """True when it was told to end; one that stopped for good by itself still has to be."""
        return self._is_stopped

    @property
    def is_up(self) -> bool:
        """True while both directions are open, as far as this end knows."""
        host = self._host
        return self.is_alive and host is not None and host.is_built and host.machine.is_up

    def wait_up(self, timeout: float | None) -> bool:
        """Wait until both directions are open; False when they are not in time.

        Raises PipeStopped or PipeClosed when they never will be.
        """
        over = self.intake
        self.status.wait(lambda: self.is_up or over.refusal is not None, timeout)
        if not self.is_up and over.refusal is not None:
            kind, text = over.refusal
            raise kind(text)
        return self.is_up

    def flush(self, timeout: float | None) -> None:
        """Wait until everything put so far is confirmed; where nothing confirms, until it was sent."""
        end = None if timeout is None else self.runtime.now() + round(timeout * 1_000_000)
        super().flush(timeout)
        if not self.confirms:
            self._await_sent(None if end is None else max(0, end - self.runtime.now()) / 1_000_000)

    def _await_sent(self, timeout: float | None) -> None:
        """Before the channel is up, frames wait in the machine."""
        if not self.status.wait(lambda: not self._holds, timeout):
            raise NotConfirmed(
                f"channel {self.name} is not up, and what was sent waits for that; "
                "see whether the other end is there"
            )

    @property
    def _holds(self) -> bool:
        host = self._host
        return self.is_alive and host is not None and host.is_built and host.machine.held > 0

    def close(self, timeout: float, interrupted: Callable[[], None] = lambda: None) -> None:
        """Wait until all that was sent is confirmed, let the handler finish its message, and end.

        Raises NotConfirmed, after everything is ended, for what was not confirmed in time. ``interrupted`` is
        called when Ctrl-C ends the wait, while this end can still be asked. A second call does nothing.
        """
        if self._is_stopped:
            return
        end = self.runtime.now() + round(timeout * 1_000_000)
        try:
            self._settle_all(end)
        except KeyboardInterrupt:
            interrupted()
            end = 0
            raise
        finally:
            self.stop(max(self._left(end), 1.0))

    def _settle_all(self, end: int) -> None:
        """Meanwhile the handler works on, and what it sends is sent too."""
        if not self.node.is_started or self.intake.refusal is not None:
            return
        self.intake.is_ending = True
        try:
            self.flush(self._left(end))
            self._await_handled(end)
        finally:
            self.stop_consuming(max(self._left(end), 1.0))
            self.finish()
        self.intake.finish(self._left(end))
        if not self.confirms:
            self._await_sent(self._left(end))

    def _await_handled(self, end: int) -> None:
        """What has arrived by now goes through the handler: answers came before the confirms did."""
        if not self.has_consumer:
            return
        if self._inside.waiting is not None:  # nobody would send again what is dropped here
            self.status.wait(lambda: self._is_all_handled, self._left(end))
        elif (newest := self.works.newest()) is not None:
            self.status.wait(lambda: newest not in self.works, self._left(end))

    @property
    def _is_all_handled(self) -> bool:
        host = self._host
        if not self.is_alive or host is None or not host.is_built:
            return True
        return not self._inside.waiting and host.is_quiet and not len(self.works)

    def stop(self, timeout: float) -> bool:
        """End at once; what is not confirmed is given up."""
        is_ended = super().stop(timeout)
        self.intake.end(PipeClosed, f"channel {self.name} is closed", may_take=not is_ended)
        self.status.notify()
        self._gone(self)
        return is_ended
