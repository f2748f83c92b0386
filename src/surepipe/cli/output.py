"""How commands speak: styled lines on a terminal, the same lines plain in a log, JSON for machines.

A command makes lines; where they go decides how they look. In a log a line is never broken, so that it can be
searched for. Nothing here knows what a command is about.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, TextIO, TypeAlias

from surepipe.errors import ConfigurationError

Piece: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style: good, bad, warn, dim, head."""

_STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "dim": "dim", "head": "bold"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line: how far it is indented, and its pieces."""

    pieces: tuple[Piece, ...]
    indent: int = 0

    def __str__(self) -> str:
        return " " * self.indent + "".join(_text(piece) for piece in self.pieces)


def line(*pieces: Piece, indent: int = 0) -> Line:
    """A line."""
    return Line(pieces, indent)


def _text(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece[0]


def show(lines: Iterable[Line], to: IO[str] | None = None) -> None:
    """Write lines: with colours, and folded under their indent, when this is a terminal."""
    stream = sys.stdout if to is None else to
    if stream.isatty():
        _show_on_terminal(list(lines), stream)
        return
    for one in lines:
        stream.write(f"{one}\n")
    stream.flush()


@contextmanager
def standard_output_apart() -> Generator[TextIO]:
    """Gives standard output. While this lasts, whatever else writes there (a user's function, a library in C, a
    process that is begun) writes to standard error."""
    ours = sys.stdout
    if not _is_of_process(ours):
        yield ours
        return
    ours.flush()
    with os.fdopen(os.dup(1), "w", encoding=ours.encoding, errors=ours.errors) as apart:
        os.dup2(2, 1)
        try:
            yield apart
        finally:
            ours.flush()
            apart.flush()
            os.dup2(apart.fileno(), 1)


def _is_of_process(stream: TextIO) -> bool:
    """Whether it writes to the standard output of this process, and not to where a test has it."""
    try:
        return stream.fileno() == 1
    except (OSError, ValueError):
        return False


def show_json(value: object, to: TextIO | None = None) -> None:
    """Write a value for machines: one JSON document on standard output."""
    stream = sys.stdout if to is None else to
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not _can_be_written(text, stream.encoding):
        text = json.dumps(value, indent=2)
    stream.write(text + "\n")
    stream.flush()


def _can_be_written(text: str, encoding: str) -> bool:
    """Not half of a pair of surrogates (JSON can escape one), nor a letter that standard output does not know."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def write_bytes(value: bytes) -> None:
    """Write bytes to standard output as they are, and nothing else."""
    sys.stdout.flush()
    sys.stdout.buffer.write(value)
    sys.stdout.buffer.flush()


def write_file(path: Path, text: str) -> None:
    """Write a file that was asked for, and say so. Raises ConfigurationError when it can't be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written: {(error.strerror or '').lower()}"
        ) from None
    show([line(f"wrote {path}")])


def complain(text: str) -> None:
    """Say on standard error why a command stops."""
    lines = text.splitlines() or ["stopped without a reason"]
    show([line(("surepipe: ", "bad"), lines[0]), *(line(one) for one in lines[1:])], sys.stderr)


def complain_about_file(shown: str) -> None:
    """Say on standard error what is wrong in a file; the text has the places already."""
    show((_of_place(one) for one in shown.splitlines()), sys.stderr)


def _of_place(text: str) -> Line:
    is_mark = text.lstrip(" 0123456789").startswith("|")
    return line((text, "dim")) if is_mark else line(text)


def _show_on_terminal(lines: Sequence[Line], stream: IO[str]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for one in lines:
        text = Text()
        for piece in one.pieces:
            words, style = (piece, "") if isinstance(piece, str) else piece
            text.append(words, style=_STYLES.get(style, ""))
        # What does not fit goes on two further in, so that the eye sees where the next line begins.
        hang = 2 if text.plain else 0
        if one.indent + len(text.plain) <= console.width:
            console.print(Padding(text, (0, 0, 0, one.indent)))
            continue
        first, *rest = text.wrap(console, max(20, console.width - one.indent - hang))
        console.print(Padding(first, (0, 0, 0, one.indent)))
        for more in rest:
            console.print(Padding(more, (0, 0, 0, one.indent + hang)))


# The exit codes of every command: one table.


class Exit(IntEnum):
    """What a command's exit code says."""

    HELD = 0
    """All went well; all that is claimed holds."""
    VIOLATED = 1
    """Something that is claimed or expected does not hold."""
    UNUSABLE = 2
    """The file, a stage or the command line can't be used as it is."""
    NOT_EXERCISED = 3
    """Nothing was violated, but too little happened to say that it holds."""
    NOT_DETERMINISTIC = 4
    """The same run twice went two ways, so neither says anything."""
    REPLACED = 5
    """Another process of the same node began later and has taken over: do not start this one again."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C (128 and the number of the signal)."""

    @property
    def meaning(self) -> str:
        """The meaning in a few words, for help texts."""
        return _MEANING[self]


_MEANING = {
    Exit.HELD: "held",
    Exit.VIOLATED: "something claimed or expected does not hold",
    Exit.UNUSABLE: "the file, a stage or the command line can't be used",
    Exit.NOT_EXERCISED: "not exercised: too little happened to say that it holds",
    Exit.NOT_DETERMINISTIC: "not deterministic",
    Exit.REPLACED: "replaced by a process that began later: not to be started again",
    Exit.INTERRUPTED: "interrupted",
}


def epilog(*codes: Exit) -> str:
    """The line at the end of a command's help."""
    return "Exit codes: " + " · ".join(f"{code.value} {code.meaning}" for code in codes)
