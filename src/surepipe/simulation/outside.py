"""The world outside, as stages under simulation meet it: a double that remembers what was done to it.

    bank = Outside()
    bank.do("charge", order["id"], key=context.id.key)
    bank.count("charge")                             # {value: times}

It survives the crash of whoever calls it, as a bank does, and its calls are points at which the caller may crash:
before the effect, or after it and before the caller learns of it.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, cast

from surepipe.simulation.actors.lives import ActorWorld, Life
from surepipe.simulation.report.words import brief

_current: list[tuple[ActorWorld, list[Outside]]] = []
"""The world of each run that is under way, with what is outside of it."""


def entered(world: ActorWorld, outsides: list[Outside]) -> None:
    """From now on effects belong to a run of this world."""
    _current.append((world, outsides))


def left() -> None:
    """The run is over."""
    _current.pop()


def speaking_life() -> Life | None:
    """The process whose user's code runs now, in whichever world; None while none does."""
    return _current[-1][0].speaks if _current else None


def outsides_of_run() -> Sequence[Outside]:
    """The outside world of the current run."""
    return _current[-1][1] if _current else ()


Look: TypeAlias = tuple[str, str]
"""What a check asks for: the name of something outside, and an action."""
_looks: list[set[Look]] = []
"""Of each check that is under way, what it has looked at so far."""


@contextmanager
def looking() -> Generator[set[Look]]:
    """While a check is called: what it looks at is what it judges."""
    _looks.append(set())
    try:
        yield _looks[-1]
    finally:
        _looks.pop()


def looked_at(name: str, *actions: str) -> None:
    """Whoever is called now, if it is a check, has looked at this."""
    for seen in _looks[-1:]:
        seen.update((name, action) for action in actions)


class RefusedEffect(BaseException):
    """A stage fails here, on purpose, whatever errors it handles: what it does without an answer is its affair."""


