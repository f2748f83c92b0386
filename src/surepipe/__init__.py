"""Reliable-delivery pipes that compose, with guarantees that are computed."""

from surepipe.actors import DeadLetters, FaultyRoute, LocalRoute, Pipe, PipeNotice
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
    "CompositionError",
    "ConfigurationError",
    "DeadLetters",
    "FaultyRoute",
    "LocalRoute",
    "MisuseError",
    "NotConfirmed",
    "PayloadTooLarge",
    "Pipe",
    "PipeClosed",
    "PipeFull",
    "PipeNotice",
    "PipeStopped",
    "SurepipeError",
    "__version__",
]
