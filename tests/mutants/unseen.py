"""BS-1 to BS-20: errors that ordinary runs don't show.

Nothing in those lasts long enough or is small enough, no two ends share a store, and no store loses what was not
read. Each has a subject of the hunts, or a property, that was made for its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from surepipe.core.effects import Effect, NoticeKind, RejectReason, WriteStored
from surepipe.core.store_requests import (
    FORGOTTEN,
    Ahead,
    AppendOutcome,
    AppendRun,
    Batch,
    ClaimReader,
    Diverged,
    Empty,
    FencedOut,
    GetPosition,
    NoPosition,
    OpenProducer,
    ProducerOpened,
    ReadFrom,
    Reset,
    Stored,
    StoreOutcome,
    StoreRequest,
    TrimBefore,
    Trimmed,
)
from surepipe.core.timing import backoff
from surepipe.pipes.kinds import multi_unconfirmed, reliable, stream, strict_monotonic
from surepipe.pipes.retry.flights import NEVER
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.stack.delivery import Delivery
from surepipe.pipes.stack.intake import Intake
from surepipe.pipes.stack.layers import Token
from surepipe.pipes.stream.calls import StoreCalls
from surepipe.simulation.stores import store as stores
from surepipe.simulation.subjects import HopSubject
from surepipe.storage.memory import MemoryStore, MemoryStream
from tests.faults.quarry import QUARRY
from tests.mutants.mutant import Around, Mutant, mutated, swapped

SUBJECTS = {subject.name: subject for subject in QUARRY}


def of(name: str) -> HopSubject:
    """The subject of the hunts with this name."""
    return SUBJECTS[name]


def both(first: Around, second: Around) -> Around:
    """While both are on."""

    @contextmanager
    def around() -> Generator[None]:
        with first(), second():
            yield

    return around


class LosesPatience(multi_unconfirmed.Sender):
    """BS-1: once it waits as long as it ever does, it sends nothing again."""

    def next_deadline(self, waits: int) -> int:
        """Never, after the longest pause."""
        usual = backoff(self.round_trips.rto, self.rto_max, waits, 0.0, self.rng)
        is_longest = usual >= self.rto_max
        return NEVER if is_longest else super().next_deadline(waits)


def loses_patience(calls: StoreCalls, attempts: int) -> int:
    """BS-2: the same of calls to a store."""
    return (
        NEVER
        if calls.patience.first << attempts > calls.patience.most
        else _PATIENCE(calls, attempts)
    )


_PATIENCE = vars(StoreCalls)["_patience"]


class SettlesTheRest(strict_monotonic.Receiver):
    """BS-3: what found no room is answered as if it had been overtaken."""

    def _refuse_rest(self, epoch: int, first: int, last: int, token: Token | None) -> None:
        del epoch, first, last
        if token is not None:
            self.port.settle(token)


class NeverAlarmed(reliable.Receiver):
    """BS-4: a hole may be as old as it likes, nobody is told."""

    def _stalled_due(self) -> int:
        return NEVER


class TakesAnything(Intake):
    """BS-5: no message is too large."""

    def admissible(self, payloads: Sequence[bytes]) -> tuple[Sequence[bytes], RejectReason]:
        """All of them."""
        self.message_max_bytes = max(map(len, payloads), default=0)
        return super().admissible(payloads)


class Hammers(multi_unconfirmed.Sender):
    """BS-6: waits no longer for the tenth answer than for the first."""

    def next_deadline(self, waits: int) -> int:
        """As for the first."""
        return super().next_deadline(min(waits, 1))


# Dead letters.


class LosesLetters(Delivery):
    """BS-7: a dead letter counts as stored, whatever its store said."""

    def answer(self, ticket: int, outcome: object) -> bool:
        """The outcome of a state write, or of a letter that is always there."""
        return super().answer(ticket, WriteStored() if ticket in self.postings else outcome)


class WritesLettersFirst(Delivery):
    """BS-19: a letter is written before its state gives the message up."""

    @property
    def _decides_first(self) -> bool:
        return False


# Several ends, one store.


def opens_as_one(
    stream: MemoryStream, producer: str, epoch: int, base: int
) -> ProducerOpened | FencedOut:
    """BS-8: producers are told apart by their epochs alone."""
    del producer
    return _OPEN(stream, ONE, epoch, base)


def appends_as_one(
    stream: MemoryStream, run: AppendRun, now_us: int, unread: int
) -> tuple[AppendOutcome, Callable[[], None] | None]:
    """The same, of appends; entries still say whose they are."""
    answered = _APPEND(stream, replace(run, producer=ONE), now_us, unread)
    if answered[1]:
        page = stream.pages[-1]
        stream.pages[-1] = replace(page, entries=replace(page.entries, producer=run.producer))
    return answered


ONE = "anybody"
_OPEN = MemoryStream.open_producer
_APPEND = MemoryStream.append


class OfReaders(MemoryStore):
    """BS-9: what a reader finds when it begins is whatever a reader of its name committed last, of any stream."""

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Of all streams."""
        own = super().ask(request)
        if not isinstance(request, GetPosition) or isinstance(own, NoPosition):
            return own
        if "/" in request.stream:
            return own  # of a journal
        every = [
            readers[request.reader].position
            for readers in self._state.readers.values()
            if request.reader in readers
        ]
        places = [place for place in every if place is not None]
        return max(places, key=lambda place: place.next)


