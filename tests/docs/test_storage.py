"""The page about stores: its programs that mend a letter and start processes run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()
(MENDS,) = (block for block in programs_in(PAGE) if "def mend(" in block)
(SPAWNS,) = (block for block in programs_in(PAGE) if "get_context(" in block)


def test_a_letter_is_mended_once_also_where_the_first_to_do_it_died(tmp_path: Path) -> None:
    """It ends with an assertion of its own, and Python warns of nothing but the letter."""
    code, said = _run(tmp_path, MENDS)
    assert (code, said.count("\n")) == (0, 1)
    assert "ValueError: an amount of -5 (program.py:13). It is in the dead letters" in said


def test_the_program_sees_what_an_identity_of_its_own_for_each_attempt_does(tmp_path: Path) -> None:
    """Named by the clock, the corrected message is booked twice."""
    named = 'f"mended/{name_of(stored.letter)}"'
    assert named in MENDS
    code, said = _run(tmp_path, "import time\n" + MENDS.replace(named, "str(time.time_ns())"))
    assert code == 1
    assert said.endswith("AssertionError\n")


def test_processes_that_are_started_anew_write_to_the_file_of_their_parent(tmp_path: Path) -> None:
    """Where they are forked, the parent's store is refused to them."""
    assert _run(tmp_path, SPAWNS) == (0, "")
    code, said = _run(tmp_path, SPAWNS.replace('"spawn"', '"fork"'))
    assert code == 1
    assert said.count("was opened before a fork") == 3


def _run(folder: Path, program: str) -> tuple[int, str]:
    file = folder / "program.py"  # which a child that is started anew reads again
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "error", file.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr
