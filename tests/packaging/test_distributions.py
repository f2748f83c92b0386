from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.repository import ROOT, ROOT_LINKS

pytestmark = pytest.mark.xdist_group("distributions")
"""One worker builds them, and the environment, once."""

PROBE = """
import sys
import surepipe
heavy = {"pyspark", "pyarrow", "pandas"} & set(sys.modules)
assert not heavy, heavy
print(surepipe.__version__, surepipe.__file__)
"""


@dataclass(frozen=True, slots=True)
class Distributions:
    """The two archives that are published."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Both archives, built from the tree: the source archive first, the wheel from it."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)], out)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


@pytest.fixture(scope="module")
def stranger(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, what it depends on, nothing else."""
    home = tmp_path_factory.mktemp("stranger")
    venv.create(home / "env", symlinks=True)
    python = home / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--quiet"]
    run([*pip, "--no-compile", str(distributions.wheel)], home)
    return python


def test_the_wheel_holds_the_package_its_type_marker_and_its_licence_only(
    distributions: Distributions,
) -> None:
    """Every module of the tree is in the wheel once, and nothing lies outside the two packages."""
    with zipfile.ZipFile(distributions.wheel) as wheel:
        names = wheel.namelist()
    metadata = [name for name in names if name.split("/")[0].endswith(".dist-info")]
    modules = {name for name in names if name.endswith(".py")}
    packages = {"surepipe", "pyspark_surepipe"}  # Spark finds its sources by the name of a package
    assert {name.split("/")[0] for name in names if name not in metadata} == packages
    assert modules == source_modules()
    assert {name for name in names if name.endswith(".lua")} == source_files("*.lua") != set()
    assert "surepipe/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)
    assert len(names) == len(set(names))


def test_the_source_archive_holds_the_code_once_and_no_link(distributions: Distributions) -> None:
    """The links at the root stay out, the licence and the type marker are in."""
    with tarfile.open(distributions.sdist) as sdist:
        members = sdist.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert not [name for name in names if name.split("/")[0] in ROOT_LINKS]
    assert {f"src/{module}" for module in source_modules()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml", "src/surepipe/py.typed"} <= names


def test_the_installed_wheel_imports_without_spark(stranger: Path) -> None:
    """A fresh interpreter in the stranger's environment imports surepipe from there."""
    version, _, location = run([str(stranger), "-I", "-c", PROBE], stranger.parent).partition(" ")
    assert Path(location.strip()).resolve().is_relative_to(stranger.parents[1].resolve())
    assert version.count(".") == 2


def test_a_strangers_program_passes_mypy_strict_against_the_installed_wheel(
    stranger: Path,
) -> None:
    """Our mypy looks into the stranger's environment, from a folder without our configuration."""
    program = stranger.parents[2] / "stranger.py"
    program.write_bytes((ROOT / "tests" / "typing" / "stranger.py").read_bytes())
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull]
    checked = run(
        [*mypy, "--python-executable", str(stranger), "--cache-dir", os.devnull, str(program)],
        program.parent,
    )
    assert "no issues found in 1 source file" in checked


def source_modules() -> set[str]:
    """The names that the tree's modules have inside a wheel."""
    return source_files("*.py")


def source_files(pattern: str) -> set[str]:
    """The names that these files of the tree have inside a wheel."""
    source = ROOT / "src"
    return {path.relative_to(source).as_posix() for path in source.rglob(pattern)}


def run(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder of its own; a failure shows what the command said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
