"""Which message of a run a violation of a whole plan is about, what its stages answer for it without faults, and
which of them went by more than that message.

At the ends of a plan a violation knows a text: what did not come, or came too often. The functions alone, called
one after the other, say what that text was in each pipe on its way; by its digest the run tells where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.settings import facts_of
from surepipe.audit.trace import Kind, Row
from surepipe.pipelines.models.stages import Trying
from surepipe.pipelines.simulate.campaign import digests_in, quiet
from surepipe.pipelines.simulate.ends import Asking, Effect, Nth, asked_for
from surepipe.pipelines.simulate.plain import PARTS_MAX, Carried, Identities, Plain, Said
from surepipe.pipelines.simulate.reference import plainly, played, reference_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import About
from surepipe.simulation.options import Options
from surepipe.simulation.report.story import Numbers
from surepipe.simulation.report.words import (
    EFFECT_LOST,
    EFFECT_REPEATED,
    IDEMPOTENCY_KEY,
    brief_apart,
    differ,
)
from surepipe.simulation.results import Counterexample, RunResult


@dataclass(frozen=True, slots=True)
class _Place:
    """A message in a run: its pipe there, its identity, and its place among all."""

    pipe: str
    epoch: int
    seq: int
    position: int

    @property
    def about(self) -> About:
        """Who it is for the stages."""
        pipe, _, producer = self.pipe.partition("@")
        return About(pipe, self.epoch, self.seq, producer)


_Pointed: TypeAlias = tuple[_Place | None, int, str]
"""The message that a violation is about, the step that decides it, and why, if that is known here."""


class _Run:
    """The messages of one run, by what they are."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.name = name
        self.numbers = Numbers(rows)
        self.digests: dict[_Place, str] = {}
        for row in rows:
            for seq, digest in digests_in(row):
                if place := self.place(replace(row, seq=seq, count=1)):
                    self.digests.setdefault(place, digest)

    def place(self, row: Row) -> _Place | None:
        """Where the first message of a row stands."""
        found = self.numbers.places(row)
        return _Place(row.pipe, row.epoch, row.seq, found[0]) if found else None

    def holding(self, pipe: str, digest: str) -> list[_Place]:
        """All messages of a pipe that look like this, of each producer."""
        return [
            place
            for place, known in self.digests.items()
            if known == digest and place.pipe.partition("@")[0] == pipe
        ]

    @property
    def identities(self) -> Identities:
        """Who the messages are, by their pipe and how they look: what a stage makes of its message's id is no
        other answer than without faults where the id is the same."""
        found: dict[tuple[str, str], list[About]] = {}
        for place, digest in self.digests.items():
            found.setdefault((self.in_plan(place), digest), []).append(place.about)
        return found

    def in_plan(self, place: _Place) -> str:
        """The pipe of a message, as the plan calls it."""
        return place.pipe.partition("@")[0].removeprefix(f"{self.name}/")


