"""The actor of a receiving end: hands deliveries to the consumer and tells the machine how far these have come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from surepipe.actors.codecs import Undecodable
from surepipe.actors.consuming.consumer import (
    PROGRESS_US,
    GiveUp,
    OutletLost,
    Work,
    WorkQueue,
    cause_of,
    error_text,
)
from surepipe.actors.consuming.lanes import LaneQueue
from surepipe.actors.ends.sender import BUILD_AGAIN_US
from surepipe.actors.host import Host, Surroundings
from surepipe.actors.runtime import Alarm
from surepipe.actors.threads import ThreadRuntime
from surepipe.actors.tracing import ReceiverTrace, after
from surepipe.core.effects import Deliver, Effect, Notice, NoticeKind, Ranges
from surepipe.core.machine import CommittedMachine, ReceiverMachine
from surepipe.errors import Fenced, StacksDiffer, StoreUnavailable, named
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.stream.position import StreamPlace

HANDED_WORKS_MAX = 2
IN_DOUBT = b""
"""No state: what came of another work is not known yet."""


class ProgressCheck:
    """Makes a receiver look at a slow work from time to time. ``due`` is set by the alarm's ring."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self.alarm: Alarm | None = None
        self.armed = False
        self.due = False
        self._ring = ring

    def ring(self) -> None:
        self.due = True
        self._ring()


class ReceivingMachine(ReceiverMachine, Protocol):
    """A machine that a receiver's host can run: a ``ReceiverStack``, or one direction of a channel."""

    @property
    def boundary(self) -> BoundaryOptions:
        """When a message counts as settled."""
        ...

    @property
    def confirms(self) -> bool:
        """True when the sender learns what is settled, and sends again what is not."""
        ...

    def settled_each(self, answers: Sequence[tuple[int, Ranges]], now: int) -> list[Effect]:
        """These messages of these tickets have crossed the boundary."""
        ...

    def take_no_more(self, now: int) -> list[Effect]:
        """What was taken is delivered, and nothing more is taken."""
        ...

    @property
    def differs(self) -> str:
        """How the other end is configured differently; empty while nothing is known of that."""
        ...

    @property
    def has_room(self) -> bool:
        """False while what is in work leaves no room for a whole run more."""
        ...

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        ...

    @property
    def is_stored(self) -> bool:
        """True when what is settled is stored, wherever something of it is."""
        ...


_ENDS = {
    NoticeKind.FENCED: "another process receives in its place now: the notice before this says which",
    NoticeKind.UNANSWERED: "",
}
"""Notices without messages that end a receiver, and what is told of that where the notice itself does not."""


def place_of(machine: object) -> StreamPlace | None:
    """Where a receiver's machine stands in its stream; None when it has none."""
    innermost = machine.layers[-1] if isinstance(machine, ReceiverStack) else None
    return innermost if isinstance(innermost, StreamPlace) else None


class Watcher(Protocol):
    """Called by a receiver's host where the end decides: about stores, about the place in a stream."""

    def looked(self, actor: ReceiverHost, place: StreamPlace) -> bool:
        """After each look over a stream; False while more is to come than what the machine has in work."""
        ...

    def troubled(self, actor: ReceiverHost, work: Work) -> None:
        """The effects of a work could not be committed: ``work.trouble`` is what the store answered."""
        ...

    def clear_doubts(self, actor: ReceiverHost) -> None:
        """Look whether the store tells by now what came of works whose commit nobody heard of."""
        ...

    def stateless(self, actor: ReceiverHost, why: str) -> None:
        """The machine says that its state has no place any more, and why."""
        ...

    def mismatched(self, why: str) -> None:
        """The machine says that the sender is configured differently, and takes nothing of it."""
        ...

    def replaced(self, actor: ReceiverHost, why: str) -> None:
        """The store says the same, before there is a machine."""
        ...

    def has_other_state(self, actor: ReceiverHost, why: str) -> None:
        """What is stored for it is of another stack, so there is no machine."""
        ...


