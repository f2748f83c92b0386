"""A world whose nodes run production actors: whole pipelines, or a handler behind a pipe.

What runs in it is a *deployment*: which processes there are, which stores they share, what each of them does. The
phases are those of every run: chaos, heal, drain, quiescence. A run is over when the program of each node has
returned; a run in which one of them never does has found something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from surepipe.audit.findings import Violation
from surepipe.core.store_requests import Level
from surepipe.simulation.actors.lives import ActorNode, Life
from surepipe.simulation.actors.tasks import Tasks
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.randomness import Draws
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.events import Event, Happening
from surepipe.simulation.faults import CATALOGUE, kinds_at, names_of
from surepipe.simulation.hop import JudgeRows, digest_of_rows, judge_rows
from surepipe.simulation.network import Network
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.outside import Outside, entered, left
from surepipe.simulation.promises import Promise
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.outages import Mishaps
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.simulation.world import World, as_detail, collector_at_rest


class Deployment(Protocol):
    """What one run consists of. It is made anew for each run."""

    def begin(self, world: ActorWorld) -> None:
        """Make stores and nodes."""
        ...

    def end(self, world: ActorWorld) -> Sequence[Violation]:
        """What it finds itself, beside the judge, when all is over."""
        ...


class ActorSubject(Protocol):
    """What is simulated: the same for each run."""

    @property
    def name(self) -> str:
        """How it is called."""
        ...

    @property
    def promise(self) -> Promise:
        """What faults are drawn within, and what it is held to."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What the judge is told beyond the promise: the claims of single pipes, say."""
        ...

    def deployment(self) -> Deployment:
        """For one run."""
        ...


