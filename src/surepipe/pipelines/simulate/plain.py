"""What comes of messages when a plan's functions are called one after the other: no pipe, no engine, no fault.

What simulated runs have to reach is taken from a run of the engine without faults. What the engine does wrong in
every run it does wrong there too, so that run is itself held against this one, which shares nothing with it but
the user's functions and the codecs.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from surepipe.actors.codecs import AutoCodec, Codec, choose_codec
from surepipe.audit.findings import Violation
from surepipe.core.store_requests import Transaction
from surepipe.pipelines.calling import Entry, entry_of, require_answer, told_of
from surepipe.pipelines.engine_limits import home_of, key_words
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import BookRoutePart, PipePart
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    PythonSink,
    StagePart,
    StreamSink,
)
from surepipe.pipelines.run.flow import is_met_twice, on_branch
from surepipe.pipelines.simulate.ends import (
    Asking,
    Effect,
    Original,
    all_done,
    canonical,
    effects_of,
    members_of,
    slips_of,
    without_addresses,
)
from surepipe.pipelines.simulate.functions import (
    Calls,
    Function,
    VirtualClock,
    built,
    short,
)
from surepipe.pipelines.simulate.veils import values_in
from surepipe.pipelines.stages import About, Context, StageCall
from surepipe.pipelines.users_code import place_of_function
from surepipe.pipes.stack.boundary import Boundary
from surepipe.queues.book import Cost, Done, Later, Rejected, TooHeavy
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.stores import transaction_of
from surepipe.simulation.outside import Look, Outside, key_advice, looking, outsides_of_run
from surepipe.simulation.promises import Promise
from surepipe.simulation.report.words import brief, brief_apart
from surepipe.simulation.timeline import digest_of
from surepipe.simulation.world import Deployment, World

if TYPE_CHECKING:
    from surepipe.pipelines.simulate.subject import PlanSubject


T = TypeVar("T")
Keys: TypeAlias = dict[tuple[str, str], dict[str, dict[str, None]]]
"""Of each pipe, and the function that tells the keys of its messages: of each of these, as text, all that were
told."""
OfAction: TypeAlias = tuple[str, str, Look]
"""A stage, a message, and an action on something outside."""
OfMessage: TypeAlias = tuple[str, tuple[str, int]]
"""A stage, and a message of a source by its place there."""
Identities: TypeAlias = Mapping[tuple[str, str], Sequence[About]]
Said: TypeAlias = dict[tuple[str, str], str]
"""What each stage answered for a message, or for what was made of it (``About.piece``), by both."""
NOBODY = -1
"""The epoch of a message that the other run, whose identities are known, does not have."""
GAP_US = 1_000_000
PARTS_MAX = 1 << 20
ATTEMPT = "context.attempt"
_FOR_JSON = (
    ". Give what JSON has: isoformat() of a time, str() of a uuid or Decimal, lists and mappings"
)
_FOR_CSV = ". Give a mapping with just these fields, or name others (columns: of the sink)"
LATER_MAX = 100
"""How often a stage is asked again that says ``Later``."""


@dataclass
class Passage:
    """A stage, or a sink with a function: how many messages came to it, and what became of them there."""

    came: int = 0
    left_out: int = 0
    failed: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """A message in a pipe: its digest there, and what it is as text."""

    pipe: str
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Came:
    """A message at an end, and the pipes on its way, the last one last."""

    end: str
    text: str
    way: tuple[Carried, ...]
    key: str | None = None
    """of the last book that it came through"""
    made_of: tuple[Original, ...] = ()
    """the message of its source, and those of the pipes on its way"""
    origin: tuple[str, int] = ("", 0)
    """that source, and the place there"""


@dataclass(frozen=True, slots=True)
class Handled:
    """A message that a stage was called with: what it is as text, and of which message of which source it came, as
    the how-manieth for that stage."""

    text: str
    of: tuple[str, int, int]

    def is_other_than(self, other: Handled) -> bool:
        """Two messages may look alike, and one that holds the time looks otherwise in each run."""
        return self.text != other.text and self.of != other.of


@dataclass(frozen=True, slots=True)
class OfEffect:
    """What a sentence about an effect is about: the stage that does it, and how a check would ask for it."""

    stage: str
    look: Look


@dataclass
class _Given:
    """A message of a source, by its place there: what is made of it, what of that comes to an end, and how often
    each stage was called for it."""

    origin: tuple[str, int] = ("", 0)
    number: int = 0
    pending: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    begun: list[Original] = field(default_factory=list[Original])
    calls: Counter[str] = field(default_factory=Counter[str])
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """A message that waits in its pipe for those behind it, and all that is known of it."""

    message: object
    about: About
    of: _Given
    way: tuple[Carried, ...]
    made_of: tuple[Original, ...]
    above: str | None
    """its key in the last pipe before that has keys"""
    key: str | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function that came to its end, and what it gave."""

    part: StagePart | PythonSink
    entry: Entry
    about: About
    message: object
    given: object


