"""What every desk does: it keeps the cursors stored, and brings dead letters to their place.

What it delivers, and in which order, is up to the kind: ``desk`` takes one delivery after the other, ``lanes``
takes messages of different keys side by side.

Where effects are committed once, a message is given up in two steps: the state says so first, then its letter is
written, wherever that is kept. Without the first step a message could be in the letters, and processed too:

1. A receiver gives a message up and writes the letter. 2. It is killed before the state says that the message is
settled; or it was replaced meanwhile, and may store no state any more. 3. Its successor delivers the message once
more, and this time the handler succeeds.

What a state gives up is never delivered again: its successor knows of it, and writes the letter when the message
comes. It has one name, so it is there once, whoever wrote it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from surepipe.effects import (
    Cause,
    DeadLetter,
    Letter,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    SaveState,
    WriteFenced,
    WriteStored,
)
from surepipe.machines import Randomness
from surepipe.pipes.boundary import Boundary, BoundaryOptions
from surepipe.pipes.desk_records import DeskPort, Failure, Posting, Saving, Ticket
from surepipe.pipes.options import micros
from surepipe.pipes.ranges import RangeSet
from surepipe.pipes.timing import backoff

ERROR_SHOWN = 200
"""Characters of an error's text in a notice."""

LETTERS_AT_ONCE = 4
"""Messages that a receiver gives up at a time, where its state says so: that has a bound."""

GIVEN_UP_MAX = 12
"""Messages that were given up by former incarnations and did not come since. Older ones are forgotten."""


