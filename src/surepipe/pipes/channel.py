"""Two pipes, one in each direction, between two ends: a channel.

What it adds to its two stacks: both ends know that the other is there before anything is on the way (each
direction is opened by an Open that is repeated until it is answered), an end that listens comes into being by the
first Open, and confirms that must not be lost travel as messages of the opposite stack.

``Channel`` is one end. It is a sender machine and a receiver machine in one, so the hosts of both host it. It is
*down* until both directions are open; frames that its sender makes before that are kept and go out then, in order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from surepipe.effects import (
    Call,
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
    Transmit,
    WakeAt,
)
from surepipe.errors import ConfigurationError
from surepipe.machines import Randomness
from surepipe.pipes import codec
from surepipe.pipes.counters import fresh_counters
from surepipe.pipes.desk import BoundaryOptions
from surepipe.pipes.frames import Confirm, Open, Opened, Unknown, tag_of
from surepipe.pipes.options import LayerOptions, SequentialConfirmOptions, micros
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.stack import ReceiverStack, SenderStack, stack_digest
from surepipe.pipes.timing import backoff

CHANNEL_LAYER = 0xFFFF
"""The layer number of the channel's own frames; no stack is that deep."""

_MESSAGE, _CONFIRM = b"\x00", b"\x01"


class Role(StrEnum):
    """Which end of a channel this is. The caller sends on ``forward``, the listener on ``back``."""

    CALLER = "caller"
    LISTENER = "listener"


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """How a channel opens and when it forgets. Times are seconds."""

    open_initial_s: float = 1.0
    open_max_s: float = 30.0
    jitter: float = 0.1
    idle_forget_s: float = 900.0
    held_max: int = 8192


def direction_names(channel: str) -> tuple[str, str]:
    """The names of the two pipes of a channel."""
    return f"{channel}/forward", f"{channel}/back"


def carried_confirms(layers: Sequence[LayerOptions]) -> bool:
    """True when some layer wants its confirms carried as messages of the opposite stack."""
    return any(isinstance(x, SequentialConfirmOptions) and x.retry == "carrier" for x in layers)


def entry_layer(layers: Sequence[LayerOptions]) -> int:
    """The layer of the opposite stack whose messages the confirms are: the first that sends again itself.

    A layer that itself waits for carried confirms can't carry any: each would need another.
    """
    for number, layer in enumerate(layers):
        if not carried_confirms([layer]):
            return number
    raise ConfigurationError(
        "a channel needs a layer that sends again by itself to carry the confirms of "
        "sequential-confirm(retry=carrier): add multi-unconfirmed below it"
    )