class _SaidOtherwise(Exception):
    """A stage behind a book has ended its message: it goes no further there."""


@dataclass
class Plain:
    """What came of all messages.

    ``arrived``: at each end (a sink, or a stage that nothing follows), but for messages of which some part failed:
    how much of those gets through is for the engine to say. ``unsure`` are the ends that may have some of it.
    """

    arrived: dict[str, list[str]]
    unsure: set[str] = field(default_factory=set[str])
    passages: dict[str, Passage] = field(default_factory=dict[str, Passage])
    of_use: Counter[str] = field(default_factory=Counter[str])
    """of each source: messages of which something came to an end, or to the dead letters"""
    by_chance: set[str] = field(default_factory=set[str])
    """parts whose functions have drawn a number"""
    anew: set[str] = field(default_factory=set[str])
    """those of them that did so otherwise than from their context: another number at each attempt"""
    told: defaultdict[OfMessage, set[str]] = field(default_factory=lambda: defaultdict(set[str]))
    """of each stage and message of a source: the values in what it answered for that"""
    told_again: defaultdict[OfMessage, set[str]] = field(
        default_factory=lambda: defaultdict(set[str])
    )
    """the same of second attempts"""
    came: list[Came] = field(default_factory=list[Came])
    whole: set[Original] = field(default_factory=set[Original])
    """messages of sources and pipes, if no part failed of what their source gave"""
    failed: set[Original] = field(default_factory=set[Original])
    """the others"""
    given: Counter[tuple[str, int, str]] = field(default_factory=Counter[tuple[str, int, str]])
    """of each source and place in it: how many messages came to each end for the message there"""
    answers: dict[Carried, Said] = field(default_factory=dict[Carried, Said])
    """of each message that a pipe handed over: what stages answered for it"""
    slips: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """what is wrong with the keys of effects outside, in words, and which effect that is"""
    keyless: dict[str, OfEffect] = field(default_factory=dict[str, "OfEffect"])
    """sentences about effects that happened once more when their message was tried again, with their stages"""
    unnamed: dict[str, OfEffect] = field(default_factory=dict[str, "OfEffect"])
    """the same about all that have no key"""
    sharing: Mapping[str, OfEffect] = field(default_factory=dict[str, "OfEffect"])
    """the same about effects that happened once for several messages, as these share a key"""
    retold: dict[str, tuple[str, object, object, object]] = field(
        default_factory=dict[str, tuple[str, object, object, object]]
    )
    """of each stage that answers otherwise when a message is tried again: where it is written, the first such
    message, and both answers"""
    effects: dict[Effect, str] = field(default_factory=dict[Effect, str])
    """what was done outside, and who asked for it"""
    asked: dict[Effect, str] = field(default_factory=dict[Effect, str])
    """the same of all that was asked for, done or not"""
    keys: dict[tuple[str, Effect], set[str]] = field(
        default_factory=dict[tuple[str, Effect], set[str]]
    )
    """of each stage and effect, its keys"""
    keys_of: dict[OfAction, dict[str, Effect]] = field(
        default_factory=dict["OfAction", "dict[str, Effect]"]
    )
    """of each stage, message and action, the keys that were given, each with the first effect that had it"""
    during: dict[Effect, Handled] = field(default_factory=dict[Effect, Handled])
    """of each effect that was asked for once: the message that was handled then"""
    asking_for: dict[Effect, list[Asking]] = field(default_factory=dict[Effect, "list[Asking]"])
    asked_again: dict[Effect, list[Asking]] = field(default_factory=dict[Effect, "list[Asking]"])
    """the same, by second attempts"""
    """of each effect: for what it was asked for, each time"""
    identities: dict[tuple[str, str], list[About]] = field(
        default_factory=dict[tuple[str, str], "list[About]"]
    )
    """of messages, by their pipe and digest, in order: who they are"""
    said: dict[str, Said] = field(default_factory=dict[str, Said])
    """of each message, by the key of its identity: what stages answered for it"""
    origins: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """of each message, by that key: the source that it comes of, and its place there"""
    refused: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """the same of what each stage raised for it"""
    asking: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """of each stage: what it asks for beside its message, ``ATTEMPT`` or the names of what is outside"""
    reordered: dict[str, tuple[object, object]] = field(
        default_factory=dict[str, tuple[object, object]]
    )
    """of each stage that gave the parts of a list in another order: that list, and what it gave"""
    lane_keys: Keys = field(default_factory=dict[tuple[str, str], "dict[str, dict[str, None]]"])


