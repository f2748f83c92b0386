"""What the algebra computes with: routes, stores, one hop, and chains of hops. Values, and the
route part of what they promise.

A hop is one stack between one sender and one receiver, with everything around it that a guarantee depends on:
the route, the boundary, and the stores of journal, receiver state, sink, stream and dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from surepipe.core.claims import LOSSY, NO_FAULTS, ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.core.store_requests import Level
from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import declaration_of, kind_of
from surepipe.pipes.declaration import Reverse
from surepipe.pipes.options import LayerOptions, entry_layer
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream


@dataclass(frozen=True, slots=True)
class DeclaredRoute:
    """What carries frames, and the route faults it exhibits in each direction (back None: one-way)."""

    name: str
    forward: Faults = ROUTE
    back: Faults | None = ROUTE

    @property
    def one_way(self) -> bool:
        """True when nothing can come back."""
        return self.back is None

    def reversed(self) -> DeclaredRoute:
        """The same route, seen from the other end."""
        return DeclaredRoute(self.name, ROUTE if self.back is None else self.back, self.forward)


def one_way(route: DeclaredRoute) -> DeclaredRoute:
    """The forward half of a route, without a way back."""
    return DeclaredRoute(f"one-way {route.name}", route.forward, None)


_TCP_FAULTS = frozenset(
    {
        Fault.ROUTE_LOSS,  # what was in a broken connection
        Fault.ROUTE_REORDERING,  # across reconnects
        Fault.ROUTE_DELAY,
        Fault.ROUTE_OUTAGE,
    }
)
LOCAL = DeclaredRoute("local", NO_FAULTS, NO_FAULTS)
TCP = DeclaredRoute("tcp", _TCP_FAULTS, _TCP_FAULTS)
LOSSY_ROUTE = DeclaredRoute("lossy")
"""A route that exhibits everything. An undeclared route is taken for one."""

ROUTES: Mapping[str, DeclaredRoute] = {route.name: route for route in (LOCAL, TCP, LOSSY_ROUTE)}


@dataclass(frozen=True, slots=True)
class DeclaredStore:
    """A store as far as guarantees go. Stores of one name are one store.

    ``transactional``: whatever it holds can be written in one transaction (a Redis that spreads its streams
    over slots can't). ``declared``: the level was stated by the user, not probed.
    """

    name: str
    level: Level
    kind: str = "sqlite"
    transactional: bool = True
    declared: bool = False

    @property
    def volatile(self) -> bool:
        """True when it ends with the process that uses it."""
        return self.kind != "redis" and self.level < Level.PROCESS

    def one_transaction_with(self, other: DeclaredStore | None) -> bool:
        """True when a write here and one there can be made in one atomic step."""
        return self.transactional and self == other

    @property
    def how_to_raise(self) -> str:
        """What a person does to reach the highest level."""
        return _RAISE.get(self.kind, _RAISE["memory"])


_RAISE: Mapping[str, str] = {
    "memory": "use SQLite",
    "sqlite": "set synchronous to FULL",
    "redis": "set appendonly yes and appendfsync always, or use SQLite",
}


@dataclass(frozen=True, slots=True)
class Hop:
    """One pipe: its layers (outermost first) and what stands around them.

    ``channel_back`` is the stack of the other direction, when the pipe is one half of a channel.
    ``lanes``: messages of so many different keys are handled at once (0: one after the other).
    ``forced_trim``: the stream's retention may pass a reader that has not read yet.
    ``stored``: what follows a message is written to a store, which may be out when the message is settled already.
    ``gathers``: several messages become one behind it, as a batch does.
    ``reread``: it is fed by a source that is read again after a crash, from the place that was stored last.
    ``linked``: faults that strike together, because both ends are in one process.
    ``parks``: it goes through a book, and these settings of it let messages wait for a person; None: no book.
    ``blocks``: a key may stand still at a message until a person comes.
    ``limited``: a message that another party hasn't received in time comes back. ``unordered``: that party takes
    each message by itself.
    Raises ConfigurationError without layers, or for a stream layer without the store of the stream.
    """

    name: str
    layers: tuple[LayerOptions, ...]
    route: DeclaredRoute = LOSSY_ROUTE
    boundary: Boundary = Boundary.PROCESSED
    journal: DeclaredStore | None = None
    receiver_state: DeclaredStore | None = None
    sink: DeclaredStore | None = None
    stream: DeclaredStore | None = None
    dead_letters: DeclaredStore | None = None
    retries: int | None = None
    lanes: int = 0
    forced_trim: bool = False
    stored: bool = False
    gathers: bool = False
    reread: bool = False
    channel_back: tuple[LayerOptions, ...] | None = None
    linked: tuple[Faults, ...] = ()
    parks: tuple[str, ...] | None = None
    blocks: bool = False
    limited: bool = False
    unordered: bool = False

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigurationError(f"pipe {self.name} has no layers: write one, such as reliable")
        if self.stream is None and self.stream_layer is not None:
            raise ConfigurationError(
                f"pipe {self.name} has a stream layer: say which store keeps it"
            )

    @property
    def stream_layer(self) -> int | None:
        """The number of the stream layer, where there is one."""
        return next((n for n, x in enumerate(self.layers) if isinstance(x, Stream)), None)

    @property
    def waits_for_failed(self) -> bool:
        """True when later messages wait while a failed one is tried again: all but the unordered pipes."""
        return kind_of(self.layers[0]).receiver.ordered

    @property
    def cursor_store(self) -> DeclaredStore | None:
        """Where the receiver's cursors are kept: by default beside the stream, where there is one."""
        return self.receiver_state or self.stream

    @property
    def stores(self) -> tuple[DeclaredStore, ...]:
        """All stores that the guarantee of the hop leans on."""
        used = (self.stream, self.journal, self.receiver_state, self.dead_letters)
        return tuple(dict.fromkeys(store for store in used if store is not None))

    def label(self, number: int) -> str:
        """A layer as findings name it."""
        return f"layer {number} ({self.layers[number].kind})"


@dataclass(frozen=True, slots=True)
class Chain:
    """Hops in a row; ``hand_over[i]`` is how the relay after hop i takes over what that hop delivers.

    ``handed``: accepted by the next sender. ``processed``: confirmed by the next hop, or in its journal.
    ``committed``: the cursor moves and the next hop's journal (or stream) grows in one transaction.
    ``linked``: faults that strike together, because ends of the chain are in one process.
    """

    name: str
    hops: tuple[Hop, ...]
    hand_over: tuple[Boundary, ...]
    linked: tuple[Faults, ...] = ()

    def __post_init__(self) -> None:
        if len(self.hand_over) != len(self.hops) - 1:
            raise ConfigurationError(
                f"chain {self.name} has {len(self.hops)} hops and {len(self.hand_over)} hand-overs: "
                "there is one between every two hops"
            )

    def relayed(self) -> tuple[Hop, ...]:
        """The hops, each with the boundary and the sink that its hand-over makes.

        What strikes together is said of the whole chain: a hop survives in part what the one before makes good.
        """
        joints = zip(self.hops, self.hops[1:], self.hand_over, strict=False)
        inner = (
            replace(hop, boundary=boundary, sink=after.journal or after.stream, linked=())
            for hop, after, boundary in joints
        )
        return (*inner, replace(self.hops[-1], linked=()))


def confirms_return(route: DeclaredRoute) -> bool:
    """True when whatever is sent back once arrives."""
    return route.back is not None and not route.back & LOSSY


def composition(hop: Hop) -> str:
    """The stack as a person reads it, ``continuous-index > multi-unconfirmed(window=512) / tcp``."""
    if hop.parks is not None:
        return f"book / {hop.route.name}"
    return f"{' > '.join(str(layer) for layer in hop.layers)} / {hop.route.name}"


# The route part of a guarantee: a fold of the layers' declarations, from the route upwards.


_BARE: dict[Atom, Faults] = {
    Atom.NO_LOSS: frozenset({Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING, Fault.ROUTE_DELAY}),
    Atom.NO_DUPLICATE: ROUTE - {Fault.ROUTE_DUPLICATION},
    Atom.MONOTONIC: ROUTE - {Fault.ROUTE_DUPLICATION, Fault.ROUTE_REORDERING},
    Atom.GAP_FREE: frozenset({Fault.ROUTE_DUPLICATION, Fault.ROUTE_DELAY}),
}
"""What each atom survives without any layer: a fault that doesn't touch it."""


def bare(route: DeclaredRoute) -> Guarantee:
    """The guarantee of a route alone: it also survives whatever the route does not exhibit."""
    return Guarantee.of({atom: faults | (ROUTE - route.forward) for atom, faults in _BARE.items()})


def route_parts(layers: Sequence[LayerOptions], route: DeclaredRoute) -> tuple[Guarantee, ...]:
    """What stands above each layer, outermost first; the last one is the bare route."""
    parts = [bare(route)]
    for number in reversed(range(len(layers))):
        within = bounds_span(layers[number + 1 :], route)
        parts.append(declaration_of(layers[number]).apply(parts[-1], within_window=within))
    return tuple(reversed(parts))


def bounds_span(below: Sequence[LayerOptions], route: DeclaredRoute) -> bool:
    """Whether what stands above these layers gets nothing so early or late that its window is too small for good.

    A layer that learns what is settled bounds how far it goes ahead, and brings again what found no room. A bare
    route that overtakes does so by any span: its sender is never told to wait.
    """
    overtakes = Fault.ROUTE_REORDERING in route.forward
    return not overtakes or any(layer.confirms for layer in below)


def provided_because(hop: Hop, number: int, atom: Atom) -> str:
    """Why a layer makes of an atom what it does, in words that follow its label."""
    provision = declaration_of(hop.layers[number]).provides[atom]
    if provision.window and not bounds_span(hop.layers[number + 1 :], hop.route):
        return f"{provision.beyond}, and nothing bounds by how much messages overtake on route {hop.route.name}"
    return provision.because


def reverse_path(hop: Hop, number: int) -> Reverse:
    """How frames of this layer get back."""
    above_stream = any(isinstance(below, Stream) for below in hop.layers[number + 1 :])
    if hop.route.one_way or above_stream:
        return Reverse.NONE
    if confirms_return(hop.route):
        return Reverse.AT_LEAST_ONCE
    if hop.channel_back is not None and _brings_confirms(hop.channel_back, hop.route.reversed()):
        return Reverse.AT_LEAST_ONCE
    return Reverse.FAIR


def _brings_confirms(layers: Sequence[LayerOptions], route: DeclaredRoute) -> bool:
    """Whether confirms that enter this stack arrive, whatever the route does.

    They enter below every layer that itself waits for carried confirms: two such stacks carry each other's.
    """
    entry = entry_layer(layers)
    return entry is not None and route_parts(layers[entry:], route)[0].no_loss == ROUTE
