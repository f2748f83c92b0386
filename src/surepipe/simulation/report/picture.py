"""Space-time diagrams of counterexamples: a line for each node, time downward, a row for each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from surepipe.audit.trace import Kind, Row
from surepipe.drawing.svg import (
    BOLD,
    LINE,
    SIZES,
    TEXT,
    Area,
    Dot,
    PathShape,
    Picture,
    Point,
    Rectangle,
    Shape,
    Words,
    cross,
    width_of,
    wrapped,
    write_svg,
)
from surepipe.simulation.report.story import NETWORK, Arrow, FrameEnd, Step, Story
from surepipe.simulation.report.told import numbered
from surepipe.simulation.report.words import fact, facts, node_words

RULES = """
 .sentence,.effect,.label.focus{fill:var(--strong)} .number,.note,.fault,.verdict,.differs{fill:var(--ink)}
 .head,.fork{fill:var(--grey)}
 .head.focus,.fork.focus{fill:var(--strong)} path.frame{stroke:var(--grey)} path.control{stroke-dasharray:6 4}
 path.flying{stroke-dasharray:1 4} path.cross,path.crash{stroke:var(--ink);stroke-width:3}
 path.focus{stroke-width:3;stroke:var(--strong)} path.fold{stroke:var(--grey);stroke-dasharray:2 3}
 .holds{stroke:var(--strong);stroke-width:7;stroke-opacity:.45}
 .start{fill:var(--page);stroke:var(--ink);stroke-width:2} .boxed{fill:none;stroke:var(--strong);stroke-width:3}
 .differing{fill:none;stroke:var(--soft);stroke-width:1.5;stroke-dasharray:7 4}
 .band{fill:var(--grey);fill-opacity:.2;stroke:var(--soft);stroke-dasharray:2 3}
 .hatch{fill:none;stroke:var(--soft)} .stripe{stroke:var(--soft)} a{text-decoration:underline}
 .spot{fill:none;stroke:none} g:target>.spot{fill:var(--marked)}
