"""The plumbing of a stack: who gets what, what is counted, one deadline, state, closing, misuse by the host."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest

from surepipe.core.effects import (
    DeadLetter,
    Deliver,
    Effect,
    Reject,
    RejectReason,
    Transmit,
    WakeAt,
    WriteFailed,
    WriteStored,
    WriteUnknown,
)
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.agreement import stack_digest
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack, composition
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.codec import decode, encode
from surepipe.pipes.wire.frames import (
    Confirm,
    Data,
    Frame,
    Nack,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    RefusedReason,
    Unknown,
    tag_of,
)
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.reliable_kit import DURABLE

TAG = tag_of("pipe")
TWO: list[LayerText] = ["continuous-index", "multi-unconfirmed"]
THREE: list[LayerText] = ["continuous-index", "strict-monotonic", "multi-unconfirmed"]


def sender(layers: object = "reliable", **more: object) -> SenderStack:
    """A sender, not started."""
    parsed = parse_layers(layers)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return SenderStack("pipe", parsed, rng=random.Random(1), life_hint=1 << 20, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def receiver(layers: object = "reliable", **more: object) -> ReceiverStack:
    """A receiver, not started."""
    parsed = parse_layers(layers)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return ReceiverStack("pipe", parsed, rng=random.Random(1), **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def touched(end: SenderStack | ReceiverStack, act: Callable[[], object]) -> dict[str, int]:
    """The counters that an act changed, and by how much."""
    before = end.counters()
    act()
    after = end.counters()
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


# Construction.


def test_a_stack_needs_a_layer() -> None:
    """Neither end is built of nothing."""
    rng = random.Random(1)
    for build in (
        lambda: SenderStack("pipe", (), rng=rng, life_hint=1),
        lambda: ReceiverStack("pipe", (), rng=rng),
    ):
        with pytest.raises(ConfigurationError, match="pipe 'pipe' has no layers"):
            build()


@pytest.mark.parametrize("build", [sender, receiver])
@pytest.mark.parametrize("number", [1, 2])
def test_only_the_outermost_layer_may_give_messages_up(
    build: Callable[[object], object], number: int
) -> None:
    """T-10: what an inner layer gave up would be a hole that nobody above knows of; both ends say where it is."""
    layers: list[LayerText] = ["resend", "resend", "resend"]
    layers[number] = {"multi-unconfirmed": {"give_up_after_s": 5.0}}
    with pytest.raises(ConfigurationError) as raised:
        build(layers)
    assert str(raised.value) == (
        f"layer {number} (multi-unconfirmed): option 'give_up_after_s' is 5.0, but only the outermost layer "
        "may give messages up; set it on resend or remove it"
    )
    layers = [{"multi-unconfirmed": {"give_up_after_s": 5.0}}, "resend"]
    build(layers)


def test_boundary_before_needs_a_place_for_the_cursor() -> None:
    """K-3: without one it would promise what it can't keep."""
    with pytest.raises(ConfigurationError, match="boundary 'before' stores the cursor first"):
        receiver(boundary=BoundaryOptions(boundary=Boundary.BEFORE))


def test_the_printed_form_is_the_composition_with_the_options_that_were_given() -> None:
    """K-9: outermost layer first."""
    layers = ["continuous-index", {"multi-unconfirmed": {"window": 512}}]
    assert str(sender(layers)) == "continuous-index > multi-unconfirmed(window=512)"
    assert composition(parse_layers("reliable")) == "reliable"


def test_the_digest_tells_order_from_what_does_not_matter() -> None:
    """F-3: kinds, their order and the options of order; a window may differ between the ends."""

    def digest(*layers: LayerText) -> int:
        return stack_digest(parse_layers(list(layers)))

    assert digest(*TWO) == digest("continuous-index", {"multi-unconfirmed": {"window": 5}})
    different = [
        digest(*TWO),
        digest(*reversed(TWO)),
        digest(*TWO[:1]),
        digest({"continuous-index": {"repeats": "last"}}, TWO[1]),
    ]
    assert len(set(different)) == len(different)


# Routing.


