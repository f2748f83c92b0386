"""The transport of a message queue: row by row, under any faults of a route, and with a stored queue."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from surepipe.core.claims import Fault
from surepipe.core.effects import (
    Accepted,
    Deliver,
    Effect,
    Persist,
    Ranges,
    Reject,
    Transmit,
    WakeAt,
    WriteFenced,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.machine import ReceiverMachine, SenderMachine
from surepipe.errors import ConfigurationError
from surepipe.pipes.wire.frames import Confirm, Numbered
from surepipe.queues.message_queue import BoundedQueue, Checked, Message, StreamQueue, Transport
from surepipe.queues.message_queue.transport import TransportReceiver, TransportSender
from surepipe.simulation import (
    CATALOGUE,
    Layout,
    Options,
    PipeBetween,
    Promise,
    RunResult,
    campaign,
    replay,
    run_hop,
)
from surepipe.simulation.shrink import shrink
from surepipe.storage import MemoryStore
from tests.simulation.kit import BACK, delivered, lose, of_kind, told

MS, SECOND = 1_000, 1_000_000
TRIP = 10 * MS
ROUTE = (
    Fault.ROUTE_LOSS,
    Fault.ROUTE_DUPLICATION,
    Fault.ROUTE_REORDERING,
    Fault.ROUTE_DELAY,
    Fault.ROUTE_OUTAGE,
    Fault.ROUTE_CORRUPTION,
)
E = TypeVar("E", bound=Effect)
ATOMS = ("no-loss", "no-duplicate", "monotonic", "gap-free")


class Plain(Transport):
    """The plain profile over a checked queue, with what it promises told to the judge (message-queue Q-28)."""

    def __init__(self, capacity: int = 1024, pipe: str = "pipe") -> None:
        super().__init__(
            lambda: Checked(BoundedQueue(capacity, increasing=True)),
            "lowest",
            "discard",
            pipe=pipe,
        )
        self.capacity = capacity

    def promise(self) -> Promise:
        faults = tuple(fault.value for fault in (*ROUTE, Fault.HANDLER_FAILURE))
        return Promise(claim=dict.fromkeys(ATOMS, faults), calm_us=40 * SECOND)


LIBRARY = Transport(lambda: BoundedQueue(1024, increasing=True))
PLAIN = Plain()
BURST = Options(messages=1_000, delay_us=TRIP)


def packets(result: RunResult) -> int:
    """Both ways, lost ones too."""
    return len(of_kind(result.rows, "transmit"))


def times(result: RunResult) -> list[float]:
    """When each message was settled, in seconds."""
    settled = of_kind(result.rows, "settled")
    return [row.time_us / SECOND for row in settled for _ in range(row.seq, row.last + 1)]


def timeouts(result: RunResult) -> int:
    """Wakes that sent something again."""
    wakes = {f"{row.node}/{row.incarnation}/{row.step}" for row in of_kind(result.rows, "wake")}
    return sum(row.cause in wakes for row in of_kind(result.rows, "transmit", "sender"))


def in_order(result: RunResult, count: int) -> bool:
    """Whether each was settled once, in its order."""
    return [seq for _, seq in delivered(result.rows)] == list(range(1, count + 1))


# The rows of the table.


def test_a_clean_route_takes_one_trip_and_no_timeout() -> None:
    """message-queue MQ-13: 1,000 messages in one burst are there at 10 ms."""
    result = told(subject=PLAIN, options=BURST)
    assert in_order(result, 1_000)
    assert set(times(result)) == {0.01}
    assert packets(result) <= 2_000
    assert timeouts(result) == 0


@pytest.mark.parametrize("transport", [PLAIN, LIBRARY], ids=["plain", "library"])
def test_what_comes_twice_is_delivered_once(transport: Transport) -> None:
    """message-queue MQ-14: every packet, in both directions."""
    result = run_hop(transport, Options(messages=100, delay_us=TRIP, copy_ppm=1_000_000))
    assert in_order(result, 100)
    assert not result.violations


def test_a_lost_confirm_costs_one_period_and_no_second_delivery() -> None:
    """message-queue MQ-15: data is sent again, confirmed again, and the queue is empty."""
    lost = lose("pipe/0 confirm e1 1+1 - - a1", BACK)
    result = told(lost, subject=PLAIN, options=Options(messages=1, delay_us=TRIP))
    assert (in_order(result, 1), timeouts(result), packets(result)) == (True, 1, 4)
    assert [row.time_us for row in of_kind(result.rows, "confirmed")] == [SECOND + 2 * TRIP]


def test_behind_a_loss_the_plain_profile_needs_a_period_for_each_message() -> None:
    """message-queue MQ-16: ten messages, the first copy of the first is lost."""
    lost = lose("pipe/0 data e1 1+1 a1")
    result = told(lost, subject=PLAIN, options=Options(messages=10, delay_us=TRIP))
    assert times(result) == [number + 0.01 for number in range(1, 11)]
    assert (timeouts(result), packets(result)) == (10, 30)


def test_behind_a_loss_the_library_profile_needs_one_timeout() -> None:
    """message-queue MQ-17: the same loss."""
    lost = lose("pipe/1 data e1 1+1 a1")
    result = told(lost, subject=LIBRARY, options=Options(messages=10, delay_us=TRIP))
    assert in_order(result, 10)
    assert max(times(result)) <= 1.1


def test_a_full_queue_refuses_and_a_refusal_uses_up_no_number() -> None:
    """message-queue MQ-18, Q-22: nobody confirms at first; then the next accepted number is 5."""
    wire = Wire(Plain(capacity=4))
    wire.is_cut = True
    wire.send(*b"abcdef")
    assert [(one.first, one.count) for one in wire.all_of(Accepted)] == [
        (n, 1) for n in range(1, 5)
    ]
    assert [one.count for one in wire.all_of(Reject)] == [1, 1]
    wire.is_cut = False
    wire.run(until=10 * SECOND)
    wire.send(*b"g")
    wire.run(until=12 * SECOND)
    assert wire.settled == list(b"abcdg")
    assert wire.all_of(Accepted)[-1].first == 5


def test_two_senders_at_one_receiver_do_not_know_of_each_other() -> None:
    """message-queue MQ-19: numbering is independent, and each channel absolute, under loss."""
    pair = [
        PipeBetween(Plain(pipe=pipe), node, "carol")
        for pipe, node in (("one", "ann"), ("two", "bob"))
    ]
    options = Options(messages=20, loss_ppm=100_000, copy_ppm=200_000, seed=5)
    result = run_hop(Layout("fan-in", pair), options)
    for pipe in ("one", "two"):
        rows = [row for row in of_kind(result.rows, "settled") if row.pipe == pipe]
        assert [n for row in rows for n in range(row.seq, row.last + 1)] == list(range(1, 21))


class Hasty(TransportReceiver):
    """Planted: takes whatever is not below what it expects."""

    def frame(self, frame: object, now: int) -> list[Effect]:
        if isinstance(frame, Numbered) and frame.first > self.expected and not self.taken:
            self.settled_through = frame.first - 1
        return super().frame(frame, now)


class HastyTransport(Plain):
    """The transport with that receiver."""

    def receiver(self, **_given: object) -> ReceiverMachine:
        return Hasty(self)


def test_a_receiver_that_takes_numbers_ahead_is_found_and_shrunk_to_few_packets() -> None:
    """message-queue MQ-20: planted, at 10 % loss and 20 % repetition of 200 messages.

    The script of 40 is shrunk, as each try of the shrinker is a run of its own.
    """
    subject = HastyTransport()
    options = Options(
        messages=200, loss_ppm=100_000, copy_ppm=200_000, delay_us=TRIP, chaos_us=SECOND
    )
    assert run_hop(subject, options).violations
    found = run_hop(subject, replace(options, messages=40, seed=1))
    broken = {violation.property for violation in found.violations}
    small = shrink(found.script, lambda script: replay(subject, script), min(broken))
    assert len(small.script.decisions) <= 2


@pytest.mark.parametrize(("capacity", "seeds"), [(1024, 24), (3, 12)])
def test_the_plain_profile_keeps_its_promise_under_all_faults_of_a_route(
    capacity: int, seeds: int
) -> None:
    """message-queue Q-28: absolute order, nothing twice, nothing lost; a handler that fails among the faults."""
    wanted = {fault.value for fault in (*ROUTE, Fault.HANDLER_FAILURE)}
    kinds = [kind for kind in CATALOGUE if wanted & {*kind.names}]
    found = campaign(
        Plain(capacity), range(seeds), kinds=kinds, messages=12, required=(), causal=False
    )
    assert len(found.marks.keys() & {f"fault-{kind.id}" for kind in kinds}) >= 8
    assert found.verdict == "held", str(found)


# Run-time predicates, at each step of a route that does everything.


@dataclass
class Wire:
    """Both ends of a plain transport and the packets between them, in virtual time."""

    transport: Transport
    lost: Callable[[str], bool] = lambda _way: False
    delay: Callable[[], int] = lambda: TRIP
    copies: Callable[[], int] = lambda: 1
    is_cut: bool = False
    now: int = 0
    in_flight: list[tuple[int, int, str, object]] = field(
        default_factory=list[tuple[int, int, str, object]]
    )
    settled: list[int] = field(default_factory=list[int])
    effects: list[Effect] = field(default_factory=list[Effect])
    look: Callable[[Wire], None] = lambda _wire: None
    number: int = 0

    def __post_init__(self) -> None:
        self.alarms: dict[str, int | None] = {"sender": None, "receiver": None}
        chance = random.Random(1)
        self.receiver: ReceiverMachine = self.transport.receiver(life=1, rng=chance, state=None)
        self.sender: SenderMachine
        self.restart_sender()

    def restart_sender(self) -> None:
        self.sender = self.transport.sender(life_hint=1, rng=random.Random(1))
        self.perform("sender", self.sender.wake(self.now))

    def all_of(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def send(self, *payloads: int) -> None:
        for payload in payloads:
            self.perform("sender", self.sender.send([bytes([payload])], self.now))

    def perform(self, side: str, effects: Sequence[Effect]) -> None:
        left = deque(effects)
        while left:
            effect = left.popleft()
            self.effects.append(effect)
            if isinstance(effect, WakeAt):
                self.alarms[side] = effect.deadline
            elif isinstance(effect, Transmit):
                self.transmit(side, effect.frame)
            elif isinstance(effect, Persist):
                outcome = self.transport.perform(effect.write)
                left.extend(self.sender.answer(effect.ticket, outcome, self.now))
            elif isinstance(effect, Deliver):
                self.settled += [payload[0] for payload in effect.payloads]
                through: Ranges = ((effect.first, effect.first + len(effect.payloads) - 1),)
                left.extend(self.receiver.settled(effect.ticket, through, self.now))
        self.look(self)

    def transmit(self, side: str, frame: object) -> None:
        if self.is_cut or self.lost(side):
            return
        for _ in range(self.copies()):
            self.number += 1
            heapq.heappush(self.in_flight, (self.now + self.delay(), self.number, side, frame))

    def run(self, until: int) -> None:
        while True:
            alarms = [(at, side) for side, at in self.alarms.items() if at is not None]
            at, side = min(alarms, default=(until + 1, ""))
            if self.in_flight and self.in_flight[0][0] <= at:
                if self.in_flight[0][0] > until:
                    return
                self.now, _, source, frame = heapq.heappop(self.in_flight)
                target = self.receiver if source == "sender" else self.sender
                name = "receiver" if source == "sender" else "sender"
                self.perform(name, target.frame(frame, self.now))
            elif at <= until:
                self.now, self.alarms[side] = at, None
                machine = self.sender if side == "sender" else self.receiver
                self.perform(side, machine.wake(at))
            else:
                self.now = until
                return


def holds(wire: Wire) -> None:
    """message-queue Q-29 (a) to (f)."""
    sender, receiver = wire.sender, wire.receiver
    assert isinstance(sender, TransportSender)
    assert isinstance(receiver, TransportReceiver)
    members = list(sender.queue.pick_many(1 << 20))
    numbers = [member.num for member in members]
    queued = {member.num: member.payload for member in members}
    assert all(number < sender.next for number in numbers), "(a)"
    assert len(queued) == len(numbers), "(b)"
    for _, _, _, frame in wire.in_flight:
        if isinstance(frame, Numbered):
            (payload,) = frame.payloads
            if frame.first >= receiver.expected:
                assert queued.get(frame.first) == payload, "(c)"
            assert queued.get(frame.first, payload) == payload, "(d)"
            assert frame.first < sender.next, "(f)"
        else:
            assert isinstance(frame, Confirm)
            assert frame.cum < receiver.expected, "(e)"


@pytest.mark.parametrize("seed", range(12))
def test_what_is_queued_and_what_is_under_way_fit_together_at_each_step(seed: int) -> None:
    """message-queue Q-29: a route that loses, repeats and reorders; sends between the packets."""
    chance = random.Random(seed)
    wire = Wire(
        Plain(capacity=6),
        lost=lambda _way: chance.random() < 0.2,
        delay=lambda: chance.randrange(1, 3 * SECOND),
        copies=lambda: chance.choice((1, 1, 2)),
        look=holds,
    )
    for step in range(60):
        wire.send(step)
        wire.run(until=wire.now + chance.randrange(SECOND))
    wire.run(until=10_000 * SECOND)
    accepted = sum(one.count for one in wire.all_of(Accepted))
    assert len(wire.settled) == accepted
    assert wire.settled == sorted(wire.settled)
    assert wire.sender.idle


@pytest.mark.parametrize("worst", [1, 2, 3])
def test_a_route_that_lets_every_kth_packet_through_delivers_in_time(worst: int) -> None:
    """message-queue Q-30: n messages within n K^2 periods of the timer."""
    passed = {"sender": 0, "receiver": 0}

    def lost(way: str) -> bool:
        passed[way] += 1
        return passed[way] % worst != 0

    count = 8
    wire = Wire(Plain(), lost=lost)
    wire.send(*range(count))
    wire.run(until=count * worst**2 * SECOND + 2 * TRIP)
    assert wire.settled == list(range(count))


# With a queue that outlives the sender.


def stored_transport(store: MemoryStore) -> Transport:
    """A life of the sender's, which takes over the stored queue."""
    kept = StreamQueue(store, "kept", capacity=64)
    return Transport(lambda: BoundedQueue(64, increasing=True), "lowest", "discard", stored=kept)


