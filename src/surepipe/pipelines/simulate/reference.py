"""What comes out of a plan when nothing goes wrong: what simulated runs are compared with, end to end.

That is what a run of the engine without faults gives, as far as it agrees with what the plan's functions give when
they are called one after the other (``plain``). Where they differ, the functions are right: every run of an engine
that loses or repeats a message is then a violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from surepipe.audit.trace import Kind
from surepipe.core.claims import Atom
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import StagePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate.deployment import PlanDeployment
from surepipe.pipelines.simulate.ends import (
    RUN,
    Effect,
    Offspring,
    Original,
    RunOutcome,
    canonical,
    effects_of,
    without_addresses,
)
from surepipe.pipelines.simulate.functions import globals_in
from surepipe.pipelines.simulate.memory import in_transaction
from surepipe.pipelines.simulate.plain import Identities, Plain, PlainSubject, behind
from surepipe.pipelines.simulate.subject import Ends, PlanSubject, Reference, Told
from surepipe.pipelines.simulate.veils import Veil, veil_over
from surepipe.pipelines.users_code import place_of_function
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import Options
from surepipe.simulation.outside import Look
from surepipe.simulation.report.words import brief, brief_apart
from surepipe.simulation.world import Deployable, World, play

EVERYTHING = "everything"
ALL_BUT_COUNT = "all but their number"
DAY_US = 86_400_000_000


class _AnotherDay(SeededChooser):
    """What depends on the clock shows."""

    def wall_step(self, node: str, life: int) -> int:
        """More than a fault ever steps."""
        del node, life
        return 400 * DAY_US + DAY_US // 3


def with_expectations(subject: PlanSubject, messages: int) -> PlanSubject:
    """The subject with what each of its ends has after a run of so many messages without faults.

    An end whose content differs between two such runs (the stage looks at the clock, say) is not compared.
    """
    found = reference_of(subject, messages)
    return replace(
        subject,
        expected=found.expected,
        slips=found.slips,
        effects=found.effects,
        keyed=found.keyed,
        veils=found.veils,
        offspring=found.offspring,
    )


def reference_of(subject: PlanSubject, messages: int) -> Reference:
    """The same, and what is to be told of it."""
    known = subject.references.get(messages)
    if known is None:
        known = _reference(subject, messages)
        known = _of_handler(subject, messages, known) if subject.needs_all else known
        subject.references[messages] = known
    return known


def _of_handler(subject: PlanSubject, messages: int, known: Reference) -> Reference:
    """The same of a handler alone, which gets what its source has, whatever it makes of that."""
    (handler,), (rows,) = subject.plan.ends, subject.messages.values()
    wanted = [canonical(row) for row in rows[:messages]]
    return replace(known, expected={handler.name: wanted}, veils={}, keyed={})


def with_enough(subject: PlanSubject, options: Options) -> Options:
    """The options, with all messages where the user's check speaks of all: it says no to fewer of them, though
    nothing goes wrong, so what it says then is about their number."""
    if subject.needs_all or not reference_of(subject, options.messages).is_refused:
        return options
    is_about_all = not reference_of(subject, subject.most).is_refused
    return replace(options, messages=subject.most) if is_about_all else options


def not_compared(subject: PlanSubject) -> dict[str, str]:
    """The ends of which something was not compared in some run: ``EVERYTHING``, ``ALL_BUT_COUNT``, or the places
    in their messages."""
    return in_any(
        {
            end.name: _left_aside(known, end.name)
            for end in subject.plan.ends
            if end.name not in known.expected or end.name in known.veils
        }
        for known in subject.references.values()
    )


def _left_aside(known: Reference, end: str) -> str:
    if end not in known.expected:
        return EVERYTHING
    veil = known.veils[end]
    return ALL_BUT_COUNT if veil.is_whole else str(veil)


def in_any(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What some part of a campaign did not compare; of each end the most."""
    found: dict[str, str] = {}
    for part in parts:
        for end, what in part.items():
            found[end] = max(what, found.get(end, what), key=_how_much)
    return found


def _how_much(what: str) -> int:
    return 2 if what == EVERYTHING else 1 if what == ALL_BUT_COUNT else 0


