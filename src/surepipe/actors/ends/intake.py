"""Where callers put messages for a sender's actor: bounded, ordered, and without a lock on the usual path.

Credit. Every message takes a *ticket*, the next of an endless row of numbers, and may be put when its ticket is
below ``limit``. The actor raises the limit after each of its steps, to what was drained so far plus the room that
its machine has: so what is put is certain to be accepted, by the machine's own bounds. Taking a ticket and adding
to a list are single steps of the interpreter, so any number of threads may do both, and a thread's messages keep
their order because it does one after the other. Whoever has a ticket above the limit waits; first come, first
served.

Bytes. A ticket stands for ``unit`` bytes at most, a larger message takes several. So counting tickets holds the
bound in bytes too, a little on the safe side.

Closing. ``close`` takes the limit away, and knows by counting which tickets had been granted before: the intake
is *drained* when each of these was either put and taken by the actor, or given back. So no message that ``send``
accepted is left behind.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from surepipe.actors.codecs import BytesCodec, Codec, escaped_by
from surepipe.actors.consuming.coroutines import patient
from surepipe.actors.inbox import Bell
from surepipe.actors.runtime import Runtime
from surepipe.core.effects import Accepted, DeadLetter, NoticeKind, Ranges, Renumbered
from surepipe.core.payloads import Payloads, joined, sized
from surepipe.errors import (
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    PipeClosed,
    PipeFull,
    SurepipeError,
)

logger = logging.getLogger("surepipe")

# Marks: how a caller waits for what becomes of particular messages.
#
# A mark travels in the sender's intake among the payloads. The actor that takes it out notes which identity it
# stands for, and resolves it when that identity is accepted or confirmed. While nobody waits there is no mark,
# and nothing is tracked per message.


Item = tuple[int, int, int]
"""(epoch, first, last)."""

_ANYTHING = (2**63, 0)
"""Stands behind every identity: a mark there waits for all that is unconfirmed."""


class Until(Enum):
    """What a caller waits for."""

    TAKEN = "taken"
    ACCEPTED = "accepted"
    CONFIRMED = "confirmed"


class Mark:
    """A place among the messages of a sender. Without payloads it stands for all that came before it.

    ``open`` names what was still unconfirmed when the actor last looked; None until it has seen the mark.
    """

    __slots__ = (
        "abandoned",
        "done",
        "error",
        "given_up",
        "is_for_all",
        "is_seen",
        "open",
        "ordinal",
        "own",
        "payloads",
        "target",
        "units",
        "until",
    )

    def __init__(self, payloads: Sequence[bytes], units: int, until: Until) -> None:
        self.payloads = payloads
        self.units = units
        self.until = until
        self.is_for_all = until is Until.CONFIRMED and not payloads
        self.ordinal = 0
        self.target: tuple[int, int] | None = None
        self.open: tuple[Item, ...] | None = None
        self.is_seen = False
        """True once the actor has compared it with what is unconfirmed."""
        self.done = False
        self.error: SurepipeError | None = None
        self.abandoned = False
        self.own = len(payloads)
        """So many messages, the last before it, are those of whoever waits."""
        self.given_up: list[Item] = []
        """Which of these the sender put into its dead letters, as nobody answered."""

    @property
    def resolved(self) -> bool:
        """True when there is nothing to wait for any more."""
        return self.done or self.error is not None

    def look(self, unconfirmed: Iterable[tuple[int, Ranges]]) -> None:
        """Compare with what is unconfirmed now."""
        self.is_seen = True
        if self.target is None:
            return
        if self.until is Until.CONFIRMED:
            self.open = tuple(self._concerned(unconfirmed))
        self.done = not self.open

    def look_at_given_up(self, messages: Iterable[tuple[int, int]]) -> None:
        """Compare with what the sender gave up."""
        if self.done and self.target is not None:
            at, last = self.target
            self.given_up = [
                (epoch, seq, seq)
                for epoch, seq in messages
                if epoch == at and last - self.own < seq <= last
            ]

    def _concerned(self, unconfirmed: Iterable[tuple[int, Ranges]]) -> list[Item]:
        assert self.target is not None
        found: list[Item] = []
        epoch, last = self.target
        first = last - len(self.payloads) + 1 if self.payloads else 0
        for other, ranges in unconfirmed:
            if other > epoch or (other < epoch and self.payloads):
                continue
            for low, high in ranges:
                if other < epoch:
                    found.append((other, low, high))
                elif low <= last and high >= first:
                    found.append((epoch, max(low, first), min(high, last)))
        return found


class SenderMarks:
    """Follow the marks of one life of a sender by counting messages offered and accepted."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.last = _ANYTHING
        self.is_asked_for_all = False
        """True when somebody came who waits until all is confirmed; whoever looks after that sets it back."""
        self._given_up: deque[tuple[int, int]] = deque(maxlen=UNITS_MAX)
        self._offered = 0
        self._accepted = 0

    def offering(self, items: Iterable[bytes | Mark], held: int) -> Payloads:
        """The payloads among these items, about to be offered to the machine in this order, behind so many that it
        had no room for when they were offered before."""
        runs: list[Payloads] = []
        singles: list[bytes] = []
        ordinal = self._offered + held
        for item in items:
            if not isinstance(item, Mark):
                singles.append(item)
                continue
            ordinal += len(singles) + len(item.payloads)
            if singles:
                runs.append(sized(singles))
                singles = []
            if item.payloads:
                runs.append(sized(item.payloads))
            self._adopt(item, ordinal)
        if singles:
            runs.append(sized(singles))
        return joined(runs)

    def _adopt(self, mark: Mark, ordinal: int) -> None:
        if mark.until is Until.TAKEN:
            mark.done = True
            return
        mark.ordinal = ordinal
        if mark.is_for_all:
            self.is_asked_for_all = True
        if ordinal <= self._accepted:
            mark.target = self.last
        self.marks.append(mark)

    def offered(self, count: int) -> None:
        """So many messages were offered to the machine."""
        self._offered += count

    def accepted(self, effect: Accepted) -> None:
        """The machine accepted the next messages of those offered."""
        first_ordinal = self._accepted + 1
        self._accepted += effect.count
        self.last = (effect.epoch, effect.first + effect.count - 1)
        for mark in self.marks:
            if mark.target is None and mark.ordinal <= self._accepted:
                mark.target = (effect.epoch, effect.first + mark.ordinal - first_ordinal)

    def rejected(self, count: int, error: SurepipeError) -> None:
        """The machine did not take the last messages offered, and will not."""
        self._offered -= count
        for mark in self.marks:
            if mark.target is None and mark.ordinal > self._offered:
                mark.error = error

    def gave_up(self, effect: DeadLetter) -> None:
        """A message of those sent here, or received here, goes to the dead letters."""
        if effect.letter.error_type == NoticeKind.UNDELIVERABLE:
            self._given_up.append((effect.letter.epoch, effect.letter.seq))

    def renumbered(self, effect: Renumbered) -> None:
        """Messages have another identity now."""
        self.last = self._moved(self.last, effect)
        for mark in self.marks:
            if mark.target is not None:
                mark.target = self._moved(mark.target, effect)

    def _moved(self, target: tuple[int, int], effect: Renumbered) -> tuple[int, int]:
        epoch, seq = target
        if epoch == effect.epoch and effect.first <= seq < effect.first + effect.count:
            return (effect.new_epoch, seq - effect.first + effect.new_first)
        return target

    def resolve(
        self, unconfirmed: Sequence[tuple[int, Ranges]], *, verifying: bool = False
    ) -> bool:
        """Compare all marks with what is unconfirmed now; True when one of them is resolved.

        ``verifying``: whether what was confirmed is still there is being asked, so who waits for all waits on."""
        for mark in self.marks:
            if not (verifying and mark.is_for_all):
                mark.look(unconfirmed)
                if self._given_up:
                    mark.look_at_given_up(self._given_up)
        left = [
            mark
            for mark in self.marks
            if not (mark.done or mark.error is not None or mark.abandoned)
        ]
        changed = len(left) < len(self.marks)
        self.marks = left
        return changed

    def fail(self, text: str) -> None:
        """The sender has lost what these marks stand for."""
        for mark in self.marks:
            mark.error = NotConfirmed(text, mark.open or ())
        self.marks = []

    def outliving(self) -> list[Mark]:
        """The marks that a journal lets a next life resolve: of what is stored. The others stay here: whether all
        that they stand for was stored is not known."""
        outliving = [mark for mark in self.marks if mark.target]
        self.marks = [mark for mark in self.marks if mark not in outliving]
        for mark in outliving:
            mark.target = mark.target if mark.payloads else _ANYTHING
        return outliving