def test_a_sender_that_crashes_goes_on_with_what_it_had_stored() -> None:
    """message-queue Q-25, Q-28: numbers go on, nothing is lost, nothing is delivered twice."""
    store = MemoryStore()
    wire = Wire(stored_transport(store))
    wire.send(*b"ab")
    wire.run(until=5 * TRIP)
    wire.is_cut = True
    wire.send(*b"cd")
    wire.is_cut = False
    wire.transport = stored_transport(store)
    wire.restart_sender()
    wire.send(*b"e")
    wire.run(until=10 * SECOND)
    assert wire.settled == list(b"abcde")
    assert wire.sender.idle
    assert wire.transport.stored is not None
    assert wire.transport.stored.empty()


def test_nothing_is_transmitted_before_it_is_stored() -> None:
    """message-queue QI-7; book B-113: the store does not answer, then it does; stored and transmitted once."""
    transport = stored_transport(MemoryStore())
    sender = transport.sender(life_hint=1, rng=random.Random(1))
    sender.wake(0)
    effects = sender.send([b"a"], 0)
    (write,) = [one for one in effects if isinstance(one, Persist)]
    assert not [one for one in effects if isinstance(one, Transmit | Accepted)]
    assert transport.perform(write.write) == WriteStored()
    assert sender.answer(write.ticket, WriteUnknown(), 0) == []
    again = [one for one in sender.wake(SECOND) if isinstance(one, Persist)]
    assert again[-1].write == write.write
    effects = sender.answer(again[-1].ticket, transport.perform(again[-1].write), SECOND)
    assert [type(one) for one in effects] == [Accepted, Transmit]
    assert transport.stored is not None
    assert len(transport.stored) == 1


