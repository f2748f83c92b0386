"""What the traces of a plan account for: every pipe, from its sources' positions to its sinks' files.

The audits of ``simulation.audit`` and ``auditing`` judge what happened within each pipe. Between two parts
messages have no identity in common, so they are counted there: what a part gave, by the rows ``made`` where stages
left messages out or made more of them, against what the next one has. Both audits give the same numbers to this.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import cast

from surepipe.audit.settings import facts_of, mapping, number
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import PARTY, Judged, Rest, Standing
from surepipe.core.claims import Atom, Fault
from surepipe.core.ranges import RangeSet
from surepipe.core.store_requests import Position, Store, StreamInfo
from surepipe.errors import SurepipeError
from surepipe.pipelines.assembly import FilePlace
from surepipe.pipelines.assessing import assess
from surepipe.pipelines.engine_limits import home_of
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import IbcRoutePart, PipePart
from surepipe.pipelines.models.sources import (
    AnySource,
    CsvSource,
    FileSource,
    JsonlSource,
    RedisStreamSource,
    SourceBase,
    StreamSource,
    replays,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    SinkBase,
    StagePart,
    StreamSink,
)
from surepipe.pipelines.models.stores import MemoryStorePart, SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.feeding import FeedPlace
from surepipe.pipelines.run.pipes import pipe_name
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.sources.files import CsvFile, ParquetFile, files_beside
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import stream_layer
from surepipe.storage.positions import READER

LINES_MAX = 20_000_000
"""Lines of a sink whose contents are compared; beyond, they are counted only."""


@dataclass(frozen=True, slots=True)
class ChannelNumbers:
    """One channel of a trace: how many messages were accepted, settled, ended as dead letters."""

    channel: str
    accepted: int
    settled: int
    dead: int
    is_whole: bool = True
    """False: rows of it are missing, so these numbers are none."""


@dataclass
class Account:
    """The result of an account: each promise between two parts, and what could not be counted."""

    judged: list[Judged] = field(default_factory=list[Judged])
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Amount:
    """So many messages, or why nobody knows. ``is_exact``: none of them can be a repeat of another.

    ``if_other``: why another number than this proves nothing. ``again``: dead letters, which a replay may have
    sent there since; it writes no row."""

    count: int = 0
    why: str = ""
    is_exact: bool = True
    if_other: str = ""
    again: int = 0


def _has_own_numbers(route: IbcRoutePart) -> bool:
    """Whether the receiving party may number messages otherwise than the one that sends."""
    return route.dead_letter is not None or route.order == "unordered"


def account(
    plan: Plan,
    numbers: Sequence[ChannelNumbers],
    rows: Sequence[Row],
    expect: frozenset[Atom] | None = None,
    *,
    is_torn: bool = False,
) -> Account:
    """Account for every part of a plan. ``rows``: those of the traces that speak of runs, sources and sinks.
    ``expect``: what each way is held to, in place of what the plan promises. ``is_torn``: steps are missing from a
    trace, so no number is one, and a pipe of which nothing is told may have had messages.

    Files and stores are read as the plan names them, from the current folder.
    """
    return _Accounting(plan, numbers, rows, expect, is_torn=is_torn).account()


class _Accounting:
    def __init__(
        self,
        plan: Plan,
        numbers: Sequence[ChannelNumbers],
        rows: Sequence[Row],
        expect: frozenset[Atom] | None,
        *,
        is_torn: bool,
    ) -> None:
        self._expect = expect
        self._is_torn = is_torn
        self._plan = plan
        self._numbers = numbers
        self._rest = Rest()
        self._made: dict[tuple[str, str], dict[int, dict[int, RangeSet]]] = {}
        """Of each channel and part, by epoch: what came there so many times."""
        self._began: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._known: set[str] = set()
        """Pipes that the trace knows anything of."""
        for row in rows:
            self._see(row)
        self._stores = _Stores(plan)
        self._found = Account()
        self._assessment = assess(plan)

    def _see(self, row: Row) -> None:
        self._rest.see(row)
        if row.kind == Kind.START:
            self._known.add(row.pipe.partition("@")[0])
        elif row.kind == Kind.OPENED:
            facts = facts_of(row)
            size, at = number(facts.get("bytes")), number(facts.get("row"))
            if size is not None:
                self._note_least(self._sizes, str(facts.get("sink")), size)
            if at is not None:
                self._note_least(self._began, str(facts.get("source")), at)
        elif row.kind == Kind.MADE:
            for part, runs in mapping(facts_of(row).get("made")).items():
                for first, last, times in cast("list[tuple[int, int, int]]", runs):
                    self._note(row.pipe, part, row.epoch, (first, last, times))

    @staticmethod
    def _note_least(known: dict[str, int], name: str, value: int) -> None:
        """Both only grow, and a clock that was set back between two lives changes the order of rows."""
        known[name] = min(known.get(name, value), value)

    def _note(self, pipe: str, part: str, epoch: int, run: tuple[int, int, int]) -> None:
        """The last row about a message counts."""
        first, last, times = run
        known = self._made.setdefault((pipe, part), {}).setdefault(epoch, {})
        for ranges in known.values():
            ranges.discard(first, last)
        known.setdefault(times, RangeSet()).add(first, last)

    def account(self) -> Account:
        """All of it, in the order of the flow."""
        for part in self._plan.order:
            if isinstance(part, PipePart):
                self._account_for_pipe(part)
            elif isinstance(part, SinkBase):
                self._account_for_sink(part)
        self._stores.close()
        return self._found

    def _account_for_pipe(self, pipe: PipePart) -> None:
        name = pipe_name(self._plan, pipe)
        if name not in self._known:
            self._say(pipe, {}, "the traces know nothing of it: give those of all processes")
            return
        if self._is_torn or not all(one.is_whole for one in self._channels(pipe)):
            self._say(pipe, {}, "rows of it are missing")
            return
        if pipe.ibc is not None and pipe.ibc.dead_letter is not None:
            self._say(
                pipe,
                {},
                "what came back may have been sent again, and no row tells it from other messages",
            )
            return
        came = sum(one.accepted for one in self._channels(pipe))
        self._compare(pipe, came, self._into(pipe))

    def _account_for_sink(self, sink: AnySink) -> None:
        try:
            lines = _Lines.of(sink, self._sizes.get(sink.name), self._stores)
        except (OSError, SurepipeError, UnicodeDecodeError, csv.Error) as error:
            self._say(sink, {}, f"it can't be read: {error}")
            return
        if lines is None:
            self._found.notes.append(
                f"{sink.name}: a {sink.word} leaves nothing here that can be counted; what was handed to it is "
                "judged by the rows of the pipe before it"
            )
            return
        if lines.why:
            self._say(sink, {}, lines.why)
            return
        self._compare(sink, lines.count, self._into(sink), lines)
        self._compare_with_store(sink)

    # What came out of the parts before.

    def _into(self, part: Node) -> _Amount:
        """What all feeders of a part gave it."""
        amounts = [self._of_source(source, part) for source in self._sources_of(part)]
        before = sorted(self._plan.pipes_before(part.name))
        amounts += [self._of_pipe(self._plan.pipe(name), part) for name in before]
        whys = [amount.why for amount in amounts if amount.why]
        return _Amount(
            sum(amount.count for amount in amounts),
            "; ".join(whys),
            all(amount.is_exact for amount in amounts),
            "; ".join(amount.if_other for amount in amounts if amount.if_other),
            sum(amount.again for amount in amounts),
        )

    def _sources_of(self, part: Node) -> list[AnySource]:
        """Those that feed it with no pipe in between."""
        found: list[AnySource] = []
        for name in self._plan.feeders(part.name):
            feeder = self._plan.part(name)
            if isinstance(feeder, StagePart):
                found += self._sources_of(feeder)
            elif isinstance(feeder, SourceBase):
                found.append(feeder)
        return list({source.name: source for source in found}.values())

    def _of_source(self, source: AnySource, part: Node) -> _Amount:
        assert isinstance(part, PipePart), "every way from a source has a pipe in it"
        if why := self._why_unknown(source):
            return _Amount(why=why)
        try:
            rows, at = _rows_of(source), self._position(source, part)
            moved = _rows_moved_away(source)
        except (OSError, SurepipeError, UnicodeDecodeError) as error:
            return _Amount(why=f"source {source.name} can't be read: {error}")
        none_came = (
            self._made.get((f"{self._plan.name}/{source.name}", part.name), {}).get(0, {}).get(0)
        )
        if rows is not None and at is not None and none_came:
            for there in (rows, rows + (moved or 0)):
                if none_came.covers(at + 1, there):
                    at = there  # a row of which nothing comes moves no position
        if rows is not None and moved and rows != at:
            rows += moved
        if rows is not None and at is not None and rows != at:
            why = f"source {source.name} has {rows} rows, and its stored position is behind {at} of them"
            if moved is not None:
                why += (
                    f": it is followed, and may have gone on in another file ({moved} of the rows are in "
                    "files beside it, which were moved away or copied)"
                )
            return _Amount(why=why)
        count = at if rows is None else rows
        if count is None:
            return _Amount(
                why=f"source {source.name} is a {source.word}, whose rows can't be counted afterwards"
            )
        extra = self._extra(f"{self._plan.name}/{source.name}", part.name)
        if extra is None:
            return _Amount(why=f"how many messages a stage behind {source.name} gave is not known")
        if_other = ""
        if moved is not None and at is None:
            if_other = f"source {source.name} is followed, keeps no position, and may go on in another file"
        is_exact = at is not None or not self._has_crashed()
        return _Amount(count + extra, is_exact=is_exact, if_other=if_other)

    def _why_unknown(self, source: AnySource) -> str:
        """Why nobody can know how many rows a source gave, wherever it stands now."""
        began = self._began.get(source.name)
        if began is None:
            return f"no trace tells where source {source.name} began"
        if began:
            return f"source {source.name} had given {began} rows before the trace began, which don't show in it"
        if self._has_crashed() and not replays(source):
            # Its position moves with what is accepted, so it says as many whatever was lost before.
            return (
                f"source {source.name} can't be read again: what it had given to a process that was killed, and "
                "was not accepted then, is known to nobody"
            )
        return ""

    def _position(self, source: AnySource, pipe: PipePart) -> int | None:
        """How many rows the stored position is behind; None where none is stored."""
        home = source.store if isinstance(source, StreamSource | RedisStreamSource) else None
        kept = pipe.journal or pipe.taking_store or home
        store = self._stores.of(kept) if kept else None
        if store is None:
            return None
        found = store.get(f"{self._plan.name}/{source.name}>{pipe.name}", READER)
        if not isinstance(found, Position):
            return None
        return FeedPlace.read(found.state.decode()).restart[0]

    def _of_pipe(self, pipe: PipePart, part: Node) -> _Amount:
        channels = self._channels(pipe, is_behind=pipe.ibc is not None)
        is_committed = pipe.settled is Boundary.COMMITTED
        if self._is_torn or not all(one.is_whole for one in channels):
            return _Amount(why=f"rows of {pipe.name} are missing")
        if pipe.ibc is not None and (not channels or _has_own_numbers(pipe.ibc)):
            return _Amount(
                why=f"the rows of the other side of {pipe.name} are not those of what was sent"
            )
        open_ones = sum(one.accepted - one.settled - one.dead for one in channels)
        if open_ones:
            return _Amount(why=f"{open_ones} messages of {pipe.name} are not settled")
        dead = sum(one.dead for one in channels)
        ends = [p for p in self._plan.reach(pipe.name) if isinstance(p, PipePart | SinkBase)]
        if dead and len(ends) > 1 and not is_committed:
            return _Amount(
                why=f"{dead} dead letters of {pipe.name} may have come to {part.name} before another part failed"
            )
        count = 0
        for one in channels:
            extra = self._extra(one.channel, part.name)
            if extra is None:
                return _Amount(
                    why=f"messages of {pipe.name} failed when some parts had them, so nobody knows how many "
                    f"came to {part.name}"
                )
            count += one.settled + extra
        return _Amount(count, is_exact=is_committed or not self._has_crashed(), again=dead)

    def _extra(self, channel: str, part: str) -> int | None:
        """How many messages came to a part beyond one of each message; None where a row says that nobody knows."""
        found = 0
        for known in self._made.get((channel, part), {}).values():
            if known.get(-1):
                return None
            found += sum((times - 1) * ranges.count() for times, ranges in known.items())
        return found

    def _channels(self, pipe: PipePart, *, is_behind: bool = False) -> list[ChannelNumbers]:
        """Those of a pipe. Between parties each message has rows on two ways, into the party that sends and on to
        what the other side did with it; ``is_behind`` asks for the second."""
        name = pipe_name(self._plan, pipe)
        read_as = {name, f"{name}/{stream_layer(pipe.stack).reader}"}
        found = ((one, *one.channel.partition("@")) for one in self._numbers)
        return [
            replace(one, channel=name + at + producer)
            for one, of_pipe, at, producer in found
            if of_pipe in read_as and (pipe.ibc is None or (producer == PARTY) is is_behind)
        ]

    def _is_open(self) -> str:
        """Why the rows may not tell all that happened: a process did not say how it ended, or told nothing."""
        if self._rest.world is not None:
            return ""
        if not any(name == self._plan.name for name, _ in self._rest.ended.values()):
            return "no trace tells what went from part to part: give those of all processes"
        names = [
            pipe_name(self._plan, pipe) for pipe in self._plan.order if isinstance(pipe, PipePart)
        ]
        for node in (f"{name}/{side}" for name in names for side in ("sender", "receiver")):
            if node not in self._rest.ended:
                return f"no trace tells of {node}: give those of all processes"
        silent = [node for node, (_, rest) in self._rest.ended.items() if rest is None]
        return f"the trace ends before {silent[0]} does" if silent else ""

    def _has_crashed(self) -> bool:
        return bool(self._fallen())

    def _fallen(self) -> list[str]:
        return [
            node
            for node in self._rest.ended
            if node in self._rest.crashed or self._rest.is_cut_short(node)
        ]

    # What is said.

    def _compare(self, part: Node, came: int, given: _Amount, lines: _Lines | None = None) -> None:
        if given.why:
            self._say(part, {}, given.why)
            return
        unit = "lines are in it" if lines is not None else "messages were accepted"
        counts = f"{given.count} came to it, and {came} {unit}"
        distinct = None if lines is None else lines.distinct
        loss, repeat = (Standing.HELD, ""), (Standing.HELD, "")
        missing, more = given.count - came, came - given.count
        if missing and (why := self._is_open() or given.if_other):
            self._say(part, {}, f"{counts}, and {why}")
            return
        if 0 < more <= given.again:
            self._say(
                part, {}, f"{counts}: {given.again} were dead letters, and may have been sent again"
            )
            return
        if missing > 0:
            loss = (Standing.BROKEN, f"{missing} are missing: {counts}")
            repeat = (Standing.UNJUDGED, f"{counts}: what is there has no identity")
        elif more > 0:
            repeat = (Standing.BROKEN, f"{more} too many: {counts}")
        is_sure = given.is_exact and not more
        if missing <= 0 and not is_sure and distinct != given.count:
            if (
                lines is not None
                and distinct is not None
                and lines.count == lines.distinct
                and not more
            ):
                pass  # as many as there should be, and no two of them alike
            else:
                loss = (Standing.UNJUDGED, f"{counts}: some came again, and they have no identity")
                if not more:
                    repeat = loss
        self._say(part, {Atom.NO_LOSS: loss, Atom.NO_DUPLICATE: repeat})

    def _compare_with_store(self, sink: AnySink) -> None:
        """With boundary committed the store knows how long the file is."""
        homes = {home_of(self._plan.pipe(name)) for name in self._committed_before(sink)}
        store = self._stores.of(homes.pop()) if len(homes) == 1 else None
        if store is None or not isinstance(sink, JsonlSink | CsvSink):
            return
        found = store.get(f"{self._plan.name}/{sink.name}/place", READER)
        if isinstance(found, Position):
            end, size = (
                FilePlace.read(found.state.decode()).end,
                Path(str(sink.path)).stat().st_size,
            )
            if end != size:
                why = f"the file has {size} bytes, and {end} were committed"
                self._found.judged.append(Judged(sink.name, "contents", Standing.BROKEN, why))

    def _committed_before(self, sink: AnySink) -> list[str]:
        names = self._plan.pipes_before(sink.name)
        return [one for one in names if self._plan.pipe(one).settled is Boundary.COMMITTED]

    def _say(self, part: Node, found: Mapping[Atom, tuple[Standing, str]], why: str = "") -> None:
        name = f"into {part.name}"
        for atom in (Atom.NO_LOSS, Atom.NO_DUPLICATE):
            standing, because = found.get(atom, (Standing.UNJUDGED, why))
            if self._is_promised(part, atom):
                self._found.judged.append(Judged(name, str(atom), standing, because))
            elif standing is Standing.BROKEN:
                self._found.notes.append(
                    f"{name}: {because}; {atom} is not promised through what happened"
                )

    def _is_promised(self, part: Node, atom: Atom) -> bool:
        """Every way through a part promises it, under what the traces show to have gone wrong."""
        if self._expect is not None:
            return atom in self._expect
        ways = [way for way in self._assessment.ways if part.name in way.parts]
        return bool(ways) and all(
            way.explanation is not None
            and any(
                one.atom is atom
                and one.survives is not None
                and self._faults(way.parts) <= one.survives
                for one in way.explanation.atoms
            )
            for way in ways
        )

    def _faults(self, parts: Sequence[str]) -> frozenset[Fault]:
        """What happened to the pipes of a way, in the words of a chain."""
        pipes = [name for name in parts if isinstance(self._plan.part(name), PipePart)]
        found: set[Fault] = set()
        for node in self._fallen():
            for at, name in enumerate(pipes):
                full = pipe_name(self._plan, self._plan.pipe(name))
                if node == f"{full}/sender":
                    found.add(Fault.SENDER_CRASH if at == 0 else Fault.RELAY_CRASH)
                elif node == f"{full}/receiver":
                    is_last = at == len(pipes) - 1
                    found.add(Fault.RECEIVER_CRASH if is_last else Fault.RELAY_CRASH)
        return frozenset(found)


class _Stores:
    """The stores of a plan that can be read now; opened when they are asked for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open: dict[str, Store] = {}

    def of(self, name: str | None) -> Store | None:
        """A store; None for one that is in memory, or not there. Raises what opening raises."""
        if name is None:
            return None
        if name not in self._open:
            part = self._plan.store(name)
            is_gone = isinstance(part, SqliteStorePart) and not Path(part.path.reveal()).is_file()
            if isinstance(part, MemoryStorePart) or is_gone:
                return None
            self._open[name] = RealEnvironment(self._plan).store(part)
        return self._open[name]

    def close(self) -> None:
        for store in self._open.values():
            close = getattr(store, "close", None)
            if callable(close):
                close()


