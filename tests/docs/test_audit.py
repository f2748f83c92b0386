"""The page about audits says what the command does."""

from __future__ import annotations

from pathlib import Path

from surepipe.audit.bulk.judging import CHANNELS_WITH_EXAMPLES, EXAMPLES
from surepipe.audit.bulk.statements import SPANS_MAX
from surepipe.core.claims import Atom
from surepipe.spark.audit import BUCKETS

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_every_atom_and_every_bound_is_told() -> None:
    """The numbers in the text are those of the code."""
    assert all(f"| {atom} |" in PAGE for atom in Atom)
    assert f"more than {SPANS_MAX:,} pieces" in PAGE
    assert (EXAMPLES, CHANNELS_WITH_EXAMPLES, BUCKETS) == (10, 50, 8)
    assert "up to ten examples" in PAGE
    assert "fifty worst channels" in PAGE
    assert "each of eight keys" in PAGE
    assert (Path(__file__).parents[2] / "docs" / "pictures" / "audit-page.png").is_file()
