"""A stage that looks right, and passes its test."""

from __future__ import annotations

from itertools import count
from typing import Any

numbers = count(1)


def invoice(order: dict[str, Any]) -> dict[str, Any]:
    """Give each order the next invoice number."""
    return {**order, "invoice": next(numbers)}
