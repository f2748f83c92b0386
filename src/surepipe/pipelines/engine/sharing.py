"""Sinks that several loops use: who has one, has it alone."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from surepipe.actors.runtime import Signal
from surepipe.pipelines.assembly import About, Environment, Sink


@dataclass(eq=False, slots=True)
class _Waiting:
    signal: Signal
    has_it: bool = False


class SharedSink:
    """A sink that several pipes, or lanes, may feed.

    A loop that takes one message after the other has it to itself for a while. Where that would make others wait
    for a slow stage, or for each other, messages are given ``at_once``, each sealed by itself.

    ``calls``: the sink is a function of the user's, which the environment enters as such.
    """

    def __init__(
        self, name: str, sink: Sink, environment: Environment, *, calls: bool = False
    ) -> None:
        self.name = name
        self.sink = sink
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[_Waiting] = deque()
        self._new_signal = environment.runtime.signal
        self._blocking = environment.blocking
        self._calls = calls

    @contextmanager
    def alone(self) -> Generator[None]:
        """A block in which nobody else has the sink. Waits for it as the runtime waits, in the order of asking."""
        mine = self._ask()
        try:
            if mine is not None:
                mine.signal.wait(lambda: mine.has_it, None)
            yield
        finally:
            self._hand_on(mine)

    def _ask(self) -> _Waiting | None:
        """None where the sink was free."""
        with self._lock:
            if self._is_taken:
                self._waiting.append(_Waiting(self._new_signal()))
                return self._waiting[-1]
            self._is_taken = True
            return None

    def _hand_on(self, mine: _Waiting | None) -> None:
        """To the next one alone: to wake all costs as many wakes for each message as there are lanes."""
        with self._lock:
            if mine is not None and not mine.has_it:  # told to end while it waited
                self._waiting.remove(mine)
                return
            following = self._waiting.popleft() if self._waiting else None
            self._is_taken = following is not None
            if following is not None:
                following.has_it = True
        if following is not None:
            following.signal.notify()

    def at_once(self, message: object, about: About) -> None:
        """Give it one message, with nobody else's between. Without a transaction."""
        if self._calls:
            self.sink.put(message, about, None)
        elif getattr(self.sink, "takes_many_at_once", False):
            self._blocking(lambda: self.sink.put(message, about, None))
        else:
            with self.alone():
                self._blocking(lambda: self._give(message, about))

    def _give(self, message: object, about: About) -> None:
        self.sink.begin(None)
        self.sink.put(message, about, None)
        self.sink.seal(None)
