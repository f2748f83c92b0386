"""The control of the kills: a sink that knows nothing of what is there already, so a kill must show in it.

It is copied beside the pipeline, and shipped from there to executors, which have no tests.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

LINES = "NAIVE_LINES"
"""The variable that says which file the lines go to."""
LINES_EACH = 10
"""One message in so many goes here."""


def is_for_naive(message: dict[str, object]) -> bool:
    """One in ten."""
    number = message["n"]
    assert isinstance(number, int)
    return number % LINES_EACH == 0


def naive(message: dict[str, object]) -> None:
    """Add a line, and who wrote it. Slow enough to be killed in the middle."""
    with Path(os.environ[LINES]).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(message)}\t{os.getpid()}\n")
    time.sleep(0.0005)
