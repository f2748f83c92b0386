"""What a trace proves, and what it does not: per pipe and property held, violated with cases, or can't tell.

A trace is judged by the same properties whoever wrote it. What an audit adds is honesty about its edges: a trace
that ends before everything was at rest shows no loss, only messages that are not delivered *yet*; one whose sender
was killed may show messages that came out and were accepted behind the end of it; one with a gap in its steps
shows nothing at all, and is reported as broken before any verdict. A real trace may come in several files, one for
each process. There acceptances are read before all else and confirms after it, as no clock orders two processes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from surepipe.errors import ConfigurationError
from surepipe.pipes.algebra.guarantees import Fault
from surepipe.pipes.predicates import Outcome
from surepipe.simulation.findings import Violation
from surepipe.simulation.in_work import InWork
from surepipe.simulation.properties.base import NAMES
from surepipe.simulation.properties.books import Book
from surepipe.simulation.properties.judge import Judge
from surepipe.simulation.properties.messages import never_came_out
from surepipe.simulation.properties.order import Disorder, Order
from surepipe.simulation.properties.settings import claimed, facts_of
from surepipe.simulation.trace import Kind, Row
from surepipe.simulation.trace_file import TraceFile

AUDITED: tuple[str, ...] = ("P1", "P2", "P3", "P4", "P6g", "P8", "P17")
"""What boundary rows tell."""
CASES = 10
_FIRST = frozenset((Kind.ACCEPTED, Kind.UNKNOWN, Kind.REJECTED, Kind.RENUMBERED, Kind.START))
_LAST = frozenset((Kind.CONFIRMED,))
Rows: TypeAlias = Sequence[Row] | TraceFile
"""Rows that can be read more than once."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one property of one pipe; ``why`` says why nothing can be told, or what else is known."""

    id: str
    outcome: Outcome
    count: int = 0
    cases: tuple[Violation, ...] = ()
    why: str = ""

    @property
    def name(self) -> str:
        """The property's name."""
        return NAMES[self.id]

    def __str__(self) -> str:
        told = "can't tell" if self.outcome is Outcome.UNDECIDED else str(self.outcome)
        times = f" {self.count} times" if self.count > 1 else ""
        why = f": {self.why}" if self.why else ""
        return f"{self.id} {self.name}: {told}{times}{why}"


@dataclass(frozen=True, slots=True)
class PipeAudit:
    """One pipe in numbers, all of messages but ``gaps``, which counts places; ``widest`` is the widest of these.

    ``waiting`` is what has not come out yet, ``lost`` what never will: only one of them can be above 0.
    ``unknown`` is what a submit without a known outcome left and did not come out: neither loss nor surplus.
    ``untold``: came out, and may have been accepted behind the end of the trace of a sender that was killed.
    """

    pipe: str
    accepted: int
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
    findings: tuple[Finding, ...]
    promised: frozenset[str]
    """The properties that the pipe's own claim holds it to, under the faults that the trace tells of."""

    @property
    def conserved(self) -> bool:
        """Sent = settled + dead letters + in flight, and nothing else."""
        return self.accepted == self.settled + self.dead + self.waiting

    @property
    def sum(self) -> str:
        """That sum in words."""
        lost = f" + {self.lost} lost" if self.lost else ""
        return (
            f"{self.accepted} sent = {self.settled} settled + {self.dead} dead letters "
            f"+ {self.waiting} in flight{lost}"
        )

    def finding(self, property_id: str) -> Finding:
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
        """One pipe."""
        return next(one for one in self.pipes if one.pipe == name)

    def violated(self, *, promised: bool = False) -> tuple[Finding, ...]:
        """Every violation; with ``promised`` only of what the pipes claim."""
        return tuple(
            finding
            for pipe in self.pipes
            for finding in pipe.findings
            if finding.outcome is Outcome.VIOLATED and (not promised or finding.id in pipe.promised)
        )

    @property
    def held(self) -> bool:
        """True when everything that was promised is known to have held."""
        return not self.broken and all(
            finding.outcome is Outcome.HELD
            for pipe in self.pipes
            for finding in pipe.findings
            if finding.id in pipe.promised
        )

    def lines(self) -> Iterator[str]:
        """The verdict as text."""
        yield from (f"broken trace: {text}" for text in self.broken)
        if self.torn:
            yield f"{self.torn} torn lines were left out: a process was killed while it wrote"
        for pipe in self.pipes:
            yield f"{pipe.pipe}: {pipe.sum}"
            if pipe.repeated or pipe.out_of_order or pipe.gaps:
                yield (
                    f"  {pipe.repeated} repeated, {pipe.out_of_order} out of order, {pipe.gaps} gaps "
                    f"(widest {pipe.widest})"
                )
            for finding in pipe.findings:
                yield f"  {finding}"
                yield from (f"    step {case.step}: {case.sentence}" for case in finding.cases)


