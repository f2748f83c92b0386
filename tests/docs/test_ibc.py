"""The page about IBC queues: its programs run as they stand."""

from __future__ import annotations

from pathlib import Path

from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "ibc.md").read_text()
BLOCKS = programs_in(PAGE)


def test_the_programs_of_the_page_run() -> None:
    """IB-22: what they assert is so."""
    assert len(BLOCKS) > 3
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)
