"""Writing into streams of a store: of sinks, and on the way from one pipe to the next.

In a transaction messages are appended by a producer of this process, whose older lives are fenced with the
receiver's state. Without one each message is a producer of its own, named by its identity, so that a repeat adds
nothing, in whatever order messages come.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from surepipe.actors.codecs import Codec
from surepipe.actors.consuming.consumer import OutletLost
from surepipe.actors.ends.intake import SenderEntry
from surepipe.actors.ends.stores import StackRecords, bare_terms
from surepipe.actors.runtime import CallerSignal, Runtime
from surepipe.core.effects import SaveState, WriteFailed, WriteFenced, WriteStored
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Created,
    Exists,
    NoStream,
    Retention,
    Store,
    Stored,
    StreamInfo,
    Transaction,
    Unavailable,
    said_of,
)
from surepipe.core.store_requests import FencedOut as FencedOutcome
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.pipelines.assembly import Environment, Sink
from surepipe.pipelines.stages import About
from surepipe.storage.positions import ReceiverState, number_now


class StoreCursor:
    """A durable text in a store, which only its latest owner moves."""

    def __init__(
        self, store: Store, name: str, number_of_life: Callable[[], int] = number_now
    ) -> None:
        """``number_of_life`` as for ``Claims``."""
        self._state = ReceiverState(store, name, name=name, number_of_life=number_of_life)
        self.name = name

    def load(self) -> str | None:
        """What was stored last. Raises StoreUnavailable, ``errors.Fenced``, ConfigurationError."""
        found = self._state.load()
        return None if found is None else found.decode()

    def save(self, text: str) -> None:
        """Store it now. Raises StoreUnavailable, ``errors.Fenced``, ConfigurationError."""
        match self._state.write(SaveState(text.encode())):
            case WriteStored():
                return
            case WriteFenced(by):
                raise Fenced(
                    f"{self.name} belongs to owner {by} now: another process runs this pipeline"
                )
            case WriteFailed(reason):
                raise ConfigurationError(f"{self.name}: {reason}")
            case _:
                raise StoreUnavailable(f"{self.name}: no answer")

    def request(self, text: str) -> CommitPosition:
        """The commit that stores it, for a transaction."""
        return self._state.request(text.encode())


READ_MAX, READ_BYTES, READS_MAX = 4_096, 4 << 20, 64


class WriterTrace(Protocol):
    """Hears what a writer has in its stream, for an audit."""

    def accepted(self, pipe: str, epoch: int, first: int, count: int) -> None: ...

    def found(self, pipe: str, epoch: int, read: int, last: int) -> None:
        """Former lives have stored all up to ``last``; those up to ``read`` were read by everybody."""
        ...


def passed_in(
    store: Store, info: StreamInfo, stream: str, index: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """Producer, epoch and seq of the last message that all readers of a stream have passed, where they have passed
    any; nothing of a producer whose next message stands too far behind. ``index``: which one a reader is at that
    the store knows nothing of.

    A seq of 0: all of its earlier epochs, and nothing of this one. Each life of a writer has an epoch of its own,
    so a reader often stands just there, behind what a life that was killed had in work.
    """
    if index is None:
        if not info.readers:
            return
        index = min(reader.next for reader in info.readers)
    following: dict[str, tuple[int, int]] = {}
    for _ in range(READS_MAX):
        found = store.read(stream, index, READ_MAX, READ_BYTES)
        if not isinstance(found, Batch):
            following = {
                one.producer: (one.epoch, one.last + 1) for one in info.producers
            } | following
            break
        for run in found.entries:
            following.setdefault(run.producer, (run.epoch, run.first))
        if len(following) == len(info.producers):
            break
        index = found.next
    for producer, (epoch, seq) in following.items():
        if (epoch, seq) > (1, 1):
            yield producer, epoch, seq - 1


class IntoStream:
    """A sink into a stream. ``producer`` names who writes there."""

    def __init__(  # noqa: PLR0917 - made in few places
        self,
        store: Store,
        stream: str,
        producer: str,
        codec: Codec,
        retention: Retention = KEEP_ALL,
        told: tuple[WriterTrace, str] | None = None,
        noted_by: Runtime | None = None,
    ) -> None:
        """Makes the stream when it is not there. Raises StoreUnavailable, ConfigurationError.

        ``told`` hears of each run that a transaction has stored, and first of all what former lives have: by the
        name of the pipe that the stream carries.
        ``noted_by``: beside the stream it is noted how it is written, for readers that are configured apart, as
        a sender does; StacksDiffer where what is still to be read is written in another way.
        """
        self.stream = stream
        self._told = None if told is None else told[0]
        self._channel = f"{stream if told is None else told[1]}@{producer}"
        self._store = store
        self._producer = producer
        self._codec = codec
        self._epoch = 0
        self._next = 1
        self._pending: list[bytes] = []
        self._sealed = 0
        self._last: Transaction | None = None
        outcome = store.create(stream, 1, retention)
        if not isinstance(outcome, Created | Exists):
            raise _as_error(stream, outcome)
        if noted_by is not None:
            terms = bare_terms(codec)
            records = StackRecords(store, stream, outcome.incarnation, terms, noted_by)
            records.begin_to_write(producer, lambda: False)
        self._counted: tuple[int, int] = (0, 0)
        """Epoch and seq of the last message that somebody was told of."""
        if told is not None:
            self._tell_former()

    def begin(self, transaction: Transaction | None) -> None:
        """Count what the last transaction stored; after one that did nothing, begin a new life."""
        if transaction is None:
            return
        self._count()
        if self._last is not None or not self._epoch:
            self._open()
        self._last, self._sealed = None, 0
        self._pending.clear()

    def _count(self) -> None:
        if self._last is None or not self._last.done:
            return
        self._tell(self._epoch, self._next + self._sealed - 1)
        self._next += self._sealed
        self._last, self._sealed = None, 0

    def land(self) -> None:
        """A transaction has ended: what it stored is told. What nobody knows of is told by the next life."""
        self._count()

    def _open(self) -> None:
        """A life of the producer that no other has; its first append fences the older ones.

        Only looked up: inside a transaction the store takes no other write.
        """
        self._epoch = max(self._epoch, self._known()) + 1
        self._next = 1

    def _known(self) -> int:
        """The latest epoch of this producer that the store has, 0 for none; what it has of it is told."""
        info = self._store.info(self.stream)
        if not isinstance(info, StreamInfo):
            raise _as_error(self.stream, info)
        for one in info.producers:
            if one.producer == self._producer:
                self._tell(one.epoch, one.last)
                return one.epoch
        return 0

    def _tell(self, epoch: int, last: int) -> None:
        """The stream has all of this epoch up to here."""
        first = self._counted[1] + 1 if self._counted[0] == epoch else 1
        if self._told is not None and first <= last:
            self._told.accepted(self._channel, epoch, first, last - first + 1)
            self._counted = (epoch, last)

    def _tell_former(self) -> None:
        """1. A life commits, and is killed before its row. 2. This one begins, and tells what the store has.
        What every reader has passed may be from before the trace: nobody waits for it to come out."""
        info = self._store.info(self.stream)
        if not isinstance(info, StreamInfo) or self._told is None:
            raise _as_error(self.stream, info)
        passed = {
            producer: (epoch, seq)
            for producer, epoch, seq in passed_in(self._store, info, self.stream)
        }
        for one in info.producers:
            if one.producer == self._producer and one.last:
                epoch, seq = passed.get(one.producer, (0, 0))
                read = seq if epoch == one.epoch else 0
                self._told.found(self._channel, one.epoch, read, one.last)
                self._counted = (one.epoch, one.last)

    def mark(self) -> int:
        """How many messages wait for the seal."""
        return len(self._pending)

    def back_to(self, mark: int) -> None:
        del self._pending[mark:]

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Append a message: with the transaction, or at once, by its identity."""
        payload = self._codec.encode(message)
        if transaction is not None:
            self._pending.append(payload)
            return
        producer = f"{self._producer}/{about.key}"
        outcome = self._store.append(self.stream, producer, 1, 1, [payload])
        if not isinstance(outcome, Stored):
            raise _as_error(self.stream, outcome)

    def seal(self, transaction: Transaction | None) -> None:
        """Add what waits to the transaction."""
        if transaction is None or not self._pending:
            return
        self._last, self._sealed = transaction, len(self._pending)
        transaction.append(
            AppendRun(self.stream, self._producer, self._epoch, self._next, self._pending[:])
        )
        self._pending.clear()

    def close(self) -> None:
        """The store is not ours to close."""
        self._count()


