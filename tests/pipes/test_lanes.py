"""Lanes at the boundary: order within a key, none across keys, and a failing message that holds up its own key."""

from __future__ import annotations

import pytest

from surepipe.core.effects import Key, NoticeKind, WriteStored, WriteUnknown
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.stack.lanes import AHEAD_MIN
from surepipe.pipes.wire.frames import Confirm
from tests.kit.wire import MS, SECOND
from tests.pipes.lanes_kit import ERROR, LANES, LETTERS, LaneWire

SMALL = {"reliable": {"window": 16, "backlog": 8, "run_max": 4}}


def test_messages_of_different_keys_are_in_work_at_once_and_those_of_one_key_are_not() -> None:
    """One delivery for each key, with its messages in order."""
    wire = LaneWire()
    wire.say("a:1", "b:1", "a:2", "c:1", "b:2")
    assert wire.open_keys() == ["a", "b", "c"]
    assert wire.delivery_of("a").payloads == [b"a:1", b"a:2"]
    assert wire.delivery_of("a").seqs == [1, 3]
    wire.say("a:3")
    assert wire.open_keys() == ["a", "b", "c"]
    wire.work("a")
    assert wire.delivery_of("a").payloads == [b"a:3"]


def test_a_message_that_fails_is_tried_again_and_holds_up_its_own_key_only() -> None:
    """a:2 fails once: a:1 is settled, b and c go on, a:2 comes back alone, a:3 after it (pipes D-1)."""
    wire = LaneWire()
    wire.poison[b"a:2"] = 1
    wire.say("a:1", "a:2", "a:3", "b:1")
    wire.work("a")
    wire.say("b:2", "c:1", "a:4")
    wire.work("b")
    wire.work("b")
    wire.work("c")
    assert not wire.open
    assert wire.texts() == ["a:1", "b:1", "b:2", "c:1"]
    wire.advance(200 * MS)
    again = wire.delivery_of("a")
    assert (again.payloads, again.attempt) == ([b"a:2"], 2)
    wire.work_all()
    assert wire.texts()[4:] == ["a:2", "a:3", "a:4"]


def test_what_is_due_again_goes_out_before_what_other_keys_have_waiting() -> None:
    """Many keys wait and every place is taken; what is due finds a place of its own."""
    wire = LaneWire()
    wire.say("poison:1", *(f"{number}:1" for number in range(AHEAD_MIN + 40)))
    wire.fail(1)
    places = len(wire.open)
    wire.advance(SECOND)
    assert wire.open_keys()[-1] == "poison"
    assert len(wire.open) == places + 1


def test_no_more_than_one_message_for_each_lane_is_tried_again_at_once() -> None:
    """Sixteen keys fail and are due together: three are out again, and other keys have all other places."""
    wire = LaneWire()
    failing = [str(number) for number in range(16)]
    wire.say(
        *(f"{key}:1" for key in failing), *(f"well-{number}:1" for number in range(AHEAD_MIN + 40))
    )
    for seq in range(1, 17):
        wire.fail(seq)
    assert not set(wire.open_keys()) & set(failing)
    wire.advance(SECOND)
    assert sum(key in failing for key in wire.open_keys()) == LANES.lanes
    assert sum(key not in failing for key in wire.open_keys()) == AHEAD_MIN


def test_a_failure_settles_what_stands_before_it_in_its_delivery() -> None:
    """a:1 and a:2 come in one delivery, and only a:2 is said to have failed: only a:2 comes again (pipes D-1)."""
    wire = LaneWire()
    wire.say("a:1", "a:2", "a:3")
    wire.fail_at("a", 2)
    wire.advance(200 * MS)
    assert wire.delivery_of("a").payloads == [b"a:2"]
    wire.exchange()
    assert wire.confirmed == {1}


def test_one_answer_for_messages_that_are_no_neighbours_settles_them_all() -> None:
    """Between a:1, a:2 and a:3 stand messages of other keys, which are settled later (pipes P-2)."""
    wire = LaneWire()
    wire.say("a:1", "b:1", "a:2", "c:1", "a:3")
    wire.settle_at_once("a")
    wire.work("b")
    wire.work("c")
    wire.advance(20 * MS)
    wire.exchange()
    assert wire.confirmed == {1, 2, 3, 4, 5}


