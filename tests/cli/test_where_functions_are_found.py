"""Where the functions of a plan are looked for: by every command, and under pytest, in one and the same order."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.cli.app import COMMANDS
from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError
from surepipe.pipelines import load
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.simulate.simulating import simulation_of
from tests.cli.kit import Command
from tests.pipelines.simulate.kit import shop

STAGES = "import shop_rates\ndef price(order):\n    return {**order, 'cents': shop_rates.CENTS}\n"
WRONG = "raise LookupError('the module of the wrong folder')\n"
READ_NO_PLAN = frozenset(
    {"init", "schema", "replay", "relay", "submit", "watch", "top", "audit", "readers"}
)
"""Commands that enter no function of a plan: some write files, some look into stores."""
OPTIONS = {
    "run": ("--once",),
    "simulate": ("--seeds", "2", "--faults", "none"),
    "bench": ("--seconds", "0.2"),
}
BEGIN = {
    "as a module": ("-m", "surepipe"),
    "as a script": ("-P", "-c", "from surepipe.cli.app import main; main()"),
}
"""The first has the current folder on the path, as Python sees to that; the second has not."""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A pipeline in a folder, beside another folder whose modules have the same names and raise."""
    folder = tmp_path / "there"
    folder.mkdir()
    file = shop(folder, STAGES)
    (folder / "shop_rates.py").write_text("CENTS = 7\n")
    here = tmp_path / "here"
    here.mkdir()
    (here / "lines.jsonl").write_text('{"n": 1}\n')
    for name in ("shop_stages.py", "shop_rates.py"):
        (here / name).write_text(WRONG)
    return file


def commands_with_a_plan() -> list[str]:
    """All but those that are known to enter nothing of it: a new command is asked, too."""
    return sorted(
        name
        for name, (function, _) in COMMANDS.items()
        if name not in READ_NO_PLAN and "file" in inspect.signature(function).parameters
    )


@pytest.mark.parametrize("begun", BEGIN)
@pytest.mark.parametrize("name", commands_with_a_plan())
def test_every_command_finds_functions_beside_the_plan_first(
    there: Path, name: str, begun: str
) -> None:
    """From a folder with modules of the same names, however Python was begun."""
    here = there.parents[1] / "here"
    done = subprocess.run(
        [sys.executable, *BEGIN[begun], name, "../there/shop.yaml", *OPTIONS.get(name, ())],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (Exit.HELD, Exit.NOT_EXERCISED), done.stdout + done.stderr
    assert "wrong folder" not in done.stdout + done.stderr
    if name == "run":
        assert (here / "out.jsonl").read_text() == '{"n": 1, "cents": 7}\n'


def test_check_misses_what_run_would_miss(
    surepipe: Command, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks in the folder of the plan, and in the current one; and names both. Not in one that was current."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop_stages", raising=False)
    monkeypatch.chdir(there.parents[1] / "here")
    assert "no module" not in surepipe("check", there).out
    monkeypatch.chdir(there.parents[1])
    assert "no module" not in surepipe("check", there).out
    (there.parent / "shop_stages.py").unlink()
    told = f"no module shop_stages in {there.parent} or {Path.cwd()}, or among"
    assert told in surepipe("check", there).out
    (Path.cwd() / "shop_stages.py").write_text(STAGES)
    assert "no module" not in surepipe("check", there).out


def test_another_module_of_the_name_that_was_loaded_before_is_refused(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two plans in one session of pytest: the second one's stage is never taken for the first one's."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("shop_stages", "shop_rates"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    other = there.parents[1] / "other"
    other.mkdir()
    second = shop(other, "def price(order):\n    return order\n")
    assert simulation_of(there).subject.modules
    for enter in (
        lambda: simulation_of(second),
        lambda: RealEnvironment(load(second)).function("shop_stages:price"),
    ):
        with pytest.raises(
            ConfigurationError,
            match=r"means .*other/shop_stages\.py, and this process has loaded .*there",
        ):
            enter()
    assert simulation_of(there).subject.modules