def _reference(subject: PlanSubject, messages: int) -> Reference:
    calm = Options(messages=messages)
    otherwise = Options(seed=1, messages=messages, gap_us=70_000, handler_us=3_000)
    world = play(subject, calm, SeededChooser(calm))
    if world.limit == "refused" or world.kept_by() is not None:
        return Reference()
    other = played(subject, otherwise, another_day=True)
    first, second = _ends(world), _ends(other)
    by_hand = plainly(subject, calm)
    back = plainly(subject, otherwise, backwards=True)
    said, unsure = _said(subject, by_hand, back), by_hand.unsure | back.unsure
    expected: dict[str, Sequence[str]] = {}
    for end in by_hand.arrived:
        is_steady = _is_ordered(subject, end) or _is_same(by_hand, back, end)
        got = first.get(end) if is_steady and first.get(end) == second.get(end) else None
        agreed = _agreed(got, said.get(end), is_open=end in unsure)
        if agreed is not None:
            expected[end] = agreed
    veils: dict[str, Veil] = {}
    leaks: dict[str, str] = {}
    if rest := [end for end in by_hand.arrived if end in first and end not in expected]:
        later = plainly(subject, otherwise, later=True)
        leaks = dict(_leaking(subject, by_hand, plainly(subject, calm)))
        for end in rest:
            plain = (by_hand, later) if _is_ordered(subject, end) else (by_hand, later, back)
            veil = _veil(end, (first, second), plain, is_open=end in unsure)
            if veil is not None:
                veils[end], expected[end] = veil, [*map(veil.over, first[end])]
    left_out = {name: one.left_out for name, one in by_hand.passages.items() if one.left_out}
    silent = {end.name for end in subject.plan.ends if not first.get(end.name, [end])}
    silent |= {end for end, texts in expected.items() if not texts}
    looked_at = _looked_at(world)
    unreached = dict(_unreached(subject, silent, by_hand, _stuck(subject, world)))
    if subject.needs_all and (RUN, "dead") in looked_at:  # its check knows of the dead letters
        unreached = {}
    is_refused = any(violation.property == "user" for violation in world.found)
    twice = plainly(subject, calm, twice=True)
    retold = leaks | dict(_retold(by_hand, back, twice))
    retold |= dict(_put_off(subject.plan, by_hand, back))
    if not twice.slips and any(outside.named for outside in other.outsides):
        retold |= dict(_of_a_day(_keys(subject, calm), _keys(subject, calm, another_day=True)))
    told = {
        *retold.values()
    }  # what puts effects off asks for those of others, by the keys of these
    sharing = {text: what for text, what in twice.sharing.items() if what.stage not in told}
    keyless = {**twice.keyless, **sharing}
    again = effects_of(other.outsides).keys() & by_hand.effects.keys()
    steady = again & back.effects.keys()
    by_order = {
        (by_hand.effects[what].partition(" ")[0], "does outside")
        for what in again - steady
        if what[:2] not in looked_at
    }
    if subject.needs_all and subject.functions().check is None:
        by_order |= {(stage, "answers") for stage in _answering_otherwise(by_hand, back)}
    effects = {what: who for what, who in effects_of(world.outsides).items() if what in steady}
    keyed = _keyed(by_hand, veils)
    return Reference(
        expected,
        unreached,
        left_out,
        is_refused,
        twice.slips,
        effects,
        retold,
        {text: what.stage for text, what in keyless.items()},
        {text: what.stage for text, what in keyless.items() if what.look not in looked_at},
        keyed,
        veils,
        frozenset(by_order),
        tuple(leaks),
        _offspring(subject, by_hand, expected, said.keys() - veils.keys()),
    )


def _looked_at(world: World) -> Collection[Look]:
    """What the user's check has asked for, which is what it judges; whatever else there is, it says nothing of."""
    assert isinstance(world.outcome, RunOutcome)
    return world.outcome.looked_at


def _answering_otherwise(there: Plain, back: Plain) -> Iterator[str]:
    """Stages of which some message gets another answer when all come in another order."""
    for message, answers in there.answers.items():
        yield from _differing(answers, back.answers.get(message, {}))


def _veil(
    end: str, engine: Sequence[Ends], plain: Sequence[Plain], *, is_open: bool
) -> Veil | None:
    """What of the messages at an end has to be left aside for all these runs to have the same; None where that
    can't be said, as not each message comes to as much in each of them. ``is_open``: the engine may have more than
    the functions say."""
    counts = [
        {place: count for place, count in one.given.items() if place[2] == end} for one in plain
    ]
    if any(one != counts[0] for one in counts):
        return None
    texts = [one.get(end, ()) for one in engine]
    texts += [] if is_open else [one.arrived[end] for one in plain]
    return veil_over(texts)


