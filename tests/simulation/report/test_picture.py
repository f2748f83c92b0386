"""The layout of space-time diagrams, and their SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.drawing.svg import SIZES, TEXT, Area, PathShape, Picture, width_of, wrapped, write_svg
from surepipe.simulation.report.page import caption, picture
from surepipe.simulation.report.picture import RULES, Caption, lay_out
from surepipe.simulation.report.story import NETWORK, Arrow, FrameEnd, Step, Story, fold
from surepipe.simulation.report.telling import tell
from surepipe.simulation.report.told import ROWS_MAX, told
from tests.simulation.report.test_story import about, long_run
from tools.counterexample_cases import CASES
from tools.counterexample_rows import Run

PLAIN = Caption("P2 no loss: VIOLATED", "It broke.", "Fault: none.", "Broken here.")
WORDS = st.text("abcdefgmwMW #1234567890,:;()-", min_size=1, max_size=60)


def drawn(name: str) -> Picture:
    """The picture of an example."""
    found = CASES[name]()
    return lay_out(fold(tell(found.result, found.violation), ROWS_MAX), caption(found))


def overlaps(laid: Picture) -> list[tuple[str, str]]:
    """Pairs of words that share space."""
    pairs = combinations(laid.words, 2)
    return [(one.text, other.text) for one, other in pairs if one.box.meets(other.box)]


def outside(laid: Picture) -> list[str]:
    """Words that leave the picture."""
    boxes = [(words.text, words.box) for words in laid.words]
    return [
        text
        for text, box in boxes
        if box.left < 0 or box.top < 0 or box.right > laid.width or box.bottom > laid.height
    ]


@pytest.mark.parametrize("name", CASES)
def test_no_words_overlap_and_all_are_inside(name: str) -> None:
    """X-59, by the widths that the layout reckons with; the browser test asks the browser."""
    assert overlaps(drawn(name)) == []
    assert outside(drawn(name)) == []


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Any story: words of any length at any node, frames between any steps, any fates."""
    nodes = tuple(f"node {number}" for number in range(draw(st.integers(1, 4))))
    count = draw(st.integers(1, 12))
    steps = tuple(
        Step(
            node=draw(st.sampled_from((*nodes, NETWORK, "end"))),
            rows=(),
            does=draw(WORDS),
            effect=draw(st.one_of(st.just(""), WORDS)),
            fault=draw(st.sampled_from(("", "F1", "F14"))),
            violates=place == count - 1,
            folded=draw(st.sampled_from((0, 0, 0, 7))),
        )
        for place in range(count)
    )
    arrows = tuple(draw(st.lists(arrows_between(nodes, count), max_size=8)))
    return Story(nodes, steps, arrows, "#1")


@st.composite
def arrows_between(draw: st.DrawFn, nodes: tuple[str, ...], count: int) -> Arrow:
    """Any frame."""
    begin = draw(st.integers(0, count - 1))
    end = draw(st.integers(begin, count - 1))
    return Arrow(
        text=draw(WORDS)[:24],
        source=draw(st.sampled_from(nodes)),
        target=draw(st.sampled_from((*nodes, "elsewhere"))),
        begin=begin,
        end=end,
        fate=draw(st.sampled_from(FrameEnd)),
        is_focus=draw(st.booleans()),
        is_control=draw(st.booleans()),
        fork=draw(st.sampled_from((-1, begin))),
    )


@settings(max_examples=60)
@given(stories(), st.integers(-1, 11))
def test_no_words_overlap_in_any_story(story: Story, differs: int) -> None:
    """Cells keep words apart whatever they say, however many frames leave in one step."""
    laid = lay_out(story, replace(PLAIN, differs=differs, difference="Here the two part."))
    assert overlaps(laid) == []
    assert outside(laid) == []
    ET.fromstring(write_svg(laid, "any", RULES))


@pytest.mark.parametrize("name", CASES)
def test_the_message_has_one_strong_colour_and_the_broken_step_a_box(name: str) -> None:
    """X-58: focus and grey are told apart by weight too; there is exactly one box."""
    laid = drawn(name)
    assert [shape.style for shape in laid.shapes if isinstance(shape, Area)].count("boxed") == 1
    frames = [
        s
        for s in laid.shapes
        if isinstance(s, PathShape) and s.style.startswith("frame") and s.head
    ]
    assert frames
    svg = write_svg(laid, name, RULES)
    assert f"#{name} path.focus{{stroke-width:3;" in svg
    assert "prefers-color-scheme: dark" in svg


