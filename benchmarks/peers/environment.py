"""The environment of the comparison: one of its own, so that no peer is ever a dependency of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".surepipe" / "peers"
REQUIREMENTS = (
    "celery[redis]",
    "dramatiq[redis]",
    "rq",
    "taskiq",
    "taskiq-redis",
    "faststream[redis,cli]",
    "huey",
    "redis[hiredis]",
)


def command(name: str) -> str:
    """A program of the environment."""
    return str(PLACE / "bin" / name)


def prepare() -> None:
    """Make the environment, unless it is there, with the newest of each that suit each other."""
    ready = PLACE / ".ready"
    wanted = "\n".join((str(ROOT), *REQUIREMENTS))
    if ready.exists() and ready.read_text() == wanted:
        return
    print(f"preparing {PLACE.relative_to(ROOT)} (a minute)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
    pip = [command("python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", *REQUIREMENTS, "--editable", str(ROOT)], check=True)
    ready.write_text(wanted)


def versions(packages: Iterable[str]) -> dict[str, str]:
    """What is installed."""
    code = "import sys, importlib.metadata as m\nfor name in sys.argv[1:]: print(m.version(name))"
    names = list(packages)
    found = subprocess.run(
        [command("python"), "-c", code, *names], check=True, capture_output=True, text=True
    )
    return dict(zip(names, found.stdout.split(), strict=True))


def variables(**more: str) -> dict[str, str]:
    """The environment variables of a producer or worker."""
    path = {"PYTHONPATH": str(ROOT), "PATH": f"{PLACE / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return {**os.environ, **path, "PYTHONWARNINGS": "ignore", **more}
