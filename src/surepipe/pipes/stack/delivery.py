"""The top of a receiver's stack: the boundary, where a message is settled.

The outermost layer hands runs of messages in; the host gets them as ``Deliver`` and answers. In between a delivery
keeps the order (one delivery at a time for ordered layers), tries failed messages again with backoff, moves
poison to dead letters, and stores the cursors where the boundary says so:

* ``handed``, ``processed``: settled when the host says so; with a durable state, after the cursors are stored.
* ``before``: the cursors are stored first, then the messages are delivered: never twice, perhaps not at all.
* ``committed``: the host commits effect and cursors (``state_after``) in one transaction, then says settled.

Why a message that fails for good takes three writes where effects are committed (decision 0040):

1. "a" has failed often enough. Its letter is written, and the receiver is killed before it stores that "a" is
   done.
2. Its successor is given "a" again, and this time the handler takes it: it is in the letters and processed.
3. Or the receiver was replaced long ago, and does not know: it writes letters of what its successor handles.
4. So the state says first that "a" is given up. That write is fenced: whoever was replaced ends here, with
   nothing done.
5. Then the letter is written, under the name of its message, so that a second one changes nothing.
6. Then the state says that "a" is settled. Killed between 4 and 6, a successor finds "a" given up; when it comes
   again its letter is written, and no handler sees it.

Why one that is refused takes with it what follows: handed on alone, "c" would be settled before "b" comes again,
and order is what an ordered pipe is for. Why nothing is stored while the host may be storing
(``_host_may_be_storing``): of two states under way the older could land last, and the place would go back behind
effects that are committed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from surepipe.core.effects import (
    NOBODY,
    Cause,
    DeadLetter,
    Deliver,
    Effect,
    Letter,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    SaveState,
    Speaker,
    WriteFailed,
    WriteFenced,
    WriteStored,
)
from surepipe.core.machine import Randomness
from surepipe.core.payloads import Payloads, size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.timing import earlier
from surepipe.errors import MisuseError, named
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions

# What the delivery keeps: tickets, failures, what waits to be tried again, writes and letters under way.


class DeliveryPort(Protocol):
    """What the delivery may ask of its stack."""

    @property
    def now(self) -> int:
        """Monotonic microseconds of the step that is running."""
        ...

    def emit(self, effect: Effect) -> None:
        """Add to the effects of this step."""
        ...

    def count(self, name: str, amount: int = 1) -> None: ...

    def ticket(self) -> int:
        """A new number for a Deliver, Persist or DeadLetter."""
        ...

    def settle_outermost(self, speaker: Speaker, first: int, last: int) -> None: ...

    def refuse_outermost(self, speaker: Speaker, first: int, last: int) -> None: ...

    def state(self, speaker: Speaker, also: Ranges) -> bytes:
        """The state as it is when ``also`` is settled in the outermost layer."""
        ...


stateful(Letter)


@stateful
@dataclass(slots=True)
class Ticket:
    """One Deliver that the host has not answered in full."""

    epoch: int
    first: int
    payloads: Sequence[bytes]
    history: FailedMessage | None
    open: RangeSet
    producer: str = ""

    @property
    def speaker(self) -> Speaker:
        """Who numbered its messages."""
        return self.producer, self.epoch

    def payload(self, seq: int) -> bytes:
        """The payload of one message of the ticket."""
        return self.payloads[seq - self.first]


@stateful
@dataclass(slots=True)
class FailedMessage:
    """The record of a failed message."""

    attempts: int
    first_us: int
    last_us: int
    error: Cause = ("", "")


@stateful
@dataclass(slots=True)
class Delayed:
    """Messages that will be delivered at ``due``; ``history`` is that of the first of them."""

    due: int
    epoch: int
    first: int
    payloads: Sequence[bytes]
    history: FailedMessage
    producer: str = ""

    @property
    def speaker(self) -> Speaker:
        """Who numbered its messages."""
        return self.producer, self.epoch


@stateful
@dataclass(slots=True)
class Saving:
    """A state write under way, and what happens when it is stored. ``letters``: by ticket, those that are written
    then."""

    ticket: int
    speaker: Speaker
    ranges: RangeSet
    deliver: Ticket | None = None
    letters: tuple[int, ...] = ()
    attempts: int = 1
    repeat_at: int | None = None


@stateful
@dataclass(slots=True)
class Posting:
    """A dead letter under way. Not ``is_decided``: the state does not say yet that it will be."""

    letter: Letter
    attempts: int = 1
    repeat_at: int | None = None
    is_decided: bool = True


@stateful
@dataclass(slots=True)
class Queued:
    """Messages that wait for their delivery. ``is_stored``: the cursor behind them is stored already."""

    epoch: int
    first: int
    payloads: list[bytes] = field(default_factory=list[bytes])
    producer: str = ""
    is_stored: bool = False

    @property
    def speaker(self) -> Speaker:
        """Who numbered its messages."""
        return self.producer, self.epoch


# What every delivery does: it keeps the cursors stored, and brings dead letters to their place.
#
# What it delivers, and in which order, is up to the kind: ``delivery`` takes one delivery after the other,
# ``lanes`` takes messages of different keys side by side.
#
# Where effects are committed once, a message is given up in two steps: the state says so first, then its letter
# is written, wherever that is kept. Without the first step a message could be in the letters, and processed
# too:
#
# 1. A receiver gives a message up and writes the letter. 2. It is killed before the state says that the message
# is settled; or it was replaced meanwhile, and may store no state any more. 3. Its successor delivers the
# message once more, and this time the handler succeeds.
#
# What a state gives up is never delivered again: its successor knows of it, and writes the letter when the
# message comes. It has one name, so it is there once, whoever wrote it.


ERROR_SHOWN = 500
"""Characters of an error's text in a notice: all that a letter keeps of it, as the advice stands at its end."""

