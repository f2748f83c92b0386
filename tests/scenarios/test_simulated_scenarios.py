"""What simulated runs found, reduced to what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.errors import CompositionError
from surepipe.pipes.algebra import derive
from surepipe.pipes.algebra.findings import Code
from surepipe.pipes.algebra.guarantees import Atom, Fault
from surepipe.pipes.algebra.hops import LOSSY_ROUTE, Hop
from surepipe.pipes.options import parse_layers
from surepipe.simulation.hop import judge_rows, replay
from surepipe.simulation.promises import hop_of
from surepipe.simulation.properties import judge
from surepipe.simulation.script_file import load
from tests.faults.product import hop, layer
from tests.faults.quarry import QUARRY

SCRIPTS = Path(__file__).parent / "scripts"


def test_algebra_receiver_crash_takes_the_order_of_a_window_over_a_carrier() -> None:
    """algebra: receiver crash: gap-free was derived for multi-unconfirmed over resend (pipes G-10).

    1. the window above answers its carrier when a message is taken, so resend goes on with #2;
    2. the receiver ends before #1 is settled; the fresh one gets #2, and passes it on: nothing orders there;
    3. the window sends #1 again, late.
    """
    slow = layer("resend", rto_initial_s=2.0, rto_max_s=20.0)
    stack = hop("window over resend", layer("multi-unconfirmed"), slow)
    script = load(SCRIPTS / "window-over-resend.json")
    run = replay(stack, script, judge=lambda rows: judge(rows, ["P6g"]))
    assert run.stale is None
    assert run.violates("P6g") is not None
    guarantee = derive(Hop("stack", tuple(stack.parsed), LOSSY_ROUTE)).guarantee
    assert not guarantee.holds(Atom.GAP_FREE, frozenset({Fault.RECEIVER_CRASH}))
    assert not judge_rows(run.rows), "what is promised now, is kept"


def test_algebra_receiver_crash_brings_an_older_message_again_also_where_nothing_repeats() -> None:
    """algebra: receiver crash: monotonic was derived for dedupe over multi-unconfirmed, committed (pipes G-10).

    1. #1 arrives and the receiver ends: a loss, though the route loses nothing;
    2. #2 arrives and is committed; #1 is asked for and comes after it. Nothing came twice.
    """
    stack = next(s for s in QUARRY if s.name == "dedupe over multi-unconfirmed, committed, journal")
    script = load(SCRIPTS / "older-after-a-crash.json")
    run = replay(stack, script, judge=lambda rows: judge(rows, ["P4"]))
    assert run.stale is None
    assert run.violates("P4") is not None
    guarantee = derive(hop_of(stack)).guarantee
    assert not guarantee.holds(Atom.MONOTONIC, frozenset({Fault.RECEIVER_CRASH}))
    assert guarantee.holds(Atom.NO_DUPLICATE, frozenset({Fault.RECEIVER_CRASH}))
    assert not judge_rows(run.rows), "what is promised now, is kept"


def test_algebra_bounds_a_receiver_short_of_bytes_lets_small_messages_pass_large_ones() -> None:
    """algebra: bounds: the receiver's bytes were below those of the window, and nothing said so."""
    narrow = {"multi-unconfirmed": {"window_bytes": 4096, "receive_window_bytes": 1024}}
    with pytest.raises(CompositionError) as refused:
        derive(Hop("narrow", parse_layers(narrow), LOSSY_ROUTE))
    assert str(refused.value).startswith(Code.BOUNDS)
    assert "Raise receive_window_bytes to 4096" in str(refused.value)
    ordered = parse_layers([{"continuous-index": {}}, narrow])
    assert derive(Hop("ordered", ordered, LOSSY_ROUTE)).guarantee.no_loss is not None
