"""Members of a log on a fake wire, in virtual time, and a plain model of what must hold between them.

Machines, stores and their outcomes are real ones; the wire loses, repeats, delays and parts. Keys are keyed hashes
that only this module holds: nobody forges them, and they cost nothing.
"""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol

from surepipe.core.effects import Addressed, Call, Effect, Notice, NoticeKind, Transmit, WakeAt
from surepipe.core.store_requests import StoreRequest, Unavailable
from surepipe.queues.rmq.catchain import (
    LogMachine,
    LogOptions,
    Voice,
)
from surepipe.queues.rmq.encoding import decode, quorum
from surepipe.queues.rmq.entries import LogEntry, Member
from surepipe.queues.rmq.stored_log import (
    Release,
    Released,
    StoredLog,
    Withheld,
    open_log,
)
from surepipe.storage import MemoryStore

MS = 1_000
SECOND = 1_000_000
SESSION = bytes(31) + b"\1"


class KeyedHash:
    """A signature that only who has the secret can make, and everybody here can check."""

    def __init__(self, name: str) -> None:
        self.public = name.encode().ljust(32, b"\0")

    def sign(self, data: bytes) -> bytes:
        return _sealed(self.public, data)

    def verify(self, key: bytes, signature: bytes, data: bytes) -> bool:
        return hmac.compare_digest(signature, _sealed(key, data))


def _sealed(key: bytes, data: bytes) -> bytes:
    return hmac.digest(b"only the world knows" + key, data, "sha512")


class Guard:
    """The last signed entry of each session, which outlives the lives of its node."""

    def __init__(self) -> None:
        self.last: dict[bytes, tuple[int, bytes]] = {}
        self.forgotten = 0

    def release(self, request: Release, keys: KeyedHash) -> Released | Withheld:
        """Sign, unless another entry was signed there or above."""
        height, digest = self.last.get(request.session, (0, b""))
        if request.height < height or (request.height == height and request.digest != digest):
            return Withheld(height, digest)
        self.last[request.session] = request.height, request.digest
        return Released(keys.sign(request.signed))


class Party(Protocol):
    """Who sends and gets frames."""

    name: str
    address: str

    def step(self, act: Callable[[Any], list[Effect]], /) -> None: ...


def require_rung(machine: object, rings_at: int | None) -> None:
    """After a deadline: one that the machine still waits for has been set. It hides all behind it, for ever, when
    it stays in the past."""
    armed = getattr(machine, "_armed", None)
    assert armed == rings_at, (
        f"{type(machine).__name__} waits for {armed}, and is woken at {rings_at}"
    )


