"""A plan in the words of the guarantee algebra: each pipe a hop, each way from source to end a chain.

What stands between two pipes is the receiver of the first one, so its boundary is the hand-over. The last hop of
a way ends in what its sink is: a store that takes part in the transaction of ``committed``, or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from surepipe.pipelines.links import AnyStore, Node
from surepipe.pipelines.models.pipes import PipePart, StoreRoute, TcpRoute
from surepipe.pipelines.models.sources import replays
from surepipe.pipelines.models.stages import SinkBase, StagePart, StreamSink, Trying
from surepipe.pipelines.models.stores import MemoryStorePart, RedisStorePart
from surepipe.pipelines.plan import Plan, Way
from surepipe.pipes.algebra import hops
from surepipe.pipes.algebra.guarantees import NO_FAULTS, PROCESS_REPLACED, Fault, Faults
from surepipe.pipes.desk import Boundary
from surepipe.store_api import Level

Levels = Mapping[str, Level]
"""What stores were found to keep, by name; it goes before what a plan can know."""

_LEVELS: Levels = {level.name.lower(): level for level in Level}


def store_of(plan: Plan, name: str, levels: Levels) -> hops.Store:
    """A store as the algebra sees it. A Redis of which nothing is known is taken for one that keeps nothing."""
    part = plan.store(name)
    return hops.Store(
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

    def store(name: str | None) -> hops.Store | None:
        return None if name is None else store_of(plan, name, levels)

    stream = store(pipe.stream_store)
    retries, letters = _trying(plan, pipe, levels)
    return hops.Hop(
        pipe.name,
        pipe.stack,
        route=_route(pipe, stream),
        boundary=pipe.settled,
        journal=store(pipe.journal),
        receiver_state=store(pipe.state),
        sink=_sink(plan, pipe, levels, end) if pipe.settled is Boundary.COMMITTED else None,
        stream=stream,
        dead_letters=letters,
        retries=retries,
        lanes=pipe.lanes or 0,
        forced_trim=_may_pass_reader(pipe),
        linked=_linked(plan, (pipe,)),
        stored=any(_is_stored(part) for part in plan.reach(pipe.name)),
        gathers=any(
            isinstance(part, StagePart) and part.batch is not None for part in plan.reach(pipe.name)
        ),
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


def _route(pipe: PipePart, stream: hops.Store | None) -> hops.Route:
    if (
        stream is not None
    ):  # calls go to the store and answers come back: nothing else is in between
        name = stream.kind if stream.kind == stream.name else f"{stream.kind} {stream.name}"
        return replace(hops.LOCAL, name=name)
    return hops.TCP if isinstance(pipe.route, TcpRoute) else hops.LOCAL


def _may_pass_reader(pipe: PipePart) -> bool:
    """A bounded stream can't spare what a reader has still to read if its position is in another store."""
    route = pipe.route
    if not (isinstance(route, StoreRoute) and pipe.has_stream):
        return False
    kept = route.retention
    is_bounded = kept.max_bytes is not None or kept.max_age_s is not None
    return kept.force or (is_bounded and pipe.state not in (None, route.store))


def _trying(plan: Plan, pipe: PipePart, levels: Levels) -> tuple[int | None, hops.Store | None]:
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


def _sink(plan: Plan, pipe: PipePart, levels: Levels, end: Node | None) -> hops.Store | None:
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
    return pipe.journal or pipe.stream_store
