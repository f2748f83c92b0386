"""What a member of a log is built with, and whether it writes."""

from __future__ import annotations

from enum import Enum

from surepipe.core.records import record
from surepipe.errors import ConfigurationError

FRAME_BYTES_MAX = 1 << 20
"""A frame holds less, or one item."""


@record
class LogOptions:
    """Bounds and delays. The first five are agreed between all members, the others each node's own."""

    deps_max: int = 8
    entry_bytes_max: int = 65_536
    height_max: int = 50_000
    height_reserve: int = 2_000
    """The last heights carry no bulk records, so that a session can always be ended."""
    bulk: frozenset[str] = frozenset({"external", "handed_over"})
    """Kinds of records that a full log takes no more of."""
    entry_delay_us: int = 20_000
    ack_delay_us: int = 200_000
    sync_every_us: int = 500_000
    sync_cap: int = 100
    pull_max: int = 16
    pull_timeout_us: int = 2_000_000
    waiting_max: int = 1_000
    waiting_bytes_max: int = 16 << 20
    outbox_max: int = 10_000
    pace_us: int = 0
    """The time for one own entry, over a while, so that heights last as long as the session; 0: no bound."""

    def __post_init__(self) -> None:
        if self.height_reserve * 2 >= self.height_max:
            raise ConfigurationError(
                f"height_reserve {self.height_reserve} is half of height_max {self.height_max} or more"
            )
        if self.deps_max < 1 or self.entry_bytes_max < 4096:
            raise ConfigurationError(
                f"deps_max {self.deps_max} is below 1, or entry_bytes_max {self.entry_bytes_max} below 4096"
            )


class Voice(Enum):
    """Whether a member writes."""

    ASKING = "asking"
    """Not before a quorum has shown what it had written before."""
    SPEAKING = "speaking"
    SILENT = "silent"
    """It observes: it may have forgotten what it signed, or others write under its name."""
    ENDED = "ended"
    """Another process of this node has taken over."""
