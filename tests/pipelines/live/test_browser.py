"""The page of a running pipeline in a browser: on laptop and phone, light and dark, with and without script."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from surepipe.actors.notices import PipeNotice
from surepipe.core.effects import NoticeKind
from surepipe.observe.serving import PageServer
from surepipe.pipelines.live import serve
from tests.kit.browser import OUTSIDE, OVERLAPS, SMALL, chromium
from tests.pipelines.live.plans import Shop, wide

Scheme: TypeAlias = Literal["light", "dark"]
LAPTOP, PHONE, SMALL_PHONE = (1280, 800), (390, 844), (320, 568)
WIDER = """() => [...document.querySelectorAll('main *')]
  .filter(e => !e.closest('figure') && !e.closest('thead') && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + ' ' + e.textContent)"""
SHADE = """selector => getComputedStyle(document.querySelector(selector)).backgroundColor
  .match(/[\\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture
def shop() -> Shop:
    """Busy, with a pipe that needs a look, and a notice that tries to be a script."""
    shop = Shop()
    shop.run(12_345, retransmitted=7, dead_lettered=3, in_flight=512, in_work=88)
    detail = "<img src=x onerror=\"document.title='taken over'\">"
    shop.watch.notice(PipeNotice("intake", "sender", NoticeKind.STALLED, 7, ((3, 5),), detail))
    return shop


@pytest.fixture
def server(shop: Shop) -> Iterator[PageServer]:
    """Serves the shop."""
    with serve(shop.assessment, shop.watch, port=0) as found:
        yield found


class Visit:
    """A page, and what it asked for or complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


@contextmanager
def visit(
    browser: Browser,
    server: PageServer,
    size: tuple[int, int] = LAPTOP,
    scheme: Scheme = "light",
    *,
    script: bool = True,
) -> Generator[Visit]:
    """The page, open."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=script,
    )
    found = Visit(context.new_page())
    found.page.goto(server.url)
    yield found
    context.close()


@pytest.mark.parametrize("size", [LAPTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_legible_and_asks_nobody_else(
    browser: Browser, server: PageServer, size: tuple[int, int], scheme: Scheme
) -> None:
    """No texts on each other, none outside or too small, no scrolling sideways, no complaint of the browser."""
    with visit(browser, server, size, scheme) as found:
        page = found.page
        for question in (OVERLAPS, OUTSIDE, SMALL):
            assert page.evaluate(question) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
        assert (page.evaluate(SHADE, "body") < 384) is (scheme == "dark")
        assert found.hosts == {urlsplit(server.url).netloc}
        assert found.complaints == []
        assert page.title() == "shop: running"


@pytest.mark.parametrize("size", [LAPTOP, PHONE, SMALL_PHONE])
@pytest.mark.parametrize("beside", [True, False], ids=["beside", "behind"])
def test_a_page_of_twelve_pipes_with_long_names_scrolls_sideways_on_no_screen(
    browser: Browser, size: tuple[int, int], beside: bool
) -> None:
    """Only the picture scrolls, in its frame, which on a phone leaves room for what is below it."""
    shop = Shop(wide(beside))
    full = {"accepted": 10**9, "settled": 10**9, "retransmitted": 10**9, "dead_lettered": 10**9}
    shop.counts = {pipe.name: dict(full) for pipe in shop.plan.pipes}
    shop.watch.notice(PipeNotice("p" * 64, "sender", NoticeKind.STALLED, 7, ((3, 5),), "x" * 300))
    with (
        serve(shop.assessment, shop.watch, port=0) as server,
        visit(browser, server, size) as found,
    ):
        page = found.page
        for question in (OVERLAPS, OUTSIDE, SMALL, WIDER):
            assert page.evaluate(question) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
        height = page.evaluate("document.querySelector('figure').clientHeight")
        assert size == LAPTOP or height <= size[1] * 0.75
        assert found.complaints == []


def test_the_page_renews_itself_and_keeps_where_the_reader_is(
    browser: Browser, server: PageServer, shop: Shop
) -> None:
    """The numbers change in place, and the picture stays scrolled as it was."""
    with visit(browser, server, PHONE) as found:
        page = found.page
        page.evaluate("document.querySelector('figure').scrollLeft = 120")
        shop.run(54_321)
        shop.watch.state = "stopping"
        expect(page.locator(".state")).to_have_text("stopping", timeout=10_000)
        expect(page.locator(".tiles")).to_contain_text("54.3k")
        assert page.evaluate("document.querySelector('figure').scrollLeft") == 120
        assert page.title() == "shop: stopping"
        assert found.complaints == []


def test_without_script_the_page_is_complete_and_loads_itself_again(
    browser: Browser, server: PageServer, shop: Shop
) -> None:
    """By the browser alone."""
    with visit(browser, server, script=False) as found:
        expect(found.page.locator(".tiles")).to_contain_text("12.3k")
        shop.run(54_321)
        expect(found.page.locator(".tiles")).to_contain_text("54.3k", timeout=10_000)


def test_a_pipeline_that_is_gone_is_said_to_be_gone(browser: Browser, server: PageServer) -> None:
    """What was seen last stays, and is marked."""
    with visit(browser, server) as found:
        expect(found.page.locator("#silent")).to_be_hidden()
        server.close()
        expect(found.page.locator("#silent")).to_be_visible(timeout=10_000)
        expect(found.page.locator(".tiles")).to_contain_text("12.3k")


def test_on_a_phone_each_cell_of_a_pipe_says_what_it_is(
    browser: Browser, server: PageServer
) -> None:
    """The head of the table is out of sight there."""
    with visit(browser, server, PHONE) as found:
        cell = found.page.locator("td[data-is='dead letters']").first
        content = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
        assert content == '"dead letters"'
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE[0]
