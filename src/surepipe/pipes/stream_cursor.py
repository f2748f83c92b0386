"""The cursor of a stream's reader: a JSON list of what its commit takes, and the stream's incarnation."""

from __future__ import annotations

import json
from typing import TypeGuard, cast

from surepipe.store_api import CommitPosition, Identity

_LENGTH = 9


def cursor_of(request: CommitPosition, incarnation: int) -> list[object]:
    """The cursor that stands for this commit. The state is not part of it: the cursor is part of the state."""
    anchor = request.anchor
    return [
        *(request.stream, request.reader, request.owner, request.tag, request.next),
        [anchor.producer, anchor.epoch, anchor.seq] if anchor else None,
        *(request.previous_tag, request.revision, incarnation),
    ]


def is_cursor(value: object) -> TypeGuard[list[object]]:
    """True for what ``cursor_of`` made."""
    return isinstance(value, list) and len(cast("list[object]", value)) == _LENGTH


def incarnation_in(cursor: list[object]) -> int:
    """The incarnation of the stream that was read."""
    return cast("int", cursor[-1])


def commit_in(cursor: list[object], state: bytes) -> CommitPosition:
    """The commit that a cursor stands for, with this state."""
    stream, reader, owner, tag, index, anchor, previous_tag, revision, _ = cast(
        "tuple[str, str, int, int, int, list[object] | None, int | None, int, int]", cursor
    )
    found = Identity(*cast("tuple[str, int, int]", anchor)) if anchor else None
    return CommitPosition(stream, reader, owner, tag, index, found, state, previous_tag, revision)


def commit_of(state: bytes) -> CommitPosition:
    """The commit that stores the state of a stack over a stream: its position, with the state in it.

    A host that stores states itself (boundary ``before``, ``committed``, or a durable ``processed``) makes this
    request of each ``SaveState`` and of ``state_after``, and executes it, in the transaction of the effect where
    the boundary is ``committed``. Committed means stored; Fenced means that a later owner reads now.
    Raises ValueError for a state of a stack without a stream.
    """
    cursors = cast("list[object]", json.loads(state))
    innermost = cursors[-1] if cursors else None
    if not is_cursor(innermost):
        raise ValueError("this state has no position in a stream: its stack does not end in one")
    return commit_in(innermost, state)
