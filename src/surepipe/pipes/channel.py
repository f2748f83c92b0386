"""Two pipes, one in each direction, between two ends: a channel.

What it adds to its two stacks: both ends know that the other is there before anything is on the way (each
direction is opened by an Open that is repeated until it is answered), an end that listens comes into being by the
first Open, and confirms that must not be lost travel as messages of the opposite stack.

``Channel`` is one end. It is a sender machine and a receiver machine in one, so the hosts of both host it. It is
*down* until both directions are open; frames that its sender makes before that are kept and go out then, in order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar, cast

from surepipe.core import snapshot
from surepipe.core.effects import (
    Accepted,
    Call,
    Cause,
    Confirmed,
    DeadLetter,
    Deliver,
    Effect,
    JournalContents,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    Reject,
    RejectReason,
    Renumbered,
    Transmit,
    WakeAt,
    WriteStored,
)
from surepipe.core.machine import Randomness
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.errors import ConfigurationError
from surepipe.pipes.channel_handshake import (
    CHANNEL_LAYER,
    ChannelOptions,
    Directions,
    Handshake,
    ListenerMachine,
    direction_names,
)
from surepipe.pipes.options import LayerOptions, entry_layer, micros
from surepipe.pipes.retry.backlog import prefix_within
from surepipe.pipes.stack.agreement import Agreement, Terms, stack_digest, stack_text
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.counters import fresh_counters
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import (
    Confirm,
    Data,
    Introduction,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    Unknown,
    tag_of,
)

__all__ = [
    "CHANNEL_LAYER",
    "ChannelMachine",
    "ChannelOptions",
    "ListenerMachine",
    "Role",
    "direction_names",
]


# What an end of a channel keeps: frames that wait for it to open, and which messages are its own.
#
# Confirms that must not be lost are messages of the opposite stack. Where they enter its outermost layer they
# take numbers among those of the application: each message there begins with a mark that tells the two apart,
# and nothing about the channel's own is ever told to the application. So its numbers may have holes on a
# channel.


MESSAGE, CONFIRM = b"\x00", b"\x01"

for _kept in (Deliver, Numbered, Data, Probe, Confirm):
    stateful(_kept)


@stateful
class HeldFrames:
    """Frames made before the channel is open, in order; a later transmission of the same takes its place."""

    __slots__ = ("frames", "messages", "size_bytes")

    def __init__(self) -> None:
        self.frames: dict[tuple[object, ...], object] = {}
        self.messages = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.frames)

    def add(self, frame: object) -> None:
        what = (type(frame).__name__, *(getattr(frame, name, 0) for name in _SAME))
        self._count(self.frames.get(what), -1)
        self.frames[what] = frame
        self._count(frame, 1)

    def take_all(self) -> list[Effect]:
        frames = list(self.frames.values())
        self.frames.clear()
        self.messages = self.size_bytes = 0
        return [Transmit(frame) for frame in frames]

    def _count(self, frame: object, sign: int) -> None:
        payloads: Sequence[bytes] = getattr(frame, "payloads", ())
        self.messages += sign * len(payloads)
        self.size_bytes += sign * sum(map(len, payloads))


_SAME = ("layer", "epoch", "first")
_OF_MESSAGES = (NoticeKind.FENCED, NoticeKind.UNDELIVERABLE, NoticeKind.ORPHANS)


@stateful
class OwnMessages:
    """Which of the messages offered and accepted are the channel's own; tells the host of the others only."""

    __slots__ = ("numbers", "offered", "refused")

    def __init__(self) -> None:
        self.offered: deque[list[int]] = deque()
        """Offers not decided yet, in order: whether they are our own (1 or 0), and how many."""
        self.numbers: dict[int, RangeSet] = {}
        """Our own among the accepted and unconfirmed, by epoch."""
        self.refused = 0
        """Own messages that were not accepted after all."""

    def load(self, contents: JournalContents) -> None:
        """Find our own among the rows of a journal."""
        for rows in contents.rows:
            for seq, payload in enumerate(rows.payloads, rows.first):
                if payload[:1] == CONFIRM:
                    self._of(rows.epoch).add(seq, seq)

    def offer(self, count: int, *, own: bool) -> None:
        """So many messages are offered to the stack now."""
        if count:
            self.offered.append([int(own), count])

    def told(self, effect: Effect) -> Iterable[Effect]:
        """What of an effect of the sending stack the host is told."""
        match effect:
            case Accepted(epoch, first, count):
                return self._accepted(epoch, first, count)
            case Reject(_, count):
                others = self._rejected(count)
                return [replace(effect, count=others)] if others else []
            case Confirmed(epoch, ranges):
                told = self.without(epoch, ranges)
                for first, last in ranges:
                    self._of(epoch).discard(first, last)
                self._forget_if_empty(epoch)
                return [Confirmed(epoch, told)] if told else []
            case Renumbered():
                return self._renumbered(effect)
            case Notice(kind, epoch, ranges) if kind in _OF_MESSAGES:
                return [replace(effect, ranges=self.without(epoch, ranges))]
            case _:
                return [effect]

    def without(self, epoch: int, ranges: Ranges) -> Ranges:
        """These numbers of the sending stack without our own."""
        own = self.numbers.get(epoch)
        if own is None:
            return ranges
        return tuple(part for first, last in ranges for part in own.missing(first, last))

    def _accepted(self, epoch: int, first: int, count: int) -> Iterator[Effect]:
        for is_own, number in self._decided(count, self.offered.popleft, self.offered.appendleft):
            if is_own:
                self._of(epoch).add(first, first + number - 1)
            else:
                yield Accepted(epoch, first, number)
            first += number

    def _rejected(self, count: int) -> int:
        """Rejected are always the last that were offered; says how many of them are the application's."""
        others = 0
        for is_own, number in self._decided(count, self.offered.pop, self.offered.append):
            if is_own:
                self.refused += number
            else:
                others += number
        return others

    def _decided(
        self, count: int, take: Callable[[], list[int]], put_back: Callable[[list[int]], None]
    ) -> Iterator[tuple[int, int]]:
        while count:
            is_own, number = take()
            if number > count:
                put_back([is_own, number - count])
            number = min(number, count)
            count -= number
            yield is_own, number

    def _renumbered(self, effect: Renumbered) -> Iterator[Effect]:
        last = effect.first + effect.count - 1
        shift = effect.new_first - effect.first
        for first, end in self._of(effect.epoch).within(effect.first, last):
            self._of(effect.new_epoch).add(first + shift, end + shift)
        for first, end in self.without(effect.epoch, ((effect.first, last),)):
            count = end - first + 1
            yield replace(effect, first=first, count=count, new_first=first + shift)
        self._of(effect.epoch).discard(effect.first, last)
        self._forget_if_empty(effect.epoch)

    def _of(self, epoch: int) -> RangeSet:
        return self.numbers.setdefault(epoch, RangeSet())

    def _forget_if_empty(self, epoch: int) -> None:
        if not self.numbers.get(epoch):
            self.numbers.pop(epoch, None)