@runtime_checkable
class ExclusiveStore(Protocol):
    """A store with transactions that let nobody else write."""

    def refuse_inside(self, what: str, *, holds_thread: bool) -> None:
        """Raises MisuseError where a wait for a write would be for the transaction that this code is in."""
        ...


Refusal: TypeAlias = tuple[type[SurepipeError], str]
UNITS_MAX = 16_384
"""Messages that wait for the actor at the most, where the machine itself has no bound."""
CHUNK_MAX = 4096
BEGUN_S = 1.0
"""So long an end may take to begin, to store a message, or to look at what it is asked, whatever time a call
has."""
NOTED_S = 10.0
"""So long an end that closes tells a store again what is done, within the time that it has. One that is locked
answers after 5 s."""
LOOK_S = 0.1
"""How often a handler that waits for room in its own pipe looks whether any can come."""


class WaitsForItself(MisuseError):
    """The caller waits for room in the very pipe whose message it handles, and nothing else makes any."""


def _nothing() -> None:
    """Whoever sends is no handler."""


class SenderEntry:
    """The entry of one sender. Callers use ``put``, ``offer*`` and ``flush``; the rest is for its end."""

    def __init__(
        self,
        runtime: Runtime,
        bell: Bell,
        pipe: str,
        *,
        unit: int,
        message_max: int,
        durable: bool,
        silent: Callable[[], str] = str,
    ) -> None:
        """``silent`` tells which store gives no answer, if one doesn't."""
        self.pipe = pipe
        self.bell = bell
        self.message_max = message_max
        self.limit = 0
        self.refusal: Refusal | None = None
        self.lost: list[Item] = []
        self.accepted_by: tuple[ExclusiveStore, ...] = ()
        """What must write before a message is accepted."""
        self.confirmed_by: tuple[ExclusiveStore, ...] = ()
        """What must write before it is confirmed, besides."""
        self.handled_here: Callable[[], tuple[int, int] | None] = _nothing
        """The message, by epoch and number, that the caller is the handler of, where it and those behind it are
        confirmed only when that handler is done."""
        self.held_up: Callable[[], str] = lambda: "what was sent waits for its confirmation"
        """What the confirmation waits for, as far as its end knows, and what to do about that."""
        self.room_options = "backlog"
        """The options that say how much is accepted."""
        self.is_noted = True
        """What is confirmed is noted in the journal, if there is one."""
        self.is_ending = False
        """Its end closes, though it still takes messages: those of a handler that has not come to its end."""
        self._over: Refusal | None = None
        self.may_take = False
        self._durable = durable
        self._silent = silent
        self._runtime = runtime
        self.signal = runtime.signal()
        self._unit = unit
        # With a journal, acceptance is a stored row: every message has to be waited for, none may be quick.
        self._quick = -1 if durable else min(unit, message_max)
        self._tickets = itertools.count()
        self._items: list[bytes | Mark] = []
        self._append = self._items.append
        self._lock = threading.Lock()
        self._marks_put = 0
        self._marks_taken = 0
        self._promised = 0
        self._drained = 0
        self._voided = 0
        self._voids: list[int] = []
        self._capacity = 0
        self._has_begun = False
        self.put: Callable[[bytes], None] = self.entry(BytesCodec())
        """Takes one payload, waiting for credit if need be. See ``offer`` for what it raises."""

    # For callers.

    def refuse_inside(self, until: Until) -> None:
        """Raise MisuseError in a handler with a transaction, if what must be written waits for the end of that."""
        stores = self.accepted_by
        if until is Until.CONFIRMED:
            stores += self.confirmed_by
        for store in stores:
            store.refuse_inside(
                f"wait for pipe {self.pipe}, which writes there,", holds_thread=patient() is None
            )

    def entry(self, codec: Codec) -> Callable[[object], None]:
        """A function that encodes and takes one message, as ``put`` does.

        It runs for every single message: hence the names at hand, and bytes that need no codec kept from it.
        """
        tickets, append, bell = self._tickets, self._append, self.bell
        encode, escaped, longest = codec.encode, escaped_by(codec), self._quick
        takes_bytes = escaped is not None

        def put(message: object) -> None:
            if takes_bytes and type(message) is bytes and message and message[0] != escaped:
                payload = message
            else:
                payload = encode(message)
            if len(payload) <= longest:
                ticket = next(tickets)
                if ticket >= self.limit:
                    self._await([ticket], None)
                append(payload)
                if not bell.rung:
                    bell.ring()
            else:
                self.offer(payload, Until.ACCEPTED, None)

        return put

    def offer(self, payload: bytes, until: Until, timeout: float | None) -> None:
        """Take one message and wait for what is asked.

        Raises PayloadTooLarge, PipeFull (no room within the time; not taken), PipeClosed, PipeStopped,
        and NotConfirmed (taken, and not confirmed within the time, or not known to be stored).
        """
        self.refuse_inside(until)
        end = self._end(timeout)
        self.await_begin()
        mark = self._put_one(payload, until, self._left(end))
        if mark.until is not Until.TAKEN:
            self.wait_for(mark, self._left(end))

    def offer_now(self, payload: bytes) -> None:
        """Take one message if there is room now; a journal's answer is waited for all the same, and that a sender
        which was just made has begun. Raises what ``offer`` raises.
        """
        self.refuse_inside(Until.ACCEPTED)
        self.await_begin(None)
        mark = self._put_one(payload, Until.ACCEPTED, 0.0)
        if mark.until is not Until.TAKEN:
            self.wait_for(mark, None)

    def await_begin(self, limit: float | None = BEGUN_S) -> None:
        """Wait until a sender that was just made has said how much room it has, which is no wait for room."""
        if not self._promised:
            self.signal.wait(lambda: self._promised > 0 or self.refusal is not None, limit)

    def await_life(self, limit: float) -> None:
        """Wait until a sender has begun, with or without room: until then nobody knows what its journal holds."""
        self.signal.wait(lambda: self._has_begun or self._over is not None, limit)

    def _put_one(self, payload: bytes, until: Until, timeout: float | None) -> Mark:
        self._check_size(payload, "the payload")
        units = self._units_of(payload)
        mark = Mark((payload,), units, until if self._waits(until) else Until.TAKEN)
        self._await(self._take(units), timeout)
        self._put_mark(mark)
        return mark

    def offer_many(
        self, payloads: Sequence[bytes], until: Until, timeout: float | None, *, before: int = 0
    ) -> int:
        """Take messages in order, waiting for credit piece by piece; gives how many. ``before``: so many of the
        same call were taken already.

        Raises what ``offer`` raises; after PayloadTooLarge none was taken, PipeFull says how many were.
        """
        self.refuse_inside(until)
        run = sized(payloads)
        if run.longest > self.message_max:
            for number, payload in enumerate(run):
                self._check_size(payload, f"payload {number}")
        end = self._end(timeout)
        self.await_begin()
        taken = 0
        try:
            while taken < len(run):
                taken += self._put_some(run, taken, self._left(end))
        except (PipeFull, WaitsForItself) as error:
            text = f"{error}; the first {taken} of {len(payloads)} were accepted"
            raise type(error)(text) from None
        if self._waits(until):
            self._await_all(until, self._left(end), before + taken)
        return taken

    def flush(self, timeout: float | None) -> None:
        """Wait until everything put so far is confirmed.

        Raises NotConfirmed, which names what is not, or was lost since the last call; PipeStopped.
        """
        self._await_all(Until.CONFIRMED, timeout)
        if self.lost:
            self.raise_lost()

    def await_over(self, timeout: float | None) -> bool:
        """Wait until the actor is gone for good; False when that takes longer. Raises PipeStopped when it stopped
        by itself."""
        self.signal.wait(lambda: self._over is not None, timeout)
        self._raise_failure()
        return self._over is not None

    def finish(self, timeout: float | None) -> None:
        """After ``refuse``: wait until the actor has everything that was granted, and all is confirmed."""
        end = self._end(timeout)
        self.signal.wait(lambda: self.drained or self._over is not None, timeout)
        self.flush(self._left(end))
        self._await_noted(self._left(end))

    def _await_noted(self, left: float | None) -> None:
        """The journal may have been away, or locked, when it was told that all is confirmed. It is told again for
        as long as there is a sender; without one the next sender would send again what was handled."""
        limit = NOTED_S if left is None else max(min(left, NOTED_S), BEGUN_S)
        if not self.signal.wait(lambda: self.is_noted or self._over is not None, limit):
            logger.warning(
                "pipe %s: all is confirmed, but its journal%s could not be told of the last of it: whoever sends "
                "next under this name sends that again",
                *(self.pipe, f" ({silent})" if (silent := self._silent()) else ""),
            )

    def raise_lost(self) -> None:
        """Raise NotConfirmed for messages that a crash of the sender lost, once for each."""
        lost, self.lost = self.lost, []
        if lost:
            raise NotConfirmed(
                f"pipe {self.pipe}: the sender crashed and these messages went with it, unconfirmed: "
                f"{describe(lost)}. Send them again if the receiver must have them, or give the pipe "
                "a journal",
                lost,
            )

    def _await_all(self, until: Until, timeout: float | None, own: int = 0) -> None:
        """Raises also where it stops meanwhile: nothing is unconfirmed then, though nothing was confirmed. So
        many of the last messages are the caller's ``own``, who is told when one of them was given up."""
        if self._over is not None:
            self._raise_failure()
        mark = Mark((), 0, until)
        mark.own = own
        self._put_mark(mark)
        self.wait_for(mark, timeout)
        if self._over is not None:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if (failure := self.failure) is not None:
            raise failure

    def _waits(self, until: Until) -> bool:
        return until is Until.CONFIRMED or (self._durable and until is Until.ACCEPTED)

    def _check_size(self, payload: bytes, what: str) -> None:
        if len(payload) > self.message_max:
            raise PayloadTooLarge(
                f"pipe {self.pipe}: {what} has {len(payload)} bytes and {self.message_max} are allowed; "
                "nothing was accepted. Raise message_max_bytes (and backlog_bytes), or cut it up"
            )

    def _units_of(self, payload: bytes) -> int:
        return max(1, -(-len(payload) // self._unit))

    def _put_some(self, run: Payloads, start: int, timeout: float | None) -> int:
        """Put the next piece and say how many that was."""
        if not self._capacity:  # the first life has not said yet how much room it has
            self.signal.wait(lambda: self._capacity > 0 or self.refusal is not None, timeout)
        piece = run.part(start, start + max(1, min(CHUNK_MAX, self._capacity // 2)))
        if piece.longest > self._unit:
            small = _count_up_to(piece, self._unit)
            if not small:
                self.offer(piece[0], Until.TAKEN, timeout)
                return 1
            piece = piece.part(0, small)
        self._await(self._take(len(piece)), timeout)
        self._put_mark(Mark(piece, len(piece), Until.TAKEN))
        return len(piece)

    # Tickets.

    def _take(self, count: int) -> list[int]:
        # Several at once are taken under the lock, so they lie together but for single ones in between:
        # two callers that took turns could each hold what the other needs.
        with self._lock:
            return list(itertools.islice(self._tickets, count))

    def _await(self, tickets: list[int], timeout: float | None) -> None:
        """Wait until these tickets are below the limit; give them back when that fails."""
        last = tickets[-1]
        if last < self.limit:
            return
        try:
            if timeout is None and (mine := self.handled_here()) is not None:
                self._await_others(last, mine)
            else:
                self.signal.wait(lambda: last < self.limit or self.refusal is not None, timeout)
        except BaseException:  # also when room came at the same moment: nobody else would use these
            self._give_back(tickets)
            raise
        if last >= self.limit:
            self._give_back(tickets)
            raise self._refused()

    def _await_others(self, ticket: int, mine: tuple[int, int]) -> None:
        """From the handler of a message: confirms of those before it may still come. Without them no room does.

        Raises WaitsForItself.
        """
        mark = self.mark()
        try:
            while not self.signal.wait(
                lambda: ticket < self.limit or self.refusal is not None, LOOK_S
            ):
                if mark.open and mark.open[0][:2] == mine:
                    raise WaitsForItself(
                        f"pipe {self.pipe} is full, and who sends is its own handler: room comes only when the "
                        f"message that is handled here is done. Raise {self.room_options}, give lanes, send with "
                        "a timeout, or send outside of the handler"
                    )
        finally:
            mark.abandoned = True

    def _give_back(self, tickets: list[int]) -> None:
        """These tickets will not be used: they count as spent once the limit reaches them."""
        with self._lock:
            for ticket in tickets:
                heapq.heappush(self._voids, ticket)
            self._count_voids()
            if self.refusal is None:
                self.limit = self._promised
        self.signal.notify()
        self.bell.ring()

    def _refused(self) -> SurepipeError:
        if self.refusal is not None:
            kind, text = self.refusal
            return kind(f"{text}; the message was not accepted")
        advice = f", or raise {self.room_options}" if self.room_options else ""
        return PipeFull(f"pipe {self.pipe} has no room: {self.held_up()}. Try again then{advice}")

    # Marks.

    def _put_mark(self, mark: Mark) -> None:
        with self._lock:
            self._marks_put += 1
            self._append(mark)
        self.bell.ring()

    def mark(self) -> Mark:
        """Stands for all that was put so far, and is resolved when that is confirmed. For ``wait_for``."""
        mark = Mark((), 0, Until.CONFIRMED)
        self._put_mark(mark)
        return mark

    def wait_for(self, mark: Mark, timeout: float | None) -> None:
        """Wait until a mark is done. Raises what ``flush`` raises. Whether it is confirmed already, only the actor
        knows: to ask it is no wait for the confirmation."""
        try:
            if timeout is not None and mark.until is Until.CONFIRMED:
                end = self._end(timeout)
                self.signal.wait(
                    lambda: mark.is_seen or mark.resolved or self._over is not None, BEGUN_S
                )
                timeout = self._left(end)
            elif timeout is not None:  # to store it is no wait for room
                timeout = max(timeout, BEGUN_S)
            self.signal.wait(
                lambda: mark.done or mark.error is not None or self._over is not None, timeout
            )
        finally:
            mark.abandoned = True
        if mark.error is not None:
            raise mark.error
        if mark.done and mark.given_up:
            raise NotConfirmed(
                f"pipe {self.pipe}: given up, as nobody confirmed it in time (give_up_after_s): "
                f"{describe(mark.given_up)}. The dead letters get it",
                mark.given_up,
            )
        if mark.done:
            return
        if self._over is not None:
            kind, text = self._over
            if not self._may_have(mark):
                raise kind(f"{text}; the message was not accepted" if mark.own else text)
            told = f"{text}, and {_ended_under(mark)}"
            raise NotConfirmed(told, mark.open or ()) if kind is PipeClosed else kind(told)
        raise NotConfirmed(self._still_open(mark), mark.open or ())

    def _may_have(self, mark: Mark) -> bool:
        """Whether a message of whoever waits for this may be accepted. One that the actor never saw is not."""
        is_unseen = bool(mark.payloads) and not mark.ordinal and not self.may_take
        return mark.own > 0 and not is_unseen

    def _still_open(self, mark: Mark) -> str:
        if mark.until is not Until.CONFIRMED:
            silent = f" ({text})" if (text := self._silent()) else ""
            return (
                f"pipe {self.pipe}: the journal has not said in time whether it stored the message{silent}; "
                "it may be accepted yet"
            )
        if not mark.open and self._is_unused:
            journal = "; what its journal holds is not known" if self._durable else ""
            return (
                f"pipe {self.pipe}: nothing was sent, and its sender has not begun in time{journal}"
            )
        what = describe(mark.open) if mark.open else "messages that have no number yet"
        if self.refusal is None and not self.is_ending:
            fate = "They stay with the pipe"
        elif self._durable:
            fate = "The pipe ends; its journal keeps them for the next pipe of this name"
        else:
            fate = "The pipe ends and gives them up"
        return f"pipe {self.pipe}: not confirmed in time: {what}. {fate}: {self.held_up()}"

    @property
    def _is_unused(self) -> bool:
        """True when the sender has not begun, and nothing waits for it."""
        is_empty = all(isinstance(one, Mark) and not one.payloads for one in self._items)
        return is_empty and not self._drained and not self._promised

    def _end(self, timeout: float | None) -> int | None:
        return None if timeout is None else self._runtime.now() + round(timeout * 1_000_000)

    def _left(self, end: int | None) -> float | None:
        return None if end is None else max(0, end - self._runtime.now()) / 1_000_000

    # For the sender's actor.

    def drain(self) -> tuple[list[bytes | Mark], bool]:
        """Everything put so far, in order, and whether there are marks in it."""
        items = self._items[:]
        if not items:
            return items, False
        del self._items[: len(items)]
        if self._marks_taken == self._marks_put:  # then no mark can be among them
            self._drained += len(items)
            return items, False
        for item in items:
            if isinstance(item, Mark):
                self._marks_taken += 1
                self._drained += item.units
            else:
                self._drained += 1
        return items, True

    def publish(self, room: int, room_bytes: int, held: int) -> None:
        """The machine has this room after a step; ``held`` messages drained from here still need some of it."""
        units = max(0, min(room, room_bytes // self._unit, UNITS_MAX) - held)
        is_first, self._has_begun = not self._has_begun, True
        with self._lock:
            self._capacity = max(self._capacity, units)
            if self.refusal is None:
                self._promised = max(self._promised, self._drained + self._voided + units)
                if self._voids:
                    self._count_voids()
                grown = self._promised > self.limit
                self.limit = self._promised
            else:
                self._count_voids()
                grown = False
        if grown or is_first:
            self.signal.notify()

    def _count_voids(self) -> None:
        while self._voids and self._voids[0] < self._promised:
            heapq.heappop(self._voids)
            self._voided += 1
            if self.refusal is None:
                self._promised += 1

    # For the sender's end.

    def refuse(self, kind: type[SurepipeError], text: str) -> None:
        """Take nothing more; whoever waits for room is told so. The first refusal stands."""
        with self._lock:
            if self.refusal is None:
                self.refusal = (kind, text)
                self._promised = min(self._promised, next(self._tickets))
                self.limit = 0
                self._count_voids()
        self.signal.notify()
        self.bell.ring()

    def renew_locks(self) -> None:
        """In the child of a fork: the thread that held one may not be here."""
        self._lock = threading.Lock()
        self.signal = self._runtime.signal()

    def end(self, kind: type[SurepipeError], text: str, *, may_take: bool = False) -> None:
        """The actor is gone for good: nothing that is waited for will happen any more. ``may_take``: it is busy,
        and may still take what it has not."""
        self.may_take = may_take
        self._over = self._over or (kind, text)  # first: who is refused may flush at once
        self.refuse(kind, text)

    @property
    def failure(self) -> SurepipeError | None:
        """Why the sender stopped for good by itself; None while it goes on, and when it was closed."""
        if self._over is None or self._over[0] is PipeClosed:
            return None
        kind, text = self._over
        return kind(text)

    @property
    def drained(self) -> bool:
        """True when nothing more is taken and the actor has all that was."""
        return self.refusal is not None and self._drained + self._voided >= self._promised

    @property
    def waiting(self) -> int:
        """Messages put and not yet taken by the actor."""
        items = self._items[:]
        return sum(len(item.payloads) if isinstance(item, Mark) else 1 for item in items)


def _count_up_to(payloads: Payloads, size_bytes: int) -> int:
    """How many payloads stand before the first one above this size."""
    large = (count for count, payload in enumerate(payloads) if len(payload) > size_bytes)
    return next(large, len(payloads))


def _ended_under(mark: Mark) -> str:
    if mark.until is Until.CONFIRMED:
        return "what was sent is not confirmed: it may have arrived, or be in the journal"
    return "its journal has not said whether it stored the message: it may be accepted"


def describe(items: Sequence[Item]) -> str:
    """Ranges as people read them."""
    shown = [
        f"epoch {epoch}: {first}" if first == last else f"epoch {epoch}: {first} to {last}"
        for epoch, first, last in items[:8]
    ]
    return ", ".join(shown) + (f" and {len(items) - 8} more ranges" if len(items) > 8 else "")
