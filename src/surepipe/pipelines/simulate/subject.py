"""A plan as the subject of simulated runs: what it promises, and what one run of it consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from surepipe.core.claims import Atom, Guarantee, in_order
from surepipe.errors import ConfigurationError
from surepipe.guarantees.derivation import evaluate, evaluate_chain
from surepipe.guarantees.hops import LOSSY_ROUTE, Hop
from surepipe.pipelines.assessing import Assessment, assess, chain_of, hop_of
from surepipe.pipelines.engine_limits import key_words
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import StagePart, Trying
from surepipe.pipelines.plan import Plan, Way
from surepipe.pipelines.run.pipes import stream_name
from surepipe.pipelines.simulate.deployment import PlanDeployment
from surepipe.pipelines.simulate.ends import Reference
from surepipe.pipelines.simulate.functions import Functions
from surepipe.pipelines.simulate.memory import ProcessMemory
from surepipe.pipes.options import BacklogOptions, micros
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.explore.hops import STATES_MAX, HopExplored, explore_hops
from surepipe.simulation.promises import Promise

if TYPE_CHECKING:
    from surepipe.pipelines.simulate.sandbox import Double


TIMER_US = 200_000


@dataclass(frozen=True)
class PlanSubject:
    """A plan with its messages, ready for any number of runs."""

    plan: Plan
    messages: Mapping[str, Sequence[object]]
    """of each source"""
    functions: Callable[[], Functions]
    """the user's functions, for one run"""
    aside: Mapping[str, Mapping[bytes, str]] = field(default_factory=dict[str, Mapping[bytes, str]])
    """of each source: the rows that are no messages, and why"""
    reference: Reference = field(default_factory=Reference)
    """what is to come of these messages"""
    references: dict[int, Reference] = field(
        default_factory=dict[int, Reference], compare=False, repr=False
    )
    """where that comes from, for numbers of messages that were asked for before"""
    forgotten: dict[tuple[str, str], None] = field(
        default_factory=dict[tuple[str, str], None], compare=False, repr=False
    )
    """sentences about what stages began in runs so far, and nobody awaited, each with its stage"""
    modules: tuple[ModuleType, ...] = ()
    """those of the stages"""
    doubles: tuple[Double, ...] = ()
    """of functions that stages call"""
    memory: ProcessMemory = field(default_factory=ProcessMemory, compare=False, repr=False)
    """of the stages: what each process has for itself"""
    needs_all: bool = False
    """there is a check that speaks of all messages: no run, however short, goes without one of them"""

    @property
    def most(self) -> int:
        """How many messages the longest source has."""
        return max((len(messages) for messages in self.messages.values()), default=0)

    @property
    def name(self) -> str:
        """The plan's."""
        return self.plan.name

    @cached_property
    def assessment(self) -> Assessment:
        """What is promised, and what is expected."""
        return assess(self.plan)

    @cached_property
    def claims(self) -> dict[str, dict[str, list[str]]]:
        """Of each pipe, by its name in traces: the faults that each atom tolerates."""
        return {
            f"{self.plan.name}/{pipe.name}": _claim(
                evaluate(_as_told(pipe, _judged(_exposed(hop_of(self.plan, pipe, {}))))).guarantee
            )
            for pipe in self.plan.pipes
        }

    @cached_property
    def ways(self) -> dict[Way, dict[str, list[str]]]:
        """The same from each source to each end."""
        return {way: _claim(self._derived(way)) for way in self.plan.ways()}

    @cached_property
    def ways_by_key(self) -> dict[str, frozenset[str]]:
        """Of each end that one way leads to, through pipes that all tell the same key, or one book: the faults
        through which each key keeps its order there; without an end that promises none."""
        found: dict[str, frozenset[str]] = {}
        for way in self.plan.ways():
            if self._keyed_pipes(way) and not self._why_not_by_key(way):
                claim = _claim(self._derived(way, by_key=True))
                if "monotonic" in claim:
                    found[way.end] = frozenset(claim["monotonic"])
        return found

    def keeps_order(self, pipe: PipePart) -> bool:
        """Whether messages come out of it as they went in when nothing goes wrong: those of one key, where there
        are keys."""
        hop = replace(_judged(_exposed(hop_of(self.plan, pipe, {}))), lanes=0)
        return Atom.MONOTONIC in _claim(evaluate(hop).guarantee)

    def not_judged_by_key(self) -> dict[str, str]:
        """Of the other ends behind lanes: why what comes of each key there is not compared with its order."""
        ways = [way for way in self.plan.ways() if self._keyed_pipes(way)]
        return {way.end: why for way in ways if (why := self._why_not_by_key(way))}

    def _keyed_pipes(self, way: Way) -> list[PipePart]:
        parts = [self.plan.part(name) for name in way.names]
        return [part for part in parts if isinstance(part, PipePart) and part.workers]

    def _why_not_by_key(self, way: Way) -> str:
        keyed = self._keyed_pipes(way)
        words = sorted({str(word) for pipe in keyed for word in key_words(self.plan, pipe)})
        if len(words) > 1:
            return f"its pipes tell different keys ({', '.join(words)})"
        if len(keyed) > 1 and any(pipe.book is not None for pipe in keyed):
            return "there is a book beside other pipes with keys"
        several = sum(other.end == way.end for other in self.plan.ways()) > 1
        return "several ways lead there" if several else ""

    def _derived(self, way: Way, *, by_key: bool = False) -> Guarantee:
        chain = chain_of(self.plan, way, {})
        exposed = replace(chain, hops=tuple(_judged(_exposed(hop)) for hop in chain.hops))
        if by_key:
            exposed = replace(exposed, hops=tuple(replace(hop, lanes=0) for hop in exposed.hops))
        if len(exposed.hops) == 1:
            return evaluate(exposed.hops[0]).guarantee
        return evaluate_chain(exposed).guarantee

    @property
    def promise(self) -> Promise:
        """What all of it tolerates together."""
        return self._promise

    @cached_property
    def _promise(self) -> Promise:
        claims = [*self.claims.values(), *self.ways.values()]
        atoms = [atom for atom in claims[0] if all(atom in claim for claim in claims)]
        together = {
            atom: tuple(
                fault for fault in claims[0][atom] if all(fault in claim[atom] for claim in claims)
            )
            for atom in atoms
        }
        layers = [layer for pipe in self.plan.pipes for layer in pipe.stack]
        timers = [layer for layer in layers if isinstance(layer, BacklogOptions)]
        return Promise(
            claim=together,
            timer_us=min((micros(layer.rto_initial_s) for layer in timers), default=TIMER_US),
            least_us=min((micros(layer.rto_min_s) for layer in timers), default=TIMER_US),
            confirms=all(_confirms(pipe) for pipe in self.plan.pipes),
            retries=self._retries,
            stores=frozenset(_roles(self.plan)),
        )

    @property
    def _retries(self) -> int | None:
        found = [
            part.retries for part in self.plan.parts if isinstance(part, Trying) and part.retries
        ]
        found += [pipe.book.retries for pipe in self.plan.pipes if pipe.book is not None]
        return min(found, default=None)

    def facts(self) -> Mapping[str, object]:
        """Facts for the judge: the claims of single pipes, their journals and lanes, the streams that keep
        positions first, how often a message may fail in each stage, and with how many others, and how often a
        delivery calls one."""
        pipes, name = self.plan.pipes, self.plan.name
        journals = [f"{name}/{pipe.name}" for pipe in pipes if pipe.journal is not None]
        before = [
            stream_name(self.plan, pipe)
            for pipe in pipes
            if pipe.stream_store is not None and pipe.settled is Boundary.BEFORE
        ]
        facts: dict[str, object] = {"claims": self.claims, "journals": journals}
        facts |= {"before": before} if before else {}
        lanes = [f"{name}/{pipe.name}" for pipe in pipes if pipe.lanes]
        facts |= {"lanes": lanes} if lanes else {}
        allowed = {
            part.name: (part.retries or 0) if pipe.book is None else pipe.book.retries
            for pipe in pipes
            for part in self.plan.reach(pipe.name)
            if isinstance(part, Trying)
        }
        facts |= {"allowed": allowed} if any(allowed.values()) else {}
        together = {
            part.name: max(batches)
            for pipe in pipes
            if (batches := self._batches(pipe))
            for part in self.plan.reach(pipe.name)
            if isinstance(part, Trying)
        }
        facts |= {"together": together} if together else {}
        several = {part.name: most for part in self.plan.parts if (most := self._entered(part)) > 1}
        return facts | ({"entered": several} if several else {})

    def _batches(self, pipe: PipePart) -> list[int]:
        reached = (part for part in self.plan.reach(pipe.name) if isinstance(part, StagePart))
        return [part.batch.max for part in reached if part.batch is not None]

    def _entered(self, part: Node) -> int:
        """On how many ways a delivery of one pipe comes to a stage or sink, before it is in another pipe."""
        return max(_ways_to(self.plan, part).values(), default=0)

    def deployment(self) -> PlanDeployment:
        self.memory.reset()
        return PlanDeployment(
            self.plan,
            self.messages,
            self.functions(),
            self.ways,
            self.reference,
            ways_by_key=self.ways_by_key,
            aside=self.aside,
            memory=self.memory,
        )


