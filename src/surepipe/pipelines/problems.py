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
from functools import lru_cache
from itertools import islice

from surepipe.errors import ConfigurationError

SHOWN_WIDTH = 160
PROBLEMS_MAX = 100
"""Problems of one file that are told of: who mends a hundred looks again anyway."""
NAMES_MAX = 200
"""Known words that are compared with one that is not known. More names than that are no list to read, either."""
_LISTED_MAX = 24
_WORDS = re.compile(r"\S+")
_PASSWORD = re.compile(r"(?P<before>://[^\s/@:]*:)(?P<secret>[^\s@]+)(?=@)")
_SECRETS = (
    re.compile(r"(?i)(?P<before>[?&](?:password|token|secret|api[-_]?key)=)(?P<secret>[^&\s'\"]+)"),
    re.compile(
        r"(?i)(?P<before>\b(?:authorization|password|token|secret|api[-_]?key)['\"]?\s*:\s+)(?P<secret>[^\s,}].*)"
    ),
)
_VARIABLE = re.compile(r"['\"]?\$\{\w+\}['\"]?")


@dataclass(frozen=True, slots=True, order=True)
class TextPlace:
    """Where something stands: line and column from 1, and how many characters of that line it takes."""

    line: int
    column: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file, in one line that says what to write instead."""

    place: TextPlace
    text: str


class Enough(Exception):
    """So many problems were found that looking for more would only take time."""


class FoundProblems(list[Problem]):
    """Problems as they are found. What adds one beyond the bound gets Enough.

    Without the bound one line of a few thousand unknown keys costs its length squared: each of them is compared
    with every known name, and shows that line.
    """

    def append(self, problem: Problem) -> None:
        if len(self) >= PROBLEMS_MAX:
            raise Enough
        super().append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> FoundProblems:  # type: ignore[override, misc]
        """Add some, and don't make those that find no room."""
        for problem in problems:
            self.append(problem)
        return self


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
        line, start = _window(_masked(self.lines[place.line - 1]), place.column - 1)
        number = f"{place.line:>5}"
        caret = " " * start + "^" * max(1, min(place.width, len(line) - start))
        return f"{head}\n{number} | {line}\n{' ' * len(number)} | {caret}"


class PipelineErrors(ConfigurationError):
    """A pipeline file that can't be used. ``problems`` has every reason; the text shows each at its place.

    ``is_cut``: there are more than PROBLEMS_MAX, and the rest was not looked for.
    """

    def __init__(self, text: Text, problems: Iterable[Problem], *, is_cut: bool = False) -> None:
        self.file = text
        self.problems = tuple(sorted(set(problems), key=lambda one: (one.place, one.text)))
        self.is_cut = is_cut
        shown = [text.show(problem) for problem in self.problems]
        if is_cut:
            shown.append(f"{text.name}: there is more: mend these {len(shown)} first")
        super().__init__("\n".join(shown))


def mask(text: str, *, keep_width: bool = False) -> str:
    """The text without the passwords of addresses in it; names of variables are no secret."""

    def hidden(found: re.Match[str]) -> str:
        secret = found["secret"]
        if _VARIABLE.match(secret):
            return found[0]
        return found["before"] + ("*" * len(secret) if keep_width else "***")

    def in_word(found: re.Match[str]) -> str:
        # Behind the last '@' of a word is no password; looked for there, each '://' would be read up to its end.
        word = found[0]
        end = word.rfind("@") + 1
        return _PASSWORD.sub(hidden, word[:end]) + word[end:] if end else word

    text = _WORDS.sub(in_word, text)
    for pattern in _SECRETS:
        text = pattern.sub(hidden, text)
    return text


@lru_cache(maxsize=8)
def _masked(line: str) -> str:
    """A line of a file, once for all the problems on it."""
    return mask(line, keep_width=True).rstrip()


def nearest(word: str, known: Sequence[str]) -> str:
    """The word that was probably meant, else all that are known."""
    compared = known
    if len(known) > NAMES_MAX:
        first = word[:1].lower()
        compared = list(islice((one for one in known if one[:1].lower() == first), NAMES_MAX))
    close = difflib.get_close_matches(word[:256].lower(), compared, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not known:
        return "there is none"
    more = f" and {len(known) - _LISTED_MAX} more" if len(known) > _LISTED_MAX else ""
    return f"known are {', '.join(known[:_LISTED_MAX])}{more}"


def _window(line: str, start: int) -> tuple[str, int]:
    """A part of a long line around a column, and the column in that part. What a terminal obeys is not shown."""
    first = max(0, min(start - SHOWN_WIDTH // 2, len(line) - SHOWN_WIDTH))
    shown = line[first : first + SHOWN_WIDTH]
    return "".join(sign if sign.isprintable() else " " for sign in shown), start - first
