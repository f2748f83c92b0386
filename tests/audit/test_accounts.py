"""An audit accounts for every pipe of a plan, and says held only where it knows (simulation X-33, spark SP-18)."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.settings import ATOMS
from surepipe.audit.trace import Row
from surepipe.audit.trace_audit import PER_KEY, Judged, Standing, audit
from surepipe.audit.trace_file import TraceRecorder
from surepipe.core.claims import Atom
from surepipe.pipelines import loads
from surepipe.pipelines.run import PlanEngine, RealEnvironment
from tests.audit import shapes
from tests.audit.planted import told_late
from tests.pipelines.run.kit import until

SEEDS = 3
VIOLATED = PropertyOutcome.VIOLATED
COUNTED: tuple[str, ...] = ("traces", "held", "planted", "late")
Draw = Callable[[int], shapes.Shape]


def held(judged: list[Judged]) -> bool:
    """As the exit code has it."""
    return {one.standing for one in judged} == {Standing.HELD}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked(seed: int, folder: Path, counts: dict[str, int], draw: Draw = shapes.drawn) -> None:
    """A run of this seed: nothing is called broken, both judges agree, and each planted error is noticed."""
    shape = draw(seed)
    trace = shapes.ran(shape, folder)
    rows, plan, rng = shapes.rows_of(trace), shape.plan, random.Random(seed)
    told = folder / "told.jsonl"
    _, exact = shapes.by_rows(rows, plan, told)
    _, bulk = shapes.in_bulk(rows, plan, told)
    assert not [str(one) for one in (*exact, *bulk) if one.standing is Standing.BROKEN], shape.text
    assert shapes.standings(exact) == shapes.standings(bulk), shape.text
    counts["traces"] += 1
    counts["held"] += held(bulk)
    _, wished = shapes.in_bulk(rows, plan, told, frozenset(Atom))
    open_ones = {one.promise for one in wished if one.standing is not Standing.HELD}
    known = frozenset(atom for atom in Atom if str(atom) not in open_ones)
    for plant, concerned in shapes.PLANTED.items():
        planted = plant(rows, rng)
        if planted is None or not concerned <= known or "integrity" in open_ones:
            continue
        changed = planted if plant in shapes.RAW else shapes.renumbered(planted)
        _, found = shapes.in_bulk(changed, plan, told, known)
        assert not held(found), (plant.__name__, shape.text)
        _, by_rows = shapes.by_rows(changed, plan, told)
        _, in_bulk = shapes.in_bulk(changed, plan, told)
        assert shapes.standings(by_rows) == shapes.standings(in_bulk), (plant.__name__, shape.text)
        counts["planted"] += 1
    if (late := shapes.told_late(rows, rng)) is not None:
        for judge, wanted in ((shapes.by_rows, exact), (shapes.in_bulk, bulk)):
            _, found = judge(shapes.renumbered(late), plan, told)
            assert shapes.standings(found) == shapes.standings(wanted), (judge.__name__, shape.text)
        counts["late"] += 1
    if (swapped := shapes.key_changed(rows, rng)) is not None:
        for _, found in (shapes.by_rows(swapped, plan, told), shapes.in_bulk(swapped, plan, told)):
            assert any(one.promise == PER_KEY and one.standing is Standing.BROKEN for one in found)
        counts["planted"] += 1
    if Atom.NO_LOSS in known and Atom.NO_DUPLICATE in known:
        out = folder / "out0.jsonl"
        lines = out.read_text().splitlines(keepends=True)
        at = rng.randrange(len(lines))
        for kept in (lines[:at] + lines[at + 1 :], [*lines, lines[at]]):
            out.write_text("".join(kept))
            _, found = shapes.in_bulk(rows, plan, told, known)
            assert not held(found), shape.text
            counts["planted"] += 1
        out.write_text("".join(lines))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_good_run_is_called_broken_and_no_planted_error_held(seed: int, here: Path) -> None:
    """Plans of many shapes on the engine, some killed; one error at a time in what they wrote."""
    checked(seed, here, dict.fromkeys(COUNTED, 0))


def with_a_reader(seed: int) -> shapes.Shape:
    """As it is drawn, and whoever reads a stream has a name of his own."""
    shape, carried = shapes.drawn(seed), "route: {kind: sqlite, store: main}"
    assert carried in shape.text
    layers = "layers: [{stream: {start: earliest, reader: named}}]"
    return replace(shape, text=shape.text.replace(carried, f"{carried}, {layers}"))


def test_a_reader_with_a_name_of_its_own_is_judged_as_any(here: Path) -> None:
    """Lanes behind a stream, in a process that is killed."""
    checked(11, here, dict.fromkeys(COUNTED, 0), with_a_reader)


FIELD = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: main.db, durability: process}}}}
sources: {{s0: {{kind: jsonl, path: in0.jsonl}}}}
pipes:
  intake: {{from: s0, journal: main, state: main, boundary: committed}}
  onward: {{from: intake, route: {{kind: sqlite, store: main}}, state: main, boundary: processed}}
stages: {{slow: {{from: onward, call: "{shapes.__name__}:dying"}}}}
sinks: {{out0: {{from: slow, kind: jsonl, path: out0.jsonl}}}}
"""
"""The second pipe is fed in the transactions of the first, and its process is killed. The journal
stores rows with their place in the source: else a kill between the two has them sent again."""
ONWARD = "shop/onward@shop/intake"


