"""What a hop or a chain of hops promises, computed.

    parts = the route's own guarantee, then each layer's declaration applied to the part below it
    guarantee = for each atom: its route part, and every process fault with no obstacle
    chain = the intersection of its hops, where an inner crash is a relay-crash
    what strikes together (the ends of one process) is survived together or not at all

Nothing here asks whether the composition is allowed; ``algebra`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from surepipe.core.claims import (
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
from surepipe.core.store_requests import Level
from surepipe.guarantees.hops import LOSSY_ROUTE, Chain, Hop, provided_because, route_parts
from surepipe.guarantees.problems import Obstacle
from surepipe.pipes.catalogue import declaration_of, kind_of
from surepipe.pipes.declaration import N_AND_G
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary

# Crashes, zombies, handlers and stores: what an atom of a whole hop survives beside the route's faults.
#
# Each fault has one function, which says what stands against tolerating it, or None. The guarantee and its
# explanation are the same computation, so they can't disagree.


KEEPS = (Boundary.PROCESSED, Boundary.COMMITTED)
"""Boundaries across which a receiver's crash loses nothing."""

NEVER_REPEATS = (Boundary.BEFORE, Boundary.COMMITTED)
"""Boundaries across which a receiver's crash repeats nothing."""


REPEATS_OR_OVERTAKES: Faults = frozenset({Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING})


@dataclass(frozen=True, slots=True)
class AtomStanding:
    """One atom of a hop (or of the lower part of its stack) and the route faults it survives."""

    hop: Hop
    layers: tuple[LayerOptions, ...]
    atom: Atom
    route: Faults

    @property
    def only_restrains(self) -> bool:
        """True for the atoms that a lost message can't break."""
        return self.atom in (Atom.NO_DUPLICATE, Atom.MONOTONIC)


def obstacle(standing: AtomStanding, fault: Fault) -> str | None:
    """What keeps the atom from surviving this fault, or None when it does."""
    return _OBSTACLES[fault](standing)


def survives(standing: AtomStanding) -> Faults:
    """Everything that the atom survives."""
    beyond = (f for f in Fault if f not in ROUTE and obstacle(standing, f) is None)
    return standing.route.union(beyond)


def _none(_: AtomStanding) -> None:
    return None


def _sender_crash(standing: AtomStanding) -> str | None:
    if ends_with_process := _volatile_stream(standing):
        return ends_with_process
    if standing.only_restrains:
        return _retold(standing) or _passes_rows_again(standing)
    if standing.hop.journal is None:
        return "without a journal, accepted messages that are not confirmed end with the sender"
    gives_up = getattr(standing.hop.layers[0], "give_up_after_s", None) is not None
    return (_volatile_letters(standing) if gives_up else None) or _loses_flight(standing)


def _retold(standing: AtomStanding) -> str | None:
    """Only a journal takes a row and stores how far its source was read in one step; else that comes later."""
    hop = standing.hop
    is_one_step = hop.journal is not None and hop.journal.transactional
    if not standing.only_restrains or not hop.reread or is_one_step:
        return None
    return "the source gives rows again that were taken, and not yet known to be confirmed, before the crash"


def _passes_rows_again(standing: AtomStanding) -> str | None:
    """A journal brings back what it does not know to be confirmed: older than what was delivered since."""
    if standing.hop.journal is None or standing.atom is not Atom.MONOTONIC or not standing.layers:
        return None
    outermost = standing.layers[0]
    if _restrains_order(outermost):
        return None
    return f"the journal sends again what {outermost.kind} does not drop when it comes late"


def _sender_zombie(standing: AtomStanding) -> str | None:
    if not standing.only_restrains:
        return _sender_crash(standing)
    if not any(layer.is_cursor for layer in standing.layers):
        return "no layer has a cursor that would refuse a replaced sender"
    if standing.hop.journal is not None or standing.hop.route.one_way:
        return _retold(standing) or _passes_rows_again(standing)
    return "without a journal, a replaced sender that was never answered numbers its messages anew"


def _receiver_crash(standing: AtomStanding) -> str | None:
    return None if _only_loses(standing) else _receiver_starts_anew(standing)


def _receiver_starts_anew(standing: AtomStanding) -> str | None:
    return _volatile_stream(standing) or _volatile_letters(standing) or _receiver_forgets(standing)


