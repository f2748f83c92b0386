"""From a file to a plan, with every problem of the file at once, each at its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assessing import path_of, pipe_refusals
from surepipe.pipelines.links import link, unreadable
from surepipe.pipelines.models.common import PART_NAME, NamedPart
from surepipe.pipelines.models.file import Head
from surepipe.pipelines.models.pipes import AnyRoute, PipePart
from surepipe.pipelines.models.sources import AnySource, JsonlSource, SourcePart
from surepipe.pipelines.models.stages import AnySink, SinkPart, StagePart, StdoutSink
from surepipe.pipelines.models.stores import (
    AnyStore,
    SqliteStorePart,
    StorePart,
)
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.problems import (
    Enough,
    FoundProblems,
    PipelineErrors,
    Problem,
    Text,
    TextPlace,
    nearest,
)
from surepipe.pipelines.reading import (
    Mapping,
    Node,
    Scalar,
    Step,
    YamlList,
    find,
    key_place,
    read_file,
    read_text,
    step_into,
)
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.structure import PlanLink, StoreUse, issues
from surepipe.pipelines.wording import joined, keys_of, lower_first, quoted, said_of, words_of
from surepipe.pipes.catalogue import KINDS
from surepipe.pipes.options import LayerOptions

# Sections of a file into parts, one entry after the other, so that one faulty entry hides no other.


T = TypeVar("T")
Steps = tuple[Step, ...]


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
        return model_of_kind(self.models, entry) or self.models[0]


STORES: Section[Any] = Section("stores", "store", TypeAdapter(StorePart), get_args(AnyStore))
SOURCES: Section[Any] = Section(
    "sources", "source", TypeAdapter(SourcePart), get_args(AnySource), required=True
)
PIPES: Section[Any] = Section("pipes", "pipe", TypeAdapter(PipePart), (PipePart,), required=True)
STAGES: Section[Any] = Section("stages", "stage", TypeAdapter(StagePart), (StagePart,))
SINKS: Section[Any] = Section("sinks", "sink", TypeAdapter(SinkPart), get_args(AnySink))
SECTIONS: tuple[Section[Any], ...] = (STORES, SOURCES, PIPES, STAGES, SINKS)


def model_of_kind(models: Sequence[type[BaseModel]], entry: Node) -> type[BaseModel] | None:
    """The model whose kind an entry says. A stage or a pipe has no kind, whatever stands there."""
    kind = entry.values.get("kind") if isinstance(entry, Mapping) else None
    if not isinstance(kind, Scalar):
        return None
    return next((model for model in models if kind.value in words_of(model, "kind")), None)


def read_entry(
    section: Section[Any], name: str, root: Node, found: FoundProblems
) -> BaseModel | None:
    """One entry as its part, or None; what is wrong with it goes to ``found``."""
    base: Steps = (section.key, name)
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
    at: tuple[Node, Steps],
    section: Section[Any],
    what: str,
    found: FoundProblems,
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
    base: Steps
    section: Section[Any]
    model: type[BaseModel]
    what: str

    def problems(self, errors: Sequence[ErrorDetails]) -> Iterator[Problem]:
        """Each error as a problem; several about one value, which fits none of several kinds, as one."""
        values: dict[Steps, list[ErrorDetails]] = {}
        for error in errors:
            error["loc"] = self._written(error)
            if error["type"] in _ABOUT_KEYS:
                yield self._about_key(error)
            else:
                values.setdefault(error["loc"], []).append(error)
        for path, group in values.items():
            yield self._about_value(path, joined(group))

    def _written(self, error: ErrorDetails) -> Steps:
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

    def _about_value(self, steps: Steps, error: ErrorDetails) -> Problem:
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

    def _about_kind(self, steps: Steps, node: Node, error: ErrorDetails) -> Problem:
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

    def _holder(self, steps: Steps) -> tuple[type[BaseModel], str]:
        """The model that holds the last key of a path, and the key that it stands under."""
        models, holder, node = [self.model], "", find(self.root, self.base)
        for step in steps[:-1]:
            node = find(node, (step,))
            inner = [found for model in models for found in _under(model, step)]
            if inner:
                chosen = model_of_kind(inner, node)
                models, holder = [chosen] if chosen else inner, str(step)
        return models[0], holder


def _kinds(models: Sequence[type[BaseModel]]) -> Iterator[str]:
    for model in models:
        yield from words_of(model, "kind")


def _existing(entry: Node, steps: Steps) -> Steps:
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


def read_layers(node: Node, what: str, found: FoundProblems) -> tuple[LayerOptions, ...] | None:
    """The layers of a pipe, or None; what is wrong with each goes to ``found``."""
    items = node.items if isinstance(node, YamlList) else [node]
    if not items:
        found.append(
            Problem(node.place, f"layers of {what} are empty: write one, such as reliable")
        )
        return None
    layers = [_layer(item, f"layer {n} of {what}", found) for n, item in enumerate(items)]
    return None if None in layers else tuple(layer for layer in layers if layer is not None)


def _layer(node: Node, what: str, found: FoundProblems) -> LayerOptions | None:
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
    model: type[LayerOptions], options: Node | None, what: str, found: FoundProblems
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
    groups: dict[Steps, list[ErrorDetails]] = {}
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


_HEAD: Section[Any] = Section("", "pipeline", TypeAdapter(Head), (Head,))
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Document:
    """A plan with the file that it was read from, so that whatever is said of the plan can be shown there."""

    plan: Plan
    text: Text
    root: Mapping

    def problem(self, path: Sequence[str | int], said: str) -> Problem:
        """What is said about the word at a path, as far as the path is in the file."""
        steps = tuple(path)
        while steps and step_into(find(self.root, steps[:-1]), steps[-1]) is None:
            steps = steps[:-1]
        return Problem(key_place(self.root, steps), said)

    def show(self, path: Sequence[str | int], said: str) -> str:
        """The same as text, with the line."""
        return self.text.show(self.problem(path, said))


def read(path: Path | str, *, shown_as: str | None = None) -> Document:
    """A YAML file as a plan and its places. Reads the file and nothing else, and no environment variable.

    Raises PipelineErrors (a ConfigurationError) with every problem of the file.
    """
    text, root = read_file(Path(path), shown_as)
    plan = replace(_plan(text, root), folder=Path(path).parent.resolve())
    return Document(plan, text, root)


def load(path: Path | str) -> Plan:
    """The plan of a YAML file; see ``read``. Loading the same bytes again gives an equal plan."""
    return read(path).plan


def loads(data: bytes | str, name: str = "pipeline.yaml") -> Plan:
    """The plan of a YAML text. ``name`` stands in errors. Raises PipelineErrors."""
    return _plan(*read_text(data, name))


def _plan(text: Text, root: Mapping) -> Plan:
    if _is_newer(root):
        raise PipelineErrors(text, [_newer(root)])
    found = FoundProblems()
    try:
        plan = _plan_of(root, found)
    except Enough:
        raise PipelineErrors(text, found, is_cut=True) from None
    if found or plan is None:
        raise PipelineErrors(text, found)
    return plan


def _plan_of(root: Mapping, found: FoundProblems) -> Plan | None:
    head = _head(root, found)
    parts = {section.key: _parts(section, root, found) for section in SECTIONS}
    links = [one for section in SECTIONS for one in _links(section, root, parts[section.key])]
    name = head.name if isinstance(head, Head) else ""
    doubted = {one.name for one in links if not one.known}

    def amiss() -> Iterator[Problem]:
        for issue in issues(links, name):
            # A pipe without the key that its lanes need is understood.
            if issue.path[2:] != ("lanes",):
                doubted.update(map(str, issue.path[1:2]))
            yield Problem(_issue_place(root, issue.path), issue.text)

    found += amiss()
    if isinstance(head, Head):
        found += chain(_about_samples(head, root), _about_empty_ends(head, root))
    if found or not isinstance(head, Head):
        found += _refused_beside(root, parts, links, doubted)
        return None
    return Plan(
        name=head.name,
        description=head.description,
        expect=head.expect,
        engine=head.engine,
        simulate=head.simulate,
        stores=tuple(parts[STORES.key].values()),
        sources=tuple(parts[SOURCES.key].values()),
        pipes=tuple(parts[PIPES.key].values()),
        stages=tuple(parts[STAGES.key].values()),
        sinks=tuple(parts[SINKS.key].values()),
    )


def _refused_beside(
    root: Mapping, parts: dict[str, dict[str, Any]], links: Sequence[PlanLink], doubted: set[str]
) -> Iterator[Problem]:
    """Why pipes that are understood can't be, although other parts are not: all of it is told at once.

    For what is not understood something harmless stands in, and nothing is said of a pipe that touches it.
    """
    try:
        plan = _with_stand_ins(parts, links)
    except ConfigurationError:  # which parts belong together is not known well enough
        return
    for pipe in plan.pipes:
        touched = {pipe.name, *(part.name for part in plan.reach(pipe.name))}
        used = {use.store for name in touched for use in link(plan.part(name)).stores}
        if not doubted & (touched | used):
            for finding in pipe_refusals(plan, pipe):
                yield Problem(key_place(root, path_of(finding)), str(finding))


def _with_stand_ins(parts: dict[str, dict[str, Any]], links: Sequence[PlanLink]) -> Plan:
    """Raises ConfigurationError where that is no plan either."""
    nodes = {one.name: one for one in links if one.role != "store"}
    fed = {feeder for one in nodes.values() for feeder in one.feeders}
    loose = tuple(n for n, one in nodes.items() if n not in fed and one.role in ("source", "pipe"))
    made: dict[str, list[Any]] = {section.key: [] for section in SECTIONS}
    for one in links:
        feeders = tuple(feeder for feeder in one.feeders if feeder in nodes) or (_NOWHERE,)
        if one.name in parts[one.section]:
            part = parts[one.section][one.name]
            changes: dict[str, object] = {}
            if one.role not in ("source", "store") and feeders != one.feeders:
                changes["from_"] = feeders
            if one.needs_key and not one.has_key:
                changes["key"] = _NOWHERE
            made[one.section].append(part.model_copy(update=changes))
        else:
            made[one.section].append(_stand_in(one.role, one.name, feeders))
    if any(getattr(part, "from_", ()) == (_NOWHERE,) for row in made.values() for part in row):
        made[SOURCES.key].append(_stand_in("source", _NOWHERE, ()))
    if loose:
        made[SINKS.key].append(_stand_in("sink", f"{_NOWHERE}.end", loose))
    return Plan(
        name="file",
        stores=tuple(made[STORES.key]),
        sources=tuple(made[SOURCES.key]),
        pipes=tuple(made[PIPES.key]),
        stages=tuple(made[STAGES.key]),
        sinks=tuple(made[SINKS.key]),
    )


_NOWHERE = "not.understood"
_STAND_INS: dict[str, NamedPart] = {
    "source": JsonlSource(path=Setting("a.jsonl")),
    "store": SqliteStorePart(path=Setting("a.db")),
    "pipe": PipePart(from_=(_NOWHERE,)),
    "stage": StagePart(from_=(_NOWHERE,), call="not:understood"),
    "sink": StdoutSink(from_=(_NOWHERE,)),
}


def _stand_in(role: str, name: str, feeders: tuple[str, ...]) -> NamedPart:
    """Not checked: what can't be understood may have a name, and feeders, that no part may have."""
    part = _STAND_INS[role]
    is_fed = "from_" in type(part).model_fields
    return part.model_copy(update={"name": name, **({"from_": feeders} if is_fed else {})})


