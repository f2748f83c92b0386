"""The survivors that change nothing that anybody could notice, each with the reason (``equivalent.toml``)."""

from __future__ import annotations

import tomllib
from pathlib import Path

NOTES = Path(__file__).parent / "equivalent.toml"


def equivalents() -> dict[str, str]:
    """Why a change is equivalent, by its name."""
    notes = tomllib.loads(NOTES.read_text())
    return {
        f"{file} {note['function']}: {note['before']} => {note['after']}": note["why"]
        for file, of_file in notes.items()
        for note in of_file
    }
