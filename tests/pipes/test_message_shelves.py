"""The row under every queue in memory: what it costs to cut, and what it keeps in order."""

from __future__ import annotations

from random import Random
from typing import SupportsIndex

from surepipe.pipes.message_queue import BoundedQueue
from surepipe.pipes.message_queue.queues import CHUNK_MAX, KeyedValues


class CountsMoves(list[int]):
    """Counts the entries that a deletion in front of them makes move."""

    moved = 0

    def __delitem__(self, key: SupportsIndex | slice) -> None:
        super().__delitem__(key)
        self.moved += len(self)


def test_cutting_costs_what_is_removed_however_much_is_left() -> None:
    """One by one out of 10,000; no more moves than removals in all."""
    row: KeyedValues[str] = KeyedValues()
    keys = CountsMoves()
    row.keys = keys
    for key in range(10_000):
        row.put(key, "value")
    for removed in range(1, 10_000):
        row.cut(1)
        assert keys.moved <= removed
    assert [row.keys[row.start], len(row)] == [9_999, 1]


def test_a_row_stays_in_order_whatever_is_put_and_cut() -> None:
    """Seeded puts anywhere above what was cut, against a sorted list."""
    random = Random(4)
    row: KeyedValues[int] = KeyedValues()
    model: list[int] = []
    for _ in range(3_000):
        key = random.randrange(1_000)
        if key not in model:
            row.put(key, -key)
            model = sorted([*model, key])
        if random.random() < 0.2:
            count = random.randrange(len(model) // 2 + 1)
            row.cut(count)
            del model[:count]
        assert row.keys[row.start :] == model
        assert row.values[row.start :] == [-key for key in model]
        below = [key for key in model if key <= 500]
        assert row.place_of(500) == row.start + len(below) - 1


def test_a_queue_of_one_long_run_is_kept_in_chunks() -> None:
    """Cutting the front of a chunk moves at most a chunk: single messages must not make it longer."""
    queue = BoundedQueue(increasing=True)
    for number in range(0, 5 * CHUNK_MAX, 4):
        queue.enqueue_run(number, [b"a", b"b", b"c"])
        queue.enqueue_run(number + 3, [b"d"])
    assert len(queue.pick_runs(10**6)) == 1
    removed = [queue.delete_all(number) for number in range(5 * CHUNK_MAX)]
    assert removed == [1] * (5 * CHUNK_MAX)