def _is_newer(root: Mapping) -> bool:
    version = root.values.get("version")
    return (
        isinstance(version, Scalar)
        and isinstance(version.value, int | float)
        and version.value is not True
        and version.value > FORMAT
    )


def _newer(root: Mapping) -> Problem:
    version = root.values["version"]
    return Problem(
        version.place,
        f"version is {quoted(version)}, and this surepipe reads version {FORMAT}: take a newer surepipe",
    )


def _head(root: Mapping, found: FoundProblems) -> BaseModel | None:
    """Everything but the parts; keys that are neither are refused here."""
    sections = tuple(section.key for section in SECTIONS)
    known = (*keys_of(Head), *sections)
    for key, place in root.keys.items():
        if key not in known:
            found.append(Problem(place, f"{key!r} is no key of a pipeline: {nearest(key, known)}"))
    data = {key: root.values[key].data() for key in keys_of(Head) if key in root.values}
    return validate(data, (root, ()), _HEAD, "the pipeline", found)


def _parts(section: Section[Any], root: Mapping, found: FoundProblems) -> dict[str, Any]:
    """The entries of a section that could be read."""
    node = root.values.get(section.key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        if section.required:
            place = TextPlace(1, 1) if node is None else root.keys[section.key]
            found.append(Problem(place, f"the pipeline has no {section.key}: write one at least"))
        return {}
    if not isinstance(node, Mapping):
        text = f"{section.key} is {quoted(node)}: write a mapping of names to {section.key}"
        found.append(Problem(node.place, text))
        return {}
    if section.required and not node.values:
        found.append(Problem(node.place, f"the pipeline has no {section.key}: write one at least"))
    read: dict[str, Any] = {}
    for name in node.values:
        if not _is_name(name):
            found.append(Problem(node.keys[name], _bad_name(section, name)))
            continue
        part = read_entry(section, name, root, found)
        if part is not None:
            read[name] = part
    return read


def _is_name(name: str) -> bool:
    return re.fullmatch(PART_NAME, name) is not None


def _bad_name(section: Section[Any], name: str) -> str:
    return (
        f"{name[:60]!r} is no name of a {section.role}: a name begins with a letter and has letters, digits, "
        "'_', '.' and '-', 64 at the most"
    )


def _links(section: Section[Any], root: Mapping, parts: dict[str, Any]) -> Iterator[PlanLink]:
    node = root.values.get(section.key)
    if not isinstance(node, Mapping):
        return
    for name, entry in node.values.items():
        if name in parts:
            yield link(parts[name])
        else:
            stores = tuple(_stores_named(section, entry))
            yield unreadable(section.role, name, tuple(_feeders(entry)), stores)


def _feeders(entry: Node) -> Iterator[str]:
    """What ``from`` says in an entry that can't be read as a whole."""
    said = entry.values.get("from") if isinstance(entry, Mapping) else None
    for one in said.items if isinstance(said, YamlList) else [said]:
        if isinstance(one, Scalar) and isinstance(one.value, str):
            yield one.value


_NAMING_STORES = ("journal", "state", "store", "dead_letter")


def _stores_named(section: Section[Any], entry: Node) -> Iterator[StoreUse]:
    """The stores that an entry names which can't be read as a whole, under the keys that it may have."""
    known = keys_of(section.model(entry))
    for key in _NAMING_STORES:
        said = entry.values.get(key) if isinstance(entry, Mapping) and key in known else None
        if isinstance(said, Scalar) and isinstance(said.value, str) and said.value:
            yield StoreUse((key,), said.value.partition("/")[0], what=key)


def _issue_place(root: Mapping, path: tuple[str | int, ...]) -> TextPlace:
    """Where an issue is: at the value of a key, or at the name of a part."""
    holder = find(root, path[:-1])
    value = step_into(holder, path[-1])
    if len(path) == 2 or isinstance(value, Mapping):
        return key_place(root, path)
    if value is None:  # `from: lines` has no number 0
        return holder.place
    return value.place


def _about_samples(head: Head, root: Mapping) -> Iterator[Problem]:
    sources = root.values.get(SOURCES.key)
    known = tuple(sources.values) if isinstance(sources, Mapping) else ()
    for name in head.simulate.sample:
        if name not in known:
            place = key_place(root, ("simulate", "sample", name))
            yield Problem(
                place,
                f"sample has messages for {name!r}, which is no source: {nearest(name, known)}",
            )


def _about_empty_ends(head: Head, root: Mapping) -> Iterator[Problem]:
    sections = [root.values.get(one.key) for one in (SOURCES, STAGES, SINKS)]
    known = tuple(name for one in sections if isinstance(one, Mapping) for name in one.values)
    for name in head.simulate.may_be_empty:
        if name not in known:
            place = key_place(root, ("simulate", "may_be_empty"))
            yield Problem(
                place,
                f"may_be_empty has {name!r}, which is no source, stage or sink: {nearest(name, known)}",
            )
