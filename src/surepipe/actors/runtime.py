"""What actors run on. One interface, two implementations: threads, and one thread driven step by step.

An actor here is a plain object that takes one message at a time; the runtime gives it an inbox, a pykka actor as
its shell, and its turn. So the same objects run on threads in production (``threads``) and in virtual time, in an
order drawn from a seed, in tests (``steps``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Protocol

from surepipe.actors.consuming.coroutines import Coroutines


class Actor(Protocol):
    """Takes one message at a time; never entered twice at once."""

    def receive(self, message: object) -> object:
        """Act on a message. What it returns answers an ``ask``; an exception ends the actor."""
        ...

    def died(self, error: BaseException) -> None:
        """The actor ended by this error, and its inbox with it. The last call it gets."""
        ...


class Running(Protocol):
    """A started actor."""

    def tell(self, message: object) -> bool:
        """Put a message into its inbox; False when the actor has ended. True is no promise: an actor
        that dies loses what its inbox holds."""
        ...

    def ask(self, message: object, timeout: float | None) -> object:
        """Tell and wait for what ``receive`` returns.

        Raises ``pykka.Timeout``, ``pykka.ActorDeadError``, or what ``receive`` raised.
        """
        ...

    def stop(self) -> None:
        """End after the messages that are in the inbox now."""
        ...

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; False when it has not within ``timeout`` seconds."""
        ...


class Alarm(Protocol):
    """One deadline, armed anew or disarmed at will; rings once each time it is reached."""

    def set(self, deadline: int | None) -> None:
        """Ring at this time (microseconds of ``Runtime.now``) in place of any other; None disarms."""
        ...

    def close(self) -> None: ...


class CallerSignal(Protocol):
    """Lets a caller outside of actors wait for something that actors do."""

    def wait(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the predicate holds; False when it doesn't within ``timeout`` seconds."""
        ...

    loop_thread: int | None
    """The thread of a loop that must not be blocked by waiting here: what is waited for is done on it."""

    def is_for_itself(self) -> bool:
        """True where waiting on that thread would be waiting for oneself; tasks that wait in its place don't
        count."""
        ...

    def notify(self) -> None:
        """Whoever waits should look again. Costs next to nothing while nobody waits."""
        ...


class Runtime(Protocol):
    """Clock, threads and chance of everything in this folder."""

    def now(self) -> int:
        """Monotonic microseconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for life numbers."""
        ...

    def rng(self, seed: int | None) -> Random:
        """A generator of its own: the same for the same seed, unpredictable without one."""
        ...

    def here(self) -> object:
        """What runs now, the same for as long as one call lasts: a thread, or a task of a simulation."""
        ...

    def start(self, actor: Actor, name: str) -> Running: ...

    def alarm(self, ring: Callable[[], None]) -> Alarm:
        """A new alarm, disarmed. ``ring`` must be quick and must not block."""
        ...

    def signal(self) -> CallerSignal: ...

    def lock(self) -> AbstractContextManager[object]:
        """A new lock that those who wait for it may hold while they wait for a store."""
        ...

    def coroutines(
        self, loop: asyncio.AbstractEventLoop | None = None, thread: int | None = None
    ) -> Coroutines:
        """The runner of coroutines: on this loop of that thread, or on a loop of the runtime's own."""
        ...
