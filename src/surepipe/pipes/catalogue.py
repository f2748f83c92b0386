"""The pipes by kind: which classes make the two halves of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from surepipe.machines import Randomness
from surepipe.pipes import (
    continuous_index,
    dedupe,
    multi_unconfirmed,
    reliable,
    resend,
    sequential_confirm,
    stream,
    strict_monotonic,
)
from surepipe.pipes.layers import ReceiverLayer, ReceiverPort, SenderLayer, SenderPort
from surepipe.pipes.options import LayerOptions

# Each half takes the options of its own kind, which the kind it is filed under makes sure of.
_SENDERS: Mapping[str, Callable[..., SenderLayer]] = {
    "resend": resend.Sender,
    "multi-unconfirmed": multi_unconfirmed.Sender,
    "stream": stream.Sender,
    "sequential-confirm": sequential_confirm.Sender,
    "strict-monotonic": strict_monotonic.Sender,
    "continuous-index": continuous_index.Sender,
    "dedupe": dedupe.Sender,
    "reliable": reliable.Sender,
}
_RECEIVERS: Mapping[str, Callable[..., ReceiverLayer]] = {
    "resend": resend.Receiver,
    "multi-unconfirmed": multi_unconfirmed.Receiver,
    "stream": stream.Receiver,
    "sequential-confirm": sequential_confirm.Receiver,
    "strict-monotonic": strict_monotonic.Receiver,
    "continuous-index": continuous_index.Receiver,
    "dedupe": dedupe.Receiver,
    "reliable": reliable.Receiver,
}


def sender_layer(options: LayerOptions, port: SenderPort, rng: Randomness) -> SenderLayer:
    """The sending half of a layer."""
    return _SENDERS[options.kind](options, port, rng)


def receiver_layer(options: LayerOptions, port: ReceiverPort, rng: Randomness) -> ReceiverLayer:
    """The receiving half of a layer."""
    return _RECEIVERS[options.kind](options, port, rng)
