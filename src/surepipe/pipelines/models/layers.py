"""``layers``: a name or a mapping of a name to options, and what an editor may know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from surepipe.errors import ConfigurationError
from surepipe.pipes.options import KINDS, LayerOptions, LayerText, parse_layers


def layers_of(written: object) -> tuple[LayerOptions, ...]:
    """The layers of a pipe. Raises ValueError that names what is wrong; () stays ()."""
    if isinstance(written, tuple) and not written:
        return ()
    try:
        return parse_layers(cast("LayerText | Sequence[object]", written))
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _options_schema(model: type[LayerOptions]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("title", None)
    for option in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).values():
        option.pop("title", None)
    return {"anyOf": [schema, {"type": "null"}]}


def _described(model: type[LayerOptions]) -> str:
    return (model.__doc__ or model.kind).splitlines()[0]


def _layer_schema(kinds: Mapping[str, type[LayerOptions]]) -> dict[str, Any]:
    names = [
        {"const": kind, "type": "string", "description": _described(model)}
        for kind, model in kinds.items()
    ]
    with_options = {
        "type": "object",
        "properties": {
            kind: {**_options_schema(model), "description": _described(model)}
            for kind, model in kinds.items()
        },
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [*names, with_options]}


LAYER_SCHEMA: dict[str, Any] = _layer_schema(KINDS)
LAYERS_SCHEMA: dict[str, Any] = {
    "anyOf": [LAYER_SCHEMA, {"type": "array", "items": LAYER_SCHEMA, "minItems": 1}]
}
