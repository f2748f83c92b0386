from __future__ import annotations

import io
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import surepipe as package
from surepipe.cli.app import COMMANDS
from surepipe.cli.output import Exit, epilog, line, show
from tests.cli.kit import Command
from tests.pipelines.files import pipeline

HEAVY = (
    "surepipe.actors",
    "surepipe.pipes",
    "surepipe.pipelines",
    "pykka",
    "redis",
    "yaml",
    "sqlite3",
    "asyncio",
)
PROBE = f"""
import sys
from surepipe.cli.app import run
code = run(["check", "--help"])
print(sorted(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def test_the_exit_codes_are_those_of_the_one_table() -> None:
    """simulation X-22, and 130 as shells have it for Ctrl-C."""
    assert [(code.name, code.value) for code in Exit] == [
        ("HELD", 0),
        ("VIOLATED", 1),
        ("UNUSABLE", 2),
        ("NOT_EXERCISED", 3),
        ("NOT_DETERMINISTIC", 4),
        ("REPLACED", 5),
        ("INTERRUPTED", 130),
    ]
    assert all(code.meaning for code in Exit)
    assert epilog(Exit.HELD, Exit.NOT_DETERMINISTIC) == "Exit codes: 0 held · 4 not deterministic"


def test_the_help_names_every_command_and_where_to_begin(surepipe: Command) -> None:
    """With and without being asked; without, nothing was done and the code says so."""
    asked = surepipe("--help")
    assert asked.code == 0
    assert "surepipe init" in asked.out
    for name in COMMANDS:
        assert f" {name} " in asked.out
    assert surepipe().code == Exit.UNUSABLE


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_says_what_it_does_and_its_exit_codes(
    surepipe: Command, name: str
) -> None:
    """One sentence at least, and the codes that it may end with."""
    answer = surepipe(name, "-h")
    assert answer.code == 0
    assert "Exit codes: 0 held" in answer.out
    function, _ = COMMANDS[name]
    first = (function.__doc__ or "").split(".", maxsplit=1)[0]
    assert first.split(",", maxsplit=1)[0] in " ".join(answer.out.replace("│", " ").split())


def test_the_version_is_told(surepipe: Command) -> None:
    """The one of the package."""
    assert surepipe("--version").out == f"surepipe {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["chekc"], ["check"], ["check", "a", "--nope"], ["check", "a", "b"]]
)
def test_a_command_line_that_means_nothing_is_code_2_and_says_so_on_standard_error(
    surepipe: Command, arguments: list[str]
) -> None:
    """Nothing is written to standard output, which may be read by a machine."""
    answer = surepipe(*arguments)
    assert answer.code == Exit.UNUSABLE
    assert answer.out == ""
    assert answer.err


FILE_COMMANDS = [
    ["init"],
    ["check"],
    ["run"],
    ["audit"],
    ["readers"],
    ["graph"],
    ["simulate"],
    ["bench"],
    ["top"],
    ["dlq", "list"],
    ["book", "list"],
    ["relay"],
    ["watch"],
]


@pytest.mark.parametrize("command", FILE_COMMANDS, ids=" ".join)
def test_a_name_that_no_file_can_have_is_told_in_a_line(
    surepipe: Command, command: list[str]
) -> None:
    """Whoever asks the file system about it first gets an OSError, wherever that is."""
    answer = surepipe(*command, "x" * 300)
    assert answer.code == Exit.UNUSABLE
    assert "Traceback" not in answer.err
    assert "x" * 300 in "".join(answer.err.split())


def test_asking_for_help_imports_nothing_heavy() -> None:
    """In a process of its own: no actors, machines, models, parsers or stores."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """`python -m surepipe` checks a file."""
    (tmp_path / "shop.yaml").write_text(pipeline())
    done = subprocess.run(
        [sys.executable, "-m", "surepipe", "check", "shop.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shop  shop.yaml\n")


def test_the_entry_point_leads_to_the_command() -> None:
    """What pip makes the program `surepipe` of; it stands in pyproject.toml."""
    declared = Path(package.__file__).parents[2] / "pyproject.toml"
    assert 'surepipe = "surepipe.cli:main"' in declared.read_text()
    for point in entry_points(group="console_scripts", name="surepipe"):
        assert point.value == "surepipe.cli:main"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_a_log_gets_plain_lines_and_a_terminal_coloured_ones_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same line, once as it is and once folded under its indent."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = [line(("good: ", "good"), "word " * 20, indent=4)]
    log, terminal = io.StringIO(), Terminal()
    show(lines, log)
    show(lines, terminal)
    assert log.getvalue() == "    good: " + "word " * 20 + "\n"
    assert "\x1b[32m" in terminal.getvalue()
    folded = [row for row in terminal.getvalue().splitlines() if row.strip()]
    assert len(folded) > 2
    assert all(row.startswith("    ") for row in folded)
