"""Where messages cross the boundary: works, the queue of them, and the actor that runs a handler.

A *work* is one delivery of the machine. Whoever consumes it says how far it came by setting ``done`` after each
message; the receiver's actor looks at works when it is told to, and reports to the machine what has been added
since. So a message costs one attribute, and the handler may take as long as it likes: it runs in an actor of its
own, the receiver answers probes meanwhile, and an alarm makes it look at a slow work from time to time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Protocol, TypeAlias, cast

from surepipe.actors.codecs import Codec, Undecodable, decoder
from surepipe.actors.consuming.coroutines import (
    BREATH,
    SETTLED,
    LoopEnded,
    Wait,
    apart,
    finish,
    finished,
    in_task,
    is_loop_of,
    look_at_cancellation,
    nobody_waits,
    outcome_here,
    own_outcome,
)
from surepipe.actors.inbox import Bell
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import Kill, Killed
from surepipe.core.callables import traceback_of
from surepipe.core.effects import Cause, Deliver
from surepipe.core.store_requests import CommitPosition
from surepipe.errors import (
    MisuseError,
    StoreReset,
    StoreUnavailable,
    SurepipeError,
    described,
    words_of,
)

logger = logging.getLogger("surepipe")

Handler: TypeAlias = Callable[[object], object]
BatchHandler: TypeAlias = Callable[[list[object]], object]
PROGRESS_US = 20_000
TRACEBACK_MAX = 8_000


class GiveUp(Undecodable):
    """Raised by a loop: this message is not to be tried again, for this cause. It goes to the dead letters, which
    ``place`` names if there are several."""

    def __init__(self, cause: BaseException, place: str = "") -> None:
        super().__init__(words_of(cause))
        self.cause = cause
        self.place = place


class NoRoom(Exception):
    """Raised by a loop: what it was to store found no room. No message is to blame, and all that is not done is
    taken again. ``wait`` is called by whoever runs the loop, so that nothing which the loop holds is held
    meanwhile."""

    def __init__(self, text: str, wait: Callable[[], object]) -> None:
        super().__init__(text)
        self.wait = wait


class OutletLost(StoreReset):
    """Raised by a loop: where its messages go, a store has lost the place. No message is to blame, and no attempt
    helps: the receiver stops, and what it has not settled comes again when it is made anew."""


class StoreClosed(StoreUnavailable):
    """Effects and state can't be committed any more, as somebody closed their store. No message is to blame, and
    no attempt helps: the receiver stops."""


class WorkOwner(Protocol):
    """The incarnation of the receiver that a work belongs to; its calls come from the consumer."""

    def taken(self, work: Work) -> None:
        """Somebody begins to consume the work."""
        ...

    def finished(self, work: Work) -> None:
        """The work came to its end, by success, failure or cancellation."""
        ...

    def passed_over(self, work: Work, first: int, last: int, failure: BaseException) -> None:
        """These were settled before their handler failed, and nobody tries them again."""
        ...


class Holder(Protocol):
    """A queue whose consumers go on before the outcome of their last message is known."""

    def hold(self, work: Work) -> None:
        """From a consumer: what comes of its message is known later."""
        ...

    def leave(self, work: Work) -> bool:
        """From the same: True when that is not known yet, and the consumer is to return."""
        ...

    def release(self, work: Work) -> None:
        """From anybody: it is known, and written into the work, which may go on."""
        ...


class Work:
    """One delivery, and how far it has come.

    ``left`` is a copy of the payloads; clearing it makes the consumer stop after the message it is at. ``first``,
    ``last`` and ``done`` are numbers of messages; with lanes those of one delivery don't follow each other, so
    they are places in it, and ``seq_at`` tells the number.
    """

    __slots__ = (
        *("attempt", "cancelled", "done", "epoch", "failure", "first", "has_left", "holder"),
        *(
            "in_hand",
            "is_held",
            "is_recalled",
            "key",
            "last",
            "left",
            "may_repeat",
            "one_by_one",
            "owner",
            "parked",
            "producer",
            "reported",
            "seqs",
            "settled_first",
            "ticket",
        ),
        *("traced", "tried", "trouble"),
    )

    def __init__(self, delivery: Deliver, owner: WorkOwner) -> None:
        self.owner = owner
        self.ticket = delivery.ticket
        self.epoch = delivery.epoch
        self.key = delivery.key
        self.seqs = delivery.seqs
        self.first = 1 if self.seqs else delivery.first
        self.last = self.first + len(delivery.payloads) - 1
        self.attempt = delivery.attempt
        self.left = list(delivery.payloads)
        self.done = self.reported = self.traced = self.first - 1
        self.producer = delivery.producer
        self.failure: tuple[int, BaseException] | None = None
        self.one_by_one = False
        """Its messages are handled, or their effects committed, one by one: several together failed or were
        refused, and one is to blame."""
        self.in_hand = 0
        """So many messages a batch handler has now."""
        self.may_repeat = True
        """False where a message that fails is not tried again."""
        self.settled_first = False
        """Its messages were settled before they were handed out."""
        self.tried: tuple[int, CommitPosition] | None = None
        """The commit of the transaction that is under way, and up to which message that one goes."""
        self.trouble: object = None
        """What a store answered when the effects of this work could not be committed."""
        self.cancelled = False
        self.parked: list[bytes] | None = None
        self.holder: Holder | None = None
        """The queue that it was taken from, where that is one."""
        self.is_held = False
        """What came of the message after ``done`` is not known yet."""
        self.has_left = False
        """Its consumer does not wait for that."""
        self.is_recalled = False
        """It ends after the message that is being handled, and the machine has the rest again."""

    @property
    def lost_with_it(self) -> int:
        """So many messages nobody handles, nor brings again, when it ends now, besides those in hand."""
        through = self.last if self.settled_first else self.reported
        return max(0, through - self.done)

    def seq_at(self, place: int) -> int:
        """The number of a message of this delivery."""
        return self.seqs[place - 1] if self.seqs else place

    @property
    def is_cut(self) -> bool:
        """True when no message after the one that is being handled is to be taken now."""
        return self.cancelled or self.parked is not None

    def park(self) -> None:
        """No message after the one that is being handled, for now: something else comes first."""
        self.parked = list(self.left)
        self.left.clear()

    def recall(self) -> None:
        """No message after the one that is being handled: what is left goes back to the machine."""
        if self.parked is None:
            self.park()
        self.is_recalled = True

    def unpark(self) -> bool:
        """The consumer has left the work: what is not done is there again. False when nothing is to go on."""
        parked, self.parked = self.parked, None
        is_left = self.done < self.last and not self.cancelled
        if self.failure is not None or self.trouble is not None:
            return False
        if parked is None or not is_left or self.is_recalled:
            return False
        self.left[:] = parked[self.done - self.last :]
        return True

    def next_batch(self) -> list[bytes]:
        """What is to be handled together now: all that is left, or one message where several have failed
        together; nothing where no message is to be taken."""
        start = len(self.left) - (self.last - self.done)
        end = start + 1 if self.one_by_one or self.attempt > 1 else None
        return self.left[start:end] if start >= 0 else []

    def take_apart(self, failure: BaseException) -> bool:
        """What failed were several messages together: take them one by one. False where it was one alone, which
        has failed, or where nothing is tried again."""
        if self.in_hand <= 1 or not self.may_repeat:
            return False
        logger.info(
            "a batch of %d messages failed with %s; they are handled one by one",
            *(self.in_hand, described(failure)),
        )
        self.one_by_one, self.in_hand = True, 0
        return True

    def pass_over(self, failure: BaseException) -> bool:
        """What failed is settled already: go on behind it. False where it is to be tried again, and where no
        message is to blame."""
        if self.may_repeat or isinstance(failure, OutletLost):
            return False
        first, self.done = self.done + 1, self.done + max(1, self.in_hand)
        self.in_hand = 0
        self.left[:] = self.left[len(self.left) - (self.last - self.done) :]
        self.owner.passed_over(self, first, self.done, failure)
        return True

    def goes_on_after(self, failure: BaseException) -> bool:
        """Whether messages of it are to be taken although some have failed, or had to wait."""
        if isinstance(failure, NoRoom):
            self.in_hand = 0
            return not self.cancelled
        return self.take_apart(failure) or self.pass_over(failure)

    def cancel(self) -> None:
        """No message after the one that is being handled."""
        self.cancelled = True
        self.left.clear()


Loop: TypeAlias = Callable[[Work], None]
"""Takes the messages of a work in order and sets ``done`` after each. It may raise for the one after ``done``."""


TaskLoop: TypeAlias = Callable[[Work], Awaitable[None]]
"""The same, in a task: it may wait without a thread."""


def each(handler: Handler, codec: Codec, wait: Wait = nobody_waits) -> Loop:
    """Give the handler one message at a time, in a context of its own. What it gives that is to be awaited is run
    by ``wait``."""

    def loop(work: Work) -> None:
        decode = decoder(codec, work.left)
        for seq, payload in enumerate(work.left, work.done + 1):
            context = copy_context()
            message = payload if decode is None else decode(payload)
            result = context.run(handler, message)
            if result is not None and type(result) not in SETTLED:
                context.run(finish, result, wait)
            work.done = seq

    return loop


def each_in_task(handler: Callable[[object], Awaitable[object]], codec: Codec) -> TaskLoop:
    """The same for a coroutine function."""

    async def handle(message: object) -> None:
        result = await handler(message)
        if result is not None:
            await finished(result)

    async def loop(work: Work) -> None:
        decode = decoder(codec, work.left) or _as_it_is
        task = asyncio.current_task()
        assert task is not None
        for seq, payload in enumerate(work.left, work.done + 1):
            await apart(handle(decode(payload)))
            goes_on = not task.cancelling() or await look_at_cancellation(task)
            work.done = seq
            if not goes_on:
                return
            if not seq % BREATH:
                await asyncio.sleep(0)

    return loop


def _as_it_is(payload: bytes) -> object:
    return payload


def together(handler: BatchHandler, codec: Codec, wait: Wait = nobody_waits) -> Loop:
    """Give the handler all messages of a work at once: settled together. Those that fail together are taken one by
    one (see ``consume``), so that only the one to blame fails.

    A payload that can't be decoded splits the work: what stands before it is handled first.
    """

    def loop(work: Work) -> None:
        while payloads := work.next_batch():
            messages, broken = decoded(payloads, codec)
            if messages:
                work.in_hand = len(messages)
                context = copy_context()
                context.run(finish, context.run(handler, messages), wait)
                work.done += work.in_hand
            work.in_hand = 0
            if broken is not None:
                raise broken

    return loop


def together_in_task(
    handler: Callable[[list[object]], Awaitable[object]], codec: Codec
) -> TaskLoop:
    """The same for a coroutine function."""

    async def handle(messages: list[object]) -> None:
        await finished(handler(messages))

    async def loop(work: Work) -> None:
        task = asyncio.current_task()
        assert task is not None
        while payloads := work.next_batch():
            messages, broken = decoded(payloads, codec)
            goes_on = True
            if messages:
                work.in_hand = len(messages)
                await apart(handle(messages))
                goes_on = not task.cancelling() or await look_at_cancellation(task)
                work.done += work.in_hand
            work.in_hand = 0
            if broken is not None:
                raise broken
            if not goes_on:
                return
            if not work.done % BREATH:
                await asyncio.sleep(0)

    return loop


def in_context(context: Context, loop: Loop) -> Loop:
    """The loop in copies of this context: the calls of one handler may be on many threads at once."""
    return lambda work: context.copy().run(loop, work)


class PatientLoop:
    """A loop for threads, run in a task. Where it waits for somebody's coroutine that has a task of its own, so
    nobody's code can cancel the one that the loop is in."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def __call__(self, work: Work) -> Awaitable[None]:
        return in_task(partial(self._loop, work))


