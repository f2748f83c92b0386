"""``simulate``: anything that can be simulated, over many seeds, with a report of what broke.

What may be given: a pipeline's file, a plan, the layers of a pipe, or a builder that gives a handler. The pytest
fixture of the same name and ``surepipe simulate`` are made of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, cast

from surepipe import __version__
from surepipe.actors.consuming.lanes import value_reader
from surepipe.audit.findings import Violation
from surepipe.audit.settings import facts_of
from surepipe.audit.trace import Row
from surepipe.core.callables import require_call
from surepipe.core.claims import Atom, Claim, Faults, parse_faults, promise_told
from surepipe.errors import ConfigurationError, MisuseError, so_often
from surepipe.pipelines.assessing import Verdict, assess
from surepipe.pipelines.engine_limits import key_words
from surepipe.pipelines.loading import load
from surepipe.pipelines.models.pipes import PipePart, StoreRoutePart
from surepipe.pipelines.models.sources import HttpSource, PythonSource
from surepipe.pipelines.models.stages import PythonSink, StagePart, Trying
from surepipe.pipelines.models.stores import SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate import written
from surepipe.pipelines.simulate.blame import drawn_anew, odd_answers, pointed
from surepipe.pipelines.simulate.campaign import (
    CANARY,
    IT_ACCEPTS,
    NO_CHANCE,
    PlanFailure,
    PlanResult,
    missing_in,
    quiet,
    repeat,
    run_one,
    run_seeds,
    shrunk,
    unstruck,
    unstruck_of_expected,
    untried,
    used_in,
    within_reach,
)
from surepipe.pipelines.simulate.ends import (
    ByOrder,
    Reference,
    asked_for,
    canonical,
    without_addresses,
)
from surepipe.pipelines.simulate.functions import (
    Functions,
    globals_in,
    keeper_of,
    module_of,
)
from surepipe.pipelines.simulate.memory import (
    Memory,
    ProcessMemory,
    changed,
    clocks_taken_by,
    dates_read_by,
    in_transaction,
    memory_of,
    project_modules,
    told,
)
from surepipe.pipelines.simulate.plain import ATTEMPT, at_first_attempts
from surepipe.pipelines.simulate.reference import (
    ALL_BUT_COUNT,
    EVERYTHING,
    IN_AN_OUTSIDE,
    STAYS,
    ending,
    leaking,
    left_in_doubles,
    not_compared,
    not_set_back_of_doubles,
    plainly,
    reference_of,
)
from surepipe.pipelines.simulate.sandbox import imported_virtually, importing
from surepipe.pipelines.simulate.source_text import (
    Project,
    changed_at,
    kept_around,
    kept_in,
    said_to_nobody,
    unjudged_by,
)
from surepipe.pipelines.simulate.sources_and_sinks import given_by, require_virtual_clocks
from surepipe.pipelines.simulate.subject import PlanSubject, require_pipes
from surepipe.pipelines.users_code import (
    functions_in,
    look_first_in,
    place_of_function,
    require_own,
)
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.script import load as load_script
from surepipe.simulation.chance.script import save as save_script
from surepipe.simulation.exercised import DRAINED, STRUCK, registered
from surepipe.simulation.faults import ALWAYS, FaultKind, chosen, words_of_faults
from surepipe.simulation.options import Options
from surepipe.simulation.report import page, text_report
from surepipe.simulation.report.words import fault_words, in_words, listing
from surepipe.simulation.results import Counterexample, RunResult
from surepipe.simulation.timeline import digest_of

__all__ = [
    "NotDeterministic",
    "NotExercised",
    "Simulated",
    "Simulation",
    "SimulationFailed",
    "load_script",
    "run_one",
    "simulation_of",
]


# A handler alone as a plan: it is put behind a stream pipe, in a process of its own, with 5 retries.


Builder: TypeAlias = Callable[[], object]
"""Gives a handler, or a handler and a check."""

RETRIES = 5
HANDLER = "surepipe.simulated:handler"
SOURCE = "surepipe.simulated:messages"


def plan_around_handler(name: str) -> Plan:
    """Messages go through a stream into the handler. Sender and receiver are two processes."""
    return Plan(
        name=name,
        stores=(SqliteStorePart.model_validate({"name": "main", "path": "main.db"}),),
        sources=(
            PythonSource.model_validate(
                {"name": "messages", "call": SOURCE, "repeatable": True, "node": "sender"}
            ),
        ),
        pipes=(
            PipePart.model_validate(
                {
                    "name": "pipe",
                    "from": "messages",
                    "route": StoreRoutePart(kind="sqlite", store="main"),
                    "journal": "main",
                    "node": "receiver",
                }
            ),
        ),
        stages=(
            StagePart.model_validate(
                {
                    "name": "handler",
                    "from": "pipe",
                    "call": HANDLER,
                    "retries": RETRIES,
                    "dead_letter": "main/dead",
                }
            ),
        ),
    )


def built(builder: Builder, check_given: Callable[..., object] | None = None) -> Functions:
    """The handler (and the check) of one run. Raises MisuseError when the builder gives neither, and
    ConfigurationError for a check that says nothing. ``check_given`` goes before its own."""
    found = builder()
    handler, check = (
        cast("tuple[object, object]", found) if isinstance(found, tuple) else (found, None)
    )
    if not callable(handler):
        raise MisuseError(
            f"the builder gave {found!r}: it returns a handler, or a handler and a check"
        )
    functions = Functions(given={HANDLER: handler})
    check = check_given or check
    if check is not None:
        require_call("the check that the builder gave", check, "run")
        functions.check = cast("Callable[[object], object]", check)
        _require_said(functions.check)
    return functions


def _require_said(check: Callable[..., object]) -> None:
    """Raises ConfigurationError for a check that says nothing."""
    if place := said_to_nobody(check):
        raise ConfigurationError(
            f"the check says nothing with what stands at {place}, so it would always hold: write return or assert "
            "in front of the condition, and no print"
        )


def handler_subject(
    builder: Builder,
    messages: Sequence[object],
    name: str = "handler",
    check: Callable[..., object] | None = None,
) -> PlanSubject:
    """A builder as a subject: it is called once for each run, and once before to see where its handler is from.

    The module of the builder is that of a test, which may note there what it sees: it is not set back.
    """
    beside = [one for one in (module_of(builder),) if one is not None]
    handlers = [module_of(built(builder).find(HANDLER))]
    own = project_modules([*beside, *(one for one in handlers if one is not None)])
    return PlanSubject(
        plan_around_handler(name),
        {"messages": list(messages)},
        lambda: built(builder, check),
        modules=own,
        memory=ProcessMemory((one for one in own if one not in beside), beside=beside),
        needs_all=True,
    )


TWICE = 20
"""So many of the first seeds are run twice."""
SHARED = 3
"""So many objects that no process has for itself are named."""
EXERCISED_FROM = 100
"""From so many seeds on, a kind of fault that never struck is a finding."""


class SimulationFailed(AssertionError):
    """Something does not hold; the text is the report. ``page`` and ``script``: the files that were written.
    ``result``: the run that was repeated, where it was one."""

    def __init__(
        self,
        text: str,
        page: Path | None = None,
        script: Path | None = None,
        result: RunResult | None = None,
    ) -> None:
        super().__init__(text)
        self.page = page
        self.script = script
        self.result = result


class NotDeterministic(SimulationFailed):
    """The same seed went two ways."""


class NotExercised(SimulationFailed):
    """Nothing broke, but too little happened to say that it holds."""


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation: counts of runs, events, deliveries, dead letters and calls of each stage; the
    marks seen; and faults that the subject does not promise to survive. ``memory`` names globals that stages
    changed: a crash would lose what is in them. ``left_out``: for how many messages a stage gives nothing, in a
    run without faults. ``notes``: what is to be said though everything holds."""

    runs: int
    events: int = 0
    delivered: int = 0
    dead: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    marks: frozenset[str] = frozenset()
    faults: Counter[str] = field(default_factory=Counter[str])
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    not_tolerated: tuple[str, ...] = ()
    rows: Sequence[Row] = ()
    memory: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def subject_of_plan(
    plan: Plan,
    *,
    messages: int | Mapping[str, Sequence[object]] | None = None,
    check: Callable[..., object] | None = None,
) -> PlanSubject:
    """A plan as a subject. Raises ConfigurationError for what can't be simulated."""
    require_pipes(plan)
    wanted = messages if isinstance(messages, int) else plan.simulate.messages or 40
    own_rows = messages if isinstance(messages, Mapping) else None
    require_virtual_clocks(plan)
    given = given_by(plan, wanted, own_rows)
    replaced = dict(plan.simulate.replace)
    own = check or (imported_virtually(plan.simulate.check) if plan.simulate.check else None)
    if own is not None:
        _require_said(own)

    def functions() -> Functions:
        found = Functions(replaced)
        found.check = own
        return found

    finder = Functions(replaced)
    paths = [path for _, path in _paths(plan)]
    doubles = _modules(finder.find(path) for path in paths if path in replaced)
    own_paths = (*paths, *_telling(plan))
    stages = _modules(finder.find(path) for path in own_paths if path not in replaced)
    with importing():
        project = project_modules(stages, plan.folder or Path(), without=doubles)
    return PlanSubject(
        plan,
        {**(own_rows or {}), **{name: one.messages for name, one in given.items()}},
        functions,
        aside={name: one.aside for name, one in given.items() if one.aside},
        modules=tuple(dict.fromkeys((*project, *doubles))),
        doubles=tuple(
            (*keeper_of(path), imported_virtually(double))
            for path, double in replaced.items()
            if path not in paths
        ),
        memory=ProcessMemory((one for one in project if one not in doubles), replaced),
        needs_all=False,
    )


