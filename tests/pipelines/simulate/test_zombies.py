"""Processes of a pipeline that come back after they were replaced: runs come to their end (simulation P12)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from surepipe.audit.settings import facts_of
from surepipe.cli.commands.init import starter_files
from surepipe.pipelines.simulate.campaign import repeat, run_one
from surepipe.pipelines.simulate.simulating import Simulation, simulation_of
from surepipe.simulation.options import SECOND, Options

ZOMBIES = "sender-zombie, receiver-zombie, store-outage"


@pytest.fixture(name="starter")
def make_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``surepipe init`` writes."""
    for name, text in starter_files("shop").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "stages", raising=False)
    return tmp_path / "pipeline.yaml"


def simulated(starter: Path, faults: str) -> Simulation:
    """The pipeline under these faults."""
    return simulation_of(starter, faults=faults)


def test_the_older_of_two_processes_never_deposes_the_newer(starter: Path) -> None:
    """F28 and P12: seed 7 stopped both of them; in seed 35 the older was paused before it had claimed its sink."""
    assert simulated(starter, "claim").run([7]).runs == 1
    assert simulated(starter, ZOMBIES).run([7, 35]).runs == 2


def test_a_process_that_stood_still_within_a_transaction_goes_on(starter: Path) -> None:
    """F28: seed 567 waited longer for the state to commit than an actor may take, and left the message alone."""
    assert simulated(starter, "claim").run([567]).runs == 1


def test_a_clock_that_went_back_stops_nobody_for_good(starter: Path) -> None:
    """F19, F28: seed 7, with steps of the clock as well: whoever is replaced ends, and is started anew."""
    assert simulated(starter, f"{ZOMBIES}, clock-step").run([7]).runs == 1


@pytest.mark.parametrize(
    ("faults", "names"),
    [
        (Options(sender_zombies=1, receiver_zombies=1), {"sender-zombie", "receiver-zombie"}),
        (
            Options(sender_crashes=1, receiver_crashes=1),
            {"sender-crash", "receiver-crash", "relay-crash"},
        ),
    ],
)
def test_a_script_alone_says_whose_end_it_brings(
    starter: Path, faults: Options, names: set[str]
) -> None:
    """F28, X-34: one process has both ends, so a claim must tolerate the end of either.

    Replayed without the options that drew it, as shrinking does, a zombie was a pause and a crash the receiver's.
    """
    subject = simulation_of(starter, messages=4).subject
    options = replace(faults, messages=4, chaos_us=SECOND, crash_within=8)
    drawn = run_one(subject, options)[0].script
    one = next(decision for decision in drawn.decisions if decision.fault)
    again = repeat(subject, replace(drawn, options={"messages": 4}, decisions=(one,)))
    assert again.stale is None
    assert set(cast("list[str]", facts_of(again.rows[0])["faults"])) == names
