"""Pages of the SQLite store: as few bytes as the messages need."""

from __future__ import annotations

from surepipe.storage.sqlite.streams import pages_of, payloads_of


def test_messages_of_one_length_need_no_lengths_beside_them() -> None:
    """P-12: a page of equal messages is their bytes; others have four bytes more for each."""
    (even,) = pages_of([b"ab", b"cd"])
    (uneven,) = pages_of([b"ab", b"c"])
    assert even.lengths is None
    assert uneven.lengths is not None
    assert len(uneven.lengths) == 8
    assert [*payloads_of(even), *payloads_of(uneven)] == [b"ab", b"cd", b"ab", b"c"]
