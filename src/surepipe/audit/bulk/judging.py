"""The audit in bulk: places in, verdict out, by the statements of ``statements.py`` on whichever engine.

It judges the atoms of ``audit/predicates.py`` over runs of messages, so a billion messages are millions of rows.
It is as honest about edges as ``audit/trace_audit.py``: before everything is at rest a missing message is in
flight, and a trace with missing rows tells nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, TypeAlias, cast

import surepipe.audit.bulk.statements as sql
from surepipe.audit.bulk.engine import TOLD, AuditEngine, Cell, Columns, integers
from surepipe.audit.bulk.logs import (
    Place,
    StoredStream,
    StreamLog,
    StreamRun,
    Traces,
    channel_of,
    pooled,
)
from surepipe.audit.bulk.statements import SPANS_MAX, NumberedChannels, SentLog, Span, numbered
from surepipe.audit.bulk.verdict import AuditMoment, BulkAudit, ChannelFigures, Example
from surepipe.audit.in_work import KilledWork, LateRows, left_behind
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.readers import RowsByReader, StreamReaders
from surepipe.audit.settings import ATOMS, EndClaims, Settings, facts_of
from surepipe.audit.trace import FORMAT, Kind, Row
from surepipe.audit.trace_audit import (
    BY_CONFIRM,
    IN_WORK,
    STEPS_MISSING,
    Deliveries,
    LetGo,
    MissingNumbers,
    Rest,
    epoch_of,
    is_sender,
    let_go_to,
    untold_text,
)
from surepipe.core.claims import Atom
from surepipe.errors import ConfigurationError

# What traces say of themselves: who ran, what was promised, how it ended, and where rows are missing.


BROKEN_MAX = 10
_BEHIND_ALL: tuple[int, int] = (2**62, 0)
"""Epoch and seq, in place of the first message of a channel that has none in a stream."""


@dataclass
class TraceFacts:
    """The rows that speak of runs and nodes, in order of time. Streams have none."""

    rows: list[Row] = field(default_factory=list[Row])
    broken: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    rest: Rest = field(default_factory=Rest)
    ends: EndClaims = field(default_factory=EndClaims)
    has_letters: bool = False
    stored: set[str] = field(default_factory=set[str])
    """Pipes whose confirms tell that a store has a message, not that it came out."""

    @property
    def is_real(self) -> bool:
        """True for traces of real runs."""
        return self.settings.real

    def promised(
        self, channel: str, sender: str, *, has_dead: bool, let_go: LetGo | None = None
    ) -> frozenset[Atom]:
        """The atoms that the channel's own claim holds it to, under the faults that the traces tell of."""
        told = self.ends.on(channel)
        claim = self.settings.claim_on(channel) if told is None else told
        held = self.rest.promised(
            claim, self.settings.faults, channel, sender, has_dead=has_dead, let_go=let_go
        )
        return frozenset(atom for atom in Atom if ATOMS[atom] in held)


def facts_from(rows: Sequence[Row], lives: Sequence[Sequence[Cell]], where: str) -> TraceFacts:
    """Read them. Raises ConfigurationError where this is no trace of surepipe, or one of a newer format."""
    runs = [row for row in rows if row.kind == Kind.RUN]
    if not runs:
        raise ConfigurationError(f"there is no row 'run' in {where}: this is no trace of surepipe")
    for row in runs:
        told = facts_of(row).get("format", FORMAT)
        if not isinstance(told, int) or told > FORMAT:
            raise ConfigurationError(
                f"{where} has trace format {told} and this version of surepipe reads {FORMAT}: update surepipe"
            )
    settings = Settings.read(runs[0])
    if len(runs) > 1 and not all(Settings.read(row).real for row in runs):
        raise ConfigurationError(
            f"these are {len(runs)} runs, and simulated ones are traces of their own: audit one at a time"
        )
    found = TraceFacts(list(rows), settings=settings, has_letters=any(life[-1] for life in lives))
    found.broken = _broken(lives if settings.real else _as_one(lives))
    for row in rows:
        found.rest.see(row)
        if row.kind == Kind.START and row.pipe and "claim" in facts_of(row):
            found.ends.see(row)
            if facts_of(row).get("confirms") == "stored":
                found.stored.add(row.pipe.partition("@")[0])
    return found