@dataclass
class _Steps:
    """Looks for steps that are missing."""

    is_real: bool
    broken: list[str] = field(default_factory=list[str])
    count: int = 0
    _next: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])

    def see(self, row: Row) -> None:
        """The next row."""
        key = (row.run, row.node, row.incarnation) if self.is_real else (row.run, "", 0)
        expected = self._next.get(key, 0)
        if row.step != expected:
            self.count += 1
            if self.count <= CASES:
                who = f"{row.node} (life {row.incarnation}) " if self.is_real else ""
                self.broken.append(f"{who}goes from step {expected - 1} to {row.step}".strip())
        self._next[key] = row.step + 1


@dataclass
class Rest:
    """Which pipes are at rest, from what their nodes said last."""

    ended: dict[str, tuple[str, bool | None]] = field(
        default_factory=dict[str, tuple[str, bool | None]]
    )
    """(pipe, at rest) of each node; None: it began and did not say how it ended."""
    world: bool | None = None
    left_open: set[str] = field(default_factory=set[str])
    """Nodes one of whose lives has no end."""
    crashed: set[str] = field(default_factory=set[str])
    """Nodes one of whose lives was ended by a crash."""

    def see(self, row: Row) -> None:
        """The next row."""
        if row.kind == Kind.START:
            if self.ended.get(row.node, ("", False))[1] is None:
                self.left_open.add(row.node)
            self.ended[row.node] = (row.pipe, None)
        elif row.kind == Kind.CRASH:
            self.crashed.add(row.node)
            self.ended[row.node] = (self.ended.get(row.node, (row.pipe, None))[0], False)
        elif row.kind == Kind.END:
            is_at_rest = facts_of(row).get("quiescent") is True
            if row.node in self.ended and row.pipe:
                self.ended[row.node] = (self.ended[row.node][0], is_at_rest)
            else:
                self.world = is_at_rest

    def of(self, pipe: str) -> bool:
        """True when every node of the pipe ended at rest."""
        if self.world is not None:
            return self.world
        told = [rest for name, rest in self.ended.values() if _is_same(name, pipe)]
        return bool(told) and all(rest is True for rest in told)

    def faults(self, pipe: str, sender: str, *, has_dead: bool) -> tuple[str, ...]:
        """What the trace itself shows to have gone wrong: claims need not hold where they don't cover it."""
        if self.world is not None:
            return ()
        nodes = [name for name, (of, _) in self.ended.items() if _is_same(of, pipe)]
        fallen = [one for one in nodes if one in self.crashed or self.is_cut_short(one)]
        crashes = {Fault.SENDER_CRASH if one == sender else Fault.RECEIVER_CRASH for one in fallen}
        return tuple(sorted(crashes)) + ((Fault.HANDLER_FAILURE,) if has_dead else ())

    def is_cut_short(self, node: str) -> bool:
        """True when a life of a node has no end in the trace, or the trace knows nothing of it."""
        if self.world is not None:
            return False
        return node in self.left_open or self.ended.get(node, ("", None))[1] is None


def _is_same(name: str, pipe: str) -> bool:
    """``orders`` (its readers) and ``orders@p1`` (one of its writers) are one pipe."""
    return name == pipe or name == pipe.partition("@")[0]


def audit(*traces: Rows) -> Audit:
    """Judge a trace, or the traces that several processes wrote of the same pipes.

    Raises ConfigurationError for a file that is no trace, and for several simulated runs at once: each is a trace
    of its own.
    """
    run_row = _run_row(traces)
    judge = Judge([one for one in AUDITED if one != "P2"], run_row, cases_max=CASES)
    steps, rest = _Steps(judge.settings.real), Rest()
    for row in _merged(traces):
        steps.see(row)
        rest.see(row)
    by_confirm: dict[str, int] = {}
    if judge.settings.real:
        in_work = InWork(_merged(traces))
        by_confirm = in_work.count
        _judge_real(judge, traces, rest, in_work)
    else:
        for row in _merged(traces):
            judge.see(row)
    judge.finish()
    books = [book for book in judge.books.pipes.values() if not book.layer]
    torn = sum(trace.torn for trace in traces if isinstance(trace, TraceFile))
    told = [
        _audited(judge, book, rest, steps.broken, by_confirm.get(book.pipe, 0))
        for book in books
        if _is_told_of(book)
    ]
    return Audit(
        tuple(sorted(told, key=lambda one: one.pipe)),
        tuple(steps.broken),
        torn,
        all(rest.of(book.pipe) for book in books if _is_told_of(book)),
    )


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


