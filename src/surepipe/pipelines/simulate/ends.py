"""Judges a run end to end: what each sink has, beside what it has when nothing goes wrong.

The judge of rows sees each pipe by itself; a message that one pipe repeats is another message to the next one. So
the ends are compared by content, where the same input always gives the same output.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from surepipe.actors.consuming.coroutines import TurnCoroutines, finish
from surepipe.audit.findings import Violation
from surepipe.audit.settings import facts_of
from surepipe.core.claims import Atom
from surepipe.core.effects import Letter
from surepipe.errors import so_often
from surepipe.pipelines.plan import Way
from surepipe.pipelines.simulate.veils import ANY, Veil
from surepipe.pipelines.stages import About
from surepipe.pipelines.users_code import place_of, place_of_function
from surepipe.simulation.outside import Look, Outside, looked_at, looking, ordinal
from surepipe.simulation.report.words import brief_apart
from surepipe.simulation.timeline import as_detail
from surepipe.simulation.world import World

Effect: TypeAlias = tuple[str, str, Hashable]
"""Of something outside: its name, what was done, and with which value."""
Claims = Mapping[Way, Mapping[str, Sequence[str]]]
Once: TypeAlias = Mapping[tuple[str, Effect], int]
"""Effects without a key that a second attempt leaves out: of each stage that does one, how often it is done when
nothing goes wrong."""
Contents = Mapping[str, Sequence[str]]
"""What comes to each end."""
Keyed = Mapping[str, Sequence[str]]
Told = Mapping[str, str]
"""Sentences, and which part of the plan each is about."""
Answer = tuple[str, str, str]
"""Who answered, for which message, and what."""
ByOrder = tuple[str, str]
"""A stage, and what of it is another one when messages come in another order, in words."""


@dataclass(frozen=True, slots=True)
class Original:
    """A message of a source or of a pipe, of which others are made; ``number`` counts those that look alike."""

    place: str
    digest: str
    number: int

    @property
    def look(self) -> Likeness:
        """All that a dead letter tells of it."""
        return self.place, self.digest


Likeness: TypeAlias = tuple[str, str]
"""A source or a pipe, and the digest of a message there; that is empty if it is not known."""
SetAside: TypeAlias = Counter[Likeness]
"""How many messages became dead letters."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """What may be missing at an end, as its message was set aside: these texts, and ``others`` of any text."""

    texts: Counter[str] = field(default_factory=Counter[str])
    others: int = 0


@dataclass(frozen=True)
class Offspring:
    """What comes of each message, when nothing goes wrong.

    ``rows``: of each end, what comes there, and which messages it is made of; the text is None where it does not
    follow from these alone. ``whole``: the messages of which that is known. ``failed``: how those look of which
    some part fails each time; ``partly``: how much comes to each end of all of these. Of any other message it is
    taken to be the ``most`` that comes of one, by source or pipe and end. ``leaning``: the ends at which what
    comes of a message depends on others too (a running total), each with whether as much comes of every message.
    """

    rows: Mapping[str, Sequence[tuple[str | None, Sequence[Original]]]] = field(
        default_factory=dict[str, Sequence[tuple[str | None, Sequence[Original]]]]
    )
    whole: frozenset[Original] = frozenset()
    failed: frozenset[Likeness] = frozenset()
    partly: Mapping[str, int] = field(default_factory=dict[str, int])
    most: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    leaning: Mapping[str, bool] = field(default_factory=dict[str, bool])
    usual: SetAside = field(default_factory=Counter[Likeness])

    def is_otherwise(self, end: str, aside: SetAside) -> bool:
        """Whether what comes of all others there may be something else, as these are set aside."""
        return end in self.leaning and bool((aside - self.usual).keys() - self.failed)

    def strangers(self, aside: SetAside) -> set[str]:
        """The sources and pipes of which messages are set aside that look like none that is known, and more than
        in a run without faults."""
        known = self.failed.union(one.look for one in self.whole)
        here, usual = (
            Counter(
                place
                for (place, digest), times in letters.items()
                if (place, digest) not in known
                for _ in range(times)
            )
            for letters in (aside, self.usual)
        )
        return {*(here - usual)}

    def excuse(self, end: str, aside: SetAside) -> Excuse:
        """What these letters take with them. What is made of two of them is missing once."""
        known = {one for one in self.whole if one.number <= aside[one.look]}
        gone = [text for text, made_of in self.rows.get(end, ()) if known.intersection(made_of)]
        looks = self.failed.union(one.look for one in self.whole)
        others = gone.count(None)
        others += self.partly.get(end, 0) if self.failed & aside.keys() else 0
        for look in aside.keys() - looks:
            others += aside[look] * self.most.get((look[0], end), 1)
        return Excuse(Counter(text for text in gone if text is not None), others)


@dataclass(frozen=True, slots=True)
class Asking:
    """What a stage asks for an effect for: the messages that the one it handles is made of, and the source of that
    with its place there."""

    made_of: Sequence[Original]
    origin: tuple[str, int]

    def is_set_aside(self, aside: SetAside) -> bool:
        """Whether one of these messages became a dead letter."""
        return any(one.number <= aside[one.look] for one in self.made_of)


@dataclass(frozen=True)
class Deeds:
    """What is done outside for which message, when nothing goes wrong.

    ``asking_for``: of each effect, for what it is asked for, each time. ``leaning``: the effects that depend on
    other messages than these, too (a running total); ``told``: whose these are, in words, each with whether as
    much is done for every message.
    """

    asking_for: Mapping[Effect, Sequence[Asking]] = field(
        default_factory=dict[Effect, Sequence[Asking]]
    )
    leaning: frozenset[Effect] = frozenset()
    told: Mapping[str, bool] = field(default_factory=dict[str, bool])

    def excused(self, wanted: Collection[Effect], aside: SetAside, usual: SetAside) -> set[Effect]:
        """What of this may not be done, as messages are set aside: what is done for these alone, and, where others
        than usual are set aside, what depends on them. Of each action as much less is done as they ask for."""
        gone, fewer = Counter[Effect](), Counter[Look]()
        for effect, askings in self.asking_for.items():
            gone[effect] = sum(asking.is_set_aside(aside) for asking in askings)
            fewer[effect[:2]] += gone[effect]
        all_of = {effect for effect, times in gone.items() if times == len(self.asking_for[effect])}
        totals = Counter(effect[:2] for effect in wanted if isinstance(effect[2], Nth))
        last = {
            effect
            for effect in wanted
            if isinstance(effect[2], Nth)
            and effect[2].number > totals[effect[:2]] - fewer[effect[:2]]
        }
        return all_of | last | (self.leaning if aside - usual else frozenset())


@dataclass(frozen=True)
class Reference:
    """``expected``: what each end is to have, where that can be said. ``unreached``: a sentence for each end that
    is to have nothing, and for each source of which nothing comes out. ``left_out``: how many messages each stage
    gave nothing for. ``is_refused``: the user's check says no, though nothing went wrong. ``slips``: what is wrong
    with the keys of effects when each call is made once more, as a second attempt; ``retold``: which stages answer
    otherwise then; ``keyless``: which effects are done once more then, as they have no key, or once for several
    messages, which share one, or have a key that tells of a batch; ``once``: what is not done once more then,
    though it has no key; ``unchecked``: all of these that no check looks at, and what else it would have to look
    at, as it follows from how messages fall into batches, or from their order.
    ``effects``: what is done outside in each run without faults, however its messages come and fall into
    batches, and who asks for it; ``times``: how often each effect is done in one run, and ``usual``: the effects
    of all that were made in which messages come as they do. ``veils``: what of the messages at an end differs
    between runs without faults, and is not compared. ``by_order``: who does other things outside when the
    messages come in another order, and no check looks at them. ``leaking``: which stages answer otherwise when
    the same run is repeated, also among ``retold``. ``asking``: what each stage asks for beside its message.
    ``odd_keys``: functions that tell two keys of one message; ``keys``: what those of the plan tell.
    ``judged``: the ends that the user's check judges, of those that are not the same in each run.
    ``by_batches``: a sentence for each end that gets something else when messages fall into other batches.
    ``set_aside``: how many dead letters come without any fault, and of what, where no check minds.
    ``offspring``: what is to come of each message; ``deeds``: what is done outside for it."""

    expected: Contents = field(default_factory=dict[str, Sequence[str]])
    unreached: Told = field(default_factory=dict[str, str])
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    is_refused: bool = False
    slips: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    reordering: Mapping[str, str] = field(default_factory=dict[str, str])
    """of each stage that gives what it gets in another order: a sentence"""
    effects: Mapping[Effect, str] = field(default_factory=dict[Effect, str])
    times: Mapping[Effect, int] = field(default_factory=dict[Effect, int])
    usual: Mapping[Effect, str] = field(default_factory=dict[Effect, str])
    retold: Told = field(default_factory=dict[str, str])
    keyless: Told = field(default_factory=dict[str, str])
    once: Once = field(default_factory=dict[tuple[str, Effect], int])
    unchecked: Told = field(default_factory=dict[str, str])
    keyed: Mapping[str, Keyed] = field(default_factory=dict[str, Keyed])
    veils: Mapping[str, Veil] = field(default_factory=dict[str, Veil])
    by_order: frozenset[ByOrder] = frozenset()
    counted: tuple[str, ...] = ()
    """sentences about what is done outside of which only the number is compared"""
    leaking: tuple[str, ...] = ()
    asking: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    of_first_attempts: frozenset[Effect] = frozenset()
    """what a stage that asks which attempt it is does at the first one alone"""
    odd_keys: Told = field(default_factory=dict[str, str])
    keys: tuple[Answer, ...] = ()
    judged: frozenset[str] = frozenset()
    by_batches: Told = field(default_factory=dict[str, str])
    set_aside: str = ""
    offspring: Offspring = field(default_factory=Offspring)
    deeds: Deeds = field(default_factory=Deeds)
    fails: bool = False
    """A stage raises though nothing goes wrong: that is a fault of every run, and what is promised is promised
    through it, or is not."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What the ends of a plan have, and what they are expected to have; and which messages are dead letters."""

    got: Mapping[str, Sequence[str]]
    expected: Mapping[str, Sequence[str]]
    aside: SetAside
    offspring: Offspring


