"""Who submits to a replicated queue or watches it: an actor around the machine of a client, and its tickets."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from surepipe.actors.clusters.links import gathered
from surepipe.actors.clusters.node import AddressLearner, NodeStores
from surepipe.actors.ends.machine import Event, MachineHost
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.host import EndOptions, NodeEnd
from surepipe.actors.routes import RouteSide
from surepipe.actors.store_calls import Stores
from surepipe.core.effects import Effect
from surepipe.core.store_requests import (
    Owner,
    Store,
)
from surepipe.errors import MisuseError, StoreUnavailable
from surepipe.queues.rmq.client import ClientMachine, SignedReceipt, Submitted
from surepipe.queues.rmq.client import Outcome as Ending
from surepipe.queues.rmq.encoding import (
    MemberKeys,
)
from surepipe.queues.rmq.epochs import (
    Foundation,
    Operation,
    plan_body,
)
from surepipe.queues.rmq.receipts import TERMINAL
from surepipe.queues.rmq.stored_log import (
    open_log,
)
from surepipe.storage.positions import Claims

if TYPE_CHECKING:
    pass

logger = logging.getLogger("surepipe")
OPEN_MAX = 10_000
EVENTS_AT_ONCE = 256
NEVER = 1 << 62
"""More receipts than there are."""
ORIENTED_S = 5.0
"""So long a client waits for enough nodes to tell which epoch it is."""


class Ticket:
    """A message that was submitted, and what comes back of it."""

    def __init__(self, end: QueueClient, submitted: Submitted) -> None:
        self._end, self._submitted = end, submitted
        self.id = submitted.id

    def history(self) -> Sequence[SignedReceipt]:
        """All receipts so far, as they came."""
        return tuple(self._submitted.history)

    @property
    def outcome(self) -> Ending | None:
        """How it ended, once that is believed."""
        return self._submitted.outcome

    @property
    def is_placed(self) -> bool:
        """Whether so many nodes keep it that it isn't sent any more."""
        members = self._end.members_of(self._submitted)
        return 3 * len(self._submitted.heard & members) > len(members)

    @property
    def nodes(self) -> int:
        """How many nodes serve its key."""
        return len(self._end.members_of(self._submitted))

    @property
    def tellers(self) -> Sequence[str]:
        """The nodes that have told how it ended."""
        told = [each.node for each in self.history() if each.receipt.kind in TERMINAL]
        return tuple(dict.fromkeys(told))

    def wait(self, timeout_s: float | None, *, more_than: int) -> bool:
        """Wait until there are more receipts than so many, or the outcome is believed; false when that doesn't
        come in time, or can't any more as the client has ended."""
        submitted, end = self._submitted, self._end

        def has_news() -> bool:
            return len(submitted.history) > more_than or submitted.outcome is not None

        end.signal.wait(lambda: has_news() or bool(end.failure), timeout_s)
        return has_news()

    def receipts(self, timeout_s: float | None = None) -> Iterator[SignedReceipt]:
        """Receipts as they come, until the outcome is believed. Raises TimeoutError when none comes in time, or
        the client has ended."""
        told = 0
        while True:
            fresh = self._submitted.history[told:]
            told += len(fresh)
            yield from fresh
            if self._submitted.outcome is not None:
                if told == len(self._submitted.history):
                    return
            elif not self.wait(timeout_s, more_than=told):
                raise TimeoutError(
                    f"no receipt of {self.id.hex()[:12]} {self._end.failure or f'in {timeout_s} s'}"
                )

    def unknown(self) -> str:
        """What can be said while nothing is believed: it may still happen."""
        at_ms = self._submitted.header.expires_ms
        until = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S UTC")
        why = "; ".join(f"{node}: {text}" for node, text in self._submitted.refusals.items())
        return (
            f"it may still happen until {until}; ask again, or submit it again with the same dedupe"
            f"{f' ({why})' if why else ''}"
        )

    def result(self, timeout_s: float | None = None) -> Ending:
        """How it ended, as enough nodes say. Raises TimeoutError while that isn't known, also when the client has
        ended before: it may still happen."""
        self.wait(timeout_s, more_than=NEVER)
        if self._submitted.outcome is None:
            why = self._end.failure or f"after {timeout_s} s"
            raise TimeoutError(
                f"the end of {self.id.hex()[:12]} isn't known {why}: {self.unknown()}"
            )
        return self._submitted.outcome


