"""How a channel opens: each end opens the direction in which it sends, by an Open that is repeated until answered.

An Open carries the life of its end and, as its ``next``, how often that life has begun anew: an end that was down
says so by a higher one, and the other end, which may never have noticed, opens its own direction again. Opens of
a lower life are refused, and tell that life to stop; other late ones change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from surepipe.core.effects import Effect, Notice, NoticeKind, Transmit
from surepipe.core.machine import Randomness
from surepipe.core.snapshot import stateful
from surepipe.core.timing import BackOff
from surepipe.pipes.options import micros
from surepipe.pipes.stack.agreement import WHOLE_STACK, Terms, difference
from surepipe.pipes.stack.fencing import Superseded, TurnedAway, meaning_of, next_life
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import (
    Frame,
    Introduction,
    Open,
    Opened,
    Refused,
    RefusedReason,
    Unknown,
    tag_of,
)

CHANNEL_LAYER = WHOLE_STACK
"""The layer number of the channel's own frames."""


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """How a channel opens and when it forgets. Times are seconds."""

    open_initial_s: float = 1.0
    """wait before an Open is repeated; doubles with each attempt"""
    open_max_s: float = 30.0
    """longest such wait"""
    jitter: float = 0.1
    """random part of such a wait"""
    idle_forget_s: float = 900.0
    """silence after which an end frees what is volatile"""
    held_max: int = 8192
    """messages in the frames that wait for the channel to open, where its layers don't keep them"""
    held_max_bytes: int = 64 * 1024 * 1024
    """the same in bytes"""


def direction_names(channel: str) -> tuple[str, str]:
    """The names of the two pipes of a channel."""
    return f"{channel}/forward", f"{channel}/back"


class ListenerMachine:
    """Decides which Opens bring a new end into being: one for each accepted name and life."""

    def __init__(self, names: Iterable[str]) -> None:
        directions = {name: tuple(map(tag_of, direction_names(name))) for name in names}
        self._names = {forward: name for name, (forward, _) in directions.items()}
        self._forward = {tag: tags[0] for tags in directions.values() for tag in tags}
        self._lives: dict[str, int] = {}
        self._introductions: dict[str, Introduction] = {}

    def admits(self, frame: object) -> str | None:
        """The name of the channel for which an end must be made, or None.

        Repeated, delayed and reordered Opens of a life that was admitted, or of an older one, create nothing.
        """
        frame = codec.decoded(frame)
        if isinstance(frame, Introduction) and frame.pipe in self._names:
            self._introductions[self._names[frame.pipe]] = frame
        if not isinstance(frame, Open) or frame.layer != CHANNEL_LAYER:
            return None
        name = self._names.get(frame.pipe)
        if name is None or frame.life <= self._lives.get(name, 0):
            return None
        is_new = name not in self._lives
        self._lives[name] = frame.life
        return name if is_new else None

    def introduction(self, name: str) -> Introduction | None:
        """What the caller said of itself before its Open brought the end into being: it must hear that first."""
        return self._introductions.pop(name, None)

    def answer(self, frame: object) -> Unknown | None:
        """What to say to a frame for a channel whose end is not here (any more): open again.

        Its caller took the former end for one that is up, and asks for nothing by itself: each frame of either
        direction tells that, be it a layer's own Open or an answer. The channel's Opens need no such answer.
        """
        frame = codec.decoded(frame)
        forward = self._forward.get(getattr(frame, "pipe", 0))
        is_offer = isinstance(frame, Open) and frame.layer == CHANNEL_LAYER
        if forward is None or is_offer or isinstance(frame, Unknown | Refused | Introduction):
            return None
        return Unknown(forward, CHANNEL_LAYER, 0, 0)

    def forget(self, name: str) -> None:
        """The end of this name is gone; the next Open brings a new one."""
        self._lives.pop(name, None)


