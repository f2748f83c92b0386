"""Simulated runs in which something goes wrong, each shrunk, with the nearest one in which it does not.

Each stands as a script in ``tools/counterexample_scripts``; a page is made by repeating it. After a change of the
machines ``python -m tools.counterexample_runs`` finds the scripts anew: the first seed that breaks the property,
under one kind of fault and nothing else, shrunk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from surepipe.guarantees import derive
from surepipe.pipes.catalogue import LayerText
from surepipe.simulation.chance.randomness import draws
from surepipe.simulation.chance.script import Script, load, save
from surepipe.simulation.faults import chosen
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import hop_of
from surepipe.simulation.results import Counterexample, RunResult
from surepipe.simulation.shrink import shrink
from surepipe.simulation.subjects import HopSubject
from tests.mutants.mutant import MutatedHop
from tests.mutants.streaming import CommitsBefore

SCRIPTS = Path(__file__).parent / "counterexample_scripts"
SEEDS = 4_000
SECOND = 1_000_000
STREAM: LayerText = {"stream": {"start": "earliest"}}
ATOMS: Mapping[str, str] = {"P2": "no-loss", "P3": "no-duplicate", "P4": "monotonic"}


@dataclass(frozen=True)
class RealCase:
    """What breaks: machines, a property they are held to, and the fault that they do not survive.

    ``advice`` is what to add. ``covered``: it is promised all the same, and ``changes`` is the defect. ``shows``:
    what happens to the message, as kinds of rows in this order, and ``lacks`` what does not; there are
    duller ways to break the same property.
    """

    title: str
    layers: LayerText
    property: str
    fault: str
    advice: str = ""
    covered: bool = False
    changes: tuple[type[object], ...] = ()
    shows: tuple[str, ...] = ()
    lacks: str = ""

    def subject(self) -> MutatedHop:
        """The hop, held to the property whether or not it promises that under this fault."""
        names = tuple(name for kind in chosen([self.fault]) for name in kind.names)
        return MutatedHop(
            self.layers,
            pipe="orders",
            changes=self.changes,
            claim={ATOMS[self.property]: names},
            name=self.title,
        )

    def guarantee(self) -> str:
        """What the hop does promise."""
        return f"{derive(hop_of(HopSubject(self.layers))).headline}."


REAL: Mapping[str, RealCase] = {
    "lost-backlog": RealCase("orders / intake", "resend", "P2", "F8", "journal: main"),
    "lost-confirm": RealCase("orders / intake", "resend", "P3", "F2", "dedupe over resend"),
    "overtaken": RealCase("orders / intake", "multi-unconfirmed", "P4", "F4", "reliable"),
    "copied": RealCase("orders / intake", "resend", "P3", "F3", "dedupe over resend"),
    "partition": RealCase("orders / intake", "strict-monotonic", "P2", "F6", "reliable"),
    "store-rollback": RealCase(
        "orders / log", STREAM, "P2", "F14", "durability: power", shows=("confirmed", "fault")
    ),
    "zombie": RealCase("orders / log", STREAM, "P3", "F28r", "boundary: committed"),
    "commit-before-effect": RealCase(
        "orders / log",
        STREAM,
        "P2",
        "F10",
        covered=True,
        changes=(CommitsBefore,),
        lacks="delivered",
    ),
}


def counterexample(name: str) -> Counterexample:
    """The kept script, repeated. Raises AssertionError when it does not break what it broke."""
    case = REAL[name]
    subject, script = case.subject(), load(SCRIPTS / f"{name}.json")
    result = replay(subject, script)
    violation = result.violates(case.property)
    assert result.stale is None, f"{name} is stale at {result.stale}: find its script anew"
    assert violation is not None, f"{name} breaks nothing: find its script anew"
    fault = next(one for one in reversed(script.decisions) if one.fault)
    others = tuple(one for one in script.decisions if one is not fault)
    return Counterexample(
        title=case.title,
        violation=violation,
        result=result,
        decisions_before=len(_failing(case, script.seed).script.decisions),
        guarantee=case.guarantee(),
        covered=case.covered,
        advice=case.advice,
        replay=f"surepipe simulate orders.yaml --replay {script.seed}-{case.property}.json",
        nearest=replay(subject, replace(script, decisions=others)),
        without=str(fault),
    )


RUNS: Mapping[str, Callable[[], Counterexample]] = {
    name: partial(counterexample, name) for name in REAL
}
"""By the name of their pictures."""


def found(case: RealCase) -> Script:
    """The shortest script, from the first seed that breaks the property. Raises StopIteration when none does."""
    runs = (_failing(case, seed) for seed in range(SEEDS))
    first = next(run.script for run in runs if run.violates(case.property))
    subject = case.subject()
    return shrink(first, lambda script: _shown(case, replay(subject, script)), case.property).script


def _shown(case: RealCase, run: RunResult) -> RunResult:
    """The run; without its violations when it does not show of the message what it should."""
    violation = run.violates(case.property)
    if violation is None:
        return run
    seq = violation.position  # of the first life, whose messages are numbered by their places
    told = [row for row in run.rows if not row.count or row.seq <= seq < row.seq + row.count]
    kinds = [str(row.kind) for row in told]
    rest = iter(kinds)
    is_shown = all(wanted in rest for wanted in case.shows) and case.lacks not in kinds
    return run if is_shown else replace(run, violations=())


def _failing(case: RealCase, seed: int) -> RunResult:
    """The run of a seed: two messages a while apart, and this one kind of fault."""
    source = draws(seed, "counterexample")
    ranges = [one for kind in chosen([case.fault]) for one in kind.ranges]
    values = {one.option: one.draw(source, SECOND) for one in ranges}
    calm = Options(seed=seed, messages=2, gap_us=20_000, delay_us=10_000, chaos_us=3 * SECOND)
    if case.layers == STREAM:  # in no hurry, so that something can happen between two steps
        calm = replace(calm, gap_us=300_000, store_us=50_000, handler_us=200_000)
    return _shown(case, run_hop(case.subject(), replace(calm, **values)))  # type: ignore[arg-type]


def main(names: list[str]) -> None:
    """Find the scripts of these cases, or of all, and write them."""
    SCRIPTS.mkdir(exist_ok=True)
    for name in names or REAL:
        script = found(REAL[name])
        save(script, SCRIPTS / f"{name}.json")
        said = "; ".join(map(str, script.decisions))
        sys.stdout.write(f"{name}: seed {script.seed}: {said}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
