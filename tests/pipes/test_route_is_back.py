"""A host that tells a sender that its route works again: a wait is cut short, and nothing else changes."""

from __future__ import annotations

import pytest

from surepipe.core.effects import NoticeKind
from surepipe.pipes.wire.frames import Confirm, Data, Open
from tests.kit.wire import MS, SECOND, Faults, Wire
from tests.pipes.reliable_kit import ALL_ATOMS, assert_all_confirmed, atoms_of

LONG = {"rto_initial_s": 30.0, "rto_min_s": 30.0, "rto_max_s": 30.0}
RETRYING = ("resend", "multi-unconfirmed", "sequential-confirm", "reliable")
ROUTE = Faults(loss=0.2, duplication=0.2, delay_us=(1 * MS, 60 * MS), fifo=False)


@pytest.mark.parametrize("name", RETRYING)
def test_what_is_on_the_way_leaves_again_at_once(name: str) -> None:
    """T-3: after an outage nobody waits for the deadline, half a minute away."""
    wire = Wire({name: LONG})
    wire.exchange()
    wire.send(1)
    wire.drop_all()
    wire.advance(1 * SECOND)
    assert wire.to_receiver == []
    wire.route_is_back()
    assert [type(frame) for frame in wire.to_receiver] == [Data]
    wire.exchange()
    assert wire.settled == [1]
    assert wire.confirmed == {1}


def test_a_link_that_was_offered_is_offered_again_at_once() -> None:
    """T-9: the Open was lost."""
    wire = Wire({"reliable": LONG})
    wire.drop_all()
    wire.route_is_back()
    assert [type(frame) for frame in wire.to_receiver] == [Open]
    wire.send(1)
    wire.exchange()
    assert_all_confirmed(wire)


@pytest.mark.parametrize("name", RETRYING)
def test_it_says_nothing_when_nothing_waits(name: str) -> None:
    """Told ten times at rest: no frame, no notice, no change of what it counts."""
    wire = Wire({name: LONG})
    wire.send(1)
    wire.exchange()
    before = wire.sender.counters()
    for _ in range(10):
        wire.route_is_back()
    assert wire.to_receiver == []
    assert wire.sender.counters() == before


def test_where_the_carrier_repeats_only_the_carrier_does() -> None:
    """8.3: the layer above it has no deadline of its own, and reports no silence for being told."""
    wire = Wire([{"sequential-confirm": {"retry": "carrier"}}, {"multi-unconfirmed": LONG}])
    wire.send(1)
    wire.drop_all()
    wire.route_is_back()
    assert len(wire.to_receiver) == 1
    assert NoticeKind.UNANSWERED not in wire.kinds_noticed()
    wire.exchange()
    assert wire.settled == [1]


def test_no_more_than_a_burst_leaves_at_once() -> None:
    """T-8: a route that just came back is not flooded; the next Confirm lets the rest follow."""
    options = {**LONG, "run_max": 1, "window": 64, "burst_max": 4}
    wire = Wire({"multi-unconfirmed": options})
    wire.send(*range(1, 33))
    wire.drop_all()
    wire.route_is_back()
    assert len(wire.to_receiver) == 4
    wire.run(until_us=wire.now + SECOND)
    assert wire.confirmed == set(range(1, 33))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", RETRYING)
def test_a_host_that_says_so_at_any_time_breaks_nothing(name: str, seed: int) -> None:
    """P-5: told between any two events of a route with faults; all that a pipe promises still holds."""
    wire = Wire({name: {"run_max": 2, "rto_initial_s": 0.2, "rto_max_s": 1.0}}, seed=seed)

    def now_and_then() -> None:
        if wire.rng.random() < 0.2:
            wire.route_is_back()

    wire.send(*range(1, 31))
    wire.run(ROUTE, each_step=now_and_then)
    assert wire.confirmed == set(range(1, 31)) == set(wire.settled)
    if name in ("reliable", "sequential-confirm"):
        assert atoms_of(wire) == ALL_ATOMS
    assert not [frame for frame in wire.to_sender if not isinstance(frame, Confirm)]
