"""Nodes of a replicated queue through many epochs, on the fake wire of ``log_network``, and what must hold.

What was ever final anywhere is noted while it is there, as sessions are forgotten: so what must hold is looked at
over all sessions of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from surepipe.actors.clusters.decided import DecidedStream
from surepipe.core.effects import Effect
from surepipe.core.store_requests import StoreRequest, Unavailable
from surepipe.queues.rmq.catchain import LogOptions
from surepipe.queues.rmq.chain import DONE, Block
from surepipe.queues.rmq.client import ClientMachine, Submitted
from surepipe.queues.rmq.encoding import MessageHeader
from surepipe.queues.rmq.entries import Member
from surepipe.queues.rmq.epochs import EpochRecord, Foundation, Operation, QueueSettings, plan_body
from surepipe.queues.rmq.feed import AppendDecided, OpenFeed
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.session import Done, Job, JobOutcomes, Outcome, ProcessJobs, SessionMachine
from surepipe.queues.rmq.stored_log import (
    CloseLog,
    OpenLog,
    Release,
    Withheld,
    open_log,
    served_log,
)
from surepipe.storage import MemoryStore
from tests.queues.rmq.log_network import MS, Guard, KeyedHash, Network, Node, require_rung
from tests.queues.rmq.wire_client import WireClient

WALL_MS = 1_700_000_000_000
ADMIN = KeyedHash("admin")
Function = Callable[[Job, "EpochNode"], Outcome]


def echo(job: Job, node: EpochNode) -> Outcome:
    """Every message is done, and its result is its body."""
    del node
    return Done(job.body)


class LastingGuard(Guard):
    """A guard that forgets sessions as a node does."""

    def __init__(self) -> None:
        super().__init__()
        self.signed = self.last

    def of(self, session: bytes, epoch: int) -> tuple[int, bytes] | None:
        if session not in self.signed and 0 < epoch <= self.forgotten:
            return None
        return self.signed.get(session, (0, b""))

    def forget(self, session: bytes, epoch: int) -> None:
        self.signed.pop(session, None)
        self.forgotten = max(self.forgotten, epoch)


class _GuardPort:
    def __init__(self, guard: LastingGuard) -> None:
        self._guard = guard

    def last(self, session: bytes, epoch: int = 0) -> tuple[int, bytes] | None:
        return self._guard.of(session, epoch)

    def forget(self, session: bytes, epoch: int) -> None:
        self._guard.forget(session, epoch)


class EpochNode(Node):
    """A ``NodeMachine`` at an address of the wire."""

    net: EpochNetwork
    node: NodeMachine | None = None
    life: int
    clock_ms = 0
    """How far its wall clock is off."""

    def __init__(self, net: EpochNetwork, name: str, address: str) -> None:
        super().__init__(net, name, address)
        self.memory: LastingGuard = LastingGuard()
        self.decided_store = MemoryStore()
        self.decided = DecidedStream(self.decided_store)

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.net.now // MS + self.clock_ms

    def start(self) -> None:
        self.life += 1
        self.node = NodeMachine(
            self.net.foundation,
            self.name,
            keys=KeyedHash(self.name),
            rng=Random(self.net.rng.getrandbits(32)),
            life=self.life,
            place=f"rmq/orders/{self.address}",
            options=self.net.options,
            has_feed=self.net.has_feeds,
        )
        self.tell(lambda node: node.wake(self.net.now, self.wall_ms))

    def start_if_down(self) -> None:
        if self.node is None:
            self.start()

    def crash(self) -> None:
        self.node, self.deadline = None, None

    def tell(self, act: Callable[[NodeMachine], list[Effect]]) -> None:
        """Take one event, and perform its effects in order."""
        if self.node is not None:
            effects = act(self.node)
            self.net.note(self)
            for effect in effects:
                self.perform(effect)

    def step(self, act: Callable[..., list[Effect]]) -> None:
        """A frame, as the wire gives it to any party."""
        self.tell(lambda node: act(_Walled(node, self)))

    def _wake(self, deadline: int) -> None:
        if self.deadline == deadline:
            self.deadline = None
            self.tell(lambda node: node.wake(self.net.now, self.wall_ms))
            require_rung(self.node, self.deadline)

    def _ask(self, ticket: int, request: object, life: int) -> None:
        if self.life != life or self.node is None:
            return
        outcome: object = Unavailable()
        if self.net.rng.random() >= self.net.silence:
            outcome = self.outcome_of(request)
            if self.net.rng.random() < self.net.silence and not isinstance(request, ProcessJobs):
                outcome = Unavailable()  # done, and nobody hears of it
        self.net.after(0, lambda: self._answer(ticket, outcome, life))

    def outcome_of(self, request: object) -> object:
        if isinstance(request, Release):
            known = self.memory.of(request.session, 0)
            return (
                Withheld(0, b"")
                if known is None
                else self.memory.release(request, KeyedHash(self.name))
            )
        if isinstance(request, OpenLog | CloseLog):
            return served_log(self.store, _GuardPort(self.memory), request)
        if isinstance(request, OpenFeed | AppendDecided):
            return self.decided.call(request)
        if isinstance(request, ProcessJobs):
            return JobOutcomes(tuple(self.net.function(job, self) for job in request.jobs))
        assert isinstance(request, StoreRequest)
        return self.store.ask(request)

    def _answer(self, ticket: int, outcome: object, life: int) -> None:
        if self.life == life:
            self.tell(lambda node: node.answer(ticket, outcome, self.net.now, self.wall_ms))


class _Walled:
    """A node as a machine that is told the wall time with each step."""

    def __init__(self, node: NodeMachine, host: EpochNode) -> None:
        self._node, self._host = node, host

    def frame(self, frame: object, now: int) -> list[Effect]:
        return self._node.frame(frame, now, self._host.wall_ms)


class Client(WireClient):
    """A submitter on the wire."""

    net: EpochNetwork

    def __init__(self, net: EpochNetwork, name: str) -> None:
        super().__init__(net, name)
        self.store = MemoryStore()
        self.life = 0
        self.ended: dict[bytes, Submitted] = {}
        """Tickets of former lives that saw their end."""
        self.machine = self._begun()
        self.step(lambda machine: machine.wake(net.now))

    def _begun(self) -> ClientMachine:
        self.life += 1
        return ClientMachine(
            self.name,
            self.net.foundation,
            keys=KeyedHash(self.name),
            rng=Random(self.net.rng.getrandbits(32)),
            resend_us=500 * MS,
            journal=open_log(self.store, "journal", self.name, self.life),
        )

    def restart(self) -> None:
        """End as it stands, and begin again with the journal."""
        self.ended |= {key: each for key, each in self.machine.tickets.items() if each.outcome}
        self.machine, self._deadline = self._begun(), None
        self.step(lambda machine: machine.wake(self.net.now))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.net.now // MS

    def submit(
        self, body: bytes, *, key: bytes | None = None, dedupe: bytes = b"", ttl_ms: int = 3_000
    ) -> Submitted:
        ticket, effects = self.machine.submit(
            body,
            key=body if key is None else key,
            dedupe=dedupe,
            ttl_ms=ttl_ms,
            now=self.net.now,
            wall_ms=self.wall_ms,
        )
        self._perform(effects)
        self.net.submitted[ticket.id] = ticket.header
        return ticket

    def plan(self, *operations: Operation, by: KeyedHash = ADMIN) -> Submitted:
        """Submit a plan, signed by an admin."""

        def body(header: MessageHeader) -> bytes:
            return plan_body(header, operations, by)

        ticket, effects = self.machine.submit_plan(
            body,
            ttl_ms=self.net.foundation.settings.ttl_max_ms,
            now=self.net.now,
            wall_ms=self.wall_ms,
        )
        self._perform(effects)
        self.net.submitted[ticket.id] = ticket.header
        return ticket

    def _call(self, ticket: int, request: object) -> None:
        of = self.life
        self.net.after(self.net.store_delay(), lambda: self._ask(ticket, request, of))

    def _ask(self, ticket: int, request: object, life: int) -> None:
        if life != self.life:
            return  # what a dead process had not asked yet is not done
        assert isinstance(request, StoreRequest)
        outcome: object = Unavailable()
        if self.net.rng.random() >= self.net.silence:
            outcome = self.store.ask(request)
            if self.net.rng.random() < self.net.silence:
                outcome = Unavailable()
        self.step(lambda machine: machine.answer(ticket, outcome, self.net.now))


class EpochNetwork(Network):
    """A network of such nodes. ``spares`` are nodes that the foundation doesn't know."""

    make_node = EpochNode

    def __init__(
        self,
        n: int,
        seed: int,
        *,
        spares: int = 0,
        twins: tuple[str, ...] = (),
        partitions: tuple[tuple[str, ...], ...] = (),
        settings: QueueSettings,
        options: LogOptions | None = None,
        function: Function = echo,
        faults: str = "byzantine",
        has_feeds: bool = False,
    ) -> None:
        self.function, self.has_feeds = function, has_feeds
        self.clients: list[Client] = []
        super().__init__(n + spares, seed, twins=twins, options=options)
        members = tuple(Member(name, KeyedHash(name).public) for name in self.names[:n])
        self.foundation = Foundation(
            "orders", members, settings, faults, (ADMIN.public,), partitions
        )
        self.submitted: dict[bytes, MessageHeader] = {}
        # What was ever so.
        self.records: dict[int, EpochRecord] = {}
        self.finals: dict[bytes, list[Block]] = {}
        """The longest final chain of each session, as any correct node knew it."""
        self.epoch_of: dict[bytes, int] = {}
        self.verdicts: dict[bytes, tuple[bytes, str]] = {}
        self.done: dict[bytes, list[tuple[int, bytes]]] = {}
        self._seen: dict[tuple[str, bytes], int] = {}
        self.endings: dict[bytes, str] = {}
        self._looked: dict[str, tuple[int, int, int]] = {}
        self._told_upto: dict[tuple[str, str], int] = {}

    def client(self, name: str) -> Client:
        found = Client(self, name)
        self.clients.append(found)
        return found

    def others(self) -> list[Client]:
        return self.clients

    @property
    def epoch_nodes(self) -> list[EpochNode]:
        return [each for each in self.correct if isinstance(each, EpochNode)]

    def all_nodes(self) -> Mapping[str, NodeMachine]:
        return {each.name: each.node for each in self.epoch_nodes if each.node is not None}

    # What must hold after every step.

    def note(self, host: EpochNode) -> None:
        """Look at what this node holds final now, and compare it with all that ever was."""
        if host.name in self.twins or host.node is None:
            return
        for session in host.node.sessions():
            self._note_chain(host, session)
            assert session.epoch > host.memory.forgotten, "the guard forgot an epoch that is open"
        looked = host.life, host.node.record.number, host.node.receipts.added
        if self._looked.get(host.address) != looked:
            self._looked[host.address] = looked
            self._note_records(host.node)
            self._note_receipts(host)

    def _note_chain(self, host: EpochNode, session: SessionMachine) -> None:
        assert not session.chain.is_broken, "two final chains"
        key = host.address, session.log.session
        known = self.finals.setdefault(session.log.session, [])
        self.epoch_of[session.log.session] = session.epoch
        begin = self._seen.get(key, 0)
        for at in range(begin, len(session.chain.final)):
            block = session.chain.blocks[session.chain.final[at]]
            if at < len(known):
                assert block.digest == known[at].digest, f"{host.name} has another block {at + 1}"
            else:
                self._note_block(session, known, block)
        self._seen[key] = len(session.chain.final)

    def _note_block(self, session: SessionMachine, known: list[Block], block: Block) -> None:
        seals = [each for each in known if each.record]
        assert not seals or not (block.verdicts or block.record), "a block behind the seal"
        known.append(block)
        for verdict in block.verdicts:
            assert verdict.id not in self.verdicts, "collated twice"
            self.verdicts[verdict.id] = session.log.session, verdict.kind
            header = self.submitted.get(verdict.id)
            if header is None or verdict.kind != DONE:
                continue
            assert header.epoch in (session.epoch, session.epoch - 1), "RQ-12"
            assert header.expires_ms >= block.time_ms, "RQ-36: processed after it had expired"
            times = self.done.setdefault(header.uid, [])
            window = session.settings.dedupe_epochs
            again = [each for each, _ in times if abs(each - session.epoch) < window]
            assert not again, "the same work done twice"
            times.append((session.epoch, verdict.id))

    def _note_records(self, node: NodeMachine) -> None:
        assert not node.epochs.is_broken, "two records of one number"
        for number, found in node.epochs.known.items():
            before = self.records.setdefault(number, found)
            assert before.digest == found.digest, "two records of one number"
            assert found.partitions[0].lo == bytes(8)
            assert found.partitions[-1].hi == b"\xff" * 8
            if number > 2 and number - 1 in self.records:
                least = self.records[number - 1]
                assert found.start_ms >= least.start_ms + least.settings.epoch_length_ms, (
                    "an epoch was too short"
                )

    def _note_receipts(self, host: EpochNode) -> None:
        assert host.node is not None
        for submitter, receipts in host.node.receipts.by_submitter().items():
            upto = self._told_upto.get((host.name, submitter), 0)
            for receipt in reversed(receipts):
                if receipt.number <= upto:
                    break
                if receipt.kind in ("finalized", "refused", "duplicate", "expired"):
                    kind = self.endings.setdefault(receipt.id, receipt.kind)
                    assert kind == receipt.kind, f"{kind}, and at {host.name} {receipt.kind}"
            if receipts:
                numbers = [each.number for each in receipts]
                assert numbers == sorted(set(numbers)), "numbers of receipts"
                self._told_upto[host.name, submitter] = max(upto, numbers[-1])

    def check_clients(self) -> None:
        """what clients believe is what was decided."""
        for client in self.clients:
            for ticket in client.machine.tickets.values():
                outcome = ticket.outcome
                if outcome is None:
                    continue
                _, kind = self.verdicts.get(ticket.id, (b"", ""))
                told = {"done": "finalized", "refused": "refused"}.get(kind)
                kinds = (told,) if told else ("duplicate", "expired")
                assert outcome.kind in kinds, "a client believes what is not so"
