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
from typing import TypeAlias, cast

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


class _Fields(dict[object, Hashable]):
    """A mapping that nobody changes, so it may be counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return len(self)  # the same for equal ones, and in every process


class _Members(frozenset[object]):
    """A set, told in an order that does not follow the hashes of texts."""

    def __repr__(self) -> str:
        return f"{{{', '.join(sorted(map(repr, self)))}}}"


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
        self._keys_of: dict[tuple[str, str], tuple[str, Hashable]] = {}
        self.slips: dict[str, tuple[str, str]] = {}
        """What is wrong with the keys that it was given, in words; and of which effect: where, what is done."""
        self.keyless: dict[str, tuple[str, str, str]] = {}
        """What is done once more, as no key names it, when a message is tried again, the stage that does it, and
        the action: by the place of the call."""
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
        if life is None:
            return self._do(action, value, key)
        self._look_at(action, value, key)
        return life.at(f"{self.name} {action} {value!r}", lambda: self._do(action, value, key))

    def _look_at(self, action: str, value: Hashable, key: object) -> None:
        """Hold a key against those of earlier calls: it names the effect of one message, at each attempt the same.

        The n-th time that a call does something it is compared with the n-th time that each earlier call did. An
        earlier one may have ended before it came so far.
        """
        world = self._world
        assert world is not None
        (message, call), stage = world.handling, world.speaking
        self.asked[action, value] += 1
        if (action, value) not in self.asked_by:
            self.asked_by[action, value] = f"{stage}{_caller()}"
        calls = self._asked.setdefault((stage, message, action, value), {})
        keys = calls.setdefault(call, [])
        keys.append(None if key is None else str(key))
        at = len(keys) - 1
        earlier = [known[at] for one, known in calls.items() if one != call and len(known) > at]
        other = next((one for one in earlier if one not in (None, keys[at])), None)
        if key is not None and other is not None:
            self._slip(
                f"{stage} gives {action} {value!r} another key when its message is tried again "
                f"({brief(other)}, then {brief(str(key))}), so it is repeated",
                f"{action} {value!r}",
            )
        if key is None and earlier and not any(earlier):
            place = _caller()
            told = (
                f"stage {stage} does {self.name} {action} {value!r} without a key{place}, so it is done once more "
                "when its message is tried again, as any message may be: name it by a key that stays the same, "
                "such as context.id.key, or say what has to hold outside (simulate: check:)"
            )
            self.keyless.setdefault(place, (told, stage, action))
        if key is not None:
            named = self.named.setdefault((stage, action), {})
            named.setdefault((value, str(key)), {})[message] = None
        first = self._keys_of.setdefault((action, str(key)), (message, value))
        is_known = stage not in world.in_company
        if key is not None and is_known and message != first[0] and value != first[1]:
            self._slip(
                f"{stage} gives {action} {value!r} the key of {action} {first[1]!r}, of another message: "
                "only the first of both is done",
                f"{action} {value!r}",
            )

    def _slip(self, what: str, effect: str) -> None:
        """The caller of ``do`` has made a mistake; where that is."""
        self.slips.setdefault(
            f"{what}{_caller()}: a key names one effect of one message at every attempt, such as context.id.key",
            (self.name, effect),
        )

    def _do(self, action: str, value: Hashable, key: object) -> bool:
        if key is not None:
            name = (action, cast("Hashable", str(key)))
            if name in self._keys:
                self._tell(f"{action} {value!r}: the key is known, nothing is done", key)
                return False
            self._keys[name] = None
        done = self._done.setdefault(action, Counter())
        done[value] += 1
        times = "" if done[value] == 1 else f", for the {_ordinal(done[value])} time"
        self._tell(f"{action} {value!r}{times}", key)
        return True

    def _tell(self, text: str, key: object) -> None:
        if self._world is not None:
            self._world.effect(self.name, text, "" if key is None else str(key))

    def count(self, action: str) -> dict[Hashable, int]:
        """How often each value had this effect."""
        self._enter_run()
        looked_at(self.name, action)
        return dict(self._done.get(action, {}))

    def done(self) -> Iterator[tuple[str, Hashable]]:
        """Each effect that happened."""
        looked_at(self.name, *self._done)
        return ((action, value) for action, values in self._done.items() for value in values)

    def repeated(self) -> list[str]:
        """Effects that happened more than once, in words."""
        looked_at(self.name, *self._done)
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


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
