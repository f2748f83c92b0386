"""Nodes of a replicated queue and its clients on the fake wire of ``log_network``, and what must hold of them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from random import Random

from surepipe.core.effects import Effect
from surepipe.queues.rmq.catchain import LogMachine, LogOptions
from surepipe.queues.rmq.chain import DONE, Block, vote_signed
from surepipe.queues.rmq.client import ClientMachine, Submitted
from surepipe.queues.rmq.epochs import Foundation, QueueSettings
from surepipe.queues.rmq.session import Done, Job, JobOutcomes, Outcome, ProcessJobs, SessionMachine
from tests.queues.rmq.log_network import MS, SESSION, KeyedHash, Network, Node
from tests.queues.rmq.wire_client import WireClient

WALL_MS = 1_700_000_000_000
Function = Callable[[Job, "QueueNode"], Outcome]


def echo(job: Job, node: QueueNode) -> Outcome:
    """Every message is done, and its result is its body."""
    del node
    return Done(job.body)


class QueueNode(Node):
    """A node with a session around its log."""

    net: QueueNetwork
    session: SessionMachine | None = None
    clock_ms = 0
    """How far its wall clock is off."""

    @property
    def hosted(self) -> object:
        """The machine around the log."""
        return self.session

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.net.now // MS + self.clock_ms

    def begin(self) -> None:
        """The session delivers what the log has."""
        assert self.machine is not None
        self.session = SessionMachine(
            self.machine,
            queue="orders",
            epoch=1,
            voters={each.name: each.key for each in self.net.members},
            quorum=self.net.quorum,
            keys=KeyedHash(self.name),
            settings=self.net.settings,
        )
        super().begin()

    def crash(self) -> None:
        super().crash()
        self.session = None

    def step(self, act: Callable[[LogMachine], list[Effect]]) -> None:
        """The same step, of the session."""
        session = self.session
        if session is None:
            return
        for effect in act(_Walled(session, self)):  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - it has the methods that are called
            self.perform(effect)

    def other(self, request: object) -> object:
        """Run the user's function, on what may be processed (rmq RI-12)."""
        assert isinstance(request, ProcessJobs)
        assert len({job.id for job in request.jobs}) == len(request.jobs)
        for job in request.jobs:
            assert job.expires_ms >= request.time_ms, "it had expired"
            assert self.session is not None
            assert job.uid == self.session.messages[job.id].uid
        return JobOutcomes(tuple(self.net.function(job, self) for job in request.jobs))

    def receipts(self) -> list[tuple[str, int, bytes, str]]:
        """What it told, and stored: submitter, number, id, kind."""
        assert self.session is not None
        return [
            (submitter, each.number, each.id, each.kind)
            for submitter, found in self.session.receipts.by_submitter().items()
            for each in found
        ]


class _Walled:
    """A session as a machine that is told the wall time with each step."""

    def __init__(self, session: SessionMachine, node: QueueNode) -> None:
        self._session, self._node = session, node

    def wake(self, now: int) -> list[Effect]:
        return self._session.wake(now, self._node.wall_ms)

    def frame(self, frame: object, now: int) -> list[Effect]:
        return self._session.frame(frame, now, self._node.wall_ms)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        return self._session.answer(ticket, outcome, now, self._node.wall_ms)


class Client(WireClient):
    """A submitter on the wire."""

    net: QueueNetwork

    def __init__(self, net: QueueNetwork, name: str) -> None:
        super().__init__(net, name)
        self.machine = ClientMachine(
            name,
            Foundation("orders", tuple(net.members), net.settings),
            keys=KeyedHash(name),
            rng=Random(net.rng.getrandbits(32)),
            resend_us=500 * MS,
        )

    def submit(
        self, body: bytes, *, key: bytes | None = None, dedupe: bytes = b"", ttl_ms: int = 60_000
    ) -> Submitted:
        ticket, effects = self.machine.submit(
            body,
            key=body[:64] if key is None else key,
            dedupe=dedupe,
            ttl_ms=ttl_ms,
            now=self.net.now,
            wall_ms=WALL_MS + self.net.now // MS,
        )
        self._perform(effects)
        return ticket


class QueueNetwork(Network):
    """A network of such nodes."""

    make_node = QueueNode

    def __init__(
        self,
        n: int,
        seed: int,
        *,
        twins: tuple[str, ...] = (),
        options: LogOptions | None = None,
        settings: QueueSettings | None = None,
        function: Function = echo,
    ) -> None:
        self.settings = settings or QueueSettings()
        self.function = function
        self.clients: list[Client] = []
        super().__init__(n, seed, twins=twins, options=options)

    def client(self, name: str) -> Client:
        found = Client(self, name)
        self.clients.append(found)
        return found

    def others(self) -> list[Client]:
        return self.clients

    @property
    def queue_nodes(self) -> list[QueueNode]:
        return [each for each in self.correct if isinstance(each, QueueNode)]

    def sessions(self) -> dict[str, SessionMachine]:
        return {each.name: each.session for each in self.queue_nodes if each.session is not None}

    def final(self) -> list[Block]:
        """The longest final chain of a correct node."""
        chains = [
            [session.chain.blocks[each] for each in session.chain.final]
            for session in self.sessions().values()
        ]
        return max(chains, key=len) if chains else []


