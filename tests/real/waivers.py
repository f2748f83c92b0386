"""Which stages may fail to run in CI, and why: the file ``.ci/waived``.

One line each: the stage (or group), the date on which somebody decided so, and the reason. Every run prints them
at its end, so that none is forgotten::

    power  2026-03-01  the hosted runners have no /dev/fuse
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Waiver:
    """A stage, and why it need not run."""

    stage: str
    since: datetime.date
    reason: str

    def __str__(self) -> str:
        return f"{self.stage} (since {self.since}): {self.reason}"


def read_waivers(path: Path, known: Sequence[str]) -> list[Waiver]:
    """The waivers of a file; none when there is no file.

    Raises ValueError for a line without date or reason, or for a stage that does not exist: a waiver that nobody
    can judge is none.
    """
    if not path.exists():
        return []
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    return [_waiver(line, path, known) for line in lines if line]


def _waiver(line: str, path: Path, known: Sequence[str]) -> Waiver:
    words = line.split(maxsplit=2)
    if len(words) < 3:
        raise ValueError(f"{path}: {line!r} needs a stage, a date and a reason")
    stage, since, reason = words
    if stage not in known:
        raise ValueError(f"{path}: there is no stage {stage!r}; there are {', '.join(known)}")
    return Waiver(stage, datetime.date.fromisoformat(since), reason)