class Listener:
    """Decides which Opens bring a new end into being: one for each accepted name and life."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {tag_of(direction_names(name)[0]): name for name in names}
        self._lives: dict[str, int] = {}

    def admits(self, frame: object) -> str | None:
        """The name of the channel for which an end must be made, or None.

        Repeated, delayed and reordered Opens of a life that was admitted, or of an older one, create nothing.
        """
        if not isinstance(frame, Open) or frame.layer != CHANNEL_LAYER:
            return None
        name = self._names.get(frame.pipe)
        if name is None or frame.life <= self._lives.get(name, 0):
            return None
        is_new = name not in self._lives
        self._lives[name] = frame.life
        return name if is_new else None

    def answer(self, frame: object) -> Unknown | None:
        """What to say to a frame for a channel whose end is not here (any more): open again."""
        tag = getattr(frame, "pipe", None)
        if tag in self._names and not isinstance(frame, Open):
            return Unknown(int(tag), CHANNEL_LAYER, 0, 0)
        return None

    def forget(self, name: str) -> None:
        """The end of this name is gone; a later life may bring a new one."""
        self._lives.pop(name, None)


class Channel:
    """One end of a channel: a machine for both directions."""

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
    ) -> None:
        self.name = name
        self.role = role
        self.rng = rng
        self.options = options or ChannelOptions()
        forward, back = direction_names(name)
        outgoing, incoming = (forward, back) if role is Role.CALLER else (back, forward)
        self._outgoing, self._incoming = tag_of(outgoing), tag_of(incoming)
        self._sends, self._receives = tuple(sends), tuple(receives)
        # Confirms of what we receive enter what we send, and the other way round.
        self._entry = entry_layer(sends) if carried_confirms(receives) else None
        self._peer_entry = entry_layer(receives) if carried_confirms(sends) else None
        self.life = life_hint
        self.link = rng.getrandbits(63) + 1
        self.sender = SenderStack(outgoing, sends, rng=rng, life_hint=life_hint, journal=journal)
        self._make_receiver(boundary or BoundaryOptions(), state)
        self._digest = stack_digest(sends)
        self._peer_digest = stack_digest(receives)
        self._peer_life = 0
        self._sending_open = False
        self._receiving_open = False
        self._up = False
        self._attempts = 0
        self._open_at: int | None = None
        self._heard_at = 0
        self._held: dict[tuple[object, ...], Transmit] = {}
        self._parts: dict[int, deque[Deliver]] = {}
        self._waiting_confirms: dict[int, Confirm] = {}
        self._came_back: deque[Confirm] = deque()
        self._done_parts: deque[tuple[int, Ranges]] = deque()
        self._deadlines: dict[str, int | None] = {"sender": None, "receiver": None}
        self._armed: int | None = None
        self._counts = fresh_counters()

    def _make_receiver(self, boundary: BoundaryOptions, state: bytes | None) -> None:
        self._boundary = boundary
        self.receiver = ReceiverStack(
            direction_names(self.name)[self.role is Role.CALLER],
            self._receives,
            rng=self.rng,
            boundary=boundary,
            state=state,
            take_confirm=self._take_confirm if self._peer_entry is not None else None,
        )

    @property
    def is_up(self) -> bool:
        """True when both directions are open."""
        return self._up

    # Inputs of a sender machine.

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Offer messages; before the channel is up they wait, in order."""
        room = len(payloads) if self._up else min(len(payloads), self.room)
        marked = [_MESSAGE + p for p in payloads[:room]] if self._marks_sent else payloads[:room]
        effects = self._from_sender(self.sender.send(marked, now))
        if room < len(payloads):
            effects.append(Reject(RejectReason.FULL, len(payloads) - room))
        if not self._up and self._open_at is None:
            self._open(now, effects)
        return self._finish(effects, now)

    @property
    def _marks_sent(self) -> bool:
        return self._entry == 0

    @property
    def _marks_received(self) -> bool:
        return self._peer_entry == 0

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        return self.sender.room if self._up or len(self._held) < self.options.held_max else 0

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        return self.sender.room_bytes

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed and nothing is in work."""
        return self.sender.idle and self.receiver.idle and not self._held

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, oldest epoch first."""
        return self.sender.unconfirmed()

    # Inputs of a receiver machine.

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages of the ticket have crossed the boundary."""
        effects = self._from_receiver(self.receiver.settled(ticket >> 1, ranges, now))
        self._next_part(ticket, ranges, effects)
        return self._finish(effects, now)

    def failed(self, ticket: int, seq: int, error: tuple[str, str], now: int) -> list[Effect]:
        """The handler raised for ``seq``; what stands before it is settled."""
        self._parts.pop(ticket, None)
        effects = self._from_receiver(self.receiver.failed(ticket >> 1, seq, error, now))
        return self._finish(effects, now)

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
        decoded = codec.decode(bytes(frame)) if isinstance(frame, bytes | bytearray) else frame
        if isinstance(decoded, codec.Undecodable):
            self._counts[decoded.counter] += 1
            return []
        effects: list[Effect] = []
        if isinstance(decoded, Open | Opened | Unknown) and decoded.layer == CHANNEL_LAYER:
            self._handshake(decoded, now, effects)
        else:
            self._to_stack(decoded, now, effects)
        return self._finish(effects, now)

    def _to_stack(self, frame: object, now: int, effects: list[Effect]) -> None:
        tag = getattr(frame, "pipe", None)
        if tag not in (self._outgoing, self._incoming):
            self._counts["malformed" if tag is None else "foreign"] += 1
        elif not self._receiving_open:
            self._counts["wrong_state"] += 1
            if tag == self._incoming:
                incarnation = self.receiver.incarnation
                effects.append(Transmit(Unknown(self._incoming, CHANNEL_LAYER, 0, incarnation)))
        else:
            self._heard_at = now
            if tag == self._outgoing:
                effects += self._from_sender(self.sender.frame(frame, now))
            else:
                effects += self._from_receiver(self.receiver.frame(frame, now))

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed; the first wake starts the machine."""
        self._armed = None
        effects: list[Effect] = []
        if not self._heard_at:
            self._heard_at = max(now, 1)
            self._open(now, effects)
        elif self._open_at is not None and self._open_at <= now:
            self._open(now, effects)
        elif self._up and now - self._heard_at >= micros(self.options.idle_forget_s):
            self._go_down(now, effects)
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
            effects = self._from_sender(self.sender.answer(ticket >> 1, outcome, now))
        return self._finish(effects, now)

    def close(self, now: int) -> list[Effect]:
        """Take nothing new, in either direction; finish what is begun."""
        effects = self._from_receiver(self.receiver.close(now))
        effects += self._from_sender(self.sender.close(now))
        return self._finish(effects, now)

    # The handshake: each end opens the direction in which it sends.

    def _open(self, now: int, effects: list[Effect]) -> None:
        self._attempts += 1
        life = self.life
        effects.append(
            Transmit(Open(self._outgoing, CHANNEL_LAYER, life, self.link, life, 1, 1, self._digest))
        )
        wait = backoff(
            micros(self.options.open_initial_s),
            micros(self.options.open_max_s),
            self._attempts,
            self.options.jitter,
            self.rng,
        )
        self._open_at = now + wait

    def _handshake(self, frame: Open | Opened | Unknown, now: int, effects: list[Effect]) -> None:
        if isinstance(frame, Opened):
            self._on_opened(frame, now, effects)
        elif isinstance(frame, Unknown):
            self._on_unknown(frame, now, effects)
        elif frame.pipe != self._incoming:
            self._counts["foreign"] += 1
        elif frame.stack != self._peer_digest:
            self._counts["wrong_state"] += 1
            detail = "the other end has other layers; give both ends the same"
            effects.append(Notice(NoticeKind.FENCED, frame.life, (), detail))
        elif frame.life < self._peer_life:
            self._counts["fenced"] += 1
        else:
            self._on_open(frame, now, effects)

    def _on_open(self, frame: Open, now: int, effects: list[Effect]) -> None:
        self._heard_at = now
        if frame.life > self._peer_life:
            is_restart = self._peer_life > 0
            self._peer_life = frame.life
            self._receiving_open = True
            if is_restart or (not self._sending_open and self._open_at is None):
                # The other end is new: it doesn't know that we send, so we open to it again.
                self._up = self._sending_open = False
                self._attempts = 0
                self._open(now, effects)
        effects.append(
            Transmit(
                Opened(
                    self._incoming,
                    CHANNEL_LAYER,
                    frame.link,
                    self.receiver.incarnation,
                    frame.epoch,
                    1,
                    0,
                    0,
                    closed=False,
                )
            )
        )
        self._settle_state(now, effects)

    def _on_opened(self, frame: Opened, now: int, effects: list[Effect]) -> None:
        if frame.pipe != self._outgoing:
            self._counts["foreign"] += 1
        elif frame.link != self.link:
            self._counts["stale_link"] += 1
        elif self._sending_open:
            self._counts["repeated_confirm"] += 1
        else:
            self._heard_at = now
            self._sending_open = True
            self._attempts = 0
            self._open_at = None
            self._settle_state(now, effects)

    def _on_unknown(self, frame: Unknown, now: int, effects: list[Effect]) -> None:
        if frame.pipe != self._outgoing:
            self._counts["foreign"] += 1
        elif not self._sending_open:
            self._counts["wrong_state"] += 1
        else:
            self._up = self._sending_open = False
            self._attempts = 0
            self._open(now, effects)

    def _settle_state(self, now: int, effects: list[Effect]) -> None:
        is_open = self._sending_open and self._receiving_open
        if is_open and not self._up:
            self._up = True
            effects.append(Notice(NoticeKind.UP, self.life, (), self.name))
            effects.extend(self._held.values())
            self._held.clear()

    def _go_down(self, now: int, effects: list[Effect]) -> None:
        """Forget what is volatile at the receiver; what was sent and not confirmed is kept."""
        self._up = self._sending_open = self._receiving_open = False
        self._peer_life = 0
        self._parts.clear()
        self.link = self.rng.getrandbits(63) + 1
        effects.append(Notice(NoticeKind.DOWN, self.life, (), f"{self.name}: silent"))
        if not self._boundary.durable:
            self._make_receiver(self._boundary, None)
            self._deadlines["receiver"] = None
            effects += self._from_receiver(self.receiver.wake(now))

    # Effects of the two stacks, made effects of one machine.

    def _from_sender(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._deadlines["sender"] = effect.deadline
            elif isinstance(effect, Transmit) and not self._up:
                self._hold(effect)
            elif isinstance(effect, Persist | Call | DeadLetter):
                out.append(replace(effect, ticket=effect.ticket << 1))
            else:
                out.append(effect)
        return out

    def _hold(self, effect: Transmit) -> None:
        """Keep a frame until the channel is up; a later transmission of the same takes its place."""
        frame = effect.frame
        what = (type(frame).__name__, getattr(frame, "layer", 0), getattr(frame, "epoch", 0))
        self._held[(*what, getattr(frame, "first", 0))] = effect

    def _from_receiver(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._deadlines["receiver"] = effect.deadline
            elif isinstance(effect, Transmit) and self._is_carried(effect.frame):
                frame = effect.frame
                assert isinstance(frame, Confirm)
                self._waiting_confirms[frame.layer] = frame
            elif isinstance(effect, Deliver) and self._marks_received:
                self._take_apart(replace(effect, ticket=effect.ticket << 1 | 1), out)
            elif isinstance(effect, Deliver | Persist | Call | DeadLetter):
                out.append(replace(effect, ticket=effect.ticket << 1 | 1))
            else:
                out.append(effect)
        return out

    def _finish(self, effects: list[Effect], now: int) -> list[Effect]:
        self._exchange_confirms(now, effects)
        if self._held and self._open_at is None and not self._up and self._heard_at:
            self._open(now, effects)
        times = [*self._deadlines.values(), self._open_at]
        if self._up:
            times.append(self._heard_at + micros(self.options.idle_forget_s))
        deadline = min((time for time in times if time is not None), default=None)
        if deadline != self._armed:
            self._armed = deadline
            effects.append(WakeAt(deadline))
        return effects

    # Confirms that travel as messages of the opposite stack.

    def _is_carried(self, frame: object) -> bool:
        return isinstance(frame, Confirm) and carried_confirms([self._receives[frame.layer]])

    def _exchange_confirms(self, now: int, effects: list[Effect]) -> None:
        """Take in the confirms that came, send the newest of each layer. What finds no room waits."""
        while self._came_back or self._done_parts:
            if self._came_back:
                effects += self._from_sender(self.sender.frame(self._came_back.popleft(), now))
            else:
                ticket, ranges = self._done_parts.popleft()
                effects += self._from_receiver(self.receiver.settled(ticket >> 1, ranges, now))
        if self._up and self._entry is not None:
            mark = _CONFIRM if self._marks_sent else b""
            for layer, confirm in list(self._waiting_confirms.items()):
                inside = mark + codec.encode(confirm)
                taken, made = self.sender.send_inside(self._entry, inside, now)
                effects += self._from_sender(made)
                if taken:
                    del self._waiting_confirms[layer]

    def _take_confirm(self, payload: bytes) -> bool:
        """Whether a message of the incoming stack is a confirm for the outgoing one; keep it if so."""
        frame = codec.decode(payload)
        if isinstance(frame, Confirm) and frame.pipe == self._outgoing:
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
            if payload[:1] == _CONFIRM and self._take_confirm(payload[1:]):
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


def _last(delivery: Deliver) -> int:
    return delivery.first + len(delivery.payloads) - 1
