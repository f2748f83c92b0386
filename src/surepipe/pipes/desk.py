"""The top of a receiver's stack: the boundary, where a message is settled.

The outermost layer hands runs of messages in; the host gets them as ``Deliver`` and answers. In between the desk
keeps the order (one delivery at a time for ordered layers), tries failed messages again with backoff, moves
poison to dead letters, and stores the cursors where the boundary says so:

* ``handed``, ``processed``: settled when the host says so; with a durable state, after the cursors are stored.
* ``before``: the cursors are stored first, then the messages are delivered: never twice, perhaps not at all.
* ``committed``: the host commits effect and cursors (``state_after``) in one transaction, then says settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from surepipe.effects import Cause, Deliver, Ranges
from surepipe.errors import MisuseError
from surepipe.machines import Randomness
from surepipe.pipes.boundary import Boundary as Boundary  # noqa: PLC0414 - words of this module too
from surepipe.pipes.boundary import BoundaryOptions as BoundaryOptions  # noqa: PLC0414
from surepipe.pipes.desk_base import DeskBase
from surepipe.pipes.desk_records import Delayed, DeskPort, Failure, Queued, Saving, Ticket
from surepipe.pipes.payloads import Payloads, size_of
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.snapshot import stateful
from surepipe.pipes.timing import earlier


@stateful
class Desk(DeskBase):
    """The boundary of a receiver that takes one delivery after the other (an unordered one: as they come)."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (*DeskBase.TRANSIENT, "ordered")

    def __init__(
        self,
        port: DeskPort,
        options: BoundaryOptions,
        rng: Randomness,
        pipe: str,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(port, options, rng, pipe)
        self.ordered = ordered
        self.queue: deque[Queued] = deque()
        self.tickets: dict[int, Ticket] = {}
        self.delayed: list[Delayed] = []

    # From the outermost layer.

    def take(self, epoch: int, first: int, payloads: Sequence[bytes]) -> None:
        """Consecutive messages that the outermost layer hands over."""
        if self.stopped or self.closed:
            self.port.refuse_outermost(epoch, first, first + len(payloads) - 1)
            return
        producer = self.port.producer_of(epoch)
        if self.given_up:
            self._forget_former(producer, epoch)
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
        if self.options.boundary is Boundary.COMMITTED and (
            self.saving or self.unsaved or self._has_undecided
        ):
            return False  # a state written by the host now would be undone by ours
        return not self.ordered or not (self.tickets or self.delayed or self.postings)

    def _deliver_next(self) -> None:
        head = self.queue[0]
        limit, is_given_up = self.options.deliver_max, False
        if self.given_up and (seq := self._first_given_up(head)) is not None:
            is_given_up = seq == head.first
            limit = 1 if is_given_up else min(limit, seq - head.first)
        payloads = head.payloads
        if len(payloads) > limit:
            payloads, rest = payloads[:limit], payloads[limit:]
            self.queue[0] = Queued(
                head.epoch, head.first + limit, rest, head.producer, head.is_stored
            )
        else:
            self.queue.popleft()
        if is_given_up:
            self._post_given_up(head.epoch, head.first, payloads[0], head.producer)
            return
        span = RangeSet([(head.first, head.first + len(payloads) - 1)])
        ticket = Ticket(head.epoch, head.first, payloads, None, span, head.producer)
        if self.options.boundary is Boundary.BEFORE and not head.is_stored:
            self._save(Saving(self.port.ticket(), head.epoch, RangeSet(span), deliver=ticket))
        else:
            self._hand_out(ticket)

    def _first_given_up(self, head: Queued) -> int | None:
        end = head.first + len(head.payloads)
        known = [
            seq
            for producer, epoch, seq in self.given_up
            if (producer, epoch) == (head.producer, head.epoch) and head.first <= seq < end
        ]
        return min(known, default=None)

    def _deliver_stored(self, ticket: Ticket) -> None:
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

    def failed(self, number: int, seq: int, error: Cause, *, final: bool = False) -> None:
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
        former = ticket.history if seq == ticket.first else None
        history = self._failed_again(former, error)
        if self._is_poison(history) or (final and self.options.dead_letters):
            payload = ticket.payload(seq)
            self._post(ticket.epoch, seq, payload, history, producer=ticket.producer)
            self._queue_again(ticket, seq + 1, last)
        else:
            # Ordered, what follows goes along; what of it was answered already does not come again.
            end = ticket.open.end_of_run(seq) if self.ordered else seq
            payloads = ticket.payloads[seq - ticket.first : end - ticket.first + 1]
            self._delay(ticket, seq, payloads, history)
            self._queue_again(ticket, end + 1, last)

    def again(self) -> None:
        """The store of a host that commits was away, and nothing of what is handed out and open is in it.

        It stays in work, before all that waits: given back to its carrier, it would come again behind others. All
        of it comes under new tickets, in order: a later delivery that kept its ticket would be committed first.
        """
        handed, self.tickets = self.tickets, {}
        for ticket in handed.values():
            for first, last in ticket.open:
                if self.closed or self.stopped:
                    self._refuse(ticket.epoch, first, last)
                    continue
                payloads = ticket.payloads[first - ticket.first : last - ticket.first + 1]
                history = ticket.history if first == ticket.first else None
                span = RangeSet([(first, last)])
                self._hand_out(
                    Ticket(ticket.epoch, first, payloads, history, span, ticket.producer)
                )

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
        return self.port.state(ticket.epoch, tuple(also))

    def _ticket(self, number: int) -> Ticket | None:
        ticket = self.tickets.get(number)
        if ticket is None:
            self.port.count("late_answer")
        return ticket

    def _drop_if_answered(self, number: int) -> None:
        ticket = self.tickets.get(number)
        if ticket is not None and not ticket.open:
            del self.tickets[number]

    # Failed messages.

    def _delay(
        self, ticket: Ticket, first: int, payloads: Sequence[bytes], history: Failure
    ) -> None:
        self._warn_of_poison(ticket.epoch, first, history)
        due = self.port.now + self._backoff(history.attempts)
        delayed = Delayed(due, ticket.epoch, first, payloads, history, ticket.producer)
        self.delayed.append(delayed)

    def _queue_again(self, ticket: Ticket, first: int, last: int) -> None:
        """What stands behind a failed message and was not settled goes first among what waits."""
        is_stored = self.options.boundary is Boundary.BEFORE
        for start, end in reversed(ticket.open.within(first, last)):
            payloads = list(ticket.payloads[start - ticket.first : end - ticket.first + 1])
            self.queue.appendleft(Queued(ticket.epoch, start, payloads, ticket.producer, is_stored))

    # Time, and the end.

    @property
    def deadline(self) -> int | None:
        """When something is to be tried again."""
        due = super().deadline
        for delayed in self.delayed:
            due = earlier(due, delayed.due)
        return due

    def wake(self) -> None:
        """Try again what is due."""
        now = self.port.now
        due = [delayed for delayed in self.delayed if delayed.due <= now]
        self.delayed = [delayed for delayed in self.delayed if delayed.due > now]
        for delayed in due:
            span = RangeSet([(delayed.first, delayed.first + len(delayed.payloads) - 1)])
            identity = (delayed.epoch, delayed.first, delayed.payloads)
            self._hand_out(Ticket(*identity, delayed.history, span, delayed.producer))
        super().wake()

    @property
    def _host_may_be_storing(self) -> bool:
        return bool(self.tickets) and self.options.boundary is Boundary.COMMITTED

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return super().idle and not (self.queue or self.tickets or self.delayed)

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
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        self._refuse_delayed()
        self._refuse_queued()

    def _refuse_delayed(self) -> None:
        for item in self.delayed:
            self._refuse(item.epoch, item.first, item.first + len(item.payloads) - 1)
        self.delayed.clear()
