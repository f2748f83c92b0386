"""What is logged of a store that can't do what it is asked."""

from __future__ import annotations

import pytest

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
