"""One seeded run of a hop under chosen faults, judged by the predicates.

For hops with lanes, whose handlers run side by side; the product's simulator has one handler at a time. The
machines are those of the hop that the algebra derived a guarantee for; the faults are injected by their
definitions. Handlers take from no time to several timeouts, because some faults meet only while a message is
in work.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from surepipe.audit.predicates import PipeVerdict, judge_trace
from surepipe.core.claims import Fault, Faults
from surepipe.core.effects import (
    Accepted,
    Deliver,
    Effect,
    Persist,
    Renumbered,
    SaveState,
    Transmit,
    WriteFenced,
    WriteStored,
)
from surepipe.guarantees.hops import Hop
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import Frame
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Side, Wire

CHAOS_STEPS = 160
ZOMBIE_STEPS = 60
DRAIN_STEPS = 2_000
NO_FAULTS: Faults = frozenset()
LOSING: Faults = frozenset({Fault.ROUTE_LOSS, Fault.ROUTE_CORRUPTION})

INJECTED: Faults = frozenset(
    {
        *(Fault.ROUTE_LOSS, Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING),
        *(Fault.ROUTE_DELAY, Fault.ROUTE_OUTAGE, Fault.ROUTE_CORRUPTION),
        *(Fault.SENDER_CRASH, Fault.RECEIVER_CRASH, Fault.POWER_LOSS),
        *(Fault.SENDER_ZOMBIE, Fault.RECEIVER_ZOMBIE, Fault.HANDLER_FAILURE),
    }
)
"""The faults that a run can inject; the others need a store or a second hop."""


@dataclass
class Ordeal:
    """A run of ``hop`` with these faults and no others.

    ``focus`` is one of them; if it is a crash or a zombie it comes early, while the first answers are under way,
    and often.
    """

    hop: Hop
    faults: Faults
    seed: int
    messages: int = 24
    focus: Fault | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.wire = Wire(
            self.hop.layers,
            seed=self.seed,
            boundary=BoundaryOptions(
                boundary=self.hop.boundary, durable=self.hop.receiver_state is not None
            ),
            journal=MemoryJournal() if self.hop.journal is not None else None,
            auto_settle=False,
            crashes=frozenset(self._moments_of_crashes()),
        )
        self.step = 0
        self.failures: Counter[int] = Counter()
        self.zombie_sender: SenderStack | None = None
        self.zombie_receiver: ReceiverStack | None = None
        self.zombie_until = 0
        self.offered_to_old = b""
        self.first_hit = self.rng.randint(1, 10)
        self.outage_until = 0
        self.on_route: list[tuple[int, int, int, Frame]] = []
        self.latest = [0, 0]
        self.count = 0
        self.is_quiescent = False
        self.sends_left = self.messages

    def _moments_of_crashes(self) -> Iterator[tuple[Side, int]]:
        """Ends of a process between two effects of one event."""
        for _ in range(2):
            if Fault.SENDER_CRASH in self.faults:
                yield "sender", self.rng.randint(3, 60)
            if Fault.RECEIVER_CRASH in self.faults:
                yield "receiver", self.rng.randint(1, 60)

    def run(self) -> PipeVerdict:
        """Chaos, then a route that works and no more faults, until nothing is left to happen."""
        wire = self.wire
        while self.step < CHAOS_STEPS and (self.sends_left or not wire.sender.idle or wire.open):
            self._put_on_route()
            self._move()
            self._disturb()
        self._end_zombies()
        self.faults = NO_FAULTS
        while self.sends_left:
            self._send()
        self._drain()
        return judge_trace(wire.settled, len(wire.accepted))

    # The route.

    def _put_on_route(self) -> None:
        for way, frames in enumerate((self.wire.to_receiver, self.wire.to_sender)):
            for frame in frames:
                for at in self._fates(way):
                    self.count += 1
                    heapq.heappush(self.on_route, (at, self.count, way, frame))
            frames.clear()

    def _fates(self, way: int) -> list[int]:
        """When the copies of a frame arrive; none when it vanishes."""
        rng, faults, now = self.rng, self.faults, self.wire.now
        fates: list[int] = []
        if not (self._is_out() or rng.random() < (0.25 if faults & LOSING else 0.0)):
            at = now + rng.randint(1 * MS, 4 * SECOND if Fault.ROUTE_DELAY in faults else 20 * MS)
            if Fault.ROUTE_REORDERING not in faults:
                at = self.latest[way] = max(at, self.latest[way])
            fates.append(at)
        if Fault.ROUTE_DUPLICATION in faults and rng.random() < 0.3:
            fates.append(self._copy_at(way))
        return fates

    def _copy_at(self, way: int) -> int:
        """A copy comes at any later time; it doesn't keep the first copies from keeping their order."""
        return max(self.latest[way], self.wire.now) + self.rng.randint(1 * MS, 3 * SECOND)

    def _is_out(self) -> bool:
        now = self.wire.now
        if Fault.ROUTE_OUTAGE not in self.faults:
            return False
        if now > self.outage_until and self.rng.random() < 0.05:
            self.outage_until = now + self.rng.randint(100 * MS, 3 * SECOND)
        return now < self.outage_until

    def _move(self) -> bool:
        """Let the next thing happen: a frame arrives, or a deadline passes. False: there is none."""
        due = self.wire.next_deadline()
        if self.on_route and (due is None or self.on_route[0][0] <= due):
            at, _, way, frame = heapq.heappop(self.on_route)
            self.wire.now = max(self.wire.now, at)
            (self.wire.arrive_back if way else self.wire.arrive)(frame)
        elif due is not None:
            self.wire.advance(max(due - self.wire.now, 0))
        elif self.wire.open:
            self.wire.advance(self.rng.randint(0, 1 * SECOND))
        else:
            return False
        return True

    # What happens between two events.

    def _disturb(self) -> None:
        self.step += 1
        if self.sends_left and self.rng.random() < 0.5:
            self._send()
        if self.wire.open and self.rng.random() < 0.4:
            self._handle(may_fail=True)
        self._crash_somebody()
        self._move_zombies()

    def _send(self) -> None:
        count = min(self.sends_left, self.rng.choice((1, 1, 2, 4)))
        self.sends_left -= count
        number = self.messages - self.sends_left
        self.wire.send(*range(number - count + 1, number + 1))

    def _handle(self, *, may_fail: bool) -> None:
        wire = self.wire
        delivery = next(iter(wire.open.values()))
        if may_fail and Fault.HANDLER_FAILURE in self.faults and self.rng.random() < 0.5:
            seq = delivery.first + self.rng.randrange(len(delivery.payloads))
            if self.failures[seq] < 3:
                self.failures[seq] += 1
                wire.fail(seq)
                return
        if wire.boundary.boundary == "committed":
            wire.settle()  # one transaction for the whole delivery
        else:
            wire.settle(self.rng.randint(1, len(delivery.payloads)))

    def _crash_somebody(self) -> None:
        choices = [
            fault
            for fault in (
                *(Fault.SENDER_CRASH, Fault.RECEIVER_CRASH, Fault.POWER_LOSS),
                *(Fault.SENDER_ZOMBIE, Fault.RECEIVER_ZOMBIE),
            )
            if fault in self.faults
        ]
        has_focus = self.focus in choices
        is_first = has_focus and self.step == self.first_hit
        if not choices or not (is_first or self.rng.random() < (0.1 if has_focus else 0.04)):
            return
        is_focus = is_first or (has_focus and self.rng.random() < 0.7)
        fault = self.focus if self.focus and is_focus else self.rng.choice(choices)
        if fault in (Fault.SENDER_ZOMBIE, Fault.RECEIVER_ZOMBIE):
            self._end_zombies()
            self.zombie_until = self.step + ZOMBIE_STEPS
        if fault is Fault.SENDER_ZOMBIE:
            self.zombie_sender = self.wire.sender
        if fault is Fault.RECEIVER_ZOMBIE:
            self.zombie_receiver = self.wire.receiver
        if fault in (Fault.SENDER_CRASH, Fault.SENDER_ZOMBIE, Fault.POWER_LOSS):
            self.wire.crash_sender()
        if fault in (Fault.RECEIVER_CRASH, Fault.RECEIVER_ZOMBIE, Fault.POWER_LOSS):
            self.wire.crash_receiver()

    # An old process that runs on while its replacement works.

    def _end_zombies(self) -> None:
        self.zombie_sender = self.zombie_receiver = None

    def _move_zombies(self) -> None:
        if self.step > self.zombie_until:
            self._end_zombies()
        now = self.wire.now
        if self.zombie_sender is not None:
            for frame in self.wire.to_sender[:1]:
                if not (self.faults & LOSING and self.rng.random() < 0.5):
                    self._of_old_sender(self.zombie_sender, self.zombie_sender.frame(frame, now))
            self._of_old_sender(self.zombie_sender, self.zombie_sender.wake(now))
            self._offer_to_old_sender(self.zombie_sender)
        if self.zombie_receiver is not None:
            for frame in self.wire.to_receiver[:1]:
                self._of_old_receiver(self.zombie_receiver, frame)

    def _offer_to_old_sender(self, old: SenderStack) -> None:
        """Its application doesn't know either that it was replaced."""
        if self.sends_left and self.rng.random() < 0.1:
            self.sends_left -= 1
            self.offered_to_old = str(self.messages - self.sends_left).encode()
            self._of_old_sender(old, old.send([self.offered_to_old], self.wire.now))

    def _of_old_sender(self, old: SenderStack, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.wire.to_receiver.append(effect.frame)  # type: ignore[arg-type]
            elif isinstance(effect, Accepted):
                self.wire.accepted.append(self.offered_to_old)
                self.wire.positions[effect.epoch, effect.first] = len(self.wire.accepted)
            elif isinstance(effect, Renumbered):
                self.wire.renumber(effect)
            elif isinstance(effect, Persist):
                assert self.wire.journal is not None
                outcome = self.wire.journal.write(effect.write)
                self._of_old_sender(old, old.answer(effect.ticket, outcome, self.wire.now))

    def _of_old_receiver(self, old: ReceiverStack, frame: Frame) -> None:
        todo = list(old.frame(frame, self.wire.now))
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, Transmit):
                self.wire.to_sender.append(effect.frame)  # type: ignore[arg-type]
            elif isinstance(effect, Deliver):
                todo += self._handled_by_old(old, effect)
            elif isinstance(effect, Persist):
                outcome = WriteFenced(2) if isinstance(effect.write, SaveState) else WriteStored()
                todo += old.answer(effect.ticket, outcome, self.wire.now)

    def _handled_by_old(self, old: ReceiverStack, delivery: Deliver) -> list[Effect]:
        """Its handler runs; a transaction of a former owner is refused by the store, effect and all."""
        if self.wire.boundary.boundary == "committed":
            return []
        last = delivery.first + len(delivery.payloads) - 1
        numbers = range(delivery.first, last + 1)
        known = self.wire.positions
        self.wire.settled += [known[delivery.epoch, n] for n in numbers]
        return old.settled(delivery.ticket, ((delivery.first, last),), self.wire.now)

    # The end.

    def _drain(self) -> None:
        """The route works, handlers return: until no frame, delivery or deadline is left.

        A pipe that has lost something may go on asking for it; it is left alone after a while.
        """
        for _ in range(DRAIN_STEPS):
            while self.wire.open:
                self._handle(may_fail=False)
            self._put_on_route()
            if not self._move():
                self.is_quiescent = True
                return

    def __str__(self) -> str:
        faults = ", ".join(sorted(self.faults)) or "none"
        return f"{self.hop.name}, faults {faults}, seed {self.seed}"
