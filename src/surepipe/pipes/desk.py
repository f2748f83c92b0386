"""The top of a receiver's stack: the boundary, where a message is settled.

The outermost layer hands runs of messages in; the host gets them as ``Deliver`` and answers. In between the desk
keeps the order (one delivery at a time for ordered layers), tries failed messages again with backoff, moves
poison to dead letters, and stores the cursors where the boundary says so:

* ``handed``, ``processed``: settled when the host says so; with a durable state, after the cursors are stored.
* ``before``: the cursors are stored first, then the messages are delivered: never twice, perhaps not at all.
* ``committed``: the host commits effect and cursors (``state_after``) in one transaction, then says settled.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, cast

from surepipe.effects import (
    DeadLetter,
    Deliver,
    Letter,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    SaveState,
    WriteFenced,
    WriteStored,
)
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.machines import Randomness
from surepipe.pipes.desk_records import (
    Delayed,
    DeskPort,
    Failure,
    Posting,
    Queued,
    Saving,
    Ticket,
)
from surepipe.pipes.options import micros
from surepipe.pipes.payloads import Payloads, size_of
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.snapshot import stateful
from surepipe.pipes.timing import backoff


class Boundary(StrEnum):
    """When a message is settled."""

    HANDED = "handed"
    BEFORE = "before"
    PROCESSED = "processed"
    COMMITTED = "committed"


ERROR_SHOWN = 200
"""Characters of an error's text in a notice."""

LONGEST_S = 86_400 * 365


