"""The sending half of ``reliable``: the retry engine behind a handshake.

States, by ``linked`` and ``open_at``:

* Opening: an Open is on its way and repeated; messages are accepted into the backlog, no Data leaves;
* Linked: the receiver answered this very link; the retry engine works;
* Over: the receiver will not serve this epoch. The intake decides what comes next, or nothing does.

A new link is drawn at each ``begin``, when the receiver doesn't know the link, and when another incarnation of it
answers. Never finished: when nothing is unconfirmed it is idle.
"""

from __future__ import annotations

from typing import ClassVar

from surepipe.effects import NoticeKind, Ranges
from surepipe.pipes.flights import NEVER
from surepipe.pipes.frames import Frame, Open, Opened, Refused, RefusedReason, Unknown
from surepipe.pipes.retry import RetrySender


class Sender(RetrySender):
    """Links, then transmits within the window; what the receiver settled elsewhere is never sent."""

    takes_nacks: ClassVar[bool] = True
    stops_when_unanswered: ClassVar[bool] = True

    def _reset(self, epoch: int, base: int) -> None:
        super()._reset(epoch, base)
        self.linked = False
        self.life = 0
        self.begun_at = base
        self.settled_through = base - 1
        self.open_at = NEVER
        self.opens = 0
        self.opening_since = 0
        self.is_warned = False

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
        self.former = []
        self.void_through = self.frames_passed
        self.opens = 0
        self.opening_since = self.port.now
        self.is_warned = False
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
        del incarnation
        self._open_link()

    # Frames.

    def other_control(self, frame: Frame) -> None:
        """Opened, Unknown and Refused: the frames that make and end links."""
        if not isinstance(frame, Opened | Unknown | Refused):
            self.port.count("wrong_state")
        elif frame.link != self.link:
            self.port.count("stale_link")
        elif isinstance(frame, Unknown):
            self._take_unknown()
        elif frame.epoch != self.epoch:
            self.port.count("stale_epoch")
        elif isinstance(frame, Opened):
            self._take_opened(frame)
        else:
            self._take_refused(frame)

    def _take_unknown(self) -> None:
        if self.linked:
            self._open_link()
        else:
            self.port.count("wrong_state")

    def _take_opened(self, frame: Opened) -> None:
        is_own = self.epoch == self.life
        is_untouched = is_own and self.next == self.begun_at
        if self.linked and frame.incarnation == self.incarnation:
            self.port.count("repeated_confirm")
        elif self.linked:
            self._open_link()
        elif self.open_at == NEVER:
            self.port.count("wrong_state")
        elif is_untouched and (frame.expected > 1 or frame.closed):
            self._go_quiet()
            self.port.raise_life(self.life)
        elif frame.closed:
            self._go_quiet()
            self.take_facts(frame.cum, ())
            self._skip_settled()
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
        self.former = []
        self.probes = 0
        self.paced_until = 0
        self.held = ((frame.cum + 1, frame.expected - 1),) if frame.expected > frame.cum + 1 else ()
        self.limit = frame.limit
        self.port.reached(frame.cum)
        self.take_facts(frame.cum, ())
        if self.flights:
            self.flights.hasten(self.port.now)
            self.wake()
        self.fill()

    def _take_refused(self, frame: Refused) -> None:
        if not self.linked and self.open_at == NEVER:
            self.port.count("wrong_state")
            return
        self._go_quiet()
        if frame.reason is RefusedReason.FENCED:
            self.port.fenced(max(frame.known, self.life), answered=self.answered)
        elif frame.reason is RefusedReason.STACK:
            self.port.stop(self.port.differs, NoticeKind.MISMATCH)
        else:
            name = frame.reason.name.lower().replace("_", "-")
            self.port.stop(f"the receiver refuses epoch {frame.epoch}: {name}")

    # What the receiver had settled before this life sent it.

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """A cum beyond what was sent in this life speaks of messages that an earlier life sent."""
        self.settled_through = max(self.settled_through, cum)
        return super().take_facts(cum, done)

    def fill(self) -> None:
        """Transmit what may be transmitted, without what is known to be settled."""
        self._skip_settled()
        super().fill()

    def _skip_settled(self) -> None:
        if self.settled_through < self.next or not self.backlog:
            return
        first: int = self.next
        last: int = min(first + len(self.backlog) - 1, self.settled_through)
        self.backlog.take(last - first + 1, self.backlog.size_bytes, at_least_one=False)
        self.base = self.next = self.begun_at = last + 1
        self.port.confirmed(first, last)

    # Time.

    @property
    def deadline(self) -> int | None:
        """When to offer the link again, or what the engine waits for."""
        due = super().deadline
        if self.open_at == NEVER:
            return due
        return self.open_at if due is None else min(due, self.open_at)

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
        if unconfirmed and self.opens >= self.options.warn_after and not self.is_warned:
            self.is_warned = True
            detail = f"{self.opens} offers of a link unanswered"
            self.port.notice(NoticeKind.UNANSWERED, self.epoch, unconfirmed, detail)
        self._send_open()

    def route_is_back(self) -> None:
        """A link that was offered is offered again now; else the engine sends what it has."""
        if self.open_at < NEVER:
            self.open_at = self.port.now
        super().route_is_back()

    def _waiting_since(self) -> int:
        return min([self.opening_since, *(flight.since for flight in self.flights.runs[:1])])
