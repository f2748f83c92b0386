"""A node of a replicated queue as an actor: a machine with a clerk for its store and guard, and a worker."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import pykka

from surepipe.actors.clusters.decided import DecidedStream, FeedWriter
from surepipe.actors.clusters.guard import Guard
from surepipe.actors.clusters.links import TcpMesh, gathered
from surepipe.actors.clusters.worker import Function, NodeWorker, checked_function
from surepipe.actors.ends.machine import MachineHost
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.host import EndOptions, Host, NodeEnd
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Running, Runtime
from surepipe.actors.store_calls import Request, Stores
from surepipe.core.effects import Call, Effect
from surepipe.core.store_requests import (
    FencedOut,
    Owner,
    Store,
    StoreRequest,
)
from surepipe.errors import Fenced, StoreUnavailable
from surepipe.queues.rmq.encoding import (
    MemberKeys,
)
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Foundation,
)
from surepipe.queues.rmq.feed import AppendDecided, OpenFeed
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.session import ProcessJobs
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenLog,
    Release,
    served_log,
)
from surepipe.storage.positions import Claims

logger = logging.getLogger("surepipe")
WAITED_PART = 3
"""For this part of a slot a node waits for the user's function; what isn't done is decided in a later one."""

RECALL_S = 30.0


class NodeStores:
    """What a machine asks for: its store, and of a node the guard beside the key."""

    full = ""

    def __init__(self, store: Store, guard: Guard | None, keys: MemberKeys) -> None:
        self._store, self._guard, self._keys = store, guard, keys

    def call(self, request: object) -> object:
        if self._guard is not None and isinstance(request, Release):
            return self._guard.release(request, self._keys)
        if self._guard is not None and isinstance(request, OpenLog | CloseLog):
            return served_log(self._store, self._guard, request)
        return self._store.ask(cast("StoreRequest", request))

    def stop_waiting(self) -> bool:
        return True

    def tell_beginning(self, tell: Callable[[str, int, int], object], *, always: bool) -> None:
        """Nobody reads a stream here."""

    def end(self) -> tuple[int, int]:
        raise StoreUnavailable("nothing is read from a log after it was opened")

    def readers(self) -> tuple[str, ...]:
        return ()


class _Walled:
    """A node as a machine that is told the wall time with each step."""

    def __init__(self, node: NodeMachine, runtime: Runtime) -> None:
        self.node = node
        self._wall_ms = runtime.wall_ms
        self.counters, self.gauges = node.counters, node.gauges
        self.export, self.close = node.export, node.close

    def wake(self, now: int) -> list[Effect]:
        return self.node.wake(now, self._wall_ms())

    def frame(self, frame: object, now: int) -> list[Effect]:
        return self.node.frame(frame, now, self._wall_ms())

    def frames(self, frames: Sequence[object], now: int) -> list[Effect]:
        return self.node.frames(frames, now, self._wall_ms())

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        return self.node.answer(ticket, outcome, now, self._wall_ms())


class AddressLearner:
    """Tells a link where nodes listen that came later than the file, as the newest record has it."""

    def __init__(self, side: RouteSide) -> None:
        self._side, self._number = side, 1
        self.is_over_tcp = isinstance(side, TcpMesh)

    def look(self, found: EpochRecord) -> None:
        """Do so, once for each record."""
        if found.number != self._number and isinstance(self._side, TcpMesh):
            self._number = found.number
            self._side.learn({each.name: each.address for each in found.nodes})


class _NodeHost(MachineHost[_Walled]):
    """One life of a node: calls of the user's function go to a worker, all others to the clerk."""

    has_boxes = True

    def take_frames(self) -> None:
        """Handle all frames that have arrived as one event: the work that follows is done once."""
        if frames := self.around.frames.take():
            self.perform(self.machine.frames(frames, self.now()))

    def __init__(self, end: QueueNode) -> None:
        super().__init__(end.around, end.build, {}, deque())
        self._worker, self._feeder = end.worker, end.feeder
        self._learner = AddressLearner(end.side)
        self._recalled: Callable[[], None] | None = end.recalled

    def perform(self, effects: list[Effect]) -> None:
        super().perform(gathered(effects) if self._learner.is_over_tcp else effects)
        if self._recalled is not None and self.machine.node.has_recalled:
            self._recalled()
            self._recalled = None

    def look_further(self) -> None:
        super().look_further()
        self._learner.look(self.machine.node.record)

    def _request(self, effect: Request) -> None:
        if isinstance(effect, Call) and isinstance(effect.request, ProcessJobs):
            self._worker().tell((self, effect.ticket, effect.request))
        elif isinstance(effect, Call) and isinstance(effect.request, OpenFeed | AppendDecided):
            self._feeder().tell((self, effect.ticket, effect.request))
        else:
            super()._request(effect)