def pointed(subject: PlanSubject, found: Counterexample) -> Counterexample:
    """The same with the message that it is about, where one can be named."""
    violation, result = found.violation, found.result
    messages = Options.of(result.script.options).messages
    run = _Run(subject.name, result.rows)
    with quiet(subject):
        plain = plainly(subject, Options(messages=messages), identities=run.identities)
        other = Options(seed=1, messages=messages)
        again = plainly(subject, other, later=True, identities=run.identities)
        veil = reference_of(subject, messages).veils.get(violation.end)
        plain.said = _said_without_faults(subject, plain, run, messages)
    subject.memory.reset()
    anyway = frozenset(_raised_anyway(plain, run, result))
    if violation.position:  # its row names the message
        return replace(found, raised_anyway=anyway)
    unknown = subject.plan.behind_batches()  # what a batch holds is another thing in each run
    plain.said = {
        key: {said: answer for said, answer in answers.items() if said[0] not in unknown}
        for key, answers in plain.said.items()
    }
    if veil is not None:  # what it is about was told without what differs
        plain.came = [replace(one, text=veil.over(one.text)) for one in plain.came]
    is_compared = veil is None and _is_other_at(violation.end, plain, again)
    varying = frozenset[str]() if is_compared else _varying(plain, again)
    of_all = {
        (one.pipe, one.epoch, one.seq): plain.said.get(one.about.key, {}) for one in run.digests
    }
    found = replace(found, varying=varying, raised_anyway=anyway, usual_of_all=of_all)
    place, step, why = (
        _with_an_effect(run, result, violation)
        or _without_an_effect(subject, plain, run, found)
        or (_in_stages(subject, plain, run, found), violation.step, "")
    )
    if place is None:
        return found
    carried = _carried(plain, run, place)
    return replace(
        found,
        violation=replace(
            violation,
            step=step,
            pipe=place.pipe,
            epoch=place.epoch,
            seq=place.seq,
            position=place.position,
            why=why,
        ),
        message=carried.text if carried else "",
        usual=dict(_usually(plain, run, place)),
    )


def _said_without_faults(
    subject: PlanSubject, plain: Plain, run: _Run, messages: int
) -> dict[str, Said]:
    """What stages answer when nothing goes wrong: in the run of the engine that ends are compared with, which may
    try a message again that fails in any case, and takes its time. What follows from the identity of a message is
    what functions alone make of that which it has here, and so is what is made of those that are handled at once:
    what they leave each other differs from run to run."""
    calm = Options(messages=messages)
    rows = played(subject, calm).rows
    there = _Run(subject.name, rows)
    answers: dict[str, Said] = {}
    for row, stage, piece, answer in _answers(rows):
        if place := there.place(row):
            answers.setdefault(place.about.key, {})[stage, piece] = answer
    by_hand = plainly(subject, calm, identities=there.identities)
    together = frozenset(_at_once(rows))
    found = dict(plain.said)
    for look, abouts in run.identities.items():
        for here, other in zip(abouts, there.identities.get(look, ()), strict=False):
            said, same = plain.said.get(here.key, {}), by_hand.said.get(other.key, {})
            told = {} if other.key in together else answers.get(other.key, {})
            steady = {one: told[one] for one in told if said.get(one) == same.get(one)}
            found[here.key] = {**said, **steady}
    return found


def _at_once(rows: Iterable[Row]) -> Iterator[str]:
    """The keys of the messages that stages of one process had at the same time as others."""
    inside: dict[tuple[str, int], dict[tuple[str, int, int], None]] = {}
    for row in rows:
        here = inside.setdefault((row.node, row.incarnation), {})
        message = row.pipe, row.epoch, row.seq
        if row.kind == Kind.CALLED:
            here[message] = None
            if len(here) > 1:
                yield from (_Place(*one, 0).about.key for one in here)
        elif row.kind in (Kind.RETURNED, Kind.RAISED):
            here.pop(message, None)


def _usually(
    plain: Plain, run: _Run, place: _Place
) -> Iterator[tuple[tuple[str, int, int], Mapping[tuple[str, str], str]]]:
    """What stages answer without faults for this message, and for those that come of the same one of a source."""
    origin = plain.origins.get(place.about.key)
    for one in dict.fromkeys([place, *run.digests]):
        if one == place or (origin and plain.origins.get(one.about.key) == origin):
            yield (one.pipe, one.epoch, one.seq), plain.said.get(one.about.key, {})


def _in_stages(
    subject: PlanSubject, plain: Plain, run: _Run, found: Counterexample
) -> _Place | None:
    is_done = found.violation.step < len(found.result.rows) - 1
    if found.violation.property == "user" and is_done:  # once more, for the message of that call
        return _called_again(subject, run, found)
    return (
        _not_done(plain, run, found.violation)
        or _by_content(subject, plain, run, found.violation)
        or _odd_answer(plain, run, found)
        or _called_again(subject, run, found)
    )


