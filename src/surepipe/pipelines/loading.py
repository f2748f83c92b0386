"""From a file to a plan, with every problem of the file at once, each at its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assessing import path_of, pipe_refusals
from surepipe.pipelines.links import link, unreadable
from surepipe.pipelines.models.common import PART_NAME
from surepipe.pipelines.models.file import Head
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import JsonlSource
from surepipe.pipelines.models.stages import StagePart, StdoutSink
from surepipe.pipelines.models.stores import SqliteStorePart
from surepipe.pipelines.nodes import Mapping, Node, Row, Scalar, find, key_place, step_into
from surepipe.pipelines.parts import (
    PIPES,
    SECTIONS,
    SINKS,
    SOURCES,
    STAGES,
    STORES,
    Section,
    read_entry,
    validate,
)
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.problems import (
    Enough,
    Found,
    PipelineErrors,
    Place,
    Problem,
    Text,
    nearest,
)
from surepipe.pipelines.reading import read_file, read_text
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.structure import Link, issues
from surepipe.pipelines.wording import keys_of, quoted

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
    return Document(_plan(text, root), text, root)


def load(path: Path | str) -> Plan:
    """The plan of a YAML file; see ``read``. Loading the same bytes again gives an equal plan."""
    return read(path).plan


def loads(data: bytes | str, name: str = "pipeline.yaml") -> Plan:
    """The plan of a YAML text. ``name`` stands in errors. Raises PipelineErrors."""
    return _plan(*read_text(data, name))


def _plan(text: Text, root: Mapping) -> Plan:
    if _is_newer(root):
        raise PipelineErrors(text, [_newer(root)])
    found = Found()
    try:
        plan = _plan_of(root, found)
    except Enough:
        raise PipelineErrors(text, found, is_cut=True) from None
    if found or plan is None:
        raise PipelineErrors(text, found)
    return plan


def _plan_of(root: Mapping, found: Found) -> Plan | None:
    head = _head(root, found)
    parts = {section.key: _parts(section, root, found) for section in SECTIONS}
    links = [one for section in SECTIONS for one in _links(section, root, parts[section.key])]
    name = head.name if isinstance(head, Head) else ""
    doubted = {one.name for one in links if not one.known}

    def amiss() -> Iterator[Problem]:
        for issue in issues(links, name):
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
    root: Mapping, parts: dict[str, dict[str, Any]], links: Sequence[Link], doubted: set[str]
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


def _with_stand_ins(parts: dict[str, dict[str, Any]], links: Sequence[Link]) -> Plan:
    """Raises ConfigurationError where that is no plan either."""
    nodes = {one.name: one for one in links if one.role != "store"}
    fed = {feeder for one in nodes.values() for feeder in one.feeders}
    loose = tuple(n for n, one in nodes.items() if n not in fed and one.role in ("source", "pipe"))
    made: dict[str, list[Any]] = {section.key: [] for section in SECTIONS}
    for one in links:
        feeders = tuple(feeder for feeder in one.feeders if feeder in nodes) or (_NOWHERE,)
        if one.name in parts[one.section]:
            part = parts[one.section][one.name]
            is_whole = one.role in ("source", "store") or feeders == one.feeders
            made[one.section].append(
                part if is_whole else part.model_copy(update={"from_": feeders})
            )
        else:
            made[one.section].append(_STAND_INS[one.role](one.name, feeders))
    if any(getattr(part, "from_", ()) == (_NOWHERE,) for row in made.values() for part in row):
        made[SOURCES.key].append(_STAND_INS["source"](_NOWHERE, ()))
    if loose:
        made[SINKS.key].append(_STAND_INS["sink"](f"{_NOWHERE}.end", loose))
    return Plan(
        name="file",
        stores=tuple(made[STORES.key]),
        sources=tuple(made[SOURCES.key]),
        pipes=tuple(made[PIPES.key]),
        stages=tuple(made[STAGES.key]),
        sinks=tuple(made[SINKS.key]),
    )


_NOWHERE = "not.understood"
_STAND_INS: dict[str, Callable[[str, tuple[str, ...]], object]] = {
    "source": lambda name, _: JsonlSource(name=name, path=Setting("a.jsonl")),
    "store": lambda name, _: SqliteStorePart(name=name, path=Setting("a.db")),
    "pipe": lambda name, feeders: PipePart(name=name, from_=feeders),
    "stage": lambda name, feeders: StagePart(name=name, from_=feeders, call="not:understood"),
    "sink": lambda name, feeders: StdoutSink(name=name, from_=feeders),
}


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


def _head(root: Mapping, found: Found) -> BaseModel | None:
    """Everything but the parts; keys that are neither are refused here."""
    sections = tuple(section.key for section in SECTIONS)
    known = (*keys_of(Head), *sections)
    for key, place in root.keys.items():
        if key not in known:
            found.append(Problem(place, f"{key!r} is no key of a pipeline: {nearest(key, known)}"))
    data = {key: root.values[key].data() for key in keys_of(Head) if key in root.values}
    return validate(data, (root, ()), _HEAD, "the pipeline", found)


def _parts(section: Section[Any], root: Mapping, found: Found) -> dict[str, Any]:
    """The entries of a section that could be read."""
    node = root.values.get(section.key)
    if node is None or (isinstance(node, Scalar) and node.value is None):
        if section.required:
            place = Place(1, 1) if node is None else root.keys[section.key]
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


def _links(section: Section[Any], root: Mapping, parts: dict[str, Any]) -> Iterator[Link]:
    node = root.values.get(section.key)
    if not isinstance(node, Mapping):
        return
    for name, entry in node.values.items():
        if name in parts:
            yield link(parts[name])
        else:
            yield unreadable(section.role, name, tuple(_feeders(entry)))


def _feeders(entry: Node) -> Iterator[str]:
    """What ``from`` says in an entry that can't be read as a whole."""
    said = entry.values.get("from") if isinstance(entry, Mapping) else None
    for one in said.items if isinstance(said, Row) else [said]:
        if isinstance(one, Scalar) and isinstance(one.value, str):
            yield one.value


def _issue_place(root: Mapping, path: tuple[str | int, ...]) -> Place:
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