LETTERS_AT_ONCE = 4
"""Messages that a receiver gives up at a time, where its state says so: that has a bound."""

GIVEN_UP_MAX = 12
"""Messages that were given up by former incarnations and did not come since. Older ones are forgotten."""


class DeliveryBase(ABC):
    """The boundary of one receiver: what is settled, tried again, stored, or a dead letter."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng", "pipe")

    def __init__(
        self, port: DeliveryPort, options: BoundaryOptions, rng: Randomness, pipe: str
    ) -> None:
        self.port = port
        self.options = options
        self.rng = rng
        self.pipe = pipe
        self.unsaved: list[tuple[Speaker, RangeSet]] = []
        self.saving: Saving | None = None
        self.postings: dict[int, Posting] = {}
        self.given_up: dict[tuple[str, int, int], Letter] = {}
        """What the state says of messages that are given up and not settled: letters without their payloads."""
        self.stopped = False
        self.closed = False

    # What each kind decides.

    @abstractmethod
    def take(self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = "") -> None:
        """Consecutive messages that the outermost layer hands over."""

    @abstractmethod
    def finish_step(self) -> None:
        """Deliver what may be delivered now."""

    @abstractmethod
    def settled(self, number: int, ranges: Ranges, *, by_host: bool = True) -> None:
        """These messages of a ticket have crossed the boundary; not ``by_host``: without a commit of the host."""

    @abstractmethod
    def refused(self, number: int, ranges: Ranges) -> None:
        """These messages of a ticket were not taken: they must be brought again."""

    @abstractmethod
    def failed(self, number: int, seq: int, error: Cause, *, final: bool = False) -> None:
        """The handler raised for ``seq``: settle what stands before it, try it again later.

        ``final``: trying again can't help. It becomes a dead letter at once, where there is a place for it.
        """

    def again(self) -> None:
        """Nothing came of what has no answer, and nobody is to blame: hand it out once more, in its order."""
        raise AssertionError(f"{type(self).__name__} has no tickets that its host commits")

    @abstractmethod
    def state_after(self, number: int, through: int) -> bytes:
        """The cursors as they will be when the ticket is settled up to ``through``."""

    @property
    @abstractmethod
    def in_work(self) -> tuple[int, int]:
        """Messages taken and not answered, and their bytes (those of a whole delivery until all is answered)."""

    @abstractmethod
    def close(self) -> None:
        """Deliver nothing more; what is in work may still be answered."""

    @abstractmethod
    def _drop_waiting(self) -> None:
        """The state belongs to somebody else: let go of what was not delivered."""

    def _deliver_stored(self, ticket: Ticket) -> None:
        """The cursor behind this delivery is stored, so it may go out."""
        raise AssertionError(f"{type(self).__name__} stores no cursor before it delivers {ticket}")

    def _letter_stored(self, number: int, letter: Letter) -> None:
        """The letter under this ticket is in its place, and its message settled."""

    @property
    def _host_may_be_storing(self) -> bool:
        """True while the host may be storing a state of its own, which one of ours would undo."""
        return False

    # Settling.

    def _settle(self, speaker: Speaker, first: int, last: int) -> None:
        if self.options.boundary is Boundary.BEFORE:
            return  # settled when its cursor was stored
        self.port.count("settled", last - first + 1)
        if not self.options.durable or self.options.boundary is Boundary.COMMITTED:
            self.port.settle_outermost(speaker, first, last)
        elif self.stopped:
            self.port.refuse_outermost(speaker, first, last)  # its cursor can't be stored any more
        else:
            self._queue_saving(speaker, first, last)

    def _settle_alone(self, speaker: Speaker, first: int, last: int) -> None:
        """Settle what no transaction of the host stores the cursor of, such as a dead letter."""
        is_stored_by_host = self.options.boundary is Boundary.COMMITTED and not self.stopped
        if self.options.durable and is_stored_by_host:
            self.port.count("settled", last - first + 1)
            self._queue_saving(speaker, first, last)
        else:
            self._settle(speaker, first, last)

    # Failed messages.

    def _is_poison(self, history: FailedMessage) -> bool:
        limit = self.options.retries
        return limit is not None and self.options.dead_letters and history.attempts >= limit

    def _failed_again(self, former: FailedMessage | None, error: Cause) -> FailedMessage:
        """What is known of a failure, after one more."""
        now = self.port.now
        return FailedMessage(
            attempts=former.attempts + 1 if former else 1,
            first_us=former.first_us if former else now,
            last_us=now,
            error=error,
        )

    def _notice(self, kind: NoticeKind, speaker: Speaker, ranges: Ranges, detail: str) -> None:
        producer, epoch = speaker
        self.port.emit(Notice(kind, epoch, ranges, detail, producer))

    def _warn_of_poison(self, speaker: Speaker, seq: int, history: FailedMessage) -> None:
        if history.attempts == self.options.warn_after:
            kind, text, _, traceback = (*history.error, "", "")[:4]
            detail = _said_of(history.attempts, kind, text, traceback)
            self._notice(NoticeKind.POISON, speaker, ((seq, seq),), detail)

    def _tell_of_letter(self, letter: Letter) -> None:
        """What becomes of a message is told once, however few its attempts were."""
        said = _said_of(letter.attempts, letter.error_type, letter.error_text, letter.traceback)
        where = ((letter.seq, letter.seq),)
        self._notice(NoticeKind.POISON, letter.speaker, where, f"{said}. It is in the dead letters")

    def _backoff(self, attempts: int) -> int:
        return self.options.back_off.wait(attempts, self.rng)

    def _post(self, speaker: Speaker, seq: int, payload: bytes, history: FailedMessage) -> int:
        producer, epoch = speaker
        kind, text, place, traceback = (*history.error, "", "")[:4]
        letter = Letter(
            pipe=self.pipe,
            layer=0,
            epoch=epoch,
            seq=seq,
            payload=payload,
            attempts=history.attempts,
            first_failure_us=history.first_us,
            last_failure_us=history.last_us,
            error_type=kind,
            error_text=text,
            producer=producer,
            traceback=traceback,
            place=place,
        )
        number = self.port.ticket()
        self.postings[number] = Posting(letter, is_decided=not self._decides_first)
        if not self._decides_first:
            self.port.emit(DeadLetter(number, letter))
        return number

    # What the state gives up.

    @property
    def _decides_first(self) -> bool:
        return self.options.durable and self.options.boundary is Boundary.COMMITTED

    @property
    def _has_undecided(self) -> bool:
        return not all(posting.is_decided for posting in self.postings.values())

    def given_up_without(self, speaker: Speaker, also: Ranges) -> Sequence[Letter]:
        """What a state must say of messages that are given up, when these are settled in it."""
        return [
            letter
            for letter in self.given_up.values()
            if letter.speaker != speaker or not _are_in(letter.seq, also)
        ]

    def restore(self, given_up: Sequence[Letter]) -> None:
        """Former incarnations gave these up, and their letters may not be stored yet."""
        self.given_up = {_identity(letter): letter for letter in given_up[-GIVEN_UP_MAX:]}

    def _post_given_up(self, speaker: Speaker, seq: int, payload: bytes) -> None:
        """Write the letter of a message that the state gives up already."""
        known, now = self.given_up[*speaker, seq], self.port.now
        letter = replace(known, payload=payload, first_failure_us=now, last_failure_us=now)
        number = self.port.ticket()
        self.postings[number] = Posting(letter)
        self.port.emit(DeadLetter(number, letter))

    def _decide(self) -> tuple[int, ...]:
        """Give up what waits for that, as much as there is room for: from now on each state says so."""
        room = LETTERS_AT_ONCE - sum(posting.is_decided for posting in self.postings.values())
        waiting = [number for number, one in self.postings.items() if not one.is_decided]
        for number in waiting[: max(0, room)]:
            posting = self.postings[number]
            posting.is_decided = True
            note = replace(posting.letter, payload=b"", traceback="")
            self.given_up[_identity(note)] = note
        return tuple(waiting[: max(0, room)])

    # Stored states.

    def _queue_saving(self, speaker: Speaker, first: int, last: int) -> None:
        if not self.unsaved or self.unsaved[-1][0] != speaker:
            self.unsaved.append((speaker, RangeSet()))
        self.unsaved[-1][1].add(first, last)

    def _save_next(self) -> None:
        if not (self.unsaved or self.postings) or self.saving is not None or self.stopped:
            return
        if self._host_may_be_storing:
            return
        letters = self._decide()
        if self.unsaved or letters:
            speaker, ranges = self.unsaved.pop(0) if self.unsaved else (NOBODY, RangeSet())
            self._save(Saving(self.port.ticket(), speaker, ranges, letters=letters))

    def _save(self, saving: Saving) -> None:
        self.saving = saving
        state = self.port.state(saving.speaker, tuple(saving.ranges))
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
            self._tell_of_letter(letter)
            self._settle_alone(letter.speaker, letter.seq, letter.seq)
            self._letter_stored(ticket, letter)
        else:
            posting.repeat_at = self.port.now + self._backoff(posting.attempts)
        return True

    def _saved(self, saving: Saving, outcome: object) -> None:
        if isinstance(outcome, WriteFenced):
            self._stop(f"the receiver's state belongs to owner {outcome.by} now")
        elif isinstance(outcome, WriteFailed) and outcome.closed:
            detail = f"its state can't be stored any more, so it ends: {outcome.reason}"
            self._stop(detail, NoticeKind.UNANSWERED)
        elif not isinstance(outcome, WriteStored):
            if isinstance(outcome, WriteFailed) and saving.attempts == 1:
                detail = f"its state can't be stored, so nothing is confirmed: {outcome.reason}"
                self._notice(NoticeKind.UNANSWERED, saving.speaker, tuple(saving.ranges), detail)
            saving.repeat_at = self.port.now + self._backoff(saving.attempts)
        else:
            self.saving = None
            if self.given_up:
                kept = self.given_up_without(saving.speaker, tuple(saving.ranges))
                self.given_up = {_identity(letter): letter for letter in kept}
            for first, last in saving.ranges:
                self.port.settle_outermost(saving.speaker, first, last)
            for number in saving.letters:
                self.port.emit(DeadLetter(number, self.postings[number].letter))
            if saving.deliver:
                self.port.count("settled", len(saving.deliver.payloads))
                self._deliver_stored(saving.deliver)

    def _stop(self, detail: str, kind: NoticeKind = NoticeKind.FENCED) -> None:
        self.stopped = True
        unsaved, self.unsaved = self.unsaved, []
        if self.saving:
            unsaved.insert(0, (self.saving.speaker, self.saving.ranges))
        self.saving = None
        for speaker, ranges in unsaved:
            for first, last in ranges:
                self.port.refuse_outermost(speaker, first, last)
        if self._decides_first:
            self._drop_letters()
        self._drop_waiting()
        self.port.emit(Notice(kind, 0, (), detail))

    def _drop_letters(self) -> None:
        """Whoever has the state now knows of those that it gives up, and handles the others."""
        for posting in self.postings.values():
            letter = posting.letter
            self.port.refuse_outermost(letter.speaker, letter.seq, letter.seq)
        self.postings.clear()

    @property
    def deadline(self) -> int | None:
        """When something is to be tried again."""
        times = [
            posting.repeat_at for posting in self.postings.values() if posting.repeat_at is not None
        ]
        if self.saving and self.saving.repeat_at is not None:
            times.append(self.saving.repeat_at)
        return min(times, default=None)

    def wake(self) -> None:
        now = self.port.now
        for ticket, posting in self.postings.items():
            if posting.repeat_at is not None and posting.repeat_at <= now:
                posting.repeat_at = None
                posting.attempts += 1
                self.port.emit(DeadLetter(ticket, posting.letter))
        if self.saving and self.saving.repeat_at is not None and self.saving.repeat_at <= now:
            self.saving.repeat_at = None
            self.saving.attempts += 1
            self._save(self.saving)

    @property
    def keyless_for(self) -> str:
        """Why the key of a message can't be told that has no place to go; empty while there is none."""
        return ""

    # The end of a receiver whose messages are settled in any order.

    def fill_gaps(self) -> None:
        """From now on hand out only what is older than something settled, and take nothing more."""

    def given_back(self, number: int) -> None:
        """Nobody handles what of this ticket has no answer: it waits again, before what stands behind it."""
        raise AssertionError(f"{type(self).__name__} takes nothing back: ticket {number}")

    @property
    def has_gaps(self) -> bool:
        """True while something that was taken is older than something settled, and not settled; or in work."""
        return False

    @property
    def settled_ahead(self) -> int:
        """How many messages are settled behind an older one that is not."""
        return 0

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return not (self.postings or self.saving)

    @property
    def is_stored(self) -> bool:
        """True when no state is still to be stored, as far as states are."""
        return not (self.saving or self.unsaved)


