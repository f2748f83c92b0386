"""What lets production code wait inside a world of one thread: each turn of an actor is a task that may stop.

A task is a greenlet. While it waits (for room, for a store, for a sleep to be over) the world goes on with other
events, and it is taken up again at the event that ends its wait. A task whose process has crashed is ended where
it waits, by ``Crashed``, which code that catches exceptions of its own does not take for one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from greenlet import getcurrent, greenlet

from surepipe.actors.consuming.coroutines import outside_of_loops


class Crashed(BaseException):
    """The process that this code ran in is over."""


class Tasks:
    """The tasks of one world. Whoever enters one is the hub; the hub itself never waits."""

    def __init__(self) -> None:
        self._hub = getcurrent()
        self._idle: list[greenlet] = []
        self._act: Callable[[], None] | None = None
        self._error: BaseException | None = None

    def enter(self, act: Callable[[], None]) -> None:
        """From the hub: run this until it returns or waits. Raises what it raises, but for ``Crashed``."""
        worker = self._idle.pop() if self._idle else greenlet(self._work, self._hub)
        self._act = act
        worker.switch()
        self._raise()

    def wait(self) -> None:
        """From a task: let the world go on, until ``resume``. Raises Crashed when the process ends meanwhile."""
        assert getcurrent() is not self._hub, "nothing may wait outside of a task"
        with outside_of_loops():  # a coroutine may block here, and the loop of another process run
            self._hub.switch()

    def current(self) -> greenlet:
        """The task that asks."""
        return getcurrent()

    def is_hub(self) -> bool:
        """True outside of every task."""
        return getcurrent() is self._hub

    def resume(self, task: greenlet) -> None:
        """From the hub: a wait is over."""
        task.switch()
        self._raise()

    def end(self, task: greenlet) -> None:
        """From the hub: the process of a waiting task is over."""
        task.throw(Crashed)
        self._raise()

    def close(self) -> None:
        """From the hub: end those that rest. Nothing else would, as each is named by its own stack."""
        while self._idle:
            self._idle.pop().throw()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self) -> None:
        """One act after the other, each brought by ``enter``."""
        me = getcurrent()
        while True:
            act = cast("Callable[[], None]", self._act)
            self._act = None
            try:
                act()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 - the hub raises it again
                self._error = error
            del act  # it names the world
            self._idle.append(me)
            self._hub.switch()
