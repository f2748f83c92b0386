"""One run of machines on the nodes of a world, and what is between them: chaos, healing, drain, quiescence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.settings import Settings, claimed, facts_of
from surepipe.audit.trace import RollingDigest, Row
from surepipe.core.claims import Atom, Fault
from surepipe.core.machine import Machine
from surepipe.core.store_requests import KEEP_ALL, Level, Retention
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.position import Phase
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.events import Event, Happening, Submit, Wake
from surepipe.simulation.faults import CATALOGUE, kind_of, kinds_at, names_of
from surepipe.simulation.network import Network
from surepipe.simulation.nodes import End, MachineNode
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.promises import chain_claim, claim_in, promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import Layout, PipeBetween, Subject
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


Simulated: TypeAlias = Subject | Layout
"""What can be run: a pair of machines, or a layout of several pairs."""


def layout_of(subject: Subject) -> Layout:
    """A pair is a layout of ``sender`` and ``receiver``; those beside it have numbers: ``sender 2``."""
    pipes = [PipeBetween(subject, "sender", "receiver")]
    for number, hop in enumerate(getattr(subject, "beside", ()), 2):
        receiver = "receiver" if hop.only_sends else f"receiver {number}"
        pipes.append(PipeBetween(hop, f"sender {number}", receiver))
    return Layout(subject.name, pipes)


class HopWorld(World):
    """The nodes of a layout and the phases of its run."""

    name = "world"

    def __init__(self, subject: Simulated, options: Options, chooser: Chooser) -> None:
        chooser.begin(options)
        super().__init__(f"{subject.name}#{options.seed}", options, chooser)
        self.is_pair = not isinstance(subject, Layout)
        self.layout = layout = subject if isinstance(subject, Layout) else layout_of(subject)
        self.subject = layout.pipes[0].subject
        self.promise = promise_of(subject)
        self.network = Network(self)
        self.nodes: dict[str, MachineNode] = {}
        first, *others = layout.pipes
        self.keeper = self._keeper_of(first.subject)
        self.sender, self.receiver = self._join(first, self.keeper)
        for pipe in others:
            self._join(pipe, self._keeper_of(pipe.subject, self.keeper))
        self._relay()
        nodes = list(self.nodes.values())
        chooser.plan(nodes[:2], nodes[2:]) if self.is_pair else chooser.plan(nodes)
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

    def _node(self, name: str) -> MachineNode:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = MachineNode(self, name)
            node.on_power = self._cut_power
            node.on_mailbox = partial(self._lose_mailbox, node)
        return node

    def _lose_mailbox(self, node: MachineNode) -> None:
        for end in node.ends:
            self.network.drop_in_flight(end, "F26")

    @property
    def ends(self) -> list[End]:
        """Those of all nodes."""
        return [end for node in self.nodes.values() for end in node.ends]

    def _join(self, pipe: PipeBetween, keeper: WorldKeeper) -> tuple[End, End]:
        """The two ends of a pipe, with a link each way. Of one that only sends the first receiver is the other."""
        sender = self._end(pipe, pipe.sender, keeper.told_pipe, keeper)
        if getattr(pipe.subject, "only_sends", False):
            receiver = self.receiver
        else:
            receiver = self._end(pipe, pipe.receiver, keeper.pipe, keeper)
        sender.out = self.network.link(sender.name, receiver, keeper.told_pipe)
        back = self.network.link(receiver.name, sender, keeper.told_pipe)
        sender.heard = back
        if not hasattr(receiver, "out"):
            receiver.out, receiver.heard = back, sender.out
        return sender, receiver

    def _end(self, pipe: PipeBetween, name: str, told: str, keeper: WorldKeeper) -> End:
        """An end bears the name of its node, and that of its pipe too where the node has several."""
        places = [place for one in self.layout.pipes for place in (one.sender, one.receiver)]
        is_alone = self.is_pair or places.count(name) == 1
        node, is_sender = self._node(name), name == pipe.sender
        end = name if is_alone else f"{name}/{pipe.pipe}"
        return node.add_end(pipe.subject, told, keeper, is_sender=is_sender, name=end)

    def _relay(self) -> None:
        by_pipe = {(end.keeper.pipe, end.is_sender): end for end in self.ends}
        for fed_by, pipe in self.layout.relays.items():
            receiver, sender = by_pipe[fed_by, False], by_pipe[pipe, True]
            receiver.onward, sender.is_fed = sender, True
            sender.keeps_accepted |= self.layout.hand_over is Boundary.HANDED

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
        for node in sorted(self.nodes.values(), key=lambda node: node.sends):
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
        given = [
            kind
            for decision in self.chooser.given()
            if decision.fault
            for kind in self._kinds_of(decision)
        ]
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
            "subject": self.layout.name,
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
            **self._kept_facts(),
            **({"claims": self._claims_beside()} if len(self.layout.pipes) > 1 else {}),
            "confirms": promise.confirms,
            "retries": promise.retries,
            **({"patience": promise.patience} if promise.patience else {}),
            **({"alarm_us": promise.alarm_us} if promise.alarm_us else {}),
            "patterns": {} if _LIVES & frozenset(faults) else dict(promise.patterns),
            "fault_free": is_calm and longest < promise.least_us // 2,
        }

    def _kept_facts(self) -> dict[str, object]:
        """Which senders have a journal, and where positions are stored before messages come out."""
        subjects = [(one.pipe, one.subject) for one in self.layout.pipes]
        if self.is_pair:
            is_before = self.subject.boundary is Boundary.BEFORE
            facts: dict[str, object] = {"boundary": "before"} if is_before else {}
            return {"journaled": self.subject.journaled, **facts}
        return {
            "journaled": False,
            "journals": [pipe for pipe, subject in subjects if subject.journaled],
            "before": [pipe for pipe, one in subjects if one.boundary is Boundary.BEFORE],
        }

    def _kinds_of(self, decision: Decision) -> tuple[str, ...]:
        node = self.nodes.get(decision.authority.removeprefix("faults/"))
        if node is None:
            return (kind_of(decision),)
        return kinds_at(decision, sends=node.sends, receives=node.receives, relays=node.relays)

    @property
    def _may_pass(self) -> bool:
        """Whether a stream has a bound at which entries go before they are read: no fault needs to befall it."""
        retention: Retention = getattr(self.subject, "retention", KEEP_ALL)
        return retention.force and retention.max_bytes is not None

    def _claims_beside(self) -> dict[str, object]:
        """Those of the other pipes; of a layout that is no pair, of all of them."""
        keepers = self.keeper.keepers[1:] if self.is_pair else self.keeper.keepers
        pipes = self.layout.pipes[1:] if self.is_pair else self.layout.pipes
        return {
            keeper.told_pipe: {
                atom: list(names) for atom, names in claim_in(self.layout, pipe).items()
            }
            for keeper, pipe in zip(keepers, pipes, strict=True)
        }

    def take(self, event: Event) -> None:
        """A phase begins."""
        assert isinstance(event, Happening)
        event.act()

    def _phase(self, name: str, **more: object) -> None:
        self.note("world", 0, "phase", detail=as_detail({"phase": name, **more}))

    def _cut_power(self, for_us: int) -> None:
        """Both ends and all stores end at once."""
        for node in self.nodes.values():
            node.cut_power(for_us)
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
        for end in self.ends:
            at = made = number = 0
            is_offered = end.is_sender and not end.is_fed and end is not self.sender
            while is_offered and made < self.options.messages:
                number += 1
                left = self.options.messages - made
                after, count = self.chooser.submit(f"submit {number} of {end.name}", left)
                at += after
                payloads = [
                    f"{end.name} {made + place}".encode().ljust(self.options.payload_bytes, b".")
                    for place in range(1, count + 1)
                ]
                made += count
                self.at(at, end, Submit(number, payloads))

    def _offered(self) -> int:
        """How many messages there may be at once, those of the load included."""
        options = self.options
        several = options.messages * len(self.layout.pipes)
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
        for node in self.nodes.values():
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
            processes = [end.current for end in self.ends]
            if all(p and _at_rest(p.machine) for p in processes):
                self.quiescent_at = self.now
                self._phase("quiescent")
        return False

    def _grace_us(self) -> int:
        """A receiver may hold what waits for messages that its zombie settled: it asks when the hole is old."""
        grace = GRACE_TIMERS * self.options.timer_us
        holds = any(end.current and end.current.machine.gauges().get("held") for end in self.ends)
        return max(grace, self.promise.calm_us) if holds else grace

    def end(self) -> None:
        """The last row: how things stand."""
        if not self.limit and self.quiescent_at < 0:
            self.quiescent_at = self.now
            self._phase("quiescent")
        nodes = {end.name: self._standing(end) for end in self.ends}
        facts = {"quiescent": not self.limit, "limit": self.limit, "nodes": nodes}
        self.note("world", 0, "end", detail=as_detail(facts))

    def _standing(self, end: End) -> dict[str, object]:
        """How an end stands; without gauges where its machine can't even say them, which is a finding as well."""
        process = end.current
        if process is None:
            return {"deadline": None, "gauges": {}, "idle": False}
        try:
            gauges = dict(process.machine.gauges())
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must end with its rows
            gauges = {}
            if self.limit != "raised":
                self.raised(end.name, error)
        return {
            "deadline": process.deadline,
            "gauges": gauges,
            "idle": bool(getattr(process.machine, "idle", True)),
            "waiting": len(end.kept_offers),
        }


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


