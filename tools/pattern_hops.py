"""The compositions that patterns.md is about, as values: what its tables are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from surepipe.core.claims import Claim, Fault
from surepipe.core.store_requests import Level
from surepipe.guarantees.hops import (
    LOCAL,
    LOSSY_ROUTE,
    TCP,
    Chain,
    DeclaredRoute,
    DeclaredStore,
    Hop,
    one_way,
)
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.boundary import Boundary

SYNCED = DeclaredStore("main", Level.POWER)
WRITTEN = DeclaredStore("main", Level.PROCESS)
UNKEPT_REDIS = DeclaredStore("main", Level.NONE, "redis")
ONE_WAY = one_way(LOSSY_ROUTE)

SINGLE_RESEND: LayerText = {"resend": {"run_max": 1}}
CARRIER_SEQUENTIAL: LayerText = {"sequential-confirm": {"retry": "carrier"}}
STREAM: LayerText = {"stream": {"start": "earliest"}}


def hop(*layers: LayerText, route: DeclaredRoute = LOSSY_ROUTE) -> Hop:
    """A pipe called orders with these layers; a stream among them is kept in a synced store."""
    parsed = parse_layers(layers)
    kept = SYNCED if any(layer.kind == "stream" for layer in parsed) else None
    return Hop("orders", parsed, route, stream=kept)


def committed(plain: Hop) -> Hop:
    """With a journal, the receiver's state and the sink in one synced store, written in one transaction."""
    return replace(
        plain,
        journal=SYNCED,
        receiver_state=SYNCED,
        sink=SYNCED,
        boundary=Boundary.COMMITTED,
    )


BOOK = Hop(
    "calls",
    parse_layers([STREAM]),
    LOCAL,
    stream=SYNCED,
    journal=SYNCED,
    dead_letters=SYNCED,
    retries=5,
    lanes=8,
    parks=(),
)
"""A pipe through a book that parks nothing."""
BETWEEN_PARTIES = Hop(
    "orders",
    parse_layers([STREAM]),
    LOCAL,
    stream=SYNCED,
    journal=SYNCED,
    receiver_state=SYNCED,
    sink=SYNCED,
    boundary=Boundary.COMMITTED,
    stored=True,
)
"""A pipe between two parties, whose ends are those of a stream pipe."""
BOOKS: Mapping[str, Hop] = {
    "nothing is parked": BOOK,
    "a message may be parked": replace(BOOK, parks=("on_poison",)),
}

# For each pattern: what it is shown on, and over what its crashes are judged (the last one).

PATTERNS: Mapping[str, tuple[Hop, ...]] = {
    "resend": (hop("resend", route=LOCAL), hop(SINGLE_RESEND), hop("resend")),
    "multi-unconfirmed": (hop("multi-unconfirmed", route=LOCAL), hop("multi-unconfirmed")),
    "stream": (hop(STREAM, route=LOCAL), hop(STREAM)),
    "sequential-confirm": (
        hop("sequential-confirm", route=LOCAL),
        hop({"sequential-confirm": {"repeats": "forward"}}),
        hop("sequential-confirm"),
    ),
    "strict-monotonic": (
        hop("strict-monotonic", route=LOCAL),
        hop("strict-monotonic", "resend"),
        hop("strict-monotonic", route=ONE_WAY),
    ),
    "continuous-index": (
        hop("continuous-index", route=LOCAL),
        hop("continuous-index"),
        hop("continuous-index", "multi-unconfirmed"),
    ),
    "dedupe": (
        hop("dedupe", route=LOCAL),
        hop("dedupe"),
        hop("dedupe", "multi-unconfirmed"),
    ),
    "reliable": (hop("reliable", route=LOCAL), hop("reliable")),
}


@dataclass(frozen=True, slots=True)
class Need:
    """A row of the first table: what somebody needs, what serves it, and what that costs."""

    need: str
    link: str
    hop: Hop
    cost: str
    setup: str = ""


NEEDS: tuple[Need, ...] = (
    Need(
        "every message once, in order (when unsure, take this)",
        "reliable",
        hop("reliable"),
        "the receiver holds up to a window",
    ),
    Need(
        "the same, and neither a crash nor power loss may show",
        "boundaries",
        committed(hop("reliable")),
        "a journal write and a transaction for each batch",
        "journal, receiver state and sink in one store, `committed`",
    ),
    Need(
        "the two ends are not up at the same time",
        "stream",
        hop(STREAM),
        "a store, and its latency",
    ),
    Need(
        "every message, repeats do no harm, order does not matter",
        "multi-unconfirmed",
        hop("multi-unconfirmed"),
        "nothing waits, the receiver keeps nothing",
    ),
    Need(
        "every message once, order does not matter",
        "dedupe",
        hop("dedupe", "multi-unconfirmed"),
        "the receiver remembers what it has seen, as ranges",
    ),
    Need(
        "only the newest counts, or nothing can come back",
        "strict-monotonic",
        hop("strict-monotonic", route=ONE_WAY),
        "what is lost stays lost, and is counted",
    ),
    Need(
        "every message, few of them, the least machinery",
        "resend",
        hop("resend"),
        "one frame for each round trip",
    ),
    Need(
        "order only: the carrier below loses nothing",
        "continuous-index",
        hop("continuous-index", route=LOCAL),
        "the receiver holds what comes early",
    ),
)


