"""Reliable-delivery pipes that compose, with guarantees that are computed.

What runs pipes is imported when it is first asked for, so that commands which run none start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from surepipe.errors import (
    CompositionError,
    ConfigurationError,
    Fenced,
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    PipeClosed,
    PipeFull,
    PipeStopped,
    StacksDiffer,
    StoreReset,
    StoreUnavailable,
    SurepipeError,
)

if TYPE_CHECKING:
    from surepipe.actors import (
        AsyncBook,
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
        ServedBook,
        SharedKey,
        StreamReceiver,
        StreamSender,
        TcpRoute,
    )
    from surepipe.core.store_requests import Retention
    from surepipe.pipes.catalogue import LayerText
    from surepipe.pipes.kinds.continuous_index import ContinuousIndex
    from surepipe.pipes.kinds.dedupe import Dedupe
    from surepipe.pipes.kinds.multi_unconfirmed import MultiUnconfirmed
    from surepipe.pipes.kinds.reliable import Reliable
    from surepipe.pipes.kinds.resend import Resend
    from surepipe.pipes.kinds.sequential_confirm import SequentialConfirm
    from surepipe.pipes.kinds.strict_monotonic import StrictMonotonic
    from surepipe.pipes.stream.options import Stream
    from surepipe.storage import DeadLetterStream, MemoryStore, RedisStore, SqliteStore


__version__ = "0.1.0"

__all__ = [
    "AsyncBook",
    "AsyncChannel",
    "AsyncPipe",
    "AsyncReceiver",
    "AsyncSender",
    "AsyncStreamReceiver",
    "Channel",
    "ChannelFace",
    "CompositionError",
    "ConfigurationError",
    "ContinuousIndex",
    "DeadLetterStream",
    "DeadLetters",
    "Dedupe",
    "FaultyRoute",
    "Fenced",
    "LayerText",
    "Listener",
    "LocalRoute",
    "MemoryStore",
    "MisuseError",
    "MultiUnconfirmed",
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
    "RedisStore",
    "Reliable",
    "Reply",
    "Resend",
    "Retention",
    "SequentialConfirm",
    "ServedBook",
    "SharedKey",
    "SqliteStore",
    "StacksDiffer",
    "StoreReset",
    "StoreUnavailable",
    "Stream",
    "StreamReceiver",
    "StreamSender",
    "StrictMonotonic",
    "SurepipeError",
    "TcpRoute",
    "__version__",
]


_FROM = {
    "LayerText": "surepipe.pipes.catalogue",
    **dict.fromkeys(
        ("DeadLetterStream", "MemoryStore", "RedisStore", "Retention", "SqliteStore"),
        "surepipe.storage",
    ),
    "ContinuousIndex": "surepipe.pipes.kinds.continuous_index",
    "Dedupe": "surepipe.pipes.kinds.dedupe",
    "MultiUnconfirmed": "surepipe.pipes.kinds.multi_unconfirmed",
    "Reliable": "surepipe.pipes.kinds.reliable",
    "Resend": "surepipe.pipes.kinds.resend",
    "SequentialConfirm": "surepipe.pipes.kinds.sequential_confirm",
    "Stream": "surepipe.pipes.stream.options",
    "StrictMonotonic": "surepipe.pipes.kinds.strict_monotonic",
}


def __getattr__(name: str) -> object:
    """Imports what is asked for by name, and the actors for everything that runs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_FROM.get(name, "surepipe.actors")), name)
    globals()[name] = value
    return value
