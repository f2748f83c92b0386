"""What comes out of a plan when nothing goes wrong: what simulated runs are compared with, end to end.

That is what a run of the engine without faults gives, as far as it agrees with what the plan's functions give when
they are called one after the other (``plain``). Where they differ, the functions are right: every run of an engine
that loses or repeats a message is then a violation.
"""

from __future__ import annotations

import reprlib
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import isclass, iscoroutinefunction
from types import ModuleType
from typing import cast

from surepipe.audit.trace import Kind
from surepipe.core.claims import Atom
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import PythonSink, StagePart, Trying
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulate.deployment import PlanDeployment
from surepipe.pipelines.simulate.ends import (
    RUN,
    Answer,
    Contents,
    Deeds,
    Effect,
    Nth,
    Offspring,
    Original,
    Reference,
    RunOutcome,
    Told,
    all_done,
    canonical,
    done_without_key,
    times_of,
    without_addresses,
)
from surepipe.pipelines.simulate.functions import Function, Functions, globals_in
from surepipe.pipelines.simulate.memory import ProcessMemory, in_transaction
from surepipe.pipelines.simulate.plain import (
    ATTEMPT,
    Came,
    Identities,
    Keys,
    OfEffect,
    OfMessage,
    Plain,
    PlainSubject,
    Said,
)
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.simulate.veils import Veil, values_in, veil_over
from surepipe.pipelines.users_code import place_of_function
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import Options
from surepipe.simulation.outside import OF_EACH, Look, key_advice
from surepipe.simulation.report.words import brief, brief_apart, listing
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
    return replace(subject, reference=reference_of(subject, messages))


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
            if _left_aside(known, end.name)
        }
        for known in subject.references.values()
    )


def _left_aside(known: Reference, end: str) -> str:
    """Empty where nothing is."""
    if end not in known.expected:
        return EVERYTHING
    veil = known.veils.get(end)
    return "" if veil is None else ALL_BUT_COUNT if veil.is_whole else str(veil)


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
    world = play(subject, calm, SeededChooser(calm))
    if world.limit == "refused" or world.kept_by() is not None:
        return Reference()
    check, runs = _Check(subject, calm, world), _Runs(subject, world, calm)
    by_hand, ends = runs.by_hand, _Compared(runs)
    unreached: Told = {} if subject.needs_all and check.judges((RUN, "dead")) else ends.unreached()
    twice = plainly(subject, calm, twice=True)
    retold = ends.leaks | dict(_otherwise_again(runs, twice))
    outside = _Outside(runs, twice, {*retold.values()}, check)
    odd_keys = dict(_odd_keys(subject, _keys_told(by_hand, runs.back, twice)))
    usual, deeds = _plan_of(world).aside(world), _deeds(runs, outside.effects)
    return Reference(
        expected=ends.expected,
        unreached=unreached,
        left_out={name: one.left_out for name, one in by_hand.passages.items() if one.left_out},
        is_refused=_is_refused(world),
        slips=twice.slips,
        reordering=dict(_reordering(runs)),
        effects=outside.effects,
        times=times_of(world.outsides),
        usual=outside.usual,
        retold=retold,
        keyless={text: what.stage for text, what in outside.keyless.items()},
        once=outside.once,
        unchecked=outside.unchecked,
        keyed=_keyed(() if odd_keys else by_hand.came, ends.veils),
        veils=ends.veils,
        by_order=frozenset(outside.by_order),
        counted=outside.counted,
        leaking=tuple(ends.leaks),
        asking={stage: tuple(asked) for stage, asked in by_hand.asking.items() if asked},
        of_first_attempts=frozenset(_of_first_attempts(runs, outside.usual | outside.effects)),
        odd_keys=odd_keys,
        keys=tuple(_told_of_keys(subject, by_hand)),
        judged=frozenset(end for end in ends.unsteady if check.judges_end(end)),
        by_batches=dict(ends.by_batches()),
        set_aside=""
        if unreached
        else _set_aside(runs, check, deeds.excused(outside.effects, usual, usual)),
        offspring=replace(
            _offspring(subject, by_hand, ends.expected, ends.said.keys() - ends.veils.keys()),
            leaning=dict(_leaning(runs, ends)),
            usual=usual,
        ),
        deeds=deeds,
        fails=any(row.kind == Kind.RAISED for row in (*world.rows, *runs.other.rows)),
    )


_BY_WHAT = "by the time, by chance or by the order, say"
_CHANCES = range(1, 33)
"""Seeds of runs with other chances. What two runs do alike they may do alike by chance."""


class _Runs:
    """Runs in which nothing goes wrong: of the engine, at two paces, and of the functions, called one after the
    other, there and back."""

    def __init__(self, subject: PlanSubject, world: World, calm: Options) -> None:
        self.subject, self.world, self.calm = subject, world, calm
        self.otherwise = replace(calm, seed=1, gap_us=70_000, handler_us=3_000)
        self.other = played(subject, self.otherwise, another_day=True)
        self.by_hand = plainly(subject, calm)
        self.back = plainly(subject, self.otherwise, backwards=True)
        keyed = [pipe.name for pipe in subject.plan.pipes if pipe.workers]
        self._behind_keys = {*keyed, *subject.plan.behind(*keyed)}
        self._by_key = plainly(subject, self.otherwise, by_key=True) if keyed else self.back
        self._behind_batches = subject.plan.behind_batches()
        sizes = sorted({2, max(2, calm.messages)}) if self._behind_batches else ()
        self.together = [plainly(subject, calm, batches=size) for size in sizes]
        """The same messages in batches of two, and in the largest that there may be."""

    @cached_property
    def of_strangers(self) -> Plain:
        """The run in the same order, of messages of other identities, on another day, with other chances, and each
        in a process of its own: what is the same there follows from the order and from what is outside."""
        strangers: Identities = {("", ""): ()}
        return plainly(
            self.subject, self.otherwise, later=True, forgetting=True, identities=strangers
        )

    @cached_property
    def drawing(self) -> Sequence[str]:
        """The stages that draw numbers."""
        drawn = self.by_hand.by_chance | self.back.by_chance
        return [part.name for part in self.subject.plan.order if part.name in drawn]

    @cached_property
    def of_other_chances(self) -> Sequence[Plain]:
        """More runs like that by hand, where a stage draws numbers: of other messages, for these may give them."""
        return [
            plainly(self.subject, replace(self.calm, seed=seed), strange=seed)
            for seed in (_CHANCES if self.drawing else ())
        ]

    @cached_property
    def same_in_order(self) -> Plain:
        """The run by hand, of the same messages, on another day."""
        known = self.by_hand.identities
        return plainly(self.subject, self.otherwise, later=True, identities=known)

    @cached_property
    def same_turned(self) -> Plain:
        """The same in another order, as far as the plan allows that when nothing goes wrong."""
        known = self.by_hand.identities
        return plainly(self.subject, self.otherwise, by_key=True, identities=known)

    @cached_property
    def parts(self) -> Sequence[_Part]:
        """Runs of halves of the messages, where some may become dead letters."""
        return [*_parts(self)] if _sets_aside(self.subject.plan) else []

    def is_left_to_chance(self, end: str) -> bool:
        """Whether stages that draw numbers decide how much comes to it."""
        if end not in {*self.drawing, *self.subject.plan.behind(*self.drawing)}:
            return False
        runs = (self.by_hand, *self.of_other_chances)
        return len({len(one.arrived[end]) for one in runs}) > 1

    def fallen(self, end: str) -> Sequence[Plain]:
        """Those runs, as far as batches may matter to what an end has."""
        return self.together if end in self._behind_batches else ()

    def turned(self, part: str) -> Plain:
        """The run in another order, as far as that is allowed there: within a key messages keep theirs."""
        return self._by_key if part in self._behind_keys else self.back

    @property
    def unsure(self) -> set[str]:
        """The ends that may have something of messages that fail."""
        return self.by_hand.unsure | self.back.unsure | self._by_key.unsure


