"""Appending what was made of a stream's entries to a stream: once each, whatever Spark does again.

What identifies an output is the index of the entry that it was made of, never a batch or a task of Spark. For each
output stream and origin the store keeps a position: the index of the first entry whose outputs are not appended
yet. Outputs and position change in one transaction (S-11), so a stage may give any number of outputs for an entry,
none too, and a run that is cut in another way, after a lost checkpoint or by a second attempt at a task, skips
exactly what is there. A range that begins behind the position is a gap, and is refused.

1. Two attempts at a task run at once. Each claims the position; the later claim fences the earlier one.
2. The earlier one may have appended before that, and then the later one reads the moved position and skips.
3. If not, its transaction is refused. It looks again: when the other has done all, it is done, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any, NamedTuple, cast

import numpy as np
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from surepipe.core.store_requests import (
    AppendRun,
    CommitPosition,
    Committed,
    Failed,
    Full,
    Gap,
    JoinedOutcome,
    Kept,
    Stored,
    Unavailable,
)
from surepipe.core.store_requests import FencedOut as FencedBy
from surepipe.errors import ConfigurationError, Fenced, MisuseError, StoreReset, StoreUnavailable
from surepipe.spark import columns as arrow
from surepipe.spark.columns import LENGTH, BufferPayloads, Numbers, RecordBatch
from surepipe.spark.ranges import key_of
from surepipe.spark.shipping import keep_what_is_loaded
from surepipe.spark.source_options import PLACE_OPTIONS, SPARKS_OPTIONS, choice, nearest
from surepipe.spark.stores import ATTEMPTS, OpenStore, StorePlace, claimed, stored_position

CHUNK_MESSAGES = 20_000
CHUNK_BYTES = 4 * 1024 * 1024
"""A transaction takes so much at most, unless the outputs of one entry are more."""
EPOCH = 1
"""Of the sink's producers. They need no other: a new life of the origin is another producer."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The entries that outputs are made of: columns stream, partition and life of the source."""

    stream: str
    partition: int
    life: int

    @property
    def key(self) -> str:
        """As in the offsets of the source."""
        return key_of(self.stream, self.partition)