def test_after_its_attempts_a_message_becomes_a_letter_and_then_its_key_goes_on() -> None:
    """The letter is stored before more of the key is delivered or confirmed; b never waits (pipes D-2, D-4)."""
    wire = LaneWire(boundary=LETTERS, auto_answer=False)
    wire.poison[b"a:1"] = -1
    wire.say("a:1", "a:2", "b:1")
    wire.work("a")
    wire.work("b")
    wire.advance(200 * MS)
    wire.work("a")
    assert [(letter.seq, letter.attempts) for letter in wire.letters] == [(1, 2)]
    wire.advance(50 * MS)
    wire.exchange()
    assert (wire.open, wire.confirmed) == ({}, set())
    side, ticket, _ = wire.unanswered.pop()
    wire.answer(side, ticket, WriteUnknown())
    wire.advance(SECOND)
    assert len(wire.letters) == 2, "written again"
    wire.answer(side, ticket, WriteStored())
    wire.work("a")
    wire.run()
    assert wire.texts() == ["b:1", "a:2"]
    assert wire.confirmed == {1, 2, 3}
    assert wire.receiver.counters()["dead_lettered"] == 1


def test_a_failure_for_good_becomes_a_letter_at_once() -> None:
    """An undecodable payload (pipes D-3)."""
    wire = LaneWire(boundary=LETTERS)
    wire.say("a:1", "a:2")
    wire.fail_for_good("a")
    assert [letter.seq for letter in wire.letters] == [1]
    assert wire.delivery_of("a").payloads == [b"a:2"]


# What is confirmed, and what a crash repeats.


def confirms(wire: LaneWire) -> list[Confirm]:
    """Every Confirm that the receiver sent."""
    return [frame for frame in wire.sent_back if isinstance(frame, Confirm)]


def test_the_cumulative_confirm_of_a_pipe_that_keeps_order_never_passes_an_unsettled_message() -> (
    None
):
    """1 is in work, 2..3 are settled: cum 0 and nothing above; then all (pipes P-7)."""
    wire = LaneWire()
    wire.say("a:1", "b:1", "c:1")
    wire.work_all("b", "c")
    wire.advance(100 * MS)
    wire.exchange()
    assert wire.confirmed == set()
    assert [(frame.cum, frame.done) for frame in confirms(wire)] == [(0, ())] * len(confirms(wire))
    wire.work("a")
    wire.run()
    assert wire.confirmed == {1, 2, 3}


def test_multi_unconfirmed_confirms_each_message_by_itself() -> None:
    """b is confirmed while a is in work."""
    wire = LaneWire({"multi-unconfirmed": {"run_max": 1}})
    wire.say("a:1", "b:1", "c:1")
    wire.work_all("b", "c")
    wire.advance(100 * MS)
    wire.exchange()
    assert wire.confirmed == {2, 3}


def test_a_crash_repeats_what_was_settled_behind_the_oldest_unsettled_message_in_order() -> None:
    """a:1 unsettled; b:1 and b:2 come again before b:3, and a:1 still holds up nobody (pipes L-11)."""
    wire = LaneWire()
    wire.say("a:1", "b:1", "b:2")
    wire.work("b")
    wire.advance(100 * MS)
    wire.crash_receiver()
    wire.exchange()
    wire.advance(2 * SECOND)
    wire.say("b:3", "c:1")
    wire.advance(2 * SECOND)
    wire.exchange()
    wire.work_all("b", "c")
    again = wire.texts(wire.per_life[-1])
    assert [text for text in again if text != "c:1"] == ["b:1", "b:2", "b:3"]
    assert wire.judged("b", wire.settled).violations.keys() == {"no-duplicate", "monotonic"}
    wire.work_all()
    wire.run()
    assert wire.confirmed == {1, 2, 3, 4, 5}


def test_a_stored_state_holds_the_position_that_no_unsettled_message_is_behind() -> None:
    """1..2 settled, 3 in work, 4 settled: after a crash 3 and 4 come, not 1 and 2 (pipes P-7)."""
    durable = BoundaryOptions(lanes=3, durable=True)
    wire = LaneWire(boundary=durable)
    wire.say("a:1", "b:1", "c:1", "a:2")
    wire.work_all("a", "b")
    wire.advance(100 * MS)
    wire.crash_receiver()
    wire.advance(3 * SECOND)
    wire.exchange()
    wire.work_all()
    wire.run()
    assert wire.texts(wire.per_life[-1]) == ["c:1", "a:2"]
    assert wire.confirmed == {1, 2, 3, 4}


