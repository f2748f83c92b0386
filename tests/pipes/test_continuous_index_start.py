"""continuous-index: where an epoch starts and ends (pipes 8.5, L-9, L-10, K-7)."""

from __future__ import annotations

import random

import pytest

from surepipe.core.effects import NoticeKind
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.frames import Confirm, Open, Refused, RefusedReason, Unknown
from tests.kit.runs import (
    counted,
    held,
    opening,
    run,
    unknowns,
    wire_with,
)
from tests.kit.wire import MS, SECOND, Faults, Wire

KIND = "continuous-index"
STACK: list[LayerText] = [KIND, "multi-unconfirmed"]
QUICK: list[LayerText] = [
    {KIND: {"gap_alarm_s": 1.0}},
    {"multi-unconfirmed": {"rto_initial_s": 0.1, "rto_max_s": 0.5}},
]
ROUTE = Faults(loss=0.2, duplication=0.2, fifo=False, delay_us=(MS, 50 * MS))


def test_a_fresh_receiver_holds_and_asks_once() -> None:
    """8.5: 2 and 3 arrive first; one Unknown for both; message 1 makes it run."""
    wire = wire_with(3, STACK)
    frames = list(wire.to_receiver)
    wire.to_receiver.clear()
    wire.arrive(frames[1])
    wire.arrive(frames[2])
    assert unknowns(wire) == 1
    assert held(wire) == 2
    wire.arrive(frames[0])
    assert wire.settled == [1, 2, 3]


def test_open_tells_a_fresh_receiver_what_is_settled() -> None:
    """8.5: held 3 and 5, Open(base 4): 3 is settled without delivery, 4 is awaited."""
    wire = wire_with(6, KIND)
    wire.arrive(run(wire, 3, 3))
    wire.arrive(run(wire, 5, 5))
    wire.arrive(opening(wire, base=4))
    assert wire.settled == []
    wire.arrive(run(wire, 4, 4))
    assert wire.settled == [4, 5]
    wire.arrive(run(wire, 3, 3))
    assert counted(wire) == {"duplicate": 1}


def test_a_restarted_receiver_learns_the_base_from_its_sender() -> None:
    """K-7: after 1..3 were confirmed the receiver restarts; 4 arrives, Unknown, Open(4): no repeat."""
    wire = Wire(STACK)
    wire.send(1, 2, 3)
    wire.run()
    wire.crash_receiver()
    wire.send(4)
    wire.run()
    assert wire.settled == [1, 2, 3, 4]
    opens = [frame for frame in wire.sent if isinstance(frame, Open)]
    assert [(o.base, o.next) for o in opens] == [(4, 5)]


def test_an_unanswered_question_is_repeated() -> None:
    """T-2: the Unknown and two Opens are lost; the third question is answered."""
    wire = Wire(STACK)
    wire.send(1)
    wire.run()
    wire.crash_receiver()
    wire.send(2)
    lost = 0

    def lose(frame: object, _way: str) -> bool:
        nonlocal lost
        if isinstance(frame, Open | Unknown) and lost < 3:
            lost += 1
            return True
        return False

    wire.run(Faults(lose=lose))
    assert lost == 3
    assert wire.settled == [1, 2]
    assert wire.sender.idle


def test_over_a_bare_route_the_sender_leaves_unknown_unanswered() -> None:
    """What was passed down there may be lost: an Open would turn a hole into a silent loss."""
    wire = Wire(KIND)
    wire.send(1)
    wire.drop()
    wire.send(2)
    wire.run(until_us=60 * SECOND)
    assert wire.settled == []
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.STALLED, ((1, 1),))]
    assert not any(isinstance(frame, Open) for frame in wire.sent)
    assert wire.sender.counters()["wrong_state"] == unknowns(wire) > 3


def test_a_fresh_receiver_keeps_the_newest_epoch_only() -> None:
    """8.5: holding an epoch, a higher one takes its place; the lower is refused from then on."""
    wire = wire_with(3, KIND)
    old = run(wire, 2, 3)
    wire.drop_all()
    wire.crash_sender()
    wire.send(4, 5, 6)
    wire.arrive(old)
    assert held(wire) == 2
    wire.arrive(run(wire, 2, 2))
    assert held(wire) == 1
    assert counted(wire) == {"abandoned": 2}
    wire.arrive(old)
    assert counted(wire) == {"abandoned": 2, "stale_epoch": 1}
    wire.arrive(run(wire, 1, 1))
    assert wire.settled == [4, 5]


def test_a_late_open_never_moves_the_cursor_back() -> None:
    """Opens of the present epoch with a lower base, of a former epoch, repeated: nothing changes."""
    wire = wire_with(4, STACK)
    wire.exchange()
    wire.arrive(opening(wire, base=1))
    wire.arrive(opening(wire, base=5))
    wire.arrive(opening(wire, base=5))
    wire.arrive(opening(wire, base=9, epoch=1))
    assert counted(wire) == {"stale_epoch": 1}
    wire.send(5)
    wire.exchange()
    assert wire.settled == [1, 2, 3, 4, 5]