@pytest.mark.parametrize("name", CASES)
def test_the_box_of_the_broken_step_ends_within_the_first_screen(name: str) -> None:
    """X-59: below the head of the page, which is 72 pixels high, and above the edge at 800."""
    found = CASES[name]()
    story = fold(tell(found.result, found.violation), ROWS_MAX)
    laid = lay_out(story, caption(found, brief=True))
    (box,) = (s.box for s in laid.shapes if isinstance(s, Area) and s.style == "boxed")
    assert box.bottom + 72 < 800


SIGNS = {
    "lost-backlog": "crash",
    "lost-confirm": "lost",
    "copied": "copied",
    "partition": "cut",
    "zombie": "stands still",
    "commit-before-effect": "starts anew",
    "overtaken": "still on its way",
}


@pytest.mark.parametrize("name", SIGNS)
def test_the_legend_explains_the_signs_that_occur_and_no_others(name: str) -> None:
    """X-58: the sign of each picture is explained in it; a crash only where one is drawn."""
    texts = [words.text for words in drawn(name).words if words.row < 0]
    assert SIGNS[name] in texts
    has_crash = any(s.style == "crash" for s in drawn(name).shapes)
    assert ("crash" in texts) == has_crash


def test_sender_store_and_receiver_stand_from_left_to_right() -> None:
    """X-58: along the way of the messages, whoever acted first."""
    found = CASES["store-rollback"]()
    assert tell(found.result, found.violation).nodes == ("sender", "store", "receiver")


def test_above_forty_rows_the_uneventful_ones_fold() -> None:
    """X-58: 300 messages, one of them lost."""
    result = long_run(300)
    story = fold(tell(result, None, focus=about(150)), ROWS_MAX)
    laid = lay_out(story, PLAIN)
    assert len(laid.rows) <= ROWS_MAX
    assert overlaps(laid) == []


def test_the_same_run_gives_the_same_picture() -> None:
    """Drawn twice, letter for letter."""
    assert picture(CASES["zombie"](), "z") == picture(CASES["zombie"](), "z")


def test_the_nearest_story_speaks_of_the_same_message() -> None:
    """Its picture marks message 2 as the other one does."""
    beside = told(CASES["lost-backlog"]()).beside
    assert beside is not None
    assert beside.focus == "#2"


def test_the_picture_tells_itself_to_those_who_cannot_see_it() -> None:
    """X-58: a title, and a description with the sentence, the fault and every step."""
    root = ET.fromstring(picture(CASES["lost-backlog"](), "backlog"))
    texts = {element.tag.rpartition("}")[2]: element.text or "" for element in root}
    assert texts["title"] == "P2 no loss: VIOLATED (orders / intake)"
    for part in (
        "Message #2 was accepted and never came out.",
        "sender crash, memory lost",
        "3: sender crash",
        "#2 is gone",
    ):
        assert part in texts["desc"]


def test_no_text_is_smaller_than_twelve_pixels() -> None:
    """X-58: by the sizes that the layout knows and the style sheet sets."""
    svg = picture(CASES["lost-backlog"](), "backlog")
    sizes = {int(size) for size in re.findall(r"(\d+)px", svg)}
    assert min(sizes) == min(*SIZES.values(), TEXT) == 12


@given(st.text(max_size=80), st.integers(20, 300))
def test_wrapped_lines_keep_to_their_width(text: str, pixels: int) -> None:
    """Whatever the text: long words are cut, nothing is wider, short texts lose no word."""
    lines = wrapped(text, pixels, 13)
    assert all(width_of(line, 13) <= pixels for line in lines if line != "…")
    if not any("…" in line for line in lines):
        assert " ".join(lines).split() == text.split()


def test_the_line_of_a_replaced_process_that_ends_stays_drawn_for_its_successor() -> None:
    """X-59: the crash of an older life is shown, and does not end the line on which its successor acts."""
    run = Run("any")
    run.pause("receiver", "F28")
    run.start("receiver")
    run.resume("receiver")
    run.rows[-1] = replace(run.rows[-1], incarnation=1)
    run.crash("receiver", "F28")
    run.rows[-1] = replace(run.rows[-1], incarnation=1)
    run.submit(1)
    run.arrive(run.send(1))
    run.deliver(1)
    laid = lay_out(tell(run.result(), None, focus=about(1)), PLAIN)
    styles = {shape.style for shape in laid.shapes if isinstance(shape, PathShape)}
    assert "crash" in styles
    assert "life gone" not in styles
