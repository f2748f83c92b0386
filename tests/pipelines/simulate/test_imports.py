"""What modules of stages read of clocks and chance while they are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from tests.pipelines.simulate.kit import shop, simulated

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


def test_a_stage_may_import_a_module_of_its_own_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python would put what it compiles beside it, which no stage may."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "prices.py").write_text("CENTS = 5\n")
    stages = (
        "from importlib import import_module\n"
        "def price(order):\n"
        "    return {**order, 'cents': import_module('helpers.prices').CENTS}\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr
    assert not list(tmp_path.glob("helpers/__pycache__/*"))


DATED = {
    "in a class": "class Begun:\n    at = datetime.datetime.now()\n",
    "as a default": "def begun(\n        at=datetime.datetime.now()):\n    return at\n",
}


@pytest.mark.parametrize("where", DATED)
def test_a_date_that_is_asked_for_at_import_is_told_of(tmp_path: Path, where: str) -> None:
    """The class can't be replaced there, so the real one is named; one that a function asks for is virtual."""
    stages = (
        f"import datetime\n{DATED[where]}"
        "def price(order):\n    datetime.datetime.now()\n    return order\n"
    )
    done = simulated(tmp_path, stages)
    assert "note: shop_stages.py:3 asks for the date while its module is imported" in done.stdout
    assert done.stdout.count("asks for the date") == 1


@pytest.mark.parametrize("how", ["os._exit(0)", "os.abort()", "os.execvp('true', ['true'])"])
@pytest.mark.parametrize("name", ["simulate", "run"])
def test_a_module_that_ends_the_process_is_told_of(tmp_path: Path, name: str, how: str) -> None:
    """With its line, and never by the code that it chose: 0 would mean held."""
    file = shop(tmp_path, f"import os\n{how}\ndef price(order):\n    return order\n")
    done = subprocess.run(
        [sys.executable, "-m", "surepipe", name, file.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.UNUSABLE, done.stdout + done.stderr
    assert "shop_stages.py:2: ProcessEnds: os." in done.stderr


def test_a_module_may_leave_the_folder_and_a_stage_may_not(tmp_path: Path) -> None:
    """Paths of the plan are those of the folder of the command, on one process and on several."""
    leaving = "import os\nos.chdir('/')\ndef price(order):\n    return order\n"
    done = simulated(tmp_path, leaving, "--faults", "process-crash", "--seeds", "20")
    assert done.returncode == Exit.HELD, done.stdout + done.stderr
    done = simulated(
        tmp_path, "import os\ndef price(order):\n    os.chdir('/')\n    return order\n"
    )
    assert done.returncode == Exit.UNUSABLE, done.stdout + done.stderr
    assert "shop_stages.py:3: a stage changes the current folder" in done.stderr


def test_a_name_that_a_module_took_at_import_means_what_it_says_later(tmp_path: Path) -> None:
    """``from os import _exit``: a stage that calls it is refused in a simulation."""
    stage = "from os import _exit\ndef price(order):\n    _exit(0)\n"
    done = simulated(tmp_path, stage)
    assert done.returncode == Exit.UNUSABLE, done.stdout + done.stderr
    assert "shop_stages.py:3: a stage ends its process" in done.stderr