def test_an_open_of_another_stack_is_refused() -> None:
    """F-5: the digest differs; the receiver says so and the sender stops."""
    wire = wire_with(1, STACK)
    wire.arrive(opening(wire, base=1, stack=12345))
    refusal = wire.to_sender[-1]
    assert isinstance(refusal, Refused)
    assert refusal.reason is RefusedReason.STACK
    wire.exchange()
    assert set(wire.kinds_noticed()) == {NoticeKind.MISMATCH}
    wire.send(2)
    assert len(wire.rejected) == 1


# Epochs and rollbacks (pipes L-9, L-10).


def test_what_is_in_work_is_settled_before_a_new_epoch_is_delivered() -> None:
    """L-9: the former epoch stays open at the boundary, 3 is held and dropped, the new one waits."""
    wire = wire_with(4, KIND, auto_settle=False)
    wire.arrive(run(wire, 1, 2))
    wire.arrive(run(wire, 4, 4))
    wire.to_receiver.clear()
    wire.crash_sender()
    wire.send(5, 6)
    wire.transfer()
    assert len(wire.open) == 1
    assert wire.receiver.gauges()["in_work"] == 4
    assert counted(wire) == {"abandoned": 1}
    wire.settle(1)
    wire.settle()
    wire.settle()
    assert wire.settled == [1, 2, 5, 6]
    assert wire.receiver.gauges()["in_work"] == 0


def test_messages_in_work_of_a_former_epoch_count_in_the_window() -> None:
    """V-5: window 4 with 3 in work: of the new epoch one message has room."""
    wire = wire_with(3, {KIND: {"receive_window": 4}}, auto_settle=False)
    wire.transfer()
    wire.crash_sender()
    wire.send(4)
    wire.send(5)
    wire.transfer()
    assert wire.receiver.gauges()["in_work"] == 4
    assert counted(wire) == {"over_limit": 1}
    while wire.open:
        wire.settle()
    wire.arrive(run(wire, 2, 2))
    wire.settle()
    assert wire.settled == [1, 2, 3, 4, 5]


def test_carrier_messages_of_a_former_epoch_are_still_answered() -> None:
    """K-2: the sender dies with a message in work; its carrier message is confirmed all the same."""
    wire = Wire(STACK, auto_settle=False)
    wire.send(1)
    wire.transfer()
    wire.drop_all()
    wire.crash_sender()
    wire.send(2)
    wire.transfer()
    wire.settle()
    wire.settle()
    wire.advance(20 * MS)
    epochs = {f.epoch for f in wire.sent_back if isinstance(f, Confirm) and f.cum + len(f.done)}
    assert len(epochs) == 2
    assert wire.settled == [1, 2]


def test_a_durable_receiver_that_went_back_is_told_so() -> None:
    """L-10: its state says 1, the sender knows 4: StateRollback(2..4), and it goes on."""
    durable = BoundaryOptions(durable=True)
    wire = Wire(STACK, boundary=durable)
    wire.send(1)
    wire.run()
    older = wire.saved_state
    wire.send(2, 3, 4)
    wire.run()
    wire.saved_state = older
    wire.crash_receiver()
    wire.send(5)
    wire.run()
    rollbacks = [n for _, n in wire.notices if n.kind is NoticeKind.STATE_ROLLBACK]
    assert [n.ranges for n in rollbacks] == [((2, 4),)]
    assert wire.settled == [1, 2, 3, 4, 5]
    assert wire.sender.idle


def test_a_durable_cursor_needs_no_question() -> None:
    """8.5: a restart between two messages over a bare route; no Unknown, no repeat, no stall."""
    wire = wire_with(4, KIND)
    wire.boundary = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True)
    wire.crash_receiver()
    wire.transfer(2)
    wire.crash_receiver()
    wire.transfer()
    assert wire.settled == [1, 2, 3, 4]
    assert unknowns(wire) == 0


@pytest.mark.parametrize("seed", range(10))
def test_with_boundary_committed_nothing_is_lost_or_repeated(seed: int) -> None:
    """The receiver crashes at random effects over a faulty route: exactly-once, absolute."""
    rng = random.Random(seed)
    wire = Wire(
        QUICK,
        seed=seed,
        boundary=BoundaryOptions(boundary=Boundary.COMMITTED, durable=True),
        crashes=frozenset(("receiver", rng.randrange(1, 150)) for _ in range(10)),
    )
    for number in range(1, 61):
        wire.send(number)
    wire.run(ROUTE, until_us=60 * SECOND)
    assert wire.settled == list(range(1, 61))
