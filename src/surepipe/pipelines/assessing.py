"""What a plan guarantees: pipe by pipe, end to end, against what is expected, with reasons and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from surepipe.pipelines.as_hops import Levels, chain_of, declared_level, hop_of
from surepipe.pipelines.links import link
from surepipe.pipelines.models.pipes import Expect, PipePart
from surepipe.pipelines.models.sources import HttpSource, replays
from surepipe.pipelines.models.stages import HttpSink, PythonSink, SinkBase, StagePart, Trying
from surepipe.pipelines.models.stores import RedisStorePart
from surepipe.pipelines.on_actors import actor_refusals
from surepipe.pipelines.on_spark import spark_notes, spark_refusals
from surepipe.pipelines.plan import WAYS_MAX, Plan, Way
from surepipe.pipelines.structure import Issue
from surepipe.pipes.algebra import check_claim, explain, explain_chain, refusals
from surepipe.pipes.algebra.derivation import Derived, DerivedChain, evaluate, evaluate_chain
from surepipe.pipes.algebra.explain import Explanation
from surepipe.pipes.algebra.findings import Code, Finding
from surepipe.pipes.algebra.guarantees import Claim, faults_text, together
from surepipe.pipes.algebra.hops import Chain
from surepipe.pipes.algebra.problems import joint_problems

AnyDerived: TypeAlias = Derived | DerivedChain


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one pipe, or of one way from a source to an end.

    ``refused``: why it can't be at all; there is no explanation then. ``unmet``: what of the expectations does not
    hold. ``per_key``: what holds among the messages of each key, where there are lanes.
    """

    name: str
    parts: tuple[str, ...]
    explanation: Explanation | None
    refused: tuple[Finding, ...] = ()
    expected: tuple[Claim, ...] = ()
    unmet: tuple[Finding, ...] = ()
    per_key: Claim | None = None

    @property
    def held(self) -> bool:
        """True when it is possible and does what is expected."""
        return not self.refused and not self.unmet


@dataclass(frozen=True, slots=True)
class Assessment:
    """Everything that can be said about a plan without running it."""

    plan: Plan
    pipes: tuple[Verdict, ...]
    ways: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    engine_refusals: tuple[str, ...] = ()
    """Of Spark."""
    actor_refusals: tuple[Issue, ...] = ()
    """Of the engine actors, each with its place in the file."""
    engine: str = "actors"
    """For which engine it was judged."""

    @property
    def usable(self) -> bool:
        """True when nothing is refused: the pipeline can be started."""
        refused = any(v.refused for v in (*self.pipes, *self.ways))
        return not refused and not self.engine_refusals and not self.actor_refusals

    @property
    def held(self) -> bool:
        """True when it can be started and all that is expected holds."""
        return self.usable and all(verdict.held for verdict in (*self.pipes, *self.ways))


def assess(
    plan: Plan,
    *,
    require: Sequence[Claim] = (),
    levels: Levels | None = None,
    engine: str | None = None,
) -> Assessment:
    """Derive all guarantees of a plan. Opens nothing; the same plan gives the same assessment.

    ``require``: claims that each way must meet, beside those in the plan. ``levels``: what stores were found to
    keep. ``engine``: judge for this one in place of the plan's.
    """
    known = levels or {}
    pipes = tuple(_of_pipe(plan, pipe, known) for pipe in plan.pipes)
    broken = {verdict.name for verdict in pipes if verdict.refused}
    ways = tuple(plan.ways())
    derivations: dict[Chain, _Derivation] = {}
    judged = (
        _of_way(plan, way, known, require, derivations, broken=bool(broken & {*way.names}))
        for way in ways
    )
    verdicts = tuple(verdict for verdict in judged if verdict is not None)
    on_spark = (engine or plan.engine.kind) == "spark"
    return Assessment(
        plan,
        pipes,
        verdicts,
        (*_notes(plan, known, ways), *(spark_notes(plan) if on_spark else ())),
        tuple(spark_refusals(plan)) if on_spark else (),
        () if on_spark else tuple(actor_refusals(plan)),
        "spark" if on_spark else "actors",
    )


def _of_pipe(plan: Plan, pipe: PipePart, levels: Levels) -> Verdict:
    hop = hop_of(plan, pipe, levels)
    if found := pipe_refusals(plan, pipe, levels):
        return Verdict(pipe.name, (pipe.name,), None, refused=found)
    derived = evaluate(hop)
    of_one_key = evaluate(replace(hop, lanes=0)) if hop.lanes else None
    asked = _Asked([] if pipe.expect is None else [pipe.expect])
    return asked.judge(pipe.name, (pipe.name,), derived, of_one_key, explain(derived))