def _modules(functions: Iterable[object]) -> list[ModuleType]:
    found = map(module_of, functions)
    return [module for module in found if module is not None]


def _paths(plan: Plan) -> Iterator[tuple[str, str]]:
    """The functions of all stages and sinks, with what they are."""
    for stage in plan.stages:
        for path in (stage.call, stage.map, stage.filter, stage.flat_map):
            if path:
                yield f"stage {stage.name}", path
    for sink in plan.sinks:
        if isinstance(sink, PythonSink):
            yield f"sink {sink.name}", sink.call


def _telling(plan: Plan) -> Iterator[str]:
    """The functions that tell the keys of messages, and what they cost."""
    keys = {word for pipe in plan.pipes if pipe.workers for word in key_words(plan, pipe)}
    costs = {pipe.book.cost for pipe in plan.pipes if pipe.book is not None}
    yield from (word for word in (*keys, *costs) if isinstance(word, str) and ":" in word)


def _make(folder: Path) -> None:
    """Raises ConfigurationError where pages and scripts can't go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{folder} can't be made, for pages and scripts: {why}") from error


# What the run of a script depends on: written down with it, so that a stale one can say what has changed.


def state_of(subject: PlanSubject) -> str:
    """``name=digest`` of the plan, the rows, the code of the stages, and surepipe."""
    return " ".join(f"{name}={digest}" for name, digest in _digests(subject, subject.most).items())


def _digests(subject: PlanSubject, messages: int) -> dict[str, str]:
    """With so many rows of each source."""
    plan = subject.plan
    parts = (plan.sources, plan.pipes, plan.stages, plan.sinks, plan.stores, plan.simulate)
    rows = {name: canonical(list(found[:messages])) for name, found in subject.messages.items()}
    rows |= {f"aside {name}": repr(list(found)) for name, found in subject.aside.items()}
    return {
        "messages": str(messages),
        "plan": digest_of(repr(parts).encode()),
        "rows": digest_of(repr(rows).encode()),
        "surepipe": __version__,
        **{f"{one.__name__}.py": digest_of(_text_of(one)) for one in subject.modules},
    }


def _text_of(module: ModuleType) -> bytes:
    with suppress(OSError, TypeError):
        return Path(cast("str", module.__file__)).read_bytes()
    return b""


_CHANGED = {
    "plan": "the pipeline's file has changed",
    "rows": "the rows of its sources have changed",
}
_UNKNOWN_CHANGE = (
    "The pipeline, its stages and its rows are seen to be the same: something is not that a stage takes from "
    "elsewhere, or the script was written by hand"
)


def changed_since(subject: PlanSubject, state: str) -> Iterator[str]:
    """What is not any more as ``state`` says, in words."""
    then = dict(one.split("=", 1) for one in state.split() if "=" in one)
    messages = then.get("messages", "")
    count = int(messages) if messages.isdigit() else subject.most
    if count > subject.most:
        yield f"the run had {count} messages, and this one has {subject.most} (--messages {count})"
    now = _digests(subject, count)
    for name in sorted({*then} - {"messages", "rows" if count > subject.most else ""}):
        if name not in now:
            yield f"{name} is none of its modules any more"
        elif now[name] != then[name]:
            what = f"surepipe {then[name]} became {now[name]}" if name == "surepipe" else ""
            yield what or _CHANGED.get(name, f"{name} has changed")


@dataclass
class Simulation:
    """One subject and how it is run."""

    subject: PlanSubject
    messages: int
    faults: str = "claim"
    has_check: bool = False
    reports: Path | None = None
    replay_with: str = ""
    title: str = ""
    memory: tuple[str, ...] = ()
    """globals of the stages' modules that were changed by runs so far"""
    not_compared: Mapping[str, str] = field(default_factory=dict[str, str])
    """of ends that get something else in each run, even without faults: what of it"""
    judged: frozenset[str] = frozenset()
    """those of them that the user's check judges"""
    by_order: frozenset[ByOrder] = frozenset()
    """who does other things outside when the messages come in another order, where no check judges them"""
    written: str = ""
    """where stages wrote text that was not shown, and what"""
    is_shown: bool = False
    """what they write in the run of a script is"""
    tried: PlanResult | None = None
    """what came of the seeds of the last ``run``, however it ended"""

    def run(self, seeds: Iterable[int]) -> Simulated:
        """Run all seeds. Raises SimulationFailed with the shortest counterexample of the first that fails,
        NotDeterministic, and NotExercised."""
        numbers = list(seeds)
        found = self.tried = self.campaign(numbers, stop_at_first=True)
        first = None if found.first is None else self._repeated(found, [found.first.seed])
        if first is not None:
            raise self.failed(first)
        self._repeated(found, numbers[:TWICE])
        is_long = len(numbers) >= EXERCISED_FROM
        unexercised = (*self.unexercised(found, by_chance=is_long), *found.unreached)
        unjudged = (*found.retold, *self.shared(found), *dict(self.unjudged()))
        if unexercised or unjudged:
            lines = [
                f"{self.subject.name}: nothing broke in {found.runs} runs, but not all of it is known to hold",
                *(f"not exercised: {text}" for text in unexercised),
                *(f"not judged: {text}" for text in unjudged),
                *(f"note: {text}" for text in self.notes(found)),
            ]
            raise NotExercised(self._as_told("\n".join(lines)))
        return Simulated(
            found.runs,
            found.events,
            found.delivered,
            found.dead,
            found.calls,
            frozenset(found.marks),
            found.faults,
            found.left_out,
            memory=self.memory,
            notes=tuple(map(self._as_told, self.notes(found))),
        )

    def _as_told(self, text: str) -> str:
        """To who has no file: what a handler alone has in its place."""
        if self.subject.needs_all:
            for of_file, instead in (
                (in_transaction(self.subject.plan), _IN_A_DOUBLE),
                *_BESIDE_A_HANDLER.items(),
            ):
                text = text.replace(of_file, instead)
        return text

    def once(self, schedule: Options) -> Simulated:
        """One run under these options, of the messages that there are. Raises SimulationFailed, as it is."""
        options = within_reach(self.subject, replace(schedule, messages=self.messages))
        result, outcome = run_one(self.subject, options)
        if result.violations:
            example = self._example(result, len(result.script.decisions))
            raise SimulationFailed(self._told(self._pointed(example)))
        return Simulated(
            1,
            result.events,
            sum(row.count for row in result.rows if row.kind == "delivered"),
            outcome.dead,
            outcome.calls,
            result.marks,
            rows=result.rows,
        )

    def campaign(self, seeds: Iterable[int], *, stop_at_first: bool = False) -> PlanResult:
        mode, kinds = self._mode()
        before = memory_of(self.subject.modules)
        found = run_seeds(
            self.subject,
            seeds,
            mode=mode,
            kinds=kinds,
            messages=self.messages,
            has_check=self.has_check,
            stop_at_first=stop_at_first,
        )
        found.memory = self._remember(before)
        self.not_compared, self.judged = found.not_compared, found.judged
        self.by_order = found.by_order
        found.forgotten = tuple(self.subject.forgotten)
        self.written = found.written = written.first_written()
        return found

    def _remember(self, before: Memory) -> tuple[str, ...]:
        """All globals that runs have changed so far."""
        new = changed(before, memory_of(self.subject.modules))
        self.memory = tuple(sorted({*self.memory, *new, *self.subject.memory.changed}))
        return self.memory

    def _mode(self) -> tuple[str, tuple[FaultKind, ...]]:
        return ("claim", chosen(self.asked)) if self.asked else (self.faults, ())

    def untried(self, promised: Faults, tried: Faults) -> Iterator[tuple[str, Faults]]:
        """Why faults were not ``tried`` that are said to be survived, and which."""
        mode, kinds = self._mode()
        asked = kinds if kinds or mode == "none" else None
        return untried(self.subject, promised - tried, asked, has_check=self.has_check)

    @property
    def asked(self) -> tuple[str, ...]:
        """The faults that were asked for by name, as they were written."""
        words = () if self.faults in ("claim", "break", "none") else self.faults.split(",")
        return tuple(word.strip() for word in words)

    def struck_of(self, struck: Collection[str]) -> Iterator[str]:
        """Those of the faults that were asked for by name of which something struck."""
        nothing = dict(unstruck(self.subject, self.asked, struck))
        yield from (word for word in self.asked if word not in nothing)

    def unexercised(self, *found: PlanResult, by_chance: bool = True) -> Iterator[str]:
        """What the runs of a campaign had to show and did not, each with its reason and what to do. ``by_chance``:
        also what some seeds show and others do not, unless nothing at all struck that was asked for."""
        runs, struck = (
            sum(one.runs for one in found),
            {kind for one in found for kind in one.faults},
        )
        nothing = dict(unstruck(self.subject, self.asked, struck))
        by_chance = by_chance or 0 < len(self.asked) == len(nothing)
        for word, why in nothing.items():
            if by_chance or why != NO_CHANCE:
                yield f"{word}, which was asked for, as {why}{_more(runs) if why == NO_CHANCE else ''}"
        expected = {} if self.faults != "claim" else self._unstruck_of_expected(struck)
        for word, why in expected.items():
            if by_chance or why != NO_CHANCE:
                more = _more(runs) if why == NO_CHANCE else ""
                yield f"{word}, which is expected to be tolerated, as {why}{more}"
        nothing |= expected
        told = {STRUCK[kind.id] for word in nothing for kind in chosen([word])}
        for mark in missing_in(found) if by_chance else ():
            if mark == CANARY:
                yield "anything, as the judge did not see an error that was planted: a fault of surepipe"
            elif mark not in told:
                what = registered()[mark] if mark in DRAINED.values() else in_words(mark)
                yield f"{what}, as {NO_CHANCE}{_more(runs)}"

    def _unstruck_of_expected(self, struck: Collection[str]) -> dict[str, str]:
        return dict(unstruck_of_expected(self.subject, struck, has_check=self.has_check))

    def _repeated(self, found: PlanResult, seeds: Sequence[int]) -> PlanFailure | None:
        """The first failure, if these seeds go the same way again. Raises NotDeterministic, or NotExercised where
        it is known what makes every run another one."""
        try:
            self.check_twice(seeds, found.digests)
        except NotDeterministic as error:
            if not found.leaking:
                raise
            told = "\n".join((*found.leaking, *self.shared(found)))
            raise NotExercised(f"{self.subject.name}: no run can be repeated: {told}") from error
        return found.first

    def shared(self, *found: PlanResult) -> Iterator[str]:
        """Where stages answer otherwise in the same run: what they can't be given anew for each process, and what
        asks the real clock."""
        if any(one.leaking for one in found):
            for module in self.subject.modules:
                yield from clocks_taken_by(module)
            for what in self._not_set_back():
                yield f"{what}, so all simulated ones share it"

    def check_twice(self, seeds: Iterable[int], digests: Mapping[int, str]) -> None:
        """Raises NotDeterministic when a seed goes another way now."""
        again = self.campaign(seeds)
        for seed, digest in again.digests.items():
            if digests.get(seed, digest) != digest:
                raise NotDeterministic(
                    f"{self.subject.name}: seed {seed} went two ways: a stage keeps something between runs, or "
                    "uses chance or time that a simulation can't replace (a private random.Random(), say)"
                    f"{_hint(self.memory)}"
                )

    def replay(self, script: Script) -> RunResult:
        """The run that a script tells of. Raises SimulationFailed when it breaks something, and ConfigurationError
        for a script that is stale: such a run says nothing of the pipeline, neither good nor bad."""
        before = memory_of(self.subject.modules)
        result = repeat(self.subject, script, is_shown=True)
        self._remember(before)
        self.is_shown, self.not_compared = True, not_compared(self.subject)
        if result.stale is not None:
            others = " and ".join(changed_since(self.subject, script.code))
            known = f"Since it was written, {others}" if others else _UNKNOWN_CHANGE
            raise ConfigurationError(
                f"the script is stale: nothing happens any more at {result.stale}. {known}: simulate again"
            )
        if result.violations:
            example = self._pointed(self._example(result, len(script.decisions)))
            raise SimulationFailed(self._told(example), result=result)
        return result

    def failed(self, failure: PlanFailure) -> SimulationFailed:
        """The report of a failure. Page and script are written where there is a folder, and a schedule to show."""
        if failure.violation.property == "user" and (told := self._refused_at_rest(failure)):
            return SimulationFailed(told)
        self._require_repeatable(failure)
        least = shrunk(self.subject, failure)
        example = replace(
            self._example(least.result, len(failure.script.decisions)),
            violation=least.violation,
            nearest=least.nearest,
            without=_in_words(least.without) if least.without else "",
        )
        where: Path | None = None
        script: Path | None = None
        if self.reports is not None:
            _make(self.reports)
            stem = f"{self.subject.name}-{failure.violation.property}-{failure.seed}"
            where, script = self.reports / f"{stem}.html", self.reports / f"{stem}.json"
            save_script(replace(least.script, code=state_of(self.subject)), script)
            example = replace(example, replay=f"{self.replay_with} {script}".strip())
        example = self._pointed(example)
        if where is not None:
            where.write_text(page(example), encoding="utf-8")
        return SimulationFailed(self._told(example, where), where, script)

    def _require_repeatable(self, failure: PlanFailure) -> None:
        """Raises NotDeterministic when the run is another one each time: then no schedule is to blame."""
        broke = failure.violation
        again, once_more = (repeat(self.subject, failure.script) for _ in range(2))
        if again.digest == once_more.digest and again.violates(broke.property) is not None:
            return
        options = Options.of(failure.script.options)
        with quiet(self.subject):
            told = leaking(self.subject, options.messages)
        self.subject.memory.reset()
        names = {*self.memory, *self.subject.memory.changed}
        why = "; ".join(told) or (
            "a stage keeps something between runs that simulate can't set back, or uses chance or time that it "
            f"can't replace{_hint(sorted(names))}"
        )
        why = "; ".join((why, *self._not_set_back()))
        raise NotDeterministic(
            f"{self.subject.name}: seed {failure.seed} broke {broke.property} ({broke.sentence.rstrip('.')}), and "
            f"goes another way when the same run is repeated, so no schedule shows what is wrong: {why}"
        )

    def _refused_at_rest(self, failure: PlanFailure) -> str:
        """What is to be said of a check that refuses the run without any fault too; empty where it doesn't."""
        calm = Options(messages=Options.of(failure.script.options).messages)
        result, outcome = run_one(self.subject, calm)
        refused = result.violates("user")
        if refused is None:
            return ""
        left = [*self._left_over(result, calm)]
        lines = (
            *left,
            f"your check fails without any fault: {refused.sentence}",
            "It was given a run in which nothing went wrong:",
            *(f"  {line}" for line in outcome.as_lines()),
            *(
                f"  {what}, {so_often(many)}"
                for what, many in _counted(_failures(result.rows)).items()
            ),
            *self._odd_keys(calm.messages),
            *(f"A stage's defect: {one.sentence}" for one in [result.violates("stage")] if one),
            f"So no schedule is to blame: {_MEND_THAT if left else _MEND_THE_CHECK}, and simulate again.",
        )
        told = (f"user {refused.name} VIOLATED   {self.title or self.subject.name}", *lines, "")
        return self._as_told("\n".join(told)) + self._noted()

    def _left_over(self, result: RunResult, calm: Options) -> Iterator[str]:
        """What no run has anew. A check that fails for what earlier runs have left there may be right, and so may
        what the stages give. ``result``: that of a run of these options."""
        again, _ = run_one(self.subject, calm)
        is_other = _refusal_of(again) != _refusal_of(result) or again.digest != result.digest
        with quiet(self.subject):
            doubles = left_in_doubles(self.subject, calm.messages)
        self.subject.memory.reset()
        if doubles:
            yield f"{listing(doubles)} of the doubles {STAYS}."
        named = self._not_set_back()
        for what, advice in named.items():
            found, so = ("is", "So") if is_other else ("may be", "If the check goes by that,")
            yield f"{what}: what it holds {found} left over from earlier simulated runs. {so} {advice}."
        if is_other and not (named or doubles):
            with quiet(self.subject):
                told = leaking(self.subject, calm.messages)
            self.subject.memory.reset()
            yield from (f"{text}." for text in told)

    def _not_set_back(self) -> Mapping[str, str]:
        """The first objects that all simulated processes share, in the stages' modules and in those of doubles;
        with what to do."""
        in_store = in_transaction(self.subject.plan)
        named = dict.fromkeys(self.subject.memory.not_set_back(), in_store)
        for what in not_set_back_of_doubles(self.subject):
            named.setdefault(what, IN_AN_OUTSIDE)
        return {
            f"{what}, which can't be set back to what a fresh process has": advice
            for what, advice in islice(named.items(), SHARED)
        }

    def _whose(self, example: Counterexample) -> Iterator[str]:
        """Whose defect it is: of the stages, as far as the run shows it, else of surepipe."""
        failed = list(self._failed(example))
        meant = [(row, said) for row, said in failed if self._is_meant(example, row)]
        raised = [(row, said) for row, said in failed if (row, said) not in meant]
        odd = [
            (stage, what)
            for row, stage, what in odd_answers(self.subject, example)
            if _is_to_tell(row, example)
        ]
        found = [f"{what}, {so_often(count)}" for what, count in _counted(raised).items()]
        found += dict.fromkeys(
            what for _, what in odd
        )  # several parts of a message may have the same
        for what in found[:3]:
            yield f"A stage's defect: {what}."
        for stage in dict.fromkeys(stage for stage, _ in odd):
            yield from [*self._remembering(stage)] or self._going_by_more(stage, example)
        for row, said in meant:
            if _is_of(row, example.violation):
                letters = self._letters_of(row)
                yield f"{said}, as without faults: its message is set aside in {letters}, as the pipeline says."
                break
        odd_keys = [*self._odd_keys(Options.of(example.result.script.options).messages)]
        yield from odd_keys
        if raised:
            yield from self._against_raising([row for row, _ in raised])
        elif example.violation.property == "user":
            yield from self._between_check_and_promise(example)
        elif example.violation.property == "stage":
            return  # the violation names it, and says what to do
        elif fails := self._fails_without_faults(example):
            yield from (f"A stage's defect: even without faults {text}." for text in fails)
        elif example.covered and not (found or odd_keys):
            yield from self._of_nobody(example)

    def _of_nobody(self, example: Counterexample) -> Iterator[str]:
        """Whose defect it may be where the run shows nothing of a stage: of one that answers otherwise when a
        message is tried again without any fault, or that keeps something, else of surepipe. What a batch holds is
        another thing in each run, so answers behind one are not held against anything."""
        plan, end = self.subject.plan, example.violation.end
        known = self._reference(Options.of(example.result.script.options).messages)
        odd = [text for text, stage in known.retold.items() if not end or end in plan.behind(stage)]
        untold = [name for name in sorted(plan.behind_batches()) if end in plan.behind(name)]
        unseen = "No stage is seen to have raised, or answered otherwise than without faults:"
        elsewhere = replace(example, usual=example.usual_of_all)
        others = [what for _, _, what in odd_answers(self.subject, elsewhere)]
        turned = [text for stage, text in known.reordering.items() if end in plan.behind(stage)]
        if odd:
            yield from (f"A stage's defect: {text}." for text in odd)
        elif turned and example.violation.property == "P4":
            yield from (f"A stage's defect: {text}." for text in turned)
        elif others:
            yield f"It may follow from what became of another message: {others[0]}."
        elif {*self.memory, *self.subject.memory.changed}:
            yield f"{unseen} it may be what stages keep (see the note), or a defect of surepipe."
        elif untold:
            yield (
                f"{unseen} a defect of surepipe, unless {listing(untold)} went by more than what came, as nobody "
                "knows what is in a batch then."
            )
        else:
            yield (
                "No stage raised or answered otherwise than without faults: a defect of surepipe, unless a stage "
                "hides something."
            )

    def _between_check_and_promise(self, example: Counterexample) -> Iterator[str]:
        """What may have broken a check where surepipe did what it promises."""
        options = Options.of(example.result.script.options)
        for keyless in self._keyless(options.messages):
            yield f"A stage's defect, as far as the check speaks of it: {keyless}."
        for drawn in drawn_anew(self.subject, example):
            yield (
                f"A stage's defect, as far as the check speaks of it: {drawn}. What it draws has to come from "
                "context.random, which draws the same at each attempt, and the time from its message."
            )
        yield from self._without_key(example)
        yield from self._at_first_attempts(example)
        for what in self._not_set_back():
            yield f"{what}: what it holds may be left over from earlier simulated runs."
        yield "A defect of the stages, or of the check: surepipe did what it promises."
        used = used_in(self.subject, example.result.script.decisions)
        if example.covered and not used <= self._survived(Atom.NO_DUPLICATE):
            yield (
                "It promises no more than at-least-once through what happened here: a message may be handled and "
                "come out again, which stages and check have to bear, or else the pipes have to be others "
                "(`surepipe check` says what they lack)."
            )

    def _without_key(self, example: Counterexample) -> Iterator[str]:
        """What the run does once more, where no key says that it is the same: a note of it that a stage keeps is
        gone with the process."""
        if any(self._keyless(self.messages)):  # which has said so
            return
        for row in example.result.rows:
            if row.step != example.violation.step or row.kind != "effect":
                continue
            facts = facts_of(row)
            if "key" not in facts:
                yield (
                    f"{row.node} {str(facts['text']).partition(', for the ')[0]} is done once more, as it has no "
                    "key: give it one, such as context.id.key, which is noted with it."
                )

    def _at_first_attempts(self, example: Counterexample) -> Iterator[str]:
        """What the check misses outside, where a stage does it at the first attempt alone."""
        known = self._reference(Options.of(example.result.script.options).messages)
        for outside, action, value in known.of_first_attempts:
            who = known.usual.get((outside, action, value), "")
            what = outside, asked_for(action, value, who)
            if what == (example.violation.end, example.violation.content):
                yield f"A stage's defect: {at_first_attempts(who.partition(' ')[0])}."

    def _keyless(self, messages: int) -> Iterator[str]:
        """What is done once more with a message that is tried again, and the check minds."""
        known = self._reference(messages)
        return (text for text in known.keyless if text not in known.unchecked)

    def _odd_keys(self, messages: int) -> Iterator[str]:
        """What is to be said of functions that tell two keys of one message."""
        yield from (f"A defect of a key: {text}." for text in self._reference(messages).odd_keys)

    def _reference(self, messages: int) -> Reference:
        with quiet(self.subject):
            known = reference_of(self.subject, messages)
        self.subject.memory.reset()
        return known

    def _failed(self, example: Counterexample) -> Iterator[tuple[Row, str]]:
        """What stages raised, in words. Of a run that a check refuses, only for the message that it is about:
        what became of others is no reason for that."""
        told = _failures(example.result.rows)
        return ((row, said) for row, said in told if _is_to_tell(row, example))

    def _is_meant(self, example: Counterexample, row: Row) -> bool:
        """It fails without faults just so, and the pipeline says what becomes of its message."""
        return bool(self._letters_of(row)) and row.step in example.raised_anyway

    def _letters_of(self, row: Row) -> str:
        """Where what raised here sets messages aside; empty where it does not."""
        part = self.subject.plan.part(str(facts_of(row)["stage"]))
        return (part.retries and part.dead_letter) or "" if isinstance(part, Trying) else ""

    def _against_raising(self, rows: Sequence[Row]) -> Iterator[str]:
        """What is to be done about each stage or sink that raised: nothing is advised that it has."""
        for name in dict.fromkeys(str(facts_of(row)["stage"]) for row in rows):
            part = self.subject.plan.part(name)
            if isinstance(part, Trying) and part.retries and part.dead_letter:
                tried = "1 retry" if part.retries == 1 else f"{part.retries} retries"
                yield f"Mend {name}: after {tried} its message is set aside in {part.dead_letter}."
            elif isinstance(part, Trying):
                yield (
                    f"Mend {name}, or give it `retries` and a `dead_letter`: what it can't take then gets out of "
                    "the way."
                )
            else:
                yield f"Mend {name}."

    def _fails_without_faults(self, example: Counterexample) -> tuple[str, ...]:
        """What fails when the functions are called one after the other: an answer that no sink can write, say."""
        options = Options(messages=Options.of(example.result.script.options).messages)
        sinks = [sink.name for sink in self.subject.plan.sinks]
        pipes = [pipe.name for pipe in self.subject.plan.pipes]
        with quiet(self.subject):
            plain = plainly(self.subject, options)
        self.subject.memory.reset()
        return tuple(ending(self.subject, plain, (*pipes, *sinks)))

    def _remembering(self, stage: str) -> Iterator[str]:
        """Why a stage may have answered in two ways: what it keeps in globals and functions."""
        finder = self.subject.functions()
        changed = {*self.memory, *self.subject.memory.changed}
        for name, path in _paths(self.subject.plan):
            if name.partition(" ")[2] != stage:
                continue
            function = finder.find(path)
            named = {path.replace(":", "."), *globals_in(function)}
            kept = [_with_place(one) for one in sorted(changed) if named.intersection(_within(one))]
            kept += kept_in(function)
            kept += kept_around(function) if path == HANDLER else ()
            if kept:
                what = " and ".join(dict.fromkeys(kept))
                yield (
                    f"{stage} keeps {what} between calls: a crash loses that, and a message "
                    f"that is tried again meets what its first attempt left{self._shared(stage)}. "
                    f"Answer from the message alone, or {in_transaction(self.subject.plan, stage)}."
                )

    def _shared(self, stage: str) -> str:
        """Who else meets what it keeps, in words."""
        plan = self.subject.plan
        beside = [
            pipe.name
            for pipe in plan.pipes
            if pipe.lanes and any(part.name == stage for part in plan.reach(pipe.name))
        ]
        return (
            f", and so do other messages meanwhile, by the lanes of {listing(beside)}"
            if beside
            else ""
        )

    def _going_by_more(self, stage: str, example: Counterexample) -> Iterator[str]:
        """Of a stage that answered in two ways, where nothing is found that it keeps: what it asks for, or else
        what it may be."""
        known = self._reference(Options.of(example.result.script.options).messages)
        asked = known.asking.get(stage, ())
        outside = [name for name in asked if name != ATTEMPT]
        who = f"{stage} goes by more than its message:"
        if ATTEMPT in asked and stage in known.retold.values():
            yield (
                f"{who} by {ATTEMPT}, for which it asks, and which is another one when its message is tried "
                "again. Let nothing of it get into the answer."
            )
        elif outside:
            yield (
                f"{who} by what the Outside {' and '.join(outside)} has when it asks there, and later messages "
                "add to that. One that is tried again has to get the same answer, whatever came after it: let who "
                'asks (a double, say) count up to its own message alone, see "A stage that uses a database" in '
                "docs/simulation.md."
            )
        else:
            attempt = f"{ATTEMPT}, " if asked else ""
            yield (
                f"{who} {attempt}what earlier calls have left (in an object of a library, in a double, in a "
                "file), chance of its own, or the time. Answer from the message alone, or "
                f"{in_transaction(self.subject.plan, stage)}."
            )

    def notes(self, *found: PlanResult) -> Iterator[str]:
        """What is to be said of the stages, whether or not a run of a campaign has shown it."""
        yield from self._unpromised({kind for one in found for kind in one.faults})
        dead, runs = sum(one.dead for one in found), sum(one.runs for one in found)
        is_explained = any(one.unreached or one.set_aside for one in found)
        yield from dict.fromkeys(one.set_aside for one in found if one.set_aside)
        yield from dict.fromkeys(
            text for one in found if one.dead_by_faults for text in _leaning(one)
        )
        yield from dict.fromkeys(text for one in found for text in one.counted)
        yield from self._keys_of_none()
        yield from self._put_aside()
        if 2 * dead > runs * self.messages and not is_explained:  # faults make a few of them
            yield (
                "most messages became dead letters, so little was tried of what stands behind the stages: "
                "give the sources rows like their own (simulate: sample:)"
            )
        names = {*self.memory, *self.subject.memory.changed}
        if names:
            yield told(map(_with_place, sorted(names)))
        if kept := self._kept_by_handler():
            yield (
                f"the handler keeps {' and '.join(kept)} between calls, which no simulated crash takes from it, "
                "as its check may look there: what a real crash would make of that is not judged"
            )
        for place in (one for module in self.subject.modules for one in dates_read_by(module)):
            yield (
                f"{place} asks for the date while its module is imported, which is the real clock's: a run of "
                "another day may go another way (time.time() is virtual there too)"
            )
        for end, why in self.subject.not_judged_by_key().items():
            yield f"the order of each key at {end} is judged pipe by pipe alone, as {why}"
        first = self.written or written.first_written()
        if first and not self.is_shown:
            yield written.told(first)
        for end, what in self.not_compared.items():
            if end in self.judged or what not in (EVERYTHING, ALL_BUT_COUNT):
                check = (
                    "" if end in self.judged else ": a check can look at that (simulate: check:)"
                )
                yield (
                    f"of what {end} gets, {what} was not compared, as it is not the same in all runs {_DIFFERS}"
                    f"{check}"
                )

    def _keys_of_none(self) -> Iterator[str]:
        """Keys that no row has, where no pipe asks for them. What is a text has no fields at all."""
        plan = self.subject.plan
        asked = {word for pipe in plan.pipes if pipe.workers for word in key_words(plan, pipe)}
        for source in plan.sources:
            word = source.key or ""
            rows = [row for row in self.subject.messages[source.name] if not isinstance(row, str)]
            is_open = word not in asked and bool(word and rows) and ":" not in word
            if is_open and not any(_has(row, word) for row in rows):
                yield (
                    f"no row of {source.name} has {word!r}, which is its key: here nothing asks for that, and "
                    "behind lanes each of them would become a dead letter"
                )

    def _put_aside(self) -> Iterator[str]:
        """Rows that are no messages, so no stage meets them."""
        for source in self.subject.plan.sources:
            if rows := self.subject.aside.get(source.name):
                does = "answers 422 for" if isinstance(source, HttpSource) else "puts aside"
                first = next(iter(rows.values()))
                yield f"{source.name} {does} {len(rows)} of its rows, as in a run: {first}"

    def _kept_by_handler(self) -> list[str]:
        """Of a handler alone, what it has for itself: that is made once for each run, and not for each process."""
        if not self.subject.needs_all:
            return []
        handler = self.subject.functions().find(HANDLER)
        return [*kept_around(handler), *kept_in(handler)]

    def _unpromised(self, struck: Collection[str]) -> Iterator[str]:
        """Faults that were asked for, and struck, and are not said to be survived."""
        claims = [self.subject.promise.tolerates(atom.value) or () for atom in Atom]
        covered = {ALWAYS}.union(*claims)
        for word in self.struck_of(struck):
            if not any(covered.issuperset(kind.names) for kind in chosen([word])):
                yield (
                    f"nothing promises to survive {word}, so what it explains (a loss, a repeat) was no finding: "
                    "what held is all the rest"
                )

    def unjudged(self) -> Iterator[tuple[str, str]]:
        """What no run can judge, as it happens in the runs without faults too, and which part that is about."""
        yield from self._uncompared()
        yield from sorted(self.subject.forgotten)
        finder, plan = self.subject.functions(), self.subject.plan
        filters = {stage.filter for stage in plan.stages}
        project = Project({one.__name__ for one in self.subject.modules}, plan.simulate.replace)
        for name, path in _paths(plan):
            if path not in plan.simulate.replace:
                part, function = name.partition(" ")[2], finder.find(path)
                told = unjudged_by(name, function, project, is_filter=path in filters)
                yield from ((text, part) for text in told)

    def _uncompared(self) -> Iterator[tuple[str, str]]:
        """Ends of which too little is the same in each run for a loss to be seen, where no check minds what comes
        out; and stages that keep something: a total over messages that come in any order is another one in
        each run, whether or not a crash has lost half of it."""
        accepts = f". {IT_ACCEPTS}" if self.has_check else ""
        for who, what in sorted(self.by_order):
            for keeps in self._remembering(who):
                told = (
                    f"what {who} {what} differs with the order of messages, by itself or by what comes to it "
                    f"then, so it is not compared, and stage {keeps} Or say what has to be done (simulate: "
                    f"check:){accepts}"
                )
                yield told, who
        open_ends = {end: what for end, what in self.not_compared.items() if end not in self.judged}
        for end, what in open_ends.items():
            if what in _UNTOLD:
                yield f"{end}, because {_UNTOLD[what]}{self._of_batches(end)}{accepts}", end
        for stage in self.subject.plan.stages:
            reached = self.subject.plan.behind(stage.name)
            for end in (one for one in open_ends if one in reached):
                for keeps in self._remembering(stage.name):
                    told = (
                        f"what {end} gets differs between runs without faults, and stage {keeps} Or say what has "
                        f"to come out (simulate: check:){accepts}"
                    )
                    yield told, end

    def _of_batches(self, end: str) -> str:
        """Which stages make something else of batches that fall otherwise, where that gets to an end."""
        told = self._reference(self.messages).by_batches.get(end, "")
        return f". {told}" if told else ""

    def _example(self, result: RunResult, before: int) -> Counterexample:
        violation = result.violations[0]
        promised, covered = self._promised(result, violation)
        return Counterexample(
            title=self.title or self.subject.name,
            violation=violation,
            result=result,
            decisions_before=before,
            guarantee=promised or "nothing",
            covered=covered,
            advice="" if covered else self._advice(result),
            replay="",
            places={name: place for name, place in self._places() if place},
        )

    def _promised(self, result: RunResult, violation: Violation) -> tuple[str, bool]:
        """What is promised, in words, and whether it names all that happened: the headline, or else, of the atom
        that broke, what that alone survives."""
        way = self._way_of(violation)
        promised = way.promise if way else ""
        if self.faults == "break":
            return promised, False
        used = used_in(self.subject, result.script.decisions)
        if way is None or used <= way.tolerates:
            return promised, True
        atom = _ATOM_OF.get(violation.property, Atom.NO_LOSS)
        survived = self._survived(atom)
        if used <= survived:
            return promise_told(Claim(frozenset({atom}), survived)), True
        return promised, False

    def _survived(self, atom: Atom) -> Faults:
        return parse_faults(self.subject.promise.claim.get(atom, ()))

    def _way_of(self, violation: Violation) -> Verdict | None:
        """The way to the end at which it broke, or else the first."""
        ways = [one for one in assess(self.subject.plan).ways if one.explanation is not None]
        there = [one for one in ways if one.parts[-1:] == (violation.end,)]
        return next(iter(there or ways), None)

    def _advice(self, result: RunResult) -> str:
        """What `check` says against a fault of this run that is not promised to be survived."""
        used, found = used_in(self.subject, result.script.decisions), assess(self.subject.plan)
        told = (one.explanation for one in (*found.ways, *found.pipes))
        lacks = (
            lack for one in told if one for lack in one.lacks if used.intersection(lack.faults)
        )
        return next((lack.remedy for lack in lacks if lack.remedy), "")

    def _places(self) -> Iterator[tuple[str, str]]:
        """Where the functions of stages and sinks are written."""
        finder = self.subject.functions() if self.subject.needs_all else Functions()
        for name, path in _paths(self.subject.plan):
            yield name.partition(" ")[2], place_of_function(finder.find(path))

    def _pointed(self, example: Counterexample) -> Counterexample:
        """The same with its message, in the words for who reads it."""
        found = pointed(self.subject, example)
        sentence = self._as_told(found.violation.sentence)
        return replace(found, violation=replace(found.violation, sentence=sentence))

    def _told(self, example: Counterexample, where: Path | None = None) -> str:
        """All that is to be said of what broke, once its message is known (``pointed``). ``where``: its page."""
        text = text_report(example) + (f"Page: {where}\n" if where else "")
        text += self._as_told("".join(f"{line}\n" for line in self._whose(example)))
        return text + self._noted()

    def _noted(self) -> str:
        notes = (*self.notes(), *dict(self.unjudged()))
        return self._as_told("".join(f"Note: {note}.\n" for note in notes))


