"""What simulated runs found, reduced to what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.audit.properties import judge
from surepipe.core.claims import Atom, Fault
from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.guarantees.hops import LOSSY_ROUTE, Hop
from surepipe.guarantees.problems import Code
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.campaign import campaign
from surepipe.simulation.chance.script import load
from surepipe.simulation.faults import Mode, chosen
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import hop_of, promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject
from surepipe.simulation.world import judge_rows
from tests.faults.product import hop, layer
from tests.faults.quarry import QUARRY
from tests.simulation.kit import decide, of_kind, told

SCRIPTS = Path(__file__).parent / "scripts"
BEFORE = HopSubject(
    {"strict-monotonic": {}}, name="strict, before", boundary=Boundary.BEFORE, durable=True
)


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


def test_algebra_receiver_crash_what_drops_older_messages_loses_what_a_window_brings_again() -> (
    None
):
    """algebra: receiver crash: no-loss was derived for strict-monotonic over a window over resend (pipes G-10).

    1. the window answers its carrier when #1 arrives, and the receiver ends before #1 is settled;
    2. resend brings #2, which is passed on; the window sends #1 again, too late for strict-monotonic.
    """
    layers = layer("strict-monotonic"), layer("multi-unconfirmed"), layer("resend")
    stack = hop("strict-monotonic over window over resend", *layers)
    script = load(SCRIPTS / "strict-over-window-over-resend.json")
    run = replay(stack, script, judge=lambda rows: judge(rows, ["P2"]))
    assert run.stale is None
    assert run.violates("P2") is not None
    derived = derive(hop_of(stack))
    assert not derived.guarantee.holds(Atom.NO_LOSS, frozenset({Fault.RECEIVER_CRASH}))
    reason = derived.reason(Atom.NO_LOSS, Fault.RECEIVER_CRASH)
    assert reason.text.endswith("brings later messages first, too late for strict-monotonic")
    assert not judge_rows(run.rows), "what is promised now, is kept"


def test_algebra_receiver_crash_takes_the_order_that_dedupe_has_from_its_carrier() -> None:
    """algebra: receiver crash: monotonic was derived for dedupe over a window over resend, committed (pipes G-10).

    As above, and dedupe passes #1 on after #2.
    """
    layers = layer("dedupe"), layer("multi-unconfirmed"), layer("resend")
    stack = hop(
        "dedupe over window over resend, committed, journal",
        *layers,
        journaled=True,
        durable=True,
        boundary=Boundary.COMMITTED,
    )
    script = load(SCRIPTS / "dedupe-over-window-over-resend.json")
    run = replay(stack, script, judge=lambda rows: judge(rows, ["P4"]))
    assert run.stale is None
    assert run.violates("P4") is not None
    guarantee = derive(hop_of(stack)).guarantee
    assert not guarantee.holds(Atom.MONOTONIC, frozenset({Fault.RECEIVER_CRASH}))
    assert guarantee.holds(Atom.NO_DUPLICATE, frozenset({Fault.RECEIVER_CRASH}))
    assert not judge_rows(run.rows), "what is promised now, is kept"


def test_algebra_clock_step_a_late_frame_of_a_higher_life_comes_out_behind_newer_messages() -> None:
    """algebra: clock step: monotonic was derived for strict-monotonic through a clock that goes back (pipes G-10).

    1. #1 is sent and held back on the route; its sender ends; 2. the next one starts with its clock set back, so
    its number is lower, and a receiver that has seen nothing takes its messages; 3. #1 comes, of a higher number.
    """
    stack = next(s for s in QUARRY if s.name == "strict-monotonic")
    script = load(SCRIPTS / "numbered-by-a-clock-set-back.json")
    run = replay(stack, script, judge=lambda rows: judge(rows, ["P4"]))
    assert run.stale is None
    assert run.violates("P4") is not None
    guarantee = derive(hop_of(stack)).guarantee
    together = frozenset({Fault.SENDER_CRASH, Fault.CLOCK_STEP, Fault.ROUTE_REORDERING})
    assert not guarantee.holds(Atom.MONOTONIC, together)
    assert guarantee.holds(Atom.MONOTONIC, together - {Fault.CLOCK_STEP})
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


def test_sender_zombie_numbered_again_into_the_life_of_its_successor() -> None:
    """sender: zombie: refused by a receiver that knew life 2, it took life 3, which the next sender had. Both
    shared its rows, until the zombie numbered them away, and #2 was lost. It goes further above now, and is
    refused by the number that it had (pipes L-1, L-2, L-7)."""
    layers = layer("sequential-confirm"), layer("reliable")
    stack = hop("sequential-confirm over reliable, journal", *layers, journaled=True)
    run = replay(stack, load(SCRIPTS / "life-of-its-successor.json"))
    assert run.stale is None
    assert run.violations == ()
    renumbering = [row for row in run.rows if '"renumber e4 0"' in row.detail]
    assert [row.kind for row in renumbering] == ["refused"]
    assert [row.seq for row in of_kind(run.rows, "confirmed")] == [1, 2]


def test_sender_zombie_appends_rows_that_its_successor_waits_to_append() -> None:
    """sender: zombie: its successor was answered beyond what it had asked, and appended nothing from then on,
    again and again, until its journal answered (P12, pipes L-7).

    1. #9 and #10 are stored in the journal, and the sender sleeps; 2. its successor opens the stream, which has
    nothing, and appends from #1 on; 3. the sleeper wakes and appends all ten; 4. the successor's append of #7 is
    answered "I have all to #10": their payloads went, and its place stayed at #9.
    """
    run = replayed("appended-by-a-replaced-sender")
    appended = [
        (row.seq, row.count) for row in of_kind(run.rows, "appended") if row.epoch < 998274003
    ]
    assert appended == [(1, 2), (3, 2), (5, 2), (7, 2), (9, 2)]
    assert run.events < 300


def test_no_room_after_a_pause_what_was_left_out_comes_as_soon_as_there_is_room() -> None:
    """no room: pause: each of fifty messages waited for the longest pause: 24 s, and 2 s are enough (P12).

    1. the sender slept, so one message travels twice, and the repeat takes room; 2. the last of its window is left
    out, and all behind it; 3. the receiver had asked for each of them often, in vain, so it asked seldom by now.
    """
    run = replayed("room-after-a-pause")
    [confirmed] = [row.time_us for row in of_kind(run.rows, "confirmed") if row.last == 77]
    assert confirmed < 3_000_000
    assert run.events < 700


@pytest.mark.parametrize(
    "script",
    [
        "numbered-by-a-replaced-sender",  # P17: it went on under its epoch, which its successor had loaded
        "sent-by-a-replaced-sender",  # P9: it sent what its successor had loaded, and so did that one
        "counted-by-a-replaced-sender",  # P20: it counted what its successor had told of first
        "carried-by-copies",  # P9: with frames of an inner layer the network copied messages
        "answered-over-its-successors-link",  # P9: it does not hear that its successor was answered
        "answered-over-its-predecessors-link",  # P9: nor does that one hear what it is told
        "refused-before-it-was-in-doubt",  # P9: its receiver looked again when the state was back
    ],
)
def test_harness_zombies_are_held_to_what_they_did(script: str) -> None:
    """harness: zombies: false alarms. What a journal gives to a successor was accepted before its life, by one
    that may go on with it; whatever a frame carries is copied with it; and each life counts for itself."""
    replayed(script)


@pytest.mark.parametrize(
    "script",
    [
        "stopped-by-what-it-replaced",  # it has stopped when all is healed
        "stopped-after-all-was-healed",  # it hears of it at its first write in the drain
    ],
)
def test_harness_sender_zombie_the_one_left_was_stopped_by_the_one_that_is_ended(
    script: str,
) -> None:
    """harness: sender zombie: P11, a false alarm. The clock went back, so the process that was replaced had the
    higher life, took the journal, and was ended for good; nobody started another for the one that stopped."""
    run = replayed(script)
    told = [row.detail for row in of_kind(run.rows, "crash") if row.node == "sender"]
    assert ["ended for good" in told[-2], "stopped by" in told[-1]] == [True, True]
    confirmed = sum(row.count for row in of_kind(run.rows, "confirmed"))
    assert confirmed >= sum(row.count for row in of_kind(run.rows, "accepted")) > 0


def test_harness_stream_a_reader_whose_commit_is_not_answered_has_more_to_read() -> None:
    """harness: stream: P2, a false alarm. The run was over while a reader waited for its commit, whose store had
    been away: it forgets what it read meanwhile, and looks for more, as #15 to #19, when that is answered."""
    run = replayed("committing-when-all-seems-done")
    [committed] = [row.step for row in of_kind(run.rows, "committed") if '"next":15' in row.detail]
    assert committed < min(row.step for row in of_kind(run.rows, "delivered") if row.seq >= 15)


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