# Bounds.


def test_a_poisoned_key_fills_the_window_and_no_more_and_a_notice_names_its_message() -> None:
    """16 in the window, 8 in the backlog, the rest rejected; one notice; others were handled (pipes P-9, V-5)."""
    wire = LaneWire(SMALL)
    wire.poison[b"a:1"] = -1
    wire.say("a:1")
    for number in range(60):
        wire.say(f"{'a' if number % 4 == 0 else 'b'}:{number + 2}")
        wire.advance(20 * MS)
        while wire.open:
            wire.work_all()
        wire.exchange()
    assert wire.receiver.delivery.in_work[0] <= 16
    assert wire.receiver.gauges()["in_work"] <= 16
    stalled = [notice for _, notice in wire.notices if notice.kind is NoticeKind.STALLED]
    assert [notice.ranges for notice in stalled] == [((1, 1),)]
    assert "nothing more comes in" in stalled[0].detail
    assert wire.rejected
    assert len(wire.settled) == 11
    assert all(text.startswith("b") for text in wire.texts())
    wire.poison.clear()
    wire.run()
    while wire.open:
        wire.work_all()
        wire.run()
    assert len(wire.settled) == len(wire.accepted) == len(set(wire.settled))


def test_the_bound_in_bytes_is_told_of_too() -> None:
    """Eight messages of 1 KiB fill a window of 8 KiB, long before 1024 messages do."""
    layer = {"reliable": {"window_bytes": 8192, "frame_max_bytes": 1024, "run_max": 1}}
    wire = LaneWire(layer)
    wire.poison[b"a:1"] = -1
    wire.say("a:1", *(f"b:{number}{'x' * 1000}" for number in range(20)))
    for _ in range(20):
        wire.work_all()
        wire.advance(50 * MS)
        wire.exchange()
    assert NoticeKind.STALLED in wire.kinds_noticed()
    assert wire.receiver.delivery.in_work[1] <= 8192
    stalled = [notice for _, notice in wire.notices if notice.kind is NoticeKind.STALLED]
    assert [notice.ranges for notice in stalled] == [((1, 1),)]


@pytest.mark.parametrize(
    ("bounds", "size"),
    [
        ({"receive_window": 10, "run_max": 3}, 1),
        ({"receive_window_bytes": 100, "frame_max_bytes": 20, "message_max_bytes": 20}, 7),
    ],
)
def test_where_nothing_is_confirmed_it_is_told_exactly_when_nothing_more_may_come(
    bounds: dict[str, int], size: int
) -> None:
    """pipes P-9: a carrier outside asks for room for a whole run; the notice comes with the first refusal."""
    wire = LaneWire({"continuous-index": bounds})
    wire.poison[b"a:1"] = -1
    wire.say("a:1")
    wire.work("a")
    while wire.receiver.has_room:
        assert NoticeKind.STALLED not in wire.kinds_noticed()
        wire.say(f"b:{'x' * (size - 2)}")
        wire.work_all("b")
    assert NoticeKind.STALLED in wire.kinds_noticed()


def test_other_keys_go_on_within_a_bounded_number_of_steps_while_one_is_poisoned() -> None:
    """Each of 200 messages of b is handled within three steps of its arrival, a:1 failing all the while."""
    wire = LaneWire({"multi-unconfirmed": {"window": 512}})
    wire.poison[b"a:1"] = -1
    wire.say("a:1", "a:2")
    for number in range(200):
        wire.say(f"b:{number}")
        steps = 0
        while f"b:{number}" not in wire.texts():
            wire.handle_next(min(wire.open))
            steps += 1
        assert steps <= 3
        wire.advance(10 * MS)
    assert "a:2" not in wire.texts()