class Node:
    """One machine at an address of the wire, with what outlives it."""

    def __init__(self, net: Network, name: str, address: str) -> None:
        self.net, self.name, self.address = net, name, address
        self.store = MemoryStore()
        self.guard: Guard | None = Guard()
        self.machine: LogMachine | None = None
        self.life = 0
        self.deadline: int | None = None
        self.notices: list[Notice] = []
        self.sent_own: dict[int, set[bytes]] = {}
        """Every own entry that ever left, over all lives."""
        self.logs: list[list[LogEntry]] = []
        """What each life delivered, in its order."""
        self.said = 0

    def start(self) -> None:
        """A new life, from what is in store and guard."""
        self.life += 1
        stored = open_log(self.store, f"{self.address}/log", self.name, self.life)
        self.machine = self.log_over(stored)
        self.logs.append([])
        self.begin()

    def begin(self) -> None:
        """The first step of a life."""
        self.step(lambda machine: machine.wake(self.net.now))

    def log_over(self, stored: StoredLog) -> LogMachine:
        """The log machine of a life."""
        guard = self.guard
        return LogMachine(
            SESSION,
            self.name,
            self.net.members,
            quorum=1 if self.name in self.net.twins else self.net.quorum,  # a liar asks nobody
            keys=KeyedHash(self.name),
            rng=Random(self.net.rng.getrandbits(32)),
            stored=stored,
            guarded=guard.last.get(SESSION, (0, b"")) if guard is not None else None,
            options=self.net.options,
        )

    @property
    def hosted(self) -> object:
        """What is told the time here."""
        return self.machine

    def start_if_down(self) -> None:
        if self.machine is None:
            self.start()

    def crash(self) -> None:
        """Everything in memory is gone."""
        self.machine = None
        self.deadline = None

    def step(self, act: Callable[[LogMachine], list[Effect]]) -> None:
        """Take one event, and perform its effects in order."""
        machine = self.machine
        if machine is None:
            return
        effects = act(machine)
        self.logs[-1] += machine.take_delivered()
        for effect in effects:
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Transmit(Addressed(peer, bytes() as data)):
                self.net.send(self, peer, data)
            case Call(ticket, request):
                life = self.life
                self.net.after(self.net.store_delay(), lambda: self._ask(ticket, request, life))
            case WakeAt(deadline):
                self.deadline = deadline
                if deadline is not None:
                    self.net.at(max(deadline, self.net.now), lambda: self._wake(deadline))
            case Notice():
                self.notices.append(effect)
            case _:
                raise AssertionError(effect)

    def _wake(self, deadline: int) -> None:
        if self.deadline == deadline:
            self.deadline = None
            self.step(lambda machine: machine.wake(self.net.now))
            require_rung(self.hosted, self.deadline)

    def _ask(self, ticket: int, request: object, life: int) -> None:
        if self.life != life or self.machine is None:
            return  # what a dead process had not asked yet is not done
        if self.net.rng.random() < self.net.silence:
            self._answer(ticket, Unavailable(), life)
            return
        if isinstance(request, Release):
            assert self.guard is not None
            outcome: object = self.guard.release(request, KeyedHash(self.name))
        elif not isinstance(request, StoreRequest):
            outcome = self.other(request)
        else:
            outcome = self.store.ask(request)
            if self.net.rng.random() < self.net.silence:
                outcome = Unavailable()  # done, and nobody hears of it
        self.net.after(0, lambda: self._answer(ticket, outcome, life))

    def other(self, request: object) -> object:
        """The outcome of a request that is neither for the store nor for the guard."""
        raise AssertionError(request)

    def _answer(self, ticket: int, outcome: object, life: int) -> None:
        if self.life == life:
            self.step(lambda machine: machine.answer(ticket, outcome, self.net.now))

    def say(self, text: str, *, is_urgent: bool = False, kind: str = "say") -> bool:
        """Append a record of this text."""
        said = False

        def act(machine: LogMachine) -> list[Effect]:
            nonlocal said
            said = machine.append((kind, text), self.net.now, is_urgent=is_urgent)
            return machine.wake(self.net.now)

        self.step(act)
        return said

    def told(self, kind: NoticeKind) -> list[Notice]:
        return [each for each in self.notices if each.kind is kind]


class Network:
    """Nodes, the wire between them, and one clock."""

    make_node: type[Node] = Node

    def __init__(
        self, n: int, seed: int, *, twins: Sequence[str] = (), options: LogOptions | None = None
    ) -> None:
        self.rng = Random(seed)
        self.now = 0
        self.options = options or LogOptions()
        self.names = [f"n{number}" for number in range(1, n + 1)]
        self.members = [Member(name, KeyedHash(name).public) for name in self.names]
        self.quorum = quorum(n).size
        self.loss = self.repeats = self.silence = 0.0
        self.delay = 1 * MS, 30 * MS
        self.groups: list[set[str]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = count()
        self.twins = tuple(twins)
        self.nodes = [self.make_node(self, name, name) for name in self.names]
        self.nodes += [self.make_node(self, name, f"{name}'") for name in twins]
        """The second machine of a twin comes last."""
        self.sides: dict[tuple[str, str], int] = {}
        self.is_quiet = False
        """Whether only heads were sent since it was set."""

    # Time.

    def at(self, when: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), act))

    def after(self, delay: int, act: Callable[[], None]) -> None:
        self.at(self.now + delay, act)

    def run(self, for_us: int, check: Callable[[], None] | None = None) -> None:
        """Let this much time pass."""
        end = self.now + for_us
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
            if check:
                check()
        self.now = end

    # The wire.

    def store_delay(self) -> int:
        return self.rng.randint(0, 5 * MS)

    def others(self) -> Sequence[Party]:
        """Who is on the wire beside the nodes."""
        return ()

    def send(self, node: Party, peer: str, data: bytes) -> None:
        """Carry a frame, or lose it."""
        if b"s\0\0\0\5heads" not in data[:16]:
            self.is_quiet = False
        if isinstance(node, Node):
            self._note_own(node, data)
        for target in [each for each in (*self.nodes, *self.others()) if each.name == peer]:
            if not self.meets(node, target) or self.rng.random() < self.loss:
                continue
            times = 2 if self.rng.random() < self.repeats else 1
            for _ in range(times):
                delay = self.rng.randint(*self.delay)
                self.after(delay, lambda target=target: self._arrive(node, target, data))  # type: ignore[misc]

    def meets(self, one: Party, other: Party) -> bool:
        if one.name == other.name:
            return False
        for node, peer in ((one, other), (other, one)):
            if node.name in self.twins and self._side(node.name, peer.name) != (
                node.address == node.name
            ):
                return False
        if not self.groups or not {one.name, other.name} <= set(self.names):
            return True
        return any({one.name, other.name} <= group for group in self.groups)

    def _side(self, twin: str, peer: str) -> bool:
        """Which machine of a twin a peer sees."""
        key = twin, peer
        if key not in self.sides:
            self.sides[key] = self.rng.getrandbits(1)
        return bool(self.sides[key])

    def redraw(self) -> None:
        """Let each peer of a twin see another of its machines, perhaps."""
        self.sides.clear()

    def _arrive(self, node: Party, target: Party, data: bytes) -> None:
        target.step(lambda machine: machine.frame(Addressed(node.name, data), self.now))

    def _note_own(self, node: Node, data: bytes) -> None:
        match decode(data):
            case ("entries", bytes(), tuple() as items):
                for item in items:
                    assert isinstance(item, bytes)
                    entry = LogEntry.decode(item)
                    if entry.author == node.name:
                        node.sent_own.setdefault(entry.height, set()).add(entry.digest)
            case _:
                pass

    # Looking.

    @property
    def correct(self) -> list[Node]:
        return [each for each in self.nodes if each.name not in self.twins]

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def machines(self) -> dict[str, LogMachine]:
        return {each.name: each.machine for each in self.correct if each.machine is not None}


