"""What stages write to standard output and standard error while they are simulated.

A campaign calls each stage thousands of times, so nothing of it is shown but where the first line came from. The
one run of a replay is shown, on standard error: standard output is for the command alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

_SHOWN = 60
"""So much of the first line is told."""


@dataclass
class _State:
    where: Callable[[], str] | None = None
    """While nothing is shown: who writes now."""
    place: str = ""
    text: str = ""
    """The first line that was kept back, as far as it is told."""


_now = _State()


class _Watched:
    """A stream that writes into another one, but not while simulated pipes run."""

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath

    def write(self, text: str) -> int:
        """Write it, or keep it back."""
        if _now.where is None:
            return self.beneath.write(text)
        if len(_now.text) < _SHOWN and "\n" not in _now.text and (_now.text or text.strip()):
            _now.place = _now.place or _now.where()  # print gives a line in pieces
            _now.text += text.lstrip() if not _now.text else text
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Like ``write``, for each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.beneath, name)


def beneath(stream: TextIO) -> TextIO:
    """The stream that shows what it is given, whatever runs."""
    return stream.beneath if isinstance(stream, _Watched) else stream


def take_over() -> None:
    """From here on all that this process writes as text goes to standard error, and not while it is hidden."""
    watched = _Watched(beneath(sys.stderr))
    sys.stdout = sys.stderr = cast("TextIO", watched)


@contextmanager
def taken_over() -> Generator[None]:
    """The same while this lasts."""
    before = sys.stdout, sys.stderr
    take_over()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        _now.where, _now.place, _now.text = None, "", ""


@contextmanager
def hidden(where: Callable[[], str] | None) -> Generator[None]:
    """While this lasts, what is written is kept back; ``where`` says who does. None: it is shown.

    It matters in a process whose streams were taken over. Elsewhere (under pytest, say) all is as it was.
    """
    before, _now.where = _now.where, where
    try:
        yield
    finally:
        _now.where = before


def first_written() -> str:
    """Where this process wrote first while nothing was shown, and what; empty if it did not."""
    line = _now.text.partition("\n")[0][:_SHOWN]
    return f"{_now.place}: {line!r}" if line else ""


def told(first: str) -> str:
    """A note about it."""
    return (
        f"stages write text (first {first}), which is not shown, as every schedule would repeat it: "
        "simulate --replay shows what is written in the one run of a script"
    )
