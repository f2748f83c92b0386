"""The nodes and clients of a replicated queue that run in this process: started, killed, looked at, closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from surepipe.actors.clusters.client import QueueClient
from surepipe.actors.clusters.guard import FileGuard, keys_of
from surepipe.actors.clusters.links import Hub, TcpMesh
from surepipe.actors.clusters.node import QueueNode
from surepipe.actors.clusters.worker import Function, checked_function
from surepipe.actors.host import EndOptions
from surepipe.actors.links.security import Security
from surepipe.actors.routes import RouteSide
from surepipe.core.records import record
from surepipe.core.store_requests import (
    Store,
    StreamInfo,
    Unavailable,
    called,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable
from surepipe.queues.rmq.catchain import Voice
from surepipe.queues.rmq.chain import Block
from surepipe.queues.rmq.encoding import (
    NAME,
    Ed25519Keys,
)
from surepipe.queues.rmq.entries import Member
from surepipe.queues.rmq.epochs import (
    Foundation,
    QueueSettings,
)
from surepipe.queues.rmq.node import NodeMachine
from surepipe.storage import MemoryStore, SqliteStore, open_store

if TYPE_CHECKING:
    from surepipe.storage import RedisStore

STOP_S = 5.0


@record
class NodeSeen:
    """How a node stands."""

    voice: Voice
    is_reading: bool
    """Whether it still reads what it knew before: then it knows nothing of what follows but its peers."""
    epoch: int
    position: int
    """How many final blocks of this epoch and the one before it has."""
    undecided: int
    height: int
    blamed: tuple[str, ...]
    peers: tuple[str, ...]
    """Those that it is connected with."""
    strangers: tuple[tuple[str, str], ...]
    """Those whose file is another one, and how it differs."""
    nodes: tuple[str, ...]
    """All of its epoch, this one too."""
    group: tuple[str, ...]
    """Those that decide with it, this one too; those of the first part of the keys when it decides nothing."""
    quorum: int
    """So many of the group are needed."""


def _seen(node: NodeMachine, peers: tuple[str, ...]) -> NodeSeen:
    """In its actor."""
    gauges, found = node.gauges(), node.record
    parts = [each for each in found.partitions if node.name in each.members]
    part = parts[0] if parts else found.lead
    return NodeSeen(
        voice=node.voice,
        is_reading=not node.has_recalled,
        epoch=found.number,
        position=gauges.get("position", 0),
        undecided=gauges.get("undecided", 0),
        height=gauges.get("height", 0),
        blamed=tuple(node.blamed()),
        peers=peers,
        strangers=tuple(node.strangers.items()),
        nodes=tuple(each.name for each in found.nodes),
        group=part.members,
        quorum=found.quorum(part.lo).size,
    )


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
        self._is_closed = False

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
        """Start a node that doesn't run; with what is in its file it goes on. When that fails it doesn't run."""
        self._require_open()
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
        try:
            self._begin(name, keys, self._process)
        except BaseException:
            self._end(name)
            raise

    def _begin(self, name: str, keys: Ed25519Keys, process: Function) -> None:
        queue, path = self.foundation.queue, self._folder / f"{name}.guard"
        store = self._stores[name] = self._open_store(name)
        stored = store.info(f"rmq/{queue}/{name}/epochs")
        if isinstance(stored, Unavailable):
            raise StoreUnavailable(f"{called(store)} of {name}: {stored.detail or 'no answer'}")
        is_new = not path.exists() and not isinstance(stored, StreamInfo)
        self._guards[name] = FileGuard(path, is_new=is_new)
        if self._has_decided:
            self._decided[name] = self._open_store(name, "-decided")
        self._sides[name] = self._side_of(name)
        node = self._nodes[name] = QueueNode(
            name,
            self.foundation,
            self._sides[name],
            store=store,
            guard=self._guards[name],
            keys=keys,
            process=process,
            options=self._options,
            decided=self._decided.get(name),
        )
        node.start()

    def _require_open(self) -> None:
        if self._is_closed:
            raise MisuseError(
                f"this cluster of {self.foundation.queue} is closed: open another one"
            )

    def _running(self, name: str) -> QueueNode:
        """Raises LookupError."""
        if name not in self._nodes:
            here = ", ".join(self._nodes) or "no node"
            raise LookupError(f"{name} doesn't run here: {here} does")
        return self._nodes[name]

    def decided_of(self, name: str) -> SqliteStore | RedisStore:
        """The store of the stream ``decided`` of a node: what this queue has decided, each message once.
        LookupError when it doesn't run here, and MisuseError when this cluster keeps no such streams."""
        self._running(name)
        if not self._has_decided:
            raise MisuseError(
                f"{name} keeps no stream of what is decided: open it with decided=True"
            )
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
        if name not in self._nodes:
            raise MisuseError(f"{name} doesn't run")
        self._end(name)

    def _end(self, name: str) -> None:
        """What there is of a node that runs, or that couldn't be started."""
        if (node := self._nodes.pop(name, None)) is not None:
            node.stop(STOP_S)
        for parts in (self._stores, self._decided, self._guards):
            if (part := parts.pop(name, None)) is not None:
                part.close()

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
        """Hear what ``submitter`` was and is told, wherever it runs; with an empty name, what all are told from
        now on. Any number may watch."""
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
        self._require_open()
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
        """What a message has come to, as this node knows it. Like the questions below it waits while the node
        reads what it knew before; LookupError when that takes too long, and of one that doesn't run here."""
        return str(self._running(node).recall(lambda node: node.status(message_id)))

    def chain(self, node: str) -> Sequence[Block]:
        """The final blocks that a node knows, in their order."""
        found = self._running(node).recall(lambda each: tuple(each.blocks()))
        return cast("Sequence[Block]", found)

    def seen(self, node: str) -> NodeSeen:
        """How a node stands. LookupError between two lives of it, and of one that doesn't run here."""
        running, side = self._running(node), self._sides.get(node)
        others = [each for each in self._nodes if each != node]
        peers = tuple(side.connected() if isinstance(side, TcpMesh) else others)
        return cast("NodeSeen", running.look(lambda each: _seen(each, peers)))

    def failure(self, node: str) -> str:
        """Why a node takes part no more, though it runs; empty while it does."""
        return self._running(node).failure()

    def heights(self, node: str) -> Mapping[str, int]:
        """How many entries of each node this one has."""
        found = self._running(node).recall(lambda each: dict(each.heights()))
        return cast("Mapping[str, int]", found)

    def blamed(self, node: str) -> Sequence[str]:
        """Whom a node has caught signing two things."""
        return cast("Sequence[str]", self._running(node).recall(lambda each: tuple(each.blamed())))

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """Of each node that runs."""
        return {name: node.counters() for name, node in self._nodes.items()}

    def gauges(self) -> Mapping[str, Mapping[str, int]]:
        """Of each node that runs."""
        return {name: node.gauges() for name, node in self._nodes.items()}

    def close(self) -> None:
        """End all clients and nodes. What is placed goes on when it is opened again; who waits for the end
        of a message is told that its client is closed."""
        self._is_closed = True
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