class ActorWorld(World):
    """Nodes with their lives, links, stores, and the outside world that outlives them all."""

    name = "world"

    def __init__(self, subject: ActorSubject, options: Options, chooser: Chooser) -> None:
        super().__init__(f"{subject.name}#{options.seed}", options, chooser)
        self.subject = subject
        self.tasks = Tasks()
        self.nodes: dict[str, ActorNode] = {}
        self.stores: dict[str, SimulatedStore] = {}
        self.streams: dict[str, None] = {}
        """Those that carry the messages of pipes: rows tell what is in them."""
        self.network = Network(self)
        self.outsides: list[Outside] = []
        self.outcome: object = None
        """What the deployment says of itself at the end, for whoever asks."""
        self.speaks: Life | None = None
        """The process whose user's code runs now."""
        self.remembers: Callable[[Life], None] = _forget
        """Told which process it is whenever that begins or goes on: each has its own memory."""
        self.speaking = ""
        """The stage that it runs in."""
        self.handling: tuple[str, int] = ("", 0)
        """The message that it handles, and which call of all calls this is."""
        self.entered = 0
        """How often user's code was called."""
        self.chances: dict[str, Draws] = {}
        self.incarnations: dict[str, int] = {}
        self.letters: dict[tuple[str, int, int], None] = {}
        """Dead letters that some store has."""
        self.is_healed = False
        self.when_done: list[Callable[[ActorNode], None]] = []
        self._is_running = True
        self._mishaps: Mishaps | None = None
        self.chaos_us = options.chaos_us
        self.deployment: Deployment | None = None

    # What deployments make.

    def add_node(
        self, name: str, program: Callable[[Life], None], *, sends: bool, receives: bool
    ) -> None:
        """A process that runs this program."""
        self.nodes[name] = ActorNode(self, name, program, sends=sends, receives=receives)

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
        self.deployment = self.subject.deployment()
        self.deployment.begin(self)
        self.chooser.plan(list(self.nodes.values()))
        self.note("world", 0, "run", detail=as_detail(self._facts()))
        self.note("world", 0, "phase", detail='{"phase":"chaos"}')
        self._mishaps = Mishaps(self, "", self.stores, self._wake_stores, self.streams)
        self.network.plan(self.chaos_us)
        self._mishaps.plan(self.chaos_us)
        self.at(self.chaos_us, self, Happening("heal", self._heal))
        for node in self.nodes.values():
            self.at(0, node, Happening("life 1", node.start))

    def _facts(self) -> dict[str, object]:
        promise, options = self.subject.promise, self.options
        return {
            "format": 1,
            "clock": "virtual",
            "subject": self.subject.name,
            "seed": options.seed,
            "options": options.plain(),
            "claim": {atom: list(names) for atom, names in promise.claim.items()},
            "faults": list(self.faults),
            "confirms": promise.confirms,
            "retries": promise.retries,
            "fault_free": self.is_fault_free,
            **self.subject.facts(),
        }

    @property
    def faults(self) -> tuple[str, ...]:
        """The names (of claims) of what may befall this run: by its options, and by what is given."""
        return names_of(self.options, chain.from_iterable(map(self._kinds, self.chooser.given())))

    def _kinds(self, decision: Decision) -> tuple[str, ...]:
        node = self.nodes.get(decision.authority.removeprefix("faults/"))
        return kinds_at(
            decision,
            sends=node is not None and node.sends,
            receives=node is not None and node.receives,
        )

    @property
    def is_fault_free(self) -> bool:
        """Nothing can go wrong in this run, and answers come before any timer: nothing calls for a repeat."""
        given = any(decision.fault for decision in self.chooser.given())
        switched = any(kind.is_on(self.options) for kind in CATALOGUE)
        return self._is_quick and not given and not switched

    @property
    def _is_quick(self) -> bool:
        options = self.options
        slow = options.timer_us if Drain(options.drain).is_slow else options.delay_us
        trip = 2 * slow + 2 * options.jitter_us + 8 * options.store_us + options.handler_us
        return trip < self.subject.promise.least_us // 2

    def take(self, event: Event) -> None:
        """A phase begins, a process is buried."""
        assert isinstance(event, Happening)
        event.act()

    def _wake_stores(self) -> None:
        """A store may answer again; whoever waits asks again by itself."""

    def _heal(self) -> None:
        self.note("world", 0, "phase", detail='{"phase":"heal"}')
        self.is_healed = True
        self.chooser.end_chaos()
        self.network.heal()
        assert self._mishaps is not None
        self._mishaps.heal()
        for node in self.nodes.values():
            node.heal()
        drain = Drain(self.options.drain)
        speed = "slow" if drain.is_slow else "fast"
        facts = {"phase": "drain", "network": speed, "load": False}
        self.note("world", 0, "phase", detail=as_detail(facts))
        if drain.is_slow:
            for link in self.network.links.values():
                link.delay_us = self.options.timer_us

    def node_is_done(self, node: ActorNode) -> None:
        """Its program has returned."""
        for told in self.when_done:
            told(node)
        if all(node.is_done for node in self.nodes.values()):
            self.heap.clear()

    def cut_power(self, for_us: int) -> None:
        """All processes and all stores end at once."""
        for node in self.nodes.values():
            for life in [*node.zombies, *([node.current] if node.current else [])]:
                node.crash(life, "power cut", "F31")
            if not node.is_done:
                node.start_after(for_us)
        assert self._mishaps is not None
        self._mishaps.cut_power(self.options.store_rollback_writes)

    def finish(self) -> Sequence[Violation]:
        """The last rows, and what the deployment itself has found."""
        is_over = all(node.is_done for node in self.nodes.values())
        if not is_over and not self.limit:
            self.limit = "stuck"
        self._bury_all()
        if not self.limit:
            self.note("world", 0, "phase", detail='{"phase":"quiescent"}')
        nodes: dict[str, object] = {
            name: {"deadline": None, "gauges": {}, "idle": is_over} for name in self.incarnations
        }
        facts = {"quiescent": not self.limit, "limit": self.limit, "nodes": nodes}
        self.note("world", 0, "end", detail=as_detail(facts))
        assert self.deployment is not None
        return self.deployment.end(self)

    def _bury_all(self) -> None:
        for node in self.nodes.values():
            for life in [*node.zombies, *([node.current] if node.current else [])]:
                life.is_alive = False
                life.bury()
        self.heap.clear()

    # Rows.

    def row_of(self, life: Life, end: str, kind: str, **columns: object) -> None:
        """A row of an end of a pipe in this process."""
        self.note(end, life.incarnations.get(end, life.number), kind, **columns)  # type: ignore[arg-type]

    def digest(self) -> str:
        """That of its rows."""
        return digest_of_rows(self.rows)

    def effect(self, where: str, text: str) -> None:
        """Something happened in the world outside."""
        self.note(where, 1, "effect", detail=as_detail({"text": text}))


def _forget(life: Life) -> None:
    """Processes without a memory of their own."""
    del life


def play(
    subject: ActorSubject, options: Options, chooser: Chooser
) -> tuple[ActorWorld, Sequence[Violation]]:
    """One run to its end: its world as it then is, and what the deployment found."""
    world = ActorWorld(subject, options, chooser)
    entered(world)
    try:
        with collector_at_rest():
            world.begin()
            world.run()
            return world, world.finish()
    finally:
        left()


def run_actors(
    subject: ActorSubject,
    options: Options | None = None,
    chooser: Chooser | None = None,
    *,
    judge: JudgeRows | None = judge_rows,
) -> RunResult:
    """One run, judged. Without a chooser chance decides, under the seed of the options."""
    options = options or Options()
    return result_of(*play(subject, options, chooser or SeededChooser(options)), judge=judge)


def result_of(
    world: ActorWorld, own: Sequence[Violation], *, judge: JudgeRows | None = judge_rows
) -> RunResult:
    """What a finished world amounts to; ``own`` is what its deployment found."""
    chooser, options = world.chooser, world.options
    judged = tuple(judge(world.rows)) if judge else ()
    return RunResult(
        script=Script(world.subject.name, options.plain(), chooser.decisions(), options.seed),
        rows=world.rows,
        violations=(*own, *judged),
        digest=world.digest(),
        events=world.events,
        marks=frozenset(world.marks),
        stale=chooser.stale,
        limit=world.limit,
        asked=tuple(f"{node}: {event.what}" for node, event in world.asked or ()),
    )
