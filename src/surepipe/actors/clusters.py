"""A replicated queue as users run it: nodes, clients, and several of them in one process.

    with Cluster.local("orders", nodes=4, process=price, path="orders") as cluster:
        client = cluster.client("shop-1")
        ticket = client.submit(b"tea", key=b"customer-7")
        assert ticket.result(timeout_s=10).value == b"4.20"

A node is an actor around a ``NodeMachine`` (``queues/rmq/node/``). It has a clerk for its store and guard,
another actor for the user's function, and decides nothing.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import pykka

from surepipe.actors.decided import DecidedStream, FeedWriter
from surepipe.actors.ends.machine import Event, MachineHost
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.host import EndOptions, Host, NodeEnd
from surepipe.actors.links.security import Security
from surepipe.actors.queue_guard import FileGuard, Guard, keys_of
from surepipe.actors.queue_links import Hub, TcpMesh, gathered
from surepipe.actors.queue_worker import Function, NodeWorker, ProcessContext, checked_function
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Running, Runtime
from surepipe.actors.store_calls import Request, Stores
from surepipe.core.effects import Call, Effect
from surepipe.core.records import record
from surepipe.core.store_requests import (
    FencedOut,
    Owner,
    Store,
    StoreRequest,
    StreamInfo,
    Unavailable,
    called,
)
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreUnavailable
from surepipe.queues.rmq.catchain import Voice
from surepipe.queues.rmq.chain import Block
from surepipe.queues.rmq.client import ClientMachine, SignedReceipt, Submitted
from surepipe.queues.rmq.client import Outcome as Ending
from surepipe.queues.rmq.encoding import (
    NAME,
    Ed25519Keys,
    MemberKeys,
)
from surepipe.queues.rmq.entries import Member
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Foundation,
    Operation,
    QueueSettings,
    plan_body,
)
from surepipe.queues.rmq.feed import AppendDecided, OpenFeed
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.receipts import TERMINAL
from surepipe.queues.rmq.session import ProcessJobs
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenLog,
    Release,
    open_log,
    served_log,
)
from surepipe.storage import MemoryStore, SqliteStore, open_store
from surepipe.storage.positions import Claims

if TYPE_CHECKING:
    from surepipe.storage import RedisStore

logger = logging.getLogger("surepipe")
STOP_S = 5.0
OPEN_MAX = 10_000
EVENTS_AT_ONCE = 256
WAITED_PART = 3
"""For this part of a slot a node waits for the user's function; what isn't done is decided in a later one."""
__all__ = [
    "Cluster",
    "Function",
    "NodeSeen",
    "ProcessContext",
    "QueueClient",
    "QueueNode",
    "Ticket",
    "checked_function",
]

# Ends.


class _NodeStores:
    """What a machine asks for: its store, and of a node the guard beside the key."""

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

    def end(self) -> tuple[int, int]:
        raise StoreUnavailable("nothing is read from a log after it was opened")


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
        """All that have arrived are one event: what follows from many costs as much as what follows from one."""
        if frames := self.around.frames.take():
            self.perform(self.machine.frames(frames, self.now()))

    def __init__(self, end: QueueNode) -> None:
        super().__init__(end.around, end.build, {}, deque())
        self._worker, self._feeder = end.worker, end.feeder
        self._learner = AddressLearner(end.side)

    def perform(self, effects: list[Effect]) -> None:
        super().perform(gathered(effects) if self._learner.is_over_tcp else effects)

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
        self.side = side
        stores = Stores(stream=_NodeStores(store, guard, keys))
        super().__init__(f"{foundation.queue}/{name}", side, options, stores)

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
        """Who writes the stream of what is decided."""
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
        return _NodeHost(self)

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
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
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
        is_ended = super().stop(timeout)
        for each in (self._working, self._feeding):
            if each is not None:
                each.stop()
                is_ended = each.join(timeout) and is_ended
        if self._desk is not None:
            is_ended = self._desk.stop(timeout) and is_ended
        return is_ended

    def look(self, question: Callable[[NodeMachine], object]) -> object:
        """What this node answers, in its actor. LookupError between two lives."""

        def asked(host: Host[_Walled]) -> object:
            if not host.is_built:
                raise LookupError(f"{self.address} has not begun")
            return question(host.machine.node)

        return self.ask(asked)


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
        return 3 * len(self._submitted.heard) > self.nodes

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self._end.foundation.nodes)

    @property
    def tellers(self) -> Sequence[str]:
        """The nodes that have told how it ended."""
        told = [each.node for each in self.history() if each.receipt.kind in TERMINAL]
        return tuple(dict.fromkeys(told))

    def wait(self, timeout_s: float | None, *, more_than: int) -> bool:
        """Wait until there are more receipts than so many, or the outcome is believed."""
        submitted = self._submitted
        return self._end.signal.wait(
            lambda: len(submitted.history) > more_than or submitted.outcome is not None, timeout_s
        )

    def receipts(self, timeout_s: float | None = None) -> Iterator[SignedReceipt]:
        """Receipts as they come, until the outcome is believed. Raises TimeoutError when none comes in time."""
        told = 0
        while True:
            fresh = self._submitted.history[told:]
            told += len(fresh)
            yield from fresh
            if self._submitted.outcome is not None:
                if told == len(self._submitted.history):
                    return
            elif not self.wait(timeout_s, more_than=told):
                raise TimeoutError(f"no receipt of {self.id.hex()[:12]} in {timeout_s} s")

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
        """How it ended, as enough nodes say. Raises TimeoutError while that isn't known: it may still happen."""
        self._end.signal.wait(lambda: self._submitted.outcome is not None, timeout_s)
        if self._submitted.outcome is None:
            raise TimeoutError(
                f"the end of {self.id.hex()[:12]} isn't known after {timeout_s} s: {self.unknown()}"
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
        stores = Stores(stream=_NodeStores(journal, None, keys) if journal is not None else None)
        super().__init__(f"{foundation.queue}/{name}", side, options, stores)

    def new_life(self) -> MachineHost[ClientMachine]:
        learner = AddressLearner(self.side)
        return _ClientHost(self.around, self.build, self._events, self.signal.notify, learner)

    def gave_up(self, why: str) -> None:
        logger.error("%s: %s", self.address, why)

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
        """Of all messages whose end isn't known, or was told not long ago; with a journal also of former lives."""
        if not self.signal.wait(lambda: self._machine is not None, STOP_S) or not self._machine:
            return ()
        return [Ticket(self, each) for each in list(self._machine.tickets.values())]

    def told(self, timeout_s: float) -> Sequence[SignedReceipt]:
        """What nodes have told since the last call, of all messages: of one who watches. Waits for something."""
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
        if not self.signal.wait(self._is_oriented, STOP_S):
            logger.warning("%s: too few nodes tell which epoch it is", self.address)
        ttl_ms = round(ttl_s * 1000)
        settings = self.foundation.settings
        if not 0 < ttl_ms <= settings.ttl_max_ms or len(body) > settings.message_bytes_max:
            raise MisuseError(
                f"ttl_s {ttl_s} or a body of {len(body)} bytes: give 0 to {settings.ttl_max_ms / 1000} s, and "
                f"at most {settings.message_bytes_max} bytes"
            )
        machine = self._machine
        if self._is_stopped or machine is None:
            raise MisuseError(f"{self.address} is closed, or has never begun")
        self.signal.wait(self._has_room, None)
        if self._is_stopped:
            raise MisuseError(f"{self.address} was closed while it had no room")
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
        if not self.signal.wait(self._is_oriented, STOP_S):
            logger.warning("%s: too few nodes tell which epoch it is", self.address)
        machine = self._machine
        if self._is_stopped or machine is None:
            raise MisuseError(f"{self.address} is closed, or has never begun")
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
        self.signal.notify()  # who waits for room is told
        return is_ended

    def _has_room(self) -> bool:
        machine = self._machine
        if machine is None or self._is_stopped:
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


@record
class NodeSeen:
    """How a node stands."""

    voice: Voice
    epoch: int
    position: int
    """How many final blocks of this epoch and the one before it has."""
    undecided: int
    height: int
    blamed: tuple[str, ...]
    peers: tuple[str, ...]
    """Those that it is connected with."""
    strangers: tuple[tuple[str, str], ...] = ()
    """Those whose file is another one, and how it differs."""


class Cluster:
    """A replicated queue, as far as it runs in this process: some or all of its nodes, and clients.

    Each node has a SQLite file, a key and a guard in a folder. Nodes may be killed and started one by one.
    """

    def __init__(
        self,
        foundation: Foundation,
        folder: Path,
        side_of: Callable[[str], RouteSide],
        *,
        process: Function | None = None,
        options: EndOptions | None = None,
        store: str | None = None,
        decided: bool = False,
    ) -> None:
        """``local`` and ``linked`` make one. ``side_of``: by what a party of this name is linked. ``store``: the
        address of what keeps the nodes' streams; without it each has a file in the folder. ``decided``: each node
        keeps what is decided in a stream, for others to read."""
        self._store, self._has_decided = store, decided
        self._process = checked_function(process) if process is not None else None
        self._folder, self._side_of = folder, side_of
        self.joining: frozenset[str] = frozenset()
        """Nodes that run here and came later than the foundation: a plan has added them."""
        self._options = options or EndOptions()
        self.foundation = foundation
        self._nodes: dict[str, QueueNode] = {}
        self._sides: dict[str, RouteSide] = {}
        self._guards: dict[str, FileGuard] = {}
        self._stores: dict[str, SqliteStore | RedisStore] = {}
        self._decided: dict[str, SqliteStore | RedisStore] = {}
        self._journals: list[SqliteStore] = []
        self._clients: dict[str, QueueClient] = {}
        self._temporary: TemporaryDirectory[str] | None = None

    @classmethod
    def local(
        cls,
        queue: str,
        *,
        nodes: int | Sequence[str] = 4,
        process: Function,
        path: str | os.PathLike[str] | None = None,
        settings: QueueSettings | None = None,
        faults: str = "byzantine",
        store: str | None = None,
        decided: bool = False,
        hub: Hub | None = None,
    ) -> Self:
        """Start ``nodes`` nodes in this process, called n1, n2 and so on, or by the names given.

        ``process(message, context)`` returns ``Done``, ``Refuse`` or ``Later``. It may run more than once and on
        every node, so it computes and does nothing else. ``path`` is a folder with a SQLite file, a key and a
        guard for each node, and a cluster that is opened there goes on; without it all is gone with the cluster.
        ``faults`` says whether nodes may lie (``byzantine``) or only fail (``crash``). ``store``, such as
        redis://localhost:6379/0, keeps their logs in place of files. ``decided``: each node keeps what is decided
        in a stream (``decided_of``). ``hub`` carries between them. Raises ConfigurationError, and MisuseError when
        another process has these nodes.
        """
        names = [f"n{at}" for at in range(1, nodes + 1)] if isinstance(nodes, int) else list(nodes)
        temporary = TemporaryDirectory(prefix="surepipe-") if path is None else None
        folder = Path(temporary.name if temporary is not None else cast("str", path))
        folder.mkdir(parents=True, exist_ok=True)
        members = tuple(Member(name, keys_of(folder, name).public) for name in names)
        foundation = Foundation(queue, members, settings or QueueSettings(), faults)
        foundation.check()
        side_of = (hub or Hub()).side
        cluster = cls(foundation, folder, side_of, process=process, store=store, decided=decided)
        cluster._temporary = temporary
        cluster.start_all(names)
        return cluster

    @classmethod
    def linked(
        cls,
        foundation: Foundation,
        folder: Path,
        peers: Mapping[str, str],
        security: Security | None,
        *,
        process: Function | None = None,
        options: EndOptions | None = None,
        store: str | None = None,
        decided: bool = False,
    ) -> Self:
        """Linked over TCP with nodes of other processes; ``peers``: their addresses. None is started yet."""

        def side_of(name: str) -> TcpMesh:
            return TcpMesh(name, peers, listen=peers.get(name), security=security)

        return cls(
            foundation,
            folder,
            side_of,
            process=process,
            options=options,
            store=store,
            decided=decided,
        )

    def start_all(self, names: Sequence[str]) -> None:
        """Start these, or none of them. Raises what ``start`` raises."""
        try:
            for name in names:
                self.start(name)
        except BaseException:
            self.close()
            raise

    @property
    def nodes(self) -> Sequence[str]:
        """Of all, alive or not."""
        return tuple(each.name for each in self.foundation.nodes)

    def start(self, name: str) -> None:
        """Start a node that doesn't run; with what is in its file it goes on."""
        is_known = name in self.nodes or name in self.joining
        if name in self._nodes or not is_known or self._process is None:
            raise MisuseError(
                f"{name} runs already, is none of {', '.join(self.nodes)}, or there is no function to process with"
            )
        keys = keys_of(self._folder, name)
        known = {each.name: each.key for each in self.foundation.nodes}
        if keys.public != known.get(name, keys.public):
            raise ConfigurationError(
                f"{self._folder / name}.key is another key than the one of {name}"
            )
        queue, path = self.foundation.queue, self._folder / f"{name}.guard"
        store = self._open_store(name)
        try:
            stored = store.info(f"rmq/{queue}/{name}/epochs")
            if isinstance(stored, Unavailable):
                raise StoreUnavailable(f"{called(store)} of {name}: {stored.detail or 'no answer'}")
            is_new = not path.exists() and not isinstance(stored, StreamInfo)
            self._guards[name] = FileGuard(path, is_new=is_new)
            if self._has_decided:
                self._decided[name] = self._open_store(name, "-decided")
        except BaseException:
            store.close()
            raise
        self._stores[name] = store
        self._sides[name] = self._side_of(name)
        node = self._nodes[name] = QueueNode(
            name,
            self.foundation,
            self._sides[name],
            store=self._stores[name],
            guard=self._guards[name],
            keys=keys,
            process=self._process,
            options=self._options,
            decided=self._decided.get(name),
        )
        node.start()

    def decided_of(self, name: str) -> SqliteStore | RedisStore:
        """The store of the stream ``decided`` of a node: what this queue has decided, each message once."""
        return self._decided[name]

    def _open_store(self, name: str, what: str = "") -> SqliteStore | RedisStore:
        if self._store is None:
            return SqliteStore(self._folder / f"{name}{what}.db")
        found = open_store(self._store, f"{self.foundation.queue}.{name}{what}")
        if isinstance(found, MemoryStore):
            raise ConfigurationError(
                "a node that forgets its log is another node: give redis:// or nothing"
            )
        return found

    def kill(self, name: str) -> None:
        """End a node as it stands."""
        node = self._nodes.pop(name, None)
        if node is None:
            raise MisuseError(f"{name} doesn't run")
        node.stop(STOP_S)
        self._stores.pop(name).close()
        if name in self._decided:
            self._decided.pop(name).close()
        self._guards.pop(name).close()

    def client(
        self,
        name: str,
        *,
        is_detailed: bool = False,
        journal: str | os.PathLike[str] | None = None,
    ) -> QueueClient:
        """A submitter of this name. It is told where a message was placed and how it ended; with ``is_detailed``,
        which costs more, each step between, too. ``journal`` is a SQLite file in which it keeps what it submits
        until its end is known: a client that is opened with it later has these ``tickets`` and goes on with them.
        """
        if name in self._clients or name in self.nodes:
            raise MisuseError(f"{name!r} is a client or a node already")
        store = SqliteStore(Path(journal)) if journal is not None else None
        if store is not None:
            self._journals.append(store)
        return self._client(name, name, is_detailed=is_detailed, journal=store)

    def watch(self, submitter: str) -> QueueClient:
        """Who hears what ``submitter`` was and is told, wherever that one is; or with an empty name what all are
        told from now on. Any number may watch."""
        return self._client(submitter, f"watch-{os.urandom(8).hex()}", is_watching=True)

    def _client(
        self,
        submitter: str,
        party: str,
        *,
        is_watching: bool = False,
        is_detailed: bool = False,
        journal: Store | None = None,
    ) -> QueueClient:
        if not (NAME.fullmatch(submitter) or (is_watching and not submitter)):
            raise MisuseError(
                f"{submitter!r} is no name: it has 1 to 64 letters, digits, '.', '_', '-'"
            )
        client = self._clients[party] = QueueClient(
            submitter,
            self.foundation,
            self._side_of(party),
            Ed25519Keys(bytes(32)),
            self._options,
            is_watching=is_watching,
            is_detailed=is_detailed,
            journal=journal,
        )
        client.start()
        return client

    def status(self, node: str, message_id: bytes) -> str:
        """What a message has come to, as this node knows it."""
        return str(self._nodes[node].look(lambda node: node.status(message_id)))

    def chain(self, node: str) -> Sequence[Block]:
        """The final blocks that a node knows, in their order."""
        found = self._nodes[node].look(lambda each: tuple(each.blocks()))
        return cast("Sequence[Block]", found)

    def seen(self, node: str) -> NodeSeen:
        """How a node stands. LookupError between two lives of it."""
        side = self._sides.get(node)
        others = [each for each in self._nodes if each != node]
        peers = side.connected() if isinstance(side, TcpMesh) else others
        found = self._nodes[node].look(
            lambda each: NodeSeen(
                voice=each.voice,
                epoch=each.record.number,
                position=each.gauges().get("position", 0),
                undecided=each.gauges().get("undecided", 0),
                height=each.gauges().get("height", 0),
                blamed=tuple(each.blamed()),
                peers=tuple(peers),
                strangers=tuple(each.strangers.items()),
            )
        )
        return cast("NodeSeen", found)

    def failure(self, node: str) -> str:
        """Why a node takes part no more, though it runs; empty while it does."""
        return self._nodes[node].failure()

    def heights(self, node: str) -> Mapping[str, int]:
        """How many entries of each node this one has."""
        found = self._nodes[node].look(lambda each: dict(each.heights()))
        return cast("Mapping[str, int]", found)

    def blamed(self, node: str) -> Sequence[str]:
        """Whom a node has caught signing two things."""
        return cast("Sequence[str]", self._nodes[node].look(lambda each: tuple(each.blamed())))

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Of each node that runs."""
        return {name: node.counters() for name, node in self._nodes.items()}

    def gauges(self) -> Mapping[str, Mapping[str, int]]:
        """Of each node that runs."""
        return {name: node.gauges() for name, node in self._nodes.items()}

    def close(self) -> None:
        """End all clients and nodes. What is placed goes on when the cluster is opened again."""
        for client in self._clients.values():
            client.stop(STOP_S)
        for journal in self._journals:
            journal.close()
        for name in list(self._nodes):
            self.kill(name)
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
