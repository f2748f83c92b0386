"""Runs many simulations of one plan, and says what held, what broke and how shortly, and what was not
exercised."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType

from surepipe.audit.findings import Violation
from surepipe.audit.properties.ledger import DIGITS
from surepipe.audit.settings import facts_of, words
from surepipe.audit.trace import Kind, Row
from surepipe.core.callables import is_users
from surepipe.core.claims import (
    NO_FAULTS,
    WORDS,
    Atom,
    Claim,
    Fault,
    Faults,
    in_order,
    parse_faults,
)
from surepipe.errors import ConfigurationError
from surepipe.pipelines.simulate.ends import Answer, ByOrder, RunOutcome, Told
from surepipe.pipelines.simulate.forgotten import noted
from surepipe.pipelines.simulate.reference import not_compared, with_enough, with_expectations
from surepipe.pipelines.simulate.sandbox import Refusal, Slip, running_at, sandboxed
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.simulate.visitors import can_be_flooded, is_open
from surepipe.pipelines.simulate.written import hidden
from surepipe.pipelines.users_code import functions_in
from surepipe.simulation.campaign import catches_canary
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.randomness import draws
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.chance.seeded import Places, Rehearsal, SeededChooser
from surepipe.simulation.exercised import DRAINED, STRUCK, exercised
from surepipe.simulation.faults import (
    ASKED,
    BY_ID,
    CATALOGUE,
    FaultKind,
    Mode,
    can_occur,
    chosen,
    draw_options,
    kinds_at,
)
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.outside import speaking_life
from surepipe.simulation.promises import Promise
from surepipe.simulation.results import Replayer, RunResult
from surepipe.simulation.shrink import Shrunk, shrink
from surepipe.simulation.world import World, judge_rows, options_of, play, result_of

NETWORK_ONLY: dict[str, int | str] = {
    "loss_ppm": 0,
    "confirm_loss_ppm": 0,
    "copy_ppm": 0,
    "overtake_ppm": 0,
    "spike_ppm": 0,
    "corrupt_ppm": 0,
    "stale_ppm": 0,
    "cuts": 0,
    "one_way_for_good": "",
    "frozen": "",
}
ENDS = (("sender_crashes", "receiver_crashes"), ("sender_zombies", "receiver_zombies"))
ANSWERS = 20
BY_STAGE = "stage "
"""So begins the name of who answers, behind which its stage follows."""
EFFECT_ON = "effect on "
"""So begins the line of an effect among answers; names of stages have no space."""
IT_ACCEPTS = (
    "The check that there is says nothing of that: it accepts a run in which nothing of it happened, and one in "
    "which all of it happened far too often"
)
SHRINK_REPLAYS = 120
ALONE_REPLAYS = 40
PATIENCE_US = 300_000_000
"""While a script is made shorter, a run that has not come to rest by then is taken for one that never will."""


class CannotSimulate(ConfigurationError):
    """A stage does what a simulation can't let happen. ``refusals`` say what and where."""

    def __init__(self, text: str, refusals: Sequence[Refusal] = ()) -> None:
        super().__init__(text)
        self.refusals = tuple(refusals)

    def __reduce__(self) -> tuple[type[CannotSimulate], tuple[str, tuple[Refusal, ...]]]:
        """From one process to another with all that it has."""
        return CannotSimulate, (str(self), self.refusals)


@dataclass(frozen=True, slots=True)
class PlanFailure:
    """The first run that violated a property."""

    seed: int
    violation: Violation
    script: Script


