"""Handlers whose effects are stored in one transaction with how far the receiver has come.

One transaction takes a whole delivery, or what of it was handled within 0.1 s (it holds up other writers of the
store), or as much as it has room for. When a message fails, what its handler did in the transaction is taken back;
what stands before it is committed, and then the message is tried again like any other. When the store refuses what
several messages have added, they are taken anew, one by one, so that only the one to blame fails; and so they are
when a batch handler fails on them, or when a statement of a handler ends the transaction. A store whose
transactions take nothing back gets one for each message; ``receive_many`` gives it one for many.

A stream that has no room for what a handler appends is no failure of the message: it waits, as a sender would, and
the handler is called again with it. What was in its transaction before and behind it is taken one by one, too, so
that only the message without room is called again and again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from surepipe.actors.codecs import Codec
from surepipe.actors.consuming.consumer import Loop, NoRoom, StoreClosed, Work, decoded
from surepipe.actors.consuming.coroutines import Coroutines, LoopEnded, finish, require_handler
from surepipe.actors.ends.intake import WaitsForItself
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.stores import CommittableState
from surepipe.actors.store_calls import SILENT_US, Asked
from surepipe.core.callables import refusal_of
from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import (
    OVER,
    AppendRun,
    Changed,
    Committed,
    Failed,
    Full,
    Gap,
    Stored,
    Transaction,
    TransactionalStore,
    Unavailable,
    Untouched,
    called,
    is_closed,
    require_open,
    said_of_full,
    said_together,
    when_done,
)
from surepipe.core.timing import doubled
from surepipe.errors import (
    ConfigurationError,
    MisuseError,
    PayloadTooLarge,
    StoreUnavailable,
    TransactionEnded,
    words_of,
)

T = TypeVar("T")
CommittedHandler: TypeAlias = Callable[[object, Transaction], object]
"""``handle(message, transaction)``; the transaction is the store's own kind, such as ``SqliteTransaction``."""
CommittedBatchHandler: TypeAlias = Callable[[list[object], Transaction], object]
COMMIT_AFTER_US = 100_000
ROOM_AGAIN_US, ROOM_AGAIN_MAX_US = 20_000, 1_000_000
"""How long to wait before a stream that was full is asked again: doubled each time, up to the second."""


@runtime_checkable
class Parted(Protocol):
    """A transaction that can take back a part of itself."""

    @property
    def is_full(self) -> bool:
        """True when no further part is to be added."""
        ...

    def part(self) -> AbstractContextManager[None]:
        """A block whose effects are taken back when it raises."""
        ...


def parted_of(transaction: object) -> Parted | None:
    """The same where it can take back a part. A protocol asks long: None first."""
    return transaction if transaction is not None and isinstance(transaction, Parted) else None


@runtime_checkable
class Reaching(Protocol):
    """A transaction that must know which other thread works for it."""

    def reaches(self, thread: int | None) -> AbstractContextManager[None]:
        """A block in which that thread, too, counts as inside the transaction."""
        ...


class _Measured:
    """A transaction whose end is a call of its store. What it begins with is none, but may fail like one; between
    them handlers are at work."""

    def __init__(
        self,
        transaction: AbstractContextManager[Transaction],
        asking: Callable[[], AbstractContextManager[Asked]],
    ) -> None:
        self._transaction = transaction
        self._asking = asking
        self._begun: Transaction | None = None

    def __enter__(self) -> Transaction:
        with self._asking() as asked:
            self._begun = self._transaction.__enter__()
            asked.is_answered = None
        return self._begun

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with self._asking() as asked:
            result = self._transaction.__exit__(kind, error, traceback)
            asked.is_answered = self._is_answered(error)
        return result

    def _is_answered(self, error: BaseException | None) -> bool | None:
        assert self._begun is not None
        outcomes = self._begun.outcomes
        if isinstance(error, StoreUnavailable) or any(
            isinstance(one, Unavailable) for one in outcomes
        ):
            return False
        return True if outcomes else None


