"""Dead letters of a pipe within one process: a list in memory, to look at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from surepipe.actors.consuming.coroutines import finish, require_handler
from surepipe.actors.runtime import Runtime
from surepipe.core.callables import require_call
from surepipe.core.effects import Letter
from surepipe.storage.letters import attempts_text, identity_text, name_of

DeadLetterPlace: TypeAlias = Callable[[Letter], object]
"""Called with each letter; returning means it is stored, raising means it is not: it is called again later."""


def awaiting(place: DeadLetterPlace, runtime: Runtime) -> DeadLetterPlace:
    """The same place, where a letter counts as stored when a coroutine has stored it. Raises MisuseError for a
    generator function, and for what takes no letter."""
    require_handler(place)
    require_call("the place of dead letters", place, "letter")

    def post(letter: Letter) -> object:
        result = place(letter)
        if result is None:
            return None
        coroutines = runtime.coroutines()
        try:
            return finish(result, coroutines.wait)
        finally:
            coroutines.close()

    return post


class DeadLetters:
    """Messages that could not be settled, kept in memory. Safe for threads.

    ``letters_max`` bounds the list. A letter beyond it is refused, so the message stays with the pipe and
    backpressure follows: nothing is lost, and ``clear`` or ``take`` lets it go on.
    """

    def __init__(self, letters_max: int = 10_000) -> None:
        self._letters: dict[str, Letter] = {}
        self._lock = threading.Lock()
        self._letters_max = letters_max

    def __call__(self, letter: Letter) -> None:
        """Store a letter. The same message stored twice is one letter. Raises OverflowError when full."""
        identity = name_of(letter)
        with self._lock:
            if identity not in self._letters and len(self._letters) >= self._letters_max:
                raise OverflowError(
                    f"{self._letters_max} dead letters are stored and none was taken"
                )
            self._letters.setdefault(identity, letter)

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[Letter]:
        return iter(self.list())

    def list(self) -> list[Letter]:
        """All letters, oldest first."""
        with self._lock:
            return [*self._letters.values()]

    def show(self) -> str:
        """One line for each letter, without payloads."""
        return "\n".join(
            f"{identity_text(letter)}: {attempts_text(letter)}, "
            f"{letter.error_type}: {letter.error_text}"
            for letter in self.list()
        )

    def take(self) -> Letter | None:
        """Remove and give the oldest letter; None when there is none."""
        with self._lock:
            oldest = next(iter(self._letters), None)
            return None if oldest is None else self._letters.pop(oldest)

    def clear(self) -> None:
        with self._lock:
            self._letters.clear()