@dataclass
class PlanResult:
    """What a campaign over a plan found."""

    name: str
    mode: str
    runs: int = 0
    events: int = 0
    delivered: int = 0
    dead: int = 0
    dead_by_faults: int = 0
    """of them, those that there are not without faults"""
    calls: Counter[str] = field(default_factory=Counter[str])
    marks: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    under: set[tuple[Faults, Faults]] = field(default_factory=set[tuple[Faults, Faults]])
    """of each run the faults that it might have, and those that struck: what doesn't survive all of the former was
    not judged in it"""
    violated: Counter[str] = field(default_factory=Counter[str])
    failures: dict[str, PlanFailure] = field(default_factory=dict[str, PlanFailure])
    missing: tuple[str, ...] = ()
    digests: dict[int, str] = field(default_factory=dict[int, str])
    answers: dict[int, list[Answer]] = field(default_factory=dict[int, list[Answer]])
    """of the first seeds: what the stages answered, and what they did outside, behind the keys of messages"""
    memory: tuple[str, ...] = ()
    """globals of the stages' modules that runs have changed"""
    not_compared: Mapping[str, str] = field(default_factory=dict[str, str])
    """of ends that get something else in each run, even without faults: what of it"""
    judged: frozenset[str] = frozenset()
    """those of them that the user's check judges"""
    by_order: frozenset[ByOrder] = frozenset()
    """who does other things outside when the messages come in another order, where no check judges them"""
    counted: tuple[str, ...] = ()
    """sentences about what is done outside of which only the number is compared"""
    set_aside: str = ""
    """how many messages become dead letters without any fault, and why, in words"""
    leaning: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """in words: ends at which what comes of a message depends on others (``Offspring``), and whose effects do"""
    unreached: Told = field(default_factory=dict[str, str])
    """sentences about ends that nothing comes to, and sources of which nothing comes out"""
    retold: Told = field(default_factory=dict[str, str])
    """sentences about stages that answer otherwise, or do more outside, when a message is tried again"""
    leaking: tuple[str, ...] = ()
    """those of them that answer otherwise when the same run is repeated"""
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """of each stage: how many messages it gives nothing for, in a run without faults"""
    forgotten: tuple[tuple[str, str], ...] = ()
    """sentences about what stages began and nobody awaited, each with its stage"""
    written: str = ""
    """where a stage first wrote text that was not shown, and what"""
    not_tolerated: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def first(self) -> PlanFailure | None:
        """The failure with the lowest seed; of one run that which concerns the user most."""
        return min(
            self.failures.values(),
            key=lambda failure: (failure.seed, failure.violation.property != "user"),
            default=None,
        )


def draw_for(
    subject: PlanSubject,
    seed: int,
    *,
    mode: str,
    kinds: Sequence[FaultKind] = (),
    messages: int,
    base: Options | None = None,
    has_check: bool = False,
) -> Options:
    """The options of a seed. With a check of the user's, claim mode draws what loses nothing."""
    promise = _promise_for(subject, has_check=has_check and mode == Mode.CLAIM)
    beyond = () if kinds or mode != Mode.CLAIM else _beyond(subject, promise, has_check=has_check)
    by_claims = draws(seed, "claims")
    if beyond and by_claims.getrandbits(1):
        promise = _within(promise, in_order(by_claims.pick(beyond)))
    options = draw_options(seed, promise, mode=mode, kinds=kinds, messages=messages, base=base)
    if mode != Mode.NONE and not kinds:  # by chance of its own: all else of a seed stays as it is
        options = replace(options, unreadable=draws(seed, "unreadable").pick((0, 0, 1, 3)))
    return _anywhere(within_reach(subject, _with_one_often(options)))


def _promise_for(subject: PlanSubject, *, has_check: bool) -> Promise:
    promise = subject.promise
    is_about_all = has_check and Atom.NO_LOSS in promise.claim
    return _within(promise, promise.claim[Atom.NO_LOSS]) if is_about_all else promise


def _within(promise: Promise, faults: Sequence[str]) -> Promise:
    return replace(promise, claim={Atom.NO_LOSS.value: tuple(faults)})


def _beyond(subject: PlanSubject, promise: Promise, *, has_check: bool) -> Sequence[Faults]:
    """What one pipe or way survives by itself, or has to as it is expected, and not all of them together: in such
    runs the others are not judged. A check speaks of all that comes out: it is asked about what is expected, and
    only where no way loses anything."""
    found = subject.assessment
    sets = [one.tolerates for way in found.ways for one in way.expected]
    if has_check:
        lossless = [parse_faults(way.get(Atom.NO_LOSS, ())) for way in subject.ways.values()]
        sets = [faults.intersection(*lossless) for faults in sets]
    else:
        pipes = [one.tolerates for pipe in found.pipes for one in pipe.expected]
        sets += [*pipes, *(verdict.tolerates for verdict in (*found.pipes, *found.ways))]
    together = [parse_faults(faults) for faults in promise.claim.values()]
    return [one for one in dict.fromkeys(sets) if not any(one <= each for each in together)]


