"""The receiving engine of the pipes that confirm: when a Confirm goes out, and what it may say.

``ReportClock`` decides the moment (T-6). A ``EpochSession`` is what a receiver knows about one epoch, and
``ConfirmingReceiver`` is the receiver of the pipes that never drop a repeat (resend, multi-unconfirmed).
Cursor pipes use the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from surepipe.core.effects import Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import part_of, size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.timing import BackOff
from surepipe.pipes.options import RetryOptions, micros
from surepipe.pipes.retry.flights import NEVER
from surepipe.pipes.retry.holes import Holes
from surepipe.pipes.stack.in_work import InWork, count_of
from surepipe.pipes.stack.layers import ReceiverLayer, ReceiverPort, Token
from surepipe.pipes.wire.frames import MAX_NUMBER, Confirm, Data, Frame, Nack, Probe

RANGES_MAX = 64
"""Ranges in one frame at the most, lowest first."""

SESSIONS_MAX = 8
"""Epochs that a receiver remembers anything about."""


@stateful
@dataclass(slots=True)
class ReportClock:
    """When the next Confirm goes out: at ``due`` (NEVER: there is nothing to report).

    ``half`` settled messages are reported at once, and so is the end of what the sender asked about, because
    it can send nothing more until it hears. Everything else may wait ``delay`` for company.
    """

    delay: int
    half: int
    due: int = NEVER
    settled: int = 0
    asked: int = 0
    echo: int = 0

    def arrived(self, now: int, last: int, stamp: int, *, ask: bool) -> None:
        """A Data frame up to ``last`` was taken."""
        self.echo = stamp
        if ask:
            self.asked = max(self.asked, last)
            self.due = now
        else:
            self.due = min(self.due, now + self.delay)

    def hurry(self, now: int) -> None:
        """Something that the sender should know at once: a repeat, a Probe, a hole."""
        self.due = min(self.due, now)

    def settle(self, now: int, count: int, cum: int) -> None:
        """So many messages were settled; all up to ``cum`` are."""
        self.settled += count
        if self.settled >= self.half or 0 < self.asked <= cum:
            self.due = min(self.due, now)
        else:
            self.due = min(self.due, now + self.delay)

    def reported(self, cum: int) -> int:
        """A Confirm goes out now; the stamp that it answers, 0 for none.

        A stamp is answered once: a later Confirm would measure the handler and not the route.
        """
        echo, self.echo = self.echo, 0
        self.due = NEVER
        self.settled = 0
        if self.asked <= cum:
            self.asked = 0
        return echo


@dataclass(frozen=True, slots=True)
class Reporting:
    """When a receiver tells its sender what: one set of rules for all pipes that confirm."""

    confirm_delay: int
    half: int
    nack_after: int
    nack_delay: int
    nack_again: BackOff
    gap_alarm: int

    @classmethod
    def of(cls, options: RetryOptions) -> Reporting:
        """The rules that these options make."""
        return cls(
            confirm_delay=micros(options.confirm_delay_s),
            half=max(options.held_max // 2, 1),
            nack_after=options.nack_after,
            nack_delay=micros(options.nack_delay_s),
            nack_again=options.back_off,
            gap_alarm=micros(options.gap_alarm_s),
        )

    def clock(self) -> ReportClock:
        """When to confirm, for one link or epoch."""
        return ReportClock(self.confirm_delay, self.half)

    def holes(self, base: int) -> Holes:
        """What is missing from ``base`` on, and when to name it."""
        return Holes(base, self.nack_after, self.nack_delay)

    def name_due(self, holes: Holes, now: int, rng: Randomness) -> Ranges:
        """What a Nack names now; each hole waits longer for the next time it is named."""
        return holes.name_due(now, RANGES_MAX, lambda named: self.nack_again.wait(named, rng))


@stateful
@dataclass(slots=True)
class EpochSession:
    """What a receiver knows about one epoch: ``cum`` and ``settled`` (above it) are settled messages."""

    link: int
    cum: int
    clock: ReportClock
    holes: Holes
    settled: RangeSet = field(default_factory=RangeSet)
    in_work: InWork = field(default_factory=InWork)
    left_out: tuple[int, int] | None = None
    """The lowest and the highest new message that came and was not kept.

    What comes behind the lowest is not kept either until that one is: it would overtake it, over a carrier that
    brought them in order.
    """

    def raise_base(self, base: int) -> None:
        """The sender says that everything below ``base`` is settled."""
        if base > self.cum + 1:
            self.cum = base - 1
            self._join()
            self.holes.raise_base(self.cum + 1)
            self.taken_through(self.cum)

    def leave_out(self, first: int, last: int) -> None:
        """These are not kept. Repeats may be among them, and those need not come again."""
        new = [
            gap
            for part in self.settled.missing(max(first, self.cum + 1), last)
            for gap in self.in_work.ranges.missing(*part)
        ]
        if new:
            low, high = self.left_out or new[0]
            self.left_out = min(low, new[0][0]), max(high, new[-1][1])

    def taken_through(self, last: int) -> None:
        """The lowest that was left out may have come in."""
        if self.left_out and last >= self.left_out[0]:
            _, high = self.left_out
            self.left_out = None
            self.leave_out(last + 1, high)

    def settle(self, first: int, last: int) -> None:
        if first == self.cum + 1 and not self.settled:
            self.cum = last
        else:
            self.settled.add(max(first, self.cum + 1), last)
            self._join()

    def count_settled(self, first: int, last: int) -> int:
        """How many of first..last are settled."""
        below = max(min(self.cum, last) - first + 1, 0)
        return below + count_of(self.settled.within(first, last))

    def _join(self) -> None:
        self.cum = max(self.cum, self.settled.end_of_run(self.cum + 1))
        self.settled.discard_below(self.cum + 1)


class ConfirmingReceiver(ReceiverLayer):
    """Delivers what is not in work, repeats included, and confirms what is settled.

    Subclasses say whether it names holes (``names_holes``), whether it remembers what was settled after all of
    it was answered (``remembers``), and whether the sender waits for the end of what is in work, so that a
    Confirm must not wait then (``confirms_units``).
    """

    names_holes: ClassVar[bool] = False
    remembers: ClassVar[bool] = False
    confirms_units: ClassVar[bool] = True

    TRANSIENT: ClassVar[tuple[str, ...]] = (*ReceiverLayer.TRANSIENT, "reports")
    sends_again: bool = True
    """Our own sender keeps each message until we confirm it, so the carrier is answered at once.

    Were it to wait for what is in work, that could fill its window, and then what must be sent again, because
    something waits for it, would never get through.
    """

    def __init__(self, options: RetryOptions, port: ReceiverPort, rng: Randomness) -> None:
        self.options = options
        self.port = port
        self.rng = rng
        self.reports = Reporting.of(options)
        self.sessions: dict[int, EpochSession] = {}

    # Frames.

    def data(self, frame: Frame, token: Token | None) -> None:
        """A run of messages: hand up what is not in work."""
        if self.sends_again:
            self.port.settle(token)
            token = None
        if not isinstance(frame, Data):
            self.wrong_state()
            self.port.refuse(token)
            return
        fault = self.fault(frame)
        if fault:
            self.port.count(fault)
            self.port.refuse(token)
            return
        session = self.session(frame.epoch, frame.link, frame.base)
        if session is None:
            self.port.count("over_limit", len(frame.payloads))
            self.port.refuse(token)
            return
        self._take(session, frame, token)
        self._say_what_is_due(frame.epoch, session)
        self.forget_if_done(frame.epoch, session)

    def fault(self, frame: Data | Probe) -> str:
        """The counter of a frame that no sender of this pipe would send now; empty when it is fine."""
        last = frame.next if isinstance(frame, Probe) else frame.first + len(frame.payloads) - 1
        first = frame.base if isinstance(frame, Probe) else frame.first
        return "" if 1 <= frame.base <= first <= last <= MAX_NUMBER else "impossible"

    def _take(self, session: EpochSession, frame: Data, token: Token | None) -> None:
        now = self.port.now
        first, last = frame.first, frame.first + len(frame.payloads) - 1
        fitting, repeats = self._hand_up(session, frame, last)
        session.clock.arrived(now, last, frame.stamp, ask=frame.ask)
        opened = (
            self.names_holes and fitting >= first and session.holes.arrived(first, fitting, now)
        )
        if repeats or opened or fitting < last:
            session.clock.hurry(now)
        if fitting < last:
            self.port.count("over_limit", last - fitting)
            session.leave_out(fitting + 1, last)
            self.port.refuse(token)
        elif token is not None and not session.in_work.answer_for(first, last, token):
            self.port.settle(token)

    def _hand_up(self, session: EpochSession, frame: Data, last: int) -> tuple[int, int]:
        """Hand up what is new and has room. How far there was room, and how many are repeats."""
        first = frame.first
        repeats = self._count_repeats(session, first, last)
        fitting = last
        for start, end in self.wanted(session, first, last):
            payloads = part_of(frame.payloads, start - first, end - first + 1)
            taken, size = self._room_for(session, start, payloads)
            if taken:
                session.in_work.add(start, start + taken - 1, size)
                session.taken_through(start + taken - 1)
                self.port.hand_up(frame.epoch, start, part_of(payloads, 0, taken))
            if taken < len(payloads):
                fitting = start + taken - 1
                break
        return fitting, repeats

    def wanted(self, session: EpochSession, first: int, last: int) -> Ranges:
        """The messages of first..last to hand up: all that are not in work already."""
        if not session.in_work.ranges:
            return ((first, last),)
        return session.in_work.ranges.missing(first, last)

    def _count_repeats(self, session: EpochSession, first: int, last: int) -> int:
        """How many of first..last are in work or settled; those in work are counted."""
        if not (session.in_work.ranges or session.settled or first <= session.cum):
            return 0
        in_work = count_of(session.in_work.ranges.within(first, last))
        if in_work:
            self.port.count("in_work", in_work)
        return in_work + session.count_settled(first, last)

    def _room_for(
        self, session: EpochSession, first: int, payloads: Sequence[bytes]
    ) -> tuple[int, int]:
        """How many of these fit the receive window, and their bytes.

        A message larger than the byte bound is taken when nothing else is in work. So is the oldest that is not
        settled, whatever is in work: others may be waiting for it above, and the bytes would never come free.
        """
        if session.left_out and first > session.left_out[0]:
            return 0, 0
        works = [other.in_work for other in self.sessions.values()]
        count = self.options.held_max - sum(work.ranges.count() for work in works)
        count = min(count, len(payloads), session.cum + self.options.held_max - first + 1)
        count = max(count, 0)
        room = self.options.held_max_bytes - sum(work.size_bytes for work in works)
        size = size_of(part_of(payloads, 0, count))
        is_oldest = first <= session.cum + 1
        while count and size > room and (count > 1 or (any(works) and not is_oldest)):
            count -= 1
            size -= len(payloads[count])
        return count, size

    def session(self, epoch: int, link: int, base: int) -> EpochSession | None:
        """The session of an epoch, made when it is new; None when no place can be freed for it."""
        session = self.sessions.pop(epoch, None)
        if session is None:
            if not self._free_place():
                return None
            session = EpochSession(link, base - 1, self.reports.clock(), self.reports.holes(base))
        self.sessions[epoch] = session  # the most recently heard of stands last
        session.link = link
        session.raise_base(base)
        return session

    def _free_place(self) -> bool:
        """Forget the session that was not heard of for the longest time, if one has nothing in work.

        That of the newest epoch stays: it is the one whose sender is still at work.
        """
        if len(self.sessions) < SESSIONS_MAX:
            return True
        newest = max(self.sessions)
        for epoch, session in self.sessions.items():
            if not session.in_work and epoch != newest:
                del self.sessions[epoch]
                return True
        return False

    def control(self, frame: Frame) -> None:
        """A Probe: answer it at once. Everything else has no meaning here."""
        if not isinstance(frame, Probe):
            self.wrong_state()
        elif fault := self.fault(frame):
            self.port.count(fault)
        elif session := self.session(frame.epoch, frame.link, frame.base):
            self._confirm(frame.epoch, session)
            self.forget_if_done(frame.epoch, session)
        else:
            self.port.count("over_limit")

    def wrong_state(self) -> None:
        """Count a frame that has no meaning for this layer."""
        self.port.count("wrong_state")

    # Answers from above.

    def settled(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """These messages were settled: confirm them in time."""
        session = self.sessions[epoch]
        for token in session.in_work.settle(first, last):
            self.port.settle(token)
        session.settle(first, last)
        if session.left_out and self.names_holes:
            self._ask_for_what_was_left_out(session, session.left_out)
        session.clock.settle(self.port.now, last - first + 1, session.cum)
        self._after_answer(epoch, session)

    def _ask_for_what_was_left_out(self, session: EpochSession, left_out: tuple[int, int]) -> None:
        """There is room again: ask for it, or each message would come at a deadline of its own.

        As much as there is room for is asked for as if it were missing only now. Asked for in vain before, when
        nothing had room, it would else wait for the longest pause; and so would the next one, when it has come.
        """
        lowest, highest = left_out
        highest = min(highest, session.cum + self.options.held_max)
        session.holes.shown(highest, self.port.now)
        in_work = sum(other.in_work.ranges.count() for other in self.sessions.values())
        last = min(highest, lowest + self.options.held_max - in_work - 1)
        for part in session.settled.missing(lowest, last):
            for gap in session.in_work.ranges.missing(*part):
                session.holes.renew(*gap, self.port.now)

    def refused(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """These messages were not taken: they are no longer held, and come again."""
        session = self.sessions[epoch]
        for token in session.in_work.refuse(first, last):
            self.port.refuse(token)
        session.leave_out(first, last)
        session.clock.settle(self.port.now, 0, session.cum)
        self._after_answer(epoch, session)

    def _after_answer(self, epoch: int, session: EpochSession) -> None:
        if self.confirms_units and not session.in_work:
            session.clock.hurry(self.port.now)
        self._say_what_is_due(epoch, session)
        self.forget_if_done(epoch, session)

    def forget_if_done(self, epoch: int, session: EpochSession) -> None:
        if not self.remembers and not session.in_work:
            del self.sessions[epoch]

    # What is said, and when.

    def _say_what_is_due(self, epoch: int, session: EpochSession) -> None:
        now = self.port.now
        if session.clock.due <= now:
            self._confirm(epoch, session)
        # A sender begins an epoch when it has done with the earlier ones: what they lack never comes.
        if session.holes.is_due(now) and epoch == max(self.sessions):
            self._nack(epoch, session, now)

    def _confirm(self, epoch: int, session: EpochSession) -> None:
        done, held = session.settled, session.in_work.ranges
        self.port.control(
            Confirm(
                self.port.tag,
                self.port.layer,
                session.link,
                self.port.incarnation,
                epoch,
                session.cum,
                done.lowest(RANGES_MAX) if done else (),
                held.lowest(RANGES_MAX) if held else (),
                min(session.cum + self.options.held_max, MAX_NUMBER),
                session.clock.reported(session.cum),
            )
        )

    def _nack(self, epoch: int, session: EpochSession, now: int) -> None:
        missing = self.reports.name_due(session.holes, now, self.rng)
        if missing:
            head = (self.port.tag, self.port.layer, session.link, self.port.incarnation)
            self.port.control(Nack(*head, epoch, missing))

    # Time.

    @property
    def deadline(self) -> int | None:
        """When a Confirm or a Nack is due."""
        if not self.sessions:
            return None
        due = min(session.clock.due for session in self.sessions.values())
        due = min(due, self.sessions[max(self.sessions)].holes.due_at)
        return due if due < NEVER else None

    def wake(self) -> None:
        for epoch, session in self.sessions.items():
            self._say_what_is_due(epoch, session)

    def finish(self) -> None:
        """The receiver is closing: whatever is unreported goes out now."""
        for epoch, session in self.sessions.items():
            if session.clock.due < NEVER:
                self._confirm(epoch, session)

    def gauges(self) -> dict[str, int]:
        """Messages in work, and their bytes. Nothing is held."""
        works = [session.in_work for session in self.sessions.values()]
        return {
            "held": 0,
            "in_work": sum(work.ranges.count() for work in works),
            "in_work_bytes": sum(work.size_bytes for work in works),
        }
