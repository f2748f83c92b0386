"""What to change so that something holds: found by trying, never by a table of advice.

An edit is a changed composition and the words for the change. A search tries the edits of a composition, then
the edits of those, and keeps the first that are accepted; so a remedy that is printed is one that works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Generic, TypeAlias, TypeVar

from surepipe.core.store_requests import Level
from surepipe.guarantees.hops import Chain, DeclaredRoute, DeclaredStore, Hop
from surepipe.guarantees.problems import Code, Finding
from surepipe.pipes.catalogue import PIPES
from surepipe.pipes.kinds.multi_unconfirmed import MultiUnconfirmed
from surepipe.pipes.kinds.reliable import Reliable
from surepipe.pipes.kinds.sequential_confirm import SequentialConfirm
from surepipe.pipes.kinds.strict_monotonic import StrictMonotonic
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary

S = TypeVar("S", Hop, Chain)


@dataclass(frozen=True, slots=True)
class Edit(Generic[S]):
    """A changed composition, and what was changed, as an instruction.

    Of edits with the same ``instead_of`` only the first that helps is advised.
    """

    text: str
    result: S
    instead_of: str = ""


Edits: TypeAlias = Callable[[Hop], Iterator[Edit[Hop]]]

NEW_STORE = DeclaredStore("new", Level.PROCESS)
"""Stands for the store that a person would add."""

_ADVISED = sorted((pipe for pipe in PIPES if pipe.advised), key=lambda pipe: pipe.advised)
_REPLACEMENTS = [pipe.options() for pipe in _ADVISED]
_MADE_FOR_ORDER = [layer for layer in _REPLACEMENTS if layer.is_index]
_MADE_FOR_LOSS = [layer for layer in _REPLACEMENTS if layer.is_retry and not layer.is_cursor]


def search(
    starts: Sequence[Edit[S]],
    edits: Callable[[S], Iterator[Edit[S]]],
    accept: Callable[[S], bool],
    depth: int,
) -> str | None:
    """The shortest row of edits, from any of the starts, that leads to something accepted, in words."""
    frontier, seen = list(starts), {start.result for start in starts}
    for start in starts:
        if start.text and accept(start.result):
            return start.text
    for _ in range(depth):
        further: list[Edit[S]] = []
        for before in frontier:
            for edit in edits(before.result):
                if edit.result in seen:
                    continue
                seen.add(edit.result)
                text = f"{before.text} and {edit.text}" if before.text else edit.text
                if accept(edit.result):
                    return text
                further.append(Edit(text, edit.result))
        frontier = further
    return None


def first_group(
    hop: Hop, groups: Sequence[Edits], accept: Callable[[Hop], bool]
) -> tuple[str, ...]:
    """The edits that are accepted, of the first group that has any."""
    for group in groups:
        found: dict[str, str] = {}
        for edit in group(hop):
            if accept(edit.result):
                found.setdefault(edit.instead_of or edit.text, edit.text)
        if found:
            return tuple(found.values())
    return ()


def process_edits(hop: Hop) -> Iterator[Edit[Hop]]:
    """Journals, boundaries and stores: everything but layers and routes."""
    home = _home(hop)
    if hop.parks is not None:
        yield from _book_edits(hop)
        return
    if hop.limited:
        yield Edit("drop timeout_s in its route", replace(hop, limited=False))
    if hop.unordered:
        yield Edit("write order: ordered in its route", replace(hop, unordered=False))
    if hop.journal is None:
        yield Edit("name a journal", replace(hop, journal=home))
    if hop.boundary is not Boundary.PROCESSED:
        yield Edit("use boundary processed", replace(hop, boundary=Boundary.PROCESSED))
    if hop.lanes:
        yield Edit("drop lanes", replace(hop, lanes=0))
    if hop.layers[0].is_cursor:
        yield from _cursor_edits(hop, home)
    if any(store.level < Level.POWER for store in hop.stores):
        yield _raised(hop)
    if hop.forced_trim:
        yield Edit("drop retention.force", replace(hop, forced_trim=False))


def _book_edits(hop: Hop) -> Iterator[Edit[Hop]]:
    """A book has no layers, journal or boundary to change."""
    if hop.parks:
        settings = " and ".join(f"{name}: dead_letter" for name in hop.parks)
        stands = " and ".join(f"{name}: block" for name in hop.parks if name != "on_rejected")
        other = f" (or {stands})" if stands else ""
        yield Edit(f"write {settings} in its route{other}", replace(hop, parks=()))
    if any(store.level < Level.POWER for store in hop.stores):
        yield _raised(hop)


def grown(hop: Hop) -> Iterator[Edit[Hop]]:
    """The stack with a retry pipe, without which some process edits are not possible."""
    if hop.parks is not None:
        return
    yield from _puts_below(hop)
    yield from _reliable_alone(hop)


def structure_edits(route_is_cause: bool) -> tuple[Edits, ...]:
    """Changes of the layers, in groups: what leaves more as it is comes first."""
    first: tuple[Edits, ...] = (_puts_below,) if route_is_cause else ()
    return (*first, _swaps, _replacements, _puts_above, _puts_below, _reliable_alone)


def remedies_for(finding: Finding) -> tuple[Edits, ...]:
    """The groups of edits that may resolve a finding about layers."""
    number = finding.layer or 0
    if finding.code is Code.UNMET_CARRIER:
        return (
            lambda hop: _swap_with_retry_above(hop, number),
            lambda hop: _stream_innermost(hop, number),
            lambda hop: _retry_below(hop, number),
            _strict_alone,
        )
    if finding.code is Code.ONE_WAY and finding.layer is None:
        return (_confirming,)
    if finding.code is Code.ONE_WAY:
        return (
            lambda hop: _dropped(hop, number),
            _way_back_or_none_needed,
        )
    if finding.code is Code.UNPROTECTED_CONFIRMS:
        return (lambda hop: _protected(hop, number),)
    return ()


def chain_edits(chain: Chain) -> Iterator[Edit[Chain]]:
    """Hand-overs, and the process edits of each hop."""
    for number in range(len(chain.hand_over)):
        if chain.hops[number].parks is not None:
            continue  # it settles what is processed
        yield from _hand_overs(chain, number)
    for number, hop in enumerate(chain.hops):
        for edit in process_edits(hop):
            hops = _with(chain.hops, number, edit.result)
            yield Edit(f"in pipe {hop.name}, {edit.text}", replace(chain, hops=hops))


def _hand_overs(chain: Chain, number: int) -> Iterator[Edit[Chain]]:
    hop, after = chain.hops[number], chain.hops[number + 1]
    where = f"hand over from {hop.name} to {after.name}"
    processed = _with(chain.hand_over, number, Boundary.PROCESSED)
    yield Edit(f"{where} processed", replace(chain, hand_over=processed))
    store = after.journal or after.stream or hop.receiver_state or _home(hop)
    relayed = replace(hop, receiver_state=store)
    taking = after if after.stream else replace(after, journal=store)
    hops = _with(_with(chain.hops, number, relayed), number + 1, taking)
    committed = _with(chain.hand_over, number, Boundary.COMMITTED)
    yield Edit(
        f"{where} committed, with the state of one and the journal of the other in one store",
        replace(chain, hops=hops, hand_over=committed),
    )


def whole_chain(chain: Chain, accept: Callable[[Chain], bool]) -> str | None:
    """What makes all hops of a process survive its crash, without the changes that it does as well without.

    A crash takes all ends of a process at once, so no change of one hop shows alone.
    """
    changes = _everywhere(chain)
    if not accept(_made(chain, changes)):
        return None
    for change in changes:
        fewer = [one for one in changes if one is not change]
        if accept(_made(chain, fewer)):
            changes = fewer
    pipes: dict[str, list[str]] = {}
    for pipe, text, _ in changes:
        pipes.setdefault(text, []).append(pipe)
    return " and ".join(
        f"in pipe{'s' * (len(names) > 1)} {' and '.join(names)}, {text}"
        for text, names in pipes.items()
    )


_Change: TypeAlias = tuple[str, str, Callable[[Chain], Chain]]


def _made(chain: Chain, changes: Sequence[_Change]) -> Chain:
    for _, _, change in changes:
        chain = change(chain)
    return chain


def _everywhere(chain: Chain) -> list[_Change]:
    """A journal and boundary committed for each hop that can have them, all in one store."""
    homes = (_home(hop) for hop in chain.hops)
    home = next((store for store in homes if store != NEW_STORE), NEW_STORE)
    found: list[_Change] = []
    for number, hop in enumerate(chain.hops):
        if hop.parks is not None:
            continue
        if hop.stream is None and hop.journal != home:
            found.append((hop.name, "name a journal", _changed(number, journal=home)))
        if hop.layers[0].is_cursor:
            text = "use boundary committed with receiver state and sink in one store"
            kept = {"boundary": Boundary.COMMITTED, "receiver_state": hop.stream or home}
            if any(getattr(hop, name) != value for name, value in kept.items()):
                change = _changed(number, **kept, sink=hop.stream or home)
                found.append((hop.name, text, change))
    return found


def _changed(number: int, **parts: object) -> Callable[[Chain], Chain]:
    """One hop changed, and the hand-over after it where its boundary is."""

    def change(chain: Chain) -> Chain:
        hop = replace(chain.hops[number], **parts)  # type: ignore[arg-type]  # names of fields
        hand_over = chain.hand_over
        if number < len(hand_over):
            hand_over = _with(
                hand_over, number, hop.boundary if "boundary" in parts else hand_over[number]
            )
        return replace(chain, hops=_with(chain.hops, number, hop), hand_over=hand_over)

    return change


T = TypeVar("T")


def _with(row: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*row[:number], value, *row[number + 1 :])


def _home(hop: Hop) -> DeclaredStore:
    """A store that may hold more: one that the hop uses already, else a new one."""
    used = (hop.receiver_state, hop.sink, hop.journal, hop.stream)
    fitting = (store for store in used if store is not None and not store.volatile)
    return next(fitting, NEW_STORE)


def _called(store: DeclaredStore) -> str:
    return "the new store" if store == NEW_STORE else f"store {store.name}"


def _cursor_edits(hop: Hop, home: DeclaredStore) -> Iterator[Edit[Hop]]:
    before = replace(hop, boundary=Boundary.BEFORE, receiver_state=home)
    yield Edit("use boundary before with a store for the receiver state", before)
    committed = replace(hop, boundary=Boundary.COMMITTED, receiver_state=home, sink=home)
    yield Edit("use boundary committed with receiver state and sink in one store", committed)


def _raised(hop: Hop) -> Edit[Hop]:
    low = [store for store in hop.stores if store.level < Level.POWER]
    text = " and ".join(f"for {_called(store)}, {store.how_to_raise}" for store in low)

    def raised(store: DeclaredStore | None) -> DeclaredStore | None:
        if store is None or store not in low:
            return store
        kind = "sqlite" if store.kind == "memory" else store.kind
        return replace(store, level=Level.POWER, kind=kind)

    result = replace(
        hop,
        journal=raised(hop.journal),
        receiver_state=raised(hop.receiver_state),
        sink=raised(hop.sink),
        stream=raised(hop.stream),
        dead_letters=raised(hop.dead_letters),
    )
    return Edit(text, result)


def _layers(hop: Hop, text: str, *layers: LayerOptions, instead_of: str = "") -> Edit[Hop]:
    return Edit(text, replace(hop, layers=layers), instead_of)


def _swap(hop: Hop, above: int, below: int) -> tuple[LayerOptions, ...]:
    layers = list(hop.layers)
    layers[above], layers[below] = layers[below], layers[above]
    return tuple(layers)


def _swaps(hop: Hop) -> Iterator[Edit[Hop]]:
    for above, below in combinations(range(len(hop.layers)), 2):
        yield _layers(hop, f"swap layers {above} and {below}", *_swap(hop, above, below))


def _replacements(hop: Hop) -> Iterator[Edit[Hop]]:
    if hop.stream_layer is not None:
        return
    for number, old in enumerate(hop.layers):
        for new in _REPLACEMENTS:
            if new.kind != old.kind:
                layers = _with(hop.layers, number, new)
                text = f"replace layer {number} by {new.kind}"
                yield _layers(hop, text, *layers, instead_of=f"layer {number}")


def _puts_above(hop: Hop) -> Iterator[Edit[Hop]]:
    for layer in _MADE_FOR_ORDER:
        yield _layers(hop, f"put {layer.kind} above layer 0", layer, *hop.layers)


def _puts_below(hop: Hop) -> Iterator[Edit[Hop]]:
    last = len(hop.layers) - 1
    for layer in _MADE_FOR_LOSS:
        yield _layers(hop, f"put {layer.kind} below layer {last}", *hop.layers, layer)


def _reliable_alone(hop: Hop) -> Iterator[Edit[Hop]]:
    yield _layers(hop, "use reliable", Reliable())


def _swap_with_retry_above(hop: Hop, number: int) -> Iterator[Edit[Hop]]:
    for above in range(number):
        if hop.layers[above].is_retry:
            text = (
                f"{hop.label(above)} stands above it, and order pipes go outside of retry pipes: "
                f"swap layers {above} and {number}"
            )
            yield _layers(hop, text, *_swap(hop, above, number))


def _stream_innermost(hop: Hop, number: int) -> Iterator[Edit[Hop]]:
    if hop.stream_layer == number:
        yield _layers(hop, f"drop what is below layer {number}", *hop.layers[: number + 1])


def _retry_below(hop: Hop, number: int) -> Iterator[Edit[Hop]]:
    above, below = hop.layers[: number + 1], hop.layers[number + 1 :]
    for layer in _MADE_FOR_LOSS:
        text = f"put {layer.kind} below layer {number}"
        yield _layers(hop, text, *above, layer, *below)
    yield from _reliable_alone(hop)


def _strict_alone(hop: Hop) -> Iterator[Edit[Hop]]:
    yield _layers(hop, "use strict-monotonic (at-most-once)", StrictMonotonic())


def _dropped(hop: Hop, number: int) -> Iterator[Edit[Hop]]:
    if hop.stream_layer is not None and len(hop.layers) > 1:
        layers = (*hop.layers[:number], *hop.layers[number + 1 :])
        yield _layers(
            hop, f"drop layer {number}, since the stream below repeats by itself", *layers
        )


def _confirming(hop: Hop) -> Iterator[Edit[Hop]]:
    yield from _puts_below(hop)
    yield Edit("drop the journal", replace(hop, journal=None))


def _way_back_or_none_needed(hop: Hop) -> Iterator[Edit[Hop]]:
    two_way = DeclaredRoute(hop.route.name, hop.route.forward, hop.route.forward)
    yield Edit("give the route a way back", replace(hop, route=two_way))
    yield from _strict_alone(hop)


def _protected(hop: Hop, number: int) -> Iterator[Edit[Hop]]:
    channel = (MultiUnconfirmed(),)
    yield Edit("carry the confirms on a channel", replace(hop, channel_back=channel))
    layer = hop.layers[number]
    if isinstance(layer, SequentialConfirm):
        own = layer.model_copy(update={"retry": "own"})
        yield _layers(hop, "set retry: own", *_with(hop.layers, number, own))
