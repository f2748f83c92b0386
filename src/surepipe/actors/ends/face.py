"""The methods that applications call on pipes and channels: sending, receiving, closing."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeAlias, cast

from surepipe.actors.codecs import CodecChoice, Undecodable, choose_codec, encode_all
from surepipe.actors.consuming.consumer import TaskLoop, pull
from surepipe.actors.consuming.coroutines import (
    HandlerKind,
    in_task,
    in_thread,
    kind_of,
    let_others_run,
)
from surepipe.actors.ends.intake import Until
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.sender import SenderEnd
from surepipe.actors.host import NodeEnd
from surepipe.actors.threads import ThreadRuntime
from surepipe.core.callables import require_name, require_seconds, require_several
from surepipe.core.effects import Letter
from surepipe.errors import MisuseError, PayloadTooLarge, PipeClosed, PipeFull, PipeStopped

UntilText: TypeAlias = Literal["accepted", "confirmed"]
_UNTIL = {"accepted": Until.ACCEPTED, "confirmed": Until.CONFIRMED}
CHUNK = 512
EXIT_S = 30.0

logger = logging.getLogger("surepipe")


def _after_fork(act: Callable[[], None]) -> Callable[[], None]:
    """Do this in the child of each fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)
    return act


class OneClose:
    """Lets several tasks close one face: those that come while a close is under way wait for its end, and get what
    it raises. Its own caller may have been cancelled, and then nobody else would."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Future[None] | None = None

    def run(self, close: Callable[[], None]) -> None:
        """Close, or wait for the close that is under way. What it closes a second time is its own affair."""
        mine: Future[None] = Future()
        with self._lock:
            other = self._under_way
            self._under_way = other or mine
        if other is not None:
            other.result()
            return
        try:
            close()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(None)
        finally:
            self._under_way = None


class Named:
    """The base of every face: a name, a codec, and whether it is closed."""

    _noun = "pipe"
    _ends: tuple[NodeEnd, ...] = ()

    def __init__(self, name: str, codec: CodecChoice) -> None:
        require_name(name)
        self.name = name
        self._codec = choose_codec(codec)
        self._encode = self._codec.encode
        self._is_iterated = False
        self._is_closed = False
        self._left_behind: PipeStopped | None = None
        """What whoever uses it hears, in the child of a fork."""
        self._one_close = OneClose()

    @property
    def observed_as(self) -> str:
        """What it is called where somebody looks on (metrics, ``Watch``, notices): its name, and for a reader or
        producer of a stream with a name of its own that, too: ``posts/mail``."""
        return self.name

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        """Refuse to wait where the wait would be for itself: nowhere, unless this end handles messages."""
        del what, loops

    def _warn_of_unconfirmed(self) -> None:
        """Say what is lost with this end, which ends now: nothing, unless it sends."""

    # The end.

    def close(self, timeout: float = EXIT_S) -> None:
        """Take no more messages, wait until all are confirmed, and end."""
        raise NotImplementedError

    def closing(self, timeout: float) -> Callable[[], None]:
        """``close``, for another thread: it waits as long as one that is called here, and joins one under way."""
        self._require_seconds(timeout, or_none=False)
        patience = self._patience(timeout)
        return lambda: self._one_close.run(lambda: self.close(patience))

    def _require_seconds(self, timeout: float | None, *, or_none: bool = True) -> None:
        """Refuse a ``timeout`` that is none, before anything happens."""
        if timeout is not None or not or_none:
            require_seconds(f"{self._noun} {self.name}", timeout, or_none=or_none)

    def _patience(self, timeout: float) -> float:
        """How long ``close`` waits that is called here."""
        return timeout

    def _end(self, timeout: float) -> None:
        raise NotImplementedError

    @staticmethod
    @atexit.register
    def _at_exit() -> None:
        """Say what is lost by pipes that are still open when the process ends."""
        for face in list(_OPEN):
            face._warn_of_unconfirmed()

    @staticmethod
    @_after_fork
    def _at_fork() -> None:
        """In the child: none of the threads is here that the pipes of the parent have."""
        faces = list(_OPEN)
        _OPEN.clear()
        for face in faces:
            face._leave_behind()

    def _leave_behind(self) -> None:
        """To close it here is no wait, and anything else an error: what is given to it would lie there."""
        self._is_closed = True
        self._one_close = OneClose()
        error = self._left_behind = PipeStopped(
            f"{self._noun} {self.name} was made before this process was forked, and goes on in the parent alone: "
            "make another one here, with stores and routes that are opened here. Nothing was done"
        )
        for end in self._ends:
            end.leave_behind(error)

    def _opened(self) -> None:
        # A simulated process loses nothing with ours.
        if isinstance(self._ends[0].runtime, ThreadRuntime):
            _OPEN.add(self)

    def _closed(self) -> None:
        self._is_closed = True
        _OPEN.discard(self)

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def _await_begin(self) -> None:
        """Wait until its ends have begun, as far as whoever enters a block around it relies on that."""

    def _require_open(self) -> None:
        """Raises PipeClosed where nothing can be done with it any more, PipeStopped in the child of a fork."""
        if self._left_behind is not None:
            raise self._left_behind
        if self._is_closed:
            raise PipeClosed(f"{self._noun} {self.name} is closed: make another one")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        self.abort()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As ``__exit__``, without blocking the loop. When it is cancelled while it waits, it ends at once."""
        if kind is not None:
            await in_thread(self.abort)
            return
        await in_task(lambda: self.check_outside("close", loops=False))
        closing = await in_task(lambda: self.closing(EXIT_S))
        try:
            await in_thread(closing)
        except asyncio.CancelledError:
            await in_thread(self._cut_short)
            raise

    if not TYPE_CHECKING:  # a checker says so by itself

        def __aiter__(self) -> NoReturn:
            kind = type(self).__name__
            raise MisuseError(
                f"{self._noun} {self.name}: {kind} is not the async face: write async with {kind}(...) as face, "
                "and async for over that"
            )

    def abort(self) -> None:
        """End at once; what is not confirmed is given up, and said so. A second call does nothing."""
        if not self._is_closed:
            self._closed()
            self._cut_short()

    def _cut_short(self) -> None:
        """End at once, also while ``close`` waits in another thread, and say what is lost."""
        self._warn_of_unconfirmed()
        self._end(1.0)


