"""What sources give under simulation: samples, the first rows of a file, values of a model, or m0, m1, ..."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.sources import AnySource, CsvSource, FileSource, JsonlSource
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulated.functions import imported
from surepipe.simulation.randomness import Draws, draws


def messages_of(plan: Plan, count: int, folder: Path) -> dict[str, Sequence[object]]:
    """Of each source of a plan. Raises ConfigurationError when a file can't be read, and when it is not there or
    empty and nothing else says what its rows are like: a run of no messages, or of made-up ones, shows nothing."""
    return {source.name: _of_source(plan, source, count, folder) for source in plan.sources}


def _of_source(plan: Plan, source: AnySource, count: int, folder: Path) -> Sequence[object]:
    sample = plan.simulate.sample.get(source.name)
    if sample:
        return _filled(list(sample), count)
    if isinstance(source, FileSource):
        found = _of_file(source, count, folder)
        if found:
            return found
    if source.model is not None:
        model = imported(source.model)
        if isinstance(model, type) and issubclass(model, BaseModel):
            return _of_model(model, count)
    if isinstance(source, JsonlSource | CsvSource):
        raise ConfigurationError(
            f"source {source.name}: {source.path} {_missing(source, folder)}, so there is nothing to simulate "
            f"with: put some rows there, or write them down (simulate: {{sample: {{{source.name}: [...]}}}})"
        )
    return [f"m{number}" for number in range(count)]


def _missing(source: FileSource, folder: Path) -> str:
    return "has no rows" if _found(source, folder) else f"is not there, nor in {folder.resolve()}"


def _found(source: FileSource, folder: Path) -> Path | None:
    path = str(source.path)
    return next((place for place in (Path(path), folder / path) if place.is_file()), None)


def _filled(sample: list[object], count: int) -> list[object]:
    return [sample[number % len(sample)] for number in range(count)]


def _of_file(source: FileSource, count: int, folder: Path) -> list[object]:
    path = _found(source, folder)
    if path is None:
        return []
    try:
        if isinstance(source, JsonlSource):
            with path.open(encoding="utf-8") as file:
                lines = (line for line in file if line.strip())
                return [cast("object", json.loads(line)) for line in islice(lines, count)]
        if isinstance(source, CsvSource):
            with path.open(encoding="utf-8", newline="") as file:
                rows = csv.DictReader(file, delimiter=source.delimiter)
                return [dict(row) for row in islice(rows, count)]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return []


def _of_model(model: type[BaseModel], count: int) -> list[object]:
    """Values of a model: numbers count up, texts carry the number."""
    schema = model.model_json_schema()
    definitions = cast("dict[str, object]", schema.get("$defs", {}))
    source = draws(1, f"model/{model.__name__}")
    made = [_value(schema, definitions, number, source) for number in range(count)]
    return [model.model_validate(value).model_dump(mode="json") for value in made]


def _value(  # noqa: PLR0911 - one line for each type of JSON
    schema: dict[str, object], definitions: dict[str, object], number: int, source: Draws
) -> object:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _value(cast("dict[str, object]", definitions[name]), definitions, number, source)
    for word in ("enum", "examples"):
        choices = schema.get(word)
        if isinstance(choices, list) and choices:
            return source.pick(cast("list[object]", choices))
    if "const" in schema:
        return schema["const"]
    options = schema.get("anyOf")
    if isinstance(options, list):
        return _value(cast("list[dict[str, object]]", options)[0], definitions, number, source)
    match schema.get("type"):
        case "object":
            fields = cast("dict[str, dict[str, object]]", schema.get("properties", {}))
            return {name: _value(one, definitions, number, source) for name, one in fields.items()}
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            return number + 1 + (int(least) if isinstance(least, int | float) else 0)
        case "boolean":
            return bool(number % 2)
        case "array":
            return []
        case "null":
            return None
        case _:
            return f"m{number}"
