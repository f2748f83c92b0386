"""``surepipe simulate`` of a file whose functions can't be imported: what is wrong, and in which file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.simulation.chance.script import Script, save
from tests.pipelines.simulate.kit import SHOP, simulated

BROKEN = {
    "def price(order):\n    return order +\n": "/shop_stages.py:2: SyntaxError: invalid syntax",
    "PRICES = {}\nBREAD = PRICES['bread']\n": "/shop_stages.py:2: KeyError: 'bread'",
    "import no_such_library\n": "/shop_stages.py:1: ModuleNotFoundError: No module named 'no_such_library'",
    "import sys\n\nsys.exit('no prices')\n": "/shop_stages.py:3: SystemExit: no prices",
    "def prise(order):\n    return order\n": "shop_stages has no 'price': did you mean 'prise'?",
    "price = 3\n": "shop_stages:price is not a function",
    "class price:\n    def __init__(self):\n        self.cents = {}['bread']\n": (
        "the class shop_stages:price can't be made: KeyError: 'bread' at shop_stages.py:3"
    ),
}


@pytest.mark.parametrize("stages", BROKEN)
def test_a_function_that_cannot_be_had_is_told_with_its_place(tmp_path: Path, stages: str) -> None:
    """One line and code 2, nothing of ours (simulation X-22)."""
    done = simulated(tmp_path, stages)
    assert (done.returncode, done.stdout) == (Exit.UNUSABLE, "")
    assert done.stderr.startswith("surepipe: ")
    assert done.stderr.count("\n") == 1
    assert BROKEN[stages] in done.stderr


def test_a_module_that_is_not_there_is_told_with_the_folder(tmp_path: Path) -> None:
    """Which is not the same as one that imports what is not there (simulation X-22)."""
    done = simulated(tmp_path, "", pipeline=SHOP.replace("shop_stages", "no_stages"))
    assert done.returncode == Exit.UNUSABLE
    told = (
        f"no_stages:price: no_stages can't be imported from {tmp_path}: No module named 'no_stages'"
    )
    assert done.stderr == f"surepipe: {told}: is its folder the one that this runs in?\n"


def test_a_script_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    """By the names of both, and not as one that is stale (simulation X-22)."""
    script = tmp_path / "mill.json"
    save(Script("mill", {}), script)
    done = simulated(tmp_path, "def price(order):\n    return order\n", "--replay", str(script))
    assert done.returncode == Exit.UNUSABLE
    told = f"{script}: this is a script of the pipeline mill, and the file is that of shop"
    assert done.stderr.startswith(f"surepipe: {told}: ")


def test_a_file_that_cannot_be_read_is_a_document_too(tmp_path: Path) -> None:
    """Whoever asks for JSON gets JSON (simulation X-22)."""
    done = simulated(tmp_path, "", "--json", pipeline="version: 1\n")
    found = json.loads(done.stdout)
    assert found["exit"] == done.returncode == Exit.UNUSABLE
    assert found["error"] == done.stderr.strip()
