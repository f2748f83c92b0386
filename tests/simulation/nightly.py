"""The full counts, which take longer than a run of CI may: ``make nightly MINUTES=60``.

    python -m tests.simulation.nightly [--minutes M] [--seed N] [--jobs N] [--subject NAME] [STAGE ...]

gate      every subject of the gate of determinism, 500 seeds in two processes
alarms    4,000 seeds of each pipe and stack within what it claims, judged: nothing may be found
examples  the same with 1,000 seeds of each pipeline among the examples, their actors and stages
threads   the actor runtime under stress
scopes    two of each fault and four messages, explored; none is begun when the minutes are over
queues    troubled runs of replicated queues: the log, a session, and epochs, each without a liar, with one and two

``--subject`` asks gate and alarms about some subjects alone, as after a mend. Each ends with one line: what ran,
how much, what was not exercised, the slowest three. The first seed is another one each day. What is found fails
the run; scripts of pipes go to ``tests/corpus``, as those of a hunt do, scripts and pages of pipelines to
``.surepipe/nightly``.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import TypeVar

from surepipe.pipelines.simulate.campaign import PlanFailure, PlanResult
from surepipe.pipelines.simulate.crew import cores
from surepipe.simulation.campaign import CampaignResult, campaign
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Exploration, Explored
from surepipe.simulation.faults import Mode
from surepipe.simulation.options import Options
from tests.faults.quarry import QUARRY
from tests.queues.rmq.test_epochs import run_epochs
from tests.queues.rmq.test_log import run_log
from tests.queues.rmq.test_session import run_troubled
from tests.real import threads
from tests.real.ground import nothing
from tests.real.run import FAILED, PASSED, run_apart, run_stage
from tests.real.stage import Stage, Tally
from tests.simulation import nightly_scopes
from tests.simulation.gate import GATED, PIPELINES, ROOT, differences, simulation
from tools.hunt import CORPUS, keep

GATE_SEEDS = 500
ALARM_SEEDS = 4_000
ALARM_MESSAGES = 16
EXAMPLE_SEEDS = 1_000
WATCHED = Options(gauges=True, events_max=20_000)
"""What a store lost (P21) and what machines count (P18 to P20) is judged only where it is told. A run has hundreds
of events: one with so many has ends that answer each other as fast as they can."""
PIECE = 100
"""Seeds of an example that a process takes at a time."""
THREAD_TURNS = 6
QUEUE_SEEDS = 20
QUEUES = {"log": run_log, "session": run_troubled, "epochs": run_epochs}
SEEDS_A_DAY = 10_000
PAGES = ROOT / ".surepipe" / "nightly"

SUBJECTS = {subject.name: subject for subject in QUARRY}
A = TypeVar("A")
B = TypeVar("B")


class Found(AssertionError):
    """What must not be there."""


@dataclass(frozen=True)
class Night:
    """How much is done, from which seed on, and on how many processes."""

    seed: int
    minutes: float
    jobs: int
    subjects: Sequence[str] = ()
    """The only ones that the gate and the alarms look at; all without any."""

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those of these subjects that are looked at."""
        return [name for name in names if not self.subjects or name in self.subjects]

    def stages(self) -> tuple[Stage, ...]:
        """All of them, in their order."""
        gated, alarmed = len(self.chosen(GATED)), len(self.chosen(SUBJECTS))
        return (
            self.stage("gate", self.gate, {"runs": 2 * GATE_SEEDS * gated}),
            self.stage("alarms", self.alarms, {"runs": ALARM_SEEDS * alarmed}),
            self.stage("examples", self.examples, {"runs": EXAMPLE_SEEDS * len(PIPELINES)}),
            self.stage("threads", self.threads, {"turns": THREAD_TURNS}),
            self.stage("scopes", self.scopes, {"scopes": 1}),
            self.stage("queues", self.queues, {"runs": 3 * QUEUE_SEEDS * len(QUEUES)}),
        )

    @staticmethod
    def stage(
        name: str, run: Callable[[Tally], Iterator[str]], minimum: Mapping[str, int]
    ) -> Stage:
        """A stage that fails with all that its run has found."""

        def judged(rng: Random, tally: Tally) -> None:
            del rng  # seeds are counted, not drawn: a failure is repeated by its own
            found = list(run(tally))
            if found:
                raise Found("\n".join(found))

        return Stage(name, "nightly", judged, minimum, nothing)

    # What each of them does; gives what it has found.

    def gate(self, tally: Tally) -> Iterator[str]:
        """One subject a time in each pair of processes."""
        seeds = range(self.seed, self.seed + GATE_SEEDS)

        def compared(name: str) -> list[str]:
            with tally.timed(name):
                found = differences([name], seeds)
            tally.add("runs", 2 * len(seeds))
            return [str(one) for one in found]

        with ThreadPoolExecutor(self.jobs) as pool:
            for found in pool.map(compared, self.chosen(GATED)):
                yield from found

    def alarms(self, tally: Tally) -> Iterator[str]:
        """Runs within the claim; what broke something is shrunk and filed."""
        seeds = range(self.seed, self.seed + ALARM_SEEDS)
        pieces = dict.fromkeys(self.chosen(SUBJECTS), seeds)
        for name, found in self._each(tally, alarms_of, pieces):
            tally.add("subjects")
            tally.add("runs", found.runs)
            tally.add("events", found.events)
            for failure in found.failures.values():
                keep(SUBJECTS[name], failure, CORPUS)
            if found.missing:
                tally.note(f"not exercised by {name}: {', '.join(found.missing)}")
            if found.verdict == "violated" or not found.canary_caught:
                yield str(found)

    def examples(self, tally: Tally) -> Iterator[str]:
        """The same for whole pipelines."""
        pieces = {
            f"{name} from {first}": (name, range(first, first + PIECE))
            for name in PIPELINES
            for first in range(self.seed, self.seed + EXAMPLE_SEEDS, PIECE)
        }
        seen: dict[str, set[str]] = {name: set() for name in PIPELINES}
        wanted: dict[str, set[str]] = {name: set() for name in PIPELINES}
        for title, (found, told) in self._each(tally, examples_of, pieces):
            name = pieces[title][0]
            tally.add("runs", found.runs)
            tally.add("events", found.events)
            seen[name].update(found.marks)
            wanted[name].update(found.missing)
            yield from told
        for name in PIPELINES:
            if missing := sorted(wanted[name] - seen[name]):
                tally.note(f"not exercised by {name}: {', '.join(missing)}")

    def threads(self, tally: Tally) -> Iterator[str]:
        """The stage of CI, again and again, each turn in a process of its own."""
        for turn in range(self.seed, self.seed + THREAD_TURNS):
            with tally.timed(f"turn with seed {turn}"):
                result = run_apart(threads.STAGE, turn)
            tally.add("turns")
            if result.status != PASSED:
                yield result.text
        tally.note(f"not exercised: {threads.STAGE.omits}")

    def queues(self, tally: Tally) -> Iterator[str]:
        """Each kind with each number of liars from a seed of its own on."""
        seeds = range(self.seed, self.seed + QUEUE_SEEDS)
        pieces = {
            f"{kind}, {twins} liars": (kind, twins, seeds) for kind in QUEUES for twins in range(3)
        }
        for _, found in self._each(tally, queues_of, pieces):
            tally.add("runs", QUEUE_SEEDS)
            yield from found

    def scopes(self, tally: Tally) -> Iterator[str]:
        """As many as there is time for."""
        end = time.monotonic() + 60 * self.minutes
        pieces = {name: (name, end) for name in nightly_scopes.BY_ID}
        left: list[str] = []
        for name, found in self._each(tally, explored, pieces):
            if found is None or found.verdict is Explored.BOUNDED:
                left.append(name if found is None else f"{name} beyond {found.states} states")
            if found is None:
                continue
            tally.add("scopes")
            tally.add("states", found.states)
            if found.verdict is Explored.FOUND:
                yield f"{name}: {found.verdict}; {nightly_scopes.BY_ID[name].scope}"
        if left:
            tally.note(f"not exercised: {', '.join(left)}")

    def _each(
        self, tally: Tally, work: Callable[[str, A], B], pieces: Mapping[str, A]
    ) -> Iterator[tuple[str, B]]:
        """The work of every piece, in processes; in their order, and timed."""
        context = get_context("spawn")
        with (
            ProcessPoolExecutor(self.jobs, mp_context=context) as processes,
            ThreadPoolExecutor(self.jobs) as waiting,
        ):

            def one(name: str) -> tuple[str, B]:
                with tally.timed(name):
                    return name, processes.submit(work, name, pieces[name]).result()

            yield from waiting.map(one, pieces)