def test_each_layer_wraps_the_one_above_and_only_the_innermost_is_on_the_route() -> None:
    """K-1: a message of layer 2 is a frame of layer 1, whose message is a frame of layer 0."""
    wire = Wire(THREE)
    wire.send(b"payload")
    (outer,) = wire.sent
    depth = 2
    frame: Frame = outer
    while depth:
        assert isinstance(frame, Data | Numbered)
        assert (frame.pipe, frame.layer) == (TAG, depth)
        (inside,) = frame.payloads
        decoded = decode(inside)
        assert isinstance(decoded, Data | Numbered)
        frame, depth = decoded, depth - 1
    assert isinstance(frame, Numbered)
    assert (frame.layer, list(frame.payloads)) == (0, [b"payload"])


def test_control_frames_of_every_layer_are_on_the_raw_route() -> None:
    """K-4: Unknown of layer 0 goes back bare, and its Open comes bare, although layer 1 carries the data."""
    wire = Wire(TWO)
    wire.send(1)
    wire.run()
    wire.crash_receiver()
    wire.send(2)
    wire.run()
    assert [frame.layer for frame in wire.sent_back if isinstance(frame, Unknown)] == [0]
    assert [frame.layer for frame in wire.sent if isinstance(frame, Open)] == [0]
    assert wire.settled == [1, 2]


def test_a_data_frame_of_an_outer_layer_means_nothing_on_the_raw_route() -> None:
    """K-4, P-8: it would pass the layers that order and repeat it."""
    end = receiver(TWO)
    end.wake(0)
    frame = Numbered(TAG, 0, 1 << 20, 1, (b"x",))
    assert touched(end, lambda: end.frame(frame, 0)) == {"wrong_state": 1}


@pytest.mark.parametrize(
    "inside",
    [
        b"no frame",
        encode(Numbered(TAG + 1, 0, 1 << 20, 1, (b"x",))),
        encode(Numbered(TAG, 1, 1 << 20, 1, (b"x",))),
        encode(Probe(TAG, 0, 1, 1 << 20, 1, 1)),
    ],
    ids=["malformed", "foreign", "another layer's", "control"],
)
def test_a_message_of_the_carrier_that_is_no_frame_of_the_layer_above_is_refused(
    inside: bytes,
) -> None:
    """K-2, P-7: counted once, never confirmed: it is not ours to settle."""
    end = receiver(TWO)
    end.wake(0)
    data = Data(TAG, 1, 1, 1 << 20, 1, 1, 1, True, (inside,))
    counted = touched(end, lambda: end.frame(data, 0))
    assert sum(counted.values()) == 1
    assert end.layers[1].gauges()["in_work"] == 0
    confirms = [e.frame for e in end.wake(SECOND) if isinstance(e, Transmit)]
    assert all(isinstance(f, Confirm) and not f.cum and not f.done for f in confirms)


# Counters: one per ignored frame.

FORWARD: list[Frame] = [
    Numbered(TAG, 0, 1, 1, (b"x",)),
    Data(TAG, 0, 1, 1, 1, 1, 1, True, (b"x",)),
    Probe(TAG, 0, 1, 1, 1, 1),
    Open(TAG, 0, 1, 1, 1, 1, 1, 1),
]
BACKWARD: list[Frame] = [
    Confirm(TAG, 0, 1, 1, 1, 0, (), (), 0, 0),
    Nack(TAG, 0, 1, 1, 1, ((1, 1),)),
    Opened(TAG, 0, 1, 1, 1, 1, 0, 0, False),
    Unknown(TAG, 0, 1, 1),
    Refused(TAG, 0, 1, 1, RefusedReason.FENCED, 1),
]


@pytest.mark.parametrize("frame", FORWARD, ids=lambda f: type(f).__name__)
def test_a_sender_counts_a_frame_of_its_own_direction(frame: Frame) -> None:
    """P-8: a route that reflects what it gets."""
    end = sender()
    end.wake(0)
    assert touched(end, lambda: end.frame(frame, 0)) == {"wrong_state": 1}