def _receiver_forgets(standing: AtomStanding) -> str | None:
    boundary = standing.hop.boundary
    if standing.only_restrains:
        if boundary in NEVER_REPEATS:
            return _brings_older_again(standing)
        return f"with boundary {boundary}, what was settled and not confirmed is delivered again"
    if boundary not in KEEPS:
        return f"with boundary {boundary}, a message counts as settled before it is processed"
    if _waits_for_ever(standing):
        return None
    return (
        _loses_flight(standing)
        or _nobody_repeats(standing)
        or _index_forgets(standing)
        or _passes_what_was_in_work(standing)
    )


def _receiver_zombie(standing: AtomStanding) -> str | None:
    """A crash ends a receiver with what it has in work; a zombie goes on with it later, beside the new one."""
    if standing.atom is Atom.MONOTONIC and standing.hop.boundary is Boundary.BEFORE:
        return "with boundary before, a replaced receiver may hand over late what it had stored as settled"
    return _receiver_starts_anew(standing)


def _handler_failure(standing: AtomStanding) -> str | None:
    """A failed message is tried again by the boundary itself, so nothing that is in flight is at stake."""
    if standing.atom is Atom.NO_DUPLICATE:
        return _tried_in_parts(standing)
    if standing.atom is not Atom.MONOTONIC and standing.hop.boundary not in KEEPS:
        return f"with boundary {standing.hop.boundary}, a message is settled before its handler ran"
    if standing.atom is not Atom.NO_LOSS and not standing.hop.waits_for_failed:
        return f"{standing.hop.layers[0].kind} goes on with later messages while one is tried again"
    return None


def _tried_in_parts(standing: AtomStanding) -> str | None:
    """1. A batch of three comes to a sink in three calls, and the third fails. 2. Nobody knows which message is to
    blame, so the first is tried alone. 3. It comes to the sink again, unless a transaction took that back.
    """
    if not standing.hop.gathers or standing.hop.boundary is Boundary.COMMITTED:
        return None
    return "messages of a batch that fails are tried again one by one, with all that the batch had done"


def _store_outage(  # noqa: PLR0911 - one line for each case
    standing: AtomStanding,
) -> str | None:
    """Who commits messages keeps them in their order meanwhile. The receiver of a stream reads them anew.
    Elsewhere a message whose outcome a store does not take has failed: whoever still has it tries it again."""
    hop = standing.hop
    if hop.parks is not None and standing.only_restrains:
        return (
            "with boundary processed, what a book had handled and could not store is handled again"
        )
    if hop.stored and hop.boundary is not Boundary.COMMITTED and _handler_failure(standing):
        if hop.boundary not in KEEPS and not standing.only_restrains:
            return f"with boundary {hop.boundary}, a message is settled before a store has what comes of it"
        if standing.atom is Atom.NO_DUPLICATE:
            return _tried_in_parts(standing)
        return f"{hop.layers[0].kind} goes on with later messages while a store does not take one"
    if standing.hop.boundary is not Boundary.COMMITTED or standing.hop.stream_layer is None:
        return None
    if _only_loses(standing):
        return None
    reason = _receiver_forgets(standing)
    return (
        f"a commit that fails makes the receiver of a stream begin anew: {reason}"
        if reason
        else None
    )


def _store_crash(standing: AtomStanding) -> str | None:
    """Until it has started again, a store that crashed is one that does not answer."""
    return _level_below(standing.hop, Level.PROCESS) or _store_outage(standing)


def _power_loss(standing: AtomStanding) -> str | None:
    """A store may stand on another host than its users, who see an outage of it and no crash of their own."""
    crash = _sender_crash(standing) or _receiver_crash(standing)
    return crash or _level_below(standing.hop, Level.POWER) or _store_outage(standing)


def _store_rollback(standing: AtomStanding) -> str | None:
    if not standing.hop.stores:
        return None
    return "a store that goes back forgets what it acknowledged, which is noticed and not repaired"


def _store_trim(standing: AtomStanding) -> str | None:
    if standing.hop.stream is None or not standing.hop.forced_trim:
        return None
    return f"the retention of store {standing.hop.stream.name} may pass a reader"