class Abandoned(Exception):
    """The receiver's incarnation is gone: nothing of this transaction may be stored."""


Taken: TypeAlias = tuple[int, BaseException | None]
"""The last message handled, and why the next one was not."""


class Commits:
    """Makes the loops of a receiver whose boundary is ``committed``."""

    def __init__(
        self, receiver: ReceiverEnd, store: TransactionalStore, state: CommittableState
    ) -> None:
        self._receiver = receiver
        self._store = store
        self._state = state
        self._place = called(store)

        self._room = _Room(receiver)

    def _asking(self) -> AbstractContextManager[Asked]:
        return self._receiver.silences.asking(
            self._place, self._receiver.runtime.here(), "the effects of messages wait"
        )

    def each(
        self,
        handler: CommittedHandler,
        codec: Codec,
    ) -> Loop:
        """Give the handler one message at a time, and the transaction."""

        def take(work: Work, transaction: Transaction) -> Taken:
            return self._take_some(work, transaction, handler, codec)

        return lambda work: self._loop(work, take, parts=True)

    def by(
        self, take: Callable[[Work, Transaction], Taken], undone: Callable[[Work], object]
    ) -> Loop:
        """Let ``take`` handle messages of a work in the transaction, each by itself, and tell how far it came and
        why not further. It takes one where the transaction takes nothing back, or the work is ``one_by_one``.

        What it raises ends the transaction: StoreUnavailable, LoopEnded, Abandoned. ``undone`` is called between a
        refused transaction and the next.
        """
        return lambda work: self._loop(work, take, parts=True, undone=undone)

    def _take_some(
        self, work: Work, transaction: Transaction, handler: CommittedHandler, codec: Codec
    ) -> Taken:
        if isinstance(transaction, Parted):
            return self._take_parts(work, transaction, transaction, handler, codec)
        message = codec.decode(payloads_of(work)[0])
        self._call(handler, message, transaction)
        return work.done + 1, None

    def _call(
        self, handler: Callable[[T, Transaction], object], message: T, transaction: Transaction
    ) -> None:
        """Each call has a copy of the context, which knows the transaction that is open. Where several tasks of it
        met a store that is away, that is as if it was one."""
        context = copy_context()
        try:
            context.run(self._finish, context.run(handler, message, transaction), transaction)
            require_open(transaction)
        except BaseExceptionGroup as group:
            if group.split(StoreUnavailable)[1] is None:
                raise StoreUnavailable(words_of(group)) from group
            raise

    def _finish(self, result: object, transaction: Transaction) -> None:
        """Run what a handler gave that is to be awaited: the transaction stays open until that is done.

        Its loop may be needed by others meanwhile, and a write of theirs to the same store would wait for this
        transaction on the very thread that has to end it: so it is refused.
        """
        if result is None:
            return
        coroutines = self._receiver.coroutines
        reach = transaction.reaches if isinstance(transaction, Reaching) else _nowhere
        finish(result, lambda call: _within(reach, coroutines, call))

    def together(
        self, handler: CommittedBatchHandler, codec: Codec, *, takes_apart: bool = True
    ) -> Loop:
        """Give the handler all messages of a work at once: committed together. Those that fail together are taken
        one by one, each in a transaction of its own, unless the handler itself finds who is to blame."""

        def take(work: Work, transaction: Transaction) -> Taken:
            payloads = work.next_batch() if takes_apart else payloads_of(work)
            messages, broken = decoded(payloads, codec)
            if messages:
                work.in_hand = len(messages) if takes_apart else 0
                # A coroutine must not wait for its turn at the store on the loop that the one before it needs.
                alone = transaction.part() if isinstance(transaction, Parted) else nullcontext()
                with alone:
                    self._call(handler, messages, transaction)
            return work.done + len(messages), broken

        return lambda work: self._loop(work, take, parts=takes_apart)

    def _take_parts(
        self,
        work: Work,
        transaction: Transaction,
        parted: Parted,
        handler: CommittedHandler,
        codec: Codec,
    ) -> Taken:
        done, now = work.done, self._receiver.runtime.now
        end = now() + COMMIT_AFTER_US
        for payload in payloads_of(work):
            if work.cancelled:
                break
            try:
                message = codec.decode(payload)
                with parted.part():
                    self._call(handler, message, transaction)
            except (StoreUnavailable, Abandoned, LoopEnded):
                raise
            except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
                return done, error
            done += 1
            if work.one_by_one or parted.is_full or now() >= end:
                break
        return done, None

    def _loop(
        self,
        work: Work,
        take: Callable[[Work, Transaction], Taken],
        *,
        parts: bool,
        undone: Callable[[Work], object] | None = None,
    ) -> None:
        while work.done < work.last and work.trouble is None and not work.cancelled:
            done = work.done
            try:
                self._commit_some(work, take, parts=parts)
            except LoopEnded:
                raise
            except BaseException:
                if not is_closed(self._store):
                    raise
            if work.done == done and is_closed(self._store):
                work.trouble = StoreClosed(
                    f"{self._place} is closed, so the effects of messages can't be stored any more"
                )
            if undone is not None and work.done == done:
                undone(work)

    def _commit_some(
        self, work: Work, take: Callable[[Work, Transaction], Taken], *, parts: bool
    ) -> None:
        work.tried, done, is_over = None, work.done, False
        try:
            with _Measured(self._store.transaction(), self._asking) as transaction:
                done, failure = take(work, transaction)
                if is_over := transaction.is_over:  # what stands before it is taken back, too
                    raise failure or TransactionEnded(OVER)
                if done > work.done:
                    request = self._state.request(self._state_after(work, done))
                    work.tried = done, request
                    transaction.commit(request)
                    when_done(transaction, partial(self._receiver.crossed, work, done))
        except Abandoned:
            work.cancel()
            return
        except StoreUnavailable as error:  # the message is not to blame
            work.trouble = error
            return
        except BaseException:
            if not is_over or done == work.done or work.one_by_one:
                raise
            work.one_by_one = True
            return
        if done > work.done and not transaction.done:
            is_taken_apart = parts and _is_of_handlers(transaction)
            # From then on: the message that waits for room, say, is called again without those behind it.
            work.one_by_one = work.one_by_one or is_taken_apart
            if not is_taken_apart or done == work.done + 1:
                self._refused(work, transaction)
            return
        self._room.found()
        if work.tried is not None:
            self._state.done(work.tried[1])
        work.done, work.in_hand = done, 0
        if failure is not None:
            raise failure

    def _refused(self, work: Work, transaction: Transaction) -> None:
        """Nothing was stored. If it was for what the handler added, that is the handler's failure, unless a stream
        of it is full for now."""
        own, ours = transaction.outcomes[:-1], transaction.outcomes[-1]
        if not _is_of_handlers(transaction):
            work.trouble = ours
            return
        if isinstance(ours, Committed) and (full := _full_in(transaction)) is not None:
            raise self._room.awaited(work, *full)
        raise ConfigurationError(
            f"the transaction was refused, and nothing of it was done: {said_together([*own, ours])}"
        )

    def _state_after(self, work: Work, through: int) -> bytes:
        state = self._receiver.state_after(work, through)
        if state is None:
            raise Abandoned
        return state