@pytest.mark.parametrize("frame", BACKWARD, ids=lambda f: type(f).__name__)
def test_a_receiver_counts_a_frame_of_its_own_direction(frame: Frame) -> None:
    """P-8: the same from the other side."""
    end = receiver()
    end.wake(0)
    assert touched(end, lambda: end.frame(frame, 0)) == {"wrong_state": 1}


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, decode])
def test_frames_come_as_objects_or_as_any_bytes(form: Callable[[bytes], object]) -> None:
    """F-4: whatever holds the bytes, the frame is the same."""
    end = receiver("strict-monotonic")
    end.wake(0)
    effects = end.frame(form(encode(Numbered(TAG, 0, 5, 1, (b"x",)))), 0)
    (delivery,) = (e for e in effects if isinstance(e, Deliver))
    assert (delivery.epoch, list(delivery.payloads)) == (5, [b"x"])


def test_what_is_no_frame_of_this_pipe_is_counted_once_at_both_ends() -> None:
    """P-8: bytes, another version, objects, another pipe's tag, a layer that is not here."""
    version = bytearray(encode(FORWARD[0]))
    version[2] += 1
    for end in (sender(), receiver()):
        end.wake(0)
        for what, name in (
            (b"", "malformed"),
            (bytes(version), "version"),
            (object(), "malformed"),
            (None, "malformed"),
            (Numbered(TAG + 1, 0, 1, 1, (b"x",)), "foreign"),
            (Numbered(TAG, 1, 1, 1, (b"x",)), "wrong_state"),
            (Confirm(TAG, 7, 1, 1, 1, 0, (), (), 0, 0), "wrong_state"),
        ):
            assert touched(end, lambda what=what, end=end: end.frame(what, 0)) == {name: 1}  # type: ignore[misc]


def test_frames_before_the_start_and_after_the_end_are_counted() -> None:
    """P-8: before the first wake no layer acts; a closed receiver takes nothing new."""
    for end, frame in ((sender(), BACKWARD[3]), (receiver(), FORWARD[1])):
        assert touched(end, lambda end=end, frame=frame: end.frame(frame, 0)) == {"wrong_state": 1}  # type: ignore[misc]
    end = receiver()
    end.wake(0)
    end.close(1)
    assert touched(end, lambda: end.frame(FORWARD[1], 2)) == {"wrong_state": 1}


def test_a_second_answer_is_counted_and_changes_nothing() -> None:
    """P-3: settled, failed, refused and answers to tickets that are unknown or answered in full."""
    wire = Wire("strict-monotonic", auto_settle=False)
    wire.send(1)
    wire.transfer()
    (ticket,) = wire.open
    end = wire.receiver
    wire.settle()
    error = ("ValueError", "")
    acts: list[Callable[[], object]] = [
        lambda: end.settled(ticket, ((1, 1),), 0),
        lambda: end.failed(ticket, 1, error, 0),
        lambda: end.refused(ticket, ((1, 1),), 0),
        lambda: end.answer(99, WriteStored(), 0),
    ]
    for act in acts:
        assert touched(end, act) == {"late_answer": 1}
    assert touched(wire.sender, lambda: wire.sender.answer(99, WriteStored(), 0)) == {
        "late_answer": 1
    }


def test_a_message_of_an_open_ticket_is_answered_once() -> None:
    """P-3: the others of its delivery are still awaited."""
    wire = Wire("strict-monotonic", auto_settle=False)
    wire.send(1, 2, 3)
    wire.transfer()
    (ticket,) = wire.open
    end = wire.receiver
    assert touched(end, lambda: end.settled(ticket, ((1, 1),), 0)) == {"settled": 1}
    assert touched(end, lambda: end.settled(ticket, ((1, 1),), 0)) == {"late_answer": 1}
    assert touched(end, lambda: end.failed(ticket, 1, ("E", ""), 0)) == {"late_answer": 1}
    assert touched(end, lambda: end.refused(ticket, (), 0)) == {"late_answer": 1}
    assert touched(end, lambda: end.settled(ticket, ((1, 3),), 0)) == {"settled": 2}
    assert end.idle


# The deadline.