def drawn(subject: PlanSubject, *, has_check: bool) -> Faults:
    """All faults that some schedule may have by default."""
    promise = _promise_for(subject, has_check=has_check)
    together = (parse_faults(faults) for faults in promise.claim.values())
    return NO_FAULTS.union(*together, *_beyond(subject, promise, has_check=has_check))


def expected_words(subject: PlanSubject) -> Sequence[str]:
    """The words of all faults that something is expected to tolerate."""
    found = subject.assessment
    sets = [one.tolerates for verdict in (*found.pipes, *found.ways) for one in verdict.expected]
    return [word for word, faults in WORDS.items() if any(faults <= one for one in sets)]


ENDS_OF_PROCESSES = (
    *("sender_crashes", "receiver_crashes", "sender_zombies", "receiver_zombies"),
    *("power_cuts", "mailbox_losses"),
)


def _anywhere(options: Options) -> Options:
    """In half of the schedules processes may end anywhere in the run, at the last message too: in the others they
    do so soon after the beginning and after each other, and chaos is over before slow stages are done."""
    has_ends = any(getattr(options, name) for name in ENDS_OF_PROCESSES)
    if not has_ends or draws(options.seed, "whole run").getrandbits(1):
        return options
    work_us = 2 * options.messages * options.handler_us
    return replace(options, whole_run=True, chaos_us=options.chaos_us + work_us)


ENTERED = ("call", "map", "filter", "flat_map")
"""Functions under these keys are called for each message; others are only asked about it."""
RARE = tuple(BY_ID[id_] for id_ in ("F1", "F4", "F20", "F21", "F25", "F27"))
"""Kinds that strike a frame or a call now and then: a pipeline of few messages has few of these."""


def _with_one_often(options: Options) -> Options:
    """One of the rare kinds that are drawn is drawn as often as the catalogue allows: else most schedules that may
    have it never do, and a campaign of the usual size ends without it."""
    drawn = [kind for kind in RARE if kind.is_on(options)]
    if not drawn:
        return options
    kind = draws(options.seed, "often").pick(drawn)
    most = next(each.most for each in kind.ranges if each.option == kind.switch)
    return replace(options, **{kind.switch: most})  # type: ignore[arg-type]


def within_reach(subject: PlanSubject, options: Options) -> Options:
    """The options without what can't happen to this plan, or to actors at all."""
    without: dict[str, int | str] = {}
    letters = (getattr(source, "dead_letter", None) for source in subject.plan.sources)
    if not any(letters):
        without["unreadable"] = 0
    if not is_open(subject.plan):
        without["too_large"] = 0
    if not can_be_flooded(subject.plan):
        without["flood"] = 0
    if not _enters_functions(subject):
        without |= dict.fromkeys(("fail_ppm", "slow_ppm"), 0)
    if _is_streamed(subject):
        without |= NETWORK_ONLY
    without |= dict.fromkeys(_of_one_end(subject, options), 0)
    return replace(options, **without, part_ppm=0, perturb=False, drift_ppm=0)  # type: ignore[arg-type]


def _of_one_end(subject: PlanSubject, options: Options) -> Iterator[str]:
    """What is to strike one end alone, and can't: each process that has it has the other kind of end too."""
    places = [subject.plan.places[pipe.name] for pipe in subject.plan.pipes]
    senders, receivers = {place.sender for place in places}, {place.node for place in places}
    for of_sender, of_receiver in ENDS:
        if not (getattr(options, of_sender) and getattr(options, of_receiver)):
            yield from [of_sender] if senders <= receivers else []
            yield from [of_receiver] if receivers <= senders else []


@contextmanager
def quiet(subject: PlanSubject) -> Generator[list[Refusal]]:
    """While simulated pipes run: the sandbox is up, they log nothing of the faults made on purpose, and what
    stages write is not shown."""
    logger = logging.getLogger("surepipe")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with (
            _interrupted_when_over(),
            sandboxed(subject.modules, speaking_life, subject.doubles) as refused,
            noted(subject.forgotten, speaking_life),
            hidden(running_at),
        ):
            yield refused
    finally:
        logger.setLevel(level)


