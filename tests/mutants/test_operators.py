"""The tool that changes operators blindly: which changes it makes, that they arrive, and are noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from surepipe.core import ranges
from surepipe.core.ranges import RangeSet
from tests.mutants.operators.changes import Source
from tests.mutants.operators.children import OutOfTime, limit, tell
from tests.mutants.operators.known import equivalents
from tests.mutants.operators.living import Living
from tests.mutants.operators.run import files_of
from tests.mutants.operators.session import ROOT, source_of

TEXT = '''\
LIMIT = 3

class Sender:
    """Numbers its messages."""

    def send(self, run: list[bytes], most: int = 5) -> bool:
        """Persist, then transmit."""
        assert most > 0
        if not run or len(run) > most:
            raise ValueError(f"{len(run) + 1} messages")
        self.next += len(run) - 1
        self.persist(run)
        self.transmit(run)
        return self.next in self.done
'''

CHANGES = """\
condition negated: if not run or len(run) > most: => if not (not run or len(run) > most):
comparison: if not run or len(run) > most: => if not run or len(run) >= most:
off by one: self.next += len(run) - 1 => self.next += len(run) - 2
off by one: self.next += len(run) - 1 => self.next += len(run) - 0
call removed: self.persist(run) => pass
call removed: self.transmit(run) => pass
comparison: return self.next in self.done => return self.next not in self.done
effects swapped: self.persist(run); self.transmit(run) => self.transmit(run); self.persist(run)
"""


def test_each_kind_of_change_is_made_where_it_can_be() -> None:
    """simulation X-64: comparison, off by one, call removed, two effects swapped, condition negated."""
    changes = Source("small.py", "small.py", TEXT).changes()
    assert [f"{one.kind}: {one.before} => {one.after}" for one in changes] == CHANGES.splitlines()
    assert {one.function for one in changes} == {"Sender.send"}


def test_changes_with_the_same_words_have_names_of_their_own() -> None:
    """simulation X-64: else only one of them would be tried."""
    twice = "def send(run):\n    if run:\n        count(run)\n    else:\n        count(run)\n"
    names = [one.name for one in Source("small.py", "small.py", twice).changes()]
    removed = "small.py send: count(run) => pass"
    assert [name for name in names if name.startswith(removed)] == [removed, f"{removed} (2)"]
    assert len(set(names)) == len(names)


def ranges_source() -> Source:
    """A file that is loaded."""
    return source_of(Path(str(ranges.__file__)))


def test_a_change_reaches_a_loaded_class_in_a_child_and_nowhere_else() -> None:
    """simulation X-64: the checkout and this process stay as they are."""
    source = ranges_source()
    living = Living([source.path])
    assert not living.differing(source.path, source.code())
    change = next(one for one in source.changes() if one.before == "self.add(first, last)")
    assert change.after == "pass"

    def counted() -> int:
        living.put(source.path, source.changed(change.number))
        return RangeSet([(1, 1), (2, 3)]).count()

    assert tell(counted, 60) == 1
    assert RangeSet([(1, 1), (2, 3)]).count() == 3


def test_a_child_tells_which_blocks_it_went_through() -> None:
    """What tests are asked about a change follows from that."""
    source = ranges_source()
    living = Living([source.path])

    def seen() -> list[str]:
        blocks: set[str] = set()
        for function in living.put(source.path, source.watched("watcher")):
            function.__globals__["watcher"] = blocks.add
        assert RangeSet().missing(2, 1) == ()
        return sorted(blocks)

    told = ["RangeSet.__init__#1", "RangeSet.missing#1", "RangeSet.missing#2"]
    assert tell(seen, 60) == [f"core/ranges.py {block}" for block in told]


def test_a_child_that_does_not_end_or_dies_is_no_answer() -> None:
    """It is ended when its time is up; what it would have said is unknown."""

    def endless() -> str:
        limit(0.001)
        try:
            while True:
                pass
        except OutOfTime:
            return "out of time"

    assert tell(endless, 60) == "out of time"
    assert tell(lambda: sys.exit(3), 60) is None


def test_what_runs_beside_a_child_goes_on() -> None:
    """Only what a child left behind is ended, and no process of whoever asked."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as beside:
        assert tell(lambda: 5, 60) == 5
        assert beside.poll() is None
        beside.communicate(b"\n")
    assert beside.returncode == 0


def test_the_tests_of_ranges_notice_changes_of_ranges(tmp_path: Path) -> None:
    """simulation X-64: a few changes, from the choice to the table; another run goes on where this one ended."""
    command = [sys.executable, "-m", "tests.mutants.operators.run", "--minutes", "10", "--most"]
    rest = [
        "--tests",
        "tests/core/test_ranges.py",
        "--kept",
        str(tmp_path),
        "--",
        "core/ranges.py",
    ]
    for most in (3, 6):
        done = subprocess.run(
            [*command, str(most), *rest], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert f"| all | {most} | " in done.stdout, done.stdout + done.stderr
    lines = (tmp_path / "verdicts.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines]
    killed = [one["name"] for one in verdicts if one["outcome"] == "killed"]
    assert len({one["name"] for one in verdicts}) == 6
    assert len(set(killed)) == len(killed) >= 1


def test_each_note_of_an_equivalent_change_is_about_one_that_can_be_made() -> None:
    """simulation X-64: a note about code that is no longer there excuses nothing."""
    made = {one.name for path in files_of(()) for one in source_of(path).changes()}
    assert [name for name in equivalents() if name not in made] == []
    assert all(equivalents().values())