def pipe_refusals(plan: Plan, pipe: PipePart, levels: Levels | None = None) -> tuple[Finding, ...]:
    """Why a pipe can't be, each with remedies that can be written into a file, at the part that they change."""
    found: list[Finding] = []
    for finding in refusals(hop_of(plan, pipe, levels or {})):
        writable = tuple(one for one in finding.remedies if one not in _NOT_IN_FILES)
        if finding.code is Code.NO_DEAD_LETTER:
            found += _without_letters(
                plan, pipe, replace(finding, remedies=("drop give_up_after_s",))
            )
        else:
            found.append(replace(finding, remedies=writable))
    return tuple(dict.fromkeys(found))


_NOT_IN_FILES = ("carry the confirms on a channel", "give the route a way back")


def _without_letters(plan: Plan, pipe: PipePart, finding: Finding) -> Iterator[Finding]:
    """Stages and sinks have retries and dead letters, and a pipe has neither."""
    parts = [
        part
        for part in plan.reach(pipe.name)
        if isinstance(part, Trying) and part.retries is not None and part.dead_letter is None
    ]
    if "retries" not in finding.why:
        yield finding
        return
    store = next((store.name for store in plan.stores), None)
    for part in parts:
        section = "sinks" if isinstance(part, SinkBase) else "stages"
        stream = f"{store or 'STORE'}/{part.name}.dead"
        new = "" if store else " and a store for it"
        yield Finding(
            Code.NO_DEAD_LETTER,
            pipe.name,
            f"after {part.retries} attempts there is no place to put the message, so the limit would lose it",
            (f"write dead_letter: {stream}{new}", "drop retries"),
            part=(section, part.name),
        )


def path_of(finding: Finding) -> tuple[str | int, ...]:
    """The word in the file that a finding is about."""
    if finding.part is not None:
        return (*finding.part, "retries")
    base = ("pipes", finding.pipe)
    if finding.layer is not None:
        return (*base, "layers", finding.layer)
    word = {
        Code.BOUNDARY: "boundary",
        Code.SPLIT_STORE: "boundary",
        Code.VOLATILE_STORE: "journal" if "journal" in finding.why else "state",
    }.get(finding.code)
    return base if word is None else (*base, word)


def _of_way(
    plan: Plan,
    way: Way,
    levels: Levels,
    require: Sequence[Claim],
    derivations: dict[Chain, _Derivation],
    *,
    broken: bool,
) -> Verdict | None:
    """None: one of its pipes is refused, so that there is nothing to derive."""
    chain = chain_of(plan, way, levels)
    if found := joint_problems(chain):
        return Verdict(chain.name, way.names, None, refused=found)
    if broken:
        return None
    asked = _Asked([] if plan.expect is None else [plan.expect], require)
    found_before = derivations.get(chain)
    if found_before is None:  # remedies are found by trying, which takes its time
        found_before = derivations[chain] = _derivation(chain)
    return asked.judge(chain.name, way.names, *found_before)


_Derivation: TypeAlias = tuple[AnyDerived, AnyDerived | None, Explanation]
"""What was derived, the same of one key where there are lanes, and the words for it."""


