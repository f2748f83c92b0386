"""What a hop or a chain of hops promises, computed.

    parts = the route's own guarantee, then each layer's declaration applied to the part below it
    guarantee = for each atom: its route part, and every process fault with no obstacle
    chain = the intersection of its hops, where an inner crash is a relay-crash
    what strikes together (the ends of one process) is survived together or not at all

Nothing here asks whether the composition is allowed; ``algebra`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from surepipe.pipes.algebra.declarations import declaration_of
from surepipe.pipes.algebra.findings import Reason
from surepipe.pipes.algebra.guarantees import (
    NO_FAULTS,
    ROUTE,
    Atom,
    Claim,
    Fault,
    Faults,
    Guarantee,
    in_order,
    together,
)
from surepipe.pipes.algebra.hops import Chain, Hop
from surepipe.pipes.algebra.process_part import Standing, obstacle, survives
from surepipe.pipes.algebra.route_part import route_parts
from surepipe.pipes.options import LayerOptions

ORDER_ATOMS = (Atom.MONOTONIC, Atom.GAP_FREE)
"""What lanes keep within a key only."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What a hop promises. ``parts`` holds the route part above each layer; the last is the bare route."""

    hop: Hop
    parts: tuple[Guarantee, ...]
    guarantee: Guarantee

    def __str__(self) -> str:
        """What the hop delivers, and through which faults; ``explain`` gives the reasons."""
        order = f"; {self.order_text}" if self.order_text else ""
        return f"{self.name}: {self.headline}{order}"

    @property
    def of_one_key(self) -> Derived:
        """What holds of the messages of each key by themselves; without lanes: of all messages."""
        return evaluate(replace(self.hop, lanes=0)) if self.hop.lanes else self

    @property
    def order_text(self) -> str:
        """Which order is kept, where it is another one within a key than across keys; else empty."""
        if not self.hop.lanes:
            return ""
        within = self.of_one_key.headline.order
        return f"order: {within} per key, none across keys" if within != "none" else "order: none"

    @property
    def name(self) -> str:
        """The pipe."""
        return self.hop.name

    @property
    def exhibits(self) -> Faults:
        """What the route does."""
        return self.hop.route.forward

    @property
    def headline(self) -> Claim:
        """The strongest claim that holds over this route."""
        return self.guarantee.headline(self.exhibits)

    def reason(self, atom: Atom, fault: Fault | None) -> Reason:
        """Why ``atom`` does not survive ``fault`` (None: why it is not provided at all)."""
        if self._is_lost_in_lanes(atom):
            return Reason(self.name, self._lanes_text(atom), of_route=False)
        if fault is None or fault in ROUTE:
            return self._route_reason(atom, fault)
        route = self.parts[0].tolerated(atom)
        if route is None:
            return self._route_reason(atom, None)
        standing = Standing(self.hop, self.hop.layers, atom, route)
        struck = in_order(together(frozenset({fault}), self.hop.linked))
        texts = dict.fromkeys(filter(None, (obstacle(standing, one) for one in struck)))
        text = " and ".join(texts) or "nothing stands against it"
        return Reason(self.name, text, of_route=False)

    def because(self, atom: Atom) -> str:
        """Why the atom is as it is: lanes, the outermost layer that makes it so, else the route."""
        if self._is_lost_in_lanes(atom):
            return self._lanes_text(atom)
        for number, layer in enumerate(self.hop.layers):
            provision = declaration_of(layer).provides[atom]
            changed = self.parts[number].tolerated(atom) != self.parts[number + 1].tolerated(atom)
            if changed or provision.own:
                return f"{self.hop.label(number)} {provision.because}"
        return f"as route {self.hop.route.name} has it"

    def _is_lost_in_lanes(self, atom: Atom) -> bool:
        is_kept_below = self.parts[0].tolerated(atom) is not None
        return self.hop.lanes > 0 and atom in ORDER_ATOMS and is_kept_below

    def _lanes_text(self, atom: Atom) -> str:
        lanes = "a lane" if self.hop.lanes == 1 else f"{self.hop.lanes} lanes"
        return f"with {lanes}, messages of different keys pass each other; {atom} holds within each key"

    def _route_reason(self, atom: Atom, fault: Fault | None) -> Reason:
        """The outermost layer whose carrier still had what is missing above it, else the route."""
        wanted = NO_FAULTS if fault is None else frozenset({fault})
        for number, layer in enumerate(self.hop.layers):
            provision = declaration_of(layer).provides[atom]
            dropped = self.parts[number + 1].holds(atom, wanted)
            if dropped or self.parts[number].tolerated(atom) is None:
                return Reason(
                    self.name, f"{self.hop.label(number)} {provision.because}", number, layer.kind
                )
        return Reason(self.name, f"route {self.hop.route.name} exhibits {fault}")


