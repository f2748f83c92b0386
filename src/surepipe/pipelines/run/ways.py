"""Which pipes of a node are through, and when each is told that nothing more comes: in the order of the flow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surepipe.actors.ends.pipe import Pipe
from surepipe.actors.ends.remote import PipeReceiver, PipeSender, StreamReceiver, StreamSender
from surepipe.errors import ConfigurationError, StoreReset, StoreUnavailable
from surepipe.pipelines.engine_limits import home_of
from surepipe.pipelines.links import link
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import StagePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipelines.run.feeding import Feed
from surepipe.pipelines.run.pipes import AnyFace, receives_at, sends_at
from surepipe.pipes.stack.boundary import Boundary


def _carried(pipe: PipePart, *, sends: bool, receives: bool) -> Iterator[str]:
    """The stores that a relay needs, where this node has the one of the pipe."""
    between = pipe.ibc
    if between is not None and {"sender": sends, "receiver": receives}.get(between.relay):
        yield from (between.sends.store, between.receives.store)


# Questions about a plan that are asked while one node of it is assembled.


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan as one of its nodes sees it."""

    plan: Plan
    node: str

    def is_here(self, name: str) -> bool:
        """True when this part (of a pipe: its receiver) runs on the node."""
        return self.plan.places[name].node == self.node

    def sends(self, pipe: PipePart) -> bool:
        """True when the sender of a pipe runs on the node."""
        return sends_at(self.plan, pipe, self.node)

    def receives(self, pipe: PipePart) -> bool:
        return receives_at(self.plan, pipe, self.node)

    def stores_used(self) -> set[str]:
        """Those that the parts of this node need."""
        used: set[str] = set()
        for part in self.plan.parts:
            if isinstance(part, PipePart):
                used |= self.stores_of(part)
            elif self.is_here(part.name):
                used |= {use.store for use in link(part).stores}
        return used

    def stores_of(self, pipe: PipePart) -> set[str]:
        """Those that the ends of a pipe need that are here."""
        sends, receives = self.sends(pipe), self.receives(pipe)
        roles = (
            pipe.stream_store if receives else None,
            pipe.taking_store if sends else None,
            *_carried(pipe, sends=sends, receives=receives),
            pipe.journal if sends else None,
            pipe.state if receives else None,
        )
        return {role for role in roles if role is not None}

    def is_committed(self, pipe: str) -> bool:
        """True when a pipe's effects belong to a transaction."""
        return self.plan.pipe(pipe).settled is Boundary.COMMITTED

    def home_of(self, pipe: PipePart) -> str:
        """The store of a receiver's state, which its transactions belong to. Raises ConfigurationError."""
        home = home_of(pipe)
        if home is None:
            raise ConfigurationError(
                f"pipe {pipe.name}: boundary committed needs a state: name a store"
            )
        return home

    def pipes_behind(self, name: str) -> list[PipePart]:
        """The pipes that a source feeds, through whatever stages."""
        found: dict[str, PipePart] = {}
        for taker in self.plan.takers(name):
            if isinstance(taker, PipePart):
                found[taker.name] = taker
            else:
                found |= {pipe.name: pipe for pipe in self.pipes_behind(taker.name)}
        return list(found.values())

    def stages_behind(self, name: str) -> list[StagePart]:
        """The stages between a part and the next pipes."""
        found: list[StagePart] = []
        for taker in self.plan.takers(name):
            if isinstance(taker, StagePart):
                found += [taker, *self.stages_behind(taker.name)]
        return found

    def at_once(self, pipe: PipePart) -> set[str]:
        """Sinks behind a pipe that can't be had alone for long: it has lanes, or other pipes feed them too."""
        if self.is_committed(pipe.name):
            return set()
        reached = {part.name for part in self.plan.reach(pipe.name)} & {
            sink.name for sink in self.plan.sinks
        }
        if pipe.workers:
            return reached
        return {name for name in reached if len(self.plan.pipes_before(name)) > 1}


