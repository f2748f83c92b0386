"""reliable under everything that a route may do, and under frames that arrive when nobody expects them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from surepipe.core.claims import Fault
from surepipe.guarantees import derive
from surepipe.guarantees.hops import DeclaredStore
from surepipe.pipes.wire.frames import Confirm, Frame
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Faults, Side, Wire
from tests.pipes.hops_kit import POWER, committed, hop
from tests.pipes.reliable_kit import (
    COMMITTED,
    assert_all_confirmed,
    assert_conserved,
    bounds_of,
)

pytestmark = pytest.mark.long

MESSAGES = 10_000
BOTH: tuple[Side, Side] = ("sender", "receiver")


def with_outages(seed: int) -> Faults:
    """All route faults by seed; now and then forty frames in a row vanish, both ways."""
    rng = random.Random(seed)
    left = 0

    def is_out(_frame: Frame, _way: str) -> bool:
        nonlocal left
        if left == 0 and rng.random() < 0.002:
            left = 40
        left = max(0, left - 1)
        return left > 0

    return Faults(
        loss=rng.choice([0.0, 0.05, 0.2]),
        back_loss=rng.choice([None, 0.4]),
        duplication=rng.choice([0.0, 0.2]),
        delay_us=rng.choice([(1 * MS, 1 * MS), (1 * MS, 60 * MS), (1 * MS, 4_000 * MS)]),
        copy_delay_us=rng.choice([(0, 500 * MS), (0, 60 * SECOND)]),
        fifo=rng.random() < 0.3,
        lose=is_out,
    )


@pytest.mark.parametrize("block", range(20))
def test_ten_thousand_messages_over_all_route_faults_arrive_once_and_in_order(block: int) -> None:
    """100 seeds in blocks of five: exactly once, absolute, C = S, bounds at every step (pipes rl1)."""
    for seed in range(5 * block, 5 * block + 5):
        run_max = random.Random(seed).choice([50, 128, 512])
        wire = Wire({"reliable": {"run_max": run_max}}, seed=seed)
        check = bounds_of(wire)
        sent = 0

        def step(wire: Wire = wire, check: Callable[[], None] = check) -> None:
            nonlocal sent
            check()
            if sent < MESSAGES and wire.sender.room >= 1000:
                wire.send(*range(sent, sent + 1000))
                sent += 1000

        wire.run(with_outages(seed), each_step=step)
        assert sent == MESSAGES
        assert_all_confirmed(wire)


def test_a_run_without_faults_sends_every_message_and_every_confirm_once() -> None:
    """No retransmission, no duplicate, no notice, one Open; quiescent at the end (pipes V-4, rs6)."""
    wire = Wire("reliable")
    for first in range(0, 5_000, 500):
        wire.send(*range(first, first + 500))
        wire.run()
    wire.advance(100 * SECOND)
    assert wire.sender.counters()["transmitted"] == 5_000
    assert wire.sender.counters()["retransmitted"] == 0
    assert wire.receiver.counters()["duplicate"] == 0
    assert not wire.notices
    assert wire.deadline == {"sender": None, "receiver": None}
    assert_all_confirmed(wire)


def test_after_the_last_fault_quiescence_comes_within_the_stated_bound() -> None:
    """An outage of 100 s, then nothing is lost: everything is confirmed in time (pipes V-4)."""
    end = 100 * SECOND
    wire = Wire({"reliable": {"window": 64, "run_max": 8}})
    wire.exchange()
    wire.send(*range(500))

    def is_out(_frame: Frame, _way: str) -> bool:
        return wire.now < end

    wire.run(Faults(lose=is_out, delay_us=(20 * MS, 20 * MS)))
    bound = 3 * 30 * SECOND + 5 * SECOND + (500 // 64 + 5) * (40 * MS + 10 * MS)
    assert end < wire.now <= end + bound
    assert_all_confirmed(wire)


@pytest.mark.parametrize("seed", range(10))
def test_confirms_of_the_first_round_may_all_be_lost(seed: int) -> None:
    """The first thirty Confirms vanish: nothing is delivered twice (pipes rl3)."""
    lost = 0

    def is_lost(frame: Frame, way: str) -> bool:
        nonlocal lost
        lost += way == "back" and isinstance(frame, Confirm)
        return way == "back" and isinstance(frame, Confirm) and lost <= 30

    wire = Wire({"reliable": {"run_max": 5}}, seed=seed)
    wire.send(*range(100))
    wire.run(Faults(lose=is_lost), each_step=bounds_of(wire))
    assert lost > 30
    assert_all_confirmed(wire)


# Frames of earlier links, incarnations and lives, at any moment.

Moment = Callable[[Wire], None]


def troubled_history() -> list[Moment]:
    """A run of 24 messages with crashes of both ends, in small moments."""

    def batch(first: int) -> Moment:
        return lambda wire: wire.send(*range(first, first + 4))

    def step(wire: Wire) -> None:
        wire.transfer(1, back=0) if wire.to_receiver else wire.exchange()

    def answer(wire: Wire) -> None:
        if wire.to_sender:
            wire.transfer(0, back=1)

    def exchange(wire: Wire) -> None:
        wire.exchange()

    def wait(wire: Wire) -> None:
        wire.advance(1_100 * MS)

    def receiver_dies(wire: Wire) -> None:
        wire.crash_receiver()

    def sender_dies(wire: Wire) -> None:
        wire.crash_sender()

    middle = [step, answer, step, answer]
    return [
        *(batch(0), step, answer, step, answer, batch(4), exchange, batch(8), step),
        *(receiver_dies, *middle, wait, exchange, batch(12), *middle),
        *(sender_dies, *middle, wait, exchange, batch(16), step),
        *(sender_dies, receiver_dies, *middle, wait, *middle, batch(20), exchange, wait),
    ]


def history_with(at: int, inject: Callable[[Wire], None]) -> Wire:
    """The history with something that happens before its moment number ``at``; then to the end."""
    wire = Wire({"reliable": {"run_max": 2}}, boundary=COMMITTED, journal=MemoryJournal())
    for number, moment in enumerate(troubled_history()):
        if number == at:
            inject(wire)
            assert_conserved(wire)
        moment(wire)
        assert_conserved(wire)
    if at == len(troubled_history()):
        inject(wire)
    wire.run(each_step=lambda: assert_conserved(wire))
    return wire


@pytest.mark.parametrize("is_reversed", [False, True])
def test_all_frames_ever_sent_may_arrive_again_at_any_moment(is_reversed: bool) -> None:
    """At each moment of a history with crashes, everything said so far arrives once more (pipes rl6)."""

    def everything(wire: Wire) -> None:
        forward, back = list(wire.sent), list(wire.sent_back)
        if is_reversed:
            forward.reverse()
            back.reverse()
        for frame in forward:
            wire.arrive(frame)
        for frame in back:
            wire.arrive_back(frame)

    for at in range(len(troubled_history()) + 1):
        assert_all_confirmed(history_with(at, everything))


def test_any_one_frame_of_an_earlier_link_or_incarnation_may_arrive_at_any_moment() -> None:
    """Each frame of the history alone, at five moments after it was sent (pipes rl6)."""
    whole = history_with(-1, lambda _wire: None)
    rng = random.Random(6)
    moments = len(troubled_history())
    for way in ("forward", "back"):
        said = whole.sent if way == "forward" else whole.sent_back
        for number in range(len(said)):
            for at in rng.sample(range(moments + 1), 5):

                def one(wire: Wire, number: int = number, way: str = way) -> None:
                    before = wire.sent if way == "forward" else wire.sent_back
                    if number < len(before):
                        (wire.arrive if way == "forward" else wire.arrive_back)(before[number])

                assert_all_confirmed(history_with(at, one))


def test_frames_of_another_life_of_both_ends_do_no_harm_while_traffic_goes_on() -> None:
    """Copies come up to a minute late, while both ends crash now and then (pipes rl6)."""
    faults = Faults(
        loss=0.1,
        duplication=0.5,
        delay_us=(1 * MS, 30 * MS),
        copy_delay_us=(0, 60 * SECOND),
        fifo=False,
    )
    for seed in range(10):
        wire = Wire(
            {"reliable": {"run_max": 4}},
            seed=seed,
            boundary=COMMITTED,
            journal=MemoryJournal(),
            crashes=frozenset((side, at) for at in range(40, 400, 70) for side in BOTH),
        )
        wire.send(*range(150))
        wire.run(faults, each_step=bounds_of(wire))
        assert_all_confirmed(wire)


# Equality with the stack.


@pytest.mark.parametrize("seed", range(50))
def test_it_delivers_what_continuous_index_over_multi_unconfirmed_delivers(seed: int) -> None:
    """Fault-free runs of both, the same batches: the same deliveries in the same order (pipes rl9)."""
    rng = random.Random(seed)
    batches = [rng.randint(1, 40) for _ in range(15)]
    settled: list[list[int]] = []
    for layers in ("reliable", ["continuous-index", "multi-unconfirmed"]):
        wire = Wire(layers, seed=seed)
        sent = 0
        for size in batches:
            wire.send(*range(sent, sent + size))
            sent += size
            if size % 3 == 0:
                wire.run()
        wire.run()
        assert wire.confirmed == set(wire.settled)
        settled.append(wire.settled)
    assert settled[0] == settled[1] == list(range(1, sum(batches) + 1))


@pytest.mark.parametrize("journal", [None, POWER])
def test_its_guarantee_is_that_of_continuous_index_over_multi_unconfirmed(
    journal: DeclaredStore | None,
) -> None:
    """The algebra derives the same atoms with the same faults, plain and with everything (pipes rl9).

    Only its greeting keeps out a predecessor whose clock stood later, where no journal numbers the lives.
    """
    fused = replace(hop("reliable"), journal=journal)
    stacked = replace(hop("continuous-index", "multi-unconfirmed"), journal=journal)
    lost = set(derive(stacked).headline.lacks()) - set(derive(fused).headline.lacks())
    assert lost == (set() if journal else {Fault.CLOCK_STEP})
    if journal:
        assert derive(fused).guarantee == derive(stacked).guarantee
        assert derive(committed(fused)).guarantee == derive(committed(stacked)).guarantee
