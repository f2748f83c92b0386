"""The lines of the nodes: broken by a crash until the restart, hatched while paused; and bands for partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from surepipe.simulation.report.picture.grid import Grid
from surepipe.simulation.report.picture.shapes import Area, Box, Dot, Path, Point, Shape
from surepipe.simulation.report.story import Story
from surepipe.simulation.report.words import fact, facts
from surepipe.simulation.trace import Kind, Row

CUT, HEAL = "cut", "heal"


def life_shapes(story: Story, grid: Grid, top: float) -> list[Shape]:
    """All lines of nodes with what happens to them."""
    bottom = grid.rows[-1].box.bottom + 6 if grid.rows else top
    shapes: list[Shape] = [*_bands(story, grid)]
    for node in story.nodes:
        shapes += _life(story, grid, node, top, bottom)
    return [*shapes, *_holds(story, grid, bottom)]


def _holds(story: Story, grid: Grid, bottom: float) -> Iterator[Shape]:
    """Where the message is while it is not on its way."""
    for held in story.held:
        x = grid.x(held.node)
        end = bottom if held.stays else grid.rows[held.end].y
        if x is not None and end > grid.rows[held.begin].y:
            yield Path(((x, grid.rows[held.begin].y), (x, end)), "holds")


def _life(story: Story, grid: Grid, node: str, top: float, bottom: float) -> Iterator[Shape]:
    x = grid.x(node) or 0.0
    alive, since, paused = True, top, -1.0
    for row, y in _rows_of(story, grid, node):
        if row.kind == Kind.CRASH and alive:
            yield Path(((x, since), (x, y)), "life")
            yield Path(zigzag(x, y), "crash")
            alive, since = False, y
        elif row.kind == Kind.START and not alive:
            yield Path(((x, since + 8), (x, y)), "life gone")
            yield Dot((x, y), "start")
            alive, since = True, y
        elif row.kind == Kind.PAUSE:
            paused = y
        elif row.kind == Kind.RESUME and paused >= 0:
            yield _pause(x, paused, y)
            paused = -1.0
    if paused >= 0:
        yield _pause(x, paused, bottom)
    yield Path(((x, since if alive else since + 8), (x, bottom)), "life" if alive else "life gone")


def _rows_of(story: Story, grid: Grid, node: str) -> Iterator[tuple[Row, float]]:
    """The rows of a node with their heights; those of folded steps too."""
    for step, place in zip(story.steps, grid.rows, strict=True):
        for row in step.rows or step.hidden:
            if row.node == node:
                yield row, place.y


def zigzag(x: float, y: float) -> tuple[Point, ...]:
    """The sign of a crash."""
    return tuple((x - 10 + 4 * n, y + (-7 if n % 2 else 7)) for n in range(6))


def _pause(x: float, top: float, bottom: float) -> Area:
    return Area(Box(x - 6, top, x + 6, bottom), "hatch")


def _bands(story: Story, grid: Grid) -> Iterator[Shape]:
    """A band over each link that is cut, from the cut to the heal."""
    since: dict[tuple[str, str], float] = {}
    for place, step in enumerate(story.steps):
        for row in step.rows or step.hidden:
            y = grid.rows[place].y
            since |= {link: y for link in _ways(row, CUT) if link not in since}
            for link in _ways(row, HEAL):
                if link in since:
                    yield from _band(grid, link, since.pop(link), y)
        if step.drains and since and not step.violates:
            for link in list(since):
                yield from _band(grid, link, since.pop(link), grid.rows[place].y)
    bottom = grid.rows[-1].ground if grid.rows else 0.0
    for link, top in since.items():
        yield from _band(grid, link, top, bottom)


def _ways(row: Row, verb: str) -> list[tuple[str, str]]:
    """The two ends of each link, in one order for both directions."""
    pairs = (link.partition(">") for link in cut_links(row, verb))
    ends = [sorted((source.strip(" -"), target.strip(" -"))) for source, _, target in pairs]
    return list(dict.fromkeys((one, other) for one, other in ends))


def _band(grid: Grid, way: tuple[str, str], top: float, bottom: float) -> Iterator[Shape]:
    left, right = grid.x(way[0]), grid.x(way[1])
    if left is not None and right is not None and bottom > top:
        yield Area(Box(min(left, right) + 16, top, max(left, right) - 16, bottom), "band")


def cut_links(row: Row, verb: str) -> list[str]:
    """The links that a row cuts or heals."""
    told = facts(row)
    begins = told.get("verb") or _VERBS.get(fact(row, "text").partition(":")[0].rpartition(" ")[2])
    links = told.get("links", row.link.split(","))
    if row.kind != Kind.FAULT or begins != verb or not isinstance(links, list):
        return []
    return [str(link) for link in cast("list[object]", links) if link]


_VERBS = {"begins": CUT, "ends": HEAL}
