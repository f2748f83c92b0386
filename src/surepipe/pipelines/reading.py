"""From bytes to nodes: YAML as its version 1.2 has it, without what makes YAML dangerous.

Refused, each with one clear line: more than 256 KiB, bytes that are no UTF-8 text, anchors and aliases (so no
text can grow when it is read), tags (so nothing is built that a file names), keys that stand twice, several
documents, and nesting deeper than 40. Scalars are read as YAML 1.2 does: ``no``, ``on`` and ``12:30`` are
words, not values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from surepipe.pipelines.problems import (
    Enough,
    FoundProblems,
    PipelineErrors,
    Problem,
    Text,
    TextPlace,
)

# What a YAML text says, with the place of every word: scalars, rows and mappings.
#
# Nothing is built from tags and nothing is shared between two places, so whatever somebody writes, reading it
# costs no more than its length.


ScalarValue: TypeAlias = str | int | float | bool | None
Step: TypeAlias = str | int


@dataclass(slots=True)
class Scalar:
    """One value. ``written`` is its text in the file; ``plain``: without quotes."""

    place: TextPlace
    value: ScalarValue
    written: str
    plain: bool = True

    def data(self) -> object:
        return self.value


@dataclass(slots=True)
class YamlList:
    """A list."""

    place: TextPlace
    items: list[Node] = field(default_factory=list["Node"])

    def data(self) -> object:
        return [item.data() for item in self.items]


@dataclass(slots=True)
class Mapping:
    """Keys and values. ``keys`` has the place of each key."""

    place: TextPlace
    values: dict[str, Node] = field(default_factory=dict[str, "Node"])
    keys: dict[str, TextPlace] = field(default_factory=dict[str, TextPlace])

    def data(self) -> object:
        return {key: value.data() for key, value in self.values.items()}


Node: TypeAlias = Scalar | YamlList | Mapping


def step_into(node: Node, step: Step) -> Node | None:
    """The value under a key or at a number, or None where there is none."""
    if isinstance(node, Mapping) and isinstance(step, str):
        return node.values.get(step)
    if isinstance(node, YamlList) and isinstance(step, int) and 0 <= step < len(node.items):
        return node.items[step]
    return None


def find(node: Node, path: tuple[Step, ...]) -> Node:
    """The node at a path, as far as the path goes."""
    for step in path:
        node = step_into(node, step) or node
    return node


def key_place(node: Node, path: tuple[Step, ...]) -> TextPlace:
    """Where the last key of the path stands; for the number of a row, where that value stands."""
    holder = find(node, path[:-1])
    last = path[-1] if path else ""
    if isinstance(holder, Mapping) and isinstance(last, str) and last in holder.keys:
        return holder.keys[last]
    return find(node, path).place


def scalars(node: Node, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Scalar]]:
    """Every scalar of a tree with its path."""
    match node:
        case Scalar():
            yield path, node
        case YamlList(items=items):
            for number, item in enumerate(items):
                yield from scalars(item, (*path, number))
        case Mapping(values=values):
            for key, value in values.items():
                yield from scalars(value, (*path, key))


BYTES_MAX = 256 * 1024
DEPTH_MAX = 40
_DIGITS_MAX = 18
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_RADIX = re.compile(r"0o[0-7]{1,18}|0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_START = TextPlace(1, 1)

_SAID = (
    ("mapping values are not allowed", "a second ':' stands here: put the value in quotes"),
    ("could not find expected ':'", "a ':' and a value are missing after this key"),
    ("found character '\\t'", "a tab stands here: indent with spaces"),
    ("found unexpected end of stream", "a quote is opened and not closed"),
    ("expected ',' or ']'", "a ',' or a ']' is missing before this"),
    ("expected ',' or '}'", "a ',' or a '}' is missing before this"),
    ("expected <block end>", "this does not stand under what is above it: look at the indentation"),
    ("found character '@'", "'@' can't begin a value: put it in quotes"),
    ("found character '`'", "'`' can't begin a value: put it in quotes"),
    ("found character '%'", "'%' can't begin a value: put it in quotes"),
    ("found unknown escape", "this escape is unknown: use single quotes, or write '\\\\'"),
)


def read_file(path: Path, shown_as: str | None = None) -> tuple[Text, Mapping]:
    """The text of a file and what it says. Raises PipelineErrors, also when the file can't be read."""
    name = shown_as or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refused(name, f"can't be read: {reason.lower()}") from None
    return read_text(data, name)


