"""The actor of one end of a channel: that of a sender and that of a receiver, around one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from surepipe.actors.ends.receiver_actor import ReceiverActor
from surepipe.actors.ends.sender import SenderActor
from surepipe.actors.host import Host, Surroundings
from surepipe.actors.inbox import Box
from surepipe.core.effects import Cause, Effect, Notice, Ranges
from surepipe.pipes.channel import ChannelMachine
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import Numbered


@dataclass(slots=True)
class ChannelSurroundings(Surroundings):
    """``waiting`` is there when the incoming stack never sends again: then its frames wait until the machine has
    room, in a box of their own, so that the other direction goes on."""

    waiting: Box[object] | None = None

    def __post_init__(self) -> None:
        self.put = self.frames.put if self.waiting is None else self._put_either

    def _put_either(self, frame: object) -> None:
        assert self.waiting is not None
        (self.waiting if isinstance(frame, Numbered) else self.frames).put(frame)

    @property
    def room(self) -> int:
        """For the route: how many more frames fit, of those that must not be dropped."""
        return self.frames.room if self.waiting is None else self.waiting.room


class ChannelActor(Host[ChannelMachine]):
    """One life of one end. ``looked`` is called after each step.

    The two actors inside are never started: they share the machine, the bell and the alarm of this one, which
    gives them their turn.
    """

    def __init__(
        self,
        around: ChannelSurroundings,
        build: Callable[[], ChannelMachine],
        parts: Callable[[ChannelActor], tuple[SenderActor, ReceiverActor]],
        looked: Callable[[], None],
    ) -> None:
        super().__init__(around)
        self._build = build
        self._looked = looked
        self.has_boxes = True
        self.is_quiet = True
        """For other threads: nothing that arrived was in work at the end of the last step."""
        self.sending, self.receiving = parts(self)
        own = self.perform_by_type
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


class _Direction:
    """What both directions of a channel machine have in common, as the actor of one of them sees it."""

    def __init__(self, channel: ChannelMachine) -> None:
        self.channel = channel

    def wake(self, now: int) -> list[Effect]:
        """As the channel."""
        return self.channel.wake(now)

    def frame(self, frame: object, now: int) -> list[Effect]:
        """As the channel."""
        return self.channel.frame(frame, now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """As the channel."""
        return self.channel.answer(ticket, outcome, now)

    def counters(self) -> Mapping[str, int]:
        """As the channel."""
        return self.channel.counters()

    def gauges(self) -> Mapping[str, int]:
        """As the channel."""
        return self.channel.gauges()

    def export(self) -> object:
        """As the channel."""
        return self.channel.export()


class Outgoing(_Direction):
    """The direction in which an end sends."""

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        return self.channel.room

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        return self.channel.room_bytes

    @property
    def confirms(self) -> bool:
        """True when this direction ever says ``Confirmed``."""
        return self.channel.sender.confirms

    @property
    def stopped(self) -> str:
        """Why this end sends no more; empty while it does."""
        return self.channel.stopped

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed, or was sent where nothing confirms."""
        return self.channel.sender.idle and not self.channel.held

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Offer messages."""
        return self.channel.send(payloads, now)

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What was accepted and is not confirmed."""
        return self.channel.unconfirmed()

    def route_is_back(self, now: int) -> list[Effect]:
        """Frames get through again."""
        return self.channel.route_is_back(now)

    def close(self, now: int) -> list[Effect]:
        """Take nothing more to send."""
        return self.channel.finish(now)


class IncomingDirection(_Direction):
    """The direction in which an end receives."""

    @property
    def boundary(self) -> BoundaryOptions:
        """When a message counts as settled."""
        return self.channel.receiver.boundary

    @property
    def confirms(self) -> bool:
        """True when the other end sends again what is not settled."""
        return self.channel.receiver.confirms

    @property
    def has_room(self) -> bool:
        """False while what is in work leaves no room for a whole run more."""
        return self.channel.receiver.has_room

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return self.channel.receiver.idle

    @property
    def differs(self) -> str:
        """How the other end is configured differently."""
        return self.channel.differs

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages have crossed the boundary."""
        return self.channel.settled(ticket, ranges, now)

    def settled_each(self, answers: Sequence[tuple[int, Ranges]], now: int) -> list[Effect]:
        """The same for several tickets."""
        return [
            effect for ticket, ranges in answers for effect in self.settled(ticket, ranges, now)
        ]

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """The handler raised for ``seq``."""
        return self.channel.failed(ticket, seq, error, now, final=final)

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages were not taken."""
        return self.channel.refused(ticket, ranges, now)

    def state_after(self, ticket: int, through: int) -> bytes:
        """The state to commit together with the effect of these messages."""
        return self.channel.state_after(ticket, through)

    def close(self, now: int) -> list[Effect]:
        """Take nothing new in either direction."""
        return self.channel.close(now)
