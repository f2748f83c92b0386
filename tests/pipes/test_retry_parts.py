"""The parts that the retry engine is made of: round trips, backlog, records of runs, holes, report clock."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.core import snapshot
from surepipe.core.effects import Ranges
from surepipe.pipes.retry.backlog import Backlog
from surepipe.pipes.retry.confirming import ReportClock
from surepipe.pipes.retry.flights import FEW, NEVER, Flight, Flights, Transmitted
from surepipe.pipes.retry.holes import Holes
from surepipe.pipes.retry.window import RoundTrips

MS = 1_000


def trips() -> RoundTrips:
    """An estimate without a sample."""
    return RoundTrips(initial=1_000 * MS, least=100 * MS, most=30_000 * MS, confirm_delay=10 * MS)


def test_the_wait_follows_the_usual_estimate() -> None:
    """T-3: worked by hand for 200 ms and then 280 ms."""
    measured = trips()
    assert (measured.rto, measured.usual) == (1_000 * MS, 100 * MS)
    measured.sample(200 * MS)
    assert measured.rto == (200 + 4 * 100 + 10) * MS
    measured.sample(280 * MS)
    assert (measured.smoothed, measured.variation) == (210 * MS, 95 * MS)
    assert measured.rto == (210 + 4 * 95 + 10) * MS


@given(st.lists(st.integers(0, 10**10), max_size=50))
def test_the_wait_is_always_between_its_bounds(samples: list[int]) -> None:
    """T-3: whatever is measured."""
    measured = trips()
    for sample in samples:
        measured.sample(sample)
        assert 100 * MS <= measured.rto <= 30_000 * MS
        assert measured.usual >= 0


@given(st.data())
def test_a_backlog_gives_back_what_it_took_in_order(data: st.DataObject) -> None:
    """P-9: random puts and takes against a plain list; both bounds hold after each."""
    backlog = Backlog(20, 60)
    model: list[bytes] = []
    for _ in range(30):
        if data.draw(st.booleans()):
            offered = data.draw(st.lists(st.binary(max_size=30), max_size=12))
            start = data.draw(st.integers(0, len(offered)))
            taken = backlog.put(offered, start)
            model += offered[start : start + taken]
        else:
            count, size = data.draw(st.integers(1, 15)), data.draw(st.integers(0, 80))
            got = backlog.take(count, size, at_least_one=False)
            assert got == model[: len(got)]
            assert len(got) <= count
            assert sum(map(len, got)) <= size
            del model[: len(got)]
        assert backlog.contents() == model
        assert (len(backlog), backlog.size_bytes) == (len(model), sum(map(len, model)))
        assert len(backlog) <= 20
        assert backlog.size_bytes <= 60


def test_a_backlog_takes_one_message_larger_than_its_bytes_when_it_is_empty() -> None:
    """P-9: it waits alone."""
    backlog = Backlog(20, 60)
    assert backlog.put([b"x" * 100, b"y"]) == 1
    assert backlog.put([b"y"]) == 0
    assert backlog.take(5, 10, at_least_one=False) == []
    assert backlog.take(5, 10, at_least_one=True) == [b"x" * 100]
    assert backlog.size_bytes == 0


def test_a_backlog_lets_go_of_what_was_taken() -> None:
    """A long list taken from piece by piece shrinks."""
    backlog = Backlog(100_000, 10**9)
    backlog.put([b""] * 50_000)
    for _ in range(90):
        backlog.take(500, 10**9, at_least_one=True)
    state = snapshot.export(backlog)
    assert len(repr(state)) < 60_000
    assert len(backlog) == 5_000


def flight(first: int, last: int, deadline: int = 100) -> Flight:
    """A record of one run."""
    return Flight(first, last, 0, 0, deadline)


def spans_of(flights: Flights) -> list[tuple[int, int]]:
    """First and last of each run."""
    return [(run.first, run.last) for run in flights.runs]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 20))
def test_carving_cuts_runs_without_losing_or_doubling_a_number(
    lengths: list[int], first: int, length: int
) -> None:
    """T-2, T-7: the carved and the remaining runs cover what was covered, in order."""
    flights = Flights()
    end = 0
    for run in lengths:
        flights.add(flight(end + 1, end + run))
        end += run
    last = first + length - 1
    carved = flights.carve(first, last)
    covered = [n for run in carved for n in range(run.first, run.last + 1)]
    assert covered == [n for n in range(first, last + 1) if n <= end]
    flights.put_back(carved)
    numbers = [n for a, b in spans_of(flights) for n in range(a, b + 1)]
    assert numbers == list(range(1, end + 1))


@pytest.mark.parametrize("count", [3, FEW, FEW + 1])
def test_few_and_many_runs_are_put_back_in_their_places(count: int) -> None:
    """T-2: every second run was due; afterwards all are there, in order, and the earliest deadline is known."""
    flights = Flights()
    for number in range(1, 2 * count + 1):
        flights.add(flight(number, number, 100 + number % 2))
    due = flights.take_due(100)
    assert len(due) == count
    for run in due:
        run.deadline = 50
    flights.put_back(due)
    assert spans_of(flights) == [(number, number) for number in range(1, 2 * count + 1)]
    assert flights.due_at == 50


def test_only_neighbours_with_one_history_go_together() -> None:
    """T-2, T-11: another patience or a notice already given keeps runs apart."""
    first = flight(1, 3)
    assert first.goes_with(flight(4, 4))
    assert not first.goes_with(flight(5, 6))
    for change in ({"waits": 2}, {"warned": True}):
        assert not first.goes_with(replace(flight(4, 4), **change))


def test_the_earliest_deadline_is_never_overlooked() -> None:
    """P-4: the cached time is a lower bound through every operation."""
    rng = random.Random(5)
    flights = Flights()
    number = 1
    for now in range(400):
        flights.add(flight(number, number, now + rng.randrange(1, 50)))
        number += 1
        if now % 7 == 0:
            flights.drop_below(number - 20)
        if flights.due_at <= now:
            due = flights.take_due(now)
            for run in due:
                run.deadline = now + 30
            flights.put_back(due)
        assert flights.due_at <= min((run.deadline for run in flights.runs), default=NEVER)


@pytest.mark.parametrize("removed", [0, 2, 5])
def test_what_is_on_the_way_survives_export(removed: int) -> None:
    """P-11: members and the highest number ever used come back; what was removed can't enter again."""
    queue = Transmitted(8)
    queue.enqueue_run(11, [b"a", b"b", b"c", b"d", b"e"])
    queue.delete_all(10 + removed)
    again = snapshot.restore(snapshot.export(queue))
    assert isinstance(again, Transmitted)
    assert again.snapshot() == queue.snapshot()
    assert (again.high, again.capacity) == (15, 8)
    assert again.enqueue_run(16, [b"x"]) == 1