def test_a_pipe_that_is_fed_within_a_transaction_is_judged_like_any_other(here: Path) -> None:
    """Killed twice on boundary processed: nothing lost, and what was repeated is told as allowed; that it is not
    repeated is broken for whoever expects it; without some rows nothing is held."""
    trace = shapes.ran(shapes.Shape(FIELD, (20, 25)), here)
    rows, plan, told = shapes.rows_of(trace), shapes.Shape(FIELD, ()).plan, here / "told.jsonl"
    exact, found = shapes.by_rows(rows, plan, told)
    _, bulk = shapes.in_bulk(rows, plan, told)
    assert shapes.standings(found) == shapes.standings(bulk)
    assert held(found)
    one = exact.pipe(ONWARD)
    assert (one.sent, one.settled, one.lost) == (shapes.MESSAGES, shapes.MESSAGES, 0)
    wanted, no_loss = frozenset((Atom.NO_LOSS, Atom.NO_DUPLICATE)), frozenset((Atom.NO_LOSS,))
    assert held(shapes.in_bulk(rows, plan, told, no_loss)[1])
    of_onward = [row for row in rows if row.kind == "settled" and row.pipe == ONWARD]
    doubled = shapes.renumbered(
        [copy for row in rows for copy in ([row, row] if row in of_onward else [row])]
    )
    again, allowed = shapes.by_rows(doubled, plan, told)
    assert again.pipe(ONWARD).repeated >= shapes.MESSAGES
    assert "P3" not in again.pipe(ONWARD).promised
    assert held(allowed)
    _, expected = shapes.in_bulk(doubled, plan, told, wanted)
    assert (ONWARD, "no-duplicate") in {
        (one.part, one.promise) for one in expected if one.standing is Standing.BROKEN
    }
    # Without all that tells of its messages it looks as if none had come to it.
    silent = [row for row in rows if row.pipe != ONWARD or not row.count]
    for _, torn in (shapes.by_rows(silent, plan, told), shapes.in_bulk(silent, plan, told)):
        assert {one.standing for one in torn} == {Standing.UNJUDGED}
    without = [row for row in rows if row is not of_onward[-1]]
    for changed in (without, shapes.renumbered(without)):
        assert not held(shapes.in_bulk(changed, plan, told, no_loss)[1])


def test_a_number_that_a_sender_gave_without_a_row_leaves_open_what_became_of_it(
    here: Path,
) -> None:
    """Nothing of one message, of a life that told of each: rows are missing, which is no loss. (A life that was
    killed may have told of none. Then what the next one loads is all there is, and a hole in that is a loss.)"""
    shape = shapes.Shape(FIELD, ())
    rows, told = shapes.rows_of(shapes.ran(shape, here)), here / "told.jsonl"
    hole = shapes.renumbered(shapes.hole_made(rows, ONWARD))
    _, judged = shapes.in_bulk(hole, shape.plan, told, frozenset((Atom.NO_LOSS,)))
    open_ones = [str(one) for one in judged if one.standing is Standing.UNJUDGED]
    assert any("no row tells of the acceptance of" in text for text in open_ones)
    assert not any(one.standing is Standing.BROKEN for one in judged)


