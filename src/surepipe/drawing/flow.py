"""Boxes and arrows between them: where everything stands, and the picture as SVG, DOT or Mermaid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from surepipe.drawing.style import resolved
from surepipe.drawing.svg import (
    BASE,
    SIZES,
    Point,
    Rectangle,
    arrow_head,
    document,
    rectangle,
    text,
    width_of,
)

# What is in the picture.


@dataclass(frozen=True, slots=True)
class PartBox:
    """A part: its role, its name, and what it says about itself. ``refused``: the pipe can't be.

    ``live``: what it does just now, in a picture of a running pipeline; ``tone`` how that is: busy, warn, bad,
    or away when it runs elsewhere.
    """

    role: str
    name: str
    lines: tuple[str, ...]
    refused: bool = False
    live: tuple[str, ...] = ()
    tone: str = ""


@dataclass(frozen=True, slots=True)
class FlowArrow:
    """A way of messages; ``kind`` is flow, or dead for dead letters, or uses for a store that keeps something."""

    start: str
    end: str
    kind: str = "flow"
    label: str = ""


@dataclass(frozen=True, slots=True)
class Diagram:
    """Everything that is drawn. Names of stores begin with ``store:``, as a node may have the same name."""

    title: str
    boxes: tuple[PartBox, ...]
    arrows: tuple[FlowArrow, ...]

    @property
    def flow(self) -> tuple[FlowArrow, ...]:
        return tuple(arrow for arrow in self.arrows if arrow.kind == "flow")

    @property
    def description(self) -> str:
        """The picture in words, for those who can't see it."""
        return "; ".join(f"{arrow.start} to {arrow.end}" for arrow in self.flow)


# Where everything stands: columns by how far it is from a source, rows so that few arrows cross.
#
# The steps are those that layered drawings have: each box goes one column after the last that feeds it, an arrow
# over several columns gets a bend in each of them, the order within a column is improved by averages of the
# neighbours' places, and then boxes move up and down towards what they are joined to. Stores stand below. Texts
# are measured cautiously, so none leaves its box. The same diagram gives the same layout.


LINE, PAD, NAME_LINE = 17.0, 12.0, 21.0
COLUMN_GAP, ROW_GAP, STORE_GAP = 64.0, 26.0, 76.0
MARGIN, TITLE = 24.0, 44.0
WORDS, NAME = SIZES["small"], SIZES["name"]
SIGNS_MAX = 38
SWEEPS = 6


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box and where it stands."""

    box: PartBox
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class ArrowPath:
    """An arrow as the points that it passes."""

    kind: str
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class FlowLayout:
    """The whole picture."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
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
    lines = list(_lines(box))
    words = (width_of(line, WORDS, bold=style == "promise") for line, style in lines)
    width = max(110.0, width_of(_name(box), NAME, bold=True), *words)
    return width + 2 * PAD, NAME_LINE + LINE * len(lines) + 2 * PAD - 4


def _name(box: PartBox) -> str:
    return shorten(box.name.removeprefix("store:"))


def _lines(box: PartBox) -> Iterator[tuple[str, str]]:
    """The words below the name, each with its style; what a pipe promises stands out."""
    for number, line in enumerate(box.lines, start=1):
        yield shorten(line), "promise" if box.role == "pipe" and number == len(box.lines) else ""
    for line in box.live:
        yield shorten(line), "live"


