"""The sending half of the index pipes (pipes K-1, K-7, K-8, L-7, P-5, P-9)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core.effects import Notice, NoticeKind, RejectReason, Renumbered, Transmit
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.wire.frames import Frame, Numbered, Refused, RefusedReason, Unknown, tag_of
from tests.kit.runs import epoch_of
from tests.kit.wire import SECOND, Faults, Wire

INDEX_KINDS = ("strict-monotonic", "continuous-index", "dedupe")
PIPE = tag_of("pipe")


def runs_sent(wire: Wire) -> list[tuple[int, int]]:
    """First message and length of each Numbered frame on the route."""
    return [(f.first, len(f.payloads)) for f in wire.sent if isinstance(f, Numbered)]


def refused(epoch: int, known: int, reason: RefusedReason = RefusedReason.FENCED) -> Frame:
    """What a receiver answers that serves another life."""
    return Refused(PIPE, 0, 0, epoch, reason, known)


def counted(wire: Wire) -> dict[str, int]:
    """The sender's frame counters that are not zero."""
    ignored = ("stale_epoch", "impossible", "wrong_state", "unknown_link")
    return {name: wire.sender.counters()[name] for name in ignored if wire.sender.counters()[name]}


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_messages_leave_at_once_and_nothing_is_kept_over_a_bare_route(kind: str) -> None:
    """8.4: no buffer, no deadline; whatever was handed to the route is not unconfirmed."""
    wire = Wire(kind)
    wire.send(1, 2)
    wire.send(3)
    assert runs_sent(wire) == [(1, 2), (3, 1)]
    assert wire.sender.idle
    assert wire.sender.unconfirmed() == []
    assert wire.sender.gauges()["in_flight"] == 0
    assert wire.deadline["sender"] is None
    assert wire.sender.counters()["transmitted"] == wire.sender.counters()["accepted"] == 3


def test_runs_are_cut_by_number_and_by_bytes() -> None:
    """`run_max` 3 and `frame_max_bytes` 10; a larger message travels alone."""
    layer: LayerText = {"strict-monotonic": {"run_max": 3, "frame_max_bytes": 10}}
    wire = Wire(layer)
    wire.send(*[b"x" * size for size in (1, 1, 1, 1, 6, 4, 25, 9, 2)])
    assert runs_sent(wire) == [(1, 3), (4, 2), (6, 1), (7, 1), (8, 1), (9, 1)]
    wire.transfer()
    assert wire.settled == list(range(1, 10))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 40))
def test_any_cut_keeps_every_message_in_its_place(
    sizes: Sequence[int], run_max: int, frame_max: int
) -> None:
    """Random sizes and bounds: all delivered in order, each frame within its bounds."""
    layer: LayerText = {"continuous-index": {"run_max": run_max, "frame_max_bytes": frame_max}}
    wire = Wire(layer)
    wire.send(*[b"x" * size for size in sizes])
    for frame in wire.sent:
        assert isinstance(frame, Numbered)
        assert len(frame.payloads) <= run_max
        assert len(frame.payloads) == 1 or sum(map(len, frame.payloads)) <= frame_max
    wire.transfer()
    assert wire.settled == list(range(1, len(sizes) + 1))


def test_it_accepts_only_what_its_carrier_accepts() -> None:
    """K-1, P-5: a carrier with room for 2 + 3 frames; the rest is rejected and takes no number."""
    carrier: LayerText = {"multi-unconfirmed": {"window": 2, "backlog": 3}}
    wire = Wire([{"strict-monotonic": {"run_max": 2}}, carrier])
    assert wire.sender.room == 10
    wire.send(*range(13))
    assert [(r.reason, r.count) for r in wire.rejected] == [(RejectReason.FULL, 3)]
    assert wire.sender.room == 0
    wire.send(13)
    assert len(wire.rejected) == 2
    wire.run()
    wire.send(14)
    wire.run()
    assert wire.settled == list(range(1, 12))
    assert wire.sender.room == 10


def test_a_run_is_cut_shorter_when_the_carrier_has_no_room_for_its_bytes() -> None:
    """K-1: a carrier with a small backlog takes small frames; nothing waits for ever."""
    carrier: LayerText = {"multi-unconfirmed": {"window_bytes": 400, "backlog_bytes": 400}}
    wire = Wire(["strict-monotonic", carrier])
    for _ in range(10):
        wire.send(*[b"x" * 100 for _ in range(8)])
        wire.run(until_us=wire.now + 60 * SECOND)
    accepted = len(wire.accepted)
    assert accepted >= 10
    assert wire.settled == list(range(1, accepted + 1))
    assert accepted + sum(reject.count for reject in wire.rejected) == 80


