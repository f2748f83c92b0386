"""What the tests of channels share: a route that does to each frame what a test says, and accept callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surepipe import ChannelFace, LocalRoute
from surepipe.actors import Reply
from surepipe.actors.routes import Landing, RouteSide
from surepipe.actors.runtime import Runtime

Fate = Callable[[object, str, int], Sequence[float]]
"""When the copies of a frame arrive, in seconds from now: of (frame, who sends it, its number on the route)."""


class ScriptedSide:
    """One side; ``who`` sends through it."""

    def __init__(self, inner: RouteSide, route: ScriptedRoute, who: str) -> None:
        self._inner = inner
        self._route = route
        self._who = who
        self._runtime: Runtime | None = None
        self.has_reverse = inner.has_reverse
        self.taken = inner.taken

    @property
    def room(self) -> int:
        """As the side inside."""
        return self._inner.room

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Open the side inside."""
        self._runtime = runtime
        self._inner.open(landing, runtime)

    def send(self, frame: object) -> None:
        """Ask the script."""
        assert self._runtime is not None
        self._route.sent.append((self._who, frame))
        for delay in self._route.fate(frame, self._who, len(self._route.sent)):
            if delay:
                self._send_later(frame, self._runtime.now() + round(delay * 1_000_000))
            else:
                self._inner.send(frame)

    def _send_later(self, frame: object, at: int) -> None:
        def ring() -> None:
            alarm.close()
            self._inner.send(frame)

        assert self._runtime is not None
        alarm = self._runtime.alarm(ring)
        alarm.set(at)

    def close(self) -> None:
        """Close the side inside."""
        self._inner.close()


class ScriptedRoute:
    """A local route with a script; ``sent`` keeps what was sent, with who sent it. It declares nothing of that."""

    def __init__(self, fate: Fate = lambda _frame, _who, _number: (0.0,)) -> None:
        inner = LocalRoute()
        self.declared = inner.declared
        self.fate = fate
        self.sent: list[tuple[str, object]] = []
        self.sender = ScriptedSide(inner.sender, self, "caller")
        self.receiver = ScriptedSide(inner.receiver, self, "listener")


class Answering:
    """An accept callback: its ends answer each message n with ("re", n). It keeps the ends and what came."""

    def __init__(self) -> None:
        self.ends: list[ChannelFace] = []
        self.seen: list[object] = []

    def __call__(self, channel: ChannelFace) -> None:
        self.ends.append(channel)
        channel.receive(self.handle)

    def handle(self, message: object, reply: Reply) -> None:
        """Note the message, and answer."""
        self.seen.append(message)
        reply(["re", message])


class Keeping:
    """An accept callback that keeps the ends and what they were sent, and answers nothing."""

    def __init__(self) -> None:
        self.ends: list[ChannelFace] = []
        self.seen: list[object] = []

    def __call__(self, channel: ChannelFace) -> None:
        self.ends.append(channel)
        channel.receive(self.seen.append)
