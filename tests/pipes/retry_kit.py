"""What the tests of the retry pipes share: bounds checked at every step, and one fault mix."""

from __future__ import annotations

from collections.abc import Callable

from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.options import RetryOptions
from surepipe.pipes.retry.engine import RetrySender
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Nack, Probe
from tests.kit.wire import MS, Faults, Wire

ROUGH = Faults(loss=0.2, duplication=0.1, delay_us=(1 * MS, 40 * MS), fifo=False)
"""Loss, duplication and reordering together, both ways."""


def bounds_of(wire: Wire) -> Callable[[], None]:
    """V-5 and O-2 for the outermost layer, to be checked after each step."""
    options = parse_layers(wire.layers)[0]
    assert isinstance(options, RetryOptions)

    def check() -> None:
        sender, receiver = wire.sender.gauges(), wire.receiver.gauges()
        assert 0 <= sender["in_flight"] <= options.window
        assert sender["in_flight_bytes"] <= options.window_bytes
        assert 0 <= sender["backlog"] <= options.backlog
        assert receiver["held"] + receiver["in_work"] <= options.held_max
        assert receiver["in_work_bytes"] <= options.held_max_bytes
        counts = wire.sender.counters()
        engine = engine_of(wire)
        on_the_way = {stamp for flight in engine.flights.runs for stamp in flight.stamps}
        assert engine.stamps.keys() <= on_the_way
        left = sender["in_flight"] + sender["backlog"]
        assert counts["accepted"] == counts["confirmed"] + left + counts["given_up"]

    return check


def send_all(wire: Wire, count: int, batch: int = 50) -> None:
    """Send the numbers 1..count, in batches."""
    for first in range(1, count + 1, batch):
        wire.send(*range(first, min(first + batch, count + 1)))


def assert_quiet(wire: Wire) -> None:
    """No deadline is armed at either end."""
    assert wire.deadline == {"sender": None, "receiver": None}


def data_of(wire: Wire, seq: int) -> list[int]:
    """The moments at which the message was put on the wire."""
    return [
        at
        for at, frame in zip(wire.times, wire.sent, strict=True)
        if isinstance(frame, Data) and frame.first <= seq < frame.first + len(frame.payloads)
    ]


def spans(wire: Wire) -> list[tuple[int, int]]:
    """First and last of each Data frame ever sent."""
    return [
        (frame.first, frame.first + len(frame.payloads) - 1)
        for frame in wire.sent
        if isinstance(frame, Data)
    ]


def probes(wire: Wire) -> list[Probe]:
    """Each Probe ever sent."""
    return [frame for frame in wire.sent if isinstance(frame, Probe)]


def nacks(frames: list[Frame]) -> list[Nack]:
    """The Nacks among these frames."""
    return [frame for frame in frames if isinstance(frame, Nack)]


def is_gap_free(settled: list[int]) -> bool:
    """G: nothing arrives before what stands before it."""
    highest = 0
    for position in settled:
        if position > highest + 1:
            return False
        highest = max(highest, position)
    return True


def wire_of(**options: object) -> Wire:
    """multi-unconfirmed with single-message frames, nothing settled unless told."""
    return Wire({"multi-unconfirmed": {"run_max": 1, **options}}, auto_settle=False)


def engine_of(wire: Wire) -> RetrySender:
    """The sending half."""
    layer = wire.sender.layers[0]
    assert isinstance(layer, RetrySender)
    return layer


def confirm(wire: Wire, cum: int, **fields: object) -> Confirm:
    """A Confirm as the receiver would send it, with some fields changed."""
    engine = engine_of(wire)
    values: dict[str, object] = {
        "link": engine.link,
        "incarnation": wire.receiver.incarnation,
        "epoch": engine.epoch,
        "done": (),
        "held": (),
        "limit": cum + 1024,
        "echo": 0,
        **fields,
    }
    return Confirm(wire.sender.tag, 0, cum=cum, **values)  # type: ignore[arg-type]


def nack(wire: Wire, *missing: tuple[int, int]) -> Nack:
    """A Nack of the current link."""
    engine = engine_of(wire)
    head = (wire.sender.tag, 0, engine.link, wire.receiver.incarnation, engine.epoch)
    return Nack(*head, missing)
