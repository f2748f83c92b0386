"""A channel made of a message queue, one timer, cumulative confirms, and a receiver that takes messages in order.

    plain = Transport(lambda: BoundedQueue(64, increasing=True), resend="lowest", receiver="discard")
    result = run_hop(plain, Options(messages=20, loss_ppm=100_000, copy_ppm=200_000))

This *plain profile* is for study: the whole protocol is on this page, and behind a loss it needs one period of
the timer for each message. The default is the *library profile*, ``continuous-index`` over ``multi-unconfirmed``,
which a `Pipe` runs as well. Both promise absolute order, and nothing twice, over a route that loses, repeats,
reorders and delays; nothing is lost while both ends live and the route lets something through now and then.

What is said in the plain profile, by whom, and when:

====================  =====================================================================================
send                  the message gets the next number when the queue has taken it, and is transmitted once
data, expected        delivered; confirmed when it is settled
data, below expected  not delivered, confirmed again
data, above expected  dropped without an answer
a confirm             names the highest number that is settled without a gap; all up to it are deleted
the timer             transmits the least message again; begins when the queue is no longer empty, ends when it is
                      empty at its end, and no confirm moves it
====================  =====================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from surepipe.core.effects import (
    Accepted,
    AppendRows,
    Cause,
    Confirmed,
    Deliver,
    Effect,
    ForgetRows,
    JournalContents,
    Notice,
    NoticeKind,
    Persist,
    Ranges,
    Reject,
    RejectReason,
    Transmit,
    WakeAt,
    Write,
    WriteFailed,
    WriteFenced,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.core.snapshot import export
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.message_queue import MessageQueue
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import Confirm, Numbered, tag_of

AnyQueue: TypeAlias = MessageQueue[Any]
F = TypeVar("F", Numbered, Confirm)
PROFILES = (("lowest", "discard"), ("window", "reorder"))
BYTES = 1 << 26
WINDOW = 1_024
"""of the library profile, where the queue has no bound"""


class Transport:
    """Builds both ends, anew for each life. ``queue`` makes an empty queue, and its capacity is the window.

    ``resend`` and ``receiver`` go together: ``lowest`` and ``discard``, or ``window`` and ``reorder``. ``stored``,
    of the plain profile, is a `StreamQueue` that outlives the sender: a message is in it before it is transmitted,
    and who hosts the sender lets `perform` do its writes.

    Raises ConfigurationError for another pair, for ``stored`` with the library profile (there a `Pipe` has its
    journal), and for a queue that takes numbers out of order.
    """

    boundary = Boundary.PROCESSED
    journaled = False
    durable = False

    def __init__(
        self,
        queue: Callable[[], AnyQueue],
        resend: Literal["lowest", "window"] = "window",
        receiver: Literal["discard", "reorder"] = "reorder",
        resend_after_s: float = 1.0,
        first: int = 1,
        *,
        stored: AnyQueue | None = None,
        pipe: str = "pipe",
    ) -> None:
        self.is_plain = resend == "lowest"
        if (resend, receiver) not in PROFILES:
            raise ConfigurationError(
                f"resend={resend!r} and receiver={receiver!r}: "
                "say 'lowest' and 'discard', or 'window' and 'reorder'"
            )
        if stored is not None and not self.is_plain:
            raise ConfigurationError("stored= is of the plain profile; a Pipe has journal= instead")
        if not queue().increasing or first < 1 or resend_after_s <= 0:
            raise ConfigurationError(
                "a transport needs an increasing queue, a first number of at least 1, and a time above 0 to wait"
            )
        self.queue = queue
        self.first = first
        self.stored = stored
        self.pipe = pipe
        self.resend_after_us = round(resend_after_s * 1e6)
        self.name = f"transport, {'plain' if self.is_plain else 'library'} profile"
        window = {"window": queue().capacity or WINDOW, "rto_initial_s": resend_after_s}
        self.layers = parse_layers(["continuous-index", {"multi-unconfirmed": window}])

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None = None
    ) -> SenderMachine:
        """A new life of the sender; with ``stored``, the one that goes on."""
        if not self.is_plain:
            return SenderStack(
                self.pipe, self.layers, rng=rng, life_hint=life_hint, journal=journal
            )
        return TransportSender(self, life_hint)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:
        """A new incarnation of the receiver."""
        if not self.is_plain:
            options = BoundaryOptions(boundary=self.boundary)
            return ReceiverStack(
                self.pipe, self.layers, rng=rng, boundary=options, state=state, life=life
            )
        return TransportReceiver(self)

    def perform(self, write: Write) -> WriteOutcome:
        """Do a write of the sender's in the stored queue: the answer to its Persist."""
        assert self.stored is not None, "only a sender with a stored queue writes"
        try:
            if isinstance(write, ForgetRows):
                self.stored.delete_all(write.through)
            elif isinstance(write, AppendRows):
                known = max(self.stored.high - write.first + 1, 0)  # stored, and unanswered
                left = write.payloads[known:]
                if self.stored.enqueue_run(write.first + known, left) < len(left):
                    return WriteFailed("the stored queue is full")
        except Fenced:
            return WriteFenced(0)
        except StoreUnavailable:
            return WriteUnknown()
        return WriteStored()


