"""Pages and pictures of docs/counterexamples.md: ``python -m tools.counterexamples`` writes them anew.

They are of simulated runs where there is one, and drawn by hand where a run would be too long to look at.
"""

from __future__ import annotations

from pathlib import Path

from surepipe.simulation.report import page, picture
from tools.counterexample_cases import CASES
from tools.counterexample_runs import RUNS

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures" / "counterexamples"


def files() -> dict[str, str]:
    """The text of every file by its name."""
    made: dict[str, str] = {}
    for name, case in {**CASES, **RUNS}.items():
        found = case()
        made[f"{name}.svg"] = picture(found, name)
        made[f"{name}.html"] = page(found)
    return made


def main() -> None:
    """Write the files."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (PICTURES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
