"""How a replayed letter carries how often it was replayed: in front of its payload, between the codecs.

A mark is the bytes 0x1E 0x12, the number in decimal, and 0x1E. No JSON begins like that. Other payloads that do
get a mark with number 0 in front, so every payload is read as it was meant. A message that nobody replayed travels
without one.
"""

from __future__ import annotations

import re

_START = b"\x1e\x12"
_MARK = re.compile(rb"\x1e\x12(\d{1,9})\x1e")


def guarded(payload: bytes) -> bytes:
    """The payload as it may travel: with a mark of 0 when it could be taken for a marked one."""
    return marked(payload, 0) if payload.startswith(_START) else payload


def marked(payload: bytes, replays: int) -> bytes:
    """A payload, without a mark of its own, that says how often it was replayed."""
    return b"%b%d\x1e%b" % (_START, replays, payload)


def unmarked(payload: bytes) -> tuple[bytes, int]:
    """The payload without its mark, and how often it was replayed."""
    if not payload.startswith(_START):
        return payload, 0
    found = _MARK.match(payload)
    return (payload[found.end() :], int(found[1])) if found else (payload, 0)