def _within(
    reach: Callable[[int | None], AbstractContextManager[None]],
    coroutines: Coroutines,
    call: Awaitable[object],
) -> object:
    loop = coroutines.loop  # started first: then its thread is known
    with reach(coroutines.thread if loop is not None else None):
        return coroutines.wait(call)


def _nowhere(thread: int | None) -> AbstractContextManager[None]:
    del thread
    return nullcontext()


def _is_of_handlers(transaction: Transaction) -> bool:
    """Nothing was stored, and not for the sake of the receiver's state."""
    return isinstance(transaction.outcomes[-1], Committed | Failed)


_WAITING = (Full, Gap, Stored, Committed, Changed, Untouched)
"""What a transaction is answered that only lacks room. Behind a run without room its producer's next has a gap."""


def _full_in(transaction: Transaction) -> tuple[str, Full] | None:
    """The stream that had no room for the transaction, if nothing else is wrong with that. Raises PayloadTooLarge
    for one that would not even fit into an empty stream."""
    if not all(isinstance(outcome, _WAITING) for outcome in transaction.outcomes):
        return None
    for request, outcome in zip(transaction.requests, transaction.outcomes, strict=True):
        if isinstance(request, AppendRun) and isinstance(outcome, Full):
            _require_fitting(transaction, request.stream, outcome.max_bytes)
            return request.stream, outcome
    return None


