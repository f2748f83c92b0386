"""What the pages say of running, sources and sinks."""

from __future__ import annotations

import re
from pathlib import Path

from surepipe.pipelines.loading import SINKS, SOURCES

DOCS = Path(__file__).parents[3] / "docs"


def kinds_in(text: str) -> set[str]:
    """The words in the first column of a table."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}


def test_every_kind_of_source_and_sink_has_its_row() -> None:
    """And no row names what there is not."""
    sources, sinks = (DOCS / "sources-and-sinks.md").read_text().split("\n## Sinks\n")
    for section, text in ((SOURCES, sources), (SINKS, sinks)):
        known = {model.model_fields["kind"].default for model in section.models}
        assert kinds_in(text) - {"kind"} == known
