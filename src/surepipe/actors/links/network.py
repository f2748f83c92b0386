"""The one thread of a process that waits for sockets. It starts with the first link and ends with the last."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")
STOP_S = 5.0


class SocketLoop:
    """An event loop on a thread of its own, for as long as somebody uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._left_behind: asyncio.AbstractEventLoop | None = None
        """Of the parent, kept so that nothing tidies it up."""
        self.descriptors: set[int] = set()
        """Of the sockets that are open."""

    def enter(self) -> asyncio.AbstractEventLoop:
        """The loop, started if it was not. Each ``enter`` needs a ``leave``."""
        with self._lock:
            self._users += 1
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="surepipe-network", daemon=True
                )
                self._thread.start()
            return self._loop

    def has(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether that loop is running here: the one that a fork left behind is not."""
        return self._loop is loop

    def begin_anew(self) -> None:
        """In the child of a fork: it has no thread, and its parent's sockets must end when its parent ends them.

        Their descriptors are pointed elsewhere: closing them through the loop would change what the parent's
        selector watches, which the two still share.
        """
        self._lock = threading.Lock()
        self._users = 0
        self._left_behind, self._loop, self._thread = self._loop, None, None
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in self.descriptors:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        self.descriptors = set()

    def leave(self) -> None:
        """One user fewer; the thread ends with the last."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(STOP_S)
        if not loop.is_running():
            loop.close()

    @staticmethod
    def call(
        loop: asyncio.AbstractEventLoop,
        work: Callable[[], Coroutine[object, object, T]],
        timeout: float,
    ) -> T:
        """Run a coroutine on the loop and give what it returns, or raise what it raises."""
        return asyncio.run_coroutine_threadsafe(work(), loop).result(timeout)


NETWORK = SocketLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=NETWORK.begin_anew)