class SinkRow(NamedTuple):
    """What a stage made of one entry."""

    source_index: int
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Outputs:
    """What was made of the entries ``from_index`` up to, not including, ``to_index``.

    ``indexes[n]`` is the index of the entry that ``payloads[n]`` was made of; it never falls. An entry may be
    there several times, or not at all.
    """

    from_index: int
    to_index: int
    indexes: Sequence[int] | Numbers
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of outputs: ``new`` were appended, ``skipped`` had been there. ``next`` is the position now."""

    new: int
    skipped: int
    next: int


def write_rows(  # noqa: PLR0917 - in the order in which they are told
    place: StorePlace,
    stream: str,
    origin: Origin,
    rows: Iterable[SinkRow],
    from_index: int,
    to_index: int,
    *,
    sink: str = "spark",
    may_begin: bool = True,
) -> Written:
    """``append_by_identity`` for rows in the order of their ``source_index``; entries without outputs may lack."""
    indexes: list[int] = []
    payloads: list[bytes] = []
    for row in rows:
        indexes += [row.source_index] * len(row.payloads)
        payloads += row.payloads
    outputs = Outputs(from_index, to_index, indexes, payloads)
    return append_by_identity(place, stream, origin, outputs, sink=sink, may_begin=may_begin)


def append_by_identity(
    place: StorePlace,
    stream: str,
    origin: Origin,
    outputs: Outputs,
    *,
    sink: str = "spark",
    may_begin: bool = True,
) -> Written:
    """Append what is new of the outputs to ``stream``, all of them in order, and move the sink's position.

    ``sink`` names the position: two queries that write the same outputs have one name, others have others. Without
    a position any beginning is believed, unless ``may_begin`` is false. A repeat skips everything. After a crash
    in between, a repeat goes on where it ended.

    Raises StoreReset for a gap, Fenced when another attempt has taken over and is not done, StoreUnavailable when
    the store stays away or is full, MisuseError for outputs out of order, ConfigurationError when the store
    refuses.
    """
    checked = _checked(outputs)
    _check_place(place)
    return _Appender(place, stream, origin, sink).append(checked, may_begin)


def cut(outputs: Outputs) -> Iterator[Outputs]:
    """The same in parts that a transaction takes each, one at least; the outputs of an entry stay together.

    Raises MisuseError for outputs out of order.
    """
    whole, begin, start = _checked(outputs), outputs.from_index, 0
    for payloads, stop in _chunks(whole, 0):
        indexes = whole.indexes[start : start + len(payloads)]
        yield Outputs(begin, stop, indexes, payloads)
        begin, start = stop, start + len(payloads)


def position_of(
    place: StorePlace, stream: str, origin: Origin, *, sink: str = "spark"
) -> int | None:
    """The index of the first entry whose outputs are not appended yet; None when none ever were."""
    appender = _Appender(place, stream, origin, sink)
    return appender.look().next


@dataclass(frozen=True, slots=True)
class _Checked:
    """Outputs that are in order, as numpy sees them."""

    from_index: int
    to_index: int
    indexes: Numbers
    payloads: BufferPayloads

    def first_of(self, index: int) -> int:
        """Where the outputs of an entry, or else of a later one, begin."""
        return int(np.searchsorted(self.indexes, index))


def _checked(outputs: Outputs) -> _Checked:
    indexes, payloads = np.asarray(outputs.indexes, np.int64), BufferPayloads.of(outputs.payloads)
    if np.any(indexes[1:] < indexes[:-1]):
        raise MisuseError(
            "outputs are not in the order of the entries that they were made of: sort by stream and index before "
            "the sink (a shuffle does not keep the order)"
        )
    if len(indexes) != len(payloads):
        raise MisuseError(f"{len(indexes)} indexes for {len(payloads)} outputs: one each")
    if len(indexes) and not outputs.from_index <= indexes[0] <= indexes[-1] < outputs.to_index:
        raise MisuseError(
            f"outputs of entries {indexes[0]} to {indexes[-1]} are outside of the range that is written, "
            f"{outputs.from_index} to {outputs.to_index - 1}"
        )
    return _Checked(outputs.from_index, outputs.to_index, indexes, payloads)


def _check_place(place: StorePlace) -> None:
    if place.spread != "pipeline":
        raise ConfigurationError(
            f"the sink can't write to {place} with spread={place.spread!r}: outputs and position are one "
            "transaction, which needs all keys in one slot; use spread='pipeline'"
        )


@dataclass(frozen=True, slots=True)
class _Seat:
    """Where the sink stands: the first index that is not done, and the last seq of its producer."""

    next: int | None
    last: int


@dataclass(slots=True)
class _Appender:
    """One attempt at appending outputs of one origin to one stream."""

    place: StorePlace
    stream: str
    origin: Origin
    sink: str
    owner: int = 0
    store: OpenStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.place.store()

    @property
    def about(self) -> str:
        """What is being done, for people."""
        return f"appending to stream {self.stream} what was made of {self.origin.key}"

    @property
    def place_stream(self) -> str:
        """The stream under which the position is kept; no real one, so that the position holds up no trimming."""
        return f"{self.stream}<-{self.origin.key}"

    @property
    def reader(self) -> str:
        """The name of the position: one for each life of the origin."""
        return f"{self.sink}@{self.origin.life}"

    @property
    def producer(self) -> str:
        """Who writes the outputs: one for each life of the origin, too."""
        return f"{self.sink}/{self.origin.key}@{self.origin.life}"

    def append(self, outputs: _Checked, may_begin: bool) -> Written:
        self.owner = claimed(self.place, self.place_stream, self.reader, self.about)
        seat = self.look()
        following, last = self._begin(seat, outputs, may_begin), seat.last
        skipped = outputs.first_of(following)
        new = 0
        if following >= outputs.to_index:
            return Written(0, len(outputs.payloads), following)
        for payloads, stop in _chunks(outputs, skipped):
            if not self._store_chunk(last, payloads, stop):
                return self._overtaken(outputs, skipped + new)
            last, new, following = last + len(payloads), new + len(payloads), stop
        return Written(new, skipped, following)

    def look(self) -> _Seat:
        found = stored_position(self.place, self.place_stream, self.reader, self.about)
        if found is None:
            return _Seat(None, 0)
        return _Seat(found.next, int(found.state))

    def _begin(self, seat: _Seat, outputs: _Checked, may_begin: bool) -> int:
        if seat.next is None and may_begin:
            return outputs.from_index
        if seat.next is None or outputs.from_index > seat.next:
            done = "nothing of it" if seat.next is None else f"entries up to {seat.next - 1}"
            raise StoreReset(
                f"{self.about}: the range begins at entry {outputs.from_index}, and {done} was written: what was "
                "made of the entries between is missing; start the query without its checkpoint, so that it reads "
                "from the sink's own positions"
            )
        return seat.next

    def _store_chunk(self, last: int, payloads: Sequence[bytes], stop: int) -> bool:
        """Append the payloads and move the position to ``stop``; False when another attempt has taken over."""
        state = str(last + len(payloads)).encode()
        move = CommitPosition(
            self.place_stream, self.reader, self.owner, self.origin.life, stop, state=state
        )
        run = AppendRun(self.stream, self.producer, EPOCH, last + 1, payloads)
        outcomes: tuple[JoinedOutcome, ...] = ()
        for _ in range(ATTEMPTS):
            with self.store.transaction() as transaction:
                if payloads:
                    transaction.append(run)
                transaction.commit(move)
            outcomes = transaction.outcomes
            if transaction.done:
                return True
            if not all(isinstance(each, Unavailable | Stored | Committed) for each in outcomes):
                break
        return self._refused(outcomes)

    def _refused(self, outcomes: Sequence[JoinedOutcome]) -> bool:
        """What a refusal means: False when another attempt is at work, else an error."""
        for outcome in reversed(outcomes):
            match outcome:
                case FencedBy() | Kept():
                    return False
                case Unavailable(detail):
                    raise StoreUnavailable(f"{self.about} in {self.place}: {detail}")
                case Full():
                    raise StoreUnavailable(f"{self.about}: the stream is {outcome.words}")
                case Gap(expected):
                    raise StoreReset(
                        f"{self.about}: the stream lost what was appended (its next seq is {expected}): the store "
                        "went back; restore it, or start the query without its checkpoint"
                    )
                case Failed(reason):
                    raise ConfigurationError(f"{self.about} in {self.place}: {reason}")
                case _:  # a part that was done, or would have been
                    continue
        raise AssertionError(f"a transaction was refused without a reason: {outcomes}")

    def _overtaken(self, outputs: _Checked, done: int) -> Written:
        seat = self.look()
        if seat.next is not None and seat.next >= outputs.to_index:
            return Written(done, len(outputs.payloads) - done, seat.next)
        raise Fenced(
            f"{self.about}: another attempt has taken over, and stands at entry {seat.next} of "
            f"{outputs.to_index - 1}; this one stops and has done no harm"
        )


def _chunks(outputs: _Checked, start: int) -> Iterator[tuple[BufferPayloads, int]]:
    """Outputs from the ``start``-th on in parts, and the index up to which each part goes; one part at least.

    A part ends between the outputs of two entries, never between those of one.
    """
    indexes, payloads = outputs.indexes, outputs.payloads
    while start < len(payloads):
        stop = min(start + CHUNK_MESSAGES, payloads.fitting(start, CHUNK_BYTES))
        if stop < len(payloads):
            index = int(indexes[stop])
            first = outputs.first_of(index)
            stop = first if first > start else outputs.first_of(index + 1)
        if stop >= len(payloads):
            break
        yield payloads[start:stop], int(indexes[stop])
        start = stop
    yield payloads[start:], outputs.to_index


# Rows that reach the sink, as runs of one origin: numpy looks at the columns, nothing is asked of one message.
#
# Payloads stay where Arrow has them; a store cuts its pages out of there.


NEEDED = ("stream", "partition", "index", "life", "payload")
"""The columns that rows for the sink have."""
PAGE_NEEDED = ("stream", "partition", "index", "life", "count", "lengths", "body")
"""Those of rows that are pages; ``made_of`` may be there, too (``columns.PAGE_TYPES``)."""


@dataclass(frozen=True, slots=True)
class OriginRows:
    """Some rows of one origin, one after the other: the index of each, and those that have a payload."""

    origin: Origin
    indexes: Numbers
    made_of: Numbers
    payloads: BufferPayloads

    def check_order(self, last: int) -> None:
        """Raises MisuseError unless each entry repeats or follows the one before it, at first ``last``."""
        steps = np.diff(self.indexes, prepend=last)
        wrong = np.flatnonzero((steps < 0) | (steps > 1))
        if not len(wrong):
            return
        at = int(wrong[0])
        raise MisuseError(
            f"a row of entry {self.indexes[at]} of {self.origin.key} follows one of entry "
            f"{self.indexes[at - 1] if at else last}: rows reach the sink in order and without a gap; sort by "
            "stream and index after a shuffle, and set the payload to null instead of removing a row"
        )


def runs_of(batch: RecordBatch) -> Iterator[OriginRows]:
    """The rows of a batch in order, cut where the origin changes.

    Raises MisuseError for a row that does not say what it was made of.
    """
    _check_given(batch, NEEDED[:-1])
    streams, names = arrow.numbered(batch.column("stream"))
    columns = [streams, *(arrow.numbers(batch.column(name)) for name in ("partition", "life"))]
    indexes = arrow.numbers(batch.column("index"))
    payloads = batch.column("payload")
    for start, stop in pairwise(_cuts(columns, batch.num_rows)):
        stream, partition, life = (int(column[start]) for column in columns)
        made_of, found = _made(indexes[start:stop], payloads.slice(start, stop - start))
        origin = Origin(cast("str", names[stream]), partition, life)
        yield OriginRows(origin, indexes[start:stop], made_of, found)


@dataclass(frozen=True, slots=True)
class PageRow:
    """A row that is a page: the entries ``first`` and ``count`` - 1 more, with the results of each."""

    first: int
    count: int
    lengths: Numbers
    made_of: Numbers
    body: memoryview

    @property
    def payloads(self) -> BufferPayloads:
        return BufferPayloads.of_lengths(self.lengths, self.body)

    def check(self) -> None:
        """Raises MisuseError for a page whose columns do not fit each other."""
        size, made_of = int(self.lengths.sum()), self.made_of
        is_whole = len(made_of) == len(self.lengths) and size == len(self.body)
        if not is_whole or self.count < 1 or (len(made_of) and made_of.max() >= self.count):
            raise MisuseError(
                f"the page of {self.count} entries from {self.first} on does not fit: {len(self.lengths)} "
                f"lengths of {size} bytes in all, a body of {len(self.body)}, made of {len(made_of)} entries"
            )


def page_rows(batch: RecordBatch) -> Iterator[PageRow]:
    """The pages of a batch. Raises MisuseError for one that can't be."""
    _check_given(batch, PAGE_NEEDED)
    firsts, counts = (arrow.numbers(batch.column(name)) for name in ("index", "count"))
    lengths, bodies = (BufferPayloads.of_column(batch.column(name)) for name in ("lengths", "body"))
    for at, said in enumerate(_made_of(batch)):
        count = int(counts[at])
        made_of = np.arange(count) if said is None else _numbers(said)
        page = PageRow(int(firsts[at]), count, _numbers(lengths.view(at)), made_of, bodies.view(at))
        page.check()
        yield page


