"""reliable: exactly-once, in the order of sending, over any route with a way back, in one layer.

The retry engine of multi-unconfirmed and the ordered receiver of continuous-index in one, joined by a link: a
random number that the sender draws whenever it can't be sure what its receiver knows, offered in Open and accepted
in Opened. Only frames of the link that both know are processed, so nothing that an earlier link or an earlier
receiver said can do harm, whenever it arrives. The route may lose, repeat, reorder and delay without bound.

Messages are settled once, in order, with no hole. A volatile sender loses what it has not got confirmed when it
crashes, a volatile receiver is given again what it settled and could not confirm; a journal and a durable cursor
(committed with the effect) take away even that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.pipes.declaration import EXACT, PipeKind, Reverse, row
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.retry.confirming import RANGES_MAX, Reporting
from surepipe.pipes.retry.engine import FORMER_MAX, RetrySender
from surepipe.pipes.retry.flights import NEVER
from surepipe.pipes.stack import fencing
from surepipe.pipes.stack.layers import ReceiverLayer, ReceiverPort, Token
from surepipe.pipes.stack.reorder import Offered, ReorderBuffer
from surepipe.pipes.wire.frames import (
    MAX_NUMBER,
    Confirm,
    Data,
    Frame,
    Nack,
    Open,
    Opened,
    Probe,
    Refused,
    RefusedReason,
    Unknown,
)


class Reliable(RetryOptions):
    """Exactly-once in order over any route with a way back, in one layer."""

    kind: ClassVar[str] = "reliable"
    is_cursor: ClassVar[bool] = True


# The sending half of ``reliable``: the retry engine behind a handshake.
#
# States, by ``linked`` and ``open_at``:
#
# * Opening: an Open is on its way and repeated; messages are accepted into the backlog, no Data leaves; *
# Linked: the receiver answered this very link; the retry engine works; * Over: the receiver will not serve this
# epoch. The intake decides what comes next, or nothing does.
#
# A new link is drawn at each ``begin``, when the receiver doesn't know the link, and when another incarnation
# of it answers. Never finished: when nothing is unconfirmed it is idle.
#
# Two receivers may answer for long, and links must not be drawn as fast as they do:
#
# 1. A receiver hangs. Another process begins in its place, and the first wakes up: every frame reaches both.
# 2. Both answer an Open. The second answer comes from another incarnation than the first, so a new link is drawn,
#    in case the first answer was an old one. 3. Both answer that, too, and so on, although nobody sends anything.
# 4. So who was there first is passed over (``former``) from the second such link on, and its successor is served.
#    Whose answers are worth anything is the store's to say: it refuses the state of who was replaced.
# 5. Passed over may be the wrong one, as frames overtake each other. If nobody else answers in time it is taken.
# 6. Behind a new link a question leaves at once when all is in work, and whoever was passed over answers that it
#    knows no such link. One question is no sign of silence, the second is: else links are drawn as in step 3.


class Sender(RetrySender):
    """Links, then transmits within the window; what the receiver settled elsewhere is never sent."""

    greets: ClassVar[bool] = True
    takes_nacks: ClassVar[bool] = True

    def _reset(self, epoch: int, base: int) -> None:
        super()._reset(epoch, base)
        self.linked = False
        self.life = 0
        self.begun_at = base
        self.settled_through = base - 1
        self.open_at = NEVER
        self.opens = 0
        self.opening_since = 0
        self.disputes = 0
        self.unheard = 0

    # Linking.

    def begin(self, epoch: int, base: int) -> None:
        """Drop what is left and ask the receiver to serve this epoch."""
        was_answered = self.answered and self.life == self.port.life
        super().begin(epoch, base)
        self.life = self.port.life
        self.answered = was_answered
        self._open_link()

    def _open_link(self) -> None:
        """Draw a new link and offer it; nothing else leaves before it is answered (T-9)."""
        self.linked = False
        self.link = self.rng.getrandbits(63) + 1
        self.void_through = self.frames_passed
        self.opens = 0
        self.opening_since = self.port.now
        self._watch_credit()
        self._send_open()

    def _send_open(self) -> None:
        self.opens += 1
        self.open_at = self.next_deadline(self.opens)
        self.port.control(
            Open(
                self.port.tag,
                self.port.layer,
                self.life,
                self.link,
                self.epoch,
                self.base,
                self.next,
                self.port.stack_digest,
            )
        )

    def _go_quiet(self) -> None:
        """This epoch is over here: nothing leaves until another one begins."""
        self.linked = False
        self.open_at = NEVER
        self._watch_credit()

    def met_incarnation(self, incarnation: int) -> None:
        """Another receiver answers on this link: it can't be trusted with it, so draw another."""
        self.disputes += 1
        self._pass_over(self.incarnation, incarnation)
        self._open_link()

    def _take_incarnation(self, incarnation: int) -> bool:
        if incarnation == self.incarnation:
            self.unheard = 0
        return super()._take_incarnation(incarnation)

    def look_at_due(self, now: int) -> None:
        """Whoever was linked has said nothing for so long that something travels again."""
        self.unheard += 1
        super().look_at_due(now)

    def _pass_over(self, former: int, current: int) -> None:
        others = [one for one in self.former if one not in (former, current)]
        self.former = [*others, former][-FORMER_MAX:]

    # Frames.

    def other_control(self, frame: Frame) -> None:
        """Opened, Unknown and Refused: the frames that make and end links."""
        if not isinstance(frame, Opened | Unknown | Refused):
            self.port.count("wrong_state")
        elif frame.link != self.link:
            self.port.count("stale_link")
        elif not isinstance(frame, Refused) and self._is_passed_over(frame.incarnation):
            self.port.count("repeated_confirm")
        elif isinstance(frame, Unknown):
            self._take_unknown()
        elif frame.epoch != self.epoch:
            self.port.count("stale_epoch")
        elif isinstance(frame, Opened):
            self._take_opened(frame)
        else:
            self._take_refused(frame)

    def _is_passed_over(self, incarnation: int) -> bool:
        """Step 4; and step 5: when nobody answers, a link is offered twice, and what was sent is asked after."""
        if incarnation not in self.former:
            return False
        if self.linked:
            return incarnation != self.incarnation and not (self.unheard or self.probes > 1)
        return self.disputes > 1 and self.opens <= 1

    def _take_unknown(self) -> None:
        if self.linked:
            self.disputes = 0
            self._open_link()
        else:
            self.port.count("wrong_state")

    def _take_opened(self, frame: Opened) -> None:
        is_own = self.epoch == self.life
        is_untouched = is_own and self.next == self.begun_at
        if self.linked and frame.incarnation == self.incarnation:
            self.port.count("repeated_confirm")
        elif self.linked:
            self.met_incarnation(frame.incarnation)
        elif self.open_at == NEVER:
            self.port.count("wrong_state")
        elif is_untouched and (frame.expected > 1 or frame.closed):
            self._go_quiet()
            self.port.raise_life(self.life)
        elif frame.closed:
            self._go_quiet()
            self.take_facts(frame.cum, ())
            if self.settled_through >= self.next:
                self.skip_settled()
            self.port.epoch_closed(frame.cum, "the receiver has gone on to a later epoch")
        elif is_own and frame.expected > self.next:
            self.port.count("impossible")
        else:
            self._take_link(frame)

    def _take_link(self, frame: Opened) -> None:
        self.linked = True
        self.answered = True
        self.open_at = NEVER
        self.incarnation = frame.incarnation
        self.probes = 0
        self.paced_until = 0
        self.held = ((frame.cum + 1, frame.expected - 1),) if frame.expected > frame.cum + 1 else ()
        self.limit = frame.limit
        self.port.reached(frame.cum)
        self.take_facts(frame.cum, ())
        if self.flights:
            self.flights.hasten(self.port.now)
            self.wake()
        self.unheard = 0
        if self.end_is_owed:
            self.heard()
        self.fill()

    def _take_refused(self, frame: Refused) -> None:
        if not self.linked and self.open_at == NEVER:
            self.port.count("wrong_state")
        elif fencing.obey(self.port, frame, self.life, answered=self.answered):
            self._go_quiet()

    # What the receiver had settled before this life sent it.

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """A cum beyond what was sent in this life speaks of messages that an earlier life sent."""
        self.settled_through = max(self.settled_through, cum)
        return super().take_facts(cum, done)

    def skip_settled(self) -> None:
        """What an earlier life sent, and the receiver has settled, is confirmed and never sent again."""
        if not self.backlog.count:
            return
        first: int = self.next
        last: int = min(first + self.backlog.count - 1, self.settled_through)
        self.backlog.take(last - first + 1, self.backlog.size_bytes, at_least_one=False)
        self.base = self.next = self.begun_at = last + 1
        self.port.confirmed(first, last)

    # Time.

    def wake(self) -> None:
        """Offer the link again when its deadline has passed; else the engine's work."""
        super().wake()
        if self.open_at > self.port.now:
            return
        unconfirmed = self.unconfirmed()
        if unconfirmed and self.port.now - self._waiting_since() >= self.give_up_after:
            self._go_quiet()
            detail = f"{self.opens} offers of a link unanswered"
            self.port.stop(detail, NoticeKind.UNDELIVERABLE)
            return
        if unconfirmed and self.opens >= self.options.warn_after:
            detail = f"{self.opens} offers of a link unanswered"
            self.tell_silence(unconfirmed, detail)
        self._send_open()

    def route_is_back(self) -> None:
        """A link that was offered is offered again now; else the engine sends what it has."""
        if self.open_at < NEVER:
            self.open_at = self.port.now
        super().route_is_back()

    def _waiting_since(self) -> int:
        return min([self.opening_since, *(flight.since for flight in self.flights.runs[:1])])