def _identity(letter: Letter) -> tuple[str, int, int]:
    return letter.producer, letter.epoch, letter.seq


_FRAME = re.compile(r'^[ |]*File "([^"]+)", line (\d+)', re.MULTILINE)
_OF_OTHERS = ("/site-packages/", "/dist-packages/", "/lib/python", "/surepipe/", "<")


def place_in(traceback: str) -> str:
    """File and line of the last code in a traceback that is neither Python's, nor installed, nor ours; or ''."""
    found = [
        f"{file.rpartition('/')[2]}:{line}"
        for file, line in _FRAME.findall(traceback)
        if not any(mark in file.replace("\\", "/") for mark in _OF_OTHERS)
    ]
    return found[-1] if found else ""


def _said_of(attempts: int, kind: str, text: str, traceback: str = "") -> str:
    times = "1 attempt, which" if attempts == 1 else f"{attempts} attempts, the last"
    shown = text if len(text) <= ERROR_SHOWN else text[: ERROR_SHOWN - 3] + "..."
    place = f" ({at})" if (at := place_in(traceback)) else ""
    return f"{times} raised {named(kind, shown)}{place}"


def _are_in(seq: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in ranges)


@stateful
class Delivery(DeliveryBase):
    """The boundary of a receiver that takes one delivery after the other (an unordered one: as they come)."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (*DeliveryBase.TRANSIENT, "ordered")

    def __init__(
        self,
        port: DeliveryPort,
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

    def take(self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = "") -> None:
        """Consecutive messages that the outermost layer hands over."""
        if self.stopped or self.closed:
            self.port.refuse_outermost((producer, epoch), first, first + len(payloads) - 1)
            return
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
            not self.is_stored or self._has_undecided
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
            self._post_given_up(head.speaker, head.first, payloads[0])
            return
        span = RangeSet([(head.first, head.first + len(payloads) - 1)])
        ticket = Ticket(head.epoch, head.first, payloads, None, span, head.producer)
        if self.options.boundary is Boundary.BEFORE and not head.is_stored:
            self._save(Saving(self.port.ticket(), head.speaker, RangeSet(span), deliver=ticket))
        else:
            self._hand_out(ticket)

    def _forget_former(self, producer: str, epoch: int) -> None:
        """Nothing of the epochs before this one comes again. But what waits here has come already:

        1. A life notes that it gives a message up, and dies before the letter is stored. 2. The next one reads
        that message together with one of a newer epoch. 3. Without the note it would be handled after all, and
        the letter may be there too, if the life that wrote the note was only asleep.
        """
        for letter in [*self.given_up.values()]:
            if letter.producer == producer and letter.epoch < epoch and not self._is_here(letter):
                del self.given_up[_identity(letter)]

    def _is_here(self, letter: Letter) -> bool:
        """Whether the message waits for its turn, or its letter for the store."""
        is_queued = any(
            one.speaker == letter.speaker
            and one.first <= letter.seq < one.first + len(one.payloads)
            for one in self.queue
        )
        return is_queued or any(
            _identity(one.letter) == _identity(letter) for one in self.postings.values()
        )

    def _first_given_up(self, head: Queued) -> int | None:
        end = head.first + len(head.payloads)
        known = [
            seq
            for producer, epoch, seq in self.given_up
            if (producer, epoch) == head.speaker and head.first <= seq < end
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
        ticket = self.tickets.get(number)
        answered = self._close_parts(ticket, ranges) if ticket is not None else []
        if ticket is None or not answered:
            self.port.count("late_answer")
            return
        for part in answered:
            (self._settle if by_host else self._settle_alone)(ticket.speaker, *part)
        if not ticket.open:
            del self.tickets[number]

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
            self._refuse(ticket.speaker, *part)
        self._drop_if_answered(number)
        if self.ordered:
            self._refuse_queued()

    def _refuse(self, speaker: Speaker, first: int, last: int) -> None:
        """What was handed out can be brought again, unless it counts as settled since its cursor is stored."""
        if self.options.boundary is not Boundary.BEFORE:
            self.port.refuse_outermost(speaker, first, last)

    def _refuse_queued(self) -> None:
        for item in self.queue:
            if not item.is_stored:
                last = item.first + len(item.payloads) - 1
                self.port.refuse_outermost(item.speaker, item.first, last)
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
            self._settle(ticket.speaker, *part)
        if self.closed or self.stopped:
            self.refused(number, ((seq, last),))
            return
        del self.tickets[number]
        former = ticket.history if seq == ticket.first else None
        history = self._failed_again(former, error)
        if self._is_poison(history) or (final and self.options.dead_letters):
            self._post(ticket.speaker, seq, ticket.payload(seq), history)
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
                    self._refuse(ticket.speaker, first, last)
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
        for speaker, ranges in self.unsaved:
            for first, last in ranges if speaker == ticket.speaker else ():
                also.add(first, last)
        return self.port.state(ticket.speaker, tuple(also))

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
        self, ticket: Ticket, first: int, payloads: Sequence[bytes], history: FailedMessage
    ) -> None:
        self._warn_of_poison(ticket.speaker, first, history)
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
        due = super().deadline if self.postings or self.saving else None
        for delayed in self.delayed:
            due = earlier(due, delayed.due)
        return due

    def wake(self) -> None:
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
            self._refuse(item.speaker, item.first, item.first + len(item.payloads) - 1)
        self.delayed.clear()
