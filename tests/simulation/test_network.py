"""What links do to frames, decided frame by frame under the name of each."""

from __future__ import annotations

import pytest

from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Drain, Options, Tie
from tests.simulation.kit import (
    BACK,
    COUNTING,
    FORWARD,
    RELIABLE,
    TIMER_US,
    crash,
    decide,
    delivered,
    frames,
    lose,
    of_kind,
    told,
    with_options,
)

FIRST = "pipe/0 data e1 1+1 a1"
SECOND = "pipe/0 data e1 2+1 a1"
THREE = Options(messages=3)


def test_a_frame_takes_the_delay_of_its_link_and_arrives_in_order() -> None:
    """simulation X-13: without decisions, each frame after exactly delay_us."""
    rows = told(options=with_options(THREE, delay_us=700)).rows
    assert frames(rows, "arrived") == [1, 2, 3]
    assert {row.time_us for row in of_kind(rows, "arrived", "receiver")} == {700}


def test_a_lost_frame_never_arrives_and_its_next_transmission_does() -> None:
    """simulation F1: the first transmission of #1; the second is told apart by its attempt."""
    rows = told(lose(FIRST)).rows
    assert frames(rows, "lost") == [1]
    assert delivered(rows) == [(1, 2), (1, 3), (1, 1)]
    assert [row.attempt for row in of_kind(rows, "transmit", "sender") if row.seq == 1] == [1, 2]


def test_only_confirms_can_be_lost() -> None:
    """simulation X-13, F2: by the link back; the message comes out twice."""
    rows = told(lose("pipe/0 heard e1 1+1 a1", BACK)).rows
    assert frames(rows, "lost", "heard") == [1]
    assert delivered(rows) == [(1, 1), (1, 2), (1, 3), (1, 1)]


def test_a_copy_arrives_later_under_a_name_of_its_own() -> None:
    """simulation F3, X-15: two copies; one of them can be told of, as ``c2``."""
    rows = told(decide(FORWARD, FIRST, "copy", 5_000, 9_000, fault="F3")).rows
    arrived = [row for row in of_kind(rows, "arrived", "receiver") if row.seq == 1]
    assert [(row.time_us, row.copy) for row in arrived] == [(1_000, 0), (6_000, 1), (10_000, 2)]
    assert [row.copy for row in of_kind(rows, "copied")] == [1, 2]


def test_an_overtaken_frame_lets_the_others_pass() -> None:
    """simulation F4: one decision, one frame out of place, on a link that keeps order otherwise."""
    rows = told(decide(FORWARD, FIRST, "overtake", 10, fault="F4")).rows
    assert frames(rows, "arrived") == [2, 3, 1]


def test_on_a_link_that_keeps_order_a_slow_frame_holds_the_others_up() -> None:
    """simulation X-13: a delay moves those behind it; with order any it does not."""
    slow = decide(FORWARD, FIRST, "delay", 50_000, fault="F5")
    assert frames(told(slow).rows, "arrived") == [1, 2, 3]
    any_order = with_options(THREE, order="any")
    assert frames(told(slow, options=any_order).rows, "arrived") == [2, 3, 1]


@pytest.mark.parametrize("tie", [Tie.RANDOM, Tie.PRIORITY])
def test_ties_by_chance_do_not_swap_frames_of_a_link_that_keeps_order(tie: str) -> None:
    """simulation X-7, X-13: 40 frames at the same moment, over twenty seeds."""
    for seed in range(20):
        rows = run_hop(COUNTING, Options(seed=seed, tie=tie), judge=None).rows
        arrived = frames(rows, "arrived")
        assert arrived == sorted(arrived)


def test_a_full_link_loses_what_comes_next() -> None:
    """simulation X-13: two frames fit."""
    rows = told(options=with_options(THREE, capacity=2)).rows
    assert frames(rows, "lost") == [3]
    assert '"reason":"the link is full"' in of_kind(rows, "lost")[0].detail


def test_a_flipped_bit_is_a_loss_to_the_machine_and_is_told() -> None:
    """simulation F25, pipes F-2: each of many bits of a real frame."""
    options = with_options(THREE, messages=1)
    for bit in range(0, 1200, 37):
        flip = decide(FORWARD, "pipe/0 data e1 1+1 a1", "corrupt", bit, fault="F25")
        result = told(flip, subject=RELIABLE, options=options)
        assert len(of_kind(result.rows, "fault")) == 1
        assert delivered(result.rows) == [(1, 1)]
        assert result.violations == ()


def test_frames_in_flight_survive_their_sender() -> None:
    """simulation X-14: all three arrive although the sender ends right after it sent them."""
    rows = told(crash("sender", "submit 3", 2, 5 * TIMER_US)).rows
    assert delivered(rows)[:3] == [(1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("links", "arrived"), [((FORWARD,), 0), ((BACK,), 3), ((FORWARD, BACK), 0)], ids=str
)
def test_a_partition_cuts_the_links_that_it_names(links: tuple[str, ...], arrived: int) -> None:
    """simulation X-14, F6: both ways or one way, until it heals."""
    names = [link.removeprefix("network/") for link in links]
    cut = decide("faults", "partition 1", "cut both", 0, 2 * TIMER_US, *names, fault="F6")
    result = told(cut, options=with_options(THREE, chaos_us=3 * TIMER_US))
    early = [row for row in of_kind(result.rows, "arrived", "receiver") if row.time_us < 3_000]
    assert len(early) == arrived
    assert {seq for _, seq in delivered(result.rows)} == {1, 2, 3}
    told_of = [row.detail for row in of_kind(result.rows, "fault")]
    assert [("cut" in text, "heal" in text) for text in told_of] == [(True, False), (False, True)]


def test_a_one_way_cut_may_stay_for_ever() -> None:
    """simulation F7a: nothing gets through, the limit of time is told (P12), and nothing else is broken."""
    cut = decide("faults", "one way", "cut one-way", 0, 0, "sender>receiver", fault="F7")
    options = with_options(THREE, time_max_us=20 * TIMER_US)
    result = told(cut, subject=RELIABLE, options=options)
    assert delivered(result.rows) == []
    assert result.limit == "time"
    assert [violation.property for violation in result.violations] == ["P12"]


def test_a_slow_drain_takes_longer_than_the_first_timeout() -> None:
    """simulation X-38 O1: the round trip of the drain is two timeouts, and everything arrives."""
    options = with_options(THREE, drain=Drain.SLOW_LOAD, chaos_us=TIMER_US)
    result = told(subject=RELIABLE, options=options)
    load = [row for row in of_kind(result.rows, "accepted") if row.time_us > TIMER_US]
    assert sum(row.count for row in load) == options.load_messages
    ways = zip(*(of_kind(result.rows, kind)[-1:] for kind in ("transmit", "arrived")), strict=True)
    assert [there.time_us - back.time_us for back, there in ways] == [TIMER_US]
    assert len(delivered(result.rows)) == 3 + options.load_messages
    assert result.violations == ()
