"""Ctrl-C at moments when a command has said nothing yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic_core import SchemaError

from surepipe.cli.app import is_interrupt
from surepipe.cli.output import Exit
from tests.pipelines.simulate.kit import command, shop

PROGRAM = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupts())
from surepipe.cli import main
main()
"""


@pytest.mark.parametrize(
    ("loaded", "told"),
    [
        ("typer", "interrupted before it began"),
        ("surepipe.cli.simulating", "simulate was interrupted, and says nothing"),
        ("yaml", "simulate was interrupted, and says nothing"),
    ],
)
def test_an_interrupt_while_the_command_is_loaded_is_told(
    tmp_path: Path, loaded: str, told: str
) -> None:
    """It comes at the moment when this module is looked for (simulation X-22)."""
    file = shop(tmp_path, "def price(order):\n    return order\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, loaded, "simulate", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (Exit.INTERRUPTED, ""), done.stderr
    assert done.stderr == f"surepipe: {told}\n"


def test_an_interrupt_while_stages_are_imported_is_told(tmp_path: Path) -> None:
    """Their module sends it (simulation X-22)."""
    stages = (
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndef price(order): return order\n"
    )
    done = command(shop(tmp_path, stages), "--seeds", "2")
    assert (done.returncode, done.stdout) == (Exit.INTERRUPTED, "")
    said = "interrupted before the first schedules were over: nothing is said to hold"
    assert done.stderr == f"surepipe: {said}\n"


def test_what_pydantic_makes_of_an_interrupt_is_one() -> None:
    """A model that was being loaded fails with an error of its own."""
    assert is_interrupt(SchemaError("Error building a serializer:\n  KeyboardInterrupt: "))
    assert not is_interrupt(SchemaError("Error building a serializer"))
    assert not is_interrupt(ValueError("KeyboardInterrupt"))