class _Fields(dict[object, Hashable]):
    """A mapping that nobody changes, so it may be counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return len(self)  # the same for equal ones, and in every process


class _Members(frozenset[object]):
    """A set, told in an order that does not follow the hashes of texts."""

    def __repr__(self) -> str:
        return f"{{{', '.join(sorted(map(repr, self)))}}}"


class _Use(NamedTuple):
    """An effect that a call asked for by a key, and where. ``is_by_what_was_done``: it had asked before what was
    done so far, so at another attempt it rightly asks for another effect."""

    stage: str
    message: str
    value: Hashable
    place: str
    is_by_what_was_done: bool


class Outside:
    """Something outside that stages act on: a bank, a mail server, a warehouse.

    Inside a run it lives as long as that run. One that was made before, in a module, say, is at the beginning of
    each run as if nothing had been done to it. Outside of any run (in a plain test of a function) it only counts.
    """

    def __init__(self, name: str = "outside") -> None:
        self.name = name
        self._world: ActorWorld | None = None
        self._forget()
        self._enter_run()

    def _forget(self) -> None:
        self._done: dict[str, Counter[Hashable]] = {}
        self._keys: dict[tuple[str, Hashable], None] = {}
        self._asked: dict[tuple[str, str, str, Hashable], dict[int, list[str | None]]] = {}
        self._uses: dict[tuple[str, str], dict[int, _Use]] = {}
        """By action and key: of each call the first effect that it gave this key."""
        self._asking: set[int] = set()
        """The calls that have asked what was done so far."""
        self._slips: dict[str, tuple[str, str]] = {}
        self.keyless: dict[str, tuple[str, str, str]] = {}
        """What is done once more, as no key names it, when a message is tried again, the stage that does it, and
        the action: by the place of the call."""
        self.unnamed: dict[str, tuple[str, str, str]] = {}
        """The same of all that no key names, whether or not a second attempt does it once more."""
        self.done_for: dict[tuple[str, str, str, Hashable], Counter[int]] = {}
        """Of each of these effects, by the stage that did it and its message: how often each call did it."""
        self.asked_by: dict[tuple[str, Hashable], str] = {}
        """Who asked for each effect first, and where: ``stage (file:line)``."""
        self.named: dict[tuple[str, str], dict[tuple[Hashable, str], dict[str, None]]] = {}
        """By stage and action: each effect with its key, and the messages that it was asked for."""
        self.asked: Counter[tuple[str, Hashable]] = Counter()
        """How often each effect was asked for, done or not."""

    def _enter_run(self) -> None:
        world, outsides = _current[-1] if _current else (None, [])
        if world is not None and world is not self._world:
            self._forget()
            self._world = world
            outsides.append(self)

    def __deepcopy__(self, memo: object) -> Outside:
        """Itself: there is one world outside, whoever keeps a copy of what knows it."""
        del memo
        return self

    def do(self, action: str, value: object, key: object = None) -> bool:
        """Do something that can't be undone. With a ``key`` that was used for this action before, nothing happens
        and False is returned: that is what an idempotency key is for.

        Effects are counted by their values: a list counts as a tuple, a set as a frozenset, and a dict as it is
        now. Raises TypeError for any other value without a hash, with the line that gave it.
        """
        try:
            return self._ask(action, _counted(value), key)
        except _Uncounted as error:
            raise TypeError(
                f"{self.name}.do({action!r}, {brief(repr(value))}){_caller()}: effects are counted by their "
                f"values, and {error} has no hash: give what names the effect, such as an id or a text, or a "
                "list or a dict of such"
            ) from None

    def _ask(self, action: str, value: Hashable, key: object) -> bool:
        self._enter_run()
        life = self._world.speaks if self._world is not None else None
        if life is None or self._world is None:
            return self._do(action, value, key)
        if self._world.reach_out():
            raise RefusedEffect(f"as {self.name} refuses {action}")
        self._look_at(action, value, key)
        return life.at(f"{self.name} {action} {value!r}", lambda: self._do(action, value, key))

    def _look_at(self, action: str, value: Hashable, key: object) -> None:
        """Hold a key against those of earlier calls: it names the effect of one message, at each attempt."""
        world = self._world
        assert world is not None
        (message, call), stage, place = world.handling, world.speaking, _caller()
        self.asked[action, value] += 1
        self.asked_by.setdefault((action, value), f"{stage}{place}")
        use = _Use(stage, message, value, place, call in self._asking)
        self._hold_to_attempts(action, None if key is None else str(key), use, call)
        if key is not None:
            named = self.named.setdefault((stage, action), {})
            named.setdefault((value, str(key)), {})[message] = None
            self._hold_to_others(action, str(key), use, call)

    def _hold_to_attempts(self, action: str, key: str | None, use: _Use, call: int) -> None:
        """The n-th time that a call does something it is compared with the n-th time that each earlier call did.
        An earlier one may have ended before it came so far."""
        calls = self._asked.setdefault((use.stage, use.message, action, use.value), {})
        keys = calls.setdefault(call, [])
        keys.append(key)
        at = len(keys) - 1
        earlier = [known[at] for one, known in calls.items() if one != call and len(known) > at]
        other = next((one for one in earlier if one not in (None, key)), None)
        if key is not None and other is not None:
            self._change_of_key(action, other, use, key, use)
        if key is None and use.message:
            what = f"stage {use.stage} does {self.name} {action} {use.value!r} without a key{use.place}"
            advice = by_a_key(self._world, use.stage)
            self.unnamed.setdefault(use.place, (f"{what}{_LEFT_OUT}: {advice}", use.stage, action))
            if earlier and not any(earlier):
                told = f"{what}, so it is done once more{_AS_ANY}: {advice}"
                self.keyless.setdefault(use.place, (told, use.stage, action))

    def _hold_to_others(self, action: str, key: str, use: _Use, call: int) -> None:
        """Of two effects that have one key the second is not done. What the key is of at another attempt is no
        other effect: its value may tell the time."""
        calls = self._uses.setdefault((action, key), {})
        mine = calls.setdefault(call, use)
        first = next(iter(calls.values()))
        is_known = self._world is not None and use.stage not in self._world.in_company
        if call and use.value != mine.value:
            self._shared_key(action, key, use, mine, "that the same call asks for")
        elif is_known and use.value != first.value and use.message != first.message:
            self._slip(
                f"{use.stage} gives {action} {use.value!r} the key of {action} {first.value!r}, of another "
                "message: only the first of both is done",
                use,
                _effect(action, use),
            )
        elif is_known and use.value != first.value and use.stage != first.stage:
            other = f"that {first.stage} asks for{first.place}"
            self._shared_key(action, key, use, first, other)

    def _shared_key(self, action: str, key: str, use: _Use, first: _Use, whose: str) -> None:
        is_of_batch = self._world is not None and use.stage in self._world.of_batches
        add = 'add what tells them apart to the key, such as f"{context.id.key}/{address}"'
        make = "make the key of each message alone (context.id tells of its batch)"
        self._slip(
            f"{use.stage} gives {action} {use.value!r} the key of {action} {first.value!r} {whose} "
            f"({brief(key)}): only the first of both is done",
            use,
            _effect(action, use),
            make if is_of_batch else add,
        )

    def _change_of_key(self, action: str, old: str, first: _Use, key: str, again: _Use) -> None:
        once, twice = _effect(action, first), _effect(action, again)
        if once != twice:  # as it tells its key, which is another one in each run
            once, twice = once.partition(old)[0], twice.partition(key)[0]
        self._slip(
            f"{first.stage} gives {action} {first.value!r} another key when its message is tried again "
            f"({brief(old)}, then {brief(key)}), so it is repeated",
            again,
            os.path.commonprefix([once, twice]),  # noqa: RUF071 - of texts
        )

    def _slip(self, what: str, use: _Use, effect: str, advice: str = "") -> None:
        """The caller of ``do`` has made a mistake there."""
        is_of_batch = self._world is not None and use.stage in self._world.of_batches
        one_key = "a key names one effect of one message at every attempt"
        advice = advice or key_advice(is_of_batch, one_key)
        self._slips.setdefault(f"{what}{use.place}: {advice}", (self.name, effect))

    @property
    def slips(self) -> dict[str, tuple[str, str]]:
        """What is wrong with the keys that it was given so far, in words; and of which effect: where, and how what
        is done begins."""
        self._hold_attempts_together()
        return self._slips

    def _hold_attempts_together(self) -> None:
        """What is done may tell its key, and so is another effect with each key. But what a call that came to its
        end did for a message it does by the same keys when that is tried again, but for what is done already: a
        key that is gone, and one in its place, are of one effect."""
        for (_, _, action), calls in self._attempts().items():
            first, *later = (uses for _, uses in sorted(calls.items()))
            for again in later:
                gone = [key for key in first if key not in again]
                new = [key for key in again if key not in first]
                for old, key in zip(gone, new, strict=False):
                    if not again[key].is_by_what_was_done:
                        self._change_of_key(action, old, first[old], key, again[key])

    def _attempts(self) -> dict[tuple[str, str, str], dict[int, dict[str, _Use]]]:
        """By stage, message and action: the keys that each call gave which came to its end. A key that other
        messages have as well may be of what these have left to do."""
        found: dict[tuple[str, str, str], dict[int, dict[str, _Use]]] = {}
        world = self._world
        if world is None:
            return found
        for (action, key), calls in self._uses.items():
            is_own = len({use.message for use in calls.values()}) == 1
            for call, use in calls.items() if is_own else ():
                if call in world.ended_well and use.stage not in world.in_company:
                    of_message = found.setdefault((use.stage, use.message, action), {})
                    of_message.setdefault(call, {})[key] = use
        return found

    def _do(self, action: str, value: Hashable, key: object) -> bool:
        if key is not None:
            name = (action, cast("Hashable", str(key)))
            if name in self._keys:
                self._tell(f"{action} {value!r}: the key is known, nothing is done", key)
                return False
            self._keys[name] = None
        else:
            self._note_without_key(action, value)
        done = self._done.setdefault(action, Counter())
        done[value] += 1
        times = "" if done[value] == 1 else f", for the {ordinal(done[value])} time"
        self._tell(f"{action} {value!r}{times}", key)
        return True

    def _note_without_key(self, action: str, value: Hashable) -> None:
        world = self._world
        if world is not None and world.speaks is not None:
            message, call = world.handling
            whose = world.speaking, message, action, value
            self.done_for.setdefault(whose, Counter())[call] += 1

    def _tell(self, text: str, key: object) -> None:
        if self._world is not None:
            self._world.effect(self.name, text, "" if key is None else str(key))

    def _look(self, *actions: str) -> None:
        """Somebody asks what was done so far."""
        looked_at(self.name, *actions)
        if self._world is not None and self._world.speaks is not None:
            self._asking.add(self._world.handling[1])

    def count(self, action: str) -> dict[Hashable, int]:
        """How often each value had this effect."""
        self._enter_run()
        self._look(action)
        return dict(self._done.get(action, {}))

    def done(self) -> Iterator[tuple[str, Hashable]]:
        """Each effect that happened."""
        self._look(*self._done)
        return ((action, value) for action, values in self._done.items() for value in values)

    def totals(self) -> Iterator[tuple[str, int]]:
        """Of each action how often something was done."""
        return ((action, sum(values.values())) for action, values in self._done.items())

    def how_often(self) -> Iterator[tuple[tuple[str, Hashable], int]]:
        """Each effect that happened, and how often; whoever asks has looked at nothing."""
        for action, values in self._done.items():
            yield from (((action, value), times) for value, times in values.items())

    def repeated(self) -> list[str]:
        """Effects that happened more than once, in words."""
        self._look(*self._done)
        return [
            f"{action} {value!r} happened {_times(count)}"
            for action, done in self._done.items()
            for value, count in done.items()
            if count > 1
        ]

    @contextmanager
    def showing(self, action: str, times: int) -> Generator[None]:
        """Meanwhile who asks is told that each effect of this action happened so many times as often."""
        before = self._done
        known = before.get(action, Counter[Hashable]())
        done = {value: count * times for value, count in known.items() if times}
        self._done = {**before, action: Counter(done)}
        try:
            yield
        finally:
            self._done = before


OF_EACH = (
    "do it for each message, with a key made of that message alone (context.id tells of its batch)"
)
"""What is advised to a stage behind a batch, which has no identity of its messages."""


def key_advice(is_of_batch: bool, what: str) -> str:
    """To do this, by the identity of a message; behind a batch another thing."""
    return OF_EACH if is_of_batch else f"{what}, such as context.id.key"


def by_a_key(world: ActorWorld | None, stage: str) -> str:
    """What is advised to a stage of a run that does something without a key."""
    is_of_batch = world is not None and stage in world.of_batches
    advice = key_advice(is_of_batch, "name it by a key that stays the same")
    return f"{advice}, or say what has to hold outside (simulate: check:)"


_AS_ANY = " when its message is tried again, as any message may be"
_LEFT_OUT = (
    ": a second attempt at its message leaves it out, but nothing says that one does so after a process that has "
    "ended right behind it"
)


class _Uncounted(Exception):
    """A value of this type can't be counted."""


def _counted(value: object) -> Hashable:
    """The value, in a form that has a hash, that stays as it is, and that is told alike in every process. Raises
    _Uncounted."""
    if isinstance(value, set | frozenset):
        return _Members(cast("Iterable[object]", value))
    if isinstance(value, list) or type(value) is tuple:
        return tuple(map(_counted, cast("Sequence[object]", value)))
    if isinstance(value, dict):
        fields = cast("dict[object, object]", value)
        return _Fields({name: _counted(one) for name, one in fields.items()})
    try:
        frozenset((value,))
    except TypeError as error:
        raise _Uncounted(type(value).__name__) from error
    return value


def _caller() -> str:
    """Where the user's code called ``do``."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f" ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})" if frame else ""


def _effect(action: str, use: _Use) -> str:
    """As a run tells it."""
    return f"{action} {use.value!r}"


def ordinal(number: int) -> str:
    """``third``, ``4th``."""
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
