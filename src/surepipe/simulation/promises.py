"""What a subject promises, in numbers: claim, bounds, timers. The judge is told this in the row ``run``.

A ``HopSubject`` promises what the algebra derives for its stack, a ``Layout`` what it derives for its chains.
Another subject says it itself, by a method ``promise``; without one it is held only to what holds always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast, runtime_checkable

from surepipe.audit.properties.refinement import PATTERNS
from surepipe.core.claims import Fault, Guarantee, in_order
from surepipe.core.store_requests import Level
from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.guarantees.derivation import evaluate_chain
from surepipe.guarantees.hops import LOSSY_ROUTE, Chain, DeclaredStore, Hop, one_way
from surepipe.pipes.catalogue import kind_of
from surepipe.pipes.options import BacklogOptions, LayerOptions, RetryOptions, micros
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.subjects import HopSubject, Layout, PipeBetween, Subject

SECOND = 1_000_000


@dataclass(frozen=True)
class Promise:
    """What a subject promises. ``claim`` has the faults that each atom tolerates, by the names of both."""

    claim: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    timer_us: int = SECOND
    """the first timeout"""
    least_us: int = SECOND
    """the shortest that a timeout may get, once round trips have been seen"""
    calm_us: int = 4 * SECOND
    """after the faults: how long the longest pause between two attempts may still last, all layers together"""
    rounds: int = 4
    """round trips beyond those that the messages themselves need"""
    window: int = 1
    window_bytes: int = 1 << 30
    """how many bytes may be under way at once, whatever the window in messages"""
    confirms: bool = True
    retries: int | None = None
    message_max_bytes: int = 1 << 20
    patience: tuple[int, int] | None = None
    """the shortest and the longest pause between two attempts while nothing is heard, in microseconds"""
    alarm_us: int = 0
    """how old a hole may get before people are told of it; 0: nobody is"""
    asks: tuple[str, ...] = ()
    """kinds of faults that befall only who asks for them"""
    stores: frozenset[str] = frozenset()
    """which stores the hop uses: journal, state, stream; restarted stream: with a reader that begins again"""
    patterns: Mapping[str, str] = field(default_factory=dict[str, str])

    def bound_us(
        self,
        unconfirmed: int,
        round_trip_us: int,
        handling_us: int,
        *,
        frozen: bool = False,
        each_bytes: int = 1,
    ) -> int:
        """By when everything must be confirmed after the last fault has ended (pipes V-4).

        With a fault ``frozen`` on it has not ended: each message may need several timeouts more. ``each_bytes``:
        the size of a message, as few large ones fill a window too.
        """
        under_way = max(1, min(self.window, self.window_bytes // max(1, each_bytes)))
        rounds = -(-unconfirmed // under_way) + self.rounds
        calm = 10 * self.calm_us + 16 * self.timer_us * rounds if frozen else self.calm_us
        return calm + rounds * round_trip_us + unconfirmed * handling_us

    def tolerates(self, atom: str) -> frozenset[str] | None:
        """The faults under which an atom holds, None where it is not promised."""
        found = self.claim.get(atom)
        return None if found is None else frozenset(found)


@runtime_checkable
class Promising(Protocol):
    """A subject that says itself what it promises."""

    def promise(self) -> Promise:
        """What the judge holds it to."""
        ...


def promise_of(subject: Subject | Layout) -> Promise:
    """What the judge holds a subject to."""
    if isinstance(subject, Layout):
        return _of_layout(subject)
    if isinstance(subject, Promising):
        return subject.promise()
    if not isinstance(subject, HopSubject):
        return Promise()
    known = vars(
        subject
    )  # a subject never changes: what it promises is worked out once, and kept with it
    if _KEPT not in known:
        known[_KEPT] = _of_hop(subject)
    return cast("Promise", known[_KEPT])


_KEPT = "_promise"


def hop_of(subject: HopSubject) -> Hop:
    """The hop as the algebra sees it, over a route that exhibits every fault."""
    safe = DeclaredStore("safe", subject.level, kind="sqlite")
    stream = DeclaredStore("stream", subject.level, kind="redis") if subject.streamed else None
    keeps_state = subject.durable or subject.boundary is Boundary.COMMITTED
    state = (stream or safe) if keeps_state else None
    return Hop(
        subject.name,
        tuple(subject.parsed),
        LOSSY_ROUTE if subject.reverse else one_way(LOSSY_ROUTE),
        boundary=subject.boundary,
        journal=safe if subject.journaled else None,
        receiver_state=state,
        sink=state if subject.boundary is Boundary.COMMITTED else None,
        stream=stream,
        dead_letters=safe if subject.options.dead_letters else None,
        retries=subject.options.retries,
        forced_trim=subject.retention.force,
    )


def _of_hop(subject: HopSubject) -> Promise:
    layers = tuple(subject.parsed)
    outermost = layers[0]
    confirms = any(layer.confirms for layer in layers)
    windows = [layer.span_max for layer in layers if layer.span_max]
    stores = {"journal": subject.journaled, "state": subject.durable, "stream": subject.streamed}
    return Promise(
        claim=_claim(subject),
        bounds=_bounds(outermost),
        timer_us=min(
            (micros(x.rto_initial_s) for x in layers if isinstance(x, BacklogOptions)),
            default=SECOND,
        ),
        least_us=min(
            (micros(x.rto_min_s) for x in layers if isinstance(x, BacklogOptions)), default=SECOND
        ),
        calm_us=sum(map(_calm, layers)),
        rounds=4 * len(layers) + (4 if subject.journaled or subject.durable else 0),
        window=min(windows, default=1),
        window_bytes=min(map(_window_bytes, layers)),
        confirms=confirms,
        retries=subject.options.retries,
        message_max_bytes=outermost.message_max_bytes,
        patience=_patience(outermost) if len(layers) == 1 else None,
        alarm_us=micros(outermost.gap_alarm_s) if kind_of(outermost).receiver.holds_early else 0,
        asks=subject.asks,
        stores=frozenset(name for name, used in stores.items() if used),
        patterns={subject.pipe: outermost.kind} if _has_model(subject, layers) else {},
    )


# Layouts: what is promised of the ways through them, and of each pipe where its ends are.

_Claim: TypeAlias = Mapping[str, tuple[str, ...]]


def chain_claim(layout: Layout, chain: Sequence[PipeBetween]) -> _Claim:
    """What is promised from the first sender of a chain to its last receiver.

    Where a subject says itself what it promises, that is what all of the chain tolerate.
    """
    hops = [one.subject for one in chain]
    if len(chain) > 1 and all(isinstance(one, HopSubject) for one in hops):
        known = tuple(hop_of(cast("HopSubject", one)) for one in hops)
        found = evaluate_chain(Chain(layout.name, known, (layout.hand_over,) * (len(hops) - 1)))
        return _named(found.guarantee)
    return _common([promise_of(one).claim for one in hops])


def claim_in(layout: Layout, pipe: PipeBetween) -> _Claim:
    """What is promised of one pipe. The crash of a relay is that of its sender, which a pipe may not survive."""
    claim = promise_of(pipe.subject).claim
    if pipe.pipe not in layout.relays.values():
        return claim
    relay = {Fault.RELAY_CRASH.value}
    return {
        atom: faults if Fault.SENDER_CRASH in faults else tuple(f for f in faults if f not in relay)
        for atom, faults in claim.items()
    }


def _common(claims: Sequence[_Claim]) -> _Claim:
    return {
        atom: tuple(fault for fault in faults if all(fault in one[atom] for one in claims))
        for atom, faults in claims[0].items()
        if all(atom in one for one in claims)
    }


def _of_layout(layout: Layout) -> Promise:
    """What all chains promise together. Bounds are the widest, times those of all pipes one after the other."""
    parts = [promise_of(one.subject) for one in layout.pipes]
    bounds = Counter[str]()
    for part in parts:
        bounds |= Counter(part.bounds)
    return Promise(
        claim=_common([chain_claim(layout, chain) for chain in layout.chains]),
        bounds=dict(bounds),
        timer_us=min(part.timer_us for part in parts),
        least_us=min(part.least_us for part in parts),
        calm_us=sum(part.calm_us for part in parts),
        rounds=sum(part.rounds for part in parts),
        window=min(part.window for part in parts),
        window_bytes=min(part.window_bytes for part in parts),
        confirms=all(part.confirms for part in parts),
        retries=min((part.retries for part in parts if part.retries is not None), default=None),
        message_max_bytes=min(part.message_max_bytes for part in parts),
        asks=tuple(dict.fromkeys(id_ for part in parts for id_ in part.asks)),
        stores=frozenset(name for part in parts for name in part.stores),
        patterns={pipe: kind for part in parts for pipe, kind in part.patterns.items()},
    )


def _claim(subject: HopSubject) -> _Claim:
    try:
        guarantee = derive(hop_of(subject)).guarantee
    except CompositionError:
        return {}
    return _named(guarantee)


def _named(guarantee: Guarantee) -> _Claim:
    return {
        atom.value: tuple(fault.value for fault in in_order(faults))
        for atom, faults in guarantee.items()
    }


def _bounds(layer: LayerOptions) -> dict[str, int]:
    bounds: dict[str, int] = {"message_bytes": layer.message_max_bytes}
    if isinstance(layer, RetryOptions):
        bounds["in_flight"] = max(layer.span_max, 1)
    if isinstance(layer, BacklogOptions):
        bounds["backlog"] = layer.backlog
    held = getattr(layer, "held_max", None)
    if isinstance(held, int):
        bounds["held"] = held
    return bounds


def _patience(layer: LayerOptions) -> tuple[int, int] | None:
    if not isinstance(layer, RetryOptions):
        return None
    calm = 1 - layer.jitter
    return int(micros(layer.rto_min_s) * calm), int(micros(layer.rto_max_s) * calm)


def _has_model(subject: HopSubject, layers: Sequence[LayerOptions]) -> bool:
    """Whether a reference model says what comes out: of single pipes, and of none that lets repeats through."""
    outermost = layers[0]
    is_single = len(layers) == 1 and not subject.streamed
    return is_single and outermost.kind in PATTERNS and not outermost.lets_repeats_through


def _window_bytes(layer: LayerOptions) -> int:
    """The bytes that either end has room for."""
    names = ("window_bytes", "receive_window_bytes")
    found = [getattr(layer, name, None) for name in names]
    return min((one for one in found if isinstance(one, int)), default=1 << 30)


def _calm(layer: LayerOptions) -> int:
    longest = 3 * micros(layer.rto_max_s) if isinstance(layer, BacklogOptions) else 0
    return longest + micros(layer.gap_alarm_s)


__all__ = ["Level", "Promise", "Promising", "hop_of", "promise_of"]
