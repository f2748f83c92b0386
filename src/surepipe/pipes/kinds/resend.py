"""resend: at-least-once with the least state; one frame unconfirmed at a time.

Over a route that loses, repeats, reorders and delays, each message arrives, perhaps several times, and nothing
arrives before what was sent before it: order is gap-free. It needs a fair way back. A unit (one frame, up to
``run_max`` messages) travels again in one frame, because the tail of a unit cut in two could pass its lost
head; with ``run_max: 1`` order is also monotonic over a route that keeps order.
"""

from __future__ import annotations

from typing import ClassVar

from surepipe.pipes.declaration import (
    ONE_IN_FLIGHT,
    ONE_UNIT,
    REPEATS,
    RESENDS,
    RUNS_REPEAT,
    PipeKind,
    Reverse,
    row,
    set_to,
)
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.retry.confirming import ConfirmingReceiver
from surepipe.pipes.retry.engine import RetrySender


class Resend(RetryOptions):
    """At-least-once with the least state: one frame unconfirmed at a time."""

    kind: ClassVar[str] = "resend"

    @property
    def span_max(self) -> int:
        """One frame is on the way."""
        return self.run_max


class Sender(RetrySender):
    """Idle, or Waiting for one unit; the deadline sends what is left of it again."""

    one_at_a_time: ClassVar[bool] = True


class Receiver(ConfirmingReceiver):
    """Keeps what is in work and nothing else, so a repeat of what was settled is delivered again."""

    ordered: ClassVar[bool] = True


PIPE = PipeKind(
    *(Resend, Sender, Receiver),
    declares=(
        row(
            Resend,
            (RESENDS, REPEATS, ONE_IN_FLIGHT, ONE_UNIT),
            when="run_max: 1",
            applies=set_to(run_max=1),
            reverse=Reverse.FAIR,
        ),
        row(Resend, (RESENDS, REPEATS, RUNS_REPEAT, ONE_UNIT), reverse=Reverse.FAIR),
    ),
    advised=3,
)