def test_a_number_that_left_stays_out_after_a_restore() -> None:
    """Q-24, P-11: an emptied queue still knows the highest number it ever held."""
    queue = Transmitted(8)
    queue.enqueue_run(11, [b"a", b"b"])
    queue.delete_all(12)
    again = snapshot.restore(snapshot.export(queue))
    assert isinstance(again, Transmitted)
    assert again.enqueue_run(12, [b"x"]) == 0
    assert len(again) == 0


def test_a_hole_is_due_after_enough_later_frames_or_enough_time() -> None:
    """T-7: three later frames, or 20 ms."""
    holes = Holes(1, 3, 20 * MS)
    assert holes.arrived(2, 2, 0)
    holes.arrived(3, 3, 0)
    assert not holes.is_due(0)
    holes.arrived(4, 4, 0)
    assert holes.is_due(0)
    assert holes.name_due(0, 64, lambda named: named * 1000) == ((1, 1),)
    assert not holes.is_due(999)
    assert holes.name_due(1000, 64, lambda named: named * 1000) == ((1, 1),)
    assert not holes.is_due(2999)
    holes.arrived(7, 9, 5000)
    assert not holes.is_due(2999)
    assert holes.is_due(25_000)


def test_a_copy_of_the_last_frame_is_no_later_frame() -> None:
    """T-7: three copies of what is behind a hole say nothing about the hole."""
    holes = Holes(1, 3, 20 * MS)
    for _ in range(4):
        holes.arrived(2, 2, 0)
    assert not holes.is_due(0)


@given(st.permutations(list(range(1, 25))), st.integers(0, 24))
def test_holes_are_exactly_what_is_missing(order: list[int], base: int) -> None:
    """T-7: numbers in any order, and a base that rises in the middle, against a set."""
    holes = Holes(1, 3, 20)
    seen: set[int] = set()
    for at, number in enumerate(order):
        holes.arrived(number, number, at)
        seen.add(number)
        if at == 12:
            holes.raise_base(base + 1)
            seen |= set(range(1, base + 1))
        expected = set(range(1, max(seen) + 1)) - seen
        assert {n for hole in holes.holes for n in range(hole.first, hole.last + 1)} == expected
        times = [hole.due for hole in holes.holes]
        assert holes.due_at <= min(times, default=NEVER)


def test_more_holes_than_a_frame_can_name_are_named_in_turn() -> None:
    """T-6: 64 ranges at most, lowest first; the others are named next."""
    holes = Holes(1, 1, 20)
    for number in range(2, 202, 2):
        holes.arrived(number, number, 0)
    first: Ranges = holes.name_due(100, 64, lambda _: 1000)
    second: Ranges = holes.name_due(100, 64, lambda _: 1000)
    assert first == tuple((n, n) for n in range(1, 129, 2))
    assert second == tuple((n, n) for n in range(129, 201, 2))


def test_a_stamp_is_answered_once() -> None:
    """T-3: a later Confirm would measure the handler, not the route."""
    clock = ReportClock(10, 100)
    clock.arrived(0, 1, 7, ask=False)
    assert clock.due == 10
    assert clock.reported(0) == 7
    clock.settle(50, 1, 1)
    assert clock.due == 60
    assert clock.reported(1) == 0
    assert clock.due == NEVER