class ReceiverHost(Host[ReceivingMachine]):
    """One incarnation of a receiver."""

    def __init__(
        self,
        around: Surroundings,
        works: WorkQueue,
        progress: ProgressCheck,
        build: Callable[[], ReceivingMachine],
        taken: Callable[[], None],
        *,
        watcher: Watcher | None = None,
    ) -> None:
        super().__init__(around)
        self._works = works
        self._watcher = watcher
        self._progress = progress
        self._build = build
        self._frames_taken = taken
        self._handed = self._settles_first = False
        self._to_look_at: deque[Work] = deque()
        self.in_doubt: list[Work] = []
        """Works of which nobody knows whether they are committed. Nothing else is, until that is known."""
        self._handed_out_through = self._taken_back_through = 0
        """Tickets."""
        self.place: StreamPlace | None = None
        """Where the machine stands in its stream, if it reads one."""
        self.ending = False
        self.finishing = False
        """Only what had arrived is taken any more."""
        self._last_frames: int | None = None
        """So many frames of what had arrived are not taken yet; None while all are taken."""
        self.closing = self.has_stored = False
        self.filling = self.has_filled = False
        """What waits below something settled is handled, and nothing above; and it is done."""
        self.comes_again = 0
        """At the end: so many messages are settled that whoever receives next has again."""
        self._passed_over: deque[Notice] = deque()
        self.perform_by_type[Deliver] = self._deliver
        self._trace: ReceiverTrace | None = None
        self._tells_beginning = False

    def traced_by(self, trace: ReceiverTrace) -> None:
        """Write down what is delivered and settled, before the machine hears of it."""
        self._trace = trace
        self._tells_beginning = True

        def note(effect: Deliver) -> None:
            self._tell_beginning()
            trace.delivered(effect, settled=self._settles_first)

        self.perform_by_type[Deliver] = after(note, self._deliver)

    def _tell_beginning(self) -> None:
        """Once, as soon as it is known: how far the stored state is with which this life begins.

        1. A process commits, and stands still. 2. Its successor goes on behind that. 3. The process wakes up, and
        its row tells of the commit: an audit must know that it was before 2.
        """
        trace, machine = self._trace, self.machine
        if trace is None or not isinstance(machine, ReceiverStack):
            return
        if self._tells_beginning and (self.place is None or self.place.incarnation):
            self._tells_beginning = False
            for producer, epoch, first, last in machine.layers[0].begins_behind():
                trace.passed(producer, epoch, first, last)

    def notice(self, effect: Notice) -> None:
        """Tell the people who run the pipe; one that is fenced, or whose state has no place any more, has come to
        its end."""
        super().notice(effect)
        if (
            effect.kind is NoticeKind.MISMATCH
            and self._watcher is not None
            and self.machine.differs
        ):
            self._watcher.mismatched(effect.detail)
        of_state = effect.kind in _ENDS and not effect.epoch and not effect.ranges
        if of_state and self._watcher is not None and not self.over:
            self._watcher.stateless(self, _ENDS[effect.kind] or effect.detail)

    def passed_over(self, work: Work, first: int, last: int, failure: BaseException) -> None:
        """From the consumer: these were settled when they were handed over, so they are lost, and told."""
        places: Ranges = ((first, last),)
        if work.seqs:
            seqs = [work.seq_at(place) for place in range(first, last + 1)]
            places = tuple(zip(seqs, seqs, strict=True))
        kind, text = error_text(failure)
        detail = (
            f"1 attempt, which raised {named(kind, text)}. With boundary handed a message is settled before its "
            "handler has run, and not tried again: it is lost"
        )
        self._passed_over.append(
            Notice(NoticeKind.POISON, work.epoch, places, detail, work.producer)
        )
        self.around.bell.ring()

    def _tell_passed_over(self) -> None:
        while self._passed_over:
            self.notice(self._passed_over.popleft())

    def crossed(self, work: Work, through: int) -> None:
        """From a store: messages up to this one have crossed the boundary."""
        if self._trace is not None:
            self._trace.settled(work, through)

    def _note_settled(self, work: Work) -> None:
        if self._trace is not None and not self._settles_first:
            self._trace.settled(work, work.last if self._handed else work.done)

    def build(self) -> bool:
        """Build the machine from the stored state; works of a former incarnation are void."""
        try:
            self.machine = self._build()
        except StoreUnavailable:
            self.retry_build_at(self.now() + BUILD_AGAIN_US)
            return False
        except Fenced as error:
            assert self._watcher is not None, "only an end with a state has anything to lose"
            self._watcher.replaced(self, str(error))
            return False
        except StacksDiffer as error:
            assert self._watcher is not None, "only an end with a state has one of another stack"
            self._watcher.has_other_state(self, str(error))
            return False
        self.is_built = True
        self.has_boxes = not self.machine.confirms
        self._handed = self.machine.boundary.boundary is Boundary.HANDED
        self._settles_first = self.machine.boundary.boundary is Boundary.BEFORE
        self.place = place_of(self.machine)
        self._tell_beginning()
        self._works.begin()
        return True

    def look_further(self) -> None:
        """Report to the machine what consumers have done."""
        if self._tells_beginning:
            self._tell_beginning()
        if self._to_look_at:
            if answers := self._ended_well():
                self.perform(self.machine.settled_each(answers, self.now()))
            self._look_at_finished()
        if self._passed_over:
            self._tell_passed_over()
        if self._progress.due:
            self._look_at_slow_work()
        if self.in_doubt and self._watcher is not None:
            self._watcher.clear_doubts(self)
        if self.finishing and self._last_frames is None:
            self._last_frames = 0 if self.machine.confirms else len(self.around.frames)
        if not self.machine.confirms and len(self.around.frames):
            self.take_frames()
        if self._last_frames == 0:
            self.perform(self.machine.take_no_more(self.now()))
        is_all = (
            self._watcher is None or self.place is None or self._watcher.looked(self, self.place)
        )
        if self.ending and is_all and self.machine.idle and not self._has_more:
            self._works.end()
        if self.filling:
            self._tell_filled()
        if self.closing:
            self._tell_stored()

    def _tell_filled(self) -> None:
        if not self.has_filled and not self._stack.has_gaps:
            self.has_filled = True
            self._works.signal.notify()

    @property
    def _stack(self) -> ReceiverStack:
        assert isinstance(self.machine, ReceiverStack), "a direction of a channel has no lanes"
        return self.machine

    def _tell_stored(self) -> None:
        """Whoever closes this end waits for that: an answer that comes later finds nobody."""
        if self.machine.is_stored and not self.has_stored:
            self.has_stored = True
            self._works.signal.notify()

    @property
    def _has_more(self) -> bool:
        """Frames wait that are to be taken."""
        return self._last_frames != 0 and len(self.around.frames) > 0

    def take_frames(self) -> None:
        """Take frames while the machine has room. The others wait here: nobody would send them again."""
        machine, frames = self.machine, self.around.frames
        taken = 0
        while (
            machine.has_room and self._last_frames != 0 and (frame := frames.take_one()) is not None
        ):
            if self._last_frames is not None:
                self._last_frames -= 1
            self.perform(machine.frame(frame, self.now()))
            taken += 1
        if taken:
            self._frames_taken()

    def fill_gaps(self) -> ReceiverHost:
        """With lanes: handle what waits below something settled, and begin nothing above. ``has_filled`` when
        that is done. A second call does nothing.

        1. A lane is at message 3; another has handled 4 to 9. 2. The receiver ends after 3, and 1 and 2 wait for
        their lane. 3. Its place can't pass 1, so whoever receives next handles 3 to 9 again.
        """
        if not (self.filling or self.closing):
            self.filling = True
            self.has_filled = not self.is_built or self._stack.answers_each
            if not self.has_filled:
                self._recall()
        return self

    def _recall(self) -> None:
        assert isinstance(self._works, LaneQueue), "only lanes leave gaps"
        recalled = self._works.recall(self)
        self.perform(self._stack.fill_gaps(self.now()))
        for work in recalled:
            self._give_back(work)
        self.look()

    def _give_back(self, work: Work) -> None:
        """Nobody is at this work, and the machine hands out again what of it is not done."""
        if settled := self._news_of(work):
            self.perform(self.machine.settled(work.ticket, settled, self.now()))
        if work.done < work.last:
            self.perform(self._stack.given_back(work.ticket, self.now()))

    def close(self) -> None:
        """Deliver nothing more; what is being handled is still reported and confirmed."""
        if self.is_built and not self.closing:
            self.closing = True
            self._works.cancel()
            for work in self._works.running():  # a loop that was left open is asked by nobody else
                if work.owner is self:
                    self._look_at(work)
            self.look()
            self._tell_passed_over()
            self.perform(self.machine.close(self.now()))
            if isinstance(self.machine, ReceiverStack):
                self.comes_again = self.machine.comes_again
            self._tell_stored()

    # Works.

    def _deliver(self, effect: Deliver) -> None:
        work = Work(effect, self)
        work.may_repeat = not self._handed
        work.settled_first = self._settles_first
        self._handed_out_through = effect.ticket
        is_crowded = self._works.ended or len(self._works) >= HANDED_WORKS_MAX
        self._works.put(work)
        if self._handed and not is_crowded:
            self._to_look_at.append(work)  # the next consumer's inbox has it: that is the boundary
            self.around.bell.ring()

    def taken(self, work: Work) -> None:
        """From the consumer: it begins with this work."""
        progress = self._progress
        if self._handed:
            self.finished(work)
        elif not progress.armed and progress.alarm is not None:
            progress.armed = True
            progress.alarm.set(self.now() + PROGRESS_US)

    def finished(self, work: Work) -> None:
        """From the consumer: it is through with this work."""
        if self._trace is not None:
            self._note_settled(
                work
            )  # even when this incarnation is over: it has crossed the boundary
        self._to_look_at.append(work)
        self.around.bell.ring()

    def _ended_well(self) -> list[tuple[int, Ranges]]:
        """Works that lie next to each other and went well: they are told to the machine in one step."""
        answers: list[tuple[int, Ranges]] = []
        works = self._to_look_at
        while works and not _is_told_alone(works[0]):
            work = works.popleft()
            if settled := self._news_of(work):
                answers.append((work.ticket, settled))
        return answers

    def _look_at_finished(self) -> None:
        while self._to_look_at:
            if answers := self._ended_well():
                self.perform(self.machine.settled_each(answers, self.now()))
            if self._to_look_at:
                self._look_at(self._to_look_at.popleft())

    def _news_of(self, work: Work) -> Ranges:
        """What was done since the last look."""
        through = work.last if self._handed else work.done
        if through <= work.reported:
            return ()
        if self._trace is not None:
            self._note_settled(work)
        settled = ((work.reported + 1, through),)
        if work.seqs:
            settled = ((work.seq_at(work.reported + 1), work.seq_at(through)),)
        work.reported = through
        return settled

    def _look_at(self, work: Work) -> None:
        """Tell the machine what was done since the last look, and why it ended if it did."""
        if settled := self._news_of(work):
            self.perform(self.machine.settled(work.ticket, settled, self.now()))
        if self._is_taken_back(work):
            return
        if work.trouble is not None and self._watcher is not None and not self.over:
            self._watcher.troubled(self, work)
            return
        # Only of a work that has ended: whoever is still at it must find its failure there, and go no further.
        if (work.failure is None and not work.is_recalled) or work in self._works:
            return
        if work.failure is None:
            if not work.cancelled:
                self._give_back(work)
            return
        (place, error), work.failure = work.failure, None
        cause = error.cause if isinstance(error, GiveUp) else error
        if isinstance(cause, OutletLost) and self._watcher is not None:
            work.trouble = cause
            self._watcher.troubled(self, work)
        elif not work.cancelled:
            self._failed(work, work.seq_at(place), error)

    def clear_doubt(self, work: Work, *, stored: bool) -> None:
        """What came of a work is known: what is not in the store is handled once more, before anything else.

        What was handed out behind it comes again, too: begun already, it would be committed first.
        """
        self.in_doubt.remove(work)
        if stored and work.tried is not None:
            work.done = work.tried[0]
        if settled := self._news_of(work):
            self.perform(self.machine.settled(work.ticket, settled, self.now()))
        machine = self.machine
        assert isinstance(machine, CommittedMachine), f"{type(machine).__name__} commits nothing"
        if work.done < work.last:
            self._taken_back_through = self._handed_out_through
            taken_back = [work, *self.in_doubt, *self._works.take_back(self)]
            self.in_doubt.clear()
            if (
                self._trace is not None
            ):  # what the store did not take was an attempt that came to nothing
                for other in taken_back:
                    self._trace.failed(other, other.seq_at(other.done + 1))
            self.perform(machine.again(self.now()))

    def state_after(self, work: Work, through: int) -> bytes | None:
        """The state to commit with the effects of a work; None when the work is none of this incarnation's.

        IN_DOUBT while another work is: a state without that one must not be stored over one that may have it.
        """
        self._look_at_finished()
        if self.in_doubt:
            return IN_DOUBT
        if self.over or not self.is_built or work.owner is not self:
            return None
        return None if self._is_taken_back(work) else self.machine.state_after(work.ticket, through)

    def _is_taken_back(self, work: Work) -> bool:
        """Its messages are handed out under another ticket: what its handler does now can't be committed."""
        return work.ticket <= self._taken_back_through

    def _failed(self, work: Work, seq: int, error: BaseException) -> None:
        if self._trace is not None:
            self._trace.failed(work, seq)
        is_real = isinstance(self.around.runtime, ThreadRuntime)
        cause = cause_of(error, with_traceback=is_real)
        self._works.raised = self.now(), named(*cause[:2])
        is_final = isinstance(error, Undecodable)
        self.perform(self.machine.failed(work.ticket, seq, cause, self.now(), final=is_final))

    def _look_at_slow_work(self) -> None:
        progress = self._progress
        # Disarmed before looking: a consumer that takes a work after this line arms it again.
        progress.due = progress.armed = False
        for work in self._works.running():
            if work.owner is self:
                self._look_at(work)
                self.taken(work)


def _is_told_alone(work: Work) -> bool:
    """More is to be said of this work than how far it came."""
    return work.failure is not None or work.trouble is not None or work.is_recalled