@contextmanager
def _interrupted_when_over() -> Generator[None]:
    """Ctrl-C is raised when the run is over. Within it the code of a simulated process would take it for what
    ended that process, or a stage would catch it, and the campaign would go on. A second one is raised at once."""
    before = signal.getsignal(signal.SIGINT)
    is_ours = callable(before) and threading.current_thread() is threading.main_thread()
    if not is_ours:  # of a worker, say, which leaves it to who dealt out the work
        yield
        return
    came: list[int] = []

    def put_off(number: int, frame: FrameType | None) -> None:
        del frame
        if came:
            raise KeyboardInterrupt
        came.append(number)

    signal.signal(signal.SIGINT, put_off)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def run_one(subject: PlanSubject, options: Options) -> tuple[RunResult, RunOutcome]:
    """One run by chance. Raises CannotSimulate when a stage did what it must not."""
    places = _places(subject, options) if options.whole_run else None
    world = _played(subject, options, lambda final: SeededChooser(final, places))
    result = result_of(world)
    assert isinstance(world.outcome, RunOutcome)
    return result, world.outcome


def _places(subject: PlanSubject, options: Options) -> Mapping[str, Places]:
    """At which of its events each process might end, until chaos is over."""
    rehearsals: list[Rehearsal] = []

    def rehearse(final: Options) -> Rehearsal:
        rehearsals.append(Rehearsal(final))
        return rehearsals[-1]

    _played(subject, options, rehearse)
    return rehearsals[-1].places


def repeat(subject: PlanSubject, script: Script, *, is_shown: bool = False) -> RunResult:
    """The run that a script tells of, and what stages write in it, if that is wanted. Raises CannotSimulate."""
    options = options_of(script)
    if subject.needs_all:
        options = replace(options, messages=subject.most)
    world = _played(subject, options, lambda _: ScriptChooser(script), is_shown=is_shown)
    return result_of(world)


def _played(
    subject: PlanSubject,
    options: Options,
    chooser_for: Callable[[Options], Chooser],
    *,
    is_shown: bool = False,
) -> World:
    """``chooser_for``: asked last, because a chooser that draws is made for the options that are final."""
    with quiet(subject) as refused:
        try:
            options = with_enough(subject, options)
            expecting = with_expectations(subject, options.messages)
            if refused:
                raise CannotSimulate(str(refused[0]), refused)
            with hidden(None if is_shown else running_at):
                world = play(expecting, options, chooser_for(options))
        except Slip as slip:
            raise CannotSimulate(str(slip), refused) from None
        finally:
            subject.memory.reset()
        if refused:
            raise CannotSimulate(str(refused[0]), refused)
    refusal = getattr(world.deployment, "refusal", None)
    if refusal is not None:
        raise CannotSimulate(str(refusal)) from refusal
    kept_by = world.kept_by()
    if kept_by is not None and options.time_max_us > PATIENCE_US:
        raise CannotSimulate(_is_stuck(kept_by[0], world) or _waits(*kept_by, world.now))
    return world


def _is_stuck(stage: str, world: World) -> str:
    """Nothing but another call could let this one go on, and none has."""
    places = [f"{Path(file).name}:{line}" for file, line in world.stuck_at if is_users(file)]
    if not places:
        return ""
    return (
        f"{places[-1]}: stage {stage} waits there for ever, as it would in a run: nobody gives back what it waits "
        "for (a lock or a semaphore: take it by async with), or nobody sets it (an event, a future), or puts it "
        "there (a queue); a time_limit_s would end such a call"
    )


def _waits(stage: str, waited_us: int, now_us: int) -> str:
    """No defect of anybody: a simulated run is an hour, and less where much happens meanwhile."""
    waited, now = (f"{us // 1_000_000} s" for us in (waited_us, now_us))
    return (
        f"stage {stage} waits for {waited} of a simulated run, which was stopped after {now} of virtual time "
        "before it came to rest, so nothing is known of it: let the stage wait for less where it is simulated, by "
        "a setting of its own or a double (simulate: replace)"
    )


