"""Frames of index pipes made by hand, for messages that a wire's sender has accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.agreement import stack_digest
from surepipe.pipes.wire.frames import Numbered, Open, Unknown, tag_of
from tests.kit.wire import Wire


def wire_with(
    count: int, layers: LayerText | Sequence[LayerText], *, auto_settle: bool = True
) -> Wire:
    """A wire whose sender has accepted messages 1..count, each in a frame of its own."""
    wire = Wire(layers, auto_settle=auto_settle)
    for number in range(1, count + 1):
        wire.send(number)
    return wire


def epoch_of(wire: Wire) -> int:
    """The epoch of the newest message accepted."""
    return max(epoch for epoch, _ in wire.positions)


def run(wire: Wire, first: int, last: int, epoch: int = 0) -> Numbered:
    """The frame of these messages, as any sender of the pipe would cut it."""
    epoch = epoch or epoch_of(wire)
    payloads = [wire.accepted[wire.positions[epoch, seq] - 1] for seq in range(first, last + 1)]
    return Numbered(tag_of(wire.pipe), 0, epoch, first, payloads)


def arrive_in_order(wire: Wire, *order: int) -> None:
    """Let the frames on the wire arrive in this order, by the number of their message."""
    frames = list(wire.to_receiver)
    wire.to_receiver.clear()
    for number in order:
        wire.arrive(frames[number - 1])


def with_payload(frame: Numbered, payload: bytes) -> Numbered:
    """The same message, with other contents: what an honest sender never sends."""
    return replace(frame, payloads=[payload])


def strictly_rises(numbers: Sequence[int]) -> bool:
    """Monotonic and without repeats."""
    return all(a < b for a, b in pairwise(numbers))


def counted(wire: Wire) -> dict[str, int]:
    """The receiver's counters that are not zero, without the one of the delivery."""
    return {k: v for k, v in wire.receiver.counters().items() if v and k != "settled"}


def held(wire: Wire) -> int:
    """Messages that the receiver holds until an earlier one comes."""
    return wire.receiver.gauges()["held"]


def unknowns(wire: Wire) -> int:
    """How often the receiver asked where the epoch starts."""
    return sum(isinstance(frame, Unknown) for frame in wire.sent_back)


def opening(wire: Wire, base: int, epoch: int = 0, stack: int | None = None) -> Open:
    """The Open that the wire's sender would give with this base."""
    epoch = epoch or epoch_of(wire)
    digest = stack_digest(parse_layers(wire.layers)) if stack is None else stack
    following = max(base, len(wire.accepted) + 1)
    return Open(tag_of(wire.pipe), 0, epoch, 0, epoch, base, following, digest)