class TrimsAll(MemoryStore):
    """BS-10: what is trimmed of one stream is trimmed of its neighbours."""

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Each by as much."""
        trimmed = super().ask(request)
        if isinstance(request, TrimBefore) and isinstance(trimmed, Trimmed):
            for other in self._state.streams.values():
                other.trim(trimmed.earliest)
        return trimmed


class ClaimsForAll(MemoryStore):
    """BS-11: who takes over a reader takes over those of its name on other streams."""

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Of pipes; of journals each has its own."""
        if not isinstance(request, ClaimReader) or "/" in request.stream:
            return super().ask(request)
        reader = request.reader
        known = [
            each[reader].claimant or 0 for each in self._state.readers.values() if reader in each
        ]
        highest = max(known, default=0)
        return FencedOut(highest) if request.claimant < highest else super().ask(request)


# Entries that go before they are read, and stores that go back.


FORGOTTEN_BEFORE = ("another", FORGOTTEN + 1)
"""A reader that once was there, for which nothing is kept."""


class TrimsAhead(MemoryStore):
    """BS-12: retention looks at no reader."""

    def _places(self, stream: str) -> list[tuple[str, int]]:
        del stream
        return [FORGOTTEN_BEFORE]


class TrimsBeforeTheFirst(MemoryStore):
    """BS-20: retention waits for no first reader."""

    def _places(self, stream: str) -> list[tuple[str, int]]:
        return super()._places(stream) or [FORGOTTEN_BEFORE]


class SkipsInSilence(stream.Receiver):
    """BS-13: what is gone is gone."""

    def _on_trimmed(self, earliest: int) -> None:
        self._move_to(earliest)


class NamesLess(stream.Receiver):
    """BS-14: the last entry that is gone is not named."""

    def _on_trimmed(self, earliest: int) -> None:
        place = self.work.next
        if self._is_drained():
            named = ((place, earliest - 2),) if place < earliest - 1 else ()
            self.port.notice(NoticeKind.TRIMMED, 0, named, "some are gone")
            self._move_to(earliest)


def reads_over_holes(
    stream: MemoryStream, request: ReadFrom
) -> Batch | Empty | Trimmed | Reset | Ahead | Diverged:
    """BS-15: where somebody took entries out, a store gives those behind as if they followed."""
    found = _READ(stream, request)
    if isinstance(found, Trimmed) and request.index >= stream.earliest:
        return _READ(stream, replace(request, index=found.earliest))
    return found


_READ = MemoryStream.read


class HidesWhatIsLost(stream.Sender):
    """BS-16: the store lacks what it had confirmed, and the sender writes on."""

    def _tell_what_is_lost(self, opened: ProducerOpened) -> None:
        del opened


# Answers that come after the patience for them.


class AsksOnce(stream.Sender):
    """BS-17: its first question says where it goes on; what is lost only an answer tells that comes late."""

    def _opening_at(self, base: int) -> OpenProducer:
        del base
        return super()._opening_at(self.first)


class CountsTwice(stream.Sender):
    """BS-18: each answer to an append confirms, also that to the call that was made again."""

    runs_answered: dict[int, tuple[int, int]] | None = None

    def answer(self, ticket: int, outcome: object) -> None:
        """Once more for what was answered."""
        known = self.runs_answered = self.runs_answered or {}
        if ticket in known and isinstance(outcome, Stored):
            self.port.confirmed(*known[ticket])
            return
        asked = next((one for one in self.appends if one.ticket == ticket), self.opening)
        if asked is None or asked.ticket != ticket:
            return
        if isinstance(asked.request, AppendRun):
            run = asked.request
            known[ticket] = (run.first, run.first + len(run.payloads) - 1)
        super().answer(ticket, outcome)


def hears_all(stack: SenderStack, ticket: int, outcome: object, now: int) -> list[Effect]:
    """A ticket may be answered again."""
    callers = cast("dict[int, int]", vars(stack)["_callers"])
    caller = callers.get(ticket)
    effects = _ANSWER(stack, ticket, outcome, now)
    if caller is not None:
        callers.setdefault(ticket, caller)
    return effects


_ANSWER = SenderStack.answer


