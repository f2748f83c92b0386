"""An end for any machine, with routes of its own under names: how queues with several peers are hosted.

    node = Node("relay", options)
    end = MachineEnd("orders", build, {"in": one, "left": other, "right": third}, node=node)
    end.start()
    end.tell(lambda machine, now: machine.send([b"payload"], now))

The machine gets each frame as ``Addressed``, with the name of the route it came by, and addresses what it sends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from surepipe.actors.ends.sender import BUILD_AGAIN_US
from surepipe.actors.host import EndOptions, Host, Node, NodeEnd, Surroundings
from surepipe.actors.routes import NamedSides, RouteSide
from surepipe.actors.store_calls import Stores
from surepipe.core.effects import Effect
from surepipe.core.machine import Machine
from surepipe.errors import StoreUnavailable

logger = logging.getLogger("surepipe")
M = TypeVar("M", bound=Machine)
Event: TypeAlias = Callable[[M, int], list[Effect]]
"""A step of the machine: it is given the machine and the time, and gives effects."""


class MachineHost(Host[M]):
    """One life of such a machine."""

    def __init__(
        self,
        around: Surroundings,
        build: Callable[[], M],
        performs: Mapping[type[Effect], Callable[[Any], object]],
        events: deque[Event[M]],
    ) -> None:
        super().__init__(around)
        self._build = build
        self._events = events
        self.perform_by_type |= performs

    def build(self) -> bool:
        """Build the machine; later, when a store that it begins with does not answer."""
        try:
            self.machine = self._build()
            self.is_built = True
        except StoreUnavailable:
            self.retry_build_at(self.now() + BUILD_AGAIN_US)
        return self.is_built

    def look_further(self) -> None:
        """Take the events that callers, or effects of this or another machine, have brought."""
        events = self._events
        while events:
            self.perform(events.popleft()(self.machine, self.now()))


class MachineEnd(NodeEnd, Generic[M]):
    """An end that hosts any machine. ``performs``: what becomes of effects that only some know, such as Deliver.

    What it is told between two lives waits for the next one. ``gave_up``: told why there is no further life.
    """

    side_name = "machine"

    def __init__(
        self,
        name: str,
        build: Callable[[], M],
        routes: Mapping[str, RouteSide],
        options: EndOptions | None = None,
        *,
        performs: Mapping[type[Effect], Callable[[Any], object]] | None = None,
        stores: Stores | None = None,
        gave_up: Callable[[str], object] = logger.error,
        node: Node | None = None,
    ) -> None:
        super().__init__(
            name, NamedSides(routes), options or EndOptions(), stores or Stores(), node=node
        )
        self._build = build
        self._performs = performs or {}
        self._events: deque[Event[M]] = deque()
        self._on_gave_up = gave_up

    def tell(self, event: Event[M]) -> None:
        """Let the machine take this event, after those that it was told before. From any thread."""
        self._events.append(event)
        self.around.bell.ring()

    def new_life(self) -> MachineHost[M]:
        """From the node: the host of a life that is about to begin."""
        return MachineHost(self.around, self._build, self._performs, self._events)

    def gave_up(self, why: str) -> None:
        """From the node: there is no further life."""
        self._on_gave_up(why)
