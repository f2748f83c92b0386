"""``Pipe``: both ends of a pipe in one process, as an application sees it."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Literal, Self, TypeAlias, cast

from surepipe.actors.codecs import CodecChoice, choose_codec, encode_all
from surepipe.actors.consumer import BatchHandler, Handler, each, pull, together
from surepipe.actors.end import EndOptions
from surepipe.actors.ends import ReceiverEnd, SenderEnd
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.marks import Until
from surepipe.actors.notices import NoticeCallback, log_notice
from surepipe.actors.routes import LocalRoute, Route
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import THREADS
from surepipe.errors import ConfigurationError, MisuseError, NotConfirmed, PipeClosed
from surepipe.pipes.algebra import derive
from surepipe.pipes.algebra.derivation import Derived
from surepipe.pipes.algebra.hops import Hop, Level, Store
from surepipe.pipes.desk import Boundary, BoundaryOptions
from surepipe.pipes.options import LayerText, parse_layers
from surepipe.pipes.stack import composition

UntilText: TypeAlias = Literal["accepted", "confirmed"]
_UNTIL = {"accepted": Until.ACCEPTED, "confirmed": Until.CONFIRMED}
_LETTERS = Store("dead letters", Level.NONE, kind="memory")
CHUNK = 512
EXIT_S = 30.0
UNATTENDED_S = 1.0

logger = logging.getLogger("surepipe")


class Pipe:
    """A pipe whose two ends live in this process.

    ``layers``: outermost first, each a name or a mapping of its name to options. ``route``: what carries the
    frames, by default a local route. ``codec``: see ``actors.codecs``. ``boundary``: ``"processed"`` (a message is
    settled when the handler has returned) or ``"handed"`` (when it lies in the handler's inbox). ``retries``: how
    often a handler is tried before its message goes to ``dead_letter``, a callable such as ``DeadLetters()``;
    without it a message is tried for ever. ``notices``: called with each ``PipeNotice`` in place of logging it.
    ``seed`` makes random draws repeatable, ``runtime`` may be a ``StepRuntime``; both are for tests.

    Raises ConfigurationError for a layer or option that is wrong, and CompositionError for a stack that can't
    keep its promise over the route. Neither leaves a thread behind.

    Use it in a ``with`` block: at its end everything sent is waited for (at most 30 s), then the pipe is closed.
    When the block is left by an exception the pipe is closed at once.
    """

    def __init__(
        self,
        name: str,
        layers: LayerText | Sequence[LayerText] = "reliable",
        *,
        route: Route | None = None,
        codec: CodecChoice = "auto",
        boundary: Boundary | Literal["processed", "handed"] = Boundary.PROCESSED,
        retries: int | None = None,
        retry_min_s: float = 0.1,
        retry_max_s: float = 30.0,
        dead_letter: DeadLetterPlace | None = None,
        notices: NoticeCallback = log_notice,
        restarts: RestartPolicy | None = None,
        frames_max: int = 1024,
        seed: int | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        if not name:
            raise ConfigurationError("a pipe needs a name: its ends and its traces are found by it")
        stack = parse_layers(layers)
        used_route: Route = route or LocalRoute()
        self.name = name
        self.route = used_route
        self.guarantee: Derived = derive(
            Hop(
                name,
                stack,
                route=used_route.declared,
                boundary=Boundary(boundary),
                retries=retries,
                dead_letters=None if dead_letter is None else _LETTERS,
            )
        )
        self._codec = choose_codec(codec)
        self._encode = self._codec.encode
        options = EndOptions(
            runtime=runtime or THREADS,
            notices=notices,
            restarts=restarts or RestartPolicy(),
            frames_max=frames_max,
            seed=seed,
        )
        self._runtime = options.runtime
        self.receiver = ReceiverEnd(
            name,
            stack,
            used_route.receiver,
            options,
            boundary=BoundaryOptions(
                boundary=Boundary(boundary),
                retries=retries,
                retry_min_s=retry_min_s,
                retry_max_s=retry_max_s,
                dead_letters=dead_letter is not None,
            ),
            dead_letter=dead_letter,
            gave_up=self._receiver_gave_up,
        )
        self.sender = SenderEnd(
            name,
            stack,
            used_route.sender,
            options,
            undeliverable=dead_letter,
            drained=self.receiver.expect_end,
        )
        self._composition = f"{composition(stack)} / {used_route.declared.name}"
        self._put = self.sender.intake.put
        self._is_iterated = False
        self._is_closed = False
        try:
            self.receiver.start()
            self.sender.start()
        except BaseException:
            self._end(1.0)
            raise
        _OPEN.add(self)

    def __str__(self) -> str:
        return f"{self.name}: {self._composition}"

    # Sending.

    def send(
        self, message: object, *, until: UntilText = "accepted", timeout: float | None = None
    ) -> None:
        """Send a message. It is accepted when this returns: the pipe will deliver it as it promises.

        Waits for room, ``timeout`` seconds at the most. With ``until="confirmed"`` it also waits until the
        receiver has settled the message. Messages of one thread keep their order.

        Raises MisuseError (the codec does not take it), PayloadTooLarge, PipeFull (no room in time: not
        accepted), NotConfirmed (accepted, not confirmed in time: the pipe goes on trying), PipeClosed,
        PipeStopped. Sending again after NotConfirmed sends a second message. A handler may send into its own
        pipe, but not wait there: when the pipe is full, that would be for itself (give a ``timeout``).
        """
        if until == "accepted" and timeout is None:
            self._put(self._encode(message))
        else:
            chosen = self._until(until)
            self.sender.intake.offer(self._encode(message), chosen, timeout)

    def send_nowait(self, message: object) -> None:
        """Send a message if there is room now. Raises PipeFull if not; nothing was accepted then."""
        self.sender.intake.offer(self._encode(message), Until.ACCEPTED, 0.0)

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
        ``send`` raises; PipeFull says how many were accepted.
        """
        chosen = self._until(until)
        codec, intake = self._codec, self.sender.intake
        if isinstance(messages, list | tuple):
            return intake.offer_many(encode_all(codec, messages), chosen, timeout)
        if isinstance(messages, (str, bytes, bytearray, Mapping)):
            name = type(cast("object", messages)).__name__
            raise MisuseError(f"send_many got one {name}: use send for it, or put it in a list")
        sent = 0
        source = iter(messages)
        while piece := list(islice(source, CHUNK)):
            sent += intake.offer_many(encode_all(codec, piece), Until.TAKEN, timeout)
        if sent:
            intake.offer_many((), chosen, timeout)
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
        self._check_outside("flush")
        self.sender.intake.flush(timeout)

    def _until(self, until: UntilText) -> Until:
        chosen = _UNTIL.get(until)
        if chosen is None:
            raise MisuseError(f"until is {until!r}: write 'accepted' or 'confirmed'")
        if chosen is Until.CONFIRMED and not self.sender.confirms:
            raise MisuseError(
                f"pipe {self}: no layer of it confirms, so until='confirmed' would wait for ever; "
                "put a retry pipe (such as multi-unconfirmed) into the stack, or use until='accepted'"
            )
        if chosen is Until.CONFIRMED:
            self._check_outside("until='confirmed'")
        return chosen

    # Receiving.

    def receive(self, handler: Handler) -> None:
        """Let ``handler(message)`` take every message, on a thread of its own; it is settled when that returns.

        When it raises, the message is tried again with growing waits (see ``retries``); what follows it in an
        ordered pipe waits. Raises PipeClosed, and MisuseError when there is a handler already, or a ``for`` loop.
        """
        self._check_open()
        self._check_unused()
        self.receiver.consume(each(handler, self._codec))

    def receive_many(self, handler: BatchHandler) -> None:
        """Let ``handler(messages)`` take messages in batches, as they come.

        A batch is settled as one: when the handler raises, all of it is tried again. Raises MisuseError as
        ``receive``.
        """
        self._check_open()
        self._check_unused()
        self.receiver.consume(together(handler, self._codec))

    def __iter__(self) -> Iterator[object]:
        """The messages, each settled when the next is asked for, or when the loop ends by itself.

        A loop that is left early (``break``, an exception) leaves its last message unsettled: the next loop
        over the pipe begins with it. The loop ends when the pipe is closed, or finished (see ``finish``) and
        everything was settled. One loop at a time, and none beside a handler: MisuseError.
        """
        self._check_unused()
        self._is_iterated = True
        return self._iterate()

    def _iterate(self) -> Iterator[object]:
        try:
            yield from pull(self.receiver.works, self._codec)
        finally:
            self._is_iterated = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise PipeClosed(f"pipe {self.name} is closed: no message will come to a handler")

    def _check_unused(self) -> None:
        if self.receiver.has_consumer or self._is_iterated:
            raise MisuseError(
                f"pipe {self.name} has a {'handler' if self.receiver.has_consumer else 'loop'} "
                "that takes its messages: use one, or make it pass them on to several"
            )

    # The end.

    def finish(self) -> None:
        """Take no more messages; a ``for`` loop over the pipe ends when all that was sent is settled."""
        self.sender.finish()

    def close(self, timeout: float = EXIT_S) -> None:
        """Take no more messages, wait until all are confirmed, then end all threads of the pipe.

        Raises NotConfirmed for what was not confirmed within ``timeout`` seconds, after everything is ended.
        Where nobody takes messages (no handler, no loop) the wait is short. A handler that is still busy at
        the end is left alone: what it handles is not confirmed. A second call does nothing. Raises MisuseError
        inside the pipe's own handler, where nothing is changed.
        """
        self._check_outside("close", loops=False)
        if self._is_closed:
            return
        self._is_closed = True
        _OPEN.discard(self)
        self.sender.finish()
        if not (self.receiver.has_consumer or self._is_iterated):
            timeout = min(timeout, UNATTENDED_S)
        end = self._runtime.now() + round(timeout * 1_000_000)
        try:
            self.sender.intake.finish(timeout)
            self._await_handled(max(0, end - self._runtime.now()) / 1_000_000)
        finally:
            self._end(max(timeout, 1.0))

    def _await_handled(self, timeout: float) -> None:
        """Where nothing confirms, what arrived may still wait for the handler."""
        works = self.receiver.works
        if not works.signal.wait(lambda: works.ended, timeout):
            raise NotConfirmed(
                f"pipe {self.name}: closed while messages that had arrived were not handled yet; "
                "give close more time"
            )

    def _check_outside(self, what: str, *, loops: bool = True) -> None:
        works, here = self.receiver.works, threading.get_ident()
        if here in (works.handler_thread, works.pulling_thread if loops else None):
            where = "handler of" if works.handler_thread == here else "loop over"
            raise MisuseError(
                f"{what} inside the {where} pipe {self.name} would wait for the message that is "
                "being handled there: call it outside, or finish() here"
            )

    def _end(self, timeout: float) -> None:
        is_ended = self.receiver.stop(timeout)
        is_ended = self.sender.stop(timeout) and is_ended
        if not is_ended:
            logger.warning(
                "pipe %s is closed and its handler is still busy: the message that it handles is "
                "not confirmed",
                self.name,
            )

    def _receiver_gave_up(self, why: str) -> None:
        self.sender.give_up(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        if not self._is_closed:
            self._is_closed = True
            _OPEN.discard(self)
            _warn_of_unconfirmed(self)
            self._end(1.0)

    # Questions.

    def counters(self) -> dict[str, int]:
        """Everything counted at both ends, by name, since the pipe was made; gauges of what stands now too."""
        total: dict[str, int] = {}
        for counted in (
            self.sender.counters(),
            self.receiver.counters(),
            self.receiver.gauges(),
            self.sender.gauges(),
        ):
            for name, count in counted.items():
                total[name] = total.get(name, 0) + count
        return total


_OPEN: weakref.WeakSet[Pipe] = weakref.WeakSet()


def _warn_of_unconfirmed(pipe: Pipe) -> None:
    items = pipe.sender.unconfirmed()
    count = sum(last - first + 1 for _, first, last in items) + pipe.sender.intake.waiting
    if count:
        logger.warning(
            "pipe %s ends with %d messages that are not confirmed; they are given up",
            pipe.name,
            count,
        )


@atexit.register
def _at_exit() -> None:
    """A pipe that nobody closed ends with the process: say what that loses."""
    for pipe in list(_OPEN):
        _warn_of_unconfirmed(pipe)
