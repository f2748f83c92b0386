"""``Pipe``: both ends of a pipe in one process, as an application sees it."""

from __future__ import annotations

from typing import Unpack

from surepipe.actors.async_face import AsyncHandling, AsyncReplaying, entered
from surepipe.actors.consuming.handling import HandlingFace
from surepipe.actors.ends.assembly import Assembly, PipeKeywords, PipeOptions
from surepipe.actors.ends.face import EXIT_S, Face
from surepipe.actors.ends.intake import BEGUN_S
from surepipe.actors.ends.sender import PARTING_S
from surepipe.actors.replaying import ReplayingFace
from surepipe.errors import NotConfirmed
from surepipe.pipes.catalogue import Layers

UNATTENDED_S = 1.0
FAILING_S = 60.0
"""A handler that raised longer ago than this has got over it, or what it raised is no news."""


class Pipe(Face, HandlingFace, ReplayingFace):
    """A pipe whose two ends live in this process.

    ``layers``: outermost first, each a name, a mapping of its name to options, or a value such as
    ``MultiUnconfirmed(window=512)``. ``route``: what carries the
    frames, by default a local route. ``codec``: see ``actors.codecs``. ``retries``: how often a handler is tried
    before its message goes to ``dead_letter``; without that it is tried for ever. ``notices``: called with each
    ``PipeNotice`` in place of logging it, on a thread of the pipe. ``seed`` makes random draws repeatable,
    ``runtime`` may be a ``StepRuntime``; both are for tests. ``trace`` takes rows that tell what the pipe did,
    for an audit (such as a ``TraceRecorder``); the caller closes it, after the pipe.

    ``boundary``: when a message is settled. ``"processed"``: its handler has returned. ``"committed"``: what the
    handler did in the transaction that it got is stored, with the receiver's state in the same transaction.
    ``"before"``: the state is stored, and then the message is handled: never twice. ``"handed"``: the message lies
    in the handler's inbox; one that fails there is told and lost.

    Stores, each a ``MemoryStore``, ``SqliteStore``, ``RedisStore`` or the like, and one may have several parts:
    ``journal`` keeps what was accepted and is not confirmed, so a crash of the sender loses nothing. ``state``
    keeps how far the receiver is. ``store`` keeps the messages of a stream layer (and the reader's position,
    unless ``state`` does), bounded by ``retention``. ``dead_letter`` may be a store too (its stream is
    ``<name>/dead``), or a ``DeadLetterStream``, or a callable such as ``DeadLetters()``. A pipe of the same name
    finds in the stores what the one before left there. The caller closes the stores, after the pipe.

    ``key``, ``lanes``: messages of different keys are handled at once, at most ``lanes`` (4) of them, and those of
    one key one after the other, in order. A message that fails holds up its own key only. ``key`` is a function of
    the message, the name of an item or attribute, or a path such as ``"order.customer"``, and always tells the
    same for the same message. Only with boundary ``"processed"``, and for handlers that may run on many threads.

    ``start=False``: nothing is sent and nothing is taken before ``start()``, so that a program can make everything
    that a message needs, and give its handler, before the first one comes: with boundary ``"handed"`` a message
    that waits for a handler counts as settled, and would end with a program that fails while it begins. Routes are
    open by then: a port that is taken is refused here.

    ``guarantee`` says what all this promises, computed with the levels that the stores really have. Raises
    ConfigurationError for a layer or option that is wrong, CompositionError for what can't keep its promise, and
    StoreUnavailable when a store does not answer. None of them leaves a thread behind.

    Over a local route frames are objects, which cost nothing per byte. The outermost layer there, without a store,
    has longer runs than the defaults (``run_max`` 4096, ``window`` 8192, ``backlog`` 16384, ``frame_max_bytes``
    1 MiB, above other layers 256 KiB) unless one of these is given. The bounds in bytes are the same.

    Use it in a ``with`` block: at its end everything sent is waited for (at most 30 s), then the pipe is closed.
    When the block is left by an exception the pipe is closed at once.
    """

    def __init__(
        self,
        name: str,
        layers: Layers = "reliable",
        **options: Unpack[PipeKeywords],
    ) -> None:
        given = PipeOptions.given("Pipe", PipeKeywords, options)
        super().__init__(name, given.codec)
        apart_with = self._codec if given.store is not None else None
        parts = Assembly(name, layers, given, apart_with=apart_with)
        self.route = parts.route
        self.guarantee = parts.guarantee
        self.dead_letters = parts.letters
        """Where dead letters go: a ``DeadLetterStream``, if ``dead_letter`` was a store."""
        self._composition = parts.composition
        self._runtime = parts.options.runtime
        self._has_stream = parts.stream is not None
        self._journal = parts.journal
        self.receiver = parts.receiver(self._codec)
        self.sender = parts.sender(
            self.receiver.expect_end_of_stream if self._has_stream else self.receiver.expect_end
        )
        self.receiver.other_end, self.sender.other_end = self.sender, self.receiver
        self.sender.intake.held_up = self._held_up
        self._commits = parts.commits(self.receiver)
        self._put = self.sender.entry(self._codec)
        if parts.waits_for_each:
            self.sender.intake.handled_here = self.receiver.works.handled_here
        self._begin(self.receiver, self.sender, start=given.start)

    async def __aenter__(self) -> AsyncPipe:
        """The async face, for the loop that runs here."""
        self._require_open()
        return await entered(self, self._await_begin, lambda: AsyncPipe(self))

    def __str__(self) -> str:
        return f"{self.name}: {self._composition}"

    @property
    def observed_as(self) -> str:
        return self.receiver.observed_as

    # The end.

    def finish(self) -> None:
        """Take no more messages; a ``for`` loop over the pipe ends when all that was sent is settled."""
        self.sender.say_finished()

    def close(self, timeout: float = EXIT_S) -> None:
        """Take no more messages, wait until all are confirmed, then end all threads of the pipe.

        Raises NotConfirmed for what was not confirmed within ``timeout`` seconds, after everything is ended; a
        journal keeps that for the next pipe of this name. Where nobody takes messages (no handler, no loop) the
        wait is short, from when the journal has said what it holds; so it is in the body of a loop over the pipe,
        whose message nobody else could settle. A stream layer confirms what its store has, and does not need
        anybody. A handler that is still busy at the end is left alone: what it handles is not confirmed. A second
        call does nothing. Raises MisuseError inside the pipe's own handler, where nothing is changed.
        """
        self._require_seconds(timeout, or_none=False)
        self.check_outside("close", loops=False)
        if self._is_closed:
            return
        if not self.is_started:
            self.abort()
            return
        self._closed()
        self.sender.finish()
        timeout = self._patience(timeout)
        is_attended = self._is_attended
        end = self._runtime.now() + round(timeout * 1_000_000)
        try:
            if not (is_attended or self._has_stream):
                self.sender.intake.await_life(timeout)
                end = min(end, self._runtime.now() + round(UNATTENDED_S * 1_000_000))
            self.sender.intake.finish(max(0, end - self._runtime.now()) / 1_000_000)
            if is_attended or not self._has_stream:
                self._await_handled(max(0, end - self._runtime.now()) / 1_000_000)
        except KeyboardInterrupt:
            self._warn_of_unconfirmed()
            end = 0
            raise
        finally:  # a handler has what is left of that time, or a second, to end its message
            self._end(max((end - self._runtime.now()) / 1_000_000, 1.0))

    @property
    def _is_attended(self) -> bool:
        return self.receiver.has_consumer or self._is_iterated

    def _held_up(self) -> str:
        """What the confirmation of what was sent waits for: both ends are here, so more is known."""
        if not self.is_started:
            return "the pipe is not started. Call start()"
        if self._has_stream or self.sender.silences.text():
            return self.sender.held_up()
        if silent := self.receiver.silences.text():
            return f"{silent}, and what was sent waits for it"
        if not self._is_attended:
            return "nobody takes its messages. Give it a handler by receive(...), or loop over it"
        return self._unhandled()

    def _unhandled(self) -> str:
        """Why what has arrived is not handled although somebody takes it."""
        if why := self.receiver.keyless_for:
            return (
                f"the key of a message can't be told ({why}), and there is no place for dead letters, so it is "
                "not tried again. Mend what tells the key, or name dead_letter"
            )
        if waits_for := self.receiver.works.waits_for:
            return f"what was sent waits for the handler, and that for room. {waits_for}"
        if (raised := self.receiver.works.raised) is not None:
            ago_s = (self._runtime.now() - raised[0]) / 1_000_000
            if ago_s < FAILING_S:
                return f"what was sent waits for the handler, which raised {raised[1]} {ago_s:.1f} s ago"
        return "what was sent waits for the handler, or the loop. Look at what that does"

    def _patience(self, timeout: float) -> float:
        """Nothing is handled while the loop that takes the messages is at this very call."""
        works = self.receiver.works
        is_loops_own = works.pulling_thread is not None and works.pulling_thread == works.here()
        return min(timeout, UNATTENDED_S) if is_loops_own and not self._has_stream else timeout

    def _await_handled(self, timeout: float) -> None:
        """Where nothing confirms, what arrived may still wait for the handler; a stream keeps it."""
        works, has_handler = self.receiver.works, self.receiver.has_consumer

        def is_handled() -> bool:
            # With boundary "handed" or "before" the machine is through before the handler is.
            return works.ended and not (has_handler and works.has_unhandled)

        # That nothing is left the receiver has still to see, which is no wait for the handler.
        works.signal.wait(lambda: works.ended or works.has_unhandled, BEGUN_S)
        is_all = works.signal.wait(is_handled, timeout)
        if not is_all and not self._has_stream:
            raise NotConfirmed(
                f"pipe {self.name}: closed while messages that had arrived were not handled yet; "
                "give close more time"
            )

    def _end(self, timeout: float) -> None:
        end = self._runtime.now() + round(timeout * 1_000_000)
        is_ended = self.receiver.stop(timeout)
        left = (end - self._runtime.now()) / 1_000_000
        is_ended = self.sender.stop(max(left, PARTING_S)) and is_ended
        if not is_ended:
            self._warn_of_busy()
        if self._has_stream or self._journal is not None:
            self._warn_of_repeats()

    # Questions.

    def counters(self) -> dict[str, int]:
        """Everything counted at both ends, by name, since the pipe was made; gauges of what stands now too."""
        total = self.sender.counters()
        for name, count in self.receiver.counters().items():
            total[name] = total.get(name, 0) + count
        return total | self.receiver.gauges() | self.sender.gauges()


class AsyncPipe(AsyncReplaying[Pipe], AsyncHandling[Pipe]):
    """A pipe whose ends live in this process."""

    _of = (Pipe,)

    def finish(self) -> None:
        """Take no more messages; an ``async for`` over the pipe ends when all that was sent is settled."""
        self.sync.finish()
