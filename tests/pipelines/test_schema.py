from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import yaml
from jsonschema import Draft7Validator

from surepipe.core.claims import DELIVERY_NAMES, ORDER_NAMES
from surepipe.pipelines import PipelineErrors, loads
from surepipe.pipelines.models.pipes import FAULT_WORDS, Expect
from surepipe.pipelines.models.stages import STAGE_KINDS
from surepipe.pipelines.schema import EXAMPLE, file_schema, schema_text
from surepipe.pipes.catalogue import KINDS
from tests.pipelines.broken_files import BROKEN
from tests.pipelines.files import pipe, pipeline, stage

ROOT = Path(__file__).parents[2]
SCHEMA = file_schema()
VALIDATOR = Draft7Validator(SCHEMA)
EXAMPLES = sorted(ROOT.glob("examples/**/*.yaml"))
KINDS_OF_MISTAKES = [
    "a section with a slip",
    "no version",
    "a version as text",
    "a name with a space",
    "no sources",
    "no kind",
    "a store without a kind",
    "a kind with a slip",
    "a key of another kind",
    "a path that is a number",
    "a part whose name is none",
    "a part that names itself",
    "a layer with a slip",
    "no layer",
    "two layers in one",
    "an option of a layer with a slip",
    "a window of zero",
    "a window that is half",
    "a route with a slip",
    "a route without its address",
    "a boundary with a slip",
    "lanes of zero",
    "an expectation with a slip",
    "an unknown fault",
    "a pipe without from",
    "fed from nothing at all",
    "a stage that does nothing",
    "a stage that does two things",
    "a function with a dot for a colon",
    "no retries",
    "a secret in the file",
    "a batch without a size",
    "an unknown engine",
    "an engine with a slip",
]


def errors_in(text: str) -> list[str]:
    """What an independent validator has against a file."""
    found = VALIDATOR.iter_errors(yaml.safe_load(text))  # pyright: ignore[reportUnknownMemberType]
    return [error.message for error in found]


def every_mapping(node: Any) -> list[dict[str, Any]]:
    """All mappings of the schema."""
    if isinstance(node, list):
        return [inner for item in node for inner in every_mapping(item)]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(node, dict):
        return []
    mapping = cast("dict[str, Any]", node)
    return [mapping, *(inner for value in mapping.values() for inner in every_mapping(value))]


def test_the_schema_is_one_of_draft_7() -> None:
    """Judged by the meta-schema, and it uses no word that only later drafts know."""
    Draft7Validator.check_schema(SCHEMA)
    later = {
        "$defs",
        "prefixItems",
        "unevaluatedProperties",
        "dependentRequired",
        "discriminator",
        "$anchor",
    }
    assert not [word for one in every_mapping(SCHEMA) for word in later.intersection(one)]


def test_nothing_stands_beside_a_reference() -> None:
    """Draft 7 ignores it there."""
    assert all(len(one) == 1 for one in every_mapping(SCHEMA) if "$ref" in one)


def test_every_key_is_described() -> None:
    """In each part; but for kind, whose part is."""
    for name, part in SCHEMA["definitions"].items():
        assert part["description"], name
        for key, value in part["properties"].items():
            assert key == "kind" or value.get("description"), f"{name}.{key}"
    assert all(value.get("description") for value in SCHEMA["properties"].values())


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_the_examples_fit_the_schema(path: Path) -> None:
    """By the independent validator; and they load."""
    if "pipes:" in path.read_text():
        assert errors_in(path.read_text()) == []


def test_the_example_in_the_schema_fits_it_and_loads() -> None:
    """It is what an editor shows."""
    assert errors_in(json.dumps(EXAMPLE)) == []
    assert loads(json.dumps(EXAMPLE)).name == "orders"


SOUND = [
    pipeline(),
    pipeline("engine: spark", "expect: {delivery: exactly-once, tolerates: [route, sender-crash]}"),
    pipeline("engine: {kind: spark, master: 'local[2]', trigger_s: 1}"),
    pipeline(pipes=pipe("node: a, lanes: 4, key: k, route: {kind: tcp, address: 'localhost:1'}")),
    pipeline(pipes=pipe("layers: [dedupe, {resend: {window: 5}}, {multi-unconfirmed: }]")),
    pipeline(pipes=pipe("route: {kind: sqlite, store: main, retention: {max_age_s: 60}}")),
    pipeline(stages=stage("retries: 3, dead_letter: main/dead, time_limit_s: 5")),
    pipeline(stages="stages: {price: {from: [intake], batch: {max: 5}}}"),
    pipeline(stages="stages: {price: {from: intake, key-by: customer}}"),
    pipeline(
        sinks="sinks: {out: {from: price, kind: http, url: 'http://h', headers: {A: '${B}'}}}"
    ),
    pipeline("simulate: {replace: {'a:b': 'c:d'}, sample: {lines: [1, {a: b}]}}"),
]


@pytest.mark.parametrize("text", SOUND)
def test_what_loads_fits_the_schema(text: str) -> None:
    """Both judges accept."""
    loads(text)
    assert errors_in(text) == []


@pytest.mark.parametrize("title", KINDS_OF_MISTAKES)
def test_what_an_editor_can_see_is_refused_by_both(title: str) -> None:
    """Slips in words and kinds of values; what is about several parts only the loader sees."""
    text, _ = BROKEN[title]
    assert isinstance(text, str)
    with pytest.raises(PipelineErrors):
        loads(text)
    assert errors_in(text)


def test_the_schema_is_the_same_in_every_call_and_ends_with_a_line() -> None:
    """So that it can be kept in a repository."""
    text = schema_text()
    assert json.loads(text) == SCHEMA
    assert text.endswith("}\n")


def test_closed_sets_of_words_are_those_of_the_algebra_and_the_catalogue() -> None:
    """The models write them out for editors and type checkers; nothing may be missing there."""
    assert get_args(Expect.model_fields["delivery"].annotation) == DELIVERY_NAMES
    assert get_args(Expect.model_fields["order"].annotation) == ORDER_NAMES
    pipe_part = SCHEMA["definitions"]["PipePart"]["properties"]
    layer = pipe_part["layers"]["anyOf"][0]
    assert list(layer["anyOf"][-1]["properties"]) == list(KINDS)
    tolerates = SCHEMA["definitions"]["Expect"]["properties"]["tolerates"]
    assert tuple(tolerates["anyOf"][1]["items"]["enum"]) == FAULT_WORDS
    assert [one["required"][0] for one in SCHEMA["definitions"]["StagePart"]["oneOf"]] == list(
        STAGE_KINDS
    )
