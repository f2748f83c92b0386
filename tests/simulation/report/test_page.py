"""The page of a counterexample, read as a file; ``test_browser`` looks at it in a browser."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from surepipe.simulation.chance.script import Decision
from surepipe.simulation.report import page, text_report
from surepipe.simulation.report.page import BYTES_MAX
from tests.simulation.report.test_story import about, long_run
from tools import counterexamples
from tools.counterexample_cases import CASES, lost_backlog
from tools.counterexample_runs import RUNS


class Elements(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.found if name in attrs]


PAGES = {name: page(make()) for name, make in CASES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_and_runs_nothing(name: str) -> None:
    """X-57: no script, no link outside, no image, no import; its policy forbids them as well."""
    elements = Elements(PAGES[name])
    tags = {tag for tag, _ in elements.found}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "image",
        "use",
        "video",
        "audio",
    }
    assert elements.values("src") == []
    assert all(target.startswith("#") for target in elements.values("href"))
    assert not re.search(r"url\(|@import|javascript:|\son\w+=", PAGES[name])
    assert "default-src 'none'; style-src 'unsafe-inline'" in elements.values("content")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_everything_that_a_reader_needs(name: str) -> None:
    """X-57: sentence, picture, steps, text, options, script, and what holds beside it."""
    found, elements = CASES[name](), Elements(PAGES[name])
    assert found.violation.sentence in elements.text
    assert text_report(found) in elements.text
    assert "The nearest schedule that holds" in elements.text
    assert "Here the two part." in elements.text
    assert f"subject: {found.result.script.subject}" in elements.text
    assert all(str(item) in elements.text for item in found.result.script.decisions)
    assert [tag for tag, _ in elements.found].count("svg") == 2


@pytest.mark.parametrize("name", PAGES)
def test_steps_in_picture_and_table_point_to_each_other(name: str) -> None:
    """X-57: each link has its target, ids are unique, and each step is linked both ways."""
    elements = Elements(PAGES[name])
    ids, targets = elements.values("id"), elements.values("href")
    assert len(ids) == len(set(ids))
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    to_table = [target for target in targets if target.startswith("#step-")]
    to_picture = [target for target in targets if target.startswith("#broken-step-")]
    assert len(to_table) == len(to_picture) > 1


@pytest.mark.parametrize("name", PAGES)
def test_the_pictures_in_a_page_are_well_formed(name: str) -> None:
    """Each SVG is parsed as XML of its own."""
    svgs = re.findall(r"<svg.*?</svg>", PAGES[name], re.DOTALL)
    assert [ET.fromstring(svg).tag for svg in svgs] == ["{http://www.w3.org/2000/svg}svg"] * 2


def test_what_users_name_is_never_taken_for_markup() -> None:
    """A title, a subject, a sentence and a decision with angle brackets and quotes."""
    found, evil = lost_backlog(), "<script>alert('1')</script>\"&"
    named = replace(found.result.script, subject=evil, decisions=(Decision("a", evil, "lose"),))
    broken = replace(found.violation, sentence=evil, name=evil)
    made = page(
        replace(
            found,
            title=evil,
            violation=broken,
            guarantee=evil,
            advice=evil,
            without=evil,
            result=replace(found.result, script=named),
        )
    )
    assert "<script" not in made
    assert evil in Elements(made).text


def test_a_page_is_never_above_300_kilobytes() -> None:
    """X-57: a thousand messages and five thousand decisions; that something is left out is said."""
    result = long_run(1_000)
    many = tuple(Decision("network", f"frame {n} <&>", "lose") for n in range(5_000))
    broken = replace(about(500), step=result.rows[-1].step)
    result = replace(result, script=replace(result.script, decisions=many))
    made = page(replace(lost_backlog(), violation=broken, result=result, nearest=result))
    assert len(made.encode()) <= BYTES_MAX
    assert re.search(r"\.\.\. and \d+ more", made)


def test_the_reviewed_examples_are_as_the_script_makes_them() -> None:
    """X-59: ``python -m tools.counterexamples`` renews them; none is missing and none is left over."""
    stored = {
        path.name: path.read_text(encoding="utf-8") for path in counterexamples.PICTURES.iterdir()
    }
    assert stored == counterexamples.files()
    assert len(CASES) >= 8


def test_each_reviewed_example_is_shown_on_its_page_of_the_docs() -> None:
    """docs/counterexamples.md shows every picture, with words for those who can't see it."""
    text = (counterexamples.ROOT / "docs" / "counterexamples.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[([^]]{20,})\]\(pictures/counterexamples/([\w-]+)\.svg\)", text)
    assert sorted(name for _, name in shown) == sorted(CASES)
    assert text_report(RUNS["lost-backlog"]()) in text
    assert all(f"](pictures/counterexamples/{name}.html)" in text for name in CASES)
