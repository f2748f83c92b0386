from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from surepipe.cli.output import Exit
from surepipe.pipelines.schema import DIALECT
from tests.cli.kit import Command
from tests.pipelines.files import pipeline

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"


def test_a_graph_is_svg_on_standard_output_or_in_a_file(surepipe: Command, tmp_path: Path) -> None:
    """The same picture."""
    shown = surepipe("graph", EXAMPLE)
    assert shown.code == Exit.HELD
    ElementTree.fromstring(shown.out)
    written = surepipe("graph", EXAMPLE, "-o", tmp_path / "orders.svg")
    assert written.out == f"wrote {tmp_path / 'orders.svg'}\n"
    assert (tmp_path / "orders.svg").read_text() == shown.out


@pytest.mark.parametrize(
    ("option", "first"), [("--dot", 'digraph "orders" {'), ("--mermaid", "flowchart LR")]
)
def test_a_graph_may_be_text_for_other_tools(surepipe: Command, option: str, first: str) -> None:
    """Graphviz, Mermaid."""
    assert surepipe("graph", EXAMPLE, option).out.splitlines()[0] == first


def test_a_graph_that_can_not_be_is_one_line(surepipe: Command, tmp_path: Path) -> None:
    """Two kinds at once, a place that can't be written, a broken file."""
    assert surepipe("graph", EXAMPLE, "--dot", "--mermaid").code == Exit.UNUSABLE
    nowhere = surepipe("graph", EXAMPLE, "-o", tmp_path / "no" / "a.svg")
    assert (nowhere.code, len(nowhere.err.splitlines())) == (Exit.UNUSABLE, 1)
    (tmp_path / "shop.yaml").write_text(pipeline(name="name: 7"))
    broken = surepipe("graph", tmp_path / "shop.yaml")
    assert (broken.code, broken.out) == (Exit.UNUSABLE, "")
    assert "shop.yaml:2:7: name is 7" in broken.err


def test_the_schema_is_json_on_standard_output_or_in_a_file(
    surepipe: Command, tmp_path: Path
) -> None:
    """The same document."""
    shown = surepipe("schema")
    assert shown.json["$schema"] == DIALECT
    path = tmp_path / "schema.json"
    assert surepipe("schema", "--out", path).out == f"wrote {path}\n"
    assert json.loads(path.read_text()) == shown.json
    refused = surepipe("schema", "--out", tmp_path / "no" / "schema.json")
    assert (refused.code, len(refused.err.splitlines())) == (Exit.UNUSABLE, 1)