def judge_ends(
    world: World, ends: Ends, ways: Claims, doubts: Mapping[str, Atom | None]
) -> Iterator[Violation]:
    """Compare each end with what it was expected to have, and give the differences.

    ``doubts``: of a source, what its ways do not promise in this run. A claim begins when a message was accepted.
    Without faults nobody has an excuse: each message comes out once, whatever is promised.
    """
    if world.limit:
        return
    faults = frozenset(world.faults)
    for end, wanted in ends.expected.items():
        claims = [claim for way, claim in ways.items() if way.end == end]
        doubted = {doubts.get(way.source) for way in ways if way.end == end}
        held = {
            atom
            for atom in Atom
            if claims
            and atom not in doubted
            and all(atom in claim and faults <= frozenset(claim[atom]) for claim in claims)
        }
        if world.is_fault_free:
            held |= {Atom.NO_LOSS, Atom.NO_DUPLICATE}
        excuse = ends.offspring.excuse(end, ends.aside)
        texts, meant = list(ends.got.get(end, ())), list(wanted)
        if ends.offspring.is_otherwise(end, ends.aside):
            if not ends.offspring.leaning[end]:
                continue
            texts, meant = [*map(ANY.over, texts)], [*map(ANY.over, meant)]
            excuse = Excuse(others=excuse.others + excuse.texts.total())
        yield from _judge(_End(world, end, texts, meant, excuse), held, len(claims) == 1)


