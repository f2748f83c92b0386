"""Where a guarantee begins: sources under simulation, and stores that don't answer while rows go into a pipe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.audit.trace import Kind
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.simulate.campaign import repeat, run_one
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.options import SECOND, Options
from surepipe.simulation.results import RunResult

HEAD = "version: 1\nname: shop\nstores: {main: {kind: sqlite, path: shop.db, durability: power}}\n"
JOURNALED = """\
sources: {lines: {kind: SOURCE}}
pipes: {intake: {from: lines, journal: main, state: main, boundary: committed}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
STREAMED = """\
sources: {lines: {kind: stream, store: main, stream: lines}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}}}
sinks: {rows: {from: intake, kind: parquet, path: rows}}
"""
HTTP = 'http, listen: "127.0.0.1:0"'
PYTHON = f'python, call: "{__name__}:numbers"'


def numbers() -> range:
    """A source that begins anew each time."""
    return range(1)


def plan_of(text: str) -> Plan:
    """A plan of one pipe."""
    return loads(HEAD + text)


def accepted(run: RunResult) -> int:
    """How many messages the pipe took in all lives."""
    return len({(row.epoch, row.seq) for row in run.rows if row.kind == Kind.ACCEPTED})


@pytest.mark.parametrize(
    ("source", "count"), [("stdin", 0), (PYTHON, 0), (HTTP, 2)], ids=["stdin", "python", "http"]
)
def test_what_was_not_accepted_when_a_process_ended_is_neither_lost_nor_repeated(
    source: str, count: int
) -> None:
    """F8, P2, P3: a row that was read ends with its process; a client without an answer posts another message."""
    subject = simulation_of(plan_of(JOURNALED.replace("SOURCE", source)), messages=1).subject
    drawn = Options(messages=1, sender_crashes=1, receiver_crashes=1, crash_within=40)
    ends = replace(drawn, chaos_us=SECOND, store_us=SECOND // 100)
    runs = [run_one(subject, replace(ends, seed=seed))[0] for seed in range(40)]
    assert [run.violations for run in runs if run.violations] == []
    assert count in {accepted(run) for run in runs}, "no process ended where it matters"


def run_with(plan: Plan, at: str, verb: str) -> RunResult:
    """One message, and a store that refuses this one call, or does not answer it."""
    subject = simulation_of(plan, messages=1).subject
    decision = Decision("disk/main", at, verb, ("busy",) if verb == "refuse" else (1,), "F18")
    return repeat(subject, Script(subject.name, {"messages": 1}, (decision,), 1))


@pytest.mark.parametrize("verb", ["refuse", "lost", "unknown"])
def test_rows_are_not_handed_over_again_when_a_store_does_not_take_their_place(verb: str) -> None:
    """F18, F30, P3: without a journal the place is stored after the messages; it alone is stored again."""
    run = run_with(plan_of(STREAMED), "commit shop/lines>intake receiver o1 1", verb)
    assert (run.stale, run.violations) == (None, ())
    assert accepted(run) == 1


def test_a_run_reads_its_stream_to_the_end_also_when_the_store_does_not_say_at_once_where_it_is() -> (
    None
):
    """F18, P2: with the source at its end, the store is asked for the end of the stream until it answers."""
    run = run_with(plan_of(STREAMED), "info shop/intake #2", "lost")
    assert (run.stale, run.violations) == (None, ())
    assert sum(row.count for row in run.rows if row.kind == Kind.SETTLED) == 1