def lay_out(diagram: Diagram) -> FlowLayout:
    """Place everything."""
    nodes = [box for box in diagram.boxes if box.role != "store"]
    columns = _columns(nodes, diagram)
    slots, rows = _rows(nodes, diagram, columns)
    _order(slots, rows)
    _settle(slots, rows)
    edges = _column_edges(nodes, columns)
    placed = {
        box.name: PlacedBox(box, edges[columns[box.name]][0], slots[box.name].y, *size_of(box))
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
    return FlowLayout(width + MARGIN, height + MARGIN, boxes, (*flow, *uses))


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

    placed: Mapping[str, PlacedBox]
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


def _stores(
    diagram: Diagram, placed: Mapping[str, PlacedBox], bottom: float
) -> dict[str, PlacedBox]:
    """The stores in a row below, each under the middle of what uses it, as far as they have room."""
    wishes: list[tuple[float, PartBox]] = []
    for box in diagram.boxes:
        users = [placed[arrow.start] for arrow in diagram.arrows if arrow.end == box.name]
        if box.role == "store" and users:
            middle = sum(user.x + user.width / 2 for user in users) / len(users)
            wishes.append((middle - size_of(box)[0] / 2, box))
    left, found = MARGIN, dict[str, PlacedBox]()
    for wish, box in sorted(wishes, key=lambda one: (one[0], one[1].name)):
        x = max(left, wish)
        found[box.name] = PlacedBox(box, x, bottom + STORE_GAP, *size_of(box))
        left = x + size_of(box)[0] + COLUMN_GAP
    return found


def _uses(
    diagram: Diagram,
    placed: Mapping[str, PlacedBox],
    stores: Mapping[str, PlacedBox],
    bottom: float,
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
    one: PlacedBox, share: float, placed: Sequence[PlacedBox], bottom: float
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
    return MARGIN + width_of(title, SIZES["title"], bold=True)


# The layout as SVG.


_RULES = """
 text{font-size:12px} .promise{fill:var(--good)} .refused .promise{fill:var(--bad)}
 .box{fill:var(--pane);stroke:var(--soft);stroke-width:1.5} .pipe .box{fill:var(--bluepane);stroke:var(--blue)}
 .stage .box{fill:var(--violetpane);stroke:var(--violet)} .store .box{fill:var(--warnpane);stroke:var(--warn)}
 .refused .box{fill:var(--badpane);stroke:var(--bad);stroke-width:2.5} .lid{stroke:var(--warn)}
 path.flow{stroke:var(--ink);stroke-width:1.8} .head.flow{fill:var(--ink)}
 path.uses{stroke:var(--warn);stroke-width:1.3;stroke-dasharray:3 4} text.uses{fill:var(--warn)}
 path.dead{stroke:var(--bad);stroke-dasharray:8 4} .head.dead,text.dead{fill:var(--bad)}
"""
STYLE = resolved(BASE + _RULES)
"""The style sheet within each picture: pages that allow no other know it by its hash."""


def svg_of(diagram: Diagram, *, headed: bool = True) -> str:
    """The picture. The same diagram gives the same text. ``headed``: with its title above it."""
    layout = lay_out(diagram)
    body = [text((MARGIN, MARGIN + 16), diagram.title, "title")] if headed else []
    for path in layout.paths:
        body += _line(path)
    for path in layout.paths:
        body += _label(path, layout.paths)
    for placed in layout.boxes:
        body += _box(placed)
    return document(
        body,
        title=f"Pipeline {diagram.title}",
        description=diagram.description,
        size=(layout.width, layout.height),
        style=STYLE,
        top=0 if headed else round(TITLE),
    )


def _line(path: ArrowPath) -> Iterator[str]:
    """A curve that leaves and enters level, or upright towards a store; what carries messages has a head."""
    steps = ["M{:.1f} {:.1f}".format(*path.points[0])]
    for (x1, y1), (x2, y2) in pairwise(path.points):
        half_x, half_y = (x1 + x2) / 2, (y1 + y2) / 2
        if path.kind != "flow":
            steps.append(f"C{x1:.1f} {half_y:.1f} {x2:.1f} {half_y:.1f} {x2:.1f} {y2:.1f}")
        elif abs(y1 - y2) < 1:
            steps.append(f"L{x2:.1f} {y2:.1f}")
        else:
            steps.append(f"C{half_x:.1f} {y1:.1f} {half_x:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
    yield f'<path class="{path.kind}" d="{" ".join(steps)}"/>'
    x, y = path.points[-1]
    if path.kind != "uses":
        before = (x - LINE, y) if path.kind == "flow" else (x, y - LINE)
        yield arrow_head(before, (x, y), path.kind)


def _label(path: ArrowPath, paths: Sequence[ArrowPath]) -> Iterator[str]:
    """The words of a line, on a piece of background: where it has come below all boxes, or beside a flow."""
    if path.label:
        x, y = path.points[-2] if path.kind != "flow" else _beside(path, paths)
        half = width_of(path.label, WORDS, bold=True) / 2 + 3
        yield rectangle(Rectangle(x - half, y - 4, x + half, y + 13), "under")
        yield text((x, y + 9), path.label, path.kind, "middle")


def _beside(path: ArrowPath, paths: Sequence[ArrowPath]) -> Point:
    """Beside the level end of a flow, away from where it comes from; its beginning, if others end there."""
    (x1, y1), (x2, y2) = path.points[-2:]
    shares_end = sum(other.points[-1] == (x2, y2) for other in paths) > 1
    is_rising = y2 < y1 + 1
    if shares_end:
        (x1, y1), (x2, y2) = path.points[:2] if len(path.points) == 2 else path.points[1:3]
        return (x1 + x2) / 2, y1 + (6 if y2 < y1 - 1 else -16)
    return (x1 + x2) / 2 - 4, y2 + (-16 if is_rising else 6)


def _box(placed: PlacedBox) -> Iterator[str]:
    box, x, y = placed.box, placed.x, placed.y
    role = " ".join(filter(None, (box.role, "refused" * box.refused, box.tone)))
    radius = {"source": 22, "sink": 22, "pipe": 4}.get(box.role, 8)
    frame = Rectangle(x, y, x + placed.width, y + placed.height)
    yield f'<g class="{role}">{rectangle(frame, "box", radius)}'
    if box.role == "store":
        yield f'<path class="lid" d="M{x:.1f} {y + 6:.1f} h{placed.width:.1f}"/>'
    middle, foot = x + placed.width / 2, y + PAD + 12
    yield text((middle, foot), _name(box), "name", "middle")
    for number, (line, style) in enumerate(_lines(box)):
        yield text((middle, foot + NAME_LINE + number * LINE - 2), line, style, "middle")
    yield "</g>"


# A diagram as text for other tools: DOT for Graphviz, Mermaid for pages that draw it.


_DOT_SHAPES = {
    "source": "oval",
    "pipe": "box",
    "stage": "component",
    "sink": "oval",
    "store": "cylinder",
}
_MERMAID = {
    "source": ("([", "])"),
    "pipe": ("[", "]"),
    "stage": ("[[", "]]"),
    "sink": ("([", "])"),
    "store": ("[(", ")]"),
}
_DOT_LINES = {"flow": "", "uses": "style=dotted, arrowhead=none", "dead": "style=dashed, color=red"}


def dot_of(diagram: Diagram) -> str:
    """Graphviz."""
    lines = [f"digraph {_quoted(diagram.title)} {{", "  rankdir=LR;"]
    lines += [
        f"  {_quoted(box.name)} [shape={_DOT_SHAPES[box.role]}, label={_dot_label(box)}];"
        for box in diagram.boxes
    ]
    lines += [
        f"  {_quoted(arrow.start)} -> {_quoted(arrow.end)}{_dot_line(arrow)};"
        for arrow in diagram.arrows
    ]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_of(diagram: Diagram) -> str:
    """Mermaid. Parts are numbered, since its names may not have every sign."""
    numbers = {box.name: f"p{number}" for number, box in enumerate(diagram.boxes)}
    lines = ["flowchart LR"]
    for box in diagram.boxes:
        opening, closing = _MERMAID[box.role]
        lines.append(f'  {numbers[box.name]}{opening}"{_mermaid_label(box)}"{closing}')
    lines += [
        f"  {numbers[arrow.start]} {_mermaid_line(arrow)} {numbers[arrow.end]}"
        for arrow in diagram.arrows
    ]
    return "\n".join(lines) + "\n"


def _words(box: PartBox) -> tuple[str, ...]:
    return (box.name.removeprefix("store:"), *box.lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_label(box: PartBox) -> str:
    return _quoted("\n".join(_words(box))).replace("\n", "\\n")


def _dot_line(arrow: FlowArrow) -> str:
    label = f"label={_quoted(arrow.label)}" if arrow.label else ""
    said = ", ".join(word for word in (_DOT_LINES[arrow.kind], label) if word)
    return f" [{said}]" if said else ""


def _mermaid_label(box: PartBox) -> str:
    words = (
        word.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        for word in _words(box)
    )
    return "<br>".join(words)


def _mermaid_line(arrow: FlowArrow) -> str:
    label = f"|{arrow.label}|" if arrow.label else ""
    return {"flow": "-->", "uses": "-.-", "dead": "-.->"}[arrow.kind] + label
