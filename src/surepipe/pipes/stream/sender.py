"""The sending half of the stream pipe: appends runs by identity, several calls under way at once."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.snapshot import stateful
from surepipe.core.store_requests import (
    AppendRun,
    Failed,
    FencedOut,
    Full,
    Gap,
    OpenProducer,
    ProducerOpened,
    Stored,
    said_of_full,
)
from surepipe.pipes.retry.backlog import prefix_within
from surepipe.pipes.stack.layers import SenderLayer, SenderPort
from surepipe.pipes.stream.calls import WARN_AFTER, Asked, StoreCalls
from surepipe.pipes.stream.options import Stream
from surepipe.pipes.wire.frames import Frame


@stateful
class SenderState(Enum):
    """Where the sender stands with its store."""

    OPENING = "opening"
    READY = "ready"
    STOPPED = "stopped"


@stateful
class Sender(SenderLayer):
    """Keeps every message until the store has it.

    Opening: asks what the store has of this epoch. Ready: appends. Stopped: fenced, or refused for good.
    ``payloads`` starts at seq ``first``: what ``retain`` keeps, then from ``base`` on what is not confirmed.
    All below ``next_append`` was asked to be appended since the last opening, or a store has it from an earlier
    life; so it is never below ``base``, except for what is kept and appended again.
    """

    greets: ClassVar[bool] = True
    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng", "calls", "stream", "producer")

    def __init__(self, options: Stream, port: SenderPort, rng: Randomness) -> None:
        self.options: Stream = options
        self.port = port
        self.rng = rng
        self.calls = StoreCalls(options, port, rng)
        self.stream = options.stream or port.pipe
        self.producer = options.producer or port.pipe
        self.state = SenderState.STOPPED
        self.epoch = 0
        self.first = self.base = self.next_append = self.sent_below = 1
        self.payloads: list[bytes] = []
        self.size_bytes = 0
        self.opening: Asked | None = None
        self.appends: list[Asked] = []
        self.resume_at: int | None = None
        self.failures = 0
        self.incarnation = 0
        self.answered = False
        self.is_verifying = False
        self.removed_told: tuple[int, int, int] | None = None

    # From above.

    @property
    def next(self) -> int:
        """The seq of the next message that is taken."""
        return self.first + len(self.payloads)

    @property
    def room(self) -> int:
        """How many messages ``send`` would take now."""
        return self.options.backlog - (self.next - self.base)

    @property
    def room_bytes(self) -> int:
        """How many payload bytes ``send`` would take now."""
        return max(0, self.options.backlog_bytes - self.size_bytes)

    def begin(self, epoch: int, base: int) -> None:
        """Start an epoch; what is under way for the former one is of no interest any more."""
        self._forget_calls()
        self.epoch = epoch
        self.first = self.base = self.next_append = self.sent_below = base
        self.payloads = []
        self.size_bytes = self.failures = 0
        self.incarnation = 0
        self.answered = False
        self._open()

    def send(self, payloads: Sequence[bytes]) -> int:
        """Take what there is room for, and append it as soon as a call is free."""
        taken = list(payloads[: max(0, self.room)])
        size = sum(map(len, taken))
        if size > self.room_bytes:
            nothing_waits = self.next == self.base
            taken, size = prefix_within(taken, self.room_bytes, at_least_one=nothing_waits)
        self.payloads += taken
        self.size_bytes += size
        self._append_more()
        return len(taken)

    def waiting(self) -> list[bytes]:
        """The payloads of everything not confirmed."""
        return self.payloads[self.base - self.first :]

    def unconfirmed(self) -> Ranges:
        """What was taken and is not confirmed."""
        return ((self.base, self.next - 1),) if self.base < self.next else ()

    @property
    def in_flight(self) -> int:
        """Messages in appends that are not answered."""
        return max(0, self.next_append - self.base)

    def gauges(self) -> dict[str, int]:
        return {"in_flight": self.in_flight, "backlog": self.next - self.base - self.in_flight}

    def control(self, frame: Frame) -> None:
        """A store sends no frames."""
        del frame
        self.port.count("wrong_state")

    # Opening.

    def verify(self) -> None:
        """An opening that changes nothing shows by its answer what is gone. While something is under way, its
        answer does."""
        if self.state is SenderState.READY and self.next_append == self.base == self.next:
            self._open()
            self.is_verifying = True

    @property
    def verifying(self) -> bool:
        """True until the store has answered, or has failed to once. Where the stream is gone, for ever."""
        return self.is_verifying and (self.opening is None or self.opening.attempts == 1)

    def _open(self) -> None:
        """Ask what the store has. After a failure not at once: a store may say Gap again and again."""
        self._forget_calls()
        self.is_verifying = False
        self.state = SenderState.OPENING
        # 1. The store goes back behind what it had confirmed, and even forgets that this producer was there.
        # 2. Told where to go on, it goes on from there, and says once at the most what it lacks: to a repeat, or
        #    of a producer that it does not know, it says nothing.
        # 3. The answer that said so gets lost, and nobody ever hears that messages are gone.
        # So who was answered before asks first what is there, which changes nothing however often it is asked.
        request = self._opening_at(1 if self.answered else self.first)
        if self.failures > 1:
            self.opening = self.calls.ask_after(request, self.failures)
        else:
            self.opening = self.calls.ask(request)

    def _opening_at(self, base: int) -> OpenProducer:
        return OpenProducer(self.stream, self.producer, self.epoch, base)

    def _forget_calls(self) -> None:
        for asked in [*self.appends, *([self.opening] if self.opening else [])]:
            self.calls.forget(asked)
        self.appends = []
        self.opening = self.resume_at = None

    def _on_opened(self, opening: Asked, outcome: object) -> None:
        match outcome:
            case ProducerOpened() if self._is_taken(outcome):
                # Nothing of this epoch was appended by this life, so somebody else wrote under its number.
                self._stop()
                self.port.raise_life(self.epoch)
            case ProducerOpened():
                assert isinstance(opening.request, OpenProducer)
                is_told = self.answered and opening.request.base > 1
                self._go_on_from(outcome, is_told=is_told)
            case FencedOut() if self.is_verifying:
                # Nothing waits, so being replaced loses nothing; whatever is sent now will hear of it.
                self._begin_to_append()
            case FencedOut(by):
                self._stop()
                self.port.fenced(by, answered=self.answered)
            case Failed(reason):
                self._fail(reason)
            case _:
                self._note_failure("the store is unavailable")
                self.calls.put_off(opening, self.failures)

    def _is_taken(self, opened: ProducerOpened) -> bool:
        """True for an epoch of this life in which the store has messages before this life sent any."""
        own = self.epoch == self.port.life
        return own and not self.answered and opened.last >= self.base

    def _go_on_from(self, opened: ProducerOpened, *, is_told: bool) -> None:
        """Append from where the store stands. What it lacks and is not kept is told, and left out."""
        self.opening = None
        self.answered = True
        if not is_told:
            self._tell_what_is_lost(opened)
        self.incarnation = opened.incarnation
        self._tell_what_is_removed(opened.removed)
        if opened.last < self.first - 1:
            # Told the first message that is kept, the store leaves the place of the kept ones open.
            self.opening = self.calls.ask(self._opening_at(self.first))
            return
        self.port.reached(opened.last)
        self._confirm(opened.last)
        self.next_append = min(max(self.first, opened.last + 1), self.next)
        self._begin_to_append()

    def _begin_to_append(self) -> None:
        self.opening = None
        self.is_verifying = False
        self.state = SenderState.READY
        self._append_more()

    def _tell_what_is_lost(self, opened: ProducerOpened) -> None:
        """Confirmed messages that the store does not have: gone below ``first``, appended again from there on."""
        is_new = self.incarnation not in (0, opened.incarnation)
        start = opened.lost[0] if opened.lost else 1 if is_new else opened.last + 1
        end = max(self.first, self.base if opened.last < self.base else 0) - 1
        if start <= end:
            gone = "none is lost"
            if start < self.first:
                gone = f"{start}..{self.first - 1} are lost to whoever had not read them"
            detail = f"stream {self.stream!r} went back; {gone}, the rest is appended again"
            self.port.notice(NoticeKind.STORE_ROLLBACK, self.epoch, ((start, end),), detail)

    def _tell_what_is_removed(self, removed: tuple[int, int] | None) -> None:
        """Entries that somebody else took out of the stream, by index: nobody can append them again, as it is not
        known which messages they were."""
        if removed is not None and self.removed_told != (self.incarnation, *removed):
            self.removed_told = (
                self.incarnation,
                *removed,
            )  # a store says it again: an answer may be lost
            detail = (
                f"somebody else removed entries {removed[0]}..{removed[1]} (by index) of stream {self.stream!r}, "
                f"or some of them; epoch {self.epoch} of {self.producer!r} met it. Readers that had not read them "
                "have lost them"
            )
            self.port.notice(NoticeKind.STORE_ROLLBACK, 0, (removed,), detail)

    # Appending.

    def _append_more(self) -> None:
        if self.state is not SenderState.READY or self.resume_at is not None:
            return
        while self.next_append < self.next and len(self.appends) < self.options.calls_max:
            run = self._next_run()
            again = min(run.last, self.sent_below - 1) - run.first + 1
            self._count_sent(len(run.payloads), max(0, again))
            self.appends.append(self.calls.ask(run))
            self.next_append = run.last + 1
            self.sent_below = max(self.sent_below, self.next_append)

    def _next_run(self) -> AppendRun:
        start = self.next_append - self.first
        payloads, _ = prefix_within(
            self.payloads[start : start + self.options.run_max],
            self.options.frame_max_bytes,
            at_least_one=True,
        )
        return AppendRun(self.stream, self.producer, self.epoch, self.next_append, payloads)

    def _count_sent(self, count: int, again: int) -> None:
        self.port.count("transmitted", count - again)
        self.port.count("retransmitted", again)

    def _on_appended(self, asked: Asked, outcome: object) -> None:
        match outcome:
            case Stored(last, removed=removed):
                self.appends.remove(asked)
                self.failures = 0
                self._tell_what_is_removed(removed)
                self._confirm(last)
                self._append_more()
            case Gap():
                self._note_failure("a part of an earlier append is missing")
                self._open()
            case FencedOut(by):
                self._stop()
                self.port.fenced(by, answered=True)
            case Full():
                self._wait_for_room(asked, outcome)
            case Failed(reason):
                self._fail(reason)
            case _:
                # After an outage the store may have gone back, so what it has is asked before going on.
                self.failures = max(self.failures, 1)
                self._note_failure("the store is unavailable")
                self._open()

    def _confirm(self, last: int) -> None:
        """The store has everything up to ``last``."""
        last = min(last, self.next - 1)
        if last < self.base:
            return
        # A store with room for one run takes the first, and has no answer but Gap for the next. That answer may
        # come first, so that it is the opening after it that tells of the run: whoever waited longer each time,
        # although each time a run was taken, gave a full stream one run in rto_max.
        self.failures = 0
        settled = self.payloads[self.base - self.first : last + 1 - self.first]
        self.size_bytes -= sum(map(len, settled))
        self.port.confirmed(self.base, last)
        self.base = last + 1
        kept = max(self.first, self.base - self.options.retain)
        del self.payloads[: kept - self.first]
        self.first = kept
        # A process that this one replaced may have appended more of this epoch than was asked for here. Its
        # payloads went with the confirm: asked for again, they would be others, or none, under the same numbers.
        self.next_append = max(self.next_append, self.base)

    def _wait_for_room(self, asked: Asked, full: Full) -> None:
        """Nothing from this run on was stored by it; what was asked after it can only leave a gap.

        By now the store may have the run all the same, from a process that this one replaced.
        """
        assert isinstance(asked.request, AppendRun)
        self._forget_calls()
        self.next_append = max(asked.request.first, self.base)
        self._note_failure(said_of_full(self.stream, full))
        self.resume_at = self.port.now + self.calls.pause(self.failures)

    def _note_failure(self, detail: str) -> None:
        self.failures += 1
        self.is_verifying = False
        if self.failures == WARN_AFTER:
            self.port.notice(NoticeKind.UNANSWERED, self.epoch, self.unconfirmed(), detail)

    def _fail(self, reason: str) -> None:
        """The store refuses for good. If the stream is gone, so is what was confirmed and not read."""
        self._stop()
        if self.base > 1:
            reason += (
                f"; of epoch {self.epoch}, 1..{self.base - 1} had been confirmed: were they read?"
            )
        self.port.stop(f"stream {self.stream!r}: {reason}", NoticeKind.STALLED)

    def _stop(self) -> None:
        self._forget_calls()
        self.state = SenderState.STOPPED

    # Answers and time.

    def answer(self, ticket: int, outcome: object) -> None:
        """The outcome of an opening or an append."""
        if self.opening and self.opening.ticket == ticket:
            self._on_opened(self.opening, outcome)
            return
        asked = next((asked for asked in self.appends if asked.ticket == ticket), None)
        assert asked is not None, f"ticket {ticket} was forgotten, and yet its answer came here"
        self._on_appended(asked, outcome)

    @property
    def deadline(self) -> int | None:
        """When a call is to be made, or made again."""
        times = [asked.repeat_at for asked in self.appends]
        times += [self.opening.repeat_at] if self.opening else []
        times += [self.resume_at] if self.resume_at is not None else []
        return min(times, default=None)

    def wake(self) -> None:
        """Each call has its own deadline: one that is answered does not put off another."""
        if self.opening and self.calls.is_due(self.opening):
            self._repeat(self.opening)
        for asked in self.appends:
            if self.calls.is_due(asked):
                self._repeat(asked)
        if self.resume_at is not None and self.resume_at <= self.port.now:
            self.resume_at = None
            self._append_more()

    def _repeat(self, asked: Asked) -> None:
        if asked.attempts == WARN_AFTER:
            detail = f"{asked.attempts} calls of stream {self.stream!r} were not answered"
            self.port.notice(NoticeKind.UNANSWERED, self.epoch, self.unconfirmed(), detail)
        if isinstance(asked.request, AppendRun):
            self.port.count("retransmitted", len(asked.request.payloads))
        self.calls.repeat(asked)
