"""Ends of stream pipes around one memory store, in virtual time, with verbs.

``StreamWire`` has a store, any number of ``Writer`` and ``Reader`` hosts, and a clock. By default each call is
executed and answered at once. With ``hold`` calls wait in ``end.calls`` for the verbs ``answer``,
``lose_answer`` (done, and nobody knows) and ``lose_call`` (not done). With ``faults`` calls are lost, doubled,
delayed and answered late by seed. Ends crash by ``crash()`` or after their k-th effect, the store by its own
verbs.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from surepipe.core.effects import (
    Accepted,
    Call,
    Confirmed,
    DeadLetter,
    Deliver,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Reject,
    Renumber,
    Renumbered,
    SaveState,
    WakeAt,
    Write,
    WriteFenced,
    WriteStored,
)
from surepipe.core.store_requests import (
    KEEP_ALL,
    Committed,
    Created,
    Exists,
    FencedOut,
    Hint,
    Retention,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Unavailable,
    WaitForMore,
)
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.stream.position import commit_of
from surepipe.storage.memory import MemoryStore
from tests.kit.journal import MemoryJournal

MS = 1_000
SECOND = 1_000_000
START = {"stream": {"start": "earliest"}}


@dataclass(frozen=True)
class CallFaults:
    """What happens to calls; rates are probabilities per call."""

    lost: float = 0.0
    unanswered: float = 0.0
    doubled: float = 0.0
    unavailable: float = 0.0
    delay_us: tuple[int, int] = (0, 5 * MS)


class _Crash(Exception):
    pass


@dataclass
class StreamWire:
    """One store, one stream, and the ends that use it."""

    layers: LayerText | Sequence[LayerText] = field(default_factory=lambda: START)
    seed: int = 1
    boundary: BoundaryOptions = field(default_factory=BoundaryOptions)
    journal: MemoryJournal | None = None
    retention: Retention = KEEP_ALL
    faults: CallFaults | None = None
    hold: bool = False
    auto_settle: bool = True
    handler_us: int = 0
    crashes: frozenset[tuple[str, int]] = frozenset()
    pipe: str = "pipe"
    with_reader: bool = True
    """False: the test makes the reader when the stream is as it should be: ``wire.receiver = Reader(wire)``."""

    def __post_init__(self) -> None:
        self.now = 0
        self.rng = random.Random(self.seed)
        self.incarnations = 0
        self.store = MemoryStore(
            clock=lambda: self.now,
            new_incarnation=self._next_incarnation,
            pause=lambda _condition, _timeout_us: None,
        )
        self.create()
        self.positions: dict[tuple[int, int], int] = {}
        self.accepted: list[bytes] = []
        self.confirmed: set[int] = set()
        self.settled: list[int] = []
        self.effects_done = {"sender": 0, "receiver": 0}
        self.ends: list[Writer | Reader] = []
        self.life_hint = self.receiver_life = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.events_made = 0
        self.soon: deque[Callable[[], None]] = deque()
        self.draining = False
        self.sender: Writer
        self.receiver: Reader
        Writer(self)
        if self.with_reader:
            Reader(self)

    def _next_incarnation(self) -> int:
        self.incarnations += 1
        return 1000 + self.incarnations

    def create(self) -> None:
        """Make the stream (again, after the store lost it)."""
        assert isinstance(self.store.create(self.pipe, 1, self.retention), Created | Exists)

    # Verbs.

    def send(self, *names: object) -> None:
        """The application offers messages."""
        self.sender.send(*names)

    def advance(self, micros: int) -> None:
        """Let time pass, with everything that is due in it."""
        end = self.now + micros
        while (at := self._next_time()) is not None and at <= end:
            self.now = max(self.now, at)
            self._do_next()
        self.now = end

    def run(self, until: Callable[[], bool], steps_max: int = 200_000) -> None:
        """Let things happen until the condition holds; fails loudly when it never does."""
        for _ in range(steps_max):
            if until():
                return
            at = self._next_time()
            assert at is not None, "nothing is left to happen"
            self.now = max(self.now, at)
            self._do_next()
        raise AssertionError(f"not there after {steps_max} steps, at {self.now} us")

    def all_settled_and_confirmed(self) -> bool:
        """What a pipe that loses nothing comes to."""
        everything = set(range(1, len(self.accepted) + 1))
        return self.confirmed == everything and set(self.settled) == everything

    def stored(self) -> list[bytes]:
        """The payloads in the stream, in index order."""
        return [payload for _, payload in self.entries()]

    def entries(self) -> list[tuple[int, bytes]]:
        """Everything in the stream, as (index, payload)."""
        info = self.store.info(self.pipe)
        assert isinstance(info, StreamInfo)
        found: list[tuple[int, bytes]] = []
        for index in range(info.earliest, info.next):
            batch = self.store.read(self.pipe, index, 1, 1)
            found.append((index, batch.entries[0].payloads[0]))  # type: ignore[union-attr]
        return found

    # Time.

    def later(self, delay_us: int, act: Callable[[], None]) -> None:
        """Do this after a delay."""
        self.events_made += 1
        heapq.heappush(self.events, (self.now + delay_us, self.events_made, act))

    def _next_time(self) -> int | None:
        times = [end.deadline for end in self.ends if end.deadline is not None]
        times += [self.events[0][0]] if self.events else []
        return min(times, default=None)

    def _do_next(self) -> None:
        if self.events and self.events[0][0] <= self.now:
            act = heapq.heappop(self.events)[2]
            self.do(act)
            return
        for end in list(self.ends):
            if end.deadline is not None and end.deadline <= self.now:
                end.deadline = None
                end.wake()
                return

    def do(self, act: Callable[[], None]) -> None:
        """Do something, and then everything that it caused to be done at once."""
        self.soon.append(act)
        if self.draining:
            return
        self.draining = True
        while self.soon:
            self.soon.popleft()()
            self._answer_waits()
        self.draining = False

    def _answer_waits(self) -> None:
        for end in list(self.ends):
            for ticket, request in list(end.waits.items()):
                info = self.store.info(request.stream)
                if not isinstance(info, StreamInfo) or info.next > request.index:
                    del end.waits[ticket]
                    end.take_answer(ticket, Hint())


class End:
    """The host of one machine."""

    side = ""

    def __init__(self, wire: StreamWire) -> None:
        self.wire = wire
        self.deadline: int | None = None
        self.calls: list[tuple[int, StoreRequest]] = []
        self.waits: dict[int, WaitForMore] = {}
        self.notices: list[Notice] = []
        self.effects: list[Effect] = []
        self.is_alive = True

    @property
    def machine(self) -> SenderStack | ReceiverStack:
        """The machine of this end."""
        raise NotImplementedError

    def start(self) -> None:
        """Join the wire, as its current end of this side, and wake for the first time."""
        setattr(self.wire, self.side, self)
        self.wire.ends.append(self)  # type: ignore[arg-type]
        self.wake()

    def stop(self) -> None:
        """The process ends: nothing of it is left."""
        self.is_alive = False
        self.deadline = None
        self.calls.clear()
        self.waits.clear()
        self.wire.ends = [end for end in self.wire.ends if end is not self]

    def crash(self) -> None:
        """The process ends, and another one starts."""
        raise NotImplementedError

    def wake(self) -> None:
        """The deadline has passed."""
        self.step(lambda: self.machine.wake(self.wire.now))

    def step(self, give: Callable[[], list[Effect]]) -> None:
        """One step of the host."""
        self.wire.do(lambda: self._step(give))

    def _step(self, give: Callable[[], list[Effect]]) -> None:
        if not self.is_alive:
            return
        try:
            for effect in give():
                self.effects.append(effect)
                self.perform(effect)
                self.tick()
        except _Crash:
            self.crash()

    def tick(self) -> None:
        """Count something done; perhaps it was the last."""
        done = self.wire.effects_done
        done[self.side] += 1
        if (self.side, done[self.side]) in self.wire.crashes:
            raise _Crash

    def perform(self, effect: Effect) -> None:
        """What both ends do with an effect."""
        match effect:
            case Call(ticket, request):
                self._call(ticket, request)  # type: ignore[arg-type]
            case WakeAt(deadline):
                self.deadline = deadline
            case Notice():
                self.notices.append(effect)
            case _:
                raise AssertionError(f"no effect of this end: {effect}")

    def kinds_noticed(self) -> list[NoticeKind]:
        """The kinds of all notices so far."""
        return [notice.kind for notice in self.notices]

    # Calls.

    def _call(self, ticket: int, request: StoreRequest) -> None:
        if isinstance(request, WaitForMore):
            self.waits[ticket] = request
        elif self.wire.faults:
            self._call_with_faults(self.wire.faults, ticket, request)
        else:
            self.calls.append((ticket, request))
            if not self.wire.hold:
                self.wire.do(self.answer_if_any)

    def answer_if_any(self) -> None:
        """Answer the oldest call, if the end still lives and has one."""
        if self.calls:
            self.answer()

    def _call_with_faults(self, faults: CallFaults, ticket: int, request: StoreRequest) -> None:
        rng = self.wire.rng

        def execute() -> None:
            outcome = self.execute(request)
            if rng.random() < faults.unavailable:
                outcome = Unavailable()
            if rng.random() >= faults.unanswered:
                self.wire.later(
                    rng.randint(*faults.delay_us), lambda: self.take_answer(ticket, outcome)
                )

        if rng.random() >= faults.lost:
            self.wire.later(rng.randint(*faults.delay_us), execute)
        if rng.random() < faults.doubled:
            self.wire.later(rng.randint(*faults.delay_us) + 50 * MS, execute)

    def execute(self, request: StoreRequest) -> StoreOutcome:
        """The store does what it is asked."""
        return self.wire.store.ask(request)

    def take_answer(self, ticket: int, outcome: object) -> None:
        """An answer arrives."""
        self.step(lambda: self.machine.answer(ticket, outcome, self.wire.now))

    def answer(self, at: int = 0, outcome: object | None = None) -> StoreRequest:
        """Execute the call and answer it, or answer it with this outcome and do nothing."""
        ticket, request = self.calls.pop(at)
        self.take_answer(ticket, self.execute(request) if outcome is None else outcome)
        return request

    def answer_all(self) -> None:
        """Answer calls, and those that they lead to, until there is none."""
        while self.calls:
            self.answer()

    def lose_answer(self, at: int = 0) -> StoreRequest:
        """The call is done, and the answer gets lost."""
        _, request = self.calls.pop(at)
        self.execute(request)
        return request

    def lose_call(self, at: int = 0) -> StoreRequest:
        """The call gets lost on its way."""
        return self.calls.pop(at)[1]

    def asked(self) -> list[str]:
        """The kinds of the calls that wait."""
        return [type(request).__name__ for _, request in self.calls]


class Writer(End):
    """The host of a sender."""

    side = "sender"

    def __init__(self, wire: StreamWire, layers: LayerText | Sequence[LayerText] = ()) -> None:
        super().__init__(wire)
        wire.life_hint += 1 << 20
        self.layers = layers or wire.layers
        self.sender = self.build(wire.life_hint)
        self.offered: deque[bytes] = deque()
        self.rejected: list[Reject] = []
        self.start()

    def build(self, life_hint: int) -> SenderStack:
        """A new machine."""
        wire = self.wire
        contents = wire.journal.contents() if wire.journal else None
        for rows in contents.rows if contents else ():
            for seq, payload in enumerate(rows.payloads, rows.first):
                self._remember(rows.epoch, seq, payload)
        return SenderStack(
            wire.pipe,
            parse_layers(self.layers),
            rng=random.Random(wire.rng.getrandbits(64)),
            life_hint=life_hint,
            journal=contents,
            reverse=False,
        )

    @property
    def machine(self) -> SenderStack:
        return self.sender

    def crash(self) -> None:
        self.stop()
        Writer(self.wire, self.layers)

    def send(self, *names: object) -> None:
        """The application offers messages."""
        payloads = [name if isinstance(name, bytes) else str(name).encode() for name in names]

        def give() -> list[Effect]:
            self.offered.extend(payloads)
            return self.sender.send(payloads, self.wire.now)

        self.step(give)

    def _remember(self, epoch: int, seq: int, payload: bytes) -> None:
        if (epoch, seq) not in self.wire.positions:
            self.wire.accepted.append(payload)
            self.wire.positions[epoch, seq] = len(self.wire.accepted)

    def perform(self, effect: Effect) -> None:
        positions = self.wire.positions
        match effect:
            case Accepted(epoch, first, count):
                for seq in range(first, first + count):
                    self._remember(epoch, seq, self.offered.popleft())
            case Reject(_, count):
                self.rejected.append(effect)
                for _ in range(count):
                    self.offered.pop()
            case Confirmed(epoch, ranges):
                for first, last in ranges:
                    self.wire.confirmed |= {positions[epoch, s] for s in range(first, last + 1)}
            case Renumbered(epoch, first, count, new_epoch, new_first):
                for i in range(count):
                    positions[new_epoch, new_first + i] = positions[epoch, first + i]
            case Persist(ticket, write):
                outcome = self._write(write)
                self.wire.do(lambda: self.take_answer(ticket, outcome))
            case _:
                super().perform(effect)

    def _write(self, write: Write) -> object:
        journal = self.wire.journal
        assert journal is not None, "a sender without a journal asked for one"
        if isinstance(write, Renumber):
            # The identities change with the write, whether or not this process lives to hear of it.
            old = [
                (epoch, row[0]) for epoch in write.replaces for row in journal.rows.get(epoch, [])
            ]
            for seq, former in enumerate(old, 1):
                self.wire.positions[write.epoch, seq] = self.wire.positions[former]
        return journal.write(write)


class Reader(End):
    """The host of a receiver. ``payloads`` is everything that crossed its boundary, in order."""

    side = "receiver"

    def __init__(self, wire: StreamWire, layers: LayerText | Sequence[LayerText] = ()) -> None:
        super().__init__(wire)
        wire.receiver_life += 1
        self.layers = layers or wire.layers
        self.receiver = self.build()
        self.delivered: list[Deliver] = []
        self.open: dict[int, Deliver] = {}
        self.payloads: list[bytes] = []
        self.letters: list[DeadLetter] = []
        self.failing: dict[bytes, int] = {}
        self.start()

    def build(self) -> ReceiverStack:
        """A new machine."""
        return ReceiverStack(
            self.wire.pipe,
            parse_layers(self.layers),
            rng=random.Random(self.wire.rng.getrandbits(64)),
            boundary=self.wire.boundary,
            reverse=False,
            life=self.wire.receiver_life,
        )

    @property
    def machine(self) -> ReceiverStack:
        return self.receiver

    def crash(self) -> None:
        self.stop()
        Reader(self.wire, self.layers)

    def close(self) -> None:
        """Close the machine."""
        self.step(lambda: self.receiver.close(self.wire.now))

    def perform(self, effect: Effect) -> None:
        match effect:
            case Deliver(ticket):
                self.delivered.append(effect)
                self.open[ticket] = effect
                if self.wire.auto_settle:
                    self.wire.later(self.wire.handler_us, lambda: self.handle(ticket))
            case Persist(ticket, SaveState(state)):
                self._save(ticket, state)
            case DeadLetter(ticket):
                self.letters.append(effect)
                self.wire.do(lambda: self.take_answer(ticket, WriteStored()))
            case _:
                super().perform(effect)

    def _save(self, ticket: int, state: bytes) -> None:
        outcome = self.wire.store.commit(commit_of(state))
        written = WriteFenced(outcome.by) if isinstance(outcome, FencedOut) else WriteStored()
        assert isinstance(outcome, Committed | FencedOut)
        self.wire.do(lambda: self.take_answer(ticket, written))

    def handle(self, ticket: int | None = None) -> None:
        """The handler works through a delivery (the oldest): until a message raises, or to the end."""
        if not self.is_alive or not self.open:
            return
        ticket = next(iter(self.open)) if ticket is None else ticket
        delivery = self.open[ticket]
        for seq, payload in enumerate(delivery.payloads, delivery.first):
            if self.failing.get(payload):
                self._fail(ticket, seq, payload)
                return
        self.settle(ticket)

    def _fail(self, ticket: int, seq: int, payload: bytes) -> None:
        self.failing[payload] -= 1
        self.cross(self.open.pop(ticket), seq - 1)
        error = ("ValueError", "boom")
        self.step(lambda: self.receiver.failed(ticket, seq, error, self.wire.now))

    def settle(self, ticket: int | None = None, count: int | None = None) -> None:
        """The handler has done the first ``count`` messages (all) of a delivery (the oldest)."""
        ticket = next(iter(self.open)) if ticket is None else ticket
        delivery = self.open[ticket]
        last = delivery.first + (len(delivery.payloads) if count is None else count) - 1

        def give() -> list[Effect]:
            if self.cross(delivery, last):
                self.tick()
                return self.receiver.settled(ticket, ((delivery.first, last),), self.wire.now)
            self.stop()
            return []

        rest = delivery.payloads[last - delivery.first + 1 :]
        if rest:
            self.open[ticket] = replace(delivery, first=last + 1, payloads=rest)
        else:
            del self.open[ticket]
        self.step(give)

    def refuse(self, ticket: int | None = None) -> None:
        """Nothing of a delivery (the oldest) is taken."""
        ticket = next(iter(self.open)) if ticket is None else ticket
        delivery = self.open.pop(ticket)
        ranges = ((delivery.first, delivery.first + len(delivery.payloads) - 1),)
        self.step(lambda: self.receiver.refused(ticket, ranges, self.wire.now))

    def cross(self, delivery: Deliver, last: int) -> bool:
        """The effect of the messages up to ``last`` happens; with boundary committed, in one transaction."""
        done = delivery.payloads[: last - delivery.first + 1]

        def effect() -> None:
            self.payloads.extend(done)
            for seq, payload in enumerate(done, delivery.first):
                position = self.wire.positions.get((delivery.epoch, seq), 0)
                if position:
                    assert self.wire.accepted[position - 1] == payload, "V-2"
                    self.wire.settled.append(position)

        if self.wire.boundary.boundary is not Boundary.COMMITTED:
            effect()
            return True
        state = self.receiver.state_after(delivery.ticket, last)
        with self.wire.store.transaction() as transaction:
            transaction.also(effect)
            transaction.commit(commit_of(state))
        return transaction.done