def read_text(data: bytes | str, name: str = "pipeline.yaml") -> tuple[Text, Mapping]:
    """The lines of a text and what it says. Raises PipelineErrors."""
    written = _decoded(data, name)
    text = Text(name, tuple(written.splitlines()))
    root = _Reader(text).read(written)
    if isinstance(root, Mapping):
        return text, root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        raise _refused(
            name, "the file is empty: `surepipe init` writes a small pipeline to begin with"
        )
    what = "a list" if isinstance(root, YamlList) else "one value"
    why = f"the file holds {what}: a pipeline is a mapping, which begins with 'version: 1'"
    raise PipelineErrors(text, [Problem(root.place, why)])


_DATABASE = b"SQLite format 3\0"


def _decoded(data: bytes | str, name: str) -> str:
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    if data.startswith(_DATABASE):
        raise _refused(
            name,
            "the file is a SQLite database, perhaps a store: give the pipeline's file, which names its stores",
        )
    if len(data) > BYTES_MAX:
        raise _refused(name, f"the file has more than {BYTES_MAX} bytes, which no pipeline needs")
    try:
        written = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(
            name, f"the file is no UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
        ) from None
    odd = next((at for at, sign in enumerate(written) if _is_odd(sign)), None)
    if odd is not None:
        raise _refused(name, f"the file is no text: character {odd} is U+{ord(written[odd]):04X}")
    return written


def _is_odd(sign: str) -> bool:
    """Signs that no text has, and two ends of lines that nobody sees: a comment would end there."""
    is_control = (sign < " " and sign not in "\t\n\r") or "\x7f" <= sign <= "\x9f"
    return is_control or sign in "\u2028\u2029\ufeff"


def _refused(name: str, why: str) -> PipelineErrors:
    return PipelineErrors(Text(name, ()), [Problem(_START, why)])