class _Compared:
    """What each end is to have: ``expected``, by what the functions ``said`` where that can be told, under
    ``veils`` where it is not the same in each run (at the ``unsteady`` ends). ``leaks``: why it is not."""

    def __init__(self, runs: _Runs) -> None:
        self._runs = runs
        self._first, self._second = _ends(runs.world), _ends(runs.other)
        self.said = _said(runs)
        self._unsure = runs.unsure
        agreed = {end: self._agreed(end) for end in runs.by_hand.arrived}
        self.expected = {end: texts for end, texts in agreed.items() if texts is not None}
        self.unsteady = [end for end in agreed if end in self._first and end not in self.expected]
        self.veils: dict[str, Veil] = {}
        self.leaks: dict[str, str] = {}
        if self.unsteady:
            self._veil()

    def _agreed(self, end: str) -> Sequence[str] | None:
        runs = self._runs
        is_steady = _is_ordered(runs.subject, end) or _is_same(runs, end)
        is_steady = is_steady and _is_of_each_message(runs, end)
        is_steady = is_steady and not runs.is_left_to_chance(end)
        first = self._first.get(end)
        got = first if is_steady and first == self._second.get(end) else None
        return _agreed(got, self.said.get(end), is_open=end in self._unsure)

    def _veil(self) -> None:
        runs, subject = self._runs, self._runs.subject
        later = plainly(subject, runs.otherwise, later=True)
        self.leaks = dict(_leaking(subject, runs.by_hand, plainly(subject, runs.calm)))
        for end in self.unsteady:
            back = () if _is_ordered(subject, end) else (runs.turned(end),)
            plain = (runs.by_hand, later, *back)
            texts = [one.get(end, ()) for one in (self._first, self._second)]
            said = [one.arrived[end] for one in (*plain, *runs.fallen(end))]
            is_open = end in self._unsure
            is_alike = _gives_alike(end, plain) and not runs.is_left_to_chance(end)
            veil = _veil(texts, said, is_open=is_open) if is_alike else None
            if veil is not None:
                self.veils[end] = veil
                self.expected[end] = [*map(veil.over, self._first[end])]

    def by_batches(self) -> Iterator[tuple[str, str]]:
        """Of the unsteady ends that get something else when messages fall into other batches: who makes that of
        these on the way, in a sentence."""
        for end in self.unsteady:
            if not _is_of_each_message(self._runs, end):
                yield end, _of_batches(self._runs.subject, end)

    def unreached(self) -> Told:
        """The ends that are to have nothing, and the sources of which nothing comes out."""
        subject = self._runs.subject
        silent = {end.name for end in subject.plan.ends if not self._first.get(end.name, [end])}
        silent |= {end for end, texts in self.expected.items() if not texts}
        stuck = _stuck(subject, self._runs.world)
        return dict(_unreached(subject, silent, self._runs.by_hand, stuck))