def _judge_real(judge: Judge, traces: Sequence[Rows], rest: Rest, in_work: InWork) -> None:
    """Acceptances, then what became of them, then what senders were told."""
    chosen: tuple[Callable[[str], bool], ...] = (
        lambda kind: kind in _FIRST,
        lambda kind: kind not in _FIRST and kind not in _LAST,
        lambda kind: kind in _LAST,
    )
    for is_now in chosen:
        for row in _merged(traces):
            if is_now(Kind.SETTLED):
                for missing in in_work.before(row):
                    judge.see(missing)
            if is_now(row.kind):
                judge.see(row)
        for book in judge.books.pipes.values():
            book.cut_short = rest.is_cut_short(book.sender)


def _is_told_of(book: Book) -> bool:
    return bool(book.positions.count or book.settled.count() or book.untold or book.order.count)


def _audited(
    judge: Judge, book: Book, rest: Rest, broken: Sequence[str], by_confirm: int
) -> PipeAudit:
    order = next((part for part in judge.parts if isinstance(part, Order)), None)
    seen = (order.disorder.get(book.key) if order else None) or Disorder()
    owed = judge.books.owed(book)
    missing, is_at_rest = owed.count(), rest.of(book.pipe)
    optional = sum(last - first + 1 for first, last in book.optional)
    optional_out = sum(
        last - first + 1
        for low, high in book.optional
        for first, last in book.settled.within(low, high)
    )
    dead = book.dead.count()
    findings = [
        _finding(judge, book, one)
        if one != "P2"
        else _loss(judge, book, is_at_rest=is_at_rest, by_confirm=by_confirm)
        for one in AUDITED
    ]
    if broken:
        why = "steps are missing from the trace"
        findings = [Finding(one.id, Outcome.UNDECIDED, why=why) for one in findings]
    claim = judge.books.claim_on(book.pipe)
    fallen = rest.faults(book.pipe, book.sender, has_dead=dead > 0)
    return PipeAudit(
        pipe=book.pipe,
        accepted=book.positions.count - (optional - optional_out),
        settled=book.settled.count() - dead,
        dead=dead,
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
        promised=claimed(claim, (*judge.settings.faults, *fallen)) & frozenset(AUDITED)
        | {"P1", "P17"},
    )


def _loss(judge: Judge, book: Book, *, is_at_rest: bool, by_confirm: int) -> Finding:
    owed = judge.books.owed(book)
    count = owed.count()
    if not is_at_rest:
        why = f"{count} not yet delivered when the trace ends" if count else "the trace ends early"
        return Finding("P2", Outcome.UNDECIDED, why=why)
    if not count:
        why = f"{by_confirm} by their confirm alone: their receiver was killed as it stored them"
        return Finding("P2", Outcome.HELD, why=why if by_confirm else "")
    step = judge.books.end.step if judge.books.end else 0
    cases = tuple(
        Violation("P2", NAMES["P2"], step, never_came_out(first, last), book.pipe, position=first)
        for first, last in owed.lowest(CASES)
    )
    return Finding("P2", Outcome.VIOLATED, count, cases)


def _finding(judge: Judge, book: Book, property_id: str) -> Finding:
    count = judge.counts[property_id, book.pipe]
    if count:
        cases = [
            one for one in judge.violations if one.property == property_id and one.pipe == book.pipe
        ]
        return Finding(property_id, Outcome.VIOLATED, count, tuple(cases))
    if property_id == "P1" and book.untold:
        why = f"{book.untold} came out whose sender was killed before its trace told of them"
        return Finding(property_id, Outcome.UNDECIDED, why=why)
    if property_id == "P1" and not any(book.digests.strip()):
        why = "as far as identities tell; the trace has no digests of payloads"
        return Finding(property_id, Outcome.HELD, why=why)
    if property_id == "P8" and judge.books.is_confirmed_by_store(book.pipe):
        return Finding(
            property_id, Outcome.UNDECIDED, why="a confirm here says that the store has it"
        )
    return Finding(property_id, Outcome.HELD)
