"""A receiver machine between two micro-batches: a text of its state, from which the next batch goes on.

These are the machines of ``surepipe.pipes``, not others like them: what a channel delivers on Spark is what it
delivers to an actor. Nothing here knows Spark.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import cast

from surepipe.effects import Deliver, Effect, Notice, WakeAt
from surepipe.pipes.frames import Numbered, tag_of
from surepipe.pipes.options import (
    ContinuousIndexOptions,
    LayerOptions,
    LayerText,
    parse_layers,
)
from surepipe.pipes.stack import ReceiverStack


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message as a route brought it: its number in an epoch of its channel, and when, in microseconds."""

    epoch: int
    seq: int
    payload: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class Message:
    """What a receiver delivers."""

    epoch: int
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """What a receiver tells the people who run it, such as a hole that stays open."""

    kind: str
    epoch: int
    text: str


Said = Message | Remark


class KeyedReceiver:
    """The receiver of one channel. ``deadline_us``: when it wants to be woken, None for not at all."""

    def __init__(self, channel: str, layer: LayerText, state: str | None = None) -> None:
        """Fresh, or as it was when ``state`` was taken: with the same channel and layer."""
        self.deadline_us: int | None = None
        self._tag = tag_of(channel)
        # Chance would be drawn anew in each batch, and a batch that is done again must end in the same state.
        self.machine = ReceiverStack(
            channel, [without_chance(layer)], rng=Random(channel), reverse=False
        )
        if state is not None:
            deadline, exported = cast("tuple[int | None, object]", from_text(state))
            self.deadline_us = deadline
            self.machine.restore(exported)

    @property
    def state(self) -> str:
        """All that there is to know about it. Equal states have equal texts."""
        return to_text([self.deadline_us, self.machine.export()])

    def take(self, arrivals: Iterable[Arrival]) -> list[Said]:
        """Take what arrived, in the order of arrival."""
        said: list[Said] = []
        for one in arrivals:
            now = self._start(one.at_us, said)
            if self.deadline_us is not None and now >= self.deadline_us:
                self._perform(self.machine.wake(now), now, said)
            frame = Numbered(self._tag, 0, one.epoch, one.seq, [one.payload])
            self._perform(self.machine.frame(frame, now), now, said)
        return said

    def wake(self, at_us: int) -> list[Said]:
        """Time has passed."""
        said: list[Said] = []
        now = self._start(at_us, said)
        self._perform(self.machine.wake(now), now, said)
        return said

    def _start(self, at_us: int, said: list[Said]) -> int:
        """The time as the machine may be told: it never goes back, whatever the clocks of hosts say."""
        now = max(at_us, self.machine.now)
        if not self.machine.started:
            self._perform(self.machine.wake(now), now, said)
        return now

    def _perform(self, effects: Iterable[Effect], now: int, said: list[Said]) -> None:
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case Deliver(ticket, epoch, first, payloads):
                    said += [Message(epoch, seq, one) for seq, one in enumerate(payloads, first)]
                    last = first + len(payloads) - 1
                    todo.extend(self.machine.settled(ticket, ((first, last),), now))
                case Notice(kind, epoch, ranges, detail):
                    said.append(Remark(str(kind), epoch, _told(ranges, detail)))
                case WakeAt(deadline):
                    self.deadline_us = deadline
                case other:
                    raise AssertionError(f"a receiver without a way back and a store said {other}")


def _told(ranges: Iterable[tuple[int, int]], detail: str) -> str:
    spans = ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in ranges)
    return ": ".join(part for part in (detail, spans) if part)


def without_chance(layer: LayerText) -> LayerOptions:
    """The layer, without the random part of its deadlines."""
    (options,) = parse_layers([layer])
    if isinstance(options, ContinuousIndexOptions):
        return options.model_copy(update={"jitter": 0.0})
    return options


@dataclass(frozen=True, slots=True)
class Standing:
    """How a receiver stands: messages that it holds and can't deliver yet, what it counted, a digest of it all."""

    channel: str
    held: int
    counters: Mapping[str, int]
    digest: str


def standing_of(channel: str, layer: LayerText, state: str) -> Standing:
    """How the receiver of a channel stands that left this state."""
    machine = KeyedReceiver(channel, layer, state).machine
    counted = {name: count for name, count in machine.counters().items() if count}
    return Standing(channel, machine.gauges()["held"], counted, digest_of(state))


def digest_of(state: str) -> str:
    """A short text that differs where states differ."""
    return hashlib.blake2b(state.encode(), digest_size=8).hexdigest()


# Exported states hold lists, numbers, texts and bytes, and no mapping: so a mapping may stand for bytes.


def to_text(value: object) -> str:
    """JSON of an exported state."""
    return json.dumps(value, separators=(",", ":"), default=_bytes_as_mapping)


def from_text(text: str) -> object:
    """The exported state in a text."""
    return json.loads(text, object_hook=_mapping_as_bytes)


def _bytes_as_mapping(value: object) -> object:
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} in the state of a machine")


def _mapping_as_bytes(mapping: dict[str, str]) -> bytes:
    return base64.b64decode(mapping["b"])