class _Outside:
    """What stages do outside: the ``effects`` that are compared, and what can't be. ``keyless``: what is done once
    more at a second attempt; ``once``: what it leaves out, though it has no key; ``unchecked``: all that, and what
    follows from how messages fall into batches, or come one after the other, as far as no check judges it;
    ``by_order``: who does other things when messages come in another order; ``counted``: sentences about what is
    another thing in each run, and of which so many are compared."""

    def __init__(
        self, runs: _Runs, twice: Plain, retelling: Collection[str], check: _Check
    ) -> None:
        """``retelling``: such as put effects off, and so ask for those of others, by the keys of these."""
        by_hand = runs.by_hand
        sharing = {t: what for t, what in twice.sharing.items() if what.stage not in retelling}
        of_batches = _OfBatches(runs)
        misnamed = of_batches.misnamed() if not twice.slips else ()
        self.keyless = {**twice.keyless, **sharing, **dict(misnamed)}
        repeated = {*twice.keyless.values()}
        guarded = {text: what for text, what in twice.unnamed.items() if what not in repeated}
        self.once = {
            (stage, effect): times
            for (stage, effect), times in done_without_key(runs.world.outsides).items()
            if OfEffect(stage, effect[:2]) in guarded.values() and not check.judges(effect[:2])
        }
        differing = dict(of_batches.differing())
        by_chance = _ByChance(runs)
        again = {
            what
            for what in all_done(runs.other.outsides).keys() & by_hand.effects.keys()
            if not by_chance.decides(what, by_hand.effects[what])
        }
        self.usual = {what: by_hand.effects[what] for what in again}
        in_any_order = {
            what
            for what in again
            if what in runs.turned(_whose(what, by_hand.effects[what]).stage).effects
        }
        self.by_order = {
            (by_hand.effects[what].partition(" ")[0], "does outside")
            for what in again - in_any_order
            if not check.judges(what[:2])
        }
        if runs.subject.needs_all and runs.subject.functions().check is None:
            self.by_order |= {(stage, "answers") for stage in _answering_otherwise(runs)}
        in_order = {
            what
            for what in again - in_any_order
            if _comes_in_order(runs.subject, _whose(what, by_hand.effects[what]).stage)
            and what in runs.of_strangers.effects
        }
        steady = (in_any_order | in_order).intersection(*(one.effects for one in runs.together))
        racing = {
            _whose(what, who): who
            for what, who in by_hand.effects.items()
            if what not in steady and _is_by_the_order(runs, what, who)
        }
        self.effects = {
            what: who
            for what, who in all_done(runs.world.outsides).items()
            if what in steady
            and _whose(what, who) not in of_batches.others
            and (isinstance(what[2], Nth) or _whose(what, who) not in racing)
        }
        chances = dict(by_chance.told())
        self._by_chance, self._anew = by_chance, _DrawnAnew(runs, twice)
        differing = {text: what for text, what in differing.items() if what not in chances.values()}
        unchecked = {**self.keyless, **guarded, **differing, **chances}
        told = {*unchecked.values(), *of_batches.others}
        anew = self._anew.told() if not twice.slips else ()
        unchecked |= {text: what for text, what in anew if what not in told}
        told |= {*unchecked.values()}
        unchecked |= {text: what for text, what in self._uncounted(runs) if what not in told}
        told |= {*unchecked.values()}
        unchecked |= {text: what for text, what in _told_of_races(racing) if what not in told}
        self.unchecked = {
            text: what.stage for text, what in unchecked.items() if not check.judges(what.look)
        }
        told |= {*unchecked.values()}
        self.counted = (
            *(
                text
                for text, what in self._counted_alone(runs)
                if what not in told and not check.judges(what.look)
            ),
            *self._anew.noted(),
        )

    def _counted_alone(self, runs: _Runs) -> Iterator[tuple[str, OfEffect]]:
        """Of what is another thing in each run, though as much of it is done in all."""
        compared = {
            _whose(what, who) for what, who in self.effects.items() if isinstance(what[2], Nth)
        }
        others = {
            _whose(what, who): who
            for what, who in runs.by_hand.effects.items()
            if not isinstance(what[2], Nth) and what not in self.effects
        }
        for what, who in others.items():
            if what in compared:
                drawing = self._by_chance.drawing_for(what)
                why = f"{drawing} draws numbers" if drawing else _BY_WHAT
                told = (
                    f"of what stage {who} does outside ({' '.join(what.look)}), not all was compared, but how "
                    f"often, as it is not the same in all runs without faults ({why}): a check can look at that "
                    "(simulate: check:)"
                )
                yield told, what

    def _uncounted(self, runs: _Runs) -> Iterator[tuple[str, OfEffect]]:
        """Of what is another thing in some runs: what is not even done as often in all of them."""
        for what, who in all_done(runs.world.outsides).items():
            if isinstance(what[2], Nth) and what not in self.effects:
                told = (
                    f"how often stage {who} does {what[0]} {what[1]} is not the same in all runs without faults "
                    "(with another order of messages, by the time or by chance, say), so nobody knows whether it "
                    "is done for each message: say what has to be done (simulate: check:)"
                )
                yield told, _whose(what, who)


def _is_by_the_order(runs: _Runs, effect: Effect, who: str) -> bool:
    """Whether it is another one in an order that messages may come in, though they are the same: what follows from
    their identities, the time or chance is so in the run in the same order, too."""
    stage = _whose(effect, who).stage
    return (
        not isinstance(effect[2], Nth)
        and not _comes_in_order(runs.subject, stage)
        and effect in runs.same_in_order.effects
        and effect not in runs.same_turned.effects
    )


def _told_of_races(racing: Mapping[OfEffect, str]) -> Iterator[tuple[str, OfEffect]]:
    for what, who in racing.items():
        told = (
            f"what stage {who} does outside ({' '.join(what.look)}) is another thing when messages come in "
            "another order, which they may, so it is not compared: let it follow from the message alone, or let "
            "those that it goes by keep their order (one key, where there are lanes), or say what has to be "
            "done (simulate: check:)"
        )
        yield told, what


def _otherwise_again(runs: _Runs, twice: Plain) -> Iterator[tuple[str, str]]:
    """Stages that answer or act otherwise when a message is tried again, later, or among others."""
    retold = dict(_retold(runs, twice))
    yield from retold.items()
    yield from _overtaken(runs, {*retold.values()})
    yield from _put_off(runs, twice)
    if not twice.slips and runs.by_hand.keys:
        yield from _of_a_day(runs, plainly(runs.subject, runs.calm, later=True))


class _Check:
    """The user's check: it judges what it looks at, and would say no about; of all else it says nothing."""

    def __init__(self, subject: PlanSubject, calm: Options, world: World) -> None:
        """``world``: that of a run without faults, of these options."""
        self._subject = subject
        self._calm = calm
        self._outcome = _outcome_of(world)
        self._known: dict[Look, bool] = {}

    @property
    def dead(self) -> int:
        """How many dead letters there are in that run, as far as it does not mind."""
        return self._outcome.dead if not self.judges((RUN, "dead")) else 0

    def judges(self, look: Look) -> bool:
        """Dead letters, or something outside."""
        if look not in self._known:
            self._known[look] = look in self._outcome.looked_at and self._minds(look)
        return self._known[look]

    def judges_end(self, end: str) -> bool:
        """What comes there. A function that has it may keep it where no run knows of it, so there the check is
        asked about runs in which that function does nothing, or everything twice."""
        part = self._subject.plan.part(end)
        path = part.call if isinstance(part, PythonSink) else getattr(part, "does", "")
        if ":" in path and any(
            self._refuses(path, way) for way in (_doing_nothing, _doing_it_twice)
        ):
            return True
        is_looking = (RUN, "delivered") in self._outcome.looked_at
        return is_looking and not isinstance(part, StagePart) and self._minds((RUN, end))

    def _minds(self, look: Look) -> bool:
        """In a run of its own, as what is outside is gone when the next one begins."""
        world = play(self._subject, self._calm, SeededChooser(self._calm))
        check = _plan_of(world).functions.check
        return check is not None and _outcome_of(world).judged_by(check, look)

    def _refuses(self, path: str, way: Callable[[Function], Function]) -> bool:
        def functions() -> Functions:
            found = self._subject.functions()
            found.use(path, way(found.find(path)))
            return found

        subject = replace(self._subject, functions=functions)
        return _is_refused(play(subject, self._calm, SeededChooser(self._calm)))


def _doing_nothing(function: Function) -> Function:
    del function

    def nothing(message: object) -> None:
        del message

    return nothing


def _doing_it_twice(function: Function) -> Function:
    """Of a class nothing is known before it is made."""
    if isclass(function):
        return function
    if iscoroutinefunction(function):

        @wraps(function)
        async def later(*given: object) -> object:
            await function(*given)
            return await function(*given)

        return later

    @wraps(function)
    def twice(*given: object) -> object:
        function(*given)
        return function(*given)

    return twice


def _plan_of(world: World) -> PlanDeployment:
    assert isinstance(world.deployment, PlanDeployment)
    return world.deployment


