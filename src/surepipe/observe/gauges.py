"""Which of the numbers that pipes and engines give are gauges."""

from __future__ import annotations

GAUGES = frozenset(
    {
        *("backlog", "backlog_bytes", "held", "held_bytes", "in_flight", "in_flight_bytes"),
        *("in_work", "in_work_bytes", "lag", "loaded", "oldest_unconfirmed_us", "rto_us"),
        *("lanes", "lanes_busy"),
        *("rows_per_s", "batch_us", "state_rows", "state_bytes"),
    }
)
"""What may fall as well as rise; everything else that is counted only rises."""