def judge_keys(
    world: World,
    ends: Ends,
    keyed: Mapping[str, Mapping[str, Sequence[str]]],
    through: Mapping[str, frozenset[str]],
) -> Iterator[Violation]:
    """Of each end behind a book or lanes: the messages of each key came out in the order in which they went in.

    Across keys there is no order. A text that two keys may have given says nothing of either, nor does one that
    another message may have given instead, as some are set aside.
    """
    if world.limit:
        return
    faults = frozenset(map(str, world.faults))
    for end, faults_survived in through.items():
        wanted = keyed.get(end, {})
        if not (world.is_fault_free or faults <= faults_survived):
            continue
        if ends.offspring.is_otherwise(end, ends.aside):
            continue
        owners = Counter(text for texts in wanted.values() for text in set(texts))
        for key, texts in wanted.items():
            mine = {text for text in texts if owners[text] == 1}
            came = [text for text in ends.got.get(end, ()) if text in mine]
            if late := out_of_order(came, [text for text in texts if text in mine]):
                one = _End(world, end, came, list(texts), Excuse())
                yield one.violation(
                    "P4",
                    "monotonic",
                    f"messages of key {_short(key)} came out in another order than they went in, "
                    f"{_short(late)} too late.",
                    late,
                )


class _End:
    """One sink: what it got and what it should have."""

    def __init__(
        self, world: World, name: str, got: list[str], wanted: list[str], excuse: Excuse
    ) -> None:
        self.world = world
        self.name = name
        self.got = got
        self.wanted = wanted
        self.lost = Counter(wanted) - Counter(got) - excuse.texts
        self.excused = excuse.others
        self.surplus = Counter(got) - Counter(wanted)

    def violation(self, property_id: str, name: str, sentence: str, content: str) -> Violation:
        """Found at the end of the run."""
        step, said = len(self.world.rows) - 1, f"{self.name}: {sentence}"
        return Violation(property_id, name, step, said, end=self.name, content=content)


