"""What all receiving halves of the index pipes do: answers to the carrier, epochs that end (K-2, L-9)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from surepipe.core.effects import Deliver, Effect, NoticeKind, Transmit
from surepipe.core.store_requests import ProducerOpened, Stored
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.kinds.index import IndexReceiver
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.codec import encode
from surepipe.pipes.wire.frames import Confirm, Data, Numbered, Open, tag_of
from tests.kit.runs import counted
from tests.kit.stream_wire import StreamWire
from tests.kit.wire import MS, SECOND, Wire

INDEX_KINDS = ("strict-monotonic", "continuous-index", "dedupe")
PIPE = tag_of("pipe")
every_kind = pytest.mark.parametrize("kind", INDEX_KINDS)


def carrier_confirms(wire: Wire) -> dict[int, set[int]]:
    """The carrier's messages that its receiver has confirmed, by the carrier's epoch."""
    confirmed: dict[int, set[int]] = {}
    for frame in wire.sent_back:
        if isinstance(frame, Confirm):
            numbers = confirmed.setdefault(frame.epoch, set())
            numbers |= set(range(1, frame.cum + 1))
            numbers |= {n for a, b in frame.done for n in range(a, b + 1)}
    return confirmed


def carrier_in_work(wire: Wire) -> int:
    """Messages that the carrier's receiver awaits an answer for."""
    return wire.receiver.layers[1].gauges()["in_work"]


def stack_of(kind: str) -> list[LayerText]:
    """An index pipe over a carrier that confirms."""
    return [kind, "multi-unconfirmed"]


def life_with_one_in_work(kind: str) -> Wire:
    """The first life's message is in work when the second life's arrives."""
    wire = Wire(stack_of(kind), auto_settle=False)
    wire.send(1)
    wire.transfer()
    wire.drop_all()
    wire.crash_sender()
    wire.send(2)
    wire.transfer()
    return wire


@every_kind
def test_a_copy_under_another_number_of_the_carrier_waits_for_the_message_in_work(
    kind: str,
) -> None:
    """K-2: settled at once it would be confirmed, and lost if the receiver ended before its handler returned."""
    receiver = ReceiverStack("pipe", parse_layers(stack_of(kind)), rng=random.Random(1))
    effects = receiver.wake(0)
    inner = encode(Numbered(PIPE, 0, 1, 1, [b"a"]))
    for number in (1, 2):
        effects += receiver.frame(Data(PIPE, 1, 7, 1, number, 1, number, True, [inner]), 0)
    effects += receiver.wake(SECOND)
    [delivered] = [effect for effect in effects if isinstance(effect, Deliver)]
    assert confirmed_by(effects) == set()
    after = receiver.settled(delivered.ticket, ((1, 1),), SECOND)
    after += receiver.wake(2 * SECOND)
    assert confirmed_by(after) == {1, 2}


def confirmed_by(effects: list[Effect]) -> set[int]:
    """The carrier's messages that its receiver says are settled."""
    frames = [effect.frame for effect in effects if isinstance(effect, Transmit)]
    confirms = [frame for frame in frames if isinstance(frame, Confirm)]
    below = {number for frame in confirms for number in range(1, frame.cum + 1)}
    return below | {n for frame in confirms for a, b in frame.done for n in range(a, b + 1)}


@every_kind
def test_carrier_messages_of_a_former_epoch_are_settled_when_theirs_is(kind: str) -> None:
    """K-2, L-9: the sender died with its message in work; the handler returns after all."""
    wire = life_with_one_in_work(kind)
    assert carrier_in_work(wire) == 2
    wire.settle()
    assert carrier_in_work(wire) == 1
    wire.settle()
    assert carrier_in_work(wire) == 0
    wire.advance(50 * MS)
    assert list(carrier_confirms(wire).values()) == [{1}, {1}]
    assert wire.settled == [1, 2]


