"""Which commit may take the place of a stored position: the rule that every store keeps (S-9)."""

from __future__ import annotations

from surepipe.store_api import CommitPosition, Position


def may_replace(stored: Position, request: CommitPosition) -> bool:
    """Whether a commit by the reader's owner is stored over a position that is there.

    A commit that was given up may be executed late, after newer ones of the same owner. It can't take the index
    back; where the index is the same, its lower revision keeps it from taking the state back.
    """
    if stored.tag != request.tag:
        return request.previous_tag == stored.tag
    if request.next != stored.next:
        return request.next > stored.next
    return stored.owner != request.owner or request.revision >= stored.revision