def about_what(ends: Ends) -> tuple[str, str]:
    """The first end that differs from its expectation, and the message that shows it."""
    for end, wanted in ends.expected.items():
        got = ends.got.get(end, ())
        for content in (*(Counter(wanted) - Counter(got)), *(Counter(got) - Counter(wanted))):
            return end, content
        if late := out_of_order(got, wanted):
            return end, late
    return "", ""


def out_of_order(got: Sequence[str], wanted: Sequence[str]) -> str:
    """The first message that can't have come in the order of what was wanted, repeats apart; empty for none.

    Of messages that look the same each is taken for the next of them; what is missing may be any.
    """
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, text in enumerate(wanted):
        places[text].append(place)
    seen: set[str] = set()
    latest = -1
    for text in got:
        following = bisect_right(places[text], latest)
        if following < len(places[text]):
            latest = places[text][following]
        elif places[text] and text not in seen:
            return text
        seen.add(text)
    return ""


def _judge(end: _End, held: set[Atom], is_single: bool) -> Iterator[Violation]:
    lost = sum(end.lost.values())
    if Atom.NO_LOSS in held and lost > end.excused:
        missing = next(iter(end.lost))
        stranger = next((text for text in end.surplus if text not in end.wanted), "")
        lost_one, other = brief_apart(missing, stranger) if stranger else (_short(missing), "")
        instead = (
            f"; {other} came out, which nothing that went in gives without faults" if other else ""
        )
        yield end.violation(
            "P2",
            "no loss",
            f"{lost} messages never came out, such as {lost_one}{instead}."
            if lost > 1
            else f"1 message never came out: {lost_one}{instead}.",
            missing,
        )
    if Atom.NO_DUPLICATE in held and end.surplus:
        text, times = next(iter(end.surplus.items()))
        yield end.violation(
            "P3",
            "no duplicate",
            f"{_short(text)} came out {'once' if times == 1 else f'{times} times'} too often."
            if text in end.wanted
            else f"{_short(text)} came out, which nothing that went in gives without faults.",
            text,
        )
    late = out_of_order(end.got, end.wanted) if Atom.MONOTONIC in held and is_single else ""
    if late:
        yield end.violation(
            "P4",
            "monotonic",
            f"messages came out in another order than they went in, {_short(late)} too late.",
            late,
        )


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


