"""Receiving by a handler: how messages reach it, and whether it gets a transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias, cast

from surepipe.actors.codecs import Codec
from surepipe.actors.consuming.committed import (
    Commits,
    CommittedBatchHandler,
    CommittedHandler,
    check_handler,
)
from surepipe.actors.consuming.consumer import (
    BatchHandler,
    Handler,
    Loop,
    PatientLoop,
    each,
    each_in_task,
    together,
    together_in_task,
)
from surepipe.actors.consuming.coroutines import require_plain
from surepipe.actors.consuming.lanes import LaneWork
from surepipe.actors.ends.face import LettersFace, ReceivingFace, StartingFace
from surepipe.errors import MisuseError

CoroutineHandler: TypeAlias = Callable[[object], Awaitable[object]]
CoroutineBatchHandler: TypeAlias = Callable[[list[object]], Awaitable[object]]

if TYPE_CHECKING:
    from surepipe.storage.memory import MemoryTransaction
    from surepipe.storage.redis.transaction import RedisTransaction
    from surepipe.storage.sqlite.transaction import SqliteTransaction

    AnyHandler: TypeAlias = (
        Handler
        | CommittedHandler
        | Callable[[object, SqliteTransaction], object]
        | Callable[[object, MemoryTransaction], object]
        | Callable[[object, RedisTransaction], object]
    )
    """A handler may name the kind of transaction that its store gives."""
    AnyBatchHandler: TypeAlias = (
        BatchHandler
        | CommittedBatchHandler
        | Callable[[list[object], SqliteTransaction], object]
        | Callable[[list[object], MemoryTransaction], object]
        | Callable[[list[object], RedisTransaction], object]
    )


class HandlingFace(ReceivingFace, StartingFace, LettersFace):
    """Receiving by handlers and loops. Whoever derives from this sets ``receiver`` and ``_commits``."""

    _commits: Commits | None

    def receive(self, handler: AnyHandler) -> None:
        """Let ``handler(message)`` take every message, on a thread of its own; it is settled when that returns.

        It may be a coroutine function: then it is awaited, one message after the other, on an event loop that the
        process owns (with lanes, in a task for each lane). What another function returns that can be awaited is
        awaited there too. A generator function is refused.

        With boundary ``"committed"`` it is ``handler(message, transaction)``. What it writes through the
        transaction is stored together with how far the receiver is, so it is there once for each message, whatever
        crashes. It must not wait in there for anything that writes to the same store: no ``send`` into a pipe
        whose journal is there (``transaction.append`` is for that).

        When the handler raises, the message is tried again with growing waits (see ``retries``); what follows it
        in an ordered pipe waits. With lanes (see ``key``) the handler is called on several threads at once, each
        time for another key, and what waits is only what follows in the key of the message that failed.
        StoreUnavailable is no failure of the message: the receiver looks anew at what is stored, and goes on from
        there. Raises PipeClosed, and MisuseError when there is a handler already, or a ``for`` loop, or when the
        handler does not take what it is given.
        """
        self._check(handler)
        wait = self.receiver.coroutines.wait
        if self._commits is not None:
            self.receiver.consume(
                self._commits.each(cast("CommittedHandler", handler), self._codec)
            )
        elif not self._in_tasks(
            handler, lambda: each_in_task(cast("CoroutineHandler", handler), self._codec)
        ):
            self.receiver.consume(each(cast("Handler", handler), self._codec, wait))

    def receive_many(self, handler: AnyBatchHandler) -> None:
        """Let ``handler(messages)`` take messages in batches, as they come.

        A batch is settled as one. When the handler raises, it gets the messages of the batch once more, one by
        one in their order, as lists of one: so only the message to blame uses up its ``retries``. (With boundary
        ``"handed"`` nothing is tried again.) With lanes its messages are of one key. With boundary
        ``"committed"`` it is ``handler(messages, transaction)``, and each batch, also one of one message, is one
        transaction. Raises what ``receive`` raises.
        """
        self._check(handler)
        wait = self.receiver.coroutines.wait
        if self._commits is not None:
            self.receiver.consume(
                self._commits.together(cast("CommittedBatchHandler", handler), self._codec)
            )
        elif not self._in_tasks(
            handler, lambda: together_in_task(cast("CoroutineBatchHandler", handler), self._codec)
        ):
            self.receiver.consume(together(cast("BatchHandler", handler), self._codec, wait))

    def receive_by(
        self, make: Callable[[Commits | None, Codec], Loop], *, awaits: bool = False
    ) -> None:
        """Let a loop of the caller's own take every work: what engines need, which know messages by identity.

        ``make`` gets the codec, and with boundary ``"committed"`` what makes loops with a transaction. ``awaits``:
        it waits for coroutines and signals above all, so that lanes need no thread each: every lane is a task, in
        which the loop runs as it would on a thread. Raises PipeClosed, and MisuseError when there is a handler or
        loop already.
        """
        self._check_open()
        self._check_unused()
        loop = make(self._commits, self._codec)
        require_plain("the loop", loop, "it runs on a thread, which awaits nothing")
        on = self.receiver.coroutines.loop if awaits and self.receiver.has_lanes else None
        if on is None:  # in virtual time, too
            self.receiver.consume(loop)
        else:
            self.receiver.consume_in_tasks(PatientLoop(loop), on)

    def leases(self) -> list[LaneWork]:
        """What each lane has in work now, ordered by lane; empty without lanes (see ``key``)."""
        return self.receiver.leases()

    def _check(self, handler: AnyHandler | AnyBatchHandler) -> None:
        self._check_open()
        self._check_unused()
        check_handler(handler, committed=self._commits is not None)

    def _check_loop(self) -> None:
        if self._commits is not None:
            raise MisuseError(
                f"{self._noun} {self.name}: with boundary 'committed' effects go through a transaction, "
                "which a loop has not; use receive(handle) with handle(message, transaction)"
            )
        if self.receiver.has_lanes:
            raise MisuseError(
                f"{self._noun} {self.name}: a loop takes one message after the other, and with lanes several "
                "are handled at once; use receive(handle)"
            )
        super()._check_loop()

    def __iter__(self) -> Iterator[object]:
        """The messages, each settled when the next is asked for, or when the loop ends by itself.

        A loop that is left early (``break``, an exception) leaves its last message unsettled: the next loop
        begins with it. The loop ends when the end is closed, or finished (see ``finish``) and everything was
        settled. MisuseError for a second loop, beside a handler, with boundary ``"committed"``, and with lanes;
        PipeClosed for one that is begun when the end has ended.
        """
        return super().__iter__()