class DeskBase(ABC):
    """The boundary of one receiver: what is settled, tried again, stored, or a dead letter."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng", "pipe")

    def __init__(
        self, port: DeskPort, options: BoundaryOptions, rng: Randomness, pipe: str
    ) -> None:
        self.port = port
        self.options = options
        self.rng = rng
        self.pipe = pipe
        self.unsaved: list[tuple[int, RangeSet]] = []
        self.saving: Saving | None = None
        self.postings: dict[int, Posting] = {}
        self.given_up: dict[tuple[str, int, int], Letter] = {}
        """What the state says of messages that are given up and not settled: letters without their payloads."""
        self.stopped = False
        self.closed = False

    # What each kind decides.

    @abstractmethod
    def take(self, epoch: int, first: int, payloads: Sequence[bytes]) -> None:
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

    def _is_poison(self, history: Failure) -> bool:
        limit = self.options.retries
        return limit is not None and self.options.dead_letters and history.attempts >= limit

    def _failed_again(self, former: Failure | None, error: Cause) -> Failure:
        """What is known of a failure, after one more."""
        now = self.port.now
        return Failure(
            attempts=former.attempts + 1 if former else 1,
            first_us=former.first_us if former else now,
            last_us=now,
            error=error,
        )

    def _warn_of_poison(self, epoch: int, seq: int, history: Failure) -> None:
        if history.attempts == self.options.warn_after:
            kind, text = history.error[:2]
            detail = f"{history.attempts} attempts, the last raised {kind}: {text[:ERROR_SHOWN]}"
            self.port.emit(Notice(NoticeKind.POISON, epoch, ((seq, seq),), detail))

    def _backoff(self, attempts: int) -> int:
        return backoff(
            micros(self.options.retry_min_s),
            micros(self.options.retry_max_s),
            attempts,
            self.options.jitter,
            self.rng,
        )

    def _post(
        self, epoch: int, seq: int, payload: bytes, history: Failure, *, producer: str
    ) -> int:
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

    def given_up_without(self, epoch: int, also: Ranges) -> Sequence[Letter]:
        """What a state must say of messages that are given up, when these are settled in it."""
        return [
            letter
            for letter in self.given_up.values()
            if letter.epoch != epoch or not _are_in(letter.seq, also)
        ]

    def restore(self, given_up: Sequence[Letter]) -> None:
        """Former incarnations gave these up, and their letters may not be stored yet."""
        self.given_up = {_identity(letter): letter for letter in given_up[-GIVEN_UP_MAX:]}

    def _forget_former(self, producer: str, epoch: int) -> None:
        """Nothing of the epochs before this one comes again."""
        for letter in [*self.given_up.values()]:
            if letter.producer == producer and letter.epoch < epoch:
                del self.given_up[_identity(letter)]

    def _post_given_up(self, epoch: int, seq: int, payload: bytes, producer: str) -> None:
        """Write the letter of a message that the state gives up already."""
        known, now = self.given_up[producer, epoch, seq], self.port.now
        letter = replace(known, payload=payload, first_failure_us=now, last_failure_us=now)
        number = self.port.ticket()
        self.postings[number] = Posting(letter)
        self.port.emit(DeadLetter(number, letter))

    def _decide(self) -> tuple[int, ...]:
        """Give up what waits for that, as much as there is room for: from now on each state says so."""
        if not self.postings:
            return ()
        room = LETTERS_AT_ONCE - sum(posting.is_decided for posting in self.postings.values())
        waiting = [number for number, one in self.postings.items() if not one.is_decided]
        for number in waiting[: max(0, room)]:
            posting = self.postings[number]
            posting.is_decided = True
            note = replace(posting.letter, payload=b"", traceback="")
            self.given_up[_identity(note)] = note
        return tuple(waiting[: max(0, room)])

    # Stored states.

    def _queue_saving(self, epoch: int, first: int, last: int) -> None:
        if not self.unsaved or self.unsaved[-1][0] != epoch:
            self.unsaved.append((epoch, RangeSet()))
        self.unsaved[-1][1].add(first, last)

    def _save_next(self) -> None:
        if self._host_may_be_storing or self.saving is not None or self.stopped:
            return
        letters = self._decide()
        if self.unsaved or letters:
            epoch, ranges = self.unsaved.pop(0) if self.unsaved else (0, RangeSet())
            self._save(Saving(self.port.ticket(), epoch, ranges, letters=letters))

    def _save(self, saving: Saving) -> None:
        self.saving = saving
        state = self.port.state(saving.epoch, tuple(saving.ranges))
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
            self._letter_stored(ticket, letter)
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
            if self.given_up:
                kept = self.given_up_without(saving.epoch, tuple(saving.ranges))
                self.given_up = {_identity(letter): letter for letter in kept}
            for first, last in saving.ranges:
                self.port.settle_outermost(saving.epoch, first, last)
            for number in saving.letters:
                self.port.emit(DeadLetter(number, self.postings[number].letter))
            if saving.deliver:
                self.port.count("settled", len(saving.deliver.payloads))
                self._deliver_stored(saving.deliver)

    def _stop(self, detail: str) -> None:
        self.stopped = True
        unsaved, self.unsaved = self.unsaved, []
        if self.saving:
            unsaved.insert(0, (self.saving.epoch, self.saving.ranges))
        self.saving = None
        for epoch, ranges in unsaved:
            for first, last in ranges:
                self.port.refuse_outermost(epoch, first, last)
        if self._decides_first:
            self._drop_letters()
        self._drop_waiting()
        self.port.emit(Notice(NoticeKind.FENCED, 0, (), detail))

    def _drop_letters(self) -> None:
        """Whoever has the state now knows of those that it gives up, and handles the others."""
        for posting in self.postings.values():
            letter = posting.letter
            self.port.refuse_outermost(letter.epoch, letter.seq, letter.seq)
        self.postings.clear()

    @property
    def deadline(self) -> int | None:
        """When something is to be tried again."""
        if not (self.postings or self.saving):
            return None
        times = [
            posting.repeat_at for posting in self.postings.values() if posting.repeat_at is not None
        ]
        if self.saving and self.saving.repeat_at is not None:
            times.append(self.saving.repeat_at)
        return min(times, default=None)

    def wake(self) -> None:
        """Try again what is due."""
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
    def idle(self) -> bool:
        """True when nothing is in work."""
        return not (self.postings or self.saving)


def _identity(letter: Letter) -> tuple[str, int, int]:
    return letter.producer, letter.epoch, letter.seq


def _are_in(seq: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= seq <= last for first, last in ranges)