@dataclass(frozen=True)
class PlainSubject:
    """A plan to be run like this.

    ``backwards``: messages come in another order, under other identities, and at other times. What an end has both
    times follows from the messages alone. ``twice``: functions are called once more for each message, later, as a
    second attempt that nobody remembers. ``identities``: who messages are in some other run, by their pipe and
    digest, in order; what follows from an identity is then what it is there. ``batches``: how many messages fall
    into a batch, if it may have so many. ``by_key``: of other orders, one that the plan allows: messages of one
    source keep theirs as far as pipes do, keys change places where there are lanes or a book, and sources do.
    ``afterwards``: functions are called once more for each message when all are through, as after a crash that
    brings it again. ``forgetting``: each message comes to a process that knows nothing of those before.
    ``without``: messages that do not come, by their source and place there. ``strange``: where it is not 0,
    messages have identities that no run of another number gives. ``attempt``: what stages are told that it is.
    """

    of: PlanSubject
    backwards: bool = False
    twice: bool = False
    batches: int = 1
    by_key: bool = False
    afterwards: bool = False
    forgetting: bool = False
    identities: Identities = field(default_factory=dict[tuple[str, str], Sequence[About]])
    strange: int = 0
    without: frozenset[tuple[str, int]] = frozenset()
    attempt: int = 1

    @property
    def name(self) -> str:
        """The plan's."""
        return self.of.name

    @property
    def promise(self) -> Promise:
        """The plan's."""
        return self.of.promise

    def facts(self) -> Mapping[str, object]:
        """None: nobody judges it."""
        return {}

    def deployment(self) -> PlainRun:
        self.of.memory.reset()
        return PlainRun(self)