def test_no_more_deliveries_are_open_than_lanes_can_soon_take() -> None:
    """More keys than deliveries; the next comes when one is answered."""
    wire = LaneWire()
    wire.say(*(f"{number}:1" for number in range(AHEAD_MIN + 40)))
    assert wire.open_keys() == [str(number) for number in range(AHEAD_MIN)]
    wire.work("7")
    assert wire.open_keys()[-1] == str(AHEAD_MIN)


def test_a_long_line_goes_out_in_pieces_so_that_other_keys_get_their_turn() -> None:
    """100 messages of one key: 32 at a time, and b between."""
    wire = LaneWire()
    wire.say(*(f"a:{number}" for number in range(100)), "b:1")
    assert len(wire.delivery_of("a").payloads) == 32
    wire.work("b")
    wire.work("a")
    assert wire.delivery_of("a").payloads[0] == b"a:32"


# Keys that can't be told.


def test_a_message_without_a_key_is_a_letter_at_once_and_holds_up_nobody() -> None:
    """The key function raises: no handler sees it (pipes D-3)."""
    wire = LaneWire(boundary=LETTERS)
    wire.say("a:1", "nonsense", "a:2")
    assert [(letter.seq, letter.error_type) for letter in wire.letters] == [(2, "ValueError")]
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.POISON, ((2, 2),))]
    wire.work("a")
    wire.run()
    assert wire.texts() == ["a:1", "a:2"]
    assert wire.confirmed == {1, 2, 3}


def test_without_a_place_for_letters_it_waits_for_a_receiver_that_knows_its_key() -> None:
    """One notice names it; after a restart with another key function it is handled."""
    wire = LaneWire()
    wire.say("a:1", "nonsense", "a:2")
    assert [(n.kind, n.ranges) for _, n in wire.notices] == [(NoticeKind.POISON, ((2, 2),))]
    wire.work("a")
    wire.advance(100 * MS)
    wire.exchange()
    assert not wire.receiver.idle
    wire.keys = lambda payload: payload[:1]
    wire.crash_receiver()
    wire.run()
    wire.work_all()
    wire.run()
    assert wire.texts(wire.per_life[-1]) == ["nonsense", "a:2"]
    assert wire.confirmed == {1, 2, 3}


def test_keys_that_are_equal_are_one_key_whatever_their_type() -> None:
    """Tuples, numbers and text may be mixed; None is a key."""
    wire = LaneWire()
    known: dict[bytes, Key] = {b"1": 1, b"2": True, b"3": ("x", 1), b"4": None, b"5": None}
    wire.keys = lambda payload: known[payload]
    wire.crash_receiver()
    wire.exchange()
    wire.say("1", "2", "3", "4", "5")
    assert wire.open_keys() == [1, ("x", 1), None]


# Answers of the host.


def test_what_a_host_refuses_comes_again_in_its_place() -> None:
    """a:1..a:3 refused from a:2 on while a:1 has no answer: the three come again, in order (pipes K-2)."""
    wire = LaneWire()
    wire.say("a:1", "a:2", "a:3", "b:1")
    wire.refuse_part("a", 2, 3)
    assert wire.open_keys() == ["b"]
    wire.advance(SECOND)
    assert wire.delivery_of("a").payloads == [b"a:1", b"a:2", b"a:3"]


def test_second_and_unknown_answers_are_counted_and_change_nothing() -> None:
    """Settled twice, failed after settled, refused after settled, and a ticket nobody gave (pipes P-3)."""
    wire = LaneWire()
    wire.say("a:1", "a:2", "b:1")
    ticket = wire.delivery_of("a").ticket
    receiver, now = wire.receiver, wire.now
    receiver.settled(ticket, ((1, 1),), now)
    receiver.settled(ticket, ((1, 1),), now)
    receiver.failed(ticket, 1, ERROR, now)
    receiver.refused(ticket, ((1, 1),), now)
    receiver.settled(999, ((1, 1),), now)
    receiver.failed(999, 1, ERROR, now)
    receiver.refused(999, ((1, 1),), now)
    assert receiver.counters()["late_answer"] == 6
    assert receiver.counters()["settled"] == 1


def test_answers_for_several_deliveries_in_one_step_are_settled_together() -> None:
    """b:1 and a:1 lie next to each other: one Confirm says both."""
    wire = LaneWire()
    wire.say("a:1", "b:1", "c:1")
    wire.settle_each("b", "a", "c")
    wire.run()
    assert wire.confirmed == {1, 2, 3}
    assert wire.receiver.counters()["settled"] == 3
    assert wire.receiver.delivery.in_work == (0, 0)


