"""The sending engine of all pipes that send again: windows, deadlines, confirms, nacks, probes.

What is accepted and on the way is in ``window``. Each transmitted run has a deadline; when it passes, what is
not settled and not reported held travels again, under the same identity. A run that the receiver reports held
is asked after with a Probe and not sent again.

``RetrySender`` is complete for pipes without a handshake. Where a pipe differs it overrides:

* ``one_at_a_time``: one frame unconfirmed, and what is left of it travels again in one frame;
* ``takes_nacks``: whether Nack has a meaning;
* ``stops_when_unanswered``: whether giving a message up ends the pipe, because order would break without it;
* ``met_incarnation``: another receiver answers than before (T-5, T-9);
* ``other_control``: frames that are neither Confirm nor Nack;
* ``linked``: while False nothing is transmitted and no answer is accepted;
* ``next_deadline`` and ``look_at_due``: when to look at a run again, and what is done then.
"""

from __future__ import annotations

from operator import itemgetter
from typing import ClassVar

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.payloads import size_of
from surepipe.core.ranges import RangeSet
from surepipe.pipes.retry.flights import NEVER, STAMPS_MAX, Flight
from surepipe.pipes.retry.window import WindowSender
from surepipe.pipes.wire.frames import MAX_NUMBER, Confirm, Frame, Nack, Probe

_LAST = itemgetter(1)
FORMER_MAX = 4
"""Earlier incarnations of the receiver that are remembered, so that their late frames change no hint."""