"""
"""The message concerned has one strong colour and thicker lines, everything else is grey."""


def written(story: Story, caption: Caption, name: str, *, table: str = "") -> str:
    """The picture as SVG; ``name`` and ``table`` as ``write_svg`` has them."""
    return write_svg(lay_out(story, caption), name, RULES, table=table)


# Where the columns and rows of a picture are.


CROSS_SHARE = 0.36
"""How far along its first gap a lost frame gets; words stand beside its cross."""


@dataclass(frozen=True, slots=True)
class RowPlace:
    """One row: ``y`` is where arrows begin and end, ``ground`` the end of its cells."""

    y: float
    ground: float
    box: Rectangle


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


# Arrows for frames: those that arrive, die on the way, are copied, or are still on their way at the end.


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
        fork = [Dot(start, "fork focus" if arrow.is_focus else "fork")]
    if arrow.fate is FrameEnd.ARRIVED:
        return [*fork, PathShape((start, end), style, head=True)]
    if arrow.fate is FrameEnd.LOST:
        place = (_dies(source, target, grid), end[1])
        return [
            *fork,
            PathShape((start, place), style),
            *cross(place, "cross focus" if arrow.is_focus else "cross"),
        ]
    half = (start[0] + (end[0] - start[0]) * 0.45, max(end[1], start[1] + 10))
    return [*fork, PathShape((start, half), f"{style} flying")]


def _fork_point(start: Point, end: Point, height: float) -> Point:
    """On the way of the original, at the height of the step that copied it."""
    return (start[0] + (end[0] - start[0]) * 0.28, max(start[1] + 4, min(height, end[1] - 8)))


def _dies(source: float, target: float, grid: Grid) -> float:
    """In the first gap on its way, where the words beside the cross have room."""
    passed = [x for x in grid.xs if min(source, target) <= x <= max(source, target)]
    left, right = (passed[0], passed[1]) if target > source else (passed[-2], passed[-1])
    return left + (right - left) * CROSS_SHARE


# The lines of the nodes: broken by a crash until the restart, hatched while paused; and bands for partitions.


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
            yield PathShape(((x, grid.rows[held.begin].y), (x, end)), "holds")


def _life(story: Story, grid: Grid, node: str, top: float, bottom: float) -> Iterator[Shape]:
    x = grid.x(node) or 0.0
    alive, since, paused, newest = True, top, -1.0, 0
    for row, y in _rows_of(story, grid, node):
        newest = max(newest, row.incarnation)
        if (
            row.kind == Kind.CRASH and row.incarnation < newest
        ):  # a replaced one ends, its successor doesn't
            yield PathShape(zigzag(x, y), "crash")
        elif row.kind == Kind.CRASH and alive:
            yield PathShape(((x, since), (x, y)), "life")
            yield PathShape(zigzag(x, y), "crash")
            alive, since = False, y
        elif row.kind == Kind.START and not alive:
            yield PathShape(((x, since + 8), (x, y)), "life gone")
            yield Dot((x, y), "start", 5)
            alive, since = True, y
        elif row.kind == Kind.PAUSE:
            paused = y
        elif row.kind == Kind.RESUME and paused >= 0:
            yield _pause(x, paused, y)
            paused = -1.0
    if paused >= 0:
        yield _pause(x, paused, bottom)
    yield PathShape(
        ((x, since if alive else since + 8), (x, bottom)), "life" if alive else "life gone"
    )


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
    return Area(Rectangle(x - 6, top, x + 6, bottom), "hatch", hatched=True)


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
        yield Area(Rectangle(min(left, right) + 16, top, max(left, right) - 16, bottom), "band")


def cut_links(row: Row, verb: str) -> list[str]:
    """The links that a row cuts or heals."""
    told = facts(row)
    begins = told.get("verb") or _VERBS.get(fact(row, "text").partition(":")[0].rpartition(" ")[2])
    links = told.get("links", row.link.split(","))
    if row.kind != Kind.FAULT or begins != verb or not isinstance(links, list):
        return []
    return [str(link) for link in cast("list[object]", links) if link]


_VERBS = {"begins": CUT, "ends": HEAL}


# What the signs of a picture mean; only those that occur in it.


SIGN = 34
ROUND = {"boxed": 6, "differing": 6}
ROW = 22


@dataclass(frozen=True, slots=True)
class _Entry:
    sign: str
    text: str


def legend(story: Story, width: float, top: float) -> tuple[list[Shape], list[Words], float]:
    """Signs, words, and where they end."""
    shapes: list[Shape] = []
    words: list[Words] = []
    x, y = 14.0, top
    for entry in _entries(story):
        wide = SIGN + 8 + width_of(entry.text, SIZES["small"]) + 18
        if x > 14 and x + wide > width - 14:
            x, y = 14.0, y + ROW
        shapes += _sign(entry.sign, (x, y))
        words.append(Words((x + SIGN + 8, y + 4), entry.text, "small"))
        x += wide
    return shapes, words, y + 18


def _entries(story: Story) -> Iterator[_Entry]:
    arrows = story.arrows
    rows = [row for step in story.steps for row in (step.rows or step.hidden)]
    kinds = {row.kind for row in rows}
    occurs = (
        ("focus", f"message {story.focus}", any(arrow.is_focus for arrow in arrows)),
        ("holds", f"has {story.focus}", bool(story.held)),
        ("frame", "another frame", any(not arrow.is_focus for arrow in arrows)),
        ("control", "confirm or question", any(arrow.is_control for arrow in arrows)),
        ("cross", "lost", any(arrow.fate is FrameEnd.LOST for arrow in arrows)),
        ("fork", "copied", any(arrow.fork >= 0 for arrow in arrows)),
        ("flying", "still on its way", any(arrow.fate is FrameEnd.FLYING for arrow in arrows)),
        ("crash", "crash", Kind.CRASH in kinds),
        (
            "start",
            "starts anew",
            any(row.kind == Kind.START and row.incarnation > 1 for row in rows),
        ),
        ("hatch", "stands still", Kind.PAUSE in kinds),
        ("band", "cut", any(cut_links(row, CUT) for row in rows)),
        ("fold", "steps left out", any(step.folded for step in story.steps)),
        ("boxed", "breaks the rule", any(step.violates for step in story.steps)),
    )
    yield from (_Entry(sign, text) for sign, text, does in occurs if does)


def _sign(sign: str, at: Point) -> list[Shape]:
    x, y = at
    span = ((x, y), (x + SIGN, y))
    if sign in _LINES:
        style, head = _LINES[sign]
        return [PathShape(span, style, head=head)]
    if sign == "cross":
        return cross((x + SIGN / 2, y))
    if sign == "fork":
        branch = ((x + 8, y), (x + SIGN, y + 7))
        return [
            PathShape(span, "frame", head=True),
            PathShape(branch, "frame", head=True),
            Dot((x + 8, y), "fork"),
        ]
    if sign == "crash":
        return [PathShape(zigzag(x + SIGN / 2, y), "crash")]
    if sign == "start":
        return [Dot((x + SIGN / 2, y), "start", 5)]
    box = Rectangle(x, y - 8, x + SIGN, y + 8)
    return [Area(box, f"{sign} sample", ROUND.get(sign, 0), hatched=sign == "hatch")]


_LINES = {
    "focus": ("frame focus", True),
    "frame": ("frame", True),
    "control": ("frame control", True),
    "flying": ("frame flying", False),
    "fold": ("fold", False),
    "holds": ("holds", False),
}


# Decides where everything of a picture stands: a line for each node, time downward, one row for each step.
#
# Words never overlap, by construction: each row has cells (the number, the notes beside the first and the last
# line, one between each two lines), each text stands in one cell, the lines of a cell stand below each other,
# and a row is as high as its fullest cell. Only lines and arrows cross rows; words that they may run below
# stand on a patch of background.


GUTTER = 40
NOTE_MAX, NOTE_MAX_OF_TWO = 204, 184
"""How wide notes are at the most; with two nodes, two pictures are to stand side by side."""
NOTE_MIN = 96
GAP_MIN, GAP_MAX = 150, 240
EDGE = 14
ASIDE = 18
"""From a node's line to its notes."""
WIDTH_MIN = 440


