"""The work of ``surepipe simulate``: campaigns over a file, the faults that break it, and the words for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from surepipe.audit.findings import Violation
from surepipe.cli.output import Exit, Line, line, standard_output_apart
from surepipe.core.claims import (
    NO_FAULTS,
    Claim,
    Faults,
    delivers_told,
    faults_text,
    in_order,
)
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assessing import Assessment, Verdict, assess
from surepipe.pipelines.loading import load
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate.breaking import Broken, untolerated
from surepipe.pipelines.simulate.campaign import (
    BY_STAGE,
    CANARY,
    EFFECT_ON,
    CannotSimulate,
    PlanResult,
    judged_through,
    missing_in,
)
from surepipe.pipelines.simulate.crew import PIECE, Crew, Recipe, crew
from surepipe.pipelines.simulate.ends import Answer, Told
from surepipe.pipelines.simulate.reference import in_any, with_place
from surepipe.pipelines.simulate.sandbox import STARTS_A_THREAD
from surepipe.pipelines.simulate.simulating import (
    TWICE,
    NotDeterministic,
    Simulation,
    SimulationFailed,
    changed_since,
    require_expected,
    simulation_of_plan,
)
from surepipe.pipelines.simulate.subject import PlanSubject, explore_plan_hops
from surepipe.pipelines.simulate.written import taken_over
from surepipe.pipelines.users_code import functions_in
from surepipe.simulation.chance.script import load as load_script
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.report.words import in_words

FIRST_LINE_RUNS = 20
HELD, NOT_JUDGED, NOT_EXERCISED, VIOLATED = "held", "not judged", "not exercised", "violated"
NOTHING = Claim(frozenset())
EXPECTED = "P15"
"""Not what a run does, but what the plan promises."""


@dataclass(frozen=True)
class SimulateRequest:
    """What was asked for."""

    file: Path
    seeds: Sequence[int]
    faults: str | None
    messages: int | None
    seconds: float | None
    explores: bool
    jobs: int
    replay: Path | None
    out: Path
    tell: Callable[[str], None] | None

    def say(self, text: str) -> None:
        """A line as soon as it is known."""
        if self.tell is not None:
            self.tell(text)


@dataclass
class Findings:
    """What came of it."""

    code: Exit = Exit.HELD
    runs: int = 0
    events: int = 0
    dead: int = 0
    notes: list[str] = field(default_factory=list[str])
    assessment: Assessment | None = None
    failure: str = ""
    page: Path | None = None
    script: Path | None = None
    broken: list[Broken] = field(default_factory=list[Broken])
    missing: tuple[str, ...] = ()
    unexercised: tuple[str, ...] = ()
    """the same in words, and faults that were asked for and never struck, each with its reason"""
    has_asked: bool = False
    """faults were asked for by name"""
    asked: tuple[str, ...] = ()
    """those of them that struck"""
    unreached: Told = field(default_factory=dict[str, str])
    unjudged: dict[str, str] = field(default_factory=dict[str, str])
    results: Sequence[PlanResult] = ()
    untried: Mapping[str, Faults] = field(default_factory=dict[str, Faults])
    """faults that are said to be survived and were not seen to be: why, and which"""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    complaint: str = ""
    explored: list[str] = field(default_factory=list[str])
    property: str = ""
    end: str = ""
    """of what was violated: at which end of the plan, where that is known"""

    def broken_by(self, violation: Violation) -> None:
        self.property = violation.property
        self.end = violation.end or violation.pipe.rpartition("/")[2]

    def promises(self) -> Sequence[Verdict]:
        """Of each pipe, and then of each way through the plan."""
        return (*self.assessment.pipes, *self.assessment.ways) if self.assessment else ()

    def as_lines(self) -> Iterator[Line]:
        if self.failure:
            yield from (line(text) for text in self.failure.splitlines())
        if self.assessment is not None and not self.complaint:
            for verdict in self.promises():
                yield from self._held(verdict)
        for why, faults in self.untried.items():
            yield line(("not tried: ", "warn"), f"{faults_text(faults)}, as {why}")
        for text in self.explored:
            yield line(text)
        for broken in self.broken:
            yield line((f"not tolerated: {broken.fault}", "head"))
            yield from (line(in_words(text), indent=2) for text in broken.lines)
        for text in self.unexercised:
            yield line(("not exercised: ", "warn"), text)
        if self.left_out:
            named = ", ".join(f"{name} {count}" for name, count in self.left_out.items())
            yield line(f"messages left out by stages, without faults: {named}")
        for text in self.unreached:
            yield line(("not exercised: ", "warn"), text)
        for text in self.unjudged:
            yield line(("not judged: ", "warn"), text)
        for note in self.notes:
            if note not in self.failure:  # which has told it
                yield line(("note: ", "warn"), note)

    def _held(self, verdict: Verdict) -> Iterator[Line]:
        if self.failure:
            yield line(f"{verdict.name}: {verdict.promise}; see above")
            return
        word = self.word_for(verdict)
        style = "warn" if self.unexercised or word != HELD else "good"
        but = " but for what was not exercised, see below" if self.unexercised else ""
        if word != HELD:
            but = ", see below"
        for tried in self._tried(verdict):
            told = f"in {self.runs} schedules{but}  {verdict.name}: {tried}"
            yield line((f"{word} ", style), told)

    def word_for(self, verdict: Verdict) -> str:
        """What came of one promise. Where an end or a stage can't be judged, the ways that lead there are not;
        what a pipe does with its messages is seen all the same, as long as some way through it has any."""
        assert self.assessment is not None
        ways = [way.parts for way in self.assessment.ways if {*verdict.parts} <= {*way.parts}]
        if CANARY in self.missing:
            return NOT_JUDGED
        if self.has_asked and not self.asked:
            return NOT_EXERCISED
        if ways and all({*way}.intersection(self.unreached.values()) for way in ways):
            return NOT_EXERCISED
        return NOT_JUDGED if {*verdict.parts}.intersection(self.unjudged.values()) else HELD

    def _tried(self, verdict: Verdict) -> Iterator[str]:
        """What of a promise these schedules speak of."""
        known = NO_FAULTS
        for claim in _spoken_of(verdict, has_asked=bool(self.asked)):
            tried = judged_through(claim, self.results)
            if not tried <= known:
                known |= tried
                yield verdict.promised(tried, claim)
        if not known and self.asked:
            yield f"{delivers_told(NOTHING)}; under {', '.join(self.asked)}"
        elif not known:
            yield f"{verdict.promised(NO_FAULTS)}; no fault was tried"

    def as_document(self) -> dict[str, object]:
        return {
            "exit": int(self.code),
            "runs": self.runs,
            "events": self.events,
            "violated": self.property or None,
            "report": self.failure or None,
            "page": str(self.page) if self.page else None,
            "script": str(self.script) if self.script else None,
            "verdicts": self._words(),
            "missing": list(self.missing),
            "unexercised": list(self.unexercised),
            "unreached": list(self.unreached),
            "unjudged": [*self.unjudged, *self._unknown_beside_a_failure()],
            "untried": {why: in_order(faults) for why, faults in self.untried.items()},
            "left_out": self.left_out,
            "notes": self.notes,
            "not_tolerated": [
                {"fault": one.fault, "lines": list(one.lines), "page": str(one.page or "")}
                for one in self.broken
            ],
            "error": self.complaint or None,
        }

    def _words(self) -> dict[str, str]:
        if self.assessment is None or self.complaint:
            return {}
        word_for = self._word_beside_a_failure if self.failure else self.word_for
        return {verdict.name: word_for(verdict) for verdict in self.promises()}

    def _word_beside_a_failure(self, verdict: Verdict) -> str:
        """A campaign ends at the first finding: of what that is not about, nothing more is known."""
        if self.property == EXPECTED:
            is_about = bool(verdict.unmet or verdict.refused)
        else:
            is_about = self.end in verdict.parts if self.end else len(verdict.parts) > 1
        return VIOLATED if is_about else NOT_JUDGED

    def _unknown_beside_a_failure(self) -> Iterator[str]:
        for name, word in self._words().items():
            if self.failure and word == NOT_JUDGED:
                yield f"{name}, because the schedules ended with what was violated: mend that, and run it again"


def simulate_file(request: SimulateRequest) -> Findings:
    """Everything that was asked for. Raises PipelineErrors for a file that can't be read."""
    found = Findings()
    try:
        _simulate(request, found)
    except KeyboardInterrupt:
        found.code, found.complaint = Exit.INTERRUPTED, _interrupted(request, found)
    return found


