"""The page about the house: what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "surepipe"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CODE = "\n".join(path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py")))


def test_every_module_that_the_page_names_exists() -> None:
    """Paths are written from the package, or from the root for tests and documents."""
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.(?:py|md))`", PAGE))
    assert len(named) > 30
    assert [
        path for path in named if not (SOURCE / path).exists() and not (ROOT / path).exists()
    ] == []


def test_every_class_and_function_in_the_life_of_a_message_is_in_the_code() -> None:
    """A method is looked for in the class, or in one of those that it names with it."""
    life = PAGE[PAGE.index("## The life of a message") : PAGE.index("## Add a pipe")]
    named = set(re.findall(r"`([A-Z][A-Za-z]+)(?:\.([a-z_]+))?`", life))
    assert len(named) > 30
    for kind, method in named:
        assert re.search(rf"^(class {kind}\b|{kind}\b)", CODE, re.MULTILINE), kind
        if method:
            bodies = re.findall(
                rf"^class {kind}\b.*?(?=^class |\Z)", CODE, re.MULTILINE | re.DOTALL
            )
            assert any(f"def {method}(" in body for body in bodies), f"{kind}.{method}"
