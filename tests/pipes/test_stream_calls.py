"""How long a stream pipe waits for an answer of its store, from the reader's side."""

from __future__ import annotations

from surepipe.core.effects import Call
from surepipe.core.store_requests import DescribeStream, Unavailable
from tests.kit.stream_wire import MS, SECOND, StreamWire


def test_a_question_asked_after_a_pause_has_the_patience_of_a_first_one() -> None:
    """T-2, 8.8: a read meets an outage; a pause later the reader looks, and its call gets lost."""
    wire = StreamWire({"stream": {"start": "earliest", "jitter": 0.0}})
    wire.hold = True
    wire.send("a")
    reader = wire.receiver
    wire.sender.answer_all()
    reader.answer(outcome=Unavailable())
    wire.advance(100 * MS)
    assert isinstance(reader.lose_call(), DescribeStream)
    wire.advance(SECOND - 1)
    assert reader.calls == []
    wire.advance(1)
    assert reader.asked() == ["DescribeStream"]


def test_a_question_asked_after_a_pause_has_a_ticket_of_its_own() -> None:
    """8.8: else a late answer to an older question would pass for its own. None is asked twice here."""
    wire = StreamWire()
    wire.hold = True
    reader = wire.receiver
    for name in "ab":
        wire.send(name)
        wire.sender.answer_all()
        reader.answer(outcome=Unavailable())
        wire.advance(200 * MS)
        assert reader.asked() == ["DescribeStream"]
        reader.answer_all()
        wire.advance(0)
        reader.answer_all()
    tickets = [effect.ticket for effect in reader.effects if isinstance(effect, Call)]
    assert len(set(tickets)) == len(tickets)