@dataclass(frozen=True, slots=True)
class Caption:
    """The words around a picture.

    ``verdict`` stands in the boxed step; ``differs`` is the index of the first step that a story does not share
    with the one beside it, -1 for none, and ``difference`` says so.
    """

    title: str
    sentence: str
    remark: str = ""
    verdict: str = ""
    differs: int = -1
    difference: str = ""


_Lines: TypeAlias = list[tuple[str, str]]
"""Texts with their styles."""
_Labels: TypeAlias = list[tuple[str, str, bool]]
"""The same, and whether the frame goes to the right."""


@dataclass(slots=True)
class _Cells:
    """The texts of one row: per cell, lines with their styles. Notes by lane, labels and asides by gap."""

    notes: dict[int, _Lines] = field(default_factory=dict[int, _Lines])
    labels: dict[int, _Labels] = field(default_factory=dict[int, _Labels])
    is_wide: bool = False
    wide: _Lines = field(default_factory=_Lines)
    foot: _Lines = field(default_factory=_Lines)


def lay_out(story: Story, caption: Caption) -> Picture:
    """Place everything. The same story and caption give the same picture."""
    lanes = {name: place for place, name in enumerate(story.nodes)}
    cells = [_cells(story, place, lanes) for place in range(len(story.steps))]
    xs, width = _columns(story, cells)
    head, top = _head(caption, story, xs, width)
    for place, row in enumerate(cells):
        step = story.steps[place]
        row.wide = _notes(step, width - GUTTER - 2 * EDGE) if row.is_wide else []
        row.foot = _foot(step, place, caption, width)
    rows = _rows(cells, top, len(xs))
    grid = Grid(tuple(xs), lanes, tuple(rows), width)
    bottom = rows[-1].box.bottom if rows else top
    signs, legend_words, height = legend(story, width, bottom + 22)
    shapes: list[Shape] = [
        *_frames_around(story, caption, grid),
        *life_shapes(story, grid, top),
        *(shape for arrow in story.arrows for shape in arrow_shapes(arrow, grid)),
        *signs,
    ]
    words = [*head, *_row_words(story, cells, grid), *legend_words]
    return Picture(
        width=width,
        height=height,
        title=caption.title,
        description=describe(story, caption),
        shapes=tuple(shapes),
        words=tuple(words),
        rows=tuple(row.box for row in rows),
    )