# The receiving half of ``reliable``: one link at a time, everything in order, once.
#
# States, by ``epoch`` and ``link``: Fresh (epoch 0: nothing is known), Linked, and, after a restart with a
# stored cursor, known but not linked (link 0). Data and Probe of any other link are answered Unknown and not
# processed; only Open changes what is served. The receiver is finished when its stack is closed.
#
# What is remembered of former epochs is how far each was settled (the last ``CLOSED_MAX`` of them): a sender
# that comes back with messages of one learns which of them are settled and that the others never will be.


CLOSED_MAX = 8
"""Former epochs whose end is remembered."""

stateful(Open)


class Receiver(ReceiverLayer):
    """Serves the sender with the highest life, epoch after epoch."""

    ordered: ClassVar[bool] = True
    holds_early: ClassVar[bool] = True
    TRANSIENT: ClassVar[tuple[str, ...]] = (*ReceiverLayer.TRANSIENT, "reports")

    def __init__(self, options: RetryOptions, port: ReceiverPort, rng: Randomness) -> None:
        self.options = options
        self.port = port
        self.rng = rng
        self.reports = Reporting.of(options)
        self.life = 0
        self.epoch = 0
        self.link = 0
        self.closed: list[tuple[int, int]] = []
        self.forgotten_epoch = 0
        self.waiting_open: Open | None = None
        self.stalled_at = 0
        self.buffer = self._new_buffer(1)
        self.clock = self.reports.clock()

    def _new_buffer(self, expected: int) -> ReorderBuffer:
        options = self.options
        return ReorderBuffer(
            options.held_max,
            options.held_max_bytes,
            expected,
            nack_after=self.reports.nack_after,
            nack_delay=self.reports.nack_delay,
        )

    # Links and epochs.

    def control(self, frame: Frame) -> None:
        if isinstance(frame, Open):
            self._take_open(frame)
        elif isinstance(frame, Probe):
            self._take_probe(frame)
        else:
            self.wrong_state()

    def _take_open(self, frame: Open) -> None:
        if (
            not 1 <= frame.base <= frame.next
            or not 1 <= frame.epoch <= frame.life
            or not frame.link
        ):
            self.port.count("impossible")
        elif frame.stack != self.port.stack_digest:
            self.port.count("wrong_state")
            self.port.notice(NoticeKind.MISMATCH, 0, (), self.port.differs)
            self._refuse(frame, RefusedReason.STACK)
        elif frame.life < self.life:
            self.port.count("fenced")
            self._refuse(frame, RefusedReason.FENCED)
        elif frame.epoch < self.epoch:
            self.life = frame.life
            self._answer_for_former_epoch(frame)
        elif frame.epoch > self.epoch and self.buffer.in_work:
            self.waiting_open = (
                frame  # answered when what is in work of the former epoch is settled
            )
        else:
            self._serve(frame)

    def _refuse(self, frame: Open, reason: RefusedReason) -> None:
        known = max(self.life, self.epoch)
        fencing.turn_away(self.port, frame.link, frame.epoch, known, reason)

    def _answer_for_former_epoch(self, frame: Open) -> None:
        """Say how far this epoch was settled, and that nothing more of it will be."""
        through = dict(self.closed).get(frame.epoch)
        if through is None and frame.epoch <= self.forgotten_epoch:
            self.port.count("fenced")
            self._refuse(frame, RefusedReason.UNKNOWN_EPOCH)
            return
        if through is None:
            through = 0 if self.port.durable else frame.base - 1
        self._say_opened(frame, through + 1, through, through, closed=True)

    def _serve(self, frame: Open) -> None:
        self.waiting_open = None
        self.life = frame.life
        if frame.epoch > self.epoch:
            self._leave_epoch()
            self.epoch = frame.epoch
        elif frame.link != self.link:
            self._drop_held()
        if frame.link != self.link:
            self.link = frame.link
            self.clock = self.reports.clock()
        self._raise_base(frame.base)
        buffer = self.buffer
        self._say_opened(frame, buffer.expected, buffer.settled, buffer.limit, closed=False)

    def _say_opened(
        self, frame: Open, expected: int, cum: int, limit: int, *, closed: bool
    ) -> None:
        head = (self.port.tag, self.port.layer, frame.link, self.port.incarnation, frame.epoch)
        self.port.control(Opened(*head, expected, cum, min(limit, MAX_NUMBER), closed))

    def _leave_epoch(self) -> None:
        """Remember how far the epoch was settled; what is held of it will not be delivered."""
        if not self.epoch:
            return
        self._drop_held()
        self.closed.append((self.epoch, self.buffer.settled))
        if len(self.closed) > CLOSED_MAX:
            self.forgotten_epoch = self.closed.pop(0)[0]
        self.buffer = self._new_buffer(1)
        self.stalled_at = 0

    def _drop_held(self) -> None:
        dropped = self.buffer.drop_held()
        if dropped:
            self.port.count("abandoned", dropped)

    def _raise_base(self, base: int) -> None:
        """The sender knows that everything below ``base`` is settled, even where this receiver forgot it."""
        if base <= self.buffer.expected:
            return
        if self.port.durable:
            ranges = ((self.buffer.expected, base - 1),)
            detail = "the sender knows of messages settled here that the stored state does not hold"
            self.port.notice(NoticeKind.STATE_ROLLBACK, self.epoch, ranges, detail)
        offered = self.buffer.start_at(base, self.port.now)
        if offered.ready:
            self.port.hand_up(self.epoch, offered.first, offered.ready)

    # Messages.

    def data(self, frame: Frame, token: Token | None) -> None:
        """A run of messages: hold it, or deliver it with all that follows it.

        The carrier is answered at once, because our own sender keeps each message until we confirm it. Held
        messages that kept the carrier's window occupied could keep out those that they wait for.
        """
        if token is not None:
            self.port.settle(token)
        if not isinstance(frame, Data):
            self.wrong_state()
        elif not self._is_current(frame):
            return
        elif (
            not frame.payloads
            or not 1 <= frame.base <= frame.first <= MAX_NUMBER - len(frame.payloads) + 1
        ):
            self.port.count("impossible")
        else:
            if frame.base > self.buffer.expected:
                self._raise_base(frame.base)
            self._take_run(frame)
            self._say_what_is_due()

    def _is_current(self, frame: Data | Probe) -> bool:
        if not self.epoch or frame.link != self.link:
            self.port.count("unknown_link")
            head = (self.port.tag, self.port.layer, frame.link, self.port.incarnation)
            self.port.control(Unknown(*head))
            return False
        if frame.epoch != self.epoch:
            self.port.count("stale_epoch")
            return False
        return True

    def _take_run(self, frame: Data) -> None:
        now, last = self.port.now, frame.first + len(frame.payloads) - 1
        offered = self.buffer.offer(frame.first, frame.payloads, now)
        self.clock.arrived(now, last, frame.stamp, ask=frame.ask)
        if not offered.is_plain and (self._count_ignored(offered) or offered.opened):
            self.clock.hurry(now)
        if offered.ready:
            self.port.hand_up(self.epoch, offered.first, offered.ready)

    def _count_ignored(self, offered: Offered) -> int:
        over_limit = sum(last - first + 1 for first, last in offered.over_limit)
        ignored = {
            "duplicate": offered.duplicate + offered.repeated,
            "in_work": offered.in_work,
            "conflict": offered.conflict,
            "over_limit": over_limit,
        }
        for name, count in ignored.items():
            if count:
                self.port.count(name, count)
        return sum(ignored.values())

    def _take_probe(self, frame: Probe) -> None:
        if not self._is_current(frame):
            return
        if not 1 <= frame.base <= frame.next:
            self.port.count("impossible")
            return
        self._raise_base(frame.base)
        self.clock.hurry(self.port.now)
        self._say_what_is_due()

    def wrong_state(self) -> None:
        """Count a frame that has no meaning for this layer."""
        self.port.count("wrong_state")

    # Answers from above.

    def settled(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """These messages have crossed the boundary."""
        if epoch != self.epoch:
            return
        before = self.buffer.settled
        self.buffer.settle(first, last)
        cum = self.buffer.settled
        self.clock.settle(self.port.now, cum - before, cum)
        self._say_what_is_due()
        if self.waiting_open is not None:
            self._open_when_free()

    def refused(self, epoch: int, first: int, last: int, _producer: str = "") -> None:
        """These messages were not taken: they, and what follows, must come again."""
        del last
        if epoch != self.epoch or not self.buffer.settled < first < self.buffer.expected:
            return
        self.buffer.step_back(first, self.port.now)
        self.clock.hurry(self.port.now + self.clock.delay)
        self._open_when_free()

    def _open_when_free(self) -> None:
        frame = self.waiting_open
        if frame is not None and not self.buffer.in_work:
            self.waiting_open = None
            self._take_open(frame)

    # What is said, and when.

    def _say_what_is_due(self) -> None:
        now = self.port.now
        if self.clock.due <= now:
            self._confirm()
        holes = self.buffer.holes
        if holes.holes and holes.is_due(now):
            missing = self.reports.name_due(holes, now, self.rng)
            if missing:
                head = (
                    self.port.tag,
                    self.port.layer,
                    self.link,
                    self.port.incarnation,
                    self.epoch,
                )
                self.port.control(Nack(*head, missing))

    def _confirm(self) -> None:
        buffer = self.buffer
        cum = buffer.settled
        echo = self.clock.reported(cum)
        if not self.link:
            return
        done, in_work = self._above(cum)
        held = (*in_work, *buffer.held.lowest(RANGES_MAX))[:RANGES_MAX]
        limit = min(buffer.limit, MAX_NUMBER)
        port = self.port
        head = (port.tag, port.layer, self.link, port.incarnation, self.epoch)
        port.control(Confirm(*head, cum, done, held, limit, echo))

    def _above(self, cum: int) -> tuple[Ranges, Ranges]:
        """What is settled above ``cum``, and what was handed up and is not.

        With lanes one message may stay unsettled for long, and none above it is called settled meanwhile. The
        sender would never send those again, and a receiver that starts anew would wait for them before it goes on.
        """
        highest = self.buffer.expected - 1
        if highest == cum:
            return (), ()
        if self.port.has_lanes:
            return (), ((cum + 1, highest),) if highest > cum else ()
        settled = self.buffer.settled_above
        return settled.lowest(RANGES_MAX), settled.missing(cum + 1, highest)

    # Time.

    @property
    def deadline(self) -> int | None:
        """When a Confirm or a Nack is due, or a hole is to be told of."""
        due, holes = self.clock.due, self.buffer.holes
        if holes.holes:
            due = min(due, holes.due_at, self._stalled_due())
        return due if due < NEVER else None

    def _stalled_due(self) -> int:
        since = self.buffer.stuck_since
        if since is None or self.stalled_at == self.buffer.expected:
            return NEVER
        return since + self.reports.gap_alarm

    def wake(self) -> None:
        self._say_what_is_due()
        if self._stalled_due() <= self.port.now:
            self.stalled_at = self.buffer.expected
            missing = self.buffer.missing[:1]
            detail = "later messages wait for these"
            self.port.notice(NoticeKind.STALLED, self.epoch, missing, detail)

    def finish(self) -> None:
        """The receiver is closing: whatever is unreported goes out now."""
        if self.clock.due < NEVER:
            self._confirm()

    # What survives.

    def cursor(self, epoch: int = 0, also: Ranges = (), _producer: str = "") -> object:
        """Life, epoch, how far it is settled, and the ends of former epochs."""
        settled = RangeSet(self.buffer.settled_above)
        if epoch == self.epoch:
            for part in also:
                settled.add(*part)
        cum = settled.end_of_run(self.buffer.settled + 1)
        return [
            self.life,
            self.epoch,
            cum,
            self.forgotten_epoch,
            [list(end) for end in self.closed],
        ]

    def restore_cursor(self, cursor: object) -> None:
        """Go on behind what is settled. No link is known: the first Data is answered Unknown."""
        life, epoch, cum, forgotten, closed = cast(
            "tuple[int, int, int, int, list[list[int]]]", cursor
        )
        self.life, self.epoch, self.forgotten_epoch = life, epoch, forgotten
        self.closed = [(former, through) for former, through in closed]
        self.buffer = self._new_buffer(cum + 1)

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        ends = [*self.closed, (self.epoch, self.buffer.settled)]
        return [("", epoch, 1, last) for epoch, last in ends]

    def gauges(self) -> dict[str, int]:
        """Messages held and in work, and the bytes of both."""
        return {
            "held": self.buffer.held_count,
            "in_work": self.buffer.in_work,
            "held_bytes": self.buffer.size_bytes,
        }


PIPE = PipeKind(
    *(Reliable, Sender, Receiver),
    declares=(row(Reliable, EXACT, reverse=Reverse.FAIR),),
    advised=6,
)