def run_seeds(
    subject: PlanSubject,
    seeds: Iterable[int],
    *,
    mode: str = Mode.CLAIM,
    kinds: Sequence[FaultKind] = (),
    messages: int = 40,
    base: Options | None = None,
    has_check: bool = False,
    stop_at_first: bool = False,
    each: Callable[[int, RunResult], None] | None = None,
) -> PlanResult:
    """Run each seed and judge it. Raises CannotSimulate."""
    found = PlanResult(subject.name, str(mode))
    switched: set[str] = set()
    for seed in seeds:
        options = draw_for(
            subject,
            seed,
            mode=mode,
            kinds=kinds,
            messages=messages,
            base=base,
            has_check=has_check,
        )
        result, outcome = run_one(subject, options)
        switched |= {kind.id for kind in CATALOGUE if kind.is_on(options) and kind.ranges}
        _take(found, subject, options, result, outcome)
        if each is not None:
            each(seed, result)
        if stop_at_first and found.violated:
            break
    found.not_compared = not_compared(subject)
    known = subject.references.get(messages)
    if known is not None:
        found.by_order, found.leaking = known.by_order, known.leaking
        found.unreached, found.left_out = known.unreached, known.left_out
        found.judged, found.set_aside = known.judged, known.set_aside
        found.counted = known.counted
        ends = {f"{end} gets": counted for end, counted in known.offspring.leaning.items()}
        found.leaning = {**ends, **known.deeds.told}
        accepts = f". {IT_ACCEPTS}" if has_check else ""
        unchecked = {f"{text}{accepts}": stage for text, stage in known.unchecked.items()}
        found.retold = {**known.retold, **known.odd_keys, **unchecked}
    wanted = {*DRAINED.values(), *(STRUCK[id_] for id_ in switched)}
    found.missing = tuple(sorted(wanted - found.marks.keys()))
    if not catches_canary(judge_rows):
        found.missing += (CANARY,)
    return found


def missing_in(results: Iterable[PlanResult]) -> tuple[str, ...]:
    """What no part of the campaign saw."""
    results = list(results)
    seen = {mark for result in results for mark in result.marks}
    wanted = {mark for result in results for mark in result.missing}
    return tuple(sorted(wanted - seen))


def _take(
    found: PlanResult,
    subject: PlanSubject,
    options: Options,
    result: RunResult,
    outcome: RunOutcome,
) -> None:
    seed = options.seed
    found.runs += 1
    found.events += result.events
    found.delivered += sum(row.count for row in result.rows if row.kind == "delivered")
    known = subject.references.get(options.messages)
    found.dead += outcome.dead
    if known is not None:
        found.dead_by_faults += max(0, outcome.dead - known.offspring.usual.total())
    found.calls.update(outcome.calls)
    found.digests[seed] = result.digest
    if len(found.answers) < ANSWERS:
        found.answers[seed] = [*(known.keys if known else ()), *_answers(subject, result)]
    struck = {kind for one in result.script.decisions for kind in _kinds_of(subject, one)}
    struck |= {kind for kind, many in (("F22", options.flood), ("F24", options.too_large)) if many}
    found.faults.update(struck)
    might = parse_faults(words(facts_of(result.rows[0]).get("faults")))
    found.under.add((might, _named(struck)))
    seen = exercised(result.rows, struck, Drain(options.drain).value)
    found.marks.update(seen.marks | result.marks)
    for violation in result.violations:
        found.violated[violation.property] += 1
        found.failures.setdefault(violation.property, PlanFailure(seed, violation, result.script))


ROLLBACKS = ("F14", "F17")
"""Here these are one: a store of a pipeline goes back with all that it has, its index too."""


def _kinds_of(subject: PlanSubject, decision: Decision) -> tuple[str, ...]:
    """The kinds of the catalogue that a decision is, in a run of this plan."""
    if decision.verb == "rollback":
        return ROLLBACKS
    node = decision.authority.removeprefix("faults/")
    places = [subject.plan.places[pipe.name] for pipe in subject.plan.pipes]
    return kinds_at(
        decision,
        sends=any(place.sender == node for place in places),
        receives=any(place.node == node for place in places),
    )