def runs_of_pages(batch: RecordBatch) -> Iterator[OriginRows]:
    """What the pages of a batch hold, page by page. Raises as ``page_rows``."""
    columns = [batch.column(name).to_pylist() for name in ("stream", "partition", "life")]
    for page, origin in zip(page_rows(batch), zip(*columns, strict=True), strict=True):
        covered = np.arange(page.first, page.first + page.count)
        made_of = page.first + page.made_of
        yield OriginRows(Origin(*cast("Any", origin)), covered, made_of, page.payloads)


def _made_of(batch: RecordBatch) -> Iterable[bytes | None]:
    if "made_of" not in batch.schema.names:
        return repeat(None, batch.num_rows)
    return cast("list[bytes | None]", batch.column("made_of").to_pylist())


def _numbers(packed: bytes | memoryview) -> Numbers:
    return np.frombuffer(packed, LENGTH).astype(np.int64)


def _check_given(batch: RecordBatch, names: Iterable[str]) -> None:
    for name in names:
        if batch.column(name).null_count:
            raise MisuseError(
                f"a row without {name} reaches the sink: keep the source's columns as they are"
            )


def _cuts(columns: list[Numbers], count: int) -> list[int]:
    """Where a run begins, and after the last one the end."""
    if not count:
        return []
    changed = np.zeros(count - 1, dtype=np.bool_)
    for column in columns:
        changed |= column[1:] != column[:-1]
    return [0, *(np.flatnonzero(changed) + 1).tolist(), count]


