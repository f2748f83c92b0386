"""What makes a composition impossible, layer by layer from the route upwards, and end by end.

``problems`` only finds; ``composing.refusals`` adds what to do about each, which it finds by trying.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from surepipe.core.claims import ROUTE, Atom, Fault, Guarantee, faults_text, in_order
from surepipe.guarantees.hops import (
    Chain,
    DeclaredStore,
    Hop,
    bounds_span,
    composition,
    provided_because,
    reverse_path,
    route_parts,
)
from surepipe.pipes.catalogue import declaration_of, kind_of
from surepipe.pipes.declaration import Reverse
from surepipe.pipes.kinds.continuous_index import ContinuousIndex
from surepipe.pipes.options import LayerOptions, LayerPlace, RetryOptions
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream

# What is wrong with a composition, in words: one finding for one reason, each with what to do about it.


class Code(StrEnum):
    """Why a composition or an expectation is refused; the last three are warnings."""

    UNMET_CARRIER = "unmet-carrier"
    ONE_WAY = "one-way"
    UNPROTECTED_CONFIRMS = "unprotected-confirms"
    EXPECTATION = "expectation"
    BOUNDARY = "boundary"
    SPLIT_STORE = "split-store"
    VOLATILE_STORE = "volatile-store"
    NO_DEAD_LETTER = "no-dead-letter"
    NO_START_POLICY = "no-start-policy"
    BOUNDS = "bounds"
    STACK_MISMATCH = "stack-mismatch"
    REDUNDANT = "redundant"
    WEAKENED = "weakened"
    SMALL_BUFFER = "small-buffer"

    @property
    def is_warning(self) -> bool:
        """True for what is legal and probably not meant."""
        return self in (Code.REDUNDANT, Code.WEAKENED, Code.SMALL_BUFFER)


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason. ``why`` is a sentence; ``remedies`` are alternatives, each of which is enough.

    ``part``: the section and name of another part than the pipe, where that is what has to change.
    """

    code: Code
    pipe: str
    why: str
    remedies: tuple[str, ...] = ()
    layer: int | None = None
    kind: str = ""
    atoms: tuple[Atom, ...] = ()
    faults: tuple[Fault, ...] = ()
    part: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = f"pipe {self.pipe}"
        if self.part is not None:
            where = f"{self.part[0].removesuffix('s')} {self.part[1]}"
        text = f"{self.code}: {where}: {self.why}."
        if not self.remedies:
            return text
        remedy = ", or ".join(self.remedies)
        return f"{text} {remedy[0].upper()}{remedy[1:]}."


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something does not hold: where, and a clause that names the cause."""

    pipe: str
    text: str
    layer: int | None = None
    kind: str = ""
    of_route: bool = True


def problems(hop: Hop) -> tuple[Finding, ...]:
    """Every reason why this hop can't be, the innermost layer's first."""
    return (*_of_hop(hop), *_of_channel(hop))


CONTINUOUS_INDEX = ContinuousIndex()
_BACK = "/back"


def _of_hop(hop: Hop) -> tuple[Finding, ...]:
    return (*_of_layers(hop), *_of_boundary(hop), *_of_stores(hop))


def _of_layers(hop: Hop) -> tuple[Finding, ...]:
    parts = route_parts(hop.layers, hop.route)
    found: list[Finding] = []
    for number in reversed(range(len(hop.layers))):
        found += _of_carrier(hop, number, parts[number + 1])
        found += _of_reverse_path(hop, number)
        found += _of_options(hop, number)
    return tuple(found)


def joint_problems(chain: Chain) -> tuple[Finding, ...]:
    """Hand-overs that no boundary of a relay is made for."""
    return tuple(
        _finding(
            hop,
            Code.BOUNDARY,
            f"hand-over {boundary} moves the cursor before the next hop has the message",
            "hand over committed, processed or handed",
        )
        for hop, boundary in zip(chain.hops, chain.hand_over, strict=False)
        if boundary is Boundary.BEFORE
    )


def stack_mismatch(sender: Hop, receiver: Hop) -> tuple[Finding, ...]:
    """What tells the two ends of one pipe apart: they must be built of the same layers."""
    if sender.layers == receiver.layers:
        return ()
    pairs = list(zip(sender.layers, receiver.layers, strict=False))
    number = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    why = (
        f"the sender is {composition(sender)} and the receiver {composition(receiver)}; "
        f"they differ from layer {number} on"
    )
    remedy = "write the same layers with the same options at both ends"
    return (replace(_finding(sender, Code.STACK_MISMATCH, why, remedy), layer=number),)


def _finding(hop: Hop, code: Code, why: str, *remedies: str, layer: int | None = None) -> Finding:
    kind = "" if layer is None else hop.layers[layer].kind
    return Finding(code, hop.name, why, remedies, layer=layer, kind=kind)


def _of_carrier(hop: Hop, number: int, carrier: Guarantee) -> Iterator[Finding]:
    layer, label = hop.layers[number], hop.label(number)
    if isinstance(layer, Stream) and number + 1 < len(hop.layers):
        below = hop.label(number + 1)
        why = f"{label} speaks to its store and to no pipe, so {below} can't carry it"
        yield _finding(hop, Code.UNMET_CARRIER, why, layer=number)
    broken = in_order(ROUTE - (carrier.no_loss or frozenset()))
    if not declaration_of(layer).at_least_once_carrier:
        return
    if broken:
        lossy = f"route {hop.route.name}"
        if number + 1 < len(hop.layers):
            lossy = f"{hop.label(number + 1)} over {lossy}"
        why = (
            f"{label} requires an at-least-once carrier, and {lossy} loses messages under "
            f"{faults_text(frozenset(broken))}"
        )
        yield replace(_finding(hop, Code.UNMET_CARRIER, why, layer=number), faults=broken)
    elif declaration_of(layer).provides[Atom.NO_LOSS].window and not bounds_span(
        hop.layers[number + 1 :], hop.route
    ):
        overtakes = (Fault.ROUTE_REORDERING,)
        why = f"{label} {provided_because(hop, number, Atom.NO_LOSS)}"
        yield replace(_finding(hop, Code.UNMET_CARRIER, why, layer=number), faults=overtakes)


def _of_reverse_path(hop: Hop, number: int) -> Iterator[Finding]:
    label, needs = hop.label(number), declaration_of(hop.layers[number]).reverse
    path = reverse_path(hop, number)
    if needs is not Reverse.NONE and path is Reverse.NONE:
        below = hop.stream_layer
        cause = f"route {hop.route.name} is one-way" if hop.route.one_way else ""
        if below is not None and below > number:
            cause = f"over {hop.label(below)} nothing comes back"
        yield _finding(
            hop, Code.ONE_WAY, f"{label} needs a way back for confirms, and {cause}", layer=number
        )
    elif needs > path:
        why = (
            f"{label} never sends again by itself, and its confirms return over route "
            f"{hop.route.name}, which may lose them: one lost confirm would stop it for good"
        )
        yield _finding(hop, Code.UNPROTECTED_CONFIRMS, why, layer=number)


def _of_options(hop: Hop, number: int) -> Iterator[Finding]:
    layer, label = hop.layers[number], hop.label(number)
    if number and isinstance(layer, RetryOptions) and layer.give_up_after_s is not None:
        yield _inner_giving_up(hop, number, layer.give_up_after_s)
    below = tuple((hop.label(n), hop.layers[n]) for n in range(number + 1, len(hop.layers)))
    for misfit in layer.misfits(LayerPlace(number, label, below)):
        yield _finding(hop, Code(misfit.code), misfit.why, *misfit.remedies, layer=number)


def _inner_giving_up(hop: Hop, number: int, seconds: float) -> Finding:
    why = (
        f"{hop.label(number)} gives a frame up after {seconds} s, which leaves a hole that no "
        "layer above it knows of"
    )
    outermost = hop.layers[0]
    needs_letters = _goes_on_without(outermost) and hop.dead_letters is None
    can_move = outermost.is_retry and not needs_letters
    move = [f"move give_up_after_s to {hop.label(0)}"] if can_move else []
    drop = f"drop give_up_after_s of layer {number}"
    return _finding(hop, Code.BOUNDS, why, *move, drop, layer=number)


def _of_boundary(hop: Hop) -> Iterator[Finding]:
    boundary, state = hop.boundary, hop.cursor_store
    if hop.lanes and boundary is not Boundary.PROCESSED:
        yield _lanes_at(hop, boundary)
    if boundary is Boundary.HANDED and (hop.dead_letters is not None or hop.retries is not None):
        what = "retries" if hop.dead_letters is None else "dead_letter"
        why = (
            f"{what} can't be had with boundary handed: a message is settled before its handler runs, so one that "
            "fails is not tried again, and is lost"
        )
        yield _finding(hop, Code.BOUNDARY, why, "use boundary processed")
    if boundary in (Boundary.HANDED, Boundary.PROCESSED):
        return
    if not hop.layers[0].is_cursor:
        indexed = replace(hop, layers=(CONTINUOUS_INDEX, *hop.layers))
        fits = len(_of_layers(indexed)) <= len(_of_layers(hop))
        yield _finding(
            hop,
            Code.BOUNDARY,
            f"boundary {boundary} stores the cursor of the outermost layer, "
            f"and {hop.label(0)} has none",
            *("put an index pipe (such as continuous-index) outermost",) * fits,
            "use boundary processed",
            layer=0,
        )
    if state is None:
        beside = " and the sink" if boundary is Boundary.COMMITTED else ""
        yield _finding(
            hop,
            Code.BOUNDARY,
            f"boundary {boundary} stores the receiver's cursor, and there is no store for it",
            f"name {'one' if beside else 'a'} store for the receiver state{beside}",
            "use boundary processed",
        )
    elif boundary is Boundary.COMMITTED and not state.one_transaction_with(hop.sink):
        yield _split_store(hop, state)


def _lanes_at(hop: Hop, boundary: Boundary) -> Finding:
    reasons = {
        Boundary.COMMITTED: "a store makes one transaction after the other, and each of them holds how far the "
        "receiver is as one position",
        Boundary.BEFORE: "one position is stored before what follows it is handled",
        Boundary.HANDED: "messages are settled before any lane has them",
    }
    why = f"lanes settle messages in any order, and with boundary {boundary} {reasons[boundary]}"
    return _finding(hop, Code.BOUNDARY, why, "drop lanes", "use boundary processed")


def _split_store(hop: Hop, state: DeclaredStore) -> Finding:
    sink = f"in store {hop.sink.name}" if hop.sink is not None else "in no store of ours"
    if hop.sink == state:
        sink = "in another slot of the same store"
    why = (
        "boundary committed writes effect and cursor in one transaction, "
        f"and the receiver state is in store {state.name} while the sink is {sink}"
    )
    remedies = (
        "keep both in one store (one SQLite file, one Redis slot)",
        "use boundary processed",
    )
    return _finding(hop, Code.SPLIT_STORE, why, *remedies)


def _of_stores(hop: Hop) -> Iterator[Finding]:
    for what, store in (("journal", hop.journal), ("receiver state", hop.receiver_state)):
        if store is not None and store.volatile:
            why = (
                f"the {what} is in store {store.name}, which has level {store.level} "
                "and ends with the process that it should outlive"
            )
            remedy = f"keep the {what} in SQLite or another store that outlives the process"
            yield _finding(hop, Code.VOLATILE_STORE, why, remedy)
    if hop.journal is not None and not any(layer.confirms for layer in hop.layers):
        why = (
            "the journal keeps each message until it is confirmed, and no layer confirms: nothing would ever "
            "leave it, and the next sender would send nothing of its own"
        )
        yield _finding(hop, Code.ONE_WAY, why)
    if hop.retries is not None and hop.dead_letters is None:
        why = (
            f"after {hop.retries} retries there is no place to put the message, "
            "so the limit would lose it"
        )
        yield _finding(hop, Code.NO_DEAD_LETTER, why, "name dead_letter", "drop retries")
    outermost = hop.layers[0]
    if (
        isinstance(outermost, RetryOptions)
        and _goes_on_without(outermost)
        and outermost.give_up_after_s is not None
        and hop.dead_letters is None
    ):
        why = (
            f"after {outermost.give_up_after_s} s there is no place to put the message, "
            "so giving it up would lose it"
        )
        yield _finding(hop, Code.NO_DEAD_LETTER, why, "name dead_letter", "drop give_up_after_s")


def _goes_on_without(layer: LayerOptions) -> bool:
    """Whether a pipe goes on after a message that it gave up; the others stop and give everything back."""
    return not kind_of(layer).sender.stops_when_unanswered


def _of_channel(hop: Hop) -> tuple[Finding, ...]:
    back = other_direction(hop)
    return () if back is None else _of_hop(back)


def other_direction(hop: Hop) -> Hop | None:
    """The other direction of a channel: a hop like this one, and this one is its way back."""
    if hop.channel_back is None or hop.route.one_way:
        return None
    there = hop.name.removesuffix(_BACK)
    return Hop(
        *(
            f"{there}{_BACK}" if there == hop.name else there,
            hop.channel_back,
            hop.route.reversed(),
        ),
        stream=hop.stream,
        dead_letters=hop.dead_letters,
        channel_back=hop.layers,
    )