PATIENT = of("multi-unconfirmed, short patience")
PATIENT_STREAM = of("stream, short patience")
NARROW = of("strict-monotonic over multi-unconfirmed, receives less")
ALARMED = of("reliable, alarms soon")
POSTED = of("reliable, committed, letters at once, journal")
PRODUCERS = of("stream, two producers")
NEIGHBOURS = of("stream, two in one store, journals, all of one name")
TRIMMED = of("stream, trimmed before it is read")
FEW_BYTES = of("stream, holds few bytes")
BY_FORCE = of("stream, holds few bytes, by force")
GONE_BACK = of("stream, store goes back")
LATE = of("stream, late answers")
BACK_LATE = of("stream, store goes back and answers late")

UNSEEN: tuple[Mutant, ...] = (
    Mutant(
        "BS-1",
        "stops at the longest pause",
        ("P2", "P11", "P12"),
        mutated(PATIENT, LosesPatience),
        PATIENT,
    ),
    Mutant(
        "BS-2",
        "asks a store no more at the longest pause",
        ("P12",),
        PATIENT_STREAM,
        PATIENT_STREAM,
        swapped(StoreCalls, "_patience", loses_patience),
        replays=3,
    ),
    Mutant(
        "BS-3", "settles what found no room", ("P2", "P8"), mutated(NARROW, SettlesTheRest), NARROW
    ),
    Mutant("BS-4", "never tells of an old hole", ("P12",), mutated(ALARMED, NeverAlarmed), ALARMED),
    Mutant(
        "BS-5", "takes a message of any size", ("P19",), mutated(PATIENT, TakesAnything), PATIENT
    ),
    Mutant(
        "BS-6", "sends again without waiting longer", ("P9",), mutated(PATIENT, Hammers), PATIENT
    ),
    Mutant(
        "BS-7",
        "loses a letter that was not stored",
        ("P2", "P6", "P14", "P16"),
        mutated(POSTED, LosesLetters),
        POSTED,
        within=100,
    ),
    Mutant(
        "BS-19",
        "writes letters before their state gives the messages up",
        ("P3",),
        mutated(POSTED, WritesLettersFirst),
        POSTED,
    ),
    Mutant(
        "BS-8",
        "producers are told apart by their epochs alone",
        ("P2", "P8", "P12"),
        PRODUCERS,
        PRODUCERS,
        both(
            swapped(MemoryStream, "open_producer", opens_as_one),
            swapped(MemoryStream, "append", appends_as_one),
        ),
    ),
    Mutant(
        "BS-9",
        "a position is its reader's, whichever stream it reads",
        ("P2", "P10", "P12"),
        NEIGHBOURS,
        NEIGHBOURS,
        swapped(stores, "MemoryStore", OfReaders),
    ),
    Mutant(
        "BS-10",
        "a trim of one stream trims its neighbours",
        ("P2", "P12"),
        NEIGHBOURS,
        NEIGHBOURS,
        swapped(stores, "MemoryStore", TrimsAll),
    ),
    Mutant(
        "BS-11",
        "a new life of one reader fences that of another stream",
        ("P2", "P11", "P12"),
        NEIGHBOURS,
        NEIGHBOURS,
        swapped(stores, "MemoryStore", ClaimsForAll),
    ),
    Mutant(
        "BS-12",
        "retention looks at no reader",
        ("P2",),
        FEW_BYTES,
        FEW_BYTES,
        swapped(stores, "MemoryStore", TrimsAhead),
    ),
    Mutant(
        "BS-20",
        "entries go before the first reader has begun",
        ("P2",),
        FEW_BYTES,
        FEW_BYTES,
        swapped(stores, "MemoryStore", TrimsBeforeTheFirst),
    ),
    Mutant(
        "BS-13",
        "what is gone is skipped in silence",
        ("P21",),
        mutated(BY_FORCE, SkipsInSilence),
        BY_FORCE,
    ),
    Mutant(
        "BS-14",
        "the last entry that is gone is not named",
        ("P21",),
        mutated(BY_FORCE, NamesLess),
        BY_FORCE,
    ),
    Mutant(
        "BS-15",
        "a store gives what is behind a hole as if it followed",
        ("P12", "P21"),
        TRIMMED,
        TRIMMED,
        swapped(MemoryStream, "read", reads_over_holes),
        replays=12,
    ),
    Mutant(
        "BS-16",
        "a sender hides that its store went back",
        ("P21",),
        mutated(GONE_BACK, HidesWhatIsLost),
        GONE_BACK,
    ),
    Mutant(
        "BS-17",
        "what a late answer says is forgotten, and said once",
        ("P21",),
        mutated(BACK_LATE, AsksOnce),
        BACK_LATE,
        within=200,
    ),
    Mutant(
        "BS-18",
        "a late answer counts once more",
        ("P20",),
        mutated(LATE, CountsTwice),
        LATE,
        swapped(SenderStack, "answer", hears_all),
    ),
)
