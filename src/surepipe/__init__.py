"""Reliable-delivery pipes that compose, with guarantees that are computed.

What runs pipes is imported when it is first asked for, so that commands which run none start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surepipe.errors import (
    CompositionError,
    ConfigurationError,
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    PipeClosed,
    PipeFull,
    PipeStopped,
    StacksDiffer,
    SurepipeError,
)

if TYPE_CHECKING:
    from surepipe.actors import (
        AsyncChannel,
        AsyncPipe,
        AsyncReceiver,
        AsyncSender,
        AsyncStreamReceiver,
        Channel,
        ChannelFace,
        DeadLetters,
        FaultyRoute,
        Listener,
        LocalRoute,
        MutualTls,
        Pipe,
        PipeNotice,
        PipeReceiver,
        PipeSender,
        Reply,
        SharedKey,
        StreamReceiver,
        StreamSender,
        TcpRoute,
    )


__version__ = "0.1.0"

__all__ = [
    "AsyncChannel",
    "AsyncPipe",
    "AsyncReceiver",
    "AsyncSender",
    "AsyncStreamReceiver",
    "Channel",
    "ChannelFace",
    "CompositionError",
    "ConfigurationError",
    "DeadLetters",
    "FaultyRoute",
    "Listener",
    "LocalRoute",
    "MisuseError",
    "MutualTls",
    "NotConfirmed",
    "PayloadTooLarge",
    "Pipe",
    "PipeClosed",
    "PipeFull",
    "PipeNotice",
    "PipeReceiver",
    "PipeSender",
    "PipeStopped",
    "Reply",
    "SharedKey",
    "StacksDiffer",
    "StreamReceiver",
    "StreamSender",
    "SurepipeError",
    "TcpRoute",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Imports the actors when one of their names is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from surepipe import actors  # noqa: PLC0415 - takes half a second, and commands do without

    value: object = getattr(actors, name)
    globals()[name] = value
    return value
