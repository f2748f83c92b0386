from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.drawing.flow import (
    Diagram,
    FlowArrow,
    FlowLayout,
    PartBox,
    PlacedBox,
    dot_of,
    lay_out,
    mermaid_of,
    shorten,
    svg_of,
)
from surepipe.pipelines import load, loads
from surepipe.pipelines.diagram import diagram_of
from tests.pipelines.files import pipe, pipeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def diagrams(draw: st.DrawFn) -> Diagram:
    """Any graph without cycles: each box is fed by some of those before it; some use a store."""
    count = draw(st.integers(1, 9))
    names = [f"part{number}" for number in range(count)]
    words = st.lists(st.text("abc:_/", max_size=60), max_size=3).map(tuple)
    boxes = [PartBox("stage", name, draw(words)) for name in names]
    arrows: list[FlowArrow] = []
    for number, name in enumerate(names[1:], 1):
        feeders = draw(st.sets(st.integers(0, number - 1), max_size=3))
        arrows += [FlowArrow(names[feeder], name) for feeder in sorted(feeders)]
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=4)):
        store = draw(st.sampled_from(["store:a", "store:b"]))
        arrows.append(FlowArrow(name, store, draw(st.sampled_from(["uses", "dead"])), "journal"))
    used = {arrow.end for arrow in arrows if arrow.kind != "flow"}
    boxes += [PartBox("store", name, ("sqlite",)) for name in sorted(used)]
    return Diagram("title", tuple(boxes), tuple(arrows))


def overlap(one: PlacedBox, other: PlacedBox) -> bool:
    """True when two boxes share a point."""
    return not (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


def crossed(layout: FlowLayout) -> list[str]:
    """Boxes that a straight part of an arrow runs through."""
    found: list[str] = []
    for path in layout.paths:
        for (x1, y1), (x2, y2) in zip(path.points, path.points[1:], strict=False):
            if path.kind == "flow" and y1 == y2:
                found += [
                    placed.box.name
                    for placed in layout.boxes
                    if placed.y < y1 < placed.y + placed.height
                    and max(x1, placed.x) < min(x2, placed.x + placed.width)
                ]
    return found


@given(diagrams())
def test_no_two_boxes_overlap_and_all_stand_within_the_picture(diagram: Diagram) -> None:
    """Whatever is drawn."""
    layout = lay_out(diagram)
    for one, other in combinations(layout.boxes, 2):
        assert not overlap(one, other), (one, other)
    for placed in layout.boxes:
        assert placed.x >= 0
        assert placed.y >= 0
        assert placed.x + placed.width <= layout.width
        assert placed.y + placed.height <= layout.height


@given(diagrams())
def test_every_arrow_runs_from_its_start_to_its_end_and_through_no_box(diagram: Diagram) -> None:
    """Forwards; arrows over several columns pass between the boxes there."""
    layout = lay_out(diagram)
    boxes = {placed.box.name: placed for placed in layout.boxes}
    assert len(layout.paths) == len(diagram.arrows)
    for arrow, path in zip(diagram.flow, layout.paths, strict=False):
        start, end = boxes[arrow.start], boxes[arrow.end]
        assert path.points[0] == (start.x + start.width, start.middle)
        assert path.points[-1] == (end.x, end.middle)
        assert start.x + start.width < end.x
    assert crossed(layout) == []


@given(diagrams())
def test_a_picture_is_well_formed_and_the_same_each_time(diagram: Diagram) -> None:
    """Parsed as XML; equal diagrams give equal texts."""
    picture = svg_of(diagram)
    ElementTree.fromstring(picture)
    assert picture == svg_of(diagram)


def test_a_picture_stands_by_itself_and_has_words_for_those_who_can_not_see_it() -> None:
    """A title, a description, and no address of anything outside."""
    picture = svg_of(diagram_of(load(EXAMPLE)))
    root = ElementTree.fromstring(picture)
    assert root.findtext(f"{SVG}title") == "Pipeline orders"
    assert "price to large" in (root.findtext(f"{SVG}desc") or "")
    addresses = re.findall(r"https?://[^\s\"']+", picture)
    assert addresses == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in picture


def test_the_picture_of_the_example_says_what_its_pipe_guarantees() -> None:
    """And what everything does."""
    picture = svg_of(diagram_of(load(EXAMPLE)))
    texts = [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    for expected in (
        "exactly-once, absolute",
        "multi-unconfirmed(window=512)",
        "call examples.orders:price",
        "journal, state",
        "orders.dead",
        "sqlite .surepipe/orders.db",
    ):
        assert expected in texts


def test_a_pipe_that_is_refused_is_drawn_as_such() -> None:
    """A pipeline can be looked at before it is right."""
    options = "layers: continuous-index, route: {kind: tcp, address: 'localhost:1'}"
    picture = svg_of(diagram_of(loads(pipeline(pipes=pipe(options)))))
    assert "refused: see surepipe check" in picture
    assert 'class="pipe refused"' in picture


def test_no_picture_shows_a_password() -> None:
    """Neither as SVG nor as text."""
    text = pipeline(
        stores="stores: {main: {kind: redis, url: 'redis://u:hunter2@h'}}",
        pipes=pipe("route: {kind: redis, store: main}"),
    )
    diagram = diagram_of(loads(text))
    for picture in (svg_of(diagram), dot_of(diagram), mermaid_of(diagram)):
        assert "hunter2" not in picture
        assert "u:***@h" in picture


def test_a_long_text_keeps_its_ends() -> None:
    """Its middle is left out."""
    assert shorten("data/" + "x" * 60 + "/orders.jsonl").startswith("data/xxx")
    assert shorten("data/" + "x" * 60 + "/orders.jsonl").endswith("/orders.jsonl")
    assert shorten("short") == "short"


DOT = """\
digraph "shop" {
  rankdir=LR;
  "lines" [shape=oval, label="lines\\njsonl a.jsonl"];
  "intake" [shape=box, label="intake\\nreliable\\nover local\\nexactly-once, absolute"];
  "price" [shape=component, label="price\\ncall shop:price"];
  "out" [shape=oval, label="out\\nstdout"];
  "lines" -> "intake";
  "intake" -> "price";
  "price" -> "out";
}
"""
MERMAID = """\
flowchart LR
  p0(["lines<br>jsonl a.jsonl"])
  p1["intake<br>reliable<br>over local<br>exactly-once, absolute"]
  p2[["price<br>call shop:price"]]
  p3(["out<br>stdout"])
  p0 --> p1
  p1 --> p2
  p2 --> p3
"""


@pytest.mark.parametrize(("make", "expected"), [(dot_of, DOT), (mermaid_of, MERMAID)])
def test_a_diagram_as_text_for_other_tools(make: object, expected: str) -> None:
    """The sound file, whole."""
    assert callable(make)
    assert make(diagram_of(loads(pipeline()))) == expected