def consume(loop: Loop, work: Work) -> None:
    """Take one work through the loop. What that raises is noted as the failure of the message after ``done``,
    whatever it is: a handler that exits must not end other pipes. Where a batch failed its messages are taken one
    by one first; where nothing is tried again those behind it are. Raises LoopEnded, which is no failure of a
    message."""
    failure = _failure_of(loop, work)
    while failure is not None and work.goes_on_after(failure):
        if isinstance(failure, NoRoom):
            failure.wait()
        failure = _failure_of(loop, work)
    if failure is not None:
        work.failure = (work.done + 1, failure)


def _failure_of(loop: Loop, work: Work) -> BaseException | None:
    try:
        loop(work)
    except LoopEnded:
        raise
    except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
        return error
    return None


async def consume_in_task(loop: TaskLoop, work: Work) -> None:
    """The same, in a task of its own if it calls a handler. A cancellation of that task is a failure, too; raises
    only when the task that waits is to end, which is no failure of the message."""
    outcome = outcome_here if isinstance(loop, PatientLoop) else own_outcome
    _, failure = await outcome(loop, work)
    while failure is not None and work.goes_on_after(failure):
        if isinstance(failure, NoRoom):
            await in_task(failure.wait)
        _, failure = await outcome(loop, work)
    if failure is not None and work.done < work.last:
        work.failure = (work.done + 1, failure)


