"""The command in this process: its exit code and what it wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from surepipe.cli.app import run


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it is."""
        return json.loads(self.out)


class Command:
    """Runs commands in this process."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: object) -> Answer:
        """The answer to `surepipe` with these arguments."""
        self._captured.readouterr()
        code = run([str(argument) for argument in arguments])
        written = self._captured.readouterr()
        return Answer(int(code), written.out, written.err)
