"""When a message is settled, how often one that fails is tried, and the stored form of a receiver's state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from surepipe.core.effects import Letter
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError


class Boundary(StrEnum):
    """When a message is settled."""

    HANDED = "handed"
    BEFORE = "before"
    PROCESSED = "processed"
    COMMITTED = "committed"


LONGEST_S = 86_400 * 365

LANES_MAX = 256
"""Lanes of one receiver at the most: each is a thread."""


def require_count(name: str, value: object) -> None:
    """Raises ConfigurationError for what is neither None nor a whole number from 1."""
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigurationError(f"{name} is {value!r}: it must be a whole number from 1")


@dataclass(frozen=True, slots=True)
class BoundaryOptions:
    """How messages cross the boundary of a receiver. Times are seconds."""

    boundary: Boundary = Boundary.PROCESSED
    """when a message is settled"""
    durable: bool = False
    """whether the receiver's state is stored"""
    deliver_max: int = 1024
    """messages in one delivery at the most"""
    retries: int | None = None
    """attempts after which a message that fails becomes a dead letter; not given: tried for ever"""
    retry_min_s: float = 0.1
    """wait before a message that failed is tried again; doubles with each attempt"""
    retry_max_s: float = 30.0
    """longest such wait"""
    jitter: float = 0.1
    """random part of such a wait"""
    warn_after: int = 5
    """attempts after which Poison is noticed"""
    dead_letters: bool = False
    """whether there is a place for dead letters"""
    lanes: int = 0
    """how many messages, each of another key, are handled at once; 0: one delivery after the other"""

    @property
    def back_off(self) -> BackOff:
        """The waits before a message that failed, or a write of the receiver, is tried again."""
        return BackOff.of_seconds(self.retry_min_s, self.retry_max_s, self.jitter)

    def __post_init__(self) -> None:
        """Refuse what can't be meant. Raises ConfigurationError."""
        for name in ("retries", "deliver_max", "warn_after"):
            require_count(name, getattr(self, name))
        for name in ("retry_min_s", "retry_max_s"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < cast("float", value) < LONGEST_S:
                raise ConfigurationError(
                    f"{name} is {value!r}: it must be a number of seconds above 0"
                )
        self._require_lanes()
        if self.retry_min_s > self.retry_max_s:
            raise ConfigurationError(
                f"retry_min_s ({self.retry_min_s}) is above retry_max_s ({self.retry_max_s}); "
                "raise retry_max_s"
            )

    def _require_lanes(self) -> None:
        lanes: object = self.lanes
        if type(lanes) is not int or not 0 <= lanes <= LANES_MAX:
            raise ConfigurationError(
                f"lanes is {lanes!r}: it must be a whole number from 1 to {LANES_MAX}"
            )
        if lanes and self.boundary is not Boundary.PROCESSED:
            raise ConfigurationError(
                f"lanes settle messages when their handlers return, and boundary is {self.boundary}; "
                "use boundary processed or drop lanes"
            )


TEXT_KEPT = 100
"""Characters of an error's type and text that a state keeps."""


def encode_state(cursors: list[object], given_up: Sequence[Letter] = (), stack: str = "") -> bytes:
    """The stored form of the cursors of a stack, of which kinds it is made, and what was given up: canonical JSON.

    Letters stand there without their payloads, which their senders have; a state may be 64 KiB long at the most.
    """
    notes = [
        [
            *(letter.producer, letter.epoch, letter.seq, letter.attempts, letter.place),
            *(letter.error_type[:TEXT_KEPT], letter.error_text[:TEXT_KEPT]),
        ]
        for letter in given_up
    ]
    head: dict[str, object] = {"given_up": notes} if notes else {}
    if stack:
        head["stack"] = stack
    state = [head, *cursors] if head else cursors
    return json.dumps(state, separators=(",", ":"), sort_keys=True).encode()


def decode_state(state: bytes) -> list[object]:
    """The cursors in a stored state, outermost layer first."""
    found = cast("list[object]", json.loads(state))
    return found[1:] if _head_of(found) else list(found)


def stack_in(state: bytes) -> str:
    """The kinds of the stack that stored this; empty where an earlier version did."""
    return str(_head_of(json.loads(state)).get("stack", ""))


def given_up_in(state: bytes, pipe: str) -> list[Letter]:
    """What a stored state says was given up, oldest first: letters without payloads and times."""
    return [
        Letter(
            *(pipe, 0, epoch, seq, b"", attempts, 0, 0, kind, text),
            producer=producer,
            place=place,
        )
        for producer, epoch, seq, attempts, place, kind, text in _notes_in(json.loads(state))
    ]


def _notes_in(state: list[object]) -> list[tuple[str, int, int, int, str, str, str]]:
    return cast(
        "list[tuple[str, int, int, int, str, str, str]]", _head_of(state).get("given_up", [])
    )


def _head_of(state: list[object]) -> dict[str, object]:
    first = state[0] if state else None
    return cast("dict[str, object]", first) if isinstance(first, dict) else {}