def test_a_sender_whose_stored_queue_has_another_owner_stops() -> None:
    """message-queue Q-12: it says what it can't confirm, and takes nothing more."""
    store = MemoryStore()
    former = stored_transport(store)
    sender = former.sender(life_hint=1, rng=random.Random(1))
    stored_transport(store)
    (write,) = [one for one in sender.send([b"a"], 0) if isinstance(one, Persist)]
    outcome = former.perform(write.write)
    assert isinstance(outcome, WriteFenced)
    assert "Notice" in str(sender.answer(write.ticket, outcome, 0)[0])
    assert sender.wake(5 * SECOND) == [WakeAt(None)]
    assert [one for one in sender.send([b"b"], 0) if isinstance(one, Reject)]


def test_what_does_not_go_together_is_refused() -> None:
    """message-queue Q-27: two profiles, increasing queues, numbers from 1."""
    increasing: Callable[[], BoundedQueue[Message]] = lambda: BoundedQueue(4, increasing=True)  # noqa: E731
    with pytest.raises(ConfigurationError, match="say 'lowest' and 'discard'"):
        Transport(increasing, "lowest", "reorder")
    with pytest.raises(ConfigurationError, match="a Pipe has journal="):
        Transport(increasing, stored=increasing())
    with pytest.raises(ConfigurationError, match="an increasing queue"):
        Transport(lambda: BoundedQueue[Message](4), "lowest", "discard")
