"""Positions, sets, tallies and notes against their plain meaning, by random operations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from surepipe.audit.properties.coverage import Notes, Positions, Reached, Tally

runs = st.tuples(st.integers(1, 30), st.integers(0, 6)).map(lambda run: (run[0], sum(run)))
identities = st.tuples(st.integers(1, 3), runs)


@given(st.lists(runs, max_size=20), runs)
def test_a_set_that_grows_at_its_end_is_a_set(
    added: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    """Contains, covers, within, missing, count and is-new against a set of numbers."""
    reached, plain = Reached(), set[int]()
    for first, last in added:
        reached.add(first, last)
        plain |= set(range(first, last + 1))
    numbers = range(asked[0], asked[1] + 1)
    assert [n in reached for n in range(40)] == [n in plain for n in range(40)]
    assert reached.covers(*asked) == all(n in plain for n in numbers)
    assert reached.count() == len(plain)
    assert reached.is_new(asked[0]) == all(n < asked[0] for n in plain)
    held = {n for first, last in reached.within(*asked) for n in range(first, last + 1)}
    holes = {n for first, last in reached.missing(*asked) for n in range(first, last + 1)}
    assert held == plain & set(numbers)
    assert holes == set(numbers) - plain


@given(st.lists(runs, max_size=20))
def test_a_tally_counts_the_runs_that_cover_a_number(added: list[tuple[int, int]]) -> None:
    """Against counting them one by one."""
    tally = Tally()
    for run in added:
        tally.add(*run)
    for number in range(40):
        assert tally.of(number) == sum(first <= number <= last for first, last in added)


@given(st.lists(st.tuples(runs, st.integers(0, 3)), max_size=20))
def test_the_first_note_of_a_number_stands(noted: list[tuple[tuple[int, int], int]]) -> None:
    """Later notes fill only the holes."""
    notes, plain = Notes[int](), dict[int, int]()
    for (first, last), value in noted:
        notes.note(first, last, value)
        for number in range(first, last + 1):
            plain.setdefault(number, value)
    assert [notes.of(number) for number in range(40)] == [plain.get(n) for n in range(40)]


@given(
    st.lists(st.tuples(identities, st.none() | st.tuples(st.integers(4, 5), st.integers(1, 20))))
)
def test_positions_count_acceptance_and_follow_a_message_to_its_new_identity(
    steps: list[tuple[tuple[int, tuple[int, int]], tuple[int, int] | None]],
) -> None:
    """Accepting again numbers nothing anew, moving keeps the position (pipes V-1, L-5)."""
    positions, plain = Positions(), dict[tuple[int, int], int]()
    for (epoch, (first, last)), target in steps:
        if target is None:
            positions.add(epoch, first, last - first + 1)
            for seq in range(first, last + 1):
                plain.setdefault((epoch, seq), len(set(plain.values())) + 1)
        else:
            positions.move(epoch, first, last - first + 1, *target)
            for seq in range(first, last + 1):
                if (epoch, seq) in plain:
                    plain.setdefault((target[0], target[1] + seq - first), plain[epoch, seq])
    assert positions.count == len(set(plain.values()))
    for epoch in range(1, 6):
        found = {
            seq + offset: position + offset
            for seq, position, count in positions.find(epoch, 1, 60)
            for offset in range(count)
            if position
        }
        assert found == {seq: place for (one, seq), place in plain.items() if one == epoch}