def decoded(payloads: list[bytes], codec: Codec) -> tuple[list[object], Undecodable | None]:
    """The messages up to the first payload that can't be decoded, and why it can't."""
    decode = decoder(codec, payloads)
    if decode is None:
        return cast("list[object]", payloads), None
    messages: list[object] = []
    for payload in payloads:
        try:
            messages.append(decode(payload))
        except Undecodable as error:
            return messages, error
    return messages, None


class WorkQueue:
    """Works that wait for a consumer: one actor with a handler, or one loop that pulls."""

    def __init__(self, runtime: Runtime) -> None:
        self.signal = runtime.signal()
        self.here = runtime.here
        self.current: Work | None = None
        self.ended = False
        self.handler_thread: object = None
        self.pulling_thread: object = None
        self.async_thread: int | None = None
        """The thread of the loop that an async face was made on: to block that is to wait for its tasks."""
        self.failure: SurepipeError | None = None
        self.raised: tuple[int, str] | None = None
        """When a handler raised the last time, and what."""
        self.waits_for = ""
        """What the message in hand waits for that has found no room; empty while none does."""
        self.lost = 0
        """So many messages ended with their works although they were settled, and nobody has said so yet."""
        self._lock = threading.Lock()
        self._works: deque[Work] = deque()
        self._bell: Bell | None = None

    def __len__(self) -> int:
        return len(self._works)

    def serve(self, bell: Bell) -> None:
        """Ring this bell when there is work."""
        self._bell = bell
        bell.ring()

    def put(self, work: Work) -> None:
        with self._lock:
            if self._is_too_late_for(work):
                return
            self._works.append(work)
        self.signal.notify()
        if self._bell is not None:
            self._bell.ring()

    def _is_too_late_for(self, work: Work) -> bool:
        """True when the end came first, and what was on its way to the queue then goes to nobody any more."""
        if self.ended:
            self.lost += work.lost_with_it
            work.cancel()
        return self.ended

    def put_back(self, work: Work) -> None:
        """The consumer leaves, and the work with what is not done yet is there for the next one."""
        with self._lock:
            if work is self.current:
                self.current = None
                if not work.cancelled:
                    work.left[: work.done + 1 - self._start_of(work)] = []
                    self._works.appendleft(work)
        work.owner.finished(work)  # for now: what is done so far is settled

    @staticmethod
    def _start_of(work: Work) -> int:
        """The seq of the first payload that is still in ``left``."""
        return work.last - len(work.left) + 1

    def take(self) -> Work | None:
        """The next work, if there is one; it is current until it is finished or put back."""
        with self._lock:
            self.current = self._works.popleft() if self._works else None
            work = self.current
        if work is not None:
            work.owner.taken(work)
        return work

    def newest(self) -> Work | None:
        """The work that was put last, unless it came to its end."""
        with self._lock:
            return self._works[-1] if self._works else self.current

    def running(self) -> list[Work]:
        current = self.current
        return [] if current is None else [current]

    def is_handling_here(self) -> bool:
        """True on a thread that runs the handler."""
        return self.handler_thread == self.here()

    def handled_here(self) -> tuple[int, int] | None:
        """Epoch and number of the message that the caller is the handler of, or the body of the loop."""
        work = self.current
        is_here = self.is_handling_here() or self.pulling_thread == self.here()
        return (work.epoch, work.done + 1) if work is not None and is_here else None

    def __contains__(self, work: Work) -> bool:
        """True while this work has not come to its end."""
        with self._lock:
            return work is self.current or work in self._works

    def finish(self, work: Work) -> None:
        """The current work came to its end."""
        with self._lock:
            if work is self.current:
                self.current = None
        work.owner.finished(work)
        if self.ended:
            self.signal.notify()  # whoever closes may wait for the last one

    @property
    def has_unhandled(self) -> bool:
        """True while works wait or are being handled, though the machine may have nothing in work any more."""
        with self._lock:
            return bool(self._works) or self.current is not None

    def begin(self) -> None:
        """A new incarnation of the receiver: works of the former one mean nothing any more."""
        with self._lock:
            self._cancel_all()

    def take_back(self, owner: WorkOwner) -> list[Work]:
        """End the works of this incarnation and return them: their messages come again under other tickets."""
        with self._lock:
            works = [*self._works, *([] if self.current is None else [self.current])]
            taken_back = [work for work in works if work.owner is owner]
            for work in taken_back:
                work.cancel()
            self._works = deque(work for work in self._works if work.owner is not owner)
            return [work for work in taken_back if work.done < work.last]

    def cancel(self) -> None:
        """Nothing after the message that is being handled; its work is finished as usual."""
        with self._lock:
            self._cancel_all()
            self.ended = True
        self._tell()

    def end(self, failure: SurepipeError | None = None) -> None:
        """No more work will come; a loop that pulls raises ``failure`` if there is one. The first one stands, also
        when the end comes again, or for another reason."""
        with self._lock:
            self.failure = self.failure or failure
            self.ended = True
        self._tell()

    def renew_locks(self, runtime: Runtime) -> None:
        """In the child of a fork: the thread that held one may not be here."""
        self._lock = threading.Lock()
        self.signal = runtime.signal()

    def raise_failure(self) -> None:
        """Raise why no more work will come, unless that is in order."""
        if self.failure is not None:
            raise self.failure

    def _cancel_all(self) -> None:
        for work in self._works:
            self.lost += work.lost_with_it
            work.cancel()
        self._works.clear()
        if self.current is not None and not self.current.cancelled:
            self.lost += max(0, self.current.lost_with_it - max(1, self.current.in_hand))
            self.current.cancel()

    def _tell(self) -> None:
        self.signal.notify()
        if self._bell is not None:
            self._bell.ring()


