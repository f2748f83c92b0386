"""``surepipe simulate --replay``: scripts of a pipeline that has changed, and files that are no scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError
from surepipe.pipelines.simulate.simulating import changed_since, handler_subject, state_of
from surepipe.simulation.chance.script import parse
from tests.pipelines.simulate.kit import SHOP, command, shop

PLAN = SHOP.replace(":price", ":Price") + 'simulate: {check: "shop_stages:once"}\n'
STAGES = """\
from surepipe.simulation import Outside
class Price:
    def __init__(self):
        self.bank = Outside('bank')
    def __call__(self, order):
        self.bank.do('charge', order['n'])
        return order
def once(run):
    times = [n for bank in run.outsides for n in bank.count('charge')]
    return len(times) == len(set(times))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a shop that charges beside its transaction, with the script that shows it."""
    folder = tmp_path_factory.mktemp("shop")
    done = command(shop(folder, STAGES, PLAN), "--faults", "process-crash", "--out", "pages")
    assert done.returncode == Exit.VIOLATED, done.stdout + done.stderr
    return folder


@pytest.fixture
def written(found: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of it: the pipeline's file, and the script."""
    copytree(found, tmp_path, dirs_exist_ok=True)
    (script,) = (tmp_path / "pages").glob("*.json")
    return tmp_path / "shop.yaml", script


def _another_stage(file: Path) -> None:
    stages = file.parent / "shop_stages.py"
    stages.write_text(stages.read_text().replace("self.bank.do(", "0 and self.bank.do("))


def _another_plan(file: Path) -> None:
    file.write_text(file.read_text().replace("intake", "inlet"))


def _another_script(file: Path) -> None:
    (script,) = (file.parent / "pages").glob("*.json")
    told = json.loads(script.read_text())
    told["decisions"].append(["faults/x", "x: nothing", "crash", [0, 0], "F1"])
    script.write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_another_plan, "Since it was written, the pipeline's file has changed: simulate again"),
        (_another_script, "The pipeline, its stages and its rows are seen to be the same: "),
    ],
)
def test_a_stale_script_is_no_finding_and_says_what_has_changed(
    written: tuple[Path, Path], change: Callable[[Path], None], told: str
) -> None:
    """Exit 2, for it says nothing of the pipeline (simulation XT-8)."""
    file, script = written
    change(file)
    done = command(file, "--replay", str(script))
    assert (done.returncode, done.stdout) == (Exit.UNUSABLE, "")
    assert done.stderr.startswith("surepipe: the script is stale: nothing happens any more at ")
    assert told in done.stderr


def test_a_replay_tells_a_violation_as_the_campaign_has_told_it(written: tuple[Path, Path]) -> None:
    """The same property, verdicts and words of whose defect it is (simulation X-22)."""
    file, script = written
    first = command(file, "--faults", "process-crash", "--out", "others", "--json")
    again = command(file, "--replay", str(script), "--json")
    told, said = json.loads(first.stdout), json.loads(again.stdout)
    assert said["events"] > 0
    assert said["script"] == str(script)
    assert said["verdicts"] == {"intake": "not judged", "lines to out": "violated"}
    for name in ("exit", "violated", "verdicts", "notes"):
        assert said[name] == told[name], name
    whose = "A stage's defect"
    assert told["report"].count(whose) > 0
    assert _lines(said["report"], whose) == _lines(told["report"], whose)


def _lines(report: str, begin: str) -> list[str]:
    return [line for line in report.splitlines() if line.startswith(begin)]


def test_a_script_of_a_stage_that_was_mended_holds_and_says_that_it_was_changed(
    written: tuple[Path, Path],
) -> None:
    """The stage does nothing outside any more; the run is that of the script."""
    file, script = written
    _another_stage(file)
    done = command(file, "--replay", str(script))
    assert done.returncode in (Exit.HELD, Exit.UNUSABLE), done.stdout + done.stderr
    assert "since the script was written, shop_stages.py has changed" in done.stdout


def test_rows_that_are_others_or_fewer_are_told() -> None:
    """Of the rows that there were, and where there are not so many, of their number alone."""

    def build() -> Callable[[object], object]:
        return lambda message: message

    then = state_of(handler_subject(build, ["a", "b", "c"]))
    told = [
        list(changed_since(handler_subject(build, rows), then))
        for rows in ("abc", "abcd", "abx", "ab")
    ]
    assert told[:2] == [[], []]
    assert told[2] == ["the rows of its sources have changed"]
    assert told[3] == ["the run had 3 messages, and this one has 2 (--messages 3)"]


def test_a_script_whose_seed_is_no_number_is_damaged() -> None:
    """One without end, too, which JSON can hold."""
    with pytest.raises(ConfigurationError, match="this script is damaged"):
        parse('{"format": 1, "subject": "shop", "options": {}, "decisions": [], "seed": 1e400}')


def test_a_folder_that_cannot_be_made_is_told(written: tuple[Path, Path]) -> None:
    """A file stands in its place (simulation X-22): exit 2, and no traceback."""
    file, _ = written
    done = command(file, "--faults", "process-crash", "--out", str(file / "pages"))
    assert done.returncode == Exit.UNUSABLE
    assert done.stderr.startswith(
        f"surepipe: {file / 'pages'} can't be made, for pages and scripts: "
    )
