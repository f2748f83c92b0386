"""Sinks that several loops use: who has one, has it alone."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

from surepipe.actors.runtime import Runtime
from surepipe.pipelines.assembly import About, Sink


class SharedSink:
    """A sink that several pipes, or lanes, may feed.

    A loop that takes one message after the other has it to itself for a while. Where that would make others wait
    for a slow stage, or for each other, messages are given ``at_once``, each sealed by itself.
    """

    def __init__(self, name: str, sink: Sink, runtime: Runtime) -> None:
        self.name = name
        self.sink = sink
        self._lock = threading.Lock()
        self._signal = runtime.signal()

    @contextmanager
    def alone(self) -> Generator[None]:
        """A block in which nobody else has the sink; waits for it as the runtime waits."""
        self._signal.wait(lambda: self._lock.acquire(blocking=False), None)
        try:
            yield
        finally:
            self._lock.release()
            self._signal.notify()

    def at_once(self, message: object, about: About) -> None:
        """Give it one message, with nobody else's between. Without a transaction."""
        if getattr(self.sink, "takes_many_at_once", False):
            self.sink.put(message, about, None)
            return
        with self.alone():
            self.sink.begin(None)
            self.sink.put(message, about, None)
            self.sink.seal(None)