def _broken(lives: Iterable[Sequence[Cell]]) -> tuple[str, ...]:
    found: list[str] = []
    for _, node, *numbers in lives:
        life, count, lowest, highest, total, _ = integers(numbers)
        if (lowest, count, total) != (0, highest + 1, highest * (highest + 1) // 2):
            found.append(
                f"{node} (life {life}) tells {count} of its steps 0 to {highest}: rows are missing"
            )
    return tuple(found[:BROKEN_MAX])


def _as_one(lives: Iterable[Sequence[Cell]]) -> list[Sequence[Cell]]:
    """In a simulation all nodes share one count of steps."""
    numbers = [integers(life[3:]) for life in lives]
    columns = list(zip(*numbers, strict=True))
    summed = (sum(columns[0]), min(columns[1]), max(columns[2]), sum(columns[3]), 0)
    return [("", "the run", 1, *summed)]


def row_from(cells: Sequence[Cell], names: Sequence[str]) -> Row:
    """A row of the columns that a statement gave."""
    told: Mapping[str, Cell] = dict(zip(names, cells, strict=True))
    return Row(
        run=str(told["run"]),
        node=str(told["node"]),
        incarnation=int(told["incarnation"] or 0),
        step=int(told["step"] or 0),
        cause="",
        time_us=int(told["time_us"] or 0),
        kind=str(told["kind"]),
        pipe=str(told["pipe"]),
        epoch=int(told["epoch"] or 0),
        seq=int(told["seq"] or 0),
        count=int(told["count"] or 0),
        detail=str(told.get("detail") or ""),
    )


Match: TypeAlias = Literal["identity", "payload"]
EXAMPLES = 10
"""Of each kind and channel."""
CHANNELS_WITH_EXAMPLES = 50
ALONE = (
    "there is only this stream, and what was delivered of it is not told: name the trace of its reader, or the "
    "stream that it was delivered into, behind it"
)
MOMENTS = 60
LATE_MAX = 1_000
"""More rows than this are not told late, they are repeats: as many as one process can have in work."""
_FACT_NAMES = (
    "run",
    "node",
    "incarnation",
    "step",
    "time_us",
    "kind",
    "pipe",
    "epoch",
    "seq",
    "count",
    "detail",
)
_ACCEPTED: Columns = (("channel", str), ("epoch", int), ("low", int), ("high", int), ("node", str))
_IN_STREAM: Columns = (*_ACCEPTED, ("place", int))
_CAME_OUT: Columns = (
    *(("channel", str), ("epoch", int), ("low", int), ("high", int)),
    *(("time_us", int), ("life", int), ("step", int), ("role", str)),
)
_SPANS: Columns = (
    *(("channel", str), ("number", int), ("epoch", int)),
    *(("low", int), ("high", int), ("base", int)),
)
_PLACED: Columns = tuple((name, str) for name in ("run", "node", "pipe", "own_pipe", "own_node"))
_LIVES: Columns = (("run", str), ("node", str), ("incarnation", int))
_RANGES: Columns = (("number", int), ("low", int), ("high", int))


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be judged.

    ``at_rest``: True says that nothing more will come, so what is missing is lost; None leaves it to the traces
    (streams never tell). ``expect``: the atoms that every channel is held to, in place of what traces claim;
    where there is no claim, all four. ``match``: how two streams are compared. ``timeline``: also when it
    happened. ``more``: streams beside the one that was sent, where traces tell what was delivered.
    """

    sent: Place
    delivered: Place
    at_rest: bool | None = None
    expect: frozenset[Atom] | None = None
    match: Match = "payload"
    timeline: bool = False
    more: tuple[StoredStream, ...] = ()


def judge(engine: AuditEngine, question: Question) -> BulkAudit:
    """The verdict. Raises ConfigurationError for what can't be read, StoreUnavailable for a store that is away."""
    return _Judgement(engine, question).verdict()


@dataclass
class _Count:
    """One channel while it is counted."""

    came: int = 0
    numbered: int = 0
    highest: int = 0
    letters: int = 0
    parked: int = 0
    given: int = 0
    below: int = 0
    across: int = 0
    """Of a stream: what came out behind a later message of another producer."""
    gaps: int = 0
    passed_over: int = 0
    widest: int = 0
    repeated: int = 0
    late: int = 0
    missing: int = 0
    last_missing: int = 0
    reached: int = 0
    """The highest position that was handed over, where something behind it is missing."""
    let_go: int = 0
    """The highest position that was gone from the stream when the reader began."""

    @property
    def is_let_go(self) -> bool:
        """True when all that is missing was."""
        return 0 < self.last_missing <= self.let_go


@dataclass
class _Judgement:
    engine: AuditEngine
    question: Question
    torn: int = 0
    told: Sequence[Row] = ()
    """The rows that speak of runs and nodes, as they were told."""
    facts: TraceFacts = field(default_factory=TraceFacts)
    readers: StreamReaders = field(default_factory=StreamReaders)
    log: SentLog = field(default_factory=SentLog)
    by_traces: set[str] = field(default_factory=set[str])
    """Beside a stream: the channels of other pipes, of which traces say what was sent, too."""
    by_confirm: Counter[str] = field(default_factory=Counter[str])
    doubtful: Counter[str] = field(default_factory=Counter[str])
    numbers: MissingNumbers = field(default_factory=MissingNumbers)
    deliveries: Deliveries = field(default_factory=Deliveries)
    latest: dict[str, int] = field(default_factory=dict[str, int])
    """When each channel accepted its last message, by a trace."""
    has_trimmed_end: bool = False
    has_trimmed_start: bool = False
    senders: dict[str, str] = field(default_factory=dict[str, str])
    pairs: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    ends: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """The last number of each channel and epoch."""
    came: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    """Of each channel: how many came out, since when, until when."""
    across: dict[int, Example] = field(default_factory=dict[int, Example])
    """Of channels of a stream, by number: what came out behind a later message of another one."""
    has_places: bool = False
    """True when a stream tells the index of what was sent."""
    out: str = ""
    """The statement of what came out, once late rows are in their places."""
    _behind: dict[str, int] | None = None

    def verdict(self) -> BulkAudit:
        self._read()
        known = self._number()
        counts = self._count(known)
        if self._may_have_late_rows(counts) and self._put_late_rows_in_place():
            counts = self._count(known)
        if self._may_miss_rows(counts) and self._add_what_was_in_work():
            counts = self._count(known)
        self._look_how_far_they_came(known, counts)
        self._look_across(known, counts)
        examples = self._examples(known, counts)
        channels = tuple(
            self._channel(name, known.sent[at], counts[at], tuple(examples.get(at, ())))
            for at, name in enumerate(known.channels)
        )
        return BulkAudit(
            channels=channels,
            engine=self.engine.name,
            sent=", ".join(map(str, (self.question.sent, *self.question.more))),
            delivered=str(self.question.delivered),
            broken=self.facts.broken,
            torn=self.torn,
            at_rest=all(
                self._is_at_rest(name, counts[at]) for at, name in enumerate(known.channels)
            ),
            moments=self._moments() if self.question.timeline else (),
            facts=tuple(self.told),
        )

    @property
    def _is_traced(self) -> bool:
        return isinstance(self.question.delivered, Traces) and self.facts.is_real

    @property
    def _is_alone(self) -> bool:
        """One stream is all there is. It does not tell what was delivered, as a trace does."""
        sent = self.question.sent
        return isinstance(sent, StoredStream) and sent == self.question.delivered

    def _may_miss_rows(self, counts: Sequence[_Count]) -> bool:
        return self._is_traced and any(one.missing for one in counts)

    def _may_have_late_rows(self, counts: Sequence[_Count]) -> bool:
        return self._is_traced and any(one.below or one.gaps for one in counts)

    def _passed(self) -> list[Row]:
        return [row for row in self.facts.rows if row.kind == Kind.PASSED]

    # What was sent and what came out, as tables.

    def _read(self) -> None:
        question = self.question
        files = pooled((question.sent, question.delivered))
        if files:
            self.torn = self.engine.traces(files)
            self._read_facts(", ".join(map(str, files[:3])))
        else:
            self.engine.put("told", TOLD, ())
        sent = StreamLog(question.sent) if isinstance(question.sent, StoredStream) else None
        delivered = (
            StreamLog(question.delivered) if isinstance(question.delivered, StoredStream) else None
        )
        streams = [sent, *map(StreamLog, question.more)] if sent else []
        self.has_trimmed_start = any(stream.is_trimmed for stream in streams)
        self.has_trimmed_end = bool(delivered and delivered.is_trimmed)
        if sent and self._is_alone:
            self.engine.put("accepted", _ACCEPTED, map(_in_stream, sent.runs()))
            self._take_ends()
            self.engine.put("came_out", _CAME_OUT, ())
            return
        if sent and delivered and question.match == "payload":
            self._match_payloads(sent, delivered)
            return
        if streams:
            self._take_streams_and_pipes(streams)
        else:
            self.engine.view("accepted", sql.ACCEPTED)
        self._take_ends()
        if delivered:
            self.engine.put("came_out", _CAME_OUT, self._came_out_of(delivered))
        else:
            self.engine.view("came_out", self._came_out_by())

    def _take_streams_and_pipes(self, streams: Sequence[StreamLog]) -> None:
        """What was sent is in the streams; of other pipes with both ends in the traces, they say it."""
        of_stream = {_base(stream.place.stream) for stream in streams}
        of_stream |= {
            _base(one) for own in of_stream for one, _ in self.readers.places("", "", own)
        }
        received = {
            _base(row.pipe)
            for row in self.facts.rows
            if row.kind == Kind.START and not is_sender(row.node)
        }
        names = [str(name) for (name,) in self.engine.rows(sql.SENT_BY_TRACES)]
        self.by_traces = {name for name in names if _base(name) in received - of_stream}
        # Of what the stream has let go the traces tell, if they are of its senders.
        firsts = dict.fromkeys((name for name in names if _base(name) in of_stream), _BEHIND_ALL)
        rows = chain.from_iterable(self._accepted_in(stream, firsts) for stream in streams)
        self.engine.put("accepted_in_stream", _IN_STREAM, rows)
        self.has_places = True
        self.engine.put("sent_by_traces", (("channel", str),), ((n,) for n in self.by_traces))
        accepted = sql.ACCEPTED_IN_STREAM_AND_PIPES
        if self.has_trimmed_start:
            began = [(name, *first) for name, first in firsts.items()]
            self.engine.put("first_in_stream", _ACCEPTED[:3], began)
            accepted += f"UNION ALL {sql.ACCEPTED_BEFORE_STREAM}"
        self.engine.view("accepted", accepted)

    def _accepted_in(
        self, sent: StreamLog, firsts: dict[str, tuple[int, int]]
    ) -> Iterator[tuple[Cell, ...]]:
        """The rows of a stream, noting the first message that it has of each of these channels."""
        for run in sent.runs():
            for channel, _ in self.readers.places("", "", run.channel):
                if channel in firsts:
                    first = (run.entries.epoch, run.entries.first)
                    firsts[channel] = min(firsts[channel], first)
                entries = run.entries
                yield (channel, entries.epoch, entries.first, run.last, "", entries.index)

    def _came_out_of(self, delivered: StreamLog) -> Iterator[tuple[Cell, ...]]:
        """By identity the two streams are one: what a producer has in the second belongs to it in the first."""
        sent = self.question.sent
        stream = sent.stream if isinstance(sent, StoredStream) else delivered.place.stream
        for run in delivered.runs():
            partition = run.stream.removeprefix(delivered.place.stream)
            yield _came_out(run, channel_of(stream + partition, run.entries.producer))

    def _read_facts(self, where: str) -> None:
        self.told = [row_from(cells, _FACT_NAMES) for cells in self.engine.rows(sql.FACTS)]
        lives, rows = self.engine.rows(sql.LIVES), self.told
        for row in rows if isinstance(self.question.delivered, Traces) else ():
            self.readers.see(row)
        if not self.readers.are_plain:
            rows = list(RowsByReader(rows, self.readers))
            self._tell_by_reader()
        self.facts = facts_from(rows, lives, where)
        if self.facts.rest.followed:
            self.engine.put("followed", _LIVES, sorted(self.facts.rest.followed))
            told = [_from_low_to_high(cells) for cells in self.engine.rows(sql.HANDED_TO_LIVES)]
            self.facts.rest.came_again = left_behind(told, self.facts.rest.followed)

    def _tell_by_reader(self) -> None:
        """Every row stands in the channel of each reader whom it concerns."""
        speakers = cast("list[tuple[str, str, str]]", self.engine.rows(sql.SPEAKERS))
        placed = [(*one, *place) for one in speakers for place in self.readers.places(*one)]
        self.engine.put("placed_by_reader", _PLACED, placed)
        self.engine.keep("told_by_reader", sql.TOLD_BY_READER)
        self.engine.view("told", "SELECT * FROM told_by_reader")
        for name, *cells in self.engine.rows(sql.FIRST_DELIVERED):
            pipe, (epoch, seq) = str(name), integers(cells)
            self.readers.came(pipe, (epoch, seq))

    def _before_they_began(self) -> list[Row]:
        """What may have been in a stream before a reader began that does not read all of it: it is taken out of
        what was accepted, and unknown."""
        found: list[Row] = []
        for pipe, epochs in self.log.accepted.items():
            first = self.readers.first.get(pipe)
            for epoch, ranges in epochs.items() if self.readers.begins_at(pipe) else ():
                for low, high in list(ranges):
                    end = high if first is None or epoch < first[0] else min(high, first[1] - 1)
                    if low <= end and (first is None or epoch <= first[0]):
                        columns = (pipe, epoch, low, end - low + 1)
                        found.append(Row("", "", 0, 0, "", 0, Kind.UNKNOWN.value, *columns))
                        ranges.discard(low, end)
        return found

    def _came_out_by(self) -> str:
        return sql.SETTLED_AND_DEAD if self.facts.has_letters else sql.SETTLED

    def _match_payloads(self, sent: StreamLog, delivered: StreamLog) -> None:
        columns: Columns = (("channel", str), ("place", int), ("digest", str))
        self.engine.put("sent_payloads", columns, _payloads(sent.runs()))
        self.engine.put("out_payloads", columns, _payloads(delivered.runs()))
        self.engine.keep("accepted", sql.ACCEPTED_PAYLOADS)
        self.engine.keep("came_out", sql.MATCHED_PAYLOADS)
        self._take_ends()

    def _take_ends(self) -> None:
        """Who sends on each channel, and how far each epoch goes."""
        for channel, epoch, node, high in self.engine.rows(sql.ENDS):
            key = (str(channel), int(epoch or 0))
            self.ends[key] = max(self.ends.get(key, 0), int(high or 0))
            self.senders[key[0]] = str(node)
            self.pairs.add((key[0], str(node)))
        self.engine.put("senders", (("channel", str), ("node", str)), sorted(self.pairs))

    # Positions.

    def _number(self) -> NumberedChannels:
        breaks = cast("list[tuple[str, int, int, int | None]]", self.engine.rows(sql.STARTS))
        if any(before is not None and low <= before for _, _, low, before in breaks):
            breaks = cast("list[tuple[str, int, int, int | None]]", self.engine.rows(sql.BREAKS))
        self.log.take_breaks(breaks, self.ends)
        self._look_for_holes()
        self.log.take_facts([*self.facts.rows, *self._before_they_began()])
        if self.log.unknown:
            self._settle_unknown()
        self._look_at_what_came()
        known = numbered(self.log, self.came)
        self.engine.put("spans", _SPANS, map(_span, known.spans))
        if len(known.spans) > SPANS_MAX:
            names = [(name, at) for at, name in enumerate(known.channels)]
            self.engine.put("channels", (("channel", str), ("number", int)), names)
        return known

    def _look_for_holes(self) -> None:
        if not self.facts.rows:
            return
        self._look_at_keys()
        if not (self.by_traces or isinstance(self.question.sent, Traces)):
            return
        for channel, epochs in self.log.accepted.items():
            for epoch, ranges in epochs.items():
                for low, high in ranges:
                    self.numbers.tell(channel, epoch, low, high)
        for row in self.facts.rows:
            self.numbers.see(row)
        for name, cell, kind, *cells in self.engine.rows(sql.HANDED):
            epoch, low, high = integers((cell, *cells))
            found = self.deliveries.handed if kind == Kind.DELIVERED else self.deliveries.came
            epoch_of(found, str(name), epoch).add(low, high)
        for name, *cells in self.engine.rows(sql.FRESH):
            pipe, (epoch, first, time_us) = str(name), integers(cells)
            self.numbers.give(pipe, epoch, first)
            self.latest[pipe] = max(self.latest.get(pipe, 0), time_us)

    def _look_at_keys(self) -> None:
        """Only traces know them, whatever tells what was sent."""
        keyed = [row_from(cells, _FACT_NAMES) for cells in self.engine.rows(sql.KEYED)]
        handed = [row for row in keyed if row.kind == Kind.DELIVERED]
        for name, *cells in self.engine.rows(sql.INDEXED) if keyed and self.has_places else ():
            epoch, low, high, place = integers(cells)
            self.deliveries.places.setdefault((str(name), epoch), []).append((low, high, place))
        came = _by_time([*self._passed(), *keyed[len(handed) :]])
        for row in (*handed, *LateRows(came).in_order(came)):
            self.deliveries.see(row)

    def _look_at_what_came(self) -> None:
        for channel, *numbers in self.engine.rows(sql.CAME):
            count, since, until = integers(numbers)
            self.came[str(channel)] = (count, since, until)

    def _numbered_by(self, known: NumberedChannels) -> str:
        if len(known.spans) <= SPANS_MAX:
            return sql.NUMBERED
        return sql.NUMBERED_ONE_BY_ONE.format(each=self.engine.each("o.low", "o.high"))

    def _settle_unknown(self) -> None:
        columns: Columns = (("channel", str), ("epoch", int), ("low", int), ("high", int))
        rows = [
            (channel, epoch, low, high)
            for channel, epochs in self.log.unknown.items()
            for epoch, ranges in epochs.items()
            for low, high in ranges
        ]
        self.engine.put("unknown", columns, rows)
        found = cast("list[tuple[str, int, int, int]]", self.engine.rows(sql.UNCERTAIN))
        self.log.came_out_after_all(found)

    # Counting.

    def _count(self, known: NumberedChannels) -> list[_Count]:
        counts = [_Count(came=self.came.get(name, (0,))[0]) for name in known.channels]
        self.engine.view("numbered", self._numbered_by(known))
        self.engine.view("placed", sql.PLACED)
        self.engine.keep("trouble", sql.TROUBLE)
        self._fill(counts, sql.TOTALS, "numbered", "highest", "letters", "given")
        self._fill(counts, sql.DISORDER, "below", "gaps", "passed_over", "widest")
        tails = [
            (at, one.highest + 1, known.sent[at])
            for at, one in enumerate(counts)
            if one.highest < known.sent[at]
        ]
        self.engine.put("tails", _RANGES, tails)
        has_given = any(one.given for one in counts)
        self.engine.keep("pieces", sql.PIECES if has_given else sql.PIECES_WITHOUT_GIVEN)
        self._fill(counts, sql.SWEPT, "repeated", "late", "missing", "last_missing")
        if any(one.letters for one in counts):
            self._fill(counts, sql.LETTERS, "letters")
            parked = {
                str(name): integers([count])[0] for name, count in self.engine.rows(sql.PARKED)
            }
            for name, one in zip(known.channels, counts, strict=True):
                one.parked = min(one.letters, parked.get(name, 0))
        return counts

    def _fill(self, counts: list[_Count], statement: str, *names: str) -> None:
        for at, *numbers in self.engine.rows(statement):
            for name, value in zip(names, integers(numbers), strict=True):
                setattr(counts[int(at or 0)], name, value)

    def _put_late_rows_in_place(self) -> bool:
        """A process that stood still behind its commit tells of it when its successor has gone on: such a row is
        counted where that one said that the stored position is behind it."""
        passed = [
            (row.pipe, row.epoch, row.seq if row.count else 0, max(row.seq, row.last), row.time_us)
            for row in self._passed()
        ]
        if not passed:
            return False
        self.engine.put("passed", (*_CAME_OUT[:4], ("time_us", int)), passed)
        covered = self.engine.rows(sql.COVERED.format(most=LATE_MAX + 1))
        if not covered or len(covered) > LATE_MAX:
            return False
        self.engine.put("covered", _CAME_OUT, covered)
        told = map(_came_out_row, self.engine.rows(sql.TOLD_OF_COVERED))
        late = LateRows(_by_time([*self._passed(), *told])).moved
        self.engine.put("late", _CAME_OUT, [_cells_of(row, row.time_us) for row, _ in late])
        self.engine.put(
            "late_in_place", _CAME_OUT, [_cells_of(row, at.time_us, -1) for row, at in late]
        )
        self.out = sql.WITHOUT_LATE.format(came_out=self._came_out_by())
        self.engine.view("came_out", self.out)
        return bool(late)

    def _add_what_was_in_work(self) -> bool:
        """What a killed receiver had stored and its sender was told of, but no row tells: as if there were one."""
        starts = [row for row in self.facts.rows if row.kind in (Kind.START, Kind.PASSED)]
        told = [_from_low_to_high(cells) for cells in self.engine.rows(sql.IN_WORK)]
        in_work = KilledWork(_by_time([*starts, *told]))
        self.by_confirm.update(in_work.count)
        self.doubtful.update(in_work.doubtful)
        found = [row for start in starts for row in in_work.before(start)]
        if not found:
            return False
        self.engine.put("by_confirm", _CAME_OUT, map(_settled, found))
        self.engine.view(
            "came_out", f"{self.out or self._came_out_by()} UNION ALL SELECT * FROM by_confirm"
        )
        self._look_at_what_came()
        return True

    def _look_how_far_they_came(self, known: NumberedChannels, counts: Sequence[_Count]) -> None:
        """The highest position that was handed over, of channels in which something is missing."""
        if not any(one.missing for one in counts):
            return
        numbers = {name: at for at, name in enumerate(known.channels)}
        for name, *cells in self.engine.rows(sql.REACHED):
            at, (epoch, seq) = numbers.get(str(name)), integers(cells)
            if at is not None and counts[at].missing:
                counts[at].reached = max(counts[at].reached, known.position(at, epoch, seq))
        for name, gone in self.readers.let_go.items():
            if (at := numbers.get(name)) is not None:
                counts[at].let_go = known.position(at, *gone)

    def _look_across(self, known: NumberedChannels, counts: Sequence[_Count]) -> None:
        """The order of a stream is one over all of its producers, and their readers keep to it."""
        readers = [name.partition("@")[0] for name in known.channels]
        if not self.has_places or len(set(readers)) == len(readers):
            return  # a producer that is alone is judged by its positions
        numbers = {name: at for at, name in enumerate(known.channels)}
        for name, *cells in self.engine.rows(sql.ACROSS):
            if (at := numbers.get(str(name))) is not None and not counts[at].below:
                counts[at].across, epoch, seq = integers(cells)
                place = known.position(at, epoch, seq)
                self.across[at] = Example("late", place, place, epoch, seq)

    # What is said.

    def _examples(
        self, known: NumberedChannels, counts: Sequence[_Count]
    ) -> dict[int, list[Example]]:
        """Of the worst channels: the widest losses and gaps, the first repeats and late ones."""
        bad = [
            (one.missing, one.repeated, one.late + one.gaps, at)
            for at, one in enumerate(counts)
            if one.missing or one.repeated or one.late or one.gaps
        ]
        worst = [str(at) for *_, at in sorted(bad, reverse=True)[:CHANNELS_WITH_EXAMPLES]]
        found = {at: [one] for at, one in self.across.items()}
        if not worst:
            return found
        statement = sql.EXAMPLES.format(numbers=", ".join(worst), most=EXAMPLES)
        for what, *numbers in self.engine.rows(statement):
            at, low, high, time_us = integers(numbers)
            epoch, seq = known.identity(at, low)
            example = Example(str(what), low, high, epoch, seq, time_us)
            found.setdefault(at, []).append(example)
        return found

    def _channel(
        self, name: str, sent: int, count: _Count, examples: tuple[Example, ...]
    ) -> ChannelFigures:
        is_at_rest = self._is_at_rest(name, count)
        strangers = count.came - count.numbered
        hole = self._hole(name)
        untold = strangers if hole else self._untold(name, strangers) if strangers else 0
        return ChannelFigures(
            channel=name,
            sent=sent,
            settled=sent - count.missing - count.letters,
            dead=count.letters - count.parked,
            parked=count.parked,
            waiting=0 if is_at_rest else count.missing,
            lost=count.missing if is_at_rest else 0,
            unknown=self.log.open_submits(name),
            repeated=count.repeated,
            out_of_order=count.late + count.across,
            gaps=count.gaps,
            passed_over=count.passed_over,
            widest=count.widest,
            foreign=strangers - untold,
            untold=untold,
            outcomes=self._outcomes(name, sent, count, untold, is_at_rest=is_at_rest),
            promised=self._promised(name, count),
            why=(STEPS_MISSING if self.facts.broken else hole)
            or self._why(name, sent, count, untold, is_at_rest=is_at_rest),
            examples=examples,
            is_chosen=self.question.expect is not None,
            late_in_key=self.deliveries.late[name] if name in self.deliveries.keyed else None,
        )

    def _untold(self, channel: str, strangers: int) -> int:
        """How many of those that were never accepted may have been, where the sent log can't tell of it."""
        if self.has_trimmed_start and channel not in self.by_traces:
            return strangers
        is_cut_short = self.facts.rest.is_cut_short(self.senders.get(channel, ""))
        behind = self._behind_the_end().get(channel, 0) if self.facts.rows and is_cut_short else 0
        return min(strangers, behind + self._unnumbered[channel])

    @cached_property
    def _unnumbered(self) -> Counter[str]:
        """How many submits of each channel have no known outcome, and no number."""
        found = Counter[str]()
        for row in self.facts.rows:
            if row.kind == Kind.UNKNOWN and not row.epoch:
                found[row.pipe] += max(1, row.count)
        return found

    def _behind_the_end(self) -> dict[str, int]:
        if self._behind is None:
            columns: Columns = (("channel", str), ("epoch", int), ("high", int))
            self.engine.put("ends", columns, [(*key, high) for key, high in self.ends.items()])
            self._behind = {str(c): int(n or 0) for c, n in self.engine.rows(sql.BEYOND)}
        return self._behind

    def _is_at_rest(self, channel: str, count: _Count) -> bool:
        if self._is_alone:
            return False
        if self.question.at_rest is not None:
            return self.question.at_rest
        if not count.missing:
            return self.facts.rest.of(channel)
        is_behind = count.last_missing > count.reached
        return self.facts.rest.of(channel, self.latest.get(channel, 0), is_behind=is_behind)

    def _promised(self, channel: str, count: _Count) -> frozenset[Atom]:
        if self.question.expect is not None:
            return self.question.expect
        if not self.facts.rows:
            return frozenset(Atom)
        return self.facts.promised(
            channel,
            self.senders.get(channel, ""),
            has_dead=count.letters > 0,
            let_go=let_go_to(self.readers, channel) if count.is_let_go else None,
        )

    def _outcomes(
        self, name: str, sent: int, count: _Count, untold: int, *, is_at_rest: bool
    ) -> Mapping[Atom, PropertyOutcome]:
        if self.facts.broken or self._hole(name) or self._is_alone:
            return dict.fromkeys(Atom, PropertyOutcome.UNDECIDED)
        counted = {
            Atom.NO_LOSS: count.missing,
            Atom.NO_DUPLICATE: count.repeated,
            Atom.MONOTONIC: count.below + count.across,
            Atom.GAP_FREE: count.gaps,
        }
        found = {
            atom: PropertyOutcome.VIOLATED if times else PropertyOutcome.HELD
            for atom, times in counted.items()
        }
        is_unsent = untold > 0 and not sent
        is_before = self._why_unknown(name, count)
        if not is_at_rest or is_unsent or is_before or (self.has_trimmed_end and count.missing):
            found[Atom.NO_LOSS] = PropertyOutcome.UNDECIDED
        if self._is_doubtful(name, count):
            found[Atom.NO_LOSS] = PropertyOutcome.UNDECIDED
            if found[Atom.GAP_FREE] is PropertyOutcome.VIOLATED:  # what was passed over is the same
                found[Atom.GAP_FREE] = PropertyOutcome.UNDECIDED
        if untold:  # nobody knows what these are, so nobody knows whether they are repeats
            for atom in (Atom.NO_DUPLICATE, Atom.MONOTONIC, Atom.GAP_FREE):
                if found[atom] is PropertyOutcome.HELD:
                    found[atom] = PropertyOutcome.UNDECIDED
        return found

    def _why_unknown(self, name: str, count: _Count) -> str:
        if count.missing:
            return self.readers.why_unmet(name, count.missing)
        return self.readers.why_unknown(name, self.log.open_submits(name))

    def _hole(self, name: str) -> str:
        """What the traces lack of a channel; of a stream, they need not tell all."""
        if isinstance(self.question.sent, StoredStream) and name not in self.by_traces:
            return ""
        return (
            self.numbers.missing(name)
            or self.deliveries.missing(name)
            or self.facts.rest.lacks_receivers(name)
        )

    def _is_doubtful(self, name: str, count: _Count) -> bool:
        """All that is missing was in work when a process was killed, and a confirm tells nothing of it."""
        is_stored = name.partition("@")[0] in self.facts.stored
        return 0 < count.missing <= self.doubtful[name] and is_stored

    def _why(self, channel: str, sent: int, count: _Count, untold: int, *, is_at_rest: bool) -> str:
        told: list[str] = []
        if self._is_alone:
            return ALONE
        if not is_at_rest:
            told.append(f"more may come: {count.missing} did not come out yet")
        if self.has_trimmed_end and count.missing:
            told.append("the beginning of what was delivered is trimmed, so loss can't be told")
        if is_at_rest and (why := self._why_unknown(channel, count)):
            told.append(why)
        if is_at_rest and count.is_let_go:
            told.append(self.readers.why_let_go(channel, count.missing))
        if untold and self.facts.rows:
            told.append(untold_text(untold, sent))
        elif untold:
            told.append(f"{untold} came out that the sent log may have held")
        if self._is_doubtful(channel, count):
            told.append(IN_WORK.format(count.missing))
        if self.by_confirm[channel]:
            told.append(BY_CONFIRM.format(self.by_confirm[channel]))
        return "; ".join(told)

    def _moments(self) -> tuple[AuditMoment, ...]:
        spans = [(since, until) for count, since, until in self.came.values() if count]
        if not spans:
            return ()
        since = min(low for low, _ in spans)
        width = max(1, -(-(max(high for _, high in spans) - since + 1) // MOMENTS))
        came = self.engine.rows(sql.TIMELINE.format(since=since, width=width))
        wrong = self.engine.rows(sql.TROUBLE_IN_TIME.format(since=since, width=width))
        told = {at: (passed, again) for at, passed, again in map(integers, wrong)}
        return tuple(
            AuditMoment(since + at * width, since + (at + 1) * width, count, *told.get(at, (0, 0)))
            for at, count in map(integers, came)
        )


# Rows for tables.


def _base(pipe: str) -> str:
    """The name of a pipe, or of a stream, without its producer and its partition."""
    return pipe.partition("@")[0].partition("#")[0]


def _in_stream(run: StreamRun) -> tuple[Cell, ...]:
    low = run.entries.index
    return (run.stream, 0, low, low + len(run.entries.payloads) - 1, "")


def _came_out(run: StreamRun, channel: str) -> tuple[Cell, ...]:
    place = run.entries.index
    return (channel, run.entries.epoch, run.entries.first, run.last, place, 0, place, "settled")


def _payloads(runs: Iterable[StreamRun]) -> Iterator[tuple[Cell, ...]]:
    for run in runs:
        for index, digest in run.digests():
            yield (run.stream, index, digest)


def _span(span: Span) -> tuple[Cell, ...]:
    return (span.channel, span.number, span.epoch, span.low, span.high, span.base)


def _by_time(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.time_us)


def _came_out_row(cells: Sequence[Cell]) -> Row:
    """As a row of the trace; nodes, which the table does not know, are told apart by the time."""
    channel, *numbers, role = cells
    epoch, low, high, time_us, life, step = integers(numbers)
    kind = Kind.SETTLED if role == "settled" else Kind.DEAD
    return Row(
        *("", str(time_us), life, step, "", time_us, kind.value, str(channel)),
        *(epoch, low, high - low + 1),
    )


def _cells_of(row: Row, time_us: int, step: int | None = None) -> tuple[Cell, ...]:
    """As ``_came_out_row`` took it, or behind nothing of its new time."""
    role = "settled" if row.kind == Kind.SETTLED else "dead"
    life, at = (row.incarnation, row.step) if step is None else (0, step)
    return (row.pipe, row.epoch, row.seq, row.last, time_us, life, at, role)


def _settled(row: Row) -> tuple[Cell, ...]:
    # Just before the start of the life that did not see them again.
    return (row.pipe, row.epoch, row.seq, row.last, row.time_us, row.incarnation, -1, "settled")


def _from_low_to_high(cells: Sequence[Cell]) -> Row:
    *columns, high = cells
    seq, last = integers((columns[-1], high))
    return row_from((*columns, last - seq + 1, ""), _FACT_NAMES)