def _raised_anyway(plain: Plain, run: _Run, result: RunResult) -> Iterator[int]:
    """The steps at which a stage raises what it raises for that message without faults, too, or for another one
    that looks the same: one that is sent anew has another identity."""
    alike: dict[tuple[str, str], dict[str, str]] = {}
    for place, digest in run.digests.items():
        look = run.in_plan(place), digest
        alike.setdefault(look, {}).update(plain.refused.get(place.about.key, {}))
    for row in result.rows:
        if row.kind == Kind.RAISED and (failed := run.place(row)):
            usual = alike.get((run.in_plan(failed), run.digests.get(failed, "")), {})
            told = facts_of(row)
            if told.get("text") == usual.get(str(told.get("stage"))):
                yield row.step


def _is_other_at(end: str, plain: Plain, again: Plain) -> bool:
    """Whether what varies gets to this end: where that is compared, whoever varies has to answer for it."""
    return Counter(plain.arrived.get(end, ())) != Counter(again.arrived.get(end, ()))


def _varying(plain: Plain, again: Plain) -> frozenset[str]:
    """The stages that answer otherwise for the same message in another run without faults."""
    return frozenset(
        stage
        for carried, answers in plain.answers.items()
        for (stage, piece), answer in answers.items()
        if again.answers.get(carried, {}).get((stage, piece), answer) != answer
    )


def _with_an_effect(run: _Run, result: RunResult, violation: Violation) -> _Pointed | None:
    """For which message a stage asked for an effect with a wrong key, or did one once more, and at which row."""
    asked: Row | None = None
    for row in result.rows:
        if row.kind == Kind.CALLED and "stage" in facts_of(row):
            asked = row
        text = (
            str(facts_of(row).get("text", ""))
            if (row.kind, row.node) == ("effect", violation.end)
            else ""
        )
        is_it = bool(text) and text.startswith(violation.content)
        is_named = violation.name in (IDEMPOTENCY_KEY, EFFECT_REPEATED)
        if is_named and is_it and asked is not None:
            return run.place(asked), row.step, ""
    return None


def _not_done(plain: Plain, run: _Run, violation: Violation) -> _Place | None:
    """The message for which something is done outside that a check misses: in the last pipe on its way."""
    if violation.property != "user":
        return None
    for effect, handled in plain.during.items():
        outside, action, value = effect
        what = asked_for(action, value, plain.effects.get(effect, ""))
        if (outside, what) == (violation.end, violation.content):
            places = [
                place
                for place in run.digests
                if plain.origins.get(place.about.key) == handled.of[:2]
            ]
            return places[-1] if places else None
    return None


def _by_content(
    subject: PlanSubject, plain: Plain, run: _Run, violation: Violation
) -> _Place | None:
    """In the last pipe on its way that has it just once: what came after that pipe did not see to it."""
    ways = [
        came.way
        for came in plain.came
        if (came.end, came.text) == (violation.end, violation.content)
    ]
    if len({way[:1] for way in ways}) == len(plain.came) > 1:
        return None  # all of them look like this
    for way in ways:
        for carried in reversed(way):
            places = run.holding(f"{subject.name}/{carried.pipe}", carried.digest)
            if len(places) == 1 or (places and len(ways) > 1):
                return places[0]
    return None


def _odd_answer(plain: Plain, run: _Run, found: Counterexample) -> _Place | None:
    """The first message for which a stage answers something else than without faults, or than before."""
    for row, stage, piece, answer in _answers(found.result.rows):
        place = run.place(row)
        said = plain.said.get(place.about.key, {}) if place else {}
        usual = said.get((stage, piece))
        if usual is not None and differ(answer, usual, varies=stage in found.varying):
            return place
    return None


