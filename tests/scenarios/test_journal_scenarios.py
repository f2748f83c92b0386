"""Shrunk runs that once went wrong, of senders with and without a journal."""

from __future__ import annotations

from surepipe.core.effects import NoticeKind
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.frames import Confirm
from tests.kit.journal import MemoryJournal
from tests.kit.wire import SECOND, Wire

COMMITTED = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True)


def test_journal_confirm_lost_then_sender_crash_a_new_life_hears_of_more_than_it_has_sent() -> None:
    """sequential-confirm: 1 and 2 settled, confirm of 2 and the journal's note lost; restart.

    The new life sends 1 and is answered cum 2. It was an impossible confirm once, and 1 was sent for ever.
    """
    wire = Wire("sequential-confirm", boundary=COMMITTED, journal=MemoryJournal())
    wire.send(1, 2)
    while 2 not in wire.settled:
        wire.transfer(len(wire.to_receiver), back=0)
        wire.transfer(0, back=len(wire.to_sender) if len(wire.settled) < 2 else 0)
    wire.drop_all()
    assert wire.journal is not None
    wire.journal.confirmed = (0, 0)
    wire.journal.rows[1 << 20] = [(1, b"1"), (2, b"2")]
    wire.crash_sender()
    wire.run(until_us=100 * SECOND)
    assert any(isinstance(frame, Confirm) and frame.cum == 2 for frame in wire.sent_back)
    assert wire.sender.counters()["impossible"] == 0
    assert wire.settled == [1, 2]
    assert wire.sender.idle


def test_accept_sender_crash_between_transmit_and_accepted() -> None:
    """A message was on the wire before it was reported accepted, so it could settle unaccepted (V-2)."""
    for effect in range(1, 12):
        wire = Wire("multi-unconfirmed", crashes=frozenset({("sender", effect)}))
        wire.send(1, 2)
        wire.run()
        assert all(position <= len(wire.accepted) for position in wire.settled)


def test_dead_letter_committed_receiver_crash_after_the_letter() -> None:
    """The letter had no cursor of its own: a restart took its confirm for a rollback of the state."""
    boundary = BoundaryOptions(
        boundary=Boundary.COMMITTED, durable=True, retries=1, dead_letters=True
    )
    wire = Wire("reliable", boundary=boundary, auto_settle=False)
    wire.exchange()
    wire.send(1)
    wire.exchange()
    wire.fail(1)
    wire.advance(SECOND)
    wire.exchange()
    assert wire.confirmed == {1}
    wire.crash_receiver()
    wire.auto_settle = True
    wire.send(2)
    wire.run()
    assert wire.settled == [2]
    assert [notice.kind for _, notice in wire.notices] == [NoticeKind.POISON]  # no rollback