BEFORE = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: main.db, durability: process}}}}
sources: {{s0: {{kind: jsonl, path: in0.jsonl}}}}
pipes: {{p0: {{from: s0, route: {{kind: sqlite, store: main}}, state: main, boundary: before}}}}
stages: {{last: {{from: p0, map: "{shapes.__name__}:fussy", retries: 1, dead_letter: main/dead}}}}
sinks: {{out0: {{from: last, kind: jsonl, path: out0.jsonl}}}}
"""
"""A message is settled before it is handled, and becomes a letter then."""


def test_a_letter_of_a_message_that_was_settled_first_is_no_second_settlement(here: Path) -> None:
    """Boundary before: the message and its letter are one message that came out once. Without its row of
    settlement it is lost, and with two of them repeated."""
    rows = shapes.rows_of(shapes.ran(shapes.Shape(BEFORE, ()), here))
    plan, told = shapes.Shape(BEFORE, ()).plan, here / "told.jsonl"
    exact, judged = shapes.by_rows(rows, plan, told)
    bulk, in_bulk = shapes.in_bulk(rows, plan, told)
    assert held(judged)
    assert held(in_bulk)
    one, same = exact.pipes[0], bulk.channels[0]
    assert (one.sent, one.settled, one.dead, one.repeated) == (shapes.MESSAGES, 59, 1, 0)
    assert (same.sent, same.settled, same.dead, same.repeated) == (shapes.MESSAGES, 59, 1, 0)
    letter = next(row for row in rows if row.kind == "dead")
    place = next(
        at
        for at, row in enumerate(rows)
        if row.kind == "settled" and row.seq <= letter.seq <= row.last
    )
    without = [*rows[:place], *(_around(rows[place], letter.seq)), *rows[place + 1 :]]
    twice = [*rows[: place + 1], replace(rows[place], seq=letter.seq, count=1), *rows[place + 1 :]]
    for changed, property_id, atom in (
        (without, "P2", Atom.NO_LOSS),
        (twice, "P3", Atom.NO_DUPLICATE),
    ):
        exact, _ = shapes.by_rows(shapes.renumbered(changed), plan, told)
        assert {one.id for one in exact.violated()} & {"P2", "P3"} == {property_id}
        bulk, _ = shapes.in_bulk(shapes.renumbered(changed), plan, told)
        assert bulk.channels[0].violated & {Atom.NO_LOSS, Atom.NO_DUPLICATE} == {atom}


def test_a_letter_that_was_sent_again_is_no_repeat_of_what_came_through(here: Path) -> None:
    """`surepipe dlq replay` writes no trace. As many lines more as there are letters may be its, and no more."""
    shape = shapes.Shape(BEFORE.replace("boundary: before", "boundary: committed"), ())
    rows, told = shapes.rows_of(shapes.ran(shape, here)), here / "told.jsonl"
    for standing in (Standing.UNJUDGED, Standing.BROKEN):
        with (here / "out0.jsonl").open("a") as out:
            out.write('{"sent": "again"}\n')
        for judge in (shapes.by_rows, shapes.in_bulk):
            _, found = judge(rows, shape.plan, told)
            assert standing in {
                one.standing
                for one in found
                if (one.part, one.promise) == ("into out0", "no-duplicate")
            }


FROM_A_FUNCTION = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: main.db, durability: process}}}}
sources: {{s0: {{kind: python, call: "{shapes.__name__}:given", repeatable: false}}}}
pipes: {{intake: {{from: s0, journal: main, state: main, boundary: committed}}}}
stages: {{slow: {{from: intake, call: "{shapes.__name__}:dying"}}}}
sinks: {{out0: {{from: slow, kind: jsonl, path: out0.jsonl}}}}
"""


@pytest.mark.parametrize(
    ("repeatable", "kills", "standing"),
    [
        ("false", (), Standing.HELD),
        ("false", (20,), Standing.UNJUDGED),
        ("true", (20,), Standing.HELD),
    ],
)
def test_what_a_source_gave_to_a_killed_process_is_held_only_if_it_can_be_read_again(
    repeatable: str, kills: tuple[int, ...], standing: Standing, here: Path
) -> None:
    """Its position counts what was accepted. That as many were accepted as were accepted shows nothing of the rows
    that the process had taken, and had with it when it was killed."""
    text = FROM_A_FUNCTION.replace("repeatable: false", f"repeatable: {repeatable}")
    shape = shapes.Shape(text, kills)
    rows, told = shapes.rows_of(shapes.ran(shape, here)), here / "told.jsonl"
    for judge in (shapes.by_rows, shapes.in_bulk):
        said = shapes.standings(judge(rows, shape.plan, told)[1])
        assert said["into intake", "no-loss"] is standing
        assert said["into out0", "no-loss"] is Standing.HELD