class PlainRun(Deployment):
    """One run, as the program of the only node of a world: functions have virtual time and chance there."""

    def __init__(self, how: PlainSubject) -> None:
        subject = how.of
        self.found = Plain({end.name: [] for end in subject.plan.ends})
        self._subject = subject
        self._plan = subject.plan
        self._backwards = how.backwards
        self._by_key = how.by_key
        self._twice = how.twice
        self._afterwards = how.afterwards
        self._forgetting = how.forgetting
        self._through_it: list[_Call] = []
        self._batches = how.batches
        self._without = how.without
        self._attempt = how.attempt
        self._waiting: dict[str, list[tuple[object, About]]] = {}
        """Of each batch that has begun: what is in it."""
        self._functions = subject.functions()
        self._entries: dict[str, Entry] = {}
        self._telling: dict[str, Function] = {}
        self._codecs: dict[str, Codec] = {}
        self._columns: dict[str, tuple[str, ...]] = {}
        self._numbers: Counter[str] = Counter()
        self._strange = how.strange
        self._known = {looks: iter(abouts) for looks, abouts in how.identities.items()}
        self._given: list[_Given] = []
        self._it = _Given()
        self._held: dict[str, list[_Held]] = {}
        """By pipe."""
        self._way: tuple[Carried, ...] = ()
        self._made_of: tuple[Original, ...] = ()
        self._alike: Counter[tuple[str, str]] = Counter()
        self._key: str | None = None
        self._blocked: set[tuple[str, str]] = set()
        self._giver = ""
        self._texts: dict[tuple[str, str], str] = {}
        """By stage and message: that as text."""

    def begin(self, world: World) -> None:
        """One node, whatever the plan's are."""
        world.of_batches = self._plan.behind_batches()
        world.add_node("plain", self._run, sends=False, receives=False)

    def end(self, world: World) -> Sequence[Violation]:
        """Nothing is judged."""
        self._sum_up()
        for key in world.chances:
            self.found.anew.add(key.removeprefix("stage/").rsplit(" ", 2)[0])
        self.found.by_chance |= self.found.anew
        self.found.slips = slips_of(world.outsides)
        for outside in world.outsides:
            self.found.keyless |= _of_effects(outside, outside.keyless)
            self.found.unnamed |= _of_effects(outside, outside.unnamed)
        self.found.sharing = dict(self._sharing(world.outsides))
        self.found.effects = all_done(world.outsides)
        for outside in world.outsides:
            for effect, times in outside.asked.items():
                self.found.asked[outside.name, *effect] = outside.asked_by[effect]
                if times > 1:
                    self.found.during.pop((outside.name, *effect), None)
            for (stage, action), named in outside.named.items():
                for (value, key), messages in named.items():
                    look, named_so = (outside.name, action), (outside.name, action, value)
                    self.found.keys.setdefault((stage, named_so), set()).add(key)
                    for message in messages:
                        known = self.found.keys_of.setdefault((stage, message, look), {})
                        known.setdefault(key, named_so)
        world.outcome = self.found
        return ()

    def _sharing(self, outsides: Iterable[Outside]) -> Iterator[tuple[str, OfEffect]]:
        """Of each stage and action the first key that messages share which differ: all but the first of them do
        nothing. Where each message asks for one and the same effect, once is meant."""
        for outside in outsides:
            for (stage, action), named in outside.named.items():
                for (value, key), messages in named.items() if len(named) > 1 else ():
                    texts = dict.fromkeys(self._texts.get((stage, one), "") for one in messages)
                    if len(texts) > 1:
                        who = outside.asked_by[action, value]
                        what = f"{who} does {outside.name} {action} {value!r} with the key {brief(key)}"
                        advice = key_advice(
                            stage in self._plan.behind_batches(),
                            "give a key that names one message",
                        )
                        told = _shared(what, list(texts), advice)
                        yield told, OfEffect(stage, (outside.name, action))
                        break

    def _run(self, life: Life) -> None:
        self._life = life
        self._calls = Calls(life, _unheard)
        for source in self._in_turn(self._plan.sources):
            messages = self._subject.messages[source.name][: life.world.options.messages]
            rows = [
                row for row in enumerate(messages) if (source.name, row[0]) not in self._without
            ]
            for place, message in rows if self._by_key else self._in_turn(rows):
                if self._backwards:
                    life.sleep(GAP_US)
                self._give(source.name, place, deepcopy(message))
        for part in self._plan.order:
            for held in _keys_in_turn(self._held.pop(part.name, ())):
                life.sleep(GAP_US)
                self._release(cast("PipePart", part), held)
        while self._waiting:
            with suppress(Exception):  # as in _give
                self._give_batch(next(iter(self._waiting)))
        for call in self._through_it:
            self._call_again(call)

    def _in_turn(self, items: Sequence[T]) -> Iterable[T]:
        return reversed(items) if self._backwards else items

    # Where a message goes.

    def _give(self, source: str, place: int, message: object) -> None:
        if self._forgetting:
            self._subject.memory.reset()
            self._entries.clear()
        self._it, self._way = _Given((source, place), len(self._given)), ()
        self._given.append(self._it)
        self._made_of = (self._original(source, _digest_in_letter(message)),)
        try:
            self._pass_on(source, message, self._identity(source))
        except Exception:  # noqa: BLE001 - of a function, or a codec: it is tried again, or becomes a dead letter
            self._it.has_failed = True

    def _release(self, pipe: PipePart, held: _Held) -> None:
        self._it, self._way, self._made_of, self._key = held.of, held.way, held.made_of, held.above
        try:
            self._hand_over(pipe, held.message, held.about)
        except Exception:  # noqa: BLE001 - as in _give
            self._it.has_failed = True
        self._key = None

    def _sum_up(self) -> None:
        """What came of each message of a source."""
        found = self.found
        for one in self._given:
            source, place = one.origin
            found.of_use[source] += one.has_failed or bool(one.pending)
            if one.has_failed:
                found.unsure |= self._ends_behind(source)
                found.failed.update(one.begun)
                continue
            found.whole.update(one.begun)
            for end, text in one.pending:
                found.arrived[end].append(text)
                found.given[source, place, end] += 1

    def _pass_on(self, name: str, message: object, about: About) -> None:
        takers = self._plan.takers(name)
        giver = self._giver if self._lets_pass(name) else name
        for taker in takers:
            is_met = is_met_twice(self._plan, self._in_plan(about), taker)
            # A function that stands beside others has a copy, as it has in a run.
            is_own = len(takers) > 1 and isinstance(taker, StagePart | PythonSink)
            own = deepcopy(message) if is_own else message
            self._giver = giver
            self._into(taker, own, on_branch(about, name) if is_met else about)

    def _into(self, part: Node, message: object, about: About) -> None:
        if isinstance(part, PipePart):
            codec = self._codec(part)
            payload = self._taken(part.name, message, codec.encode)
            carried, before = codec.decode(payload), (self._way, self._made_of)
            digest = digest_of(payload)
            self._way = *self._way, Carried(part.name, digest, canonical(message))
            self._made_of = *self._made_of, self._original(part.name, digest)
            known = next(self._known.get((part.name, digest), iter(())), None)
            about = known or self._identity(part.name)
            self.found.identities.setdefault((part.name, digest), []).append(about)
            self.found.origins[about.key] = self._it.origin
            if self._by_key and (part.workers or not self._subject.keeps_order(part)):
                self._hold(part, carried, about)
            else:
                self._hand_over(part, carried, about)
            self._way, self._made_of = before
        elif isinstance(part, StagePart):
            self._through(part, message, about)
        else:
            self._kept(cast("AnySink", part), message, about)

    def _hold(self, pipe: PipePart, message: object, about: About) -> None:
        """Where no order is kept each message is a key of its own."""
        key: str | None = about.key
        if self._subject.keeps_order(pipe):
            key = None
            with suppress(Exception):  # as in _through_lanes
                key = self._key_of(pipe, message)
        held = _Held(message, about, self._it, self._way, self._made_of, self._key, key)
        self._held.setdefault(pipe.name, []).append(held)

    def _hand_over(self, pipe: PipePart, message: object, about: About) -> None:
        if pipe.book is not None:
            self._through_book(pipe, pipe.book, message, about)
        elif pipe.lanes:
            self._through_lanes(pipe, message, about)
        else:
            self._pass_on(pipe.name, message, about)

    def _original(self, place: str, digest: str) -> Original:
        self._alike[place, digest] += 1
        self._it.begun.append(Original(place, digest, self._alike[place, digest]))
        return self._it.begun[-1]

    def _through_lanes(self, pipe: PipePart, message: object, about: About) -> None:
        before, self._key = self._key, None
        with suppress(Exception):  # a message without its key goes into no lane
            self._key = self._key_of(pipe, message)
        try:
            self._pass_on(pipe.name, message, about)
        finally:
            self._key = before

    def _through_book(
        self, pipe: PipePart, book: BookRoutePart, message: object, about: About
    ) -> None:
        """What a book can't pay goes no further, and where it blocks, nothing of its key does."""
        key, before = self._key_of(pipe, message), self._key
        if (pipe.name, key) in self._blocked:
            return
        if self._is_overweight(pipe, book, message):
            if book.on_overweight == "block":
                self._blocked.add((pipe.name, key))
            return
        self._key = key
        try:
            self._pass_on(pipe.name, message, about)
        except _SaidOtherwise:
            pass
        finally:
            self._key = before

    def _is_overweight(self, pipe: PipePart, book: BookRoutePart, message: object) -> bool:
        most = book.max_message_cost or book.budget
        if most is None:
            return False
        size, cost = len(self._codec(pipe).encode(message)), book.cost
        said = self._told_by(pipe, cost, message) if isinstance(cost, str) else cost
        units = said.units if isinstance(said, Cost) else cast("int", said)
        pairs = ((most.messages, 1), (most.bytes, size), (most.units, units))
        seconds = None if book.max_message_cost is None else book.max_message_cost.seconds
        is_long = seconds is not None and isinstance(said, Cost) and said.seconds > seconds
        return is_long or any(limit is not None and part > limit for limit, part in pairs)

    def _told_by(self, pipe: PipePart, word: str, message: object) -> object:
        """What a function says of a message, or what stands in it at this path."""
        if ":" in word:
            return self._asked(pipe, word, message)
        for name in word.split("."):
            message = (
                cast("Mapping[str, object]", message)[name]
                if isinstance(message, Mapping)
                else getattr(message, name)
            )
        return message

    def _asked(self, pipe: PipePart, path: str, message: object) -> object:
        self._remember(pipe.name)
        if path not in self._telling:
            self._telling[path] = built(self._life, path, self._functions.find(path))
        return self._calls.told(pipe.name, self._telling[path], message)

    def _key_of(self, pipe: PipePart, message: object) -> str:
        """The key of a message, and of the next attempt, where there is one."""
        (word,) = key_words(self._plan, pipe)
        key = str(self._told_by(pipe, word or "", message))
        if ":" in (word or ""):
            keys = self.found.lane_keys.setdefault((pipe.name, word or ""), {})
            known = keys.setdefault(canonical(message), {})
            known[key] = None
            if self._twice:
                self._life.sleep(GAP_US)
                known[str(self._told_by(pipe, word or "", message))] = None
        return key

    def _through(self, part: StagePart, message: object, about: About) -> None:
        is_end = not self._plan.takers(part.name)
        if is_end:
            self._at_function(part, message, about)
        if part.batch is not None:
            self._into_batch(part.name, min(part.batch.max, self._batches), message, about)
            return
        results = list(self._results(part, message, about))
        if not results and not is_end:
            self._passage(part.name).left_out += 1
        for number, result in enumerate(results, 1):
            numbered = replace(about, part=about.part * PARTS_MAX + number)
            self._pass_on(part.name, result, numbered if part.flat_map else about)

    def _into_batch(self, name: str, size: int, message: object, about: About) -> None:
        waiting = self._waiting.setdefault(name, [])
        waiting.append((message, about))
        if len(waiting) >= size:
            self._give_batch(name)

    def _give_batch(self, name: str) -> None:
        """Of one that fails each message is tried alone, as in a run."""
        waiting = self._waiting.pop(name)
        if len(waiting) > 1:
            whole = [deepcopy(message) for message, _ in waiting]
            if not self._is_passed_on(name, whole, waiting[0][1]):
                for message, about in waiting:
                    self._is_passed_on(name, [message], about)
        else:
            ((message, about),) = waiting
            self._pass_on(name, [message], about)

    def _is_passed_on(self, name: str, batch: list[object], about: About) -> bool:
        """What has come to an end of one that fails does not count."""
        came = len(self._it.pending)
        try:
            self._pass_on(name, batch, about)
        except Exception:  # noqa: BLE001 - as in _give
            del self._it.pending[came:]
            return False
        return True

    def _results(self, part: StagePart, message: object, about: About) -> Iterator[object]:
        if part.key_by is not None:
            yield message
        else:
            given = self._called(part, part.does, message, about)
            if self._is_of_book(about):
                given = self._heard(part, given, message, about)
            if part.flat_map is not None:
                yield from cast("Iterable[object]", given or ())
            elif part.filter is not None:
                yield from (message,) if given else ()
            elif part.map is not None or given is not None:
                yield given

    def _is_of_book(self, about: About) -> bool:
        name = self._in_plan(about)
        return any(pipe.name == name and pipe.book is not None for pipe in self._plan.pipes)

    def _in_plan(self, about: About) -> str:
        """What a message comes from, as the plan calls it: its identity in another run has the name of that."""
        return about.pipe.removeprefix(f"{self._plan.name}/")

    def _heard(self, part: StagePart, given: object, message: object, about: About) -> object:
        """The result of a stage, if it is a message. Later: it is asked again."""
        for _ in range(LATER_MAX):
            if not isinstance(given, Later):
                break
            self._life.sleep(round(given.after_s * 1_000_000) + 1)
            given = self._called(part, part.does, message, about)
        if isinstance(given, Later | Rejected | TooHeavy):
            raise _SaidOtherwise
        return None if isinstance(given, Done) else given

    def _ends_behind(self, name: str) -> set[str]:
        return self._plan.behind(name) & self.found.arrived.keys()

    # What a sink has of it.

    def _kept(self, sink: AnySink, message: object, about: About) -> None:
        match sink:
            case JsonlSink():
                as_json = partial(json.dumps, allow_nan=False)
                message = json.loads(self._taken(sink.name, message, as_json, _FOR_JSON))
            case CsvSink():
                row = partial(self._row, sink)
                message = self._taken(sink.name, message, row, _FOR_CSV)
            case StreamSink():
                payload = self._taken(sink.name, message, AutoCodec().encode)
                message = AutoCodec().decode(payload)
            case _:
                pass
        if isinstance(sink, PythonSink):
            self._at_function(sink, message, about)
            self._called(sink, sink.call, message, about)
        else:
            self._at_end(sink.name, canonical(message))

    def _taken(self, name: str, message: object, how: Callable[[object], T], advice: str = "") -> T:
        """The message as a pipe or a sink takes it. Raises what is wrong with it; the first of that is noted, with
        the stage that gave it and what to do."""
        passage = self._passage(name)
        passage.came += 1
        try:
            return how(message)
        except Exception as error:
            passage.failed += 1
            passage.error = (
                passage.error
                or f"{self._gave(message)}, which it can't take: {told_of(error)}{advice}"
            )
            raise

    def _gave(self, message: object) -> str:
        """Who gave a message, and for which one."""
        part, given = self._plan.part(self._giver), f"it is given {short(message)}"
        if not isinstance(part, StagePart):
            return f"{given} by {self._giver}"
        place = place_of_function(self._functions.find(part.does)) if ":" in part.does else ""
        who = f"{part.name} ({place})" if place else part.name
        source = f" for {brief(self._way[-1].text)}" if self._way else ""
        return f"{given} by stage {who}{source}"

    def _lets_pass(self, name: str) -> bool:
        """It hands on what it is given, and makes nothing of its own."""
        part = self._plan.part(name)
        is_choosing = isinstance(part, StagePart) and bool(part.filter or part.key_by)
        return is_choosing or isinstance(part, PipePart)

    def _at_function(self, end: StagePart | PythonSink, message: object, about: About) -> None:
        """Of a batch each message counts by itself, as it comes again in other company."""
        is_of_many = self._plan.takes_batches(end.name)
        for _, one in members_of(message, about) if is_of_many else [("", message)]:
            self._at_end(end.name, canonical(one))

    def _at_end(self, end: str, text: str) -> None:
        self._it.pending.append((end, text))
        self.found.came.append(
            Came(end, text, self._way, self._key, self._made_of, self._it.origin)
        )

    def _row(self, sink: CsvSink, message: object) -> dict[str, str]:
        if not isinstance(message, Mapping):
            raise TypeError("a row of CSV is made of a mapping")
        row = cast("Mapping[str, object]", message)
        columns = self._columns.setdefault(sink.name, sink.columns or tuple(map(str, row)))
        missing = [name for name in columns if name not in row]
        more = [str(name) for name in row if name not in columns]
        if missing or more:
            odd = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(more)} besides"
            raise ValueError(f"a row of the columns {', '.join(columns)} {odd}")
        text = io.StringIO(newline="")
        csv.writer(text).writerow([row[name] for name in columns])
        text.seek(0)
        return dict(zip(columns, next(csv.reader(text)), strict=True))

    # The user's functions.

    def _called(
        self, part: StagePart | PythonSink, path: str, message: object, about: About
    ) -> object:
        passage = self._passage(part.name)
        passage.came += 1
        self._remember(part.name)  # what is called may be an object that does: this run's own
        entry = self._entry(part, path)
        context = self._context(part, about, self._attempt) if entry.asks else None
        try:
            is_flat = isinstance(part, StagePart) and part.flat_map is not None
            again = deepcopy(message) if self._twice or self._afterwards else None
            before, text = effects_of(outsides_of_run()).keys(), canonical(message)
            parts = _parts_of(message)
            self._texts[part.name, about.key] = text
            self._it.calls[part.name] += 1
            with looking() as looks, self._noting_effects(self.found.asking_for):
                given = self._entered(part, entry, context, about, message)
            asked = [name for name, _ in looks]
            asked += [ATTEMPT] if context is not None and context.has_told_attempt else []
            self.found.asking.setdefault(part.name, {}).update(dict.fromkeys(asked))
            handled = Handled(text, (*self._it.origin, self._it.calls[part.name]))
            for effect in effects_of(outsides_of_run()).keys() - before:
                self.found.during[effect] = handled
            call = _Call(part, entry, about, again, given)
            self.found.told[part.name, self._it.origin] |= values_in(canonical(given))
            if self._twice:
                self._call_again(call)
            if self._afterwards:
                self._through_it.append(replace(call, given=deepcopy(given)))
            if _is_reordered(parts, given):
                self.found.reordered.setdefault(part.name, (parts, given))
            if not is_flat:
                require_answer(part.name, path, given)
            if self._way:
                said = part.name, about.piece
                self.found.answers.setdefault(self._way[-1], {})[said] = short(given)
                self.found.said.setdefault(about.whole.key, {})[said] = short(given)
        except Exception as error:
            passage.failed += 1
            passage.error = without_addresses(told_of(error))
            self.found.refused.setdefault(about.whole.key, {})[part.name] = passage.error
            raise
        if context is not None and context.has_drawn:
            self.found.by_chance.add(part.name)
        return given

    @contextmanager
    def _noting_effects(self, noted: dict[Effect, list[Asking]]) -> Generator[None]:
        """What is asked for meanwhile is asked for this message, also if its stage fails then."""
        before = _asked_for(outsides_of_run())
        try:
            yield
        finally:
            of_it = Asking(self._made_of, self._it.origin)
            for effect, times in (_asked_for(outsides_of_run()) - before).items():
                noted.setdefault(effect, []).extend([of_it] * times)

    def _call_again(self, call: _Call) -> None:
        """As a second attempt that nobody remembers."""
        self._life.sleep(GAP_US)
        part, entry, about, given = call.part, call.entry, call.about, call.given
        self._remember(part.name)
        context = self._context(part, about, 2) if entry.asks else None
        with (
            suppress(Exception),
            self._noting_effects(self.found.asked_again),
        ):  # no real run raises it
            second = self._entered(part, entry, context, about, deepcopy(call.message))
            self.found.told_again[part.name, self._it.origin] |= values_in(canonical(second))
            is_put_off = isinstance(given, Later) or isinstance(second, Later)
            is_other = not is_put_off and canonical(second) != canonical(given)
            if isinstance(part, StagePart) and is_other:
                place = place_of_function(entry.function)
                where = f"{part.name} ({place})" if place else part.name
                self.found.retold.setdefault(part.name, (where, call.message, given, second))

    def _remember(self, part: str) -> None:
        """From here on code of this part runs, with the memory of its node."""
        node, memory = self._plan.places[part].node, self._subject.memory
        self._life.world.remembers = lambda _: memory.enter(node)
        memory.enter(node)

    def _entered(
        self,
        part: StagePart | PythonSink,
        entry: Entry,
        context: _Context | None,
        about: About,
        message: object,
    ) -> object:
        call = StageCall(entry.function, context, part.time_limit_s, about=about)
        is_flat = isinstance(part, StagePart) and part.flat_map is not None
        return self._calls.enter(part.name, call.with_all_it_gives() if is_flat else call, message)

    def _entry(self, part: StagePart | PythonSink, path: str) -> Entry:
        known = self._entries.get(part.name)
        if known is None:
            function = built(self._life, path, self._functions.find(path))
            is_flat = isinstance(part, StagePart) and part.flat_map is not None
            known = entry_of(part.name, path, function, may_yield=is_flat)
            self._entries[part.name] = known
        return known

    def _context(self, part: StagePart | PythonSink, about: About, attempt: int) -> _Context:
        transaction = self._transaction(self._in_plan(about))
        return _Context(about, part.name, attempt, VirtualClock(self._life), transaction)

    def _transaction(self, pipe_name: str) -> Transaction | None:
        """That of a store which nobody looks into, with the face of the real one."""
        pipe = next((pipe for pipe in self._plan.pipes if pipe.name == pipe_name), None)
        if pipe is None or pipe.settled is not Boundary.COMMITTED:
            return None
        home = home_of(pipe)
        kind = next((store.kind for store in self._plan.stores if store.name == home), "memory")
        return transaction_of(kind, [])

    def _passage(self, name: str) -> Passage:
        return self.found.passages.setdefault(name, Passage())

    def _codec(self, pipe: PipePart) -> Codec:
        known = self._codecs.get(pipe.name)
        if known is None:
            model = self._functions.find(pipe.payload) if ":" in pipe.payload else None
            if isinstance(model, type) and issubclass(model, BaseModel):
                known = choose_codec(model)
            else:
                known = choose_codec(pipe.payload)
            self._codecs[pipe.name] = known
        return known

    def _identity(self, name: str) -> About:
        self._numbers[name] += 1
        usual = 2 if self._backwards else 1
        epoch = NOBODY - self._strange if self._known or self._strange else usual
        return About(name, epoch, self._numbers[name])