def _ways_to(plan: Plan, part: Node) -> Counter[str]:
    """The same for each pipe."""
    found = Counter[str]()
    for name in plan.feeders(part.name):
        feeder = plan.part(name)
        found += Counter([name]) if isinstance(feeder, PipePart) else _ways_to(plan, feeder)
    return found


def _claim(guarantee: Guarantee) -> dict[str, list[str]]:
    return {str(atom): list(in_order(faults)) for atom, faults in guarantee.items()}


def _exposed(hop: Hop) -> Hop:
    """The same over a route that exhibits every fault: under simulation also the local one does."""
    return hop if hop.stream is not None else replace(hop, route=LOSSY_ROUTE)


def _judged(hop: Hop) -> Hop:
    """A queue that stands still at a message until a person comes loses nothing, and yet no run shows the rest."""
    return replace(hop, parks=("block",)) if hop.blocks else hop


def _as_told(pipe: PipePart, hop: Hop) -> Hop:
    """Rows of a book tell each key by itself."""
    return hop if pipe.book is None else replace(hop, lanes=0)


def _confirms(pipe: PipePart) -> bool:
    return pipe.book is None and any(layer.confirms for layer in pipe.stack)


def _roles(plan: Plan) -> list[str]:
    roles: list[str] = []
    for pipe in plan.pipes:
        roles += ["journal"] if pipe.journal else []
        roles += ["state"] if pipe.state else []
        roles += ["stream", "restarted stream"] if pipe.stream_store else []
    return roles


