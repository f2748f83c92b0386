"""Sections of a file into parts, one entry after the other, so that one faulty entry hides no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from surepipe.pipelines.models.pipes import AnyRoute, PipePart
from surepipe.pipelines.models.sources import AnySource, SourcePart
from surepipe.pipelines.models.stages import AnySink, SinkPart, StagePart
from surepipe.pipelines.models.stores import (
    MemoryStorePart,
    RedisStorePart,
    SqliteStorePart,
    StorePart,
)
from surepipe.pipelines.nodes import (
    Mapping,
    Node,
    Row,
    Scalar,
    Step,
    find,
    key_place,
    step_into,
)
from surepipe.pipelines.problems import Found, Problem, nearest
from surepipe.pipelines.wording import joined, lower_first, quoted, said_of
from surepipe.pipes.options import KINDS, LayerOptions

T = TypeVar("T")
Path = tuple[Step, ...]


@dataclass(frozen=True)
class Section(Generic[T]):
    """One section of a file: its key, what one entry is called, and the models of its kinds."""

    key: str
    role: str
    adapter: TypeAdapter[T]
    models: tuple[type[BaseModel], ...]
    required: bool = False

    @property
    def has_kinds(self) -> bool:
        """True when ``kind`` tells what an entry is."""
        return len(self.models) > 1

    def model(self, entry: Node) -> type[BaseModel]:
        """The model of an entry, by its kind."""
        kind = entry.values.get("kind") if isinstance(entry, Mapping) else None
        return model_of_kind(self.models, kind) or self.models[0]


STORES: Section[Any] = Section(
    "stores", "store", TypeAdapter(StorePart), (SqliteStorePart, MemoryStorePart, RedisStorePart)
)
SOURCES: Section[Any] = Section(
    "sources", "source", TypeAdapter(SourcePart), get_args(AnySource), required=True
)
PIPES: Section[Any] = Section("pipes", "pipe", TypeAdapter(PipePart), (PipePart,), required=True)
STAGES: Section[Any] = Section("stages", "stage", TypeAdapter(StagePart), (StagePart,))
SINKS: Section[Any] = Section("sinks", "sink", TypeAdapter(SinkPart), get_args(AnySink))
SECTIONS: tuple[Section[Any], ...] = (STORES, SOURCES, PIPES, STAGES, SINKS)


def model_of_kind(models: Sequence[type[BaseModel]], kind: Node | None) -> type[BaseModel] | None:
    """The model whose kind this is."""
    if not isinstance(kind, Scalar):
        return None
    for model in models:
        if kind.value in get_args(model.model_fields["kind"].annotation):
            return model
    return None


def read_entry(section: Section[Any], name: str, root: Node, found: Found) -> BaseModel | None:
    """One entry as its part, or None; what is wrong with it goes to ``found``."""
    base: Path = (section.key, name)
    entry = find(root, base)
    what = f"{section.role} {name}"
    if not isinstance(entry, Mapping):
        found.append(Problem(entry.place, f"{what} is {quoted(entry)}: it must be a mapping"))
        return None
    before = len(found)
    data = {key: value.data() for key, value in entry.values.items()}
    if "name" in data:
        found.append(
            Problem(entry.keys["name"], f"{what} has its name above it already: drop 'name'")
        )
        del data["name"]
    if section is PIPES and "layers" in data:
        layers = read_layers(entry.values["layers"], what, found)
        if layers is None:
            del data["layers"]
        else:
            data["layers"] = layers
    part = validate(data, (root, base), section, what, found)
    return None if part is None or len(found) > before else part.model_copy(update={"name": name})


def validate(
    data: object,
    at: tuple[Node, Path],
    section: Section[Any],
    what: str,
    found: Found,
) -> BaseModel | None:
    """The part, or None; each error of pydantic goes to ``found`` with its place."""
    try:
        part: BaseModel = section.adapter.validate_python(data)
    except ValidationError as error:
        root, base = at
        entry = _Entry(root, base, section, section.model(find(root, base)), what)
        found += entry.problems(error.errors(include_url=False))
        return None
    return part


_ABOUT_KEYS = ("extra_forbidden", "missing")


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a file about which pydantic has something to say."""

    root: Node
    base: Path
    section: Section[Any]
    model: type[BaseModel]
    what: str

    def problems(self, errors: Sequence[ErrorDetails]) -> Iterator[Problem]:
        """Each error as a problem; several about one value, which fits none of several kinds, as one."""
        values: dict[Path, list[ErrorDetails]] = {}
        for error in errors:
            error["loc"] = self._written(error)
            if error["type"] in _ABOUT_KEYS:
                yield self._about_key(error)
            else:
                values.setdefault(error["loc"], []).append(error)
        for path, group in values.items():
            yield self._about_value(path, joined(group))

    def _written(self, error: ErrorDetails) -> Path:
        """Where an error is, without what pydantic adds for unions; of a value, as far as it is there."""
        steps = list(error["loc"])
        if self.section.has_kinds and steps and "tag" not in error["type"]:
            del steps[0]
        if self.model is PipePart and steps[:1] == ["route"] and len(steps) > 1:
            del steps[1]
        if error["type"] in _ABOUT_KEYS:
            return tuple(steps)
        return _existing(find(self.root, self.base), tuple(steps))

    def _about_key(self, error: ErrorDetails) -> Problem:
        steps = error["loc"]
        model, holder = self._holder(steps)
        path = (*self.base, *(steps[:-1] if error["type"] == "missing" else steps))
        text = said_of(error, find(self.root, path), model, self._called(holder))
        return Problem(key_place(self.root, path), text)

    def _about_value(self, steps: Path, error: ErrorDetails) -> Problem:
        model, holder = self._holder(steps)
        path = (*self.base, *steps)
        node = find(self.root, path)
        if "tag" in error["type"]:
            return self._about_kind(steps, node, error)
        is_whole = isinstance(node, Mapping)
        if is_whole and steps and error["type"] == "value_error":
            holder = str(steps[-1])
        text = said_of(error, node, model, self._called(holder))
        return Problem(key_place(self.root, path) if is_whole else node.place, text)

    def _about_kind(self, steps: Path, node: Node, error: ErrorDetails) -> Problem:
        models = get_args(AnyRoute) if steps == ("route",) else self.section.models
        error["ctx"] = {**error.get("ctx", {}), "kinds": ", ".join(_kinds(models))}
        text = said_of(error, node, self.model, self._called(str(steps[-1]) if steps else ""))
        kind = node.values.get("kind") if isinstance(node, Mapping) else None
        return Problem(kind.place if kind else key_place(self.root, (*self.base, *steps)), text)

    def _called(self, holder: str) -> str:
        """What an error is about: the entry, or what stands in it under this key."""
        if not holder or self.what == "the pipeline":
            return holder or self.what
        return f"the {holder} of {self.what}"

    def _holder(self, steps: Path) -> tuple[type[BaseModel], str]:
        """The model that holds the last key of a path, and the key that it stands under."""
        models, holder, node = [self.model], "", find(self.root, self.base)
        for step in steps[:-1]:
            node = find(node, (step,))
            inner = [found for model in models for found in _under(model, step)]
            if inner:
                kind = node.values.get("kind") if isinstance(node, Mapping) else None
                chosen = model_of_kind([m for m in inner if "kind" in m.model_fields], kind)
                models, holder = [chosen] if chosen else inner, str(step)
        return models[0], holder