def _outcome_of(world: World) -> RunOutcome:
    assert isinstance(world.outcome, RunOutcome)
    return world.outcome


def _is_refused(world: World) -> bool:
    return any(violation.property == "user" for violation in world.found)


def _answering_otherwise(runs: _Runs) -> Iterator[str]:
    """Stages of which some message gets another answer when all come in another order."""
    for message, answers in runs.by_hand.answers.items():
        for (stage, piece), answer in answers.items():
            other = runs.turned(stage).answers.get(message, {})
            if other.get((stage, piece), answer) != answer:
                yield stage


def _gives_alike(end: str, plain: Sequence[Plain]) -> bool:
    """Whether each message comes to as much at an end in each of these runs."""
    first, *others = (
        {place: count for place, count in one.given.items() if place[2] == end} for one in plain
    )
    return all(one == first for one in others)


def _veil(
    engine: Sequence[Sequence[str]], said: Sequence[Sequence[str]], *, is_open: bool
) -> Veil | None:
    """What of the messages at an end has to be left aside for all these runs to have the same; None where that
    can't be said. ``is_open``: the engine may have more than the functions say."""
    if not is_open:
        return veil_over([*engine, *said])
    had, told = veil_over(engine), veil_over(said)
    return None if had is None or told is None else Veil(had.places | told.places)


def _offspring(
    subject: PlanSubject, by_hand: Plain, expected: Contents, told_by_text: Collection[str]
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
        reached = subject.plan.behind(part.name)
        most |= {(part.name, end): int(end in reached) for end in expected}
    for (original, end), count in counts.items():
        most[original.place, end] = max(count, most.get((original.place, end), 0))
    return Offspring(
        rows,
        frozenset(by_hand.whole),
        frozenset(one.look for one in by_hand.failed),
        {end: max(0, len(texts) - len(by_hand.arrived[end])) for end, texts in expected.items()},
        most,
    )


def _keyed(
    came: Iterable[Came], veils: Mapping[str, Veil]
) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """What comes to each end of each key of the last book before it, in the order of its sources."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in came:
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


def _said(runs: _Runs) -> Contents:
    """The contents of ends that depend on the functions alone: not on chance, the clock, or earlier messages."""
    plan, there = runs.subject.plan, runs.by_hand
    untold = {stage.name for stage in plan.stages if stage.batch is not None}
    untold |= there.by_chance | runs.back.by_chance
    untold |= plan.behind(*untold)
    return {
        end: texts
        for end, texts in there.arrived.items()
        if end not in untold and _is_same(runs, end)
    }


def _is_same(runs: _Runs, end: str) -> bool:
    """Whether the order of messages, as far as it may change, their identities and the time don't matter to what
    an end has."""
    return Counter(runs.by_hand.arrived[end]) == Counter(runs.turned(end).arrived[end])


def _leaning(runs: _Runs, ends: _Compared) -> Iterator[tuple[str, bool]]:
    """The ends that get something else of the other messages when some of these do not come, their identities
    apart. That the order does not matter to an end, as far as it may change, says nothing of that: behind lanes
    each key keeps its own. Where something is left out, that may depend on other messages as well."""
    if not ends.expected or not _sets_aside(runs.subject.plan):
        return
    strangers = plainly(runs.subject, runs.calm, identities={("", ""): ()})
    for end in ends.expected:
        named = veil_over([runs.by_hand.arrived[end], strangers.arrived[end]])
        known = ends.veils.get(end, named)
        veil = Veil(named.places | known.places) if named and known else None
        if veil is None or any(one.is_otherwise(end, veil) for one in runs.parts):
            is_counted = all(one.gives_as_much(end) for one in runs.parts)
            yield end, is_counted and _gives_each_as_much(runs, end)


def _deeds(runs: _Runs, effects: Mapping[Effect, str]) -> Deeds:
    """What is done otherwise for some messages when others do not come leans on these; all of it, where that is
    not known."""
    otherwise = {what for part in runs.parts for what in part.otherwise_done()}
    leaning = {
        effect
        for effect in effects
        if not runs.parts or (effect[:2] if isinstance(effect[2], Nth) else effect) in otherwise
    }
    told = {
        f"{_whose(effect, effects[effect]).stage} does outside ({effect[0]} {effect[1]})": (
            bool(runs.parts) and effect[:2] not in otherwise
        )
        for effect in sorted(leaning, key=repr)
    }
    return Deeds(runs.by_hand.asking_for, frozenset(leaning), told)


def _sets_aside(plan: Plan) -> bool:
    """Whether messages may become dead letters that would come out without faults."""
    is_failing = (isinstance(part, Trying) and part.dead_letter for part in plan.parts)
    return any(is_failing) or any(pipe.book is not None for pipe in plan.pipes)


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of a part of the messages, beside one of the ``whole``."""

    whole: Plain
    part: Plain
    left_out: Collection[tuple[str, int]]

    def is_otherwise(self, end: str, veil: Veil) -> bool:
        """Whether an end gets something else of those that come."""
        whole, part = (Counter(map(veil.over, one.arrived[end])) for one in (self.whole, self.part))
        gone = Counter(
            veil.over(came.text)
            for came in self.whole.came
            if came.end == end and came.origin in self.left_out
        )
        return bool(part - whole or whole - part - gone)

    def otherwise_done(self) -> Iterator[Effect | Look]:
        """The effects, and the actions, that are not asked for as often for those that come."""
        whole, part = Counter[Effect | Look](), Counter[Effect | Look]()
        for effect, askings in self.whole.asking_for.items():
            times = sum(one.origin not in self.left_out for one in askings)
            whole.update({effect: times, effect[:2]: times})
        for effect, askings in self.part.asking_for.items():
            part.update({effect: len(askings), effect[:2]: len(askings)})
        yield from (what for what in whole.keys() | part.keys() if whole[what] != part[what])

    def gives_as_much(self, end: str) -> bool:
        """Whether as much comes to it of each of them."""
        return all(
            self.part.given[place] == count
            for place, count in self.whole.given.items()
            if place[2] == end and place[:2] not in self.left_out
        )


def _parts(runs: _Runs) -> Iterator[_Part]:
    """Halves of the messages, so that of any two some half has only one."""
    messages = [
        (source, place)
        for source, rows in runs.subject.messages.items()
        for place, _ in enumerate(rows[: runs.calm.messages])
    ]
    for bit in range((len(messages) - 1).bit_length()):
        odd = {one for number, one in enumerate(messages) if number >> bit & 1}
        for left_out in (odd, {*messages} - odd):
            part = plainly(runs.subject, runs.calm, without=left_out)
            yield _Part(runs.by_hand, part, left_out)


def _gives_each_as_much(runs: _Runs, end: str) -> bool:
    """Whether as much comes to an end of every message of its sources."""
    ways = [name for name in runs.subject.messages if end in runs.subject.plan.behind(name)]
    counts = {
        runs.by_hand.given[source, place, end]
        for source in ways
        for place, _ in enumerate(runs.subject.messages[source][: runs.calm.messages])
    }
    return len(counts) == 1


def _is_of_each_message(runs: _Runs, end: str) -> bool:
    """Whether how messages fall into batches does not matter to what an end has: two runs may agree on that by
    chance."""
    alone = Counter(runs.by_hand.arrived[end])
    return all(Counter(one.arrived[end]) == alone for one in runs.fallen(end))


def _of_batches(subject: PlanSubject, end: str) -> str:
    plan = subject.plan
    batches = [
        stage.name
        for stage in plan.stages
        if stage.batch is not None and end in plan.behind(stage.name)
    ]
    takers = {one.name: None for batch in batches for one in plan.takers(batch)}
    taking = [with_place(subject, one) for one in takers if end in plan.behind(one)]
    who = f"What {listing(taking)} gives" if taking else "What comes there"
    one_each = "let a flat-map behind the batch give a message for each that is in it"
    return f"{who} follows from how messages fall into batches (batch: of {listing(batches)}): {one_each}"


def _comes_in_order(subject: PlanSubject, stage: str) -> bool:
    """Whether messages come to a stage in one order in every run that may lose none of them: by one way, whose
    order survives what else is survived."""
    ways = {way: claim for way, claim in subject.ways.items() if stage in way.names}
    here = {way.names[: way.names.index(stage)] for way in ways}
    return len(here) == 1 and all(
        Atom.MONOTONIC in claim and {*claim.get(Atom.NO_LOSS, ())} <= {*claim[Atom.MONOTONIC]}
        for claim in ways.values()
    )


def _of_first_attempts(runs: _Runs, effects: Mapping[Effect, str]) -> Iterator[Effect]:
    """What is not done where the first attempts that stages see are second ones; of so many of an action any."""
    asking = {stage for stage, asked in runs.by_hand.asking.items() if ATTEMPT in asked}
    mine = {what: _whose(what, who) for what, who in effects.items()}
    mine = {what: whose for what, whose in mine.items() if whose.stage in asking}
    if not mine:
        return
    second = plainly(runs.subject, runs.calm, attempt=2, identities=runs.by_hand.identities)
    gone = mine.keys() - second.effects.keys()
    looks = {mine[what] for what in gone}
    yield from (
        what for what in mine if what in gone or (isinstance(what[2], Nth) and mine[what] in looks)
    )


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
    by_key: bool = False,
    batches: int = 1,
    afterwards: bool = False,
    forgetting: bool = False,
    identities: Identities | None = None,
    without: Collection[tuple[str, int]] = (),
    strange: int = 0,
    attempt: int = 1,
) -> Plain:
    """What comes of the messages when the functions are called one after the other. ``later``: on another day, as
    always when ``backwards``, or ``by_key``: backwards, as far as the plan allows that. ``batches``: how many
    messages fall into one. ``afterwards``: functions are called once more for each when all are through.
    ``forgetting``: each comes to a process that knows nothing of those before. ``without``: messages that do not
    come, by source and place. ``strange``: they have identities that no run with another number has. ``attempt``:
    what stages are told that it is."""
    plain = PlainSubject(
        of=subject,
        backwards=backwards or by_key,
        twice=twice,
        batches=batches,
        by_key=by_key,
        afterwards=afterwards,
        forgetting=forgetting,
        identities=identities or {},
        without=frozenset(without),
        strange=strange,
        attempt=attempt,
    )
    at_once = replace(options, handler_us=0)  # functions are called one after the other
    world = played(plain, at_once, another_day=plain.backwards or later)
    assert isinstance(world.outcome, Plain)
    return world.outcome


