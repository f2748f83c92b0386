"""A session of pytest that runs no test by itself: it makes one change after another, and asks the tests."""

from __future__ import annotations

import gc
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import cast

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.operators.changes import Change, Source
from tests.mutants.operators.children import OutOfTime, adopt_orphans, limit, tell
from tests.mutants.operators.covering import Covering, measure
from tests.mutants.operators.known import equivalents
from tests.mutants.operators.living import Living
from tests.mutants.runner import say

ROOT = Path(__file__).resolve().parents[3]
CODE = ROOT / "src" / "surepipe"

SLOWER = 10
PATIENCE_S = 3.0
"""A test with a change in it may work ten times as long and three seconds."""
WITHIN_S = 1_200.0
"""of time, at the most, for all tests of a change on a busy machine"""
KILLERS = 6


@dataclass(frozen=True)
class Verdict:
    """What came of a change: ``killed``, ``time`` (killed by time), or ``survived`` so many tests.

    ``equivalent``: not tried, as a note says why nothing follows from it.
    """

    name: str
    outcome: str
    by: str
    tests: int
    source: str
    """digest of the file that was changed"""


@dataclass(frozen=True)
class Bounds:
    """Which changes are tried: the first of an order that the seed draws, for so long, or so many.

    ``depth_s``: tests of a change that work so long without it; the rest, the slowest, is not asked.
    """

    seed: int
    minutes: float
    most: int
    depth_s: float


class Operators:
    """The plugin that takes the place of pytest's loop."""

    def __init__(
        self, files: Sequence[Path], chosen: Sequence[Path], bounds: Bounds, kept: Path
    ) -> None:
        self.sources = {source.file: source for source in map(source_of, files)}
        self.chosen = {str(path) for path in chosen}
        self.bounds = bounds
        self.kept = kept
        self.verdicts: dict[str, tuple[Change, Verdict]] = {}
        self.made = 0
        self._equivalent = equivalents()
        self._killers: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=KILLERS))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure, then go through the changes in the order of the seed until time is up."""
        if session.testsfailed:
            raise session.Interrupted("the tests could not be loaded")
        adopt_orphans()
        sources = list(self.sources.values())
        living = Living(source.path for source in sources)
        for source in sources:
            assert not living.differing(source.path, source.code()), f"{source.file} was edited"
        items = {item.nodeid: item for item in session.items}
        gc.freeze()
        covering = measure(session.items, sources, living, self.kept / "covering")
        say(f"{len(covering.tests)} of {len(items)} tests hold and were measured")
        before = self._earlier()
        end = monotonic() + 60 * self.bounds.minutes
        changes = self.changes()
        self.made = len(changes)
        for change in changes[: self.bounds.most]:
            if monotonic() > end:
                break
            source = self.sources[change.file]
            known = before.get(change.name)
            if change.name in self._equivalent:
                verdict = Verdict(change.name, "equivalent", "", 0, digest(source))
            elif known and known.outcome != "survived" and known.source == digest(source):
                verdict = known
            else:
                verdict = self._try(change, source, covering, items, living)
                self._keep(verdict)
            self.verdicts[change.name] = change, verdict
            if verdict.outcome == "survived":
                say(f"survived {verdict.tests} tests: {change}")
        return True

    def changes(self) -> list[Change]:
        """All changes of the files, shuffled by the seed: each seed has its own order, always the same."""
        made = {
            change.name: change
            for source in self.sources.values()
            if source.path in self.chosen
            for change in source.changes()
        }
        return sorted(made.values(), key=lambda change: _drawn(self.bounds.seed, change.name))

    def _try(
        self,
        change: Change,
        source: Source,
        covering: Covering,
        items: dict[str, pytest.Item],
        living: Living,
    ) -> Verdict:
        """Ask the tests that go there, in a child."""
        there = covering.of(change)
        chosen: list[str] = []
        seconds = 0.0
        first = [name for name in self._killers[change.file] if name in there]
        for name in dict.fromkeys([*first, *there]):
            seconds += covering.tests[name].seconds
            if seconds > self.bounds.depth_s and chosen:
                break
            chosen.append(name)
        asked = [(items[name], covering.tests[name].seconds) for name in chosen if name in items]
        code = source.changed(change.number)

        def ask() -> object:
            changed = living.put(source.path, code)
            assert changed, f"{change} reached no function"
            return first_failure(asked)

        told = tell(ask, WITHIN_S) if asked else ["survived", ""]
        outcome, by = cast("list[str]", told) if told else ("time", "the child did not end")
        if outcome == "killed":
            self._killers[change.file].appendleft(by)
        return Verdict(change.name, outcome, by, len(asked), digest(source))

    def _earlier(self) -> dict[str, Verdict]:
        path = self.kept / "verdicts.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {one.name: one for one in (Verdict(**json.loads(line)) for line in lines)}

    def _keep(self, verdict: Verdict) -> None:
        with (self.kept / "verdicts.jsonl").open("a") as out:
            out.write(f"{json.dumps(asdict(verdict))}\n")


def first_failure(asked: Sequence[tuple[pytest.Item, float]]) -> tuple[str, str]:
    """In a child: run tests until one fails."""
    following = [item for item, _ in asked[1:]]
    item = asked[0][0]
    try:
        for (item, seconds), after in zip(asked, [*following, None], strict=True):
            limit(SLOWER * seconds + PATIENCE_S)
            reports = runtestprotocol(item, nextitem=after, log=False)
            if any(report.failed for report in reports):
                _put_away(item)
                return "killed", item.nodeid
    except OutOfTime:
        return "time", item.nodeid
    return "survived", ""


def _put_away(item: pytest.Item) -> None:
    """End what fixtures have started, such as servers."""
    limit(PATIENCE_S)
    with suppress(Exception):  # it failed before, and may do so again
        item.ihook.pytest_runtest_teardown(item=item, nextitem=None)


def source_of(path: Path) -> Source:
    """A file of the package, which is loaded by this."""
    inside = path.relative_to(CODE)
    import_module(".".join(["surepipe", *inside.with_suffix("").parts]))
    return Source(str(inside), str(path), path.read_text())


def digest(source: Source) -> str:
    """Tells versions of a file apart."""
    return blake2b(source.text.encode(), digest_size=8).hexdigest()


def _drawn(seed: int, name: str) -> bytes:
    return blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
