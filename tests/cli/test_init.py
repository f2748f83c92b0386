from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.pipelines.schema import schema_text
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


def simulated(folder: Path) -> subprocess.CompletedProcess[str]:
    """The last of the commands that `init` names, with the faults that the planted error is about."""
    words = ["simulate", "pipeline.yaml", "--seeds", "30", "--faults", "process-crash"]
    return subprocess.run(
        [sys.executable, "-m", "surepipe", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.long
def test_the_planted_error_is_found_when_it_is_uncommented(
    surepipe: Command, tmp_path: Path
) -> None:
    """Exactly as the file says: the '#' is taken away, and `simulate` shows what breaks; before that, nothing."""
    folder = tmp_path / "shop"
    said = surepipe("init", folder).out.rstrip().splitlines()
    assert said[-1].split() == ["surepipe", "simulate", "pipeline.yaml"]
    assert simulated(folder).returncode == Exit.HELD
    stages = folder / "stages.py"
    (planted,) = re.findall(r"^    # (sold\..*)$", stages.read_text(), re.MULTILINE)
    stages.write_text(stages.read_text().replace(f"# {planted}", planted))
    found = simulated(folder)
    assert found.returncode == Exit.VIOLATED, found.stdout + found.stderr
    assert "stages.sold" in found.stdout


def test_an_editor_finds_the_schema_that_the_first_line_names(
    surepipe: Command, tmp_path: Path
) -> None:
    """The modeline of yaml-language-server, and the file beside it."""
    surepipe("init", tmp_path)
    first = (tmp_path / "pipeline.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=surepipe.schema.json"
    assert (tmp_path / "surepipe.schema.json").read_text() == schema_text()


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


def test_a_name_of_a_file_is_refused_with_the_folder_that_was_meant(
    surepipe: Command, tmp_path: Path
) -> None:
    """``init shop.yaml`` made a folder of that name."""
    found = surepipe("init", tmp_path / "shop.yaml")
    assert found.code == Exit.UNUSABLE
    assert found.err.endswith(f"name it {tmp_path / 'shop'}\n")
    assert not list(tmp_path.iterdir())


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