# The worked compositions. Each is judged by the algebra when the page is made.


@dataclass(frozen=True, slots=True)
class Worked:
    """One composition: how a person writes it, what it is, and what is expected of it."""

    number: str
    text: str
    subject: Hop | Chain
    expect: Claim | None = None
    only: Fault | None = None
    """Judge this fault alone."""


_FIRST = hop("reliable")
_SEVENTH = hop("strict-monotonic", "multi-unconfirmed")
_NINTH = hop("strict-monotonic", route=ONE_WAY)
_THIRTEENTH = hop(CARRIER_SEQUENTIAL, "multi-unconfirmed")


def _chain(hand_over: Boundary) -> Chain:
    first = replace(committed(_FIRST), name="intake")
    return Chain("flow", (first, replace(_FIRST, name="onward", journal=SYNCED)), (hand_over,))


WORKED: tuple[Worked, ...] = (
    Worked("1", "`reliable` / lossy", _FIRST),
    Worked("2", "1 with a journal at level `process`", replace(_FIRST, journal=WRITTEN)),
    Worked("3", "1, all in one store at level `power`, `committed`", committed(_FIRST)),
    Worked(
        "4",
        "`continuous-index > multi-unconfirmed` / lossy",
        hop("continuous-index", "multi-unconfirmed"),
    ),
    Worked(
        "5",
        "`multi-unconfirmed > continuous-index` / lossy",
        hop("multi-unconfirmed", "continuous-index"),
    ),
    Worked("6", "`strict-monotonic > resend` / lossy", hop("strict-monotonic", "resend")),
    Worked("7", "`strict-monotonic > multi-unconfirmed` / lossy", _SEVENTH),
    Worked(
        "8",
        "7, expecting at-least-once under route-loss",
        _SEVENTH,
        Claim.parse("at-least-once; tolerates route-loss"),
    ),
    Worked("9", "`strict-monotonic` / one-way lossy", _NINTH),
    Worked(
        "10",
        "9 with stored receiver state, `before`",
        replace(_NINTH, receiver_state=WRITTEN, boundary=Boundary.BEFORE),
    ),
    Worked("11", "`continuous-index` / local", hop("continuous-index", route=LOCAL)),
    Worked("12", "`continuous-index` / tcp", hop("continuous-index", route=TCP)),
    Worked("13", "`sequential-confirm(retry: carrier) > multi-unconfirmed` / lossy", _THIRTEENTH),
    Worked(
        "14",
        "13 over a channel of `multi-unconfirmed`",
        replace(_THIRTEENTH, channel_back=parse_layers("multi-unconfirmed")),
    ),
    Worked(
        "15a",
        "`resend(run_max: 1) > strict-monotonic` / lossy",
        hop(SINGLE_RESEND, "strict-monotonic"),
    ),
    Worked("15b", "`resend > strict-monotonic` / lossy", hop("resend", "strict-monotonic")),
    Worked("16", "`dedupe > multi-unconfirmed` / lossy", hop("dedupe", "multi-unconfirmed")),
    Worked("17", "`reliable` / one-way lossy", hop("reliable", route=ONE_WAY)),
    Worked(
        "18",
        "`stream` on a Redis that keeps nothing, expecting exactly-once under store-crash",
        replace(hop(STREAM), stream=UNKEPT_REDIS),
        Claim.parse("exactly-once; tolerates store-crash"),
    ),
    Worked("19", "`reliable`, `retries: 5`, no dead letters", replace(_FIRST, retries=5)),
    *(
        Worked(
            f"20{letter}",
            f"3, then `reliable` with its journal in the same store; handed over `{hand_over}`",
            _chain(hand_over),
            only=Fault.RELAY_CRASH,
        )
        for letter, hand_over in (
            ("a", Boundary.HANDED),
            ("b", Boundary.PROCESSED),
            ("c", Boundary.COMMITTED),
        )
    ),
)

_CARRIED: LayerText = {"sequential-confirm": {"retry": "carrier"}}
CHANNELS: tuple[tuple[Hop, Hop], ...] = tuple(
    (hop(*there), hop(*back))
    for there, back in (
        (("reliable",), ("reliable",)),
        (("reliable",), ("strict-monotonic",)),
        ((_CARRIED, "multi-unconfirmed"), ("multi-unconfirmed",)),
        ((_CARRIED, "multi-unconfirmed"), (_CARRIED, "multi-unconfirmed")),
        ((_CARRIED, "multi-unconfirmed"), ("strict-monotonic",)),
    )
)
"""Both directions of some channels: each is the way back of the other."""
