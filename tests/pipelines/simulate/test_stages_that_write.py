"""``surepipe simulate`` of stages that print, log and warn, and that write to files their modules have opened:
standard output stays its own, and no simulated line gets into a real file."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.pipelines.loading import load
from surepipe.pipelines.simulate.campaign import CannotSimulate
from surepipe.pipelines.simulate.simulating import simulation_of_plan
from tests.pipelines.simulate.kit import imported_by_a_test, shop, simulated

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


OPENED = {
    "as text": ("LOG = open('log.txt', 'a')", "LOG.write(line)"),
    "by a path": ("LOG = Path('log.txt').open('w+')", "LOG.writelines([line])"),
    "as bytes": ("LOG = open('log.txt', 'ab')", "LOG.write(line.encode())"),
    "without a buffer": ("LOG = open('log.txt', 'ab', buffering=0)", "LOG.write(line.encode())"),
    "by its buffer": ("LOG = open('log.txt', 'a')", "LOG.buffer.write(line.encode())"),
    "by a writer": ("LOG = csv.writer(open('log.txt', 'a'))", "LOG.writerow([line])"),
    "by codecs": ("LOG = codecs.open('log.txt', 'a', 'utf-8')", "LOG.write(line)"),
    "packed": ("LOG = gzip.open('log.txt', 'at')", "LOG.write(line)"),
    "by print": ("LOG = open('log.txt', 'a')", "print(line, file=LOG)"),
    "by its number": (
        "LOG = os.open('log.txt', os.O_WRONLY | os.O_CREAT)",
        "os.write(LOG, line.encode())",
    ),
    "cut": ("LOG = open('log.txt', 'a')", "LOG.truncate(0)"),
}


def _stages(opens: str, writes: str) -> str:
    return (
        f"import codecs, csv, gzip, os\nfrom pathlib import Path\n{opens}\n"
        f"def price(order):\n    line = str(order['n'])\n    {writes}\n    return order\n"
    )


@pytest.mark.parametrize("how", OPENED)
def test_a_file_that_a_module_has_opened_is_not_written_to(tmp_path: Path, how: str) -> None:
    """While it was imported nothing was refused, and the file stays open (simulation X-25)."""
    done = simulated(tmp_path, _stages(*OPENED[how]))
    assert done.returncode == Exit.UNUSABLE, done.stdout
    assert re.search(r"shop_stages\.py:6: a stage writes to (the|a) file", done.stderr), done.stderr
    assert '"shop_stages:NAME": "doubles:NAME"' in done.stderr
    written = (tmp_path / "log.txt").read_bytes()
    written = gzip.decompress(written) if how == "packed" else written
    assert written == b""


def test_a_module_may_write_to_its_files_while_it_is_imported(tmp_path: Path) -> None:
    """And read what it has written; its stages may read it too, and write to where nothing is kept."""
    stages = (
        "import os\n"
        "with open('prices.txt', 'w') as file:\n    file.write('7')\n"
        "PRICES = open('prices.txt', 'r+')\n"
        "NOWHERE = open(os.devnull, 'w')\n"
        "def price(order):\n"
        "    PRICES.seek(0)\n"
        "    print(order, file=NOWHERE)\n"
        "    return {**order, 'cents': int(PRICES.read())}\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr
    assert "not judged" not in done.stdout


HANDLED = {
    "a file": "FileHandler('log.txt')",
    "a file that is opened late": "FileHandler('log.txt', delay=True)",
    "files in turn": "handlers.RotatingFileHandler('log.txt', maxBytes=10, backupCount=2)",
    "a stream": "StreamHandler(open('log.txt', 'a'))",
    "a server": "handlers.SocketHandler('localhost', 9)",
}


@pytest.mark.parametrize("handler", HANDLED)
def test_what_stages_log_goes_to_no_file_and_no_server(tmp_path: Path, handler: str) -> None:
    """And is no defect: the record is dropped, and the stage goes on (simulation X-25)."""
    stages = (
        "import logging\nfrom logging import handlers, FileHandler, StreamHandler\n"
        "log = logging.getLogger('shop')\n"
        f"log.addHandler({HANDLED[handler]})\n"
        "log.warning('imported')\n"
        "def price(order):\n    log.warning('pricing %s', order['n'])\n    return order\n"
    )
    done = simulated(tmp_path, stages)
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stderr
    assert "not judged" not in done.stdout
    logged = {line for file in tmp_path.glob("log.txt*") for line in file.read_text().split()}
    assert logged == (set() if handler == "a server" else {"imported"})


def test_a_file_of_a_module_that_was_imported_before_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a test, say, that simulates it then."""
    file = shop(tmp_path, _stages(*OPENED["as text"]))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text("")
    module = imported_by_a_test(file, monkeypatch)
    with module.LOG, pytest.raises(CannotSimulate, match=r"shop_stages\.py:6: a stage writes to"):
        simulation_of_plan(load(file)).run(range(1))
    assert (tmp_path / "log.txt").read_text() == ""
