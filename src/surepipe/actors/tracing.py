"""What a real pipe did, as rows for an audit: accepted, delivered, settled, confirmed, dead, and its lives.

A row may speak of thousands of messages, and is written where the thing happens: ``accepted`` before anything is
transmitted, ``settled`` when the boundary is crossed and before the machine hears of it, so before a confirm can
tell the sender. A killed process leaves all rows of what it had done. Without a sink nothing of this runs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol, TypeAlias, TypeVar

from surepipe.actors.consuming.consumer import Work
from surepipe.actors.consuming.coroutines import require_plain
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.runtime import Runtime
from surepipe.core.callables import require_call
from surepipe.core.claims import Guarantee, in_order
from surepipe.core.effects import (
    Accepted,
    Confirmed,
    Deliver,
    JournalContents,
    Key,
    Letter,
    Reject,
    RejectReason,
    Renumbered,
)
from surepipe.core.ranges import RangeSet
from surepipe.errors import ConfigurationError

logger = logging.getLogger("surepipe")
Columns: TypeAlias = Mapping[str, str | int]
EffectT = TypeVar("EffectT")
TRACE_FORMAT = 1


class TraceSink(Protocol):
    """Takes the rows of a trace; ``surepipe.simulation.TraceRecorder`` puts them into a file.

    Called from several threads, for one row at a time of each pipe. What it raises is logged once for each pipe;
    the row is then missing, and an audit says so. One that has a true attribute ``with_reasons`` is told
    of each deadline that has passed and each attempt that failed, too: a simulation judges by them whether there
    was a reason to do something again.
    """

    @property
    def with_digests(self) -> bool:
        """Whether rows should tell a digest of each payload, which costs about a microsecond each."""
        ...

    def write(self, columns: Columns) -> None:
        """Take one row: its columns that are not empty."""
        ...


class Tracing:
    """Numbers the rows of the two ends of one pipe and passes them to a sink."""

    def __init__(self, sink: TraceSink, runtime: Runtime) -> None:
        require_plain("write of the trace", sink.write, "its rows would be lost; give a plain one")
        require_call("write of the trace", sink.write, "columns", ConfigurationError)
        self._sink = sink
        self._now = runtime.now
        self._since = runtime.wall_ms() * 1000 - runtime.now()
        self._run = f"{runtime.wall_ms():x}-{runtime.rng(None).getrandbits(32):08x}"
        self._lock = threading.Lock()
        self._lives: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._promise: Mapping[str, object] = {}
        self._is_broken = False
        self.with_digests = sink.with_digests
        self.with_reasons = getattr(sink, "with_reasons", False) is True

    def promise(self, guarantee: Guarantee, *, stored: bool) -> None:
        """Write down what the pipe promises. ``stored``: its confirms say that a store has the message."""
        claim = {str(atom): list(in_order(faults)) for atom, faults in guarantee.items()}
        facts: dict[str, object] = {"claim": claim}
        if stored:
            facts["confirms"] = "stored"
        self._promise = facts

    def row(self, node: str, kind: str, pipe: str = "", **columns: str | int) -> None:
        """Write a row of this node."""
        with self._lock:
            step = self._steps.get(node, 0)
            self._steps[node] = step + 1
            life = self._lives.get(node, 0)
            told: dict[str, str | int] = {"run": self._run, "node": node, "incarnation": life}
            told |= {"step": step, "time_us": self._since + self._now(), "kind": kind, "pipe": pipe}
            self._write(told | columns)

    def _write(self, columns: Columns) -> None:
        try:
            self._sink.write(columns)
        except BaseException:  # SystemExit too: it would end the actor, and nobody's process
            if not self._is_broken:
                self._is_broken = True
                logger.exception("a row of the trace could not be written, an audit will say so")

    def start(self, node: str, pipe: str, **facts: object) -> None:
        """A new life of this node, and what else is to be known of it. (A simulation knows all ends.)"""
        if not self._lives:
            self.row("run", "run", detail=_text({"clock": "wall", "format": TRACE_FORMAT}))
        with self._lock:
            self._lives[node] = self._lives.get(node, 0) + 1
            self._steps[node] = 0
        told = dict(self._promise) if self.with_reasons else {**self._promise, **facts}
        self.row(node, "start", pipe, detail=_text(told) if told else "")

    def woken(self, node: str, pipe: str) -> None:
        """A deadline of this node has passed."""
        self.row(node, "wake", pipe)

    def crash(self, node: str, pipe: str, why: str) -> None:
        """That life is over, and another one may follow."""
        self.row(node, "crash", pipe, detail=_text({"text": why}))

    def end(self, node: str, pipe: str, *, at_rest: bool) -> None:
        """The node has ended, and whether there was anything left to do."""
        if node in self._lives:
            self.row(node, "end", pipe, detail=_text({"quiescent": at_rest}))

    def letters(
        self, node: str, place: DeadLetterPlace, *, settled: bool = False
    ) -> DeadLetterPlace:
        """The same place for dead letters, and a row for each letter that it has stored.

        ``settled``: by the pipe's boundary messages are settled before they are handled, so a letter settles none.
        """

        def post(letter: Letter) -> object:
            stored = place(letter)
            facts: dict[str, object] = {"cause": letter.error_type}
            if settled:
                facts["settled"] = True
            self.row(
                node,
                "dead",
                _of_producer(letter.pipe, letter.producer),
                epoch=letter.epoch,
                seq=letter.seq,
                count=1,
                attempt=letter.attempts,
                detail=_text(facts),
            )
            return stored

        return post


class FlowTrace:
    """The rows of what stands behind the pipes of one process: what their transactions put into the next pipes,
    and how many messages came of one where that is not one.

    A row ``accepted`` is written when a transaction is known to be done. A process that is killed in between has
    not told of the last one, so each life first tells what the store has of its producer.
    """

    def __init__(self, sink: TraceSink, runtime: Runtime, node: str, name: str) -> None:
        self._tracing = Tracing(sink, runtime)
        self._node = node
        self._name = name
        self._tracing.start(node, name)

    def accepted(self, pipe: str, epoch: int, first: int, count: int) -> None:
        """These are in the next pipe, which is named with its producer."""
        self._tracing.row(self._node, "accepted", pipe, epoch=epoch, seq=first, count=count)

    def stored(self, pipe: str, first: int, last: int, epoch: int = 1) -> None:
        """The store of the next pipe has these, which is no new number of this life."""
        detail = _text({"loaded": True})
        self._tracing.row(
            self._node,
            "accepted",
            pipe,
            epoch=epoch,
            seq=first,
            count=last - first + 1,
            detail=detail,
        )

    def found(self, pipe: str, epoch: int, read: int, last: int) -> None:
        """Former lives have stored all up to ``last``. What has been read may be from before the trace."""
        if read:
            self._tracing.row(self._node, "unknown", pipe, epoch=epoch, seq=1, count=read)
        if last > read:
            self.stored(pipe, read + 1, last, epoch)

    def passed(self, pipe: str, epoch: int, seq: int) -> None:
        """The stored position of the readers is behind this message of a producer, and so behind all before it."""
        self._tracing.row(self._node, "passed", pipe, epoch=epoch, seq=seq)

    def delivered(self, pipe: str, epoch: int, first: int, count: int, attempt: int) -> None:
        """These are about to be passed on."""
        where = {"epoch": epoch, "seq": first, "count": count, "attempt": attempt}
        self._tracing.row(self._node, "delivered", pipe, **where)

    def settled(self, pipe: str, epoch: int, first: int, count: int) -> None:
        """These are passed on for good."""
        self._tracing.row(self._node, "settled", pipe, epoch=epoch, seq=first, count=count)

    def made(self, pipe: str, epoch: int, times: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Of each part, messages in order and how many messages came there of each."""
        runs = {part: _runs_of_times(pairs) for part, pairs in times.items() if pairs}
        if not runs:
            return
        first = min(found[0][0] for found in runs.values())
        last = max(found[-1][1] for found in runs.values())
        self._tracing.row(
            self._node,
            "made",
            pipe,
            epoch=epoch,
            seq=first,
            count=last - first + 1,
            detail=_text({"made": runs}),
        )

    def opened(self, sink: str, size: int) -> None:
        """A file that lines are added to has so many bytes."""
        detail = _text({"sink": sink, "bytes": size})
        self._tracing.row(self._node, "opened", self._name, detail=detail)

    def begun(self, source: str, row: int) -> None:
        """A source is read from behind this row."""
        detail = _text({"source": source, "row": row})
        self._tracing.row(self._node, "opened", self._name, detail=detail)

    def end(self, *, at_rest: bool) -> None:
        """The process ends in good order."""
        self._tracing.end(self._node, self._name, at_rest=at_rest)