@pytest.mark.parametrize("layers", ["resend", "reliable", TWO, THREE], ids=str)
def test_one_deadline_is_armed_and_only_a_change_of_it_is_told(layers: object) -> None:
    """P-4: at most one WakeAt a step, never the one that is armed already, and after a wake it is armed anew."""
    wire = Wire(layers)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wire.send(1)
    wire.drop_all()
    end = wire.sender
    armed = wire.deadline["sender"]
    assert armed is not None
    for now in range(wire.now, armed + 2 * SECOND, 50 * MS):
        effects = end.wake(now)
        told = [effect for effect in effects if isinstance(effect, WakeAt)]
        assert len(told) <= 1
        if told:
            armed = told[0].deadline
        assert armed is not None
        assert armed > now, "a deadline that has passed would be a busy loop"
        again = end.frame(b"", now)
        assert again == [], "nothing changed, nothing is told"


def test_early_and_repeated_wakes_are_harmless() -> None:
    """P-4: a thousand wakes before the deadline transmit nothing."""
    wire = Wire(TWO)
    wire.send(1)
    wire.drop_all()
    sent: list[Effect] = []
    for now in range(1000):
        sent += wire.sender.wake(now)
        sent += wire.receiver.wake(now)
    assert not [effect for effect in sent if isinstance(effect, Transmit)]


def test_time_that_goes_back_is_the_hosts_mistake() -> None:
    """P-2: every input of both machines says so, and nothing has moved."""
    wire = Wire("reliable", auto_settle=False)
    wire.send(1)
    wire.exchange()
    wire.advance(SECOND)
    (ticket,) = wire.open
    out, back = wire.sender, wire.receiver
    acts: list[Callable[[], object]] = [
        lambda: out.send([b"x"], 0),
        lambda: out.frame(b"", 0),
        lambda: out.wake(0),
        lambda: out.answer(1, WriteStored(), 0),
        lambda: out.close(0),
        lambda: back.frame(b"", 0),
        lambda: back.wake(0),
        lambda: back.answer(1, WriteStored(), 0),
        lambda: back.settled(ticket, ((1, 1),), 0),
        lambda: back.failed(ticket, 1, ("E", ""), 0),
        lambda: back.refused(ticket, ((1, 1),), 0),
        lambda: back.close(0),
    ]
    out.wake(wire.now)
    back.wake(wire.now)
    before = (out.export(), back.export())
    for act in acts:
        with pytest.raises(MisuseError, match="time went back"):
            act()
    assert (out.export(), back.export()) == before


def test_the_state_of_an_unknown_ticket_is_not_there_to_commit() -> None:
    """K-3: a host that asks for it would store a cursor for an effect that nobody delivered."""
    with pytest.raises(MisuseError, match="ticket 7 is not open"):
        receiver().state_after(7, 1)


# State.


@pytest.mark.parametrize(
    "layers", ["resend", "multi-unconfirmed", "sequential-confirm", TWO, THREE, "reliable"], ids=str
)
def test_both_ends_go_on_from_an_exported_state_with_the_same_effects(layers: object) -> None:
    """P-11, P-12: each end is moved into a fresh machine at every 7th step of a bad run: same D, frames, times."""

    def run(every: int) -> Wire:
        boundary = BoundaryOptions(retries=2, dead_letters=True)
        wire = Wire(layers, seed=3, boundary=boundary)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        steps = 0

        def exchange_machines() -> None:
            nonlocal steps
            steps += 1
            if every and steps % every == 0:
                wire.sender = cast("SenderStack", moved(wire.sender, sender(layers)))
                wire.receiver = cast(
                    "ReceiverStack", moved(wire.receiver, receiver(layers, boundary=boundary))
                )

        for n in range(60):
            wire.send(n)
        wire.run(
            Faults(loss=0.2, duplication=0.1, delay_us=(1 * MS, 80 * MS), fifo=False),
            each_step=exchange_machines,
        )
        return wire

    plain, moving = run(0), run(7)
    assert moving.settled == plain.settled
    assert moving.sent == plain.sent
    assert moving.sent_back == plain.sent_back
    assert moving.times == plain.times
    assert moving.sender.counters() == plain.sender.counters()


