"""The world of a run: nodes by name, links between them, stores, and the phases that all of them go through.

What runs in it is a *deployment*: which nodes there are, whether machines or the actors of production run on
them, and which stores they share. Chaos comes first; then everything temporary ends (heal), what is left is worked
off (drain), and at last nothing is due any more (quiescence). A run that never comes to rest has found something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Protocol, TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.trace import RollingDigest, Row
from surepipe.core.claims import Atom
from surepipe.core.store_requests import Level
from surepipe.simulation.actors.lives import ActorNode, ActorWorld, Life
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.events import Event, Happening, Wake
from surepipe.simulation.faults import CATALOGUE, kind_of, kinds_at, names_of
from surepipe.simulation.nodes import MachineNode
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.outside import Outside, entered, left
from surepipe.simulation.promises import Promise
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.outages import Mishaps
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.simulation.timeline import Entry, as_detail, collector_at_rest

GRACE_TIMERS = 4
"""For so many timeouts after the end of all work a deadline may pass; what it transmits is a finding."""

JudgeRows: TypeAlias = Callable[[Sequence[Row]], Sequence[Violation]]


def judge_rows(rows: Sequence[Row]) -> Sequence[Violation]:
    """Judge a run: all that it promises, and the rules that hold always."""
    return judge(rows)


class Deployment:
    """What one run consists of. It is made anew for each run."""

    def begin(self, world: World) -> None:
        """Make stores, links and nodes, and say what will be offered."""
        raise NotImplementedError

    def facts(self, world: World) -> Mapping[str, object]:
        """Facts about this run for the judge, beyond those of every run."""
        del world
        return {}

    befalls: tuple[str, ...] = ()
    """Faults, as claims name them, that befall every run, whatever is drawn."""

    can_be_loaded = False
    """Whether new messages may be offered in the drain."""

    def offer(self, world: World) -> None:
        """Arrange for what applications offer."""

    def longest_us(self, options: Options) -> int:
        """How long an answer may take in a run in which nothing goes wrong."""
        slow = options.timer_us if Drain(options.drain).is_slow else options.delay_us
        return 2 * slow + 2 * options.jitter_us + 8 * options.store_us + options.handler_us

    def drain(self, world: World) -> None:
        """Whatever is slow or offered in the drain only."""

    def end(self, world: World) -> Sequence[Violation]:
        """What it finds itself, beside the judge, when all is over."""
        del world
        return ()


class Deployable(Protocol):
    """What is simulated: the same for each run.

    Faults are drawn within its ``promise``, which it is held to; ``facts`` are what the judge is told beyond that.
    """

    @property
    def name(self) -> str: ...

    @property
    def promise(self) -> Promise: ...

    def facts(self) -> Mapping[str, object]: ...

    def deployment(self) -> Deployment: ...


class World(ActorWorld):
    """Nodes with their lives, links, stores, and the outside world that outlives them all."""

    def __init__(self, subject: Deployable, options: Options, chooser: Chooser) -> None:
        super().__init__(f"{subject.name}#{options.seed}", options, chooser)
        if isinstance(chooser, ScriptChooser):
            self.asked = []
        self.subject = subject
        self.promise = subject.promise
        self.stores: dict[str, SimulatedStore] = {}
        self.mishaps = Mishaps(self, "", self.stores, _nobody_waits, self.streams)
        self.beside: frozenset[str] = frozenset()
        """Nodes whose troubles are drawn by themselves, so that they move nothing that befalls the others."""
        self.outsides: list[Outside] = []
        self.outcome: object = None
        """What the deployment says of itself at the end, for whoever asks."""
        self.stuck_at: Sequence[tuple[str, int]] = ()
        """The files and lines at which a coroutine waits for what never comes, in a run that met a limit."""
        self._has_plan = False
        self.quiescent_at = -1
        self.chaos_us = options.chaos_us
        self.deployment = subject.deployment()
        self.found: Sequence[Violation] = ()
        """What the deployment has found itself."""

    # What deployments make.

    def add_node(
        self, name: str, program: Callable[[Life], None], *, sends: bool, receives: bool
    ) -> None:
        """A process that runs this program of actors."""
        self.nodes[name] = ActorNode(self, name, program, sends=sends, receives=receives)

    def machine_node(self, name: str) -> MachineNode:
        """The node of this name, whose ends are machines; a new one when there is none yet."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = MachineNode(self, name)
            node.on_power = self.cut_power
            node.on_mailbox = self.network.drop_in_flight
        assert isinstance(node, MachineNode)
        return node

    def add_store(self, name: str, level: Level, kind: str = "simulated") -> SimulatedStore:
        """A store of this world. With the fault of lying stores its real level is below the one that it shows."""
        actual = Level(max(0, level - 1)) if self.options.lying else level
        store = SimulatedStore(
            name,
            declared=level,
            actual=actual,
            kind=kind,
            clock=lambda: self.now,
        )
        self.stores[name] = store
        return store

    # The run.

    def begin(self) -> None:
        """The first row, the plan of phases, the first life of each node."""
        self.chooser.begin(self.options)
        self.deployment.begin(self)
        if not self._has_plan:
            self.plan_troubles()
        self.note("world", 0, "run", detail=as_detail(self._facts()))
        self._phase("chaos")
        self.network.plan(self.chaos_us)
        self.mishaps.plan(self.chaos_us)
        self.deployment.offer(self)
        self.at(self.chaos_us, self, Happening("heal", self._heal))
        try:
            for node in sorted(self.nodes.values(), key=lambda node: node.begins_last):
                node.begin()
        except (
            AssertionError
        ) as error:  # a machine broke an invariant of its own at its very first wake
            self.raised(self.name, error)

    def plan_troubles(self) -> None:
        """All nodes are there: draw what will befall them. At the latest when the deployment has begun."""
        self._has_plan = True
        nodes = list(self.nodes.values())
        apart = [node for node in nodes if node.name in self.beside]
        self.chooser.plan([node for node in nodes if node.name not in self.beside], apart)

    def _facts(self) -> dict[str, object]:
        promise, options = self.promise, self.options
        is_for_good = bool(options.one_way_for_good) or any(
            "F7" in self._kinds(decision) for decision in self.chooser.given()
        )
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
            "faults": list(self.faults),
            "confirms": promise.confirms,
            "retries": promise.retries,
            "fault_free": self.is_fault_free,
            **self.subject.facts(),
            **self.deployment.facts(self),
        }

    @property
    def faults(self) -> tuple[str, ...]:
        """The names (of claims) of what may befall this run: by its options, by what is given, and anyway."""
        given = chain.from_iterable(map(self._kinds, self.chooser.given()))
        drawn = names_of(self.options, given)
        return (*drawn, *(name for name in self.deployment.befalls if name not in drawn))

    def _kinds(self, decision: Decision) -> tuple[str, ...]:
        node = self.nodes.get(decision.authority.removeprefix("faults/"))
        if node is None:
            return (kind_of(decision),)
        return kinds_at(decision, sends=node.sends, receives=node.receives, relays=node.relays)

    @property
    def is_fault_free(self) -> bool:
        """Nothing can go wrong in this run, and answers come before any timer: nothing calls for a repeat."""
        given = any(decision.fault for decision in self.chooser.given())
        switched = any(kind.is_on(self.options) for kind in CATALOGUE)
        is_quick = self.deployment.longest_us(self.options) < self.promise.least_us // 2
        return is_quick and not given and not switched

    def take(self, event: Event) -> None:
        """A phase begins, a process is buried."""
        assert isinstance(event, Happening)
        event.act()

    def _phase(self, name: str, **more: object) -> None:
        self.note("world", 0, "phase", detail=as_detail({"phase": name, **more}))

    def _heal(self) -> None:
        self._phase("heal")
        self.chooser.end_chaos()
        self.network.heal()
        self.mishaps.heal()
        for node in self.nodes.values():
            node.heal()
        self._drain()

    def _drain(self) -> None:
        drain = Drain(self.options.drain)
        has_load = drain.has_load and self.deployment.can_be_loaded
        self._phase("drain", network="slow" if drain.is_slow else "fast", load=has_load)
        if drain.is_slow:
            for link in self.network.links.values():
                link.delay_us = self.options.timer_us
        self.deployment.drain(self)
        self.is_draining = True

    def node_is_done(self) -> None:
        """The program of a node has returned. Of machines nobody knows that before all of them are at rest."""
        if all(node.is_done for node in self.nodes.values()):
            self.heap.clear()

    def cut_power(self, for_us: int) -> None:
        """All processes and all stores end at once."""
        for node in self.nodes.values():
            node.cut_power(for_us)
        self.mishaps.cut_power(self.options.store_rollback_writes)

    # The end.

    def _is_over(self, entry: Entry) -> bool:
        if self.quiescent_at >= 0:
            return entry[0] > self.quiescent_at + self._grace_us()
        is_idle = isinstance(entry[4], Wake) and all(isinstance(e[4], Wake) for e in self.heap)
        if is_idle and all(node.is_at_rest for node in self.nodes.values()):
            self.quiescent_at = self.now
            self._phase("quiescent")
        return False

    def _grace_us(self) -> int:
        """A receiver may hold what waits for messages that its zombie settled: it asks when the hole is old."""
        grace = GRACE_TIMERS * self.options.timer_us
        holds = any(node.holds for node in self.nodes.values())
        return max(grace, self.promise.calm_us) if holds else grace

    def finish(self) -> None:
        """The last rows, and what the deployment itself has found."""
        is_stuck = any(node.is_unfinished for node in self.nodes.values())
        if is_stuck and not self.limit:
            self.limit = "stuck"
        if self.limit:
            stuck = [place for life in self.begun if (place := _stuck_at(life))]
            self.stuck_at = stuck[0] if stuck else ()
        for node in self.nodes.values():
            node.bury()
        for life in self.begun:  # one whose program returned last was not buried
            life.bury()
        self.tasks.close()
        if not self.limit and self.quiescent_at < 0:
            self.quiescent_at = self.now
            self._phase("quiescent")
        nodes: dict[str, object] = {
            name: {"deadline": None, "gauges": {}, "idle": not is_stuck}
            for name in self.incarnations
        }
        for node in self.nodes.values():
            nodes |= node.standing()
        facts = {"quiescent": not self.limit, "limit": self.limit, "nodes": nodes}
        self.note("world", 0, "end", detail=as_detail(facts))
        self.found = self.deployment.end(self)

    # Rows.