# Whether a pipe, or an end of one, has nothing to do at present, though more may come.


def has_handled_all(face: Pipe | PipeReceiver | StreamReceiver) -> bool:
    """True when consumers have nothing in work that arrived."""
    works = face.receiver.works
    return not works.has_unhandled and not works.running()


def is_at_rest(face: Pipe | PipeSender | StreamSender) -> bool:
    """True when all that was sent is through, though the pipe still takes messages."""
    if face.sender.waiting or not face.sender.asked_at_rest():
        return False
    return not isinstance(face, Pipe) or (has_handled_all(face) and face.receiver.asked_at_rest())


def has_caught_up(face: StreamReceiver) -> bool:
    """False also while the store does not say where the stream ends.

    With boundary ``handed`` or ``before`` the position is at the end before the handler is: who ended then would
    take what still waits for it along, and it is never read again.
    """
    try:
        return face.catch_up(0.0) and has_handled_all(face)
    except (StoreUnavailable, StoreReset):
        return False


def _is_fed_elsewhere(face: AnyFace | None) -> bool:
    """Another process fills it."""
    if isinstance(face, BookPipe):
        return not face.sends
    return isinstance(face, PipeReceiver | StreamReceiver)


_SETTLES_EARLY = (Boundary.HANDED, Boundary.BEFORE)
GAPS_US = 10_000_000
"""So long a stop waits, with lanes, for messages that are older than a handled one: one may keep failing."""