def require_pipes(plan: Plan) -> None:
    """Raises ConfigurationError for a plan without anything to simulate."""
    if not plan.pipes:
        raise ConfigurationError(f"{plan.name} has no pipe: there is nothing to simulate")
    if between := [pipe.name for pipe in plan.pipes if pipe.ibc is not None]:
        raise ConfigurationError(
            f"pipe {between[0]} goes between two parties, whose keys and files a simulation doesn't have: "
            "simulate what is before it and what is behind it as files of their own"
        )


# The pipes of a plan under every schedule of a small scope, the faults that they promise to survive included.


MESSAGES = 3


def explore_plan_hops(
    plan: Plan, *, messages: int = MESSAGES, states_max: int = STATES_MAX
) -> tuple[HopExplored, ...]:
    """Explore each pipe of a plan, its stages taken for the identity.

    With the states that are the default this takes at most about a minute; a pipe whose schedules are more is
    ``bounded, not exhausted``. ``str`` of each answer is its report: the verdict, scope by scope, and what was not
    tried. The same plan gives the same answer. Raises ConfigurationError for a plan without pipes.
    """
    require_pipes(plan)
    hops = [hop_of(plan, pipe, {}) for pipe in plan.pipes]
    return explore_hops(hops, messages=messages, states_max=states_max)
