"""The retry pipes through crashes, outages and failing handlers (pipes V-4, 8.1 to 8.3 restart)."""

from __future__ import annotations

import pytest

from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.frames import Frame
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.retry_kit import ROUGH, assert_quiet, bounds_of, is_gap_free, send_all

KINDS = ("resend", "multi-unconfirmed", "sequential-confirm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_pipe_is_quiet_within_its_bound_after_an_outage(kind: str, seed: int) -> None:
    """V-4: everything vanishes for 100 s; then C = S and silence within the bound of V-4."""
    wire = Wire({kind: {"run_max": 10, "window": 50}}, seed=seed)
    [options] = parse_layers(wire.layers)
    assert isinstance(options, RetryOptions)
    send_all(wire, 200)
    end = 100 * SECOND

    def vanishes(_frame: Frame, _way: str) -> bool:
        return wire.now < end

    trip = 20 * MS
    wire.run(Faults(lose=vanishes, delay_us=(trip // 2, trip // 2)), each_step=bounds_of(wire))
    assert wire.confirmed == set(range(1, 201))
    assert_quiet(wire)
    unit = 50 if kind == "multi-unconfirmed" else 10
    rounds = (200 // unit + 4) * (trip + 10 * MS)
    assert wire.now - end <= (3 * 30 + 5) * SECOND + rounds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", range(1, 30))
def test_nothing_is_lost_when_the_receiver_crashes_after_any_effect(kind: str, step: int) -> None:
    """8.1 to 8.3 restart: N with boundary processed, G where it is promised."""
    wire = Wire({kind: {"run_max": 3}}, crashes=frozenset({("receiver", step)}))
    send_all(wire, 20, batch=5)
    wire.run()
    assert set(wire.settled) == set(range(1, 21)) == wire.confirmed
    if kind != "multi-unconfirmed":
        assert is_gap_free(wire.settled)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", range(1, 20))
def test_what_a_new_life_accepts_arrives_when_the_sender_crashes_after_any_effect(
    kind: str, step: int
) -> None:
    """L-3 without journal: what the old life had is lost or not; the new life is served in full."""
    wire = Wire({kind: {"run_max": 3}}, crashes=frozenset({("sender", step)}))
    send_all(wire, 10, batch=5)
    wire.run()
    wire.crashes = frozenset()
    before = len(wire.accepted)
    send_all(wire, 10, batch=5)
    wire.run()
    assert set(range(before + 1, len(wire.accepted) + 1)) <= wire.confirmed
    assert len(wire.accepted) - before == 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_handler_delays_and_loses_nothing(kind: str) -> None:
    """D-1 under V-7 handler-failure: 3 raises twice, then everything settles, over a rough route."""
    wire = Wire({kind: {"run_max": 4}}, auto_settle=False, boundary=BoundaryOptions())
    wire.send(1, 2, 3, 4)
    raised = 0
    while wire.confirmed != {1, 2, 3, 4}:
        wire.exchange()
        for delivery in list(wire.open.values())[:1]:
            if delivery.first <= 3 < delivery.first + len(delivery.payloads) and raised < 2:
                wire.fail(3)
                raised += 1
            else:
                wire.settle()
        wire.advance(100 * MS)
    assert raised == 2
    assert set(wire.settled) == {1, 2, 3, 4}


@pytest.mark.parametrize("handler_us", [0, 3 * SECOND])
@pytest.mark.parametrize(
    "layers",
    [
        ["sequential-confirm", "multi-unconfirmed"],
        [{"resend": {"run_max": 3}}, "resend"],
        [{"multi-unconfirmed": {"run_max": 3}}, {"sequential-confirm": {"run_max": 4}}],
        ["strict-monotonic", "sequential-confirm"],
    ],
    ids=str,
)
def test_stacks_of_retry_pipes_lose_nothing(layers: list[LayerText], handler_us: int) -> None:
    """K-2: each carrier message gets its one answer, with handlers from zero to several waits."""
    wire = Wire(layers, handler_us=handler_us, seed=3)
    send_all(wire, 30, batch=5)
    wire.run(ROUGH, until_us=20_000 * SECOND)
    assert set(wire.settled) == set(range(1, 31)) == wire.confirmed
    assert wire.sender.idle
    assert wire.receiver.idle
    assert_quiet(wire)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_what_a_former_life_left_held_above_does_not_lock_the_next_life_out(window: int) -> None:
    """L-9, P-9: the whole receive_window is held by a Fresh continuous-index when the sender restarts."""
    carrier = {"window": 4, "run_max": 1, "receive_window": window}
    wire = Wire(["continuous-index", {"multi-unconfirmed": carrier}])
    for number in range(1, 5):
        wire.send(number)
    wire.run()
    wire.crash_receiver()
    for number in range(5, 9):
        wire.send(number)
    wire.transfer(back=0)  # 5 is the first that the new receiver sees, so it can only hold it
    assert wire.receiver.gauges()["held"] == min(window, 4)
    wire.drop_all()
    wire.crash_sender()
    for number in range(9, 13):
        wire.send(number)
    wire.run(until_us=1_000 * SECOND)
    assert wire.settled == [1, 2, 3, 4, 9, 10, 11, 12]
    assert wire.confirmed == {1, 2, 3, 4, 9, 10, 11, 12}
    assert_quiet(wire)
