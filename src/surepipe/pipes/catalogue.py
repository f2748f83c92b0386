"""The pipes by kind: which classes make the two halves of a layer."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from surepipe.machines import Randomness
from surepipe.pipes.layers import ReceiverLayer, ReceiverPort, SenderLayer, SenderPort
from surepipe.pipes.options import LayerOptions


def sender_layer(options: LayerOptions, port: SenderPort, rng: Randomness) -> SenderLayer:
    """The sending half of a layer."""
    module: Any = import_module(f"surepipe.pipes.{options.kind.replace('-', '_')}")
    return module.Sender(options, port, rng)


def receiver_layer(options: LayerOptions, port: ReceiverPort, rng: Randomness) -> ReceiverLayer:
    """The receiving half of a layer."""
    module: Any = import_module(f"surepipe.pipes.{options.kind.replace('-', '_')}")
    return module.Receiver(options, port, rng)
