"""Which of the numbers that pipes give are gauges."""

from __future__ import annotations

GAUGES = frozenset(
    {
        *("backlog", "backlog_bytes", "held", "held_bytes", "in_flight", "in_flight_bytes"),
        *("in_work", "in_work_bytes", "lag", "loaded", "oldest_unconfirmed_us", "rto_us"),
    }
)
"""What may fall as well as rise; everything else that a pipe counts only rises."""
