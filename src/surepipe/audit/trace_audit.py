"""What a trace proves, and what it does not: per pipe and property held, violated with cases, or can't tell.

A trace is judged by the same properties whoever wrote it. What an audit adds is honesty about its edges: a trace
that ends before everything was at rest shows no loss, only messages that are not delivered *yet*; one whose sender
was killed may show messages that came out and were accepted behind the end of it; one with a gap in its steps
shows nothing at all, and is reported as broken before any verdict. A real trace may come in several files, one for
each process. There acceptances are read before all else and confirms after it, as no clock orders two processes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.in_work import KilledWork, LateRows, Life, left_behind, life_of
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.properties.base import NAMES
from surepipe.audit.properties.coverage import Notes
from surepipe.audit.properties.delivery import Disorder, Order, never_came_out
from surepipe.audit.properties.judge import Judge
from surepipe.audit.properties.ledger import PipeHistory
from surepipe.audit.readers import RowsByReader, StreamReaders
from surepipe.audit.settings import ATOMS, Claim, Settings, claimed, facts_of, number
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_file import RowsInTime, TraceFile
from surepipe.core.claims import Fault
from surepipe.core.ranges import RangeSet
from surepipe.errors import ConfigurationError

AUDITED: tuple[str, ...] = ("P1", "P2", "P3", "P4", "P6g", "P8", "P17")
"""What boundary rows tell."""
_ATOMS = {one: str(atom) for atom, one in ATOMS.items()}
_WORDS: Mapping[str, str] = {one: _ATOMS.get(one, NAMES[one]) for one in AUDITED}
CASES = 10
CHANNELS_MAX = 3
"""So many channels of a pipe are told one by one where the same holds of all."""
NEEDS_ALL = frozenset(("P2", "P6g"))
"""What a message breaks that a stream let go."""
REPEATS = frozenset(("P3", "P4"))
"""What a message breaks that comes out again."""
LOADED = '"loaded":true'
STEPS_MISSING = "steps are missing from the trace"
BY_CONFIRM = "{} by their confirm, or the store's position, alone: their receiver was killed as it stored them"
PARTY = "party"
"""Who writes what comes from another party."""
UNTOLD = "{} came out whose sender was killed before its trace told of them"
UNSENT = (
    "{} came out, and nobody told what was sent: give the trace of their sender, too, or, where a handler's "
    "transaction put them there, name the stream first (STORE.db#STREAM; several, one behind the other)"
)
UNTAKEN = "nobody told what came out: give the trace of its receiver or reader, too"
IN_WORK = (
    "{} were handed over to a process that was killed, and nobody knows whether it had stored them"
)
_FIRST = frozenset((Kind.ACCEPTED, Kind.UNKNOWN, Kind.REJECTED, Kind.RENUMBERED, Kind.START))
_LAST = frozenset((Kind.CONFIRMED,))
Rows: TypeAlias = Sequence[Row] | TraceFile | RowsInTime | RowsByReader
"""Rows that can be read more than once."""


class Standing(StrEnum):
    """What an audit says of a promise."""

    HELD = "held"
    BROKEN = "broken"
    UNJUDGED = "not judged"


STANDINGS: Mapping[PropertyOutcome, Standing] = {
    PropertyOutcome.HELD: Standing.HELD,
    PropertyOutcome.VIOLATED: Standing.BROKEN,
    PropertyOutcome.UNDECIDED: Standing.UNJUDGED,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One promise of a pipe, or of the way into a part. ``why`` it is not judged, or what broke it."""

    part: str
    promise: str
    standing: Standing
    why: str = ""

    def __str__(self) -> str:
        because = ", because " if self.standing is Standing.UNJUDGED else ": "
        return f"{self.part}: {self.promise} {self.standing}" + (
            because + self.why if self.why else ""
        )


PER_KEY = "order per key"


