"""Runs mutants against the ordinary campaign, and shrinks what kills them.

``python -m tests.mutants.runner`` runs all and writes the table of seeds to the kill.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from surepipe.simulation.campaign import CampaignResult, campaign
from surepipe.simulation.chance.script import Script
from surepipe.simulation.faults import Mode
from surepipe.simulation.hop import replay
from surepipe.simulation.results import RunResult
from surepipe.simulation.shrink import shrink
from surepipe.simulation.subjects import Subject
from tests.mutants.catalogue import MUTANTS, NOT_YET, PARTIES
from tests.mutants.mutant import Mutant
from tests.mutants.parties import PartyKill, hunt_party

SEEDS_MAX = 2_000
MESSAGES = 24


@dataclass(frozen=True)
class Kill:
    """How a mutant died: after so many seeds, by this property, and the shrunk script says it again."""

    mutant: Mutant
    seeds: int
    property: str
    script: Script
    digest: str
    steps: int
    seen: tuple[str, ...]
    """All properties that were violated until then."""


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Kill | None:
    """Run seeds 0, 1, 2 ... until a named property is violated; None when none was."""
    with mutant.around():
        found = until_killed(mutant, seeds_max)
        named = next((one for one in mutant.killed_by if one in found.failures), None)
        if named is None:
            return None
        shrunk = shrink(
            found.failures[named].script,
            lambda script: replay(mutant.subject, script),
            named,
            replays_max=mutant.replays,
        )
        again = replay(mutant.subject, shrunk.script)
        assert again.violates(named) == shrunk.violation, "the shrunk script tells another story"
        assert again.digest == shrunk.result.digest, "the shrunk script does not repeat its run"
    steps = len(shrunk.script.decisions)
    seen = tuple(sorted(found.violated))
    return Kill(mutant, found.runs, named, shrunk.script, again.digest, steps, seen)


def until_killed(mutant: Mutant, seeds_max: int) -> CampaignResult:
    """The campaign as it is, over seeds that end when the mutant is dead."""
    is_dead = False

    def seeds() -> Iterator[int]:
        for seed in range(seeds_max):
            if is_dead:
                return
            yield seed

    def look(seed: int, result: RunResult) -> None:
        del seed
        nonlocal is_dead
        is_dead = any(violation.property in mutant.killed_by for violation in result.violations)

    return campaign_of(mutant, mutant.subject, seeds(), each=look)


def campaign_of(
    mutant: Mutant,
    subject: Subject,
    seeds: Iterable[int],
    each: Callable[[int, RunResult], None] | None = None,
) -> CampaignResult:
    """The campaign that each mutant meets, and its sound subject too."""
    return campaign(
        subject,
        seeds,
        mode=Mode.CLAIM,
        messages=MESSAGES,
        base=mutant.base,
        required=(),
        each=each,
    )


def table(kills: Iterable[Kill]) -> str:
    """A row for each mutant."""
    rows = [
        "| mutant | change | killed by | seeds | decisions after shrinking | all that was violated |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {kill.mutant.id} | {kill.mutant.change} | {kill.property} | {kill.seeds} | {kill.steps} "
        f"| {' '.join(kill.seen)} |"
        for kill in kills
    ]
    return "\n".join(rows)


def ablation(kills: Sequence[Kill]) -> str:
    """For each property: how many mutants it noticed until they were dead, and how many nothing else noticed."""
    rows = ["| property | noticed | alone |", "| --- | --- | --- |"]
    for one in sorted(
        {one for kill in kills for one in kill.seen}, key=lambda p: int(p[1:3].strip("g"))
    ):
        noticed = [kill for kill in kills if one in kill.seen]
        alone = [kill for kill in noticed if kill.seen == (one,)]
        rows.append(f"| {one} | {len(noticed)} | {len(alone)} |")
    return "\n".join(rows)


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def party_table(kills: Iterable[PartyKill]) -> str:
    """A row for each mutant of a party."""
    rows = [
        "| mutant of a party | change | seeds | all that was found with the last of them |",
        "| --- | --- | --- | --- |",
    ]
    rows += [
        f"| {kill.mutant.id} | {kill.mutant.change} | {kill.seeds} | {' '.join(kill.names)} |"
        for kill in kills
    ]
    return "\n".join(rows)


def hunt_parties(survivors: list[str]) -> list[PartyKill]:
    """Those that died; the others' names are added."""
    kills: list[PartyKill] = []
    for mutant in PARTIES:
        if sys.argv[1:] and mutant.id not in sys.argv[1:]:
            continue
        kill = hunt_party(mutant)
        if kill is None:
            survivors.append(mutant.id)
            say(f"{mutant.id:24} SURVIVED {mutant.within} seeds: {mutant.change}")
        else:
            kills.append(kill)
            say(f"{mutant.id:24} {' '.join(kill.names)} after {kill.seeds} seeds")
    return kills


def main() -> int:
    """Run all; 1 when one survives."""
    chosen = [one for one in MUTANTS if not sys.argv[1:] or one.id in sys.argv[1:]]
    kills: list[Kill] = []
    survivors: list[str] = []
    for mutant in chosen:
        kill = hunt(mutant)
        if kill is None:
            survivors.append(mutant.id)
            say(f"{mutant.id:16} SURVIVED {SEEDS_MAX} seeds: {mutant.change}")
        else:
            kills.append(kill)
            say(f"{mutant.id:16} {kill.property:4} after {kill.seeds} seeds")
    parties = hunt_parties(survivors)
    out = Path("build/mutants.md")
    out.parent.mkdir(exist_ok=True)
    out.write_text(f"{table(kills)}\n\n{party_table(parties)}\n\n{ablation(kills)}\n")
    seeds = [kill.seeds for kill in kills] + [kill.seeds for kill in parties]
    say(
        f"{len(seeds)} of {len(seeds) + len(survivors)} killed, median {median(seeds or [0]):g} seeds; {out}"
    )
    say(f"not in these tables: {', '.join(NOT_YET)}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