class Ways:
    """The pipes of a node and what fills them.

    ``once`` and ``until_idle`` are those of ``Engine``. A pipe is *fed up* when nothing more comes into it from
    this node, *over* when nothing comes out of it any more, *drained* when all that came in is through.
    """

    def __init__(
        self, shape: Shape, faces: Mapping[str, AnyFace], *, once: bool, until_idle: bool
    ) -> None:
        self._shape = shape
        self._faces = faces
        self._once = once
        self._until_idle = until_idle
        self._is_stopping = False
        self._gaps_until: int | None = None
        self._finished: set[str] = set()
        self._feeds: defaultdict[str, list[Feed]] = defaultdict(list)

    def fed_by(self, pipe: str, feed: Feed) -> None:
        """Note that a feed fills this pipe."""
        self._feeds[pipe].append(feed)

    def in_order(self) -> Iterator[PipePart]:
        """The pipes that have an end here, in the order of the flow."""
        return (
            part
            for part in self._shape.plan.order
            if isinstance(part, PipePart) and part.name in self._faces
        )

    def stop(self) -> None:
        """From now on ends that receive from another process, or from a stream, take nothing more."""
        self._is_stopping = True

    def begin_nothing_more(self, name: str) -> None:
        """An end with lanes that receives from another process, or from a stream, is to be closed, stopped before
        or not: it ends after the messages that it is at."""
        face = self._faces[name]
        if isinstance(face, PipeReceiver | StreamReceiver) and face.receiver.has_lanes:
            face.receiver.stop_consuming(0.0)

    def finish_when_fed_up(self, pipe: PipePart) -> None:
        """Tell a pipe that nothing more comes, as soon as that is so."""
        if pipe.name in self._finished or not self._is_fed_up(pipe):
            return
        self._finished.add(pipe.name)
        face = self._faces[pipe.name]
        if isinstance(face, Pipe | BookPipe):
            face.finish()
        elif isinstance(face, PipeSender | StreamSender):
            face.sender.finish()

    def are_drained(self) -> bool:
        """Asked in the order of the flow: what leaves one pipe during these questions is seen in the next."""
        return all(self.is_drained(pipe.name) for pipe in self.in_order())

    def _is_fed_up(self, pipe: PipePart) -> bool:
        if not self._shape.sends(pipe):
            return False
        feeds = self._feeds[pipe.name]
        before = self._shape.plan.pipes_before(pipe.name)
        return all(feed.ended for feed in feeds) and all(self.is_over(name) for name in before)

    def is_over(self, name: str) -> bool:
        """Nothing comes out of this pipe any more. One that another process fills is not over when it is idle."""
        is_elsewhere = _is_fed_elsewhere(self._faces.get(name))
        is_ended = self._is_stopping if is_elsewhere else name in self._finished
        return is_ended and self.is_drained(name)

    def _stays_open(self, name: str) -> bool:
        """A pipe of another process is before it, and more may come from there."""
        return not self._is_stopping and any(
            _is_fed_elsewhere(self._faces.get(one)) or self._stays_open(one)
            for one in self._shape.plan.pipes_before(name)
        )

    def is_drained(self, name: str) -> bool:  # noqa: PLR0911 - one line for each kind of end
        """All that came into this pipe is through, as far as this node can tell."""
        face = self._faces.get(name)
        if face is None:
            return False
        if isinstance(face, BookPipe):
            return self._is_book_drained(name, face)
        if isinstance(face, PipeReceiver | StreamReceiver):
            return self._takes_no_more(face) if self._is_stopping else self._has_all(face)
        if name not in self._finished:
            is_fed = all(feed.ended or feed.rests for feed in self._feeds[name])
            return is_fed and self._stays_open(name) and is_at_rest(face)
        is_kept = self._is_stopping and self._is_kept(name)
        if isinstance(face, Pipe):
            is_left = self._is_stopping and self._shape.plan.pipe(name).stream_store is not None
            if not (is_kept or is_left):
                return face.receiver.works.ended and not face.receiver.works.has_unhandled
            # What is in a store is not taken: it stays there for the next run, and handling it all could take
            # longer than whoever sent the signal waits.
            return (is_kept or _has_stored_all(face)) and self._takes_no_more(face)
        return is_kept or _has_stored_all(face)

    def _is_book_drained(self, name: str, face: BookPipe) -> bool:
        """What is in a book is stored: who only fills it has nothing to wait for, and a stop leaves it there."""
        if self._is_stopping and face.receives:
            return face.stop_consuming()
        if face.sends and name not in self._finished:
            is_fed = all(feed.ended or feed.rests for feed in self._feeds[name])
            return is_fed and self._stays_open(name) and (not face.receives or face.is_through())
        if not face.receives:
            return True
        return (face.sends or self._once) and face.is_through()

    def _is_kept(self, name: str) -> bool:
        """What this pipe accepted is in a store from the moment when it was accepted."""
        return self._shape.plan.pipe(name).journal is not None

    def leaves_some(self, name: str) -> bool:
        """Its end is not to be waited for: what is not through stays in its journal."""
        return self._is_stopping and name in self._finished and self._is_kept(name)

    def _has_all(self, face: PipeReceiver | StreamReceiver) -> bool:
        if isinstance(face, StreamReceiver):
            return self._once and has_caught_up(face)
        return self._until_idle and has_handled_all(face)

    def _takes_no_more(self, face: Pipe | PipeReceiver | StreamReceiver) -> bool:
        """Its consumers have ended, after the message that they were at: only then may what is behind it end.

        What waits is unsettled, and comes again, unless it counts as settled before it is processed. With lanes
        what is older than a message that was handled goes first: otherwise that one would come again.
        """
        if not face.receiver.fill_gaps(0.0) and self._has_time_for_gaps(face):
            return False
        if face.receiver.boundary in _SETTLES_EARLY and not has_handled_all(face):
            return False
        return face.receiver.stop_consuming(0.0)

    def _has_time_for_gaps(self, face: Pipe | PipeReceiver | StreamReceiver) -> bool:
        now = face.receiver.runtime.now()
        if self._gaps_until is None:
            self._gaps_until = now + GAPS_US
        return now < self._gaps_until


def _has_stored_all(face: Pipe | PipeSender | StreamSender) -> bool:
    return face.sender.drained and face.sender.asked_at_rest()
