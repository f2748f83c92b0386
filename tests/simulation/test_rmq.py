"""A replicated queue in a world: its nodes and a client are the actors of production, in virtual time.

Frames are lost, repeated, cut off and overtaken; nodes end, stand still or are replaced between any two writes;
stores say nothing, or do what nobody hears of; clocks step. Every message is decided once, and no node contradicts
another or itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from surepipe.actors.clusters import ProcessContext, QueueClient, QueueNode, Ticket
from surepipe.actors.clusters.guard import Guard
from surepipe.actors.host import EndOptions
from surepipe.actors.routes import NamedSides
from surepipe.audit.findings import Violation
from surepipe.core.store_requests import Level
from surepipe.errors import Fenced
from surepipe.queues.rmq.encoding import MemberKeys
from surepipe.queues.rmq.entries import Member
from surepipe.queues.rmq.epochs import Foundation, QueueSettings
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.session import Done, Job
from surepipe.queues.rmq.stored_log import (
    Release,
    Released,
    Withheld,
)
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.actors.stores import ActorPort, LifeStore, SharedStore, SimulatedSide
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.network import Link
from surepipe.simulation.options import MS, SECOND, Options
from surepipe.simulation.promises import Promise
from surepipe.simulation.world import Deployment, World, play, result_of
from tests.queues.rmq.log_network import KeyedHash
from tests.simulation.kit import supervised

CLIENT = "shop-1"
SETTINGS = QueueSettings(slot_timeout_us=300 * MS, slot_timeout_max_us=2 * SECOND, batch_max=4)
LOOK_US, GAP_US = 200 * MS, 300 * MS


class WorldGuard:
    """A guard that outlives the lives of its node."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[int, bytes]] = {}

        self.forgotten = 0

    def last(self, session: bytes, epoch: int = 0) -> tuple[int, bytes] | None:
        if session not in self.known and 0 < epoch <= self.forgotten:
            return None
        return self.known.get(session, (0, b""))

    def forget(self, session: bytes, epoch: int) -> None:
        self.known.pop(session, None)
        self.forgotten = max(self.forgotten, epoch)

    def release(self, request: Release, keys: MemberKeys) -> Released | Withheld:
        height, digest = self.known.get(request.session, (0, b""))
        if request.height < height or (request.height == height and request.digest != digest):
            return Withheld(height, digest)
        self.known[request.session] = request.height, request.digest
        return Released(keys.sign(request.signed))


class ClockRuntime(SimulatedRuntime):
    """With a wall clock that goes on: blocks and expiry have its time."""

    def wall_ms(self) -> int:
        """As its node has it, with the steps of a troubled run."""
        return super().wall_ms() + self.now() // MS


def echo(message: Job, context: ProcessContext) -> Done:
    """Its body."""
    del context
    return Done(message.body)


