"""Runs the core of the tests on every other Python from 3.11 up that this machine has.

The whole suite runs on one interpreter (``make test``); what follows the interpreter most closely runs on all:
pipes, actors, stores, the simulator and its fixture, the command, but for what is marked ``long``; or what is
named: ``python -m tools.interpreters tests/queues``. Each interpreter gets an environment of its own, and keeps in
it which failed. They are named once more at the end, where somebody who sees only the last lines looks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
OLDEST = (3, 11)
LINE_MAX = 300
EXTRAS = "metrics,parquet,audit,http,test"
CORE = [
    *("tests/pipes", "tests/actors", "tests/storage"),
    *("tests/pipelines/simulate", "tests/simulation/test_replay.py", "tests/testing", "tests/cli"),
]
# Queues are not among them: machines on the stores and actors above, and as long as two of these folders.
# Spark comes with the default interpreter only: half a gigabyte, and nothing of ours runs differently there.
NEED_SPARK = ["tests/cli/test_run_on_spark.py", "tests/cli/test_replay.py"]


def main(tests: Sequence[str] = CORE) -> int:
    """Test on each, one after the other, and name those that failed."""
    others = {version: path for version, path in found().items() if version != sys.version_info[:2]}
    _say(f"surepipe: other Pythons here: {', '.join(map(_named, others)) or 'none'}")
    failed = {version: _problems(version, path, tests) for version, path in sorted(others.items())}
    for version, problems in failed.items():
        for problem in problems:
            _say(f"surepipe: on Python {_named(version)}: {problem}")
    return 1 if any(failed.values()) else 0


def found() -> dict[tuple[int, int], Path]:
    """The newest interpreter of each minor version, on the path and under pyenv."""
    newest: dict[tuple[int, int], tuple[tuple[int, ...], Path]] = {}
    for path in _candidates():
        version = _version(path)
        if version is None or version[:2] < OLDEST:
            continue
        minor = (version[0], version[1])
        if minor not in newest or newest[minor][0] < version:
            newest[minor] = (version, path)
    return {minor: path for minor, (_, path) in newest.items()}


def _candidates() -> Iterator[Path]:
    for minor in range(OLDEST[1], OLDEST[1] + 10):
        if on_path := shutil.which(f"python3.{minor}"):
            yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))


def _version(interpreter: Path) -> tuple[int, ...] | None:
    """What it says of itself; None if it does not run (as a shim of pyenv may not)."""
    asked = subprocess.run(
        [interpreter, "-c", "import ensurepip, sys, venv; print(*sys.version_info[:3])"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.fullmatch(r"(\d+) (\d+) (\d+)\n", asked.stdout)
    return tuple(map(int, said.groups())) if asked.returncode == 0 and said else None


def _problems(version: tuple[int, int], interpreter: Path, tests: Sequence[str]) -> list[str]:
    environment = ROOT / f".venv-{_named(version)}"
    python = environment / "bin" / "python"
    _say(f"surepipe: the core of the tests on Python {_named(version)}")
    if not (_run([str(interpreter), "-m", "venv", str(environment)]) and _installed(python)):
        return ["its environment could not be made"]
    report = environment / "tests.xml"
    report.unlink(missing_ok=True)
    without_spark = [f"--ignore={path}" for path in NEED_SPARK]
    passed = _run(
        [
            *(str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"),
            *("-o", f"cache_dir={environment / 'pytest-cache'}"),
            *("-m", "not long", "--junit-xml", str(report), *without_spark, *tests),
        ]
    )
    return [] if passed else _failed(report)


def _installed(python: Path) -> bool:
    """Twice at the most: a registry that does not answer once is nothing of ours."""
    install = [
        *(str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"),
        *("--no-compile", "--editable", f".[{EXTRAS}]"),
    ]
    return _run(install) or _run(install)


def _failed(report: Path) -> list[str]:
    """Which tests failed, and why. None where pytest ended in another way: that is a failure, too."""
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    failed = [
        f"{case.get('classname')}::{case.get('name')} failed: {_line(failure.get('message', ''))}"
        for case in cases
        for failure in (*case.findall("failure"), *case.findall("error"))
    ]
    return failed or ["no test failed, and pytest did: see above"]


def _line(text: str) -> str:
    return " ".join(text.split())[:LINE_MAX]


def _run(command: list[str]) -> bool:
    fewer_examples = {**os.environ, "HYPOTHESIS_PROFILE": "brief"}
    return subprocess.run(command, cwd=ROOT, env=fewer_examples, check=False).returncode == 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _named(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or CORE))
