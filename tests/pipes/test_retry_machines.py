"""What holds for each retry machine as a machine: totality, export and restore, same seed same effects."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from surepipe.core.effects import Deliver, Effect, Transmit, WakeAt
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.retry.engine import RetrySender
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.counters import FRAME_COUNTERS
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Nack, Probe
from tests.kit.frames import random_frame
from tests.kit.wire import Wire

SMALL = {"window": 12, "backlog": 20, "run_max": 4, "receive_window": 10, "warn_after": 2}
PIPES: list[LayerText | list[LayerText]] = [
    {"resend": SMALL},
    {"multi-unconfirmed": SMALL},
    {"multi-unconfirmed": {**SMALL, "give_up_after_s": 3.0}},
    {"sequential-confirm": SMALL},
    {"sequential-confirm": {**SMALL, "repeats": "forward"}},
    [{"sequential-confirm": {"retry": "carrier"}}, {"multi-unconfirmed": SMALL}],
    [{"multi-unconfirmed": SMALL}, {"resend": SMALL}],
    ["strict-monotonic", {"resend": SMALL}],
]


@dataclass
class Driver:
    """Both ends, and a crowd of random inputs that is the same for the same seed."""

    sender: SenderStack
    receiver: ReceiverStack
    rng: random.Random
    now: int = 0
    forward: list[Frame] = field(default_factory=list[Frame])
    back: list[Frame] = field(default_factory=list[Frame])
    open: list[Deliver] = field(default_factory=list[Deliver])
    effects: list[Effect] = field(default_factory=list[Effect])

    def drive(self, steps: int) -> list[Effect]:
        """So many random inputs; all effects of both ends, in order."""
        self.effects = []
        for _ in range(steps):
            self.now += self.rng.choice((0, 1_000, 20_000, 900_000))
            self._one_input()
        return self.effects

    def _one_input(self) -> None:
        kind = self.rng.randrange(10)
        if kind < 2:
            batch = [self.rng.randbytes(3) for _ in range(self.rng.randrange(1, 9))]
            self._from_sender(self.sender.send(batch, self.now))
        elif kind < 5 and self.forward:
            frame = self._taken(self.forward)
            self._from_receiver(self.receiver.frame(frame, self.now))
        elif kind < 7 and self.back:
            self._from_sender(self.sender.frame(self._taken(self.back), self.now))
        elif kind == 7 and self.open:
            self._handle(self.open.pop(self.rng.randrange(len(self.open))))
        elif kind == 8:
            self._from_sender(self.sender.wake(self.now))
        else:
            self._from_receiver(self.receiver.wake(self.now))

    def _taken(self, frames: list[Frame]) -> Frame:
        """A frame from anywhere on the route; one in four stays there, to come again."""
        at = self.rng.randrange(len(frames))
        return frames[at] if self.rng.randrange(4) == 0 else frames.pop(at)

    def _handle(self, delivery: Deliver) -> None:
        last = delivery.first + len(delivery.payloads) - 1
        if self.rng.randrange(5):
            done = ((delivery.first, last),)
            self._from_receiver(self.receiver.settled(delivery.ticket, done, self.now))
        else:
            error = ("ValueError", "boom")
            self._from_receiver(
                self.receiver.failed(delivery.ticket, delivery.first, error, self.now)
            )

    def _from_sender(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.forward += [e.frame for e in effects if isinstance(e, Transmit)]  # type: ignore[misc]

    def _from_receiver(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.back += [e.frame for e in effects if isinstance(e, Transmit)]  # type: ignore[misc]
        self.open += [e for e in effects if isinstance(e, Deliver)]


def fresh(layers: LayerText | list[LayerText], seed: int) -> Driver:
    """A pair of machines that were just started."""
    options = parse_layers(layers)
    sender = SenderStack("pipe", options, rng=random.Random(seed), life_hint=1 << 20)
    receiver = ReceiverStack("pipe", options, rng=random.Random(seed + 1))
    receiver.wake(0)
    sender.wake(0)
    return Driver(sender, receiver, random.Random(seed + 2))


def twin(driver: Driver, layers: LayerText | list[LayerText]) -> Driver:
    """Machines built anew from the exported states of these, with the same random numbers to come."""
    options = parse_layers(layers)
    rngs = [random.Random(), random.Random()]
    sender = SenderStack("pipe", options, rng=rngs[0], life_hint=1 << 20)
    receiver = ReceiverStack("pipe", options, rng=rngs[1])
    sender.restore(driver.sender.export())
    receiver.restore(driver.receiver.export())
    for rng, machine in zip(rngs, (driver.sender, driver.receiver), strict=True):
        assert isinstance(machine.rng, random.Random)
        rng.setstate(machine.rng.getstate())
    state = copy.deepcopy((driver.rng, driver.forward, driver.back, driver.open))
    return Driver(sender, receiver, state[0], driver.now, *state[1:])


@pytest.mark.parametrize("layers", PIPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_effects(
    layers: LayerText | list[LayerText], seed: int
) -> None:
    """P-12: two pairs, 400 random inputs each."""
    assert fresh(layers, seed).drive(400) == fresh(layers, seed).drive(400)


@pytest.mark.parametrize("layers", PIPES, ids=str)
@pytest.mark.parametrize("steps", [0, 60, 300])
def test_a_restored_machine_goes_on_with_the_same_effects(
    layers: LayerText | list[LayerText], steps: int
) -> None:
    """P-11: both ends exported in the middle of a run, restored in fresh machines, driven on alike."""
    driver = fresh(layers, steps)
    driver.drive(steps)
    other = twin(driver, layers)
    assert other.sender.export() == driver.sender.export()
    assert other.drive(200) == driver.drive(200)


def machine_state(machine: SenderStack | ReceiverStack) -> list[object]:
    """The exported parts of a machine, without its clock and counters."""
    state = machine.export()
    return cast("list[object]", state)[1:]


def frame_counts(machine: SenderStack | ReceiverStack) -> int:
    """How many frames the machine has ignored."""
    counters = machine.counters()
    return sum(counters[name] for name in FRAME_COUNTERS)


def addressed(frame: Frame, sender: SenderStack, rng: random.Random) -> Frame:
    """Often the link and epoch that the sender uses now, so that the frame is nearly right."""
    layer = sender.layers[frame.layer]
    if not isinstance(layer, RetrySender) or not rng.randrange(4):
        return frame
    if isinstance(frame, Data | Probe | Confirm | Nack):
        return replace(frame, link=layer.link, epoch=layer.epoch)
    return frame


@pytest.mark.long
@pytest.mark.parametrize("layers", PIPES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_any_frame_in_any_state_gives_a_defined_result(
    layers: LayerText | list[LayerText], seed: int
) -> None:
    """P-8, V-5: random frames amid real traffic: no exception, bounds hold, and an ignored frame changes
    one counter only. (In a stack, a frame of the inner layer brings several of the outer.)"""
    driver = fresh(layers, seed)
    options = parse_layers(layers)
    ignored = 0
    for _ in range(250):
        driver.drive(1)
        frame = random_frame(driver.rng, driver.sender.tag, len(options))
        frame = addressed(frame, driver.sender, driver.rng)
        for machine in (driver.sender, driver.receiver):
            before, count = machine_state(machine), frame_counts(machine)
            effects = machine.frame(frame, driver.now)
            if frame_counts(machine) > count and len(options) == 1:
                ignored += 1
                assert frame_counts(machine) == count + 1
                assert machine_state(machine) == before
            driver.open += [e for e in effects if isinstance(e, Deliver)]
            assert_bounded(machine, options[0])
    assert ignored > 100 or len(options) > 1


def assert_bounded(machine: SenderStack | ReceiverStack, options: object) -> None:
    """V-5 under any input."""
    if isinstance(options, RetryOptions):
        gauges = machine.gauges()
        assert 0 <= gauges.get("in_flight", 0) <= options.window
        assert 0 <= gauges.get("backlog", 0) <= options.backlog
        assert gauges.get("held", 0) + gauges.get("in_work", 0) <= options.held_max


@pytest.mark.parametrize("layers", PIPES, ids=str)
def test_a_wake_that_is_early_late_or_doubled_is_harmless(
    layers: LayerText | list[LayerText],
) -> None:
    """P-4: wakes before the deadline transmit nothing and leave the deadline alone."""
    wire = Wire(layers)
    wire.send(1, 2, 3)
    due = wire.deadline["sender"]
    assert due is not None
    for early in (1, due // 2, due - 1):
        assert transmitted(wire.sender.wake(early)) == []
    late = wire.sender.wake(due + 5_000_000)
    assert transmitted(wire.sender.wake(due + 5_000_000)) == []
    armed = [effect.deadline for effect in late if isinstance(effect, WakeAt)]
    assert all(deadline is None or deadline > due + 5_000_000 for deadline in armed)


def transmitted(effects: list[Effect]) -> list[object]:
    """The frames put on the route."""
    return [effect.frame for effect in effects if isinstance(effect, Transmit)]
