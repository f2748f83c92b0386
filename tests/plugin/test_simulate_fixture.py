"""The fixture ``simulate`` in a session of its own, as a user's project has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = """
from surepipe.simulation import Outside

def test_no_customer_is_charged_twice(simulate):
    def build():
        bank = Outside()                                     # survives our crashes, as a bank does
        def charge(order, context):
            bank.do("charge", order["id"], key=context.id)   # without key= this test fails
        return charge, lambda run: bank.count("charge") == {n: 1 for n in range(20)}
    simulate(build, messages=[{"id": n} for n in range(20)], seeds=300)
"""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_handler_that_gives_a_key_passes(tmp_path: Path) -> None:
    """The documented example with fewer seeds, and what the session says (simulation X-69, X-70)."""
    (tmp_path / "test_bank.py").write_text(EXAMPLE)
    done = _pytest(tmp_path, "--surepipe-seeds", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 schedules tried" in done.stdout
    assert not (tmp_path / ".surepipe").exists()


def test_without_its_key_it_fails_with_a_report_a_page_and_a_script_that_replays(
    tmp_path: Path,
) -> None:
    """The report names the second charge, the page shows it (simulation X-56, X-70, XT-14)."""
    (tmp_path / "test_bank.py").write_text(EXAMPLE.replace(", key=context.id", ""))
    done = _pytest(tmp_path, "--surepipe-report", "pages")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SimulationFailed: user your check VIOLATED" in done.stdout
    assert "happened twice" in done.stdout
    (page,) = (tmp_path / "pages").glob("*.html")
    assert str(page.relative_to(tmp_path)) in done.stdout
    assert "for the second time" in page.read_text()
    (script,) = (tmp_path / "pages").glob("*.json")
    again = _pytest(tmp_path, "--surepipe-replay", str(script))
    assert again.returncode == 1
    assert "your check VIOLATED" in again.stdout


def test_a_file_alone_is_a_test_of_its_pipeline(tmp_path: Path) -> None:
    """Written by ``surepipe init``, whose own test is the second one here (simulation X-71)."""
    made = subprocess.run(
        [sys.executable, "-m", "surepipe", "init", str(tmp_path / "shop")],
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0
    (tmp_path / "shop" / "test_more.py").write_text(
        "def test_it(simulate):\n    assert simulate('pipeline.yaml').runs == 5\n"
    )
    done = _pytest(tmp_path / "shop", "--surepipe-seeds", "5")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_of_surepipe_is_imported_until_a_fixture_is_used(tmp_path: Path) -> None:
    """The plugin is loaded in every session, so it costs nothing (simulation 12)."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_it():\n    assert 'surepipe.pipelines' not in sys.modules\n"
    )
    done = _pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "surepipe" not in done.stdout
