"""Schedules that random runs found, of the pipes that send again, alone and on top of each other."""

from __future__ import annotations

import random

import pytest

from surepipe.core.effects import Effect, OpenLife, Persist, Renumber, WriteFenced
from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.wire.frames import Confirm, Data, Refused, RefusedReason
from tests.kit.journal import MemoryJournal
from tests.kit.wire import MS, SECOND, Wire


@pytest.mark.parametrize("kind", ["resend", "multi-unconfirmed", "sequential-confirm", "reliable"])
def test_a_frame_that_fits_only_in_part_does_not_occupy_its_carrier_for_ever(kind: str) -> None:
    """P-9: room for 2 of the 5 in one frame; the carrier, one frame at a time, has to let the rest pass."""
    small = {"run_max": 5, "window": 5, "receive_window": 2, "initial_credit": 5}
    wire = Wire([{kind: small}, "resend"])
    wire.send(1, 2, 3, 4, 5, 6)
    wire.run(until_us=60 * SECOND)
    assert wire.confirmed == {1, 2, 3, 4, 5, 6}


def test_what_has_no_room_over_a_carrier_without_repeats_comes_again() -> None:
    """K-2: continuous-index on a lossless route brings nothing again, the layer above it does."""
    small = {"run_max": 3, "window": 3, "receive_window": 1, "initial_credit": 3}
    wire = Wire([{"sequential-confirm": small}, "continuous-index"])
    wire.send(1, 2, 3, 4)
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["resend", "multi-unconfirmed", "sequential-confirm", "reliable"])
def test_a_layer_that_sends_again_does_not_keep_its_carrier_waiting(kind: str) -> None:
    """The handler has not returned, and the carrier's message is confirmed: its window is free for repeats."""
    wire = Wire([kind, {"resend": {"run_max": 1}}], auto_settle=False)
    wire.send(1)
    for _ in range(4):
        wire.transfer()
    assert wire.open, "the handler is at work"
    confirms = [f for f in wire.sent_back if isinstance(f, Confirm)]
    assert max(f.cum for f in confirms if f.layer == 1) == 1
    assert all(f.cum == 0 for f in confirms if f.layer == 0)


def test_the_oldest_message_has_room_when_bytes_are_short() -> None:
    """T-1: 2 and 3 fill the bytes and wait above for 1, which was lost; 1 is taken all the same."""
    layers = [
        {"continuous-index": {"run_max": 1}},
        {"multi-unconfirmed": {"run_max": 1, "receive_window_bytes": 300}},
    ]
    wire = Wire(layers)
    wire.send(b"a" * 80, b"b" * 80, b"c" * 80)
    wire.drop()
    wire.run(until_us=60 * SECOND)
    assert wire.settled == [1, 2, 3]


@pytest.mark.parametrize("bound", [{"receive_window": 2}, {"receive_window_bytes": 200}])
def test_what_is_refused_above_a_window_is_not_overtaken(bound: dict[str, object]) -> None:
    """K-2: strict-monotonic had no room for a message. Until that one comes again the window takes no later one,
    which would make it come too late: it was lost, on a route without any fault."""
    strict: LayerText = {"strict-monotonic": {"run_max": 1, **bound}}
    window: LayerText = {"multi-unconfirmed": {"run_max": 2, "window": 8}}
    wire = Wire([strict, window, {"resend": {"run_max": 2}}], handler_us=50 * MS)
    wire.send(*[b"x" * size for size in (150, 90, 1) * 5])
    wire.run(until_us=600 * SECOND)
    assert wire.receiver.counters()["over_limit"] > 0
    assert wire.settled == list(range(1, 16))


def test_a_unit_that_the_carrier_had_no_room_for_is_offered_again() -> None:
    """retry: carrier: its own confirm overtakes the carrier's, so the carrier is still full at that moment."""
    one = {"continuous-index": {"receive_window": 1}}
    wire = Wire([{"sequential-confirm": {"retry": "carrier"}}, one, "multi-unconfirmed"])
    wire.send(1, 2, 3)
    wire.run(until_us=60 * SECOND)
    assert wire.confirmed == {1, 2, 3}


def _persisted(effects: list[Effect]) -> Persist:
    return next(effect for effect in effects if isinstance(effect, Persist))


def _store(sender: SenderStack, journal: MemoryJournal, write: Persist, now: int) -> list[Effect]:
    return sender.answer(write.ticket, journal.write(write.write), now)


def test_a_replaced_sender_does_not_take_the_journal_back() -> None:
    """L-2, L-7: its successor has opened the journal, so what the receiver refuses is not numbered again."""
    journal = MemoryJournal()
    layers = parse_layers("sequential-confirm")
    rng = random.Random(1)
    old = SenderStack("pipe", layers, rng=rng, life_hint=10, journal=journal.contents())
    _store(old, journal, _persisted(old.wake(0)), 0)
    stored = _store(old, journal, _persisted(old.send([b"a"], 1)), 1)
    sent = _store(old, journal, _persisted(stored), 2)
    frame = next(f for e in sent if isinstance(f := getattr(e, "frame", None), Data))
    journal.write(OpenLife(20))
    rows = dict(journal.rows)

    refusal = Refused(frame.pipe, 0, frame.link, frame.epoch, RefusedReason.FENCED, 20)
    asked = _persisted(old.frame(refusal, 3))

    assert isinstance(asked.write, Renumber)
    assert asked.write.by == 10
    assert journal.write(asked.write) == WriteFenced(20)
    old.answer(asked.ticket, WriteFenced(20), 4)
    assert old.stopped
    assert journal.rows == rows


def test_what_a_closed_epoch_settled_is_counted_once_and_gives_its_bytes_back() -> None:
    """O-2, L-8: a life without the journal came between; all rows of the older epoch turn out to be settled."""
    journal = MemoryJournal()
    wire = Wire({"reliable": {"backlog": 1, "window": 1}}, journal=journal)
    wire.send(b"a")
    wire.run(until_us=SECOND)
    wire.send(b"b")
    wire.run(until_us=2 * SECOND)
    epoch = journal.life
    journal.rows = {epoch: [(1, b"a"), (2, b"b")]}  # it had not heard of the confirms yet
    journal.confirmed = (0, 0)
    wire.journal = None
    wire.crash_sender()
    wire.send(b"c")
    wire.transfer()
    wire.journal, wire.auto_answer = journal, False
    wire.crash_sender()
    for _ in range(12):
        gauges, counted = wire.sender.gauges(), wire.sender.counters()
        assert gauges["loaded"] == counted["confirmed"] + gauges["in_flight"] + gauges["backlog"]
        if wire.unanswered:
            wire.answer(*wire.unanswered.pop(0))
        else:
            wire.transfer()
    assert wire.sender.idle
    assert wire.sender.counters()["confirmed"] == 2
    assert wire.sender.room_bytes == 64 * 1024 * 1024


@pytest.mark.parametrize(
    "options",
    [{"run_max": 4, "receive_window": 2}, {"frame_max_bytes": 4096, "receive_window_bytes": 1024}],
)
def test_a_unit_that_would_never_fit_is_refused_where_nobody_sends_it_again(
    options: dict[str, object],
) -> None:
    """retry: carrier: the part without room would be lost on a carrier that brings nothing twice."""
    with pytest.raises(ConfigurationError, match="retry: carrier"):
        parse_layers({"sequential-confirm": {"retry": "carrier", **options}})