def replayed(name: str) -> RunResult:
    """The run of a script, in which nothing is wrong any more."""
    script = load(SCRIPTS / f"{name}.json")
    run = replay(next(one for one in QUARRY if one.name == script.subject), script)
    assert run.stale is None
    assert run.violations == ()
    return run


STREAM = {"stream": {"start": "earliest"}}


def test_harness_stream_entries_of_an_inner_layer_are_not_the_messages_of_the_pipe() -> None:
    """harness: layers: rows of a store named no layer, so a frame of the outer pipe counted as another payload of
    a message (P17, a false alarm) wherever a pipe stood over a stream."""
    for outer in ("strict-monotonic", "continuous-index"):
        result = run_hop(HopSubject([outer, STREAM]), Options(messages=3))
        assert result.violations == ()
        layers = {row.layer for row in of_kind(result.rows, "appended")}
        assert layers == {"1"}


def test_harness_boundary_before_commits_what_a_crash_then_loses() -> None:
    """harness: boundary: `before` stores the position first, and a receiver that ends before it hands over loses
    what it had read; that is no breach of the position's discipline (P10, a false alarm)."""
    subject = HopSubject(STREAM, boundary=Boundary.BEFORE, journaled=True, durable=True)
    answer = "receiver: answer receiver save-state a2"
    ended = decide("faults/receiver", answer, "crash", -1, 0, fault="F10")
    result = told(ended, subject=subject, options=Options(messages=3, gap_us=200_000))
    assert result.stale is None
    assert len(of_kind(result.rows, "settled")) < 3
    assert not judge(result.rows, ["P10"])
    assert result.violations == ()


