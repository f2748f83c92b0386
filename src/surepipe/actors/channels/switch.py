"""One side of a route, used by many ends: what arrives goes to the end whose pipe the frame names.

The first end opens the side, the last one that leaves closes it. In between, ends that use the same side find each
other here, so an application gives the same route to all its channels.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Container, Iterable
from dataclasses import dataclass

from surepipe.actors.host import Surroundings
from surepipe.actors.inbox import Box
from surepipe.actors.routes import Landing, RouteSide
from surepipe.actors.runtime import Runtime
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pipes.wire.codec import pipe_of
from surepipe.pipes.wire.frames import Numbered


class Switch:
    """Hands each frame that arrives at a side to its end. ``unclaimed`` gets what is for none of them."""

    def __init__(self, side: RouteSide) -> None:
        self.side = side
        self.unclaimed: Landing | None = None
        self.lost = 0
        self.runtime: Runtime | None = None
        self._landings: dict[int, Landing] = {}

    @property
    def is_used(self) -> bool:
        """True while an end is here, or somebody who takes what is for no end."""
        return bool(self._landings) or self.unclaimed is not None

    def put(self, frame: object) -> None:
        """From the route: give it to the end that it is for."""
        landing = self.landing_of(frame) or self.unclaimed
        if landing is None:
            self.lost += 1
        else:
            landing.put(frame)

    def landing_of(self, frame: object) -> Landing | None:
        """The end that a frame is for, if it is here."""
        tag = pipe_of(frame)
        return None if tag is None else self._landings.get(tag)

    @property
    def room(self) -> int:
        """The route asks without naming an end, so this answers for all of them."""
        return min((landing.room for landing in self._all()), default=0)

    def wake(self) -> None:
        """The other side has room again: whoever waits for it looks."""
        for landing in self._all():
            landing.wake()

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """Frames get through again: the ends hear of it whose pipes are not known to be elsewhere."""
        for tag, landing in self._landings.copy().items():
            if tag not in elsewhere:
                landing.reconnected()

    def _all(self) -> list[Landing]:
        once = {id(landing): landing for landing in self._landings.copy().values()}
        unclaimed = [] if self.unclaimed is None else [self.unclaimed]
        return [*once.values(), *unclaimed]

    def add(self, tags: Iterable[int], landing: Landing, name: str) -> None:
        """Frames of these pipes go there. Raises MisuseError where one of them has an end already."""
        tags = tuple(tags)
        if any(tag in self._landings for tag in tags):
            raise MisuseError(
                f"{name} has an end on this side of the route already: "
                "close that one first, or give the new one another name"
            )
        self._landings.update(dict.fromkeys(tags, landing))

    def remove(self, tags: Iterable[int]) -> None:
        """Nothing goes there any more."""
        for tag in tags:
            self._landings.pop(tag, None)


_lock = threading.Lock()
_SWITCHES: dict[int, Switch] = {}
"""The switches of all sides that are open, by the identity of the side, which each of them keeps alive."""


def _begin_anew() -> None:
    """In the child of a fork: the sides that are open are the parent's."""
    global _lock  # noqa: PLW0603 - the thread that held it may not be here
    _lock = threading.Lock()
    _SWITCHES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _switch_on(side: RouteSide, runtime: Runtime) -> Switch:
    """The switch of a side, opened if it was not. To be called under the lock, and used before it is left."""
    switch = _SWITCHES.get(id(side)) or Switch(side)
    if switch.runtime is None:
        switch.runtime = runtime
        side.open(switch, runtime)
        _SWITCHES[id(side)] = switch
    elif switch.runtime is not runtime:
        raise ConfigurationError("ends that share a route must run on the same runtime")
    return switch


def _leave(switch: Switch) -> None:
    if not switch.is_used:
        del _SWITCHES[id(switch.side)]
        switch.side.close()


class SharedSide:
    """One end's share of a side: as if it had the side for itself. ``tags``: the pipes whose frames it takes.
    ``name``: what errors call it, as ``pipe orders``."""

    def __init__(self, side: RouteSide, tags: Iterable[int], name: str) -> None:
        self._side = side
        self._tags = tuple(tags)
        self._name = name
        self._switch: Switch | None = None
        self.send = side.send
        self.taken = side.taken

    @property
    def has_reverse(self) -> bool:
        return self._side.has_reverse

    @property
    def room(self) -> int:
        return self._side.room

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Take what is for this end. Raises MisuseError when these pipes have an end here already."""
        with _lock:
            switch = _switch_on(self._side, runtime)
            try:
                switch.add(self._tags, landing, self._name)
                self._switch = switch
            finally:
                _leave(switch)

    def close(self) -> None:
        """Take nothing more. A second call does nothing."""
        with _lock:
            switch, self._switch = self._switch, None
            if switch is not None:
                switch.remove(self._tags)
                _leave(switch)


class StrangersSide:
    """Takes what arrives at a side and is for no end there: where somebody listens."""

    def __init__(self, side: RouteSide) -> None:
        self._side = side
        self._switch: Switch | None = None
        self.send = side.send

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Take what is for nobody. Raises MisuseError when somebody does so already."""
        with _lock:
            switch = _switch_on(self._side, runtime)
            try:
                if switch.unclaimed is not None:
                    raise MisuseError(
                        "somebody listens on this side of the route already: name all channels there"
                    )
                switch.unclaimed = landing
                self._switch = switch
            finally:
                _leave(switch)

    def landing_of(self, frame: object) -> Landing | None:
        """The end that a frame is for, if it is there by now."""
        return None if self._switch is None else self._switch.landing_of(frame)

    def close(self) -> None:
        """Take nothing more. A second call does nothing."""
        with _lock:
            switch, self._switch = self._switch, None
            if switch is not None:
                switch.unclaimed = None
                _leave(switch)


@dataclass(slots=True)
class ChannelSurroundings(Surroundings):
    """``waiting`` is there when the incoming stack never sends again: then its frames wait until the machine has
    room, in a box of their own, so that the other direction goes on."""

    waiting: Box[object] | None = None

    def __post_init__(self) -> None:
        self.put = self.frames.put if self.waiting is None else self._put_either

    def _put_either(self, frame: object) -> None:
        assert self.waiting is not None
        (self.waiting if isinstance(frame, Numbered) else self.frames).put(frame)

    @property
    def room(self) -> int:
        """For the route: how many more frames fit, of those that must not be dropped."""
        return self.frames.room if self.waiting is None else self.waiting.room