def _retold(runs: _Runs, twice: Plain) -> Iterator[tuple[str, str]]:
    """Stages whose answer follows from the message, as long as it is tried once. What memory or the clock makes
    of it differs between any two runs, and is no matter of attempts."""
    for stage, (where, message, first, second) in twice.retold.items():
        turned = runs.turned(stage)
        answers = [
            (answer, turned.answers.get(key, {}).get(said))
            for key, one in runs.by_hand.answers.items()
            for said, answer in one.items()
            if said[0] == stage
        ]
        if answers and all(one == other for one, other in answers):
            once, again = brief_apart(repr(first), repr(second))
            told = (
                f"stage {where} answers {once} for {brief(repr(message))}, and {again} when that "
                "is tried again, as any message may be: the answer has to follow from the message alone, "
                "not from context.attempt or from what an earlier call has left"
            )
            yield told, stage


def _reordering(runs: _Runs) -> Iterator[tuple[str, str]]:
    """Stages that give the messages of a batch in another order: what comes out behind them keeps none."""
    for one in runs.together:
        for stage, (before, given) in one.reordered.items():
            now, then = brief_apart(repr(given), repr(before))
            told = (
                f"{with_place(runs.subject, stage)} gives {now} for {then}, which is "
                "another order, so messages come out otherwise than they went in: keep the order, or take a pipe "
                "that promises none"
            )
            yield stage, told