def _called_again(subject: PlanSubject, run: _Run, found: Counterexample) -> _Place | None:
    """The message of the last call before the step at which it broke; else the first for which a stage failed,
    or that became a dead letter, and does not without faults; or that was tried again. What keeps a run from its
    end is none that was set aside, and one that was but tried again keeps nobody."""
    result, violation = found.result, found.violation
    last = len(result.rows) - 1
    called = [row for row in result.rows if row.kind == Kind.CALLED and row.step <= violation.step]
    if violation.step < last and called:
        return run.place(called[-1])
    failed = [
        row
        for row in result.rows
        if row.kind == Kind.RAISED and "fault" not in facts_of(row)
        if row.step not in found.raised_anyway
    ]
    anyway = {run.place(row) for row in result.rows if row.step in found.raised_anyway}
    dead = [row for row in result.rows if row.kind == Kind.DEAD and run.place(row) not in anyway]
    times = Counter((row.pipe, row.epoch, row.seq, row.detail) for row in called)
    again = [
        row
        for row in called
        if times[row.pipe, row.epoch, row.seq, row.detail] > 1 and run.place(row) not in anyway
    ]
    if violation.property == "P12":
        aside = {run.place(row) for row in dead}
        waiting = [row for row in result.rows if _is_waited_for(subject, row)]
        failed = [row for row in (*failed, *waiting) if run.place(row) not in aside]
        dead, again = [], []
    return next((place for row in (*failed, *dead, *again) if (place := run.place(row))), None)


def _is_waited_for(subject: PlanSubject, row: Row) -> bool:
    """Whether a stage raised that is tried for ever, with or without faults."""
    if row.kind != Kind.RAISED:
        return False
    told = facts_of(row)
    if "stage" not in told or "fault" in told:
        return False
    part = subject.plan.part(str(told["stage"]))
    return not (isinstance(part, Trying) and part.dead_letter)


def _answers(rows: Sequence[Row]) -> Iterator[tuple[Row, str, str, str]]:
    """Each with its stage, and the part of the message that it is for."""
    for row in rows:
        told: Mapping[str, object] = facts_of(row) if row.kind == Kind.RETURNED else {}
        if told:
            stage, piece, answer = (str(told.get(name, "")) for name in ("stage", "part", "answer"))
            yield row, stage, piece, answer


def _carried(plain: Plain, run: _Run, place: _Place) -> Carried | None:
    pipe, digest = run.in_plan(place), run.digests.get(place)
    return next(
        (one for one in plain.answers if (one.pipe, one.digest) == (pipe, digest)), None
    ) or next(
        (
            one
            for came in plain.came
            for one in came.way
            if (one.pipe, one.digest) == (pipe, digest)
        ),
        None,
    )


# For which message something outside was never done, and what became of it.


@dataclass
class _Turn:
    """A call of a stage in a run: how it ended, what was done outside meanwhile, and the end of its process."""

    stage: str
    place: _Place | None
    began: Row
    ended: Row | None = None
    crash: Row | None = None
    done: list[Row] = field(default_factory=list[Row])

    @property
    def is_through(self) -> bool:
        """Whether the stage has answered."""
        return self.ended is not None and self.ended.kind == Kind.RETURNED

    @property
    def broke_off_at(self) -> Row | None:
        """Where the stage was kept from an answer."""
        return None if self.is_through else self.ended or self.crash


def _turns(run: _Run, rows: Sequence[Row]) -> list[_Turn]:
    """Whose an effect is can't be told of calls that go on at once."""
    found: list[_Turn] = []
    going: dict[tuple[object, ...], _Turn] = {}
    for row in rows:
        told = facts_of(row)
        call = row.node, row.pipe, row.epoch, row.seq, told.get("stage"), told.get("part")
        if row.kind == Kind.CALLED and "stage" in told:
            going[call] = _Turn(str(told["stage"]), run.place(row), row)
            found.append(going[call])
        elif row.kind in (Kind.RETURNED, Kind.RAISED) and call in going:
            going.pop(call).ended = row
        elif row.kind == "effect" and len(going) == 1:
            next(iter(going.values())).done.append(row)
        elif row.kind == Kind.CRASH:
            for turn in found:
                if turn.began.node == row.node and turn.crash is None:
                    turn.crash = row
            going = {one: turn for one, turn in going.items() if turn.crash is None}
    return found


