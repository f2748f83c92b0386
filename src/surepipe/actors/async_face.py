"""The async faces: what ``async with`` gives of a pipe, its ends, a stream's ends, a channel and a served book.

    async with Pipe("orders") as pipe:
        pipe.receive(handle)                # a coroutine function: awaited, one message after the other
        await pipe.send({"order": 1})       # waits for room without blocking the loop

    async with Pipe("orders") as pipe:
        async for message in pipe: ...

A face adds nothing to the machines and threads beneath it: each method is that of the synchronous face, and where
that would block its thread, the task waits. So what is promised, and what is raised, is the same. Any task of any
loop may use a face; handlers that are coroutine functions run on the loop that the face was made on. The face of a
class stands beside that class: ``AsyncPipe`` beside ``Pipe``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Generic, Never, NoReturn, Protocol, TypeVar, cast

from surepipe.actors.consuming.coroutines import breathe, in_task, in_thread, in_turn
from surepipe.actors.consuming.handling import HandlingFace
from surepipe.actors.ends.face import EXIT_S, Named, ReceivingFace, SendingFace, UntilText
from surepipe.actors.ends.sender import SenderEnd
from surepipe.actors.replaying import Replayed, ReplayingFace
from surepipe.errors import MisuseError

if TYPE_CHECKING:
    from surepipe.actors.consuming.handling import AnyBatchHandler, AnyHandler
    from surepipe.storage.letters import DeadLetterStream


class Faced(Protocol):
    """What an async face is made of."""

    @property
    def name(self) -> str:
        """Of the pipe, channel or book."""
        ...

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        """Refuse to wait where the wait would be for itself."""
        ...

    def closing(self, timeout: float) -> Callable[[], None]:
        """``close``, for another thread."""
        ...


N = TypeVar("N", bound=Faced)
S = TypeVar("S", bound=SendingFace)
R = TypeVar("R", bound=ReceivingFace)
H = TypeVar("H", bound=HandlingFace)


def _call(*given: object, **options: object) -> str:
    """What stands between the brackets of a call."""
    return ", ".join([*map(repr, given), *(f"{name}={value!r}" for name, value in options.items())])


class AsyncFace(Generic[N]):
    """What every async face has. ``sync`` is the face that threads use: its questions (``guarantee``,
    ``counters()``, ``leases()``, ``dead_letters``) don't wait, so they are asked there.

    Raises MisuseError where no loop runs, for a pipe in virtual time, and for what it is no face of.
    """

    _of: ClassVar[tuple[type, ...]]
    """What this is the face of."""
    _write = "write async with in a coroutine"
    """Where no loop runs."""

    def __init__(self, face: N, *others: Never, **options: Never) -> None:
        if others or options or not isinstance(cast("object", face), self._of):
            mine, kinds = type(self).__name__, [kind.__name__ for kind in self._of]
            raise MisuseError(
                f"{mine} got {_call(face, *others, **options)}, and takes one {' or '.join(kinds)} that is there "
                f"already: write async with {kinds[0]}(...) as face, or {mine}(it) for one that others close"
            )
        self.sync = face
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise MisuseError(
                f"{face.name}: an async face is made where a loop runs: {self._write}. Nothing was closed: what "
                "this was to be the face of is as it was"
            ) from None
        self._thread = threading.get_ident()
        self._prepare()

    def _prepare(self) -> None:
        """Look at what the face is made on."""

    def _instead_of_block(self) -> str:
        """What to write in place of a block around this face."""
        mine, kind = type(self).__name__, self._of[0].__name__
        return (
            f"a block that ends {self.name} is async with {kind}(...) as face, without {mine}; this is the face "
            "of what others close"
        )

    def _elsewhere(self, name: str) -> str:
        """Where something is to be had that only the synchronous face has."""
        return f"it waits for nothing, so ask .sync.{name}"

    if not TYPE_CHECKING:  # a checker says so by itself

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            hint = ""
            if "sync" in self.__dict__ and hasattr(self.sync, name):
                hint = f": {self._elsewhere(name)}"
            raise AttributeError(f"{kind} has no {name!r}{hint}")

        def __enter__(self) -> NoReturn:
            self._refuse_block("with")

        async def __aenter__(self) -> NoReturn:
            self._refuse_block("async with")

        async def __aexit__(self, *_: object) -> None:
            """Nothing was entered."""

        __exit__ = __aexit__

        def _refuse_block(self, how: str) -> NoReturn:
            raise MisuseError(f"{how} {type(self).__name__}(...): {self._instead_of_block()}")

        def __iter__(self) -> NoReturn:
            raise MisuseError(
                f"a for loop would block the event loop: write async for over {self.name}"
            )

    @property
    def name(self) -> str:
        """Of the pipe, channel or book."""
        return self.sync.name

    def __str__(self) -> str:
        return str(self.sync)

    async def close(self, timeout: float = EXIT_S) -> None:
        """As the synchronous ``close``. It goes on when it is cancelled, and what it raises then is logged; the
        end of the block, or another ``close``, waits for one that is under way."""
        await in_task(lambda: self.sync.check_outside("close", loops=False))
        await in_thread(await in_task(lambda: self.sync.closing(timeout)))


class AsyncSending(AsyncFace[S]):
    """Sending."""

    async def send(
        self, message: object, *, until: UntilText = "accepted", timeout: float | None = None
    ) -> None:
        """Send a message; it is accepted when this returns. Raises what the synchronous ``send`` raises.
        With ``until="confirmed"`` it is settled when this returns: handled, or in its receiver's dead letters.

        When it is cancelled while it waits for room, nothing was accepted. With a journal, or
        ``until="confirmed"``, it may be cancelled later: then the message is accepted as a whole, or (by a journal
        that refuses it) not at all.
        """
        await in_turn(lambda: self.sync.send(message, until=until, timeout=timeout))

    async def send_nowait(self, message: object) -> None:
        """Send a message if there is room now; waits for the answer of a journal all the same. Raises PipeFull."""
        await in_turn(lambda: self.sync.send_nowait(message))

    async def send_many(
        self,
        messages: Iterable[object],
        *,
        until: UntilText = "accepted",
        timeout: float | None = None,
    ) -> int:
        """Send messages in order and give their number. When it is cancelled, those before are accepted."""
        return await in_turn(lambda: self.sync.send_many(messages, until=until, timeout=timeout))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is confirmed. Raises what the synchronous ``flush`` raises."""
        await in_turn(lambda: self.sync.flush(timeout))