def _made(indexes: Numbers, payloads: arrow.Array) -> tuple[Numbers, BufferPayloads]:
    if not payloads.null_count:
        return indexes, BufferPayloads.of_column(payloads)
    there = payloads.is_valid()
    return indexes[arrow.flags(there)], BufferPayloads.of_column(payloads.filter(there))


# The writer of the data source "surepipe": rows of the source, changed, into one stream, by identity.
#
# changed.writeStream.format("surepipe").options(**place.options(), stream="prices").start()
#
# Rows keep the source's columns stream, partition, index and life; ``payload`` is what is appended. A row
# without a payload says that nothing was made of its entry, several rows of one index are several outputs. So
# each index of a task's range must be there: a missing one is a gap, and refused. A filter sets the payload to
# null instead of removing the row, or writes with ``sink.write_rows``, which is told the range. With rows=pages
# a row is a page of the source, or one that ``pages`` made.


_OPTIONS = (*PLACE_OPTIONS, "stream", "sink", "rows")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The stream to write, and the name under which the position is kept."""

    place: StorePlace
    stream: str
    sink: str = "spark"
    rows: str = "messages"

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read Spark's options. Raises ConfigurationError."""
        given = {name.lower(): value for name, value in options.items()}
        for name in given:
            if name not in (*_OPTIONS, *SPARKS_OPTIONS, "checkpointlocation"):
                raise ConfigurationError(
                    f"option {name!r} of the surepipe sink is unknown: {nearest(name, _OPTIONS)}"
                )
        if not given.get("stream"):
            raise ConfigurationError(
                "the surepipe sink is not told where to append: give stream=prices"
            )
        return cls(
            StorePlace.of_options(given),
            given["stream"],
            given.get("sink", "spark"),
            choice(given, "rows"),
        )


