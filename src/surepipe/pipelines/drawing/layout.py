"""Where everything stands: columns by how far it is from a source, rows so that few arrows cross.

The steps are those that layered drawings have: each box goes one column after the last that feeds it, an arrow
over several columns gets a bend in each of them, the order within a column is improved by averages of the
neighbours' places, and then boxes move up and down towards what they are joined to. Stores stand below. Texts
are measured cautiously, so none leaves its box. The same diagram gives the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from surepipe.pipelines.drawing.diagram import Diagram, FlowArrow, PartBox

LINE, PAD, NAME_LINE = 17.0, 12.0, 21.0
COLUMN_GAP, ROW_GAP, STORE_GAP = 64.0, 26.0, 76.0
MARGIN, TITLE = 24.0, 44.0
SMALL, LARGE = 7.4, 8.6
"""Widths of a sign of 12 px and of 14 px bold, at the most, in the fonts that the picture asks for."""
SIGNS_MAX = 38
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Placed:
    """A box and where it stands."""

    box: PartBox
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Its height's middle."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class ArrowPath:
    """An arrow as the points that it passes."""

    kind: str
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole picture."""

    width: float
    height: float
    boxes: tuple[Placed, ...]
    paths: tuple[ArrowPath, ...]


@dataclass(slots=True)
class _Slot:
    """What takes a place in a column: a box, or the bend of a long arrow."""

    key: str
    height: float
    before: list[str] = field(default_factory=list[str])
    after: list[str] = field(default_factory=list[str])
    y: float = 0.0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def shorten(text: str) -> str:
    """A text that fits into a box: its middle is left out when it is too long."""
    if len(text) <= SIGNS_MAX:
        return text
    half = (SIGNS_MAX - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def size_of(box: PartBox) -> tuple[float, float]:
    """Width and height of a box."""
    name = len(shorten(box.name.removeprefix("store:"))) * LARGE
    lines = (*box.lines, *box.live)
    words = max((len(shorten(line)) for line in lines), default=0) * SMALL
    return max(110.0, name, words) + 2 * PAD, NAME_LINE + LINE * len(lines) + 2 * PAD - 4


def lay_out(diagram: Diagram) -> Layout:
    """Place everything."""
    nodes = [box for box in diagram.boxes if box.role != "store"]
    columns = _columns(nodes, diagram)
    slots, rows = _rows(nodes, diagram, columns)
    _order(slots, rows)
    _settle(slots, rows)
    edges = _column_edges(nodes, columns)
    placed = {
        box.name: Placed(box, edges[columns[box.name]][0], slots[box.name].y, *size_of(box))
        for box in nodes
    }
    grid = _Grid(placed, slots, edges, columns)
    flow = [grid.flow(arrow) for arrow in diagram.flow]
    bottom = max(slot.y + slot.height for slot in slots.values())
    right = max(end for _, end in edges)
    stores = _stores(diagram, placed, bottom)
    width = max([right, _title_width(diagram.title), *(s.x + s.width for s in stores.values())])
    height = max([bottom, *(store.y + store.height for store in stores.values())])
    uses = _uses(diagram, placed, stores, bottom)
    boxes = (*placed.values(), *stores.values())
    return Layout(width + MARGIN, height + MARGIN, boxes, (*flow, *uses))


def _columns(nodes: Sequence[PartBox], diagram: Diagram) -> dict[str, int]:
    """The column of each box: one after the last that feeds it. Boxes come after what feeds them."""
    columns: dict[str, int] = {}
    for box in nodes:
        feeders = [arrow.start for arrow in diagram.flow if arrow.end == box.name]
        columns[box.name] = max((columns[name] + 1 for name in feeders), default=0)
    return columns


def _rows(
    nodes: Sequence[PartBox], diagram: Diagram, columns: Mapping[str, int]
) -> tuple[dict[str, _Slot], list[list[str]]]:
    """The slots of each column, bends included, in the order of the file."""
    slots = {box.name: _Slot(box.name, size_of(box)[1]) for box in nodes}
    rows: list[list[str]] = [[] for _ in range(max(columns.values()) + 1)]
    for box in nodes:
        rows[columns[box.name]].append(box.name)
    for arrow in diagram.flow:
        chain = [arrow.start]
        for column in range(columns[arrow.start] + 1, columns[arrow.end]):
            key = _bend(arrow.start, arrow.end, column)
            slots[key] = _Slot(key, 8.0)
            rows[column].append(key)
            chain.append(key)
        for one, other in pairwise([*chain, arrow.end]):
            slots[one].after.append(other)
            slots[other].before.append(one)
    return slots, rows


def _bend(start: str, end: str, column: int) -> str:
    return f"{start}\n{end}\n{column}"


def _order(slots: Mapping[str, _Slot], rows: list[list[str]]) -> None:
    """Order each column by the average place of what it is joined to, forth and back."""
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for row in rows if forth else reversed(rows):
            place = {key: n for column in rows for n, key in enumerate(column)}
            averages = {key: _average(slots[key], place, forth) for key in row}
            row.sort(key=lambda key: averages[key])


def _average(slot: _Slot, place: Mapping[str, int], forth: bool) -> float:
    joined = slot.before if forth else slot.after
    return sum(place[key] for key in joined) / len(joined) if joined else float(place[slot.key])


def _settle(slots: Mapping[str, _Slot], rows: Sequence[Sequence[str]]) -> None:
    """Heights: stacked first, then each moved towards its neighbours as far as the others let it."""
    top = MARGIN + TITLE
    for row in rows:
        _stack(slots, row, dict.fromkeys(row, top))
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for row in rows if forth else reversed(rows):
            _stack(slots, row, {key: _wish(slots, slots[key], forth) for key in row})
    lowest = min(slot.y for slot in slots.values())
    for slot in slots.values():
        slot.y += top - lowest


def _wish(slots: Mapping[str, _Slot], slot: _Slot, forth: bool) -> float:
    """The height at which a slot would be level with what it is joined to."""
    joined = (slot.before if forth else slot.after) or slot.before or slot.after
    if not joined:
        return slot.y
    return sum(slots[key].middle for key in joined) / len(joined) - slot.height / 2


def _stack(slots: Mapping[str, _Slot], row: Sequence[str], wishes: Mapping[str, float]) -> None:
    """Place a column in its order without overlaps, as near to the wishes as one pass each way gets."""
    floor = float("-inf")
    for key in row:
        slots[key].y = max(wishes[key], floor)
        floor = slots[key].y + slots[key].height + ROW_GAP
    excess = sum(slots[key].y - wishes[key] for key in row) / len(row) if row else 0.0
    for key in row:  # what was pushed down is shared by the whole column
        slots[key].y -= excess


def _column_edges(
    nodes: Sequence[PartBox], columns: Mapping[str, int]
) -> list[tuple[float, float]]:
    """Left and right edge of each column."""
    widths = [0.0] * (max(columns.values()) + 1)
    for box in nodes:
        widths[columns[box.name]] = max(widths[columns[box.name]], size_of(box)[0])
    edges: list[tuple[float, float]] = []
    left = MARGIN
    for width in widths:
        edges.append((left, left + width))
        left += width + COLUMN_GAP
    return edges


@dataclass(frozen=True, slots=True)
class _Grid:
    """Boxes, bends and columns, for drawing arrows through them."""

    placed: Mapping[str, Placed]
    slots: Mapping[str, _Slot]
    edges: Sequence[tuple[float, float]]
    columns: Mapping[str, int]

    def flow(self, arrow: FlowArrow) -> ArrowPath:
        """From the right side of one box to the left side of the other, straight through the bends' columns."""
        start, end = arrow.start, arrow.end
        one, other = self.placed[start], self.placed[end]
        first, last = self.columns[start], self.columns[end]
        points = [(one.x + one.width, one.middle), (self.edges[first][1], one.middle)]
        for column in range(first + 1, last):
            middle = self.slots[_bend(start, end, column)].middle
            points += [(self.edges[column][0], middle), (self.edges[column][1], middle)]
        points.append((other.x, other.middle))
        return ArrowPath("flow", arrow.label, tuple(points))


def _stores(diagram: Diagram, placed: Mapping[str, Placed], bottom: float) -> dict[str, Placed]:
    """The stores in a row below, each under the middle of what uses it, as far as they have room."""
    wishes: list[tuple[float, PartBox]] = []
    for box in diagram.boxes:
        users = [placed[arrow.start] for arrow in diagram.arrows if arrow.end == box.name]
        if box.role == "store" and users:
            middle = sum(user.x + user.width / 2 for user in users) / len(users)
            wishes.append((middle - size_of(box)[0] / 2, box))
    left, found = MARGIN, dict[str, Placed]()
    for wish, box in sorted(wishes, key=lambda one: (one[0], one[1].name)):
        x = max(left, wish)
        found[box.name] = Placed(box, x, bottom + STORE_GAP, *size_of(box))
        left = x + size_of(box)[0] + COLUMN_GAP
    return found


def _uses(
    diagram: Diagram, placed: Mapping[str, Placed], stores: Mapping[str, Placed], bottom: float
) -> list[ArrowPath]:
    """From the foot of a box to the head of its store; several on one side stand apart."""
    arrows = [arrow for arrow in diagram.arrows if arrow.kind != "flow"]
    paths: list[ArrowPath] = []
    for arrow in arrows:
        one, store = placed[arrow.start], stores[arrow.end]
        leaving = [other for other in arrows if other.start == arrow.start]
        coming = sorted(
            (other for other in arrows if other.end == arrow.end),
            key=lambda other: placed[other.start].x,
        )
        share = (leaving.index(arrow) + 1) / (len(leaving) + 1)
        end = store.x + store.width * (coming.index(arrow) + 1) / (len(coming) + 1)
        down = _way_down(one, share, list(placed.values()), bottom)
        paths.append(ArrowPath(arrow.kind, arrow.label, (*down, (end, store.y))))
    return paths


def _way_down(
    one: Placed, share: float, placed: Sequence[Placed], bottom: float
) -> tuple[tuple[float, float], ...]:
    """From the foot of a box to below all boxes: straight, or beside those that stand in between."""
    x, foot = one.x + one.width * share, one.y + one.height
    below = [p for p in placed if p.y >= foot and p.x - 6 < x < p.x + p.width + 6]
    if not below:
        return (x, foot), (x, bottom + 4)
    column = [p for p in placed if p.x == one.x]
    beside = max(p.x + p.width for p in column) + COLUMN_GAP * (0.15 + 0.4 * share)
    return (x, foot), (beside, foot + ROW_GAP - 2), (beside, bottom + 4)


def _title_width(title: str) -> float:
    return MARGIN + len(title) * 11.0