def judged_per_key(part: str, late: int, why: str) -> Judged:
    """The order within each key; ``why``: it can't be told."""
    if why:
        return Judged(part, PER_KEY, Standing.UNJUDGED, why)
    if late:
        return Judged(
            part, PER_KEY, Standing.BROKEN, f"{late} came out after a later one of their key"
        )
    return Judged(part, PER_KEY, Standing.HELD)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """What is known of one property of one pipe; ``why`` says why nothing can be told, or what else is known."""

    id: str
    outcome: PropertyOutcome
    count: int = 0
    cases: tuple[Violation, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        return NAMES[self.id]

    def __str__(self) -> str:
        return self.told()

    def told(self, *, promised: bool = True) -> str:
        """In words; what nobody promised is not called broken."""
        if self.outcome is PropertyOutcome.VIOLATED and not promised:
            why = f": {self.why}" if self.why else ""
            return f"{self.id} {self.name}: not promised here, and it did not hold ({self.count} times){why}"
        times = (
            f" {self.count} times"
            if self.outcome is PropertyOutcome.VIOLATED and self.count > 1
            else ""
        )
        because = ", because " if self.outcome is PropertyOutcome.UNDECIDED else ": "
        why = f"{because}{self.why}" if self.why else ""
        return f"{self.id} {self.name}: {STANDINGS[self.outcome]}{times}{why}"


def untold_text(untold: int, sent: int) -> str:
    """Why nobody knows what these are: of the others of their channel so many are known."""
    return (UNTOLD if sent else UNSENT).format(untold)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCounts:
    """One pipe in numbers, all of messages but ``gaps``, which counts places; ``widest`` is the widest of these.

    ``waiting`` is what has not come out yet, ``lost`` what never will: only one of them can be above 0.
    ``unknown`` is what a submit without a known outcome left and did not come out: neither loss nor surplus.
    ``untold``: came out, and may have been accepted behind the end of the trace of a sender that was killed.
    """

    sent: int
    settled: int
    dead: int
    waiting: int
    lost: int
    unknown: int
    repeated: int
    out_of_order: int
    gaps: int
    passed_over: int
    widest: int
    untold: int
    late_in_key: int | None = None
    """With lanes: messages that came out after a later one of their key; None where no key is told."""
    parked: int = 0
    """In a book: what no handler will see by itself, and waits there for a person; no dead letter."""

    @property
    def conserved(self) -> bool:
        """Sent = settled + dead letters + parked + in flight, and nothing else."""
        return self.sent == self.settled + self.dead + self.parked + self.waiting

    @property
    def sum(self) -> str:
        lost = f" + {self.lost} lost" if self.lost else ""
        parked = f" + {self.parked} parked" if self.parked else ""
        return (
            f"{self.sent} sent = {self.settled} settled + {self.dead} dead letters{parked} "
            f"+ {self.waiting} in flight{lost}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeAudit(MessageCounts):
    """What the rows of one pipe say, one by one."""

    pipe: str
    findings: tuple[AuditFinding, ...]
    promised: frozenset[str]
    """The properties that the pipe's own claim holds it to, under the faults that the trace tells of."""

    @property
    def is_whole(self) -> bool:
        """False when rows of it are missing: then nothing of it is judged."""
        return any(one.outcome is not PropertyOutcome.UNDECIDED for one in self.findings)

    def finding(self, property_id: str) -> AuditFinding:
        """What is known of one property."""
        return next(one for one in self.findings if one.id == property_id)


@dataclass(frozen=True)
class Audit:
    """The verdict over a trace."""

    pipes: tuple[PipeAudit, ...]
    broken: tuple[str, ...] = ()
    """Where steps are missing, if they are: then nothing can be told of messages."""
    torn: int = 0
    """Lines that were cut off, as by a kill."""
    ended: bool = True
    """False: the trace ends before everything was at rest."""

    def pipe(self, name: str) -> PipeAudit:
        return next(one for one in self.pipes if one.pipe == name)

    def violated(self, *, promised: bool = False) -> tuple[AuditFinding, ...]:
        """Every violation; with ``promised`` only of what the pipes claim."""
        return tuple(
            finding
            for pipe in self.pipes
            for finding in pipe.findings
            if finding.outcome is PropertyOutcome.VIOLATED
            and (not promised or finding.id in pipe.promised)
        )

    @property
    def held(self) -> bool:
        """True when everything that was promised is known to have held."""
        return not self.broken and all(
            finding.outcome is PropertyOutcome.HELD
            for pipe in self.pipes
            for finding in pipe.findings
            if finding.id in pipe.promised
        )

    def judged(self) -> Iterator[Judged]:
        for pipe in self.pipes:
            for one in pipe.findings:
                if one.id in pipe.promised or (one.id == "P2" and pipe.waiting):
                    why = one.why or (one.cases[0].sentence if one.cases else "")
                    yield Judged(pipe.pipe, _WORDS[one.id], STANDINGS[one.outcome], why)
            if pipe.late_in_key is not None:
                why = next((one.why for one in pipe.findings if one.id == "P4"), "")
                unknown = pipe.finding("P4").outcome is PropertyOutcome.UNDECIDED
                yield judged_per_key(pipe.pipe, pipe.late_in_key, why if unknown else "")

    def lines(self) -> Iterator[str]:
        yield from (f"broken trace: {text}" for text in self.broken)
        if self.torn:
            yield f"{self.torn} torn lines were left out: a process was killed while it wrote"
        for _, texts in told_together((pipe.pipe, (*_told_of(pipe),)) for pipe in self.pipes):
            yield from texts


def told_together(
    channels: Iterable[tuple[str, tuple[str, ...]]],
) -> Iterator[tuple[int, Sequence[str]]]:
    """The lines of each channel, and of how many they speak: where many of one pipe are alike (messages that
    transactions put into a stream, each of a producer of its own), the first stands for all."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, texts in channels:
        alike.setdefault((name.partition("@")[0], *texts), []).append(name)
    for (base, total, *rest), names in alike.items():
        if len(names) <= CHANNELS_MAX:
            yield from ((1, (f"{name}: {total}", *rest)) for name in names)
        else:
            more = f"and {len(names) - 1} channels more of {base}, each"
            yield len(names), (f"{names[0]} {more}: {total}", *rest)


def _told_of(pipe: PipeAudit) -> Iterator[str]:
    """What is told of a channel: its sum, and a line for each thing."""
    yield pipe.sum
    if pipe.repeated or pipe.out_of_order or pipe.gaps:
        yield (
            f"  {pipe.repeated} repeated, {pipe.out_of_order} out of order, {pipe.gaps} gaps "
            f"(widest {pipe.widest})"
        )
    for finding in pipe.findings:
        is_promised = finding.id in pipe.promised or finding.outcome is PropertyOutcome.UNDECIDED
        yield f"  {finding.told(promised=is_promised)}"
        for case in finding.cases if is_promised else ():
            yield f"    step {case.step}: {case.sentence}"


@dataclass
class _Edges:
    """Where a trace ends, and where it has holes."""

    rest: Rest
    numbers: MissingNumbers
    deliveries: Deliveries
    broken: Sequence[str]
    latest: Mapping[str, int]
    """When each pipe accepted its last message."""
    readers: StreamReaders
    by_confirm: Mapping[str, int] = field(default_factory=dict[str, int])
    doubtful: Mapping[str, int] = field(default_factory=dict[str, int])
    cases: dict[tuple[str, str], list[Violation]] = field(
        default_factory=dict[tuple[str, str], list[Violation]]
    )
    """Of each property and pipe, what was found."""

    def is_at_rest(self, book: PipeHistory, owed: RangeSet) -> bool:
        """True when nothing more comes out. Where nothing is missing, two clocks need not agree."""
        if not owed:
            return self.rest.of(book.pipe)
        reached = self.deliveries.reached(book)
        since_us = self.latest.get(book.pipe, 0)
        return self.rest.of(book.pipe, since_us, is_behind=owed.highest() > reached)

    def is_let_go(self, book: PipeHistory, owed: RangeSet) -> bool:
        """True when all that is missing was gone when the reader began."""
        gone = self.readers.let_go.get(book.pipe)
        if gone is None or not owed:
            return False
        ((_, position, _),) = book.positions.find(*gone, 1)
        return owed.highest() <= position

    def hole(self, pipe: str) -> str:
        """Why nothing can be told of this pipe, if so."""
        if self.broken:
            return STEPS_MISSING
        return (
            self.numbers.missing(pipe)
            or self.deliveries.missing(pipe)
            or self.rest.lacks_receivers(pipe)
        )


@dataclass
class _Steps:
    """Looks for steps that are missing."""

    is_real: bool
    broken: list[str] = field(default_factory=list[str])
    count: int = 0
    _next: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])

    def see(self, row: Row) -> None:
        key = (row.run, row.node, row.incarnation) if self.is_real else (row.run, "", 0)
        expected = self._next.get(key, 0)
        if row.step != expected:
            self.count += 1
            if self.count <= CASES:
                who = f"{row.node} (life {row.incarnation}) " if self.is_real else ""
                self.broken.append(f"{who}goes from step {expected - 1} to {row.step}".strip())
        self._next[key] = row.step + 1


Epochs: TypeAlias = dict[str, dict[int, RangeSet]]
"""Of each pipe and epoch these numbers. By the pipe first: a trace may have thousands, and each is asked for."""


def epoch_of(known: Epochs, pipe: str, epoch: int) -> RangeSet:
    """The numbers of this epoch, to be added to."""
    return known.setdefault(pipe, {}).setdefault(epoch, RangeSet())


@dataclass
class MissingNumbers:
    """Looks for messages of a pipe that no row speaks of, though rows speak of those around them.

    A sender gives the numbers of an epoch without a hole, from 1 on, and tells of each. What a life has loaded of
    a journal may have holes, and begin anywhere: the rest was settled before the trace began.
    """

    told: Epochs = field(default_factory=dict[str, dict[int, RangeSet]])
    fresh: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """The lowest number that a sender gave while it told of it."""

    def see(self, row: Row) -> None:
        if row.layer or not row.epoch or not row.pipe:
            return
        if row.kind == Kind.RENUMBERED:
            facts = facts_of(row)
            epoch, seq = number(facts.get("epoch")), number(facts.get("seq"))
            if epoch and seq:
                self.tell(row.pipe, epoch, seq, seq + row.count - 1)
        elif row.kind in (Kind.ACCEPTED, Kind.UNKNOWN) and row.count:
            self.tell(row.pipe, row.epoch, row.seq, row.last)
            if row.kind == Kind.ACCEPTED and LOADED not in row.detail:
                self.give(row.pipe, row.epoch, row.seq)

    def tell(self, pipe: str, epoch: int, first: int, last: int) -> None:
        epoch_of(self.told, pipe, epoch).add(first, last)

    def give(self, pipe: str, epoch: int, first: int) -> None:
        """A sender gave this number now."""
        self.fresh[pipe, epoch] = min(self.fresh.get((pipe, epoch), first), first)

    def missing(self, pipe: str) -> str:
        """What is missing of a pipe, in words; empty when nothing is."""
        found: list[str] = []
        for epoch, told in sorted(self.told.get(pipe, {}).items()):
            fresh = self.fresh.get((pipe, epoch))
            if fresh is None:
                continue
            lowest = next(iter(told))[0]
            start = 1 if lowest == fresh else fresh
            for low, high in told.missing(start, told.highest()):
                what = f"{low}" if low == high else f"{low} to {high}"
                found.append(f"no row tells of the acceptance of {what} of epoch {epoch}")
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        return "; ".join(found[:3]) + more


@dataclass
class Deliveries:
    """Compares what was handed over with what came out: nothing may come out that was not handed over, and with
    lanes the messages of one key come out in their order."""

    handed: Epochs = field(default_factory=dict[str, dict[int, RangeSet]])
    came: Epochs = field(default_factory=dict[str, dict[int, RangeSet]])
    keyed: set[str] = field(default_factory=set[str])
    """Pipes that tell keys."""
    late: Counter[str] = field(default_factory=Counter[str])
    """How many messages of each pipe came out after a later one of their key, for the first time."""
    places: dict[tuple[str, int], list[tuple[int, int, int]]] = field(
        default_factory=dict[tuple[str, int], list[tuple[int, int, int]]]
    )
    """Of a stream that can be read: the runs of each pipe and epoch, from a number to one, and the index of the
    first. The order of a stream is one over all of its producers."""
    _keys: dict[tuple[str, int], Notes[str]] = field(
        default_factory=dict[tuple[str, int], Notes[str]]
    )
    _highest: dict[tuple[str, str], tuple[int, int]] = field(
        default_factory=dict[tuple[str, str], tuple[int, int]]
    )
    _first: dict[tuple[str, int], RangeSet] = field(default_factory=dict[tuple[str, int], RangeSet])

    def see(self, row: Row) -> None:
        """Take the next row. Where clocks may differ, rows that hand over come before those that settle."""
        if row.layer or not row.count:
            return
        place = (row.pipe, row.epoch)
        if row.kind == Kind.DELIVERED:
            epoch_of(self.handed, row.pipe, row.epoch).add(row.seq, row.last)
            if key := facts_of(row).get("key"):
                self.keyed.add(row.pipe)
                self._keys.setdefault(place, Notes()).note(row.seq, row.last, str(key))
        elif row.kind == Kind.SETTLED:
            epoch_of(self.came, row.pipe, row.epoch).add(row.seq, row.last)
            if row.pipe in self.keyed:
                self._look_at_keys(row, place)

    def _look_at_keys(self, row: Row, place: tuple[str, int]) -> None:
        known = self._first.setdefault(place, RangeSet())
        keys = self._keys.get(place, Notes[str]())
        for first, last in known.missing(row.seq, row.last):
            for low, high, key in keys.within(first, last):
                of_whom, at = self._standing(row, low)
                highest = self._highest.get((of_whom, key), (0, 0))
                self.late[row.pipe] += high - low + 1 if at < highest else 0
                self._highest[of_whom, key] = max(highest, self._standing(row, high)[1])
        known.add(row.seq, row.last)

    def _standing(self, row: Row, seq: int) -> tuple[str, tuple[int, int]]:
        """Among whose messages this one stands, and where: by its index, or by its number."""
        runs = self.places.get((row.pipe, row.epoch), [])
        at = bisect_right(runs, seq, key=itemgetter(0))
        first, last, place = runs[at - 1] if at else (0, 0, 0)
        if seq <= last:
            return row.pipe.partition("@")[0], (0, place + seq - first)
        return row.pipe, (row.epoch, seq)

    def reached(self, book: PipeHistory) -> int:
        """The highest position of a pipe that was handed over."""
        lasts = [
            (epoch, ranges.highest())
            for known in (self.handed, self.came)
            for epoch, ranges in known.get(book.pipe, {}).items()
        ]
        found = (book.positions.find(epoch, last, 1) for epoch, last in lasts)
        return max((position for parts in found for _, position, _ in parts), default=0)

    def missing(self, pipe: str) -> str:
        """What came out of a pipe and was handed over to nobody, in words; empty where no row is missing."""
        told = self.handed.get(pipe)
        if told is None:
            return ""
        for epoch, came in sorted(self.came.get(pipe, {}).items()):
            handed = told.get(epoch, RangeSet())
            for low, high in came:
                for first, last in handed.missing(low, high):
                    what = f"{first}" if first == last else f"{first} to {last}"
                    return (
                        f"no row tells that {what} of epoch {epoch} was handed over, which came out"
                    )
        return ""


def is_sender(node: str) -> bool:
    """Whether a node is that of a sender, and of nobody who receives or reads."""
    return node.endswith("/sender")


class LetGo(StrEnum):
    """What a stream had let go before a reader began: nobody had read it, or another reader may have."""

    UNREAD = "unread"
    READ_BY_OTHERS = "read by others"


@dataclass
class Rest:
    """Tells which pipes are at rest, from the last rows of their nodes."""

    ended: dict[str, tuple[str, bool | None]] = field(
        default_factory=dict[str, tuple[str, bool | None]]
    )
    """(pipe, at rest) of each node; None: it began and did not say how it ended."""
    ended_at: dict[str, int] = field(default_factory=dict[str, int])
    began_at: dict[str, int] = field(default_factory=dict[str, int])
    """When the latest life of each node began."""
    world: bool | None = None
    left_open: set[str] = field(default_factory=set[str])
    """Nodes one of whose lives has no end."""
    crashed: set[str] = field(default_factory=set[str])
    """Nodes one of whose lives was ended by a crash."""
    followed: set[Life] = field(default_factory=set[Life])
    """Lives that ended in order and not at rest, behind which another one came."""
    came_again: set[str] = field(default_factory=set[str])
    """Nodes of which such a life had settled what is behind something unsettled: the next one gets it again."""
    _streams: set[str] = field(default_factory=set[str])
    """The pipes that are streams, by what their ends say."""
    _unfinished: dict[str, Life] = field(default_factory=dict[str, Life])
    _nodes: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """The nodes of each pipe, in the order in which they told of it."""

    def see(self, row: Row) -> None:
        if row.kind == Kind.START:
            if self.ended.get(row.node, ("", False))[1] is None:
                self.left_open.add(row.node)
            if row.node in self._unfinished:
                self.followed.add(self._unfinished.pop(row.node))
            self._tell(row.node, row.pipe, None)
            self.began_at[row.node] = row.time_us
            facts = facts_of(row)
            if "reader" in facts or facts.get("confirms") == "stored":
                self._streams.add(row.pipe.partition("@")[0])
        elif row.kind == Kind.CRASH:
            self.crashed.add(row.node)
            self._tell(row.node, self.ended.get(row.node, (row.pipe, None))[0], False)
        elif row.kind == Kind.END:
            is_at_rest = facts_of(row).get("quiescent") is True
            if row.node in self.ended and row.pipe:
                self.ended[row.node] = (self.ended[row.node][0], is_at_rest)
                self.ended_at[row.node] = row.time_us
                if not is_at_rest:
                    self._unfinished[row.node] = life_of(row)
            else:
                self.world = is_at_rest

    def _tell(self, node: str, pipe: str, is_at_rest: bool | None) -> None:
        self.ended[node] = (pipe, is_at_rest)
        self._nodes.setdefault(pipe, {})[node] = None

    def _nodes_of(self, pipe: str) -> list[str]:
        """``orders`` (its readers) and ``orders@p1`` (one of its writers) are one pipe."""
        names = dict.fromkeys((pipe, pipe.partition("@")[0]))
        return [
            node
            for name in names
            for node in self._nodes.get(name, ())
            if self.ended[node][0] == name
        ]

    def of(self, pipe: str, since_us: int | None = None, *, is_behind: bool = False) -> bool:
        """True when every node of the pipe ended at rest. ``since_us``: something is missing, and this is when the
        last message was accepted. ``is_behind``: some of it is behind all that was handed over."""
        if self.world is not None:
            return self.world
        told = self._nodes_of(pipe)
        if not told or not all(self.ended[node][1] for node in told):
            return False
        if since_us is None:
            return True
        receivers = [node for node in told if not is_sender(node)]
        if not receivers:
            return False
        if pipe.partition("@")[0] in self._streams:
            return not is_behind or self._is_all_read(told, receivers)
        return all(self.ended_at[node] >= since_us for node in told)

    def lacks_receivers(self, pipe: str) -> str:
        """That their traces are not among those that are read, in words; empty where they are."""
        told = self._nodes_of(pipe) if self.world is None else ()
        return UNTAKEN if told and all(map(is_sender, told)) else ""

    def _is_all_read(self, nodes: Sequence[str], readers: Sequence[str]) -> bool:
        """Whether the readers of a stream had all of it before them. One that has ended may come again and read
        on; one that began when all senders had ended, and came to the end of the stream, has seen everything."""
        senders = [node for node in nodes if node not in readers]
        return bool(senders) and all(
            self.ended_at[sender] <= self.began_at[reader]
            for sender in senders
            for reader in readers
        )

    def promised(
        self,
        claim: Claim,
        faults: Iterable[str],
        pipe: str,
        sender: str,
        *,
        has_dead: bool,
        let_go: LetGo | None = None,
    ) -> frozenset[str]:
        """The properties that a claim holds a pipe to, under these faults and those that the trace shows.
        ``let_go``: whose turn it was to read what is missing, and the stream had let go."""
        occurring = (*faults, *self._faults(pipe, sender, has_dead=has_dead))
        held = claimed(claim, occurring)
        if not self.came_again.isdisjoint(self._nodes_of(pipe)):
            # As behind a crash the next life was handed again what was behind the position; nothing may be lost.
            held &= claimed(claim, (*occurring, Fault.RECEIVER_CRASH)) | held - REPEATS
        if let_go is LetGo.READ_BY_OTHERS:
            return held - NEEDS_ALL
        if let_go is LetGo.UNREAD:
            return held & (claimed(claim, (*occurring, Fault.STORE_TRIM)) | held - NEEDS_ALL)
        return held

    def _faults(self, pipe: str, sender: str, *, has_dead: bool) -> tuple[str, ...]:
        """Faults that the trace itself shows. Claims need not hold under those that they don't cover."""
        if self.world is not None:
            return ()
        nodes = self._nodes_of(pipe)
        fallen = [one for one in nodes if one in self.crashed or self.is_cut_short(one)]
        crashes = {Fault.SENDER_CRASH if one == sender else Fault.RECEIVER_CRASH for one in fallen}
        return tuple(sorted(crashes)) + ((Fault.HANDLER_FAILURE,) if has_dead else ())

    def is_cut_short(self, node: str) -> bool:
        """True when a life of a node has no end in the trace, or the trace knows nothing of it."""
        if self.world is not None:
            return False
        return node in self.left_open or self.ended.get(node, ("", None))[1] is None


def audit(*traces: Rows) -> Audit:
    """Judge a trace, or the traces that several processes wrote of the same pipes.

    Raises ConfigurationError for a file that is no trace, and for several simulated runs at once: each is a trace
    of its own.
    """
    run_row = _run_row(traces)
    torn = sum(trace.torn for trace in traces if isinstance(trace, TraceFile))
    steps = _Steps(Settings.read(run_row).real)
    if steps.is_real:
        traces = tuple(RowsInTime(rows) for rows in traces)
    for row in _merged(traces):
        steps.see(row)
    readers = _readers_in(traces)
    if not readers.are_plain:
        traces = tuple(RowsByReader(rows, readers) for rows in traces)
    judge = Judge([one for one in AUDITED if one != "P2"], run_row, cases_max=CASES)
    rest, numbers = Rest(), MissingNumbers()
    deliveries = Deliveries()
    late = LateRows(_merged(traces) if judge.settings.real else ())
    for kind in (Kind.DELIVERED, Kind.SETTLED):
        for row in late.in_order(_merged(traces)):
            if row.kind == kind:
                deliveries.see(row)
    latest: dict[str, int] = {}
    for row in _merged(traces):
        rest.see(row)
        numbers.see(row)
        if row.kind == Kind.ACCEPTED and LOADED not in row.detail:
            latest[row.pipe] = max(latest.get(row.pipe, 0), row.time_us)
    rest.came_again = left_behind(_merged(traces) if rest.followed else (), rest.followed)
    edges = _Edges(rest, numbers, deliveries, steps.broken, latest, readers)
    if judge.settings.real:
        in_work = KilledWork(late.in_order(_merged(traces)))
        edges.by_confirm, edges.doubtful = in_work.count, in_work.doubtful
        _judge_real(judge, traces, rest, in_work, late)
    else:
        for row in _merged(traces):
            judge.see(row)
    for case in judge.finish():
        edges.cases.setdefault((case.property, case.pipe), []).append(case)
    books = [book for book in judge.books.pipes.values() if not book.layer]
    told = [_audited(judge, book, edges) for book in books if _is_told_of(book)]
    return Audit(
        tuple(sorted(told, key=lambda one: one.pipe)),
        tuple(steps.broken),
        torn,
        all(edges.is_at_rest(book, judge.books.owed(book)) for book in books if _is_told_of(book)),
    )


def _readers_in(traces: Sequence[Rows]) -> StreamReaders:
    readers = StreamReaders()
    for trace in traces:
        for row in trace:
            readers.see(row)
    for trace in traces if not readers.are_plain else ():
        for row in trace:
            if row.kind == Kind.DELIVERED and row.count:
                for pipe, _ in readers.places(row.run, row.node, row.pipe):
                    readers.came(pipe, (row.epoch, row.seq))
    return readers


def _run_row(traces: Sequence[Rows]) -> Row:
    runs = [row for trace in traces for row in trace if row.kind == Kind.RUN]
    if not runs:
        raise ConfigurationError("there is no row 'run' in the trace: this is none of surepipe")
    is_simulated = [facts_of(row).get("clock") != "wall" for row in runs]
    if any(is_simulated) and len(runs) > 1:
        raise ConfigurationError(
            f"these are {len(runs)} runs, and simulated ones are traces of their own: audit one at a time"
        )
    return runs[0]


def _merged(traces: Sequence[Rows]) -> Iterator[Row]:
    """Rows of several files by their times; each file keeps its own order."""
    if len(traces) == 1:
        return iter(traces[0])
    return heapq.merge(*traces, key=lambda row: row.time_us)


def _judge_real(
    judge: Judge, traces: Sequence[Rows], rest: Rest, in_work: KilledWork, late: LateRows
) -> None:
    """Acceptances, then what became of them, then what senders were told."""
    judge.books.may_lack_senders = True
    chosen: tuple[Callable[[str], bool], ...] = (
        lambda kind: kind in _FIRST,
        lambda kind: kind not in _FIRST and kind not in _LAST,
        lambda kind: kind in _LAST,
    )
    for is_now in chosen:
        for row in late.in_order(_merged(traces)):
            if is_now(Kind.SETTLED):
                for missing in in_work.before(row):
                    judge.see(missing)
            if is_now(row.kind):
                judge.see(row)
        for book in judge.books.pipes.values():
            book.cut_short = rest.is_cut_short(book.sender)


def _is_told_of(book: PipeHistory) -> bool:
    """What comes back from another party has no sender here: that pipe's own messages tell what became of them."""
    is_from_party = book.pipe.partition("@")[2] == PARTY
    untold = 0 if is_from_party else book.untold
    return bool(book.positions.count or book.settled.count() or untold or book.order.count)


def _audited(judge: Judge, book: PipeHistory, edges: _Edges) -> PipeAudit:
    order = next((part for part in judge.parts if isinstance(part, Order)), None)
    seen = (order.disorder.get(book.key) if order else None) or Disorder()
    owed = judge.books.owed(book)
    missing = owed.count()
    is_at_rest = edges.is_at_rest(book, owed)
    optional = sum(last - first + 1 for first, last in book.optional)
    optional_out = sum(
        last - first + 1
        for low, high in book.optional
        for first, last in book.settled.within(low, high)
    )
    dead, parked = book.dead.count(), book.parked.count()
    findings = [
        _finding(judge, book, edges, one) if one != "P2" else _loss(judge, book, edges)
        for one in AUDITED
    ]
    loss = next(one for one in findings if one.id == "P2")
    if (
        loss.count and loss.outcome is PropertyOutcome.UNDECIDED
    ):  # what was passed over is what nobody knows of
        findings = [
            replace(one, outcome=PropertyOutcome.UNDECIDED, cases=(), why=loss.why)
            if one.id == "P6g" and one.outcome is PropertyOutcome.VIOLATED
            else one
            for one in findings
        ]
    is_unsent = bool(book.untold) and not book.positions.count
    why = edges.hole(book.pipe) or (untold_text(book.untold, 0) if is_unsent else "")
    if why:
        findings = [AuditFinding(one.id, PropertyOutcome.UNDECIDED, why=why) for one in findings]
    claim = judge.books.claim_on(book.pipe)
    promised = edges.rest.promised(
        claim,
        judge.settings.faults,
        book.pipe,
        book.sender,
        has_dead=dead > 0,
        let_go=let_go_to(edges.readers, book.pipe) if edges.is_let_go(book, owed) else None,
    )
    return PipeAudit(
        pipe=book.pipe,
        sent=book.positions.count - (optional - optional_out),
        settled=book.settled.count() - dead,
        dead=dead - parked,
        parked=parked,
        waiting=0 if is_at_rest else missing,
        lost=missing if is_at_rest else 0,
        unknown=optional - optional_out,
        repeated=seen.repeated,
        out_of_order=seen.late,
        gaps=seen.gaps,
        passed_over=seen.passed_over,
        widest=seen.widest,
        untold=book.untold,
        findings=tuple(findings),
        late_in_key=edges.deliveries.late[book.pipe]
        if book.pipe in edges.deliveries.keyed
        else None,
        promised=promised & frozenset(AUDITED) | {"P1", "P17"},
    )


def let_go_to(readers: StreamReaders, pipe: str) -> LetGo:
    """Who may have read what was gone when the reader of this channel began."""
    return LetGo.UNREAD if readers.is_first(pipe) else LetGo.READ_BY_OTHERS


def _loss(judge: Judge, book: PipeHistory, edges: _Edges) -> AuditFinding:
    owed = judge.books.owed(book)
    count = owed.count()
    if not edges.is_at_rest(book, owed):
        why = f"{count} not yet delivered when the trace ends" if count else "the trace ends early"
        return AuditFinding("P2", PropertyOutcome.UNDECIDED, why=why)
    doubtful, by_confirm = edges.doubtful.get(book.pipe, 0), edges.by_confirm.get(book.pipe, 0)
    if count and doubtful >= count and judge.books.is_confirmed_by_store(book.pipe):
        return AuditFinding("P2", PropertyOutcome.UNDECIDED, count, why=IN_WORK.format(count))
    before = sum(last - first + 1 for first, last in book.optional) if not count else 0
    readers = edges.readers
    if why := readers.why_unknown(book.pipe, before) or readers.why_unmet(book.pipe, count):
        return AuditFinding("P2", PropertyOutcome.UNDECIDED, why=why)
    if not count:
        why = BY_CONFIRM.format(by_confirm)
        return AuditFinding("P2", PropertyOutcome.HELD, why=why if by_confirm else "")
    step = judge.books.end.step if judge.books.end else 0
    cases = tuple(
        Violation("P2", NAMES["P2"], step, never_came_out(first, last), book.pipe, position=first)
        for first, last in owed.lowest(CASES)
    )
    why = edges.readers.why_let_go(book.pipe, count) if edges.is_let_go(book, owed) else ""
    return AuditFinding("P2", PropertyOutcome.VIOLATED, count, cases, why)


def _finding(judge: Judge, book: PipeHistory, edges: _Edges, property_id: str) -> AuditFinding:
    count = judge.counts[property_id, book.pipe]
    if count:
        cases = tuple(edges.cases.get((property_id, book.pipe), ()))
        return AuditFinding(property_id, PropertyOutcome.VIOLATED, count, cases)
    if property_id in ("P1", "P3", "P4", "P6g") and book.untold:
        why = UNTOLD.format(book.untold)
        return AuditFinding(property_id, PropertyOutcome.UNDECIDED, why=why)
    if property_id == "P1" and not any(book.digests.strip()):
        why = "as far as identities tell; the trace has no digests of payloads"
        return AuditFinding(property_id, PropertyOutcome.HELD, why=why)
    if property_id == "P8" and judge.books.is_confirmed_by_store(book.pipe):
        return AuditFinding(
            property_id, PropertyOutcome.UNDECIDED, why="a confirm here says that the store has it"
        )
    return AuditFinding(property_id, PropertyOutcome.HELD)
