"""What the parts of a node count: numbers that only rise, by part and by what is counted."""

from __future__ import annotations

import threading
from collections.abc import Mapping


class Tallies:
    """Counts of the parts that are no pipes. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, part: str, what: str, count: int = 1) -> None:
        """Count so many more."""
        with self._lock:
            counts = self._counts.setdefault(part, {})
            counts[what] = counts.get(what, 0) + count

    def all(self) -> Mapping[str, Mapping[str, int]]:
        """How it stands now."""
        with self._lock:
            return {part: dict(counts) for part, counts in self._counts.items()}

    def clear(self) -> None:
        """Begin to count anew: what was counted is told elsewhere."""
        with self._lock:
            self._counts.clear()