class _PlainEnd:
    """What both ends of the plain profile have: their pipe's tag, counts, and a state that is what they hold."""

    TRANSIENT = ("settings", "queue")

    def __init__(self, settings: Transport) -> None:
        self.settings = settings
        self.tag = tag_of(settings.pipe)
        self.counted: Counter[str] = Counter()
        self.epoch = 0

    def known(self, frame: object, kind: type[F]) -> F | None:
        """The frame, if it is of this kind and pipe; what isn't is counted, and changes nothing."""
        known = codec.decoded(frame)
        if isinstance(known, kind) and known.pipe == self.tag:
            return known
        self.counted["not_understood"] += 1
        return None

    def counters(self) -> Mapping[str, int]:
        return dict(self.counted)

    def export(self) -> object:
        held = {name: value for name, value in vars(self).items() if name not in self.TRANSIENT}
        return export(held | {"counted": dict(self.counted)})

    def close(self, now: int) -> list[Effect]:  # noqa: ARG002 - nothing is put off to the end
        return []


class TransportSender(_PlainEnd):
    """Keeps what is not confirmed in a queue and transmits the least of it again, once in each period.

    States: *empty* (finished; the timer may still run out once), *waiting* (something is not confirmed), with a
    stored queue *storing* (what is being stored is not transmitted), and *stopped*, once another owner has the
    stored queue.
    """

    def __init__(self, settings: Transport, life: int) -> None:
        super().__init__(settings)
        self.queue = settings.queue()
        stored = settings.stored
        self.epoch = life if stored is None else 1
        self.next = self.base = settings.first
        if stored is not None and stored.high >= 0:
            self.next = self.base = stored.high + 1
            for run in stored.pick_runs(len(stored)):
                self.base = min(self.base, run.first)
                taken = self.queue.enqueue_run(run.first, run.payloads)
                assert taken == len(run.payloads), f"{taken} of {len(run.payloads)} fit a new queue"
        self.deadline: int | None = None
        self.transmitted = self.next - 1
        self.storing = 0
        self.tickets = 0
        self.stopped = False

    @property
    def room(self) -> int:
        capacity = self.queue.capacity
        return max(WINDOW if capacity is None else capacity - len(self.queue), 0)

    @property
    def room_bytes(self) -> int:
        bound = self.queue.capacity_bytes
        return BYTES if bound is None else max(bound - self.queue.size_bytes, 0)

    @property
    def idle(self) -> bool:
        return self.queue.empty()

    def export(self) -> object:
        runs = self.queue.pick_runs(len(self.queue))
        return [super().export(), [[run.first, list(run.payloads)] for run in runs]]

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        return () if self.idle else ((self.epoch, ((self.base, self.next - 1),)),)

    def gauges(self) -> Mapping[str, int]:
        return {"in_flight": len(self.queue)}

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Take what the queue takes, under the next numbers; a refusal uses up none (Q-24)."""
        was_empty = self.queue.empty()
        taken = 0 if self.stopped else self.queue.enqueue_run(self.next, payloads)
        self.next += taken
        effects = self._go_on(now)
        if taken < len(payloads):
            reason = RejectReason.STOPPED if self.stopped else RejectReason.FULL
            effects.append(Reject(reason, len(payloads) - taken))
        if taken and was_empty:
            effects.append(self._armed(now + self.settings.resend_after_us))
        return effects

    def _go_on(self, now: int) -> list[Effect]:  # noqa: ARG002
        """Transmit what is new; with a stored queue, store it first."""
        count = self.next - 1 - self.transmitted
        if not count or self.storing:
            return []
        if self.settings.stored is None:
            return self._accepted(count)
        self.storing = count
        return [self._persist(self._unstored())]

    def _unstored(self) -> AppendRows:
        first = self.transmitted + 1
        return AppendRows(self.epoch, first, self.queue.slice_run(first, self.storing))

    def _accepted(self, count: int) -> list[Effect]:
        first = self.transmitted + 1
        self.transmitted += count
        payloads = self.queue.slice_run(first, count)
        sent = [self._data(number, payload) for number, payload in enumerate(payloads, first)]
        return [Accepted(self.epoch, first, count), *sent]

    def _data(self, number: int, payload: bytes) -> Effect:
        self.counted["transmitted"] += 1
        return Transmit(Numbered(self.tag, 0, self.epoch, number, (payload,)))

    def _persist(self, write: Write) -> Effect:
        self.tickets += 1
        return Persist(self.tickets, write)

    def _armed(self, deadline: int | None) -> Effect:
        self.deadline = deadline
        return WakeAt(deadline)

    def wake(self, now: int) -> list[Effect]:
        """The period is over: the least message again, or what could not be stored again."""
        if self.stopped or (self.deadline is not None and now < self.deadline):
            return [WakeAt(self.deadline)]
        if self.queue.empty():
            return [self._armed(None)]
        effects: list[Effect] = []
        if self.base <= self.transmitted:
            self.counted["timeouts"] += self.deadline is not None
            effects += [self._data(self.base, *self.queue.slice_run(self.base, 1))]
        if self.storing:
            effects += [self._persist(ForgetRows(self.epoch, self.base - 1))]
            effects += [self._persist(self._unstored())]
        return [*effects, self._armed(now + self.settings.resend_after_us)]

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """A write was done, or was not: then the timer brings it again. A fenced sender stops."""
        if isinstance(outcome, WriteFenced):
            self.stopped = True
            left = self.unconfirmed()
            ranges = left[0][1] if left else ()
            return [Notice(NoticeKind.FENCED, self.epoch, ranges), self._armed(None)]
        if ticket != self.tickets or not self.storing or not isinstance(outcome, WriteStored):
            return []
        count, self.storing = self.storing, 0
        return [*self._accepted(count), *self._go_on(now)]

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """A confirm. One of another epoch, or of a number that was never sent, is counted and dropped (Q-24)."""
        confirm = self.known(frame, Confirm)
        if confirm is None:
            return []
        if confirm.epoch != self.epoch or confirm.cum > self.transmitted:
            self.counted["never_sent"] += 1
            return []
        if confirm.cum < self.base:
            return []
        first, self.base = self.base, confirm.cum + 1
        self.queue.delete_all(confirm.cum)
        effects: list[Effect] = [Confirmed(self.epoch, ((first, confirm.cum),))]
        if self.settings.stored is not None and not self.storing:
            effects.append(self._persist(ForgetRows(self.epoch, confirm.cum)))
        return effects


class TransportReceiver(_PlainEnd):
    """Takes the number that it expects, and no other; hands over in order, one delivery at a time.

    States: *idle*, *delivering* (a ticket is open), *pausing* (the handler failed, and gets the rest again after a
    period).
    """

    def __init__(self, settings: Transport) -> None:
        super().__init__(settings)
        self.settled_through = settings.first - 1
        self.taken: list[bytes] = []
        """what is behind ``settled_through``: taken in order, and not settled"""
        self.ticket = 0
        self.open_through = 0
        self.attempt = 1
        self.deadline: int | None = None

    @property
    def expected(self) -> int:
        return self.settled_through + len(self.taken) + 1

    @property
    def idle(self) -> bool:
        return not self.taken

    def gauges(self) -> Mapping[str, int]:
        return {"held": len(self.taken)}

    def frame(self, frame: object, now: int) -> list[Effect]:
        """Data: expected, below it, or above it. A higher epoch begins anew."""
        data = self.known(frame, Numbered)
        if data is None or data.epoch < self.epoch:
            return []
        if data.epoch > self.epoch:
            self._begin(data.epoch)
        effects: list[Effect] = []
        for number, payload in enumerate(data.payloads, data.first):
            if number == self.expected and len(self.taken) < WINDOW:
                self.taken.append(payload)
            elif number < self.expected:
                self.counted["repeated"] += 1
                effects = [self._confirm()]
            else:
                self.counted["above_expected"] += 1
        return effects + self._deliver(now)

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.settled_through = self.settings.first - 1
        self.taken, self.open_through, self.attempt, self.deadline = [], 0, 1, None

    def _confirm(self) -> Effect:
        self.counted["confirms"] += 1
        through = self.settled_through
        return Transmit(Confirm(self.tag, 0, 0, 0, self.epoch, through, (), (), 0, 0))

    def _deliver(self, now: int) -> list[Effect]:
        if (
            not self.taken
            or self.open_through
            or (self.deadline is not None and now < self.deadline)
        ):
            return []
        self.deadline = None
        self.ticket += 1
        self.open_through = self.expected - 1
        first = self.settled_through + 1
        return [Deliver(self.ticket, self.epoch, first, tuple(self.taken), self.attempt)]

    def wake(self, now: int) -> list[Effect]:
        """The pause after a failure may be over."""
        effects = self._deliver(now)
        return [*effects, WakeAt(self.deadline)]

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """They have crossed the boundary: confirm, and only now (pipes P-7)."""
        if not self._is_open(ticket):
            return []
        self._settle(ranges[-1][1])
        if self.settled_through == self.open_through:
            self.open_through = 0
        return [self._confirm(), *self._deliver(now)]

    def _is_open(self, ticket: int) -> bool:
        return bool(self.open_through) and ticket == self.ticket

    def _settle(self, through: int) -> None:
        if through > self.settled_through:
            del self.taken[: through - self.settled_through]
            self.settled_through, self.attempt = through, 1

    def failed(
        self,
        ticket: int,
        seq: int,
        error: Cause,  # noqa: ARG002
        now: int,
        *,
        final: bool = False,  # noqa: ARG002 - there are no dead letters here
    ) -> list[Effect]:
        """Again after a period, and nothing behind it before that."""
        if not self._is_open(ticket):
            return []
        self._settle(seq - 1)
        self.open_through = 0
        self.attempt += 1
        self.deadline = now + self.settings.resend_after_us
        return [self._confirm(), WakeAt(self.deadline)]

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:  # noqa: ARG002
        """Let go of them and of what is behind them: the sender brings again what was not confirmed."""
        if self._is_open(ticket):
            through = ranges[0][0] - 1
            del self.taken[through - self.settled_through :]
            self.open_through = through if self.taken else 0
        return []

    def state_after(self, ticket: int, through: int) -> bytes:  # noqa: ARG002
        return b""

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:  # noqa: ARG002
        return []