def at_first_attempts(stage: str) -> str:
    """What is to be said of one that does something outside by the number of its attempt."""
    return (
        f"{stage} asks for {ATTEMPT}, and does it at the first attempt alone, which may fail or end with its "
        "process before that: do it at each attempt, with a key that stays the same, such as context.id.key"
    )


def _asked_for(outsides: Iterable[Outside]) -> Counter[Effect]:
    """How often each effect was asked for so far."""
    found = Counter[Effect]()
    for outside in outsides:
        for (action, value), times in outside.asked.items():
            found[outside.name, action, value] += times
    return found


def _is_reordered(before: Sequence[object], given: object) -> bool:
    """Whether a list was given with the same parts in another order."""
    if not before or not isinstance(given, list):
        return False
    first, second = ([*map(canonical, parts)] for parts in (before, cast("list[object]", given)))
    return first != second and sorted(first) == sorted(second)


def _parts_of(message: object) -> list[object]:
    """What is in a batch; nothing where the message is no list."""
    return [*cast("list[object]", message)] if isinstance(message, list) else []


def _of_effects(outside: Outside, told: Mapping[str, tuple[str, str, str]]) -> dict[str, OfEffect]:
    return {text: OfEffect(stage, (outside.name, action)) for text, stage, action in told.values()}