_MEND_THE_CHECK = "mend the check, or what the stages give"
_MEND_THAT = (
    "mend first what is left over from earlier runs, for which the check may rightly fail, then the check, or "
    "what the stages give"
)
_IN_A_DOUBLE = "keep it outside, where no crash reaches it: here that is an Outside, with a key"
_BESIDE_A_HANDLER = {
    "(simulate: check:)": "(a check beside the handler)",
    "give the sources messages that get through as well (simulate: sample:)": (
        "give it messages that get through as well (messages=), or a check beside it that looks at run.dead"
    ),
    "give the sources rows like their own (simulate: sample:)": (
        "give it messages like its own (messages=)"
    ),
}
"""What is said of a file, and of a handler alone."""
_DIFFERS = "without faults (by the time, by chance, by the order or by how batches fall, say)"
_UNTOLD = {
    EVERYTHING: (
        f"how much comes there of each message is not the same in all runs {_DIFFERS}, so nobody knows whether "
        "something was lost or repeated: let what comes out follow from the message alone, or say what has to "
        "come out (simulate: check:)"
    ),
    ALL_BUT_COUNT: (
        f"nothing in what comes there is the same in all runs {_DIFFERS}, so only its number was compared: not "
        "the order, nor whether one message is lost and another one repeated. Let it carry something of its "
        "message (an id, say), or say what has to come out (simulate: check:)"
    ),
}
"""What is to be said of an end, by what of it was not compared."""
_ATOM_OF = {"P3": Atom.NO_DUPLICATE, "P4": Atom.MONOTONIC, "P6g": Atom.GAP_FREE}


