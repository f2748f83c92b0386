"""What is wrong with a pipeline file, each with its place, and all of them at once.

    orders.yaml:12:5: 'layer' is no key of a pipe: did you mean 'layers'?
       12 |     layer: [reliable]
          |     ^^^^^

Passwords that stand in an address are masked, also in the line that is shown. Values of environment variables
are not known here at all.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surepipe.errors import ConfigurationError

SHOWN_WIDTH = 160
_SECRETS = (
    re.compile(r"(?P<before>://[^\s/@:]*:)(?P<secret>[^\s@]+)(?=@)"),
    re.compile(r"(?i)(?P<before>[?&](?:password|token|secret|api[-_]?key)=)(?P<secret>[^&\s'\"]+)"),
    re.compile(
        r"(?i)(?P<before>\b(?:authorization|password|token|secret|api[-_]?key)['\"]?\s*:\s+)(?P<secret>[^\s,}].*)"
    ),
)
_VARIABLE = re.compile(r"['\"]?\$\{\w+\}['\"]?")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something stands: line and column from 1, and how many characters of that line it takes."""

    line: int
    column: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, in one line that also says what to write instead."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A file's name and its lines, for showing places."""

    name: str
    lines: tuple[str, ...]

    def show(self, problem: Problem) -> str:
        """The problem with its place, its line and a caret under it."""
        place = problem.place
        head = f"{self.name}:{place.line}:{place.column}: {problem.text}"
        if not 1 <= place.line <= len(self.lines):
            return head
        line, start = _window(mask(self.lines[place.line - 1], keep_width=True), place.column - 1)
        number = f"{place.line:>5}"
        caret = " " * start + "^" * max(1, min(place.width, len(line) - start))
        return f"{head}\n{number} | {line}\n{' ' * len(number)} | {caret}"


class PipelineErrors(ConfigurationError):
    """A pipeline file that can't be used. ``problems`` has every reason; the text shows each at its place."""

    def __init__(self, text: Text, problems: Iterable[Problem]) -> None:
        self.file = text
        self.problems = tuple(sorted(set(problems), key=lambda one: (one.place, one.text)))
        super().__init__("\n".join(text.show(problem) for problem in self.problems))


def mask(text: str, *, keep_width: bool = False) -> str:
    """The text without the passwords of addresses in it; names of variables are no secret."""

    def hidden(found: re.Match[str]) -> str:
        secret = found["secret"]
        if _VARIABLE.match(secret):
            return found[0]
        return found["before"] + ("*" * len(secret) if keep_width else "***")

    for pattern in _SECRETS:
        text = pattern.sub(hidden, text)
    return text


def nearest(word: str, known: Sequence[str]) -> str:
    """The word that was probably meant, else all that are known."""
    close = difflib.get_close_matches(word.lower(), known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {', '.join(known)}" if known else "there is none"


def _window(line: str, start: int) -> tuple[str, int]:
    """A part of a long line around a column, and the column in that part. What a terminal obeys is not shown."""
    line = "".join(sign if sign.isprintable() else " " for sign in line.rstrip())
    if len(line) <= SHOWN_WIDTH:
        return line, start
    first = max(0, min(start - SHOWN_WIDTH // 2, len(line) - SHOWN_WIDTH))
    return line[first : first + SHOWN_WIDTH], start - first
