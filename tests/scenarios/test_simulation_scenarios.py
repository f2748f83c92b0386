"""What the simulator has found, each as short as it goes."""

from __future__ import annotations

from surepipe.pipes.algebra.guarantees import Atom, Fault
from surepipe.pipes.desk import Boundary
from surepipe.simulation.campaign import campaign
from surepipe.simulation.faults import Mode, chosen
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.subjects import HopSubject
from tests.simulation.kit import decide, of_kind, told

BEFORE = HopSubject(
    {"strict-monotonic": {}}, name="strict, before", boundary=Boundary.BEFORE, durable=True
)


def test_receiver_zombie_hands_over_late_what_it_had_stored() -> None:
    """receiver: zombie: the boundary `before` stores the place first, so a sleeper may hand over behind its
    successor; monotonic does not survive that, and no claim says so (pipes V-7)."""
    answer = "receiver: answer receiver save-state a1"
    asleep = decide("faults/receiver", answer, "zombie", 0, 3_000_000, fault="F28")
    options = Options(messages=2, gap_us=2_000_000)
    paused = told(asleep, subject=BEFORE, options=options)
    out = [row.seq for row in of_kind(paused.rows, "settled")]
    assert sorted(out) == [1, 2]
    tolerated = promise_of(BEFORE).tolerates(Atom.MONOTONIC.value)
    assert tolerated is not None
    assert Fault.RECEIVER_ZOMBIE.value not in tolerated
    assert Fault.RECEIVER_CRASH.value in tolerated
    found = campaign(BEFORE, range(24), mode=Mode.CLAIM, messages=8, required=(), causal=False)
    assert found.verdict == "held", str(found)


def test_boundary_before_confirms_while_its_handler_works() -> None:
    """boundary: before: a message is settled when the handler gets it, so a confirm during a slow handler is
    honest (P8), and a zombie of the receiver is none of its excuses."""
    subject = HopSubject("reliable", name="before", boundary=Boundary.BEFORE, durable=True)
    options = Options(messages=6, gap_us=50_000, handler_us=500_000, chaos_us=8_000_000)
    result = run_hop(subject, options)
    assert result.violations == ()
    settled = [row.step for row in of_kind(result.rows, "settled")]
    confirmed = [row.step for row in of_kind(result.rows, "confirmed")]
    assert settled[0] < confirmed[0]


def test_corruption_and_stale_frames_are_told_apart() -> None:
    """network: copy: an old control frame that comes once more is F27 in the trace, a copy of the network F3."""
    seen: set[str] = set()
    subject = HopSubject("reliable", name="reliable")
    for seed in range(6):
        options = Options(
            messages=12, gap_us=20_000, stale_ppm=200_000, copy_ppm=100_000, seed=seed
        )
        options = Options.of({**options.plain(), "copies_max": 1, "copy_delay_us": 50_000})
        rows = run_hop(subject, options, judge=None).rows
        seen |= {
            fault
            for row in of_kind(rows, "copied")
            for fault in ("F3", "F27")
            if fault in row.detail
        }
    assert seen == {"F3", "F27"}
    assert [kind.id for kind in chosen(["stale"])] == ["F27"]