def _clock_step(standing: AtomStanding) -> str | None:
    """A sender without a journal takes its number from the clock. What its predecessor sent under a higher one and
    comes late is taken for newer: it is delivered behind its successor's messages, and fences that one. Only a
    greeting keeps it out, as its link is not known any more.
    """
    hop, layers = standing.hop, standing.layers
    comes_late = Fault.ROUTE_REORDERING in standing.route & hop.route.forward
    is_numbered_by_clock = hop.journal is None and any(layer.is_cursor for layer in layers)
    if not (standing.only_restrains and comes_late and is_numbered_by_clock):
        return None
    if any(kind_of(layer).sender.greets for layer in layers):
        return None
    if standing.atom is Atom.NO_DUPLICATE and not any(layer.is_retry for layer in layers):
        return None  # nothing is kept that could be numbered anew
    return (
        "without a journal, a sender that starts with its clock set back passes for the older one"
    )


def _loses_flight(standing: AtomStanding) -> str | None:
    """A crash takes frames with it, also on a route that itself loses none."""
    anywhere = route_parts(standing.layers, LOSSY_ROUTE)[0]
    if Fault.ROUTE_LOSS in (anywhere.tolerated(standing.atom) or ()):
        return None
    return f"a crash loses what is in flight, and {standing.atom} does not survive route-loss"


def _nobody_repeats(standing: AtomStanding) -> str | None:
    if standing.hop.stream_layer is not None or any(map(_sends_again, standing.layers)):
        return None
    return "no layer sends again what the receiver had not settled"


def _sends_again(layer: LayerOptions) -> bool:
    return layer.is_retry and not layer.waits_for_carried_confirms


def _waits_for_carrier(layer: LayerOptions) -> bool:
    """Whether a layer waits for what is missing and leaves it to its carrier to bring that."""
    return declaration_of(layer).at_least_once_carrier and not layer.is_retry


def _index_forgets(standing: AtomStanding) -> str | None:
    """A receiver that waits for what comes next must be told where to go on when it starts afresh."""
    hop, layers = standing.hop, standing.layers
    if hop.cursor_store is not None:
        return None
    for number, layer in enumerate(layers):
        told = not hop.route.one_way and any(below.is_retry for below in layers[number + 1 :])
        if _waits_for_carrier(layer) and not told:
            return f"{layer.kind} forgets its place, and no carrier confirms so that it is told"
    return None


def _only_loses(standing: AtomStanding) -> bool:
    """Whether what a receiver forgot at its crash can't come again or late.

    On a route that neither repeats nor overtakes that is so for what is sent once, and for the order of what is
    sent one message at a time: all copies of a message leave before the next one does.
    """
    hop, layers = standing.hop, standing.layers
    may_mix = bool(REPEATS_OR_OVERTAKES & standing.route & hop.route.forward)
    if not standing.only_restrains or may_mix or not layers:
        return False
    if (
        standing.atom is Atom.MONOTONIC
        and kind_of(layers[0]).sender.one_at_a_time
        and layers[0].run_max == 1
    ):
        return True
    is_kept = hop.journal is not None or hop.stream_layer is not None
    return not is_kept and not any(layer.is_retry for layer in layers)


def _waits_for_ever(standing: AtomStanding) -> bool:
    """Whether a crash stops the pipe for good, which is no gap: nobody brings what it waits for."""
    hop, layers = standing.hop, standing.layers
    return (
        standing.atom is Atom.GAP_FREE
        and hop.journal is None
        and hop.stream_layer is None
        and any(map(_waits_for_carrier, layers))
        and not any(layer.is_retry for layer in layers)
    )


def _brings_older_again(standing: AtomStanding) -> str | None:
    """A crash is a loss: what sends again brings an older message late, where nothing above holds it back."""
    if standing.atom is not Atom.MONOTONIC or not any(map(_sends_again, standing.layers)):
        return None
    return _loses_flight(standing) or _passes_what_was_in_work(standing)


def _passes_what_was_in_work(standing: AtomStanding) -> str | None:
    """Order that comes from a carrier ends where the pipe above answers it before messages are settled.

    A window that sends again by itself does that. What was in work at the crash is then brought again by the
    window, and the carrier brings later messages first. What drops older messages loses it.
    """
    layers, late = standing.layers, ""
    if standing.atom is Atom.NO_LOSS:
        layers = tuple(dropwhile(_passes_on_what_comes, layers))
        if not layers or layers[0].is_retry:
            return None
        late = f", too late for {layers[0].kind}"
    for layer in layers[:-1]:
        if _keeps_order(standing.atom, layer):
            return None
        if layer.is_retry and not kind_of(layer).receiver.ordered:
            what = "sends again what was in work, and its carrier brings later messages first"
            return f"{layer.kind} {what}{late}"
    return None


