"""What a person does with single messages and pages: execute, discard, requeue, reap (B-42, B-46).

Like the service these are generators that their host drives. A message is reserved before anything is done with
it, so two people (or two processes) can't both do it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import cast
from zlib import crc32

from surepipe.queues.book.addresses import Address
from surepipe.queues.book.answers import (
    REJECTIONS,
    AnyOutcome,
    Done,
    Later,
    Manual,
    Raised,
    Reaped,
    Rejected,
    TooHeavy,
    Why,
)
from surepipe.queues.book.changes import Change, Facts, Items, Settle, Take
from surepipe.queues.book.config import MICROS, NOTHING, Budget, Vector, cost_of
from surepipe.queues.book.events import Discarded, Failed, Processed, Reason, Requeued
from surepipe.queues.book.ledger import Book, NotPlaced, Placed
from surepipe.queues.book.page import packed
from surepipe.queues.book.service import (
    DeadMessage,
    Effect,
    Handled,
    LoadPages,
    Ran,
    Request,
    RunMessages,
    Session,
    WriteEntry,
    text_of,
)


class ByHand:
    """The operations of one process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ledger = session.ledger
        self._reserved = set[tuple[int, int, int]]()

    # One message.

    def execute(
        self, token: str, budget: Budget | None = None
    ) -> Generator[Request, object, Manual]:
        """Run one parked message through its handler."""
        address = self._session.addresses.read(token)
        book = self._book(address)
        if book is not None and book.paused:
            return Manual(False, Why.PAUSED, NOTHING, token)
        payload, why = yield from self._payload(address)
        if payload is None:
            return Manual(False, why, NOTHING, token)
        cost: Vector = (1, len(payload), 0, 0)
        trouble: Raised | None = None
        try:
            cost = cost_of(self._session.cost, payload)
        except Exception as error:  # noqa: BLE001 - it is somebody else's function
            trouble = Raised(type(error).__name__, text_of(error))
        if budget is not None and not budget.covers(cost):
            return Manual(False, Why.OVER_BUDGET, cost, token)
        why = yield from self._take(address)
        if why is not Why.DONE:
            return Manual(False, why, NOTHING, token)
        facts = self._facts(address)
        attempts = facts.attempts if facts else 0
        handled = Handled(trouble) if trouble else None
        # While a handler runs this process may be held for dead, and the queue may go: it is not looked for then.
        origin = self._ledger.generations[address.generation]
        if handled is None:
            handled = yield from self._run(origin, address, payload, cost, attempts)
        came = self._came_of_it(token, origin, address, payload, cost, attempts, handled)
        return (yield from came)

    def _run(
        self, origin: str, address: Address, payload: bytes, cost: Vector, attempts: int
    ) -> Generator[Request, object, Handled]:
        ran = yield RunMessages(
            *(origin, address.generation, address.page, address.slot, attempts),
            *([payload], [cost[MICROS]], None),
            self._ledger.books[origin].pages[address.page].number + address.slot,
        )
        assert isinstance(ran, Ran), "messages are answered with what came of them"
        if not ran.handled:
            return Handled(Later())  # the host was interrupted in it
        one = ran.handled[0]
        return one if isinstance(one, Handled) else Handled(one)

    def _came_of_it(  # noqa: PLR0917 - the facts of one attempt
        self,
        token: str,
        origin: str,
        address: Address,
        payload: bytes,
        cost: Vector,
        attempts: int,
        handled: Handled,
    ) -> Generator[Request, object, Manual]:
        outcome: AnyOutcome = handled.outcome
        kept = self._is_kept(outcome)
        if kept is not None:
            error = outcome.said if isinstance(outcome, Raised) else ""
            how = "tried" if error else "released"
            yield WriteEntry(self._settle(address, how, attempts=attempts + 1, error=error))
            if isinstance(outcome, Raised | Rejected):
                reason = (
                    Reason.DEPTH
                    if not isinstance(outcome, Raised) or outcome.depth
                    else Reason.ERROR
                )
                detail = f"{outcome.kind}: {outcome.text}" if isinstance(outcome, Raised) else ""
                self._tell(Failed(token, origin, token, reason, attempts + 1, detail))
            return Manual(False, kept, cost, token, error)
        if isinstance(outcome, Rejected):
            dead: tuple[Effect, ...] = ()
            if self._session.config.on_rejected != "drop":
                reason = REJECTIONS[outcome.reason]
                dead = (
                    self._dead(address, token, payload, attempts + 1, "Rejected", reason.value),
                )
            yield WriteEntry(self._settle(address, "rejected", len(payload), dead=bool(dead)), dead)
            self._tell(Failed(token, origin, token, REJECTIONS[outcome.reason], attempts + 1))
            return Manual(True, Why.REJECTED, cost, token)
        settle = self._settle(address, "done", len(payload), staged=handled.enqueued)
        yield WriteEntry(settle, handled.effects)
        assert isinstance(outcome, Done), "everything else was dealt with"
        name = outcome.id if outcome.id is not None else token
        self._tell(Processed(name, origin, token, cost, outcome.success))
        return Manual(True, Why.DONE, cost, token)

    def _is_kept(self, outcome: AnyOutcome) -> Why | None:
        """Why the message stays as it is after this outcome; None when it is dealt with."""
        match outcome:
            case TooHeavy():
                return Why.OVER_BUDGET
            case Later() | Raised():
                return Why.NOT_NOW
            case Rejected(reason):
                return Why.NOT_NOW if reason == "DEPTH" else None
            case Done():
                return None

    def discard(self, token: str, note: str) -> Generator[Request, object, Manual]:
        """Give a message up: it goes to the dead letters with the note, and no handler runs."""
        address = self._session.addresses.read(token)
        payload, why = yield from self._payload(address)
        if payload is not None:
            why = yield from self._take(address)
        if payload is None or why is not Why.DONE:
            return Manual(False, why, NOTHING, token)
        facts = self._facts(address)
        attempts = facts.attempts if facts else 0
        origin = self._ledger.generations[address.generation]
        dead = self._dead(address, token, payload, attempts, "Discarded", note)
        yield WriteEntry(self._settle(address, "discarded", len(payload), dead=True), (dead,))
        self._tell(Discarded(token, origin, token, note))
        return Manual(True, Why.DONE, NOTHING, token)

    def requeue(self, token: str, origin: str | None) -> Generator[Request, object, Manual]:
        """Move a message to the tail of its own or another queue, where it has a new address."""
        address = self._session.addresses.read(token)
        payload, why = yield from self._payload(address)
        if payload is not None:
            why = yield from self._take(address)
        if payload is None or why is not Why.DONE:
            return Manual(False, why, NOTHING, token)
        old = self._ledger.generations[address.generation]
        items = (Items(old if origin is None else origin, 1, packed([payload])),)
        placed = yield WriteEntry(self._settle(address, "requeued", len(payload), staged=items))
        if isinstance(placed, NotPlaced):
            return Manual(False, Why.FULL, NOTHING, token)
        assert isinstance(placed, Placed), "a message that was reserved is moved"
        place = placed.first
        assert place is not None, "one message has one place"
        new = self._session.addresses.of(place.generation, place.page, place.slot, payload)
        self._tell(Requeued(token, old, token, place.origin, new))
        return Manual(True, Why.DONE, NOTHING, new)

    def payload(self, token: str) -> Generator[Request, object, bytes | None]:
        """The bytes of a message that waits for a person; None when there is none under this address."""
        address = self._session.addresses.read(token)
        payload, _ = yield from self._payload(address)
        return payload

    # Pages.

    def reap(self, origin: str, number: int) -> Generator[Request, object, Reaped]:
        """Remove a page of parked messages, if there are too many pages of them."""
        why = self._ledger.reapable(origin, number)
        if why is not Why.DONE:
            return Reaped(False, why, number)
        book = self._ledger.books[origin]
        generation = book.generation
        taken = yield WriteEntry(Take(self._session.wall, generation, number, -1))
        if taken is not Why.DONE:
            why = cast("Why", taken)
            return Reaped(False, why, number)
        dead: list[Effect] = []
        if self._session.config.on_reap == "dead_letter":
            page = book.pages[number]
            if not page.is_loaded:
                yield LoadPages(origin, (number,))
            for slot in range(page.slots):
                found = page.read(slot)
                if found is not None and not found.processed:
                    token = self._session.addresses.of(generation, number, slot, found.payload)
                    facts = book.parked.get((number, slot))
                    address = Address(generation, number, slot, crc32(found.payload))
                    attempts = facts.attempts if facts else 0
                    dead.append(
                        self._dead(address, token, found.payload, attempts, "Reaped", "stale page")
                    )
        change = Change(self._session.wall, "reap", origin, number, bool(dead))
        done = yield WriteEntry(change, tuple(dead))
        why, messages, size = cast("tuple[Why, int, int]", done)
        return Reaped(why is Why.DONE, why, number, messages, size)

    # What they share.

    def _book(self, address: Address) -> Book | None:
        origin = self._ledger.generations.get(address.generation)
        return None if origin is None else self._ledger.books[origin]

    def _facts(self, address: Address) -> Facts | None:
        book = self._book(address)
        if book is None:
            return None
        return book.parked.get((address.page, address.slot)) or book.blocked

    def _payload(self, address: Address) -> Generator[Request, object, tuple[bytes | None, Why]]:
        """The bytes of a message that may be dealt with, or why it may not."""
        place = (address.generation, address.page, address.slot)
        mine = "" if place in self._session.reserved else self._session.name
        why = self._ledger.standing(*place, mine)
        if why is not Why.DONE:
            return None, why
        book = self._book(address)
        assert book is not None, "it is there, or it would not be found"
        page = book.pages[address.page]
        if not page.is_loaded:
            yield LoadPages(book.origin, (address.page,))
        found = page.read(address.slot)
        if found is None or crc32(found.payload) != address.check:
            return None, Why.NOT_FOUND  # a store that went back holds another message here
        return found.payload, Why.DONE

    def _take(self, address: Address) -> Generator[Request, object, Why]:
        entry = Take(self._session.wall, address.generation, address.page, address.slot)
        why = yield WriteEntry(entry)
        assert isinstance(why, Why), "reserving answers with a reason"
        if why is Why.DONE:
            self._reserved.add((address.generation, address.page, address.slot))
            self._session.reserved |= self._reserved
        return why

    def close(self) -> None:
        """The operation is over, however it ended."""
        self._session.reserved -= self._reserved

    def _settle(
        self,
        address: Address,
        how: str,
        length: int = 0,
        *,
        dead: bool = False,
        attempts: int = 0,
        staged: tuple[Items, ...] = (),
        error: str = "",
    ) -> Settle:
        place = (address.generation, address.page, address.slot)
        return Settle(self._session.wall, *place, how, length, dead, attempts, staged, error)

    def _dead(  # noqa: PLR0917 - the facts of one letter
        self, address: Address, token: str, payload: bytes, attempts: int, kind: str, text: str
    ) -> DeadMessage:
        book = self._book(address)
        assert book is not None, "a message that is reserved has a queue"
        number = book.pages[address.page].number + address.slot
        return DeadMessage(
            *(book.origin, address.generation, address.page, address.slot, number, payload),
            *(attempts, self._session.wall, token, kind, text),
        )

    def _tell(self, event: Processed | Failed | Discarded | Requeued) -> None:
        if self._ledger.listening:
            self._ledger.events.append(event)
