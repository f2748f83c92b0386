"""The ghost of a checked queue answers as a plain mapping of its members does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from surepipe.pipes.message_queue import Message, OrderedQueue
from surepipe.pipes.message_queue.checked import Ghost
from surepipe.pipes.message_queue.contract import Run
from surepipe.pipes.message_queue.queues import CHUNK_MAX

NUMBERS = st.integers(0, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS, st.integers(0, 5)),
        st.tuples(st.just("remove"), NUMBERS, st.just(0)),
    ),
    max_size=12,
)


def payload_of(number: int) -> bytes:
    """Of a length that tells some of them apart."""
    return b"x" * (number % 7) + b"%d" % number


def runs_of(members: dict[int, Message]) -> list[Run]:
    """The members as runs that can't be made longer."""
    runs: list[Run] = []
    for number, member in members.items():
        if runs and runs[-1].last + 1 == number:
            runs[-1] = Run(runs[-1].first, (*runs[-1].payloads, member.payload))
        else:
            runs.append(Run(number, (member.payload,)))
    return runs


def after_steps(steps: list[tuple[str, int, int]]) -> tuple[Ghost[Message], dict[int, Message]]:
    """A ghost and a mapping that went through the same: members one by one, runs, and deletions."""
    ghost: Ghost[Message] = Ghost(OrderedQueue[Message]().form)
    members: dict[int, Message] = {}
    high = -1
    for verb, number, length in steps:
        if verb == "remove":
            gone = [held for held in members if held <= number]
            assert ghost.remove_through(number) == len(gone)
            for held in gone:
                del members[held]
        elif not any(held in members for held in range(number, number + max(length, 1))):
            fresh = [Message(n, payload_of(n)) for n in range(number, number + max(length, 1))]
            if length:
                ghost.add_run(number, [each.payload for each in fresh])
            else:
                ghost.add(number, fresh[0])
            members |= {each.num: each for each in fresh}
            high = max(high, *members)
        assert ghost.high == high
    return ghost, dict(sorted(members.items()))


@given(STEPS)
def test_sums_and_contents_are_those_of_the_members(steps: list[tuple[str, int, int]]) -> None:
    """message-queue Q-17: count, bytes, the highest ever, the least, and each member in its place."""
    ghost, members = after_steps(steps)
    assert dict(ghost.contents()) == members
    assert list(ghost.contents()) == list(members)
    assert (ghost.count, ghost.size_bytes) == (
        len(members),
        sum(len(each.payload) for each in members.values()),
    )
    assert [number for number in range(40) if ghost.holds(number)] == list(members)
    assert [ghost.member(number) for number in members] == list(members.values())
    if members:
        assert ghost.least() == min(members)


@given(STEPS, st.integers(-1, 32), st.integers(0, 12))
def test_views_above_a_number_are_those_of_the_members(
    steps: list[tuple[str, int, int]], after: int, limit: int
) -> None:
    """message-queue Q-6: members and runs above a number, and the first in a span."""
    ghost, members = after_steps(steps)
    above = {number: each for number, each in members.items() if number > after}
    seen = dict(list(above.items())[:limit])
    assert ghost.members(after, limit) == list(seen.values())
    assert ghost.runs(after, limit) == runs_of(seen)
    span = [number for number in members if after + 1 <= number <= after + limit]
    assert ghost.first_held(after + 1, after + limit) == min(span, default=None)


def test_a_long_run_is_kept_in_pieces_and_read_as_one() -> None:
    """Two pieces and a bit: nothing is lost at their borders."""
    ghost: Ghost[Message] = Ghost(OrderedQueue[Message]().form)
    payloads = [b"%d" % number for number in range(2 * CHUNK_MAX + 5)]
    ghost.add_run(7, payloads)
    assert ghost.runs(-1, len(payloads)) == [Run(7, tuple(payloads))]
    assert (ghost.count, ghost.high) == (len(payloads), 6 + len(payloads))
    assert ghost.remove_through(6 + CHUNK_MAX) == CHUNK_MAX
    assert (ghost.least(), ghost.count) == (7 + CHUNK_MAX, CHUNK_MAX + 5)
    assert ghost.size_bytes == sum(map(len, payloads[CHUNK_MAX:]))