def _passes_on_what_comes(layer: LayerOptions) -> bool:
    """Whether a layer brings nothing again and drops nothing for coming late.

    What drops late messages loses none only where its carrier keeps the order.
    """
    return not layer.is_retry and declaration_of(layer).provides[Atom.NO_LOSS].term is not N_AND_G


def _keeps_order(atom: Atom, layer: LayerOptions) -> bool:
    """Whether order does not depend on what is below this layer."""
    leaves_no_gap = declaration_of(layer).provides[Atom.GAP_FREE].own
    return leaves_no_gap or (atom is Atom.MONOTONIC and _restrains_order(layer))


def _restrains_order(layer: LayerOptions) -> bool:
    """Whether its receiver lets nothing older than its cursor through."""
    return declaration_of(layer).provides[Atom.MONOTONIC].own


def _volatile_stream(standing: AtomStanding) -> str | None:
    stream = standing.hop.stream
    if stream is None or not stream.volatile:
        return None
    return f"the stream is kept in store {stream.name}, which ends with its process"


def _volatile_letters(standing: AtomStanding) -> str | None:
    """A letter is the end of its message: the sender has forgotten it, and nobody brings it again."""
    letters = standing.hop.dead_letters
    if letters is None or not letters.volatile or standing.only_restrains:
        return None
    return f"dead letters are kept in store {letters.name}, which ends with its process"


def _level_below(hop: Hop, level: Level) -> str | None:
    low = [store for store in hop.stores if store.level < level]
    if not low:
        return None
    return " and ".join(f"store {store.name} has level {store.level}" for store in low)


_OBSTACLES: Mapping[Fault, Callable[[AtomStanding], str | None]] = {
    Fault.SENDER_CRASH: _sender_crash,
    Fault.RECEIVER_CRASH: _receiver_crash,
    Fault.RELAY_CRASH: _none,  # a single hop has no relay; chains put one in
    Fault.SENDER_ZOMBIE: _sender_zombie,
    Fault.RECEIVER_ZOMBIE: _receiver_zombie,
    Fault.HANDLER_FAILURE: _handler_failure,
    Fault.STORE_OUTAGE: _store_outage,
    Fault.STORE_CRASH: _store_crash,
    Fault.POWER_LOSS: _power_loss,
    Fault.STORE_ROLLBACK: _store_rollback,
    Fault.STORE_TRIM: _store_trim,
    Fault.CLOCK_STEP: _clock_step,
}


