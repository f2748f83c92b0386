"""Every reviewed page in a real browser: offline, without script, in the first screen of a laptop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import pytest
from playwright.sync_api import Browser, Page

from tests.kit import browser as kit
from tests.kit.browser import OUTSIDE, OVERLAPS, SMALL, chromium
from tools.counterexample_cases import CASES
from tools.counterexamples import PICTURES

WIDTH, HEIGHT = 1280, 800
Scheme: TypeAlias = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all pages."""
    with chromium() as found:
        yield found


class Visit:
    """A page that is open, and what it asked for or complained about meanwhile."""

    def __init__(self, browser: Browser, name: str, scheme: Scheme = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme=scheme,
            offline=True,
            java_script_enabled=False,
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.url = (PICTURES / f"{name}.html").as_uri()
        self.page.goto(self.url)


@pytest.fixture(params=CASES)
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Each page in turn."""
    visit = Visit(browser, str(request.param))
    yield visit
    visit.context.close()


def test_a_page_loads_offline_without_errors_and_asks_for_nothing_else(visit: Visit) -> None:
    """X-57, X-59: network off, script off; the only request is the file itself."""
    assert visit.requests == [visit.url]
    assert visit.complaints == []


def test_no_two_texts_overlap_in_a_browser(visit: Visit) -> None:
    """X-59: by the boxes that the browser drew, in both pictures of the page; all are inside and legible."""
    assert visit.page.evaluate(OVERLAPS) == []
    assert visit.page.evaluate(OUTSIDE) == []
    assert visit.page.evaluate(SMALL) == []


def test_the_boxed_step_is_inside_the_first_screen(visit: Visit) -> None:
    """X-59: at 1280 x 800, without scrolling; the page is no wider than the window."""
    boxes = visit.page.locator("#broken rect.boxed:not(.sample)").all()
    (box,) = [found.bounding_box() for found in boxes]
    assert box is not None
    assert 0 <= box["x"] <= box["x"] + box["width"] <= WIDTH
    assert 0 <= box["y"] <= box["y"] + box["height"] <= HEIGHT
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= WIDTH


def test_every_step_is_labelled_and_leads_to_its_row(visit: Visit) -> None:
    """X-59: the numbers count up, each is visible and its link goes to the row of the table and back."""
    numbers = visit.page.locator("#broken text.number")
    shown = [text for text in numbers.all_text_contents() if text != "."]
    assert shown == [str(number) for number in range(1, len(shown) + 1)]
    visit.page.locator("#broken a").last.click()
    row = visit.page.url.partition("#")[2]
    assert visit.page.locator(f"#{row} a").inner_text() == shown[-1]
    assert visit.page.locator(f"#{row}").is_visible()


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_a_page_is_light_or_dark_as_the_reader_has_it(
    browser: Browser, scheme: Scheme, is_dark: bool
) -> None:
    """X-57: background of page and picture, against the colour of the words on them."""
    visit = Visit(browser, "lost-backlog", scheme)
    shades = [
        sum(visit.page.evaluate(_colour(selector, style)))
        for selector, style in (
            ("body", "backgroundColor"),
            ("#broken .page", "fill"),
            ("#broken .title", "fill"),
            ("h1", "color"),
        )
    ]
    visit.context.close()
    page, picture, title, heading = ((shade < 384) for shade in shades)
    assert (page, picture, title) == (is_dark, is_dark, not is_dark)
    assert heading != is_dark


def _colour(selector: str, style: str) -> str:
    return (
        f"() => getComputedStyle(document.querySelector('{selector}')).{style}"
        ".match(/[\\d.]+/g).slice(0, 3).map(Number)"
    )


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_without_a_browser_the_run_says_so_aloud(
    ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-67: with nothing on the PATH, in CI and on a laptop."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="CANNOT RUN browser"), kit.chromium():
        pass