def check_queue(net: QueueNetwork) -> None:
    """What holds after every step (rmq RI-1, RI-6, RI-7)."""
    longest = [each.digest for each in net.final()]
    for name, session in net.sessions().items():
        chain = session.chain
        assert not chain.is_broken, f"{name}: two final chains"
        assert chain.final == longest[: len(chain.final)], f"{name}: another final chain"
        times = [chain.blocks[each].time_ms for each in chain.final]
        assert times == sorted(times)
    done: dict[bytes, int] = {}
    ids: set[bytes] = set()
    for at, block in enumerate(net.final()):
        before = net.final()[at - 1] if at else None
        assert block.parent == (before.digest if before else SESSION)
        for verdict in block.verdicts:
            assert verdict.id not in ids, "collated twice"
            ids.add(verdict.id)
            if verdict.kind == DONE:
                uid = _uid(net, verdict.id)
                assert uid not in done, "the same work done twice"
                done[uid] = at
    for node in net.queue_nodes:
        votes: dict[tuple[str, int], set[bytes]] = {}
        for slot, given in _own_votes(node).items():
            kinds = {kind for kind, _ in given}
            assert not {"skip", "finalise"} <= kinds, f"{node.name} skipped and finalised {slot}"
            for kind, digest in given:
                votes.setdefault((kind, slot), set()).add(digest)
        assert all(len(each) == 1 for each in votes.values()), f"{node.name} voted twice"
    for client in net.clients:
        for ticket in client.machine.tickets.values():
            outcome = ticket.outcome
            for session in net.sessions().values():
                ending = session.ending(ticket.id) if ticket.id in session.messages else None
                if outcome is not None and ending is not None:
                    assert (outcome.kind, outcome.position) == (ending.kind, ending.position)


def check_evidence(net: QueueNetwork) -> None:
    """rmq RI-4, RI-8, RI-13, RI-18, RI-19: what stands behind each certificate, verdict, id and count."""
    for name, session in net.sessions().items():
        chain = session.chain
        for slot, key in chain.certified.items():
            block = chain.blocks[key]
            votes = chain.certificate("approve", slot, key)
            assert len({voter for voter, _ in votes} & set(net.names)) == net.quorum
            for voter, signature in votes:
                text = vote_signed(SESSION, "approve", slot, key)
                assert KeyedHash(name).verify(KeyedHash(voter).public, signature, text)
            assert chain.certified.get(block.parent_slot, SESSION) == block.parent
            assert chain.skipped >= set(range(block.parent_slot + 1, block.slot))
        for digest in chain.final:
            for verdict in chain.blocks[digest].verdicts:
                message = session.messages[verdict.id]
                if verdict.kind != DONE:
                    assert set(message.refusals) >= set(net.names), "refused, and not by all"
        ended = 0
        for message_id, message in session.messages.items():
            assert message.header.id == message_id
            assert message.uid == message.header.uid
            assert message.body is None or sha256(message.body).digest() == message.header.body_hash
            ended += session.ending(message_id) is not None
        assert len(session.messages) == ended + session.gauges()["undecided"]
    held = list(net.sessions().values())
    if len(held) == len(net.queue_nodes):
        for verdict in [each for block in net.final() for each in block.verdicts]:
            bodies = [each.body(verdict.id) is not None for each in held]
            assert verdict.kind != DONE or sum(bodies) >= net.quorum - len(net.twins)


def _uid(net: QueueNetwork, message_id: bytes) -> bytes:
    for session in net.sessions().values():
        if message_id in session.messages:
            return session.messages[message_id].uid
    raise AssertionError("a final message that nobody knows")


def _own_votes(node: QueueNode) -> dict[int, set[tuple[str, bytes]]]:
    """What a node voted over all its lives, by its own entries anywhere."""
    found: dict[int, set[tuple[str, bytes]]] = {}
    for session in node.net.sessions().values():
        for known in session.log.causality.known.values():
            if known.entry.author == node.name:
                for item in known.entry.items:
                    match item:
                        case ("vote", str() as kind, int() as slot, bytes() as digest, bytes()):
                            found.setdefault(slot, set()).add((kind, digest))
                        case _:
                            pass
    return found


def check_receipts(net: QueueNetwork) -> None:
    """Numbers grow, and endings are told once; all correct nodes tell the same ending (rmq RI-5, RI-17)."""
    endings: dict[bytes, str] = {}
    for node in net.queue_nodes:
        if node.session is None:
            continue
        last: dict[str, int] = {}
        told: set[bytes] = set()
        for submitter, number, message_id, kind in node.receipts():
            assert number > last.get(submitter, 0)
            last[submitter] = number
            if kind in ("finalized", "refused", "duplicate", "expired"):
                assert message_id not in told, f"{node.name} told an ending twice"
                told.add(message_id)
                assert endings.setdefault(message_id, kind) == kind