def _runs_of_times(pairs: Sequence[tuple[int, int]]) -> list[list[int]]:
    """(number, times) in order as [first, last, times]."""
    runs: list[list[int]] = []
    for number, times in pairs:
        if runs and runs[-1][1] == number - 1 and runs[-1][2] == times:
            runs[-1][1] = number
        else:
            runs.append([number, number, times])
    return runs


class SenderTrace:
    """The rows of one life of a sender."""

    def __init__(self, tracing: Tracing, node: str, pipe: str) -> None:
        self._tracing = tracing
        self._node = node
        self._pipe = pipe
        self._offered: deque[bytes] = deque()
        """Offered and not answered yet; with a journal the answer comes later."""

    def _row(self, kind: str, epoch: int, seq: int, count: int, **more: str | int) -> None:
        self._tracing.row(self._node, kind, self._pipe, epoch=epoch, seq=seq, count=count, **more)

    def loaded(self, contents: JournalContents) -> None:
        """What the journal held was accepted by earlier lives, and perhaps numbered again, which may not have
        lived to say so."""
        for moved in contents.renumbered:
            self.renumbered(moved)
        for rows in contents.rows:
            digests = self._digests(rows.payloads)
            self._row(
                "accepted",
                rows.epoch,
                rows.first,
                len(rows.payloads),
                digests=digests,
                detail=_text({"loaded": True}),
            )

    def offered(self, payloads: Sequence[bytes]) -> None:
        """These are about to be given to the machine."""
        if self._tracing.with_digests:
            self._offered += payloads

    def accepted(self, effect: Accepted) -> None:
        """The machine has taken the next of them."""
        taken = [self._offered.popleft() for _ in range(min(effect.count, len(self._offered)))]
        digests = self._digests(taken)
        self._row("accepted", effect.epoch, effect.first, effect.count, digests=digests)

    def rejected(self, effect: Reject) -> None:
        """The machine has not taken the last of them; for want of room is no answer, they are offered again."""
        for _ in range(min(effect.count, len(self._offered))):
            self._offered.pop()
        if effect.reason is not RejectReason.FULL:
            self._row("rejected", 0, 0, effect.count, detail=_text({"reason": str(effect.reason)}))

    def confirmed(self, effect: Confirmed) -> None:
        """These are settled, as far as the sender is told."""
        for first, last in effect.ranges:
            self._row("confirmed", effect.epoch, first, last - first + 1)

    def renumbered(self, effect: Renumbered) -> None:
        """These have another identity from now on."""
        new = _text({"epoch": effect.new_epoch, "seq": effect.new_first})
        self._row("renumbered", effect.epoch, effect.first, effect.count, detail=new)

    def _digests(self, payloads: Sequence[bytes]) -> str:
        return digests_of(payloads) if self._tracing.with_digests else ""


