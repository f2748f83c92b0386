"""Which tests go through which block of the source, and how long that takes: measured once for each file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from time import process_time

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.operators.changes import Change, Source
from tests.mutants.operators.children import OutOfTime, limit, tell
from tests.mutants.operators.living import Living
from tests.mutants.runner import say

FILE_WITHIN_S = 1_200.0
TEST_WITHIN_S = 60.0
WATCHER = "__operators_were_here__"


@dataclass(frozen=True)
class Tried:
    """What a test does with the source as it stands."""

    seconds: float
    blocks: frozenset[str]


@dataclass
class Covering:
    """The tests that hold and are quick enough, by their ids, and what each goes through."""

    tests: dict[str, Tried] = field(default_factory=dict[str, Tried])

    def of(self, change: Change) -> list[str]:
        """The tests that go where the change is: those of the module by name, then the others, fastest first.

        Where none goes into the block, those that enter its function or its file count: either may be new since.
        """
        found = (
            self._through(change.block)
            or self._through(f"{change.block.split('#')[0]}#1")
            or self._into(change.file)
        )
        own = f"/test_{Path(change.file).stem}"
        return sorted(found, key=lambda name: (own not in name, self.tests[name].seconds))

    def _through(self, block: str) -> list[str]:
        return [name for name, tried in self.tests.items() if block in tried.blocks]

    def _into(self, file: str) -> list[str]:
        inside = f"{file} "
        return [
            name
            for name, tried in self.tests.items()
            if any(block.startswith(inside) for block in tried.blocks)
        ]


def measure(
    items: Sequence[pytest.Item], sources: Sequence[Source], living: Living, kept: Path
) -> Covering:
    """Run each file of tests once in a child, unless that was done since it was written."""
    covering = Covering()
    kept.mkdir(parents=True, exist_ok=True)
    notes = {path: kept / f"{_mark(path)}.json" for path in {item.path: None for item in items}}
    for path, note in notes.items():
        if not note.exists():
            mine = [item for item in items if item.path == path]
            told = tell(partial(_watch, mine, sources, living), FILE_WITHIN_S)
            if told is None:
                say(f"{path.name} can't be measured, and is not asked")
                continue
            note.write_text(json.dumps(told))
        for name, (seconds, blocks) in json.loads(note.read_text()).items():
            covering.tests[name] = Tried(seconds, frozenset(blocks))
    return covering


def _mark(path: Path) -> str:
    return f"{path.stem}-{blake2b(path.read_bytes(), digest_size=8).hexdigest()}"


def _watch(
    items: Sequence[pytest.Item], sources: Sequence[Source], living: Living
) -> dict[str, tuple[float, list[str]]]:
    """In a child: run the tests, and note the blocks that each one enters. Those that fail are left out."""
    seen: set[str] = set()
    for source in sources:
        for function in living.put(source.path, source.watched(WATCHER)):
            function.__globals__[WATCHER] = seen.add
    found: dict[str, tuple[float, list[str]]] = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        seen.clear()
        began = process_time()
        limit(TEST_WITHIN_S)
        try:
            reports = runtestprotocol(item, nextitem=following, log=False)
        except OutOfTime:
            break  # so long that it is no help; nor can be told what state it left behind
        if all(report.passed for report in reports):
            found[item.nodeid] = process_time() - began, sorted(seen)
    return found
