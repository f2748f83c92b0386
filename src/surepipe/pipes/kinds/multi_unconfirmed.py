"""multi-unconfirmed: at-least-once with a window of messages in flight; no order.

Like resend, with many runs on the way at once, so that throughput does not depend on the round trip. It needs a
fair way back. Messages arrive in any order and perhaps several times. The span from the oldest unconfirmed
message to the newest is bounded: one message that stays unsettled stops the sender ``window`` messages later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from surepipe.pipes.declaration import (
    ABSENT,
    N_AND_G,
    REPEATS,
    RESENDS,
    PipeKind,
    Provision,
    Reverse,
    row,
)
from surepipe.pipes.options import LayerPlace, Misfit, RetryOptions
from surepipe.pipes.retry.confirming import ConfirmingReceiver
from surepipe.pipes.retry.engine import RetrySender


class MultiUnconfirmed(RetryOptions):
    """At-least-once with a window of messages in flight; no order."""

    kind: ClassVar[str] = "multi-unconfirmed"

    def misfits(self, place: LayerPlace) -> Iterator[Misfit]:
        """Outermost, nothing above it puts back into order what a receiver short of bytes lets pass."""
        if place.number == 0 and self.held_max_bytes < self.window_bytes:
            yield Misfit(
                "bounds",
                f"{place.label} may have {self.window_bytes} bytes under way and its receiver has room for "
                f"{self.held_max_bytes}, so small messages would pass a large one that found no room",
                (
                    f"raise receive_window_bytes to {self.window_bytes}",
                    f"lower window_bytes to {self.held_max_bytes}",
                ),
            )


class Sender(RetrySender):
    """Transmits while the window and the receiver's limit allow; each run has a deadline of its own.

    A message that is given up leaves no hole for this pipe, as it promises no order: it goes on.
    """

    takes_nacks: ClassVar[bool] = True
    stops_when_unanswered: ClassVar[bool] = False


class Receiver(ConfirmingReceiver):
    """Delivers as frames arrive. What was settled is remembered to be confirmed, never to drop a repeat."""

    ordered: ClassVar[bool] = False
    answers_each: ClassVar[bool] = True
    names_holes: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    confirms_units: ClassVar[bool] = False


PIPE = PipeKind(
    *(MultiUnconfirmed, Sender, Receiver),
    declares=(
        row(
            MultiUnconfirmed,
            (
                RESENDS,
                REPEATS,
                Provision(ABSENT, "delivers as frames arrive, re-sent ones late"),
                Provision(N_AND_G, "delivers as frames arrive, past those that are still missing"),
            ),
            reverse=Reverse.FAIR,
        ),
    ),
    advised=2,
)
