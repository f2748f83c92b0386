"""What every test of links must leave behind: nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """No thread, and no descriptor."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert [t.name for t in threading.enumerate() if t.name == "surepipe-network"] == []
    assert len(os.listdir("/proc/self/fd")) <= before