class QueueClient(NodeEnd):
    """A submitter of a replicated queue."""

    side_name = "client"

    def __init__(
        self,
        name: str,
        foundation: Foundation,
        side: RouteSide,
        keys: MemberKeys,
        options: EndOptions,
        *,
        is_watching: bool = False,
        is_detailed: bool = False,
        journal: Store | None = None,
    ) -> None:
        """``is_detailed``: it is told each step. ``is_watching``: it hears what this submitter is told, whoever
        submits in that name. ``journal``: where it keeps what it submitted."""
        self.submitter, self.foundation = name, foundation
        self._journal = journal
        self._keys, self._is_watching, self._is_detailed = keys, is_watching, is_detailed
        self.side = side
        self._events: deque[Event[ClientMachine]] = deque()
        self.signal = options.runtime.signal()
        self._machine: ClientMachine | None = None
        self._why_given_up = ""
        stores = Stores(stream=NodeStores(journal, None, keys) if journal is not None else None)
        super().__init__(f"{foundation.queue}/{name}", side, options, stores)

    def new_life(self) -> MachineHost[ClientMachine]:
        learner = AddressLearner(self.side)
        return _ClientHost(self.around, self.build, self._events, self.signal.notify, learner)

    def gave_up(self, why: str) -> None:
        self._why_given_up = why
        logger.error("%s: %s", self.address, why)
        self.signal.notify()

    @property
    def failure(self) -> str:
        """Why this client hears and sends nothing any more; empty while it does."""
        if self._why_given_up:
            return f"as {self._why_given_up}"
        return f"as {self.address} is closed" if self._is_stopped else ""

    def members_of(self, submitted: Submitted) -> frozenset[str]:
        """Those who serve the key of a message, as far as this client knows."""
        found = self.foundation.record if self._machine is None else self._machine.epochs.newest
        return frozenset(found.owner(submitted.header.point).members)

    def _open(self) -> ClientMachine:
        """Raises MisuseError for a client that takes nothing more, or not yet."""
        if self.failure:
            raise MisuseError(f"{self.address} takes nothing more, {self.failure}")
        if self._machine is None:
            raise MisuseError(
                f"{self.address} has not begun: the store of its journal gives nothing"
            )
        return self._machine

    def build(self) -> ClientMachine:
        """The machine outlives the actor: its tickets are in the hands of callers."""
        if self._machine is None:
            journal = None
            if self._journal is not None:
                place = f"rmq/{self.foundation.queue}/client/{self.submitter}"
                claimed = Claims(self._journal, lives_of(self.runtime)).claim(place, "life", 1)
                if not isinstance(claimed, Owner):
                    raise StoreUnavailable(f"{self.address}: {claimed}")
                journal = open_log(self._journal, place, self.submitter, claimed.number)
            self._machine = ClientMachine(
                self.submitter,
                self.foundation,
                keys=self._keys,
                rng=self.rng,
                is_watching=self._is_watching,
                is_detailed=self._is_detailed,
                journal=journal,
            )
        return self._machine

    def tickets(self) -> Sequence[Ticket]:
        """Of all messages whose end isn't known, or was told not long ago; with a journal also of former lives.
        Raises MisuseError while the store of the journal gives nothing."""
        self.signal.wait(lambda: self._machine is not None, ORIENTED_S)
        machine = self._machine or self._open()
        return [Ticket(self, each) for each in list(machine.tickets.values())]

    def told(self, timeout_s: float) -> Sequence[SignedReceipt]:
        """All that nodes have told since the last call, about any message, for a client that watches. Waits for
        something."""
        if self._machine is None or not self.signal.wait(self._has_news, timeout_s):
            return ()
        news = self._machine.news
        return [news.popleft() for _ in range(len(news))]

    def _has_news(self) -> bool:
        return self._machine is not None and bool(self._machine.news)

    def _is_oriented(self) -> bool:
        return self._machine is not None and self._machine.is_oriented(self.runtime.now())

    def submit(
        self, body: bytes, *, key: bytes = b"", dedupe: bytes = b"", ttl_s: float = 60.0
    ) -> Ticket:
        """Submit a message. Without an outcome after ``ttl_s`` seconds it expires.

        ``dedupe``: two messages of equal ``key`` and ``dedupe`` are the same work, which is done once. Waits while
        10,000 messages of this client are open.
        """
        if not self.signal.wait(self._is_oriented, ORIENTED_S):
            logger.warning("%s: too few nodes tell which epoch it is", self.address)
        ttl_ms = round(ttl_s * 1000)
        settings = self.foundation.settings
        if not 0 < ttl_ms <= settings.ttl_max_ms or len(body) > settings.message_bytes_max:
            raise MisuseError(
                f"ttl_s {ttl_s} or a body of {len(body)} bytes: give 0 to {settings.ttl_max_ms / 1000} s, and "
                f"at most {settings.message_bytes_max} bytes"
            )
        machine = self._open()
        self.signal.wait(self._has_room, None)
        self._open()  # it may have ended while it had no room
        ticket = machine.ticket(
            body,
            key=key,
            dedupe=dedupe,
            ttl_ms=ttl_ms,
            now=self.runtime.now(),
            wall_ms=self.runtime.wall_ms(),
        )
        self._events.append(lambda machine, now: machine.enter(ticket, now))
        self.around.bell.ring()
        return Ticket(self, ticket)

    def plan(
        self, operations: Sequence[Operation], admin: MemberKeys, *, ttl_s: float = 60.0
    ) -> Ticket:
        """Submit a plan, which this admin signs: what is to be otherwise from the next epoch on."""
        if not self.signal.wait(self._is_oriented, ORIENTED_S):
            logger.warning("%s: too few nodes tell which epoch it is", self.address)
        machine = self._open()
        ticket = machine.plan_ticket(
            lambda header: plan_body(header, operations, admin),
            ttl_ms=min(round(ttl_s * 1000), self.foundation.settings.ttl_max_ms),
            now=self.runtime.now(),
            wall_ms=self.runtime.wall_ms(),
        )
        self._events.append(lambda machine, now: machine.enter(ticket, now))
        self.around.bell.ring()
        return Ticket(self, ticket)

    def stop(self, timeout: float) -> bool:
        is_ended = super().stop(timeout)
        self.signal.notify()  # who waits for room, or for the end of a message, is told
        return is_ended

    def _has_room(self) -> bool:
        machine = self._machine
        if machine is None or self.failure:
            return True
        return machine.gauges()["open"] + len(self._events) < OPEN_MAX


class _ClientHost(MachineHost[ClientMachine]):
    """Whoever waits for receipts looks again after each step."""

    def __init__(
        self,
        around: object,
        build: Callable[[], ClientMachine],
        events: deque[Event[ClientMachine]],
        tell: Callable[[], None],
        learner: AddressLearner,
    ) -> None:
        super().__init__(around, build, {}, events)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as its end gives it
        self._tell, self._learner = tell, learner

    def perform(self, effects: list[Effect]) -> None:
        super().perform(gathered(effects) if self._learner.is_over_tcp else effects)

    def look_further(self) -> None:
        while self._events:
            effects: list[Effect] = []
            while self._events and len(effects) < EVENTS_AT_ONCE:
                effects += self._events.popleft()(self.machine, self.now())
            self.perform(effects)
        self._learner.look(self.machine.epochs.newest)
        self._tell()