class QueueDeployment(Deployment):
    """Nodes with a store each, and a client that submits until all of its messages are decided."""

    def __init__(self, n: int) -> None:
        self._names = [f"n{at}" for at in range(1, n + 1)]
        members = tuple(Member(name, KeyedHash(name).public) for name in self._names)
        self._foundation = Foundation("orders", members, SETTINGS)
        self._guards: dict[str, Guard] = {name: WorldGuard() for name in self._names}
        self._stores: dict[str, SharedStore] = {}
        self._links: dict[tuple[str, str], tuple[ActorPort, Link]] = {}
        self._messages = 0
        self._is_over = False
        self._outcomes: dict[int, tuple[str, bytes]] = {}
        self._chains: dict[str, list[tuple[bytes, ...]]] = {}
        self._blamed: set[str] = set()
        self._told: Counter[tuple[str, bytes]] = Counter()

    def begin(self, world: World) -> None:
        """A link for each direction between any two."""
        self._messages = world.options.messages
        parties = [*self._names, CLIENT]
        ports = {(a, b): ActorPort(f"{a}/{b}") for a in parties for b in parties if a != b}
        for (one, other), port in ports.items():
            link = world.network.link(port.name, ports[other, one], "orders")
            ports[other, one].heard = link
            self._links[one, other] = port, link
        for name in self._names:
            self._stores[name] = SharedStore(world.add_store(name, Level.POWER))
            self._add(world, name, self._serve)
        self._add(world, CLIENT, self._submit)

    def _add(self, world: World, name: str, program: Callable[[Life], None]) -> None:
        world.add_node(
            name,
            lambda life: supervised(life, program),
            sends=name == CLIENT,
            receives=name != CLIENT,
        )

    def _sides(self, life: Life, name: str) -> NamedSides:
        others = [each for each in (*self._names, CLIENT) if each != name]
        return NamedSides({each: SimulatedSide(life, *self._links[name, each]) for each in others})

    def _serve(self, life: Life) -> None:
        name = life.node.name
        node = QueueNode(
            name,
            self._foundation,
            self._sides(life, name),
            store=LifeStore(self._stores[name], life),
            guard=self._guards[name],
            keys=KeyedHash(name),
            process=echo,
            options=EndOptions(runtime=ClockRuntime(life)),
        )
        node.start()
        while not self._is_over:
            life.sleep(LOOK_US)
            if why := node.failure():
                raise Fenced(why)
        life.sleep(10 * SECOND)
        node.look(lambda machine: self._look_at(name, machine))
        node.stop(1.0)

    def _look_at(self, name: str, node: NodeMachine) -> None:
        self._chains[name] = [tuple(each.id for each in block.verdicts) for block in node.blocks()]
        self._blamed |= set(node.blamed())
        for receipts in node.receipts.by_submitter().values():
            for receipt in receipts:
                if receipt.kind in ("finalized", "duplicate"):
                    self._told[name, receipt.id] += 1

    def _submit(self, life: Life) -> None:
        client = QueueClient(
            CLIENT,
            self._foundation,
            self._sides(life, CLIENT),
            KeyedHash(CLIENT),
            EndOptions(runtime=ClockRuntime(life)),
        )
        client.start()
        tickets: dict[int, Ticket] = {}
        for number in range(self._messages):
            if number not in self._outcomes:
                tickets[number] = client.submit(b"%d" % number, dedupe=b"%d" % number, ttl_s=300.0)
                life.sleep(GAP_US)
        for number, ticket in tickets.items():
            outcome = ticket.result()
            self._outcomes[number] = outcome.kind, outcome.value
        self._is_over = True
        client.stop(1.0)

    def end(self, world: World) -> Sequence[Violation]:
        """What was believed is so, on one chain; nothing is there twice, and nobody is blamed."""
        at = len(world.rows) - 1
        if world.limit:
            return [Violation("rmq", "rest", at, f"it never came to rest: {world.limit}")]
        found: list[str] = []
        longest = max(self._chains.values(), key=len) if self._chains else []
        for name, chain in self._chains.items():
            if chain != longest[: len(chain)]:
                found.append(f"{name} has another chain")
        ids = [each for block in longest for each in block]
        if len(set(ids)) < len(ids):
            found.append("a message was decided twice")
        for number in range(self._messages):
            kind, value = self._outcomes.get(number, ("", b""))
            if kind not in ("finalized", "duplicate") or value != b"%d" % number:
                found.append(f"message {number} came to {kind} {value!r}")
        if self._blamed:
            found.append(f"{sorted(self._blamed)} are blamed, and nobody lies")
        if any(times > 1 for times in self._told.values()):
            found.append("an ending was told twice")
        if len(self._chains) < len(self._names) or any(
            len(chain) < len(longest) for chain in self._chains.values()
        ):
            found.append("a node was left behind")
        return [Violation("rmq", "queue", at, text) for text in found]


class QueueSubject:
    """What is simulated."""

    name = "rmq"
    promise = Promise(confirms=False, stores=frozenset({"stream"}))

    def __init__(self, n: int) -> None:
        self._n = n

    def facts(self) -> dict[str, object]:
        """Nothing beyond what is told of every run."""
        return {}

    def deployment(self) -> Deployment:
        """Made anew for each run."""
        return QueueDeployment(self._n)


CALM = Options(messages=12, delay_us=2 * MS, store_us=MS, events_max=400_000)
TROUBLED = replace(
    CALM,
    chaos_us=4 * SECOND,
    loss_ppm=100_000,
    copy_ppm=100_000,
    copy_delay_us=50 * MS,
    jitter_us=20 * MS,
    order="any",
    cuts=2,
    cut_us=SECOND,
    sender_crashes=1,
    receiver_crashes=2,
    receiver_zombies=1,
    restart_us=SECOND,
    crash_within=400,
    pauses=1,
    pause_us=500 * MS,
    store_slow_ppm=50_000,
    store_slow_us=50 * MS,
    store_unknown_ppm=30_000,
    store_lost_ppm=30_000,
    wall_steps=2,
    wall_step_us=SECOND,
)


def run(seed: int, options: Options, n: int = 4) -> tuple[str, Sequence[Violation]]:
    """The digest of a run, and what its deployment found."""
    chosen = replace(options, seed=seed)
    world = play(QueueSubject(n), chosen, SeededChooser(chosen))
    return result_of(world, None).digest, list(world.found)


def test_nothing_is_found_where_nothing_goes_wrong() -> None:
    """The world, the nodes and the client do come to their end."""
    assert run(0, CALM)[1] == []


@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_decided_once_whatever_befalls_its_nodes(seed: int) -> None:
    """rmq RQ-29, RQ-40, CC-15, RT-16: four nodes; crashes, zombies, pauses, cuts, loss, silent stores, clocks."""
    assert run(seed, TROUBLED)[1] == []


def test_seven_nodes_decide_once() -> None:
    """rmq RQ-29: the same troubles."""
    assert run(1, TROUBLED, 7)[1] == []


def test_a_seed_is_one_run() -> None:
    """The same rows each time."""
    assert run(3, TROUBLED)[0] == run(3, TROUBLED)[0]
