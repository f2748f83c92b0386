"""Each failure that a hunt found is repeated for ever: the scripts in ``tests/corpus`` break nothing any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.simulation.chance.script import load
from surepipe.simulation.hop import replay
from tests.faults.quarry import QUARRY

CORPUS = Path(__file__).parent.parent / "corpus"
SCRIPTS = sorted(CORPUS.glob("*.json"))
BY_NAME = {subject.name: subject for subject in QUARRY}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_hunt_once_found_holds_now(path: Path) -> None:
    """simulation X-34: by its script; one that speaks of frames that don't occur any more is no proof."""
    script = load(path)
    result = replay(BY_NAME[script.subject], script)
    assert result.stale is None, f"{result.stale}: look for the failure anew, or drop the script"
    assert not result.violations, str(result.violations[0])


def test_the_corpus_holds_scripts_of_subjects_that_exist() -> None:
    """simulation X-34: names are distinct, and nothing else lies there."""
    assert len(BY_NAME) == len(QUARRY)
    assert {load(path).subject for path in SCRIPTS} <= set(BY_NAME)
    assert {path.suffix for path in CORPUS.iterdir()} <= {".json"}
