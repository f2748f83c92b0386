"""Handlers and plans for tests of whole pipelines under simulation."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from surepipe.pipelines.simulate.simulating import handler_subject
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import Context
from surepipe.simulation import Outside

MESSAGES = 8
Order = Mapping[str, int]

HEAD = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: none.jsonl}}
pipes:
  intake: {from: lines, journal: main, state: main, boundary: committed}
"""
"""A plan with one pipe in one process; its stages and sinks are to follow."""
SAMPLE = f"simulate: {{sample: {{lines: [{', '.join(f'm{number}' for number in range(64))}]}}}}\n"
"""What the source ``lines`` of a plan gives, whose file is not there."""


def bank_builder(*, with_key: bool) -> Callable[[], object]:
    """A handler that charges a customer for each order, and the check that each was charged once."""

    def build() -> object:
        bank = Outside("bank")

        def charge(order: Order, context: Context) -> None:
            bank.do("charge", order["id"], key=context.id if with_key else None)

        def check(run: object) -> bool:
            del run
            return bank.count("charge") == dict.fromkeys(range(MESSAGES), 1)

        return charge, check

    return build


def same(message: object) -> object:
    """A stage that changes nothing."""
    return message


def orders() -> list[Order]:
    """The messages of the bank."""
    return [{"id": number} for number in range(MESSAGES)]


def bank(*, with_key: bool) -> PlanSubject:
    """The bank as a subject."""
    return handler_subject(bank_builder(with_key=with_key), orders(), "bank")


SHOP = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}
stages: {price: {from: intake, call: "shop_stages:price"}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
"""


def shop(folder: Path, stages: str, pipeline: str = SHOP) -> Path:
    """The file of a small shop in this folder, with these stages and four messages."""
    (folder / "shop.yaml").write_text(pipeline)
    (folder / "shop_stages.py").write_text(stages)
    (folder / "lines.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(4)))
    return folder / "shop.yaml"


def imported_by_a_test(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The stages of a shop, loaded before anything of it is simulated; the test runs in its folder."""
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))  # which simulating adds the folder to
    stages = importlib.util.spec_from_file_location("shop_stages", file.parent / "shop_stages.py")
    assert stages is not None
    assert stages.loader is not None
    module = importlib.util.module_from_spec(stages)
    monkeypatch.setitem(sys.modules, "shop_stages", module)
    stages.loader.exec_module(module)
    return module


def command(file: Path, *options: str, jobs: int = 1) -> subprocess.CompletedProcess[str]:
    """``surepipe simulate`` of a file, in a process of its own: stages are imported by name, and each test has
    other ones."""
    return subprocess.run(
        [sys.executable, "-m", "surepipe", "simulate", file.name, "--jobs", str(jobs), *options],
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def simulated(
    folder: Path, stages: str, *options: str, pipeline: str = SHOP
) -> subprocess.CompletedProcess[str]:
    """The same of a small shop with these stages: few schedules of two faults."""
    few = ("--seeds", "4", "--faults", "receiver-crash,route-loss")
    return command(shop(folder, stages, pipeline), *few, *options)
