"""Sources and sinks under simulation: rows that are known beforehand, and records of what came out.

Both belong to the world and outlive processes, as files and servers do. What a process holds is a view of them.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from surepipe.core.claims import Atom
from surepipe.core.store_requests import Transaction, when_done
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Cursor, SourceRow
from surepipe.pipelines.models.sources import (
    AnySource,
    CsvSource,
    FileSource,
    HttpSource,
    JsonlSource,
    ReadSource,
    replays,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    HttpSink,
    JsonlSink,
    PythonSink,
    RmqSink,
)
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate.ends import canonical, members_of
from surepipe.pipelines.simulate.sandbox import at_one_moment, imported_virtually
from surepipe.pipelines.sinks.files import CsvLines, Disk, JsonlLines, LineFile
from surepipe.pipelines.sources.checking import (
    Check,
    Unfit,
    as_it_is,
    as_json,
    fitting,
    refused,
)
from surepipe.pipelines.sources.files import CsvFile, JsonlFile, TextFile
from surepipe.pipelines.stages import About
from surepipe.pipelines.users_code import look_first_in
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.chance.randomness import Draws, draws
from surepipe.simulation.options import Options
from surepipe.simulation.timeline import digest_of


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that is no message: a broken line of JSON, say, or a row of CSV that is too short."""

    content: bytes


def with_unreadable(
    source: AnySource, messages: Sequence[object], aside: Collection[bytes], options: Options
) -> list[object]:
    """The messages of a source, and rows among them that can't be read, where it has dead letters for these: first
    those that it has by itself (``aside``)."""
    found = list(messages)
    if not isinstance(source, ReadSource) or source.dead_letter is None:
        return found
    source_of_chance = draws(options.seed, f"unreadable {source.name}")
    own = sorted(aside, key=lambda content: digest_of(b"%d " % options.seed + content))
    for number in range(1, options.unreadable + 1):
        text = f"{number}" if isinstance(source, CsvSource) else f'{{"unreadable": {number}, '
        content = own[number - 1] if number <= len(own) else text.encode()
        found.insert(source_of_chance.below(len(found) + 1), Unreadable(content))
    return found


@dataclass(slots=True)
class SeededRows:
    """A source: its messages, how long after the one before each comes, how far it was read, and how far a process
    said that it has them."""

    part: AnySource
    messages: Sequence[object]
    due_us: Sequence[int]
    read: int = 0
    taken: int = 0
    doubt: Atom | None = None
    """What nobody promises of this run: a process ended after it had read what can't be read again."""

    def begin(self, after: str) -> int:
        """Where a new process begins: at its place, or where the world is."""
        if replays(self.part):
            return int(after or 0)
        is_posted = isinstance(self.part, HttpSource)
        if self.read > self.taken:
            self.doubt = Atom.NO_DUPLICATE if is_posted else Atom.NO_LOSS
        return self.taken if is_posted else self.read


class RowsInLife:
    """A source in one process."""

    def __init__(self, rows: SeededRows, life: Life) -> None:
        self._rows = rows
        self._life = life
        self._at = 0

    def begin(self, after: str) -> None:
        """From this place, or, where it can't be read again, from where the world is."""
        self._life.check()
        self._at = self._rows.begin(after)

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """What is due by now; it waits for the next one."""
        life, rows = self._life, self._rows
        life.check()
        if self._at >= len(rows.messages):
            return None
        life.sleep(rows.due_us[self._at] - life.world.now)
        now = life.world.now
        end = self._at
        while end < len(rows.messages) and end - self._at < rows_max and rows.due_us[end] <= now:
            end += 1
        found = [self._row(number, rows.messages[number]) for number in range(self._at, end)]
        self._at = end
        rows.read = max(rows.read, end)
        return found

    def _row(self, number: int, message: object) -> SourceRow:
        after = str(number + 1)
        if isinstance(message, Unreadable):
            return SourceRow(
                message.content, after, f"{self._rows.part.name}:{after} can't be read"
            )
        return SourceRow(deepcopy(message), after)

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """A client that posts is answered now."""
        self._life.check()
        if rows:
            self._rows.taken = max(self._rows.taken, int(rows[-1].after))

    def close(self) -> None:
        """Nothing is held open."""


# Sinks.


