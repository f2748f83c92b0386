"""Schedules that once broke a channel, shrunk to what matters."""

from __future__ import annotations

from surepipe.pipes.channel import CHANNEL_LAYER, Role
from surepipe.pipes.wire.frames import Frame, Open
from tests.kit.channel_wire import CALLER, LISTENER, ChannelWire

SECOND = 1_000_000


def test_channel_listener_dies_between_its_answer_and_its_own_open() -> None:
    """channel: handshake: the caller's Open is answered, the listener's own is lost and its process ends.

    1. the caller opens; the listener comes into being, answers, and opens its own direction;
    2. that Open is lost, and so is the listener before it can repeat it;
    3. whoever listens now knows nothing: unless the caller goes on opening, nobody ever speaks again.
    """
    lost: list[Frame] = []

    def lose(frame: Frame, sender: Role, _number: int) -> bool:
        is_own_open = isinstance(frame, Open) and frame.layer == CHANNEL_LAYER
        if sender is LISTENER and is_own_open and LISTENER not in gone:
            lost.append(frame)
            return True
        return False

    gone: list[Role] = []
    wire = ChannelWire("multi-unconfirmed", "multi-unconfirmed", lose=lose)
    wire.send(CALLER, 1)
    wire.run(SECOND // 2)
    assert lost
    gone.append(LISTENER)
    wire.stop_listening_end()
    wire.run(120 * SECOND)
    assert wire.up()
    assert wire.ends[CALLER].confirmed == 1
