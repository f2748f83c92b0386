"""The one look of all pages and pictures: colours that can be read, and style sheets that hold everywhere."""

from __future__ import annotations

import re

import pytest

from surepipe.drawing import flow, page
from surepipe.drawing.style import COLOURS, resolved

GROUNDS = ("page", "pane")
WORDS = ("ink", "soft", "strong", "blue", "good", "warn", "bad", "violet")


def luminance(colour: str) -> float:
    """How bright a colour is, as WCAG 2 reckons."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 (the same) to 21 (black and white)."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("word", WORDS)
def test_words_of_every_colour_can_be_read_on_what_they_stand_on(word: str, side: int) -> None:
    """4.5 is what WCAG asks of small words, on the page, on a pane, and on the pane of their own colour."""
    own = [f"{word}pane"] if f"{word}pane" in COLOURS else []
    for ground in (*GROUNDS, *own):
        assert contrast(COLOURS[word][side], COLOURS[ground][side]) >= 4.5, ground


def test_a_picture_names_no_variable_and_has_each_colour_in_light_and_dark() -> None:
    """A program that draws SVG for another may know neither variables nor the page around it."""
    told = resolved(".a,.b .c{fill:var(--ink);stroke-width:2} .d{stroke-width:1}", "one")
    light, _, dark = told.partition("@media (prefers-color-scheme: dark){")
    assert light.split() == [
        "#one",
        ".a,#one",
        ".b",
        ".c{fill:#1f2328;stroke-width:2}",
        "#one",
        ".d{stroke-width:1}",
    ]
    assert dark.strip() == "#one .a,#one .b .c{fill:#f0f6fc}\n}"
    assert "var(" not in flow.STYLE


def test_pages_name_only_colours_that_there_are() -> None:
    """A name with a slip would fall back to black on black."""
    named = set(re.findall(r"var\(--(\w+)\)", page.STYLE))
    assert named
    assert named <= COLOURS.keys()