def _simulate(request: SimulateRequest, found: Findings) -> None:
    plan = load(request.file)
    found.assessment = assess(plan)
    if not found.assessment.usable:
        found.code = Exit.UNUSABLE
        found.complaint = f"surepipe check refuses {request.file}: see there"
        return
    try:
        require_expected(plan)
    except SimulationFailed as failure:
        found.code, found.failure, found.property = Exit.VIOLATED, str(failure), EXPECTED
        return
    try:
        simulation = simulation_of_plan(
            plan,
            messages=request.messages,
            faults=request.faults or "claim",
            reports=request.out,
            replay_with=f"surepipe simulate {request.file} --replay",
        )
        _run(request, simulation, found)
    except CannotSimulate as error:
        found.code, found.complaint = (
            Exit.UNUSABLE,
            _how_to_replace(error, plan),
        )
    except ConfigurationError as error:
        found.code, found.complaint = Exit.UNUSABLE, str(error)


def _run(request: SimulateRequest, simulation: Simulation, found: Findings) -> None:
    if request.replay is not None:
        _replay(request.replay, simulation, found)
    else:
        _campaigns(request, simulation, found)


def _interrupted(request: SimulateRequest, found: Findings) -> str:
    if not found.runs and request.replay is not None:
        return "interrupted before the run of the script was over: nothing is said of it"
    if not found.runs:
        return "interrupted before the first schedules were over: nothing is said to hold"
    tried = f"interrupted after {found.runs} of {len(request.seeds)} schedules"
    if found.property:
        return f"{tried}: {found.property} was violated, which was not looked into: run it again to see how"
    return f"{tried}: nothing broke in these, and nothing is said to hold"