class ReceiverTrace:
    """The rows of one incarnation of a receiver."""

    def __init__(self, tracing: Tracing, node: str, pipe: str) -> None:
        self._tracing = tracing
        self._node = node
        self._pipe = pipe
        self._lock = threading.Lock()
        self._handed: defaultdict[tuple[str, int], RangeSet] = defaultdict(RangeSet)

    def delivered(self, effect: Deliver, *, settled: bool) -> None:
        """Messages were handed to the consumer, perhaps again after a failure. ``settled``: the pipe's boundary
        settles them with that, if they were not settled before."""
        pipe = _of_producer(self._pipe, effect.producer)
        seqs = effect.seqs or range(effect.first, effect.first + len(effect.payloads))
        at = 0
        for first, last in runs_of(seqs):
            payloads = effect.payloads[at : at + last - first + 1]
            digests = digests_of(payloads) if self._tracing.with_digests else ""
            at += len(payloads)
            where: dict[str, str | int] = {
                "epoch": effect.epoch,
                "seq": first,
                "count": len(payloads),
            }
            if effect.key is not None and not self._tracing.with_reasons:
                where["detail"] = _text({"key": _of_key(effect.key)})
            self._tracing.row(
                self._node, "delivered", pipe, attempt=effect.attempt, digests=digests, **where
            )
            where.pop("detail", None)
            if settled:
                self._handed_over(pipe, effect.epoch, first, last)

    def _handed_over(self, pipe: str, epoch: int, first: int, last: int) -> None:
        known = self._handed[pipe, epoch]
        for start, end in known.missing(first, last):
            where: dict[str, str | int] = {"epoch": epoch, "seq": start, "count": end - start + 1}
            self._tracing.row(self._node, "settled", pipe, **where)
        known.add(first, last)

    def passed(self, producer: str, epoch: int, first: int, last: int) -> None:
        """The stored state that this life begins with is behind these messages."""
        if first <= last and not self._tracing.with_reasons:
            pipe = _of_producer(self._pipe, producer)
            count = last - first + 1
            self._tracing.row(self._node, "passed", pipe, epoch=epoch, seq=first, count=count)

    def began(self, producer: str, epoch: int, seq: int) -> None:
        """A reader that does not read all of its stream begins behind this message of a producer."""
        pipe, detail = _of_producer(self._pipe, producer), _text({"began": True})
        self._tracing.row(self._node, "passed", pipe, epoch=epoch, seq=seq, detail=detail)

    def settled(self, work: Work, through: int) -> None:
        """The consumer has come so far with a work; from any thread."""
        with self._lock:  # the rows too: the actor and the consumer must not overtake each other
            places = range(work.traced + 1, through + 1)
            work.traced = max(work.traced, through)
            seqs = [work.seq_at(place) for place in places] if work.seqs else places
            for first, last in runs_of(seqs):
                self._tracing.row(
                    self._node,
                    "settled",
                    _of_producer(self._pipe, work.producer),
                    epoch=work.epoch,
                    seq=first,
                    count=last - first + 1,
                )

    def failed(self, work: Work, seq: int) -> None:
        """An attempt at this message came to nothing, whoever's fault it was."""
        if self._tracing.with_reasons:
            self._tracing.row(
                self._node,
                "failed",
                _of_producer(self._pipe, work.producer),
                epoch=work.epoch,
                seq=seq,
                count=1,
                attempt=work.attempt,
            )


def sender_pipe(name: str, producer: str) -> str:
    """How rows name the messages of a sender: those of a stream belong to one of its producers."""
    return _of_producer(name, producer)


def _of_producer(pipe: str, producer: str) -> str:
    return f"{pipe}@{producer}" if producer else pipe


def _of_key(key: Key) -> str:
    """Stands for the key of messages, which may be no secret but is nobody's business."""
    return blake2b(repr(key).encode(), digest_size=8).hexdigest()


def digests_of(payloads: Iterable[bytes]) -> str:
    """16 hexadecimal digits for each payload."""
    return "".join([blake2b(payload, digest_size=8).hexdigest() for payload in payloads])


def runs_of(seqs: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Increasing numbers as runs of consecutive ones."""
    if not seqs:
        return
    if isinstance(seqs, range):
        yield seqs[0], seqs[-1]
        return
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last


def _text(facts: Mapping[str, object]) -> str:
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


def after(
    note: Callable[[EffectT], object], perform: Callable[..., object]
) -> Callable[[EffectT], object]:
    """Perform an effect, after it was noted."""

    def both(effect: EffectT) -> None:
        note(effect)
        perform(effect)

    return both
