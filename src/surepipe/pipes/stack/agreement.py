"""What the two ends of a pipe must agree on, and how ends that were configured apart tell each other.

Each end says what it has by an ``Introduction``: when it begins, and again with growing waits until it has heard
the other's. Whoever hears one that differs stops and answers with its own, so both ends know and can say which two
met. An end of an earlier version says nothing and is taken as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from surepipe.core.timing import BackOff
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.wire.frames import Introduction

WHOLE_STACK = 0xFFFF
"""The layer number of frames that concern no single layer; no stack is that deep."""
LAYER_ABOVE = " > "
"""Stands in the text of a stack between a layer and the one below it."""
AGAIN = BackOff(1_000_000, 30_000_000)
TRIES_MAX = 8
"""How often an end speaks that nobody answers: the other may be of a version that doesn't know how."""
_DIGESTED = ("repeats", "relaxed", "retry")
"""Options that stand in every digest, empty where a kind has none of the name, as digests are part of the wire."""


def stack_text(layers: Iterable[LayerOptions]) -> str:
    """A stack as the other end must have it: kinds, and the options that both must agree on where they are not as
    usual. Two stacks may work together when, and only when, their texts are equal."""
    return LAYER_ABOVE.join(map(_layer_text, layers))


def _layer_text(layer: LayerOptions) -> str:
    fields = type(layer).model_fields
    values = {name: getattr(layer, name) for name in layer.agreed}
    given = [
        f"{name}={value}" for name, value in values.items() if value != fields[name].get_default()
    ]
    return f"{layer.kind}({', '.join(given)})" if given else layer.kind


def stack_digest(layers: Iterable[LayerOptions]) -> int:
    """The same as a number, for an Open; it tells that two stacks differ, and not how."""
    agreed = [
        (layer.kind, *(str(getattr(layer, name, "")) for name in _digested(layer)))
        for layer in layers
    ]
    return int.from_bytes(hashlib.blake2b(repr(agreed).encode(), digest_size=8).digest(), "big")


def _digested(layer: LayerOptions) -> Sequence[str]:
    return [*_DIGESTED, *(name for name in layer.agreed if name not in _DIGESTED)]


@dataclass(frozen=True, slots=True)
class Terms:
    """The stack of an end, and how it writes messages as payloads ("" where that can't be compared)."""

    stack: str
    payloads: str = ""

    def fits(self, other: Terms) -> bool:
        """Whether two ends with these work together."""
        is_known = self.payloads and other.payloads
        return self.stack == other.stack and (not is_known or self.payloads == other.payloads)

    def says_no_less_than(self, other: Terms) -> bool:
        """Whether these fit, and the other's would tell nothing more."""
        return self.fits(other) and (bool(self.payloads) or not other.payloads)

    def __str__(self) -> str:
        return f"{self.stack}, payloads {self.payloads}" if self.payloads else self.stack


def difference(own: Terms, met: Terms | None) -> str:
    """Tell people why two ends do not fit, and what to do."""
    other = "others, and does not say which" if met is None else str(met)
    return (
        f"the two ends of this pipe are configured differently: this end has {own}; the other end has {other}. "
        "Give both the same layers and the same codec, and start both again"
    )


class Agreement:
    """What one end knows of the other's terms. ``differs`` says what is wrong, once something is."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("own", "_head", "_sends", "_may_speak")

    def __init__(self, own: Terms, pipe: int, *, sends: bool, may_speak: bool = True) -> None:
        """``pipe``: the tag for frames. ``sends``: true for the sending end (in a channel: for its caller)."""
        self.own = own
        self._head = (pipe, WHOLE_STACK)
        self._sends = sends
        self._may_speak = may_speak
        self.differs = ""
        self.has_heard = False
        self.tries = 0
        self.again_at: int | None = None

    def begin(self, now: int) -> list[Introduction]:
        """Speak from now on, as one does who has not been heard yet."""
        self.tries = 0
        self.again_at = now if self._may_speak else None
        return self.wake(now)

    def wake(self, now: int) -> list[Introduction]:
        """Say it (again), if it is time."""
        if self.again_at is None or self.again_at > now:
            return []
        self.tries += 1
        self.again_at = now + AGAIN.calm(self.tries) if self.tries < TRIES_MAX else None
        return [self._introduction(asks=True)]

    def route_is_back(self, now: int) -> list[Introduction]:
        """Somebody else may be there now."""
        return [] if self.has_heard else self.begin(now)

    def heard(self, frame: Introduction) -> list[Introduction]:
        """The other end tells its terms. One that asks is told ours, also after we have stopped."""
        if frame.sends == self._sends:
            return []  # another sender of this name, or another receiver: the protocol settles who stays
        self.has_heard = True
        self.again_at = None
        met = Terms(frame.stack, frame.payloads)
        if not self.own.fits(met):
            self.differs = difference(self.own, met)
        return [self._introduction(asks=False)] if frame.asks and self._may_speak else []

    def _introduction(self, *, asks: bool) -> Introduction:
        return Introduction(*self._head, self._sends, asks, self.own.stack, self.own.payloads)
