"""``surepipe simulate`` of stages that print, log and warn: standard output stays its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pipelines.simulate.kit import simulated

PRINTS = 'def price(order):\n    print("pricing", order["n"])\n    return order\n'
LOGS = """\
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout)
log = logging.getLogger(__name__)
def price(order):
    log.info("pricing %s", order["n"])
    return order
"""
WARNS = """\
import warnings
def price(order):
    warnings.warn(f"pricing {order['n']}")
    return order
"""
TELLS_OF_AN_ERROR = """\
import traceback
def price(order):
    try:
        return {**order, "cents": order["no"]}
    except KeyError:
        traceback.print_exc()
        return order
"""
REMEMBERS = """\
seen = set()
def price(order):
    print("pricing", order["n"])
    if order["n"] in seen:
        return None
    seen.add(order["n"])
    return order
"""
BELOW_PYTHON = """\
import os
os.write(1, b"imported\\n")
def price(order):
    os.write(1, b"pricing\\n")
    return order
"""


@pytest.mark.parametrize(
    ("stages", "first"),
    [
        (PRINTS, "shop_stages.py:2: 'pricing 0'"),
        (LOGS, "shop_stages.py:5: 'INFO:shop_stages:pricing 0'"),
        (WARNS, "shop_stages.py:3: '"),
        (TELLS_OF_AN_ERROR, "shop_stages.py:6: 'Traceback (most recent call last):'"),
    ],
)
def test_what_stages_write_is_named_once_and_not_shown(
    tmp_path: Path, stages: str, first: str
) -> None:
    """One JSON document, nothing on standard error, and one note with the place (simulation X-22)."""
    done = simulated(tmp_path, stages, "--json")
    found = json.loads(done.stdout)
    (note,) = (one for one in found["notes"] if "write" in one)
    assert f"(first {first}" in note
    assert (found["error"], done.stderr) == (None, "")
    assert not any("keep" in one for one in found["notes"])


def test_what_is_written_below_python_spoils_no_document(tmp_path: Path) -> None:
    """As a library in C does it: to standard error (simulation X-22)."""
    done = simulated(tmp_path, BELOW_PYTHON, "--json")
    assert json.loads(done.stdout)["error"] is None
    assert done.stderr.startswith("imported\npricing\n")


def test_a_replay_shows_what_is_written_in_its_run(tmp_path: Path) -> None:
    """On standard error, and of the runs that only say what is expected nothing (simulation X-22)."""
    done = simulated(tmp_path, REMEMBERS, "--json", "--seeds", "40", "--faults", "claim")
    found = json.loads(done.stdout)
    assert found["exit"] == 1, found
    again = simulated(tmp_path, REMEMBERS, "--replay", found["script"])
    written = again.stderr.splitlines()
    assert written[0] == "pricing 0"
    assert set(written) <= {f"pricing {number}" for number in range(4)}
    assert len(written) < 12
    assert "pricing" not in again.stdout
