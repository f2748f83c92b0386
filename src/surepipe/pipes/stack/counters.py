"""The names under which machines count, each with its meaning, and nothing else.

Each frame that is not accepted changes exactly one frame counter and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

FRAME_MEANING: Mapping[str, str] = {
    "malformed": "bytes that are no frame, or whose checksum does not fit",
    "foreign": "a frame of another pipe",
    "version": "a frame of another version of the format",
    "wrong_state": "a frame that has no meaning for this layer, or none now",
    "stale_link": "an answer to a link that was replaced",
    "stale_epoch": "a frame of an epoch that is over",
    "fenced": "a frame of a sender that a newer one has replaced",
    "impossible": "an answer about messages that were never sent",
    "repeated_confirm": "a confirm that says nothing new",
    "unknown_link": "a frame of a link that this receiver does not know; it asks the sender to open one",
    "late_answer": "an answer under a ticket that is unknown or was answered before",
}
"""Counters of frames and answers that were ignored."""

MESSAGE_MEANING: Mapping[str, str] = {
    "accepted": "taken from the application",
    "rejected": "not taken from the application, with a reason",
    "transmitted": "given to the carrier for the first time",
    "retransmitted": "given to the carrier again",
    "settled": "crossed the boundary, or stored as dead letters",
    "confirmed": "known to the sender as settled",
    "given_up": "past `give_up_after_s` without a confirm; handed to the sender's dead letters",
    "duplicate": "arrived again after they were passed on; dropped",
    "behind": "arrived behind the cursor of a strict-monotonic receiver; dropped",
    "in_work": "arrived again while the handler had them; answered with the first copy",
    "over_limit": "arrived when the receiver had no room; ignored, they come again",
    "too_old": "below what a dedupe receiver remembers; taken for seen",
    "conflict": "arrived under a number that is held with another payload; the first is kept",
    "missing": "passed over by a strict-monotonic receiver",
    "abandoned": "held when their epoch or link ended; dropped unconfirmed",
    "dead_lettered": "stored as dead letters",
}
"""Counters of messages."""

FRAME_COUNTERS = tuple(FRAME_MEANING)
MESSAGE_COUNTERS = tuple(MESSAGE_MEANING)


def fresh_counters() -> dict[str, int]:
    """All counters at zero."""
    return dict.fromkeys(FRAME_COUNTERS + MESSAGE_COUNTERS, 0)