def _require_fitting(transaction: Transaction, stream: str, max_bytes: int | None) -> None:
    runs = [
        run for run in transaction.requests if isinstance(run, AppendRun) and run.stream == stream
    ]
    size = sum(len(payload) for run in runs for payload in run.payloads)
    # A single run always fits when all is read: a stream refuses only what stands behind something else.
    if max_bytes is not None and len(runs) > 1 and size > max_bytes:
        raise PayloadTooLarge(
            f"the transaction appends {size} bytes to stream {stream!r}, which keeps {max_bytes} at most "
            "(max_bytes), so it will never fit, and nothing of it was done. Raise max_bytes, or append less"
        )


class _Room:
    """Waits for room in the streams that handlers append to, and tells who holds it up."""

    def __init__(self, receiver: ReceiverEnd) -> None:
        self._receiver = receiver
        self._since: int | None = None
        self._stream = ""
        self._failures = 0
        self._is_told = False

    def awaited(self, work: Work, stream: str, full: Full) -> Exception:
        """There was none: what the loop is to raise."""
        receiver, text = self._receiver, said_of_full(stream, full)
        if receiver.reads_as(stream, full.reader):
            return WaitsForItself(
                f"stream {stream!r} is {full.words}. That reader is this pipe's own, and goes on only when the "
                "message is done whose handler appends here. Append to another stream, or raise the bound"
            )
        now = receiver.runtime.now()
        self._since = now if self._since is None else self._since
        self._stream = stream
        self._failures += 1
        receiver.works.waits_for = text
        if not self._is_told and now - self._since >= SILENT_US:
            self._is_told = True
            self._tell(NoticeKind.UNANSWERED, f"the effects of messages wait for room: {text}")
        return NoRoom(text, partial(self._pause, work))

    def found(self) -> None:
        """A transaction was done."""
        if self._since is None:
            return
        waited_s = (self._receiver.runtime.now() - self._since) / 1_000_000
        if self._is_told:
            text = f"stream {self._stream!r} has room again, after {waited_s:.1f} s"
            self._tell(NoticeKind.RECOVERED, text)
        self._since, self._failures, self._is_told = None, 0, False
        self._receiver.works.waits_for = ""

    def _pause(self, work: Work) -> None:
        works = self._receiver.works
        pause_s = doubled(ROOM_AGAIN_US, ROOM_AGAIN_MAX_US, self._failures) / 1_000_000
        works.signal.wait(lambda: work.cancelled or works.ended, pause_s)

    def _tell(self, kind: NoticeKind, text: str) -> None:
        self._receiver.around.notices.tell(Notice(kind, 0, (), text))


def payloads_of(work: Work) -> list[bytes]:
    """What is not done of a work. Raises Abandoned for one that was cancelled meanwhile, which has none left."""
    left = work.last - work.done
    payloads = work.left[-left:]
    if len(payloads) < left:
        raise Abandoned
    return payloads


def check_handler(handler: Callable[..., object], *, committed: bool) -> None:
    """Raises MisuseError for what is no handler, and for one that takes a transaction where there is none, or none
    where there is."""
    require_handler(handler)
    if why := refusal_of(handler, "message, transaction" if committed else "message"):
        what = (
            "with boundary 'committed' a handler gets the message and the transaction that its "
            "effects belong to: write handle(message, transaction)"
            if committed
            else "a handler gets the message: write handle(message); a transaction comes with "
            "boundary 'committed'"
        )
        raise MisuseError(f"{what} ({why})")