class StartingFace(Named):
    """What begins when it is made, or when it is told to. Whoever derives from this calls ``_begin``."""

    def _begin(self, *ends: NodeEnd, start: bool) -> None:
        """Begin, or have everything ready for that: a port that is taken is known before anything is taken."""
        self._ends = ends
        if start:
            self.start()
            return
        try:
            for end in ends:
                end.node.open()
        except BaseException:
            self._is_closed = True
            self._end(1.0)
            raise
        self._opened()

    @property
    def is_started(self) -> bool:
        """False before ``start``, where the constructor was told to wait for that."""
        return any(end.is_started for end in self._ends)

    def start(self) -> None:
        """Begin to send and to take messages; a second call does nothing. Only for what was made with
        ``start=False``, which has opened its route already."""
        self._require_open()
        try:
            for end in self._ends:
                end.start()
        except BaseException:
            self._end(1.0)
            raise
        self._opened()


def _after(sent: int, error: BaseException) -> BaseException:
    """What stopped ``send_many`` in the middle of an iterable, saying how much was accepted by then."""
    if not isinstance(error, MisuseError | PayloadTooLarge | PipeFull):
        error.add_note(f"send_many had sent {sent} messages by then, which are accepted")
        return error
    text = str(error).replace("nothing was accepted", "nothing of this piece was accepted")
    return type(error)(f"{text}; {sent} messages of the pieces before it were accepted")


class LettersFace(Named):
    """Dead letters, as whoever gets or replays them reads them."""

    def message_of(self, letter: Letter) -> object:
        """The message that a dead letter of this pipe holds, as its handler got it, or would get it.

        Raises ValueError where that is what no handler could get: its bytes are ``letter.payload``.
        """
        try:
            return self._codec.decode(letter.payload)
        except Undecodable as error:
            raise ValueError(
                f"the letter holds no message of {self._noun} {self.name}: {error}"
            ) from error


