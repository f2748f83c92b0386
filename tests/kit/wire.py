"""Both ends of a pipe on a fake wire, in virtual time, with verbs.

By hand: ``send``, ``transfer``, ``drop``, ``repeat``, ``swap``, ``settle``, ``fail``, ``crash_sender``,
``crash_receiver``, ``advance``. By seed: ``run`` moves the same frames through a route with faults until nothing
is left to happen. Everything that both ends did is kept: ``accepted`` (S), ``settled`` (D) and ``confirmed`` (C)
as positions, the notices, and each frame that was ever put on the wire.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from surepipe.core.effects import (
    Accepted,
    Call,
    Cause,
    Confirmed,
    DeadLetter,
    Deliver,
    Effect,
    Letter,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    Reject,
    Renumber,
    Renumbered,
    SaveState,
    Transmit,
    WakeAt,
    Write,
    WriteStored,
)
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import Frame
from tests.kit.journal import MemoryJournal

Side = Literal["sender", "receiver"]
MS = 1_000
SECOND = 1_000_000


@dataclass(frozen=True)
class Faults:
    """What the route of ``run`` does to frames; rates are probabilities per frame."""

    loss: float = 0.0
    back_loss: float | None = None
    duplication: float = 0.0
    delay_us: tuple[int, int] = (1 * MS, 1 * MS)
    copy_delay_us: tuple[int, int] = (0, 500 * MS)
    fifo: bool = True
    lose: Callable[[Frame, str], bool] | None = None


class _Crash(Exception):
    pass


@dataclass
class Wire:
    """A sender machine, a receiver machine, and the frames between them."""

    layers: LayerText | Sequence[LayerText]
    seed: int = 1
    boundary: BoundaryOptions = field(default_factory=BoundaryOptions)
    journal: MemoryJournal | None = None
    reverse: bool = True
    auto_settle: bool = True
    auto_answer: bool = True
    """False: answers to Persist and DeadLetter wait in ``unanswered`` (the write itself is done)."""
    handler_us: int = 0
    receiver_layers: LayerText | Sequence[LayerText] | None = None
    pipe: str = "pipe"
    crashes: frozenset[tuple[Side, int]] = frozenset()
    """(side, k): that side crashes after its k-th effect (from 1, over all its lives) was performed."""

    def __post_init__(self) -> None:
        self.now = 0
        self.rng = random.Random(self.seed)
        self.to_receiver: list[Frame] = []
        self.to_sender: list[Frame] = []
        self.sent: list[Frame] = []
        self.sent_back: list[Frame] = []
        self.times: list[int] = []
        self.accepted: list[bytes] = []
        self.settled: list[int] = []
        self.confirmed: set[int] = set()
        self.delivered: list[Deliver] = []
        self.open: dict[int, Deliver] = {}
        self.rejected: list[Reject] = []
        self.notices: list[tuple[Side, Notice]] = []
        self.letters: list[Letter] = []
        self.calls: list[tuple[Side, Call]] = []
        self.saved_state: bytes | None = None
        self.unanswered: list[tuple[Side, int, object]] = []
        self.deadline: dict[Side, int | None] = {"sender": None, "receiver": None}
        self.effects_done: Counter[str] = Counter()
        self.positions: dict[tuple[int, int], int] = {}
        self._offered: deque[bytes] = deque()
        self.life_hint = 0
        self._handling: list[tuple[int, int]] = []
        self._deferred: deque[tuple[Side, Callable[[], None]]] = deque()
        self._draining = False
        self.receiver = self._new_receiver()
        self.sender = self._new_sender()
        self._step("receiver", lambda: self.receiver.wake(self.now))
        self._step("sender", lambda: self.sender.wake(self.now))

    # Building and crashing.

    def _new_sender(self) -> SenderStack:
        self.life_hint += 1 << 20
        contents = self.journal.contents() if self.journal else None
        for rows in contents.rows if contents else ():
            for seq, payload in enumerate(rows.payloads, rows.first):
                if (rows.epoch, seq) not in self.positions:
                    self._remember(rows.epoch, seq, payload)
        return SenderStack(
            self.pipe,
            parse_layers(self.layers),
            rng=random.Random(self.rng.getrandbits(64)),
            life_hint=self.life_hint,
            journal=contents,
            reverse=self.reverse,
        )

    def _new_receiver(self) -> ReceiverStack:
        return ReceiverStack(
            self.pipe,
            parse_layers(self.receiver_layers or self.layers),
            rng=random.Random(self.rng.getrandbits(64)),
            boundary=self.boundary,
            state=self.saved_state if self.boundary.durable else None,
            reverse=self.reverse,
        )

    def crash_sender(self) -> None:
        """The sender's process ends and starts again; only its journal survives."""
        self._offered.clear()
        self._forget("sender")
        self.sender = self._new_sender()
        self._step("sender", lambda: self.sender.wake(self.now))

    def crash_receiver(self) -> None:
        """The receiver's process ends and starts again; only its stored state survives."""
        self.open.clear()
        self._handling.clear()
        self._forget("receiver")
        self.receiver = self._new_receiver()
        self._step("receiver", lambda: self.receiver.wake(self.now))

    def _forget(self, side: Side) -> None:
        self.deadline[side] = None
        self._deferred = deque(item for item in self._deferred if item[0] != side)

    # Verbs.

    def send(self, *payloads: bytes | int) -> None:
        """The application offers messages; numbers become their decimal text."""
        offered = [p if isinstance(p, bytes) else str(p).encode() for p in payloads]
        self._offered.extend(offered)
        self._step("sender", lambda: self.sender.send(offered, self.now))

    def transfer(self, count: int | None = None, *, back: int | None = None) -> None:
        """Deliver frames that are on the wire now: all of them, or the first ``count`` (and ``back``)."""
        forward = len(self.to_receiver) if count is None else count
        backward = (len(self.to_sender) if count is None else 0) if back is None else back
        for _ in range(forward):
            self.arrive(self.to_receiver.pop(0))
        for _ in range(backward):
            self.arrive_back(self.to_sender.pop(0))

    def exchange(self) -> None:
        """Deliver frames both ways until none is on the wire; time stands still."""
        while self.to_receiver or self.to_sender:
            self.transfer()

    def arrive(self, frame: Frame) -> None:
        """A frame arrives at the receiver, whether or not it is on the wire."""
        self._step("receiver", lambda: self.receiver.frame(frame, self.now))

    def arrive_back(self, frame: Frame) -> None:
        """A frame arrives at the sender, whether or not it is on the wire."""
        self._step("sender", lambda: self.sender.frame(frame, self.now))

    def drop(self, at: int = 0) -> Frame:
        """Lose one frame on its way to the receiver."""
        return self.to_receiver.pop(at)

    def drop_back(self, at: int = 0) -> Frame:
        """Lose one frame on its way to the sender."""
        return self.to_sender.pop(at)

    def drop_all(self) -> None:
        """Lose everything on the wire, both ways."""
        self.to_receiver.clear()
        self.to_sender.clear()

    def repeat(self, at: int = 0) -> None:
        """A second copy of a frame travels right behind the first."""
        self.to_receiver.insert(at, self.to_receiver[at])

    def swap(self, at: int = 0) -> None:
        """A frame is overtaken by the next one."""
        frames = self.to_receiver
        frames[at], frames[at + 1] = frames[at + 1], frames[at]

    def advance(self, micros: int) -> None:
        """Let time pass, waking both ends exactly at their deadlines."""
        end = self.now + micros
        while (due := self.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self._wake_due()
        self.now = max(self.now, end)

    def settle(self, count: int | None = None, *, at: int = 0) -> None:
        """The handler returns for the first ``count`` messages (or all) of an open delivery."""
        ticket, delivery = list(self.open.items())[at]
        last = delivery.first + (len(delivery.payloads) if count is None else count) - 1
        self._cross(delivery, last)
        self._tell_settled(ticket, delivery, last)

    def fail(self, seq: int, error: Cause = ("ValueError", "boom")) -> None:
        """The handler of the oldest delivery raises for ``seq``; what stands before it is settled."""
        ticket, delivery = next(iter(self.open.items()))
        self._cross(delivery, seq - 1)
        del self.open[ticket]
        self._step("receiver", lambda: self.receiver.failed(ticket, seq, error, self.now))

    def refuse(self, seq: int) -> None:
        """The host gives back the oldest delivery from ``seq`` on; it is to be brought again."""
        ticket, delivery = next(iter(self.open.items()))
        del self.open[ticket]
        ranges: Ranges = ((seq, delivery.first + len(delivery.payloads) - 1),)
        self._step("receiver", lambda: self.receiver.refused(ticket, ranges, self.now))

    def close_sender(self) -> None:
        """Tell the sender to take nothing more."""
        self._step("sender", lambda: self.sender.close(self.now))

    def route_is_back(self) -> None:
        """The host tells the sender that frames get through again."""
        self._step("sender", lambda: self.sender.route_is_back(self.now))

    def close_receiver(self) -> None:
        """Tell the receiver to deliver nothing more."""
        self._step("receiver", lambda: self.receiver.close(self.now))

    def answer(self, side: Side, ticket: int, outcome: object) -> None:
        """A store answers."""
        if side == "sender":
            self._step(side, lambda: self.sender.answer(ticket, outcome, self.now))
        else:
            self._step(side, lambda: self.receiver.answer(ticket, outcome, self.now))

    # By seed.

    def run(
        self,
        faults: Faults | None = None,
        *,
        until_us: int = 3600 * SECOND,
        steps_max: int = 2_000_000,
        each_step: Callable[[], None] | None = None,
    ) -> None:
        """Move frames and time until nothing is on the wire and no deadline is armed."""
        faults = faults or Faults()
        rng = random.Random(self.rng.getrandbits(64))
        heap: list[tuple[int, int, str, Frame]] = []
        last_arrival = {"forward": 0, "back": 0}
        count = 0
        for _ in range(steps_max):
            for way, wire in (("forward", self.to_receiver), ("back", self.to_sender)):
                for frame in wire:
                    for at in self._fates(faults, rng, frame, way, last_arrival):
                        count += 1
                        heapq.heappush(heap, (at, count, way, frame))
                wire.clear()
            due = self.next_deadline()
            if heap and (due is None or heap[0][0] <= due):
                at, _, way, frame = heapq.heappop(heap)
                self.now = max(self.now, at)
                (self.arrive if way == "forward" else self.arrive_back)(frame)
            elif due is not None and due <= until_us:
                self.now = max(self.now, due)
                self._wake_due()
            else:
                return
            if each_step:
                each_step()
        raise AssertionError(f"not quiescent after {steps_max} steps, at {self.now} us")

    def _fates(
        self, faults: Faults, rng: random.Random, frame: Frame, way: str, last: dict[str, int]
    ) -> list[int]:
        loss = faults.loss if way == "forward" or faults.back_loss is None else faults.back_loss
        arrivals: list[int] = []
        is_lost = rng.random() < loss or (faults.lose is not None and faults.lose(frame, way))
        if not is_lost:
            at = self.now + rng.randint(*faults.delay_us)
            if faults.fifo:
                at = last[way] = max(at, last[way])
            arrivals.append(at)
        if rng.random() < faults.duplication:
            arrivals.append(
                self.now + rng.randint(*faults.delay_us) + rng.randint(*faults.copy_delay_us)
            )
        return arrivals

    # The host.

    def next_deadline(self) -> int | None:
        """When the next machine is to be woken, or the next handler returns."""
        times = [time for time in self.deadline.values() if time is not None]
        times += [at for at, _ in self._handling]
        return min(times, default=None)

    def _wake_due(self) -> None:
        if self._handling and self._handling[0][0] <= self.now:
            _, ticket = self._handling.pop(0)
            if ticket in self.open:
                self._handled(ticket)
            return
        if self._is_due("receiver"):
            self._step("receiver", lambda: self.receiver.wake(self.now))
        if self._is_due("sender"):
            self._step("sender", lambda: self.sender.wake(self.now))

    def _is_due(self, side: Side) -> bool:
        """Whether the deadline has passed; it is disarmed, as a host does before it wakes a machine."""
        due = self.deadline[side]
        if due is None or due > self.now:
            return False
        self.deadline[side] = None
        return True

    def _step(self, side: Side, give: Callable[[], list[Effect]]) -> None:
        self._guarded(side, lambda: self._perform_all(side, give()))
        if not self._draining:
            self._drain()

    def _perform_all(self, side: Side, effects: list[Effect]) -> None:
        for effect in effects:
            self._perform(side, effect)
            self._tick(side)

    def _tick(self, side: Side) -> None:
        self.effects_done[side] += 1
        if (side, self.effects_done[side]) in self.crashes:
            raise _Crash

    def _guarded(self, side: Side, act: Callable[[], None]) -> None:
        try:
            act()
        except _Crash:
            if side == "sender":
                self.crash_sender()
            else:
                self.crash_receiver()

    def _drain(self) -> None:
        self._draining = True
        while self._deferred:
            _, act = self._deferred.popleft()
            act()
        self._draining = False

    def _perform(self, side: Side, effect: Effect) -> None:
        match effect:
            case Transmit(frame):
                assert not isinstance(frame, bytes)
                self._put(side, frame)  # type: ignore[arg-type]
            case Accepted(epoch, first, count):
                for seq in range(first, first + count):
                    payload = self._offered.popleft()
                    if (epoch, seq) not in self.positions:
                        self._remember(epoch, seq, payload)
            case Reject(_, count):
                self.rejected.append(effect)
                for _ in range(count):
                    self._offered.pop()
            case Confirmed(epoch, ranges):
                for first, last in ranges:
                    self.confirmed.update(self.positions[epoch, s] for s in range(first, last + 1))
            case Renumbered():
                self.renumber(effect)
            case Deliver(ticket):
                self.delivered.append(effect)
                self.open[ticket] = effect
                if self.auto_settle and self.handler_us:
                    self._handling.append((self.now + self.handler_us, ticket))
                elif self.auto_settle:
                    self._deferred.append(("receiver", lambda: self._handled(ticket)))
            case Persist(ticket, write):
                self._write(side, ticket, write)
            case Call():
                self.calls.append((side, effect))
            case DeadLetter(ticket, letter):
                self.letters.append(letter)
                self._answer_later(side, ticket, WriteStored())
            case WakeAt(deadline):
                self.deadline[side] = deadline
            case Notice():
                self.notices.append((side, effect))

    def _put(self, side: Side, frame: Frame) -> None:
        if side == "sender":
            self.to_receiver.append(frame)
            self.sent.append(frame)
            self.times.append(self.now)
        else:
            self.to_sender.append(frame)
            self.sent_back.append(frame)

    def renumber(self, effect: Renumbered) -> None:
        """Messages have a new identity and keep their position."""
        for i in range(effect.count):
            old, new = (effect.epoch, effect.first + i), (effect.new_epoch, effect.new_first + i)
            self.positions[new] = self.positions[old]

    def _remember(self, epoch: int, seq: int, payload: bytes) -> None:
        self.accepted.append(payload)
        self.positions[epoch, seq] = len(self.accepted)

    def _handled(self, ticket: int) -> None:
        delivery = self.open[ticket]
        last = delivery.first + len(delivery.payloads) - 1

        def return_from_handler() -> None:
            self._cross(delivery, last)
            self._tick("receiver")
            self._tell_settled(ticket, delivery, last)

        self._guarded("receiver", return_from_handler)

    def _cross(self, delivery: Deliver, last: int) -> None:
        """The handler's effect happens; with boundary committed, the state with it."""
        for seq in range(delivery.first, last + 1):
            position = self.positions[delivery.epoch, seq]
            assert self.accepted[position - 1] == delivery.payloads[seq - delivery.first], "V-2"
            self.settled.append(position)
        if self.boundary.boundary == "committed" and last >= delivery.first:
            self.saved_state = self.receiver.state_after(delivery.ticket, last)

    def _tell_settled(self, ticket: int, delivery: Deliver, last: int) -> None:
        rest = delivery.payloads[last - delivery.first + 1 :]
        if rest:
            self.open[ticket] = replace(delivery, first=last + 1, payloads=rest)
        else:
            del self.open[ticket]
        ranges: Ranges = ((delivery.first, last),)
        self._step("receiver", lambda: self.receiver.settled(ticket, ranges, self.now))

    def _write(self, side: Side, ticket: int, write: Write) -> None:
        if isinstance(write, SaveState):
            self.saved_state = write.state
            self._answer_later(side, ticket, WriteStored())
        else:
            assert self.journal is not None, "a sender without a journal asked for one"
            if isinstance(write, Renumber):
                self._follow(write, self.journal)
            self._answer_later(side, ticket, self.journal.write(write))

    def _follow(self, write: Renumber, journal: MemoryJournal) -> None:
        """Rows keep their position under their new identity, even if the sender dies before it tells."""
        rows = [(e, seq) for e in sorted(write.replaces) for seq, _ in journal.rows.get(e, ())]
        moved = rows[len(rows) - len(write.payloads) :]
        for seq, former in enumerate(moved, 1):
            self.positions[write.epoch, seq] = self.positions[former]

    def _answer_later(self, side: Side, ticket: int, outcome: object) -> None:
        if self.auto_answer:
            self._deferred.append((side, lambda: self.answer(side, ticket, outcome)))
        else:
            self.unanswered.append((side, ticket, outcome))

    # What to assert on.

    def kinds_noticed(self) -> list[NoticeKind]:
        """The kinds of all notices so far."""
        return [notice.kind for _, notice in self.notices]