def _campaigns(request: SimulateRequest, simulation: Simulation, found: Findings) -> None:
    recipe = Recipe(request.file, request.messages, request.faults or "claim")
    jobs = min(request.jobs, -(-len(request.seeds) // PIECE))
    with crew(recipe, jobs) as workers:
        _campaign(request, simulation, workers, found)
    if found.code is Exit.HELD and (found.unexercised or found.unreached or found.unjudged):
        found.code = Exit.NOT_EXERCISED


def _campaign(
    request: SimulateRequest, simulation: Simulation, workers: Crew, found: Findings
) -> None:
    started = time.monotonic()
    results: list[PlanResult] = []
    with ExitStack() as held:
        twin: subprocess.Popen[str] | None = None
        for result in workers.campaign(request.seeds):
            results.append(result)
            _add(simulation, found, result)
            if found.code is Exit.NOT_DETERMINISTIC:
                return
            if twin is None and found.runs >= min(FIRST_LINE_RUNS, len(request.seeds)):
                broke = "violated" if found.failure else "nothing broke"
                twin = _twin_of(request, _digests(results), held)
                request.say(f"{_first(simulation, found)}: {broke}")
            if result.first is not None:
                _make_sure(request, simulation, result, found)
                _note(simulation, results, found)
                return
            if _is_late(request, started):
                break
        found.missing = missing_in(results)
        struck = {kind for one in results for kind in one.faults}
        found.has_asked, found.asked = bool(simulation.asked), tuple(simulation.struck_of(struck))
        found.unexercised = tuple(simulation.unexercised(*results))
        _note(simulation, results, found)
        found.unreached = _together(one.unreached for one in results)
        found.results = results
        found.untried = dict(simulation.untried(_promised(found), _judged(found)))
        found.left_out = dict(results[0].left_out) if results else {}
        retold = _together(one.retold for one in results)
        shared = dict.fromkeys(simulation.shared(*results), "")
        found.unjudged = {**retold, **shared, **dict(simulation.unjudged())}
        broken: list[Broken | None] = []
        if request.faults is None and not _is_late(request, started):
            broken += workers.broken(untolerated(simulation.subject))
        if twin is not None:
            _compare(twin, simulation, results, _digests(results), found)
    found.broken = [one for one in broken if one is not None and found.code is Exit.HELD]
    if request.explores:
        _explore(simulation, found)


def _note(simulation: Simulation, results: Sequence[PlanResult], found: Findings) -> None:
    """What is to be said of the stages beside the verdict, whatever that is."""
    simulation.memory = tuple(sorted({name for one in results for name in one.memory}))
    simulation.not_compared = in_any(one.not_compared for one in results)
    simulation.judged = frozenset(end for one in results for end in one.judged)
    simulation.by_order = frozenset(who for one in results for who in one.by_order)
    for one in results:
        simulation.subject.forgotten.update(dict.fromkeys(one.forgotten))
    simulation.written = next((one.written for one in results if one.written), "")
    found.notes += simulation.notes(*results)


def _spoken_of(verdict: Verdict, *, has_asked: bool = False) -> Sequence[Claim]:
    """All that it promises, and less than that where it has to survive more: faults that were asked for, or that
    are expected to be tolerated."""
    headline, *weaker = verdict.claims() or (NOTHING,)
    expects_more = any(not one.tolerates <= verdict.tolerates for one in verdict.expected)
    return (headline, *weaker) if has_asked or expects_more else (headline,)


def _promised(found: Findings) -> Faults:
    """All that is said to be survived, by some headline or by what is expected."""
    expected = (claim.tolerates for one in found.promises() for claim in one.expected)
    return NO_FAULTS.union(*(one.tolerates for one in found.promises()), *expected)


def _judged(found: Findings) -> Faults:
    """All that struck in runs in which some of that was judged."""
    claims = (claim for one in found.promises() if one.explanation for claim in _spoken_of(one))
    return NO_FAULTS.union(*(judged_through(one, found.results) for one in claims))


def _together(tellings: Iterable[Told]) -> dict[str, str]:
    """Of each part what was told of it first: where runs can't be repeated, each process saw other answers."""
    found: dict[str, str] = {}
    for told in tellings:
        known = {*found.values()}
        found |= {text: part for text, part in told.items() if part not in known}
    return found


def _first(simulation: Simulation, found: Findings) -> str:
    return f"{simulation.subject.name}: first {found.runs} schedules, {found.events} events"


def _digests(results: Sequence[PlanResult]) -> dict[int, str]:
    """Of the first seeds that are run twice."""
    found = {seed: digest for result in results for seed, digest in result.digests.items()}
    return {seed: found[seed] for seed in list(found)[:TWICE]}


def _is_late(request: SimulateRequest, started: float) -> bool:
    return request.seconds is not None and time.monotonic() - started > request.seconds


def _add(simulation: Simulation, found: Findings, result: PlanResult) -> None:
    found.runs += result.runs
    found.events += result.events
    found.dead += result.dead
    if result.first is not None:
        found.broken_by(result.first.violation)
        try:
            failure = simulation.failed(result.first)
        except NotDeterministic as error:
            found.code, found.complaint = Exit.NOT_DETERMINISTIC, str(error)
            return
        found.failure, found.page, found.script = str(failure), failure.page, failure.script
        found.code = Exit.VIOLATED


def _replay(script: Path, simulation: Simulation, found: Findings) -> None:
    told = load_script(script)
    if told.subject != simulation.subject.name:
        raise ConfigurationError(
            f"{script}: this is a script of the pipeline {told.subject}, and the file is that of "
            f"{simulation.subject.name}: name the file that the script was made with"
        )
    others = list(changed_since(simulation.subject, told.code))
    try:
        result = simulation.replay(told)
    except SimulationFailed as failure:
        found.code, found.failure = Exit.VIOLATED, str(failure)
        if failure.result is not None:
            found.runs, found.events = 1, failure.result.events
            found.broken_by(failure.result.violations[0])
            found.script = script
            found.notes += simulation.notes()
        return
    found.assessment = None  # one run says of nothing that it held
    found.runs, found.events = 1, result.events
    since = f"; since the script was written, {' and '.join(others)}" if others else ""
    found.explored = [f"nothing is violated in this run{since}"]


def _how_to_replace(error: CannotSimulate, plan: Plan) -> str:
    """What to write, as far as a double helps. A stage as a whole is to have none: it would not be tested then."""
    if not error.refusals:
        return str(error)
    lines = [str(refusal) for refusal in error.refusals[:3]]
    if any(refusal.what == STARTS_A_THREAD for refusal in error.refusals):
        lines.append(_IN_TIME)
    advice = dict.fromkeys(refusal.advice for refusal in error.refusals if refusal.advice)
    if advice:
        return "\n".join([*lines, *advice])
    named = dict.fromkeys(refusal.function for refusal in error.refusals if refusal.function)
    if not named:
        return "\n".join([*lines, "give what does that a double (simulate: replace:)"])
    own = [name for name in named if name in plan.simulate.replace.values()]
    if own:
        return "\n".join([*lines, f"{own[0]} is a double already: {_DOUBLES_STAY_INSIDE}"])
    whole = [name for name in named if name in {path for _, _, path in functions_in(plan.parts)}]
    how = f"{_FUNCTION_OF_ITS_OWN}{', '.join(whole)}), in the file:" if whole else _A_DOUBLE
    apart = {f"{name.partition(':')[0]}:NAME" if name in whole else name: None for name in named}
    replaced = (f'    "{name}": "doubles:{name.rpartition(":")[2]}"' for name in apart)
    return "\n".join([*lines, how, "simulate:", "  replace:", *replaced])


_IN_TIME = (
    "what a thread does when its stage has returned is lost with its process, and when it fails nobody hears of "
    "it: do it in the stage, or wait for the thread before the stage returns (a double would hide that). For what "
    "waits:"
)
_A_DOUBLE = "give it a double, in the file:"
_FUNCTION_OF_ITS_OWN = (
    "put that call into a function of its own, and give that one a double (nothing is tested of a stage that has "
    "one itself, here "
)


_DOUBLES_STAY_INSIDE = (
    "let it only tell an Outside (surepipe.simulation) what the real one would have done"
)


# The same seeds under another hash seed.


def _twin_of(
    request: SimulateRequest, digests: Mapping[int, str], held: ExitStack
) -> subprocess.Popen[str]:
    """Another process, which runs these seeds too; it ends with the stack at the latest."""
    twin = subprocess.Popen(
        [
            *(sys.executable, "-m", "surepipe.cli.simulating", str(request.file)),
            *(str(request.messages or 0), request.faults or "claim"),
            ",".join(map(str, digests)),
        ],
        env={**os.environ, "PYTHONHASHSEED": "1" if sys.flags.hash_randomization else "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    held.enter_context(twin)
    held.callback(twin.kill)
    return twin


def _make_sure(
    request: SimulateRequest, simulation: Simulation, result: PlanResult, found: Findings
) -> None:
    """What a run broke counts when the run can be repeated."""
    assert result.first is not None
    seed = result.first.seed
    digests = {seed: result.digests[seed]}
    with ExitStack() as held:
        _compare(_twin_of(request, digests, held), simulation, [result], digests, found)
    if found.code is not Exit.VIOLATED:
        found.failure = found.property = ""
        found.page = found.script = None


def _compare(
    twin: subprocess.Popen[str],
    simulation: Simulation,
    results: Sequence[PlanResult],
    digests: Mapping[int, str],
    found: Findings,
) -> None:
    told, complaint = twin.communicate()
    if twin.returncode:
        found.code = Exit.NOT_DETERMINISTIC
        found.complaint = f"the same seeds could not be run again: {complaint.strip()[-300:]}"
        return
    other = json.loads(told)
    answers = {seed: said for result in results for seed, said in result.answers.items()}
    for seed, digest in digests.items():
        there = other["digests"].get(str(seed))  # None where that process ended at an earlier seed
        if there != digest:
            if any(one.leaking for one in results):  # it is known why, so that is what is said
                found.code = Exit.NOT_EXERCISED
                shared = dict.fromkeys(simulation.shared(*results), "")
                found.unjudged |= _together(one.retold for one in results) | shared
                return
            others = other["answers"].get(str(seed), [])
            found.code = Exit.NOT_DETERMINISTIC
            found.complaint = _difference(simulation.subject, seed, answers.get(seed, []), others)
            return


def _difference(
    subject: PlanSubject, seed: int, here: Sequence[Answer], there: Iterable[Sequence[str]]
) -> str:
    """Only what both say of one and the same message is held against each other, the first with the first."""
    others: dict[tuple[str, str], list[str]] = {}
    for who, message, answer in there:
        others.setdefault((who, message), []).append(answer)
    for who, message, answer in here:
        known = others.get((who, message), [])
        other = known.pop(0) if known else answer
        if other != answer:
            is_effect = who.startswith(EFFECT_ON)
            before, by_stage, stage = who.rpartition(BY_STAGE)
            doer = f"{before}{by_stage}{with_place(subject, stage)}" if by_stage else who
            what = f"the {doer} differs" if is_effect else f"{doer} answered differently"
            said_of = "What is done, and its key," if is_effect else "An answer"
            return (
                f"not deterministic (seed {seed}): {what} for the same message: {answer} / {other}. {said_of} "
                "must follow from the message alone, and not from hash() or id(), the order of a set (sort it), "
                "the time by a clock of its own, or what the stage keeps"
            )
    return f"not deterministic: seed {seed} went two ways under two hash seeds"


def _twin(answer: IO[str], file: str, messages: str, faults: str, seeds: str) -> None:
    """In another process, under another hash seed: answer with the digests of these seeds."""
    path = Path(file)
    simulation = simulation_of_plan(load(path), messages=int(messages) or None, faults=faults)
    found = simulation.campaign([int(seed) for seed in seeds.split(",")], stop_at_first=True)
    json.dump({"digests": found.digests, "answers": found.answers}, answer)


def _explore(simulation: Simulation, found: Findings) -> None:
    """Every schedule of small scopes, with the faults that each pipe promises to survive."""
    hops = explore_plan_hops(simulation.subject.plan)
    found.explored += [line for hop in hops for line in str(hop).splitlines()]
    verdicts = {hop.verdict for hop in hops}
    if Explored.VIOLATED in verdicts:
        found.code = Exit.VIOLATED
    elif Explored.BOUNDED in verdicts and found.code is Exit.HELD:
        found.code = Exit.NOT_EXERCISED


if __name__ == "__main__":
    with standard_output_apart() as ours, taken_over():
        _twin(ours, *sys.argv[1:5])
