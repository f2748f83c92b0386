"""Every stack of one or two layers, with the options on which two ends must agree, that the algebra takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.guarantees.hops import TCP, Hop
from surepipe.pipes.catalogue import KINDS, LayerText, parse_layers
from surepipe.pipes.stack.agreement import stack_text

Layers = Sequence[LayerText]
SAID: Mapping[str, Sequence[object]] = {
    "repeats": ("none", "forward", "last", "all"),
    "relaxed": (False, True),
    "retry": ("own", "carrier"),
}


def variants(kind: str) -> Iterator[LayerText]:
    """The layer with each value of each option on which two ends must agree."""
    yield kind
    for name, values in SAID.items():
        field = KINDS[kind].model_fields.get(name)
        for value in values if field is not None else ():
            if field is not None and value != field.default and _is_allowed(kind, name, value):
                yield {kind: {name: value}}


def _is_allowed(kind: str, name: str, value: object) -> bool:
    try:
        KINDS[kind].model_validate({name: value})
    except ValueError:
        return False
    return True


def directory(*, stream: bool = False) -> dict[str, Layers]:
    """The stacks by their text, over a route that loses frames or (``stream``) over a store."""
    kinds = [kind for kind in KINDS if kind != "stream"]
    if stream:  # what needs a way back can't stand over a store
        kinds = [kind for kind in kinds if not KINDS[kind].is_retry]
    singles = [layer for kind in kinds for layer in variants(kind)]
    stored: LayerText = {"stream": {"start": "earliest"}}
    carriers = [stored] if stream else singles
    found: dict[str, Layers] = {}
    for layers in [[one] for one in carriers] + [[o, c] for o in singles for c in carriers]:
        if stream or _is_taken(layers):
            found[stack_text(parse_layers(layers))] = layers
    return found


def _is_taken(layers: Layers) -> bool:
    try:
        derive(Hop("any", parse_layers(layers), route=TCP))
    except CompositionError:
        return False
    return True