@dataclass(slots=True)
class Record:
    """What a sink got. ``takes_batches``: of a batch each message counts by itself (``singly``), as it comes again
    in other company."""

    part: AnySink
    takes_batches: bool = False
    entries: list[tuple[About, object]] = field(default_factory=list[tuple[About, object]])
    keys: set[str] = field(default_factory=set[str])
    singly: list[object] = field(default_factory=list[object])

    @property
    def messages(self) -> list[object]:
        """In the order in which they came."""
        return [message for _, message in self.entries]

    @property
    def is_idempotent(self) -> bool:
        """True when a message that comes again has no second effect."""
        if isinstance(self.part, RmqSink):
            return True
        return isinstance(self.part, HttpSink | PythonSink) and self.part.idempotent

    def write(self, about: About, message: object) -> None:
        """What it has already has no effect, where it is idempotent."""
        parts = [*members_of(message, about)] if self.takes_batches else [(about.key, message)]
        fresh = [one for key, one in parts if not (self.is_idempotent and key in self.keys)]
        self.keys.update(key for key, _ in parts)
        self.singly += fresh
        if fresh or not parts:
            self.entries.append((about, message))


class RecorderInLife:
    """A sink in one process: as idempotent, and as much a part of transactions, as its kind is."""

    def __init__(
        self,
        record: Record,
        life: Life,
        call: Callable[[object, About, Transaction | None], object] | None = None,
    ) -> None:
        """``call``: what the sink does with a message, where that is a function of the user's."""
        self._record = record
        self._life = life
        self._call = call
        self._pending: list[tuple[About, object]] = []

    def begin(self, transaction: Transaction | None) -> None:
        del transaction
        self._life.check()
        self._pending = []

    def mark(self) -> int:
        return len(self._pending)

    def back_to(self, mark: int) -> None:
        """Forget what was put since."""
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        self._life.check()
        entry = (about, deepcopy(message))  # what is done to the message later is not in it
        if self._call is not None:
            self._call(message, about, transaction)
        if not self._waits(transaction):
            self._write([entry])
        else:
            self._pending.append(entry)

    def _waits(self, transaction: Transaction | None) -> bool:
        """Files are written a group at a time; a request or a call can't be held back, but by a transaction."""
        part = self._record.part
        is_out = isinstance(part, HttpSink | PythonSink | RmqSink)
        return not is_out or self._is_in(transaction)

    def _is_in(self, transaction: Transaction | None) -> bool:
        return transaction is not None and self._record.part.commits

    def seal(self, transaction: Transaction | None) -> None:
        """Make the group last: what a function did with a transaction happens when that is done."""
        pending, self._pending = self._pending, []
        if pending and transaction is not None and self._is_in(transaction):
            is_told = when_done(transaction, lambda: self._written(pending))
            assert is_told, "simulated stores are in this process"
        elif pending:
            self._write(pending)

    def _write(self, entries: list[tuple[About, object]]) -> None:
        name = self._record.part.name
        first = entries[0][0].key.rpartition("/")[2]
        self._life.at(f"{name} writes {first}+{len(entries)}", lambda: self._written(entries))

    def _written(self, entries: list[tuple[About, object]]) -> None:
        record = self._record
        for about, message in entries:
            record.write(about, message)
        again = ", again" if _has_repeats(record, entries) else ""
        self._life.world.effect(record.part.name, f"writes {len(entries)}{again}")

    def close(self) -> None:
        """Nothing is held open."""


def _has_repeats(record: Record, entries: list[tuple[About, object]]) -> bool:
    known = [about for about, _ in record.entries]
    return any(known.count(about) > 1 for about, _ in entries)


# What sources give under simulation: samples, the first rows of a file, values of a model, or m0, m1, ...


@dataclass(frozen=True, slots=True)
class Given:
    """What a source gives: ``messages`` as its model has them, and ``aside``, the rows that are none, with why."""

    messages: Sequence[object]
    aside: Mapping[bytes, str]


def given_by(
    plan: Plan, count: int, messages: Mapping[str, Sequence[object]] | None = None
) -> dict[str, Given]:
    """Of each source of a plan, up to so many; ``messages``: those to take instead.

    Raises ConfigurationError for a row that stops a run, when a file can't be read, and when it is not there or
    empty and nothing else says what its rows are like: a run of no messages, or of made-up ones, shows nothing.
    """
    look_first_in(plan.folder)
    checks = {source.name: _check_of(source) for source in plan.sources}
    models = [imported_virtually(source.model) for source in plan.sources if source.model]
    with at_one_moment(sys.modules[model.__module__] for model in models):
        if messages is None:
            return {
                source.name: _of_source(plan, source, checks[source.name], count)
                for source in plan.sources
            }
        return {
            source.name: _checked(source, checks[source.name], messages[source.name])
            for source in plan.sources
            if source.name in messages
        }


