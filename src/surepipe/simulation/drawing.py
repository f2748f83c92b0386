"""From a seed to the complete options of a run: which faults, how much of each, which workload, which drain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from surepipe.pipes.algebra.guarantees import Atom, Fault
from surepipe.simulation.faults import ALWAYS, ASKED, BY_ID, CATALOGUE, FaultKind, Mode
from surepipe.simulation.options import DRAINS, Options, Tie
from surepipe.simulation.promises import Promise
from surepipe.simulation.randomness import Draws, draws


def draw_options(
    seed: int,
    promise: Promise,
    *,
    mode: str = Mode.CLAIM,
    kinds: Sequence[FaultKind] = (),
    messages: int = 40,
    base: Options | None = None,
) -> Options:
    """The complete options of a seed: its faults, their rates, the workload and the way it is drained."""
    source = draws(seed, "options")
    allowed = list(kinds) or _with_asked(_allowed(source, promise, mode), promise, mode)
    allowed = [kind for kind in allowed if _can_occur(kind, promise)]
    start = _world(
        seed, source, promise, replace(base or Options(), mode=str(mode), messages=messages)
    )
    if mode != Mode.NONE and source.below(10) == 0 and not kinds:
        return start
    values: dict[str, int] = {}
    if source.getrandbits(1):
        for kind in source.some(allowed, 500_000) or allowed[:1]:
            values |= {r.option: r.draw(source, promise.timer_us) for r in kind.ranges}
    else:
        for kind in allowed:
            values |= {r.option: r.moderate(promise.timer_us) for r in kind.ranges}
    options = replace(start, **values)  # type: ignore[arg-type]
    return _frozen(source, options) if values else options


def _allowed(source: Draws, promise: Promise, mode: str) -> list[FaultKind]:
    """Claim: what one of the promised atoms tolerates. Break: that, and something that no atom does."""
    if mode == Mode.NONE:
        return []
    promised = [atom.value for atom in Atom if promise.tolerates(atom.value) is not None]
    tolerated = promise.tolerates(source.pick(promised)) if promised else None
    covered = (tolerated or frozenset()) | {ALWAYS}
    inside = [kind for kind in CATALOGUE if covered.issuperset(_in_a_hop(kind))]
    if mode == Mode.CLAIM:
        return inside
    outside = [
        kind
        for kind in CATALOGUE
        if kind not in inside and kind.ranges and _can_occur(kind, promise)
    ]
    return [*inside, source.pick(outside)] if outside else inside


def _with_asked(kinds: list[FaultKind], promise: Promise, mode: str) -> list[FaultKind]:
    """These, and what the subject asks for, whatever its atoms tolerate."""
    asked = [BY_ID[id_] for id_ in promise.asks if mode != Mode.NONE]
    return [*kinds, *(kind for kind in asked if kind not in kinds)]


def _in_a_hop(kind: FaultKind) -> set[str]:
    """The names that a kind has in a single hop, which has no relay."""
    return set(kind.names) - {Fault.RELAY_CRASH.value}


def _can_occur(kind: FaultKind, promise: Promise) -> bool:
    if not kind.ranges:
        return False
    if kind.needs == ASKED:
        return kind.id in promise.asks
    return not kind.needs or (
        bool(promise.stores) if kind.needs == "any" else kind.needs in promise.stores
    )


def _world(seed: int, source: Draws, promise: Promise, base: Options) -> Options:
    timer = promise.timer_us
    gap = source.pick((0, timer // 20, timer // 4))
    return replace(
        base,
        seed=seed,
        timer_us=timer,
        tie=source.pick(tuple(Tie)),
        changes=source.between(1, 3),
        shape=source.pick(("bursts", "trickle", "batches", "at-once")),
        gap_us=gap,
        batch_max=source.pick((1, 4, 16)),
        drain=source.pick(DRAINS),
        delay_us=max(1, timer // source.pick((1000, 100, 10, 3))),
        jitter_us=source.pick((0, timer // 100, timer // 10)),
        chaos_us=timer * source.between(4, 20),
        handler_us=source.pick((0, 0, timer // 10, timer // 2)),
        part_ppm=source.pick((0, 250_000)),
        store_us=source.pick((0, timer // 100)),
        drift_ppm=source.below(200),
        perturb=bool(source.getrandbits(1)),
    )


def _frozen(source: Draws, options: Options) -> Options:
    """In half of the runs one fault of the network stays on."""
    on = [id_ for id_ in ("F1", "F2", "F3", "F4", "F5") if BY_ID[id_].is_on(options)]
    return replace(options, frozen=source.pick(on)) if on and source.getrandbits(1) else options
