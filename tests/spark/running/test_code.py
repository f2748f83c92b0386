"""The modules of a plan's functions are shipped by themselves, and nothing that executors have (spark SP-12)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surepipe.pipelines import loads
from surepipe.spark.running.run import code_of, own_code

PIPELINE = """
version: 1
name: shipped
engine: {kind: spark, ship: [more, lib/other.py]}
stores: {main: {kind: sqlite, path: main.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}}}
stages:
  first: {from: intake, call: "its_stages.deep:price"}
  second: {from: first, key-by: customer}
  third: {from: second, filter: "its_sinks:is_good"}
  fourth: {from: third, map: "json:loads"}
sinks: {out: {from: fourth, kind: python, call: "its_sinks:book"}}
"""


def test_modules_of_functions_are_shipped_once_and_then_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """spark SP-12: a package as a whole, a module of two functions once; no field, and no standard library."""
    (tmp_path / "its_stages").mkdir()
    (tmp_path / "its_stages" / "__init__.py").touch()
    (tmp_path / "its_sinks.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert code_of(loads(PIPELINE)) == ("its_stages", "its_sinks", "more", "lib/other.py")


def test_what_executors_have_is_not_shipped() -> None:
    """spark SP-12: installed packages, surepipe, which goes anyway, and what is nowhere."""
    assert (
        own_code(["pyarrow.lib:x", "surepipe.pipes:x", "builtins:len", "nowhere:x", "field"]) == ()
    )