NO_CHANCE = "none of these schedules had it"
OF_A_PART = "a check speaks of the whole plan, and not all of it survives that"
CANARY = "canary"
"""What is missing where the judge does not see a planted error."""
_LACKS = {
    "journal": "no pipe has a journal",
    "state": "no pipe has a state in a store",
    "stream": "no pipe goes through a stream of a store",
    "restarted stream": "no pipe goes through a stream of a store",
    "any": "no pipe uses a store",
    ASKED: "only machines without a pipeline are tried with it (surepipe.simulation)",
}
_BEYOND = {
    "fail_ppm": "no stage or sink calls a function, and only these fail",
    "slow_ppm": "no stage or sink calls a function, and only these are slow",
    "flood": "no pipe that strangers may use has a bound that they could fill",
    "too_large": "a stage or a function looks into messages, so strangers offer none of any size",
    "sender_crashes": "each sender shares its process with a receiver: process-crash ends both",
    "receiver_crashes": "each receiver shares its process with a sender: process-crash ends both",
    "sender_zombies": "each sender shares its process with a receiver: process-replaced strikes both",
    "receiver_zombies": "each receiver shares its process with a sender: process-replaced strikes both",
}


def untried(
    subject: PlanSubject,
    missing: Faults,
    asked: Sequence[FaultKind] | None,
    *,
    has_check: bool = False,
) -> Iterator[tuple[str, Faults]]:
    """Why faults that are said to be survived did not strike in a campaign, and which these are. ``asked``: the
    only kinds that were wanted, None for all that are promised to be survived."""
    found: dict[str, set[Fault]] = {}
    known = drawn(subject, has_check=has_check)
    for fault in missing:
        is_drawn = asked is not None or fault in known
        why = _why_untried(subject, fault, asked, is_drawn=is_drawn)
        found.setdefault(why, set()).add(fault)
    yield from ((why, frozenset(faults)) for why, faults in sorted(found.items()))


def _why_untried(
    subject: PlanSubject, fault: Fault, asked: Sequence[FaultKind] | None, *, is_drawn: bool
) -> str:
    kinds = [kind for kind in CATALOGUE if fault.value in kind.names and kind.ranges]
    if asked is not None:
        kinds = [kind for kind in kinds if kind in asked]
    if not kinds:
        return "--faults leaves it out"
    beyond = f"{NO_CHANCE}; more --seeds may" if is_drawn else f"{OF_A_PART}: --faults tries it"
    return _why_not(subject, kinds) or beyond


