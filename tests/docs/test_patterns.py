"""patterns.md says what the code does: its tables, pictures, examples and links are compared with it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from surepipe.pipes.catalogue import KINDS
from tools import draw_patterns, patterns
from tools.fault_table import BOOK_TRIED, IBC_TRIED, RMQ_TRIED
from tools.pattern_hops import PATTERNS, WORKED
from tools.patterns import EXAMPLES, PAGE, ROOT, blocks, fill, output_of

SVG = "{http://www.w3.org/2000/svg}"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
PICTURES = draw_patterns.pictures()


def test_every_table_is_what_the_declarations_give() -> None:
    """Makes every block anew; ``python -m tools.patterns`` brings the page up to date."""
    assert fill(TEXT, run_examples=False) == TEXT


@pytest.mark.parametrize(
    "name", ["promises", "crashes", "worked", "channels", "parameters", "counters"]
)
def test_a_table_that_was_changed_by_hand_is_noticed(name: str) -> None:
    """Plants a wrong word in a table of each sort."""
    body = next(body for (block, _), body in BLOCKS.items() if block == name)
    wrong = TEXT.replace(body, body.replace("| --- |", "| --- |\n| lie |", 1), 1)
    assert wrong != TEXT
    assert fill(wrong, run_examples=False) == TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_pipe_has_a_section_with_everything_in_it(kind: str) -> None:
    """A heading of its name, and one block of each sort."""
    file = kind.replace("-", "_")
    wanted = {(sort, kind) for sort in ("picture", "requires", "promises", "crashes")}
    assert wanted | {("example", file), ("output", file)} <= BLOCKS.keys()
    assert f"\n## {kind}\n" in TEXT
    assert kind in PATTERNS


def test_the_worked_compositions_are_all_there() -> None:
    """Twenty numbers, some with letters (pipes al1 to al20)."""
    assert {int(item.number.rstrip("abc")) for item in WORKED} == set(range(1, 21))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_prints_what_the_page_shows(name: str) -> None:
    """Runs the file in a process of its own, with warnings as errors; the page holds the same text."""
    assert BLOCKS["output", name] == f"It prints:\n\n```text\n{output_of(name).strip()}\n```"
    assert (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").strip() in BLOCKS["example", name]


def test_an_example_that_fails_is_not_taken_for_one_that_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example that ends with an error raises, with what it said."""
    (tmp_path / "broken.py").write_text("raise SystemExit('no such pipe')\n", encoding="utf-8")
    monkeypatch.setattr(patterns, "EXAMPLES", tmp_path)
    with pytest.raises(RuntimeError, match="no such pipe"):
        output_of("broken")


PIPELINE_PICTURE = "orders-pipeline.svg"
"""Drawn by ``surepipe graph``, and judged with docs/pipelines.md."""


def test_the_pictures_are_as_the_script_draws_them() -> None:
    """Compares every picture of docs/pictures but those of pages of their own; none is missing or left over."""
    stored = {path.name: path.read_text(encoding="utf-8") for path in _stored_pictures()}
    assert stored == PICTURES


def _stored_pictures() -> list[Path]:
    found = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    return [path for path in found if path.name != PIPELINE_PICTURE]


@pytest.mark.parametrize("file", sorted(PICTURES))
def test_a_picture_tells_in_words_what_it_shows(file: str) -> None:
    """Title and description stand in the picture, and the description on the page as alternative text."""
    root = ET.fromstring(PICTURES[file])
    title, description = root.findtext(f"{SVG}title"), root.findtext(f"{SVG}desc")
    assert title
    assert description
    assert f"![{description}](docs/pictures/{file})" in TEXT


@pytest.mark.parametrize("file", sorted(PICTURES))
def test_a_picture_can_be_read(file: str) -> None:
    """No text is below 12 pixels, none stands outside of the page, and both colour schemes are there."""
    root = ET.fromstring(PICTURES[file])
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    style = root.findtext(f"{SVG}style") or ""
    assert min(int(size) for size in re.findall(r"(\d+)px", style)) >= 12
    assert "prefers-color-scheme: dark" in style
    for words in root.iter(f"{SVG}text"):
        left, right = _extent(words)
        assert 0 <= left < right <= width, words.text
        assert 0 < float(words.attrib["y"]) < height, words.text


def _extent(words: ET.Element) -> tuple[float, float]:
    """Where a line of text begins and ends, generously: 9 pixels a letter."""
    x, wide = float(words.attrib["x"]), 9.0 * len(words.text or "")
    start = {"start": x, "middle": x - wide / 2, "end": x - wide}[words.get("text-anchor", "start")]
    return start, start + wide


def test_every_link_leads_somewhere() -> None:
    """Links within the page meet a heading, all others a file of the repository."""
    headings = {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", _prose(), re.MULTILINE)}
    targets = re.findall(r"\]\(([^)\s]+)\)", _prose())
    assert len(targets) > 30
    broken = [
        target
        for target in targets
        if (target[1:] not in headings if target[0] == "#" else not (ROOT / target).is_file())
    ]
    assert broken == []


def _prose() -> str:
    """The page without its code."""
    return re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)


def _anchor(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "test",
    sorted({*BOOK_TRIED.values(), *IBC_TRIED.values(), *(each[1] for each in RMQ_TRIED.values())}),
)
def test_what_tries_a_queue_is_there(test: str) -> None:
    """The fault table names a test for each row of a book, of two parties and of a replicated queue."""
    path, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8")