def check_schema(schema: StructType, rows: str = "messages") -> None:
    """Raises ConfigurationError for rows that do not say what they were made of."""
    needed = PAGE_NEEDED if rows == "pages" else NEEDED
    missing = [name for name in needed if name not in schema.fieldNames()]
    if missing:
        raise ConfigurationError(
            f"rows for the surepipe sink lack {', '.join(missing)}: keep the source's columns {', '.join(needed)} "
            f"(its rows are {rows})"
        )
    for name in {"payload", "lengths", "body", "made_of"} & {*schema.fieldNames()}:
        kind = schema[name].dataType.simpleString()
        if kind != "binary":
            raise ConfigurationError(f"{name} is a {kind}: cast it to binary before the sink")


class TaskWritten(WriterCommitMessage):
    """What a task has done; nothing is left to commit."""

    def __init__(self, new: int, skipped: int) -> None:
        self.new = new
        self.skipped = skipped


@dataclass(slots=True)
class _Run:
    """Rows of one origin that came one after the other, and are not appended yet."""

    origin: Origin
    from_index: int
    last: int
    made_of: list[Numbers] = field(default_factory=list[Numbers])
    """Of each payload in ``payloads``, part by part."""
    payloads: list[BufferPayloads] = field(default_factory=list[BufferPayloads])

    def take(self, rows: OriginRows) -> None:
        """More rows. Raises MisuseError, and takes none of them, when one does not follow."""
        rows.check_order(self.last)
        self.last = int(rows.indexes[-1])
        self.made_of.append(rows.made_of)
        self.payloads.append(rows.payloads)

    def give(self, to_index: int) -> Outputs:
        """Let go of what was made of entries below ``to_index``."""
        made_of, payloads = np.concatenate(self.made_of), BufferPayloads.joined(self.payloads)
        kept = int(np.searchsorted(made_of, to_index))
        outputs = Outputs(self.from_index, to_index, made_of[:kept], payloads[:kept])
        self.made_of, self.payloads = [made_of[kept:]], [payloads[kept:]]
        self.from_index = to_index
        return outputs

    @property
    def is_large(self) -> bool:
        """True when it is worth a transaction: each one takes three exchanges with the store."""
        count, size = sum(map(len, self.payloads)), sum(len(one.body) for one in self.payloads)
        return count >= CHUNK_MESSAGES or size >= CHUNK_BYTES


class TaskWriter:
    """Appends the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.done = TaskWritten(0, 0)
        self._run: _Run | None = None

    def write(self, batches: Iterator[RecordBatch]) -> TaskWritten:
        """Append everything. Raises what ``append_by_identity`` raises, and MisuseError for rows out of order."""
        keep_what_is_loaded()
        runs = runs_of_pages if self.options.rows == "pages" else runs_of
        for batch in batches:
            for rows in runs(batch):
                self._follow(rows.origin, int(rows.indexes[0])).take(rows)
            if self._run and self._run.is_large:
                self._append(self._run, self._run.last)
        if self._run:
            self._append(self._run, self._run.last + 1)
        return self.done

    def _follow(self, origin: Origin, index: int) -> _Run:
        if self._run is None or self._run.origin != origin:
            if self._run:
                self._append(self._run, self._run.last + 1)
            self._run = _Run(origin, index, index)
        return self._run

    def _append(self, run: _Run, to_index: int) -> None:
        """Append what was made of entries below ``to_index``: of the last entry more rows may come."""
        if to_index <= run.from_index:
            return
        outputs = run.give(to_index)
        written = append_by_identity(
            self.options.place, self.options.stream, run.origin, outputs, sink=self.options.sink
        )
        self.done.new += written.new
        self.done.skipped += written.skipped


class StreamWriter(DataSourceStreamArrowWriter):
    """For ``writeStream``. Tasks append by themselves, so commit and abort have nothing to do."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Append the rows of a task."""
        return TaskWriter(self.options).write(iterator)


class BatchWriter(DataSourceArrowWriter):
    """For ``write``; as ``StreamWriter``."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Append the rows of a task."""
        return TaskWriter(self.options).write(iterator)
