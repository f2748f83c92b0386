"""Whatever arrives, every pipe gives a defined result (pipes P-8, F-2)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol, cast

import pytest

from surepipe.core.effects import Deliver, Effect
from surepipe.pipes.catalogue import KINDS, LayerText
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.wire.codec import NotAFrame, decode, encode
from surepipe.pipes.wire.frames import tag_of
from tests.kit.frames import mutated, random_frame
from tests.kit.wire import Wire

pytestmark = pytest.mark.long

PIPE = tag_of("pipe")
STACKS: dict[str, list[LayerText]] = {
    **{kind: [kind] for kind in KINDS if kind != "stream"},
    "stream": [{"stream": {"start": "earliest"}}],
    "continuous-index > multi-unconfirmed": ["continuous-index", "multi-unconfirmed"],
    "dedupe > multi-unconfirmed": ["dedupe", "multi-unconfirmed"],
    "strict-monotonic > resend": ["strict-monotonic", "resend"],
    "resend > strict-monotonic": ["resend", "strict-monotonic"],
}
all_stacks = pytest.mark.parametrize("layers", STACKS.values(), ids=STACKS.keys())
COUNTS = "_counts"


class End(Protocol):
    """What the tests need of a machine."""

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame has arrived."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Everything counted."""
        ...

    def export(self) -> object:
        """The whole state."""
        ...


def busy_wire(layers: list[LayerText]) -> Wire:
    """Both ends in the middle of something: settled, in work, lost and waiting messages."""
    wire = Wire(layers, auto_settle=False)
    for number in range(6):
        wire.send(number, number)
    wire.exchange()
    if wire.open:
        wire.settle(1)
    wire.exchange()
    wire.send(7)
    return wire


def state_of(end: End) -> object:
    """Everything the machine knows, except what it counted and the time."""
    stack, *parts = cast("list[Any]", end.export())
    kept = [(name, value) for name, value in stack if name not in (COUNTS, "now")]
    return [kept, *parts]


def touched(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """The counters that changed."""
    return [name for name in after if after[name] != before[name]]


@lru_cache(maxsize=1)
def undecodable_inputs() -> list[bytes]:
    """10,000 of them, the same for every pipe."""
    rng = random.Random(11)
    return [undecodable_bytes(rng) for _ in range(10_000)]


def undecodable_bytes(rng: random.Random) -> bytes:
    """Random bytes, or a frame after an accident that it did not survive."""
    while True:
        if rng.random() < 0.3:
            data = rng.randbytes(rng.randrange(80))
        else:
            data = mutated(rng, encode(random_frame(rng, PIPE, layers=2)))
        if isinstance(decode(data), NotAFrame):
            return data


@all_stacks
def test_random_bytes_change_nothing_but_one_counter(layers: list[LayerText]) -> None:
    """10,000 inputs to each end in mid-run: no effect, no change, exactly one counter by one."""
    wire = busy_wire(layers)
    for end in (wire.sender, wire.receiver):
        before, counted = state_of(end), end.counters()
        for data in undecodable_inputs():
            assert end.frame(data, wire.now) == []
            counts = end.counters()
            (name,) = touched(counted, counts)
            assert name in ("malformed", "version")
            assert counts[name] == counted[name] + 1
            counted = counts
        assert state_of(end) == before


@all_stacks
def test_frames_of_another_pipe_or_layer_change_nothing_but_one_counter(
    layers: list[LayerText],
) -> None:
    """F-3: sound frames with another pipe's tag, or a layer that this stack doesn't have."""
    wire = busy_wire(layers)
    rng = random.Random(12)
    for end in (wire.sender, wire.receiver):
        before = state_of(end)
        for _ in range(100):
            for frame, name in (
                (random_frame(rng, PIPE + 1, len(layers)), "foreign"),
                (random_frame(rng, PIPE, 1000), "wrong_state"),
            ):
                counted = end.counters()
                if frame.layer < len(layers) and name == "wrong_state":
                    continue
                assert end.frame(frame, wire.now) == []
                assert touched(counted, end.counters()) == [name]
        assert state_of(end) == before


@all_stacks
@pytest.mark.parametrize("seed", range(2))
def test_any_sound_frame_gives_a_defined_result(layers: list[LayerText], seed: int) -> None:
    """200 frames of all kinds with nearly sensible numbers: nothing is raised, bounds hold, and
    what changed nothing and answered nothing touched exactly one counter."""
    wire = busy_wire(layers)
    rng = random.Random(seed)
    host = Host(wire.receiver)
    for end in (wire.sender, wire.receiver):
        for _ in range(200):
            frame = random_frame(rng, PIPE, len(layers))
            before, counted = state_of(end), end.counters()
            effects = end.frame(frame, wire.now)
            if not effects and state_of(end) == before:
                assert len(touched(counted, end.counters())) == 1, frame
            if end is wire.receiver:
                host.handle(effects)
                gauges = wire.receiver.gauges()
                assert gauges.get("held", 0) + gauges.get("in_work", 0) <= 1024 * len(layers)


class Host:
    """Settles whatever is delivered, a little later."""

    def __init__(self, receiver: ReceiverStack) -> None:
        self.receiver = receiver
        self.open: list[Deliver] = []

    def handle(self, effects: list[Effect]) -> None:
        """Keep what is delivered; settle the oldest delivery once three are open."""
        self.open += [effect for effect in effects if isinstance(effect, Deliver)]
        if len(self.open) > 2 or (self.open and self.receiver.gauges().get("in_work", 0) > 100):
            oldest = self.open.pop(0)
            last = oldest.first + len(oldest.payloads) - 1
            self.handle(self.receiver.settled(oldest.ticket, ((oldest.first, last),), 0))