# The model.


def check_always(net: Network) -> None:
    """What holds after every step, of all correct nodes, computed without vectors."""
    correct = {each.name for each in net.correct}
    at: dict[tuple[str, int], set[bytes]] = {}
    for node in net.correct:
        assert all(len(each) == 1 for each in node.sent_own.values()), f"CL-5: {node.name} forked"
        if node.machine is None:
            continue
        log, machine = node.logs[-1], node.machine
        assert not correct & set(machine.blamed), "CL-1: a correct node is blamed"
        seen: dict[bytes, LogEntry] = {}
        past: dict[bytes, set[bytes]] = {}
        own_blamed: set[str] = set()
        for entry in log:
            assert entry.digest not in seen, "delivered twice"
            assert all(each in seen for each in entry.references), "CL-2: before what it cites"
            if entry.height > 1:
                before = seen[entry.previous]
                assert (before.author, before.height) == (entry.author, entry.height - 1), "CL-3"
            seen[entry.digest] = entry
            past[entry.digest] = {entry.digest}.union(*(past[each] for each in entry.references))
            if entry.author not in machine.blamed:
                at.setdefault((entry.author, entry.height), set()).add(entry.digest)
            if entry.author == node.name:
                assert not {each.author for each in entry.cites} & own_blamed, "CL-4"
                own_blamed |= {str(item[1]) for item in entry.items if item[0] == "fork"}
        for each, closure in past.items():
            vector = dict.fromkeys(net.names, 0)
            for one in closure:
                vector[seen[one].author] = max(vector[seen[one].author], seen[one].height)
            assert machine.causality.vector(each) == vector, "CL-6"
            for one, entry in seen.items():
                if entry.author not in machine.blamed:
                    assert machine.causality.is_past(one, each) == (one in closure), "CL-7"
        gauges = machine.gauges()
        assert gauges["waiting_bytes"] <= net.options.waiting_bytes_max, "CL-10"
        assert gauges["waiting"] <= net.options.waiting_max * len(net.names), "CL-10"
    for (author, height), digests in at.items():
        if author in correct:
            assert len(digests) == 1, f"CL-1: {author} at {height}"


def check_end(net: Network) -> None:
    """What holds when all correct nodes were connected for long enough (CL-8)."""
    machines = net.machines()
    assert len({frozenset(each.blamed) for each in machines.values()}) == 1, "CL-8: blamed sets"
    sets = set[frozenset[bytes]]()
    for name, machine in machines.items():
        out = set(machine.blamed) | machine.stopped
        log = next(each for each in net.correct if each.name == name).logs[-1]
        sets.add(frozenset(each.digest for each in log if each.author not in out))
    assert len(sets) == 1, "CL-8: delivered sets"


def check_proofs(net: Network) -> None:
    """Every proof convinces a third party."""
    for machine in net.machines().values():
        for name, proof in machine.blamed.items():
            key = KeyedHash(name)
            assert proof.author == name
            assert proof.holds(SESSION, key.public, key)


def speaking(net: Network) -> list[str]:
    """Who writes."""
    return [n for n, machine in net.machines().items() if machine.voice is Voice.SPEAKING]
