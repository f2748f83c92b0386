"""Reliable-delivery pipes that compose, with guarantees that are computed."""

__version__ = "0.1.0"

__all__ = ["__version__"]