class RetrySender(WindowSender):
    """The sending half of a retry pipe. Never finished: when nothing is unconfirmed it is idle."""

    takes_nacks: ClassVar[bool] = False

    # Frames of the reverse path.

    def control(self, frame: Frame) -> None:
        if isinstance(frame, Nack) and self.takes_nacks:
            self._nack(frame)
            return
        if not isinstance(frame, Confirm):
            self.other_control(frame)
            return
        highest = frame.cum
        for ranges in (frame.done, frame.held):
            if ranges:
                highest = max(highest, _highest(ranges))
        if not self._is_acceptable(frame, highest):
            return
        news = self._take_incarnation(frame.incarnation)
        if not self.linked:
            return  # met_incarnation began a new link
        news |= self._take_echo(frame.echo)
        has_facts = self.take_facts(frame.cum, frame.done)
        self.taken = self.taken or has_facts or bool(frame.held)
        news |= has_facts
        if frame.incarnation == self.incarnation:
            news |= self.take_hints(frame.held, frame.limit)
        if self.probes:
            self.probes = 0
            news = True
        if not news:
            self.port.count("repeated_confirm")
            return
        self.answered = True
        self.paced_until = 0
        if self.end_is_owed:
            self.heard()
        self.fill()

    def other_control(self, frame: Frame) -> None:
        """A frame that this kind of sender never gets."""
        del frame
        self.port.count("wrong_state")

    def _is_acceptable(self, frame: Confirm | Nack, highest: int) -> bool:
        """Whether the frame speaks of this link and epoch, and of what was transmitted; else count it."""
        fault = ""
        if frame.link != self.link:
            fault = "stale_link"
        elif frame.epoch != self.epoch:
            fault = "stale_epoch"
        elif highest >= self.next and highest > self.highest_known:
            fault = "impossible"
        elif not self.linked:
            fault = "wrong_state"
        if fault:
            self.port.count(fault)
        return not fault

    @property
    def highest_known(self) -> int:
        """The highest number that a true answer may speak of.

        An epoch that an earlier life began was sent further, perhaps, than this life has come.
        """
        return MAX_NUMBER if self.epoch < self.port.life else self.next - 1

    def _take_incarnation(self, incarnation: int) -> bool:
        """Note who answers; True when it is another one than before.

        A late frame of a former one must not pass for news. But frames overtake each other, so who was
        taken for former may be the one that lives: it is, when it answers what was asked just now.
        """
        is_late = incarnation in self.former and not self.probes
        if incarnation == self.incarnation or is_late:
            return False
        if self.incarnation:
            self.former = [*self.former, self.incarnation][-FORMER_MAX:]
            self.met_incarnation(incarnation)
        self.incarnation = incarnation
        return True

    def met_incarnation(self, incarnation: int) -> None:
        """Another receiver answers: what the former one said it held is gone, so all is due now."""
        del incarnation
        self.forget_hints()
        self.flights.hasten(self.port.now)

    def forget_hints(self) -> None:
        """What a receiver said about its buffers ended with it."""
        self.held = ()
        self.limit = self.base + self.options.initial_credit - 1

    def _take_echo(self, echo: int) -> bool:
        """A round trip was measured, when the stamp belongs to a run still on the way."""
        sent = self.stamps.pop(echo, None)
        if sent is None:
            return False
        self.round_trips.sample(self.port.now - sent)
        return True

    def take_hints(self, held: Ranges, limit: int) -> bool:
        """What the receiver has without having settled it, and how far it has room."""
        news = held != self.held or limit > self.limit
        self.held = held
        self.limit = max(self.limit, limit)
        return news

    def _nack(self, frame: Nack) -> None:
        """Send at once what is named and unconfirmed, but nothing twice within a round trip."""
        if not self._is_acceptable(frame, _highest(frame.missing)):
            return
        news = self._take_incarnation(frame.incarnation)
        if not self.linked:
            return
        recent = self.port.now - self.round_trips.usual
        lost: list[Flight] = []
        for first, last in frame.missing:
            for flight in self.flights.overlapping(max(first, self.base), last):
                if flight.sent <= recent and not flight.carried_as:
                    lost += self._carve_unsettled(max(first, flight.first), min(last, flight.last))
        if lost:
            self.flights.put_back(self._send_again(lost, is_timeout=False))
        is_behind = any(first < self.base for first, _ in frame.missing) and not self._asked_lately
        if is_behind and not lost:
            # It misses what is settled, so it has forgotten, or is new: a Probe tells it the base.
            self._probe()
        if lost or news or is_behind:
            self.answered = True
        else:
            self.port.count("repeated_confirm")

    def _carve_unsettled(self, first: int, last: int) -> list[Flight]:
        return [
            flight
            for part in self.done.missing(first, last)
            for flight in self.flights.carve(*part)
        ]

    # Time.

    @property
    def deadline(self) -> int | None:
        """When patience with a run ends, a lost credit is asked for, or a link offered again."""
        due = max(self.flights.due_at, self.paced_until) if self.linked else NEVER
        due = min(due, self.credit_at, self.open_at)
        return due if due < NEVER else None

    def wake(self) -> None:
        """Look at every run whose deadline has passed."""
        now = self.port.now
        if self.flights.due_at <= now and self.paced_until <= now and self.linked:
            self.look_at_due(now)
        if self.credit_at <= now:
            self._ask_for_credit()

    def route_is_back(self) -> None:
        """Everything on the way is due now, a burst at a time."""
        self.flights.hasten(self.port.now)
        self.paced_until = 0
        if self.credit_at < NEVER:
            self.credit_at = self.port.now
        self.wake()

    def look_at_due(self, now: int) -> None:
        """Send again, ask after, or give up each run whose patience has ended."""
        held = RangeSet(self.held)
        if self.stops_when_unanswered and self.is_expired(self.flights.runs[0], held):
            self.stop_undeliverable()
            return
        kept: list[Flight] = []
        lost: list[Flight] = []
        for flight in self.flights.take_due(now):
            if not (parts := self._unsettled_parts(flight)):
                continue
            if self.is_expired(flight, held):
                self._give_up(parts)
            else:
                self._divide(parts, held, lost, kept)
        must_probe = bool(kept)
        self._warn_of_lost(lost)
        self._warn_of_held(kept, held)
        kept += self._send_again(lost)
        self.flights.put_back(kept)
        self._advance_base()
        # One question per round trip: each run that is due would ask the same.
        if must_probe and not lost and not self._asked_lately:
            self._probe()
        self.fill()

    def _unsettled_parts(self, flight: Flight) -> list[Flight]:
        """What is left of a run. A unit of which one part may not overtake another stays one record."""
        if self.one_at_a_time:
            return [flight]
        missing = self.done.missing(flight.first, flight.last)
        if missing == ((flight.first, flight.last),):
            return [flight]
        if not missing:
            self._forget_stamps(flight.stamps)
        return [flight.part(*part) for part in missing]

    def _divide(
        self,
        parts: list[Flight],
        held: RangeSet,
        lost: list[Flight],
        kept: list[Flight],
    ) -> None:
        """What is reported held, or still with the carrier, is only asked after; the rest travels again, a unit
        in one frame.
        """
        is_held = all(self._is_elsewhere(part, held) for part in parts)
        if is_held or self.one_at_a_time:
            (kept if is_held else lost).extend(map(self._rearmed, parts) if is_held else parts)
            return
        for part in parts:
            lost += [part.part(*gap) for gap in held.missing(part.first, part.last)]
            kept += [self._rearmed(part.part(*run)) for run in held.within(part.first, part.last)]

    def _rearmed(self, flight: Flight) -> Flight:
        flight.waits += 1
        flight.deadline = self._bounded(flight, self.next_deadline(flight.waits))
        return flight

    def _send_again(self, lost: list[Flight], *, is_timeout: bool = True) -> list[Flight]:
        """Transmit runs again, neighbours with one history together; what a burst leaves waits.

        The rest of a burst waits for the next Confirm, which proves that frames get through again, or for
        one round trip: more frames than that into a route that is silent would only be lost.
        """
        kept: list[Flight] = []
        lost = sorted(lost, key=lambda flight: flight.first)
        while lost and len(kept) < self.options.burst_max:
            flight, payloads, lost = self._join(lost)
            is_last = not lost or len(kept) + 1 == self.options.burst_max
            if not is_timeout:
                # A Nack shows that the receiver lives: patience stays as it was (0 when hastened).
                flight.waits = max(flight.waits - 1, 0)
            kept.append(self.transmit_again(flight, payloads, ask=is_last))
        if lost and is_timeout:
            self.paced_until = self.port.now + max(self.round_trips.usual, 1)
        return kept + lost

    def _join(self, lost: list[Flight]) -> tuple[Flight, list[bytes], list[Flight]]:
        """The longest run that one frame may carry from the beginning of ``lost``, and what follows."""
        flight = lost[0]
        payloads = self.payloads_of(self._head_of(flight))
        size = size_of(payloads)
        for at in range(1, len(lost)):
            following = lost[at]
            more = self.payloads_of(following) if self._may_join(flight, following) else []
            size += size_of(more)
            if not more or size > self.options.frame_max_bytes:
                return flight, payloads, lost[at:]
            payloads += more
            self._absorb(flight, following)
        return flight, payloads, []

    def _head_of(self, flight: Flight) -> Flight:
        """What of a run may travel again now.

        The middle of a unit may be settled before its beginning (lanes do that). It does not travel again: a
        receiver that keeps nothing would hand it out again. What is behind it waits until all before it is
        settled, because in a frame of its own it could pass a beginning that is lost.
        """
        if not self.one_at_a_time:
            return flight
        return flight.part(*self.done.missing(flight.first, flight.last)[0])

    def _may_join(self, flight: Flight, following: Flight) -> bool:
        """Neighbours with one history; of one age too, where age decides about giving up."""
        return (
            not self.one_at_a_time
            and flight.goes_with(following)
            and following.last - flight.first < self.options.run_max
            and (self.give_up_after == NEVER or flight.since == following.since)
        )

    def _absorb(self, flight: Flight, following: Flight) -> None:
        flight.last = following.last
        flight.since = min(flight.since, following.since)
        flight.attempts = max(flight.attempts, following.attempts)
        stamps = flight.stamps + following.stamps
        self._forget_stamps(stamps[:-STAMPS_MAX])
        flight.stamps = stamps[-STAMPS_MAX:]

    def transmit_again(self, flight: Flight, payloads: list[bytes], *, ask: bool) -> Flight:
        flight.sent = self.port.now
        flight.attempts += 1
        self._rearmed(flight)
        self._pass_down(flight, payloads, ask=ask)
        self.port.count("retransmitted", len(payloads))
        return flight

    def _is_elsewhere(self, flight: Flight, held: RangeSet) -> bool:
        """Whether all that is left of a run is with the receiver, as far as it said, or still with the carrier."""
        gaps = self.done.missing(flight.first, flight.last)
        return bool(flight.carried_as) or all(held.covers(*gap) for gap in gaps)

    def _warn_of_lost(self, lost: list[Flight]) -> None:
        """Tell of what was transmitted so often without an answer (T-11), in one notice."""
        due = [run for run in lost if not run.warned and run.attempts >= self.options.warn_after]
        if due:
            attempts = max(run.attempts for run in due)
            self._tell_unanswered(due, f"{attempts} attempts unanswered")

    def _warn_of_held(self, kept: list[Flight], held: RangeSet) -> None:
        """Tell of what the receiver, or the carrier, has and is silent about (T-11).

        Each run that is due asks, and one question asks after all. So what counts is how often a run had its turn;
        or how many turns there were for each, as a route that comes and goes has patience begin anew.
        """
        often = self.options.warn_after
        asking = [run for run in kept if not run.warned]
        # Each in ``kept`` has just been armed once more.
        is_often = self.probes >= often and any(run.waits > often for run in asking)
        if not asking or not (is_often or self.probes >= often * (len(self.flights) + len(kept))):
            return
        others = [run for run in self.flights.runs if self._is_elsewhere(run, held)]
        due = [run for run in (*kept, *others) if not run.warned]
        self._tell_unanswered(
            due,
            f"{self.probes} questions unanswered: what the receiver has is asked after, not sent",
        )

    def _tell_unanswered(self, runs: list[Flight], detail: str) -> None:
        for run in runs:
            run.warned = True
        gaps = (gap for run in runs for gap in self.done.missing(run.first, run.last))
        self.tell_silence(tuple(RangeSet(gaps)), detail)

    def tell_silence(self, ranges: Ranges, detail: str) -> None:
        """Tell that nobody answers: once, and not of each message that goes unanswered in the same silence."""
        if not self.silence_is_told:
            self.silence_is_told = self.end_is_owed = True
            self.port.notice(NoticeKind.UNANSWERED, self.epoch, ranges, detail)

    def heard(self) -> None:
        """The receiver has answered with something new. It is over when all that was told of has its answer."""
        self.silence_is_told = False
        if not any(run.warned for run in self.flights.runs):
            self.end_is_owed = False
            self.port.notice(NoticeKind.RECOVERED, self.epoch, (), "the receiver answers again")

    # Giving up.

    def is_expired(self, flight: Flight, held: RangeSet) -> bool:
        """Whether the run is too old (T-10). What a receiver that answers reports held is not."""
        if self.port.now - flight.since < self.give_up_after:
            return False
        return bool(self.probes) or not held.covers(flight.first, flight.last)

    def _give_up(self, parts: list[Flight]) -> None:
        for part in parts:
            self.port.give_up(part.first, self.payloads_of(part), part.attempts, part.since)
            self.done.add(part.first, part.last)
            self._forget_stamps(part.stamps)

    def stop_undeliverable(self) -> None:
        """Going on without the oldest message would break the order: all goes back to the caller."""
        self.linked = False
        flight = self.flights.runs[0]
        waited_s = (self.port.now - flight.since) / 1_000_000
        detail = f"{flight.attempts} attempts unanswered in {waited_s:.1f} s"
        self.port.stop(detail, NoticeKind.UNDELIVERABLE)

    # Questions to the receiver.

    @property
    def _asked_lately(self) -> bool:
        """Whether the answer to the last question may still be on its way."""
        return self.port.now - self.probed_at < self.round_trips.usual

    def _probe(self) -> None:
        self.probes += 1
        self.probed_at = self.port.now
        self.port.control(
            Probe(self.port.tag, self.port.layer, self.link, self.epoch, self.base, self.next)
        )

    def _ask_for_credit(self) -> None:
        self.credit_at = NEVER
        self._watch_credit()
        if self.credit_at < NEVER:
            self._probe()


def _highest(ranges: Ranges) -> int:
    """The highest number spoken of, whatever order the ranges are in."""
    return max(map(_LAST, ranges)) if ranges else 0
