"""Lives and fencing: who is served, who is refused, and what a refusal means to the one who gets it.

Each start of a sender is a *life* with a number. A receiver serves the highest life that it has met. This is
why:

1. A sender, life 5, hangs and is taken for dead. Another process begins under its name, as life 6.
2. Life 6 sends. The receiver serves it from now on; what was in work of life 5 stays in work.
3. Life 5 wakes up and goes on. Were its messages delivered, they would come behind those of life 6, and two
   histories would be confirmed under one name. So whatever comes from below 6 is refused, and its sender is
   told that 6 is known.
4. Life 5 was answered before, so others know its numbers. It stops for good (Fenced) and names what is
   unconfirmed.
5. But suppose that it is life 6 that has died, and the one that is refused has just begun, with a clock that
   was set back. Nobody has answered it, so nobody knows its numbers, and it is the one that lives. It takes a
   number above 6 and numbers its messages again; nothing is lost and nothing comes twice.
6. It may die before anybody hears of its new number, and the next life would go above the same 6. What was
   drawn by chance when each began keeps their numbers apart (``next_life``). A journal writes the number down,
   but two may read it before either has written: one that hangs in between, and the one that replaces it.
7. A refusal may come late. One for another link or epoch speaks of the past and is counted; its layer knows
   which. One that names a life that is not above ours can't be meant for us: it is impossible, and is counted
   too.
8. Any other refusal, whatever its reason, stops the sender, and it says so. Nobody will ever take its messages,
   and a sender that went on sending them again would never tell.

Receivers ask here what to say (``turn_away``), senders what to do (``obey``). A store refuses by the same rule,
with the number of whoever owns a name (``storage/positions.py``); its answer reaches a sender as step 4 or 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from surepipe.core.effects import NoticeKind
from surepipe.pipes.stack.layers import ReceiverPort, SenderPort
from surepipe.pipes.wire.frames import Refused, RefusedReason

_CHANCE = (1 << 20) - 1
"""The lower bits of a life's number, which are drawn when it begins by the clock."""


def next_life(above: int, own: int) -> int:
    """A number above another one, for a life that began below it (step 6)."""
    return above + 1 + (own & _CHANCE)


def life_above(last: int, own: int) -> int:
    """The number of a life that begins: its own, by the clock, or above the last one where the clock is behind."""
    return own if own > last else next_life(last, own)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer life is served: stop, or take a number above ``known`` (steps 4 and 5)."""

    known: int


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """The other end will never serve this sender (step 8)."""

    detail: str
    kind: NoticeKind


Meaning: TypeAlias = Superseded | TurnedAway | None


def meaning_of(refused: Refused, own: int, differs: str) -> Meaning:
    """What a refusal of the link and epoch that are being sent means to life ``own``; None: it is impossible.

    ``differs``: what to say of two ends that are configured differently.
    """
    if refused.reason is RefusedReason.FENCED:
        return Superseded(refused.known) if refused.known > own else None
    if refused.reason is RefusedReason.STACK:
        return TurnedAway(differs, NoticeKind.MISMATCH)
    name = refused.reason.name.lower().replace("_", "-")
    # An epoch is forgotten only after newer ones were served; a version that differs is no question of lives.
    was_replaced = refused.reason is RefusedReason.UNKNOWN_EPOCH
    kind = NoticeKind.FENCED if was_replaced else NoticeKind.MISMATCH
    return TurnedAway(f"the receiver refuses epoch {refused.epoch}: {name}", kind)


def obey(port: SenderPort, refused: Refused, own: int, *, answered: bool) -> bool:
    """Do what a refusal asks of a sender. False when it is impossible: it is counted, and nothing changes."""
    match meaning_of(refused, own, port.differs):
        case Superseded(known):
            port.fenced(known, answered=answered)
        case TurnedAway(detail, kind):
            port.stop(detail, kind)
        case None:
            port.count("impossible")
            return False
    return True


def turn_away(
    port: ReceiverPort,
    link: int,
    epoch: int,
    known: int,
    reason: RefusedReason = RefusedReason.FENCED,
) -> None:
    """Tell the sender of ``epoch`` that it is not served, and which life or epoch is known."""
    port.control(Refused(port.tag, port.layer, link, epoch, reason, known))