# What came of a run, as a user's check sees it.

SHOWN = 3
FAR_TOO_OFTEN = 10
RUN = "run"
"""What a check looks at, where that is the run itself."""


@dataclass(frozen=True)
class RunOutcome:
    """One finished run. ``delivered``: what each sink has, in its order. ``dead``: how many dead letters there
    are. ``calls``: how often each stage was entered. ``letters``: the dead letters.
    ``looked_at``: what a check has asked for, of all this and of what is outside."""

    delivered: Mapping[str, Sequence[object]] = field(default_factory=dict[str, Sequence[object]])
    dead: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    outsides: tuple[Outside, ...] = ()
    letters: Sequence[Letter] = field(default=(), repr=False)
    looked_at: set[Look] = field(default_factory=set[Look], compare=False, repr=False)

    def __getattribute__(self, name: str) -> object:
        """What it has by this name. A check that asks for it has looked at it."""
        looked_at(RUN, name)
        return super().__getattribute__(name)

    def checked(
        self,
        world: World,
        check: Callable[[object], object],
        usual: Mapping[Effect, str],
        times: Mapping[Effect, int],
    ) -> Sequence[Violation]:
        """What a user's check says: nothing, or one violation of the property ``user``. ``usual``: what is done
        outside in each run without faults, and who asks for it; ``times``: how often in one of these."""
        with looking() as looks:
            why = self._refused(check)
        self.looked_at.update(looks)
        return (self._violation(world, check, why, usual, times),) if why else ()

    def _refused(self, check: Callable[[object], object]) -> str:
        """Why a check says no to it; empty where it doesn't."""
        try:
            said = finish(check(self), TurnCoroutines(lambda: 0, _never).wait)
        except AssertionError as error:
            return f"{str(error) or 'its assertion failed'}{_at(place_of(error))}"
        except Exception as error:  # noqa: BLE001 - a check that can't be made is no check that holds
            return f"it raised {type(error).__name__}: {error}{_at(place_of(error))}"
        is_held = said is None or bool(said)
        return "" if is_held else f"it gave {said!r}{_at(place_of_function(check))}"

    def judged_by(self, check: Callable[[object], object], look: Look) -> bool:
        """Whether a check would ever say no for the sake of something that it looks at: it is shown this run with
        nothing of that, and with far too much of it. ``look``: dead letters (``RUN``, "dead"), what a sink has
        (``RUN``, its name), or what was done outside."""
        return any(self._shown(check, look, times) for times in (0, FAR_TOO_OFTEN))

    def _shown(self, check: Callable[[object], object], look: Look, times: int) -> bool:
        name, what = look
        if look == (RUN, "dead"):
            shown = replace(self, dead=(self.dead or 1) * times, letters=[*self.letters] * times)
            return bool(shown._refused(check))
        if name == RUN:
            others = {end: [*messages] for end, messages in self.delivered.items()}
            shown = replace(self, delivered={**others, what: others[what] * times})
            return bool(shown._refused(check))
        with ExitStack() as held:
            for outside in (one for one in self.outsides if one.name == name):
                held.enter_context(outside.showing(what, times))
            each = min(times, 2)  # a double that is made anew in each life may be asked one by one
            return bool(replace(self, outsides=self.outsides * each)._refused(check))

    def as_lines(self) -> Iterator[str]:
        """What a check was given, in words: the beginning of it."""
        for name, messages in self.delivered.items():
            shown = ", ".join(_short(canonical(message)) for message in messages[:SHOWN])
            more = ", ..." if len(messages) > SHOWN else ""
            came = "1 message" if len(messages) == 1 else f"{len(messages)} messages"
            yield f'run.delivered["{name}"]: {came}{f": {shown}{more}" if shown else ""}'
        yield f"run.dead: {self.dead}"
        reasons = Counter(f"{one.error_type}: {one.error_text}" for one in self.letters)
        for reason, many in reasons.most_common(SHOWN):
            yield f"dead letters: {reason}, {so_often(many)}"
        yield f"run.calls: {dict(self.calls)}"
        for outside in self.outsides:
            done = [f"{action} {value!r}" for action, value in outside.done()]
            yield f"Outside {outside.name}: {', '.join(done[:SHOWN]) or 'nothing was done'}"

    def _violation(
        self,
        world: World,
        check: Callable[[object], object],
        why: str,
        usual: Mapping[Effect, str],
        times: Mapping[Effect, int],
    ) -> Violation:
        """It is explained by what is otherwise than without faults: what is not done first."""
        done = times_of(self.outsides)
        fewer = [one for one in times if one in usual and done[one] < times[one]]
        named = {one[:2] for one in fewer if not isinstance(one[2], Nth)}
        missing = [one for one in fewer if not isinstance(one[2], Nth) or one[:2] not in named]
        more = [one for one, often in done.items() if often > max(1, times.get(one, 0))]
        told = [
            *(_fewer(one, done[one], times[one], usual[one]) for one in missing),
            *(f"{one[1]} {one[2]!r} happened {_often(done[one])}" for one in more),
        ]
        last = len(world.rows) - 1
        name = getattr(check, "__name__", "check")
        called = "your check" if name == "<lambda>" else f"check {name}"
        said = f"{'; '.join(told[:3])}: " if told else ""
        sentence = f"{said}{called} does not hold ({why})."
        if missing:
            outside, action, value = missing[0]
            what = asked_for(action, value, usual[missing[0]])
            return Violation("user", called, last, sentence, end=outside, content=what)
        step = _step_of_repeat(world, more[0], times.get(more[0], 0)) if more else last
        return Violation("user", called, step, sentence)


