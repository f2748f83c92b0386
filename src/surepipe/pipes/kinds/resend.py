"""resend: at-least-once with the least state; one frame unconfirmed at a time.

Over a route that loses, repeats, reorders and delays, each message arrives, perhaps several times, and nothing
arrives before what was sent before it: order is gap-free. It needs a fair way back. A unit (one frame, up to
``run_max`` messages) travels again in one frame, because the tail of a unit cut in two could pass its lost
head; with ``run_max: 1`` order is also monotonic over a route that keeps order.
"""

from __future__ import annotations

from typing import ClassVar

from surepipe.pipes.retry.confirming import ConfirmingReceiver
from surepipe.pipes.retry.engine import RetrySender


class Sender(RetrySender):
    """Idle, or Waiting for one unit; the deadline sends what is left of it again."""

    one_at_a_time: ClassVar[bool] = True


class Receiver(ConfirmingReceiver):
    """Keeps what is in work and nothing else, so a repeat of what was settled is delivered again."""

    ordered: ClassVar[bool] = True