@every_kind
def test_a_run_of_a_former_epoch_may_be_answered_in_parts(kind: str) -> None:
    """K-2, L-9: of 1..2 first 1 is settled: its carrier message waits for 2, and is not forgotten."""
    wire = Wire(stack_of(kind), auto_settle=False)
    wire.send(1, 2)
    wire.transfer()
    wire.drop_all()
    wire.crash_sender()
    wire.send(3)
    wire.transfer()
    wire.settle(1)
    assert carrier_in_work(wire) == 2
    wire.settle()
    assert carrier_in_work(wire) == 1
    wire.settle()
    assert carrier_in_work(wire) == 0
    assert wire.settled == [1, 2, 3]
    assert wire.receiver.gauges()["in_work"] == 0


def test_what_was_settled_first_is_stored_and_answered_first() -> None:
    """P-7, L-9: 1, 2 and the next life's 3 are settled while the state behind 1 is stored: then that of 2."""
    wire = Wire(
        stack_of("strict-monotonic"),
        boundary=BoundaryOptions(durable=True),
        auto_settle=False,
        auto_answer=False,
    )
    wire.send(1)
    wire.send(2)
    wire.transfer()
    wire.drop_all()
    wire.crash_sender()
    wire.send(3)
    wire.transfer()
    while wire.open:
        wire.settle()
    for confirmed in ([{1}, set[int]()], [{1, 2}, set[int]()], [{1, 2}, {1}]):
        wire.answer(*wire.unanswered.pop(0))
        wire.advance(50 * MS)
        assert list(carrier_confirms(wire).values()) == confirmed


@every_kind
def test_carrier_messages_of_a_former_epoch_are_refused_when_theirs_is(kind: str) -> None:
    """K-2: the host gives the former life's message back; nobody will bring it, nothing is confirmed."""
    wire = life_with_one_in_work(kind)
    wire.refuse(1)
    wire.auto_settle = True
    while wire.open:
        wire.settle()
    wire.run(until_us=60 * SECOND)
    assert set(wire.settled) == {2}
    assert carrier_in_work(wire) == 0
    index = wire.receiver.layers[0]
    assert isinstance(index, IndexReceiver)
    assert not index.former
    assert wire.receiver.gauges()["in_work"] == 0


@pytest.mark.parametrize("is_fresh", [True, False])
def test_what_was_held_of_a_former_epoch_is_refused(is_fresh: bool) -> None:
    """L-9: message 2 or 3 of the dead life is held; its carrier message must not wait for ever."""
    wire = Wire(stack_of("continuous-index"))
    if not is_fresh:
        wire.send(0)
        wire.exchange()
    wire.send(1)
    wire.send(2)
    wire.drop()
    wire.transfer()
    assert carrier_in_work(wire) == 1
    wire.crash_sender()
    wire.send(3)
    wire.transfer()
    assert counted(wire)["abandoned"] == 1
    assert carrier_in_work(wire) == 0


@every_kind
def test_what_the_carrier_brings_of_a_lower_epoch_is_refused(kind: str) -> None:
    """K-2: not confirmed, so that its sender, if it lives, learns that it is fenced."""
    wire = Wire(stack_of(kind))
    wire.send(1)
    late = wire.drop()
    wire.crash_sender()
    wire.send(2)
    wire.exchange()
    wire.arrive(late)
    wire.advance(50 * MS)
    assert counted(wire)["stale_epoch"] == 1
    assert carrier_in_work(wire) == 0
    assert isinstance(late, Data)
    assert carrier_confirms(wire).get(late.epoch, set()) == set()


@pytest.mark.parametrize("kind", INDEX_KINDS)
def test_a_stream_can_bring_nothing_again_so_a_lower_epoch_is_settled(kind: str) -> None:
    """K-2: a message of a former life out of a stream: skipped with Notice(Fenced) and its range."""
    wire = StreamWire([kind, {"stream": {"start": "earliest"}}])
    wire.send("a", "b")
    wire.run(lambda: wire.settled == [1, 2])
    stale = encode(Numbered(PIPE, 0, 5, 3, [b"x", b"y"]))
    assert isinstance(wire.store.open_producer("pipe", "another", 1, 1), ProducerOpened)
    assert isinstance(wire.store.append("pipe", "another", 1, 1, [stale]), Stored)
    wire.send("c")
    wire.run(lambda: wire.settled == [1, 2, 3])
    fenced = [n for n in wire.receiver.notices if n.kind is NoticeKind.FENCED]
    assert [(n.epoch, n.ranges) for n in fenced] == [(5, ((3, 4),))]


