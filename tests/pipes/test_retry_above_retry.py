"""A retry layer above another: what the carrier still has is asked after, and not sent again (pipes T-2, K-2)."""

from __future__ import annotations

import pytest

from surepipe.core.effects import NoticeKind
from surepipe.pipes.retry.flights import Flight
from surepipe.pipes.retry.window import WindowSender
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Nack, Open, Opened, Probe, Unknown
from tests.kit.wire import MS, SECOND, Faults, Wire

KINDS = ("resend", "multi-unconfirmed", "sequential-confirm", "reliable")
QUICK: dict[str, object] = {"run_max": 1, "window": 16, "rto_initial_s": 0.2, "rto_max_s": 2.0}
PATIENT: dict[str, object] = {"run_max": 1, "rto_initial_s": 500.0, "rto_max_s": 500.0}
STUBBORN = {**PATIENT, "nack_after": 1000, "nack_delay_s": 500.0}


def layers_of(wire: Wire) -> list[WindowSender]:
    """The sending halves, outermost first."""
    found = [layer for layer in wire.sender.layers if isinstance(layer, WindowSender)]
    assert len(found) == len(wire.sender.layers)
    return found


def flights_of(wire: Wire) -> list[Flight]:
    """What the outermost layer has on the way."""
    return layers_of(wire)[0].flights.runs


def carried_frames(wire: Wire) -> int:
    """Frames of the outermost layer that its carrier has."""
    carrier = layers_of(wire)[1]
    return carrier.in_flight + len(carrier.backlog)


def probes_of(wire: Wire, layer: int) -> list[Frame]:
    """The questions of a layer so far."""
    return [frame for frame in wire.sent if isinstance(frame, Probe) and frame.layer == layer]


def lose(wire: Wire, layer: int) -> None:
    """Lose what a layer of the receiver has just said."""
    wire.to_sender[:] = [frame for frame in wire.to_sender if frame.layer != layer]


@pytest.mark.parametrize("delay_ms", [150, 300])
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("outer", KINDS)
def test_a_slow_route_below_does_not_bury_the_inner_layer(
    outer: str, inner: str, delay_ms: int
) -> None:
    """simulation X-38 O1, V-4: round trips of 1.5 and 3 first timeouts; no message needs one round trip more."""
    wire = Wire([{outer: QUICK}, {inner: QUICK}])

    def look() -> None:
        assert carried_frames(wire) <= 16

    wire.send(*range(1, 61))
    wire.run(Faults(delay_us=(delay_ms * MS, delay_ms * MS)), steps_max=20_000, each_step=look)
    assert wire.confirmed == set(range(1, 61))
    assert wire.now <= (60 + 4) * 2 * delay_ms * MS + 2 * SECOND
    frames = [frame for frame in wire.sent if isinstance(frame, Data)]
    assert len(frames) <= 60 + 2 * 16


def test_what_the_carrier_has_is_asked_after_and_not_sent_again() -> None:
    """T-2, T-11: six timeouts while the carrier waits: six questions, one notice, no copy."""
    wire = Wire([{"resend": {"run_max": 1, "jitter": 0.0}}, {"resend": PATIENT}])
    wire.send(1)
    wire.advance(62 * SECOND)
    assert carried_frames(wire) == 1
    assert [flight.attempts for flight in flights_of(wire)] == [1]
    assert len(probes_of(wire, 0)) == 6
    [(_, notice)] = wire.notices
    assert (notice.kind, notice.ranges) == (NoticeKind.UNANSWERED, ((1, 1),))


def test_patience_begins_when_the_carrier_says_that_the_frame_has_arrived() -> None:
    """T-2: the receiver's own confirm is lost; one timeout after the carrier's, the frame travels again."""
    slow = {"run_max": 1, "jitter": 0.0, "rto_initial_s": 20.0}
    wire = Wire([{"resend": {"run_max": 1, "jitter": 0.0}}, {"resend": slow}])
    wire.send(1)
    wire.drop()
    wire.advance(20 * SECOND)
    [again] = [frame for frame in wire.to_receiver if isinstance(frame, Data)]
    wire.arrive(again)
    lose(wire, layer=0)
    wire.transfer(0, back=len(wire.to_sender))
    assert not carried_frames(wire)
    wire.advance(SECOND - 1)
    assert not carried_frames(wire)
    wire.advance(1)
    assert carried_frames(wire) == 1
    assert [flight.attempts for flight in flights_of(wire)] == [2]
    asked = len(probes_of(wire, 0))
    wire.advance(2 * SECOND)
    assert len(probes_of(wire, 0)) == asked + 1