def test_each_copy_that_a_layer_lets_through_gets_an_answer_of_its_own() -> None:
    """multi-unconfirmed hands a settled message up again when its confirm was lost (pipes K-2)."""
    wire = LaneWire("multi-unconfirmed")
    wire.say("a:1")
    wire.work("a")
    wire.drop_all()
    wire.arrive(wire.sent[-1])
    wire.arrive(wire.sent[-1])
    wire.work_all()
    wire.run()
    assert wire.confirmed == {1}
    assert wire.receiver.gauges()["in_work"] == 0


def test_a_closed_receiver_settles_what_is_in_work_and_leaves_the_rest_unconfirmed() -> None:
    """Every place has a delivery; one key more never gets out (pipes P-15)."""
    wire = LaneWire()
    wire.say(*(f"{number}:1" for number in range(AHEAD_MIN + 1)), "0:2")
    wire.poison[b"5:1"] = 1
    wire.close_receiver()
    wire.work_all()
    wire.run(until_us=wire.now + SECOND)
    assert len(wire.settled) == AHEAD_MIN, "all but 5:1, which failed, and the last one"
    assert wire.confirmed == {1, 2, 3, 4, 5}
    assert wire.receiver.idle


def test_no_state_can_be_committed_with_a_delivery_in_a_lane() -> None:
    """MisuseError, before anything moves."""
    wire = LaneWire()
    wire.say("a:1")
    with pytest.raises(MisuseError, match="lane"):
        wire.receiver.state_after(wire.delivery_of("a").ticket, 1)


@pytest.mark.parametrize("boundary", [Boundary.HANDED, Boundary.BEFORE, Boundary.COMMITTED])
def test_lanes_need_the_boundary_processed(boundary: Boundary) -> None:
    """The other boundaries settle in an order of their own."""
    with pytest.raises(ConfigurationError, match="processed"):
        BoundaryOptions(boundary=boundary, lanes=2)


@pytest.mark.parametrize("lanes", [-1, 257, 2.0, True])
def test_a_number_of_lanes_that_is_none_is_refused(lanes: object) -> None:
    """Below 0, too many, no whole number."""
    with pytest.raises(ConfigurationError, match="lanes is"):
        BoundaryOptions(lanes=lanes)  # type: ignore[arg-type]


def test_as_many_lanes_as_are_allowed_are_taken() -> None:
    """The next number is refused, above."""
    assert BoundaryOptions(lanes=256).lanes == 256


def test_lanes_without_keys_are_refused() -> None:
    """When the machine is built."""
    wire = LaneWire()
    wire.keys = None  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="give a key"):
        wire.crash_receiver()


# State as a value.


def test_a_restored_machine_goes_on_as_the_exported_one_would() -> None:
    """Lines, deliveries, a failing message, a letter under way: same effects from both (pipes P-11, P-12)."""
    wire = LaneWire(boundary=LETTERS, auto_answer=False)
    wire.poison[b"a:1"] = 1
    wire.poison[b"b:1"] = -1
    wire.say("a:1", "b:1", "c:1", "a:2", "b:2", "c:2", "c:3")
    wire.work("a")
    wire.work("b")
    wire.advance(150 * MS)
    wire.work("b")
    assert wire.letters
    copy = LaneWire(boundary=LETTERS).receiver
    copy.restore(wire.receiver.export())
    assert copy.export() == wire.receiver.export()
    for machine in (wire.receiver, copy):
        machine.rng.seed(5)  # type: ignore[attr-defined]  # the generator is no part of the state
    tickets = [(d.ticket, ((d.seqs[0], d.seqs[0]),)) for d in wire.open.values()]
    letter = wire.unanswered[0][1]
    ours, theirs = (
        [
            *machine.settled_each(tickets, wire.now),
            *machine.answer(letter, WriteStored(), wire.now),
            *machine.wake(wire.now + SECOND),
        ]
        for machine in (wire.receiver, copy)
    )
    assert ours == theirs
    assert wire.receiver.export() == copy.export()