def _of_source(plan: Plan, source: AnySource, check: Check, count: int) -> Given:
    folder = plan.folder or Path()
    sample = plan.simulate.sample.get(source.name)
    if sample:
        given = _checked(source, check, sample)
        return replace(given, messages=_filled(given.messages, count))
    if isinstance(source, JsonlSource | CsvSource):
        given = _of_file(source, check, count, folder)
        if given.messages:
            return given
    if source.model is not None:
        return Given(_of_model(source, source.model, check, count), {})
    if isinstance(source, JsonlSource | CsvSource):
        raise ConfigurationError(
            f"source {source.name}: {source.path} {_missing(source, folder)}, {_nothing_from(source)}"
        )
    return Given([f"m{number}" for number in range(count)], {})


def _nothing_from(source: AnySource) -> str:
    return (
        "so there is nothing to simulate with: put some rows there, or write them down "
        f"(simulate: {{sample: {{{source.name}: [...]}}}})"
    )


def _check_of(source: AnySource) -> Check:
    if source.model is None:
        return as_it_is
    return fitting(imported_virtually(source.model), source.model, _in_one_order)


def _in_one_order(found: BaseModel) -> object:
    """As stages get it, with sets in an order that is the same in each process."""
    return _sets_sorted(found.model_dump(), as_json(found))


def _sets_sorted(value: object, dumped: object) -> object:
    unchanged = dumped
    if isinstance(dumped, list):
        items = cast("list[object]", dumped)
        if isinstance(value, set | frozenset):
            return sorted(items, key=canonical)
        if isinstance(value, list | tuple) and len(cast("list[object]", value)) == len(items):
            pairs = zip(cast("list[object]", value), items, strict=True)
            return [_sets_sorted(one, other) for one, other in pairs]
    elif isinstance(dumped, dict) and isinstance(value, dict):
        fields, inner = cast("dict[str, object]", dumped), cast("dict[str, object]", value)
        return {name: _sets_sorted(inner.get(name), one) for name, one in fields.items()}
    return unchanged


def require_virtual_clocks(plan: Plan) -> None:
    """Raises ConfigurationError where the model of a source has taken the real clock for good."""
    look_first_in(plan.folder)
    for source in plan.sources:
        model = imported_virtually(source.model) if source.model else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        for name, one in model.model_fields.items():
            owner = getattr(one.default_factory, "__self__", None)
            if owner is time or (isinstance(owner, type) and issubclass(owner, date)):
                asks = getattr(one.default_factory, "__qualname__", "the clock")
                raise ConfigurationError(
                    f"source {source.name}: {name} of its model takes {asks} of the real clock for good, so its "
                    "rows would be others in each process: look it up when it is called "
                    f"(default_factory=lambda: {asks}())"
                )


def _checked(source: AnySource, check: Check, messages: Iterable[object]) -> Given:
    def rows() -> Iterator[SourceRow]:
        for number, message in enumerate(messages, 1):
            try:
                yield SourceRow(check(message), str(number))
            except Unfit as error:
                wrong = f"source {source.name}, message {number}: {error}"
                yield refused(message, str(number), wrong, keeps=True)

    return _sorted_out(source, rows())


def _sorted_out(source: AnySource, rows: Iterable[SourceRow]) -> Given:
    """Messages, and what a run puts aside. Raises ConfigurationError for what stops it."""
    messages: list[object] = []
    aside: dict[bytes, str] = {}
    for row in rows:
        if not row.wrong:
            messages.append(row.message)
        elif isinstance(source, ReadSource) and source.dead_letter is None:
            raise ConfigurationError(
                f"{row.wrong}. As source {source.name} has no dead_letter, a run stops there: mend the row, or "
                "put such rows aside (dead_letter: STORE/STREAM)"
            )
        else:
            aside.setdefault(cast("bytes", row.message), row.wrong)
    if aside and not messages:
        first = next(iter(aside.values()))
        raise ConfigurationError(f"{first}: no row is a message, {_nothing_from(source)}")
    return Given(messages, aside)


def _missing(source: FileSource, folder: Path) -> str:
    return "has no rows" if _found(source, folder) else f"is not there, nor in {folder.resolve()}"


def _found(source: FileSource, folder: Path) -> Path | None:
    path = str(source.path)
    return next((place for place in (Path(path), folder / path) if place.is_file()), None)


def _filled(sample: Sequence[object], count: int) -> list[object]:
    return [sample[number % len(sample)] for number in range(count)]


