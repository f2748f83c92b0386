"""Dead letters of a pipe within one process: a list in memory, to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from surepipe.effects import Letter

DeadLetterPlace: TypeAlias = Callable[[Letter], object]
"""Called with each letter; returning means it is stored, raising means it is not: it is called again later."""


class DeadLetters:
    """Messages that could not be settled, kept in memory. Safe for threads.

    ``letters_max`` bounds the list. A letter beyond it is refused, so the message stays with the pipe and
    backpressure follows: nothing is lost, and ``clear`` or ``take`` lets it go on.
    """

    def __init__(self, letters_max: int = 10_000) -> None:
        self._letters: deque[Letter] = deque()
        self._letters_max = letters_max

    def __call__(self, letter: Letter) -> None:
        """Store a letter. The same message stored twice is one letter. Raises OverflowError when full."""
        if any(_identity(known) == _identity(letter) for known in list(self._letters)):
            return
        if len(self._letters) >= self._letters_max:
            raise OverflowError(f"{self._letters_max} dead letters are stored and none was taken")
        self._letters.append(letter)

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[Letter]:
        return iter(self.list())

    def list(self) -> list[Letter]:
        """All letters, oldest first."""
        return [*self._letters]

    def show(self) -> str:
        """One line for each letter, without payloads."""
        return "\n".join(
            f"{letter.pipe} epoch {letter.epoch} seq {letter.seq}: {letter.attempts} attempts, "
            f"{letter.error_type}: {letter.error_text}"
            for letter in self.list()
        )

    def take(self) -> Letter | None:
        """Remove and give the oldest letter; None when there is none."""
        try:
            return self._letters.popleft()
        except IndexError:
            return None

    def clear(self) -> None:
        """Forget all letters."""
        self._letters.clear()


def _identity(letter: Letter) -> tuple[str, int, int]:
    return (letter.pipe, letter.epoch, letter.seq)