WITH_LETTERS = f"""\
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: main.db, durability: process}}}}
sources: {{s0: {{kind: jsonl, path: in0.jsonl}}}}
pipes: {{intake: {{from: s0, journal: main, state: main, boundary: committed}}}}
stages:
  fussy: {{from: intake, map: "{shapes.__name__}:fussy", retries: 1, retry_min_s: 0.01, dead_letter: main/dead}}
  slow: {{from: fussy, call: "{shapes.__name__}:dying"}}
sinks: {{out0: {{from: slow, kind: jsonl, path: out0.jsonl}}}}
"""


def test_a_pipe_with_dead_letters_is_held_to_all_that_check_promises_through_a_kill(
    here: Path,
) -> None:
    """A letter is the end of its message, so what survives rests on the store of the letters. One kill beside one
    letter: nothing that is promised goes unsaid, and a message that is neither settled nor a letter is missed."""
    shape = shapes.Shape(WITH_LETTERS, (20,))
    rows, told = shapes.rows_of(shapes.ran(shape, here)), here / "told.jsonl"
    lost = shapes.renumbered(shapes.settled_removed(rows, random.Random(1)) or [])
    for judge in (shapes.by_rows, shapes.in_bulk):
        said = shapes.standings(judge(rows, shape.plan, told)[1])
        promised = {promise for part, promise in said if part == "shop/intake"}
        assert {"no-loss", "no-duplicate", "gap-free", "monotonic"} <= promised
        assert {*said.values()} == {Standing.HELD}
        assert not held(judge(lost, shape.plan, told)[1])


def _around(row: Row, seq: int) -> list[Row]:
    """A row without one of its messages."""
    parts = ((row.seq, seq - 1), (seq + 1, row.last))
    return [replace(row, seq=low, count=high - low + 1) for low, high in parts if low <= high]


