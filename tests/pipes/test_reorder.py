"""The hold-and-deliver buffer: order, bounds, conflicts and holes."""

from __future__ import annotations

import random

import pytest

from surepipe.core import snapshot
from surepipe.pipes.stack.reorder import Offered, ReorderBuffer


def run(first: int, last: int) -> list[bytes]:
    """Payloads that are the decimal text of their number."""
    return [str(seq).encode() for seq in range(first, last + 1)]


def offer(buffer: ReorderBuffer, first: int, last: int, now: int = 0) -> Offered:
    """Offer the run first..last."""
    return buffer.offer(first, run(first, last), now)


def test_a_run_in_order_goes_up_at_once_and_is_in_work_until_it_is_settled() -> None:
    """Two runs; settling the first moves the limit by its length."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    assert offer(buffer, 1, 4).ready == run(1, 4)
    assert offer(buffer, 5, 8).first == 5
    assert (buffer.in_work, buffer.limit) == (8, 8)
    buffer.settle(1, 4)
    assert (buffer.in_work, buffer.limit, buffer.size_bytes) == (4, 12, 4)


def test_what_comes_early_is_held_and_follows_in_one_piece() -> None:
    """Runs 5..6, 3..4, then 1..2: one ready run of six."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    assert not offer(buffer, 5, 6).ready
    assert not offer(buffer, 3, 4).ready
    assert buffer.held_count == 4
    offered = offer(buffer, 1, 2)
    assert (offered.first, offered.ready) == (1, run(1, 6))
    assert (buffer.held_count, buffer.in_work) == (0, 6)


def test_without_a_known_start_the_span_is_counted_from_the_lowest_that_is_held() -> None:
    """5..6 and 9 are held and 8 numbers are allowed: 5..12, whatever comes after them."""
    buffer = ReorderBuffer(8, 1000)
    offer(buffer, 5, 6)
    offer(buffer, 9, 9)
    offered = offer(buffer, 11, 14)
    assert (offered.kept, offered.over_limit) == (((11, 12),), ((13, 14),))


def test_overlapping_runs_keep_the_first_copy_and_tell_conflicts() -> None:
    """3..5 held, then 2..6 with another payload for 4: conflict 1, repeated 2, new 2 and 6."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    offer(buffer, 3, 5)
    offered = buffer.offer(2, [b"2", b"3", b"other", b"5", b"6"], 0)
    assert (offered.conflict, offered.repeated, offered.kept) == (1, 2, ((2, 2), (6, 6)))
    assert offer(buffer, 1, 1).ready == run(1, 6)


def test_copies_of_settled_and_of_in_work_messages_are_told_apart() -> None:
    """1..6 handed up, 1..2 settled; a copy of all counts 2 duplicates and 4 in work."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    offer(buffer, 1, 6)
    buffer.settle(1, 2)
    offered = offer(buffer, 1, 7)
    assert (offered.duplicate, offered.in_work, offered.ready) == (2, 4, run(7, 7))


def test_beyond_the_limit_nothing_is_kept_but_it_shows_a_hole() -> None:
    """Window 4: a run 3..6 keeps 3..4; a run 9..9 keeps nothing (pipes P-9)."""
    buffer = ReorderBuffer(4, 1000, expected=1)
    assert offer(buffer, 3, 6).over_limit == ((5, 6),)
    assert offer(buffer, 9, 9).over_limit == ((9, 9),)
    assert buffer.stuck_since == 0
    assert buffer.missing == ((1, 2),)
    empty = ReorderBuffer(4, 1000, expected=1)
    assert offer(empty, 9, 9, now=7).over_limit == ((9, 9),)
    assert (empty.stuck_since, empty.missing) == (7, ((1, 4),))


def test_the_bound_in_bytes_holds_and_a_prefix_that_fits_is_taken() -> None:
    """10 bytes: of four 3-byte messages three fit; the fourth comes again, so it is no hole."""
    buffer = ReorderBuffer(100, 10, expected=1)
    offered = buffer.offer(1, [b"aaa", b"bbb", b"ccc", b"ddd"], 0)
    assert offered.ready == [b"aaa", b"bbb", b"ccc"]
    assert offered.over_limit == ((4, 4),)
    assert (buffer.size_bytes, buffer.missing) == (9, ())


def test_the_next_expected_message_takes_room_from_what_is_held_furthest_above() -> None:
    """10 bytes full of 3..5; 1 arrives: the highest give way, and are named to come again."""
    buffer = ReorderBuffer(100, 10, expected=1)
    for seq in (3, 4, 5):
        buffer.offer(seq, [b"xxx"], 0)
    offered = buffer.offer(1, [b"1111"], 0)
    assert (offered.ready, offered.evicted) == ([b"1111"], ((5, 5),))
    assert list(buffer.held) == [(3, 4)]


def test_one_message_larger_than_the_whole_bound_passes_alone() -> None:
    """Otherwise it would never be delivered; what follows it in its run comes again."""
    buffer = ReorderBuffer(100, 2, expected=1)
    assert buffer.offer(1, [b"large", b"l"], 0).ready == [b"large"]
    assert buffer.offer(2, [b"l"], 0).over_limit == ((2, 2),)
    buffer.settle(1, 1)
    assert buffer.offer(2, [b"l"], 0).ready == [b"l"]


