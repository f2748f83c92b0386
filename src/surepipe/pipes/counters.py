"""The names under which machines count, and nothing else.

Each frame that is not accepted changes exactly one frame counter and nothing else.
"""

from __future__ import annotations

FRAME_COUNTERS = (
    "malformed",
    "foreign",
    "version",
    "wrong_state",
    "stale_link",
    "stale_epoch",
    "fenced",
    "impossible",
    "repeated_confirm",
    "unknown_link",
    "late_answer",
)

MESSAGE_COUNTERS = (
    "accepted",
    "rejected",
    "transmitted",
    "retransmitted",
    "settled",
    "confirmed",
    "given_up",
    "duplicate",
    "behind",
    "in_work",
    "over_limit",
    "too_old",
    "conflict",
    "missing",
    "abandoned",
    "dead_lettered",
)


def fresh_counters() -> dict[str, int]:
    """All counters at zero."""
    return dict.fromkeys(FRAME_COUNTERS + MESSAGE_COUNTERS, 0)
