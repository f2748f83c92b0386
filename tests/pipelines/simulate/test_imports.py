"""What modules of stages read of clocks and chance while they are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from tests.pipelines.simulate.kit import simulated

AT_IMPORT = {
    "time.time()": "import time",
    "time.time_ns()": "import time",
    "clock()": "from time import perf_counter as clock",
    "random.random()": "import random",
    "random.Random().random()": "import random",
    "random.SystemRandom().random()": "import random",
    "str(uuid.uuid4())": "import uuid",
    "os.urandom(4).hex()": "import os",
    "secrets.token_hex(4)": "import secrets",
}


@pytest.mark.parametrize("read", AT_IMPORT)
def test_a_module_reads_a_virtual_clock_and_a_seeded_chance_while_it_is_imported(
    tmp_path: Path, read: str
) -> None:
    """Each process of a campaign imports it anew, and all have the same (simulation X-25)."""
    stages = f"{AT_IMPORT[read]}\nBEGUN = {read}\ndef price(order):\n    return {{**order, 'a': BEGUN}}\n"
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr
    assert "not judged" not in done.stdout


def test_a_module_may_do_what_it_likes_while_it_is_imported(tmp_path: Path) -> None:
    """A thread, a wait for it, and a model with a moment in it."""
    stages = (
        "import threading, time\n"
        "from datetime import datetime\n"
        "from pydantic import BaseModel\n"
        "ready = threading.Event()\n"
        "threading.Thread(target=ready.set).start()\n"
        "until = time.monotonic() + 20\n"
        "while not ready.is_set() and time.monotonic() < until:\n    time.sleep(0.001)\n"
        "assert ready.is_set()\n"
        "class Order(BaseModel):\n    at: datetime\n"
        "Order(at=datetime(2026, 1, 1))\n"
        "def price(order):\n    return order\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr


def test_a_date_that_is_asked_for_at_import_is_told_of(tmp_path: Path) -> None:
    """The class can't be replaced there, so the real one is named; one that a function asks for is virtual."""
    stages = (
        "import datetime\n"
        "class Begun:\n    at = datetime.datetime.now()\n"
        "def price(order):\n    datetime.datetime.now()\n    return order\n"
    )
    done = simulated(tmp_path, stages)
    assert "note: shop_stages.py:3 asks for the date while its module is imported" in done.stdout
    assert done.stdout.count("asks for the date") == 1
