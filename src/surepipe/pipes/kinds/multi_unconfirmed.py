"""multi-unconfirmed: at-least-once with a window of messages in flight; no order.

Like resend, with many runs on the way at once, so that throughput does not depend on the round trip. It needs a
fair way back. Messages arrive in any order and perhaps several times. The span from the oldest unconfirmed
message to the newest is bounded: one message that stays unsettled stops the sender ``window`` messages later.
"""

from __future__ import annotations

from typing import ClassVar

from surepipe.pipes.retry.confirming import ConfirmingReceiver
from surepipe.pipes.retry.engine import RetrySender


class Sender(RetrySender):
    """Transmits while the window and the receiver's limit allow; each run has a deadline of its own.

    A message that is given up leaves no hole for this pipe, as it promises no order: it goes on.
    """

    takes_nacks: ClassVar[bool] = True
    stops_when_unanswered: ClassVar[bool] = False


class Receiver(ConfirmingReceiver):
    """Delivers as frames arrive. What was settled is remembered to be confirmed, never to drop a repeat."""

    ordered: ClassVar[bool] = False
    names_holes: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    confirms_units: ClassVar[bool] = False
