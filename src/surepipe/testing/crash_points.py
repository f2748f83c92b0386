"""A process that ends itself at a named point: ``SUREPIPE_CRASH_AT=after-deliver:17``.

    points = CrashPoints.from_environment()
    pipe = Pipe("orders", ..., runtime=CrashingRuntime(points))
    pipe.receive(points.handler(handle))

The seventeenth time that the process gets there it is gone (``os._exit``), as after SIGKILL but at a known place.
Several points are separated by commas; the first that is reached counts. Nothing of this is in the code that runs
in production: the runtime stands around every actor, and names

- ``before-event``, ``after-event``: a sender or receiver takes something in;
- ``before-deliver``, ``after-deliver``, and so for every effect (``transmit``, ``accepted``, ``confirmed``,
  ``persist``, ``call``, ``wake-at`` ...): between two effects of one event;
- ``before-append-rows``, ``after-append-rows``, and so for every request to a store (``append-run``,
  ``save-state``, ``commit-position``, ``forget-rows`` ...): after means that the store has done it and nobody was
  told;
- ``before-handler``, ``after-handler``: around the handler; ``before-commit``, ``after-commit``: around the end
  of a transaction (``CrashPoints.committing``).
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec, TypeVar, cast

from surepipe.actors.host import NodeActor
from surepipe.actors.runtime import Actor
from surepipe.actors.store_calls import Asking, Clerk, Request
from surepipe.actors.threads import RunningThread, ThreadRuntime
from surepipe.core.effects import Call, Persist
from surepipe.errors import ConfigurationError

VARIABLE = "SUREPIPE_CRASH_AT"
STATUS = 86
"""What the process that crashed itself leaves as its exit status."""

P = ParamSpec("P")
R = TypeVar("R")


class CrashPoints:
    """Counts how often each point is reached, and ends the process where it was told to."""

    def __init__(self, text: str = "", *, leave: Callable[[int], object] = os._exit) -> None:
        """``text`` as in the variable; empty: never. Raises ConfigurationError for what can't be read."""
        self._at = dict(_parsed(part) for part in text.split(",") if part)
        self._leave = leave
        self._lock = threading.Lock()
        self.reached: Counter[str] = Counter()

    @classmethod
    def from_environment(cls) -> CrashPoints:
        """As ``SUREPIPE_CRASH_AT`` says."""
        return cls(os.environ.get(VARIABLE, ""))

    def reach(self, name: str) -> None:
        """The process is at this point now. It may not return."""
        with self._lock:
            self.reached[name] += 1
            if self._at.get(name) == self.reached[name]:
                self._leave(STATUS)

    def handler(self, handle: Callable[P, R]) -> Callable[P, R]:
        """The same handler between two points."""

        def between(*args: P.args, **kwargs: P.kwargs) -> R:
            self.reach("before-handler")
            result = handle(*args, **kwargs)
            self.reach("after-handler")
            return result

        return between

    @contextmanager
    def committing(self, transaction: AbstractContextManager[R]) -> Generator[R]:
        """A store's transaction, with a point before its effects are stored and one after."""
        with transaction as inner:
            yield inner
            self.reach("before-commit")
        self.reach("after-commit")


class CrashingRuntime(ThreadRuntime):
    """The threads of production, with crash points around every actor."""

    def __init__(self, points: CrashPoints) -> None:
        super().__init__()
        self._points = points

    def start(self, actor: Actor, name: str) -> RunningThread:
        return super().start(_pointed(actor, self._points), name)


def _pointed(actor: Actor, points: CrashPoints) -> Actor:
    if isinstance(actor, Clerk):
        return _PointedClerk(actor, points)
    if isinstance(actor, NodeActor):
        for host in actor.hosts.values():
            host.perform_by_type = {
                kind: _around(points, _spelled(kind), act)
                for kind, act in host.perform_by_type.items()
            }
        return _PointedNode(actor, points)
    return actor


class _PointedNode:
    """A sender or receiver: a point before and after each event."""

    def __init__(self, node: NodeActor, points: CrashPoints) -> None:
        self._node = node
        self._points = points

    def receive(self, message: object) -> object:
        self._points.reach("before-event")
        answer = self._node.receive(message)
        self._points.reach("after-event")
        return answer

    def died(self, error: BaseException) -> None:
        self._node.died(error)


class _PointedClerk:
    """A clerk: a point before each request, and one when it is done and nobody knows."""

    def __init__(self, clerk: Clerk, points: CrashPoints) -> None:
        self._clerk = clerk
        self._points = points

    def receive(self, message: object) -> None:
        asking, request = cast("tuple[Asking, Request]", message)
        name = _spelled(type(_asked_for(request)))
        self._points.reach(f"before-{name}")
        self._clerk.receive((_PointedAnswer(asking, self._points, f"after-{name}"), request))

    def died(self, error: BaseException) -> None:
        self._clerk.died(error)


class _PointedAnswer:
    """Who asked, behind the point between the deed and the answer."""

    def __init__(self, asking: Asking, points: CrashPoints, name: str) -> None:
        self._asking = asking
        self._points = points
        self._name = name

    def answered(self, ticket: int, outcome: object) -> None:
        self._points.reach(self._name)
        self._asking.answered(ticket, outcome)


def _asked_for(request: Request) -> object:
    match request:
        case Persist(_, write):
            return write
        case Call(_, call):
            return call
        case _:
            return request


def _around(points: CrashPoints, name: str, act: Callable[..., object]) -> Callable[..., None]:
    before, after = f"before-{name}", f"after-{name}"

    def perform(effect: object) -> None:
        points.reach(before)
        act(effect)
        points.reach(after)

    return perform


def _spelled(kind: type) -> str:
    """``AppendRows`` as append-rows."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def _parsed(part: str) -> tuple[str, int]:
    found = re.fullmatch(r"\s*((?:before|after)-[a-z-]+)(?::([1-9]\d*))?\s*", part)
    if not found:
        raise ConfigurationError(
            f"{VARIABLE}: {part!r} is no crash point; write a name and the how-many-th time, "
            "like after-deliver:17"
        )
    return found[1], int(found[2] or 1)
