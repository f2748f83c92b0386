"""The stage of ``pipeline.yaml``."""

from __future__ import annotations

from collections.abc import Mapping


def book(order: Mapping[str, object]) -> dict[str, object]:
    """The order as it is booked."""
    return {**order, "booked": True}
