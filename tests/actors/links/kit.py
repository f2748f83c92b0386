"""What the tests of links share: a key, quick layers, ends that are closed with the test, and handlers' memory."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from surepipe.actors.ends.remote import PipeReceiver, PipeSender
from surepipe.actors.links import SharedKey, TcpRoute

KEY = SharedKey("a key for tests that is long enough to be one")
QUICK = {"reliable": {"rto_initial_s": 0.2, "rto_min_s": 0.05, "rto_max_s": 0.5}}
HERE = "127.0.0.1:0"
WITHIN_S = 20.0


class Got:
    """What a handler got, and somebody who waits for it."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self._changed = threading.Condition()

    def __call__(self, message: object) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Until there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, WITHIN_S), (
                f"{len(self.messages)} of {count}"
            )


def receiver(stack: ExitStack, route: TcpRoute, got: Got, name: str = "orders") -> PipeReceiver:
    """A receiving end that is closed with the test."""
    end = stack.enter_context(PipeReceiver(name, QUICK, route=route))
    end.receive(got)
    return end


def sender(stack: ExitStack, route: TcpRoute, name: str = "orders") -> PipeSender:
    """A sending end that is closed with the test, before the receiving end."""
    return stack.enter_context(PipeSender(name, QUICK, route=route))


def to(route: TcpRoute) -> str:
    """Where a listening route listens."""
    return f"127.0.0.1:{route.port}"