class QueueNode(NodeEnd):
    """A node of a replicated queue. What its life begins with is in its store."""

    side_name = "node"

    def __init__(
        self,
        name: str,
        foundation: Foundation,
        side: RouteSide,
        *,
        store: Store,
        guard: Guard,
        keys: MemberKeys,
        process: Function,
        options: EndOptions,
        decided: Store | None = None,
    ) -> None:
        """``decided``: the store of the stream of what is decided."""
        self.member, self.foundation = name, foundation
        self._decided = decided
        self._feeding: Running | None = None
        self._store, self._guard, self._keys, self._process = store, guard, keys, process
        self._claims: Claims | None = None
        self._lives = 0
        self._desk: NodeWorker | None = None
        self._working: Running | None = None
        self._why_given_up = ""
        self._has_recalled = False
        self.side = side
        stores = Stores(stream=NodeStores(store, guard, keys))
        super().__init__(f"{foundation.queue}/{name}", side, options, stores)
        self._signal = self.runtime.signal()

    def worker(self) -> Running:
        """Who runs the user's function."""
        if self._working is None:
            settings, name = self.foundation.settings, f"{self.address}-worker"
            self._desk = NodeWorker(
                checked_function(self._process),
                settings.retries,
                budget_us=settings.slot_timeout_us // WAITED_PART,
                runtime=self.runtime,
                name=name,
            )
            self._working = self._desk.begin(self.runtime.start(self._desk, name))
        return self._working

    def feeder(self) -> Running:
        """Writes the stream of decided messages."""
        if self._feeding is None:
            assert self._decided is not None
            writer = FeedWriter(DecidedStream(self._decided), self._feeder_died)
            self._feeding = self.runtime.start(writer, f"{self.address}-decided")
        return self._feeding

    def _feeder_died(self, why: str) -> None:
        logger.error(
            "%s: the stream of what is decided is not written any more: %s", self.address, why
        )

    def new_life(self) -> _NodeHost:
        self._has_recalled = False
        return _NodeHost(self)

    def recalled(self) -> None:
        """From its host: what the last life left is read."""
        self._has_recalled = True
        self._signal.notify()

    def gave_up(self, why: str) -> None:
        self._why_given_up = why
        logger.error("%s: %s", self.address, why)

    def failure(self) -> str:
        """Why this node takes part no more, as another process of it does, or it died again and again; empty while
        it does. Whoever runs it ends it then."""
        if self._why_given_up:
            return self._why_given_up
        try:
            has_ended = self.look(lambda node: node.has_ended)
        except LookupError:
            return ""
        return f"another process of {self.member} began later" if has_ended else ""

    def build(self) -> _Walled:
        """Fence whoever was this node before. Raises StoreUnavailable, Fenced."""
        foundation = self.foundation
        place = f"rmq/{foundation.queue}/{self.member}"
        if self._claims is None:
            self._claims = Claims(self._store, lives_of(self.runtime))
        claimed = self._claims.claim(place, "life", self._lives + 1)
        if isinstance(claimed, FencedOut):
            raise Fenced(f"{self.address} was taken over by a process that began later")
        if not isinstance(claimed, Owner):
            raise StoreUnavailable(f"{self.address}: {claimed}")
        self._lives += 1
        node = NodeMachine(
            foundation,
            self.member,
            keys=self._keys,
            rng=self.rng,
            life=claimed.number,
            place=place,
            has_feed=self._decided is not None,
        )
        return _Walled(node, self.runtime)

    def stop(self, timeout: float) -> bool:
        end = self.runtime.now() + round(timeout * 1_000_000)
        is_ended = super().stop(timeout)
        for each in (self._working, self._feeding):
            if each is not None:
                each.stop()
                is_ended = each.join(self._left(end)) and is_ended
        if self._desk is not None:
            is_ended = self._desk.stop(self._left(end)) and is_ended
        return is_ended

    def recall(self, question: Callable[[NodeMachine], object]) -> object:
        """What this node answers once it has read what its last life left. LookupError when its store gives that
        not in time, and between two lives."""
        if not self._signal.wait(lambda: self._has_recalled, RECALL_S):
            raise LookupError(
                f"{self.address} has not read what it knew before within {RECALL_S:g} s: its store "
                "doesn't answer, or another process has this node"
            )
        return self.look(question)

    def look(self, question: Callable[[NodeMachine], object]) -> object:
        """What this node answers now, in its actor. LookupError between two lives, and while it is too busy."""

        def asked(host: Host[_Walled]) -> object:
            if not host.is_built:
                raise LookupError(f"{self.address} has not begun")
            return question(host.machine.node)

        try:
            return self.ask(asked)
        except (pykka.Timeout, pykka.ActorDeadError) as error:
            raise LookupError(
                f"{self.address} doesn't answer in time, or has just ended"
            ) from error