def describe(story: Story, caption: Caption) -> str:
    """The picture in words, for those who can't see it."""
    steps = (
        f"{number}: {step.node} {step.does}{'; ' + step.effect if step.effect else ''}."
        for number, step in numbered(story.steps)
    )
    return " ".join(filter(None, (caption.sentence, caption.remark, *steps)))


# --- what stands in each row


def _cells(story: Story, place: int, lanes: dict[str, int]) -> _Cells:
    step = story.steps[place]
    cells = _Cells()
    lane = lanes.get(step.node)
    if step.node == NETWORK:
        _network_cells(story, place, lanes, cells)
    elif lane is None:
        cells.is_wide = True
    else:
        cells.notes[lane] = _notes(step, _note_max(story))
    for arrow in story.arrows:
        if arrow.begin == place and arrow.fork < 0 and _is_drawn(arrow, lanes):
            gap, to_right = _gap(arrow, lanes)
            style = "label focus" if arrow.is_focus else "label"
            cells.labels.setdefault(gap, []).append((arrow.text, style, to_right))
    return cells


def _note_max(story: Story) -> int:
    return NOTE_MAX_OF_TWO if len(story.nodes) <= 2 else NOTE_MAX


def _notes(step: Step, pixels: float) -> _Lines:
    does = step.does
    style = "fault" if step.fault else "fold" if step.folded else "note"
    lines = [(line, style) for line in wrapped(does, pixels, TEXT, bold=style == "fault")]
    effect = "" if step.effect.endswith(_SEEN) else step.effect
    return lines + [(line, "effect") for line in wrapped(effect, pixels, TEXT, bold=True)]


_SEEN = ("is on its way", "is on its way again")
"""What the arrow says already."""


def _network_cells(story: Story, place: int, lanes: dict[str, int], cells: _Cells) -> None:
    """What the network does is told where it happens: between the lines."""
    step = story.steps[place]
    for arrow in story.arrows:
        lost = arrow.fate is FrameEnd.LOST and arrow.end == place
        if (lost or arrow.fork == place) and _is_drawn(arrow, lanes):
            verb = "lost" if lost else "copied"
            text = verb
            gap, _ = _gap(arrow, lanes)
            style = "label focus" if arrow.is_focus else "label"
            cells.labels.setdefault(gap, []).append((text, f"{style} aside", True))
            if step.effect and lanes.get(arrow.source) is not None:
                effect = wrapped(step.effect, _note_max(story), TEXT, bold=True)
                cells.notes[lanes[arrow.source]] = [(line, "effect") for line in effect]
            return
    cells.is_wide = True


def _is_drawn(arrow: Arrow, lanes: dict[str, int]) -> bool:
    return arrow.source != arrow.target and {arrow.source, arrow.target} <= lanes.keys()