class SendingFace(Named):
    """Sending. Whoever derives from this sets ``sender`` and ``_put``."""

    sender: SenderEnd
    """The end itself: for what is built on pipes here, and for ``crash()`` in tests. An application needs none
    of it, and it may change with any version."""
    _put: Callable[[object], None]

    def _await_begin(self) -> None:
        super()._await_begin()
        if self.sender.node.is_started:
            self.sender.intake.await_begin()

    def send(
        self, message: object, *, until: UntilText = "accepted", timeout: float | None = None
    ) -> None:
        """Send a message. It is accepted when this returns: the pipe will deliver it as it promises.

        Waits for room, ``timeout`` seconds at the most. With ``until="confirmed"`` it also waits until the
        receiver has settled the message: it was handled, or went to the dead letters (``dead_letter``, and the
        notices, say which). Messages of one thread keep their order.

        Raises MisuseError (the codec does not take it, or ``timeout`` or ``until`` can't be meant),
        PayloadTooLarge, PipeFull (no room in time: not accepted), NotConfirmed (accepted, not confirmed in time:
        the pipe goes on; or given up, and in this end's dead letters; or a journal has not said in time whether it
        has it; or the pipe was closed meanwhile), PipeClosed (not accepted), PipeStopped. Sending again after
        NotConfirmed sends a second message.
        A handler may send into its own pipe; when that is full and only the end of this handler makes room, it
        raises MisuseError. Where that is not known for sure (with lanes, in a stack of several layers, an
        unordered pipe, or from another thread that the handler waits for) it waits for itself: give a ``timeout``.
        """
        if until == "accepted" and timeout is None:
            self._put(message)
        else:
            self._require_seconds(timeout)
            chosen = self._until(until)
            self.sender.intake.offer(self._encode(message), chosen, timeout)

    def send_nowait(self, message: object) -> None:
        """Send a message if there is room now. Raises PipeFull if not; nothing was accepted then.

        With a journal it returns when the journal has the message. Otherwise raises what ``send`` raises.
        """
        self.sender.intake.offer_now(self._encode(message))

    def send_many(
        self,
        messages: Iterable[object],
        *,
        until: UntilText = "accepted",
        timeout: float | None = None,
    ) -> int:
        """Send messages in order and give their number; much faster than one by one.

        A list or tuple is encoded and checked as a whole before the first message is sent. Another iterable is
        taken piece by piece, so it may be endless; if it raises, the pieces before are sent. Raises what
        ``send`` raises, which then says how many were accepted.
        """
        self._require_seconds(timeout)
        chosen = self._until(until)
        codec, intake = self._codec, self.sender.intake
        if isinstance(messages, list | tuple):
            return intake.offer_many(encode_all(codec, messages), chosen, timeout)
        require_several("send_many", messages, "send")
        sent = 0
        source = iter(messages)
        try:
            while piece := list(islice(source, CHUNK)):
                sent += intake.offer_many(encode_all(codec, piece), Until.TAKEN, timeout)
                let_others_run()
        except BaseException as error:
            if sent:
                raise _after(sent, error) from error.__cause__
            raise
        if sent:
            intake.offer_many((), chosen, timeout, before=sent)
        return sent

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is confirmed, ``timeout`` seconds at the most.

        On a stack that never confirms (an index pipe over the bare route) this waits until everything was
        handed to the route, which is all that can be known there. Where the stack does not provide "no loss",
        confirmed means: it has reached the receiver.

        Raises NotConfirmed, whose ``ranges`` name the messages as (epoch, first, last), and which also tells,
        once, of messages that were lost with a crashed sender; PipeStopped; PipeClosed; MisuseError inside
        the pipe's own handler or loop, whose message can't be confirmed before the next.
        """
        self._require_seconds(timeout)
        self.check_outside("flush")
        self.sender.flush(timeout)

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        super().check_outside(what, loops=loops)
        self.sender.intake.refuse_inside(Until.CONFIRMED)

    def _until(self, until: UntilText) -> Until:
        chosen = _UNTIL.get(until) if isinstance(cast("object", until), str) else None
        if chosen is None:
            raise MisuseError(f"until is {until!r}: write 'accepted' or 'confirmed'")
        if chosen is Until.CONFIRMED and not self.sender.confirms:
            raise MisuseError(
                f"{self._noun} {self}: no layer of it confirms, so until='confirmed' would wait for ever; "
                "put a retry pipe (such as multi-unconfirmed) into the stack, or use until='accepted'"
            )
        if chosen is Until.CONFIRMED:
            self.check_outside("until='confirmed'")
        return chosen

    def _warn_of_unconfirmed(self) -> None:
        """Log how many messages are not confirmed, and whether they are lost."""
        items = self.sender.unconfirmed()
        count = sum(last - first + 1 for _, first, last in items) + self.sender.intake.waiting
        if count:
            what, they, are = ("message", "it", "is") if count == 1 else ("messages", "they", "are")
            kept = "it" if count == 1 else "them"
            logger.warning(
                "%s %s ends with %d %s that %s not confirmed; %s",
                *(self._noun, self.name, count, what, are),
                f"the journal keeps {kept}"
                if self.sender.has_journal
                else f"{they} {are} given up",
            )


class ReceivingFace(Named):
    """Receiving. Whoever derives from this sets ``receiver``."""

    receiver: ReceiverEnd
    """As ``sender``."""

    def __enter__(self) -> Self:
        """Over a stream everything comes that is confirmed from here on, wherever the reader starts. Raises
        StoreUnavailable where the store does not say where the latest is."""
        super().__enter__()
        try:
            self.receiver.await_place()
        except BaseException:
            self.abort()
            raise
        return self

    def _await_begin(self) -> None:
        super()._await_begin()
        self.receiver.await_place()

    def __iter__(self) -> Iterator[object]:
        """The messages, each settled when the next is asked for, or when the loop ends by itself.

        A loop that is left early (``break``, an exception) leaves its last message unsettled: the next loop
        over the pipe begins with it. The loop ends when the pipe is closed, or finished (see ``finish``) and
        everything was settled. One loop at a time, and none beside a handler: MisuseError. PipeClosed for one that
        is begun when the pipe has ended.
        """
        if (
            self.receiver.works.ended
        ):  # while ``close`` waits, a loop may still take what it waits for
            self._check_open()
        self._check_loop()
        return self._iterate()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no message will come any more: it has finished (see ``finish``) and everything is settled, or
        was closed. False when that takes longer than ``timeout`` seconds.

        Raises PipeStopped when it stopped for good by itself, because another process took its place, say: a
        program whose handler does all the work hears of that here.
        """
        self._require_seconds(timeout)
        self.check_outside("wait")
        return self.receiver.await_end(timeout)

    def _warn_of_busy(self) -> None:
        """Log that a handler goes on though this end has ended: what it still does, nobody waits for."""
        count = len(self.receiver.works.running())
        what = (
            f"{count} messages that it handles are" if count > 1 else "message that it handles is"
        )
        if count:
            logger.warning(
                "%s %s is closed and its handler is still busy: the %s not confirmed",
                *(self._noun, self.name, what),
            )

    def _warn_of_repeats(self) -> None:
        """With lanes: what is settled behind what is not comes again, as a place is one number."""
        count, self.receiver.comes_again = self.receiver.comes_again, 0
        if count:
            what = "messages that were" if count > 1 else "message that was"
            comes = "come" if count > 1 else "comes"
            logger.warning(
                "%s %s is closed before an older message was handled: %d %s handled %s again",
                *(self._noun, self.name, count, what, comes),
            )

    def _check_loop(self) -> None:
        """Raises MisuseError where no loop may take the messages."""
        self._check_unused()

    def _in_tasks(self, handler: Callable[..., object], make: Callable[[], TaskLoop]) -> bool:
        """Let a coroutine function take messages in tasks of its loop; False for what is none, and where there is
        no such loop."""
        loop = self.receiver.coroutines.loop if kind_of(handler) is HandlerKind.COROUTINE else None
        if loop is None:
            return False
        self.receiver.consume_in_tasks(make(), loop)
        return True

    def _iterate(self) -> Iterator[object]:
        self._check_loop()  # from here on, so that one that is dropped before its first step is in nobody's way
        self._is_iterated = True
        try:
            yield from pull(self.receiver.works, self._codec)
        finally:
            self._is_iterated = False

    def _check_open(self) -> None:
        if self._left_behind is not None:
            raise self._left_behind
        if self._is_closed:
            raise PipeClosed(
                f"{self._noun} {self.name} is closed: no message will come to a handler or loop"
            )

    def _check_unused(self) -> None:
        if self.receiver.has_consumer or self._is_iterated:
            raise MisuseError(
                f"{self._noun} {self.name} has a {'handler' if self.receiver.has_consumer else 'loop'} "
                "that takes its messages: use one, or make it pass them on to several"
            )

    def check_outside(self, what: str, *, loops: bool = True) -> None:
        """Refuse to wait inside the handler or loop, and to block the loop that a coroutine handler runs on."""
        works = self.receiver.works
        if works.signal.is_for_itself():
            raise MisuseError(
                f"{what} of {self._noun} {self.name} would block the event loop that its handler runs on: await "
                "that of the async face"
            )
        is_handler = works.is_handling_here()
        if is_handler or (loops and works.pulling_thread == works.here()):
            where = "handler of" if is_handler else "loop over"
            raise MisuseError(
                f"{what} inside the {where} {self._noun} {self.name} would wait for the message that is "
                "being handled there: call it outside, or finish() here"
            )


class Face(SendingFace, ReceivingFace):
    """Sending and receiving. Whoever derives from this sets ``sender``, ``receiver`` and ``_put``."""


_OPEN: weakref.WeakSet[Named] = weakref.WeakSet()