def _fewer(effect: Effect, done: int, usual: int, who: str) -> str:
    outside, action, value = effect
    what = f"{outside} {action} {value!r}"
    if not done:
        return f"{what} was never done, as it is by {who} without faults"
    return f"{what} was done {_often(done)}, and {_often(usual)} without faults"


def asked_for(action: str, value: Hashable, who: str) -> str:
    """What a violation is about where something was not done outside."""
    return f"{who}: {action} {value!r}"


def _often(times: int) -> str:
    return "twice" if times == 2 else so_often(times)


def effects_of(outsides: Iterable[Outside]) -> dict[Effect, str]:
    """Effects outside of the run, and the stages that asked for them."""
    return {
        (outside.name, *effect): outside.asked_by.get(effect, "")
        for outside in outsides
        for effect in outside.done()
    }


def times_of(outsides: Sequence[Outside]) -> Counter[Effect]:
    """How often each effect was done outside of the run; that so much of an action was done counts once."""
    found = Counter[Effect](one for one in all_done(outsides) if isinstance(one[2], Nth))
    for outside in outsides:
        for (action, value), often in outside.how_often():
            found[outside.name, action, value] += often
    return found


@dataclass(frozen=True, slots=True)
class Nth:
    """In place of what an effect is of: that so much of its action was done. It is there in each run, also where
    what is done tells its key or the time, and so is never the same."""

    number: int

    def __repr__(self) -> str:
        return f"for the {ordinal(self.number)} time"


def all_done(outsides: Sequence[Outside]) -> dict[Effect, str]:
    """Effects outside of the run, and how many there are of each action; with the stages that asked for them. Each
    life of a process may have objects of its own for one thing outside."""
    found = effects_of(outsides)
    asked_by = {effect[:2]: who for effect, who in reversed(found.items())}
    totals = Counter[tuple[str, str]]()
    for outside in outsides:
        totals.update({(outside.name, action): times for action, times in outside.totals()})
    for look, times in totals.items():
        found |= {(*look, Nth(number + 1)): asked_by[look] for number in range(times)}
    return found


def so_many(effects: Iterable[Effect]) -> int:
    """How many these are: that there are so many of an action is told by the number as well as by the values."""
    named, numbers = Counter[Look](), Counter[Look]()
    for effect in effects:
        (numbers if isinstance(effect[2], Nth) else named)[effect[:2]] += 1
    return (named | numbers).total()