def _without_an_effect(
    subject: PlanSubject, plain: Plain, run: _Run, found: Counterexample
) -> _Pointed | None:
    """The message for which something was never done outside, and where that was decided."""
    violation = found.violation
    missing = next(
        (
            effect
            for effect, who in plain.effects.items()
            if effect[0] == violation.end
            and asked_for(effect[1], effect[2], who) == violation.content
        ),
        None,
    )
    if violation.name != EFFECT_LOST or missing is None:
        return None
    options = Options(messages=Options.of(found.result.script.options).messages)
    with quiet(subject):
        alone = plainly(subject, options, forgetting=True, identities=run.identities)
    subject.memory.reset()
    return _Lost(plain, alone, run, found, missing).told()


class _Lost:
    """An effect that a run lacks, or that it has not so often; ``alone``: the run without faults in which nothing
    is known of messages before."""

    def __init__(
        self, plain: Plain, alone: Plain, run: _Run, found: Counterexample, missing: Effect
    ) -> None:
        self._plain, self._run, self._missing = plain, run, missing
        self._look, self._is_any = missing[:2], isinstance(missing[2], Nth)
        self._told = f"{missing[1]} {missing[2]!r}"
        stage = found.violation.content.partition(" (")[0]
        place = found.places.get(stage)
        self._stage, self._who = stage, f"{stage} ({place})" if place else stage
        self._turns = [turn for turn in _turns(run, found.result.rows) if turn.stage == stage]
        self._of_itself = {
            asking.origin
            for effect, askings in alone.asking_for.items()
            if effect[:2] == self._look
            for asking in askings
        }
        self._last = found.violation.step
        dead = (row for row in found.result.rows if row.kind == Kind.DEAD)
        self._set_aside = {run.place(row) for row in dead}

    def told(self) -> _Pointed | None:
        """Where its message does it by itself that one is followed, else the first of those that were put off."""
        place, is_of_itself = next(self._asking(), (None, True))
        if not is_of_itself and (off := self._put_off()) is not None:
            return off
        return None if place is None else self._at(place)

    def _asking(self) -> Iterator[tuple[_Place, bool]]:
        """The messages for which it is asked without faults, and here not done, but for dead letters; each with
        whether that is asked for it alone, too."""
        plain = self._plain
        asked = [
            asking
            for effect, askings in plain.asking_for.items()
            for asking in askings
            if (plain.asked[effect].partition(" ")[0], effect[:2]) == (self._stage, self._look)
            and (self._is_any or effect == self._missing)
        ]
        times = Counter(asking.origin for asking in asked)
        for asking in asked:
            place = self._place(asking)
            if place is None or place in self._set_aside:
                continue
            if not self._has_done(place, times[asking.origin]):
                yield place, asking.origin in self._of_itself

    def _place(self, asking: Asking) -> _Place | None:
        """Where a message of a source is in the pipe before the stage."""
        pipe = asking.made_of[-1].place
        of_pipe = (place for place in self._run.digests if self._run.in_plan(place) == pipe)
        known = self._plain.origins
        return next((one for one in of_pipe if known.get(one.about.key) == asking.origin), None)

    def _has_done(self, place: _Place, times: int) -> bool:
        """Of so many of an action each is meant: what they are of may be another thing in each run."""
        mine = (turn for turn in self._turns if turn.place == place)
        done = [_effect_of(row) for turn in mine for row in self._of_action(turn)]
        return len(done) >= times if self._is_any else self._told in done

    def _of_action(self, turn: _Turn) -> Iterator[Row]:
        outside, action = self._look
        return (
            row
            for row in turn.done
            if row.node == outside and _effect_of(row).startswith(f"{action} ")
        )

    def _put_off(self) -> _Pointed | None:
        """Whatever the stage was through with since it did something of this sort is gone with its process, but
        for what is tried again."""
        for crash in {turn.crash.step: turn.crash for turn in self._turns if turn.crash}.values():
            waiting: list[_Turn] = []
            for turn in (one for one in self._turns if one.crash is crash):
                waiting = [] if any(self._of_action(turn)) else [*waiting, turn]
            later = {one.place for one in self._turns if one.began.step > crash.step}
            for turn in waiting:
                if turn.is_through and turn.place is not None and turn.place not in later:
                    name = f"#{turn.place.position}"
                    why = f"the process ends, and what {self._who} has put off is gone, of {name} too."
                    return turn.place, crash.step, why
        return None

    def _at(self, place: _Place) -> _Pointed:
        """What the stage does instead for this message; else where it was kept from that; else where it is through
        without it."""
        turns, name = [turn for turn in self._turns if turn.place == place], f"#{place.position}"
        usual = {f"{action} {value!r}" for _, action, value in self._plain.effects}
        done = () if self._is_any else (row for turn in turns for row in self._of_action(turn))
        for row in done:
            if (other := _effect_of(row)) not in usual:
                return place, row.step, f"{self._who} does {row.node} {other} for {name} instead."
        through = next((turn for turn in reversed(turns) if turn.is_through), None)
        if through is None or through.ended is None:
            return place, self._last, ""
        for turn in turns:
            if (end := turn.broke_off_at) is not None and end.step < through.began.step:
                return place, end.step, self._broken_off(turn, end, name)
        why = f"{self._who} is through with {name} and has not done that."
        return place, through.ended.step, why

    def _broken_off(self, turn: _Turn, end: Row, name: str) -> str:
        """It is done at no other attempt: what the stage has noted by then may be why."""
        noted = [f"{row.node} {_effect_of(row)}" for row in turn.done]
        when = f"between {noted[-1]} and that" if noted else "before that"
        what = "the process ends while" if end.kind == Kind.CRASH else ""
        does = "handles" if what else "fails for"
        return (
            f"{what} {self._who} {does} {name}, {when}, which {self._stage} leaves out when {name} is tried "
            "again."
        ).strip()