class Role(StrEnum):
    """Which end of a channel this is. The caller sends on ``forward``, the listener on ``back``."""

    CALLER = "caller"
    LISTENER = "listener"


def _entry_for(confirms_of: Sequence[LayerOptions], layers: Sequence[LayerOptions]) -> int | None:
    """The layer of ``layers`` whose messages the confirms of the opposite stack are; None where not needed."""
    if not any(layer.waits_for_carried_confirms for layer in confirms_of):
        return None
    entry = entry_layer(layers)
    if entry is None:
        raise ConfigurationError(
            "a channel needs a layer that sends again by itself to carry the confirms of "
            "sequential-confirm(retry=carrier): add multi-unconfirmed below it"
        )
    return entry


class ChannelMachine:
    """One end of a channel: a machine for both directions."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (
        *("name", "role", "rng", "options", "sender", "receiver", "handshake"),
        *("_boundary", "_directions", "_sends", "_receives", "_entry", "_peer_entry", "agreement"),
    )

    def __init__(
        self,
        name: str,
        role: Role,
        sends: Sequence[LayerOptions],
        receives: Sequence[LayerOptions],
        *,
        rng: Randomness,
        life_hint: int,
        boundary: BoundaryOptions | None = None,
        journal: JournalContents | None = None,
        state: bytes | None = None,
        options: ChannelOptions | None = None,
        payloads: str | None = None,
    ) -> None:
        """``payloads``: how messages are written, as the other end, which is configured apart, is told (see
        ``Terms``); None: it is told nothing of this end's configuration."""
        self.name = name
        self.role = role
        self.rng = rng
        self.options = options or ChannelOptions()
        forward, back = direction_names(name)
        outgoing, incoming = (forward, back) if role is Role.CALLER else (back, forward)
        self._sends, self._receives = tuple(sends), tuple(receives)
        there, here = (sends, receives) if role is Role.CALLER else (receives, sends)
        text = f"layers {stack_text(there)}, back {stack_text(here)}"
        terms = Terms(text, payloads or "")
        self._directions = Directions(
            *(tag_of(outgoing), tag_of(incoming)),
            *(stack_digest(sends), stack_digest(receives)),
            terms,
        )
        is_caller = role is Role.CALLER
        self.agreement = (
            None if payloads is None else Agreement(terms, tag_of(forward), sends=is_caller)
        )
        # Confirms of what we receive enter what we send, and the other way round.
        self._entry = _entry_for(receives, sends)
        self._peer_entry = _entry_for(sends, receives)
        self._boundary = boundary or BoundaryOptions()
        self.sender = SenderStack(outgoing, sends, rng=rng, life_hint=life_hint, journal=journal)
        self.receiver = self._new_receiver(state)
        life = self.sender.intake.life
        self.handshake = Handshake(name, self._directions, self.options, rng, life)
        self.started = False
        self._heard_at = 0
        self._held = HeldFrames()
        self._parts: dict[int, deque[Deliver]] = {}
        self._own = OwnMessages()
        self._newest_confirms: dict[int, Confirm] = {}
        self._waiting_confirms: dict[int, Confirm] = {}
        self._confirm_at: int | None = None
        self._came_back: deque[Confirm] = deque()
        self._done_parts: deque[tuple[int, Ranges]] = deque()
        self._given_up: deque[int] = deque()
        self._sender_life = life
        self._deadlines: dict[str, int | None] = {"sender": None, "receiver": None}
        self._armed: int | None = None
        self._counts = fresh_counters()
        if self._marks_sent:
            self.sender.intake.message_max_bytes += len(MESSAGE)
            self._own.load(journal or JournalContents())

    def _new_receiver(self, state: bytes | None) -> ReceiverStack:
        return ReceiverStack(
            direction_names(self.name)[self.role is Role.CALLER],
            self._receives,
            rng=self.rng,
            boundary=self._boundary,
            state=state,
            take_confirm=self._take_confirm if self._peer_entry is not None else None,
        )

    @property
    def is_up(self) -> bool:
        """True when both directions are open."""
        return self.handshake.up

    @property
    def held(self) -> int:
        """How many frames wait for the channel to be up."""
        return len(self._held.frames)

    @property
    def stopped(self) -> str:
        """Why this end stopped for good; empty while it has not."""
        return self.handshake.stopped or self.sender.stopped

    @property
    def differs(self) -> str:
        """Why the two ends can't work together, once they have told each other; empty otherwise."""
        return self.agreement.differs if self.agreement is not None else ""

    # Inputs of a sender machine.

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Offer messages; before the channel is up they wait, in order."""
        offered = self._fitting(payloads)
        if self._marks_sent:
            offered = [MESSAGE + payload for payload in offered]
            self._own.offer(len(offered), own=False)
        effects = self._from_sender(self.sender.send(offered, now))
        if left_out := len(payloads) - len(offered):
            self._counts["rejected"] += left_out
            effects.append(Reject(RejectReason.FULL, left_out))
        return self._finish(effects, now)

    def _fitting(self, payloads: Sequence[bytes]) -> Sequence[bytes]:
        """While frames are held, what of these may become frames. The stack rejects for its own reasons."""
        if self.is_up or not self.sender.room:
            return payloads
        fitting = list(payloads[: max(0, self.options.held_max - self._held.messages)])
        room = self.options.held_max_bytes - self._held.size_bytes
        return prefix_within(fitting, room, at_least_one=not self._held)[0]

    @property
    def _marks_sent(self) -> bool:
        return self._entry == 0

    @property
    def _marks_received(self) -> bool:
        return self._peer_entry == 0

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        room = self.sender.room
        left = self.options.held_max - self._held.messages
        return room if self.is_up else max(0, min(room, left))

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        room = self.sender.room_bytes
        left = self.options.held_max_bytes - self._held.size_bytes
        return room if self.is_up else max(0, min(room, left))

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed, nothing is in work and no confirm waits."""
        return (
            not (self._held or self._waiting_confirms) and self.sender.idle and self.receiver.idle
        )

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, oldest epoch first."""
        left = [(e, self._own.without(e, ranges)) for e, ranges in self.sender.unconfirmed()]
        return [(epoch, ranges) for epoch, ranges in left if ranges]

    # Inputs of a receiver machine.

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages of the ticket have crossed the boundary."""
        effects = self._from_receiver(self.receiver.settled(ticket >> 1, ranges, now))
        self._next_part(ticket, ranges, effects)
        return self._finish(effects, now)

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """The handler raised for ``seq``; what stands before it is settled. ``final``: never try again."""
        self._parts.pop(ticket, None)
        failing = self.receiver.failed(ticket >> 1, seq, error, now, final=final)
        return self._finish(self._from_receiver(failing), now)

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages were not taken; the carrier must bring them again."""
        if (rest := self._parts.pop(ticket, None)) is not None:
            ranges = (*ranges, *((part.first, _last(part)) for part in rest))
        effects = self._from_receiver(self.receiver.refused(ticket >> 1, ranges, now))
        return self._finish(effects, now)

    def state_after(self, ticket: int, through: int) -> bytes:
        """The state to commit together with the effect of the ticket's messages up to ``through``."""
        return self.receiver.state_after(ticket >> 1, through)

    # Inputs of both.

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame of either direction has arrived."""
        decoded = codec.decoded(frame)
        effects: list[Effect] = []
        ignored = ""
        if isinstance(decoded, codec.NotAFrame):
            ignored = decoded.counter
        elif isinstance(decoded, Introduction):
            ignored = self._introduced(decoded, effects)
        elif not self.started or self.handshake.stopped:
            ignored = "wrong_state"
        elif isinstance(decoded, _HANDSHAKE) and decoded.layer == CHANNEL_LAYER:
            ignored, effects = self.handshake.frame(decoded, self.receiver.incarnation, now)
            self._heard_at = self._heard_at if ignored else now
        else:
            ignored = self._to_stack(decoded, now, effects)
        if ignored:
            self._counts[ignored] += 1
        if self.handshake.stopped and not self.sender.stopped:
            kind = NoticeKind.MISMATCH if self.handshake.is_mismatched else NoticeKind.FENCED
            stopping = self.sender.stop(self.handshake.stopped, now, kind)
            effects += self._from_sender(stopping)
        return self._finish(effects, now)

    def _introduced(self, frame: Introduction, effects: list[Effect]) -> str:
        """The other end says how it is configured; the counter of a frame that is not for us."""
        if self.agreement is None or frame.pipe != tag_of(direction_names(self.name)[0]):
            return "wrong_state" if self.agreement is None else "foreign"
        was_fine = not self.agreement.differs
        effects += map(Transmit, self.agreement.heard(frame))
        if was_fine and self.agreement.differs:
            self.handshake.stop(self.agreement.differs, is_mismatched=True)
        return ""

    def _to_stack(self, frame: object, now: int, effects: list[Effect]) -> str:
        """Give a frame to the stack that it is for; the counter of one that no stack gets."""
        tag = getattr(frame, "pipe", None)
        outgoing, incoming = self._directions.outgoing, self._directions.incoming
        if tag not in (outgoing, incoming):
            return "malformed" if tag is None else "foreign"
        if not self.handshake.receiving_open:
            if tag == incoming:
                incarnation = self.receiver.incarnation
                effects.append(Transmit(Unknown(incoming, CHANNEL_LAYER, 0, incarnation)))
            return "wrong_state"
        self._heard_at = now
        if tag == outgoing:
            effects += self._from_sender(self.sender.frame(frame, now))
        else:
            self.handshake.heard()  # its sender transmits nothing before it is up
            effects += self._from_receiver(self.receiver.frame(frame, now))
        return ""

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed; the first wake starts the machine."""
        self._armed = None
        effects: list[Effect] = []
        open_at = self.handshake.open_at
        if (
            self.agreement is not None
        ):  # before the Open: the other end says no more of it than that it differs
            speak = self.agreement.wake if self.started else self.agreement.begin
            effects += map(Transmit, speak(now))
        if not self.started:
            self.started = True
            self._heard_at = now
            effects += self.handshake.open(now)
        elif open_at is not None and open_at <= now:
            effects += self.handshake.open(now)
        elif (forget_at := self._forget_at) is not None and forget_at <= now:
            self._go_down(now, effects)
        if self._confirm_at is not None and self._confirm_at <= now:
            self._confirm_at = None
        # A stack that is woken arms its deadline anew, or has none.
        self._deadlines = dict.fromkeys(self._deadlines)
        effects += self._from_receiver(self.receiver.wake(now))
        effects += self._from_sender(self.sender.wake(now))
        return self._finish(effects, now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """The outcome of a Persist, Call or DeadLetter."""
        if ticket & 1:
            effects = self._from_receiver(self.receiver.answer(ticket >> 1, outcome, now))
        else:
            if self._marks_sent and isinstance(outcome, JournalContents):
                self._own.load(outcome)
            effects = self._from_sender(self.sender.answer(ticket >> 1, outcome, now))
        return self._finish(effects, now)

    def route_is_back(self, now: int) -> list[Effect]:
        """Frames get through again after an outage: what waits to be sent again need not wait on."""
        effects = self.handshake.route_is_back(now) if self.started else []
        effects += self._from_sender(self.sender.route_is_back(now))
        return self._finish(effects, now)

    def finish(self, now: int) -> list[Effect]:
        """Take nothing more to send; what was taken goes on, and so does the other direction."""
        return self._finish(self._from_sender(self.sender.close(now)), now)

    def take_no_more(self, now: int) -> list[Effect]:
        """Take nothing more from the other end; what was taken is delivered, and this end goes on sending."""
        return self._finish(self._from_receiver(self.receiver.take_no_more(now)), now)

    def close(self, now: int) -> list[Effect]:
        """Take nothing new, in either direction; finish what is begun."""
        effects = self._from_receiver(self.receiver.close(now))
        effects += self._from_sender(self.sender.close(now))
        return self._finish(effects, now)

    # Silence.

    @property
    def _forget_at(self) -> int | None:
        """When silence is long enough. What is in work is no silence: its answers are still to come."""
        if not self.is_up or not (self._boundary.durable or self.receiver.idle):
            return None
        return self._heard_at + micros(self.options.idle_forget_s)

    def _go_down(self, now: int, effects: list[Effect]) -> None:
        """Forget what is volatile at the receiver; what was sent and not confirmed is kept."""
        self.handshake.go_down()
        detail = f"{self.name}: silent"
        effects.append(Notice(NoticeKind.DOWN, self.handshake.life, (), detail))
        if not self._boundary.durable:
            former, self.receiver = self.receiver, self._new_receiver(None)
            self.receiver.replaces(former, now)
        if not self.sender.idle:
            # Perhaps nothing repeats what is unconfirmed: its carrier was told that it had arrived.
            effects += self.handshake.open(now)

    # Effects of the two stacks, made effects of one machine.

    def _from_sender(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._deadlines["sender"] = effect.deadline
            elif isinstance(effect, Transmit) and not self.is_up:
                self._held.add(effect.frame)
            elif isinstance(effect, DeadLetter) and self._marks_sent:
                self._letter_of_sender(effect, out)
            elif isinstance(effect, Persist | Call | DeadLetter):
                out.append(replace(effect, ticket=effect.ticket << 1))
            elif self._marks_sent:
                out.extend(self._own.told(effect))
            else:
                out.append(effect)
        return out

    def _letter_of_sender(self, effect: DeadLetter, out: list[Effect]) -> None:
        """A message that was given up. One of our own is not for the letters: a newer one takes its place."""
        if effect.letter.payload[:1] == CONFIRM:
            self._given_up.append(effect.ticket)
            self._waiting_confirms = {**self._newest_confirms, **self._waiting_confirms}
        else:
            out.append(_unmarked(replace(effect, ticket=effect.ticket << 1)))

    def _from_receiver(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._deadlines["receiver"] = effect.deadline
            elif isinstance(effect, Transmit) and self._is_carried(effect.frame):
                confirm = cast("Confirm", effect.frame)
                self._waiting_confirms[confirm.layer] = confirm
            elif isinstance(effect, Deliver | Persist | Call | DeadLetter):
                numbered = replace(effect, ticket=effect.ticket << 1 | 1)
                if self._marks_received and isinstance(numbered, Deliver):
                    self._take_apart(numbered, out)
                elif self._marks_received and isinstance(numbered, DeadLetter):
                    out.append(_unmarked(numbered))
                else:
                    out.append(numbered)
            else:
                out.append(effect)
        return out

    def _finish(self, effects: list[Effect], now: int) -> list[Effect]:
        if self.handshake.peer_restarted:
            self.handshake.peer_restarted = False
            effects += self._from_sender(self.sender.other_end_restarted(now))
        if self.is_up and self._held:
            effects += self._held.take_all()
        self._exchange_confirms(now, effects)
        if self._held and self.started and not self.is_up and self.handshake.open_at is None:
            effects += self.handshake.open(now)
        times = [*self._deadlines.values(), self.handshake.open_at, self._forget_at]
        times.append(self._confirm_at)
        if self.agreement is not None:
            times.append(self.agreement.again_at)
        deadline = min((time for time in times if time is not None), default=None)
        if deadline != self._armed:
            self._armed = deadline
            effects.append(WakeAt(deadline))
        return effects

    # Confirms that travel as messages of the opposite stack.

    def _is_carried(self, frame: object) -> bool:
        receives = self._receives
        return isinstance(frame, Confirm) and receives[frame.layer].waits_for_carried_confirms

    def _exchange_confirms(self, now: int, effects: list[Effect]) -> None:
        """Take in the confirms that came, send the newest of each layer. What finds no room waits."""
        while self._came_back or self._done_parts or self._given_up:
            if self._came_back:
                effects += self._from_sender(self.sender.frame(self._came_back.popleft(), now))
            elif self._given_up:
                ticket = self._given_up.popleft()
                effects += self._from_sender(self.sender.answer(ticket, WriteStored(), now))
            else:
                ticket, ranges = self._done_parts.popleft()
                done = self.receiver.settled(ticket >> 1, ranges, now, by_host=False)
                effects += self._from_receiver(done)
        if self._own.refused or self._sender_life != self.sender.intake.life:
            self._confirms_were_dropped(now)
        if self.is_up and self._entry is not None and self._confirm_at is None:
            self._send_confirms(self._entry, now, effects)

    def _confirms_were_dropped(self, now: int) -> None:
        """A journal refused them, or a new life of our sender began: the newest of each layer goes again."""
        if self._own.refused:
            self._own.refused = 0
            self._confirm_at = now + micros(self.options.open_initial_s)
        self._sender_life = self.sender.intake.life
        self._waiting_confirms = {**self._newest_confirms, **self._waiting_confirms}

    def _send_confirms(self, entry: int, now: int, effects: list[Effect]) -> None:
        mark = CONFIRM if self._marks_sent else b""
        for layer, confirm in list(self._waiting_confirms.items()):
            if not self.sender.has_room_inside(entry):
                return
            self._own.offer(int(self._marks_sent), own=True)
            made = self.sender.send_inside(entry, mark + codec.encode(confirm), now)
            effects += self._from_sender(made)
            self._newest_confirms[layer] = confirm
            del self._waiting_confirms[layer]

    def _take_confirm(self, payload: bytes) -> bool:
        """Whether a message of the incoming stack is a confirm for the outgoing one; keep it if so."""
        frame = codec.decode(payload)
        if isinstance(frame, Confirm) and frame.pipe == self._directions.outgoing:
            self._came_back.append(frame)
            return True
        return False

    def _take_apart(self, delivery: Deliver, out: list[Effect]) -> None:
        """Split what is delivered into runs of messages and the confirms between them.

        The runs go to the host one after the other: were it told of two at once and failed in the
        first, the second would come again although it is still to be handled.
        """
        parts: deque[Deliver] = deque()
        confirms = RangeSet()
        for seq, payload in enumerate(delivery.payloads, delivery.first):
            if payload[:1] == CONFIRM and self._take_confirm(payload[1:]):
                confirms.add(seq, seq)
            elif parts and _last(parts[-1]) + 1 == seq:
                parts[-1].payloads.append(payload[1:])  # type: ignore[attr-defined]  # a list of ours
            else:
                parts.append(replace(delivery, first=seq, payloads=[payload[1:]]))
        if confirms:
            self._done_parts.append((delivery.ticket, tuple(confirms)))
        if parts:
            self._parts[delivery.ticket] = parts
            out.append(parts[0])

    def _next_part(self, ticket: int, ranges: Ranges, effects: list[Effect]) -> None:
        parts = self._parts.get(ticket)
        if parts and any(first <= _last(parts[0]) <= last for first, last in ranges):
            parts.popleft()
            if parts:
                effects.append(parts[0])
            else:
                del self._parts[ticket]

    # Questions.

    def counters(self) -> Mapping[str, int]:
        """Everything counted since the machine was built, both directions together."""
        total = Counter(self._counts)
        total.update(self.sender.counters())
        total.update(self.receiver.counters())
        return dict(total)

    def gauges(self) -> Mapping[str, int]:
        """What stands now, at this end."""
        return {**self.receiver.gauges(), **self.sender.gauges()}

    def export(self) -> object:
        """The whole state as a plain value, for ``restore``; the random generator is not part of it."""
        known = [] if self.agreement is None else [self.agreement]
        ours = [snapshot.export_attributes(part) for part in (self, self.handshake, *known)]
        return [*ours, self.sender.export(), self.receiver.export()]

    def restore(self, state: object) -> None:
        """Go on from an exported state. This machine must have been built with the same arguments."""
        attributes, handshake, *known, sender, receiver = cast("list[object]", state)
        snapshot.restore_attributes(self, attributes)
        for value in known:
            snapshot.restore_attributes(self.agreement, value)
        snapshot.restore_attributes(self.handshake, handshake)
        self.sender.restore(sender)
        self.receiver.restore(receiver)


_HANDSHAKE = (Open, Opened, Unknown, Refused)


def _last(delivery: Deliver) -> int:
    return delivery.first + len(delivery.payloads) - 1


def _unmarked(effect: DeadLetter) -> DeadLetter:
    """The letter with the payload that the application knows."""
    return replace(effect, letter=replace(effect.letter, payload=effect.letter.payload[1:]))