def done_without_key(outsides: Iterable[Outside]) -> Counter[tuple[str, Effect]]:
    """By the stages that did them: effects of messages that no key names, and how often they happened."""
    found = Counter[tuple[str, Effect]]()
    for outside in outsides:
        for (stage, _, action, value), calls in outside.done_for.items():
            found[stage, (outside.name, action, value)] += calls.total()
    return found


def done_again(outsides: Sequence[Outside], once: Once) -> Iterator[tuple[str, Effect, str]]:
    """Of these effects those that happened too often, and in several calls for one message: the stage, the effect,
    and where it was asked for. Each life of a process may have objects of its own for one thing outside."""
    calls: defaultdict[tuple[str, Effect], set[tuple[str, int]]] = defaultdict(set)
    for outside in outsides:
        for (stage, message, action, value), of_message in outside.done_for.items():
            calls[stage, (outside.name, action, value)] |= {(message, one) for one in of_message}
    for (stage, effect), times in done_without_key(outsides).items():
        messages = Counter(message for message, _ in calls[stage, effect])
        if times > once.get((stage, effect), times) and max(messages.values()) > 1:
            yield stage, effect, effects_of(outsides)[effect]


def slips_of(outsides: Iterable[Outside]) -> dict[str, tuple[str, str]]:
    """Mistakes in the keys of effects, in words, each with its effect."""
    return {text: what for outside in outsides for text, what in outside.slips.items()}


def _at(place: str) -> str:
    return f" at {place}" if place else ""


def _never(us: int | None) -> None:
    raise RuntimeError(f"a check looks at what has happened, and this one waits ({us})")


def _step_of_repeat(world: World, effect: Effect, usual: int) -> int:
    """The first time that it is done more often than without faults."""
    outside, action, value = effect
    wanted = f"{action} {value!r}, for the {ordinal(max(1, usual) + 1)} time"
    for row in world.rows:
        if (row.kind, row.node) == ("effect", outside) and wanted == facts_of(row).get("text"):
            return row.step
    return len(world.rows) - 1


def canonical(message: object) -> str:
    """A message as text that is the same for equal messages, in every process."""
    try:
        return json.dumps(message, sort_keys=True, separators=(",", ":"), default=_other)
    except (TypeError, ValueError):
        return as_text(message)


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """A text that names objects as Python does: where one lies in memory is another place in each process."""
    return _ADDRESS.sub("", text)


def _other(value: Any) -> str:
    is_set = type(value) in (set, frozenset)
    return as_text(value) if is_set else without_addresses(str(value))


def as_text(value: object) -> str:
    """``repr``, and the same in every process: without addresses, and with sets in order."""
    try:
        return _steady(value)
    except RecursionError:  # it contains itself
        return without_addresses(repr(value))


def _steady(value: Any) -> str:
    kind: Any = cast("object", type(value))
    if kind is dict:
        return "{" + ", ".join([f"{_steady(k)}: {_steady(v)}" for k, v in value.items()]) + "}"
    if kind is list:
        return "[" + ", ".join(map(_steady, value)) + "]"
    if kind is set and value:
        return "{" + ", ".join(sorted(map(_steady, value))) + "}"
    if kind is frozenset and value:
        return "frozenset({" + ", ".join(sorted(map(_steady, value))) + "})"
    return without_addresses(repr(value))


def members_of(message: object, about: About) -> Iterator[tuple[str, object]]:
    """What is in a batch, each with the key of its own identity, which stays the same in other company. A batch
    that came through a pipe stays as it is: its identity tells, with the place. What is no list is itself."""
    if not isinstance(message, list):
        yield about.key, message
        return
    parts = cast("list[object]", message)
    is_whole = len(about.company) == len(parts)
    keys = [one.key for one in about.company] if is_whole else []
    for place, part in enumerate(parts):
        yield keys[place] if is_whole else f"{about.key}[{place}]", part


def detail(facts: Mapping[str, object]) -> str:
    """Facts as rows carry them."""
    return as_detail(facts)
