"""What is logged of a store that can't do what it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.core.store_requests import Failed, Unavailable, said_of
from surepipe.storage import MemoryStore, SqliteStore
from surepipe.storage.complaints import AGAIN_S, Complaints


def test_a_reason_is_told_once_and_again_after_a_long_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each reason by itself: the one does not hide the other, nor bring it up again (F30)."""
    times = iter([0.0, 0.0, 1.0, AGAIN_S - 1, AGAIN_S])
    complaints = Complaints(lambda: next(times))
    for reason in ("full", "locked", "full", "locked"):
        complaints.hear(f"main.db: {reason}")
    assert len(caplog.records) == 2
    complaints.hear("main.db: full")
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        *("full", "locked", "full")
    ]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_stream_that_is_not_there_is_named_once(kind: str, tmp_path: Path) -> None:
    """By a store, in whose answer it stands, and by whoever tells of that answer; no Python is shown."""
    with MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "m.db") as store:
        outcome = store.read("orders", 1, 10, 1_000)
    assert isinstance(outcome, Failed)
    assert said_of("stream", "orders", outcome) == (
        "stream 'orders': does not exist; create it first, or if it was there before, the store was emptied "
        "and what it held is lost"
    )
    assert said_of("dead letters", "orders", Unavailable()) == "dead letters 'orders': no answer"
    assert said_of("stream", "orders", Failed("stream 'orders': full")) == "stream 'orders': full"
