"""The ledger of a stream's receiver: identities on one side, indexes on the other."""

from __future__ import annotations

from surepipe.core.store_requests import Entries, Identity
from surepipe.pipes.stream.work import StreamWork


def entries(index: int, producer: str, epoch: int, first: int, count: int) -> Entries:
    """A run whose payloads do not matter."""
    return Entries(index, producer, epoch, first, [b"x"] * count)


def taken(*runs: Entries) -> StreamWork:
    """A ledger from index 1 on that has taken these runs."""
    work = StreamWork()
    for run in runs:
        work.take(run)
    return work


def test_settled_prefixes_move_the_position_and_name_the_entry_before_it() -> None:
    """S-12: across runs of two epochs; an answer in parts moves it in parts."""
    work = taken(entries(1, "p", 1, 5, 3), entries(4, "p", 2, 1, 2))
    assert work.settle(("p", 1), 5, 6)
    assert (work.next, work.anchor, work.unanswered) == (3, Identity("p", 1, 6), 3)
    assert not work.settle(("p", 2), 1, 1)
    assert work.next == 3
    assert work.settle(("p", 1), 7, 7)
    assert (work.next, work.anchor, work.unanswered) == (5, Identity("p", 2, 1), 1)


def test_an_answer_that_spans_two_runs_settles_both() -> None:
    """K-2: the boundary may have joined what two appends stored."""
    work = taken(entries(1, "p", 1, 1, 2), entries(3, "p", 1, 3, 2))
    assert work.settle(("p", 1), 1, 4)
    assert (work.next, work.unanswered, len(work.runs)) == (5, 0, 0)


def test_an_answer_means_one_entry_where_producers_have_epochs_of_one_number() -> None:
    """K-2: p, q and r all say "epoch 1, number 1"; each answer finds its own, and refused is only q's."""
    work = taken(*(entries(index, name, 1, 1, 1) for index, name in enumerate("pqr", 1)))
    assert not work.settle(("r", 1), 1, 1)
    work.refuse(("q", 1), 1, 1)
    assert work.position_with(("q", 1), ((1, 1),)) == (1, None)
    assert work.position_with(("p", 1), ((1, 1),)) == (2, Identity("p", 1, 1))
    assert work.settle(("p", 1), 1, 1)
    assert (work.next, work.anchor, work.unanswered) == (2, Identity("p", 1, 1), 0)


def test_the_position_to_come_counts_what_is_settled_above_the_hole() -> None:
    """K-3: ``also`` closes the hole, so the position jumps over all that was settled before."""
    work = taken(entries(1, "p", 1, 1, 5))
    work.settle(("p", 1), 3, 4)
    assert work.position_with(("p", 1), ((1, 1),)) == (2, Identity("p", 1, 1))
    assert work.position_with(("p", 1), ((1, 2),)) == (5, Identity("p", 1, 4))
    assert work.position_with(("p", 9), ((1, 2),)) == (1, None)
    assert work.next == 1, "asking changes nothing"


def test_memory_follows_the_holes_and_not_the_messages() -> None:
    """P-9: what is below the position is forgotten."""
    work = StreamWork()
    for index in range(1, 1001):
        work.take(entries(index, "p", 1, index, 1))
        work.settle(("p", 1), index, index)
    assert (len(work.runs), work.settled_above.count(), work.said) == (0, 0, {})


def test_taken_again_only_the_parts_that_are_not_settled_are_handed_up() -> None:
    """K-2: after a refusal in the middle."""
    work = taken(entries(1, "p", 1, 1, 5))
    work.settle(("p", 1), 2, 2)
    work.settle(("p", 1), 4, 4)
    work.refuse(("p", 1), 1, 1)
    work.refuse(("p", 1), 3, 3)
    work.refuse(("p", 1), 5, 5)
    work.drop_runs()
    again = work.take(entries(1, "p", 1, 1, 5))
    assert [(part.index, part.first, len(part.payloads)) for part in again] == [
        (1, 1, 1),
        (3, 3, 1),
        (5, 5, 1),
    ]
    assert work.unanswered == 3
