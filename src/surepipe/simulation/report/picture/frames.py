"""Arrows for frames: those that arrive, die on the way, are copied, or are still on their way at the end."""

from __future__ import annotations

from surepipe.simulation.report.picture.grid import CROSS_SHARE, Grid
from surepipe.simulation.report.picture.shapes import Dot, Path, Point, Shape
from surepipe.simulation.report.story import Arrow, Fate

CROSS = 7


def arrow_shapes(arrow: Arrow, grid: Grid) -> list[Shape]:
    """Everything that shows one frame; nothing for a frame to somewhere outside the picture."""
    source, target = grid.x(arrow.source), grid.x(arrow.target)
    if source is None or target is None or source == target:
        return []
    start: Point = (source, grid.rows[arrow.begin].y)
    end: Point = (target, grid.rows[arrow.end].y)
    style = " ".join(
        (
            "frame",
            *(["control"] if arrow.is_control else []),
            *(["focus"] if arrow.is_focus else []),
        )
    )
    fork: list[Shape] = []
    if arrow.fork >= 0:
        start = _fork_point(start, end, grid.rows[arrow.fork].y)
        fork = [Dot(start, style)]
    if arrow.fate is Fate.ARRIVED:
        return [*fork, Path((start, end), style, head=True)]
    if arrow.fate is Fate.LOST:
        place = (_dies(source, target, grid), end[1])
        return [*fork, Path((start, place), style), *cross(place, style)]
    half = (start[0] + (end[0] - start[0]) * 0.45, max(end[1], start[1] + 10))
    return [*fork, Path((start, half), f"{style} flying")]


def _fork_point(start: Point, end: Point, height: float) -> Point:
    """On the way of the original, at the height of the step that copied it."""
    return (start[0] + (end[0] - start[0]) * 0.28, max(start[1] + 4, min(height, end[1] - 8)))


def _dies(source: float, target: float, grid: Grid) -> float:
    """In the first gap on its way, where the words beside the cross have room."""
    passed = [x for x in grid.xs if min(source, target) <= x <= max(source, target)]
    left, right = (passed[0], passed[1]) if target > source else (passed[-2], passed[-1])
    return left + (right - left) * CROSS_SHARE


def cross(at: Point, style: str = "frame") -> list[Shape]:
    """Here something is lost."""
    x, y = at
    strokes = f"cross{' focus' if 'focus' in style else ''}"
    return [
        Path(((x - CROSS, y - CROSS), (x + CROSS, y + CROSS)), strokes),
        Path(((x - CROSS, y + CROSS), (x + CROSS, y - CROSS)), strokes),
    ]