PARKED_ATOMS = (Atom.NO_LOSS, Atom.GAP_FREE)
"""What does not hold while a message waits for a person."""
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
        """Name the order that is kept, if it differs between one key and all keys; else empty."""
        if not self.hop.lanes:
            return ""
        within = self.of_one_key.headline.order
        return f"order: {within} per key, none across keys" if within != "none" else "order: none"

    @property
    def name(self) -> str:
        return self.hop.name

    @property
    def exhibits(self) -> Faults:
        return self.hop.route.forward

    @property
    def headline(self) -> Claim:
        """The strongest claim that holds over this route."""
        return self.guarantee.headline(self.exhibits)

    def reason(self, atom: Atom, fault: Fault | None) -> Obstacle:
        """Why ``atom`` does not survive ``fault`` (None: why it is not provided at all)."""
        if (text := self._set_away(atom)) is not None:
            return Obstacle(self.name, text, of_route=False)
        if fault is None or fault in ROUTE:
            return self._route_reason(atom, fault)
        route = self.parts[0].tolerated(atom)
        if route is None:
            return self._route_reason(atom, None)
        standing = AtomStanding(self.hop, self.hop.layers, atom, route)
        struck = in_order(together(frozenset({fault}), self.hop.linked))
        texts = dict.fromkeys(filter(None, (obstacle(standing, one) for one in struck)))
        text = " and ".join(texts) or "nothing stands against it"
        return Obstacle(self.name, text, of_route=False)

    def because(self, atom: Atom) -> str:
        """Why the atom is as it is: lanes, the outermost layer that makes it so, else the route."""
        if (text := self._set_away(atom)) is not None:
            return text
        for number, layer in enumerate(self.hop.layers):
            provision = declaration_of(layer).provides[atom]
            changed = self.parts[number].tolerated(atom) != self.parts[number + 1].tolerated(atom)
            if changed or provision.own:
                return f"{self.hop.label(number)} {provided_because(self.hop, number, atom)}"
        return f"as route {self.hop.route.name} has it"

    def _set_away(self, atom: Atom) -> str | None:
        """Why a setting that isn't one of the layers gives the atom up; None: none does."""
        if self.hop.parks and atom in PARKED_ATOMS:
            return self._parked_text()
        if self.hop.limited and atom in PARKED_ATOMS:
            return "with timeout_s, a message that the other party is too slow for comes back and is a dead letter"
        if self.hop.unordered and atom in (Atom.MONOTONIC, Atom.GAP_FREE):
            return (
                "with order: unordered, the other party takes each message by itself, in any order"
            )
        return self._lanes_text(atom) if self._is_lost_in_lanes(atom) else None

    def _is_lost_in_lanes(self, atom: Atom) -> bool:
        is_kept_below = self.parts[0].tolerated(atom) is not None
        return self.hop.lanes > 0 and atom in ORDER_ATOMS and is_kept_below

    def _lanes_text(self, atom: Atom) -> str:
        lanes = "a lane" if self.hop.lanes == 1 else f"{self.hop.lanes} lanes"
        return f"with {lanes}, messages of different keys pass each other; {atom} holds within each key"

    def _parked_text(self) -> str:
        settings = " and ".join(f"{name}: park" for name in self.hop.parks or ())
        return f"with {settings}, a message may wait for a person while others of its key go on"

    def _route_reason(self, atom: Atom, fault: Fault | None) -> Obstacle:
        """The outermost layer whose carrier still had what is missing above it, else the route."""
        wanted = NO_FAULTS if fault is None else frozenset({fault})
        for number, layer in enumerate(self.hop.layers):
            dropped = self.parts[number + 1].holds(atom, wanted)
            if dropped or self.parts[number].tolerated(atom) is None:
                because = provided_because(self.hop, number, atom)
                text = f"{self.hop.label(number)} {because}"
                return Obstacle(self.name, text, number, layer.kind)
        return Obstacle(self.name, f"route {self.hop.route.name} exhibits {fault}")


@dataclass(frozen=True, slots=True)
class DerivedChain:
    """What a chain promises from the first sender to the last receiver."""

    chain: Chain
    hops: tuple[Derived, ...]
    guarantee: Guarantee

    @property
    def name(self) -> str:
        return self.chain.name

    @property
    def exhibits(self) -> Faults:
        """What any of the routes does."""
        return NO_FAULTS.union(*(hop.exhibits for hop in self.hops))

    @property
    def headline(self) -> Claim:
        """The strongest claim that holds over all these routes."""
        return self.guarantee.headline(self.exhibits)

    def reason(self, atom: Atom, fault: Fault | None) -> Obstacle:
        """Why ``atom`` does not survive ``fault`` (None: why it is not provided at all)."""
        if fault is None:
            found = self._reason(atom, None)
        else:
            struck = in_order(together(frozenset({fault}), self.chain.linked))
            found = next(filter(None, (self._reason(atom, one) for one in struck)), None)
        return found or Obstacle(self.name, "the hops together do not survive it", of_route=False)

    def _reason(self, atom: Atom, fault: Fault | None) -> Obstacle | None:
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
    if hop.parks or hop.limited:
        guarantee = replace(guarantee, no_loss=None, gap_free=None)
    if hop.unordered:
        guarantee = replace(guarantee, monotonic=None, gap_free=None)
    return Derived(hop, parts, guarantee.bound(hop.linked))


def whole(hop: Hop, layers: Sequence[LayerOptions], route_part: Guarantee) -> Guarantee:
    """The guarantee of (the lower part of) a stack: its route part and all it survives beside."""
    return Guarantee.of(
        {
            atom: survives(AtomStanding(hop, tuple(layers), atom, faults))
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