@dataclass(frozen=True, slots=True)
class Directions:
    """The tags of what an end sends and receives, the digests of the two stacks, and the other end's due terms."""

    outgoing: int
    incoming: int
    digest: int
    peer_digest: int
    terms: Terms


@stateful
class Handshake:
    """Both directions of one end: closed, or open; *up* is both open.

    An Open is repeated until both are: who answered it may have ended before it could open its own direction.
    Then it is repeated until anything more is heard (``is_sure``): who opened the last direction may have ended
    before it heard our answer, and an end that is up and has nothing to send would never notice.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = ("name", "directions", "options", "rng")

    def __init__(
        self, name: str, directions: Directions, options: ChannelOptions, rng: Randomness, life: int
    ) -> None:
        self.name = name
        self.directions = directions
        self.options = options
        self.rng = rng
        self.life = life
        self.link = rng.getrandbits(63) + 1
        self.beginning = 1
        self.sending_open = False
        self.receiving_open = False
        self.up = False
        self.is_sure = False
        self.was_answered = False
        self.attempts = 0
        self.open_at: int | None = None
        self.peer_life = 0
        self.peer_beginning = 0
        self.peer_incarnation = 0
        self.peer_restarted = False
        """Another receiver than before has answered; whoever hosts this looks at it and takes it down."""
        self.refused_life = 0
        self.stopped = ""
        self.is_mismatched = False
        """True when it stopped because the two ends are configured differently."""

    def open(self, now: int) -> list[Effect]:
        """Ask the other end to receive."""
        if self.stopped:
            return []
        self.attempts += 1
        options = self.options
        again = BackOff.of_seconds(options.open_initial_s, options.open_max_s, options.jitter)
        self.open_at = now + again.wait(self.attempts, self.rng)
        life = self.life
        head = (self.directions.outgoing, CHANNEL_LAYER, life, self.link, life)
        offer = Transmit(Open(*head, 1, self.beginning, self.directions.digest))
        return [*self._asked_to_open(), offer]

    def _asked_to_open(self) -> list[Effect]:
        """The other end has answered and not opened its own direction, or not to us: where an older caller is
        connected too, what is meant for the newer goes to that one, which answers it. So the other end holds the
        channel for one that is up; and its route learns by this frame where we are."""
        if not self.sending_open or self.receiving_open:
            return []
        return [Transmit(Unknown(self.directions.incoming, CHANNEL_LAYER, 0, 0))]

    def route_is_back(self, now: int) -> list[Effect]:
        """Ask at once. Who is there now may be another, who can't send to an end that it does not know; and that
        end may have nothing to send for long, which would tell."""
        if self.up:
            self.is_sure = False
            self.attempts = 0
        return self.open(now) if self.up or self.open_at is not None else []

    def frame(self, frame: Frame, incarnation: int, now: int) -> tuple[str, list[Effect]]:
        """A frame of the channel itself: the counter of one that is ignored (or ""), and effects."""
        if self.stopped:
            return "wrong_state", []
        match frame:
            case Open():
                return self._on_open(frame, incarnation, now)
            case Opened():
                return self._on_opened(frame, now)
            case Unknown():
                return self._on_unknown(frame, now)
            case Refused():
                return self._on_refused(frame, now)
            case _:
                return "wrong_state", []

    def go_down(self) -> None:
        """Begin anew: the other end will be told by the next Open."""
        self.up = self.sending_open = self.receiving_open = False
        self.open_at = None
        self.attempts = 0
        self.beginning += 1
        self.link = self.rng.getrandbits(63) + 1

    # The other end sends.

    def _on_open(self, frame: Open, incarnation: int, now: int) -> tuple[str, list[Effect]]:
        known = (self.peer_life, self.peer_beginning)
        told = (frame.life, frame.next)
        if frame.pipe != self.directions.incoming:
            return "foreign", []
        if frame.life < self.peer_life:
            return "fenced", [self._refusal(frame, RefusedReason.FENCED)]
        if told < known:
            return "stale_link", []
        if frame.stack != self.directions.peer_digest:
            return "wrong_state", [*self._other_layers(frame), self._refusal(frame)]
        if frame.life > self.peer_life > 0:
            # Its former life may run beside it, and hear our Open in its place: for that one it is a new
            # beginning, so that it asks anew, and hears that it is replaced.
            self.beginning += 1
        self.peer_life, self.peer_beginning = told
        self.receiving_open = True
        effects: list[Effect] = []
        is_anew = told > known > (0, 0)
        if is_anew or not (self.sending_open or self.open_at is not None):
            # The other end doesn't know (any more) that we send, so we open to it again.
            effects += self._open_again(now)
        head = (self.directions.incoming, CHANNEL_LAYER, frame.link, incarnation)
        effects.append(Transmit(Opened(*head, frame.epoch, 1, 0, 0, closed=False)))
        return "", [*effects, *self._note_up(now)]

    def _refusal(self, frame: Open, reason: RefusedReason = RefusedReason.STACK) -> Effect:
        head = (frame.pipe, CHANNEL_LAYER, frame.link, frame.epoch)
        return Transmit(Refused(*head, reason, self.peer_life))

    def _other_layers(self, frame: Open) -> list[Effect]:
        if frame.life == self.refused_life:
            return []
        self.refused_life = frame.life
        detail = difference(self.directions.terms, None)
        return [Notice(NoticeKind.MISMATCH, frame.life, (), detail)]

    # The other end answers.

    def _on_opened(self, frame: Opened, now: int) -> tuple[str, list[Effect]]:
        if frame.pipe != self.directions.outgoing:
            return "foreign", []
        if frame.link != self.link:
            return "stale_link", []
        is_other = self.peer_incarnation not in (0, frame.incarnation)
        if self.sending_open and not is_other:
            is_news = self.up and not self.is_sure
            self.heard()
            return ("" if is_news else "repeated_confirm"), []
        self.peer_restarted = is_other
        self.peer_incarnation = frame.incarnation
        self.sending_open = self.was_answered = True
        return "", self._note_up(now)

    def heard(self) -> None:
        """The other end is there, and not only as it was when it opened."""
        if self.up and not self.is_sure:
            self.is_sure = True
            self.open_at = None

    def _on_unknown(self, frame: Unknown, now: int) -> tuple[str, list[Effect]]:
        if frame.pipe != self.directions.outgoing:
            return "foreign", []
        if not self.sending_open:
            return "wrong_state", []
        return "", self._open_again(now)

    def _on_refused(self, frame: Refused, now: int) -> tuple[str, list[Effect]]:
        if frame.pipe != self.directions.outgoing:
            return "foreign", []
        if frame.link != self.link:
            return "stale_link", []
        match meaning_of(frame, self.life, difference(self.directions.terms, None)):
            case None:
                return "impossible", []
            case TurnedAway(detail, kind):
                self.stop(detail, is_mismatched=kind is NoticeKind.MISMATCH)
            case Superseded(known) if self.was_answered:
                self.stop(f"the other end serves life {known}")
            case Superseded(known):
                self.life = next_life(known, self.life)
                self.beginning = 1
                self.link = self.rng.getrandbits(63) + 1
                return "", self._open_again(now)
        return "", []

    def stop(self, detail: str, *, is_mismatched: bool = False) -> None:
        """Open nothing more: another end is served, or the two are configured differently."""
        self.stopped = detail
        self.is_mismatched = is_mismatched
        self.up = self.sending_open = self.receiving_open = False
        self.open_at = None

    def _open_again(self, now: int) -> list[Effect]:
        self.up = self.sending_open = False
        self.attempts = 0
        return self.open(now)

    def _note_up(self, now: int) -> list[Effect]:
        if self.up or not (self.sending_open and self.receiving_open):
            return []
        self.up = True
        self.is_sure = False
        self.open_at = now + 2 * micros(self.options.open_initial_s)
        return [Notice(NoticeKind.UP, self.life, (), self.name)]