def _effect_of(row: Row) -> str:
    """What was done, however often; nothing where its key was known."""
    text = str(facts_of(row).get("text", ""))
    is_done = not text.endswith(": the key is known, nothing is done")
    return text.partition(", for the ")[0] if is_done else ""


# Which stages went by more than their message.


_Met: TypeAlias = tuple[tuple[str, str, str], ...]
"""What a stage goes by: of each stage before it, for which piece of the same message it has answered, and what, as
far as that is to be told apart."""


@dataclass(frozen=True, slots=True)
class _Answer:
    row: Row
    stage: str
    piece: str
    text: str
    met: _Met


def odd_answers(subject: PlanSubject, example: Counterexample) -> Iterator[tuple[Row, str, str]]:
    """Stages that answered in two ways for one message, or otherwise than without faults; and how they did.

    Where a stage before it has made two messages of one, only that one is named. What a batch holds is not known
    of a run, so nothing is said of the stages behind one.
    """
    unknown = subject.plan.behind_batches()
    numbers = Numbers(example.result.rows)
    by_message: dict[tuple[str, str, int, int, str], list[_Answer]] = {}
    for one in _answers_met(subject, example):
        if one.stage not in unknown:
            of = (one.stage, one.row.pipe, one.row.epoch, one.row.seq, one.piece)
            by_message.setdefault(of, []).append(one)
    for answers in by_message.values():
        first, varies = answers[0], answers[0].stage in example.varying
        place = example.places.get(first.stage)
        who = f"{first.stage} ({place})" if place else first.stage
        message = numbers.label(first.row)
        if first.row.pipe != example.violation.pipe:
            message += f" of {first.row.pipe.partition('@')[0].partition('/')[2]}"
        usual = _usual(first, example)
        if pair := _two_ways(answers, varies=varies):
            told = " and then ".join(brief_apart(*pair))
            what = f"{who} answered {told} for {message}, which was tried again"
            yield first.row, first.stage, what
        elif usual is not None and differ(first.text, usual, varies=varies):
            now, then = brief_apart(first.text, usual)
            what = f"{who} answered {now} for {message}, and {then} without faults"
            yield first.row, first.stage, what


