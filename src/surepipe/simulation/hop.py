"""One run of a hop: sender, receiver and what is between them, through chaos, healing, drain and quiescence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.trace import RollingDigest, Row
from surepipe.core.claims import Atom, Fault
from surepipe.core.machine import Machine
from surepipe.core.store_requests import KEEP_ALL, Level, Retention
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.position import Phase
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.script import Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.events import Event, Happening, Submit, Wake
from surepipe.simulation.faults import CATALOGUE, kind_of, names_of
from surepipe.simulation.network import Network
from surepipe.simulation.nodes import Node
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import HopSubject, Subject
from surepipe.simulation.world import Entry, World, as_detail, collector_at_rest

_ASKING = frozenset(Phase) - {Phase.WAITING, Phase.DELIVERING, Phase.STOPPED}
"""A reader that waits for an answer of its store, and does not know yet what there is."""
GRACE_TIMERS = 4
"""For so many timeouts after the end of all work a deadline may pass; what it transmits is a finding."""

_LIVES = frozenset(
    {"sender-crash", "receiver-crash", "sender-zombie", "receiver-zombie", "power-loss"}
)
"""With these a reference model of one life of each end has nothing to say."""

_HEADER_BYTES = 64
"""at most, of what a layer puts before a message"""

JudgeRows: TypeAlias = Callable[[Sequence[Row]], Sequence[Violation]]


def judge_rows(rows: Sequence[Row]) -> Sequence[Violation]:
    """What the one judge says of a run: of all that it promises, and of what must hold always."""
    return judge(rows)


class HopWorld(World):
    """The nodes of a hop and the phases of its run."""

    name = "world"

    def __init__(self, subject: Subject, options: Options, chooser: Chooser) -> None:
        chooser.begin(options)
        super().__init__(f"{subject.name}#{options.seed}", options, chooser)
        self.subject = subject
        self.beside: Sequence[HopSubject] = getattr(subject, "beside", ())
        self.promise = promise_of(subject)
        self.network = Network(self)
        self.nodes: list[Node] = []
        self.keeper = self._keeper_of(subject)
        self.sender, self.receiver = self._join(subject, self.keeper, "")
        for number, hop in enumerate(self.beside, 2):
            self._join(hop, self._keeper_of(hop, self.keeper), f" {number}")
        if isinstance(chooser, SeededChooser):
            chooser.plan_beside([node.name for node in self.nodes[2:]])
        for node in self.nodes:
            node.on_power = self._cut_power
            node.on_mailbox = partial(self.network.drop_in_flight, node, "F26")
        self.quiescent_at = -1

    def _keeper_of(self, subject: Subject, beside: WorldKeeper | None = None) -> WorldKeeper:
        return WorldKeeper(
            self,
            getattr(subject, "pipe", "pipe"),
            journaled=subject.journaled,
            durable=subject.durable or subject.boundary is Boundary.COMMITTED,
            streamed=bool(getattr(subject, "streamed", False)),
            level=getattr(subject, "level", Level.POWER),
            depth=len(getattr(subject, "parsed", ())),
            stream=getattr(subject, "stream", ""),
            told_pipe=getattr(subject, "told_pipe", ""),
            reader=getattr(subject, "reader", ""),
            retention=getattr(subject, "retention", KEEP_ALL),
            one_store=bool(getattr(subject, "one_store", False)),
            beside=beside,
            letters=bool(getattr(getattr(subject, "options", None), "dead_letters", False)),
        )

    def _join(self, subject: Subject, keeper: WorldKeeper, number: str) -> tuple[Node, Node]:
        """The two ends of a hop, with a link each way. Of one that only sends the first receiver is the other."""
        sender = Node(self, subject, f"sender{number}", keeper.told_pipe, keeper)
        self.nodes.append(sender)
        if getattr(subject, "only_sends", False):
            receiver = self.receiver
        else:
            receiver = Node(self, subject, f"receiver{number}", keeper.pipe, keeper)
            self.nodes.append(receiver)
        sender.out = self.network.link(sender.name, receiver, keeper.told_pipe)
        back = self.network.link(receiver.name, sender, keeper.told_pipe)
        sender.heard = back
        if number == "" or receiver is not self.receiver:
            receiver.out, receiver.heard = back, sender.out
        return sender, receiver

    def begin(self) -> None:
        """The first row, the workload, the plan of phases, and the first process of each node."""
        self.note("world", 0, "run", detail=as_detail(self._facts()))
        self._phase("chaos")
        offers = self._plan_offers()
        payloads = [payload for _, offer in offers for payload in offer.payloads]
        self.receiver.poison = self.chooser.poisoned(payloads)
        last = max((at for at, _ in offers), default=0)
        chaos_us = max(last, self.options.chaos_us)
        self.network.plan(chaos_us)
        self.keeper.mishaps.plan(chaos_us)
        for at, offer in offers:
            self.at(at, self.sender, offer)
        self._offer_beside()
        self.at(chaos_us, self, Happening("heal", self._heal))
        for node in sorted(self.nodes, key=lambda node: node.role):
            node.start()

    def begins(self) -> bool:
        """Begin; False when a machine broke an invariant of its own at its very first wake, which is a finding."""
        try:
            self.begin()
        except AssertionError as error:
            self.raised(self.name, error)
        return not self.limit

    def _facts(self) -> dict[str, object]:
        promise, options = self.promise, self.options
        given = [kind_of(decision) for decision in self.chooser.given() if decision.fault]
        faults = names_of(options, given)
        if self._may_pass and Fault.STORE_TRIM not in faults:
            faults = tuple(one.value for one in Fault if one.value in (*faults, Fault.STORE_TRIM))
        is_for_good = bool(options.one_way_for_good) or "F7" in given
        is_calm = not given and not any(kind.is_on(options) for kind in CATALOGUE)
        is_slow = Drain(options.drain).is_slow
        slow = options.timer_us if is_slow else options.delay_us
        trip = 2 * slow + 2 * (options.timer_us if is_slow else options.store_us)
        longest = max(trip, 2 * (options.delay_us + options.jitter_us) + options.handler_us)
        return {
            "format": 1,
            "clock": "virtual",
            "subject": self.subject.name,
            "seed": options.seed,
            "options": options.plain(),
            "claim": {
                atom: list(names)
                for atom, names in promise.claim.items()
                if not (is_for_good and atom == Atom.NO_LOSS)
            },
            "faults": list(faults),
            "bounds": dict(promise.bounds),
            "bound_us": promise.bound_us(
                self._offered(),
                trip,
                options.handler_us,
                frozen=bool(options.frozen),
                each_bytes=options.payload_bytes + _HEADER_BYTES,
            ),
            "journaled": self.subject.journaled,
            **({"claims": self._claims_beside()} if self.beside else {}),
            **({"boundary": "before"} if self.subject.boundary is Boundary.BEFORE else {}),
            "confirms": promise.confirms,
            "retries": promise.retries,
            **({"patience": promise.patience} if promise.patience else {}),
            **({"alarm_us": promise.alarm_us} if promise.alarm_us else {}),
            "patterns": {} if _LIVES & frozenset(faults) else dict(promise.patterns),
            "fault_free": is_calm and longest < promise.least_us // 2,
        }

    @property
    def _may_pass(self) -> bool:
        """Whether a stream has a bound at which entries go before they are read: no fault needs to befall it."""
        retention: Retention = getattr(self.subject, "retention", KEEP_ALL)
        return retention.force and retention.max_bytes is not None

    def _claims_beside(self) -> dict[str, object]:
        return {
            hop.told_pipe: {atom: list(names) for atom, names in promise_of(hop).claim.items()}
            for hop in self.beside
        }

    def take(self, event: Event) -> None:
        """A phase begins."""
        assert isinstance(event, Happening)
        event.act()

    def _phase(self, name: str, **more: object) -> None:
        self.note("world", 0, "phase", detail=as_detail({"phase": name, **more}))

    def _cut_power(self, for_us: int) -> None:
        """Both ends and all stores end at once."""
        for node in self.nodes:
            if node.current is not None:
                node.end(node.current, "power cut", "F31")
            for zombie in list(node.zombies):
                node.end(zombie, "power cut", "F31")
            node.start_after(for_us)
        self.keeper.mishaps.cut_power(self.options.store_rollback_writes)

    # The workload.

    def _plan_offers(self) -> list[tuple[int, Submit]]:
        """What the application offers, and when."""
        offers: list[tuple[int, Submit]] = []
        at = made = 0
        while made < self.options.messages:
            number = len(offers) + 1
            after, count = self.chooser.submit(f"submit {number}", self.options.messages - made)
            at += after
            payloads = [self._payload(made + place) for place in range(1, count + 1)]
            made += count
            offers.append((at, Submit(number, payloads)))
        return offers + [(at // 2, offer) for offer in self._extremes()]

    def _offer_beside(self) -> None:
        """What the applications of the other hops offer: as much, in payloads of their own."""
        for node in self.nodes[2:]:
            at = made = number = 0
            while node.role == "sender" and made < self.options.messages:
                number += 1
                left = self.options.messages - made
                after, count = self.chooser.submit(f"submit {number} of {node.name}", left)
                at += after
                payloads = [
                    f"{node.name} {made + place}".encode().ljust(self.options.payload_bytes, b".")
                    for place in range(1, count + 1)
                ]
                made += count
                self.at(at, node, Submit(number, payloads))

    def _offered(self) -> int:
        """How many messages there may be at once, those of the load included."""
        options = self.options
        several = options.messages * (1 + len(self.beside))
        return several + options.flood + options.too_large + options.load_messages

    def _extremes(self) -> Iterator[Submit]:
        """Offers that are too many, or too large."""
        options = self.options
        if options.flood:
            yield Submit(2000, [f"flood{n}".encode() for n in range(1, options.flood + 1)])
        for number in range(1, options.too_large + 1):
            large = f"large{number}".encode().ljust(self.promise.message_max_bytes + 1, b".")
            yield Submit(2000 + number, [large, f"small{number}".encode()])

    def _payload(self, number: int) -> bytes:
        return f"m{number}".encode().ljust(self.options.payload_bytes, b".")

    # Phases.

    def _heal(self) -> None:
        self._phase("heal")
        self.chooser.end_chaos()
        self.network.heal()
        self.keeper.mishaps.heal()
        for node in self.nodes:
            node.heal()
        self._drain()

    def _drain(self) -> None:
        drain = Drain(self.options.drain)
        network = "slow" if drain.is_slow else "fast"
        self._phase("drain", network=network, load=drain.has_load)
        if drain.is_slow:
            for link in self.network.links.values():
                link.delay_us = self.options.timer_us
            for keeper in self.keeper.keepers:
                keeper.latency_us = self.options.timer_us
        if drain.has_load:
            self._offer_load()
        self.is_draining = True

    def _offer_load(self) -> None:
        gap = self.options.timer_us // 2
        for number in range(1, self.options.load_messages + 1):
            payload = f"load{number}".encode().ljust(self.options.payload_bytes, b".")
            self.at(self.now + number * gap, self.sender, Submit(3000 + number, [payload]))

    # The end.

    def _is_over(self, entry: Entry) -> bool:
        if self.quiescent_at >= 0:
            return entry[0] > self.quiescent_at + self._grace_us()
        if isinstance(entry[4], Wake) and all(isinstance(e[4], Wake) for e in self.heap):
            processes = [node.current for node in self.nodes]
            if all(p and _at_rest(p.machine) for p in processes):
                self.quiescent_at = self.now
                self._phase("quiescent")
        return False

    def _grace_us(self) -> int:
        """A receiver may hold what waits for messages that its zombie settled: it asks when the hole is old."""
        grace = GRACE_TIMERS * self.options.timer_us
        holds = any(
            node.current and node.current.machine.gauges().get("held") for node in self.nodes
        )
        return max(grace, self.promise.calm_us) if holds else grace

    def end(self) -> None:
        """The last row: how things stand."""
        if not self.limit and self.quiescent_at < 0:
            self.quiescent_at = self.now
            self._phase("quiescent")
        nodes = {node.name: _standing(node) for node in self.nodes}
        facts = {"quiescent": not self.limit, "limit": self.limit, "nodes": nodes}
        self.note("world", 0, "end", detail=as_detail(facts))


def _at_rest(machine: Machine) -> bool:
    """Whether a machine waits for nothing; nor may inner layers of a stack, which have confirms of their own, nor
    a reader, which has nothing in work while its store does not answer, and perhaps more to read; nor
    may its commit be open, as it looks again for what there is when that was not answered at first."""
    layers = getattr(machine, "layers", ())
    if not getattr(machine, "idle", True) or machine.gauges().get("lag"):
        return False
    return not any(
        getattr(layer, "in_flight", 0)
        or getattr(layer, "phase", None) in _ASKING
        or getattr(layer, "committing", None)
        for layer in layers
    )


def _standing(node: Node) -> dict[str, object]:
    process = node.current
    if process is None:
        return {"deadline": None, "gauges": {}, "idle": False}
    return {
        "deadline": process.deadline,
        "gauges": dict(process.machine.gauges()),
        "idle": bool(getattr(process.machine, "idle", True)),
        "waiting": len(node.kept_offers),
    }


def play(subject: Subject, options: Options, chooser: Chooser) -> HopWorld:
    """Run a hop to its end and return the world as it then is, with its rows."""
    world = HopWorld(subject, options, chooser)
    if isinstance(chooser, ScriptChooser):
        world.asked = []
    with collector_at_rest():
        if world.begins():
            world.run()
        world.end()
    return world


def run_hop(
    subject: Subject,
    options: Options | None = None,
    chooser: Chooser | None = None,
    *,
    judge: JudgeRows | None = judge_rows,
) -> RunResult:
    """One run, judged. Without a chooser chance decides, under the seed of the options.

    The result's script repeats it. ``judge`` sees the rows when the run has ended; None: nobody judges.
    """
    options = options or Options()
    with collector_at_rest():
        return result_of(play(subject, options, chooser or SeededChooser(options)), judge)


def result_of(world: HopWorld, judge: JudgeRows | None = judge_rows) -> RunResult:
    """What a finished world amounts to."""
    chooser = world.chooser
    script = Script(
        world.subject.name, world.options.plain(), chooser.decisions(), world.options.seed
    )
    return RunResult(
        script=script,
        rows=world.rows,
        violations=tuple(judge(world.rows)) if judge else (),
        digest=digest_of_rows(world.rows),
        events=world.events,
        marks=frozenset(world.marks),
        stale=chooser.stale,
        limit=world.limit,
        asked=tuple(f"{node}: {event.what}" for node, event in world.asked or ()),
    )


def replay(subject: Subject, script: Script, *, judge: JudgeRows | None = judge_rows) -> RunResult:
    """Repeat the run that a script tells of; a decision that finds nothing to act on makes the result stale."""
    options = replace(Options.of(script.options), seed=script.seed)
    return run_hop(subject, options, ScriptChooser(script), judge=judge)


def digest_of_rows(rows: Sequence[Row]) -> str:
    """The digest of a run."""
    rolling = RollingDigest()
    rolling.add_all(rows)
    return rolling.hex()
