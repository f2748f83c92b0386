"""What a plan guarantees: pipe by pipe, end to end, against what is expected, with reasons and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from surepipe.core.claims import (
    NO_FAULTS,
    PROCESS_REPLACED,
    Atom,
    Claim,
    Fault,
    Faults,
    Guarantee,
    delivers_told,
    faults_text,
    promise_told,
    together,
)
from surepipe.core.store_requests import Level
from surepipe.guarantees import check_claim, explain, explain_chain, hops, refusals
from surepipe.guarantees.derivation import Derived, DerivedChain, evaluate, evaluate_chain
from surepipe.guarantees.explain import Explanation
from surepipe.guarantees.hops import Chain
from surepipe.guarantees.problems import Code, Finding, joint_problems
from surepipe.pipelines.engine_limits import (
    actor_refusals,
    delivery_on_spark,
    spark_notes,
    spark_refusals,
)
from surepipe.pipelines.links import Node, link
from surepipe.pipelines.models.pipes import (
    BookRoutePart,
    Expect,
    PartyPart,
    PipePart,
    StoreRoutePart,
    TcpRoutePart,
)
from surepipe.pipelines.models.sources import HttpSource, replays
from surepipe.pipelines.models.stages import (
    HttpSink,
    PythonSink,
    RmqSink,
    SinkBase,
    StagePart,
    StreamSink,
    Trying,
)
from surepipe.pipelines.models.stores import AnyStore, MemoryStorePart, RedisStorePart
from surepipe.pipelines.plan import WAYS_MAX, Plan, Way
from surepipe.pipelines.structure import Issue
from surepipe.pipes.stack.boundary import Boundary

# A plan in the words of the guarantee algebra: each pipe a hop, each way from source to end a chain.
#
# What stands between two pipes is the receiver of the first one, so its boundary is the hand-over. The last hop
# of a way ends in what its sink is: a store that takes part in the transaction of ``committed``, or not.


Levels = Mapping[str, Level]
"""What stores were found to keep, by name; it goes before what a plan can know."""

_LEVELS: Levels = {level.name.lower(): level for level in Level}


def store_of(plan: Plan, name: str, levels: Levels) -> hops.DeclaredStore:
    """A store as the algebra sees it. A Redis of which nothing is known is taken for one that keeps nothing."""
    part = plan.store(name)
    return hops.DeclaredStore(
        name,
        levels.get(name, declared_level(part)),
        kind=part.kind,
        transactional=not (isinstance(part, RedisStorePart) and part.spread == "stream"),
        declared=isinstance(part, RedisStorePart)
        and part.durability is not None
        and name not in levels,
    )


def declared_level(part: AnyStore) -> Level:
    """What a store keeps, as far as the plan says it."""
    if isinstance(part, MemoryStorePart) or part.durability is None:
        return Level.NONE
    return _LEVELS[part.durability]


def hop_of(plan: Plan, pipe: PipePart, levels: Levels, end: Node | None = None) -> hops.Hop:
    """A pipe as the algebra sees it. ``end``: where the way ends that is asked about; None: all its ends."""

    def store(name: str | None) -> hops.DeclaredStore | None:
        return None if name is None else store_of(plan, name, levels)

    stream = store(pipe.stream_store)
    if (taking := store(pipe.taking_store)) is not None and stream is not None:
        stream = min(stream, taking, key=lambda each: each.level)
    retries, letters = _trying(plan, pipe, levels)
    journal = store(pipe.journal)
    if (book := pipe.book) is not None and stream is not None:
        # What feeds a book moves in one step with what it takes in, as with a journal.
        journal = None if stream.volatile else stream
        retries, letters = book.retries, stream
    between = pipe.ibc
    if between is not None and between.dead_letter is not None:
        returned = store_of(plan, between.dead_letter.partition("/")[0], levels)
        letters = (
            returned if letters is None else min(letters, returned, key=lambda each: each.level)
        )
    return hops.Hop(
        pipe.name,
        pipe.stack,
        route=_route(pipe, stream),
        boundary=pipe.settled,
        journal=journal,
        receiver_state=store(pipe.state),
        sink=_sink(plan, pipe, levels, end) if pipe.settled is Boundary.COMMITTED else None,
        stream=stream,
        dead_letters=letters,
        retries=retries,
        lanes=pipe.workers,
        forced_trim=_may_pass_reader(pipe),
        linked=_linked(plan, (pipe,)),
        stored=any(_is_stored(part) for part in plan.reach(pipe.name)),
        gathers=any(
            isinstance(part, StagePart) and part.batch is not None for part in plan.reach(pipe.name)
        ),
        parks=None if book is None else book.parking,
        blocks=book is not None and "block" in (book.on_overweight, book.on_poison),
        limited=between is not None and between.timeout_s is not None,
        unordered=between is not None and between.order == "unordered",
    )


def chain_of(plan: Plan, way: Way, levels: Levels) -> hops.Chain:
    """A way as a chain of its pipes. (What it says of the last sink is about this way's.)"""
    pipes = [plan.pipe(name) for name in way.names if isinstance(plan.part(name), PipePart)]
    end = plan.part(way.end)
    inner = tuple(hop_of(plan, pipe, levels) for pipe in pipes[:-1])
    first, *others = (*inner, hop_of(plan, pipes[-1], levels, end))
    source = next(one for one in plan.sources if one.name == way.source)
    first = replace(first, reread=replays(source))
    hand_over = tuple(pipe.settled for pipe in pipes[:-1])
    name, linked = f"{way.source} to {way.end}", _linked(plan, pipes)
    return hops.Chain(name, (first, *others), hand_over, linked)


def _linked(plan: Plan, pipes: Sequence[PipePart]) -> tuple[Faults, ...]:
    """Faults that strike together, as the ends that they strike are in one process.

    1. A person names sender-crash and receiver-crash of two pipes in a row, and thinks of the process.
    2. That process is the relay between the two pipes, too, and kill -9 asks nobody which end was meant.
    3. So what the relay repeats counts, although nobody named relay-crash.
    """
    receivers = [plan.places[pipe.name].node for pipe in pipes]
    ends = {
        Fault.SENDER_CRASH: {plan.places[pipes[0].name].sender},
        Fault.RECEIVER_CRASH: {receivers[-1]},
        Fault.RELAY_CRASH: set(receivers[:-1]),
    }
    pairs = (
        frozenset({one, other}) for one, other in combinations(ends, 2) if ends[one] & ends[other]
    )
    crash = NO_FAULTS.union(*pairs)
    if len(pipes) == 1 and crash:
        crash |= {Fault.RELAY_CRASH}  # there is none
    # Between two pipes there is always a process that is receiver and sender.
    replaced = PROCESS_REPLACED if crash or len(pipes) > 1 else NO_FAULTS
    return tuple(filter(None, (crash, replaced)))


def _route(pipe: PipePart, stream: hops.DeclaredStore | None) -> hops.DeclaredRoute:
    if (
        stream is not None
    ):  # calls go to the store and answers come back: nothing else is in between
        name = stream.kind if stream.kind == stream.name else f"{stream.kind} {stream.name}"
        if (between := pipe.ibc) is not None:
            name = f"ibc {between.sends.party} to {between.receives.party}"
        return replace(hops.LOCAL, name=name)
    return hops.TCP if isinstance(pipe.route, TcpRoutePart) else hops.LOCAL


def _may_pass_reader(pipe: PipePart) -> bool:
    """A bounded stream can't spare what a reader has still to read if its position is in another store."""
    route = pipe.route
    if not (isinstance(route, StoreRoutePart) and pipe.has_stream):
        return False
    kept = route.retention
    is_bounded = kept.max_bytes is not None or kept.max_age_s is not None
    return kept.force or (is_bounded and pipe.state not in (None, route.store))


def _trying(
    plan: Plan, pipe: PipePart, levels: Levels
) -> tuple[int | None, hops.DeclaredStore | None]:
    """After how many attempts the receiver gives a message up, and the weakest place that it then goes to."""
    limited = [
        part
        for part in plan.reach(pipe.name)
        if isinstance(part, Trying) and part.retries is not None
    ]
    if not limited:
        return None, None
    retries = min(part.retries or 1 for part in limited)
    if any(part.dead_letter is None for part in limited):
        return retries, None
    named = {(part.dead_letter or "").partition("/")[0] for part in limited}
    stores = [store_of(plan, name, levels) for name in sorted(named)]
    return retries, min(stores, key=lambda store: store.level)


def _sink(
    plan: Plan, pipe: PipePart, levels: Levels, end: Node | None
) -> hops.DeclaredStore | None:
    """The store that the effects of a pipe are committed to; None when one of them is in no store of ours."""
    state = pipe.state or pipe.stream_store
    if state is None:
        return None
    reached = [end] if end is not None else list(plan.reach(pipe.name))
    for part in reached:
        goes_to = _commits_to(plan, part, state)
        if goes_to != state:
            return None if goes_to is None else store_of(plan, goes_to, levels)
    return store_of(plan, state, levels)


def _commits_to(plan: Plan, part: Node, state: str) -> str | None:
    """The store that holds what a part does, if the cursor is in ``state``; None: no transaction has it."""
    if isinstance(part, StreamSink):
        return part.store
    if isinstance(part, SinkBase):
        return state if part.commits else None
    if isinstance(part, PipePart):
        return _taken_into(part)
    if isinstance(part, StagePart) and plan.takers(part.name):
        return state  # not an end: what follows it says
    return state  # the function's effect, in the transaction of its context


def _is_stored(part: Node) -> bool:
    return isinstance(part, StreamSink) or (
        isinstance(part, PipePart) and _taken_into(part) is not None
    )


def _taken_into(pipe: PipePart) -> str | None:
    """Where a pipe keeps what it has accepted."""
    return pipe.journal or pipe.taking_store


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
    expected_per_key: frozenset[Claim] = frozenset()
    """those of ``expected`` that are about the messages of one key each"""
    of_one_key: Guarantee | None = None
    """all that holds among the messages of each key, where there are lanes"""

    @property
    def held(self) -> bool:
        """True when it is possible and does what is expected."""
        return not self.refused and not self.unmet

    @property
    def tolerates(self) -> Faults:
        """The faults through which it does what it promises."""
        return self.explanation.headline.tolerates if self.explanation else NO_FAULTS

    def delivers(self, engine: str = "actors") -> str:
        """``exactly-once, absolute order per key, no order across keys``: in these words, whoever shows it."""
        if self.explanation is None:
            return "refused"
        claim = self.explanation.headline
        word = delivery_on_spark(claim.delivery) if engine == "spark" else claim.delivery
        return delivers_told(claim, self.per_key, word)

    @property
    def promise(self) -> str:
        """The same, and through which faults."""
        return self.promised(self.tolerates)

    def claims(self) -> Sequence[Claim]:
        """What it promises, and then what of that survives more, the strongest first."""
        if self.explanation is None:
            return ()
        headline = self.explanation.headline
        survives = {one.atom: one.survives for one in self.explanation.atoms if one.survives}
        weaker = {
            Claim(frozenset(atom for atom, more in survives.items() if faults <= more), faults)
            for faults in survives.values()
            if not faults <= headline.tolerates
        }
        return (headline, *sorted(weaker, key=lambda one: (-len(one.atoms), str(one))))

    def promised(self, through: Faults, claim: Claim | None = None) -> str:
        """The same, through these of the faults; or one of its claims."""
        if self.explanation is None:
            return "refused"
        told = claim or self.explanation.headline
        per_key = self.per_key
        if claim is not None and self.of_one_key is not None:
            atoms = (atom for atom in Atom if self.of_one_key.holds(atom, told.tolerates))
            per_key = Claim(frozenset(atoms), told.tolerates)
        return promise_told(replace(told, tolerates=through), per_key)


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
    """All demands on the plan: those of the file, and those of the caller."""

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
                unmet += _within_keys(derived, of_one_key, claim)
            else:
                unmet += _across_keys(derived, of_one_key, claim)
        claims = (*(claim for _, claim in expected), *required)
        per_key = None if of_one_key is None else of_one_key.headline
        asked_per_key = frozenset(claim for per, claim in expected if per == "key")
        found = tuple(dict.fromkeys(unmet))
        straight = None if of_one_key is None else of_one_key.guarantee
        return Verdict(
            name, parts, explanation, (), claims, found, per_key, asked_per_key, straight
        )


def _within_keys(
    derived: AnyDerived, of_one_key: AnyDerived | None, claim: Claim
) -> Iterator[Finding]:
    """What of a claim per key does not hold, with the remedies for the pipe as it is, lanes included."""
    if of_one_key is None:
        yield from check_claim(derived, claim)
        return
    with_lanes = {finding.faults: finding.remedies for finding in check_claim(derived, claim)}
    for finding in check_claim(of_one_key, claim):
        yield replace(finding, remedies=with_lanes.get(finding.faults, finding.remedies))


def _across_keys(
    derived: AnyDerived, of_one_key: AnyDerived | None, claim: Claim
) -> Iterator[Finding]:
    """The part of a claim about all messages that does not hold; where it would hold per key, the remedy says
    so."""
    is_met_per_key = of_one_key is not None and not check_claim(of_one_key, claim)
    for finding in check_claim(derived, claim):
        more = ("expect the order per: key",) if is_met_per_key else ()
        yield replace(finding, remedies=(*more, *finding.remedies))


# Notes.


UNUSED = "is used by nothing"


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
    yield from _about_books(plan)
    yield from _about_parties(plan)
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
            yield f"store {store.name} {UNUSED}"
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
        if isinstance(sink, RmqSink):
            from surepipe.pipelines.clusters import rests_on

            yield f"sink {sink.name} rests on: {rests_on(sink.cluster, sink.until)}"


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


def _about_parties(plan: Plan) -> Iterator[str]:
    """What a route between parties rests on."""
    for pipe in plan.pipes:
        if (between := pipe.ibc) is not None:
            days = between.trusting_days
            one, other = between.sends.party, between.receives.party
            yield (
                f"pipe {pipe.name} rests on: more than 2/3 of the power of the validators of {one} and {other} "
                f"is honest; one honest relay runs; outages and delays are shorter than {days / 3:.3g} days (a "
                f"third of the trusting period of {days:g}); beyond that it may stand until an operator helps"
            )
            for side in (between.sends, between.receives):
                yield _about_keeping(plan, pipe.name, side)
            if between.timeout_s is not None:
                yield (
                    f"pipe {pipe.name}: what {other} has not received {between.timeout_s:g} s after {one} sent "
                    f"it, by {other}'s own signed clock, comes back into {between.dead_letter}, and can't be "
                    "executed any more"
                )


def _about_keeping(plan: Plan, pipe: str, side: PartyPart) -> str:
    """Who could change what a party believes."""
    store = next((one for one in plan.stores if one.name == side.store), None)
    rests = f"pipe {pipe} rests on: nobody but {side.party} writes what is in store {side.store}"
    if not isinstance(store, RedisStorePart):
        return rests
    keys = store.keys or plan.name
    return (
        f"{rests} (keys sp:{{{keys}}}:*). From Redis 7 on a relay does with an account that reads these and "
        f"writes sp:{{{keys}/ibc/inbox/RELAY}}:*, which `surepipe relay acl` prints; before, whoever may read "
        "may write"
    )


KEYS_SAID = 1_000
"""For so many keys with messages it is said how long one of them may wait."""


def _about_books(plan: Plan) -> Iterator[str]:
    for pipe in plan.pipes:
        book = pipe.book
        if book is None:
            continue
        yield f"pipe {pipe.name}: {_longest_wait(book)}"
        if book.parking:
            settings = " and ".join(f"{name}: park" for name in book.parking)
            yield (
                f"pipe {pipe.name}: with {settings}, what can't be served is kept until a person has looked at "
                "it: surepipe book list shows it"
            )
        if book.refuse_pages is not None:
            yield (
                f"pipe {pipe.name}: when {book.refuse_pages} pages wait for one key, what feeds the pipe waits, "
                "and with it the messages of other keys behind that one"
            )
        yield (
            f"pipe {pipe.name}: after a crash up to {book.commit_messages} messages of each key that was being "
            "served come again; a stream sink, or one that heeds the message's id, has them once"
        )


def _longest_wait(book: BookRoutePart) -> str:
    """The bound of how long a message waits that finds its queue empty."""
    each = book.period_s
    if book.budget is None:
        return "no budget is given, so nothing limits the rate"
    if book.policy == "rotate":
        return (
            f"of k keys with messages a new one waits for k + 1 periods at the most: "
            f"{(KEYS_SAID + 1) * each:g} s for {KEYS_SAID:,} keys"
        )
    rate = getattr(book.budget, book.fair_by)
    if rate is None:
        return f"the budget does not bound {book.fair_by}, so how long a key waits is not bounded"
    most = book.max_message_cost or book.budget
    largest = 1 if book.fair_by == "messages" else getattr(most, book.fair_by) or rate
    turn = book.quantum + 2 * largest
    bound = KEYS_SAID * turn / rate * each + each
    return (
        f"of k keys with messages a new one waits for k x (quantum {book.quantum} + 2 x {largest}) / {rate} "
        f"{book.fair_by} x {each:g} s + {each:g} s at the most: {bound:,.0f} s for {KEYS_SAID:,} keys; the fewer "
        "messages they have, the less"
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