F = TypeVar("F")


async def entered(of: Named, begin: Callable[[], None], face: Callable[[], F]) -> F:
    """The face, once ``begin`` has waited for its ends. The sender has said how much room it has, or a second has
    passed: calls of several tasks that each wait for that would lose their order. A stream's reader has its place.
    What can't be entered is nobody's to close, and ends here."""
    try:
        made = face()
        await in_task(begin)
    except BaseException:
        await in_thread(of.abort)
        raise
    return made


class AsyncReceiving(AsyncFace[R]):
    """Receiving."""

    def _prepare(self) -> None:
        self.sync.receiver.runtime.coroutines(self._loop, self._thread)  # refused in virtual time
        self.sync.receiver.works.async_thread = self._thread

    def __aiter__(self) -> TaskIterator:
        """The messages, each settled when the next is asked for.

        As with ``for``, a loop that is left early, also by a cancellation, leaves its last message unsettled, and
        the next loop begins with it.
        """
        return TaskIterator(lambda: iter(self.sync))

    async def wait(self, timeout: float | None = None) -> bool:
        """As the synchronous ``wait``: until no message will come any more. Raises PipeStopped when it stopped
        for good by itself."""
        return await in_turn(lambda: self.sync.wait(timeout))

    def _on_this_loop(self) -> None:
        face = self.sync
        if not face.receiver.has_consumer:
            face.receiver.run_coroutines_on(self._loop, self._thread)
            sender: object = getattr(face, "sender", None)
            if isinstance(sender, SenderEnd):
                sender.intake.signal.loop_thread = self._thread


_END = object()


class TaskIterator:
    """A loop over messages whose steps wait in tasks. A step that is cancelled takes no message with it, and ends
    the loop: another one, or a handler, may take its place, and so may its own next step. One that is left ends
    when nothing refers to it any more, or at its ``aclose``."""

    def __init__(self, begin: Callable[[], Iterator[object]]) -> None:
        self._begin = begin
        self._messages: Iterator[object] | None = begin()
        self._is_asked = False

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        if self._is_asked:
            raise MisuseError(
                "two tasks ask one loop for its next message: give each message on to them instead"
            )
        messages = self._messages = self._messages or self._begin()
        self._is_asked = True
        try:
            message = await in_task(lambda: next(messages, _END))
            # Only now: the message before is settled, and this one is left where it was.
            await breathe()
        except BaseException:
            self._leave()
            raise
        finally:
            self._is_asked = False
        if message is _END:
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        """Leave the loop: its last message stays unsettled, for the next loop or a handler."""
        if self._is_asked:
            raise MisuseError(
                "a task waits for this loop's next message: cancel the task, which ends the loop"
            )
        self._leave()

    def _leave(self) -> None:
        messages, self._messages = self._messages, None
        if isinstance(messages, Generator):
            messages.close()


class AsyncHandling(AsyncReceiving[H]):
    """Receiving by handlers and loops."""

    def receive(self, handler: AnyHandler) -> None:
        """Let ``handler(message)`` take every message.

        A coroutine function is awaited on this loop, one message after the other; with lanes (see ``Pipe``) up to
        so many at once, those of one key in order. Another function runs on a thread, and what it returns that
        can be awaited is awaited on this loop.

        Raises what the synchronous ``receive`` raises.
        """
        self._on_this_loop()
        self.sync.receive(handler)

    def receive_many(self, handler: AnyBatchHandler) -> None:
        """Let ``handler(messages)`` take messages in batches. See ``receive``."""
        self._on_this_loop()
        self.sync.receive_many(handler)


P = TypeVar("P", bound=ReplayingFace)


class AsyncReplaying(AsyncSending[P]):
    """Sending, dead letters too."""

    async def replay(
        self,
        letters: DeadLetterStream,
        *,
        reader: str = "replay",
        letters_max: int | None = None,
        index: int | None = None,
        timeout: float | None = None,
    ) -> Replayed:
        """As the synchronous ``replay``. When it is cancelled it goes on to its end."""
        return await in_thread(
            lambda: self.sync.replay(
                letters, reader=reader, letters_max=letters_max, index=index, timeout=timeout
            )
        )