def _gap(arrow: Arrow, lanes: dict[str, int]) -> tuple[int, bool]:
    """The gap in which an arrow starts, and whether it goes to the right."""
    source, target = lanes[arrow.source], lanes[arrow.target]
    return (source, True) if target > source else (source - 1, False)


def _foot(step: Step, place: int, caption: Caption, width: float) -> _Lines:
    pixels = width - 4 * EDGE - GUTTER
    if step.violates:
        text, style = step.verdict or caption.verdict, "verdict"
    elif place == caption.differs:
        text, style = caption.difference, "differs"
    else:
        return []
    return [(line, style) for line in wrapped(text, pixels, TEXT, bold=True)]


# --- columns and rows


def _columns(story: Story, cells: Sequence[_Cells]) -> tuple[list[float], float]:
    """Where the lines of the nodes stand, and the width of the picture."""
    count = max(len(story.nodes), 1)
    left = _note_width(cells, 0) if count > 1 else 0
    xs = [GUTTER + (left + ASIDE if count > 1 else ASIDE)]
    for gap in range(count - 1):
        xs.append(xs[-1] + _gap_width(cells, gap, _middle_width(cells, gap, count)))
    right = _note_width(cells, count - 1)
    widest = max(
        (width_of(node_words(name), SIZES["lane"], bold=True) for name in story.nodes), default=0
    )
    return xs, max(xs[-1] + max(right + ASIDE, widest / 2) + EDGE, WIDTH_MIN)


def _note_width(cells: Sequence[_Cells], lane: int) -> float:
    lines = [line for row in cells for line in row.notes.get(lane, [])]
    widest = max((_wide(text, style) for text, style in lines), default=0.0)
    return max(widest, NOTE_MIN)


def _middle_width(cells: Sequence[_Cells], gap: int, count: int) -> float:
    """The notes of a line in the middle stand in the gap to its right."""
    if not 0 < gap < count - 1:
        return 0.0
    return _note_width(cells, gap) + ASIDE + EDGE


def _gap_width(cells: Sequence[_Cells], gap: int, notes: float) -> float:
    labels = [label for row in cells for label in row.labels.get(gap, [])]
    widest = max(
        (
            (_wide(text, style) + EDGE) / (1 - CROSS_SHARE if "aside" in style else 1)
            for text, style, _ in labels
        ),
        default=0.0,
    )
    return max(GAP_MIN, min(widest + EDGE, GAP_MAX), notes)


def _wide(text: str, style: str) -> float:
    return width_of(text, TEXT, bold=style.removesuffix(" aside") in BOLD)


def _rows(cells: Sequence[_Cells], top: float, lanes: int) -> list[RowPlace]:
    rows: list[RowPlace] = []
    for row in cells:
        above = max((_stacked(labels) for labels in row.labels.values()), default=0)
        y = top + 14 + LINE * above
        below = [
            _dropped(row, lane, lanes) + LINE * len(lines) for lane, lines in row.notes.items()
        ]
        below += [2 * LINE for labels in row.labels.values() if 0 < _stacked(labels) < len(labels)]
        below += [_dropped(row, -1, lanes) + LINE * len(row.wide)] if row.wide else []
        ground = y + max([*below, LINE]) - LINE + 12
        bottom = ground + (LINE * len(row.foot) + 6 if row.foot else 0)
        rows.append(RowPlace(y, ground, Rectangle(EDGE / 2, top, 0, bottom)))
        top = bottom
    return rows


def _dropped(row: _Cells, lane: int, lanes: int) -> int:
    """How far below the row's line its notes begin: those that share a cell with labels make room for them."""
    shares = lane < 0 or 0 < lane < lanes - 1
    return LINE if shares and any(map(_stacked, row.labels.values())) else 0


def _stacked(labels: _Labels) -> int:
    """How many lines the labels of a gap need above the row's own line; asides stand on it."""
    return sum(1 for _, style, _ in labels if "aside" not in style)


# --- words


