"""The catalogue: which pipes there are, one line for each, and how people write layers.

The options that YAML and the schema know, the layers that stacks are built of, the declarations that ``check``
computes with, and the tables of patterns.md all come from here.

A layer is written as its name (``"reliable"``), as a mapping of its name to options
(``{"multi-unconfirmed": {"window": 512}}``), or as a value (``MultiUnconfirmed(window=512)``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from pydantic import ValidationError

from surepipe.core.callables import nearest
from surepipe.core.machine import Randomness
from surepipe.errors import ConfigurationError
from surepipe.pipes.declaration import Declaration, PipeKind
from surepipe.pipes.kinds import (
    continuous_index,
    dedupe,
    multi_unconfirmed,
    reliable,
    resend,
    sequential_confirm,
    stream,
    strict_monotonic,
)
from surepipe.pipes.options import LayerOptions, told_wrong
from surepipe.pipes.stack.layers import ReceiverLayer, ReceiverPort, SenderLayer, SenderPort

PIPES: tuple[PipeKind, ...] = (
    resend.PIPE,
    multi_unconfirmed.PIPE,
    stream.PIPE,
    sequential_confirm.PIPE,
    strict_monotonic.PIPE,
    continuous_index.PIPE,
    dedupe.PIPE,
    reliable.PIPE,
)
"""Every kind. A new one is a module in ``pipes/kinds`` and its line here."""

KINDS: Mapping[str, type[LayerOptions]] = {pipe.name: pipe.options for pipe in PIPES}
DECLARATIONS: tuple[Declaration, ...] = tuple(row for pipe in PIPES for row in pipe.declares)
_BY_NAME: Mapping[str, PipeKind] = {pipe.name: pipe for pipe in PIPES}


def kind_of(layer: LayerOptions) -> PipeKind:
    """The kind of a layer."""
    return _BY_NAME[layer.kind]


def declaration_of(layer: LayerOptions) -> Declaration:
    """What a layer requires and provides, as it is set up."""
    return kind_of(layer).declaration(layer)


def sender_layer(options: LayerOptions, port: SenderPort, rng: Randomness) -> SenderLayer:
    """The sending half of a layer."""
    return kind_of(options).sender(options, port, rng)


def receiver_layer(options: LayerOptions, port: ReceiverPort, rng: Randomness) -> ReceiverLayer:
    """The receiving half of a layer."""
    return kind_of(options).receiver(options, port, rng)


# What people write.


LayerText: TypeAlias = str | Mapping[str, Mapping[str, object] | None] | LayerOptions


Layers: TypeAlias = LayerText | Sequence[LayerText]
"""The layers of a pipe, outermost first; one may stand without a list."""


def parse_layers(layers: Layers) -> tuple[LayerOptions, ...]:
    """Read a list of layers, outermost first; one layer may stand without a list.

    Raises ConfigurationError that names the value and what to write instead.
    """
    if isinstance(layers, str | Mapping | LayerOptions):
        layers = [layers]
    if layers and not isinstance(cast("object", layers), Iterable):
        raise ConfigurationError(
            f"layers is {layers!r}: give a list of layers, such as ['reliable']"
        )
    if not layers:
        raise ConfigurationError("layers is empty: a pipe needs one at least, such as 'reliable'")
    return tuple(_parse_layer(number, layer) for number, layer in enumerate(layers))


def _parse_layer(number: int, layer: object) -> LayerOptions:
    """One layer. What people write is not typed, so each shape is looked at."""
    if isinstance(layer, LayerOptions):
        return layer
    name, options = layer, None
    if isinstance(layer, Mapping):
        written = cast("Mapping[object, object]", layer)
        if len(written) == 1:
            name, options = next(iter(written.items()))
    if isinstance(layer, type) and issubclass(layer, LayerOptions):
        raise ConfigurationError(f"layer {number} is a class: write {layer.__name__}()")
    if not isinstance(name, str):
        raise ConfigurationError(
            f"layer {number} is {layer!r}: write its name, or one mapping of its name to its "
            "options, such as {'multi-unconfirmed': {'window': 512}}"
        )
    model = KINDS.get(name)
    if model is None:
        raise ConfigurationError(
            f"layer {number} is {name!r}, which is no pipe: {nearest(name, KINDS)}"
        )
    try:
        return model.model_validate({} if options is None else options)
    except ValidationError as error:
        lines = told_wrong(model, error)
        raise ConfigurationError("\n".join(f"layer {number} {line}" for line in lines)) from None
