"""The parties of a node: what pipes between parties need beside their two streams, and the relay where it runs
here.

A pipe between parties is three ways, one behind the other. What its sender accepts is in a stream of the first
party's store, as of any stream pipe. The party sends each entry of it once, as how far it is stands in the block
that sends. The other party appends what it receives to a stream of its own store, in the block that executes it,
and the pipe's receiver reads that stream as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from surepipe.actors.parties import (
    Figures,
    ServedParty,
    ServedRelay,
    StoreEnd,
    StreamToParty,
)
from surepipe.actors.tracing import FlowTrace
from surepipe.core.effects import Letter
from surepipe.core.store_requests import Store, StreamInfo
from surepipe.errors import ConfigurationError
from surepipe.observe.status import PathSeen
from surepipe.pipelines.assembly import Environment
from surepipe.pipelines.models.pipes import IbcRoutePart, PartyPart, PipePart
from surepipe.pipelines.models.stores import RedisStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.pipes import pipe_name, receives_at, sends_at
from surepipe.pipelines.run.unfinished import Unfinished
from surepipe.pipelines.run.writers import passed_in
from surepipe.queues.ibc import (
    PartyLimits,
    PathStatus,
    Relay,
    RelayOptions,
    Transaction,
    load_trust,
)
from surepipe.queues.ibc.transitions import TimeoutRule
from surepipe.storage.letters import encode, name_of

TYPE = "message"
DAY_S = 24 * 3600.0
DATA_BYTES_MAX = 1 << 20
RETURNED = {
    1: "it had not come when its limit had passed, as its own signed state shows",
    2: "it handles no messages of pipelines",
    4: "what takes it there raised",
    6: "a person gave the connection up",
}
"""Why a message comes back, by the code of its receipt."""


def _limit(route: IbcRoutePart) -> TimeoutRule:
    return "never" if route.timeout_s is None else "required"


def _seen(status: PathStatus) -> PathSeen:
    return PathSeen(
        path=status.path,
        state=status.state,
        why=status.why,
        pending={str(stage): count for stage, count in status.pending.items()},
        oldest_s=max((age for _, _, age in status.oldest.values()), default=None),
        trust_left_s=status.trust_left_s,
        parked=len(status.parked),
        held=status.held,
    )


class PartiesHere:
    """The parties of one node of a plan."""

    def __init__(
        self, plan: Plan, node: str, environment: Environment, stores: Mapping[str, Store]
    ) -> None:
        self._plan, self._node = plan, node
        self._environment, self._stores = environment, stores
        self._parties: dict[str, ServedParty] = {}
        self._feeds: dict[str, StreamToParty] = {}
        self._out: dict[tuple[str, str], str] = {}
        """The stream behind a connection of a party."""
        self._relays: dict[str, ServedRelay] = {}
        self._ends: list[StoreEnd] = []
        self._returns: dict[tuple[str, str], tuple[str, IbcRoutePart]] = {}
        """Of a connection of a party: the pipe, and what the plan says of it."""
        self._failure: BaseException | None = None
        self._waited: dict[str, int] = {}
        self._changed_us: int | None = None

    def _pipes(self) -> Iterator[tuple[PipePart, IbcRoutePart, bool, bool]]:
        for pipe in self._plan.pipes:
            if pipe.ibc is not None:
                sends = sends_at(self._plan, pipe, self._node)
                receives = receives_at(self._plan, pipe, self._node)
                yield pipe, pipe.ibc, sends, receives

    def open(self, trace: FlowTrace | None = None) -> None:
        """Open the parties, and connect them; what they pass on goes into the trace. Raises ConfigurationError,
        IbcRefused, StoreUnavailable."""
        for pipe, route, sends, receives in self._pipes():
            name = pipe_name(self._plan, pipe)
            if sends:
                party = self._connected(pipe, route, route.sends, route.receives)
                self._feeds[pipe.name] = StreamToParty(
                    party,
                    name,
                    pipe.name,
                    TYPE,
                    self._environment.runtime,
                    timeout_s=route.timeout_s,
                    trace=trace,
                    # What comes back, or out of turn, has no number of its own at the other side.
                    is_numbered=route.order == "ordered" and route.dead_letter is None,
                )
                if trace is not None:
                    self._tell_positions(trace, name, self._feeds[pipe.name].done(), party)
                self._returns[route.sends.party, pipe.name] = name, route
            if receives:
                self._out[route.receives.party, pipe.name] = name
                self._connected(pipe, route, route.receives, route.sends)
            if {"sender": sends, "receiver": receives}.get(route.relay):
                self._relay(pipe, route)

    @staticmethod
    def _tell_positions(trace: FlowTrace, stream: str, index: int, party: ServedParty) -> None:
        """What former lives gave to the party, of which they may not have lived to tell."""
        info = party.store.info(stream)
        if isinstance(info, StreamInfo):
            for producer, epoch, seq in passed_in(party.store, info, stream, index):
                trace.passed(f"{stream}@{producer}", epoch, seq)

    def _address(self, name: str) -> str:
        """Of a store, for a command line. Without what the address of a Redis may hold of secrets."""
        part = next(one for one in self._plan.stores if one.name == name)
        if isinstance(part, RedisStorePart):
            return f"redis://HOST:PORT/DB?pipeline={part.keys or self._plan.name}"
        path = part.path.reveal() if isinstance(part, SqliteStorePart) else name
        return f"sqlite:///{path}"

    def _connected(
        self, pipe: PipePart, route: IbcRoutePart, own: PartyPart, other: PartyPart
    ) -> ServedParty:
        party = self._party(own, route)
        if pipe.name not in party.connections:
            path = Path(own.trust)
            if not path.exists():
                command = f"surepipe relay trust '{self._address(own.store)}' > {other.trust}"
                raise ConfigurationError(
                    f"pipe {pipe.name}: {own.trust} isn't there. {own.party} is made now: write what it is "
                    f"trusted with by `{command}`, and give that to {other.party}. Its operator makes "
                    f"{own.trust} in the same way; compare it with them"
                )
            trust = load_trust(path)
            if trust.signed.header.party != other.party:
                raise ConfigurationError(
                    f"pipe {pipe.name}: {own.trust} is of party {trust.signed.header.party!r}, and the other side "
                    f"is {other.party!r}"
                )
            party.register(
                pipe.name, trust, known_as=pipe.name, order=route.order, timeout=_limit(route)
            )
        known = party.connections[pipe.name]
        if (known.timeout, known.is_ordered) != (_limit(route), route.order == "ordered"):
            limit = "without a limit in time" if known.timeout == "never" else "with one"
            order = "ordered" if known.is_ordered else "unordered"
            raise ConfigurationError(
                f"pipe {pipe.name}: {own.party} made this connection {order} and {limit}, which can't be changed: "
                "write timeout_s and order as they were, or give the pipe another name, which makes a new one"
            )
        return party

    def _party(self, own: PartyPart, route: IbcRoutePart) -> ServedParty:
        found = self._parties.get(own.party)
        if found is None:
            found = self._parties[own.party] = ServedParty(
                own.party,
                store=self._stores[own.store],
                keys=own.keys,
                relayers=self._relayers_of(own.party),
                trusting_period_s=route.trusting_days * DAY_S,
                limits=PartyLimits(data_bytes_max=DATA_BYTES_MAX + 1),
                runtime=self._environment.runtime,
            )
            found.module("pipeline").handle(
                TYPE,
                on_receive=self._receiver(own.party),
                on_rollback=self._returner(own.party),
            )
        return found

    def _relayers_of(self, party: str) -> list[str]:
        """Who may bring something to a party: those of all its pipes."""
        routes = (route for _, route, _, _ in self._pipes())
        own = (each for each in routes if party in (each.sends.party, each.receives.party))
        return list(dict.fromkeys(name for route in own for name in route.relayers))

    def _receiver(self, party: str) -> Callable[[Transaction, bytes], bytes]:
        def receive(tx: Transaction, data: bytes) -> bytes:
            tx.append(self._out[party, tx.connection], data[1:])
            return b"\1"

        return receive

    def _returner(self, party: str) -> Callable[[Transaction, bytes, int, bytes], None]:
        def come_back(tx: Transaction, data: bytes, code: int, _: bytes) -> None:
            pipe, route = self._returns[party, tx.connection]
            why = RETURNED.get(code, f"it was refused with code {code}")
            if route.dead_letter is None:
                self._failure = ConfigurationError(
                    f"pipe {tx.connection}: message {tx.index} comes back from {route.receives.party}: {why}. "
                    f"Nothing says where it goes, so it stays: write dead_letter: {route.sends.store}/returned"
                )
                raise self._failure
            assert tx.index is not None
            letter = Letter(
                pipe=pipe,
                layer=0,
                epoch=1,
                seq=tx.index + 1,
                payload=data[1:],
                attempts=1,
                first_failure_us=tx.time_ms * 1_000,
                last_failure_us=tx.time_ms * 1_000,
                error_type=f"ibc-{code}",
                error_text=f"{route.receives.party}: {why}",
                producer=party,
            )
            tx.append_once(route.dead_letter.partition("/")[2], name_of(letter), encode(letter))

        return come_back

    def _relay(self, pipe: PipePart, route: IbcRoutePart) -> None:
        runtime = self._environment.runtime
        ends = [
            StoreEnd(self._stores[side.store], route.relayers[0], runtime)
            for side in (route.sends, route.receives)
        ]
        self._ends += ends
        path = (ends[0], ends[1], pipe.name, pipe.name)
        options = RelayOptions(poll_s=0.05, relayer=route.relayers[0].encode())
        relay = Relay([path], options=options, clock=runtime.wall_ms)
        self._relays[pipe.name] = ServedRelay(relay, runtime)

    def start(self) -> None:
        """Take what relays bring, and send what pipes have accepted."""
        for party in self._parties.values():
            party.serve()
        for feed in self._feeds.values():
            feed.start()

    def look(self) -> None:
        """Raises what ended one of them."""
        found = [self._failure, *(each.failure for each in self._parties.values())]
        found += [each.failure for each in self._feeds.values()]
        found += [each.failure for each in self._relays.values()]
        for failure in found:
            if failure is not None:
                raise failure

    def paths(self) -> Mapping[str, PathSeen]:
        """What relays of this process carry, by pipe. From any thread."""
        return {
            name: _seen(status)
            for name, relay in list(self._relays.items())
            for status in relay.statuses()
        }

    def figures(self) -> Figures:
        """The same as numbers for metrics. From any thread."""
        relays = list(self._relays.values())
        return {key: value for relay in relays for key, value in relay.figures().items()}

    def are_settled(self) -> bool:
        """Whether the other side has answered all that was sent from here. To be asked again and again, once the
        pipes have nothing left."""
        if self._changed_us is None:
            self._changed_us = self._environment.runtime.now()
        for name, feed in self._feeds.items():
            count = feed.waiting()
            if count is not None and self._waited.get(name) != count:
                self._waited[name] = count
                self._changed_us = self._environment.runtime.now()
        return all(self._waited.get(name) == 0 for name in self._feeds)

    def silent_s(self) -> float:
        """For how long no answer has come since ``are_settled`` was asked first."""
        now = self._environment.runtime.now()
        return (now - (now if self._changed_us is None else self._changed_us)) / 1_000_000

    def unfinished(self) -> Iterator[Unfinished]:
        """What the other side hasn't answered, as far as is known."""
        for pipe, route, sends, _ in self._pipes():
            if sends and self._feeds[pipe.name].waited != 0:
                own, other = route.sends, route.receives.party
                yield Unfinished(
                    pipe.name,
                    self._feeds[pipe.name].waited,
                    f"not answered by {other}",
                    f"safe with {own.party}, store {own.store}",
                    is_safe=True,
                )

    def close(self) -> None:
        """End all of them; what is under way goes on with the next start."""
        with ExitStack() as ends:
            for party in self._parties.values():
                ends.callback(party.close)
            for end in self._ends:
                ends.callback(end.close)
            for feed in self._feeds.values():
                ends.callback(feed.close)
            for relay in self._relays.values():
                ends.callback(relay.close)
        self._parties.clear()
        self._feeds.clear()
        self._relays.clear()
        self._ends.clear()