def _leaning(found: PlanResult) -> Iterator[str]:
    """The ends and effects that were not compared as ever where faults had made dead letters."""
    for where, is_counted in found.leaning.items():
        what = "only the number" if is_counted else "nothing"
        yield (
            f"of what {where}, {what} was compared in runs in which faults made dead letters: it is something "
            "else without the messages that are set aside (a total, say, or a difference). A check can look at "
            "that (simulate: check:)"
        )


def _is_of(row: Row, about: Violation) -> bool:
    return (row.pipe, row.epoch, row.seq) == (about.pipe, about.epoch, about.seq)


def _is_to_tell(row: Row, example: Counterexample) -> bool:
    """A check speaks of its message alone, and of what comes of the same one of a source."""
    about = example.violation
    is_kin = _is_of(row, about) or (row.pipe, row.epoch, row.seq) in example.usual
    return about.property != "user" or not about.position or is_kin


def _failures(rows: Iterable[Row]) -> Iterator[tuple[Row, str]]:
    """What stages raised by themselves, in words."""
    for row in rows:
        facts = facts_of(row)
        if row.kind == "raised" and "stage" in facts and "fault" not in facts:
            place = f" at {facts['place']}" if facts.get("place") else ""
            yield row, f"{facts['stage']} raised {facts['text']}{place}"


