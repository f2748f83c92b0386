"""The window of a sender that awaits confirms: what is accepted, what may travel, what is on the way.

Accepted messages wait in the backlog until the window, the receiver's limit and the bytes allow them. Then they
are transmitted and stay in a message queue, with a record of each run, until they are known to be settled.
Numbers: everything below ``base`` is settled (or given up), ``base .. next - 1`` is on the way but for ``done``,
and the backlog follows from ``next`` on.

Three bounds, and what keeps each from stopping the pipe for good:

1. The window is a span, counted from ``base``. If message 1 is lost, 2 to 1024 are settled above it and nothing
   new leaves: the deadline of 1 is what gets the pipe going again, so every run on the way has one.
2. Bytes. A message larger than the whole bound would wait for ever, so it travels when nothing else is on the
   way.
3. The receiver's credit, ``limit``. It offers room up to 64, all 64 are settled and confirmed, and the Confirm
   that offers 128 is lost. Now nothing is on the way, so no deadline is armed here, and the receiver has nothing
   new to report: both would wait for ever. So a sender that has messages and no credit asks (``_watch_credit``),
   with growing waits, until it is told (T-8).
4. A receiver that begins anew offers less than its predecessor did. What was sent beyond that is dropped there
   and comes again; what a predecessor offered counts no more (``forget_hints``), or its credit would flood the
   new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surepipe.core.effects import Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import NOTHING, Payloads, sized
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.timing import backoff
from surepipe.pipes.options import RetryOptions, micros
from surepipe.pipes.retry.backlog import Backlog
from surepipe.pipes.retry.flights import NEVER, STAMPS_MAX, Flight, Flights, Transmitted
from surepipe.pipes.stack.layers import SenderLayer, SenderPort
from surepipe.pipes.wire.frames import Data

# How long a sender waits for a confirm: measured round trips, smoothed, in whole microseconds.
#
# A confirm names the one transmission that it answers, so a frame that was sent again measures as well as one
# that was sent once. The estimate is the usual one (RFC 6298), plus the time a receiver may sit on a confirm.
#
# On a steady route the variation goes to nothing, and then the jitter of a deadline alone would put it below
# the round trip: everything would be sent twice. So the margin is never less than a part of the round trip
# itself.


STEADY_PART = 4
"""The margin is at least a quarter of a round trip: enough for a jitter of up to a fifth."""


@stateful
@dataclass(slots=True)
class RoundTrips:
    """The estimate of one route. Before the first sample the wait is ``initial``, unclamped."""

    initial: int
    least: int
    most: int
    confirm_delay: int
    smoothed: int | None = None
    variation: int = 0

    def sample(self, taken: int) -> None:
        """One round trip took so long."""
        if self.smoothed is None:
            self.smoothed = taken
            self.variation = taken // 2
        else:
            self.variation += (abs(taken - self.smoothed) - self.variation) // 4
            self.smoothed += (taken - self.smoothed) // 8

    @property
    def rto(self) -> int:
        """How long to wait for the answer to a first transmission."""
        if self.smoothed is None:
            return self.initial
        margin = max(4 * self.variation, self.smoothed // STEADY_PART)
        wait = self.smoothed + margin + self.confirm_delay
        return min(max(wait, self.least), self.most)

    @property
    def usual(self) -> int:
        """One round trip as far as is known; the shortest wait when nothing is."""
        return self.least if self.smoothed is None else self.smoothed


class WindowSender(SenderLayer):
    """Backlog, window and records of what is on the way. When to send again is up to the subclass."""

    settled_through: int = -1
    """The highest number known to be settled, where that may be above what this life has sent."""
    open_at: int = NEVER
    """When to offer a link again, where there are links."""

    def __init__(self, options: RetryOptions, port: SenderPort, rng: Randomness) -> None:
        self.options = options
        self.port = port
        self.rng = rng
        self.rto_max = micros(options.rto_max_s)
        self.give_up_after = (
            NEVER if options.give_up_after_s is None else micros(options.give_up_after_s)
        )
        self.round_trips = RoundTrips(
            micros(options.rto_initial_s),
            micros(options.rto_min_s),
            self.rto_max,
            micros(options.confirm_delay_s),
        )
        self.span = min(options.window, options.run_max) if self.one_at_a_time else options.window
        self.stamp = 0
        self.link = 0
        self.owed = 0
        self.frames_passed = 0
        self.void_through = 0
        """Frames that the carrier has and nobody will take, because a new link was made since: up to this one."""
        self.silence_is_told = False
        """Since it was told that nobody answers, nobody has."""
        self.end_is_owed = False
        """It was told, and not yet that it is over."""
        self._reset(0, 1)

    def _reset(self, epoch: int, base: int) -> None:
        self.epoch = epoch
        self.base: int = base
        self.next: int = base
        self.limit = base + self.options.initial_credit - 1
        self.linked = True
        self.answered = self.taken = False
        self.incarnation = 0
        self.former: list[int] = []
        self.backlog = Backlog(self.options.backlog, self.options.backlog_bytes)
        self.queue = Transmitted(self.span)
        self.done = RangeSet()
        self.held: Ranges = ()
        self.flights = Flights()
        self.stamps: dict[int, int] = {}
        self.probes = 0
        self.probed_at = -NEVER
        self.paced_until = 0
        self.credit_at = NEVER
        self.credit_waits = 0

    # What the stack asks.

    @property
    def room(self) -> int:
        """How many messages would be accepted now: into the backlog, or straight onto the way."""
        waiting = self.backlog.count
        window = 0 if waiting else max(self._allowance(), 0)
        return window + max(self.options.backlog - waiting, 0)

    @property
    def room_bytes(self) -> int:
        """Payload bytes that would be taken now."""
        return max(self.options.backlog_bytes - self.backlog.size_bytes, 0)

    @property
    def in_flight(self) -> int:
        """Messages transmitted and neither confirmed nor given up."""
        return self.next - self.base - self.done.count()

    def carrier_restarted(self) -> None:
        """The carrier numbers from 1 again."""
        self.frames_passed = self.void_through = 0

    def begin(self, epoch: int, base: int) -> None:
        """Drop what is left; serve this epoch on a link of its own.

        What is dropped comes again through ``send`` when the epoch is taken anew, and then it has room.
        """
        self.owed = self.in_flight + self.backlog.count
        self._reset(epoch, base)
        self.link = self.rng.getrandbits(63) + 1

    def send(self, payloads: Sequence[bytes]) -> int:
        """Take what fits; transmit what may be transmitted."""
        taken, run = 0, payloads if isinstance(payloads, Payloads) else sized(payloads)
        if self.owed:
            taken = self.backlog.put_owed(run.part(0, self.owed))
            self.owed -= taken
            self.fill()
        while taken < len(run) and (put := self.backlog.put(run, taken)):
            taken += put
            self.fill()
        return taken

    def waiting(self) -> list[bytes]:
        """Payloads of everything unconfirmed, in order."""
        transmitted = [
            payload
            for first, last in self.done.missing(self.base, self.next - 1)
            for payload in self.queue.slice_run(first, last - first + 1)
        ]
        return transmitted + self.backlog.contents()

    def unconfirmed(self) -> Ranges:
        return self.done.missing(self.base, self.next + self.backlog.count - 1)

    def gauges(self) -> dict[str, int]:
        """What stands now. Times are in microseconds."""
        oldest = self.flights.runs[0].since if self.flights else self.port.now
        return {
            "in_flight": self.in_flight,
            "backlog": self.backlog.count,
            "in_flight_bytes": self.queue.size_bytes,
            "backlog_bytes": self.backlog.size_bytes,
            "rto_us": self.round_trips.rto,
            "oldest_unconfirmed_us": self.port.now - oldest,
        }

    # Transmitting what is new.

    def fill(self) -> None:
        """Transmit from the backlog what may be transmitted now; ask on the last frame of it."""
        if self.settled_through >= self.next:
            self.skip_settled()
        if not self.backlog.count:
            self.credit_at = NEVER
            self.credit_waits = 0
            return
        runs: list[tuple[int, Payloads]] = []
        while self.backlog.count and (run := self._next_run(len(runs))):
            runs.append((self.next, run))
            taken = self.queue.enqueue_run(self.next, run)
            assert taken == len(run), f"{taken} of {len(run)} messages fit a window that had room"
            self.next += len(run)
        deadline = self.next_deadline(1) if runs else NEVER
        now = self.port.now
        for first, run in runs:
            flight = Flight(first, first + len(run) - 1, now, now, deadline)
            if self.give_up_after != NEVER:
                flight.deadline = self._bounded(flight, deadline)
            self._pass_down(flight, run, ask=first == runs[-1][0])
            self.flights.add(flight)
            self.port.count("transmitted", len(run))
        self._watch_credit()

    def skip_settled(self) -> None:
        """Take from the backlog what is known to be settled before it was sent."""
        raise AssertionError(f"{type(self).__name__} knows of nothing settled before it was sent")

    def _next_run(self, frames: int) -> Payloads:
        """The next run that may leave after so many frames of this step; empty when none may."""
        allowance = self._allowance()
        if allowance <= 0:
            return NOTHING
        is_alone = self.queue.empty()
        if not is_alone and self.port.carrier_room <= frames:
            return NOTHING  # a full carrier: new frames wait for what is on the way
        room = self.options.window_bytes - self.queue.size_bytes
        frame_max = self.options.frame_max_bytes
        run = self.backlog.take(
            min(allowance, self.options.run_max),
            min(room, frame_max),
            at_least_one=is_alone,
        )
        if not run and room > frame_max:
            run = self._large_message(room)
        return run

    def _large_message(self, room: int) -> Payloads:
        """The next message, when it exceeds a frame's usual size and still fits the window."""
        return self.backlog.take(1, room, at_least_one=False)

    def _allowance(self) -> int:
        """How many messages the window and the limit let go now."""
        if not self.linked or (self.one_at_a_time and self.base < self.next):
            return 0
        return min(self.base + self.span - 1, self.limit) - self.next + 1

    def _pass_down(self, flight: Flight, payloads: Sequence[bytes], *, ask: bool) -> bool:
        """One transmission. A carrier without room has lost it (False): the deadline brings it again."""
        self.stamp += 1
        self.stamps[self.stamp] = self.port.now
        flight.stamps.append(self.stamp)
        if len(flight.stamps) > STAMPS_MAX:
            self._forget_stamps([flight.stamps.pop(0)])
        frame = Data(
            self.port.tag,
            self.port.layer,
            self.link,
            self.epoch,
            flight.first,
            self.base,
            self.stamp,
            ask,
            payloads,
        )
        is_taken = self.port.pass_down(frame)
        flight.carried_as = 0
        if is_taken and self.port.carrier_confirms:
            self.frames_passed += 1
            flight.carried_as = self.frames_passed
        return is_taken

    def next_deadline(self, waits: int) -> int:
        """When to look again at a run, patience being armed for the ``waits``-th time now."""
        wait = backoff(self.round_trips.rto, self.rto_max, waits, self.options.jitter, self.rng)
        return self.port.now + wait

    def carried(self, first: int, last: int) -> None:
        """These frames have arrived, so from now on their confirm is waited for; and the carrier has room again.

        That says nothing about the messages: the receiver may have had no room, or have crashed.
        """
        for flight in self.flights.runs:
            if first <= flight.carried_as <= last:
                is_void = flight.carried_as <= self.void_through
                deadline = self.port.now if is_void else self.next_deadline(flight.attempts)
                flight.carried_as = 0
                flight.waits = flight.attempts
                flight.deadline = self._bounded(flight, deadline)
                self.flights.due_at = min(self.flights.due_at, flight.deadline)
        self.fill()

    # What is settled.

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """These messages are settled, for ever: report what was not known. True when there was any."""
        if not done and (cum < self.base or not self.done):  # the usual case, without ranges
            base, end = self.base, min(cum, self.next - 1)
            if end < base:
                return False
            self._raise_base(end + 1)
            self.port.confirmed(base, end)
            return True
        fresh: list[tuple[int, int]] = []
        sent = self.next - 1  # an earlier life may have sent more of this epoch
        for first, last in ((self.base, cum), *done):
            for part in self.done.missing(max(first, self.base), min(last, sent)):
                self.done.add(*part)
                fresh.append(part)
        if fresh:
            self._advance_base()
            for part in fresh:
                self.port.confirmed(*part)
        return bool(fresh)

    def _advance_base(self) -> None:
        """What is done from the base on is behind it."""
        base = self.done.end_of_run(self.base) + 1
        if base > self.base:
            self.done.discard_below(base)
            self._raise_base(base)

    def _raise_base(self, base: int) -> None:
        self.base = base
        self.queue.delete_all(base - 1)
        for flight in self.flights.drop_below(base):
            self._forget_stamps(flight.stamps)

    def _forget_stamps(self, stamps: Iterable[int]) -> None:
        for stamp in stamps:
            self.stamps.pop(stamp, None)

    def _bounded(self, flight: Flight, deadline: int) -> int:
        """A deadline no later than the moment of giving up."""
        end = flight.since + self.give_up_after
        return min(deadline, end) if end > self.port.now else deadline

    def payloads_of(self, flight: Flight) -> list[bytes]:
        """The payloads of a run that is on the way."""
        return self.queue.slice_run(flight.first, flight.last - flight.first + 1)

    def _watch_credit(self) -> None:
        """Step 3 of the story above: blocked by the limit, with nothing on the way."""
        is_blocked = (
            self.linked and self.backlog.count and self.base == self.next and self.limit < self.next
        )
        if not is_blocked:
            self.credit_at = NEVER
            self.credit_waits = 0
        elif self.credit_at == NEVER:
            self.credit_waits += 1
            self.credit_at = self.next_deadline(self.credit_waits)