def _offspring(
    subject: PlanSubject, by_hand: Plain, expected: Ends, told_by_text: Collection[str]
) -> Offspring:
    """``told_by_text``: the ends at which what is missing is known by its text."""
    rows: dict[str, list[tuple[str | None, Sequence[Original]]]] = {}
    counts: Counter[tuple[Original, str]] = Counter()
    for one in by_hand.came:
        text = one.text if one.end in told_by_text else None
        rows.setdefault(one.end, []).append((text, one.made_of))
        counts.update((original, one.end) for original in one.made_of)
    most: dict[tuple[str, str], int] = {}
    for part in (*subject.plan.sources, *subject.plan.pipes):
        reached = behind(subject, part.name)
        most |= {(part.name, end): int(end in reached) for end in expected}
    for (original, end), count in counts.items():
        most[original.place, end] = max(count, most.get((original.place, end), 0))
    return Offspring(
        rows,
        frozenset(by_hand.whole),
        frozenset(one.look for one in by_hand.failed),
        {end: len(texts) - len(by_hand.arrived[end]) for end, texts in expected.items()},
        most,
    )


def _keyed(by_hand: Plain, veils: Mapping[str, Veil]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """What comes to each end of each key of the last book before it, in the order of its sources."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in by_hand.came:
        if one.key is not None:
            text = veils[one.end].over(one.text) if one.end in veils else one.text
            found.setdefault(one.end, {}).setdefault(one.key, []).append(text)
    return found


def _agreed(
    got: Sequence[str] | None, said: Sequence[str] | None, *, is_open: bool
) -> Sequence[str] | None:
    """What an end is to have. ``is_open``: it may have more than the functions say."""
    if said is None or (got is None and is_open):
        return got
    missing, more = Counter(said) - Counter(got or ()), Counter(got or ()) - Counter(said)
    if got is not None and not missing and (is_open or not more):
        return got
    return [*said, *more.elements()] if is_open else said


def _said(subject: PlanSubject, there: Plain, back: Plain) -> Ends:
    """The contents of ends that depend on the functions alone: not on chance, the clock, or earlier messages."""
    untold = {stage.name for stage in subject.plan.stages if stage.batch is not None}
    untold |= there.by_chance | back.by_chance
    untold |= {name for part in untold for name in behind(subject, part)}
    return {
        end: texts
        for end, texts in there.arrived.items()
        if end not in untold and _is_same(there, back, end)
    }


def _is_same(there: Plain, back: Plain, end: str) -> bool:
    """Whether the order of messages, their identities and the time don't matter to what an end has."""
    return Counter(there.arrived[end]) == Counter(back.arrived[end])


def _is_ordered(subject: PlanSubject, end: str) -> bool:
    """Whether messages come to it in one order, in every run without faults."""
    claims = [claim for way, claim in subject.ways.items() if way.end == end]
    return len(claims) == 1 and Atom.MONOTONIC in claims[0]


def plainly(
    subject: PlanSubject,
    options: Options,
    *,
    backwards: bool = False,
    twice: bool = False,
    later: bool = False,
    identities: Identities | None = None,
) -> Plain:
    """What comes of the messages when the functions are called one after the other. ``later``: on another day, as
    always when ``backwards``."""
    plain = PlainSubject(subject, backwards, twice, identities or {})
    world = played(plain, options, another_day=backwards or later)
    assert isinstance(world.outcome, Plain)
    return world.outcome


def _retold(there: Plain, back: Plain, twice: Plain) -> Iterator[tuple[str, str]]:
    """Stages whose answer follows from the message, as long as it is tried once. What memory or the clock makes
    of it differs between any two runs, and is no matter of attempts."""
    for stage, (where, message, first, second) in twice.retold.items():
        answers = [
            (one[stage], back.answers.get(key, {}).get(stage))
            for key, one in there.answers.items()
            if stage in one
        ]
        if answers and all(one == other for one, other in answers):
            once, again = brief_apart(repr(first), repr(second))
            told = (
                f"stage {where} answers {once} for {brief(repr(message))}, and {again} when that "
                "is tried again, as any message may be: the answer has to follow from the message alone, "
                "not from context.attempt or from what an earlier call has left"
            )
            yield told, stage


def leaking(subject: PlanSubject, messages: int) -> Told:
    """What is to be said of the stages that answer otherwise when a run of so many messages is repeated."""
    first, second, third = (plainly(subject, Options(messages=messages)) for _ in range(3))
    return dict(_leaking(subject, first, second)) or dict(_leaking(subject, second, third))


def _leaking(subject: PlanSubject, first: Plain, second: Plain) -> Iterator[tuple[str, str]]:
    """Stages that answer otherwise in the same run, of the same clock and chance, when it is repeated."""
    stages = dict.fromkeys(stage for answers in first.answers.values() for stage in answers)
    for stage in stages:
        for message, answers in first.answers.items():
            other = second.answers.get(message, {})
            if stage in _otherwise(subject, answers, other):
                here, there = brief_apart(repr(answers[stage]), repr(other[stage]))
                who = _with_place(subject, stage)
                told = (
                    f"stage {who} answers {here} in a run without faults, and {there} when the same run is "
                    "repeated: it keeps something between runs that simulate can't set back (a generator, say, or "
                    "what a library holds), or uses chance or time that it can't replace. Answer from the message "
                    f"alone, or {in_transaction(subject.plan)}"
                )
                yield told, stage
                break


def _differing(answers: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [stage for stage in answers if other.get(stage, answers[stage]) != answers[stage]]


def _otherwise(
    subject: PlanSubject, answers: Mapping[str, str], other: Mapping[str, str]
) -> Collection[str]:
    """Which stages answer otherwise for a message, but for those that are given what others of them make of it."""
    odd = _differing(answers, other)
    return {*odd}.difference(*(behind(subject, stage) for stage in odd))


def _with_place(subject: PlanSubject, name: str) -> str:
    """A stage, and where its function is written."""
    part = subject.plan.part(name)
    path = part.does if isinstance(part, StagePart) else ""
    place = place_of_function(subject.functions().find(path)) if ":" in path else ""
    return f"{name} ({place})" if place else name


_Keys: TypeAlias = Mapping[tuple[str, Effect], Collection[str]]
"""Of each stage and effect, its keys."""


def _keys(subject: PlanSubject, options: Options, *, another_day: bool = False) -> _Keys:
    plain = PlainSubject(subject, False, False, {})
    found: dict[tuple[str, Effect], set[str]] = {}
    for outside in played(plain, options, another_day=another_day).outsides:
        for (stage, action), named in outside.named.items():
            for value, key in named:
                found.setdefault((stage, (outside.name, action, value)), set()).add(key)
    return found


def _of_a_day(today: _Keys, later: _Keys) -> Iterator[tuple[str, str]]:
    """Stages that name an effect by the time, though not by one that has passed at the next attempt; of each the
    first effect."""
    seen: set[str] = set()
    for (stage, effect), keys in today.items():
        others = later.get((stage, effect), keys)
        if others != keys and stage not in seen:
            seen.add(stage)
            outside, action, value = effect
            told = (
                f"stage {stage} gives {outside} {action} {value!r} the key {brief(min(keys))}, and on another day "
                f"{brief(min(others))}, so it is done once more for a message that is tried again then: make the "
                "key of the message alone, such as context.id.key"
            )
            yield told, stage


def _put_off(plan: Plan, there: Plain, back: Plain) -> Iterator[tuple[str, str]]:
    """Effects that happen while another message is handled than their own: which one depends on the order."""
    seen: set[str] = set()
    for effect, handled in there.during.items():
        who = there.effects[effect]
        if handled.is_other_than(back.during.get(effect, handled)) and who not in seen:
            seen.add(who)
            outside, action, value = effect
            told = (
                f"stage {who} does {outside} {action} {value!r} while it handles {handled.text}, and another "
                "message when they come in another order: what it keeps for later is lost with its process, and "
                "its own message may be settled by then. Do it while that is handled, or "
                f"{in_transaction(plan)}"
            )
            yield told, who.partition(" ")[0]


def _ends(world: World) -> Ends:
    deployment, outcome = world.deployment, world.outcome
    assert isinstance(deployment, PlanDeployment)
    assert isinstance(outcome, RunOutcome)
    return {} if world.limit else deployment.at_ends(outcome.delivered)


def played(subject: Deployable, options: Options, *, another_day: bool = False) -> World:
    """One run, for what its world knows at the end."""
    chooser = _AnotherDay(options) if another_day else SeededChooser(options)
    return play(subject, options, chooser)


# What nothing comes to, and of what nothing comes.


@dataclass(frozen=True)
class _Stuck:
    """A pipe of which each message becomes a dead letter in the run without faults, and why, in words."""

    pipe: str
    why: str


def _stuck(subject: PlanSubject, world: World) -> Sequence[_Stuck]:
    """The engine knows them: what a store refuses is refused when a stage is through, so no function raises it,
    and what has no key is given to none."""
    deployment = world.deployment
    assert isinstance(deployment, PlanDeployment)
    found: list[_Stuck] = []
    for pipe in subject.plan.pipes:
        letters = deployment.letters_of(pipe.name)
        dead = {(one.epoch, one.seq) for one in letters}
        here = f"{subject.name}/{pipe.name}"
        came = {
            (row.epoch, row.seq + more)
            for row in world.rows
            if row.kind == Kind.DELIVERED and row.pipe.partition("@")[0] == here
            for more in range(row.count)
        }
        if dead and came <= dead:
            stages = [part for part in subject.plan.reach(pipe.name) if isinstance(part, StagePart)]
            after = " and ".join(_with_place(subject, stage.name) for stage in stages)
            behind_it = f" after stage {after}" if after and came else ""
            text = without_addresses(letters[0].error_text)
            error = f"{letters[0].error_type}: {text}"
            many = f"{len(dead)} of {len(dead)} messages"
            found.append(
                _Stuck(
                    pipe.name, f"pipe {pipe.name} fails for {many}{behind_it} ({error.rstrip('.')})"
                )
            )
    return found


def _unreached(
    subject: PlanSubject, silent: Collection[str], by_hand: Plain, stuck: Sequence[_Stuck]
) -> Iterator[tuple[str, str]]:
    """``silent``: the ends that get nothing."""
    plan = subject.plan
    allowed = plan.simulate.may_be_empty
    for end in sorted({*silent} - {*allowed}):
        ways = {end, *(part.name for part in plan.parts if end in behind(subject, part.name))}
        why = _why(subject, by_hand, ways, stuck, end)
        yield f"{end} gets no message, even without faults{why}", end
    kept = {one.pipe for one in stuck}
    for source in plan.sources:
        ways = behind(subject, source.name)
        is_told = not (ways & by_hand.arrived.keys()) - {*silent}
        takers = {part.name for part in plan.takers(source.name)}
        is_of_use = bool(by_hand.of_use[source.name]) and not takers <= kept
        is_idle = is_of_use or not subject.messages[source.name]
        if source.name not in allowed and not is_told and not is_idle:
            why = _why(subject, by_hand, ways, stuck, source.name)
            yield f"nothing of {source.name} comes out, even without faults{why}", source.name


def _why(
    subject: PlanSubject, by_hand: Plain, ways: set[str], stuck: Sequence[_Stuck], name: str
) -> str:
    """What messages went no further than, and what is to be done. What functions say is more exact than what the
    engine makes of it."""
    failing = any(one.failed and way in ways for way, one in by_hand.passages.items())
    told = list(ending(subject, by_hand, ways))
    if not failing:
        refused = [one.why for one in stuck if one.pipe in ways]
        told, failing = told + refused, bool(refused)
    advice = _remembered(subject, by_hand, ways) or _advice(name, has_failed=failing)
    return f"{': ' if told else ''}{'; '.join(told)}{advice}"


def _remembered(subject: PlanSubject, by_hand: Plain, ways: Collection[str]) -> str:
    """What stages that give nothing keep, and no run has anew: a "seen before" that knows all messages from an
    earlier run. Empty where there is none; other messages would not help then."""
    named: set[str] = set()
    for name, one in by_hand.passages.items():
        part = subject.plan.part(name)
        if name in ways and one.left_out and isinstance(part, StagePart) and ":" in part.does:
            named |= {*globals_in(subject.functions().find(part.does))}
    kept = " and ".join(subject.memory.not_set_back_of(named))
    return (
        f". But {kept}, which can't be set back to what a fresh process has, so each run meets what those before "
        f"have left in it: answer from the message alone, or {in_transaction(subject.plan)}"
        if kept
        else ""
    )


def ending(subject: PlanSubject, by_hand: Plain, names: Collection[str]) -> Iterator[str]:
    """Those of these parts that messages went no further than, and why."""
    for name, one in by_hand.passages.items():
        part = subject.plan.part(name)
        if isinstance(part, StagePart):
            where = _with_place(subject, name) if subject.needs_all else f"{name} ({part.does})"
            word = f"{part.kind} {where}"
        else:
            word = f"pipe {name}" if isinstance(part, PipePart) else f"sink {name}"
        if name in names and one.left_out:
            yield f"{word} gives nothing for {one.left_out} of {one.came} messages"
        if name in names and one.failed:
            yield f"{word} fails for {one.failed} of {one.came} messages ({one.error})"


def _advice(name: str, *, has_failed: bool) -> str:
    if has_failed:
        return (
            ". Mend that; if it is right to fail, give the sources messages that get through as well (simulate: "
            "sample:)"
        )
    return (
        ". Give the sources messages that get through (simulate: sample:), and as many as a stage collects before "
        "it gives any (simulate: messages:), or, if this is meant, write "
        f"simulate: {{may_be_empty: [{name}]}}"
    )
