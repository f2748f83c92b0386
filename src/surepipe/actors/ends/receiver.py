"""The receiving end of a pipe, usable alone over a side of a route: what callers hold while actors come and go.

It has a stable address. When its actor dies it gets another life there, a new incarnation of the receiver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from random import Random
from typing import Any, cast

import pykka

from surepipe.actors.consuming.consumer import (
    ConsumerActor,
    ConsumerTask,
    Loop,
    OutletLost,
    StoreClosed,
    TaskLoop,
    Work,
    WorkQueue,
    in_context,
)
from surepipe.actors.consuming.coroutines import CANCEL_S, Coroutines, RunningTask, TaskActor
from surepipe.actors.consuming.lanes import LaneActor, LaneQueue, LaneTask, LaneWork
from surepipe.actors.ends.intake import BEGUN_S, NOTED_S
from surepipe.actors.ends.receiver_host import IN_DOUBT, ProgressCheck, ReceiverHost
from surepipe.actors.ends.sender import BUILD_AGAIN_US
from surepipe.actors.ends.stores import CommittableState
from surepipe.actors.host import EndOptions, Host, Node, NodeEnd
from surepipe.actors.inbox import Bell, WatchfulBell
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Actor
from surepipe.actors.store_calls import StateStore, Stores, StreamAccess
from surepipe.actors.supervision import KILL, ActorKeeper
from surepipe.actors.tracing import ReceiverTrace
from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import FencedOut
from surepipe.errors import Fenced as FencedError
from surepipe.errors import (
    MisuseError,
    PipeStopped,
    StacksDiffer,
    StoreReset,
    StoreUnavailable,
    words_of,
)
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.agreement import Terms
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.stack.lanes import KeyOf
from surepipe.pipes.stream.options import stream_layer
from surepipe.pipes.stream.position import Phase, StreamPlace

logger = logging.getLogger("surepipe")
PLACE_S = 10.0
"""So long a reader that starts at the latest may look for its place: a store that is slow for a while answers."""
_GOING_ON = (Phase.DELIVERING, Phase.READING, Phase.WAITING)


class _Question:
    """Asks a store where a stream ends, as an actor of its own: a store may take longer to give up than whoever
    asks has time."""

    def __init__(self, ask: Callable[[], tuple[int, int]], tell: Callable[[], None]) -> None:
        self._ask, self._tell = ask, tell
        self.answer: tuple[int, int] | None = None
        self.error: BaseException | None = None

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or self.error is not None

    def receive(self, message: object) -> None:
        del message
        try:
            self.answer = self._ask()
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
            self.error = error
        self._tell()

    def died(self, error: BaseException) -> None:
        self.error = error
        self._tell()


class ReceiverEnd(NodeEnd):
    """The receiving end of a pipe over one side of a route.

    ``works`` is where deliveries wait for whoever consumes them: ``consume`` starts an actor for that, or pull
    from it. Raises ConfigurationError before anything is started.
    """

    side_name = "receiver"

    def __init__(
        self,
        name: str,
        layers: Sequence[LayerOptions],
        side: RouteSide,
        options: EndOptions | None = None,
        *,
        boundary: BoundaryOptions | None = None,
        state: StateStore | None = None,
        dead_letter: DeadLetterPlace | None = None,
        stream: StreamAccess | None = None,
        apart: bool = False,
        key_of: KeyOf | None = None,
        terms: Terms | None = None,
        node: Node | None = None,
    ) -> None:
        """``key_of`` tells the key of a payload, where the boundary has lanes; it is called in the end's actor.
        ``apart``: the reader's position is in another store than the stream. ``terms``, ``node``: as for a
        sender."""
        stores = Stores.of(state, dead_letter, stream, apart=apart)
        self._boundary = boundary or BoundaryOptions()
        settles_first = self._boundary.boundary is Boundary.BEFORE
        super().__init__(
            *(name, side, options or EndOptions(), stores),
            settles_first=settles_first,
            node=node,
            own_name=stream_layer(layers).reader,
        )
        self._layers = tuple(layers)
        self._state = state
        self._stream = stream
        self._key_of = key_of
        self._terms = terms
        self._begin_receiving()
        self._new_receiver(None)  # built once for its errors, which are the caller's

    def _begin_receiving(self) -> None:
        lanes = self._boundary.lanes
        self.works = LaneQueue(self.runtime, lanes) if lanes else WorkQueue(self.runtime)
        self._progress = ProgressCheck(self.around.bell.ring)
        self._consumers: list[ActorKeeper] = []
        self.coroutines: Coroutines = self.runtime.coroutines()
        """What runs the coroutines of the handler."""
        self._is_ending = self._is_finishing = False
        self._actor: ReceiverHost | None = None
        self._lives = 0
        self.place = self.incarnation = 0
        """Over a stream: the next index to settle, and of which incarnation of the stream that is."""
        self.has_place = False
        """Over a stream: the store has the place where it begins."""
        self.target = (0, 0)
        """Where the works end once they are to end: incarnation and index. An index alone says nothing.

        1. A receiver has settled five messages, and its Redis is emptied. 2. A sender begins anew, and the stream
        ends at 2. 3. Five is more than 2, and yet the message at 1 was never read.
        """
        self._asks_for_end = False
        self._look_again_at = 0
        self.comes_again = 0
        """At the end: so many messages were handled, and whoever receives next has them again."""

    def open(self) -> None:
        """From the node, which begins: start the clerks and open the route."""
        self._progress.alarm = self.runtime.alarm(self._progress.ring)
        super().open()

    def _build_receiver(self) -> ReceiverStack:
        self._lives += 1
        return self._new_receiver(self._state)

    def _new_receiver(self, state: StateStore | None) -> ReceiverStack:
        stack = ReceiverStack(
            self.name,
            self._layers,
            rng=Random(self.rng.getrandbits(64)),
            boundary=self._boundary,
            state=self._state_in(state) if state else None,
            reverse=self._side.has_reverse,
            key_of=self._key_of,
            life=self._lives,
            terms=self._terms,
        )
        stack.asserts = self.options.asserts
        stack.knows_writers = self._stream is not None
        return stack

    def _state_in(self, state: StateStore) -> bytes | None:
        with self.silences.asking(
            self._stores.kept_in, "load", "the receiver's state waits"
        ) as asked:
            found = state.load()
            if found is None:  # over a stream nobody was asked: the machine does that
                asked.is_answered = None
        if fallen := state.rollback():
            self.around.notices.tell(Notice(NoticeKind.STATE_ROLLBACK, 0, (), fallen))
        return found

    def new_life(self) -> Host[Any]:
        """From the node: the host of an incarnation that is about to begin."""
        actor = ReceiverHost(
            self.around,
            self.works,
            self._progress,
            self._build_receiver,
            self._side.taken,
            watcher=self,
        )
        actor.ending, actor.finishing = self._is_ending, self._is_finishing
        self._actor = actor
        if self._trace is not None:
            self._trace.start(self.address, self.traced_pipe, **self._reads)
            trace = ReceiverTrace(self._trace, self.address, self.traced_pipe)
            actor.traced_by(trace)
            if self._stream is not None and not self._trace.with_reasons and len(self._layers) == 1:
                start = stream_layer(self._layers).start
                self._stream.tell_beginning(trace.began, always=start not in ("earliest", 1))
        return actor

    def is_at_rest(self, host: Host[Any]) -> bool:
        """Nothing is in work, and over a stream everything in it is settled."""
        actor = self._receiver_of(host)
        if not super().is_at_rest(host) or not actor.machine.idle:
            return False
        return self._stream is None or self._is_at_end_of(self._stream, actor.place)

    @staticmethod
    def _is_at_end_of(stream: StreamAccess, place: StreamPlace | None) -> bool:
        try:
            if place is None:
                return False
            incarnation, following = stream.end()
            return place.incarnation == incarnation and place.work.next >= following
        except (StoreUnavailable, StoreReset):
            return False

    def mismatched(self, why: str) -> None:
        """The sender is configured differently: nothing of it is handled. The actor stays, to tell it why."""
        self.stop_for_good(self._stopped(why, StacksDiffer))

    def leave_behind(self, error: PipeStopped) -> None:
        self.works.renew_locks(self.runtime)
        super().leave_behind(error)

    def raise_from_now_on(self, error: PipeStopped) -> None:
        """Whoever takes messages, or waits for their end, gets this error. Works that are there already are done
        first."""
        self.works.end(error)

    @property
    def _handler_address(self) -> str:
        return f"{self.name}/handler"

    def consume(self, loop: Loop) -> None:
        """Start an actor that takes works through this loop, or one for each lane, in the context of this call.
        Raises MisuseError when there is one."""
        self._require_no_consumer()
        works, loop = self.works, in_context(copy_context(), loop)
        if isinstance(works, LaneQueue):
            bells = [Bell() for _ in range(works.lanes)]
            works.serve_lanes(bells)
            for lane, bell in enumerate(bells):
                self._keep(f"-{lane}", bell, self._new_lane(works, loop, lane, bell))
        else:
            bell = Bell()
            self._keep("", bell, lambda: ConsumerActor(works, loop, bell, self._consumer_died))
            works.serve(bell)

    def run_coroutines_on(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        """The coroutines of the handler to come run on this loop. Raises MisuseError in virtual time."""
        before, self.coroutines = self.coroutines, self.runtime.coroutines(loop, thread)
        before.close()
        self.works.signal.loop_thread = thread

    def consume_in_tasks(self, loop: TaskLoop, on: asyncio.AbstractEventLoop) -> None:
        """The same in tasks of this event loop."""
        self._require_no_consumer()
        context = copy_context()

        def start(actor: TaskActor, suffix: str) -> RunningTask:
            return RunningTask(on, actor, f"{self._handler_address}{suffix}", context)

        works = self.works
        if isinstance(works, LaneQueue):
            bells = [self._watchful_bell(lane) for lane in range(works.lanes)]
            works.serve_lanes(bells, one_at_a_time=False)
            for lane, bell in enumerate(bells):
                self._keep(f"-{lane}", bell, self._new_lane_task(start, works, loop, lane, bell))
        else:
            bell = self._watchful_bell(0)
            self._keep(
                "", bell, lambda: start(ConsumerTask(works, loop, bell, self._consumer_died), "")
            )
            works.serve(bell)

    def _require_no_consumer(self) -> None:
        if self._consumers:
            raise MisuseError(
                f"pipe {self.name} has a handler already: one handler takes all messages; "
                "make it pass them on to several"
            )

    def _watchful_bell(self, lane: int) -> Bell:
        def look_after() -> None:
            self._consumers[lane].look_after()

        return WatchfulBell(look_after)

    def _new_lane_task(
        self,
        start: Callable[[TaskActor, str], RunningTask],
        works: LaneQueue,
        loop: TaskLoop,
        lane: int,
        bell: Bell,
    ) -> Callable[[], RunningTask]:
        return lambda: start(LaneTask(lane, works, loop, bell, self._lane_died), f"-{lane}")

    def _new_lane(
        self, works: LaneQueue, loop: Loop, lane: int, bell: Bell
    ) -> Callable[[], LaneActor]:
        return lambda: LaneActor(lane, works, loop, bell, self._lane_died)

    def _keep(self, suffix: str, bell: Bell, make: Callable[[], Actor | RunningTask]) -> None:
        address = f"{self._handler_address}{suffix}"
        keeper = ActorKeeper(self.runtime, address, make, self.gave_up, self.options.restarts)
        self._consumers.append(keeper)
        bell.tell = keeper.tell
        keeper.start()

    def crash_consumer(self, lane: int = 0) -> None:
        """Let an actor that runs the handler die as a defect would, for fault injection."""
        if self._consumers:
            self._consumers[lane].tell(KILL)

    @property
    def has_consumer(self) -> bool:
        """True once ``consume`` was called."""
        return bool(self._consumers)

    def _consumer_died(self, error: BaseException) -> None:
        self._lane_died(0, error)

    def _lane_died(self, lane: int, error: BaseException) -> None:
        # What it had in work will never be answered: only a new incarnation brings that again.
        self.crash()
        self._consumers[lane].died(error)

    @property
    def boundary(self) -> Boundary:
        """When a message is settled."""
        return self._boundary.boundary

    @property
    def has_lanes(self) -> bool:
        """True when messages of different keys are handled at once."""
        return self._boundary.lanes > 0

    def gauges(self) -> dict[str, int]:
        """What stands in the machine, and how many of the lanes are at work."""
        gauges = super().gauges()
        if self.has_lanes:
            gauges |= {"lanes": self._boundary.lanes, "lanes_busy": len(self.leases())}
        return gauges

    @property
    def keyless_for(self) -> str:
        """Why the key of a message can't be told that has no place to go; empty while there is none."""
        host = self._actor
        machine = host.machine if host is not None and host.is_built else None
        return machine.delivery.keyless_for if isinstance(machine, ReceiverStack) else ""

    def leases(self) -> list[LaneWork]:
        """The work of each lane; empty without lanes."""
        return self.works.leases() if isinstance(self.works, LaneQueue) else []

    def died(self, host: Host[Any], error: BaseException) -> None:
        """From the node: its actor has died."""
        self.works.begin()  # what its consumer still does can't be committed any more
        self._tell_lost()
        super().died(host, error)

    # Over a stream, and with effects in a transaction.

    def looked(self, actor: ReceiverHost, place: StreamPlace) -> bool:
        """Note how far a stream was read; True when that is as far as was asked for."""
        if place.phase is Phase.STOPPED and not self.works.ended:
            (self.mismatched if actor.mismatch else self.gave_up)(
                actor.mismatch or place.why_stopped
            )
        if not self.has_place and place.has_begun:
            self.has_place = True
            self.works.signal.notify()
        if (place.incarnation, place.work.next) != (self.incarnation, self.place):
            self.incarnation, self.place = place.incarnation, place.work.next
            self.works.signal.notify()
        is_elsewhere = self.target[0] not in (0, self.incarnation)
        self._asks_for_end |= is_elsewhere and place.phase in _GOING_ON
        return self._has_target() and self._is_past(self.target)

    def _is_past(self, end: tuple[int, int]) -> bool:
        incarnation, following = end
        return self.incarnation == incarnation and self.place >= following

    def _has_target(self) -> bool:
        """False while the store does not say where the stream ends; it is asked again."""
        if self._asks_for_end:
            assert self._stream is not None
            assert self._progress.alarm is not None
            try:
                self.target = self._stream.end()
            except (StoreUnavailable, StoreReset):
                self._progress.alarm.set(self.runtime.now() + BUILD_AGAIN_US)
                return False
            self._asks_for_end = False
        return True

    def troubled(self, actor: ReceiverHost, work: Work) -> None:
        """The store refused the effects of a work. Fenced: for good. Otherwise what is stored is looked at anew,
        and the rest handled again: by this incarnation, which has it in order, or over a stream by the next."""
        trouble = work.trouble
        if isinstance(trouble, FencedError):
            self.replaced(actor, str(trouble))
        elif isinstance(trouble, FencedOut):
            self.replaced(actor, f"owner {trouble.by} receives in its place now")
        elif isinstance(trouble, OutletLost):
            self._stays_ended(actor, NoticeKind.STALLED, str(trouble))
        elif isinstance(trouble, StoreClosed):
            self._stays_ended(actor, NoticeKind.UNANSWERED, str(trouble))
        elif self._committed_state is None:
            self.node.renew(BUILD_AGAIN_US / 1_000_000)
        else:
            actor.in_doubt.append(work)
            self._look_again_at = self.runtime.now() + BUILD_AGAIN_US
            self._ring_for_doubts()

    @property
    def _committed_state(self) -> CommittableState | None:
        """Where effects and state are committed together, and this end can ask what is stored."""
        state = self._state if self._stream is None else None
        is_committed = self._boundary.boundary is Boundary.COMMITTED
        return state if is_committed and isinstance(state, CommittableState) else None

    def _ring_for_doubts(self) -> None:
        """The alarm is that of slow works, too, and may ring too early."""
        assert self._progress.alarm is not None
        self._progress.alarm.set(self._look_again_at)

    def clear_doubts(self, actor: ReceiverHost) -> None:
        """Ask the store what came of works in doubt, not more often than a new incarnation would."""
        state = self._committed_state
        assert state is not None, "only an end that commits has doubts"
        if self.runtime.now() < self._look_again_at:
            self._ring_for_doubts()
            return
        try:
            while actor.in_doubt:
                work = actor.in_doubt[0]
                stored = state.look_again(work.tried[1] if work.tried is not None else None)
                if stored is None:
                    self.node.renew(0)
                    return
                actor.clear_doubt(work, stored=stored)
        except StoreUnavailable:
            self._look_again_at = self.runtime.now() + BUILD_AGAIN_US
            self._ring_for_doubts()
        except FencedError as error:
            self.replaced(actor, str(error))

    def replaced(self, actor: ReceiverHost, why: str) -> None:
        """A store says that a later owner receives. To begin again would depose that one."""
        self._stays_ended(actor, NoticeKind.FENCED, why)

    def has_other_state(self, actor: ReceiverHost, why: str) -> None:
        """What is stored for it is of another stack: to begin without it would handle messages again."""
        self._ends_here(actor, NoticeKind.MISMATCH, why)
        self.mismatched(why)

    def _stays_ended(self, actor: ReceiverHost, kind: NoticeKind, why: str) -> None:
        self._ends_here(actor, kind, why)
        self.gave_up(why)

    def _ends_here(self, actor: ReceiverHost, kind: NoticeKind, why: str) -> None:
        actor.over = True
        self.node.retire(self)
        self.around.notices.tell(Notice(kind, 0, (), why))

    def state_after(self, work: Work, through: int) -> bytes | None:
        """From the consumer: the state to commit with effects; None when that work's incarnation is gone.

        Raises StoreUnavailable when it does not answer in time, because the process stood still: it is there, and
        must hear that nothing was committed.
        """
        if isinstance(work.owner, ReceiverHost) and work.owner.over:
            return None  # the next one may be waiting for the very store that the consumer holds
        try:
            answer = self.ask(lambda host: self._receiver_of(host).state_after(work, through))
        except (LookupError, pykka.ActorDeadError):
            return None
        except pykka.Timeout:
            raise StoreUnavailable(f"{self.address} gave no state in time") from None
        if answer == IN_DOUBT:
            raise StoreUnavailable(f"{self.address} does not know yet what came of the last commit")
        return cast("bytes | None", answer)

    def stateless(self, actor: ReceiverHost, why: str) -> None:
        """Another incarnation has the state now, or its store is closed. (Where a stream's reader hears of it
        first, see ``looked``.)"""
        place = actor.place
        if place is None or place.phase is not Phase.STOPPED:
            actor.over = True
            self.node.retire(self)
            self.gave_up(why)

    def crossed(self, work: Work, through: int) -> None:
        """From a store: the effects of a work are stored so far, whether or not anybody will hear of it."""
        if isinstance(work.owner, ReceiverHost):
            work.owner.crossed(work, through)

    def reads_as(self, stream: str, reader: str) -> bool:
        """Whether this end is that reader of that stream."""
        layer = stream_layer(self._layers)
        mine = layer.stream or self.name, layer.reader or self.name
        return self._stream is not None and mine == (stream, reader)

    @property
    def _reads(self) -> dict[str, object]:
        """Over a stream: who reads it, and from where on, as a trace tells it."""
        layer = stream_layer(self._layers)
        if self._stream is None:
            return {}
        place: dict[str, object] = {
            "reader": layer.reader or self.name,
            "start": layer.start or "earliest",
        }
        if layer.stream:
            place["stream"] = layer.stream
        return place

    @property
    def starts_at_latest(self) -> bool:
        """Over a stream: a reader without a position passes over what is there when it begins."""
        return stream_layer(self._layers).start == "latest"

    def await_place(self) -> None:
        """Over a stream: wait until the store has the place where this reader begins, so that everything which is
        confirmed from now on comes. One that stopped is asked elsewhere why.

        Where the store does not say, another start than "latest" misses nothing, and goes on when it does. Raises
        StoreUnavailable where it would.
        """
        if self._stream is None or not self.node.is_started:
            return
        works, is_latest = self.works, self.starts_at_latest
        limit = PLACE_S if is_latest else BEGUN_S
        begun = works.signal.wait(lambda: self.has_place or works.ended, limit)
        if is_latest and not begun:
            silent = self.silences.text() or f"store {self._stores.streams_in} has not said where"
            raise StoreUnavailable(
                f"pipe {self.name}: a reader that starts at the latest has found no place in {limit:g} s, and "
                f"would miss what is stored meanwhile: {silent}. Make it again when the store answers"
            )

    def read_all(self) -> None:
        """The works end when everything is settled that is in the stream now, or where the store does not say how
        far that is, as soon as it does: who wants the end may never say so again, as a signal."""
        assert self._stream is not None
        try:
            self.target = self._stream.end()
        except (StoreUnavailable, StoreReset) as error:
            if not self.works.ended:
                logger.warning(
                    "pipe %s: finish waits until the store says where the stream ends, and goes on asking: %s",
                    *(self.name, words_of(error)),
                )
            self.expect_end_of_stream()
        else:
            self.expect_end()

    def expect_end_of_stream(self) -> None:
        """The works end when everything is settled that is in the stream once the store says where that ends."""
        self._asks_for_end = True
        self.expect_end()

    def await_end(self, timeout: float | None) -> bool:
        """Wait until no message will come any more; False when that takes longer. Raises PipeStopped when the
        receiver stopped for good."""
        works = self.works
        works.signal.wait(lambda: works.ended, timeout)
        works.raise_failure()
        return works.ended

    def catch_up(self, timeout: float | None) -> bool:
        """Wait until everything is settled that is in the stream now; False when that takes longer, or the store
        does not say in time how far that is.

        Raises StoreUnavailable without a timeout, StoreReset when the stream is gone, and PipeStopped when the
        receiver stopped for good.
        """
        assert self._stream is not None
        works, begun = self.works, self.runtime.now()
        works.raise_failure()
        try:
            target = self._stream.end() if timeout is None else self._end_within(timeout)
        except StoreReset:
            works.raise_failure()
            raise
        if target is None:
            return False
        if (
            timeout is not None
        ):  # one that was just made learns first how far it was, which is no wait for more
            works.signal.wait(lambda: works.ended or self.incarnation > 0, BEGUN_S)
            timeout = max(0.0, timeout - (self.runtime.now() - begun) / 1_000_000)
        self._tell_of_later_start(target, BEGUN_S if timeout is None else 0.0)
        streams = (0, self.incarnation, target[0])

        def is_there() -> bool:
            return works.ended or self._is_past(target) or self.incarnation not in streams

        works.signal.wait(is_there, timeout)
        works.raise_failure()
        return self._is_past(target)

    def _tell_of_later_start(self, end: tuple[int, int], begun_s: float) -> None:
        """Log why nothing is settled of what is in the stream: this reader is to begin behind all of it.
        ``begun_s``: how long it may take to find that it has a place already."""
        works, start = self.works, stream_layer(self._layers).start
        if not isinstance(start, int) or start <= end[1]:
            return
        if not works.signal.wait(lambda: works.ended or self.incarnation > 0, begun_s):
            logger.warning(
                "pipe %s: catch_up waits for messages that are still to come: this reader has no place yet and "
                "begins at entry %d (start), and the next that comes into the stream is entry %d",
                *(self.name, start, end[1]),
            )

    def _end_within(self, timeout: float) -> tuple[int, int] | None:
        """Where the stream ends; None when the store does not say so in time (to look may take a second). A store
        that has refused is asked again."""
        works, until = self.works, self.runtime.now() + round(max(timeout, BEGUN_S) * 1_000_000)

        def left_s() -> float:
            return max(0, until - self.runtime.now()) / 1_000_000

        def has_failed() -> bool:
            return works.failure is not None

        while left_s() and not has_failed():
            question = self._ask_for_end(left_s())
            if question.answer is not None:
                return question.answer
            if not isinstance(question.error, StoreUnavailable | None):
                raise question.error
            works.signal.wait(has_failed, min(left_s(), BUILD_AGAIN_US / 1_000_000))
        works.raise_failure()
        return None

    def _ask_for_end(self, timeout: float) -> _Question:
        assert self._stream is not None
        works = self.works
        question = _Question(self._stream.end, works.signal.notify)
        asking = self.runtime.start(question, f"{self.address}/question")
        asking.tell(None)
        asking.stop()
        works.signal.wait(
            lambda: question.is_answered or works.failure is not None,
            timeout,
        )
        return question

    def unread(self) -> int:
        """Over a stream: how many messages in it are not settled, as far as this end knows. Raises
        StoreUnavailable, StoreReset."""
        assert self._stream is not None
        if not self.place:
            return 0
        incarnation, following = self._stream.end()
        return max(0, following - (self.place if incarnation == self.incarnation else 1))

    def expect_end(self) -> None:
        """The sender has finished: once what has arrived is handled, no more works will come."""
        self._is_ending = True
        if self._actor is not None:
            self._actor.ending = True
        self.around.bell.ring()

    def take_no_more(self) -> None:
        """The works end when everything is settled that has arrived by now; what comes later is not taken."""
        self._is_finishing = True
        if self._actor is not None:
            self._actor.finishing = True
        self.expect_end()

    def _close_machine(self, host: Host[Any]) -> None:
        """In the actor: deliver nothing more, and confirm what is settled."""
        self._receiver_of(host).close()

    def _receiver_of(self, host: Host[Any]) -> ReceiverHost:
        """The part of this end's actor that receives."""
        assert isinstance(host, ReceiverHost)
        return host

    def fill_gaps(self, timeout: float) -> bool:
        """Before ``stop_consuming``, with lanes: handle what waits below something that is handled or being
        handled, and begin nothing above, so that nothing comes again. False when that takes longer."""
        if not (self.has_lanes and self.node.is_started) or self._is_stopped or self.works.ended:
            return True
        try:
            answer = self.ask(lambda host: self._receiver_of(host).fill_gaps())
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return True  # between two lives nothing is in work
        host = cast("ReceiverHost", answer)
        return self.works.signal.wait(
            lambda: host.has_filled or self.works.ended or self._actor is not host, timeout
        )

    def stop_consuming(self, timeout: float) -> bool:
        """Finish the message that is being handled, and take none after it. False when that takes longer."""
        self.works.cancel()
        for consumer in self._consumers:
            consumer.stop()
        self._tell_lost()
        return self._have_ended(timeout)

    def _have_ended(self, timeout: float) -> bool:
        """Wait for the ends of all that run the handler; False when one of them takes longer."""
        end = self.runtime.now() + round(timeout * 1_000_000)
        busy = [consumer for consumer in self._consumers if not consumer.join(self._left(end))]
        return not busy

    def _tell_lost(self) -> None:
        """Say how many messages count as handled, and never will be: nobody brings them again."""
        lost, self.works.lost = self.works.lost, 0
        if lost:
            logger.warning(
                "pipe %s: %d %s lost that no handler has had: with boundary %s %s settled before",
                *(self.name, lost, "message is" if lost == 1 else "messages are"),
                *(self._boundary.boundary, "it was" if lost == 1 else "they were"),
            )

    def stop(self, timeout: float) -> bool:
        """Finish the message that is being handled, confirm what is settled, and end.

        False when a handler is still busy after ``timeout`` seconds: its thread goes on, what it handles is
        not confirmed. A coroutine handler is cancelled then.
        """
        if not self.node.is_started or self._is_stopped:
            self.works.end()
            is_ended = self._is_stopped or self.stop_consuming(timeout)
            self.coroutines.close()
            if self._progress.alarm is not None:
                self._progress.alarm.close()
            return super().stop(timeout) and is_ended
        end = self.runtime.now() + round(timeout * 1_000_000)
        is_ended = self.stop_consuming(timeout) or self._cancel_coroutines()
        try:
            self.ask(self._close_machine)
            self._await_stored(end)
            self.comes_again = self._actor.comes_again if self._actor is not None else 0
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            logger.debug("%s is between two lives: there is nothing to confirm", self.address)
        is_ended = super().stop(max(self._left(end), 1.0)) and is_ended
        self._tell_lost()  # what was on its way to the handler when that was stopped
        if self._progress.alarm is not None:
            self._progress.alarm.close()
        self.coroutines.close()
        return is_ended

    def _await_stored(self, end: int) -> None:
        """What was settled last may wait for the answer to the write before, or for a store that is locked or
        away, and would be handled again.

        1. A state is being written. 2. The handler returns. 3. The pipe ends before 1 is answered.
        """
        host = self._actor
        if host is None:
            return
        left = min(self._left(end), NOTED_S)
        is_over = self.works.signal.wait(
            lambda: host.has_stored or self._actor is not host, max(left, BEGUN_S)
        )
        if not is_over:
            logger.warning(
                "%s: its store could not be told of what was handled last, which may be handled again",
                self.address,
            )

    def _cancel_coroutines(self) -> bool:
        """End handlers in the middle of a message; True when none is left. One may take a while, or refuse."""
        are_ending = [consumer.cancel() for consumer in self._consumers]
        are_ending.append(self.coroutines.cancel())
        return any(are_ending) and self._have_ended(CANCEL_S)
