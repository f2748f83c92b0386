"""The JSON Schema of pipeline files, for editors: draft 7, which is what YAML extensions of editors read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias, cast, get_args

from surepipe.pipelines.models.file import PipelineFile
from surepipe.pipelines.models.pipes import StoreRoutePart

Schema: TypeAlias = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
IDENTITY = "https://surepipe.invalid/pipeline-1.schema.json"
EXAMPLE: Schema = {
    "version": 1,
    "name": "orders",
    "sources": {"lines": {"kind": "jsonl", "path": "data/orders.jsonl"}},
    "pipes": {"intake": {"from": "lines", "layers": ["reliable"]}},
    "stages": {"price": {"from": "intake", "call": "shop.orders:price"}},
    "sinks": {"out": {"from": "price", "kind": "jsonl", "path": "out/orders.jsonl"}},
}


def file_schema() -> Schema:
    """The schema of a pipeline file. Equal on each call."""
    made = PipelineFile.model_json_schema(by_alias=True)
    definitions: Schema = made.pop("$defs")
    for definition in definitions.values():
        _require_kind(definition)
        _drop_name(definition)
    whole = {**made, "definitions": dict(sorted(definitions.items()))}
    _let_engine_be_a_word(whole)
    for change in (_to_draft_7, _closed, _without_titles):
        whole = _everywhere(whole, change)
    return {
        "$schema": DIALECT,
        "$id": IDENTITY,
        **whole,
        "title": "surepipe pipeline",
        "examples": [EXAMPLE],
    }


def schema_text() -> str:
    """The schema as a file has it."""
    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"


_KINDS_OF_STORES = list(get_args(StoreRoutePart.model_fields["kind"].annotation))


def _require_kind(definition: Schema) -> None:
    """Where ``kind`` chooses between models it must be written, though each model knows its own."""
    kind = definition.get("properties", {}).get("kind", {})
    if "const" in kind or kind.get("enum") == _KINDS_OF_STORES:
        definition["required"] = [*definition.get("required", ()), "kind"]
        kind.pop("default", None)


def _drop_name(definition: Schema) -> None:
    """The name of a part stands above it."""
    if "name" not in definition.get("required", ()):
        definition.get("properties", {}).pop("name", None)


def _let_engine_be_a_word(whole: Schema) -> None:
    engine: Schema = whole["properties"]["engine"]
    kinds = whole["definitions"]["Engine"]["properties"]["kind"]["enum"]
    whole["properties"]["engine"] = {
        "anyOf": [{"enum": kinds, "type": "string"}, {"$ref": engine["$ref"]}],
        "description": engine["description"],
    }


def _to_draft_7(schema: Schema) -> Schema:
    """References, and what must not stand beside one: draft 7 ignores it there."""
    schema.pop("discriminator", None)
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    schema["$ref"] = reference.replace("#/$defs/", "#/definitions/")
    if len(schema) == 1:
        return schema
    return {"allOf": [{"$ref": schema.pop("$ref")}], **schema}


def _closed(schema: Schema) -> Schema:
    """A section has names and nothing else."""
    if "patternProperties" in schema:
        schema["additionalProperties"] = False
    return schema


def _without_titles(schema: Schema) -> Schema:
    """Titles that only repeat the key."""
    for inner in cast("dict[str, Schema]", schema.get("properties", {})).values():
        inner.pop("title", None)
    return schema


def _everywhere(node: Any, change: Callable[[Schema], Schema]) -> Any:
    """The tree with each of its mappings changed, the inner ones first."""
    if isinstance(node, list):
        return [_everywhere(item, change) for item in node]  # pyright: ignore[reportUnknownVariableType] - of json
    if isinstance(node, dict):
        inner = {key: _everywhere(value, change) for key, value in cast("Schema", node).items()}
        return change(inner)
    return node