def _counted(raised: Iterable[tuple[Row, str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row, said in raised:
        counts[said] += row.count
    return counts


def _has(row: object, word: str) -> bool:
    try:
        value_reader(word)(row)
    except Exception:  # noqa: BLE001 - whatever it is, the row has no such key
        return False
    return True


def _in_words(decision: Decision) -> str:
    """What a decision was, for who knows no event by its name."""
    if decision.fault:
        return fault_words(decision.fault)
    return f"{decision.authority} {' '.join(map(str, decision.value))} at {decision.at}"


def _refusal_of(result: RunResult) -> str:
    refused = result.violates("user")
    return "" if refused is None else without_addresses(refused.sentence)


def _hint(memory: Sequence[str]) -> str:
    return f"; {told(map(_with_place, memory))}" if memory else ""


def _within(name: str) -> Iterator[str]:
    """The name, and those of the class or function that it is kept in: shop.price.seen is kept in shop.price."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _more(runs: int) -> str:
    return f"; try more of them (--seeds {max(100, 2 * runs)})"


def _with_place(name: str) -> str:
    """A global, and where it is changed."""
    place = changed_at(name)
    return f"{name} ({place})" if place else name


def simulation_of(
    what: object,
    *,
    messages: int | Sequence[object] | Mapping[str, Sequence[object]] | None = None,
    check: Callable[..., object] | None = None,
    faults: str | Collection[str] = "claim",
    reports: Path | None = None,
    replay_with: str = "",
    name: str = "",
) -> Simulation:
    """Anything that can be simulated. Raises ConfigurationError for what can't, SimulationFailed for what the plan
    expects and does not promise, and MisuseError for faults that are no words."""
    faults = ",".join(words_of_faults(faults))
    if isinstance(what, str | Path | Plan):
        plan = what if isinstance(what, Plan) else load(what)
        require_expected(plan)
        return simulation_of_plan(
            plan,
            messages=cast("int | Mapping[str, Sequence[object]] | None", messages),
            check=check,
            faults=faults,
            reports=reports,
            replay_with=replay_with,
        )
    if callable(what):
        builder = cast("Callable[[], object]", what)
        rows = (
            list(messages)
            if isinstance(messages, Sequence)
            else [f"m{n}" for n in range(messages if isinstance(messages, int) else 20)]
        )
        called = name or getattr(what, "__name__", "handler")
        subject = handler_subject(builder, rows, called, check)
        has_check = subject.functions().check is not None
        return Simulation(subject, len(rows), faults, has_check, reports, replay_with, name)
    raise ConfigurationError(
        f"{what!r} can't be simulated: give a pipeline's file, a plan, or a function that builds a handler"
    )


def require_expected(plan: Plan) -> None:
    """P15, before anything runs: what the plan expects must be derived."""
    assessment = assess(plan)
    for verdict in (*assessment.pipes, *assessment.ways):
        for finding in (*verdict.refused, *verdict.unmet):
            raise SimulationFailed(f"P15 expectation violated: {verdict.name}: {finding}")


def simulation_of_plan(
    plan: Plan,
    *,
    messages: int | Mapping[str, Sequence[object]] | None = None,
    check: Callable[..., object] | None = None,
    faults: str = "claim",
    reports: Path | None = None,
    replay_with: str = "",
) -> Simulation:
    """A plan with its stages, whether or not it does what it expects. Raises ConfigurationError."""
    look_first_in(plan.folder)
    _require_own(plan)
    with chdir("."):  # where a module goes while it is imported, the command does not
        subject = subject_of_plan(plan, messages=messages, check=check)
    has_check = check is not None or plan.simulate.check is not None
    return Simulation(subject, subject.most, faults, has_check, reports, replay_with)


def _require_own(plan: Plan) -> None:
    """Raises ConfigurationError where this process has loaded other modules under the names of the plan's own."""
    named = [path for _, _, path in functions_in(plan.parts)]
    check = [plan.simulate.check] if plan.simulate.check else []
    for path in (*named, *check, *plan.simulate.replace, *plan.simulate.replace.values()):
        require_own(path, plan.folder)