@dataclass(frozen=True, slots=True)
class DerivedChain:
    """What a chain promises from the first sender to the last receiver."""

    chain: Chain
    hops: tuple[Derived, ...]
    guarantee: Guarantee

    @property
    def name(self) -> str:
        """The chain."""
        return self.chain.name

    @property
    def exhibits(self) -> Faults:
        """What any of the routes does."""
        return NO_FAULTS.union(*(hop.exhibits for hop in self.hops))

    @property
    def headline(self) -> Claim:
        """The strongest claim that holds over all these routes."""
        return self.guarantee.headline(self.exhibits)

    def reason(self, atom: Atom, fault: Fault | None) -> Reason:
        """Why ``atom`` does not survive ``fault`` (None: why it is not provided at all)."""
        if fault is None:
            found = self._reason(atom, None)
        else:
            struck = in_order(together(frozenset({fault}), self.chain.linked))
            found = next(filter(None, (self._reason(atom, one) for one in struck)), None)
        return found or Reason(self.name, "the hops together do not survive it", of_route=False)

    def _reason(self, atom: Atom, fault: Fault | None) -> Reason | None:
        """Of the first hop that does not survive it."""
        for number, hop in enumerate(self.hops):
            standing_in = self._as_seen_by(number, fault)
            if standing_in is None and fault is not None:
                continue
            wanted = NO_FAULTS if standing_in is None else frozenset({standing_in})
            if not hop.guarantee.holds(atom, wanted):
                return replace(hop.reason(atom, standing_in), layer=None, kind="")
        return None

    def _as_seen_by(self, number: int, fault: Fault | None) -> Fault | None:
        """The fault of one hop that a fault of the chain is; None when it doesn't concern that hop."""
        last = len(self.hops) - 1
        if fault is Fault.RELAY_CRASH:
            return Fault.RECEIVER_CRASH if number < last else None
        if fault is Fault.SENDER_CRASH:
            return fault if number == 0 else None
        if fault is Fault.RECEIVER_CRASH:
            return fault if number == last else None
        return fault


def evaluate(hop: Hop) -> Derived:
    """Compute the guarantee of a hop."""
    parts = route_parts(hop.layers, hop.route)
    guarantee = whole(hop, hop.layers, parts[0])
    if hop.lanes:
        guarantee = replace(guarantee, monotonic=None, gap_free=None)
    return Derived(hop, parts, guarantee.bound(hop.linked))


def whole(hop: Hop, layers: Sequence[LayerOptions], route_part: Guarantee) -> Guarantee:
    """The guarantee of (the lower part of) a stack: its route part and all it survives beside."""
    return Guarantee.of(
        {
            atom: survives(Standing(hop, tuple(layers), atom, faults))
            for atom, faults in route_part.items()
        }
    )


def evaluate_chain(chain: Chain) -> DerivedChain:
    """The same for a chain: atom by atom what all hops survive, each under its hand-over."""
    hops = tuple(evaluate(hop) for hop in chain.relayed())
    seen = [_as_part(hop.guarantee, n == 0, n == len(hops) - 1) for n, hop in enumerate(hops)]
    guarantee = seen[0]
    for part in seen[1:]:
        guarantee &= part
    return DerivedChain(chain, hops, guarantee.bound(chain.linked))


def _as_part(guarantee: Guarantee, first: bool, last: bool) -> Guarantee:
    """A hop's guarantee in the words of its chain: the crash of an inner end is that of a relay."""
    return Guarantee.of({atom: _renamed(faults, first, last) for atom, faults in guarantee.items()})


def _renamed(faults: Faults, first: bool, last: bool) -> Faults:
    if not first:  # the relay's sender: what it loses, the hop before brings again
        faults |= {Fault.SENDER_CRASH}
    if last:
        return faults
    if Fault.RECEIVER_CRASH not in faults:
        faults -= {Fault.RELAY_CRASH}
    return faults | {Fault.RECEIVER_CRASH}