def test_a_shorter_run_goes_where_a_full_one_does_not_fit() -> None:
    """K-1, P-5: room for some 500 bytes and a batch of eight messages of 100: half of it is accepted."""
    carrier: LayerText = {"multi-unconfirmed": {"window": 1, "backlog_bytes": 600}}
    wire = Wire(["strict-monotonic", carrier])
    wire.send(b"in flight")
    wire.send(b"waits")
    wire.send(*[b"x" * 100 for _ in range(8)])
    assert len(wire.accepted) == 2 + 4
    wire.run()
    assert wire.settled == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("kind", ["continuous-index", "dedupe"])
def test_it_stays_within_the_window_of_its_receiver(kind: str) -> None:
    """Over a confirming carrier: `receive_window` 5 beyond the base, then rejected."""
    wire = Wire([{kind: {"receive_window": 5}}, "multi-unconfirmed"], auto_settle=False)
    assert wire.sender.room == 5
    wire.send(*range(8))
    assert len(wire.accepted) == 5
    assert wire.sender.room == 0
    wire.exchange()
    wire.settle(2)
    wire.advance(SECOND // 50)
    wire.exchange()
    assert wire.sender.room == 0  # 1 and 2 travelled in one frame with 3 to 5
    while wire.open:
        wire.settle()
    wire.run()
    assert wire.sender.room == 5


def test_the_window_of_its_receiver_counts_bytes_too() -> None:
    """Over a confirming carrier: 10 bytes beyond the base; a larger message goes when it is alone."""
    layer: LayerText = {"continuous-index": {"receive_window_bytes": 10}}
    wire = Wire([layer, "multi-unconfirmed"])
    assert wire.sender.room_bytes == 10
    wire.send(b"x" * 6, b"x" * 6)
    assert len(wire.accepted) == 1
    assert wire.sender.room_bytes == 4
    wire.run()
    wire.send(b"x" * 25, b"x")
    assert len(wire.accepted) == 2
    assert (wire.sender.room, wire.sender.room_bytes) == (0, 0)
    wire.run()
    assert wire.confirmed == {1, 2}


def test_strict_monotonic_has_no_such_window() -> None:
    """It holds nothing, so only the carrier bounds it."""
    wire = Wire([{"strict-monotonic": {"receive_window": 5}}, "multi-unconfirmed"])
    wire.send(*range(100))
    assert len(wire.accepted) == 100


def test_the_base_is_the_lowest_message_the_carrier_has_not_confirmed() -> None:
    """K-7: frames of 2, 1 and 3 messages; the carrier confirms the third, then the others."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1, 2)
    wire.send(3)
    wire.send(4, 5, 6)
    sender = wire.sender.layers[0]
    epoch = epoch_of(wire)
    sender.carried(3, 3)
    assert wire.sender.unconfirmed() == [(epoch, ((1, 3),))]
    assert wire.sender.gauges()["in_flight"] == 3
    assert sender.waiting() == [b"1", b"2", b"3"]
    sender.carried(1, 1)
    assert wire.sender.unconfirmed() == [(epoch, ((3, 3),))]
    sender.carried(1, 3)
    assert wire.sender.idle
    assert wire.sender.counters()["confirmed"] == 6


# Lives (pipes L-7).


def test_a_life_refused_before_any_answer_takes_a_higher_number() -> None:
    """L-7: the clock went back; everything waiting is numbered again, once, and delivered."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1, 2)
    wire.send(3)
    former = epoch_of(wire)
    wire.drop_all()
    for _ in range(3):
        wire.arrive_back(refused(former, former + 100))
    assert counted(wire) == {"stale_epoch": 2}
    assert epoch_of(wire) == former + 101
    wire.run()
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_two_lives_that_go_above_the_same_one_are_two(kind: str) -> None:
    """L-7, simulation P17: the clock was set back, and the second life ends before anybody has heard of it."""
    wire = Wire([kind, "resend" if kind == "strict-monotonic" else "multi-unconfirmed"])
    known = (3 << 20) + 4711
    taken: list[int] = []
    for chance in (17, 18):
        life = (1 << 20) + chance
        layers = parse_layers(wire.layers)
        sender = SenderStack(wire.pipe, layers, rng=random.Random(1), life_hint=life, reverse=True)
        sender.wake(wire.now)
        sender.send([b"a"], wire.now)
        sender.frame(refused(life, known), wire.now)
        ((epoch, _),) = sender.unconfirmed()
        taken.append(epoch)
    assert known < taken[0] < taken[1]


def test_a_life_refused_after_an_answer_stops() -> None:
    """L-7: a newer sender is alive; this one names what is unconfirmed and rejects from then on."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1)
    wire.run()
    wire.send(2, 3)
    epoch = epoch_of(wire)
    wire.arrive_back(refused(epoch, epoch + 1))
    notices = [(n.kind, n.epoch, n.ranges) for _, n in wire.notices]
    assert notices == [(NoticeKind.FENCED, epoch, ((2, 3),))]
    wire.send(4)
    assert [r.reason for r in wire.rejected] == [RejectReason.STOPPED]


@pytest.mark.parametrize("reason", [RefusedReason.STACK, RefusedReason.VERSION])
def test_a_sender_that_does_not_fit_its_receiver_stops(reason: RefusedReason) -> None:
    """F-5: the other end has another stack."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1)
    wire.arrive_back(refused(epoch_of(wire), 1, reason))
    assert wire.kinds_noticed() == [NoticeKind.MISMATCH]
    assert wire.sender.room == 0


def test_answers_that_make_no_sense_change_nothing() -> None:
    """P-8: another epoch, a lower `known`, an Unknown with a link, kinds of other pipes."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1)
    epoch = epoch_of(wire)
    sent = list(wire.sent)
    wire.arrive_back(refused(epoch - 1, epoch + 5))
    wire.arrive_back(refused(epoch, epoch))
    wire.arrive_back(Unknown(PIPE, 0, 7, 1))
    assert counted(wire) == {"stale_epoch": 1, "impossible": 1, "unknown_link": 1}
    strict = Wire("strict-monotonic")
    strict.arrive_back(Unknown(PIPE, 0, 0, 1))
    assert counted(strict) == {"wrong_state": 1}
    assert wire.sent == sent
    wire.run()
    assert wire.settled == [1]


def test_two_senders_alive_end_with_the_newer_one() -> None:
    """L-7, sender-zombie: the older is told at its next message; what only it has is not delivered."""
    old = Wire(["continuous-index", "multi-unconfirmed"])
    old.send(1)
    old.run()
    new = Wire(["continuous-index", "multi-unconfirmed"], seed=2)
    new.crash_sender()  # a second life
    new.send(1)
    new.receiver, old.receiver = old.receiver, new.receiver
    new.run()
    old.receiver = new.receiver
    old.send(2)
    old.run(until_us=10 * SECOND)
    assert NoticeKind.FENCED in old.kinds_noticed()
    assert new.settled == [1]
    assert old.settled == [1]


def test_stack_lives_a_replaced_sender_whose_outer_layer_was_answered_stops() -> None:
    """L-7: strict-monotonic inside never gets an answer; resend got one, so this sender was served."""
    wire = Wire(["resend", "strict-monotonic"])
    wire.send(1)
    wire.exchange()
    old, replaced = wire.sender, epoch_of(wire)
    wire.crash_sender()
    wire.send(2)
    wire.exchange()
    assert wire.settled == [1, 2]
    old.send([b"3"], wire.now)
    newer = epoch_of(wire)
    refusal = Refused(PIPE, 1, 0, replaced, RefusedReason.FENCED, newer)
    effects = old.frame(refusal, wire.now)
    assert [e.kind for e in effects if isinstance(e, Notice)] == [NoticeKind.FENCED]
    assert not [e for e in effects if isinstance(e, Renumbered | Transmit)]
    assert old.stopped


def test_stack_lives_a_sender_that_no_layer_was_answered_in_takes_a_higher_number() -> None:
    """L-7: the clock went back, and the inner layer is refused before resend has any answer."""
    wire = Wire(["resend", "strict-monotonic"])
    wire.send(1)
    former = epoch_of(wire)
    wire.drop_all()
    wire.arrive_back(Refused(PIPE, 1, 0, former, RefusedReason.FENCED, former + 100))
    assert epoch_of(wire) == former + 101
    wire.run()
    assert wire.settled == [1]


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_an_inner_index_pipe_starts_a_new_life_with_its_stack(kind: str) -> None:
    """K-5: under a retry pipe (al15); the sender restarts twice, nothing new is taken for old."""
    wire = Wire(["resend", kind])
    wire.send(1, 2)
    wire.run(Faults(loss=0.2), until_us=100 * SECOND)
    for number in (3, 4):
        wire.crash_sender()
        wire.send(number)
        wire.run(Faults(loss=0.2), until_us=wire.now + 200 * SECOND)
    assert set(wire.settled) == {1, 2, 3, 4}
    assert wire.sender.idle


def test_renumbering_is_reported_once() -> None:
    """L-5, L-7: Renumbered names the old and the new place of everything that waited."""
    wire = Wire(["continuous-index", "multi-unconfirmed"])
    wire.send(1, 2)
    epoch = epoch_of(wire)
    effects = wire.sender.frame(refused(epoch, epoch + 7), wire.now)
    renumbered = [effect for effect in effects if isinstance(effect, Renumbered)]
    assert renumbered == [Renumbered(epoch, 1, 2, epoch + 8, 1)]
    assert wire.sender.unconfirmed() == [(epoch + 8, ((1, 2),))]