def _head(
    caption: Caption, story: Story, xs: Sequence[float], width: float
) -> tuple[list[Words], float]:
    words: list[Words] = []
    y = 12.0
    for text, style in (
        (caption.title, "title"),
        (caption.sentence, "sentence"),
        (caption.remark, "small"),
    ):
        size = SIZES[style]
        for line in wrapped(text, width - 2 * EDGE, size, bold=style != "small"):
            y += size + 5
            words.append(Words((EDGE, y), line, style))
        y += 2
    y += 26
    for name, x in zip(story.nodes, xs, strict=False):
        words.append(Words((x, y), node_words(name), "lane", "middle"))
    return words, y + 8


def _row_words(story: Story, cells: Sequence[_Cells], grid: Grid) -> list[Words]:
    words: list[Words] = []
    for place, (number, _) in enumerate(numbered(story.steps)):
        row, texts = grid.rows[place], cells[place]
        words.append(Words((GUTTER - 8, row.y + 4), number, "number", "end", place))
        words += _wide_words(texts, grid, place)
        for lane, lines in texts.notes.items():
            words += _note_words(lines, lane, grid, place, _dropped(texts, lane, len(grid.xs)))
        for gap, labels in texts.labels.items():
            words += _label_words(labels, gap, grid, place)
        for offset, (line, style) in enumerate(texts.foot):
            at = (GUTTER + EDGE, row.ground + 8 + LINE * offset)
            words.append(Words(at, line, style, row=place, patch=True))
    return words


def _wide_words(texts: _Cells, grid: Grid, place: int) -> list[Words]:
    middle = (GUTTER + grid.width) / 2
    y = grid.rows[place].y + 4 + _dropped(texts, -1, len(grid.xs))
    return [
        Words((middle, y + LINE * n), text, style, "middle", place, patch=True)
        for n, (text, style) in enumerate(texts.wide)
    ]


def _note_words(lines: _Lines, lane: int, grid: Grid, place: int, drop: float) -> list[Words]:
    is_left = lane == 0 and len(grid.xs) > 1
    x = grid.xs[lane] + (-ASIDE if is_left else ASIDE)
    is_middle = 0 < lane < len(grid.xs) - 1
    return [
        Words(
            (x, grid.rows[place].y + 4 + drop + LINE * n),
            text,
            style,
            "end" if is_left else "start",
            place,
            patch=is_middle,
        )
        for n, (text, style) in enumerate(lines)
    ]


def _label_words(labels: _Labels, gap: int, grid: Grid, place: int) -> list[Words]:
    words: list[Words] = []
    left, right = grid.xs[gap], grid.xs[gap + 1]
    y = grid.rows[place].y
    lift = _stacked(labels)
    for text, style, to_right in labels:
        if "aside" in style:
            x = left + (right - left) * CROSS_SHARE + 14
            words.append(
                Words((x, y + 4), text, style.removesuffix(" aside"), row=place, patch=True)
            )
            continue
        x = left + EDGE if to_right else right - EDGE
        at = (x, y - 5 - LINE * (lift - 1))
        words.append(Words(at, text, style, "start" if to_right else "end", place, patch=True))
        lift -= 1
    return words


def _frames_around(story: Story, caption: Caption, grid: Grid) -> list[Shape]:
    """The box around the step that breaks the property, and around the first one that differs."""
    shapes: list[Shape] = []
    for place, step in enumerate(story.steps):
        row = grid.rows[place]
        box = Rectangle(EDGE / 2, row.box.top, grid.width - EDGE / 2, row.box.bottom)
        if step.violates:
            shapes.append(Area(box, "boxed", ROUND["boxed"]))
        elif place == caption.differs:
            shapes.append(Area(box, "differing", ROUND["differing"]))
        elif step.folded:
            shapes.append(PathShape(((GUTTER, row.y), (grid.width - EDGE, row.y)), "fold"))
    return shapes
