from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from surepipe.cli.exits import Exit
from tests.cli.kit import Command


def files_in(folder: Path) -> set[str]:
    """All files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_new_pipeline_checks_and_its_test_passes(surepipe: Command, tmp_path: Path) -> None:
    """As it was written: `check` holds, and pytest runs in the folder without our configuration."""
    folder = tmp_path / "My shop"
    answer = surepipe("init", folder)
    assert answer.code == Exit.HELD
    assert "surepipe check pipeline.yaml" in answer.out
    checked = surepipe("check", folder / "pipeline.yaml")
    assert checked.code == Exit.HELD
    assert checked.out.startswith("My-shop  ")
    assert checked.out.endswith("held: 1 expectation\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_init_writes_over_nothing(surepipe: Command, tmp_path: Path) -> None:
    """When one file is there, none is written."""
    (tmp_path / "stages.py").write_text("mine")
    answer = surepipe("init", tmp_path)
    assert answer.code == Exit.UNUSABLE
    assert answer.err == (
        f"surepipe: {tmp_path / 'stages.py'} is there already, and nothing was written: name another folder\n"
    )
    assert files_in(tmp_path) == {"stages.py"}
    assert (tmp_path / "stages.py").read_text() == "mine"


def test_a_folder_that_can_not_be_made_is_one_line(surepipe: Command, tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "file").write_text("")
    answer = surepipe("init", tmp_path / "file" / "shop")
    assert answer.code == Exit.UNUSABLE
    assert len(answer.err.splitlines()) == 1


def test_a_folder_whose_name_can_not_be_a_pipelines_gives_it_another(
    surepipe: Command, tmp_path: Path
) -> None:
    """Digits first, or no sign that a name may have."""
    for name in ("2026", "…"):
        assert surepipe("init", tmp_path / name).code == Exit.HELD
        assert "name: orders\n" in (tmp_path / name / "pipeline.yaml").read_text()
