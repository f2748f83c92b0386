"""Files under simulation: written by the production sink, into files that outlive the processes of the world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surepipe.pipelines.simulate.campaign import repeat
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.simulate.reference import played
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.actors.lives import ActorNode, Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.chance.script import Script
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import Options
from surepipe.simulation.world import World
from tests.pipelines.simulate.kit import SAMPLE, bank
from tests.simulation.kit import decide

PLAN = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}
sinks: {out: {from: intake, kind: KIND, path: out.file}}
"""
ROWS = [{"n": 1, "text": "a, b"}, {"n": 2, "text": "c"}]


def subject_of(folder: Path, kind: str) -> PlanSubject:
    """Two rows into a file of this kind."""
    (folder / "shop.yaml").write_text(PLAN.replace("KIND", kind))
    return simulation_of(folder / "shop.yaml", messages={"lines": ROWS}).subject


def delivered(world: World) -> list[object]:
    """What is in the file at the end."""
    assert isinstance(world.outcome, RunOutcome)
    return list(world.outcome.delivered["out"])


def test_what_was_delivered_is_what_a_reader_of_the_file_finds(tmp_path: Path) -> None:
    """simulation X-21: values of JSON lines; the rows of CSV are texts under its header."""
    options = Options(messages=2)
    assert delivered(played(subject_of(tmp_path, "jsonl"), options)) == ROWS
    rows = [{"n": "1", "text": "a, b"}, {"n": "2", "text": "c"}]
    assert delivered(played(subject_of(tmp_path, "csv"), options)) == rows


@pytest.mark.parametrize("point", [-1, 0])
def test_a_process_that_ends_in_the_middle_of_a_line_leaves_it_to_the_next_one(
    tmp_path: Path, point: int
) -> None:
    """simulation X-3, X-18: before the first byte, or without the end of the last line; each is there once."""
    subject = subject_of(tmp_path, "jsonl")
    size = sum(len(json.dumps(row, separators=(", ", ": "))) + 1 for row in ROWS)
    at = f"main: out writes {size - 1} bytes at 0"
    ends = decide("faults/main", at, "crash", point, 400_000, fault="F10")
    result = repeat(subject, Script(subject.name, Options(messages=2).plain(), (ends,), 1))
    assert result.stale is None
    assert result.violations == ()
    told = [row.detail for row in result.rows if row.kind == "effect"]
    first, last = f"writes {size - 1} bytes at 0", f"writes 1 bytes at {size - 1}"
    assert told == [f'{{"text":"{first}"}}', f'{{"text":"{last}"}}'], "none of it twice"


def test_lives_of_a_node_are_in_their_order_however_far_its_clock_was_set_back() -> None:
    """clock: set back: lives of one node had one and the same time, so each of two that lived at once took over
    from the other (F19, F28); seed 67 of the orders had a line twice."""
    options = Options()
    world = World(bank(with_key=True), options, SeededChooser(options))
    node = ActorNode(world, "main", _nothing, sends=True, receives=True)
    for jumps_us in (0, -3_600_000_000, 3_600_000_000):
        node.wall_jumps_us = jumps_us
        shown: list[int] = []
        for node.lives in (1, 2, 3):
            shown.append(SimulatedRuntime(Life(node, node.lives)).wall_ms())
        assert shown == sorted(set(shown))


def _nothing(life: Life) -> None:
    """A program that does nothing."""


def written(message: object) -> object:
    """A sink in Python."""
    return message


def test_what_a_sink_in_python_did_with_a_transaction_is_there_once(tmp_path: Path) -> None:
    """Crashes, zombies and answers that are lost: it happens when the transaction is done, and not else."""
    sink = f'kind: python, call: "{__name__}:written"'
    (tmp_path / "shop.yaml").write_text(PLAN.replace("kind: KIND, path: out.file", sink) + SAMPLE)
    faults = "receiver-crash, receiver-zombie, store-outage"
    simulation = simulation_of(tmp_path / "shop.yaml", messages=8, faults=faults)
    found = simulation.campaign(range(12))
    assert dict(found.violated) == {}
    assert found.delivered >= 12 * 8