def test_a_trace_that_is_cut_or_lacks_a_process_is_neither_broken_nor_held(here: Path) -> None:
    """What the rest of it, or the trace of another process, would tell: not judged. That it was sent is no proof
    that it was lost, and lines of which no row tells are no repeats."""
    rows = shapes.rows_of(shapes.ran(shapes.Shape(FIELD, ()), here))
    plan, told = shapes.Shape(FIELD, ()).plan, here / "told.jsonl"
    assert held(shapes.by_rows(rows, plan, told)[1])
    of_last = max(at for at, row in enumerate(rows) if row.kind == "settled")
    partial = [
        rows[:2],
        rows[:4],
        rows[: len(rows) // 2],
        rows[:of_last],
        [row for row in rows if not row.node.endswith("/receiver")],
        [row for row in rows if not row.node.endswith("/sender")],
        [row for row in rows if not row.node.endswith("/flow")],
        _first_half(rows),
    ]
    for at, part in enumerate(partial):
        for judge in (shapes.by_rows, shapes.in_bulk):
            _, judged = judge(shapes.renumbered(part), plan, told)
            said = [str(one) for one in judged if one.standing is not Standing.HELD]
            assert said, (at, judge.__name__)
            assert not [one for one in judged if one.standing is Standing.BROKEN], (at, said)


def _first_half(rows: list[Row]) -> list[Row]:
    """As if nothing had been told after half of the messages, all of which came through."""
    half = shapes.MESSAGES // 2
    return [
        replace(row, count=min(row.count, half - row.seq + 1)) if row.count else row
        for row in rows
        if row.kind != "end" and row.seq <= half
    ]


def test_traces_that_know_nothing_of_a_pipe_of_the_plan_are_no_success(here: Path) -> None:
    """The plan names a pipe that no row speaks of: not judged, whatever holds of the others."""
    shape = shapes.Shape(FIELD, ())
    trace = shapes.ran(shape, here)
    rows = [row for row in shapes.rows_of(trace) if not row.pipe.startswith("shop/onward")]
    _, judged = shapes.by_rows(shapes.renumbered(rows), shape.plan, here / "told.jsonl")
    assert [str(one) for one in judged if one.part == "into onward"][:1] == [
        "into onward: no-loss not judged, because the traces know nothing of it: give those of all processes"
    ]


FOLLOWED = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources: {s0: {kind: jsonl, path: in0.jsonl, follow: true}}
pipes: {p0: {from: s0, KEPT}}
sinks: {out0: {from: p0, kind: jsonl, path: out0.jsonl}}
"""
KEPT = "journal: main, state: main, boundary: committed"


@pytest.mark.parametrize("kept", [KEPT, "layers: [reliable]"])
@pytest.mark.parametrize("way", ["renamed", "copied and cut"])
def test_a_followed_file_is_counted_with_what_was_moved_away(
    way: str, kept: str, here: Path
) -> None:
    """Held where the rows of all its files are those of the stored position; not judged when a file is gone, has
    rows that were never given, or no position is kept and the numbers differ. Never broken."""
    plan = loads(FOLLOWED.replace("KEPT", kept))
    now, old = here / "in0.jsonl", here / "in0.jsonl.1"

    def write(*numbers: int) -> None:
        with now.open("a") as file:
            file.write("".join(f'{{"n": {number}}}\n' for number in numbers))

    write(1, 2, 3, 4, 5)
    with TraceRecorder("trace.jsonl") as trace:
        engine = PlanEngine(plan, "main", RealEnvironment(plan, trace=trace))
        engine.start()
        try:
            until(engine, lambda: engine.counters()["p0"]["settled"] == 5)
            if way == "renamed":
                now.rename(old)
            else:
                shutil.copy(now, old)
                os.truncate(now, 0)
            write(6, 7)
            until(engine, lambda: engine.counters()["p0"]["settled"] == 7)
            engine.stop_sources()
            until(engine, engine.look)
        finally:
            engine.close(10.0)
    rows = shapes.rows_of(here / "trace.jsonl")

    def judged() -> list[Judged]:
        _, found = shapes.by_rows(rows, plan, here / "told.jsonl")
        assert shapes.standings(found) == shapes.standings(
            shapes.in_bulk(rows, plan, here / "told.jsonl")[1]
        )
        return found

    assert held(judged()), [str(one) for one in judged()]
    is_kept = kept == KEPT
    with old.open("a") as file:
        file.write('{"n": 8}\n')
    for changed in ("a row that was never given", "the old file is gone"):
        open_ones = [one for one in judged() if one.standing is not Standing.HELD]
        assert {one.part for one in open_ones} >= {"into p0"}, changed
        assert {one.standing for one in open_ones} == {Standing.UNJUDGED}, changed
        assert any("another file" in one.why for one in open_ones), changed
        assert is_kept == any("its stored position is behind 7" in one.why for one in open_ones)
        old.unlink(missing_ok=True)


@pytest.mark.parametrize("draw", [shapes.drawn_apart, shapes.drawn_replaced])
def test_nodes_over_tcp_and_processes_that_were_replaced_are_judged_alike(
    draw: Draw, here: Path
) -> None:
    """Two nodes, one killed; and a process that stands still, and wakes up behind its successor."""
    checked(1, here, dict.fromkeys(COUNTED, 0), draw)


@pytest.mark.parametrize(
    ("position", "story", "broken"),
    [
        ((1, 1, 3), "late", set[Atom]()),
        ((1, 3, 0), "late", set[Atom]()),
        (None, "late", {Atom.MONOTONIC, Atom.GAP_FREE}),
        ((1, 1, 2), "late", {Atom.MONOTONIC, Atom.GAP_FREE}),
        ((1, 1, 3), "late twice", {Atom.MONOTONIC, Atom.NO_DUPLICATE}),
        ((1, 1, 3), "told in time and late", {Atom.MONOTONIC, Atom.NO_DUPLICATE}),
        ((1, 1, 3), "late and out of order", {Atom.MONOTONIC, Atom.GAP_FREE}),
        ((1, 1, 3), "late, with all again", {Atom.MONOTONIC, Atom.NO_DUPLICATE}),
    ],
)
def test_a_row_that_comes_late_counts_where_its_message_was_passed(
    position: tuple[int, int, int] | None, story: str, broken: set[Atom], here: Path
) -> None:
    """A process stands still behind its commit of the third message, and tells of it when its successor went on.

    It is in its place where the successor said at its start that the stored position is behind it, by a run or as
    all before; nothing else is. ``position``: epoch, and first and last or last and 0.
    """
    rows = told_late(position, story)
    exact = audit(rows).pipe("p")
    assert {atom for atom, one in ATOMS.items() if exact.finding(one).outcome is VIOLATED} == broken
    found = shapes.figures_in_bulk(rows, here / "told.jsonl", frozenset(Atom))
    assert found.channels[0].violated == broken


def main(first: int, last: int, kind: str = "drawn") -> None:
    """The same over many seeds: python -m tests.audit.test_accounts FIRST LAST [drawn_apart | drawn_replaced]."""
    counts = dict.fromkeys(COUNTED, 0)
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            checked(seed, Path(folder), counts, getattr(shapes, kind))
        sys.stdout.write(f"{seed} {counts}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
