"""The state of a receiver between micro-batches, and its time, without Spark (spark SP-14, SP-15, pipes P-11)."""

from __future__ import annotations

from surepipe.spark.keyed import (
    Arrival,
    KeyedMessage,
    KeyedReceiver,
    Remark,
    Said,
    from_text,
    standing_of,
    to_text,
)

LAYER = {"continuous-index": {"gap_alarm_s": 1.0}}
SECOND = 1_000_000


def arrival(seq: int, at_us: int = 0) -> Arrival:
    """Message ``seq`` of the first life."""
    return Arrival(1, seq, b"%d" % seq, at_us)


def seqs(said: list[Said]) -> list[int]:
    """The numbers of what was delivered."""
    return [one.seq for one in said if isinstance(one, KeyedMessage)]


def test_a_receiver_goes_on_from_its_state() -> None:
    """pipes P-11: 2 is held over the border between two batches, and 1 lets both through."""
    first = KeyedReceiver("c", LAYER)
    assert seqs(first.take([arrival(2)])) == []
    second = KeyedReceiver("c", LAYER, first.state)
    assert second.state == first.state
    assert seqs(second.take([arrival(1), arrival(2)])) == [1, 2]


def test_a_hole_that_stays_open_is_noticed_once() -> None:
    """spark SP-15: the deadline is known outside, a wake before it says nothing, one behind it says Stalled."""
    receiver = KeyedReceiver("c", LAYER)
    receiver.take([arrival(1), arrival(3)])
    assert receiver.deadline_us == SECOND
    assert receiver.wake(SECOND // 2) == []
    (remark,) = receiver.wake(SECOND)
    assert remark == Remark("Stalled", 1, "a hole stays open: 2")
    assert receiver.wake(2 * SECOND) == []


def test_time_that_rows_tell_rings_the_alarm_too() -> None:
    """spark SP-15: the next row comes after the deadline, so the notice stands before what it lets through."""
    receiver = KeyedReceiver("c", LAYER)
    said = receiver.take([arrival(1), arrival(3), arrival(2, 2 * SECOND)])
    assert [type(one).__name__ for one in said] == [
        "KeyedMessage",
        "Remark",
        "KeyedMessage",
        "KeyedMessage",
    ]


def test_a_clock_that_goes_back_is_no_harm() -> None:
    """Two hosts whose clocks differ: the machine keeps the later time."""
    receiver = KeyedReceiver("c", LAYER)
    receiver.take([arrival(1, 5 * SECOND)])
    assert seqs(receiver.take([arrival(2, SECOND)])) == [2]


def test_the_text_of_a_state_keeps_bytes_and_numbers() -> None:
    """Bytes, and numbers above 2^53, come back as they were."""
    state = [1, "a", b"\x00\xff", None, [2**63 + 1, True]]
    assert from_text(to_text(state)) == state


def test_what_stands_is_told() -> None:
    """Held messages and counters, by name."""
    receiver = KeyedReceiver("c", LAYER)
    receiver.take([arrival(1), arrival(1), arrival(3)])
    standing = standing_of("c", LAYER, receiver.state)
    assert (standing.held, standing.counters) == (1, {"settled": 1, "duplicate": 1})