def _of_file(source: JsonlSource | CsvSource, check: Check, count: int, folder: Path) -> Given:
    """Its first messages, read as a run reads them."""
    path = _found(source, folder)
    if path is None:
        return Given([], {})
    file = (
        JsonlFile(path, check=check, keeps=True)
        if isinstance(source, JsonlSource)
        else CsvFile(path, source.delimiter, check, keeps=True)
    )
    with closing(file):
        file.begin("")
        return _sorted_out(source, _first(file, count))


def _first(file: TextFile, count: int) -> Iterator[SourceRow]:
    """Up to so many messages, and what stands between them."""
    while count and (rows := file.read(count)):
        yield from rows
        count -= sum(not row.wrong for row in rows)


def _of_model(source: AnySource, path: str, check: Check, count: int) -> list[object]:
    """Values of a model: numbers count up, texts carry the number."""
    model = cast("type[BaseModel]", imported_virtually(path))
    schema = model.model_json_schema()
    definitions = cast("dict[str, object]", schema.get("$defs", {}))
    chance = draws(1, f"model/{model.__name__}")
    try:
        return [check(_value(schema, definitions, number, chance)) for number in range(count)]
    except Unfit as error:
        raise ConfigurationError(
            f"source {source.name}: rows made up of its model don't fit it ({error}), {_nothing_from(source)}"
        ) from None


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


# Files under simulation: their bytes belong to the world, and the sink that writes them is the production one.


@dataclass(slots=True)
class WorldFile:
    """The file of a sink. ``is_decided``: a store knows what it is to hold."""

    part: JsonlSink | CsvSink
    data: bytearray = field(default_factory=bytearray)
    is_decided: bool = False

    @property
    def messages(self) -> list[object]:
        """The file as a reader sees it: of CSV, a mapping of texts for each row."""
        text = self.data.decode(errors="replace")
        if isinstance(self.part, CsvSink):
            return list(csv.DictReader(io.StringIO(text, newline="")))
        return [_content(line) for line in text.removesuffix("\n").split("\n")] if text else []

    def opened(self, cursor: Cursor | None, disk: Disk) -> LineFile:
        """The sink, as ``surepipe run`` makes it, on this disk. Raises what that raises."""
        self.is_decided = self.is_decided or cursor is not None
        path = Path(self.part.name)
        if isinstance(self.part, CsvSink):
            return CsvLines(path, cursor, self.part.columns, opened=lambda _: disk)
        return JsonlLines(path, cursor, opened=lambda _: disk)


def _content(line: str) -> object:
    """Half a line is no value: it is shown as it is."""
    try:
        found: object = json.loads(line)
    except ValueError:
        return line
    return found


class BareDisk:
    """The bytes of a file of the world, when no process runs any more."""

    def __init__(self, file: WorldFile) -> None:
        self._data = file.data

    def size(self) -> int:
        return len(self._data)

    def read(self, count: int, at: int) -> bytes:
        return bytes(self._data[at : at + count])

    def write(self, data: memoryview, at: int) -> int:
        missing = max(0, at - len(self._data))
        self._data.extend(bytes(missing))
        self._data[at : at + len(data)] = data
        return len(data)

    def cut(self, length: int) -> None:
        del self._data[length:]

    def sync(self) -> None:
        """What is written stays."""

    def close(self) -> None:
        """Nothing is held open."""


class DiskInLife(BareDisk):
    """The same in the hands of one process: each change is a point at which it may end."""

    def __init__(self, file: WorldFile, life: Life) -> None:
        super().__init__(file)
        self._name = file.part.name
        self._life = life

    def size(self) -> int:
        """How many bytes there are now, whoever has written them."""
        self._life.check()
        return super().size()

    def write(self, data: memoryview, at: int) -> int:
        """Write all but the last byte, or that one: a process may end with half a line in the file."""
        some = data[:-1] or data
        what = f"{self._name} writes {len(some)} bytes at {at}"
        return self._life.at(what, lambda: self._written(some, at))

    def _written(self, data: memoryview, at: int) -> int:
        if self.read(len(data), at) != bytes(data):
            self._life.world.effect(self._name, f"writes {len(data)} bytes at {at}")
        return super().write(data, at)

    def cut(self, length: int) -> None:
        self._life.at(f"{self._name} is cut to {length} bytes", lambda: self._cut(length))

    def _cut(self, length: int) -> None:
        self._life.world.effect(self._name, f"is cut to {length} bytes")
        super().cut(length)
