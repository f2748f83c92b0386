"""Where the columns and rows of a picture are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surepipe.simulation.report.picture.shapes import Box

CROSS_SHARE = 0.36
"""How far along its first gap a lost frame gets; words stand beside its cross."""


@dataclass(frozen=True, slots=True)
class RowPlace:
    """One row: ``y`` is where arrows begin and end, ``ground`` the end of its cells."""

    y: float
    ground: float
    box: Box


@dataclass(frozen=True, slots=True)
class Grid:
    """The lines of the nodes and the rows of the steps."""

    xs: tuple[float, ...]
    lanes: Mapping[str, int]
    rows: tuple[RowPlace, ...]
    width: float

    def x(self, node: str) -> float | None:
        """Where the line of a node is."""
        lane = self.lanes.get(node)
        return None if lane is None else self.xs[lane]