def drawn_anew(subject: PlanSubject, example: Counterexample) -> Iterator[str]:
    """The first stage on the way of a message that gave it another answer when it was tried again, where these
    differ between runs without faults too, by chance or by the time. Those behind it only pass that on."""
    numbers, given = Numbers(example.result.rows), dict[tuple[str, ...], str]()
    order = [stage.name for stage in subject.plan.stages]
    found: dict[str, str] = {}
    for row, stage, piece, text in _answers(example.result.rows):
        of = (stage, row.pipe, str(row.epoch), str(row.seq), piece)
        before = given.setdefault(of, text)
        if stage in example.varying and before != text:
            place = example.places.get(stage)
            told = " and then ".join(brief_apart(before, text))
            who = f"{stage} ({place})" if place else stage
            found.setdefault(
                stage, f"{who} answered {told} for {numbers.label(row)}, which was tried again"
            )
    behind = {other for stage in found for other in subject.plan.behind(stage)}
    yield from (found[stage] for stage in order if stage in found and stage not in behind)


def _answers_met(subject: PlanSubject, example: Counterexample) -> Iterator[_Answer]:
    """Each answer of a stage, with those that it goes by: the last ones in the same life of its process."""
    after = {stage.name: subject.plan.behind(stage.name) for stage in subject.plan.stages}
    known: dict[tuple[str, int, str, int, int], dict[tuple[str, str], str]] = {}
    for row, stage, piece, text in _answers(example.result.rows):
        here = known.setdefault((row.node, row.incarnation, row.pipe, row.epoch, row.seq), {})
        met = (
            (giver, whole, _apart(answer, giver, example))
            for (giver, whole), answer in here.items()
            if stage in after.get(giver, ()) and _is_piece_of(piece, whole)
        )
        yield _Answer(row, stage, piece, text, tuple(sorted(met)))
        here[stage, piece] = text


def _apart(answer: str, stage: str, example: Counterexample) -> str:
    """The same text for answers that are not to be told apart (``differ``)."""
    return str(differ(answer, "None", varies=True)) if stage in example.varying else answer


def _is_piece_of(piece: str, whole: str) -> bool:
    """Whether one is the other, or what stages that give several have made of it (``About.piece``)."""
    part, _, way = piece.partition("+")
    other, _, before = whole.partition("+")
    number, wanted = int(part or 0), int(other or 0)
    while number > wanted:
        number //= PARTS_MAX
    return number == wanted and way.startswith(before)


def _two_ways(answers: Sequence[_Answer], *, varies: bool) -> tuple[str, str] | None:
    """The first two answers that differ though what was met does not."""
    first: dict[_Met, str] = {}
    for one in answers:
        before = first.setdefault(one.met, one.text)
        if differ(before, one.text, varies=varies):
            return before, one.text
    return None


def _usual(answer: _Answer, example: Counterexample) -> str | None:
    """What the stage answers without faults, where it meets the same then; None where that is not known."""
    row = answer.row
    usual = example.usual.get((row.pipe, row.epoch, row.seq), {})
    met = [
        (stage, piece, _apart(usual.get((stage, piece), ""), stage, example))
        for stage, piece, _ in answer.met
    ]
    return usual.get((answer.stage, answer.piece)) if [*answer.met] == met else None