def test_a_hole_that_the_carrier_is_about_to_fill_is_not_filled_twice() -> None:
    """T-7: frame 1 is lost, 2 to 5 arrive and 1 is named as missing; the carrier still has it."""
    wire = Wire([{"multi-unconfirmed": {"run_max": 1}}, {"multi-unconfirmed": STUBBORN}])
    wire.send(1, 2, 3, 4, 5)
    wire.drop()
    wire.advance(SECOND // 2)
    wire.exchange()
    wire.advance(20 * MS)
    wire.exchange()
    assert [f.missing for f in wire.sent_back if isinstance(f, Nack)] == [((1, 1),)]
    assert [(f.first, f.attempts) for f in flights_of(wire)][:1] == [(1, 1)]
    assert carried_frames(wire) == 1


def test_a_hole_is_filled_at_once_when_the_carrier_has_nothing_for_it() -> None:
    """T-7, K-2: the receiver had no room for 3, and its carrier's message is settled all the same."""
    small = {"run_max": 1, "receive_window": 2, "initial_credit": 5, "rto_initial_s": 100.0}
    wire = Wire([{"multi-unconfirmed": {**small, "rto_max_s": 100.0}}, "multi-unconfirmed"])
    wire.send(1, 2, 3, 4)
    wire.run(until_us=50 * SECOND)
    assert wire.confirmed == {1, 2, 3, 4}


def test_a_new_link_sends_again_only_when_the_copy_of_the_former_link_has_arrived() -> None:
    """T-9: however often the link is made anew, the carrier has each message once."""
    wire = Wire([{"reliable": {"run_max": 1, "window": 16}}, {"resend": PATIENT}])
    wire.exchange()
    wire.send(*range(1, 31))
    outer = layers_of(wire)[0]
    for _ in range(20):
        wire.arrive_back(Unknown(wire.sender.tag, 0, outer.link, wire.receiver.incarnation))
        [offer] = [frame for frame in wire.to_receiver if isinstance(frame, Open)]
        wire.to_receiver.remove(offer)
        wire.arrive(offer)
        [answer] = [frame for frame in wire.to_sender if isinstance(frame, Opened)]
        wire.to_sender.remove(answer)
        wire.arrive_back(answer)
        assert carried_frames(wire) == 16
    wire.run()
    assert wire.settled == list(range(1, 31))
    assert wire.confirmed == set(range(1, 31))
    assert wire.now < SECOND // 2, "nothing waited for a timeout"


def test_a_carrier_that_starts_anew_numbers_its_frames_anew() -> None:
    """L-7, K-2: its life's number is taken, so the stack takes a higher one when frames stood in line already."""
    wire = Wire([{"multi-unconfirmed": QUICK}, "reliable"], auto_settle=False)
    wire.send(1)
    wire.exchange()
    wire.life_hint -= 1 << 20  # the next life has the same hint
    wire.crash_sender()
    former = wire.sender.intake.life
    wire.send(2, 3)
    assert [flight.carried_as for flight in flights_of(wire)] == [1, 2]
    wire.settle()
    wire.exchange()
    assert wire.sender.intake.life > former
    assert [flight.carried_as for flight in flights_of(wire)] == [0, 0]
    assert not carried_frames(wire)


@pytest.mark.parametrize("kind", ["resend", "multi-unconfirmed", "sequential-confirm"])
def test_what_a_crashed_receiver_took_and_did_not_settle_comes_again(kind: str) -> None:
    """K-2, N: the carrier has confirmed, so only the layer above can bring it to the next receiver."""
    wire = Wire([{kind: QUICK}, "resend"], auto_settle=False)
    wire.send(1)
    wire.exchange()
    assert wire.open
    assert any(f.layer == 1 and f.cum == 1 for f in wire.sent_back if isinstance(f, Confirm))
    wire.crash_receiver()
    wire.auto_settle = True
    wire.run(until_us=60 * SECOND)
    assert wire.confirmed == {1}