@dataclass(frozen=True, slots=True)
class BoundaryOptions:
    """How messages cross the boundary of a receiver. Times are seconds."""

    boundary: Boundary = Boundary.PROCESSED
    """when a message is settled"""
    durable: bool = False
    """whether the receiver's state is stored"""
    deliver_max: int = 1024
    """messages in one delivery at the most"""
    retries: int | None = None
    """attempts after which a message that fails becomes a dead letter; not given: tried for ever"""
    retry_min_s: float = 0.1
    """wait before a message that failed is tried again; doubles with each attempt"""
    retry_max_s: float = 30.0
    """longest such wait"""
    jitter: float = 0.1
    """random part of such a wait"""
    warn_after: int = 5
    """attempts after which Poison is noticed"""
    dead_letters: bool = False
    """whether there is a place for dead letters"""

    def __post_init__(self) -> None:
        """Refuse what can't be meant. Raises ConfigurationError."""
        for name in ("retries", "deliver_max", "warn_after"):
            value: object = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(f"{name} is {value!r}: it must be a whole number from 1")
        for name in ("retry_min_s", "retry_max_s"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < cast("float", value) < LONGEST_S:
                raise ConfigurationError(
                    f"{name} is {value!r}: it must be a number of seconds above 0"
                )
        if self.retry_min_s > self.retry_max_s:
            raise ConfigurationError(
                f"retry_min_s ({self.retry_min_s}) is above retry_max_s ({self.retry_max_s}); "
                "raise retry_max_s"
            )


@stateful
class Desk:
    """The boundary of one receiver."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng", "pipe", "ordered")

    def __init__(
        self,
        port: DeskPort,
        options: BoundaryOptions,
        rng: Randomness,
        pipe: str,
        *,
        ordered: bool,
    ) -> None:
        self.port = port
        self.options = options
        self.rng = rng
        self.pipe = pipe
        self.ordered = ordered
        self.queue: deque[Queued] = deque()
        self.tickets: dict[int, Ticket] = {}
        self.delayed: list[Delayed] = []
        self.unsaved: list[tuple[int, RangeSet]] = []
        self.saving: Saving | None = None
        self.postings: dict[int, Posting] = {}
        self.stopped = False
        self.closed = False

    # From the outermost layer.

    def take(self, epoch: int, first: int, payloads: Sequence[bytes]) -> None:
        """Consecutive messages that the outermost layer hands over."""
        if self.stopped or self.closed:
            self.port.refuse_outermost(epoch, first, first + len(payloads) - 1)
            return
        producer = self.port.producer_of(epoch)
        last = self.queue[-1] if self.queue else None
        if (
            last
            and self.ordered
            and (last.epoch, last.first + len(last.payloads)) == (epoch, first)
            and last.producer == producer
            and not last.is_stored
        ):
            if isinstance(last.payloads, Payloads):
                last.payloads = list(last.payloads)  # others keep that run too
            last.payloads.extend(payloads)
        else:
            kept = payloads if isinstance(payloads, Payloads) else list(payloads)
            self.queue.append(Queued(epoch, first, kept, producer))

    def finish_step(self) -> None:
        """Deliver what may be delivered now."""
        while self.queue and self._may_deliver():
            self._deliver_next()
        self._save_next()

    def _may_deliver(self) -> bool:
        if self.saving and self.options.boundary is Boundary.BEFORE:
            return False
        if (self.saving or self.unsaved) and self.options.boundary is Boundary.COMMITTED:
            return False  # a state written by the host now would be undone by ours
        return not self.ordered or not (self.tickets or self.delayed or self.postings)

    def _deliver_next(self) -> None:
        head = self.queue[0]
        limit = self.options.deliver_max
        payloads = head.payloads
        if len(payloads) > limit:
            payloads, rest = payloads[:limit], payloads[limit:]
            self.queue[0] = Queued(
                head.epoch, head.first + limit, rest, head.producer, head.is_stored
            )
        else:
            self.queue.popleft()
        span = RangeSet([(head.first, head.first + len(payloads) - 1)])
        ticket = Ticket(head.epoch, head.first, payloads, None, span, head.producer)
        if self.options.boundary is Boundary.BEFORE and not head.is_stored:
            self._save(Saving(self.port.ticket(), head.epoch, RangeSet(span), deliver=ticket))
        else:
            self._hand_out(ticket)

    def _hand_out(self, ticket: Ticket) -> None:
        number = self.port.ticket()
        self.tickets[number] = ticket
        attempt = ticket.history.attempts + 1 if ticket.history else 1
        self.port.emit(
            Deliver(number, ticket.epoch, ticket.first, ticket.payloads, attempt, ticket.producer)
        )

    # From the host.

    def settled(self, number: int, ranges: Ranges, *, by_host: bool = True) -> None:
        """These messages of a ticket have crossed the boundary; not ``by_host``: without a commit of the host."""
        ticket = self._ticket(number)
        if ticket is None:
            return
        answered = self._close_parts(ticket, ranges)
        if not answered:
            self.port.count("late_answer")
        for part in answered:
            (self._settle if by_host else self._settle_alone)(ticket.epoch, *part)
        self._drop_if_answered(number)

    def _close_parts(self, ticket: Ticket, ranges: Ranges) -> list[tuple[int, int]]:
        """Take these out of what is open; each message is answered once."""
        answered: list[tuple[int, int]] = []
        for first, last in ranges:
            answered += ticket.open.within(first, last)
            ticket.open.discard(first, last)
        return answered

    def refused(self, number: int, ranges: Ranges) -> None:
        """These messages of a ticket were not taken: their carrier must bring them again.

        In an ordered pipe nothing that follows a refused message may pass it, so it is refused too.
        """
        ticket = self._ticket(number)
        if ticket is None:
            return
        if self.ordered and ranges:
            ranges = ((ranges[0][0], ticket.first + len(ticket.payloads) - 1),)
        answered = self._close_parts(ticket, ranges)
        if not answered:
            self.port.count("late_answer")
            return
        for part in answered:
            self._refuse(ticket.epoch, *part)
        self._drop_if_answered(number)
        if self.ordered:
            self._refuse_queued()

    def _refuse(self, epoch: int, first: int, last: int) -> None:
        """What was handed out can be brought again, unless it counts as settled since its cursor is stored."""
        if self.options.boundary is not Boundary.BEFORE:
            self.port.refuse_outermost(epoch, first, last)

    def _refuse_queued(self) -> None:
        for item in self.queue:
            if not item.is_stored:
                last = item.first + len(item.payloads) - 1
                self.port.refuse_outermost(item.epoch, item.first, last)
        self.queue.clear()

    def failed(self, number: int, seq: int, error: tuple[str, str], *, final: bool = False) -> None:
        """The handler raised for ``seq``: settle what stands before it, try it again later.

        ``final``: trying again can't help. It becomes a dead letter at once, where there is a place for it.
        """
        ticket = self._ticket(number)
        if ticket is None:
            return
        if seq not in ticket.open:
            self.port.count("late_answer")
            return
        last = ticket.first + len(ticket.payloads) - 1
        for part in self._close_parts(ticket, ((ticket.first, seq - 1),)):
            self._settle(ticket.epoch, *part)
        if self.closed or self.stopped:
            self.refused(number, ((seq, last),))
            return
        del self.tickets[number]
        history = self._after_failure(ticket, seq, error)
        if self._is_poison(history) or (final and self.options.dead_letters):
            self._post(ticket, seq, history)
            self._queue_again(ticket, seq + 1, last)
        else:
            # Ordered, what follows goes along; what of it was answered already does not come again.
            end = ticket.open.end_of_run(seq) if self.ordered else seq
            payloads = ticket.payloads[seq - ticket.first : end - ticket.first + 1]
            self._delay(ticket, seq, payloads, history)
            self._queue_again(ticket, end + 1, last)

    def state_after(self, number: int, through: int) -> bytes:
        """The cursors as they will be when the ticket is settled up to ``through``."""
        ticket = self.tickets.get(number)
        if ticket is None:
            raise MisuseError(
                f"ticket {number} is not open: only an open delivery has a state to commit"
            )
        also = RangeSet(ticket.open.within(ticket.first, through))
        for epoch, ranges in self.unsaved:
            for first, last in ranges if epoch == ticket.epoch else ():
                also.add(first, last)
        return encode_state(self.port.cursors(ticket.epoch, tuple(also)))

    def _ticket(self, number: int) -> Ticket | None:
        ticket = self.tickets.get(number)
        if ticket is None:
            self.port.count("late_answer")
        return ticket

    def _drop_if_answered(self, number: int) -> None:
        ticket = self.tickets.get(number)
        if ticket is not None and not ticket.open:
            del self.tickets[number]

    def _settle(self, epoch: int, first: int, last: int) -> None:
        if self.options.boundary is Boundary.BEFORE:
            return  # settled when its cursor was stored
        self.port.count("settled", last - first + 1)
        if not self.options.durable or self.options.boundary is Boundary.COMMITTED:
            self.port.settle_outermost(epoch, first, last)
        elif self.stopped:
            self.port.refuse_outermost(epoch, first, last)  # its cursor can't be stored any more
        else:
            self._queue_saving(epoch, first, last)

    def _settle_alone(self, epoch: int, first: int, last: int) -> None:
        """Settle what no transaction of the host stores the cursor of, such as a dead letter."""
        is_stored_by_host = self.options.boundary is Boundary.COMMITTED and not self.stopped
        if self.options.durable and is_stored_by_host:
            self.port.count("settled", last - first + 1)
            self._queue_saving(epoch, first, last)
        else:
            self._settle(epoch, first, last)

    # Failed messages.

    def _after_failure(self, ticket: Ticket, seq: int, error: tuple[str, str]) -> Failure:
        former = ticket.history if seq == ticket.first else None
        now = self.port.now
        return Failure(
            attempts=former.attempts + 1 if former else 1,
            first_us=former.first_us if former else now,
            last_us=now,
            error=error,
        )

    def _is_poison(self, history: Failure) -> bool:
        limit = self.options.retries
        return limit is not None and self.options.dead_letters and history.attempts >= limit

    def _delay(
        self, ticket: Ticket, first: int, payloads: Sequence[bytes], history: Failure
    ) -> None:
        if history.attempts == self.options.warn_after:
            kind, text = history.error
            detail = f"{history.attempts} attempts, the last raised {kind}: {text[:ERROR_SHOWN]}"
            self.port.emit(Notice(NoticeKind.POISON, ticket.epoch, ((first, first),), detail))
        due = self.port.now + self._backoff(history.attempts)
        delayed = Delayed(due, ticket.epoch, first, payloads, history, ticket.producer)
        self.delayed.append(delayed)

    def _backoff(self, attempts: int) -> int:
        return backoff(
            micros(self.options.retry_min_s),
            micros(self.options.retry_max_s),
            attempts,
            self.options.jitter,
            self.rng,
        )

    def _queue_again(self, ticket: Ticket, first: int, last: int) -> None:
        """What stands behind a failed message and was not settled goes first among what waits."""
        is_stored = self.options.boundary is Boundary.BEFORE
        for start, end in reversed(ticket.open.within(first, last)):
            payloads = list(ticket.payloads[start - ticket.first : end - ticket.first + 1])
            self.queue.appendleft(Queued(ticket.epoch, start, payloads, ticket.producer, is_stored))

    def _post(self, ticket: Ticket, seq: int, history: Failure) -> None:
        letter = Letter(
            pipe=self.pipe,
            layer=0,
            epoch=ticket.epoch,
            seq=seq,
            payload=ticket.payload(seq),
            attempts=history.attempts,
            first_failure_us=history.first_us,
            last_failure_us=history.last_us,
            error_type=history.error[0],
            error_text=history.error[1],
            producer=ticket.producer,
        )
        number = self.port.ticket()
        self.postings[number] = Posting(letter)
        self.port.emit(DeadLetter(number, letter))

    # Stored states.

    def _queue_saving(self, epoch: int, first: int, last: int) -> None:
        if not self.unsaved or self.unsaved[-1][0] != epoch:
            self.unsaved.append((epoch, RangeSet()))
        self.unsaved[-1][1].add(first, last)

    def _save_next(self) -> None:
        if self.tickets and self.options.boundary is Boundary.COMMITTED:
            return  # the host may be storing a state of its own
        if self.saving is None and self.unsaved and not self.stopped:
            epoch, ranges = self.unsaved.pop(0)
            self._save(Saving(self.port.ticket(), epoch, ranges))

    def _save(self, saving: Saving) -> None:
        self.saving = saving
        state = encode_state(self.port.cursors(saving.epoch, tuple(saving.ranges)))
        self.port.emit(Persist(saving.ticket, SaveState(state)))

    # Outcomes and time.

    def answer(self, ticket: int, outcome: object) -> bool:
        """The outcome of a state write or dead letter; False when the ticket is neither."""
        if self.saving and self.saving.ticket == ticket:
            self._saved(self.saving, outcome)
            return True
        posting = self.postings.get(ticket)
        if posting is None:
            return False
        if isinstance(outcome, WriteStored):
            del self.postings[ticket]
            self.port.count("dead_lettered")
            letter = posting.letter
            self._settle_alone(letter.epoch, letter.seq, letter.seq)
        else:
            posting.repeat_at = self.port.now + self._backoff(posting.attempts)
        return True

    def _saved(self, saving: Saving, outcome: object) -> None:
        if isinstance(outcome, WriteFenced):
            self._stop(f"the receiver's state belongs to owner {outcome.by} now")
        elif not isinstance(outcome, WriteStored):
            saving.repeat_at = self.port.now + self._backoff(saving.attempts)
        else:
            self.saving = None
            for first, last in saving.ranges:
                self.port.settle_outermost(saving.epoch, first, last)
            if saving.deliver:
                self.port.count("settled", len(saving.deliver.payloads))
                self._hand_out(saving.deliver)

    def _stop(self, detail: str) -> None:
        self.stopped = True
        unsaved, self.unsaved = self.unsaved, []
        if self.saving:
            unsaved.insert(0, (self.saving.epoch, self.saving.ranges))
        self.saving = None
        for epoch, ranges in unsaved:
            for first, last in ranges:
                self.port.refuse_outermost(epoch, first, last)
        self._refuse_delayed()
        self._refuse_queued()
        self.port.emit(Notice(NoticeKind.FENCED, 0, (), detail))

    @property
    def deadline(self) -> int | None:
        """When something is to be tried again."""
        if not (self.delayed or self.postings or self.saving):
            return None
        times = [delayed.due for delayed in self.delayed]
        times += [
            posting.repeat_at for posting in self.postings.values() if posting.repeat_at is not None
        ]
        if self.saving and self.saving.repeat_at is not None:
            times.append(self.saving.repeat_at)
        return min(times, default=None)

    def wake(self) -> None:
        """Try again what is due."""
        now = self.port.now
        due = [delayed for delayed in self.delayed if delayed.due <= now]
        self.delayed = [delayed for delayed in self.delayed if delayed.due > now]
        for delayed in due:
            span = RangeSet([(delayed.first, delayed.first + len(delayed.payloads) - 1)])
            identity = (delayed.epoch, delayed.first, delayed.payloads)
            self._hand_out(Ticket(*identity, delayed.history, span, delayed.producer))
        for ticket, posting in self.postings.items():
            if posting.repeat_at is not None and posting.repeat_at <= now:
                posting.repeat_at = None
                posting.attempts += 1
                self.port.emit(DeadLetter(ticket, posting.letter))
        if self.saving and self.saving.repeat_at is not None and self.saving.repeat_at <= now:
            self.saving.repeat_at = None
            self.saving.attempts += 1
            self._save(self.saving)

    # The end of a receiver.

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return not (self.queue or self.tickets or self.delayed or self.postings or self.saving)

    @property
    def in_work(self) -> tuple[int, int]:
        """Messages taken and not answered, and their bytes (those of a whole delivery until all is answered)."""
        parts: list[Queued | Delayed | Ticket]
        parts = [*self.queue, *self.delayed, *self.tickets.values()]
        letters = [posting.letter.payload for posting in self.postings.values()]
        count = sum(len(part.payloads) for part in parts) + len(letters)
        return count, sum(size_of(part.payloads) for part in parts) + size_of(letters)

    def close(self) -> None:
        """Give back what was not delivered yet; what is in work may still be answered."""
        self.closed = True
        self._refuse_delayed()
        self._refuse_queued()

    def _refuse_delayed(self) -> None:
        for item in self.delayed:
            self._refuse(item.epoch, item.first, item.first + len(item.payloads) - 1)
        self.delayed.clear()


def encode_state(cursors: list[object]) -> bytes:
    """The stored form of the cursors of a stack: canonical JSON."""
    return json.dumps(cursors, separators=(",", ":"), sort_keys=True).encode()


def decode_state(state: bytes) -> list[object]:
    """The cursors in a stored state, outermost layer first."""
    return list(json.loads(state))