@every_kind
def test_under_a_layer_that_sends_again_carrier_messages_are_answered_on_arrival(kind: str) -> None:
    """K-2: its own sender keeps them until they are confirmed above, so no carrier has to wait."""
    wire = Wire(["multi-unconfirmed", kind, "multi-unconfirmed"], auto_settle=False)
    wire.send(1)
    wire.send(2)
    wire.transfer()
    assert len(wire.open) == 2
    assert wire.receiver.layers[2].gauges()["in_work"] == 0
    assert wire.receiver.layers[0].gauges()["in_work"] == 2


def test_each_carrier_message_is_answered_when_its_own_run_is_settled() -> None:
    """K-2 under dedupe: the second message is settled first, and its carrier message answered first."""
    wire = Wire(["dedupe", "multi-unconfirmed"], auto_settle=False)
    wire.send(1)
    wire.send(2)
    wire.transfer()
    first, second = wire.open.values()
    for delivery, left in ((second, 1), (first, 0)):
        assert wire.receiver.layers[1].gauges()["in_work"] == left + 1
        ranges = ((delivery.first, delivery.first),)
        wire.receiver.settled(delivery.ticket, ranges, wire.now)
        assert wire.receiver.layers[1].gauges()["in_work"] == left


@every_kind
def test_a_data_frame_for_an_index_pipe_is_counted_and_refused(kind: str) -> None:
    """P-8: on the raw route, and as a message of the carrier, which must not wait for an answer."""
    data = Data(PIPE, 0, 1, 1, 1, 1, 1, True, [b"x"])
    wire = Wire(kind)
    wire.arrive(data)
    assert counted(wire) == {"wrong_state": 1}
    stack = Wire(stack_of(kind))
    stack.send(1)
    carried = stack.drop()
    assert isinstance(carried, Data)
    stack.arrive(replace(carried, payloads=[encode(data)]))
    assert counted(stack)["wrong_state"] == 1
    assert carrier_in_work(stack) == 0
    assert stack.settled == []


@every_kind
@pytest.mark.parametrize("layers", ["resend", "multi-unconfirmed"])
def test_a_stored_cursor_never_passes_what_is_in_work(kind: str, layers: str) -> None:
    """P-7, boundary `processed`: 1 of 3 is settled and stored, the receiver crashes: 2 and 3 come."""
    wire = Wire([kind, layers], boundary=BoundaryOptions(durable=True), auto_settle=False)
    wire.send(1, 2, 3)
    wire.transfer()
    wire.settle(1)
    wire.drop_all()
    wire.crash_receiver()
    wire.auto_settle = True
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1, 2, 3]
    assert wire.confirmed == {1, 2, 3}


def test_what_an_open_settles_is_answered_at_once() -> None:
    """8.5: a late copy reaches a restarted receiver; Open says that it is settled, so is the copy."""
    wire = Wire(stack_of("continuous-index"))
    for number in range(1, 4):
        wire.send(number)
    copy = wire.to_receiver[2]
    wire.run(until_us=10 * SECOND)
    wire.crash_receiver()
    wire.arrive(copy)
    assert carrier_in_work(wire) == 1
    opened = wire.receiver.layers[0]
    wire.transfer(0, back=len(wire.to_sender))
    wire.transfer(1)
    assert isinstance(wire.sent[-1], Open)
    assert opened.gauges() == {"held": 0, "in_work": 0}
    assert carrier_in_work(wire) == 0
    assert wire.settled == [1, 2, 3]