class ConsumerActor:
    """Runs the loop over works, one after the other. Handlers that raise are the machine's business, not ours."""

    def __init__(
        self, queue: WorkQueue, loop: Loop, bell: Bell, on_death: Callable[[BaseException], None]
    ) -> None:
        self._queue = queue
        self._loop = loop
        self._bell = bell
        self._on_death = on_death

    def receive(self, message: object) -> None:
        """Ring: consume what is there. Start: the same, after what the former life left behind."""
        if isinstance(message, Kill):
            raise Killed("the consumer was told to die")
        self._bell.rung = False
        while (work := self._queue.take()) is not None:
            self.run(work)

    def run(self, work: Work) -> None:
        """Take one work through the loop."""
        self._queue.handler_thread = self._queue.here()
        try:
            consume(self._loop, work)
        except LoopEnded:
            self._queue.put_back(work)
            raise
        finally:
            self._queue.handler_thread = None
        self._queue.finish(work)

    def died(self, error: BaseException) -> None:
        """Pass it on: the receiver's end starts over."""
        self._on_death(error)


class ConsumerTask:
    """The same for a coroutine handler: an actor in a task of its loop. It takes one message after the other."""

    def __init__(
        self,
        queue: WorkQueue,
        loop: TaskLoop,
        bell: Bell,
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._queue = queue
        self._loop = loop
        self._bell = bell
        self._on_death = on_death

    async def receive(self, message: object) -> None:
        if isinstance(message, Kill):
            raise Killed("the consumer was told to die")
        self._bell.rung = False
        while (work := self._queue.take()) is not None:
            self._queue.handler_thread = self._queue.here()
            try:
                await consume_in_task(self._loop, work)
            except BaseException:
                self._queue.put_back(work)
                raise
            finally:
                self._queue.handler_thread = None
            self._queue.finish(work)

    def died(self, error: BaseException) -> None:
        """Pass it on: the receiver's end starts over."""
        self._on_death(error)


def pull(queue: WorkQueue, codec: Codec) -> Iterator[object]:
    """The messages of a queue for a ``for`` loop: each is settled when the next one is asked for.

    When the loop is left early the last message is not settled; the next loop gets it again.
    """
    while True:
        if not len(queue) and not queue.ended and is_loop_of(queue.async_thread):
            raise MisuseError(
                "a for loop would block the event loop that this pipe is used on: write async for message in pipe"
            )
        queue.signal.wait(lambda: bool(len(queue)) or queue.ended, None)
        work = queue.take()
        if work is None:
            queue.raise_failure()
            return
        queue.pulling_thread = queue.here()
        try:
            yield from _messages(work, codec)
        except BaseException:  # GeneratorExit: the loop was left
            queue.put_back(work)
            raise
        else:
            queue.finish(work)
        finally:
            queue.pulling_thread = None


def _messages(work: Work, codec: Codec) -> Iterator[object]:
    failure: Exception | None = None
    while failure is None or work.pass_over(failure):
        try:
            for seq, payload in enumerate(work.left, work.done + 1):
                yield codec.decode(payload)
                work.done = seq
        except Exception as error:  # noqa: BLE001 - of a codec: what the body of the loop raises does not come here
            failure = error
        else:
            return
    work.failure = (work.done + 1, failure)


def error_text(error: BaseException) -> tuple[str, str]:
    """Type and text of an error, as letters hold them."""
    if isinstance(error, GiveUp):
        error = error.cause
    text = words_of(error)
    return type(error).__name__, text if len(text) <= 500 else text[:497] + "..."


def cause_of(error: BaseException, *, with_traceback: bool) -> Cause:
    """Describe an error for the machine: type, text, place and traceback."""
    place = error.place if isinstance(error, GiveUp) else ""
    return (*error_text(error), place, traceback_text(error) if with_traceback else "")


def traceback_text(error: BaseException) -> str:
    """Where an error was raised, and what led to it, as letters hold it: of a very long one the end."""
    if isinstance(error, GiveUp):
        error = error.cause
    text = traceback_of(error)
    return text if len(text) <= TRACEBACK_MAX else "...\n" + text[-TRACEBACK_MAX:]