def test_harness_progress_few_large_messages_fill_a_window_too() -> None:
    """harness: progress: the bound on P12 counted messages of a window only, so a window of few bytes was late."""
    narrow = {"window_bytes": 4096, "message_max_bytes": 2048, "frame_max_bytes": 2048}
    slow = Options(messages=200, payload_bytes=2000, delay_us=1_000_000, drain="slow-quiet")
    assert run_hop(HopSubject({"reliable": narrow}), slow).violations == ()


def test_harness_shrinking_a_partition_that_heals_never_becomes_one_that_does_not() -> None:
    """harness: partition: shrunk to no length at all it stood for a cut for good (F7), which nobody promises to
    survive, and the report named another fault than its script."""
    cut = decide("faults", "partition 1", "cut both", 0, 0, "sender>receiver", fault="F6")
    result = told(cut, subject=HopSubject("reliable"), options=Options(messages=1))
    assert result.stale is None
    assert len(of_kind(result.rows, "settled")) == 1
    assert [row.detail.count('"fault":"F6"') for row in of_kind(result.rows, "fault")] == [1, 0]


def test_harness_receiver_zombie_what_is_held_behind_its_messages_is_asked_for_before_the_end() -> (
    None
):
    """harness: receiver zombie: P11, a false alarm. The zombie settled what the receiver misses, and the sender
    has nothing left to say; the receiver asks when the hole is old, and the run ended before that."""
    stack = hop("three", *map(layer, ("continuous-index", "reliable", "multi-unconfirmed")))
    run = replay(stack, load(SCRIPTS / "held-behind-a-zombie.json"))
    assert run.stale is None
    assert run.violations == ()
    asked = [row.time_us for row in of_kind(run.rows, "transmit") if "unknown" in row.detail]
    [rest] = [row.time_us for row in of_kind(run.rows, "phase") if "quiescent" in row.detail]
    assert asked[-1] > rest + 3_000_000


def test_harness_receiver_zombie_a_script_told_it_as_a_pause_that_every_claim_covers() -> None:
    """harness: receiver zombie: a pipe was held to what it does not promise, by a script but not by its seed."""
    zombie = decide("faults/receiver", "receiver: start 1", "zombie", 0, 1_000_000, fault="F28")
    result = told(zombie, options=Options(messages=2, gap_us=2_000_000))
    seen = [row.seq for row in of_kind(result.rows, "delivered")]
    assert seen.count(1) == 2
    assert '"faults":["receiver-zombie"]' in result.rows[0].detail
    assert not result.violations


def test_harness_handler_failure_a_message_that_was_not_delivered_was_said_to_fail() -> None:
    """harness: handler failure: a shrunk script raised for #1 while #2 was in work, which lost #2."""
    failing = decide("stage/handler", "handle e1 2+1 a1", "raise", 1, fault="F20")
    result = told(failing, options=Options(messages=2))
    assert [row.seq for row in of_kind(result.rows, "raised")] == [2]
    assert [row.seq for row in of_kind(result.rows, "settled")] == [1, 2]