@dataclass(frozen=True, slots=True)
class _Lines:
    """What a sink holds since the trace began; ``distinct``: how many different ones, where that was looked at."""

    count: int = 0
    distinct: int | None = None
    why: str = ""

    @classmethod
    def of(cls, sink: AnySink, start: int | None, stores: _Stores) -> _Lines | None:
        """Of a sink; None where nothing can be counted. Raises OSError, SurepipeError."""
        if isinstance(sink, StreamSink):
            store = stores.of(sink.store)
            info = store.info(sink.stream) if store is not None else None
            if not isinstance(info, StreamInfo) or info.earliest != 1:
                return cls(why=f"its stream {sink.stream} is not there, or was trimmed")
            return cls(info.next - 1)
        if not isinstance(sink, JsonlSink | CsvSink):
            return None
        if start is None:
            return cls(why="no trace tells how long its file was before")
        return cls._of(_lines_in(Path(str(sink.path)), start, is_csv=isinstance(sink, CsvSink)))

    @classmethod
    def _of(cls, lines: Iterator[bytes]) -> _Lines:
        count, seen = 0, set[bytes]()
        for one in lines:
            count += 1
            if count <= LINES_MAX:
                seen.add(blake2b(one, digest_size=12).digest())
        return cls(count, len(seen) if count <= LINES_MAX else None)


def _lines_in(path: Path, start: int, *, is_csv: bool) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        if not is_csv:
            yield from file
            return
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        for at, row in enumerate(reader):
            if at or start:  # the header
                yield repr(row).encode()


def _rows_moved_away(source: AnySource) -> int | None:
    """How many rows are in the files that a followed one was before; None where nothing is followed. Raises
    OSError, SurepipeError."""
    if not isinstance(source, JsonlSource | CsvSource) or not source.follow:
        return None
    return sum(_rows_in(source, path) for path in files_beside(Path(str(source.path))))


def _rows_of(source: AnySource) -> int | None:
    """How many rows a source has that can be counted. Raises OSError, SurepipeError."""
    if not isinstance(source, FileSource):
        return None
    return _rows_in(source, Path(str(source.path)))


def _rows_in(source: FileSource, path: Path) -> int:
    if isinstance(source, JsonlSource):
        with path.open("rb") as file:
            return sum(1 for line in file if line.strip())
    if isinstance(source, CsvSource):
        keeps = source.dead_letter is not None
        return sum(1 for _ in CsvFile(path, source.delimiter, keeps=keeps).rows())
    rows = ParquetFile(path)
    return sum(1 for _ in rows.rows())
