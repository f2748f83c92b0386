"""Runs that know their size: always right, never changed, and given on as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from surepipe.core import snapshot
from surepipe.core.payloads import Payloads, joined, part_of, size_of, sized
from surepipe.pipes.retry.backlog import Backlog
from surepipe.pipes.retry.flights import Transmitted
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import Data

RUNS = st.lists(st.integers(0, 4).map(bytes), max_size=12)


@given(RUNS, st.integers(0, 12), st.integers(0, 12))
def test_a_part_of_a_run_holds_what_a_slice_holds_and_knows_its_bytes(
    payloads: list[bytes], start: int, end: int
) -> None:
    """Runs of equal and of different lengths, any part of them, compared with plain lists (pipes P-10)."""
    part = sized(payloads).part(start, end)
    assert part == payloads[start:end]
    assert part.size_bytes == sum(map(len, part))
    assert part.longest >= max(map(len, part), default=0)
    assert list(part_of(payloads, start, end)) == payloads[start:end]


@given(RUNS, st.integers(-1, 30), st.booleans())
def test_the_beginning_within_so_many_bytes_is_the_longest_that_fits(
    payloads: list[bytes], room: int, at_least_one: bool
) -> None:
    """Against counting one by one; the first payload goes alone where one must go (pipes P-9)."""
    count = 0
    while count < len(payloads) and sum(map(len, payloads[: count + 1])) <= room:
        count += 1
    if not count and at_least_one:
        count = 1
    assert sized(payloads).within(room, at_least_one=at_least_one) == payloads[:count]


@given(st.lists(RUNS, max_size=4))
def test_runs_one_after_the_other_are_one_run(runs: list[list[bytes]]) -> None:
    """Joined and measured, against a plain list."""
    whole = joined([sized(run) for run in runs])
    assert whole == [payload for run in runs for payload in run]
    assert whole.size_bytes == size_of(list(whole))


def test_a_run_is_measured_once_and_given_on_as_it_is() -> None:
    """The same object comes out of the backlog, and of a join of one."""
    run = sized([b"ab", b"cd"])
    assert sized(run) is run
    assert joined([run]) is run
    backlog = Backlog(10, 100)
    assert backlog.put(run) == 2
    assert backlog.take(10, 100, at_least_one=True) is run


def test_a_run_that_others_keep_too_is_not_changed_by_a_queue() -> None:
    """Cut at the front and added to, the queue leaves the run whole, and its own count of bytes right."""
    run = sized([b"x" * 10] * 100)
    queue = Transmitted(1000)
    assert queue.enqueue_run(1, run) == 100
    assert queue.delete_all(30) == 30
    assert queue.enqueue_run(101, [b"yy"]) == 1
    assert (len(run), run.size_bytes) == (100, 1000)
    assert (len(queue), queue.size_bytes) == (71, 702)
    assert queue.delete_all(99) == 69
    assert queue.slice_run(100, 2) == [b"x" * 10, b"yy"]
    assert queue.size_bytes == 12


@given(RUNS.filter(bool))
def test_a_decoded_frame_knows_the_size_of_its_run(payloads: list[bytes]) -> None:
    """The codec has read the lengths: they cost no second pass."""
    decoded = codec.decode(codec.encode(Data(1, 0, 2, 3, 4, 4, 5, True, payloads)))
    assert isinstance(decoded, Data)
    assert isinstance(decoded.payloads, Payloads)
    assert decoded.payloads == payloads
    assert decoded.payloads.size_bytes == sum(map(len, payloads))


def test_a_run_is_part_of_an_exported_state() -> None:
    """Exported and restored it is a run again, of the same size (pipes P-11)."""
    restored = snapshot.restore(snapshot.export(sized([b"a", b"bcd"])))
    assert isinstance(restored, Payloads)
    assert (restored, restored.size_bytes, restored.longest) == ([b"a", b"bcd"], 4, 3)