def _overtaken(runs: _Runs, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """The same of stages that ask what was done outside, and meet what later messages have done. ``known``: those
    of which it is told already. What a handler alone answers goes nowhere, and a check says what matters there."""
    asking = {stage for stage, names in runs.by_hand.asking.items() if {*names} - {ATTEMPT}}
    goes_nowhere = runs.subject.needs_all and runs.subject.functions().check is not None
    if goes_nowhere or not asking - {*known}:
        return
    afterwards = plainly(runs.subject, runs.calm, afterwards=True)
    for stage, (where, message, first, second) in afterwards.retold.items():
        if stage in asking and stage not in known and _is_told_alike(runs, stage):
            once, again = brief_apart(repr(first), repr(second))
            told = (
                f"stage {where} answers {once} for {brief(repr(message))}, and {again} when that is tried again "
                "after other messages, as any may be: it asks what was done outside, and they have added to that. "
                'Let who asks (a double, say) count up to its own message alone, see "A stage that uses a '
                'database" in docs/simulation.md'
            )
            yield told, stage


def _is_told_alike(runs: _Runs, stage: str) -> bool:
    """Whether a stage answers the same in the same order, whoever its messages are, and at whatever time."""
    return all(
        runs.of_strangers.answers.get(message, {}).get(said, answer) == answer
        for message, one in runs.by_hand.answers.items()
        for said, answer in one.items()
        if said[0] == stage
    )


def _keys_told(*found: Plain) -> Keys:
    """What all of these runs have heard of keys."""
    keys: Keys = {}
    for who, told in (one for plain in found for one in plain.lane_keys.items()):
        for message, known in told.items():
            keys.setdefault(who, {}).setdefault(message, {}).update(known)
    return keys


def _odd_keys(subject: PlanSubject, keys: Keys) -> Iterator[tuple[str, str]]:
    """Pipes of which a function tells two keys of one message: when it is asked again, or when the messages come
    in another order, on another day."""
    for (pipe, path), told in keys.items():
        odd = next((one for one in told.items() if len(one[1]) > 1), None)
        if odd is None:
            continue
        once, again, *_ = odd[1]
        said = (
            f"{_function_with_place(subject, path)}, which tells the keys of pipe {pipe}, says {brief(once)} of "
            f"{brief(odd[0])}, and {brief(again)} when it is asked again: messages that belong together "
            "keep no order then, as they go through lanes of several keys. Make the key of the message alone "
            "(a field of it, say: key: customer), not of the time, of chance, or of what earlier calls have left"
        )
        yield said, pipe


def _told_of_keys(subject: PlanSubject, plain: Plain) -> Iterator[Answer]:
    """Which key each message has, as the answers of stages are told."""
    for (pipe, path), told in plain.lane_keys.items():
        who = f"{_function_with_place(subject, path)}, which tells the keys of pipe {pipe},"
        yield from ((who, message, next(iter(known))) for message, known in told.items())


def leaking(subject: PlanSubject, messages: int) -> Told:
    """What is to be said of the stages that answer otherwise when a run of so many messages is repeated."""
    first, second, third = (plainly(subject, Options(messages=messages)) for _ in range(3))
    return dict(_leaking(subject, first, second)) or dict(_leaking(subject, second, third))


def _leaking(subject: PlanSubject, first: Plain, second: Plain) -> Iterator[tuple[str, str]]:
    """Stages that answer otherwise in the same run, of the same clock and chance, when it is repeated."""
    stages = dict.fromkeys(said[0] for answers in first.answers.values() for said in answers)
    for stage in stages:
        for message, answers in first.answers.items():
            other = second.answers.get(message, {})
            if stage in _otherwise(subject, answers, other):
                said = next(one for one in _differing(answers, other) if one[0] == stage)
                here, there = brief_apart(repr(answers[said]), repr(other[said]))
                told = (
                    f"stage {with_place(subject, stage)} answers {here} in a run without faults, and {there} when "
                    f"the same run is repeated: {_why_it_leaks(subject, stage, len(first.answers))}"
                )
                yield told, stage
                break


def _why_it_leaks(subject: PlanSubject, stage: str, messages: int) -> str:
    names = left_in_doubles(subject, messages)
    if names:
        return f"{listing(names)} of its doubles {STAYS}"
    return (
        "it keeps something between runs that simulate can't set back (a generator, say, or what a library "
        "holds), or uses chance or time that it can't replace. Answer from the message alone, or "
        f"{in_transaction(subject.plan, stage)}"
    )


IN_AN_OUTSIDE = "keep that in an Outside (surepipe.simulation), which begins anew with each run"
STAYS = f"stays as a run has left it: {IN_AN_OUTSIDE}"


def left_in_doubles(subject: PlanSubject, messages: int) -> list[str]:
    """The names of what modules of doubles hold, and a run of so many messages leaves otherwise."""
    subject.memory.reset()
    before = _kept_by_doubles(subject)
    plainly(subject, Options(messages=max(1, messages)))
    subject.memory.reset()
    after = _kept_by_doubles(subject)
    return [name for name, text in after.items() if before.get(name, text) != text]


def not_set_back_of_doubles(subject: PlanSubject) -> Iterator[str]:
    """What such modules hold that no run has anew and nobody can look into: a connection, say."""
    return ProcessMemory(_modules_of_doubles(subject).values()).not_set_back()


def _modules_of_doubles(subject: PlanSubject) -> Mapping[str, ModuleType]:
    names = dict.fromkeys(one.partition(":")[0] for one in subject.plan.simulate.replace.values())
    return {name: sys.modules[name] for name in names if name in sys.modules}


def _kept_by_doubles(subject: PlanSubject) -> Mapping[str, str]:
    """What the modules of doubles have at hand that may change, as it is now."""
    modules = _modules_of_doubles(subject)
    held = {
        f"{module}.{name}": cast("object", value)
        for module, one in modules.items()
        for name, value in vars(one).items()
        if isinstance(value, dict | list | set | deque) and not name.startswith("__")
    }
    return {
        name: f"{len(cast('Sized', value))} in {reprlib.repr(value)}"
        for name, value in held.items()
    }


def _differing(answers: Said, other: Said) -> list[tuple[str, str]]:
    return [said for said in answers if other.get(said, answers[said]) != answers[said]]


def _otherwise(subject: PlanSubject, answers: Said, other: Said) -> Collection[str]:
    """Which stages answer otherwise for a message, but for those that are given what others of them make of it."""
    odd = {stage for stage, _ in _differing(answers, other)}
    return odd.difference(*(subject.plan.behind(stage) for stage in odd))


def with_place(subject: PlanSubject, name: str) -> str:
    """A stage, and where its function is written."""
    part = subject.plan.part(name)
    path = part.does if isinstance(part, StagePart) else ""
    place = place_of_function(subject.functions().find(path)) if ":" in path else ""
    return f"{name} ({place})" if place else name


def _function_with_place(subject: PlanSubject, path: str) -> str:
    place = place_of_function(subject.functions().find(path))
    return f"{path} ({place})" if place else path


def _of_a_day(runs: _Runs, later: Plain) -> Iterator[tuple[str, str]]:
    """Stages that name an effect by the time, though not by one that has passed at the next attempt; of each the
    first effect."""
    seen: set[str] = set()
    behind_batches = runs.subject.plan.behind_batches()
    for whose, keys in runs.by_hand.keys_of.items():
        stage, others = whose[0], later.keys_of.get(whose, keys)
        gone, new = [*keys.keys() - others.keys()], [*others.keys() - keys.keys()]
        if gone and new and stage not in seen:
            seen.add(stage)
            outside, action, value = keys[min(gone)]
            told = (
                f"stage {stage} gives {outside} {action} {value!r} the key {brief(min(gone))}, and on another day "
                f"{brief(min(new))}, so it is done once more for a message that is tried again then: "
                f"{key_advice(stage in behind_batches, 'make the key of the message alone')}"
            )
            yield told, stage


class _ByChance:
    """What stages do outside that follows from a number that is drawn, there or before it: such an effect is done
    in one run, and left out in the next one, with no fault in either. A stage that draws how long it waits does
    the same in all of them."""

    def __init__(self, runs: _Runs) -> None:
        self._subject = runs.subject
        self._drawing = runs.drawing
        self._found: dict[OfEffect, list[Mapping[Effect, str]]] = {}
        self._runs = (runs.by_hand, *runs.of_other_chances)
        asked = [*map(_asked, self._runs)]
        for what in dict.fromkeys(what for one in asked for what in one):
            each = [one.get(what, {}) for one in asked]
            if self._drawn_for(what) and any(one.keys() != each[0].keys() for one in each):
                self._found[what] = each

    def _drawn_for(self, what: OfEffect) -> list[str]:
        plan = self._subject.plan
        return [one for one in self._drawing if what.stage in {one, *plan.behind(one)}]

    def _is_counted(self, what: OfEffect) -> bool:
        """It is asked for as often in all runs, by chance with one value or another, of which two may be alike."""
        each = zip(self._runs, self._found[what], strict=True)
        return len({sum(len(run.asking_for[one]) for one in asked) for run, asked in each}) == 1

    def drawing_for(self, what: OfEffect) -> str:
        """Who draws numbers on the way to it, where that makes it another one in each run; empty where nobody."""
        who = self._drawn_for(what) if what in self._found else ()
        return listing([with_place(self._subject, one) for one in who])

    def decides(self, effect: Effect, who: str) -> bool:
        """Whether it is asked for, or with which value."""
        what = _whose(effect, who)
        is_number = isinstance(effect[2], Nth)
        return what in self._found and not (is_number and self._is_counted(what))

    def told(self) -> Iterator[tuple[str, OfEffect]]:
        """Of what is not even asked for as often in each run: who draws, in which line."""
        for what, each in self._found.items():
            if not self._is_counted(what):
                who = next(iter(next(one for one in each if one).values()))
                told = (
                    f"how often stage {who} does {' '.join(what.look)} goes by chance, as "
                    f"{self.drawing_for(what)} draws "
                    "numbers, so nobody knows whether it is done for each message: let what is done follow from "
                    "the message alone, or say what has to be done (simulate: check:)"
                )
                yield told, what


class _DrawnAnew:
    """What stages draw elsewhere than from their context, another number at each attempt: an effect with a key is
    done with that of the first one, and its message goes on with that of the last one."""

    def __init__(self, runs: _Runs, twice: Plain) -> None:
        """``twice``: the run in which each function is called once more, as a second attempt."""
        self._subject, self._twice = runs.subject, twice
        goes_on = not runs.subject.needs_all  # what a handler alone answers goes nowhere
        self._others = {
            of: values - twice.told_again[of]
            for of, values in twice.told.items()
            if goes_on and of[0] in twice.anew and values - twice.told_again[of]
        }
        """By stage and message: what it told at the first attempt alone."""
        timed: Mapping[OfMessage, set[str]] = self._at_the_same_times(runs) if self._others else {}
        self._drawn = {
            of: values - timed.get(of, set[str]()) for of, values in self._others.items()
        }

    @staticmethod
    def _at_the_same_times(runs: _Runs) -> Mapping[OfMessage, set[str]]:
        """What is told with other chances: the time is the same there."""
        calm = replace(runs.calm, seed=min(_CHANCES))
        return plainly(runs.subject, calm, twice=True, strange=min(_CHANCES)).told

    @cached_property
    def stages(self) -> Sequence[str]:
        """Those whose message goes on with another number after each attempt."""
        found = {stage for (stage, _), values in self._drawn.items() if values}
        return [part.name for part in self._subject.plan.order if part.name in found]

    def told(self) -> Iterator[tuple[str, OfEffect]]:
        """The effects that are done with such a number."""
        for what in dict.fromkeys(_whose(*one) for one in self._twice.asked.items()):
            for stage in self.stages:
                if self._is_of_one_call(stage, what.stage):
                    yield from self._done_with(stage, what)

    def noted(self) -> Iterator[str]:
        """Of each of them, where it draws: nobody needs to mind."""
        for stage in self.stages:
            yield (
                f"what stage {with_place(self._subject, stage)} draws is another number at each attempt of a "
                "message; context.random gives the same"
            )

    def _is_of_one_call(self, stage: str, other: str) -> bool:
        """Whether both are called anew when a message of their pipe is tried again."""
        plan = self._subject.plan
        is_behind = other == stage or other in plan.behind(stage)
        return is_behind and bool(plan.pipes_before(stage) & plan.pipes_before(other))

    def _done_with(self, stage: str, what: OfEffect) -> Iterator[tuple[str, OfEffect]]:
        """Of what every message shows: one may have the same number by chance."""
        done = [
            (
                effect,
                bool(values_in(canonical(effect[2])) & self._drawn.get((stage, of), set[str]())),
            )
            for effect, who in self._twice.asked.items()
            if _whose(effect, who) == what
            for of in {one.origin for one in self._twice.asking_for.get(effect, ())}
            if self._drawn.get((stage, of))
        ]
        if done and all(is_told for _, is_told in done):
            effect = done[0][0]
            told = (
                f"stage {self._twice.asked[effect]} does {' '.join(what.look)} {effect[2]!r} with what "
                f"{with_place(self._subject, stage)} draws, another number at each attempt: what is done has "
                "that of the first one, and the message goes on with that of the last one. Draw from "
                "context.random, which gives the same at each attempt, or say what has to be done (simulate: "
                "check:)"
            )
            yield told, what


class _OfBatches:
    """What stages do outside that follows from how messages fall into batches, another thing in each run."""

    def __init__(self, runs: _Runs) -> None:
        self._behind = runs.subject.plan.behind_batches()
        self._alone, self._asked = runs.by_hand, _asked(runs.by_hand)
        self._together = runs.together
        self._keys_alone: dict[OfEffect, set[str]] = {}
        for (stage, effect), key in _each_key(self._alone):
            self._keys_alone.setdefault(OfEffect(stage, effect[:2]), set()).add(key)
        self.others = {*self._other_effects()}
        """Of these not each effect is asked for in every run."""

    def _other_effects(self) -> Iterator[OfEffect]:
        for together in map(_asked, self._together):
            for what in together.keys() | self._asked.keys():
                is_other = together.get(what, {}).keys() != self._asked.get(what, {}).keys()
                if is_other and what.stage in self._behind:
                    yield what

    def differing(self) -> Iterator[tuple[str, OfEffect]]:
        """What is not asked for in every run. What tells its key, or the time, is never the same anywhere: nothing
        of it is compared then, which has to be told all the same."""
        runs = (self._asked, *map(_asked, self._together))
        for what in sorted(self.others, key=repr):
            who = next(iter(next(run[what] for run in runs if what in run).values()))
            told = (
                f"what stage {who} does outside ({' '.join(what.look)}) follows from how messages fall into "
                f"batches, and faults make them fall otherwise, so it is not compared: {_FOR_EACH}"
            )
            yield told, what

    def misnamed(self) -> Iterator[tuple[str, OfEffect]]:
        """Keys that tell of the batch; of each stage and action the first."""
        seen: set[OfEffect] = set()
        effects = {(stage, key): effect for (stage, effect), key in _each_key(self._alone)}
        for together in self._together:
            for (stage, effect), key in _each_key(together):
                what = OfEffect(stage, effect[:2])
                if stage in self._behind and what not in seen:
                    alone = effects.get((stage, key), effect)
                    why = _shared_key(alone, effect, key) or self._other_key(stage, effect, key)
                    if why:
                        seen.add(what)
                        who = together.asked.get(effect, stage)
                        yield f"stage {who} gives {' '.join(what.look)} {why}: {_FOR_EACH}", what

    def _other_key(self, stage: str, effect: Effect, key: str) -> str:
        alone = self._alone.keys.get((stage, effect))
        if alone is None:
            return self._unknown_key(stage, effect, key)
        return (
            f"{effect[2]!r} the key {brief(min(alone))}, and {brief(key)} in another batch, so it is done once "
            "more for a message that is tried again there"
            if key not in alone
            else ""
        )

    def _unknown_key(self, stage: str, effect: Effect, key: str) -> str:
        """Of what is only done in company, as it tells its key, or a sum: by the keys of all else that is done."""
        known = self._keys_alone.get(OfEffect(stage, effect[:2]), {key})
        return (
            f"{effect[2]!r} the key {brief(key)}, which it gives to nothing where each message comes alone, so it "
            "is done once more for a message that is tried again there"
            if key not in known
            else ""
        )


def _shared_key(alone: Effect, together: Effect, key: str) -> str:
    """A batch has the identity of its first message, whatever its company."""
    return (
        f"{alone[2]!r} and {together[2]!r}, which are of two batches, one key ({brief(key)}), so only the first "
        "of both is done"
        if alone != together and alone[:2] == together[:2]
        else ""
    )


_FOR_EACH = f"{OF_EACH}, or say what has to be done (simulate: check:)"


def _each_key(run: Plain) -> Iterator[tuple[tuple[str, Effect], str]]:
    return ((whose, key) for whose, keys in run.keys.items() for key in sorted(keys))


def _asked(run: Plain) -> Mapping[OfEffect, Mapping[Effect, str]]:
    """By stage and action what was asked for, and where."""
    found: dict[OfEffect, dict[Effect, str]] = {}
    for effect, who in run.asked.items():
        found.setdefault(_whose(effect, who), {})[effect] = who
    return found


def _whose(effect: Effect, who: str) -> OfEffect:
    return OfEffect(who.partition(" ")[0], effect[:2])


def _put_off(runs: _Runs, twice: Plain) -> Iterator[tuple[str, str]]:
    """Effects that happen while another message is handled than their own: which one depends on the order."""
    seen: set[str] = set()
    plan, there = runs.subject.plan, runs.by_hand
    for effect, handled in there.during.items():
        who = there.effects[effect]
        what = _whose(effect, who)
        stage, turned = what.stage, runs.turned(what.stage)
        is_other = handled.is_other_than(turned.during.get(effect, handled))
        is_asked_again = handled.of[:2] in {one.origin for one in twice.asked_again.get(effect, ())}
        is_of_each = is_asked_again or _for_each(there, what) == _for_each(turned, what)
        if is_other and who not in seen and not is_of_each:
            seen.add(who)
            outside, action, value = effect
            told = (
                f"stage {who} does {outside} {action} {value!r} while it handles {handled.text}, and another "
                "message when they come in another order: what it keeps for later is lost with its process, and "
                "its own message may be settled by then. Do it while that is handled, or "
                f"{in_transaction(plan, stage)}"
            )
            yield told, stage


def _for_each(run: Plain, what: OfEffect) -> Counter[tuple[str, int]]:
    """How often it is asked for while each message of a source is handled. A running total that is told outside,
    or a number that is drawn, is told of another message in another order, and all the same once for each."""
    return Counter(
        asking.origin
        for effect, askings in run.asking_for.items()
        if _whose(effect, run.asked[effect]) == what
        for asking in askings
    )


def _ends(world: World) -> Contents:
    return {} if world.limit else _plan_of(world).at_ends(_outcome_of(world).delivered)


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


def _set_aside(runs: _Runs, check: _Check, excused: Collection[Effect]) -> str:
    """How many dead letters come without any fault, where nobody minds, and of what. ``excused``: what is done
    outside for these, all the same."""
    if not check.dead:
        return ""
    parts = [part.name for part in runs.subject.plan.parts]
    failed = "; ".join(ending(runs.subject, runs.by_hand, parts, is_failed=True))
    done = ". What is done outside for these messages is not compared" if excused else ""
    return (
        f"even without faults there are dead letters ({check.dead}){': ' if failed else ''}{failed}{done}. Where "
        "that is not meant, mend it, or give the sources rows like their own (simulate: sample:)"
    )


def _stuck(subject: PlanSubject, world: World) -> Sequence[_Stuck]:
    """The engine knows them: what a store refuses is refused when a stage is through, so no function raises it,
    and what has no key is given to none."""
    deployment = _plan_of(world)
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
            after = " and ".join(with_place(subject, stage.name) for stage in stages)
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
        ways = {end, *(part.name for part in plan.parts if end in subject.plan.behind(part.name))}
        why = _why(subject, by_hand, ways, stuck, end)
        yield f"{end} gets no message, even without faults{why}", end
    kept = {one.pipe for one in stuck}
    for source in plan.sources:
        ways = subject.plan.behind(source.name)
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


def ending(
    subject: PlanSubject, by_hand: Plain, names: Collection[str], *, is_failed: bool = False
) -> Iterator[str]:
    """Those of these parts that messages went no further than, and why. ``is_failed``: only those that failed."""
    for name, one in by_hand.passages.items():
        part = subject.plan.part(name)
        if isinstance(part, StagePart):
            where = with_place(subject, name) if subject.needs_all else f"{name} ({part.does})"
            word = f"{part.kind} {where}"
        else:
            word = f"pipe {name}" if isinstance(part, PipePart) else f"sink {name}"
        if name in names and one.left_out and not is_failed:
            has_no_answer = one.left_out == one.came and word.startswith("call ")
            why = " (is its return forgotten?)" if has_no_answer else ""
            yield f"{word} gives nothing for {one.left_out} of {one.came} messages{why}"
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