def moved(old: SenderStack | ReceiverStack, new: SenderStack | ReceiverStack) -> object:
    """The state of one machine in another, which draws from the same generator."""
    new.restore(old.export())
    assert new.export() == old.export()
    new.rng = old.rng
    parts = (
        [*new.layers, new.delivery] if isinstance(new, ReceiverStack) else [*new.layers, new.intake]
    )
    for part in parts:
        if hasattr(part, "rng"):
            setattr(part, "rng", old.rng)  # noqa: B010 - not every part has one
    return new


def test_letters_and_retries_under_way_survive_an_export() -> None:
    """P-11: a failed message that waits, a letter nobody stored yet, and a cursor that is being stored."""
    boundary = BoundaryOptions(retries=2, dead_letters=True, durable=True)
    wire = Wire("dedupe", boundary=boundary, auto_settle=False, auto_answer=False)
    wire.send(1, 2, 3)
    wire.transfer()
    wire.fail(2)
    wire.settle()
    wire.advance(SECOND)
    wire.fail(2)
    other = receiver("dedupe", boundary=boundary)
    moved(wire.receiver, other)
    wire.receiver = other
    while wire.unanswered:
        wire.answer(*wire.unanswered.pop(0))
    assert [letter.seq for letter in wire.letters] == [2]
    assert other.counters()["dead_lettered"] == 1
    assert other.idle


# Given up messages.


def given_up() -> tuple[SenderStack, int, int, list[DeadLetter]]:
    """A sender whose only message was just given up: the machine, the time, its deadline, the letters."""
    end = sender({"multi-unconfirmed": {"give_up_after_s": 5.0, "jitter": 0.0}})
    now, deadline = 0, 0
    effects = [*end.wake(0), *end.send([b"1", b"2"], 0)]
    letters: list[DeadLetter] = []
    while not letters:
        deadline = next(e.deadline or 0 for e in reversed(effects) if isinstance(e, WakeAt))
        now = deadline
        effects = end.wake(now)
        letters = [e for e in effects if isinstance(e, DeadLetter)]
    return end, now, deadline, letters


@pytest.mark.parametrize("outcome", [WriteUnknown(), WriteFailed("full")])
def test_a_letter_that_was_not_stored_is_written_again_until_it_is(outcome: object) -> None:
    """T-10, D-4, P-6: never silently: under the same ticket, with backoff; the sender is not idle until then."""
    end, now, _, letters = given_up()
    assert [letter.letter.seq for letter in letters] == [1, 2]
    end.answer(letters[1].ticket, WriteStored(), now)
    waits: list[int] = []
    for _ in range(8):
        assert not end.idle
        (armed,) = (
            e.deadline for e in end.answer(letters[0].ticket, outcome, now) if isinstance(e, WakeAt)
        )
        assert armed is not None
        assert not [e for e in end.wake(armed - 1) if isinstance(e, DeadLetter)]
        waits.append(armed - now)
        now = armed
        assert [e for e in end.wake(now) if isinstance(e, DeadLetter)] == [letters[0]]
        assert not [e for e in end.wake(now) if isinstance(e, DeadLetter)]
    assert waits == [SECOND * 2**n for n in range(5)] + [30 * SECOND] * 3
    end.answer(letters[0].ticket, WriteStored(), now)
    assert end.idle
    assert touched(end, lambda: end.answer(letters[0].ticket, WriteStored(), now)) == {
        "late_answer": 1
    }


def test_a_letter_stored_after_all_is_not_written_again() -> None:
    """P-3: unknown at first, then the true outcome comes: that is the answer."""
    end, now, _, letters = given_up()
    end.answer(letters[0].ticket, WriteUnknown(), now)
    assert touched(end, lambda: end.answer(letters[0].ticket, WriteUnknown(), now)) == {
        "late_answer": 1
    }
    for letter in letters:
        end.answer(letter.ticket, WriteStored(), now)
    assert end.idle
    assert not [e for e in end.wake(now + 3600 * SECOND) if isinstance(e, DeadLetter)]


def test_letters_under_way_survive_an_export() -> None:
    """P-11: the restored sender writes again what was not stored."""
    end, now, _, letters = given_up()
    end.answer(letters[0].ticket, WriteUnknown(), now)
    other = sender({"multi-unconfirmed": {"give_up_after_s": 5.0, "jitter": 0.0}})
    moved(end, other)
    assert end.wake(now + SECOND) == other.wake(now + SECOND)
    assert not other.idle


