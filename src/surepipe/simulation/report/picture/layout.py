"""Decides where everything of a picture stands: a line for each node, time downward, one row for each step.

Words never overlap, by construction: each row has cells (the number, the notes beside the first and the last line,
one between each two lines), each text stands in one cell, the lines of a cell stand below each other, and a row is
as high as its fullest cell. Only lines and arrows cross rows; words that they may run below stand on a patch of
background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from surepipe.simulation.report.picture.frames import arrow_shapes
from surepipe.simulation.report.picture.grid import CROSS_SHARE, Grid, RowPlace
from surepipe.simulation.report.picture.legend import legend
from surepipe.simulation.report.picture.lifelines import life_shapes
from surepipe.simulation.report.picture.measure import width_of, wrapped
from surepipe.simulation.report.picture.shapes import (
    LINE,
    SIZES,
    TEXT,
    Area,
    Box,
    Path,
    Picture,
    Shape,
    Words,
)
from surepipe.simulation.report.story import NETWORK, Arrow, Fate, Step, Story
from surepipe.simulation.report.told import numbered
from surepipe.simulation.report.words import node_words

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
        lost = arrow.fate is Fate.LOST and arrow.end == place
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
    bold = style in ("effect", "fault", "verdict") or style.startswith("label focus")
    return width_of(text, TEXT, bold=bold)


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
        rows.append(RowPlace(y, ground, Box(EDGE / 2, top, 0, bottom)))
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
        box = Box(EDGE / 2, row.box.top, grid.width - EDGE / 2, row.box.bottom)
        if step.violates:
            shapes.append(Area(box, "boxed"))
        elif place == caption.differs:
            shapes.append(Area(box, "differing"))
        elif step.folded:
            shapes.append(Path(((GUTTER, row.y), (grid.width - EDGE, row.y)), "fold"))
    return shapes
