"""The system's Chromium for tests of pages, without network; where there is none, tests say so aloud."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
CANNOT_RUN = f"CANNOT RUN browser: none of {', '.join(COMMANDS)} on the PATH (Debian: apt-get install chromium)"

_SWITCHES = (
    "--no-sandbox",  # a container's root has no user namespace to put it in
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


# Asked of a page: what is wrong with how it was drawn. Each gives a list of texts.
OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([one, a], place) => texts.slice(place + 1)
    .filter(([_, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                     && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
    .map(([other, _]) => `${one} / ${other}`));
})"""
OUTSIDE = """() => [...document.querySelectorAll('svg text')].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.closest('svg').getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.bottom > outer.bottom;
}).map(text => text.textContent)"""
SMALL = """() => [...document.querySelectorAll('*')].filter(e => e.childNodes.length
  && [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())
  && !['STYLE', 'TITLE', 'title', 'desc', 'style'].includes(e.tagName)
  && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.textContent)"""


@contextmanager
def chromium() -> Generator[Browser]:
    """A browser with a fresh profile. Without one the test fails in CI and is skipped on a laptop."""
    found = next(filter(None, map(shutil.which, COMMANDS)), None)
    if found is None and os.environ.get("CI") == "true":
        pytest.fail(CANNOT_RUN)
    if found is None:
        pytest.skip(CANNOT_RUN)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_SWITCHES))
        try:
            yield browser
        finally:
            browser.close()
