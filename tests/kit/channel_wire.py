"""Both ends of a channel on a fake wire in virtual time; the listening end comes into being by an Open."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from surepipe.core.effects import (
    Accepted,
    Confirmed,
    Deliver,
    Effect,
    Notice,
    NoticeKind,
    Reject,
    Renumbered,
    Transmit,
    WakeAt,
)
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.channel import ChannelMachine, ChannelOptions, ListenerMachine, Role
from surepipe.pipes.wire.frames import Frame

CALLER, LISTENER = Role.CALLER, Role.LISTENER


@dataclass
class End:
    """One end and what happened there. ``messages`` is what was accepted, by identity."""

    machine: ChannelMachine
    deadline: int | None = None
    offered: deque[bytes] = field(default_factory=deque[bytes])
    messages: dict[tuple[int, int], bytes] = field(default_factory=dict[tuple[int, int], bytes])
    accepted: int = 0
    confirmed: int = 0
    confirms: list[bytes] = field(default_factory=list[bytes])
    rejected: list[Reject] = field(default_factory=list[Reject])
    delivered: list[bytes] = field(default_factory=list[bytes])
    notices: list[NoticeKind] = field(default_factory=list[NoticeKind])


@dataclass
class ChannelWire:
    """``lose(frame, to, number)`` decides which transmissions vanish; ``delay_us`` is drawn for each."""

    forward: LayerText | Sequence[LayerText]
    back: LayerText | Sequence[LayerText]
    seed: int = 1
    delay_us: tuple[int, int] = (1_000, 1_000)
    lose: Callable[[Frame, Role, int], bool] | None = None
    copies: Callable[[Frame, Role, int], Sequence[int]] | None = None
    options: ChannelOptions = field(default_factory=ChannelOptions)
    auto_settle: bool = True
    twin: Callable[[ChannelMachine], ChannelMachine] | None = None
    """Makes a copy of an end, which gets the same frame and must answer it alike (P-11)."""

    def __post_init__(self) -> None:
        self.now = 0
        self.rng = random.Random(self.seed)
        self.number = 0
        self.lives = 0
        self.made = 0
        self.sent: list[tuple[Role, Frame]] = []
        self.heap: list[tuple[int, int, Role, Frame]] = []
        self.deferred: deque[tuple[Role, Deliver]] = deque()
        self.listener = ListenerMachine(["talk"])
        self.ends: dict[Role, End] = {}
        self.start(CALLER)

    def start(self, role: Role) -> None:
        """Start an end, or start it again with an empty memory."""
        self.lives += 1
        sends, receives = (self.forward, self.back) if role is CALLER else (self.back, self.forward)
        machine = ChannelMachine(
            "talk",
            role,
            parse_layers(sends),
            parse_layers(receives),
            rng=random.Random(self.rng.getrandbits(64)),
            life_hint=self.lives << 20,
            options=self.options,
        )
        former = self.ends.get(role)
        self.ends[role] = End(machine)
        if former:
            self.ends[role].delivered = former.delivered
            self.ends[role].notices = former.notices
        self.made += 1
        self._perform(role, machine.wake(self.now))

    def stop_listening_end(self) -> None:
        """The listening process ends; whoever listens there now knows nothing."""
        del self.ends[LISTENER]
        self.listener = ListenerMachine(["talk"])

    def send(self, role: Role, *payloads: bytes | int) -> None:
        """The application at one end offers messages."""
        offered = [p if isinstance(p, bytes) else str(p).encode() for p in payloads]
        self.ends[role].offered.extend(offered)
        self._perform(role, self.ends[role].machine.send(offered, self.now))

    def run(self, until_us: int) -> None:
        """Move frames and time up to a moment."""
        while self.step(until_us):
            pass
        self.now = until_us

    def step(self, until_us: int) -> bool:
        """One frame arrives, or time passes up to the next deadline; False when nothing happens until then."""
        dues = [end.deadline for end in self.ends.values() if end.deadline is not None]
        due = min(dues, default=None)
        arrival = self.heap[0][0] if self.heap else None
        times = [time for time in (due, arrival) if time is not None and time <= until_us]
        if not times:
            return False
        self.now = max(self.now, min(times))
        if arrival is not None and arrival <= self.now:
            _, _, to, frame = heapq.heappop(self.heap)
            self._arrive(to, frame)
        else:
            self._wake_due()
        return True

    def up(self) -> bool:
        """Both ends say that the channel is up."""
        return len(self.ends) == 2 and all(end.machine.is_up for end in self.ends.values())

    def _wake_due(self) -> None:
        for role, end in list(self.ends.items()):
            if end.deadline is not None and end.deadline <= self.now:
                end.deadline = None
                self._perform(role, end.machine.wake(self.now))

    def _arrive(self, to: Role, frame: Frame) -> None:
        if to is LISTENER and LISTENER not in self.ends:
            if self.listener.admits(frame):
                self.start(LISTENER)
            elif (answer := self.listener.answer(frame)) is not None:
                self._put(LISTENER, answer)
                return
            else:
                return
        elif to is LISTENER:
            assert self.listener.admits(frame) is None, "a second end for a name that has one"
        machine = self.ends[to].machine
        twin = self.twin(machine) if self.twin else None
        effects = machine.frame(frame, self.now)
        if twin:
            assert twin.frame(frame, self.now) == effects
            assert twin.export() == machine.export()
        self._perform(to, effects)

    def _perform(self, role: Role, effects: list[Effect]) -> None:
        end = self.ends[role]
        for effect in effects:
            match effect:
                case Transmit(frame):
                    self._put(role, frame)  # type: ignore[arg-type]
                case Accepted(epoch, first, count):
                    end.accepted += count
                    for seq in range(first, first + count):
                        end.messages[epoch, seq] = end.offered.popleft()
                case Confirmed(epoch, ranges):
                    numbers = [n for first, last in ranges for n in range(first, last + 1)]
                    end.confirmed += len(numbers)
                    end.confirms += [end.messages[epoch, seq] for seq in numbers]
                case Reject(_, count):
                    end.rejected.append(effect)
                    for _ in range(count):
                        end.offered.pop()
                case Renumbered(epoch, first, count, new_epoch, new_first):
                    for i in range(count):
                        end.messages[new_epoch, new_first + i] = end.messages[epoch, first + i]
                case Deliver():
                    self.deferred.append((role, effect))
                case WakeAt(deadline):
                    end.deadline = deadline
                case Notice(kind):
                    end.notices.append(kind)
                case _:
                    raise AssertionError(f"unexpected {effect}")
        while self.deferred and self.auto_settle:
            self._handle(*self.deferred.popleft())

    def settle(self) -> None:
        """The handler returns for the oldest delivery that is open, at either end."""
        self._handle(*self.deferred.popleft())

    def _handle(self, role: Role, delivery: Deliver) -> None:
        end = self.ends[role]
        end.delivered.extend(delivery.payloads)
        last = delivery.first + len(delivery.payloads) - 1
        ranges = ((delivery.first, last),)
        self._perform(role, end.machine.settled(delivery.ticket, ranges, self.now))

    def _put(self, sender: Role, frame: Frame) -> None:
        to = LISTENER if sender is CALLER else CALLER
        self.number += 1
        self.sent.append((sender, frame))
        if not (self.lose and self.lose(frame, sender, self.number)):
            self._schedule(to, frame, self.rng.randint(*self.delay_us))
        for extra in self.copies(frame, sender, self.number) if self.copies else ():
            self._schedule(to, frame, extra)

    def _schedule(self, to: Role, frame: Frame, delay: int) -> None:
        heapq.heappush(self.heap, (self.now + delay, self.number * 10 + len(self.heap), to, frame))
