"""Reliable-delivery pipes that compose, with guarantees that are computed."""

from surepipe.actors import (
    Channel,
    ChannelFace,
    DeadLetters,
    FaultyRoute,
    Listener,
    LocalRoute,
    Pipe,
    PipeNotice,
    StreamReceiver,
    StreamSender,
)
from surepipe.errors import (
    CompositionError,
    ConfigurationError,
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    PipeClosed,
    PipeFull,
    PipeStopped,
    SurepipeError,
)

__version__ = "0.1.0"

__all__ = [
    "Channel",
    "ChannelFace",
    "CompositionError",
    "ConfigurationError",
    "DeadLetters",
    "FaultyRoute",
    "Listener",
    "LocalRoute",
    "MisuseError",
    "NotConfirmed",
    "PayloadTooLarge",
    "Pipe",
    "PipeClosed",
    "PipeFull",
    "PipeNotice",
    "PipeStopped",
    "StreamReceiver",
    "StreamSender",
    "SurepipeError",
    "__version__",
]