def test_a_hole_keeps_the_age_at_which_it_was_first_seen() -> None:
    """A hole seen at 10, half of it filled at 90, is still that old; filled, there is none."""
    buffer = ReorderBuffer(100, 1000, expected=1)
    offer(buffer, 4, 4, now=10)
    offer(buffer, 1, 1, now=90)
    assert buffer.stuck_since == 10
    offer(buffer, 2, 3, now=95)
    assert buffer.stuck_since is None


def test_before_the_start_is_known_everything_within_one_span_is_held() -> None:
    """Held 7..8 and 6 and 12 in a window of 4; start_at(7) forgets 6 and hands up 7..8."""
    buffer = ReorderBuffer(4, 1000)
    offer(buffer, 7, 8)
    assert offer(buffer, 12, 12).over_limit == ((12, 12),)
    assert offer(buffer, 3, 3).over_limit == ((3, 3),)
    assert not offer(buffer, 6, 6).ready
    offered = buffer.start_at(7, now=5)
    assert (offered.first, offered.ready) == (7, run(7, 8))
    assert (buffer.expected, buffer.settled, buffer.limit) == (9, 6, 10)


def test_a_start_far_below_gives_up_what_is_above_the_limit() -> None:
    """Held 7..10 in a window of 4, start_at(5): limit 8, so 9..10 must come again."""
    buffer = ReorderBuffer(4, 1000)
    offer(buffer, 7, 8)
    offer(buffer, 9, 10)
    offered = buffer.start_at(5, now=3)
    assert offered.evicted == ((9, 10),)
    assert (list(buffer.held), buffer.stuck_since) == ([(7, 8)], 3)


def test_what_a_start_shows_to_be_missing_is_open_since_then() -> None:
    """Held 7..8 and 10, start_at(5): 5..6 and 9 are missing, and were not before anybody knew the start."""
    buffer = ReorderBuffer(8, 1000)
    offer(buffer, 7, 8, now=1)
    offer(buffer, 10, 10, now=2)
    assert not buffer.missing
    assert not buffer.start_at(5, now=3).ready
    assert (buffer.missing, buffer.stuck_since) == (((5, 6), (9, 9)), 3)


def test_a_start_never_goes_back() -> None:
    """start_at below expected changes nothing."""
    buffer = ReorderBuffer(4, 1000, expected=5)
    buffer.start_at(2, now=0)
    assert (buffer.expected, buffer.settled) == (5, 4)


def test_a_refused_message_is_expected_again_and_all_that_followed_it() -> None:
    """1..6 in work, 3 refused: expected 3, in work 2, bytes of 3..6 still accounted at most once."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    offer(buffer, 1, 6)
    buffer.step_back(3, now=9)
    assert (buffer.expected, buffer.in_work, buffer.stuck_since) == (3, 2, 9)
    assert offer(buffer, 3, 6).ready == run(3, 6)
    buffer.settle(1, 6)
    assert (buffer.settled, buffer.size_bytes) == (6, 0)


def test_settling_out_of_order_moves_the_floor_when_the_hole_closes() -> None:
    """3..4 settled first, then 1..2."""
    buffer = ReorderBuffer(8, 1000, expected=1)
    offer(buffer, 1, 6)
    buffer.settle(3, 4)
    assert (buffer.settled, buffer.in_work) == (0, 4)
    buffer.settle(1, 2)
    assert (buffer.settled, buffer.in_work) == (4, 2)


def test_a_hundred_thousand_messages_behind_one_hole_drain_in_one_loop() -> None:
    """Single messages in order behind the hole at 1, then it: one run, no recursion (pipes P-10)."""
    count = 100_000
    buffer = ReorderBuffer(count + 1, 1 << 30, expected=1)
    for seq in range(2, count + 2):
        buffer.offer(seq, [b"x"], 0)
    assert len(buffer.holes) == 1
    assert len(buffer.offer(1, [b"x"], 0).ready) == count + 1
    assert (buffer.held_count, buffer.missing) == (0, ())


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_overlapping_runs_gives_the_sequence_once_within_the_bounds(seed: int) -> None:
    """Random runs, settles and refusals: what goes up is 1, 2, 3 ..., and the bounds hold (pipes V-5)."""
    rng = random.Random(seed)
    window, bound = rng.choice([(1, 50), (7, 50), (64, 200), (64, 20)])
    buffer = ReorderBuffer(window, bound, expected=1)
    going_up = 1
    for step in range(2000):
        if rng.random() < 0.05 and buffer.in_work and buffer.settled + 1 < buffer.expected:
            going_up = rng.randint(buffer.settled + 1, buffer.expected - 1)
            buffer.step_back(going_up, step)
        elif rng.random() < 0.4:
            last = min(buffer.expected - 1, buffer.settled + rng.randint(0, 20))
            buffer.settle(buffer.settled + 1, last)
        else:
            first = max(1, buffer.expected + rng.randint(-5, window))
            offered = offer(buffer, first, first + rng.randint(0, 9), step)
            assert list(offered.ready) == run(going_up, going_up + len(offered.ready) - 1)
            assert not offered.ready or offered.first == going_up
            going_up += len(offered.ready)
            assert offered.conflict == 0
        assert buffer.expected == going_up
        assert buffer.held_count + buffer.in_work <= window
        assert buffer.size_bytes <= bound
        assert len(buffer.holes) <= window
        if step % 100 == 0:
            restored = snapshot.restore(snapshot.export(buffer))
            assert isinstance(restored, ReorderBuffer)
            buffer = restored
    assert going_up > 100