def _derivation(chain: Chain) -> _Derivation:
    has_lanes = any(hop.lanes for hop in chain.hops)
    straight = replace(chain, hops=tuple(replace(hop, lanes=0) for hop in chain.hops))
    if len(chain.hops) == 1:
        derived = evaluate(chain.hops[0])
        return derived, evaluate(straight.hops[0]) if has_lanes else None, explain(derived)
    whole = evaluate_chain(chain)
    return whole, evaluate_chain(straight) if has_lanes else None, explain_chain(whole)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What must hold: what the file expects, and what was required beside it."""

    expected: Sequence[Expect]
    required: Sequence[Claim] = ()

    def judge(
        self,
        name: str,
        parts: tuple[str, ...],
        derived: AnyDerived,
        of_one_key: AnyDerived | None,
        explanation: Explanation,
    ) -> Verdict:
        """The verdict about what was derived; ``of_one_key``: the same without lanes, where there are some."""
        linked = derived.hop.linked if isinstance(derived, Derived) else derived.chain.linked
        required = [claim.bound(linked) for claim in self.required]
        expected = [(one.per, one.claim.bound(linked)) for one in self.expected]
        unmet = [finding for claim in required for finding in check_claim(derived, claim)]
        for per, claim in expected:
            if per == "key":
                unmet += check_claim(of_one_key or derived, claim)
            else:
                unmet += _across_keys(derived, of_one_key, claim)
        claims = (*(claim for _, claim in expected), *required)
        per_key = None if of_one_key is None else of_one_key.headline
        return Verdict(name, parts, explanation, (), claims, tuple(dict.fromkeys(unmet)), per_key)


def _across_keys(
    derived: AnyDerived, of_one_key: AnyDerived | None, claim: Claim
) -> Iterator[Finding]:
    """What of a claim about all messages does not hold; where it would per key, that is a remedy."""
    is_met_per_key = of_one_key is not None and not check_claim(of_one_key, claim)
    for finding in check_claim(derived, claim):
        more = ("expect the order per: key",) if is_met_per_key else ()
        yield replace(finding, remedies=(*more, *finding.remedies))


# Notes.


def _notes(plan: Plan, levels: Levels, ways: Sequence[Way]) -> Iterator[str]:
    yield from _about_stores(plan, levels)
    yield from _about_expectations(plan, ways)
    for source in plan.sources:
        if isinstance(source, HttpSource):
            yield (
                f"source {source.name}: a client is answered when its message is accepted; one that gets no "
                "answer must send it again, and that is another message"
            )
        elif not replays(source):
            first = " and ".join(part.name for part in plan.takers(source.name))
            yield (
                f"source {source.name} can't be read again: the guarantee begins when {first} has accepted a "
                "message, and what was read before that ends with the process"
            )
    yield from _about_sinks(plan)
    yield from _about_stages(plan)
    yield from _about_fan_in(plan, ways)
    if len(ways) >= WAYS_MAX:
        yield f"there are more than {WAYS_MAX} ways; the first {WAYS_MAX} were judged"


def _about_expectations(plan: Plan, ways: Sequence[Way]) -> Iterator[str]:
    """Who names one end of a process names the process."""
    asked = [
        (f"pipe {pipe.name} expects", pipe.expect, hop_of(plan, pipe, {}).linked)
        for pipe in plan.pipes
    ]
    asked += [("expect names", plan.expect, chain_of(plan, way, {}).linked) for way in ways[:1]]
    for where, expect, linked in asked:
        if expect is None:
            continue
        claim = expect.claim
        meant = claim.bound(linked).tolerates
        if meant != claim.tolerates:
            words = faults_text(together(meant - claim.tolerates, linked))
            named = faults_text(claim.tolerates & together(meant - claim.tolerates, linked))
            yield f"{where} {named}; these ends are in one process, so it is judged as {words}: write that"


def _about_stores(plan: Plan, levels: Levels) -> Iterator[str]:
    used = {use.store for part in plan.parts for use in link(part).stores}
    for store in plan.stores:
        if store.name not in used:
            yield f"store {store.name} is used by nothing"
        elif (
            isinstance(store, RedisStorePart)
            and store.durability is None
            and store.name not in levels
        ):
            yield (
                f"store {store.name} was not asked what it keeps, so it is taken for one that keeps nothing: "
                "use --probe, or write durability"
            )
        elif isinstance(store, RedisStorePart) and (
            levels.get(store.name, declared_level(store)) < declared_level(store)
        ):
            yield (
                f"store {store.name} is declared {store.durability}, and its server's settings give only "
                f"{levels[store.name]}, which counts here: change its settings, or declare what it keeps"
            )


def _about_sinks(plan: Plan) -> Iterator[str]:
    for sink in plan.sinks:
        if isinstance(sink, PythonSink | HttpSink) and sink.idempotent:
            yield f"sink {sink.name} is declared idempotent: a message that comes again has no second effect there"


def _about_stages(plan: Plan) -> Iterator[str]:
    for stage in plan.stages:
        if stage.kind == "filter":
            yield f"{stage.name} filters: what it leaves out is no loss and no gap"
    for part in (*plan.stages, *plan.sinks):
        if part.time_limit_s is not None:
            yield (
                f"{part.name}: an attempt that takes longer than {part.time_limit_s} s counts as failed and is "
                "repeated, though it may have had its effect"
            )


def _about_fan_in(plan: Plan, ways: Sequence[Way]) -> Iterator[str]:
    """A message that reaches one end on two ways is there twice, however exactly each way delivers it."""
    counts = Counter((way.source, way.end) for way in ways)
    for (source, end), number in counts.items():
        if number > 1:
            yield f"{end} gets each message of {source} {number} times: once on each way"
    for part in plan.parts:
        feeders = plan.feeders(part.name)
        if isinstance(part, PipePart | StagePart) and len(feeders) > 1:
            yield (
                f"{part.name} is fed by {' and '.join(feeders)}: the order of each is kept, and how they mix "
                "is as they come"
            )