class PassedOn:
    """What a pipe was given that stores nothing of it: sealed once that pipe has it confirmed.

    1. A message is passed on, and the next pipe has it in memory. 2. The pipe before settles it, and its journal
    forgets it. 3. The process is killed, and nobody has it. So the pipe before waits between the first two.
    """

    def __init__(self, intake: SenderEntry) -> None:
        self._intake = intake

    def begin(self, transaction: Transaction | None) -> None:
        """Nothing: what was passed on can't be taken back."""

    def mark(self) -> int:
        """See ``begin``."""
        return 0

    def back_to(self, mark: int) -> None:
        """See ``begin``."""

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Nothing: the flow passes messages on by itself."""

    def seal(self, transaction: Transaction | None) -> None:
        """Wait as the runtime waits. Raises what ``SendingFace.flush`` raises; the messages are passed on again
        then."""
        del transaction
        self._intake.wait_for(self._intake.mark(), None)

    def close(self) -> None:
        """The pipe is not ours to close."""


def _as_error(stream: str, outcome: object) -> Exception:
    if isinstance(outcome, Unavailable):
        return StoreUnavailable(said_of("stream", stream, outcome))
    if isinstance(outcome, FencedOutcome):
        return Fenced(f"stream {stream!r}: another process writes there as {outcome.by}")
    if isinstance(outcome, NoStream):
        return OutletLost(said_of("stream", stream, outcome))
    return ConfigurationError(said_of("stream", stream, outcome))


# Sinks that several loops use: who has one, has it alone.


@dataclass(eq=False, slots=True)
class Given:
    """A message that is to be put and sealed, and what became of it."""

    message: object
    about: About
    then: Callable[[], object] | None = None
    """Called when that is known, where nobody waits for it: by whoever sealed it, and not for long."""
    is_done: bool = False
    failure: BaseException | None = None

    def finish(self) -> None:
        """What became of it is known."""
        self.is_done = True
        if self.then is not None:
            self.then()


@dataclass(eq=False, slots=True)
class _Waiting:
    signal: CallerSignal
    given: Given | None
    has_it: bool = False

    def is_over(self) -> bool:
        return self.has_it or (self.given is not None and self.given.is_done)


class SharedSink:
    """A sink that several pipes, or lanes, may feed.

    A loop that takes one message after the other has it to itself for a while. Where that would make others wait
    for a slow stage, or for each other, messages are given to it: what is given while a group is sealed is the
    next group, put and sealed by whoever gets the sink first. Who gives may wait for that (``at_once``), or go on
    and be told (``give``).

    ``calls``: the sink is a function of the user's, which the environment enters as such.
    """

    def __init__(
        self, name: str, sink: Sink, environment: Environment, *, calls: bool = False
    ) -> None:
        self.name = name
        self.sink = sink
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[_Waiting] = deque()
        self._given: list[Given] = []
        self._new_signal = environment.runtime.signal
        self._blocking = environment.blocking
        self._calls = calls
        self.groups = not calls and not getattr(sink, "takes_many_at_once", False)
        """It seals what several have given as one."""

    @contextmanager
    def alone(self) -> Generator[None]:
        """A block in which nobody else has the sink. Waits for it as the runtime waits, in the order of asking."""
        mine = self._ask(None)
        if mine is not None:
            self._wait(mine)
        try:
            yield
        finally:
            self._release()

    def _ask(self, given: Given | None) -> _Waiting | None:
        """None where the sink was free."""
        with self._lock:
            if given is not None:
                self._given.append(given)
            if self._is_taken:
                self._waiting.append(_Waiting(self._new_signal(), given))
                return self._waiting[-1]
            self._is_taken = True
            return None

    def _wait(self, mine: _Waiting) -> None:
        try:
            mine.signal.wait(mine.is_over, None)
        except BaseException:  # told to end while it waited
            self._leave(mine)
            raise

    def _leave(self, mine: _Waiting) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
            if mine.given in self._given:
                self._given.remove(mine.given)
            has_it = mine.has_it
        if has_it:
            self._release()

    def _release(self) -> None:
        """Whoever had the sink has it no more. What was given meanwhile is sealed first: else loops that want it
        alone, in turns, would keep it from all who give."""
        with self._lock:
            is_given = bool(self._given)
        if is_given or not self._hand_on():
            self._blocking(self._seal_given)

    def _seal_given(self) -> None:
        """Seal what is given, group by group, and hand the sink on. Whoever asked for it may be told to end
        meanwhile: so all of it is one piece of work."""
        self._give()
        while not self._hand_on():
            self._give()

    def _hand_on(self) -> bool:
        """To the next one alone, and past those whose message is done: to wake all costs as many wakes for each
        message as there are lanes. False when nobody is there, and something is given."""
        through: list[_Waiting] = []
        with self._lock:
            while self._waiting and self._waiting[0].is_over():
                through.append(self._waiting.popleft())
            if self._waiting:
                through.append(self._waiting.popleft())
                through[-1].has_it = True
            is_next = bool(through) and through[-1].has_it
            is_left = bool(self._given) and not is_next
            self._is_taken = is_next or is_left
        for one in through:
            one.signal.notify()
        return not is_left

    def at_once(self, message: object, about: About) -> None:
        """Give it one message, and return when that is sealed. Without a transaction."""
        if self._calls:
            self.sink.put(message, about, None)
        elif not self.groups:
            self._blocking(lambda: self.sink.put(message, about, None))
        else:
            given = Given(message, about)
            mine = self._ask(given)
            if mine is not None:
                self._wait(mine)
            if mine is None or mine.has_it:
                self._blocking(self._seal_given)
            if given.failure is not None:
                raise given.failure

    def give(self, given: Sequence[Given]) -> None:
        """Give it messages, each of which says when it is sealed; who has the sink free for it seals them."""
        with self._lock:
            self._given += given
            if self._is_taken:
                return
            self._is_taken = True
        self._blocking(self._seal_given)

    def _give(self) -> None:
        """Put what is given by now, and seal it as one group. What can't be put fails alone; what the seal raises
        concerns all."""
        with self._lock:
            group, self._given = self._given, []
        try:
            self.sink.begin(None)
            for one in group:
                self._put(one)
            self.sink.seal(None)
        except BaseException as error:  # noqa: BLE001 - told to each of those that gave it
            for one in group:
                one.failure = one.failure or error
        finally:
            for one in group:
                one.finish()

    def _put(self, one: Given) -> None:
        mark = self.sink.mark()
        try:
            self.sink.put(one.message, one.about, None)
        except Exception as error:  # noqa: BLE001 - told to whoever gave it
            self.sink.back_to(mark)
            one.failure = error