def _kinds(models: Sequence[type[BaseModel]]) -> Iterator[str]:
    for model in models:
        yield from get_args(model.model_fields["kind"].annotation)


def _existing(entry: Node, steps: Path) -> Path:
    """The part of a path that is there."""
    taken: list[Step] = []
    node = entry
    for step in steps:
        below = step_into(node, step)
        if below is None:
            break
        taken.append(step)
        node = below
    return tuple(taken)


def _under(model: type[BaseModel], step: Step) -> Iterator[type[BaseModel]]:
    """The models that may stand under a key."""
    for name, field in model.model_fields.items():
        if step in (name, field.validation_alias):
            yield from _models_in(field.annotation)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


# Layers.


def read_layers(node: Node, what: str, found: Found) -> tuple[LayerOptions, ...] | None:
    """The layers of a pipe, or None; what is wrong with each goes to ``found``."""
    items = node.items if isinstance(node, Row) else [node]
    if not items:
        found.append(
            Problem(node.place, f"layers of {what} are empty: write one, such as reliable")
        )
        return None
    layers = [_layer(item, f"layer {n} of {what}", found) for n, item in enumerate(items)]
    return None if None in layers else tuple(layer for layer in layers if layer is not None)


def _layer(node: Node, what: str, found: Found) -> LayerOptions | None:
    options: Node | None = None
    named: Node = node
    word = node.value if isinstance(node, Scalar) else None
    if isinstance(node, Mapping) and len(node.values) == 1:
        word, options = next(iter(node.values.items()))
        named = Scalar(node.keys[word], word, word)
    if not isinstance(word, str):
        text = (
            f"{what} is {quoted(node)}: write its name, or one mapping of its name to its options"
        )
        found.append(Problem(node.place, text))
        return None
    model = KINDS.get(word)
    if model is None:
        text = f"{what} is {quoted(named)}, which is no pipe: {nearest(word, tuple(sorted(KINDS)))}"
        found.append(Problem(named.place, text))
        return None
    return _with_options(model, options, f"{what} ({word})", found)


def _with_options(
    model: type[LayerOptions], options: Node | None, what: str, found: Found
) -> LayerOptions | None:
    if options is None or (isinstance(options, Scalar) and options.value is None):
        return model()
    if not isinstance(options, Mapping):
        found.append(
            Problem(options.place, f"options of {what} are {quoted(options)}: write a mapping")
        )
        return None
    try:
        return model.model_validate(options.data())
    except ValidationError as error:
        found += _about_options(model, options, what, error.errors(include_url=False))
        return None


def _about_options(
    model: type[LayerOptions], options: Mapping, what: str, errors: Sequence[ErrorDetails]
) -> Iterator[Problem]:
    groups: dict[Path, list[ErrorDetails]] = {}
    for error in errors:
        error["loc"] = error["loc"][:1]
        groups.setdefault(error["loc"], []).append(error)
    for path, group in groups.items():
        error = joined(group)
        if not path:
            yield Problem(options.place, f"{what}: {lower_first(error['msg'])}")
            continue
        node = find(options, path)
        wants_key = error["type"] in _ABOUT_KEYS
        place = key_place(options, path) if wants_key else node.place
        yield Problem(place, said_of(error, node, model, what))
