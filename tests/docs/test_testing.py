"""The page about tests: the file of tests with real pipes passes as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
BLOCKS = programs_in(PAGE)
_FILE = re.compile(r"^```\w+\n# (\S+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tests_of_a_service_pass(tmp_path: Path) -> None:
    """Both of them, and Python warns of nothing."""
    (tmp_path / "test_service.py").write_text(BLOCKS[-1])
    assert "2 passed" in _tested(tmp_path)


def test_the_first_test_passes_and_fails_without_its_key(tmp_path: Path) -> None:
    """As it says itself."""
    (tmp_path / "test_bank.py").write_text(BLOCKS[0])
    assert "1 passed" in _tested(tmp_path)
    (tmp_path / "test_bank.py").write_text(BLOCKS[0].replace(', key=order["id"]', ""))
    assert "1 failed" in _tested(tmp_path)


def test_the_handler_that_commits_is_simulated_and_fails_without_its_key(tmp_path: Path) -> None:
    """Its four files as they stand; then the double forgets the key, and two calls are two effects."""
    files = dict(_FILE.findall(PAGE))
    assert sorted(files) == ["doubles.py", "reserve.yaml", "shop.py", "test_reserve.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert "1 passed" in _tested(tmp_path)
    (tmp_path / "doubles.py").write_text(files["doubles.py"].replace(', key=order["id"]', ""))
    assert "1 failed" in _tested(tmp_path)


def _tested(folder: Path) -> str:
    """What a session of pytest says in that folder."""
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "--surepipe-seeds", "40"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stdout