def unstruck(
    subject: PlanSubject, words: Iterable[str], struck: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The words that were asked for of which nothing struck, and why. ``struck``: the kinds that did."""
    for word in words:
        kinds = chosen([word])
        if not any(kind.id in struck for kind in kinds):
            yield word, _why_not(subject, kinds) or NO_CHANCE


def unstruck_of_expected(
    subject: PlanSubject, struck: Collection[str], *, has_check: bool
) -> Iterator[tuple[str, str]]:
    """The words of what is expected to be tolerated of which nothing struck, though this plan may have it."""
    known = drawn(subject, has_check=has_check)
    for word, why in unstruck(subject, expected_words(subject), struck):
        if why == NO_CHANCE:
            yield word, NO_CHANCE if known & WORDS[word] else OF_A_PART


def _why_not(subject: PlanSubject, kinds: Sequence[FaultKind]) -> str:
    """Why none of these kinds can strike this plan; empty where one of them can."""
    drawn = [kind for kind in kinds if kind.ranges]
    if not drawn:
        others = [one.kind for one in CATALOGUE if one.ranges and one.switch == kinds[0].switch]
        return f"it is a part of {others[0]}: ask for that" if others else "nothing here makes it"
    if all(kind.switch in NETWORK_ONLY for kind in drawn) and _is_streamed(subject):
        return "all pipes go through streams of stores, so no frame is under way"
    possible = [kind for kind in drawn if can_occur(kind, subject.promise)]
    if not possible:
        return next((_LACKS[kind.needs] for kind in drawn if kind.needs), "nothing here makes it")
    switches = {kind.switch for kind in possible}
    on = replace(Options(), **dict.fromkeys(switches, 1))  # type: ignore[arg-type]
    within = within_reach(subject, on)
    if any(getattr(within, switch) for switch in switches):
        return ""
    return next(
        (_BEYOND[switch] for switch in switches if switch in _BEYOND), "it can't happen here"
    )


def _enters_functions(subject: PlanSubject) -> bool:
    parts = (*subject.plan.stages, *subject.plan.sinks)
    return any(key in ENTERED for _, key, _ in functions_in(parts))


def _is_streamed(subject: PlanSubject) -> bool:
    return all(pipe.stream_store is not None for pipe in subject.plan.pipes)


def used_in(subject: PlanSubject, decisions: Iterable[Decision]) -> Faults:
    """The faults, as claims name them, that decisions are."""
    return _named(kind for decision in decisions for kind in _kinds_of(subject, decision))


def _named(kinds: Iterable[str]) -> Faults:
    """The faults, as claims name them, that these kinds are."""
    names = {name for kind in kinds if kind in BY_ID for name in BY_ID[kind].names}
    return frozenset(fault for fault in Fault if fault.value in names)


def judged_through(claim: Claim, results: Iterable[PlanResult]) -> Faults:
    """The faults that struck in runs in which all of this claim was judged."""
    struck = (struck for one in results for might, struck in one.under if might <= claim.tolerates)
    return NO_FAULTS.union(*struck) & claim.tolerates


def _answers(subject: PlanSubject, result: RunResult) -> Iterator[Answer]:
    """Each message is told by its pipe and how it looks there: in another run it may have another number. An
    effect outside is that of the call before it."""
    sinks = {sink.name for sink in subject.plan.sinks}
    digests, called, by = dict(_digests_of(result.rows)), "", ""
    for row in result.rows:
        facts = facts_of(row)
        digest = digests.get((row.pipe, row.epoch, row.seq), "")
        message = f"{row.pipe.partition('@')[0]} {digest} {facts.get('part', '')}"
        if row.kind == Kind.CALLED:
            called, by = message if digest else "", f"{BY_STAGE}{facts.get('stage')}"
        elif row.kind == Kind.RETURNED and digest:
            yield f"{BY_STAGE}{facts.get('stage')}", message, str(facts.get("answer"))
        elif row.kind == "effect" and called and row.node not in sinks:
            key = f" with the key {facts['key']}" if "key" in facts else ""
            yield f"{EFFECT_ON}{row.node} by {by}", called, f"{facts.get('text')}{key}"


def _digests_of(rows: Iterable[Row]) -> Iterator[tuple[tuple[str, int, int], str]]:
    for row in rows:
        yield from (((row.pipe, row.epoch, seq), digest) for seq, digest in digests_in(row))


def digests_in(row: Row) -> Iterator[tuple[int, str]]:
    """Of a row that tells what a pipe accepted: each message's number, and what it looks like there."""
    if row.kind == Kind.ACCEPTED and not row.layer:
        for offset in range(row.count if row.digests else 0):
            yield row.seq + offset, row.digests[offset * DIGITS : (offset + 1) * DIGITS]


def shrunk(
    subject: PlanSubject, failure: PlanFailure, *, replays_max: int = SHRINK_REPLAYS
) -> Shrunk:
    """The failure, as short as it gets within so many runs. First each fault is tried alone.

    What never comes to rest would cost an hour of virtual time for each script that is tried, so these runs get
    less. The shortest script then runs as long as any; should it come to rest after all, nothing is cut short.
    """
    name, hasty = failure.violation.property, partial(_hasty, subject)
    if hasty(failure.script).violates(name) is not None:
        found = _shrunk(failure, hasty, name, replays_max)
        result = repeat(subject, found.script)
        violation = result.violates(name)
        if violation is not None:
            return replace(found, result=result, violation=violation)
    return _shrunk(failure, partial(repeat, subject), name, replays_max)


def _shrunk(failure: PlanFailure, replay: Replayer, name: str, replays_max: int) -> Shrunk:
    for decision in failure.script.decisions:
        if decision.fault:
            alone = replace(failure.script, decisions=(decision,))
            found = replay(alone)
            if found.stale is None and found.violates(name) is not None:
                return shrink(alone, replay, name, replays_max=min(ALONE_REPLAYS, replays_max))
    return shrink(failure.script, replay, name, replays_max=replays_max)


def _hasty(subject: PlanSubject, script: Script) -> RunResult:
    """The run that a script tells of, as far as patience goes."""
    limit = "time_max_us"
    options = {**script.options, limit: min(PATIENCE_US, Options.of(script.options).time_max_us)}
    result = repeat(subject, replace(script, options=options))
    said = {name: value for name, value in result.script.options.items() if name != limit}
    said |= {limit: script.options[limit]} if limit in script.options else {}
    return replace(result, script=replace(result.script, options=said))