def _stuck_at(life: Life) -> Sequence[tuple[str, int]]:
    return life.coroutines.stuck_at() if life.is_alive and life.coroutines is not None else ()


def _nobody_waits() -> None:
    """A store may answer again; whoever waits asks again by itself."""


# One run.


def play(subject: Deployable, options: Options, chooser: Chooser) -> World:
    """One run to its end: the world as it then is, with its rows."""
    world = World(subject, options, chooser)
    entered(world, world.outsides)
    try:
        with collector_at_rest():
            world.begin()
            if not world.limit:
                world.run()
            world.finish()
            world.outsides = [copy(one) for one in world.outsides]  # the next run has them anew
            return world
    finally:
        left()


def result_of(world: World, judge: JudgeRows | None = judge_rows) -> RunResult:
    """What a finished world amounts to. Without a judge nobody judges, the deployment neither."""
    chooser, options = world.chooser, world.options
    return RunResult(
        script=Script(world.subject.name, options.plain(), chooser.decisions(), options.seed),
        rows=world.rows,
        violations=(*world.found, *judge(world.rows)) if judge else (),
        digest=digest_of_rows(world.rows),
        events=world.events,
        marks=frozenset(world.marks),
        stale=chooser.stale,
        limit=world.limit,
        asked=tuple(f"{node}: {event.what}" for node, event in world.asked or ()),
    )


def options_of(script: Script) -> Options:
    """Those of the run that a script tells of."""
    return replace(Options.of(script.options), seed=script.seed)


def digest_of_rows(rows: Sequence[Row]) -> str:
    """The digest of a run."""
    rolling = RollingDigest()
    rolling.add_all(rows)
    return rolling.hex()
