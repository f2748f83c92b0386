"""Fills the marked blocks of patterns.md: ``python -m tools.patterns``; with ``--check`` it only compares.

A block stands between ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- /generated -->``. Tables come from the
declarations and the algebra, code from examples/patterns, output from running it, pictures from draw_patterns.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools import draw_patterns, fault_table, pattern_tables

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "patterns.md"
EXAMPLES = ROOT / "examples" / "patterns"

_BLOCK = re.compile(
    r"<!-- generated: (?P<name>[\w-]+)(?: (?P<argument>[\w-]+))? -->\n(?P<body>.*?)<!-- /generated -->",
    re.DOTALL,
)


def _picture(name: str) -> str:
    return f"![{draw_patterns.DESCRIPTIONS[name]}](docs/pictures/{name}.svg)"


def _example(name: str) -> str:
    return f"```python\n{(EXAMPLES / f'{name}.py').read_text(encoding='utf-8').strip()}\n```"


def _output(name: str) -> str:
    return f"It prints:\n\n```text\n{output_of(name).strip()}\n```"


_WITHOUT: Mapping[str, Callable[[], str]] = {
    "needs": pattern_tables.needs,
    "atoms": pattern_tables.atoms,
    "claims": pattern_tables.claims,
    "faults": pattern_tables.faults,
    "algebra": pattern_tables.algebra,
    "worked": pattern_tables.worked,
    "books": pattern_tables.books,
    "book-crashes": pattern_tables.book_crashes,
    "book-measured": fault_table.book_table,
    "channels": pattern_tables.channels,
    "channel-options": pattern_tables.channel_options,
    "boundaries": pattern_tables.boundaries,
    "parameters": pattern_tables.parameters,
    "boundary-options": pattern_tables.boundary_options,
    "counters": pattern_tables.counters,
    "notices": pattern_tables.notices,
}
_WITH: Mapping[str, Callable[[str], str]] = {
    "requires": pattern_tables.requires,
    "promises": pattern_tables.promises,
    "crashes": pattern_tables.crashes,
    "measured": fault_table.measured,
    "picture": _picture,
    "example": _example,
    "output": _output,
}


def output_of(name: str) -> str:
    """Run an example as a reader would and return what it prints; raises when it fails."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"example {name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def fill(page: str, *, run_examples: bool) -> str:
    """The page with every block made anew; without ``run_examples`` the printed output stays as it is."""

    def made(block: re.Match[str]) -> str:
        name, argument = block["name"], block["argument"]
        if name == "output" and not run_examples:
            return block[0]
        body = _WITHOUT[name]() if argument is None else _WITH[name](argument)
        marker = " ".join(filter(None, (name, argument)))
        return f"<!-- generated: {marker} -->\n\n{body}\n\n<!-- /generated -->"

    return _BLOCK.sub(made, page)


def blocks(page: str) -> dict[tuple[str, str], str]:
    """The bodies of the blocks by name and argument."""
    return {(b["name"], b["argument"] or ""): b["body"].strip() for b in _BLOCK.finditer(page)}


def main() -> int:
    """Write the pictures and the page, or say whether they are what they should be."""
    page = PAGE.read_text(encoding="utf-8")
    filled = fill(page, run_examples=True)
    if "--check" in sys.argv[1:]:
        return int(filled != page)
    draw_patterns.main()
    PAGE.write_text(filled, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