def _keys_in_turn(held: Iterable[_Held]) -> Iterator[_Held]:
    """The key that was given last first, and of each key the messages in their order. Keys that have changed
    places in a pipe before stay as they are."""
    keys: dict[str | None, list[_Held]] = {}
    for one in held:
        keys.setdefault(one.key, []).append(one)
    in_turn = [*reversed(keys.values())]
    in_turn.sort(key=lambda key: min(one.of.number for one in key), reverse=True)
    return (one for key in in_turn for one in key)


def _shared(what: str, texts: Sequence[str], advice: str) -> str:
    first, other = brief_apart(*texts[:2])
    return (
        f"stage {what} for {len(texts)} messages that differ, such as {first} and {other}, so it is done for the "
        f"first of them alone: {advice}, or, if once is meant, say what has to hold outside (simulate: check:)"
    )


def _digest_in_letter(message: object) -> str:
    """That of a source's message as its letter has it; empty where no letter can."""
    with suppress(Exception):
        return digest_of(AutoCodec().encode(message))
    return ""


def _unheard(name: str, about: About, message: object) -> None:
    """Nobody counts these calls."""
    del name, about, message


class _Context(Context):
    """Knows whether anybody has drawn, or asked which attempt this is."""

    has_drawn = False
    has_told_attempt = False

    def __getattribute__(self, name: str) -> object:
        if name == "attempt":
            self.has_told_attempt = True
        return super().__getattribute__(name)

    @property
    def random(self) -> Random:
        self.has_drawn = True
        return super().random