# In the processes.


def alarms_of(name: str, seeds: Sequence[int]) -> CampaignResult:
    """A campaign over one subject."""
    return campaign(SUBJECTS[name], seeds, mode=Mode.CLAIM, messages=ALARM_MESSAGES, base=WATCHED)


def examples_of(title: str, piece: tuple[str, Sequence[int]]) -> tuple[PlanResult, tuple[str, ...]]:
    """Some seeds of an example; each failure with its report."""
    del title
    name, seeds = piece
    found = simulation(name).campaign(seeds)
    return found, tuple(map(partial(report, name), found.failures.values()))


def report(name: str, failure: PlanFailure) -> str:
    """What a user would be told; its page and script are kept."""
    found = simulation(name)
    found.reports = PAGES / name.replace("/", "-")
    found.replay_with = f"surepipe simulate examples/{name} --replay"
    return str(found.failed(failure))


def queues_of(title: str, piece: tuple[str, int, Sequence[int]]) -> list[str]:
    """Some seeds of a kind; what failed, with its seed."""
    kind, twins, seeds = piece
    found: list[str] = []
    for seed in seeds:
        try:
            QUEUES[kind](seed, twins)
        except Exception:  # noqa: BLE001 - whatever it is, it is told with its seed
            found.append(f"{title}, seed {seed}: {traceback.format_exc(limit=-2)}")
    return found


def explored(name: str, piece: tuple[str, float]) -> Exploration | None:
    """One scope; None when the time is over."""
    if time.monotonic() >= piece[1]:
        return None
    night = nightly_scopes.BY_ID[name]
    return explore(night.subject, night.scope)


# The command.


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when anything was found."""
    given = _parser().parse_args(arguments)
    night = Night(given.seed, given.minutes, given.jobs, given.subject)
    sys.stdout.write(f"seeds from {night.seed} on\n")
    status = PASSED
    for stage in night.stages():
        if not given.stage or stage.name in given.stage:
            result = run_stage(stage, night.seed)
            sys.stdout.write(f"{result.text}\n")
            sys.stdout.flush()
            status = status if result.status == PASSED else FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.nightly",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [stage.name for stage in Night(0, 0, 1).stages()]
    today = datetime.datetime.now(datetime.UTC).date()
    parser.add_argument("stage", nargs="*", help=f"of {', '.join(names)}; all without one")
    parser.add_argument("--minutes", type=float, default=10, help="for the scopes")
    parser.add_argument("--seed", type=int, default=today.toordinal() * SEEDS_A_DAY)
    parser.add_argument("--jobs", type=int, default=cores())
    known = sorted({*SUBJECTS, *GATED})
    about = "of the gate and the alarms; all without one"
    parser.add_argument(
        "--subject", action="append", default=[], choices=known, metavar="NAME", help=about
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
