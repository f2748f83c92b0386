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