class _Reader:
    """Builds the nodes of one document from the events of the parser, without recursion in the parser."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._found = FoundProblems()

    def read(self, written: str) -> Node | None:
        """The root node, or None when there is no document. Raises PipelineErrors with all that was found."""
        root: Node | None = None
        is_cut = False
        try:
            events = self._watched(yaml.parse(written, Loader=yaml.SafeLoader))
            for event in events:
                if isinstance(event, yaml.NodeEvent):
                    root = self._node(event, events, 0)
        except Enough:
            is_cut = True
        except (yaml.YAMLError, RecursionError) as error:
            raise PipelineErrors(self._text, [*self._found, _told(error)]) from None
        if self._found:
            raise PipelineErrors(self._text, self._found, is_cut=is_cut)
        return root

    def _watched(self, events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _stop(event, "a second document begins here: a file holds one pipeline")
            yield event

    def _node(self, event: yaml.NodeEvent, events: Iterator[yaml.Event], depth: int) -> Node:
        self._refuse_dangerous(event)
        place = _place(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, place)
        if depth >= DEPTH_MAX:
            raise _stop(event, f"this is nested deeper than {DEPTH_MAX}")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._row(place, events, depth)
        return self._mapping(place, events, depth)

    def _row(self, place: TextPlace, events: Iterator[yaml.Event], depth: int) -> YamlList:
        row = YamlList(place)
        for event in events:
            if not isinstance(event, yaml.NodeEvent):
                break
            row.items.append(self._node(event, events, depth + 1))
        return row

    def _mapping(self, place: TextPlace, events: Iterator[yaml.Event], depth: int) -> Mapping:
        mapping = Mapping(place)
        for event in events:
            if not isinstance(event, yaml.NodeEvent):
                break
            key = self._node(event, events, depth + 1)
            value = self._node(_next_node(events), events, depth + 1)
            self._enter(mapping, key, value)
        return mapping

    def _enter(self, mapping: Mapping, key: Node, value: Node) -> None:
        if not isinstance(key, Scalar):
            self._found.append(Problem(key.place, "a key must be a word"))
        elif key.written == "<<" and key.plain:
            self._found.append(Problem(key.place, "'<<' merges nothing here: write the keys out"))
        elif key.written in mapping.values:
            first = mapping.keys[key.written].line
            why = f"{key.written!r} stands here a second time, and first in line {first}"
            self._found.append(Problem(key.place, why))
        else:
            mapping.keys[key.written] = key.place
            mapping.values[key.written] = value

    def _scalar(self, event: yaml.ScalarEvent, place: TextPlace) -> Scalar:
        plain = event.style is None
        if "\0" in event.value:
            self._found.append(Problem(place, "U+0000 stands in this text: no name or path has it"))
        if not plain:
            return Scalar(place, event.value, event.value, plain=False)
        if _INT.fullmatch(event.value) and len(event.value) > _DIGITS_MAX:
            self._found.append(
                Problem(place, f"a number of {len(event.value)} digits is none that is meant here")
            )
            return Scalar(place, 0, event.value)
        return Scalar(place, value_of(event.value), event.value)

    def _refuse_dangerous(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _stop(event, f"'*{event.anchor}' is an alias: write out what it stands for")
        if event.anchor is not None:
            raise _stop(event, f"'&{event.anchor}' is an anchor: write each value where it is used")
        tag: str | None = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            short = tag.replace("tag:yaml.org,2002:", "!!")
            raise _stop(event, f"{short!r} is a tag: write the value without it")


def value_of(written: str) -> ScalarValue:
    """What a word without quotes means."""
    if written in _NULLS:
        return None
    if written in _BOOLS:
        return _BOOLS[written]
    if _INT.fullmatch(written):
        return int(written)
    if _RADIX.fullmatch(written):
        return int(written, 0)
    return float(written) if _FLOAT.fullmatch(written) else written


def _next_node(events: Iterator[yaml.Event]) -> yaml.NodeEvent:
    event = next(events)
    assert isinstance(event, yaml.NodeEvent), "the parser gives a value for each key"
    return event


def _place(event: yaml.Event) -> TextPlace:
    start, end = _mark(event.start_mark), _mark(event.end_mark)
    width = end.column - start.column if end.line == start.line else 1
    return TextPlace(start.line + 1, start.column + 1, max(1, width))


def _mark(mark: object) -> yaml.Mark:
    assert isinstance(mark, yaml.Mark), "the parser in Python marks every event"
    return mark


def _stop(event: yaml.Event, why: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"={why}", problem_mark=_mark(event.start_mark))


def _told(error: yaml.YAMLError | RecursionError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        return _said(error)
    if isinstance(error, RecursionError):
        return Problem(_START, "this is nested too deeply")
    return Problem(_START, f"this is no YAML: {str(error).splitlines()[0]}")


def _said(error: yaml.MarkedYAMLError) -> Problem:
    """The parser's words in ours, where it says something that people meet."""
    mark, said = error.problem_mark, error.problem or "this is no YAML"
    place = TextPlace(mark.line + 1, mark.column + 1) if mark is not None else _START
    if said.startswith("="):
        return Problem(place, said[1:])
    context = error.context_mark
    if "quoted scalar" in (error.context or "") and context is not None:
        place = TextPlace(context.line + 1, context.column + 1)
    ours = (text for words, text in _SAID if words in said)
    return Problem(place, next(ours, f"this is no YAML: {said}"))