def play(subject: Simulated, options: Options, chooser: Chooser) -> HopWorld:
    """Run a pair, or a layout, to its end and return the world as it then is, with its rows."""
    world = HopWorld(subject, options, chooser)
    if isinstance(chooser, ScriptChooser):
        world.asked = []
    with collector_at_rest():
        if world.begins():
            world.run()
        world.end()
    return world


def run_hop(
    subject: Simulated,
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
        world.layout.name, world.options.plain(), chooser.decisions(), world.options.seed
    )
    return RunResult(
        script=script,
        rows=world.rows,
        violations=(*judge(world.rows), *_judged_through(world)) if judge else (),
        digest=digest_of_rows(world.rows),
        events=world.events,
        marks=frozenset(world.marks),
        stale=chooser.stale,
        limit=world.limit,
        asked=tuple(f"{node}: {event.what}" for node, event in world.asked or ()),
    )


def rows_through(
    rows: Sequence[Row], chain: Sequence[PipeBetween], claim: Mapping[str, Sequence[str]]
) -> list[Row]:
    """The rows of a chain as those of one pipe: accepted where its messages were offered, delivered and settled
    where they came out, under the identity that they had at first. Messages are known by their payloads."""
    first, last = chain[0].pipe, chain[-1].pipe
    name = f"{first} to {last}"
    known: dict[str, tuple[int, int]] = {}
    facts: dict[str, object] = {
        "claim": claim,
        "faults": facts_of(rows[0])["faults"],
        "journals": [name],
    }
    found = [replace(rows[0], detail=as_detail(facts))]
    for row in rows[1:]:
        if row.kind in ("phase", "end"):
            found.append(row)
        is_accepted = row.kind == "accepted" and row.pipe == first
        if not is_accepted and not (row.kind in ("delivered", "settled") and row.pipe == last):
            continue
        each = [row.digests[at : at + 16] for at in range(0, len(row.digests), 16)]
        for seq, digest in enumerate(each, row.seq):
            if is_accepted:
                if digest in known:
                    continue
                known[digest] = (row.epoch, seq)
            epoch, number = known.get(digest, (row.epoch, seq))
            found.append(
                replace(row, pipe=name, epoch=epoch, seq=number, count=1, digests=digest, detail="")
            )
    return found


def _judged_through(world: HopWorld) -> Sequence[Violation]:
    """What the judge says of each chain of pipes, from where its messages were offered to where they came out.

    How often a message was sent again is for the single pipes to answer; here it is what came out, in which order.
    """
    found: list[Violation] = []
    for chain in world.layout.chains:
        if len(chain) > 1:
            rows = rows_through(world.rows, chain, chain_claim(world.layout, chain))
            settings = Settings.read(rows[0])
            found += judge(rows, {"P1", *claimed(settings.claim, settings.faults)})
    return found


def replay(
    subject: Simulated, script: Script, *, judge: JudgeRows | None = judge_rows
) -> RunResult:
    """Repeat the run that a script tells of; a decision that finds nothing to act on makes the result stale."""
    options = replace(Options.of(script.options), seed=script.seed)
    return run_hop(subject, options, ScriptChooser(script), judge=judge)


def digest_of_rows(rows: Sequence[Row]) -> str:
    """The digest of a run."""
    rolling = RollingDigest()
    rolling.add_all(rows)
    return rolling.hex()