# Closing.


def test_a_closed_sender_takes_nothing_and_finishes_what_it_has() -> None:
    """P-15: rejected with the reason; what was accepted is sent again until it is confirmed."""
    wire = Wire(TWO)
    wire.send(1, 2)
    wire.drop_all()
    wire.close_sender()
    assert (wire.sender.room, wire.sender.room_bytes) == (0, 0)
    wire.send(3)
    assert wire.rejected == [Reject(RejectReason.CLOSED, 1)]
    assert not wire.sender.idle
    wire.run()
    assert wire.settled == [1, 2]
    assert wire.sender.idle


@pytest.mark.parametrize(
    "layers", ["resend", "multi-unconfirmed", "sequential-confirm", "reliable", TWO, THREE], ids=str
)
def test_a_closed_receiver_confirms_what_was_in_work_and_nothing_else(layers: object) -> None:
    """P-15: the confirm goes out in the step that settles, without waiting; what waited comes to the next one."""
    wire = Wire(layers, auto_settle=False, boundary=BoundaryOptions(deliver_max=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    wire.send(1)
    wire.send(2)
    wire.exchange()
    open_now = len(wire.open)
    wire.close_receiver()
    wire.exchange()
    assert wire.confirmed == set()
    for _ in range(open_now):
        wire.settle()
    wire.exchange()
    assert wire.receiver.idle
    assert wire.confirmed == set(wire.settled)
    wire.crash_receiver()
    wire.auto_settle = True
    for delivery in list(wire.open):
        del wire.open[delivery]
    wire.run()
    assert wire.confirmed == {1, 2}
    assert set(wire.settled) == {1, 2}


def test_a_closed_receiver_still_stores_the_cursor_behind_its_last_message() -> None:
    """P-15, P-7: durable: settled after close, confirmed once the state is stored."""
    wire = Wire("reliable", boundary=DURABLE, auto_settle=False, auto_answer=False)
    wire.send(1)
    wire.exchange()
    wire.close_receiver()
    wire.settle()
    wire.exchange()
    end = wire.receiver
    assert (end.idle, wire.confirmed) == (False, set())
    wire.answer(*wire.unanswered.pop(0))
    wire.exchange()
    assert (end.idle, len(wire.delivered)) == (True, 1)
    assert wire.confirmed == {1}


# Sizes.


@pytest.mark.parametrize(
    "layers",
    [
        ["continuous-index", "reliable"],
        ["continuous-index", "strict-monotonic", "resend"],
        ["resend", "reliable", "multi-unconfirmed"],
    ],
    ids=str,
)
def test_the_largest_message_passes_through_every_layer(layers: list[LayerText]) -> None:
    """P-9: message_max_bytes is what the application may send; what the layers add is not counted against it.
    A byte more is rejected; small ones around it pass in order, over loss."""
    wire = Wire(layers)
    size = 1024 * 1024
    wire.send(b"a", bytes(size), b"b", bytes(size), b"c")
    wire.send(bytes(size + 1))
    assert wire.rejected == [Reject(RejectReason.TOO_LARGE, 1)]
    wire.run(Faults(loss=0.3))
    assert sorted(set(wire.settled)) == [1, 2, 3, 4, 5]
    assert wire.confirmed == {1, 2, 3, 4, 5}


def test_a_message_larger_than_every_bound_in_bytes_passes_alone() -> None:
    """P-9: windows and frames of 1,000 bytes, messages of 5,000: one at a time instead of never."""
    small = {"run_max": 4, "frame_max_bytes": 1_000}
    layers: list[LayerText] = [
        {"continuous-index": {**small, "receive_window_bytes": 1_000}},
        {"multi-unconfirmed": {**small, "window_bytes": 1_000, "receive_window_bytes": 1_000}},
    ]
    wire = Wire(layers)
    for n in range(6):
        wire.send(bytes([n]) * 5_000)
        wire.run(Faults(loss=0.2))
    assert wire.settled == list(range(1, len(wire.accepted) + 1))
    assert len(wire.accepted) == 6
